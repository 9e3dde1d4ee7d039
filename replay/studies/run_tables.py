"""Tables that a comparison reads from run directories: work per day, results per job and per group of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
    job_numbers,
    read_part,
    read_part_in_blocks,
)
from bft.replay.trace.node_trace import SECOND_NS

DAY_NS = 86_400 * SECOND_NS
Array = NDArray[np.float64]


def history(folder: Path, name: str) -> pd.DataFrame:
    """Return the steps or jobs of a run, with its columns checked.

    Raises
    ------
    InputError
        When the run has no such file, or it is damaged.
    """
    _require(folder, name)
    return read_part(folder, name)


def _require(folder: Path, name: str) -> None:
    if not (folder / name).exists():
        raise InputError(
            f"has no {name}: only its summary was kept, or it was replayed with --compat reference",
            file=folder,
        )


def work_by_day(steps: pd.DataFrame, start_ns: int, days: int) -> Array:
    """Samples done on each day after `start_ns`; work between two decisions is spread evenly.

    Parameters
    ----------
    steps
        Decisions of a run, as steps.parquet has them.
    start_ns
        When the first day begins, in nanoseconds since 1970.
    days
        How many days.

    Returns
    -------
    array
        Of shape (days,).
    """
    bounds = start_ns + np.arange(days + 1, dtype=np.int64) * DAY_NS
    total = np.zeros(days)
    groups = [group for _, group in steps.groupby("vc")] if "vc" in steps else [steps]
    for group in groups:  # each virtual cluster has its own decision times
        if group.empty:
            continue
        done = group["progress"].to_numpy(dtype=np.float64).cumsum()
        seconds = (_instants(group["time"]) - start_ns) / SECOND_NS
        total += np.diff(
            np.interp((bounds - start_ns) / SECOND_NS, seconds, done, left=0.0)
        )
    return total


def jobs_of(folder: Path, end_ns: int) -> pd.DataFrame:
    """Per job, by name: jobs.parquet, and the time with units (`run_s`) and without, of which the longest stretch.

    `waiting_s` and `longest_wait_s` are of what lies between its submission and its finish, or the end; `waiting_s` is
    missing where that came before the submission; all are missing for jobs that were left out or refused.
    """
    jobs = history(folder, JOBS)
    _require(folder, ALLOCATIONS)
    jobs["waiting_s"], jobs["longest_wait_s"], jobs["run_s"] = _waits_s(
        jobs, folder, end_ns
    )
    return jobs.set_index("name")


def usually_idle(steps: pd.DataFrame) -> int:
    """Units that are idle for at least half of the time of a run whose decisions are `steps`."""
    seconds = np.diff(_instants(steps["time"]))
    idle = steps["idle"].to_numpy(dtype=np.int64)[:-1]
    order = np.argsort(-idle, kind="stable")
    reached = np.cumsum(seconds[order])
    if not len(reached) or not reached[-1]:
        return 0
    return int(idle[order][np.searchsorted(reached, reached[-1] / 2)])


def losses(jobs: pd.DataFrame) -> pd.Series[float]:
    """Samples that each job lost, for any reason."""
    lost: pd.Series[float] = jobs[
        [name for name in jobs if str(name).startswith("lost_to_")]
    ].sum(axis=1)
    return lost


@dataclass(frozen=True, slots=True)
class _Waits:
    """The time without units of each job, as pieces of its holdings come in order of their starts; ns, one per job.

    `reached` is until when a job has held some unit, or had not come; `started` is the start of its last piece.
    """

    until: NDArray[np.int64]
    reached: NDArray[np.int64]
    started: NDArray[np.int64]
    longest: NDArray[np.int64]
    total: NDArray[np.int64]

    @classmethod
    def of(cls, submit: NDArray[np.int64], until: NDArray[np.int64]) -> _Waits:
        """Before any piece has come."""
        never = np.full(len(submit), np.iinfo(np.int64).min)
        nothing = np.zeros_like(submit)
        return cls(until, submit.copy(), never, nothing, nothing.copy())

    def add(self, job: int, start: NDArray[np.int64], end: NDArray[np.int64]) -> None:
        """Add pieces of a job, none of which starts before those that have come; they may overlap."""
        reached = np.maximum.accumulate(np.append(self.reached[job], end))
        # With --compat lucid the profiler may come to a job that is done.
        gaps = np.maximum(np.minimum(start, self.until[job]) - reached[:-1], 0)
        self.longest[job] = max(self.longest[job], gaps.max())
        self.total[job] += gaps.sum()
        self.started[job], self.reached[job] = start[-1], reached[-1]


def _held(jobs: pd.DataFrame, folder: Path, waits: _Waits) -> None:
    """Add all pieces of a run's allocations, of which a block at a time is in memory."""
    codes = {name: code for code, name in enumerate(jobs["name"])}
    for frame in read_part_in_blocks(folder, ALLOCATIONS):
        job = job_numbers(frame, lambda name: codes.get(name, -1))
        if (job < 0).any():
            what = f"damaged: it names a job that {JOBS} lacks"
            raise InputError(what, file=folder / ALLOCATIONS, hint=HINT)
        start, end = _instants(frame["start"]), _instants(frame["end"])
        order = np.lexsort((start, job))
        begins = np.flatnonzero(np.diff(job[order], prepend=-1))
        for rows in np.split(order, begins)[1:]:
            number = int(job[rows[0]])
            if start[rows[0]] < waits.started[number]:
                what = "damaged: its rows are not in order of job and start"
                raise InputError(what, file=folder / ALLOCATIONS, hint=HINT)
            waits.add(number, start[rows], end[rows])


