"""Charts over time: idle and used units, work done, losses; what decisions took; what came against predictions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.replay.engine.ledger import BOOKS
from bft.replay.report.chart import (
    Axis,
    Chart,
    Curve,
    Curves,
    FloatArray,
    in_powers,
    stepped,
)
from bft.replay.report.over_time import (
    TimeArray,
    held_over_time,
    mean_over_time,
    round_spans,
)
from bft.replay.report.run_files import RunFiles, ns
from bft.replay.results.run_directory import TIMING
from bft.replay.results.run_reading import HINT

# Parts of the window of which means are shown: zooming in four times still shows one a pixel.
SPANS = 2000
# Losses come in single events: fewer parts, so that there is something in each.
COARSE = 250
TIME = Axis("time, UTC", "time")


def idle_and_used(run: RunFiles) -> Chart:
    """Idle units over time, and the part of them given to jobs."""
    spans, length = round_spans(run.begin_ns, run.end_ns, SPANS)
    edges = spans / 1e6
    means = {"idle": _idle(run, spans), "given to jobs": _used(run, spans)}
    curves = tuple(
        Curve(name, *stepped(edges, heights), filled=True)
        for name, heights in means.items()
    )
    idle, given = ((heights * np.diff(edges)).sum() for heights in means.values())
    mean, share = idle / (edges[-1] - edges[0]), given / idle if idle else 0.0
    metrics = run.summary["metrics"]
    if metrics.get("used_share") is not None and metrics.get("duration_s"):
        # Steps have idle units as of the latest decision, and none is made while no job is there.
        with run.summary_used():
            mean = metrics["resource_integral_unit_s"] / metrics["duration_s"]
            share = float(metrics["used_share"])
    note = f"On average {mean:,.1f} units were idle, at most {means['idle'].max():,.0f}, and {share:.1%} of their time "
    note += f"was given to jobs. Means over {length}; grey was idle and not given, as of the latest decision."
    table = pd.DataFrame(
        {
            "from": stamps(edges[:-1]),
            **{name: heights.round(2) for name, heights in means.items()},
        }
    )
    return Chart(
        "idle",
        "Idle and used units over time",
        note,
        Curves(TIME, Axis("units"), curves),
        table,
    )


def work_done(run: RunFiles) -> Chart:
    """Samples done by each instant, costs deducted."""
    steps = run.steps.sort_values("time", kind="stable")
    bins, _ = _bins(run, SPANS)
    done = np.cumsum(
        np.histogram(_ms(steps["time"]), bins, weights=steps["progress"])[0]
    )
    with run.summary_used():
        bound = run.summary["metrics"].get("bound")
        limits = {} if bound is None else {"upper bound": float(bound)}
    axis, power = in_powers("samples", done)
    curve = Curve("done", bins[1:], done / power)
    table = pd.DataFrame({"until": stamps(bins[1:]), "samples done": done.round(0)})
    note = "All costs are deducted; where they exceed what was done, the line falls."
    return Chart(
        "work",
        "Work done",
        note,
        Curves(
            TIME, axis, (curve,), {name: most / power for name, most in limits.items()}
        ),
        table,
    )


def losses(run: RunFiles) -> Chart | None:
    """Chart the losses by hour to preemptions, rescales and the other books; None where nothing was lost."""
    bins, length = _bins(run, COARSE)
    hours = np.diff(bins) / 3.6e6
    lost = {}
    for book in BOOKS:
        by_part = (
            np.histogram(
                _ms(run.steps["time"]), bins, weights=run.steps[f"{book}_cost"]
            )[0]
            / hours
        )
        if by_part.any():
            lost[book] = by_part
    if not lost:
        return None
    axis, power = in_powers("samples an hour", *lost.values())
    curves = tuple(
        Curve(f"by {book}", *stepped(bins, rate / power)) for book, rate in lost.items()
    )
    table = pd.DataFrame(
        {
            "from": stamps(bins[:-1]),
            **{f"by {book}": rate.round(0) for book, rate in lost.items()},
        }
    )
    note = f"Samples lost, as a rate over {length}: where the machine took nodes back, and where jobs "
    note += "paid for other sizes."
    return Chart("losses", "Losses over time", note, Curves(TIME, axis, curves), table)


def decisions(run: RunFiles) -> Chart | None:
    """Chart each decision's objective beside the solver's bound; None where all are optimal, or no bound is stated."""
    steps = run.steps
    if not {"objective", "bound", "status"} <= set(steps.columns):
        return None
    solved = steps[steps["bound"].notna() & steps["objective"].notna()]
    optimal = int((solved["status"] == "optimal").sum())
    if optimal == len(solved):
        return None
    bins, length = _bins(run, COARSE)
    instants = _ms(solved["time"])
    count = np.histogram(instants, bins)[0]
    held = count > 0
    means = {
        name: np.histogram(instants, bins, weights=solved[column])[0][held]
        / count[held]
        for name, column in (
            ("bound of the solver", "bound"),
            ("decision taken", "objective"),
        )
    }
    middles = ((bins[:-1] + bins[1:]) / 2)[held]
    axis, power = in_powers("samples within Tfwd", *means.values())
    curves = tuple(Curve(name, middles, mean / power) for name, mean in means.items())
    note = f"{optimal:,} of {len(solved):,} decisions were proven optimal: there the two lines are one. Means over "
    note += f"{length} of what a decision promised for its window Tfwd."
    table = pd.DataFrame(
        {"around": stamps(middles), "decisions": count[held], **means}
    ).round(0)
    return Chart(
        "decisions",
        "What each decision was worth",
        note,
        Curves(TIME, axis, curves),
        table,
    )


def _idle(run: RunFiles, edges: TimeArray) -> FloatArray:
    """Mean idle units over spans, of all pools together: a row is about its own pool only."""
    total = np.zeros(len(edges) - 1)
    for pool in run.pools():
        heights = pool["idle"].to_numpy(dtype=np.float64)
        total += mean_over_time(ns(pool["time"]), heights, edges)
    return total


def _used(run: RunFiles, edges: TimeArray) -> FloatArray:
    """Mean units in use over spans, of all pools together."""
    counted = [
        (ns(pool["time"]), pool["used"].to_numpy(dtype=np.float64))
        for pool in run.pools()
    ]
    times, used = held_over_time(counted, run.held.instants, run.held.change)
    return mean_over_time(times, used, edges)


def _ms(times: pd.Series) -> FloatArray:
    instants: FloatArray = ns(times) / 1e6
    return instants


def _bins(run: RunFiles, spans: int) -> tuple[FloatArray, str]:
    """Return edges of round spans in ms, so that none of the rows lies outside, and their length in words."""
    edges, length = round_spans(run.begin_ns, run.end_ns, spans)
    bins: FloatArray = edges / 1e6
    bins[-1] = np.nextafter(bins[-1], np.inf)
    return bins, length


def stamps(instants_ms: FloatArray) -> pd.Series:
    """Instants for a table."""
    return pd.Series(
        pd.to_datetime(instants_ms.round().astype("int64"), unit="ms", utc=True)
    ).dt.strftime("%Y-%m-%d %H:%M:%S")


def solve_times(run: RunFiles) -> Chart | None:
    """Distribution of the policy's time per decision; None if it is not known."""
    try:
        quantiles = run.decision_s.get("quantiles", {})
        shares = np.array([float(share) for share in quantiles])
        seconds = np.array([float(value) for value in quantiles.values()])
        if not len(shares):
            return None
        total, count = float(run.decision_s["sum"]), int(run.decision_s["count"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            "damaged: decision_s", file=run.folder / TIMING, hint=HINT
        ) from error
    order = np.argsort(shares)
    shares, seconds = shares[order], np.maximum(seconds[order], 1e-6)
    table = pd.DataFrame({"share of decisions": [f"{share:.1%}" for share in shares],
                          "milliseconds": (seconds * 1000).round(3)})  # fmt: skip
    note = f"{count:,} decisions took {total:,.1f} s of wall-clock time on the machine that replayed: "
    note += (
        "the only figures on this page that another replay of the same input changes."
    )
    curve = Curve("decisions", seconds * 1000, shares)
    axes = Axis("milliseconds", "log"), Axis("share of decisions", "share")
    return Chart(
        "solving", "What a decision takes", note, Curves(*axes, (curve,)), table
    )


def forecast_chart(
    ms: FloatArray, counts: Mapping[str, FloatArray], what: str
) -> Chart:
    """Counts over time.

    Parameters
    ----------
    ms
        Instants, ms since 1970: float64 of shape (slots,).
    counts
        What is drawn, by name, the first one as an area: float64 of shape (slots,).
    what
        Label of the axis of counts.
    """
    curves = tuple(
        Curve(name, ms, values, filled=number == 0)
        for number, (name, values) in enumerate(counts.items())
    )
    table = pd.DataFrame({"time": stamps(ms), **counts})
    return Chart(
        "forecast",
        "What came, and what was predicted",
        "",
        Curves(TIME, Axis(what), curves),
        table,
    )
