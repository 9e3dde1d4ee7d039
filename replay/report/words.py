"""What a page says in words: its opening sentence, its headline figures, what its terms mean; and text as markup."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from bft.models.errors import MAX_SENTENCE, printable
from bft.replay.results.headlines import duration_text
from bft.replay.results.host import host_sentence

GLOSSARY = (
    (
        "bound",
        "the samples that no policy, known or unknown, can exceed on this trace with these jobs (option --bound)",
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


def opening(metrics: dict[str, Any], generated_load: float | None) -> str:
    """Say what a run comes to, and what it costs the machine's own jobs where that is known."""
    text = _yields(metrics, generated_load)
    host = metrics.get("host") or {}
    if not host.get("starts") or "waiting_node_h" not in host:
        return text
    sentence = host_sentence(host)
    return f"{text} {sentence[0].upper()}{sentence[1:]}."


def _yields(metrics: dict[str, Any], generated_load: float | None) -> str:
    """Return the result of a run in two sentences."""
    finished, jobs = metrics["jobs_finished"], metrics["jobs"]
    of = "generated jobs" if generated_load is not None else "jobs"
    span = duration_text(metrics.get("duration_s") or 0.0)
    could = f"Your idle nodes of {span} could have trained {finished:,} of these {jobs:,} {of}"
    if not metrics.get("eq_nodes"):
        return f"{could}."
    nodes = f"{metrics['eq_nodes']:.3g}"
    bought = f"{could}. They offered as much time as {nodes} node{'' if nodes == '1' else 's'} bought for it"
    if metrics.get("U") is None:
        return f"{bought}."
    return f"{bought}, and trained {metrics['U']:.0%} of what those would have."


def tiles(metrics: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures that are read from afar: value and what it is."""
    yield _large(metrics["outcome"]), "samples done"
    yield f"{metrics['jobs_finished']:,} of {metrics['jobs']:,}", "jobs finished"
    for key, what in (
        ("U", "U: of what bought nodes would have done"),
        ("share_of_bound", "of the upper bound"),
        ("used_share", "of the idle node-time used"),
    ):
        if metrics.get(key) is not None:
            yield f"{metrics[key]:.1%}", what
    if metrics.get("jct_s"):
        yield duration_text(metrics["jct_s"]["median"]), "median completion time"
    host = metrics.get("host") or {}
    if host.get("break_even_price") is not None:
        yield (
            f"{host['break_even_price']:,.1f}",
            "node-hours of training for each that your own jobs wait",
        )
    costs = metrics.get("costs", {})
    for key, unit, what in (
        ("additional_kwh", " kWh", "more than if the nodes had stayed idle"),
        ("additional_co2_kg", " kg", "of CO2 more"),
        ("value_used", "", "worth of the node-hours used, by your price"),
    ):
        if key in costs:
            yield f"{costs[key]:,.0f}{unit}", what


def _large(count: float) -> str:
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(count) >= size:
            return f"{count / size:.1f} {word}"
    return f"{count:,.0f}"


def markup(text: str) -> str:
    """A text in HTML or SVG: nothing in it is markup, and characters that act instead of being seen are escapes.

    >>> markup("<b>Tom & Jerry</b>")
    '&lt;b&gt;Tom &amp; Jerry&lt;/b&gt;'
    """
    return escape(printable(text, MAX_SENTENCE))
