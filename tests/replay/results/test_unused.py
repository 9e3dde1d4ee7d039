"""Idle units that no job held: with those that jobs held they are the idle units, at every instant."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bft.replay.cli.main import run
from bft.replay.trace.trace_files import read_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("unused") / "trace.parquet")
    argv = ["generate", "trace", "-o", path, "--nodes", "12", "--days", "1"]
    assert run([*argv, "--seed", "3"]) == 0
    return path


def covering(rows: pd.DataFrame, units: np.ndarray, when: pd.Timestamp) -> np.ndarray:
    """How many of the rows cover each unit at an instant."""
    now = rows[(rows["start"] <= when) & (rows["end"] > when)]
    return np.array(
        [((now["first_unit"] <= u) & (now["last_unit"] >= u)).sum() for u in units]
    )


@pytest.mark.parametrize(
    ("options", "places_stay"),
    [
        ([], True),
        (["--return-time", "300", "--reserve", "2"], False),
        (["--return-time", "300", "--no-free-first"], True),
    ],
    ids=["plain", "nodes exchange places", "nodes stay"],
)
def test_held_and_unused_units_are_the_idle_ones(
    trace: str, tmp_path: Path, options: list[str], places_stay: bool
) -> None:
    folder = tmp_path / "run"
    argv = ["-ndmap", trace, "--backend", "exact", "--no-u", "--out", str(folder)]
    assert run([*argv, *options, "-maxJ", "2", "--oversized", "cap"]) == 0
    held, unused = (
        pd.read_parquet(folder / f"{name}.parquet")
        for name in ("allocations", "unused")
    )
    assert len(unused)
    replayed = read_trace(trace)
    bounds = np.append(replayed.times, replayed.end)
    idle = np.zeros(12, dtype=int)
    for event, (begin, end) in enumerate(pairwise(bounds.tolist())):
        idle[replayed.leaves(event)] = 0
        idle[replayed.joins(event)] = 1
        when = pd.Timestamp((begin + end) // 2, tz="UTC")
        in_use, left = (covering(rows, np.arange(12), when) for rows in (held, unused))
        if places_stay:
            assert (in_use + left).tolist() == idle.tolist()
        else:
            assert (in_use + left <= 1).all()
            assert (in_use + left).sum() == idle.sum()
