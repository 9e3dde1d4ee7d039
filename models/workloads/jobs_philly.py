"""Job logs of Microsoft's Philly clusters: `--jobs-format philly` (docs/formats.md).

Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019; the file
`cluster_job_log` of its published traces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from bft.models.cells import SECOND_NS, Row, Rows, shown
from bft.models.errors import InputError
from bft.models.files import read_json
from bft.models.jobs import Job, JobTable
from bft.models.workloads.rigid_jobs import rigid_job, rigid_table

# Times in the log name no zone; those of the same traces' utilisation say PST and PDT.
ZONE: Final = ZoneInfo("America/Los_Angeles")
_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_EXPECTED: Final = "a date and time such as 2017-10-07 01:11:39"
_UNKNOWN: Final = (None, "", "None")


def read_philly_jobs(path: str | Path) -> JobTable:
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

    Raises
    ------
    InputError
        Naming file, entry (row, from 1), key (column) and job; also when no job is left.

    Examples
    --------
    >>> import json
    >>> from tempfile import TemporaryDirectory
    >>> attempt = {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 09:00:00"}
    >>> attempt["detail"] = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]
    >>> job = {"jobid": "j1", "submitted_time": "2017-10-09 07:01:00", "attempts": [attempt]}
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "jobs.json")
    ...     _ = file.write_text(json.dumps([job]))
    ...     [(job.request, job.pmax) for job in read_philly_jobs(file)]
    [(2, 3600.0)]
    """
    entries = read_json(path)
    if not _objects(entries):
        raise InputError("expected a JSON array of objects, one a job", file=path)
    return rigid_table(Rows.of(entries, path, job="jobid"), _job, {"Jmax": "detail"})


def _job(row: Row) -> Job | str:
    """Return the job of an entry, or why it is left out."""
    name = row.name("jobid")
    submitted_ns = _instant(row, row.value("submitted_time"), "submitted_time")
    if submitted_ns is None:
        raise row.error("submitted_time", f"expected {_EXPECTED}, not nothing")
    attempts = row.value("attempts")
    if not _objects(attempts):
        raise row.error("attempts", "expected a list of objects")
    counted: list[tuple[int, float]] = []
    for attempt in attempts:
        gpus = _gpus(row, attempt)
        start_ns, end_ns = (
            _instant(row, attempt.get(key), key) for key in ("start_time", "end_time")
        )
        if gpus and start_ns is not None and end_ns is not None and end_ns > start_ns:
            counted.append((gpus, (end_ns - start_ns) / SECOND_NS))
    if not counted:
        return "without an attempt that has GPUs, start and end"
    user, vc, status = (
        "" if row.value(key) in _UNKNOWN else row.name(key)
        for key in ("user", "vc", "status")
    )
    return rigid_job(
        name,
        submitted_ns,
        max(gpus for gpus, _ in counted),
        math.fsum(seconds for _, seconds in counted),
        user=user,
        vc=vc,
        extra={"status": status, "attempts": len(counted)},
    )


def _objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _gpus(row: Row, attempt: Mapping[str, Any]) -> int:
    """Different GPUs of an attempt."""
    nodes = attempt.get("detail") or []
    if not _objects(nodes) or not all(isinstance(n.get("gpus"), list) for n in nodes):
        raise row.error("detail", "expected a list of objects with ip and a list gpus")
    return sum(len(set(map(str, node["gpus"]))) for node in nodes)


def _instant(row: Row, value: object, key: str) -> int | None:
    """UTC nanoseconds, None where nothing is known."""
    if value in _UNKNOWN:
        return None
    try:
        # In ASCII: strptime knows the digits of all scripts.
        text = str(value).encode("ascii").decode()
        stamp = datetime.strptime(text.strip(), _FORMAT).replace(tzinfo=ZONE)
    except ValueError as error:
        raise row.error(key, f"expected {_EXPECTED}, not {shown(value)}") from error
    return round(stamp.timestamp()) * SECOND_NS
