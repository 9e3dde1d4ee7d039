"""The tables of a run directory: steps, jobs, allocations, the nodes that host jobs took, and units that nobody held.

**steps.parquet** has a row for each decision, and one (`status` = `end`) for what remained:

- `time`; `idle`, `used` (units); `jobs`, `running` (jobs in play and running); `vc` with virtual clusters.
- Since the row before: `joined`, `left` (units), `preempted` (jobs), `progress` (net work), and the losses
  `rescale_cost`, `preemption_cost`, `stall_cost`, `start_cost`, `restart_cost`.
- `rescaled`: jobs changed now; `rate`: from now on.
- Of the decision: `objective`, `bound`, `gap` = (bound − objective) / max(1, |bound|), `status`, `note`, `backend`
  (the one asked; `exact` in a fallback).

`status` is `optimal` (proven), `feasible` (the best known at the time limit), `fallback` (the solver gave no valid
answer), `decided` (by a policy that does not optimise), `infeasible` (`--option strict-reference=yes`),
or `nothing idle`.

**jobs.parquet** has, as in the job table, `name`, `vc`, `user`, `model`, `Jmin`, `Jmax`, `sizes`, `Jreq`, and:

- `units_asked`, Jreq or its default; `left_out`, where some jobs were left out or refused;
- instants `submit`, `start`, `finish`, and with `--workload` `cancelled`; seconds `jct_s`, `queueing_s` from the
  submission to the finish, to the start; `without_units_s` until the finish or the end, for jobs in the system;
- `work` done and `total_work`; `lost_to_rescale`, `lost_to_preemption`, `lost_to_stall`, `lost_to_start`,
  `lost_to_restart`;
- counts `rescales`, `preemptions`, `restarts`; `unit_seconds` held, and `mean_units` while in the system.

**allocations.parquet**: `job`, `first_unit`, `last_unit` (inclusive), `start`, `end`; its metadata name the nodes.
A unit that two jobs share counts under both.
**unused.parquet** has the same without `job`, within the window.

**search.parquet**: `time`, `job`, `progress`, `score`, and the `best` score until then.

**returns.parquet**: `time`, `place` (the node of the log), `node` (the one that filled its place), `let_go` (when
training last let go of it, if it did).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models import Job, JobTable, read_table, write_parquet
from bft.models.tables import ROW_GROUP, row_groups, write_parquet_parts
from bft.replay.engine.host import NOT_HELD, HostReturns, Taken
from bft.replay.engine.ledger import BOOKS, Outcome
from bft.replay.results.metrics import mean_units, without_units_s
from bft.replay.results.run_directory import (
    ALLOCATIONS,
    JOBS,
    RETURNS,
    SEARCH,
    STEPS,
    UNUSED,
)
from bft.replay.results.search import scores_frame
from bft.replay.trace.node_trace import SECOND_NS, TimeArray, consecutive
from bft.replay.trace.trace_statistics import Fragments, fragments


def _whole(instants: Sequence[int | None] | TimeArray) -> pd.Series:
    """Instants in ns, of which some may be missing: as floats they would be off by 100 ns."""
    return pd.Series(instants, dtype="Int64")


def _utc(instants: Any) -> Any:
    return pd.to_datetime(instants, unit="ns", utc=True)


def jobs_frame(outcome: Outcome) -> pd.DataFrame:
    """Return a table with one row per job.

    Its columns are identity, sizes, times (UTC), JCT and queueing (s), work and losses (samples), units;
    the module describes each.
    """
    records = outcome.records
    start = _whole([record.start_ns for record in records])
    finish = _whole([record.finish_ns for record in records])
    submit = _whole([record.job.tsub_ns for record in records])
    columns = {
        **asked_columns([record.job for record in records]),
        "submit": _utc(submit),
        "start": _utc(start),
        "finish": _utc(finish),
        "jct_s": ((finish - submit) / SECOND_NS).to_numpy("float64", na_value=np.nan),
        "queueing_s": ((start - submit) / SECOND_NS).to_numpy(
            "float64", na_value=np.nan
        ),
        "without_units_s": [
            np.nan
            if record.left_out or record.job.tsub_ns > outcome.end_ns
            else without_units_s(record, outcome.end_ns)
            for record in records
        ],
        "work": [record.work for record in records],
        "total_work": [record.job.pmax for record in records],
        **{
            lost: [getattr(record, lost) for record in records]
            for lost in (f"lost_to_{book}" for book in BOOKS)
        },
        "rescales": [record.rescales for record in records],
        "preemptions": [record.preemptions for record in records],
        "restarts": [max(0, record.starts - 1) for record in records],
        "unit_seconds": [record.unit_seconds for record in records],
        "mean_units": [
            mean_units(record, outcome.start_ns, outcome.end_ns) for record in records
        ],
    }
    if outcome.scores is not None:  # a workload may have stopped some
        columns["cancelled"] = _utc(_whole([record.cancelled_ns for record in records]))
    if any(record.left_out for record in records):
        columns["left_out"] = [record.left_out for record in records]
    return pd.DataFrame(columns)


def asked_columns(jobs: Sequence[Job]) -> dict[str, Any]:
    """Owner and request of each job, by column: Jreq where the job table states one, units_asked in any case."""
    return {
        "name": [job.name for job in jobs],
        "vc": [job.vc for job in jobs],
        "user": [job.user for job in jobs],
        "model": [job.model for job in jobs],
        "Jmin": [job.jmin for job in jobs],
        "Jmax": [job.jmax for job in jobs],
        **(
            {"sizes": [list(job.sizes or ()) or None for job in jobs]}
            if any(job.sizes for job in jobs)
            else {}
        ),
        "Jreq": pd.array([job.jreq for job in jobs], dtype="Int64"),
        "units_asked": [job.request for job in jobs],
    }


def finish_frame(
    jobs: JobTable, finish_ns: Sequence[int | None], work: Sequence[float]
) -> pd.DataFrame:
    """Return a table with one row per job, its finish and work only: the output of the published replayer."""
    submit, finish = _whole([job.tsub_ns for job in jobs]), _whole(list(finish_ns))
    return pd.DataFrame(
        {
            **asked_columns(list(jobs)),
            "submit": _utc(submit),
            "finish": _utc(finish),
            "jct_s": (finish - submit).astype("Float64") / SECOND_NS,
            "work": list(work),
            "total_work": [job.pmax for job in jobs],
        }
    )


def allocations_frames(outcome: Outcome) -> Iterator[pd.DataFrame]:
    """The units that each job held, `ROW_GROUP` rows each: job, first_unit, last_unit (inclusive), start, end (UTC)."""
    names = pd.Index([record.job.name for record in outcome.records])
    for held in row_groups(outcome.holds()):
        yield pd.DataFrame(
            {
                "job": pd.Categorical.from_codes(held["job"], categories=names),
                "first_unit": held["first_unit"].astype("int64"),
                "last_unit": held["last_unit"].astype("int64"),
                "start": _utc(held["start_ns"]),
                "end": _utc(held["end_ns"]),
            }
        )


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write steps, jobs and allocations into `folder`, and what a workload has found."""
    found = scores_frame(outcome)
    if found is not None:
        write_parquet(found, folder / SEARCH)
    steps = outcome.steps
    parts = range(0, max(len(steps), 1), ROW_GROUP)
    groups = (steps.iloc[first : first + ROW_GROUP] for first in parts)
    write_parquet_parts(groups, folder / STEPS)
    write_parquet(jobs_frame(outcome), folder / JOBS)
    nodes = {
        "nodes": json.dumps(list(outcome.trace.nodes)),
        "units_per_node": str(outcome.trace.units_per_node),
    }
    write_parquet_parts(allocations_frames(outcome), folder / ALLOCATIONS, nodes)
    unused = unused_frame(outcome)
    if unused is not None:
        write_parquet(unused, folder / UNUSED)


