"""Rounding, long replays, invalid answers, and what holds in any world; cases by hand are in `tests/data/worlds`."""

from __future__ import annotations

import math
from itertools import pairwise
from time import sleep
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from rules.drawn import any_rules
from worlds import (
    SECOND,
    START,
    Scripted,
    cluster,
    decided,
    greedy,
    instant,
    keep_one,
    make,
    replay,
    rigid,
    second,
    start_all,
    world,
)

from bft.models import Job, JobTable
from bft.replay import (
    EqualShare,
    MilpPolicy,
    NodeTrace,
    Policy,
    Replay,
    Rules,
    SolverOptions,
    State,
    from_changes,
)
from bft.replay.engine.ledger import BOOKS

RATES = [0.1, 0.3, 1 / 3, 0.7, 1.1, 3.3]

# --- rounding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("seconds", [3, 7, 11, 29, 86_400])
def test_a_finish_due_at_an_instant_is_not_late_by_rounding(
    rate: float, seconds: int
) -> None:
    trace = world([(0, "a", 1), (seconds, "a", 0)], seconds + 9)
    job = make(rates=[0, rate], pmax=rate * seconds, down=5)
    (record,) = replay(trace, [job]).records
    assert (second(record.finish_ns), record.preemptions) == (seconds, 0)


def test_work_between_a_finish_and_the_nanosecond_to_which_it_is_rounded_is_not_counted() -> (
    None
):
    (record,) = replay(world([(0, "a", 1)], 9), [make(rates=[0, 3e6], pmax=7)]).records
    assert record.finish_ns == START + 2_334
    assert record.gained == pytest.approx(7, rel=1e-12)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("changes", [30, 700, 3000])
def test_a_finish_due_when_a_node_leaves_is_not_missed_after_many_changes_of_rate(
    rate: float, changes: int
) -> None:
    """Its rate changes every 1/10 or 1/7 s; at the instant at which it has done its work its nodes leave."""
    gaps = [(0.1, 1 / 7)[k % 2] for k in range(changes)]
    at = [math.fsum(gaps[:k]) for k in range(changes + 1)]
    rates = [0.0, rate, rate * math.sqrt(2)]
    rows = [(t, "b", 1 - k % 2) for k, t in enumerate(at[:-1])]
    trace = world([(0, "a", 1), *rows, (at[-1], "a", 0)], at[-1] + 9)
    ns = [instant(t) for t in at]
    work = math.fsum(
        (b - a) / SECOND * rates[2 - k % 2] for k, (a, b) in enumerate(pairwise(ns))
    )
    (record,) = replay(trace, [make(rates=rates, pmax=work)]).records
    assert record.finish_ns == ns[-1]


@pytest.mark.parametrize("changes", [700, 2001])
def test_a_finish_due_at_the_end_of_the_trace_is_not_missed_after_many_changes_of_rate(
    changes: int,
) -> None:
    trace = flicker(changes, 100_000_003)
    rates = [0.0, 0.1, 0.17]
    work = math.fsum(0.100000003 * rates[2 - k % 2] for k in range(changes))
    (record,) = replay(trace, [make(rates=rates, pmax=work)]).records
    assert record.finish_ns == trace.end


def flicker(events: int, gap_ns: int) -> NodeTrace:
    """Node a idle all the time, node b on and off."""
    times = START + gap_ns * np.arange(events, dtype=np.int64)
    return from_changes(
        ["a", "b"],
        np.append(START, times),
        np.append(0, np.ones(events)).astype(np.int32),
        np.append(True, np.arange(events) % 2 == 0),
        end=START + gap_ns * events,
    )


def test_a_hundred_thousand_events_do_not_drift() -> None:
    # Progress is added up at each of them; that nobody is asked about them spares most of the time.
    trace = flicker(100_000, 7_000_000_003)
    job = make(rates=[0, 0.1], pmax=1e12)
    (record,) = replay(trace, [job], Scripted(keep_one), min_interval_s=1e7).records
    assert record.work == pytest.approx(0.1 * trace.duration_s, rel=1e-9)
    assert record.unit_seconds == pytest.approx(trace.duration_s, rel=1e-9)


