"""From the table of records to a node trace: the window of observation, the nodes, and what is left idle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.tolerances import SHARES
from bft.replay.logs import doubts as d
from bft.replay.logs.doubts import Doubt, JobTimes, Shown, Window
from bft.replay.logs.hosts import of_keys
from bft.replay.logs.machine import Machine, machine_of, refuse_unknown, some
from bft.replay.logs.records import (
    FILTERS,
    KIND,
    NEVER_STARTED,
    POWERED_OFF,
    RESERVED,
    Records,
    RecordTable,
    Unusable,
    hosts_of,
)
from bft.replay.logs.runs import settle_runs, tell_open
from bft.replay.logs.spans import Gathered, Scale, Spans, everywhere
from bft.replay.logs.states import BUSY, IDLE, UNAVAILABLE, UNSEEN, CountsAs, Sampled
from bft.replay.logs.times import NONE, OPEN, Mask, Whole, distinct
from bft.replay.logs.units import (
    Held,
    Sizes,
    UnitMap,
    held_of,
    placed,
    refuse_untracked,
    units_of_machine,
)
from bft.replay.trace.host_jobs import NEVER, HostJobs
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, from_fragments
from bft.replay.trace.uncertainty import Uncertainty

Places = NDArray[np.int64]
# Spans of jobs from which on short gaps between them are filled at once.
_MANY = 500_000
# Share of the jobs' node-time from which on nodes count as shared by jobs; and jobs from which on that can be told.
_SHARED, _ENOUGH_JOBS = 0.2, 20
_DAY_NS = 86_400 * SECOND_NS
# No log states when a reservation was made: it counts as announced so long before it begins.
NOTICE_NS = _DAY_NS


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
        shares = {
            name: getattr(self, name)
            for name in ("busy", "unavailable", "idle", "short_gaps")
        }
        if not all(-SHARES <= share <= 1 + SHARES for share in shares.values()):
            raise RuntimeError(
                f"a share of the node-time is not between 0 and 1: {shares}"
            )
        if not abs(math.fsum(shares.values()) - 1) <= SHARES:
            raise RuntimeError(
                f"the shares of the node-time do not add up to 1: {shares}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the coverage as plain values, for JSON."""
        return asdict(self)


def trace_of(records: Records, asked: Asked) -> tuple[NodeTrace, Coverage, Any]:
    """The idle nodes of a machine: those of its nodes that are neither busy nor unavailable.

    Raises
    ------
    InputError
        When no record is of use, when the window is empty or lies outside the logs, when no job ran on a node of the
        list of nodes, and when the logs lack records for sure.
    """
    account = records.account
    table = records.settle()
    requeues = settle_runs(table, records, records.ends_ns)
    sampled = records.snapshots.settle(_listed_names(records))
    holdings = None if records.unit is None else Holdings(records, table)
    records.fill(table)
    refuse_unknown(records, asked.filters)
    counted = _add_counted_machine(records, table, asked)
    made = [] if sampled is None else [records.names_of(sampled.names)]
    for why, detail in () if sampled is None else sampled.notes:
        account.note(why, "", 0, detail, loud=True)
    machine = machine_of(
        records,
        table,
        made,
        partition=asked.filters.get("partition"),
        source=asked.source,
        counts_as=asked.counts_as,
    )
    times = _job_times(table)
    window = _window(records, table, times, sampled, asked)
    logs = _Logs(records, table, machine, window, times, sampled, asked, holdings)
    logs.read()
    if not (logs.reports or account.allow_few):
        raise InputError(
            "no row reports when a node was busy or down: all nodes would look idle",
            file=asked.source or None,
            hint=f"--allow-few accepts that{'; ' if account.losses() else ''}{account.losses()}",
        )
    fragments, uncertain, coverage = _idle_time(logs, counted=counted)
    units = logs.units
    del logs, times  # a trace and host jobs take memory as well
    made_trace = replace(
        _trace(machine, units, window, fragments),
        uncertain=uncertain,
        busy_share=coverage.busy,
        unavailable_share=coverage.unavailable,
    )
    d.filtered(records, account, asked.source)
    d.requeues(requeues, account, asked.source, are_stated=records.says_requeues)
    if not made_trace.by_unit:
        made_trace = replace(made_trace, host_jobs=_host_jobs(records, table, machine))
    return made_trace, coverage, _texts(records, table)


def _texts(records: Records, table: RecordTable) -> Any:
    """The table of records as text, with why each row was not used, for `--records`; None unless it was kept."""
    if records.kept is None:
        return None
    why = [records.reasons[code] for code in table["why"].tolist()]
    kept = pa.concat_tables(records.kept)
    return kept.append_column("why", pa.array(why[: len(kept)], pa.string()))


def _listed_names(records: Records) -> list[str]:
    """Names of all nodes of lists."""
    return records.nodes_of(records.names_of(records.listed_hosts())).names


def _job_times(table: RecordTable) -> JobTimes:
    """Start and end of each job."""
    rows = _jobs(table)
    return JobTimes(table["start"][rows], _ends(table, rows))


def _ends(table: RecordTable, rows: Places) -> Whole:
    """End of each row; `OPEN` (`host_jobs.NEVER`) of what goes on, as far as the logs tell."""
    ends = table["end"][rows]
    return np.where((ends == NONE) | table["goes_on"][rows], OPEN, ends)


# --- the window of observation --------------------------------------------------------------------------------------


def _jobs(table: RecordTable) -> Places:
    """Rows of jobs that are used, of logs of jobs."""
    rows = table.of_kind("ran")
    jobs: Places = rows[~table["beside"][rows]]
    return jobs


