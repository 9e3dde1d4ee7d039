"""Skew of a model's tensor sizes: models with one dominant tensor must not be spread over nodes (Tiresias, NSDI'19).

Tiresias (§3.3) consolidates jobs whose tensor sizes are skewed: one large tensor makes one parameter server, or one
message, a hot spot. We have no formula of theirs. Of two measures the share of the largest tensor is the default,
because it tells apart the nine models of Tiresias' artifact: VGG-11/16/19 and AlexNet have 0.61 to 0.78, Inception
and ResNet 0.04 to 0.14. The statistical skewness does not: many small layers make Inception-4 (3.5) more skewed than
VGG-19 (3.4) and AlexNet (1.5).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.tables import read_table

# Between the 0.14 of Inception-3 and the 0.61 of AlexNet.
THRESHOLD = 0.5


def largest_share(sizes: ArrayLike) -> float:
    """Share of the largest tensor in all of a model's parameters, in (0, 1]; sizes > 0, shape (tensors,), any unit."""
    values = _sizes(sizes)
    return float(values.max() / values.sum())


def skewness(sizes: ArrayLike) -> float:
    """Fisher's skewness of tensor sizes > 0, m3 / m2^(3/2); 0 when all are alike. Shape (tensors,), any unit."""
    values = _sizes(sizes)
    centred = values - values.mean()
    spread = np.sqrt(np.mean(centred**2))
    # Equal sizes differ from their mean by rounding only.
    if spread <= 1e-12 * values.max():
        return 0.0
    return float(np.mean((centred / spread) ** 3))


def _sizes(sizes: ArrayLike) -> FloatArray:
    values = np.asarray(sizes, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("sizes: expected at least one, all of them finite numbers > 0")
    return values


MEASURES: dict[str, Callable[[ArrayLike], float]] = {"largest-share": largest_share, "skewness": skewness}


def read_tensor_sizes(path: str | Path) -> dict[str, list[float]]:
    """Read the sizes of models' tensors: columns `model`, `size` (> 0, any one unit), and `tensor` for the reader.

    Returns
    -------
    dict
        Model -> sizes, in the order of the file.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    frame = read_table(path)
    missing = [column for column in ("model", "size") if column not in frame.columns]
    if missing:
        raise InputError(
            f"missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
            "expected model, size, and optionally tensor",
            file=path,
        )
    if not len(frame):
        raise InputError("has no rows", file=path)
    found: dict[str, list[float]] = {}
    for row, (model, size) in enumerate(zip(frame["model"].tolist(), frame["size"].tolist(), strict=True), start=1):
        if not isinstance(model, str) or not model:
            raise InputError("expected the name of a model", file=path, row=row, column="model")
        try:
            value = float("nan") if isinstance(size, bool) else float(size)
        except (TypeError, ValueError):
            value = float("nan")
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"expected a number > 0, not {size!r}", file=path, row=row, column="size")
        found.setdefault(model, []).append(value)
    return found
