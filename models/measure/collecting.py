"""A whole table of ξ, measured pair by pair, and kept after each: what was measured is not measured again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models.cells import Rows
from bft.models.errors import InputError
from bft.models.learned.packing import sharing_scores
from bft.models.measure.co_runs import Plan, Slowdown, measure
from bft.models.measure.gpu_usage import Gauge
from bft.models.sharing.xi_repairs import PAIR_COLUMNS, label_of, pair_key
from bft.models.sharing.xi_table import Measurement, xi_from_frame
from bft.models.tables import read_table

XI, PROFILES, FAILED = "xi.csv", "profiles.csv", "failed.csv"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Configuration of a training: its model, batch size (None: not stated) and command."""

    model: str
    batch: float | None
    command: tuple[str, ...]

    def __str__(self) -> str:
        return label_of(self.model, self.batch)


Pair = tuple[Configuration, Configuration]


def read_configurations(path: str | Path) -> list[Configuration]:
    r"""Read trainings: columns model, command and, optionally, batch. `{batch}` in a command is replaced by the batch.

    Raises
    ------
    InputError
        Naming file, row and column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "trainings.csv")
    ...     _ = file.write_text("model,command,batch\nbert,python bert.py --batch {batch},32\n")
    ...     read_configurations(file)[0].command
    ('python', 'bert.py', '--batch', '32')
    """
    configurations: dict[tuple[str, float | None], Configuration] = {}
    for row in Rows(read_table(path), path).require(("model", "command"), ("batch",)):
        model, batch = row.name("model"), row.number("batch", None, above=0)
        text = row.name("command")
        if "{batch}" in text and batch is None:
            raise row.error(
                "batch", "expected a number > 0, to replace {batch} in the command"
            )
        try:
            command = shlex.split(
                text.replace("{batch}", "" if batch is None else f"{batch:g}")
            )
        except ValueError as error:
            raise row.error("command", f"not a command: {error}") from None
        if (model, batch) in configurations:
            raise row.error("model", f"{label_of(model, batch)} appears twice")
        configurations[model, batch] = Configuration(model, batch, tuple(command))
    if not configurations:
        raise InputError(
            "the table is empty; expected rows with model and command", file=path
        )
    return list(configurations.values())


def all_pairs(configurations: Sequence[Configuration]) -> list[Pair]:
    """Every pair of configurations, including pairs with itself."""
    return list(combinations_with_replacement(configurations, 2))


def read_pairs(path: str | Path, configurations: Sequence[Configuration]) -> list[Pair]:
    """Read which pairs to measure: columns model_a, model_b and, optionally, batch_a, batch_b, as `xi check` writes.

    A row without batch size means all of its model's.

    Raises
    ------
    InputError
        When a row names what the configurations do not have.
    """
    pairs: dict[frozenset[Configuration], Pair] = {}
    for row in Rows(read_table(path), path).require(
        ("model_a", "model_b"), ("batch_a", "batch_b")
    ):
        sides = []
        for side in "ab":
            model, batch = (
                row.name(f"model_{side}"),
                row.number(f"batch_{side}", None, above=0),
            )
            fitting = [
                each
                for each in configurations
                if each.model == model and batch in (None, each.batch)
            ]
            if not fitting:
                raise row.error(
                    f"model_{side}",
                    f"no command for {label_of(model, batch)} in the table of trainings",
                )
            sides.append(fitting)
        for a in sides[0]:
            for b in sides[1]:
                pairs.setdefault(frozenset((a, b)), (a, b))
    return list(pairs.values())


