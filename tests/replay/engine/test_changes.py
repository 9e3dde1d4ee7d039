"""Sums and checkpoints follow changes exactly."""

from __future__ import annotations

from dataclasses import make_dataclass
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from bft.replay.engine.running import ExactSum
from bft.replay.engine.snapshot import restore_snapshot, snapshot
from bft.replay.trace.node_trace import from_changes

finite = st.floats(-1e300, 1e300)


@given(st.lists(st.tuples(finite, st.booleans()), max_size=80))
def test_a_sum_of_terms_that_come_and_go_is_correctly_rounded(
    steps: list[tuple[float, bool]],
) -> None:
    total, terms = ExactSum(), []
    for term, leaves_again in steps:
        if leaves_again and terms:
            total.change(terms.pop(), term)
        else:
            total.change(0.0, term)
        terms.append(term)
        assert total.value == float(sum(map(Fraction, terms), Fraction(0)))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), min_size=1
    ),
    st.integers(0, 5),
)
def test_events_are_what_the_trace_says(
    rows: list[tuple[int, int, bool]], first: int
) -> None:
    rows.sort(key=lambda row: row[0])
    times, nodes, idle = (np.array(column) for column in zip(*rows, strict=True))
    trace = from_changes(
        [f"n{node}" for node in range(5)], times, nodes.astype(np.int32), idle, start=0
    )
    expected = [
        (
            int(trace.times[event]),
            trace.left[trace.left_at[event] : trace.left_at[event + 1]].tolist(),
            trace.joined[trace.joined_at[event] : trace.joined_at[event + 1]].tolist(),
        )
        for event in range(len(trace))
    ]
    assert list(trace.events(first)) == expected[first:]


def test_an_array_whose_type_is_an_alias_is_restored() -> None:
    """NumPy's NDArray is one from 2.5 on, which needs Python 3.12."""
    rows = TypeAliasType("rows", NDArray[np.int16])
    thing = make_dataclass("Thing", [("rows", rows), ("by_name", dict[str, rows])])
    array = np.array([[1, 2]], np.int16)
    restored = thing(None, None)
    restore_snapshot(restored, snapshot(thing(array, {"a": array})))
    for value in (restored.rows, restored.by_name["a"]):
        assert value.dtype == np.int16
        assert value.tolist() == [[1, 2]]
