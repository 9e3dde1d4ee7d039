"""No policy exceeds the bound: neither ours, nor the best schedule by enumeration; random ones: `tests/rules`."""

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from rules.drawn import any_rules, tables, traces
from rules.whims import Whimsical, WhimsicalRigid, allowed_sizes
from rules.world import SECOND
from scipy.optimize import linprog
from small_traces import of_seconds
from test_engine_sharing import interference, world
from worlds import cluster, known, make

from bft.models import Curve, Job, JobTable, read_published_jobs
from bft.models.searches.searches import SuccessiveHalving
from bft.replay import (
    EqualShare,
    MilpPolicy,
    MilpSharingPolicy,
    NodeTrace,
    Outcome,
    Replay,
    Rules,
    SolverOptions,
    read_trace,
    summarise,
)
from bft.replay.policies.checking import World, make_world
from bft.replay.policies.registry import BUILT_IN, policy_type
from bft.replay.results.bounds import (
    Bounds,
    beside_bounds,
    bounds_of,
    idle_by_kind,
    idle_units,
    work_of,
)
from bft.replay.results.census import census_figures, census_of

# What the engine rounds: a job is done that lacks 1e-12 of its work.
ROUNDING = 1e-9


def nobody_beats(bounds: Bounds, outcome: Outcome) -> None:
    metrics = beside_bounds(outcome, bounds)
    assert outcome.work <= metrics["bound"] * (1 + ROUNDING)
    if metrics["jct_to_end_mean_s"] is not None and bounds.jct_mean_s is not None:
        assert metrics["jct_to_end_mean_s"] >= bounds.jct_mean_s - 1e-6
    finishes = [record.finish_ns for record in outcome.records]
    if None not in finishes:
        first = min(record.job.tsub_ns for record in outcome.records)
        assert max(finishes) - first >= bounds.makespan_s * SECOND - 1e3


# --- no policy --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@examples(50)
@given(traces(), tables(few=True), any_rules, st.integers(0, 9))
def test_no_policy_beats_them(
    trace: NodeTrace, jobs: JobTable, rules: Rules, seed: int
) -> None:
    rules = replace(rules, admission="all")
    bounds = bounds_of([(trace, jobs)])
    exact = MilpPolicy(10.0, SolverOptions("exact"), cost_model=rules.cost_model)
    for policy in (Whimsical(seed), WhimsicalRigid(seed), EqualShare(), exact):
        nobody_beats(bounds, Replay(trace, jobs, policy, rules).run())


@cache
def checked_world(seed: int, *, heavy: bool) -> World:
    made = make_world(seed)
    jobs = [replace(job, pmax=job.pmax * (5 if heavy else 1)) for job in made.jobs]
    return replace(made, jobs=JobTable(tuple(jobs)))


@cache
def bounds_in(seed: int, *, heavy: bool, shares: bool) -> Bounds:
    made = checked_world(seed, heavy=heavy)
    return bounds_of([(made.trace, made.jobs)], made.interference if shares else None)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "schedule"])
def test_no_built_in_policy_beats_them(name: str, seed: int) -> None:
    kind, heavy = policy_type(name), seed > 2
    made = checked_world(seed, heavy=heavy)
    quick = {"population": "10", "generations": "4"} if name == "pollux" else {}
    solver = SolverOptions("auto" if "sharing" in name else "exact")
    policy = kind.make(made.settings() | {"solver": solver}, quick)
    outcome = Replay(made.trace, made.jobs, policy, made.rules, made.interference).run()
    assert outcome.work > 0
    shares = "interference" in kind.settings
    nobody_beats(bounds_in(seed, heavy=heavy, shares=shares), outcome)


@pytest.mark.parametrize("name", ["equal-share", "fifo", "milp", "tiresias-l"])
def test_no_policy_that_refuses_jobs_beats_them(name: str) -> None:
    """Refused jobs count in the bound of the outcome, as another policy may have them admitted; and in no time."""
    some = 0
    for seed in range(6):
        made = checked_world(seed, heavy=True)
        settings = made.settings() | {"solver": SolverOptions("exact")}
        rules = replace(made.rules, admission="deadline")
        policy = policy_type(name).make(settings)
        outcome = Replay(made.trace, made.jobs, policy, rules).run()
        census = census_of(outcome.records, outcome.end_ns)
        refused = [record.job.name for record in census["refused"]]
        some += len(refused)
        bounds = bounds_of([(made.trace, made.jobs)], refused=refused)
        nobody_beats(bounds, outcome)
        assert bounds.bound == bounds_in(seed, heavy=True, shares=False).bound
        assert beside_bounds(outcome, bounds)["jct_to_end_mean_s"] > 0
    assert some > 10


