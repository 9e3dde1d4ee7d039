"""The small set of packages suffices, and CBC is not used unless requested."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import AMPLE_S

ROOT = Path(__file__).parents[1]
PACKAGES = ("api", "milp", "models", "replay", "datasets")
UNREACHABLE = re.compile(
    r"connection broken|Max retries exceeded|Network is unreachable|name resolution|timed out"
)


def test_an_exact_replay_loads_no_cbc(tmp_path: Path) -> None:
    # A library that is none: whoever loads it fails, and the run says so.
    environment = {**os.environ, "PMIP_CBC_LIBRARY": str(tmp_path / "none.so")}
    command = [sys.executable, "-c", "from bft.replay.cli import main; main()"]
    options = [
        "-Tfwd",
        "120",
        "--backend",
        "exact",
        "--no-u",
        "-v",
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(
        [*command, *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "solver process" not in done.stderr
    assert not re.search("cbc", done.stderr, flags=re.IGNORECASE)


@pytest.mark.slow
def test_the_small_set_replays_what_all_packages_do(tmp_path: Path) -> None:
    target, source = tmp_path / "environment", tmp_path / "source"
    for folder in PACKAGES:
        shutil.copytree(
            ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    subprocess.run([sys.executable, "-m", "venv", target], check=True, timeout=AMPLE_S)
    pip = [
        target / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    for wanted in (["-r", str(ROOT / "requirements-small.txt")], [str(source)]):
        done = subprocess.run(
            [*pip, *wanted], capture_output=True, text=True, check=False
        )
        if done.returncode and UNREACHABLE.search(done.stderr):
            pytest.skip("the small set cannot be installed: no package index answers")
        assert done.returncode == 0, done.stderr
    options = ["-Tfwd", "120", "--no-u", "--out"]
    done = subprocess.run(
        [target / "bin" / "bft-replay", *options, "small"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Non-default parameters" not in done.stderr  # mipster prints them
    listed = subprocess.run(
        [target / "bin" / "bft-replay", "list", "backends"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"cbc +available", listed.stdout)
    ours = [
        sys.executable,
        "-c",
        "from bft.replay.cli import main; main()",
        *options,
        "all",
        "--backend",
        "exact",
    ]
    subprocess.run(ours, cwd=tmp_path, capture_output=True, check=True, timeout=AMPLE_S)
    for name in ("jobs.parquet", "allocations.parquet"):  # steps name the backend
        assert (tmp_path / "small" / name).read_bytes() == (
            tmp_path / "all" / name
        ).read_bytes()
