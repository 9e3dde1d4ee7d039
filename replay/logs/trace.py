"""From the table of records to a node trace: the window of observation, the nodes, and what is left idle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.tolerances import SHARES
from bft.replay.logs import doubts as d
from bft.replay.logs.doubts import DAY_NS, Doubt, Window, warn
from bft.replay.logs.hosts import keys_of, of_keys
from bft.replay.logs.machine import Machine, machine_of, refuse_unknown, some
from bft.replay.logs.records import (
    FILTERS,
    KIND,
    NEVER_STARTED,
    RESERVED,
    Account,
    Records,
    RecordTable,
    Unusable,
    release_memory,
)
from bft.replay.logs.runs import settle_runs, tell_open
from bft.replay.logs.spans import Gathered, Scale, Spans, everywhere
from bft.replay.logs.states import BUSY, IDLE, UNAVAILABLE, UNSEEN, CountsAs, Sampled
from bft.replay.logs.times import NONE, OPEN, Mask, Whole
from bft.replay.logs.units import (
    Held,
    Sizes,
    Stated,
    UnitMap,
    held_of,
    placed,
    refuse_untracked,
    units_of_machine,
)
from bft.replay.trace.host_jobs import HostJobs
from bft.replay.trace.node_trace import (
    SECOND_NS,
    NodeTrace,
    distinct,
    events_of,
    in_order,
)
from bft.replay.trace.uncertainty import Uncertainty

Places = NDArray[np.int64]
# Share of the jobs' node-time from which on nodes count as shared by jobs; and jobs from which on that can be told.
_SHARED, _ENOUGH_JOBS = 0.2, 20
# What rows and snapshots show of nodes: a word for a row, the states of snapshots, and what is said of rows without an
# end that a later job ends.
_SHOWN = {
    "ran": (
        "job",
        (BUSY,),
        "jobs without an end are contradicted by a later job on a node of theirs: they end where it starts",
    ),
    "down": (
        "outage",
        (UNSEEN, UNAVAILABLE),
        "an outage has no end, but jobs start on its nodes later: it ends on each node with the first one",
    ),
    "idle": ("idle row", (IDLE,), ""),
}
# Spans of jobs from which on short gaps between them are filled at once, which saves time and memory.
_MANY = 500_000
# No log states when a reservation was made: it counts as announced so long before it begins.
NOTICE_NS = DAY_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asks for, beyond what readers are told; `ingest.IngestOptions` has the meanings."""

    start_ns: int | None = None
    end_ns: int | None = None
    min_gap_ns: int = 10 * SECOND_NS
    completing_ns: int = 0
    counts_idle: bool = False
    machine_nodes: int | None = None
    filters: dict[str, str] = field(default_factory=dict)
    counts_as: CountsAs = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The shares that the node-time of the window of observation went to.

    Parameters
    ----------
    nodes, nodes_never_busy
        Nodes of the machine, and those among them that ran no job in the window.
    foreign_nodes
        Nodes that jobs or events name and the list of nodes does not: left out.
    node_seconds
        Nodes x seconds of observation; where units turn idle one by one, units x seconds.
    busy, unavailable, idle, short_gaps
        Shares of them, which add up to 1: jobs ran; no job ran, but the node was down, drained or reserved, or it is
        in doubt what it did; idle; in gaps too short to count as idle.
    intervals, overlaps_merged, gaps_closed
        Node-intervals read, how many of them overlapped or touched another, and how many gaps were too short.
    units
        Units of the nodes, where they turn idle one by one; None: nodes turn idle as a whole.

    Raises
    ------
    RuntimeError
        When the shares do not balance, which is a mistake of ours.
    """

    nodes: int
    nodes_never_busy: int
    foreign_nodes: int
    node_seconds: float
    busy: float
    unavailable: float
    idle: float
    short_gaps: float
    intervals: int
    overlaps_merged: int
    gaps_closed: int
    units: int | None = None

    def __post_init__(self) -> None:
        shares = self.busy, self.unavailable, self.idle, self.short_gaps
        if not (min(shares) >= -SHARES and abs(math.fsum(shares) - 1) <= SHARES):
            raise RuntimeError(
                f"shares of the node-time are not between 0 and 1, or do not add up to 1: {shares}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the coverage as plain values, for JSON."""
        return asdict(self)


