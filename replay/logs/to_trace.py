"""From busy and unavailable intervals to a node trace: the window of observation, the nodes, and what is left idle."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.tolerances import SHARES
from bft.replay.logs.collector import OPEN, Collector, Columns, concatenated, merge
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.hidden import Observed, Suspicions
from bft.replay.logs.hostlists import difference, other_forms, unclear_forms
from bft.replay.logs.repeated_records import Outlier
from bft.replay.logs.units import MAX_UNITS, UnitLog
from bft.replay.trace.node_trace import (
    SECOND_NS,
    IndexArray,
    NodeTrace,
    TimeArray,
    consecutive,
    from_fragments,
)
from bft.replay.trace.trace_statistics import iso
from bft.replay.trace.uncertainty import Uncertainty

# Share and length of the part of a window outside the logs from which on the window is refused, or noted. Exports are
# asked for by dates, and the first and last record lie somewhat inside.
_REFUSED_OUTSIDE, _REFUSED_OUTSIDE_NS = 0.5, 86_400 * SECOND_NS
_NOTED_OUTSIDE, _NOTED_OUTSIDE_NS = 0.01, 3_600 * SECOND_NS
# Share of the jobs' time that seems to be missing from which on a warning is due.
_NOTED_MISSING = 0.005


OUTSIDE = "window outside the logs"
QUIET = "no job starts any more"
SUSPENDED = "suspended jobs"
SILENT = "nodes before their first or after their last sign of life"
_SILENT_NS = 86_400 * SECOND_NS
# Jobs without GPUs from which on it is no chance that there are no others.
_ENOUGH_WITHOUT = 100
# Pauses of nodes from which on the longest of them says how long nodes are idle.
_ENOUGH_PAUSES = 10


@dataclass(slots=True)
class Doubts:
    """Time of which the logs may not show what nodes did.

    Parameters
    ----------
    idle
        Whether such time counts as idle; otherwise as unavailable.
    spans
        Reason, begin and end, UTC nanoseconds, of doubts about all nodes.
    missing
        How much of the jobs' time is missing because jobs ran when the log ended, as a share of it.
    """

    idle: bool = True
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    missing: float = 0.0


def window_of(
    collected: Collector,
    diagnosis: Diagnosis,
    start_ns: int | None,
    end_ns: int | None,
    source: str,
    doubts: Doubts,
) -> tuple[int, int]:
    """Begin and end of the window of observation, UTC nanoseconds; says on which grounds, and what is odd about it.

    Parameters
    ----------
    collected
        What the readers handed over, settled.
    diagnosis
        Receives the notes.
    start_ns, end_ns
        What the user states; None: as `shown` has it.
    source
        Name of the logs, for messages.
    doubts
        Receives the parts of the window that the logs may not show.

    Raises
    ------
    InputError
        When the window is empty, or lies outside the logs.
    """
    start, end, stated = _shown(collected)
    log = min(start, collected.first_start), max(end, collected.last)
    for others in collected.left_out.values():
        _, starts, ends = others.busy_intervals.merged()
        log = int(starts.min(initial=log[0])), int(ends.max(initial=log[1]))
    if start_ns is not None:
        start = start_ns
    elif not stated and collected.first_start < start < OPEN:
        diagnosis.note("the window begins with the first end of a job: of the time before only long jobs are known",
                       source, 0)  # fmt: skip
    if end_ns is not None:
        end = end_ns
    elif not stated and collected.shown_until < end < collected.last:
        diagnosis.note("the window ends with the last start of a job: the log does not tell whether it would show "
                       "jobs that start later; --to states its end", source, 0)  # fmt: skip
    elif not stated and end > max(
        collected.job_times.last_start(), collected.shown_until
    ):
        diagnosis.note("all jobs started before the first one ended: the window ends with the last end, and whether "
                       "the log would show jobs that start later is not known; --to states its end", source,
                       0)  # fmt: skip
    if start >= end:
        raise InputError(
            "the window of observation is empty"
            if start < OPEN
            else "no job tells when the observation began",
            file=source or None,
            hint=f"--from and --to set it{'; ' if diagnosis.losses() else ''}{diagnosis.losses()}",
        )
    if log[0] <= log[1]:
        _check_window(start, end, log, diagnosis, source, doubts)
    _warn(
        collected,
        diagnosis,
        (start, end),
        (start_ns is not None or stated, end_ns is not None or stated),
        doubts,
    )
    return start, end


def _shown(collected: Collector) -> tuple[int, int, bool]:
    """Begin and end of what the logs show, and whether they state these themselves.

    Rows of jobs state true ends, also ends after the export, when no start could be shown any more: so a log is known
    to show what happens up to the last start. Where records are written as things happen, it is up to the last record.
    """
    start, end = (
        collected.first_end,
        max(collected.job_times.last_start(), collected.shown_until),
    )
    if (
        start >= end
    ):  # all jobs started before the first had ended: there is no better guess
        end = collected.last
    if start >= end:
        start = collected.first_start
    stated = collected.stated or (
        collected.stated_outages if collected.first_start == OPEN else None
    )
    if stated is None:
        return start, end, False
    # Logs of jobs that state none may lie beside those that state it.
    return min(stated[0], start), max(stated[1], end), True


def _check_window(
    start: int,
    end: int,
    log: tuple[int, int],
    diagnosis: Diagnosis,
    source: str,
    doubts: Doubts,
) -> None:
    """Refuse a window that hardly overlaps the logs, and note how much of it does not."""
    outside = (end - start) - max(0, min(end, log[1]) - max(start, log[0]))
    share = outside / (end - start)
    where = f"the window is {iso(start)} to {iso(end)}, the logs hold {iso(log[0])} to {iso(log[1])}"
    none = start >= log[1] or end <= log[0]
    much = outside > _REFUSED_OUTSIDE_NS and share > _REFUSED_OUTSIDE
    if (none and log[0] < log[1]) or (much and not diagnosis.allow_few):
        raise InputError(
            f"the window of observation lies outside the logs: {where}" if none else
            f"{share:.0%} of the window of observation lie outside the logs: {where}",
            file=source or None,
            hint="check the years in --from and --to, and --tz" + ("" if none else "; --allow-few accepts it"),
        )  # fmt: skip
    if outside > _NOTED_OUTSIDE_NS and share > _NOTED_OUTSIDE:
        why = (
            "part of the window lies before the first or after the last record: nodes "
        )
        why += "look idle there" if doubts.idle else "count as unavailable there"
        diagnosis.note(why, "", 0, f"{share:.1%} of it; {where}", loud=True)
        doubts.spans += [(OUTSIDE, start, log[0]), (OUTSIDE, log[1], end)]


def _warn(
    collected: Collector,
    diagnosis: Diagnosis,
    window: tuple[int, int],
    stated: tuple[bool, bool],
    doubts: Doubts,
) -> None:
    """Say what makes the end of a window look idler than it was, and which single record stretches it.

    `stated`: whether begin and end are stated rather than derived from the jobs.
    """
    for outlier, place in collected.outliers:
        _stretched(outlier, place, diagnosis, window, stated)
    if collected.idle_intervals.given or collected.shown_until >= window[1]:
        return
    times = collected.job_times
    others = collected.left_out.values()
    begun = [each.busy_intervals.merged()[1] for each in others]
    quiet = times.quiet_end(*window, begun)
    if quiet is not None and quiet.length_ns > max(
        _NOTED_OUTSIDE_NS, _NOTED_OUTSIDE * (window[1] - window[0])
    ):
        part = quiet.length_ns / (window[1] - window[0])
        detail = f"{_hours(quiet.length_ns)}, {part:.0%} of it; before, one started every {_hours(quiet.usual_ns)}"
        why = "no job starts in the last part of the window: does the log show jobs up to its end? --to states that end"
        diagnosis.note(why, "", 0, detail, loud=True)
        doubts.spans.append((QUIET, window[1] - quiet.length_ns, window[1]))
    missing = times.missing_share(*window, only_ended=collected.only_ended)
    if missing > _NOTED_MISSING:
        doubts.missing = missing
        why = "jobs that ran when the log ended are not in it, and their nodes look idle: "
        why += "an earlier --to leaves that out"
        diagnosis.note(
            why, "", 0, f"about {missing:.1%} of the jobs' node-time", loud=True
        )


def _stretched(
    outlier: Outlier, place: tuple[str, int] | None, diagnosis: Diagnosis, window: tuple[int, int],
    stated: tuple[bool, bool],
) -> None:  # fmt: skip
    where = "" if place is None else f" ({place[0]}, line {place[1]})"
    detail = f"{iso(outlier.time_ns)}{where}; the next is {iso(outlier.next_ns)}"
    if outlier.what == "end" and outlier.start_ns <= window[1]:
        why = "one job ends long after all others, and its nodes are busy until the window ends: a mistyped year?"
    elif outlier.what == "start" and not stated[1]:
        why = "one job starts long after all others and stretches the window: a mistyped year? --to states its end"
    elif outlier.what == "first end" and not stated[0]:
        why = "one job ends long before all others and stretches the window: a mistyped year? --from states its begin"
    else:
        return
    diagnosis.note(why, "", 0, detail, loud=True)


def _hours(ns: int) -> str:
    seconds = ns / SECOND_NS
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h"


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
        Shares of them, which add up to 1: jobs ran; no job ran, but the node was down, drained or reserved; idle;
        in gaps too short to count as idle.
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
        self.balance()

    def balance(self) -> None:
        """Check that each share is one, and that they add up to 1: all node-time went somewhere, and once."""
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


def node_trace(
    collected: Collector,
    diagnosis: Diagnosis,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    machine_nodes: int | None = None,
    source: str = "",
    uncertain: Literal["idle", "unavailable"] = "idle",
    completing_ns: int = 0,
) -> tuple[NodeTrace, Coverage]:
    """The idle nodes of a machine: those of its nodes that are neither busy nor unavailable.

    Parameters
    ----------
    collected
        What the readers handed over.
    diagnosis
        Receives notes on the window and the nodes.
    start_ns, end_ns
        Window of observation. By default what the log states of itself, else from the first *end* of a job to the
        last *start*: of the time before the first end only long jobs are known, and after the last start the log may
        show ends, which are those of jobs it knows, but no jobs that start; the rest would look idle.
    source
        Name of the logs, for messages.
    machine_nodes
        Size of a machine of which the log names no nodes; by default what the log states, else the most that were
        busy at once.
    uncertain
        What time counts as of which the logs may not show what nodes did.
    completing_ns
        How much longer than a job its nodes are busy.

    Raises
    ------
    InputError
        When no interval was read, when the window is empty or lies outside the logs, and when no job ran on a node of
        the list of nodes.
    RuntimeError
        When the account does not balance, which is a mistake of ours.
    """
    doubts = Doubts(idle=uncertain == "idle")
    collected.free_overdue = doubts.idle
    placed = _settle(collected, diagnosis, machine_nodes, source)
    start, end = window_of(collected, diagnosis, start_ns, end_ns, source, doubts)
    if not (collected.reported or diagnosis.allow_few):
        raise InputError(
            "no row reports when a node was busy or down: all nodes would look idle",
            file=source or None,
            hint=f"--allow-few accepts that{'; ' if diagnosis.losses() else ''}{diagnosis.losses()}",
        )
    names, index = _nodes(collected, diagnosis, source)
    units = _Units(collected.units, names, index, diagnosis, source)
    busy, unavailable, idle = (
        collected.busy_intervals,
        collected.unavailable_intervals,
        collected.idle_intervals,
    )
    busy_read, unavailable_read, idle_read = (
        _longer(busy.merged(), completing_ns, collected.pauses),
        unavailable.merged(),
        idle.merged(),
    )
    given = busy.given + unavailable.given + idle.given
    read = (busy_read, unavailable_read, idle_read, units.held)
    merged = sum(len(columns[0]) for columns in read)
    with_jobs = _joined(busy_read, idle_read, units.held)
    foreign = _foreign(collected, index, with_jobs, unavailable_read, diagnosis, source)
    busy_now, unavailable_now = (
        _clip(columns, index, start, end) for columns in (busy_read, unavailable_read)
    )
    _note_lost_outages(unavailable_read, unavailable_now, diagnosis)
    doubtful = _doubtful_spans(doubts, len(names), start, end)
    taken = _union(busy_now, unavailable_now)
    states_idle = idle.given or collected.idle_elsewhere
    if not (placed or states_idle):
        signs = _union(taken, _clip(units.held, index, start, end))
        for others in collected.of_others():
            signs = _union(signs, _clip(others, index, start, end))
        doubtful[SILENT] = _silences(signs, len(names), start, end)
    names, size = units.names, units.total
    doubtful = {why: units.of_nodes(some) for why, some in doubtful.items()}
    of_jobs = units.of_jobs(start, end, completing_ns)
    busy_now = _union(units.of_nodes(busy_now), of_jobs)
    if states_idle:
        unavailable_now = units.of_nodes(unavailable_now)
        idle_now = units.of_nodes(_clip(idle_read, index, start, end))
        rest = _unstated(
            idle_now, busy_now, unavailable_now, size, start, end, diagnosis
        )
        if busy.given:
            unavailable_now = _joined(unavailable_now, rest)
        else:
            busy_now = merge(*rest)
        taken = merge(*_joined(busy_now, unavailable_now))
    else:
        taken = _union(units.of_nodes(taken), of_jobs)
    all_ns, busy_ns = size * (end - start), _node_ns(busy_now)
    parts, with_doubts = _uncertain(
        collected,
        doubts,
        doubtful,
        taken,
        busy_ns,
        (start, end),
        size / max(1, len(names)),
        index,
    )
    if not doubts.idle:
        taken = with_doubts
    fragments, short = _by_length(_gaps(taken, size, start, end), collected.min_gap_ns)
    trace = units.trace(fragments, start, end)
    shares = tuple((why, ns / all_ns) for why, ns in parts.items() if ns)
    if shares:
        trace = replace(trace, uncertain=Uncertainty(shares, uncertain))
    taken_ns = _node_ns(taken)
    coverage = Coverage(
        nodes=len(names),
        nodes_never_busy=len(names) - len(np.unique(units.node_of(busy_now[0]))),
        foreign_nodes=foreign,
        node_seconds=all_ns / SECOND_NS,
        busy=busy_ns / all_ns,
        unavailable=(taken_ns - busy_ns) / all_ns,
        idle=trace.idle_unit_seconds() * SECOND_NS / all_ns,
        short_gaps=_node_ns(short) / all_ns,
        intervals=given,
        overlaps_merged=given - merged - busy.closed - unavailable.closed,
        gaps_closed=len(short[0]) + busy.closed + unavailable.closed,
        units=None if units.log is None else size,
    )
    seen = Observed(names, index, busy_now, fragments, start, end)
    _suspect(
        collected,
        Suspicions(diagnosis, source),
        seen if units.log is None else None,
        parts[SUSPENDED] / all_ns,
        completing_ns,
    )
    return trace, coverage


def _by_length(columns: Columns, min_ns: int) -> tuple[Columns, Columns]:
    """Return intervals of at least `min_ns`, and the shorter ones."""
    node, begins, ends = columns
    long = ends - begins >= min_ns
    shorter = node[~long], begins[~long], ends[~long]
    return (node[long], begins[long], ends[long]), shorter


def _note_lost_outages(read: Columns, now: Columns, diagnosis: Diagnosis) -> None:
    """Note that outages were read of which none counts."""
    if len(read[0]) and not len(now[0]):
        message = "no outage or reservation falls into the window of observation and on a node of the machine"
        diagnosis.note(message, "", 0, loud=True)


def _doubtful_spans(
    doubts: Doubts, nodes: int, start: int, end: int
) -> dict[str, Columns]:
    """Return the time of all nodes that is in doubt, by reason."""
    found: dict[str, Columns] = {}
    everybody = np.arange(nodes, dtype=np.int32)
    for why, begin, until in doubts.spans:
        begin, until = max(begin, start), min(until, end)
        if begin < until:
            some = everybody, np.full(nodes, begin), np.full(nodes, until)
            found[why] = _joined(found[why], some) if why in found else some
    return found


def _silences(signs: Columns, nodes: int, start: int, end: int) -> Columns:
    """Return when nodes may not have been there: before their first and after their last sign of life.

    That is in doubt where it is longer than a day, and than twice the longest pause between two signs of any node.
    The signs are merged intervals.
    """
    node, begins, ends = signs
    same = node[1:] == node[:-1]
    pauses = (begins[1:] - ends[:-1])[same]
    if len(pauses) < _ENOUGH_PAUSES:
        return node[:0], begins[:0], ends[:0]
    usual = max(2 * int(pauses.max()), _SILENT_NS)
    first = np.append(True, ~same)
    last = np.append(~same, True)
    never = np.setdiff1d(np.arange(nodes, dtype=np.int32), node)
    silent = (
        np.concatenate([node[first], node[last], never]),
        np.concatenate(
            [np.full(int(first.sum()), start), ends[last], np.full(len(never), start)]
        ),
        np.concatenate(
            [begins[first], np.full(int(last.sum()), end), np.full(len(never), end)]
        ),
    )
    long = silent[2] - silent[1] > usual
    return silent[0][long], silent[1][long], silent[2][long]


def _uncertain(
    collected: Collector,
    doubts: Doubts,
    doubtful: dict[str, Columns],
    taken: Columns,
    busy_ns: int,
    window: tuple[int, int],
    units_per_node: float,
    index: NDArray[np.int64],
) -> tuple[dict[str, float], Columns]:
    """Return the node-time in nanoseconds of which the logs do not say what nodes did, and what is taken with it.

    Of units it is the unit-time. The first are sums by reason, the second merged intervals.
    """
    start, end = window
    jobs = len(collected.job_times)
    lost_ns = collected.lost_node_ns * units_per_node
    if jobs:  # rows that do not state it are taken to be as the others
        lost_ns += collected.lost_rows * busy_ns / jobs
    overdue_ns = sum(
        count * max(0, end - max(since, start)) for count, since in collected.overdue
    )
    parts: dict[str, float] = {
        "skipped rows": lost_ns,
        "jobs without an end": overdue_ns * units_per_node,
        "jobs that ran when the log ended": doubts.missing * busy_ns,
        "sampling": collected.sampled_node_ns * units_per_node,
        SUSPENDED: _suspended_ns(collected, index, start, end),
    }
    for why, some in doubtful.items():  # of what several doubt the first counts
        with_doubt = _union(taken, some)
        parts[why] = _node_ns(with_doubt) - _node_ns(taken)
        taken = with_doubt
    return parts, taken


def _suspended_ns(
    collected: Collector, index: NDArray[np.int64], start: int, end: int
) -> float:
    """Return for how long nodes had suspended jobs alone, of which nothing says when.

    On each node that is how much longer than they ran suspended jobs were there while no other job was.
    """
    if not collected.suspended or collected.never_suspended is None:
        return 0.0
    nodes, *rest = zip(*collected.suspended, strict=True)
    sizes = [len(each) for each in nodes]
    node = index[np.concatenate([np.array(each, dtype=np.int64) for each in nodes])]
    begun, ended, lost_ns = (np.repeat(np.array(each), sizes) for each in rest)
    begins, ends = np.maximum(begun, start), np.minimum(ended, end)
    inside = (node >= 0) & (begins < ends)
    node, begins, ends = node[inside].astype(np.int32), begins[inside], ends[inside]
    lengths = (ends - begins).astype(np.float64)
    lost = lengths * lost_ns[inside] / (ended - begun)[inside]
    others = _clip(collected.never_suspended, index, start, end)
    everything = merge(*_joined(others, (node, begins, ends)))

    def by_node(of: IndexArray, time: NDArray[np.float64]) -> NDArray[np.float64]:
        sums: NDArray[np.float64] = np.bincount(of, time, len(index)).astype(np.float64)
        return sums

    alone = by_node(everything[0], (everything[2] - everything[1]).astype(np.float64))
    alone -= by_node(others[0], (others[2] - others[1]).astype(np.float64))
    idle = alone - by_node(node, lengths - lost)
    return float(np.clip(idle, 0, by_node(node, lost)).sum())


def _longer(
    columns: Columns, by_ns: int, pauses: Collection[tuple[int, int]]
) -> Columns:
    """Return intervals that end later, but for those that end where a job paused: node and instant."""
    if not by_ns:
        return columns
    node, begins, ends = columns
    later = ends != OPEN
    paused = np.array([instant for _, instant in pauses], dtype=np.int64)
    for at in np.flatnonzero(np.isin(ends, paused)).tolist():
        later[at] = (int(node[at]), int(ends[at])) not in pauses
    return merge(node, begins, np.where(later, ends + by_ns, ends))


def _suspect(
    collected: Collector,
    suspicions: Suspicions,
    observed: Observed | None,
    suspended: float,
    completing_ns: int,
) -> None:
    """Look for what the logs hide; where units turn idle one by one, only in what rows hold."""
    suspicions.filtered(collected.columns)
    suspicions.clusters(collected.job_runs)
    if observed is None:
        return
    suspicions.partition(collected.columns, collected.listed, observed)
    lengths = observed.idle[2] - observed.idle[1]
    intervals = collected.busy_intervals.given
    suspicions.contradicted(collected.contradicted, observed.share(lengths), intervals)
    suspicions.vanished(collected.vanished, observed)
    suspicions.membership(collected.listed, observed)
    suspicions.down(collected.listed, observed)
    suspicions.power_saving(collected.listed, observed)
    suspicions.suspended(suspended)
    if collected.stated is None:
        suspicions.whole_minutes(collected.job_times, observed)
        suspicions.gap(collected.job_times, observed)
    if collected.stated is None and not completing_ns:
        busy = collected.busy_intervals
        touching = busy.given - len(busy.merged()[0])
        suspicions.completing(collected.job_times, observed, touching)


def _settle(
    collected: Collector, diagnosis: Diagnosis, machine_nodes: int | None, source: str
) -> bool:
    """Resolve what readers handed over, and check the account of their rows; True when nodes were chosen for jobs."""
    collected.settle(diagnosis)
    diagnosis.balance()
    diagnosis.check_use()
    placed = _place(collected, diagnosis, machine_nodes)
    if not collected.names:
        raise InputError(
            "no row names a node that was busy, down or known",
            file=source or None,
            hint=diagnosis.losses() or None,
        )
    return placed


class _Units:
    """The units of the machine's nodes, numbered from node to node, and which of them jobs held.

    Parameters
    ----------
    log
        What jobs held, and how many units nodes have; None: nodes turn idle as a whole, and each is one unit.
    names, index
        The machine's nodes, and for each node collected its place among them, or -1.
    diagnosis, source
        As `node_trace` has them.

    Attributes
    ----------
    names, total
        The nodes that have units, and how many they have together.
    held
        Intervals in which jobs held some units of nodes, by the nodes' indices.

    Raises
    ------
    InputError
        When of a node it is not known how many units it has, when one has more than any node, or none has any.
    """

    def __init__(
        self,
        log: UnitLog | None,
        names: list[str],
        index: NDArray[np.int64],
        diagnosis: Diagnosis,
        source: str,
    ) -> None:
        self.log, self._diagnosis = log, diagnosis
        self.names, self.total = names, len(names)
        self.held = _NOTHING if log is None else log.intervals()
        if log is None:
            return
        known: dict[int, int] = {}
        for node in np.flatnonzero(
            index >= 0
        ).tolist():  # a node may have two names, and a list state one of them
            size = log.size(node)
            if size is not None:
                known[int(index[node])] = max(size, known.get(int(index[node]), 0))
        untracked = 0 if log.unit.cores else log.names_none()
        if untracked >= _ENOUGH_WITHOUT and not diagnosis.allow_few:
            raise InputError(
                f"--unit gpu: none of {untracked:,} jobs states a GPU",
                file=source or None,
                hint="is gres/gpu tracked (AccountingStorageTRES in slurm.conf)? --allow-few takes all GPUs for idle",
            )
        unknown = [name for place, name in enumerate(names) if place not in known]
        if unknown:
            raise InputError(
                f"--unit {log.unit}: how many {log.unit.plural} a node has is not known of {_some(unknown)}",
                file=source or None,
                hint="--nodes with what scontrol show node or pbsnodes -av prints, or --units-per-node N",
            )
        sizes = np.array([known[place] for place in range(len(names))], dtype=np.int64)
        if sizes.max(initial=0) > MAX_UNITS:
            raise InputError(f"node {names[int(sizes.argmax())]} has {sizes.max()} {log.unit.plural}; at most "
                             f"{MAX_UNITS} are read", file=source or None)  # fmt: skip
        if not sizes.any():
            raise InputError(
                f"--unit {log.unit}: no node has {log.unit.plural}", file=source or None
            )
        if not sizes.all():
            none = [
                name
                for name, size in zip(names, sizes.tolist(), strict=True)
                if not size
            ]
            diagnosis.note(f"nodes without {log.unit.plural} are left out", "", 0, f"{len(none):,}, such as "
                           f"{_some(none)}", loud=True)  # fmt: skip
        self.names = [
            name for name, size in zip(names, sizes.tolist(), strict=True) if size
        ]
        self._index, self._sizes, self.total = index, sizes, int(sizes.sum())
        self._first = np.cumsum(sizes) - sizes
        self._per = int(sizes.max())
        if len(np.unique(sizes[sizes > 0])) > 1:
            why = f"nodes differ in their {log.unit.plural}: for jobs on several whole nodes only those with most count"
            diagnosis.note(why, "", 0, f"{self._per}", loud=True)

    def of_nodes(self, columns: Columns) -> Columns:
        """Intervals of nodes, by place, as intervals of all their units, merged if those of the nodes are."""
        if self.log is None:
            return columns
        node, begins, ends = columns
        sizes = self._sizes[node]
        units = consecutive(self._first[node], sizes).astype(np.int32)
        return merge(units, begins, ends, counts=sizes)

    def of_jobs(self, start: int, end: int, completing_ns: int) -> Columns:
        """Units that jobs held inside the window; they may overlap where the log says so."""
        if self.log is None:
            return _NOTHING
        units, begins, ends = self.log.placed(
            self._index, self._first, self._sizes, self._diagnosis
        )
        begins = np.maximum(begins, start)
        ends = np.minimum(np.minimum(ends, end) + completing_ns, end)
        some = begins < ends
        return units[some], begins[some], ends[some]

    def node_of(self, units: IndexArray) -> IndexArray | NDArray[np.int64]:
        """Place of the node of each unit."""
        if self.log is None:
            return units
        return np.searchsorted(self._first + self._sizes, units, side="right")

    def trace(self, idle: Columns, start: int, end: int) -> NodeTrace:
        """The trace of these idle fragments of units."""
        if self.log is None:
            return from_fragments(self.names, *idle, start, end)
        node = self.node_of(idle[0])
        rank = np.cumsum(self._sizes > 0) - 1  # among the nodes that have units
        slots = rank[node] * self._per + idle[0] - self._first[node]
        sizes = tuple(self._sizes[self._sizes > 0].tolist())
        return from_fragments(
            self.names,
            slots.astype(np.int32),
            idle[1],
            idle[2],
            start,
            end,
            units_per_node=self._per,
            node_units=sizes,
        )


# No interval of any node.
_NOTHING: Columns = (
    np.zeros(0, dtype=np.int32),
    np.zeros(0, dtype=np.int64),
    np.zeros(0, dtype=np.int64),
)


def _joined(*parts: Columns) -> Columns:
    some = [part for part in parts if len(part[0])] or parts[:1]
    if len(some) == 1:
        return some[0]
    return concatenated(some)


def _union(merged: Columns, others: Columns) -> Columns:
    """Merge intervals into ones that are merged already."""
    return merge(*_joined(merged, others)) if len(others[0]) else merged


def _unstated(
    idle: Columns,
    busy: Columns,
    unavailable: Columns,
    size: int,
    start: int,
    end: int,
    diagnosis: Diagnosis,
) -> Columns:
    """Return the time that no row covers in a log that states when nodes were idle; note it, and contradictions."""
    taken = merge(*_joined(busy, unavailable))
    covered = merge(*_joined(idle, taken))
    rest = _gaps(covered, size, start, end)
    share = _node_ns(rest) / (size * (end - start))
    detail = f"{share:.1%} of the node-time"
    if not len(busy[0]):
        diagnosis.note(
            "rows state when nodes were idle: at all other times nodes count as busy",
            "",
            0,
            detail,
        )
    elif len(rest[0]):
        diagnosis.note(
            "rows state when nodes were idle: time that no row covers counts as unavailable",
            "",
            0,
            detail,
        )
    twice = _node_ns(idle) + _node_ns(taken) - _node_ns(covered)
    if twice:
        diagnosis.note("idle rows overlap busy or unavailable ones: nodes count as not idle there", "", 0,
                       f"{twice / SECOND_NS / 3600:.3g} node-hours")  # fmt: skip
    return rest


def _node_ns(columns: Columns) -> int:
    """Length of all intervals together. In one sum, 64 bits of nanoseconds hold no more than 292 node-years."""
    lengths = columns[2] - columns[1]
    return int((lengths // SECOND_NS).sum()) * SECOND_NS + int(
        (lengths % SECOND_NS).sum()
    )


def _nodes(
    collected: Collector, diagnosis: Diagnosis, source: str
) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the machine's nodes, sorted; and for each node collected its place there, or -1."""
    everybody = list(collected.names)
    _check_names(everybody, collected, diagnosis)
    forms = other_forms(everybody, collected.universe, collected.owners)
    _check_aliases(everybody, collected)
    forms.update(collected.listed.aliases)
    members = collected.universe
    if not members:
        only_events = _only_in_events(collected, forms, diagnosis)
        members = {
            node
            for node in range(len(everybody))
            if node not in forms and node not in only_events
        }
        diagnosis.note("no --nodes: the machine is taken to have the nodes that jobs name; 1 % of nodes that ran none "
                       "are 1 % of idle time too little", "", 0, loud=not collected.idle_intervals.given)  # fmt: skip
        if not members:
            raise InputError(
                "no job names a node",
                file=source or None,
                hint=diagnosis.losses() or None,
            )
    # Names that differ in leading zeros alone have one natural order: the name itself decides, not which came first.
    placed = sorted(
        members, key=lambda node: (_natural(everybody[node]), everybody[node])
    )
    index = np.full(len(everybody), -1, dtype=np.int64)
    index[placed] = np.arange(len(placed))
    if forms:
        index[list(forms)] = index[list(forms.values())]
    stated = collected.listed.aliases
    by_domain = {other: kept for other, kept in forms.items() if other not in stated}
    if by_domain:
        (other, kept), *_ = by_domain.items()
        diagnosis.note("nodes go by their short and their full name: taken for the same nodes", "", 0,
                       f"{len(by_domain)}, such as {everybody[other]} and {everybody[kept]}")  # fmt: skip
    return [everybody[node] for node in placed], index


