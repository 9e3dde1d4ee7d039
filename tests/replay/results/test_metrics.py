"""Metrics against closed forms: fairness, spreads, equivalent nodes, and U on dedicated nodes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.milp import Solution
from bft.milp.problem import Status
from bft.models import Curve, Job, JobTable
from bft.replay.cli.main import run
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.policies import Decision, EqualShare, MilpPolicy, Policy, State
from bft.replay.policies.checking import make_world
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.solver import SolverOptions
from bft.replay.results.bounds import beside_bounds, bounds_of
from bft.replay.results.dedicated import dedicated_traces, equivalent_nodes
from bft.replay.results.headlines import headlines
from bft.replay.results.metrics import (
    ideal_rate,
    jain_fairness,
    mean_units,
    spread,
    summarise,
    without_units_s,
)
from bft.replay.results.run_directory import plain
from bft.replay.trace.node_trace import NodeTrace, always_idle, from_changes

SECOND = 1_000_000_000


def job(
    name: str,
    at: float = 0,
    pmax: float = 1e9,
    jmax: int = 4,
    up: float = 0,
    down: float = 0,
) -> Job:
    curve = Curve(np.array([0, jmax]), np.array([0.0, 10.0 * jmax]))
    return Job(name, round(at * SECOND), 1, jmax, pmax, up, down, curve, curve)


def trace(
    rows: Sequence[tuple[float, int, bool]], end: float, units_per_node: int = 1
) -> NodeTrace:
    return from_changes(
        [f"n{k}" for k in range(1 + max(n for _, n, _ in rows))],
        np.array([round(t * SECOND) for t, _, _ in rows], dtype=np.int64),
        np.array([n for _, n, _ in rows], dtype=np.int32),
        np.array([idle for *_, idle in rows], dtype=bool),
        end=round(end * SECOND),
        units_per_node=units_per_node,
    )


def replay(
    nodes: NodeTrace, *jobs: Job, policy: Policy | None = None, **rules: Any
) -> Outcome:
    return Replay(nodes, JobTable(jobs), policy or EqualShare(), Rules(**rules)).run()


def test_time_without_units_is_all_waiting_until_the_finish_or_the_end() -> None:
    # One node, idle in [0, 100) and [150, 400); a job of 1e9 never finishes, one of 2000 takes 200 s.
    nodes = trace([(0, 0, True), (100, 0, False), (150, 0, True)], end=400)
    alone = summarise(replay(nodes, job("a", at=0, pmax=2000.0, jmax=1)))
    assert alone["without_units_s"]["longest"] == pytest.approx(50)
    both = replay(
        nodes,
        job("a", at=0, pmax=2000.0, jmax=1),
        job("late", at=300, jmax=1),
        max_jobs=1,
    )
    waits = [without_units_s(record, both.end_ns) for record in both.records]
    assert waits == pytest.approx([50, 0])
    never = summarise(
        replay(nodes, job("a", at=-60, jmax=1), job("b", at=20, jmax=1), max_jobs=1)
    )
    assert never["without_units_s"]["longest"] == pytest.approx(380)
    assert never["without_units_s"]["mean"] == pytest.approx((110 + 380) / 2)


# --- who waits, and for how long --------------------------------------------------------------------------------------


def rigid(
    name: str, at: float, seconds: float, units: int = 1, user: str = "", **more: Any
) -> Job:
    """A job with this duration on this number of units, which runs on no other number."""
    curve = Curve(np.array([0, units]), np.array([0.0, 1.0]))
    return Job(
        name,
        round(at * SECOND),
        units,
        units,
        seconds,
        0,
        0,
        curve,
        curve,
        user=user,
        **more,
    )


def test_alone_on_all_it_can_use_a_job_is_served_as_fairly_as_on_dedicated_units() -> (
    None
):
    found = summarise(
        replay(always_idle(4, 0, 999 * SECOND), job("a", at=100, pmax=4000))
    )
    assert found["finish_time_fairness"] == dict.fromkeys(
        ("mean", "median", "p95", "p99", "largest"), 1.0
    )
    assert (
        found["finish_time_unfair_share"],
        found["longest_wait_s"],
        found["longest_wait_job"],
    ) == (0.0, 0.0, None)
    assert found["waiting_over_length"] == {"1 x": 0.0, "3 x": 0.0, "10 x": 0.0}


@pytest.mark.parametrize("count", [2, 5])
def test_of_equal_jobs_in_turn_the_first_is_served_better_than_its_share_and_the_last_as_by_it(
    count: int,
) -> None:
    # Job k of n (from 0) is done after 10 (k + 1) s. By then n - i jobs were there in turn i; on an equal share of the
    # unit it would run for 1 / (their mean) of the time.
    jobs = [rigid(f"j{k}", 0, 10) for k in range(count)]
    found = summarise(replay(always_idle(1, 0, 999 * SECOND), *jobs, policy=Fifo()))
    there = [np.mean([count - turn for turn in range(k + 1)]) for k in range(count)]
    ratios = [(k + 1) / there[k] for k in range(count)]
    assert found["finish_time_fairness"] == pytest.approx(
        {**(spread([float(ratio) for ratio in ratios]) or {}), "largest": max(ratios)}
    )
    assert found["finish_time_unfair_share"] == pytest.approx(
        sum(ratio > 1 for ratio in ratios) / count
    )
    assert (found["longest_wait_s"], found["longest_wait_job"]) == (
        10.0 * (count - 1),
        f"j{count - 1}",
    )
    longer = (
        sum(k > 1 for k in range(count)) / count,
        sum(k > 3 for k in range(count)) / count,
    )
    assert found["waiting_over_length"] == {
        "1 x": longer[0],
        "3 x": longer[1],
        "10 x": 0.0,
    }


@examples(30)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=6),
    st.integers(1, 3),
)
def test_finish_time_fairness_is_that_of_its_definition(
    rows: list[tuple[int, int]], nodes: int
) -> None:
    """Against sums over seconds: all instants of these jobs are whole seconds."""
    jobs = [rigid(f"j{k}", at, seconds) for k, (at, seconds) in enumerate(rows)]
    idle = trace(
        [(0, k, True) for k in range(nodes)] + [(15, 0, False), (25, 0, True)], 9999
    )
    outcome = replay(idle, *jobs, policy=Fifo())
    spans = [
        (r.job.tsub_ns // SECOND, (r.finish_ns or 0) // SECOND) for r in outcome.records
    ]
    ratios = []
    for (begin, end), record in zip(spans, outcome.records, strict=True):
        units = sum(nodes - (15 <= t < 25) for t in range(begin, end))
        present = sum(a <= t < b for t in range(begin, end) for a, b in spans)
        ratios.append((end - begin) * min(1.0, units / present) / record.job.pmax)
    found = summarise(outcome)["finish_time_fairness"]
    assert found["largest"] == pytest.approx(max(ratios))
    assert found["mean"] == pytest.approx(np.mean(ratios))


@pytest.mark.parametrize(
    ("units", "rate"),
    [
        (0.0, 0.0),
        (0.5, 16 * 0.5 / 3),
        (2.0, 16 * 2 / 3),
        (3.0, 16.0),
        (4.0, 16.0),
        (5.0, 22 * 5 / 6),
        (99.0, 22.0),
    ],
)
def test_a_share_of_units_is_used_at_the_best_size_for_a_part_of_the_time(
    units: float, rate: float
) -> None:
    """A third unit yields more than the first two: two units are used best as three for two thirds of the time."""
    curve = Curve(
        np.array([0, 2, 3, 4, 5, 6]), np.array([0.0, 10.0, 16.0, 16.0, 18.0, 22.0])
    )
    assert ideal_rate(
        Job("a", 0, 2, 6, 1.0, 0, 0, curve, curve), units
    ) == pytest.approx(rate)


def test_the_longest_wait_is_one_stretch_while_all_waits_add_up() -> None:
    nodes = trace(
        [(5, 0, True), (20, 0, False), (30, 0, True), (35, 0, False), (48, 0, True)],
        end=60,
    )
    found = summarise(
        replay(
            nodes,
            job("a", jmax=1),
            job("early", at=-2, pmax=10.0, jmax=1),
            job("never", at=70),
        )
    )
    # `early` has the unit from 5 to 6 s; a from then on, but not in [20, 30) and [35, 48).
    assert (found["longest_wait_s"], found["longest_wait_job"]) == (13.0, "a")
    assert found["without_units_s"]["longest"] == 6 + 10 + 13
    # Without a finish the wait lasts until the end.
    found = summarise(replay(nodes, job("a", jmax=1), job("waits", at=10), max_jobs=1))
    assert (found["longest_wait_s"], found["longest_wait_job"]) == (50.0, "waits")


def test_users_share_by_what_they_hold_while_they_have_jobs() -> None:
    # ann: 1 unit for 10 s of the 10 s in which she has jobs; bob: 2 units of 10 in 10 to 20 s, and 1 from 20 to 30 s.
    jobs = [
        rigid("a", 0, 10, user="ann", vc="x"),
        rigid("b", 10, 10, user="bob", vc="x"),
        rigid("c", 10, 10, user="bob", vc="x"),
        rigid("d", 20, 10, user="bob", vc="y"),
        rigid("e", 0, 30),
    ]
    found = summarise(replay(always_idle(9, 0, 999 * SECOND), *jobs, policy=Fifo()))
    ann, bob = 1.0, 30 / 20
    assert found["jain_fairness_of_users"] == pytest.approx(
        (ann + bob) ** 2 / 2 / (ann**2 + bob**2)
    )
    x, y = 30 / 20, 1.0
    assert found["jain_fairness_of_virtual_clusters"] == pytest.approx(
        (x + y) ** 2 / 2 / (x**2 + y**2)
    )
    nobody = summarise(replay(always_idle(1, 0, 999 * SECOND), job("a")))
    assert (
        nobody["jain_fairness_of_users"]
        is nobody["jain_fairness_of_virtual_clusters"]
        is None
    )


def test_deadlines_are_met_missed_or_open() -> None:
    due = [
        ("met", 10),
        ("late", 19),
        ("later", 21),
        ("early", 60),
        ("over", 45),
        ("open", 60),
    ]
    jobs = [rigid(name, 0, 10, deadline_ns=at * SECOND) for name, at in due]
    found = summarise(replay(always_idle(1, 0, 50 * SECOND - 1), *jobs, policy=Fifo()))[
        "deadlines"
    ]
    late = found.pop("late_s")
    assert found == {"jobs": 6, "met": 2, "missed": 3, "open": 1, "cancelled": 0}
    assert late["longest"] == pytest.approx(9)
    assert late["mean"] == pytest.approx((1 + 9 + 5) / 3)
    assert (
        summarise(
            replay(always_idle(1, 0, 50 * SECOND), rigid("a", 0, 10), policy=Fifo())
        )["deadlines"]
        is None
    )


def test_virtual_clusters_share_their_own_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each job has a whole virtual cluster to itself, of which one is a hundred times as large."""
    monkeypatch.chdir(tmp_path)
    Path("vcs.csv").write_text("vc,nodes,units_per_node\nsmall,1,1\nlarge,100,1\n")
    Path("jobs.csv").write_text(
        "name,vc,Tsub,Jmin,Jmax,Pmax,Tcup,Tcdw,Ns,Ps,Os\n"
        'a,small,2021-01-01,1,1,100,0,0,"[0,1]","[0,1]","[0,1]"\n'
        'b,large,2021-01-01,50,100,100,0,0,"[0,100]","[0,1]","[0,1]"\n'
    )
    assert (
        run(
            [
                "--cluster",
                "vcs.csv",
                "--jobs",
                "jobs.csv",
                "--policy",
                "equal-share",
                "--json",
            ]
        )
        == 0
    )
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert (
        metrics["finish_time_fairness"]["largest"]
        == metrics["finish_time_fairness"]["mean"]
        == pytest.approx(1.0)
    )


