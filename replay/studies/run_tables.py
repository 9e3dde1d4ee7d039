"""Tables that a comparison reads from run directories: work per day, and results per job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.results.run_directory import ALLOCATIONS, JOBS, STEPS
from bft.replay.results.run_reading import HINT, read_part
from bft.replay.trace.node_trace import SECOND_NS

if TYPE_CHECKING:
    import pandas as pd

DAY_NS = 86_400 * SECOND_NS
# Up to so many jobs each is of interest by its name.
FEW_JOBS = 20
Array = NDArray[np.float64]


def work_by_day(folder: Path, start_ns: int, days: int) -> Array:
    """Samples done on each day after `start_ns`; work between two decisions is spread evenly.

    Returns
    -------
    array
        Of shape (days,).
    """
    steps = _frame(folder, STEPS)
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
    jobs, held = _frame(folder, JOBS), _frame(folder, ALLOCATIONS)
    if not held["job"].isin(jobs["name"]).all():
        what = f"damaged: it names a job that {JOBS} lacks"
        raise InputError(what, file=folder / ALLOCATIONS, hint=HINT)
    jobs["waiting_s"], jobs["longest_wait_s"], jobs["run_s"] = _waits_s(
        jobs, held, end_ns
    )
    return jobs.set_index("name")


def usually_idle(folder: Path) -> int:
    """Units that are idle for at least half of the time of a run."""
    steps = _frame(folder, STEPS)
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


def _frame(folder: Path, name: str) -> pd.DataFrame:
    if not (folder / name).exists():
        raise InputError(
            f"has no {name}: only its summary was kept, or it was replayed with --compat reference",
            file=folder,
        )
    return read_part(folder, name)
