"""Tiresias: least attained service first, in few queues (Gu et al., NSDI'19).

docs/decisions/0010-tiresias.md lists the differences from its public simulator.
`TiresiasPollux` is the policy of Pollux' artifact (docs/decisions/0012-pollux.md).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bft.models import Job, read_table
from bft.models.cells import Rows
from bft.models.checks import Number, check_fields
from bft.models.tolerances import SERVICE
from bft.replay.engine.policy_api import Decision, JobView, State, Traits
from bft.replay.engine.snapshot import StoredState
from bft.replay.policies._constants import constant, rounds
from bft.replay.policies._rounds import Nodes, is_round, next_round
from bft.replay.policies.rigid import run, run_by_quota, within_quota
from bft.replay.trace.node_trace import SECOND_NS

# A model whose largest tensor has more than this share of its parameters: between the 0.14 of Inception-3 and the 0.61
# of AlexNet, the models of Tiresias' artifact.
SKEWED = 0.5
# A timer that is due at a whole nanosecond must not come one late: the part of a nanosecond that counts as none.
ROUNDING_NS = 1e-4


@dataclass(slots=True)
class _Standing:
    """The state behind a job's priority: its queue, and its service when it was last promoted or submitted.

    `counted_ns` is when it first ran after that; waiting counts only from then on.
    """

    queue: int = 0
    unit_seconds: float = 0.0
    executed_s: float = 0.0
    counted_ns: int | None = None

    def service(self, view: JobView) -> float:
        """Unit-seconds since the last promotion or submission."""
        return view.unit_seconds - self.unit_seconds

    def executed(self, view: JobView) -> float:
        """Seconds of running since then."""
        return view.executed_s - self.executed_s

    def waited(self, view: JobView, now_ns: int) -> float:
        """Seconds of not running since its first run."""
        counted_ns = now_ns if self.counted_ns is None else self.counted_ns
        return max((now_ns - counted_ns) / SECOND_NS - self.executed(view), 0.0)


@dataclass
class TiresiasL(StoredState):
    """Run the jobs with the least attained service (units x time) first, with preemption; needs no durations (2D-LAS).

    A job enters the first queue, and the next one when its service reaches a limit. Queues are served in order; within
    a queue running jobs come first, then the order of submission. A job that does not fit is skipped.

    Parameters
    ----------
    limits
        Service at which a job leaves each queue but the last, ascending.
    promote
        PROMOTEKNOB: a job that has waited this many times as long as it ran goes back to the first queue, with counting
        restarted; 0: never.
    placement
        `skewed`: jobs whose model has skewed tensors use as few nodes as possible; `all` jobs do; or `none`.
    skew_threshold
        A model with a larger skew counts as skewed.
    interval_s
        Seconds between decisions; 0 decides whenever something happens.
    late_demotion
        Detect a reached limit as late as the public simulator, which mistakes executed seconds for service when it
        computes the next time.
    compat
        As in Lucid's artifact: a queue is in order of submission, for running and waiting jobs alike, and a job that
        fits by number of units but finds no place keeps its share from all other jobs.
    """

    limits: tuple[float, ...] = constant(
        (3250.0, 7200.0), "unit-seconds at which a job leaves each queue but the last"
    )
    promote: float = constant(
        0.0,
        "back to the first queue after waiting so many times as long as it ran; 0: never",
        Number(0),
    )
    placement: Literal["skewed", "all", "none"] = constant(
        "skewed", "which jobs lie on as few nodes as they need"
    )
    skew_threshold: float = constant(
        SKEWED, "skew above which a model must not be spread", Number()
    )
    interval_s: float = rounds(0.0)
    late_demotion: bool = constant(
        default=False, text="demote as late as Tiresias' public simulator"
    )
    compat: bool = constant(
        default=False,
        text="queues by submission, and units by quota, as Lucid's artifact",
    )
    name: str = field(default="tiresias-l", init=False)
    traits: ClassVar[Traits] = Traits(rigid=True)
    # In the order within queues.
    _standings: dict[str, _Standing] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if list(self.limits) != sorted(set(self.limits)) or not all(
            0 < limit < math.inf for limit in self.limits
        ):
            raise ValueError(f"limits must be > 0 and ascending, not {self.limits}")

    def decide(self, state: State) -> Decision:
        """Give units to jobs in the order of their queues, at the start of each round."""
        if not is_round(state.time_ns, self.interval_s):
            return Decision.keep(wake_ns=next_round(state.time_ns, self.interval_s))
        positions = state.jobs.positions
        self._update_queues(state)
        self._rank(state)
        if self.compat:  # jobs in play are in order of submission
            self._sort(positions.__getitem__)
        walk = run_by_quota if self.compat else run
        decision = walk(state, self._order(positions), spreads=self._spreads)
        counts = decision.counts_in(state)
        self._sort(lambda name: not counts[positions[name]])  # waiting ones go behind
        for view, units in zip(state.jobs, counts, strict=True):
            one = self._standings[view.job.name]
            if units and one.counted_ns is None:
                one.counted_ns = state.time_ns
        return decision.waking(self._next(state, decision))

    def _order(self, positions: Mapping[str, int]) -> list[int]:
        """The jobs in play, the first queue first."""
        queued = sorted(self._standings, key=lambda name: self._standings[name].queue)
        return [positions[name] for name in queued]

    def _sort(self, key: Callable[[str], Any]) -> None:
        """Sort the jobs within each queue; those with equal keys stay in order."""
        names = sorted(self._standings, key=key)
        self._standings = {name: self._standings[name] for name in names}

    def _update_queues(self, state: State) -> None:
        """Remove finished jobs, append new jobs to the first queue, and move those that change their queue."""
        positions = state.jobs.positions
        self._standings = {
            name: one for name, one in self._standings.items() if name in positions
        }
        for name in positions:
            if name not in self._standings:
                self._standings[name] = _Standing()
        for view in state.jobs:
            if view.starts:
                self._change_queue(view, state.time_ns)

    def _change_queue(self, view: JobView, now_ns: int) -> None:
        """Demote a job that has reached limits, promote one that has waited long enough."""
        one = self._standings[view.job.name]
        slack = -SERVICE if self.compat else SERVICE
        while (
            one.queue < len(self.limits)
            and one.service(view) >= self.limits[one.queue] - slack
        ):
            if (
                self.late_demotion and not view.units
            ):  # the simulator checks running jobs only
                break
            self._move(view.job.name, one.queue + 1)
            if self.late_demotion:  # and moves them by one queue per event
                break
        if not view.units and self._promotion_s(view, one, now_ns) <= SERVICE:
            self._move(view.job.name, 0)
            one.unit_seconds, one.executed_s, one.counted_ns = (
                view.unit_seconds,
                view.executed_s,
                None,
            )

    def _move(self, name: str, queue: int) -> None:
        """Move a job to the end of a queue."""
        one = self._standings[name] = self._standings.pop(name)
        one.queue = queue

    def _rank(self, state: State) -> None:
        """Sort jobs within queues before a decision: they are in order."""

    def _spreads(self, job: Job) -> bool:
        if self.placement == "skewed":
            return job.skew is None or job.skew <= self.skew_threshold
        return self.placement == "none"

    def _next(self, state: State, decision: Decision) -> int | None:
        """Return when to decide even without an event: at the next demotion or promotion, or the round after it."""
        waits = []
        for view, units in zip(state.jobs, decision.counts_in(state), strict=True):
            one = self._standings[view.job.name]
            if units and one.queue < len(self.limits):
                limit = self.limits[one.queue]
                if self.late_demotion:
                    waits.append((limit - one.executed(view)) // units)
                else:
                    waits.append((limit - one.service(view)) / units)
            elif not units:
                waits.append(self._promotion_s(view, one, state.time_ns))
        wake_ns = decision.wake_ns
        soonest_s = min(waits, default=math.inf)
        if wake_ns is None and soonest_s < math.inf:
            wait_ns = math.ceil(soonest_s * SECOND_NS - ROUNDING_NS)
            wake_ns = state.time_ns + max(wait_ns, 1)
        if wake_ns is None or self.interval_s <= 0:
            return wake_ns
        return next_round(wake_ns - 1, self.interval_s)

    def _promotion_s(self, view: JobView, one: _Standing, now_ns: int) -> float:
        """Seconds until a waiting job is promoted; infinite in the first queue, and for one that has never run."""
        executed_s = one.executed(view)
        if self.promote == 0 or one.queue == 0 or executed_s <= 0:
            return math.inf
        return self.promote * executed_s - one.waited(view, now_ns)


@dataclass
class TiresiasG(TiresiasL):
    """Like tiresias-l, with jobs of a queue ordered by the Gittins index of past services: likely to finish soon first.

    The index is computed at decisions. Without samples it uses the services of jobs finished in this replay; until
    there are any, all indices are 0. Among equal indices the job submitted first comes first.

    Parameters
    ----------
    samples
        File with unit-seconds of past jobs, see `read_samples`.
    delta
        Service quantum of the index, unit-seconds.
    next_sample
        Evaluate the index where the public simulator does: just before the next sample.
    """

    samples: str = constant(
        "",
        "table of past services (column service or duration); else those of finished jobs",
    )
    delta: float = constant(
        3250.0, "unit-seconds that the Gittins index looks ahead", Number(0, above=True)
    )
    next_sample: bool = constant(
        default=False, text="look the index up as Tiresias' public simulator does"
    )
    name: str = field(default="tiresias-g", init=False)
    _services: ServiceDistribution = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        past = read_samples(self.samples) if self.samples else ()
        self._services = ServiceDistribution(past, self.delta)

    def decide(self, state: State) -> Decision:
        """Learn from finished jobs, then serve the queues."""
        if not self.samples:
            for view in state.finished:
                self._services.learn(view.unit_seconds)
        return super().decide(state)

    def _rank(self, state: State) -> None:
        """Sort jobs within queues, highest index first."""
        look_up = (
            self._services.index_of_next_sample
            if self.next_sample
            else self._services.index
        )
        keys = {
            view.job.name: (
                -look_up(self._standings[view.job.name].service(view)),
                view.job.tsub_ns,
            )
            for view in state.jobs
        }
        self._sort(keys.__getitem__)


COLUMNS = ("service", "duration")


@dataclass
class ServiceDistribution(StoredState):
    """The distribution of total service per job, as samples.

    Parameters
    ----------
    past
        Unit-seconds of past jobs, in any order.
    delta
        Length of the next quantum in unit-seconds.
    """

    past: InitVar[Iterable[float]]
    delta: float
    samples: list[float] = field(init=False)  # ascending
    _sums: NDArray[np.float64] = field(init=False)  # of the first k samples

    def __post_init__(self, past: Iterable[float]) -> None:
        self.samples = sorted(past)
        self._sums = np.concatenate([[0.0], np.cumsum(self.samples)])

    def learn(self, sample: float) -> None:
        """Add the service of another finished job."""
        index = bisect_right(self.samples, sample)
        self.samples.insert(index, sample)
        self._sums = np.concatenate(
            [self._sums[: index + 1], self._sums[index:] + sample]
        )

    def index(self, attained: float) -> float:
        """The index of a job with this many attained unit-seconds; 0 beyond the largest sample.

        With n samples d in ascending order, i of them up to a and e up to a + Δ (tests/rules/README.md):

            P = (e − i) / (n − i)        the job finishes within the quantum
            E = (Σ d[i:e] + Δ·(n − e)) / (n − i)        its expected service in the quantum
            index = P / E
        """
        samples, n = self.samples, len(self.samples)
        first = bisect_right(samples, attained)
        if first == n:
            return 0.0
        last = bisect_right(samples, attained + self.delta)
        return (last - first) / self._service(first, last)  # n − i is a factor of both

    def index_of_next_sample(self, attained: float) -> float:
        """The index that Tiresias' public simulator uses: one unit-second before the next sample is reached.

        There the largest sample never counts as finished within the quantum, P is rounded to five digits and E down to
        a whole number, so more indices are equal.
        """
        samples, n = self.samples, len(self.samples)
        index = bisect_right(samples, attained)
        if index == n:
            return 0.0
        before = samples[index] - 1
        first, last = (
            bisect_right(samples, before),
            min(bisect_right(samples, before + self.delta), n - 1),
        )
        chance = round((last - first) / (n - first), 5)
        return round(chance * 1e6 / (self._service(first, last) // (n - first)), 4)

    def _service(self, first: int, last: int) -> float:
        """Σ d[i:e] + Δ·(n − e)."""
        return float(self._sums[last] - self._sums[first]) + self.delta * (
            len(self.samples) - last
        )


def read_samples(path: str | Path) -> list[float]:
    """Read the service of past jobs: a table with a column `service` (unit-seconds), or `duration`.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    rows = Rows(read_table(path), path)
    column = next((name for name in COLUMNS if rows.has(name)), None)
    if column is None:
        raise rows.error(
            f"expected a column {' or '.join(COLUMNS)} with unit-seconds of past jobs"
        )
    samples: list[float] = rows.require((column,)).all_numbers(column, above=0).tolist()
    return samples


