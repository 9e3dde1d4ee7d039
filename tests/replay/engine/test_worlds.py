"""Replays by hand: the cases of `tests/data/worlds`."""

import pytest
from worlds import Case, cases, check


@pytest.mark.parametrize("case", [*cases()])
def test_by_hand(case: Case) -> None:
    check(case)
