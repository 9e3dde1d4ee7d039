"""How good predictions are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bft.models.curves import FloatArray
from bft.models.errors import InputError


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Figures of predictions p for actual values a; NaN where all values are equal, which correlate with nothing.

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
    from scipy.stats import linregress, rankdata

    predicted = np.maximum(predicted, 0.0)
    if len(predicted) != len(actual) or len(actual) < 2:
        raise InputError(
            f"{len(predicted)} predictions for {len(actual)} values, expected as many and at least 2"
        )
    logs = np.log1p(predicted), np.log1p(actual)
    ranks = rankdata(predicted), rankdata(actual)  # equal values share their mean rank
    varies = np.ptp(logs[0]) > 0
    return Accuracy(
        float(np.abs(predicted - actual).mean()),
        _r2(predicted, actual),
        _r2(*logs),
        float(linregress(*ranks).rvalue) if varies and np.ptp(actual) else np.nan,
        float(linregress(*logs).slope) if varies else np.nan,
    )


def _r2(predicted: FloatArray, actual: FloatArray) -> float:
    spread = float(actual.var())
    return (
        1.0 - float(((predicted - actual) ** 2).mean()) / spread if spread else np.nan
    )