def trace_of(records: Records, asked: Asked) -> tuple[NodeTrace, Coverage, Any]:
    """The idle nodes of a machine: those of its nodes that are neither busy nor unavailable.

    Returns the trace, what became of the node-time, and the table of records as text if it was kept.

    Raises
    ------
    InputError
        When no record is of use, when the window is empty or lies outside the logs, when no job ran on a node of the
        list of nodes, and when the logs lack records for sure.
    """
    account = records.account
    table = records.settle()
    requeues = settle_runs(table, records, records.ends_ns)
    listed = keys_of(records.names_of(records.listed_hosts()))
    sampled = records.snapshots.settle(listed)
    holdings = None if records.unit is None else _holdings(records, table)
    records.fill(table)
    refuse_unknown(records, asked.filters)
    counted = _name_counted(records, table, asked)
    made = []
    if sampled is not None:
        made.append(of_keys(sampled.keys))
        for why, detail in sampled.notes:
            warn(account, why, detail)
    partition = asked.filters.get("partition")
    machine = machine_of(
        records, table, made, partition=partition, source=asked.source, counts_as=asked.counts_as
    )  # fmt: skip
    window = _window(records, table, sampled, asked)
    _name_all_down(records, table, machine, window)
    observed = sampled is not None or records.observed is not None
    if table["beside"][table.of_kind(*_SHOWN)].all() and not (
        observed or account.allow_few
    ):
        raise InputError(
            "no row reports when a node was busy or down: all nodes would look idle",
            file=asked.source or None,
            hint=f"--allow-few accepts that; {account.losses()}".removesuffix("; "),
        )
    units = None
    if holdings is not None:
        places = zip(machine.index.tolist(), machine.nodes.names, strict=True)
        known = [each for each in places if each[0] >= 0]
        units = units_of_machine(
            holdings.sizes, known, machine.names, partial(warn, account)
        )
    logs = _Logs(records, table, machine, window, sampled, asked, units)
    if len(counted):
        logs.place_counted(counted)
    if holdings is not None and units is not None:
        logs.take_units(holdings, units)
    logs.read()
    fragments, coverage, uncertain = _idle_time(logs, is_placed=len(counted) > 0)
    never, nodes = coverage.nodes_never_busy, coverage.nodes
    if records.listed and not asked.filters and 2 * never > nodes:
        why = "most nodes of the list ran no job: is it the list of this machine, and has the log all of its jobs?"
        warn(account, why, f"{never:,} of {nodes:,} nodes")
    del logs
    release_memory()  # a trace and host jobs take memory as well
    trace = replace(
        _trace(machine, units, window, fragments),
        uncertain=uncertain,
        busy_share=coverage.busy,
        unavailable_share=coverage.unavailable,
    )
    del fragments
    d.requeues(requeues, account, are_stated=records.says_requeues)
    if units is None:
        table["ranges"][counted] = 0
        trace = replace(trace, host_jobs=_host_jobs(records, table, machine))
    kept = None
    if records.kept is not None:
        kept = pa.concat_tables(records.kept)
        reasons = [records.reasons[code] for code in table["why"][: len(kept)].tolist()]
        kept = kept.append_column("why", pa.array(reasons, pa.string()))
    return trace, coverage, kept


def _listed_names(records: Records) -> list[str]:
    """Names of all nodes of lists."""
    return records.nodes_of(records.names_of(records.listed_hosts())).names


# --- the window of observation --------------------------------------------------------------------------------------


def _jobs(table: RecordTable) -> Places:
    """Rows of jobs that are used, of logs of jobs."""
    rows = table.of_kind("ran")
    jobs: Places = rows[~table["beside"][rows]]
    return jobs


def _others(table: RecordTable) -> Places:
    """Rows of jobs that have ended and that filters of jobs leave out: signs of life of their nodes."""
    of_jobs = [
        number for number, each in enumerate(FILTERS.values(), 1) if each.of_jobs
    ]
    mine = (
        np.isin(table["filter"], of_jobs)
        & (table["kind"] == KIND["ran"])
        & (table["ranges"] > 0)
    )
    return np.flatnonzero(mine & (table["start"] != NONE) & (table["end"] != NONE))


def _ends(table: RecordTable, rows: Places) -> Whole:
    """End of each row; `OPEN` of what goes on, as far as the logs tell."""
    ends = table["end"][rows]
    return np.where((ends == NONE) | table["goes_on"][rows], OPEN, ends)


def _extremes(*times: Whole) -> tuple[int, int]:
    """The first and the last of some times; of none `OPEN` and 0."""
    each = np.concatenate(times)
    return int(each.min(initial=OPEN)), int(each.max(initial=0))


def _window(
    records: Records, table: RecordTable, sampled: Sampled | None, asked: Asked
) -> Window:
    """Begin and end of the window of observation; says on which grounds, and what is odd about it.

    Rows of jobs state true ends, also ends after the export, when no start could be shown any more: so a log is known
    to show what happens up to the last start. Where records are written as things happen, it is up to the last record.
    By default the window begins with the first *end* of a job: of the time before only long jobs are known.
    """
    account, jobs, others = records.account, _jobs(table), _others(table)
    starts, ends = table["start"][jobs], table["end"][jobs]
    ended = ends[ends != NONE]
    first_start, last_start = _extremes(starts)
    first_end, last_end = _extremes(ended)
    spans = [] if records.observed is None else [records.observed]
    shown_until = records.shown_until
    if sampled is not None:
        spans.append((sampled.first_ns, sampled.last_ns))
        shown_until = max(shown_until, sampled.last_ns)
    elif not (spans or len(jobs) or records.observed_outages is None):
        spans.append(records.observed_outages)
    start, end, final = first_end, max(last_start, shown_until), "start"
    if (
        start >= end
    ):  # all jobs started before the first had ended: there is no better guess
        end, final = max(last_start, last_end), "end"
    if start >= end:
        start = first_start
    # Logs of jobs that state none may lie beside those that state it.
    start, end = (
        min([start, *(low for low, _ in spans)]),
        max([end, *(high for _, high in spans)]),
    )
    seen = _extremes(starts, ended, table["start"][others], table["end"][others])
    log = min(start, seen[0]), max(end, seen[1])

    def place(job: int) -> str:
        return records.place(table, jobs[job])

    ends = _ends(table, jobs)
    if asked.start_ns is not None:
        start = asked.start_ns
    elif not spans:
        why = "one job ends long before all others and stretches the window: a mistyped year? --from states its begin"
        d.stretched(ends, -1, why, place, account)
        if first_start < start < OPEN:
            why = "the window begins with the first end of a job: of the time before only long jobs are known"
            account.note(why, asked.source, 0)
    if asked.end_ns is not None:
        end = asked.end_ns
    elif not spans:
        why = "one job starts long after all others and stretches the window: a mistyped year? --to states its end"
        d.stretched(starts, 1, why, place, account)
        if shown_until < end and (end < last_end or final == "end"):
            why = f"the window ends with the last {final} of a job: the log does not tell whether it would show "
            account.note(
                f"{why}jobs that start later; --to states its end", asked.source, 0
            )
    if start >= end:
        raise InputError(
            "the window of observation is empty"
            if start < OPEN
            else "no job tells when the observation began",
            file=asked.source or None,
            hint=f"$begin and $end set it; {account.losses()}".removesuffix("; "),
        )
    return Window(start, end, starts, ends, log)


