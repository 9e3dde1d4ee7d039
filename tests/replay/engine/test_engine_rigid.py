"""Jobs that cannot shrink, placed units, timers, moves, partners by twos and threes: the rules, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from saving import Saved, resume, saved
from test_engine import SECOND, START, Rows, make, world

from bft.models import Job, JobTable, xi_from_frame
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Interference, Rules
from bft.replay.policies import Decision, PolicyError, State, Traits
from bft.replay.trace.node_trace import always_idle

Placement = Mapping[int, tuple[int, ...]]


@dataclass
class Scripted:
    """Gives the answers of a function of the state."""

    answer: Callable[[State], Decision]
    traits: Traits = Traits()
    name: str = "scripted"
    seen: list[State] = field(default_factory=list)

    def decide(self, state: State) -> Decision:
        self.seen.append(state)
        return self.answer(state)


def start_all(state: State) -> Decision:
    """Each waiting job gets its request, first come first served."""
    places = state.machine.placement()
    found: dict[int, tuple[int, ...]] = {}
    for position, view in enumerate(state.jobs):
        if not view.units and (units := places.take(view.job.request)) is not None:
            found[position] = units
    return Decision.placed(found)


def rigid_job(
    name: str = "j", units: int = 2, seconds: float = 1000.0, **given: Any
) -> Job:
    rates = [0.0] * units + [1.0]
    return make(name, rates, pmax=seconds, jmin=units, **given)


PLAIN = Rules()


def replayed(
    rows: Rows,
    end: float,
    jobs: list[Job],
    policy: Scripted,
    rules: Rules = PLAIN,
    **given: Any,
) -> Outcome:
    return Replay(world(rows, end, **given), JobTable(tuple(jobs)), policy, rules).run()


def clustered(
    nodes: int,
    per: int,
    jobs: list[Job],
    policy: Scripted,
    rules: Rules = PLAIN,
    **given: Any,
) -> Outcome:
    trace = always_idle(nodes, START, START + 10**6 * SECOND, units_per_node=per)
    return Replay(trace, JobTable(tuple(jobs)), policy, rules, **given).run()


def finish_s(outcome: Outcome, job: int = 0) -> float | None:
    finish = outcome.records[job].finish_ns
    return None if finish is None else (finish - START) / SECOND


def test_a_rigid_job_that_loses_a_unit_goes_back_to_its_last_checkpoint_and_waits() -> (
    None
):
    rules = Rules(checkpoint_interval_s=300)
    rows = [(0, "ab", 1), (700, "b", 0), (900, "c", 1)]
    outcome = replayed(
        rows, 5000, [rigid_job()], Scripted(start_all, traits=Traits(rigid=True)), rules
    )
    record = outcome.records[0]
    assert record.lost_to_preemption == pytest.approx(100)  # checkpoints at 300 and 600
    assert record.preemptions == 1
    assert finish_s(outcome) == pytest.approx(900 + 400)


def test_an_elastic_policy_keeps_the_rest_of_such_a_job() -> None:
    def regrow(state: State) -> Decision:
        return Decision((2 if state.idle >= 2 else 0,))

    rows = [(0, "ab", 1), (700, "b", 0), (900, "c", 1)]
    outcome = replayed(rows, 5000, [rigid_job(down=20)], Scripted(regrow))
    assert outcome.records[0].lost_to_preemption == pytest.approx(20)
    assert finish_s(outcome) == pytest.approx(900 + 320)


@pytest.mark.parametrize(
    ("interval", "lost"), [(0.0, 0.0), (1e6, 700.0), (700.0, 0.0), (699.0, 1.0)]
)
def test_the_checkpoint_interval_says_how_much_is_lost(
    interval: float, lost: float
) -> None:
    rules = Rules(checkpoint_interval_s=interval)
    outcome = replayed(
        [(0, "ab", 1), (700, "b", 0)],
        5000,
        [rigid_job()],
        Scripted(start_all, traits=Traits(rigid=True)),
        rules,
    )
    assert outcome.records[0].lost_to_preemption == pytest.approx(lost)


def test_checkpoints_are_counted_from_each_start() -> None:
    rules = Rules(checkpoint_interval_s=300)
    rows = [(0, "ab", 1), (350, "b", 0), (400, "b", 1), (750, "b", 0)]
    outcome = replayed(
        rows, 5000, [rigid_job()], Scripted(start_all, traits=Traits(rigid=True)), rules
    )
    assert outcome.records[0].lost_to_preemption == pytest.approx(50 + 50)
    assert outcome.records[0].work == pytest.approx(600)


def test_jobs_that_finish_together_are_told_in_order_of_admission() -> None:
    policy = Scripted(start_all, traits=Traits(rigid=True))
    clustered(
        1,
        3,
        [rigid_job("a", 1, 50), rigid_job("b", 1, 50), rigid_job("c", 1, 90)],
        policy,
    )
    assert [view.job.name for view in policy.seen[1].finished] == ["a", "b"]


def test_a_job_stopped_by_its_policy_loses_nothing_but_pays_for_the_restart() -> None:
    def pause(state: State) -> Decision:
        seconds = (state.time_ns - START) / SECOND
        if seconds == 450:
            return Decision.placed({0: ()}, wake_ns=START + 500 * SECOND)
        return replace(
            start_all(state), wake_ns=START + 450 * SECOND if seconds < 450 else None
        )

    rules = Rules(
        checkpoint_interval_s=300,
        restart_overhead=((1, 10.0), (4, 40.0)),
        start_overhead_s=5,
    )
    policy = Scripted(pause, traits=Traits(rigid=True))
    outcome = replayed([(0, "ab", 1)], 5000, [rigid_job()], policy, rules)
    record = outcome.records[0]
    assert finish_s(outcome) == pytest.approx(5 + 1000 + 50 + 40)
    # A stop is no rescale in the policy's eyes.
    assert [
        (view.starts, view.rescales) for state in policy.seen for view in state.jobs
    ] == [(0, 0), (1, 0), (1, 0)]
    assert record.lost_to_preemption == 0
    assert (record.lost_to_start, record.lost_to_restart) == (
        pytest.approx(5),
        pytest.approx(40),
    )
    assert record.lost_to_rescale == 0
    assert (record.starts, record.stops, record.rescales) == (2, 1, 1)


def test_a_checkpoint_during_a_restart_saves_only_work_that_was_done() -> None:
    rules = Rules(checkpoint_interval_s=100, start_overhead_s=150)
    outcome = replayed(
        [(0, "ab", 1), (190, "b", 0)],
        5000,
        [rigid_job()],
        Scripted(start_all, traits=Traits(rigid=True)),
        rules,
    )
    assert outcome.records[0].work == 0
    assert outcome.records[0].lost_to_preemption == pytest.approx(40)


def test_a_stall_ends_with_the_run_to_which_it_was_charged() -> None:
    """Its first start takes 300 s; taken back after 10 s and started anew at 20 s, it has nothing left to wait for."""
    rows = [(0, "ab", 1), (10, "b", 0), (20, "b", 1)]
    rules = Rules(start_overhead_s=300, restart_overhead=((99, 0.0),))
    assert (
        finish_s(
            replayed(
                rows,
                999,
                [rigid_job(seconds=10)],
                Scripted(start_all, traits=Traits(rigid=True)),
                rules,
            )
        )
        == 30
    )
    # An elastic job that loses its last unit.
    rows = [(0, "a", 1), (10, "a", 0), (20, "a", 1)]
    assert (
        finish_s(
            replayed(
                rows, 999, [rigid_job(units=1, seconds=10)], Scripted(start_all), rules
            )
        )
        == 30
    )
    # One that its policy stops at 10 s.
    plan = {0.0: (0, 1), 10.0: (), 20.0: (0, 1)}
    policy = Scripted(
        lambda s: Decision.placed({0: plan[(s.time_ns - START) / SECOND]})
    )
    rows = [(0, "ab", 1), (10, "c", 1), (20, "c", 0)]
    assert finish_s(replayed(rows, 999, [rigid_job(seconds=10)], policy, rules)) == 30


def test_a_stall_for_a_preemption_that_leaves_no_unit_delays_nothing() -> None:
    rules = Rules(cost_model="stall")
    rows = [(0, "a", 1), (10, "a", 0), (20, "a", 1)]
    outcome = replayed(
        rows,
        999,
        [rigid_job(units=1, seconds=15, down=100)],
        Scripted(start_all),
        rules,
    )
    assert finish_s(outcome) == 25
    assert outcome.records[0].lost_to_preemption == 0


def test_a_stall_outlives_the_loss_of_some_units_only() -> None:
    job = make(rates=[0, 1, 1], pmax=10)
    policy = Scripted(lambda state: Decision((min(2, state.idle),)))
    rows = [(0, "ab", 1), (10, "b", 0)]
    assert (
        finish_s(replayed(rows, 999, [job], policy, Rules(start_overhead_s=300))) == 310
    )


def test_a_job_with_restart_seconds_of_its_own_pays_these_at_each_start() -> None:
    job = replace(rigid_job(units=1, seconds=100), restart_s=7.0)
    rules = Rules(start_overhead_s=300, restart_overhead=((99, 600.0),))
    policy = Scripted(start_all)
    rows = [(0, "a", 1), (50, "a", 0), (80, "a", 1)]
    outcome = replayed(
        rows, 999, [job], policy, replace(rules, checkpoint_interval_s=0)
    )
    # 7 s, 43 s of work, 30 s without units, 7 s, and the 57 s that are left.
    assert finish_s(outcome) == 144


@pytest.mark.parametrize(
    ("placement", "finish"), [((2, 3), 1000), ((4, 6), 1030), ((1, 0), 1000)]
)
def test_with_free_moves_only_another_shape_is_a_restart(
    placement: tuple[int, ...], finish: int
) -> None:
    def move(state: State) -> Decision:
        if state.time_ns == START:
            return Decision.placed({0: (0, 1)}, wake_ns=START + 100 * SECOND)
        return Decision.placed({0: placement})

    rules = Rules(restart_overhead=((99, 30.0),), free_moves=True)
    policy = Scripted(move, traits=Traits(migrates=True))
    outcome = clustered(4, 2, [rigid_job()], policy, rules)
    assert finish_s(outcome) == finish
    assert outcome.records[0].rescales == (finish > 1000)


def test_a_view_shows_that_a_job_restarts() -> None:
    policy = Scripted(
        lambda state: start_all(state).waking(state.time_ns + 20 * SECOND)
    )
    replayed([(0, "ab", 1)], 100, [rigid_job()], policy, Rules(start_overhead_s=40))
    shown = [state.jobs[0].restarting for state in policy.seen]
    assert shown == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("units", "seconds"),
    [(1, 10.0), (2, 40.0), (4, 40.0), (5, 60.0), (8, 60.0), (9, 60.0)],
)
def test_the_overhead_of_a_restart_follows_the_size(units: int, seconds: float) -> None:
    assert (
        Rules(restart_overhead=((1, 10.0), (4, 40.0), (8, 60.0))).restart_s(units)
        == seconds
    )
    assert Rules().restart_s(units) == 0


def test_a_timer_wakes_the_policy_and_only_then() -> None:
    policy = Scripted(
        lambda state: start_all(state).waking(state.time_ns + 400 * SECOND)
    )
    outcome = replayed([(0, "ab", 1)], 5000, [rigid_job()], policy)
    assert [(state.time_ns - START) / SECOND for state in policy.seen] == [0, 400, 800]
    assert finish_s(outcome) == 1000


def test_a_timer_in_the_past_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"scripted.*woken"):
        replayed(
            [(0, "ab", 1)],
            50,
            [rigid_job()],
            Scripted(lambda s: start_all(s).waking(s.time_ns)),
        )


def test_a_move_is_for_policies_that_migrate_and_costs_a_restart() -> None:
    def move(state: State) -> Decision:
        if state.time_ns == START:
            return Decision.placed({0: (0, 1)}, wake_ns=START + 100 * SECOND)
        return (
            Decision.placed({0: (2, 3)})
            if state.jobs[0].held == (0, 1)
            else Decision.keep()
        )

    rules = Rules(restart_overhead=((99, 30.0),))
    outcome = clustered(
        2, 2, [rigid_job()], Scripted(move, traits=Traits(migrates=True)), rules
    )
    assert finish_s(outcome) == 1030
    for rigid in (False, True):
        with pytest.raises(PolicyError, match=r"'j' (migrates|runs and is rigid)"):
            clustered(
                2, 2, [rigid_job()], Scripted(move, traits=Traits(rigid=rigid)), rules
            )


@pytest.mark.parametrize("overlap", [0.0, 0.4, 1.0])
def test_a_restart_overlaps_with_who_ran_on_its_units_until_then(
    overlap: float,
) -> None:
    """After 100 s b takes a's units, a goes on when b has ended: on its units (in part, or not, overlapped)."""

    def answer(other: tuple[int, ...]) -> Callable[[State], Decision]:
        def decide(state: State) -> Decision:
            names = {
                view.job.name: position for position, view in enumerate(state.jobs)
            }
            if state.time_ns == START:
                return Decision.placed(
                    {names["a"]: (0, 1)}, wake_ns=START + 100 * SECOND
                )
            if "b" in names:
                started = bool(state.jobs[names["b"]].units)
                return (
                    Decision.keep()
                    if started
                    else Decision.placed({names["a"]: (), names["b"]: (0, 1)})
                )
            return (
                Decision.placed({names["a"]: other})
                if not state.jobs[names["a"]].units
                else Decision.keep()
            )

        return decide

    rules = Rules(restart_overhead=((9, 30.0),), restart_overlap=overlap)
    jobs = [rigid_job("a"), rigid_job("b", seconds=300)]
    for other, waits in (((0, 1), 30 * (1 - overlap)), ((1, 2), 30), ((2, 3), 30)):
        outcome = clustered(
            2, 2, jobs, Scripted(answer(other), traits=Traits(migrates=True)), rules
        )
        assert finish_s(outcome, 1) == 400
        assert finish_s(outcome, 0) == pytest.approx(400 + waits + 900)
        assert outcome.records[0].lost_to_restart == pytest.approx(waits)


