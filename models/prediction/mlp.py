"""A multilayer perceptron: learnt by scikit-learn, then a handful of matrices."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.extras import extra
from bft.models.prediction._documents import floats, part


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
