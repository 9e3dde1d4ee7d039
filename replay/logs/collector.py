"""Collects when nodes were busy or unavailable, in flat arrays whose size follows the fragments, not the rows."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, filterfalse, pairwise
from pathlib import Path
from struct import Struct
from typing import TypeAlias

import numpy as np

from bft.models import InputError
from bft.models.limited_reading import TIMES_STORED, readable
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.hidden import ColumnValues, Contradicted, ListedNodes, Vanished
from bft.replay.logs.hostlists import other_forms
from bft.replay.logs.node_states import BUSY, IDLE, UNAVAILABLE, UNSEEN, Snapshots
from bft.replay.logs.repeated_records import OPEN as OPEN
from bft.replay.logs.repeated_records import (
    JobKeys,
    JobTimes,
    Kept,
    OpenRun,
    Outlier,
    Runs,
    Suspensions,
)
from bft.replay.logs.units import Held, UnitLog
from bft.replay.trace.node_trace import SECOND_NS, IndexArray, TimeArray
from bft.replay.trace.walltimes import NEVER, Walltimes

# No log states when a reservation was made: it counts as announced so long before it begins.
NOTICE_NS = 86_400 * SECOND_NS
_NO_NODES = array("i")


@dataclass(frozen=True, slots=True)
class Plan:
    """Statement of a record on a job; instants in UTC nanoseconds, None where it states none.

    Parameters
    ----------
    known_ns
        Since when it could run: when it became eligible, or was submitted.
    start_ns, end_ns
        When it ran; without a start, the end is when it was cancelled.
    limit_ns
        Its time limit; None: unlimited, or not stated.
    count
        Nodes that it has, or waits for.
    nodes
        By `Collector.indices`; None where it has none, or the log only counts them.
    """

    known_ns: int | None
    start_ns: int | None
    end_ns: int | None
    limit_ns: int | None
    count: int
    nodes: array[int] | None = None

    @property
    def expected_end_ns(self) -> int:
        """When the scheduler had to expect its end."""
        if self.start_ns is None or self.limit_ns is None:
            return NEVER
        return min(self.start_ns + self.limit_ns, NEVER)


class Plans:
    """Plans of jobs, and reservations; several records of one run are one plan, that of the latest end."""

    def __init__(self) -> None:
        self._begun: dict[tuple[Hashable, int], Plan] = {}
        self._waiting: dict[tuple[Hashable, int], Plan] = {}
        self._last_start: dict[Hashable, int] = {}
        self._reserved: dict[tuple[int, int | None, bytes], array[int]] = {}

    def job(self, key: Hashable, plan: Plan) -> None:
        """Add what a record states of a job; one that neither waited nor ran, or on no nodes, is left out."""
        known = plan.start_ns if plan.known_ns is None else plan.known_ns
        if (
            known is None
            or plan.count < 1
            or (plan.end_ns is not None and plan.end_ns < (plan.start_ns or known))
        ):
            return
        start_ns = plan.start_ns
        if start_ns is None:
            before = self._waiting.get((key, known))
            if before is None or before.end_ns is None:
                self._waiting[key, known] = replace(plan, known_ns=known)
            return
        plan = replace(plan, known_ns=min(known, start_ns))
        self._last_start[key] = max(start_ns, self._last_start.get(key, start_ns))
        other = self._begun.get((key, start_ns))
        if other is None:
            self._begun[key, start_ns] = plan
        elif other.end_ns is None or (
            plan.end_ns is not None and plan.end_ns > other.end_ns
        ):
            limit_ns = other.limit_ns if plan.limit_ns is None else plan.limit_ns
            first = min(known, other.known_ns or known)
            self._begun[key, start_ns] = replace(
                plan, known_ns=first, limit_ns=limit_ns
            )

    def reservation(self, nodes: array[int], start_ns: int, end_ns: int | None) -> None:
        """Add a reservation."""
        self._reserved[start_ns, end_ns, nodes.tobytes()] = nodes

    def _whole(self) -> Iterator[Plan]:
        """Plans of the jobs that began; one without an end had ended when the same job began again."""
        next_starts = _next_starts(self._begun)
        for run, plan in self._begun.items():
            next_start_ns = next_starts.get(run)
            if plan.end_ns is None and next_start_ns is not None:
                yield replace(plan, end_ns=next_start_ns)
            else:
                yield plan

    def walltimes(
        self, names: dict[str, int], listed: set[int], owners: dict[int, str]
    ) -> Walltimes:
        """All of them, in order of when they were known; nodes by the names that the trace has for them."""
        forms = other_forms(list(names), listed, owners)
        rows = [(False, plan.known_ns or 0, plan) for plan in self._whole()]
        # What waited without an end in one file may have begun in another.
        rows += [
            (False, known, plan)
            for (key, known), plan in self._waiting.items()
            if plan.end_ns is not None or self._last_start.get(key, -1) < known
        ]
        for (start, end, _), nodes in self._reserved.items():
            stays = Plan(
                start - NOTICE_NS,
                start,
                end,
                None if end is None else end - start,
                len(nodes),
                nodes,
            )
            rows.append((True, start - NOTICE_NS, stays))
        rows.sort(
            key=lambda row: (
                row[1],
                row[0],
                row[2].start_ns or NEVER,
                row[2].count,
                row[2].nodes or _NO_NODES,
            )
        )
        plans = [plan for _, _, plan in rows]
        flat = np.frombuffer(
            b"".join((plan.nodes or _NO_NODES).tobytes() for plan in plans),
            dtype=np.int32,
        )
        place = np.arange(len(names), dtype=np.int32)
        place[list(forms)] = list(forms.values())
        used, nodes_of = np.unique(place[flat], return_inverse=True)
        every = list(names)
        return Walltimes(
            tuple(every[node] for node in used),
            np.array([is_reserved for is_reserved, _, _ in rows], dtype=bool),
            known=np.array([known for _, known, _ in rows], dtype=np.int64),
            start=np.array(
                [NEVER if plan.start_ns is None else plan.start_ns for plan in plans],
                dtype=np.int64,
            ),
            end=np.array(
                [NEVER if plan.end_ns is None else plan.end_ns for plan in plans],
                dtype=np.int64,
            ),
            expected_end=np.array(
                [plan.expected_end_ns for plan in plans], dtype=np.int64
            ),
            count=np.array([plan.count for plan in plans], dtype=np.int64),
            nodes=nodes_of.astype(np.int32),
            offsets=np.cumsum(
                [0, *(len(plan.nodes or _NO_NODES) for plan in plans)], dtype=np.int64
            ),
        )


def _next_starts(
    runs: Iterable[tuple[Hashable, int]],
) -> dict[tuple[Hashable, int], int]:
    """Map each run (job and start) that is not the last of its job to the start of the next one."""
    starts_of: dict[Hashable, list[int]] = {}
    for job, start_ns in runs:
        starts_of.setdefault(job, []).append(start_ns)
    following: dict[tuple[Hashable, int], int] = {}
    for job, starts in starts_of.items():
        for start_ns, next_start_ns in pairwise(sorted(starts)):
            following[job, start_ns] = next_start_ns
    return following


# Node index, start and end of intervals, a row each.
Columns: TypeAlias = tuple[IndexArray, TimeArray, TimeArray]
MIN_GAP_NS = 10 * SECOND_NS
_DAY_NS = 86_400 * SECOND_NS
# Share of the jobs' node-time from which on nodes count as shared by jobs.
_SHARED = 0.2
# Jobs from which on it can be told whether they share nodes.
_ENOUGH_JOBS = 20
MOST_NODES = 262_144
# Merged node-intervals that any logs may have: three months of a machine of 4,600 nodes with jobs of an hour; and the
# memory that each takes in the end (benchmarks/year.py).
MAX_FRAGMENTS = 10_000_000
FRAGMENT_BYTES = 150
# Node-intervals that are merged at once. Blocks that fit a processor's cache sort fastest.
BLOCK = 500_000
# Node-intervals of which some nodes' are merged at a time: they take ten times as much memory meanwhile.
AT_ONCE = 4_000_000
# Merged node-intervals, 20 bytes each, from which on blocks are united and short gaps closed before the end.
MANY = 2_000_000
# Start, end, and the number of nodes of an interval. Packed, as one row is written faster than three columns are.
_SPAN = np.dtype([("start", "=i8"), ("end", "=i8"), ("count", "=i4")])
_pack = Struct("=qqi").pack


class Intervals:
    """Intervals [start, end) of nodes, of which overlapping and touching ones are merged now and then.

    Parameters
    ----------
    min_gap_ns
        Gaps shorter than this may be closed: here only when memory calls for it, in the end all by `node_trace`.
    max_fragments
        Merged node-intervals beyond this number are refused: a few lines of a log may state any number of them.

    Attributes
    ----------
    given, given_s, closed
        Node-intervals added, the node-seconds of those that have an end, and gaps closed, so far.
    """

    def __init__(self, min_gap_ns: int, max_fragments: int = MAX_FRAGMENTS) -> None:
        self.min_gap_ns, self.max_fragments = min_gap_ns, max_fragments
        self.given = 0
        self.given_s = 0.0
        self.closed = 0
        self._nodes, self._spans = array("i"), bytearray()
        # Each sorted and merged in itself; the first one holds most.
        self._runs: list[Columns] = []

    def add(self, nodes: array[int], start: int, end: int) -> None:
        """Add one interval of several nodes."""
        self._nodes.extend(nodes)
        self._spans += _pack(start, end, len(nodes))
        if end != OPEN:
            self.given_s += (end - start) / SECOND_NS * len(nodes)
        if len(self._nodes) >= BLOCK:
            self._settle()

    def add_together(
        self, nodes: IndexArray, counts: TimeArray, starts: TimeArray, ends: TimeArray
    ) -> None:
        """Add intervals, the nodes of one after the other; merged as if each were added by itself."""
        self.given_s += float(((ends - starts) / SECOND_NS * counts).sum())
        spans = np.empty(len(counts), dtype=_SPAN)
        spans["start"], spans["end"], spans["count"] = starts, ends, counts
        until = np.cumsum(counts)
        row = done = 0
        while row < len(counts):
            # Up to the interval with which a block is full.
            full = int(np.searchsorted(until, done + BLOCK - len(self._nodes)))
            stop = min(full + 1, len(counts))
            last = int(until[stop - 1])
            self._nodes.frombytes(nodes[done:last].tobytes())
            self._spans += spans[row:stop].tobytes()
            row, done = stop, last
            if len(self._nodes) >= BLOCK:
                self._settle()

    def overlap(self) -> float:
        """The share of the node-time of all intervals that another interval on the same node has as well."""
        _, starts, ends = self.merged()
        known = ends < OPEN
        alone_s = float(((ends - starts)[known] / SECOND_NS).sum())
        return 1 - alone_s / self.given_s if self.given_s else 0.0

    def merged(self) -> Columns:
        """Node index, start and end of the merged intervals, sorted by node and start."""
        self._settle()
        self._unite()
        return self._runs[0]

    def _settle(self) -> None:
        """Merge the waiting intervals of nodes; unite all runs once the later ones are as long as the first.

        So each row moves rarely.
        """
        if self._runs and not self._nodes:
            return
        self.given += len(self._nodes)
        nodes = np.frombuffer(self._nodes, dtype=np.int32)
        spans = np.frombuffer(self._spans, dtype=_SPAN)
        self._nodes, self._spans = array("i"), bytearray()
        self._runs.append(
            merge(nodes, spans["start"], spans["end"], counts=spans["count"])
        )
        if sum(len(run[0]) for run in self._runs[1:]) > max(
            len(self._runs[0][0]), MANY
        ):
            self._unite()
            if len(self._runs[0][0]) > MANY:
                closed = _without_gaps(self._runs[0], self.min_gap_ns)
                self.closed += len(self._runs[0][0]) - len(closed[0])
                self._runs = [closed]

        if sum(len(run[0]) for run in self._runs) > self.max_fragments:
            self._unite()  # they may overlap
            if len(self._runs[0][0]) > self.max_fragments:
                raise _too_many(self.max_fragments)

    def _unite(self) -> None:
        """Make one run of all, some nodes after the other, so that each merge is of a block."""
        if len(self._runs) == 1:
            return
        every = BLOCK // len(self._runs) + 1
        edges = np.unique(self._runs[0][0][every::every])
        cuts = [
            [0, *np.searchsorted(run[0], edges).tolist(), len(run[0])]
            for run in self._runs
        ]
        parts = [
            merge(
                *concatenated(
                    _rows(run, at[part], at[part + 1])
                    for run, at in zip(self._runs, cuts, strict=True)
                )
            )
            for part in range(len(edges) + 1)
        ]
        self._runs = [concatenated(parts)]


def _next_start(busy: Columns, node: int, after_ns: int) -> int | None:
    """The first start after an instant on a node, in intervals that are sorted by node and start."""
    first, stop = np.searchsorted(busy[0], (node, node + 1)).tolist()
    place: int = first + int(
        np.searchsorted(busy[1][first:stop], after_ns, side="right")
    )
    return int(busy[1][place]) if place < stop else None


def _cut(
    run: OpenRun, nodes: array[int], busy: Columns, into: Intervals
) -> tuple[array[int], list[int]]:
    """End a run on each node where a job starts before the run ends; return the other nodes, and these ends."""
    left, ended = array("i"), list[int]()
    for node in nodes:
        next_ns = _next_start(busy, node, run.start_ns)
        if next_ns is None or (run.end_ns is not None and next_ns >= run.end_ns):
            left.append(node)
        else:
            into.add(array("i", [node]), run.start_ns, next_ns)
            ended.append(next_ns)
    return left, ended


def most_fragments(files: Iterable[str]) -> int:
    """Return how many merged node-intervals are usual for logs of this size."""
    stored = sum(Path(file).stat().st_size for file in files if Path(file).is_file())
    return max(MAX_FRAGMENTS, TIMES_STORED * stored // FRAGMENT_BYTES)


def _too_many(limit: int) -> InputError:
    what = f"the logs state more than {limit:,} intervals of single nodes (jobs x their nodes)"
    takes = readable(limit * FRAGMENT_BYTES)
    hint = f"they take {takes} of memory or more; --max-fragments raises the limit"
    return InputError(what, hint=hint)


def _rows(columns: Columns, first: int, stop: int) -> Columns:
    node, starts, ends = columns
    return node[first:stop], starts[first:stop], ends[first:stop]


def concatenated(parts: Iterable[Columns]) -> Columns:
    """Return the intervals of all parts as one."""
    node, starts, ends = zip(*parts, strict=True)
    return np.concatenate(node), np.concatenate(starts), np.concatenate(ends)


class Collector:
    """The collector of what readers hand over: which nodes there are, and when they were busy or unavailable.

    All times are UTC nanoseconds, an end of None is that of the observation.

    Parameters
    ----------
    min_gap_ns
        As `Intervals` has it.
    most_nodes
        Names of nodes beyond this number are refused: a damaged log must not fill the memory.
    max_fragments
        So are intervals of nodes, as `Intervals` has it, and jobs without names of nodes.

    Attributes
    ----------
    names
        Node name -> index, in the order in which they were met.
    universe
        Indices of the nodes that belong to the machine; empty as long as no list of them was read.
    named_beside
        Indices of the nodes that were first named by what was read `beside` the logs of jobs.
    clusters, owners
        Clusters that rows state, and the one that names a node by its index; see `Reading.nodes`.
    machine, machine_nodes
        Name of the machine and, for logs with counts alone, how many nodes it has; readers may set both.
    first_start, first_end, last, running
        Of the jobs: earliest start, earliest end, latest start or end, and how many had no end yet.
    job_times, outliers
        Start and end of each job; and those that stretch the log, with file and line where these are known (`settle`).
    shown_until
        Until when the logs show all that happened, where they write it down as it happens; 0: they do not. Readers set
        it by `shows_until`.
    only_ended
        Whether a log has no rows of jobs that were still running when it ended.
    stated, stated_outages
        Window of observation that the log itself states; and the one of its outages, which counts when nothing else is
        known, as a node may be down for years.
    job_runs, outage_runs, idle_runs
        Records that other records may repeat or close.
    kept
        What is under way from one file to the next; see `intake.Running`.
    suspensions, suspended, never_suspended
        Jobs that were suspended; of those of which no listing says when, nodes, start, end and for how long
        (`settle`); and when other jobs ran.
    pauses
        Node and instant at which a job was suspended.
    snapshots
        States of nodes at single instants, until `settle` makes intervals of them.
    units
        Jobs that held some units of a node, where these turn idle one by one; None: nodes turn idle as a whole.
    plans
        What the scheduler knew of jobs and reservations, where readers are asked for it (`Settings.walltimes`).
    left_out
        By the name of a filter the nodes of rows that it leaves out, apart from `names`, and when jobs ran there.
    idle_elsewhere
        Whether rows that filters leave out state where nodes are idle.
    columns, listed, contradicted, vanished
        What columns of tables of jobs hold, what the list of nodes says beyond which nodes there are, and jobs without
        an end that later jobs ended, or that were gone in a later listing (`hidden`).
    reported
        Whether a log of jobs (no list of nodes, nothing read `beside`) reported anything of any time.
    lost_node_ns, lost_rows
        Node-time of the rows of jobs that were skipped, as far as they state it, and how many others were skipped.
    overdue
        Jobs without an end that run for more than a day and twice the longest that ended: nodes, and since when.
    sampled_node_ns
        Node-time by which states known at single instants may be off.
    free_overdue
        Whether such jobs are taken to have ended then; otherwise they hold their nodes.
    """

    def __init__(
        self,
        *,
        min_gap_ns: int = MIN_GAP_NS,
        most_nodes: int = MOST_NODES,
        max_fragments: int = MAX_FRAGMENTS,
    ) -> None:
        self.min_gap_ns = min_gap_ns
        self.most_nodes = most_nodes
        self.max_fragments = max_fragments
        self._open = 0  # node-intervals of records without an end
        self.names: dict[str, int] = {}
        self.universe: set[int] = set()
        self.named_beside: set[int] = set()
        self.clusters: dict[str, None] = {}
        self.owners: dict[int, str] = {}
        self.machine = ""
        self.machine_nodes: int | None = None
        self.first_start = self.first_end = OPEN
        self.last = 0
        self.running = 0
        self.job_times = JobTimes()
        self.outliers: list[tuple[Outlier, tuple[str, int] | None]] = []
        self.shown_until = 0
        self.only_ended = False
        self.stated: tuple[int, int] | None = None
        self.stated_outages: tuple[int, int] | None = None
        self.busy_intervals = Intervals(min_gap_ns, max_fragments)
        self.unavailable_intervals = Intervals(min_gap_ns, max_fragments)
        self.idle_intervals = Intervals(
            0, max_fragments
        )  # its gaps are no idle time, however short
        self.left_out: dict[str, Collector] = {}
        self.idle_elsewhere = False
        self.reported = False
        self.lost_node_ns = self.lost_rows = 0
        self.overdue: list[tuple[int, int]] = []
        self.sampled_node_ns = 0
        self.free_overdue = False
        self._beside = False
        # Nodes, start, end, and the number of the record among the runs with an identity, or -1.
        self._counted = (array("q"), array("q"), array("q"), array("q"))
        self.job_runs, self.outage_runs, self.idle_runs = (
            Runs("job"),
            Runs("outage"),
            Runs("idle row"),
        )
        self.kept = Kept()
        self.job_keys = JobKeys()
        self.suspensions = Suspensions()
        self.suspended: list[tuple[array[int], int, int, int]] = []
        self.pauses: set[tuple[int, int]] = set()
        self.never_suspended: Columns | None = None
        self.snapshots = Snapshots()
        self.units: UnitLog | None = None
        self.plans = Plans()
        self.contradicted, self.vanished = Contradicted(), Vanished()
        self.columns = ColumnValues()
        self.listed = ListedNodes()

    def others(self, left_out: str) -> Collector:
        """Return what collects the rows that a filter leaves out."""
        if left_out not in self.left_out:
            self.left_out[left_out] = Collector(
                min_gap_ns=0,
                most_nodes=self.most_nodes,
                max_fragments=self.max_fragments,
            )
        return self.left_out[left_out]

    @contextmanager
    def beside(self, events: bool = True) -> Iterator[None]:
        """Read files beside the logs of jobs: they do not change the window of observation."""
        before, self._beside = self._beside, events
        known = len(self.names)
        try:
            yield
        finally:
            self._beside = before
            if events:
                self.named_beside.update(range(known, len(self.names)))

    def indices(self, hosts: Sequence[str]) -> array[int]:
        """Indices of nodes by name, new names included; they stay valid, so that readers may keep them.

        Raises
        ------
        InputError
            When that makes more nodes than any machine has.
        """
        names = self.names
        try:
            return array("i", map(names.__getitem__, hosts))
        except KeyError:
            new = dict.fromkeys(filterfalse(names.__contains__, hosts))
        if len(names) + len(new) > self.most_nodes:
            last = next(reversed(new))
            raise InputError(
                f"the logs name more than {self.most_nodes:,} nodes, the last one {last!r}",
                hint="--max-nodes raises the limit",
            )
        names.update(zip(new, count(len(names)), strict=False))
        return array("i", map(names.__getitem__, hosts))

    def busy(
        self,
        hosts: Sequence[str],
        start_ns: int,
        end_ns: int | None,
        *,
        key: Hashable = None,
        held: Sequence[Held] | None = None,
    ) -> None:
        """A job ran on these nodes. Repeated calls are not found to be repeated, see `job`.

        With `held`, as `job` has it, they are: of calls with one key and start the latest end counts.
        """
        if held is None:
            self.busy_nodes(self.indices(hosts), start_ns, end_ns)
        else:
            nodes, held = self._some(self.indices(hosts), held)
            self.hold_units(key, nodes, held, start_ns, self._seen(start_ns, end_ns))

    def busy_nodes(self, nodes: array[int], start_ns: int, end_ns: int | None) -> None:
        """A job ran on these nodes, by `indices`."""
        self.busy_intervals.add(nodes, start_ns, self._seen(start_ns, end_ns))

    def job(
        self,
        key: Hashable,
        nodes: array[int] | int,
        start_ns: int,
        end_ns: int | None,
        file: str,
        line: int,
        *,
        once: bool = False,
        held: Sequence[Held] | None = None,
        suspended_ns: int = 0,
    ) -> None:
        """A record of a job that other records may repeat, or close when it has no end; see `Runs`.

        Parameters
        ----------
        key
            What tells the job from others that start at the same time: its id, where there is one.
        nodes
            By `indices`; or how many, where the log has no names.
        start_ns, end_ns
            An end of None: the job was running when the record was written.
        file, line
            Where the record is.
        once
            Whether this key has one run at a time, so that a later start ends the run before.
        held
            What it has of each node; None: all of it. Counts where `units` is not None.
        suspended_ns
            For how long it was suspended.
        """
        if held is not None and not isinstance(nodes, int):
            nodes, held = self._some(nodes, held)
        if end_ns is None:
            self._began(start_ns)
            self._hold(nodes)
            self.job_runs.begun(key, nodes, start_ns, file, line, once=once, held=held)
            if (
                held is not None
                and self.units is not None
                and not isinstance(nodes, int)
            ):
                self.units.name(key, nodes, held, start_ns)
            return
        if isinstance(nodes, int):
            self.count(nodes, start_ns, end_ns, len(self.job_runs))
        elif held is not None:
            self.hold_units(key, nodes, held, start_ns, self._seen(start_ns, end_ns))
        elif suspended_ns:
            end_ns = self._seen(start_ns, end_ns)
            self.suspensions.ran(key, nodes, start_ns, end_ns, suspended_ns)
        else:
            self.busy_intervals.add(nodes, start_ns, self._seen(start_ns, end_ns))
        self.job_runs.ended(key, nodes, start_ns, end_ns, file, line, once=once)

    @staticmethod
    def _some(nodes: array[int], held: Sequence[Held]) -> tuple[array[int], list[Held]]:
        """The nodes of which a job holds any units, and what it holds."""
        some = [place for place, units in enumerate(held) if units]
        return array("i", (nodes[place] for place in some)), [
            held[place] for place in some
        ]

    def hold_units(
        self,
        key: Hashable,
        nodes: Sequence[int],
        held: Sequence[Held],
        start_ns: int,
        end_ns: int,
    ) -> None:
        """A job held some units of these nodes; see `UnitLog.add`."""
        if self.units is not None:
            self.units.add(key, nodes, held, start_ns, end_ns)
            self.busy_intervals.given += len(nodes)
            if len(self.units) > self.max_fragments:
                raise _too_many(self.max_fragments)

    def jobs(
        self,
        keys: Sequence[Hashable] | TimeArray,
        nodes: IndexArray,
        sizes: TimeArray,
        starts: TimeArray,
        ends: TimeArray,
        file: str,
        lines: TimeArray,
    ) -> None:
        """Records of jobs that have ended, of keys that have one run at a time; as `job` has them, one after the other.

        Parameters
        ----------
        keys, sizes, starts, ends, lines
            One entry a job; sizes say how many nodes it has.
        nodes
            Of all jobs, one after the other, by `indices`.
        file
            Where the records are.
        """
        self._widen(int(starts.min()), int(ends.min()), int(ends.max()))
        if not self._beside:
            self.job_times.add_together(starts, ends)
        self.busy_intervals.add_together(nodes, sizes, starts, ends)
        self.job_runs.ended_together(keys, nodes, sizes, starts, ends, file, lines)

    def outage(
        self,
        key: Hashable,
        nodes: array[int],
        start_ns: int,
        end_ns: int | None,
        file: str,
        line: int,
        *,
        reserved: bool = False,
    ) -> None:
        """A record of an outage that other records may repeat, or close; parameters as `job` has them.

        An outage without an end in any record ends on each of its nodes when a job starts there. With `reserved` it is
        a reservation, during which jobs may run.
        """
        if end_ns is None:
            self.reported |= not self._beside
            self._hold(nodes)
            self.outage_runs.begun(
                key, nodes, start_ns, file, line, once=False, reserved=reserved
            )
            return
        self.outage_runs.ended(key, nodes, start_ns, end_ns, file, line, once=False)
        self.unavailable_nodes(nodes, start_ns, end_ns)

    def idle(
        self,
        key: Hashable,
        nodes: array[int],
        start_ns: int,
        end_ns: int | None,
        file: str,
        line: int,
    ) -> None:
        """A record of `idle_nodes` that other records may repeat, or close; parameters as `job` has them."""
        if end_ns is None:
            self.reported |= not self._beside
            self._hold(nodes)
            self.idle_runs.begun(key, nodes, start_ns, file, line, once=False)
            return
        self.idle_runs.ended(key, nodes, start_ns, end_ns, file, line, once=False)
        self.idle_nodes(nodes, start_ns, end_ns)

    def unavailable(
        self, hosts: Sequence[str], start_ns: int, end_ns: int | None
    ) -> None:
        """These nodes were down, draining, in maintenance or reserved: neither busy nor idle.

        Does not extend the default window of observation: a node may be down for years.
        """
        self.unavailable_nodes(self.indices(hosts), start_ns, end_ns)

    def unavailable_nodes(
        self, nodes: array[int], start_ns: int, end_ns: int | None
    ) -> None:
        """These nodes, by `indices`, were unavailable."""
        self.reported |= not self._beside
        self.unavailable_intervals.add(
            nodes, start_ns, OPEN if end_ns is None else end_ns
        )

    def idle_nodes(self, nodes: array[int], start_ns: int, end_ns: int | None) -> None:
        """These nodes, by `indices`, were idle.

        Once one is stated to be, no node of the machine is idle but where this is stated and neither a job nor an
        outage says otherwise. Time of which nothing is stated then is busy if no job is known at all (a log of idle
        nodes), else unavailable.
        """
        self.reported |= not self._beside
        self.idle_intervals.add(nodes, start_ns, OPEN if end_ns is None else end_ns)

    def known(self, hosts: Sequence[str]) -> None:
        """These nodes belong to the machine. Once any is known, nodes not known do not belong to it."""
        self.universe.update(self.indices(hosts))

    def count(
        self, nodes: int, start_ns: int, end_ns: int | None, row: int = -1
    ) -> None:
        """A job ran on so many nodes of which the log has no names: they are chosen later, first fit."""
        self._count(nodes, start_ns, self._seen(start_ns, end_ns), row)
        if len(self._counted[0]) > self.max_fragments:
            raise _too_many(self.max_fragments)

    def _count(self, *row: int) -> None:
        for column, value in zip(self._counted, row, strict=True):
            column.append(value)

    def _hold(self, nodes: array[int] | int) -> None:
        """Count what records without an end keep until all files were read."""
        self._open += 1 if isinstance(nodes, int) else len(nodes)
        if self._open > self.max_fragments:
            raise _too_many(self.max_fragments)

    def lose(self, rows: Sequence[int | None]) -> None:
        """Rows of jobs were skipped; each with its node-time, or None where it does not state it."""
        if not self._beside:
            stated = [node_ns for node_ns in rows if node_ns is not None]
            self.lost_node_ns += sum(stated)
            self.lost_rows += len(rows) - len(stated)

    def observe(self, start_ns: int, end_ns: int, *, outages: bool = False) -> None:
        """The log states a window of observation of its own; several make the one that spans them.

        With `outages`, all that it is known from are times when nodes were unavailable.
        """
        if self._beside:
            return
        self.reported = True
        known = self.stated_outages if outages else self.stated
        if known is not None:
            start_ns, end_ns = min(start_ns, known[0]), max(end_ns, known[1])
        if outages:
            self.stated_outages = start_ns, end_ns
        else:
            self.stated = start_ns, end_ns

    def shows_until(self, time_ns: int) -> None:
        """The log writes down what happens as it happens, and was written until this time."""
        if not self._beside:
            self.shown_until = max(self.shown_until, time_ns)

    def states_outages(self) -> bool:
        """Whether what was read so far states when nodes were unavailable, or idle."""
        intervals = (self.unavailable_intervals, self.idle_intervals)
        runs = (self.outage_runs, self.idle_runs)
        return bool(
            any(len(each.merged()[0]) for each in intervals)
            or any(len(each) or list(each.open_starts()) for each in runs)
            or len(self.snapshots)
        )

    def next_start(self, after_ns: int) -> int | None:
        """Earliest start of a job with names of nodes after this time, as far as files were read; of any job."""
        every = [self, *self.left_out.values()]
        starts = np.concatenate([each.busy_intervals.merged()[1] for each in every])
        later = starts[starts > after_ns]
        to_come = [
            start_ns for start_ns in self.job_runs.open_starts() if start_ns > after_ns
        ]
        return min(
            [*to_come, int(later.min())] if len(later) else to_come, default=None
        )

    def settle(self, diagnosis: Diagnosis) -> None:
        """Resolve records that repeat or close others, when all files were read; further calls change nothing."""
        self._settle_snapshots(diagnosis)
        for nodes, since_ns, until_ns in self.listed.absent:
            self.unavailable_intervals.add(nodes, since_ns, until_ns)
        self.listed.absent = []
        under_way = self._under_way()
        found = self.job_times.outliers()
        # The records are forgotten below.
        self.outliers = self.outliers or [
            (each, self.job_runs.place_of(each.start_ns)) for each in found
        ]
        self._keep_latest_counts()
        for runs, intervals in (
            (self.job_runs, self.busy_intervals),
            (self.outage_runs, self.unavailable_intervals),
            (self.idle_runs, self.idle_intervals),
        ):
            repeated, remaining = runs.settle(diagnosis)
            intervals.given -= repeated
            if runs is self.job_runs:
                remaining = self._without_contradicted(remaining + under_way, diagnosis)
            if runs is self.outage_runs:
                remaining = self._without_ended(remaining, diagnosis)
            longest = self.job_times.longest() if runs is self.job_runs else 0
            # A short log shows few long jobs: one that runs a little longer than these is no reason for doubt.
            believed = max(2 * longest, _DAY_NS) if longest else 0
            for run in remaining:
                end = OPEN if run.end_ns is None else run.end_ns
                likely = run.start_ns + believed
                goes_on = end == OPEN or run.under_way
                if goes_on and believed and likely < end:
                    count = run.nodes if isinstance(run.nodes, int) else len(run.nodes)
                    self.overdue.append((count, likely))
                    end = likely if self.free_overdue else end
                if isinstance(run.nodes, int):
                    self._count(run.nodes, run.start_ns, end, -1)
                elif run.held is not None:
                    self.hold_units(run.key, run.nodes, run.held, run.start_ns, end)
                elif runs is self.job_runs:
                    listed = run.key, run.start_ns
                    for begin, until in self.suspensions.running(listed, end):
                        intervals.add(run.nodes, begin, until)
                else:
                    intervals.add(run.nodes, run.start_ns, end)
            without_end = [run for run in remaining if run.end_ns is None]
            if without_end:
                first = min(without_end, key=lambda run: run.start_ns)
                why = f"{runs.what} without an end in any record: taken to last to the end of the window"
                diagnosis.note(
                    why, first.file, first.line, "the earliest", count=len(without_end)
                )
            if runs is self.job_runs:
                self.running += len(without_end)
                self._add_suspended()
                # Outages that have no end look at when jobs start.
                self.busy_intervals.given += (
                    0 if self.units is None else self.units.settle()
                )

    def _settle_snapshots(self, diagnosis: Diagnosis) -> None:
        add = {
            UNSEEN: self.unavailable_nodes,
            IDLE: self.idle_nodes,
            BUSY: self.busy_nodes,
            UNAVAILABLE: self.unavailable_nodes,
        }
        sampled = self.snapshots.settle(len(self.names), add, diagnosis)
        if sampled is not None:
            self.observe(sampled.first_ns, sampled.last_ns)
            self.shows_until(sampled.last_ns)
            self.sampled_node_ns += sampled.node_ns

    def _add_suspended(self) -> None:
        """Add the jobs that were suspended: busy but for the times that listings state."""
        runs = self.suspensions.runs
        if runs:
            self.never_suspended = self.busy_intervals.merged()
        for run, (nodes, end_ns, suspended_ns) in runs.items():
            ran_ns = 0
            for begin, until in self.suspensions.running(run, end_ns):
                self.busy_intervals.add(nodes, begin, until)
                ran_ns += until - begin
                if until < end_ns:
                    self.pauses.update((node, until) for node in nodes)
            left_ns = min(suspended_ns, suspended_ns - (end_ns - run[1] - ran_ns))
            if left_ns > 0:
                self.suspended.append((nodes, run[1], end_ns, left_ns))
        runs.clear()

    def _under_way(self) -> list[OpenRun]:
        """Jobs that had begun when the last file ended, by records of their own; they last until its last record."""
        kept, found = self.kept, []
        begun = [
            (key, each)
            for key, each in kept.jobs.items()
            if each.start_ns <= kept.last_ns
        ]
        ended = self.job_runs.have_ended([(key, each.start_ns) for key, each in begun])
        for (key, each), over in zip(begun, ended, strict=True):
            if over:
                continue
            nodes = self.indices(each.hosts)
            held: Sequence[Held] | None = each.held
            if held is not None:
                nodes, held = self._some(nodes, held)
            end_ns = kept.last_ns
            self._widen(each.start_ns, end_ns, end_ns)
            if not self._beside:
                self.job_times.add(each.start_ns, OPEN)  # how long it runs is not known
            run = OpenRun(
                nodes,
                each.start_ns,
                end_ns,
                each.file,
                each.line,
                once=False,
                key=key,
                held=held,
                under_way=True,
            )
            found.append(run)
        kept.jobs = {}
        return found

    def _without_contradicted(
        self, remaining: list[OpenRun], diagnosis: Diagnosis
    ) -> list[OpenRun]:
        """End jobs of which no record states the end where a later job starts on a node, if jobs share no nodes.

        Slurm calls them runaway; of PBS the record of the end is lost.
        """
        open_runs = [run for run in remaining if not isinstance(run.nodes, int)]
        few = len(self.job_times) < _ENOUGH_JOBS
        if not open_runs or few or self.units is not None:
            return remaining
        if self.busy_intervals.overlap() > _SHARED:
            return remaining
        # When jobs start on each node, those without an end among them.
        starts = [self._alive()]
        if self._shared_with_others() > _SHARED:
            starts = [self.busy_intervals.merged()]
        for run in open_runs:
            nodes = np.array(run.nodes, dtype=np.int32)
            begins = np.full(len(nodes), run.start_ns, dtype=np.int64)
            starts.append((nodes, begins, begins))
        node, begins, ends = concatenated(starts)
        order = np.lexsort((begins, node))
        busy = node[order], begins[order], ends[order]
        left: list[OpenRun] = []
        cut: list[OpenRun] = []
        for run in remaining:
            if isinstance(run.nodes, int):
                left.append(run)
                continue
            nodes_left, ended = _cut(run, run.nodes, busy, self.busy_intervals)
            for next_ns in ended:
                self._vanish(run, 1, next_ns)
            if ended and run.seen_ns is None:
                self.contradicted.nodes += len(ended)
                cut.append(run)
            if nodes_left:
                left.append(replace(run, nodes=nodes_left))
                self._vanish(run, len(nodes_left), run.end_ns)
        if cut:
            first = min(cut, key=lambda run: run.start_ns)
            self.contradicted.count = len(cut)
            self.contradicted.file, self.contradicted.line = first.file, first.line
        return left

    def _vanish(self, run: OpenRun, nodes: int, end_ns: int | None) -> None:
        """A run that was gone at `end_ns` had ended since it was seen last, on so many nodes."""
        if run.seen_ns is not None and end_ns is not None:
            self.vanished.count += nodes
            self.vanished.node_s += nodes * max(0, end_ns - run.seen_ns) / SECOND_NS

    def _without_ended(
        self, remaining: list[OpenRun], diagnosis: Diagnosis
    ) -> list[OpenRun]:
        """End outages that have no end where a job starts on a node; returns those of the other nodes."""
        if not any(run.end_ns is None and not run.reserved for run in remaining):
            return remaining
        busy = self._alive()
        left = []
        for run in remaining:
            if run.reserved or isinstance(run.nodes, int) or not len(busy[0]):
                left.append(run)
                continue
            nodes_left, ended = _cut(run, run.nodes, busy, self.unavailable_intervals)
            if ended:
                why = "an outage has no end, but jobs start on its nodes later: it ends on each node with the first one"
                diagnosis.note(why, run.file, run.line, count=len(ended), loud=True)
            if nodes_left:
                left.append(replace(run, nodes=nodes_left))
        return left

    def _alive(self) -> Columns:
        """When jobs ran on the nodes, merged: also jobs that filters leave out, and those that had some units."""
        parts = [self.busy_intervals.merged(), *self.of_others()]
        if self.units is not None:
            parts.append(self.units.intervals())
        return merge(*concatenated(parts)) if len(parts) > 1 else parts[0]

    def of_others(self) -> list[Columns]:
        """Return when jobs that filters leave out ran on the nodes, for each filter merged."""
        found = []
        for others in self.left_out.values():
            node, starts, ends = others.busy_intervals.merged()
            mine = [self.names.get(host, -1) for host in others.names]
            node = np.array(mine, dtype=np.int32)[node]
            named = node >= 0
            found.append((node[named], starts[named], ends[named]))
        return found

    def _shared_with_others(self) -> float:
        """Return the share of the jobs' node-time that they have together with jobs that filters leave out."""
        parts = [self.busy_intervals.merged(), *self.of_others()]
        _, starts, ends = merge(*concatenated(parts))
        each_ns = sum(int((part[2] - part[1]).sum()) for part in parts)
        return each_ns / max(1, int((ends - starts).sum())) - 1

    def counted(self) -> tuple[TimeArray, TimeArray, TimeArray]:
        """Nodes, start and end of each job without names of nodes."""
        nodes, starts, ends, _ = (
            np.array(column, dtype=np.int64) for column in self._counted
        )
        return nodes, starts, ends

    def forget_counted(self) -> None:
        """Jobs without names of nodes were placed: they are busy intervals from now on."""
        self._counted = (array("q"), array("q"), array("q"), array("q"))

    def _keep_latest_counts(self) -> None:
        """Keep the record with the latest end of each counted job: records with names are merged anyway."""
        rows = np.array(self._counted[3], dtype=np.int64)
        known = np.flatnonzero(rows >= 0)
        if len(known):
            ends = np.array(self._counted[2], dtype=np.int64)
            kept = rows < 0
            kept[known] = self.job_runs.latest(rows[known], ends[known])
            left = [
                array("q", np.array(column, dtype=np.int64)[kept].tobytes())
                for column in self._counted[:3]
            ]
            self._counted = (left[0], left[1], left[2], array("q", [-1]) * len(left[0]))

    def _seen(self, start_ns: int, end_ns: int | None) -> int:
        """Widen the window that jobs are seen in, and return the end, `OPEN` for None."""
        if end_ns is None:
            self._began(start_ns)
            self.running += not self._beside
            return OPEN
        if not self._beside:
            self._widen(start_ns, end_ns, end_ns)
            self.job_times.add(start_ns, end_ns)
        return end_ns

    def _widen(self, start_ns: int, first_end_ns: int, last_end_ns: int) -> None:
        if self._beside:
            return
        self.reported = True
        if start_ns < self.first_start:
            self.first_start = start_ns
        if first_end_ns < self.first_end:
            self.first_end = first_end_ns
        if last_end_ns > self.last:
            self.last = last_end_ns

    def _began(self, start_ns: int) -> None:
        if not self._beside:
            self._widen(start_ns, OPEN, start_ns)
            self.job_times.add(start_ns, OPEN)


