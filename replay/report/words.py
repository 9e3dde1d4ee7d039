"""What a page says in words: its opening sentence, its headline figures, what its terms mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bft.models.writing import duration, three_digits
from bft.replay.results.figures import FIGURES
from bft.replay.results.headlines import MUCH_LEFT, minute
from bft.replay.results.host import host_sentence

GLOSSARY = (
    (
        "bound",
        "the samples for which the idle nodes are enough, each at its job's best rate per unit: no policy exceeds it",
    ),
    (
        "decision",
        "at each change of nodes or jobs the policy says how many units each job gets",
    ),
    (
        "eq-nodes",
        "how many nodes, all to yourself for the whole window, would offer the same node-time as the idle ones",
    ),
    ("fragment", "a stretch during which a node is idle without a break"),
    ("given, used", "units that jobs held; the rest of the idle ones went unused"),
    (
        "host jobs",
        "the machine's own batch jobs, which take idle nodes back (option --return-time says how fast)",
    ),
    ("idle", "not in use by the machine's own batch jobs, so that training may use it"),
    ("JCT", "job completion time: from a job's submission to its finish"),
    (
        "mean units",
        "units that a job held on average from its submission to its end; while it waits it holds none, so that the "
        "mean may lie below the smallest size on which it runs",
    ),
    ("outcome", "all samples that the jobs did, costs deducted"),
    ("policy", "the rule that decides who gets which units"),
    (
        "preemption",
        "the machine takes back a unit that a job holds; the job pays for going on with fewer",
    ),
    ("queueing time", "from a job's submission to its first units"),
    (
        "rescale",
        "a decision gives a running job another number of units; the job pays for the change",
    ),
    ("resource-integral", "idle units, added up over time: what was there to be used"),
    (
        "samples",
        "the work of a training job: images, sentences or whatever its rate counts",
    ),
    ("start-up", "what a job needs on a node before it makes progress"),
    (
        "Tfwd",
        "the window in seconds over which a new allocation must pay back what changing to it costs",
    ),
    (
        "U",
        "outcome divided by what the same jobs under the same policy do on eq-nodes that are never taken back",
    ),
    ("unit", "the smallest thing given to a job: a node, or one GPU of it"),
    ("virtual cluster", "a part of a machine that a group of users has to itself"),
)


def opening(summary: dict[str, Any], why_unused: str) -> str:
    """Say how large the machine is, what share was idle, what that is worth, what to set and what host jobs pay."""
    metrics = summary["metrics"]
    host = metrics.get("host") or {}
    sentences = [machine_sentence(summary), _trained(summary)]
    if (metrics["used_share"] or 0.0) < 1 - MUCH_LEFT:
        sentences.append(why_unused)
    if host.get("instants"):
        paid = _host(host)
        sentences.append(f"{paid[0].upper()}{paid[1:]}.")
    return " ".join(filter(None, sentences))


def machine_sentence(summary: dict[str, Any]) -> str:
    """Return the machine, its idle share and what that is worth, in a sentence."""
    metrics, trace = summary["metrics"], summary["inputs"]["trace"]
    span = duration(metrics.get("duration_s") or 0.0)
    if "nodes" not in trace:
        return f"These jobs had the cluster {trace['source']} to themselves for {span}."
    part = summary["options"].get("node_count") or summary["options"].get("first_node")
    owner = "These" if part else "Your"
    machine = f"{owner} {_counted(trace['nodes'], 'node')}"
    if "units" in trace:
        machine += f" ({_counted(trace['units'], 'unit')})"
    share, worth = idle_share(summary), metrics.get("eq_nodes")
    if share is None or worth is None:
        return f"{machine} were replayed for {span}."
    idle = f"{machine} were idle for {share:.1%} of the time"
    return f"In {span} {idle[0].lower()}{idle[1:]}, which is worth {_nodes(worth)}."


def of_trace(statistics: dict[str, Any]) -> str:
    """Say of a trace how large the machine is, what share was idle, its worth, and how long nodes stay idle."""
    what = "unit" if "units" in statistics else "node"
    machine = f"Your {_counted(statistics[f'{what}s'], what)}"
    share, span = statistics["idle_share"], duration(statistics["duration_s"])
    if not share:
        return f"{machine} were never idle in {span}."
    worth = _counted(round(statistics[f"idle_{what}s_mean"], 1), what)
    text = f"{machine} were idle for {share:.1%} of {span}, which is worth {worth}."
    pieces = statistics["fragments"]
    half = duration(pieces["seconds_quantiles"]["p50"])
    left = pieces["share_outliving_startup"]["60 s"]
    text += f" Half of the stretches of idle time last at most {half}; if a job needs 60 s to start on a {what}, "
    text += f"{left:.1%} of the idle time is left to it."
    if "host" in statistics:
        price = three_digits(statistics["host"]["break_even_price"]["120 s"])
        text += f" If a node takes 120 s to return, training yields up to {price} node-hours for each that your "
        text += "own jobs wait."
    return text


def idle_share(summary: dict[str, Any]) -> float | None:
    """The idle part of all node-time in the window; None where there is no machine or no time."""
    metrics, trace = summary["metrics"], summary["inputs"]["trace"]
    seconds = metrics.get("duration_s")
    if "nodes" not in trace or not seconds or metrics.get("eq_nodes") is None:
        return None
    if "units" in trace:
        share: float = metrics["resource_integral_unit_s"] / trace["units"] / seconds
        return share
    return float(metrics["eq_nodes"] / trace["nodes"])


def _trained(summary: dict[str, Any]) -> str:
    """Return what was trained, of the bound where that is known, and what to set."""
    metrics = summary["metrics"]
    generated = summary["inputs"]["jobs"].get("generated_load") is not None
    finished, jobs = metrics["jobs_finished"], metrics["jobs"]
    done = f"{finished:,} of {jobs:,} {'generated ' * generated}jobs"
    share = metrics.get("share_of_bound")
    if share is None:
        return f"With these settings {done} were done."
    if finished == jobs:
        return f"With these settings all jobs were done ({done})."
    trained = f"With these settings {share:.1%} of the bound was trained ({done})"
    if metrics["advised"]:
        return f"{trained}; {metrics['advised']} is made to get the {1 - share:.1%} that they leave."
    if share < 1 - MUCH_LEFT:
        used = metrics["used_share"] or 0.0
        return f"{trained}; {used:.1%} of the idle node-time was used."
    return f"{trained}; no other setting can get much more."


def _host(host: dict[str, Any]) -> str:
    """Say what the machine's own jobs pay."""
    if "waiting_node_h" in host:
        return host_sentence(host)
    least = "at least " if host["lower_bound"] else ""
    each = f"{least}{three_digits(host['waiting_node_h_per_second'])} node-hours"
    return f"your own jobs would have waited {each} more for each second that a node takes to return"


