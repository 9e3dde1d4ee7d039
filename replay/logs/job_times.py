"""When the jobs of a log ran, apart from their nodes: what a log shows of its own begin and end."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bft.replay.trace.node_trace import SECOND_NS, TimeArray

# The end of what is still running when the log ends.
OPEN = 2**63 - 1
_DAY_NS = 86_400 * SECOND_NS
# Jobs from which on the usual distance of two starts, and the usual number of running jobs, can be told.
_ENOUGH = 10
# A log that lacks the jobs that ended after it shows a small part of those that ran at its end.
_FEW = 1 / 3


class Outlier(NamedTuple):
    """A start or an end that lies further from all others than these lie apart.

    Parameters
    ----------
    what
        `start` (later than all others), `end` (later), or `first end` (earlier).
    time_ns, next_ns
        The time, and the nearest of the others, UTC nanoseconds.
    start_ns
        Start of the job, by which its record is found.
    """

    what: str
    time_ns: int
    next_ns: int
    start_ns: int


class Quiet(NamedTuple):
    """The end of a window in which no job starts, longer than is usual.

    Parameters
    ----------
    length_ns, usual_ns
        From the last start to the end of the window, and the mean distance of two starts before.
    """

    length_ns: int
    usual_ns: int


class JobTimes:
    """Start and end of each job, in any order; an end of `OPEN` is still to come. Takes 16 bytes a job."""

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")

    def add(self, start_ns: int, end_ns: int) -> None:
        """Add a job."""
        self._starts.append(start_ns)
        self._ends.append(end_ns)

    def add_together(self, starts: TimeArray, ends: TimeArray) -> None:
        """Add jobs, one entry each."""
        self._starts.frombytes(starts.astype(np.int64, copy=False).tobytes())
        self._ends.frombytes(ends.astype(np.int64, copy=False).tobytes())

    def _columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.array(self._starts, dtype=np.int64), np.array(
            self._ends, dtype=np.int64
        )

    def last_start(self) -> int:
        """The latest start, 0 without jobs."""
        return max(self._starts, default=0)

    def outliers(self) -> list[Outlier]:
        """Times that stretch the span of the log to more than twice what it is without them, and by more than a day."""
        starts, ends = self._columns()
        found = []
        for what, jobs, times, sign in (
            ("start", starts, starts, 1),
            ("end", starts[ends < OPEN], ends[ends < OPEN], 1),
            ("first end", starts[ends < OPEN], ends[ends < OPEN], -1),
        ):
            distinct = np.unique(times)
            if len(distinct) < 3:
                continue
            extreme, nearest, far = (
                distinct[[-1, -2, 0]] if sign > 0 else distinct[[0, 1, -1]]
            )
            away = abs(int(extreme) - int(nearest))
            if away > _DAY_NS and away > abs(int(nearest) - int(far)):
                start_ns = int(jobs[times == extreme][0])
                found.append(Outlier(what, int(extreme), int(nearest), start_ns))
        return found

    def quiet_end(self, start_ns: int, end_ns: int) -> Quiet | None:
        """The last part of a window if no job starts in it and it is longer than all but 1 % of such pauses before."""
        starts = np.unique(self._columns()[0])
        starts = starts[(starts >= start_ns) & (starts < end_ns)]
        if len(starts) < _ENOUGH:
            return None
        pauses = np.diff(starts)
        length, usual = end_ns - int(starts[-1]), float(pauses.mean())
        if length <= 10 * usual or np.mean(pauses >= length) > 0.01:
            return None
        return Quiet(length, round(usual))

    def missing_share(self, start_ns: int, end_ns: int, *, only_ended: bool) -> float:
        """Estimate how much of the jobs' time in a window is missing because these jobs ended after the log did.

        A log of jobs that have ended, up to its last end, lacks those that ran then. With jobs as long and as frequent
        as those of the log, n in a time L, the missing ones ran for sum(d * d / 2) / L before that end, d the lengths.
        The result is this time as a share of the time of the jobs that are known, and 0 where nothing seems to miss.

        Parameters
        ----------
        start_ns, end_ns
            The window.
        only_ended
            Whether the format has no rows of running jobs. Otherwise 0 is returned unless far fewer jobs are known to
            run at the end of the window than ran on average.
        """
        starts, ends = self._columns()
        known = ends < OPEN
        ran = (
            np.clip(np.minimum(ends, end_ns) - np.maximum(starts, start_ns), 0, None)
            .astype(np.float64)
            .sum()
        )
        if np.count_nonzero(known) < _ENOUGH or not ran:
            return 0.0
        usual = ran / (end_ns - start_ns)
        running = np.count_nonzero((starts < end_ns) & (ends > end_ns))
        if not only_ended and (usual < _ENOUGH or running > _FEW * usual):
            return 0.0
        first, last = int(ends[known].min()), int(ends[known].max())
        lengths = (ends - starts)[known].astype(np.float64)
        beyond = np.clip(lengths - max(0, last - end_ns), 0, None)
        missing = (beyond**2).sum() / 2 / max(last - first, end_ns - start_ns)
        return float(missing / ran)
