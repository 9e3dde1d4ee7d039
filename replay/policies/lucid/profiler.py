"""Lucid's profiler: a small partition where each job runs for its first minutes, ahead of its pool (ASPLOS'23)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from bft.models import Job, JobTable
from bft.replay.engine.ledger import JobRecord, Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.policy_api import Decision, State, Traits
from bft.replay.engine.rules import Rules
from bft.replay.engine.snapshot import StoredState
from bft.replay.engine.units import FreeList
from bft.replay.policies.lucid.submissions import ForecastTable, RecentSubmissions
from bft.replay.policies.rigid import start
from bft.replay.pools import joint
from bft.replay.trace.node_trace import SECOND_NS, always_idle

# The column in which a job states that its profile is known at submission.
PROFILED = "profiled"


@dataclass
class LucidProfiler(StoredState):
    """Fewest units first, on a partition that grows when jobs pile up; the policy of the partition's own replay.

    The head of the queue blocks. The partition is as large as the machine of its replay; of that, the last
    `spare_nodes` are used only while it has grown.

    Parameters
    ----------
    spare_nodes
        Number of nodes by which it grows.
    grow_above, shrink_below
        It grows when more jobs than `grow_above` wait. It shrinks again when fewer than `shrink_below` wait, the spare
        nodes are free, and
    quiet_units
        at most this many units are expected per ten minutes.
    forecast
        Gives that expectation; None: the recent number of submissions.
    """

    spare_nodes: int = 1
    grow_above: int = 10
    shrink_below: int = 5
    quiet_units: float = 40.0
    forecast: ForecastTable | None = None
    name: str = field(default="lucid-profiler", init=False)
    traits: ClassVar[Traits] = Traits(rigid=True)
    _grown: bool = field(default=False, init=False, repr=False)
    _recent: RecentSubmissions = field(
        default_factory=RecentSubmissions, init=False, repr=False
    )

    def decide(self, state: State) -> Decision:
        """Grow or shrink, then start the jobs that fit."""
        self._recent.see(state.jobs)
        per = state.machine.units_per_node
        base = (state.machine.nodes - self.spare_nodes) * per
        held = {unit for view in state.jobs for unit in view.held}
        waiting = list(state.jobs.waiting)
        if (
            self._grown
            and len(waiting) < self.shrink_below
            and not any(unit >= base for unit in held)
        ):
            expected = (self.forecast or self._recent).expect(state.time_ns)
            self._grown = expected.units > self.quiet_units
        waiting.sort(key=lambda position: state.jobs[position].job.request)

        def started(units: int) -> Decision:
            free = [unit for unit in range(units) if unit not in held]
            places = FreeList(free, per)
            return start(
                state, waiting, spreads=lambda job: False, blocks=True, places=places
            )

        decision = started(base + self._grown * self.spare_nodes * per)
        left = len(waiting) - len(decision.placement or ())
        if not self._grown and left > self.grow_above:
            self._grown = True
            decision = started(base + self.spare_nodes * per)
        return decision


@dataclass(frozen=True, eq=False)
class Profiled:
    """The jobs that the profiler leaves to the pools, and its own results.

    Parameters
    ----------
    jobs
        Jobs for the pools, in the order of the table: those not finished in the profiler, submitted when they left it,
        and those that are too large for it. Jobs with a profile have it marked in their column `profiled`.
    outcome
        The replay of the partition.
    table
        All jobs, as they were submitted.
    """

    jobs: JobTable
    outcome: Outcome
    table: JobTable

    def joined(self, pools: Outcome | None) -> Outcome:
        """Join the outcomes of the profiler and of the pools; None: no job was left for the pools.

        Numbers of the profiler's units continue those of the pools; its steps have the vc `profiler`.
        """
        positions = {job.name: position for position, job in enumerate(self.table)}
        own = replace(self.outcome, steps=self.outcome.steps.assign(vc="profiler"))
        outcomes = [own] if pools is None else [own, pools]
        of_jobs = [
            [positions[record.job.name] for record in outcome.records]
            for outcome in outcomes
        ]
        first = 0
        if pools is not None:
            first = len(pools.trace.nodes) * pools.trace.units_per_node
        records = self.rejoin(() if pools is None else pools.records)
        return joint(outcomes, of_jobs, [first, 0][: len(outcomes)], records)

    def rejoin(self, records: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
        """Return one record per job, in the order of the table, from the records of the pools (in any order).

        A job has its original submission time and its start in the profiler. Its work there counts as lost unless it
        finished there.
        """
        early = {record.job.name: record for record in self.outcome.records}
        late = {record.job.name: record for record in records}
        return tuple(
            _joined(job, early.get(job.name), late.get(job.name)) for job in self.table
        )


def profile_first(
    jobs: JobTable,
    policy: LucidProfiler,
    *,
    start_ns: int,
    end_ns: int,
    nodes: int = 2,
    units_per_node: int = 8,
    profile_s: float = 200.0,
    most_units: int = 8,
    compat: bool = False,
) -> Profiled:
    """Let jobs run in the profiler before they are submitted to their pools.

    A job that finishes within `profile_s` seconds is done. The others stop then, without a checkpoint, and are
    submitted to their pools.

    Parameters
    ----------
    jobs
        All jobs, of all pools.
    policy
        The policy of the partition.
    start_ns, end_ns
        The window of the replay, UTC ns.
    nodes, units_per_node
        The partition, without the nodes by which it may grow. Its nodes belong to no pool.
    profile_s
        Longest time in the profiler.
    most_units
        Larger jobs, and jobs whose rate does not follow from a curve, are not profiled.
    compat
        As in the artifact: a job that outlives the profiler is submitted to its pool at its original submission time,
        as if it had been profiled beforehand. The artifact's jobs keep their units one second longer: the work of every
        job in the pools grows accordingly.
    """
    most_units = min(most_units, nodes * units_per_node)
    shortened = {
        job.name: replace(job, pmax=min(job.pmax, _samples(job, profile_s)))
        for job in jobs
        if job.request <= most_units and job.profile is None
    }
    trace = always_idle(
        nodes + policy.spare_nodes, start_ns, end_ns, units_per_node=units_per_node
    )
    table = JobTable(tuple(shortened.values()), jobs.source)
    outcome = Replay(trace, table, policy, Rules(max_jobs=0)).run()
    left = {record.job.name: record.finish_ns for record in outcome.records}
    remaining = []
    for job in jobs:
        if job.name in shortened:
            instant = left[job.name]
            if instant is None or shortened[job.name].pmax == job.pmax:
                continue
            extra = MappingProxyType({**job.extra, PROFILED: True})
            again = job.submitted_again(job.tsub_ns if compat else instant)
            remaining.append(replace(again, extra=extra))
        else:
            remaining.append(job)
        if compat:
            remaining[-1] = replace(remaining[-1], pmax=job.pmax + _samples(job, 1.0))
    return Profiled(JobTable(tuple(remaining), jobs.source), outcome, jobs)


def _samples(job: Job, seconds: float) -> float:
    """Samples of a job in this many seconds at its requested size."""
    return float(job.rates[job.request]) * seconds


def _joined(job: Job, early: JobRecord | None, late: JobRecord | None) -> JobRecord:
    if late is None:
        # Otherwise its pool has not come to it yet. With no pool record: it is done, or was never profiled.
        return replace(early, job=job) if early is not None else JobRecord(job)
    if early is None:
        return replace(late, job=job)
    before_s, until_ns = early.run_seconds, early.finish_ns
    if not (late.start_ns is None or early.start_ns is None or until_ns is None):
        # With `compat` it may run in its pool at the same time.
        before_s = max(min(until_ns, late.start_ns) - early.start_ns, 0) / SECOND_NS
    return replace(
        late,
        job=job,
        start_ns=early.start_ns
        if late.start_ns is None
        else min(early.start_ns or late.start_ns, late.start_ns),
        gained=early.gained + late.gained,
        lost_to_preemption=early.gained + late.lost_to_preemption,
        starts=early.starts + late.starts,
        preemptions=early.preemptions + late.preemptions,
        unit_seconds=early.unit_seconds + late.unit_seconds,
        run_seconds=before_s + late.run_seconds,
    )
