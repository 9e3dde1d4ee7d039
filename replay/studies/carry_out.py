"""Carry out a plan in a study directory: finished points are skipped, the others go to the workers.

Workers are anything with the protocol of `concurrent.futures.Executor`, here or on other machines: these are reached
by Dask, or by the script of a job array. A dead worker costs its points one more try, and nothing else.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import connection, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from types import ModuleType
from typing import Protocol

from bft.models import InputError
from bft.models.plugins import extra
from bft.replay.inputs.files import Files
from bft.replay.options.options import Options
from bft.replay.run import degraded, execute
from bft.replay.studies.study import Plan, Study, key_of


@dataclass(frozen=True, slots=True)
class Task:
    """A point's replay in the form sent to a worker.

    Parameters
    ----------
    key
        Key of the configuration when the study was planned.
    options
        Options of the replay.
    study
        The study directory.
    whole
        Keep the whole run directory; otherwise its summary and wall times.
    """

    key: str
    options: Options
    study: Path
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a task: an error text, or None when the run directory exists."""

    key: str
    error: str | None
    seconds: float


_stopped: Event | None = None  # set in a local worker when the study is interrupted


@cache
def _files() -> Files:
    """The reader of inputs in this process: traces and jobs are read once for all its points."""
    return Files()


def perform(task: Task) -> Done:
    """Replay, and write the run directory, or the error, to the study."""
    began = time.perf_counter()
    study, error = Study(task.study), None
    try:
        if key_of(task.options, _files()) != task.key:
            what = "an input or a version has changed since the study was planned; plan it again"
            raise InputError(what)
        summary = execute(
            task.options,
            study.run(task.key),
            force=True,
            files=_files(),
            should_stop=None if _stopped is None else _stopped.is_set,
            tables=task.whole,
        )
        if summary["metrics"]["interrupted"]:
            error = "interrupted"
        else:
            study.record(task.key, None)
    except Exception as failure:
        kind = "" if isinstance(failure, InputError) else f"{type(failure).__name__}: "
        error = f"{kind}{failure}"
        study.record(task.key, error)
    return Done(task.key, error, time.perf_counter() - began)


def prepare(stopped: Event) -> None:
    """Make this process a local worker: it ignores Ctrl-C and a lost terminal, and ends with its parent."""
    global _stopped
    _stopped = stopped
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """End this process after its parent: a pool whose parent was killed would otherwise wait for ever."""
    connection.wait([sentinel])
    os._exit(1)


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


def local(count: int | None = None) -> Workers:
    """Processes of this machine; by default one per processor. 0 means this process."""
    if count == 0:
        return Workers(lambda: nullcontext(_here), 1, "this process")
    # macOS knows no affinity.
    usable = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    number: int = count or len(usable(0))
    name = f"{number} process{'es' * (number != 1)}"
    return Workers(lambda: _pool(number), number, name)


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


def given(executor: Executor) -> Workers:
    """An executor that the caller starts and ends."""
    return Workers(lambda: nullcontext(executor.submit), None, type(executor).__name__)


def _here(function: Callable[[Task], Done], task: Task) -> Future[Done]:
    """Call a function at once, in this process."""
    future: Future[Done] = Future()
    future.set_result(function(task))
    return future


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


# By batch system; users edit limits of time in the script. A PBS array has at least two jobs, LSF counts from 1.
SCRIPTS = {
    "slurm": """\
#SBATCH --job-name=bft-sweep
#SBATCH --array=0-{last}
#SBATCH --ntasks=1 --cpus-per-task=1
#SBATCH --time=01:00:00
#SBATCH --output={logs}/%a.log
exec {command} sweep --index "$SLURM_ARRAY_TASK_ID" --out {folder}
""",
    "pbs": """\
#PBS -N bft-sweep
{pbs_array}#PBS -l select=1:ncpus=1
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -o {logs}/
exec {command} sweep --index "${{PBS_ARRAY_INDEX:-0}}" --out {folder}
""",
    "lsf": """\
#BSUB -J "bft-sweep[1-{points}]"
#BSUB -n 1
#BSUB -W 1:00
#BSUB -o {logs}/%I.log
exec {command} sweep --index "$((LSB_JOBINDEX - 1))" --out {folder}
""",
    "flux": """\
exec flux submit --cc=0-{last} --job-name=bft-sweep --cores=1 --time-limit=1h \\
  --output={folder}/logs/{{cc}}.log {command} sweep --index {{cc}} --out {folder}
""",
}


def script(system: str, study: Path, points: int) -> str:
    """The batch script for the points of a study; logs go to the study's folder `logs`."""
    beside = Path(sys.executable).with_name("bft-replay")  # of this installation
    last, folder = points - 1, study.absolute()
    text = SCRIPTS[system].format(
        points=points,
        last=last,
        pbs_array=f"#PBS -J 0-{last}\n" if last else "",
        folder=shlex.quote(str(folder)),
        logs=folder / "logs",
        command=shlex.quote(str(beside) if beside.exists() else "bft-replay"),
    )
    return f"#!/bin/sh\n{text}"


