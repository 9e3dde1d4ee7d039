"""Snapshots of the states of nodes, as cron takes them: each holds until the next one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from bft.models import InputError
from bft.replay.logs.node_reports import (
    NodesInState,
    Report,
    Reported,
    Reports,
    read_report,
)
from bft.replay.logs.node_states import BUSY, IDLE, UNAVAILABLE, state_of
from bft.replay.logs.reading import (
    Clock,
    Clusters,
    NodesSeen,
    Reading,
    Record,
    Skipped,
    no_time,
)
from bft.replay.logs.tables import split_fields
from bft.replay.trace.node_trace import SECOND_NS

_CODES = {"idle": IDLE, "busy": BUSY, "unavailable": UNAVAILABLE}
_STAMP_COLUMNS = ("timestamp", "time", "stamp", "date")
_NODE_COLUMNS = ("node", "nodes", "nodelist", "host", "hostname")
# A stamp in a file's name: seconds since 1970, or 20240131T120000, 2024-01-31_12-00, ..., with a Z for UTC.
_EPOCH_NAME = re.compile(r"(?<!\d)(1\d{9})(?!\d)")
_DATE_NAME = re.compile(
    r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)[T_. -]?([0-2]\d)[-:.]?([0-5]\d)(?:[-:.]?([0-5]\d))?(?!\d)(Z?)"
)
_JSON_STAMP = re.compile(r'^\s*"timestamp"\s*:\s*(\d{9,10})\b', re.MULTILINE)
_SINFO_DATE = "%a %b %d %H:%M:%S %Y"


def read(reading: Reading) -> Iterator[Record]:
    """Read snapshots of the states of nodes.

    Either a table with the columns timestamp, node and state, or what a command prints of all nodes (`read_report` has
    the list), each time with a stamp: a line with nothing but a time before it, `timestamp` in the JSON of pbsnodes,
    the file's name, or, if `Settings.mtime` asks for it, the time of the file's last change.

    Raises
    ------
    InputError
        When a snapshot has no stamp, or names no node with a state.
    """
    numbered = iter(enumerate(reading.lines, 1))
    taken: list[tuple[int, str]] = []
    for number, line in numbered:
        taken.append((number, line))
        if line.strip() and not line.startswith("#"):
            break
    report, clusters = _States(reading), Clusters(reading)
    columns = _columns(taken[-1][1], reading.settings.delimiter) if taken else None
    if columns:
        for _, line in taken:
            report.line(line)
        reports = _table(numbered, report, *columns)
    else:
        reports = _printed(_chained(taken, numbered), report)
    any_states = False
    for found in report.nodes(reports):
        if isinstance(found, NodesInState):
            any_states = True
            nodes = clusters.indices(found.hosts, found.cluster)
            state = _CODES[str(found.state)]
            yield NodesSeen(found.line, nodes, report.stamp_ns, state)
        else:
            yield found
    if not any_states:
        raise InputError(
            "holds no state of any node",
            file=reading.file,
            hint=reading.diagnosis.losses()
            or "bft-replay ingest --recipe snapshots prints what to export",
        )


def _chained(
    first: list[tuple[int, str]], rest: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    yield from first
    yield from rest


class _States(Report):
    """Reports of the states of nodes, each of a snapshot."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self.stamp_ns = 0

    def wrong(self, text: str, hosts: tuple[str, ...], state: str) -> tuple[str, str]:
        if not hosts or state_of(state):
            return "", ""
        expected = "idle, busy, down, or what sinfo, pbsnodes or bhosts print"
        return f"states no state of a node that is known: expected {expected}", ascii(
            state[:80]
        )


def _printed(lines: Iterator[tuple[int, str]], report: _States) -> Reports:
    """Yield what commands printed, the stamp of each snapshot set before its nodes."""
    for stamp_ns, body in _bodies(lines, report):
        report.stamp_ns = stamp_ns
        yield from read_report(body, report)


