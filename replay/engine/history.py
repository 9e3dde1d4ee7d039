"""What a replay records of the past: tables by column, the progress curve of all jobs, and intervals of each job."""

from __future__ import annotations

import logging
import os
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bft.replay.engine.snapshot import NOT_STORED
from bft.replay.trace.node_trace import SECOND_NS

logger = logging.getLogger(__name__)

# Rows that may wait to be put into columns together.
ROWS = 256
# Bytes of a table in memory from which on it goes to the spill file, and one row in so many that is sampled to sort it.
SPILL_BYTES = 32 * 2**20
SAMPLED = 1024

Block = Mapping[str, NDArray[Any]]
"""Columns of a table, or of a part of it; texts as numbers into its vocabulary."""


class Spill:
    """A nameless file to which tables put their rows, so that memory does not grow with the past of a replay.

    Parameters
    ----------
    folder
        Where the file lies: it vanishes with its last user.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end = 0

    @cached_property
    def _file(self) -> int:
        file = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - kept open
        weakref.finalize(self, file.close)
        return file.fileno()

    def write(self, column: NDArray[Any], offset: int = -1) -> int:
        """Write a column at an offset, or behind all others; return the offset.

        Raises
        ------
        OSError
            When the disk is full.
        """
        at = self._end if offset < 0 else offset
        content, done = column.view(np.uint8).data, 0
        while done < len(content):
            done += os.pwrite(self._file, content[done:], at + done)
        self._end = max(self._end, at + done)
        return at

    def read(self, kind: np.dtype[Any], offset: int, count: int) -> NDArray[Any]:
        """Return values of a column that begin at an offset."""
        values = np.empty(count, dtype=kind)
        content, done = values.view(np.uint8).data, 0
        while done < len(content):
            done += os.preadv(self._file, [content[done:]], offset + done)
        return values


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
        self._texts: dict[str, dict[str, int]] = {
            name: {} for name, kind in kinds.items() if not kind
        }
        self._columns = {name: array(kind or "i") for name, kind in kinds.items()}
        self._first = next(iter(self._columns.values()))
        self._spill: Spill | None = None
        self._row_bytes = sum(column.itemsize for column in self._columns.values())
        # What has been written: how many rows, and where each column begins.
        self._written: list[tuple[int, dict[str, int]]] = []
        self._written_rows = 0
        self._full = False  # the disk
        # Once sorted: by block, where each bucket begins; and the rows in memory.
        self._buckets: list[list[int]] = []
        self._sorted: Block = {}
        self.latest: list[Sequence[Any]] = []
        self.append: Callable[[Sequence[Any]], None] = self.latest.append

    def __len__(self) -> int:
        return self._written_rows + len(self._first) + len(self.latest)

    @property
    def written(self) -> int:
        """Rows that are in the file."""
        return self._written_rows

    def spill_to(self, spill: Spill) -> None:
        """Put rows into a file when there are many."""
        self._spill = spill

    def settle(self) -> None:
        """Put the latest rows into columns."""
        if not self.latest:
            return
        columns = zip(*self.latest, strict=True)
        for (name, column), values in zip(self._columns.items(), columns, strict=True):
            column.extend(self._numbers(name, values))
        self.latest.clear()
        self._write_if_large()

    def _write_if_large(self) -> None:
        large = len(self._first) * self._row_bytes >= SPILL_BYTES
        if large and self._spill is not None and not self._full:
            self._write(self._spill)

    def _numbers(self, name: str, values: Sequence[Any]) -> Sequence[Any]:
        """Values as a column has them: a text as its number in the order in which texts came."""
        if name not in self._texts:
            return values
        known = self._texts[name]
        return [known.setdefault(text, len(known)) for text in values]

    def _write(self, spill: Spill) -> None:
        """Move the rows in memory to the file; they stay where it is full."""
        try:
            places = {
                name: spill.write(np.asarray(memoryview(column)))
                for name, column in self._columns.items()
            }
        except OSError as error:
            logger.warning("the history stays in memory: %s", error.strerror)
            self._full = True
            return
        self._written.append((len(self._first), places))
        self._written_rows += len(self._first)
        self._clear()

    def _clear(self) -> None:
        for name, column in self._columns.items():
            self._columns[name] = array(column.typecode)
        self._first = next(iter(self._columns.values()))

    def _parts(self, name: str) -> Iterator[tuple[int, Callable[[], NDArray[Any]]]]:
        """Of each block, in the order of rows: how many, and what returns a column."""
        self.settle()
        for count, places in self._written:
            yield count, partial(self._read, name, places[name], count)
        yield len(self._first), lambda: np.asarray(memoryview(self._columns[name]))

    def _read(self, name: str, offset: int, count: int) -> NDArray[Any]:
        kind = np.dtype(self._columns[name].typecode)
        return self._file().read(kind, offset, count)

    def _file(self) -> Spill:
        if self._spill is None:
            raise RuntimeError("rows were written, so there is a file")
        return self._spill

    def since(self, row: int, stop: int | None = None) -> dict[str, list[Any]]:
        """Return the rows from this one on, or up to another, by column, as JSON values."""
        found: dict[str, list[Any]] = {}
        for name in self._columns:
            begin, values = 0, []
            for count, column in self._parts(name):
                last = count if stop is None else min(count, stop - begin)
                if begin + count > row and last > 0:
                    values += column()[max(0, row - begin) : last].tolist()
                begin += count
            found[name] = self._values(name, values)
        return found

    def _values(self, name: str, numbers: list[Any]) -> list[Any]:
        """Invert `_numbers`."""
        if name not in self._texts:
            return numbers
        texts = list(self._texts[name])
        return [texts[number] for number in numbers]

    def restore(self, columns: Mapping[str, list[Any]]) -> None:
        """Replace all rows by these."""
        self.latest.clear()
        self._written.clear()
        self._written_rows = 0
        self._clear()
        self.extend(columns)

    def extend(self, columns: Mapping[str, list[Any]]) -> None:
        """Add rows that `since` has returned."""
        self.settle()
        for name, column in self._columns.items():
            column.extend(self._numbers(name, columns[name]))
        self._write_if_large()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, texts as objects.

        Numbers that are in memory are on the same memory: no row can be added while one is in use.
        """
        found = {}
        for name in self._columns:
            parts = [column() for _, column in self._parts(name)]
            found[name] = np.concatenate(parts) if self._written else parts[-1]
            if name in self._texts:
                texts = np.array([*self._texts[name], ""], dtype=object)
                found[name] = texts[found[name]]
        return found

    def sorted_blocks(self, keys: Sequence[str]) -> Iterator[Block]:
        """Yield all rows in order of some columns, the first of which counts most, block by block.

        Rows that agree in the first two keys are in one block. All columns are numbers. No row may be added any more.
        """
        if not self._sorted:
            self._sort(keys)
        for bucket in range(len(self._buckets[-1]) - 1):
            rows = {name: self._bucket(name, bucket) for name in self._columns}
            order = np.lexsort([rows[name] for name in reversed(keys)])
            yield {name: column[order] for name, column in rows.items()}

    def _sort(self, keys: Sequence[str]) -> None:
        """Sort each block in its place, and find where the buckets between sampled rows begin in each."""
        self.settle()
        rows = {name: np.asarray(memoryview(of)) for name, of in self._columns.items()}
        order = np.lexsort([rows[name] for name in reversed(keys)])
        self._sorted = {name: column[order] for name, column in rows.items()}
        del rows
        self._clear()
        samples = [[self._sorted[name][::SAMPLED] for name in keys[:2]]]
        for count, places in self._written:
            rows = {
                name: self._read(name, places[name], count) for name in self._columns
            }
            order = np.lexsort([rows[name] for name in reversed(keys)])
            samples.append([rows[name][order[::SAMPLED]] for name in keys[:2]])
            for name, column in rows.items():
                self._file().write(column[order], places[name])
        major, minor = (np.concatenate(parts) for parts in zip(*samples, strict=True))
        each = max(1, SPILL_BYTES // self._row_bytes // SAMPLED)
        splits = np.lexsort((minor, major))[each::each]
        for count, places in self._written:
            both = {name: self._read(name, places[name], count) for name in keys[:2]}
            self._buckets.append(_positions(both, keys, major[splits], minor[splits]))
        self._buckets.append(
            _positions(self._sorted, keys, major[splits], minor[splits])
        )

    def _bucket(self, name: str, bucket: int) -> NDArray[Any]:
        """A column's values in one bucket, of all sorted blocks."""
        parts = []
        for (_, places), begins in zip(self._written, self._buckets, strict=False):
            begin, end = begins[bucket : bucket + 2]
            offset = places[name] + begin * self._columns[name].itemsize
            parts.append(self._read(name, offset, end - begin))
        begin, end = self._buckets[-1][bucket : bucket + 2]
        return np.concatenate([*parts, self._sorted[name][begin:end]])


def _positions(
    rows: Block, keys: Sequence[str], majors: NDArray[Any], minors: NDArray[Any]
) -> list[int]:
    """Return where the buckets between splits begin in a sorted block, and its number of rows."""
    major, minor = (rows[name] for name in keys[:2])
    found = [0]
    begins = np.searchsorted(major, majors, side="left").tolist()
    ends = np.searchsorted(major, majors, side="right").tolist()
    for begin, end, wanted in zip(begins, ends, minors, strict=True):
        found.append(begin + int(np.searchsorted(minor[begin:end], wanted)))
    return [*found, len(major)]


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
