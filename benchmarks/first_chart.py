"""Time until a report shows its first chart, by the page's own performance marks, in headless Chromium.

    python benchmarks/first_chart.py REPORT.html [--rounds 5] [--limit 3]

Each round is a fresh browser. Needs the extra `browser` and Debian's chromium.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from statistics import median

WAIT_MS = 120_000
MARKED = "() => performance.getEntriesByName('first chart').length"


def first_chart_s(report: Path, chromium: str) -> float:
    """Seconds from opening a page to its first chart."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(report.resolve().as_uri())
        page.wait_for_function(MARKED, timeout=WAIT_MS)
        ms = page.evaluate("performance.getEntriesByName('first chart')[0].startTime")
        browser.close()
    return float(ms) / 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--limit", type=float, default=3.0, help="seconds that are accepted"
    )
    given = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium here: `make test-browser` installs it")
    taken = [first_chart_s(given.report, chromium) for _ in range(given.rounds)]
    held = "held" if max(taken) <= given.limit else "MISSED"
    size = given.report.stat().st_size / 1e6
    print(
        f"{given.report.name}, {size:.1f} MB: first chart after {' '.join(f'{seconds:.2f}' for seconds in taken)} s"
    )
    print(f"median {median(taken):.2f} s, at most {given.limit:g} s: {held}")


if __name__ == "__main__":
    main()
