"""Packages of others, installed for a test as by a user, but offline and into a folder of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from processes import SCRIPT, result_of

ROOT = Path(__file__).parents[1]


def installed(folder: Path, scratch: Path):
    """Install the package in a folder of docs/; return what calls bft-replay where it is installed."""
    source, site = scratch / folder.name, scratch / "site"
    shutil.copytree(folder, source)  # a build leaves files beside its source
    offline = "-m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index"
    pip = [sys.executable, *offline.split(), "--target", str(site), str(source)]
    result_of(pip, check=True)
    return _caller(site, scratch)


def planted(
    modules: dict[str, str], entry_points: dict[str, dict[str, str]], scratch: Path
):
    """As `installed`, of modules by file name and entry points by group: what pip leaves behind, in no time."""
    return _caller(plant(modules, entry_points, scratch / "site"), scratch)


def plant(
    modules: dict[str, str],
    entry_points: dict[str, dict[str, str]],
    site: Path,
    package: str = "theirs",
) -> Path:
    """Leave behind what pip does for a package: modules by file name, entry points by group."""
    metadata = site / f"{package}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
    )
    lines = [
        line
        for group, points in entry_points.items()
        for line in (f"[{group}]", *(f"{name} = {points[name]}" for name in points))
    ]
    (metadata / "entry_points.txt").write_text("\n".join([*lines, ""]))
    for name, text in modules.items():
        (site / name).write_text(text)
    return site


def _caller(site: Path, scratch: Path):
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return result_of([*SCRIPT, *arguments], env=environment, cwd=scratch)

    return call
