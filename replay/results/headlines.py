"""The most important metrics of a run in words: what it achieved, cost, and lost, and the option that helps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from bft.models.writing import duration, three_digits
from bft.replay.engine.ledger import Outcome
from bft.replay.results.figures import FIGURES
from bft.replay.results.host import host_lines
from bft.replay.trace.trace_statistics import class_text, fragments

# Up to so many jobs each is of interest by its name.
FEW_JOBS = 20


def headlines(
    metrics: dict[str, Any], generated_load: float | None = None
) -> Iterator[tuple[str, str]]:
    """Yield label and text of the headline figures; pass `generated_load` where the jobs were generated."""
    outcome = metrics["outcome"]
    yield "training outcome", f"{outcome:,.0f} samples"
    if metrics.get("bound") is not None:
        of = (
            "at most"
            if metrics["share_of_bound"] is None
            else f"{metrics['share_of_bound']:.1%} of the bound,"
        )
        yield "bound", f"{of} {metrics['bound']:,.0f} samples"
    elif "bound" in metrics:
        yield "bound", metrics["bounds"]["why_none"]
    if metrics.get("U") is not None:
        nodes = three_digits(metrics["dedicated_nodes"])
        text = f"{metrics['U']:.1%} of what {nodes} dedicated node{'s' * (nodes != '1')} would have yielded"
        early = metrics["U_at"] != metrics["window_end"]
        yield (
            "U",
            f"{text} by {minute(metrics['U_at'])}, when one of the two had done all jobs"
            if early
            else text,
        )
    if "resource_integral_unit_s" in metrics:
        yield (
            "offered",
            f"{metrics['offered_unit_s'] / 3600:,.0f} idle unit-hours in the whole trace",
        )
        window = (
            f"{duration(metrics['duration_s'])} from {minute(metrics['window_start'])}"
        )
        yield (
            "resource-integral",
            f"{metrics['resource_integral_unit_s'] / 3600:,.0f} of them in the window, {window}, "
            "when the first job was submitted",
        )
        yield (
            "used",
            "-"
            if metrics["used_share"] is None
            else f"{metrics['used_share']:.1%} of the resource-integral",
        )
        for kind, of in metrics.get("kinds", {}).items():
            share = "-" if of["used_share"] is None else f"{of['used_share']:.1%}"
            yield (
                f"used of {kind}",
                f"{share} of {of['idle_unit_s'] / 3600:,.0f} idle unit-hours on {of['units']:,} units",
            )
        for name, of in metrics.get("classes", {}).items():
            yield f"idle of {name}", class_text(of)
        yield (
            "eq-nodes",
            f"{metrics['eq_nodes']:.1f} dedicated nodes would offer as much in the window",
        )
    for key in (path for path in FIGURES if path.endswith("_cost")):
        lost = metrics.get(key)
        if lost or key in ("preemption_cost", "rescale_cost"):
            share = f" ({lost / outcome:.1%} of the outcome)" if outcome else ""
            yield FIGURES[key].title, f"{lost:,.0f} samples{share}"
    yield (
        "jobs finished",
        f"{metrics['jobs_finished']} of {metrics['jobs']}"
        + _apart(metrics.get("census", {})),
    )
    for key, label in (
        ("jct_s", "job completion time"),
        ("queueing_s", "queueing time"),
    ):
        if metrics.get(key):
            spread = metrics[key]
            of = (
                ""
                if generated_load is None
                else f" (of a generated workload, load {generated_load:.2f})"
            )
            mean, median, p95 = (
                duration(spread[name]) for name in ("mean", "median", "p95")
            )
            yield label, f"mean {mean}, median {median}, p95 {p95}{of}"
    if metrics.get("without_units_s"):
        waits = metrics["without_units_s"]
        yield (
            "time without units",
            f"longest {duration(waits['longest'])}, p99 {duration(waits['p99'])} of all jobs submitted",
        )
    if "search" in metrics:
        yield from _searched(metrics["search"])
    yield from _served(metrics)
    yield from cost_lines(metrics.get("costs", {}))
    yield from host_lines(metrics.get("host", {}))
    statuses = ", ".join(
        f"{count} {status}" for status, count in metrics["decisions_by_status"].items()
    )
    yield (
        "decisions",
        f"{metrics['decisions']}" + (f" ({statuses})" if statuses else ""),
    )
    if "decisions_unproven" in metrics:
        yield "not proven", _not_proven(metrics["decisions_unproven"])
    if "verified" in metrics:
        yield (
            "verified",
            f"{metrics['verified']} by the exact dynamic programme, {metrics['verify_mismatches']} differ",
        )
    if "preemptions" in metrics:
        yield (
            "preemptions, rescales",
            f"{metrics['preemptions']}, {metrics['rescales']}",
        )


def _not_proven(unproven: dict[str, Any]) -> str:
    """How far below their optima the decisions may be that are not proven optimal."""
    text = f"{unproven['count']} decisions"
    if unproven["gap_largest"] is not None:
        mean, largest = unproven["gap_mean"], unproven["gap_largest"]
        text += f", at most {largest:.2%} below the optimum, {mean:.2%} in the mean"
    if unproven["without_bound"]:
        text += f"; no bound is known for {unproven['without_bound']}"
    return text


def _apart(census: dict[str, Any]) -> str:
    """The jobs that could not finish, and why; empty where there are none."""
    counts = {"left out": "left_out", "refused": "refused", "cancelled": "cancelled"}
    apart = [
        f"{census[group]} {word}" for word, group in counts.items() if census.get(group)
    ]
    return f" ({', '.join(apart)})" if apart else ""


def _searched(search: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Say how the search of hyperparameters went."""
    text = f"{search['finished']:,} done, {search['stopped']:,} stopped"
    if search["stopped"]:
        text += f"; {search['stopped_samples']:,.0f} samples went to those stopped"
    if search["stopped"] and search["stopped_share"] is not None:
        text += f", {search['stopped_share']:.1%} of the outcome"
    yield "trials", text
    if search["best"] is not None:
        best = search["best"]
        yield (
            "best found",
            f"{best['score']:.4f} by {best['job']} at {minute(best['time'])}",
        )


