"""Lucid: jobs with the least predicted service first, and two on a unit where their profiles allow it (ASPLOS'23).

Hu et al., "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning Training Jobs", ASPLOS 2023.
docs/decisions/0011-lucid.md lists the differences from its artifact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from bft.models import Job, JobTable
from bft.replay.engine.policy_api import Decision, JobView, Kind, State
from bft.replay.engine.rules import Interference
from bft.replay.engine.snapshot import NOT_STORED, StoredState
from bft.replay.policies.lucid.profiler import (
    PROFILED,
    LucidProfiler,
    Profiled,
    profile_first,
)
from bft.replay.policies.lucid.submissions import (
    ForecastTable,
    LearntForecast,
    RecentSubmissions,
    SharingSwitch,
    Steady,
    read_forecast_table,
)
from bft.replay.policies.predictions import (
    ESTIMATE,
    SCORE,
    number_in,
    with_estimates,
    with_scores,
)
from bft.replay.trace.node_trace import SECOND_NS


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that may share, with the data of its profile.

    Parameters
    ----------
    job, position
        The job, and its position in `State.jobs`.
    units
        The units it holds; a newcomer holds none.
    priority
        Predicted duration x units in unit-seconds: smaller comes first.
    score
        Sharing score 0, 1 or 2: how much it slows down other jobs, see `bft.models.learned.packing`.
    """

    job: Job
    position: int
    units: tuple[int, ...]
    priority: float
    score: float


@dataclass(frozen=True, slots=True)
class PairRules:
    """The rules for pairs that may share.

    Parameters
    ----------
    score_sum
        Upper bound of the sum of two partners' scores.
    priority_ratio
        Upper bound of a newcomer's priority over that of the job that it joins: a long job must not slow down one that
        is nearly done.
    unit_memory_gib
        Two jobs together must need less than this; None: no check of memory. With a check, a job without known memory
        does not share.
    interference
        The pairs known to the run; only pairs that it allows are made. None allows no pair.
    """

    score_sum: float = 2.0
    priority_ratio: float = 2.0
    unit_memory_gib: float | None = None
    interference: Interference | None = None

    def allow(self, newcomer: Candidate, running: Candidate) -> bool:
        """Whether a newcomer may join a job that runs alone."""
        return (
            newcomer.job.request == len(running.units)
            and newcomer.score + running.score <= self.score_sum
            and newcomer.priority <= self.priority_ratio * running.priority
            and self._fit(newcomer.job, running.job)
            and self.interference is not None
            and self.interference.xi(
                newcomer.job, running.job, newcomer.job.request, len(running.units)
            )
            is not None
        )

    def _fit(self, a: Job, b: Job) -> bool:
        if self.unit_memory_gib is None:
            return True
        return (
            a.memory_gib is not None
            and b.memory_gib is not None
            and a.memory_gib + b.memory_gib < self.unit_memory_gib
        )


class Binder:
    """The jobs that run alone at a decision, in the order in which they started."""

    def __init__(self, rules: PairRules) -> None:
        self._rules = rules
        self._alone: dict[int, list[Candidate]] = {}  # by number of units

    def __len__(self) -> int:
        return sum(map(len, self._alone.values()))

    def add(self, running: Candidate) -> None:
        """Add a job that runs alone; it started after those added before."""
        self._alone.setdefault(len(running.units), []).append(running)

    def bind(self, newcomer: Candidate) -> Candidate | None:
        """The first job that the newcomer may join, None if there is none; it then no longer runs alone."""
        alone = self._alone.get(newcomer.job.request, [])
        for position, running in enumerate(alone):
            if self._rules.allow(newcomer, running):
                return alone.pop(position)
        return None


