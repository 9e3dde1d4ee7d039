"""The files of a run, checked before a page uses them: a run may have been copied in part, or edited."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.models.files import read_json
from bft.replay.report.over_time import FloatArray, TimeArray, changes_of, sums
from bft.replay.results.run_directory import (
    ALLOCATIONS,
    HINT,
    JOBS,
    STEPS,
    SUMMARY,
    TIMING,
    UNUSED,
    damage_named,
    job_numbers,
    read_part,
    read_part_in_blocks,
    read_summary,
)

# Limits a page to 5 MB; the longest are drawn.
MAX_SPANS = 300_000


def ns(times: pd.Series) -> TimeArray:
    """Instants as ns since 1970, UTC."""
    return np.asarray(
        times.astype("datetime64[ns, UTC]").astype("int64"), dtype=np.int64
    )


@dataclass(frozen=True, slots=True)
class Spans:
    """Who held which units and when: arrays of shape (spans,).

    Parameters
    ----------
    who, first, last
        Number of the holder, and its first and last unit.
    begin, end
        Instants, UTC ns.
    """

    who: TimeArray
    first: TimeArray
    last: TimeArray
    begin: TimeArray
    end: TimeArray

    @classmethod
    def of(cls, frame: pd.DataFrame, who: TimeArray) -> Spans:
        """Take the rows of a table, of which the holders are given."""
        first, last = (
            frame[name].to_numpy(dtype=np.int64) for name in ("first_unit", "last_unit")
        )
        return cls(who, first, last, ns(frame["start"]), ns(frame["end"]))

    def __len__(self) -> int:
        return len(self.who)

    @property
    def unit_ns(self) -> FloatArray:
        """Length times units of each."""
        lasting = (self.end - self.begin) * (self.last - self.first + 1)
        return lasting.astype(np.float64)

    def with_more(self, others: Spans) -> Spans:
        """Return the longest of both, at most `MAX_SPANS`, in their order; of equal ones the first."""
        full = len(self) >= MAX_SPANS
        shortest = (self.end - self.begin).min() if full else -1
        more = others.end - others.begin > shortest
        columns = [
            np.concatenate([getattr(self, name), getattr(others, name)[more]])
            for name in self.__slots__
        ]
        both = Spans(*columns)
        longest = np.argsort(both.begin - both.end, kind="stable")[:MAX_SPANS]
        longest.sort()
        return Spans(*(column[longest] for column in columns))


@dataclass(frozen=True, slots=True)
class Held:
    """The holders of units in a run: sums over all rows, which may be too many for memory, and the longest.

    Parameters
    ----------
    names
        The jobs that `longest.who` numbers.
    rows, units
        How many rows there are, and the highest number of a unit plus 1.
    unit_ns
        Units times ns held by each job.
    instants, change
        When units were given or released (ns), and how many more were held from then on.
    longest
        The longest rows.
    metadata
        What the file says of itself.
    """

    names: tuple[str, ...]
    rows: int
    units: int
    unit_ns: FloatArray
    instants: TimeArray
    change: FloatArray
    longest: Spans
    metadata: dict[str, str]


def _read_held(folder: Path) -> Held:
    numbers: dict[str, int] = {}
    rows, units, metadata = 0, 0, {}
    unit_ns = np.zeros(0)
    nothing = np.zeros(0, dtype=np.int64)
    longest = Spans(nothing, nothing, nothing, nothing, nothing)
    parts: list[tuple[TimeArray, FloatArray]] = []
    for frame in read_part_in_blocks(folder, ALLOCATIONS):
        who = job_numbers(frame, lambda name: numbers.setdefault(name, len(numbers)))
        spans = Spans.of(frame, who)
        rows += len(spans)
        units = max(units, int(spans.last.max(initial=-1)) + 1)
        weights = sums(who, spans.unit_ns, len(numbers))
        weights[: len(unit_ns)] += unit_ns
        unit_ns = weights
        many = (spans.last - spans.first + 1).astype(np.float64)
        parts.append(changes_of(spans.begin, spans.end, many))
        longest = longest.with_more(spans)
        metadata = frame.attrs["metadata"]
    instants, index = np.unique(
        np.concatenate([part[0] for part in parts]), return_inverse=True
    )
    change = np.concatenate([part[1] for part in parts])
    change = sums(index, change, len(instants))
    return Held(
        tuple(numbers), rows, units, unit_ns, instants, change, longest, metadata
    )


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The part of a run directory that a page needs."""

    folder: Path
    summary: dict[str, Any]
    steps: pd.DataFrame
    jobs: pd.DataFrame
    held: Held
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
    steps, jobs = read_part(folder, STEPS), read_part(folder, JOBS)
    held = _read_held(folder)
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


def _nodes(held: Held, path: Path) -> tuple[tuple[str, ...], int]:
    """Node names and units of a node; names of single units if the file does not cover all units."""
    try:
        nodes, units_per_node = (
            json.loads(held.metadata["nodes"]),
            int(held.metadata["units_per_node"]),
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
    if (
        held.units > len(nodes) * units_per_node
    ):  # virtual clusters whose nodes have other sizes
        return tuple(f"unit {number}" for number in range(held.units)), 1
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
