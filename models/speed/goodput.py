"""Goodput: how fast training progresses, throughput times statistical efficiency (Pollux, OSDI'21, §3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bft.models.curves import Curve
from bft.models.speed.throughput import FloatArray, ThroughputParameters
from bft.models.tolerances import WHOLE_SAMPLES

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

    def __post_init__(self) -> None:
        if not self.pgns >= 0:
            raise ValueError(f"pgns: expected a number >= 0, not {self.pgns}")

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
        if ((nodes < 1) | (replicas < nodes)).any():
            raise ValueError("expected 1 <= nodes <= replicas")
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
    if not 1 <= fair_nodes <= fair_replicas:
        raise ValueError(
            f"expected 1 <= fair nodes <= fair replicas, not {fair_nodes} and {fair_replicas}"
        )
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
