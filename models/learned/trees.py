"""Decision trees as plain arrays: one form for single trees, forests and boosted trees of any library.

They are grown by scikit-learn, LightGBM or XGBoost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.learned._documents import floats, number, part, same_length, wholes
from bft.models.plugins import extra

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


def fit_random_forest(x: FloatArray, y: FloatArray, seed: int) -> Trees:
    """The mean of 50 trees, each grown on a bootstrap sample."""
    ensemble = extra("sklearn.ensemble")
    forest = ensemble.RandomForestRegressor(
        n_estimators=50,
        min_samples_leaf=20,
        max_features=0.5,
        n_jobs=1,
        random_state=seed,
    ).fit(x, y)
    return from_forest(forest)


def from_forest(forest: Any) -> Trees:
    """A fitted forest of regression trees of scikit-learn."""
    trees = [
        from_sklearn(grown.tree_, grown.tree_.value[:, 0, 0])
        for grown in forest.estimators_
    ]
    return joined(trees, scale=1 / len(trees), single=True)


def from_sklearn(grown: Any, value: Any) -> Trees:
    """One tree of scikit-learn; leaf values come from `value`."""
    return tree(
        grown.feature, grown.threshold, grown.children_left, grown.children_right, value
    )


def fit_lightgbm(x: FloatArray, y: FloatArray, seed: int) -> Trees:
    """200 boosted trees of up to 31 leaves."""
    lightgbm = extra("lightgbm")
    options = {
        "objective": "l2",
        "learning_rate": 0.05,
        "num_leaves": 31,
        "min_data_in_leaf": 50,
        "use_missing": False,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    return from_lightgbm(lightgbm.train(options, lightgbm.Dataset(x, y), 200))


def from_lightgbm(booster: Any) -> Trees:
    """A booster of LightGBM for one target, learnt from data without missing values."""
    return joined(
        [
            _one_of_lightgbm(grown["tree_structure"])
            for grown in booster.dump_model()["tree_info"]
        ]
    )


def _one_of_lightgbm(root: dict[str, Any]) -> Trees:
    feature, threshold, left, right, value = [], [], [], [], []
    ahead = [root]
    for node in ahead:  # breadth first; children are numbered when their parent is met
        inner = "split_feature" in node
        feature.append(node["split_feature"] if inner else 0)
        threshold.append(node["threshold"] if inner else 0.0)
        value.append(0.0 if inner else node["leaf_value"])
        left.append(len(ahead) if inner else -1)
        right.append(len(ahead) + 1 if inner else -1)
        if inner:
            ahead += node["left_child"], node["right_child"]
    return tree(feature, threshold, left, right, value)


def fit_xgboost(x: FloatArray, y: FloatArray, seed: int) -> Trees:
    """200 boosted trees of up to 6 levels."""
    xgboost = extra("xgboost")
    options = {
        "objective": "reg:squarederror",
        "tree_method": "hist",
        "eta": 0.05,
        "max_depth": 6,
        "min_child_weight": 50,
        "seed": seed,
        "nthread": 1,
    }
    return from_xgboost(xgboost.train(options, xgboost.DMatrix(x, y, nthread=1), 200))


def from_xgboost(booster: Any) -> Trees:
    """A booster of XGBoost for one target, learnt from data without missing values."""
    learner = json.loads(booster.save_raw("json").decode())["learner"]
    base = np.ravel(json.loads(learner["learner_model_param"]["base_score"]))[0]
    grown = learner["gradient_booster"]["model"]["trees"]
    return joined(
        [_one_of_xgboost(one) for one in grown], base=float(base), single=True
    )


def _one_of_xgboost(grown: dict[str, Any]) -> Trees:
    # There it goes left below the condition; in single precision that is at most the number before it.
    # A leaf's condition is what it says.
    conditions = np.array(grown["split_conditions"], dtype=np.float32)
    below = np.nextafter(conditions, np.float32(-np.inf))
    return tree(
        grown["split_indices"],
        below,
        grown["left_children"],
        grown["right_children"],
        conditions,
    )
