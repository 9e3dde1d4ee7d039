"""What a real Grid Engine and OAR print by the recipes is read correctly: recorded, and run anew."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from real_grids import INSIDE, NODES, Grid, grid_engine, oar
from real_slurm import commands, idle_seconds, recipe

from bft.replay.cli.recipes import RECIPES, crontab_line
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import read_trace

RECORDED = Path(__file__).parents[2] / "data" / "recorded"
# Seconds by which a scheduler's times may be off those of a job: it prepares the job, and cleans up.
LAG_S = 4


def agrees(ran) -> None:
    """In trace.parquet nodes are idle but where, and from when to when, a job says that it ran, or near a change."""
    trace = read_trace("trace.parquet")
    assert trace.nodes == NODES
    begin, end = trace.start // SECOND_NS, trace.end // SECOND_NS
    idle = idle_seconds(trace, begin, end)
    taken, near = np.zeros_like(idle), np.zeros_like(idle)
    for line in ran:
        host, *edges = line.split()
        low, high = (max(0, int(edge) - begin) for edge in edges)
        taken[NODES.index(host), low:high] = True
        for edge in (low, high):
            near[NODES.index(host), max(0, edge - LAG_S) : edge + LAG_S] = True
    assert (~near & taken).sum() > 5
    assert (~near & ~taken).sum() > 20
    assert (idle == ~taken)[~near].all()


def snapshots_tell(told) -> None:
    told(f"{recipe('snapshots')} --force --min-gap 0")
    trace = read_trace("trace.parquet")
    assert trace.nodes == NODES
    assert 0 < trace.idle_node_seconds() < 4 * (trace.end - trace.start) / SECOND_NS


@pytest.mark.parametrize(
    ("scheduler", "noted"),
    [("sge", "a parallel job names one host only"), ("oar", '"skipped": []')],
)
def test_what_the_recipe_wrote_is_where_jobs_say_that_they_ran(
    scheduler: str, noted: str, here: Path, told
) -> None:
    shutil.copytree(RECORDED / scheduler, here, dirs_exist_ok=True)
    exported = commands(RECIPES[scheduler])[:-1]
    exported += commands(crontab_line(scheduler)) if scheduler == "sge" else []
    assert Path("commands.txt").read_text().splitlines() == exported
    options = "--force --min-gap 0 --json"
    told(f"{recipe(scheduler)} {options}", '"skipped": []', noted)
    agrees(Path("truth.txt").read_text().splitlines())


def test_the_line_for_cron_made_snapshots_of_grid_engine(here: Path, told) -> None:
    shutil.copy(RECORDED / "sge" / "nodes.snapshots", here)
    snapshots_tell(told)


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


def _truth() -> list[str]:
    return [line for path in Path("truth").iterdir() for line in path.read_text().splitlines()]  # fmt: skip


# Scripts wait until so many jobs have ended.
_OVER = "over() { until [ $(ls truth | wc -l) -ge $1 ]; do sleep 0.2; done; }\n"


def _export(grid: Grid, scheduler: str, begin_s: float) -> None:
    days = {"2024-01-01": begin_s - 5, "2024-02-01": time.time()}
    for command in commands(RECIPES[scheduler]):
        for theirs, second in days.items():
            ours = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}"
            command = command.replace(f"{theirs} 00:00:00", ours)
        if not command.startswith("bft-replay"):
            grid.run("bash", "-o", "pipefail", "-c", command)


def _snapshots(grid: Grid, scheduler: str) -> None:
    grid.env["HOME"] = INSIDE
    for _ in range(3):
        grid.run("bash", "-c", *commands(crontab_line(scheduler)))
        time.sleep(2)


_QSUB = "qsub -V -S /bin/sh -j y -o /dev/null"
_FIRST = f"""
{_QSUB} -t 1-2 short.sh
{_QSUB} -pe mpi 8 tasks.sh
{_QSUB} -h short.sh
{_QSUB} long.sh
over 2
qdel 3
"""
# Of what the first job starts on its second node by itself Grid Engine does not know.
_SECOND = f"""
over 4
{_QSUB} -pe mpi 8 short.sh
over 5
sleep {PAUSE_S}
{_QSUB} short.sh
over 6
until [ -z "$(qstat)" ]; do sleep 0.2; done
"""


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
        grid.run("bash", "-ec", f"{_OVER}{_FIRST}")
        _snapshots(grid, "sge")
        grid.run("bash", "-ec", f"{_OVER}{_SECOND}")
        _snapshots(grid, "sge")
        time.sleep(3)  # the accounting is written each second
        _export(grid, "sge", begin)
    return folder


@pytest.mark.slow
def test_the_recipe_for_grid_engine_is_run_and_read(
    on_grid_engine: Path, monkeypatch: pytest.MonkeyPatch, told
) -> None:
    monkeypatch.chdir(on_grid_engine)
    one_host = "a parallel job names one host only"
    told(f"{recipe('sge')} --force --min-gap 0 --json", '"skipped": []', one_host)
    agrees(_truth())
    snapshots_tell(told)


_ON_OAR = f"""
submit() {{
    runuser -u postgres -- oarsub -d {INSIDE}/home -l $1,walltime=0:2:0 {INSIDE}/$2 | sed -n s/OAR_JOB_ID=//p
}}
submit /nodes=2 short.sh
submit /resource_id=1 long.sh
oarnodesetting -h n4 -s Absent
absent=$(date +%s)
waits=$(submit /nodes=4 short.sh)
over 1
sleep 12
runuser -u postgres -- oardel $waits
oarnodesetting -h n4 -s Alive
echo n4 $absent $(date +%s) > down
over 2
sleep {PAUSE_S}
submit /nodes=1 short.sh
over 3
until [ -z "$(oarstat)" ]; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def on_oar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OAR on which jobs ran, and when a node was absent: on two nodes, on half of one, one that waited in vain."""
    folder = tmp_path_factory.mktemp("oar")
    with oar(folder) as grid:
        (folder / "truth").mkdir()
        (folder / "truth").chmod(0o777)
        _script(grid, "short.sh", "sleep 6", "sort -u $OAR_NODEFILE")
        _script(grid, "long.sh", "sleep 20", "sort -u $OAR_NODEFILE")
        begin = time.time()
        grid.run("bash", "-ec", f"{_OVER}{_ON_OAR}")
        _export(grid, "oar", begin)
    return folder


@pytest.mark.slow
def test_the_recipe_for_oar_is_run_and_read(
    on_oar: Path, monkeypatch: pytest.MonkeyPatch, told
) -> None:
    monkeypatch.chdir(on_oar)
    told(f"{recipe('oar')} --force --min-gap 0 --json", '"skipped": []')
    agrees([*_truth(), Path("down").read_text()])
