"""What a replay's outcome means: the metrics of DESIGN §8."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.replay.ledger import JobRecord, Outcome
from bft.replay.trace import SECOND_NS
from bft.replay.trace_stats import STARTUPS_S, fragments, usable_share


def equivalent_nodes(outcome: Outcome) -> int:
    """Dedicated nodes that offer the same node-time: round(resource-integral / duration)."""
    if not outcome.duration_s:
        return 0
    return round(outcome.idle_unit_seconds / outcome.trace.units_per_node / outcome.duration_s)


def jain_fairness(shares: NDArray[np.float64]) -> float | None:
    """Jain's index (sum x)² / (n · sum x²): 1 when all have the same, 1/n when one has all; None for no x > 0."""
    squares = float(np.dot(shares, shares))
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else None


def summarise(outcome: Outcome, dedicated: Outcome | None = None) -> dict[str, Any]:
    """The metrics of a replay.

    Parameters
    ----------
    outcome
        The replay.
    dedicated
        The same jobs and policy on round(eq-nodes) dedicated nodes; U is the ratio of the two outcomes.

    Returns
    -------
    dict
        Work in samples, times in seconds, costs as positive numbers. Values that have no meaning here are None.
    """
    records = outcome.records
    steps = outcome.steps
    decisions = steps[steps["status"] != "end"]
    end = outcome.end_ns
    submitted = [record for record in records if record.job.tsub_ns <= end]
    finished = [record for record in records if record.finish_ns is not None]
    preemption_cost = float(sum(record.lost_to_preemption for record in records))
    rescale_cost = float(sum(record.lost_to_rescale for record in records))
    eq = outcome.idle_unit_seconds / outcome.duration_s if outcome.duration_s else 0.0
    statuses = decisions["status"].value_counts()
    offered = outcome.idle_unit_seconds
    return {
        "outcome": outcome.work,
        "duration_s": outcome.duration_s,
        "resource_integral_unit_s": offered,
        "used_unit_s": outcome.used_unit_seconds,
        "used_share": outcome.used_unit_seconds / offered if offered else None,
        "eq_nodes": eq / outcome.trace.units_per_node,
        "U": outcome.work / dedicated.work if dedicated is not None and dedicated.work else None,
        "dedicated_outcome": None if dedicated is None else dedicated.work,
        "preemption_cost": preemption_cost,
        "rescale_cost": rescale_cost,
        "return_on_rescale": outcome.extra_gain / outcome.paid if outcome.paid else None,
        "decisions": len(decisions),
        "decisions_by_status": {str(status): int(count) for status, count in sorted(statuses.items())},
        "preemptions": sum(record.preemptions for record in records),
        "rescales": sum(record.rescales for record in records),
        "jobs": len(records),
        "jobs_submitted": len(submitted),
        "jobs_started": sum(record.start_ns is not None for record in records),
        "jobs_finished": len(finished),
        "jct_s": spread([_seconds(record.finish_ns, record.job.tsub_ns) for record in finished]),
        "queueing_s": spread(
            [_seconds(record.start_ns, record.job.tsub_ns) for record in records if record.start_ns is not None]
        ),
        "makespan_s": _makespan(finished) if finished and len(finished) == len(records) else None,
        "restarts_per_job": _mean([max(0, record.starts - 1) for record in records]),
        "unit_hours": outcome.used_unit_seconds / 3600,
        "jain_fairness_of_mean_units": jain_fairness(
            np.array([mean_units(record, outcome.end_ns) for record in submitted])
        ),
        "share_outliving_startup": _startup_shares(outcome),
        "interrupted": outcome.interrupted,
    }


def mean_units(record: JobRecord, end_ns: int) -> float:
    """Units a job held on average between its submission and its finish, or the replay's end."""
    until = end_ns if record.finish_ns is None else record.finish_ns
    seconds = (until - record.job.tsub_ns) / SECOND_NS
    return record.unit_seconds / seconds if seconds > 0 else 0.0


def spread(values: list[float]) -> dict[str, float] | None:
    """Mean, median, p95 and p99, or None where there is nothing to tell."""
    if not values:
        return None
    p50, p95, p99 = (float(q) for q in np.percentile(values, (50, 95, 99)))
    return {"mean": float(np.mean(values)), "median": p50, "p95": p95, "p99": p99}


def _startup_shares(outcome: Outcome) -> dict[str, float]:
    """Share of the window's idle node-time that outlives a start-up; fragments are cut where the replay ended."""
    found = fragments(outcome.trace)
    inside = found.start_ns < outcome.end_ns
    seconds = (np.minimum(found.end_ns, outcome.end_ns) - found.start_ns)[inside] / SECOND_NS
    return {f"{s} s": usable_share(seconds, s) for s in STARTUPS_S}


def _makespan(finished: list[JobRecord]) -> float:
    return _seconds(max(record.finish_ns or 0 for record in finished), min(record.job.tsub_ns for record in finished))


def _seconds(later: int | None, earlier: int) -> float:
    if later is None:
        raise ValueError("an instant that has not come has no distance")
    return (later - earlier) / SECOND_NS


def _mean(values: list[int]) -> float | None:
    return float(np.mean(values)) if values else None