class Onlooker(Protocol):
    """Shows the progress of a study."""

    def begins(self, points: int, done: int, workers: str) -> None:
        """Begin: there are this many points, of which this many are already done."""

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """A point is done, or has failed."""


@dataclass(frozen=True, slots=True)
class Account:
    """The result of carrying out a plan.

    Parameters
    ----------
    failures
        Errors of points that failed now, by label.
    notes
        Notes on what changed results, with the number of points that each applies to.
    degraded
        Labels of points whose run used fallbacks or met invalid answers of a solver.
    """

    failures: dict[str, str] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()


def carry_out(
    study: Study,
    plan: Plan,
    keys: Sequence[str],
    workers: Workers,
    *,
    whole: bool = False,
    only: int | None = None,
    again: bool = False,
    onlooker: Onlooker | None = None,
) -> Account:
    """Replay the points that are not done yet; failed ones are tried again.

    Parameters
    ----------
    study, plan, keys
        The study, the plan, and the keys of the points' configurations.
    workers
        What replays the points.
    whole
        Keep whole run directories, and repeat points of which only the summary was kept.
    only
        Index of a single point to replay.
    again
        Repeat points that are already done.
    onlooker
        Shows progress.

    Raises
    ------
    InputError
        When no point has that index, or the study cannot be written.
    """
    labels: dict[str, str] = {}
    tasks: dict[str, Task] = {}
    if only is not None and not 0 <= only < len(keys):
        what = f"--index: expected a whole number from 0 to {len(keys) - 1}, not {only}"
        raise InputError(what)
    for point, key in zip(plan.points, keys, strict=True):
        if only in (None, point.index) and key not in labels:
            labels[key] = point.label
            if again or not _there(study, key, whole=whole):
                tasks[key] = Task(key, point.options, study.folder.absolute(), whole)
    if onlooker is not None:
        onlooker.begins(len(labels), len(labels) - len(tasks), workers.name)
    failures: dict[str, str] = {}

    def on_done(done: Done) -> None:
        if done.error is not None:
            failures[labels[done.key]] = done.error
        if onlooker is not None:
            onlooker.ended(labels[done.key], done.error, done.seconds)

    if tasks:
        run_tasks(tasks.values(), workers, on_done)
    notes: Counter[str] = Counter()
    fell_back = []
    for key, label in labels.items():
        summary = study.summary(key)
        if summary is not None:
            notes.update(summary["notes"])
            fell_back += [label] if degraded(summary["metrics"]) else []
    return Account(failures, dict(notes), tuple(fell_back))


def _there(study: Study, key: str, *, whole: bool) -> bool:
    """Whether a point has a result that another attempt would repeat; a solver that was killed would not be again."""
    summary = study.summary(key)
    if summary is None or "solver_deaths" in summary["metrics"]:
        return False
    return not whole or (study.run(key) / "jobs.parquet").exists()


DIED = "its worker died: killed, or out of memory"
OnDone = Callable[[Done], None]


def run_tasks(tasks: Iterable[Task], workers: Workers, on_done: OnDone) -> None:
    """Run the tasks, in any order; `on_done` is called here as each one ends.

    When a pool of processes breaks, the point that broke it is unknown. So the pool is started again and each point
    that was running is tried alone. A point that breaks the pool again has failed.
    """
    todo, suspects = deque(tasks), deque[Task]()
    while todo or suspects:
        with workers.start() as submit:
            guilty = _until_broken(submit, suspects, 1, on_done)
            if guilty:
                on_done(_failed(guilty[0], DIED))
            else:
                suspects.extend(_until_broken(submit, todo, workers.at_once, on_done))


def _until_broken(
    submit: Submit, queue: deque[Task], at_once: int | None, on_done: OnDone
) -> list[Task]:
    """Run what is in the queue; return the points that were running when the pool broke, or nothing."""
    under_way: dict[Future[Done], Task] = {}
    while queue or under_way:
        try:
            while queue and (at_once is None or len(under_way) < at_once):
                under_way[submit(perform, queue[0])] = queue[0]
                queue.popleft()
        except BrokenExecutor:  # it broke since the last check
            return list(under_way.values())
        ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
        finished = [
            future
            for future in ended
            if future.cancelled() or not isinstance(future.exception(), BrokenExecutor)
        ]
        for future in finished:
            on_done(_result(future, under_way.pop(future)))
        if len(finished) < len(ended):
            return list(under_way.values())
    return []


def _result(future: Future[Done], task: Task) -> Done:
    """The result of a future; an error of the executor itself, such as a lost node, counts as the point's error."""
    try:
        return future.result()
    except (Exception, CancelledError) as error:
        return _failed(task, f"{type(error).__name__}: {error}")


def _failed(task: Task, error: str) -> Done:
    Study(task.study).record(task.key, error)
    return Done(task.key, error, 0.0)
