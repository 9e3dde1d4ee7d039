"""Cobalt: job tables and machine status tables as CSV, as Argonne's ALCF publishes them.

Of the job table (DIM_JOB_COMPOSITE): START_TIMESTAMP, END_TIMESTAMP, NODES_USED (older: USED_NODES), LOCATION (older:
MACHINE_PARTITION): a list of hosts, ranges of node numbers, or a block of a Blue Gene/Q torus. Of the machine status:
START_TIMESTAMP, END_TIMESTAMP, IS_ALL_MACHINE_DOWN.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod

from bft.models import InputError
from bft.models.cells import read_number
from bft.replay.logs.reading import (
    MISSING,
    JobRan,
    LeftOut,
    MachineDown,
    MachineStated,
    Origin,
    OtherJob,
    Reading,
    Record,
    Unusable,
    below_header,
    each_line,
    host_names,
    in_order,
)

_START, _END, _DOWN = "START_TIMESTAMP", "END_TIMESTAMP", "IS_ALL_MACHINE_DOWN"
_NODES, _LOCATIONS, _MACHINE = (
    ("NODES_USED", "USED_NODES"),
    ("LOCATION", "MACHINE_PARTITION"),
    "MACHINE_NAME",
)
_QUEUES = "QUEUE_NAME", "QUEUE_GENID"
_USER = "USERNAME_GENID"
_ID, _NAME = "COBALT_JOBID", "JOB_NAME"
_MOST_NODES = 10**7
_MOST_FIELD = 16 << 20


def read(reading: Reading) -> Iterator[Record]:
    """Read a job table or a machine status table; see `LogFormat` for errors.

    Job tables come before the machine status: an outage of the whole machine is one of all nodes they name.
    """
    table = _Table(reading)
    limit = csv.field_size_limit(_MOST_FIELD)
    try:
        yield from each_line(below_header(reading, table.begin), table.record)
    finally:
        csv.field_size_limit(limit)


class _Table:
    """The table of jobs or of machine status in one file."""

    def __init__(self, reading: Reading) -> None:
        self.file, self.settings, self.clock = (
            reading.file,
            reading.settings,
            reading.clock,
        )
        self.reading = reading
        self.machine = ""
        self.width = 0
        self.column: dict[str, int] = {}
        self.use: Callable[[Sequence[str], int, int], Record] = self._job
        self.expanded: dict[str, tuple[str, ...]] = {}
        if self.settings.fields:
            self._columns(self.settings.fields)

    def begin(self, line: str) -> bool:
        """Settle the columns by the first line, unless the user has named them; True when it is a header."""
        if self.column:
            return False
        try:
            self._columns(self._cells(line))
        except Unusable as why:
            raise InputError(
                f"the header {why.reason}: {why.detail}", file=self.file, row=1
            ) from why
        return True

    def record(self, text: str, line: int) -> Iterator[Record]:
        """Yield what one row says."""
        row = self._cells(text)
        if len(row) != self.width:
            raise Unusable(
                "the row has not as many fields as the header",
                f"{len(row)}, expected {self.width}",
            )
        machine = self._cell(row, _MACHINE)
        queue = next(
            (self._cell(row, name) for name in _QUEUES if name in self.column), ""
        )
        user = self._cell(row, _USER)
        # an outage is of the whole machine
        of_job = {} if _DOWN in self.column else {"partition": queue, "user": user}
        other = self.reading.other(line, cluster=machine, **of_job)
        if other:
            raise OtherJob(
                other,
                "a row of another machine (--cluster)"
                if other == "cluster"
                else f"job of another {other}",
            )
        if machine and not self.machine and not self.reading.apart.filter:
            self.machine = machine[:200].encode("ascii", "replace").decode()
            yield MachineStated(self.machine)
        if self._cell(row, _START) in MISSING:
            raise LeftOut(f"no {_START}: it never began")
        yield self.use(row, self._time(row, _START, line), line)

    def _columns(self, names: Sequence[str]) -> None:
        self.width = len(names)
        self.column = {name.strip().upper(): index for index, name in enumerate(names)}
        missing = [name for name in (_START, _END) if name not in self.column]
        if _DOWN in self.column:
            self.use = self._outage
            if not self.reading.into.names:
                raise InputError(
                    "a machine status table, but no job table before it says which nodes there are",
                    file=self.file,
                    hint="give the job tables first",
                )
        elif not any(name in self.column for name in _NODES):
            missing.append(" or ".join(_NODES))
        else:
            stating = {"partition": _QUEUES, "user": (_USER,)}
            self.reading.refuse_unstated(
                {
                    name: f"the column {' or '.join(columns)}"
                    for name, columns in stating.items()
                    if self.column.keys().isdisjoint(columns)
                }
            )
        if missing:
            raise InputError(
                f"is no table of Cobalt's: no column {', '.join(missing)}",
                file=self.file,
                row=1,
                hint="expected ALCF's DIM_JOB_COMPOSITE or machine status as CSV",
            )

    def _job(self, row: Sequence[str], start_ns: int, line: int) -> JobRan:
        end_ns = self._end(row, line, start_ns)
        if end_ns is None:
            self.reading.note("a job has no end: it counts as still running", line)
        used = self._nodes_used(row)
        user, *queues = (self._cell(row, name) for name in (_USER, *_QUEUES))
        origin = Origin(user, next(filter(None, queues), ""))
        # Names of jobs need not be unique, and a job may have several blocks: the place is part of the key.
        identity = self._cell(row, _ID) or self._cell(row, _NAME) or tuple(row)
        machine = self._cell(row, _MACHINE)
        names = [name for name in _LOCATIONS if name in self.column]
        if not names:
            self.reading.meet(machine)
            key = identity, machine, used
            return JobRan(line, key, used, start_ns, end_ns, origin=origin)
        location = next(
            (cell for name in names if (cell := self._cell(row, name)) not in MISSING),
            "",
        )
        hosts = self._hosts(location, used, line)
        nodes = self.reading.nodes(hosts, machine)
        where = identity, machine, location
        return JobRan(line, where, nodes, start_ns, end_ns, origin=origin)

    def _hosts(self, location: str, used: int, line: int) -> tuple[str, ...]:
        hosts = self.expanded.get(location)
        if hosts is None:
            try:
                hosts = expand_location(location)
            except Unusable:
                return self._cut_off(location, used, line)
            if (
                len(self.expanded) < 10_000
            ):  # blocks are few and used again, lists of nodes are not
                self.expanded[location] = hosts
        return hosts if len(hosts) >= used else self._cut_off(location, used, line)

    def _cut_off(self, location: str, used: int, line: int) -> tuple[str, ...]:
        hosts = listed_hosts(location)
        why = "LOCATION is cut off: it names fewer nodes than NODES_USED, the others look idle"
        self.reading.note(why, line, f"{len(hosts)} of {used}")
        return hosts

    def _outage(self, row: Sequence[str], start_ns: int, line: int) -> MachineDown:
        down = self._cell(row, _DOWN)
        if down not in ("1", "1.0", "true", "True", "TRUE"):
            raise LeftOut(
                f"{_DOWN} is not 1: which part of the machine was down is not stated"
            )
        return MachineDown(line, start_ns, self._end(row, line, start_ns))

    def _end(self, row: Sequence[str], line: int, start_ns: int) -> int | None:
        if self._cell(row, _END) in MISSING:
            return None
        end_ns = self._time(row, _END, line, start_ns)
        in_order(start_ns, end_ns)
        return end_ns

    def _time(
        self, row: Sequence[str], name: str, line: int, not_before: int | None = None
    ) -> int:
        text = self._cell(row, name)
        time_ns = self.clock.parse(text, self.file, line, not_before)
        if time_ns is None:
            raise Unusable(f"{name} is no date and time", ascii(text[:40]))
        return time_ns

    def _nodes_used(self, row: Sequence[str]) -> int:
        text = next(self._cell(row, name) for name in _NODES if name in self.column)
        value = read_number(text)
        if not 0 <= value <= _MOST_NODES or not value.is_integer():
            raise Unusable(f"{_NODES[0]} is no number of nodes", ascii(text[:40]))
        return int(value)

    def _cell(self, row: Sequence[str], name: str) -> str:
        index = self.column.get(name)
        return "" if index is None else row[index].strip()

    def _cells(self, line: str) -> list[str]:
        try:
            return next(
                csv.reader(
                    [line], delimiter=self.settings.delimiter or ",", strict=True
                )
            )
        except csv.Error as error:
            raise Unusable("is no row of CSV", str(error)) from error


_MAX_NODES_OF_LOCATION = 262_144
_MOST_NAME = 255
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)
# MIR-00C00-33F71-1-1024: corners in the torus' five dimensions as hexadecimal digits, wiring, number of nodes.
_BLOCK = re.compile(
    r"([A-Z]{3,8})-([0-9A-F]{4}[01])-([0-9A-F]{4}[01])(?:-[0-9A-F]+)*-(\d{1,6})",
    re.ASCII,
)
# Names of hosts have small letters and a digit; names of partitions of other machines have capitals (R00-M0-N04).
_HOST_NAME = re.compile(r"[\w.:@+-]*[a-z][\w.:@+-]*\d[\w.:@+-]*", re.ASCII)


def expand_location(location: str) -> tuple[str, ...]:
    """Names of the nodes of a location.

    | location                | nodes                                                     |
    |-------------------------|-----------------------------------------------------------|
    | x3005c0s19b1n0,x3006... | these hosts                                               |
    | 0-63,128                | nid00000 to nid00063, nid00128 (a Cray's node numbers)    |
    | MIR-088C0-3BBF1-512     | MIR-088C0 to MIR-3BBF1: a box of coordinates A B C D E    |

    Raises
    ------
    Unusable
        When it names no nodes.

    Examples
    --------
    >>> expand_location("0-2,128")
    ('nid00000', 'nid00001', 'nid00002', 'nid00128')
    """
    block = _BLOCK.fullmatch(location)
    if block:
        return _box(*block.groups())
    names: list[str] = []
    for word in location.split(","):
        names.extend(_word(word.strip()))
        if len(names) > _MAX_NODES_OF_LOCATION:
            raise Unusable(
                f"LOCATION names more than {_MAX_NODES_OF_LOCATION:,} nodes",
                ascii(location[:40]),
            )
    if not names:
        raise Unusable("LOCATION names no nodes")
    return host_names(names, "LOCATION")


def listed_hosts(location: str) -> tuple[str, ...]:
    """Names of the nodes of a location that is cut off: its last word may be the beginning of another name.

    Raises
    ------
    Unusable
        When it names no nodes.

    Examples
    --------
    >>> listed_hosts("x3005c0s19b1n0,x3006c0s1")
    ('x3005c0s19b1n0',)
    """
    words = [word.strip() for word in location.split(",")]
    whole = [word for word in words if word]
    last = words[-1]
    if _RANGE.fullmatch(last) or (len(whole) > 1 and _shape(last) != _shape(whole[0])):
        whole = whole[: len(whole) - bool(last)]
    return expand_location(",".join(whole))


def _shape(name: str) -> str:
    return re.sub(r"\d+", "0", name)


def _word(word: str) -> list[str]:
    number = _RANGE.fullmatch(word)
    if number is None:
        if not word:
            return []
        if len(word) > _MOST_NAME or not _HOST_NAME.fullmatch(word):
            raise Unusable(
                "LOCATION is neither a list of hosts nor a block whose nodes are known",
                ascii(word[:40]),
            )
        return [word]
    first, last = int(number[1]), int(number[2] or number[1])
    if not 0 <= last - first < _MAX_NODES_OF_LOCATION:
        raise Unusable(
            "LOCATION has a range of nodes that runs backwards or is too long", word
        )
    return [f"nid{node:05}" for node in range(first, last + 1)]


def _box(machine: str, low: str, high: str, size: str) -> tuple[str, ...]:
    """Nodes of a block, in the order of their coordinates."""
    sides = [range(int(a, 16), int(b, 16) + 1) for a, b in zip(low, high, strict=True)]
    # A block that is wrapped around the torus has a corner below the other; how long the torus is, is not stated.
    if prod(map(len, sides)) != int(size):
        raise Unusable(
            "LOCATION is a block whose corners do not hold as many nodes as it says",
            f"{low}-{high}-{size}",
        )
    return tuple(
        f"{machine}-{''.join(f'{digit:X}' for digit in corner)}"
        for corner in product(*sides)
    )
