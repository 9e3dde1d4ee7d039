"""Time limits of jobs, as Slurm and PBS write them."""

from __future__ import annotations

import re

from bft.replay.trace.node_trace import SECOND_NS

# Columns of sacct with the limit, and with the nodes that a job asks for while it waits.
LIMITS = ("timelimit", "timelimitraw")
FEWEST = ("nnodes", "reqnodes")
# What Slurm writes instead of a limit.
UNLIMITED = frozenset({"UNLIMITED", "Partition_Limit", "INVALID"})
_LIMIT = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(?:(\d{1,6}):)?(\d{1,9})(?:\.\d+)?", re.ASCII)


def limit_ns(text: str, *, minutes: bool = False) -> int | None:
    """Nanoseconds of [DAYS-]HOURS:MINUTES:SECONDS, MINUTES:SECONDS or SECONDS; None when a text is none of these.

    Parameters
    ----------
    text
        As a scheduler prints it.
    minutes
        A single number is of minutes, as in Slurm's TimelimitRaw.

    Examples
    --------
    >>> [limit_ns(text) // 10**9 for text in ("1-00:30:00", "02:00:00", "10:00", "90")]
    [88200, 7200, 600, 90]
    >>> limit_ns("UNLIMITED") is None
    True
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        return None
    days, first, second, last = match.groups()
    if first is None:
        if days is not None:
            return None
        return int(last) * (60 if minutes else 1) * SECOND_NS
    hours, middle = (int(first), int(second)) if second is not None else (0, int(first))
    return (((int(days or 0) * 24 + hours) * 60 + middle) * 60 + int(last)) * SECOND_NS