# What leaves a model out, in the place of its file.
NO_ESTIMATOR, NO_PACKING = "none", "no"
STEADY = {"busy": Steady(math.inf), "none": Steady(0.0)}


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@dataclass
class Lucid(StoredState):
    """Least predicted service first, without preemption; jobs share units where their profiles allow it.

    While the switch is off, every job has its units alone, and the first job that does not fit blocks all later ones.
    While it is on, each waiting job of at most `pair_units` units first tries to join a running one (see `PairRules`),
    otherwise it gets units of its own; jobs that do not fit are skipped.

    A job can share once its profile is known: when its column `profiled` says so (as after `profile_first`), or when
    it, or one of the same model and batch size, has run here for `profile_s` seconds. The result of profiling is the
    column `sharing_score`; a job without it does not share.

    Each of the three models can be left out by name, for ablations: `packing=no` lets any two jobs of the same size
    share whose memory fits, whatever their scores and lengths; `forecast=busy` and `forecast=none` leave the switch on,
    or off; `estimator=none` takes all jobs to last `fallback_s`, so that smaller ones come first.
    """

    sharing: bool = field(default=True, metadata=_help("let two jobs have a unit"))
    pair_units: int = field(default=8, metadata=_help("largest job that shares"))
    score_sum: float = field(
        default=2.0,
        metadata=_help("upper bound of the sum of partners' sharing scores"),
    )
    priority_ratio: float = field(
        default=2.0,
        metadata=_help("largest ratio of a newcomer's priority to a partner's"),
    )
    unit_memory_gib: float | None = field(
        default=None, metadata=_help("memory of a unit; two jobs must take less")
    )
    interference: Interference | None = field(
        default=None, metadata=_help("pairs with known ratios")
    )
    switch_s: float = field(
        default=100.0, metadata=_help("seconds between settings of the sharing switch")
    )
    quiet_jobs: float = field(
        default=2.0,
        metadata=_help("no sharing while no more jobs are expected per 10 min"),
    )
    horizon_s: float = field(
        default=3000.0, metadata=_help("seconds that a forecast looks ahead")
    )
    forecast: str = field(
        default="",
        metadata=_help(
            "saved forecaster (.json) or table (time, jobs, units per 10 min); busy or none: many, or no submissions "
            "are always expected; else recent jobs"
        ),
    )
    estimator: str = field(
        default="",
        metadata=_help(
            "saved duration estimator, for jobs without estimate_s; none: all are taken alike"
        ),
    )
    packing: str = field(
        default="",
        metadata=_help(
            "saved packing analyser, for jobs without sharing_score; no: memory alone decides"
        ),
    )
    fallback_s: float = field(
        default=1000.0,
        metadata=_help("estimate in seconds for a job without one above 0"),
    )
    profile_s: float = field(
        default=200.0, metadata=_help("seconds after which a job's profile is known")
    )
    profiler_nodes: int = field(
        default=2, metadata=_help("nodes of a fixed cluster's profiler; 0: none")
    )
    profiler_spare: int = field(
        default=1, metadata=_help("nodes that the profiler grows by")
    )
    profiler_units: int = field(
        default=8, metadata=_help("largest job that is profiled")
    )
    grow_above: int = field(
        default=10, metadata=_help("the profiler grows when more jobs wait")
    )
    shrink_below: int = field(
        default=5, metadata=_help("the profiler shrinks when fewer jobs wait")
    )
    quiet_units: float = field(
        default=40.0,
        metadata=_help("and at most this many units per 10 min are expected"),
    )
    compat: bool = field(
        default=False,
        metadata=_help("as the artifact: profiling is free, jobs last 1 s longer"),
    )
    name: str = field(default="lucid", init=False)
    kind: ClassVar[Kind] = Kind(rigid=True)
    _known: set[tuple[str, float | None]] = field(
        default_factory=set, init=False, repr=False
    )
    _priorities: dict[str, float] = field(
        default_factory=dict, init=False, repr=False, metadata=NOT_STORED
    )

    def __post_init__(self) -> None:
        for name in ("switch_s", "horizon_s", "fallback_s", "profile_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} must be seconds > 0, not {getattr(self, name)}"
                )
        if min(self.profiler_nodes, self.profiler_spare) < 0:
            raise ValueError("the profiler cannot have fewer than 0 nodes")

    def decide(self, state: State) -> Decision:
        """Start waiting jobs, alone or on the units of others."""
        self._submissions.see(state.jobs)
        self._learn(state)
        waiting = list(state.waiting)
        if not waiting:
            return Decision.keep()
        on = self.sharing and self._switch.on(state.time_ns)
        placed = self._started(state, waiting, on)
        wake_ns = None
        if self.sharing and len(placed) < len(waiting):
            turns = (
                self._switch.next_turn(state.time_ns),
                self._next_known(state) if on else None,
            )
            wake_ns = min(
                (instant for instant in turns if instant is not None), default=None
            )
        return Decision.placed(placed, wake_ns=wake_ns)

    def prepare(self, jobs: JobTable) -> JobTable:
        """The jobs, with predictions of saved models in their columns."""
        jobs = (
            with_estimates(jobs, self.estimator)
            if self.estimator not in ("", NO_ESTIMATOR)
            else jobs
        )
        return (
            with_scores(jobs, self.packing)
            if self.packing not in ("", NO_PACKING)
            else jobs
        )

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

    def state(self) -> dict[str, Any]:
        """The submissions seen so far, and the models with profiles."""
        return {"submissions": self._submissions.state(), **super().state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        self._submissions.restore(state["submissions"])
        super().restore(state)

    @cached_property
    def _submissions(self) -> RecentSubmissions:
        """Forecast of submissions from recent ones, and from a trained model if one is given."""
        if not self.forecast.endswith(".json"):
            return RecentSubmissions(self.horizon_s)
        from bft.models.learned.forecast import Forecaster
        from bft.models.learned.saved_models import read_model

        return LearntForecast(read_model(self.forecast, Forecaster), self.horizon_s)

    @cached_property
    def _table(self) -> ForecastTable | None:
        if self.forecast in ("", *STEADY) or self.forecast.endswith(".json"):
            return None
        return read_forecast_table(self.forecast, horizon_s=self.horizon_s)

    @cached_property
    def _switch(self) -> SharingSwitch:
        forecast = STEADY.get(self.forecast) or self._table or self._submissions
        return SharingSwitch(forecast, self.switch_s, self.quiet_jobs)

    def _started(
        self, state: State, waiting: list[int], on: bool
    ) -> dict[int, tuple[int, ...]]:
        """The jobs that start, with their units."""
        places = state.machine.placement()
        binder = self._binder(state) if on else Binder(PairRules())
        placed: dict[int, tuple[int, ...]] = {}
        if not len(places) and not len(binder):
            return placed
        waiting.sort(key=lambda position: self._priority(state.jobs[position].job))
        too_many = (
            math.inf
        )  # the smallest size that found no place: larger ones will not find one either
        for position in waiting:
            view = state.jobs[position]
            newcomer = self._candidate(view, position) if on else None
            partner = binder.bind(newcomer) if newcomer is not None else None
            units = partner.units if partner is not None else None
            if units is None and view.job.request < too_many:
                units = places.take(view.job.request)
                if units is None:
                    too_many = view.job.request
                elif newcomer is not None:
                    binder.add(
                        Candidate(
                            view.job, position, units, newcomer.priority, newcomer.score
                        )
                    )
            if units is not None:
                placed[position] = units
            elif not on or (not len(places) and not len(binder)):
                break
        return placed

    def _binder(self, state: State) -> Binder:
        analysed = (
            (self.score_sum, self.priority_ratio)
            if self.packing != NO_PACKING
            else (math.inf, math.inf)
        )
        rules = PairRules(*analysed, self.unit_memory_gib, self.interference)
        binder = Binder(rules)
        alone = [
            position for position in state.running if not state.jobs[position].partners
        ]
        alone.sort(
            key=lambda position: (
                state.jobs[position].since_ns or 0,
                self._priority(state.jobs[position].job),
            )
        )
        for position in alone:
            candidate = self._candidate(state.jobs[position], position)
            if candidate is not None:
                binder.add(candidate)
        return binder

    def _candidate(self, view: JobView, position: int) -> Candidate | None:
        """The job as a candidate for sharing, None if its profile is not known."""
        job = view.job
        if job.request > self.pair_units or not self._is_known(view):
            return None
        score = number_in(job, SCORE) if self.packing != NO_PACKING else 0.0
        return (
            None
            if score is None
            else Candidate(job, position, view.held, self._priority(job), score)
        )

    def _priority(self, job: Job) -> float:
        """Return the priority of a job: its predicted unit-seconds."""
        priority = self._priorities.get(job.name)
        if priority is None:
            estimate = (
                number_in(job, ESTIMATE) if self.estimator != NO_ESTIMATOR else None
            )
            seconds = (
                estimate if estimate is not None and estimate > 0 else self.fallback_s
            )
            priority = self._priorities[job.name] = seconds * job.request
        return priority

    # --- profiles without a partition -----------------------------------------------------------------------------

    def _is_known(self, view: JobView) -> bool:
        job = view.job
        return (
            bool(job.extra.get(PROFILED))
            or view.executed_s >= self.profile_s
            or _kind(job) in self._known
        )

    def _learn(self, state: State) -> None:
        """Remember the profiles of jobs that have run long enough."""
        for view in state.jobs:
            if view.executed_s >= self.profile_s and view.job.model:
                self._known.add(_kind(view.job))

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