# --- jobs of logs that only count their nodes -----------------------------------------------------------------------


def _name_counted(records: Records, table: RecordTable, asked: Asked) -> Places:
    """Make the machine known of logs that only count nodes; return the rows of jobs that do."""
    account, size = records.account, asked.machine_nodes
    ran = table.of_kind("ran")
    rows: Places = ran[(table["ranges"][ran] == 0) & (table["count"][ran] > 0)]
    stated = max(records.machine_nodes, default=None)
    if not len(rows):
        if size and len(table.made):
            warn(account, "--machine-nodes has no effect: the logs name the nodes")
        return rows
    if records.unit is not None:
        raise InputError(
            f"--unit {records.unit}: jobs name no nodes, so that their units are not known"
        )
    if records.listed:
        listed = len(_listed_names(records))
        if size not in (None, listed):
            raise InputError(
                f"--machine-nodes: {size}, but --nodes lists {listed}", hint="give one"
            )
        if stated not in (None, listed):
            why = "the log states another number of nodes than the list of nodes, which is taken"
            warn(account, why, f"{stated}, listed are {listed}")
        return rows
    size = size or stated
    if size is None:
        # What ends at an instant makes room for what starts then.
        order = np.argsort(
            np.concatenate([_ends(table, rows), table["start"][rows]]), kind="stable"
        )
        needed = table["count"][rows].astype(np.int64)
        size = int(np.cumsum(np.concatenate([-needed, needed])[order]).max())
        why = "neither log nor --machine-nodes tell the machine's size: it is taken to be the most nodes that were "
        account.note(f"{why}busy at once", "", 0, f"{size}")
    named = records.nodes_of(table.made).names
    names = dict.fromkeys([*named, *(f"n{node:05}" for node in range(size))])
    hosts = ",".join([*names][: max(size, len(named))])
    records.listed.append(("", {"hosts": hosts, "line": 0}))
    return rows


def _name_all_down(
    records: Records, table: RecordTable, machine: Machine, window: Window
) -> None:
    """Make outages of the whole machine those of its nodes; one without an end lasts until the next job starts."""
    for row in table.of_kind("all down").tolist():
        table.set_nodes(row, machine.nodes.keys[machine.index >= 0])
        table["kind"][row] = KIND["down"]
        if table["end"][row] == NONE:
            starts = np.append(window.starts, table["start"][_others(table)])
            later = starts[starts > table["start"][row]]
            table["end"][row] = later.min(initial=window.end_ns)
            why = "an outage has no end: it is taken to last until the next job starts"
            records.tell(table, np.array([row]), why)


# --- units of nodes, where these turn idle one by one ---------------------------------------------------------------


class _Holdings(NamedTuple):
    """What jobs held of their nodes, one entry a job and node of which it held any.

    Of each entry the job's row, its node as a range, and what it held as an index of `held`; and what nodes have.
    """

    row: Places
    made: Whole
    what: Whole
    held: list[Held]
    sizes: Sizes


def _holdings(records: Records, table: RecordTable) -> _Holdings:
    """Find what jobs held; those that held more than there is are skipped."""
    listed = [row for _, row in records.listed]
    sizes = Sizes(records.unit, records.units_per_node, listed)
    # Records without an end that name the units of a job are for all its records.
    named: dict[tuple[int, int], Stated] = {}
    numbered = [
        code
        for code, each in enumerate(records.units)
        if each is not None and each.numbered
    ]
    is_open = (table["end"] == NONE) & (table["kind"] == KIND["ran"])
    for row in np.flatnonzero(np.isin(table["units"], numbered) & is_open).tolist():
        run, stated = (
            (table["id"][row], table["start"][row]),
            records.units[table["units"][row]],
        )
        named[run] = max(stated, named.get(run, stated), key=repr)
    jobs = table.of_kind("ran")
    nodes = records.nodes_of(table.ranges_of(jobs)[0])
    places, at = nodes.of(*table.ranges_of(jobs))
    entries: list[tuple[int, int, int]] = []
    numbers: dict[Held, int] = {}
    without = 0

    def tell(reason: str, loud: bool) -> None:
        records.tell(table, np.array([row]), reason, loud=loud)

    for row, mine in zip(
        jobs.tolist(),
        np.split(places, np.searchsorted(at, np.arange(1, len(jobs)))),
        strict=False,
    ):
        stated = named.get(
            (table["id"][row], table["start"][row]), records.units[table["units"][row]]
        )
        try:
            held = held_of(
                stated, [nodes.names[place] for place in mine.tolist()], sizes, tell
            )
        except Unusable as why:
            table["why"][row] = records.refuse(table, row, why)
            continue
        without += not any(held)
        for key, units in zip(nodes.keys[mine].tolist(), held, strict=True):
            if units:
                entries.append((row, key, numbers.setdefault(units, len(numbers))))
    if not records.account.allow_few:
        refuse_untracked(records.unit, list(numbers), without)
    row_of, key_of, what = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    return _Holdings(row_of, of_keys(key_of), what, list(numbers), sizes)


