"""HTCondor: job ClassAds of `condor_history` (-l or -json), and the history file itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bft.models import InputError
from bft.replay.logs.records import (
    LEFT_OUT,
    LOUD,
    SKIPPED,
    Block,
    Log,
    Row,
    each_object,
)

COMMAND = "condor_history -json, or -l"
_ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(.*?)\s*", re.DOTALL)
# Universes (scheduler, grid, local) whose jobs have no slot of the pool.
_NO_SLOT = (7, 9, 12)
_IDLE, _RUNNING, _REMOVED, _COMPLETED, _HELD, _TRANSFERRING, _SUSPENDED = range(1, 8)


def read(log: Log) -> Iterator[Block | Row]:
    """Read job ClassAds.

    An ad knows the last run of its job. Of runs before, nothing is known but their number, which is noted.
    """
    log.words = {
        "start": "JobCurrentStartDate",
        "end": "CompletionDate",
        "known": "QDate",
    }
    first = "".join(log.lines.head(limit=1)).lstrip()
    if first.startswith(("[", "{")):
        yield from each_object(
            log, _row, keys=(), expected="ClassAd of a job", command=COMMAND
        )
        return
    number = 0
    for number, ad in _ads(log):
        yield from _row(ad, "", number)
    if not number:
        raise InputError(
            "holds no ClassAd of a job", file=log.name, hint=f"export with {COMMAND}"
        )


def _ads(log: Log) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line and attributes of each ad; a blank line, or one of asterisks, ends an ad."""
    ad: dict[str, Any] = {}
    begun = 0
    for number, line in log.lines:
        attribute = _ATTRIBUTE.fullmatch(line)
        if attribute:
            begun = begun or number
            ad[attribute[1]] = _value(attribute[2])
        elif begun and (not line.strip() or line.startswith("***")):
            yield begun, ad
            ad, begun = {}, 0
    if begun:
        yield begun, ad


def _value(text: str) -> Any:
    """Return a literal of a ClassAd: text in quotes, or a number; None for anything else."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _row(ad: dict[str, Any], _: str, line: int) -> Iterator[Row]:
    """Yield the row of one job."""
    job = str(ad.get("GlobalJobId") or f"{ad.get('ClusterId')}.{ad.get('ProcId')}")
    start = ad.get("JobCurrentStartDate") or ad.get("JobStartDate")
    hosts = ad.get("AllRemoteHosts") or ad.get("LastRemoteHost") or ad.get("RemoteHost")
    end, why = _end(ad, start) if start else (None, "")
    if ad.get("JobUniverse") in _NO_SLOT:
        why = (
            LEFT_OUT + "job of the scheduler, local or grid universe, which has no slot"
        )
    elif "JobStatus" not in ad:
        why = SKIPPED + "is no ClassAd of a job: the attribute JobStatus is missing"
    elif start and not hosts:
        why = (
            why
            or SKIPPED
            + "job ran, but names no host: the attribute LastRemoteHost is missing"
        )
    yield {
        "line": line,
        "why": why,
        "id": job,
        "user": str(ad.get("Owner") or ""),
        "known": str(ad.get("QDate") or ""),
        "start": str(start or ""),
        "end": str(end or ""),
        # slot1_2@host: a machine is divided into slots
        "hosts": [
            slot.strip().rpartition("@")[2] for slot in str(hosts or "").split(",")
        ],
        "notes": list(_notes(ad, job)),
    }


def _notes(ad: dict[str, Any], job: str) -> Iterator[tuple[str, str]]:
    """Yield what is not known of a job that ran."""
    if ad.get("JobStatus") == _REMOVED and not _ran(ad):
        yield (
            "a removed job is taken to have run until it was removed: it may have waited in between",
            "",
        )
    starts = ad.get("NumJobStarts")
    if isinstance(starts, int) and starts > 1:
        why = "a job ran more than once: of its earlier runs neither time nor host is known, their nodes look idle"
        yield LOUD + why, f"job {job[:80]}"


def _end(ad: dict[str, Any], start: Any) -> tuple[Any, str]:
    """Return when the last run ended, None while it goes on, and why the job is not used."""
    status, ran = ad.get("JobStatus"), _ran(ad)
    if status in (_RUNNING, _TRANSFERRING, _SUSPENDED):
        return None, ""
    if status == _COMPLETED:
        end = ad.get("CompletionDate") or ad.get("EnteredCurrentStatus")
    elif status in (_IDLE, _HELD, _REMOVED) and ran and isinstance(start, int):
        end = start + round(ran)
    elif status == _REMOVED:
        end = ad.get("EnteredCurrentStatus")
    elif status in (_IDLE, _HELD):
        return (
            None,
            LEFT_OUT
            + "job that waits or is held: when its last run ended is not stated",
        )
    else:
        return None, SKIPPED + "JobStatus is no status of a job"
    return (
        end,
        ""
        if end
        else SKIPPED
        + "has ended, but its end is missing (CompletionDate, EnteredCurrentStatus)",
    )


def _ran(ad: dict[str, Any]) -> float:
    """Seconds that the last run of a job took; 0: not stated. RemoteWallClockTime is that of all runs."""
    last = ad.get("LastRemoteWallClockTime")
    if last is None and ad.get("NumShadowStarts") == 1:
        last = ad.get("RemoteWallClockTime")
    return last if isinstance(last, int | float) and 0 < last < 1e9 else 0
