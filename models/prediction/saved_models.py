"""Models in files: JSON, which is data and cannot run anything, checked whole before it is used.

Also what is said of one: how good its predictions are, and pictures of what a GA2M has learnt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, overload

import numpy as np

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.limited_reading import parse_json, read_content
from bft.models.plugins import extra
from bft.models.prediction._documents import part
from bft.models.prediction.duration import DurationEstimator
from bft.models.prediction.forecast import Forecaster
from bft.models.prediction.packing import PackingAnalyser
from bft.models.prediction.regressors import AdditiveModel, Regressor, Term, importance

Model: TypeAlias = DurationEstimator | Forecaster | PackingAnalyser
M = TypeVar("M", bound=Model)

FORMAT: Final = "bft-replay model"
VERSION: Final = 1
_TYPES: Final[dict[str, type[Model]]] = {
    kind.document_kind: kind
    for kind in (DurationEstimator, Forecaster, PackingAnalyser)
}


def write_model(model: Model, path: str | Path) -> None:
    """Write a model; the same model gives the same bytes. OSErrors are the caller's.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from bft.models import PackingAnalyser
    >>> from bft.models.prediction.trees import Trees
    >>> split = [np.array(column) for column in ([0, -1, -1], [60.0, 0, 0], [1, 1, 2], [2, 1, 2], [0.0, 0, 2], [0])]
    >>> with TemporaryDirectory() as folder:
    ...     write_model(PackingAnalyser(Trees(*split)), f"{folder}/packing.json")
    ...     read_model(f"{folder}/packing.json", PackingAnalyser).rules().splitlines()[0]
    'gpu_util <= 60'
    """
    document = model.to_document()
    head = {
        "format": FORMAT,
        "version": VERSION,
        "kind": model.document_kind,
        "sha256": _digest(document),
    }
    Path(path).write_text(
        json.dumps({**head, "model": document}, allow_nan=False) + "\n",
        encoding="utf-8",
    )


@overload
def read_model(path: str | Path) -> Model: ...
@overload
def read_model(path: str | Path, expected: type[M]) -> M: ...
def read_model(path: str | Path, expected: type[Any] | None = None) -> Model:
    """Read a model that `write_model` wrote. Nothing in the file is executed, whatever it is.

    Parameters
    ----------
    path
        The file.
    expected
        The expected type, for example `DurationEstimator`.

    Raises
    ------
    InputError
        Naming the file: it is missing, no such model (a pickle, say), of another version, damaged, not finite, not
        consistent in itself, or another model than expected.
    """
    file = Path(path)
    document = _parsed(file)
    try:
        if document.get("format") != FORMAT:
            raise InputError("not a model of bft-replay")
        if document.get("version") != VERSION:
            raise InputError(
                f"a model of version {document.get('version')!r}, expected {VERSION}",
                hint="train it again",
            )
        kind, model = part(document, "kind", str), part(document, "model", dict)
        if kind not in _TYPES:
            raise InputError(
                f"a model of kind {kind!r}, expected one of {', '.join(_TYPES)}"
            )
        if expected is not None and _TYPES[kind] is not expected:
            raise InputError(
                f"a model of kind {kind}, expected {expected.document_kind}"
            )
        if part(document, "sha256", str) != _digest(model):
            raise InputError(
                "damaged: its content does not match its sha256", hint="copy it again"
            )
        return _TYPES[kind].from_document(model)
    except InputError as error:
        raise InputError(error.what, file=file, hint=error.hint) from error
    except RecursionError as error:
        raise InputError(
            "not a model of bft-replay: nested without end", file=file
        ) from error


def _parsed(file: Path) -> dict[str, Any]:
    content = read_content(file)
    # Pickles of protocol 2 and newer; a zip archive is what skops, joblib and PyTorch write.
    if content[:1] == b"\x80" or content[:4] == b"PK\x03\x04":
        raise InputError(
            "refused: a pickle or an archive, which may run code when it is opened; expected JSON",
            file=file,
        )
    try:
        document = parse_json(content.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not a model of bft-replay: not JSON: {error}", file=file
        ) from error
    if not isinstance(document, dict):
        raise InputError("not a model of bft-replay: expected a JSON object", file=file)
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _digest(document: dict[str, Any]) -> str:
    """SHA-256 of a document, however its file is laid out."""
    return hashlib.sha256(
        json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Figures of predictions p for actual values a.

    Parameters
    ----------
    mae
        Mean |p - a|, in units of a.
    r2
        1 - Σ (p - a)² / Σ (a - mean a)²; always predicting the mean of a would give 0.
    r2_log
        The same of log(1 + p) and log(1 + a): one long job does not outweigh a thousand short ones.
    rank
        Spearman's correlation: how well p orders, which is all that a queue wants of it.
    slope
        Of the line of log(1 + a) over log(1 + p); 1 is calibrated, less: p differ more than they should.
    """

    mae: float
    r2: float
    r2_log: float
    rank: float
    slope: float


def accuracy(predicted: FloatArray, actual: FloatArray) -> Accuracy:
    """Figures of predictions >= 0 (smaller ones count as 0) for actual values >= 0, both of shape (n,).

    >>> round(accuracy(np.array([10.0, 20.0]), np.array([12.0, 16.0])).mae, 1)
    3.0
    """
    from scipy.stats import rankdata

    predicted = np.maximum(predicted, 0.0)
    if len(predicted) != len(actual) or len(actual) < 2:
        raise InputError(
            f"{len(predicted)} predictions for {len(actual)} values, expected as many and at least 2"
        )
    logs = np.log1p(predicted), np.log1p(actual)
    # Equal values share their mean rank.
    ranks = rankdata(predicted), rankdata(actual)
    return Accuracy(
        float(np.abs(predicted - actual).mean()),
        _r2(predicted, actual),
        _r2(*logs),
        _ratio(_covariance(*ranks), np.sqrt(ranks[0].var() * ranks[1].var())),
        # Equal predictions have a variance of rounding only.
        _ratio(_covariance(*logs), logs[0].var() if np.ptp(logs[0]) > 0 else 0.0),
    )


def _r2(predicted: FloatArray, actual: FloatArray) -> float:
    return 1.0 - _ratio(float(((predicted - actual) ** 2).mean()), float(actual.var()))


def _covariance(a: FloatArray, b: FloatArray) -> float:
    return float(((a - a.mean()) * (b - b.mean())).mean())


def _ratio(top: float, bottom: float) -> float:
    # A constant correlates with nothing.
    return float(top / bottom) if bottom > 0 else float("nan")


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
