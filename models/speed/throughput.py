"""How long a training step takes: the throughput model of Pollux (OSDI'21, §3.2) and its fit.

R replicas on N nodes, atomic batch m (samples a replica and pass), s accumulation passes before the step:

    T_grad = α_c + β_c m
    T_sync = 0 if R = 1,  α_r + β_r (R - 2) if N = 1,  α_n + β_n (R - 2) otherwise
    T_iter = s T_grad + (T_grad^γ + T_sync^γ)^(1/γ)    γ = 1: no overlap, γ = 10: nearly all

"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

FloatArray = NDArray[np.float64]

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

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(
                    f"{entry.name}: expected a finite number >= 0, not {value}"
                )
        if not GAMMA[0] <= self.gamma <= GAMMA[1]:
            raise ValueError(f"gamma: expected a number in [1, 10], not {self.gamma}")
        if self.alpha_c + self.beta_c <= 0:
            raise ValueError("alpha_c, beta_c: a step must take time")

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
        for name in ("nodes", "replicas", "atomic", "step_s", "gradient_s"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, values)
            if values.shape != (len(self.nodes),) or not len(values):
                raise ValueError(
                    f"{name}: expected as many values as nodes ({len(self.nodes)}), at least one"
                )
            wrong = ~(np.isfinite(values) & (values > 0))
            if wrong.any():
                index = int(np.argmax(wrong))
                raise ValueError(
                    f"{name}: expected numbers > 0, but entry {index + 1} is {values[index]}"
                )
        wrong = (self.nodes < 1) | (self.replicas < self.nodes)
        if wrong.any():
            index = int(np.argmax(wrong))
            raise ValueError(
                f"replicas: expected 1 <= nodes <= replicas, but entry {index + 1} has "
                f"{self.replicas[index]:g} replicas on {self.nodes[index]:g} nodes"
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
        found = _search(value_at, lower, upper, _start(observed))
    # exp and log may miss a bound by a rounding error.
    values = np.clip(found, lower, upper)
    if not across:
        values[2] = max(values[2], UNSEEN_NODES * values[4])
        values[3] = max(values[3], UNSEEN_NODES * values[5])
    return ThroughputParameters(*map(float, values))


def _search(
    value_at: _Objective, lower: FloatArray, upper: FloatArray, start: FloatArray
) -> FloatArray:
    """The parameters of the least objective, searched for in the logarithms of the times."""

    def logs(values: FloatArray) -> FloatArray:
        return np.append(np.log(values[:6]), values[6])

    def in_logs(point: FloatArray) -> tuple[float, FloatArray]:
        values = point.copy()
        np.exp(point[:6], out=values[:6])
        value, slope = value_at(values)
        slope[:6] *= values[:6]
        return value, slope

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
def _libraries() -> ThreadpoolController:
    """The libraries with threads in this process; to be called when SciPy's are loaded. Finding them takes 10 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _start(observed: Observations) -> FloatArray:
    """A start of the data's own magnitude."""
    typical = float(np.median(observed.gradient_s))
    batch = float(np.median(observed.atomic))
    waiting = max(float(np.median(observed.step_s)) - typical, 0.1 * typical)
    compute, sync = typical / 2, waiting / 2
    return np.array(
        [compute, compute / batch, waiting, waiting / 10, sync, waiting / 20, 1.5]
    )


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
