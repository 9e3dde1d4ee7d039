"""`bft-replay sweep`: the same results with every executor, kills lose nothing, job arrays, the best point."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from dying import dies
from hypothesis import given
from hypothesis import strategies as st
from packages import planted
from processes import AMPLE_S, SCRIPT, end_process, result_of, signalled

import bft
from bft.datasets import load_bundled
from bft.models import Curve, InputError, Job, JobTable, write_jobs
from bft.replay import Options
from bft.replay.cli.main import run
from bft.replay.inputs.files import Files
from bft.replay.studies.carry_out import DIED, Task, Workers, local, run_tasks
from bft.replay.studies.study import Plan, Study, best, key_of
from bft.replay.trace.trace_files import select_nodes, trace_from_frame, write_trace

HERE = ["--workers", "0"]
GRID = ["-Tfwd", "10,30,60,120,300,600", "-maxJ", "2,5,10,0"]


def bytes_of(study: str) -> bytes:
    return Path(study, "results.parquet").read_bytes()


@pytest.mark.parametrize("command", ["sweep", "compare"])
def test_an_interrupted_study_prints_the_command_that_goes_on(
    files: list[str], command: str
) -> None:
    args = [command, *files, *HERE, "-Tfwd", "30,600"]
    # The first replay has fewer steps than this, so that it is the second one that is interrupted.
    steps = len(pd.read_parquet(files[1])) + 20
    process = result_of([*signalled([(steps, signal.SIGINT)]), *args, "--again"])
    assert process.returncode == 130, process.stderr
    *_, told, again = process.stderr.splitlines()
    assert told == (
        "Interrupted: replays that were done are kept, and this command goes on from there:"
    )
    assert again == f"bft-replay {' '.join(args)}"
    last = result_of([*SCRIPT, *again.split()[1:]])
    assert (last.returncode, "2 replays, 1 done before" in last.stderr) == (0, True), (
        last.stderr
    )


def test_a_grid_is_done_point_by_point(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sweep", *files, *HERE, "-Tfwd", "30,600", "-maxJ", "1,0"]) == 0
    said = capsys.readouterr()
    assert "4 done: sweep-study/results.parquet" in said.out
    assert "  4 of 4  -Tfwd 600, -maxJ 0" in said.err
    frame = pd.read_parquet("sweep-study/results.parquet")
    assert frame[["tfwd_s", "max_jobs"]].to_numpy().tolist() == [
        [30, 1],
        [30, 0],
        [600, 1],
        [600, 0],
    ]
    assert set(Options().flat()) <= set(frame.columns)
    assert run([*files, "-Tfwd", "600", "-maxJ", "1", "--out", "alone"]) == 0
    metrics = json.loads(Path("alone/summary.json").read_text())["metrics"]
    assert frame.loc[2, "outcome"] == metrics["outcome"]
    assert frame.loc[2, "jct_s.mean"] == metrics["jct_s"]["mean"]
    assert frame.loc[2, "metric.jobs"] == 8
    # Once more there is nothing to do, and with one more value only its points.
    before = bytes_of("sweep-study")
    assert run(["sweep", *files, *HERE, "-Tfwd", "30,600", "-maxJ", "1,0"]) == 0
    assert "4 replays, 4 done before" in capsys.readouterr().err
    assert bytes_of("sweep-study") == before
    assert run(["sweep", *files, *HERE, "-Tfwd", "30,600", "-maxJ", "1,0,2"]) == 0
    assert "6 replays, 4 done before" in capsys.readouterr().err


def test_shares_of_a_job_array_come_to_the_same(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    grid = [*files, "-Tfwd", "30,600", "-maxJ", "1,0"]
    assert run(["sweep", *grid, *HERE, "--out", "whole"]) == 0
    assert run(["sweep", *grid, "--script", "none", "--out", "shares"]) == 0
    for index in (3, 1, 0):
        assert run(["sweep", "--index", str(index), "--out", "shares"]) == 0
    assert run(["sweep", "--collect", "--out", "shares"]) == 3
    assert "3 done, 1 missing" in capsys.readouterr().out
    assert run(["sweep", "--index", "2", "--out", "shares"]) == 0
    assert run(["sweep", "--collect", "--out", "shares"]) == 0
    assert bytes_of("shares") == bytes_of("whole")
    assert run(["sweep", "--index", "4", "--out", "shares"]) == 2
    assert "expected a whole number from 0 to 3, not 4" in capsys.readouterr().err
    # An input that is not what was planned is no result of the plan.
    write_jobs(JobTable(()), "jobs.parquet")
    assert run(["sweep", "--index", "0", "--again", "--out", "shares"]) == 2
    assert "has changed since the study was planned" in capsys.readouterr().err


def test_a_point_that_fails_stops_no_other(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A rigid policy refuses a job that needs more units than there ever are."""
    wide = Curve([0, 9], [0, 30])
    write_jobs(JobTable((Job("wide", 0, 9, 9, 1e4, 0, 0, wide, wide),)), "wide.parquet")
    args = [
        "-ndmap",
        "trace.parquet",
        "--jobs",
        "wide.parquet",
        "--jobs",
        "jobs.parquet",
        "--policy",
        "fifo",
        "--no-u",
    ]
    assert run(["sweep", *args, *HERE]) == 3
    said = capsys.readouterr()
    assert "1 done, 1 failed" in said.out
    assert "warning: --jobs wide.parquet failed:" in said.err
    frame = pd.read_parquet("sweep-study/results.parquet")
    assert frame["status"].tolist() == ["failed", "done"]
    assert "wide" in frame.loc[0, "error"]
    assert run(["sweep", "--best", "jct_s.mean"]) == 0
    assert "1 of 2 points are not done" in capsys.readouterr().err


