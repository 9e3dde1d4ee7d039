"""What a real Grid Engine and OAR printed is read correctly; it is recorded: tests/data/recorded/README.md."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from real_slurm import commands, idle_seconds

from bft.replay.cli.recipes import RECIPES, crontab_line
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import read_trace

RECORDED = Path(__file__).parents[2] / "data" / "recorded"
HOSTS = ("n1", "n2", "n3", "n4")
# Seconds by which a scheduler's times may be off those of a job: it prepares the job, and cleans up.
LAG_S = 4


@pytest.mark.parametrize(
    ("scheduler", "noted"),
    [("sge", "a parallel job names one host only"), ("oar", '"skipped": []')],
)
def test_what_the_recipe_wrote_is_where_jobs_say_that_they_ran(
    scheduler: str, noted: str, here: Path, told: Callable[..., str]
) -> None:
    shutil.copytree(RECORDED / scheduler, here, dirs_exist_ok=True)
    *exported, command = commands(RECIPES[scheduler])
    exported += commands(crontab_line(scheduler)) if scheduler == "sge" else []
    assert Path("commands.txt").read_text().splitlines() == exported
    options = "--force --min-gap 0 --json"
    told(f"{command.removeprefix('bft-replay ')} {options}", '"skipped": []', noted)
    trace = read_trace("trace.parquet")
    assert trace.nodes == HOSTS
    begin, end = trace.start // SECOND_NS, trace.end // SECOND_NS
    idle = idle_seconds(trace, begin, end)
    taken, near = np.zeros_like(idle), np.zeros_like(idle)
    for line in Path("truth.txt").read_text().splitlines():
        host, *edges = line.split()
        low, high = (max(0, int(edge) - begin) for edge in edges)
        taken[HOSTS.index(host), low:high] = True
        for edge in (low, high):
            near[HOSTS.index(host), max(0, edge - LAG_S) : edge + LAG_S] = True
    assert (~near & taken).sum() > 5
    assert (~near & ~taken).sum() > 20
    assert (idle == ~taken)[~near].all()


def test_the_line_for_cron_made_snapshots_of_grid_engine(
    here: Path, told: Callable[..., str]
) -> None:
    shutil.copy(RECORDED / "sge" / "nodes.snapshots", here)
    *_, command = commands(RECIPES["snapshots"])
    told(f"{command.removeprefix('bft-replay ')} --force --min-gap 0")
    trace = read_trace("trace.parquet")
    assert trace.nodes == HOSTS
    assert 0 < trace.idle_node_seconds() < 4 * (trace.end - trace.start) / SECOND_NS
