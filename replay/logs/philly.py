"""The job log of Microsoft's Philly trace (cluster_job_log): JSON, a list of jobs with their attempts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from bft.replay.logs.reading import (
    MISSING,
    JobRan,
    LeftOut,
    Origin,
    Reading,
    Record,
    Unusable,
    each_object,
    host_names,
    no_time,
)
from bft.replay.logs.units import MAX_UNITS, WHOLE, Held, UnitLog, check

_GPU = re.compile(r"gpu(\d{1,4})", re.ASCII)
COMMAND = "the file cluster_job_log of https://github.com/msr-fiddle/philly-traces"


def read(reading: Reading) -> Iterator[Record]:
    """Read the job log; see `LogFormat` for errors.

    Each attempt of a job has servers of its own. The last attempt without an end was running when the log was taken;
    others without a start or an end are mistakes of the log, says its description, and are noted.
    """

    def time(text: object, line: int) -> int | None:
        if text is None or text in MISSING:
            return None
        time_ns = reading.clock.parse(str(text), reading.file, line)
        if time_ns is None:
            raise Unusable("an attempt has no valid time", no_time(str(text)))
        return time_ns

    def record(job: dict[str, Any], _: str, line: int) -> Iterator[Record]:
        attempts, units = job["attempts"], reading.units
        # vc: virtual cluster
        user, queue, status = (
            str(job.get(name) or "") for name in ("user", "vc", "status")
        )
        reading.keep(line, partition=queue, user=user)
        if not attempts:
            raise LeftOut("job without an attempt: it never started")
        runs = []
        for attempt in attempts:
            start_ns, end_ns = (
                time(attempt.get("start_time"), line),
                time(attempt.get("end_time"), line),
            )
            hosts = host_names(
                (str(part["ip"]) for part in attempt.get("detail") or ()), "detail"
            )
            if (
                start_ns is None
                or not hosts
                or (end_ns is None and attempt is not attempts[-1])
            ):
                why = "an attempt lacks its start, its end or its servers: it was left out, its job's others were not"
                reading.note(why, line, str(job.get("jobid"))[:80])
            elif end_ns is not None and end_ns < start_ns:
                reading.note(
                    "an attempt ends before it starts: it was left out",
                    line,
                    str(job["jobid"])[:80],
                )
            else:
                nodes = reading.nodes(hosts)
                held = (
                    None
                    if units is None
                    else _held(attempt["detail"], hosts, nodes, units)
                )
                runs.append((nodes, start_ns, end_ns, held))
        if not runs:
            raise Unusable(
                "no attempt of a job has a start, an end and servers",
                str(job.get("jobid"))[:80],
            )
        key = ("philly", str(job["jobid"]))
        origin = Origin(user, queue, status)
        for number, (nodes, start_ns, end_ns, held) in enumerate(runs):
            yield JobRan(
                line, key, nodes, start_ns, end_ns, held, same_row=bool(number),
                origin=origin,
            )  # fmt: skip

    yield from each_object(
        reading,
        record,
        keys=(),
        expected="job: expected jobid and attempts",
        command=COMMAND,
    )


def _held(
    detail: list[dict[str, Any]],
    hosts: Sequence[str],
    nodes: Sequence[int],
    log: UnitLog,
) -> tuple[Held, ...]:
    """The GPUs of each server that an attempt had, by name (gpu0); the log states no cores."""
    if log.unit.cores:
        return (WHOLE,) * len(hosts)
    gpus: dict[str, set[int]] = {host: set() for host in hosts}
    for part in detail:
        for name in part.get("gpus") or ():
            match = _GPU.fullmatch(str(name))
            if match is None or int(match[1]) >= MAX_UNITS:
                raise Unusable(
                    "gpus holds what is no name of a GPU, such as gpu0",
                    ascii(str(name)[:40]),
                )
            gpus[str(part["ip"])].add(int(match[1]))
    held = tuple(tuple(sorted(gpus[host])) or 0 for host in hosts)
    check(held, log.sizes(nodes))
    return held