def _window(
    records: Records,
    table: RecordTable,
    times: JobTimes,
    sampled: Sampled | None,
    asked: Asked,
) -> Window:
    """Begin and end of the window of observation; says on which grounds, and what is odd about it.

    Rows of jobs state true ends, also ends after the export, when no start could be shown any more: so a log is known
    to show what happens up to the last start. Where records are written as things happen, it is up to the last record.
    By default the window begins with the first *end* of a job: of the time before only long jobs are known.
    """
    account, source = records.account, asked.source
    jobs = _jobs(table)
    ends = table["end"][jobs][table["end"][jobs] != NONE]
    first_start, first_end = (
        int(times.starts.min(initial=OPEN)),
        int(ends.min(initial=OPEN)),
    )
    last = max(times.last_start(), int(ends.max(initial=0)))
    shown_until = max(records.shown_until, 0 if sampled is None else sampled.last_ns)
    start, end = first_end, max(times.last_start(), shown_until)
    if (
        start >= end
    ):  # all jobs started before the first had ended: there is no better guess
        end = last
    if start >= end:
        start = first_start
    spans = [
        records.observed,
        None if sampled is None else (sampled.first_ns, sampled.last_ns),
    ]
    stated = [span for span in spans if span is not None]
    if not stated and first_start == OPEN and records.observed_outages is not None:
        stated = [records.observed_outages]
    if stated:  # logs of jobs that state none may lie beside those that state it
        start, end = (
            min(start, *(low for low, _ in stated)),
            max(end, *(high for _, high in stated)),
        )
    log = min(start, first_start), max(end, last)
    others = _others(table)
    log = (
        min(log[0], int(table["start"][others].min(initial=log[0]))),
        max(log[1], int(table["end"][others].max(initial=log[1]))),
    )
    if asked.start_ns is not None:
        start = asked.start_ns
    elif not stated and first_start < start < OPEN:
        account.note(
            "the window begins with the first end of a job: of the time before only long jobs are known",
            source,
            0,
        )
    if asked.end_ns is not None:
        end = asked.end_ns
    elif not stated and shown_until < end < last:
        account.note("the window ends with the last start of a job: the log does not tell whether it would show "
                     "jobs that start later; --to states its end", source, 0)  # fmt: skip
    elif not stated and end > max(times.last_start(), shown_until):
        why = "all jobs started before the first one ended: the window ends with the last end, and whether "
        why += (
            "the log would show jobs that start later is not known; --to states its end"
        )
        account.note(why, source, 0)
    if start >= end:
        raise InputError(
            "the window of observation is empty"
            if start < OPEN
            else "no job tells when the observation began",
            file=source or None,
            hint=f"--from and --to set it{'; ' if account.losses() else ''}{account.losses()}",
        )
    window = Window(start, end, [])
    if log[0] <= log[1]:
        d.check_window(window, log, account, source, counts_idle=asked.counts_idle)
    known = (
        asked.start_ns is not None or bool(stated),
        asked.end_ns is not None or bool(stated),
    )
    d.check_ends(
        window, known, times, lambda job: records.place(table, jobs[job]), account
    )
    return window


def _others(table: RecordTable) -> Places:
    """Rows of jobs that filters of jobs leave out: signs of life of their nodes."""
    of_jobs = [
        number for number, each in enumerate(FILTERS.values(), 1) if each.of_jobs
    ]
    mine = (
        np.isin(table["filter"], of_jobs)
        & (table["kind"] == KIND["ran"])
        & (table["ranges"] > 0)
    )
    return np.flatnonzero(mine & (table["start"] != NONE))


# --- jobs of logs that only count their nodes -----------------------------------------------------------------------


def _counted(table: RecordTable) -> Places:
    rows = table.of_kind("ran")
    counted: Places = rows[(table["ranges"][rows] == 0) & (table["count"][rows] > 0)]
    return counted


def _add_counted_machine(records: Records, table: RecordTable, asked: Asked) -> bool:
    """Make the machine known of logs that only count nodes; True where there are such jobs."""
    rows, account = _counted(table), records.account
    stated = max((size for size in records.machine_nodes), default=None)
    if not len(rows):
        if asked.machine_nodes and len(table.made):
            account.note(
                "--machine-nodes has no effect: the logs name the nodes",
                "",
                0,
                loud=True,
            )
        return False
    if records.unit is not None:
        raise InputError(
            f"--unit {records.unit}: jobs name no nodes, so that their units are not known"
        )
    if records.listed:
        listed = len(_listed_names(records))
        if asked.machine_nodes not in (None, listed):
            raise InputError(
                f"--machine-nodes: {asked.machine_nodes}, but --nodes lists {listed}",
                hint="give one",
            )
        if stated not in (None, listed):
            account.note("the log states another number of nodes than the list of nodes, which is taken", "", 0,
                         f"{stated}, listed are {listed}", loud=True)  # fmt: skip
        return True
    ends = np.where(table["end"][rows] == NONE, OPEN, table["end"][rows])
    size = (
        asked.machine_nodes
        or stated
        or _peak(table["count"][rows], table["start"][rows], ends)
    )
    if not (asked.machine_nodes or stated):
        account.note("neither log nor --machine-nodes tell the machine's size: it is taken to be the most nodes "
                     "that were busy at once", "", 0, f"{size}")  # fmt: skip
    named = records.nodes_of(table.made).names
    digits = max(5, len(str(size - 1)))
    ours = [name for node in range(size) if (name := f"n{node:0{digits}}") not in named]
    records.listed.append(
        (
            "",
            {
                "hosts": ",".join([*named, *ours[: max(0, size - len(named))]]),
                "line": 0,
            },
        )
    )
    return True


def _peak(needed: Whole, starts: Whole, ends: Whole) -> int:
    """The most nodes that were busy at once; what ends at an instant makes room for what starts then."""
    times = np.concatenate([ends, starts])
    changes = np.concatenate([-needed.astype(np.int64), needed.astype(np.int64)])
    return int(np.cumsum(changes[np.argsort(times, kind="stable")]).max())


# --- units of nodes, where these turn idle one by one ---------------------------------------------------------------


