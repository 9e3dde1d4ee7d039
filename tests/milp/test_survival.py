"""A solver crashes or hangs in a replay: the replay ends normally, and reports it."""

import os
import signal
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from bft.milp import SolverProcess
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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_lost_in_a_replay_costs_one_decision_each_time(
    worker: SolverProcess, how: signal.Signals
) -> None:
    outcome = replay({15: how, 25: how, 35: how}, worker)
    steps = outcome.steps[outcome.steps["status"] != "end"]
    lost = steps[steps["status"] == "fallback"]
    assert len(lost) == 3 <= worker.started
    assert set(steps["status"]) <= {"optimal", "fallback", "nothing idle"}
    assert lost["note"].str.len().gt(0).all()
    assert (steps["gap"].fillna(0) < 1e-6).all()  # the exact DP stood in
