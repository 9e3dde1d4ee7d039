"""PBS Pro, OpenPBS and Torque: accounting files, one a day.

A record is `MM/DD/YYYY HH:MM:SS;type;id;key=value key=value ...` (OpenPBS and Torque administrator's guides, chapter
on accounting). Times within the message are epochs; the stamp is local and used only where they are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from bft.replay.logs.reading import (
    FileEnds,
    Foreign,
    JobBegan,
    JobEnded,
    JobPlanned,
    JobRan,
    JobShrank,
    LeftOut,
    Origin,
    OutageBegan,
    OutageEnded,
    Plan,
    Reading,
    Record,
    Unusable,
    each_line,
    host_names,
    in_order,
    limit_ns,
)
from bft.replay.logs.units import WHOLE, Held, Unit, check, spread

_RECORD = re.compile(
    r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d)(?:\.\d+)?;(\w\w?);([^;]*);?(.*)",
    re.DOTALL | re.ASCII,
)
# A quote opens a quoted part where a value or a part of one may begin; anywhere else it is an apostrophe.
_PAIR = re.compile(
    r"""(?:^|(?<=\s))([A-Za-z_][\w.\-]*)=((?:[^\s"']+|(?<=[=:,+(])(?:"[^"]*"|'[^']*')|\S)*)"""
)
_LIMIT = "Resource_List.walltime"
# Types of records that state all of a run of a job, its queue included.
_OF_JOBS = frozenset({"E", "R", "S"})
_WANTED = frozenset({"start", "end", "exec_host", "exec_vnode", "nodes", "exec_gpus", "Resource_List.place",
                     "Resource_List.ngpus", "Resource_List.ncpus", "resources_used.ncpus",
                     "etime", "qtime", "ctime", "queue", "user", _LIMIT})  # fmt: skip


def read(reading: Reading) -> Iterator[Record]:
    """Read an accounting file; see `LogFormat` for errors. Several files: in order of time."""
    log = _Accounting(reading)
    yield from each_line(reading, log.record)
    yield FileEnds(log.last_epoch_ns or log.last_stamp_ns)


class _Accounting:
    """One file of records."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.file, self.clock = reading, reading.file, reading.clock
        self.walltimes = reading.settings.walltimes
        self.line = 0
        # Last time stated by epochs, and by stamps: those are hours off where --tz was not given.
        self.last_epoch_ns = self.last_stamp_ns = 0

    def record(self, text: str, line: int) -> Iterator[Record]:
        """Yield what one row says."""
        self.line = line
        match = _RECORD.match(text)
        if match is None:
            raise Foreign(
                "is no record of PBS accounting: MM/DD/YYYY HH:MM:SS;type;id;message",
                ascii(text[:60]),
            )
        month, day, year, hour, kind, job, message = match.groups()
        stamp = f"{year}-{month}-{day}T{hour}"
        values = _values(message)
        if kind in _OF_JOBS:
            # What a record does not state, that of the job's start did.
            unstated = "" if self.reading.begun(job) is None else None
            queue, user = (values.get(name, unstated) for name in ("queue", "user"))
            self.reading.keep(line, partition=queue, user=user)
        match kind:
            case "E" | "R":
                yield from self._ended(kind, job, stamp, values)
            case "S":
                yield from self._started(job, stamp, values)
            case "A":
                begun = self.reading.begun(job)
                end_ns = self._time(values, "end", stamp)
                if begun is None:
                    raise LeftOut("record type A: aborted before it started")
                yield JobEnded(line, job, end_ns)
                yield from self._plan(job, begun.hosts, begun.start_ns, end_ns, values)
            case "c":
                yield self._shrunk(job, stamp, values)
            case "B":
                start_ns = self._time(values, "start", stamp)
                yield OutageBegan(line, job, _hosts(values), start_ns)
            case "F" | "K" | "k":
                why = f"record type {kind}: the end of a reservation whose beginning is not in the logs"
                yield OutageEnded(line, job, self._time({}, "end", stamp), why)
            case _:
                raise LeftOut(
                    f"record type {kind}: says nothing of when nodes are taken or given back"
                )

    def _ended(
        self, kind: str, job: str, stamp: str, values: dict[str, str]
    ) -> Iterator[Record]:
        """Yield the run of a job that has ended (E) or went back to the queue (R); S may have stated its start."""
        begun = self.reading.begun(job)
        end_ns = self._time(values, "end", stamp)
        if "start" in values:
            start_ns = self._time(values, "start", stamp)
        elif begun is not None:
            start_ns = begun.start_ns
        elif kind == "R":
            raise LeftOut(
                "record type R: sent back to the queue, its start is not in the logs"
            )
        else:
            raise Unusable("a job has ended but states no start", f"job {job[:80]}")
        in_order(start_ns, end_ns)
        if begun is not None and begun.start_ns == start_ns:
            # Nodes released on the way (c) are not the job's any more, though E may list them.
            yield JobEnded(self.line, job, end_ns)
            yield from self._plan(job, begun.hosts, start_ns, end_ns, values)
            return
        hosts = _hosts(values)
        held = self._held(values, hosts)
        nodes = self.reading.nodes(hosts)
        yield JobRan(
            self.line, job, nodes, start_ns, end_ns, held, origin=_origin(values)
        )
        yield from self._plan(job, hosts, start_ns, end_ns, values)

    def _started(
        self, job: str, stamp: str, values: dict[str, str]
    ) -> Iterator[Record]:
        start_ns, hosts = self._time(values, "start", stamp), _hosts(values)
        yield from self._plan(job, hosts, start_ns, None, values)
        held, name = self._held(values, hosts), f"job {job[:80]}"
        yield JobBegan(self.line, job, hosts, start_ns, held, name, _origin(values))

    def _shrunk(self, job: str, stamp: str, values: dict[str, str]) -> JobShrank:
        """A running job has released nodes (pbs_release_nodes); the record lists those it keeps."""
        if self.reading.begun(job) is None:
            raise LeftOut(
                "record type c: nodes released by a job whose start is not in the logs"
            )
        kept, now_ns = _hosts(values), self._time({}, "end", stamp)
        return JobShrank(self.line, job, kept, now_ns, self._held(values, kept))

    def _held(
        self, values: dict[str, str], hosts: tuple[str, ...]
    ) -> tuple[Held, ...] | None:
        """Return the units that a job holds of each host; None: all of it, or nodes turn idle as a whole."""
        log = self.reading.units
        if log is None:
            return None
        sizes = log.sizes(self.reading.nodes(hosts))
        held, even = held_by(values, hosts, log.unit, sizes)
        if held is None:
            why = "a job states no resources, or has its nodes alone: it counts as on all units of its nodes"
            self.reading.note(why, self.line)
        elif not any(held):
            self.reading.note_no_units(self.line, log)
        elif even:
            why = f"the {log.unit.plural} of a job are known of all its nodes together: they count as spread evenly"
            self.reading.note(why, self.line)
        return (WHOLE,) * len(hosts) if held is None else held

    def _plan(
        self,
        job: str,
        hosts: tuple[str, ...],
        start_ns: int,
        end_ns: int | None,
        values: dict[str, str],
    ) -> Iterator[JobPlanned]:
        """Yield what the scheduler knew of a job that has begun; no record states how many nodes one waits for."""
        if self.walltimes:
            epochs = (
                self.clock.epoch(values[key])
                for key in ("etime", "qtime", "ctime")
                if key in values
            )
            known_ns = next((epoch for epoch in epochs if epoch is not None), None)
            limit = limit_ns(values.get(_LIMIT, ""))
            nodes = self.reading.nodes(hosts)
            plan = Plan(known_ns, start_ns, end_ns, limit, len(nodes), nodes)
            yield JobPlanned(job, plan)

    def _time(self, values: dict[str, str], key: str, stamp: str) -> int:
        """An epoch of the message, or the record's stamp where the message states none."""
        if key in values:
            time_ns = self.clock.epoch(values[key])
            if time_ns is None:
                raise Unusable(
                    f"{key}= is no time in seconds since 1970", ascii(values[key][:40])
                )
            self.last_epoch_ns = max(self.last_epoch_ns, time_ns)
        else:
            time_ns = self.clock.parse(stamp, self.file, self.line)
            if time_ns is None:
                raise Unusable("the date of the record does not exist", stamp)
            self.last_stamp_ns = max(self.last_stamp_ns, time_ns)
        return time_ns


def _values(message: str) -> dict[str, str]:
    return {
        key: _unquoted(value) for key, value in _PAIR.findall(message) if key in _WANTED
    }


def _origin(values: Mapping[str, str]) -> Origin:
    return Origin(values.get("user", ""), values.get("queue", ""))


def _unquoted(value: str) -> str:
    return (
        value[1:-1]
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        else value
    )


def _hosts(values: dict[str, str]) -> tuple[str, ...]:
    """Hosts of exec_host (h/7+h/6, h/0*13, h/0-3), else of exec_vnode or nodes ((n1:ncpus=4)+(n2:ncpus=4))."""
    if values.get("exec_host"):
        return host_names(
            (part.partition("/")[0] for part in values["exec_host"].split("+")),
            "exec_host",
        )
    key = "exec_vnode" if values.get("exec_vnode") else "nodes"
    if not values.get(key):
        raise Unusable("names no hosts: no exec_host, no exec_vnode")
    parts = (part.strip("()").partition(":")[0] for part in values[key].split("+"))
    return host_names(map(host_of, parts), key)


# Sockets or NUMA domains of a host that are nodes of their own: host[0], host[1].
_PART_OF_HOST = re.compile(r"(?<=.)\[\d+\]$")
# Torque: n1-gpu/0+n1-gpu/1.
_GPU = re.compile(r"(.+)-gpu/(\d{1,4})")
_SLOTS = re.compile(r"(.+?)/(\d+)(?:-(\d+))?(?:\*(\d+))?")


def held_by(
    values: Mapping[str, str],
    hosts: Sequence[str],
    unit: Unit,
    sizes: Sequence[int | None],
) -> tuple[tuple[Held, ...] | None, bool]:
    """Return the units that a job holds of each of its hosts, and whether only their sum is stated; None: all units.

    Of exec_gpus (Torque, which states the numbers of GPUs), exec_vnode, Resource_List.ngpus and exec_host, the first
    that states it.

    Raises
    ------
    Unusable
        When that is more than the hosts have.
    """
    if "excl" in values.get("Resource_List.place", ""):
        return None, False
    if not unit.cores and values.get("exec_gpus"):
        named = _named(values["exec_gpus"], hosts)
        check(named, sizes)
        return named, False
    by_host = _by_vnode(
        values.get("exec_vnode", ""), "ncpus" if unit.cores else "ngpus"
    )
    if by_host is None and not unit.cores:
        total = _whole(values.get("Resource_List.ngpus", "0"), "Resource_List.ngpus")
        return spread(total, [unit.room(size) for size in sizes]), bool(total) and len(
            hosts
        ) > 1
    if by_host is None:
        by_host = _slots(values.get("exec_host", ""))
    if by_host is None:
        return None, False
    return unit.held([by_host.get(host, 0) for host in hosts], sizes), False


def host_of(vnode: str) -> str:
    """The host of a vnode: a socket or NUMA domain n1[0] is part of n1.

    >>> host_of("n1[0]")
    'n1'
    """
    return _PART_OF_HOST.sub("", vnode)


def _named(text: str, hosts: Sequence[str]) -> tuple[Held, ...]:
    """The numbers of GPUs of each host."""
    numbers: dict[str, set[int]] = {host: set() for host in hosts}
    for part in text.split("+"):
        gpu = _GPU.fullmatch(part)
        if gpu is None or gpu[1] not in numbers:
            raise Unusable(
                "exec_gpus holds no GPU of the job's hosts, such as n1-gpu/0",
                ascii(part[:40]),
            )
        numbers[gpu[1]].add(int(gpu[2]))
    return tuple(tuple(sorted(numbers[host])) or 0 for host in hosts)


def _by_vnode(text: str, resource: str) -> dict[str, int] | None:
    """How much of a resource exec_vnode states of each host: (n1:ncpus=4:ngpus=1)+(n2:ncpus=4); None: no vnode."""
    counts: dict[str, int] = {}
    for part in text.split("+") if text else ():
        vnode, *resources = part.strip("()").split(":")
        host = host_of(vnode)
        stated = [
            each.partition("=")[2]
            for each in resources
            if each.startswith(f"{resource}=")
        ]
        counts[host] = counts.get(host, 0) + sum(
            _whole(value, f"{resource} in exec_vnode") for value in stated
        )
    return counts or None


def _slots(text: str) -> dict[str, int] | None:
    """Slots of exec_host: n1/0*8, n1/7+n1/6, n1/0-3."""
    counts: dict[str, int] = {}
    for part in text.split("+") if text else ():
        slots = _SLOTS.fullmatch(part)
        if slots is None:
            return None
        host, low, high, times = slots.groups()
        counts[host] = counts.get(host, 0) + (
            int(times) if times else int(high or low) - int(low) + 1
        )
    return counts or None


def _whole(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise Unusable(f"{what} is no whole number", ascii(text[:40]))
    return int(text)
