"""The intake of the records that readers yield: filters, units, sampling and the account of rows, in one place.

Records that state the same run of a job are found in `repeated_records`.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from bft.models import InputError
from bft.replay.logs.collector import OPEN, Collector
from bft.replay.logs.reading import (
    ColumnHeld,
    FileEnds,
    Ignored,
    JobBegan,
    JobBlock,
    JobEnded,
    JobGone,
    JobPlanned,
    JobRan,
    JobShrank,
    JobSuspended,
    LeftOut,
    MachineDown,
    MachineStated,
    NodesIdle,
    NodesListed,
    NodesSeen,
    Observed,
    Outage,
    OutageBegan,
    OutageEnded,
    Reading,
    Record,
    Reserved,
    RowUsed,
    Skipped,
    Unusable,
    WrittenUntil,
    refusal,
)
from bft.replay.logs.repeated_records import Begun, Runs
from bft.replay.logs.units import Held


def collect(records: Iterable[Record], reading: Reading) -> None:
    """Use the records of one file, and account for each of its lines.

    Raises
    ------
    InputError
        When no row is of the format; under strict, when one cannot be used.
    """
    intake = Intake(reading)
    for record in records:
        intake.use(record)
    intake.account()


class Intake:
    """Uses the records of one file."""

    def __init__(self, reading: Reading) -> None:
        self._file, self._into = reading.file, reading.into
        self._diagnosis, self._seen = reading.diagnosis, reading.seen
        self._under_way = UnderWay(reading)
        self._reading = reading
        self._rows = self._foreign = 0
        self._lost: list[int | None] = []
        self._lists_nodes = False
        self._first_foreign = ""
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            JobRan: self._job,
            JobBlock: self._jobs,
            JobPlanned: self._planned,
            JobSuspended: self._suspended,
            JobBegan: self._job_began,
            JobEnded: self._job_ended,
            JobShrank: self._job_shrank,
            Outage: self._outage,
            OutageBegan: self._outage_began,
            OutageEnded: self._outage_ended,
            MachineDown: self._machine_down,
            NodesIdle: self._idle,
            NodesSeen: self._nodes_seen,
            NodesListed: self._listed,
            Reserved: self._reserved,
            RowUsed: self._row_used,
            ColumnHeld: self._column_held,
            JobGone: self._job_gone,
            Skipped: self._skipped,
            Ignored: self._ignored,
            Observed: self._observed,
            WrittenUntil: self._written_until,
            FileEnds: self._file_ends,
            MachineStated: self._machine_stated,
        }

    def use(self, record: Record) -> None:
        """Use one record."""
        self._handlers[type(record)](record)

    def account(self) -> None:
        """Account for the lines of the file, all of whose records were used.

        Raises
        ------
        InputError
            When none of its rows is a record of the format.
        """
        self._diagnosis.lines += self._seen.lines
        self._diagnosis.rows += self._rows
        self._diagnosis.no_record += self._seen.lines - self._rows
        if not self._lists_nodes:
            self._into.lose(self._lost)
        if self._foreign and self._foreign == self._rows:
            why = f"is no log of this format: {self._first_foreign}"
            raise InputError(why, file=self._file)

    def _used(self, count: int = 1) -> None:
        self._rows += count
        self._diagnosis.used += count

    def _row_used(self, record: RowUsed) -> None:
        self._used()

    def _skipped(self, record: Skipped) -> None:
        self._rows += 1
        self._lost.append(record.node_ns)
        self._diagnosis.skip(record.reason, self._file, record.line, record.detail)
        if record.foreign:
            self._foreign += 1
            self._first_foreign = (
                self._first_foreign
                or f"line {record.line} {record.reason}: {record.detail}"
            )

    def _ignored(self, record: Ignored) -> None:
        self._rows += record.rows
        self._diagnosis.leave_out(
            record.reason, self._file, record.line, count=record.rows
        )

    def _job(self, record: JobRan) -> None:
        line, key, nodes, start_ns, end_ns, held, once, same_row, lost_ns, origin = (
            record
        )
        self._into.job(
            key, nodes, start_ns, end_ns, self._file, line, once=once, held=held,
            suspended_ns=lost_ns,
        )  # fmt: skip
        if origin is not None:
            self._into.columns.see_job(*origin)
        if end_ns is not None:
            self._under_way.jobs.forget(key)
        if not same_row:
            self._used()

    def _jobs(self, record: JobBlock) -> None:
        lines, keys, nodes, sizes, starts_ns, ends_ns, held = record
        if held is None:
            self._into.jobs(keys, nodes, sizes, starts_ns, ends_ns, self._file, lines)
            self._used(len(keys))
            return
        begin = 0
        rows = zip(
            lines.tolist(),
            keys,
            sizes.tolist(),
            starts_ns.tolist(),
            ends_ns.tolist(),
            held,
            strict=True,
        )
        for line, key, size, start_ns, end_ns, some in rows:
            mine = array("i", nodes[begin : begin + size].tobytes())
            begin += size
            self._job(JobRan(line, key, mine, start_ns, end_ns, some, once=True))

    def _planned(self, record: JobPlanned) -> None:
        self._into.plans.job(record.key, record.plan)

    def _suspended(self, record: JobSuspended) -> None:
        self._into.suspensions.see(record.key, record.start_ns, record[2:])

    def _job_began(self, record: JobBegan) -> None:
        line, key, hosts, start_ns, held, name, origin = record
        if origin is not None:
            self._into.columns.see_job(*origin)
        if self._under_way.jobs.begin(key, hosts, start_ns, self._file, line, held):
            why = "a job starts again without having ended: its nodes count as taken until then"
            self._diagnosis.note(why, self._file, line, name)
        self._used()

    def _job_ended(self, record: JobEnded) -> None:
        line, key, end_ns, otherwise = record
        if self._under_way.jobs.end(key, end_ns, self._file, line):
            self._used()
        else:
            self._ignored(Ignored(line, otherwise))

    def _job_shrank(self, record: JobShrank) -> None:
        line, key, kept, end_ns, held = record
        begun = self._under_way.jobs.under_way(key)
        if begun is None:
            why = f"line {line}: a job shrinks that has not begun"
            raise InputError(why, file=self._file)
        gone = [
            place for place, host in enumerate(begun.hosts) if host not in set(kept)
        ]
        released = tuple(begun.hosts[place] for place in gone)
        some = None if begun.held is None else [begun.held[place] for place in gone]
        until_ns = max(end_ns, begun.start_ns)
        self._into.busy(
            released, begun.start_ns, until_ns, key=(key, end_ns), held=some
        )
        self._under_way.jobs.replace(key, replace(begun, hosts=kept, held=held))
        self._used()

    def _outage(self, record: Outage) -> None:
        line, key, nodes, start_ns, end_ns, reserved, powered_off = record
        self._into.listed.states_power |= powered_off
        self._into.outage(
            key, nodes, start_ns, end_ns, self._file, line, reserved=reserved
        )
        self._used()

    def _outage_began(self, record: OutageBegan) -> None:
        line, key, hosts, start_ns, otherwise = record
        outages = self._under_way.outages
        if otherwise and outages.under_way(key) is not None:
            self._ignored(Ignored(line, otherwise))
            return
        outages.begin(key, hosts, start_ns, self._file, line)
        self._used()

    def _outage_ended(self, record: OutageEnded) -> None:
        line, key, end_ns, otherwise = record
        if self._under_way.outages.end(key, end_ns, self._file, line):
            self._used()
        else:
            self._ignored(Ignored(line, otherwise))

    def _machine_down(self, record: MachineDown) -> None:
        line, start_ns, end_ns = record
        if end_ns is None:
            end_ns = self._into.next_start(start_ns)
            why = "an outage has no end: it is taken to last until the next job starts"
            self._diagnosis.note(why, self._file, line)
        self._into.unavailable(list(self._into.names), start_ns, end_ns)
        self._used()

    def _idle(self, record: NodesIdle) -> None:
        line, key, nodes, start_ns, end_ns = record
        self._into.idle(key, nodes, start_ns, end_ns, self._file, line)
        self._used()

    def _nodes_seen(self, record: NodesSeen) -> None:
        self._into.snapshots.add(record.time_ns, record.nodes, record.state)
        if record.line is not None:
            self._used()

    def _listed(self, record: NodesListed) -> None:
        self._lists_nodes = True
        nodes = self._reading.nodes(record.hosts, record.cluster)
        self._into.known(record.hosts)
        if self._into.units is not None:
            self._into.units.state_size(nodes, record.units, part=record.part)
            self._into.units.state_more(nodes, record.cores, record.shares)
        listed = self._into.listed
        if record.partitions:
            for node in nodes:
                known = listed.partitions.get(node, frozenset())
                listed.partitions[node] = known.union(record.partitions)
        if record.down:
            listed.down.update(nodes)
        if record.idle:
            listed.idle.update(nodes)
        if record.power:
            listed.power.update(dict.fromkeys(nodes, record.power))
        if record.since_ns is not None:
            listed.absent.append((nodes, 0, record.since_ns))
        if record.until_ns is not None:
            listed.absent.append((nodes, record.until_ns, OPEN))
        if record.was:
            others = self._reading.nodes(record.was, record.cluster)
            listed.aliases.update(zip(others, nodes, strict=True))
        self._used()

    def _column_held(self, record: ColumnHeld) -> None:
        self._into.columns.see(*record)

    def _job_gone(self, record: JobGone) -> None:
        self._into.job_runs.gone(*record)

    def _reserved(self, record: Reserved) -> None:
        self._into.plans.reservation(record.nodes, record.start_ns, record.end_ns)

    def _observed(self, record: Observed) -> None:
        self._into.observe(record.start_ns, record.end_ns, outages=record.outages)

    def _written_until(self, record: WrittenUntil) -> None:
        self._into.shows_until(record.time_ns)

    def _file_ends(self, record: FileEnds) -> None:
        self._under_way.file_ends(record.time_ns)

    def _machine_stated(self, record: MachineStated) -> None:
        self._into.machine = self._into.machine or record.name
        if record.nodes is not None:
            self._into.machine_nodes = max(record.nodes, self._into.machine_nodes or 0)


def each_record(
    reading: Reading, record: Callable[[str, int], None], *, comment: str = "#"
) -> None:
    """Give each line that is neither blank nor a comment to `record`, and account for it.

    Deprecated: readers yield records, see `reading.each_line`. It stays for one release.

    Raises
    ------
    InputError
        When no line is a record of the format.
    """
    warnings.warn(
        "each_record is deprecated: yield records from each_line(reading, record)",
        DeprecationWarning,
        stacklevel=2,
    )
    intake = Intake(reading)
    for number, line in reading.numbered():
        if not line or line.isspace() or line.startswith(comment):
            continue
        try:
            record(line, number)
        except (Unusable, LeftOut) as why:
            intake.use(refusal(why, number))
        else:
            intake.use(RowUsed(number))
    intake.account()


class Add(Protocol):
    """Function that receives intervals: `Collector.job` or `Collector.outage`."""

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
        """Give the run under way other hosts from now on."""
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
        """Return the run under way."""
        return self._begun.get(key)

    def forget(self, key: Hashable) -> None:
        """It has ended, and another record states all of it."""
        self._begun.pop(key, None)

    def last_until(self, now_ns: int) -> list[tuple[Hashable, Begun]]:
        """Return the runs under way that last until now at the least, by key.

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


class UnderWay:
    """Jobs and outages that have begun in the files read into a collector so far and have not ended."""

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
        outages = self.outages.last_until(now_ns)
        # What was under way at the end of the file before has been stated as a whole since, or is now; jobs are handed
        # over when all files were read.
        count = sum(len(begun.hosts) for _, begun in outages)
        self._into.unavailable_intervals.given -= self._kept.outage_nodes
        self._kept.outage_nodes = count
        for _, begun in outages:
            self._into.unavailable(begun.hosts, begun.start_ns, now_ns)
        self.jobs.last_until(now_ns)
        self._into.running += len(self._kept.jobs) - self._kept.running
        self._kept.running = len(self._kept.jobs)
        for count, what in (
            (len(self._kept.jobs), "jobs"),
            (len(self._kept.outages), "outages or reservations"),
        ):
            if count:
                why = f"{what} had not ended at the end of a file: their nodes count as taken until its last record"
                diagnosis.note(why, file, 0, f"{count} of them")
