"""Search for inputs that break a property: all property tests, all examples, new ones each round.

    python tests/explore.py [--minutes 60] [--workers 2] [pytest's arguments]

Each round has a seed of its own; the last one ends when the time is up. What fails is printed with its input and the
command that repeats it, and is left out from then on. Write the input down as an `@example` of the test: then
everybody tries it.
"""

from __future__ import annotations

import argparse
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


def explored(
    seed: int, seconds: float, workers: int, arguments: list[str]
) -> tuple[bool, str]:
    """One round of at most so many seconds: whether pytest came to its end, with tests failed or not, and its words."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "-m",
        "hypothesis and not browser",
        "-o",
        "faulthandler_timeout=0",  # a test may search for long
    ]
    command += [
        "--hypothesis-profile=explore",
        f"--hypothesis-seed={seed}",
        "-n",
        str(workers),
        *arguments,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as pytest:
        try:
            printed, _ = pytest.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            pytest.send_signal(signal.SIGINT)  # it tells what has failed so far
            return True, pytest.communicate()[0]
    return pytest.returncode in (0, 1), printed


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="how long to search"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    given, arguments = parser.parse_known_args()
    end, rounds, found = time.monotonic() + 60 * given.minutes, 0, dict[str, int]()
    while (left := end - time.monotonic()) > 0:
        seed, rounds = secrets.randbelow(1 << 32), rounds + 1
        known = [f"--deselect={test}" for test in found]
        whole, printed = explored(seed, left, given.workers, [*arguments, *known])
        failed = _FAILED.findall(printed)
        say(f"round {rounds}, seed {seed}: {len(failed)} tests failed")
        if failed or not whole:
            say(printed)
        if not whole:
            return 2
        found |= dict.fromkeys(failed, seed)
    say(f"{rounds} rounds, {len(found)} tests failed")
    for test, seed in found.items():
        say(
            f"  python -m pytest '{test}' --hypothesis-profile=explore --hypothesis-seed={seed}"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
