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
from bft.replay.results.run_directory import ALLOCATIONS, JOBS
from bft.replay.results.run_reading import HINT, read_part
from bft.replay.trace.node_trace import SECOND_NS

DAY_NS = 86_400 * SECOND_NS
Array = NDArray[np.float64]


def history(folder: Path, name: str) -> pd.DataFrame:
    """Return the steps, jobs or allocations of a run, with its columns checked.

    Raises
    ------
    InputError
        When the run has no such file, or it is damaged.
    """
    if not (folder / name).exists():
        raise InputError(
            f"has no {name}: only its summary was kept, or it was replayed with --compat reference",
            file=folder,
        )
    return read_part(folder, name)


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
    jobs, held = history(folder, JOBS), history(folder, ALLOCATIONS)
    if not held["job"].isin(jobs["name"]).all():
        what = f"damaged: it names a job that {JOBS} lacks"
        raise InputError(what, file=folder / ALLOCATIONS, hint=HINT)
    jobs["waiting_s"], jobs["longest_wait_s"], jobs["run_s"] = _waits_s(
        jobs, held, end_ns
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


def _waits_s(
    jobs: pd.DataFrame, held: pd.DataFrame, end_ns: int
) -> tuple[Array, Array, Array]:
    """Return each job's seconds without units until its finish or the end, the longest stretch, and those with."""
    codes = {name: code for code, name in enumerate(jobs["name"])}
    job = held["job"].astype(str).map(codes).to_numpy(dtype=np.int64)
    start, end = _instants(held["start"]), _instants(held["end"])
    reached = _instants(
        jobs["submit"]
    )  # until when each job has held some unit, or had not come
    longest, total = np.zeros((2, len(jobs)), dtype=np.int64)
    ended = (
        jobs["finish"].fillna(jobs["cancelled"])
        if "cancelled" in jobs
        else jobs["finish"]
    )
    until = np.where(ended.isna(), end_ns, _instants(ended))
    for k in np.lexsort(
        (start, job)
    ):  # pieces of one job overlap: it holds several units
        # With --compat lucid the profiler may come to a job that is done.
        gap = max(min(start[k], until[job[k]]) - reached[job[k]], 0)
        longest[job[k]] = max(longest[job[k]], gap)
        total[job[k]] += gap
        reached[job[k]] = max(reached[job[k]], end[k])
    last = np.maximum(until - reached, 0)
    submit = _instants(jobs["submit"])
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
