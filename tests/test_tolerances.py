"""How the tolerances relate: what one step calls equal or proven, the next one must not call a contradiction."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from bft.milp import tolerances as milp
from bft.models import tolerances as models

ROOT = Path(__file__).parents[1]
DOUBLE = sys.float_info.epsilon
# Small constants that are no tolerances: floors and weights that were published, and a unit of time.
NO_TOLERANCES = {
    "FLOOR",
    "MEAN_PENALTY",
    "PUBLISHED_TOLERANCE",
    "_MIN_SPEED",
}


JOBS, QUANTUM = 500, 0.01  # of a decision with ties that are drawn
PROVEN = milp.PROVEN_GAP + milp.SOLVER_ZERO
CHARGE = milp.CHARGE_QUANTA / 2**milp.SCORE_BITS


@pytest.mark.parametrize(
    ("why", "ascending"),
    [
        *(
            ("a tolerance is larger than the rounding of one operation", (10 * DOUBLE, tolerance))
            for tolerance in (milp.EQUAL_SUMS, milp.EQUAL_SLOPES, milp.EQUAL_DENSE_SLOPES, models.EQUAL, models.INSTANT)
        ),
        ("what a solver proves passes the check of its answer", (PROVEN, milp.TOLERANCE / 10)),
        ("what draws one of several optima is seen by solvers and by no rounding",
         (JOBS * milp.PROVEN_GAP, milp.DRAWN_TIES, QUANTUM / 2 / JOBS)),
        ("a count that a solver takes for whole is whole to us", (milp.INTEGRALITY, milp.WHOLE_ITEMS, 0.5)),
        ("the charge that breaks ties is less than what excludes a count but more than rounding",
         (DOUBLE, CHARGE, milp.EQUAL_SUMS)),
        ("pruning keeps all that the exact programme may take", (milp.EQUAL_SUMS, milp.PRUNING_SUMS)),
        ("losses taken for rounding do not open a gap that counts as unproven", (milp.NO_LOSS, milp.PROVEN_GAP)),
        ("pruning does not open one either", (milp.PRUNING_SUMS, milp.PROVEN_GAP)),
        ("a finish rounded to a nanosecond leaves less work than counts as done", (models.INSTANT, models.FINISHED)),
        ("work that 100 finishes round off keeps the totals in balance", (models.FINISHED * 100, models.BALANCE)),
        ("a job that counts as finished has passed the stretches of its profile", (models.FINISHED, models.PROGRESS)),
        ("numbers that are equal lead to results that are equal", (models.EQUAL, models.BALANCE)),
    ],
)  # fmt: skip
def test_what_one_step_calls_equal_the_next_one_does_not_call_a_contradiction(
    why: str, ascending: tuple[float, ...]
) -> None:
    assert all(low < high for low, high in pairwise(ascending)), why


def test_tolerances_that_may_be_the_same() -> None:
    assert milp.EQUAL_DENSE_SLOPES <= milp.EQUAL_SLOPES
    assert models.FINISHED <= models.EQUAL
    assert models.BALANCE <= models.SAME_RESULT
    assert float(f"1e-{models.DIGITS}") == models.EQUAL


def test_no_other_module_has_a_tolerance_of_its_own() -> None:
    small = re.compile(
        r"^(\w+)(?:: \w+)? = (?:[\d.]+e-(?:0?[6-9]|\d\d)|2\.0 \*\* -\d\d)$", re.M
    )
    found = {
        path: names
        for folder in ("api", "milp", "models", "datasets", "replay")
        for path in (ROOT / folder).glob("**/*.py")
        if path.name != "tolerances.py"
        and (names := {*small.findall(path.read_text("utf-8"))} - NO_TOLERANCES)
    }
    assert not found


@pytest.mark.parametrize("folder", ["milp", "models"])
def test_every_tolerance_says_why_it_is_what_it_is(folder: str) -> None:
    text = (ROOT / folder / "tolerances.py").read_text("utf-8")
    bare = r"^(?!# |[A-Z_]+ = ).*\n[A-Z_]+ = "
    assert not re.findall(bare, text, re.MULTILINE)
