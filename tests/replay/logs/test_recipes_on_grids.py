"""Every line that `ingest --recipe` prints for Grid Engine and OAR is run on real ones, and what it writes is ingested.

Jobs write down themselves where and when they ran.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from real_grids import INSIDE, NODES, Grid, grid_engine, oar
from real_slurm import commands, idle_seconds, wait_until

from bft.replay.cli.main import run
from bft.replay.cli.recipes import RECIPES, crontab_line
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import read_trace

# Seconds by which a scheduler's times may be off those of a job: it prepares the job, and cleans up.
LAG_S = 4
# Seconds for which all nodes are idle between two jobs: some are left far from changes, however fast the machine is.
PAUSE_S = 2 * LAG_S + 10
_JOB = """\
begin=$(date +%s)
{work}
for host in $({hosts}); do echo $host $begin $(date +%s); done > {inside}/truth/$$.$(hostname)
"""


def _script(grid: Grid, name: str, work: str, hosts: str) -> None:
    script = grid.folder / name
    script.write_text(_JOB.format(inside=INSIDE, work=work, hosts=hosts))
    script.chmod(0o755)


def _truth(folder: Path) -> list[tuple[str, int, int]]:
    """Where and when jobs ran."""
    texts = [path.read_text() for path in sorted((folder / "truth").iterdir())]
    lines = [line.split() for text in texts for line in text.splitlines()]
    return [(host, int(begin), int(end)) for host, begin, end in lines]


def _over(folder: Path, jobs: int) -> Callable[[], bool]:
    """Whether so many jobs have ended."""
    return lambda: sum(1 for _ in (folder / "truth").iterdir()) >= jobs


def _export(grid: Grid, scheduler: str, begin_s: float) -> None:
    """Run the commands of the recipe but for the last."""
    days = {"2024-01-01": begin_s - 5, "2024-02-01": time.time()}
    for command in commands(RECIPES[scheduler]):
        for theirs, second in days.items():
            ours = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}"
            command = command.replace(f"{theirs} 00:00:00", ours)
        if not command.startswith("bft-replay"):
            grid.run("bash", "-o", "pipefail", "-c", command)


def _snapshots(grid: Grid, scheduler: str) -> None:
    """Run the line for cron a few times."""
    grid.env["HOME"] = INSIDE
    for _ in range(3):
        grid.run("bash", "-c", *commands(crontab_line(scheduler)))
        time.sleep(2)


def _ingested(scheduler: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the last command of the recipe; returns the account."""
    *_, command = commands(RECIPES[scheduler])
    assert run([*command.split()[1:], "--force", "--min-gap", "0", "--json"]) == 0
    return capsys.readouterr().out


def _agrees(folder: Path, down: list[tuple[str, int, int]]) -> None:
    """Nodes are idle where no job says that it ran, and none was down, but near a change."""
    trace = read_trace(folder / "trace.parquet")
    assert trace.nodes == NODES
    begin, end = trace.start // SECOND_NS, trace.end // SECOND_NS
    idle = idle_seconds(trace, begin, end)
    taken, near = np.zeros_like(idle), np.zeros_like(idle)
    for host, first, last in [*_truth(folder), *down]:
        row = NODES.index(host)
        low, high = max(0, first - begin), max(0, last - begin)
        taken[row, low:high] = True
        for edge in (low, high):
            near[row, max(0, edge - LAG_S) : edge + LAG_S] = True
    assert (~near & taken).sum() > 5
    assert (~near & ~taken).sum() > 20
    assert (idle == ~taken)[~near].all()


