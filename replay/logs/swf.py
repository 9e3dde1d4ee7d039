"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2: counts of processors, no names of nodes.

Feitelson, Tsafrir, Krakov: Experience with using the Parallel Workloads Archive, JPDC 74 (2014); 18 fields a line. The
format has no room for extensions, but converters and simulators append fields: a 19th is read when it lists nodes.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace

from bft.models.cells import read_number
from bft.replay.logs.hostlists import MOST_HOSTS, HostListError, count, expand
from bft.replay.logs.reading import (
    MOST_EPOCH_S,
    Foreign,
    JobPlanned,
    JobRan,
    LeftOut,
    MachineStated,
    Origin,
    Plan,
    Reading,
    Record,
    Settings,
    Unusable,
    each_line,
)
from bft.replay.trace.node_trace import SECOND_NS

_HEADER = re.compile(r";\s*([A-Za-z]+)\s*:\s*(.*\S)")
_NUMBER = re.compile(r"\d{1,12}", re.ASCII)
_FIELDS = 18
_USER, _QUEUE, _PARTITION = 11, 14, 15
# What separates nodes in field 19 where it is no host list: n1+n2, n1/0+n1/1, n1;n2.
_APART = re.compile(r"[+;|]")
_NODE = re.compile(r"[A-Za-z].*\d|\d.*[A-Za-z]", re.ASCII)
_SLOT = re.compile(r"(/[\d-]+|\*\d+|:\d+)+$")
_MOST_PROCESSORS = 10**9
# Submit times beyond are epochs (1985): no log spans 15 years. Others are seconds since UnixStartTime.
_EPOCHS_FROM_S = 5e8


def read(reading: Reading) -> Iterator[Record]:
    """Read a workload; see `LogFormat` for errors.

    Jobs are counted, not placed: nodes = ceil(processors / processors per node). These are given, or follow from
    MaxProcs and MaxNodes of the header, or are 1, which is noted. Where the first job that ran lists its nodes in
    field 19, those of all jobs are read instead.
    """
    workload = _Workload(reading)
    yield from each_line(
        replace(reading, lines=workload.below_header(reading.lines)),
        workload.record,
        comment=";",
    )
    nodes = _machine_nodes(workload.header, reading.settings)
    yield MachineStated(workload.machine, nodes or None)


