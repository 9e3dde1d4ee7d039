"""Whether the tests find out when the code is wrong. A mutant is a small mistake; tests that pass beside it miss it.

    python tests/mutants/run.py [engine] [exact] [intake] [--workers 2] [--only TEXT] [--nearest]

Each of the `.toml` files beside this one lists mutants: a file, a piece of its text that stands there once, what a
mistake would make of it, and why that is wrong. Each mutant is tried in a copy of the tree below the temporary
directory. One whose text is found no more has to be written anew for the code as it is.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = ("datasets", "milp", "models", "replay")
# A mistake may make a replay or a search endless. On a busy machine the slowest folder of tests takes a part of this.
ENDLESS_S = 1800.0
FAILED = 1


def copied(folder: Path) -> Path:
    """A copy of the tree, in which `bft` is imported from the copy's own folders."""
    skipped = shutil.ignore_patterns(
        ".*", "build", "__pycache__", "*.egg-info", "*-itrOut*", "_build"
    )
    shutil.copytree(ROOT, folder, ignore=skipped)
    package = folder / "build" / "typing" / "bft"
    package.mkdir(parents=True)
    for path in (*(folder / name for name in PACKAGES), *(folder / "api").iterdir()):
        (package / path.name).symlink_to(path)
    return folder


def tried(
    mutant: dict[str, Any], nearest: list[str], tests: list[str], copy: Path
) -> str:
    """What becomes of a mutant: killed and by which test, SURVIVED, or why it could not be tried."""
    path, old = copy / mutant["file"], mutant["old"]
    whole = path.read_text("utf-8")
    if whole.count(old) != 1:
        return f"STALE: its text stands {whole.count(old)} times in {mutant['file']}"
    path.write_text(whole.replace(old, mutant["new"]), "utf-8")
    try:
        return (
            asked(nearest, copy) or (asked(tests, copy) if tests else "") or "SURVIVED"
        )
    finally:
        path.write_text(whole, "utf-8")


def asked(tests: list[str], copy: Path) -> str:
    """Which of these tests finds out, or why they cannot be run; nothing when all pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-rf",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    environment = os.environ | {
        "PYTHONPATH": str(copy / "build" / "typing"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        ran = subprocess.run(
            [*command, "-m", "not slow and not browser"],
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ENDLESS_S,
        )
    except subprocess.TimeoutExpired:
        return "killed: endless"
    failed = [
        line.split()[1]
        for line in ran.stdout.splitlines()
        if line.startswith("FAILED ")
    ]
    if ran.returncode == 0:
        return ""
    if ran.returncode < 0:
        return "killed: the process crashed"
    if ran.returncode != FAILED or not failed:
        return f"BROKEN: no test could run\n{ran.stdout[-2000:]}"
    return f"killed by {failed[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "areas",
        nargs="*",
        default=["engine", "exact", "intake"],
        help="lists of mutants; all",
    )
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time")
    parser.add_argument("--only", default="", help="mutants whose reason has this text")
    parser.add_argument(
        "--nearest", action="store_true", help="ask the nearest tests alone"
    )
    given = parser.parse_args()
    lists = {
        area: tomllib.loads((HERE / f"{area}.toml").read_text("utf-8"))
        for area in given.areas
    }
    todo = [
        (area, each)
        for area, known in lists.items()
        for each in known["mutant"]
        if given.only in each["why"]
    ]
    free: SimpleQueue[Path] = SimpleQueue()

    def try_one(one: tuple[str, dict[str, Any]]) -> str:
        copy, (area, mutant) = free.get(), one
        try:
            return tried(
                mutant,
                lists[area]["nearest"][mutant["file"]],
                [] if given.nearest else lists[area]["tests"],
                copy,
            )
        finally:
            free.put(copy)

    alive = 0
    with (
        tempfile.TemporaryDirectory() as below,
        ThreadPoolExecutor(given.workers) as pool,
    ):
        for worker in range(given.workers):
            free.put(copied(Path(below) / f"copy-{worker}"))
        for (area, mutant), result in zip(todo, pool.map(try_one, todo), strict=True):
            alive += not result.startswith("killed")
            print(f"{area}: {mutant['why']}: {result}", flush=True)  # noqa: T201
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(  # noqa: T201
        f"{len(todo)} mutants, {alive} not killed; {used.ru_utime + used.ru_stime:.0f} s of CPU"
    )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
