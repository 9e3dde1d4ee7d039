"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2: counts of processors, no names of nodes.

Feitelson, Tsafrir, Krakov: Experience with using the Parallel Workloads Archive, JPDC 74 (2014); 18 fields a line. The
format has no room for extensions, but converters and simulators append fields: a 19th is read when it lists nodes.

Nodes are processors (allocated, else requested) over `--processors-per-node`, else over MaxProcs / MaxNodes of the
header, else over 1. Parts of jobs (status 2 to 4) are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.formats.text_lines import (
    cell,
    fields_of,
    matches,
    numbers,
    text_lines,
)
from bft.replay.logs.hosts import HostListError, expand, flags
from bft.replay.logs.records import (
    FOREIGN,
    LEFT_OUT,
    NEVER_STARTED,
    SKIPPED,
    Block,
    Log,
    Texts,
)
from bft.replay.logs.tables import Convert, PublicTable, column_map, converted
from bft.replay.logs.times import MOST_EPOCH_S, NONE, Mask, Whole

_HEADER = re.compile(r";\s*([A-Za-z]+)\s*:\s*(.*\S)")
_WHOLE = re.compile(r"\d{1,12}", re.ASCII)
_NUMBER = r"-?(\d{1,17}(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?"
# Places of fields, from 0 on; converters append others behind the last.
_SUBMIT, _WAIT, _RUN, _PROCESSORS, _REQUESTED, _LIMIT = 1, 2, 3, 4, 7, 8
_STATUS, _USER, _QUEUE, _PARTITION, _FIELDS = 10, 11, 14, 15, 18
# What separates nodes in field 19 where it is no host list: n1+n2, n1/0+n1/1, n1;n2.
_APART = re.compile(r"(?:/[\d-]+|\*\d+|:\d+)*(?:[+;|]|$)")
_NODE = re.compile(r"[A-Za-z].*\d|\d.*[A-Za-z]", re.ASCII)
_MOST_PROCESSORS = 10**9
# Submit times beyond are epochs (1985): no log spans 15 years. Others are seconds since UnixStartTime.
_EPOCHS_FROM_S = 5e8
_MS = 10**6
Numbers = NDArray[np.float64]


def read(log: Log) -> Iterator[Block]:
    """Read a workload; see `LogFormat` for errors.

    Jobs are counted, not placed: nodes = ceil(processors / processors per node). These are given, or follow from
    MaxProcs and MaxNodes of the header, or are 1, which is noted. Where the first job that ran lists its nodes in
    field 19, those of all jobs are read instead.
    """
    workload = _Workload(log)
    for lines, rows in text_lines(log, comment="\n"):
        comments = flags(pc.starts_with(rows, ";"))
        for text in rows.filter(pa.array(comments)).to_pylist():
            workload.state(text)
        if not comments.all():
            yield workload.block(lines[~comments], rows.filter(pa.array(~comments)))
    _, log.machine_nodes = workload.machine()