class Holdings:
    """What jobs held of their nodes, one entry a job and node of which it held any; skips jobs that held too much.

    Attributes
    ----------
    row, made, what
        Of each entry the job's row, its node as a range, and what it held as an index of `held`.
    sizes
        What nodes have.
    """

    def __init__(self, records: Records, table: RecordTable) -> None:
        self.records, self.sizes = records, Sizes(records.unit, records.units_per_node)
        for _, each in records.listed:
            amounts = (each.get(name) for name in ("gpus", "cores", "shares"))
            self.sizes.state(hosts_of(each), *amounts, part=bool(each.get("part")))
        jobs = table.of_kind("ran")
        nodes = records.nodes_of(table.ranges_of(jobs)[0])
        places, at = nodes.of(*table.ranges_of(jobs))
        bounds = np.searchsorted(at, np.arange(len(jobs) + 1)).tolist()
        named = self._named(table)
        numbers: dict[Held, int] = {}
        rows, made, what = [], [], []
        without = 0
        for number, row in enumerate(jobs.tolist()):
            mine = places[bounds[number] : bounds[number + 1]]
            code = named.get(
                (int(table["id"][row]), int(table["start"][row])),
                int(table["units"][row]),
            )
            hosts = [nodes.names[place] for place in mine.tolist()]
            try:
                held = held_of(
                    records.units[code], hosts, self.sizes, self._teller(table, row)
                )
            except Unusable as why:
                table["why"][row] = records.refuse(table, row, why)
                continue
            without += not any(held)
            for key, units in zip(nodes.keys[mine].tolist(), held, strict=True):
                if units:
                    rows.append(row)
                    made.append(key)
                    what.append(numbers.setdefault(units, len(numbers)))
        self.row, self.what = (
            np.array(rows, dtype=np.int64),
            np.array(what, dtype=np.int64),
        )
        self.made = of_keys(np.array(made, dtype=np.int64))
        self.held = list(numbers)
        if not records.account.allow_few:
            refuse_untracked(records.unit, self.held, without)

    def _named(self, table: RecordTable) -> dict[tuple[int, int], int]:
        """Records without an end that name the units of a job, by its id and start: they are for all its records."""
        naming = [
            code
            for code, each in enumerate(self.records.units)
            if each is not None and each.numbered
        ]
        rows = np.flatnonzero(
            np.isin(table["units"], naming)
            & (table["end"] == NONE)
            & (table["kind"] == KIND["ran"])
        )
        found: dict[tuple[int, int], int] = {}
        for row in rows.tolist():
            run, code = (
                (int(table["id"][row]), int(table["start"][row])),
                int(table["units"][row]),
            )
            found[run] = max(
                code,
                found.get(run, code),
                key=lambda each: repr(self.records.units[each]),
            )
        return found

    def _teller(self, table: RecordTable, row: int) -> Callable[[str, bool], None]:
        def tell(reason: str, loud: bool) -> None:
            self.records.tell(table, np.array([row]), reason, loud=loud)

        return tell

    def units_of(self, machine: Machine) -> UnitMap:
        """The units of the machine's nodes."""
        nodes = machine.nodes
        known = [
            (place, name)
            for place, name in zip(machine.index.tolist(), nodes.names, strict=True)
            if place >= 0
        ]

        def tell(reason: str, detail: str) -> None:
            self.records.account.note(reason, "", 0, detail, loud=True)

        return units_of_machine(self.sizes, known, machine.names, tell)


# --- what the logs show of each node --------------------------------------------------------------------------------


