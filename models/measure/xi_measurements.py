"""From solo and co-run measurements to ξ: the time of a step with another job, over its time alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import pandas as pd

from bft.models.cells import Row, Rows
from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.measure.step_times import Basis, StepTimes
from bft.models.measure.training_log import read_log
from bft.models.sharing.xi_table import (
    FLAGS,
    OPTIONAL,
    REQUIRED,
    Measurement,
    Place,
    measurement,
)
from bft.models.tables import read_table

# Sources of a step's time: a number, or the log of a run.
TIMES: Final = ("step_a_s", "step_b_s")
LOGS: Final = ("log_a", "log_b")
# Steps at the start of a log that are left out.
WARMUP: Final = 10
# A step that takes longer than this many medians is a stall: a checkpoint, an evaluation.
STALL: Final = 100.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of reading tables of measurements.

    Parameters
    ----------
    measurements
        One a pair of configurations, in canonical order: a's (model, batch) before b's. Ratios are at least 1.
    rows
        Rows of ratios read or computed, before repetitions were merged.
    clipped
        How many single ratios were below 1, which is measurement noise.
    notes
        Messages for the user.
    """

    measurements: tuple[Measurement, ...]
    rows: int
    clipped: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """One job of a row: what ran, and the mean seconds of a step."""

    model: str
    batch: float | None
    units: float | None
    step_s: float
    basis: Basis = "step"


def read_measurements(
    paths: Sequence[str | Path], *, pattern: str | None = None, warmup: int = WARMUP
) -> Measured:
    r"""Read tables of measurements and merge repetitions by their median.

    A table (CSV, Parquet, JSON lines) has the columns `model_a` and, optionally, `batch_a`, `model_b`, `batch_b`,
    `units` (that both jobs run on), and tells times in one of three ways:

    - `step_a_s`, `step_b_s`: seconds of a step. A row without `model_b` is a solo run, one with it a co-run;
    - `log_a`, `log_b`: files with the output of the runs, relative to the table; see `bft.models.read_step_times`. Of
      co-runs whose logs carry time stamps only the span counts in which both ran;
    - `xi_a`, `xi_b`: the ratios themselves, as a ξ table has them.

    A co-run needs the solo runs of its two configurations in any of the tables: same model, batch and units, where a
    solo run that does not state batch or units serves any. ξ = t_shared / t_alone, with the median of repeated solo
    runs.

    Parameters
    ----------
    paths
        The tables.
    pattern
        How to read step times in logs; None: the common forms.
    warmup
        Steps to leave out at the start of a log.

    Raises
    ------
    InputError
        Naming file, row and column: a ratio or time that is no number > 0, a missing column, a log without step times,
        a co-run without its solo run.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "runs.csv")
    ...     _ = file.write_text("model_a,model_b,step_a_s,step_b_s\na,,0.5,\nb,,0.2,\na,b,0.6,0.3\n")
    ...     [round(xi, 2) for row in read_measurements([file]).measurements for xi in (row.xi_a, row.xi_b)]
    [1.2, 1.5]
    """
    solo: list[_Run] = []
    shared: list[tuple[Row, _Run, _Run]] = []
    ratios: list[Measurement] = []
    notes: list[str] = []
    for path in paths:
        frame = read_table(path)
        rows = Rows(frame, path)
        if all(map(rows.has, REQUIRED)):
            # Estimated rows are not measurements.
            ratios += [
                row
                for row in map(measurement, rows.require(REQUIRED))
                if row.flag == FLAGS[0]
            ]
            continue
        for row in _checked(rows):
            runs = _runs(row, Path(path).parent, pattern, warmup, notes)
            if len(runs) == 1:
                solo.append(runs[0])
            else:
                shared.append((row, runs[0], runs[1]))
    for row, a, b in shared:
        xi_a, xi_b = (
            run.step_s / _alone(solo, run, row, column)
            for run, column in ((a, "model_a"), (b, "model_b"))
        )
        try:
            ratios.append(
                Measurement(a.model, b.model, xi_a, xi_b, a.batch, b.batch, a.units)
            )
        except (
            InputError
        ) as error:  # times so far apart that no float holds their ratio
            raise row.placed(error) from error
    if not ratios:
        raise InputError(
            "nothing was measured together: expected rows with model_a and model_b",
            file=paths[0] if paths else None,
            hint="solo runs alone define no xi, and estimated rows are not measurements",
        )
    clipped = sum((row.xi_a < 1) + (row.xi_b < 1) for row in ratios)
    return Measured(merged(ratios), len(ratios), clipped, tuple(dict.fromkeys(notes)))