# --- fairness and spreads ---------------------------------------------------------------------------------------------


@given(st.integers(1, 20), st.floats(1e-3, 1e6))
def test_equal_shares_are_perfectly_fair(n: int, share: float) -> None:
    assert jain_fairness(np.full(n, share)) == pytest.approx(1.0)


@given(st.integers(1, 20), st.integers(0, 19), st.floats(1e-3, 1e6))
def test_if_one_job_has_everything_fairness_is_one_over_n(
    n: int, who: int, share: float
) -> None:
    shares = np.zeros(n)
    shares[who % n] = share
    assert jain_fairness(shares) == pytest.approx(1 / n)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=20).filter(
        lambda x: max(x) > 1e-3
    ),
    st.floats(0.1, 10),
)
def test_fairness_lies_between_one_in_n_and_one_whatever_the_unit(
    shares: list[float], factor: float
) -> None:
    found = jain_fairness(np.array(shares))
    assert found is not None
    assert 1 / len(shares) - 1e-9 <= found <= 1 + 1e-9
    assert jain_fairness(np.array(shares) * factor) == pytest.approx(found)


def test_fairness_of_nothing_has_no_value() -> None:
    assert jain_fairness(np.zeros(3)) is None
    assert jain_fairness(np.zeros(0)) is None