def test_no_search_beats_the_outcome_of_all_jobs_that_it_submitted() -> None:
    """Stopped trials did a part of their work; no bound on times is known, as it depends on who is stopped."""
    stopped = 0
    for seed in range(6):
        made, search = checked_world(seed, heavy=False), SuccessiveHalving(2, 2)
        given = (made.trace, made.jobs, EqualShare(), made.rules)
        outcome = Replay(*given, workload=search).run()
        jobs = JobTable(tuple(record.job for record in outcome.records))
        assert outcome.work <= bounds_of([(made.trace, jobs)]).bound * (1 + ROUNDING)
        sizes = census_figures(census_of(outcome.records, outcome.end_ns))
        apart = ("left_out", "refused", "submitted_at_the_end", "in_system")
        assert sum(sizes[of] for of in apart) == sizes["submitted"]
        stopped += sizes["cancelled"]
    assert stopped > 5


@pytest.mark.parametrize("seed", range(6))
def test_milp_sharing_does_not_beat_the_bound_by_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trace, jobs = world(rng, events=40)
    between = interference(rng, by_units=seed in (1, 2, 4))
    if seed % 2:  # more than there is time for
        jobs = JobTable(tuple(replace(job, pmax=job.pmax * 10) for job in jobs))
    bounds = bounds_of([(trace, jobs)], between)
    policy = MilpSharingPolicy(120.0, interference=between)
    nobody_beats(bounds, Replay(trace, jobs, policy, Rules(6), between).run())


@pytest.mark.parametrize("gib", [0.0, 2.0, 4.0])
def test_two_that_fit_into_a_unit_and_share_it_at_no_cost_reach_the_bound(
    gib: float,
) -> None:
    # Two of model b may not share.
    forbidden = frozenset({frozenset({"b"})})
    limit = {"unit_memory_gib": 5.0, "forbidden": forbidden} if gib else {}
    between = known({("a", "b"): (1.25, 1.6), ("b", "b"): (1.0, 1.0)}, **limit)
    a = make("a", [0, 10], model="a", memory_gib=2.0)
    others = [make(f"b{k}", [0, 10], model="b", memory_gib=gib + k) for k in range(3)]
    jobs = JobTable((a, *(others if gib else others[:1])))
    gain = 1 / 1.25 + 1 / 1.6 if gib < 4 else 1.0
    bound = bounds_of([(cluster(1, 1, 100), jobs)], between).bound
    assert bound == pytest.approx(100 * 10 * gain)


# --- no schedule at all -----------------------------------------------------------------------------------------------


def time_expanded(trace: NodeTrace, jobs: JobTable, cap: int) -> float:
    """The most samples that any schedule does where changes are free: all allocations in all stretches, enumerated."""
    instants = {trace.start, trace.end, *trace.times, *(job.tsub_ns for job in jobs)}
    inside = sorted(at for at in instants if trace.start <= at <= trace.end)
    idle, event = 0, 0
    sizes = [[0, *allowed_sizes(job)] for job in jobs]
    columns, stretches = [], []
    for stretch, (begin, end) in enumerate(itertools.pairwise(inside)):
        while event < len(trace) and trace.times[event] <= begin:
            change = len(trace.joins(event)) - len(trace.leaves(event))
            idle += change * trace.units_per_node
            event += 1
        seconds = (end - begin) / SECOND
        for counts in itertools.product(*sizes):
            each = [*zip(jobs, counts, strict=True)]
            running = [job for job, n in each if n]
            come = all(job.tsub_ns <= begin for job in running)
            if sum(counts) <= idle and len(running) <= cap and come:
                columns.append([seconds * job.scalability.at(n) for job, n in each])
                stretches.append(stretch)
    if not columns:
        return 0.0
    done = np.array(columns).T
    share = np.equal.outer(np.arange(len(inside) - 1), stretches).astype(float)
    limits = np.concatenate([[job.pmax for job in jobs], np.ones(len(share))])
    found = linprog(-done.sum(axis=0), A_ub=np.vstack([done, share]), b_ub=limits)
    assert found.status == 0
    return float(-found.fun)


