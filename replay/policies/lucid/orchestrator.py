"""Lucid: jobs with the least predicted service first, and two on a unit where their profiles allow it (ASPLOS'23).

Hu et al., "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning Training Jobs", ASPLOS 2023.
docs/decisions/0011-lucid.md lists the differences from its artifact.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from bft.models import Job, JobTable
from bft.models.checks import Number, check_fields, whole
from bft.replay.engine.policy_api import Decision, JobView, State, Traits
from bft.replay.engine.rules import Interference
from bft.replay.engine.snapshot import NOT_STORED, StoredState
from bft.replay.policies._constants import constant
from bft.replay.policies.lucid.profiler import (
    PROFILED,
    LucidProfiler,
    Profiled,
    profile_first,
)
from bft.replay.policies.lucid.submissions import (
    NEVER,
    Expected,
    ForecastTable,
    LearntForecast,
    RecentSubmissions,
    read_forecast_table,
    sharing_at,
)
from bft.replay.policies.predictions import (
    ESTIMATE,
    SCORE,
    number_in,
    with_estimates,
    with_scores,
)
from bft.replay.trace.node_trace import SECOND_NS

# The jobs that run alone by number of units: position and units, in the order in which they started.
Alone: TypeAlias = defaultdict[int, list[tuple[int, tuple[int, ...]]]]
# What leaves a model out, in the place of its file.
NO_ESTIMATOR, NO_PACKING = "none", "no"
# Forecasts of constant numbers of jobs, base lines that show what a better forecast is worth.
STEADY = {"busy": Expected(math.inf, 0.0, NEVER), "none": Expected(0.0, 0.0, NEVER)}


@dataclass
class Lucid(StoredState):
    """Least predicted service first, without preemption; jobs share units where their profiles allow it.

    While the switch is off, every job has its units alone, and the first job that does not fit blocks all later ones.
    While it is on, each waiting job of at most `pair_units` units first tries to join a running one, otherwise it gets
    units of its own; jobs that do not fit are skipped. It joins the first that runs alone on as many units, if their
    sharing scores, how much each slows down others, sum up to at most `score_sum`, if it is not too long for one that
    may be nearly done (`priority_ratio`), and if the run knows that the two may share.

    A job can share once its profile is known: when its column `profiled` says so (as after `profile_first`), or when
    it, or one of the same model and batch size, has run here for `profile_s` seconds. The result of profiling is the
    column `sharing_score`; a job without it does not share.

    Each of the three models can be left out by name, for ablations: `packing=no` lets any two jobs of the same size
    share whose memory fits, whatever their scores and lengths; `forecast=busy` and `forecast=none` leave the switch on,
    or off; `estimator=none` takes all jobs to last `fallback_s`, so that smaller ones come first.
    """

    sharing: bool = constant(default=True, text="let two jobs have a unit")
    pair_units: int = constant(8, "largest job that shares")
    score_sum: float = constant(
        2.0, "upper bound of the sum of partners' sharing scores"
    )
    priority_ratio: float = constant(
        2.0, "largest ratio of a newcomer's priority to a partner's"
    )
    unit_memory_gib: float | None = constant(
        None, "memory of a unit; two jobs must take less"
    )
    interference: Interference | None = constant(None, "pairs with known ratios")
    switch_s: float = constant(
        100.0, "seconds between settings of the sharing switch", Number(0, above=True)
    )
    quiet_jobs: float = constant(
        2.0, "no sharing while no more jobs are expected per 10 min"
    )
    horizon_s: float = constant(
        3000.0, "seconds that a forecast looks ahead", Number(0, above=True)
    )
    forecast: str = constant(
        "",
        "saved forecaster (.json) or table (time, jobs, units per 10 min); busy or none: many, or no submissions "
        "are always expected; else recent jobs",
    )
    estimator: str = constant(
        "",
        "saved duration estimator, for jobs without estimate_s; none: all are taken alike",
    )
    packing: str = constant(
        "",
        "saved packing analyser, for jobs without sharing_score; no: memory alone decides",
    )
    fallback_s: float = constant(
        1000.0,
        "estimate in seconds for a job without one above 0",
        Number(0, above=True),
    )
    profile_s: float = constant(
        200.0, "seconds after which a job's profile is known", Number(0, above=True)
    )
    profiler_nodes: int = constant(
        2, "nodes of a fixed cluster's profiler; 0: none", whole(0)
    )
    profiler_spare: int = constant(1, "nodes that the profiler grows by", whole(0))
    profiler_units: int = constant(8, "largest job that is profiled")
    grow_above: int = constant(10, "the profiler grows when more jobs wait")
    shrink_below: int = constant(5, "the profiler shrinks when fewer jobs wait")
    quiet_units: float = constant(
        40.0, "and at most this many units per 10 min are expected"
    )
    compat: bool = constant(
        default=False, text="as the artifact: profiling is free, jobs last 1 s longer"
    )
    name: str = field(default="lucid", init=False)
    traits: ClassVar[Traits] = Traits(rigid=True)
    _submissions: RecentSubmissions = field(init=False, repr=False)
    _table: ForecastTable | None = field(
        default=None, init=False, repr=False, metadata=NOT_STORED
    )
    _known: set[tuple[str, float | None]] = field(
        default_factory=set, init=False, repr=False
    )
    _priorities: dict[str, float] = field(
        default_factory=dict, init=False, repr=False, metadata=NOT_STORED
    )

    def __post_init__(self) -> None:
        check_fields(self)
        self._submissions = RecentSubmissions(self.horizon_s)
        if self.forecast.endswith(".json"):
            from bft.models.learned.duration import Forecaster
            from bft.models.learned.saved_models import read_model

            model = read_model(self.forecast, Forecaster)
            self._submissions = LearntForecast(model, self.horizon_s)
        elif self.forecast not in ("", *STEADY):
            self._table = read_forecast_table(self.forecast, horizon_s=self.horizon_s)

    def decide(self, state: State) -> Decision:
        """Start waiting jobs, alone or on the units of others."""
        self._submissions.see(state.jobs)
        for view in state.jobs:
            if view.executed_s >= self.profile_s and view.job.model:
                self._known.add(_kind(view.job))
        waiting = list(state.jobs.waiting)
        if not waiting:
            return Decision.keep()
        on, turn = False, None
        if self.sharing:
            on, turn = sharing_at(
                state.time_ns, self._expect, self.switch_s, self.quiet_jobs
            )
        placed = self._started(state, waiting, on)
        wake_ns = None
        if len(placed) < len(waiting):
            turns = [turn, self._next_known(state) if on else None]
            wake_ns = min((turn for turn in turns if turn is not None), default=None)
        return Decision.placed(placed, wake_ns=wake_ns)

    def prepare(self, jobs: JobTable) -> JobTable:
        """The jobs, with predictions of saved models in their columns."""
        if self.estimator not in ("", NO_ESTIMATOR):
            jobs = with_estimates(jobs, self.estimator)
        if self.packing not in ("", NO_PACKING):
            jobs = with_scores(jobs, self.packing)
        return jobs

    def stage_before(
        self, jobs: JobTable, *, start_ns: int, end_ns: int, units_per_node: int
    ) -> Profiled | None:
        """Run the profiler before the pools of a fixed cluster; None when there is no profiler."""
        if not self.profiler_nodes:
            return None
        profiler = LucidProfiler(
            self.profiler_spare,
            self.grow_above,
            self.shrink_below,
            self.quiet_units,
            self._table,
        )
        return profile_first(
            jobs,
            profiler,
            start_ns=start_ns,
            end_ns=end_ns,
            nodes=self.profiler_nodes,
            units_per_node=units_per_node,
            profile_s=self.profile_s,
            most_units=self.profiler_units,
            compat=self.compat,
        )

    def _expect(self, at_ns: int) -> Expected:
        """The submissions that are expected at an instant."""
        if self.forecast in STEADY:
            return STEADY[self.forecast]
        return (self._table or self._submissions).expect(at_ns)

    def _started(
        self, state: State, waiting: list[int], on: bool
    ) -> dict[int, tuple[int, ...]]:
        """The jobs that start, with their units."""
        places = state.machine.placement()
        alone = self._alone(state) if on else Alone(list)
        waiting.sort(key=lambda position: self._priority(state.jobs[position].job))
        # The smallest size that found no place: larger ones will not find one either.
        too_many: float = math.inf
        placed: dict[int, tuple[int, ...]] = {}
        for position in waiting:
            if not len(places) and not any(alone.values()):
                break
            view = state.jobs[position]
            request = view.job.request
            shares = on and self._may_share(view)
            units = self._joined(state, view.job, alone[request]) if shares else None
            if units is None and request < too_many:
                units = places.take(request)
                if units is None:
                    too_many = request
                elif shares:
                    alone[request].append((position, units))
            if units is not None:
                placed[position] = units
            elif not on:
                break
        return placed

    def _alone(self, state: State) -> Alone:
        """The running jobs that another one may join."""
        views = {position: state.jobs[position] for position in state.jobs.running}
        order = sorted(
            views,
            key=lambda position: (
                views[position].since_ns or 0,
                self._priority(views[position].job),
            ),
        )
        alone = Alone(list)
        for position in order:
            view = views[position]
            if not view.partners and self._may_share(view):
                alone[view.units].append((position, view.held))
        return alone

    def _joined(
        self, state: State, newcomer: Job, alone: list[tuple[int, tuple[int, ...]]]
    ) -> tuple[int, ...] | None:
        """Units of the first of some jobs that a newcomer may join; it no longer runs alone. None: there is none."""
        for index, (position, units) in enumerate(alone):
            if self._pairs(newcomer, state.jobs[position].job, len(units)):
                del alone[index]
                return units
        return None

    def _pairs(self, newcomer: Job, running: Job, units: int) -> bool:
        """Tell whether a newcomer may join a job that runs alone on as many units."""
        if self.packing != NO_PACKING:
            scores = [number_in(job, SCORE) or 0.0 for job in (newcomer, running)]
            ratio = self.priority_ratio * self._priority(running)
            if sum(scores) > self.score_sum or self._priority(newcomer) > ratio:
                return False
        if self.unit_memory_gib is not None:
            memory = newcomer.memory_gib, running.memory_gib
            if None in memory or not sum(filter(None, memory)) < self.unit_memory_gib:
                return False
        if self.interference is None:
            return False
        ratios = self.interference.xi(newcomer, running, newcomer.request, units)
        return ratios is not None

    def _may_share(self, view: JobView) -> bool:
        """Tell whether a job is small enough to share, and its profile is known."""
        if view.job.request > self.pair_units or not self._is_known(view):
            return False
        return self.packing == NO_PACKING or number_in(view.job, SCORE) is not None

    def _priority(self, job: Job) -> float:
        """Return the priority of a job: its predicted unit-seconds."""
        if job.name not in self._priorities:
            seconds = None
            if self.estimator != NO_ESTIMATOR:
                seconds = number_in(job, ESTIMATE)
            if seconds is None or seconds <= 0:
                seconds = self.fallback_s
            self._priorities[job.name] = seconds * job.request
        return self._priorities[job.name]

    # --- profiles without a partition -----------------------------------------------------------------------------

    def _is_known(self, view: JobView) -> bool:
        job = view.job
        return (
            bool(job.extra.get(PROFILED))
            or view.executed_s >= self.profile_s
            or _kind(job) in self._known
        )

    def _next_known(self, state: State) -> int | None:
        """Return when the next running job will have been profiled, and may be joined."""
        due = [
            state.time_ns
            + max(1, math.ceil((self.profile_s - view.executed_s) * SECOND_NS))
            for view in state.jobs
            if view.units
            and view.job.request <= self.pair_units
            and not self._is_known(view)
        ]
        return min(due, default=None)


def _kind(job: Job) -> tuple[str, float | None]:
    """The kind of a job; jobs of one kind have the same profile."""
    return job.model, job.batch_size
