"""Workers of a study: anything with the protocol of `concurrent.futures.Executor`, here or on other machines.

Other machines are reached by Dask, batch systems through Dask, Parsl, or by the script of a job array.
"""

from __future__ import annotations

import os
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from bft.models import InputError
from bft.models.plugins import extra
from bft.replay.studies.worker import Done, Task, prepare

T = TypeVar("T")
Submit = Callable[[Callable[[Task], Done], Task], "Future[Done]"]


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that replay the points.

    Parameters
    ----------
    start
        Starts an executor and yields its `submit`; called again when an executor has broken.
    at_once
        Number of points submitted at a time; None for all.
    name
        Name shown to users.
    """

    start: Callable[[], AbstractContextManager[Submit]]
    at_once: int | None
    name: str


def processes() -> int:
    """The number of processors that this process may use."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


def local(count: int | None = None) -> Workers:
    """Processes of this machine; by default one per processor. 0 means this process."""
    count = processes() if count is None else count
    if count == 0:
        return replace(given(_Here(), "this process"), at_once=1)
    return Workers(lambda: _pool(count), count, f"{count} process{'es' * (count != 1)}")


class _Worker(SpawnProcess):
    """A process that does not import the program that starts it: a script needs no `if __name__ == "__main__"`."""

    def start(self) -> None:
        """Start the process, which sees an empty module in place of the program's."""
        program = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = program


class _Context(SpawnContext):
    """Processes that are spawned, not forked: solvers and compiled kernels use threads."""

    Process = _Worker


@contextmanager
def _pool(count: int) -> Iterator[Submit]:
    context = _Context()
    stopped = context.Event()
    with ProcessPoolExecutor(count, context, prepare, (stopped,)) as pool:
        try:
            yield pool.submit
        except BaseException:
            stopped.set()  # running replays end at their next step
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def given(executor: Executor, name: str) -> Workers:
    """An executor that the caller starts and ends."""

    @contextmanager
    def start() -> Iterator[Submit]:
        yield executor.submit

    return Workers(start, None, name)


class _Here(Executor):
    """Runs each call immediately, in this process."""

    def submit(
        self, fn: Callable[..., T], /, *args: object, **kwargs: object
    ) -> Future[T]:
        """Run the call and return its finished future."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


# dask-jobqueue's class for each batch system.
QUEUES = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster"}
# Resources of a batch job by default: a replay uses one core.
RESOURCES: dict[str, Any] = {"cores": 1, "processes": 1, "memory": "4GB"}


def dask(address: str) -> Workers:
    """The workers of a running Dask cluster, by its scheduler's address.

    Raises
    ------
    InputError
        When Dask is not installed, or no scheduler answers at the address.
    """
    distributed = extra("distributed", "dask")

    @contextmanager
    def start() -> Iterator[Submit]:
        try:
            client = distributed.Client(address)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--dask {address}: no scheduler answers: {error}"
            ) from error
        with client:
            yield client.get_executor(pure=False).submit

    return Workers(start, None, f"the Dask cluster {address}")


def jobqueue(system: str, jobs: int, resources: Mapping[str, str]) -> Workers:
    """Workers in `jobs` jobs of a batch system, which dask-jobqueue submits and ends.

    `resources` are its options: queue, account, walltime, memory and so on.

    Raises
    ------
    InputError
        When dask-jobqueue is not installed, or does not accept an option.
    """
    distributed, queues = extra("distributed", "dask"), extra("dask_jobqueue", "dask")
    asked = {
        **RESOURCES,
        **{
            name: int(text) if text.isdigit() else text
            for name, text in resources.items()
        },
    }

    @contextmanager
    def start() -> Iterator[Submit]:
        try:
            cluster = getattr(queues, QUEUES[system])(**asked)
        except (TypeError, ValueError) as error:
            raise InputError(f"--jobqueue {system}: {error}") from error
        with cluster, distributed.Client(cluster) as client:
            cluster.scale(jobs=jobs)
            yield client.get_executor(pure=False).submit

    return Workers(start, None, f"{jobs} jobs of {system}")


def parsl(path: str) -> Workers:
    """The workers of a Parsl configuration: a Python file that is executed and defines `config`.

    Raises
    ------
    InputError
        When Parsl is not installed, or the file defines no configuration.
    """
    pools, configs = extra("parsl.concurrent", "parsl"), extra("parsl.config", "parsl")
    try:
        config = runpy.run_path(path).get("config")
    except OSError as error:
        raise InputError((error.strerror or str(error)).lower(), file=path) from error
    if not isinstance(config, configs.Config):
        raise InputError(
            "expected `config = parsl.config.Config(...)` in it", file=path
        )

    @contextmanager
    def start() -> Iterator[Submit]:
        with pools.ParslPoolExecutor(config) as pool:
            yield pool.submit

    return Workers(start, None, f"Parsl as {path} says")


SYSTEMS = ("slurm", "pbs", "lsf", "flux")
# Time limit of one replay in hours; users edit it in the script.
HOURS = 1


def script(system: str, study: Path, points: int) -> str:
    """The batch script for the points of a study; logs go to the study's folder `logs`."""
    study = study.absolute()
    command, folder, logs = (
        shlex.quote(_program()),
        shlex.quote(str(study)),
        study / "logs",
    )
    last = points - 1

    def run(index: str) -> str:
        return f"exec {command} sweep run --index {index} --out {folder}"

    lines = {
        "slurm": [
            "#SBATCH --job-name=bft-sweep",
            f"#SBATCH --array=0-{last}",
            "#SBATCH --ntasks=1 --cpus-per-task=1",
            f"#SBATCH --time={HOURS:02}:00:00",
            f"#SBATCH --output={logs}/%a.log",
            run('"$SLURM_ARRAY_TASK_ID"'),
        ],
        # A PBS array has at least two jobs.
        "pbs": [
            "#PBS -N bft-sweep",
            *([f"#PBS -J 0-{last}"] if last else []),
            "#PBS -l select=1:ncpus=1",
            f"#PBS -l walltime={HOURS:02}:00:00",
            "#PBS -j oe",
            f"#PBS -o {logs}/",
            run('"${PBS_ARRAY_INDEX:-0}"'),
        ],
        "lsf": [
            f'#BSUB -J "bft-sweep[1-{points}]"',
            "#BSUB -n 1",
            f"#BSUB -W {HOURS}:00",
            f"#BSUB -o {logs}/%I.log",
            run('"$((LSB_JOBINDEX - 1))"'),  # LSF counts from 1
        ],
        "flux": [
            f"exec flux submit --cc=0-{last} --job-name=bft-sweep --cores=1 --time-limit={HOURS}h \\",
            f"  --output={shlex.quote(str(logs))}/{{cc}}.log {command} sweep run --index {{cc}} --out {folder}",
        ],
    }
    return "\n".join(["#!/bin/sh", *lines[system]]) + "\n"


def _program() -> str:
    """The command that starts this installation."""
    beside = Path(sys.executable).with_name("bft-replay")
    return str(beside) if beside.exists() else "bft-replay"
