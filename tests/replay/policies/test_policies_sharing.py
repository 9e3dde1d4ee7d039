"""Sharing units by ξ: the closed forms of two jobs, the choice of partners, and forbidden decisions.

Schedules by hand are in `tests/data/worlds/sharing.toml`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from drawing import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from rules.drawn import traces
from worlds import (
    Scripted,
    cluster,
    instant,
    known,
    make,
    replay,
    rigid,
    spans,
    world,
)

from bft import milp
from bft.models import Job, UnitMemory
from bft.replay import (
    Decision,
    Interference,
    JobView,
    MilpSharingPolicy,
    NodeTrace,
    Outcome,
    SolverOptions,
    State,
    Traits,
)
from bft.replay.policies import milp_sharing
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

SECONDS = st.floats(0.01, 1e6)
XI = st.floats(1.0, 4.0)
SHARING = (SrtfAllShared, SrtfWiselyShared, SjfBestSharing)


def mean_jct(outcome: Outcome) -> float:
    done = [record.finish_ns - record.job.tsub_ns for record in outcome.records]
    return float(np.mean(done)) / 1e9


# --- whom the MILP considers ------------------------------------------------------------------------------------------


def considered(
    ratios: dict[tuple[str, str], Any],
    xi_partners: int,
    *,
    now: tuple[int, int] | None = None,
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


def replayed_mean_s(
    newcomer_s: float,
    running_s: float,
    xi_new: float,
    xi_run: float,
    delay_s: float = 0.0,
) -> float:
    """The second of two jobs joins the first on its unit after a delay, or starts when that has finished."""

    def answer(state: State) -> Decision:
        waits = list(state.jobs.waiting)
        if len(state.jobs) == 2 and state.time_ns < instant(delay_s):
            waits.remove(1)
            return Decision.placed(dict.fromkeys(waits, (0,)), wake_ns=instant(delay_s))
        return Decision.placed(dict.fromkeys(waits, (0,)))

    jobs = [rigid("b", 1, running_s, model="b"), rigid("a", 1, newcomer_s, model="a")]
    xi = known({("a", "b"): (xi_new, xi_run)})
    policy = Scripted(answer, Traits(shares=True))
    return mean_jct(replay(cluster(1), jobs, policy, interference=xi))


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


@given(SECONDS, SECONDS, XI, XI)
def test_pays_is_the_comparison_of_both_means(
    a_s: float, b_s: float, xi_a: float, xi_b: float
) -> None:
    now, turn = together_s(a_s, b_s, xi_a, xi_b), in_turn_s(a_s, b_s)
    assume(abs(now - turn) > 1e-9 * turn)
    assert pays(a_s, b_s, xi_a, xi_b) == (now < turn)


def test_at_the_bounds() -> None:
    assert together_s(5, 7, 1, 1) == pytest.approx(
        6
    )  # no interference: each as if alone
    assert together_s(10, 10, 2, 2) == pytest.approx(
        20
    )  # both at half speed end together
    assert SrtfWiselyShared(helps="speed").worth((1, 1), (2, 2)) is None
    assert pays(1, np.inf, 1.5, 1.5)
    assert not pays(np.inf, 1, 1.5, 1.5)


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


# --- smaller batches --------------------------------------------------------------------------------------------------

MEMORY = UnitMemory([("a", 16, 4.0), ("a", 32, 6.0), ("a", 64, 10.0), ("b", 64, 9.0)])


def test_the_job_submitted_later_shares_with_a_smaller_batch_at_the_price_of_its_goodput() -> (
    None
):
    first = rigid("first", 1, 100, model="b", batch_size=64, memory_gib=9.0)
    later = rigid("later", 1, 400, at=1, model="a", batch_size=64, memory_gib=10.0)
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


# --- what holds in any world ------------------------------------------------------------------------------------------


@dataclass
class Watched:
    """A policy with a check of every decision."""

    policy: Any
    between: Interference
    seen: list[tuple[State, Mapping[int, tuple[int, ...]]]] = field(
        default_factory=list
    )
    name: str = "watched"
    traits: Traits = Traits(rigid=True, clairvoyant=True)

    def decide(self, state: State) -> Decision:
        decision: Decision = self.policy.decide(state)
        placement = {at: tuple(of) for at, of in (decision.placement or {}).items()}
        self.seen.append((state, placement))
        self.check(state, placement)
        return decision

    def check(self, state: State, placement: Mapping[int, tuple[int, ...]]) -> None:
        bsbf = isinstance(self.policy, SjfBestSharing)
        holders: dict[int, list[int]] = {}
        for at, view in enumerate(state.jobs):
            units = placement.get(at, view.held)
            assert len(set(units)) == len(units) in (0, view.job.request)
            assert not (placement.get(at) and view.units)
            for unit in units:
                assert state.machine.is_idle(unit)
                holders.setdefault(unit, []).append(at)
        assert all(len(jobs) <= 2 for jobs in holders.values())
        assert not bsbf or all(placement.values()), "it stopped a job"
        pairs = {tuple(jobs) for jobs in holders.values() if len(jobs) == 2}
        partners = Counter(at for pair in pairs for at in pair)
        old = {
            (at, other)
            for at, view in enumerate(state.jobs)
            for other, _ in view.partners
        }
        for a, b in pairs:
            assert self.between.xi(state.jobs[a].job, state.jobs[b].job) is not None
            # A newcomer on several jobs, each of which has it alone.
            assert bsbf or min(partners[a], partners[b]) == 1
            if (a, b) not in old and isinstance(self.policy, SrtfWiselyShared):
                self.helps(state.jobs[a], state.jobs[b])
        for at, count in partners.items():
            # Who has several is a newcomer now, or has had them before.
            beside = {b if a == at else a for a, b in pairs if at in (a, b)}
            had = all((at, other) in old for other in beside)
            assert bsbf or count == 1 or placement.get(at) or had

    def helps(self, one: JobView, other: JobView) -> None:
        """A pair is made only where it pays, one of the two seen as the newcomer, at the pace that others leave it."""
        xi = self.between.xi(one.job, other.job)
        assert xi is not None
        assert (
            one.partners
            or other.partners
            or pays(one.remaining, other.remaining, *xi)
            or pays(other.remaining, one.remaining, *xi[::-1])
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
def job_lists(draw: st.DrawFn, *, most: int = 8, largest: int = 5) -> list[Job]:
    return [
        rigid(
            f"j{k}",
            draw(st.integers(1, largest)),
            draw(st.integers(1, 900)),
            at=draw(st.integers(0, 500)),
            model=draw(st.sampled_from(MODELS)),
        )
        for k in range(draw(st.integers(1, most)))
    ]


OVERHEADS = st.fixed_dictionaries(
    {
        "checkpoint_interval_s": st.sampled_from([0.0, 7.0, 600.0]),
        "restart_overhead": st.sampled_from([(), ((2, 11.0), (4, 30.0))]),
    }
)
PER = st.sampled_from([1, 2, 4])


def same(one: Outcome, other: Outcome) -> bool:
    def told(outcome: Outcome) -> list[tuple[Any, ...]]:
        return [
            (r.start_ns, r.finish_ns, r.work, r.starts, r.preemptions, r.stops)
            for r in outcome.records
        ]

    return told(one) == told(other) and one.allocations.equals(other.allocations)


@pytest.mark.parametrize("policy", SHARING)
@given(traces(), job_lists(), ratio_tables(), OVERHEADS, st.booleans())
def test_no_decision_breaks_a_rule_and_the_books_hold(
    policy: Any,
    trace: NodeTrace,
    jobs: list[Job],
    xi: Interference,
    rules: dict[str, Any],
    consolidate: bool,
) -> None:
    watched = Watched(policy(interference=xi, consolidate=consolidate), xi)
    for record in replay(trace, jobs, watched, interference=xi, **rules).records:
        assert 0 <= record.work <= record.job.pmax
        assert record.gained - record.lost == pytest.approx(record.work, abs=1e-6)
        assert not (policy is SjfBestSharing and record.stops)
    nodes = cluster(2, 2)  # they stay: everybody who fits ends
    for record in replay(nodes, jobs, watched, interference=xi, **rules).records:
        assert (record.finish_ns is not None) == (record.job.request <= 4)


@pytest.mark.parametrize("policy", [SrtfAllShared, SrtfWiselyShared])
@given(traces(), job_lists(), OVERHEADS, st.booleans(), st.booleans())
def test_where_nobody_may_share_it_is_plain_srtf(
    policy: Any,
    trace: NodeTrace,
    jobs: list[Job],
    rules: dict[str, Any],
    consolidate: bool,
    known_to_be_bad: bool,
) -> None:
    xi = known({("a", "a"): (9.0, 9.0)}, xi_max=2.0) if known_to_be_bad else None
    shared, plain = (
        replay(trace, jobs, made, interference=xi, **rules)
        for made in (
            policy(interference=xi, consolidate=consolidate),
            ShortestRemainingFirst(consolidate=consolidate),
        )
    )
    assert same(shared, plain)


@given(PER, job_lists(), st.booleans())
def test_where_nobody_may_share_bsbf_is_sjf_with_backfill(
    per: int, jobs: list[Job], consolidate: bool
) -> None:
    plain = ShortestFirst(backfill=True, consolidate=consolidate)
    shared = SjfBestSharing(consolidate=consolidate)
    one, other = (replay(cluster(4, per), jobs, each) for each in (shared, plain))
    assert same(one, other)


@given(job_lists(most=7, largest=4), st.sampled_from([1, 2]))
def test_bsbf_leaves_no_job_waiting_that_could_join(jobs: list[Job], per: int) -> None:
    between = known(
        {("a", "a"): (1.2, 1.2), ("a", "b"): (1.3, 1.1), ("b", "b"): (1.0, 1.0)}
    )
    watched = Watched(SjfBestSharing(interference=between, consolidate=False), between)
    replay(cluster(4, per), jobs, watched, interference=between)
    for state, placement in watched.seen:
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
        shared, alone = (
            mean_jct(replay(cluster(nodes), jobs, each, interference=between))
            for each in (policy(interference=between), plain)
        )
        assert shared <= alone * (1 + 1e-9)


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
    rows = [(float(at), n, int(random.integers(2))) for n in "abcd"
            for at in random.integers(1, 400, 6)]  # fmt: skip
    trace = world([(0.0, "abcd", 1), *rows], 500)
    made = [
        make(f"j{j}", pmax=float(random.integers(400, 9000)), model="ab"[j % 2],
             at=float(random.integers(0, 200)), up=3.0, down=2.0)
        for j in range(jobs)
    ]  # fmt: skip
    xi = known({("a", "b"): (1.1, 1.2), ("a", "a"): (1.3, 1.3)})
    policy = MilpSharingPolicy(
        60.0,
        SolverOptions("highs"),
        cost_model,
        curves="profile",
        profile_order=order,
        profile_s=20.0,
        interference=xi,
    )
    assert replay(trace, made, policy, interference=xi, cost_model=cost_model).work > 0


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
    xi = known({("a", "a"): (1.05, 1.05), ("b", "b"): (3.0, 3.0)})
    policy = MilpSharingPolicy(60.0, SolverOptions("highs"), interference=xi)
    for model in "ab":
        jobs = [rigid(name, 2, 500.0, model=model) for name in ("j0", "j1", "j2")]
        again, anew = (
            replay(cluster(1, 2), jobs, each, interference=xi)
            for each in (policy, replace(policy))
        )
        assert spans(again) == spans(anew)
