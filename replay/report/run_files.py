"""The files of a run, checked before a page is made of them: a run may have been copied in part, or edited."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bft.models import InputError, read_table
from bft.models.bounded import read_json
from bft.replay.engine.ledger import BOOKS
from bft.replay.results.run_directory import FORMAT, JOBS, STEPS, SUMMARY

if TYPE_CHECKING:
    import pandas as pd

HINT = "copy the run again, or replay it again"
# Columns that the page reads: instants, numbers that are always there, and numbers that may be missing.
_STEPS = {"time": "instant", "idle": "number", "used": "number"}
_JOBS = {
    "name": "any",
    "submit": "instant",
    "queueing_s": "missing",
    "jct_s": "missing",
    "preemptions": "number",
    "rescales": "number",
    "mean_units": "number",
    "work": "number",
    "total_work": "number",
    **{f"lost_to_{book}": "number" for book in BOOKS},
}


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What a run left behind, as far as a page needs it."""

    folder: Path
    summary: dict[str, Any]
    steps: pd.DataFrame
    jobs: pd.DataFrame

    @contextmanager
    def summary_used(self) -> Iterator[None]:
        """While only the summary is used: what lacks in it or is of another kind is reported as damage to its file.

        The tables are checked when they are read, the summary (some hundred values) when they are used.
        """
        try:
            yield
        except InputError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            what = f"lacks {error}" if isinstance(error, KeyError) else f"holds another kind of value: {error}"
            raise InputError(f"damaged: it {what}", file=self.folder / SUMMARY, hint=HINT) from error


def read_run(folder: Path) -> RunFiles:
    """Read the files of a run.

    Raises
    ------
    InputError
        When `folder` is no run of ours, one without steps, or when one of its files is missing or damaged.
    """
    if not (folder / SUMMARY).exists():
        raise InputError("is no run directory of ours", file=folder)
    summary = read_json(folder / SUMMARY)
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        raise InputError("is no run directory of ours", file=folder)
    options = summary.get("options")
    reference = isinstance(options, dict) and options.get("compat") == "reference"
    if reference or not (folder / STEPS).exists():
        raise InputError(f"the run has no {STEPS}: a replay with --compat reference cannot be reported", file=folder)
    steps, jobs = (_checked(folder / name, columns) for name, columns in ((STEPS, _STEPS), (JOBS, _JOBS)))
    if not len(steps):
        raise InputError("damaged: it has no rows", file=folder / STEPS, hint=HINT)
    for _, pool in steps.groupby("vc") if "vc" in steps else ((None, steps),):
        if not pool["time"].is_monotonic_increasing:
            raise InputError(
                "damaged: its rows are not in order of time", file=folder / STEPS, column="time", hint=HINT
            )
    return RunFiles(folder, summary, steps, jobs)


def _checked(path: Path, columns: dict[str, str]) -> pd.DataFrame:
    import pandas as pd

    frame = read_table(path)
    for column, kind in columns.items():
        if column not in frame.columns:
            raise InputError(f"damaged: it has no column {column}", file=path, hint=HINT)
        if kind == "any":
            continue
        values = frame[column]
        if kind == "instant":
            right = isinstance(values.dtype, pd.DatetimeTZDtype)
        else:
            right = pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype)
        if not right:
            what = "instants" if kind == "instant" else "numbers"
            raise InputError(f"expected {what}, not {values.dtype}", file=path, column=column, hint=HINT)
        if kind == "missing":
            continue
        if kind == "instant":
            try:
                values.astype("datetime64[ns, UTC]")
            except (ValueError, OverflowError) as error:
                what = f"expected instants from 1678 to 2261: {error}"
                raise InputError(what, file=path, column=column, hint=HINT) from error
        bad = values.isna().to_numpy() if kind == "instant" else ~values.map(math.isfinite, na_action="ignore").eq(True)
        if bad.any():
            row = int(bad.argmax()) + 1
            raise InputError(f"a value is missing or not finite, expected {kind}s", file=path, row=row, column=column,
                             hint=HINT)  # fmt: skip
    return frame
