"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with published and golden data; a user's clone does not have it."""
    folder = Path(os.environ.get("BFT_REFERENCE", Path(__file__).parents[2] / "shared" / "reference"))
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}: set BFT_REFERENCE to a folder that holds them")
    return folder
