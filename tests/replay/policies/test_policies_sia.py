"""Sia: its utilities by the letter, its programme against enumeration, and replays by hand."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from toy_application import workload, write_application

from bft.models import Curve, Job, JobTable
from bft.replay import JobView, Replay, Rules, State, always_idle
from bft.replay.engine.units import Holdings
from bft.replay.policies.sia import Sia
from bft.replay.trace.node_trace import SECOND_NS

NOW_NS = 600 * SECOND_NS


def job(name: str, ps: list[float], jmin: int = 1, **more: object) -> Job:
    curve = Curve(list(range(len(ps))), ps)
    return Job(name, 0, jmin, len(ps) - 1, 1e6, 5.0, 5.0, curve, curve, **more)  # type: ignore[arg-type]


@st.composite
def states(draw: st.DrawFn) -> State:
    """Up to three jobs, running or not, restarted now and then, with any curves, on up to six units of up to two kinds.

    Where there are two kinds the first has no name of its own in the job table.
    """
    kinds = draw(st.sampled_from([(), ("a", "b")]))
    on = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6)) if kinds else ()
    units = len(on) if kinds else draw(st.integers(1, 6))
    holdings = Holdings(units, 1, on)
    holdings.join(range(units), 0)
    free = {
        kind: [u for u in range(units) if not on or on[u] == kind]
        for kind in on or ("",)
    }
    views = []
    for index in range(draw(st.integers(1, 3))):
        curves = [
            [
                0.0,
                *map(float, draw(st.lists(st.integers(1, 40), min_size=5, max_size=5))),
            ]
            for _ in kinds or ("",)
        ]
        jmin, jmax = sorted(draw(st.lists(st.integers(1, 5), min_size=2, max_size=2)))
        usual, *other = (Curve(range(jmax + 1), ps[: jmax + 1]) for ps in curves)
        kind = draw(st.sampled_from(list(free)))
        taken = draw(st.integers(0, len(free[kind])))
        held, free[kind] = tuple(free[kind][:taken]), free[kind][taken:]
        drawn = Job(
            f"j{index}", 0, jmin, jmax, 1e6, 5.0, 5.0, usual, usual,
            by_kind={"b": (other[0], other[0])} if other else {},
        )  # fmt: skip
        starts = 1 + draw(st.integers(0, 25))
        views.append(JobView(drawn, taken, 0.0, starts=starts, held=held))
    return State(NOW_NS, units, views, holdings)


Choice = tuple[str, int]


def utilities(
    view: JobView, held: str, kinds: Sequence[str], p: float
) -> dict[Choice, float]:
    """By the letter of tests/rules/README.md, on nodes of one unit: of the configurations that are offered."""
    job = view.job
    rates = {kind: job.on(kind).rates.tolist() for kind in kinds}
    sizes = range(job.jmin, job.jmax + 1)
    most = max(job.jmin, 2 * view.units)
    least = min(rates[kind][n] for kind in kinds for n in sizes if n <= most)
    now = (held, view.units) if view.units in sizes else None
    worth = {("", 0): 0.0}
    for kind, n in itertools.product(kinds, sizes):
        goodput = job.jmin * rates[kind][n] / least
        if now is not None and (kind, n) != now:
            goodput *= max(600.0 - 30.0 * (view.starts - 1), 0.0) / 630.0
        if goodput and (n <= most or (kind, n) == now):
            worth[kind, n] = 1.1 - goodput**p if p < 0 else 1.1 + goodput**p
    return worth


@examples(60)
@given(states(), st.sampled_from([-0.5, -2.0, 1.0]), st.sampled_from([0.0, 0.01]))
def test_the_choice_is_the_best_of_all(
    state: State, power: float, quantum: float
) -> None:
    """On one kind as on two: no choice of configurations that fits is worth more."""
    machine = state.machine
    idle = machine.idle_by_kind() or {"": state.idle}
    held = [machine.kind_of(view.held[0]) if view.held else "" for view in state.jobs]
    worth = [
        utilities(view, kind, list(idle), power)
        for view, kind in zip(state.jobs, held, strict=True)
    ]
    if quantum:
        worth = [
            {
                c: 1.1 - round((1.1 - u) * 100) / 100 if c[1] else u
                for c, u in of.items()
            }
            for of in worth
        ]

    def fits(found: Sequence[Choice]) -> bool:
        return all(
            sum(n for on, n in found if on == kind) <= units
            for kind, units in idle.items()
        )

    def total(found: Sequence[Choice]) -> float:
        return math.fsum(of[choice] for of, choice in zip(worth, found, strict=True))

    best = max(total(found) for found in itertools.product(*worth) if fits(found))
    for ties in (0, 1):
        decision = Sia(power=power, quantum=quantum, ties=ties).decide(state)
        assert decision.counts is not None
        counts = [int(n) for n in decision.counts]
        kinds = [kind or "" for kind in decision.kinds] or [""] * len(counts)
        chosen = [(kind if n else "", n) for kind, n in zip(kinds, counts, strict=True)]
        assert fits(chosen)
        assert total(chosen) == pytest.approx(best, abs=1e-9 + ties * 1e-5)


def test_ties_are_drawn_with_a_seed() -> None:
    """Of two like jobs and a unit either may have it; without a seed it is always the first."""
    state = State(NOW_NS, 1, [JobView(job(name, [0.0, 10.0]), 0, 0.0) for name in "ab"])
    found = [Sia(ties=ties).decide(state).counts for ties in range(20)]
    assert found[0] == (1, 0)
    assert set(found) == {(1, 0), (0, 1)}
    assert found == [Sia(ties=ties).decide(state).counts for ties in range(20)]


def test_a_fitted_job_is_judged_on_a_kind_where_it_never_ran_by_one_unit_there(
    tmp_path: Path,
) -> None:
    """Units of kind `fast` are 4 times as fast, and their nodes larger: what was seen on slow ones is projected."""
    write_application(tmp_path / "traces" / "toy", fast=4.0)
    (one,) = workload(tmp_path / "traces", "a,0,toy,1,128")
    assert one.profile is not None
    nodes = {"slow": 4, "fast": 8}
    policy, dynamics = Sia(power=1.0, no_allocation=0.0), one.profile.start(tunes=True)
    view = JobView(one, 0, 0.0, dynamics=dynamics)
    # Nothing is known: one unit of any kind, all the same.
    assert policy.utilities(view, NOW_NS, nodes) == {"slow": {1: 1.0}, "fast": {1: 1.0}}
    rate, until = dynamics.rate((4,), 0.0, 0, kind="slow")
    assert until is not None
    dynamics.rate((4, 4), rate * until / SECOND_NS, until, kind="slow")
    found = policy.utilities(view, NOW_NS, nodes)
    assert list(found["slow"]) == list(found["fast"]) == [1, 2, 4, 8]
    assert found["slow"][1] == 1.0
    for n, utility in found["slow"].items():  # 8 fast units count as two nodes of 4
        assert found["fast"][n] == pytest.approx(4 * utility)


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
    assert Sia(freeze=True).decide(State(NOW_NS, 6, views)).counts == (4, 1)
    alone = State(NOW_NS, 4, views[:1])
    assert Sia(freeze=True).decide(alone).counts_in(alone) == (4,)


def test_a_policy_believes_the_restart_seconds_that_a_job_states() -> None:
    curve = [0.0, *(10.0 * n for n in range(1, 9))]
    stated = job("a", curve, policy_restart_s=120.0)
    views = [JobView(one, 2, 0.0, starts=1) for one in (stated, job("b", curve))]
    policy = Sia()
    policy._largest.update(a=2, b=2)
    found = [policy.utilities(view, NOW_NS, {"": 1})[""][4] for view in views]
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
        for running in replay._in_play.line:
            nodes = {unit // 4 for unit in running.units}
            assert len(nodes) == -(-len(running.units) // 4)