def test_a_spread_of_one_to_a_hundred_and_one() -> None:
    values = [float(v) for v in range(101, 0, -1)]
    assert spread(values) == {"mean": 51.0, "median": 51.0, "p95": 96.0, "p99": 100.0}


def test_a_spread_of_one_value_is_that_value() -> None:
    assert spread([7.0]) == {"mean": 7.0, "median": 7.0, "p95": 7.0, "p99": 7.0}
    assert spread([]) is None


# --- equivalent nodes and U -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("units_per_node", [1, 3])
@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_dedicated_nodes_are_equivalent_to_themselves(
    nodes: int, units_per_node: int
) -> None:
    outcome = replay(
        always_idle(nodes, 0, 100 * SECOND, units_per_node=units_per_node), job("a")
    )
    assert equivalent_nodes(outcome) == nodes
    (dedicated,) = dedicated_traces(outcome)
    assert (len(dedicated.nodes), dedicated.units_per_node) == (nodes, units_per_node)
    assert summarise(outcome)["eq_nodes"] == nodes


def test_equivalent_nodes_are_the_idle_nodes_on_average() -> None:
    outcome = replay(
        trace(
            [(0, 0, True), (0, 1, True), (0, 2, True), (60, 1, False), (60, 2, False)],
            100,
        ),
        job("a"),
    )
    assert summarise(outcome)["eq_nodes"] == pytest.approx((3 * 60 + 40) / 100)
    assert [len(nodes.nodes) for nodes in dedicated_traces(outcome)] == [2, 3]


