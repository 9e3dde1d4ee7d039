"""Scalability curves from measured throughputs: as measured, by Amdahl's law or beyond it, or by T_grad and T_sync.

Every fit reports its distance from the measurements, and which points lie outside the measured range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Final, Literal, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from bft.models.cells import Bounds, Row, Rows
from bft.models.curves import Curve, FloatArray
from bft.models.errors import InputError
from bft.models.speed.throughput import Observations, fit_throughput
from bft.models.tables import read_table

Kind = Literal["piecewise", "amdahl", "usl", "throughput"]
KINDS: Final[tuple[Kind, ...]] = ("piecewise", "amdahl", "usl", "throughput")

V = TypeVar("V")

# Sizes that a law's parameters take to be determined.
SIZES_NEEDED: Final[dict[Kind, int]] = {"amdahl": 2, "usl": 3}

# Repetitions that spread further than this share of their median, and gains beyond linear, are reported.
NOISE, SUPERLINEAR = 0.1, 0.05


@dataclass(frozen=True, eq=False)
class Throughputs:
    """Throughputs of one model, arrays of shape (measurements,), sizes in any order and repeated at will.

    Parameters
    ----------
    model
        Its name.
    units
        Whole numbers >= 1.
    throughput
        Samples/s over all units, > 0.
    batch
        Samples a step over all units, > 0; None when not known.
    nodes
        Nodes that the units were on; None when not known.
    sync_s
        Part of a step's seconds spent waiting for synchronisation, >= 0; None when not measured.
    pmax, submit_ns
        Work of the model's job in samples, and its submission (UTC ns), where the table states them.

    Raises
    ------
    InputError
        Names the model, the column and the first invalid measurement.

    Examples
    --------
    >>> measured = Throughputs("bert", [1, 2, 2, 4], [10.0, 18.0, 20.0, 30.0])
    >>> measured.sizes().tolist(), measured.medians().tolist()
    ([1.0, 2.0, 4.0], [10.0, 19.0, 30.0])
    """

    model: str
    units: FloatArray
    throughput: FloatArray
    batch: FloatArray | None = None
    nodes: FloatArray | None = None
    sync_s: FloatArray | None = None
    pmax: float | None = None
    submit_ns: int | None = None

    def __post_init__(self) -> None:
        for column, low, expected in (
            ("units", 1.0, "whole numbers >= 1"),
            ("throughput", 0.0, "numbers > 0"),
            ("batch", 0.0, "numbers > 0"),
            ("nodes", 1.0, "whole numbers >= 1"),
            ("sync_s", 0.0, "numbers >= 0"),
        ):
            values = getattr(self, column)
            if values is None:
                continue
            values = np.asarray(values, dtype=np.float64)
            object.__setattr__(self, column, values)
            if values.shape != (len(self.units),) or not len(values):
                raise InputError(
                    f"{self.model}: expected as many values as units ({len(self.units)}), at least one",
                    column=column,
                )
            wrong = ~np.isfinite(values) | (values < low)
            if column != "sync_s":
                wrong |= values == 0
            if column in ("units", "nodes"):
                wrong |= values % 1 != 0
            if wrong.any():
                bad = int(np.argmax(wrong))
                raise InputError(
                    f"{self.model}: expected {expected}, not {values[bad]}",
                    row=bad + 1,
                    column=column,
                )

    def sizes(self) -> FloatArray:
        """Units that were measured, increasing."""
        return np.unique(self.units)

    def medians(self) -> FloatArray:
        """Median throughput at each of `sizes`: one run that was disturbed does not move it."""
        return np.array(
            [np.median(self.throughput[self.units == size]) for size in self.sizes()]
        )


@dataclass(frozen=True, eq=False)
class ScalabilityFit:
    """A fitted scalability curve, and its deviations from the measurements.

    Parameters
    ----------
    model, kind
        The job's model, and the kind of fit: `piecewise` if fewer sizes were measured than the requested kind needs.
    curve
        Units -> samples/s, at the requested points.
    extrapolated
        Whether a point of the curve lies outside the measured sizes: bool of shape (points,), False at 0 units.
    errors
        |predicted / measured - 1| of each measurement, in the order given.
    parameters
        The fitted parameters, by name.
    warnings
        Messages for the user.

    Examples
    --------
    >>> fit = fit_scalability(Throughputs("bert", [1, 2, 4], [10.0, 20.0, 30.0]), sizes=[1, 4, 8])
    >>> fit.curve.ps.tolist(), fit.beyond, fit.efficiency().tolist()
    ([0.0, 10.0, 30.0, 30.0], [8], [1.0, 0.75, 0.375])
    """

    model: str
    kind: Kind
    curve: Curve
    extrapolated: NDArray[np.bool_]
    errors: FloatArray
    parameters: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """The largest size of the curve at which it is highest: more units make a job slower."""
        return int(self.curve.ns[self.curve.ps == self.curve.ps.max()][-1])

    @property
    def beyond(self) -> list[int]:
        """Sizes of the curve that are extrapolated."""
        return [int(n) for n in self.curve.ns[self.extrapolated]]

    def efficiency(self) -> FloatArray:
        """Scaling efficiency at the points beyond 0: the rate a unit over that at the least of them."""
        per_unit = self.curve.ps[1:] / self.curve.ns[1:]
        return np.asarray(per_unit / per_unit[0])


def fit_scalability(
    measured: Throughputs,
    kind: Kind = "piecewise",
    *,
    sizes: Sequence[int] | None = None,
    units_per_node: int = 1,
    batch: float | None = None,
) -> ScalabilityFit:
    """Fit a scalability curve.

    piecewise
        Through the median of each measured size, and the origin; constant beyond the largest.
    amdahl
        P(n) = P1 n / (1 + σ (n - 1)), 0 <= σ <= 1 the serial fraction (Amdahl 1967).
    usl
        P(n) = P1 n / (1 + σ (n - 1) + κ n (n - 1)), κ >= 0 the cost of coherence (Gunther, Guerrilla Capacity
        Planning, 2007): it may fall.
    throughput
        Pollux' T_grad and T_sync (`bft.models.speed.throughput`). Total batch size as `batch`, else as measured where
        it was the same everywhere, else the median samples a unit.

    Parameters
    ----------
    measured
        The measurements.
    kind
        The model.
    sizes
        Points of the curve, units >= 1; the measured ones when None.
    units_per_node
        Units a node, for models that tell nodes apart where the measurements do not say.
    batch
        Samples a step over all units; see above.

    Raises
    ------
    InputError
        When the model needs what was not measured.

    Examples
    --------
    >>> measured = Throughputs("bert", np.array([1.0, 2, 4]), np.array([100.0, 180, 300]))
    >>> fit = fit_scalability(measured, "amdahl", sizes=[1, 4, 8])
    >>> fit.curve.ps.round().tolist(), fit.beyond
    ([0.0, 100.0, 300.0, 450.0], [8])
    """
    known = measured.sizes()
    warnings = _warnings(measured, kind)
    if len(known) < SIZES_NEEDED.get(kind, 0):
        kind = "piecewise"
    points = known if sizes is None else np.unique(np.asarray(sizes, dtype=np.float64))
    if kind == "piecewise":
        through = Curve(np.append(0, known), np.append(0, measured.medians()))
        fitted = through.at(points), through.at(measured.units), dict[str, float]()
    elif kind == "throughput":
        fitted = _by_throughput(measured, points, units_per_node, batch)
    else:
        fitted = _by_law(measured, points, coherence=kind == "usl")
    rates, predicted, parameters = fitted
    return ScalabilityFit(
        measured.model,
        kind,
        Curve(np.append(0, points), np.append(0, rates)),
        np.append(False, (points < known[0]) | (points > known[-1])),
        np.abs(predicted / measured.throughput - 1),
        parameters,
        tuple(warnings),
    )


def _by_law(
    measured: Throughputs, points: FloatArray, *, coherence: bool
) -> tuple[FloatArray, FloatArray, dict[str, float]]:
    """Amdahl's law or the universal scalability law: n/P = a + b n + c n (n - 1), least squares of relative errors.

    Linear in a, b, c >= 0, so the optimum is the only one; P1 = 1/(a + b), σ = b/(a + b), κ = c/(a + b).
    """
    from scipy.optimize import nnls

    def terms(n: FloatArray) -> FloatArray:
        columns = [np.ones_like(n), n, n * (n - 1)]
        return np.stack(columns if coherence else columns[:2], axis=1)

    scale = measured.throughput.max()  # keeps the problem of magnitude 1
    weights = measured.throughput / scale / measured.units
    solution, _ = nnls(terms(measured.units) * weights[:, None], np.ones(len(weights)))
    solution = solution / scale
    alone = solution[0] + solution[1]
    if (
        alone <= 0
    ):  # all in κ: P falls from the start, which no measurement of training shows
        raise InputError(
            f"{measured.model}: the measurements fit no scalability law",
            column="throughput",
        )
    parameters = {"P1": 1 / alone, "sigma": solution[1] / alone}
    if coherence:
        parameters["kappa"] = solution[2] / alone
    return (
        points / (terms(points) @ solution),
        measured.units / (terms(measured.units) @ solution),
        parameters,
    )


def _by_throughput(
    measured: Throughputs, points: FloatArray, units_per_node: int, batch: float | None
) -> tuple[FloatArray, FloatArray, dict[str, float]]:
    if measured.batch is None:
        raise InputError(
            f"{measured.model}: the throughput model needs samples a step",
            column="batch_size",
            hint="add the column, or choose another model",
        )
    nodes = (
        np.ceil(measured.units / units_per_node)
        if measured.nodes is None
        else measured.nodes
    )
    step_s = measured.batch / measured.throughput
    gradient_s = None if measured.sync_s is None else step_s - measured.sync_s
    atomic = measured.batch / measured.units
    try:
        observed = Observations(nodes, measured.units, atomic, step_s, gradient_s)
    except ValueError as error:
        raise InputError(f"{measured.model}: {error}") from error
    fitted = fit_throughput(observed)
    if batch is None and len(np.unique(measured.batch)) == 1:
        batch = float(measured.batch[0])
    share = np.full(len(points), np.median(atomic)) if batch is None else batch / points
    rates = fitted.throughput(np.ceil(points / units_per_node), points, share)
    names = [entry.name for entry in fields(fitted)]
    return (
        rates,
        fitted.throughput(nodes, measured.units, atomic),
        dict(zip(names, astuple(fitted), strict=True)),
    )


def _warnings(measured: Throughputs, kind: Kind) -> list[str]:
    sizes, medians = measured.sizes(), measured.medians()
    warnings = []
    needed, count = SIZES_NEEDED.get(kind, 0), len(sizes)
    measured_at = ", ".join(f"{size:g}" for size in sizes)
    if count < needed:
        warnings.append(
            f"{kind} takes {needed} sizes to be determined, and {count} {'was' if count == 1 else 'were'} measured "
            f"({measured_at}): piecewise instead, constant beyond them"
        )
    elif count == needed:
        warnings.append(
            f"{kind} goes through any {needed} sizes: its error of 0 tells nothing of other sizes"
        )
    elif kind == "throughput" and len(sizes[sizes > 1]) < 2:
        warnings.append(
            f"synchronisation was seen at {measured_at} units only: what was not is taken to be as fast as possible"
        )
    if len(sizes) == 1:
        warnings.append(f"one size only ({sizes[0]:g}): nothing is known of scaling")
    for index in np.flatnonzero(np.diff(medians) < 0):
        warnings.append(
            f"not monotone: {sizes[index + 1]:g} units give {medians[index + 1]:.4g} samples/s, "
            f"{sizes[index]:g} give {medians[index]:.4g}"
        )
    for size, median in zip(sizes, medians, strict=True):
        spread = np.ptp(measured.throughput[measured.units == size]) / median
        if spread > NOISE:
            warnings.append(
                f"noisy: repetitions at {size:g} units spread over {spread:.0%} of their median"
            )
    gains = (medians / sizes) / (medians[0] / sizes[0]) - 1
    for index in np.flatnonzero(gains > SUPERLINEAR):
        warnings.append(
            f"superlinear: a unit of {sizes[index]:g} gives {gains[index]:.0%} more than one of {sizes[0]:g}"
        )
    return warnings


def read_throughputs(path: str | Path, *, name: str | None = None) -> list[Throughputs]:
    r"""Read a table of measured throughputs, one `Throughputs` a model in the order of the file.

    Columns: `model` (or `job`; without either all rows are of one model), `units`, and `throughput` (samples/s) or
    both `step_time` (s) and `batch_size` (samples a step over all units); optionally `batch_size`, `nodes`,
    `sync_time` (s, what of a step is not overlapped by computing), `pmax` and `submit` (of the model's job: on one of
    its rows, or the same on several).

    Parameters
    ----------
    path
        Parquet, CSV or JSON lines.
    name
        The model's name if the file has none; None: the file's own name.

    Raises
    ------
    InputError
        Naming file, row and column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "bert.csv")
    ...     _ = file.write_text("units,throughput\n1,10\n2,19\n")
    ...     [(one.model, one.units.tolist()) for one in read_throughputs(file)]
    [('bert', [1.0, 2.0])]
    """
    rows = Rows(read_table(path), path)
    if not rows.has("units") or not (
        rows.has("throughput") or (rows.has("step_time") and rows.has("batch_size"))
    ):
        raise rows.error(
            "expected the columns units and throughput (or step_time and batch_size), "
            f"not {', '.join(rows.columns) or 'none'}",
            hint="docs/models.md lists the columns",
        )
    rows.require(("units",))

    def numbers(column: str, **bounds: Unpack[Bounds]) -> FloatArray | None:
        return rows.all_numbers(column, **bounds) if rows.has(column) else None

    units = rows.all_wholes("units", min=1)
    batch, rates = numbers("batch_size", above=0), numbers("throughput", above=0)
    step_s = numbers("step_time", above=0)
    nodes = rows.all_wholes("nodes", min=1) if rows.has("nodes") else None
    sync_s = numbers("sync_time", min=0)
    if rates is None:
        assert batch is not None  # noqa: S101 - checked above
        assert step_s is not None  # noqa: S101 - checked above
        with np.errstate(over="ignore"):  # refused below
            rates = batch / step_s
    for column, wrong, expected in (
        (
            "nodes",
            None if nodes is None else nodes > units,
            "at most as many nodes as units",
        ),
        (
            "step_time",
            ~np.isfinite(rates),
            "a step that takes time: its rate is beyond all floats",
        ),
        (
            "sync_time",
            None if sync_s is None or batch is None else sync_s * rates >= batch,
            "less than the step takes",
        ),
    ):
        if wrong is not None and wrong.any():
            raise rows[int(np.argmax(wrong))].error(column, f"expected {expected}")
    named = next((column for column in ("model", "job") if rows.has(column)), None)
    names = np.full(len(rows), name or Path(path).name.split(".")[0], dtype=object)
    if named is not None:
        names = rows.all_names(named)
    result = []
    for model in dict.fromkeys(names):
        own = names == model
        of_model = [rows[int(index)] for index in np.flatnonzero(own)]
        arrays = {"batch": batch, "nodes": nodes, "sync_s": sync_s}
        known = {key: all_[own] for key, all_ in arrays.items() if all_ is not None}
        works = [(row, row.number("pmax", None, above=0)) for row in of_model]
        submits = [(row, row.instant("submit", None)) for row in of_model]
        result.append(
            Throughputs(
                model,
                units[own],
                rates[own],
                pmax=_one(works, "pmax", model),
                submit_ns=_one(submits, "submit", model),
                **known,
            )
        )
    return result


def _one(stated: list[tuple[Row, V | None]], column: str, model: str) -> V | None:
    """The value that the rows of a model state, which may be repeated but not change."""
    known = [(row, value) for row, value in stated if value is not None]
    for row, value in known:
        if value != known[0][1]:
            raise row.error(column, f"expected one value for all rows of {model}")
    return known[0][1] if known else None


def sizes_up_to(measured: Throughputs, max_units: int | None = None) -> list[int]:
    """Measured sizes up to `max_units` (default: the largest one), powers of two between and beyond, and itself.

    >>> sizes_up_to(Throughputs("bert", [3, 6], [30.0, 50.0]), max_units=20)
    [3, 4, 6, 8, 16, 20]
    """
    sizes = list(map(int, measured.sizes()))
    last = sizes[-1] if max_units is None else max_units
    powers = [2**k for k in range(last.bit_length())]
    return sorted({n for n in (*sizes, *powers) if sizes[0] <= n < last} | {last})
