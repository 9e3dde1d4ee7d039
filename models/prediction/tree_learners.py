"""Trees grown by scikit-learn, LightGBM and XGBoost, brought into our form."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from bft.models.curves import FloatArray
from bft.models.extras import extra
from bft.models.prediction.trees import Trees, joined, tree


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
