"""How good predictions are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bft.models.curves import FloatArray
from bft.models.errors import InputError


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Figures of predictions p for actual values a.

    Parameters
    ----------
    mae
        Mean |p - a|, in units of a.
    r2
        1 - Σ (p - a)² / Σ (a - mean a)²; always predicting the mean of a would give 0.
    r2_log
        The same of log(1 + p) and log(1 + a): one long job does not outweigh a thousand short ones.
    rank
        Spearman's correlation: how well p orders, which is all that a queue wants of it.
    slope
        Of the line of log(1 + a) over log(1 + p); 1 is calibrated, less: p differ more than they should.
    """

    mae: float
    r2: float
    r2_log: float
    rank: float
    slope: float


def accuracy(predicted: FloatArray, actual: FloatArray) -> Accuracy:
    """Figures of predictions >= 0 (smaller ones count as 0) for actual values >= 0, both of shape (n,).

    >>> round(accuracy(np.array([10.0, 20.0]), np.array([12.0, 16.0])).mae, 1)
    3.0
    """
    predicted = np.maximum(predicted, 0.0)
    _check(predicted, actual)
    logs = np.log1p(predicted), np.log1p(actual)
    ranks = _ranks(predicted), _ranks(actual)
    return Accuracy(
        float(np.abs(predicted - actual).mean()),
        _r2(predicted, actual),
        _r2(*logs),
        _ratio(_covariance(*ranks), np.sqrt(ranks[0].var() * ranks[1].var())),
        # Equal predictions have a variance of rounding only.
        _ratio(_covariance(*logs), logs[0].var() if np.ptp(logs[0]) > 0 else 0.0),
    )


def _check(predicted: FloatArray, actual: FloatArray) -> None:
    if len(predicted) != len(actual) or len(actual) < 2:
        raise InputError(
            f"{len(predicted)} predictions for {len(actual)} values, expected as many and at least 2"
        )


def _r2(predicted: FloatArray, actual: FloatArray) -> float:
    return 1.0 - _ratio(float(((predicted - actual) ** 2).mean()), float(actual.var()))


def _ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1; equal values share their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks


def _covariance(a: FloatArray, b: FloatArray) -> float:
    return float(((a - a.mean()) * (b - b.mean())).mean())


def _ratio(top: float, bottom: float) -> float:
    # A constant correlates with nothing.
    return float(top / bottom) if bottom > 0 else float("nan")