def test_no_restart_overlaps_with_the_job_itself() -> None:
    """At 300 s a loses b, and restarts at once on its own unit and on one that another job leaves then."""
    rows = [(0, "abc", 1), (300, "b", 0)]
    jobs = [rigid_job("a"), rigid_job("b", units=1, seconds=300)]
    rules = Rules(
        restart_overhead=((9, 30.0),), restart_overlap=1.0, checkpoint_interval_s=0
    )
    outcome = replayed(
        rows, 5000, jobs, Scripted(start_all, traits=Traits(rigid=True)), rules
    )
    assert [finish_s(outcome, 0), finish_s(outcome, 1)] == [300 + 30 + 700, 300]


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_two_spread_jobs_slow_each_other_down_where_they_meet(share: float) -> None:
    """a on nodes 0 and 1, b on 1 and 2 until it ends, c beside them on node 2 alone: c is never slowed."""
    placement = {0: (0, 2), 1: (3, 4), 2: (5,)}
    jobs = [rigid_job("a"), rigid_job("b", seconds=300), rigid_job("c", units=1)]
    policy = Scripted(
        lambda s: Decision.placed(placement if s.time_ns == START else {})
    )
    outcome = clustered(3, 2, jobs, policy, Rules(network_interference=share))
    together = 300 / (1 - share)
    assert finish_s(outcome, 1) == pytest.approx(together)
    assert finish_s(outcome, 0) == pytest.approx(together + 1000 - 300)
    assert finish_s(outcome, 2) == 1000
    # On other nodes, or on one, they do not meet.
    for apart in ({0: (0, 2), 1: (4, 6), 2: (5,)}, {0: (0, 2), 1: (4, 5), 2: (3,)}):
        policy = Scripted(
            lambda s, apart=apart: Decision.placed(apart if s.time_ns == START else {})
        )
        outcome = clustered(4, 2, jobs, policy, Rules(network_interference=share))
        assert [finish_s(outcome, job) for job in range(3)] == [1000, 300, 1000]


