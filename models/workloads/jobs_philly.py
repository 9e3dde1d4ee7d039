"""Job logs of Microsoft's Philly clusters: `--jobs-format philly` (DESIGN §4).

Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019; the file
`cluster_job_log` of its published traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bft.models.bounded import read_json
from bft.models.errors import InputError
from bft.models.jobs import Job, JobTable
from bft.models.workloads.rigid_jobs import SECOND_NS, RigidTable, rigid_job

# Times in the log name no zone; those of the same traces' utilisation say PST and PDT.
ZONE: Final = "America/Los_Angeles"
_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_UNKNOWN: Final = (None, "", "None")


def read_philly_jobs(path: str | Path, *, zone: str = ZONE) -> JobTable:
    """Read a job log, a JSON array, gzip-compressed or not: one rigid job an entry, in the order of the file.

    | key            | becomes                                                                                    |
    |----------------|--------------------------------------------------------------------------------------------|
    | jobid          | name                                                                                       |
    | submitted_time | Tsub                                                                                       |
    | attempts       | Jmin = Jmax = Jreq: the most GPUs of an attempt; Pmax: seconds of all attempts, at rate 1  |
    | user, vc       | user, vc                                                                                   |
    | status         | in `Job.extra`, with the number of attempts                                                |

    An attempt without GPUs, start or end does not count: those that ran when the log was taken have no end. Jobs of
    which no attempt counts are left out, and the table's notes count them.

    Parameters
    ----------
    path
        The log.
    zone
        Of its times.

    Raises
    ------
    InputError
        Naming file, entry (row, from 1), key (column) and job; also when no job is left.
    """
    try:
        clock = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InputError(f"no time zone {zone!r} is known here", hint="pip install tzdata") from error
    entries = read_json(path)
    if not isinstance(entries, list):
        raise InputError(f"expected a JSON array of jobs, found {type(entries).__name__}", file=path)
    found = RigidTable(path)
    for row, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise InputError(f"expected a JSON object, found {type(entry).__name__}", file=path, row=row)
        job = _Entry(entry, row, str(path), clock).job()
        if job is None:
            found.leave_out("without an attempt that has GPUs, start and end")
        else:
            found.add(job, row)
    return found.table()


class _Entry:
    """One entry on its way to a job."""

    def __init__(self, entry: Mapping[str, Any], row: int, file: str, clock: tzinfo) -> None:
        self.entry, self.row, self.file, self.clock = entry, row, file, clock
        self.name = self.text("jobid")
        if not self.name:
            raise self.wrong("jobid", "the job's name is missing")

    def job(self) -> Job | None:
        """The job, None when it never ran."""
        submitted_ns = self.instant(self.entry.get("submitted_time"), "submitted_time")
        if submitted_ns is None:
            raise self.wrong("submitted_time", "expected a date and time such as 2017-10-07 01:11:39, not nothing")
        attempts = self.entry.get("attempts")
        if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
            raise self.wrong("attempts", "expected a list of objects")
        units, seconds, counted = 0, 0.0, 0
        for attempt in attempts:
            gpus = self.gpus(attempt)
            start_ns, end_ns = (self.instant(attempt.get(key), key) for key in ("start_time", "end_time"))
            if not gpus or start_ns is None or end_ns is None or end_ns <= start_ns:
                continue
            units, seconds, counted = max(units, gpus), seconds + (end_ns - start_ns) / SECOND_NS, counted + 1
        if not counted:
            return None
        return rigid_job(
            self.name,
            submitted_ns,
            units,
            seconds,
            user=self.text("user"),
            vc=self.text("vc"),
            extra={"status": self.text("status"), "attempts": counted},
        )

    def gpus(self, attempt: Mapping[str, Any]) -> int:
        detail = attempt.get("detail") or []
        try:
            return sum(len(set(node["gpus"])) for node in detail)
        except (TypeError, KeyError) as error:
            raise self.wrong("detail", "expected a list of objects with ip and a list gpus") from error

    def instant(self, value: object, key: str) -> int | None:
        """UTC nanoseconds, None where nothing is known."""
        if value in _UNKNOWN:
            return None
        try:
            stamp = datetime.strptime(str(value), _FORMAT).replace(tzinfo=self.clock)
        except ValueError as error:
            raise self.wrong(key, f"expected a date and time such as 2017-10-07 01:11:39, not {value!r}") from error
        return round(stamp.timestamp()) * SECOND_NS

    def text(self, key: str) -> str:
        value = self.entry.get(key)
        return "" if value in _UNKNOWN else str(value)

    def wrong(self, column: str, what: str) -> InputError:
        return InputError(what, file=self.file, row=self.row, column=column, job=getattr(self, "name", "") or None)
