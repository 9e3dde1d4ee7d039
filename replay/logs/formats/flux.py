"""Flux: `flux jobs` as JSON or as a table, and the eventlogs of jobs with their R (RFC 18, 20 and 21 of Flux)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bft.replay.logs.records import (
    LEFT_OUT,
    MISSHAPEN,
    Block,
    Foreign,
    Log,
    Row,
    Unusable,
    each_line,
    each_object,
)
from bft.replay.logs.tables import Table
from bft.replay.logs.times import MISSING

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
        yield from _eventlogs(log)
    elif first.startswith(("{", "[")):
        expected = "job of flux jobs --json: expected id, nodelist, t_run, t_inactive"
        yield from each_object(
            log, _job, keys=("jobs",), expected=expected, command=COMMAND
        )
    else:
        yield from _table(log)


def _table(log: Log) -> Iterator[Block]:
    """Read what `flux jobs -o` prints with a header."""
    expected = (
        "a table of flux jobs with the columns JOBID, NODELIST, T_RUN, T_INACTIVE"
    )
    needed = ("id", "hosts", "start", "end")
    table = Table(log, _COLUMNS, needed=needed, command=COMMAND, expected=expected)
    log.refuse_unstated(
        {name: text for name, text in _FILTERED.items() if name not in table}
    )
    for rows in table:
        block = Block(line=rows.line, why=rows.why, **rows.cells)
        if "limit" in table:  # 0.0 where there is none
            block.limit = pc.if_else(
                pc.is_in(block.limit, pa.array(MISSING)), "", block.limit
            )
        yield block


def _job(entry: dict[str, Any], _: str, line: int) -> Iterator[Row]:
    """Yield the row of an object of `flux jobs --json`."""
    nodes = entry.get("nnodes")
    texts = {
        "hosts": "nodelist",
        "user": "username",
        "partition": "queue",
        "state": "result",
    }
    yield {
        "id": str(entry["id"]),
        "count": nodes if isinstance(nodes, int) else 0,
        "known": _seconds(entry.get("t_depend") or entry.get("t_submit")),
        "start": _seconds(entry.get("t_run")),
        "end": _seconds(entry.get("t_inactive") or entry.get("t_cleanup")),
        "limit": _seconds(entry.get("duration")),
        **{ours: str(entry.get(theirs) or "") for ours, theirs in texts.items()},
    }


def _seconds(value: object) -> str:
    """Return a time as text, to a microsecond, as binary fractions have no more of a time of today."""
    return f"{value:.6f}" if isinstance(value, float) and value else str(value or "")


def _eventlogs(log: Log) -> Iterator[Row]:
    """Read events, an object a line, those of each job from `submit` on and before the line of its R."""
    form = "flux jobs --json, or a table of it with"
    log.refuse_unstated({name: f"{form} {text}" for name, text in _FILTERED.items()})
    # When each event of the job was that is read; and the line that says that it was given nodes.
    times: dict[str, str] = {}
    given = 0

    def ends() -> None:
        if "alloc" in times:
            why = "a job was given nodes, and its R does not follow its events: its nodes are not known"
            log.note(why, given, loud=True)
        times.clear()

    def row(text: str, line: int) -> Iterator[Row]:
        nonlocal given
        try:
            entry = json.loads(text)
            if "execution" in entry:
                yield _allocated(entry["execution"], times)
                times.clear()
                return
            name, time = entry["name"], _seconds(entry["timestamp"])
        except (ValueError, RecursionError) as error:
            raise Unusable("is not JSON", str(error)[:200]) from error
        except MISSHAPEN as error:
            raise Foreign("is neither an event nor an R of a job", text[:80]) from error
        if name == "submit":
            ends()
        if name == "alloc":
            given = line
        times[name] = time
        says = name in ("alloc", "free")
        yield {
            "kind": "nothing",
            "why": "" if says else LEFT_OUT + "event that says nothing of nodes",
        }

    yield from each_line(log, row)
    ends()


def _allocated(execution: dict[str, Any], times: dict[str, str]) -> Row:
    """Return the row of a job by its R and the times of its events."""
    nodes = ",".join(execution["nodelist"])
    start, expires = execution.get("starttime"), execution.get("expiration")
    return {
        "id": nodes,
        "hosts": nodes,
        "known": times.get("depend") or times.get("submit"),
        "start": times.get("alloc") or _seconds(start),
        "end": times.get("free"),
        "limit": _seconds(expires - start) if start and expires else "",
    }