class Collection:
    """The measurements in a folder: ξ, profiles of trainings alone, and failures.

    Parameters
    ----------
    folder
        Made if it is not there.
    units
        Recorded with each pair: the number of units that the two share; None: not stated.
    replace
        Writes a table in the place of a file: called with the frame and the path.
    """

    def __init__(
        self,
        folder: str | Path,
        units: float | None,
        replace: Callable[[pd.DataFrame, Path], None],
    ) -> None:
        self._folder, self._units, self._replace = Path(folder), units, replace
        self._xi, self._profiles, self._failed = (
            self._read(name) for name in (XI, PROFILES, FAILED)
        )
        if self._xi:
            xi_from_frame(_frame(self._xi), source=str(self._folder / XI))

    def done(self, pair: Pair) -> bool:
        """Whether the pair has been measured."""
        key = pair_key(self._unmeasured(pair))
        return any(key == pair_key(row) for row in self._measurements())

    def failed(self, pair: Pair) -> bool:
        """Whether the pair could not be measured before."""
        return any(
            (row["a"], row["b"]) == (str(pair[0]), str(pair[1])) for row in self._failed
        )

    def measure(
        self, pair: Pair, plan: Plan, note: Callable[[str], None], gauge: Gauge | None
    ) -> str | None:
        """Measure a pair and keep the result; return the reason where it could not be measured."""
        self._failed = [
            row
            for row in self._failed
            if (row["a"], row["b"]) != (str(pair[0]), str(pair[1]))
        ]
        try:
            sides = measure((pair[0].command, pair[1].command), plan, note, gauge)
        except InputError as error:
            self._failed.append(
                {"a": str(pair[0]), "b": str(pair[1]), "reason": error.what}
            )
            self._keep(FAILED, self._failed)
            return error.what
        row: dict[str, Any] = {
            name: getattr(self._unmeasured(pair), name) for name in PAIR_COLUMNS
        }
        for name, side in zip(("xi_a", "xi_b"), sides, strict=True):
            row |= {name: side.xi, f"{name}_low": side.low, f"{name}_high": side.high}
        self._xi.append({**row, "repeats": plan.repeats})
        for each, side in zip(pair, sides, strict=True):
            self._profiles = [
                old
                for old in self._profiles
                if (old["model"], old["batch"]) != (each.model, each.batch)
            ]
            self._profiles.append(profile_of(each.model, each.batch, side))
        self._keep(XI, self._xi)
        self._keep(PROFILES, labelled(self._profiles, self._measurements()))
        if (self._folder / FAILED).exists():
            self._keep(FAILED, self._failed)
        return None

    def _unmeasured(self, pair: Pair) -> Measurement:
        """Return the row of a pair before its ξ is known."""
        a, b = pair
        return Measurement(a.model, b.model, 1.0, 1.0, a.batch, b.batch, self._units)

    def _measurements(self) -> list[Measurement]:
        names = (*PAIR_COLUMNS, "xi_a", "xi_b")
        return [Measurement(**{name: row[name] for name in names}) for row in self._xi]

    def _keep(self, name: str, rows: list[dict[str, Any]]) -> None:
        self._replace(_frame(rows), self._folder / name)

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self._folder / name
        if not path.exists() or not path.read_text("utf-8").strip():
            return []
        frame = read_table(path)
        frame = frame.astype(object).where(frame.notna(), None)
        rows = [
            {str(key): value for key, value in row.items()}
            for row in frame.to_dict(orient="records")
        ]
        # Columns without any value were not written.
        first = {XI: PAIR_COLUMNS, PROFILES: ("model", "batch")}.get(name, ())
        return [
            {**{column: row.get(column) for column in first}, **row} for row in rows
        ]


def profile_of(model: str, batch: float | None, side: Slowdown) -> dict[str, Any]:
    """A row of a table of profiles: the training alone, its step time and what it did to the GPUs that were read."""
    row: dict[str, Any] = {
        "model": model,
        "batch": batch,
        "step_s": float(np.mean(side.alone_s)),
    }
    if side.usage is not None:
        used = side.usage
        row |= {
            name: getattr(used, name)
            for name in ("gpu_util", "gmem_util", "gmem", "memory_gib", "samples")
        }
        row["amp"] = int(model.endswith("+amp"))
    return row


def labelled(
    profiles: Sequence[dict[str, Any]], measured: Sequence[Measurement]
) -> list[dict[str, Any]]:
    """The profiles with the column `label`, the sharing score by all pairs measured of each; sorted."""
    rows = [
        {
            f"{name}{end}": value
            for end, side in (("1", row), ("2", row.swapped()))
            for name, value in (
                ("model", side.model_a),
                ("batchsize", side.batch_a or 0.0),
                ("amp", 0),
                ("speed", 1 / max(side.xi_a, 1.0)),
            )
        }
        for row in measured
    ]
    scores = sharing_scores(pd.DataFrame(rows))
    label = dict(
        zip(
            zip(scores["model"], scores["batchsize"], strict=True),
            scores["label"],
            strict=True,
        )
    )
    named = [
        {**row, "label": label.get((row["model"], row["batch"] or 0.0))}
        for row in profiles
    ]
    return sorted(named, key=lambda row: (row["model"], row["batch"] or 0.0))


def _frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=["a", "b", "reason"])
    return frame.dropna(axis="columns", how="all") if rows else frame
