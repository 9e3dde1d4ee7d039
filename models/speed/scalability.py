"""Scalability curves from measured throughputs: as measured, by Amdahl's law or beyond it.

Every fit reports its distance from the measurements, and which points lie outside the measured range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.cells import Row, Rows
from bft.models.curves import Curve, FloatArray, positive_array
from bft.models.errors import InputError
from bft.models.job_tables import jobs_from_frame, unknown_columns
from bft.models.jobs import JobTable
from bft.models.tables import read_table

Kind = Literal["piecewise", "amdahl", "usl"]

V = TypeVar("V")

# Sizes that the parameters of a kind take to be determined.
SIZES_NEEDED: Final[dict[Kind, int]] = {"piecewise": 1, "amdahl": 2, "usl": 3}

# Of a table of measurements.
_COLUMNS: Final = (
    "model", "job", "units", "throughput", "step_time", "batch_size", "pmax", "submit",
)  # fmt: skip

# Work of a training of the paper, samples: 100 epochs of ImageNet.
PMAX: Final = 1.3e8

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
    pmax, submit_ns
        Work of the model's job in samples, and its submission (UTC ns), where the table states them.

    Raises
    ------
    ValueError
        Names the first invalid measurement.

    Examples
    --------
    >>> measured = Throughputs("bert", [1, 2, 2, 4], [10.0, 18.0, 20.0, 30.0])
    >>> measured.sizes().tolist(), measured.medians().tolist()
    ([1.0, 2.0, 4.0], [10.0, 19.0, 30.0])
    """

    model: str
    units: FloatArray
    throughput: FloatArray
    pmax: float | None = None
    submit_ns: int | None = None

    def __post_init__(self) -> None:
        for name in ("units", "throughput"):
            values = positive_array(name, getattr(self, name), len(self.units))
            object.__setattr__(self, name, values)
        if (self.units % 1).any():
            raise ValueError("units: expected whole numbers")

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
) -> ScalabilityFit:
    """Fit a scalability curve.

    piecewise
        Through the median of each measured size, and the origin; constant beyond the largest.
    amdahl
        P(n) = P1 n / (1 + σ (n - 1)), 0 <= σ <= 1 the serial fraction (Amdahl 1967).
    usl
        P(n) = P1 n / (1 + σ (n - 1) + κ n (n - 1)), κ >= 0 the cost of coherence (Gunther, Guerrilla Capacity
        Planning, 2007): it may fall.

    Parameters
    ----------
    measured
        The measurements.
    kind
        The model.
    sizes
        Points of the curve, units >= 1; the measured ones when None.

    Raises
    ------
    InputError
        When the measurements fit no law.

    Examples
    --------
    >>> measured = Throughputs("bert", np.array([1.0, 2, 4]), np.array([100.0, 180, 300]))
    >>> fit = fit_scalability(measured, "amdahl", sizes=[1, 4, 8])
    >>> fit.curve.ps.round().tolist(), fit.beyond
    ([0.0, 100.0, 300.0, 450.0], [8])
    """
    known = measured.sizes()
    warnings = _warnings(measured, kind)
    if len(known) < SIZES_NEEDED[kind]:
        kind = "piecewise"
    points = known if sizes is None else np.unique(np.asarray(sizes, dtype=np.float64))
    parameters: dict[str, float] = {}
    if kind == "piecewise":
        through = Curve(np.append(0, known), np.append(0, measured.medians()))
        rates, predicted = through.at(points), through.at(measured.units)
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


