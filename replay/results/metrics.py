"""The metrics of a replay's outcome, and how long jobs waited and how evenly they were served (docs/results.md).

**Work**

- `outcome`: samples done, with all costs deducted.
  Each lost sample counts under one cause: `preemption_cost` (Tcdw × rate; a rigid job's work since its last checkpoint;
  stalls after preemptions), `rescale_cost` (cost model `bftrainer`), `stall_cost` (cost model `stall`, for rescales and
  starts), `start_cost` and `restart_cost` (the overhead of first starts; of later ones and of moves).
- `return_on_rescale`: the gain of rescaled jobs from their higher rates, until the next decision, divided by the cost
  of their rescales; null if no rescale had a cost.
- Counts: `decisions`, `decisions_by_status`, `preemptions`, `rescales`; `verified` answers that the exact DP checked,
  and `verify_mismatches` that were proven invalid.
  `interrupted` tells whether the replay was cut short.
- `decisions_unproven`, where there are any (`feasible`, `fallback`): `count`, `gap_mean`, `gap_largest`,
  `without_bound`.
- `bound`, `share_of_bound`, `bounds`: what no policy can exceed; `advised`: the options to set where more than 5 % of
  the bound is left, null where none is known to help.
- With `--workload`: `search`. With `--option admission`: `admission`.

**Units**

- `offered_unit_s`: idle units, integrated over the whole trace; `resource_integral_unit_s`: over the window.
  `used_unit_s` = ∫ used units (a shared unit counts once), `unit_hours` the same in hours; `used_share` = used_unit_s /
  resource_integral_unit_s.
- `kinds`, with `--option kinds`: `units`, `idle_unit_s`, `used_unit_s` and `used_share` of each kind.
- `classes`, where the trace states several: `nodes`, `idle_share` and `idle_mean` (idle nodes, or units, on average) of
  each.
- `eq_nodes` = resource-integral / (units per node × duration of the window); units where the nodes of virtual clusters
  differ in size.
- `U` = W(t) / D(t), t = `U_at`.
  W(t) is the work of the jobs up to then; D(t) (`dedicated_outcome`) is that under the same policy on
  `dedicated_nodes` nodes that are idle for the whole window: a second replay, which `--no-u` skips.
  `U_at` is the end of the window or, if all submitted jobs finish earlier in either of the two, the earlier of the two
  last finishes.
  From 5 eq-nodes on, `dedicated_nodes` is round(eq_nodes).
  With fewer, D is interpolated between replays on the whole numbers around e = eq_nodes, D = (⌈e⌉ − e)·D⌊e⌋ + (e −
  ⌊e⌋)·D⌈e⌉ with D0 = 0.
- `fragments`: how many idle fragments lasted more than `from_s` and at most `to_s` seconds, and their node-time
  `node_s`.
- `share_outliving_startup`: part of the window's idle node-time left if each fragment lost its first t seconds.

**Times of jobs** (`jobs`, `jobs_submitted`, `jobs_started`, `jobs_finished` count them)

- `jct_s`, `queueing_s` (mean, median, p95, p99; of jobs that finished, that started); `jct_to_end_mean_s` (mean over
  the jobs `in_system`; those not done count to the end, cancelled ones until then); `makespan_s` (if all finished).
- `without_units_s` (the same and the longest): seconds from the submission to the finish, or the replay's end, without
  units.
  `longest_wait_s`, `longest_wait_job`: the longest single such stretch, and its job.
- `waiting_over_length`: share of the jobs without units for more than 1, 3 and 10 times their run time alone.
- `restarts_per_job`: how often a job got units again, over the jobs that started.
- `deadlines` (null if no job has one): `jobs` with a deadline, `met`, `missed`, `open` (not finished, and not due),
  `cancelled` by a workload; `late_s`: how late those were that missed it; unfinished ones count to the end.

**Fairness** (over the jobs `in_system`)

- `finish_time_fairness` (mean, median, p95, p99, largest; of jobs that finished): ρ of Themis, the job's time in the
  system divided by its time on an equal share f = ∫ idle units dt / ∫ jobs dt of its virtual cluster, over the job's
  time.
  On f units a job does max P(n) · min(1, f/n) samples/s over its sizes n.
  `finish_time_unfair_share` is the share of them with ρ > 1 (by more than rounding), served worse than by equal shares.
- `jain_fairness_of_mean_units`: Jain's index over the units that each job held on average.
  `jain_fairness_of_users`, `jain_fairness_of_virtual_clusters`: over the units that a user's (a virtual cluster's) jobs
  held together while one of them was in the system.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bft.models import Job
from bft.models.tolerances import EQUAL_SHARE
from bft.replay.engine.ledger import BOOKS, JobRecord, Outcome
from bft.replay.results.census import (
    Census,
    census_figures,
    census_of,
    counted,
    until_ns,
)
from bft.replay.results.dedicated import equivalent_nodes, usefulness
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, TimeArray
from bft.replay.trace.trace_statistics import (
    STARTUPS_S,
    fragments,
    idle_by_class,
    iso_exact,
    length_histogram,
    usable_share,
)

if TYPE_CHECKING:
    import pandas as pd


# Metrics by the attribute of a job that groups the jobs.
_JAIN_OF_GROUPS = {
    "jain_fairness_of_users": "user",
    "jain_fairness_of_virtual_clusters": "vc",
}


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
    status = outcome.steps["status"]
    decisions = status[status != "end"]
    end = outcome.end_ns
    census = census_of(outcome.records, outcome.end_ns)
    statuses = decisions.value_counts()
    integral, kinds = outcome.idle_unit_seconds, units_by_kind(outcome)
    classes = idle_by_class(outcome.trace, outcome.start_ns, outcome.end_ns)
    ratios = list(_finish_time_fairness(outcome, census["in_system"]))
    longest_s, longest_job = longest_wait(outcome, census)
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
        **({"classes": classes} if classes else {}),
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
        **_unproven(outcome.steps),
        "preemptions": sum(record.preemptions for record in records),
        "rescales": sum(record.rescales for record in records),
        "census": census_figures(census),
        **{
            name: len(counted(census, name))
            for name in ("jobs", "jobs_submitted", "jobs_started", "jobs_finished")
        },
        "jct_s": spread(
            [
                (until_ns(record, end) - record.job.tsub_ns) / SECOND_NS
                for record in counted(census, "jct_s")
            ]
        ),
        "queueing_s": spread(
            [
                (record.start_ns - record.job.tsub_ns) / SECOND_NS
                for record in counted(census, "queueing_s")
                if record.start_ns is not None
            ]
        ),
        "without_units_s": spread(
            [
                without_units_s(record, end)
                for record in counted(census, "without_units_s")
            ],
            "longest",
        ),
        "makespan_s": _makespan(counted(census, "makespan_s")),
        "restarts_per_job": mean(
            [record.starts - 1 for record in counted(census, "restarts_per_job")]
        ),
        "unit_hours": outcome.used_unit_seconds / 3600,
        "jain_fairness_of_mean_units": jain_fairness(
            [
                mean_units(record, outcome.start_ns, end)
                for record in counted(census, "jain_fairness_of_mean_units")
            ]
        ),
        "longest_wait_s": longest_s,
        "longest_wait_job": longest_job,
        "waiting_over_length": _waiting_over_length(
            counted(census, "waiting_over_length"), end
        ),
        "finish_time_fairness": spread(ratios, "largest"),
        "finish_time_unfair_share": mean([rho > 1 + EQUAL_SHARE for rho in ratios]),
        **{
            name: _jain_of_groups(outcome, counted(census, name), attrgetter(of))
            for name, of in _JAIN_OF_GROUPS.items()
        },
        "deadlines": _deadlines(counted(census, "deadlines"), end),
        **_fragments(outcome),
        "interrupted": outcome.interrupted,
    }


def _unproven(steps: pd.DataFrame) -> dict[str, Any]:
    """Count decisions that are not proven, and how far below their bounds they are; empty where all are proven."""
    unproven = steps[steps["status"].isin(("feasible", "fallback"))]
    if not len(unproven):
        return {}
    gaps = unproven["gap"].dropna()
    return {
        "decisions_unproven": {
            "count": len(unproven),
            "without_bound": len(unproven) - len(gaps),
            "gap_mean": float(gaps.mean()) if len(gaps) else None,
            "gap_largest": float(gaps.max()) if len(gaps) else None,
        }
    }


def mean_units(record: JobRecord, start_ns: int, end_ns: int) -> float:
    """Units that a job held on average while in the system: within the window, from its submission to its end."""
    begin_ns = max(record.job.tsub_ns, start_ns)
    seconds = (until_ns(record, end_ns) - begin_ns) / SECOND_NS
    return record.unit_seconds / seconds if seconds > 0 else 0.0


def _fragments(outcome: Outcome) -> dict[str, Any]:
    """Return how long nodes stay idle, and how much of that a start-up leaves; the window cuts fragments."""
    window = outcome.start_ns, outcome.end_ns
    seconds = fragments(outcome.trace).within(*window).seconds
    return {
        "fragments": length_histogram(seconds),
        "share_outliving_startup": {
            f"{s} s": usable_share(seconds, s) for s in STARTUPS_S
        },
    }


def _makespan(records: Sequence[JobRecord]) -> float | None:
    """Seconds from the first submission to the last finish; None unless all jobs have finished."""
    finishes = [record.finish_ns for record in records if record.finish_ns is not None]
    first_ns = min((record.job.tsub_ns for record in records), default=0)
    is_over = len(finishes) == len(records) > 0
    return (max(finishes) - first_ns) / SECOND_NS if is_over else None


def mean(values: Sequence[float] | FloatArray) -> float | None:
    """The mean, whatever the order of the values; None where there are none."""
    return math.fsum(values) / len(values) if len(values) else None


def units_by_kind(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Return each kind's units, idle and used unit-seconds in the window, and their ratio; empty without kinds."""
    trace = outcome.trace
    if not trace.kinds:
        return {}
    held = {name: of.to_numpy(np.int64) for name, of in outcome.allocations.items()}
    ends = held["end_ns"].clip(max=outcome.end_ns)
    spans = (ends - held["start_ns"].clip(min=outcome.start_ns)).clip(min=0)
    units = held["last_unit"] - held["first_unit"] + 1
    # Units that a job gets together and that are neighbours are of one kind: a job has units of one kind at a time.
    of = np.array(trace.kinds)[held["first_unit"] // trace.units_per_node]
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
        # Whole seconds and the rest apart: the sums of whole numbers are exact.
        whole_s, rest_ns = np.divmod(spans[of == kind], SECOND_NS)
        held_units = units[of == kind]
        used = float(held_units @ whole_s + (held_units @ rest_ns) / SECOND_NS)
        result[kind] = {
            "units": sum(
                size
                for size, other in zip(sizes, trace.kinds, strict=True)
                if other == kind
            ),
            "idle_unit_s": idle,
            "used_unit_s": used,
            "used_share": used / idle if idle else None,
        }
    return result


def spread(values: list[float], top: str | None = None) -> dict[str, float] | None:
    """Mean, median, p95, p99 and, under the name `top`, the largest; None where there are no values."""
    if not values:
        return None
    p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
    found = {
        "mean": math.fsum(values) / len(values),
        "median": p50,
        "p95": p95,
        "p99": p99,
    }
    return found if top is None else {**found, top: max(values)}


FloatArray = NDArray[np.float64]
# For each factor: the share of jobs that waited longer than this factor times their length.
WAIT_FACTORS = (1, 3, 10)
# The virtual cluster of nodes on which jobs are only profiled (policies/lucid): part of no share.
_PROFILER = "profiler"


def jain_fairness(shares: Sequence[float]) -> float | None:
    """Jain's index (sum x)² / (n · sum x²): 1 when all have the same, 1/n when one has all; None for no x > 0."""
    squares = math.fsum(share * share for share in shares)
    return math.fsum(shares) ** 2 / (len(shares) * squares) if squares else None


def without_units_s(record: JobRecord, end_ns: int) -> float:
    """Seconds from a job's submission to its finish, or to `end_ns`, during which it held no units."""
    return (
        until_ns(record, end_ns) - record.job.tsub_ns
    ) / SECOND_NS - record.run_seconds


def longest_wait(outcome: Outcome, census: Census) -> tuple[float | None, str | None]:
    """The longest stretch, in seconds, in which a counted job held no units, and the first job with that stretch."""
    records = outcome.records
    ends = np.array([until_ns(record, outcome.end_ns) for record in records])
    # The time until which a job has held any unit: it may hold several ranges of units at once.
    until = np.array([record.job.tsub_ns for record in records])
    gaps = np.zeros(len(records), dtype=np.int64)
    for part in outcome.holds():
        jobs = part["job"]
        first = np.flatnonzero(np.append(True, jobs[1:] != jobs[:-1])[: len(jobs)])
        for begin, end in pairwise([*first.tolist(), len(jobs)]):
            job = int(jobs[begin])
            held = np.maximum.accumulate(
                np.append(until[job], part["end_ns"][begin:end])
            )
            # From each hold's end to the next one's start.
            waits = np.minimum(part["start_ns"][begin:end], ends[job]) - held[:-1]
            gaps[job] = max(gaps[job], waits.max())
            until[job] = held[-1]
    longest_ns = dict(
        zip(map(id, records), np.maximum(gaps, ends - until).tolist(), strict=True)
    )
    waiting = counted(census, "longest_wait_s")
    if not waiting:
        return None, None
    longest = max(waiting, key=lambda record: longest_ns[id(record)])
    wait_s = longest_ns[id(longest)] / SECOND_NS
    return wait_s, longest.job.name if wait_s else None


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
    """Return each finished job's time in the system, relative to the time on an equal share of the units.

    References
    ----------
    Mahajan et al., Themis: Fair and Efficient GPU Cluster Scheduling, NSDI 2020, section 3.
    """
    for offered, members in _shared_by(outcome, records):
        begin = np.array(
            [max(record.job.tsub_ns, outcome.start_ns) for record in members],
            dtype=np.int64,
        )
        end = np.array(
            [until_ns(record, outcome.end_ns) for record in members], dtype=np.int64
        )
        seconds = (end - begin) / SECOND_NS
        units = offered(end) - offered(begin)
        # Job-seconds in the system during the time of each, its own included.
        by_end, by_begin = (
            _integral(begin, at, outcome.start_ns)
            - _integral(end, at, outcome.start_ns)
            for at in (end, begin)
        )
        jobs = by_end - by_begin
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


def _integral(since: TimeArray, at: TimeArray, origin: int) -> FloatArray:
    """How many of the instants `since` have passed, integrated over time from `origin` to `at` (UTC ns), in seconds."""
    ordered, now = np.sort(since - origin) / SECOND_NS, (at - origin) / SECOND_NS
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    passed = np.searchsorted(ordered, now)
    result: FloatArray = passed * now - sums[passed]
    return result


def _waiting_over_length(
    records: Sequence[JobRecord], end_ns: int
) -> dict[str, float] | None:
    """Share of the jobs that held no units for more than k times their length, for each k.

    A job's length is its run time alone, on the units that a rigid policy gives it (`Job.request`).
    """
    ratios = [
        without_units_s(record, end_ns) * rate / record.job.pmax
        for record in records
        if (rate := float(record.job.rates[record.job.request]))
    ]
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
                max(record.job.tsub_ns, outcome.start_ns),
                until_ns(record, outcome.end_ns),
            )
            for record in members
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
    return jain_fairness(held)


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
        "late_s": spread(late, "longest"),
    }
