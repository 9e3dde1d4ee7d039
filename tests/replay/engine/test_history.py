"""Tables of the past: rows in a file are those in memory, and sorting by blocks is sorting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bft.replay.engine import history
from bft.replay.engine.history import Columns, Spill

KINDS = {"job": "i", "start": "q", "unit": "i", "what": ""}
KEYS = ("job", "start", "unit")
rows_of = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 2),
        st.integers(0, 50),
        st.sampled_from(["", "a", "b"]),
    ),
    max_size=40,
)


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "SPILL_BYTES", 100)
        patch.setattr(history, "SAMPLED", 2)
        yield


def tables(rows: list[tuple[Any, ...]], folder: Path) -> tuple[Columns, Columns]:
    """The same rows in memory and in a file, settled three at a time."""
    memory, file = Columns(KINDS), Columns(KINDS)
    file.spill_to(Spill(folder))
    for number, row in enumerate(rows):
        for table in (memory, file):
            table.append(row)
            if number % 3 == 2:
                table.settle()
    return memory, file


IN_ONE_FOLDER = examples(
    100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@IN_ONE_FOLDER
@given(rows=rows_of, first=st.integers(0, 45))
def test_rows_in_a_file_are_those_in_memory(
    tmp_path: Path, rows: list[tuple[Any, ...]], first: int
) -> None:
    memory, file = tables(rows, tmp_path)
    wanted = dict(zip(KINDS, map(list, zip(*rows, strict=True)), strict=False))
    assert len(memory) == len(file) == len(rows)
    for table in (memory, file):
        tail = {name: wanted.get(name, [])[first:] for name in KINDS}
        assert table.since(first) == tail
        found = {name: column.tolist() for name, column in table.arrays().items()}
        assert found == {name: wanted.get(name, []) for name in KINDS}
    again = Columns(KINDS)
    again.spill_to(Spill(tmp_path))
    again.restore(file.since(0))
    assert again.since(0) == memory.since(0)


@IN_ONE_FOLDER
@given(rows=rows_of)
def test_sorted_blocks_have_all_rows_in_order_and_equal_first_keys_together(
    tmp_path: Path, rows: list[tuple[Any, ...]]
) -> None:
    for table in tables(rows, tmp_path):
        for _ in range(2):  # they can be had again
            blocks = [
                list(zip(*(block[name].tolist() for name in KINDS), strict=True))
                for block in table.sorted_blocks(KEYS)
            ]
            together = [row for block in blocks for row in block]
            assert [row[:3] for row in together] == sorted(row[:3] for row in rows)
            owners = [{row[:2] for row in block} for block in blocks]
            assert sum(map(len, owners)) == len(set().union(*owners))


def test_a_full_disk_leaves_the_rows_in_memory(tmp_path: Path) -> None:
    class Full(Spill):
        def write(self, *args: Any, **keywords: Any) -> int:
            raise OSError(28, "No space left on device")

    table = Columns(KINDS)
    table.spill_to(Full(tmp_path))
    rows = [(job, 0, 0, "a") for job in range(30)]
    for row in rows:
        table.append(row)
        table.settle()
    assert table.since(0)["job"] == list(range(30))
