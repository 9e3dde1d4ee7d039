"""Measured pairs of models as Lucid's artifact has them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bft.models.cells import Rows
from bft.models.sharing.xi_table import Measurement, XiTable
from bft.models.tables import read_table
from bft.models.workloads.rigid_jobs import is_mixed, label

# Models that the artifact did not measure in pairs, and treats as neutral.
INDIFFERENT: Final = ("NeuMF", "ResNet50", "BERT", "Transformer")
# A job that hardly moves: ξ, its inverse, stays finite.
_MIN_SPEED: Final = 1e-9
_COLOCATION: Final = (
    "model1",
    "batchsize1",
    "amp1",
    "speed1",
    "model2",
    "batchsize2",
    "amp2",
    "speed2",
)


def read_colocation(
    path: str | Path, *, indifferent: Iterable[str] = INDIFFERENT
) -> XiTable:
    r"""Read measured pairs of models as Lucid's artifact has them, as a ξ table for the jobs of `read_venus_jobs`.

    Columns model1, batchsize1, amp1, speed1, model2, batchsize2, amp2, speed2: speeds beside each other over speeds
    alone. ξ = 1 / speed; what goes faster together is noise, which the table clips.

    Parameters
    ----------
    path
        The table.
    indifferent
        Models that neither slow down others nor are slowed down, at any batch size.

    Raises
    ------
    InputError
        Naming file, row and column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "pairs.csv")
    ...     _ = file.write_text("model1,batchsize1,amp1,speed1,model2,batchsize2,amp2,speed2\na,32,0,.8,b,64,1,.5\n")
    ...     row = read_colocation(file, indifferent=()).measurements[0]
    >>> row.model_b, row.xi_a, row.xi_b
    ('b+amp', 1.25, 2.0)
    """
    frame = read_table(path)
    measured = []
    for row in Rows(frame, path).require(_COLOCATION):
        a, b = (
            label(row.name(f"model{side}"), mixed=is_mixed(row, f"amp{side}"))
            for side in "12"
        )
        xi_a, xi_b = (1 / row.number(f"speed{side}", min=_MIN_SPEED) for side in "12")
        batch_a, batch_b = (row.number(f"batchsize{side}", above=0) for side in "12")
        measured.append(Measurement(a, b, xi_a, xi_b, batch_a, batch_b))
    apart = sorted(
        label(model, mixed=amp) for model in indifferent for amp in (False, True)
    )
    # No row twice: a pair of indifferent models is the same from either side.
    others = sorted(
        {name for row in measured for name in (row.model_a, row.model_b)} - set(apart)
    )
    pairs = [(a, b) for index, a in enumerate(apart) for b in (*apart[index:], *others)]
    return XiTable([*measured, *(Measurement(a, b, 1.0, 1.0) for a, b in pairs)])
