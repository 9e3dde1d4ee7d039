"""Readers of records one by one, lines or JSON objects: the account of each, and runs that end in a later file."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any, Protocol

from bft.models import InputError
from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Foreign as Foreign
from bft.replay.logs.diagnosis import LeftOut as LeftOut
from bft.replay.logs.diagnosis import Unusable as Unusable
from bft.replay.logs.hostlists import HostListError
from bft.replay.logs.reading import Reading
from bft.replay.logs.runs import Begun, Runs
from bft.replay.logs.times import MOST_EPOCH_S
from bft.replay.logs.units import Held
from bft.replay.trace.node_trace import SECOND_NS

# Names that a node trace can hold; logs with damaged bytes or control characters have others.
_HOST = re.compile(r"[!-~]{1,255}")


def each_record(
    reading: Reading, record: Callable[[str, int], None], *, comment: str = "#"
) -> None:
    """Give each line that is neither blank nor a comment to `record`, and account for it.

    Parameters
    ----------
    reading
        As every reader has it.
    record
        Called with the line and its number; it uses the line, or raises `Unusable` or `LeftOut`.
    comment
        What comments begin with.

    Raises
    ------
    InputError
        When no line is a record of the format.
    """
    file, diagnosis = reading.file, reading.diagnosis
    rows = diagnosis.rows
    strangers, first = 0, ""
    for number, line in enumerate(reading.lines, 1):
        diagnosis.lines += 1
        if not line or line.isspace() or line.startswith(comment):
            diagnosis.no_record += 1
            continue
        diagnosis.rows += 1
        try:
            record(line, number)
        except Unusable as why:
            diagnosis.skip(why.reason, file, number, why.detail)
            if isinstance(why, Foreign):
                strangers += 1
                first = first or f"line {number} {why.reason}: {why.detail}"
        except LeftOut as why:
            diagnosis.leave_out(str(why), file, number)
        else:
            diagnosis.used += 1
    if strangers and strangers == diagnosis.rows - rows:
        raise InputError(f"is no log of this format: {first}", file=file)


class RecordLog(Protocol):
    """What uses the records of one file, one after the other, and accounts for what has not ended when it is over."""

    def record(self, text: str, line: int) -> None:
        """Use one record."""

    def close(self) -> None:
        """Account for what has not ended."""


def each_record_to_the_end(reading: Reading, log: RecordLog) -> None:
    """Give each record of a file to `log.record`, as `each_record` does, and close the log."""
    each_record(reading, log.record)
    log.close()


def host_names(names: Iterable[str], where: str) -> tuple[str, ...]:
    """The hosts, each once, in their order.

    Raises
    ------
    Unusable
        When one is no name of a host; `where` says which field it is of.

    Examples
    --------
    >>> host_names(["cn1", "cn2", "cn1"], "exec_host")
    ('cn1', 'cn2')
    """
    hosts = tuple(dict.fromkeys(names))
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise Unusable(f"{where} holds what is no name of a host", ascii(host[:80]))
    return hosts


def in_order(start_ns: int, end_ns: int) -> None:
    """Raise `Unusable` for what ends before it starts.

    >>> in_order(2_000_000_000, 1_000_000_000)
    Traceback (most recent call last):
    bft.replay.logs.diagnosis.Unusable: ('ends before it starts', '1 s before')
    """
    if end_ns < start_ns:
        raise Unusable(
            "ends before it starts", f"{(start_ns - end_ns) / 1e9:g} s before"
        )


class Add(Protocol):
    """What receives intervals: `Collector.job` or `Collector.outage`."""

    def __call__(
        self,
        key: Hashable,
        nodes: array[int],
        start_ns: int,
        end_ns: int | None,
        file: str,
        line: int,
        /,
    ) -> None:
        """Add one interval of several nodes."""


class Running:
    """Jobs (or outages) that have begun in a log that states their ends in records of their own.

    Logs are cut into files by day or by size, so what begins in one may end in the next: what is under way is kept
    with the collector from file to file (files in order of time). What never ends lasts to the last record there is.

    Parameters
    ----------
    into, add, runs
        The collector, its method that receives intervals, and the records that this method has received.
    begun
        What is under way by key, as the file before left it.
    """

    def __init__(
        self, into: Collector, add: Add, runs: Runs, begun: dict[Hashable, Begun]
    ) -> None:
        self._into = into
        self._add = add
        self._runs = runs
        self._begun = begun
        self.any_begun = False

    def begin(
        self,
        key: Hashable,
        hosts: tuple[str, ...],
        start_ns: int,
        file: str,
        line: int,
        held: tuple[Held, ...] | None = None,
    ) -> bool:
        """Something begins; True when the same was under way since another time, and lasted until now at the most."""
        self.any_begun = True
        self._runs.ended(
            ("begin", key), 0, start_ns, start_ns, file, line, once=False
        )  # so that a copy counts once
        before = self._begun.get(key)
        again = (
            before is not None
            and before.start_ns != start_ns
            and self.end(key, start_ns)
        )
        self.replace(key, Begun(hosts, start_ns, file, line, held))
        return again

    def replace(self, key: Hashable, begun: Begun) -> None:
        """What is under way has other hosts from now on."""
        self._begun[key] = begun

    def end(self, key: Hashable, end_ns: int, file: str = "", line: int = 0) -> bool:
        """It ends; True when it was under way. File and line are those of the record with the end, if there is one."""
        begun = self._begun.pop(key, None)
        if begun is None:
            return False
        nodes = self._into.indices(begun.hosts)
        where = (file, line) if line else (begun.file, begun.line)
        if begun.held is None:
            self._add(key, nodes, begun.start_ns, max(end_ns, begun.start_ns), *where)
        else:
            self._into.job(
                key,
                nodes,
                begun.start_ns,
                max(end_ns, begun.start_ns),
                *where,
                held=begun.held,
            )
        return True

    def under_way(self, key: Hashable) -> Begun | None:
        """What is under way."""
        return self._begun.get(key)

    def forget(self, key: Hashable) -> None:
        """It has ended, and another record states all of it."""
        self._begun.pop(key, None)

    def last_until(self, now_ns: int) -> list[tuple[Hashable, Begun]]:
        """What is under way and lasts until now at the least, by key.

        What has ended by a record that was read before is under way no more: a copy of its beginning came late.
        """
        runs = [(key, begun.start_ns) for key, begun in self._begun.items()]
        for (key, _), ended in zip(runs, self._runs.have_ended(runs), strict=True):
            if ended:
                del self._begun[key]
        return [
            (key, begun)
            for key, begun in self._begun.items()
            if now_ns >= begun.start_ns
        ]


def _intervals(begun: Begun) -> int:
    """How many nodes it is on, of those of which it holds anything."""
    return len(begun.hosts) if begun.held is None else sum(map(bool, begun.held))


class UnderWay:
    """What has begun in the files read into a collector so far and has not ended: jobs, and outages of nodes."""

    def __init__(self, reading: Reading) -> None:
        into = reading.into
        self._into, self._file, self._diagnosis, self._kept = (
            into,
            reading.file,
            reading.diagnosis,
            into.kept,
        )
        self.jobs = Running(into, into.job, into.job_runs, self._kept.jobs)
        self.outages = Running(into, into.outage, into.outage_runs, self._kept.outages)

    def file_ends(self, now_ns: int) -> None:
        """Take what is under way to last until the last time that the file states."""
        file, diagnosis = self._file, self._diagnosis
        if now_ns < self._kept.last_ns:
            why = (
                "a file ends before the one read before it: give files in order of time, or what begins in one "
                "and ends in another is lost"
            )
            diagnosis.note(why, file, 0, file, loud=True)
        self._kept.last_ns = max(now_ns, self._kept.last_ns)
        self._kept.starts |= self.jobs.any_begun
        self._into.only_ended = not self._kept.starts
        if self._kept.starts:
            self._into.shows_until(self._kept.last_ns)
        jobs, outages = self.jobs.last_until(now_ns), self.outages.last_until(now_ns)
        # What was under way at the end of the file before has been stated as a whole since, or is now.
        counts = (
            sum(_intervals(begun) for _, begun in jobs),
            sum(_intervals(begun) for _, begun in outages),
        )
        self._into.busy_intervals.given -= self._kept.counts[0]
        self._into.unavailable_intervals.given -= self._kept.counts[1]
        self._kept.counts = counts
        for key, begun in jobs:
            self._into.busy(
                begun.hosts, begun.start_ns, now_ns, key=key, held=begun.held
            )
        for _, begun in outages:
            self._into.unavailable(begun.hosts, begun.start_ns, now_ns)
        self._into.running += len(self._kept.jobs) - self._kept.running
        self._kept.running = len(self._kept.jobs)
        for count, what in (
            (len(self._kept.jobs), "jobs"),
            (len(self._kept.outages), "outages or reservations"),
        ):
            if count:
                why = f"{what} had not ended at the end of a file: their nodes count as taken until its last record"
                diagnosis.note(why, file, 0, f"{count} of them")


# A job takes some 10 kB, with 10,000 steps some 30 MB; as Python's values at most 25 times as much.
MOST_ELEMENT = 32 << 20
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
# What an object of another shape raises in a reader that takes it for granted.
MISSHAPEN = (KeyError, TypeError, AttributeError, IndexError)


def each_object(
    reading: Reading,
    record: Callable[[dict[str, Any], str, int], None],
    *,
    keys: Collection[str] | None,
    expected: str,
    command: str,
) -> None:
    """Give each object to `record`, with its key and line, and account for it.

    Parameters
    ----------
    reading
        As every reader has it.
    record
        Uses the object, or raises `Unusable` or `LeftOut`.
    keys
        As `elements` has them.
    expected
        What an object of another shape is not, for a message.
    command
        What exports such a file.

    Raises
    ------
    InputError
        When there is no such object.
    """
    file, diagnosis = reading.file, reading.diagnosis
    for number, name, text in elements(reading.lines, keys, file, command, bare=True):
        diagnosis.lines += 1
        diagnosis.rows += 1
        try:
            record(json.loads(text), name, number)
        except (
            InputError
        ):  # of the whole log, such as too many nodes; it is a ValueError as well
            raise
        except Unusable as why:
            diagnosis.skip(why.reason, file, number, why.detail)
        except LeftOut as why:
            diagnosis.leave_out(str(why), file, number)
        except HostListError as error:
            diagnosis.skip("holds no names of nodes", file, number, str(error))
        except (ValueError, RecursionError) as error:
            diagnosis.skip("is not JSON", file, number, str(error))
        except MISSHAPEN as error:
            diagnosis.skip(f"is no {expected}", file, number, repr(error)[:200])
        else:
            diagnosis.used += 1


def instant_ns(value: object) -> int | None:
    """UTC nanoseconds of seconds since 1970, with a fraction or without; None for 0 and for what is missing.

    Raises
    ------
    TypeError
        When it is no time.
    """
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
    ):
        raise TypeError(f"{value!r} is no time in seconds since 1970")
    if not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no time in seconds since 1970")
    whole = math.floor(value)
    return whole * SECOND_NS + round((value - whole) * 1_000_000) * 1000 or None


def elements(
    lines: Iterable[str],
    keys: Collection[str] | None,
    file: str,
    command: str,
    *,
    bare: bool = False,
) -> Iterator[tuple[int, str, str]]:
    """Each object in the list, or in the object, that the outermost object has under one of the keys.

    Yields the line on which it begins, its own key (empty in a list), and its text. `command` exports such a file.

    Parameters
    ----------
    lines
        Of the file; several JSON texts may follow one another.
    keys
        None: all objects that the outermost object holds, whatever their keys.
    file, command
        For messages.
    bare
        Also the objects of an outermost list, and outermost objects that have none of the keys.

    Raises
    ------
    InputError
        When there is no such object or list, or an object in it has no end within reason.
    """
    depth = begun = size = level = 0
    last, name, outer, inside, seen = "", "", "", False, False
    pieces: list[str] = []
    for number, line in enumerate(lines, 1):
        begin = 0  # what of this line belongs to the object begun
        for token in _TOKENS.finditer(line):
            kind = token[0][0]
            if kind == '"':
                if depth == 1:
                    last, name = token[0][1:-1], ""
                elif depth == 2 and inside:
                    name = token[0][1:-1]
            elif kind in "{[":
                depth += 1
                starts = 0
                if depth == 1:
                    outer = kind
                    inside = False
                    starts = int(bare and kind == "{" and keys is not None)
                    last = name = ""
                elif depth == 2 and outer == "[":
                    starts = 2 * (bare and kind == "{")
                elif depth == 2 and keys is None:
                    name, starts = last, 2 * (kind == "{")
                elif depth == 2:
                    inside = last in (keys or ())
                    if inside:
                        seen, begun, pieces = True, 0, []
                elif depth == 3 and inside and kind == "{":
                    starts = 3
                if starts:
                    begun, begin, size, level = number, token.start(), 0, starts
                    seen = True
            else:
                depth = max(0, depth - 1)
                if begun and depth == level - 1:
                    yield (
                        begun,
                        name if level > 1 else "",
                        "\n".join([*pieces, line[begin : token.end()]]),
                    )
                    begun, pieces = 0, []
                if depth == 1:
                    inside = False
        if begun:
            pieces.append(line[begin:])
            size += len(line) - begin + 1
            if size > MOST_ELEMENT:
                raise InputError(f"line {begun}: an object here has no end", file=file)
    if begun:
        yield begun, name if level > 1 else "", "\n".join(pieces)
    if not seen:
        wanted = f"with a list {' or '.join(map(repr, keys))}" if keys else "of objects"
        raise InputError(
            f"is not JSON {wanted}", file=file, hint=f"export with {command}"
        )
