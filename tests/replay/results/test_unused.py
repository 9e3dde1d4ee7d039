"""Idle units that no job held: with those that jobs held they are the idle units, at every instant."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bft.models import Curve, Job, JobTable
from bft.replay import EqualShare, Replay, Rules
from bft.replay.cli.main import run
from bft.replay.results.outcome_tables import unused_intervals
from bft.replay.trace.node_trace import SECOND_NS, from_fragments
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


def test_idle_time_before_the_end_counts_where_a_node_comes_back_after_it() -> None:
    node, begin, end = np.array(
        [[0, 0, 3000], [1, 0, 1000], [1, 2000, 3000], [2, 0, 50]]
    ).T
    trace = from_fragments(
        ["a", "b", "c"], node, begin * SECOND_NS, end * SECOND_NS, 0, 3000 * SECOND_NS
    )
    curve = Curve([0, 2], [0, 20])
    job = Job(
        "a",
        0,
        1,
        1,
        pmax=4000.0,
        tcup_s=5.0,
        tcdw_s=5.0,
        scalability=curve,
        objective=curve,
    )
    outcome = Replay(
        trace, JobTable((job,)), EqualShare(), Rules(return_time_s=30.0)
    ).run()
    assert outcome.end_ns == 400 * SECOND_NS
    intervals = unused_intervals(outcome)
    assert intervals is not None
    assert [column.tolist() for column in intervals] == [
        [1, 2], [0, 0], [400 * SECOND_NS, 50 * SECOND_NS]
    ]  # fmt: skip
