"""Sia: its utilities by the letter, its programme against enumeration, and replays by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.models import Curve, Job, JobTable
from bft.replay import Replay, Rules, always_idle
from bft.replay.engine.policy_api import JobView, State
from bft.replay.policies.sia import Sia
from bft.replay.trace.node_trace import SECOND_NS

NOW_NS = 600 * SECOND_NS


def job(name: str, ps: list[float], jmin: int = 1, **more: object) -> Job:
    curve = Curve(list(range(len(ps))), ps)
    return Job(name, 0, jmin, len(ps) - 1, 1e6, 5.0, 5.0, curve, curve, **more)  # type: ignore[arg-type]


@st.composite
def states(draw: st.DrawFn) -> State:
    """Up to four jobs on up to six nodes, running or not, restarted now and then, with any curve."""
    idle, views = draw(st.integers(1, 6)), []
    left = idle
    for index in range(draw(st.integers(1, 3))):
        ps = [
            0.0,
            *draw(st.lists(st.integers(1, 40).map(float), min_size=1, max_size=5)),
        ]
        jmin = draw(st.integers(1, len(ps) - 1))
        units = draw(st.integers(0, left))
        left -= units
        restarts = draw(st.integers(0, 25))
        views.append(
            JobView(
                job(f"j{index}", ps, jmin),
                units,
                0.0,
                starts=1 + restarts,
                held=tuple(range(units)),
            )
        )
    return State(NOW_NS, idle, views)


def utility(view: JobView, n: int, p: float, had: int) -> float | None:
    """By the letter of docs/policies.md, on nodes of one unit; None where the configuration is not offered."""
    if n == 0:
        return 0.0
    rates, jmin = view.job.rates.tolist(), view.job.jmin
    if not (
        jmin <= n <= view.job.jmax and (n <= max(jmin, 2 * had) or n == view.units)
    ):
        return None
    goodput = jmin * rates[n] / min(rates[jmin:])
    keeps = jmin <= view.units <= view.job.jmax
    if keeps and n != view.units:
        goodput *= max(600.0 - 30.0 * (view.starts - 1), 0.0) / 630.0
    if not goodput:
        return None
    return 1.1 - goodput**p if p < 0 else 1.1 + goodput**p


@examples(40)
@given(states(), st.sampled_from([-0.5, -2.0, 1.0]))
def test_the_choice_is_the_best_of_all(state: State, power: float) -> None:
    counts = Sia(power=power).decide(state).counts
    assert counts is not None

    worth = [
        [utility(view, n, power, view.units) for n in range(view.job.jmax + 1)]
        for view in state.jobs
    ]

    def total(choice: tuple[int, ...]) -> float:
        each = [of[n] for of, n in zip(worth, choice, strict=True)]
        return (
            -math.inf
            if None in each
            else math.fsum(value for value in each if value is not None)
        )

    choices = itertools.product(*[range(len(of)) for of in worth])
    best = max(total(choice) for choice in choices if sum(choice) <= state.idle)
    assert sum(counts) <= state.idle
    assert total(tuple(int(n) for n in counts)) == pytest.approx(best, abs=1e-9)


def test_configurations_are_powers_of_two_and_whole_nodes() -> None:
    view = JobView(job("a", [0.0, *range(1, 17)]), 16, 0.0, held=tuple(range(16)))
    policy = Sia(growth=100.0)
    policy.decide(
        State(NOW_NS + 1, 16, [view])
    )  # between rounds: what it holds is remembered
    assert list(policy.utilities(view, NOW_NS, 4)[""]) == [1, 2, 4, 8, 12, 16]
    assert list(policy.utilities(view, NOW_NS, 8)[""]) == [1, 2, 4, 8, 16]
    odd = JobView(job("b", [0.0, *range(1, 7)], sizes=(3, 6), jmin=3), 0, 0.0)
    assert list(policy.utilities(odd, NOW_NS, 4)[""]) == [
        3
    ]  # it has no other sizes, and begins on the smallest


def test_jobs_double_at_most_and_restarts_are_weighed() -> None:
    # Linear jobs on 6 nodes: one unit each at first, two each after 60 s (r = 60/90). After 120 s r = 90/150 = 0.6:
    # four and two units lose (0.6·4)^-0.5 + 2^-0.5 = 1.353, three each 2·(0.6·3)^-0.5 = 1.491, two each 1.414.
    jobs = JobTable(
        tuple(job(name, [0.0, *(10.0 * n for n in range(1, 9))]) for name in "ab")
    )
    replay = Replay(
        always_idle(6, 0, 600 * SECOND_NS), jobs, Sia(), Rules(events="all")
    )
    seen = {}
    while (state := replay.advance()) is None or state.time_ns < 300 * SECOND_NS:
        if state is not None:
            decision = replay.policy.decide(state)
            seen[state.time_ns // SECOND_NS] = tuple(
                int(n) for n in decision.counts_in(state)
            )
            replay.decide(decision)
    assert [seen[at] for at in (0, 60, 120)] == [(1, 1), (2, 2), (4, 2)]
    # By hand: at 60 s keeping is worth 1.1 - 1, doubling 1.1 - (2/3 · 2)^-0.5 = 0.234.
    view = JobView(jobs.jobs[0], 1, 0.0, starts=1, held=(0,))
    policy = Sia()
    policy._largest["a"] = 1
    found = policy.utilities(view, 60 * SECOND_NS, 1)
    assert found[""] == pytest.approx({1: 0.1, 2: 1.1 - (4 / 3) ** -0.5})


def test_a_job_that_restarts_keeps_its_units_and_others_share_the_rest() -> None:
    linear = [0.0, *(10.0 * n for n in range(1, 9))]
    running, waiting = job("a", linear), job("b", linear)
    views = [
        JobView(running, 4, 0.0, starts=1, held=(0, 1, 2, 3), restarting=True),
        JobView(waiting, 0, 0.0),
    ]
    state = State(NOW_NS, 4, views)
    assert Sia(freeze=True).decide(state).counts == (4, 0)
    assert Sia().decide(state).counts == (3, 1)  # else it shrinks for the other one
    wider = State(NOW_NS, 6, views)
    assert Sia(freeze=True).decide(wider).counts == (4, 1)
    alone = State(NOW_NS, 4, views[:1])
    assert Sia(freeze=True).decide(alone).counts_in(alone) == (4,)


def test_a_policy_believes_the_restart_seconds_that_a_job_states() -> None:
    curve = [0.0, *(10.0 * n for n in range(1, 9))]
    stated = job("a", curve, policy_restart_s=120.0)
    views = [JobView(one, 2, 0.0, starts=1) for one in (stated, job("b", curve))]
    policy = Sia()
    policy._largest.update(a=2, b=2)
    found = [policy.utilities(view, NOW_NS, 1)[""][4] for view in views]
    # At an age of 600 s: 600 / 720 and 600 / 630 of its life would not be restarts.
    factors = [600 / (600 + assumed) for assumed in (120, 30)]
    assert found == pytest.approx([1.1 - (4 * r) ** -0.5 for r in factors])


@examples(20)
@given(st.lists(st.integers(0, 2000), min_size=2, max_size=7), st.integers(0, 99))
def test_where_moves_are_free_no_job_is_on_more_nodes_than_it_needs(
    submits: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    curves = np.cumsum(rng.uniform(1, 10, (len(submits), 8)), axis=1)
    jobs = JobTable(
        tuple(
            replace(
                job(f"j{index}", [0.0, *curve.tolist()]),
                tsub_ns=submit * SECOND_NS,
                pmax=float(rng.uniform(100, 9000)),
            )
            for index, (submit, curve) in enumerate(zip(submits, curves, strict=True))
        )
    )
    trace = always_idle(2, 0, 10**5 * SECOND_NS, units_per_node=4)
    rules = Rules(max_jobs=0, free_moves=True)
    replay = Replay(trace, jobs, Sia(free_moves=True), rules)
    while replay.peek() is not None:
        replay.step()
        for running in replay._in_play:
            nodes = {unit // 4 for unit in running.units}
            assert len(nodes) == -(-len(running.units) // 4)


def test_placements_are_packed_on_few_nodes() -> None:
    jobs = JobTable(
        tuple(job(name, [0.0, *(10.0 * n for n in range(1, 5))]) for name in "ab")
    )
    replay = Replay(
        always_idle(2, 0, 300 * SECOND_NS, units_per_node=4),
        jobs,
        Sia(),
        Rules(max_jobs=0),
    )
    assert replay.run().work > 0
    held = [{unit // 4 for unit in running.units} for running in replay._in_play]
    assert sorted(map(tuple, held)) == [(0,), (1,)]


@pytest.mark.parametrize(
    "given",
    [{"power": 0.0}, {"growth": 0.5}, {"no_allocation": 0.5}, {"delay_s": -1.0}],
)
def test_constants_without_meaning_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        Sia(**given)  # type: ignore[arg-type]


def test_memory_survives_a_checkpoint() -> None:
    policy = Sia()
    policy.decide(
        State(NOW_NS, 4, [JobView(job("a", [0.0, 1.0, 2.0]), 2, 0.0, held=(0, 1))])
    )
    other = Sia()
    other.restore(policy.state())
    assert other._largest == {"a": 2}
    assert np.isfinite(other.power)