def test_scripts_of_every_batch_system_do_one_point_per_job(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each script runs in a shell with the variable that its system sets; flux itself puts {cc} in."""
    for system, variable, first in (
        ("slurm", "SLURM_ARRAY_TASK_ID", 0),
        ("pbs", "PBS_ARRAY_INDEX", 0),
        ("lsf", "LSB_JOBINDEX", 1),
    ):
        study = f"study of {system}"  # a space must not matter
        assert (
            run(
                [
                    "sweep",
                    *files,
                    "-Tfwd",
                    "30,600",
                    "--script",
                    system,
                    "--out",
                    study,
                ]
            )
            == 0
        )
        script = Path(study, f"sweep.{system}.sh")
        text = script.read_text().replace("exec ", "echo ", 1)
        for index in (0, 1):
            environment = {**os.environ, variable: str(first + index)}
            shown = subprocess.run(
                ["sh", "-c", text],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            assert (
                f"sweep --index {index} --out {Path(study).absolute()}" in shown.stdout
            )
    assert (
        run(
            [
                "sweep",
                *files,
                "-Tfwd",
                "30,600",
                "--script",
                "flux",
                "--out",
                "flux",
            ]
        )
        == 0
    )
    assert "--cc=0-1" in Path("flux/sweep.flux.sh").read_text()


def test_the_best_value_is_that_of_the_largest_mean(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame(
        {
            "status": "done",
            "tfwd_s": [10.0, 10.0, 60.0, 60.0],
            "seed": [0, 1, 0, 1],
            "U": [0.5, 0.7, 0.8, 0.6],
            "jct_s.mean": [4.0, 5.0, 3.0, 4.0],
        }
    )
    table = best(frame, ["tfwd_s", "seed"])
    assert table.to_dict("records") == [
        {
            "tfwd_s": 60.0,
            "points": 2,
            "mean": pytest.approx(0.7),
            "low": 0.6,
            "high": 0.8,
            "wins": 1,
        },
        {
            "tfwd_s": 10.0,
            "points": 2,
            "mean": pytest.approx(0.6),
            "low": 0.5,
            "high": 0.7,
            "wins": 1,
        },
    ]
    assert best(frame, ["tfwd_s", "seed"], "jct_s.mean")["wins"].tolist() == [2, 0]
    with pytest.raises(InputError, match="no metric 'jct'"):
        best(frame, ["tfwd_s", "seed"], "jct")
    assert run(["sweep", *files, *HERE, "-Tfwd", "30,600", "-maxJ", "1,0"]) == 0
    capsys.readouterr()
    assert run(["sweep", "--best", "outcome", "--by", "Tfwd"]) == 0
    assert "Best by outcome: -Tfwd " in capsys.readouterr().out
    assert run(["sweep", "--best", "U"]) == 2
    assert "no point has a U" in capsys.readouterr().err
    assert run(["sweep", "--best", "outcome", "--by", "seed"]) == 2
    assert "does not vary 'seed'" in capsys.readouterr().err


def test_a_folder_without_a_plan_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sweep", "--collect", "--out", "none"]) == 2
    assert "no plan of a sweep" in capsys.readouterr().err


@examples(30)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "tfwd_s": st.floats(1, 1e4),
            "max_jobs": st.integers(0, 50),
            "policy": st.sampled_from(["milp", "fifo", "tiresias-l", "pollux"]),
            "restart_overhead": st.sampled_from([30.0, ((8, 40.0), (64, 60.0))]),
            "cost_model": st.sampled_from(["bftrainer", "stall"]),
            "time_limit_s": st.sampled_from([None, 5.0]),
            "seed": st.integers(0, 9),
        },
    )
)
def test_a_plan_survives_its_document(stated: dict[str, Any]) -> None:
    plan = Plan.of(stated, {"min_interval_s": [0, 60]})
    with TemporaryDirectory() as folder:
        keys = Study(Path(folder)).write_plan(plan)
        back, kept = Study(Path(folder)).read_plan()
    assert kept == keys
    assert [point.options for point in back.points] == [
        point.options for point in plan.points
    ]
    assert [key_of(point.options, Files()) for point in back.points] == keys
    assert len(set(keys)) == 2


def test_a_key_is_of_the_content_not_the_place(files: list[str], here: Path) -> None:
    (here / "elsewhere").mkdir()
    (here / "elsewhere/other-name.parquet").write_bytes(
        (here / "jobs.parquet").read_bytes()
    )
    keys = {
        key_of(Options(jobs=path), Files())
        for path in ("jobs.parquet", "elsewhere/other-name.parquet")
    }
    assert len(keys) == 1
    assert key_of(Options(), Files()) not in keys


# --- workers that die -------------------------------------------------------------------------------------------------


@contextmanager
def _pool() -> Iterator[Any]:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield lambda function, task: pool.submit(dies, task)


@pytest.mark.parametrize("kind", ["once", "always"])
def test_a_dead_worker_costs_one_retry_and_a_point_that_kills_twice_fails(
    here: Path, kind: str
) -> None:
    names = ["a", f"{kind}-b", "c", "d"]
    done: dict[str, str | None] = {}
    tasks = [Task(name, Options(), here) for name in names]
    run_tasks(
        tasks, Workers(_pool, 2, "2"), lambda each: done.update({each.key: each.error})
    )
    expected = DIED if kind == "always" else None
    assert done == {**dict.fromkeys(names), f"{kind}-b": expected}
    assert Study(here).failure(f"{kind}-b") == expected


# --- the real thing ---------------------------------------------------------------------------------------------------


@pytest.fixture
def bundled(here: Path) -> list[str]:
    """The bundled trace, of which few nodes, and its jobs: points that take a moment each."""
    table, _ = load_bundled()
    trace = trace_from_frame(table.frame, source="bundled", metadata=table.metadata)
    write_trace(select_nodes(trace, 0, 24), here / "trace.parquet")
    return ["-ndmap", "trace.parquet", "--backend", "exact", "--no-u"]


@contextmanager
def dask_cluster(*options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler and two workers, each a process: the address, and one of the workers."""
    address = Path("scheduler.json").absolute()
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "dask"]
    scheduler = [
        *command,
        "scheduler",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        address,
    ]
    worker = [
        *command,
        "worker",
        "--scheduler-file",
        address,
        "--nthreads",
        "1",
        "--no-dashboard",
        *options,
    ]
    started = [
        subprocess.Popen(command, **quiet) for command in (scheduler, worker, worker)
    ]
    try:
        until = time.monotonic() + AMPLE_S
        while not address.exists() and time.monotonic() < until:
            time.sleep(0.2)
        yield json.loads(address.read_text())["address"], started[-1]
    finally:
        # The workers first: one that loses its scheduler while it closes may never end.
        for process in reversed(started):
            end_process(process)