@pytest.mark.parametrize(
    "events", [5_000, pytest.param(40_000, marks=pytest.mark.slow)]
)
def test_rescales_at_thousands_of_events_do_not_drift(events: int) -> None:
    gap = 13.000000007
    trace = flicker(events, 13_000_000_007)
    job = make(rates=[0, 0.1, 0.17], pmax=1e12, up=0.3, down=0.7)
    (record,) = replay(trace, [job]).records
    half = events // 2
    # Every other event b leaves (0.7 s at 0.17); from the third on it joins (0.3 s at 0.1).
    closed = half * gap * (0.1 + 0.17) - half * 0.7 * 0.17 - (half - 1) * 0.3 * 0.1
    assert record.work == pytest.approx(closed, rel=1e-9)


def test_a_finish_after_weeks_is_exact_to_a_microsecond() -> None:
    job = make(rates=[0, 0.1], pmax=0.1 * 1_000_000.5)
    (record,) = replay(flicker(20_000, 55 * SECOND), [job], Scripted(keep_one)).records
    assert second(record.finish_ns) == pytest.approx(1_000_000.5, abs=1e-6)


# --- stopping, timing, and policies that answer nonsense --------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_a_replay_stopped_early_is_the_beginning_of_the_whole_one(steps: int) -> None:
    trace = world([(t, "abc"[t % 3], t % 2) for t in range(12)], 20)
    jobs = JobTable(
        (make("x", pmax=60, up=1, down=1), make("y", at=2), make("z", at=5))
    )
    seen: list[int] = []
    part = Replay(trace, jobs, EqualShare(), Rules()).run(
        on_step=seen.append, should_stop=lambda: len(seen) >= steps
    )
    whole = Replay(trace, jobs, EqualShare(), Rules()).run()
    assert (part.interrupted, whole.interrupted) == (True, False)
    assert len(seen) == steps
    assert part.end_ns == (seen[-1] if seen else trace.start)
    pd.testing.assert_frame_equal(
        part.steps.iloc[:-1], whole.steps.iloc[: len(part.steps) - 1]
    )
    assert part.steps["progress"].sum() == pytest.approx(part.work)


def test_a_policy_may_answer_with_numpy_integers() -> None:
    outcome = replay(cluster(1, 1, 9), [make()], Scripted(lambda _: np.array([1])))
    assert outcome.work == 90.0


@pytest.mark.parametrize("name", ["equal-share", "exact", "scripted"])
def test_the_engine_times_every_policys_decisions(name: str) -> None:
    slow = 0.002 if name == "scripted" else 0.0

    def answer(state: State) -> list[int]:
        sleep(slow)
        return keep_one(state)

    policy = Scripted(answer) if slow else policy_of(name, Rules())
    # At 20 s nothing is idle, and nobody is asked.
    rows = [(0, "a", 1), (10, "b", 1), (20, "ab", 0), (30, "a", 1)]
    outcome = replay(world(rows, 40), [make()], policy)
    assert len(outcome.decision_seconds) == 3 == len(decided(outcome)) - 1
    assert all(seconds > slow for seconds in outcome.decision_seconds)


class Doubles:
    """Dynamics with a rate that doubles after 100 s."""

    def __init__(self) -> None:
        self.asked: set[tuple[tuple[int, ...], int]] = set()

    def start(self, *, tunes: bool) -> Doubles:
        return self

    def rate(
        self, placement: tuple[int, ...], progress: float, now_ns: int, *given: Any
    ) -> tuple[float, int | None]:
        assert given == (1.0, "")  # slowdown, kind
        self.asked.add((placement, now_ns))
        later = instant(110)
        return (1.0, later) if now_ns < later else (2.0, None)


def test_a_rate_that_changes_by_itself_triggers_no_decision() -> None:
    profile, policy = Doubles(), Scripted(start_all)
    job = rigid("j", 2, 1000, profile=profile)
    (record,) = replay(cluster(2, 2), [job], policy, start_overhead_s=10).records
    assert second(record.finish_ns) == 10 + 100 + 450
    assert len(policy.seen) == 1
    # At the decision: from the end of the stall on; then when it said.
    assert profile.asked == {((2,), instant(10)), ((2,), instant(110))}