def unused_frame(outcome: Outcome) -> pd.DataFrame | None:
    """Idle units that no job held: first_unit, last_unit (inclusive), start, end (UTC); None for very large runs."""
    found = unused_intervals(outcome)
    if found is None:
        return None
    order = np.lexsort((found[0], found[2], found[1]))
    unit, start, end = (column[order] for column in found)
    # Neighbouring units that were unused at the same time are one row.
    goes_on = np.zeros(len(unit), dtype=bool)
    goes_on[1:] = (np.diff(unit) == 1) & (np.diff(start) == 0) & (np.diff(end) == 0)
    first = np.flatnonzero(~goes_on)
    last = np.append(first[1:], len(unit))[: len(first)] - 1
    return pd.DataFrame(
        {
            "first_unit": unit[first],
            "last_unit": unit[last],
            "start": _utc(start[first]),
            "end": _utc(end[first]),
        }
    )


def returns_frame(outcome: Outcome, rows: slice = slice(None)) -> pd.DataFrame:
    """One row per node that host jobs took: time, place, node, let_go (UTC; missing where not held since idle)."""
    every = {} if outcome.host is None else outcome.host.returns
    returns = {name: column[rows] for name, column in every.items()}
    names = pd.Index(outcome.trace.nodes)
    let_go = _whole(returns["let_go_ns"])
    return pd.DataFrame(
        {
            "time": _utc(returns["time_ns"]),
            "place": pd.Categorical.from_codes(returns["place"], categories=names),
            "node": pd.Categorical.from_codes(returns["node"], categories=names),
            "let_go": _utc(let_go.mask(let_go == NOT_HELD)),
        }
    )


