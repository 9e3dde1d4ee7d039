"""The formats of examples/logs, as a plugin that registers them would have them, and users in all formats."""

from __future__ import annotations

from typing import Any

import pytest
from log_cases import cases, check


@pytest.mark.parametrize("case", cases("examples/logs", "examples/users"))
@pytest.mark.usefixtures("example_logs")
def test_what_comes_of_logs_of_other_programs(case: dict[str, Any]) -> None:
    check(case)
