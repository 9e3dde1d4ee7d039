"""LSF: lsb.acct, a record a finished job, and lsb.events, what happens to jobs and hosts as it happens.

Fields are separated by blanks, strings are quoted and double the quotes in them; the order of fields is that of the
LSF configuration reference, lsb.acct(5) and lsb.events(5). The tail of a record of lsb.acct grows with the version and
is not read, but for one case. Unlike lsb.acct, lsb.events knows jobs that are still running, every run of a requeued
job, and closed hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from bft.replay.logs.reading import (
    Clock,
    FileEnds,
    Foreign,
    JobBegan,
    JobEnded,
    JobRan,
    LeftOut,
    Origin,
    OutageBegan,
    OutageEnded,
    Reading,
    Record,
    Unusable,
    each_line,
    host_names,
    in_order,
)
from bft.replay.logs.units import Unit
from bft.replay.trace.node_trace import SECOND_NS

_FIELD = re.compile(r'"[^"]*(?:""[^"]*)*"|[^\s"]+')
_REPEATED = re.compile(r"\d+\*")
_GPUS = re.compile(r"\bngpus_physical=(\d{1,6}(?:\.\d{1,6})?)")
_SLOTS = re.compile(r"(?:(\d{1,6})\*)?(.+)", re.DOTALL)
_FLOAT = re.compile(r"\d+\.\d+", re.ASCII)
_EVENT_TIME, _JOB, _START, _USER, _QUEUE, _ASKED = 2, 3, 10, 11, 12, 22
# From jStatus on, in fields: to the number of -R extensions; from the end of host usages to runTime.
_TO_EXTENSIONS, _TO_RUN_TIME = 53, 13
_OTHERS: Final = {
    '"EVENT_ADRSV_FINISH"': "record type EVENT_ADRSV_FINISH: reservations of LSF are not read",
    '"JOB_RESIZE"': "record type JOB_RESIZE: resized jobs count as on the nodes of their end from their start on",
}


def read(reading: Reading) -> Iterator[Record]:
    """Read lsb.acct; see `LogFormat` for errors."""
    clock = reading.clock

    def record(text: str, line: int) -> Iterator[Record]:
        row = fields(text)
        if row[0] != '"JOB_FINISH"':
            if row[0] in _OTHERS:
                raise LeftOut(_OTHERS[row[0]])
            raise Foreign(
                "is no record of lsb.acct, such as JOB_FINISH", ascii(row[0][:40])
            )
        user, queue = (
            unquoted(row[place]) if place < len(row) else ""
            for place in (_USER, _QUEUE)
        )
        reading.keep(line, partition=queue, user=user)
        asked, index = _asked(row)
        job = f"job {row[_JOB][:40]}"
        if asked and index + 1 < len(row) and _FLOAT.fullmatch(row[index + 1]):
            reading.note(
                "numExHosts is missing: the hosts of askedHosts count as execHosts",
                line,
                job,
            )
            hosts = asked
        else:
            hosts, index = hosts_at(row, index)
        if not hosts:
            raise LeftOut("a job that never started")
        end_ns = time_at(row, _EVENT_TIME, "event time", clock)
        lost = row[_START] == "0"
        start_ns = (
            end_ns - _run_time_ns(row, index)
            if lost
            else time_at(row, _START, "startTime", clock)
        )
        in_order(start_ns, end_ns)
        if any("@" in host for host in hosts):
            reading.note(
                "hosts of another cluster (host@cluster) count as nodes of their own",
                line,
                job,
            )
        nodes = reading.nodes(hosts)
        log = reading.units
        held = (
            None
            if log is None
            else _held(row, index, hosts, log.unit, log.sizes(nodes))
        )
        if log is not None and held is not None and not any(held):
            reading.note_no_units(line, log)
        origin = Origin(user, queue)
        yield JobRan(line, text, nodes, start_ns, end_ns, held, origin=origin)

    yield from each_line(reading, record)


def fields(text: str) -> list[str]:
    """Fields of a record of lsb.acct or lsb.events, strings in their quotes; at least one.

    Raises
    ------
    Unusable
        When a quote is not closed.

    Examples
    --------
    >>> fields('"JOB_FINISH" "10.1" 1612915200')
    ['"JOB_FINISH"', '"10.1"', '1612915200']
    """
    if text.count('"') % 2:
        raise Unusable("a quote is not closed", ascii(text[-40:]))
    return _FIELD.findall(text)


def unquoted(field: str) -> str:
    """The text of a field."""
    return field[1:-1].replace('""', '"') if field[0] == '"' else field


def number_at(row: list[str], index: int, what: str) -> int:
    """A whole number that is not quoted.

    Raises
    ------
    Unusable
        When there is none.
    """
    if index >= len(row):
        raise Unusable(f"ends before {what}", f"field {index + 1} of {len(row)}")
    text = row[index]
    if not text.removeprefix("-").isdecimal() or len(text) > 18:
        raise Unusable(
            f"{what} is no whole number", f"field {index + 1}: {text[:40]!a}"
        )
    return int(text)


def time_at(row: list[str], index: int, what: str, clock: Clock) -> int:
    """A time, UTC nanoseconds.

    Raises
    ------
    Unusable
        When there is none.
    """
    number_at(row, index, what)
    time_ns = clock.epoch(row[index])
    if time_ns is None:
        raise Unusable(
            f"{what} is no time in seconds since 1970",
            f"field {index + 1}: {row[index]}",
        )
    return time_ns


def hosts_at(row: list[str], index: int) -> tuple[tuple[str, ...], int]:
    """The hosts whose number is at `index`, each once, and where the next field is.

    A host is repeated for each of its slots, or written once as 16*host (SHORT_EVENTFILE, LSB_SHORT_HOSTLIST).

    Raises
    ------
    Unusable
        When they are not there.
    """
    texts, after = _counted(row, index, "numExHosts", "execHosts")
    hosts = (_REPEATED.sub("", text, count=1) for text in texts)
    return host_names(hosts, "execHosts"), after


def _asked(row: list[str]) -> tuple[tuple[str, ...], int]:
    """The hosts that the user asked for, and where the next field is.

    That is numExHosts, but records are found that lack it: then it is jStatus, and hostFactor, a fraction, follows.
    """
    hosts, after = _counted(row, _ASKED, "numAskedHosts", "askedHosts")
    return host_names(hosts, "askedHosts"), after


def _held(
    row: list[str],
    index: int,
    hosts: tuple[str, ...],
    unit: Unit,
    sizes: Sequence[int | None],
) -> tuple[int, ...]:
    """Return the units that a job held of each host: GPUs by its resource requirements, cores by its slots.

    LSF writes rusage[ngpus_physical=4.00] into the requirements of each job with GPUs: so many on each host. `index` is
    that of the field after the hosts.
    """
    if not unit.cores:
        stated = [number for field in row[index:] for number in _GPUS.findall(field)]
        return unit.held(
            [round(float(stated[-1])) if stated else 0] * len(hosts), sizes
        )
    slots = dict.fromkeys(hosts, 0)
    for field in reversed(row[:index]):
        repeated = _SLOTS.fullmatch(unquoted(field))
        if (
            repeated is None or repeated[2] not in slots
        ):  # the number of hosts, before them
            break
        slots[repeated[2]] += int(repeated[1] or 1)
    return unit.held(list(slots.values()), sizes)


def _counted(
    row: list[str], index: int, number: str, what: str
) -> tuple[list[str], int]:
    """Return the quoted fields whose number is at `index`, each text once, and where the next field is."""
    count = number_at(row, index, number)
    after = index + 1 + count
    quoted = row[index + 1 : max(after, index + 1)]
    if len(quoted) != count or any(field[0] != '"' for field in quoted):
        why = f"{what} are not as many hosts as {number} says"
        raise Unusable(why, f"field {index + 1}: {count}")
    return [unquoted(field) for field in dict.fromkeys(quoted)], after


def _run_time_ns(row: list[str], index: int) -> int:
    """RunTime, for a job whose start LSF has lost (startTime 0) though it names hosts; `index` is where jStatus is."""
    index += _TO_EXTENSIONS
    index += 1 + 2 * max(0, number_at(row, index, "the number of -R extensions"))
    index += 1 + 5 * max(0, number_at(row, index, "numHostRusage"))
    return (
        max(
            0, number_at(row, index + _TO_RUN_TIME, "runTime of a job with startTime 0")
        )
        * SECOND_NS
    )


# Of jStatus, lsbatch.h: PEND, PSUSP: back in the queue. EXIT, DONE: ended. PDONE, PERR: post-processing is over.
_QUEUED, _ENDED, _POST = 0x1 | 0x2, 0x20 | 0x40, 0x80 | 0x100
# Of HOST_CTRL, lsbatch.h: open, close, reboot, shutdown, close remotely.
_OPEN, _CLOSED = 1, frozenset({2, 3, 4, 5})
_RUSAGE_FIELDS = 19
_KIND = re.compile(r'"[A-Z][A-Z_0-9]+"')


def read_events(reading: Reading) -> Iterator[Record]:
    """Read lsb.events or lsb.events.N; see `LogFormat` for errors. Several files: in order of time."""
    events = _Events(reading)
    yield from each_line(reading, events.record)
    yield FileEnds(events.now_ns)


class _Events:
    """One file of records."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.clock = reading, reading.clock
        self.now_ns = 0
        self.handlers = {
            '"JOB_START"': self._started,
            '"JOB_STATUS"': self._changed,
            '"JOB_REQUEUE"': self._requeued,
            '"HOST_CTRL"': self._host,
        }

    def record(self, text: str, line: int) -> Iterator[Record]:
        """Yield what one row says."""
        row = fields(text)
        kind = row[0]
        handler = self.handlers.get(kind)
        if handler is None and (kind == '"JOB_FINISH"' or not _KIND.fullmatch(kind)):
            raise Foreign(
                "is no record of lsb.events, such as JOB_START", ascii(kind[:40])
            )
        event_ns = time_at(row, _EVENT_TIME, "event time", self.clock)
        self.now_ns = max(self.now_ns, event_ns)
        if handler is None:
            raise LeftOut(
                "records of other types: they say nothing of when nodes are taken or given back"
            )
        yield handler(row, event_ns, line)

    def _started(self, row: list[str], event_ns: int, line: int) -> Record:
        # version time jobId jStatus jobPid jobPGid hostFactor numExHosts execHosts
        # queuePreCmd queuePostCmd jFlags userGroup idx
        hosts, index = hosts_at(row, 8)
        if not hosts:
            raise Unusable("a job starts on no host", f"job {row[_JOB][:40]}")
        job = number_at(row, _JOB, "jobId"), number_at(row, index + 4, "idx")
        name = f"job {row[_JOB][:40]}"
        return JobBegan(line, job, hosts, event_ns, name=name)

    def _changed(self, row: list[str], event_ns: int, line: int) -> Record:
        # version time jobId jStatus reason subreasons cpuTime endTime ru [lsfRusage] exitStatus idx
        status = number_at(row, 4, "jStatus")
        ru = number_at(row, 9, "ru")
        job = (
            number_at(row, _JOB, "jobId"),
            number_at(row, 11 + (_RUSAGE_FIELDS if ru else 0), "idx"),
        )
        if status & _ENDED and not status & _POST:
            end_ns = (
                event_ns if row[8] == "0" else time_at(row, 8, "endTime", self.clock)
            )
            begun = self.reading.begun(job)
            if begun is not None and end_ns < begun.start_ns:
                raise Unusable("ends before it starts", f"job {row[_JOB][:40]}")
            otherwise = "a job ended that had not started in these logs"
            return JobEnded(line, job, end_ns, otherwise)
        otherwise = "record type JOB_STATUS: a change that neither takes nodes nor gives them back"
        if not status & _QUEUED:
            raise LeftOut(otherwise)
        return JobEnded(line, job, event_ns, otherwise)

    def _requeued(self, row: list[str], event_ns: int, line: int) -> Record:
        # version time jobId idx
        job = number_at(row, _JOB, "jobId"), number_at(row, 4, "idx")
        return JobEnded(line, job, event_ns, "a job was requeued that was not running")

    def _host(self, row: list[str], event_ns: int, line: int) -> Record:
        # version time opCode host userId userName [comment]
        control = number_at(row, 3, "opCode")
        if len(row) < 5 or row[4][0] != '"':
            raise Unusable("names no host", "field 5")
        (host,) = host_names([unquoted(row[4])], "host")
        if control in _CLOSED:
            otherwise = "a host was closed that was closed already"
            return OutageBegan(line, host, (host,), event_ns, otherwise)
        if control != _OPEN:
            raise Unusable("opCode of HOST_CTRL is none of 1 to 5", str(control))
        otherwise = "a host was opened that was not closed in these logs"
        return OutageEnded(line, host, event_ns, otherwise)
