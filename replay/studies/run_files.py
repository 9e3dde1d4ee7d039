"""A run directory as comparisons and pages read it: each file when it is needed, checked on the way in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.errors import MAX_SENTENCE, printable
from bft.replay.results.headlines import zone_of
from bft.replay.results.run_directory import (
    ALLOCATIONS,
    HINT,
    JOBS,
    STEPS,
    UNUSED,
    read_part,
    read_summary,
)
from bft.replay.trace.node_trace import SECOND_NS

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.int64]
DAY_NS = 86_400 * SECOND_NS
# Limits a page to 5 MB; the longest are drawn.
MAX_SPANS = 300_000


def ns(times: pd.Series) -> TimeArray:
    """Instants as ns since 1970, UTC."""
    whole = times.astype("datetime64[ns, UTC]").astype("int64")
    return np.asarray(whole, dtype=np.int64)


def spans_of(frame: pd.DataFrame, who: TimeArray) -> pd.DataFrame:
    """Who held which units and when: columns who, first, last (inclusive), begin, end (UTC ns)."""
    columns = {
        "who": who,
        "first": frame["first_unit"].to_numpy(np.int64),
        "last": frame["last_unit"].to_numpy(np.int64),
        "begin": ns(frame["start"]),
        "end": ns(frame["end"]),
    }
    return pd.DataFrame(columns)


def unit_ns(spans: pd.DataFrame) -> FloatArray:
    """Length times units of each span."""
    lasting = (spans["end"] - spans["begin"]) * (spans["last"] - spans["first"] + 1)
    return lasting.to_numpy(np.float64)


def longest_of(*spans: pd.DataFrame) -> pd.DataFrame:
    """The longest of all, at most `MAX_SPANS`, in their order; of equal ones the first."""
    whole = pd.concat(spans, ignore_index=True)
    lengths = whole["end"] - whole["begin"]
    return whole.loc[lengths.nlargest(MAX_SPANS).index].sort_index()


@dataclass(frozen=True, slots=True)
class Held:
    """The holders of units in a run.

    Parameters
    ----------
    names
        The jobs that `longest` numbers.
    unit_ns
        Units times ns held by each job.
    changes
        How many more units are held from an instant (ns, ascending) on.
    longest
        The longest rows (`spans_of`).
    nodes, units_per_node
        The nodes and their size; single units where nodes of virtual clusters have other sizes.
    """

    names: tuple[str, ...]
    unit_ns: FloatArray
    changes: pd.Series[float]
    longest: pd.DataFrame
    nodes: tuple[str, ...]
    units_per_node: int


@dataclass(eq=False)
class RunFiles:
    """A run directory: its summary, and its other files as tables.

    Parameters
    ----------
    folder
        The run directory.
    summary
        The content of summary.json.
    """

    folder: Path
    summary: dict[str, Any]

    @property
    def metrics(self) -> dict[str, Any]:
        """The numbers of the summary, such as outcome (samples), used_share, U, jct_s; docs/results.md defines them."""
        metrics: dict[str, Any] = self.summary["metrics"]
        return metrics

    @property
    def unit(self) -> str:
        """What a unit is called: a node, where jobs get whole ones."""
        return "node" if self.held.units_per_node == 1 else "unit"

    @property
    def zone(self) -> str:
        """As `zone_of` has it."""
        return zone_of(self.summary)

    @property
    def window(self) -> tuple[int, int]:
        """The window of evaluation, UTC ns."""
        sides = (self.metrics[f"window_{side}"] for side in ("start", "end"))
        start, end = (pd.Timestamp(instant).value for instant in sides)
        return start, end

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Table of decisions, one row each, in order of time within each pool.

        Time (UTC), idle and used units, jobs in play, costs (samples), objective, status.
        """
        steps = read_part(self.folder, STEPS)
        if not len(steps):
            file = self.folder / STEPS
            raise InputError("damaged: it has no rows", file=file, hint=HINT)
        return steps

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """Table of jobs by name, one row each.

        Submit, start, finish (UTC), JCT and queueing (s), work and losses (samples).
        """
        return read_part(self.folder, JOBS).set_index("name")

    @cached_property
    def unused(self) -> pd.DataFrame | None:
        """Idle units that no job held; None where the run did not write them."""
        there = (self.folder / UNUSED).exists()
        return read_part(self.folder, UNUSED) if there else None

    @property
    def begin_ns(self) -> int:
        """The first instant of the steps, UTC ns."""
        return int(self.steps["time"].min().value)

    @property
    def end_ns(self) -> int:
        """End of the run, UTC ns; for a run of a single instant one second later, so that there is time to show."""
        return max(int(self.steps["time"].max().value), self.begin_ns + SECOND_NS)

    @property
    def seconds(self) -> int:
        """Whole seconds from the first instant of the steps to the end."""
        return (self.end_ns - self.begin_ns) // SECOND_NS

    @cached_property
    def held(self) -> Held:
        """Who held how much, and the longest holdings."""
        frame = read_part(self.folder, ALLOCATIONS)
        metadata, job = frame.attrs["metadata"], frame["job"].astype("category").cat
        spans = spans_of(frame, job.codes.to_numpy().astype(np.int64))
        by_job: FloatArray = np.bincount(
            spans["who"], unit_ns(spans), len(job.categories)
        ).astype(np.float64)
        nodes, per_node = tuple(json.loads(metadata["nodes"])), int(metadata["units_per_node"])  # fmt: skip
        units = int(spans["last"].max()) + 1 if len(spans) else 0
        if units > len(nodes) * per_node:
            nodes, per_node = tuple(f"unit {number}" for number in range(units)), 1
        changes, names = changes_of(spans), tuple(job.categories)
        return Held(names, by_job, changes, longest_of(spans), nodes, per_node)