# --- what the logs show of each node --------------------------------------------------------------------------------


def _spread(
    table: RecordTable, machine: Machine, rows: Places
) -> Iterator[tuple[Whole, Places]]:
    """Yield the nodes of rows, and the index of the row of each, some rows at a time."""
    done = 0
    for mine in table.in_parts(rows):
        node, at = machine.nodes.of(*table.ranges_of(mine))
        yield node, at + done
        done += len(mine)


@dataclass
class _Logs:
    """What logs show of the machine's nodes, by their places.

    Attributes
    ----------
    until
        End of each row; of what has none the end of the window.
    shown
        When nodes were busy ("ran"), unavailable ("down") and idle.
    signs
        When jobs ran there beside these: those that filters leave out, and those of which single units count.
    of_units
        When units were held, where these turn idle one by one.
    doubts
        What is in doubt of them.
    given, jobs_ns
        How many node-intervals there were; and the node-time of jobs, each counted.
    filled, filled_ns
        How many short gaps between jobs were filled, and their node-time.
    """

    records: Records
    table: RecordTable
    machine: Machine
    window: Window
    sampled: Sampled | None
    asked: Asked
    units: UnitMap | None

    def __post_init__(self) -> None:
        table, window, sampled, machine = (
            self.table,
            self.window,
            self.sampled,
            self.machine,
        )
        absent = np.array(
            [times for _, *times in machine.absent], dtype=np.int64
        ).ravel()
        times = [np.array(window.bounds), np.clip(absent, *window.bounds)]
        times += [table[name][table[name] != NONE] for name in ("start", "end")]
        if sampled is not None:
            times += [sampled.begin, sampled.end]
        if self.asked.completing_ns:
            times += [each + self.asked.completing_ns for each in times]
        size = len(machine.names) if self.units is None else self.units.total
        self.scale = Scale.of(times, size)
        self.until = np.where(table["end"] == NONE, window.end_ns, table["end"])
        self.shown: dict[str, Spans] = {}
        self.signs = self.gather(_others(table))[0].spans()
        self.of_units = Spans(self.scale)
        self.doubts: list[Doubt] = []
        self.given = self.filled = self.filled_ns = 0

    def gather(self, rows: Places) -> tuple[Gathered, float, float]:
        """The union of what rows state, and their node-time in ns, on nodes of the machine and on others."""
        gathered, node_ns, foreign_ns = Gathered(self.scale), 0.0, 0.0
        starts, ends = self.table["start"][rows], self.until[rows]
        begin, end, lengths = (
            self.scale.ticks(starts),
            self.scale.ticks(ends),
            ends - starts,
        )
        for node, at in _spread(self.table, self.machine, rows):
            place = self.machine.index[node]
            known = place >= 0
            foreign_ns += float(lengths[at[~known]].sum())
            at = at[known]
            gathered.add(place[known], begin[at], end[at])
            node_ns += float(lengths[at].sum())
        return gathered, node_ns, foreign_ns

    def place_counted(self, rows: Places) -> None:
        """Give the jobs that only count their nodes the first that are free, in order of their start.

        Schedulers place otherwise, so that fragments of single nodes are not those of the machine; how many nodes are
        idle at each instant is. Nodes that are down or that jobs of other logs use are taken last.
        """
        table, scale, machine, account = (
            self.table,
            self.scale,
            self.machine,
            self.records.account,
        )
        account.note(
            "the log has counts of nodes, no names: each job was given the first free nodes",
            "",
            0,
        )
        rows = rows[np.argsort(table["start"][rows], kind="stable")]
        start, end, counts = (
            table["start"][rows],
            self.until[rows],
            table["count"][rows],
        )
        if self.asked.counts_idle:
            end = self.window.believed(start, end, table["end"][rows] == NONE)
        used = self.gather(table.of_kind("ran", "down"))[0].spans()
        places, used_until = distinct(used.node), np.append(0, used.ends)
        above = places << scale.bits
        free = np.ones(len(machine.names), dtype=bool)
        in_use = ~free
        held: list[tuple[int, int, Places]] = []
        chosen: list[Places] = []
        for begin, until, count in zip(
            scale.ticks(start).tolist(),
            scale.ticks(end).tolist(),
            counts.tolist(),
            strict=True,
        ):
            while held and held[0][0] <= begin:
                free[heappop(held)[2]] = True
            nodes = np.flatnonzero(free)
            if len(
                places
            ):  # the last use that begins before the job ends may go on when it begins
                last = used_until[np.searchsorted(used.begins, above | until)]
                in_use[places] = last > (above | begin)
                nodes = nodes[np.argsort(in_use[nodes], kind="stable")]
            nodes = nodes[:count].copy()
            free[nodes] = False
            heappush(held, (until, len(chosen), nodes))
            chosen.append(nodes)
        sizes = np.array([len(nodes) for nodes in chosen])
        short = np.count_nonzero(sizes < counts)
        if short:
            why = "jobs wanted more nodes than were free: the list of nodes or --machine-nodes may be too small"
            warn(account, why, f"{short:,} of {len(rows):,} jobs")
        known = np.flatnonzero(machine.index >= 0)
        keys = np.zeros(len(machine.names), dtype=np.int64)
        keys[machine.index[known]] = machine.nodes.keys[known]
        table.first[rows] = len(table.made) + np.cumsum(sizes) - sizes
        table["ranges"][rows] = sizes
        table.made = np.append(table.made, of_keys(keys[np.concatenate(chosen)]))

    def take_units(self, holdings: _Holdings, units: UnitMap) -> None:
        """Find which units jobs held; one without an end is in doubt if it runs long."""
        table, rows, scale, window = (
            self.table,
            holdings.row,
            self.scale,
            self.window,
        )
        first, _ = self.machine.nodes.places(holdings.made)
        place = self.machine.index[first]
        start, end = table["start"][rows], self.until[rows]
        is_open = table["end"][rows] == NONE
        tell_open(self.records, table, distinct(rows[is_open]), "job")
        likely = window.believed(start, end, is_open | table["goes_on"][rows])
        doubtful_ns = float(window.inside(likely, end).sum())
        self.doubts.append(
            (d.NO_END, doubtful_ns * units.total / max(1, len(units.sizes)))
        )
        end = likely if self.asked.counts_idle else end
        job, unit, told = placed(
            place, start, end, holdings.what, holdings.held, units, holdings.sizes.unit
        )
        for why, detail in told.items():
            warn(self.records.account, why, detail)
        self.given += len(rows)
        mine = place >= 0
        self.signs |= Spans.of(scale, place[mine], start[mine], end[mine])
        completed = end[job] + self.asked.completing_ns
        self.of_units = Spans.of(scale, unit, start[job], completed)

    def read(self) -> None:
        """Find when nodes were busy, unavailable and idle, and what of it is in doubt."""
        table, machine, sampled, scale = (
            self.table,
            self.machine,
            self.sampled,
            self.scale,
        )
        is_open = (table["end"] == NONE) | (
            table["goes_on"] & (table["kind"] == KIND["ran"])
        )
        suspended = ~is_open & (table["suspended"] > 0)
        late = np.zeros(len(table), dtype=bool)
        late[_jobs(table)[self.window.late]] = True
        apart = is_open | suspended | late
        kinds = {name: table.of_kind(name) for name in _SHOWN}
        if self.units is not None:
            kinds["ran"] = kinds["ran"][:0]
        for name, rows in kinds.items():
            gathered, node_ns, foreign_ns = self.gather(rows[~apart[rows]])
            self.shown[name] = gathered.spans()
            self.given += gathered.given
            if name == "ran":
                self.touching = self.given - len(self.shown[name])
                if len(self.shown[name]) > _MANY:
                    filled = self.shown[name].filled(
                        self.asked.min_gap_ns, *self.window.bounds
                    )
                    self.filled = len(self.shown[name]) - len(filled[0])
                    self.shown[name], self.filled_ns = filled
                self.jobs_ns = node_ns
                if foreign_ns:
                    self.say_foreign(
                        rows[~apart[rows]], foreign_ns / (node_ns + foreign_ns)
                    )
        self.read_apart(
            np.concatenate([rows[apart[rows]] for rows in kinds.values()]),
            suspended,
            late,
        )
        node, *times = np.array(machine.absent, dtype=np.int64).reshape(-1, 3).T
        self.shown["down"] |= Spans.of(
            scale, node, *np.clip(times, *self.window.bounds)
        )
        if sampled is not None:
            first, _ = machine.nodes.places(of_keys(sampled.keys))
            place = machine.index[first][sampled.node]
            for name, (_, codes, _) in _SHOWN.items():
                mine = np.isin(sampled.code, codes) & (place >= 0)
                self.given += int(np.count_nonzero(mine))
                self.shown[name] |= Spans.of(
                    scale, place[mine], sampled.begin[mine], sampled.end[mine]
                )

    def read_apart(self, rows: Places, suspended: Mask, late: Mask) -> None:
        """Read rows without an end, or with one that is not believed, and jobs that were suspended, on each node.

        Where jobs share no nodes, one without an end ends on each node with the next job that starts there: Slurm calls
        them runaway; of PBS the record of the end is lost. What runs much longer than any other is in doubt from then
        on. An outage without an end ends with the next job as well.
        """
        table, records, window, scale = (
            self.table,
            self.records,
            self.window,
            self.scale,
        )
        parts = [
            np.stack([self.machine.index[node], rows[at]])
            for node, at in _spread(table, self.machine, rows)
        ]
        both = np.concatenate([np.zeros((2, 0), dtype=np.int64), *parts], axis=1)
        place, row = both[:, both[0] >= 0]
        start, end, kind = table["start"][row], self.until[row], table["kind"][row]
        is_job, busy = kind == KIND["ran"], self.shown["ran"]
        alive = busy | self.signs
        if busy.total_ns() + self.signs.total_ns() > (1 + _SHARED) * alive.total_ns():
            alive = busy
        begins = (place << scale.bits | scale.ticks(start))[is_job]
        alive = Spans(scale, distinct(np.concatenate([alive.begins, begins])))
        following = alive.next_begin(place, start)
        lasts = late | suspended | (table["otherwise"] == records.reason(RESERVED))
        firm = lasts[row] | (kind == KIND["idle"])
        if (
            len(window.starts) < _ENOUGH_JOBS
            or busy.total_ns() < (1 - _SHARED) * self.jobs_ns
        ):
            firm |= is_job
        cut = (following >= 0) & (following < end) & ~firm
        end = np.where(cut, following, end)
        likely = window.believed(start, end, is_job & ~cut & ~suspended[row])
        for reason, mine in ((d.NO_END, ~late[row]), (d.LATE_END, late[row])):
            self.doubts.append(
                (reason, Spans.of(scale, place[mine], likely[mine], end[mine]))
            )
        for name, (what, _, why) in _SHOWN.items():
            mine = kind == KIND[name]
            records.tell(table, distinct(row[mine & cut]), why, loud=True)
            tell_open(
                records,
                table,
                distinct(row[mine & ~cut & (table["end"][row] == NONE)]),
                what,
            )
        why = (
            "jobs end long after all others: a mistyped year? "
            "their nodes are in doubt from where the longest other job would have ended"
        )
        records.tell(table, rows[late[rows]], why, loud=True)
        pieces = self.in_pieces(np.stack([row, place, start, likely]), suspended)
        for name in _SHOWN:
            mine = table["kind"][pieces[0]] == KIND[name]
            self.shown[name] |= Spans.of(scale, *pieces[1:, mine])
        self.given += len(pieces[0])
        if self.asked.completing_ns:  # nothing completes where a job is suspended
            busy = self.shown["ran"]
            paused = (
                Spans.of(scale, place[is_job], start[is_job], likely[is_job]) - busy
            )
            self.shown["ran"] = busy.longer(self.asked.completing_ns) - paused

    def in_pieces(self, runs: Whole, suspended: Mask) -> Whole:
        """Divide jobs where listings say that they were suspended: Slurm calls their nodes idle meanwhile.

        `runs` has a row each for row, place, begin and end. Of time of which no listing says when it was, the amount is
        in doubt.
        """
        row, place, start, end = pieces = runs
        unknown = np.where(suspended[row], self.table["suspended"][row], 0)
        for job, since, until in self.pauses(distinct(row)):
            unknown[row == job] -= until - since
            mine = pieces[0] == job
            after = pieces[:, mine]
            after[2] = np.maximum(after[2], until)
            pieces[3, mine] = np.minimum(pieces[3, mine], since)
            pieces = np.hstack([pieces, after])
        # On each node suspended jobs were there for so much longer than they ran while no other job was.
        alone = (
            Spans.of(self.scale, *pieces[1:, suspended[pieces[0]]]) - self.shown["ran"]
        )
        alone = alone.clipped(*self.window.bounds)
        inside = self.window.inside(start, end) * (unknown > 0)
        share = np.minimum(1, unknown / np.maximum(1, end - start))
        size = len(self.machine.names)
        ran, lost = (
            np.bincount(place, inside * part, size) for part in (1 - share, share)
        )
        idle_ns = np.clip(
            np.bincount(alone.node, alone.lengths_ns, size) - ran, 0, lost
        )
        self.doubts.append((d.SUSPENDED, float(idle_ns.sum())))
        return pieces

    def by_unit(self, spans: Spans) -> Spans:
        """Spans of nodes as spans of each of their units, where these turn idle one by one."""
        if self.units is None:
            return spans
        units = self.units.of_nodes(spans.node, spans.begin_ns, spans.end_ns)
        return Spans.of(self.scale, *units)

    def say_foreign(self, jobs: Places, share: float) -> None:
        """Say how much of the jobs' node-time lies on nodes that are not in the list of nodes."""
        nodes = self.records.nodes_of(self.table.ranges_of(jobs)[0])
        first, _ = self.machine.nodes.places(of_keys(nodes.keys))
        left = [
            nodes.names[node]
            for node in np.flatnonzero(self.machine.index[first] < 0).tolist()
        ]
        why = "jobs ran on nodes that are not in the list of nodes: left out"
        detail = f"{len(left):,} of {len(nodes):,} nodes with jobs, {share:.1%} of the jobs' node-time"
        warn(self.records.account, why, f"{detail}, such as {some(left)}")

    def pauses(self, rows: Places) -> Iterator[tuple[int, int, int]]:
        """Yield the row of each job that listings show suspended, and from when to when.

        What was not listed while it was suspended is known by how long it had run.
        """
        table = self.table
        seen: dict[tuple[int, int], dict[int, dict[str, int]]] = {}
        for kind in ("suspended", "resumed"):
            for row in table.of_kind(kind).tolist():
                run = seen.setdefault((table["id"][row], table["start"][row]), {})
                times = run.setdefault(int(table["suspended"][row]), {})
                times[kind] = min(times.get(kind, OPEN), int(table["end"][row]))
        for row in rows.tolist():
            start, end, lost = int(table["start"][row]), int(self.until[row]), 0
            stated = seen.get((table["id"][row], start), {})
            for ran, times in sorted(stated.items()):
                since = times.get("suspended", start + ran + lost)
                until = max(since, min(times.get("resumed", OPEN), end))
                lost += until - since
                yield row, since, until


