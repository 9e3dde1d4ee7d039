"""Skew of a model's tensor sizes: models with one dominant tensor must not be spread over nodes (Tiresias, NSDI'19).

Tiresias (§3.3) consolidates jobs whose tensor sizes are skewed: one large tensor makes one parameter server, or one
message, a hot spot. We have no formula of theirs. The share of the largest tensor tells apart the nine models of
Tiresias' artifact: VGG-11/16/19 and AlexNet have 0.61 to 0.78, Inception and ResNet 0.04 to 0.14. The statistical
skewness does not: many small layers make Inception-4 (3.5) more skewed than VGG-19 (3.4) and AlexNet (1.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bft.models.cells import Rows
from bft.models.tables import read_table

# Between the 0.14 of Inception-3 and the 0.61 of AlexNet.
THRESHOLD = 0.5


def largest_share(sizes: Sequence[float]) -> float:
    """Share of the largest tensor in all of a model's parameters, in (0, 1]; sizes > 0, any unit.

    >>> largest_share([60, 30, 10])
    0.6
    """
    return max(sizes) / sum(sizes)


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
