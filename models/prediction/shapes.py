"""Pictures of a GA2M: what each feature, and each pair, adds to the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.extras import extra
from bft.models.prediction.ga2m import AdditiveModel, Term, importance
from bft.models.prediction.regressors import Regressor

COLUMNS: Final = 3
# Values beyond these quantiles of the data are not drawn: a few odd jobs would squeeze all others.
SHOWN: Final = (0.01, 0.99)


def write_shapes(
    model: Regressor,
    features: Sequence[str],
    x: FloatArray,
    path: str | Path,
    *,
    target: str,
    max_shapes: int = 9,
) -> None:
    """Draw the terms that matter most, the largest mean contribution first; the same model gives the same bytes.

    Parameters
    ----------
    model
        A GA2M.
    features
        Names of the features.
    x
        Rows like those in use, shape (n, features): they define the weight of features and the range to draw.
        Small strokes below a curve mark their deciles.
    path
        A .png file. OSErrors are the caller's.
    target
        The target of the model, for the axes.
    max_shapes
        How many terms are drawn.

    Raises
    ------
    InputError
        For a model of another kind, and where matplotlib is not installed.
    """
    if not isinstance(model, AdditiveModel):
        raise InputError("only a GA2M has shapes to draw", hint="train with kind ga2m")
    figure_module, agg = (
        extra("matplotlib.figure", "report"),
        extra("matplotlib.backends.backend_agg", "report"),
    )
    weights = importance(model, x)
    order = np.argsort(-weights, kind="stable")[:max_shapes]
    rows = -(-len(order) // COLUMNS)
    figure = figure_module.Figure(
        figsize=(3.6 * COLUMNS, 2.8 * rows), dpi=100, layout="constrained"
    )
    agg.FigureCanvasAgg(figure)
    singles = [model.terms[i] for i in order if len(model.terms[i].features) == 1]
    bounds = [_span(term.scores) for term in singles] or [(-1.0, 1.0)]
    low, high = min(bound[0] for bound in bounds), max(bound[1] for bound in bounds)
    margin = 0.05 * (high - low) or 1.0
    for place, index in enumerate(order.tolist(), start=1):
        axes = figure.add_subplot(rows, COLUMNS, place)
        term = model.terms[index]
        axes.set_title(f"mean effect {weights[index]:.2f}", fontsize=9)
        axes.tick_params(labelsize=8)
        if len(term.features) == 1:
            _draw_curve(axes, term, x[:, term.features[0]])
            axes.set_ylim(low - margin, high + margin)
            axes.set_ylabel(f"adds to {target}", fontsize=8)
            axes.set_xlabel(features[term.features[0]], fontsize=9)
        else:
            image = _draw_pair(axes, term, x)
            figure.colorbar(image, ax=axes).ax.tick_params(labelsize=8)
            axes.set_xlabel(features[term.features[0]], fontsize=9)
            axes.set_ylabel(features[term.features[1]], fontsize=9)
    # Without metadata, as they name the version of matplotlib.
    figure.savefig(path, format="png", metadata={"Software": None})


def _draw_curve(axes: Any, term: Term, values: FloatArray) -> None:
    edges = _edges(term.cuts[0], values)
    axes.stairs(
        term.scores[_bins(term.cuts[0], edges)], edges, baseline=None, linewidth=1.5
    )
    axes.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    deciles = np.quantile(values, np.linspace(0.1, 0.9, 9))
    axes.plot(
        deciles,
        np.zeros(9),
        "|",
        color="0.3",
        markersize=6,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
    )
    axes.set_xlim(edges[0], edges[-1])


def _draw_pair(axes: Any, term: Term, x: FloatArray) -> Any:
    across, up = (
        _edges(cuts, x[:, feature])
        for cuts, feature in zip(term.cuts, term.features, strict=True)
    )
    scores = term.scores[np.ix_(_bins(term.cuts[0], across), _bins(term.cuts[1], up))]
    limit = float(np.abs(scores).max()) or 1.0
    return axes.pcolormesh(across, up, scores.T, cmap="RdBu_r", vmin=-limit, vmax=limit)


def _edges(cuts: FloatArray, values: FloatArray) -> FloatArray:
    """Borders of the bins within the range that is drawn."""
    low, high = np.quantile(values, SHOWN)
    if high <= low:
        low, high = low - 0.5, low + 0.5
    return np.concatenate([[low], cuts[(cuts > low) & (cuts < high)], [high]])


def _bins(cuts: FloatArray, edges: FloatArray) -> Any:
    """The bin between each two edges."""
    return np.searchsorted(cuts, (edges[1:] + edges[:-1]) / 2, side="right")


def _span(scores: FloatArray) -> tuple[float, float]:
    return float(scores.min()), float(scores.max())