def _waits_s(
    jobs: pd.DataFrame, folder: Path, end_ns: int
) -> tuple[Array, Array, Array]:
    """Return each job's seconds without units until its finish or the end, the longest stretch, and those with."""
    ended = (
        jobs["finish"].fillna(jobs["cancelled"])
        if "cancelled" in jobs
        else jobs["finish"]
    )
    until = np.where(ended.isna(), end_ns, _instants(ended))
    submit = _instants(jobs["submit"])
    waits = _Waits.of(submit, until)
    _held(jobs, folder, waits)
    longest, total, reached = waits.longest, waits.total, waits.reached
    last = np.maximum(until - reached, 0)
    total_s = np.where(submit <= until, (total + last) / SECOND_NS, np.nan)
    run_s = (until - submit) / SECOND_NS - total_s
    longest_s = np.maximum(longest, last) / SECOND_NS
    if "left_out" in jobs:
        for seconds in (total_s, longest_s, run_s):
            seconds[jobs["left_out"]] = np.nan
    return total_s, longest_s, run_s


def _instants(column: pd.Series[Any]) -> NDArray[np.int64]:
    moments = (
        column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("datetime64[ns]")
    )
    instants: NDArray[np.int64] = moments.astype(np.int64)
    return instants


SPLITS = {"vc": "vc", "user": "user", "model": "model", "size": "units_asked"}
# With more sizes than this, sizes are grouped by powers of two.
MAX_SIZES = 8
NONE = "(none)"


