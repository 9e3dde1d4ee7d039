"""Parts of traces, traces put together and classes of nodes: idle seconds are those of the whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bft.replay.cli.main import run
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, from_fragments
from bft.replay.trace.parts import anonymised, cut, keyed_names, merged, with_nodes
from bft.replay.trace.trace_files import read_trace, write_trace

KEY = b"a key of more than sixteen bytes"
LENGTH_S = 20
FIRST_S = 1_700_000_000


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
    shape = len(trace.nodes), (trace.end - trace.start) // SECOND_NS
    idle = np.zeros(shape, dtype=bool)
    for event, time in enumerate(trace.times.tolist()):
        second = (time - trace.start) // SECOND_NS
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    return idle


@st.composite
def idle_seconds(draw: st.DrawFn, nodes: int = 3) -> NDArray[np.bool_]:
    count = nodes * LENGTH_S
    bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return np.array(bits).reshape(nodes, LENGTH_S)


@given(idle_seconds(), st.sets(st.integers(0, LENGTH_S), min_size=2, max_size=2))
def test_a_window_has_the_content_of_the_trace(
    idle: NDArray[np.bool_], bounds: set[int]
) -> None:
    first, last = sorted(bounds)
    part = cut(of_seconds(idle), first * SECOND_NS, last * SECOND_NS)
    assert np.array_equal(seconds_of(part), idle[:, first:last])


@given(idle_seconds(), st.sets(st.integers(0, 2), min_size=1))
def test_some_nodes_are_idle_when_they_were(
    idle: NDArray[np.bool_], chosen: set[int]
) -> None:
    part = with_nodes(of_seconds(idle), [f"n{k}" for k in chosen])
    assert part.nodes == tuple(f"n{k}" for k in sorted(chosen))
    assert np.array_equal(seconds_of(part), idle[sorted(chosen)])


@given(idle_seconds(), st.integers(1, LENGTH_S - 1), st.integers(0, 5))
def test_merging_the_parts_of_a_trace_gives_the_trace(
    idle: NDArray[np.bool_], at: int, pause: int
) -> None:
    whole = merged([of_seconds(idle[:, at:], at + pause), of_seconds(idle[:, :at])])
    nothing = np.zeros((3, pause), dtype=bool)
    parts = [idle[:, :at], nothing, idle[:, at:]]
    assert np.array_equal(seconds_of(whole), np.concatenate(parts, axis=1))
    assert any("not observed" in note for note in whole.notes) == bool(pause)
    # No event where nothing happens.
    assert pause or np.array_equal(whole.times, of_seconds(idle).times)


@given(idle_seconds())
def test_nodes_of_several_months_are_those_of_all(idle: NDArray[np.bool_]) -> None:
    two = of_seconds(idle[::-1], LENGTH_S, names=("n2", "new", "n0"))
    whole = merged([of_seconds(idle), two])
    assert whole.nodes == ("n0", "n1", "n2", "new")
    nothing = np.zeros(LENGTH_S, dtype=bool)
    later = np.array([idle[0], nothing, idle[2], idle[1]])
    expected = np.concatenate([np.vstack([idle, nothing]), later], axis=1)
    assert np.array_equal(seconds_of(whole), expected)


@pytest.mark.parametrize("per", [1, 4])
def test_anonymised_nodes_are_shuffled_and_keep_their_times(per: int) -> None:
    rng, names = np.random.default_rng(0), tuple(f"n{k:03}" for k in range(40))
    slots = np.arange(40 * per, dtype=np.int32)
    starts = rng.integers(1, 50, len(slots))
    ends = starts + rng.integers(1, 40, len(slots))
    trace = from_fragments(names, slots, starts, ends, 0, 100, units_per_node=per)
    trace = replace(trace, node_units=(per,) * 40 if per > 1 else None)
    shown, new_names = anonymised(trace, KEY), keyed_names(names, KEY)
    assert shown.nodes == tuple(sorted(new_names))
    assert not set(new_names) & {*names, *keyed_names(names, KEY + b"!")}
    place = [shown.nodes.index(name) for name in new_names]
    assert place != sorted(place)
    of = np.array(place)[trace.joined // per] * per + trace.joined % per
    for event in range(len(trace)):
        assert trace.times[event] == shown.times[event]
        joined = of[trace.joined_at[event] : trace.joined_at[event + 1]]
        assert shown.joins(event).tolist() == sorted(joined.tolist())
    back = shown.of_nodes(place)
    assert np.array_equal(back.left, trace.left)


@pytest.fixture
def traces(here: Path) -> Path:
    """Two months, of ten seconds each, in here, and variants of the second."""
    idle = np.ones((3, 10), dtype=bool)
    idle[1, 2:5] = False
    one, two = (of_seconds(idle, FIRST_S + begin) for begin in (0, 10))
    later = of_seconds(idle, FIRST_S + 90, ("n0", "n1", "new"))
    for name, trace in {
        "one": replace(one, machine="a"),
        "two": two,
        "later": later,
        "b": replace(two, machine="b"),
        "m": replace(two, nodes=("m0", "m1", "m2")),
        "units": replace(two, units_per_node=4),
    }.items():
        write_trace(trace, here / f"{name}.parquet")
    (here / "key").write_bytes(KEY)
    (here / "short").write_bytes(b"12345")
    return here


def test_commands_write_what_the_functions_make(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = ["--from", str(FIRST_S + 5), "--to", str(FIRST_S + 12), "--nodes", "n[0-1]"]
    files = ["two.parquet", "one.parquet"]
    assert run(["trace", "cut", *files, "-o", "whole.parquet"]) == 0
    assert "whole.parquet: 3 nodes, 5 events" in capsys.readouterr().out
    assert run(["trace", "cut", *files, *part, "-o", "some.csv"]) == 0
    shown = ["some.csv", "--key", "key", "-o", "shown.parquet"]
    assert run(["trace", "anonymise", *shown]) == 0
    read = read_trace("shown.parquet")
    assert sorted(read.nodes) == sorted(keyed_names(["n0", "n1"], KEY))
    assert seconds_of(read).shape == (2, 7)
    assert seconds_of(read).all()
    assert b"some.csv" not in Path("shown.parquet").read_bytes()
    capsys.readouterr()
    files = ["one.parquet", "later.parquet"]
    assert run(["trace", "cut", *files, "-o", "gap.parquet"]) == 0
    err = capsys.readouterr().err
    assert "note: 2 of 4 nodes are not in all of the merged traces" in err
    assert "80% of the whole, were not observed" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cut", "one.parquet"], "nothing to cut; give --from, --to or --nodes"),
        (["cut", "one.parquet", "--from", "1700000011"],
         "the window 2023-11-14T22:13:31Z to 2023-11-14T22:13:30Z"),
        (["cut", "one.parquet", "--to", "1700000011"], "reaches beyond the trace"),
        (["cut", "one.parquet", "--to", "noon"], "--to: expected a date and time"),
        (["cut", "one.parquet", "--nodes", "n[1-9]"], "no node n3 and 6 more (it has 3, such as n0)"),
        (["cut", "one.parquet", "--nodes", "n[3-"], "--nodes: neither a file nor a host list"),
        (["cut", "one.parquet", "one.parquet"], "begins at 2023-11-14T22:13:20Z, before one.parquet ends"),
        (["cut", "one.parquet", "units.parquet"], "units.parquet: differs from one.parquet in the units"),
        (["cut", "one.parquet", "b.parquet"], "b.parquet: is of the machine b, one.parquet of a"),
        (["cut", "one.parquet", "m.parquet"], "m.parquet: has no node in common with one.parquet"),
        (["anonymise", "one.parquet", "--key", "absent"], "absent: cannot be read"),
        (["anonymise", "one.parquet", "--key", "short"], "short: a key of 5 bytes can be guessed"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused(
    arguments: list[str], message: str, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", *arguments, "-o", "t.parquet"]) == 2
    assert message in capsys.readouterr().err
    assert not (traces / "t.parquet").exists()


# --- classes of nodes -------------------------------------------------------------------------------------------------

CLASSES = ("gpu/debug", "gpu/main", "cpu")
REPLAY = ["--policy", "equal-share", "-Tfwd", "5", "--no-u", "--out", "r", "--force"]


@pytest.fixture
def classed(here: Path) -> Path:
    """A trace of ten seconds: the node of each class is idle for 2, 5 and 10 of them."""
    idle = np.arange(10) < np.array([2, 5, 10])[:, np.newaxis]
    trace = of_seconds(idle, FIRST_S)
    write_trace(trace, here / "none.parquet")
    write_trace(replace(trace, classes=CLASSES, busy_share=0.25), here / "t.parquet")
    return here


def test_classes_are_kept_by_all_that_is_made_of_a_trace(classed: Path) -> None:
    trace = read_trace("t.parquet")
    assert (trace.classes, trace.busy_share) == (CLASSES, 0.25)
    assert trace.unavailable_share is None
    parts = [cut(trace, bounds[0], bounds[1]) for bounds in
             ((None, (FIRST_S + 4) * SECOND_NS), ((FIRST_S + 4) * SECOND_NS, None))]  # fmt: skip
    assert [part.busy_share for part in parts] == [None, None]
    assert merged(parts).classes == parts[0].classes == CLASSES
    assert with_nodes(trace, ["n2", "n0"]).classes == ("gpu/debug", "cpu")
    shown = anonymised(trace, KEY)
    names = dict(zip(keyed_names(trace.nodes, KEY), CLASSES, strict=True))
    assert shown.classes == tuple(names[node] for node in shown.nodes)
    assert shown.busy_share == 0.25


def test_idle_share_and_worth_are_told_by_class(
    classed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "info", "t.parquet"]) == 0
    texts = {
        name: f"{share}% of 1 nodes' time, worth {worth} nodes"
        for name, share, worth in zip(
            CLASSES, ("20.0", "50.0", "100.0"), ("0.2", "0.5", "1.0"), strict=True
        )
    }
    out = capsys.readouterr().out
    assert all(f"idle of {name:<20}{text}" in out for name, text in texts.items())
    assert run(["-ndmap", "t.parquet", *REPLAY]) == 0
    out = capsys.readouterr().out
    assert all(text in out for text in texts.values())
    summary = json.loads(Path("r/summary.json").read_text())
    assert summary["metrics"]["classes"]["cpu"]["idle_share"] == pytest.approx(1.0)
    assert run(["report", "r", "-o", "page.html"]) == 0
    assert "idle of gpu/main" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("name", "nodes", "idle_s"),
    [("gpu", 2, 7), ("gpu/main", 1, 5), ("debug", 1, 2), ("cpu", 1, 10)],
)
def test_a_replay_of_one_class_has_its_nodes_alone(
    classed: Path, name: str, nodes: int, idle_s: int
) -> None:
    assert run(["-ndmap", "t.parquet", "--node-class", name, *REPLAY]) == 0
    summary = json.loads(Path("r/summary.json").read_text())
    assert summary["inputs"]["trace"]["nodes"] == nodes
    assert summary["metrics"]["offered_unit_s"] == idle_s


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("t.parquet", "no node is of the class 'tpu'; there are gpu/debug, gpu/main, cpu"),
        ("none.parquet", "states no classes of nodes (a list of nodes states them: bft-replay ingest --nodes)"),
    ],
)  # fmt: skip
def test_a_class_that_no_node_has_is_refused(
    classed: Path, trace: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-ndmap", trace, "--node-class", "tpu", *REPLAY]) == 2
    assert message in capsys.readouterr().err
