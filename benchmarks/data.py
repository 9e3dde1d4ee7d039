"""Check which reference data are there, and that our figures were measured with them (sources: docs/data.md).

python -m benchmarks.data --check     each file that tests and benchmarks use: there, absent, or another content
python -m benchmarks.data --write     make the list anew from the folder that BFT_REFERENCE names

`data.sha256` is in the form of sha256sum: `cd $BFT_REFERENCE && sha256sum -c .../benchmarks/data.sha256` does the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_suffix(".sha256")


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check(folder: Path) -> int:
    """Print one line per folder, and each file that is absent or different; return 1 if there is one."""
    states: dict[str, Counter[str]] = {}
    for line in LIST.read_text().splitlines():
        expected, name = line.split("  ", 1)
        path = folder / name
        state = (
            "absent"
            if not path.is_file()
            else "same"
            if digest(path) == expected
            else "different"
        )
        states.setdefault(name.split("/")[0], Counter())[state] += 1
        if state != "same":
            print(f"{state:<10}{name}")
    for top, counts in states.items():
        print(
            f"{top:<12}"
            + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        )
    return int(any(set(counts) != {"same"} for counts in states.values()))


def main() -> None:
    """Check, or write the list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--check", action="store_true", help="compare the files with the list"
    )
    group.add_argument("--write", action="store_true", help="make the list anew")
    asked, folder = parser.parse_args(), Path(os.environ.get("BFT_REFERENCE", ""))
    if not os.environ.get("BFT_REFERENCE") or not folder.is_dir():
        parser.error(
            "set BFT_REFERENCE to the folder that holds the data: docs/data.md"
        )
    if asked.check:
        sys.exit(check(folder))
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.parent != folder
    )
    LIST.write_text(
        "".join(
            f"{digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files
        )
    )


if __name__ == "__main__":
    main()
