"""Objectives and deadline weights, each alone and in a decision."""

import itertools
from dataclasses import replace
from operator import getitem

import numpy as np
import pytest
from agreeing import agree
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import solve_apart, solve_exact

from bft.milp.tables import tables_of
from bft.models import Curve, Job, Objective, Standing, deadline_weight
from bft.models.objectives import ageing, srpt
from bft.replay.policies import JobView, MilpPolicy, State
from bft.replay.policies.solver import SolverOptions

SECOND = 10**9
NS = np.array([0.0, 1.0, 2.0, 4.0])


def job(
    name: str = "a",
    *,
    weight: float = 1.0,
    deadline_ns: int | None = None,
    rate: float = 100.0,
) -> Job:
    return Job(
        name,
        0,
        1,
        4,
        1e6,
        18.0,
        12.0,
        Curve(NS, rate * np.array([0.0, 1.0, 1.8, 3.0])),
        Curve(NS, np.array([0.0, 5.0, 6.0, 7.0])),
        weight=weight,
        deadline_ns=deadline_ns,
    )


def policy_of(objective: str, tfwd_s: float = 120.0, **more) -> MilpPolicy:
    return MilpPolicy(
        tfwd_s, SolverOptions("exact"), objective=Objective.of(objective), **more
    )


def views_of(*jobs: Job) -> tuple[JobView, ...]:
    return tuple(JobView(one, 0, 0.0) for one in jobs)


LATE, WIDE = (
    Job(name, 0, jmin, 4, 1e6, 0.0, 0.0, Curve(NS, ps), Curve(NS, ps))
    for name, jmin, ps in (
        ("late", 2, np.array([0.0, 0.0, 80.0, 120.0])),
        ("wide", 1, np.array([0.0, 50.0, 160.0, 240.0])),
    )
)


@pytest.mark.parametrize(
    ("objective", "of", "expected"),
    [
        ("own", job(), [0, 5, 6, 7]),
        ("throughput", job(), [0, 100, 180, 300]),
        ("power:0", job(), [0, 100, 180, 300]),
        ("power:0.5", job(), [0, 10, 18, 30]),
        ("power:1", job(), [0, 1, 1.8, 3]),
        ("efficiency", job(), [0, 1, 1.8, 3]),
        # It cannot run on one unit: its speed on two counts per unit.
        ("efficiency", LATE, [0, 0, 2, 3]),
        # The rate over the best rate a unit within the bounds.
        ("useful-time", WIDE, [0, 50 / 80, 2, 3]),
        ("useful-time", replace(WIDE, jmin=4), [0, 50 / 60, 160 / 60, 4]),
    ],
)
def test_each_objective_is_the_curve_it_names(
    objective: str, of: Job, expected: list[float]
) -> None:
    assert Objective.of(objective).curve(of).ps == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (1.0, 1.0),
        (0.97, 1.0),
        (0.5, 4.0),
        (0.25, 16.0),
        (0.26, 2 ** (2 * 31 / 16)),
        (0.0, 2.0**20),
    ],
)
def test_srpt_raises_the_weight_of_who_has_little_left_in_steps(
    left: float, expected: float
) -> None:
    assert srpt(Standing(left=left), 2.0) == pytest.approx(expected)
    assert srpt(Standing(left=left), 0.0) == 1.0


@pytest.mark.parametrize(
    ("hours", "expected"),
    [(-1, 1.0), (0, 1.0), (1.4, 1.0), (1.5, 1.0625), (24, 2.0), (241, 11.0)],
)
def test_ageing_adds_a_weight_for_each_span_of_age_in_steps_up_to_its_cap(
    hours: float, expected: float
) -> None:
    old = Standing(age_s=hours * 3600)
    assert ageing(old, 24.0, 100.0) == expected
    assert (
        ageing(old, 24.0, 2.0)
        == Objective.of("ageing:24").factor(old)
        == min(expected, 3.0)
    )
    assert ageing(old, 24.0, 0.05) == min(expected, 1.05)


def test_factors_multiply_and_the_text_names_all() -> None:
    made = Objective.of(" srpt:0.10 + ageing:24")
    text = "own+srpt:0.1+ageing:24:2"
    agree(made, {"text": text, "uses_left": True, "ageing_h": 24.0})
    assert made.factor(Standing(0.5, 86_400.0)) == pytest.approx(2**0.1 * 2)
    assert Objective.of("efficiency").factor(Standing(0.5, 86_400.0)) == 1.0


@given(
    st.floats(0, 1e6),
    st.floats(0, 1),
    st.sampled_from(["ageing:60:2", "ageing:1:1", "ageing:0.3:9"]),
)
def test_factors_stay_as_they_are_for_as_long_as_is_said(
    age_s: float, part: float, text: str
) -> None:
    objective = Objective.of(text)
    later = Standing(age_s=age_s + part * objective.steady_s(age_s))
    assert objective.factor(later) == objective.factor(Standing(age_s=age_s))
    assert objective.steady_s(0.0) == objective.ageing_h * 225 - 1
    assert Objective.of(text + "+srpt:1").steady_s(age_s) == 0


