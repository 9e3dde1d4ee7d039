"""How much a job disturbs others on the same unit: Lucid's packing analyze model (ASPLOS'23, §3.3).

A job's sharing score is 0 (tiny), 1 (medium) or 2 (jumbo), predicted from a profile of the job alone. Lucid lets two
jobs share when their scores add up to at most 2. The score is learnt from measured pairs, by a
decision tree small enough to be read by the people whose jobs it judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.cells import Rows
from bft.models.curves import FloatArray
from bft.models.learned.ga2m import any_order
from bft.models.plugins import extra

# Means over a solo run: utilisation of a unit and of its memory bandwidth in percent, memory in MiB, and whether it
# trains in mixed precision (0, 1). Nothing measured beside others, and no speed: these are what the score is made of.
FEATURES: Final = ("gpu_util", "gmem_util", "gmem", "amp")
# Mean normalised speed below which a score is given: score -> speed (Lucid, §3.3).
JUMBO_BELOW: Final = 0.85
MEDIUM_BELOW: Final = 0.95
# The score never falls as a unit or its memory is busier; measured pairs are few, and noise would say otherwise.
RISES_WITH: Final = {"gpu_util": 1, "gmem_util": 1, "gmem": 0, "amp": 0}
# Depth of the tree, and the fewest profiles of a leaf.
DEPTH: Final = 3
LEAF_PROFILES: Final = 6
LEAF: Final = -1

Scores = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A decision tree as arrays of shape (nodes,), its root first.

    Parameters
    ----------
    feature
        Which of `FEATURES` is looked at, -1 at a leaf.
    threshold
        Left if the feature, in single precision as the tree was learnt, is at most this.
    left, right
        Node numbers, larger than the node's own; at a leaf the node itself.
    score
        Score of a leaf: 0, 1 or 2.

    Raises
    ------
    ValueError
        When the nodes do not lead from the root to leaves with scores.
    """

    feature: NDArray[np.int64]
    threshold: FloatArray
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    score: FloatArray

    def __post_init__(self) -> None:
        own, leaf = np.arange(len(self.feature)), self.feature == LEAF
        good = np.where(
            leaf,
            (self.left == own) & (self.right == own) & np.isin(self.score, (0, 1, 2)),
            (np.minimum(self.left, self.right) > own)
            & (np.maximum(self.left, self.right) < len(own))
            & (self.feature >= 0)
            & (self.feature < len(FEATURES)),
        )
        if not (len(good) == len(self.threshold) and good.size and good.all()):
            raise ValueError(
                "the nodes of the tree do not lead from its root to leaves"
            )

    def predict(self, x: FloatArray) -> FloatArray:
        """The scores of rows of features, shape (n, features): shape (n,)."""
        x = x.astype(np.float32).astype(np.float64)
        rows, node = np.arange(len(x)), np.zeros(len(x), dtype=np.int64)
        while (self.feature[node] != LEAF).any():
            # At a leaf the last feature is compared, to no effect: both ways lead to the leaf.
            goes_left = x[rows, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        return self.score[node]


@dataclass(frozen=True, slots=True, eq=False)
class PackingAnalyser:
    """Analyser that predicts sharing scores, made by `train` or read by `saved_models.read_model`.

    Profiles have the columns gpu_util and gmem_util (percent), gmem (MiB) and amp (0 or 1).

    Examples
    --------
    >>> split = [np.array(column) for column in ([0, -1, -1], [60.0, 0, 0], [1, 1, 2], [2, 1, 2], [0.0, 0, 2])]
    >>> analyser = PackingAnalyser(Tree(*split))  # left (score 0) up to 60 % of utilisation, else right (score 2)
    >>> import pandas as pd
    >>> profiles = pd.DataFrame({"gpu_util": [80.0], "gmem_util": [20.0], "gmem": [4096.0], "amp": [0]})
    >>> analyser.scores(profiles).tolist()
    [2]
    >>> print(analyser.rules())
    gpu_util <= 60
      sharing score 0
    gpu_util > 60
      sharing score 2
    """

    tree: Tree

    @classmethod
    def train(
        cls, profiles: pd.DataFrame, *, seed: int = 0, source: str = ""
    ) -> PackingAnalyser:
        """Learn from profiles with a column `label`, the sharing score (see `sharing_scores`).

        Raises
        ------
        InputError
            Naming the column and row that is missing or wrong.
        """
        rows = Rows(profiles, source).require((*FEATURES, "label"))
        x, label = _features(rows), rows.all_wholes("label", min=0, max=2)
        learner = extra("sklearn.tree").DecisionTreeRegressor(
            max_depth=DEPTH,
            min_samples_leaf=LEAF_PROFILES,
            monotonic_cst=[RISES_WITH[feature] for feature in FEATURES],
            random_state=seed,
        )
        order = any_order(x, label, seed)
        grown = learner.fit(x[order], label[order]).tree_
        leaf, own = grown.children_left < 0, np.arange(grown.node_count)
        # Scores are ordered, so a leaf says the score next to the mean of its profiles.
        score = np.floor(grown.value[:, 0, 0] + 0.5)
        return cls(
            Tree(
                np.where(leaf, LEAF, grown.feature),
                np.where(leaf, 0.0, grown.threshold),
                np.where(leaf, own, grown.children_left),
                np.where(leaf, own, grown.children_right),
                np.where(leaf, score, 0.0),
            )
        )

    def scores(self, profiles: pd.DataFrame, *, source: str = "") -> Scores:
        """Sharing scores of profiles, each 0, 1 or 2: int64 of shape (profiles,)."""
        rows = Rows(profiles, source).require(FEATURES)
        return self.tree.predict(_features(rows)).astype(np.int64)

    def rules(self) -> str:
        """The tree in words, a line a step."""
        tree = self.tree

        def tell(node: int, indent: str) -> list[str]:
            if tree.feature[node] == LEAF:
                return [f"{indent}sharing score {tree.score[node]:.0f}"]
            ways = [tell(int(side[node]), "  ") for side in (tree.left, tree.right)]
            if ways[0] == ways[1] and len(ways[0]) == 1:  # both agree: no decision
                return [indent + ways[0][0].strip()]
            lines = []
            for sign, way in zip(("<=", ">"), ways, strict=True):
                name, threshold = FEATURES[tree.feature[node]], tree.threshold[node]
                lines += [f"{name} {sign} {threshold:.6g}", *way]
            return [indent + line for line in lines]

        return "\n".join(tell(0, ""))


def sharing_scores(pairs: pd.DataFrame, *, source: str = "") -> pd.DataFrame:
    """Score configurations by their mean speed beside others: below 0.85 it is 2, below 0.95 it is 1, else 0.

    Parameters
    ----------
    pairs
        One row a measured pair: model1, batchsize1, amp1, speed1 and model2, batchsize2, amp2, speed2, optionally
        dataset1 and dataset2. A speed is relative to the speed alone.
    source
        File to name in messages.

    Returns
    -------
    DataFrame
        One row a configuration, sorted: model, [dataset,] batchsize, amp, speed (the mean of the configuration's own
        speed over all its measurements), pairings (how many), label.

    Examples
    --------
    >>> import pandas as pd
    >>> bert, vgg = {"model1": "bert", "batchsize1": 8, "amp1": 0}, {"model2": "vgg", "batchsize2": 64, "amp2": 0}
    >>> sharing_scores(pd.DataFrame([{**bert, "speed1": 0.9, **vgg, "speed2": 0.8}]))["label"].tolist()
    [1, 2]
    """
    named = ["model"]
    if {"dataset1", "dataset2"} <= set(pairs.columns):
        named.append("dataset")
    keys = [*named, "batchsize", "amp"]
    wanted = [f"{column}{side}" for side in "12" for column in (*keys, "speed")]
    rows = Rows(pairs, source).require(wanted)
    sides = []
    for side in "12":
        columns: dict[str, NDArray[Any]] = {}
        for key in named:
            columns[key] = rows.all_names(key + side)
        for key in ("batchsize", "amp", "speed"):
            columns[key] = rows.all_numbers(key + side, min=0)
        sides.append(pd.DataFrame(columns))
    speeds = pd.concat(sides).groupby(keys, sort=True)["speed"]
    measured = speeds.agg(speed="mean", pairings="size").reset_index()
    speed = measured["speed"].to_numpy()
    return measured.assign(
        label=(speed < JUMBO_BELOW).astype(np.int64) + (speed < MEDIUM_BELOW)
    )


def _features(profiles: Rows) -> FloatArray:
    """The tree's features of profiles: float64 of shape (profiles, features)."""
    return np.column_stack([profiles.all_numbers(column, min=0) for column in FEATURES])
