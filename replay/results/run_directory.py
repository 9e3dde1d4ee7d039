"""The run directory with the results of a replay, among them the idle units that no job held."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError, Job, JobTable, write_parquet
from bft.models.atomic_files import unwritable
from bft.models.tables import ROW_GROUP, row_groups, write_parquet_parts
from bft.replay.engine.host import NOT_HELD
from bft.replay.engine.ledger import BOOKS, Outcome
from bft.replay.results.metrics import mean_units
from bft.replay.results.search import scores_frame
from bft.replay.trace.node_trace import SECOND_NS, TimeArray, consecutive
from bft.replay.trace.trace_statistics import fragments

if TYPE_CHECKING:
    import pandas as pd


# Written to summary.json, so that a folder can be recognised as a run directory before anything in it is replaced.
FORMAT = "bft-replay run"
FORMAT_VERSION = 1
SUMMARY, TIMING = "summary.json", "timing.json"
STEPS, JOBS, ALLOCATIONS = "steps.parquet", "jobs.parquet", "allocations.parquet"
STEP_LOG = "step-logs.csv"  # as the published replayer names its only result
SEARCH = "search.parquet"  # what a workload has found
RETURNS = "returns.parquet"  # which nodes host jobs took
UNUSED = "unused.parquet"  # idle units that no job held
LOG = "replay.log"  # the messages of a replay with -print 0
OURS = frozenset(
    {SUMMARY, TIMING, STEPS, JOBS, ALLOCATIONS, STEP_LOG, SEARCH, RETURNS, UNUSED, LOG}
)
DRAFT, OLD = "draft", "old"


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run directory of this program."""
    return _recorded(folder) is not None


def is_interrupted(
    folder: Path, configuration: Mapping[str, Any] | None = None
) -> bool:
    """Whether `folder` holds part of an interrupted run; if given, with these entries in its summary."""
    summary = _recorded(folder)
    metrics = None if summary is None else summary.get("metrics")
    if (
        summary is None
        or not isinstance(metrics, dict)
        or metrics.get("interrupted") is not True
    ):
        return False
    return all(
        summary.get(name) == plain(entry)
        for name, entry in (configuration or {}).items()
    )