def tiles(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures that are read from afar, value and what it is: those of the opening first."""
    metrics, trace = summary["metrics"], summary["inputs"]["trace"]
    share = idle_share(summary)
    if share is not None:
        yield _counted(trace["nodes"], "node"), "in the trace"
        yield f"{share:.1%}", f"of the time idle: worth {_nodes(metrics['eq_nodes'])}"
    if metrics.get("share_of_bound") is not None:
        share = metrics["share_of_bound"]
        rest = f"{max(0.0, 1 - share):.1%}"
        yield f"{share:.1%}", "of the bound was trained"
        if metrics["jobs_finished"] == metrics["jobs"]:
            yield "nothing", "to set: all jobs were done"
        elif metrics["advised"]:
            yield metrics["advised"], f"to set: made to get the {rest} that are left"
        elif share < 1 - MUCH_LEFT:
            yield f"{rest} left", "and no setting known that gets them"
        else:
            yield "nothing", f"to set: no more than {rest} are left"
    yield from _host_tiles(metrics.get("host") or {})
    finished = "jobs finished"
    if metrics.get("jct_s"):
        finished += f", half of them within {duration(metrics['jct_s']['median'])}"
    yield f"{metrics['jobs_finished']:,} of {metrics['jobs']:,}", finished
    for path, what in OF_COSTS.items():
        figure = FIGURES[path]
        if figure.of(metrics) is not None:
            yield f"{figure.text(figure.of(metrics))} {figure.unit}".rstrip(), what


# What the figures of costs are, for their tiles.
OF_COSTS = {
    "costs.additional_kwh": "more than if the nodes had stayed idle",
    "costs.additional_co2_kg": "of CO2 more",
    "costs.value_used": "worth of the node-hours used, by your price",
}


def _host_tiles(host: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not host.get("instants"):
        return
    least = "at least " if host["lower_bound"] else ""
    if "waiting_node_h" not in host:
        hours = f"{least}{three_digits(host['waiting_node_h_per_second'])} node-h"
        yield hours, "your own jobs wait for each second that a node takes to return"
        return
    yield f"{least}{host['waiting_node_h']:,.0f} node-h", "more that your own jobs wait"


def beside_dedicated(metrics: dict[str, Any]) -> str | None:
    """Say what U compares, and up to when; None where it is not known."""
    if metrics.get("U") is None:
        return None
    own = f"{metrics['U']:.1%} of what {_nodes(metrics['dedicated_nodes'])} of their own would have done (U)"
    if metrics["U_at"] == metrics["window_end"]:
        return f"The idle nodes did {own}."
    when = minute(metrics["U_at"])
    return f"By {when}, when one of the two had done all jobs, the idle nodes had done {own}."


def _counted(count: float, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _nodes(count: float) -> str:
    text = f"{count:,.1f}".removesuffix(".0") if count >= 1 else f"{count:.2g}"
    return f"{text} node{'' if text == '1' else 's'}"
