"""Workers of a study: anything with the protocol of `concurrent.futures.Executor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import TypeVar

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
