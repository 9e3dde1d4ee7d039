"""The examples in docstrings give the results that they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("api", "milp", "models", "datasets", "replay")
FILES = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
MODULES = [
    ".".join(("bft", *path.relative_to(ROOT).with_suffix("").parts))
    .replace("bft.api", "bft")
    .removesuffix(".__init__")
    for path in FILES
    if "\n>>> " in (text := path.read_text("utf-8")) or "    >>> " in text
]


EXTRAS = {"bft.replay.env": "gymnasium", "bft._run": "matplotlib"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_do_what_they_show(name: str) -> None:
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name], reason="an extra that is not installed")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
