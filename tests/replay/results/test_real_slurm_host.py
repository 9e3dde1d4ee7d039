"""On a real Slurm host jobs wait for preempted pilots as the model of host jobs says (docs/host-jobs.md)."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from real_slurm import PATIENCE_S, Slurm, slurm_cluster
from worlds import make, replay, traced

from bft.replay import EqualShare
from bft.replay.results.host import host_metrics

pytestmark = pytest.mark.slow

KILL_WAIT_S = 30
# What the scheduler adds before a host job starts, and what may come on top of it: times are whole seconds.
CYCLE_S, SLACK_S = (1, 4), 2
# Pilots by the seconds that they save before they stop; as steps, since a batch script sees no signal at first.
SAVES_S = (0, 10)
PILOT = (
    'trap "trap \\"\\" TERM; sleep {save}; exit 0" TERM; '
    "touch up-$SLURM_JOB_ID; while :; do sleep 0.1; done"
)
# Nodes of the case in which some are free: pilots on all but one, and a host job of two.
GROUP = 4


@dataclass(frozen=True, slots=True)
class Case:
    """A node of its own with a partition for its pilot, and one for the host's job."""

    mode: str
    grace_s: int
    save_s: int

    @property
    def return_time_s(self) -> float:
        """D without the scheduler's cycle."""
        return min(self.save_s, self.grace_s + KILL_WAIT_S)


CASES = [Case(*each) for each in product(("CANCEL", "REQUEUE"), (0, 5, 20), SAVES_S)]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    lines = [
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        f"KillWait={KILL_WAIT_S}",
    ]
    for number, case in enumerate(CASES, 1):
        lines += _partitions(str(number), f"n{number}", case.mode, case.grace_s)
    lines += _partitions(
        "group", f"n[{len(CASES) + 1}-{len(CASES) + GROUP}]", "CANCEL", 0
    )
    with slurm_cluster(
        tmp_path_factory.mktemp("host"), len(CASES) + GROUP, "\n".join(lines)
    ) as cluster:
        yield cluster


def _partitions(name: str, nodes: str, mode: str, grace_s: int) -> list[str]:
    pilots = f"PartitionName=pilots-{name} Nodes={nodes} PriorityTier=1 PreemptMode={mode} GraceTime={grace_s}"
    return [
        pilots,
        f"PartitionName=host-{name} Nodes={nodes} PriorityTier=10 PreemptMode=OFF",
    ]


def _submit(slurm: Slurm, partition: str, command: str, nodes: int = 1) -> str:
    asked = (
        "--parsable",
        "-p",
        partition,
        "-N",
        str(nodes),
        "--exclusive",
        "-o",
        "/dev/null",
    )
    return slurm.run("sbatch", *asked, "--wrap", command).strip()


def _pilot(slurm: Slurm, partition: str, save_s: int) -> str:
    script = slurm.folder / f"pilot-{save_s}.sh"
    script.write_text(f"#!/bin/bash\n{PILOT.format(save=save_s)}\n")
    script.chmod(0o755)
    return _submit(slurm, partition, f"srun {script}")


def _wait_for(slurm: Slurm, pilots: list[str]) -> None:
    """Wait until each pilot runs."""
    end = time.monotonic() + PATIENCE_S
    while not all((slurm.folder / f"up-{job}").exists() for job in pilots):
        assert time.monotonic() < end, "pilots did not start"
        time.sleep(0.2)


def _delays_s(slurm: Slurm, jobs: list[str]) -> list[int]:
    """Seconds from submission to start of each job, once all have ended."""
    end = time.monotonic() + PATIENCE_S
    while set(slurm.run("squeue", "-h", "-o", "%i").split()) & set(jobs):
        assert time.monotonic() < end, "host jobs did not start"
        time.sleep(0.5)
    slurm.wait_accounted()
    slurm.env["SLURM_TIME_FORMAT"] = "%s"
    delays = []
    for job in jobs:
        row = slurm.run(
            "sacct", "-X", "-n", "-P", "-j", job, "--format=Submit,Start"
        ).split()[0]
        submitted, started = re.findall(r"\d+", row)
        delays.append(int(started) - int(submitted))
    del slurm.env["SLURM_TIME_FORMAT"]
    return delays


def test_a_preempted_pilot_returns_its_node_in_the_time_that_the_model_takes(
    slurm: Slurm,
) -> None:
    pilots = [
        _pilot(slurm, f"pilots-{number}", case.save_s)
        for number, case in enumerate(CASES, 1)
    ]
    _wait_for(slurm, pilots)
    hosts = [
        _submit(slurm, f"host-{number}", "true") for number in range(1, len(CASES) + 1)
    ]
    delays = _delays_s(slurm, hosts)
    slurm.run("scancel", *pilots)
    low, high = CYCLE_S[0] - SLACK_S, CYCLE_S[1] + SLACK_S
    differs = {
        f"{case}": delay
        for case, delay in zip(CASES, delays, strict=True)
        if not case.return_time_s + low <= delay <= case.return_time_s + high
    }
    assert not differs


def test_free_nodes_go_before_those_of_pilots(slurm: Slurm) -> None:
    pilots = [_pilot(slurm, "pilots-group", 0) for _ in range(GROUP - 1)]
    _wait_for(slurm, pilots)
    host = _submit(slurm, "host-group", "sleep 2", nodes=2)
    assert _delays_s(slurm, [host])[0] <= CYCLE_S[1] + SLACK_S
    states = slurm.run(
        "sacct", "-X", "-n", "-P", "-j", ",".join(pilots), "--format=State"
    ).split("\n")
    slurm.run("scancel", *pilots)
    assert sum("PREEMPTED" in state for state in states) == taken_from_training() == 1


def taken_from_training() -> int:
    """The same in a replay: of four idle nodes training holds three, and a host job takes two."""
    trace, job = traced("0 +abcd, 30 -ab, 60"), make("j", [0, 1, 2, 3])
    outcome = replay(trace, [job], EqualShare(), return_time_s=2.0)
    found: int = host_metrics(outcome, 2.0)["nodes_taken_from_training"]
    return found
