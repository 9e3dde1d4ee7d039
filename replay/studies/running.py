"""Run points on an executor. A dead worker costs its points one more try, and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Future,
    wait,
)

from bft.replay.studies.executors import Submit, Workers
from bft.replay.studies.study import Study
from bft.replay.studies.worker import Done, Task, perform

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
