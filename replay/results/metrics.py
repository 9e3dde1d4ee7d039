"""The metrics of a replay's outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bft.replay.engine.ledger import BOOKS, JobRecord, Outcome
from bft.replay.results.census import Census
from bft.replay.results.dedicated import equivalent_nodes, usefulness
from bft.replay.results.fairness import fairness, jain_fairness, without_units_s
from bft.replay.results.spreads import spread, spread_to
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_statistics import (
    STARTUPS_S,
    fragments,
    iso_exact,
    length_histogram,
    usable_share,
)


def summarise(outcome: Outcome, dedicated: Sequence[Outcome] = ()) -> dict[str, Any]:
    """The metrics of a replay.

    Parameters
    ----------
    outcome
        The replay.
    dedicated
        The same jobs and policy on dedicated nodes, for U: see `bft.replay.results.dedicated`.

    Returns
    -------
    dict
        Work in samples, times in seconds, costs as positive numbers. Values without a meaning are None. Metrics over
        time cover the window of evaluation, except `offered_unit_s`, which covers the whole trace.

    Examples
    --------
    >>> from bft.models import Curve, Job, JobTable
    >>> from bft.replay import EqualShare, Replay, always_idle
    >>> curve = Curve([0, 2, 4], [0, 20, 30])
    >>> job = Job("a", 0, 1, 4, pmax=3000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> outcome = Replay(always_idle(4, 0, 600 * 10**9), JobTable((job,)), EqualShare()).run()
    >>> metrics = summarise(outcome)
    >>> metrics["outcome"], metrics["jct_s"]["mean"]
    (3000.0, 100.0)
    """
    records = outcome.records
    steps = outcome.steps
    decisions = steps[steps["status"] != "end"]
    end = outcome.end_ns
    census = Census.of(outcome)
    statuses = decisions["status"].value_counts()
    integral, kinds = outcome.idle_unit_seconds, units_by_kind(outcome)
    return {
        "outcome": outcome.work,
        "duration_s": outcome.duration_s,
        "window_start": iso_exact(outcome.start_ns),
        "window_end": iso_exact(end),
        "offered_unit_s": outcome.offered_unit_seconds,
        "resource_integral_unit_s": integral,
        "used_unit_s": outcome.used_unit_seconds,
        "used_share": outcome.used_unit_seconds / integral if integral else None,
        **({"kinds": kinds} if kinds else {}),
        "eq_nodes": equivalent_nodes(outcome),
        **usefulness(outcome, dedicated),
        **{
            f"{book}_cost": math.fsum(
                getattr(record, f"lost_to_{book}") for record in records
            )
            for book in BOOKS
        },
        "return_on_rescale": outcome.extra_gain / outcome.paid
        if outcome.paid
        else None,
        "decisions": len(decisions),
        "decisions_by_status": {
            str(status): int(count) for status, count in sorted(statuses.items())
        },
        "preemptions": sum(record.preemptions for record in records),
        "rescales": sum(record.rescales for record in records),
        "census": census.figures,
        **{
            name: len(census.counted_by(name))
            for name in ("jobs", "jobs_submitted", "jobs_started", "jobs_finished")
        },
        "jct_s": spread(
            [_seconds(r.finish_ns, r.job.tsub_ns) for r in census.counted_by("jct_s")]
        ),
        "queueing_s": spread(
            [
                _seconds(r.start_ns, r.job.tsub_ns)
                for r in census.counted_by("queueing_s")
            ]
        ),
        "without_units_s": spread_to(
            "longest",
            [
                without_units_s(record, end)
                for record in census.counted_by("without_units_s")
            ],
        ),
        "makespan_s": _makespan(census.counted_by("makespan_s")),
        "restarts_per_job": _mean(
            [record.starts - 1 for record in census.counted_by("restarts_per_job")]
        ),
        "unit_hours": outcome.used_unit_seconds / 3600,
        "jain_fairness_of_mean_units": jain_fairness(
            np.array(
                [
                    mean_units(record, outcome.start_ns, outcome.end_ns)
                    for record in census.counted_by("jain_fairness_of_mean_units")
                ]
            )
        ),
        **fairness(outcome, census),
        **_fragments(outcome),
        "interrupted": outcome.interrupted,
    }


def mean_units(record: JobRecord, start_ns: int, end_ns: int) -> float:
    """Units that a job held on average while in the system: within the window, from its submission to its end."""
    until = end_ns if record.ended_ns is None else record.ended_ns
    seconds = (until - max(record.job.tsub_ns, start_ns)) / SECOND_NS
    return record.unit_seconds / seconds if seconds > 0 else 0.0


def _fragments(outcome: Outcome) -> dict[str, Any]:
    """Return how long nodes stay idle, and how much of that a start-up leaves; the window cuts fragments."""
    pieces = fragments(outcome.trace)
    spans = np.minimum(pieces.end_ns, outcome.end_ns) - np.maximum(
        pieces.start_ns, outcome.start_ns
    )
    seconds = spans[spans > 0] / SECOND_NS
    return {
        "fragments": length_histogram(seconds),
        "share_outliving_startup": {
            f"{s} s": usable_share(seconds, s) for s in STARTUPS_S
        },
    }


def _makespan(records: Sequence[JobRecord]) -> float | None:
    """Seconds from the first submission to the last finish; None unless all jobs have finished."""
    finishes = [record.finish_ns for record in records if record.finish_ns is not None]
    if not finishes or len(finishes) < len(records):
        return None
    return _seconds(max(finishes), min(record.job.tsub_ns for record in records))


def _seconds(later: int | None, earlier: int) -> float:
    if later is None:
        raise ValueError("an instant in the future has no distance")
    return (later - earlier) / SECOND_NS


def _mean(values: list[int]) -> float | None:
    return float(np.mean(values)) if values else None


def units_by_kind(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Return each kind's units, idle and used unit-seconds in the window, and their ratio; empty without kinds."""
    trace, held = outcome.trace, outcome.allocations
    if not trace.kinds:
        return {}
    spans = (
        held["end_ns"].clip(upper=outcome.end_ns)
        - held["start_ns"].clip(lower=outcome.start_ns)
    ).clip(lower=0)
    # Units that a job gets together and that are neighbours are of one kind: a job has units of one kind at a time.
    used = (spans / SECOND_NS) * (held["last_unit"] - held["first_unit"] + 1)
    of = np.array(trace.kinds)[held["first_unit"].to_numpy() // trace.units_per_node]
    sizes = trace.node_units or (trace.units_per_node,) * len(trace.nodes)
    seconds = (
        np.diff(
            np.append(trace.times, trace.end).clip(outcome.start_ns, outcome.end_ns)
        )
        / SECOND_NS
    )
    result = {}
    for kind in dict.fromkeys(trace.kinds):
        idle = float(trace.of_kind(kind).idle_units() @ seconds)
        used_of_kind = float(used[of == kind].sum())
        result[kind] = {
            "units": sum(
                size
                for size, other in zip(sizes, trace.kinds, strict=True)
                if other == kind
            ),
            "idle_unit_s": idle,
            "used_unit_s": used_of_kind,
            "used_share": used_of_kind / idle if idle else None,
        }
    return result
