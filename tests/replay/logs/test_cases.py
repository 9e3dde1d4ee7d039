"""What comes of logs and what is told of them: the cases of tests/data/logs, by format and by rule."""

import pytest
from log_cases import FOLDER, cases, check


@pytest.mark.parametrize(
    "case", cases(*sorted(path.stem for path in FOLDER.glob("*.toml")))
)
def test_what_comes_of_logs(case) -> None:
    check(case)


@pytest.mark.parametrize("case", cases("examples/logs", "examples/users"))
@pytest.mark.usefixtures("example_logs")
def test_what_comes_of_logs_of_other_programs(case) -> None:
    """The formats of examples/logs, as a plugin that registers them would have them, and users in all formats."""
    check(case)