class _Workload:
    """The workload of one file."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.header = reading, dict[str, int]()
        self.named: bool | None = None
        self.machine = ""

    def below_header(self, lines: Iterable[str]) -> Iterable[str]:
        """The lines; what the header states is kept."""
        for line in lines:
            if line.startswith(";"):
                match = _HEADER.match(line)
                number = _NUMBER.match(match[2]) if match else None
                if match and number:
                    self.header[match[1]] = int(number[0])
                elif match and match[1] == "Computer":
                    plain = match[2][:200].encode("ascii", "replace").decode()
                    self.machine = self.machine or plain
            yield line

    def record(self, text: str, line: int) -> Iterator[Record]:
        """Yield the records of one job."""
        reading = self.reading
        row = text.split()
        if len(row) < _FIELDS:
            raise Foreign(
                f"has not {_FIELDS} fields separated by blanks", f"{len(row)} fields"
            )
        if row[10] in ("2", "3", "4"):
            raise LeftOut(
                "a part of a job (status 2 to 4), which the line of the whole job covers"
            )
        by_queue = row[_PARTITION] == "-1"
        partition = row[_QUEUE] if by_queue else row[_PARTITION]
        reading.keep(line, partition=partition, user=row[_USER])
        if by_queue and "partition" in reading.filters:
            why = "field 16 states no partition: the queue in field 15 was taken for it"
            reading.note(why, line, f"queue {partition[:40]!a}")
        origin = Origin(row[_USER].removeprefix("-1"), partition.removeprefix("-1"))
        processors, start_s, end_s = self._stated(row, line)
        start_ns, end_ns = _ns(start_s), _ns(end_s)
        hosts = _hosts(row, processors) if len(row) > _FIELDS else ()
        if self.named is None:
            self.named = bool(hosts)
            if self.named:
                why = "field 19 lists nodes: they are taken for those of the jobs, and field 5 is not read"
                # Of the whole file, be the row left out or not.
                detail = ascii(row[_FIELDS][:40])
                reading.diagnosis.note(why, reading.file, line, detail)
        if self.named:
            if not hosts:
                raise Unusable(
                    "field 19 lists no nodes, as it does for the jobs before",
                    ascii(row[-1][:40]),
                )
            nodes = reading.nodes(hosts)
            yield JobRan(line, text, nodes, start_ns, end_ns, origin=origin)
            yield from self._plan(row, text, start_ns, end_ns, nodes)
            return
        if len(row) > _FIELDS:
            why = "fields beyond the 18 of the format were not read: field 19 of the first job lists no nodes"
            reading.note(why, line, ascii(row[_FIELDS][:40]))
        per_node, stated = _per_node(self.header, reading.settings)
        if not stated:
            why = "neither --processors-per-node nor MaxProcs and MaxNodes of the header tell how many processors a "
            reading.note(f"{why}node has: each processor is taken for a node", line)
        count = math.ceil(processors / per_node)
        yield JobRan(line, text, count, start_ns, end_ns, origin=origin)
        yield from self._plan(row, text, start_ns, end_ns, count)

    def _plan(
        self,
        row: list[str],
        text: str,
        start_ns: int,
        end_ns: int,
        nodes: array[int] | int,
    ) -> Iterator[Record]:
        """Yield what the scheduler knew: field 3 is the time that a job waited, field 9 what it requested."""
        if not self.reading.settings.walltimes:
            return
        requested_s = _number(row, 8)
        limit = _ns(requested_s) if 0 <= requested_s < MOST_EPOCH_S else None
        count, named = (nodes, None) if isinstance(nodes, int) else (len(nodes), nodes)
        known_ns = start_ns - _ns(_number(row, 2))
        plan = Plan(known_ns, start_ns, end_ns, limit, count, named)
        yield JobPlanned(text, plan)

    def _stated(self, row: list[str], line: int) -> tuple[float, float, float]:
        """Processors of a job, and seconds since 1970 of its start and end."""
        submit_s, wait_s, run_s = (_number(row, index) for index in (1, 2, 3))
        processors = _number(row, 4)
        if processors <= 0:
            processors = _number(row, 7)
        if run_s == -1 or wait_s == -1:
            if row[10] == "5":
                raise LeftOut("a cancelled job (status 5) without a wait or run time")
            what = "wait time, field 3" if wait_s == -1 else "run time, field 4"
            raise Unusable(f"the {what}, is not known (-1)", f"job {row[0][:40]}")
        if not 0 < processors <= _MOST_PROCESSORS:
            raise Unusable(
                "neither field 5 nor 8 says how many processors",
                f"{row[4][:40]}, {row[7][:40]}",
            )
        if min(submit_s, wait_s, run_s) < 0:
            raise Unusable(
                "a time is negative", f"fields 2 to 4: {' '.join(row[1:4])[:60]}"
            )
        start_s = (
            submit_s
            + wait_s
            + (0 if submit_s >= _EPOCHS_FROM_S else self.header.get("UnixStartTime", 0))
        )
        if start_s + run_s >= MOST_EPOCH_S:
            raise Unusable(
                "ends later than the year 2262",
                f"fields 2 to 4: {' '.join(row[1:4])[:60]}",
            )
        if submit_s < _EPOCHS_FROM_S and "UnixStartTime" not in self.header:
            why = "no UnixStartTime in the header: times count from 1970-01-01"
            self.reading.note(why, line)
        return processors, start_s, start_s + run_s


def _per_node(header: dict[str, int], settings: Settings) -> tuple[int, bool]:
    """Processors of a node, and whether anybody says so."""
    if settings.processors_per_node is not None:
        return settings.processors_per_node, True
    nodes, processors = header.get("MaxNodes", 0), header.get("MaxProcs", 0)
    if not nodes or not processors:
        return 1, False
    return max(1, math.ceil(processors / nodes)), True


def _machine_nodes(header: dict[str, int], settings: Settings) -> int:
    if "MaxNodes" in header and settings.processors_per_node is None:
        return header["MaxNodes"]
    return math.ceil(
        header.get("MaxProcs", 0) / _per_node(header, settings)[0]
    ) or header.get("MaxNodes", 0)


def _hosts(row: list[str], processors: float) -> tuple[str, ...]:
    """Nodes of field 19; none where it is something else.

    Numbers, properties, more names than the job has processors: names of nodes have letters and digits.
    """
    names = [_SLOT.sub("", name) for name in _APART.split(row[_FIELDS]) if name]
    try:
        if sum(map(count, names)) > MOST_HOSTS:  # before they are written out
            return ()
        hosts = tuple(dict.fromkeys(host for name in names for host in expand(name)))
    except HostListError:
        return ()
    if len(hosts) > processors or not all(map(_NODE.search, hosts)):
        return ()
    return hosts


def _number(row: list[str], index: int) -> float:
    """Read a field of a row as a number; whole seconds stay exact, because doubles hold them to 2^53."""
    value = read_number(row[index])
    if math.isnan(value):
        raise Unusable(f"field {index + 1} is no number", ascii(row[index][:40]))
    return value


def _ns(seconds: float) -> int:
    whole = math.floor(seconds)
    return whole * SECOND_NS + round((seconds - whole) * 1000) * (SECOND_NS // 1000)