def test_units_pass_from_one_job_to_another_in_one_decision() -> None:
    def swap(state: State) -> Decision:
        if state.time_ns == START:
            return Decision.placed({0: (0, 1), 1: (2, 3)}, wake_ns=START + 100 * SECOND)
        return Decision.placed(
            {0: (3, 2), 1: (0, 1)} if state.jobs[0].held == (0, 1) else {}
        )

    outcome = clustered(
        2,
        2,
        [rigid_job("a"), rigid_job("b")],
        Scripted(swap, traits=Traits(migrates=True)),
    )
    assert finish_s(outcome, 0) == finish_s(outcome, 1) == 1000


@pytest.mark.parametrize(
    ("placement", "told"),
    [
        ({0: (0, 0)}, "twice"),
        ({0: (0, 9)}, "not idle"),
        ({0: (-1, 0)}, "not idle"),
        ({5: (0, 1)}, "placed job 5"),
        ({0: (0, 1, 2)}, "outside 0 and"),
        ({0: (0, 1), 1: (0, 1), 2: (0, 1)}, "3 jobs"),
        ({0: (0, 1), 1: (0, 1)}, "no xi allows"),
    ],
)
def test_a_placement_that_cannot_be_is_refused_by_the_policys_name(
    placement: Placement, told: str
) -> None:
    jobs = [rigid_job(name) for name in "abc"]
    with pytest.raises(PolicyError, match=f"'scripted' was stopped.*{told}"):
        clustered(2, 2, jobs, Scripted(lambda state: Decision.placed(placement)))


