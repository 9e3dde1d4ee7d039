"""The census of a replay: which of its jobs every metric and bound counts (docs/results.md)."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from bft.replay.engine.ledger import JobRecord

Group = Literal[
    "jobs", "submitted", "left_out", "refused", "submitted_at_the_end", "in_system", "runnable", "started", "finished",
    "cancelled",
]  # fmt: skip
"""The groups of a census, see `census_of`."""

COUNTED: Mapping[str, Group] = MappingProxyType(
    {
        "jobs": "jobs",
        "jobs_submitted": "submitted",
        "jobs_started": "started",
        "jobs_finished": "finished",
        "outcome": "runnable",
        "jct_s": "finished",
        "queueing_s": "started",
        "restarts_per_job": "started",
        "makespan_s": "jobs",
        "without_units_s": "in_system",
        "longest_wait_s": "in_system",
        "waiting_over_length": "in_system",
        "finish_time_fairness": "finished",
        "jain_fairness_of_mean_units": "in_system",
        "jain_fairness_of_users": "in_system",
        "jain_fairness_of_virtual_clusters": "in_system",
        "deadlines": "in_system",
        "jct_to_end_mean_s": "in_system",
        "bound": "runnable",
        "bounds.jct_mean_s": "in_system",
        "bounds.makespan_s": "jobs",
    }
)
"""The group of jobs that each metric, and each bound, counts."""


def until_ns(record: JobRecord, end_ns: int) -> int:
    """The last instant at which a job is in the system of a replay that ends at `end_ns`, UTC ns."""
    return end_ns if record.ended_ns is None else record.ended_ns


Census: TypeAlias = Mapping[Group, tuple[JobRecord, ...]]
"""The jobs of each group, in the order of the table; see `census_of`."""


def census_of(records: Iterable[JobRecord], end_ns: int) -> Census:
    """The jobs of a replay that ends at `end_ns` (UTC ns), those that a workload submitted included, by group.

    Every job is in exactly one of `left_out`, `refused`, `submitted_at_the_end` and `in_system`, unless it comes after
    the end or was cancelled before it came.

    - `jobs`: all; `submitted`: by the end, whatever became of them then.
    - `left_out`: of these, they never run, as they need more units than there are (--option oversized=skip).
    - `refused`: by --option admission, at their submission; they never run.
    - `submitted_at_the_end`: at the last instant, so that they had no time.
    - `in_system`: all others submitted by the end. `runnable`: these and the refused.
    - `started`, `finished`; `cancelled` by a workload, perhaps before they were submitted, which then never were.

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> curve = Curve([0, 4], [0, 40])
    >>> jobs = (Job(name, at, 1, 4, 3000.0, 5.0, 5.0, curve, curve) for name, at in (("a", 0), ("b", 5), ("c", 9)))
    >>> census = census_of(map(JobRecord, jobs), end_ns=5)
    >>> {group: [record.job.name for record in census[group]] for group in ("submitted", "in_system")}
    {'submitted': ['a', 'b'], 'in_system': ['a']}
    """
    groups: dict[Group, list[JobRecord]] = {name: [] for name in get_args(Group)}
    for record in records:
        for name, is_in in _groups_of(record, end_ns).items():
            if is_in:
                groups[name].append(record)
    return {name: tuple(of) for name, of in groups.items()}


def counted(census: Census, metric: str) -> tuple[JobRecord, ...]:
    """The jobs that a metric counts, by `COUNTED`."""
    return census[COUNTED[metric]]


def census_figures(census: Census) -> dict[str, Any]:
    """The size of each group, and the group that each metric counts, for summary.json."""
    sizes: dict[str, Any] = {name: len(of) for name, of in census.items()}
    return {**sizes, "counted": dict(COUNTED)}


def _groups_of(record: JobRecord, end_ns: int) -> dict[Group, bool]:
    """Whether a job belongs to each group."""
    submit_ns, cancelled_ns = record.job.tsub_ns, record.cancelled_ns
    comes = cancelled_ns is None or cancelled_ns > submit_ns
    is_submitted = comes and submit_ns <= end_ns
    is_refused = comes and record.refused_ns is not None
    may_run = comes and not (is_refused or record.left_out)
    in_system = may_run and submit_ns < end_ns
    return {
        "jobs": True,
        "submitted": is_submitted,
        "left_out": is_submitted and record.left_out and not is_refused,
        "refused": is_refused,
        "submitted_at_the_end": may_run and submit_ns == end_ns,
        "in_system": in_system,
        "runnable": in_system or is_refused,
        "started": record.start_ns is not None,
        "finished": record.finish_ns is not None,
        "cancelled": cancelled_ns is not None,
    }
