"""From solo and co-run measurements to ξ, the time of a step with another job over its time alone; and what is odd."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pandas as pd

from bft.models.cells import Row, Rows
from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.sharing.xi_table import (
    FLAGS,
    OPTIONAL,
    REQUIRED,
    Measurement,
    Place,
    XiTable,
    measurement,
)
from bft.models.tables import read_table

TIMES: Final = ("step_a_s", "step_b_s")
# A step that takes longer than this many medians is a stall: a checkpoint, an evaluation.
STALL: Final = 100.0


@dataclass(frozen=True, slots=True)
class _Run:
    """One job of a row: what ran, and the mean seconds of a step."""

    model: str
    batch: float | None
    units: float | None
    step_s: float


def read_measurements(paths: Sequence[str | Path]) -> list[Measurement]:
    r"""Read tables of measurements: a row for each pair that ran together, in the order of the tables.

    A table (CSV, Parquet, JSON lines) has the columns `model_a` and, optionally, `batch_a`, `model_b`, `batch_b`,
    `units` (that both jobs run on), and either

    - `step_a_s`, `step_b_s`: mean seconds of a step. A row without `model_b` is a solo run, one with it a co-run;
    - `xi_a`, `xi_b`: the ratios themselves, as a ξ table has them; estimated rows are left out.

    A co-run needs the solo runs of its two configurations in any of the tables: same model, batch and units, where a
    solo run that does not state batch or units serves any. ξ = t_shared / t_alone, with the median of repeated solo
    runs. `merged` makes a ξ table of the answer.

    Raises
    ------
    InputError
        Naming file, row and column: a ratio or time that is no number > 0, a missing column, a co-run without its solo
        run.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "runs.csv")
    ...     _ = file.write_text("model_a,model_b,step_a_s,step_b_s\na,,0.5,\nb,,0.2,\na,b,0.6,0.3\n")
    ...     [round(xi, 2) for row in read_measurements([file]) for xi in (row.xi_a, row.xi_b)]
    [1.2, 1.5]
    """
    solo: list[_Run] = []
    shared: list[tuple[Row, list[_Run]]] = []
    ratios: list[Measurement] = []
    for path in paths:
        rows = Rows(read_table(path), path)
        if all(map(rows.has, REQUIRED)):
            known = map(measurement, rows.require(REQUIRED))
            ratios += [row for row in known if row.flag == FLAGS[0]]
            continue
        further = ("batch_a", "model_b", "batch_b", "units", "xi_a", "xi_b")
        times = TIMES if rows.has("model_b") else TIMES[:1]
        for row in rows.require(("model_a", *times), further):
            runs = [
                _Run(
                    row.name(f"model_{side}"),
                    row.number(f"batch_{side}", None, above=0),
                    row.number("units", None, above=0),
                    row.number(f"step_{side}_s", above=0),
                )
                for side in ("ab" if row.given("model_b") else "a")
            ]
            if len(runs) == 1:
                solo += runs
            else:
                shared.append((row, runs))
    for row, (a, b) in shared:
        xi_a = a.step_s / _alone_s(solo, a, row, "model_a")
        xi_b = b.step_s / _alone_s(solo, b, row, "model_b")
        sides = a.model, b.model, xi_a, xi_b
        ratios.append(Measurement(*sides, a.batch, b.batch, a.units))
    if not ratios:
        raise InputError(
            "nothing was measured together: expected rows with model_a and model_b",
            file=paths[0] if paths else None,
            hint="solo runs alone define no xi, and estimated rows are not measurements",
        )
    return ratios


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
    columns = ["model_a", "batch_a", "model_b", "batch_b", "units", "xi_a", "xi_b"]
    if any(row.flag != FLAGS[0] for row in measurements):
        columns.append("flag")
    frame = pd.DataFrame(
        [[getattr(row, name) for name in columns] for row in measurements],
        columns=columns,
    )
    return frame.drop(columns=[name for name in OPTIONAL if frame[name].isna().all()])


def mean_step_s(seconds: Sequence[float] | FloatArray) -> float:
    """Mean seconds of a step without stalls, of one or more steps > 0.

    The mean, as it is what progress follows. The median would hide what sharing costs where two jobs take turns of
    several steps: most steps then take as long as alone, and some wait for the other's turn.
    """
    times = np.asarray(seconds, dtype=np.float64)
    return float(times[times <= STALL * np.median(times)].mean())


def _alone_s(solo: Sequence[_Run], run: _Run, row: Row, column: str) -> float:
    """Median seconds of a step of the solo runs of a configuration; those that state batch and units first."""
    fitting: dict[tuple[bool, bool], list[float]] = {}
    for other in solo:
        fits = other.batch in (None, run.batch) and other.units in (None, run.units)
        if other.model == run.model and fits:
            open_ended = other.batch is None, other.units is None
            fitting.setdefault(open_ended, []).append(other.step_s)
    if fitting:
        return median(fitting[min(fitting)])
    stated = [f"batch {run.batch:g}"] if run.batch is not None else []
    stated += [f"{run.units:g} units"] if run.units is not None else []
    configuration = " at ".join(
        [run.model, ", ".join(stated)] if stated else [run.model]
    )
    raise row.error(
        column,
        f"no solo run of {configuration}",
        "add a row with this model as model_a, its step_a_s alone, and no model_b",
    )


# --- what is odd in a table, and what to measure again ---

# Ratios above it are named: two jobs that only take turns slow down twofold.
IMPLAUSIBLE = 5.0
# Ratios of one pair that differ by more than this are reported: repetitions of a measurement rarely do.
ALIKE = 0.1
# Columns that identify a pair.
PAIR_COLUMNS = ("model_a", "batch_a", "model_b", "batch_b", "units")


def label_of(model: str, batch: float | None) -> str:
    """Return the label of a configuration, such as bert@32."""
    return model if batch is None or pd.isna(batch) else f"{model}@{batch:g}"


def _sides(table: XiTable) -> pd.DataFrame:
    """Both sides of each row: its number from 1, victim and partner, the victim's ratio, whether it is an estimate."""
    rows = [
        (number, side.model_a, side.batch_a, side.model_b, side.batch_b, side.units, side.xi_a, side.flag != FLAGS[0])
        for number, row in enumerate(table.measurements, start=1)
        for side in (row, row.swapped())
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["row", *PAIR_COLUMNS, "xi", "estimated"])
    return frame.astype(dict.fromkeys(("batch_a", "batch_b", "units"), float))


