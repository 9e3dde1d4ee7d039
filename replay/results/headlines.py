"""The most important metrics of a run in words: what it achieved, cost, and lost, and the option that helps."""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from string import Formatter
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

from bft.models.writing import duration, three_digits
from bft.replay.engine.ledger import Outcome
from bft.replay.results.figures import FIGURES
from bft.replay.results.host import host_sentence
from bft.replay.trace.trace_statistics import class_text, fragments

# Up to so many jobs each is of interest by its name.
FEW_JOBS = 20
HOUR_S = 3600.0


# Label and text of lines; one is shown where the run has its figures. A figure without a value is shown as "-".
Lines: TypeAlias = tuple[tuple[str, str], ...]
_OFFERED: Lines = (
    ("offered", "{offered_unit_s:hours} idle unit-hours in the whole trace"),
    (
        "resource-integral",
        "{resource_integral_unit_s:hours} of them in the window, {duration_s:duration} from {window_start:minute} "
        "{zone}, when the first job was submitted",
    ),
    ("used", "{used_share:.1%} of the resource-integral"),
    ("eq-nodes", "{eq_nodes:.1f} dedicated nodes would offer as much in the window"),
)
_OF_KIND = "{used_share:.1%} of {idle_unit_s:hours} idle unit-hours on {units:,} units"
_JOBS: Lines = (
    (
        "job completion time",
        "mean {jct_s[mean]:duration}, median {jct_s[median]:duration}, p95 {jct_s[p95]:duration}{generated}",
    ),
    (
        "queueing time",
        "mean {queueing_s[mean]:duration}, median {queueing_s[median]:duration}, p95 {queueing_s[p95]:duration}"
        "{generated}",
    ),
    (
        "time without units",
        "longest {without_units_s[longest]:duration}, p99 {without_units_s[p99]:duration} of all jobs submitted",
    ),
    (
        "trials",
        "{search[finished]:,} done, {search[stopped]:,} stopped; {search[stopped_samples]:,.0f} samples went to those "
        "stopped, {search[stopped_share]:.1%} of the outcome",
    ),
    (
        "best found",
        "{search[best][score]:.4f} by {search[best][job]} at {search[best][time]:minute} {zone}",
    ),
    (
        "finish-time fairness",
        "rho mean {finish_time_fairness[mean]:.2f}, p95 {finish_time_fairness[p95]:.2f}, largest "
        "{finish_time_fairness[largest]:.2f}; {finish_time_unfair_share:.0%} of the finished jobs did worse than on an "
        "equal share",
    ),
    (
        "deadlines",
        "{deadlines[met]} of {deadlines[jobs]} met, {deadlines[missed]} missed, {deadlines[open]} still open",
    ),
    (
        "energy",
        "{costs[additional_kwh]:,.1f} kWh more than if the nodes had stayed idle; {costs[total_kwh]:,.1f} kWh in total",
    ),
    (
        "CO2",
        "{costs[additional_co2_kg]:,.1f} kg more; {costs[total_co2_kg]:,.1f} kg in total",
    ),
    (
        "value of node-hours",
        "{costs[value_used]:,.2f} used ({costs[used_node_h]:,.1f} node-hours), {costs[value_unused]:,.2f} left idle",
    ),
)
_DECISIONS: Lines = (
    ("decisions", "{decisions}{statuses}"),
    (
        "not proven",
        "{decisions_unproven[count]} decisions, at most {decisions_unproven[gap_largest]:.2%} below the optimum, "
        "{decisions_unproven[gap_mean]:.2%} in the mean; no bound is known for {decisions_unproven[without_bound]}",
    ),
    (
        "verified",
        "{verified} by the exact dynamic programme, {verify_mismatches} differ",
    ),
    ("preemptions, rescales", "{preemptions}, {rescales}"),
)
_STARTS_BY_JOB: Lines = (
    (
        "host starts",
        "{delayed:,} of {starts:,} wait ({delayed_share:.1%}); delay of all: mean {delay_s[mean]:,.1f} s, median "
        "{delay_s[p50]:,.1f} s, p95 {delay_s[p95]:,.1f} s, largest {delay_s[max]:,.1f} s",
    ),
)
_STARTS_BY_INSTANT: Lines = (
    (
        "host instants",
        "at {delayed:,} of {instants:,} instants at which nodes leave some job waits, up to {longest_delay_s:,.1f} s; "
        "which jobs start is not known",
    ),
)
_HOST: Lines = (
    # What queues make of the direct delay (docs/host-jobs.md, second order).
    (
        "host queue",
        "queues amplify: at loads of 0.6, 0.75 and 0.88 the users' mean wait grew by 1.8, 2.7 and 6 times the direct "
        "delay",
    ),
    (
        "net harvest",
        "{net_node_h:,.0f} node-hours, at {host_price:g} for each that host jobs wait",
    ),
    (
        "host jobs announced",
        "{announced[starts_share]:.0%} of the starts, {announced[nodes_share]:.0%} of their nodes, were eligible "
        "{return_time_s:g} s or longer before: giving nodes back then would spare {announced[waiting_node_h]:,.0f} "
        "node-hours of waiting for as many of training",
    ),
)
_STOPPED: Lines = (
    # Which bandwidth saves the state of these jobs.
    (
        "jobs stopped together",
        "median {p50:,.0f}, p99 {p99:,.0f}, most {max:,}: all but 1 % of such instants save S GB a job within G s, c "
        "of which pass before, at S x {p99:,.0f} / (G - c) GB/s",
    ),
)


