"""Rigid policies: against a second implementation that counts units, and by the rules of placement."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from clusters import (
    END_NS,
    SECOND_NS,
    Job,
    Watched,
    by_hand,
    replay,
    seconds,
    table,
    workloads,
)
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.models import Job as ModelJob
from bft.models import JobTable
from bft.models.workloads.rigid_jobs import rigid_job
from bft.replay import Decision, JobView, Policy, Replay, Rules, State, always_idle
from bft.replay.engine.units import Holdings
from bft.replay.policies.checking import make_world
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.qssf import QuasiShortestServiceFirst
from bft.replay.policies.rigid import run, start
from bft.replay.policies.shortest import ShortestFirst, ShortestRemainingFirst
from bft.replay.policies.tiresias import TiresiasG, TiresiasL
from bft.replay.trace.node_trace import NodeTrace

ALL: dict[str, Callable[[], Policy]] = {
    "fifo": Fifo,
    "backfill": lambda: Fifo(backfill=True),
    "sjf": lambda: ShortestFirst(backfill=True),
    "srtf": ShortestRemainingFirst,
    "srtf-unit-time": lambda: ShortestRemainingFirst(by="unit-time"),
    "srtf-units": lambda: ShortestRemainingFirst(by="units"),
    "qssf": QuasiShortestServiceFirst,
    "tiresias-l": lambda: TiresiasL(limits=(20.0, 60.0), promote=2.0, placement="all"),
    "tiresias-g": lambda: TiresiasG(limits=(20.0, 60.0), delta=20.0, placement="all"),
}
# Of tests that try all policies.
FEW = examples(25)
NODES, PER = (
    3,
    2,
)  # so that there are jobs of one, two and three nodes, and room can be scattered


def counted(jobs: list[Job]) -> list[Job]:
    """The same jobs, for the second implementation to spend."""
    return [Job(job.submit, job.units, job.duration) for job in jobs]


def close(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> bool:
    return np.allclose(np.array(ours), np.array(theirs), rtol=0, atol=1e-6)


# --- schedules ------------------------------------------------------------------------------------------------------


@given(workloads())
def test_fifo_is_first_come_first_served(jobs: list[Job]) -> None:
    found = seconds(replay(Fifo(consolidate=False), table(jobs), NODES, PER))
    assert close(
        found, by_hand(counted(jobs), 6, lambda here: here, preempts=False, blocks=True)
    )
    starts = [began for began, _ in found]
    assert starts == sorted(starts)


@given(workloads())
def test_fifo_with_backfill_skips_what_does_not_fit(jobs: list[Job]) -> None:
    found = seconds(
        replay(Fifo(backfill=True, consolidate=False), table(jobs), NODES, PER)
    )
    assert close(found, by_hand(counted(jobs), 6, lambda here: here, preempts=False))


@given(workloads(), st.booleans())
def test_sjf_starts_the_shortest(jobs: list[Job], backfill: bool) -> None:
    found = seconds(
        replay(
            ShortestFirst(backfill=backfill, consolidate=False), table(jobs), NODES, PER
        )
    )
    expected = by_hand(
        counted(jobs),
        6,
        lambda here: sorted(here, key=lambda job: job.duration),
        preempts=False,
        blocks=not backfill,
    )
    assert close(found, expected)


@pytest.mark.parametrize("by", ["time", "unit-time", "units"])
@given(jobs=workloads())
def test_srtf_runs_the_shortest(by: Any, jobs: list[Job]) -> None:
    keys: dict[str, Callable[[Job], Any]] = {
        "time": lambda job: (job.left, not job.running),
        "unit-time": lambda job: (job.left * job.units, not job.running, job.units),
        "units": lambda job: (job.units, not job.running),
    }
    found = seconds(
        replay(
            ShortestRemainingFirst(by=by, consolidate=False), table(jobs), NODES, PER
        )
    )
    assert close(
        found,
        by_hand(
            counted(jobs), 6, lambda here: sorted(here, key=keys[by]), preempts=True
        ),
    )


@pytest.mark.parametrize("name", ["sjf", "srtf", "srtf-unit-time", "srtf-units"])
def test_an_order_kept_between_decisions_is_that_of_sorting_anew(name: str) -> None:
    for seed in range(6):
        world = make_world(seed)
        replay = Replay(
            world.trace, world.jobs, ALL[name](), world.rules, world.interference
        )
        while replay.peek() is not None:
            state = replay.advance()
            if state is not None:
                decision = replay.policy.decide(state)
                assert decision == ALL[name]().decide(state)
                replay.decide(decision)


def test_srtf_minimises_the_mean_on_one_unit() -> None:
    jobs = [Job(0, 1, 10), Job(1, 1, 3), Job(2, 1, 1), Job(5, 1, 4)]
    found = seconds(replay(ShortestRemainingFirst(), table(jobs), 1, 1))
    assert found == [(0, 18), (1, 5), (2, 3), (5, 9)]


def test_a_preempted_job_loses_no_work_and_pays_for_its_restart() -> None:
    jobs = [Job(0, 1, 10), Job(1, 1, 3)]
    outcome = replay(
        ShortestRemainingFirst(),
        table(jobs),
        1,
        1,
        restart_overhead=((8, 40.0), (99, 60.0)),
    )
    assert seconds(outcome) == [(0, 53), (1, 4)]
    assert outcome.records[0].starts == 2


@pytest.mark.parametrize("name", ALL)
@FEW
@given(jobs=workloads(), data=st.data())
def test_names_do_not_matter(name: str, jobs: list[Job], data: st.DataObject) -> None:
    names = data.draw(st.permutations([f"j{at}" for at in range(len(jobs))]))
    assert seconds(replay(ALL[name](), table(jobs), NODES, PER)) == seconds(
        replay(ALL[name](), table(jobs, names), NODES, PER)
    )


# --- placement ------------------------------------------------------------------------------------------------------


def fits(free: set[int], units: int) -> bool:
    """Whether this many free units are on as few nodes as possible."""
    room = sorted(
        (sum(unit // PER == node for unit in free) for node in range(NODES)),
        reverse=True,
    )
    whole, rest = divmod(units, PER)
    return room[:whole] == [PER] * whole and (not rest or room[whole] >= rest)


def after(state: State, decision: Decision) -> dict[int, tuple[int, ...]]:
    held = {at: view.held for at, view in enumerate(state.jobs) if view.units}
    held.update(decision.placement or {})
    return {at: units for at, units in held.items() if units}


@pytest.mark.parametrize("name", ALL)
@FEW
@given(jobs=workloads())
def test_jobs_are_consolidated_and_stay_where_they_are(
    name: str, jobs: list[Job]
) -> None:
    def look(state: State, decision: Decision) -> None:
        held = after(state, decision)
        units = [unit for one in held.values() for unit in one]
        assert len(units) == len(set(units)) <= state.idle
        for at, one in held.items():
            view = state.jobs[at]
            assert len(one) == view.job.request
            assert len({unit // PER for unit in one}) == -(-view.job.request // PER)
            assert not view.units or set(one) == set(view.held)

    outcome = replay(Watched(ALL[name](), look), table(jobs), NODES, PER)
    assert all(record.finish_ns is not None for record in outcome.records)


@pytest.mark.parametrize(
    "name", ["backfill", "sjf", "srtf", "srtf-units", "tiresias-l", "tiresias-g"]
)
@FEW
@given(jobs=workloads())
def test_no_unit_idles_that_a_waiting_job_could_use(name: str, jobs: list[Job]) -> None:
    """Unless that job gave way just now: then the policy asks to be woken at once."""

    def look(state: State, decision: Decision) -> None:
        held = after(state, decision)
        free = set(range(NODES * PER)) - {unit for one in held.values() for unit in one}
        for at, view in enumerate(state.jobs):
            if at not in held and fits(free, view.job.request):
                assert view.units
                assert decision.wake_ns == state.time_ns + 1

    replay(Watched(ALL[name](), look), table(jobs), NODES, PER)


def moment(
    held: list[tuple[int, ...]], requests: list[int], nodes: int = NODES, per: int = PER
) -> State:
    """A cluster on which job k holds held[k], and would run on requests[k] units."""
    holdings = Holdings(nodes * per, per)
    holdings.join(range(nodes * per), 0)
    views = []
    for at, (units, request) in enumerate(zip(held, requests, strict=True)):
        holdings.grant(at, units)
        views.append(
            JobView(rigid_job(f"j{at}", 0, request, 1e6), len(units), 0.0, units)
        )
    return State(0, nodes * per, tuple(views), holdings)


def consolidated(job: ModelJob) -> bool:
    return False


def test_who_gives_way_is_the_least_urgent_that_makes_room() -> None:
    # Node 0: jobs 0 and 3; node 1: jobs 1 and 2; node 2: job 4, of both units. Job 5 needs a whole node.
    state = moment([(0,), (2,), (3,), (1,), (4, 5), ()], [1, 1, 1, 1, 2, 2])
    order = [5, 0, 1, 2, 3, 4]
    assert run(state, order, spreads=consolidated).placement == {4: (), 5: (4, 5)}
    # With job 4 most urgent, jobs 1 and 2 make room: 3 alone does not, 0 is more urgent.
    assert run(state, [4, 5, 0, 1, 2, 3], spreads=consolidated).placement == {
        1: (),
        2: (),
        5: (2, 3),
    }
    # Nobody makes room for who is least urgent.
    assert run(state, [4, 0, 1, 2, 3, 5], spreads=consolidated).placement == {}


def test_no_job_gives_way_in_vain() -> None:
    # Two of six units are free, scattered; job 3 needs a node, which the most urgent jobs leave to nobody.
    state = moment([(0,), (2,), (4,), ()], [1, 1, 1, 2])
    assert run(state, [0, 1, 2, 3], spreads=consolidated).placement == {}
    assert run(state, [0, 1, 2, 3], spreads=lambda job: True).placement == {3: (1, 3)}


def test_those_give_way_for_whom_no_room_is_left_anyhow() -> None:
    # Ten units: 4 for job 0 and 3 for job 1 leave 3, which job 3 can keep 2 of, between jobs 2 and 4 that must go.
    state = moment(
        [(), (), (0, 1, 2, 3, 4), (5, 6), (7, 8, 9)], [4, 3, 5, 2, 3], nodes=5
    )
    assert run(state, range(5), spreads=lambda job: True).counts_in(state) == (
        4,
        3,
        0,
        2,
        0,
    )


def test_who_gave_way_asks_for_the_other_free_units() -> None:
    # Nodes 1 and 2 are half used: job 3 takes node 2 from job 2, which fits beside job 1 on node 1.
    decision = run(
        moment([(0, 1), (2,), (4,), ()], [2, 1, 1, 2]),
        [0, 3, 1, 2],
        spreads=consolidated,
    )
    assert decision.placement == {2: (), 3: (4, 5)}
    assert decision.wake_ns == 1
    # Where node 1 is free nobody gives way.
    decision = run(
        moment([(0, 1), (4,), ()], [2, 1, 2]), [0, 2, 1], spreads=consolidated
    )
    assert decision.placement == {2: (2, 3)}
    assert decision.wake_ns is None


def test_a_job_that_fits_nowhere_does_not_block_smaller_ones() -> None:
    state = moment([(0,), (2,), (4,), (), (), ()], [1, 1, 1, 4, 2, 1])
    assert start(state, [3, 4, 5], spreads=consolidated).placement == {5: (1,)}
    assert start(state, [3, 4, 5], spreads=consolidated, blocks=True).placement == {}


@st.composite
def moments(draw: st.DrawFn) -> State:
    units = list(draw(st.permutations(range(NODES * PER))))
    held: list[tuple[int, ...]] = []
    requests = []
    for _ in range(draw(st.integers(1, 7))):
        request = draw(st.integers(1, 5))
        runs = draw(st.booleans()) and request <= len(units)
        held.append(tuple(units.pop() for _ in range(request)) if runs else ())
        requests.append(request)
    return moment(held, requests)


@given(moments(), st.booleans(), st.data())
def test_more_urgency_never_hurts(
    state: State, scattered: bool, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(state.jobs))))
    turn = data.draw(st.integers(0, len(order) - 1))
    before = run(state, order, spreads=lambda job: scattered).counts_in(state)
    earlier = data.draw(st.integers(0, turn))
    at = order[turn]
    raised = [
        *order[:earlier],
        at,
        *(other for other in order[earlier:] if other != at),
    ]
    after = run(state, raised, spreads=lambda job: scattered).counts_in(state)
    assert after[at] >= before[at]


@given(moments(), st.data())
def test_by_number_the_walk_is_greedy(state: State, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(state.jobs))))
    left, expected = state.idle, [0] * len(state.jobs)
    for at in order:
        if state.jobs[at].job.request <= left:
            expected[at] = state.jobs[at].job.request
            left -= expected[at]
    assert (
        list(run(state, order, spreads=lambda job: True).counts_in(state)) == expected
    )


# --- nodes that come and go -------------------------------------------------------------------------------------------


@st.composite
def shrinking(draw: st.DrawFn) -> NodeTrace:
    """A machine of three nodes whose nodes leave and come back, and are all there in the end."""
    times, joins, leaves = [0], [[0, 1, 2]], [[]]  # type: list[int], list[list[int]], list[list[int]]
    here = {0, 1, 2}
    for at in sorted(draw(st.sets(st.integers(1, 120), max_size=8))):
        flips = draw(st.sets(st.integers(0, 2), min_size=1))
        times.append(at)
        joins.append(sorted(flips - here))
        leaves.append(sorted(flips & here))
        here ^= flips
    times.append(130)
    joins.append(sorted({0, 1, 2} - here))
    leaves.append([])
    return NodeTrace(
        nodes=("a", "b", "c"),
        times=np.array(times, dtype=np.int64) * SECOND_NS,
        joined=np.array([node for some in joins for node in some], dtype=np.int32),
        joined_at=np.cumsum([0, *map(len, joins)]).astype(np.int64),
        left=np.array([node for some in leaves for node in some], dtype=np.int32),
        left_at=np.cumsum([0, *map(len, leaves)]).astype(np.int64),
        start=0,
        end=END_NS,
        units_per_node=PER,
    )


@pytest.mark.parametrize("name", ALL)
@FEW
@given(trace=shrinking(), jobs=workloads())
def test_jobs_on_nodes_that_leave_finish_and_the_books_balance(
    name: str, trace: NodeTrace, jobs: list[Job]
) -> None:
    outcome = Replay(
        trace, table(jobs), ALL[name](), Rules(max_jobs=0, checkpoint_interval_s=10.0)
    ).run()
    for record, job in zip(outcome.records, jobs, strict=True):
        assert record.finish_ns is not None
        kept = record.gained - record.lost
        assert kept == pytest.approx(job.duration, rel=1e-9)
        assert record.run_seconds == pytest.approx(record.gained, rel=1e-9)


# --- predictions, memory ----------------------------------------------------------------------------------------------


def test_qssf_goes_by_predicted_service() -> None:
    """Predictions below 0 do not count: without another, `unknown` is expected to take 1000 s."""
    names = ("blocker", "long", "wide", "short", "unknown")
    estimates = (1.0, 50.0, 20.0, 45.0, -7.0)
    jobs = JobTable(
        tuple(
            rigid_job(name, at * SECOND_NS, units, 10.0, extra={"estimate_s": estimate})
            for at, (name, units, estimate) in enumerate(
                zip(names, (3, 1, 3, 1, 1), estimates, strict=True)
            )
        )
    )
    found = seconds(replay(QuasiShortestServiceFirst(), jobs, 3, 1))
    assert found == [
        (0, 10),
        (10, 20),
        (20, 30),
        (10, 20),
        (30, 40),
    ]  # 45, 50, 60 and 1000 unit-seconds


def test_qssf_learns_from_the_closest_jobs_that_have_finished() -> None:
    def job(name: str, at: int, user: str, model: str, duration: float) -> ModelJob:
        return rigid_job(name, at * SECOND_NS, 1, duration, user=user, model=model)

    jobs = (
        job("1", 0, "ann", "vgg", 30.0),
        job("2", 30, "ann", "bert", 10.0),
        job("3", 40, "bob", "vgg", 5.0),
        job("4", 41, "ann", "vgg", 1.0),  # as 1: 30 s
        job("5", 42, "ann", "bert", 1.0),  # as 2: 10 s
        job("6", 43, "ann", "other", 1.0),  # as ann's: 20 s
        job("7", 44, "eve", "other", 1.0),  # as all: 20 s, and after 6
    )
    policy = QuasiShortestServiceFirst(fallback_s=1e6)
    outcome = replay(policy, JobTable(jobs), 1, 1)
    assert [began for began, _ in seconds(outcome)] == [0, 30, 40, 48, 45, 46, 47]


def test_qssf_expects_the_mean_of_the_durations_of_all_finished_jobs_of_a_kind() -> (
    None
):
    """Of 3, 3 and 30 s: 12 s; not their median, the last, the longest, nor what the latest dominates."""

    def job(name: str, at: int, user: str, duration: float, **extra: float) -> ModelJob:
        return rigid_job(name, at * SECOND_NS, 1, duration, user=user, extra=extra)

    def order(durations: tuple[float, ...], rival_s: float) -> list[str]:
        blocker = job("blocker", 40, "eve", 10.0, estimate_s=1.0)
        past = [
            job(f"past{at}", at, "ann", seconds, estimate_s=1.0)
            for at, seconds in enumerate(durations)
        ]
        waiting = [
            job("ann's", 41, "ann", 1.0),
            job("rival", 42, "bob", 1.0, estimate_s=rival_s),
        ]
        outcome = replay(
            QuasiShortestServiceFirst(), JobTable((*past, blocker, *waiting)), 1, 1
        )
        names = {record.start_ns: record.job.name for record in outcome.records[-2:]}
        return [names[at] for at in sorted(names)]

    for durations in ((3.0, 3.0, 30.0), (30.0, 3.0, 3.0)):
        assert order(durations, 11.9) == ["rival", "ann's"]
        assert order(durations, 12.1) == ["ann's", "rival"]


@pytest.mark.parametrize(
    ("past", "estimate"),
    [
        (
            [("ann", 2, 10.0), ("ann", 1, 40.0)],
            None,
        ),  # hers with as many units; all of hers would be 25 s
        (
            [("ann", 1, 10.0), ("bob", 2, 40.0)],
            None,
        ),  # any of hers before others' with as many units
        (
            [("bob", 2, 10.0), ("bob", 1, 40.0)],
            None,
        ),  # anybody's with as many units before all, 25 s
        ([("ann", 2, 10.0)], 0.0),  # an estimate of 0 is none
    ],
    ids=["user and units", "user", "units", "estimate of 0"],
)
def test_qssf_goes_by_the_closest_kind_that_has_finished(
    past: list[tuple[str, int, float]], estimate: float | None
) -> None:
    """Each time 10 s are right for ann's job: a rival of 9.9 s goes first, and one of 10.1 s does not."""

    def job(
        name: str,
        at: int,
        user: str,
        units: int,
        duration: float,
        estimate_s: float | None,
    ) -> ModelJob:
        extra = {} if estimate_s is None else {"estimate_s": estimate_s}
        return rigid_job(
            name, at * SECOND_NS, units, duration, user=user, model=name, extra=extra
        )

    for rival_s, first in ((9.9, "rival"), (10.1, "ann's")):
        jobs = (
            *(
                job(f"past{at}", at, user, units, seconds, 1.0)
                for at, (user, units, seconds) in enumerate(past)
            ),
            job("blocker", 90, "eve", 2, 20.0, 1.0),
            job("ann's", 91, "ann", 2, 1.0, estimate),
            job("rival", 92, "bob", 2, 1.0, rival_s),
        )
        outcome = replay(QuasiShortestServiceFirst(), JobTable(jobs), 2, 1)
        assert (
            min(outcome.records[-2:], key=lambda record: record.start_ns or 0).job.name
            == first
        )