@pytest.mark.slow
def test_results_are_the_same_whoever_does_the_work(bundled: list[str]) -> None:
    pytest.importorskip("distributed")

    def done(out: str, *who: str) -> bytes:
        command = [*SCRIPT, "sweep", *bundled, *GRID, "--out", out, *who]
        subprocess.run(command, check=True, capture_output=True, timeout=AMPLE_S)
        return bytes_of(out)

    one = done("one", "--workers", "1")
    frame = pd.read_parquet("one/results.parquet")
    assert frame["status"].tolist() == ["done"] * 24
    assert frame["outcome"].nunique() > 4
    assert done("two", "--workers", "2") == one
    with dask_cluster() as (address, _):
        assert done("dask", "--dask", address) == one
    assert run(["sweep", *bundled, *GRID, "--script", "none", "--out", "shares"]) == 0
    for index in range(24):
        assert run(["sweep", "--index", str(index), "--out", "shares"]) == 0
    assert run(["sweep", "--collect", "--out", "shares"]) == 0
    assert bytes_of("shares") == one


@pytest.mark.slow
def test_the_death_of_one_of_two_dask_workers_changes_no_result(
    bundled: list[str],
) -> None:
    pytest.importorskip("distributed")
    assert run(["sweep", *bundled, *GRID, "--workers", "1", "--out", "one"]) == 0

    def finished() -> int:
        return len(list(Path("dask/runs").glob("*/summary.json")))

    with dask_cluster("--no-nanny") as (address, worker):
        command = [*SCRIPT, "sweep", *bundled, *GRID, "--out", "dask"]
        sweeping = subprocess.Popen([*command, "--dask", address])
        try:
            until = time.monotonic() + AMPLE_S
            while not finished() and time.monotonic() < until:
                time.sleep(0.01)
            worker.kill()
            left = 24 - finished()
            assert sweeping.wait(AMPLE_S) == 0
        finally:
            end_process(sweeping)
    assert 0 < left < 24
    assert bytes_of("dask") == bytes_of("one")


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing(bundled: list[str]) -> None:
    """A worker or the sweep itself is killed twenty times; continuing gives the same bytes."""
    command = [*SCRIPT, "sweep", *bundled, *GRID, "--workers", "2"]
    assert run(["sweep", *bundled, *GRID, *HERE, "--out", "whole"]) == 0
    rng = np.random.default_rng(7)
    for attempt in range(20):
        process = subprocess.Popen(
            [*command, "--out", "killed"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(rng.uniform(1, 8))
        workers = _children(process.pid)
        before = {
            path.parent.name for path in Path("killed/runs").glob("*/summary.json")
        }
        if attempt % 2 and workers:
            with suppress(ProcessLookupError):  # it had ended
                os.kill(int(rng.choice(workers)), signal.SIGKILL)
            process.wait(timeout=AMPLE_S)
        else:
            process.kill()
            process.wait()
        for worker in workers:  # they end with the sweep
            _gone(worker)
        assert before <= {
            path.parent.name for path in Path("killed/runs").glob("*/summary.json")
        }
        if Path("killed/results.parquet").exists():  # all are done: begin again
            assert bytes_of("killed") == bytes_of("whole")
            subprocess.run(["rm", "-r", "killed"], check=True)
    subprocess.run(
        [*command, "--out", "killed"],
        check=True,
        capture_output=True,
        timeout=AMPLE_S,
    )
    assert bytes_of("killed") == bytes_of("whole")


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return (
        [int(child) for child in listed.read_text().split()] if listed.exists() else []
    )


def _gone(pid: int) -> None:
    until = time.monotonic() + AMPLE_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_any_executor_will_do(files: list[str]) -> None:
    options: dict[str, Any] = {
        "trace": "trace.parquet",
        "jobs": "jobs.parquet",
        "backend": "exact",
        "dedicated": False,
    }
    options["grid"] = {"tfwd": [30, 600]}
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool, Executor)
        first = bft.sweep(**options, study="threads", executor=pool)
    assert first.equals(bft.sweep(**options, study="here", workers=0))
    assert local(3).at_once == 3


DIES_ONCE = """
import os
from pathlib import Path
from bft.milp import Availability
from bft.milp.backends import scipy_milp
DIED = Path(__file__).with_name('died')  # solvers do not run in the folder of the command
class once:
    name, formulations, features = 'once', ('modes',), ()
    def available(self): return Availability('1')
    def solve(self, model, limits):
        if len(model.objective) > 1 and not DIED.exists():
            DIED.touch()
            os.kill(os.getpid(), 9)
        return scipy_milp.solve(model, limits)
"""


def test_a_point_whose_solver_was_killed_is_done_again(
    files: list[str], tmp_path: Path
) -> None:
    call = planted(
        {"theirs.py": DIES_ONCE}, {"bft.backends": {"once": "theirs:once"}}, tmp_path
    )
    command = ["sweep", *files[:4], *HERE, "--backend", "once", "-Tfwd", "60", "--no-u"]  # fmt: skip
    first = call(*command, "--out", "study")
    assert first.returncode == 3
    summary = next(Path("study/runs").glob("*/summary.json"))
    assert json.loads(summary.read_text())["metrics"]["solver_deaths"] == 1
    call(*command, "--out", "study")
    assert "solver_deaths" not in json.loads(summary.read_text())["metrics"]
    call(*command, "--out", "whole")
    assert bytes_of("study") == bytes_of("whole")
    assert "degraded" in first.stderr
