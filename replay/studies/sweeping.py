"""Sweep: a grid over any options, on any processors; and which point is best."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

import pandas as pd

from bft.models import InputError
from bft.models.checks import did_you_mean
from bft.replay.options.naming import VARIANT
from bft.replay.options.options import FIELDS
from bft.replay.results.figures import FIGURES
from bft.replay.studies.carry_out import carry_out, given, local
from bft.replay.studies.study import Plan, Study


def sweep(
    plan: Plan,
    study: str | Path = "sweep-study",
    executor: Executor | None = None,
    *,
    workers: int | None = None,
    whole: bool = False,
) -> pd.DataFrame:
    """Replay the points of a plan that are not done yet.

    Parameters
    ----------
    plan
        The points: `Plan.of(options, grid, variants)`.
    study
        Folder of the runs.
    executor
        Workers: anything with the protocol of `concurrent.futures.Executor` whose workers see `study`.
    workers
        Without an executor: number of processes on this machine, by default one per processor; 0 means this process.
    whole
        Keep whole run directories, not only their summaries.

    Returns
    -------
    DataFrame
        One row per point: `index`, `key`, `status` (done, failed, missing), `error`, every option, every metric.
        results.parquet in `study` has the same content, and the same bytes on any workers.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> plan = Plan.of({"policy": "fifo", "dedicated": False}, {"checkpoint_interval_s": [0, 600]})
    >>> with TemporaryDirectory() as folder:
    ...     frame = sweep(plan, folder, workers=0)
    >>> frame["status"].tolist()
    ['done', 'done']
    """
    place = Study(Path(study))
    keys = place.write_plan(plan)
    who = (
        local(workers) if executor is None else given(executor, type(executor).__name__)
    )
    carry_out(place, plan, keys, who, whole=whole)
    return place.collect(plan, keys)


def best(
    frame: pd.DataFrame,
    varied: Sequence[str],
    metric: str = "U",
    by: Sequence[str] = (),
) -> pd.DataFrame:
    """Say which values are best, over all other options that vary.

    Parameters
    ----------
    frame, varied
        Results of a sweep, and the names of its varied options.
    metric
        The figure to compare (`bft.replay.results.figures`).
    by
        Options whose combinations of values are the rows; by default all varied options except seeds.

    Returns
    -------
    DataFrame
        Best first: the values; `points`; `mean`, `low` and `high` of the metric over them (the spread); `wins`, the
        number of settings of all other options in which no other row was better.

    Raises
    ------
    InputError
        When there is no such metric, or an option does not vary.

    Examples
    --------
    >>> import pandas as pd
    >>> results = {"status": ["done"] * 4, "tfwd_s": [10, 10, 60, 60], "seed": [0, 1, 0, 1], "U": [0.6, 0.7, 0.8, 0.7]}
    >>> best(pd.DataFrame(results), ["tfwd_s", "seed"])[["tfwd_s", "points", "mean", "wins"]].round(2).values.tolist()
    [[60.0, 2.0, 0.75, 2.0], [10.0, 2.0, 0.65, 1.0]]
    """
    done = frame[frame["status"] == "done"]
    known = [name for name in FIGURES if name in done and done[name].notna().any()]
    if metric not in known:
        why = f"no point has a {metric}"
        if metric not in FIGURES:
            why = f"no metric {metric!r}{did_you_mean(metric, known)}"
        raise InputError(f"--best: {why}; there are {', '.join(known)}")
    for name in by:
        if name not in varied:
            raise InputError(
                f"--by: the sweep does not vary {name!r}; it varies {', '.join(varied) or 'nothing'}"
            )
    chosen = list(by) or [name for name in varied if name != "seed"] or list(varied)
    if not chosen:
        raise InputError("the sweep has one point: nothing was varied")
    less = not FIGURES[metric].more
    others = [name for name in varied if name not in chosen]
    valued = done[done[metric].notna()]
    grouped = valued.groupby(chosen, sort=False, dropna=False)[metric]
    columns = {
        "points": grouped.count(),
        "mean": grouped.mean(),
        "low": grouped.min(),
        "high": grouped.max(),
    }
    table = pd.DataFrame(columns)
    table["wins"] = 0
    settings = (
        valued.groupby(others, sort=False, dropna=False) if others else [((), valued)]
    )
    for _, same in settings:
        values = same.groupby(chosen, sort=False, dropna=False)[metric].mean()
        table.loc[
            values.index[values == (values.min() if less else values.max())], "wins"
        ] += 1
    return table.sort_values("mean", ascending=less, kind="stable").reset_index()


def option_named(text: str, varied: Sequence[str]) -> str:
    """The flat name of an option, from its name on the command line or its flat name: `Tfwd`, `-maxJ`, `max_jobs`."""
    flags = {
        flag.lstrip("-").lower(): name
        for name, each in FIELDS.items()
        for flag in each.flags
    }
    known = {**flags, **{name.lower(): name for name in (*FIELDS, *varied, VARIANT)}}
    key = text.lstrip("-").lower()
    return known.get(key) or known.get(key.replace("-", "_")) or text