def merge(
    node: IndexArray,
    start: TimeArray,
    end: TimeArray,
    *,
    counts: TimeArray | int = 1,
    gap_ns: int = 0,
) -> Columns:
    """The union of intervals per node, sorted by node and start; gaps shorter than `gap_ns` are closed.

    Parameters
    ----------
    node
        In any order.
    start, end
        Of each interval; those with end <= start are dropped.
    counts
        Of how many nodes each interval is, which lie one after the other.
    gap_ns
        0 merges overlapping and touching intervals only.
    """
    some = end > start
    if not some.all():
        node, start, end = node[np.repeat(some, counts)], start[some], end[some]
        counts = counts if isinstance(counts, int) else counts[some]
    del some
    if not len(node):
        return node, start[:0], end[:0]
    if len(node) > AT_ONCE:
        columns = node, np.repeat(start, counts), np.repeat(end, counts)
        return _merged_by_nodes(*columns, gap_ns)
    # One number for node and time makes sorting quick. Times are counted in seconds for it if they can be; "open" is
    # beyond the last.
    open_ended = end == OPEN
    low = int(start.min())
    since, to = start - low, end - low
    to[open_ended] = 0
    for unit in (SECOND_NS, 10**6, 1):
        begin, until = since // unit, to // unit
        if (begin * unit == since).all() and (until * unit == to).all():
            break
    top = max(int(begin.max()), int(until.max()))
    bits = (top + 1).bit_length()
    last = (1 << bits) - 1
    if (int(node.max()) + 1) << bits >= 2**63:
        columns = node, np.repeat(start, counts), np.repeat(end, counts)
        return _without_gaps(_merge_by_columns(*columns), gap_ns)
    until[open_ended] = last
    if not isinstance(counts, int):
        begin, until = np.repeat(begin, counts), np.repeat(until, counts)
    of_node = node.astype(np.int64) << bits
    begin |= of_node
    until |= of_node
    del since, to, open_ended, of_node
    # Where the i-th begin comes after the (i-1)-th end, all intervals that began before have ended: a union opens.
    # A new node opens of itself, as its numbers are above all of those before.
    begin.sort()
    until.sort()
    later = np.flatnonzero(begin[1:] > until[:-1])
    begin = np.append(begin[:1], begin[later + 1])
    until = np.append(until[later], until[-1:])
    which = (begin >> bits).astype(np.int32)
    begin &= last
    until &= last
    ends = until * unit + low
    ends[until == last] = OPEN
    return _without_gaps((which, begin * unit + low, ends), gap_ns)


