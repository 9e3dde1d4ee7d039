"""GA2M (Lou et al., KDD'13): a sum of step functions of one feature each, and of pairs of features.

It is learnt by interpret's explainable boosting machine, from a seed in one thread, and is then no more than tables: a
library's object would be saved as a pickle, which runs code when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.plugins import extra

if TYPE_CHECKING:
    import pandas as pd

# How many pairs of features may have a term of their own.
PAIRS: Final = 5
# Fewer rows teach nothing.
MIN_ROWS: Final = 20
# A figure has so many terms, the most important ones, and so many in a row.
MAX_SHAPES: Final = 9
COLUMNS: Final = 3
# Values beyond these quantiles of the data are not drawn: a few odd jobs would squeeze all others.
SHOWN: Final = (0.01, 0.99)


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

    def importance(self, x: FloatArray) -> FloatArray:
        """Mean absolute contribution of each term to the rows of x, in units of the target: shape (terms,)."""
        return np.array([np.abs(term.at(x)).mean() for term in self.terms])


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


def write_shapes(
    model: AdditiveModel, rows: pd.DataFrame, path: str | Path, *, target: str
) -> None:
    """Draw the terms that matter most, the largest mean contribution first; the same model gives the same bytes.

    Parameters
    ----------
    model
        The model.
    rows
        Rows like those in use, a column a feature: they define the weight of features and the range to draw. Small
        strokes below a curve mark their deciles.
    path
        A .png file. OSErrors are the caller's.
    target
        The target of the model, for the axes.

    Raises
    ------
    InputError
        When matplotlib is not installed.
    """
    figures = extra("matplotlib.figure", "report")
    agg = extra("matplotlib.backends.backend_agg", "report")
    x = rows.to_numpy(dtype=np.float64)
    weights = model.importance(x)
    order = np.argsort(-weights, kind="stable")[:MAX_SHAPES]
    figure = figures.Figure(
        figsize=(3.6 * COLUMNS, 2.8 * -(-len(order) // COLUMNS)),
        dpi=100,
        layout="constrained",
    )
    agg.FigureCanvasAgg(figure)
    singles = [model.terms[i] for i in order if len(model.terms[i].features) == 1]
    scores = np.concatenate([[0.0], *(term.scores for term in singles)])
    margin = 0.05 * np.ptp(scores) or 1.0
    for place, index in enumerate(order, start=1):
        axes = figure.add_subplot(-(-len(order) // COLUMNS), COLUMNS, place)
        term = model.terms[index]
        names = [rows.columns[feature] for feature in term.features]
        axes.set_title(f"mean effect {weights[index]:.2f}", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.set_xlabel(names[0], fontsize=9)
        edges = [
            _edges(cuts, x[:, feature])
            for feature, cuts in zip(term.features, term.cuts, strict=True)
        ]
        bins = [
            np.searchsorted(cuts, (axis[1:] + axis[:-1]) / 2, side="right")
            for cuts, axis in zip(term.cuts, edges, strict=True)
        ]
        drawn = term.scores[np.ix_(*bins)]
        if len(names) == 2:
            limit = float(np.abs(drawn).max()) or 1.0
            image = axes.pcolormesh(
                *edges, drawn.T, cmap="RdBu_r", vmin=-limit, vmax=limit
            )
            figure.colorbar(image, ax=axes).ax.tick_params(labelsize=8)
            axes.set_ylabel(names[1], fontsize=9)
            continue
        axes.stairs(drawn, edges[0], baseline=None, linewidth=1.5)
        axes.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
        deciles = np.quantile(x[:, term.features[0]], np.linspace(0.1, 0.9, 9))
        axes.plot(
            deciles,
            np.zeros(9),
            "|",
            color="0.3",
            markersize=6,
            transform=axes.get_xaxis_transform(),
            clip_on=False,
        )
        axes.set_xlim(edges[0][0], edges[0][-1])
        axes.set_ylim(scores.min() - margin, scores.max() + margin)
        axes.set_ylabel(f"adds to {target}", fontsize=8)
    # Without metadata, as they name the version of matplotlib.
    figure.savefig(path, format="png", metadata={"Software": None})


def _edges(cuts: FloatArray, values: FloatArray) -> FloatArray:
    """Borders of the bins within the range that is drawn."""
    low, high = np.quantile(values, SHOWN)
    if high <= low:
        low, high = low - 0.5, low + 0.5
    return np.concatenate([[low], cuts[(cuts > low) & (cuts < high)], [high]])
