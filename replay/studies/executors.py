"""Who does the points of a study: anything with the protocol of `concurrent.futures.Executor`."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from bft.replay.studies.worker import Done, Task, prepare

T = TypeVar("T")
Submit = Callable[[Callable[[Task], Done], Task], "Future[Done]"]


@dataclass(frozen=True, slots=True)
class Workers:
    """Who does the points.

    Parameters
    ----------
    start
        Makes an executor, as often as one has broken, and yields its `submit`.
    at_once
        Points that are handed to it at once; None for all.
    name
        For people.
    """

    start: Callable[[], AbstractContextManager[Submit]]
    at_once: int | None
    name: str


def processes() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local(count: int | None = None) -> Workers:
    """Processes of this machine; as many as it has processors, unless said otherwise. 0 is this process itself."""
    count = processes() if count is None else count
    if count == 0:
        return replace(given(_Here(), "this process"), at_once=1)
    return Workers(lambda: _pool(count), count, f"{count} process{'es' * (count != 1)}")


@contextmanager
def _pool(count: int) -> Iterator[Submit]:
    # Not forked: solvers and compiled kernels have threads.
    context = multiprocessing.get_context("spawn")
    stopped = context.Event()
    with ProcessPoolExecutor(count, context, prepare, (stopped,)) as pool:
        try:
            yield pool.submit
        except BaseException:
            stopped.set()  # what is under way ends at its next step
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def given(executor: Executor, name: str) -> Workers:
    """An executor that somebody else starts and ends."""

    @contextmanager
    def start() -> Iterator[Submit]:
        yield executor.submit

    return Workers(start, None, name)


class _Here(Executor):
    """Does what it is given at once, in this process."""

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """Return a future that is done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