def _merged_by_nodes(
    node: IndexArray, start: TimeArray, end: TimeArray, gap_ns: int
) -> Columns:
    """`merge` of so many rows that it takes some of the nodes at a time."""
    until = np.cumsum(np.bincount(node))
    parts, low = [], 0
    while low < len(until):
        before = int(until[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(until, before + AT_ONCE, side="right")))
        those = (node >= low) & (node < high)
        columns = node[those], start[those], end[those]
        del those
        if len(columns[0]) > AT_ONCE:  # a single node
            parts.append(_without_gaps(_merge_by_columns(*columns), gap_ns))
        else:
            parts.append(merge(*columns, gap_ns=gap_ns))
        low = high
    return concatenated(parts)


def _merge_by_columns(node: IndexArray, start: TimeArray, end: TimeArray) -> Columns:
    """`merge` of times so fine and so far apart that node and time do not fit one number."""
    by_start, by_end = np.lexsort((start, node)), np.lexsort((end, node))
    node, start, end = node[by_start], start[by_start], end[by_end]
    opens = np.ones(len(node), dtype=bool)
    opens[1:] = (node[1:] != node[:-1]) | (start[1:] > end[:-1])
    return node[opens], start[opens], end[np.append(opens[1:], True)]


def _without_gaps(merged: Columns, gap_ns: int) -> Columns:
    """Merged intervals without the gaps that are shorter."""
    if not gap_ns:
        return merged
    node, start, end = merged
    stays = (node[1:] != node[:-1]) | (start[1:] - end[:-1] >= gap_ns)
    return (
        node[np.append(True, stays)],
        start[np.append(True, stays)],
        end[np.append(stays, True)],
    )
