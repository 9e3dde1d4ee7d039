"""Habits of the house: no function's body is longer than one can take in at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("milp", "models", "datasets", "replay")
MAX_LINES = 60
# Folders whose long functions are still to be divided.
LEFT = ("milp", "models", "replay/engine", "replay/policies", "replay/logs")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of body of every function of a file: without signature and docstring."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_is_longer_than_sixty_lines_of_body(folder: str) -> None:
    paths = [path for path in (ROOT / folder).glob("**/*.py") if not str(path.relative_to(ROOT)).startswith(LEFT)]
    long = {name: lines for path in paths for name, lines in functions(path) if lines > MAX_LINES}
    assert not long
