"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test asserts wall time, so no example has a deadline: machines are noisy, and the first one may compile a kernel.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# CI tries the same examples every time: what it says of a commit must not depend on the day.
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
# Unless all are asked for, a property test tries this part of the examples that it names, and at least so many.
PART, FEWEST = 0.25, 5

# A suite that is started in the background of a script, or by nohup, inherits that Ctrl-C is ignored, and so would all
# processes that it starts; those of the tests of interrupts then never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-examples", action="store_true", help="property tests try all their examples, not a quarter")


@pytest.hookimpl(trylast=True)  # after Hypothesis' plugin, which marks the property tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let property tests try fewer examples."""
    if config.getoption("all_examples"):
        return
    # Cases of one test share its function.
    for function in {item.obj for item in items if item.get_closest_marker("hypothesis")}:
        stated = function._hypothesis_internal_use_settings
        fewer = max(int(stated.max_examples * PART), min(stated.max_examples, FEWEST))
        function._hypothesis_internal_use_settings = settings(stated, max_examples=fewer)


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with published and golden data; a user's clone does not have it."""
    folder = Path(os.environ.get("BFT_REFERENCE", Path(__file__).parents[2] / "shared" / "reference"))
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}: set BFT_REFERENCE to a folder that holds them")
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in; files with fixtures of their own of this name put something into it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