def test_no_time_has_no_equivalent_nodes() -> None:
    outcome = replay(always_idle(3, 0, 100 * SECOND))
    assert equivalent_nodes(outcome) == 0
    assert dedicated_traces(outcome) == []


@pytest.mark.parametrize("policy", ["equal-share", "exact"])
@pytest.mark.parametrize("model", ["bftrainer", "stall"])
@pytest.mark.parametrize("nodes", [1, 5])
def test_u_is_one_where_the_trace_is_dedicated_nodes(
    nodes: int, model: Any, policy: str
) -> None:
    def once() -> Outcome:
        chosen = (
            EqualShare()
            if policy == "equal-share"
            else MilpPolicy(60.0, SolverOptions("exact"), cost_model=model)
        )
        jobs = [job("a", pmax=900, up=3, down=2), job("b", 10, up=3), job("c", 20, 700)]
        return replay(
            always_idle(nodes, 0, 300 * SECOND), *jobs, policy=chosen, cost_model=model
        )

    found = summarise(once(), [once()])
    assert found["U"] == 1.0
    assert found["dedicated_outcome"] == found["outcome"]


def compared(nodes: NodeTrace, *jobs: Job, **rules: Any) -> dict[str, Any]:
    """The summary of a replay with U."""
    outcome = replay(nodes, *jobs, **rules)
    return summarise(
        outcome,
        [replay(dedicated, *jobs, **rules) for dedicated in dedicated_traces(outcome)],
    )


@pytest.mark.parametrize(
    ("idle_s", "nodes"),
    [((50, 100), 1.5), ((40,), 0.4), ((10, 20, 100), 1.3), ((1,), 0.01)],
)
def test_u_of_few_nodes_lies_between_the_whole_numbers_around_them(
    idle_s: tuple[int, ...], nodes: float
) -> None:
    """One elastic job without costs gets the same out of node-time whenever it comes; rounding made 75 % or nothing."""
    rows = [(0, k, True) for k in range(len(idle_s))] + [
        (t, k, False) for k, t in enumerate(idle_s) if t < 100
    ]
    found = compared(trace(rows, 100), job("a"))
    assert found["eq_nodes"] == found["dedicated_nodes"] == pytest.approx(nodes)
    assert found["dedicated_outcome"] == pytest.approx(1000 * nodes)
    assert found["U"] == pytest.approx(1.0)
    assert found["U_at"] == "1970-01-01T00:01:40Z"


def test_from_five_nodes_on_u_compares_with_a_whole_number() -> None:
    rows = [(0, k, True) for k in range(6)] + [(40, 5, False)]
    found = compared(trace(rows, 100), job("a", jmax=9))
    assert (found["eq_nodes"], found["dedicated_nodes"]) == (pytest.approx(5.4), 5)
    assert found["U"] == pytest.approx(5.4 / 5)


