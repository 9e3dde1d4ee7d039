"""A run directory as comparisons and pages read it: each file when it is needed, checked on the way in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.results.run_directory import (
    ALLOCATIONS,
    HINT,
    JOBS,
    STEPS,
    UNUSED,
    job_numbers,
    read_part,
    read_part_in_blocks,
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
    """The holders of units in a run: sums over all rows, which may be too many for memory, and the longest.

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


@dataclass(frozen=True)
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

    @classmethod
    def read(cls, folder: Path) -> RunFiles:
        """Open a run directory.

        Raises
        ------
        InputError
            When `folder` is not a run directory, its summary is damaged, or it keeps no steps.
        """
        summary = read_summary(folder)
        if summary["options"].get("compat") == "reference":
            what = "was replayed with --option compat=reference, which leaves nothing to show or compare"
            raise InputError(what, file=folder)
        if not (folder / STEPS).exists():
            raise InputError(
                f"has no {STEPS}, so that there is nothing to show or compare",
                file=folder,
                hint="a sweep keeps summaries alone; with --whole it keeps whole run directories",
            )
        return cls(folder, summary)

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures of the summary."""
        metrics: dict[str, Any] = self.summary["metrics"]
        return metrics

    @property
    def window(self) -> tuple[int, int]:
        """The window of evaluation, UTC ns."""
        start, end = (
            pd.Timestamp(self.metrics[f"window_{side}"]).value
            for side in ("start", "end")
        )
        return start, end

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per decision, in order of time within each pool."""
        steps = read_part(self.folder, STEPS)
        if not len(steps):
            file = self.folder / STEPS
            raise InputError("damaged: it has no rows", file=file, hint=HINT)
        return steps

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row per job, by name."""
        return read_part(self.folder, JOBS).set_index("name", drop=False)

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

    def pools(self) -> list[pd.DataFrame]:
        """The steps of each pool: a row only describes its own pool."""
        if "vc" not in self.steps:
            return [self.steps]
        return [pool for _, pool in self.steps.groupby("vc", sort=True)]

    @cached_property
    def waits(self) -> pd.DataFrame:
        """Seconds of each job, by name, between submission and finish, or the end, with and without units.

        Columns waiting_s, longest_wait_s (its longest stretch) and run_s; missing for jobs that were left out or
        refused, and where the end came before the submission.
        """
        jobs = self.jobs
        ended = jobs["finish"]
        if "cancelled" in jobs:
            ended = ended.fillna(jobs["cancelled"])
        until = np.where(ended.isna(), self.window[1], ns(ended))
        submit = ns(jobs["submit"])
        reached = submit.copy()
        longest, total = np.zeros_like(submit), np.zeros_like(submit)
        numbers = {name: number for number, name in enumerate(jobs["name"])}
        for frame in read_part_in_blocks(self.folder, ALLOCATIONS):
            job = job_numbers(frame, numbers.__getitem__)
            held = spans_of(frame, job).sort_values(["who", "begin"], kind="stable")
            who = held["who"].to_numpy()
            by_job = held.groupby("who")["end"].cummax().groupby(held["who"])
            before = by_job.shift(fill_value=0).to_numpy()
            begins = np.minimum(held["begin"], until[who])
            gaps = np.maximum(begins - np.maximum(before, reached[who]), 0)
            np.maximum.at(longest, who, gaps)
            np.add.at(total, who, gaps)
            np.maximum.at(reached, who, held["end"])
        last = np.maximum(until - reached, 0)
        waiting = (total + last) / SECOND_NS
        columns = {
            "waiting_s": waiting,
            "longest_wait_s": np.maximum(longest, last) / SECOND_NS,
            "run_s": (until - submit) / SECOND_NS - waiting,
        }
        table = pd.DataFrame(columns, index=jobs.index)
        table[submit > until] = np.nan
        if "left_out" in jobs:
            table[jobs["left_out"]] = np.nan
        return table

    @cached_property
    def held(self) -> Held:
        """Who held how much, and the longest holdings."""
        numbers: dict[str, int] = {}
        units = 0
        weights: FloatArray = np.zeros(0)
        changes = pd.Series(dtype=np.float64)
        longest: list[pd.DataFrame] = []
        for frame in read_part_in_blocks(self.folder, ALLOCATIONS):
            who = job_numbers(frame, lambda n: numbers.setdefault(n, len(numbers)))
            spans = spans_of(frame, who)
            units = max(units, int(spans["last"].max()) + 1 if len(spans) else 0)
            more = np.bincount(who, unit_ns(spans), len(numbers)).astype(np.float64)
            more[: len(weights)] += weights
            weights = more
            changes = changes.add(changes_of(spans), fill_value=0.0)
            longest = [longest_of(*longest, spans)]
            metadata = frame.attrs["metadata"]
        nodes = tuple(json.loads(metadata["nodes"]))
        per_node = int(metadata["units_per_node"])
        if units > len(nodes) * per_node:
            nodes, per_node = tuple(f"unit {number}" for number in range(units)), 1
        return Held(tuple(numbers), weights, changes, longest[0], nodes, per_node)


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
    # Each virtual cluster has its own decision times.
    groups = [group for _, group in steps.groupby("vc")] if "vc" in steps else [steps]
    for group in groups:
        done = group["progress"].to_numpy(np.float64).cumsum()
        seconds = (ns(group["time"]) - start_ns) / SECOND_NS
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
