"""Thresholds and ties where a computed number meets a stated one: rounding decides nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bft.models import Curve, Job, JobTable
from bft.models.sharing.xi_table import UnitMemory, fit_beside
from bft.replay import Policy, Replay, Rules, always_idle
from bft.replay.policies.shortest import ShortestFirst, ShortestRemainingFirst
from bft.replay.policies.yarn_cs import YarnCapacity

SECOND_NS = 1_000_000_000


def line(name: str, units: int, rate: float, **others: Any) -> Job:
    """A job whose rate is proportional to its units, `rate` on all of them."""
    curve = Curve([0, units], [0.0, rate])
    fields = {
        "tsub_ns": 0,
        "jmin": 1,
        "jmax": units,
        "pmax": 1e4,
        "tcup_s": 0.0,
        "tcdw_s": 0.0,
        **others,
    }
    return Job(name, scalability=curve, objective=curve, **fields)


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
    here: Path, told: Callable[..., str]
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
def test_srtf_preempts_nobody_for_a_job_that_needs_equally_long(by: Any) -> None:
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
    other = line("other", 71, 1.0, jreq=71, pmax=1000.0, vc="b")
    trace = always_idle(100, 0, 10**6 * SECOND_NS)
    outcome = Replay(
        trace,
        JobTable((*share, other)),
        YarnCapacity(max_share=0.29),
        Rules(max_jobs=0),
    ).run()
    assert [record.start_ns for record in outcome.records[:2]] == [0, 0]


def test_memory_that_fills_its_units_exactly_fits() -> None:
    memory = UnitMemory([("a", 1.0, 0.1), ("b", 1.0, 0.2)])
    a, b = (replace(line(n, 1, 1.0), model=n, batch_size=1.0) for n in "ab")
    assert fit_beside(a, b, 0.3, memory=memory)
    assert not fit_beside(a, b, 0.2999, memory=memory)