def write_returns(folder: Path, outcome: Outcome) -> None:
    """Write which nodes host jobs took into `folder`."""
    count = 0 if outcome.host is None else len(outcome.host.returns["time_ns"])
    parts = range(0, max(count, 1), ROW_GROUP)
    frames = (returns_frame(outcome, slice(at, at + ROW_GROUP)) for at in parts)
    write_parquet_parts(frames, folder / RETURNS)


def read_returns(folder: Path, nodes: Sequence[str]) -> HostReturns:
    """Read what `write_returns` wrote of a replay on these nodes: places, instants, and when training let go.

    Raises
    ------
    InputError
        When the file is missing or damaged.
    """
    frame = read_table(folder / RETURNS)
    instants = {
        name: frame[name].astype("datetime64[ns, UTC]").dt.tz_localize(None)
        for name in ("time", "let_go")
    }
    time, let_go = (
        each.to_numpy(dtype="datetime64[ns]").astype(np.int64)
        for each in instants.values()
    )
    names = {name: place for place, name in enumerate(nodes)}
    place = frame["place"].astype(str).map(names).to_numpy(dtype=np.int64)
    let_go[frame["let_go"].isna().to_numpy()] = NOT_HELD
    returns: dict[str, Any] = {"time_ns": time, "place": place, "let_go_ns": let_go}
    return HostReturns(Taken(), returns, {})


# A run with more intervals of single units than these is not accounted for: a year of 10,000 nodes would take
# gigabytes, and no chart shows them.
MAX_INTERVALS = 3_000_000
# Units, starts and ends (UTC ns) of intervals: int64 of shape (intervals,) each.
Intervals = tuple[NDArray[np.int64], TimeArray, TimeArray]


