"""Sharing units by ξ: the closed forms of two jobs, the choice of partners, and forbidden decisions."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from test_engine import SECOND, START, Rows, make, world

from bft import milp
from bft.models import Job, JobTable, UnitMemory, xi_from_frame
from bft.replay.cli.main import run
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Interference, Rules
from bft.replay.policies import (
    Decision,
    JobView,
    MilpSharingPolicy,
    Policy,
    State,
    Traits,
    milp_sharing,
)
from bft.replay.policies.milp import measured_first
from bft.replay.policies.sharing import (
    SharedPlaces,
    SjfBestSharing,
    SrtfAllShared,
    SrtfWiselyShared,
    pays,
    together_s,
)
from bft.replay.policies.shortest import ShortestFirst, ShortestRemainingFirst
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import always_idle

Ratios = Mapping[tuple[str, str], tuple[float, float]]

SECONDS = st.floats(0.01, 1e6)
XI = st.floats(1.0, 4.0)
SHARING = (SrtfAllShared, SrtfWiselyShared, SjfBestSharing)
CLUSTER = Rules(max_jobs=0)


def known(ratios: Ratios, **given: Any) -> Interference:
    rows = [(a, b, xi_a, xi_b) for (a, b), (xi_a, xi_b) in ratios.items()]
    return Interference(
        xi_from_frame(
            pd.DataFrame(rows, columns=["model_a", "model_b", "xi_a", "xi_b"])
        ),
        **given,
    )


def rigid(
    name: str,
    units: int,
    seconds: float,
    *,
    at: float = 0.0,
    model: str = "a",
    **given: Any,
) -> Job:
    one = make(name, [0.0] * units + [1.0], pmax=seconds, jmin=units, at=at)
    return replace(one, model=model, **given)


def clustered(
    nodes: int,
    per: int,
    jobs: Sequence[Job],
    policy: Policy,
    between: Interference | None,
    rules: Rules = CLUSTER,
) -> Outcome:
    trace = always_idle(nodes, START, START + 10**7 * SECOND, units_per_node=per)
    return Replay(trace, JobTable(tuple(jobs)), policy, rules, between).run()


def finishes(outcome: Outcome) -> list[float]:
    return [
        (record.finish_ns - START) / SECOND if record.finish_ns else math.inf
        for record in outcome.records
    ]


def mean_jct(outcome: Outcome) -> float:
    times = [
        finish - (record.job.tsub_ns - START) / SECOND
        for record, finish in zip(outcome.records, finishes(outcome), strict=True)
    ]
    return sum(times) / len(times)


# --- whom the MILP considers ------------------------------------------------------------------------------------------


def considered(
    ratios: Ratios, xi_partners: int, *, now: tuple[int, int] | None = None
) -> list[tuple[str, str, int]]:
    """Pairs of the models, in alphabetical order, that may share, and how many units they share."""
    models = sorted({model for pair in ratios for model in pair})
    views = [JobView(rigid(model, 1, 10.0, model=model), 0, 0.0) for model in models]
    if now:
        for one, other in (now, now[::-1]):
            views[one] = replace(views[one], units=2, partners=((other, 2),))
    policy = MilpSharingPolicy(
        120.0, interference=known(ratios), xi_partners=xi_partners
    )
    return [
        (models[pair.a], models[pair.b], pair.shared)
        for pair in policy.pairs(State(0, 9, tuple(views)))
    ]


FOUR = {
    ("a", "b"): (1.9, 1.9),
    ("a", "c"): (1.0, 2.0),
    ("a", "d"): (1.4, 1.4),
    ("b", "c"): (1.5, 1.5),
}


def test_the_milp_considers_the_pairs_that_do_most_together_first() -> None:
    """By 1/xi_a + 1/xi_b: a with c 1.5, a with d 1.43, b with c 1.33, a with b 1.05; xi_a + xi_b would put d first."""
    assert considered(FOUR, 1) == [("a", "c", 0)]
    assert considered(FOUR, 2) == [("a", "c", 0), ("a", "d", 0), ("b", "c", 0)]
    assert considered(FOUR, 3) == [
        ("a", "b", 0),
        ("a", "c", 0),
        ("a", "d", 0),
        ("b", "c", 0),
    ]


def test_both_jobs_of_a_pair_must_have_room_for_a_partner() -> None:
    """The centre of the star is the best partner of all three: it takes two, the third has no partner."""
    star = {("a", "z"): (1.1, 1.1), ("b", "z"): (1.2, 1.2), ("c", "z"): (1.3, 1.3)}
    assert considered(star, 2) == [("a", "z", 0), ("b", "z", 0)]


def test_present_partners_are_considered_first_however_bad_they_are() -> None:
    assert considered(FOUR, 1, now=(0, 1)) == [("a", "b", 2)]
    assert considered(FOUR, 2, now=(0, 1)) == [
        ("a", "b", 2),
        ("a", "c", 0),
        ("b", "c", 0),
    ]


CROWD = {
    ("a", "a"): (1.2, 1.2),
    ("a", "b"): (1.3, 1.4),
    ("b", "b"): (1.5, 1.5),
    ("a", "c"): (1.1, 1.1),
}


def crowd(each: int, **given: Any) -> tuple[MilpSharingPolicy, State]:
    """One job `c` on a unit, and as many of `a` and of `b` in turn that wait."""
    views = [JobView(rigid("c", 1, 10.0, model="c"), 1, 0.0, held=(0,))]
    views += [
        JobView(rigid(f"{m}{n}", 1, 10.0, model=m), 0, 0.0)
        for n in range(each)
        for m in "ab"
    ]
    return MilpSharingPolicy(120.0, interference=known(CROWD, **given)), State(
        0, 9, tuple(views)
    )


def test_many_that_wait_alike_are_groups_that_count_as_one_partner() -> None:
    policy, state = crowd(30)
    posed = policy.problem(state)
    assert posed.alike == (tuple(range(1, 61, 2)), tuple(range(2, 61, 2)))
    assert [(pair.a, pair.b) for pair in posed.pairs] == [
        (0, 1),
        (1, 2),
        (1, 3),
        (2, 4),
    ]
    assert posed.pair_of(0, 7) == replace(posed.pairs[0], b=7)
    ratios = [
        (pair.xi_a, pair.xi_b)
        for pair in (posed.pair_of(4, 7), posed.pair_of(3, 8))
        if pair
    ]
    assert ratios == [(1.4, 1.3), (1.3, 1.4)]


def test_few_jobs_and_those_whose_order_matters_are_posed_one_by_one() -> None:
    assert crowd(19)[0].problem(crowd(19)[1]).alike == ()
    policy, state = crowd(30, memory=UnitMemory([]), unit_memory_gib=16.0)
    assert policy.problem(state).alike == ()


def test_many_that_wait_can_be_measured_one_by_one() -> None:
    policy, state = crowd(30)
    counts = replace(policy, curves="profile").decide(state).counts
    # Measurements come first: all nine units are at work.
    assert sum(counts) == 9
    assert max(counts) == 1


@pytest.mark.parametrize("cost_model", ["bftrainer", "stall"])
def test_groups_decide_as_well_as_all_jobs_one_by_one(cost_model: Any) -> None:
    policy, state = crowd(21)
    policy.cost_model = cost_model
    in_groups = policy.decide(state)
    one_by_one = replace(policy, xi_partners=50)
    with patch.object(milp_sharing, "FEW", 100):
        posed = one_by_one.problem(state)
    assert not posed.alike
    assert in_groups.solution is not None
    assert in_groups.solution.objective == pytest.approx(
        one_by_one.solver.solve(posed).objective, rel=1e-9
    )


# --- two jobs ---------------------------------------------------------------------------------------------------------


@dataclass
class JoinAt:
    """The second of two jobs joins the first on its unit after a delay, or starts when that has finished."""

    delay_s: float
    name: str = "join-at"

    def decide(self, state: State) -> Decision:
        at_ns = START + round(self.delay_s * SECOND)
        placement = {at: (0,) for at, view in enumerate(state.jobs) if not view.units}
        if len(state.jobs) == 2 and state.time_ns < at_ns:
            placement.pop(1)
            return Decision.placed(placement, wake_ns=at_ns)
        return Decision.placed(placement)


def replayed_mean_s(
    newcomer_s: float,
    running_s: float,
    xi_new: float,
    xi_run: float,
    delay_s: float = 0.0,
) -> float:
    jobs = [rigid("b", 1, running_s, model="b"), rigid("a", 1, newcomer_s, model="a")]
    return mean_jct(
        clustered(1, 1, jobs, JoinAt(delay_s), known({("a", "b"): (xi_new, xi_run)}))
    )


@examples(40)
@given(st.floats(1, 1e4), st.floats(1, 1e4), XI, XI)
def test_the_closed_form_is_what_the_engine_does_with_two_jobs(
    a_s: float, b_s: float, xi_a: float, xi_b: float
) -> None:
    assert together_s(a_s, b_s, xi_a, xi_b) == pytest.approx(
        replayed_mean_s(a_s, b_s, xi_a, xi_b), abs=1e-8, rel=1e-12
    )
    assert in_turn_s(a_s, b_s) == pytest.approx(
        replayed_mean_s(a_s, b_s, xi_a, xi_b, delay_s=1e6), abs=1e-8, rel=1e-12
    )


def in_turn_s(newcomer_s: float, running_s: float) -> float:
    """Mean completion time when the newcomer starts once the running job has finished (T_seq)."""
    return running_s + newcomer_s / 2


def integrated_s(
    a_s: float, b_s: float, xi_a: float, xi_b: float, delay_s: float
) -> float:
    """Mean completion time if a starts sharing after a delay, computed interval by interval."""
    now, left = 0.0, {"a": a_s, "b": b_s}
    pace = {"a": xi_a, "b": xi_b}
    ends = {}
    while left:
        sharing = len(left) == 2 and now >= delay_s
        active = ["b"] if len(left) == 2 and not sharing else list(left)
        rate = {job: 1 / pace[job] if sharing else 1.0 for job in active}
        step = min(left[job] / rate[job] for job in active)
        if len(left) == 2 and not sharing:
            step = min(step, delay_s - now)
        now += step
        for job in active:
            left[job] -= rate[job] * step
            if left[job] <= 1e-9:
                ends[job] = now
                del left[job]
    return (ends["a"] + ends["b"]) / 2


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3), XI, XI)
def test_a_later_start_of_sharing_never_beats_both_now_and_in_turn(
    a_s: float, b_s: float, xi_a: float, xi_b: float
) -> None:
    now, turn = together_s(a_s, b_s, xi_a, xi_b), in_turn_s(a_s, b_s)
    assert integrated_s(a_s, b_s, xi_a, xi_b, 0.0) == pytest.approx(now, rel=1e-6)
    delayed = [
        integrated_s(a_s, b_s, xi_a, xi_b, share * b_s)
        for share in np.linspace(0, 1, 41)
    ]
    assert delayed[-1] == pytest.approx(turn, rel=1e-6)
    assert min(delayed) >= min(now, turn) * (1 - 1e-6)
    bends = np.diff(delayed, 2)
    assert bends.max() <= 1e-6 * max(delayed)  # concave


@given(SECONDS, SECONDS, XI, XI)
def test_pays_is_the_comparison_of_both_means(
    a_s: float, b_s: float, xi_a: float, xi_b: float
) -> None:
    now, turn = together_s(a_s, b_s, xi_a, xi_b), in_turn_s(a_s, b_s)
    assume(abs(now - turn) > 1e-9 * turn)
    assert pays(a_s, b_s, xi_a, xi_b) == (now < turn)


LATER = st.floats(1.0 + 1e-9, 1e3)


@given(SECONDS, SECONDS, LATER, LATER, XI, XI)
def test_where_the_running_job_ends_first_lengths_do_not_matter(
    b_s: float,
    other_b_s: float,
    later: float,
    other_later: float,
    xi_a: float,
    xi_b: float,
) -> None:
    a_s, other_a_s = later * xi_b * b_s / xi_a, other_later * xi_b * other_b_s / xi_a
    assert (
        pays(a_s, b_s, xi_a, xi_b)
        == pays(other_a_s, other_b_s, xi_a, xi_b)
        == (xi_b * (1 - 1 / (2 * xi_a)) < 1)
    )


@given(SECONDS, st.floats(1.0, 100.0), XI)
def test_at_equal_ratios_joining_a_shorter_job_pays_below_one_and_a_half(
    b_s: float, longer: float, xi: float
) -> None:
    assume(abs(xi - 1.5) > 1e-9)
    assert pays(b_s * longer, b_s, xi, xi) == (xi < 1.5)
    assert pays(b_s * 1e-6, b_s, xi, xi)  # the shortest of jobs may join anything


@given(SECONDS, SECONDS, SECONDS, XI, XI)
def test_whom_a_job_may_not_join_a_longer_one_may_not_either(
    a_s: float, more_s: float, b_s: float, xi_a: float, xi_b: float
) -> None:
    if not pays(a_s, b_s, xi_a, xi_b):
        assert not pays((a_s + more_s) * (1 + 1e-9), b_s, xi_a, xi_b)


def test_at_the_bounds() -> None:
    assert together_s(5, 7, 1, 1) == pytest.approx(
        6
    )  # no interference: each as if alone
    assert together_s(10, 10, 2, 2) == pytest.approx(
        20
    )  # both at half speed end together
    speed = SrtfWiselyShared(helps="speed")
    assert speed.worth((1, 1), (2, 2)) is None
    assert pays(1, math.inf, 1.5, 1.5)
    assert not pays(math.inf, 1, 1.5, 1.5)


# --- which units ------------------------------------------------------------------------------------------------------


def test_free_units_come_first_then_the_best_hosts_and_as_few_as_suffice() -> None:
    room = SharedPlaces([9, 8])
    room.open(0, (1, 2))
    room.open(1, (3, 4))
    room.open(2, (5,))
    assert room.find(2, [1, 0]) == (9, 8)
    assert room.find(3, [1, 0, 2]) == (9, 8, 3)
    assert room.find(5, [2, 0]) == (9, 8, 5, 1, 2)
    assert room.find(6, [2, 0]) is None
    assert room.take((9, 3)) == {3: 1}
    assert room.find(3, [1, 0]) == (8, 4, 1)
    room.close(0)
    assert room.find(3, [1, 2]) == (8, 4, 5)
    assert len(room) == 3
    assert list(room.hosts()) == [1, 2]


def test_a_newcomer_is_consolidated_beside_others_too() -> None:
    room = SharedPlaces([0, 4, 5], units_per_node=4)  # nodes 0-3, 4-7
    room.open(0, (1, 2))
    room.open(1, (6, 7))
    assert room.find(2, [0, 1]) == (4, 5)
    assert room.find(3, [0, 1]) == (0, 1, 2)
    assert room.find(3, [1, 0]) == (4, 5, 6)
    assert room.find(4, [0]) is None
    assert room.find(4, [0], spread=True) is not None
    assert room.find(4, [0, 1]) == (4, 5, 6, 7)
    assert room.find(8, [0, 1]) is None


# --- three policies by hand -------------------------------------------------------------------------------------------

MILD = known({("a", "a"): (1.25, 1.25)})
HARSH = known({("a", "a"): (1.75, 1.75)})


def test_who_finds_free_units_shares_with_nobody() -> None:
    jobs = [rigid("j0", 1, 100), rigid("j1", 1, 100)]
    for policy in SHARING:
        assert finishes(clustered(2, 1, jobs, policy(interference=MILD), MILD)) == [
            100,
            100,
        ]


def test_two_jobs_share_one_unit_where_it_pays_and_always_under_ars() -> None:
    jobs = [rigid("j0", 1, 100), rigid("j1", 1, 200)]
    for policy in SHARING:
        assert finishes(clustered(1, 1, jobs, policy(interference=MILD), MILD)) == [
            125,
            225,
        ]
    assert finishes(
        clustered(1, 1, jobs, SrtfAllShared(interference=HARSH), HARSH)
    ) == [175, 275]
    for policy in (SrtfWiselyShared, SjfBestSharing):
        assert finishes(clustered(1, 1, jobs, policy(interference=HARSH), HARSH)) == [
            100,
            300,
        ]
    by_speed = SrtfWiselyShared(interference=HARSH, helps="speed")
    assert finishes(clustered(1, 1, jobs, by_speed, HARSH)) == [175, 275]


def test_sharing_policies_ask_for_the_ratio_on_the_units_of_the_job() -> None:
    rows = [("a", "a", 1.1, 1.1, 1), ("a", "a", 1.8, 1.8, 8)]
    columns = ["model_a", "model_b", "xi_a", "xi_b", "units"]
    between = Interference(xi_from_frame(pd.DataFrame(rows, columns=columns)))
    for units, shared in ((1, True), (8, False)):
        jobs = [rigid("j0", units, 100), rigid("j1", units, 100)]
        for policy in (SrtfWiselyShared, SjfBestSharing):
            expected = [pytest.approx(110)] * 2 if shared else [100, 200]
            assert (
                finishes(
                    clustered(units, 1, jobs, policy(interference=between), between)
                )
                == expected
            )
    # Who may not share on one unit may on more: the walk must not take one for the other.
    rows = [("a", "a", 9.0, 9.0, 1), ("a", "a", 1.1, 1.1, 2)]
    between = Interference(xi_from_frame(pd.DataFrame(rows, columns=columns)))
    jobs = [rigid("host", 2, 100), rigid("one", 1, 100), rigid("two", 2, 100)]
    outcome = clustered(2, 1, jobs, SjfBestSharing(interference=between), between)
    assert finishes(outcome)[2] == pytest.approx(110)


def test_a_third_job_waits() -> None:
    jobs = [rigid("j0", 1, 100), rigid("j1", 1, 200), rigid("j2", 1, 300)]
    for policy in SHARING:
        # At 125 the third joins the second, which has 100 s left; at 250 that is done.
        assert finishes(clustered(1, 1, jobs, policy(interference=MILD), MILD)) == [
            125,
            250,
            450,
        ]


def test_a_preempted_job_stays_beside_the_newcomer_where_that_helps() -> None:
    jobs = [rigid("long", 2, 1000), rigid("short", 1, 100, at=50)]
    mild = clustered(2, 1, jobs, SrtfWiselyShared(interference=MILD), MILD)
    assert finishes(mild) == [1025, 175]
    assert mild.records[0].starts == 1
    harsh = clustered(2, 1, jobs, SrtfWiselyShared(interference=HARSH), HARSH)
    assert finishes(harsh) == [1100, 150]
    assert harsh.records[0].starts == 2
    # A short newcomer beside a long job does pay, though no preemption would be possible.
    assert finishes(clustered(2, 1, jobs, SjfBestSharing(interference=HARSH), HARSH))[
        1
    ] == pytest.approx(50 + 175)


def test_a_newcomer_may_sit_on_several_jobs_and_each_takes_one() -> None:
    jobs = [
        rigid("j0", 1, 100),
        rigid("j1", 1, 100),
        rigid("wide", 2, 100, at=10),
        rigid("late", 1, 300, at=20),
    ]
    for policy in (SrtfAllShared, SrtfWiselyShared):
        seen = Watched(policy(interference=MILD), MILD)
        outcome = clustered(2, 1, jobs, seen, MILD)
        assert (
            max(len(view.partners) for state in seen.states for view in state.jobs) == 2
        )
        assert outcome.records[3].start_ns == START + round(
            finishes(outcome)[0] * SECOND
        )


def test_wrs_takes_the_best_partner_by_what_helps() -> None:
    between = known({("a", "b"): (1.1, 1.1), ("a", "c"): (1.3, 1.3)})
    jobs = [
        rigid("b", 1, 1000, model="b"),
        rigid("c", 1, 200, model="c"),
        rigid("a", 1, 2000, at=10),
    ]
    for helps, best in (("completion", 1), ("speed", 0)):
        seen = Watched(SrtfWiselyShared(interference=between, helps=helps), between)  # type: ignore[arg-type]
        clustered(2, 1, jobs, seen, between)
        assert seen.placements[1] == {2: seen.states[1].jobs[best].held}


def test_who_gave_way_starts_elsewhere_at_once() -> None:
    jobs = [
        rigid("gone", 1, 10),
        rigid("v", 1, 500),
        rigid("w", 1, 900),
        rigid("new", 2, 50, at=20),
    ]
    for policy in (SrtfAllShared, SrtfWiselyShared):
        for between in (
            None,
            HARSH if policy is SrtfWiselyShared else known({("b", "b"): (1.0, 1.0)}),
        ):
            outcome = clustered(2, 2, jobs, policy(interference=between), between)
            assert finishes(outcome) == pytest.approx([10, 500, 900, 70])
            assert outcome.records[2].starts == 2


def test_a_running_job_that_takes_a_newcomer_lets_go_of_its_partner() -> None:
    """`guest` is on one of the units of `wide` when `short` takes the other: only one of them can be beside it."""
    jobs = [
        rigid("wide", 2, 500),
        rigid("guest", 1, 900, at=1),
        rigid("short", 1, 50, at=20),
    ]
    seen = Watched(SrtfAllShared(interference=MILD), MILD)
    clustered(2, 1, jobs, seen, MILD)
    assert seen.placements[:3] == [{0: (0, 1)}, {1: (0,)}, {2: (1,), 1: ()}]


def test_bsbf_takes_the_partners_with_the_least_mean_completion_time() -> None:
    between = known({("a", "b"): (1.1, 1.1), ("a", "c"): (1.3, 1.3)})
    jobs = [
        rigid("b", 1, 1000, model="b"),
        rigid("c", 1, 200, model="c"),
        rigid("a", 1, 500, at=10),
    ]
    seen = Watched(SjfBestSharing(interference=between), between)
    clustered(2, 1, jobs, seen, between)
    # 0.5 · 500 + (1 - 1 / 2.6) · 1.3 · 190 = 402 beside c; 0.5 · 990 + (1 - 1 / 2.2) · 1.1 · 500 = 795 beside b.
    assert [partner for partner, _ in seen.states[1].jobs[2].partners] == []
    assert seen.placements[1] == {2: seen.states[1].jobs[1].held}


def test_bsbf_lets_a_wide_job_have_several_newcomers_and_counts_its_present_pace() -> (
    None
):
    between = known({("a", "b"): (1.2, 1.9)})
    wide, long = rigid("wide", 2, 100, model="b"), rigid("long", 1, 2000, at=2.0)
    seen = Watched(SjfBestSharing(interference=between), between)
    clustered(2, 1, [wide, long], seen, between)
    assert seen.placements[1] == {}  # 1.9 · (1 - 1 / 2.4) > 1
    seen = Watched(SjfBestSharing(interference=between), between)
    clustered(2, 1, [wide, rigid("short", 1, 10, at=1.0), long], seen, between)
    assert seen.placements[1] == {1: (0,)}  # a short one may join
    assert seen.placements[2] == {
        2: (1,)
    }  # and slows `wide` down: one more costs that nothing


def test_consolidated_jobs_do_not_straddle_nodes_to_share() -> None:
    jobs = [
        rigid("j0", 2, 100),
        rigid("j1", 2, 100),
        rigid("j2", 2, 100),
        rigid("new", 4, 500, at=10),
    ]
    for policy in SHARING:
        seen = Watched(policy(interference=MILD), MILD)
        clustered(2, 4, jobs, seen, MILD)
        placed = next(
            placement[3] for state, placement in seen.steps() if 3 in placement
        )
        assert len({unit // 4 for unit in placed}) == 1


def test_memory_and_forbidden_pairs_are_respected() -> None:
    small, large = {"memory_gib": 4.0}, {"memory_gib": 12.0}
    for given_, shares in (
        (({"unit_memory_gib": 16.0}, small, large), True),
        (({"unit_memory_gib": 15.9}, small, large), False),
        (({"unit_memory_gib": 16.0}, {}, large), False),
        (({"forbidden": frozenset({frozenset({"a"})})}, small, large), False),
        (({"xi_max": 1.2}, small, large), False),
    ):
        options, first, second = given_
        between = known({("a", "a"): (1.25, 1.25)}, **options)
        jobs = [rigid("j0", 1, 100, **first), rigid("j1", 1, 200, **second)]
        for policy in SHARING:
            expected = [125, 225] if shares else [100, 300]
            assert (
                finishes(clustered(1, 1, jobs, policy(interference=between), between))
                == expected
            )


def test_a_unit_that_leaves_stops_both_and_they_come_back_together() -> None:
    rows: Rows = [(0, "a", 1), (700, "a", 0), (1000, "a", 1)]
    jobs = [rigid("j0", 1, 2000), rigid("j1", 1, 3000)]
    for policy in SHARING:
        trace = world(rows, 10_000)
        outcome = Replay(
            trace,
            JobTable(tuple(jobs)),
            policy(interference=MILD),
            Rules(max_jobs=0),
            MILD,
        ).run()
        # 600 s of 1.25 are saved: 480 samples each.
        assert finishes(outcome)[0] == pytest.approx(1000 + 1520 * 1.25)
        assert [record.preemptions for record in outcome.records] == [1, 1]


# --- smaller batches --------------------------------------------------------------------------------------------------

MEMORY = UnitMemory([("a", 16, 4.0), ("a", 32, 6.0), ("a", 64, 10.0), ("b", 64, 9.0)])


def test_the_job_submitted_later_shares_with_a_smaller_batch_at_the_price_of_its_goodput() -> (
    None
):
    first = rigid("first", 1, 100, model="b", batch_size=64, memory_gib=9.0)
    later = rigid("later", 1, 400, at=1.0, batch_size=64, memory_gib=10.0)
    ratios = {("a", "b"): (1.1, 1.3)}
    for gib, expected in (
        (19.0, (1.1, 1.3)),
        (15.0, (2.2, 1.3)),
        (13.0, None),
        (14.9, None),
    ):
        between = known(ratios, unit_memory_gib=gib, memory=MEMORY)
        assert between.xi(later, first) == (expected and pytest.approx(expected)), gib
        assert between.xi(first, later) == (
            expected and pytest.approx(expected[::-1])
        ), gib
        assert known(ratios, unit_memory_gib=gib).xi(later, first) == (
            (1.1, 1.3) if gib == 19 else None
        )
    lenient = known(
        ratios, unit_memory_gib=13.0, memory=MEMORY, sub_batch_threshold=0.25
    )
    assert lenient.xi(later, first) == pytest.approx((4.4, 1.3))
    never = known(ratios, unit_memory_gib=15.0, memory=MEMORY, sub_batch_threshold=1.0)
    assert never.xi(later, first) is None
    # Who it is depends on the submission alone; nobody knows what a smaller batch saves b.
    earlier = replace(later, tsub_ns=first.tsub_ns - 1)
    between = known(ratios, unit_memory_gib=15.0, memory=MEMORY)
    assert between.xi(later, first) is not None
    assert between.xi(earlier, first) is None
    assert between.xi(first, later) is not None


def test_a_replay_runs_a_pair_with_a_smaller_batch() -> None:
    between = known({("a", "b"): (1.0, 1.0)}, unit_memory_gib=15.0, memory=MEMORY)
    first = rigid("first", 1, 100, model="b", batch_size=64, memory_gib=9.0)
    later = rigid("later", 1, 400, batch_size=64, memory_gib=10.0, at=1.0)
    for policy in SHARING:
        outcome = clustered(1, 1, [first, later], policy(interference=between), between)
        assert finishes(outcome) == pytest.approx([100, 100 + 400 - 99 / 2])


# --- what holds in any world ------------------------------------------------------------------------------------------


@dataclass
class Watched:
    """A policy with a check of every decision."""

    policy: Any
    between: Interference | None
    states: list[State] = field(default_factory=list)
    placements: list[Mapping[int, tuple[int, ...]]] = field(default_factory=list)
    traits: Traits = Traits(rigid=True, clairvoyant=True)

    @property
    def name(self) -> str:
        return str(self.policy.name)

    def steps(self) -> list[tuple[State, Mapping[int, tuple[int, ...]]]]:
        return list(zip(self.states, self.placements, strict=True))

    def decide(self, state: State) -> Decision:
        decision: Decision = self.policy.decide(state)
        self.states.append(state)
        self.placements.append(dict(decision.placement or {}))
        self.check(state, decision.placement or {})
        return decision

    def check(self, state: State, placement: Mapping[int, tuple[int, ...]]) -> None:
        held = {at: placement.get(at, view.held) for at, view in enumerate(state.jobs)}
        holders: dict[int, list[int]] = {}
        for at, units in held.items():
            assert len(units) in (0, state.jobs[at].job.request)
            assert len(set(units)) == len(units)
            if placement.get(at):
                assert not state.jobs[at].units
            for unit in units:
                assert state.machine.is_idle(unit)
                holders.setdefault(unit, []).append(at)
        assert all(len(jobs) <= 2 for jobs in holders.values())
        pairs = {tuple(jobs) for jobs in holders.values() if len(jobs) == 2}
        partners = Counter(at for pair in pairs for at in pair)
        old = {
            (at, other)
            for at, view in enumerate(state.jobs)
            for other, _ in view.partners
        }
        for a, b in pairs:
            assert self.between is not None
            assert self.between.xi(state.jobs[a].job, state.jobs[b].job) is not None
            if not isinstance(self.policy, SjfBestSharing):
                # A newcomer on several jobs, each of which has it alone.
                assert min(partners[a], partners[b]) == 1
            if (a, b) not in old and not isinstance(self.policy, SrtfAllShared):
                self.helps(state, a, b)
        if not isinstance(self.policy, SjfBestSharing):
            for (
                at,
                count,
            ) in (
                partners.items()
            ):  # who has several is a newcomer now, or has had them before
                beside = {b if a == at else a for a, b in pairs if at in (a, b)}
                assert (
                    count == 1
                    or placement.get(at)
                    or all((at, other) in old for other in beside)
                )
        if isinstance(self.policy, SjfBestSharing):
            assert all(units for units in placement.values()), "it stopped a job"

    def helps(self, state: State, a: int, b: int) -> None:
        """A pair is made only where it pays, one of the two seen as the newcomer."""
        assert self.between is not None
        views = state.jobs[a], state.jobs[b]
        xi_a, xi_b = self.between.xi(views[0].job, views[1].job) or (math.inf, math.inf)
        if any(view.partners for view in views) or isinstance(
            self.policy, SjfBestSharing
        ):
            return  # counted at the pace that the others leave it
        assert pays(views[0].remaining, views[1].remaining, xi_a, xi_b) or pays(
            views[1].remaining, views[0].remaining, xi_b, xi_a
        )


MODELS = "abc"


@st.composite
def ratio_tables(draw: st.DrawFn) -> Interference:
    pairs = [(a, b) for i, a in enumerate(MODELS) for b in MODELS[i:]]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    xi = st.sampled_from([1.0, 1.1, 1.25, 1.4, 1.6, 2.0, 3.0])
    return known(
        {
            pair: (value, value if pair[0] == pair[1] else draw(xi))
            for pair in chosen
            for value in [draw(xi)]
        }
    )


@st.composite
def job_lists(
    draw: st.DrawFn, *, most: int = 8, largest: int = 5, together: bool = False
) -> list[Job]:
    count = draw(st.integers(1, most))
    return [
        rigid(
            f"j{k}",
            draw(st.integers(1, largest)),
            draw(st.integers(1, 900)),
            at=0.0 if together else draw(st.integers(0, 500)),
            model=draw(st.sampled_from(MODELS)),
        )
        for k in range(count)
    ]


@st.composite
def pools(draw: st.DrawFn) -> tuple[Rows, int]:
    """Nodes that come and go, and units of a node."""
    rows: list[tuple[float, str, int]] = [(0.0, "abcd", 1)]
    now, idle = 0.0, set("abcd")
    for _ in range(draw(st.sampled_from([0, 0, 3, 10]))):
        now += draw(st.integers(1, 400))
        node = draw(st.sampled_from("abcd"))
        rows.append((now, node, int(node not in idle)))
        idle ^= {node}
    return rows, draw(st.sampled_from([1, 1, 2, 4]))


OVERHEADS = st.builds(
    Rules,
    max_jobs=st.just(0),
    checkpoint_interval_s=st.sampled_from([0.0, 7.0, 600.0]),
    restart_overhead=st.sampled_from([(), ((2, 11.0), (4, 30.0))]),
)
END = 20_000.0


def replayed(
    pool: tuple[Rows, int],
    jobs: Sequence[Job],
    policy: Any,
    between: Interference | None,
    rules: Rules,
) -> Outcome:
    rows, per = pool
    return Replay(
        world(rows, END, units_per_node=per),
        JobTable(tuple(jobs)),
        policy,
        rules,
        between,
    ).run()


def same(one: Outcome, other: Outcome) -> bool:
    def told(outcome: Outcome) -> list[tuple[Any, ...]]:
        return [
            (r.start_ns, r.finish_ns, r.work, r.starts, r.preemptions, r.stops)
            for r in outcome.records
        ]

    return told(one) == told(other) and one.allocations.equals(other.allocations)


@pytest.mark.parametrize("policy", SHARING)
@given(pools(), job_lists(), ratio_tables(), OVERHEADS, st.booleans())
def test_no_decision_breaks_a_rule_and_the_books_hold(
    policy: Any,
    pool: tuple[Rows, int],
    jobs: list[Job],
    between: Interference,
    rules: Rules,
    consolidate: bool,
) -> None:
    watched = Watched(policy(interference=between, consolidate=consolidate), between)
    outcome = replayed(pool, jobs, watched, between, rules)
    for record in outcome.records:
        assert 0 <= record.work <= record.job.pmax
        lost = record.lost
        assert record.gained - lost == pytest.approx(record.work, abs=1e-6)
        if isinstance(watched.policy, SjfBestSharing):
            assert record.stops == 0
    if len(pool[0]) == 1:  # all nodes stay: everybody who fits ends
        fits = 4 * pool[1]
        assert all(
            (record.finish_ns is not None) == (record.job.request <= fits)
            for record in outcome.records
        )


@examples(40)
@pytest.mark.parametrize("policy", SHARING)
@given(pools(), job_lists(), ratio_tables(), st.randoms(use_true_random=False))
def test_names_change_nothing_and_two_runs_are_equal(
    policy: Any,
    pool: tuple[Rows, int],
    jobs: list[Job],
    between: Interference,
    random: Any,
) -> None:
    names = [job.name for job in jobs]
    random.shuffle(names)
    renamed = [replace(job, name=name) for job, name in zip(jobs, names, strict=True)]
    once = replayed(pool, jobs, policy(interference=between), between, CLUSTER)
    assert same(
        once, replayed(pool, jobs, policy(interference=between), between, CLUSTER)
    )
    other = replayed(pool, renamed, policy(interference=between), between, CLUSTER)
    assert finishes(other) == finishes(once)


@pytest.mark.parametrize("policy", [SrtfAllShared, SrtfWiselyShared])
@given(pools(), job_lists(), OVERHEADS, st.booleans(), st.booleans())
def test_where_nobody_may_share_it_is_plain_srtf(
    policy: Any,
    pool: tuple[Rows, int],
    jobs: list[Job],
    rules: Rules,
    consolidate: bool,
    known_to_be_bad: bool,
) -> None:
    between = known({("a", "a"): (9.0, 9.0)}, xi_max=2.0) if known_to_be_bad else None
    plain = replayed(
        pool, jobs, ShortestRemainingFirst(consolidate=consolidate), None, rules
    )
    assert same(
        replayed(
            pool,
            jobs,
            policy(interference=between, consolidate=consolidate),
            between,
            rules,
        ),
        plain,
    )


@given(st.sampled_from([1, 2, 4]), job_lists(), st.booleans())
def test_where_nobody_may_share_bsbf_is_sjf_with_backfill(
    per: int, jobs: list[Job], consolidate: bool
) -> None:
    pool = ([(0.0, "abcd", 1)], per)
    plain = replayed(
        pool, jobs, ShortestFirst(backfill=True, consolidate=consolidate), None, CLUSTER
    )
    assert same(
        replayed(pool, jobs, SjfBestSharing(consolidate=consolidate), None, CLUSTER),
        plain,
    )


@given(job_lists(most=7, largest=4), st.sampled_from([1, 2]))
def test_bsbf_leaves_no_job_waiting_that_could_join(jobs: list[Job], per: int) -> None:
    between = known(
        {("a", "a"): (1.2, 1.2), ("a", "b"): (1.3, 1.1), ("b", "b"): (1.0, 1.0)}
    )
    watched = Watched(SjfBestSharing(interference=between, consolidate=False), between)
    replayed(([(0.0, "abcd", 1)], per), jobs, watched, between, CLUSTER)
    for state, placement in watched.steps():
        held = {at: placement.get(at, view.held) for at, view in enumerate(state.jobs)}
        holders = Counter(unit for units in held.values() for unit in units)
        free = state.idle - len(holders)
        for at, view in enumerate(state.jobs):
            if held[at]:
                continue
            able = free
            for host, units in held.items():
                ratios = between.xi(view.job, state.jobs[host].job) if units else None
                alone = [unit for unit in units if holders[unit] == 1]
                if (
                    len(alone) == len(units)
                    and ratios
                    and pays(view.remaining, state.jobs[host].remaining, *ratios)
                ):
                    able += len(alone)
            assert able < view.job.request


@examples(50)
@given(job_lists(most=6, largest=1), st.integers(1, 3))
def test_sharing_that_costs_nothing_makes_no_mean_completion_time_worse(
    jobs: list[Job], nodes: int
) -> None:
    """Jobs of one unit: twice as many run, each as fast as alone."""
    between = known({(a, b): (1.0, 1.0) for a in MODELS for b in MODELS})
    for policy, plain in (
        (SrtfAllShared, ShortestRemainingFirst()),
        (SrtfWiselyShared, ShortestRemainingFirst()),
        (SjfBestSharing, ShortestFirst(backfill=True)),
    ):
        shared = mean_jct(
            clustered(nodes, 1, jobs, policy(interference=between), between)
        )
        assert shared <= mean_jct(clustered(nodes, 1, jobs, plain, None)) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["srtf-ars", "srtf-wrs", "sjf-bsbf"])
@pytest.mark.parametrize(
    "where", [["--cluster", "2x2"], ["-ndmap", "trace.csv"]], ids=["cluster", "trace"]
)
def test_on_the_command_line(
    name: str,
    where: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("xi.csv").write_text("model_a,model_b,xi_a,xi_b\na,b,1.2,1.1\na,a,1.3,1.3\n")
    Path("trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{i},1\n" for i in range(4))
        + "2021-02-10T00:10:00Z,n0,0\n"
    )
    rows = "".join(
        f'j{j},{"ab"[j % 2]},2,2,{900 + 100 * j},2021-02-10T00:00:0{j}Z,0,0,"[0,2]","[0,1]","[0,1]"\n'
        for j in range(6)
    )
    Path("jobs.csv").write_text(
        "name,model,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n" + rows
    )
    command = [*where, "--jobs", "jobs.csv", "--policy", name]
    assert run([*command, "-name", "one", "--xi", "xi.csv"]) == 0
    held = pd.read_parquet("one-itrOut/allocations.parquet")
    seconds = (held["end"] - held["start"]).dt.total_seconds() * (
        held["last_unit"] - held["first_unit"] + 1
    )
    metrics = json.loads(Path("one-itrOut/summary.json").read_text())["metrics"]
    assert seconds.sum() > metrics["used_unit_s"], "nothing was shared"
    assert run([*command, "-name", "two"]) == 2
    assert "needs --xi" in capsys.readouterr().err


# --- sharing and measuring ----------------------------------------------------------------------------------------


@examples(30)
@given(
    st.integers(0, 10**6),
    st.integers(2, 6),
    st.sampled_from(["bftrainer", "stall"]),
    st.sampled_from(["growing", "inverse"]),
)
def test_jobs_that_are_measured_leave_those_that_they_share_with(
    seed: int, jobs: int, cost_model: Any, order: Any
) -> None:
    """Preemptions and finishes bring jobs together that are still to be measured: each decision can be posed."""
    random = np.random.default_rng(seed)
    changes = [(float(at), n, int(random.integers(2))) for n in "abcd"
               for at in random.integers(1, 400, 6)]  # fmt: skip
    changes = [(0.0, n, 1) for n in "abcd"] + changes
    trace = world(changes, 500, nodes="abcd")
    made = tuple(
        replace(
            make(f"j{j}", (0, 10, 18, 24), pmax=float(random.integers(400, 9000)),
                 at=float(random.integers(0, 200)), up=3.0, down=2.0),
            model="ab"[j % 2],
        )
        for j in range(jobs)
    )  # fmt: skip
    between = known({("a", "b"): (1.1, 1.2), ("a", "a"): (1.3, 1.3)})
    policy = MilpSharingPolicy(
        60.0,
        SolverOptions("highs"),
        cost_model,
        curves="profile",
        profile_order=order,
        profile_s=20.0,
        interference=between,
    )
    rules = replace(CLUSTER, cost_model=cost_model)
    outcome = Replay(trace, JobTable(made), policy, rules, between).run()
    assert outcome.work > 0


def test_a_measured_job_gets_its_units_alone_though_it_shares_them_now() -> None:
    curve = np.arange(5.0)
    jobs = tuple(milp.Job(name, 1, 4, curve, curve, 10.0, 10.0) for name in "abc")
    shared = milp.Pair(0, 1, 1.1, 1.1, shared=3, at_a=((3, 1.5),))
    other = milp.Pair(0, 2, 1.1, 1.1)
    posed = milp.Problem(4, 120.0, jobs, (3, 3, 0), pairs=(shared, other))
    for target in (1, 2, 3, 4):
        problem, certain = measured_first(posed, {0: target})
        assert certain > 0
        solution = milp.solve(problem, backend="highs")
        assert solution.counts[0] == target
        assert sum(solution.counts) == 4  # none are shared
    assert measured_first(posed, {})[0] is posed


def test_a_policy_that_replays_again_knows_the_ratios_of_the_new_jobs() -> None:
    between = known({("a", "a"): (1.05, 1.05), ("b", "b"): (3.0, 3.0)})
    policy = MilpSharingPolicy(60.0, SolverOptions("highs"), interference=between)
    for model in "ab":
        jobs = [rigid(name, 2, 500.0, model=model) for name in ("j0", "j1", "j2")]
        again = clustered(1, 2, jobs, policy, between)
        anew = clustered(1, 2, jobs, replace(policy), between)
        assert finishes(again) == finishes(anew)
