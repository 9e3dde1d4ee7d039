"""A replay one instant at a time, and the look-ups of a state."""

import pytest
from worlds import SECOND, START, Scripted, make, replay, traced

from bft.models import JobTable
from bft.replay import Decision, EqualShare, JobView, Replay, State

JOBS = [make("a", pmax=300), make("b", pmax=100, at=20), make("c", pmax=1e6, at=30)]


TRACE = traced("0 +ab, 50 -a, 70 +a, 90 -b, 400")


def one() -> Replay:
    return Replay(TRACE, JobTable(tuple(JOBS)), EqualShare())


def test_steps_make_a_run() -> None:
    stepped, instants = one(), []
    while (instant := stepped.peek()) is not None:
        stepped.step()
        assert stepped.now == instant
        instants.append(instant)
    assert instants == sorted(set(instants))
    assert instants[-1] == TRACE.end  # c does not finish
    assert stepped.run().steps.equals(one().run().steps)
    with pytest.raises(RuntimeError, match="ended"):
        stepped.step()


def test_a_decision_is_taken_only_where_one_is_due() -> None:
    with pytest.raises(RuntimeError, match="nothing is to be decided"):
        one().decide(Decision(()))


def test_a_replay_without_work_has_no_next_instant() -> None:
    assert Replay(TRACE, JobTable(()), EqualShare()).peek() is None


def test_the_last_instant_is_the_last_finish() -> None:
    done = Replay(TRACE, JobTable((make("a", pmax=90),)), EqualShare())
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


def test_who_keeps_a_state_keeps_what_a_scan_found_then() -> None:
    states: list[State] = []
    found: list[tuple[object, ...]] = []

    def look(state: State) -> tuple[object, ...]:
        jobs = state.jobs
        return [*jobs], state.free, [*jobs.waiting], [*jobs.running], {**jobs.positions}

    def scan(state: State) -> tuple[object, ...]:
        jobs = [*state.jobs]
        waiting = [at for at, view in enumerate(jobs) if not view.units]
        running = [at for at, view in enumerate(jobs) if view.units]
        names = {view.job.name: at for at, view in enumerate(jobs)}
        free = state.idle - sum(view.units for view in jobs)
        return jobs, free, waiting, running, names

    def answer(state: State) -> list[int]:
        states.append(state)
        found.append(scan(state))
        if len(states) % 2:
            return list(EqualShare().decide(state).counts_in(state))
        return [view.units for view in state.jobs]

    replay(TRACE, JOBS, Scripted(answer))
    assert len({repr(one) for one in found}) == len(found) > 5
    assert [look(state) for state in states] == found
