"""Measured applications in the form of Pollux' artifact: step times by placement, gradient noise by progress.

A folder holds, each also as .csv.gz:

- `placements.csv`: placement, local_bsz, step_time, sync_time. A placement is a string of digits, the replicas on each
  node in the order of the ring: 44 is two nodes of four. Rotations are one placement; the smallest is written.
- `scalability.csv`, optional: num_nodes, num_replicas, local_bsz, step_time, sync_time, means beyond those sizes.
- `placements-KIND.csv` and `scalability-KIND.csv`, optional: the same measured on units of a kind.
- `validation-M.csv` for total batch sizes M: progress, iteration, grad_sqr, grad_var after each epoch.

Times are seconds; step_time is a whole step, sync_time what of it is not overlapped by computing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bft.models.cells import Rows
from bft.models.curves import Curve, FloatArray
from bft.models.errors import InputError
from bft.models.speed.goodput import (
    BatchLimits,
    Observations,
    ThroughputParameters,
    fit_throughput,
)
from bft.models.tables import read_table
from bft.models.tolerances import WHOLE_SAMPLES

Source = Literal["measured", "interpolated", "modelled"]


class StepTime(NamedTuple):
    """Seconds of a step without accumulation, what of it waits for synchronisation, and where that is from."""

    step_s: float
    sync_s: float
    source: Source

    @property
    def gradient_s(self) -> float:
        """Seconds of a pass that does not synchronise."""
        return self.step_s - self.sync_s


@dataclass(frozen=True, eq=False)
class Validation:
    """One training at a fixed total batch size; arrays of shape (epochs,), values at the end of each epoch.

    Parameters
    ----------
    progress
        In iterations at the initial batch size, increasing.
    iterations
        Iterations at this batch size.
    grad_sqr, grad_var
        |g|² and variance of the gradient, at the initial batch size.
    """

    progress: FloatArray
    iterations: FloatArray
    grad_sqr: FloatArray
    grad_var: FloatArray


@dataclass(frozen=True, eq=False)
class Application:
    """The measurements of one application; see `read_application`.

    Parameters
    ----------
    name
        Of the folder.
    steps
        Replicas on each node (smallest rotation) -> atomic batch, step_s, sync_s: float64 of shape (batches, 3),
        batches increasing.
    means
        num_nodes, num_replicas, local_bsz, step_s, sync_s beyond those placements: float64 of shape (rows, 5).
    validations
        Total batch size -> training at that size, sizes increasing.
    limits
        Batch sizes in use: those measured, unless changed (`dataclasses.replace`).
    """

    name: str
    steps: dict[tuple[int, ...], FloatArray]
    means: FloatArray
    validations: dict[int, Validation]
    limits: BatchLimits

    # --- step times

    def step_time(self, placement: Sequence[int], atomic: float) -> StepTime:
        """Seconds of a step of replicas placed so (zeros are nodes not used), with `atomic` samples a replica.

        measured
            The placement was measured: linear between its atomic batches.
        interpolated
            Linear over (nodes, replicas, atomic batch), by the Delaunay tetrahedra of the means of all measurements;
            more nodes than were ever measured count as that many.
        modelled
            Outside both: by the throughput model fitted to all measurements.
        """
        ring = canonical(placement)
        rows = self.steps.get(ring)
        if rows is not None and rows[0, 0] <= atomic <= rows[-1, 0]:
            taken = np.interp(atomic, rows[:, 0], rows[:, 1])
            waited = np.interp(atomic, rows[:, 0], rows[:, 2])
            return StepTime(float(taken), float(waited), "measured")
        nodes, replicas = len(ring), sum(ring)
        if rows is None:
            point = [min(nodes, self._most_nodes), replicas, atomic]
            step, sync = map(float, self._interpolator(point)[0])
            if not np.isnan(step):
                return StepTime(step, sync, "interpolated")
        parameters = self.parameters
        step = float(parameters.step_time(nodes, replicas, atomic))
        return StepTime(
            step, step - float(parameters.gradient_time(atomic)), "modelled"
        )

    @cached_property
    def single_rate(self) -> float:
        """Samples/s of one unit at the largest batch that was measured there."""
        most = self.steps[1,][-1, 0] if (1,) in self.steps else self.limits.atomic_max
        return float(most / self.step_time((1,), most).step_s)

    @cached_property
    def observations(self) -> Observations:
        """Return all measured placements, in the order of the file."""
        rows = [
            (len(ring), sum(ring), atomic, step, step - sync)
            for ring, table in self.steps.items()
            for atomic, step, sync in table
        ]
        return Observations(*np.array(rows).T)

    @cached_property
    def parameters(self) -> ThroughputParameters:
        """The throughput model fitted to all measured placements."""
        return fit_throughput(self.observations)

    def curve(self, batch: int, max_units: int, units_per_node: int) -> Curve:
        """Scalability at a fixed total batch size: samples/s on 1 ... `max_units` units, consolidated, as measured.

        The curve ends where a replica would get less than the least atomic batch.
        """
        rates = [0.0]
        for units in range(1, min(max_units, batch // self.limits.atomic_min) + 1):
            local = int(np.ceil(batch / units - WHOLE_SAMPLES))
            passes = int(np.ceil(local / self.limits.atomic_max - WHOLE_SAMPLES))
            atomic = int(np.ceil(local / passes - WHOLE_SAMPLES))
            full_nodes, rest = divmod(units, units_per_node)
            taken = self.step_time([units_per_node] * full_nodes + [rest], atomic)
            rates.append(batch / (taken.step_s + (passes - 1) * taken.gradient_s))
        return Curve(np.arange(len(rates), dtype=np.float64), np.array(rates))

    @cached_property
    def _most_nodes(self) -> int:
        return max(*(len(ring) for ring in self.steps), *map(int, self.means[:, 0]), 1)

    @cached_property
    def _interpolator(self) -> Any:
        from scipy.interpolate import LinearNDInterpolator
        from scipy.spatial import QhullError

        groups: dict[tuple[float, ...], list[FloatArray]] = {}
        for ring, table in self.steps.items():
            for row in table:
                groups.setdefault((len(ring), sum(ring), row[0]), []).append(row[1:])
        rows = [(*key, *np.mean(groups[key], axis=0)) for key in sorted(groups)]
        table = np.concatenate([np.array(rows), self.means])
        try:
            return LinearNDInterpolator(table[:, :3], table[:, 3:])
        except QhullError:  # too few measurements to span a space
            return lambda _: np.full((1, 2), np.nan)

    # --- progress and noise

    @cached_property
    def epoch_ends(self) -> FloatArray:
        """Progress at the end of each epoch, the least over batch sizes: float64 of shape (epochs,)."""
        epochs = min(len(run.progress) for run in self.validations.values())
        return np.asarray(
            np.min([run.progress[:epochs] for run in self.validations.values()], axis=0)
        )

    @property
    def total_progress(self) -> float:
        """Progress of a whole training, in iterations at the initial batch size."""
        return float(self.epoch_ends[-1])

    def epoch_at(self, progress: float) -> int:
        """Epochs completed at a progress; at most all of them."""
        return int(np.searchsorted(self.epoch_ends, progress, side="right"))

    def gradient(self, epoch: int, batch: float) -> tuple[float, float]:
        """|g|² and variance of the gradient in an epoch, from 0; linear between total batch sizes.

        Past the last epoch its values stay; batch sizes beyond those measured count as the nearest.
        """
        epoch = min(epoch, len(self.epoch_ends) - 1)
        sizes, runs = list(self.validations), self.validations.values()
        sqr = np.interp(batch, sizes, [run.grad_sqr[epoch] for run in runs])
        var = np.interp(batch, sizes, [run.grad_var[epoch] for run in runs])
        return float(sqr), float(var)

    def samples(self, batch: int) -> float:
        """Samples that a whole training processes at a fixed total batch size, linear between those measured."""
        last = len(self.epoch_ends) - 1
        iterations = [run.iterations[last] for run in self.validations.values()]
        return batch * float(np.interp(batch, list(self.validations), iterations))


def canonical(placement: Iterable[int]) -> tuple[int, ...]:
    """The smallest rotation of a ring of nodes; nodes without replicas do not count.

    Examples
    --------
    >>> canonical([4, 0, 2, 1])
    (1, 4, 2)
    """
    ring = tuple(int(count) for count in placement if count)
    return min(ring[index:] + ring[:index] for index in range(len(ring)))


def _tables(folder: Path) -> dict[str, Path]:
    """The tables of a folder by their names without .csv or .csv.gz; where there are both, .csv counts."""
    files = (*folder.glob("*.csv.gz"), *folder.glob("*.csv"))
    return {file.name.removesuffix(".gz").removesuffix(".csv"): file for file in files}


def measured_kinds(folder: str | Path) -> list[str]:
    """The kinds of units that an application has measurements of its own for, ascending."""
    begin, tables = "placements-", _tables(Path(folder))
    kinds = (name.removeprefix(begin) for name in tables if name.startswith(begin))
    return sorted(kinds)


def read_application(
    folder: str | Path, *, atomic_max: int | None = None, kind: str = ""
) -> Application:
    """Read an application from a folder; the module's docstring lists its files.

    Parameters
    ----------
    folder
        With placements.csv and validation-M.csv.
    atomic_max
        Most samples a replica takes in one pass, when not what was measured (Pollux' artifact allows yolov3 8).
    kind
        The kind of units whose measurements are meant, of `measured_kinds`; empty: those of no kind.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("expected a folder with placements.csv", file=folder)
    mark = f"-{kind}" if kind else ""
    tables = _tables(folder)
    if f"placements{mark}" not in tables:
        raise InputError(
            f"no placements{mark}.csv (or .csv.gz) in it",
            file=folder,
            hint="docs/models.md",
        )
    means = np.empty((0, 5))
    if scalability := tables.get(f"scalability{mark}"):
        columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
        rows = Rows(read_table(scalability), scalability).require(columns)
        means = _numbers(rows, columns)
    named = {
        int(match[1]): path
        for name, path in tables.items()
        if (match := re.fullmatch(r"validation-([1-9][0-9]*)", name))
    }
    if not named:
        raise InputError(
            "no validation-M.csv in it, where M is a total batch size", file=folder
        )
    steps = _read_placements(tables[f"placements{mark}"])
    validations = {size: _read_validation(named[size]) for size in sorted(named)}
    batches = np.concatenate([table[:, 0] for table in steps.values()])
    most = int(batches.max()) if atomic_max is None else atomic_max
    try:
        limits = BatchLimits(min(named), max(named), int(batches.min()), most)
    except ValueError as error:
        raise InputError(
            f"batch sizes of its files do not agree: {error}", file=folder
        ) from error
    return Application(folder.name, steps, means, validations, limits)


def _read_placements(path: Path) -> dict[tuple[int, ...], FloatArray]:
    columns = ("local_bsz", "step_time", "sync_time")
    rows = Rows(read_table(path), path).require(("placement", *columns))
    rows.all_wholes("local_bsz", min=1)
    placements: dict[tuple[int, ...], list[FloatArray]] = {}
    for row, values in zip(rows, _numbers(rows, columns), strict=True):
        digits = row.name("placement")
        if not re.fullmatch("[1-9]+", digits):
            raise row.error(
                "placement",
                f"expected digits 1 to 9, the replicas on each node, not {digits!r}",
            )
        if values[2] >= values[1]:
            raise row.error(
                "sync_time",
                f"expected less than step_time ({values[1]:g}), not {values[2]:g}",
            )
        placements.setdefault(canonical(map(int, digits)), []).append(values)
    steps = {}
    for ring, measured in placements.items():
        table = np.array(sorted(measured, key=lambda values: float(values[0])))
        if (np.diff(table[:, 0]) == 0).any():
            raise rows.error(
                f"placement {''.join(map(str, ring))} has two rows of one local_bsz"
            )
        steps[ring] = table
    return steps


def _read_validation(path: Path) -> Validation:
    columns = ("progress", "iteration", "grad_sqr", "grad_var")
    rows = Rows(read_table(path), path).require(columns)
    values = np.stack([rows.all_numbers(column) for column in columns])
    falls = np.flatnonzero(np.diff(values[0]) < 0)
    if len(falls):
        raise rows[int(falls[0]) + 1].error("progress", "progress must not go back")
    return Validation(*values)


def _numbers(rows: Rows, columns: Sequence[str]) -> FloatArray:
    """Columns of numbers >= 0: float64 of shape (rows, columns)."""
    return np.stack([rows.all_numbers(column, min=0) for column in columns], axis=1)