class _Logs:
    """When the nodes of the machine were busy, unavailable and idle, as far as records say.

    Attributes
    ----------
    busy, unavailable, idle
        Spans by place of the nodes, of all the time that logs state.
    others
        When jobs ran there that filters leave out.
    doubts
        What is in doubt of them.
    contradicted
        Row of a job without an end, for each of its nodes on which a later job ends it.
    given, filled, filled_ns
        How many node-intervals there were; how many short gaps were filled, as there were many; and their node-time.
    """

    def __init__(
        self, records: Records, table: RecordTable, machine: Machine, window: Window, times: JobTimes,
        sampled: Sampled | None, asked: Asked, holdings: Holdings | None,
    ) -> None:  # fmt: skip
        self.records, self.table, self.machine = records, table, machine
        self.window, self.times, self.asked = window, times, asked
        self.account, self.sampled = records.account, sampled
        self.doubts: list[Doubt] = []
        self.given = self.touching = self.filled = self.filled_ns = 0
        self.contradicted = np.zeros(0, dtype=np.int64)
        self.longest = times.longest()
        # A short log shows few long jobs: one that runs a little longer than these is no reason for doubt.
        self.believed = max(2 * self.longest, _DAY_NS) if self.longest else 0
        stated = [table[name][table[name] != NONE] for name in ("start", "end")]
        bounds = np.array([window.start_ns, window.end_ns], dtype=np.int64)
        known = [*stated, bounds]
        if sampled is not None:
            known += [sampled.begin, sampled.end]
        absent = [
            time
            for _, since, until in machine.absent
            for time in (since, until)
            if 0 < time < OPEN
        ]
        known.append(np.array(absent, dtype=np.int64))
        self.horizon = max(int(part.max(initial=0)) for part in known)
        later = (
            [part + asked.completing_ns for part in known]
            if asked.completing_ns
            else []
        )
        likely = [stated[0] + self.believed] if self.believed else []
        self.holdings = holdings
        self.units = None if holdings is None else holdings.units_of(machine)
        size = len(machine.names) if self.units is None else self.units.total
        self.scale = Scale.of([*known, *later, *likely], max(1, size))
        self.held = self.of_units = Spans(self.scale)

    @property
    def reports(self) -> bool:
        """Whether a log (no list of nodes, nothing beside) reported anything of any time."""
        kinds = [KIND[kind] for kind in ("ran", "down", "idle", "all down")]
        mine = (
            np.isin(self.table["kind"], kinds)
            & (self.table["why"] == 0)
            & ~self.table["beside"]
        )
        return (
            bool(mine.any())
            or self.sampled is not None
            or self.records.observed is not None
        )

    @property
    def states_idle(self) -> bool:
        """Whether logs state when nodes were idle."""
        mine = (self.table["kind"] == KIND["idle"]) & (
            (self.table["why"] == 0) | (self.table["filter"] > 0)
        )
        return bool(mine.any()) or (
            self.sampled is not None and bool((self.sampled.code == IDLE).any())
        )

    def spread(self, rows: Places) -> Iterator[tuple[Whole, Places]]:
        """Yield the nodes of rows by their places, and the row of each, some rows at a time."""
        for mine in self.table.in_parts(rows):
            node, at = self.machine.nodes.of(*self.table.ranges_of(mine))
            place = self.machine.index[node]
            known = place >= 0
            yield (
                (place[known], mine[at[known]])
                if not known.all()
                else (place, mine[at])
            )

    def spans(
        self, rows: Places, ends: Whole | None = None, *, counted: bool = True
    ) -> Spans:
        """The union of what rows state, to their ends; a row without one lasts to the horizon."""
        gathered = Gathered(self.scale)
        ends = self.table["end"] if ends is None else ends
        ticks = (
            self.scale.ticks(self.table["start"][rows]),
            self.scale.ticks(np.where(ends[rows] == NONE, self.horizon, ends[rows])),
        )
        at = np.zeros(len(self.table), dtype=np.int32)
        at[rows] = np.arange(len(rows))
        for place, row in self.spread(rows):
            gathered.add(place, ticks[0][at[row]], ticks[1][at[row]])
        del ticks, at  # the union takes much memory
        found = gathered.spans()
        if counted:
            self.given += gathered.given
            self.touching += gathered.given - len(found)
        return found

    def read(self) -> None:
        """Find the spans of all records."""
        table = self.table
        self.paused = Spans(self.scale)
        self.others = self._of_others()
        jobs = table.of_kind("ran")
        jobs = jobs[(table["ranges"][jobs] > 0) & (self.holdings is None)]
        is_open = (table["end"][jobs] == NONE) | table["goes_on"][jobs]
        late = np.zeros(len(table), dtype=bool)
        late[_jobs(self.table)[self.times.late()]] = True
        paused = ~is_open & (table["suspended"][jobs] > 0)
        closed = jobs[~is_open & ~paused & ~late[jobs]]
        self.busy = self.spans(closed)
        if len(self.busy) > _MANY:
            bounds = self.window.start_ns, self.window.end_ns
            many = len(self.busy)
            self.busy, self.filled_ns = self.busy.filled(self.asked.min_gap_ns, *bounds)
            self.filled = many - len(self.busy)
        self._say_foreign(jobs)
        touching = self.touching
        self.busy |= self._place_counted()
        self.busy |= self._sampled(BUSY)
        self.busy |= self._suspended(jobs[paused])
        going = self._open_jobs(jobs[is_open | late[jobs]], late)
        if pauses := self._pauses(jobs[is_open]):
            going &= self._while_running(jobs[is_open | late[jobs]], pauses)
        self.busy |= going
        self.touching = touching
        if self.holdings is not None and self.units is not None:
            self._read_units(self.holdings, self.units)
        self._read_outages()
        idle = table.of_kind("idle")
        self.idle = self.spans(idle) | self._sampled(IDLE)
        tell_open(self.records, table, idle[table["end"][idle] == NONE], "idle row")

    def _of_others(self) -> Spans:
        """When jobs ran that filters leave out; one without an end shows its nodes alive at its start."""
        rows, ends = _others(self.table), self.table["end"].copy()
        ends[rows[ends[rows] == NONE]] = self.table["start"][rows[ends[rows] == NONE]]
        return self.spans(rows, ends, counted=False)

    def _sampled(self, *codes: int) -> Spans:
        """When snapshots show nodes in some states."""
        if self.sampled is None:
            return Spans(self.scale)
        sampled = self.sampled
        first, _ = self.machine.nodes.places(self.records.names_of(sampled.names))
        place = self.machine.index[first][sampled.node]
        mine = np.isin(sampled.code, codes) & (place >= 0)
        self.given += int(np.count_nonzero(mine))
        return Spans.of(self.scale, place[mine], sampled.begin[mine], sampled.end[mine])

    def _say_foreign(self, jobs: Places) -> None:
        """Say how much of the jobs' node-time lies on nodes that are not in the list of nodes."""
        machine = self.machine
        if not machine.is_listed:
            return
        table, nodes = self.table, machine.nodes
        jobs = jobs[table["end"][jobs] != NONE]
        outside = np.zeros(len(nodes), dtype=bool)
        lost = total = 0.0
        met: set[int] = set()
        for mine in table.in_parts(jobs):
            node, at = nodes.of(*table.ranges_of(mine))
            lengths = (table["end"][mine] - table["start"][mine]).astype(np.float64)[at]
            outside = machine.index[node] < 0
            lost, total = lost + lengths[outside].sum(), total + lengths.sum()
            met.update(distinct(node).tolist())
        left = sorted(node for node in met if machine.index[node] < 0)
        if left:
            names = [nodes.names[node] for node in left]
            why = "jobs ran on nodes that are not in the list of nodes: left out"
            share = f"{lost / max(1.0, total):.1%} of the jobs' node-time"
            detail = f"{len(left):,} of {len(met):,} nodes with jobs, {share}, such as {some(names)}"
            self.account.note(why, "", 0, detail, loud=True)

    # jobs without an end

    def _open_jobs(self, rows: Places, late: Mask) -> Spans:
        """End jobs of which no record states the end, or one that is not believed.

        Where jobs share no nodes one ends on each node with the next job that starts there: Slurm calls them runaway;
        of PBS the record of the end is lost. What runs much longer than any other is in doubt from then on.
        """
        table = self.table
        tell_open(self.records, table, rows[table["end"][rows] == NONE], "job")
        why = "jobs end long after all others: a mistyped year? "
        why += (
            "their nodes are in doubt from where the longest other job would have ended"
        )
        self.records.tell(table, rows[late[rows]], why, loud=True)
        parts = list(self.spread(rows))
        if not parts:
            return Spans(self.scale)
        place, row = (np.concatenate(each) for each in zip(*parts, strict=True))
        start = table["start"][row]
        end = np.where(table["end"][row] == NONE, self.horizon, table["end"][row])
        self.given += len(place)
        alive = self._alive_for(place, start)
        if alive is not None:
            following = alive.next_begin(place, start)
            cut = (following >= 0) & (following < end) & ~late[row]
            end = np.where(cut, following, end)
            self.contradicted = row[cut]
        else:
            cut = np.zeros(len(row), dtype=bool)
        likely = np.minimum(start + self.believed, end) if self.believed else end
        doubtful = ~cut & (likely < end)
        believed = np.where(doubtful, likely, end)
        for mine, reason in (
            (doubtful & ~late[row], d.NO_END),
            (doubtful & late[row], d.LATE_END),
        ):
            if mine.any():
                self.doubts.append(
                    Doubt(
                        reason,
                        Spans.of(self.scale, place[mine], likely[mine], end[mine]),
                    )
                )
        return Spans.of(self.scale, place, start, believed)

    def _alive_for(self, place: Whole, start: Whole) -> Spans | None:
        """When jobs start on nodes, these among them; None where that says nothing of when others have ended."""
        if len(self.times) < _ENOUGH_JOBS or self.records.unit is not None:
            return None
        if self._shared(self.busy, self.given_ns()) > _SHARED:
            return None
        both = self.busy | self.others
        apart = self.busy.total_ns() + self.others.total_ns()
        alive = self.busy if apart / max(1, both.total_ns()) - 1 > _SHARED else both
        begins = place << self.scale.bits | self.scale.ticks(start)
        return Spans(self.scale, distinct(np.concatenate([alive.begins, begins])))

    def given_ns(self) -> float:
        """Node-time of the jobs that have ended, those of the machine's nodes."""
        table, total = self.table, 0.0
        rows = table.of_kind("ran")
        rows = rows[
            (table["end"][rows] != NONE)
            & ~table["goes_on"][rows]
            & (table["units"][rows] == 0)
        ]
        for place, row in self.spread(rows):
            total += (
                float((table["end"][row] - table["start"][row]).sum())
                if len(place)
                else 0.0
            )
        return total

    @staticmethod
    def _shared(union: Spans, given_ns: float) -> float:
        return 1 - union.total_ns() / given_ns if given_ns else 0.0

    # units

    def _read_units(self, holdings: Holdings, units: UnitMap) -> None:
        """Find which units jobs held; a job without an end that runs much longer than any other is in doubt."""
        table, rows = self.table, holdings.row
        tell_open(
            self.records, table, distinct(rows[table["end"][rows] == NONE]), "job"
        )
        first, _ = self.machine.nodes.places(holdings.made)
        place = self.machine.index[first]
        start = table["start"][rows]
        is_open = (table["end"][rows] == NONE) | table["goes_on"][rows]
        end = np.where(table["end"][rows] == NONE, self.horizon, table["end"][rows])
        likely = np.where(
            is_open & bool(self.believed), np.minimum(start + self.believed, end), end
        )
        if self.asked.counts_idle:
            end, doubtful = likely, end - likely
        else:
            doubtful = end - np.minimum(
                np.maximum(likely, self.window.start_ns), self.window.end_ns
            )
        late = float(
            (
                np.minimum(doubtful, self.window.end_ns - likely)
                * (is_open & (likely < self.window.end_ns))
            )
            .clip(0)
            .sum()
        )
        if late:
            self.doubts.append(
                Doubt(d.NO_END, ns=late * units.total / max(1, len(units.sizes)))
            )
        taken = placed(
            place, start, end, holdings.what, holdings.held, units, holdings.sizes.unit
        )
        for why, detail in taken.notes:
            self.account.note(why, "", 0, detail, loud=True)
        mine = place >= 0
        self.given += len(rows)
        self.held = Spans.of(self.scale, place[mine], start[mine], end[mine])
        completed = end[taken.row] + self.asked.completing_ns
        self.of_units = Spans.of(self.scale, taken.unit, start[taken.row], completed)

    @property
    def merged(self) -> int:
        """Spans that overlapped or touched another one."""
        unions = len(self.busy) + len(self.unavailable) + len(self.idle)
        return self.given - self.filled - unions

    def by_unit(self, spans: Spans) -> Spans:
        """Spans of nodes as spans of each of their units, where these turn idle one by one."""
        if self.units is None:
            return spans
        return Spans.of(
            self.scale, *self.units.of_nodes(spans.node, spans.begin_ns, spans.end_ns)
        )

    # suspended jobs

    def _suspended(self, rows: Places) -> Spans:
        """Jobs that were suspended: Slurm calls their nodes idle meanwhile, where no other job runs.

        Where listings say when, they are; elsewhere they are busy here.
        """
        if not len(rows):
            return Spans(self.scale)
        table, before = self.table, self.busy
        unknown = table["suspended"].copy()
        pauses = self._pauses(rows)
        found = self._while_running(rows, pauses, counted=True)
        for job, spans in pauses.items():
            unknown[job] -= sum(end - begin for begin, end in spans)
        rows = rows[unknown[rows] > 0]
        start, end = self.window.start_ns, self.window.end_ns
        size = len(self.machine.names)
        ran, lost = np.zeros(size), np.zeros(size)
        for place, row in self.spread(rows):
            inside = np.minimum(table["end"][row], end) - np.maximum(
                table["start"][row], start
            )
            length = np.maximum(inside, 0).astype(np.float64)
            of_it = unknown[row] / np.maximum(
                1, table["end"][row] - table["start"][row]
            )
            ran += np.bincount(place, length, size)
            lost += np.bincount(place, length * np.minimum(1, of_it), size)
        # On each node that is how much longer than they ran suspended jobs were there while no other job was.
        alone = (before | found).clipped(start, end), before.clipped(start, end)
        time = [
            np.bincount(each.node, each.lengths_ns.astype(np.float64), size)
            for each in alone
        ]
        idle_ns = float(np.clip(time[0] - time[1] - (ran - lost), 0, lost).sum())
        if idle_ns:
            self.doubts.append(Doubt(d.SUSPENDED, ns=idle_ns))
        return found

    def _while_running(
        self,
        rows: Places,
        pauses: dict[int, list[tuple[int, int]]],
        *,
        counted: bool = False,
    ) -> Spans:
        """The nodes of jobs, but where listings say that they were suspended."""
        apart = np.array(list(pauses), dtype=np.int64)
        found = self.spans(rows[~np.isin(rows, apart)], counted=counted)
        for row, spans in pauses.items():
            place, _ = next(self.spread(np.array([row])), (apart[:0], apart))
            since, until = np.array(spans, dtype=np.int64).T
            each = np.tile(since, len(place)), np.tile(until, len(place))
            paused = Spans.of(self.scale, np.repeat(place, len(since)), *each)
            self.paused |= paused
            ran = self.spans(np.array([row]), counted=False) - paused
            self.given += len(ran) - (0 if counted else len(place))
            found |= ran
        return found

    def _pauses(self, rows: Places) -> dict[int, list[tuple[int, int]]]:
        """From when to when listings say that jobs were suspended.

        What was not listed while it was suspended is known by how long it had run.
        """
        table = self.table
        seen: dict[tuple[int, int], dict[int, tuple[list[int], list[int]]]] = {}
        columns = ("id", "start", "suspended", "end")
        for number, kind in enumerate(("suspended", "resumed")):
            at = table.of_kind(kind)
            for ident, start, ran, when in zip(
                *(table[name][at].tolist() for name in columns), strict=True
            ):
                pauses = seen.setdefault((ident, start), {})
                pauses.setdefault(ran, ([], []))[number].append(when)
        found: dict[int, list[tuple[int, int]]] = {}
        for row in rows.tolist() if seen else ():
            start, end = int(table["start"][row]), int(table["end"][row])
            end, lost = self.horizon if end == NONE else end, 0
            stated = seen.get((int(table["id"][row]), start), {})
            for ran, (since, until) in sorted(stated.items()):
                begin = min(since, default=start + ran + lost)
                pause = begin, max(begin, min([*until, end]))
                found.setdefault(row, []).append(pause)
                lost += pause[1] - begin
        return found

    # outages and reservations

    def _read_outages(self) -> None:
        """Find when nodes were down, drained or reserved; one without an end ends when a job starts on its node."""
        table, scale = self.table, self.scale
        rows = table.of_kind("down")
        reserved = table["otherwise"][rows] == self.records.reason(RESERVED)
        is_open = (table["end"][rows] == NONE) & ~reserved
        self.unavailable = self.spans(rows[~is_open])
        alive = self.busy | self.others | self.held
        cut_rows: list[Places] = []
        left: list[Places] = [rows[reserved & (table["end"][rows] == NONE)]]
        for place, row in self.spread(rows[is_open]):
            start = table["start"][row]
            following = alive.next_begin(place, start)
            self.unavailable |= Spans.of(
                scale, place, start, np.where(following >= 0, following, self.horizon)
            )
            self.given += len(place)
            cut_rows.append(row[following >= 0])
            left.append(row[following < 0])
        cut = np.concatenate([rows[:0], *cut_rows])
        why = "an outage has no end, but jobs start on its nodes later: it ends on each node with the first one"
        self.records.tell(table, cut, why, loud=True)
        tell_open(self.records, table, np.unique(np.concatenate(left)), "outage")
        self._read_machine_down()
        absent = self.machine.absent
        if absent:
            node, since, until = (
                np.array(column, dtype=np.int64) for column in zip(*absent, strict=True)
            )
            low, high = self.scale.low, self.horizon
            self.unavailable |= Spans.of(
                scale, node, np.maximum(since, low), np.minimum(until, high)
            )
        if self.sampled is not None:
            self.unavailable |= self._sampled(UNSEEN, UNAVAILABLE)

    def _read_machine_down(self) -> None:
        """Find when the whole machine was down; without an end until the next job starts."""
        table = self.table
        starts = np.sort(
            np.concatenate(
                [table["start"][_jobs(self.table)], table["start"][_others(table)]]
            )
        )
        for row in table.of_kind("all down").tolist():
            begin, end = int(table["start"][row]), int(table["end"][row])
            if end == NONE:
                at = int(np.searchsorted(starts, begin, side="right"))
                end = int(starts[at]) if at < len(starts) else self.horizon
                why = "an outage has no end: it is taken to last until the next job starts"
                self.records.tell(table, np.array([row]), why)
            self.unavailable |= everywhere(
                self.scale, len(self.machine.names), begin, end
            )
            self.given += len(self.machine.names)

    # jobs whose nodes are only counted

    def _place_counted(self) -> Spans:
        """Give the jobs that only count their nodes the first that are free, in order of their start.

        Schedulers place otherwise, so that fragments of single nodes are not those of the machine; how many nodes are
        idle at each instant is. Nodes that are down or that jobs of other logs use are taken last.
        """
        table, gathered = self.table, Gathered(self.scale)
        rows = _counted(table)
        if not len(rows):
            return Spans(self.scale)
        rows = rows[np.argsort(table["start"][rows], kind="stable")]
        why = "the log has counts of nodes, no names: each job was given the first free nodes"
        self.account.note(why, "", 0)
        begins, counts = table["start"][rows], table["count"][rows].tolist()
        is_open = table["end"][rows] == NONE
        tell_open(self.records, table, rows[is_open], "job")
        ends = np.where(is_open, self.horizon, table["end"][rows])
        likely = np.where(
            is_open & bool(self.believed),
            np.minimum(begins + self.believed, ends),
            ends,
        )
        ends = likely if self.asked.counts_idle else ends
        ticks = np.stack([self.scale.ticks(each) for each in (begins, likely, ends)])
        named = table.of_kind("ran", "down")
        named = named[table["ranges"][named] > 0]
        taken = _Taken(self.spans(named, counted=False))
        free = np.ones(len(self.machine.names), dtype=bool)
        held: list[tuple[int, int, Places]] = []
        doubtful = Gathered(self.scale)
        short = 0
        done = 0
        for mine in table.in_parts(rows):
            some_ticks, parts = ticks[:, done : done + len(mine)], []
            for job, (begin, _, end) in enumerate(some_ticks.T.tolist(), done):
                while held and held[0][0] <= begin:
                    free[heappop(held)[2]] = True
                chosen = taken.first(free, counts[job], begin, end)
                short += len(chosen) < counts[job]
                free[chosen] = False
                heappush(held, (end, job, chosen))
                parts.append(chosen)
            done += len(mine)
            each = np.repeat(some_ticks, [len(part) for part in parts], axis=1)
            node = np.concatenate(parts)
            gathered.add(node, each[0], each[1])
            doubtful.add(node, each[1], each[2])
        if short:
            why = "jobs wanted more nodes than were free: the list of nodes or --machine-nodes may be too small"
            self.account.note(why, "", 0, f"{short:,} of {len(rows):,} jobs", loud=True)
        self.doubts.append(Doubt(d.NO_END, doubtful.spans()))
        self.given += gathered.given
        return gathered.spans()


