"""Sums and checkpoints follow changes exactly."""

from dataclasses import make_dataclass
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from bft.replay.engine.running import ExactSum
from bft.replay.engine.snapshot import restore_snapshot, snapshot

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
