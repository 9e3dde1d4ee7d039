"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2: counts of processors, no names of nodes.

Feitelson, Tsafrir, Krakov: Experience with using the Parallel Workloads Archive, JPDC 74 (2014); 18 fields a line. The
format has no room for extensions, but converters and simulators append fields: a 19th is read when it lists nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.replay.logs.formats.text_lines import (
    UNCLEAR,
    cell,
    fields_of,
    matches,
    numbers,
    shown,
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
    texts,
)
from bft.replay.logs.tables import moved_fields
from bft.replay.logs.times import MOST_EPOCH_S, NONE, Mask, Whole
from bft.replay.trace.node_trace import SECOND_NS

_HEADER = re.compile(r";\s*([A-Za-z]+)\s*:\s*(.*\S)")
_WHOLE = re.compile(r"\d{1,12}", re.ASCII)
_RECORD = re.compile(r"\d+(\s+-?\d[\d.]*){10}\s")
_NUMBER = r"-?(\d{1,17}(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?"
_FIELDS = 18
(
    _SUBMIT,
    _WAIT,
    _RUN,
    _PROCESSORS,
    _REQUESTED,
    _LIMIT,
    _STATUS,
    _USER,
    _QUEUE,
    _PARTITION,
) = 1, 2, 3, 4, 7, 8, 10, 11, 14, 15
# What separates nodes in field 19 where it is no host list: n1+n2, n1/0+n1/1, n1;n2.
_APART = re.compile(r"[+;|]")
_NODE = re.compile(r"[A-Za-z].*\d|\d.*[A-Za-z]", re.ASCII)
_SLOT = re.compile(r"(/[\d-]+|\*\d+|:\d+)+$")
_MOST_PROCESSORS = 10**9
# Submit times beyond are epochs (1985): no log spans 15 years. Others are seconds since UnixStartTime.
_EPOCHS_FROM_S = 5e8
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
    log.machine_nodes = workload.machine_nodes() or None