def test_weights_are_those_of_the_instant_whatever_was_decided_before() -> None:
    policy = policy_of("throughput+ageing:1:3", 60.0)
    views = views_of(job("a"), replace(job("b"), tsub_ns=1000 * SECOND))
    for second in [1000, 1001, 1224, 1225, 1226, 5000, 20_000, 1000, 1225]:
        given = policy.problem(State(second * SECOND, 4, views)).posed.weight
        ages = [Standing(age_s=second - view.job.tsub_ns / SECOND) for view in views]
        assert given.tolist() == [policy.objective.factor(age) for age in ages]


def test_who_has_little_left_wins_the_units_of_a_policy_that_sees_it() -> None:
    views = (
        JobView(job("a"), 0, 0.0, progress=0.0),
        JobView(job("b"), 0, 0.0, progress=9e5),
    )
    policy = policy_of("throughput+srpt:1")
    assert policy.traits.clairvoyant
    assert policy.decide(State(0, 4, views)).counts == (0, 4)
    assert not policy_of("throughput+ageing:1").traits.clairvoyant


def test_predicted_work_left_follows_from_the_service_attained() -> None:
    known = {"estimate_s": 1000.0}
    views = tuple(
        JobView(replace(job(name), extra=extra), 0, attained)
        for name, attained, extra in (
            ("a", 3600.0, {}),
            ("b", 2000.0, known),
            ("c", 9000.0, known),
            ("d", 0.0, known),
        )
    )
    policy = policy_of("throughput+srpt:1", remaining="predicted")
    assert not policy.traits.clairvoyant
    expected = [
        1.0,
        srpt(Standing(1 - 2000 / (1000 * views[0].job.request)), 1.0),
        srpt(Standing(0.05), 1.0),
        1.0,
    ]
    weights = policy.problem(State(0, 4, views)).posed.weight
    assert weights.tolist() == pytest.approx(expected)


def test_who_was_submitted_long_ago_gets_units_and_those_of_an_age_stay_a_class() -> (
    None
):
    views = views_of(
        *(replace(job(str(at)), tsub_ns=at * 900 * SECOND) for at in range(40))
    )
    now = 80 * 3600 * SECOND
    policy = policy_of("throughput+ageing:24:9")
    problem = policy.problem(State(now, 8, views))
    # 70 to 80 hours in steps of 1.5.
    assert len(tables_of(problem).classes.positions) == 8
    again = policy.problem(State(now + 60 * SECOND, 8, views))
    assert again.posed.weight.tolist() == problem.posed.weight.tolist()
    counts = policy.decide(State(now, 8, views)).counts
    assert (counts, sum(counts)) == (tuple(sorted(counts, reverse=True)), 8)


@st.composite
def waiters(draw: st.DrawFn) -> tuple[State, float, float]:
    """Jobs of any curves and ages that hold few units; hours and cap of the ageing."""
    hours, cap = (
        draw(st.sampled_from([1.0, 24.0])),
        draw(st.sampled_from([0.5, 1.5, 2.0])),
    )
    views, left = [], draw(st.integers(1, 6))
    idle = left
    for at in range(draw(st.integers(1, 4))):
        age = draw(st.integers(0, 5)) * hours * 0.6
        units = draw(st.integers(0, min(left, 2)))
        left -= units
        slopes = draw(st.lists(st.integers(1, 9), min_size=3, max_size=3))
        curve = Curve([0, 1, 2, 3], np.cumsum([0, *slopes]).astype(float))
        tsub_ns = -round(age * 3600 * SECOND)
        views.append(
            JobView(
                Job(str(at), tsub_ns, 1, 3, 1e6, 0.0, 0.0, curve, curve), units, 0.0
            )
        )
    return State(0, idle, views), hours, cap


@examples(150)
@given(waiters())
def test_ageing_takes_at_most_its_cap_of_what_every_other_allocation_is_worth(
    case: tuple[State, float, float],
) -> None:
    state, hours, cap = case
    policy = policy_of(f"throughput+ageing:{hours}:{cap}", 60.0)
    taken = policy.decide(state).counts
    rates = [view.job.rates for view in state.jobs]
    worth = [
        sum(map(getitem, rates, counts))
        for counts in itertools.product(range(4), repeat=len(rates))
        if sum(counts) <= state.idle
    ]
    assert sum(map(getitem, rates, taken)) >= max(worth) / (1 + cap) * (1 - 1e-9)
    weights = policy.problem(state).posed.weight
    assert ((weights >= 1) & (weights <= 1 + cap)).all()


