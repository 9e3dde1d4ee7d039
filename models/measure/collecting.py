"""A whole table of ξ, measured pair by pair, and kept after each: what was measured is not measured again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models.cells import Rows
from bft.models.errors import InputError
from bft.models.learned.packing import sharing_scores
from bft.models.measure.co_runs import Plan, Slowdown, measure
from bft.models.measure.gpu_usage import Gauge
from bft.models.measure.xi_measurements import PAIR_COLUMNS, label_of
from bft.models.sharing.xi_table import xi_from_frame
from bft.models.tables import read_table

XI, PROFILES = "xi.csv", "profiles.csv"


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
            model = row.name(f"model_{side}")
            batch = row.number(f"batch_{side}", None, above=0)
            named = [each for each in configurations if each.model == model]
            sides.append([each for each in named if batch in (None, each.batch)])
            if not sides[-1]:
                what = (
                    f"no command for {label_of(model, batch)} in the table of trainings"
                )
                raise row.error(f"model_{side}", what)
        for a, b in product(*sides):
            pairs.setdefault(frozenset((a, b)), (a, b))
    return list(pairs.values())


def xi_row(
    pair: Mapping[str, Any], sides: tuple[Slowdown, Slowdown], repeats: int
) -> dict[str, Any]:
    """A row of a ξ table: what was measured together, the ratios with their intervals, and how often."""
    row = {name: pair[name] for name in PAIR_COLUMNS}
    for name, side in zip(("xi_a", "xi_b"), sides, strict=True):
        row |= {name: side.xi, f"{name}_low": side.low, f"{name}_high": side.high}
    return row | {"repeats": repeats}


class Collection:
    """The measurements in a folder: ξ, and profiles of trainings alone.

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
        self._xi, self._profiles = self._read(XI), self._read(PROFILES)
        if self._xi:
            xi_from_frame(pd.DataFrame(self._xi), source=str(self._folder / XI))

    def done(self, pair: Pair) -> bool:
        """Whether the pair has been measured."""
        return _key(self._columns(pair)) in map(_key, self._xi)

    def measure(
        self, pair: Pair, plan: Plan, note: Callable[[str], None], gauge: Gauge | None
    ) -> None:
        """Measure a pair and keep the result, in the place of an earlier one.

        Raises
        ------
        InputError
            See `bft.models.measure.co_runs.measure`.
        """
        sides = measure((pair[0].command, pair[1].command), plan, note, gauge)
        row = xi_row(self._columns(pair), sides, plan.repeats)
        self._xi = [each for each in self._xi if _key(each) != _key(row)] + [row]
        known = {(each["model"], each.get("batch")): each for each in self._profiles}
        for each, side in zip(pair, sides, strict=True):
            alone = {"model": each.model, "batch": each.batch}
            alone["step_s"] = float(np.mean(side.alone_s))
            if side.usage is not None:
                alone |= {**asdict(side.usage), "amp": int(each.model.endswith("+amp"))}
            known[each.model, each.batch] = alone
        self._profiles = list(known.values())
        self._keep(XI, self._xi)
        self._keep(PROFILES, labelled(self._profiles, self._xi))

    def _columns(self, pair: Pair) -> dict[str, Any]:
        """What a row of the ξ table names of a pair."""
        a, b = pair
        names = (a.model, a.batch, b.model, b.batch, self._units)
        return dict(zip(PAIR_COLUMNS, names, strict=True))

    def _keep(self, name: str, rows: list[dict[str, Any]]) -> None:
        frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
        self._replace(frame, self._folder / name)

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self._folder / name
        if not path.exists():
            return []
        frame = read_table(path)
        rows = frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
        return [{str(key): value for key, value in row.items()} for row in rows]


def _key(row: Mapping[str, Any]) -> tuple[object, ...]:
    """What was measured together, in either order; columns without any value were not written."""
    sides = sorted(
        (row[f"model_{end}"], row.get(f"batch_{end}") or 0.0) for end in "ab"
    )
    return (*sides, row.get("units") or 0.0)


def labelled(
    profiles: Sequence[dict[str, Any]], measured: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The profiles with the column `label`, the sharing score by all pairs measured of each; sorted."""
    pairs = [
        {
            f"{name}{number}": value
            for number, end in (("1", "a"), ("2", "b"))
            for name, value in (
                ("model", row[f"model_{end}"]),
                ("batchsize", row.get(f"batch_{end}") or 0.0),
                ("amp", 0),
                ("speed", 1 / max(row[f"xi_{end}"], 1.0)),
            )
        }
        for row in measured
    ]
    scores = sharing_scores(pd.DataFrame(pairs)).set_index(["model", "batchsize"])
    keyed = {(row["model"], row.get("batch") or 0.0): row for row in profiles}
    return [{**keyed[key], "label": int(scores["label"][key])} for key in sorted(keyed)]