def read_run(folder: Path) -> RunFiles:
    """Open a run directory.

    Raises
    ------
    InputError
        When `folder` is not a run directory, its summary is damaged, or it keeps no steps.
    """
    run = RunFiles(folder, read_summary(folder))
    if run.summary["options"].get("compat") == "reference":
        what = "was replayed with --option compat=reference, which leaves nothing to show or compare"
        raise InputError(what, file=folder)
    if not (folder / STEPS).exists():
        what = f"has no {STEPS}, so that there is nothing to show or compare"
        hint = (
            "a sweep keeps summaries alone; with --whole it keeps whole run directories"
        )
        raise InputError(what, file=folder, hint=hint)
    return run


def pools(steps: pd.DataFrame) -> list[pd.DataFrame]:
    """The steps of each pool, each of which has decisions of its own."""
    if "vc" not in steps:
        return [steps]
    return [pool for _, pool in steps.groupby("vc", sort=True)]


def changes_of(spans: pd.DataFrame) -> pd.Series[float]:
    """How many more units are held from an instant (ns, ascending) on.

    >>> spans = pd.DataFrame({"first": [0, 3], "last": [2, 3], "begin": [0, 0], "end": [6, 10]})
    >>> changes_of(spans).to_dict()
    {0: 4.0, 6: -3.0, 10: -1.0}
    """
    units = (spans["last"] - spans["first"] + 1).to_numpy(np.float64)
    changes = pd.Series(
        np.concatenate([units, -units]), pd.concat([spans["begin"], spans["end"]])
    )
    return changes.groupby(level=0).sum()


def work_by_day(steps: pd.DataFrame, start_ns: int, days: int) -> FloatArray:
    """Samples done on each day after `start_ns`, shape (days,); work between two decisions is spread evenly."""
    bounds = np.arange(days + 1, dtype=np.float64) * DAY_NS / SECOND_NS
    total = np.zeros(days)
    for pool in pools(steps):
        done = pool["progress"].to_numpy(np.float64).cumsum()
        seconds = (ns(pool["time"]) - start_ns) / SECOND_NS
        total += np.diff(np.interp(bounds, seconds, done, left=0.0))
    return total


def usually_idle(steps: pd.DataFrame) -> int:
    """Units that are idle for at least half of the time of a run whose decisions are `steps`."""
    seconds = np.diff(ns(steps["time"]))
    idle = steps["idle"].to_numpy(np.int64)[:-1]
    order = np.argsort(-idle, kind="stable")
    reached = np.cumsum(seconds[order])
    if not len(reached) or not reached[-1]:
        return 0
    return int(idle[order][np.searchsorted(reached, reached[-1] / 2)])


def lost(jobs: pd.DataFrame) -> pd.Series[float]:
    """Samples that each job lost, for any reason."""
    books = [name for name in jobs if str(name).startswith("lost_to_")]
    samples: pd.Series[float] = jobs[books].sum(axis=1)
    return samples


def done_shares(jobs: pd.DataFrame) -> FloatArray:
    """The part of its work that each job has done; 1 for a job without work."""
    total = jobs["total_work"].to_numpy(dtype=np.float64)
    work = np.where(total > 0, jobs["work"], 1.0) / np.where(total > 0, total, 1.0)
    done: FloatArray = np.clip(work, 0.0, 1.0)
    return done


def job_cells(run: RunFiles) -> dict[str, list[Any]]:
    """The columns of the table of jobs by title: names, and pairs of what a cell is sorted by and what is shown."""
    jobs = run.jobs
    total = jobs["total_work"].to_numpy(dtype=np.float64)
    lost_share: pd.Series[float] = lost(jobs) / np.where(total > 0, total, 1.0)
    columns: dict[str, tuple[str, Iterable[Any]]] = {
        "submitted": ("{:%d %b %H:%M}", jobs["submit"].dt.tz_convert(run.zone)),
        "finished": ("{:%d %b %H:%M}", jobs["finish"].dt.tz_convert(run.zone)),
        "waited, h": ("{:.2f}", jobs["without_units_s"] / 3600),
        "took, h": ("{:.2f}", jobs["jct_s"] / 3600),
        "mean units": ("{:.1f}", jobs["mean_units"]),
        "lost": ("{:.1%}", lost_share),
        "done": ("{:.0%}", done_shares(jobs)),
        "preempted": ("{:,}", jobs["preemptions"]),
        "rescaled": ("{:,}", jobs["rescales"]),
    }
    cells: dict[str, list[Any]] = {
        title: [_sorted_cell(value, form) for value in values]
        for title, (form, values) in columns.items()
    }
    names = [printable(str(name), MAX_SENTENCE) for name in jobs.index]
    return {"job": names, **cells}


def _sorted_cell(value: Any, form: str) -> tuple[float | None, str]:
    if value != value:
        return None, "-"
    number = value.timestamp() if isinstance(value, pd.Timestamp) else value
    return round(float(number), 4), form.format(value)