def test_hours_before_the_first_job_count_neither_for_u_nor_for_the_used_share() -> (
    None
):
    """Three nodes are idle before the job comes, one after: it was 25 % of three nodes for the day, and U 33 %."""
    rows = [(0, 0, True), (0, 1, True), (0, 2, True), (300, 1, False), (300, 2, False)]
    found = compared(trace(rows, 400), job("a", at=300))
    assert (found["window_start"], found["window_end"]) == (
        "1970-01-01T00:05:00Z",
        "1970-01-01T00:06:40Z",
    )
    assert (
        found["duration_s"],
        found["eq_nodes"],
        found["used_share"],
        found["U"],
    ) == (100.0, 1.0, 1.0, 1.0)
    assert found["resource_integral_unit_s"] == found["used_unit_s"] == 100.0
    assert found["offered_unit_s"] == 3 * 300 + 100
    # Few nodes before it comes, and many after: U was 400 %.
    rows = [(0, 0, True), *((300, k, True) for k in range(1, 10))]
    found = compared(trace(rows, 310), job("a", at=300, jmax=10))
    assert (found["eq_nodes"], found["U"]) == (10.0, 1.0)


def test_u_is_taken_when_the_first_of_the_two_has_done_all_jobs() -> None:
    # 600 samples; 10/s, but for 10 s without a node. Nine tenths of a node are busy for 60 s of 70 s.
    rows = (
        [(0, k, True) for k in range(7)]
        + [(10, k, False) for k in range(7)]
        + [(20, k, True) for k in range(7)]
    )
    jobs = (job("a", pmax=600, jmax=1), job("b", pmax=300, jmax=1))
    found = compared(trace(rows, 999), *jobs)
    assert (found["duration_s"], found["dedicated_nodes"]) == (70.0, 6)
    assert (found["U_at"], found["dedicated_outcome"]) == (
        "1970-01-01T00:01:00Z",
        900.0,
    )
    assert found["U"] == pytest.approx((500 + 300) / 900)
    # A job that comes only after the end keeps nobody from having done all jobs.
    late = compared(trace(rows, 70), *jobs, job("c", at=71))
    assert (late["U_at"], late["U"]) == (found["U_at"], found["U"])


def test_of_jobs_that_are_left_out_those_count_that_were_submitted() -> None:
    table = JobTable((job("a", at=0), job("too-large", at=5), job("later", at=500)))
    nodes = trace([(0, 0, True)], 80)
    outcome = Replay(nodes, table, EqualShare(), Rules(), without={1, 2}).run()
    sizes = summarise(outcome, [])["census"]
    assert (sizes["jobs"], sizes["submitted"], sizes["left_out"]) == (3, 2, 1)


def test_jobs_that_are_left_out_neither_open_the_window_nor_keep_u_from_the_last_finish() -> (
    None
):
    table = JobTable(
        (
            job("too-large", at=0),
            job("a", at=10, pmax=300, jmax=1),
            job("b", at=90, pmax=1),
        )
    )

    def once(nodes: NodeTrace) -> Outcome:
        return Replay(nodes, table, EqualShare(), Rules(), without={0}).run()

    outcome = once(trace([(0, 0, True), (20, 0, False), (30, 0, True)], 80))
    assert (outcome.start_ns, outcome.end_ns) == (10 * SECOND, 80 * SECOND)
    found = summarise(outcome, [once(nodes) for nodes in dedicated_traces(outcome)])
    assert found["U_at"] == "1970-01-01T00:00:40Z"
    assert found["U"] == pytest.approx(200 / (300 * 60 / 70))


def test_u_at_the_earlier_finish_counts_the_stalls_by_then() -> None:
    # Stalled from 20 to 50 s by its restart; the dedicated one is done at 35 s.
    rows = [(0, 0, True), (10, 0, False), (20, 0, True)]
    found = compared(
        trace(rows, 999),
        job("a", pmax=300, jmax=1),
        start_overhead_s=5.0,
        restart_overhead=((9, 30.0),),
    )
    assert found["duration_s"] == 20 + 30 + 25
    assert found["eq_nodes"] == found["dedicated_nodes"] == pytest.approx(65 / 75)
    assert found["U_at"] == "1970-01-01T00:00:35Z"
    assert found["U"] == pytest.approx(50 / (300 * 65 / 75))
    assert (found["start_cost"], found["restart_cost"], found["rescale_cost"]) == (
        50.0,
        300.0,
        0.0,
    )


