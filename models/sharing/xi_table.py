"""ξ: how much two jobs slow each other down when they share units, and whether both fit there (docs/models.md).

`--xi` reads a table (Parquet, CSV, JSON lines) with one row per measurement, which applies to both orders of the pair:

- `model_a`, `model_b`: models, as in the column `model` of the job table.
- `xi_a`, `xi_b`: an iteration of a (of b) takes that many times as long when it shares with the other; below 1 counts
  as 1.
- `batch_a`, `batch_b`, optional: the row applies only to these batch sizes; of several rows the largest ratios count.
- `units`, optional: units that each of the two ran on.
- `flag`, optional, of estimated rows: `interpolated`, `clamped`, `guessed`.

Rows with a job's number of units in `units` count (rigid policies: the number that it requests); without such a row,
those without `units`; if all rows state `units`, the largest ratio counts.
Two jobs never share units if no row names the pair, if a ratio at their sizes exceeds `--option xi-max`, if their
memory exceeds `--option unit-memory`, or if `--option forbid=MODEL,MODEL` names them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from bft.models.cells import Row, Rows
from bft.models.errors import InputError
from bft.models.jobs import Job
from bft.models.tables import read_table
from bft.models.tolerances import lowered

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("model_a", "model_b", "xi_a", "xi_b")
OPTIONAL = ("batch_a", "batch_b", "units")
# How an answer of `XiEstimator` came about, from best to worst; the column `flag` of a xi table holds them.
FLAGS = ("measured", "interpolated", "clamped", "guessed")
# Models and batch sizes of both sides, and units; 0 for values that are not stated.
Place: TypeAlias = tuple[str, float, str, float, float]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Two models measured together: an iteration of a takes xi_a times as long with b, one of b takes xi_b times.

    Raises
    ------
    InputError
        Names the column, when a ratio, batch size or number of units is not a finite number > 0, or the flag is
        invalid.
    """

    model_a: str
    model_b: str
    xi_a: float
    xi_b: float
    batch_a: float | None = None
    batch_b: float | None = None
    units: float | None = None
    flag: str = FLAGS[0]

    def __post_init__(self) -> None:
        for column in ("xi_a", "xi_b", "batch_a", "batch_b", "units"):
            value = getattr(self, column)
            missing = value is None and column not in REQUIRED
            if not missing and not (
                value is not None and math.isfinite(value) and value > 0
            ):
                raise InputError(
                    f"{self.model_a} beside {self.model_b}: expected a number > 0, not {value!r}",
                    column=column,
                )
        if self.flag not in FLAGS:
            raise InputError(
                f"expected one of {', '.join(FLAGS)}, not {self.flag!r}", column="flag"
            )

    @property
    def place(self) -> Place:
        """What was measured together, whatever its ratios."""
        return (
            self.model_a,
            self.batch_a or 0.0,
            self.model_b,
            self.batch_b or 0.0,
            self.units or 0.0,
        )

    def swapped(self) -> Measurement:
        """Return this measurement with the models a and b exchanged."""
        return Measurement(
            self.model_b,
            self.model_a,
            self.xi_b,
            self.xi_a,
            self.batch_b,
            self.batch_a,
            self.units,
            self.flag,
        )


@dataclass(frozen=True, slots=True)
class SizedRatio:
    """ξ of one side of a pair by the units that it runs on.

    Parameters
    ----------
    otherwise
        The ratio on numbers of units without a measurement, >= 1.
    at
        Measured units and ratios >= 1, ascending.
    """

    otherwise: float
    at: tuple[tuple[float, float], ...] = ()

    def of(self, units: float | None = None) -> float:
        """The ratio on this many units; the largest of all when None."""
        if units is None:
            return max([self.otherwise, *dict(self.at).values()])
        return dict(self.at).get(units, self.otherwise)

    def least(self) -> float:
        """The smallest ratio of all."""
        return min([self.otherwise, *dict(self.at).values()])

    def times(self, factor: float) -> SizedRatio:
        """Return this side with all ratios multiplied by a factor."""
        at = tuple((units, ratio * factor) for units, ratio in self.at)
        return SizedRatio(self.otherwise * factor, at)


