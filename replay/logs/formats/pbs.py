"""PBS Pro, OpenPBS and Torque: accounting files, one a day.

A record is `MM/DD/YYYY HH:MM:SS;type;id;key=value key=value ...` (OpenPBS and Torque administrator's guides, chapter
on accounting). Times within the message are epochs; the stamp is local and used only where they are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.replay.logs.formats.text_lines import (
    cell,
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
    Unusable,
    texts,
)
from bft.replay.logs.times import NONE, Mask, Whole
from bft.replay.logs.units import Stated

Names = NDArray[np.str_]
_STAMP = r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d(\.\d+)?"
_RECORD = re.compile(rf"{_STAMP};\w\w?;", re.ASCII)
_FOREIGN = (
    FOREIGN + "is no record of PBS accounting: MM/DD/YYYY HH:MM:SS;type;id;message"
)
# A quote opens a quoted part where a value or a part of one may begin; anywhere else it is an apostrophe.
_QUOTED = re.compile(r"""(?<=[=:,+(])(?:"[^"]*"|'[^']*')""")
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
# What types of records say, and which times they state: by their key, or (empty) by their stamp.
_KINDS = {"E": "ran", "R": "ran", "S": "began", "A": "ended", "c": "shrank", "B": "went down", "F": "came back",
          "K": "came back", "k": "came back"}  # fmt: skip
_TIMES = {
    "ran": {"start": "start", "end": "end"},
    "began": {"start": "start"},
    "ended": {"end": "end"},
    "shrank": {"start": ""},
    "went down": {"start": "start"},
    "came back": {"end": ""},
}
# Why records are not used of which no other record states the beginning.
_ALONE = {
    "A": "record type A: aborted before it started",
    "R": "record type R: sent back to the queue, its start is not in the logs",
    "E": "record type E: ended before it started",
    "c": "record type c: nodes released by a job whose start is not in the logs",
    **{
        kind: f"record type {kind}: the end of a reservation whose beginning is not in the logs"
        for kind in "FKk"
    },
}


class _Last:
    """The last times of a file by epochs, and by stamps, which are hours off where --tz was not given."""

    epoch = stamp = 0


def read(log: Log) -> Iterator[Block]:
    """Read an accounting file; see `LogFormat` for errors. Several files: in order of time."""
    log.words = {"hosts": "exec_host, exec_vnode or nodes"}
    last = _Last()
    for lines, rows in text_lines(log):
        stamps, kinds, ids, messages = fields_of(
            pc.split_pattern(rows, ";", max_splits=3), range(4)
        )
        record = matches(stamps, _STAMP) & matches(kinds, r"\w\w?")
        messages = _unquoted(messages)
        started = has(messages, r"(^|\s)start=")
        if (
            log.settings.partition is not None
        ):  # a record without a queue is of a job whose start states one
            started &= has(messages, r"(^|\s)queue=")
        types = np.array(kinds.to_pylist())
        says = np.array([_KINDS.get(kind, "") for kind in types.tolist()], dtype=object)
        says[(says == "ran") & ~started] = "ended"
        yield _others(lines, rows, types, record, record & (says == ""))
        for kind in _TIMES:
            mine = np.flatnonzero(record & (says == kind))
            if len(mine):
                block = Block(kind=kind, line=lines[mine], id=ids.take(pa.array(mine)))
                _fill(
                    log,
                    last,
                    block,
                    types[mine],
                    stamps.take(pa.array(mine)),
                    messages.take(pa.array(mine)),
                )
                yield block
    log.shown_until, log.states_begins = last.epoch or last.stamp or None, True


def _others(
    lines: Whole, rows: Texts, types: Names, record: Mask, others: Mask
) -> Block:
    """Return the rows that are no record, and count those that say nothing of nodes."""
    rows = rows.filter(pa.array(~record))
    block = Block(kind="nothing", line=lines[~record])
    every = np.ones(len(block), dtype=bool)
    block.why.where(every, _FOREIGN, lambda row: shown(rows[row].as_py(), _RECORD))
    for kind in np.unique(types[others]).tolist():
        mine = np.flatnonzero(others & (types == kind))
        why = f"{LEFT_OUT}record type {kind}: says nothing of when nodes are taken or given back"
        block.dropped.append((why, len(mine), int(lines[mine[0]])))
    return block


