"""Charts of several runs: the variants of a comparison and their groups of jobs, a sweep's grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError, read_table
from bft.replay.options.naming import label_of
from bft.replay.options.options import FIELDS, Options
from bft.replay.report.chart import Axis, Bars, Chart, distribution, label
from bft.replay.report.run_charts import host_chart
from bft.replay.results.figures import FIGURES, Figure
from bft.replay.studies.comparison import Comparison

# Means of a comparison that are drawn, over all jobs and by their groups.
MEANS = ("jct_s.mean", "without_units_s.mean")


def charts_of_comparison(comparison: Comparison) -> list[Chart]:
    """The charts of a comparison."""
    whole, groups = comparison.whole, comparison.frame
    names = whole["variant"].map(label)
    by_variant = whole.set_index(names)
    means = by_variant[[path for path in MEANS if path in whole]] / 3600
    means = means.rename(columns=lambda path: FIGURES[path].title)
    charts = [
        _bars("compared", "Outcome by variant", "samples", by_variant[["outcome"]], whole),
        _bars("compared-means", "Mean times by variant", "mean hours", means, whole) if len(means.columns) else None,
        distribution(
            "compared-times",
            "Completion times by variant",
            "Where a curve ends, so many of the submitted jobs were done.",
            {
                label(variant.label): pd.concat([run.jobs["jct_s"] for run in variant.runs]) / 3600
                for variant in comparison.variants
            },
        ),
        host_chart({
            label(variant.label): variant.runs[0].metrics.get("host") or {}
            for variant in comparison.variants
        }),
    ]  # fmt: skip
    for path in MEANS if comparison.split is not None else ():
        by = str(groups.columns[1])
        hours = groups.pivot(index=by, columns="variant", values=path) / 3600
        hours = hours.reindex(index=groups[by].unique(), columns=whole["variant"])
        key, title = f"compared-{path.split('_')[0]}-by-{by}", FIGURES[path].title
        hours = hours.rename(index=label, columns=label)
        charts.append(_bars(key, f"{title} by {by}", "mean hours", hours, groups))
    return [chart for chart in charts if chart is not None]


def _bars(
    key: str,
    title: str,
    unit: str,
    values: pd.DataFrame,
    table: pd.DataFrame,
    note: str = "",
) -> Chart:
    """A bar for each row and column."""
    series = {
        str(name): values[name].fillna(0.0).to_numpy(np.float64) for name in values
    }
    axis = Axis(unit, "share" if unit == "share" else "number")
    return Chart(key, title, note, Bars(tuple(map(str, values.index)), axis, series), table)  # fmt: skip


# A figure that an option changes by less than this share of its worst value hardly depends on it.
HARDLY = 0.01
IN_SYSTEM = "jct_to_end_mean_s"
# Usual subjects of a sweep come first: down, then as series.
FIRST = ("tfwd_s", "max_jobs")


def read_sweep(path: Path) -> pd.DataFrame:
    """The replayed points of a sweep: one row each, with every option and figure as a column.

    Raises
    ------
    InputError
        When the file is not a table of a sweep, or none of its options varies.
    """
    table = read_table(path)
    if "outcome" not in table or not set(FIRST) & set(table.columns):
        what = "is neither a run directory nor a table of a sweep, which has the columns outcome, tfwd_s and max_jobs"
        raise InputError(what, file=path)
    done = table[table["outcome"].notna()]
    if not varied(done):
        what = "expected points that differ in an option, such as tfwd_s"
        raise InputError(what, file=path)
    return done


def varied(table: pd.DataFrame) -> list[str]:
    """The options with several values, without the seed: figures are averaged over seeds."""
    options = [name for name in Options().flat() if name in table and name != "seed"]
    several = [name for name in options if table[name].map(str).nunique() > 1]
    return sorted(several, key=(*FIRST, *several).index)


def charts_of_sweep(table: pd.DataFrame) -> list[Chart]:
    """Chart each main figure over the first two varied options: a bar for each pair of values."""
    axes = varied(table)[:2]
    return [
        _of_figure(table, figure, axes)
        for figure in FIGURES.values()
        if figure.main and figure.path in table and table[figure.path].notna().any()
    ]


def _of_figure(table: pd.DataFrame, figure: Figure, axes: Sequence[str]) -> Chart:
    """Chart the mean of a figure for each value, or pair of values, of the options `axes`."""
    ordered = table.sort_values(list(axes), kind="stable")
    named = [ordered[axis].map(partial(_setting, axis)) for axis in axes]
    if len(axes) == 1:  # the only series
        named.append(pd.Series(figure.title, ordered.index, name="figure"))
    found = ordered.groupby(named, sort=False)[figure.path].agg(["mean", "min", "max", "count"])  # fmt: skip
    means = found["mean"]
    best: Any = means.idxmax() if figure.more else means.idxmin()
    unit = "" if figure.unit in ("", "s", "share") else f" {figure.unit}"
    note = f"Best: {figure.text(means[best])}{unit} at {', '.join(best[: len(axes)])}."
    if found["count"].max() > 1:
        note += " Means over what else varies; the table has their range."
    down, across = (list(dict.fromkeys(each)) for each in named)
    grid = means.unstack(1).reindex(index=down, columns=across)
    written = figure.unit
    if figure.unit == "s":
        grid, written = grid / 3600, "mean hours"
    shown = found[["mean", "min", "max"]].map(figure.text).assign(count=found["count"])
    key = f"sweep-{figure.path.replace('.', '-').lower()}"
    title = f"{figure.heading[0].upper()}{figure.heading[1:]}"
    return _bars(key, title, written, grid, shown.reset_index(), note)


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
    name = FIELDS[option].title
    settings = table[option].map(partial(_setting, option))
    others = [each for each in (*varied(table), "seed") if each in table and each != option]  # fmt: skip
    rest = [table[each].map(str) for each in others]
    alike = settings.groupby(rest or (lambda _: 0)).transform("nunique")
    whole = alike == settings.nunique()
    compared = table[whole] if whole.any() else table

    def extremes(path: str) -> tuple[float, pd.Series]:
        """How much more the largest mean is than the smallest, and all means, ascending."""
        means = compared.groupby(settings)[path].mean().sort_values()
        low, high = means.iloc[[0, -1]]
        return high / low - 1 if low > 0 else np.inf, means

    gain, outcomes = extremes("outcome")
    worst, best = outcomes.index[[0, -1]]
    if gain == np.inf:
        return gain, f"with {worst} nothing is trained"
    if gain >= HARDLY:
        return gain, f"{best}: {gain:+.1%} samples over {worst}"
    if IN_SYSTEM not in table:
        return gain, f"{name} hardly matters (at most {gain:.1%} of the outcome)"
    longer, times = extremes(IN_SYSTEM)
    if longer < HARDLY:
        most = max(gain, longer)
        return most, f"{name} hardly matters (at most {most:.1%} of outcome and times)"
    fast, slow = times.index[[0, -1]]
    short, long = map(FIGURES[IN_SYSTEM].text, times.iloc[[0, -1]])
    text = f"{fast}: as much is trained, but jobs take {short} on average, not {long} as with {slow}"
    return longer, text


def _setting(option: str, value: object) -> str:
    return label(label_of({option: value}))
