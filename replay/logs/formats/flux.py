"""Flux: `flux jobs` as JSON or as a table, and the eventlogs of jobs with their R (RFC 18, 20 and 21 of Flux).

Read are `flux jobs -o` with JOBID, NODELIST, T_RUN and T_INACTIVE, `flux jobs --json`, or `flux job info ID eventlog`
before `flux job info ID R`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bft.replay.logs.formats.entries import stated
from bft.replay.logs.records import LEFT_OUT, Block, Log, Row, each_line, each_object
from bft.replay.logs.tables import Table

_NAMED = "{id}|{nodelist}|{t_submit}|{t_depend}|{t_run}|{t_inactive}|{duration}|{queue}|{username}"
TABLE_COMMAND = f'flux jobs -a -A -c 0 -o "{_NAMED}"'
COMMAND = f"{TABLE_COMMAND}, or with --json instead of -o"
_COLUMNS = {
    "id": ("jobid", "id"),
    "hosts": ("nodelist",),
    "known": ("t_depend", "t_submit"),
    "start": ("t_run",),
    "end": ("t_inactive", "t_cleanup"),
    "limit": ("duration",),
    "partition": ("queue",),
    "user": ("user", "username"),
    "state": ("result",),
}
# Columns that filters of jobs need.
_FILTERED = {"partition": "the column QUEUE", "user": "the column USER"}


def read(log: Log) -> Iterator[Block | Row]:
    """Read one of the three forms.

    A job has its nodes from the time at which it enters the state RUN until it is INACTIVE, in eventlogs from `alloc`
    to `free`. Without an end it is still running.
    """
    log.words = {"start": "t_run", "end": "t_inactive", "known": "t_depend"}
    first = "".join(log.lines.head(limit=1)).lstrip()
    if first.startswith("{") and ('"timestamp"' in first or '"execution"' in first):
        form = "flux jobs --json, or a table of it with"
        log.refuse_unstated(
            {each: f"{form} {name}" for each, name in _FILTERED.items()}
        )
        yield from _eventlogs(log)
    elif first.startswith(("{", "[")):
        expected = "job of flux jobs --json: expected id, nodelist, t_run, t_inactive"
        yield from each_object(
            log, _job, keys=("jobs",), expected=expected, command=COMMAND
        )
    else:
        table = Table(
            log, _COLUMNS, needed=("id", "hosts", "start", "end"), command=COMMAND
        )
        log.refuse_unstated(
            {each: name for each, name in _FILTERED.items() if each not in table}
        )
        for rows in table:
            yield Block(line=rows.line, why=rows.why, **rows.cells)


def _job(entry: dict[str, Any], _: str, line: int) -> Iterator[Row]:
    """Yield the row of an object of `flux jobs --json`."""
    row = {ours: stated(entry, *theirs) for ours, theirs in _COLUMNS.items()}
    yield {**row, "id": str(entry["id"]), "count": entry.get("nnodes")}


def _eventlogs(log: Log) -> Iterator[Row]:
    """Read events, an object a line, those of each job from `submit` on and before the line of its R."""
    # When each event of the job was, and on which line.
    times: dict[str, tuple[str, int]] = {}

    def end_job() -> None:
        if "alloc" in times:
            why = "a job was given nodes, and its R does not follow its events: its nodes are not known"
            log.note(why, times["alloc"][1], loud=True)
        times.clear()

    def row(text: str, line: int) -> Iterator[Row]:
        entry = json.loads(text)
        if "execution" in entry:
            granted = entry["execution"]
            nodes = ",".join(granted["nodelist"])
            start, expires = granted.get("starttime"), granted.get("expiration")
            submitted = times.get("depend") or times.get("submit") or ("", 0)
            yield {
                "id": nodes,
                "hosts": nodes,
                "known": submitted[0],
                "start": times.get("alloc", (stated(granted, "starttime"), 0))[0],
                "end": times.get("free", ("", 0))[0],
                "limit": f"{expires - start:.6f}" if start and expires else "",
            }
            times.clear()
            return
        name = entry["name"]
        if name == "submit":
            end_job()
        times[name] = stated(entry, "timestamp"), line
        why = (
            ""
            if name in ("alloc", "free")
            else LEFT_OUT + "event that says nothing of nodes"
        )
        yield {"kind": "nothing", "why": why}

    yield from each_line(log, row, expected="event or R of a job")
    end_job()