def _unquoted(messages: Texts) -> Texts:
    """Return messages without quotes, and without blanks within them, which would begin a key."""
    quoted = has(messages, "[\"']")
    if not quoted.any():
        return messages
    plain = [
        _QUOTED.sub(lambda found: "".join(found[0][1:-1].split()), message)
        for message in messages.filter(pa.array(quoted)).to_pylist()
    ]
    return pc.replace_with_mask(messages, pa.array(quoted), texts(plain))


def _fill(
    log: Log, last: _Last, block: Block, types: Names, stamps: Texts, messages: Texts
) -> None:
    """Fill in a block of records that say the same."""
    kind, why = block.kind, block.why
    values = _values(messages, (*_WANTED, *(_OF_UNITS if log.settings.unit else ())))
    cells = {key: column.fill_null("") for key, column in values.items()}
    hosts = _hosts(cells)
    nowhere = flags(pc.equal(hosts, ""))
    if kind in ("ran", "began"):
        array = nowhere & has(block.id, r"\[\]")
        why.where(
            array, LEFT_OUT + "an array parent, whose jobs have records of their own"
        )
        never = flags(pc.equal(cells["start"], "0")) | flags(
            pc.equal(cells["run_count"], "0")
        )
        why.where(nowhere & never, NEVER_STARTED)
        known = [epochs(cells[key]).ns for key in ("etime", "qtime", "ctime")]
        block.known = np.select([each != NONE for each in known], known, NONE)
        block.limit, block.user, block.partition = (
            cells[key] for key in (_WALLTIME, "user", "queue")
        )
    for name, key in _TIMES[kind].items():
        stated = values[key] if key else pa.nulls(len(block), pa.string())
        setattr(block, name, _time(log, last, block, key, stated, stamps))
    alone = np.array([_ALONE.get(each, "") for each in types.tolist()], dtype=object)
    if kind == "ended":
        alone[(types == "E") & ~nowhere] = (
            SKIPPED + "a job has ended but states no start"
        )
        alone[flags(pc.is_valid(values["start"]))] = "job of another partition"
    if kind in ("ended", "came back", "shrank"):
        block.state = texts(alone.tolist())
    if kind not in ("ended", "came back"):
        block.hosts, block.literal = hosts, True
    if kind in ("ran", "began", "shrank") and log.settings.unit is not None:
        block.units = _units(block, cells, cores=log.settings.unit.cores > 0)


def _values(messages: Texts, keys: Sequence[str]) -> dict[str, Texts]:
    """Return the values of keys as columns: the last where there are several, null where there is none."""
    lists = pc.ascii_split_whitespace(messages)
    rows, words = pc.list_parent_indices(lists), lists.flatten()
    values = {}
    for key in keys:
        mine = pc.starts_with(words, f"{key}=")
        found = pc.utf8_slice_codeunits(words.filter(mine), len(key) + 1)
        index = np.full(len(messages), -1)
        index[rows.filter(mine).to_numpy()] = np.arange(len(found))
        values[key] = found.take(pa.array(index, mask=index < 0))
    return values


def _hosts(cells: Mapping[str, Texts]) -> Texts:
    """Hosts of exec_host (h/7+h/6, h/0*13, h/0-3), else of exec_vnode or nodes ((n1:ncpus=4)+(n2:ncpus=4))."""
    hosts = pc.replace_substring_regex(cells["exec_host"], r"/[^+]*", "")
    for key in ("exec_vnode", "nodes"):
        unnamed = pc.equal(hosts, "")
        if pc.any(unnamed).as_py():
            vnodes = pc.replace_substring_regex(cells[key], r"[()]|:[^+()]*", "")
            hosts = pc.if_else(unnamed, vnodes, hosts)
    # Sockets or NUMA domains of a host are vnodes of their own: host[0], host[1].
    hosts = pc.replace_substring_regex(hosts, r"([^+])\[\d+\](\+|$)", r"\1\2")
    return pc.replace_substring(hosts, "+", ",")


