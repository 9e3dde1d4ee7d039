"""Memory that a model takes of a unit, by batch size (gmem): what was measured, and an upper bound between and beyond.

Weights, optimiser state and the runtime take the same whatever the batch; activations grow with it: memory is affine in
the samples a unit works on at a time, fixed + per-sample · batch, plus what allocators cache and round.
`fit_beside` finds a smaller batch, with gradient accumulation, with which a second job fits beside the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bft.models.cells import Rows
from bft.models.jobs import Job
from bft.models.tables import read_table
from bft.models.tolerances import lowered


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
        """Upper bound of a model's memory at a batch size a unit, GiB; None for a model never measured."""
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
    rows = Rows(read_table(path), path).require(("model", "batch", "memory_gib"))
    return UnitMemory(
        (
            row.name("model"),
            row.number("batch", above=0),
            row.number("memory_gib", above=0),
        )
        for row in rows
    )


# Smallest share of its goodput with which a newcomer may start on shared units.
THRESHOLD: Final = 0.5


def fit_beside(
    newcomer: Job,
    running: Job,
    unit_memory_gib: float | None,
    *,
    memory: UnitMemory | None = None,
    threshold: float = THRESHOLD,
) -> int | None:
    """The least number of parts into which a newcomer's batch is cut so that it fits next to a running job.

    1 if its own batch size fits; else the batch is halved, with gradient accumulation, while the halves are whole and
    its goodput stays at least `threshold` of what it was. The batch size of an optimiser step stays the same, so does
    its statistical efficiency; a step is taken to last as long for half the samples, the worst case.

    Parameters
    ----------
    newcomer, running
        The newcomer and the running job; by their model, batch_size (per unit) and memory_gib.
    unit_memory_gib
        Memory of a unit; None: no check of memory.
    memory
        Memory by model and batch size. What a job states of its own batch size counts more; without a table, or for
        a model that it lacks, a newcomer is not halved, as what it saves is not known.
    threshold
        In (0, 1].

    Returns
    -------
    int or None
        A power of 2; None when it does not fit, or a memory is not known.

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 1], [0, 10])
    >>> a, b = (Job(n, 0, 1, 1, 1e6, 0, 0, curve, curve, model="bert", batch_size=16.0) for n in "ab")
    >>> fit_beside(a, b, unit_memory_gib=9.0, memory=UnitMemory([("bert", 8, 3.0), ("bert", 16, 5.0)]))
    2
    """
    if unit_memory_gib is None:
        return 1
    beside = _memory(running, running.batch_size, memory)
    batch, parts = newcomer.batch_size, 1
    while beside is not None and 1 / parts >= threshold:
        needed = _memory(newcomer, batch, memory)
        if needed is not None and lowered(needed + beside) <= unit_memory_gib:
            return parts
        if needed is None or batch is None or batch % 2:
            return None
        batch, parts = batch / 2, parts * 2
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
