"""Rigid policies by the rules of placement; `tests/rules` has their schedules as plain programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clusters import (
    Job,
    Watched,
    replay,
    table,
    workloads,
)
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.models import Job as ModelJob
from bft.models.workloads.rigid_jobs import rigid_job
from bft.replay import Decision, JobView, Policy, Replay, State
from bft.replay.engine.units import Holdings
from bft.replay.policies.checking import make_world
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.qssf import QuasiShortestServiceFirst
from bft.replay.policies.rigid import run, start
from bft.replay.policies.shortest import ShortestFirst, ShortestRemainingFirst
from bft.replay.policies.tiresias import TiresiasG, TiresiasL

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
# A job that does not fit keeps out those behind it.
BLOCKED = ("fifo", "qssf")
# Of tests that try all policies.
FEW = examples(25)
NODES, PER = (
    3,
    2,
)  # so that there are jobs of one, two and three nodes, and room can be scattered


# --- schedules ------------------------------------------------------------------------------------------------------


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
def test_jobs_are_consolidated_and_stay_and_no_unit_idles_that_one_could_use(
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
        free = set(range(NODES * PER)) - set(units)
        for at, view in enumerate(state.jobs):
            # One that gave way just now: the policy asks to be woken at once.
            if at not in held and fits(free, view.job.request) and name not in BLOCKED:
                assert view.units
                assert decision.wake_ns == state.time_ns + 1

    outcome = replay(Watched(ALL[name](), look), table(jobs), NODES, PER)
    assert all(record.finish_ns is not None for record in outcome.records)


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