def _check_aliases(everybody: list[str], collected: Collector) -> None:
    """Refuse a list of nodes in which a name that a node had is that of another node now."""
    for other, node in collected.listed.aliases.items():
        if other in collected.universe:
            raise InputError(
                f"the list of nodes says that {everybody[node]} was {everybody[other]}, which is a node as well",
                hint="which of the two a job ran on is not clear: read the logs of before and after by themselves",
            )


def _check_names(
    everybody: list[str], collected: Collector, diagnosis: Diagnosis
) -> None:
    """Refuse a list that names a node in two ways; say when the logs do and it is not clear which nodes are meant."""
    listed = unclear_forms(everybody, collected.universe, collected.owners)
    if listed:
        raise InputError(
            f"the list of nodes has the short name {listed[0][0]} and the full name {', '.join(listed[0][1:4])}: is "
            "that one node?",
            hint="list each node by one name; --cluster NAME tells two machines apart where rows state their cluster",
        )
    several = [
        names
        for names in unclear_forms(everybody, range(len(everybody)), collected.owners)
        if len(names) > 2
    ]
    if several:
        diagnosis.note("short names have several full ones: each counts as a node of its own", "", 0,
                       f"{len(several)}, such as {_some(list(several[0]))}", loud=True)  # fmt: skip


