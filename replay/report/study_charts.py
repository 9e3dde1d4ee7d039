"""Charts of several runs: the variants of a comparison and their groups of jobs, a sweep's grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError, read_table
from bft.replay.options.options import Options
from bft.replay.report.chart import (
    HOURS,
    Axis,
    Bars,
    Chart,
    Heat,
    cumulative,
    distribution,
    label,
)
from bft.replay.report.run_charts import host_chart
from bft.replay.results.figures import FIGURES, Figure
from bft.replay.studies.comparison import Comparison

# Means of a comparison that are drawn, over all jobs and by their groups.
MEANS = ("jct_s.mean", "without_units_s.mean")


def charts_of_comparison(comparison: Comparison) -> list[Chart]:
    """The charts of a comparison."""
    whole = comparison.whole
    names = tuple(map(label, whole["variant"]))
    outcome = {"outcome": whole["outcome"].to_numpy(np.float64)}
    means = {
        FIGURES[path].title: _hours(whole[path]) for path in MEANS if path in whole
    }
    hosts = {
        label(variant.label): variant.runs[0].metrics.get("host") or {}
        for variant in comparison.variants
    }
    drawing = Bars(names, Axis("samples"), outcome)
    charts: list[Chart | None] = [
        Chart("compared", "Outcome by variant", "", drawing, whole)
    ]
    if means:
        drawing = Bars(names, HOURS, means)
        charts.append(
            Chart("compared-means", "Mean times by variant", "", drawing, whole)
        )
    times = {name: jobs["jct_s"] / 3600 for name, jobs in comparison.jobs.items()}
    curves = [
        cumulative(label(name), hours, hours.notna().mean())
        for name, hours in times.items()
        if hours.notna().any()
    ]
    if curves:
        note = "Where a curve ends, so many of the submitted jobs were done."
        of, title = "share of all submitted jobs", "Completion times by variant"
        charts.append(distribution("compared-times", title, note, of, curves))
    charts.append(host_chart(hosts))
    if comparison.split is not None:
        charts += [_by_group(comparison.frame, path) for path in MEANS]
    return [chart for chart in charts if chart is not None]


def _by_group(groups: pd.DataFrame, path: str) -> Chart:
    """A mean of each group of jobs, a bar for each variant."""
    by = str(groups.columns[1])
    rows = groups.pivot(index=by, columns="variant", values=path)
    rows = rows.reindex(index=groups[by].unique(), columns=groups["variant"].unique())
    series = {label(name): _hours(rows[name]) for name in rows}
    key = f"compared-{path.split('_')[0]}-by-{by}"
    drawing = Bars(tuple(map(label, rows.index)), HOURS, series)
    return Chart(key, f"{FIGURES[path].title} by {by}", "", drawing, groups)


def _hours(seconds: pd.Series) -> np.ndarray:
    return seconds.astype(float).fillna(0.0).to_numpy() / 3600


# A figure that an option changes by less than this share of its worst value hardly depends on it.
HARDLY = 0.01
IN_SYSTEM = "jct_to_end_mean_s"
# Usual subjects of a sweep come first: across, then down.
FIRST = ("tfwd_s", "max_jobs")
NAMES = {"tfwd_s": "Tfwd", "max_jobs": "maxJ"}
# In what charts have a figure of this unit.
SCALES = {"s": (3600.0, "hours"), "samples": (1e9, "10⁹ samples")}
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
    return sorted(several, key=(*FIRST, *several).index)


def charts_of_sweep(table: pd.DataFrame) -> list[Chart]:
    """Chart each main figure over the first two varied options, as a heat map."""
    axes = varied(table)[:2]
    return [
        _chart(table, figure, axes)
        for figure in FIGURES.values()
        if figure.main and figure.path in table and table[figure.path].notna().any()
    ]


def answer(table: pd.DataFrame) -> str:
    """Say what each varied option does, the one that matters most first.

    To the outcome; or where that hardly depends on it, to the mean time of jobs in the system, where those that were
    not done count to the end.
    """
    effects = sorted((_effect(table, option) for option in varied(table)), reverse=True)
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

    def extremes(path: str) -> tuple[float, list[str], list[float]]:
        """How much more the largest mean is than the smallest, and the settings and means of both."""
        means = compared.groupby("value")[path].mean().sort_values()
        low, high = means.iloc[0], means.iloc[-1]
        settings = [_setting(table, option, value) for value in means.index[[-1, 0]]]
        return high / low - 1 if low > 0 else np.inf, settings, [high, low]

    gain, (best, worst), _ = extremes("outcome")
    if gain == np.inf:
        return gain, f"with {worst} nothing is trained"
    if gain >= HARDLY:
        return gain, f"{best}: {gain:+.1%} samples over {worst}"
    name = NAMES.get(option, option)
    if IN_SYSTEM not in table:
        return gain, f"{name} hardly matters (at most {gain:.1%} of the outcome)"
    longer, (slow, fast), times = extremes(IN_SYSTEM)
    if longer < HARDLY:
        return (
            max(gain, longer),
            f"{name} hardly matters (at most {max(gain, longer):.1%} of outcome and times)",
        )
    long, short = map(FIGURES[IN_SYSTEM].text, times)
    return (
        longer,
        f"{fast}: as much is trained, but jobs take {short} on average, not {long} as with {slow}",
    )


def _setting(table: pd.DataFrame, option: str, told: str) -> str:
    """Name a value of an option, which `told` writes as text."""
    value = next(value for value in table[option] if str(value) == told)
    if _unlimited(option, value):
        return "all jobs in play"
    return f"{NAMES.get(option, option)} {_value(option, value)}"


def _chart(table: pd.DataFrame, figure: Figure, options: list[str]) -> Chart:
    size, unit = SCALES.get(figure.unit, (1.0, figure.unit))
    title = f"{figure.title[0].upper()}{figure.title[1:]}"
    means = table.assign(figure=table[figure.path] / size).groupby(
        options, dropna=False, sort=True
    )["figure"]
    found = means.agg(["mean", "min", "max", "count"]).reset_index()
    order = found["mean"] if figure.more else -found["mean"]
    best = found.iloc[int(np.nanargmax(order))]
    at = ", ".join(
        f"{NAMES.get(option, option)} {_value(option, best[option])}"
        for option in options
    )
    note = f"Best: {figure.text(best['mean'] * size)} {'' if figure.unit in ('s', 'share') else figure.unit}".rstrip()
    note += f" at {at}."
    if found["count"].max() > 1:
        note += " Means over what else varies; the table has their range."
    key = f"sweep-{figure.path.replace('.', '-').lower()}"
    value = Axis(unit or figure.title, "share" if unit == "share" else "number")
    note += " The stronger a colour, the better."
    table = found.round(4)
    x, y = ([*options, " "])[:2]
    found[" "] = " "  # of a single option the only row
    across, down = _values(found, x), _values(found, y)
    cells = np.full((len(down), len(across)), np.nan)
    for row, column, mean in zip(found[y], found[x], found["mean"], strict=True):
        cells[down.index(row), across.index(column)] = mean
    heat = Heat(
        Axis(TITLES.get(x, x)),
        Axis(TITLES.get(y, y)),
        value,
        tuple(_value(x, each) for each in across),
        tuple(_value(y, each) for each in down),
        cells,
        not figure.more,
    )
    return Chart(key, title, note, heat, table)


def _values(found: pd.DataFrame, option: str) -> list[Any]:
    """The values of an option, ascending; one that means no limit comes last."""
    values = found[option].unique().tolist()
    return sorted(values, key=lambda value: _unlimited(option, value))


def _unlimited(option: str, value: object) -> bool:
    return option == "max_jobs" and value == 0


def _value(option: str, value: object) -> str:
    if _unlimited(option, value):
        return "no limit"
    return f"{value:g}" if isinstance(value, int | float | np.number) else label(value)
