"""How sure a difference is: paired bootstrap intervals of ratios."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Fewer pairs say nothing of their spread: a week's days differ, and of 5 seeds an interval has at least some meaning.
MIN_DAYS, MIN_SEEDS = 7, 5
CONFIDENCE = 0.95
SEED = 0
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval of a relative difference, from so many pairs."""

    low: float
    high: float
    pairs: int


def relative(ours: Array, theirs: Array) -> float | None:
    """Sum of ours over sum of theirs, less 1; None where theirs is nothing."""
    base = float(theirs.sum())
    return float(ours.sum()) / base - 1 if base > 0 else None


def interval(ours: Array, theirs: Array, least: int) -> Interval | None:
    """Bootstrap interval (BCa, Efron 1987) of `relative`, pairs drawn together.

    Parameters
    ----------
    ours, theirs
        Of each day, or seed, the same in both. Pairs in which both are nothing do not count.
    least
        With fewer pairs there is no interval.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    some = (ours != 0) | (theirs != 0)
    ours, theirs = ours[some], theirs[some]
    pairs, difference = len(ours), relative(ours, theirs)
    if pairs < least or difference is None:
        return None
    if np.allclose(ours, theirs * (1 + difference), rtol=1e-12, atol=0):  # nothing varies
        return Interval(difference, difference, pairs)

    def statistic(a: Array, b: Array, axis: int = -1) -> Array:
        ratio: Array = a.sum(axis=axis) / b.sum(axis=axis) - 1
        return ratio

    # A draw in which theirs is nothing, or a degenerate one, gives NaN: that is no interval.
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        found = bootstrap(
            (ours, theirs),
            statistic,
            paired=True,
            vectorized=True,
            confidence_level=CONFIDENCE,
            random_state=np.random.default_rng(SEED),
        ).confidence_interval
    low, high = float(found.low), float(found.high)
    return Interval(low, high, pairs) if np.isfinite(low) and np.isfinite(high) else None