def test_a_rigid_policy_may_not_change_the_size_of_a_running_job() -> None:
    def grow(state: State) -> Decision:
        return Decision(
            (min(3, state.jobs[0].units + 1),), wake_ns=state.time_ns + SECOND
        )

    with pytest.raises(PolicyError, match="rigid"):
        clustered(1, 4, [make()], Scripted(grow, traits=Traits(rigid=True)))


def test_only_a_clairvoyant_policy_sees_progress() -> None:
    for clairvoyant in (False, True):
        policy = Scripted(
            lambda s: start_all(s).waking(s.time_ns + 400 * SECOND),
            traits=Traits(clairvoyant=clairvoyant),
        )
        clustered(1, 2, [rigid_job()], policy)
        seen = [state.jobs[0].progress for state in policy.seen]
        assert (
            seen == [0, 400, 800] if clairvoyant else all(math.isnan(p) for p in seen)
        )


def test_a_view_shows_the_work_and_service_of_a_job() -> None:
    policy = Scripted(lambda s: start_all(s).waking(s.time_ns + 400 * SECOND))
    clustered(1, 2, [rigid_job()], policy)
    last = policy.seen[-1].jobs[0]
    assert (last.executed_s, last.unit_seconds, last.starts, last.rescales) == (
        800,
        1600,
        1,
        0,
    )
    assert (last.started_ns, last.since_ns, last.held) == (START, START, (0, 1))


