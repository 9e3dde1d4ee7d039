"""Slurm's accounting as `sacct --json` prints it."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from bft.models import InputError
from bft.replay.logs.clusters import Clusters
from bft.replay.logs.hostlists import HostListError
from bft.replay.logs.reading import Reading
from bft.replay.logs.slurm_jobs import Job, judge
from bft.replay.logs.times import MOST_EPOCH_S
from bft.replay.trace.node_trace import SECOND_NS

# A job takes some 10 kB, with 10,000 steps some 30 MB; as Python's values at most 25 times as much.
MOST_ELEMENT = 32 << 20
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')


def read(reading: Reading) -> None:
    """Read the jobs of `sacct --json`, one at a time, so that a month of them need not fit the memory.

    Times are seconds since 1970 there. Releases differ in how they print numbers and states; all ways are taken.
    """
    file, diagnosis, clusters = reading.file, reading.diagnosis, Clusters(reading)
    for number, _, text in elements(reading.lines, ("jobs",), file, "sacct --json"):
        diagnosis.lines += 1
        diagnosis.rows += 1
        try:
            job = _job(json.loads(text), clusters, number)
        except InputError:  # of the whole log, such as too many nodes; it is a ValueError as well
            raise
        except HostListError as error:
            diagnosis.skip("nodes holds no host list", file, number, str(error))
        except (ValueError, RecursionError) as error:
            diagnosis.skip("is not JSON", file, number, str(error))
        except (KeyError, TypeError, AttributeError) as error:
            diagnosis.skip(
                "is no job: expected nodes and time.start, time.end as whole numbers", file, number, repr(error)
            )
        else:
            if job is None:
                diagnosis.leave_out("job of another cluster", file, number)
            else:
                diagnosis.used += judge(job, reading, number)


def elements(lines: Iterable[str], keys: Collection[str], file: str, command: str) -> Iterator[tuple[int, str, str]]:
    """Each object in the list, or in the object, that the outermost object has under one of the keys.

    Yields the line on which it begins, its own key (empty in a list), and its text. `command` exports such a file.

    Raises
    ------
    InputError
        When there is no such list, or an object in it has no end within reason.
    """
    depth = begun = size = 0
    last, name, inside, seen = "", "", False, False
    pieces: list[str] = []
    for number, line in enumerate(lines, 1):
        begin = 0  # what of this line belongs to the object begun
        for token in _TOKENS.finditer(line):
            kind = token[0][0]
            if kind == '"':
                if depth == 1:
                    last, name = token[0][1:-1], ""
                elif depth == 2:
                    name = token[0][1:-1]
            elif kind in "{[":
                depth += 1
                if depth == 2:
                    inside = last in keys
                    seen = seen or inside
                elif depth == 3 and inside and kind == "{":
                    begun, begin, size = number, token.start(), 0
            else:
                depth -= 1
                if depth == 1:
                    inside = False
                elif depth == 2 and begun:
                    yield begun, name, "\n".join([*pieces, line[begin : token.end()]])
                    begun, pieces = 0, []
        if begun:
            pieces.append(line[begin:])
            size += len(line) - begin + 1
            if size > MOST_ELEMENT:
                raise InputError(f"line {begun}: an object here has no end", file=file)
    if begun:
        yield begun, name, "\n".join(pieces)
    if not seen:
        wanted = " or ".join(map(repr, keys))
        raise InputError(f"is not JSON with a list {wanted}", file=file, hint=f"export with {command}")


def _job(entry: dict[str, Any], clusters: Clusters, line: int) -> Job | None:
    cluster = str(entry.get("cluster") or "")
    if clusters.other(cluster, line):
        return None
    state = entry.get("state", {}).get("current", "")
    state = state[0] if isinstance(state, list) and state else state
    text = entry["nodes"]
    if not isinstance(text, str):
        raise TypeError("nodes is no text")
    nodes: array[int] = clusters.lists(cluster)(text)
    start, end = (_instant(entry["time"][name]) for name in ("start", "end"))
    key = cluster, str(entry["job_id"]) if "job_id" in entry else text
    return Job(key, state if isinstance(state, str) else "", start, end, nodes)


def _instant(value: Any) -> int | None:
    """UTC nanoseconds; 0 and unset numbers are no time."""
    if isinstance(value, dict):  # {"set": true, "infinite": false, "number": 5}
        value = value["number"] if value.get("set", True) else 0
    if not isinstance(value, int) or not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no time")
    return value * SECOND_NS or None