class _Words(Formatter):
    """Formats of texts: also `hours` and `duration` of seconds, and `minute` of an instant, in a time zone."""

    def __init__(self, zone: str) -> None:
        self.zone = zone

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a figure in words."""
        if value is None:
            return "-"
        if format_spec == "hours":
            return f"{value / HOUR_S:,.0f}"
        if format_spec == "duration":
            return duration(value)
        if format_spec == "minute":
            return minute(value, self.zone)
        return format(value, format_spec)


def _filled(lines: Lines, figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines whose figures the run has."""
    for label, template in lines:
        try:
            text = _Words(figures.get("zone", "UTC")).vformat(template, (), figures)
        except (KeyError, TypeError):  # a group of figures is not there, or None
            continue
        yield label, text


def headlines(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of the headline figures of a run; instants are in the time zone of the machine's site."""
    zone = zone_of(summary)
    metrics = {**summary["metrics"], "zone": zone}
    generated_load = summary["inputs"]["jobs"].get("generated_load")
    outcome = metrics["outcome"]
    yield "training outcome", f"{outcome:,.0f} samples"
    if metrics.get("bound") is not None:
        share = metrics["share_of_bound"]
        of = "at most" if share is None else f"{share:.1%} of the bound,"
        done = metrics["jobs_finished"] == metrics["jobs"]
        why = ": all jobs were done" if done and share is not None else ""
        yield "bound", f"{of} {metrics['bound']:,.0f} samples{why}"
    elif "bound" in metrics:
        yield "bound", metrics["bounds"]["why_none"]
    if metrics.get("U") is not None:
        nodes = three_digits(metrics["dedicated_nodes"])
        text = f"{metrics['U']:.1%} of what {nodes} dedicated node{'s' * (nodes != '1')} would have yielded"
        if metrics["U_at"] != metrics["window_end"]:
            text += f" by {minute(metrics['U_at'], zone)} {zone}, when one of the two had done all jobs"
        yield "U", text
    yield from _filled(_OFFERED, metrics)
    for kind, of_kind in metrics.get("kinds", {}).items():
        yield from _filled(((f"used of {kind}", _OF_KIND),), of_kind)
    for name, of_class in metrics.get("classes", {}).items():
        yield f"idle of {name}", class_text(of_class)
    for key in (path for path in FIGURES if path.endswith("_cost")):
        lost = metrics.get(key)
        if lost or key in ("preemption_cost", "rescale_cost"):
            share_lost = f" ({lost / outcome:.1%} of the outcome)" if outcome else ""
            yield FIGURES[key].title, f"{lost:,.0f} samples{share_lost}"
    census = metrics.get("census", {})
    words = {"left_out": "left out", "refused": "refused", "cancelled": "cancelled"}
    apart = ", ".join(f"{census[of]} {words[of]}" for of in words if census.get(of))
    done = f"{metrics['jobs_finished']} of {metrics['jobs']}"
    yield "jobs finished", f"{done} ({apart})" if apart else done
    generated = ""
    if generated_load is not None:
        generated = f" (of a generated workload, load {generated_load:.2f})"
    search = metrics.get("search") or {}
    told = bool(search.get("stopped") or search.get("stopped_samples"))
    jobs = tuple(line for line in _JOBS if told or line[0] != "trials")
    yield from _filled(jobs, {**metrics, "generated": generated})
    yield from host_lines(metrics.get("host", {}))
    by_status = metrics["decisions_by_status"].items()
    statuses = ", ".join(f"{count} {status}" for status, count in by_status)
    statuses = f" ({statuses})" if statuses else ""
    yield from _filled(_DECISIONS, {**metrics, "statuses": statuses})


def host_lines(host: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text for the figures of `host_metrics`; nothing where no node was taken."""
    if not host.get("instants"):
        return
    yield "host jobs", host_sentence(host)
    if "waiting_node_h" not in host:
        return
    yield from _filled(_STARTS_BY_JOB if host["by_job"] else _STARTS_BY_INSTANT, host)
    yield from _filled(_HOST, host)
    if host["stopped_together"]["max"] is not None:
        yield from _filled(_STOPPED, host["stopped_together"])


def zone_of(summary: Mapping[str, Any]) -> str:
    """The time zone of the machine's site, UTC where the trace states none: for people; tables are UTC."""
    return summary["inputs"]["trace"].get("zone") or "UTC"


def minute(instant: str, zone: str) -> str:
    """Return an instant of a summary to the minute, in a time zone.

    >>> minute("2021-02-10T00:20:00.5Z", "Europe/Berlin")
    '2021-02-10 01:20'
    """
    return (
        f"{datetime.fromisoformat(instant).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"
    )


def short_window(outcome: Outcome, tfwd_s: float) -> str | None:
    """Say where the window Tfwd is short against what growing costs; None where it is not."""
    costs_s = [record.job.tcup_s for record in outcome.records]
    cost_s = float(np.median(costs_s)) if costs_s else 0.0
    if cost_s <= tfwd_s:
        return None
    factor = 1 + cost_s / tfwd_s
    return (
        f"-Tfwd {tfwd_s:g} is shorter than growing costs (Tcup, {cost_s:.3g} s in the median): a job grows only where "
        f"that makes it {factor:.2g} times as fast; which window finishes jobs sooner differs by jobs and machine, and "
        f"a sweep such as -Tfwd {tfwd_s:g},{cost_s:.0f},{10 * cost_s:.0f} tells (docs/objectives.md)"
    )


# A cap on the jobs in play that was reached for a smaller share of the time explains little.
MUCH_TIME = 0.05
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
    times = outcome.steps["time"].to_numpy(dtype="datetime64[ns]").astype(np.int64)
    spans = np.diff(times)
    full = outcome.steps["jobs"].to_numpy()[:-1] >= max_jobs
    capped = spans[full].sum() / max(spans.sum(), 1)
    if max_jobs and capped >= MUCH_TIME:
        waits = metrics["without_units_s"]
        longest_h = waits["longest"] / HOUR_S if waits else 0.0
        return (
            f"{share}: for {capped:.0%} of the time as many jobs were in play as -maxJ {max_jobs} allows, on "
            f"{units:.1f} units each, and {costs}; -maxJ 0 lets more jobs run on fewer units each. "
            f"{BEST} does so too, and shortens long waits, here up to {longest_h:.1f} h without "
            "nodes (docs/objectives.md)",
            BEST,
        )
    if is_best:
        return None
    return (
        f"{share}: {metrics['used_share']:.1%} of the idle node-time was used, on "
        f"{units:.1f} units a job, and {costs}; {BEST} puts jobs on few units each "
        "(docs/objectives.md)",
        BEST,
    )


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

        used_node_h, unused_node_h        = n, N - n                               [node-hours]
        additional_kwh                    = (P_busy - P_idle) n / 1000             [kWh]
        total_kwh                         = (P_idle (N - n) + P_busy n) / 1000     [kWh]
        additional_co2_kg, total_co2_kg   = the same, times co2_per_kwh / 1000     [kg]
        value_used, value_unused          = price n, price (N - n)

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
