"""Memory that a model takes of a unit, by batch size (gmem): what was measured, and an upper bound between and beyond.

Weights, optimiser state and the runtime take the same whatever the batch; activations grow with it: memory is affine in
the samples a unit works on at a time, fixed + per-sample · batch, plus what allocators cache and round.
`fit_beside` finds a smaller batch, with gradient accumulation, with which a second job fits beside the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from bft.models.cells import Rows
from bft.models.jobs import Job
from bft.models.tables import read_table
from bft.models.tolerances import lowered

if TYPE_CHECKING:
    import pandas as pd


COLUMNS: Final = ("model", "batch", "memory_gib")


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Memory of one model by batch size.

    Parameters
    ----------
    batches
        Batch sizes a unit that were measured, increasing, > 0.
    gib
        GiB at these batch sizes; the largest of repeated measurements.

    Notes
    -----
    The bound never falls with the batch and is never below a measurement. Between two batch sizes it is linear. Beyond
    the last it grows by the affine fit's slope, or the last segment's if that is steeper; below the first it falls by
    the lesser of the fit's and the first segment's, as a bound must not hope. One batch size tells no slope: the bound
    is proportional above it (fixed memory is not negative) and constant below it.
    """

    batches: tuple[float, ...]
    gib: tuple[float, ...]

    @property
    def affine(self) -> tuple[float, float]:
        """Fixed GiB and GiB a sample, both >= 0, by least squares; (0, gib / batch) of a single batch size."""
        from scipy.optimize import nnls

        x, y = np.array(self.batches), np.array(self.gib)
        if len(x) == 1:
            return 0.0, float(y[0] / x[0])
        terms = np.stack([np.ones_like(x), x], axis=1)
        fixed, slope = nnls(terms, y)[0].tolist()
        return fixed, slope

    def bound_gib(self, batch: float) -> float:
        """Upper bound of the memory at a batch size a unit, GiB."""
        x, y = np.array(self.batches), np.maximum.accumulate(self.gib)
        slopes = np.diff(y) / np.diff(x) if len(x) > 1 else np.zeros(1)
        slope = self.affine[1]
        beyond = max(slope, slopes[-1]) * max(batch - x[-1], 0.0)
        below = min(slope, slopes[0]) * max(x[0] - batch, 0.0)
        return max(float(np.interp(batch, x, y) + beyond - below), 0.0)


class UnitMemory:
    """Memory by model and batch size.

    Parameters
    ----------
    measured
        (model, batch size a unit, GiB) in any order.

    Examples
    --------
    >>> UnitMemory([("bert", 8, 3.0), ("bert", 16, 5.0)]).bound_gib("bert", 12)
    4.0
    """

    def __init__(self, measured: Iterable[tuple[str, float, float]]) -> None:
        by_model: dict[str, dict[float, float]] = {}
        for model, batch, gib in measured:
            points = by_model.setdefault(model, {})
            points[batch] = max(points.get(batch, 0.0), gib)
        self.curves = {
            model: MemoryCurve(
                tuple(sorted(points)), tuple(points[batch] for batch in sorted(points))
            )
            for model, points in sorted(by_model.items())
        }

    def bound_gib(self, model: str, batch: float) -> float | None:
        """Upper bound of a model's memory at a batch size a unit, GiB; None for a model never measured.

        Raises
        ------
        ValueError
            When the batch size is not > 0.
        """
        if not batch > 0:
            raise ValueError(f"expected a batch size > 0, not {batch}")
        curve = self.curves.get(model)
        return None if curve is None else curve.bound_gib(batch)


def read_unit_memory(path: str | Path) -> UnitMemory:
    r"""Read a table of memory: columns model, batch (samples a unit works on at a time), memory_gib.

    Raises
    ------
    InputError
        Naming file, row and column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "memory.csv")
    ...     _ = file.write_text("model,batch,memory_gib\nbert,16,4\nbert,32,6\n")
    ...     read_unit_memory(file).bound_gib("bert", 24)
    5.0
    """
    return unit_memory_from_frame(read_table(path), source=str(path))


def unit_memory_from_frame(frame: pd.DataFrame, *, source: str = "") -> UnitMemory:
    """Make a table of memory from a frame; see `read_unit_memory`.

    >>> import pandas as pd
    >>> measured = pd.DataFrame({"model": ["bert", "bert"], "batch": [8, 16], "memory_gib": [3.0, 5.0]})
    >>> memory = unit_memory_from_frame(measured)
    >>> memory.bound_gib("bert", 32)  # 1 GiB, and a quarter of a GiB per sample
    9.0
    """
    return UnitMemory(
        (
            row.name("model"),
            row.number("batch", above=0),
            row.number("memory_gib", above=0),
        )
        for row in Rows(frame, source).require(COLUMNS)
    )


