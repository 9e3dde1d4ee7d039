"""`--option compat=reference`: the published BFTrainer replayer's accounting, quirk by quirk (docs/decisions/0004).

It proves that we understand the reference and lets its users move over; it shares nothing with the engine, whose
semantics differ on purpose. One row is one instant at which the idle nodes change. What happens in a row, in order:
progress less the last rescale cost, preemption cost, finishes, joins, admissions, decision, rescale cost (charged in
the next row), log.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import cached_property, reduce
from pathlib import Path

import pandas as pd

from bft import milp
from bft.models import InputError, JobTable
from bft.replay.trace.node_trace import SECOND_NS, IndexArray, NodeTrace

STEP_LOG_COLUMNS = (
    "evtTime",  # UTC
    "Thr",  # samples gained since the row before, net of costs and of overshoot
    "Rate",  # samples/s of the new allocation
    "ReScost",  # samples, deducted in the next row
    "evt",  # row number, from 1
    "Nleft",
    "Npre",  # jobs that lost a node
    "Njoin",
    "nJob",  # jobs in play
    "nNd",  # idle nodes
    "nJrun",  # jobs that hold a node
    "nNrun",  # nodes held
    "PreCost",  # samples
)
NOBODY = -1


def _added(terms: Iterable[float]) -> float:
    """Add terms one after the other, as the published replayer did: from Python 3.12 on `sum` rounds less."""
    return reduce(operator.add, terms, 0.0)


def replay_reference(
    trace: NodeTrace,
    jobs: JobTable,
    *,
    tfwd_s: float,
    max_jobs: int = 10,
    use_milp: bool = False,
    backend: str = "cbc",
    time_limit: float | None = None,
    on_step: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> ReferenceRun:
    """Replay as the published program does.

    Parameters
    ----------
    trace
        Cut already to the nodes and rows wanted; the published program skips the first 1,000 rows. `trace.start` is
        its row 0, also when no node is idle then.
    jobs
        In the order in which they are admitted.
    tfwd_s
        Forward-looking window in seconds; the heuristic ignores it.
    max_jobs
        Most jobs in play at once.
    use_milp, backend, time_limit
        Decide by MILP instead of by the heuristic; see `bft.milp.solve`. A decision that runs into the time limit
        (seconds) keeps the map, whatever incumbent there is.
    on_step
        Called after each row with its instant (UTC ns) and the number of decisions so far.
    should_stop
        Called before each row; when true, the run ends there, marked as interrupted.

    Raises
    ------
    InputError
        When a job is given more nodes than its scalability curve has, `max_jobs` is below 1, or nodes have several
        units each, which the published program does not know.
    """
    if max_jobs < 1:
        raise InputError(f"-maxJ must be at least 1, not {max_jobs}")
    if trace.units_per_node != 1 or trace.by_unit:
        raise InputError(
            f"--option compat=reference allocates whole nodes, but the trace has {trace.units_per_node} units a node",
            file=trace.source or None,
        )
    run = ReferenceRun(
        trace, jobs, tfwd_s, max_jobs, (backend, time_limit) if use_milp else None
    )
    row_0_has_nodes = len(trace) > 0 and int(trace.times[0]) == trace.start
    run.begin(trace.joins(0) if row_0_has_nodes else trace.joined[:0])
    for event in range(1 if row_0_has_nodes else 0, len(trace)):
        if should_stop is not None and should_stop():
            run.interrupted = True
            break
        instant = int(trace.times[event])
        more = run.row(instant, trace.leaves(event), trace.joins(event))
        if on_step is not None:
            on_step(run.now, run.decisions)
        if not more:
            break
    return run


def write_step_log(run: ReferenceRun, path: str | Path) -> None:
    """Write `step-logs.csv` exactly as the published program does: samples with 6 decimals, times without zone."""
    steps = run.steps.assign(
        evtTime=[str(time.tz_localize(None)) for time in run.steps["evtTime"]]
    )
    steps.to_csv(path, index=False, float_format="%.6f", lineterminator="\n")


class ReferenceRun:
    """A replay as the published program does it: its results, and one method for each stage of a row, in its order.

    Jobs are named by their position in the table.

    Attributes
    ----------
    steps
        One row a node event after the first, columns `STEP_LOG_COLUMNS`; evtTime as UTC datetime64[ns].
    jobs
        The jobs of the run; `finish_ns` and `progress` are in their order.
    finish_ns
        UTC ns of the event at which each job was seen to have finished, None when it was not.
    progress
        Samples each job has done, at most its Pmax.
    start_ns, start_nodes, start_jobs
        UTC ns of the first row, which is neither optimised nor logged, and its idle nodes and jobs in play.
    decisions
        How often an allocation was decided: in rows with idle nodes and jobs in play.
    timeouts, fallbacks
        Decisions (MILP) that ran into the time limit, so that the map was kept, and decisions for which the backend
        failed and the exact dynamic programme (DP) stood in.
    interrupted
        Whether `should_stop` ended the run; the results are then those up to that row.
    """

    def __init__(
        self,
        trace: NodeTrace,
        jobs: JobTable,
        tfwd_s: float,
        max_jobs: int,
        solver: tuple[str, float | None] | None,
    ) -> None:
        self.jobs, self.tfwd_s, self.max_jobs = jobs.jobs, tfwd_s, max_jobs
        self.solver = solver
        self.rates: list[list[float]] = [
            # P at 0, 1, ... nodes, as far as the curve goes, in samples/s.
            job.scalability.table(min(job.jmax, int(job.scalability.last))).tolist()
            for job in self.jobs
        ]
        self.start_ns = self.now = trace.start
        # Holder of each idle node. The dict's order is that of the published columns: nodes that join come last.
        self.owner: dict[int, int] = {}
        self.waiting = list(range(len(self.jobs)))
        self.play: list[int] = []
        self.held = [0] * len(self.jobs)
        self.progress = [0.0] * len(self.jobs)
        self.finish_ns: list[int | None] = [None] * len(self.jobs)
        self.gain: dict[int, float] = {}  # samples since the last row, net
        self.owed: dict[int, float] = {}  # rescale costs to deduct in the next row
        self.rate = 0.0
        self.running = 0
        self.decisions = self.timeouts = self.fallbacks = 0
        self.interrupted = False
        self.log: list[tuple[int | float, ...]] = []

    # --- rows -----------------------------------------------------------------------------------------------------

    def begin(self, nodes: IndexArray) -> None:
        """Take the nodes of row 0: it is not optimised, not logged, and the one start that is not free."""
        self.join(nodes)
        self.admit()
        self.start_nodes, self.start_jobs = len(self.owner), len(self.play)
        if not self.play:
            return
        # Published: a random map over the jobs in play. With one job, as in all published tables, it gets all; so does
        # the first one here.
        first = self.play[0]
        for node in self.owner:
            self.owner[node] = first
        self.held[first] = len(self.owner)
        self.settle({first: min(len(self.owner), self.jobs[first].jmax)})
        # Quirk: the first job pays Tcup times its *new* rate; later starts from 0 nodes cost nothing.
        self.owed = {first: self.jobs[first].tcup_s * self.rate_of(first)}

    def row(self, instant: int, left: IndexArray, joined: IndexArray) -> bool:
        """Replay one row; return False when it was the last."""
        elapsed_s = (instant - self.now) / SECOND_NS
        self.now = instant
        self.advance(elapsed_s)
        preemption = self.leave(left)
        self.finish()
        gained = _added(self.gain.values())
        self.join(joined)
        self.admit()
        over = not self.play and not self.waiting
        rescale = 0.0
        if over:
            # Quirk: the last row logs the rate of the row before.
            self.running = 0
        else:
            if self.play and self.owner:
                rescale = self.decide()
            self.rate = _added(self.rate_of(j) for j in self.play)
            if self.play or not self.owner:
                # Counts jobs with any node at all, also below Jmin. Quirk: with nobody in play the number is stale,
                # until a row without idle nodes makes it 0.
                self.running = sum(self.held[j] > 0 for j in self.play)
        nodes_held = sum(self.held[j] for j in self.play)
        counts = (len(self.play), len(self.owner), self.running, nodes_held)
        changes = (len(left), len(preemption), len(joined))
        self.log.append(
            (
                instant,
                gained,
                self.rate,
                rescale,
                len(self.log) + 1,
                *changes,
                *counts,
                _added(preemption),
            )
        )
        return not over

    # --- stages of a row, in order --------------------------------------------------------------------------------

    def advance(self, elapsed_s: float) -> None:
        """Progress since the last row. Quirk: the rescale cost of then is deducted now, however short the row was."""
        self.gain = {
            j: elapsed_s * self.rate_of(j) - self.owed.pop(j, 0.0) for j in self.play
        }

    def leave(self, nodes: IndexArray) -> list[float]:
        """Take nodes back; each job that loses any pays Tcdw times its rate before, once. Returns their cost."""
        lost: dict[int, int] = {}
        for node in nodes.tolist():
            j = self.owner.pop(node)
            if j != NOBODY:
                lost[j] = lost.get(j, 0) + 1
        costs = {
            j: self.jobs[j].tcdw_s * self.rate_of(j) for j in self.play if j in lost
        }
        for j, cost in costs.items():
            self.gain[j] -= cost
            self.held[j] -= lost[j]
        return list(costs.values())

    def finish(self) -> None:
        """Add the gains to the jobs' progress, and remove finished jobs. Quirk: seen at node events only."""
        for j, gain in self.gain.items():
            self.progress[j] += gain  # may be negative, and take progress below 0
        done = [j for j in self.play if self.progress[j] >= self.jobs[j].pmax]
        for j in done:
            # Overshoot counts for nothing, so that Thr sums to the total progress.
            self.gain[j] -= self.progress[j] - self.jobs[j].pmax
            self.progress[j] = self.jobs[j].pmax
            self.finish_ns[j] = self.now
            self.play.remove(j)
        self.settle(dict.fromkeys(done, 0))

    def join(self, nodes: IndexArray) -> None:
        """Nodes that turn idle become the last columns."""
        self.owner.update(dict.fromkeys(nodes.tolist(), NOBODY))

    def admit(self) -> None:
        """Submitted jobs enter in the order of the table while there is room. Quirk: seen at node events only."""
        room = self.max_jobs - len(self.play)
        if room <= 0:
            return
        submitted = [j for j in self.waiting if self.jobs[j].tsub_ns <= self.now][:room]
        if submitted:
            self.play += submitted
            entered = set(submitted)
            self.waiting = [j for j in self.waiting if j not in entered]

    def decide(self) -> float:
        """Settle a new allocation; its rescale cost, owed in the next row, is priced in P (decisions price in O)."""
        self.decisions += 1
        before = {j: self.held[j] for j in self.play}
        self.settle(
            self.heuristic() if self.solver is None else self.optimise(*self.solver)
        )
        for j, units in before.items():
            if self.held[j] != units:
                seconds = (
                    self.jobs[j].tcup_s if self.held[j] > units else self.jobs[j].tcdw_s
                )
                self.owed[j] = seconds * self.rate_of(j, units)
        return _added(self.owed.values())

    # --- deciding -------------------------------------------------------------------------------------------------

    def heuristic(self) -> dict[int, int]:
        """Equal shares, then the remainder first come, first served. Ignores Tfwd and the present allocation."""
        quota = len(self.owner) // len(self.play)
        # Quirk: a quota equal to Jmin gives 0.
        shares = {
            j: min(quota, self.jobs[j].jmax) if quota > self.jobs[j].jmin else 0
            for j in self.play
        }
        spare = len(self.owner) - sum(shares.values())
        for j in self.play:
            more = min(spare, self.jobs[j].jmax - shares[j])
            if (
                shares[j] + more >= self.jobs[j].jmin
            ):  # a job that would stay below Jmin is skipped
                shares[j] += more
                spare -= more
        return shares

    def optimise(self, backend: str, time_limit: float | None) -> dict[int, int]:
        """Solve the MILP over the counts, which is the published model without its flaws."""
        posed = tuple(
            milp.Job(
                job.name,
                job.jmin,
                # The published model reads values between the curve's points only: no job gets more than the last.
                max(job.jmin, min(job.jmax, int(job.scalability.last))),
                job.objective.ns,
                job.objective.ps,
                job.tcup_s,
                job.tcdw_s,
            )
            for job in (self.jobs[j] for j in self.play)
        )
        current = tuple(self.held[j] for j in self.play)
        problem = milp.Problem(len(self.owner), self.tfwd_s, posed, current)
        # As published: the solver's own of several optima, and nothing in hand when its time is up.
        solution = milp.solve(
            problem, backend=backend, time_limit=time_limit, ties="solver"
        )
        self.fallbacks += solution.status == "fallback"
        if solution.status == "feasible":
            # Quirk: the incumbent at the time limit is thrown away, and the map is kept.
            self.timeouts += 1
            return dict(zip(self.play, current, strict=True))
        return dict(zip(self.play, solution.counts, strict=True))

    def settle(self, targets: dict[int, int]) -> None:
        """Give jobs their numbers of nodes: all release first, and both ways the lowest columns go first."""
        surplus = {j: self.held[j] - n for j, n in targets.items() if self.held[j] > n}
        if surplus:
            for node, j in self.owner.items():
                if surplus.get(j, 0) > 0:
                    surplus[j] -= 1
                    self.owner[node] = NOBODY
        free = iter([node for node, j in self.owner.items() if j == NOBODY])
        for j, n in targets.items():
            for _ in range(n - self.held[j]):
                self.owner[next(free)] = j
            self.held[j] = n

    def rate_of(self, j: int, nodes: int | None = None) -> float:
        """Samples/s of a job on `nodes` nodes, by default on those it holds. Jmin binds decisions only."""
        nodes = self.held[j] if nodes is None else nodes
        if nodes >= len(self.rates[j]):
            raise InputError(
                f"{nodes} nodes lie beyond the last point of its curve, {self.jobs[j].scalability.last:g}",
                column="Ns",
                job=self.jobs[j].name,
                hint="the published replayer stops here; lower Jmax, or leave out --option compat=reference",
            )
        return self.rates[j][nodes]

    @property
    def total_progress(self) -> float:
        """Samples done by all jobs."""
        return _added(self.progress)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The log as a frame."""
        frame = pd.DataFrame.from_records(self.log, columns=list(STEP_LOG_COLUMNS))
        return frame.assign(
            evtTime=pd.to_datetime(frame["evtTime"], unit="ns", utc=True)
        )