def _columns(line: str, delimiter: str) -> tuple[str, tuple[int, int, int], int] | None:
    """Delimiter, places of stamp, node and state, and number of the columns of a header; None when it is none."""
    mark = delimiter or next((mark for mark in ",;|\t" if mark in line), ",")
    names = [name.strip().lower() for name in split_fields(line, mark)]
    places = [
        next((names.index(alias) for alias in aliases if alias in names), -1)
        for aliases in (_STAMP_COLUMNS, _NODE_COLUMNS, ("state",))
    ]
    return (
        (mark, (places[0], places[1], places[2]), len(names))
        if min(places) >= 0
        else None
    )


def _table(
    lines: Iterable[tuple[int, str]],
    report: _States,
    delimiter: str,
    places: tuple[int, int, int],
    width: int,
) -> Reports:
    """A table of timestamp, node and state; its header may come again."""
    reading = report.reading
    for number, line in lines:
        report.line()
        if not line.strip() or line.startswith("#") or _columns(line, delimiter):
            continue
        cells = split_fields(line, delimiter)
        if len(cells) != width:
            why = "has another number of fields than the header"
            yield Skipped(number, why, f"{len(cells)} instead of {width}")
            continue
        stamp, node, state = (cells[place].strip() for place in places)
        if not node:
            yield Skipped(number, "column node names none")
            continue
        stamp_ns = reading.clock.parse(stamp, reading.file, number)
        if stamp_ns is None:
            why = "column timestamp holds no time"
            yield Skipped(number, why, no_time(stamp))
            continue
        report.stamp_ns = stamp_ns
        yield Reported(node, number, state)


def _bodies(
    lines: Iterable[tuple[int, str]], report: _States
) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """What was printed of each snapshot, with its stamp: the line before it, else `_stamp_of_file`."""
    stamp_ns: int | None = None
    body: list[tuple[int, str]] = []
    reading = report.reading

    def begun() -> bool:
        return any(line.strip() for _, line in body)

    for number, line in lines:
        stamp = _stamp(line, reading.clock, reading.file, number)
        if stamp is None:
            body.append((number, line))
            continue
        if begun():
            yield _stamp_of_file(body, reading) if stamp_ns is None else stamp_ns, body
        for _ in range(len(body) if not begun() else 0):
            report.line()
        report.line()
        stamp_ns, body = stamp, []
    if begun():
        yield _stamp_of_file(body, reading) if stamp_ns is None else stamp_ns, body
    else:
        for _ in body:
            report.line()


def _stamp(line: str, clock: Clock, file: str, number: int) -> int | None:
    """A line that holds nothing but a time: seconds since 1970, an ISO stamp, or the date that sinfo -l prints."""
    text = line.lstrip("# ").strip()
    if not 9 <= len(text) <= 40 or not (text[0].isdecimal() or text[-4:].isdecimal()):
        return None
    try:
        return clock.local(datetime.strptime(text, _SINFO_DATE), file, number)
    except ValueError:
        return clock.parse(text, file, number)


def _stamp_of_file(body: list[tuple[int, str]], reading: Reading) -> int:
    """The stamp of a snapshot with none before it: in its JSON, in the file's name, or of the file's last change."""
    head = "\n".join(line for _, line in body[:20])
    stated = _JSON_STAMP.search(head)
    name = Path(reading.file).name
    epoch, date = _EPOCH_NAME.search(name), _DATE_NAME.search(name)
    if stated or epoch:
        stamp = reading.clock.epoch(stated[1] if stated else epoch[1] if epoch else "")
    elif date:
        year, month, day, hour, minute, second, utc = date.groups()
        text = f"{year}-{month}-{day}T{hour}:{minute}:{second or '00'}{utc}"
        stamp = reading.clock.parse(text, reading.file, 0)
    elif reading.settings.mtime and Path(reading.file).is_file():
        stamp = Path(reading.file).stat().st_mtime_ns // SECOND_NS * SECOND_NS
    else:
        stamp = None
    if stamp is None:
        first = next(number for number, line in body if line.strip())
        raise InputError(
            f"line {first}: a snapshot without a time: expected a line with nothing but a time before it "
            "(date +%s), or a time in the file's name, such as sinfo-20240131T120000.txt",
            file=reading.file,
            hint="--mtime takes the time of the file's last change",
        )
    return stamp
