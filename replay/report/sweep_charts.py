"""Charts of a sweep: figures over the options that it varied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bft.models import InputError, read_table
from bft.replay.options.options import Options
from bft.replay.report.chart import Axis, Chart, Curve, Curves, Heat
from bft.replay.report.host_charts import front
from bft.replay.report.job_charts import label

if TYPE_CHECKING:
    import pandas as pd

# Figures that a page shows of a sweep, if present: column -> title, unit, and divisor.
FIGURES = {
    "outcome": ("Outcome", "10⁹ samples", 1e9),
    "U": ("U", "outcome over that of eq-nodes", 1.0),
    "share_of_bound": ("Share of the bound", "share", 1.0),
    "jct_s.mean": ("Mean completion time", "hours", 3600.0),
    "queueing_s.mean": ("Mean queueing time", "hours", 3600.0),
    "preemption_cost": ("Lost to preemption", "10⁹ samples", 1e9),
    "rescale_cost": ("Lost to rescaling", "10⁹ samples", 1e9),
    "host.delayed_share": ("Host starts that wait", "share", 1.0),
    "host.waiting_node_h": ("What host jobs wait", "node-hours", 1.0),
}
MORE_IS_BETTER = ("outcome", "U", "share_of_bound")
# Usual subjects of a sweep come first: across, then down.
FIRST = ("tfwd_s", "max_jobs")
NAMES = {"tfwd_s": "Tfwd", "max_jobs": "maxJ"}
TITLES = {
    "tfwd_s": "Tfwd, s",
    "max_jobs": "maxJ (0: no limit)",
    "reserve": "nodes kept free",
}


def is_sweep(paths: Sequence[Path]) -> bool:
    """Whether the path is the table of a sweep rather than runs."""
    return len(paths) == 1 and paths[0].suffix == ".parquet" and paths[0].is_file()


def read_sweep(path: Path) -> pd.DataFrame:
    """The replayed points of a sweep: one row each, with every option and figure as a column.

    Raises
    ------
    InputError
        When the file is not a table of a sweep, or none of its options varies.
    """
    table = read_table(path)
    if "outcome" not in table or not set(FIRST) & set(table.columns):
        is_trace = {"time", "node", "idle"} <= set(table.columns)
        hint = (
            f"it is a node trace: bft-replay trace info {path} --html FILE charts it"
            if is_trace
            else None
        )
        what = "is neither a run directory nor a table of a sweep, which has the columns outcome, tfwd_s and max_jobs"
        raise InputError(what, file=path, hint=hint)
    done = table[table["outcome"].notna()]
    if not varied(done):
        raise InputError(
            "expected points that differ in an option, such as tfwd_s", file=path
        )
    return done


def varied(table: pd.DataFrame) -> list[str]:
    """The options with several values, without the seed: figures are averaged over seeds."""
    options = [name for name in Options().flat() if name in table and name != "seed"]
    several = [name for name in options if table[name].map(str).nunique() > 1]
    return sorted(
        several, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)
    )


def charts_of_sweep(table: pd.DataFrame) -> list[Chart]:
    """Chart each figure over the first two varied options, as a heat map; over a single option, as a curve."""
    axes = varied(table)[:2]
    charts = [
        _chart(table, column, axes)
        for column in FIGURES
        if column in table and table[column].notna().any()
    ]
    reserves = front(table)
    return charts if reserves is None else [reserves, *charts]


def _chart(table: pd.DataFrame, column: str, options: list[str]) -> Chart:
    title, unit, size = FIGURES[column]
    means = table.assign(figure=table[column] / size).groupby(
        options, dropna=False, sort=True
    )["figure"]
    found = means.agg(["mean", "min", "max", "count"]).reset_index()
    order = found["mean"].to_numpy(dtype=np.float64) * (
        1 if column in MORE_IS_BETTER else -1
    )
    best = found.iloc[int(np.nanargmax(order))]
    at = ", ".join(
        f"{NAMES.get(option, option)} {_name(best[option])}" for option in options
    )
    several = (
        " Means over what else varies; the table has their range."
        if found["count"].max() > 1
        else ""
    )
    note = f"Best: {best['mean']:.4g} {unit} at {at}.{several}"
    names = [Axis(TITLES.get(option, option)) for option in options]
    key, value = f"sweep-{column.replace('.', '-').lower()}", Axis(unit)
    if len(options) == 1 and np.issubdtype(
        np.asarray(found[options[0]]).dtype, np.number
    ):
        curve = Curve(
            title,
            found[options[0]].to_numpy(dtype=np.float64),
            found["mean"].to_numpy(dtype=np.float64),
        )
        return Chart(
            key, title, note, Curves(names[0], value, (curve,)), found.round(4)
        )
    across = found[options[0]].unique()
    down = found[options[1]].unique() if len(options) > 1 else [""]
    cells = np.full((len(down), len(across)), np.nan)
    for row in found.to_dict(orient="records"):
        second = list(down).index(row[options[1]]) if len(options) > 1 else 0
        cells[second, list(across).index(row[options[0]])] = row["mean"]
    y = names[1] if len(options) > 1 else Axis("")
    heat = Heat(
        names[0], y, value, tuple(map(_name, across)), tuple(map(_name, down)), cells
    )
    return Chart(key, title, note, heat, found.round(4))


def _name(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float | np.number) else label(value)
