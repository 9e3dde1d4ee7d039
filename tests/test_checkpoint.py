"""A replay that is killed and resumed ends as one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_engine_sharing import interference, world

from bft.replay.cli.main import run
from bft.replay.engine import Replay, Rules
from bft.replay.ledger import Outcome
from bft.replay.policies import EqualShare, MilpPolicy, MilpSharingPolicy, Policy

FILES = ("summary.json", "steps.parquet", "jobs.parquet", "allocations.parquet")
SPAN = ["-Tfwd", "120", "--backend", "exact", "--no-u"]


def replay_of(seed: int, kind: str) -> Replay:
    rng = np.random.default_rng(seed)
    trace, jobs = world(rng)
    between = interference(rng)
    policies: dict[str, Policy] = {
        "milp": MilpPolicy(120.0, backend="exact", verify=True),
        "sharing": MilpSharingPolicy(120.0, interference=between),
        "equal-share": EqualShare(),
        "stall": MilpPolicy(120.0, backend="exact", cost_model="stall"),
    }
    rules = Rules(5, "stall" if kind == "stall" else "bftrainer", min_interval_s=20.0 if kind == "equal-share" else 0.0)
    return Replay(trace, jobs, policies[kind], rules, between)


def told(outcome: Outcome) -> tuple[object, ...]:
    accounts = [
        (r.start_ns, r.finish_ns, r.gained, r.work, r.lost_to_preemption, r.lost_to_rescale, r.rescales, r.unit_seconds)
        for r in outcome.records
    ]
    return accounts, outcome.idle_unit_seconds, outcome.used_unit_seconds, outcome.extra_gain, outcome.paid


@pytest.mark.parametrize("kind", ["milp", "sharing", "equal-share", "stall"])
@pytest.mark.parametrize("seed", range(3))
def test_a_state_that_went_through_json_goes_on_to_the_same_end(seed: int, kind: str) -> None:
    whole = replay_of(seed, kind).run()
    for stop_at in (1, 7, 20, 45):
        first = replay_of(seed, kind)  # a checkpoint is taken between two steps, before the books are closed
        taken: list[str] = []

        def take(now: int, replay: Replay = first, taken: list[str] = taken, at: int = stop_at) -> None:
            taken.append(json.dumps(replay.state()) if len(taken) == at - 1 else "")

        first.run(on_step=take)
        second = replay_of(seed, kind)
        second.restore(json.loads(taken[stop_at - 1]))
        rest = second.run()
        assert told(rest) == told(whole)
        pd.testing.assert_frame_equal(rest.steps, whole.steps, check_exact=True)
        pd.testing.assert_frame_equal(rest.allocations, whole.allocations, check_exact=True)
        if isinstance(second.policy, MilpPolicy):
            assert second.policy.verified == (0 if kind != "milp" else len(whole.steps) - 1 - idle_free(whole))


def idle_free(outcome: Outcome) -> int:
    """Decisions with nothing to give, which no policy sees."""
    return int((outcome.steps["backend"] == "none").sum())


def test_a_killed_replay_resumes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*SPAN, "-name", "whole"]) == 0
    # A replay slow enough to be killed on the way.
    slow = (
        "import time, bft.replay.engine as engine\n"
        "plain = engine.Replay._step\n"
        "def step(self, instant):\n"
        "    plain(self, instant); time.sleep(0.003)\n"
        "engine.Replay._step = step\n"
        "from bft.replay.cli import main; main()\n"
    )
    saved = Path("killed-itrOut.checkpoint.json")
    command = [sys.executable, "-c", slow, *SPAN, "-name", "killed", "--checkpoint-every", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (saved.exists() and len(json.loads(saved.read_text())["state"]["ledger"]["_steps"]) > 100):
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("killed")] == [saved.name]
    assert run([*SPAN, "-name", "killed", "--checkpoint-every", "100"]) == 0
    for name in FILES:
        assert (tmp_path / "killed-itrOut" / name).read_bytes() == (tmp_path / "whole-itrOut" / name).read_bytes()
    assert not saved.exists()


def test_a_checkpoint_of_other_options_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = Path("debug-itrOut.checkpoint.json")
    saved.write_text(json.dumps({"format": "bft-replay checkpoint", "version": 1, "key": "other", "state": {}}))
    assert run([*SPAN, "--checkpoint-every", "100"]) == 2
    assert "other input, options or versions" in capsys.readouterr().err
    saved.write_text("no json")
    assert run([*SPAN, "--checkpoint-every", "100"]) == 2
    assert "cannot be read as a checkpoint" in capsys.readouterr().err
    saved.write_text('{"some": "other file"}')
    assert run([*SPAN, "--checkpoint-every", "100"]) == 2
    assert saved.exists()
    assert not Path("debug-itrOut").exists()
