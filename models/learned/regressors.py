"""Five kinds of regressors: all learn from a seed in one thread, and end as plain data that predict by themselves.

A fitted model is not kept as the library's object. Such objects are saved as pickles, which run code when they are
read, or in forms whose readers trust what they read: LightGBM ends the process over a malformed text.

A GA2M (Lou et al., KDD'13) is a sum of step functions of one feature each, and of pairs of features. It is learnt by
interpret's explainable boosting machine, and is then no more than tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.learned._documents import floats, number, part, wholes
from bft.models.learned.trees import (
    Trees,
    fit_lightgbm,
    fit_random_forest,
    fit_xgboost,
)
from bft.models.plugins import extra

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


@dataclass(frozen=True, slots=True, eq=False)
class Perceptron:
    """Layers of rectified linear units over standardised features.

    Parameters
    ----------
    mean, scale
        Subtracted from each feature, which is then divided by the second: shape (features,).
    weights, biases
        Of each layer: shapes (inputs, outputs) and (outputs,); the last has one output, in units of the target.
    """

    mean: FloatArray
    scale: FloatArray
    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]

    def predict(self, x: FloatArray) -> FloatArray:
        """Predictions for rows of finite features, shape (n, features): shape (n,)."""
        signal = (x - self.mean) / self.scale
        last = len(self.weights) - 1
        for layer, (weights, biases) in enumerate(
            zip(self.weights, self.biases, strict=True)
        ):
            # Not `@`: BLAS adds up in an order that depends on its threads.
            signal = np.einsum("ni,io->no", signal, weights) + biases
            if layer < last:
                signal = np.maximum(signal, 0.0)
        return signal[:, 0]

    def to_document(self) -> dict[str, Any]:
        """The layers as plain data."""
        return {
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "layers": [
                {"weights": weights.ravel().tolist(), "biases": biases.tolist()}
                for weights, biases in zip(self.weights, self.biases, strict=True)
            ],
        }

    @classmethod
    def from_document(cls, document: Any, features: int) -> Perceptron:
        """Restore the layers from plain data, checked, for a given number of features."""
        mean, scale = floats(document, "mean"), floats(document, "scale")
        layers = [
            (floats(layer, "weights"), floats(layer, "biases"))
            for layer in part(document, "layers", list)
        ]
        widths = [features, *(len(biases) for _, biases in layers)]
        fits = [
            len(weights) == before * after
            for (weights, _), (before, after) in zip(
                layers, pairwise(widths), strict=True
            )
        ]
        if (
            len(mean) != features
            or len(scale) != features
            or (scale <= 0).any()
            or widths[-1] != 1
            or not all(fits)
        ):
            raise InputError(
                "not a model that can be used: the layers of a perceptron do not fit together"
            )
        shaped = tuple(
            weights.reshape(shape)
            for (weights, _), shape in zip(layers, pairwise(widths), strict=True)
        )
        return cls(mean, scale, shaped, tuple(biases for _, biases in layers))


def fit_mlp(x: FloatArray, y: FloatArray, seed: int) -> Perceptron:
    """Two hidden layers, 64 and 32 wide, learnt with Adam until a tenth of the data held out improves no more."""
    network = extra("sklearn.neural_network")
    scaler = extra("sklearn.preprocessing").StandardScaler().fit(x)
    learner = network.MLPRegressor(
        hidden_layer_sizes=(64, 32),
        batch_size=min(max(len(x) // 50, 16), 256),
        early_stopping=True,
        max_iter=60,
        random_state=seed,
    )
    # One thread: how BLAS adds up, and hence what is learnt, depends on their number.
    with extra("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        # To stop after max_iter is all right.
        warnings.simplefilter("ignore", extra("sklearn.exceptions").ConvergenceWarning)
        learner.fit(scaler.transform(x), y)
    return from_sklearn(scaler, learner)


def from_sklearn(scaler: Any, learner: Any) -> Perceptron:
    """A fitted network of rectified linear units of scikit-learn, behind its scaler."""
    return Perceptron(
        np.asarray(scaler.mean_, dtype=np.float64),
        np.asarray(scaler.scale_, dtype=np.float64),
        tuple(np.asarray(weights, dtype=np.float64) for weights in learner.coefs_),
        tuple(np.asarray(biases, dtype=np.float64) for biases in learner.intercepts_),
    )


# Fewer rows teach nothing.
MIN_ROWS: Final = 20


class Regressor(Protocol):
    """A regression model that has been fitted."""

    def predict(self, x: FloatArray) -> FloatArray:
        """Predictions for rows of finite features, shape (n, features): shape (n,)."""

    def to_document(self) -> dict[str, Any]:
        """The model as plain data."""


# Kind -> its learner, and its reader from plain data for a given number of features.
_KINDS: Final[
    dict[
        str,
        tuple[
            Callable[[FloatArray, FloatArray, int], Regressor],
            Callable[[Any, int], Regressor],
        ],
    ]
] = {
    "ga2m": (fit_ga2m, AdditiveModel.from_document),
    "random_forest": (fit_random_forest, Trees.from_document),
    "lightgbm": (fit_lightgbm, Trees.from_document),
    "xgboost": (fit_xgboost, Trees.from_document),
    "mlp": (fit_mlp, Perceptron.from_document),
}
KINDS: Final = tuple(_KINDS)


def fit_regressor(kind: str, x: FloatArray, y: FloatArray, seed: int = 0) -> Regressor:
    """Learn y from x.

    Parameters
    ----------
    kind
        One of `KINDS`: ga2m (interpret), random_forest and mlp (scikit-learn), lightgbm, xgboost.
    x, y
        Finite features of shape (n, features) and finite targets of shape (n,).
    seed
        Same data, in whatever order, seed and versions of the libraries: same model, to the last bit.

    Raises
    ------
    InputError
        For an unknown kind, fewer than 20 rows, or a library that is not installed.
    """
    if kind not in _KINDS:
        raise InputError(f"no kind of regressor {kind!r}; there are {', '.join(KINDS)}")
    if len(x) < MIN_ROWS:
        raise InputError(f"{len(x)} rows to learn from, expected at least {MIN_ROWS}")
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if (
        x.ndim != 2
        or y.shape != (len(x),)
        or not (np.isfinite(x).all() and np.isfinite(y).all())
    ):
        raise ValueError(
            f"expected finite x of shape (n, features) and y of shape (n,), not {x.shape} and {y.shape}"
        )
    order = any_order(x, y, seed)
    return _KINDS[kind][0](
        np.ascontiguousarray(x[order]), np.ascontiguousarray(y[order]), seed
    )


def any_order(x: FloatArray, y: FloatArray, seed: int) -> NDArray[np.int64]:
    """An order of the rows that does not depend on the one in which they come, nor follows what they hold.

    Otherwise samples that are drawn by position (bags, rows held out, batches) would differ.
    """
    by_content = np.lexsort((*x.T, y))
    return by_content[np.random.default_rng(seed).permutation(len(y))]


def regressor_from_document(kind: str, document: Any, features: int) -> Regressor:
    """The model of a kind that plain data state, checked; see `Regressor.to_document`."""
    if kind not in _KINDS:
        raise InputError(
            f"not a model that can be used: no kind of regressor {kind!r}; there are {', '.join(KINDS)}"
        )
    return _KINDS[kind][1](part({"regressor": document}, "regressor", dict), features)
