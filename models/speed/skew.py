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

from bft.models.cells import Rows
from bft.models.curves import FloatArray
from bft.models.tables import read_table
from bft.models.tolerances import EQUAL

# Between the 0.14 of Inception-3 and the 0.61 of AlexNet.
THRESHOLD = 0.5


def largest_share(sizes: ArrayLike) -> float:
    """Share of the largest tensor in all of a model's parameters, in (0, 1]; sizes > 0, shape (tensors,), any unit.

    >>> largest_share([60, 30, 10])
    0.6
    """
    values = _sizes(sizes)
    return float(values.max() / values.sum())


def skewness(sizes: ArrayLike) -> float:
    """Fisher's skewness of tensor sizes > 0, m3 / m2^(3/2); 0 when all are alike. Shape (tensors,), any unit.

    >>> round(skewness([1, 1, 4]), 3)
    0.707
    """
    values = _sizes(sizes)
    centred = values - values.mean()
    spread = np.sqrt(np.mean(centred**2))
    # Equal sizes differ from their mean by rounding only.
    if spread <= EQUAL * values.max():
        return 0.0
    return float(np.mean((centred / spread) ** 3))


def _sizes(sizes: ArrayLike) -> FloatArray:
    values = np.asarray(sizes, dtype=np.float64)
    if (
        values.ndim != 1
        or not len(values)
        or not (np.isfinite(values) & (values > 0)).all()
    ):
        raise ValueError("sizes: expected at least one, all of them finite numbers > 0")
    return values


MEASURES: dict[str, Callable[[ArrayLike], float]] = {
    "largest-share": largest_share,
    "skewness": skewness,
}


def read_tensor_sizes(path: str | Path) -> dict[str, list[float]]:
    r"""Read the sizes of models' tensors: columns `model`, `size` (> 0, any one unit), and `tensor` for the reader.

    Returns
    -------
    dict
        Model -> sizes, in the order of the file.

    Raises
    ------
    InputError
        Naming file, row and column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "layers.csv")
    ...     _ = file.write_text("model,tensor,size\nvgg,conv,2\nvgg,fc,10\n")
    ...     read_tensor_sizes(file)
    {'vgg': [2.0, 10.0]}
    """
    sizes: dict[str, list[float]] = {}
    for row in Rows(read_table(path), path).require(("model", "size"), ("tensor",)):
        sizes.setdefault(row.name("model"), []).append(row.number("size", above=0))
    return sizes
