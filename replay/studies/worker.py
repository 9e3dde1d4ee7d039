"""One point, in any process: every error leaves this module as a text."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing import connection, parent_process
from multiprocessing.synchronize import Event
from pathlib import Path

from bft.models import InputError
from bft.replay.inputs.files import Files
from bft.replay.options.options import Options
from bft.replay.run import execute
from bft.replay.studies.points import key_of
from bft.replay.studies.study import Study


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
    error = _attempt(task, None if _stopped is None else _stopped.is_set)
    return Done(task.key, error, time.perf_counter() - began)


def _attempt(task: Task, should_stop: Callable[[], bool] | None) -> str | None:
    study = Study(task.study)
    try:
        if key_of(task.options, _files()) != task.key:
            raise InputError(
                "an input or a version has changed since the study was planned; plan it again"
            )
        folder = study.run(task.key)
        summary = execute(
            task.options,
            folder,
            force=True,
            files=_files(),
            should_stop=should_stop,
            tables=task.whole,
        )
    except Exception as error:
        text = (
            str(error)
            if isinstance(error, InputError)
            else f"{type(error).__name__}: {error}"
        )
        study.record_failure(task.key, text)
        return text
    if summary["metrics"]["interrupted"]:
        return "interrupted"
    study.forget_failure(task.key)
    return None


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
