"""A replay one instant at a time, and the look-ups of a state."""

import pytest
from worlds import SECOND, START, Scripted, make, replay, world

from bft.models import JobTable
from bft.replay import Decision, EqualShare, JobView, NodeTrace, Replay, State

JOBS = [make("a", pmax=300), make("b", pmax=100, at=20), make("c", pmax=1e6, at=30)]


def trace() -> NodeTrace:
    return world(
        [(0, "a", 1), (0, "b", 1), (50, "a", 0), (70, "a", 1), (90, "b", 0)], 400
    )


def one() -> Replay:
    return Replay(trace(), JobTable(tuple(JOBS)), EqualShare())


def test_steps_make_a_run() -> None:
    stepped, instants = one(), []
    while (instant := stepped.peek()) is not None:
        stepped.step()
        assert stepped.now == instant
        instants.append(instant)
    assert instants == sorted(set(instants))
    assert instants[-1] == trace().end  # c does not finish
    assert stepped.run().steps.equals(one().run().steps)
    with pytest.raises(RuntimeError, match="ended"):
        stepped.step()


def test_whoever_decides_instead_of_the_policy_gets_what_the_policy_would() -> None:
    mine, asked = one(), 0
    while mine.peek() is not None:
        state = mine.advance()
        if state is not None:
            asked += 1
            mine.decide(EqualShare().decide(state))
    assert asked > 5
    assert mine.run().steps.equals(one().run().steps)


def test_a_decision_is_taken_only_where_one_is_due() -> None:
    mine = one()
    with pytest.raises(RuntimeError, match="nothing is to be decided"):
        mine.decide(Decision(()))


def test_a_replay_without_work_has_no_next_instant() -> None:
    assert Replay(trace(), JobTable(()), EqualShare()).peek() is None


def test_the_last_instant_is_the_last_finish() -> None:
    done = Replay(trace(), JobTable((make("a", pmax=90),)), EqualShare())
    done.step()
    assert done.peek() == START + 5 * SECOND  # on two nodes
    done.step()
    assert done.peek() is None


def view(at: int, units: int, shared: int = 0) -> JobView:
    return JobView(
        make(f"j{at}"),
        units,
        0.0,
        tuple(range(units)),
        ((at ^ 1, shared),) if shared else (),
    )


def test_units_that_two_jobs_share_are_used_once() -> None:
    assert State(0, 10, (view(0, 3, 2), view(1, 2, 2), view(2, 0))).free == 7


def test_who_keeps_a_state_keeps_what_was_to_be_seen_then() -> None:
    states: list[State] = []
    seen: list[tuple[object, ...]] = []

    def look(state: State) -> tuple[object, ...]:
        return (
            *state.jobs,
            state.free,
            *state.jobs.waiting,
            *state.jobs.running,
            *state.jobs.positions.items(),
            *state.jobs.least,
        )

    def answer(state: State) -> list[int]:
        states.append(state)
        seen.append(look(state))
        return list(EqualShare().decide(state).counts_in(state))

    replay(trace(), JOBS, Scripted(answer))
    assert len({repr(one) for one in seen}) == len(seen) > 5
    assert [look(state) for state in states] == seen


def test_what_the_engine_says_of_itself_is_what_a_scan_finds() -> None:
    seen = 0

    def answer(state: State) -> list[int]:
        nonlocal seen
        seen += 1
        assert list(state.jobs.running) == [
            at for at, v in enumerate(state.jobs) if v.units
        ]
        assert list(state.jobs.waiting) == [
            at for at, v in enumerate(state.jobs) if not v.units
        ]
        assert state.free == state.idle - sum(v.units for v in state.jobs)
        assert dict(state.jobs.positions) == {
            v.job.name: at for at, v in enumerate(state.jobs)
        }
        return (
            [view.units for view in state.jobs]
            if seen % 2
            else list(EqualShare().decide(state).counts)
        )

    replay(trace(), JOBS, Scripted(answer))
    assert seen > 5
