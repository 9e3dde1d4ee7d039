"""Parts of traces, traces put together and perturbed, classes of nodes: idle seconds are those of the whole."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agreeing import agree
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from small_traces import KEY, of_seconds, seconds_of, tables
from synthetic_logs import taken

from bft.replay import NodeTrace, always_idle
from bft.replay.trace.node_trace import SECOND_NS, from_fragments
from bft.replay.trace.parts import anonymised, cut, keyed_names, merged, with_nodes
from bft.replay.trace.perturbing import Perturbation, perturbed
from bft.replay.trace.trace_files import read_trace, write_trace
from bft.replay.trace.trace_statistics import fragments

LENGTH_S = 20
FIRST_S = 1_700_000_000


@given(
    tables(),
    st.sets(st.integers(0, LENGTH_S), min_size=2, max_size=2).map(sorted),
    st.sets(st.integers(0, 2), min_size=1).map(sorted),
)
def test_some_nodes_in_a_window_are_idle_when_they_were(
    idle, bounds: list[int], chosen: list[int]
) -> None:
    part = cut(of_seconds(idle), *(bound * SECOND_NS for bound in bounds))
    assert np.array_equal(seconds_of(part), idle[:, slice(*bounds)])
    part = with_nodes(part, [f"n{k}" for k in chosen])
    assert part.nodes == tuple(f"n{k}" for k in chosen)
    assert np.array_equal(seconds_of(part), idle[chosen, slice(*bounds)])


@given(tables(), st.integers(1, LENGTH_S - 1), st.integers(0, 5))
def test_merging_the_parts_of_a_trace_gives_the_trace(
    idle, at: int, pause: int
) -> None:
    whole = merged([of_seconds(idle[:, at:], at + pause), of_seconds(idle[:, :at])])
    parts = [idle[:, :at], np.zeros((3, pause), dtype=bool), idle[:, at:]]
    assert np.array_equal(seconds_of(whole), np.concatenate(parts, axis=1))
    assert any("not observed" in note for note in whole.notes) == bool(pause)
    # No event where nothing happens.
    assert pause or np.array_equal(whole.times, of_seconds(idle).times)


@given(tables())
def test_nodes_of_several_months_are_those_of_all(idle) -> None:
    two = of_seconds(idle[::-1], LENGTH_S, names=("n2", "new", "n0"))
    whole = merged([of_seconds(idle), two])
    assert whole.nodes == ("n0", "n1", "n2", "new")
    nothing = np.zeros(LENGTH_S, dtype=bool)
    later = np.array([idle[0], nothing, idle[2], idle[1]])
    assert np.array_equal(
        seconds_of(whole), np.concatenate([np.vstack([idle, nothing]), later], axis=1)
    )


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
    known = dict(zip(names, new_names, strict=True))
    assert taken(shown) == {
        (re.sub(r"^n\d+", lambda node: known[node[0]], name), *span)
        for name, *span in taken(trace)
    }
    assert np.array_equal(shown.of_nodes(place).left, trace.left)


@pytest.fixture
def traces(here: Path) -> Path:
    """Two months, of ten seconds each, in here, and variants of the second."""
    idle = np.ones((3, 10), dtype=bool)
    idle[1, 2:5] = False
    one, two = (of_seconds(idle, FIRST_S + begin) for begin in (0, 10))
    for name, trace in {
        "one": replace(one, machine="a"),
        "two": two,
        "later": of_seconds(idle, FIRST_S + 90, ("n0", "n1", "new")),
        "b": replace(two, machine="b"),
        "m": replace(two, nodes=("m0", "m1", "m2")),
        "units": replace(two, units_per_node=4),
    }.items():
        write_trace(trace, here / f"{name}.parquet")
    (here / "key").write_bytes(KEY)
    (here / "short").write_bytes(b"12345")
    return here


def test_commands_write_what_the_functions_make(traces: Path, told) -> None:
    files = "two.parquet one.parquet"
    part = "--from 1700000005 --to 1700000012 --nodes n[0-1]"
    lacks = ("2 of 4 nodes are not in all of the merged traces", "80% of the whole, were not observed")  # fmt: skip
    told(f"trace cut {files} -o whole.parquet", "whole.parquet: 3 nodes, 5 events")
    told("trace cut one.parquet later.parquet -o gap.parquet", *lacks)
    told(f"trace cut {files} {part} -o some.csv")
    told("trace anonymise some.csv --key key -o shown.parquet")
    read = read_trace("shown.parquet")
    assert sorted(read.nodes) == sorted(keyed_names(["n0", "n1"], KEY))
    assert seconds_of(read).tolist() == [[True] * 7] * 2
    assert b"some.csv" not in Path("shown.parquet").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("cut one.parquet", "nothing to cut; give --from, --to or --nodes"),
        ("cut one.parquet --from 1700000011", "the window 2023-11-14T22:13:31Z to 2023-11-14T22:13:30Z"),
        ("cut one.parquet --to 1700000011", "reaches beyond the trace"),
        ("cut one.parquet --to noon", "--to: expected a date and time"),
        ("cut one.parquet --nodes n[1-9]", "no node n3 and 6 more (it has 3, such as n0)"),
        ("cut one.parquet --nodes n[3-", "--nodes: neither a file nor a host list"),
        ("cut one.parquet one.parquet", "begins at 2023-11-14T22:13:20Z, before one.parquet ends"),
        ("cut one.parquet units.parquet", "units.parquet: differs from one.parquet in the units"),
        ("cut one.parquet b.parquet", "b.parquet: is of the machine b, one.parquet of a"),
        ("cut one.parquet m.parquet", "m.parquet: has no node in common with one.parquet"),
        ("anonymise one.parquet --key absent", "absent: no such file"),
        ("anonymise one.parquet --key short", "short: a key of 5 bytes can be guessed"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused(
    arguments: str, message: str, traces: Path, told
) -> None:
    told(f"trace {arguments} -o t.parquet", message, code=2)
    assert not (traces / "t.parquet").exists()


# --- classes of nodes -------------------------------------------------------------------------------------------------

CLASSES = ("gpu/debug", "gpu/main", "cpu")
REPLAY = "--policy equal-share -Tfwd 5 --no-u --out r --force"


@pytest.fixture
def classed(here: Path) -> Path:
    """A trace of ten seconds: the node of each class is idle for 2, 5 and 10 of them."""
    trace = of_seconds(np.arange(10) < np.array([2, 5, 10])[:, np.newaxis], FIRST_S)
    write_trace(trace, here / "none.parquet")
    write_trace(replace(trace, classes=CLASSES, busy_share=0.25), here / "t.parquet")
    return here


def test_classes_are_kept_by_all_that_is_made_of_a_trace(classed: Path) -> None:
    trace = read_trace("t.parquet")
    known = {"classes": CLASSES, "busy_share": 0.25, "unavailable_share": None}
    agree(trace, known)
    middle = (FIRST_S + 4) * SECOND_NS
    parts = [cut(trace, None, middle), cut(trace, middle, None)]
    assert [part.busy_share for part in parts] == [None, None]
    assert merged(parts).classes == parts[0].classes == CLASSES
    assert with_nodes(trace, ["n2", "n0"]).classes == ("gpu/debug", "cpu")
    shown = anonymised(trace, KEY)
    names = dict(zip(keyed_names(trace.nodes, KEY), CLASSES, strict=True))
    agree(shown, known | {"classes": tuple(names[node] for node in shown.nodes)})


def test_idle_share_and_worth_are_told_by_class(classed: Path, told) -> None:
    shares = zip(CLASSES, (20, 50, 100), (0.2, 0.5, 1.0), strict=True)
    texts = {name: f"{share:.1f}% of 1 nodes' time, worth {worth} nodes" for name, share, worth in shares}  # fmt: skip
    told(
        "trace info t.parquet", *(f"idle of {name:<20}{texts[name]}" for name in texts)
    )
    told(f"-ndmap t.parquet {REPLAY}", *texts.values())
    summary = json.loads(Path("r/summary.json").read_text())
    assert summary["metrics"]["classes"]["cpu"]["idle_share"] == pytest.approx(1.0)
    told("report r -o page.html")
    assert "idle of gpu/main" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("name", "nodes", "idle_s"),
    [("gpu", 2, 7), ("gpu/main", 1, 5), ("debug", 1, 2), ("cpu", 1, 10)],
)
def test_a_replay_of_one_class_has_its_nodes_alone(
    classed: Path, name: str, nodes: int, idle_s: int, told
) -> None:
    told(f"-ndmap t.parquet --node-class {name} {REPLAY}")
    summary = json.loads(Path("r/summary.json").read_text())
    agree(summary, {"inputs.trace.nodes": nodes, "metrics.offered_unit_s": idle_s})


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("t.parquet", "no node is of the class 'tpu'; there are gpu/debug, gpu/main, cpu"),
        ("none.parquet", "states no classes of nodes (a list of nodes states them: bft-replay ingest --nodes)"),
    ],
)  # fmt: skip
def test_a_class_that_no_node_has_is_refused(
    classed: Path, trace: str, message: str, told
) -> None:
    told(f"-ndmap {trace} --node-class tpu {REPLAY}", message, code=2)


HOW_LONG_S = 40
START = 1_612_915_200 * SECOND_NS  # 10 February 2021
TABLES = st.integers(1, 5).flatmap(lambda nodes: tables(nodes, HOW_LONG_S))


def idle_at(trace: NodeTrace, instants: np.ndarray) -> np.ndarray:
    """Whether each node is idle at each instant: bool of shape (nodes, instants)."""
    pieces = fragments(trace)
    found = np.zeros((len(trace.nodes), len(instants)), dtype=bool)
    for node, start, end in zip(
        pieces.node, pieces.start_ns, pieces.end_ns, strict=True
    ):
        found[node] |= (instants >= start) & (instants < end)
    return found


@examples(60)
@given(
    TABLES,
    st.integers(1, 3),
    st.builds(
        Perturbation,
        st.sampled_from([0.0, 0.3, 1.0]),
        st.sampled_from([0.0, 5.0, 1e6]),
        st.sampled_from([0.0, 0.4, 1.0]),
        st.integers(0, 2**32),
    ),
)
def test_nodes_are_never_idle_where_they_were_not(
    idle, units: int, how: Perturbation
) -> None:
    trace = of_seconds(idle, units_per_node=units)
    changed = perturbed(trace, how)
    names = ("nodes", "start", "end", "units_per_node")
    agree(changed, {name: getattr(trace, name) for name in names})
    instants = np.unique(np.concatenate([changed.times, trace.times]))
    assert not (idle_at(changed, instants) & ~idle_at(trace, instants)).any()
    if how == Perturbation(seed=how.seed):
        assert (idle_at(changed, instants) == idle_at(trace, instants)).all()
    if how.drop == 1 or how.thin == 1:
        assert not len(changed)


@examples(30)
@given(TABLES, st.integers(0, 2**32), st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_what_a_smaller_share_drops_a_larger_one_drops_too(
    idle, seed: int, shares: tuple[float, float]
) -> None:
    instants = np.arange(HOW_LONG_S) * SECOND_NS
    less, more = (
        idle_at(perturbed(of_seconds(idle), Perturbation(drop=drop, seed=seed)), instants)
        for drop in sorted(shares)
    )  # fmt: skip
    assert not (more & ~less).any()


def test_shares_dropped_and_mean_delays_are_those_asked_for() -> None:
    count = 4000
    day = always_idle(count, 0, 86_400 * SECOND_NS)
    kept = perturbed(day, Perturbation(drop=0.25, seed=1))
    # The standard deviation of the share is 0.7 %; the seed is fixed.
    assert len(kept.joined) / count == pytest.approx(0.75, abs=0.03)
    starts = (
        fragments(perturbed(day, Perturbation(delay_s=60, seed=1))).start_ns / SECOND_NS
    )
    assert (len(starts), starts.mean()) == (count, pytest.approx(60, abs=4))
    assert starts.std() == pytest.approx(60, abs=6)


def test_a_perturbed_trace_says_so_wherever_it_is_used(here: Path, told) -> None:
    hour = always_idle(40, START, START + 3600 * SECOND_NS, units_per_node=2)
    how = Perturbation(drop=0.5, delay_s=60, seed=3)
    for name in ("one", "two"):
        write_trace(perturbed(hour, how), f"{name}.parquet")
    assert Path("one.parquet").read_bytes() == Path("two.parquet").read_bytes()
    write_trace(
        perturbed(read_trace("one.parquet"), Perturbation(thin=0.1)), "three.parquet"
    )
    altered = "drop 0.5, delay 60 s, seed 3; thin 0.1, seed 0"
    assert read_trace("three.parquet").altered == altered
    told("trace cut three.parquet --to 2021-02-10T00:50:00 -o four.parquet")
    said = f"the trace is not as observed, but perturbed: {altered}"
    told("-ndmap four.parquet --no-u --policy equal-share --out run", said)
    assert said in json.loads(Path("run/summary.json").read_text("utf-8"))["notes"]


def test_a_share_beyond_one_is_refused() -> None:
    refused("drop: expected a finite number >= 0", Perturbation, drop=2)
