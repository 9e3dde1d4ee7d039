"""Perturbed traces: never idle where the original is not, reduced as requested, and reported wherever used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.replay import always_idle, read_trace, write_trace
from bft.replay.cli.main import run
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, from_changes
from bft.replay.trace.perturbing import Perturbation, perturbed
from bft.replay.trace.trace_statistics import fragments

END_S = 1000


@st.composite
def traces(draw: st.DrawFn) -> NodeTrace:
    """Nodes that turn idle and busy at whole seconds."""
    count = draw(st.integers(1, 5))
    changes = []
    for node in range(count):
        instants = sorted(draw(st.sets(st.integers(0, END_S), max_size=8)))
        changes += [(at, node, k % 2 == 0) for k, at in enumerate(instants)]
    changes.sort()
    return from_changes(
        [f"n{k}" for k in range(count)],
        np.array([at for at, _, _ in changes], dtype=np.int64) * SECOND_NS,
        np.array([node for _, node, _ in changes], dtype=np.int32),
        np.array([idle for *_, idle in changes], dtype=bool),
        start=0,
        end=END_S * SECOND_NS,
        units_per_node=draw(st.integers(1, 3)),
    )


def idle_at(trace: NodeTrace, instants: np.ndarray) -> np.ndarray:
    """Whether each node is idle at each instant: bool of shape (nodes, instants)."""
    pieces = fragments(trace)
    found = np.zeros((len(trace.nodes), len(instants)), dtype=bool)
    for node, start, end in zip(
        pieces.node, pieces.start_ns, pieces.end_ns, strict=True
    ):
        found[node] |= (instants >= start) & (instants < end)
    return found


changes = st.builds(
    Perturbation,
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 5.0, 1e6]),
    st.sampled_from([0.0, 0.4, 1.0]),
    st.integers(0, 2**32),
)


@examples(60)
@given(traces(), changes)
def test_nodes_are_never_idle_where_they_were_not(
    trace: NodeTrace, how: Perturbation
) -> None:
    changed = perturbed(trace, how)
    assert (changed.nodes, changed.start, changed.end) == (
        trace.nodes,
        trace.start,
        trace.end,
    )
    assert changed.units_per_node == trace.units_per_node
    instants = np.unique(
        np.concatenate([changed.times, trace.times, np.arange(0, END_S, 7) * SECOND_NS])
    )
    assert not (idle_at(changed, instants) & ~idle_at(trace, instants)).any()
    if how == Perturbation(seed=how.seed):
        assert (idle_at(changed, instants) == idle_at(trace, instants)).all()
    if how.drop == 1 or how.thin == 1:
        assert not len(changed)


@examples(30)
@given(traces(), st.integers(0, 2**32), st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_what_a_smaller_share_drops_a_larger_one_drops_too(
    trace: NodeTrace, seed: int, shares: tuple[float, float]
) -> None:
    less, more = (
        perturbed(trace, Perturbation(drop=share, seed=seed))
        for share in sorted(shares)
    )
    instants = np.arange(0, END_S, 7) * SECOND_NS
    assert not (idle_at(more, instants) & ~idle_at(less, instants)).any()


def test_shares_dropped_and_mean_delays_are_those_asked_for() -> None:
    count = 4000
    day = always_idle(count, 0, 86_400 * SECOND_NS)
    kept = perturbed(day, Perturbation(drop=0.25, seed=1))
    # The standard deviation of the share is 0.7 %; the seed is fixed.
    assert len(kept.joined) / count == pytest.approx(0.75, abs=0.03)
    late = perturbed(day, Perturbation(delay_s=60, seed=1))
    starts = fragments(late).start_ns / SECOND_NS
    assert len(starts) == count
    assert starts.mean() == pytest.approx(60, abs=4)
    assert starts.std() == pytest.approx(60, abs=6)


def test_a_perturbed_trace_says_so_wherever_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    start = 1_612_915_200 * SECOND_NS  # 10 February 2021
    write_trace(
        always_idle(40, start, start + 3600 * SECOND_NS, units_per_node=2),
        "trace.parquet",
    )
    how = ["--drop", "0.5", "--delay", "60", "--seed", "3"]
    assert run(["trace", "perturb", "trace.parquet", *how, "-o", "one.parquet"]) == 0
    out = capsys.readouterr().out
    assert "of 40 fragments, " in out
    assert out.endswith(
        "% of the idle node-hours are left; drop 0.5, delay 60 s, seed 3\n"
    )
    assert run(["trace", "perturb", "trace.parquet", *how, "-o", "two.parquet"]) == 0
    assert Path("one.parquet").read_bytes() == Path("two.parquet").read_bytes()
    assert (
        run(["trace", "perturb", "one.parquet", "--thin", "0.1", "-o", "three.parquet"])
        == 0
    )
    assert (
        read_trace("three.parquet").altered
        == "drop 0.5, delay 60 s, seed 3; thin 0.1, seed 0"
    )
    assert (
        run(
            [
                "trace",
                "cut",
                "three.parquet",
                "--to",
                "2021-02-10T00:50:00",
                "-o",
                "four.parquet",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert (
        run(
            [
                "-ndmap",
                "four.parquet",
                "--no-u",
                "--policy",
                "equal-share",
                "--out",
                "run",
            ]
        )
        == 0
    )
    said = "the trace is not as observed, but perturbed: drop 0.5, delay 60 s, seed 3; thin 0.1, seed 0"
    assert said in capsys.readouterr().err
    assert said in json.loads(Path("run/summary.json").read_text("utf-8"))["notes"]


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["-o", "new.parquet"], "nothing to change; give --drop, --delay or --thin"),
        (["--drop", "0.1", "-o", "new.csv"], "expected a .parquet file"),
        (
            ["--drop", "2", "-o", "new.parquet"],
            "expected a finite number >= 0 and at most 1",
        ),
        (["--drop", "0.1", "-o", "trace.parquet"], "exists; --force replaces it"),
    ],
)
def test_what_cannot_be_perturbed_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(always_idle(2, 0, 3600 * SECOND_NS), "trace.parquet")
    assert run(["trace", "perturb", "trace.parquet", *args]) == 2
    assert what in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.parquet"]
