"""What host jobs take from training, and what they wait: closed forms, and a second computation from the files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from rules.drawn import tables, traces
from rules.whims import Whimsical, WhimsicalRigid
from saving import resume, saved

from bft.models import Curve, InputError, Job, JobTable
from bft.replay import EqualShare, always_idle
from bft.replay.engine.host import NOT_HELD
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.policies import Policy, Traits
from bft.replay.results.host import host_metrics, starts_by_instant, starts_by_job
from bft.replay.trace.host_jobs import from_rows
from bft.replay.trace.node_trace import NodeTrace, from_changes

S = 1_000_000_000
NAMED = Rules(return_time_s=6.0, free_first=False)
FREE_FIRST = Rules(return_time_s=6.0)


def world(nodes: int, changes: list[tuple[int, int, bool]], end: int) -> NodeTrace:
    """A trace of nodes a, b, …: (second, node, whether it turns idle)."""
    times, node, idle = (np.array(column) for column in zip(*changes, strict=True))
    names = [chr(ord("a") + k) for k in range(nodes)]
    return from_changes(
        names,
        times.astype(np.int64) * S,
        node.astype(np.int32),
        idle,
        start=0,
        end=end * S,
    )


def job(name: str = "j", jmax: int = 1, pmax: float = 1e9) -> Job:
    curve = Curve([0, jmax], [0, float(jmax)])
    return Job(
        name,
        0,
        1,
        jmax,
        pmax=pmax,
        tcup_s=0.0,
        tcdw_s=0.0,
        scalability=curve,
        objective=curve,
    )


def replayed(
    trace: NodeTrace, jobs: list[Job], rules: Rules, policy: Policy | None = None
) -> Outcome:
    return Replay(trace, JobTable(tuple(jobs)), policy or EqualShare(), rules).run()


def taken_at(outcome: Outcome) -> list[tuple[int, str, str]]:
    """Each return: second, place, and the node that filled it."""
    names, host = outcome.trace.nodes, outcome.host
    assert host is not None
    rows = zip(
        host.returns["time_ns"] // S,
        host.returns["place"],
        host.returns["node"],
        strict=True,
    )
    return [(int(at), names[place], names[node]) for at, place, node in rows]


@pytest.mark.parametrize("finishes_before_s", [0, 1, 5, 6, 20])
def test_a_start_waits_for_what_is_left_of_the_return_time(
    finishes_before_s: int,
) -> None:
    trace = world(1, [(0, 0, True), (100, 0, False)], 200)
    later = replace(job("later"), tsub_ns=150 * S)  # a replay ends with its last job
    outcome = replayed(trace, [job(pmax=100.0 - finishes_before_s), later], NAMED)
    host = outcome.host
    assert host is not None
    assert starts_by_instant(host).delays_s(6.0).tolist() == [
        max(0.0, 6.0 - finishes_before_s)
    ]


def test_a_start_that_takes_a_node_from_training_waits_the_whole_return_time() -> None:
    trace = world(
        3,
        [(0, 0, True), (0, 1, True), (0, 2, True), (50, 0, False), (50, 1, False)],
        100,
    )
    metrics = host_metrics(replayed(trace, [job()], NAMED), 6.0)
    assert (metrics["instants"], metrics["delayed"], metrics["longest_delay_s"]) == (
        1,
        1,
        6.0,
    )
    assert metrics["waiting_node_h"] == pytest.approx(
        2 * 6 / 3600
    )  # the free one of the two waits as well


def test_everything_held_gives_the_closed_form() -> None:
    changes = [
        (0, 0, True),
        (0, 1, True),
        (40, 0, False),
        (60, 0, True),
        (90, 1, False),
        (90, 0, False),
    ]
    trace = world(2, changes, 91)
    metrics = host_metrics(replayed(trace, [job("j", 2)], NAMED), 6.0)
    taken = len(trace.left)
    idle_node_s = trace.idle_unit_seconds()
    assert metrics["delayed"] == metrics["instants"] == 2
    assert metrics["waiting_node_h"] == pytest.approx(6 * taken / 3600)
    assert metrics["break_even_price"] * 6 == pytest.approx(
        idle_node_s / taken
    )  # the mean fragment


def test_a_free_node_is_taken_before_one_in_use_and_the_exchange_lasts() -> None:
    changes = [
        (0, 0, True),
        (0, 1, True),
        (10, 0, False),
        (20, 1, False),
        (30, 0, True),
    ]
    trace = world(2, changes, 40)
    named, free_first = (
        replayed(trace, [job()], rules) for rules in (NAMED, FREE_FIRST)
    )
    assert taken_at(named) == [(10, "a", "a"), (20, "b", "b")]
    assert [record.preemptions for record in named.records] == [2]
    assert taken_at(free_first) == [(10, "a", "b"), (20, "b", "a")]
    assert [record.preemptions for record in free_first.records] == [1]
    # The place a rejoins at 30, and the node that fills it now does: b.
    last = free_first.allocations.iloc[-1]
    assert (last["first_unit"], last["start_ns"] // S) == (1, 30)


@pytest.mark.parametrize(("leave", "join"), [(3, 1), (2, 2), (1, 3)])
def test_nodes_that_join_at_an_instant_are_taken_before_those_in_use(
    leave: int, join: int
) -> None:
    changes = [(0, node, True) for node in range(leave)]
    changes += [(50, node, False) for node in range(leave)] + [
        (50, leave + node, True) for node in range(join)
    ]
    trace = world(leave + join, changes, 100)
    host = replayed(trace, [job("j", leave)], FREE_FIRST).host
    assert host is not None
    assert host.taken.from_training == max(0, leave - join)


def test_a_filled_reserve_serves_a_start_without_delay() -> None:
    changes = [(0, node, True) for node in range(5)] + [(50, 0, False), (50, 1, False)]
    outcome = replayed(
        world(5, changes, 100), [job("j", 5)], replace(FREE_FIRST, reserve=2)
    )
    metrics = host_metrics(outcome, 6.0)
    assert (
        metrics["instants"],
        metrics["delayed"],
        outcome.records[0].preemptions,
    ) == (
        1,
        0,
        0,
    )


def test_a_start_takes_the_nodes_that_were_let_go_first() -> None:
    # Three jobs finish at 91, 95 and 100 s; a start takes two of the three free nodes at 100 s.
    changes = [
        (0, 0, True),
        (0, 1, True),
        (0, 2, True),
        (100, 0, False),
        (100, 1, False),
    ]
    jobs = [job(f"j{k}", 1, pmax) for k, pmax in enumerate((100.0, 95.0, 91.0))]
    host = replayed(world(3, changes, 200), jobs, FREE_FIRST).host
    assert host is not None
    assert starts_by_instant(host).delays_s(6.0).tolist() == [
        1.0
    ]  # let go 9 and 5 s ago


@pytest.mark.parametrize("reserve", [0, 1, 3, 4, 9])
def test_a_reserve_keeps_that_many_nodes_from_training_for_the_whole_time(
    reserve: int,
) -> None:
    outcome = replayed(
        always_idle(4, 0, 100 * S), [job("j", 9)], Rules(reserve=reserve)
    )
    assert outcome.used_unit_seconds == 100.0 * max(0, 4 - reserve)
    assert outcome.idle_unit_seconds == 400.0  # kept nodes are idle


def test_jobs_that_start_at_one_instant_share_its_nodes_in_the_order_in_which_they_could_run() -> (
    None
):
    # a is let go at 95 s, b held to the end; c is handed over by another host job.
    changes = [(0, 0, True), (0, 1, True), (100, 0, False), (100, 1, False)]
    outcome = replayed(
        world(3, changes, 200), [job("short", 1, 95.0), job("long", 1)], NAMED
    )
    late = "job", 60 * S, 100 * S, 150 * S, 150 * S, 1, ["a"]
    early = "job", 10 * S, 100 * S, 150 * S, 150 * S, 2, ["b", "c"]
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
    trace = world(2, [(0, 0, True), (0, 1, True), (50, 0, False), (80, 1, False)], 100)
    outcome = replayed(trace, [job("j", 2)], NAMED)
    jobs = from_rows([("job", 0, 50 * S, 90 * S, 90 * S, 1, ["a"])])
    known = replace(outcome, trace=replace(trace, host_jobs=jobs))
    metrics = host_metrics(known, 6.0)
    assert (metrics["starts"], metrics["delayed"]) == (1, 1)
    assert metrics["announced"]["nodes_share"] == 1.0


def second_computation(outcome: Outcome, return_time_s: float) -> list[float]:
    """The delay of each start by the trace and the table of allocations alone; nodes as the log names them."""
    trace, per, rows = outcome.trace, outcome.trace.units_per_node, outcome.allocations
    delays = []
    for event, time in enumerate(trace.times.tolist()):
        leaving = trace.leaves(event).tolist()
        if time > outcome.end_ns or not leaving:
            continue
        latest = None
        for node in leaving:
            before = [
                trace.times[e] for e in range(event) if node in trace.joins(e).tolist()
            ]
            on_it = (rows["first_unit"] < (node + 1) * per) & (
                rows["last_unit"] >= node * per
            )
            ends = rows[
                on_it & (rows["end_ns"] <= time) & (rows["end_ns"] > before[-1])
            ]["end_ns"]
            for end in ends:
                latest = end if latest is None else max(latest, end)
        delays.append(
            0.0 if latest is None else max(0.0, return_time_s - (time - latest) / S)
        )
    return delays


@examples(60)
@given(traces(), tables())
def test_delays_equal_those_from_trace_and_allocations_alone(
    trace: NodeTrace, jobs: JobTable
) -> None:
    for policy in (Whimsical(1), WhimsicalRigid(1)):
        outcome = Replay(trace, jobs, policy, NAMED).run()
        assert outcome.host is not None
        recorded = starts_by_instant(outcome.host).delays_s(6.0).tolist()
        assert recorded == pytest.approx(second_computation(outcome, 6.0))


@examples(60)
@given(traces(), tables())
def test_exchanges_keep_the_log(trace: NodeTrace, jobs: JobTable) -> None:
    """Nodes stay a permutation; idle counts are those of the log; nothing is held on a node whose place is busy."""
    for reserve in (0, 1, 2):
        replay = Replay(trace, jobs, Whimsical(5), replace(FREE_FIRST, reserve=reserve))
        idle_places: set[int] = set()
        event = 0
        while replay.peek() is not None:
            replay.step()
            while event < len(trace.times) and trace.times[event] <= replay.now:
                idle_places -= set(trace.leaves(event).tolist())
                idle_places |= set(trace.joins(event).tolist())
                event += 1
            nodes = replay._reserve.node.copy()
            assert sorted(nodes) == list(range(len(trace.nodes)))
            per = trace.units_per_node
            idle_nodes = {nodes[place] for place in idle_places}
            held = {
                unit // per
                for running in replay._in_play.line
                for unit in running.units
            }
            assert held <= idle_nodes
            assert replay._idle == len(idle_places) * per
            assert replay._reserve.kept_units <= reserve * per


@examples(40)
@given(traces(), tables())
def test_a_resumed_replay_with_a_reserve_is_the_same(
    trace: NodeTrace, jobs: JobTable
) -> None:
    rules = replace(FREE_FIRST, reserve=1)
    whole = Replay(trace, jobs, Whimsical(2), rules).run()
    half = Replay(trace, jobs, Whimsical(2), rules)
    for _ in range(4):
        if half.peek() is not None:
            half.step()
    rest = Replay(trace, jobs, Whimsical(2), rules)
    resume(rest, saved(half))
    outcome = rest.run()
    assert outcome.host is not None
    assert whole.host is not None
    assert outcome.host.taken == whole.host.taken
    for name, column in whole.host.returns.items():
        assert np.array_equal(outcome.host.returns[name], column)
    assert outcome.allocations.equals(whole.allocations)


def test_a_node_that_training_never_held_since_it_turned_idle_delays_nobody() -> None:
    trace = world(2, [(0, 0, True), (0, 1, True), (3, 1, False)], 10)
    host = replayed(trace, [job()], NAMED).host
    assert host is not None
    assert host.returns["let_go_ns"].tolist() == [NOT_HELD]
    assert starts_by_instant(host).delays_s(1e9).tolist() == [0.0]


def test_kinds_of_units_are_refused_by_name() -> None:
    trace = replace(always_idle(2, 0, 10 * S), kinds=("x", "y"))
    with pytest.raises(InputError, match="not for kinds"):
        Replay(trace, JobTable((job(),)), KindsKnown(), NAMED)


class KindsKnown(EqualShare):
    """A policy that says that it knows kinds."""

    traits = Traits(kinds=True)