def _only_in_events(
    collected: Collector, forms: dict[int, int], diagnosis: Diagnosis
) -> set[int]:
    """Nodes that --events or --reservations name and no job: of this machine or not, they would look idle."""
    kept = {forms[node] for node in forms if node not in collected.named_beside}
    found = {
        node
        for node in collected.named_beside
        if node not in forms and node not in kept
    }
    with_jobs = (
        collected.busy_intervals.merged()[0],
        collected.idle_intervals.merged()[0],
    )
    if found:
        found.difference_update(*(np.unique(nodes).tolist() for nodes in with_jobs))
    if collected.units is not None:
        found.difference_update(collected.units.intervals()[0].tolist())
    if found:
        names = list(collected.names)
        why = "nodes that only --events or --reservations name are left out: --nodes tells which belong to the machine"
        diagnosis.note(why, "", 0, f"{len(found)}, such as {_some([names[node] for node in sorted(found)])}",
                       loud=True)  # fmt: skip
    return found


def _foreign(
    collected: Collector,
    index: NDArray[np.int64],
    busy: Columns,
    unavailable: Columns,
    diagnosis: Diagnosis,
    source: str,
) -> int:
    """How many nodes are not in the list of nodes; refuses logs of which no job ran on a node of the list."""
    everybody = list(collected.names)
    absent = np.flatnonzero(index < 0)
    if not len(absent):
        return 0
    # Listed nodes of other partitions are left out as well, which is said where it is done.
    strangers = np.setdiff1d(absent, list(collected.listed.partitions))
    with_jobs = np.unique(busy[0])
    left_out = with_jobs[index[with_jobs] < 0]
    if len(left_out) and len(left_out) == len(with_jobs):
        jobs, listed = (
            [everybody[k] for k in left_out],
            [everybody[k] for k in sorted(collected.universe)],
        )
        why = difference(jobs, listed)
        raise InputError(
            f"no job ran on a node of the list of nodes: jobs ran on {_some(jobs)}, the list has {_some(listed)}",
            file=source or None,
            hint=why or "is it the list of another machine?",
        )
    if len(left_out):
        lost = index[busy[0]] < 0
        open_ended = busy[2] == OPEN
        share = _node_ns(tuple(c[lost & ~open_ended] for c in busy)) / max(
            1, _node_ns(tuple(c[~open_ended] for c in busy))
        )
        diagnosis.note("jobs ran on nodes that are not in the list of nodes: left out", "", 0,
                       f"{len(left_out):,} of {len(with_jobs):,} nodes with jobs, {share:.1%} of the jobs' node-time, "
                       f"such as {_some([everybody[k] for k in left_out])}", loud=True)  # fmt: skip
    if not collected.universe:  # said in `_nodes`
        return len(strangers)
    others = np.setdiff1d(strangers, left_out)
    down = np.unique(unavailable[0])
    if len(others):
        none = len(down) and not (index[down] >= 0).any()
        diagnosis.note("nodes that are not in the list of nodes were down or reserved: left out", "", 0,
                       f"{len(others)}, such as {_some([everybody[k] for k in others])}", loud=bool(none))  # fmt: skip
    return len(strangers)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _natural(name: str) -> list[str | int]:
    """Key that sorts n2 before n10; every second entry is a number."""
    return [
        int(part) if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", name))
    ]


