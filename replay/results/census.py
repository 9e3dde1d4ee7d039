"""The census of a replay: which of its jobs every metric and bound counts (docs/results.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, get_args

from bft.replay.engine.ledger import JobRecord, Outcome

Group = Literal[
    "jobs", "submitted", "left_out", "refused", "submitted_at_the_end", "in_system", "runnable", "started", "finished",
    "cancelled",
]  # fmt: skip
"""The groups of a census, see `Census`."""

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


@dataclass(frozen=True)
class Census:
    """The jobs of a replay, by what became of them.

    Every job is in exactly one of `left_out`, `refused`, `submitted_at_the_end` and `in_system`, unless it comes after
    the end or was cancelled before it came.

    Parameters
    ----------
    records
        All jobs, those that a workload submitted included.
    end_ns
        The end of the replay, UTC ns.

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> curve = Curve([0, 4], [0, 40])
    >>> jobs = (Job(name, at, 1, 4, 3000.0, 5.0, 5.0, curve, curve) for name, at in (("a", 0), ("b", 5), ("c", 9)))
    >>> census = Census(tuple(map(JobRecord, jobs)), end_ns=5)
    >>> {group: [record.job.name for record in census.group(group)] for group in ("submitted", "in_system")}
    {'submitted': ['a', 'b'], 'in_system': ['a']}
    """

    records: tuple[JobRecord, ...]
    end_ns: int

    @classmethod
    def of(cls, outcome: Outcome) -> Census:
        """The census of a replay."""
        return cls(outcome.records, outcome.end_ns)

    def group(self, name: Group) -> tuple[JobRecord, ...]:
        """The jobs of a group, in the order of the table.

        - `jobs`: all; `submitted`: by the end, whatever became of them then.
        - `left_out`: of these, they never run, as they need more units than there are (--oversized skip).
        - `refused`: by --admission, at their submission; they never run.
        - `submitted_at_the_end`: at the last instant, so that they had no time.
        - `in_system`: all others submitted by the end. `runnable`: these and the refused.
        - `started`, `finished`; `cancelled` by a workload, perhaps before they were submitted, which then never were.
        """
        return self._groups[name]

    def counted_by(self, metric: str) -> tuple[JobRecord, ...]:
        """The jobs that a metric counts, by `COUNTED`."""
        return self._groups[COUNTED[metric]]

    @property
    def figures(self) -> dict[str, Any]:
        """The size of each group, and the group that each metric counts, for summary.json."""
        sizes: dict[str, Any] = {name: len(of) for name, of in self._groups.items()}
        return {**sizes, "counted": dict(COUNTED)}

    @cached_property
    def _groups(self) -> dict[Group, tuple[JobRecord, ...]]:
        """Records of jobs by group, in the order of the table."""
        groups: dict[Group, list[JobRecord]] = {name: [] for name in get_args(Group)}
        for record in self.records:
            for name in self._groups_of(record):
                groups[name].append(record)
        return {name: tuple(of) for name, of in groups.items()}

    def _groups_of(self, record: JobRecord) -> Iterator[Group]:
        """The groups to which a job belongs."""
        submit_ns = record.job.tsub_ns
        yield "jobs"
        if record.cancelled_ns is not None:
            yield "cancelled"
            if record.cancelled_ns <= submit_ns:  # before it came
                return
        if submit_ns <= self.end_ns:
            yield "submitted"
        if record.refused_ns is not None:
            yield "refused"
            yield "runnable"
        elif record.left_out and submit_ns <= self.end_ns:
            yield "left_out"
        elif submit_ns == self.end_ns:
            yield "submitted_at_the_end"
        elif submit_ns < self.end_ns:
            yield "in_system"
            yield "runnable"
        if record.start_ns is not None:
            yield "started"
        if record.finish_ns is not None:
            yield "finished"
