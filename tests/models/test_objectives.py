"""Objectives and deadline weights, each alone and in a decision."""

from __future__ import annotations

import numpy as np
import pytest

from bft.models import OBJECTIVES, Curve, Job, deadline_weight
from bft.replay.policies import JobView, MilpPolicy, State
from bft.replay.policies.solver import SolverOptions

SECOND = 10**9


def job(name: str = "a", *, weight: float = 1.0, deadline_ns: int | None = None, rate: float = 100.0) -> Job:
    ns = np.array([0.0, 1.0, 2.0, 4.0])
    scalability = Curve(ns, rate * np.array([0.0, 1.0, 1.8, 3.0]))
    own = Curve(ns, np.array([0.0, 5.0, 6.0, 7.0]))
    return Job(name, 0, 1, 4, 1e6, 18.0, 12.0, scalability, own, weight=weight, deadline_ns=deadline_ns)


def test_each_objective_is_the_curve_it_names() -> None:
    assert OBJECTIVES["own"](job()).ps.tolist() == [0, 5, 6, 7]
    assert OBJECTIVES["throughput"](job()).ps.tolist() == [0, 100, 180, 300]
    assert OBJECTIVES["efficiency"](job()).ps.tolist() == [0, 1, 1.8, 3]


def test_efficiency_of_a_job_that_cannot_run_on_one_unit_counts_per_unit() -> None:
    ns = np.array([0.0, 1.0, 2.0, 4.0])
    curve = Curve(ns, np.array([0.0, 0.0, 80.0, 120.0]))
    late = Job("b", 0, 2, 4, 1e6, 0.0, 0.0, curve, curve)
    assert OBJECTIVES["efficiency"](late).ps.tolist() == [0, 0, 2, 3]


def test_efficiency_does_not_prefer_the_job_with_the_higher_rate() -> None:
    views = (JobView(job("slow", rate=1.0), 0, 0.0), JobView(job("fast", rate=1000.0), 0, 0.0))
    by_rate = MilpPolicy(120.0, SolverOptions("exact"), objective=OBJECTIVES["throughput"]).decide(State(0, 4, views))
    fair = MilpPolicy(120.0, SolverOptions("exact"), objective=OBJECTIVES["efficiency"]).decide(State(0, 4, views))
    assert by_rate.counts == (0, 4)
    assert fair.counts == (2, 2)


@pytest.mark.parametrize(("now_s", "expected"), [(0, 2.0), (500, 2.0), (750, 5.0), (1000, 8.0), (5000, 8.0)])
def test_a_deadline_raises_the_weight_within_its_horizon(now_s: int, expected: float) -> None:
    late = job(weight=2.0, deadline_ns=1000 * SECOND)
    assert deadline_weight(late, now_s * SECOND, horizon_s=500.0, boost=4.0) == pytest.approx(expected)


def test_without_a_deadline_the_weight_stays() -> None:
    assert deadline_weight(job(weight=3.0), 10**18) == 3.0


def test_a_near_deadline_wins_the_units() -> None:
    views = (JobView(job("calm"), 0, 0.0), JobView(job("late", deadline_ns=100 * SECOND, rate=90.0), 0, 0.0))
    calm = MilpPolicy(120.0, SolverOptions("exact"), objective=OBJECTIVES["throughput"]).decide(State(0, 4, views))
    urgent = MilpPolicy(
        120.0, SolverOptions("exact"), objective=OBJECTIVES["throughput"], deadline_boost=10.0, deadline_horizon_s=200.0
    ).decide(State(90 * SECOND, 4, views))
    assert calm.counts[0] >= calm.counts[1]
    assert urgent.counts == (0, 4)
