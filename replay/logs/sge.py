"""Grid Engine (Sun, Son of, Univa, Altair): the accounting file, colon-separated, see sge_accounting(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bft.models import InputError
from bft.replay.logs.reading import (
    Clock,
    Foreign,
    JobRan,
    LeftOut,
    Origin,
    Reading,
    Record,
    Unusable,
    each_line,
    host_names,
    in_order,
)

_QUEUE, _HOST, _OWNER, _JOB, _START, _END = 0, 1, 3, 5, 9, 10
_PE, _SLOTS, _TASK = 33, 34, 35
_FIELDS = 13
# Names of parallel environments whose jobs run across hosts.
_ACROSS = re.compile(r"mpi|orte|pvm|lam", re.IGNORECASE)
# Slots of a host where no job tells.
_LARGEST_HOST = 128
# Jobs from which on a file is taken for a summary, and the share of them that names one host.
_ENOUGH, _MOST = 10, 0.9
# Version 8.1 of Univa and its heirs write milliseconds: seconds have 13 digits not before the year 33,658.
_MS_DIGITS = 13


def read(reading: Reading) -> Iterator[Record]:
    """Read an accounting file; see `LogFormat` for errors.

    A parallel job has a record for each of its tasks that Grid Engine starts, with their hosts, unless the parallel
    environment says accounting_summary: then only the master's host is known, which is noted.
    """
    clock = reading.clock
    parallel = _Parallel()

    def record(text: str, line: int) -> Iterator[Record]:
        row = text.split(":")
        if len(row) < _FIELDS:
            if len(text) < 2:
                raise LeftOut("a line of one character, which Grid Engine ignores")
            raise Foreign(
                f"is no record of Grid Engine, with at least {_FIELDS} fields",
                f"{len(row)} fields",
            )
        if not row[_JOB].isdecimal():
            raise Unusable("job_number, field 6, is no number", ascii(row[_JOB][:40]))
        reading.keep(line, partition=row[_QUEUE], user=row[_OWNER])
        if _never(row[_START]) or _never(row[_END]) or row[_HOST].upper() == "UNKNOWN":
            raise LeftOut("a job that never ran: no start, no end or no host")
        start_ns, end_ns = (
            _time(row[_START], "start_time, field 10,", clock),
            _time(row[_END], "end_time, field 11,", clock),
        )
        in_order(start_ns, end_ns)
        hosts = host_names([row[_HOST]], "hostname, field 2,")
        nodes, origin = reading.nodes(hosts), Origin(row[_OWNER], row[_QUEUE])
        yield JobRan(line, text, nodes, start_ns, end_ns, origin=origin)
        if len(row) > _TASK and not reading.apart.filter:
            parallel.add(row, hosts, line)

    yield from each_line(reading, record)
    parallel.judge(reading)


@dataclass(slots=True)
class _Job:
    """A parallel job: its slots, the hosts that its records name, its parallel environment, and the first line."""

    slots: int
    hosts: set[str]
    environment: str
    line: int


class _Parallel:
    """The parallel jobs of one file, and whether records tell all of their hosts."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], _Job] = {}

    def add(self, row: list[str], hosts: tuple[str, ...], line: int) -> None:
        """A record of a job; of one that is not parallel only its slots count."""
        slots = row[_SLOTS]
        if not slots.isdecimal() or len(slots) > 8:
            return
        key = row[_JOB], row[_TASK]
        job = self._jobs.setdefault(key, _Job(0, set(), row[_PE], line))
        job.slots = max(job.slots, int(slots))
        job.hosts.update(hosts)

    def judge(self, reading: Reading) -> None:
        """Refuse a summary, of which each job names one host only; note jobs of one host else.

        Jobs across hosts run in environments of MPI, those on one host in others: jobs of the former with more slots
        than any of the latter had several hosts.

        Raises
        ------
        InputError
            When such jobs are in the file and nearly all of them name one host.
        """
        across, within = [], [1]
        for job in self._jobs.values():
            if _ACROSS.search(job.environment):
                across.append(job)
            else:
                within.append(job.slots)
        largest = max(within) if max(within) > 1 else _LARGEST_HOST
        wide = [job for job in across if job.slots > largest]
        # A job that ran twice names the first host of each run.
        of_one = [job for job in wide if len(job.hosts) == 1]
        if len(wide) >= _ENOUGH and len(of_one) >= _MOST * len(wide):
            why = f"{len(wide):,} jobs of MPI have more slots than any job on one host ({largest}), and name one host"
            if not reading.diagnosis.allow_few:
                raise InputError(
                    f"line {wide[0].line}: {why} each: the parallel environment says accounting_summary TRUE, and "
                    "their other hosts would look idle",
                    file=reading.file,
                    hint="set accounting_summary FALSE, or take snapshots (--recipe snapshots); --allow-few accepts it",
                )
            reading.note(
                f"{why} only: their other hosts look idle", wide[0].line, loud=True
            )
        for (number, _), job in self._jobs.items():
            if (
                job.environment not in ("", "NONE")
                and job.slots > 1
                and len(job.hosts) == 1
            ):
                why = "a parallel job names one host only: if it ran on several (accounting_summary, or tasks that "
                why += "Grid Engine did not start), the others look idle"
                reading.note(why, job.line, f"job {number}, {job.slots} slots")


def _never(text: str) -> bool:
    return text in ("", "0", "-/-")


def _time(text: str, what: str, clock: Clock) -> int:
    if len(text) == _MS_DIGITS and text.isdecimal():
        text = f"{text[:-3]}.{text[-3:]}"
    time_ns = clock.epoch(text)
    if time_ns is None:
        raise Unusable(f"{what} is no time since 1970", ascii(text[:40]))
    return time_ns