# --- any world --------------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> tuple[NodeTrace, list[Job]]:
    """Instants, rates and costs that are no whole numbers."""
    nodes = "abcde"[: draw(st.integers(1, 5))]
    moments = draw(st.lists(st.floats(0, 500), min_size=1, max_size=12, unique=True))
    rows = [
        (t, draw(st.sampled_from(nodes)), draw(st.integers(0, 1)))
        for t in moments
        for _ in range(3)
    ]
    trace = world(rows, 600, nodes=nodes, units_per_node=draw(st.integers(1, 3)))
    jobs = []
    for k in range(draw(st.integers(1, 5))):
        jmax = draw(st.integers(1, 6))
        curve = [0.0, *(draw(st.floats(0, 1e4)) for _ in range(jmax))]
        some = {"pmax": st.floats(1, 1e6), "at": st.floats(-10, 500)}
        some |= {"up": st.floats(0, 30), "down": st.floats(0, 30)}
        some |= {"jmin": st.integers(0, jmax)}
        jobs.append(make(f"j{k}", curve, **draw(st.fixed_dictionaries(some))))
    return trace, jobs


def policy_of(name: str, rules: Rules) -> Policy:
    if name == "exact":
        return MilpPolicy(60.0, SolverOptions("exact"), cost_model=rules.cost_model)
    return EqualShare() if name == "equal-share" else Scripted(greedy)


@given(worlds(), any_rules, st.sampled_from(["equal-share", "exact", "greedy"]))
def test_the_books_of_any_world_balance(
    drawn: tuple[NodeTrace, list[Job]], rules: Rules, name: str
) -> None:
    trace, jobs = drawn
    outcome = Replay(trace, JobTable(tuple(jobs)), policy_of(name, rules), rules).run()
    steps = outcome.steps
    done = sum(record.gained for record in outcome.records)
    slack = 1e-9 * max(1.0, done)
    costs = {book: steps[f"{book}_cost"].sum() for book in BOOKS}
    for book, cost in costs.items():
        booked = [getattr(record, f"lost_to_{book}") for record in outcome.records]
        assert min(booked) >= 0
        assert cost == pytest.approx(sum(booked), abs=slack)
    assert done - sum(costs.values()) == pytest.approx(outcome.work, abs=slack)
    held = outcome.allocations
    units = held["last_unit"] - held["first_unit"] + 1
    seconds = (units * (held["end_ns"] - held["start_ns"])) / SECOND
    own = seconds.groupby(held["job"]).sum()
    for j, record in enumerate(outcome.records):
        assert -slack <= record.work <= record.job.pmax + slack
        assert record.gained - record.lost == pytest.approx(record.work, abs=slack)
        assert record.finish_ns is None or record.work == record.job.pmax
        assert own.get(j, 0.0) == pytest.approx(record.unit_seconds, abs=1e-6)
    assert seconds.sum() == pytest.approx(outcome.used_unit_seconds, abs=1e-6)
    assert outcome.used_unit_seconds <= outcome.idle_unit_seconds * (1 + 1e-9)
    first = max(trace.start, min(job.tsub_ns for job in jobs))
    assert outcome.start_ns == min(first, outcome.end_ns)
    edges = np.clip([*trace.times, trace.end], outcome.start_ns, outcome.end_ns)
    whole = np.dot(trace.idle_counts(), np.diff(edges)) / SECOND * trace.units_per_node
    assert outcome.idle_unit_seconds == pytest.approx(whole, abs=1e-6)
    at_steps = [outcome.work_at(at) for at in steps["time"].astype("int64")]
    assert at_steps == pytest.approx(steps["progress"].cumsum().tolist(), abs=slack)


@examples(40)
@given(st.data())
def test_the_order_of_rows_within_an_instant_does_not_matter(
    data: st.DataObject,
) -> None:
    cells = st.dictionaries(
        st.tuples(st.integers(0, 9), st.sampled_from("abcd")), st.integers(0, 1)
    )
    rows = [(float(t), n, idle) for (t, n), idle in sorted(data.draw(cells).items())]
    shuffled = data.draw(st.permutations(rows))
    jobs = [make("x", pmax=60, up=1, down=2), make("y", at=1, jmin=2), make("z", at=3)]
    one, other = (
        replay(world(r, 20, nodes="abcd"), jobs, EqualShare()) for r in (rows, shuffled)
    )
    pd.testing.assert_frame_equal(one.steps, other.steps, check_exact=True)
    pd.testing.assert_frame_equal(one.allocations, other.allocations, check_exact=True)