# --- what is left idle ----------------------------------------------------------------------------------------------


def _idle_time(
    logs: _Logs, *, is_placed: bool
) -> tuple[Spans, Coverage, Uncertainty | None]:
    """When nodes, or units, were idle, where all of the time went, and what of it is in doubt.

    `is_placed` says that the nodes of jobs are a model: nothing is known of single ones.
    """
    records, table, machine, window = (
        logs.records,
        logs.table,
        logs.machine,
        logs.window,
    )
    units, account, asked, size = (
        logs.units,
        records.account,
        logs.asked,
        len(machine.names),
    )
    whole = everywhere(logs.scale, size, *window.bounds)
    unions, outages = sum(map(len, logs.shown.values())), logs.shown["down"]
    idle_rows = table["kind"] == KIND["idle"]
    idle_rows &= (table["why"] == 0) | (table["filter"] > 0)
    states_idle = len(logs.shown["idle"]) > 0 or bool(idle_rows.any())
    busy, down, idle = (
        logs.shown.pop(kind).clipped(*window.bounds) for kind in [*logs.shown]
    )
    if len(outages) and not len(down):
        warn(
            account,
            "no outage or reservation falls into the window of observation and on a node of the machine",
        )
    doubts = [
        *logs.doubts,
        *d.outside(window, whole, account, counts_idle=asked.counts_idle),
    ]
    missing = 0.0
    if states_idle:
        is_placed = True
        rest = _unstated(idle, busy, busy | down, whole, account)
        if len(busy):
            down |= rest
        else:
            busy = rest
    elif records.shown_until < window.end_ns:
        doubts += d.quiet_end(window, logs.signs.begin_ns, outages, whole, account)
        missing = d.missing_share(window, account, only_ended=records.only_ended)
    if not is_placed:
        doubts += _unseen(logs, busy | down, whole)

    whole, busy = (
        logs.by_unit(whole),
        logs.by_unit(busy) | logs.of_units.clipped(*window.bounds),
    )
    held = taken = busy | logs.by_unit(down)
    all_ns, busy_ns = whole.total_ns(), busy.total_ns()
    doubtful_ns: dict[str, float] = {
        d.SKIPPED_ROWS: _lost_ns(records, table, window, busy_ns),
        d.NO_END: 0.0,
        d.MISSING: missing * busy_ns,
        d.SAMPLING: 0.0 if logs.sampled is None else float(logs.sampled.off_ns),
    }
    for reason, doubt in doubts:
        if isinstance(doubt, Spans):
            new = logs.by_unit(doubt.clipped(*window.bounds)) - held
            held, doubt = held | new, new.total_ns()
        doubtful_ns[reason] = doubtful_ns.get(reason, 0.0) + doubt
    held = taken if asked.counts_idle else held
    gaps = held.gaps(whole)
    fragments = gaps.where(gaps.lengths_ns >= asked.min_gap_ns)
    short = len(gaps) - len(fragments)
    short_ns = gaps.total_ns() - fragments.total_ns() + logs.filled_ns
    del gaps  # may take much memory
    used = distinct(busy.node if units is None else units.node_of(busy.node))
    nodes = size if units is None else int(np.count_nonzero(units.sizes))
    coverage = Coverage(
        nodes=nodes,
        nodes_never_busy=nodes - len(used),
        foreign_nodes=machine.foreign,
        node_seconds=all_ns / SECOND_NS,
        busy=(busy_ns - logs.filled_ns) / all_ns,
        unavailable=(held.total_ns() - busy_ns) / all_ns,
        idle=fragments.total_ns() / all_ns,
        short_gaps=short_ns / all_ns,
        intervals=logs.given,
        overlaps_merged=0 if units else logs.given - logs.filled - unions,
        gaps_closed=logs.filled + short,
        units=None if units is None else units.total,
    )
    d.one_sided(records, machine, used)
    if units is None:
        why = "jobs were suspended, and nothing says when: Slurm calls their nodes idle meanwhile, here they are busy"
        d.say(account, why, doubtful_ns[d.SUSPENDED] / all_ns)
        shown = d.Shown(records, table, window, machine, busy, fragments, down)
        for suspicion in d.suspicions(
            shown,
            is_stated=records.observed is not None or logs.sampled is not None,
            completing=asked.completing_ns > 0,
            touching=logs.touching,
        ):
            d.say(account, *suspicion)
    uncertain = None
    shares = tuple((why, ns / all_ns) for why, ns in doubtful_ns.items() if ns)
    if shares:
        uncertain = Uncertainty(shares, "idle" if asked.counts_idle else "unavailable")
        if uncertain.is_large:
            warn(account, str(uncertain))
    return fragments, coverage, uncertain