def _clip(columns: Columns, index: NDArray[np.int64], start: int, end: int) -> Columns:
    """The intervals of the machine's nodes inside the window, with the nodes renumbered; merged."""
    node = index.astype(np.int32)[columns[0]]
    begins, ends = np.maximum(columns[1], start), np.minimum(columns[2], end)
    inside = (node >= 0) & (begins < ends)
    if not inside.all():
        node, begins, ends = node[inside], begins[inside], ends[inside]
    # The intervals of a node stay together: sorting whole nodes takes less memory than merging.
    order = np.argsort(node, kind="stable")
    node, begins, ends = node[order], begins[order], ends[order]
    if ((node[1:] > node[:-1]) | (begins[1:] > ends[:-1])).all():
        return node, begins, ends
    return merge(node, begins, ends)


def _gaps(taken: Columns, size: int, start: int, end: int) -> Columns:
    """Return the gaps that disjoint, sorted intervals leave of [start, end) on each of `size` nodes; in no order."""
    node, begins, ends = taken
    first = np.ones(len(node), dtype=bool)
    first[1:] = node[1:] != node[:-1]
    last = np.append(first[1:], True)[: len(node)]
    before = np.where(first, start, np.roll(ends, 1))
    never = np.setdiff1d(np.arange(size, dtype=np.int32), node)
    gap_node = np.concatenate([node, node[last], never])
    gap_start = np.concatenate([before, ends[last], np.full(len(never), start)])
    gap_end = np.concatenate([begins, np.full(int(last.sum()) + len(never), end)])
    some = gap_start < gap_end
    return gap_node[some], gap_start[some], gap_end[some]


