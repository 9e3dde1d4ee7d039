"""Workloads that submit and cancel jobs during a replay: their events, when orders count, and the accounts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappush
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from test_engine_sharing import world
from worlds import Saved, everything, resume, saved

from bft.models import Curve, Event, Job, JobTable, Orders, Workload
from bft.models.searches.searches import Evolution, SuccessiveHalving
from bft.replay import (
    EqualShare,
    Outcome,
    Policy,
    Replay,
    Rules,
    always_idle,
    summarise,
)
from bft.replay.engine.workload_driver import WorkloadError
from bft.replay.policies.fifo import Fifo

SECOND = 10**9
HOUR = 3600 * SECOND


def trial(
    name: str, at: int = 0, rate: float = 10.0, pmax: float = 810.0, jmax: int = 1
) -> Job:
    curve = Curve([0, 1, max(jmax, 2)], [0, rate, rate * max(jmax, 2)])
    return Job(name, at * SECOND, 1, jmax, pmax, 0.0, 0.0, curve, curve)


@dataclass
class Scripted:
    """Answers by type of event and name of job; remembers the events that it received."""

    marks: tuple[float, ...] = ()
    script: dict[tuple[str, str], Orders] = field(default_factory=dict)
    name: str = field(default="scripted", init=False)
    heard: list[tuple[str, str, int, float, int]] = field(
        default_factory=list, init=False
    )

    def rungs(self, job: Job) -> Sequence[float]:
        return [mark * job.pmax for mark in self.marks]

    def on(self, event: Event) -> Orders:
        self.heard.append(
            (event.type, event.job.name, event.time_ns, event.progress, event.rung)
        )
        return self.script.get((event.type, event.job.name), Orders())


def played(
    jobs: Sequence[Job], workload: Workload | None, units: int = 1, **rules: Any
) -> Outcome:
    """First come first served, on units that are always idle."""
    trace = always_idle(units, 0, 10 * HOUR)
    table = JobTable(tuple(jobs))
    return Replay(trace, table, Fifo(), Rules(**rules), workload=workload).run()


def silent(seed: int, workload: Workload | None, policy: Policy, rules: Rules) -> Any:
    trace, jobs = world(np.random.default_rng(seed))
    return Replay(trace, jobs, policy, rules, workload=workload).run()


@examples(20)
@given(
    st.integers(0, 10**6),
    st.sampled_from([EqualShare, Fifo]),
    st.sampled_from([0, 4]),
    st.sampled_from([0.0, 25.0]),
)
def test_a_workload_that_orders_nothing_changes_nothing(
    seed: int, policy: type[EqualShare | Fifo], most: int, interval: float
) -> None:
    given = policy(), Rules(most, min_interval_s=interval)
    without, beside = silent(seed, None, *given), silent(seed, Scripted(), *given)
    assert everything(replace(beside, scores=None)) == everything(without)
    # Rungs cut time into more pieces, whose sums may differ in the last bit; no decision is taken at them.
    halves = silent(seed, Scripted((0.25, 0.5)), *given)
    for one, other in zip(halves.records, without.records, strict=True):
        assert one.work == pytest.approx(other.work, rel=1e-9, abs=1e-9 * one.job.pmax)
        assert abs((one.finish_ns or 0) - (other.finish_ns or 0)) <= 10


def test_what_a_workload_is_told_and_when() -> None:
    # One unit: a runs 0 to 81 s, b 81 to 162 s, of 10 samples/s and 810 samples each.
    workload = Scripted((1 / 3, 2 / 3))
    played((trial("a"), trial("b", 5)), workload)
    assert workload.heard == [
        ("start", "a", 0, 0.0, 0),
        ("rung", "a", 27 * SECOND, 270.0, 1),
        ("rung", "a", 54 * SECOND, 540.0, 2),
        ("finish", "a", 81 * SECOND, 810.0, 0),
        ("start", "b", 81 * SECOND, 0.0, 0),
        ("rung", "b", 108 * SECOND, 270.0, 1),
        ("rung", "b", 135 * SECOND, 540.0, 2),
        ("finish", "b", 162 * SECOND, 810.0, 0),
    ]


def test_units_of_a_cancelled_job_return_at_the_instant_and_its_work_counts() -> None:
    workload = Scripted((1 / 3,), {("rung", "a"): Orders(cancel=["a"], score=0.5)})
    outcome = played((trial("a"), trial("b")), workload)
    a, b = outcome.records
    assert (a.cancelled_ns, a.finish_ns, a.work) == (27 * SECOND, None, 270.0)
    assert (b.start_ns, b.finish_ns) == (27 * SECOND, 108 * SECOND)
    assert (outcome.work, outcome.end_ns) == (270.0 + 810.0, 108 * SECOND)
    scores = {"time_ns": 27 * SECOND, "job": 0, "progress": 270.0, "score": 0.5}
    assert outcome.scores.to_dict("records") == [scores]


def test_what_a_start_causes_happens_a_nanosecond_later() -> None:
    orders = Orders(submit=[trial("c")], cancel=["a", "b", "d"])
    workload = Scripted((), {("start", "a"): orders})
    jobs = (trial("a"), trial("b"), trial("d", at=500))  # b waits; d has not come
    outcome = played(jobs, workload)
    a, b, d, c = outcome.records
    assert a.cancelled_ns == b.cancelled_ns == d.cancelled_ns == 1
    assert a.work == pytest.approx(1e-8)
    assert (c.job.tsub_ns, c.start_ns, c.finish_ns) == (1, 1, 81 * SECOND + 1)
    assert outcome.end_ns == c.finish_ns  # nobody waits for d


def test_a_job_that_is_cancelled_before_it_comes_was_never_submitted() -> None:
    workload = Scripted((), {("start", "a"): Orders(cancel=["b"])})
    jobs = (trial("a"), trial("b", at=50))  # a runs for 81 s
    metrics = summarise(played(jobs, workload))
    expected = {"jobs": 2, "submitted": 1, "in_system": 1, "cancelled": 1}
    assert expected.items() <= metrics["census"].items()
    assert metrics["without_units_s"]["mean"] == 0.0
    assert metrics["jain_fairness_of_mean_units"] == 1.0


def test_a_job_submitted_for_later_comes_then_and_in_order() -> None:
    later, soon = trial("z", 100), trial("y", 3)
    workload = Scripted((), {("finish", "a"): Orders(submit=[later, soon])})
    jobs = (trial("a", pmax=50), trial("b", 100, pmax=10))
    starts = {r.job.name: r.start_ns for r in played(jobs, workload).records}
    # The submit time of y had passed. b and z come at 100 s: in the order of the table, to which z was added.
    assert starts == {"a": 0, "b": 100 * SECOND, "z": 101 * SECOND, "y": 5 * SECOND}


def test_cancelling_who_has_finished_or_been_cancelled_changes_nothing() -> None:
    script = {
        ("finish", "a"): Orders(cancel=["a", "b", "b"]),
        ("finish", "c"): Orders(cancel=["b", "a"]),
    }
    outcome = played((trial("a"), trial("b"), trial("c")), Scripted((), script))
    ends = [(record.finish_ns, record.cancelled_ns) for record in outcome.records]
    assert ends == [(81 * SECOND, None), (None, 81 * SECOND), (162 * SECOND, None)]


# --- successive halving against a replayer of its own -----------------------------------------------------------------


def alone(
    scores: list[list[float]], units: int, eta: int, levels: int, pmax: float
) -> list[tuple[float, bool]]:
    """When each trial ends (s) and whether it finishes: one unit each, first come first served, 1 sample/s.

    `scores[trial][rung]`, rungs from 0. At one instant finishes come before rungs, each in order of the trials.
    """
    rungs = [pmax / eta**k for k in range(levels, 0, -1)]
    waiting, free = list(range(len(scores))), units
    heap: list[
        tuple[float, int, int, float]
    ] = []  # time, rung (-1: finish), trial, begin
    seen: list[list[float]] = [[] for _ in rungs]
    ends: list[tuple[float, bool]] = [(math.nan, False)] * len(scores)
    now = 0.0
    while True:
        while free and waiting:
            index, free = waiting.pop(0), free - 1
            heappush(heap, (now + rungs[0], 0, index, now))
        if not heap:
            return ends
        now = heap[0][0]
        batch = [entry for entry in heap if entry[0] == now]
        heap = [entry for entry in heap if entry[0] != now]
        heapify(heap)
        for _, rung, index, begin in sorted(
            batch, key=lambda entry: (entry[1] >= 0, entry[2])
        ):
            if rung >= 0:
                seen[rung].append(scores[index][rung])
                rank = sorted(seen[rung], reverse=True).index(scores[index][rung])
                if rank < max(1, len(seen[rung]) // eta):
                    last = rung + 1 == levels
                    heappush(
                        heap,
                        (
                            begin + (pmax if last else rungs[rung + 1]),
                            -1 if last else rung + 1,
                            index,
                            begin,
                        ),
                    )
                    continue
            ends[index], free = (now, rung < 0), free + 1


@examples(25)
@given(
    st.integers(1, 25),
    st.integers(1, 8),
    st.sampled_from([2, 3]),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_successive_halving_does_as_a_replayer_of_its_own(
    trials: int, units: int, eta: int, levels: int, seed: int
) -> None:
    pmax = 6.0**levels
    jobs = JobTable(
        tuple(trial(f"t{k:02d}", rate=1.0, pmax=pmax) for k in range(trials))
    )
    search = SuccessiveHalving(eta, levels, noise=0.3, seed=seed)
    outcome = played(jobs, search, units, max_jobs=0)
    scores = []
    for job in jobs:  # by its docstring
        rng = np.random.default_rng((seed, *job.name.encode()))
        quality, errors = rng.uniform(), rng.standard_normal(levels)
        parts = [eta**-k for k in range(levels, 0, -1)]
        scores.append(
            [
                quality * p**0.25 + 0.3 * (1 - p) * e
                for p, e in zip(parts, errors, strict=True)
            ]
        )
    expected = alone(scores, units, eta, levels, pmax)
    got = [
        (
            r.ended_ns / SECOND if r.ended_ns is not None else math.nan,
            r.finish_ns is not None,
        )
        for r in outcome.records
    ]
    assert got == expected
    assert outcome.work == pytest.approx(
        sum(r.unit_seconds for r in outcome.records)
    )  # 1 sample/s on a unit
    assert outcome.used_unit_seconds == pytest.approx(outcome.work)


# --- evolution --------------------------------------------------------------------------------------------------------


def test_members_that_finish_have_children_until_there_are_enough() -> None:
    members = [trial(f"m{k}", pmax=100.0 + k) for k in range(4)]
    outcome = played(members, Evolution(children=30, population=4, sample=3, seed=5), 3)
    finishes = sorted(record.finish_ns for record in outcome.records)
    # One child a finish, at that instant.
    assert [r.job.tsub_ns for r in outcome.records[4:]] == finishes[:30]
    parents = {record.job.name.split("+")[0] for record in outcome.records}
    assert parents <= {job.name for job in members}
    assert len(outcome.scores) == len(outcome.records) == 34
    assert outcome.work == pytest.approx(sum(r.job.pmax for r in outcome.records))


def test_a_child_follows_the_best_of_a_sample_of_the_youngest() -> None:
    search = Evolution(children=9, population=2, sample=50, step=0.0, growth=0.0)
    jobs = {
        name: trial(name, pmax=pmax)
        for name, pmax in (("a", 10.0), ("b", 20.0), ("c", 30.0))
    }
    score: dict[str, float] = {}
    for time, (name, job) in enumerate(jobs.items()):
        orders = search.on(Event("finish", job, time, job.pmax, jobs=jobs))
        score[name] = orders.score
        (child,) = orders.submit
        # Of 50 drawn both are there.
        best = max([*score][-2:], key=score.__getitem__)
        assert (child.pmax, child.name) == (jobs[best].pmax, f"{best}+{time + 1}")


# --- all of them ------------------------------------------------------------------------------------------------------


def search_of(kind: str, seed: int) -> Replay:
    trace, jobs = world(np.random.default_rng(seed), events=25, jobs=6)
    jobs = JobTable(tuple(replace(job, pmax=3e3) for job in jobs))
    spawner = Scripted((0.3,), {
        ("start", "j1"): Orders(cancel=["j2"], submit=[trial("later", 2000, pmax=5e3, jmax=4)]),
        ("rung", "j3"): Orders(cancel=["j3"], score=1.0),
    })  # fmt: skip
    workloads: dict[str, Workload] = {
        "hpo": SuccessiveHalving(2, 3, seed=seed),
        "nas": Evolution(children=7, population=3, seed=seed),
        "scripted": spawner,
    }
    return Replay(trace, jobs, EqualShare(), Rules(3), workload=workloads[kind])


@pytest.mark.parametrize("kind", ["hpo", "nas", "scripted"])
def test_a_checkpoint_at_any_event_goes_on_to_the_same_end(kind: str) -> None:
    taken: list[Saved] = []
    whole = search_of(kind, 3)
    expected = everything(whole.run(on_step=lambda now: taken.append(saved(whole))))
    assert len(taken) > 20
    for state in taken[:-1]:
        second = search_of(kind, 3)
        resume(second, state)
        assert everything(second.run()) == expected


@pytest.mark.parametrize("kind", [SuccessiveHalving, Evolution])
def test_the_seed_decides_what_is_found(kind: Any) -> None:
    jobs = JobTable(tuple(trial(f"t{k}", at=k) for k in range(9)))

    def outcome(seed: int) -> list[Any]:
        return everything(played(jobs, kind(seed=seed), 2))

    assert outcome(1) == outcome(1) != outcome(2)


class Raises(Scripted):
    def on(self, event: Event) -> Orders:
        raise KeyError("no such\nthing")


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (
            Scripted((0.5, 0.5)),
            r"rungs of job 'a' must ascend between 0 and 810 samples, not \[405",
        ),
        (Scripted((1.0,)), "must ascend"),
        (
            Scripted((), {("start", "a"): Orders(cancel=["nobody"])}),
            "cancelled 'nobody', which is no job",
        ),
        (
            Scripted((), {("start", "a"): Orders(submit=[trial("a")])}),
            "submitted a second job 'a'",
        ),
        (Scripted((), {("start", "a"): None}), "answered None; expected Orders"),  # type: ignore[dict-item]
        (
            Raises(),
            r"workload 'scripted' was stopped: on\(\) raised KeyError: 'no such\\nthing'",
        ),
    ],
)
def test_a_workload_that_orders_what_cannot_be_is_stopped_by_name(
    workload: Scripted, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        played((trial("a"),), workload)


@pytest.mark.parametrize(
    "bad", [{"submit": ["a"]}, {"cancel": "a"}, {"cancel": [1]}, {"score": math.nan}]
)
def test_orders_refuse_what_they_cannot_hold(bad: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match="Orders: "):
        Orders(**bad)


def test_scores_are_a_table_only_where_there_is_a_workload() -> None:
    jobs = (trial("a"),)
    assert played(jobs, None).scores is None
    empty = played(jobs, Scripted()).scores.to_dict("list")
    assert empty == {"time_ns": [], "job": [], "progress": [], "score": []}