def test_jobs_from_before_the_trace_are_in_the_system_from_its_begin() -> None:
    outcome = replay(trace([(0, 0, True)], 100), job("a", at=-1000))
    assert summarise(outcome)["duration_s"] == 100.0
    assert mean_units(outcome.records[0], outcome.start_ns, outcome.end_ns) == 1.0


def test_u_is_unknown_without_a_second_replay_or_with_one_that_does_nothing() -> None:
    outcome = replay(always_idle(1, 0, 100 * SECOND), job("a"))
    assert [
        summarise(outcome)[key]
        for key in ("U", "U_at", "dedicated_nodes", "dedicated_outcome")
    ] == [None] * 4
    idle = replay(always_idle(1, 0, 100 * SECOND), job("a", at=200))
    assert summarise(outcome, [idle])["U"] is None


def test_what_had_been_done_after_the_end_is_not_known() -> None:
    outcome = replay(always_idle(1, 0, 100 * SECOND), job("a"))
    with pytest.raises(ValueError, match="ended"):
        outcome.work_at(101 * SECOND)


# --- the rest of the summary ------------------------------------------------------------------------------------------


def test_a_summary_by_hand() -> None:
    # a: 2 units, 1 from 20 s on (preempted: 2 s at 20/s), finishes at 20 + (500 - 360) / 10 = 34 s; b at 34 + 26 s.
    nodes = trace([(0, 0, True), (0, 1, True), (20, 1, False)], 100)
    jobs = (
        job("a", pmax=500, jmax=2, down=2),
        job("b", at=20, pmax=260, jmax=1),
        job("c", at=200),
    )
    found = summarise(replay(nodes, *jobs))
    assert found["outcome"] == 760.0
    assert found["offered_unit_s"] == 120.0
    assert found["duration_s"] == 100.0
    assert found["resource_integral_unit_s"] == 120.0
    assert found["used_unit_s"] == 40 + 14 + 26
    assert found["used_share"] == pytest.approx(80 / 120)
    assert found["unit_hours"] == pytest.approx(80 / 3600)
    assert found["preemption_cost"] == 40.0
    assert (found["preemptions"], found["rescales"], found["rescale_cost"]) == (
        1,
        0,
        0.0,
    )
    assert found["return_on_rescale"] is None
    assert [
        found[k] for k in ("jobs", "jobs_submitted", "jobs_started", "jobs_finished")
    ] == [3, 2, 2, 2]
    assert found["jct_s"]["mean"] == pytest.approx((34 + 40) / 2)
    assert found["queueing_s"]["mean"] == pytest.approx((0 + 14) / 2)
    assert found["makespan_s"] is None  # c has not finished
    assert found["decisions_by_status"] == {"decided": found["decisions"]}
    a, b = 54 / 34, 26 / 40
    assert found["jain_fairness_of_mean_units"] == pytest.approx(
        (a + b) ** 2 / 2 / (a * a + b * b)
    )


def test_the_makespan_spans_the_first_submit_and_the_last_finish() -> None:
    found = summarise(
        replay(always_idle(1, 0, 99 * SECOND), job("a", 5, 100, 1), job("b", 3, 100, 1))
    )
    assert found["makespan_s"] == 20.0


def test_a_restart_is_a_start_after_the_first() -> None:
    nodes = trace(
        [(0, 0, True), (10, 0, False), (20, 0, True), (30, 0, False), (40, 0, True)], 50
    )
    assert summarise(replay(nodes, job("a")))["restarts_per_job"] == 2.0


def test_restarts_are_counted_per_job_that_started() -> None:
    nodes = trace([(0, 0, True), (10, 0, False), (20, 0, True)], 50)
    jobs = (job("a"), job("waits"), job("never", at=90))
    assert summarise(replay(nodes, *jobs, max_jobs=1))["restarts_per_job"] == 1.0
    assert summarise(replay(nodes, job("never", at=90)))["restarts_per_job"] is None


