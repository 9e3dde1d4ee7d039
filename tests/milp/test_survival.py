"""A solver crashes, hangs or gives invalid answers in a replay: the replay ends normally, and reports it."""

import os
import signal
import sys
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pytest

from bft.milp import Limits, LinearAnswer, LinearModel, SolverProcess
from bft.models import Curve, Job, JobTable
from bft.replay import (
    MilpPolicy,
    NodeTrace,
    Outcome,
    Replay,
    Rules,
    SolverOptions,
    from_changes,
)
from bft.replay.trace.node_trace import SECOND_NS

# No solve here takes so long, however busy the machine is; and how long we wait for a worker that has been stopped.
LIMIT_S, PATIENCE_S = 600.0, 0.3


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[SolverProcess]:
    """The solver process that replays use."""
    own = SolverProcess()
    monkeypatch.setattr(sys.modules["bft.milp.solve"], "shared_process", lambda: own)
    yield own
    own.close()


def world() -> tuple[NodeTrace, JobTable]:
    rng = np.random.default_rng(1)
    events, nodes = 80, 20
    times = np.sort(rng.integers(0, 7200, events)) * SECOND_NS
    trace = from_changes(
        [f"n{i}" for i in range(nodes)],
        times,
        rng.integers(0, nodes, events).astype(np.int32),
        rng.random(events) < 0.7,
        start=0,
        end=7200 * SECOND_NS,
    )
    curve = Curve(np.array([0.0, 1.0, 2.0, 8.0]), np.array([0.0, 10.0, 21.0, 60.0]))
    jobs = [
        Job(f"j{j}", j * SECOND_NS, 1, 8, 1e5, 18.0, 12.0, curve, curve)
        for j in range(6)
    ]
    return trace, JobTable(tuple(jobs))


def replay(at_step: dict[int, signal.Signals], worker: SolverProcess) -> Outcome:
    """Replay; the worker gets these signals after these steps. Only one that was stopped has no time to answer."""
    step, stopped, patient_s = 0, None, worker.grace_s

    def interfere(now: int) -> None:
        nonlocal step, stopped
        step += 1
        if worker.pid != stopped:
            worker.grace_s = patient_s
        if step in at_step and worker.pid is not None:
            os.kill(worker.pid, at_step[step])
            if at_step[step] == signal.SIGSTOP:
                stopped, worker.grace_s = worker.pid, PATIENCE_S - LIMIT_S

    trace, jobs = world()
    policy = MilpPolicy(120.0, SolverOptions("cbc", time_limit_s=LIMIT_S))
    return Replay(trace, jobs, policy, Rules(5)).run(on_step=interfere)


def assert_as_good_as_undisturbed(outcome: Outcome, fallbacks: int) -> None:
    steps = outcome.steps[outcome.steps["status"] != "end"]
    assert (steps["status"] == "fallback").sum() == fallbacks
    assert set(steps["status"]) <= {"optimal", "fallback", "nothing idle"}
    assert steps.loc[steps["status"] == "fallback", "note"].str.len().gt(0).all()
    assert (steps["gap"].fillna(0) < 1e-6).all()  # the exact DP stood in


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGABRT, signal.SIGSTOP])
def test_a_worker_lost_in_a_replay_costs_one_decision_each_time(
    worker: SolverProcess, how: signal.Signals
) -> None:
    outcome = replay({15: how, 25: how, 35: how}, worker)
    assert_as_good_as_undisturbed(outcome, fallbacks=3)
    assert worker.started >= 3


@pytest.mark.parametrize("lie", ["infeasible", "worse", "claim", "nan", "short"])
def test_invalid_answers_in_a_replay_are_replaced(
    worker: SolverProcess,
    monkeypatch: pytest.MonkeyPatch,
    lie: Literal["infeasible", "worse", "claim", "nan", "short"],
) -> None:
    asked = lied = 0
    honest = SolverProcess.solve

    def solve(
        self: SolverProcess, model: LinearModel, backend: str, limits: Limits
    ) -> LinearAnswer:
        nonlocal asked, lied
        asked += 1
        answer = honest(self, model, backend, limits)
        if asked % 4 or answer.x is None:
            return answer
        lied += 1
        x = {
            "infeasible": np.array(model.upper),
            "worse": answer.x,
            "claim": answer.x,
            "nan": np.full_like(answer.x, np.nan),
            "short": answer.x[:-1],
        }[lie]
        objective = answer.objective * (2.0 if lie in ("worse", "claim") else 1.0) + 1.0
        return LinearAnswer("optimal", x, objective, objective)

    monkeypatch.setattr(SolverProcess, "solve", solve)
    outcome = replay({}, worker)
    assert lied > 3
    assert_as_good_as_undisturbed(outcome, fallbacks=lied)
