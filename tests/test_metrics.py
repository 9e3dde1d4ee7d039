"""Metrics against closed forms: fairness, spreads, equivalent nodes, and U on dedicated nodes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bft.models import Curve, Job, JobTable
from bft.replay.engine import Replay, Rules
from bft.replay.ledger import Outcome
from bft.replay.metrics import equivalent_nodes, jain_fairness, mean_units, spread, summarise
from bft.replay.policies import Decision, EqualShare, MilpPolicy, Policy, State
from bft.replay.results import plain
from bft.replay.trace import NodeTrace, always_idle, from_changes

SECOND = 1_000_000_000


def job(name: str, at: float = 0, pmax: float = 1e9, jmax: int = 4, up: float = 0, down: float = 0) -> Job:
    curve = Curve(np.array([0, jmax]), np.array([0.0, 10.0 * jmax]))
    return Job(name, round(at * SECOND), 1, jmax, pmax, up, down, curve, curve)


def trace(rows: Sequence[tuple[float, int, bool]], end: float, units_per_node: int = 1) -> NodeTrace:
    return from_changes(
        [f"n{k}" for k in range(1 + max(n for _, n, _ in rows))],
        np.array([round(t * SECOND) for t, _, _ in rows], dtype=np.int64),
        np.array([n for _, n, _ in rows], dtype=np.int32),
        np.array([idle for *_, idle in rows], dtype=bool),
        end=round(end * SECOND),
        units_per_node=units_per_node,
    )


def replay(nodes: NodeTrace, *jobs: Job, policy: Policy | None = None, **rules: Any) -> Outcome:
    return Replay(nodes, JobTable(jobs), policy or EqualShare(), Rules(**rules)).run()


# --- fairness and spreads ---------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 20), st.floats(1e-3, 1e6))
def test_equal_shares_are_perfectly_fair(n: int, share: float) -> None:
    assert jain_fairness(np.full(n, share)) == pytest.approx(1.0)


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(0, 19), st.floats(1e-3, 1e6))
def test_one_who_has_all_is_fair_to_one_in_n(n: int, who: int, share: float) -> None:
    shares = np.zeros(n)
    shares[who % n] = share
    assert jain_fairness(shares) == pytest.approx(1 / n)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20).filter(lambda x: max(x) > 1e-3), st.floats(0.1, 10))
def test_fairness_lies_between_one_in_n_and_one_whatever_the_unit(shares: list[float], factor: float) -> None:
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
def test_dedicated_nodes_are_equivalent_to_themselves(nodes: int, units_per_node: int) -> None:
    outcome = replay(always_idle(nodes, 0, 100 * SECOND, units_per_node=units_per_node), job("a"))
    assert equivalent_nodes(outcome) == nodes
    assert summarise(outcome)["eq_nodes"] == nodes


def test_equivalent_nodes_are_the_idle_nodes_on_average() -> None:
    outcome = replay(trace([(0, 0, True), (0, 1, True), (0, 2, True), (60, 1, False), (60, 2, False)], 100), job("a"))
    assert summarise(outcome)["eq_nodes"] == pytest.approx((3 * 60 + 40) / 100)
    assert equivalent_nodes(outcome) == 2


def test_no_time_has_no_equivalent_nodes() -> None:
    assert equivalent_nodes(replay(always_idle(3, 0, 100 * SECOND))) == 0


@pytest.mark.parametrize("policy", ["equal-share", "exact"])
@pytest.mark.parametrize("model", ["bftrainer", "stall"])
@pytest.mark.parametrize("nodes", [1, 5])
def test_u_is_one_where_the_trace_is_dedicated_nodes(nodes: int, model: Any, policy: str) -> None:
    def once() -> Outcome:
        chosen = EqualShare() if policy == "equal-share" else MilpPolicy(60.0, backend="exact", cost_model=model)
        jobs = [job("a", pmax=900, up=3, down=2), job("b", 10, up=3), job("c", 20, 700)]
        return replay(always_idle(nodes, 0, 300 * SECOND), *jobs, policy=chosen, cost_model=model)

    found = summarise(once(), once())
    assert found["U"] == 1.0
    assert found["dedicated_outcome"] == found["outcome"]


def test_u_of_one_elastic_job_without_costs_is_its_share_of_node_time() -> None:
    nodes = trace([(0, 0, True), (0, 1, True), (50, 1, False)], 100)
    outcome = replay(nodes, job("a"))
    assert equivalent_nodes(outcome) == 2
    found = summarise(outcome, replay(always_idle(2, 0, 100 * SECOND), job("a")))
    assert found["U"] == pytest.approx(150 / 200)


def test_u_is_unknown_without_a_second_replay_or_with_one_that_does_nothing() -> None:
    outcome = replay(always_idle(1, 0, 100 * SECOND), job("a"))
    assert summarise(outcome)["U"] is None
    idle = replay(always_idle(1, 0, 100 * SECOND), job("a", at=200))
    assert summarise(outcome, idle)["U"] is None


# --- the rest of the summary ------------------------------------------------------------------------------------------


def test_a_summary_by_hand() -> None:
    # a: 2 units, 1 from 20 s on (preempted: 2 s at 20/s), finishes at 20 + (500 - 360) / 10 = 34 s; b at 34 + 26 s.
    nodes = trace([(0, 0, True), (0, 1, True), (20, 1, False)], 100)
    jobs = (job("a", pmax=500, jmax=2, down=2), job("b", at=20, pmax=260, jmax=1), job("c", at=200))
    found = summarise(replay(nodes, *jobs))
    assert found["outcome"] == 760.0
    assert found["duration_s"] == 100.0
    assert found["resource_integral_unit_s"] == 120.0
    assert found["used_unit_s"] == 40 + 14 + 26
    assert found["used_share"] == pytest.approx(80 / 120)
    assert found["unit_hours"] == pytest.approx(80 / 3600)
    assert found["preemption_cost"] == 40.0
    assert (found["preemptions"], found["rescales"], found["rescale_cost"]) == (1, 0, 0.0)
    assert found["return_on_rescale"] is None
    assert [found[k] for k in ("jobs", "jobs_submitted", "jobs_started", "jobs_finished")] == [3, 2, 2, 2]
    assert found["jct_s"]["mean"] == pytest.approx((34 + 40) / 2)
    assert found["queueing_s"]["mean"] == pytest.approx((0 + 14) / 2)
    assert found["makespan_s"] is None  # c has not finished
    assert found["decisions_by_status"] == {"decided": 3, "optimal": 1} or found["decisions_by_status"] == {
        "decided": found["decisions"]
    }
    a, b = 54 / 34, 26 / 40
    assert found["jain_fairness_of_mean_units"] == pytest.approx((a + b) ** 2 / 2 / (a * a + b * b))


def test_the_makespan_spans_the_first_submit_and_the_last_finish() -> None:
    found = summarise(replay(always_idle(1, 0, 99 * SECOND), job("a", 5, 100, 1), job("b", 3, 100, 1)))
    assert found["makespan_s"] == 20.0


def test_a_restart_is_a_start_after_the_first() -> None:
    nodes = trace([(0, 0, True), (10, 0, False), (20, 0, True), (30, 0, False), (40, 0, True)], 50)
    assert summarise(replay(nodes, job("a")))["restarts_per_job"] == 2.0


def test_the_return_on_a_rescale_is_what_it_brought_over_what_it_cost() -> None:
    class Grow:
        name = "grow"

        def decide(self, state: State) -> Decision:
            return Decision((1 if state.time_ns == 0 else 2,))

    nodes = trace([(0, 0, True), (10, 1, True)], 30)
    found = summarise(replay(nodes, job("a", up=3), policy=Grow()))
    assert found["rescale_cost"] == 30.0
    assert found["return_on_rescale"] == pytest.approx(10 * 20 / 30)


def test_mean_units_count_from_submission_to_finish_or_end() -> None:
    outcome = replay(always_idle(2, 0, 100 * SECOND), job("a", pmax=200), job("b", at=50))
    assert mean_units(outcome.records[0], outcome.end_ns) == pytest.approx(2.0)
    assert mean_units(outcome.records[1], outcome.end_ns) == pytest.approx(2.0)
    assert mean_units(outcome.records[1], 50 * SECOND) == 0.0


def test_startup_shares_are_cut_where_the_replay_ended() -> None:
    found = summarise(replay(always_idle(1, 0, 1000 * SECOND), job("a", pmax=1000, jmax=1)))
    assert found["duration_s"] == 100.0
    assert found["share_outliving_startup"] == pytest.approx({"30 s": 0.7, "60 s": 0.4, "120 s": 0.0, "300 s": 0.0})


def test_a_summary_of_nothing_is_plain_json() -> None:
    found = summarise(replay(always_idle(3, 0, 100 * SECOND)))
    assert found["used_share"] is None
    assert found["jct_s"] is None
    json.dumps(found, allow_nan=False)


def test_plain_makes_null_of_what_json_lacks() -> None:
    assert plain({"a": [math.nan, (math.inf, -math.inf)], 1: {"b": 1.5}}) == {
        "a": [None, [None, None]],
        "1": {"b": 1.5},
    }
