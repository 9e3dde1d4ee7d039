"""Grid Engine (Sun, Son of, Univa, Altair): the accounting file, colon-separated, see sge_accounting(5)."""

from __future__ import annotations

from collections.abc import Iterator

from bft.replay.logs.reading import (
    Clock,
    Foreign,
    JobRan,
    LeftOut,
    Reading,
    Record,
    Unusable,
    each_line,
    host_names,
    in_order,
)

_QUEUE, _HOST, _JOB, _SUBMIT, _START, _END, _PE, _SLOTS, _TASK = (
    0,
    1,
    5,
    8,
    9,
    10,
    33,
    34,
    35,
)
_FIELDS = 13
# Version 8.1 of Univa and its heirs write milliseconds: seconds have 13 digits not before the year 33,658.
_MS_DIGITS = 13


def read(reading: Reading) -> Iterator[Record]:
    """Read an accounting file; see `LogFormat` for errors.

    A parallel job has a record for each of its tasks, with their hosts, unless the parallel environment says
    accounting_summary: then only the master's host is known, which is noted.
    """
    clock = reading.clock
    # Hosts of parallel jobs so far: how many slots they have, on how many hosts, and the line.
    parallel: dict[tuple[str, str], tuple[int, set[str], int]] = {}

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
        reading.keep(line, partition=row[_QUEUE])
        if _never(row[_START]) or _never(row[_END]) or row[_HOST].upper() == "UNKNOWN":
            raise LeftOut("a job that never ran: no start, no end or no host")
        start_ns, end_ns = (
            _time(row[_START], "start_time, field 10,", clock),
            _time(row[_END], "end_time, field 11,", clock),
        )
        in_order(start_ns, end_ns)
        hosts = host_names([row[_HOST]], "hostname, field 2,")
        yield JobRan(line, text, reading.nodes(hosts), start_ns, end_ns)
        if (
            len(row) > _TASK
            and row[_PE] not in ("", "NONE")
            and row[_SLOTS].isdecimal()
            and len(row[_SLOTS]) < 9
        ):
            slots, known, first = parallel.setdefault(
                (row[_JOB], row[_TASK]), (0, set(), line)
            )
            known.update(hosts)
            parallel[row[_JOB], row[_TASK]] = max(slots, int(row[_SLOTS])), known, first

    yield from each_line(reading, record)
    for (job, _), (slots, hosts, line) in parallel.items():
        if slots > 1 and len(hosts) == 1:
            why = "a parallel job names one host only: if it ran on several (accounting_summary), the others look idle"
            reading.note(why, line, f"job {job}, {slots} slots")


def _never(text: str) -> bool:
    return text in ("", "0", "-/-")


def _time(text: str, what: str, clock: Clock) -> int:
    if len(text) == _MS_DIGITS and text.isdecimal():
        text = f"{text[:-3]}.{text[-3:]}"
    time_ns = clock.epoch(text)
    if time_ns is None:
        raise Unusable(f"{what} is no time since 1970", ascii(text[:40]))
    return time_ns