def _unstated(
    idle: Spans, busy: Spans, taken: Spans, whole: Spans, account: Account
) -> Spans:
    """Return the time that no row covers in a log that states when nodes were idle; note it, and contradictions."""
    rest = (idle | taken).gaps(whole)
    what = "unavailable" if len(busy) else "busy"
    for spans, why in (
        (
            rest,
            f"rows state when nodes were idle: time that no row covers counts as {what}",
        ),
        (
            idle & taken,
            "idle rows overlap busy or unavailable ones: nodes count as not idle there",
        ),
    ):
        if len(spans):
            account.note(
                why,
                "",
                0,
                f"{spans.total_ns() / whole.total_ns():.1%} of the node-time",
            )
    return rest


def _unseen(logs: _Logs, taken: Spans, whole: Spans) -> list[Doubt]:
    """Doubt nodes before their first and after their last sign of life, and those that the list calls down after it."""
    machine = logs.machine
    signs = logs.signs.clipped(*logs.window.bounds) | taken
    gaps = signs.gaps(whole)
    before, after = d.edges(signs, gaps)
    down = gaps.where(after & np.isin(gaps.node, machine.down()))
    names = [machine.names[place] for place in distinct(down.node).tolist()]
    counts = "look idle" if logs.asked.counts_idle else "count as unavailable"
    why = (
        "nodes are DOWN or drained in the list of nodes, but no outage says since when: they "
        f"{counts} from their last job on"
    )
    share = down.total_ns() / whole.total_ns()
    d.say(logs.records.account, why, share, f"{len(names)}, such as {some(names)}")
    return [(d.SILENT, d.silences(gaps, before | after)), (d.DOWN, down)]


