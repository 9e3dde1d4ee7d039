"""The rules of time, one by one, in cases small enough to compute by hand; and invariants of random cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import sleep
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.models import Curve, Job, JobTable
from bft.replay.engine.ledger import BOOKS, JobRecord, Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.policies import (
    Decision,
    EqualShare,
    MilpPolicy,
    Policy,
    PolicyError,
    State,
)
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import NodeTrace, always_idle, from_changes

SECOND = 1_000_000_000
START = 1_613_000_000 * SECOND
Rows = Sequence[tuple[float, str, int]]


def world(
    rows: Rows,
    end: float,
    *,
    start: float = 0,
    units_per_node: int = 1,
    nodes: str = "",
) -> NodeTrace:
    """A trace of rows (second, node letters, idle)."""
    single = sorted(
        ((t, n, bool(idle)) for t, letters, idle in rows for n in letters),
        key=lambda row: row[0],
    )
    names = nodes or "".join(sorted({n for _, n, _ in single}))
    return from_changes(
        list(names),
        np.array([START + round(t * SECOND) for t, _, _ in single], dtype=np.int64),
        np.array([names.index(n) for _, n, _ in single], dtype=np.int32),
        np.array([idle for *_, idle in single], dtype=bool),
        start=START + round(start * SECOND),
        end=START + round(end * SECOND),
        units_per_node=units_per_node,
    )


def make(
    name: str = "j",
    rates: Sequence[float] = (0, 10, 18, 24),
    *,
    pmax: float = 1e9,
    at: float = 0,
    jmin: int = 1,
    jmax: int | None = None,
    up: float = 0,
    down: float = 0,
) -> Job:
    curve = Curve(np.arange(len(rates)), np.array(rates, dtype=float))
    return Job(
        name=name,
        tsub_ns=START + round(at * SECOND),
        jmin=jmin,
        jmax=len(rates) - 1 if jmax is None else jmax,
        pmax=pmax,
        tcup_s=up,
        tcdw_s=down,
        scalability=curve,
        objective=curve,
    )


@dataclass
class Asks:
    """Answers by a function, and remembers when it was asked what."""

    answer: Callable[[State], Sequence[Any]]
    name: str = "asks"
    asked: list[tuple[float, int, dict[str, int]]] = field(default_factory=list)

    def decide(self, state: State) -> Decision:
        held = {view.job.name: view.units for view in state.jobs}
        self.asked.append(((state.time_ns - START) / SECOND, state.idle, held))
        return Decision(tuple(self.answer(state)))


def greedy(state: State) -> list[int]:
    """First come first served, as much as fits."""
    left, counts = state.idle, []
    for view in state.jobs:
        n = min(view.job.jmax, left)
        counts.append(n if n >= view.job.jmin else 0)
        left -= counts[-1]
    return counts


def keep_one(state: State) -> list[int]:
    """One unit for each job, in order, as far as they go."""
    return [1 if k < state.idle else 0 for k in range(len(state.jobs))]


def at_times(plan: dict[float, Sequence[int]]) -> Callable[[State], Sequence[int]]:
    """Counts by second; in between everybody keeps what it has."""

    def answer(state: State) -> Sequence[int]:
        now = (state.time_ns - START) / SECOND
        return plan.get(now, [view.units for view in state.jobs])

    return answer


def replay(
    trace: NodeTrace, jobs: Sequence[Job], policy: Policy | None = None, **rules: Any
) -> Outcome:
    return Replay(
        trace, JobTable(tuple(jobs)), policy or Asks(greedy), Rules(**rules)
    ).run()


def second(instant: int | None) -> float | None:
    return None if instant is None else (instant - START) / SECOND


def finish(record: JobRecord) -> float | None:
    return second(record.finish_ns)


def decisions(outcome: Outcome) -> list[float]:
    times = outcome.steps.loc[outcome.steps["status"] != "end", "time"].astype("int64")
    return [(time - START) / SECOND for time in times]


def gantt(outcome: Outcome) -> list[tuple[int, int, float | None, float | None]]:
    """Job, unit, start and end of every allocation."""
    return sorted(
        (int(row.job), unit, second(row.start_ns), second(row.end_ns))
        for row in outcome.allocations.itertuples()
        for unit in range(row.first_unit, row.last_unit + 1)
    )


# --- the order of one instant -----------------------------------------------------------------------------------------


def test_a_job_finishes_before_its_node_leaves_at_the_same_instant() -> None:
    outcome = replay(world([(0, "a", 1), (10, "a", 0)], 20), [make(pmax=100, down=5)])
    (record,) = outcome.records
    assert finish(record) == 10
    assert (record.preemptions, record.lost_to_preemption, record.work) == (
        0,
        0.0,
        100.0,
    )


@pytest.mark.parametrize("rate", [0.1, 0.3, 1 / 3, 0.7, 1.1, 3.3])
@pytest.mark.parametrize("seconds", [3, 7, 11, 29, 86_400])
def test_a_finish_due_at_an_instant_is_not_late_by_rounding(
    rate: float, seconds: int
) -> None:
    trace = world([(0, "a", 1), (seconds, "a", 0)], seconds + 9)
    (record,) = replay(
        trace, [make(rates=[0, rate], pmax=rate * seconds, down=5)]
    ).records
    assert (finish(record), record.preemptions) == (seconds, 0)


@pytest.mark.parametrize("rate", [0.1, 0.3, 1 / 3, 0.7, 1.1, 3.3])
@pytest.mark.parametrize("changes", [30, 700, 3000])
def test_a_finish_due_when_a_node_leaves_is_not_missed_after_many_changes_of_rate(
    rate: float, changes: int
) -> None:
    """Its rate changes every 1/10 or 1/7 s; at the instant at which it has done its work its nodes leave."""
    gaps = [(0.1, 1 / 7)[k % 2] for k in range(changes)]
    at = [math.fsum(gaps[:k]) for k in range(changes + 1)]
    rates = [0.0, rate, rate * math.sqrt(2)]
    trace = world(
        [
            (0, "a", 1),
            *((t, "b", 1 - k % 2) for k, t in enumerate(at[:-1])),
            (at[-1], "a", 0),
        ],
        at[-1] + 9,
    )
    ns = [START + round(t * SECOND) for t in at]
    work = math.fsum(
        (b - a) / SECOND * rates[2 - k % 2] for k, (a, b) in enumerate(pairwise(ns))
    )
    (record,) = replay(trace, [make(rates=rates, pmax=work)]).records
    assert record.finish_ns == ns[-1]


def test_a_finish_due_at_the_end_of_the_trace_is_not_missed_after_many_changes_of_rate() -> (
    None
):
    for changes in (700, 2001):
        trace = flicker(changes, 100_000_003)
        rates = [0.0, 0.1, 0.17]
        gap = 0.100000003
        work = math.fsum(gap * rates[2 - k % 2] for k in range(changes))
        (record,) = replay(trace, [make(rates=rates, pmax=work)]).records
        assert record.finish_ns == trace.end


def test_a_job_that_lacks_more_than_rounding_is_not_finished() -> None:
    trace = world([(0, "a", 1), (10, "a", 0)], 20)
    (record,) = replay(trace, [make(pmax=100 * (1 + 1e-11))]).records
    assert finish(record) is None


def test_a_unit_freed_by_a_finish_goes_to_the_next_job_in_the_same_decision() -> None:
    policy = Asks(greedy)
    jobs = [make("a", [0, 10], pmax=100), make("b", [0, 10], pmax=100)]
    outcome = replay(world([(0, "a", 1)], 50), jobs, policy)
    assert [finish(record) for record in outcome.records] == [10, 20]
    assert decisions(outcome) == [0, 10]
    assert policy.asked[1] == (10.0, 1, {"b": 0})


def test_a_leave_comes_before_a_join_of_the_same_instant() -> None:
    policy = Asks(greedy)
    outcome = replay(
        world([(0, "a", 1), (10, "a", 0), (10, "b", 1)], 30), [make(down=3)], policy
    )
    (record,) = outcome.records
    assert policy.asked == [(0.0, 1, {"j": 0}), (10.0, 1, {"j": 0})]
    assert gantt(outcome) == [(0, 0, 0, 10), (0, 1, 10, 30)]
    assert (record.preemptions, record.lost_to_preemption, record.starts) == (
        1,
        30.0,
        2,
    )


def test_a_join_comes_before_a_submit_of_the_same_instant() -> None:
    policy = Asks(greedy)
    outcome = replay(world([(5, "a", 1)], 30), [make(at=5)], policy)
    assert policy.asked == [(5.0, 1, {"j": 0})]
    assert second(outcome.records[0].start_ns) == 5


def test_everything_at_one_instant_is_decided_once() -> None:
    # At 10 s job f finishes on a, b leaves job v, c joins, job n is submitted.
    policy = Asks(keep_one)
    trace = world([(0, "ab", 1), (10, "b", 0), (10, "c", 1)], 30)
    jobs = [make("f", pmax=100), make("v", down=2), make("n", at=10)]
    outcome = replay(trace, jobs, policy)
    assert policy.asked == [(0.0, 2, {"f": 0, "v": 0}), (10.0, 2, {"v": 0, "n": 0})]
    step = outcome.steps.iloc[1]
    assert [
        step[c]
        for c in ("joined", "left", "preempted", "idle", "used", "jobs", "running")
    ] == [
        1,
        1,
        1,
        2,
        2,
        2,
        2,
    ]
    assert step["preemption_cost"] == 20.0
    assert step["progress"] == 100 + 100 - 20


def test_ties_of_submit_time_are_broken_by_the_order_of_the_table() -> None:
    outcome = replay(
        world([(0, "a", 1)], 99), [make(name, [0, 10], pmax=10, at=3) for name in "zay"]
    )
    assert [finish(record) for record in outcome.records] == [4, 5, 6]


# --- finishes ---------------------------------------------------------------------------------------------------------


def test_a_finish_is_exact_and_rounded_up_to_a_nanosecond() -> None:
    outcome = replay(
        world([(0, "a", 1), (9, "b", 1)], 50), [make(rates=[0, 3], pmax=7)]
    )
    (record,) = outcome.records
    assert record.finish_ns == START + 2_333_333_334
    assert record.work == 7.0
    assert outcome.end_ns == record.finish_ns


def test_a_finish_between_node_events_brings_a_decision() -> None:
    policy = Asks(keep_one)
    outcome = replay(
        world([(0, "a", 1), (20, "b", 1)], 50),
        [make("x", pmax=100), make("y", pmax=250)],
        policy,
    )
    assert decisions(outcome) == [0, 10, 20]
    assert finish(outcome.records[1]) == 35


def test_the_replay_ends_with_the_last_finish() -> None:
    outcome = replay(
        world([(0, "ab", 1), (30, "b", 0)], 99), [make(rates=[0, 10], pmax=100)]
    )
    assert second(outcome.end_ns) == 10
    assert (
        outcome.idle_unit_seconds,
        outcome.used_unit_seconds,
        outcome.duration_s,
    ) == (20.0, 10.0, 10.0)
    assert outcome.steps["status"].tolist()[-1] == "end"


def test_the_replay_ends_with_the_trace_when_work_is_left() -> None:
    outcome = replay(world([(0, "a", 1)], 30), [make(rates=[0, 10], pmax=1000)])
    assert second(outcome.end_ns) == 30
    assert outcome.work == 300.0
    assert outcome.records[0].finish_ns is None


def test_a_job_that_finishes_at_the_end_of_the_trace_has_finished() -> None:
    assert finish(replay(world([(0, "a", 1)], 10), [make(pmax=100)]).records[0]) == 10


# --- costs ------------------------------------------------------------------------------------------------------------


def test_a_preempted_job_keeps_the_rest_and_pays_once_for_several_units() -> None:
    policy = Asks(at_times({0: [3]}))
    outcome = replay(world([(0, "abc", 1), (10, "ac", 0)], 20), [make(down=2)], policy)
    (record,) = outcome.records
    assert gantt(outcome) == [(0, 0, 0, 10), (0, 1, 0, 20), (0, 2, 0, 10)]
    assert (record.preemptions, record.lost_to_preemption) == (1, 2 * 24.0)
    assert record.work == 240 - 48 + 100


def test_a_job_preempted_at_two_instants_pays_twice() -> None:
    policy = Asks(at_times({0: [3]}))
    (record,) = replay(
        world([(0, "abc", 1), (10, "a", 0), (11, "b", 0)], 20), [make(down=2)], policy
    ).records
    assert record.lost_to_preemption == 2 * 24.0 + 2 * 18.0


def test_a_leave_of_a_free_unit_costs_nothing() -> None:
    policy = Asks(keep_one)
    outcome = replay(world([(0, "ab", 1), (10, "b", 0)], 20), [make(down=2)], policy)
    assert gantt(outcome) == [(0, 0, 0, 20)]
    assert (outcome.records[0].preemptions, outcome.records[0].lost_to_preemption) == (
        0,
        0.0,
    )


def test_a_job_below_jmin_after_a_leave_makes_no_progress() -> None:
    trace = world([(0, "ab", 1), (10, "b", 0), (40, "b", 1)], 60)
    (record,) = replay(
        trace, [make(jmin=2)], min_interval_s=30
    ).records  # no decision before 30 s
    assert (
        record.unit_seconds == 2 * 10 + 20
    )  # the one that is left is held until the decision at 30 s
    assert record.work == 18 * 10


def test_a_job_below_jmin_is_not_left_there_by_a_decision() -> None:
    trace = world([(0, "ab", 1), (10, "b", 0), (40, "b", 1)], 60)
    outcome = replay(trace, [make(jmin=2)])
    assert gantt(outcome) == [
        (0, 0, 0, 10),
        (0, 0, 40, 60),
        (0, 1, 0, 10),
        (0, 1, 40, 60),
    ]


def test_growing_costs_tcup_at_the_rate_before_and_shrinking_tcdw() -> None:
    policy = Asks(at_times({0: [1], 10: [3], 20: [2]}))
    trace = world([(0, "abc", 1), (10, "d", 1), (20, "d", 0)], 30)
    (record,) = replay(trace, [make(up=4, down=2)], policy).records
    assert record.lost_to_rescale == 4 * 10.0 + 2 * 24.0
    assert record.work == 100 - 40 + 240 - 48 + 180
    assert (record.rescales, record.starts) == (2, 1)


def test_a_start_from_no_units_is_free() -> None:
    (record,) = replay(world([(0, "a", 1)], 10), [make(up=4, down=2)]).records
    assert (record.lost_to_rescale, record.work, record.rescales) == (0.0, 100.0, 0)


def test_shrinking_to_nothing_costs_tcdw() -> None:
    policy = Asks(at_times({0: [1], 10: [0]}))
    (record,) = replay(
        world([(0, "a", 1), (10, "b", 1)], 30), [make(down=2)], policy
    ).records
    assert (record.lost_to_rescale, record.work) == (20.0, 80.0)


def test_a_rescale_cost_never_takes_more_than_the_progress_there_is() -> None:
    policy = Asks(at_times({0: [1], 1: [2]}))
    outcome = replay(world([(0, "a", 1), (1, "b", 1)], 11), [make(up=100)], policy)
    (record,) = outcome.records
    assert (record.lost_to_rescale, record.work) == (10.0, 180.0)


def test_a_preemption_cost_never_takes_more_than_the_progress_there_is() -> None:
    (record,) = replay(world([(0, "a", 1), (1, "a", 0)], 11), [make(down=100)]).records
    assert (record.lost_to_preemption, record.work) == (10.0, 0.0)


def test_a_preempted_job_that_also_shrinks_pays_both_at_the_rates_before_each() -> None:
    policy = Asks(at_times({0: [3], 10: [1]}))
    (record,) = replay(
        world([(0, "abc", 1), (10, "c", 0)], 20), [make(down=2)], policy
    ).records
    assert (record.lost_to_preemption, record.lost_to_rescale) == (2 * 24.0, 2 * 18.0)


def test_a_finish_after_a_rescale_counts_what_the_rescale_cost() -> None:
    policy = Asks(at_times({0: [1], 10: [2]}))
    trace = world([(0, "a", 1), (10, "b", 1)], 99)
    (record,) = replay(trace, [make(pmax=420, up=4)], policy).records
    assert finish(record) == 10 + (420 - (100 - 40)) / 18


# --- the stall model --------------------------------------------------------------------------------------------------


def test_a_stalled_job_makes_no_progress_for_tcup_also_from_no_units() -> None:
    (record,) = replay(
        world([(0, "a", 1)], 99), [make(pmax=100, up=5)], cost_model="stall"
    ).records
    assert finish(record) == 15
    assert record.unit_seconds == 15.0
    assert (record.lost_to_stall, record.lost_to_rescale) == (pytest.approx(50.0), 0.0)


def test_a_stall_that_the_end_cuts_leaves_nothing_done() -> None:
    for end in (0.1, 0.7, 4.9, 5.0):
        trace = world([(0, "a", 1), (0.05, "b", 1)], end)
        (record,) = replay(
            trace, [make(rates=[0, 1 / 3], pmax=100, up=5)], cost_model="stall"
        ).records
        assert record.work == 0.0


def test_a_change_during_a_stall_starts_a_new_stall() -> None:
    policy = Asks(at_times({0: [1], 3: [2]}))
    trace = world([(0, "a", 1), (3, "b", 1)], 20)
    (record,) = replay(trace, [make(up=5)], policy, cost_model="stall").records
    assert record.work == pytest.approx(18 * 12)


def test_a_short_stall_does_not_end_a_longer_one() -> None:
    policy = Asks(at_times({0: [2], 3: [1]}))
    trace = world([(0, "ab", 1), (3, "c", 1)], 20)
    (record,) = replay(trace, [make(up=10, down=1)], policy, cost_model="stall").records
    assert record.work == pytest.approx(10 * 10)


def test_a_preemption_stalls_for_tcdw_and_is_booked_as_such() -> None:
    policy = Asks(at_times({0: [2]}))
    trace = world([(0, "ab", 1), (10, "b", 0)], 30)
    (record,) = replay(trace, [make(down=4)], policy, cost_model="stall").records
    assert record.work == pytest.approx(180 + 10 * 16)
    assert record.lost_to_preemption == pytest.approx(40.0)
    assert record.lost_to_rescale == 0.0


def test_a_stall_costs_no_progress_already_made() -> None:
    policy = Asks(at_times({0: [1], 1: [2]}))
    (record,) = replay(
        world([(0, "a", 1), (1, "b", 1)], 11),
        [make(up=100)],
        policy,
        cost_model="stall",
    ).records
    assert record.work == 0.0  # stalled from 0 on
    (record,) = replay(
        world([(0, "a", 1), (1, "b", 1)], 11),
        [make(down=100)],
        Asks(at_times({0: [1], 1: [0]})),
        cost_model="stall",
    ).records
    assert record.work == 10.0


def test_a_job_keeps_its_rate_where_nothing_changes_and_is_not_stalled() -> None:
    trace = world([(0, "a", 1), *((t, "b", t % 2) for t in range(1, 10))], 10)
    (record,) = replay(
        trace, [make(up=1, down=1)], Asks(keep_one), cost_model="stall"
    ).records
    assert record.work == pytest.approx(90.0)


# --- when decisions are taken -----------------------------------------------------------------------------------------


def test_decisions_come_at_node_events_submits_and_finishes() -> None:
    trace = world([(0, "a", 1), (20, "b", 1)], 40)
    outcome = replay(
        trace, [make("x", pmax=50), make("y", at=2), make("z", at=17)], Asks(keep_one)
    )
    assert decisions(outcome) == [0, 2, 5, 17, 20]
    assert finish(outcome.records[0]) == 5


def test_events_node_restricts_decisions_to_node_events() -> None:
    trace = world([(0, "a", 1), (10, "b", 1), (20, "b", 0)], 40)
    outcome = replay(
        trace, [make("x", [0, 10], pmax=120), make("y", at=5)], events="node"
    )
    assert decisions(outcome) == [0, 10, 20]
    assert [second(record.start_ns) for record in outcome.records] == [0, 10]
    assert finish(outcome.records[0]) == 12  # exact nevertheless
    assert (1, 0, 20, 40) in gantt(outcome)  # a, free since 12, is given at 20


def test_min_interval_gathers_events_into_one_decision() -> None:
    policy = Asks(greedy)
    trace = world([(t, "abcde"[t], 1) for t in range(5)], 40)
    outcome = replay(trace, [make(rates=range(6))], policy, min_interval_s=10)
    assert decisions(outcome) == [0, 10]
    assert [idle for _, idle, _ in policy.asked] == [1, 5]


def test_min_interval_does_not_delay_an_event_after_a_quiet_time() -> None:
    trace = world([(0, "a", 1), (25, "b", 1), (36, "c", 1)], 40)
    assert decisions(replay(trace, [make()], min_interval_s=10)) == [0, 25, 36]


def test_min_interval_counts_from_decisions_not_from_events_without_jobs() -> None:
    trace = world([(0, "a", 1), (5, "b", 1)], 40)
    assert decisions(replay(trace, [make(at=7)], min_interval_s=10)) == [7]


def test_min_interval_of_a_whole_trace_leaves_one_decision() -> None:
    trace = world([(0, "a", 1), (5, "b", 1), (9, "b", 0)], 40)
    assert decisions(replay(trace, [make()], Asks(keep_one), min_interval_s=1000)) == [
        0
    ]


def test_nothing_is_asked_of_the_policy_while_nothing_is_idle() -> None:
    policy = Asks(greedy)
    outcome = replay(world([(10, "a", 1), (20, "a", 0)], 40), [make()], policy)
    assert [time for time, *_ in policy.asked] == [10]
    assert outcome.steps["used"].tolist() == [0, 1, 0, 0]
    assert outcome.steps["status"].tolist() == [
        "nothing idle",
        "decided",
        "nothing idle",
        "end",
    ]
    assert outcome.steps[["objective", "bound", "gap"]].isna().all(axis=None)


def test_nothing_is_decided_at_the_end_of_the_trace() -> None:
    policy = Asks(greedy)
    outcome = replay(
        world([(0, "a", 1), (10, "b", 1)], 10), [make(), make("k", at=10)], policy
    )
    assert [time for time, *_ in policy.asked] == [0]
    assert outcome.records[1].start_ns is None


# --- admission --------------------------------------------------------------------------------------------------------


def test_at_most_max_jobs_are_in_play_first_come_first_served() -> None:
    policy = Asks(keep_one)
    jobs = [
        make("late", pmax=50, at=2),
        make("first", pmax=50),
        make("second", pmax=80),
        make("later", pmax=50, at=3),
    ]
    outcome = replay(world([(0, "abcd", 1)], 99), jobs, policy, max_jobs=2)
    assert all(len(held) <= 2 for _, _, held in policy.asked)
    assert [second(record.start_ns) for record in outcome.records] == [5, 0, 0, 8]
    assert outcome.steps["jobs"].max() == 2


def test_a_submit_that_finds_no_room_brings_no_decision() -> None:
    outcome = replay(
        world([(0, "a", 1)], 30),
        [make("x", [0, 10], pmax=100), make("y", at=4)],
        max_jobs=1,
    )
    assert decisions(outcome) == [0, 10]


def test_a_job_submitted_before_the_trace_waits_for_it() -> None:
    outcome = replay(world([(0, "a", 1)], 20, start=-3), [make(at=-100, pmax=50)])
    (record,) = outcome.records
    assert second(record.start_ns) == 0
    assert second(outcome.start_ns) == -3
    assert decisions(outcome) == [-3, 0]


def test_a_job_submitted_after_the_end_never_runs() -> None:
    outcome = replay(world([(0, "a", 1)], 20), [make("x", pmax=50), make("y", at=21)])
    assert [second(record.start_ns) for record in outcome.records] == [0, None]
    assert second(outcome.end_ns) == 20
    assert outcome.idle_unit_seconds == 20.0


def test_the_window_begins_with_the_first_job_in_the_system() -> None:
    trace = world([(0, "ab", 1), (40, "b", 0)], 100)
    outcome = replay(
        trace, [make("x", [0, 10], at=70, pmax=50), make("y", [0, 10], at=30, pmax=100)]
    )
    assert (second(outcome.start_ns), second(outcome.end_ns)) == (30, 75)
    assert (outcome.idle_unit_seconds, outcome.used_unit_seconds) == (
        2 * 10 + 35,
        10 + 5,
    )
    assert outcome.offered_unit_seconds == 2 * 40 + 60
    # Not before the trace, wherever it was submitted; and a job that never comes leaves no window.
    assert second(replay(trace, [make(at=-50)]).start_ns) == 0
    never = replay(trace, [make(at=101)])
    assert (never.duration_s, never.idle_unit_seconds) == (0.0, 0.0)


def test_no_jobs_make_an_empty_replay() -> None:
    outcome = replay(world([(0, "a", 1)], 20), [])
    assert (outcome.duration_s, outcome.work, len(outcome.allocations)) == (0.0, 0.0, 0)
    assert outcome.steps["status"].tolist() == ["end"]


def test_nothing_runs_where_no_node_is_ever_idle() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    trace = from_changes(
        ["a"],
        nothing,
        nothing.astype(np.int32),
        nothing.astype(bool),
        start=START,
        end=START + 9,
    )
    outcome = replay(trace, [make()])
    assert (outcome.work, outcome.records[0].start_ns) == (0.0, None)


# --- units ------------------------------------------------------------------------------------------------------------


def test_a_node_brings_and_takes_all_its_units_at_once() -> None:
    policy = Asks(at_times({0: [4]}))
    trace = world([(0, "ab", 1), (10, "a", 0)], 20, units_per_node=3)
    outcome = replay(trace, [make(rates=[0, 1, 2, 3, 4], down=2)], policy)
    (record,) = outcome.records
    assert [idle for _, idle, _ in policy.asked] == [6, 3]
    assert gantt(outcome) == [
        (0, 0, 0, 10),
        (0, 1, 0, 10),
        (0, 2, 0, 10),
        (0, 3, 0, 20),
    ]
    assert (record.preemptions, record.lost_to_preemption) == (1, 8.0)
    assert outcome.idle_unit_seconds == 6 * 10 + 3 * 10


def test_a_shrinking_job_releases_its_newest_units() -> None:
    policy = Asks(at_times({0: [1], 5: [3], 10: [2], 15: [1]}))
    trace = world(
        [(0, "c", 1), (5, "a", 1), (5, "b", 1), (10, "d", 1), (15, "d", 0)], 20
    )
    outcome = replay(trace, [make()], policy)
    assert gantt(outcome) == [(0, 0, 5, 15), (0, 1, 5, 10), (0, 2, 0, 20)]


def test_a_growing_job_takes_the_unit_that_has_been_idle_longest() -> None:
    policy = Asks(at_times({4: [1]}))
    trace = world([(0, "c", 1), (1, "b", 1), (2, "a", 1), (2, "d", 1), (4, "e", 1)], 9)
    assert gantt(replay(trace, [make(at=4)], policy)) == [(0, 2, 4, 9)]


def test_a_unit_that_left_and_came_back_counts_as_idle_since_it_came_back() -> None:
    policy = Asks(at_times({4: [1]}))
    trace = world([(0, "a", 1), (1, "b", 1), (2, "a", 0), (3, "a", 1)], 9)
    assert gantt(replay(trace, [make(at=4)], policy)) == [(0, 1, 4, 9)]


# --- stopping, and policies that answer nonsense ----------------------------------------------------------------------


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
    assert part.interrupted
    assert not whole.interrupted
    assert len(seen) == steps
    assert part.end_ns == (seen[-1] if seen else trace.start)
    pd.testing.assert_frame_equal(
        part.steps.iloc[:-1], whole.steps.iloc[: len(part.steps) - 1]
    )
    assert part.steps["progress"].sum() == pytest.approx(part.work)


NONSENSE: dict[str, tuple[Sequence[Any], str]] = {
    "too many in total": ([2, 2], "4 units of 3 idle"),
    "one answer too few": ([1], "1 counts for 2 jobs"),
    "one answer too many": ([1, 1, 1], "3 counts for 2 jobs"),
    "below Jmin": ([2, 1], r"job 'second' 1 units, outside 0 and \[2, 3\]"),
    "above Jmax": ([0, 4], r"job 'second' 4 units, outside 0 and \[2, 3\]"),
    "negative": ([-1, 2], r"job 'first' -1 units"),
    "not a number": ([math.nan, 0], "is no decision: Cannot cast"),
    "half a unit": ([1.5, 0], "is no decision: Cannot cast"),
    "a word": (["all", 0], "is no decision: Cannot cast"),
    "nothing": ([None, 0], "is no decision: Cannot cast"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_a_policy_that_answers_nonsense_is_stopped_by_name(kind: str) -> None:
    answer, what = NONSENSE[kind]
    jobs = [make("first"), make("second", jmin=2)]
    with pytest.raises(
        PolicyError, match=f"policy 'third-party' was stopped: .*{what}"
    ):
        replay(
            world([(0, "abc", 1)], 9),
            jobs,
            Asks(lambda state: answer, name="third-party"),
        )


def test_a_policy_may_answer_with_numpy_integers() -> None:
    outcome = replay(
        world([(0, "a", 1)], 9), [make()], Asks(lambda state: np.array([1]))
    )
    assert outcome.work == 90.0


# --- long replays -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equal-share", "exact", "asks"])
def test_the_engine_times_every_policys_decisions(name: str) -> None:
    slow = 0.002

    def answer(state: State) -> list[int]:
        sleep(slow)
        return keep_one(state)

    policy = (
        Asks(answer) if name == "asks" else policy_of(name, {"cost_model": "bftrainer"})
    )
    # At 20 s nothing is idle, and nobody is asked.
    outcome = replay(
        world([(0, "a", 1), (10, "b", 1), (20, "ab", 0), (30, "a", 1)], 40),
        [make()],
        policy,
    )
    assert len(outcome.decision_seconds) == 3 == len(decisions(outcome)) - 1
    assert all(
        seconds > (slow if name == "asks" else 0)
        for seconds in outcome.decision_seconds
    )


def flicker(events: int, gap_ns: int) -> NodeTrace:
    """Node a idle all the time, node b on and off."""
    times = START + gap_ns * np.arange(events, dtype=np.int64)
    idle = np.arange(events) % 2 == 0
    return from_changes(
        ["a", "b"],
        np.concatenate([[START], times]),
        np.concatenate([[0], np.ones(events)]).astype(np.int32),
        np.concatenate([[True], idle]),
        end=START + gap_ns * events,
    )


def test_two_hundred_thousand_events_do_not_drift() -> None:
    # Progress is added up at each of them; that nobody is asked about them spares most of the time.
    trace = flicker(200_000, 7_000_000_003)
    (record,) = replay(
        trace, [make(rates=[0, 0.1], pmax=1e12)], Asks(keep_one), min_interval_s=1e7
    ).records
    assert record.work == pytest.approx(0.1 * trace.duration_s, rel=1e-9)
    assert record.unit_seconds == pytest.approx(trace.duration_s, rel=1e-9)


@pytest.mark.parametrize(
    "events", [10_000, pytest.param(40_000, marks=pytest.mark.slow)]
)
def test_rescales_at_thousands_of_events_do_not_drift(events: int) -> None:
    gap = 13.000000007
    trace = flicker(events, 13_000_000_007)
    (record,) = replay(
        trace, [make(rates=[0, 0.1, 0.17], pmax=1e12, up=0.3, down=0.7)], Asks(greedy)
    ).records
    half = events // 2
    # Every other event b leaves (0.7 s at 0.17); from the third on it joins (0.3 s at 0.1).
    closed = half * gap * (0.1 + 0.17) - half * 0.7 * 0.17 - (half - 1) * 0.3 * 0.1
    assert record.work == pytest.approx(closed, rel=1e-9)


def test_a_finish_after_weeks_is_exact_to_a_microsecond() -> None:
    trace = flicker(20_000, 55_000_000_000)
    work = 0.1 * 1_000_000.5
    (record,) = replay(trace, [make(rates=[0, 0.1], pmax=work)], Asks(keep_one)).records
    assert finish(record) == pytest.approx(1_000_000.5, abs=1e-6)


# --- any world --------------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> tuple[NodeTrace, list[Job]]:
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
        jobs.append(
            make(
                f"j{k}",
                curve,
                pmax=draw(st.floats(1, 1e6)),
                at=draw(st.floats(-10, 500)),
                jmin=draw(st.integers(0, jmax)),
                up=draw(st.floats(0, 30)),
                down=draw(st.floats(0, 30)),
            )
        )
    return trace, jobs


policies = st.sampled_from(["equal-share", "exact", "greedy"])
any_rules = st.fixed_dictionaries(
    {
        "max_jobs": st.integers(1, 4),
        "cost_model": st.sampled_from(["bftrainer", "stall"]),
        "events": st.sampled_from(["all", "node"]),
        "min_interval_s": st.sampled_from([0.0, 17.3]),
    }
)


def policy_of(name: str, rules: dict[str, Any]) -> Policy:
    if name == "exact":
        return MilpPolicy(60.0, SolverOptions("exact"), cost_model=rules["cost_model"])
    return EqualShare() if name == "equal-share" else Asks(greedy)


@given(worlds(), any_rules, policies)
def test_the_books_of_any_world_balance(
    made: tuple[NodeTrace, list[Job]], rules: dict[str, Any], name: str
) -> None:
    trace, jobs = made
    outcome = replay(trace, jobs, policy_of(name, rules), **rules)
    steps = outcome.steps
    done = sum(record.gained for record in outcome.records)
    slack = 1e-9 * max(1.0, done)
    assert steps["progress"].sum() == pytest.approx(outcome.work, abs=slack)
    costs = {book: steps[f"{book}_cost"].sum() for book in BOOKS}
    assert done - sum(costs.values()) == pytest.approx(outcome.work, abs=slack)
    for book, cost in costs.items():
        assert cost == pytest.approx(
            sum(getattr(r, f"lost_to_{book}") for r in outcome.records), abs=slack
        )
    for record in outcome.records:
        assert -slack <= record.work <= record.job.pmax + slack
        assert (
            min(record.gained, *(getattr(record, f"lost_to_{book}") for book in BOOKS))
            >= 0
        )
        assert record.gained - record.lost == pytest.approx(record.work, abs=slack)
        assert (record.finish_ns is None) or record.work == record.job.pmax
    held = outcome.allocations
    units = held["last_unit"] - held["first_unit"] + 1
    unit_seconds = (units * (held["end_ns"] - held["start_ns"])).sum() / SECOND
    assert unit_seconds == pytest.approx(outcome.used_unit_seconds, abs=1e-6)
    for j, record in enumerate(outcome.records):
        mine = held["job"] == j
        own = (units[mine] * (held["end_ns"] - held["start_ns"])[mine]).sum() / SECOND
        assert own == pytest.approx(record.unit_seconds, abs=1e-6)
    assert outcome.start_ns == min(
        max(trace.start, min(job.tsub_ns for job in jobs)), outcome.end_ns
    )
    clipped = [
        (max(a, outcome.start_ns), min(b, outcome.end_ns), n)
        for (a, b), n in zip(
            pairwise([*trace.times, trace.end]), trace.idle_counts(), strict=True
        )
    ]
    integral = (
        sum(max(b - a, 0) * n * trace.units_per_node for a, b, n in clipped) / SECOND
    )
    assert outcome.idle_unit_seconds == pytest.approx(integral, abs=1e-6)
    assert outcome.used_unit_seconds <= outcome.idle_unit_seconds * (1 + 1e-9)
    assert outcome.work_at(outcome.end_ns) == outcome.work
    at_steps = [outcome.work_at(instant) for instant in steps["time"].astype("int64")]
    assert at_steps == pytest.approx(steps["progress"].cumsum().tolist(), abs=slack)


@given(worlds(), any_rules, policies)
def test_units_of_any_world_are_held_by_one_job_at_a_time_and_only_while_idle(
    made: tuple[NodeTrace, list[Job]], rules: dict[str, Any], name: str
) -> None:
    trace, jobs = made
    outcome = replay(trace, jobs, policy_of(name, rules), **rules)
    idle: dict[int, list[tuple[float, float]]] = {}
    for event, time in enumerate(trace.times.tolist()):
        for node in trace.leaves(event).tolist():
            idle[node][-1] = (idle[node][-1][0], time)
        for node in trace.joins(event).tolist():
            idle.setdefault(node, []).append((time, trace.end))
    bars: dict[int, list[tuple[int, int, int]]] = {}
    for row in outcome.allocations.itertuples():
        for unit in range(row.first_unit, row.last_unit + 1):
            bars.setdefault(unit, []).append((row.start_ns, row.end_ns, row.job))
    for unit, spans in bars.items():
        spans.sort()
        for start, end, job in spans:
            assert jobs[job].tsub_ns <= start <= end
            assert any(
                a <= start and end <= b for a, b in idle[unit // trace.units_per_node]
            )
        for (_, before, _), (after, _, _) in pairwise(spans):
            assert before <= after


@given(worlds(), any_rules, policies)
def test_no_decision_of_any_world_makes_a_job_migrate_or_leaves_its_bounds(
    made: tuple[NodeTrace, list[Job]], rules: dict[str, Any], name: str
) -> None:
    trace, jobs = made
    outcome = replay(trace, jobs, policy_of(name, rules), **rules)
    taken_back = {
        (int(time), node * trace.units_per_node + k)
        for event, time in enumerate(trace.times)
        for node in trace.leaves(event).tolist()
        for k in range(trace.units_per_node)
    }
    given_, released = set(), set()
    for row in outcome.allocations.itertuples():
        given_.add((row.job, row.start_ns))
        for unit in range(row.first_unit, row.last_unit + 1):
            if (row.end_ns, unit) not in taken_back:
                released.add((row.job, row.end_ns))
    assert not given_ & released
    held = outcome.allocations
    for now in outcome.steps["time"].astype("int64").iloc[:-1]:
        at = held[(held["start_ns"] <= now) & (held["end_ns"] > now)]
        counts = (at["last_unit"] - at["first_unit"] + 1).groupby(at["job"]).sum()
        for j, count in counts.items():
            assert max(jobs[int(str(j))].jmin, 1) <= count <= jobs[int(str(j))].jmax


@examples(40)
@given(worlds(), any_rules, policies)
def test_the_same_world_gives_the_same_frames(
    made: tuple[NodeTrace, list[Job]], rules: dict[str, Any], name: str
) -> None:
    trace, jobs = made
    one, other = (
        replay(trace, jobs, policy_of(name, rules), **rules) for _ in range(2)
    )
    pd.testing.assert_frame_equal(one.steps, other.steps, check_exact=True)
    pd.testing.assert_frame_equal(one.allocations, other.allocations, check_exact=True)
    assert [replace(r, job=jobs[0]) for r in one.records] == [
        replace(r, job=jobs[0]) for r in other.records
    ]


@examples(40)
@given(st.data())
def test_the_order_of_rows_within_an_instant_does_not_matter(
    data: st.DataObject,
) -> None:
    cells = data.draw(
        st.dictionaries(
            st.tuples(st.integers(0, 9), st.sampled_from("abcd")), st.integers(0, 1)
        )
    )
    rows = [(float(t), n, idle) for (t, n), idle in sorted(cells.items())]
    shuffled = data.draw(st.permutations(rows))
    jobs = [make("x", pmax=60, up=1, down=2), make("y", at=1, jmin=2), make("z", at=3)]
    one, other = (
        replay(world(r, 20, nodes="abcd"), jobs, EqualShare()) for r in (rows, shuffled)
    )
    pd.testing.assert_frame_equal(one.steps, other.steps, check_exact=True)
    pd.testing.assert_frame_equal(one.allocations, other.allocations, check_exact=True)


def test_dedicated_nodes_are_a_trace_like_any_other() -> None:
    trace = always_idle(2, START, START + 100 * SECOND, units_per_node=2)
    outcome = replay(trace, [make(rates=[0, 1, 2, 3, 4])])
    assert outcome.work == 400.0
    assert outcome.idle_unit_seconds == outcome.used_unit_seconds == 400.0