def _recorded(folder: Path) -> dict[str, Any] | None:
    """The summary of a run directory."""
    try:
        content = json.loads((folder / SUMMARY).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return (
        content
        if isinstance(content, dict) and content.get("format") == FORMAT
        else None
    )


def check_writable(folder: Path, *, force: bool) -> None:
    """Raise early what `run_directory` would raise at the end of a long replay.

    Raises
    ------
    InputError
        When `folder` exists and is not a run directory, is one but `force` is not given, or cannot be created.
    """
    if folder.exists() or folder.is_symlink():
        if not folder.is_dir():
            raise InputError(
                "exists and is not a folder; choose another with --out", file=folder
            )
        if is_run(folder):
            if not force:
                raise InputError(
                    "holds an earlier run; --force replaces it, --out names another folder",
                    file=folder,
                )
        elif any(folder.iterdir()):
            raise InputError(
                "is not empty and not a run directory, so it is left alone; choose another --out",
                file=folder,
            )
    parent = existing(folder.parent)
    if not parent.is_dir():
        raise InputError(
            "is not a folder, so none can be created in it; choose another --out",
            file=parent,
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            "no permission to write here; choose another --out", file=parent
        )


@contextmanager
def run_directory(folder: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder to fill. When the block succeeds, it becomes `folder` in one step.

    The files of an earlier run are removed only when the new ones are in place. Other files in `folder` stay. When the
    block raises, the hidden folder is removed and `folder` stays as it was. If something appeared at `folder` in the
    meantime, it stays, and the new run is kept under another name.

    Raises
    ------
    InputError
        As `check_writable`; for an OSError of the block; and when the new run could not be moved to its place: the
        message then says where it is kept.
    """
    check_writable(folder, force=force)
    folder = (
        folder.resolve()
    )  # follow a link, so that its target is replaced, not the link
    mark = uuid4().hex[:8]
    draft = hidden(folder, DRAFT, mark)
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(folder.parent, error) from error
    try:
        yield draft
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError):  # only code that writes belongs into the block
            raise unwritable(folder, error) from error
        raise
    _place(draft, folder, hidden(folder, OLD, mark), force=force)


def hidden(path: Path, kind: str, mark: str) -> Path:
    """Return the name of `path` while it is written (`DRAFT`), or after a draft has replaced it (`OLD`).

    An old run exists only while its draft is complete: if both exist, the draft may be moved into place.
    """
    return path.with_name(f".{path.name}.{kind}-{mark}")


def _place(draft: Path, folder: Path, old: Path, *, force: bool) -> None:
    try:
        if force and is_run(folder):
            folder.rename(old)
        draft.rename(
            folder
        )  # fails unless the target is an empty folder: no run is replaced without asking
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        kept = folder.with_name(draft.name[1:])
        draft.rename(kept)
        reason = "something else is there by now" if folder.exists() else error.strerror
        raise InputError(
            f"cannot be put in place: {reason}",
            file=folder,
            hint=f"it is kept as {kept}",
        ) from error
    if old.exists():
        retire(old, folder)


def retire(old: Path, folder: Path) -> None:
    """Remove the files of an earlier run that `folder` has replaced; move other files to `folder`."""
    for entry in old.iterdir():
        if entry.name not in OURS and not (folder / entry.name).exists():
            entry.rename(folder / entry.name)
    if all(entry.name in OURS for entry in old.iterdir()):
        shutil.rmtree(old, ignore_errors=True)


def cannot_write(folder: Path, error: OSError) -> InputError:
    """The error for a folder in which nothing can be created."""
    return InputError(
        f"cannot write here: {error.strerror}; choose another --out", file=folder
    )


def existing(path: Path) -> Path:
    """Return the nearest of a path and the folders above it that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with sorted keys; NaN and infinity become null, because JSON lacks them."""
    path.write_text(
        json.dumps(
            plain(content),
            indent=2,
            sort_keys=True,
            allow_nan=False,
            ensure_ascii=False,
        )
        + "\n",
        "utf-8",
    )


def plain(value: Any) -> Any:
    """Return a value with NaN and infinities replaced by None."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and (
        value != value or value in (float("inf"), float("-inf"))
    ):
        return None
    return value


def jobs_frame(outcome: Outcome) -> pd.DataFrame:
    """Return a table with one row per job.

    Its columns are identity, sizes, times (UTC), JCT and queueing (s), work and losses (samples), units;
    docs/results.md describes each.
    """
    import pandas as pd

    records = outcome.records
    # As whole nanoseconds, since some are missing: as floats they would be off by 100 ns.
    start = pd.Series([record.start_ns for record in records], dtype="Int64")
    finish = pd.Series([record.finish_ns for record in records], dtype="Int64")
    submit = pd.Series([record.job.tsub_ns for record in records], dtype="Int64")
    columns = {
        **asked_columns([record.job for record in records]),
        "submit": pd.to_datetime(submit, unit="ns", utc=True),
        "start": pd.to_datetime(start, unit="ns", utc=True),
        "finish": pd.to_datetime(finish, unit="ns", utc=True),
        "jct_s": ((finish - submit) / SECOND_NS).to_numpy(
            dtype="float64", na_value=np.nan
        ),
        "queueing_s": ((start - submit) / SECOND_NS).to_numpy(
            dtype="float64", na_value=np.nan
        ),
        "work": [record.work for record in records],
        "total_work": [record.job.pmax for record in records],
        **{
            f"lost_to_{book}": [
                getattr(record, f"lost_to_{book}") for record in records
            ]
            for book in BOOKS
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
        cancelled = pd.Series(
            [record.cancelled_ns for record in records], dtype="Int64"
        )
        columns["cancelled"] = pd.to_datetime(cancelled, unit="ns", utc=True)
    if any(record.left_out for record in records):
        columns["left_out"] = [record.left_out for record in records]
    return pd.DataFrame(columns)


def asked_columns(jobs: Sequence[Job]) -> dict[str, Any]:
    """Owner and request of each job, by column: Jreq where the job table states one, units_asked in any case."""
    import pandas as pd

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
    import pandas as pd

    submit = pd.Series([job.tsub_ns for job in jobs], dtype="Int64")
    finish = pd.Series(list(finish_ns), dtype="Int64")
    return pd.DataFrame(
        {
            **asked_columns(list(jobs)),
            "submit": pd.to_datetime(submit, unit="ns", utc=True),
            "finish": pd.to_datetime(finish, unit="ns", utc=True),
            "jct_s": (finish - submit).astype("Float64") / SECOND_NS,
            "work": list(work),
            "total_work": [job.pmax for job in jobs],
        }
    )


def allocations_frames(outcome: Outcome) -> Iterator[pd.DataFrame]:
    """The units that each job held, `ROW_GROUP` rows each: job, first_unit, last_unit (inclusive), start, end (UTC)."""
    import pandas as pd

    names = pd.Index([record.job.name for record in outcome.records])
    for held in row_groups(outcome.holds.parts()):
        yield pd.DataFrame(
            {
                "job": pd.Categorical.from_codes(held["job"], categories=names),
                "first_unit": held["first_unit"].astype("int64"),
                "last_unit": held["last_unit"].astype("int64"),
                "start": pd.to_datetime(held["start_ns"], unit="ns", utc=True),
                "end": pd.to_datetime(held["end_ns"], unit="ns", utc=True),
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
    import pandas as pd

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
            "start": pd.to_datetime(start[first], unit="ns", utc=True),
            "end": pd.to_datetime(end[first], unit="ns", utc=True),
        }
    )


def returns_frame(outcome: Outcome, rows: slice = slice(None)) -> pd.DataFrame:
    """One row per node that host jobs took: time, place, node, let_go (UTC; missing where not held since idle)."""
    import pandas as pd

    every = {} if outcome.host is None else outcome.host.returns
    returns = {name: column[rows] for name, column in every.items()}
    names = pd.Index(outcome.trace.nodes)
    let_go = pd.Series(returns["let_go_ns"], dtype="Int64")
    return pd.DataFrame(
        {
            "time": pd.to_datetime(returns["time_ns"], unit="ns", utc=True),
            "place": pd.Categorical.from_codes(returns["place"], categories=names),
            "node": pd.Categorical.from_codes(returns["node"], categories=names),
            "let_go": pd.to_datetime(
                let_go.mask(let_go == NOT_HELD), unit="ns", utc=True
            ),
        }
    )


def write_returns(folder: Path, outcome: Outcome) -> None:
    """Write which nodes host jobs took into `folder`."""
    count = 0 if outcome.host is None else len(outcome.host.returns["time_ns"])
    parts = range(0, max(count, 1), ROW_GROUP)
    frames = (returns_frame(outcome, slice(at, at + ROW_GROUP)) for at in parts)
    write_parquet_parts(frames, folder / RETURNS)


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
    for part in outcome.holds.parts():
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
    pieces = fragments(trace)
    # What turns idle later has leaves that the replay did not see, so that it would hide what was idle before.
    within = pieces.start_ns < outcome.end_ns
    slot = pieces.node[within].astype(np.int64)
    start, end = pieces.start_ns[within], pieces.end_ns[within]
    if len(returns.get("node", ())):
        slot, start, end = _of_nodes((slot, start, end), returns)
    start, end = (
        np.maximum(start, outcome.start_ns),
        np.minimum(end, outcome.end_ns),
    )
    slot, start, end = (column[start < end] for column in (slot, start, end))
    per = 1 if trace.by_unit else trace.units_per_node
    units = consecutive(slot * per, np.full(len(slot), per))
    return units, np.repeat(start, per), np.repeat(end, per)


def _of_nodes(places: Intervals, returns: Mapping[str, NDArray[np.int64]]) -> Intervals:
    """Return when nodes were idle, where they exchanged places: a place joins on the node that it left with before.

    `returns` has a row for each leave: time_ns, place, node.
    """
    place, start, end = places
    node_of: dict[int, int] = {}  # the node that fills a busy place
    events = sorted([
        *((at, 0, where, -1) for where, at in zip(place.tolist(), start.tolist(), strict=True)),
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
    final = int(end.max(initial=0))
    found += [(node, at, final) for node, at in begun.items()]
    columns = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


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
