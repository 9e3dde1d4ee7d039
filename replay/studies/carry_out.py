"""Carry out a plan in a study directory: finished points are skipped, the others go to the workers.

A dead worker costs its points one more try, and nothing else.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Future,
    wait,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bft.models import InputError
from bft.replay.results.run_directory import SUMMARY
from bft.replay.results.run_reading import damage_named
from bft.replay.run import degraded
from bft.replay.studies.executors import Submit, Workers
from bft.replay.studies.points import Plan
from bft.replay.studies.study import Study
from bft.replay.studies.worker import Done, Task, perform


class Onlooker(Protocol):
    """Shows the progress of a study."""

    def begins(self, points: int, done: int, workers: str) -> None:
        """Begin: there are this many points, of which this many are already done."""

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """A point is done, or has failed."""


class Unwatched:
    """A progress display that shows nothing."""

    def begins(self, points: int, done: int, workers: str) -> None:
        """Show nothing when the points begin."""

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """Show nothing when a point ended."""


@dataclass(frozen=True, slots=True)
class Account:
    """The result of carrying out a plan.

    Parameters
    ----------
    reused
        Number of points that were done before.
    failures
        Errors of points that failed now, by label.
    notes
        Notes on what changed results, with the number of points that each applies to.
    degraded
        Labels of points whose run used fallbacks or met invalid answers of a solver.
    """

    reused: int
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
    onlooker = onlooker or Unwatched()
    pairs = list(zip(plan.points, keys, strict=True))
    if only is not None:
        if not 0 <= only < len(pairs):
            raise InputError(
                f"--index: expected a whole number from 0 to {len(pairs) - 1}, not {only}"
            )
        pairs = [pairs[only]]
    labels: dict[str, str] = {}
    for point, key in pairs:
        labels.setdefault(key, point.label)
    todo = {}
    for point, key in pairs:
        if again or not _there(study, key, whole=whole):
            todo[key] = Task(key, point.options, Path(study.folder).absolute(), whole)
    reused = sum(key not in todo for _, key in pairs)
    onlooker.begins(len(labels), len(labels) - len(todo), workers.name)
    failures: dict[str, str] = {}

    def on_done(done: Done) -> None:
        if done.error is not None:
            failures[labels[done.key]] = done.error
        onlooker.ended(labels[done.key], done.error, done.seconds)

    if todo:
        run_tasks(todo.values(), workers, on_done)
    notes: Counter[str] = Counter()
    fell_back = []
    for key, label in labels.items():
        summary = study.summary(key)
        if summary is not None:
            with damage_named(study.run(key) / SUMMARY):
                notes.update(summary["notes"])
                fell_back += [label] if degraded(summary["metrics"]) else []
    return Account(reused, failures, dict(notes), tuple(fell_back))


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
        finished = [future for future in ended if not _broken(future)]
        for future in finished:
            on_done(_result(future, under_way.pop(future)))
        if len(finished) < len(ended):
            return list(under_way.values())
    return []


def _broken(future: Future[Done]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)


def _result(future: Future[Done], task: Task) -> Done:
    """The result of a future; an error of the executor itself, such as a lost node, counts as the point's error."""
    try:
        return future.result()
    except (Exception, CancelledError) as error:
        return _failed(task, f"{type(error).__name__}: {error}")


def _failed(task: Task, error: str) -> Done:
    Study(task.study).record_failure(task.key, error)
    return Done(task.key, error, 0.0)
