"""The cache of compiled kernels is damaged or read-only: `exact` compiles again, answers right, and reports it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from processes import AMPLE_S, SCRIPT

from bft.milp.exact import compiled

JOB = {"Jmin": 1, "Jmax": 3, "Ns": [0, 1, 3], "Os": [0, 10, 25], "Tcup": 5, "Tcdw": 5}
PROBLEM = {
    "units": 4,
    "Tfwd": 60,
    "jobs": [{"name": name, "current": [], **JOB} for name in "ab"],
}
COUNTS = {"a": 3, "b": 1}


def solve(cache: Path, before: str = "", **env: str) -> str:
    """Solve PROBLEM with that cache, check the answer, and return what was said."""
    words = " ".join(
        f"'{word}'" for word in [*SCRIPT, "solve", "-", "--backend", "exact"]
    )
    process = subprocess.run(
        ["bash", "-c", f"{before} {words}"],
        input=json.dumps(PROBLEM),
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), **env},
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
    )
    assert process.returncode == 0, process.stderr
    counts = json.loads(process.stdout)["counts"]
    assert sorted(counts.values()) == sorted(COUNTS.values())
    return process.stderr


def file_of(cache: Path, suffix: str) -> Path:
    (path,) = cache.rglob(f"*best_counts*{suffix}")
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in order."""
    cache = tmp_path_factory.mktemp("filled") / "cache"
    assert solve(cache) == ""
    assert file_of(cache, ".nbc").stat().st_size > 10_000
    return cache


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    return shutil.copytree(filled, tmp_path / "cache")


@pytest.mark.slow
def test_a_cache_in_order_is_used_without_a_word(cache: Path) -> None:
    before = file_of(cache, ".nbc").stat().st_mtime_ns
    assert solve(cache) == ""
    assert file_of(cache, ".nbc").stat().st_mtime_ns == before


def flipped(content: bytes) -> bytes:
    """One bit of machine code is another."""
    at = content.index(b".text") + 500
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


damages = pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        pytest.param(".nbi", lambda content: b"", id="empty index"),
        pytest.param(
            ".nbi", lambda content: content[: len(content) // 2], id="half an index"
        ),
        pytest.param(".nbi", lambda content: content[:3], id="three bytes"),
        pytest.param(".nbi", lambda content: bytes(range(256)), id="noise"),
        pytest.param(".nbc", lambda content: b"", id="empty kernel"),
        pytest.param(
            ".nbc", lambda content: content[: len(content) // 2], id="half a kernel"
        ),
        pytest.param(".nbc", flipped, id="a flipped bit"),
    ],
)


@pytest.fixture(scope="module")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module with a small kernel, which is in its cache."""
    source = tmp_path_factory.mktemp("doubling") / "doubling.py"
    source.write_text(
        f"from {compiled.__name__} import compiled\n\n\n@compiled\ndef twice(x):\n    return 2 * x\n"
    )
    assert loaded(source).twice(21) == 42
    return source


def loaded(source: Path) -> ModuleType:
    """The module as a new process loads it."""
    spec = importlib.util.spec_from_file_location("doubling", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@damages
def test_a_damaged_kernel_is_recompiled_once_with_a_warning(
    doubling: Path,
    suffix: str,
    damage: Callable[[bytes], bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(compiled, "_said", set())
    (path,) = Path(loaded(doubling).twice.stats.cache_path).glob(f"*twice*{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    assert loaded(doubling).twice(21) == 42
    assert (
        caplog.text.count(f"cache of compiled kernels, {path.parent}: damaged files (")
        == 1
    )
    caplog.clear()
    again = loaded(doubling)
    assert again.twice(21) == 42
    assert sum(again.twice.stats.cache_hits.values()) == 1
    assert not caplog.records


@pytest.mark.slow
@damages
def test_a_damaged_cache_is_recompiled_once_with_a_warning(
    cache: Path, suffix: str, damage: Callable[[bytes], bytes]
) -> None:
    path = file_of(cache, suffix)
    path.write_bytes(damage(path.read_bytes()))
    said = solve(cache)
    assert said.startswith(
        f"warning: cache of compiled kernels, {path.parent}: damaged files ("
    )
    assert len(said.splitlines()) == 1
    assert solve(cache) == ""


@pytest.mark.slow
def test_a_full_disk_under_the_cache_is_reported_with_its_path(tmp_path: Path) -> None:
    # The limit on the size of a file stands for the full disk.
    said = solve(tmp_path / "cache", before="ulimit -f 8;")
    assert "warning: cache of compiled kernels, " in said
    assert f"{tmp_path / 'cache'}" in said
    assert "cannot be written (File too large), so each run compiles anew" in said
    assert solve(tmp_path / "cache") == ""


@pytest.mark.slow
def test_without_any_folder_for_a_cache_kernels_are_compiled_and_it_is_reported(
    tmp_path: Path,
) -> None:
    # Nothing can be made below a file, not even by root; and no other place is looked at.
    (tmp_path / "file").touch()
    said = solve(
        tmp_path / "file" / "cache",
        NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator",
    )
    assert "warning: cache of compiled kernels, in no folder: " in said
    assert "each run compiles anew" in said


COMPILED = """
import numpy as np
from bft.milp import Job, Problem
from bft.milp.exact import blocks, core, dp

def kernels():
    return {name: len(each.signatures) for of in (core, blocks) for name, each in vars(of).items()
            if hasattr(each, "signatures")}

dp._compile_core()
before = kernels()
concave, steps = np.arange(301.0) ** 0.8, np.floor(np.arange(301) / 8)
jobs = [Job(f"j{j}", 1, 300, np.arange(301.0), (concave, steps)[j % 2], 9.0, 5.0) for j in range(40)]
for cost_model in ("bftrainer", "stall"):
    problem = Problem(900, 120.0, tuple(jobs), (7,) * 20 + (0,) * 20, cost_model)
    assert not dp._Posed.of(problem).is_small
    assert dp.optimum(problem, 600.0).proven
assert kernels() == before, (before, kernels())
"""


def test_what_a_search_calls_is_compiled_before_its_time_limit_counts() -> None:
    """Else the first large decision of a first run takes its time limit for compiling, and its answer is no optimum."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True, timeout=AMPLE_S)
