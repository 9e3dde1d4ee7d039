"""How long a training step takes: the throughput model of Pollux (OSDI'21, §3.2) and its fit.

R replicas on N nodes, atomic batch m (samples a replica and pass), s accumulation passes before the step:

    T_grad = α_c + β_c m
    T_sync = 0 if R = 1,  α_r + β_r (R - 2) if N = 1,  α_n + β_n (R - 2) otherwise
    T_iter = s T_grad + (T_grad^γ + T_sync^γ)^(1/γ)    γ = 1: no overlap, γ = 10: nearly all

Goodput is throughput times statistical efficiency (§3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bft.models.curves import Curve, FloatArray, positive_array
from bft.models.tolerances import WHOLE_SAMPLES

# Published constants: floor of all parameters, range of γ, weights of the two regularisers.
FLOOR = 1e-8
# No step takes this many seconds; without a limit a line search may overflow.
CEILING = 1e6
GAMMA = (1.0, 10.0)
WEIGHT_GAMMA, WEIGHT_RETROGRESSION = 1e-3, 1e-2
# Between nodes is at least this many times as slow as within one, until it has been measured.
UNSEEN_NODES = 1.1
# Where the published search begins, and when it ends (Sia's simulator, SOSP'23).
PUBLISHED_START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
PUBLISHED_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class ThroughputParameters:
    """Seconds of computing and synchronising a step; see the module for the formulas.

    Parameters
    ----------
    alpha_c, beta_c
        Gradient computation: constant in s, and s a sample of the atomic batch.
    alpha_n, beta_n
        Synchronisation across nodes: constant in s, and s a replica beyond two.
    alpha_r, beta_r
        The same within one node.
    gamma
        How far computing and synchronising overlap, in [1, 10].

    Examples
    --------
    >>> step = ThroughputParameters(0.1, 0.01, 0.2, 0.0, 0.05, 0.0, gamma=1.0)
    >>> step.step_time([1, 1, 2], [1, 2, 2], 10).round(3).tolist()  # alone, on one node, on two
    [0.2, 0.25, 0.4]
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def gradient_time(self, atomic: ArrayLike) -> FloatArray:
        """T_grad in s of an atomic batch of `atomic` samples (any shape)."""
        return np.asarray(
            self.alpha_c + self.beta_c * np.asarray(atomic, dtype=np.float64)
        )

    def sync_time(self, nodes: ArrayLike, replicas: ArrayLike) -> FloatArray:
        """T_sync in s of `replicas` on `nodes` (shapes that broadcast); 0 for one replica."""
        nodes, replicas = np.asarray(nodes), np.asarray(replicas, dtype=np.float64)
        beyond = np.maximum(replicas - 2, 0)
        across = self.alpha_n + self.beta_n * beyond
        within = self.alpha_r + self.beta_r * beyond
        return np.where(replicas <= 1, 0.0, np.where(nodes > 1, across, within))

    def step_time(
        self,
        nodes: ArrayLike,
        replicas: ArrayLike,
        atomic: ArrayLike,
        accumulation: ArrayLike = 0,
    ) -> FloatArray:
        """T_iter in s, of shapes that broadcast; `accumulation` is s, the passes before the one that synchronises."""
        gradient, gamma = self.gradient_time(atomic), self.gamma
        # In logarithms: small times raised to 10 would underflow. log 0 = -inf is one replica.
        with np.errstate(divide="ignore"):
            logs = np.log(gradient), np.log(self.sync_time(nodes, replicas))
            last = np.exp(np.logaddexp(gamma * logs[0], gamma * logs[1]) / gamma)
        return np.asarray(np.asarray(accumulation) * gradient + last)

    def throughput(
        self,
        nodes: ArrayLike,
        replicas: ArrayLike,
        atomic: ArrayLike,
        accumulation: ArrayLike = 0,
    ) -> FloatArray:
        """Return the throughput R m (s + 1) / T_iter in samples a second (Pollux, §3.2)."""
        samples = (
            np.asarray(replicas) * np.asarray(atomic) * (np.asarray(accumulation) + 1.0)
        )
        return np.asarray(
            samples / self.step_time(nodes, replicas, atomic, accumulation)
        )