def test_a_policy_is_informed_once_of_a_finish_without_other_jobs() -> None:
    policy = Scripted(start_all)
    clustered(
        1,
        2,
        [
            rigid_job("a", 2, 100),
            rigid_job("b", 1, 50, at=500),
            rigid_job("c", 1, 50, at=510),
        ],
        policy,
    )
    told = [
        [(view.job.name, view.executed_s, view.unit_seconds) for view in state.finished]
        for state in policy.seen
    ]
    assert told == [[], [("a", 100, 200)], [], [("b", 50, 50)]]


def test_a_policy_is_informed_of_a_finish_without_idle_units() -> None:
    jobs = [rigid_job("done", 1, 10), rigid_job("waits", 1, 100)]
    policy = Scripted(start_all)
    replayed([(0, "a", 1), (10, "a", 0), (20, "a", 1), (30, "b", 1)], 60, jobs, policy)
    finished = {
        (s.time_ns - START) / SECOND: [view.job.name for view in s.finished]
        for s in policy.seen
    }
    assert finished == {0: [], 20: ["done"], 30: []}


def test_a_view_shows_when_a_leave_changed_its_units() -> None:
    policy = Scripted(
        lambda state: Decision(
            tuple(view.units or min(2, state.idle) for view in state.jobs)
        )
    )
    replayed(
        [(0, "ab", 1), (10, "b", 0), (20, "c", 1)], 30, [make(rates=[0, 1, 1])], policy
    )
    since = [view.since_ns for state in policy.seen for view in state.jobs]
    assert since == [None, START + 10 * SECOND, START + 10 * SECOND]