@dataclass(frozen=True, slots=True)
class Split:
    """The grouping of jobs in a comparison: by `vc`, `user`, `model`, `size`, or sizes up to bounds (`size:8,64`)."""

    by: str
    bounds: tuple[int, ...] = ()

    @classmethod
    def read(cls, text: str) -> Split:
        """Read a split as users write it for --split.

        Raises
        ------
        InputError
            When it is none of these, or its bounds do not rise.

        Examples
        --------
        >>> [Split.read("size:8,64").group(size) for size in (8, 9, 100)]
        ['up to 8', '9-64', 'over 64']
        """
        by, colon, bounds = text.partition(":")
        numbers = (
            [int(part) if part.strip().isdecimal() else 0 for part in bounds.split(",")]
            if colon
            else []
        )
        rising = all(low < high for low, high in pairwise([0, *numbers]))
        if by not in SPLITS or (colon and by != "size") or not rising:
            raise InputError(
                f"--split: expected one of {', '.join(SPLITS)}, or sizes such as size:8,64, not {text!r}"
            )
        return cls(by, tuple(numbers))

    def group(self, value: Any, *, coarse: bool = False) -> str:
        """The name of the group of a job; `coarse` puts sizes together by powers of two."""
        if value is None or value != value or value == "":
            return NONE
        if not self.bounds:
            return _bin(int(value)) if coarse else str(value)
        above = sum(int(value) > bound for bound in self.bounds)
        if above == len(self.bounds):
            return f"over {self.bounds[-1]}"
        low, high = self.bounds[above - 1] + 1 if above else 0, self.bounds[above]
        return f"{low}-{high}" if above else f"up to {high}"


def by_group(
    variants: Mapping[str, Sequence[pd.DataFrame]], split: str
) -> pd.DataFrame:
    """Return a table with one row per variant and group, over the jobs of all its runs (`run_tables.jobs_of`).

    Raises
    ------
    InputError
        When no job states what is asked for, or `split` is nothing that a comparison is broken down by.
    """
    chosen = Split.read(split)
    column = SPLITS[chosen.by]
    whole = pd.concat([table for each in variants.values() for table in each])
    if whole[column].map(chosen.group).eq(NONE).all():
        raise InputError(f"--split {split}: no job states it")
    coarse = chosen.by == "size" and whole[column].nunique() > MAX_SIZES
    name = {
        value: chosen.group(value, coarse=coarse)
        for value in sorted(whole[column].dropna().unique())
    }
    names = dict.fromkeys(
        [*name.values(), *([NONE] if whole[column].isna().any() else [])]
    )
    rows = []
    for label, runs in variants.items():
        together = pd.concat(list(runs))
        groups = together[column].map(name).fillna(NONE)
        for group in names:
            rows.append(
                {
                    "variant": label,
                    chosen.by: group,
                    **_columns(together[groups == group], len(runs)),
                }
            )
    return pd.DataFrame(rows)


def _bin(size: int) -> str:
    """The power of two that stands for a size: sizes 5 to 8 are one group."""
    top = 1 << max(size - 1, 0).bit_length()
    return str(top) if top <= 2 else f"{top // 2 + 1}-{top}"


def _columns(jobs: pd.DataFrame, runs: int) -> dict[str, Any]:
    started, finished = jobs[jobs["start"].notna()], jobs[jobs["finish"].notna()]
    return {
        "jobs": len(jobs) // runs,
        "jobs_finished": len(finished) / runs,
        "outcome": float(jobs["work"].sum()) / runs,
        "losses": float(losses(jobs).sum()) / runs,
        "jct_mean_s": _of(finished["jct_s"], np.mean),
        "jct_p95_s": _of(finished["jct_s"], _p95),
        "queueing_mean_s": _of(started["queueing_s"], np.mean),
        "queueing_p95_s": _of(started["queueing_s"], _p95),
        "waiting_mean_s": _of(jobs["waiting_s"].dropna(), np.mean),
        "waiting_p999_s": _of(jobs["waiting_s"].dropna(), p999),
        "restarts_per_job": _of(started["restarts"], np.mean),
        "longest_wait_s": _of(jobs["longest_wait_s"].dropna(), np.max),
        "unit_hours": float(jobs["unit_seconds"].sum()) / 3600 / runs,
    }


def _p95(values: Any) -> Any:
    return np.percentile(values, 95)


def p999(values: Any) -> Any:
    """The value that one in a thousand exceeds."""
    return np.percentile(values, 99.9)


def _of(column: pd.Series[Any], function: Any) -> float | None:
    values = column.to_numpy(dtype=np.float64)
    return float(function(values)) if len(values) else None
