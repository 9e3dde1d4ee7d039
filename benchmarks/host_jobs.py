"""What harvesting costs a machine's own jobs, by how many nodes are kept free (docs/host-jobs.md).

    python benchmarks/host_jobs.py                       # all rows
    python benchmarks/host_jobs.py --only published      # rows whose label has this text
    python benchmarks/host_jobs.py --list

The rows need the real log, the published jobs and a log of sacct (reference data). The exact dynamic programme decides;
a node returns in 120 s. Columns: starts, share of them that wait, node-hours that they wait, node-hours of training for
each of these, outcome (samples), and its change against the nodes that the log names.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _published import published_log, sacct_log
from _tables import chosen, print_head, print_row, program

import bft

BEST = {"preset": "best"}
NAMED = "as named"
ROWS: dict[str, dict[str, Any]] = {}
for setting, options, kept in (
    ("nodes 0-511, best", {**BEST, "first_node": 0}, (0, 1, 2, 4, 8, 16)),
    ("nodes 0-511, published", {"tfwd": 120, "first_node": 0}, (0, 4)),
    ("nodes 3072-3583, best", {**BEST, "first_node": 3072}, (0, 4)),
    ("sacct, 46 nodes, by job, best", BEST, (0, 2, 4, 8)),
):
    ROWS[f"{setting}: {NAMED}"] = {**options, "free_first": False}
    for nodes in kept:
        ROWS[f"{setting}: {nodes} kept free"] = {**options, "reserve": nodes}


def main() -> None:
    """Print one line for each row; its change is against the last row with the nodes that the log names."""
    rows, _ = chosen(ROWS, program(__doc__))
    print_head(
        "world, setting", "starts", "that wait", "node-h waiting", "break-even", "outcome, 10⁹", "change"
    )  # fmt: skip
    named = None
    with TemporaryDirectory() as scratch:
        for label, options in rows.items():
            if label.startswith("sacct"):
                world = {**sacct_log(Path(scratch)), "align_jobs": True}
            else:
                world = {**published_log(), "node_count": 512, "skip_rows": 1000}
            common = {"backend": "exact", "dedicated": False, "return_time": 120}
            metrics = bft.replay(**common, **world, **options).metrics
            host, outcome = metrics["host"], metrics["outcome"]
            if label.endswith(NAMED):
                named = outcome
            price = host["break_even_price"]
            print_row(
                label,
                f"{host.get('starts', host['instants']):,}",
                f"{host['delayed']:,}",
                f"{host['waiting_node_h']:,.1f}",
                f"{price:,.2f}" if price else "-",
                f"{outcome / 1e9:.2f}",
                f"{outcome / named - 1:+.2%}" if named else "-",
            )


if __name__ == "__main__":
    main()
