"""Charts of studies: the variants of a comparison, groups of jobs under each, and the grid of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError, read_table
from bft.replay.options.options import Options
from bft.replay.report.chart import Axis, Bars, Chart, Curve, Curves, Heat, in_powers
from bft.replay.report.job_charts import label
from bft.replay.report.node_charts import front
from bft.replay.report.run_comparison import DISTRIBUTIONS, distribution

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
# An option that changes the outcome by less than this share hardly matters.
HARDLY = 0.01
MORE_IS_BETTER = ("outcome", "U", "share_of_bound")
# Usual subjects of a sweep come first: across, then down.
FIRST = ("tfwd_s", "max_jobs")
NAMES = {"tfwd_s": "Tfwd", "max_jobs": "maxJ"}
TITLES = {
    "tfwd_s": "Tfwd, s",
    "max_jobs": "maxJ, jobs in play",
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


def answer(table: pd.DataFrame) -> str:
    """Say what each varied option does to the outcome, the one that matters most first."""
    effects = sorted(
        (_effect(table, option) for option in varied(table)),
        key=lambda effect: -effect[0],
    )
    sentence = "; ".join(text for _, text in effects)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _effect(table: pd.DataFrame, option: str) -> tuple[float, str]:
    """Return what an option's best value gives over its worst, as a share and in words.

    By means over points that differ in nothing else, of those with every value of the option.
    """
    others = [name for name in Options().flat() if name in table and name != option]
    told = table.assign(value=table[option].map(str))
    rest = [str(row) for row in told[others].itertuples(index=False, name=None)]
    whole = told.groupby(rest)["value"].transform("nunique") == told["value"].nunique()
    compared = told[whole] if whole.any() else told
    means = compared.groupby("value")["outcome"].mean()
    outcome = {str(value): float(mean) for value, mean in means.items()}
    best, worst = (
        max(outcome, key=outcome.__getitem__),
        min(outcome, key=outcome.__getitem__),
    )
    if outcome[worst] <= 0:
        return np.inf, f"with {_setting(table, option, worst)} nothing is trained"
    gain = outcome[best] / outcome[worst] - 1
    if gain < HARDLY:
        name = NAMES.get(option, option)
        return gain, f"{name} hardly matters (at most {gain:.1%} of the outcome)"
    settings = [_setting(table, option, value) for value in (best, worst)]
    return gain, f"{settings[0]}: {gain:+.1%} samples over {settings[1]}"


def _setting(table: pd.DataFrame, option: str, told: str) -> str:
    """Name a value of an option, which `told` writes as text."""
    value = next(value for value in table[option] if str(value) == told)
    if _unlimited(option, [value]):
        return "all jobs in play"
    return f"{NAMES.get(option, option)} {_value(option, value)}"


def _chart(table: pd.DataFrame, column: str, options: list[str]) -> Chart:
    title, unit, size = FIGURES[column]
    means = table.assign(figure=table[column] / size).groupby(
        options, dropna=False, sort=True
    )["figure"]
    found = means.agg(["mean", "min", "max", "count"]).reset_index()
    less_is_better = column not in MORE_IS_BETTER
    order = found["mean"].to_numpy(dtype=np.float64) * (-1 if less_is_better else 1)
    best = found.iloc[int(np.nanargmax(order))]
    at = ", ".join(
        f"{NAMES.get(option, option)} {_value(option, best[option])}"
        for option in options
    )
    several = (
        " Means over what else varies; the table has their range."
        if found["count"].max() > 1
        else ""
    )
    note = f"Best: {best['mean']:.4g} {unit} at {at}.{several}"
    names = [Axis(TITLES.get(option, option)) for option in options]
    key, value = f"sweep-{column.replace('.', '-').lower()}", Axis(unit)
    across, down = _values(found, options[0]), [""]
    if len(options) > 1:
        down = _values(found, options[1])
    is_numeric = np.issubdtype(np.asarray(found[options[0]]).dtype, np.number)
    if len(options) == 1 and is_numeric and not _unlimited(options[0], across):
        curve = Curve(
            title,
            found[options[0]].to_numpy(dtype=np.float64),
            found["mean"].to_numpy(dtype=np.float64),
        )
        return Chart(
            key, title, note, Curves(names[0], value, (curve,)), found.round(4)
        )
    note += " The stronger a colour, the better."
    cells = np.full((len(down), len(across)), np.nan)
    for row in found.to_dict(orient="records"):
        second = down.index(row[options[1]]) if len(options) > 1 else 0
        cells[second, across.index(row[options[0]])] = row["mean"]
    heat = Heat(
        names[0],
        names[1] if len(options) > 1 else Axis(""),
        value,
        tuple(_value(options[0], each) for each in across),
        tuple(_value(options[-1], each) for each in down),
        cells,
        less_is_better,
    )
    return Chart(key, title, note, heat, found.round(4))


def _values(found: pd.DataFrame, option: str) -> list[Any]:
    """The values of an option, ascending; one that means no limit comes last."""
    values = found[option].unique().tolist()
    return sorted(values, key=lambda value: _unlimited(option, [value]))


def _unlimited(option: str, values: Sequence[object]) -> bool:
    return option == "max_jobs" and 0 in values


def _value(option: str, value: object) -> str:
    if _unlimited(option, [value]):
        return "no limit"
    return f"{value:g}" if isinstance(value, int | float | np.number) else label(value)


HOURS = Axis("hours")
# Column of a table of a comparison -> what it is.
MEANS = {
    "jct_mean_s": "mean completion time",
    "waiting_mean_s": "mean time without units",
}


def charts_of_comparison(
    whole: pd.DataFrame,
    jobs: Mapping[str, pd.DataFrame],
    groups: pd.DataFrame | None = None,
) -> list[Chart]:
    """The charts of a comparison.

    Parameters
    ----------
    whole
        One row a variant: columns variant, outcome, jct_mean_s, waiting_mean_s.
    jobs
        What became of each job, by variant: columns jct_s, queueing_s.
    groups
        One row a variant and group: columns variant, the name of what it is broken down by, jobs and the means.
    """
    names = tuple(map(label, whole["variant"]))
    axis, power = in_powers("samples", whole["outcome"].to_numpy(dtype=np.float64))
    outcome = {"outcome": whole["outcome"].to_numpy(dtype=np.float64) / power}
    means = {what: _hours(whole[column]) for column, what in MEANS.items()}
    named = {label(name): table for name, table in jobs.items()}
    distributions = (distribution(named, column) for column in DISTRIBUTIONS)
    return [
        Chart("compared", "Outcome by variant", "", Bars(names, axis, outcome), whole),
        Chart(
            "compared-means",
            "Mean times by variant",
            "",
            Bars(names, HOURS, means),
            whole,
        ),
        *(chart for chart in distributions if chart is not None),
        *(() if groups is None else (_by_group(groups, column) for column in MEANS)),
    ]


def _by_group(groups: pd.DataFrame, column: str) -> Chart:
    """A mean of each group of jobs, a bar for each variant."""
    by = str(groups.columns[1])
    rows = groups.pivot(index=by, columns="variant", values=column)
    rows = rows.reindex(index=groups[by].unique(), columns=groups["variant"].unique())
    series = {label(name): _hours(rows[name]) for name in rows}
    key = f"compared-{column.split('_')[0]}-by-{by}"
    return Chart(
        key,
        f"{MEANS[column].capitalize()} by {by}",
        "",
        Bars(tuple(map(label, rows.index)), HOURS, series),
        groups,
    )


def _hours(seconds: pd.Series) -> np.ndarray:
    return seconds.astype(float).fillna(0.0).to_numpy() / 3600
