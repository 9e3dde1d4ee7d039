"""The most important metrics of a run, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bft.replay.results.costs import cost_lines
from bft.replay.results.host import host_lines


def headlines(
    metrics: dict[str, Any], generated_load: float | None = None
) -> Iterator[tuple[str, str]]:
    """Yield label and text of the headline figures; pass `generated_load` where the jobs were generated."""
    outcome = metrics["outcome"]
    yield "training outcome", f"{outcome:,.0f} samples"
    if "bound" in metrics:
        yield "bound", _beside_bound(metrics)
    if metrics.get("U") is not None:
        nodes = f"{metrics['dedicated_nodes']:.3g}"
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
        window = f"{duration_text(metrics['duration_s'])} from {minute(metrics['window_start'])}"
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
        yield (
            "eq-nodes",
            f"{metrics['eq_nodes']:.1f} dedicated nodes would offer as much in the window",
        )
    for key, label, always in (
        ("preemption_cost", "lost to preemption", True),
        ("rescale_cost", "lost to rescaling", True),
        ("stall_cost", "lost to stalls", False),
        ("start_cost", "lost to first starts", False),
        ("restart_cost", "lost to restarts", False),
    ):
        if always or metrics.get(key):
            yield label, f"{metrics[key]:,.0f} samples{_share(metrics[key], outcome)}"
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
                duration_text(spread[name]) for name in ("mean", "median", "p95")
            )
            yield label, f"mean {mean}, median {median}, p95 {p95}{of}"
    if metrics.get("without_units_s"):
        waits = metrics["without_units_s"]
        yield (
            "time without units",
            f"longest {duration_text(waits['longest'])}, p99 {duration_text(waits['p99'])} of all jobs submitted",
        )
    yield from _searched(metrics.get("search"))
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


def _apart(census: dict[str, Any]) -> str:
    """The jobs that could not finish, and why; empty where there are none."""
    counts = {"left out": "left_out", "refused": "refused", "cancelled": "cancelled"}
    apart = [
        f"{census[group]} {word}" for word, group in counts.items() if census.get(group)
    ]
    return f" ({', '.join(apart)})" if apart else ""


def _searched(search: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Say how the search of hyperparameters went, if there was one."""
    if search is None:
        return
    share = (
        ""
        if search["stopped_share"] is None
        else f", {search['stopped_share']:.1%} of the outcome"
    )
    spent = (
        f"; {search['stopped_samples']:,.0f} samples went to those stopped{share}"
        if search["stopped"]
        else ""
    )
    yield "trials", f"{search['finished']:,} done, {search['stopped']:,} stopped{spent}"
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


def _beside_bound(metrics: dict[str, Any]) -> str:
    if metrics["bound"] is None:
        return str(metrics["bounds"]["why_none"])
    bound = f"{metrics['bound']:,.0f} samples"
    share = metrics["share_of_bound"]
    if share is None:
        return f"the upper bound is {bound}"
    everybody = metrics["bounds"]["unit_time"]
    line = f"{share:.1%} of the upper bound, {bound}"
    if everybody is None or everybody < metrics["bound"] * 1.001:
        return line
    return f"{line}; {metrics['outcome'] / everybody:.1%} of the bound with all jobs in play, {everybody:,.0f}"


def minute(instant: str) -> str:
    """Return an instant of a summary to the minute."""
    return f"{instant[:10]} {instant[11:16]}"


def _share(part: float, total: float) -> str:
    return f" ({part / total:.1%} of the outcome)" if total else ""


def duration_text(seconds: float) -> str:
    """Return a duration in the largest unit that it reaches: 90 s is "1.5 min"."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
