"""Five kinds of regressors: all learn from a seed in one thread, and end as plain data that predict by themselves.

A fitted model is not kept as the library's object. Such objects are saved as pickles, which run code when they are
read, or in forms whose readers trust what they read: LightGBM ends the process over a malformed text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.prediction._documents import part
from bft.models.prediction.ga2m import AdditiveModel, fit_ga2m
from bft.models.prediction.mlp import Perceptron, fit_mlp
from bft.models.prediction.tree_learners import (
    fit_lightgbm,
    fit_random_forest,
    fit_xgboost,
)
from bft.models.prediction.trees import Trees

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
