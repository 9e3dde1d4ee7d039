"""Fixtures of the tests of decisions."""

from collections.abc import Iterator

import pytest

from bft.milp import SolverProcess


@pytest.fixture(scope="module")
def process() -> Iterator[SolverProcess]:
    """A solver process of a file's own."""
    mine = SolverProcess()
    yield mine
    mine.close()