# Smallest share of its goodput with which a newcomer may start on shared units.
THRESHOLD: Final = 0.5


@dataclass(frozen=True, slots=True)
class SubBatch:
    """The way in which a newcomer runs on the units of another job.

    Parameters
    ----------
    batch
        Samples it works on at a time; None when its batch size is not known, and left as it is.
    accumulation
        Micro-batches whose gradients are added up before a step: batch · accumulation is its own batch size, so that
        it learns the same from a step.
    memory_gib
        Its memory on a unit; None without a limit on memory.
    goodput_share
        Its goodput alone with this micro-batch, over that with its own batch size.
    """

    batch: float | None
    accumulation: int
    memory_gib: float | None
    goodput_share: float


def fit_beside(
    newcomer: Job,
    running: Job,
    unit_memory_gib: float | None,
    *,
    memory: UnitMemory | None = None,
    rate: Callable[[float], float] | None = None,
    threshold: float = THRESHOLD,
    margin: float = 1.0,
) -> SubBatch | None:
    """The largest batch, halved as often as needed, with which a newcomer fits next to a running job.

    Its own batch size if that fits; else it is halved with gradient accumulation while its goodput stays at least
    `threshold` of what it was, and while the halves are whole. The batch size of an optimiser step stays the same, so
    does its statistical efficiency, and the share of goodput is that of samples/s: rate(batch / 2^i) / rate(batch).

    Parameters
    ----------
    newcomer, running
        The newcomer and the running job; by their model, batch_size (per unit) and memory_gib.
    unit_memory_gib
        Memory of a unit; None: no check of memory.
    memory
        Memory by model and batch size. What a job states of its own batch size counts more; without a table, or for
        a model that it lacks, a newcomer is not halved, as what it saves is not known.
    rate
        Samples/s of the newcomer by micro-batch, on the units that it would get. None: not known, then every halving is
        taken to halve it, the worst case of a step that takes as long for half the samples.
    threshold
        In (0, 1].
    margin
        Factor on the sum of both.

    Returns
    -------
    SubBatch or None
        None when it does not fit, or a memory is not known.

    Raises
    ------
    ValueError
        When the threshold is not in (0, 1], or `rate` gives no number > 0 at the newcomer's own batch size.

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 1], [0, 10])
    >>> a, b = (Job(n, 0, 1, 1, 1e6, 0, 0, curve, curve, model="bert", batch_size=16.0) for n in "ab")
    >>> memory = UnitMemory([("bert", 8, 3.0), ("bert", 16, 5.0)])
    >>> fit_beside(a, b, unit_memory_gib=9.0, memory=memory)
    SubBatch(batch=8.0, accumulation=2, memory_gib=3.0, goodput_share=0.5)
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"expected a threshold in (0, 1], not {threshold}")
    own = newcomer.batch_size
    if unit_memory_gib is None:
        return SubBatch(own, 1, _memory(newcomer, own, memory), 1.0)
    beside = _memory(running, running.batch_size, memory)
    if beside is None:
        return None
    batch, accumulation, share = own, 1, 1.0
    full = rate(own) if rate is not None and own is not None else 1.0
    if not full > 0:
        raise ValueError(f"expected a rate > 0 at batch size {own}, not {full}")
    while share >= threshold:
        needed = _memory(newcomer, batch, memory)
        if needed is None:
            return None
        if lowered(margin * (needed + beside)) <= unit_memory_gib:
            return SubBatch(batch, accumulation, needed, share)
        if batch is None or batch % 2:
            return None
        batch, accumulation = batch / 2, accumulation * 2
        share = 1 / accumulation if rate is None else rate(batch) / full
    return None


def _memory(job: Job, batch: float | None, memory: UnitMemory | None) -> float | None:
    """GiB of a unit that a job takes with a batch size, None when not known.

    The job's own statement holds for its own batch size; the table then gives what a smaller one saves.
    """
    if batch == job.batch_size and job.memory_gib is not None:
        return job.memory_gib
    if batch is None or memory is None:
        return None
    bound = memory.bound_gib(job.model, batch)
    if bound is None or job.memory_gib is None or job.batch_size is None:
        return bound
    full = memory.bound_gib(job.model, job.batch_size)
    return bound if full is None else max(job.memory_gib - max(full - bound, 0.0), 0.0)