@dataclass(frozen=True, eq=False)
class Observations:
    """Measured steps without accumulation, arrays of shape (measurements,).

    Parameters
    ----------
    nodes, replicas
        N and R, whole numbers with 1 <= N <= R.
    atomic
        m, samples a replica, > 0.
    step_s
        T_iter in s, > 0.
    gradient_s
        T_grad in s, > 0: the step less what it waits for synchronisation.

    Raises
    ------
    ValueError
        Naming the array and the first entry that is wrong.

    Examples
    --------
    >>> Observations([1, 2], [1, 1], [32, 32], [0.5, 0.6], [0.5, 0.5])
    Traceback (most recent call last):
    ValueError: replicas: expected 1 <= nodes <= replicas, but entry 2 has 1 replicas on 2 nodes
    """

    nodes: FloatArray
    replicas: FloatArray
    atomic: FloatArray
    step_s: FloatArray
    gradient_s: FloatArray

    def __post_init__(self) -> None:
        for each in fields(self):
            values = positive_array(
                each.name, getattr(self, each.name), len(self.nodes)
            )
            object.__setattr__(self, each.name, values)
        wrong = np.flatnonzero((self.nodes < 1) | (self.replicas < self.nodes))
        if len(wrong):
            first = int(wrong[0])
            raise ValueError(
                f"replicas: expected 1 <= nodes <= replicas, but entry {first + 1} has "
                f"{self.replicas[first]:g} replicas on {self.nodes[first]:g} nodes"
            )

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(
        self, chosen: NDArray[np.bool_] | NDArray[np.int64]
    ) -> Observations:
        """Some of the measurements."""
        columns = (getattr(self, each.name) for each in fields(self))
        return Observations(*(column[chosen] for column in columns))


def fit_throughput(
    observed: Observations, *, published: bool = False
) -> ThroughputParameters:
    """Fit the throughput model by the published objective (Pollux, §4.1) with L-BFGS-B.

        RMSE(log T_grad) + RMSE(log T_iter) + 1e-3 (γ - 1)² + 1e-2 ((β_n/α_n)² + (β_r/α_r)²)

    What has not been observed yet is assumed as fast as can be, so that a scheduler tries it: with one batch size α_c
    is half the mean of T_grad; without several nodes their terms are 1.1 times the local ones (floor when there are
    none); without several replicas in one node those are at the floor; without more than two replicas both β are.

    Parameters
    ----------
    observed
        The measurements.
    published
        Search as the published programs do. Where few sizes were observed, many parameters fit them equally well, and
        the search decides which of these a scheduler believes.

    Returns
    -------
    ThroughputParameters
        The same for the same observations.

    Notes
    -----
    The search is in the logarithms of the times, from a start of the data's own magnitude. On 240 random samples of
    the published traces it ended within 1 % of the best of four searches always, that in the times themselves from the
    published start (0.1, 0.01, ...) in 79 %: the objective has a kink where computing is fitted exactly.

    Examples
    --------
    >>> nodes, replicas = [1, 1, 1, 2, 2, 4], [1, 2, 4, 4, 8, 16]
    >>> step_s = [0.20, 0.24, 0.28, 0.35, 0.40, 0.50]
    >>> fitted = fit_throughput(Observations(nodes, replicas, [64] * 6, step_s, [0.2] * 6))
    >>> round(float(fitted.step_time(2, 6, 64)), 3)  # between the 0.35 s of 4 and the 0.40 s of 8 replicas
    0.375
    """
    lower = np.array([FLOOR] * 6 + [GAMMA[0]])
    # L-BFGS-B begins with another step where all parameters have both bounds.
    upper = np.array([np.inf if published else CEILING] * 6 + [GAMMA[1]])
    pinned = np.full(7, np.nan)
    if len(np.unique(observed.atomic)) == 1:
        pinned[0] = observed.gradient_s.mean() / 2
    across = (observed.nodes > 1).any()
    if not across:
        pinned[[2, 3]] = FLOOR
    if not ((observed.nodes == 1) & (observed.replicas > 1)).any():
        pinned[[4, 5]] = FLOOR
    if not (observed.replicas > 2).any():
        pinned[[3, 5]] = FLOOR
    fixed = ~np.isnan(pinned)
    lower[fixed] = upper[fixed] = pinned[fixed]
    value_at = _Objective(observed)
    if published:
        # In the times themselves, from a fixed start.
        found = _minimum(value_at, PUBLISHED_START, lower, upper, PUBLISHED_TOLERANCE)
    else:
        found = _search(value_at, observed, lower, upper)
    # exp and log may miss a bound by a rounding error.
    values = np.clip(found, lower, upper)
    if not across:
        values[2] = max(values[2], UNSEEN_NODES * values[4])
        values[3] = max(values[3], UNSEEN_NODES * values[5])
    return ThroughputParameters(*map(float, values))


