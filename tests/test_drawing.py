"""What a newcomer's first run of the tests draws and says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from drawing import examples
from hypothesis import settings

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("profile", "drawn"),
    [("quarter", (50, 5, 3)), ("all", (200, 12, 3)), ("explore", (200, 12, 3))],
)
def test_a_profile_says_how_many_examples_are_drawn(
    profile: str, drawn: tuple[int, ...]
) -> None:
    before = settings.get_current_profile_name()
    try:
        settings.load_profile(profile)
        stated = [examples(number) for number in (200, 12, 3)]
    finally:
        settings.load_profile(before)
    assert tuple(one.max_examples for one in stated) == drawn
    assert all(one.derandomize == (profile != "explore") for one in stated)


def test_the_last_line_says_how_many_tests_miss_the_reference_data(
    tmp_path: Path,
) -> None:
    some = "tests/milp/test_milp_reference.py::test_scaling_instances_are_solved_alike_by_cbc_and_exact"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        some,
    ]
    environment = os.environ | {"BFT_REFERENCE": str(tmp_path / "none")}
    printed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    last = printed.splitlines()[-1]
    assert last.startswith("20 tests were skipped for want of the reference data")
    assert "BFT_REFERENCE=FOLDER make test" in last