@examples(150)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), min_size=2, max_size=6),
    st.integers(0, 3),
    st.sampled_from([0.0, 12.0]),
)
def test_a_waiting_job_is_not_overtaken_by_an_equal_one_submitted_later(
    jobs: list[tuple[int, int]], free: int, tcdw_s: float
) -> None:
    hours, cap, tfwd_s = 4.0, 1.5, 60.0
    curve = Curve([0, 1, 3], [0.0, 10.0, 30.0])
    jobs = sorted(jobs, key=lambda job: -job[0])  # in order of submission
    views = [
        JobView(
            Job(str(at), -age * 3600 * SECOND, 1, 3, 1e6, 0.0, tcdw_s, curve, curve),
            units,
            0.0,
        )
        for at, (age, units) in enumerate(jobs)
    ]
    idle = sum(view.units for view in views) + free
    policy = policy_of(f"throughput+ageing:{hours}:{cap}", tfwd_s)
    state = State(0, idle, views)
    weights = policy.problem(state).posed.weight.tolist()
    counts = policy.decide(state).counts
    forgotten = [at for at, count in enumerate(counts) if not count]
    gainers = [at for at, count in enumerate(counts) if count > views[at].units]
    assert not any(waiter < gainer for waiter in forgotten for gainer in gainers)
    if any(jobs[at][0] >= hours * cap for at in forgotten):
        assert sum(counts) == idle
        holders = [at for at, count in enumerate(counts) if count]
        # Whoever lost nothing could have been asked for a unit; he costs the rate of all his units for Tcdw.
        asked = [at for at in holders if counts[at] >= views[at].units]
        least = {
            at: (1 + cap) / (1 + tcdw_s / tfwd_s * min(counts[at], views[at].units))
            for at in asked
        }
        assert all(weights[at] >= least[at] * (1 - 1e-9) for at in asked)


def test_efficiency_does_not_prefer_the_job_with_the_higher_rate() -> None:
    views = views_of(job("slow", rate=1.0), job("fast", rate=1000.0))
    for objective, counts in (("throughput", (0, 4)), ("efficiency", (2, 2))):
        assert policy_of(objective).decide(State(0, 4, views)).counts == counts


@pytest.mark.parametrize(
    ("now_s", "expected"), [(0, 2.0), (500, 2.0), (750, 5.0), (1000, 8.0), (5000, 8.0)]
)
def test_a_deadline_raises_the_weight_within_its_horizon(
    now_s: int, expected: float
) -> None:
    late = job(weight=2.0, deadline_ns=1000 * SECOND)
    near = {"horizon_s": 500.0, "boost": 4.0}
    assert deadline_weight(late, now_s * SECOND, **near) == pytest.approx(expected)
    assert deadline_weight(job(weight=3.0), now_s * SECOND, **near) == 3.0


def test_a_near_deadline_wins_the_units() -> None:
    views = views_of(job("calm"), job("late", deadline_ns=100 * SECOND, rate=90.0))
    calm = policy_of("throughput").decide(State(0, 4, views)).counts
    near = policy_of("throughput", deadline_boost=10.0, deadline_horizon_s=200.0)
    urgent = near.decide(State(90 * SECOND, 4, views))
    assert calm[0] >= calm[1]
    assert urgent.counts == (0, 4)


@examples(100)
@given(
    st.lists(
        st.tuples(
            st.tuples(
                st.sampled_from([60.0, 100.0]),
                st.sampled_from([1.0, 1.0, 2.0]),
                st.sampled_from([None, None, 50, 1000, 90_000]),
            ),
            st.sampled_from([0, 0, 0, 1, 3]),
            st.sampled_from([0.0, 18.0]),
        ),
        min_size=1,
        max_size=14,
    ),
    st.integers(0, 12),
    st.integers(0, 100_000),
    st.sampled_from(["bftrainer", "stall"]),
    st.sampled_from(["own", "power:0.5+ageing:1:1.5"]),
)
def test_classes_change_no_answer_under_deadlines_weights_and_factors(
    drawn: list[tuple[tuple[float, float, int | None], int, float]],
    free: int,
    now_s: int,
    cost_model,
    objective: str,
) -> None:
    views = []
    for n, ((rate, weight, deadline_s), held, tcup_s) in enumerate(drawn):
        deadline_ns = None if deadline_s is None else deadline_s * SECOND
        made = replace(
            job(f"j{n}", weight=weight, deadline_ns=deadline_ns, rate=rate),
            tcup_s=tcup_s,
        )
        views.append(JobView(made, held, 0.0))
    problem = MilpPolicy(
        60.0,
        cost_model=cost_model,
        objective=Objective.of(objective),
        deadline_boost=4.0,
        deadline_horizon_s=86_400.0,
    ).problem(State(now_s * SECOND, free + sum(view.units for view in views), views))
    kinds = {
        (kind, tcup_s if cost_model == "stall" else None)
        for kind, held, tcup_s in drawn
        if not held
    }
    holders = sum(view.units > 0 for view in views)
    assert len(tables_of(problem).classes.positions) <= len(kinds) + holders
    assert solve_exact(problem) == solve_apart(problem)
