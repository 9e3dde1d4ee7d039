"""Parts of traces, and traces put together: idle seconds are those of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, from_fragments
from bft.replay.trace.parts import anonymised, cut, keyed_names, merged, with_nodes
from bft.replay.trace.trace_files import read_trace, write_trace
from bft.replay.trace.trace_statistics import fragments

KEY = b"a key of more than sixteen bytes"
LENGTH_S = 20


def of_seconds(
    idle: NDArray[np.bool_], begin_s: int = 0, names: tuple[str, ...] | None = None
) -> NodeTrace:
    """The trace of which node is idle during which second, bool of shape (nodes, seconds)."""
    nodes, seconds = idle.shape
    edges = np.diff(np.pad(idle, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    node, begins = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    span = (begin_s * SECOND_NS, (begin_s + seconds) * SECOND_NS)
    names = names or tuple(f"n{k}" for k in range(nodes))
    return from_fragments(
        names, node, (begins + begin_s) * SECOND_NS, (ends + begin_s) * SECOND_NS, *span
    )


def seconds_of(trace: NodeTrace) -> NDArray[np.bool_]:
    """The inverse of `of_seconds`."""
    idle = np.zeros(
        (len(trace.nodes), (trace.end - trace.start) // SECOND_NS), dtype=bool
    )
    for event, time in enumerate(trace.times.tolist()):
        second = (time - trace.start) // SECOND_NS
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    return idle


@st.composite
def idle_seconds(draw: st.DrawFn, nodes: int = 3) -> NDArray[np.bool_]:
    bits = draw(
        st.lists(st.booleans(), min_size=nodes * LENGTH_S, max_size=nodes * LENGTH_S)
    )
    return np.array(bits).reshape(nodes, LENGTH_S)


@given(
    idle=idle_seconds(),
    bounds=st.sets(st.integers(0, LENGTH_S), min_size=2, max_size=2),
)
def test_a_window_has_the_content_of_the_trace(
    idle: NDArray[np.bool_], bounds: set[int]
) -> None:
    first, last = sorted(bounds)
    part = cut(of_seconds(idle), first * SECOND_NS, last * SECOND_NS)
    assert np.array_equal(seconds_of(part), idle[:, first:last])


@given(idle=idle_seconds(), chosen=st.sets(st.integers(0, 2), min_size=1))
def test_some_nodes_are_idle_when_they_were(
    idle: NDArray[np.bool_], chosen: set[int]
) -> None:
    part = with_nodes(of_seconds(idle), [f"n{k}" for k in chosen])
    assert part.nodes == tuple(f"n{k}" for k in sorted(chosen))
    assert np.array_equal(seconds_of(part), idle[sorted(chosen)])


@given(idle=idle_seconds(), at=st.integers(1, LENGTH_S - 1), pause=st.integers(0, 5))
def test_merging_the_parts_of_a_trace_gives_the_trace(
    idle: NDArray[np.bool_], at: int, pause: int
) -> None:
    one, two = of_seconds(idle[:, :at]), of_seconds(idle[:, at:], at + pause)
    whole = merged([two, one])
    expected = np.concatenate(
        [idle[:, :at], np.zeros((3, pause), dtype=bool), idle[:, at:]], axis=1
    )
    assert np.array_equal(seconds_of(whole), expected)
    assert any("not observed" in note for note in whole.notes) == bool(pause)
    if not pause:
        assert np.array_equal(
            whole.times, of_seconds(idle).times
        )  # no event where nothing happens


@given(idle=idle_seconds())
def test_nodes_of_several_months_are_those_of_all(idle: NDArray[np.bool_]) -> None:
    two = of_seconds(idle[::-1], LENGTH_S, names=("n2", "new", "n0"))
    whole = merged([of_seconds(idle), two])
    assert whole.nodes == ("n0", "n1", "n2", "new")
    nothing = np.zeros(LENGTH_S, dtype=bool)
    later = np.array([idle[0], nothing, idle[2], idle[1]])
    assert np.array_equal(
        seconds_of(whole), np.concatenate([np.vstack([idle, nothing]), later], axis=1)
    )


@given(idle=idle_seconds())
def test_other_names_and_the_same_idle_seconds(idle: NDArray[np.bool_]) -> None:
    trace = anonymised(of_seconds(idle), KEY)
    assert np.array_equal(seconds_of(trace), idle)
    assert not set(trace.nodes) & {"n0", "n1", "n2"}
    assert (
        trace.nodes[::2]
        == anonymised(of_seconds(idle[::2], names=("n0", "n2")), KEY).nodes
    )
    assert trace.nodes != anonymised(of_seconds(idle), KEY + b"!").nodes


@pytest.fixture
def traces(here: Path) -> Path:
    """Two months, of a day each, in here."""
    idle = np.ones((3, 10), dtype=bool)
    idle[1, 2:5] = False
    for name, begin in (("one", 1_700_000_000), ("two", 1_700_000_010)):
        write_trace(of_seconds(idle, begin), here / f"{name}.parquet")
    (here / "key").write_bytes(KEY)
    return here


def test_commands_write_what_the_functions_make(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["trace", "merge", "two.parquet", "one.parquet", "-o", "whole.parquet"])
        == 0
    )
    assert (
        run(
            [
                "trace",
                "slice",
                "whole.parquet",
                "--from",
                "1700000005",
                "--to",
                "1700000012",
                "-o",
                "w.csv",
            ]
        )
        == 0
    )
    assert run(["trace", "select", "w.csv", "--nodes", "n[0-1]", "-o", "some.csv"]) == 0
    assert (
        run(["trace", "anonymise", "some.csv", "--key", "key", "-o", "shown.parquet"])
        == 0
    )
    shown = read_trace(traces / "shown.parquet")
    assert (shown.nodes[0], len(shown.nodes)) == (
        anonymised(of_seconds(np.ones((1, 1), dtype=bool)), KEY).nodes[0],
        2,
    )
    assert seconds_of(shown).all()
    assert b"some.csv" not in (traces / "shown.parquet").read_bytes()
    assert "whole.parquet: 3 nodes, 5 events" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["slice", "one.parquet", "--from", "1700000011"],
            "the window 2023-11-14T22:13:31Z to 2023-11-14T22:13:30Z",
        ),
        (["slice", "one.parquet", "--to", "1700000011"], "reaches beyond the trace"),
        (["slice", "one.parquet", "--to", "noon"], "--to: expected a date and time"),
        (
            ["select", "one.parquet", "--nodes", "n[1-9]"],
            "no node n3 and 6 more (it has 3, such as n0)",
        ),
        (
            ["select", "one.parquet", "--nodes", "n[3-"],
            "--nodes: neither a file nor a host list",
        ),
        (
            ["merge", "one.parquet", "one.parquet"],
            "begins at 2023-11-14T22:13:20Z, before one.parquet ends",
        ),
        (["anonymise", "one.parquet", "--key", "absent"], "absent: cannot be read"),
        (
            ["anonymise", "one.parquet", "--key", "/dev/zero"],
            "/dev/zero: holds more than 65,536 bytes",
        ),
        (
            ["anonymise", "one.parquet", "--key", "short"],
            "short: a key of 5 bytes can be guessed",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(
    arguments: list[str], message: str, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (traces / "short").write_bytes(b"12345")
    assert run(["trace", *arguments, "-o", "t.parquet"]) == 2
    assert message in capsys.readouterr().err
    assert not (traces / "t.parquet").exists()


def test_traces_of_nodes_with_other_units_are_not_merged(traces: Path) -> None:
    one = read_trace(traces / "one.parquet")
    with pytest.raises(InputError, match="differ in the units of a node"):
        merged([one, replace(read_trace(traces / "two.parquet"), units_per_node=4)])


def test_a_replay_of_an_anonymised_trace_gives_the_same_numbers(traces: Path) -> None:
    import json

    assert (
        run(
            ["trace", "anonymise", "one.parquet", "--key", "key", "-o", "shown.parquet"]
        )
        == 0
    )
    outcomes = []
    for name in ("one", "shown"):
        assert (
            run(
                [
                    "-ndmap",
                    f"{name}.parquet",
                    "-Tfwd",
                    "5",
                    "--policy",
                    "equal-share",
                    "--no-u",
                    "--out",
                    name,
                ]
            )
            == 0
        )
        outcomes.append(
            json.loads((traces / name / "summary.json").read_text())["metrics"][
                "outcome"
            ]
        )
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("by_unit", [False, True])
def test_anonymised_nodes_are_shuffled_and_keep_their_times(by_unit: bool) -> None:
    rng = np.random.default_rng(0)
    nodes = 40
    if by_unit:
        sizes = tuple(rng.integers(1, 5, nodes).tolist())
        slots = np.array([4 * k + u for k, n in enumerate(sizes) for u in range(n)])
        units: dict[str, Any] = {"units_per_node": 4, "node_units": sizes}
    else:
        slots, units = np.arange(nodes), {}
    starts = rng.integers(1, 50, len(slots))
    ends = starts + rng.integers(1, 40, len(slots))
    names = tuple(f"n{k:03}" for k in range(nodes))
    trace = from_fragments(names, slots.astype(np.int32), starts, ends, 0, 100, **units)
    shown = anonymised(trace, KEY)
    new_names = keyed_names(names, KEY)
    assert shown.nodes == tuple(sorted(new_names))
    assert [shown.nodes.index(name) for name in new_names] != list(range(nodes))
    per = trace.units_per_node

    def rows_of(some: NodeTrace, by_name: Mapping[str, str]) -> list[tuple[Any, ...]]:
        pieces = fragments(some)
        places = [by_name[some.nodes[slot // per]] for slot in pieces.node.tolist()]
        within = (pieces.node % per).tolist()
        times = pieces.start_ns.tolist(), pieces.end_ns.tolist()
        return sorted(zip(places, within, *times, strict=True))

    same = {name: name for name in shown.nodes}
    renamed = dict(zip(names, new_names, strict=True))
    assert rows_of(shown, same) == rows_of(trace, renamed)
    assert shown.times.tolist() == trace.times.tolist()
    for event in range(len(shown)):
        assert np.all(np.diff(shown.joins(event)) > 0)


def test_traces_of_two_machines_are_not_merged(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (read_trace(traces / f"{name}.parquet") for name in ("one", "two"))
    write_trace(replace(one, machine="a"), traces / "a.parquet")
    write_trace(replace(two, machine="b"), traces / "b.parquet")
    write_trace(replace(two, nodes=("m0", "m1", "m2")), traces / "m.parquet")
    for other, message in (
        ("b", "b.parquet: is of the machine b, a.parquet of a"),
        ("m", "m.parquet: has no node in common with a.parquet"),
    ):
        assert (
            run(
                [
                    "trace",
                    "merge",
                    "a.parquet",
                    f"{other}.parquet",
                    "-o",
                    "whole.parquet",
                ]
            )
            == 2
        )
        assert message in capsys.readouterr().err
        assert not (traces / "whole.parquet").exists()


def test_merging_says_how_many_nodes_are_not_in_all_and_how_much_is_unknown(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = replace(
        of_seconds(np.ones((3, 10), dtype=bool), 1_700_000_090),
        nodes=("n0", "n1", "new"),
    )
    write_trace(later, traces / "later.parquet")
    assert (
        run(["trace", "merge", "one.parquet", "later.parquet", "-o", "whole.parquet"])
        == 0
    )
    err = capsys.readouterr().err
    assert "note: 2 of 4 nodes are not in all of the merged traces" in err
    assert "80% of the whole, were not observed" in err
