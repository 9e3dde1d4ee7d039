"""Uncertainty of a difference: paired bootstrap intervals of ratios."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# With fewer pairs an interval means nothing: 7 days show the spread of a week, 5 seeds a first idea of theirs.
MIN_DAYS, MIN_SEEDS = 7, 5
CONFIDENCE = 0.95
SEED = 0
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval of a relative difference, and the number of pairs behind it."""

    low: float
    high: float
    pairs: int


def relative(ours: Array, theirs: Array) -> float | None:
    """Sum of `ours` over sum of `theirs`, minus 1; None if the sum of `theirs` is 0."""
    base = float(theirs.sum())
    return float(ours.sum()) / base - 1 if base > 0 else None


def interval(ours: Array, theirs: Array, least: int) -> Interval | None:
    """Bootstrap interval (BCa, Efron 1987) of `relative`; pairs are drawn together.

    Parameters
    ----------
    ours, theirs
        One value per day, or seed, in the same order. Pairs of two zeros do not count.
    least
        The smallest number of pairs for an interval.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    some = (ours != 0) | (theirs != 0)
    ours, theirs = ours[some], theirs[some]
    pairs, difference = len(ours), relative(ours, theirs)
    if pairs < least or difference is None:
        return None
    if np.allclose(ours, theirs * (1 + difference), rtol=1e-12, atol=0):  # no variation
        return Interval(difference, difference, pairs)

    def statistic(a: Array, b: Array, axis: int = -1) -> Array:
        ratio: Array = a.sum(axis=axis) / b.sum(axis=axis) - 1
        return ratio

    # A draw whose `theirs` adds up to 0, or without variation, gives NaN: then there is no interval.
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        result = bootstrap(
            (ours, theirs),
            statistic,
            paired=True,
            vectorized=True,
            confidence_level=CONFIDENCE,
            random_state=np.random.default_rng(SEED),
        ).confidence_interval
    low, high = float(result.low), float(result.high)
    return (
        Interval(low, high, pairs) if np.isfinite(low) and np.isfinite(high) else None
    )
