"""PBS Pro, OpenPBS and Torque: accounting files, one a day.

A record is `MM/DD/YYYY HH:MM:SS;type;id;key=value key=value ...` (OpenPBS and Torque administrator's guides, chapter
on accounting). Times within the message are epochs; the stamp is local and used only where they are missing.

Hosts come from `exec_host`, else from `exec_vnode`. `S` starts a job; `E` or `R` states a whole run; `A` ends what `S`
began; with `c` a job gives nodes back. From `B` to `F`, `K` or `k` the nodes of a reservation are unavailable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bft.replay.logs.formats.entries import NOT_BEGUN, OTHER_RECORDS
from bft.replay.logs.formats.text_lines import (
    epochs,
    fields_of,
    has,
    matches,
    shown,
    text_lines,
)
from bft.replay.logs.hosts import flags
from bft.replay.logs.records import (
    FOREIGN,
    LEFT_OUT,
    NEVER_STARTED,
    SKIPPED,
    Block,
    Log,
    Texts,
)
from bft.replay.logs.times import Whole
from bft.replay.logs.units import Stated

_STAMP = r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d(\.\d+)?"
_RECORD = re.compile(rf"{_STAMP};\w\w?;", re.ASCII)
_FOREIGN = (
    FOREIGN + "is no record of PBS accounting: MM/DD/YYYY HH:MM:SS;type;id;message"
)
# A quote opens a quoted part where a value or a part of one may begin; anywhere else it is an apostrophe.
_QUOTED_WORD = r"""([=:,+(])(?:"([^"\s]*)"|'([^'\s]*)')"""
_QUOTED = r"""([=:,+(])(?:"[^"]*"|'[^']*')"""
_WALLTIME = "Resource_List.walltime"
_WANTED = ("start", "end", "exec_host", "exec_vnode", "nodes", "etime", "qtime", "ctime", "queue", "user", "run_count",
           _WALLTIME)  # fmt: skip
_OF_UNITS = (
    "exec_gpus",
    "Resource_List.place",
    "Resource_List.ngpus",
    "exec_vnode",
    "exec_host",
)
# What types of records say, and by which keys they state times; `stamp` is that of the record.
_KINDS = {"E": "ran", "R": "ran", "S": "began", "A": "ended", "c": "shrank", "B": "went down", "F": "came back",
          "K": "came back", "k": "came back"}  # fmt: skip
_TIMES = {
    "ran": {"start": "start", "end": "end"},
    "began": {"start": "start"},
    "ended": {"end": "end"},
    "shrank": {"start": "stamp"},
    "went down": {"start": "start"},
    "came back": {"end": "end"},
}


def read(log: Log) -> Iterator[Block]:
    """Read an accounting file; see `LogFormat` for errors. Several files: in order of time."""
    log.words = {
        "hosts": "exec_host, exec_vnode or nodes",
        "start": "start=",
        "end": "end=",
    }
    log.states_begins = True
    for lines, rows in text_lines(log):
        yield from _blocks(log, lines, rows)


def _blocks(log: Log, lines: Whole, rows: Texts) -> Iterator[Block]:
    """Yield the records of each kind, and what is none."""
    columns = fields_of(pc.split_pattern(rows, ";", max_splits=3), range(4))
    record = matches(columns[0], _STAMP) & matches(columns[1], r"\w\w?")
    # Blanks within quotes would begin a key.
    quoted = pa.array(has(columns[3], "[\"']"))
    unquoted = pc.replace_substring_regex(
        columns[3].filter(quoted), _QUOTED_WORD, r"\1\2\3"
    )
    unquoted = pc.replace_substring_regex(unquoted, _QUOTED, r"\1")
    columns[3] = pc.replace_with_mask(columns[3], quoted, unquoted)
    started = has(columns[3], r"(^|\s)start=")
    if (
        log.settings.partition is not None
    ):  # a record without a queue is of a job whose start states one
        started &= has(columns[3], r"(^|\s)queue=")
    kinds = np.array(
        [_KINDS.get(each, "") for each in columns[1].to_pylist()], dtype=object
    )
    kinds[(kinds == "ran") & ~started] = "ended"
    foreign = rows.filter(pa.array(~record))
    nothing = Block(kind="nothing", line=lines[~record])
    nothing.why.where(
        nothing.why.used, _FOREIGN, lambda row: shown(foreign[row].as_py(), _RECORD)
    )
    others = np.flatnonzero(record & (kinds == ""))
    if len(others):
        nothing.dropped.append(
            (LEFT_OUT + OTHER_RECORDS, len(others), int(lines[others[0]]))
        )
    yield nothing
    for kind in _TIMES:
        mine = record & (kinds == kind)
        if mine.any():
            yield _block(
                log,
                kind,
                lines[mine],
                *(column.filter(pa.array(mine)) for column in columns),
            )


