"""What comes of logs and what is told of them: the cases of tests/data/logs, by format and by rule."""

from typing import Any

import pytest
from log_cases import FOLDER, cases, check

FILES = sorted(path.stem for path in FOLDER.glob("*.toml"))


@pytest.mark.parametrize("case", cases(*FILES))
def test_what_comes_of_logs(case: dict[str, Any]) -> None:
    check(case)


@pytest.mark.parametrize("case", cases("examples/logs", "examples/users"))
@pytest.mark.usefixtures("example_logs")
def test_what_comes_of_logs_of_other_programs(case: dict[str, Any]) -> None:
    """The formats of examples/logs, as a plugin that registers them would have them, and users in all formats."""
    check(case)
