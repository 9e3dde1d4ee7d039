"""HTCondor: job ClassAds of `condor_history` (-l or -json), and the history file itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from bft.models import InputError
from bft.replay.logs.reading import (
    MISSHAPEN,
    JobRan,
    LeftOut,
    Origin,
    Reading,
    Record,
    Skipped,
    Unusable,
    each_object,
    first_line,
    host_names,
    in_order,
    instant_ns,
)
from bft.replay.trace.node_trace import SECOND_NS

COMMAND = "condor_history -json, or -l"
_ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(.*?)\s*", re.DOTALL)
_WANTED = frozenset(
    {"ClusterId", "ProcId", "GlobalJobId", "JobUniverse", "JobStatus", "JobStartDate", "JobCurrentStartDate",
     "CompletionDate", "EnteredCurrentStatus", "RemoteWallClockTime", "NumJobStarts", "NumShadowStarts",
     "LastRemoteHost", "RemoteHost", "AllRemoteHosts", "Owner"}
)  # fmt: skip
# Universes (scheduler, grid, local) whose jobs have no slot of the pool.
_NO_SLOT = frozenset({7, 9, 12})
_IDLE, _RUNNING, _REMOVED, _COMPLETED, _HELD, _TRANSFERRING, _SUSPENDED = range(1, 8)


def read(reading: Reading) -> Iterator[Record]:
    """Read job ClassAds; see `LogFormat` for errors.

    An ad knows the last run of its job. Of runs before, nothing is known but their number, which is noted.
    """
    first, reading = first_line(reading)
    record = partial(_records, reading)
    if first.lstrip()[:1] in ("[", "{"):
        expected = (
            "ClassAd of a job: expected JobStatus, JobCurrentStartDate, LastRemoteHost"
        )
        yield from each_object(
            reading, record, keys=(), expected=expected, command=COMMAND
        )
        return
    met = 0
    for number, ad in _ads(reading):
        met += 1
        try:
            yield from record(ad, "", number)
        except (Unusable, LeftOut) as why:
            yield from reading.refused(why, number, partial(record, ad, "", number))
        except MISSHAPEN as error:
            yield Skipped(number, "is no ClassAd of a job", repr(error)[:200])
    if not met:
        raise InputError(
            "holds no ClassAd of a job",
            file=reading.file,
            hint=f"export with {COMMAND}",
        )


def _ads(reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line and wanted attributes of each ad; a blank line, or one of asterisks, ends an ad."""
    ad: dict[str, Any] = {}
    begun = 0
    for number, line in reading.numbered():
        if not line.strip() or line.startswith("***"):
            if begun:
                yield begun, ad
            ad, begun = {}, 0
            continue
        attribute = _ATTRIBUTE.fullmatch(line)
        if attribute is None:
            continue
        begun = begun or number
        if attribute[1] in _WANTED:
            ad[attribute[1]] = _value(attribute[2])
    if begun:
        yield begun, ad


def _records(
    reading: Reading, ad: dict[str, Any], _: str, line: int
) -> Iterator[Record]:
    """Yield the records of one job."""
    if ad.get("JobUniverse") in _NO_SLOT:
        raise LeftOut("job of the scheduler, local or grid universe, which has no slot")
    user = str(ad.get("Owner") or "")
    reading.keep(line, user=user)
    start_ns = instant_ns(ad.get("JobCurrentStartDate")) or instant_ns(
        ad.get("JobStartDate")
    )
    if start_ns is None:
        raise LeftOut("job that never started")
    status = ad["JobStatus"]
    end_ns = _end(reading, ad, status, start_ns, line)
    stated = (
        ad.get("AllRemoteHosts") or ad.get("LastRemoteHost") or ad.get("RemoteHost")
    )
    if not isinstance(stated, str) or not stated:
        raise Unusable("job ran, but names no host: LastRemoteHost is missing")
    # slot1_2@host: a machine is divided into slots
    hosts = host_names(
        (slot.strip().rpartition("@")[2] for slot in stated.split(",")),
        "LastRemoteHost",
    )
    in_order(start_ns, end_ns)
    job = str(ad.get("GlobalJobId") or f"{ad.get('ClusterId')}.{ad.get('ProcId')}")
    starts = ad.get("NumJobStarts") or 0
    if isinstance(starts, int) and starts > 1:
        why = "a job ran more than once: of its earlier runs neither time nor host is known, their nodes look idle"
        reading.note(why, line, f"job {job[:80]}", loud=True)
    nodes = reading.nodes(hosts)
    origin = Origin(user)
    yield JobRan(line, ("condor", job), nodes, start_ns, end_ns, origin=origin)


def _end(
    reading: Reading, ad: dict[str, Any], status: object, start_ns: int, line: int
) -> int | None:
    """When the last run ended; None while it goes on."""
    if status in (_RUNNING, _TRANSFERRING, _SUSPENDED):
        return None
    if status in (_IDLE, _HELD):
        raise LeftOut(
            "job that waits or is held: when its last run ended is not stated"
        )
    if status == _COMPLETED:
        end_ns = instant_ns(ad.get("CompletionDate"))
        if end_ns is None:
            raise Unusable("has ended, but its end is missing", "CompletionDate")
        return end_ns
    if status != _REMOVED:
        raise Unusable("JobStatus is no status of a job", repr(status)[:40])
    wall = ad.get("RemoteWallClockTime")
    if (
        ad.get("NumShadowStarts") == 1
        and isinstance(wall, int | float)
        and 0 < wall < 1e9
    ):
        return start_ns + round(wall) * SECOND_NS
    end_ns = instant_ns(ad.get("EnteredCurrentStatus"))
    if end_ns is None:
        raise Unusable("has ended, but its end is missing", "EnteredCurrentStatus")
    why = "a removed job is taken to have run until it was removed: it may have waited in between"
    reading.note(why, line)
    return end_ns


def _value(text: str) -> Any:
    """A literal of a ClassAd: text in quotes, a number; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return (
        value
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        else None
    )
