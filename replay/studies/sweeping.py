"""Sweep: a grid over any options, on any processors; and which point is best."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from bft.models import InputError
from bft.models.checks import did_you_mean
from bft.replay.options.naming import VARIANT
from bft.replay.options.options import FIELDS
from bft.replay.results.figures import FIGURES


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
    table = valued.groupby(chosen, sort=False, dropna=False)[metric].agg(
        points="count", mean="mean", low="min", high="max"
    )
    by_all = valued.groupby([*chosen, *others], sort=False, dropna=False)[metric]
    means = by_all.mean().reset_index()
    alike = means.groupby(others or (lambda _: 0), dropna=False)[metric]
    means["won"] = means[metric] == alike.transform("min" if less else "max")
    wins = means.groupby(chosen, sort=False, dropna=False)["won"].sum()
    told = pd.DataFrame(table).assign(wins=wins.to_numpy()).reset_index()
    return told.sort_values("mean", ascending=less, kind="stable", ignore_index=True)


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
