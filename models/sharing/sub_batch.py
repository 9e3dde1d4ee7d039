"""Smaller batches for the second job on a unit: gradient accumulation, so that two jobs fit its memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bft.models.jobs import Job
from bft.models.rounding import lowered
from bft.models.sharing.unit_memory import UnitMemory

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
