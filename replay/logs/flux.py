"""Flux: `flux jobs` as JSON or as a table, and the eventlogs of jobs with their R (RFC 18, 20 and 21 of Flux)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from bft.models import InputError
from bft.replay.logs.reading import (
    MISSHAPEN,
    MISSING,
    Foreign,
    HostListError,
    JobRan,
    LeftOut,
    Origin,
    Reading,
    Record,
    RowUsed,
    Unusable,
    below_header,
    columns_of,
    each_line,
    each_object,
    first_line,
    in_order,
    instant_ns,
    no_time,
)

COMMAND = 'flux jobs -a -A -c 0 --json, or -o "{id}|{nodelist}|{t_run}|{t_inactive}"'
# What flux jobs prints of a time that has not come, beside what other schedulers do.
_NONE = MISSING | {"0.0", "0"}
# Headers of the columns that are read, and the fields of --json that they show.
_COLUMNS = {
    "id": ("jobid", "id"),
    "nodelist": ("nodelist",),
    "t_run": ("t_run",),
    "t_inactive": ("t_inactive", "t_cleanup"),
    "partition": ("queue",),
    "user": ("user", "username"),
    "result": ("result",),
}
# Columns that filters of jobs need.
_FILTERED = {"partition": "the column QUEUE", "user": "the column USER"}
_NEEDED = ("id", "nodelist", "t_run", "t_inactive")


def read(reading: Reading) -> Iterator[Record]:
    """Read one of the three; see `LogFormat` for errors.

    A job has its nodes from the time at which it enters the state RUN until it is INACTIVE, in eventlogs from `alloc`
    to `free`. Without an end it is still running.
    """
    text, reading = first_line(reading)
    first = text.lstrip()
    if first.startswith("{") and ('"timestamp"' in first or '"execution"' in first):
        other = "flux jobs --json, or a table of it with"
        reading.refuse_unstated(
            {name: f"{other} {text}" for name, text in _FILTERED.items()}
        )
        eventlog = _Eventlog(reading)
        yield from each_line(reading, eventlog.record)
        eventlog.ends()
    elif first.startswith("{"):
        expected = "job of flux jobs --json: expected id, nodelist, t_run, t_inactive"
        yield from each_object(
            reading,
            partial(_entry, reading),
            keys=("jobs",),
            expected=expected,
            command=COMMAND,
        )
    else:
        yield from _table(reading)


def _table(reading: Reading) -> Iterator[Record]:
    """`flux jobs -o` with a header, and any character between the columns that is no blank."""
    columns: dict[str, int] = {}
    delimiter, width = "|", 0

    def record(text: str, line: int) -> Iterator[Record]:
        row = [cell.strip() for cell in text.split(delimiter)]
        if len(row) != width:
            raise Unusable(
                "has another number of fields than the header",
                f"{len(row)} instead of {width}",
            )
        stated = {
            name: row[place] if place >= 0 else "" for name, place in columns.items()
        }
        reading.keep(line, partition=stated["partition"], user=stated["user"])
        times = []
        for name in ("t_run", "t_inactive"):
            time_ns = reading.clock.parse(stated[name], reading.file, line)
            if time_ns is None and stated[name] not in _NONE:
                raise Unusable(f"{name} is no time", no_time(stated[name]))
            times.append(time_ns)
        origin = Origin(stated["user"], stated["partition"], stated["result"])
        job, nodes = stated["id"], stated["nodelist"]
        yield _job_ran(reading, job, nodes, times[0], times[1], line, origin)

    def begin(line: str) -> bool:
        nonlocal columns, delimiter, width
        delimiter = reading.settings.delimiter or next(
            (mark for mark in "|;,\t" if mark in line), "|"
        )
        names = [name.strip().lower() for name in line.split(delimiter)]
        columns, width = columns_of(names, _COLUMNS), len(names)
        if min(columns[ours] for ours in _NEEDED) < 0:
            raise InputError(
                f"is no table of flux jobs with the columns JOBID, NODELIST, T_RUN, T_INACTIVE: {line[:80]!a}",
                file=reading.file,
                hint=f"export with {COMMAND}",
            )
        reading.refuse_unstated(
            {name: text for name, text in _FILTERED.items() if columns[name] < 0}
        )
        return True

    yield from each_line(below_header(reading, begin), record)
    if not columns:
        raise InputError(
            "holds no table of flux jobs",
            file=reading.file,
            hint=f"export with {COMMAND}",
        )


def _job_ran(
    reading: Reading,
    job: str,
    nodes: str,
    start_ns: int | None,
    end_ns: int | None,
    line: int,
    origin: Origin | None = None,
) -> JobRan:
    """Return the record of one job."""
    if start_ns is None:
        raise LeftOut("job that never started")
    try:
        indices = reading.lists()(nodes)
    except HostListError as error:
        raise Unusable("nodelist is no host list", str(error)) from error
    if not indices:
        raise Unusable("job ran, but names no nodes", f"job {job[:80]}")
    in_order(start_ns, end_ns)
    key = "flux", job
    return JobRan(line, key, indices, start_ns, end_ns, origin=origin)


def _entry(
    reading: Reading, entry: dict[str, Any], _: str, line: int
) -> Iterator[Record]:
    """Use an object of `flux jobs --json`."""
    end_ns = instant_ns(entry.get("t_inactive")) or instant_ns(entry.get("t_cleanup"))
    start_ns = instant_ns(entry.get("t_run"))
    user, queue, result = (
        str(entry.get(name) or "") for name in ("username", "queue", "result")
    )
    reading.keep(line, partition=queue, user=user)
    job, nodes = str(entry["id"]), str(entry.get("nodelist") or "")
    origin = Origin(user, queue, result)
    yield _job_ran(reading, job, nodes, start_ns, end_ns, line, origin)


class _Eventlog:
    """Events of jobs, an object a line, those of each job from `submit` on and before the line of its R."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self.line = 0

    def record(self, text: str, line: int) -> Iterator[Record]:
        """Use one line."""
        try:
            entry = json.loads(text)
            if "execution" in entry:
                yield self.allocated(entry["execution"], line)
                return
            name, time_ns = entry["name"], instant_ns(entry["timestamp"])
        except InputError:
            raise
        except (ValueError, RecursionError) as error:
            raise Unusable("is not JSON", str(error)[:200]) from error
        except MISSHAPEN as error:
            raise Foreign(
                "is neither an event nor an R of a job", repr(error)[:200]
            ) from error
        match name:
            case "submit":
                self.ends()
                raise LeftOut("event that says nothing of nodes")
            case "alloc":
                self.start_ns, self.line = time_ns, line
            case "free":
                self.end_ns = time_ns
            case _:
                raise LeftOut("event that says nothing of nodes")
        yield RowUsed(line)

    def allocated(self, execution: dict[str, Any], line: int) -> JobRan:
        """Return the job whose events were read last, on its nodes."""
        start_ns = self.start_ns or instant_ns(execution.get("starttime"))
        end_ns, self.start_ns, self.end_ns = self.end_ns, None, None
        nodes = ",".join(execution["nodelist"])
        job = f"{nodes} {start_ns}"
        return _job_ran(self.reading, job, nodes, start_ns, end_ns, line)

    def ends(self) -> None:
        """The events of a job have ended."""
        if self.start_ns is not None:
            why = "a job was given nodes, and its R does not follow its events: its nodes are not known"
            self.reading.note(why, self.line, loud=True)
        self.start_ns = self.end_ns = None