class _Taken:
    """Nodes of a machine on which counted jobs are not placed as long as others are free."""

    def __init__(self, spans: Spans) -> None:
        mask = (1 << spans.scale.bits) - 1
        order = np.argsort(spans.begins & mask, kind="stable")
        self._node = spans.node[order]
        self._begins, self._ends = spans.begins[order] & mask, spans.ends[order] & mask

    def first(self, free: Mask, count: int, begin: int, finish: int) -> Places:
        """The first free nodes, those that are taken during [begin, finish) after all others. Begins never decrease."""
        if not len(self._node):
            return np.flatnonzero(free)[:count].copy()
        over = self._ends <= begin
        if 2 * np.count_nonzero(over) > len(over):
            self._node, self._begins, self._ends = (
                self._node[~over],
                self._begins[~over],
                self._ends[~over],
            )
            over = over[~over]
        until = int(np.searchsorted(self._begins, finish))
        taken = np.zeros(len(free), dtype=bool)
        taken[self._node[:until][~over[:until]]] = True
        return np.concatenate(
            [np.flatnonzero(free & ~taken), np.flatnonzero(free & taken)]
        )[:count].copy()


# --- what is left idle ----------------------------------------------------------------------------------------------


def _idle_time(
    logs: _Logs, *, counted: bool
) -> tuple[Spans, Uncertainty | None, Coverage]:
    """The idle fragments of the machine's nodes, what is uncertain of them, and where all of the time went."""
    machine, window, account, asked = (
        logs.machine,
        logs.window,
        logs.account,
        logs.asked,
    )
    start, end, size = window.start_ns, window.end_ns, len(machine.names)
    whole = everywhere(logs.scale, size, start, end)
    ran = logs.busy.longer(asked.completing_ns) if asked.completing_ns else logs.busy
    ran -= logs.paused - logs.busy  # nothing completes where a job is suspended
    busy, unavailable = ran.clipped(start, end), logs.unavailable.clipped(start, end)
    others = logs.others.clipped(start, end)
    if len(logs.unavailable) and not len(unavailable):
        account.note(
            "no outage or reservation falls into the window of observation and on a node of the machine",
            "",
            0,
            loud=True,
        )
    states_idle = logs.states_idle
    if states_idle:
        idle = logs.idle.clipped(start, end)
        rest = _unstated(idle, busy, unavailable, whole, account)
        if len(logs.busy):
            unavailable |= rest
        else:
            busy |= rest
    elif not (logs.records.shown_until >= end):
        d.check_end_of_log(
            window,
            logs.times,
            logs.others.begin_ns,
            logs.unavailable,
            size,
            account,
            only_ended=logs.records.only_ended,
        )
    taken, signs = busy | unavailable, others | logs.held.clipped(start, end)
    found = [*logs.doubts, *_doubts_of_all(logs, whole)]
    if not (counted or states_idle):
        found.append(Doubt(d.SILENT, d.silences(taken | signs, whole)))
        found += _down(logs, taken | signs, taken, whole)
    whole, unavailable = logs.by_unit(whole), logs.by_unit(unavailable)
    busy = logs.by_unit(busy) | logs.of_units.clipped(start, end)
    taken = busy | unavailable
    parts, with_doubts = _uncertain(logs, found, taken, busy)
    all_ns = whole.total_ns()
    held = taken if asked.counts_idle else with_doubts
    gaps = held.gaps(whole)
    fragments = gaps.where(gaps.lengths_ns >= asked.min_gap_ns)
    short, short_ns = len(gaps) - len(fragments), gaps.total_ns() - fragments.total_ns()
    del gaps  # may take much memory
    shares = tuple((why, ns / all_ns) for why, ns in parts.items() if ns)
    busy_ns, held_ns = (
        busy.total_ns() - logs.filled_ns,
        held.total_ns() - logs.filled_ns,
    )
    counts_as = "idle" if asked.counts_idle else "unavailable"
    uncertain = Uncertainty(shares, counts_as) if shares else None
    used, nodes = busy.node, size
    if logs.units is not None:
        used = logs.units.node_of(used)
        nodes = int(np.count_nonzero(logs.units.sizes))
    coverage = Coverage(
        nodes=nodes,
        nodes_never_busy=nodes - len(distinct(used)),
        foreign_nodes=machine.foreign,
        node_seconds=all_ns / SECOND_NS,
        busy=busy_ns / all_ns,
        unavailable=(held_ns - busy_ns) / all_ns,
        idle=fragments.total_ns() / all_ns,
        short_gaps=(short_ns + logs.filled_ns) / all_ns,
        intervals=logs.given,
        overlaps_merged=0 if logs.units else logs.merged,
        gaps_closed=short + logs.filled,
        units=None if logs.units is None else logs.units.total,
    )
    if logs.units is None:
        shown = Shown(
            machine, busy, fragments, unavailable, logs.times, start, end, account.zone
        )
        _suspect(logs, shown, parts)
    if uncertain is not None and uncertain.is_large:
        account.note(str(uncertain), "", 0, loud=True)
    return fragments, uncertain, coverage