@pytest.mark.parametrize(
    ("leave", "overhead", "work"),
    [
        (470, 0, 130 + 120 / 4 + 150),  # the checkpoint of 400 s
        (230, 0, 130 + 70 / 4),  # that of 200 s, at a quarter of the rate
        (199, 0, 100),  # that of 100 s, at the rate before
        (
            470,
            50,
            80 + 170 / 4 + 100,
        ),  # the grid begins with the start, not with the first progress
        (149, 120, 0),
    ],
)
def test_the_grid_of_checkpoints_begins_with_the_run_whatever_its_rates(
    leave: float, overhead: float, work: float
) -> None:
    """From 130 s on a partner with 60 samples at half its rate slows the job down to a quarter."""
    jobs = [
        replace(make("a", [0, 1], pmax=9999), model="a"),
        replace(make("b", [0, 1], pmax=60, at=130), model="b"),
    ]
    table = xi_from_frame(
        pd.DataFrame([{"model_a": "a", "model_b": "b", "xi_a": 4.0, "xi_b": 2.0}])
    )

    def start(state: State) -> Decision:
        return Decision.placed(
            {at: (0,) for at, view in enumerate(state.jobs) if not view.units}
        )

    policy = Scripted(start, traits=Traits(rigid=True, shares=True))
    rules = Rules(checkpoint_interval_s=100, start_overhead_s=overhead)
    trace = world([(0, "a", 1), (leave, "a", 0)], 5000)
    record = (
        Replay(trace, JobTable(tuple(jobs)), policy, rules, Interference(table))
        .run()
        .records[0]
    )
    assert record.work == pytest.approx(work)


def test_a_job_may_share_with_several_partners_and_runs_at_the_slowest_rate() -> None:
    import pandas as pd

    rows = [("m", "a", 1.0, 2.0), ("m", "b", 1.0, 4.0), ("a", "b", 1.0, 1.0)]
    table = xi_from_frame(
        pd.DataFrame(rows, columns=["model_a", "model_b", "xi_b", "xi_a"])
    )
    jobs = [replace(rigid_job(n, 2, 100), model=n) for n in "ab"] + [
        replace(rigid_job("m", 4, 100), model="m")
    ]
    policy = Scripted(
        lambda s: Decision.placed(
            {0: (0, 1), 1: (2, 3), 2: (0, 1, 2, 3)} if s.time_ns == START else {}
        )
    )
    outcome = clustered(1, 4, jobs, policy, interference=Interference(table))
    assert finish_s(outcome, 0) == finish_s(outcome, 1) == 100
    assert finish_s(outcome, 2) == pytest.approx(100 + 75)
    assert policy.seen[1].jobs[0].partners == ()


def test_a_spread_placement_slows_a_job_down_that_minds() -> None:
    cases = ((1.5, (0, 2), 1500), (1.5, (0, 1), 1000), (1.0, (0, 2), 1000))
    fewest = (1.5, (0, 1, 2), 1000)  # three units need two nodes
    for slowdown, spread, expected in (*cases, fewest):
        job = replace(rigid_job(units=len(spread)), spread_slowdown=slowdown)
        outcome = clustered(
            2, 2, [job], Scripted(lambda s, spread=spread: Decision.placed({0: spread}))
        )
        assert finish_s(outcome) == expected