def _block(
    log: Log,
    kind: str,
    lines: Whole,
    stamps: Texts,
    types: Texts,
    ids: Texts,
    messages: Texts,
) -> Block:
    """Return records that say the same."""
    block = Block(kind=kind, line=lines, id=ids)
    words = pc.ascii_split_whitespace(messages)
    keys, items = fields_of(pc.split_pattern(words.values, "=", max_splits=1), (0, 1))
    pairs = pa.MapArray.from_arrays(words.offsets, keys, items)
    values = {key: pc.map_lookup(pairs, key, "last") for key in (*_WANTED, *_OF_UNITS)}
    stated = {key: pc.fill_null(column, "") for key, column in values.items()}
    values["stamp"] = pc.replace_substring_regex(
        stamps, r"^(..)/(..)/(....) (.{8}).*$", r"\3-\1-\2T\4"
    )
    hosts = _hosts(values)
    nowhere = flags(pc.equal(hosts, ""))
    for name, key in _TIMES[kind].items():
        setattr(block, name, pc.coalesce(values[key], values["stamp"]))
        if key != "stamp":  # stamps are hours off where --tz was not given
            log.shown_until = (
                max(log.shown_until or 0, int(epochs(stated[key]).ns.max())) or None
            )
    if kind in ("ran", "began"):
        parent = nowhere & has(ids, r"\[\]")
        block.why.where(
            parent, LEFT_OUT + "an array parent, whose jobs have records of their own"
        )
        never = flags(pc.equal(stated["start"], "0")) | flags(
            pc.equal(stated["run_count"], "0")
        )
        block.why.where(nowhere & never, NEVER_STARTED)
        block.known = pc.fill_null(
            pc.coalesce(values["etime"], values["qtime"], values["ctime"]), ""
        )
        block.limit, block.user, block.partition = (
            stated[key] for key in (_WALLTIME, "user", "queue")
        )
    if kind in ("ended", "shrank", "came back"):
        block.state = pc.binary_join_element_wise("record type ", types, NOT_BEGUN, "")
    if kind == "ended":
        lost = pc.and_(pc.equal(types, "E"), pa.array(~nowhere))
        alone = pc.if_else(
            lost, SKIPPED + "a job has ended but states no start", block.state
        )
        block.state = pc.if_else(
            pc.is_valid(values["start"]), "job of another partition", alone
        )
    if kind in ("ended", "came back"):
        return block
    block.hosts = hosts
    block.literal = True
    if kind != "went down" and log.settings.unit is not None:
        cells = zip(*(stated[key].to_pylist() for key in _OF_UNITS), strict=True)
        block.units = [
            _held(*each, cores=log.settings.unit.cores > 0) for each in cells
        ]
    return block


def _hosts(values: Mapping[str, Texts]) -> Texts:
    """Hosts of exec_host (h/7+h/6, h/0*13, h/0-3), else of exec_vnode or nodes ((n1:ncpus=4)+(n2:ncpus=4))."""
    slots = pc.replace_substring_regex(values["exec_host"], r"/[^+]*", "")
    vnodes = pc.if_else(
        pc.is_null(slots), pc.coalesce(values["exec_vnode"], values["nodes"]), ""
    )
    hosts = pc.coalesce(
        slots, pc.replace_substring_regex(vnodes, r"[()]|:[^+()]*", ""), ""
    )
    # Sockets or NUMA domains of a host are vnodes of their own: host[0], host[1].
    hosts = pc.replace_substring_regex(hosts, r"([^+])\[\d+\](\+|$)", r"\1\2")
    return pc.replace_substring(hosts, "+", ",")


# --- units ----------------------------------------------------------------------------------------------------------

# Sockets or NUMA domains of a host that are nodes of their own: host[0], host[1].
PART_OF_HOST = re.compile(r"(?<=.)\[\d+\]$")
# Torque: n1-gpu/0+n1-gpu/1.
_GPU = re.compile(r"([^+]+)-gpu/(\d{1,4})")
# n1/0*8, n1/7+n1/6, n1/0-3.
_SLOTS = re.compile(r"([^+/]+)/(\d{1,9})(?:-(\d{1,9}))?(?:\*(\d{1,9}))?")


@lru_cache(maxsize=10_000)
def _held(
    gpus: str, place: str, total: str, vnodes: str, slots: str, *, cores: bool
) -> Stated:
    """Return the GPUs or cores that a job held of each of its hosts, as far as it states them.

    Of exec_gpus (Torque, which states the numbers of GPUs), exec_vnode, Resource_List.ngpus and exec_host, the first
    that states it.
    """
    if "excl" in place:
        return Stated(alone=True)
    if gpus and not cores:
        numbers: dict[str, set[int]] = {}
        for host, number in _GPU.findall(gpus):
            numbers.setdefault(host, set()).add(int(number))
        return Stated(
            named=tuple((host, tuple(sorted(each))) for host, each in numbers.items())
        )
    counts: Counter[str] = Counter()
    if vnodes:
        resource = re.compile(r":ncpus=(\d{1,9})" if cores else r":ngpus=(\d{1,9})")
        for part in vnodes.split("+"):
            host = PART_OF_HOST.sub("", part.strip("()").partition(":")[0])
            counts[host] += sum(map(int, resource.findall(part)))
    elif cores:
        for host, low, high, times in _SLOTS.findall(slots):
            counts[host] += int(times or int(high or low) - int(low) + 1)
    else:
        return Stated(gpus=int(total) if total.isdecimal() else 0)
    return Stated(named=tuple(counts.items()))
