"""Runs of jobs, outages and idle times: records that begin and end them, that repeat others, and that have no end.

Exports of single days overlap, and a job at midnight is in both; the order of files and rows does not matter, but where
runs begin and end by records of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bft.replay.logs.hosts import keys_of
from bft.replay.logs.records import KIND, LEFT_OUT, Places, Records, RecordTable
from bft.replay.logs.times import NONE, Mask, Whole

_ODD = np.int64(-7046029254386353131)


@dataclass(frozen=True, slots=True)
class Requeues:
    """How many jobs that run once at a time have ended, and how many of them ran several times."""

    jobs: int = 0
    again: int = 0


def settle_runs(table: RecordTable, records: Records, last_ns: int | None) -> Requeues:
    """Resolve which records state the same runs, and where these end; in place.

    Parameters
    ----------
    table, records
        All records, and where they come from.
    last_ns
        Until when the log shows what happens, where it writes down begins and ends; None: it does not.
    """
    table.columns["goes_on"] = np.zeros(len(table), dtype=bool)
    _shrink(table)
    jobs = _pair(table, records, ("began", "ended", "ran"), last_ns)
    outages = _pair(table, records, ("went down", "came back", "down"), last_ns)
    found = _once(table, records, "ran", "job")
    _once(table, records, "down", "outage")
    _once(table, records, "idle", "idle row")
    for begun, ended in (jobs, outages):
        # What ends a run that is another one's repeats an end.
        again = np.isin(table["why"][begun], [*records.repeats])
        table["why"][ended[again]] = table["why"][begun[again]]
    return found


def tell_open(records: Records, table: RecordTable, rows: Places, what: str) -> None:
    """Tell how many runs have no end in any record."""
    why = f"{what} without an end in any record: taken to last to the end of the window"
    records.tell(table, rows, why)


def _leave_out(table: RecordTable, records: Records, rows: Places, why: str) -> None:
    code = records.reason(LEFT_OUT + why)
    table["why"][rows] = code
    records.repeats.add(code)


def _counts(table: RecordTable, *kinds: str) -> Mask:
    """Which rows are of some kinds, and used, or left out by a filter."""
    counts: Mask = np.isin(table["kind"], [KIND[kind] for kind in kinds])
    counts &= (table["why"] == 0) | (table["filter"] > 0)
    return counts


def _ordered(table: RecordTable, mine: Mask) -> Places:
    """Some rows by id, and in the order of files and lines."""
    rows = np.flatnonzero(mine)
    order = np.lexsort((table["line"][rows], table["file"][rows], table["id"][rows]))
    ordered: Places = rows[order]
    return ordered


# --- begins and ends by records of their own ------------------------------------------------------------------------


def _pair(
    table: RecordTable,
    records: Records,
    kinds: tuple[str, str, str],
    last_ns: int | None,
) -> Places:
    """Make runs of what begins and ends by records of their own; return the rows of begins and those of their ends.

    `kinds` are those of the begin, of the end, and of the whole.
    """
    begin, end, whole = (KIND[kind] for kind in kinds)
    is_job = kinds[2] == "ran"
    paired = _counts(table, *kinds[:2])
    if not paired.any():
        return np.zeros((2, 0), dtype=np.int64)
    is_begun = np.isin(table["id"], table["id"][paired & (table["kind"] == begin)])
    closed = _counts(table, kinds[2]) & is_begun & (table["end"] != NONE)
    rows = _ordered(table, paired | closed)
    kind, ident, start = table["kind"][rows], table["id"][rows], table["start"][rows]
    then = np.append(rows[1:], rows[:1])  # the record after each
    follows = np.append(ident[1:] == ident[:-1], False)
    begins, run = kind == begin, _run(ident, start)
    ends = begins & follows & (table["kind"][then] == end)
    stated = begins & np.isin(run, run[kind == whole])
    again = begins & follows & ~ends & ~stated
    copies = again & (table["start"][then] == start)
    restarts = again & ~copies
    open_runs = begins & ~follows & ~stated
    runs = begins & ~stated & ~copies & ~(open_runs & (start > (last_ns or 0)))
    # An end belongs to the begin before it.
    lone = (kind == end) & ~np.append(False, ends[:-1])
    lone = rows[lone & (table["why"][rows] == 0)]
    table["why"][lone] = table["otherwise"][lone]
    filtered = ends & (table["filter"][rows] > 0)
    table["why"][then[filtered]] = table["why"][rows[filtered]]
    repeats = (
        f"a record that repeats another one of the same {'job' if is_job else 'outage'}"
    )
    _, firsts = np.unique(run[stated], return_index=True)
    _leave_out(table, records, np.delete(rows[stated], firsts), repeats)
    _leave_out(table, records, rows[copies], repeats)
    table["kind"][rows[begins]] = KIND["nothing"]
    table["kind"][rows[runs]] = whole
    table["end"][rows[ends]] = np.maximum(table["end"][then[ends]], start[ends])
    table["end"][rows[restarts]] = table["start"][then[restarts]]
    if is_job:
        why = "a job starts again without having ended: its nodes count as taken until then"
        records.tell(table, then[restarts], why)
    open_rows = rows[open_runs & runs]
    if last_ns is not None:
        table["end"][open_rows] = np.maximum(last_ns, table["start"][open_rows])
        table["goes_on"][open_rows] = True
    what = "jobs" if is_job else "outages or reservations"
    why = f"{what} had not ended at the end of the logs: their nodes count as taken until the last record"
    records.tell(table, open_rows[table["why"][open_rows] == 0], why)
    return np.stack([rows[ends], then[ends]])


def _run(ident: NDArray[np.uint64], start: Whole) -> NDArray[np.uint64]:
    """A number for each run, by id and start."""
    return ident + (start * _ODD).astype(np.uint64)


def _shrink(table: RecordTable) -> None:
    """Divide the runs of jobs that gave nodes back on the way; few do."""
    shrank = table["kind"] == KIND["shrank"]
    if not shrank.any():
        return
    mine = _counts(table, "began", "ended", "ran", "shrank")
    rows = _ordered(table, mine & np.isin(table["id"], table["id"][shrank]))
    run = -1
    for at, row in enumerate(rows.tolist()):
        kind, start, ident = table["kind"][row], table["start"][row], table["id"][row]
        if kind == KIND["began"]:
            run = row
        elif kind != KIND["shrank"]:
            run = -1
        elif run < 0 or table["id"][run] != ident:
            table["why"][row] = table["otherwise"][row]
        else:
            had, kept = (
                keys_of(table.ranges_of(np.array([each]))[0]) for each in (run, row)
            )
            began = table["start"][run]
            later = rows[at:][
                (table["id"][rows[at:]] == ident)
                & (table["kind"][rows[at:]] == KIND["ran"])
            ]
            table.add(run, np.setdiff1d(had, kept), int(max(start, began)))
            for each in (run, *later[table["start"][later] == began].tolist()):
                table.set_nodes(each, np.intersect1d(had, kept))
    table["kind"][np.flatnonzero(shrank)] = KIND["nothing"]


# --- records of the same run ----------------------------------------------------------------------------------------


def _once(table: RecordTable, records: Records, kind: str, what: str) -> Requeues:
    """Leave out records that repeat or lack the end of others, and end what starts again."""
    rows = table.of_kind(kind)
    ident = table["id"][rows]
    ordered = np.sort(ident)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    closed = (table["end"][rows] != NONE) & table["once"][rows]
    jobs = len(np.unique(ident[closed])) if len(twice) else int(closed.sum())
    if not len(twice):
        return Requeues(jobs)
    mine = rows[np.isin(ident, twice)]
    nodes = _content(table, mine)
    is_open = table["end"][mine] == NONE
    order = np.lexsort((table["line"][mine], table["file"][mine], nodes, table["end"][mine], is_open,
                        table["start"][mine], table["id"][mine]))  # fmt: skip
    mine, nodes, is_open = mine[order], nodes[order], is_open[order]
    ident, start, end, once = (
        table[name][mine] for name in ("id", "start", "end", "once")
    )
    same_job = np.append(False, ident[1:] == ident[:-1])
    same_run = same_job & np.append(False, start[1:] == start[:-1])
    same_content = is_open[1:] | (nodes[1:] == nodes[:-1])
    same = same_run & np.append(False, (end[1:] == end[:-1]) & same_content)
    why = f"a record that repeats another one of the same {what}"
    _leave_out(table, records, mine[same], why)
    differ = same_run & ~same & ~is_open & once
    why = f"records of one {what} (same id, same start) have different ends or nodes: the latest end counts"
    records.tell(table, mine[differ], why)
    run = np.cumsum(~same_run) - 1
    has_end = np.bincount(run, ~is_open) > 0
    stated = is_open & has_end[run] & ~same
    why = f"{what} without an end, of which another record states the end"
    _leave_out(table, records, mine[stated], why)
    # Of records of one run that only count their nodes, that with the latest end counts.
    kept = np.flatnonzero(~same)
    is_last = np.append(run[kept][1:] != run[kept][:-1], True)
    is_last |= np.append(is_open[kept][1:], True)
    counted = ~is_last & ~is_open[kept] & (table["ranges"][mine[kept]] == 0)
    table["count"][mine[kept[counted]]] = 0
    # The next start of the same job, of all runs after this one.
    next_start = np.append(start[~same_run][1:], NONE)
    next_start[~np.append(same_job[~same_run][1:], False)] = NONE
    again = is_open & ~stated & ~same & once & (next_start[run] != NONE)
    table["end"][mine[again]] = next_start[run[again]]
    why = (
        f"{what} without an end starts again later: its nodes count as taken until then"
    )
    records.tell(table, mine[again], why)
    ended = ~is_open & once
    _, runs_of = np.unique(run[ended], return_index=True)
    _, several = np.unique(ident[ended][runs_of], return_counts=True)
    return Requeues(jobs, int(np.count_nonzero(several > 1)))


def _content(table: RecordTable, rows: Places) -> Whole:
    """A number for the nodes of each row."""
    made, counts = table.ranges_of(rows)
    found = table["count"][rows].astype(np.int64)
    some = np.flatnonzero(counts)
    if len(some):
        begins = np.cumsum(counts) - counts
        found[some] = np.add.reduceat(made * _ODD, begins[some])
    return found