def check_xi(table: XiTable) -> dict[str, Any]:
    """Findings, ready for JSON.

    Parameters
    ----------
    table
        The table to check.

    Returns
    -------
    dict
        Counts: rows, estimated (by flag), clipped, models, configurations, pairs, possible_pairs; lists: missing_pairs
        of models, of what was measured asymmetric (ratios of the same victim and partner that differ by more than
        ALIKE, from both sides or repeated) and implausible, and retest (each row with one of these or a ratio below 1,
        and the reason).

    Examples
    --------
    >>> from bft.models.sharing.xi_table import Measurement
    >>> table = XiTable([Measurement("a", "b", 0.9, 1.1), Measurement("a", "c", 1.2, 7.0)])
    >>> for suspect in check_xi(table)["retest"]:
    ...     print(suspect["row"], suspect["reason"])
    1 xi of a beside b is 0.9, below 1
    2 xi of c beside a is 7, above 5
    """
    sides = _sides(table)
    measured = sides[~sides["estimated"]]
    pairs = set(map(frozenset, zip(sides["model_a"], sides["model_b"], strict=True)))
    models = sorted(sides["model_a"].unique())
    possible = list(itertools.combinations_with_replacement(models, 2))
    reasons: dict[int, list[str]] = {}
    high = []
    side: Any
    for side in measured.itertuples():
        victim = label_of(side.model_a, side.batch_a)
        partner = label_of(side.model_b, side.batch_b)
        reason = f"xi of {victim} beside {partner} is {side.xi:g}"
        if side.xi < 1:
            reasons.setdefault(side.row, []).append(f"{reason}, below 1")
        elif side.xi > IMPLAUSIBLE:
            reasons.setdefault(side.row, []).append(f"{reason}, above {IMPLAUSIBLE:g}")
            high.append({"victim": victim, "partner": partner, "xi": side.xi})
    asymmetric = []
    key: Any
    for key, group in measured.groupby(list(PAIR_COLUMNS), dropna=False, sort=False):
        model_a, batch_a, model_b, batch_b, units = key
        ratios = group["xi"].clip(lower=1.0)
        low, most = float(ratios.min()), float(ratios.max())
        if most <= (1 + ALIKE) * low:
            continue
        found = {
            "victim": label_of(model_a, batch_a),
            "partner": label_of(model_b, batch_b),
            "units": None if pd.isna(units) else units,
            "least": low,
            "most": most,
        }
        asymmetric.append(found)
        for row in group["row"].unique():
            reason = f"xi of {model_a} beside {model_b} was measured from {low:.3g} to {most:.3g}"
            reasons.setdefault(row, []).append(reason)
    return {
        "rows": len(table.measurements),
        "estimated": table.estimated,
        "clipped": table.clipped,
        "models": len(models),
        "configurations": len(sides[["model_a", "batch_a"]].drop_duplicates()),
        "pairs": len(pairs),
        "possible_pairs": len(possible),
        "missing_pairs": [
            list(each) for each in possible if frozenset(each) not in pairs
        ],
        "asymmetric": asymmetric,
        "implausible": high,
        "retest": [
            {"row": int(row), "reason": "; ".join(reasons[row])}
            for row in sorted(reasons)
        ],
    }


def retest_frame(table: XiTable, found: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """A table of pairs to measure again, for `bft-replay xi measure --pairs`: one row a pair, with row and reason."""
    rows: dict[object, dict[str, Any]] = {}
    for suspect in found:
        pair = table.measurements[suspect["row"] - 1]
        names = {name: getattr(pair, name) for name in PAIR_COLUMNS}
        rows.setdefault(min(pair.place, pair.swapped().place), {**names, **suspect})
    frame = pd.DataFrame(list(rows.values()), columns=[*PAIR_COLUMNS, "row", "reason"])
    return frame.drop(columns=[name for name in OPTIONAL if frame[name].isna().all()])


def grid(table: XiTable) -> pd.DataFrame:
    """The largest ratio of each pair of models as text: victims by partners.

    An estimate has a ~ before it, an unknown ratio is "-".
    """
    sides = _sides(table)
    order = sorted(sides["model_a"].unique())
    worst = (
        sides.sort_values(["xi", "estimated"]).groupby(["model_a", "model_b"]).last()
    )
    marks = worst["estimated"].map({True: "~", False: ""})
    cells: Any = marks + worst["xi"].clip(lower=1.0).map("{:.2f}".format)
    shown: pd.DataFrame = cells.unstack().reindex(index=order, columns=order)
    return shown.fillna("-")
