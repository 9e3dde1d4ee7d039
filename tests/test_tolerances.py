"""How the tolerances relate, what one step calls equal no other calls a contradiction; and rounding decides nothing."""

import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from bft.milp import tolerances as milp
from bft.models import Curve, Job, JobTable, UnitMemory, fit_beside
from bft.models import tolerances as models
from bft.replay import Policy, Replay, Rules, always_idle
from bft.replay.policies.shortest import ShortestFirst, ShortestRemainingFirst
from bft.replay.policies.yarn_cs import YarnCapacity

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
        ("what one replay adds up in two orders makes no job do worse than on an equal share",
         (models.BALANCE, models.EQUAL_SHARE)),
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
    assert not {
        path: names
        for folder in ("api", "milp", "models", "datasets", "replay")
        for path in (ROOT / folder).glob("**/*.py")
        if path.name != "tolerances.py"
        and (names := {*small.findall(path.read_text("utf-8"))} - NO_TOLERANCES)
    }


@pytest.mark.parametrize("folder", ["milp", "models"])
def test_every_tolerance_says_why_it_is_what_it_is(folder: str) -> None:
    text = (ROOT / folder / "tolerances.py").read_text("utf-8")
    bare = r"^(?!# |[A-Z_]+ = ).*\n[A-Z_]+ = "
    assert not re.findall(bare, text, re.MULTILINE)


SECOND_NS = 1_000_000_000


def line(name: str, units: int, rate: float, **others) -> Job:
    """A job whose rate is proportional to its units, `rate` on all of them."""
    curve = Curve([0, units], [0.0, rate])
    usual = {
        "tsub_ns": 0,
        "jmin": 1,
        "jmax": units,
        "pmax": 1e4,
        "tcup_s": 0.0,
        "tcdw_s": 0.0,
    }
    return Job(name, scalability=curve, objective=curve, **usual | others)


def order_of_finishes(jobs: list[Job], policy: Policy, units: int = 1) -> list[str]:
    trace = always_idle(units, 0, 10**6 * SECOND_NS)
    outcome = Replay(trace, JobTable(tuple(jobs)), policy, Rules(max_jobs=0)).run()
    return [
        record.job.name
        for record in sorted(outcome.records, key=lambda record: record.finish_ns or 0)
    ]


def test_every_straight_line_over_ten_units_asks_for_eight() -> None:
    assert {line("a", 10, float(rate)).request for rate in range(1, 1001)} == {8}


def test_a_line_whose_four_fifths_are_rounded_up_is_no_reason_to_leave_a_job_out(
    here: Path, told
) -> None:
    head = "name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n"
    row = 'a,1,10,5640,2021-01-01T00:00:00Z,0,0,"[0, 10]","[0, 564]","[0, 564]"\n'
    Path("jobs.csv").write_text(head + row)
    told("--cluster 8x1 --jobs jobs.csv --policy fifo --out out")
    assert pd.read_parquet("out/jobs.parquet")["finish"].notna().all()


def test_of_jobs_that_need_equally_long_sjf_runs_the_first_one() -> None:
    jobs = [line("first", 1, 0.7, pmax=2.1), line("second", 1, 1.0, pmax=3.0)]
    assert 2.1 / 0.7 > 3.0  # but for rounding they are equal
    assert order_of_finishes(jobs, ShortestFirst()) == ["first", "second"]


@pytest.mark.parametrize("by", ["time", "unit-time"])
def test_srtf_preempts_nobody_for_a_job_that_needs_equally_long(by) -> None:
    running = line("running", 1, 0.7, pmax=2.1)
    equal = line(
        "equal", 1, 1.0, pmax=2.0, tsub_ns=SECOND_NS
    )  # submitted when the other has 2 s left
    assert order_of_finishes([running, equal], ShortestRemainingFirst(by=by)) == [
        "running",
        "equal",
    ]


def test_a_queue_may_use_exactly_its_largest_share() -> None:
    assert 0.29 * 100 < 29
    share = [
        line("one", 1, 1.0, pmax=50.0, vc="a"),
        line("rest", 28, 1.0, jreq=28, pmax=50.0, vc="a"),
    ]
    outcome = Replay(
        always_idle(100, 0, 10**6 * SECOND_NS),
        JobTable((*share, line("other", 71, 1.0, jreq=71, pmax=1000.0, vc="b"))),
        YarnCapacity(max_share=0.29),
        Rules(max_jobs=0),
    ).run()
    assert [record.start_ns for record in outcome.records[:2]] == [0, 0]


def test_memory_that_fills_its_units_exactly_fits() -> None:
    memory = UnitMemory([("a", 1.0, 0.1), ("b", 1.0, 0.2)])
    a, b = (replace(line(n, 1, 1.0), model=n, batch_size=1.0) for n in "ab")
    assert fit_beside(a, b, 0.3, memory=memory)
    assert not fit_beside(a, b, 0.2999, memory=memory)
