"""A plan is carried out in a study directory: what is done already is left, the rest goes to the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bft.models import InputError
from bft.replay.run import degraded
from bft.replay.studies.executors import Workers
from bft.replay.studies.points import Plan
from bft.replay.studies.running import run_tasks
from bft.replay.studies.study import Study
from bft.replay.studies.worker import Done, Task


class Onlooker(Protocol):
    """Whoever shows how far a study has come."""

    def begins(self, points: int, done: int, workers: str) -> None:
        """So many points are there, of which so many need not be done again."""

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """A point is done, or has failed."""


class Unwatched:
    """An onlooker that shows nothing."""

    def begins(self, points: int, done: int, workers: str) -> None:
        """Show nothing."""

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """Show nothing."""


@dataclass(frozen=True, slots=True)
class Account:
    """What came of a plan.

    Parameters
    ----------
    reused
        Points that were done before.
    failures
        Errors of points that failed now, by label.
    notes
        What changed results: sentences of the runs, and of how many points each.
    degraded
        Labels of points whose run used fallbacks or found answers invalid.
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
    """Do the points that are not done yet; failed ones are tried again.

    Parameters
    ----------
    study, plan, keys
        Where, what, and the keys of the points' configurations.
    workers
        Who does them.
    whole
        Keep whole run directories, and do those again of which only the summary was kept.
    only
        The index of the one point to do.
    again
        Do also those that are done.
    onlooker
        Who shows progress.

    Raises
    ------
    InputError
        When there is no point of that index, or the study cannot be written.
    """
    onlooker = onlooker or Unwatched()
    pairs = list(zip(plan.points, keys, strict=True))
    if only is not None:
        if not 0 <= only < len(pairs):
            raise InputError(f"--index: expected a whole number from 0 to {len(pairs) - 1}, not {only}")
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
            notes.update(summary["notes"])
            fell_back += [label] if degraded(summary["metrics"]) else []
    return Account(reused, failures, dict(notes), tuple(fell_back))


def _there(study: Study, key: str, *, whole: bool) -> bool:
    return study.summary(key) is not None and (not whole or (study.run(key) / "jobs.parquet").exists())
