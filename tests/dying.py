"""A point that kills its worker, in a module that newly started processes can import."""

import os
import signal

from bft.replay.studies.carry_out import Done, Task


def dies(task: Task) -> Done:
    """Do a point; one whose key begins with `once` kills its worker the first time, with `always` each time."""
    marker = task.study / f"{task.key}.begun"
    first = not marker.exists()
    marker.touch()
    if task.key.startswith("always") or (task.key.startswith("once") and first):
        os.kill(os.getpid(), signal.SIGKILL)
    return Done(task.key, None, 0.0)
