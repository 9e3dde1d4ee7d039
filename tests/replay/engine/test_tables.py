"""Tables of the past: rows in files are those in memory, and sorting by blocks is sorting."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bft.replay.engine import tables
from bft.replay.engine.tables import Table

COLUMNS = {"job": "i", "start": "q", "unit": "i", "what": ""}
ORDER = ("job", "start", "unit")
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
        patch.setattr(tables, "PART_BYTES", 100)
        patch.setattr(tables, "GROUP_ROWS", 2)
        yield


def both(
    rows: list[tuple[Any, ...]], folder: Path, order: tuple[str, ...] = ()
) -> tuple[Table, Table]:
    """The same rows in memory and in files."""
    memory, files = Table(COLUMNS, order), Table(COLUMNS, order)
    files.folder = folder
    for row in rows:
        for table in (memory, files):
            table.add(row)
            if len(table.latest) == 3:
                table.settle()
    return memory, files


def rows_in(columns: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[name].tolist() for name in COLUMNS), strict=True))


IN_ONE_FOLDER = examples(
    100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@IN_ONE_FOLDER
@given(rows=rows_of)
def test_rows_in_files_are_those_in_memory_and_so_are_saved_ones(
    tmp_path: Path, rows: list[tuple[Any, ...]]
) -> None:
    for table in both(rows, tmp_path):
        again = Table(COLUMNS)
        again.restore(table.saved())
        for one in (table, again):
            assert len(one) == len(rows)
            assert rows_in(one.arrays()) == rows
    assert not list(tmp_path.iterdir())  # the files have no names


@IN_ONE_FOLDER
@given(rows=rows_of)
def test_sorted_blocks_have_all_rows_in_order_and_equal_first_keys_together(
    tmp_path: Path, rows: list[tuple[Any, ...]]
) -> None:
    for table in both(rows, tmp_path, ORDER):
        for _ in range(2):  # they can be had again
            blocks = [rows_in(block) for block in table.sorted_blocks()]
            together = [row for block in blocks for row in block]
            assert [row[:3] for row in together] == sorted(row[:3] for row in rows)
            jobs = [{row[0] for row in block} for block in blocks]
            assert sum(map(len, jobs)) == len(set().union(*jobs))


def test_a_full_disk_leaves_the_rows_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def __init__(self, **keywords: Any) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "TemporaryFile", Full)
    _, table = both([(job, 0, 0, "a") for job in range(30)], tmp_path)
    assert table.arrays()["job"].tolist() == list(range(30))
    assert caplog.messages == ["the history stays in memory: No space left on device"]
