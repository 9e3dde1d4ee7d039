"""How an application of Pollux' form goes in a replay: its true speed, and the agent that tunes its batch.

The truth is interpolated from measurements (`Application`): step times by placement, gradient noise by epoch. The agent
(Pollux, OSDI'21, §4.1) knows only what this job has shown of itself: step times of the placements it has had, to which
it fits the throughput model, and the gradient's noise. Schedulers see the agent's view: `goodput`, `profiled`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from bft.models.speed.applications import Application, StepTime
from bft.models.speed.goodput import (
    BatchLimits,
    Goodput,
    Observations,
    ThroughputParameters,
    adascale_gain,
    fit_throughput,
    noise_scale,
)
from bft.models.tolerances import PROGRESS, REMAINING_SAMPLES, WHOLE_SAMPLES

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, eq=False)
class ApplicationProfile:
    """A profile of an application, as a job carries it in its attributes.

    Parameters
    ----------
    application
        The measurements, on units of any kind that `by_kind` does not name.
    batch
        Total batch size that the user chose, in samples.
    tunable
        Whether the batch size may be changed at all.
    interval_s
        The agent chooses the batch size anew at whole multiples of this, and at the end of every epoch.
    whole_seconds
        Epochs end at whole seconds after they or an interval began, as in Pollux' simulator; else when they do.
    slowdown
        How many times longer every step takes than it was measured, > 0: of the application on another
        cluster. Its agent does not know of it.
    published_fit
        The agent fits the throughput model as the published programs do (`fit_throughput`).
    by_kind
        The measurements on units of some kinds; the training, and so its progress, is the same on all of them.
    """

    application: Application
    batch: int
    tunable: bool = True
    interval_s: float = 60.0
    whole_seconds: bool = False
    slowdown: float = 1.0
    published_fit: bool = False
    by_kind: Mapping[str, Application] = field(default_factory=dict)

    def start(self, *, tunes: bool = False) -> ApplicationDynamics:
        """A job that has not run yet; `tunes`: its agent chooses the batch size, if that may be changed."""
        return ApplicationDynamics(self, tunes=tunes and self.tunable)

    def on(self, kind: str) -> Application:
        """The measurements on units of a kind."""
        return self.by_kind.get(kind, self.application)

    @cached_property
    def total_samples(self) -> float:
        """Work of a whole training, in samples at the initial batch size."""
        return self.application.total_progress * self.application.limits.initial


class Split(NamedTuple):
    """Division of a total batch: samples that a replica takes in one pass, and passes before the last."""

    atomic: int
    accumulation: int


def split_batch(batch: int, replicas: int, limits: BatchLimits) -> Split:
    """A given total batch in the fewest passes that fit; one replica beyond M0 takes at least two (`Goodput`)."""
    local = math.ceil(batch / replicas - WHOLE_SAMPLES)
    passes = math.ceil(local / limits.atomic_max - WHOLE_SAMPLES)
    if replicas == 1 and batch > limits.initial:
        passes = max(passes, 2)
    return _within(
        Split(math.ceil(local / passes - WHOLE_SAMPLES), passes - 1), replicas, limits
    )


def _within(split: Split, replicas: int, limits: BatchLimits) -> Split:
    """Rounding up may pass M_max."""
    max_atomic = limits.most // (replicas * (split.accumulation + 1))
    return Split(max(min(split.atomic, max_atomic), 1), split.accumulation)


# Kind of units, nodes, replicas, atomic batch.
_Seen = tuple[str, int, int, int]


class _Stretch(NamedTuple):
    """A time of constant rate: from when to when (ns), from which progress to which (steps at M0), and epochs then.

    After it the agent will have seen a step of `step_s` at `seen` (kind of units, nodes, replicas, atomic batch),
    `sync_s` of it waiting, and the gradient's |g|² and variance.
    """

    begin_ns: int
    end_ns: int
    begin: float
    end: float
    epoch: int
    seen: _Seen
    step_s: float
    sync_s: float
    sqr: float
    var: float

    def at(self, now_ns: int) -> float:
        """Steps done at an instant; after its end those at its end."""
        share = min((now_ns - self.begin_ns) / (self.end_ns - self.begin_ns), 1.0)
        return self.begin + share * (self.end - self.begin)


class ApplicationDynamics:
    """The progress of one job in one replay; see `ApplicationProfile`.

    Parameters
    ----------
    profile
        The application that it runs.
    tunes
        The agent chooses the batch size; otherwise the user does.

    Attributes
    ----------
    observed
        (kind, nodes, replicas, atomic batch) -> seconds of a step, and what of it waits for synchronisation.
    gradient
        |g|² and variance of the epoch it was last in; None before it has run.
    split
        The batch size in use.
    """

    def __init__(self, profile: ApplicationProfile, *, tunes: bool) -> None:
        self.profile, self.tunes = profile, tunes
        self.observed: dict[_Seen, tuple[float, float]] = {}
        self.gradient: tuple[float, float] | None = None
        self._fits: dict[str, ThroughputParameters] = {}  # of `observed`, by kind
        self.split = Split(0, 0)
        self._placement: tuple[int, ...] = ()
        self._kind = ""
        self._slowdown = 1.0
        self._stretch: _Stretch | None = None

    # --- what a scheduler sees

    @property
    def goodput(self) -> Goodput | None:
        """The agent's goodput function on the kind of units that it runs on; see `goodput_on`."""
        return self.goodput_on(self._kind)

    def goodput_on(self, kind: str) -> Goodput | None:
        """The agent's goodput function on units of a kind, as fitted to date; None before the job has run on any."""
        if kind not in self._fits:
            observed = tuple(
                (seen[1:], seconds)
                for seen, seconds in self.observed.items()
                if seen[0] == kind
            )
            if not observed:
                return None
            self._fits[kind] = _fitted(observed, self.profile.published_fit)
        if self.gradient is None:
            return None
        limits = self.profile.on(kind).limits
        scale = noise_scale(*self.gradient, limits.initial)
        return Goodput(self._fits[kind], scale, limits)

    @property
    def profiled(self) -> int:
        """Most replicas observed so far."""
        return max((replicas for _, _, replicas, _ in self.observed), default=0)

    @property
    def most(self) -> int:
        """Most replicas among which a batch can be shared out."""
        limits = self.profile.application.limits
        return (limits.most if self.tunes else self.profile.batch) // limits.atomic_min

    def step_s(self, units: int, units_per_node: int) -> float:
        """True seconds of an iteration at the user's batch size on so many units, consolidated.

        A single unit is taken to need two passes whatever its batch, as in Pollux' artifact.
        """
        split = split_batch(self.profile.batch, units, self.profile.application.limits)
        if units == 1 and split.accumulation == 0:
            split = Split(math.ceil(self.profile.batch / 2), 1)
        full_nodes, rest = divmod(units, units_per_node)
        placement = (units_per_node,) * full_nodes + ((rest,) if rest else ())
        return _iteration_s(
            _step_time(self.profile.application, placement, split.atomic), split
        )

    def iterations_left(self, progress: float) -> float:
        """Iterations at the user's batch size after the epoch under way; 1 in the last (Pollux' artifact)."""
        application = self.profile.application
        last = len(application.epoch_ends) - 1
        epoch = application.epoch_at(
            progress / application.limits.initial * (1 + PROGRESS)
        )
        if epoch >= last:
            return 1.0
        sizes = list(application.validations)
        ahead = [
            run.iterations[last] - run.iterations[epoch]
            for run in application.validations.values()
        ]
        return float(np.interp(self.profile.batch, sizes, ahead))

    # --- time

    def rate(
        self,
        placement: tuple[int, ...],
        progress: float,
        now_ns: int,
        slowdown: float = 1.0,
        kind: str = "",
    ) -> tuple[float, int | None]:
        """Rate from now on, and until when.

        Parameters
        ----------
        placement
            Units it holds on each of its nodes, most first; not empty.
        progress
            Samples done, at the initial batch size.
        now_ns
            The instant, UTC nanoseconds; from then on its units make progress.
        slowdown
            How many times longer its steps take because of others on the network; the rate counts that in.
        kind
            The kind of its units; empty where all are alike.

        Returns
        -------
        rate : float
            Samples/s.
        until : int or None
            The instant at which to ask again; None while nothing but the placement changes it.
        """
        steps = progress / self.profile.application.limits.initial
        epoch = self.profile.application.epoch_at(steps * (1 + PROGRESS))
        stretch = self._stretch
        before = self._placement, self._kind, self._slowdown
        if stretch is not None and not _same(steps, stretch.begin):
            self._learn(stretch)
        if stretch is not None and _same(steps, stretch.at(now_ns)):
            if now_ns >= stretch.end_ns:
                # Where it has led: exactly, not as doubles have it.
                steps, epoch = stretch.end, stretch.epoch
            elif before == (placement, kind, slowdown):
                return self._towards(stretch, progress, now_ns)
        self._placement, self._kind, self._slowdown = placement, kind, slowdown
        self._stretch = self._begin(now_ns, steps, epoch)
        return self._towards(self._stretch, progress, now_ns)

    def _towards(
        self, stretch: _Stretch, progress: float, now_ns: int
    ) -> tuple[float, int]:
        """The rate that leads from here exactly to the end of the stretch."""
        ahead = stretch.end * self.profile.application.limits.initial - progress
        return max(ahead, REMAINING_SAMPLES) / (
            (stretch.end_ns - now_ns) / SECOND_NS
        ), stretch.end_ns

    def _begin(self, now_ns: int, begun: float, epoch: int) -> _Stretch:
        """The next time of constant rate: to the end of the epoch or of the interval, whichever comes first."""
        application, replicas = self.profile.on(self._kind), sum(self._placement)
        ends = application.epoch_ends
        horizon_ns = self._horizon(now_ns)
        steps = begun
        while True:
            self.split = split = self._choose()
            batch = replicas * split.atomic * (split.accumulation + 1)
            sqr, var = _gradient(application, epoch, batch)
            taken = _step_time(application, self._placement, split.atomic)
            gain = adascale_gain(sqr, var, batch / application.limits.initial)
            iteration_s = _iteration_s(taken, split) * self.profile.slowdown
            speed = gain / (iteration_s * self._slowdown)
            seen = (
                (self._kind, len(self._placement), replicas, split.atomic),
                taken.step_s,
                taken.sync_s,
                sqr,
                var,
            )
            last = epoch >= len(ends) - 1
            epoch_end = float(ends[-1] if last else ends[epoch])
            if horizon_ns is not None:
                end = steps + speed * ((horizon_ns - now_ns) / SECOND_NS)
                if end < epoch_end:
                    return _Stretch(now_ns, horizon_ns, begun, end, epoch, *seen)
            seconds = max(epoch_end - steps, 0.0) / speed
            length_ns = (
                round(seconds) * SECOND_NS
                if self.profile.whole_seconds
                else math.ceil(seconds * SECOND_NS)
            )
            if horizon_ns is not None:
                length_ns = min(length_ns, horizon_ns - now_ns)
            steps, epoch = epoch_end, epoch + 1
            if length_ns > 0 or last:
                return _Stretch(
                    now_ns, now_ns + max(length_ns, 1), begun, steps, epoch, *seen
                )
            # Less than half a second was left of that epoch: it has ended.

    def _horizon(self, now_ns: int) -> int | None:
        """Return when the agent tunes the batch again; None if it has nothing to tune."""
        if not (self.tunes or self.profile.whole_seconds):
            return None
        interval_ns = round(self.profile.interval_s * SECOND_NS)
        return (now_ns // interval_ns + 1) * interval_ns

    # --- the agent

    def _choose(self) -> Split:
        """The batch size for the placement at hand."""
        limits, replicas = self.profile.on(self._kind).limits, sum(self._placement)
        if not self.tunes:
            return split_batch(self.profile.batch, replicas, limits)
        goodput = self.goodput
        if goodput is not None:
            _, atomic, accumulation = goodput.best_batch(len(self._placement), replicas)
            if atomic:
                return _within(Split(int(atomic), int(accumulation)), replicas, limits)
        return split_batch(
            max(limits.initial, limits.atomic_min * replicas), replicas, limits
        )

    def _learn(self, stretch: _Stretch) -> None:
        """Learn from a stretch of running."""
        self.gradient = stretch.sqr, stretch.var
        if stretch.seen not in self.observed:
            self.observed[stretch.seen] = stretch.step_s, stretch.sync_s
            self._fits.pop(stretch.seen[0], None)

    # --- checkpoints

    def state(self) -> dict[str, Any]:
        """The internal state as JSON values."""
        return {
            "observed": [
                [*where, *seconds] for where, seconds in self.observed.items()
            ],
            "gradient": self.gradient,
            "split": self.split,
            "placement": self._placement,
            "kind": self._kind,
            "slowdown": self._slowdown,
            "stretch": self._stretch and self._stretch._asdict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember what `state` says."""
        self._fits = {}
        self.observed = {
            (row[0], row[1], row[2], row[3]): (row[4], row[5])
            for row in state["observed"]
        }
        gradient, stretch = state["gradient"], state["stretch"]
        self.gradient = gradient and (gradient[0], gradient[1])
        self.split = Split(*state["split"])
        self._placement, self._kind = tuple(state["placement"]), state["kind"]
        self._slowdown = state["slowdown"]
        self._stretch = stretch and _Stretch(**{**stretch, "seen": (*stretch["seen"],)})


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= PROGRESS * max(1.0, abs(other))


def _iteration_s(taken: StepTime, split: Split) -> float:
    return taken.step_s + taken.gradient_s * split.accumulation


@lru_cache(maxsize=1 << 12)  # jobs with equal runs learn the same
def _fitted(
    observed: tuple[tuple[tuple[int, int, int], tuple[float, float]], ...],
    published: bool,
) -> ThroughputParameters:
    nodes, replicas, atomic = np.array(
        [where for where, _ in observed], dtype=np.float64
    ).T
    step, sync = np.array([seconds for _, seconds in observed]).T
    measured = Observations(nodes, replicas, atomic, step, step - sync)
    return fit_throughput(measured, published=published)


@lru_cache(maxsize=1 << 16)
def _step_time(
    application: Application, placement: tuple[int, ...], atomic: int
) -> StepTime:
    return application.step_time(placement, atomic)


@lru_cache(maxsize=1 << 16)
def _gradient(application: Application, epoch: int, batch: int) -> tuple[float, float]:
    return application.gradient(epoch, batch)