def test_srtf_by_unit_time_runs_the_smaller_of_equals_first() -> None:
    """Both need 20 unit-seconds; the one that asks for two units waits though it was admitted first."""
    jobs = JobTable((rigid_job("wide", 0, 2, 10.0), rigid_job("narrow", 0, 1, 20.0)))
    assert seconds(replay(ShortestRemainingFirst(by="unit-time"), jobs, 2, 1)) == [
        (20, 30),
        (0, 20),
    ]


def test_qssf_multiplies_the_mean_by_the_units_asked_for() -> None:
    """Ann's two-unit job is expected to take 20 s as all of hers, so 40 unit-seconds: behind 39, ahead of 41."""

    def job(name: str, at: int, units: int, user: str, **extra: float) -> ModelJob:
        return rigid_job(name, at * SECOND_NS, units, 20.0, user=user, extra=extra)

    for rival, first in ((39.0, "rival"), (41.0, "ann's")):
        jobs = (
            job("past", 0, 2, "ann", estimate_s=1.0),
            job("blocker", 1, 2, "eve", estimate_s=1.0),
            job("ann's", 21, 2, "ann"),
            job("rival", 22, 1, "bob", estimate_s=rival),
        )
        outcome = replay(QuasiShortestServiceFirst(), JobTable(jobs), 2, 1)
        assert (
            min(outcome.records[2:], key=lambda record: record.start_ns or 0).job.name
            == first
        )


@pytest.mark.parametrize("name", ALL)
@FEW
@given(jobs=workloads(), share=st.floats(0, 1))
def test_a_checkpoint_keeps_what_a_policy_remembers(
    name: str, jobs: list[Job], share: float
) -> None:
    trace = always_idle(NODES, 0, END_NS, units_per_node=PER)
    rules = Rules(max_jobs=0)
    whole = Replay(trace, table(jobs), ALL[name](), rules).run()
    stop = int(share * (len(whole.steps) - 1))
    first = Replay(trace, table(jobs), ALL[name](), rules)
    steps = iter(range(10**6))
    # The loop is left by an exception as a kill would: what `run` does at its end would change the books.
    with pytest.raises(KeyboardInterrupt):
        first.run(should_stop=lambda: _stop(next(steps) >= stop))
    kept = json.loads(json.dumps(first.state()))
    second = Replay(trace, table(jobs), ALL[name](), rules)
    second.restore(kept)
    assert seconds(second.run()) == seconds(whole)


def _stop(now: bool) -> bool:
    if now:
        raise KeyboardInterrupt
    return False
