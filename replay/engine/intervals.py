"""What a job has held: intervals of time with the same units at the same rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from bft.replay.trace.node_trace import SECOND_NS

Ending = Literal["decision", "leave", "finish", "cancel", "rate"]
"""Why an interval ended: by the present decision; as units left; as the job finished or was cancelled; or as only its
rate changed, by partners, other jobs on the network, or its own progress."""


class RunInterval(NamedTuple):
    """An interval in which a job held the same number of units and ran at the same rate.

    Parameters
    ----------
    units
        Units held, at least 1.
    seconds
        How long, since the policy was last asked; `stalled_s` of them without progress.
    stalled_s
        Seconds of stalls (starts, restarts, rescales that stop a job) among them.
    rate
        Samples/s while it was not stalled.
    shared
        Whether it shared units with another job, which changes the rate.
    ended
        Why the interval ended.

    Examples
    --------
    >>> interval = RunInterval(4, 60.0, 20.0, 30.0, False, "leave")
    >>> interval.progressed_s
    40.0
    """

    units: int
    seconds: float
    stalled_s: float
    rate: float
    shared: bool
    ended: Ending

    @property
    def progressed_s(self) -> float:
        """Seconds in which the job made progress."""
        return self.seconds - self.stalled_s

    @classmethod
    def between(
        cls, begin_ns: int, end_ns: int, units: int, shared: bool, stall_ns: int, rate: float, ended: Ending
    ) -> RunInterval:
        """The interval from one instant to another; `stall_ns`: until when the job was to stall."""
        stalled_ns = max(0, min(stall_ns, end_ns) - begin_ns)
        return cls(units, (end_ns - begin_ns) / SECOND_NS, stalled_ns / SECOND_NS, rate, shared, ended)


Row = tuple[str, int, int, int, bool, int, float, Ending]
"""An interval as the engine notes it, which must be fast: the job's name, and what `RunInterval.between` takes."""


class EndedIntervals(Mapping[str, Sequence[RunInterval]]):
    """The intervals of each job, by name; made when they are first looked at, as most policies do not.

    Examples
    --------
    >>> dict(EndedIntervals([("a", 0, 2 * SECOND_NS, 4, False, SECOND_NS, 30.0, "leave")]))
    {'a': (RunInterval(units=4, seconds=2.0, stalled_s=1.0, rate=30.0, shared=False, ended='leave'),)}
    """

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = rows

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[RunInterval]]:
        found: dict[str, list[RunInterval]] = {}
        for row in self._rows:
            found.setdefault(row[0], []).append(RunInterval.between(*row[1:]))
        return {name: tuple(of) for name, of in found.items()}

    def __getitem__(self, name: str) -> Sequence[RunInterval]:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


NONE_ENDED = EndedIntervals()
