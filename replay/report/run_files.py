"""The files of a run, checked before a page uses them: a run may have been copied in part, or edited."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models import InputError
from bft.models.limited_reading import read_json
from bft.replay.results.run_directory import (
    ALLOCATIONS,
    JOBS,
    STEPS,
    SUMMARY,
    TIMING,
    UNUSED,
)
from bft.replay.results.run_reading import (
    HINT,
    damage_named,
    read_part,
    read_summary,
)

if TYPE_CHECKING:
    import pandas as pd


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
    unused: pd.DataFrame | None

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

    def summary_used(self) -> AbstractContextManager[None]:
        """Guard a block that uses the summary: a missing or invalid value is reported as damage to its file."""
        return damage_named(self.folder / SUMMARY)


def read_run(folder: Path) -> RunFiles:
    """Read the files of a run.

    Raises
    ------
    InputError
        When `folder` is not a run directory, has no steps, or when one of its files is missing or damaged.
    """
    summary = read_summary(folder)
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
    steps, jobs, held = (read_part(folder, name) for name in (STEPS, JOBS, ALLOCATIONS))
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
    unused = None
    if (folder / UNUSED).exists():
        unused = read_part(folder, UNUSED)
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
        unused,
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