def _trace(
    machine: Machine, units: UnitMap | None, window: Window, idle: Spans
) -> NodeTrace:
    """The trace of these idle fragments, of nodes or of units."""
    bounds = idle.begin_ns, idle.end_ns, window.start_ns, window.end_ns
    if units is None:
        trace = from_fragments(machine.names, idle.node.astype(np.int32), *bounds)
        return replace(trace, classes=machine.classes())
    kept = units.sizes > 0
    names = [
        name for name, some_units in zip(machine.names, kept, strict=True) if some_units
    ]
    sizes = tuple(units.sizes[kept].tolist())
    return from_fragments(
        names,
        units.slots(idle.node),
        *bounds,
        units_per_node=units.per_node,
        node_units=sizes,
    )


def _unstated(
    idle: Spans, busy: Spans, unavailable: Spans, whole: Spans, account: Any
) -> Spans:
    """Return the time that no row covers in a log that states when nodes were idle; note it, and contradictions."""
    taken = busy | unavailable
    rest = (idle | taken).gaps(whole)
    detail = f"{rest.total_ns() / whole.total_ns():.1%} of the node-time"
    if not len(busy):
        account.note(
            "rows state when nodes were idle: at all other times nodes count as busy",
            "",
            0,
            detail,
        )
    elif len(rest):
        account.note(
            "rows state when nodes were idle: time that no row covers counts as unavailable",
            "",
            0,
            detail,
        )
    twice = (idle & taken).total_ns()
    if twice:
        account.note("idle rows overlap busy or unavailable ones: nodes count as not idle there", "", 0,
                     f"{twice / SECOND_NS / 3600:.3g} node-hours")  # fmt: skip
    return rest