class _Workload:
    """The workload of one file."""

    def __init__(self, log: Log) -> None:
        self.log, self.moved = log, moved_fields(log)
        self.header: dict[str, int] = {}
        self.named: bool | None = None
        self.fields = 0

    def state(self, text: str) -> None:
        """Keep what a line of the header states."""
        match = _HEADER.match(text)
        number = _WHOLE.match(match[2]) if match else None
        if match and number:
            self.header[match[1]] = int(number[0])
        elif match and match[1] == "Computer":
            self.log.machine = (
                self.log.machine or match[2][:200].encode("ascii", "replace").decode()
            )

    def block(self, lines: Whole, rows: Texts) -> Block:
        """Return what lines say."""
        lists = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(rows))
        lengths = pc.list_value_length(lists).to_numpy()
        cells = self._cells(lists, lengths)
        block = Block(line=lines, id=rows)
        why, counted = block.why, lambda row: f"{lengths[row]} fields"
        why.where(
            lengths < _FIELDS,
            f"{FOREIGN}has not {_FIELDS} fields separated by blanks",
            counted,
        )
        before = (lengths > _FIELDS) & ~matches(cells[0], r"-?\d+")
        why.where(
            before,
            FOREIGN + "does not begin with the number of a job",
            lambda row: shown(rows[row].as_py(), _RECORD),
        )
        part = matches(cells[_STATUS], "[234]")
        why.where(
            part,
            LEFT_OUT
            + "a part of a job (status 2 to 4), which the line of the whole job covers",
        )
        by_queue = pc.equal(cells[_PARTITION], "-1")
        partition = pc.if_else(by_queue, cells[_QUEUE], cells[_PARTITION])
        block.partition, block.user = (
            pc.if_else(pc.equal(each, "-1"), "", each)
            for each in (partition, cells[_USER])
        )
        if self.log.settings.partition is not None:
            self.fields = self.fields or int(lengths[0])
            numeric = np.all(
                [matches(column, r"-?\d+") for column in cells[_USER:_FIELDS]], axis=0
            )
            why.where(~numeric & (lengths != self.fields), UNCLEAR, counted)
            told = (
                "field 16 states no partition: the queue in field 15 was taken for it"
            )
            block.notes.append((flags(by_queue), told, cell(cells[_QUEUE])))
        processors = self._times(block, cells)
        self._nodes(block, cells[_FIELDS], processors, lengths)
        return block

    def _cells(self, lists: pa.Array, lengths: Whole) -> list[Texts]:
        """Return the fields, those of `--map` from their places, the nineteenth included."""
        cells = fields_of(lists, range(_FIELDS + 1))
        enough = pa.array(
            lengths > max((source for source, _ in self.moved.values()), default=0)
        )
        for place, (source, convert) in self.moved.items():
            found = fields_of(lists, [source])[0].dictionary_encode()
            moved = texts([convert(text) for text in found.dictionary.to_pylist()])
            cells[place] = pc.if_else(
                enough, pc.take(moved, found.indices), cells[place]
            )
        return cells

    def _times(self, block: Block, cells: list[Texts]) -> Numbers:
        """Fill in when a job ran, and skip rows with numbers of no job that ran; returns the processors of jobs."""
        why, values = block.why, {}
        for place in (_SUBMIT, _WAIT, _RUN, _PROCESSORS, _REQUESTED, _LIMIT):
            found, bad = numbers(cells[place], _NUMBER, pa.float64())
            values[place] = found.fill_null(-1).to_numpy()
            if place < _REQUESTED:
                why.where(
                    bad, f"{SKIPPED}field {place + 1} is no number", cell(cells[place])
                )
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
        block.start, block.end = (
            np.where(queued, NONE, _ns(start_s)),
            _ns(np.where(queued, start_s, end_s)),
        )
        why.where(queued, NEVER_STARTED)
        why.where(
            cancelled,
            LEFT_OUT + "a cancelled job (status 5) without a wait or run time",
        )
        times = [cells[place] for place in (_SUBMIT, _WAIT, _RUN)]
        counts = [cells[_PROCESSORS], cells[_REQUESTED]]
        for rows, reason, told_of in (
            (wait_s == -1, "the wait time, field 3, is not known (-1)", cells[:1]),
            (run_s == -1, "the run time, field 4, is not known (-1)", cells[:1]),
            (
                ~_are_processors(processors),
                "neither field 5 nor 8 says how many processors",
                counts,
            ),
            (
                np.minimum(np.minimum(submit_s, wait_s), run_s) < 0,
                "a time is negative",
                times,
            ),
            (end_s >= MOST_EPOCH_S, "ends later than the year 2262", times),
        ):
            why.where(rows, SKIPPED + reason, cell(*told_of))
        return processors

    def _nodes(
        self, block: Block, listed: Texts, processors: Numbers, lengths: Whole
    ) -> None:
        """Fill in the nodes of jobs, or how many they are."""
        used, beyond = block.why.used, lengths > _FIELDS
        if self.named is None and used.any():
            first = int(used.argmax())
            self.named = 0 < len(_hosts(listed[first].as_py())) <= processors[first]
            if self.named:
                why = "field 19 lists nodes: they are taken for those of the jobs, and field 5 is not read"
                self.log.note(why, int(block.line[first]), cell(listed)(first))
        if self.named:
            found = listed.dictionary_encode()
            hosts = [_hosts(text) for text in found.dictionary.to_pylist()]
            sizes = np.array([len(each) for each in hosts])[found.indices.to_numpy()]
            block.hosts = pc.take(
                texts([",".join(each) for each in hosts]), found.indices
            )
            why = SKIPPED + "field 19 lists no nodes, as it does for the jobs before"
            block.why.where((sizes == 0) | (sizes > processors), why, cell(listed))
            return
        why = "fields beyond the 18 of the format were not read: field 19 of the first job lists no nodes"
        block.notes.append((beyond, why, cell(listed)))
        per_node = self.per_node()
        if per_node is None:
            why = "neither --processors-per-node nor MaxProcs and MaxNodes of the header tell how many processors a "
            block.notes.append(
                (
                    used,
                    f"{why}node has: each processor is taken for a node",
                    lambda row: "",
                )
            )
        counts = np.where(_are_processors(processors), processors, 0)
        block.count = np.ceil(counts / (per_node or 1)).astype(np.int64)

    def per_node(self) -> int | None:
        """Processors of a node; None: nobody says so."""
        if self.log.settings.processors_per_node is not None:
            return self.log.settings.processors_per_node
        nodes, processors = (
            self.header.get("MaxNodes", 0),
            self.header.get("MaxProcs", 0),
        )
        return max(1, math.ceil(processors / nodes)) if nodes and processors else None

    def machine_nodes(self) -> int:
        """How many nodes the machine has; 0: the header does not say so."""
        if "MaxNodes" in self.header and self.log.settings.processors_per_node is None:
            return self.header["MaxNodes"]
        nodes = math.ceil(self.header.get("MaxProcs", 0) / (self.per_node() or 1))
        return nodes or self.header.get("MaxNodes", 0)


def _hosts(text: str) -> tuple[str, ...]:
    """Nodes of field 19; none where it is something else: names of nodes have letters and digits."""
    try:
        hosts = expand(
            ",".join(_SLOT.sub("", name) for name in _APART.split(text) if name)
        )
    except HostListError:
        return ()
    return hosts if all(map(_NODE.search, hosts)) else ()


def _are_processors(counts: Numbers) -> Mask:
    return (counts > 0) & (counts <= _MOST_PROCESSORS)


def _ns(seconds: Numbers) -> Whole:
    """Nanoseconds of seconds, with milliseconds; none of what is no time."""
    fine = (seconds >= 0) & (seconds < MOST_EPOCH_S)
    whole = np.floor(np.where(fine, seconds, 0))
    below = np.rint((np.where(fine, seconds, 0) - whole) * 1000).astype(np.int64)
    return np.where(
        fine, whole.astype(np.int64) * SECOND_NS + below * (SECOND_NS // 1000), NONE
    )
