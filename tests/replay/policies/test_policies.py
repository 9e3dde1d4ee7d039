"""Answers of policies: equal-share by hand and by its rules, the MILP against full enumeration."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft import milp
from bft.models import Curve, Job, JobTable, Objective
from bft.replay import Options, Replay, Rules, always_idle, from_changes
from bft.replay.inputs.load import load
from bft.replay.inputs.notes import Watcher
from bft.replay.policies import Decision, EqualShare, JobView, MilpPolicy, State
from bft.replay.policies.solver import SolverOptions


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


def share(idle: int, *bounds: tuple[int, int]) -> tuple[int, ...]:
    state = State(0, idle, tuple(view(*b, name=f"j{k}") for k, b in enumerate(bounds)))
    return EqualShare().decide(state).counts_in(state)


# Idle units, Jmin-Jmax of the jobs, and what each gets.
BY_HAND = """
6 | 1-4 1-4 1-4 | 2 2 2 | q = 2
7 | 1-4 1-4 1-4 | 3 2 2 | one is left over: first come first served
20 | 1-4 1-4 1-4 | 4 4 4 | clipped to Jmax
9 | 1-2 1-9 1-9 | 2 4 3 | q = 3; what the first cannot use goes to the second
9 | 1-2 1-3 1-9 | 2 3 4 |
2 | 1-4 1-4 1-4 | 2 0 0 | q = 0: the first takes all
4 | 2-4 2-4 | 2 2 | a quota equal to Jmin counts (the published code gives 0)
3 | 2-4 2-4 | 3 0 | q = 1 is below Jmin
5 | 4-8 1-1 1-8 | 0 1 4 | 3 are left, too few for the first
5 | 3-8 1-1 1-1 | 3 1 1 | 3 are left, just enough for the first
3 | 4-8 | 0 |
3 | 0-2 0-2 | 2 1 |
0 | 0-2 1-2 | 0 0 |
5 | | |
"""


@pytest.mark.parametrize("row", BY_HAND.strip().splitlines())
def test_equal_share_by_hand(row: str) -> None:
    idle, jobs, counts, _ = row.split("|")
    bounds = [tuple(map(int, each.split("-"))) for each in jobs.split()]
    assert share(int(idle), *bounds) == tuple(map(int, counts.split()))


bounds = st.integers(0, 6).flatmap(
    lambda jmin: st.tuples(st.just(jmin), st.integers(max(jmin, 1), 12))
)


@given(st.integers(0, 40), st.lists(st.tuples(bounds, st.integers(0, 6)), max_size=6))
def test_equal_share_keeps_bounds_gives_the_quota_and_leaves_nothing_of_use(
    idle: int, jobs: list[tuple[tuple[int, int], int]]
) -> None:
    counts = share(idle, *(b for b, _ in jobs))
    free = idle - sum(counts)
    assert free >= 0
    for ((jmin, jmax), _), n in zip(jobs, counts, strict=True):
        assert n == 0 or max(jmin, 1) <= n <= jmax
        quota = min(idle // len(jobs), jmax)
        assert n >= (quota if quota >= jmin else 0)
        assert not free or (n == jmax if n else free < max(jmin, 1))
    # What jobs hold plays no part.
    views = tuple(view(*b, units, name=f"j{k}") for k, (b, units) in enumerate(jobs))
    state = State(77, idle, views)
    assert EqualShare().decide(state).counts_in(state) == counts


# --- milp -------------------------------------------------------------------------------------------------------------


@st.composite
def states(draw: st.DrawFn) -> State:
    views, held = [], 0
    for k in range(draw(st.integers(1, 3))):
        jmax = draw(st.integers(1, 4))
        rates = [0.0, *(float(draw(st.integers(0, 50))) for _ in range(jmax))]
        units = draw(st.integers(0, jmax))
        held += units
        views.append(
            view(draw(st.integers(0, jmax)), jmax, units, name=f"j{k}", rates=rates)
        )
    return State(0, held + draw(st.integers(0, 5)), tuple(views))


def value(v: JobView, n: int, tfwd: float, model: str) -> float:
    """The value of docs/model.md for one job, O = P here."""
    job = v.job
    if n and not max(job.jmin, 1) <= n <= job.jmax:
        return -float("inf")
    seconds = job.tcup_s if n > v.units else job.tcdw_s if n < v.units else 0.0
    rate = float(job.objective.at(n))
    if model == "stall":
        return max(tfwd - seconds, 0.0) * rate
    return tfwd * rate - seconds * (
        float(job.objective.at(v.units)) if v.units >= job.jmin else 0.0
    )


@given(
    states(),
    st.sampled_from([5.0, 30.0, 120.0]),
    st.sampled_from(["bftrainer", "stall"]),
)
def test_the_milp_policy_answers_the_best_of_all_allocations(
    state: State, tfwd: float, model: Any
) -> None:
    decision = MilpPolicy(tfwd, SolverOptions("exact"), cost_model=model).decide(state)
    ranges = [range(v.job.jmax + 1) for v in state.jobs]
    best = max(
        sum(value(v, n, tfwd, model) for v, n in zip(state.jobs, counts, strict=True))
        for counts in itertools.product(*ranges)
        if sum(counts) <= state.idle
    )
    told = sum(
        value(v, n, tfwd, model)
        for v, n in zip(state.jobs, decision.counts, strict=True)
    )
    assert sum(decision.counts) <= state.idle
    assert told == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert decision.solution is not None
    assert decision.solution.objective == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert (decision.solution.status, decision.solution.backend) == ("optimal", "exact")


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


@pytest.mark.parametrize("cost_model", ["bftrainer", "stall"])
def test_what_is_kept_between_decisions_changes_none_of_them(cost_model: Any) -> None:
    inputs = load(Options(), Watcher())
    compared = []

    class Compared(MilpPolicy):
        """Every twentieth decision is also made by a new policy, of jobs that nothing has seen before."""

        asked: int = 0

        def decide(self, state: State) -> Decision:
            decision = super().decide(state)
            self.asked += 1
            if self.asked % 20 == 0:
                new = MilpPolicy(
                    self.tfwd_s, self.solver, self.cost_model, self.objective
                )
                posed = new.problem(state)
                fresh = replace(posed, jobs=tuple(replace(job) for job in posed.jobs))
                found, solution = milp.solve(fresh, backend="exact"), decision.solution
                assert solution is not None
                assert (found.counts, found.objective, found.bound, found.status) == (
                    solution.counts,
                    solution.objective,
                    solution.bound,
                    solution.status,
                )
                compared.append(solution.counts)
            return decision

    policy = Compared(
        60.0,
        SolverOptions("exact"),
        cost_model,
        Objective.of("power:0.5+ageing:6:2"),
    )
    rules = Rules(cost_model=cost_model, max_jobs=0)
    Replay(inputs.pools[0].trace, inputs.jobs, policy, rules).run()
    assert len(compared) > 50
    assert len(set(compared)) > 10


def test_other_jobs_of_the_same_names_are_decided_anew() -> None:
    policy = MilpPolicy(120.0, SolverOptions("exact"))
    slow, fast = [0.0, 10.0, 20.0, 30.0, 40.0], [0.0, 30.0, 60.0, 65.0, 70.0]
    for rates in ([slow, fast], [fast, slow], [fast, fast]):
        jobs = [view(1, 4, name=str(k), rates=of) for k, of in enumerate(rates)]
        state = State(0, 6, jobs)
        anew = MilpPolicy(120.0, SolverOptions("exact")).decide(state)
        assert policy.decide(state).counts_in(state) == anew.counts_in(state)