@examples(80)
@given(traces(), tables(few=True), st.integers(1, 3))
def test_it_holds_for_the_best_schedule(
    trace: NodeTrace, jobs: JobTable, cap: int
) -> None:
    bound = bounds_of([(trace, jobs)]).bound
    assert bound is not None
    assert time_expanded(trace, jobs, cap) <= bound * (1 + ROUNDING) + ROUNDING


@examples(50)
@given(traces(), tables(few=True))
def test_the_bound_is_met_where_jobs_scale_without_loss(
    trace: NodeTrace, jobs: JobTable
) -> None:
    most = max(1, int(idle_units(trace).rates.max(initial=0)))
    bounds = {"jmin": 1, "jmax": most, "jreq": None, "sizes": None}
    linear = [
        replace(job, scalability=Curve([0, most], [0, 2.0 * most * k]), **bounds)
        for k, job in enumerate(jobs, start=1)
    ]
    table = JobTable(tuple(linear))
    best = time_expanded(trace, table, len(jobs))
    assert bounds_of([(trace, table)]).bound == pytest.approx(best, rel=1e-6, abs=1e-9)


# --- parts ------------------------------------------------------------------------------------------------------------


@cache
def least_sum(
    remaining: tuple[int, ...],
    submits: tuple[int, ...],
    idle: tuple[int, ...],
    now: int,
) -> int:
    """The least sum of completions on one unit, second by second."""
    if now == len(idle) or not any(remaining):
        return len(idle) * sum(left > 0 for left in remaining)
    choices = [least_sum(remaining, submits, idle, now + 1)]
    for j, left in enumerate(remaining):
        if left and idle[now] and submits[j] <= now:
            after = (*remaining[:j], left - 1, *remaining[j + 1 :])
            choices.append(
                least_sum(after, submits, idle, now + 1) + (now + 1 if left == 1 else 0)
            )
    return min(choices)


@examples(50)
@given(
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), min_size=1, max_size=3),
)
def test_on_one_unit_the_bound_of_completions_equals_enumeration(
    idle: list[bool], given_jobs: list[tuple[int, int]]
) -> None:
    works, submits = zip(
        *((w, min(at, len(idle) - 1)) for w, at in given_jobs), strict=True
    )
    curve = Curve([0, 1], [0, 1])
    jobs = tuple(
        Job(str(k), at * SECOND, 1, 1, float(work), 0.0, 0.0, curve, curve)
        for k, (work, at) in enumerate(zip(works, submits, strict=True))
    )
    bounds = bounds_of([(of_seconds(np.array([idle])), JobTable(jobs))])
    best = least_sum(works, submits, tuple(map(int, idle)), 0)
    assert bounds.jct_mean_s == pytest.approx((best - sum(submits)) / len(jobs))
    # The unit works whenever somebody is there.
    left, done = 0, None
    for second, there in enumerate(idle):
        left += sum(w for w, at in zip(works, submits, strict=True) if at == second)
        left -= bool(left and there)
        if not left and second >= max(submits) and done is None:
            done = second + 1
    assert bounds.makespan_s == (None if done is None else done - min(submits))


def test_virtual_clusters_share_nothing() -> None:
    pools = [
        (
            cluster(nodes, 1, 100),
            JobTable((make(f"j{nodes}", [0, 2], at=nodes, pmax=1000 / nodes**3),)),
        )
        for nodes in (1, 3)
    ]
    bounds = bounds_of(pools)
    assert bounds.bound == pytest.approx(198 + 1000 / 27)
    assert bounds.jct_mean_s == pytest.approx((99 + 500 / 27) / 2)
    assert bounds.makespan_s is None
    assert bounds_of(pools, without=["j1"]).makespan_s == pytest.approx(500 / 27)
    assert bounds_of(pools, without=["j1", "j3"]) == Bounds(0.0)


def test_jobs_without_a_curve_have_no_bound() -> None:
    class Measured:
        def start(self, *, tunes: bool) -> Any:
            raise AssertionError("nobody runs it")

    job = make("j", [0, 2], pmax=10, profile=Measured())
    bounds = bounds_of([(cluster(1, 1, 1), JobTable((job,)))])
    assert bounds.bound is bounds.jct_mean_s is None
    assert bounds.why_none == (
        "no bound is known: 1 of the jobs follow a measured profile, not a curve"
    )