def merged(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """One row a pair of configurations: repetitions by their median, ratios of at least 1, in canonical order.

    (a, b) and (b, a) are repeated measurements of the same pair; so are both ratios of a configuration with itself.
    """
    repeated: dict[Place, list[Measurement]] = {}
    for row in measurements:
        a, b = sorted((row, row.swapped()), key=lambda side: side.place)
        repeated.setdefault(a.place, []).extend([a, b] if a.place == b.place else [a])
    return tuple(
        replace(
            rows[0],
            xi_a=median(max(row.xi_a, 1.0) for row in rows),
            xi_b=median(max(row.xi_b, 1.0) for row in rows),
        )
        for _, rows in sorted(repeated.items())
    )


def xi_to_frame(measurements: Sequence[Measurement]) -> pd.DataFrame:
    """The ξ table of measurements: batch, units and flag only where one states them."""
    columns = [
        "model_a",
        "batch_a",
        "model_b",
        "batch_b",
        "units",
        "xi_a",
        "xi_b",
        "flag",
    ]
    frame = pd.DataFrame(
        [{name: getattr(row, name) for name in columns} for row in measurements],
        columns=columns,
    )
    unused = [column for column in OPTIONAL if frame[column].isna().all()]
    if all(row.flag == FLAGS[0] for row in measurements):
        unused.append("flag")
    return frame.drop(columns=unused)


def mean_step_s(seconds: Sequence[float] | FloatArray) -> float:
    """Mean seconds of a step without stalls, of one or more steps > 0.

    The mean, as it is what progress follows. The median would hide what sharing costs where two jobs take turns of
    several steps: most steps then take as long as alone, and some wait for the other's turn.
    """
    times = np.asarray(seconds, dtype=np.float64)
    return float(times[times <= STALL * np.median(times)].mean())


def _checked(rows: Rows) -> Rows:
    """Refuse a table with neither times nor ratios."""
    rows.require(
        ("model_a",), ("batch_a", "model_b", "batch_b", "units", *TIMES, *LOGS)
    )
    for a, b in (TIMES, LOGS):
        if rows.has(a) and (rows.has(b) or not rows.has("model_b")):
            return rows
    raise InputError(
        f"no times: expected the columns {' and '.join(TIMES)} (seconds a step), {' and '.join(LOGS)} (log files), or "
        "xi_a and xi_b with model_a and model_b",
        file=rows.file or None,
        hint=f"it has {', '.join(rows.columns)}",
    )


def _runs(
    row: Row, folder: Path, pattern: str | None, warmup: int, notes: list[str]
) -> list[_Run]:
    """The one or two runs of a row."""
    sides = ("a", "b") if row.given("model_b") else ("a",)
    timed: list[tuple[float, Basis]]
    if any(row.given(f"step_{side}_s") for side in sides):
        timed = [(row.number(f"step_{side}_s", above=0), "step") for side in sides]
    else:
        timed = _from_logs(row, sides, folder, pattern, warmup, notes)
    units = row.number("units", None, above=0)
    return [
        _Run(
            row.name(f"model_{side}"),
            row.number(f"batch_{side}", None, above=0),
            units,
            *time,
        )
        for side, time in zip(sides, timed, strict=True)
    ]


def _from_logs(
    row: Row,
    sides: Sequence[str],
    folder: Path,
    pattern: str | None,
    warmup: int,
    notes: list[str],
) -> list[tuple[float, Basis]]:
    """Mean seconds of a step in the logs that a row names, and of what; of two logs in the span in which both ran."""
    logs: list[StepTimes] = []
    for side in sides:
        if not row.given(f"log_{side}"):
            raise row.error(
                f"step_{side}_s",
                f"expected a number > 0 here, or a file in the column log_{side}",
            )
        file = folder / row.name(f"log_{side}")
        # A batch size of 1 turns samples/s into s/sample in every log: the ratio is the same.
        logs.append(read_log(file, pattern, batch_size=1.0, warmup=warmup))
        notes += [f"{file}: {note}" for note in logs[-1].notes]
        notes += (
            [f"{file}: not used: {', '.join(logs[-1].unused)}"]
            if logs[-1].unused
            else []
        )
    if len(logs) == 2:
        if all(np.isfinite(log.times).all() for log in logs):
            start, end = (
                max(log.times[0] for log in logs),
                min(log.times[-1] for log in logs),
            )
            logs = [log.between(start, end) for log in logs]
            if not all(len(log) for log in logs):
                raise row.error(
                    "log_b",
                    "expected logs of runs at the same time; these two never overlap",
                )
        else:
            notes.append(
                f"{row.file}: co-run logs without time stamps: all their steps count, alone or not"
            )
    return [(mean_step_s(log.seconds), log.basis) for log in logs]


def _alone(solo: Sequence[_Run], run: _Run, row: Row, column: str) -> float:
    """Median seconds of a step of the solo runs of a configuration; those that state batch and units first."""
    fitting = [
        (other.batch is None, other.units is None, other)
        for other in solo
        if other.model == run.model
        and other.batch in (None, run.batch)
        and other.units in (None, run.units)
    ]
    if not fitting:
        stated = [f"batch {run.batch:g}"] * (run.batch is not None) + [
            f"{run.units:g} units"
        ] * (run.units is not None)
        raise row.error(
            column,
            f"no solo run of {' at '.join([run.model, ', '.join(stated)] if stated else [run.model])}",
            "add a row with this model as model_a, its step_a_s alone, and no model_b",
        )
    best = min(entry[:2] for entry in fitting)
    alone = [other for *place, other in fitting if tuple(place) == best]
    if any(other.basis != run.basis for other in alone):
        raise row.error(
            column,
            f"logs of {run.model} alone and beside another time different things: steps, samples or tokens",
            "give a pattern that matches the same quantity in all logs, or step_a_s and step_b_s",
        )
    return median(other.step_s for other in alone)