def _doubts_of_all(logs: _Logs, whole: Spans) -> list[Doubt]:
    """Doubts about all nodes at once: parts of the window that the logs may not show."""
    size, window = len(logs.machine.names), logs.window
    found: dict[str, Spans] = {}
    for why, begin, until in window.parts:
        begin, until = max(begin, window.start_ns), min(until, window.end_ns)
        if begin < until:
            part = everywhere(logs.scale, size, begin, until)
            found[why] = found[why] | part if why in found else part
    return [Doubt(why, spans) for why, spans in found.items()]


def _down(logs: _Logs, signs: Spans, taken: Spans, whole: Spans) -> list[Doubt]:
    """Nodes that the list calls down or drained, from their last sign of life on; said with their share."""
    down = logs.machine.down()
    if not down:
        return []
    spans = d.after_last(down, signs, taken.gaps(whole))
    share = spans.total_ns() / whole.total_ns()
    if share >= d.SAID:
        names = [logs.machine.names[place] for place in distinct(spans.node).tolist()]
        counts = "look idle" if logs.asked.counts_idle else "count as unavailable"
        why = "nodes are DOWN or drained in the list of nodes, but no outage says since when: they "
        why += f"{counts} from their last job on"
        d.say(logs.account, why, share, f"{len(names)}, such as {some(names)}")
    return [Doubt(d.DOWN, spans)]


def _uncertain(
    logs: _Logs, found: list[Doubt], taken: Spans, busy: Spans
) -> tuple[dict[str, float], Spans]:
    """Return the node-time in nanoseconds of which the logs do not say what nodes did, and what is taken with it.

    The first are sums by reason: time that several doubt counts for the first.
    """
    table, busy_ns = logs.table, busy.total_ns()
    start, end = logs.window.start_ns, logs.window.end_ns
    lost = (table["why"] != 0) & ~table["beside"] & ~table["samples"] & ~table["again"]
    lost &= logs.records.skips()[table["why"]]
    stated = (
        lost
        & (table["end"] != NONE)
        & (table["start"] != NONE)
        & (table["end"] >= table["start"])
        & (table["count"] > 0)
    )
    within = np.minimum(table["end"][stated], end) - np.maximum(
        table["start"][stated], start
    )
    lost_ns = (
        float((np.maximum(within, 0) / SECOND_NS * table["count"][stated]).sum())
        * SECOND_NS
    )
    jobs = len(logs.times)
    if jobs:  # rows that do not state it are taken to be as the others
        lost_ns += float(np.count_nonzero(lost & ~stated)) * busy_ns / jobs
    parts: dict[str, float] = {
        d.SKIPPED_ROWS: lost_ns,
        d.NO_END: 0.0,
        d.MISSING: logs.window.missing * busy_ns,
    }
    parts[d.SAMPLING] = 0.0 if logs.sampled is None else float(logs.sampled.off_ns)
    for doubt in found:
        ns = doubt.ns
        if doubt.spans is not None:
            new = logs.by_unit(doubt.spans.clipped(start, end)) - taken
            ns, taken = new.total_ns(), taken | new
        parts[doubt.reason] = parts.get(doubt.reason, 0.0) + ns
    return parts, taken