def _lost_ns(
    records: Records, table: RecordTable, window: Window, busy_ns: float
) -> float:
    """Node-time of the jobs whose rows were skipped; those that do not state it are taken to be as the others."""
    lost = records.skips()[table["why"]] & ~(
        table["beside"] | table["samples"] | table["again"]
    )
    starts, ends, count = (table[name][lost] for name in ("start", "end", "count"))
    stated = (starts != NONE) & (ends >= starts) & (count > 0)
    stated_ns = window.inside(starts, ends)[stated] * count[stated].astype(np.float64)
    return float(
        stated_ns.sum()
        + busy_ns / max(1, len(window.starts)) * np.count_nonzero(~stated)
    )


def _trace(
    machine: Machine, units: UnitMap | None, window: Window, idle: Spans
) -> NodeTrace:
    """The trace of these idle fragments, of nodes or of units; those that end with the window stay open."""
    slot = idle.node.astype(np.int32) if units is None else units.slots(idle.node)
    # One after the other: the begins and ends of a year of a large machine take gigabytes.
    joins, (left, times) = in_order(slot, idle.begin_ns), in_order(slot, idle.end_ns)
    closed = int(np.searchsorted(times, window.end_ns))
    events = events_of(joins, (left[:closed], times[:closed]))
    names = tuple(machine.names)
    fields: dict[str, Any] = {"classes": machine.classes()}
    if units is not None:
        some_units = np.flatnonzero(units.sizes)
        names = tuple(machine.names[place] for place in some_units.tolist())
        sizes = tuple(units.sizes[some_units].tolist())
        fields = {"units_per_node": units.per_node, "node_units": sizes}
    return NodeTrace(
        names, **events, start=window.start_ns, end=window.end_ns, **fields
    )


