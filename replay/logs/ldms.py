"""LDMS: CSV of the store store_csv with a column job_id, which says of each node whether a job is on it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bft.models import InputError
from bft.replay.logs.node_states import BUSY, IDLE
from bft.replay.logs.reading import (
    Foreign,
    NodesSeen,
    Reading,
    Record,
    RowUsed,
    Unusable,
    each_line,
    host_names,
    no_time,
)
from bft.replay.logs.tables import split_fields
from bft.replay.trace.node_trace import TimeArray

_COLUMNS = ("time", "producername", "job_id")


def read(reading: Reading) -> Iterator[Record]:
    """Read samples of nodes; see `LogFormat` for errors.

    A node is busy while its job_id is not 0. Nodes are sampled at nearly the same time: times are rounded to the period
    of sampling, the most frequent distance of two samples of a node, and read as snapshots from there on.
    """
    samples = _Samples(reading)
    yield from each_line(replace(reading, lines=samples.below_header()), samples.record)
    yield from samples.states()


class _Samples:
    """The samples of one file."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.columns: tuple[int, int, int] | None = None
        self.width = 0
        self.times, self.nodes, self.busy = array("q"), array("i"), array("b")
        self.known: dict[str, int] = {}

    def below_header(self) -> Iterator[str]:
        """Yield the lines below the header, which is the first that begins with #, unless --fields stands for it."""
        if self.reading.settings.fields:
            self._begin(list(self.reading.settings.fields))
        for line in self.reading.lines:
            if line.startswith("#") and self.columns is None:
                self._begin(split_fields(line[1:], ","))
            elif line.strip() and self.columns is None:
                raise InputError(
                    "is no CSV of LDMS: expected a header #Time,Time_usec,ProducerName,component_id,job_id,...",
                    file=self.reading.file,
                    hint="with altheader=1 the header lies in another file: --fields names the columns",
                )
            yield line

    def _begin(self, names: list[str]) -> None:
        plain = [name.strip().strip('"').lower() for name in names]
        if all(name in plain for name in _COLUMNS):
            self.columns = (
                plain.index("time"),
                plain.index("producername"),
                plain.index("job_id"),
            )
            self.width = len(plain)

    def record(self, text: str, line: int) -> Iterator[Record]:
        """Yield the state of a node from one sample."""
        if self.columns is None:
            raise Foreign("has no header before it", text[:40])
        row = split_fields(text, ",")
        if len(row) != self.width:
            raise Unusable(
                "has another number of fields than the header",
                f"{len(row)} instead of {self.width}",
            )
        stamp, name, job = (row[column].strip() for column in self.columns)
        time_ns = self.reading.clock.parse(stamp, self.reading.file, line)
        if time_ns is None:
            raise Unusable("column Time holds no time", no_time(stamp))
        if not job.isdecimal():
            raise Unusable("column job_id holds no number", ascii(job[:40]))
        node = self.known.get(name)
        if node is None:
            hosts = host_names((name,), "ProducerName")
            node = self.known[name] = self.reading.nodes(hosts)[0]
        if len(self.times) >= self.reading.into.max_fragments:
            raise InputError(
                "holds more samples than --max-fragments allows", file=self.reading.file
            )
        self.times.append(time_ns)
        self.nodes.append(node)
        self.busy.append(int(job.strip("0") != ""))
        yield RowUsed(line)

    def states(self) -> Iterator[Record]:
        """Yield the states at rounded times."""
        if not len(self.times):
            if self.columns is None:
                raise InputError("holds no samples of LDMS", file=self.reading.file)
            return
        times, nodes = (
            np.array(column, dtype=np.int64) for column in (self.times, self.nodes)
        )
        busy = np.array(self.busy, dtype=bool)
        period = _period(times, nodes)
        rounded = (times + period // 2) // period * period
        order = np.argsort(rounded, kind="stable")
        rounded, nodes, busy = rounded[order], nodes[order], busy[order]
        bounds = np.flatnonzero(np.diff(rounded, prepend=-1, append=-1))
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            for code, mine in ((BUSY, busy[low:high]), (IDLE, ~busy[low:high])):
                these = nodes[low:high][mine].astype(np.int32)
                if len(these):
                    some = array("i", these.tobytes())
                    yield NodesSeen(None, some, int(rounded[low]), code)


def _period(times: TimeArray, nodes: TimeArray) -> int:
    """The most frequent distance of two samples of a node, in nanoseconds, to a second; a second when there is none."""
    order = np.lexsort((times, nodes))
    apart = np.diff(times[order])[np.diff(nodes[order]) == 0]
    whole = np.round(apart / 1e9).astype(np.int64)
    whole = whole[whole > 0]
    return (
        int(np.bincount(np.minimum(whole, 86_400)).argmax()) * 10**9
        if len(whole)
        else 10**9
    )