def _suspect(logs: _Logs, shown: Shown, parts: dict[str, float]) -> None:
    """Look for what the logs hide."""
    records, account, source = logs.records, logs.account, logs.asked.source
    d.other_partitions(records, shown, account, source)
    found = d.membership(shown, account, source)
    if found is not None:
        d.say(account, *found)
    # Each node was idle before the later job as nodes usually are.
    share = (
        shown.share(shown.idle.lengths_ns) * len(logs.contradicted) / max(1, logs.given)
    )
    why = "jobs without an end are contradicted by a later job on a node of theirs: they end where it starts"
    uncertain = f"about {share:.2%} of the node-time is uncertain"
    records.tell(logs.table, distinct(logs.contradicted), why, uncertain, loud=True)
    all_ns = len(shown.machine.names) * (shown.end_ns - shown.start_ns)
    suspended = parts.get(d.SUSPENDED, 0.0) / all_ns
    if suspended >= d.SAID:
        why = "jobs were suspended, and nothing says when: Slurm calls their nodes idle meanwhile, here they are busy"
        d.say(account, why, suspended)
    table = logs.table
    states_power = bool((table["otherwise"] == records.reason(POWERED_OFF)).any())
    stated = records.observed is not None or logs.sampled is not None
    for why, share, detail in d.suspicions(
        shown,
        stated=stated,
        completing=bool(logs.asked.completing_ns),
        touching=logs.touching,
        states_power=states_power,
    ):
        d.say(account, why, share, detail)


# --- the machine's own jobs -----------------------------------------------------------------------------------------


def _host_jobs(records: Records, table: RecordTable, machine: Machine) -> HostJobs:
    """What the scheduler knew of its jobs and reservations, in order of when it knew them.

    Several records of one run are one job, of the latest end; one that neither waited nor ran, or on no nodes, is left
    out. A job that waits in one file may have begun in another.
    """
    ran = table.of_kind("ran")
    ran = ran[(table["count"][ran] > 0) & ~table["again"][ran] & ~table["beside"][ran]]
    reserved = table.of_kind("down")
    reserved = reserved[table["otherwise"][reserved] == records.reason(RESERVED)]
    waiting = _waiting(records, table, ran)
    rows = np.concatenate([ran, waiting, reserved])
    kind = np.repeat(
        np.array([_RAN, _WAITED, _RESERVED], dtype=np.int8),
        [len(ran), len(waiting), len(reserved)],
    )
    start, known = table["start"][rows], table["known"][rows]
    known = np.where(known == NONE, start, known)
    known = np.where(kind == _WAITED, known, np.minimum(known, start))
    known[kind == _RESERVED] = start[kind == _RESERVED] - NOTICE_NS
    order = np.lexsort((table["count"][rows], start, kind, known))
    rows, kind, known = rows[order], kind[order], known[order]
    start = np.where(kind == _WAITED, NEVER, table["start"][rows])
    end, limit = _ends(table, rows), table["limit"][rows]
    expected = np.where(
        (kind == _RAN) & (limit != NONE),
        np.minimum(start, NEVER - limit - 1) + limit,
        NEVER,
    )
    expected = np.where(kind == _RESERVED, end, expected)
    names, node, sizes = _nodes_of(
        table, machine, np.where(kind == _WAITED, len(table), rows)
    )
    return HostJobs(
        names,
        kind == _RESERVED,
        known=known,
        start=start,
        end=end,
        expected_end=expected,
        count=np.where(sizes > 0, sizes, table["count"][rows]).astype(np.int64),
        nodes=node,
        offsets=np.append(0, np.cumsum(sizes)).astype(np.int64),
    )


_RAN, _WAITED, _RESERVED = range(3)


def _nodes_of(
    table: RecordTable, machine: Machine, rows: Places
) -> tuple[tuple[str, ...], NDArray[np.int32], Whole]:
    """Names of nodes as the trace has them, the nodes of some rows by these, and how many each row has."""
    place = {name: number for number, name in enumerate(machine.nodes.names)}
    by_form = np.arange(len(machine.nodes))
    mine = machine.index >= 0
    by_form[mine] = np.array([place[name] for name in machine.names], dtype=np.int64)[
        machine.index[mine]
    ]
    sizes = np.zeros(len(rows), dtype=np.int64)
    parts = [np.zeros(0, dtype=np.int32)]
    places = np.flatnonzero(rows < len(table))
    done = 0
    for some_rows in table.in_parts(rows[places]):
        node, at = machine.nodes.of(*table.ranges_of(some_rows))
        parts.append(by_form[node].astype(np.int32))
        here = places[done : done + len(some_rows)]
        sizes[here] = np.bincount(at, minlength=len(here))
        done += len(some_rows)
    found = np.concatenate(parts)
    there = np.zeros(len(by_form), dtype=bool)
    there[found] = True
    names = [machine.nodes.names[node] for node in np.flatnonzero(there).tolist()]
    return tuple(names), (np.cumsum(there, dtype=np.int32) - 1)[found], sizes


def _waiting(records: Records, table: RecordTable, ran: Places) -> Places:
    """Jobs that waited, each once; one without an end only where it did not begin later."""
    rows: Places = np.flatnonzero(
        (table["why"] == records.reason(NEVER_STARTED))
        & (table["known"] != NONE)
        & (table["count"] > 0)
    )
    rows = rows[
        (table["end"][rows] == NONE) | (table["end"][rows] >= table["known"][rows])
    ]
    if not len(rows):
        return rows
    rows = rows[
        np.lexsort(
            (table["end"][rows] == NONE, table["known"][rows], table["id"][rows])
        )
    ]
    ident, known = table["id"][rows], table["known"][rows]
    first = np.append(True, (ident[1:] != ident[:-1]) | (known[1:] != known[:-1]))
    by_id = ran[np.lexsort((table["start"][ran], table["id"][ran]))]
    at = np.searchsorted(table["id"][by_id], ident, side="right") - 1
    last = np.append(table["start"][by_id], NONE)[at]
    began = (
        (np.append(table["id"][by_id], 0)[at] == ident) & (at >= 0) & (last >= known)
    )
    once: Places = rows[first & ~((table["end"][rows] == NONE) & began)]
    return once
