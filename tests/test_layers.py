"""Imports go one way: models and milp import nothing of ours, datasets imports models, replay all; no cycles."""

from __future__ import annotations

import ast
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {"milp": {"milp"}, "models": {"models"}, "datasets": {"datasets", "models"}}


def modules(folder: str) -> dict[str, Path]:
    paths = (ROOT / folder).glob("**/*.py")
    named = {"bft." + ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
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
            found |= {alias.name for alias in node.names if alias.name.startswith("bft.")}
    return found


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_lower_folders_import_none_above_them(folder: str) -> None:
    for name, path in modules(folder).items():
        above = {other for other in imported(path) if other.split(".")[1] not in MAY_IMPORT[folder]}
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
    circles = [circle for circle in nx.strongly_connected_components(nx.DiGraph(arrows)) if len(circle) > 1]
    assert not circles
    assert len(arrows) <= 51  # the room studies has six: docs/decisions/0019-studies.md


def test_the_engine_knows_no_policy() -> None:
    for name, path in REPLAY.items():
        if name.startswith("bft.replay.engine"):
            assert not {other for other in imported(path) if room(other) in ("bft.replay.policies", "bft.replay.run")}
