"""Admission by deadlines, against a policy that keeps to the shares; `tests/rules/admission.py` has the rule."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from rules.whims import allowed_sizes

from bft.models import Curve, Job, JobTable
from bft.replay import (
    Decision,
    Replay,
    Rules,
    State,
    Traits,
    always_idle,
)
from bft.replay.engine.deadlines import Due, minimum_shares

SECOND = 10**9


@st.composite
def due(draw: st.DrawFn) -> Due:
    most = draw(st.integers(1, 4))
    steps = draw(st.lists(st.integers(0, 3), min_size=most, max_size=most))
    rates = np.array(
        [0, *itertools.accumulate(steps, initial=1)][: most + 1], dtype=np.float64
    )
    sizes = draw(st.sets(st.integers(1, most), min_size=1)) | {most}
    left, deadline = float(draw(st.integers(1, 60))), draw(st.integers(1, 30)) * SECOND
    return Due(rates, tuple(sorted(sizes)), left, deadline)


@dataclass
class Keeps:
    """Gives each job the share that admission has counted on, as it knows what is left of it."""

    name: str = field(default="keeps", init=False)
    traits: ClassVar[Traits] = Traits(clairvoyant=True)

    def decide(self, state: State) -> Decision:
        jobs = [
            Due(
                view.job.rates,
                tuple(allowed_sizes(view.job)),
                view.remaining,
                view.job.deadline_ns or 0,
            )
            for view in state.jobs
        ]
        shares, left = minimum_shares(state.time_ns, state.idle, jobs), state.idle
        counts = [0] * len(jobs)
        for index in sorted(range(len(jobs)), key=lambda each: jobs[each].deadline_ns):
            counts[index] = state.jobs[index].job.at_most(min(shares[index] or 0, left))
            left -= counts[index]
        return Decision(tuple(counts))


def job_of(number: int, due: Due, submit_s: int) -> Job:
    curve, at = Curve(np.arange(len(due.rates)), due.rates), submit_s * SECOND
    costs = {"tcup_s": 0.0, "tcdw_s": 0.0, "deadline_ns": at + due.deadline_ns}
    curves = {"scalability": curve, "objective": curve, "sizes": due.sizes}
    size = due.sizes[0], due.sizes[-1]
    return Job(f"j{number}", at, *size, due.left, **costs, **curves)


@examples(60)
@given(
    st.lists(st.tuples(due(), st.integers(0, 20)), min_size=1, max_size=7),
    st.integers(1, 5),
)
def test_a_policy_that_keeps_to_the_shares_meets_the_deadline_of_everybody_admitted(
    given_jobs: list[tuple[Due, int]], units: int
) -> None:
    jobs = tuple(job_of(k, *each) for k, each in enumerate(given_jobs))
    rules = Rules(0, admission="deadline")
    trace = always_idle(units, 0, 1000 * SECOND)
    for record in Replay(trace, JobTable(jobs), Keeps(), rules).run().records:
        assert record.left_out == (record.refused_ns is not None)
        if record.left_out:
            assert (record.finish_ns, record.refused_ns) == (None, record.job.tsub_ns)
        else:  # each rescale rounds to a nanosecond
            assert record.finish_ns <= record.job.deadline_ns + 10


@pytest.fixture
def refusing(told: Callable[..., str], here: Path) -> Callable[..., Any]:
    """Replays jobs on some units with and without refusals; returns the summary and what is said."""

    def call(units: int, *rows: str, options: str = "") -> tuple[dict[str, Any], str]:
        head = "name,Tsub,deadline,Jmin,Jmax,Pmax,Tcup,Tcdw,Ns,Ps,Os"
        curve = ',0,0,"[0,2]","[0,20]","[0,20]"'
        Path("j.csv").write_text("\n".join([head, *(row + curve for row in rows)]))
        line = f"--cluster {units}x1 --jobs j.csv --policy equal-share --option admission=deadline"
        said = told(f"{line} {options} --out run")
        return json.loads(Path("run/summary.json").read_text()), " ".join(said.split())

    return call


AT = "1970-01-01T00:00:00Z"


def test_refused_jobs_are_counted_and_said(refusing: Any, told: Any) -> None:
    due = f"{AT},1970-01-01T00:00:10Z,1,2,100"
    summary, said = refusing(2, f"a,{due}", f"b,{due}", f"c,{due}", f"d,{AT},,1,2,100")
    refused = "1 of 3 jobs with deadlines were refused and never run (c); summary.json names all"
    assert refused in said
    assert f"--option admission=deadline: {refused}" in summary["notes"]
    metrics = summary["metrics"]
    assert metrics["admission"] == {"with_deadlines": 3, "refused": ["c"]}
    assert (metrics["jobs_finished"], metrics["jobs"]) == (3, 4)
    expected = {"jobs": 4, "submitted": 4, "refused": 1, "left_out": 0}
    expected |= {"in_system": 3, "finished": 3, "cancelled": 0}
    assert expected.items() <= metrics["census"].items()
    assert metrics["census"]["counted"]["jobs_submitted"] == "submitted"
    without = "admission-units has no effect without --option admission=deadline"
    told("--cluster 2x1 --jobs j.csv --option admission-units=3", without, code=2)


def test_a_replay_that_refuses_a_job_does_not_beat_its_own_bounds(
    refusing: Any,
) -> None:
    """One unit of 10 samples/s: a is done after 1,000 s, b could be after 2,000 s at best, and has 500 s."""
    b = f"b,{AT},1970-01-01T00:08:20Z,1,1,10000"
    metrics = refusing(1, f"a,{AT},,1,1,10000", b)[0]["metrics"]
    assert metrics["jct_to_end_mean_s"] == pytest.approx(1000)
    assert metrics["bounds"]["jct_mean_s"] == pytest.approx(1000)
    # b counts here: another policy may have it admitted.
    assert metrics["bound"] == pytest.approx(2e4)
    counted = metrics["census"]["counted"]
    assert counted["bounds.jct_mean_s"] == counted["jct_to_end_mean_s"]
    assert metrics["jain_fairness_of_mean_units"] == pytest.approx(1.0)  # of a alone
