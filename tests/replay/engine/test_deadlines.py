"""Admission by deadlines, against the plain programme and against a policy that keeps to the shares."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from rules import admission
from rules.admission import Promise, kept
from saving import Saved, resume, saved

from bft.models import Curve, Job, JobTable, write_jobs
from bft.replay import (
    Decision,
    EqualShare,
    Replay,
    Rules,
    State,
    Traits,
    always_idle,
    from_changes,
)
from bft.replay.cli.main import run
from bft.replay.engine.deadlines import Due, is_admitted, minimum_shares

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


@examples(200)
@given(st.lists(due(), max_size=4), due(), st.integers(1, 5))
def test_who_is_admitted_is_whom_the_rules_admit(
    others: list[Due], newcomer: Due, units: int
) -> None:
    """`tests/rules/admission.py` has fractions and no arrays."""

    def promise(one: Due) -> Promise:
        rates = {n: Fraction(float(one.rates[n])) for n in one.sizes}
        return Promise(rates, Fraction(one.left), one.deadline_ns)

    known = [promise(each) for each in others]
    shares = minimum_shares(0, units, others)
    assert [share is not None for share in shares] == kept(0, units, known)
    expected = admission.is_admitted(0, units, promise(newcomer), known)
    assert is_admitted(0, units, newcomer, others) == expected


def _sizes(job: Job) -> tuple[int, ...]:
    return (
        tuple(range(max(job.jmin, 1), job.jmax + 1)) if job.sizes is None else job.sizes
    )


@dataclass
class Keeps:
    """Gives each job the share that admission has counted on, as it knows what is left of it."""

    name: str = field(default="keeps", init=False)
    traits: ClassVar[Traits] = Traits(clairvoyant=True)

    def decide(self, state: State) -> Decision:
        jobs = [
            Due(
                view.job.rates,
                _sizes(view.job),
                view.remaining,
                view.job.deadline_ns or 0,
            )
            for view in state.jobs
        ]
        shares, left, counts = (
            minimum_shares(state.time_ns, state.idle, jobs),
            state.idle,
            [0] * len(jobs),
        )
        for index in sorted(range(len(jobs)), key=lambda each: jobs[each].deadline_ns):
            counts[index] = state.jobs[index].job.at_most(min(shares[index] or 0, left))
            left -= counts[index]
        return Decision(tuple(counts))


def table(jobs: Sequence[Due], submits: Sequence[int]) -> JobTable:
    made = []
    for k, (each, submit) in enumerate(zip(jobs, submits, strict=True)):
        curve = Curve(np.arange(len(each.rates)), each.rates)
        at, least, most = submit * SECOND, each.sizes[0], each.sizes[-1]
        job = Job(
            f"j{k}",
            at,
            least,
            most,
            each.left,
            0.0,
            0.0,
            curve,
            curve,
            sizes=each.sizes,
        )
        made.append(replace(job, deadline_ns=at + each.deadline_ns))
    return JobTable(tuple(made))


@examples(60)
@given(
    st.lists(st.tuples(due(), st.integers(0, 20)), min_size=1, max_size=7),
    st.integers(1, 5),
)
def test_a_policy_that_keeps_to_the_shares_meets_the_deadline_of_everybody_admitted(
    given_jobs: list[tuple[Due, int]], units: int
) -> None:
    jobs = table(*zip(*given_jobs, strict=True))
    rules = Rules(0, admission="deadline")
    outcome = Replay(always_idle(units, 0, 1000 * SECOND), jobs, Keeps(), rules).run()
    for record in outcome.records:
        assert (
            (record.finish_ns is None)
            == (record.refused_ns is not None)
            == record.left_out
        )
        if record.finish_ns is not None:
            assert (
                record.finish_ns <= (record.job.deadline_ns or 0) + 10
            )  # each rescale rounds to a nanosecond
        else:
            assert record.refused_ns == record.job.tsub_ns


def simple(
    name: str, at: int, due_s: int | None, work: float = 100.0, jmax: int = 2
) -> Job:
    curve = Curve([0, 2], [0, 20])
    job = Job(name, at * SECOND, 1, jmax, work, 0.0, 0.0, curve, curve)
    return replace(job, deadline_ns=None if due_s is None else due_s * SECOND)


def test_a_refused_job_is_gone_from_a_checkpoint_on() -> None:
    def one() -> Replay:
        changes = ([0, 0, 30, 60], [0, 1, 1, 1], [True, True, False, True])
        times, nodes, joins = (np.array(column) for column in changes)
        trace = from_changes(
            ["a", "b"],
            times * SECOND,
            nodes.astype(np.int32),
            joins,
            start=0,
            end=500 * SECOND,
        )
        jobs = [simple(f"j{k}", 3 * k, 3 * k + 12 + 5 * (k % 3)) for k in range(12)]
        return Replay(
            trace, JobTable(tuple(jobs)), EqualShare(), Rules(2, admission="deadline")
        )

    whole, taken = one(), list[Saved]()
    expected = whole.run(on_step=lambda now: taken.append(saved(whole)))
    gone = [record.refused_ns for record in expected.records]
    assert 1 < sum(each is not None for each in gone) < 12
    for state in taken[:-1]:
        second = one()
        resume(second, state)
        rest = second.run()
        assert [record.refused_ns for record in rest.records] == gone
        assert rest.steps.equals(expected.steps)


def test_refused_jobs_are_counted_and_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jobs(
        JobTable(
            (
                simple("a", 0, 10),
                simple("b", 0, 10),
                simple("c", 0, 10),
                simple("d", 0, None),
            )
        ),
        "j.csv",
    )
    args = [
        "--cluster",
        "2x1",
        "--jobs",
        "j.csv",
        "--policy",
        "equal-share",
        "--option",
        "admission=deadline",
    ]
    assert run([*args, "--out", "run"]) == 0
    said = "1 of 3 jobs with deadlines were refused and never run (c); summary.json names all"
    assert said in " ".join(capsys.readouterr().err.split())
    summary = json.loads(Path("run/summary.json").read_text())
    assert f"--option admission=deadline: {said}" in summary["notes"]
    assert summary["metrics"]["admission"] == {"with_deadlines": 3, "refused": ["c"]}
    assert (summary["metrics"]["jobs_finished"], summary["metrics"]["jobs"]) == (3, 4)
    census = summary["metrics"]["census"]
    names = (
        "jobs",
        "submitted",
        "refused",
        "left_out",
        "in_system",
        "finished",
        "cancelled",
    )
    assert [census[name] for name in names] == [4, 4, 1, 0, 3, 3, 0]
    assert census["counted"]["jobs_submitted"] == "submitted"
    assert run([*args[:-2], "--option", "admission-units=3", "--out", "other"]) == 2
    assert (
        "--option admission-units has no effect without --option admission=deadline"
        in capsys.readouterr().err
    )


def test_a_replay_that_refuses_a_job_does_not_beat_its_own_bounds(here: Path) -> None:
    """One unit of 10 samples/s: a is done after 1,000 s, b could be after 2,000 s at best, and has 500 s."""
    write_jobs(
        JobTable(
            (
                simple("a", 0, None, work=1e4, jmax=1),
                simple("b", 0, 500, work=1e4, jmax=1),
            )
        ),
        "j.csv",
    )
    command = [
        "--cluster",
        "1x1",
        "--jobs",
        "j.csv",
        "--policy",
        "equal-share",
        "--option",
        "admission=deadline",
    ]
    assert run([*command, "--out", "run"]) == 0
    metrics = json.loads(Path("run/summary.json").read_text())["metrics"]
    assert metrics["jct_to_end_mean_s"] == pytest.approx(1000)
    assert metrics["bounds"]["jct_mean_s"] == pytest.approx(1000)
    assert metrics["bound"] == pytest.approx(
        2e4
    )  # b counts here: another policy may have it admitted
    assert (
        metrics["census"]["counted"]["bounds.jct_mean_s"]
        == metrics["census"]["counted"]["jct_to_end_mean_s"]
    )
    assert metrics["jain_fairness_of_mean_units"] == pytest.approx(1.0)  # of a alone
