"""Fixed clusters and their virtual clusters: pools that share nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from bft.models import InputError, Job, JobTable, read_table
from bft.models.cells import Rows
from bft.models.checks import Nodes, check_total, cluster_nodes
from bft.replay.engine.ledger import HELD, HELD_ORDER, JobRecord, Outcome
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, always_idle
from bft.replay.trace.outlook import Outlook


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes, and the jobs that may use them and no others.

    Parameters
    ----------
    name
        Of the virtual cluster; empty where all is one pool.
    trace
        When its nodes are idle.
    jobs
        Its jobs.
    positions
        Of its jobs in the table of all.
    fixed
        Whether it is a part of a fixed cluster: always idle, and observed for as long as the replay takes.
    outlook
        Until when its nodes may be expected to stay idle, for policies that look at it; None: nothing is known.
    """

    name: str
    trace: NodeTrace
    jobs: JobTable
    positions: tuple[int, ...]
    fixed: bool = False
    outlook: Outlook | None = None

    def of(self, table: JobTable) -> Pool:
        """Return this pool with the jobs of another table at the same positions."""
        own = JobTable(
            tuple(table.jobs[position] for position in self.positions), table.source
        )
        return replace(self, jobs=own)


class Stage(Protocol):
    """The stage that jobs went through before they come to their pools."""

    @property
    def jobs(self) -> JobTable:
        """The jobs that are left for the pools."""

    def joined(self, pools: Outcome | None) -> Outcome:
        """Join the outcomes of the stage and of the pools; None: no job was left for them."""


@runtime_checkable
class Prepares(Protocol):
    """A policy that wants to know more of jobs than their table says, such as what a model predicts of them."""

    def prepare(self, jobs: JobTable) -> JobTable:
        """Return the jobs with further columns in `Job.extra`."""


@runtime_checkable
class StagesBefore(Protocol):
    """A policy of fixed clusters that does something with jobs before they come to their pools."""

    def stage_before(
        self, jobs: JobTable, *, start_ns: int, end_ns: int, units_per_node: int
    ) -> Stage | None:
        """Run the stage and return its result; None: there is no stage."""


def cluster_pools(cluster: str, jobs: JobTable) -> list[Pool]:
    """Pools of a fixed cluster.

    Parameters
    ----------
    cluster
        NODESxUNITS, such as 8x8, or with kinds of units 6x4:t4+2x8:a100: one pool. Or a CSV file with the columns
        vc, nodes, units_per_node: one pool a row, for the jobs of that virtual cluster.
    jobs
        All jobs.

    Raises
    ------
    InputError
        When it is neither, or a job has no pool.
    """
    whole = cluster_nodes(cluster)
    sizes = _read_sizes(cluster) if whole is None else {"": whole}
    if not all(
        part.nodes > 0 and part.units > 0 for parts in sizes.values() for part in parts
    ):
        raise InputError(f"a cluster needs nodes and units on them, not {cluster}")
    members: dict[str, list[int]] = {name: [] for name in sizes}
    for position, job in enumerate(jobs):
        name = job.vc if whole is None else ""
        if name not in members:
            what = f"its virtual cluster {name!r} is none of {', '.join(sizes)[:200]}"
            raise InputError(what, file=cluster, column="vc", job=job.name)
        members[name].append(position)
    pools = []
    for name, positions in members.items():
        if positions:
            own = JobTable(tuple(jobs.jobs[each] for each in positions), jobs.source)
            trace = _always_idle(sizes[name], own.jobs, name or cluster)
            pools.append(Pool(name, trace, own, tuple(positions), fixed=True))
    return pools


def _always_idle(
    parts: Sequence[Nodes], jobs: Sequence[Job], machine: str
) -> NodeTrace:
    """The trace of a pool: its nodes in the order of the parts, idle from the first job on for as long as it may take.

    Any schedule that leaves no pool empty has ended when all jobs in turn have run at their lowest rates. A policy that
    never runs some job must end some time, too.
    """
    serial = 0.0
    for job in jobs:
        rates = np.concatenate([job.on(kind).rates for kind in ("", *job.by_kind)])
        lowest = rates[rates > 0].min(initial=math.inf)
        serial += job.pmax / float(lowest)
    seconds = min(10 * serial + 86_400.0 * 30, 3e9)
    start = min(job.tsub_ns for job in jobs)
    end = max(job.tsub_ns for job in jobs) + round(seconds) * SECOND_NS
    most = max(part.units for part in parts)
    nodes = sum(part.nodes for part in parts)
    trace = always_idle(nodes, start, end, units_per_node=most, machine=machine)
    if parts[0].kind:
        kinds = [part.kind for part in parts for _ in range(part.nodes)]
        trace = replace(trace, kinds=tuple(kinds))
    if any(part.units < most for part in parts):
        units = [part.units for part in parts for _ in range(part.nodes)]
        trace = replace(trace, node_units=tuple(units))
        members = trace.members()
        offsets = np.array([0, len(members)], dtype=np.int64)
        trace = replace(trace, joined=members, joined_at=offsets)
    return trace


