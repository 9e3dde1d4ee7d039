"""Imports go one way: models and milp import nothing of ours, datasets imports models, replay all; no cycles."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("api", "milp", "models", "datasets", "replay")
MAY_IMPORT = {
    "milp": {"milp"},
    "models": {"models"},
    "datasets": {"datasets", "models"},
}


def modules(folder: str) -> dict[str, Path]:
    paths = (ROOT / folder).glob("**/*.py")
    named = {
        "bft." + ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in paths
    }
    named = {name.replace("bft.api", "bft", 1): path for name, path in named.items()}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


REPLAY = modules("replay")


def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports, at its top or when it is needed."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bft"):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in REPLAY else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {
                alias.name for alias in node.names if alias.name.startswith("bft.")
            }
    return found


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_lower_folders_import_none_above_them(folder: str) -> None:
    for name, path in modules(folder).items():
        above = {
            other
            for other in imported(path)
            if other.split(".")[1] not in MAY_IMPORT[folder]
        }
        assert not above, f"{name} imports {above}"


def room(module: str) -> str:
    """The file or folder below replay/ in which a module lies."""
    return ".".join(module.split(".")[:3])


def test_rooms_of_replay_import_each_other_in_no_circle() -> None:
    arrows = {
        (room(name), room(other))
        for name, path in REPLAY.items()
        if name != "bft.replay"  # its public face, which imports when it is asked
        for other in imported(path)
        if other.startswith("bft.replay.") and room(other) != room(name)
    }
    circles = [
        circle
        for circle in nx.strongly_connected_components(nx.DiGraph(arrows))
        if len(circle) > 1
    ]
    assert not circles
    assert len(arrows) <= 58  # shadow joins ends: docs/decisions/0023-shadow.md


@cache
def arrows_between_modules() -> set[tuple[str, str]]:
    """Which module imports which: at its top, inside functions, and for types; through packages that re-export."""
    paths = {name: path for folder in FOLDERS for name, path in modules(folder).items()}
    return {
        (name, home(paths, *each))
        for name, path in paths.items()
        if path.name != "__init__.py"  # a public face
        for each in imported_names(path)
        if home(paths, *each) in paths
    }


@cache
def imported_names(path: Path) -> set[tuple[str, str]]:
    """Modules of ours, and what is imported of each."""
    return {
        (node.module or "", alias.name)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def home(paths: dict[str, Path], module: str, name: str) -> str:
    """The module that defines a name."""
    if f"{module}.{name}" in paths:
        return f"{module}.{name}"
    if module in paths and paths[module].name == "__init__.py":
        for inner, found in sorted(imported_names(paths[module])):
            if found == name and inner != module:
                return home(paths, inner, name)
    return module


def test_modules_import_each_other_in_no_circle() -> None:
    arrows = arrows_between_modules()
    circles = [
        sorted(circle)
        for circle in nx.strongly_connected_components(nx.DiGraph(arrows))
        if len(circle) > 1
    ]
    assert len(arrows) > 1_000
    assert not circles


def test_the_library_never_imports_the_command_line() -> None:
    assert not {
        (name, other)
        for name, other in arrows_between_modules()
        if room(other) == "bft.replay.cli" and room(name) != "bft.replay.cli"
    } - {
        ("bft._replay", "bft.replay.cli.watcher")
    }  # in a notebook, too, it shows a bar


def test_the_engine_knows_no_policy() -> None:
    for name, path in REPLAY.items():
        if name.startswith("bft.replay.engine"):
            assert not {
                other
                for other in imported(path)
                if room(other) in ("bft.replay.policies", "bft.replay.run")
            }
