"""A watch beside a real Slurm for a minute: equal to its replay, and to `ingest` of what was polled meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from processes import AMPLE_S, SCRIPT, end_process
from real_slurm import idle_seconds, polled, slurm_cluster, wait_until

from bft.datasets import generate_dnn_jobs
from bft.replay.cli.main import run
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

pytestmark = pytest.mark.slow
NODES, PERIOD_S, SECONDS = 4, 1, 80
# Whole nodes and seconds of host jobs; they end long before the watch does.
SBATCH = ("sbatch", "--exclusive", "-o", "/dev/null")
HOST_JOBS = ((1, 5), (2, 8), (1, 3), (3, 6), (2, 4), (1, 7))


def changes(trace: NodeTrace) -> dict[str, list[int]]:
    """Instants at which each node turns idle or is taken."""
    (joined, joins), (left, leaves) = trace.rows()
    return {
        name: sorted([*joins[joined == node].tolist(), *leaves[left == node].tolist()])
        for node, name in enumerate(trace.nodes)
    }


def test_a_minute_beside_a_real_slurm(tmp_path: Path) -> None:
    first = pd.Timestamp.now("UTC") - pd.Timedelta("1h")
    frame = generate_dnn_jobs(
        jobs=20, first_submit=first.isoformat(), interval_s=1, pmax=2e5
    )
    frame.to_parquet(tmp_path / "jobs.parquet")
    processes = []

    def begun(out: str) -> bool:
        record = tmp_path / out / "record.jsonl"
        return record.exists() and record.read_bytes().count(b"\n") > 1

    with slurm_cluster(tmp_path / "slurm", NODES) as slurm:
        for out, every_s in (("often", PERIOD_S), ("seldom", 10)):
            command = [
                *SCRIPT, "watch", "--command", "sinfo -h -N -o %N|%T", "--every", str(every_s), "--for", f"{SECONDS}s",
                "--jobs", str(tmp_path / "jobs.parquet"), "--preset", "best", "--out", str(tmp_path / out), "--json",
            ]  # fmt: skip
            process = subprocess.Popen(
                command,
                env=slurm.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.append(process)
        often = processes[0]
        with polled(slurm) as printed:
            wait_until(lambda: all(map(begun, ("often", "seldom"))))
            for nodes, seconds in HOST_JOBS:
                slurm.run(*SBATCH, f"-N{nodes}", "--wrap", f"sleep {seconds}")
                time.sleep(4)
            slurm.wait_idle()
            time.sleep(12)  # both have seen that all nodes are idle
        often.send_signal(signal.SIGINT)
        calm = time.time_ns()
        slurm.run("scontrol", "shutdown", "slurmctld")
        time.sleep(1)
        # While it starts it knows no node, or does not answer.
        controller = subprocess.Popen(
            ["slurmctld", "-D", "-f", slurm.env["SLURM_CONF"]],
            env=slurm.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for process in processes:
                told, errors = process.communicate(timeout=AMPLE_S)
                assert process.returncode == 0, errors
                assert json.loads(told.splitlines()[-1])["shadow"]["equal"]
        finally:
            end_process(controller)
    restarted = changes(read_trace(tmp_path / "seldom" / "trace.parquet"))
    late = {node: max(each, default=0) - calm for node, each in restarted.items()}
    assert max(late.values()) < 0, (late, errors)
    live = read_trace(tmp_path / "often" / "trace.parquet")
    turned = {node: np.array(each) for node, each in changes(live).items()}
    text = "".join(f"{second}\n{lines}" for second, lines in printed.items())
    (tmp_path / "states.txt").write_text(text)
    made = str(tmp_path / "polled.parquet")
    assert (
        run(
            [
                "ingest",
                "snapshots",
                str(tmp_path / "states.txt"),
                "--min-gap",
                "0",
                "-o",
                made,
            ]
        )
        == 0
    )
    offline = read_trace(made)
    first_s, last_s = live.start // SECOND_NS + 3, min(calm, offline.end) // SECOND_NS
    ours, theirs = (idle_seconds(each, first_s, last_s) for each in (live, offline))
    assert 0.2 < ours.mean() < 0.9
    assert ours.sum() == pytest.approx(theirs.sum(), rel=0.01)
    for node, polls in changes(offline).items():
        inside = [
            np.array([t for t in each if t > first_s * SECOND_NS])
            for each in (turned[node], polls)
        ]
        assert len(inside[0]) == len(inside[1]), node
        apart = np.abs(inside[0] - inside[1]) / SECOND_NS
        assert apart.max(initial=0.0) <= PERIOD_S + 1, node
