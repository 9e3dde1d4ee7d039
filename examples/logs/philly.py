"""The job log of Microsoft's Philly trace (cluster_job_log): JSON, a list of jobs with their attempts."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from bft.replay.logs import Log, LogFormat, Row, Unusable, each_object
from bft.replay.logs.times import MISSING
from bft.replay.logs.units import Stated

COLUMNS = {
    "user": "user",
    "partition": "vc",  # virtual cluster
    "state": "status",
    "known": "submitted_time",
}


def read(log: Log) -> Iterator[Row]:
    """Read jobs, each attempt of which has servers of its own.

    The last attempt without an end was running when the log was taken; others without a start or an end are mistakes
    of the log, says its description.
    """
    log.words = {"start": "start_time", "end": "end_time", "known": "submitted_time"}
    yield from each_object(
        log,
        partial(job_rows, log),
        keys=(),
        expected="job: expected jobid, attempts and GPUs such as gpu0",
        command="the file cluster_job_log of https://github.com/msr-fiddle/philly-traces",
    )


def job_rows(log: Log, job: dict[str, Any], _: str, line: int) -> Iterator[Row]:
    """Yield the attempts of a job: the first is the row of the log, and the others belong to it."""
    row: dict[str, Any] = {ours: str(job.get(COLUMNS[ours]) or "") for ours in COLUMNS}
    row["id"] = str(job["jobid"])
    attempts, unit = job["attempts"], log.settings.unit

    def states(attempt: dict[str, Any], time: str) -> bool:
        return str(attempt.get(time)) not in MISSING

    whole = [
        attempt
        for attempt in attempts
        if attempt.get("detail")
        and states(attempt, "start_time")
        and (states(attempt, "end_time") or attempt is attempts[-1])
    ]
    if len(whole) < len(attempts):
        why = "an attempt lacks its start, its end or its servers: it was left out, its job's others were not"
        log.note(why, line, row["id"][:80])
    if not attempts:
        yield row
    elif not whole:
        why = "no attempt of a job has a start, an end and servers"
        raise Unusable(why, row["id"][:80])
    for attempt in whole:
        row["start"], row["end"] = (
            str(attempt["start_time"]),
            str(attempt.get("end_time")),
        )
        row["hosts"] = [str(part["ip"]) for part in attempt["detail"]]
        if unit is not None:
            # The log states no cores.
            row["units"] = Stated(alone=True) if unit.cores else held(attempt)
        yield {**row, "again": attempt is not whole[0]}
        row["known"] = ""


def held(attempt: dict[str, Any]) -> Stated:
    """Return the GPUs of each server that an attempt had, by name (gpu0)."""
    gpus = {}
    for part in attempt["detail"]:
        numbers = (int(name.removeprefix("gpu")) for name in part.get("gpus") or ())
        gpus[str(part["ip"])] = tuple(sorted(numbers))
    return Stated(named=tuple(gpus.items()))


FORMAT = LogFormat(
    "Microsoft's Philly trace: cluster_job_log",
    read,
    states=("partition", "user", "units"),
)
