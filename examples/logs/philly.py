"""The job log of Microsoft's Philly trace (cluster_job_log): JSON, a list of jobs with their attempts."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from bft.replay.logs.formats import LogFormat
from bft.replay.logs.records import SKIPPED, Log, Row, Unusable, each_object
from bft.replay.logs.units import Stated

GPU = re.compile(r"gpu(\d{1,3})", re.ASCII)
COMMAND = "the file cluster_job_log of https://github.com/msr-fiddle/philly-traces"


def read(log: Log) -> Iterator[Row]:
    """Read jobs, each attempt of which has servers of its own.

    The last attempt without an end was running when the log was taken; others without a start or an end are mistakes
    of the log, says its description.
    """
    log.words = {"start": "start_time", "end": "end_time", "known": "submitted_time"}
    expected = "job: expected jobid and attempts"
    yield from each_object(
        log, partial(job_rows, log), keys=(), expected=expected, command=COMMAND
    )


def job_rows(log: Log, job: dict[str, Any], _: str, line: int) -> Iterator[Row]:
    """Yield the attempts of a job: the first is the row of the log, and the others belong to it."""
    row: dict[str, Any] = {
        "id": str(job["jobid"]),
        "user": str(job.get("user") or ""),
        "partition": str(job.get("vc") or ""),  # virtual cluster
        "state": str(job.get("status") or ""),
        "known": str(job.get("submitted_time") or ""),
    }
    attempts = job["attempts"]
    used = 0
    for attempt in attempts:
        times = (str(attempt.get(name) or "") for name in ("start_time", "end_time"))
        start, end = ("" if time == "None" else time for time in times)
        detail = attempt.get("detail") or []
        if not start or not detail or (not end and attempt is not attempts[-1]):
            why = "an attempt lacks its start, its end or its servers: it was left out, its job's others were not"
            log.note(why, line, row["id"][:80])
            continue
        if log.settings.unit is not None:
            row["units"] = held(detail, cores=bool(log.settings.unit.cores))
        yield {
            **row,
            "start": start,
            "end": end,
            "hosts": [str(part["ip"]) for part in detail],
            "again": used > 0,
        }
        used += 1
        row["known"] = ""
    if not attempts:
        yield row
    elif not used:
        why = SKIPPED + "no attempt of a job has a start, an end and servers"
        yield {**row, "why": why, "detail": row["id"][:80]}


def held(detail: list[dict[str, Any]], *, cores: bool) -> Stated:
    """Return the GPUs of each server that an attempt had, by name (gpu0); the log states no cores."""
    if cores:
        return Stated(alone=True)
    gpus: dict[str, set[int]] = {}
    for part in detail:
        names = [str(name) for name in part.get("gpus") or ()]
        for name in names:
            if not GPU.fullmatch(name):
                raise Unusable(
                    "gpus holds what is no name of a GPU, such as gpu0",
                    ascii(name[:40]),
                )
        gpus.setdefault(str(part["ip"]), set()).update(int(name[3:]) for name in names)
    return Stated(
        named=tuple((host, tuple(sorted(some))) for host, some in gpus.items())
    )


FORMAT = LogFormat(
    "Microsoft's Philly trace: cluster_job_log",
    read,
    states=("partition", "user", "units"),
)
