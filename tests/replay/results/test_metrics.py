"""Metrics by their definitions; summaries by hand are in `tests/data/worlds/figures.toml`."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from worlds import cluster, instant, make, replay, rigid, spans, traced

from bft.milp import Solution
from bft.milp.problem import Status
from bft.models import JobTable
from bft.replay import (
    Decision,
    EqualShare,
    MilpPolicy,
    NodeTrace,
    Outcome,
    Replay,
    SolverOptions,
    State,
    summarise,
)
from bft.replay.policies.checking import make_world
from bft.replay.policies.fifo import Fifo
from bft.replay.results.bounds import beside_bounds, bounds_of
from bft.replay.results.dedicated import dedicated_traces
from bft.replay.results.headlines import headlines
from bft.replay.results.metrics import ideal_rate, jain_fairness, spread
from bft.replay.results.run_directory import plain


@examples(30)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=6),
    st.integers(1, 3),
)
def test_finish_time_fairness_is_that_of_its_definition(
    rows: list[tuple[int, int]], nodes: int
) -> None:
    """Against sums over seconds: all instants of these jobs are whole seconds."""
    jobs = [rigid(f"j{k}", 1, seconds, at=at) for k, (at, seconds) in enumerate(rows)]
    outcome = replay(traced(f"0 +{'abc'[:nodes]}, 15 -a, 25 +a, 9999"), jobs, Fifo())
    ends = [finish or 0.0 for _, finish in spans(outcome)]
    present = [(at, int(end)) for (at, _), end in zip(rows, ends, strict=True)]
    ratios = []
    for (begin, end), (_, seconds) in zip(present, rows, strict=True):
        units = sum(nodes - (15 <= t < 25) for t in range(begin, end))
        there = sum(a <= t < b for t in range(begin, end) for a, b in present)
        ratios.append((end - begin) * min(1.0, units / there) / seconds)
    found = summarise(outcome)["finish_time_fairness"]
    assert found["largest"] == pytest.approx(max(ratios))
    assert found["mean"] == pytest.approx(np.mean(ratios))


@pytest.mark.parametrize(
    ("units", "rate"),
    [(0, 0), (0.5, 8 / 3), (2, 32 / 3), (3, 16), (4, 16), (5, 110 / 6), (99, 22)],
)
def test_a_share_of_units_is_used_at_the_best_size_for_a_part_of_the_time(
    units: float, rate: float
) -> None:
    """A third unit yields more than the first two: two units are used best as three for two thirds of the time."""
    job = make("a", [0, 5, 10, 16, 16, 18, 22], jmin=2)
    assert ideal_rate(job, units) == pytest.approx(rate)


@pytest.mark.usefixtures("here")
def test_virtual_clusters_share_their_own_units(told: Any) -> None:
    """Each job has a whole virtual cluster to itself, of which one is a hundred times as large."""
    Path("vcs.csv").write_text("vc,nodes,units_per_node\nsmall,1,1\nlarge,100,1\n")
    Path("jobs.csv").write_text(
        "name,vc,Tsub,Jmin,Jmax,Pmax,Tcup,Tcdw,Ns,Ps,Os\n"
        'a,small,2021-01-01,1,1,100,0,0,"[0,1]","[0,1]","[0,1]"\n'
        'b,large,2021-01-01,50,100,100,0,0,"[0,100]","[0,1]","[0,1]"\n'
    )
    told("--cluster vcs.csv --jobs jobs.csv --policy equal-share --out run")
    metrics = json.loads(Path("run/summary.json").read_text())["metrics"]
    fairness = metrics["finish_time_fairness"]
    assert fairness["largest"] == fairness["mean"] == pytest.approx(1.0)


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


def test_spreads_and_fairness_of_nothing_have_no_value() -> None:
    values = [float(v) for v in range(101, 0, -1)]
    assert spread(values) == {"mean": 51.0, "median": 51.0, "p95": 96.0, "p99": 100.0}
    assert spread([]) is jain_fairness(np.zeros(3)) is jain_fairness(np.zeros(0))


def test_jobs_that_are_left_out_neither_open_the_window_nor_keep_u_from_the_last_finish() -> (
    None
):
    jobs = (make("too-large"), make("a", [0, 10], at=10, pmax=300), make("b", at=90))

    def once(nodes: NodeTrace) -> Outcome:
        return Replay(nodes, JobTable(jobs), EqualShare(), without={0}).run()

    outcome = once(traced("0 +a, 20 -a, 30 +a, 80"))
    assert (outcome.start_ns, outcome.end_ns) == (instant(10), instant(80))
    found = summarise(outcome, [once(nodes) for nodes in dedicated_traces(outcome)])
    assert found["U_at"] == "2021-02-11T00:00:40Z"
    assert found["U"] == pytest.approx(200 / (300 * 60 / 70))
    assert {"jobs": 3, "submitted": 2, "left_out": 1}.items() <= found["census"].items()


def test_without_a_second_replay_u_is_unknown_and_so_is_work_after_the_end() -> None:
    outcome = replay(cluster(1, 1, 100), [make("a")])
    found = summarise(outcome)
    unknown = ("U", "U_at", "dedicated_nodes", "dedicated_outcome")
    assert [found[key] for key in unknown] == [None] * 4
    with pytest.raises(ValueError, match="ended"):
        outcome.work_at(instant(101))


@dataclass
class Tells:
    """One unit, for an answer of this value and one of these bounds after the other."""

    objective: float
    bounds: list[float]
    status: Status = "feasible"
    name: str = "tells"

    def decide(self, state: State) -> Decision:
        bound = self.bounds.pop(0)
        answer = Solution(self.status, (1,), self.objective, bound, "cbc", "modes")
        return Decision((1,), solution=answer)


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
    steps = replay(cluster(1, 1, 10), [make("a")], Tells(objective, [bound])).steps
    assert steps["gap"].tolist() == pytest.approx([gap, math.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([100.0, 100.0], (0, 0.0, 0.0)),
        ([100.0, 200.0], (0, 0.25, 0.5)),
        ([125.0, math.inf], (1, 0.2, 0.2)),
        ([math.inf, math.nan], (2, None, None)),
    ],
)
@pytest.mark.parametrize("status", ["feasible", "optimal"])
def test_a_summary_states_the_gaps_of_decisions_that_are_not_proven(
    bounds: list[float],
    expected: tuple[int, float | None, float | None],
    status: Status,
) -> None:
    policy = Tells(100.0, list(bounds), status)
    found = summarise(replay(traced("0 +a, 5 +b, 10"), [make("a")], policy))
    summary = {"metrics": found, "inputs": {"trace": {}, "jobs": {}}}
    said = dict(headlines(summary)).get("not proven", "")
    if status == "optimal":
        assert "decisions_unproven" not in found
        assert not said
        return
    names = ("without_bound", "gap_mean", "gap_largest")
    stated = dict(zip(names, expected, strict=True))
    assert found["decisions_unproven"] == pytest.approx({"count": 2, **stated})
    assert said.startswith("2 decisions")
    assert said.endswith(f"no bound is known for {expected[0]}")
    assert ("at most - below the optimum" in said) == (expected[2] is None)


@pytest.mark.parametrize("seed", range(4))
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
    order = np.random.default_rng(seed).permutation(len(jobs))
    shuffled = [jobs[position] for position in order]
    found = []
    for nodes, rows in ((trace, jobs), (replace(trace, nodes=names), shuffled)):
        table = JobTable(tuple(rows))
        policy = MilpPolicy(60.0, SolverOptions("exact"))
        outcome = Replay(nodes, table, policy, made.rules).run()
        bounds = beside_bounds(outcome, bounds_of([(nodes, table)]))
        found.append(summarise(outcome) | bounds | {"longest_wait_job": None})
    assert found[0] == found[1]


def test_plain_turns_nan_and_infinity_into_null() -> None:
    assert plain({"a": [math.nan, (math.inf, -math.inf)], 1: {"b": 1.5}}) == {
        "a": [None, [None, None]],
        "1": {"b": 1.5},
    }
