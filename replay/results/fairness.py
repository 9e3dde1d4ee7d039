"""How long jobs waited, and how evenly jobs, users and virtual clusters were served (docs/results.md)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models import Job
from bft.replay.engine.ledger import JobRecord, Outcome
from bft.replay.results.census import Census
from bft.replay.results.spreads import spread_to
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

FloatArray = NDArray[np.float64]
# For each factor: the share of jobs that waited longer than this factor times their length.
WAIT_FACTORS = (1, 3, 10)
# The virtual cluster of nodes on which jobs are only profiled (policies/lucid): part of no share.
_PROFILER = "profiler"


def fairness(outcome: Outcome, census: Census) -> dict[str, Any]:
    """Starvation, fairness and deadlines of a replay, by the names in summary.json; None where a value has no meaning.

    Each counts the jobs that the census states for it.

    References
    ----------
    Finish-time fairness: Mahajan et al., Themis: Fair and Efficient GPU Cluster Scheduling, NSDI 2020, section 3.
    """
    ratios = list(_finish_time_fairness(outcome, census.group("in_system")))
    longest_s, job = longest_wait(outcome, census)
    users, clusters = "jain_fairness_of_users", "jain_fairness_of_virtual_clusters"
    return {
        "longest_wait_s": longest_s,
        "longest_wait_job": job,
        "waiting_over_length": _waiting_over_length(
            census.counted_by("waiting_over_length"), outcome.end_ns
        ),
        "finish_time_fairness": spread_to("largest", ratios),
        "finish_time_unfair_share": sum(rho > 1 for rho in ratios) / len(ratios)
        if ratios
        else None,
        users: _jain_of_groups(outcome, census.counted_by(users), lambda job: job.user),
        clusters: _jain_of_groups(
            outcome, census.counted_by(clusters), lambda job: job.vc
        ),
        "deadlines": _deadlines(census.counted_by("deadlines"), outcome.end_ns),
    }


def jain_fairness(shares: FloatArray) -> float | None:
    """Jain's index (sum x)² / (n · sum x²): 1 when all have the same, 1/n when one has all; None for no x > 0."""
    squares = float(np.dot(shares, shares))
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else None


def without_units_s(record: JobRecord, end_ns: int) -> float:
    """Seconds from a job's submission to its finish, or to `end_ns`, during which it held no units."""
    until = end_ns if record.ended_ns is None else record.ended_ns
    return (until - record.job.tsub_ns) / SECOND_NS - record.run_seconds


def longest_wait(outcome: Outcome, census: Census) -> tuple[float | None, str | None]:
    """The longest stretch, in seconds, in which a counted job held no units, and the first job with that stretch."""
    counted = {id(record) for record in census.counted_by("longest_wait_s")}
    held = outcome.allocations.sort_values(["job", "start_ns"], kind="stable")
    jobs = held["job"].to_numpy(dtype=np.int64)
    starts = held["start_ns"].to_numpy(dtype=np.int64)
    # The time until which a job has held any unit: it may hold several ranges of units at once.
    until = held.groupby("job", sort=False)["end_ns"].cummax().to_numpy(dtype=np.int64)
    longest, name = None, None
    for index, record in enumerate(outcome.records):
        if id(record) not in counted:
            continue
        rows = slice(*np.searchsorted(jobs, (index, index + 1)))
        end = outcome.end_ns if record.ended_ns is None else record.ended_ns
        # From each hold's end to the next one's start.
        gaps = np.append(np.minimum(starts[rows], end), end) - np.append(
            record.job.tsub_ns, until[rows]
        )
        wait = max(0, int(gaps.max())) / SECOND_NS
        if longest is None or wait > longest:
            longest, name = wait, record.job.name if wait else None
    return longest, name


def ideal_rate(job: Job, units: float) -> float:
    """Samples/s of a job on `units` units on average: at its best size, for part of the time.

    At n > `units` units it runs for `units` / n of the time: max over n of P(n) · min(1, units / n).

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 2, 4], [0, 20, 30])
    >>> job = Job("a", 0, 2, 4, pmax=100.0, tcup_s=0, tcdw_s=0, scalability=curve, objective=curve)
    >>> ideal_rate(job, 1), ideal_rate(job, 2.4), ideal_rate(job, 9)  # half of the time on 2; 80 % of it on 3; on 4
    (10.0, 20.0, 30.0)
    """
    sizes = np.arange(max(job.jmin, 1), job.jmax + 1)
    return float((job.rates[sizes] * np.minimum(1.0, units / sizes)).max())


def _finish_time_fairness(
    outcome: Outcome, records: Sequence[JobRecord]
) -> Iterable[float]:
    """Return each finished job's time in the system, relative to the time on an equal share of the units."""
    for offered, members in _shared_by(outcome, records):
        begin = np.array(
            [max(record.job.tsub_ns, outcome.start_ns) for record in members],
            dtype=np.int64,
        )
        end = np.array(
            [outcome.end_ns if r.ended_ns is None else r.ended_ns for r in members],
            dtype=np.int64,
        )
        seconds = (end - begin) / SECOND_NS
        units = offered(end) - offered(begin)
        present = _integral(begin, end, outcome.start_ns)
        jobs = present(end) - present(
            begin
        )  # job-seconds in the system during its time, its own included
        for record, took, unit_s, job_s in zip(
            members, seconds, units, jobs, strict=True
        ):
            if record.finish_ns is not None and took > 0:
                yield took * ideal_rate(record.job, unit_s / job_s) / record.job.pmax


