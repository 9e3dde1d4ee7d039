"""The files of a run, checked before a page uses them: a run may have been copied in part, or edited."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models import InputError, read_table
from bft.models.limited_reading import read_json
from bft.replay.engine.ledger import BOOKS
from bft.replay.results.run_directory import (
    ALLOCATIONS,
    FORMAT,
    JOBS,
    STEPS,
    SUMMARY,
    TIMING,
)

if TYPE_CHECKING:
    import pandas as pd

HINT = "copy the run again, or replay it again"
# Columns that the page reads: instants, numbers that are always there, and numbers that may be missing.
_STEPS = {
    "time": "instant",
    "idle": "number",
    "used": "number",
    "progress": "number",
    **{f"{book}_cost": "number" for book in BOOKS},
}
_ALLOCATIONS = {
    "job": "any",
    "first_unit": "number",
    "last_unit": "number",
    "start": "instant",
    "end": "instant",
}
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
    """The part of a run directory that a page needs."""

    folder: Path
    summary: dict[str, Any]
    steps: pd.DataFrame
    jobs: pd.DataFrame
    allocations: pd.DataFrame
    nodes: tuple[str, ...]
    units_per_node: int
    decision_s: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the run: its folder."""
        return self.folder.resolve().name.removesuffix("-itrOut")

    @property
    def begin_ns(self) -> int:
        """The first instant of the steps, UTC ns."""
        return int(self.steps["time"].min().value)

    @property
    def end_ns(self) -> int:
        """End of the run, UTC ns; for a run of a single instant one second later, so that there is time to show."""
        return max(int(self.steps["time"].max().value), self.begin_ns + 1_000_000_000)

    def pools(self) -> list[pd.DataFrame]:
        """The steps of each pool: a row only describes its own pool."""
        return (
            [pool for _, pool in self.steps.groupby("vc", sort=True)]
            if "vc" in self.steps
            else [self.steps]
        )

    @contextmanager
    def summary_used(self) -> Iterator[None]:
        """Guard a block that uses the summary: a missing or invalid value is reported as damage to its file.

        Tables are checked when they are read, the summary (some hundred values) when its values are used.
        """
        try:
            yield
        except InputError:
            raise
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
        ) as error:
            what = (
                f"lacks {error}"
                if isinstance(error, KeyError)
                else f"holds another kind of value: {error}"
            )
            raise InputError(
                f"damaged: it {what}", file=self.folder / SUMMARY, hint=HINT
            ) from error


def read_run(folder: Path) -> RunFiles:
    """Read the files of a run.

    Raises
    ------
    InputError
        When `folder` is not a run directory, has no steps, or when one of its files is missing or damaged.
    """
    if not (folder / SUMMARY).exists():
        raise InputError("is not a run directory", file=folder)
    summary = read_json(folder / SUMMARY)
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        raise InputError("is not a run directory", file=folder)
    options = summary.get("options")
    reference = isinstance(options, dict) and options.get("compat") == "reference"
    if reference:
        raise InputError(
            "was replayed with --compat reference, whose results no page can show",
            file=folder,
        )
    if not (folder / STEPS).exists():
        hint = (
            "a sweep keeps summaries alone; with --whole it keeps whole run directories"
        )
        raise InputError(
            f"has no {STEPS}, so that there is nothing to show over time",
            file=folder,
            hint=hint,
        )
    tables = ((STEPS, _STEPS), (JOBS, _JOBS), (ALLOCATIONS, _ALLOCATIONS))
    steps, jobs, held = (_checked(folder / name, columns) for name, columns in tables)
    if not len(steps):
        raise InputError("damaged: it has no rows", file=folder / STEPS, hint=HINT)
    for _, pool in steps.groupby("vc") if "vc" in steps else ((None, steps),):
        if not pool["time"].is_monotonic_increasing:
            raise InputError(
                "damaged: its rows are not in order of time",
                file=folder / STEPS,
                column="time",
                hint=HINT,
            )
    nodes, units_per_node = _nodes(held, folder / ALLOCATIONS)
    return RunFiles(
        folder,
        summary,
        steps,
        jobs,
        held,
        nodes,
        units_per_node,
        _decision_times(folder / TIMING),
    )


def _nodes(held: pd.DataFrame, path: Path) -> tuple[tuple[str, ...], int]:
    """Node names and units of a node; names of single units if the file does not cover all units."""
    try:
        metadata = held.attrs["metadata"]
        nodes, units_per_node = (
            json.loads(metadata["nodes"]),
            int(metadata["units_per_node"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(
            "damaged: it lacks the names of the nodes", file=path, hint=HINT
        ) from error
    if (
        not isinstance(nodes, list)
        or units_per_node < 1
        or not all(isinstance(node, str) for node in nodes)
    ):
        raise InputError(
            "damaged: it lacks the names of the nodes", file=path, hint=HINT
        )
    units = int(np.max(held["last_unit"].to_numpy(), initial=-1)) + 1
    if (
        units > len(nodes) * units_per_node
    ):  # virtual clusters whose nodes have other sizes
        return tuple(f"unit {number}" for number in range(units)), 1
    return tuple(nodes), units_per_node


def _decision_times(path: Path) -> dict[str, Any]:
    """Seconds per decision, where known: wall-clock facts may not have been copied."""
    if not path.exists():
        return {}
    content = read_json(path)
    times = content.get("decision_s") if isinstance(content, dict) else None
    if not isinstance(times, dict):
        raise InputError("damaged: it lacks decision_s", file=path, hint=HINT)
    return times


def _checked(path: Path, columns: dict[str, str]) -> pd.DataFrame:
    import pandas as pd

    frame = read_table(path)
    for column, kind in columns.items():
        if column not in frame.columns:
            raise InputError(
                f"damaged: it has no column {column}", file=path, hint=HINT
            )
        if kind == "any":
            continue
        values = frame[column]
        if kind == "instant":
            right = isinstance(values.dtype, pd.DatetimeTZDtype)
        else:
            right = pd.api.types.is_numeric_dtype(
                values.dtype
            ) and not pd.api.types.is_bool_dtype(values.dtype)
        if not right:
            what = "instants" if kind == "instant" else "numbers"
            raise InputError(
                f"expected {what}, not {values.dtype}",
                file=path,
                column=column,
                hint=HINT,
            )
        if kind == "missing":
            continue
        if kind == "instant":
            try:
                values.astype("datetime64[ns, UTC]")
            except (ValueError, OverflowError) as error:
                what = f"expected instants from 1678 to 2261: {error}"
                raise InputError(what, file=path, column=column, hint=HINT) from error
        bad = (
            values.isna().to_numpy()
            if kind == "instant"
            else ~values.map(math.isfinite, na_action="ignore").eq(True)
        )
        if bad.any():
            row = int(bad.argmax()) + 1
            raise InputError(f"a value is missing or not finite, expected {kind}s", file=path, row=row, column=column,
                             hint=HINT)  # fmt: skip
    return frame
