"""Decision trees as plain arrays: one form for single trees, forests and boosted trees of any library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.prediction._documents import floats, number, part, same_length, wholes

# Rows predicted at a time: rows x trees node numbers are held.
_ROWS: Final = 4096
LEAF: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Trees whose leaves add up: base + scale · Σ value.

    Parameters
    ----------
    feature
        Of each node of all trees: the feature that is looked at, -1 at a leaf. int64 of shape (nodes,).
    threshold
        Left if the feature is at most this. float64 of shape (nodes,).
    left, right
        Node numbers, larger than the node's own; at a leaf the node itself. int64 of shape (nodes,).
    value
        Value of a leaf, in units of the target. float64 of shape (nodes,).
    roots
        First node of each tree. int64 of shape (trees,).
    base, scale
        See above: a forest's scale is 1 / trees.
    single
        Features are rounded to single precision first, as the trees' maker did.
    """

    feature: NDArray[np.int64]
    threshold: FloatArray
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: FloatArray
    roots: NDArray[np.int64]
    base: float = 0.0
    scale: float = 1.0
    single: bool = False

    def predict(self, x: FloatArray) -> FloatArray:
        """Predictions for rows of finite features, shape (n, features): shape (n,)."""
        if self.single:
            x = x.astype(np.float32).astype(np.float64)
        parts = [
            self._predict(x[start : start + _ROWS]) for start in range(0, len(x), _ROWS)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _predict(self, x: FloatArray) -> FloatArray:
        rows = np.arange(len(x))[:, None]
        node = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        while (self.feature[node] != LEAF).any():
            # At a leaf the last feature is compared, to no effect: both ways lead to the leaf.
            goes_left = x[rows, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        total: FloatArray = self.value[node].sum(axis=1)
        return self.base + self.scale * total

    def to_document(self) -> dict[str, Any]:
        """The trees as plain data."""
        return {
            "feature": self.feature.tolist(),
            "threshold": self.threshold.tolist(),
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "value": self.value.tolist(),
            "roots": self.roots.tolist(),
            "base": self.base,
            "scale": self.scale,
            "single": self.single,
        }

    @classmethod
    def from_document(cls, document: Any, features: int) -> Trees:
        """Restore the trees from plain data, checked, for a given number of features; every path ends in a leaf."""
        nodes = len(part(document, "feature", list))
        feature = wholes(document, "feature", low=LEAF, below=features)
        left, right = (
            wholes(document, side, low=0, below=nodes) for side in ("left", "right")
        )
        threshold, value = floats(document, "threshold"), floats(document, "value")
        same_length("trees", feature, left, right, threshold, value)
        roots = wholes(document, "roots", low=0, below=nodes)
        own = np.arange(nodes)
        leaf = feature == LEAF
        if (
            not len(roots)
            or (np.minimum(left, right) < own + ~leaf).any()
            or (np.maximum(left, right)[leaf] > own[leaf]).any()
        ):
            raise InputError(
                "not a model that can be used: the nodes of a tree do not lead from its root to leaves"
            )
        base, scale = number(document, "base"), number(document, "scale")
        return cls(
            feature,
            threshold,
            left,
            right,
            value,
            roots,
            base,
            scale,
            part(document, "single", bool),
        )


def joined(
    trees: Sequence[Trees],
    *,
    base: float = 0.0,
    scale: float = 1.0,
    single: bool = False,
) -> Trees:
    """Several trees as one."""
    sizes = np.cumsum([0, *(len(tree.feature) for tree in trees)])[: len(trees)]

    def column(
        of: Callable[[Trees], NDArray[Any]], *, shift: bool = False
    ) -> NDArray[Any]:
        return np.concatenate(
            [
                of(tree) + (size if shift else 0)
                for tree, size in zip(trees, sizes.tolist(), strict=True)
            ]
        )

    return Trees(
        column(lambda tree: tree.feature),
        column(lambda tree: tree.threshold),
        column(lambda tree: tree.left, shift=True),
        column(lambda tree: tree.right, shift=True),
        column(lambda tree: tree.value),
        column(lambda tree: tree.roots, shift=True),
        base,
        scale,
        single,
    )


def tree(feature: Any, threshold: Any, left: Any, right: Any, value: Any) -> Trees:
    """One tree from the columns of its nodes, root first; where `left` is negative there is a leaf."""
    left, right = np.asarray(left, dtype=np.int64), np.asarray(right, dtype=np.int64)
    leaf, own = left < 0, np.arange(len(left))
    return Trees(
        np.where(leaf, LEAF, np.asarray(feature, dtype=np.int64)),
        np.where(leaf, 0.0, np.asarray(threshold, dtype=np.float64)),
        np.where(leaf, own, left),
        np.where(leaf, own, right),
        np.where(leaf, np.asarray(value, dtype=np.float64), 0.0),
        np.zeros(1, dtype=np.int64),
    )