class Steps:
    """Dynamics with a rate that doubles after 100 s."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], float, int]] = []

    def rate(
        self,
        placement: tuple[int, ...],
        progress: float,
        now_ns: int,
        slowdown: float = 1.0,
    ) -> tuple[float, int | None]:
        assert slowdown == 1.0
        self.asked.append((placement, progress, now_ns))
        later = START + 110 * SECOND
        return (1.0, later) if now_ns < later else (2.0, None)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass


class StepsProfile:
    def __init__(self) -> None:
        self.started: list[Steps] = []

    def start(self, *, tunes: bool) -> Steps:
        self.started.append(Steps())
        return self.started[-1]


def test_a_rate_that_changes_by_itself_triggers_no_decision() -> None:
    profile = StepsProfile()
    job = replace(rigid_job(), profile=profile)
    policy = Scripted(start_all)
    outcome = clustered(2, 2, [job], policy, Rules(start_overhead_s=10))
    assert finish_s(outcome) == 10 + 100 + 450
    assert len(policy.seen) == 1
    # At the decision: from the end of the stall on; then when it said.
    asked = profile.started[0].asked
    assert {(p, now) for p, _, now in asked} == {
        ((2,), START + 10 * SECOND),
        ((2,), START + 110 * SECOND),
    }
    assert asked[-1][1] == pytest.approx(100)


@st.composite
def shrinking_worlds(draw: st.DrawFn) -> tuple[Rows, list[Job], Rules]:
    rows: list[tuple[float, str, int]] = [(0.0, "abcd", 1)]
    now = 0.0
    idle = set("abcd")
    for _ in range(draw(st.integers(0, 12))):
        now += draw(st.integers(1, 400))
        node = draw(st.sampled_from("abcd"))
        rows.append((now, node, int(node not in idle)))
        idle ^= {node}
    jobs = [
        rigid_job(
            f"j{k}",
            draw(st.integers(1, 4)),
            draw(st.integers(1, 900)),
            at=draw(st.integers(0, 500)),
        )
        for k in range(draw(st.integers(1, 5)))
    ]
    rules = Rules(
        checkpoint_interval_s=draw(st.sampled_from([0.0, 7.0, 100.0, 600.0])),
        start_overhead_s=draw(st.sampled_from([0.0, 5.0])),
        restart_overhead=draw(st.sampled_from([(), ((2, 11.0), (4, 30.0))])),
        max_jobs=draw(st.integers(0, 3)),
        cost_model=draw(st.sampled_from(["bftrainer", "stall"])),
    )
    return rows, jobs, rules


@given(shrinking_worlds(), st.sampled_from([1, 2]))
def test_rigid_jobs_on_a_shrinking_pool_keep_their_books_and_their_size(
    drawn: tuple[Rows, list[Job], Rules], per: int
) -> None:
    rows, jobs, rules = drawn
    policy = Scripted(start_all, traits=Traits(rigid=True))
    outcome = replayed(rows, 20_000, jobs, policy, rules, units_per_node=per)
    for record in outcome.records:
        assert 0 <= record.work <= record.job.pmax
        assert record.gained - record.lost == pytest.approx(record.work, abs=1e-6)
        # What a stop costs is never more than what a checkpoint interval holds.
        assert (
            record.lost_to_preemption
            <= record.preemptions * rules.checkpoint_interval_s + 1e-6
        )
    for state in policy.seen:
        assert all(view.units in (0, view.job.request) for view in state.jobs)


@given(shrinking_worlds())
def test_a_replay_saved_between_any_two_steps_ends_the_same(
    drawn: tuple[Rows, list[Job], Rules],
) -> None:
    rows, jobs, rules = drawn
    trace, table = world(rows, 20_000), JobTable(tuple(jobs))
    whole = Replay(
        trace, table, Scripted(start_all, traits=Traits(rigid=True)), rules
    ).run()
    steps = 0

    def enough() -> bool:
        nonlocal steps
        steps += 1
        return steps > 5

    half = Replay(trace, table, Scripted(start_all, traits=Traits(rigid=True)), rules)
    states: list[Saved] = []

    def stop() -> bool:
        stopping = enough()
        if stopping:
            states.append(saved(half))
        return stopping

    half.run(should_stop=stop)
    if not states:
        return
    resumed = Replay(
        trace, table, Scripted(start_all, traits=Traits(rigid=True)), rules
    )
    resume(resumed, states[0])
    assert resumed.run().steps.equals(whole.steps)
