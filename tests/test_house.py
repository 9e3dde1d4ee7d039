"""Habits of the house: no function's body is longer than one can take in at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("milp", "models", "datasets", "replay")
MAX_LINES = 60
# Still to be divided.
LEFT = {
    "milp/exact/core.py sweep",
    "replay/logs/intervals.py read",
    "replay/logs/slurm.py read",
    "replay/logs/swf.py read",
}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of body of every function of a file: without signature and docstring."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{path.relative_to(ROOT)} {node.name}", lines


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_is_longer_than_sixty_lines_of_body(folder: str) -> None:
    paths = (ROOT / folder).glob("**/*.py")
    long = {name: lines for path in paths for name, lines in functions(path) if lines > MAX_LINES}
    assert long.keys() <= LEFT, long
