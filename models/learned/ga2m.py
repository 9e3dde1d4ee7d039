"""GA2M (Lou et al., KDD'13): a sum of step functions of one feature each, and of pairs of features.

It is learnt by interpret's explainable boosting machine, from a seed in one thread, and is then no more than tables: a
library's object would be saved as a pickle, which runs code when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.plugins import extra

# How many pairs of features may have a term of their own.
PAIRS: Final = 5
# Fewer rows teach nothing.
MIN_ROWS: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """The term that one feature, or a pair, adds to the prediction.

    Parameters
    ----------
    features
        Indices of one or two features.
    cuts
        For each feature its increasing cut points, shape (c,): it is in bin i from cut i-1 on and below cut i.
    scores
        Contribution of each bin, in units of the target: float64 of shape (c0 + 1,) or (c0 + 1, c1 + 1).

    Raises
    ------
    ValueError
        When these do not fit together.
    """

    features: tuple[int, ...]
    cuts: tuple[FloatArray, ...]
    scores: FloatArray

    def __post_init__(self) -> None:
        if len(self.features) not in (1, 2) or min(self.features) < 0:
            raise ValueError("a term has one feature or two")
        if self.scores.shape != tuple(len(cuts) + 1 for cuts in self.cuts):
            raise ValueError("the cuts and scores of a term do not fit together")
        if any((np.diff(cuts) <= 0).any() for cuts in self.cuts):
            raise ValueError("the cuts of a term should increase")

    def at(self, x: FloatArray) -> FloatArray:
        """Contributions to the rows of x, shape (n, features): shape (n,)."""
        bins = tuple(
            np.searchsorted(cuts, x[:, feature], side="right")
            for feature, cuts in zip(self.features, self.cuts, strict=True)
        )
        return np.asarray(self.scores[bins])


@dataclass(frozen=True, slots=True, eq=False)
class AdditiveModel:
    """Intercept plus the sum of terms, both in units of the target."""

    intercept: float
    terms: tuple[Term, ...]

    def predict(self, x: FloatArray) -> FloatArray:
        """Predictions for rows of finite features, shape (n, features): shape (n,)."""
        result = np.full(len(x), self.intercept)
        for term in self.terms:
            result += term.at(x)
        return result


def fit_ga2m(x: FloatArray, y: FloatArray, seed: int = 0) -> AdditiveModel:
    """Learn y from x by cyclic gradient boosting of shallow trees on one feature or pair at a time, in eight bags.

    Coarse bins and few rounds: learnt on 13 days of the Venus log they predict the seven days after better than the
    library's defaults (R² of the logarithm 0.22 against 0.03), which take a hundred times as long.

    Parameters
    ----------
    x, y
        Finite features of shape (n, features) and finite targets of shape (n,).
    seed
        Same data, in whatever order, seed and versions of the libraries: same model, to the last bit.

    Raises
    ------
    InputError
        For fewer than 20 rows, or when the library is not installed.
    """
    if len(x) < MIN_ROWS:
        raise InputError(f"{len(x)} rows to learn from, expected at least {MIN_ROWS}")
    machine = extra("interpret.glassbox").ExplainableBoostingRegressor(
        feature_types=["continuous"] * x.shape[1],
        interactions=min(PAIRS, x.shape[1] * (x.shape[1] - 1) // 2),
        max_bins=32,
        max_interaction_bins=8,
        outer_bags=8,
        learning_rate=0.1,
        max_rounds=100,
        min_samples_leaf=25,
        smoothing_rounds=0,
        interaction_smoothing_rounds=0,
        greedy_ratio=0.0,
        cyclic_progress=True,
        n_jobs=1,
        random_state=seed,
    )
    order = any_order(x, y, seed)
    machine.fit(np.ascontiguousarray(x[order]), np.ascontiguousarray(y[order]))
    return additive(machine)


def any_order(x: FloatArray, y: NDArray[Any], seed: int) -> NDArray[np.int64]:
    """An order of the rows that does not depend on the one in which they come, nor follows what they hold.

    Otherwise samples that are drawn by position (bags, rows held out) would differ.
    """
    by_content = np.lexsort((*x.T, y))
    return by_content[np.random.default_rng(seed).permutation(len(y))]


def additive(machine: Any) -> AdditiveModel:
    """The tables of a fitted explainable boosting machine whose features are all continuous and known."""
    terms = []
    for features, scores in zip(
        machine.term_features_, machine.term_scores_, strict=True
    ):
        # A feature has coarser bins in pairs than alone, where the library made any.
        levels = [machine.bins_[feature] for feature in features]
        cuts = tuple(
            np.asarray(level[min(len(level), len(features)) - 1], dtype=np.float64)
            for level in levels
        )
        # The first and last bins of an axis are for missing and unknown values, which we do not have.
        inner = np.asarray(scores, dtype=np.float64)[(slice(1, -1),) * len(features)]
        terms.append(Term(tuple(map(int, features)), cuts, inner))
    return AdditiveModel(float(np.ravel(machine.intercept_)[0]), tuple(terms))


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
