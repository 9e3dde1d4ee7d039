"""LSF: lsb.acct, a record a finished job, and lsb.events, what happens to jobs and hosts as it happens.

Fields are separated by blanks, strings are quoted and double the quotes in them; the order of fields is that of the
LSF configuration reference, lsb.acct(5) and lsb.events(5). The tail of a record of lsb.acct grows with the version and
is not read, but for a few fields. Unlike lsb.acct, lsb.events knows jobs that are still running, every run of a
requeued job, and closed hosts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final
from zlib import crc32

from bft.replay.logs.formats.text_lines import UNCLEAR, shown
from bft.replay.logs.records import (
    NEVER_STARTED,
    SKIPPED,
    Foreign,
    LeftOut,
    Log,
    Row,
    Unusable,
    each_line,
)
from bft.replay.logs.times import MOST_EPOCH_S
from bft.replay.logs.units import Stated
from bft.replay.trace.node_trace import SECOND_NS

_QUOTED = r'"[^"]*+(?:""[^"]*+)*+"'
_FIELD = re.compile(rf'{_QUOTED}|[^\s"]+')
# Nanoseconds of larger times do not fit 64 bits.
_TIME = r"\s+(\d{1,9}|[1-8]\d{9})"
# Event time, jobId, submitTime, beginTime, termTime, startTime, user and queue; nine strings behind them.
_HEAD = re.compile(
    rf'"JOB_FINISH"\s+{_QUOTED}{_TIME}\s+([^\s"]+)(?:\s+[^\s"]+){{3}}{_TIME}{_TIME}{_TIME}{_TIME}\s+({_QUOTED})'
    rf"\s+({_QUOTED})(?:\s+{_QUOTED}){{9}}(?=\s)"
)
# How many hosts, and their names; a host is repeated for each slot, or written once as 16*host (SHORT_EVENTFILE).
_HOSTS = re.compile(rf"\s+([^\s\"]+)((?:\s+{_QUOTED})*+)")
_HOST = re.compile(r'"(?:(\d{1,6})\*)?((?:[^"]|"")*+)"')
_FRACTION = re.compile(r"\s+\d+\.\d+(?=\s)", re.ASCII)
# From jStatus on: the index in an array of jobs stands behind the usage.
_GPUS = re.compile(r"\bngpus_physical=(\d{1,6}(?:\.\d{1,6})?)")
# From jStatus on, in fields: to the number of -R extensions; from the end of host usages to runTime.
_TO_EXTENSIONS, _TO_RUN_TIME = 53, 13
_OTHERS: Final = {
    '"EVENT_ADRSV_FINISH"': "record type EVENT_ADRSV_FINISH: reservations of LSF are not read",
    '"JOB_RESIZE"': "record type JOB_RESIZE: resized jobs count as on the nodes of their end from their start on",
}

_RECORD = re.compile(r'"[A-Z][A-Z_0-9]+" "')


def read(log: Log) -> Iterator[Row]:
    """Read lsb.acct; see `LogFormat` for errors."""
    log.words = {"hosts": "execHosts"}
    yield from each_line(log, partial(_finished, log))


def _finished(log: Log, text: str, line: int) -> Iterator[Row]:
    """Yield the run of a job that a record states."""
    head = _HEAD.match(text)
    if head is None or text.count('"') % 2:
        raise _no_record(text)
    event, job, *times, user, queue = head.groups()
    event_s, submit_s, begin_s, deadline_s, start_s = map(int, (event, *times))
    end_ns = event_s * SECOND_NS
    known_ns = max(submit_s, begin_s) * SECOND_NS or None
    row: dict[str, Any] = {
        "user": _unquoted(user),
        "partition": _unquoted(queue),
        "known": known_ns,
        "end": end_ns,
    }
    notes = []
    at = head.end()
    asked, after = _hosts(text, at, "numAskedHosts", "askedHosts")
    found = _HOSTS.match(text, after) if asked else None
    if found and not found[2] and _FRACTION.match(text, found.end()):
        notes.append(
            "numExHosts is missing: the hosts of askedHosts count as execHosts"
        )
        hosts = asked
    else:
        at = after
        hosts, after = _hosts(text, at, "numExHosts", "execHosts")
    if not hosts:
        yield row | {"id": text, "why": NEVER_STARTED}
        return
    if "@" in text[at:after]:
        notes.append(
            "hosts of another cluster (host@cluster) count as nodes of their own"
        )
    start_ns = start_s * SECOND_NS or end_ns - _run_time_ns(text, after)
    row |= {
        # Records that differ in anything are not copies of one another.
        "id": f"{job[:40]} {crc32(text.encode('utf-8', 'surrogateescape')):08x}",
        "start": start_ns,
        "notes": [(note, f"job {job[:40]}") for note in notes],
    }
    row |= {
        "hosts": dict.fromkeys([host for _, host in hosts]),
        "limit": max(deadline_s * SECOND_NS - start_ns, 0) or None,
    }
    if log.settings.unit is not None:
        row["units"] = _held(hosts, text, after, cores=log.settings.unit.cores > 0)
    yield row


def _no_record(text: str) -> Exception:
    """Return why a line is no record of a finished job."""
    fields = _FIELD.findall(text) or [""]
    if fields[0] in _OTHERS:
        return LeftOut(_OTHERS[fields[0]])
    if fields[0] != '"JOB_FINISH"':
        return Foreign(
            "is no record of lsb.acct, such as JOB_FINISH", shown(text, _RECORD)
        )
    if text.count('"') % 2:
        return Unusable("a quote is not closed", ascii(text[-40:]))
    if len(fields) < 23:
        return Unusable("ends before numAskedHosts", f"{len(fields)} fields")
    return Unusable(UNCLEAR.removeprefix(SKIPPED), ascii(text[:60]))


def _hosts(
    text: str, at: int, number: str, what: str
) -> tuple[list[tuple[str, str]], int]:
    """Return the hosts whose number is at a place, with how many slots each time, and where they end."""
    if text.startswith(" 0 ", at):
        return [], at + 2
    found = _HOSTS.match(text, at)
    if found is None:
        raise Unusable(f"{number} is no whole number", ascii(text[at : at + 40]))
    hosts = _HOST.findall(found[2])
    if len(hosts) != _whole(found[1], number):
        raise Unusable(
            f"{what} are not as many hosts as {number} says",
            f"{len(hosts)} and {found[1]}",
        )
    return hosts, found.end()


def _held(
    hosts: Sequence[tuple[str, str]], text: str, after: int, *, cores: bool
) -> Stated:
    """Return what a job held of its hosts: cores by its slots, GPUs by its resource requirements.

    LSF writes rusage[ngpus_physical=4.00] into the requirements of each job with GPUs: so many on each host.
    """
    if not cores:
        stated = _GPUS.findall(text, after)
        return Stated(gpus=round(float(stated[-1])) if stated else 0, each=True)
    slots: Counter[str] = Counter()
    for times, host in hosts:
        slots[host] += int(times or 1)
    return Stated(named=tuple(slots.items()))


def _run_time_ns(text: str, after: int) -> int:
    """RunTime, for a job whose start LSF has lost (startTime 0) though it names hosts."""
    fields = _FIELD.findall(text, after)
    index = _TO_EXTENSIONS
    index += 1 + 2 * max(0, _number(fields, index, "the number of -R extensions"))
    index += 1 + 5 * max(0, _number(fields, index, "numHostRusage"))
    what = "runTime of a job with startTime 0"
    return max(0, _number(fields, index + _TO_RUN_TIME, what)) * SECOND_NS


def _unquoted(field: str) -> str:
    return field[1:-1].replace('""', '"') if field[0] == '"' else field


def _number(row: Sequence[str], index: int, what: str) -> int:
    """A whole number that is not quoted; `Unusable` when there is none."""
    if index >= len(row):
        raise Unusable(f"ends before {what}", f"field {index + 1} of {len(row)}")
    return _whole(row[index], what)


def _whole(text: str, what: str) -> int:
    if not text.removeprefix("-").isdecimal() or len(text) > 18:
        raise Unusable(f"{what} is no whole number", ascii(text[:40]))
    return int(text)


def _time(text: str, what: str) -> int:
    """UTC nanoseconds of seconds since 1970."""
    seconds = _whole(text, what)
    if not 0 < seconds < MOST_EPOCH_S:
        raise Unusable(f"{what} is no time in seconds since 1970", ascii(text))
    return seconds * SECOND_NS


# Of jStatus, lsbatch.h: PEND, PSUSP: back in the queue. EXIT, DONE: ended. PDONE, PERR: post-processing is over.
_QUEUED, _ENDED, _POST = 0x1 | 0x2, 0x20 | 0x40, 0x80 | 0x100
# Of HOST_CTRL, lsbatch.h: open, close, reboot, shutdown, close remotely.
_OPEN, _CLOSED = 1, frozenset({2, 3, 4, 5})
_RUSAGE_FIELDS = 19
# Of JOB_NEW: submitTime and beginTime, and the run limit among rLimits, in seconds.
_SUBMIT, _BEGIN, _RUN_LIMIT = 7, 8, 23


def read_events(log: Log) -> Iterator[Row]:
    """Read lsb.events or lsb.events.N; see `LogFormat` for errors. Several files: in order of time."""
    events = _Events()
    yield from each_line(log, events.record)
    log.shown_until = events.now_ns or None


class _Events:
    """One file of records."""

    def __init__(self) -> None:
        self.now_ns = 0
        # Since when jobs could run, and their limits.
        self.submitted: dict[str, dict[str, int | None]] = {}
        self.handlers = {
            '"JOB_NEW"': self._submitted,
            '"JOB_START"': self._started,
            '"JOB_STATUS"': self._changed,
            '"JOB_REQUEUE"': self._requeued,
            '"HOST_CTRL"': self._host,
        }

    def record(self, text: str, line: int) -> Iterator[Row]:
        """Yield what one row says."""
        if text.count('"') % 2:
            raise Unusable("a quote is not closed", ascii(text[-40:]))
        row = _FIELD.findall(text)
        if row[0] == '"JOB_FINISH"' or not re.fullmatch('"[A-Z][A-Z_0-9]+"', row[0]):
            raise Foreign(
                "is no record of lsb.events, such as JOB_START",
                shown(text, _RECORD),
            )
        _number(row, 2, "event time")
        event_ns = _time(row[2], "event time")
        self.now_ns = max(self.now_ns, event_ns)
        handler = self.handlers.get(row[0])
        if handler is None:
            raise LeftOut(
                "records of other types: they say nothing of when nodes are taken or given back"
            )
        yield handler(row, event_ns)

    def _submitted(self, row: Sequence[str], event_ns: int) -> Row:
        # version time jobId userId options numProcessors submitTime beginTime termTime sigValue chkpntPeriod restartPid
        # userName rLimits[11]
        times = [text for text in row[_SUBMIT : _BEGIN + 1] if text.isdecimal()]
        limit = (
            row[_RUN_LIMIT]
            if len(row) > _RUN_LIMIT and row[_RUN_LIMIT].isdecimal()
            else "0"
        )
        if len(row) > 3:
            known_ns = (
                max([int(text) for text in times if len(text) < 11] or [0]) * SECOND_NS
            )
            self.submitted[row[3]] = {
                "known": known_ns or None,
                "limit": int(limit[:9]) * SECOND_NS or None,
            }
        raise LeftOut(
            "records of other types: they say nothing of when nodes are taken or given back"
        )

    def _started(self, row: Sequence[str], event_ns: int) -> Row:
        # version time jobId jStatus jobPid jobPGid hostFactor numExHosts execHosts
        # queuePreCmd queuePostCmd jFlags userGroup idx
        after = 9 + _number(row, 8, "numExHosts")
        hosts = _HOST.findall(" ".join(row[9:after]))
        if len(hosts) != after - 9:
            raise Unusable(
                "execHosts are not as many hosts as numExHosts says",
                f"field 9: {row[8]}",
            )
        if not hosts:
            raise Unusable("a job starts on no host", f"job {row[3][:40]}")
        known = self.submitted.get(row[3], {})
        nodes = dict.fromkeys([host for _, host in hosts])
        job = self._job(row, after + 4)
        return {"kind": "began", "id": job, "hosts": nodes, "start": event_ns, **known}

    def _changed(self, row: Sequence[str], event_ns: int) -> Row:
        # version time jobId jStatus reason subreasons cpuTime endTime ru [lsfRusage] exitStatus idx
        status, usage = _number(row, 4, "jStatus"), _number(row, 9, "ru")
        job = self._job(row, 11 + (_RUSAGE_FIELDS if usage else 0))
        why = "record type JOB_STATUS: a change that neither takes nodes nor gives them back"
        if status & _ENDED and not status & _POST:
            event_ns = event_ns if row[8] == "0" else _time(row[8], "endTime")
            why = "a job ended that had not started in these logs"
        elif not status & _QUEUED:
            raise LeftOut(why)
        return {"kind": "ended", "id": job, "end": event_ns, "state": why}

    def _requeued(self, row: Sequence[str], event_ns: int) -> Row:
        # version time jobId idx
        why = "a job was requeued that was not running"
        return {"kind": "ended", "id": self._job(row, 4), "end": event_ns, "state": why}

    def _job(self, row: Sequence[str], index: int) -> str:
        """The id of a job, with its place in an array of jobs."""
        return f"{_number(row, 3, 'jobId')}[{_number(row, index, 'idx')}]"

    def _host(self, row: Sequence[str], event_ns: int) -> Row:
        # version time opCode host userId userName [comment]
        control = _number(row, 3, "opCode")
        if len(row) < 5 or row[4][0] != '"':
            raise Unusable("names no host", "field 5")
        host = _unquoted(row[4])
        if control in _CLOSED:
            why = "a host was closed that was closed already"
            return {
                "kind": "went down",
                "id": host,
                "hosts": [host],
                "start": event_ns,
                "state": why,
            }
        if control != _OPEN:
            raise Unusable("opCode of HOST_CTRL is none of 1 to 5", str(control))
        why = "a host was opened that was not closed in these logs"
        return {"kind": "came back", "id": host, "end": event_ns, "state": why}
