"""What holds for every policy that there is: to the end with all invariants, the same twice, the same when resumed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement

import pandas as pd
import pytest

from bft.datasets import generate_dnn_jobs, generate_node_trace
from bft.models import JobTable, jobs_from_frame, xi_from_frame
from bft.replay import Interference, NodeTrace, Options, Outcome, Replay, Rules, always_idle
from bft.replay.policies import make_policy
from bft.replay.policies.registry import BUILT_IN
from bft.replay.policies.solver import SolverOptions
from bft.replay.run import policy_settings
from bft.replay.trace.trace_files import trace_from_frame

START = "2021-02-10"
RULES = Rules(max_jobs=8, start_overhead_s=5, restart_overhead=((4, 10.0), (64, 20.0)), checkpoint_interval_s=300)


@cache
def jobs() -> JobTable:
    frame = generate_dnn_jobs(jobs=14, first_submit=START, interval_s=400.0, pmax=2e7, jmax=12)
    table = jobs_from_frame(frame)
    known = {"sharing_score": 0, "gpu_util": 40.0, "gmem_util": 20.0, "gmem": 4000.0, "amp": 0, "profiled": True}
    return JobTable(tuple(replace(job, memory_gib=4.0, batch_size=64, extra=known) for job in table))


@cache
def interference() -> Interference:
    models = sorted({job.model for job in jobs()})
    rows = [(a, b, 1.1 + 0.05 * k, 1.2) for k, (a, b) in enumerate(combinations_with_replacement(models, 2))]
    rows = [(a, b, xi_a if a != b else xi_b, xi_b) for a, b, xi_a, xi_b in rows]  # beside itself: one ratio
    return Interference(xi_from_frame(pd.DataFrame(rows, columns=["model_a", "model_b", "xi_a", "xi_b"])), 1.6, 16.0)


@cache
def world(kind: str) -> NodeTrace:
    if kind == "cluster":
        first = jobs().jobs[0].tsub_ns
        return always_idle(4, first, first + 40 * 3600 * 10**9, units_per_node=4)
    generated = generate_node_trace(nodes=128, days=0.3, seed=2, start=START)
    metadata = {**generated.metadata, "units_per_node": "2"} if kind == "halves" else generated.metadata
    return trace_from_frame(generated.frame, source=kind, metadata=metadata)


def replay(name: str, kind: str, **constants: str) -> Replay:
    options = Options(tfwd_s=120.0, seed=3, solver=SolverOptions("exact" if name == "milp" else "auto"))
    quick = {"population": "20", "generations": "10"} if name == "pollux" else {}
    policy = make_policy(name, policy_settings(options, interference()), {**quick, **constants})
    return Replay(world(kind), jobs(), policy, RULES, interference())


def same(one: Outcome, other: Outcome) -> bool:
    books = [[(r.finish_ns, r.work, r.gained, r.unit_seconds, r.starts) for r in o.records] for o in (one, other)]
    return one.steps.equals(other.steps) and one.allocations.equals(other.allocations) and books[0] == books[1]


@pytest.mark.parametrize("kind", ["nodes", "halves", "cluster"])
@pytest.mark.parametrize("name", BUILT_IN)
def test_it_runs_to_the_end_and_a_resumed_replay_is_the_same(name: str, kind: str) -> None:
    resumed_is_the_same(name, kind)


@pytest.mark.parametrize(
    ("name", "constants"),
    [("milp", {"learn_curves": "yes"}), ("tiresias-l", {"promote": "2"}), ("tiresias-l", {"interval_s": "60"})],
)
def test_so_does_one_with_other_constants(name: str, constants: dict[str, str]) -> None:
    resumed_is_the_same(name, "nodes", **constants)


def resumed_is_the_same(name: str, kind: str, **constants: str) -> None:
    assert world(kind).units_per_node == {"nodes": 1, "halves": 2, "cluster": 4}[kind]
    whole = replay(name, kind, **constants).run()
    assert sum(record.work for record in whole.records) > 0
    if kind == "cluster":
        assert all(record.finish_ns is not None for record in whole.records)
    decisions = len(whole.decision_seconds)
    assert decisions > 20
    stopped = replay(name, kind, **constants)
    saved: list[str] = []

    def stop() -> bool:
        if stopped.ledger.decisions >= decisions // 2:
            saved.append(json.dumps(stopped.state(), default=lambda value: value.item()))
        return bool(saved)

    stopped.run(should_stop=stop)
    resumed = replay(name, kind, **constants)
    resumed.restore(json.loads(saved[0]))
    assert same(resumed.run(), whole)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_same_replay_twice_is_the_same(name: str) -> None:
    assert same(replay(name, "halves").run(), replay(name, "halves").run())
