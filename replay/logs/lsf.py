"""LSF: lsb.acct, a record a finished job.

Fields are separated by blanks, strings are quoted and double the quotes in them; the order of fields is that of the
LSF configuration reference, lsb.acct(5). The tail grows with the version and is not read, but for one case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from bft.replay.logs.reading import Reading
from bft.replay.logs.records import Foreign, LeftOut, Unusable, each_record, host_names, in_order
from bft.replay.logs.times import Clock
from bft.replay.logs.units import Unit
from bft.replay.trace.node_trace import SECOND_NS

_FIELD = re.compile(r'"[^"]*(?:""[^"]*)*"|[^\s"]+')
_REPEATED = re.compile(r"\d+\*")
_GPUS = re.compile(r"\bngpus_physical=(\d{1,6}(?:\.\d{1,6})?)")
_SLOTS = re.compile(r"(?:(\d{1,6})\*)?(.+)", re.DOTALL)
_FLOAT = re.compile(r"\d+\.\d+", re.ASCII)
_EVENT_TIME, _JOB, _START, _ASKED = 2, 3, 10, 22
# From jStatus on, in fields: to the number of -R extensions; from the end of host usages to runTime.
_TO_EXTENSIONS, _TO_RUN_TIME = 53, 13
_OTHERS: Final = {
    '"EVENT_ADRSV_FINISH"': "record type EVENT_ADRSV_FINISH: reservations of LSF are not read",
    '"JOB_RESIZE"': "record type JOB_RESIZE: resized jobs count as on the nodes of their end from their start on",
}


def read(reading: Reading) -> None:
    """Read lsb.acct; see `LogFormat` for errors."""
    file, into, diagnosis, clock = reading.file, reading.into, reading.diagnosis, reading.clock

    def record(text: str, line: int) -> None:
        row = fields(text)
        if row[0] != '"JOB_FINISH"':
            if row[0] in _OTHERS:
                raise LeftOut(_OTHERS[row[0]])
            raise Foreign("is no record of lsb.acct, such as JOB_FINISH", ascii(row[0][:40]))
        asked, index = _asked(row)
        job = f"job {row[_JOB][:40]}"
        if asked and index + 1 < len(row) and _FLOAT.fullmatch(row[index + 1]):
            diagnosis.note("numExHosts is missing: the hosts of askedHosts count as execHosts", file, line, job)
            hosts = asked
        else:
            hosts, index = hosts_at(row, index)
        if not hosts:
            raise LeftOut("a job that never started")
        end_ns = time_at(row, _EVENT_TIME, "event time", clock)
        lost = row[_START] == "0"
        start_ns = end_ns - _run_time_ns(row, index) if lost else time_at(row, _START, "startTime", clock)
        in_order(start_ns, end_ns)
        if any("@" in host for host in hosts):
            diagnosis.note("hosts of another cluster (host@cluster) count as nodes of their own", file, line, job)
        nodes = into.indices(hosts)
        log = into.units
        held = None if log is None else _held(row, index, hosts, log.unit, log.sizes(nodes))
        if log is not None and held is not None and not any(held):
            diagnosis.note(f"a job without {log.unit.plural} leaves those of its nodes idle", file, line)
        into.job(text, nodes, start_ns, end_ns, file, line, held=held)

    each_record(reading, record)


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
        raise Unusable(f"{what} is no whole number", f"field {index + 1}: {text[:40]!a}")
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
        raise Unusable(f"{what} is no time in seconds since 1970", f"field {index + 1}: {row[index]}")
    return time_ns


def hosts_at(row: list[str], index: int) -> tuple[tuple[str, ...], int]:
    """The hosts whose number is at `index`, each once, and where the next field is.

    A host is repeated for each of its slots, or written once as 16*host (SHORT_EVENTFILE, LSB_SHORT_HOSTLIST).

    Raises
    ------
    Unusable
        When they are not there.
    """
    count = number_at(row, index, "numExHosts")
    hosts = _texts(row, index + 1, count)
    if hosts is None:
        raise Unusable("execHosts are not as many hosts as numExHosts says", f"field {index + 1}: {count}")
    return host_names((_REPEATED.sub("", host, count=1) for host in hosts), "execHosts"), index + 1 + count


def _asked(row: list[str]) -> tuple[tuple[str, ...], int]:
    """The hosts that the user asked for, and where the next field is.

    That is numExHosts, but records are found that lack it: then it is jStatus, and hostFactor, a fraction, follows.
    """
    asked = number_at(row, _ASKED, "numAskedHosts")
    hosts = _texts(row, _ASKED + 1, asked)
    if hosts is None:
        raise Unusable("askedHosts are not as many hosts as numAskedHosts says", f"field {_ASKED + 1}: {asked}")
    return host_names(hosts, "askedHosts"), _ASKED + 1 + asked


def _held(
    row: list[str], index: int, hosts: tuple[str, ...], unit: Unit, sizes: Sequence[int | None]
) -> tuple[int, ...]:
    """What a job held of each host: GPUs by its effective resource requirements, cores by its slots.

    LSF writes rusage[ngpus_physical=4.00] into the requirements of each job with GPUs: so many on each host. `index` is
    that of the field after the hosts.
    """
    if not unit.cores:
        stated = [number for field in row[index:] for number in _GPUS.findall(field)]
        return unit.held([round(float(stated[-1])) if stated else 0] * len(hosts), sizes)
    slots = dict.fromkeys(hosts, 0)
    for field in reversed(row[:index]):
        repeated = _SLOTS.fullmatch(unquoted(field))
        if repeated is None or repeated[2] not in slots:  # the number of hosts, before them
            break
        slots[repeated[2]] += int(repeated[1] or 1)
    return unit.held(list(slots.values()), sizes)


def _texts(row: list[str], index: int, count: int) -> list[str] | None:
    """So many quoted fields, each text once; None where there are fewer."""
    hosts = row[index : index + max(0, count)]
    if len(hosts) != count or any(field[0] != '"' for field in hosts):
        return None
    return [unquoted(field) for field in dict.fromkeys(hosts)]


def _run_time_ns(row: list[str], index: int) -> int:
    """RunTime, for a job whose start LSF has lost (startTime 0) though it names hosts; `index` is where jStatus is."""
    index += _TO_EXTENSIONS
    index += 1 + 2 * max(0, number_at(row, index, "the number of -R extensions"))
    index += 1 + 5 * max(0, number_at(row, index, "numHostRusage"))
    return max(0, number_at(row, index + _TO_RUN_TIME, "runTime of a job with startTime 0")) * SECOND_NS