def _shared_by(
    outcome: Outcome, records: Sequence[JobRecord]
) -> Iterable[tuple[Callable[[NDArray[np.int64]], FloatArray], Sequence[JobRecord]]]:
    """Jobs by the units that they share: the unit-seconds offered by an instant, and the jobs."""
    steps = outcome.steps
    if "vc" not in steps:
        yield _idle_unit_seconds(outcome.trace), records
        return
    # Virtual clusters are fixed: their units are idle for the whole window.
    sizes = steps["idle"].groupby(steps["vc"].fillna(""), sort=False).max().to_dict()
    sizes.pop(_PROFILER, None)
    for name, units in sizes.items():
        members = [
            record for record in records if len(sizes) == 1 or record.job.vc == name
        ]
        yield (
            (lambda at, units=units: units * (at - outcome.start_ns) / SECOND_NS),  # type: ignore[misc]
            members,
        )


def _idle_unit_seconds(trace: NodeTrace) -> Callable[[NDArray[np.int64]], FloatArray]:
    """Units that have been idle by an instant (UTC ns), integrated over time."""
    edges = np.concatenate([[trace.start], trace.times, [trace.end]]) - trace.start
    counts = np.concatenate([[0], trace.idle_units()])
    cumulated = np.concatenate([[0.0], np.cumsum(counts * np.diff(edges) / SECOND_NS)])
    return lambda at: np.interp(
        np.asarray(at - trace.start, np.float64), edges.astype(np.float64), cumulated
    )


def _integral(
    begin: NDArray[np.int64], end: NDArray[np.int64], origin: int
) -> Callable[[NDArray[np.int64]], FloatArray]:
    """The number of spans that contain an instant, integrated over time from `origin` (UTC ns), in seconds."""

    def since(edges: NDArray[np.int64]) -> Callable[[FloatArray], FloatArray]:
        ordered = np.sort(edges - origin) / SECOND_NS
        sums = np.concatenate([[0.0], np.cumsum(ordered)])

        def until(at: FloatArray) -> FloatArray:
            passed = np.searchsorted(ordered, at)
            result: FloatArray = passed * at - sums[passed]
            return result

        return until

    begun, over = since(begin), since(end)
    return lambda at: begun((at - origin) / SECOND_NS) - over((at - origin) / SECOND_NS)


def _waiting_over_length(
    records: Sequence[JobRecord], end_ns: int
) -> dict[str, float] | None:
    """Share of the jobs that held no units for more than k times their length, for each k.

    A job's length is its run time alone, on the units that a rigid policy gives it (`Job.request`).
    """
    ratios = []
    for record in records:
        rate = float(record.job.rates[record.job.request])
        if rate:
            ratios.append(without_units_s(record, end_ns) * rate / record.job.pmax)
    if not ratios:
        return None
    return {
        f"{k} x": sum(ratio > k for ratio in ratios) / len(ratios) for k in WAIT_FACTORS
    }


def _jain_of_groups(
    outcome: Outcome, records: Sequence[JobRecord], of: Callable[[Job], str]
) -> float | None:
    """Jain's index over the units that each group held on average while any of its jobs was in the system."""
    groups: defaultdict[str, list[JobRecord]] = defaultdict(list)
    for record in records:
        if of(record.job):
            groups[of(record.job)].append(record)
    held = []
    for members in groups.values():
        spans = sorted(
            (
                max(r.job.tsub_ns, outcome.start_ns),
                outcome.end_ns if r.ended_ns is None else r.ended_ns,
            )
            for r in members
        )
        there, until = 0, outcome.start_ns
        for begin, end in spans:
            there += max(0, end - max(begin, until))
            until = max(until, end)
        if there:
            held.append(
                math.fsum(record.unit_seconds for record in members)
                / (there / SECOND_NS)
            )
    return jain_fairness(np.array(held))


def _deadlines(records: Sequence[JobRecord], end_ns: int) -> dict[str, Any] | None:
    """Count jobs that met, missed, or may still meet their deadlines, and sum up how late the late jobs were.

    Jobs that a workload has cancelled did neither.
    """
    due = [
        (record, record.job.deadline_ns)
        for record in records
        if record.job.deadline_ns is not None
    ]
    if not due:
        return None
    done = [
        (record.finish_ns, deadline)
        for record, deadline in due
        if record.finish_ns is not None
    ]
    under_way = [deadline for record, deadline in due if record.ended_ns is None]
    late = [
        (finish - deadline) / SECOND_NS
        for finish, deadline in done
        if finish > deadline
    ]
    late += [
        (end_ns - deadline) / SECOND_NS for deadline in under_way if end_ns > deadline
    ]
    met = sum(finish <= deadline for finish, deadline in done)
    return {
        "jobs": len(due),
        "met": met,
        "missed": len(late),
        "open": sum(deadline >= end_ns for deadline in under_way),
        "cancelled": sum(record.cancelled_ns is not None for record, _ in due),
        "late_s": spread_to("longest", late),
    }