# --- the machine's own jobs -----------------------------------------------------------------------------------------


def _host_jobs(records: Records, table: RecordTable, machine: Machine) -> HostJobs:
    """What the scheduler knew of its jobs and reservations, in order of when it knew them.

    Several records of one run are one job, of the latest end; one that neither waited nor ran, or on no nodes, is left
    out. A job that waits in one file may have begun in another.
    """
    ran = table.of_kind("ran")
    ran = ran[(table["count"][ran] > 0) & ~table["again"][ran] & ~table["beside"][ran]]
    down = table.of_kind("down")
    down = down[table["otherwise"][down] == records.reason(RESERVED)]
    rows = np.concatenate([ran, _waiting(records, table, ran), down])
    waits, reserved = table["why"][rows] > 0, table["kind"][rows] == KIND["down"]
    start = np.where(waits, OPEN, table["start"][rows])
    known = np.where(
        table["known"][rows] == NONE, start, np.minimum(table["known"][rows], start)
    )
    known = np.where(reserved, start - NOTICE_NS, known)
    order = np.lexsort((table["count"][rows], start, reserved, waits, known))
    rows, waits, reserved, start, known = (
        each[order] for each in (rows, waits, reserved, start, known)
    )
    end, limit = _ends(table, rows), table["limit"][rows]
    expected = np.where(
        waits | (limit == NONE), OPEN, start + np.minimum(limit, OPEN - 1 - start)
    )
    named = ~waits & (table["ranges"][rows] > 0)
    sizes = np.where(named, table["count"][rows], 0)
    # Nodes that are not the machine's are counted after these.
    outside = np.flatnonzero(machine.index < 0)
    codes = machine.index.astype(np.int32)
    codes[outside] = len(machine.names) + np.arange(len(outside))
    return HostJobs(
        (*machine.names, *(machine.nodes.names[node] for node in outside.tolist())),
        reserved,
        known=known,
        start=start,
        end=end,
        expected_end=np.where(reserved, end, expected),
        count=table["count"][rows].astype(np.int64),
        nodes=np.concatenate(
            [
                codes[:0],
                *(codes[node] for node, _ in _spread(table, machine, rows[named])),
            ]
        ),
        offsets=np.append(0, np.cumsum(sizes, dtype=np.int64)),
    )


def _waiting(records: Records, table: RecordTable, ran: Places) -> Places:
    """Jobs that waited, each once; one without an end only where it did not begin later."""
    ident, known, end = table["id"], table["known"], table["end"]
    waited = (
        (table["why"] == records.reason(NEVER_STARTED))
        & (known != NONE)
        & (table["count"] > 0)
    )
    rows = np.flatnonzero(waited & ((end == NONE) | (end >= known)))
    rows = rows[np.lexsort((end[rows] == NONE, known[rows], ident[rows]))]
    same = (ident[rows][1:] == ident[rows][:-1]) & (known[rows][1:] == known[rows][:-1])
    rows = rows[np.append(True, ~same)[: len(rows)]]
    # The last start of each job.
    by_id = ran[np.lexsort((table["start"][ran], ident[ran]))]
    last = np.append(by_id, rows)[
        np.searchsorted(ident[by_id], ident[rows], side="right") - 1
    ]
    began = (ident[last] == ident[rows]) & (table["start"][last] >= known[rows])
    waiting: Places = rows[(end[rows] != NONE) | ~began]
    return waiting