def _search(
    value_at: _Objective, observed: Observations, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """The parameters of the least objective, searched for in the logarithms of the times."""
    # From a start of the data's own magnitude.
    compute = float(np.median(observed.gradient_s))
    batch = float(np.median(observed.atomic))
    waiting = max(float(np.median(observed.step_s)) - compute, 0.1 * compute)
    by_compute = compute / 2, compute / 2 / batch
    by_waiting = waiting, waiting / 10, waiting / 2, waiting / 20

    def logs(values: FloatArray) -> FloatArray:
        return np.append(np.log(values[:6]), values[6])

    def in_logs(point: FloatArray) -> tuple[float, FloatArray]:
        values = np.append(np.exp(point[:6]), point[6])
        value, slope = value_at(values)
        slope[:6] *= values[:6]
        return value, slope

    start = np.array([*by_compute, *by_waiting, 1.5])
    point = _minimum(in_logs, logs(start), logs(lower), logs(upper))
    return np.append(np.exp(point[:6]), point[6])


def _minimum(
    value_at: Callable[[FloatArray], tuple[float, FloatArray]],
    start: ArrayLike,
    lower: FloatArray,
    upper: FloatArray,
    tolerance: float | None = None,
) -> FloatArray:
    """Return where L-BFGS-B ends, from a start within the bounds."""
    from scipy.optimize import minimize

    # Its matrices are tiny: more threads wait for each other, on a busy machine ten times as long as the rest takes.
    with _libraries().limit(limits=1, user_api="blas"):
        result = minimize(
            value_at,
            np.clip(start, lower, upper),
            method="L-BFGS-B",
            jac=True,
            bounds=list(zip(lower, upper, strict=True)),
            tol=tolerance,
        )
    return np.asarray(result.x)


@cache
def _libraries() -> Any:
    """The libraries with threads in this process; to be called when SciPy's are loaded. Finding them takes 10 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _Objective:
    """The objective and its gradient by the seven parameters; what does not depend on them is computed once."""

    def __init__(self, observed: Observations) -> None:
        self.log_gradient_s = np.log(observed.gradient_s)
        self.log_step_s = np.log(observed.step_s)
        self.atomic, self.beyond = observed.atomic, np.maximum(observed.replicas - 2, 0)
        self.alone, self.across = observed.replicas <= 1, observed.nodes > 1
        # As factors, 0 or 1.
        self.synchronises, self.is_across, self.is_within = (
            mask.astype(np.float64) for mask in (~self.alone, self.across, ~self.across)
        )

    def __call__(self, values: FloatArray) -> tuple[float, FloatArray]:
        """The objective at `values`, in the order of `ThroughputParameters`, and its gradient: shape (7,)."""
        alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma = values
        slope = np.zeros(7)
        beyond, atomic = self.beyond, self.atomic
        grad = alpha_c + beta_c * atomic
        log_grad = np.log(grad)
        parts = np.array([1 / grad, atomic / grad])
        total = _rmse(log_grad - self.log_gradient_s, parts, slope[:2])

        # One replica waits for nothing; the floor keeps its logarithm finite, and is nothing beside a step.
        sync = np.where(
            self.across, alpha_n + beta_n * beyond, alpha_r + beta_r * beyond
        )
        sync[self.alone] = FLOOR
        log_sync = np.log(sync)
        by_grad, by_sync = gamma * log_grad, gamma * log_sync
        log_step = np.logaddexp(by_grad, by_sync) / gamma
        by_grad = np.exp(gamma * (log_grad - log_step))
        by_sync = np.exp(gamma * (log_sync - log_step))
        waits = by_sync / sync * self.synchronises
        across, within = waits * self.is_across, waits * self.is_within
        by_alpha_c = by_grad / grad
        by_gamma = (by_grad * log_grad + by_sync * log_sync - log_step) / gamma
        parts = np.array(
            [
                by_alpha_c, by_alpha_c * atomic, across, across * beyond, within, within * beyond, by_gamma
            ]
        )  # fmt: skip
        total += _rmse(log_step - self.log_step_s, parts, slope)

        total += WEIGHT_GAMMA * (gamma - 1) ** 2
        slope[6] += 2 * WEIGHT_GAMMA * (gamma - 1)
        for index, (alpha, beta) in ((2, (alpha_n, beta_n)), (4, (alpha_r, beta_r))):
            ratio = beta / alpha
            total += WEIGHT_RETROGRESSION * ratio**2
            slope[index] -= 2 * WEIGHT_RETROGRESSION * ratio**2 / alpha
            slope[index + 1] += 2 * WEIGHT_RETROGRESSION * ratio / alpha
        return float(total), slope


def _rmse(error: FloatArray, parts: FloatArray, slope: FloatArray) -> float:
    """Root mean square of `error`; adds its gradient to `slope`, given that of each error (parameters, entries)."""
    rmse = math.sqrt(float((error**2).sum()) / len(error))
    if rmse > 0:
        slope += parts @ error / (len(error) * rmse)
    return rmse


# --- goodput: throughput times statistical efficiency ---

IntArray = NDArray[np.int64]

# Total batch sizes tried between the least and the most allowed (Pollux' artifact).
CANDIDATES = 50


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of the batch sizes that a job may use, in samples.

    Parameters
    ----------
    initial
        M0, the total batch size that its user chose; efficiency is relative to it.
    most
        M_max, the largest total batch.
    atomic_min, atomic_max
        m_min, m_max: least and most a replica takes in one pass (the latter for its memory).

    Examples
    --------
    >>> BatchLimits(initial=64, most=32, atomic_min=8, atomic_max=64)
    Traceback (most recent call last):
    ValueError: most: expected at least initial (64), not 32
    """

    initial: int
    most: int
    atomic_min: int
    atomic_max: int

    def __post_init__(self) -> None:
        if not 1 <= self.atomic_min <= min(self.atomic_max, self.initial):
            raise ValueError(
                f"atomic_min: expected 1 <= atomic_min <= atomic_max ({self.atomic_max}) and initial "
                f"({self.initial}), not {self.atomic_min}"
            )
        if self.most < self.initial:
            raise ValueError(
                f"most: expected at least initial ({self.initial}), not {self.most}"
            )


def noise_scale(grad_sqr: float, grad_var: float, initial: float) -> float:
    """Return the gradient noise scale M0 · var / |g|² in samples, of statistics at the batch size M0 (Pollux, §3.1).

    The estimate of |g|² is unbiased and may be negative: then all is noise, and the scale infinite.

    >>> noise_scale(grad_sqr=0.5, grad_var=2.0, initial=64), noise_scale(-0.1, 2.0, 64)
    (256.0, inf)
    """
    return initial * grad_var / grad_sqr if grad_sqr > 0 else np.inf


def adascale_gain(grad_sqr: float, grad_var: float, scale: float) -> float:
    """AdaScale's gain r of a batch that is `scale` = M / M0 times the initial one, in [1, scale] for scale >= 1.

    With μ² the squared norm of the gradient and σ² its variance at M0:

        r = (σ² + μ²) / (σ² / scale + μ²)

    A step at M is worth r steps at M0, so that the learning rate of M0 is multiplied by r, and goodput counts r steps:
    r = scale × efficiency. All noise (μ² = 0) gives scale, no noise gives 1. Where the estimate of μ² is negative and
    outweighs the noise of the larger batch, nothing is known, and r is 1.

    References
    ----------
    Johnson et al., AdaScale SGD: A User-Friendly Algorithm for Distributed Training, ICML 2020, algorithm 1; Qiao et
    al., Pollux, OSDI 2021, section 3.1 and equation 7.

    Examples
    --------
    >>> adascale_gain(grad_sqr=0.5, grad_var=2.0, scale=4.0)  # 2.5 / (0.5 + 0.5)
    2.5
    >>> adascale_gain(0.0, 2.0, 4.0), adascale_gain(0.5, 0.0, 4.0)
    (4.0, 1.0)
    """
    noise = grad_var / scale + grad_sqr
    return (grad_var + grad_sqr) / noise if noise > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Goodput:
    """Useful samples a second of a job, in samples at its initial batch size.

    Parameters
    ----------
    parameters
        How long steps take.
    pgns
        Preconditioned gradient noise scale in samples, >= 0; infinite when gradients are all noise.
    limits
        Batch sizes it may use.

    Examples
    --------
    >>> step = ThroughputParameters(0.1, 0.01, 0.2, 0.0, 0.05, 0.0, 1.0)
    >>> goodput = Goodput(step, pgns=192.0, limits=BatchLimits(64, 1024, 16, 256))
    >>> goodput.efficiency([64, 256, 1024]).round(3).tolist()  # (192 + 64) / (192 + batch)
    [1.0, 0.571, 0.211]
    >>> [round(float(goodput.best_batch(1, replicas)[0]), 1) for replicas in (1, 2, 4)]
    [86.5, 137.0, 219.4]
    """

    parameters: ThroughputParameters
    pgns: float
    limits: BatchLimits

    def efficiency(self, batch: ArrayLike) -> FloatArray:
        """Progress of a sample relative to one at M0, in (0, 1]: (PGNS + M0) / (PGNS + M) (any shape).

        A batch below M0, which rounding may give, counts as M0.
        """
        batch = np.maximum(np.asarray(batch, dtype=np.float64), self.limits.initial)
        if np.isinf(self.pgns):
            return np.ones_like(batch)
        return (self.pgns + self.limits.initial) / (self.pgns + batch)

    def at(
        self,
        nodes: ArrayLike,
        replicas: ArrayLike,
        atomic: ArrayLike,
        accumulation: ArrayLike = 0,
    ) -> FloatArray:
        """Goodput in samples/s of a configuration (shapes that broadcast): throughput × efficiency."""
        batch = (
            np.asarray(replicas) * np.asarray(atomic) * (np.asarray(accumulation) + 1)
        )
        return self.parameters.throughput(
            nodes, replicas, atomic, accumulation
        ) * self.efficiency(batch)

    def best_batch(
        self, nodes: ArrayLike, replicas: ArrayLike
    ) -> tuple[FloatArray, IntArray, IntArray]:
        """The best batch size of each placement: goodput (samples/s), atomic batch m, accumulation passes s.

        Of 50 total batches in geometric progression from max(M0, m_min R) to M_max each is cut into the fewest passes
        that fit m_max. The samples a pass are rounded up, but never beyond floor(M_max / (R passes)): a batch stays
        within M_max, which rounding up alone could pass. A single replica that goes beyond M0 takes at least two
        passes: one alone gives no estimate of the gradient's noise (Pollux, §4.1).

        Parameters
        ----------
        nodes, replicas
            Whole numbers of shapes that broadcast, 1 <= nodes <= replicas.

        Returns
        -------
        tuple of arrays
            Of the common shape; all 0 where no batch is allowed.
        """
        nodes, replicas = np.broadcast_arrays(
            np.asarray(nodes, np.int64), np.asarray(replicas, np.int64)
        )
        shape, nodes, replicas = nodes.shape, nodes.ravel(), replicas.ravel()
        limits = self.limits
        lowest = np.maximum(limits.initial, limits.atomic_min * replicas).astype(
            np.float64
        )
        # exp and log, not geomspace: the ends must not depend on what else is in the array.
        steps = np.linspace(0.0, 1.0, CANDIDATES)[:, None]
        local = lowest * (max(limits.most, 1) / lowest) ** steps / replicas
        passes = np.ceil(local / limits.atomic_max - WHOLE_SAMPLES)
        alone = (replicas == 1) & (local > limits.initial + WHOLE_SAMPLES)
        passes = np.maximum(passes, np.where(alone, 2, 1))
        atomic = np.ceil(local / passes - WHOLE_SAMPLES)
        # Rounding up may pass M_max.
        atomic = np.minimum(atomic, np.floor(limits.most / (replicas * passes)))
        allowed = (
            (atomic >= limits.atomic_min)
            & (atomic <= limits.atomic_max)
            & (lowest <= limits.most)
        )
        atomic = np.maximum(atomic, 1)
        goodput = np.where(allowed, self.at(nodes, replicas, atomic, passes - 1), 0.0)
        best = np.argmax(goodput, axis=0), np.arange(len(replicas))
        some = allowed.any(axis=0)
        return (
            goodput[best].reshape(shape),
            np.where(some, atomic[best], 0).astype(np.int64).reshape(shape),
            np.where(some, passes[best] - 1, 0).astype(np.int64).reshape(shape),
        )


# What a policy may ask for: a fitted goodput, the scalability curve of a job that has nothing else, or None for a job
# that never ran.
Speed = Goodput | Curve | None


def replica_cap(profiled: int, limits: BatchLimits, upper: int = 64) -> int:
    """Largest number of replicas to try: twice as many as were profiled, at most `upper` and M_max / m_min.

    >>> limits = BatchLimits(initial=64, most=1024, atomic_min=16, atomic_max=256)
    >>> replica_cap(4, limits), replica_cap(100, limits)
    (8, 64)
    """
    return min(max(2 * profiled, 1), upper, limits.most // limits.atomic_min)


@lru_cache(maxsize=4096)
def goodput_table(speed: Speed, nodes: int, replicas: int) -> FloatArray:
    """Goodput in samples/s by placement, at the best batch size: float64 of shape (nodes + 1, replicas + 1).

    Entry [n, r] is that of r replicas on n nodes, and 0 where that is no placement (n > r, or one of them 0). A curve
    knows units only; a job that never ran is taken to scale perfectly, at 1 a replica. Read-only, kept for later calls
    with the same arguments (a `Goodput` by its value, a `Curve` by its identity).

    >>> goodput_table(Curve([0, 2, 4], [0, 20, 30]), nodes=2, replicas=4).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 10.0, 20.0, 25.0, 30.0], [0.0, 0.0, 20.0, 25.0, 30.0]]
    """
    counts = np.arange(replicas + 1)
    table = np.zeros((nodes + 1, replicas + 1))
    if isinstance(speed, Goodput):
        if replicas and nodes:
            # Only whether there is more than one node matters: two rows serve all.
            table[1, 1:] = speed.best_batch(1, counts[1:])[0]
            table[2:, 2:] = speed.best_batch(2, counts[2:])[0]
    else:
        table[1:] = counts if speed is None else speed.at(counts)
    table[np.arange(nodes + 1)[:, None] > counts] = 0.0
    table[:, 0] = 0.0
    table.flags.writeable = False
    return table


@lru_cache(maxsize=4096)
def speedup_table(
    speed: Speed, nodes: int, replicas: int, fair_nodes: int, fair_replicas: int
) -> FloatArray:
    """Goodput relative to that of the fair share: float64 of shape (nodes + 1, replicas + 1), read-only, kept.

    Entry [n, r] as in `goodput_table`. Where the job cannot use the fair share whole, its largest part that it can use
    counts; where it needs more than that, the rate a replica at its best size times the fair share does.

    >>> speedup_table(Curve([0, 2, 4], [0, 20, 30]), nodes=1, replicas=4, fair_nodes=1, fair_replicas=2)[1].tolist()
    [0.0, 0.5, 1.0, 1.25, 1.5]
    """
    table = goodput_table(speed, nodes, replicas)
    if isinstance(speed, Goodput):
        shares = np.arange(1, fair_replicas + 1)
        fair = speed.best_batch(np.minimum(fair_nodes, shares), shares)[0]
    else:
        fair = goodput_table(speed, 1, fair_replicas)[1, 1:]
    usable = fair[fair > 0]
    per_replica = table / np.maximum(np.arange(replicas + 1), 1)
    base = usable[-1] if len(usable) else per_replica.max() * fair_replicas
    result = table / base if base > 0 else np.zeros_like(table)
    result.flags.writeable = False
    return result
