"""What host jobs take from training, and what they wait, computed anew; closed forms: `tests/data/worlds`."""

from dataclasses import replace

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from rules.drawn import any_rules, tables, traces
from rules.whims import Whimsical, WhimsicalMover, WhimsicalRigid
from worlds import SECOND as S
from worlds import START, everything, instant, make, replay, resume, saved, traced

from bft.models import JobTable
from bft.replay import EqualShare, NodeTrace, Outcome, Replay, Rules
from bft.replay.results.host import host_metrics, starts_by_instant, starts_by_job
from bft.replay.trace.host_jobs import from_rows

NAMED = {"return_time_s": 6.0, "free_first": False}
FREE_FIRST = Rules(return_time_s=6.0)


def test_jobs_that_start_at_one_instant_share_its_nodes_in_the_order_in_which_they_could_run() -> (
    None
):
    # a is let go at 95 s, b held to the end; c is handed over by another host job.
    trace = traced("0 +abc, 100 -ab, 200")
    jobs = [make("short", [0, 1], pmax=95), make("long", [0, 1])]
    outcome = replay(trace, jobs, EqualShare(), **NAMED)
    ends = (instant(100), instant(150), instant(150))
    late = "job", instant(60), *ends, 1, ["a"]
    early = "job", instant(10), *ends, 2, ["b", "c"]
    host = outcome.host
    assert host is not None
    starts = starts_by_job(
        outcome.trace, host, from_rows([late, early]), outcome.start_ns, outcome.end_ns
    )
    assert starts.nodes.tolist() == [
        2,
        1,
    ]  # the one that was eligible first takes the ready node
    assert starts.delays_s(6.0).tolist() == [1.0, 6.0]


def test_a_leave_that_no_job_explains_delays_nobody() -> None:
    trace = traced("0 +ab, 50 -a, 80 -b, 100")
    outcome = replay(trace, [make("j", [0, 1, 2])], EqualShare(), **NAMED)
    known = from_rows([("job", START, *map(instant, (50, 90, 90)), 1, ["a"])])
    metrics = host_metrics(replace(outcome, trace=replace(trace, host_jobs=known)), 6.0)
    assert (metrics["starts"], metrics["delayed"]) == (1, 1)
    assert metrics["announced"]["nodes_share"] == 1.0


def second_computation(outcome: Outcome, return_time_s: float) -> list[float]:
    """The delay of each start by the trace and the table of allocations alone; nodes as the log names them."""
    trace, per, rows = outcome.trace, outcome.trace.units_per_node, outcome.allocations
    joined: dict[int, int] = {}
    delays = []
    for event, time in enumerate(trace.times.tolist()):
        leaving = trace.leaves(event).tolist()
        if time <= outcome.end_ns and leaving:
            ends = [
                row.end_ns
                for row in rows.itertuples()
                for node in leaving
                if row.first_unit < (node + 1) * per and row.last_unit >= node * per
                if joined[node] < row.end_ns <= time
            ]
            waits = (return_time_s - (time - end) / S for end in ends)
            delays.append(max([0.0, *waits]))
        joined |= dict.fromkeys(trace.joins(event).tolist(), time)
    return delays


@examples(60)
@given(traces(), tables())
def test_delays_equal_those_from_trace_and_allocations_alone(
    trace: NodeTrace, jobs: JobTable
) -> None:
    for policy in (Whimsical(1), WhimsicalRigid(1)):
        outcome = Replay(trace, jobs, policy, Rules(**NAMED)).run()
        assert outcome.host is not None
        recorded = starts_by_instant(outcome.host).delays_s(6.0).tolist()
        assert recorded == pytest.approx(second_computation(outcome, 6.0))


@pytest.mark.parametrize("kind", [Whimsical, WhimsicalRigid, WhimsicalMover])
@pytest.mark.parametrize("reserve", [0, 1])
@examples(25)
@given(traces(), tables(), any_rules, st.integers(0, 9))
def test_a_resumed_replay_is_the_same(
    kind: type[Whimsical],
    reserve: int,
    trace: NodeTrace,
    jobs: JobTable,
    rules: Rules,
    steps: int,
) -> None:
    rules = replace(rules, reserve=reserve, return_time_s=6.0 if reserve else None)
    whole, half, rest = (Replay(trace, jobs, kind(2), rules) for _ in range(3))
    outcome = whole.run()
    for _ in range(steps):
        if half.peek() is not None:
            half.step()
    resume(rest, saved(half))
    again = rest.run()
    assert everything(again) == everything(outcome)
    if reserve:
        assert again.host is not None
        assert outcome.host is not None
        assert again.host.taken == outcome.host.taken
        for name, column in outcome.host.returns.items():
            assert np.array_equal(again.host.returns[name], column)
