"""Charts of several runs: runs side by side, the variants of a comparison and their groups of jobs, a sweep's grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError, read_table
from bft.replay.options.naming import names_of_runs
from bft.replay.options.options import Options
from bft.replay.report.chart import (
    Axis,
    Bars,
    Chart,
    Curve,
    Curves,
    Heat,
    in_powers,
    stepped,
)
from bft.replay.report.job_charts import (
    TIME,
    cumulative,
    label,
    mean_in_pools,
    quantiles,
    stamps,
)
from bft.replay.report.over_time import round_spans
from bft.replay.report.run_files import RunFiles
from bft.replay.results.figures import FIGURES

SPANS = 1000
# Column of the jobs -> key and title of the chart, of whom it is, and what to mind.
DISTRIBUTIONS = {
    "jct_s": (
        "compared-times",
        "Completion times",
        "share of all submitted jobs",
        "Where a curve ends, so many of the submitted jobs were done.",
    ),
    "queueing_s": (
        "compared-queueing",
        "Queueing times",
        "share of all submitted jobs",
        "From submission to first units. Where a curve ends, so many of the submitted jobs were started.",
    ),
}


def names_of(runs: Sequence[RunFiles]) -> list[str]:
    """Names of the runs: the options in which they differ, or their folders; numbered where names repeat."""
    for run in runs:
        with run.summary_used():
            dict(run.summary["options"])
    folders = [Path(run.name) for run in runs]
    names = [label(name) for name in names_of_runs(folders, [r.summary for r in runs])]
    return [
        f"{name} ({number})" if names.count(name) > 1 else name
        for number, name in enumerate(names, start=1)
    ]


def headline(runs: Sequence[RunFiles]) -> str:
    """Say which run trained most and by how much; or where all trained as much, under which jobs took least time."""
    outcomes = _metric(runs, "outcome").sort_values(ascending=False, kind="stable")
    best, next_best = outcomes.index[:2]
    most, second = outcomes.iloc[:2]
    if most > second:
        more = f"{most / second - 1:.1%} more" if second else "more"
        others = f", the next of {len(runs)} runs" if len(runs) > 2 else ""
        return f"{best} trained most: {most:,.0f} samples, {more} than {next_best}{others}."
    if most > outcomes.iloc[-1]:
        return f"{best} and {next_best} trained most, {most:,.0f} samples each."
    times = _metric(runs, "jct_s.mean").dropna().sort_values(kind="stable") / 3600
    if times.empty:
        return "All runs trained as much."
    return (
        f"All runs trained as much; jobs took least time under {times.index[0]}: {times.iloc[0]:,.4g} h in the mean, "
        f"against {times.iloc[-1]:,.4g} h under {times.index[-1]}."
    )


def _metric(runs: Sequence[RunFiles], path: str) -> pd.Series:
    """A figure of each run, by its name."""
    values = []
    for run in runs:
        with run.summary_used():
            values.append(FIGURES[path].of(run.summary["metrics"]))
    return pd.Series(values, index=names_of(runs), dtype=np.float64)


def figures(runs: Sequence[RunFiles]) -> pd.DataFrame:
    """Return a table of figures: one row per run, one column per figure that any run has."""
    rows = []
    for run in runs:
        with run.summary_used():
            metrics = run.summary["metrics"]
            row: dict[str, Any] = {"policy": label(run.summary["options"]["policy"])}
            for figure in FIGURES.values():
                value = figure.of(metrics)
                row[figure.heading] = (
                    np.nan if value is None else round(value / figure.size, 4)
                )
        rows.append(row)
    table = pd.DataFrame(rows)
    table.insert(0, "run", names_of(runs))
    return table.dropna(axis="columns", how="all")


def compared(runs: Sequence[RunFiles]) -> list[Chart]:
    """Charts of several runs."""
    jobs = dict(zip(names_of(runs), (run.jobs for run in runs), strict=True))
    charts = (
        _outcomes(runs),
        _used(runs),
        *(distribution(jobs, column) for column in DISTRIBUTIONS),
    )
    return [chart for chart in charts if chart is not None]


def _outcomes(runs: Sequence[RunFiles]) -> Chart:
    table = figures(runs)
    outcome = table["outcome, 10⁹ samples"].to_numpy(dtype=np.float64)
    series = {"outcome": outcome}
    best = table["run"].iloc[int(np.argmax(outcome))]
    note = f"{best} did the most work. The table behind the chart has all figures side by side."
    drawing = Bars(tuple(table["run"]), Axis("10⁹ samples"), series)
    return Chart(
        "compared",
        "Outcome by run",
        note,
        drawing,
        table.set_index("run").T.reset_index(names="figure"),
    )


def _used(runs: Sequence[RunFiles]) -> Chart:
    curves, rows = [], []
    for name, run in zip(names_of(runs), runs, strict=True):
        # Each run over its own window: the traces may differ.
        spans, _ = round_spans(run.begin_ns, run.end_ns, SPANS)
        edges = spans / 1e6
        means = mean_in_pools(run, "used", spans)
        curves.append(Curve(name, *stepped(edges, means)))
        begin, end = stamps(edges[[0, -1]])
        rows.append(
            (
                name,
                begin,
                end,
                round(float(np.average(means, weights=np.diff(edges))), 2),
                round(float(means.max()), 2),
            )
        )
    table = pd.DataFrame(
        rows,
        columns=[
            "run",
            "from",
            "to",
            "mean units",
            "largest mean over a thousandth of it",
        ],
    )
    drawing = Curves(TIME, Axis("units"), tuple(curves))
    return Chart("compared-used", "Units given to jobs, by run", "", drawing, table)


def distribution(jobs: Mapping[str, pd.DataFrame], column: str) -> Chart | None:
    """Chart how long jobs took or waited (see `DISTRIBUTIONS`) in each run, by its name; None where none did."""
    key, title, share, note = DISTRIBUTIONS[column]
    curves = tuple(
        _of_all(name, table[column] / 3600)
        for name, table in jobs.items()
        if table[column].notna().any()
    )
    if not curves:
        return None
    axes = Axis("hours", "log"), Axis(share, "share")
    return Chart(
        key,
        f"{title} by run",
        note,
        Curves(*axes, curves),
        quantiles(curves, "h"),
    )


def _of_all(name: str, hours: pd.Series) -> Curve:
    """The share of all jobs, those without a time included, up to each time."""
    curve = cumulative(name, hours)
    return replace(curve, y=curve.y * hours.notna().mean())


# Figures that a page shows of a sweep, if present.
OF_SWEEPS = (
    "outcome", "U", "share_of_bound", "jct_s.mean", "queueing_s.mean", "preemption_cost", "rescale_cost",
    "host.delayed_share", "host.waiting_node_h",
)  # fmt: skip
# An option that changes the outcome by less than this share hardly matters.
HARDLY = 0.01
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
        for column in OF_SWEEPS
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
    figure = FIGURES[column]
    title = f"{figure.title[0].upper()}{figure.title[1:]}"
    means = table.assign(figure=table[column] / figure.size).groupby(
        options, dropna=False, sort=True
    )["figure"]
    found = means.agg(["mean", "min", "max", "count"]).reset_index()
    order = found["mean"].to_numpy(dtype=np.float64) * (1 if figure.more else -1)
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
    most = f"{best['mean']:.4g} {figure.unit}".strip()
    note = f"Best: {most} at {at}.{several}"
    names = [Axis(TITLES.get(option, option)) for option in options]
    key, value = (
        f"sweep-{column.replace('.', '-').lower()}",
        Axis(figure.unit or figure.title),
    )
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
        not figure.more,
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


# What knowing the starts ahead would give, with the host's jobs known: the node-hours of waiting that it moves to
# training, the price by which the harvest follows from all waiting, and the starts that would still wait.
KNOWN = (
    "host.announced.waiting_node_h",
    "host.break_even_price",
    "host.announced.delayed_share",
)


def front(table: pd.DataFrame) -> Chart | None:
    """Return starts that wait over the training given up, from a sweep over `reserve`; None for any other sweep."""
    columns = {"reserve", "host.delayed_share", "host.waiting_node_h"}
    if (
        not columns <= set(table)
        or table["reserve"].nunique() < 2
        or table["host.delayed_share"].isna().all()
    ):
        return None
    figures = [
        "outcome",
        "host.delayed_share",
        "host.waiting_node_h",
        *(name for name in KNOWN if name in table),
    ]
    means = table.groupby("reserve", sort=True)[figures].mean().reset_index()
    least = means.iloc[0]
    given_up = (1 - means["outcome"] / least["outcome"]).to_numpy(dtype=np.float64)
    waits = means["host.delayed_share"].to_numpy(dtype=np.float64)
    points = ", ".join(
        f"{row.reserve:g}: {wait:.0%} for {up:.1%}"
        for row, wait, up in zip(means.itertuples(), waits, given_up, strict=True)
    )
    note = f"Starts that wait, for the training given up against --reserve {least['reserve']:g}, "
    note += f"by nodes kept: {points}."
    curves = [Curve("nodes kept free", 100 * given_up, waits)]
    if set(KNOWN) <= set(table):
        spared, price, left = (float(least[column]) for column in KNOWN)
        given_back = spared / (price * least["host.waiting_node_h"]) if spared else 0.0
        known = "nothing kept, nodes given back for announced starts"
        curves.append(
            Curve(known, np.array([0.0, 100 * given_back]), np.array([waits[0], left]))
        )
    axes = Axis("training given up, %"), Axis("share of starts that wait", "share")
    shown = means.rename(
        columns={
            "host.delayed_share": "share that waits",
            "host.waiting_node_h": "node-hours waiting",
        }
    )
    shown = shown.assign(**{"training given up": given_up})
    return Chart(
        "front",
        "What sparing your own jobs costs training",
        note,
        Curves(*axes, tuple(curves)),
        shown.round(4),
    )
