"""Runs of jobs, outages and idle times: records that begin and end them, that repeat others, and that have no end.

Exports of single days overlap, and a job at midnight is in both; the order of files and rows does not matter, but where
runs begin and end by records of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bft.replay.logs.hosts import keys_of
from bft.replay.logs.records import (
    KIND,
    LEFT_OUT,
    SKIPPED,
    Records,
    RecordTable,
    Unusable,
)
from bft.replay.logs.times import NONE, Mask, Whole

Places = NDArray[np.int64]
_PAIRS = (("began", "ended"), ("went down", "came back"))
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
    pairs = [_pair(table, records, kinds, last_ns) for kinds in _PAIRS]
    found = _once(table, records, "ran", "job")
    _once(table, records, "down", "outage")
    _once(table, records, "idle", "idle row")
    for begun, ended in pairs:  # what ends a run that is another one's repeats an end
        again = np.isin(table["why"][begun], [*records.repeats])
        table["why"][ended[again]] = table["why"][begun[again]]
    return found


def _leave_out(table: RecordTable, records: Records, rows: Places, why: str) -> None:
    code = records.reason(LEFT_OUT + why)
    table["why"][rows] = code
    records.repeats.add(code)


# --- begins and ends by records of their own ------------------------------------------------------------------------


def _pair(
    table: RecordTable, records: Records, kinds: tuple[str, str], last_ns: int | None
) -> tuple[Places, Places]:
    """Make runs of what begins and ends by records of their own; return the rows of begins and those of their ends.

    `kinds` are those of the begin and of the end.
    """
    whole = "ran" if kinds[0] == "began" else "down"
    counts = (table["why"] == 0) | (table["filter"] > 0)
    begun = np.flatnonzero(counts & (table["kind"] == KIND[kinds[0]]))
    ended = np.flatnonzero(counts & (table["kind"] == KIND[kinds[1]]))
    if not len(begun) + len(ended):
        return begun, ended
    closed = np.flatnonzero(
        counts & (table["kind"] == KIND[whole]) & (table["end"] != NONE)
    )
    closed = closed[np.isin(table["id"][closed], table["id"][begun])]
    shrunk = (
        np.flatnonzero(counts & (table["kind"] == KIND["shrank"]))
        if whole == "ran"
        else begun[:0]
    )
    rows = np.concatenate([begun, ended, closed])
    rows = rows[
        np.lexsort((table["line"][rows], table["file"][rows], table["id"][rows]))
    ]
    kind, ident, start = table["kind"][rows], table["id"][rows], table["start"][rows]
    follows = np.append(ident[1:] == ident[:-1], False)
    begins = kind == KIND[kinds[0]]
    then = np.append(rows[1:], 0)  # the record after each
    ends = follows & np.append(kind[1:] == KIND[kinds[1]], False)
    same = follows & (start == np.append(start[1:], NONE))
    # An end belongs to the begin before it.
    matched = np.append(False, (begins & ends)[:-1])
    _end(table, records, rows, kind == KIND[kinds[1]], matched)
    run_end = np.full(len(rows), NONE, dtype=np.int64)
    run_end[ends] = np.maximum(table["end"][then[ends]], start[ends])
    again = begins & np.append(begins[1:], False) & follows
    copies = again & same
    repeats = f"a record that repeats another one of the same {'job' if whole == 'ran' else 'outage'}"
    _leave_out(table, records, rows[copies], repeats)
    restarts = again & ~same
    run_end[restarts] = np.append(start[1:], NONE)[restarts]
    if whole == "ran":
        why = "a job starts again without having ended: its nodes count as taken until then"
        records.tell(table, np.append(rows[1:], 0)[restarts], why)
    else:  # what is down already says nothing new by going down again
        run_end = _down_again(table, records, rows, begins, follows, run_end)
    stated = begins & np.append(kind[1:] == KIND[whole], False) & follows
    under_way = begins & ~follows
    if under_way.any():
        known = {
            (int(table["id"][row]), int(table["start"][row])) for row in closed.tolist()
        }
        over = [
            (int(table["id"][row]), int(table["start"][row])) in known
            for row in rows[under_way].tolist()
        ]
        stated[np.flatnonzero(under_way)[np.array(over, dtype=bool)]] = True
        under_way &= ~stated
    _leave_out(table, records, _repeated(table, rows[stated]), repeats)
    late = under_way & (start > (last_ns or 0))
    runs = begins & ~stated & ~copies & ~late
    table["kind"][rows[begins]] = KIND["nothing"]
    table["kind"][rows[runs]] = KIND[whole]
    table["end"][rows[runs]] = run_end[runs]
    open_runs = rows[runs & under_way]
    if last_ns is not None:
        table["end"][open_runs] = np.maximum(last_ns, table["start"][open_runs])
        table["goes_on"][open_runs] = True
    used = open_runs[table["why"][open_runs] == 0]
    what = "jobs" if whole == "ran" else "outages or reservations"
    why = f"{what} had not ended at the end of the logs: their nodes count as taken until the last record"
    records.tell(table, used, why)
    if len(shrunk):
        _shrink(
            table,
            records,
            begun,
            rows[np.isin(kind, [KIND[kinds[1]], KIND[whole]])],
            shrunk,
        )
    return rows[begins & ends], then[begins & ends]


def _repeated(table: RecordTable, rows: Places) -> Places:
    """Those of begins that begin the same run as one before them."""
    ident, start = table["id"][rows], table["start"][rows]
    order = np.lexsort((start, ident))
    run = np.stack([ident[order].astype(np.int64), start[order]])
    twice = (run[:, 1:] == run[:, :-1]).all(axis=0)
    again: Places = rows[order[1:]][twice]
    return again


def _end(
    table: RecordTable, records: Records, rows: Places, are_ends: Mask, matched: Mask
) -> None:
    """Leave out ends that nothing began, and those of runs that a filter leaves out."""
    lone = rows[are_ends & ~matched]
    table["why"][lone] = np.where(
        table["why"][lone] == 0, table["otherwise"][lone], table["why"][lone]
    )
    skips = [
        code for code, why in enumerate(records.reasons) if why.startswith(SKIPPED)
    ]
    for row in lone[np.isin(table["why"][lone], skips)].tolist():
        why = records.reasons[table["why"][row]].removeprefix(SKIPPED)
        records.refuse(table, row, Unusable(why))
    mine = np.flatnonzero(are_ends & matched)
    before = rows[mine - 1]
    filtered = table["filter"][before] > 0
    table["why"][rows[mine[filtered]]] = table["why"][before[filtered]]


def _down_again(
    table: RecordTable,
    records: Records,
    rows: Places,
    begins: Mask,
    follows: Mask,
    run_end: Whole,
) -> Whole:
    """Leave out what goes down that is down, where its record says so; the first lasts until an end of any."""
    again = (
        np.append(False, (begins[:-1] & follows[:-1]))
        & begins
        & (table["otherwise"][rows] != 0)
    )
    for at in np.flatnonzero(again).tolist():  # few: closed twice before it was opened
        row = int(rows[at])
        table["why"][row] = table["otherwise"][row]
    if again.any():
        for at in np.flatnonzero(again)[::-1].tolist():
            run_end[at - 1] = run_end[at]
    return run_end


def _shrink(
    table: RecordTable, records: Records, begun: Places, ends: Places, shrunk: Places
) -> None:
    """Divide the runs of jobs that gave nodes back on the way; few do."""
    place = {
        int(row): (int(table["file"][row]), int(table["line"][row]))
        for row in (*begun, *ends, *shrunk)
    }
    for ident in np.unique(table["id"][shrunk]).tolist():
        mine = [
            rows[table["id"][rows] == ident].tolist() for rows in (begun, ends, shrunk)
        ]
        events = sorted(
            (place[row], kind, row) for kind, rows in enumerate(mine) for row in rows
        )
        run = -1
        for at, (_, kind, row) in enumerate(events):
            if kind == 0:
                run = row
            elif kind == 1:
                run = -1
            elif run < 0:
                table["why"][row] = table["otherwise"][row]
            else:
                until = int(max(table["start"][row], table["start"][run]))
                later = next(
                    (other for _, each, other in events[at:] if each == 1), run
                )
                stated = (
                    later
                    if table["kind"][later] == KIND["ran"]
                    and table["start"][later] == table["start"][run]
                    else run
                )
                had, kept = (_keys(table, each) for each in (run, row))
                table.add(run, np.setdiff1d(had, kept), until)
                table.set_nodes(run, np.intersect1d(had, kept))
                table.set_nodes(stated, np.intersect1d(had, kept))
    table["kind"][shrunk] = KIND["nothing"]


def _keys(table: RecordTable, row: int) -> Whole:
    """The nodes of a row, a key each."""
    made, _ = table.ranges_of(np.array([row]))
    return keys_of(made)


# --- records of the same run ----------------------------------------------------------------------------------------


def _once(table: RecordTable, records: Records, kind: str, what: str) -> Requeues:
    """Leave out records that repeat or lack the end of others, and end what starts again."""
    rows = table.of_kind(kind)
    ident = table["id"][rows]
    ordered = np.sort(ident)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    closed = (table["end"][rows] != NONE) & table["once"][rows]
    jobs = (
        len(np.unique(ident[closed])) if len(twice) else int(np.count_nonzero(closed))
    )
    if not len(twice):
        return Requeues(jobs)
    mine = rows[np.isin(ident, twice)]
    nodes = _content(table, mine)
    is_open = table["end"][mine] == NONE
    order = np.lexsort((table["line"][mine], table["file"][mine], nodes, table["end"][mine], is_open,
                        table["start"][mine], table["id"][mine]))  # fmt: skip
    mine, nodes, is_open = mine[order], nodes[order], is_open[order]
    ident, start, end = (table[name][mine] for name in ("id", "start", "end"))
    same_job = np.append(False, ident[1:] == ident[:-1])
    same_run = same_job & np.append(False, start[1:] == start[:-1])
    same = same_run & np.append(
        False, (end[1:] == end[:-1]) & (is_open[1:] | (nodes[1:] == nodes[:-1]))
    )
    _leave_out(
        table,
        records,
        mine[same],
        f"a record that repeats another one of the same {what}",
    )
    differ = same_run & ~same & ~is_open & table["once"][mine]
    why = f"records of one {what} (same id, same start) have different ends or nodes: the latest end counts"
    records.tell(table, mine[differ], why)
    run = np.cumsum(~same_run)
    has_end = np.zeros(int(run[-1]) + 1, dtype=bool)
    has_end[run[~is_open]] = True
    stated = is_open & has_end[run] & ~same
    _leave_out(
        table,
        records,
        mine[stated],
        f"{what} without an end, of which another record states the end",
    )
    _keep_latest(table, mine[~same], run[~same], is_open[~same])
    # The next start of the same job, of all runs after this one.
    firsts = np.flatnonzero(~same_run)
    next_start = np.full(len(firsts) + 1, NONE, dtype=np.int64)
    of_same = same_job[firsts[1:]]
    next_start[: len(firsts) - 1][of_same] = start[firsts[1:]][of_same]
    again = (
        is_open & ~stated & ~same & table["once"][mine] & (next_start[run - 1] != NONE)
    )
    table["end"][mine[again]] = next_start[run - 1][again]
    records.tell(
        table,
        mine[again],
        f"{what} without an end starts again later: its nodes count as taken until then",
    )
    ended = ~is_open & table["once"][mine]
    runs_of = np.unique(run[ended], return_index=True)[1]
    _, several = np.unique(ident[ended][runs_of], return_counts=True)
    return Requeues(jobs, int(np.count_nonzero(several > 1)))


def _keep_latest(table: RecordTable, mine: Places, run: Whole, is_open: Mask) -> None:
    """Of records of one run that only count their nodes, that with the latest end counts."""
    last = np.append(run[1:] != run[:-1], True) | np.append(is_open[1:], True)
    counted = (table["ranges"][mine] == 0) & ~is_open & ~last
    table["count"][mine[counted]] = 0


def _content(table: RecordTable, rows: Places) -> Whole:
    """A number for the nodes of each row."""
    made, counts = table.ranges_of(rows)
    found = table["count"][rows].astype(np.int64)
    some = np.flatnonzero(counts)
    if len(some):
        begins = np.cumsum(counts) - counts
        found[some] = np.add.reduceat(made * _ODD, begins[some])
    return found


def tell_open(records: Records, table: RecordTable, rows: Places, what: str) -> None:
    """Tell how many runs have no end in any record."""
    why = f"{what} without an end in any record: taken to last to the end of the window"
    records.tell(table, rows, why)