def _served(metrics: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Say how many jobs were served worse than by equal shares, and how many missed a deadline."""
    if metrics.get("finish_time_fairness"):
        rho = metrics["finish_time_fairness"]
        unfair = metrics["finish_time_unfair_share"]
        yield (
            "finish-time fairness",
            f"rho mean {rho['mean']:.2f}, p95 {rho['p95']:.2f}, largest {rho['largest']:.2f}; {unfair:.0%} of "
            "the finished jobs did worse than on an equal share",
        )
    if metrics.get("deadlines"):
        due = metrics["deadlines"]
        yield (
            "deadlines",
            f"{due['met']} of {due['jobs']} met, {due['missed']} missed, {due['open']} still open",
        )


def minute(instant: str) -> str:
    """Return an instant of a summary to the minute."""
    return f"{instant[:10]} {instant[11:16]}"


def short_window(outcome: Outcome, tfwd_s: float) -> str | None:
    """Say where the window Tfwd is short against what growing costs; None where it is not."""
    costs_s = [record.job.tcup_s for record in outcome.records]
    cost_s = float(np.median(costs_s)) if costs_s else 0.0
    if cost_s <= tfwd_s:
        return None
    factor = 1 + cost_s / tfwd_s
    return (
        f"-Tfwd {tfwd_s:g} is shorter than growing costs (Tcup, {cost_s:.3g} s in the median): a job grows only where "
        f"that makes it {factor:.2g} times as fast; a window of several times Tcup, such as -Tfwd {10 * cost_s:.0f}, "
        "mostly finishes jobs sooner (docs/objectives.md)"
    )


# A cap on the jobs in play that was reached for a smaller share of the time explains little.
MUCH_TIME = 0.05
HOUR_S = 3600.0
# A replay whose outcome is below the bound by more than this share reports it.
MUCH_LEFT = 0.05


# The options that are advised where a setting leaves much.
BEST = "--preset best"


def advice(
    outcome: Outcome,
    metrics: dict[str, Any],
    *,
    max_jobs: int,
    is_best: bool,
) -> tuple[str, str | None] | None:
    """Say why an outcome is below the bound and what to set, by figures of this replay.

    Parameters
    ----------
    outcome
        The replay.
    metrics
        Its metrics, with the bound.
    max_jobs
        Jobs that might be in play at once, 0 for all.
    is_best
        Whether all options of --preset best were in use, so that it is no advice.

    Returns
    -------
    tuple or None
        A sentence, and the options that help, None where none does; None where there is nothing to say.
    """
    bound = metrics["bound"]
    share = f"the outcome is {metrics['share_of_bound']:.1%} of the bound"
    cost_s = float(np.median([record.job.tcup_s for record in outcome.records]))
    idle_s = fragments(outcome.trace).seconds
    median_s = float(np.median(idle_s)) if len(idle_s) else math.inf
    if cost_s >= median_s:
        return (
            f"{share}: a growth costs a job Tcup, {cost_s:,.0f} s in the median, and half of the idle fragments last "
            f"{median_s:,.0f} s or less, so that hardly any growth can pay; are Tcup and Tcdw in seconds?",
            None,
        )
    rescale, preemption = metrics["rescale_cost"], metrics["preemption_cost"]
    costs = f"rescales cost {rescale / bound:.1%} of that and preemptions {preemption / bound:.1%}"
    running_s = math.fsum(record.run_seconds for record in outcome.records)
    units = outcome.used_unit_seconds / running_s if running_s else 0.0
    capped = _share_of_time_with(outcome, max_jobs) if max_jobs else 0.0
    if capped >= MUCH_TIME:
        waits = metrics["without_units_s"]
        longest_h = waits["longest"] / HOUR_S if waits else 0.0
        return (
            f"{share}: for {capped:.0%} of the time as many jobs were in play as -maxJ {max_jobs} allows, on "
            f"{units:.1f} units each, and {costs}; -maxJ 0 lets more jobs run on fewer units each. "
            f"{BEST} does so too, and shortens long waits, here up to {longest_h:.1f} h without "
            "nodes (docs/beyond.md)",
            BEST,
        )
    if is_best:
        return None
    return (
        f"{share}: {metrics['used_share']:.1%} of the idle node-time was used, on "
        f"{units:.1f} units a job, and {costs}; {BEST} puts jobs on few units each "
        "(docs/beyond.md)",
        BEST,
    )


def _share_of_time_with(outcome: Outcome, jobs: int) -> float:
    """Return the share of the time in which this many jobs were in play."""
    times = outcome.steps["time"].to_numpy(dtype="datetime64[ns]").astype(np.int64)
    spans = np.diff(times)
    full = outcome.steps["jobs"].to_numpy()[:-1] >= jobs
    return float(spans[full].sum() / spans.sum()) if len(spans) and spans.sum() else 0.0


def costs(
    outcome: Outcome,
    *,
    node_watts: tuple[float, float] | None = None,
    price_per_node_hour: float | None = None,
    co2_per_kwh: float | None = None,
) -> dict[str, Any]:
    """Node-hours, energy, money and CO2 of the window of evaluation, as far as the stated rates define them.

    With N the idle node-hours of the window and n <= N those used (a node with part of its units used counts in
    proportion), P_idle and P_busy the watts of a node:

        additional energy = (P_busy - P_idle) n / 1000                         [kWh]
        total energy      = (P_idle (N - n) + P_busy n) / 1000                 [kWh]
        value used        = price n,        value unused = price (N - n)
        CO2               = energy co2_per_kwh / 1000                          [kg]

    Parameters
    ----------
    outcome
        The replay.
    node_watts
        Power of a node without jobs and of one all of whose units are used, W.
    price_per_node_hour
        In any currency.
    co2_per_kwh
        Grams of CO2 per kWh; needs `node_watts`.

    Examples
    --------
    >>> from bft.models import Curve, Job, JobTable
    >>> from bft.replay import EqualShare, Replay, always_idle
    >>> curve = Curve([0, 1], [0, 1])
    >>> job = Job("a", 0, 1, 1, pmax=3600.0, tcup_s=0.0, tcdw_s=0.0, scalability=curve, objective=curve)
    >>> outcome = Replay(always_idle(2, 0, 3600 * 10**9), JobTable((job,)), EqualShare()).run()
    >>> costs(outcome, node_watts=(100.0, 500.0))
    {'used_node_h': 1.0, 'unused_node_h': 1.0, 'additional_kwh': 0.4, 'total_kwh': 0.6}
    """
    if node_watts is None and price_per_node_hour is None:
        return {}
    per_node_hour = 3600.0 * outcome.trace.units_per_node
    used = outcome.used_unit_seconds / per_node_hour
    unused = (outcome.idle_unit_seconds - outcome.used_unit_seconds) / per_node_hour
    result = {"used_node_h": used, "unused_node_h": unused}
    if node_watts is not None:
        idle, busy = node_watts
        result["additional_kwh"] = (busy - idle) * used / 1000
        result["total_kwh"] = (idle * unused + busy * used) / 1000
        if co2_per_kwh is not None:
            for part in ("additional", "total"):
                kwh = result[f"{part}_kwh"]
                result[f"{part}_co2_kg"] = kwh * co2_per_kwh / 1000
    if price_per_node_hour is not None:
        result["value_used"] = price_per_node_hour * used
        result["value_unused"] = price_per_node_hour * unused
    return result


def cost_lines(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text for the figures of `costs`."""
    if "additional_kwh" in figures:
        yield (
            "energy",
            f"{figures['additional_kwh']:,.1f} kWh more than if the nodes had stayed idle; {figures['total_kwh']:,.1f} "
            "kWh in total",
        )
    if "additional_co2_kg" in figures:
        yield (
            "CO2",
            f"{figures['additional_co2_kg']:,.1f} kg more; {figures['total_co2_kg']:,.1f} kg in total",
        )
    if "value_used" in figures:
        yield (
            "value of node-hours",
            f"{figures['value_used']:,.2f} used ({figures['used_node_h']:,.1f} node-hours), "
            f"{figures['value_unused']:,.2f} left idle",
        )
