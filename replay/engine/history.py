"""What a replay records of the past: tables by column, the progress curve of all jobs, and intervals of each job."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from bft.replay.engine.snapshot import NOT_STORED
from bft.replay.trace.node_trace import SECOND_NS

# Rows that may wait to be put into columns together.
ROWS = 256


class Columns:
    """A table of numbers and texts; rows are added at the end.

    Parameters
    ----------
    kinds
        Type of each column by its name, as `array` names them: `i` and `q` for whole numbers of 32 and 64 bits, `d` for
        floats; empty for texts.

    Attributes
    ----------
    append
        Add a row: one value per column, in their order. It waits in a list, ten times as large, until `settle`.
    latest
        The rows that wait; whoever adds them calls `settle` when there are `ROWS`.

    Examples
    --------
    >>> table = Columns({"when": "q", "what": ""})
    >>> for row in ((5, "join"), (7, "leave"), (8, "join")):
    ...     table.append(row)
    >>> len(table), table.since(1)
    (3, {'when': [7, 8], 'what': ['leave', 'join']})
    """

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._columns: dict[str, Any] = {
            name: array(kind) if kind else [] for name, kind in kinds.items()
        }
        self._first = next(iter(self._columns.values()))
        self.latest: list[Sequence[Any]] = []
        self.append: Callable[[Sequence[Any]], None] = self.latest.append

    def __len__(self) -> int:
        return len(self._first) + len(self.latest)

    def settle(self) -> None:
        """Put the latest rows into columns."""
        if self.latest:
            for column, values in zip(
                self._columns.values(), zip(*self.latest, strict=True), strict=True
            ):
                column.extend(values)
            self.latest.clear()

    def since(self, row: int) -> dict[str, list[Any]]:
        """Return the rows from this one on, by column, as JSON values."""
        self.settle()
        return {name: list(column[row:]) for name, column in self._columns.items()}

    def restore(self, columns: Mapping[str, list[Any]]) -> None:
        """Replace all rows by these."""
        self.latest.clear()
        for name, column in self._columns.items():
            column[:] = (
                array(column.typecode, columns[name])
                if isinstance(column, array)
                else columns[name]
            )

    def hand_over(self) -> dict[str, Any]:
        """Return the columns as `arrays` does, for a caller that changes them: the table is empty afterwards."""
        arrays = self.arrays()
        for name, column in self._columns.items():
            self._columns[name] = (
                array(column.typecode) if isinstance(column, array) else []
            )
        self._first = next(iter(self._columns.values()))
        return arrays

    def arrays(self) -> dict[str, Any]:
        """Return the columns by name, numbers as arrays on the same memory: no row can be added while one is in use."""
        self.settle()
        return {
            name: np.asarray(memoryview(column))
            if isinstance(column, array)
            else column
            for name, column in self._columns.items()
        }


Stall = tuple[int, float]
"""The instant (UTC ns) until which a job makes no progress, and the samples/s that are missing until then."""


@dataclass
class ProgressCurve:
    """The work of all jobs over time. Between two instants of a replay the rates are constant, apart from stalls.

    Attributes
    ----------
    end
        The instant (UTC ns) up to which it is known.
    """

    end: int = 0
    _final: float = 0.0
    # One row for each span between two instants: its begin, the work done by then (costs of that instant deducted),
    # samples/s within it; and one for each stall under way in it.
    _spans: Columns = field(init=False, metadata=NOT_STORED)
    _stalls: Columns = field(init=False, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        self._spans = Columns({"begin": "q", "work": "d", "rate": "d"})
        self._stalls = Columns({"span": "q", "until": "q", "rate": "d"})

    @property
    def history(self) -> dict[str, Columns]:
        """The recorded history, which only grows."""
        return {"spans": self._spans, "stalls": self._stalls}

    def went(
        self, begin: int, end: int, work: float, rate: float, stalls: Sequence[Stall]
    ) -> int:
        """Record that jobs went at `rate` samples/s less stalls from `begin` to `end`, with `work` samples done before.

        Returns
        -------
        int
            Spans that wait to be put into columns.
        """
        if stalls:
            span = len(self._spans)
            for until, lacking in stalls:
                self._stalls.append((span, until, lacking))
            if len(self._stalls.latest) >= ROWS:
                self._stalls.settle()
        self._spans.append((begin, work, rate))
        self.end = end
        return len(self._spans.latest)

    def closed(self, end: int, work: float) -> None:
        """Record that the replay ended at `end` with this much work done."""
        self.end, self._final = end, work

    def at(self, instant: int) -> float:
        """Return the samples done by all jobs up to an instant (UTC ns), with the costs of that instant deducted.

        Raises
        ------
        ValueError
            When the replay had ended before.
        """
        if instant > self.end:
            raise ValueError(f"the replay ended at {self.end} ns, before {instant} ns")
        if instant == self.end:
            return self._final
        spans, stalls = self._spans.arrays(), self._stalls.arrays()
        span = bisect_right(spans["begin"], instant) - 1
        if span < 0:
            return 0.0
        begin = int(spans["begin"][span])
        work = float(spans["work"][span]) + float(spans["rate"][span]) * (
            (instant - begin) / SECOND_NS
        )
        first, last = (
            bisect_right(stalls["span"], span - 1),
            bisect_right(stalls["span"], span),
        )
        for until, lacking in zip(
            stalls["until"][first:last], stalls["rate"][first:last], strict=True
        ):
            work -= float(lacking) * ((min(int(until), instant) - begin) / SECOND_NS)
        return work


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
        """Return the seconds in which the job made progress."""
        return self.seconds - self.stalled_s

    @classmethod
    def between(
        cls,
        begin_ns: int,
        end_ns: int,
        units: int,
        shared: bool,
        stall_ns: int,
        rate: float,
        ended: Ending,
    ) -> RunInterval:
        """Return the interval from one instant to another; `stall_ns`: until when the job was to stall."""
        stalled_ns = max(0, min(stall_ns, end_ns) - begin_ns)
        return cls(
            units,
            (end_ns - begin_ns) / SECOND_NS,
            stalled_ns / SECOND_NS,
            rate,
            shared,
            ended,
        )


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
