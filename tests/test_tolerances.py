"""How the tolerances relate: what one step calls equal or proven, the next one must not call a contradiction."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

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


def test_every_tolerance_is_larger_than_the_rounding_of_one_operation() -> None:
    relative = [
        milp.EQUAL_SUMS,
        milp.EQUAL_SLOPES,
        milp.EQUAL_DENSE_SLOPES,
        models.EQUAL,
        models.INSTANT,
    ]
    assert all(tolerance > 10 * DOUBLE for tolerance in relative)


def test_what_a_solver_proves_passes_the_check_of_its_answer() -> None:
    assert milp.PROVEN_GAP + milp.SOLVER_ZERO < milp.TOLERANCE / 10


def test_what_draws_one_of_several_optima_is_seen_by_solvers_and_by_no_rounding() -> (
    None
):
    jobs, quantum = 500, 0.01
    assert jobs * milp.PROVEN_GAP < milp.DRAWN_TIES < quantum / 2 / jobs


def test_a_count_that_a_solver_takes_for_whole_is_whole_to_us() -> None:
    assert milp.INTEGRALITY < milp.WHOLE_ITEMS < 0.5


def test_the_charge_that_breaks_ties_is_less_than_what_excludes_a_count_but_more_than_rounding() -> (
    None
):
    charge = milp.CHARGE_QUANTA / 2**milp.SCORE_BITS
    assert DOUBLE < charge < milp.EQUAL_SUMS


def test_pruning_keeps_all_that_the_exact_programme_may_take() -> None:
    assert milp.EQUAL_SUMS < milp.PRUNING_SUMS


def test_losses_taken_for_rounding_do_not_open_a_gap_that_counts_as_unproven() -> None:
    assert milp.NO_LOSS < milp.PROVEN_GAP
    assert milp.PRUNING_SUMS < milp.PROVEN_GAP


def test_slopes_that_are_equal_relative_to_the_values_are_equal_relative_to_themselves() -> (
    None
):
    assert milp.EQUAL_DENSE_SLOPES <= milp.EQUAL_SLOPES


def test_a_finish_rounded_to_a_nanosecond_leaves_less_work_than_counts_as_done() -> (
    None
):
    assert models.INSTANT < models.FINISHED


def test_work_that_finishes_round_off_keeps_the_totals_in_balance() -> None:
    jobs = 100  # with all that each of them may round off
    assert models.FINISHED * jobs < models.BALANCE


def test_a_job_that_counts_as_finished_has_passed_the_stretches_of_its_profile() -> (
    None
):
    assert models.FINISHED < models.PROGRESS


def test_numbers_that_are_equal_lead_to_results_that_are_equal() -> None:
    assert models.FINISHED <= models.EQUAL < models.BALANCE <= models.SAME_RESULT


def test_the_digits_that_count_are_those_of_the_relative_difference() -> None:
    assert float(f"1e-{models.DIGITS}") == models.EQUAL


def test_no_other_module_has_a_tolerance_of_its_own() -> None:
    found = []
    for folder in ("api", "milp", "models", "datasets", "replay"):
        for path in (ROOT / folder).glob("**/*.py"):
            if path.name == "tolerances.py":
                continue
            for statement in ast.parse(path.read_text("utf-8")).body:
                match statement:
                    case (
                        ast.Assign(targets=[ast.Name(id=name)])
                        | ast.AnnAssign(target=ast.Name(id=name))
                    ):
                        text = ast.unparse(statement)
                        if (
                            re.search(
                                r"= [\d.]+e-(0?[6-9]|\d\d)$|= 2\.0 \*\* -\d\d$", text
                            )
                            and name not in NO_TOLERANCES
                        ):
                            found.append(f"{path.relative_to(ROOT)}: {text}")
    assert not found


def test_every_tolerance_says_why_it_is_what_it_is() -> None:
    for path in (ROOT / "milp" / "tolerances.py", ROOT / "models" / "tolerances.py"):
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            if re.match(r"[A-Z_]+ = ", line):
                above = next(
                    text
                    for text in reversed(lines[:number])
                    if not re.match(r"[A-Z_]+ = ", text)
                )
                assert above.startswith("# "), f"{path.name}: {line}"
