"""What readers of one record a line share: the account of each line, and jobs that start in one and end in another."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakKeyDictionary

from bft.models import InputError
from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Diagnosis

# Names that a node trace can hold; logs with damaged bytes or control characters have others.
_HOST = re.compile(r"[!-~]{1,255}")
Begun: TypeAlias = "dict[Hashable, tuple[tuple[str, ...], int]]"


class Unusable(Exception):  # noqa: N818 - it ends the reading of a record, not the program
    """A record that should have said something of nodes and cannot be read; see `Diagnosis.skip`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class Foreign(Unusable):
    """A line that is no record of the format at all."""


class LeftOut(Exception):  # noqa: N818
    """A record of a kind that says nothing of nodes; see `Diagnosis.leave_out`."""


def each_record(
    lines: Iterable[str], file: str, diagnosis: Diagnosis, record: Callable[[str, int], None], *, comment: str = "#"
) -> None:
    """Give each line that is neither blank nor a comment to `record`, and account for it.

    Parameters
    ----------
    lines, file, diagnosis
        As every reader has them.
    record
        Called with the line and its number; it uses the line, or raises `Unusable` or `LeftOut`.
    comment
        What comments begin with.

    Raises
    ------
    InputError
        When no line is a record of the format.
    """
    rows = diagnosis.rows
    strangers, first = 0, ""
    for number, line in enumerate(lines, 1):
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


def host_names(names: Iterable[str], where: str) -> tuple[str, ...]:
    """The hosts, each once, in their order.

    Raises
    ------
    Unusable
        When one is no name of a host; `where` says which field it is of.
    """
    hosts = tuple(dict.fromkeys(names))
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise Unusable(f"{where} holds what is no name of a host", ascii(host[:80]))
    return hosts


def in_order(start_ns: int, end_ns: int) -> None:
    """Raise `Unusable` for what ends before it starts."""
    if end_ns < start_ns:
        raise Unusable("ends before it starts", f"{(start_ns - end_ns) / 1e9:g} s before")


class Running:
    """Jobs (or outages) that have begun in a log that states their ends in records of their own.

    Logs are cut into files by day or by size, so what begins in one may end in the next: what is under way is kept
    with the collector from file to file (files in order of time). What never ends lasts to the last record there is.

    Parameters
    ----------
    add
        Receives hosts, start and end of an interval: a method of the collector.
    begun
        Hosts and start by key, as the file before left them.
    """

    def __init__(self, add: Callable[[Sequence[str], int, int | None], None], begun: Begun) -> None:
        self._add = add
        self._begun = begun

    def begin(self, key: Hashable, hosts: tuple[str, ...], start_ns: int) -> bool:
        """Something begins; True when the same was under way, which then lasted until now at the most."""
        again = self.end(key, start_ns)
        self._begun[key] = hosts, start_ns
        return again

    def end(self, key: Hashable, end_ns: int) -> bool:
        """It ends; True when it was under way."""
        begun = self._begun.pop(key, None)
        if begun is None:
            return False
        self._add(begun[0], begun[1], max(end_ns, begun[1]))
        return True

    def under_way(self, key: Hashable) -> tuple[tuple[str, ...], int] | None:
        """Hosts and start of what is under way."""
        return self._begun.get(key)

    def forget(self, key: Hashable) -> None:
        """It has ended, and another record states all of it."""
        self._begun.pop(key, None)

    def last_until(self, now_ns: int) -> int:
        """What is under way lasts until now at the least. Returns how much that is."""
        for hosts, start_ns in self._begun.values():
            if now_ns >= start_ns:
                self._add(hosts, start_ns, now_ns)
        return len(self._begun)


class UnderWay:
    """What has begun in the files read into a collector so far and has not ended: jobs, and outages of nodes."""

    def __init__(self, into: Collector) -> None:
        self._into = into
        self._kept = _kept.setdefault(into, _Kept())
        self.jobs = Running(into.busy, self._kept.jobs)
        self.outages = Running(into.unavailable, self._kept.outages)

    def file_ends(self, now_ns: int, file: str, diagnosis: Diagnosis) -> None:
        """Take what is under way to last until the last time that the file states."""
        jobs, outages = self.jobs.last_until(now_ns), self.outages.last_until(now_ns)
        self._into.running += jobs - self._kept.running
        self._kept.running = jobs
        for count, what in ((jobs, "jobs"), (outages, "outages or reservations")):
            if count:
                told = f"{what} had not ended at the end of a file: their nodes count as taken until its last record"
                diagnosis.note(told, file, 0, f"{count} of them")


@dataclass(slots=True)
class _Kept:
    jobs: Begun = field(default_factory=dict)
    outages: Begun = field(default_factory=dict)
    running: int = 0


_kept: WeakKeyDictionary[Collector, _Kept] = WeakKeyDictionary()