def _warnings(measured: Throughputs, kind: Kind) -> list[str]:
    sizes, medians = measured.sizes(), measured.medians()
    warnings = []
    needed, count = SIZES_NEEDED[kind], len(sizes)
    measured_at = ", ".join(f"{size:g}" for size in sizes)
    if count < needed:
        warnings.append(
            f"{kind} takes {needed} sizes to be determined, and {count} {'was' if count == 1 else 'were'} measured "
            f"({measured_at}): piecewise instead, constant beyond them"
        )
    elif count == needed > 1:
        warnings.append(
            f"{kind} goes through any {needed} sizes: its error of 0 tells nothing of other sizes"
        )
    if count == 1:
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
    both `step_time` (s) and `batch_size` (samples a step over all units); optionally `pmax` and `submit` (of the
    model's job: on one of its rows, or the same on several).

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
    unknown_columns(rows, _COLUMNS)
    timed = rows.has("step_time") and rows.has("batch_size")
    if not rows.has("units") or not (rows.has("throughput") or timed):
        raise rows.error(
            "expected the columns units and throughput (or step_time and batch_size), "
            f"not {', '.join(rows.columns) or 'none'}",
            hint="docs/models.md lists the columns",
        )
    rows.require(("units",))
    units = rows.all_wholes("units", min=1)
    if rows.has("throughput"):
        rates = rows.all_numbers("throughput", above=0)
    else:
        batch = rows.all_numbers("batch_size", above=0)
        rates = batch / rows.all_numbers("step_time", above=0)
    named = next((column for column in ("model", "job") if rows.has(column)), None)
    names = np.full(len(rows), name or Path(path).name.split(".")[0], dtype=object)
    if named is not None:
        names = rows.all_names(named)
    result = []
    for model in dict.fromkeys(names):
        own = names == model
        of_model = [rows[int(index)] for index in np.flatnonzero(own)]
        works = [(row, row.number("pmax", None, above=0)) for row in of_model]
        submits = [(row, row.instant("submit", None)) for row in of_model]
        pmax, submit_ns = _one(works, "pmax", model), _one(submits, "submit", model)
        result.append(Throughputs(model, units[own], rates[own], pmax, submit_ns))
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


def fitted_jobs(
    fitted: Iterable[tuple[Throughputs, ScalabilityFit]],
    *,
    submit: str | pd.Timestamp | None = None,
    pmax: float = PMAX,
    tcup: float = 18.0,
    tcdw: float = 12.0,
    sizes: str | None = None,
) -> JobTable:
    """Make a job of each fitted curve, from the smallest measured size to the curve's last, or to its peak.

    Parameters
    ----------
    fitted
        Measurements, each with what was fitted to them.
    submit, pmax
        Submission (UTC) and work (samples) of jobs whose measurements state none.
    tcup, tcdw
        Seconds to grow and to shrink.
    sizes
        The only numbers of units on which the jobs run, such as `1,2,4` or `powers-of-2`.

    Raises
    ------
    InputError
        When a job has no submission, or a value is not allowed.

    Examples
    --------
    >>> measured = Throughputs("bert", [1, 2, 4], [10.0, 20.0, 18.0])
    >>> jobs = fitted_jobs([(measured, fit_scalability(measured))], submit="2024-03-04")
    >>> [(job.name, job.jmin, job.jmax, job.pmax) for job in jobs], jobs.notes[0][:35]
    ([('bert', 1, 2, 130000000.0)], 'bert: falls beyond its peak, 20 sam')
    """
    rows, notes = [], []
    for own, entry in fitted:
        if submit is None and own.submit_ns is None:
            what = f"a job needs $submit, or a column submit of the table: {own.model} has none"
            raise InputError(what, hint="such as the start of the trace")
        curve, last = entry.curve, int(entry.curve.last)
        low = min(int(own.sizes()[0]), last)
        jmax = max(entry.peak, low)
        if jmax < last:
            notes.append(
                f"{entry.model}: falls beyond its peak, {curve.at(jmax):.5g} samples/s at {jmax} units and "
                f"{curve.ps[-1]:.5g} at {last}: Jmax is {jmax}"
            )
        when = submit
        if own.submit_ns is not None:
            when = pd.Timestamp(own.submit_ns, tz="UTC")
        rates = curve.ps.tolist()
        rows.append({
            "name": entry.model,
            "model": entry.model,
            "Jmin": low,
            "Jmax": jmax,
            "Pmax": pmax if own.pmax is None else own.pmax,
            "Tsub": when,
            "Tcup": tcup,
            "Tcdw": tcdw,
            "sizes": sizes,
            "Ns": curve.ns.tolist(), "Ps": rates, "Os": rates,
        })  # fmt: skip
    made = jobs_from_frame(pd.DataFrame(rows))
    return replace(made, notes=(*made.notes, *notes))
