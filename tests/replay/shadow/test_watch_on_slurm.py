"""A watch beside a real Slurm for a minute: equal to its replay, and to `ingest` of the same looks."""

import json
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pytest
from processes import AMPLE_S, SCRIPT, end_process
from real_slurm import Slurm, slurm_cluster, wait_until

from bft.datasets import generate_dnn_jobs
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

pytestmark = pytest.mark.slow
NODES, OFTEN_S, SELDOM_S = 4, 1, 15
# Whole nodes and seconds of host jobs.
SBATCH = ("sbatch", "--exclusive", "-o", "/dev/null")
HOST_JOBS = ((1, 5), (2, 8), (1, 3), (3, 6), (2, 4), (1, 7), (4, 5), (1, 9), (2, 3))
SINFO = "sinfo -h -N -o %N|%T"
# Writes down what it prints, with the time before it, as files of snapshots have it.
LOOK = """
set -e
states=$(sinfo -h -N -o '%N|%T')
{ date +%s.%N; echo "$states"; } >> looks.txt
echo "$states"
"""


def changes(trace: NodeTrace) -> dict[str, list[int]]:
    (joined, joins), (left, leaves) = trace.rows()
    return {
        name: sorted([*joins[joined == node].tolist(), *leaves[left == node].tolist()])
        for node, name in enumerate(trace.nodes)
    }


def idle_s(trace: NodeTrace, begin: int, end: int) -> float:
    (_, joins), (_, leaves) = trace.rows()
    rest = [float((end - each.clip(begin, end)).sum()) for each in (joins, leaves)]
    return (rest[0] - rest[1]) / SECOND_NS


def all_idle(slurm: Slurm) -> bool:
    """Whether the controller answers, and knows that every node is idle."""
    asked = subprocess.run(SINFO.split(), env=slurm.env, capture_output=True, text=True)
    states = [line.rpartition("|")[2] for line in asked.stdout.splitlines()]
    return states == ["idle"] * NODES


def test_a_minute_beside_a_real_slurm(here: Path, told) -> None:
    first = pd.Timestamp.now("UTC") - pd.Timedelta("1h")
    generate_dnn_jobs(
        jobs=20, first_submit=first.isoformat(), interval_s=1, pmax=2e5
    ).to_parquet("jobs.parquet")
    Path("look.sh").write_text(LOOK)
    commands = {"often": ("sh look.sh", OFTEN_S), "seldom": (SINFO, SELDOM_S)}
    processes = {}

    def looked(out: str) -> bool:
        record = Path(out, "record.jsonl")
        return record.exists() and record.read_bytes().count(b"\n") > 1

    def end(out: str) -> None:
        processes[out].send_signal(signal.SIGINT)
        said, errors = processes[out].communicate(timeout=AMPLE_S)
        assert processes[out].returncode == 0, errors
        assert json.loads(said.splitlines()[-1])["shadow"]["equal"]

    with slurm_cluster(here / "slurm", NODES) as slurm, ExitStack() as stack:
        for out, (command, every_s) in commands.items():
            processes[out] = subprocess.Popen(
                [
                    *SCRIPT, "watch", "--command", command, "--every", str(every_s),
                    "--jobs", "jobs.parquet", "--preset", "best", "--out", out, "--json",
                ],
                env=slurm.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            stack.callback(processes[out].kill)
        wait_until(lambda: all(map(looked, commands)))
        for nodes, seconds in HOST_JOBS:
            slurm.run(*SBATCH, f"-N{nodes}", "--wrap", f"sleep {seconds}")
            time.sleep(5)
        wait_until(lambda: all_idle(slurm))
        time.sleep(SELDOM_S + 5)  # both have seen that all nodes are idle
        end("often")
        calm = time.time_ns()
        slurm.run("scontrol", "shutdown", "slurmctld")
        # While it starts it does not answer, and then knows no node.
        controller = subprocess.Popen(
            ["slurmctld", "-D", "-f", slurm.env["SLURM_CONF"]],
            env=slurm.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(end_process, controller)
        wait_until(lambda: all_idle(slurm))
        time.sleep(SELDOM_S + 5)
        end("seldom")
    assert max(map(max, changes(read_trace("seldom/trace.parquet")).values())) < calm
    told("ingest snapshots looks.txt --min-gap 0 -o looks.parquet")
    live, offline = read_trace("often/trace.parquet"), read_trace("looks.parquet")
    begin, last = live.start + 3 * SECOND_NS, min(live.end, offline.end)
    ours, theirs = (idle_s(each, begin, last) for each in (live, offline))
    assert 0.2 < ours * SECOND_NS / (last - begin) / NODES < 0.9
    assert ours == pytest.approx(theirs, rel=0.01)
    for node, seen in changes(offline).items():
        ours, theirs = (
            [instant for instant in each if instant > begin]
            for each in (changes(live)[node], seen)
        )
        within = pytest.approx(theirs, rel=0, abs=(OFTEN_S + 1) * SECOND_NS)
        assert ours == within != [], node