def _read_sizes(path: str) -> dict[str, list[Nodes]]:
    if not Path(path).exists():
        raise InputError(
            "expected NODESxUNITS such as 8x8 or 6x4:t4+2x8:a100, or a file with the columns vc, nodes, units_per_node",
            file=path,
        )
    sizes: dict[str, list[Nodes]] = {}
    total = 0
    for row in Rows(read_table(path), path).require(("vc", "nodes", "units_per_node")):
        nodes, units = (
            row.whole(column, min=1) for column in ("nodes", "units_per_node")
        )
        name = row.name("vc")
        if name in sizes:
            raise row.error("vc", f"the virtual cluster {name!r} appears twice")
        sizes[name] = [Nodes(nodes, units, "")]
        total += nodes * units
        check_total(total, path)
    return sizes


def merge(
    pools: Sequence[Pool], outcomes: Sequence[Outcome], jobs: JobTable
) -> Outcome:
    """Merge the outcomes of all pools: records in the order of the table, units numbered on from pool to pool.

    Its window begins with the first job of any pool and ends with the last pool's replay; all pools offer their units
    for all of it.
    """
    if len(outcomes) == 1 and len(pools[0].positions) == len(jobs):
        outcome = outcomes[0]
        if pools[0].fixed:
            trace = replace(outcome.trace, end=outcome.end_ns)
            outcome = replace(outcome, trace=trace)
        return outcome
    records = {
        position: record
        for pool, outcome in zip(pools, outcomes, strict=True)
        for position, record in zip(pool.positions, outcome.records, strict=True)
    }
    named = [
        replace(outcome, steps=outcome.steps.assign(vc=pool.name))
        for pool, outcome in zip(pools, outcomes, strict=True)
    ]
    sizes = [len(pool.trace.nodes) * pool.trace.units_per_node for pool in pools]
    first_units = list(accumulate(sizes, initial=0))[:-1]
    return joint(
        named,
        [pool.positions for pool in pools],
        first_units,
        tuple(records[position] for position in sorted(records)),
    )


def joint(
    outcomes: Sequence[Outcome],
    positions: Sequence[Sequence[int]],
    first_units: Sequence[int],
    records: tuple[JobRecord, ...],
) -> Outcome:
    """Join the outcomes of several fixed clusters, which all offer their units for all of the joint window.

    Parameters
    ----------
    outcomes
        Of each cluster; at one instant the steps of the first come first.
    positions
        Of the jobs of each outcome in the table of all.
    first_units
        The number that the first unit of each outcome gets.
    records
        Of all jobs.
    """
    import pandas as pd

    held = []
    for outcome, own, first in zip(outcomes, positions, first_units, strict=True):
        moved = outcome.allocations.copy()
        moved["job"] = np.array(own, dtype=np.int64)[moved["job"].to_numpy()]
        moved[["first_unit", "last_unit"]] += first
        held.append(moved)
    rows = pd.concat(held).sort_values(list(HELD_ORDER), ignore_index=True)
    columns = {name: rows[name].to_numpy() for name in HELD}
    # Clusters without jobs have no window.
    some = [one for one in outcomes if one.end_ns > one.start_ns] or outcomes
    start, end = min(one.start_ns for one in some), max(one.end_ns for one in some)
    traces = [outcome.trace for outcome in outcomes]
    units = sum(len(trace.nodes) * trace.units_per_node for trace in traces)
    sizes = {trace.units_per_node for trace in traces}
    per = sizes.pop() if len(sizes) == 1 else 1
    trace = always_idle(units // per, start, end, units_per_node=per)
    steps = pd.concat([outcome.steps for outcome in outcomes])
    return Outcome(
        trace=trace,
        start_ns=start,
        end_ns=end,
        records=records,
        steps=steps.sort_values("time", kind="stable", ignore_index=True),
        holds=lambda: [columns],
        idle_unit_seconds=trace.idle_unit_seconds(),
        used_unit_seconds=math.fsum(outcome.used_unit_seconds for outcome in outcomes),
        extra_gain=math.fsum(outcome.extra_gain for outcome in outcomes),
        paid=math.fsum(outcome.paid for outcome in outcomes),
        decision_seconds=np.concatenate([one.decision_seconds for one in outcomes]),
        interrupted=any(outcome.interrupted for outcome in outcomes),
    )