@pytest.mark.slow
@pytest.mark.reference
def test_the_published_workload_on_512_nodes(reference: Path) -> None:
    """Against figures found by another programme for the same mathematics."""
    folder = reference / "bftrainer"
    tables = (folder / f"ImageNet-imgps-{of}-1001J.pkl" for of in ("Jbnd", "JNPs"))
    log = folder / "ndstat-10sdn6-evt.tar.gz"
    trace = read_trace(log, node_count=512, skip_rows=1000)
    bounds = bounds_of([(trace, read_published_jobs(*tables))])
    assert bounds.bound == pytest.approx(125.1e9, rel=1e-3)
    assert bounds.jct_mean_s == pytest.approx(117.6 * 3600, rel=1e-3)


# --- several kinds of units -------------------------------------------------------------------------------------------

KINDS = ("a", "b", "c")


@st.composite
def worlds_of_kinds(draw: st.DrawFn) -> tuple[NodeTrace, JobTable]:
    """A trace whose nodes are of up to three kinds, and jobs that gain different factors from some of them."""
    trace, jobs = draw(traces()), draw(tables(few=True))
    kinds, factors = st.sampled_from(KINDS), st.sampled_from([0.0, 0.5, 2.0, 4.0])
    on = tuple(draw(kinds) for _ in trace.nodes)
    made = []
    for job in jobs:
        by_kind = {
            kind: tuple(
                Curve(curve.ns, factor * curve.ps)
                for curve in (job.scalability, job.objective)
            )
            for kind, factor in draw(st.dictionaries(kinds, factors)).items()
        }
        made.append(replace(job, by_kind=by_kind))
    return replace(trace, kinds=on), JobTable(tuple(made))


@given(worlds_of_kinds(), any_rules)
def test_milp_does_not_beat_the_bounds_by_kind(
    world: tuple[NodeTrace, JobTable], rules: Rules
) -> None:
    rules = replace(rules, admission="all")
    policy = MilpPolicy(10.0, SolverOptions("exact"), cost_model=rules.cost_model)
    outcome = Replay(*world, policy, rules).run()
    nobody_beats(bounds_of([world]), outcome)
    metrics = summarise(outcome)
    kinds = pd.DataFrame(metrics["kinds"]).sum(axis=1)
    assert kinds["units"] == outcome.trace.units
    whole = metrics["resource_integral_unit_s"], metrics["used_unit_s"]
    assert tuple(kinds[["idle_unit_s", "used_unit_s"]]) == pytest.approx(whole)


def by_a_dense_programme(trace: NodeTrace, jobs: JobTable) -> float:
    """The same programme with a row for each kind and instant of submission, and a column for each job and kind."""
    kinds = idle_by_kind(trace)
    work = work_of(trace, [job for job in jobs if job.tsub_ns < trace.end], kinds)
    count, width = len(work.submit), len(kinds)
    if not count:
        return 0.0
    rates = work.per_unit
    rows = [
        np.kron(np.eye(count)[j], np.ones(width)) * np.tile(rates[j], count)
        for j in range(count)
    ]
    most = work.limit.tolist()
    for release in np.unique(work.release):
        for k, supply in enumerate(kinds.values()):
            rows.append(np.kron(work.release >= release, np.eye(width)[k]))
            most.append(supply.total - float(supply.until(release)))
    return -float(linprog(-rates.ravel(), A_ub=np.array(rows), b_ub=most).fun)


@given(worlds_of_kinds())
def test_the_bound_is_the_optimum_of_the_dense_programme(
    world: tuple[NodeTrace, JobTable],
) -> None:
    bound = bounds_of([world]).bound
    assert bound == pytest.approx(by_a_dense_programme(*world), rel=1e-6, abs=1e-6)


@given(traces(), tables(few=True))
def test_with_one_kind_the_bounds_are_the_usual_ones(
    trace: NodeTrace, jobs: JobTable
) -> None:
    usual = bounds_of([(trace, jobs)])
    one = bounds_of([(replace(trace, kinds=("a",) * len(trace.nodes)), jobs)])
    assert one.bound == pytest.approx(usual.bound, rel=1e-6, abs=1e-9)
    times = (usual.jct_mean_s, usual.makespan_s)
    assert (one.jct_mean_s, one.makespan_s) == times