@pytest.fixture(scope="module")
def on_grid_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Grid Engine on which jobs ran: an array, one on two nodes by tasks and one without, one that was deleted."""
    folder = tmp_path_factory.mktemp("sge")
    with grid_engine(folder) as grid:
        (folder / "truth").mkdir()
        own = "cut -d ' ' -f 1 $PE_HOSTFILE"
        tasks = f"for host in $({own}); do qrsh -inherit $host sleep 12 & done; wait"
        _script(grid, "short.sh", "sleep 6", "hostname")
        _script(grid, "long.sh", "sleep 20", "hostname")
        _script(grid, "tasks.sh", tasks, own)
        begin = time.time()

        def submit(*given: str) -> None:
            grid.run("qsub", "-V", "-S", "/bin/sh", "-j", "y", "-o", "/dev/null", *given)  # fmt: skip

        submit("-t", "1-2", "short.sh")
        submit("-pe", "mpi", "8", "tasks.sh")
        submit("-h", "short.sh")
        submit("long.sh")
        wait_until(_over(folder, 2))
        grid.run("qdel", "3")
        _snapshots(grid, "sge")
        wait_until(_over(folder, 4))
        # Of what it starts on its second node by itself Grid Engine does not know.
        submit("-pe", "mpi", "8", "short.sh")
        wait_until(_over(folder, 5))
        time.sleep(PAUSE_S)
        submit("short.sh")
        wait_until(_over(folder, 6))
        wait_until(lambda: not grid.run("qstat").strip(), "jobs did not end")
        _snapshots(grid, "sge")
        time.sleep(3)  # the accounting is written each second
        _export(grid, "sge", begin)
    return folder


@pytest.mark.slow
def test_the_recipe_for_grid_engine_is_run_and_read(
    on_grid_engine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(on_grid_engine)
    account = _ingested("sge", capsys)
    assert '"skipped": []' in account
    assert "a parallel job names one host only" in account
    _agrees(on_grid_engine, [])


@pytest.mark.slow
def test_the_line_for_cron_makes_snapshots_of_grid_engine(
    on_grid_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(on_grid_engine)
    *_, command = commands(RECIPES["snapshots"])
    assert run([*command.split()[1:], "--force", "--min-gap", "0"]) == 0
    trace = read_trace(on_grid_engine / "trace.parquet")
    assert trace.nodes == NODES
    assert 0 < trace.idle_node_seconds() < 4 * (trace.end - trace.start) / SECOND_NS


@pytest.fixture(scope="module")
def on_oar(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[tuple[str, int, int]]]:
    """An OAR on which jobs ran, and when a node was absent: on two nodes, on half of one, one that waited in vain."""
    folder = tmp_path_factory.mktemp("oar")
    with oar(folder) as grid:
        (folder / "truth").mkdir()
        (folder / "truth").chmod(0o777)
        _script(grid, "short.sh", "sleep 6", "sort -u $OAR_NODEFILE")
        _script(grid, "long.sh", "sleep 20", "sort -u $OAR_NODEFILE")
        begin = time.time()

        def submit(resources: str, script: str, *more: str) -> str:
            wanted = f"{resources},walltime=0:2:0"
            given = ("oarsub", "-d", f"{INSIDE}/home", "-l", wanted, *more, f"{INSIDE}/{script}")  # fmt: skip
            return grid.run(*given, user="postgres").split("OAR_JOB_ID=")[1].strip()

        submit("/nodes=2", "short.sh")
        submit("/resource_id=1", "long.sh")
        grid.run("oarnodesetting", "-h", "n4", "-s", "Absent")
        absent = time.time()
        waits = submit("/nodes=4", "short.sh")
        wait_until(_over(folder, 1))
        time.sleep(12)
        grid.run("oardel", waits, user="postgres")
        grid.run("oarnodesetting", "-h", "n4", "-s", "Alive")
        down = [("n4", int(absent), int(time.time()))]
        wait_until(_over(folder, 2))
        time.sleep(PAUSE_S)
        submit("/nodes=1", "short.sh")
        wait_until(_over(folder, 3))
        wait_until(lambda: not grid.run("oarstat").strip(), "jobs did not end")
        _export(grid, "oar", begin)
    return folder, down


@pytest.mark.slow
def test_the_recipe_for_oar_is_run_and_read(
    on_oar: tuple[Path, list[tuple[str, int, int]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, down = on_oar
    monkeypatch.chdir(folder)
    account = _ingested("oar", capsys)
    assert '"skipped": []' in account
    _agrees(folder, down)