def test_the_return_on_a_rescale_is_what_it_brought_over_what_it_cost() -> None:
    class Grow:
        name = "grow"

        def decide(self, state: State) -> Decision:
            return Decision((1 if state.time_ns == 0 else 2,))

    nodes = trace([(0, 0, True), (10, 1, True)], 30)
    found = summarise(replay(nodes, job("a", up=3), policy=Grow()))
    assert found["rescale_cost"] == 30.0
    assert found["return_on_rescale"] == pytest.approx(10 * 20 / 30)


def test_the_return_on_rescales_counts_neither_starts_nor_overheads() -> None:
    class Plan:
        name = "plan"

        def decide(self, state: State) -> Decision:
            first = 1 if state.time_ns < 20 * SECOND else 2
            return Decision((first, *(1 for _ in state.jobs[1:]))[: len(state.jobs)])

    # No rescale: starts, one of them with an overhead, have no return.
    nodes = trace([(0, 0, True), (0, 1, True), (20, 2, True)], 30)
    alone = replay(
        trace([(0, 0, True), (10, 0, False), (11, 0, True)], 20),
        job("a"),
        start_overhead_s=5.0,
    )
    assert summarise(alone)["return_on_rescale"] is None
    assert summarise(alone)["start_cost"] == 50.0
    # At 20 s a grows from 10/s to 20/s, and c starts: only what a gains is the rescale's.
    nodes = trace([(0, 0, True), (0, 1, True), (20, 2, True), (20, 3, True)], 30)
    jobs = (job("a", up=3), job("b"), job("c", at=20))
    found = summarise(replay(nodes, *jobs, policy=Plan()))
    assert (found["rescales"], found["rescale_cost"]) == (1, 30.0)
    assert found["return_on_rescale"] == pytest.approx(10 * 10 / 30)
    # The same with stalls: 3 s at 20/s for a rescale; those for starts are no price of it.
    found = summarise(replay(nodes, *jobs, policy=Plan(), cost_model="stall"))
    assert (found["rescale_cost"], found["stall_cost"]) == (0.0, 30.0 + 60.0)
    assert found["return_on_rescale"] == pytest.approx(10 * 10 / 60)


def test_each_kind_of_loss_has_a_book_of_its_own_and_stalls_are_counted_once() -> None:
    # Start: Tcup 4 s, the overhead goes on to 10 s. A preemption at 6 s stalls to 18 s: 10 to 18 s are its own.
    nodes = trace([(0, 0, True), (0, 1, True), (6, 1, False)], 30)
    found = summarise(
        replay(
            nodes, job("a", up=4, down=12), cost_model="stall", start_overhead_s=10.0
        )
    )
    assert found["stall_cost"] == 4 * 20
    assert found["start_cost"] == 2 * 20 + 4 * 10
    assert found["preemption_cost"] == 8 * 10
    assert found["outcome"] == 12 * 10


@pytest.mark.parametrize(
    ("objective", "bound", "gap"),
    [
        (90.0, 100.0, 0.1),
        (100.0, 100.0, 0.0),
        (100.0, 99.0, 0.0),
        (0.25, 0.75, 0.5),
        (-30.0, -20.0, 0.5),
        (1.0, math.inf, math.nan),
        (1.0, math.nan, math.nan),
        (math.nan, math.nan, math.nan),
    ],
)
def test_the_gap_of_a_step_is_what_its_answer_may_lack_of_its_bound(
    objective: float, bound: float, gap: float
) -> None:
    class Tells:
        name = "tells"

        def decide(self, state: State) -> Decision:
            return Decision(
                (1,),
                solution=Solution("feasible", (1,), objective, bound, "cbc", "modes"),
            )

    steps = replay(trace([(0, 0, True)], 10), job("a"), policy=Tells()).steps
    assert steps["gap"].iloc[0] == pytest.approx(gap, nan_ok=True)
    assert math.isnan(steps["gap"].iloc[-1])


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((100.0, 100.0), (0, 0.0, 0.0)),
        ((100.0, 200.0), (0, 0.25, 0.5)),
        ((125.0, math.inf), (1, 0.2, 0.2)),
        ((math.inf, math.nan), (2, None, None)),
    ],
)
@pytest.mark.parametrize("status", ["feasible", "optimal"])
def test_a_summary_states_the_gaps_of_decisions_that_are_not_proven(
    bounds: tuple[float, float],
    expected: tuple[int, float | None, float | None],
    status: Status,
) -> None:
    left = list(bounds)

    class Tells:
        name = "tells"

        def decide(self, state: State) -> Decision:
            answer = Solution(status, (1,), 100.0, left.pop(0), "cbc", "modes")
            return Decision((1,), solution=answer)

    nodes = trace([(0, 0, True), (5, 1, True)], 10)
    found = summarise(replay(nodes, job("a"), policy=Tells()))
    said = dict(headlines(found)).get("not proven", "")
    if status == "optimal":
        assert "decisions_unproven" not in found
        assert not said
        return
    without_bound, mean, largest = expected
    assert found["decisions_unproven"] == {
        "count": 2,
        "without_bound": without_bound,
        "gap_mean": mean if mean is None else pytest.approx(mean),
        "gap_largest": largest if largest is None else pytest.approx(largest),
    }
    assert said.startswith("2 decisions")
    assert said.endswith(f"no bound is known for {without_bound}")
    assert ("at most - below the optimum" in said) == (largest is None)