class _Workload:
    """The workload of one file: what its header states, and whether its jobs list their nodes."""

    def __init__(self, log: Log) -> None:
        self.log, self.moved = log, _moved_fields(log)
        self.header: dict[str, int] = {}
        self.named: bool | None = None

    def state(self, text: str) -> None:
        """Keep what a line of the header states."""
        match = _HEADER.match(text)
        number = _WHOLE.match(match[2]) if match else None
        if match and number:
            self.header[match[1]] = int(number[0])
        elif match and match[1] == "Computer":
            name = match[2][:200].encode("ascii", "replace").decode()
            self.log.machine = self.log.machine or name

    def block(self, lines: Whole, rows: Texts) -> Block:
        """Return what lines say."""
        lists = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(rows))
        lengths = pc.list_value_length(lists).to_numpy()
        cells = fields_of(lists, range(_FIELDS + 1))
        for place, (source, convert) in self.moved.items():
            moved = converted(fields_of(lists, [source])[0], convert)
            cells[place] = pc.if_else(pa.array(lengths > source), moved, cells[place])
        block = Block(line=lines, id=rows)
        why = block.why
        short = f"{FOREIGN}has not {_FIELDS} fields separated by blanks"
        why.where(lengths < _FIELDS, short, lambda row: f"{lengths[row]} fields")
        part = "a part of a job (status 2 to 4), which the line of the whole job covers"
        why.where(matches(cells[_STATUS], "[234]"), LEFT_OUT + part)
        by_queue = pc.equal(cells[_PARTITION], "-1")
        partition = pc.if_else(by_queue, cells[_QUEUE], cells[_PARTITION])
        block.partition, block.user = (
            pc.if_else(pc.equal(each, "-1"), "", each)
            for each in (partition, cells[_USER])
        )
        if self.log.settings.partition is not None:
            told = (
                "field 16 states no partition: the queue in field 15 was taken for it"
            )
            block.notes.append((flags(by_queue), told, cell(cells[_QUEUE])))
        processors = self._times(block, cells)
        self._nodes(block, cells[_FIELDS], processors, lengths)
        return block

    def _times(self, block: Block, cells: list[Texts]) -> Numbers:
        """Fill in when a job ran, and skip rows with numbers of no job that ran; returns the processors of jobs."""
        why, values = block.why, {}
        for place in (_SUBMIT, _WAIT, _RUN, _PROCESSORS, _REQUESTED, _LIMIT):
            found, bad = numbers(cells[place], _NUMBER, pa.float64())
            values[place] = found.fill_null(-1).to_numpy()
            if place < _REQUESTED:
                no_number = f"{SKIPPED}field {place + 1} is no number"
                why.where(bad, no_number, cell(cells[place]))
        submit_s, wait_s, run_s, allocated, requested, limit_s = values.values()
        processors: Numbers = np.where(allocated > 0, allocated, requested)
        relative, origin_s = submit_s < _EPOCHS_FROM_S, self.header.get("UnixStartTime")
        if origin_s is None:
            told = "no UnixStartTime in the header: times count from 1970-01-01"
            block.notes.append((relative, told, lambda row: ""))
        known_s = submit_s + np.where(relative, origin_s or 0, 0)
        start_s = known_s + wait_s
        end_s = start_s + run_s
        unknown = (wait_s == -1) | (run_s == -1)
        cancelled = matches(cells[_STATUS], "5") & unknown
        # One that was cancelled in the queue waited until then.
        queued = cancelled & (np.minimum(submit_s, wait_s) >= 0)
        block.known, block.limit = _ns(known_s), _ns(limit_s)
        block.start = np.where(queued, NONE, _ns(start_s))
        block.end = _ns(np.where(queued, start_s, end_s))
        why.where(queued, NEVER_STARTED)
        in_queue = "a cancelled job (status 5) without a wait or run time"
        why.where(cancelled, LEFT_OUT + in_queue)
        negative = np.minimum(np.minimum(submit_s, wait_s), run_s) < 0
        no_count = "neither field 5 nor 8 says how many processors"
        shown_cells = cell(*(cells[place] for place in values))
        for mine, reason in (
            (wait_s == -1, "the wait time, field 3, is not known (-1)"),
            (run_s == -1, "the run time, field 4, is not known (-1)"),
            (~_are_processors(processors), no_count),
            (negative, "a time is negative"),
            (end_s >= MOST_EPOCH_S, "ends later than the year 2262"),
        ):
            why.where(mine, SKIPPED + reason, shown_cells)
        return processors

    def _nodes(
        self, block: Block, listed: Texts, processors: Numbers, lengths: Whole
    ) -> None:
        """Fill in the nodes of jobs, or how many they are."""
        used = block.why.used
        if self.named is None and used.any():
            first = int(used.argmax())
            self.named = 0 < len(_hosts(listed[first].as_py())) <= processors[first]
            if self.named:
                why = "field 19 lists nodes: they are taken for those of the jobs, and field 5 is not read"
                self.log.note(why, int(block.line[first]), cell(listed)(first))
        if self.named:
            block.hosts = converted(listed, lambda text: ",".join(_hosts(text)))
            sizes = pc.if_else(
                pc.equal(block.hosts, ""),
                0,
                pc.add(pc.count_substring(block.hosts, ","), 1),
            ).to_numpy()
            why = SKIPPED + "field 19 lists no nodes, as it does for the jobs before"
            block.why.where((sizes == 0) | (sizes > processors), why, cell(listed))
            return
        why = "fields beyond the 18 of the format were not read: field 19 of the first job lists no nodes"
        block.notes.append((lengths > _FIELDS, why, cell(listed)))
        per_node, _ = self.machine()
        if per_node is None:
            why = "neither --processors-per-node nor MaxProcs and MaxNodes of the header tell how many processors "
            why += "a node has: each processor is taken for a node"
            block.notes.append((used, why, lambda row: ""))
        counts = np.where(_are_processors(processors), processors, 0)
        block.count = np.ceil(counts / (per_node or 1)).astype(np.int64)

    def machine(self) -> tuple[int | None, int | None]:
        """Processors of a node, and how many nodes the machine has; None: nobody says so."""
        given, nodes = (
            self.log.settings.processors_per_node,
            self.header.get("MaxNodes", 0),
        )
        processors = self.header.get("MaxProcs", 0)
        stated = math.ceil(processors / nodes) if nodes and processors else None
        per_node = given or stated
        if given or not nodes:
            nodes = math.ceil(processors / (per_node or 1)) or nodes
        return per_node, nodes or None


def _moved_fields(log: Log) -> dict[int, tuple[int, Convert]]:
    """Fields that `--map` takes from elsewhere: places from 0 on, and for each its source and a conversion.

    Raises
    ------
    InputError
        When the map has other names than numbers of fields.
    """
    table: PublicTable = log.settings.table or PublicTable()
    moved: dict[int, tuple[int, Convert]] = {}
    for ours, theirs in column_map(table.columns).items():
        are_fields = _WHOLE.fullmatch(ours) and _WHOLE.fullmatch(theirs)
        if not (are_fields and 0 < int(ours) <= _FIELDS and int(theirs)):
            why = f"--map: expected OURS=THEIRS with numbers of fields, ours from 1 to {_FIELDS}, such as 5=21"
            raise InputError(why)
        moved[int(ours) - 1] = int(theirs) - 1, table.convert.get(theirs, str)
    return moved


def _hosts(text: str) -> tuple[str, ...]:
    """Nodes of field 19; none where it is something else: names of nodes have letters and digits."""
    try:
        hosts = expand(_APART.sub(",", text).strip(","))
    except HostListError:
        return ()
    return hosts if all(map(_NODE.search, hosts)) else ()


def _are_processors(counts: Numbers) -> Mask:
    return (counts > 0) & (counts <= _MOST_PROCESSORS)


def _ns(seconds: Numbers) -> Whole:
    """Nanoseconds of seconds, with milliseconds; none of what is no time."""
    fine = (seconds >= 0) & (seconds < MOST_EPOCH_S)
    ms = np.rint(np.where(fine, seconds, 0) * 1000).astype(np.int64)
    return np.where(fine, ms * _MS, NONE)
