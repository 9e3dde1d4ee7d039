"""What sacct would print of a machine that is made up: for first steps, where no log of one's own is at hand."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import numpy as np

HEADER = "JobID|JobName|NodeList|AllocNodes|Start|End|State"
MEAN_S = 5400
"""Mean run time of a job, s."""


def generate_sacct(
    *, nodes: int = 64, days: float = 3.0, seed: int = 0, start: str = "2024-03-04", load: float = 0.85
) -> str:
    """Generate a log as `sacct -P` prints it, of a machine that starts its jobs first come, first served.

    Jobs want 1 to half of all nodes (as likely 1 to 2 as 2 to 4 ...) for 90 minutes on average. Nodes that wait for a
    large job, or for the next submission, are idle. Nothing in it comes from a real log.

    Parameters
    ----------
    nodes
        Nodes of the machine, at least 2.
    days
        Length of the log.
    seed
        Same seed, same log.
    start
        First day, UTC.
    load
        Submitted node-hours over those of the machine.

    Examples
    --------
    >>> for line in generate_sacct(nodes=8, days=0.1).splitlines()[:2]:
    ...     print(line)
    JobID|JobName|NodeList|AllocNodes|Start|End|State
    1000|run0|cn1|1|2024-03-04T00:19:17|2024-03-04T00:22:02|COMPLETED
    """
    rng = np.random.default_rng(seed)
    end_s, largest = round(days * 86_400), max(1, nodes // 2)
    mean_size = float(np.mean(np.round(largest ** np.linspace(0, 1, 1001))))
    gap_s = MEAN_S * mean_size / (nodes * load)
    free = np.zeros(nodes, dtype=np.int64)  # when each node is free again
    submit = begin = 0.0
    rows = []
    while True:
        submit += rng.exponential(gap_s)
        size, length = round(largest ** rng.random()), 60 + int(rng.exponential(MEAN_S - 60))
        taken = np.sort(np.argsort(free, kind="stable")[:size])
        begin = max(begin, submit, float(free[taken].max()) + 1)
        if begin >= end_s:
            break
        first, last = int(begin), min(int(begin) + length, end_s)
        free[taken] = last
        rows.append((first, last, taken.tolist(), last < int(begin) + length))
    origin = np.datetime64(start, "s")
    lines = [
        f"{1000 + number}|run{number % 7}|{_hosts(taken, nodes)}|{len(taken)}|{origin + first}|"
        f"{'Unknown' if runs else origin + last}|{'RUNNING' if runs else 'COMPLETED'}"
        for number, (first, last, taken, runs) in enumerate(rows)
    ]
    return "\n".join([HEADER, *lines]) + "\n"


def _hosts(taken: Iterable[int], nodes: int) -> str:
    """As Slurm writes a list of nodes, counted from 1."""
    digits = len(str(nodes))
    runs = [[node for _, node in group] for _, group in groupby(enumerate(taken), lambda at: at[1] - at[0])]
    texts = [f"{run[0] + 1:0{digits}}" + (f"-{run[-1] + 1:0{digits}}" if len(run) > 1 else "") for run in runs]
    return f"cn{texts[0]}" if len(texts) == 1 and "-" not in texts[0] else f"cn[{','.join(texts)}]"
