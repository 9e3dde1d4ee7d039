"""Nodes whose units turn idle one by one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from refusals import refused

from bft.models import Curve, Job, JobTable
from bft.replay import (
    NodeTrace,
    Outcome,
    Replay,
    Rules,
    always_idle,
    fragments,
    read_trace,
    trace_statistics,
    write_trace,
)
from bft.replay.policies import policy_type
from bft.replay.policies.checking import make_world
from bft.replay.policies.fifo import Fifo
from bft.replay.trace.node_trace import SECOND_NS, from_fragments
from bft.replay.trace.parts import anonymised, cut, merged, with_nodes
from bft.replay.trace.perturbing import Perturbation, perturbed
from bft.replay.trace.trace_files import select_nodes

SIZES = (4, 2, 3)
PER = max(SIZES)
LENGTH_S = 20


def by_unit(whole: NodeTrace) -> NodeTrace:
    """The same trace with all units of a node turning idle together, but each by itself."""
    per, pieces = whole.units_per_node, fragments(whole)
    slots = (
        np.repeat(pieces.node, per) * per + np.tile(np.arange(per), len(pieces.node))
    ).astype(np.int32)
    begins, ends = np.repeat(pieces.start_ns, per), np.repeat(pieces.end_ns, per)
    return from_fragments(
        whole.nodes, slots, begins, ends, whole.start, whole.end, units_per_node=per,
        node_units=(per,) * len(whole.nodes),
    )  # fmt: skip


def played(trace: NodeTrace, jobs: JobTable, policy: str) -> Outcome:
    return Replay(
        trace, jobs, policy_type(policy).factory(), Rules(checkpoint_interval_s=300.0)
    ).run()


@pytest.mark.parametrize(  # worlds of four and of two units a node, which come and go
    ("policy", "seed"),
    [("equal-share", 2), ("fifo", 2), ("optimus", 10), ("tiresias-l", 10)],
)
def test_units_that_turn_idle_together_are_a_node_that_does(
    policy: str, seed: int
) -> None:
    world = make_world(seed)
    assert not world.trace.by_unit
    whole, parts = (
        played(trace, world.jobs, policy)
        for trace in (world.trace, by_unit(world.trace))
    )
    assert parts.allocations.equals(whole.allocations)
    steps = [column for column in whole.steps if column not in ("joined", "left")]
    assert parts.steps[steps].equals(whole.steps[steps])
    assert parts.offered_unit_seconds == whole.offered_unit_seconds


def unit_seconds(idle: NDArray[np.bool_], begin_s: int = 0) -> NodeTrace:
    """The trace of which slot is idle during which second, bool of shape (slots, seconds)."""
    edges = np.diff(np.pad(idle, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    slot, begins = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    span = (begin_s * SECOND_NS, (begin_s + idle.shape[1]) * SECOND_NS)
    return from_fragments(
        ["a", "b", "c"], slot.astype(np.int32), (begins + begin_s) * SECOND_NS, (ends + begin_s) * SECOND_NS, *span,
        units_per_node=PER, node_units=SIZES,
    )  # fmt: skip


def seconds_of(trace: NodeTrace) -> dict[str, list[bool]]:
    """Which second each unit is idle in, by name."""
    idle = np.zeros((trace.slots, (trace.end - trace.start) // SECOND_NS), dtype=bool)
    for event, time in enumerate(trace.times.tolist()):
        second = (time - trace.start) // SECOND_NS
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    return {
        trace.name_of(slot): idle[slot].tolist() for slot in trace.members().tolist()
    }


@st.composite
def idle_units(draw: st.DrawFn) -> NDArray[np.bool_]:
    idle = np.zeros((len(SIZES) * PER, LENGTH_S), dtype=bool)
    for node, size in enumerate(SIZES):
        for unit in range(size):
            idle[node * PER + unit] = draw(
                st.lists(st.booleans(), min_size=LENGTH_S, max_size=LENGTH_S)
            )
    return idle


@given(
    idle=idle_units(), bounds=st.sets(st.integers(0, LENGTH_S), min_size=2, max_size=2)
)
def test_parts_of_traces_of_units(idle: NDArray[np.bool_], bounds: set[int]) -> None:
    trace, (first, last) = unit_seconds(idle), sorted(bounds)
    whole = seconds_of(trace)
    part = cut(trace, first * SECOND_NS, last * SECOND_NS)
    assert seconds_of(part) == {
        name: seconds[first:last] for name, seconds in whole.items()
    }
    assert seconds_of(with_nodes(trace, ["a", "c"])) == {
        k: v for k, v in whole.items() if not k.startswith("b/")
    }
    assert seconds_of(select_nodes(trace, 1, 2)) == {
        k: v for k, v in whole.items() if not k.startswith("a/")
    }
    if first > 0:
        again = merged(
            [cut(trace, first * SECOND_NS, None), cut(trace, None, first * SECOND_NS)]
        )
        assert seconds_of(again) == whole
    shown = seconds_of(anonymised(trace, b"sixteen bytes or more"))
    assert sorted(shown.values()) == sorted(whole.values())
    assert perturbed(
        trace, Perturbation(thin=0.5)
    ).idle_unit_seconds() == pytest.approx(idle.sum() / 2)


@given(idle=idle_units())
def test_statistics_count_units(idle: NDArray[np.bool_]) -> None:
    trace = unit_seconds(idle)
    statistics = trace_statistics(trace)
    assert statistics["units"] == sum(SIZES)
    assert statistics["idle_unit_seconds"] == trace.idle_unit_seconds() == idle.sum()
    assert statistics["idle_share"] == pytest.approx(
        idle.sum() / (sum(SIZES) * LENGTH_S)
    )
    full = np.zeros_like(idle)
    for node, size in enumerate(SIZES):
        rows = slice(node * PER, node * PER + size)
        full[rows] = idle[rows].all(axis=0)
    beside = (idle & ~full).sum() / idle.sum() if idle.any() else None
    assert statistics["idle_share_beside_jobs"] == (
        None if beside is None else pytest.approx(beside)
    )


def sized(name: str, units: int) -> Job:
    curve = Curve([0, 8], [0, 8])
    return Job(name, 0, units, units, 1e6, 0.0, 0.0, curve, curve, jreq=units)


def test_jobs_are_consolidated_on_what_is_left_of_nodes() -> None:
    idle = np.zeros((len(SIZES) * PER, LENGTH_S), dtype=bool)
    idle[[1, 3, 4, 5, 9]] = True  # two units of a, both of b, one of c
    idle[3, 10:] = False
    jobs = JobTable(tuple(sized(f"j{k}", n) for k, n in enumerate((2, 2, 1, 3))))
    outcome = Replay(unit_seconds(idle), jobs, Fifo(consolidate=True), Rules()).run()
    held = outcome.allocations
    units = [
        (row.job, unit)
        for row in held[held["start_ns"] == 0].itertuples()
        for unit in range(row.first_unit, row.last_unit + 1)
    ]
    assert units == [(0, 1), (0, 3), (1, 4), (1, 5), (2, 9)]
    # One unit of node a is taken back: its job stops, for no node has two left.
    assert held["end_ns"][held["job"] == 0].max() == 10 * SECOND_NS


def test_a_run_of_a_trace_of_units(here: Path, told: Callable[..., str]) -> None:
    whole = always_idle(4, 0, 3600 * SECOND_NS)
    units = {"nodes": ("a", "b"), "units_per_node": 2, "node_units": (2, 2)}
    for kind in ("parquet", "csv"):
        write_trace(replace(whole, **units, source="made"), f"trace.{kind}")
        told(f"-ndmap trace.{kind} --out {kind} -Tfwd 60 --backend exact")
    one, other = (Path(of, "jobs.parquet").read_bytes() for of in ("parquet", "csv"))
    assert one == other
    assert '"units": 4' in Path("csv/summary.json").read_text()
    told("report csv -o page.html")
    assert "How long units stay idle" in Path("page.html").read_text("utf-8")


@pytest.mark.parametrize("unit", ["-1", "1.5", "", "4096"])
def test_damaged_numbers_of_units_are_refused(unit: str, tmp_path: Path) -> None:
    text = f"time,node,unit,idle\n2021-01-01,n1,{unit},1\n"
    (tmp_path / "trace.csv").write_text(text)
    expected = "expected the number of a unit of the node"
    error = refused(expected, read_trace, tmp_path / "trace.csv")
    assert (error.row, error.column) == (1, "unit")
