"""`--preset best` compared with the published setting and with the bounds, and the effect of its parts.

    python benchmarks/beyond.py                      # all rows: half an hour; docs/objectives.md explains them
    python benchmarks/beyond.py --only "512 nodes"   # rows whose label has this text
    python benchmarks/beyond.py --list

The rows need the real log and the published jobs (reference data). The exact dynamic programme (DP) decides.
The share is that of the bound (docs/bounds.md). JCT is over all submitted jobs, those not done counted to the end;
behind JCT and makespan stands the lower bound. `without` is the longest that a job was in the system without units.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _published import published_log, sacct_log
from _tables import chosen, print_head, print_row, program

import bft

HOUR_S = 3600.0
PUBLISHED = {"tfwd": 120}
SHORT = {"tfwd": 10}
BEST = {"preset": "best"}
FREE = {"tfwd": 60, "max_jobs": 0}  # `best` without an objective
OBJECTIVES = ("efficiency", "useful-time", "power:0", "power:0.5", "power:0.75", "power:0.5+srpt:0.1")  # fmt: skip
AGEINGS = ("power:0.5", "power:0.5+ageing:120:1", "power:0.5+ageing:60:1.5", "power:0.5+ageing:60:2")  # fmt: skip
SPREAD = {"scale_arrivals": 30}
ROWS: dict[str, dict[str, Any]] = {
    "512 nodes: published": PUBLISHED,
    "512 nodes: published, Tfwd 10": SHORT,
    "512 nodes: best": BEST,
    **{
        f"512 nodes: efficiency, {count} in play": {**FREE, "max_jobs": count, "objective": "efficiency"}
        for count in (10, 30, 100)
    },
    **{f"512 nodes: {name}, all in play": {**FREE, "objective": name} for name in OBJECTIVES},
    "512 nodes, submissions x 30: published": {**PUBLISHED, **SPREAD},
    **{
        f"512 nodes, submissions x 30: {name}": {**FREE, "objective": name, **SPREAD}
        for name in AGEINGS
    },
    **{
        f"nodes {first}-{first + 511}: best": {**BEST, "first_node": first}
        for first in (1024, 2048, 4000)
    },
    "4,734 nodes: published": {**PUBLISHED, "node_count": None},
    "4,734 nodes: best": {**BEST, "node_count": None},
    "46 nodes of a sacct log: published": PUBLISHED,
    "46 nodes of a sacct log: published, Tfwd 10": SHORT,
    "46 nodes of a sacct log: best": BEST,
}  # fmt: skip


def main() -> None:
    """Print one line for each row."""
    rows, _ = chosen(ROWS, program(__doc__))
    print_head(
        "row", "outcome, 10⁹ samples", "share", "mean JCT, h", "makespan, ks", "longest without, h", "jobs done"
    )  # fmt: skip
    with TemporaryDirectory() as scratch:
        for label, options in rows.items():
            if "sacct" in label:
                world = {**sacct_log(Path(scratch)), "align_jobs": True}
            else:
                world = {**published_log(), "node_count": 512, "skip_rows": 1000}
            run = bft.replay(**{"backend": "exact", "dedicated": False, **world, **options})  # fmt: skip
            print_row(label, *cells(run.metrics))


def cells(metrics: dict[str, Any]) -> tuple[object, ...]:
    """What a row shows of the metrics of its replay."""
    bounds = metrics["bounds"]
    jct_h, bound_h = (
        mean_s / HOUR_S
        for mean_s in (metrics["jct_to_end_mean_s"], bounds["jct_mean_s"])
    )
    makespan = "-"
    if metrics["makespan_s"]:
        makespan = f"{metrics['makespan_s'] / 1e3:.1f} / {bounds['makespan_s'] / 1e3:.1f}"  # fmt: skip
    return (
        f"{metrics['outcome'] / 1e9:.2f}",
        f"{metrics['share_of_bound']:.1%}",
        f"{jct_h:.1f} / {bound_h:.1f}",
        makespan,
        f"{metrics['without_units_s']['longest'] / HOUR_S:.1f}",
        metrics["jobs_finished"],
    )


if __name__ == "__main__":
    main()
