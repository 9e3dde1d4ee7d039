"""GA2M: a sum of step functions of one feature each, and of pairs of features (Lou et al., KDD'13).

It is learnt by interpret's explainable boosting machine, and is then no more than tables: it predicts and can be drawn,
read and saved without that library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.extras import extra
from bft.models.prediction._documents import floats, number, part, wholes

# How many pairs of features may have a term of their own.
PAIRS: Final = 5


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
    """

    features: tuple[int, ...]
    cuts: tuple[FloatArray, ...]
    scores: FloatArray

    def at(self, x: FloatArray) -> FloatArray:
        """Contributions to the rows of x, shape (n, features): shape (n,)."""
        bins = tuple(
            np.searchsorted(cuts, x[:, feature], side="right")
            for feature, cuts in zip(self.features, self.cuts, strict=True)
        )
        result: FloatArray = self.scores[bins]
        return result


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

    def to_document(self) -> dict[str, Any]:
        """The model as plain data."""
        return {
            "intercept": self.intercept,
            "terms": [
                {
                    "features": list(term.features),
                    "cuts": [cuts.tolist() for cuts in term.cuts],
                    "scores": term.scores.ravel().tolist(),  # row by row
                }
                for term in self.terms
            ],
        }

    @classmethod
    def from_document(cls, document: Any, features: int) -> AdditiveModel:
        """Restore the model from plain data, checked, for a given number of features."""
        terms = []
        for written in part(document, "terms", list):
            used = tuple(wholes(written, "features", low=0, below=features).tolist())
            axes = {
                str(axis): values
                for axis, values in enumerate(part(written, "cuts", list))
            }
            cuts = tuple(floats(axes, axis) for axis in axes)
            scores = floats(written, "scores")
            shape = tuple(len(axis) + 1 for axis in cuts)
            if (
                len(used) not in (1, 2)
                or len(cuts) != len(used)
                or len(scores) != np.prod(shape)
            ):
                raise InputError(
                    "not a model that can be used: a term's features, cuts and scores do not fit together"
                )
            if any((np.diff(axis) <= 0).any() for axis in cuts):
                raise InputError("not a model that can be used: 'cuts' should increase")
            terms.append(Term(used, cuts, scores.reshape(shape)))
        return cls(number(document, "intercept"), tuple(terms))


def fit_ga2m(x: FloatArray, y: FloatArray, seed: int) -> AdditiveModel:
    """Learn by cyclic gradient boosting of shallow trees on one feature or pair at a time, the mean of eight bags.

    Coarse bins and few rounds: learnt on 13 days of the Venus log they predict the seven days after better than the
    library's defaults (R² of the logarithm 0.22 against 0.03), which take a hundred times as long.
    """
    glassbox = extra("interpret.glassbox")
    machine = glassbox.ExplainableBoostingRegressor(
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
    machine.fit(x, y)
    return additive(machine)


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
        terms.append(Term(tuple(int(feature) for feature in features), cuts, inner))
    return AdditiveModel(float(np.ravel(machine.intercept_)[0]), tuple(terms))


def importance(model: AdditiveModel, x: FloatArray) -> NDArray[np.float64]:
    """Mean absolute contribution of each term to the rows of x, in units of the target: shape (terms,)."""
    return np.array([np.abs(term.at(x)).mean() for term in model.terms])
