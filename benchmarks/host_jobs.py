"""What harvesting costs a machine's own jobs, by how many nodes are kept free (docs/host-jobs.md).

    python benchmarks/host_jobs.py                       # all rows
    python benchmarks/host_jobs.py --only published      # rows whose label has this text
    python benchmarks/host_jobs.py --list

The rows need the real log, the published jobs and a log of sacct (reference data). The exact dynamic programme decides;
a node returns in 120 s. Columns: starts, share of them that wait, node-hours that they wait, node-hours of training for
each of these, outcome (samples), and its change against the nodes that the log names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _common import chosen_rows, print_head, print_row, reference_folder

from bft.replay.cli.main import run
from bft.replay.options.options import Options
from bft.replay.run import execute

RETURN_TIME_S = 120.0
JOBS = "ImageNet-imgps-{}-1001J.pkl"
SACCT = "logs/slurm/xdmod-phillips.sacct.log.gz"
NAMED = {"free_first": False}
BEST = {"preset": "best"}
PUBLISHED = {"tfwd_s": 120}


@dataclass(frozen=True, slots=True)
class Row:
    """One replay: its label, its world, and its options."""

    label: str
    world: str
    options: dict[str, Any] = field(default_factory=dict)


def rows() -> Iterator[Row]:
    """Yield all rows, in the order of the table."""
    for world, setting, options, kept in (
        ("nodes 0-511", "best", {**BEST, "first_node": 0}, (0, 1, 2, 4, 8, 16)),
        ("nodes 0-511", "published", {**PUBLISHED, "first_node": 0}, (0, 4)),
        ("nodes 3072-3583", "best", {**BEST, "first_node": 3072}, (0, 4)),
        ("sacct, 46 nodes, by job", "best", BEST, (0, 2, 4, 8)),
    ):
        yield Row(f"{world}, {setting}: as named", world, {**options, **NAMED})
        for nodes in kept:
            yield Row(
                f"{world}, {setting}: {nodes} kept free",
                world,
                {**options, "reserve": nodes},
            )


def main() -> None:
    """Print one line for each row."""
    chosen = chosen_rows(rows(), __doc__)
    if not chosen:
        return
    print_head(
        "world, setting", "starts", "that wait", "node-h waiting", "break-even", "outcome, 10⁹", "change"
    )  # fmt: skip
    named = 0.0
    with TemporaryDirectory() as scratch:
        inputs = (
            ingested(Path(scratch))
            if any(row.world.startswith("sacct") for row in chosen)
            else {}
        )
        for row in chosen:
            metrics = replayed(row, inputs, Path(scratch))
            if row.label.endswith("as named"):
                named = metrics["outcome"]
            print_row(*line(row, metrics, named))


def line(row: Row, metrics: dict[str, Any], named: float) -> tuple[object, ...]:
    """Return the cells of a row; its change is against the last row with the nodes that the log names."""
    host, outcome = metrics["host"], metrics["outcome"]
    change = f"{outcome / named - 1:+.2%}" if named else "-"
    price = f"{host['break_even_price']:,.2f}" if host["break_even_price"] else "-"
    return (
        row.label,
        f"{host.get('starts', host['instants']):,}",
        f"{host['delayed']:,}",
        f"{host['waiting_node_h']:,.1f}",
        price,
        f"{outcome / 1e9:.2f}",
        change,
    )


def replayed(row: Row, inputs: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Return the metrics of a row."""
    published = reference_folder() / "bftrainer"
    world: dict[str, Any] = {
        "node_trace": str(published / "ndstat-10sdn6-evt.tar.gz"),
        "node_count": 512,
        "skip_rows": 1000,
    }
    if row.world.startswith("sacct"):
        world = {**inputs, "align_jobs": True}
    options = Options(
        **{
            "job_bounds": str(published / JOBS.format("Jbnd")),
            "job_curves": str(published / JOBS.format("JNPs")),
            "backend": "exact",
            "dedicated": False,
            "return_time_s": RETURN_TIME_S,
            **world,
            **row.options,
        }
    )
    metrics: dict[str, Any] = execute(options, scratch / "run", force=True)["metrics"]
    return metrics


def ingested(folder: Path) -> dict[str, str]:
    """Return the node trace of a log of Slurm, beside which its jobs lie."""
    trace = str(folder / "trace.parquet")
    log = str(reference_folder() / SACCT)
    with redirect_stdout(sys.stderr):
        code = run(
            [
                "ingest",
                "slurm",
                log,
                "--fields",
                "xdmod",
                "--tz",
                "UTC",
                "-o",
                trace,
            ]
        )
    assert code == 0
    return {"node_trace": trace}


if __name__ == "__main__":
    main()
