"""HTCondor: job ClassAds of `condor_history` (-l or -json), and the history file itself.

An ad describes only the last run of its job: nodes of earlier runs look idle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

from bft.replay.logs.formats.entries import stated
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
# Of JobStatus; jobs that run, transfer files or are suspended have their slots, those that are idle or held have none.
_REMOVED, _COMPLETED, _GOES_ON, _HELD = 3, 4, (2, 6, 7), (1, 5)


def read(log: Log) -> Iterator[Block | Row]:
    """Read job ClassAds.

    An ad knows the last run of its job. Of runs before, nothing is known but their number, which is noted.
    """
    log.words = {
        "start": "JobCurrentStartDate",
        "end": "CompletionDate",
        "known": "QDate",
    }
    if "".join(log.lines.head(limit=1)).lstrip().startswith(("[", "{")):
        yield from each_object(
            log, _row, keys=(), expected="ClassAd of a job", command=COMMAND
        )
    for number, ad in _ads(log):
        yield from _row(ad, "", number)


def _ads(log: Log) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line and attributes of each ad; a blank line, or one of asterisks, ends an ad."""
    ad: dict[str, Any] = {}
    begun = 0
    for number, line in chain(log.lines, [(0, "")]):
        attribute = _ATTRIBUTE.fullmatch(line)
        if attribute:
            begun = begun or number
            with suppress(ValueError):  # neither a text in quotes nor a number
                ad[attribute[1]] = json.loads(attribute[2])
        elif begun and (not line.strip() or line.startswith("***")):
            yield begun, ad
            ad, begun = {}, 0


def _row(ad: dict[str, Any], _: str, line: int) -> Iterator[Row]:
    """Yield the row of one job."""
    status = ad.get("JobStatus")
    start = stated(ad, "JobCurrentStartDate", "JobStartDate")
    hosts = stated(ad, "AllRemoteHosts", "LastRemoteHost", "RemoteHost")
    ran_s = float(stated(ad, "LastRemoteWallClockTime") or 0)
    if ad.get("NumShadowStarts") == 1:  # else it is that of all runs
        ran_s = ran_s or float(stated(ad, "RemoteWallClockTime") or 0)
    why = end = ""
    if status == _COMPLETED:
        end = stated(ad, "CompletionDate", "EnteredCurrentStatus")
    elif status not in _GOES_ON and ran_s and start:
        end = str(int(start) + round(ran_s))
    elif status == _REMOVED:
        end = stated(ad, "EnteredCurrentStatus")
    if ad.get("JobUniverse") in _NO_SLOT:
        why = (
            LEFT_OUT + "job of the scheduler, local or grid universe, which has no slot"
        )
    elif status not in (_REMOVED, _COMPLETED, *_GOES_ON, *_HELD):
        why = (
            SKIPPED
            + "is no ClassAd of a job: the attribute JobStatus is missing, or no status of a job"
        )
    elif not end and start and status in _HELD:
        why = (
            LEFT_OUT
            + "job that waits or is held: when its last run ended is not stated"
        )
    elif not end and start and status not in _GOES_ON:
        why = (
            SKIPPED
            + "has ended, but its end is missing (CompletionDate, EnteredCurrentStatus)"
        )
    elif start and not hosts:
        why = (
            SKIPPED
            + "job ran, but names no host: the attribute LastRemoteHost is missing"
        )
    notes = []
    if status == _REMOVED and not ran_s:
        notes.append(
            "a removed job is taken to have run until it was removed: it may have waited in between"
        )
    if (ad.get("NumJobStarts") or 0) > 1:
        notes.append(
            LOUD
            + "a job ran more than once: of its earlier runs neither time nor host is known, their nodes look idle"
        )
    job = stated(ad, "GlobalJobId") or f"{ad.get('ClusterId')}.{ad.get('ProcId')}"
    yield {
        "line": line,
        "why": why,
        "id": job,
        "user": stated(ad, "Owner"),
        "known": stated(ad, "QDate"),
        "start": start,
        "end": end,
        # slot1_2@host: a machine is divided into slots
        "hosts": [slot.strip().rpartition("@")[2] for slot in hosts.split(",")],
        "notes": [(note, f"job {job[:80]}") for note in notes],
    }
