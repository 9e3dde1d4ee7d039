"""The intake of the records that readers yield: filters, units, sampling and the account of rows, in one place.

Records that state the same run of a job are found in `repeated_records`.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

from bft.models import InputError
from bft.replay.logs.collector import OPEN, Collector
from bft.replay.logs.reading import (
    FILTERS,
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
    OfOthers,
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
        self._reading, self._file, self._into = reading, reading.file, reading.into
        self._diagnosis = reading.diagnosis
        into = reading.into
        self._jobs = Running(into, into.job_runs, into.kept.jobs)
        self._outages = Running(into, into.outage_runs, into.kept.outages)
        self._rows = self._foreign = 0
        self._lost: list[int | None] = []
        self._lists_nodes = False
        self._first_foreign = ""

    def use(self, record: Record) -> None:
        """Use one record."""
        into = self._into
        match record:
            case JobRan():
                self._job(record)
            case JobBlock():
                self._block(record)
            case Skipped():
                self._skipped(record)
            case Ignored():
                self._ignored(record)
            case JobBegan():
                self._job_began(record)
            case JobEnded(line, key, end_ns, otherwise):
                self._ended(self._jobs, line, key, end_ns, otherwise)
            case NodesSeen(line, nodes, time_ns, state):
                into.snapshots.add(time_ns, nodes, state)
                if line is not None:
                    self._used()
            case RowUsed():
                self._used()
            case JobPlanned(key, plan):
                into.plans.job(key, plan)
            case Outage(line, key, nodes, start_ns, end_ns, reserved, powered_off):
                into.listed.states_power |= powered_off
                into.outage(
                    key, nodes, start_ns, end_ns, self._file, line, reserved=reserved
                )
                self._used()
            case NodesIdle(line, key, nodes, start_ns, end_ns):
                into.idle(key, nodes, start_ns, end_ns, self._file, line)
                self._used()
            case OutageBegan(line, key, _, _, otherwise) if (
                otherwise and key in into.kept.outages
            ):
                self._ignored(Ignored(line, otherwise))
            case OutageBegan(line, key, hosts, start_ns):
                self._outages.begin(key, Begun(hosts, start_ns, self._file, line))
                self._used()
            case OutageEnded(line, key, end_ns, otherwise):
                self._ended(self._outages, line, key, end_ns, otherwise)
            case NodesListed():
                self._listed(record)
            case _:
                self._use_rare(record)

    def _use_rare(self, record: Record) -> None:
        """Use a record of which a file has few."""
        into = self._into
        match record:
            case JobSuspended():
                into.suspensions.see(record.key, record.start_ns, record[2:])
            case JobShrank():
                self._job_shrank(record)
            case MachineDown():
                self._machine_down(record)
            case Reserved():
                into.plans.reservation(*record)
            case ColumnHeld():
                into.columns.see(*record)
            case JobGone():
                into.job_runs.gone(*record)
            case Observed(start_ns, end_ns, outages):
                into.observe(start_ns, end_ns, outages=outages)
            case WrittenUntil(time_ns):
                into.shows_until(time_ns)
            case FileEnds(time_ns):
                self._file_ends(time_ns)
            case OfOthers():
                self._of_others(record)
            case MachineStated(name, size):
                into.machine = into.machine or name
                if size is not None:
                    into.machine_nodes = max(size, into.machine_nodes or 0)

    def account(self) -> None:
        """Account for the lines of the file, all of whose records were used.

        Raises
        ------
        InputError
            When none of its rows is a record of the format.
        """
        lines = self._reading.seen.lines
        self._diagnosis.lines += lines
        self._diagnosis.rows += self._rows
        self._diagnosis.no_record += lines - self._rows
        if not self._lists_nodes:
            self._into.lose(self._lost)
        if self._foreign and self._foreign == self._rows:
            why = f"is no log of this format: {self._first_foreign}"
            raise InputError(why, file=self._file)

    def _used(self, count: int = 1) -> None:
        self._rows += count
        self._diagnosis.used += count

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
            self._into.kept.jobs.pop(key, None)
        if not same_row:
            self._used()

    def _block(self, record: JobBlock) -> None:
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

    def _of_others(self, record: OfOthers) -> None:
        """Use what a row says that a filter leaves out: when nodes were alive, and that the log states idle ones."""
        name, row = record
        if isinstance(row, NodesIdle):
            self._into.idle_elsewhere = True
            return
        if not FILTERS[name].of_jobs:
            return  # a node of another machine may have the same name
        alive = self._into.others(name).busy_intervals
        if isinstance(row, JobBlock):
            alive.add_together(row.nodes, row.sizes, row.starts_ns, row.ends_ns)
        elif not isinstance(row.nodes, int):
            end_ns = row.start_ns + 1 if row.end_ns is None else row.end_ns
            alive.add(row.nodes, row.start_ns, end_ns)

    def _job_began(self, record: JobBegan) -> None:
        line, key, hosts, start_ns, held, name, origin = record
        if origin is not None:
            self._into.columns.see_job(*origin)
        self._into.kept.starts = True
        if self._jobs.begin(key, Begun(hosts, start_ns, self._file, line, held)):
            why = "a job starts again without having ended: its nodes count as taken until then"
            self._diagnosis.note(why, self._file, line, name)
        self._used()

    def _ended(
        self, runs: Running, line: int, key: Hashable, end_ns: int, otherwise: str
    ) -> None:
        if runs.end(key, end_ns, self._file, line):
            self._used()
        else:
            self._ignored(Ignored(line, otherwise))

    def _job_shrank(self, record: JobShrank) -> None:
        line, key, kept, end_ns, held = record
        begun = self._into.kept.jobs.get(key)
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
        self._into.kept.jobs[key] = replace(begun, hosts=kept, held=held)
        self._used()

    def _machine_down(self, record: MachineDown) -> None:
        line, start_ns, end_ns = record
        if end_ns is None:
            end_ns = self._into.next_start(start_ns)
            why = "an outage has no end: it is taken to last until the next job starts"
            self._diagnosis.note(why, self._file, line)
        self._into.unavailable(list(self._into.names), start_ns, end_ns)
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

    def _file_ends(self, now_ns: int) -> None:
        """Take what is under way to last until the last time that the file states."""
        into, kept = self._into, self._into.kept
        if now_ns < kept.last_ns:
            why = (
                "a file ends before the one read before it: give files in order of time, or what begins in one "
                "and ends in another is lost"
            )
            self._diagnosis.note(why, self._file, 0, self._file, loud=True)
        kept.last_ns = max(now_ns, kept.last_ns)
        into.only_ended = not kept.starts
        if kept.starts:
            into.shows_until(kept.last_ns)
        outages = self._outages.last_until(now_ns)
        # What was under way at the end of the file before has been stated as a whole since, or is now; jobs are handed
        # over when all files were read.
        into.unavailable_intervals.given -= kept.outage_nodes
        kept.outage_nodes = sum(len(begun.hosts) for begun in outages)
        for begun in outages:
            into.unavailable(begun.hosts, begun.start_ns, now_ns)
        self._jobs.last_until(now_ns)
        into.running += len(kept.jobs) - kept.running
        kept.running = len(kept.jobs)
        for count, what in (
            (len(kept.jobs), "jobs"),
            (len(kept.outages), "outages or reservations"),
        ):
            if count:
                why = f"{what} had not ended at the end of a file: their nodes count as taken until its last record"
                self._diagnosis.note(why, self._file, 0, f"{count} of them")


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


class Running:
    """Jobs (or outages) that have begun in a log that states their ends in records of their own.

    Logs are cut into files by day or by size, so what begins in one may end in the next: what is under way is kept
    with the collector from file to file (files in order of time). What never ends lasts to the last record there is.

    Parameters
    ----------
    into, runs
        The collector, and its records of jobs or of outages.
    begun
        What is under way by key, as the file before left it.
    """

    def __init__(
        self, into: Collector, runs: Runs, begun: dict[Hashable, Begun]
    ) -> None:
        self._into, self._runs, self._begun = into, runs, begun

    def begin(self, key: Hashable, begun: Begun) -> bool:
        """Something begins; True when the same was under way since another time, and lasted until now at the most."""
        start_ns = begun.start_ns
        self._runs.ended(
            ("begin", key), 0, start_ns, start_ns, begun.file, begun.line, once=False
        )  # so that a copy counts once
        before = self._begun.get(key)
        again = (
            before is not None
            and before.start_ns != start_ns
            and self.end(key, start_ns)
        )
        self._begun[key] = begun
        return again

    def end(self, key: Hashable, end_ns: int, file: str = "", line: int = 0) -> bool:
        """It ends; True when it was under way. File and line are those of the record with the end, if there is one."""
        begun = self._begun.pop(key, None)
        if begun is None:
            return False
        into, start_ns = self._into, begun.start_ns
        run = key, into.indices(begun.hosts), start_ns, max(end_ns, start_ns)
        where = (file, line) if line else (begun.file, begun.line)
        if self._runs is into.outage_runs:
            into.outage(*run, *where)
        else:
            into.job(*run, *where, held=begun.held)
        return True

    def last_until(self, now_ns: int) -> list[Begun]:
        """Return the runs under way that last until now at the least.

        What has ended by a record that was read before is under way no more: a copy of its beginning came late.
        """
        runs = [(key, begun.start_ns) for key, begun in self._begun.items()]
        for (key, _), ended in zip(runs, self._runs.have_ended(runs), strict=True):
            if ended:
                del self._begun[key]
        return [begun for begun in self._begun.values() if now_ns >= begun.start_ns]