class XiTable:
    """Measured interference ratios, looked up by pairs of jobs.

    Parameters
    ----------
    measurements
        Each says nothing about batch sizes where it has none: it then serves any. Ratios below 1 are noise and count
        as 1. `units` are those that each of the two ran on.

    Attributes
    ----------
    measurements
        The rows, as given.
    clipped
        How many ratios were below 1.
    estimated
        Number of rows that `XiEstimator` estimated, by their flag.
    by_units
        Whether any row states units.

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> curve = Curve([0, 1], [0, 10])
    >>> a, b = (Job(model, 0, 1, 1, 1e6, 0, 0, curve, curve, model=model) for model in ("bert", "vgg"))
    >>> [side.otherwise for side in XiTable([Measurement("bert", "vgg", 1.2, 1.5)]).sides(b, a)]
    [1.5, 1.2]
    """

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self.measurements = tuple(measurements)
        self.clipped = 0
        flags = Counter(row.flag for row in self.measurements)
        self.estimated = {flag: flags[flag] for flag in FLAGS[1:] if flags[flag]}
        self.by_units = any(row.units is not None for row in self.measurements)
        self._rows: dict[tuple[str, str], list[Measurement]] = {}
        for row in self.measurements:
            self.clipped += (row.xi_a < 1) + (row.xi_b < 1)
            for side in (row, row.swapped()):
                self._rows.setdefault((side.model_a, side.model_b), []).append(side)

    def __len__(self) -> int:
        return len(self._rows)

    def sides(self, a: Job, b: Job) -> tuple[SizedRatio, SizedRatio] | None:
        """Ratios of two jobs by their models and batch sizes, None when they were never measured.

        The ratio of a job is that of the rows measured on as many units as it has, whatever its partner has; on as many
        as no row states, that of rows without units, and where all state some the largest. Of several rows that fit
        (a batch size that the job does not state) the largest ratios count too: a decision should not hope.
        """
        rows = [
            row
            for row in self._rows.get((a.model, b.model), ())
            if _fits(row.batch_a, a.batch_size) and _fits(row.batch_b, b.batch_size)
        ]
        if not rows:
            return None
        return (
            _side([(row.units, max(1.0, row.xi_a)) for row in rows]),
            _side([(row.units, max(1.0, row.xi_b)) for row in rows]),
        )


def _side(rows: Sequence[tuple[float | None, float]]) -> SizedRatio:
    """One side of the rows of a pair, each its units and ratio."""
    sized: dict[float, float] = {}
    for units, ratio in rows:
        if units is not None:
            sized[units] = max(ratio, sized.get(units, 1.0))
    ratios = [ratio for units, ratio in rows if units is None]
    ratios = ratios or [ratio for _, ratio in rows]
    return SizedRatio(max(ratios), tuple(sorted(sized.items())))


def read_xi(path: str | Path) -> XiTable:
    r"""Read a ξ table: columns model_a, model_b, xi_a, xi_b, and optionally batch_a, batch_b, units.

    Raises
    ------
    InputError
        Naming file, row and column, for values that are not positive finite numbers, among others.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "xi.csv")
    ...     _ = file.write_text("model_a,model_b,xi_a,xi_b\nbert,vgg,1.2,1.5\n")
    ...     read_xi(file).measurements[0].xi_b
    1.5
    """
    return xi_from_frame(read_table(path), source=str(path))


def xi_from_frame(frame: pd.DataFrame, *, source: str = "") -> XiTable:
    """Make a ξ table from a frame; see `read_xi`. Of other columns only `flag` is looked at.

    >>> import pandas as pd
    >>> table = xi_from_frame(pd.DataFrame({"model_a": ["bert"], "model_b": ["vgg"], "xi_a": [1.5], "xi_b": [0.98]}))
    >>> len(table.measurements), table.clipped  # rows, and ratios below 1
    (1, 1)
    """
    return XiTable(map(measurement, Rows(frame, source).require(REQUIRED, OPTIONAL)))


def measurement(row: Row) -> Measurement:
    """The measurement in a row of a ξ table."""
    flag = str(row.value("flag")).strip()
    return Measurement(
        row.name("model_a"),
        row.name("model_b"),
        row.number("xi_a", above=0),
        row.number("xi_b", above=0),
        row.number("batch_a", None, above=0),
        row.number("batch_b", None, above=0),
        row.number("units", None, above=0),
        flag if flag in FLAGS else FLAGS[0],
    )


def _fits(measured: float | None, of_job: float | None) -> bool:
    return measured is None or of_job is None or measured == of_job


# --- memory of a unit, by model and batch size ---
#
# Weights, optimiser state and the runtime take the same whatever the batch; activations grow with it: memory is affine
# in the samples a unit works on at a time, fixed + per-sample · batch, plus what allocators cache and round.


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
