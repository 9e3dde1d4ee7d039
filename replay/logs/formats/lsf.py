"""LSF: lsb.acct, a record a finished job, and lsb.events, what happens to jobs and hosts as it happens.

Fields are separated by blanks, strings are quoted and double the quotes in them; the order of fields is that of the
LSF configuration reference, lsb.acct(5) and lsb.events(5). The tail of a record of lsb.acct grows with the version and
is not read, but for a few fields. Unlike lsb.acct, lsb.events knows jobs that are still running, every run of a
requeued job, and closed hosts.

A resized job of lsb.acct is on its last nodes from its start. lsb.events does not say when hosts went down: LSF does
not log that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from zlib import crc32

from bft.replay.logs.formats.entries import NOT_BEGUN, OTHER_RECORDS
from bft.replay.logs.records import LeftOut, Log, Row, each_line
from bft.replay.logs.times import MOST_EPOCH_S
from bft.replay.logs.units import Stated
from bft.replay.trace.node_trace import SECOND_NS

_FIELD = re.compile(r'"[^"]*+(?:""[^"]*+)*+"|[^\s"]+')
_TYPE = re.compile(r'"[A-Z][A-Z_0-9]+"')
_FRACTION = re.compile(r"\d+\.\d+", re.ASCII)
# LSF writes rusage[ngpus_physical=4.00] into the requirements of each job with GPUs: so many on each host.
_GPUS = re.compile(r"\bngpus_physical=(\d{1,6}(?:\.\d{1,6})?)")
# Of JOB_FINISH: the last field at a place that is the same in all records. Hosts, and what follows them, come behind.
_NUM_ASKED = 22
# From jStatus on: to the number of -R extensions; from the end of host usages to runTime.
_TO_EXTENSIONS, _TO_RUN_TIME = 53, 13
_OTHERS = {
    '"EVENT_ADRSV_FINISH"': "record type EVENT_ADRSV_FINISH: reservations of LSF are not read",
    '"JOB_RESIZE"': "record type JOB_RESIZE: resized jobs count as on the nodes of their end from their start on",
}


def read(log: Log) -> Iterator[Row]:
    """Read lsb.acct; see `LogFormat` for errors."""
    log.words = {"hosts": "execHosts"}
    expected = "whole record of lsb.acct, such as JOB_FINISH"
    yield from each_line(log, partial(_finished, log), expected=expected)


def _finished(log: Log, text: str, line: int) -> Iterator[Row]:
    """Yield the run of a job that a record states."""
    fields = _fields(text)
    if fields[0] in _OTHERS:
        raise LeftOut(_OTHERS[fields[0]])
    if fields[0] != '"JOB_FINISH"':
        raise ValueError(fields[0])
    job = fields[3][:40]
    notes = []
    hosts = _hosts(fields, _NUM_ASKED)
    after = _NUM_ASKED + 1 + len(hosts)
    if hosts and _FRACTION.fullmatch(fields[after + 1]):
        notes.append(
            "numExHosts is missing: the hosts of askedHosts count as execHosts"
        )
    else:
        hosts = _hosts(fields, after)
        after += 1 + len(hosts)
    if any("@" in host for host in hosts):
        notes.append(
            "hosts of another cluster (host@cluster) count as nodes of their own"
        )
    end_ns, submit_ns, begin_ns, deadline_ns, start_ns = (
        _ns(fields[place]) for place in (2, 7, 8, 9, 10)
    )
    row: dict[str, Any] = {
        # Records that differ in anything are not copies of one another.
        "id": f"{job} {crc32(text.encode('utf-8', 'surrogateescape')):08x}",
        "user": fields[11].strip('"'),
        "partition": fields[12].strip('"'),
        "known": max(submit_ns, begin_ns) or None,
        "end": end_ns,
    }
    if hosts:  # else it never started
        if not start_ns:  # which LSF loses at times
            start_ns = end_ns - _run_time_ns(fields, after)
        row |= {
            "hosts": _names(hosts),
            "start": start_ns,
            "limit": max(deadline_ns - start_ns, 0) or None,
            "notes": [(note, f"job {job}") for note in notes],
        }
        if log.settings.unit is not None:
            row["units"] = _held(
                hosts, fields[after:], cores=log.settings.unit.cores > 0
            )
    yield row


def _held(hosts: Sequence[str], rest: Sequence[str], *, cores: bool) -> Stated:
    """Return what a job held of its hosts: cores by its slots, GPUs by its resource requirements."""
    if not cores:
        stated = _GPUS.findall(" ".join(rest))
        return Stated(gpus=round(float(stated[-1])) if stated else 0, each=True)
    slots: Counter[str] = Counter()
    for times, _, host in (each.rpartition("*") for each in hosts):
        slots[host] += int(times or 1)
    return Stated(named=tuple(slots.items()))


def _run_time_ns(fields: Sequence[str], after: int) -> int:
    """RunTime, behind lists of -R extensions and of host usages, whose numbers come before them."""
    place = after + _TO_EXTENSIONS
    place += 1 + 2 * max(0, int(fields[place]))
    place += 1 + 5 * max(0, int(fields[place]))
    return max(0, int(fields[place + _TO_RUN_TIME])) * SECOND_NS


# --- fields of both -------------------------------------------------------------------------------------------------

# What is no number, or not there, raises in these what `each_line` takes for the sign of a record that is damaged.


def _fields(text: str) -> list[str]:
    """The fields of a record; strings keep their quotes."""
    if text.count('"') % 2:
        raise ValueError("a quote is not closed")
    return _FIELD.findall(text)


def _hosts(fields: Sequence[str], place: int) -> list[str]:
    """Return the hosts whose number is at a place: one is repeated for each slot, or written once as 16*host."""
    count = int(fields[place])
    hosts = [
        field[1:-1]
        for field in fields[place + 1 : place + 1 + count]
        if field[0] == '"'
    ]
    if len(hosts) != count:
        raise ValueError(f"{len(hosts)} hosts, not {count}")
    return hosts


def _names(hosts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([host.rpartition("*")[2] for host in hosts]))


def _ns(field: str) -> int:
    """UTC nanoseconds of seconds since 1970; 0 is no time."""
    if not 0 <= int(field) < MOST_EPOCH_S:
        raise ValueError(field)
    return int(field) * SECOND_NS


# --- lsb.events -----------------------------------------------------------------------------------------------------

# Of jStatus, lsbatch.h: PEND, PSUSP: back in the queue. EXIT, DONE: ended. PDONE, PERR: post-processing is over.
_QUEUED, _ENDED, _POST = 0x1 | 0x2, 0x20 | 0x40, 0x80 | 0x100
_RUSAGE_FIELDS, _RUN_LIMIT = 19, 23
# Of HOST_CTRL, lsbatch.h: open; close, reboot, shutdown, close remotely.
_OPEN, _CLOSED = "1", ("2", "3", "4", "5")


def read_events(log: Log) -> Iterator[Row]:
    """Read lsb.events or lsb.events.N; see `LogFormat` for errors. Several files: in order of time."""
    # Since when jobs could run, and their limits.
    submitted: dict[str, Row] = {}

    def record(text: str, line: int) -> Iterator[Row]:
        fields = _fields(text)
        if fields[0] == '"JOB_FINISH"' or not _TYPE.fullmatch(fields[0]):
            raise ValueError(fields[0])
        event_ns = _ns(fields[2])
        log.shown_until = max(log.shown_until or 0, event_ns)
        yield _happened(fields, event_ns, submitted)

    yield from each_line(
        log, record, expected="whole record of lsb.events, such as JOB_START"
    )


def _happened(fields: Sequence[str], event_ns: int, submitted: dict[str, Row]) -> Row:
    """Return what a record says of a job or a host; of a new job `submitted` keeps what it says."""
    kind = fields[0].strip('"')
    alone = f"record type {kind}{NOT_BEGUN}"
    match kind:
        case "JOB_NEW" if len(fields) > _RUN_LIMIT:
            # version time jobId userId options numProcessors submitTime beginTime termTime sigValue chkpntPeriod
            # restartPid userName rLimits[11]
            limit_ns = max(0, int(fields[_RUN_LIMIT])) * SECOND_NS
            known_ns = max(_ns(fields[7]), _ns(fields[8]))
            submitted[fields[3]] = {
                "known": known_ns or None,
                "limit": limit_ns or None,
            }
        case "JOB_START":
            # version time jobId jStatus jobPid jobPGid hostFactor numExHosts execHosts queuePreCmd queuePostCmd jFlags
            # userGroup idx
            hosts = _hosts(fields, 8)
            row = {
                "kind": "began",
                "id": _job(fields, 13 + len(hosts)),
                "hosts": _names(hosts),
                "start": event_ns,
            }
            return {**row, **submitted.get(fields[3], {})}
        case "JOB_STATUS":
            # version time jobId jStatus reason subreasons cpuTime endTime ru [lsfRusage] exitStatus idx
            status, usage = int(fields[4]), int(fields[9])
            job = _job(fields, 11 + (_RUSAGE_FIELDS if usage else 0))
            if status & _ENDED and not status & _POST:
                return {
                    "kind": "ended",
                    "id": job,
                    "end": _ns(fields[8]) or event_ns,
                    "state": alone,
                }
            if status & _QUEUED:
                return {"kind": "ended", "id": job, "end": event_ns, "state": alone}
        case "JOB_REQUEUE":
            # version time jobId idx
            return {
                "kind": "ended",
                "id": _job(fields, 4),
                "end": event_ns,
                "state": alone,
            }
        case "HOST_CTRL":
            # version time opCode host userId userName [comment]
            host = fields[4].strip('"')
            if fields[3] == _OPEN:
                return {
                    "kind": "came back",
                    "id": host,
                    "end": event_ns,
                    "state": alone,
                }
            if fields[3] not in _CLOSED:
                raise ValueError(fields[3])
            why = "a host was closed that was closed already"
            return {
                "kind": "went down",
                "id": host,
                "hosts": host,
                "start": event_ns,
                "state": why,
            }
    raise LeftOut(OTHER_RECORDS)


def _job(fields: Sequence[str], place: int) -> str:
    """The id of a job, with its place in an array of jobs."""
    return f"{int(fields[3])}[{int(fields[place])}]"
