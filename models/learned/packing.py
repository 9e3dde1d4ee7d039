"""How much a job disturbs others on the same unit: Lucid's packing analyze model (ASPLOS'23, §3.3).

A job's sharing score is 0 (tiny), 1 (medium) or 2 (jumbo), predicted from a profile of the job alone. Lucid lets two
jobs share when their scores add up to at most 2. The score is learnt from measured pairs, by a
decision tree small enough to be read by the people whose jobs it judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from bft.models.cells import Rows
from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.learned._documents import part, strings
from bft.models.learned.regressors import any_order
from bft.models.learned.trees import LEAF, Trees, from_sklearn
from bft.models.plugins import extra

if TYPE_CHECKING:
    import pandas as pd

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

Scores = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PackingAnalyser:
    """Analyser that predicts sharing scores, made by `train` or read by `saved_models.read_model`.

    Profiles have the columns gpu_util and gmem_util (percent), gmem (MiB) and amp (0 or 1).

    Examples
    --------
    >>> split = [np.array(column) for column in ([0, -1, -1], [60.0, 0, 0], [1, 1, 2], [2, 1, 2], [0.0, 0, 2], [0])]
    >>> analyser = PackingAnalyser(Trees(*split))  # left (score 0) up to 60 % of utilisation, else right (score 2)
    >>> analyser.score({"gpu_util": 80.0, "gmem_util": 20.0, "gmem": 4096.0, "amp": 0})
    2
    >>> print(analyser.rules())
    gpu_util <= 60
      sharing score 0
    gpu_util > 60
      sharing score 2
    """

    document_kind: ClassVar[str] = "packing"

    tree: Trees

    @classmethod
    def train(
        cls,
        profiles: pd.DataFrame,
        *,
        seed: int = 0,
        depth: int = DEPTH,
        source: str = "",
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
            max_depth=depth,
            min_samples_leaf=LEAF_PROFILES,
            monotonic_cst=[RISES_WITH[feature] for feature in FEATURES],
            random_state=seed,
        )
        order = any_order(x, label, seed)
        grown = learner.fit(x[order], label[order]).tree_
        # Scores are ordered, so a leaf says the score next to the mean of its profiles.
        leaf_scores = np.floor(grown.value[:, 0, 0] + 0.5)
        return cls(replace(from_sklearn(grown, leaf_scores), single=True))

    def scores(self, profiles: pd.DataFrame, *, source: str = "") -> Scores:
        """Sharing scores of profiles, each 0, 1 or 2: int64 of shape (profiles,)."""
        return self.tree.predict(
            _features(Rows(profiles, source).require(FEATURES))
        ).astype(np.int64)

    def score(self, profile: Mapping[str, float]) -> int:
        """Sharing score of one profile: 0, 1 or 2."""
        import pandas as pd

        return int(self.scores(pd.DataFrame([dict(profile)]))[0])

    def rules(self) -> str:
        """The tree in words, a line a step."""

        def says(node: int) -> set[float]:
            if self.tree.feature[node] == LEAF:
                return {float(self.tree.value[node])}
            return says(int(self.tree.left[node])) | says(int(self.tree.right[node]))

        def tell(node: int, indent: str) -> list[str]:
            scores = says(node)
            if len(scores) == 1:  # all paths of this step agree, so it is no decision
                return [f"{indent}sharing score {scores.pop():.0f}"]
            name, threshold = (
                FEATURES[int(self.tree.feature[node])],
                self.tree.threshold[node],
            )
            lines = []
            for sign, child in (("<=", self.tree.left), (">", self.tree.right)):
                lines += [
                    f"{indent}{name} {sign} {threshold:.6g}",
                    *tell(int(child[node]), indent + "  "),
                ]
            return lines

        return "\n".join(tell(int(self.tree.roots[0]), ""))

    def to_document(self) -> dict[str, Any]:
        """The analyser as plain data."""
        return {"features": list(FEATURES), "tree": self.tree.to_document()}

    @classmethod
    def from_document(cls, document: Any) -> PackingAnalyser:
        """The analyser that plain data state, checked."""
        if strings(document, "features") != FEATURES:
            raise InputError(
                "not a model that can be used: its features are not those of this version",
                hint="train it again",
            )
        tree = Trees.from_document(part(document, "tree", dict), len(FEATURES))
        leaves = tree.value[tree.feature == LEAF]
        if (
            len(tree.roots) != 1
            or (tree.base, tree.scale) != (0.0, 1.0)
            or not np.isin(leaves, (0, 1, 2)).all()
        ):
            raise InputError(
                "not a model that can be used: expected one tree that says 0, 1 or 2"
            )
        return cls(tree)


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
    import pandas as pd

    keys = [
        "model",
        *(["dataset"] if {"dataset1", "dataset2"} <= set(pairs.columns) else []),
        "batchsize",
        "amp",
    ]
    wanted = [f"{column}{side}" for side in "12" for column in (*keys, "speed")]
    rows = Rows(pairs, source).require(wanted)
    sides = []
    for side in "12":
        columns: dict[str, Any] = {}
        for key in (*keys, "speed"):
            named = key in ("model", "dataset")
            columns[key] = (
                rows.all_names(key + side)
                if named
                else rows.all_numbers(key + side, min=0)
            )
        sides.append(pd.DataFrame(columns))
    measured = (
        pd.concat(sides)
        .groupby(keys, sort=True)["speed"]
        .agg(["mean", "size"])
        .reset_index()
    )
    measured = measured.rename(columns={"mean": "speed", "size": "pairings"})
    speed = measured["speed"].to_numpy()
    return measured.assign(
        label=(speed < JUMBO_BELOW).astype(np.int64) + (speed < MEDIUM_BELOW)
    )


def leave_one_model_out(
    profiles: pd.DataFrame, *, seed: int = 0, depth: int = DEPTH, source: str = ""
) -> Scores:
    """Scores of each profile by an analyser that has seen no profile of the same model: int64 of shape (profiles,)."""
    rows = Rows(profiles, source).require(("model", *FEATURES, "label"))
    model = rows.all_names("model")
    result = np.zeros(len(profiles), dtype=np.int64)
    for left_out in np.unique(model):
        held = model == left_out
        if held.all():
            raise rows.error(
                "all profiles are of one model, expected several", column="model"
            )
        analyser = PackingAnalyser.train(
            profiles[~held], seed=seed, depth=depth, source=source
        )
        result[held] = analyser.scores(profiles[held], source=source)
    return result


def _features(profiles: Rows) -> FloatArray:
    """The tree's features of profiles: float64 of shape (profiles, features)."""
    return np.column_stack([profiles.all_numbers(column, min=0) for column in FEATURES])