def _place(
    collected: Collector, diagnosis: Diagnosis, machine_nodes: int | None
) -> bool:
    """Give the jobs that only count their nodes the first that are free, in order of their start.

    Schedulers place otherwise, so that fragments of single nodes are not those of the machine; how many nodes are
    idle at each instant is. A list of nodes is the machine; without one it is as large as stated, and has the nodes
    that logs name (those that were down, say) and others with names of ours.
    """
    needed, starts, ends = collected.counted()
    if len(needed) and collected.units is not None:
        raise InputError(
            f"--unit {collected.units.unit}: jobs name no nodes, so that their units are not known"
        )
    if not len(needed):
        if machine_nodes and collected.names:
            diagnosis.note(
                "--machine-nodes has no effect: the logs name the nodes",
                "",
                0,
                loud=True,
            )
        return False
    collected.forget_counted()
    order = np.argsort(starts, kind="stable")
    needed, starts, ends = needed[order], starts[order], ends[order]
    machine = _machine(
        collected, diagnosis, machine_nodes, lambda: _peak(needed, starts, ends)
    )
    diagnosis.note(
        "the log has counts of nodes, no names: each job was given the first free nodes",
        "",
        0,
    )
    taken = _Taken(collected, machine)
    free = np.ones(len(machine), dtype=bool)
    held: list[tuple[int, int, NDArray[np.int64]]] = []
    short = 0
    for job, (count, begin, finish) in enumerate(
        zip(needed.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ):
        while held and held[0][0] <= begin:
            free[heappop(held)[2]] = True
        chosen = taken.first(free, count, begin, finish)
        short += len(chosen) < count
        free[chosen] = False
        heappush(held, (finish, job, chosen))
        collected.busy_intervals.add(
            array("i", machine[chosen].tobytes()), begin, finish
        )
    if short:
        diagnosis.note("jobs wanted more nodes than were free: the list of nodes or --machine-nodes may be too small",
                       "", 0, f"{short:,} of {len(needed):,} jobs", loud=True)  # fmt: skip
    return True


def _machine(
    collected: Collector,
    diagnosis: Diagnosis,
    machine_nodes: int | None,
    peak: Callable[[], int],
) -> NDArray[np.int32]:
    """Indices of the machine's nodes, in the order in which counted jobs fill them."""
    stated = collected.machine_nodes
    names = list(collected.names)
    members = sorted(
        collected.universe or range(len(names)), key=lambda node: _natural(names[node])
    )
    if collected.universe:
        if machine_nodes not in (None, len(members)):
            raise InputError(
                f"--machine-nodes: {machine_nodes}, but --nodes lists {len(members)}",
                hint="give one",
            )
        if stated not in (None, len(members)):
            diagnosis.note("the log states another number of nodes than the list of nodes, which is taken", "", 0,
                           f"{stated}, listed are {len(members)}", loud=True)  # fmt: skip
    else:
        size = machine_nodes or stated or peak()
        if size > collected.most_nodes:
            raise InputError(
                f"a machine of {size:,} nodes is beyond {collected.most_nodes:,}",
                hint="--machine-nodes",
            )
        if not (machine_nodes or stated):
            diagnosis.note("neither log nor --machine-nodes tell the machine's size: it is taken to be the most nodes "
                           "that were busy at once", "", 0, f"{size}")  # fmt: skip
        digits = max(5, len(str(size - 1)))
        ours = (f"n{node:0{digits}}" for node in range(size))
        free = [name for name in ours if name not in collected.names][
            : max(0, size - len(members))
        ]
        members += collected.indices(free)
        collected.universe.update(members)
    return np.array(members, dtype=np.int32)


class _Taken:
    """Nodes of a machine on which counted jobs are not placed as long as others are free.

    Parameters
    ----------
    collected
        With what is known of nodes by name: they were down or reserved, or jobs of other logs ran on them.
    machine
        Indices of the machine's nodes.
    """

    def __init__(self, collected: Collector, machine: NDArray[np.int32]) -> None:
        place = np.full(len(collected.names), -1, dtype=np.int64)
        place[machine] = np.arange(len(machine))
        for other, kept in other_forms(
            list(collected.names), collected.universe, collected.owners
        ).items():
            place[other] = place[kept]
        intervals = collected.unavailable_intervals, collected.busy_intervals
        node, starts, ends = concatenated(each.merged() for each in intervals)
        mine = np.flatnonzero(place[node] >= 0)
        mine = mine[np.argsort(starts[mine], kind="stable")]
        self._place, self._starts, self._ends = (
            place[node[mine]],
            starts[mine],
            ends[mine],
        )

    def first(
        self, free: NDArray[np.bool_], count: int, begin: int, finish: int
    ) -> NDArray[np.int64]:
        """The first free nodes, those that are taken during [begin, finish) after all others. Begins never decrease."""
        if not len(self._place):
            return np.flatnonzero(free)[:count]
        over = self._ends <= begin
        if 2 * np.count_nonzero(over) > len(over):
            self._place, self._starts, self._ends = (
                self._place[~over],
                self._starts[~over],
                self._ends[~over],
            )
            over = over[~over]
        until = int(np.searchsorted(self._starts, finish))
        taken = np.zeros(len(free), dtype=bool)
        taken[self._place[:until][~over[:until]]] = True
        return np.concatenate(
            [np.flatnonzero(free & ~taken), np.flatnonzero(free & taken)]
        )[:count]


def _peak(needed: TimeArray, starts: TimeArray, ends: TimeArray) -> int:
    """The most nodes that were busy at once; what ends at an instant makes room for what starts then."""
    times = np.concatenate([ends, starts])
    changes = np.concatenate([-needed, needed])
    return int(np.cumsum(changes[np.argsort(times, kind="stable")]).max())