def unused_intervals(outcome: Outcome) -> Intervals | None:
    """Return when which single unit was idle and no job held it, within the window; None for very large runs.

    Examples
    --------
    >>> from bft.models import Curve, Job, JobTable
    >>> from bft.replay import EqualShare, Replay, always_idle
    >>> curve = Curve([0, 2], [0, 20])
    >>> job = Job("a", 0, 1, 2, pmax=2000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> outcome = Replay(always_idle(3, 0, 600 * 10**9), JobTable((job,)), EqualShare()).run()
    >>> [column.tolist() for column in unused_intervals(outcome)]  # it ran on two units for 100 s
    [[2], [0], [100000000000]]
    """
    intervals = len(outcome.trace.joined)
    for part in outcome.holds():
        intervals += int((part["last_unit"] - part["first_unit"] + 1).sum())
        if intervals > MAX_INTERVALS:
            return None
    held = outcome.allocations
    first, last = (
        held[column].to_numpy(dtype=np.int64) for column in ("first_unit", "last_unit")
    )
    idle = _idle(outcome)
    starts, ends = (
        held[column].to_numpy(dtype=np.int64) for column in ("start_ns", "end_ns")
    )
    counts = last - first + 1
    units = consecutive(first, counts)
    rows = np.repeat(np.arange(len(held)), counts)
    return _without(idle, (units, starts[rows], ends[rows]))


def _idle(outcome: Outcome) -> Intervals:
    """Return when single units were idle within the window, on the nodes that filled the places of the log."""
    trace = outcome.trace
    returns = {} if outcome.host is None else outcome.host.returns
    # What turns idle later has leaves that the replay did not see, so that it would hide what was idle before.
    idle = fragments(trace).within(trace.start, outcome.end_ns)
    if len(returns.get("node", ())):
        idle = _of_nodes(idle, returns)
    idle = idle.within(outcome.start_ns, outcome.end_ns)
    per = 1 if trace.by_unit else trace.units_per_node
    first = idle.node.astype(np.int64) * per
    units = consecutive(first, np.full(len(first), per))
    return units, np.repeat(idle.start_ns, per), np.repeat(idle.end_ns, per)


def _of_nodes(places: Fragments, returns: Mapping[str, NDArray[np.int64]]) -> Fragments:
    """Return when nodes were idle, where they exchanged places: a place joins on the node that it left with before.

    `returns` has a row for each leave: time_ns, place, node.
    """
    joins = zip(places.start_ns.tolist(), places.node.tolist(), strict=True)
    node_of: dict[int, int] = {}  # the node that fills a busy place
    events = sorted([
        *((at, 0, where, -1) for at, where in joins),
        *((at, 1, where, node) for at, where, node in
          zip(*(returns[name].tolist() for name in ("time_ns", "place", "node")), strict=True)),
    ])  # fmt: skip
    begun: dict[int, int] = {}
    found: list[tuple[int, int, int]] = []
    for at, is_leave, where, node in events:
        if is_leave:
            node_of[where] = node
            found.append((node, begun.pop(node), at))
        else:
            begun[node_of.get(where, where)] = at
    final = int(places.end_ns.max(initial=0))
    found += [(node, at, final) for node, at in begun.items()]
    node, start, end = np.array(found, dtype=np.int64).reshape(-1, 3).T
    whole = np.zeros(len(node), dtype=bool)
    return Fragments(node.astype(np.int32), start, end, whole)


def _without(idle: Intervals, held: Intervals) -> Intervals:
    """Return the parts of idle intervals in which no interval of `held` lies, by unit and time."""
    count, holds = len(idle[0]), len(held[0])
    unit = np.concatenate([idle[0], idle[0], held[0], held[0]])
    time = np.concatenate([idle[1], idle[2], held[1], held[2]])
    is_idle = np.repeat(np.array([1, -1, 0, 0]), (count, count, holds, holds))
    is_held = np.repeat(np.array([0, 0, 1, -1]), (count, count, holds, holds))
    order = np.lexsort((time, unit))
    unit, time = unit[order], time[order]
    # The counts of each unit end at 0, so that one sum serves all units.
    free = (np.cumsum(is_idle[order]) > 0) & (np.cumsum(is_held[order]) == 0)
    lasts = np.append((unit[1:] == unit[:-1]) & (time[1:] > time[:-1]), False)
    begins = np.flatnonzero(free & lasts)
    return unit[begins], time[begins], time[begins + 1]