@dataclass
class TiresiasPollux(TiresiasL):
    """Tiresias-l in rounds, with two queues, where running jobs do not come before waiting ones.

    Jobs that fit by number of units run; all others stop. Jobs that start, in this order, get the nodes with the most
    free units. `placement`, `skew_threshold`, `late_demotion` and `compat` have no effect.
    """

    limits: tuple[float, ...] = constant(
        (57_600.0,), "unit-seconds at which a job leaves each queue but the last"
    )
    interval_s: float = rounds(60.0)
    name: str = field(default="tiresias-pollux", init=False)

    def decide(self, state: State) -> Decision:
        """Give units to jobs in the order of their queues, at the start of each round."""
        wake_ns = next_round(state.time_ns, self.interval_s)
        if not is_round(state.time_ns, self.interval_s):
            return Decision.keep(wake_ns=wake_ns)
        self._update_queues(state)
        runs = within_quota(state, self._order(state.jobs.positions))
        nodes = Nodes(
            state, [position for position in runs if state.jobs[position].units]
        )
        changed: dict[int, tuple[int, ...]] = {
            position: () for position in state.jobs.running if position not in runs
        }
        for position in runs:
            if not state.jobs[position].units:
                changed[position] = nodes.take(
                    nodes.emptiest(state.jobs[position].job.request)
                )
        return Decision.placed(changed, wake_ns=wake_ns)