def _time(
    log: Log, last: _Last, block: Block, key: str, cells: Texts, stamps: Texts
) -> Whole:
    """Epochs of the messages, or the records' stamps where a message states none."""
    stated = flags(pc.is_valid(cells))
    ns, _ = epochs(cells.fill_null(""))
    last.epoch = max(last.epoch, int(ns.max()))
    block.why.where(
        stated & (ns == NONE),
        f"{SKIPPED}{key}= is no time in seconds since 1970",
        cell(cells),
    )
    rest = np.flatnonzero(~stated)
    if len(rest):
        local = stamps.take(pa.array(rest))
        local = pc.replace_substring_regex(
            local, r"^(..)/(..)/(....) (.{8}).*$", r"\3-\1-\2T\4"
        )
        lines = block.line[rest]
        ns[rest] = log.clock.times(
            local,
            lambda rows, why: log.note(
                why, int(lines[rows.argmax()]), count=int(np.count_nonzero(rows))
            ),
        ).ns
        last.stamp = max(last.stamp, int(ns[rest].max()))
        block.why.where(
            ~stated & (ns == NONE),
            SKIPPED + "the date of the record does not exist",
            cell(stamps),
        )
    return ns


# Torque: n1-gpu/0+n1-gpu/1.
_GPU = re.compile(r"(.+)-gpu/(\d{1,4})")
_SLOTS = re.compile(r"(.+?)/(\d{1,9})(?:-(\d{1,9}))?(?:\*(\d{1,9}))?")
# Sockets or NUMA domains of a host that are nodes of their own: host[0], host[1].
PART_OF_HOST = re.compile(r"(?<=.)\[\d+\]$")


def _units(
    block: Block, cells: Mapping[str, Texts], *, cores: bool
) -> list[Stated | None]:
    """Return what jobs held of their nodes."""
    columns = [cells[key].to_pylist() for key in _OF_UNITS]
    units: list[Stated | None] = []
    for row, stated in enumerate(zip(*columns, strict=True)):
        try:
            units.append(_stated(*stated, cores=cores))
        except Unusable as error:
            units.append(None)
            block.why.where(np.arange(len(block)) == row, error.why, error.detail)
    return units


@lru_cache(maxsize=10_000)
def _stated(
    gpus: str, place: str, total: str, vnodes: str, hosts: str, *, cores: bool
) -> Stated | None:
    """Return the GPUs or cores that a job held of each of its hosts; None: it states none.

    Of exec_gpus (Torque, which states the numbers of GPUs), exec_vnode, Resource_List.ngpus and exec_host, the first
    that states it.

    Raises
    ------
    Unusable
        When they hold something else.
    """
    if "excl" in place:
        return Stated(alone=True)
    if gpus and not cores:
        return Stated(named=_named(gpus, hosts))
    if not vnodes and not cores:
        return Stated(gpus=_whole(total or "0", "Resource_List.ngpus"))
    by_host = (
        _by_vnode(vnodes, "ncpus" if cores else "ngpus") if vnodes else _slots(hosts)
    )
    return Stated(named=tuple(by_host.items())) if by_host else None


def _named(text: str, hosts: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The numbers of GPUs of each host."""
    known = {part.partition("/")[0] for part in hosts.split("+")}
    numbers: dict[str, set[int]] = {}
    for part in text.split("+"):
        gpu = _GPU.fullmatch(part)
        if gpu is None or gpu[1] not in known:
            raise Unusable(
                "exec_gpus holds no GPU of the job's hosts, such as n1-gpu/0",
                ascii(part[:40]),
            )
        numbers.setdefault(gpu[1], set()).add(int(gpu[2]))
    return tuple((host, tuple(sorted(each))) for host, each in numbers.items())


def _by_vnode(text: str, resource: str) -> dict[str, int]:
    """How much of a resource exec_vnode states of each host: (n1:ncpus=4:ngpus=1)+(n2:ncpus=4)."""
    counts: dict[str, int] = {}
    for part in text.split("+"):
        vnode, *resources = part.strip("()").split(":")
        host = PART_OF_HOST.sub("", vnode)
        stated = [
            each.partition("=")[2]
            for each in resources
            if each.startswith(f"{resource}=")
        ]
        held = sum(_whole(value, f"{resource} in exec_vnode") for value in stated)
        counts[host] = counts.get(host, 0) + held
    return counts


def _slots(text: str) -> dict[str, int]:
    """Slots of exec_host: n1/0*8, n1/7+n1/6, n1/0-3; none where it states something else."""
    counts: dict[str, int] = {}
    for part in text.split("+"):
        slots = _SLOTS.fullmatch(part)
        if slots is None:
            return {}
        host, low, high, times = slots.groups()
        held = int(times) if times else int(high or low) - int(low) + 1
        counts[host] = counts.get(host, 0) + held
    return counts


def _whole(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise Unusable(f"{what} is no whole number", ascii(text[:40]))
    return int(text)
