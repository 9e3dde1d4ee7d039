"""Collects what the scheduler knew of each job: since when, for how long at most, and on how many nodes."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bft.replay.logs.hostlists import other_forms
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.walltimes import NEVER, Walltimes

# No log states when a reservation was made: it counts as announced so long before it begins.
NOTICE_NS = 86_400 * SECOND_NS
_NO_NODES = array("i")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a record states of a job; instants in UTC nanoseconds, None where it states none.

    Parameters
    ----------
    known_ns
        Since when it could run: when it became eligible, or was submitted.
    start_ns, end_ns
        When it ran; without a start, the end is when it was cancelled.
    limit_ns
        Its time limit; None: unlimited, or not stated.
    count
        Nodes that it has, or waits for.
    nodes
        By `Collector.indices`; None where it has none, or the log only counts them.
    """

    known_ns: int | None
    start_ns: int | None
    end_ns: int | None
    limit_ns: int | None
    count: int
    nodes: array[int] | None = None

    @property
    def expected_end_ns(self) -> int:
        """When the scheduler had to expect its end."""
        if self.start_ns is None or self.limit_ns is None:
            return NEVER
        return min(self.start_ns + self.limit_ns, NEVER)


class Plans:
    """Plans of jobs, and reservations; several records of one run are one plan, that of the latest end."""

    def __init__(self) -> None:
        self._begun: dict[tuple[Hashable, int], Plan] = {}
        self._waiting: dict[tuple[Hashable, int], Plan] = {}
        self._last_start: dict[Hashable, int] = {}
        self._reserved: dict[tuple[int, int | None, bytes], array[int]] = {}

    def job(self, key: Hashable, plan: Plan) -> None:
        """Add what a record states of a job; one that neither waited nor ran, or on no nodes, is left out."""
        known = plan.start_ns if plan.known_ns is None else plan.known_ns
        if (
            known is None
            or plan.count < 1
            or (plan.end_ns is not None and plan.end_ns < (plan.start_ns or known))
        ):
            return
        start_ns = plan.start_ns
        if start_ns is None:
            before = self._waiting.get((key, known))
            if before is None or before.end_ns is None:
                self._waiting[key, known] = replace(plan, known_ns=known)
            return
        plan = replace(plan, known_ns=min(known, start_ns))
        self._last_start[key] = max(start_ns, self._last_start.get(key, start_ns))
        other = self._begun.get((key, start_ns))
        if other is None:
            self._begun[key, start_ns] = plan
        elif other.end_ns is None or (
            plan.end_ns is not None and plan.end_ns > other.end_ns
        ):
            limit_ns = other.limit_ns if plan.limit_ns is None else plan.limit_ns
            first = min(known, other.known_ns or known)
            self._begun[key, start_ns] = replace(
                plan, known_ns=first, limit_ns=limit_ns
            )

    def reservation(self, nodes: array[int], start_ns: int, end_ns: int | None) -> None:
        """Add a reservation."""
        self._reserved[start_ns, end_ns, nodes.tobytes()] = nodes

    def _whole(self) -> Iterator[Plan]:
        """Plans of the jobs that began; one without an end had ended when the same job began again."""
        next_starts = _next_starts(self._begun)
        for run, plan in self._begun.items():
            next_start_ns = next_starts.get(run)
            if plan.end_ns is None and next_start_ns is not None:
                yield replace(plan, end_ns=next_start_ns)
            else:
                yield plan

    def walltimes(
        self, names: dict[str, int], listed: set[int], owners: dict[int, str]
    ) -> Walltimes:
        """All of them, in order of when they were known; nodes by the names that the trace has for them."""
        forms = other_forms(list(names), listed, owners)
        rows = [(False, plan.known_ns or 0, plan) for plan in self._whole()]
        # What waited without an end in one file may have begun in another.
        rows += [
            (False, known, plan)
            for (key, known), plan in self._waiting.items()
            if plan.end_ns is not None or self._last_start.get(key, -1) < known
        ]
        for (start, end, _), nodes in self._reserved.items():
            stays = Plan(
                start - NOTICE_NS,
                start,
                end,
                None if end is None else end - start,
                len(nodes),
                nodes,
            )
            rows.append((True, start - NOTICE_NS, stays))
        rows.sort(
            key=lambda row: (
                row[1],
                row[0],
                row[2].start_ns or NEVER,
                row[2].count,
                row[2].nodes or _NO_NODES,
            )
        )
        plans = [plan for _, _, plan in rows]
        flat = np.frombuffer(
            b"".join((plan.nodes or _NO_NODES).tobytes() for plan in plans),
            dtype=np.int32,
        )
        place = np.arange(len(names), dtype=np.int32)
        place[list(forms)] = list(forms.values())
        used, nodes_of = np.unique(place[flat], return_inverse=True)
        every = list(names)
        return Walltimes(
            tuple(every[node] for node in used),
            np.array([is_reserved for is_reserved, _, _ in rows], dtype=bool),
            known=np.array([known for _, known, _ in rows], dtype=np.int64),
            start=np.array(
                [NEVER if plan.start_ns is None else plan.start_ns for plan in plans],
                dtype=np.int64,
            ),
            end=np.array(
                [NEVER if plan.end_ns is None else plan.end_ns for plan in plans],
                dtype=np.int64,
            ),
            expected_end=np.array(
                [plan.expected_end_ns for plan in plans], dtype=np.int64
            ),
            count=np.array([plan.count for plan in plans], dtype=np.int64),
            nodes=nodes_of.astype(np.int32),
            offsets=np.cumsum(
                [0, *(len(plan.nodes or _NO_NODES) for plan in plans)], dtype=np.int64
            ),
        )


def _next_starts(
    runs: Iterable[tuple[Hashable, int]],
) -> dict[tuple[Hashable, int], int]:
    """Map each run (job and start) that is not the last of its job to the start of the next one."""
    starts_of: dict[Hashable, list[int]] = {}
    for job, start_ns in runs:
        starts_of.setdefault(job, []).append(start_ns)
    following: dict[tuple[Hashable, int], int] = {}
    for job, starts in starts_of.items():
        for start_ns, next_start_ns in pairwise(sorted(starts)):
            following[job, start_ns] = next_start_ns
    return following