def test_mean_units_count_from_submission_to_finish_or_end() -> None:
    outcome = replay(
        always_idle(2, 0, 100 * SECOND), job("a", pmax=200), job("b", at=50)
    )
    assert mean_units(outcome.records[0], 0, outcome.end_ns) == pytest.approx(2.0)
    assert mean_units(outcome.records[1], 0, outcome.end_ns) == pytest.approx(2.0)
    assert mean_units(outcome.records[1], 0, 50 * SECOND) == 0.0


def test_startup_shares_are_cut_where_the_replay_ended() -> None:
    found = summarise(
        replay(always_idle(1, 0, 1000 * SECOND), job("a", pmax=1000, jmax=1))
    )
    assert found["duration_s"] == 100.0
    assert found["share_outliving_startup"] == pytest.approx(
        {"30 s": 0.7, "60 s": 0.4, "120 s": 0.0, "300 s": 0.0}
    )


def test_startup_shares_are_cut_where_the_window_begins() -> None:
    nodes = trace([(0, 0, True), (40, 1, True), (60, 1, False), (95, 1, True)], 200)
    found = summarise(replay(nodes, job("a", at=100, jmax=1, pmax=1000)))
    # 100 s of a node, and the same of the other: of both the first of their time had passed.
    assert found["share_outliving_startup"]["30 s"] == pytest.approx(0.7)


def test_shares_of_no_idle_time_are_unknown() -> None:
    found = summarise(
        replay(trace([(0, 0, True), (10, 0, False)], 50), job("a", at=20))
    )
    assert (found["resource_integral_unit_s"], found["used_share"]) == (0.0, None)
    assert set(found["share_outliving_startup"].values()) == {None}


@pytest.mark.parametrize("seed", range(12))
def test_a_summary_depends_neither_on_the_order_of_jobs_nor_on_the_names_of_nodes(
    seed: int,
) -> None:
    """Sums are exact, so that they have the same last digit in any order."""
    made = make_world(seed)
    kinds = tuple("ab"[k % 2] for k in range(len(made.trace.nodes)))
    trace = replace(made.trace, kinds=kinds if seed % 3 == 0 else ())
    # No two jobs come at once: of these the first in the table has precedence.
    jobs = [
        replace(job, tsub_ns=job.tsub_ns + 1_000_003 * k)
        for k, job in enumerate(made.jobs)
    ]
    names = tuple(f"node {len(kinds) - k}" for k in range(len(kinds)))
    order = np.random.default_rng(seed).permutation(len(jobs)).tolist()
    shuffled = [jobs[position] for position in order]
    found = []
    for nodes, rows in ((trace, jobs), (replace(trace, nodes=names), shuffled)):
        table = JobTable(tuple(rows))
        policy = MilpPolicy(60.0, SolverOptions("exact"))
        outcome = Replay(nodes, table, policy, made.rules).run()
        bounds = beside_bounds(outcome, bounds_of([(nodes, table)]))
        found.append(summarise(outcome) | bounds | {"longest_wait_job": None})
    assert found[0] == found[1]


def test_a_summary_of_nothing_is_plain_json() -> None:
    found = summarise(replay(always_idle(3, 0, 100 * SECOND)))
    assert found["used_share"] is None
    assert found["jct_s"] is None
    json.dumps(found, allow_nan=False)


def test_plain_turns_nan_and_infinity_into_null() -> None:
    assert plain({"a": [math.nan, (math.inf, -math.inf)], 1: {"b": 1.5}}) == {
        "a": [None, [None, None]],
        "1": {"b": 1.5},
    }
