"""Answers of milp: held against the exact programme, and on curves that are learned."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from rules.drawn import any_rules, tables, traces

from bft.models import Curve, Job, JobTable, Objective
from bft.replay import (
    Decision,
    JobView,
    MilpPolicy,
    NodeTrace,
    Replay,
    Rules,
    SolverOptions,
    State,
    always_idle,
    from_changes,
)
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.yarn_cs import YarnCapacity


def view(
    jmin: int,
    jmax: int,
    units: int = 0,
    *,
    name: str = "j",
    rates: list[float] | None = None,
) -> JobView:
    ps = np.arange(jmax + 1.0) if rates is None else np.array(rates)
    curve = Curve(np.arange(jmax + 1), ps)
    return JobView(Job(name, 0, jmin, jmax, 1e6, 20.0, 10.0, curve, curve), units, 0.0)


# --- milp -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["exact", "cbc"])
def test_every_answer_is_held_against_the_exact_programme(backend: str) -> None:
    policy = MilpPolicy(60.0, SolverOptions(backend))
    for idle in (1, 2, 3):
        policy.decide(State(0, idle, (view(1, 3),)))
    assert (policy.verified, policy.mismatches) == (3, 0)


@pytest.mark.parametrize(("verify", "verified"), [(False, 0), (True, 3)])
@pytest.mark.parametrize("options", [{"ties": "solver"}, {"gap": 0.01}])
def test_the_solvers_own_answers_are_held_against_it_with_verify(
    options: dict[str, Any], verify: bool, verified: int
) -> None:
    policy = MilpPolicy(60.0, SolverOptions("cbc", verify=verify, **options))
    for idle in (1, 2, 3):
        policy.decide(State(0, idle, (view(1, 3),)))
    assert (policy.verified, policy.mismatches) == (verified, 0)


def test_curves_that_are_learned_and_straight_are_what_efficiency_maximises() -> None:
    # The rate is in proportion to the units: what was seen at one size tells all others, as does the speed-up of one.
    jobs = tuple(
        replace(straight(name, rate), tsub_ns=at * 10**9, tcup_s=5.0, tcdw_s=2.0)
        for at, (name, rate) in enumerate({"a": 3.0, "b": 40.0, "c": 7.0}.items())
    )
    trace = always_idle(7, 0, 10**15)
    known = MilpPolicy(
        60.0, SolverOptions("exact"), objective=Objective.of("efficiency")
    )
    learned = MilpPolicy(60.0, SolverOptions("exact"), curves="learn")
    one, other = (
        Replay(trace, JobTable(jobs), policy).run() for policy in (known, learned)
    )
    assert one.steps.equals(other.steps)


def test_a_policy_that_learns_curves_detects_jobs_that_do_not_scale() -> None:
    flat = Curve(np.array([0.0, 1.0, 8.0]), np.array([0.0, 100.0, 101.0]))
    late = replace(straight("grows", 1.0), pmax=1e5, tsub_ns=600 * 10**9)
    jobs = (replace(straight("stays", 1.0), scalability=flat, pmax=1e7), late)
    # One unit first, so that it is known what a second one is worth once that has been tried.
    times = np.array([0, *[600 * 10**9] * 7], dtype=np.int64)
    trace = from_changes(
        list("abcdefgh"),
        times,
        np.arange(8, dtype=np.int32),
        np.ones(8, dtype=bool),
        start=0,
        end=7200 * 10**9,
    )
    seen = []

    class Watched(MilpPolicy):
        def decide(self, state: State) -> Decision:
            decision = super().decide(state)
            seen.append(
                {
                    view.job.name: n
                    for view, n in zip(state.jobs, decision.counts, strict=True)
                }
            )
            return decision.waking(state.time_ns + 600 * 10**9)

    Replay(
        trace, JobTable(jobs), Watched(600.0, SolverOptions("exact"), curves="learn")
    ).run()
    assert seen[-1] == {"grows": 7, "stays": 1}


def straight(name: str, rate: float) -> Job:
    curve = Curve(np.array([0.0, 8.0]), np.array([0.0, 8 * rate]))
    return Job(name, 0, 1, 8, 1e4 * rate, 0.0, 0.0, curve, curve)


# --- yarn-cs ----------------------------------------------------------------------------------------------------------


@given(traces(), tables(), any_rules)
def test_one_queue_is_first_come_first_served(
    trace: NodeTrace, jobs: JobTable, rules: Rules
) -> None:
    alike = JobTable(tuple(replace(job, vc="") for job in jobs))
    one, other = (
        Replay(trace, alike, policy, rules).run() for policy in (YarnCapacity(), Fifo())
    )
    assert one.allocations.equals(other.allocations)
