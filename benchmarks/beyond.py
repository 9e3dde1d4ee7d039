"""`--preset best` compared with the published setting and with the bounds, and the effect of its parts.

    python benchmarks/beyond.py                      # all rows: half an hour; docs/objectives.md explains them
    python benchmarks/beyond.py --only "512 nodes"   # rows whose label has this text
    python benchmarks/beyond.py --list

The rows need the real log and the published jobs (reference data), but for the generated traces. The exact dynamic
programme (DP) decides. The share is that of the bound (docs/bounds.md). JCT is
over all submitted jobs, those not done counted to the end; behind JCT and makespan stands the lower bound.
`without` is the longest that a job was in the system without units.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _common import chosen_rows, print_head, print_row, reference_folder

from bft.datasets import generate_dnn_jobs, generate_node_trace
from bft.models import JobTable, jobs_from_frame
from bft.replay.cli.main import run
from bft.replay.engine.loop import Replay
from bft.replay.inputs.load import Inputs, load
from bft.replay.inputs.notes import Watcher
from bft.replay.options.options import Options
from bft.replay.results.bounds import Bounds, beside_bounds, bounds_of
from bft.replay.results.metrics import summarise
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_files import trace_from_frame

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class World:
    """Nodes and jobs.

    Parameters
    ----------
    first_node, nodes
        Of the real log; None: all.
    costs
        Factor on Tcup and Tcdw.
    spread
        Factor on the time over which jobs are submitted.
    jobs
        The published table, by its name.
    seed
        Of a generated trace and its jobs; None: the real log.
    sacct
        A log of Slurm that is ingested instead, within the reference data; its columns are XDMoD's.
    """

    first_node: int = 0
    nodes: int | None = 512
    costs: float = 1.0
    spread: float = 1.0
    jobs: str = "ImageNet-imgps-{}-1001J"
    seed: int | None = None
    sacct: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One replay: its label, its nodes and jobs, and its options."""

    label: str
    world: World
    options: dict[str, Any] = field(default_factory=dict)


PUBLISHED = {"tfwd_s": 120}
BEST = {"preset": "best"}
FREE = {"tfwd_s": 60, "max_jobs": 0}  # `best` without an objective
SETTINGS: dict[str, dict[str, Any]] = {
    "published": PUBLISHED,
    "published, Tfwd 10": {"tfwd_s": 10},
    "best": BEST,
    **{
        f"efficiency, {count} in play": {
            "tfwd_s": 60,
            "max_jobs": count,
            "objective": "efficiency",
        }
        for count in (10, 30, 100)
    },
    **{
        f"{objective}, all in play": {**FREE, "objective": objective}
        for objective in (
            "efficiency",
            "useful-time",
            "power:0",
            "power:0.5",
            "power:0.75",
            "power:0.5+srpt:0.1",
        )
    },
}
SCRATCH = TemporaryDirectory()
SACCT = "logs/slurm/xdmod-phillips.sacct.log.gz"
AGEINGS = (
    "power:0.5",
    *(f"power:0.5+ageing:{each}" for each in ("120:1", "60:1.5", "60:2")),
)


def rows() -> Iterator[Row]:
    """All rows, in the order of the table."""
    for label, options in SETTINGS.items():
        yield Row(f"512 nodes: {label}", World(), options)
    for label, options in (
        ("published", PUBLISHED),
        *((name, {**FREE, "objective": name}) for name in AGEINGS),
    ):
        yield Row(f"512 nodes, submissions x 30: {label}", World(spread=30), options)
    for label, options in (("published", PUBLISHED), ("best", BEST)):
        yield Row(f"512 nodes, costs x 10: {label}", World(costs=10), options)
    for tfwd_s in (60, 120, 300, 600):
        restart = {**BEST, "tfwd_s": tfwd_s, "restart_overhead": 180}
        yield Row(
            f"512 nodes, costs x 10, restarts 180 s: best, Tfwd {tfwd_s}",
            World(costs=10),
            restart,
        )
    for first in (1024, 2048, 4000):
        for label, costs in (("best", 1), ("costs x 10: best", 10)):
            yield Row(
                f"nodes {first}-{first + 511}: {label}", World(first, costs=costs), BEST
            )
    for label, options in (("published", PUBLISHED), ("best", BEST)):
        yield Row(
            f"512 nodes, ShuffleNets: {label}",
            World(jobs="hps-shufflenet-{}-1000J"),
            options,
        )
    for label, options in (("published", PUBLISHED), ("best", BEST)):
        yield Row(
            f"512 nodes, cost model stall: {label}",
            World(),
            {**options, "cost_model": "stall"},
        )
        yield Row(
            f"512 nodes, speed-ups: {label}",
            World(jobs="ImageNet-spdup-{}-1001J"),
            options,
        )
    srpt = {
        f"best with srpt:{by}, no ageing": {**FREE, "objective": f"power:0.5+srpt:{by}"}
        for by in (0.1, 0.3)
    }
    for label, options in (("published", PUBLISHED), ("best", BEST), *srpt.items()):
        yield Row(f"4,734 nodes: {label}", World(nodes=None), options)
    for label, options in (
        ("published", PUBLISHED),
        ("published, Tfwd 10", {"tfwd_s": 10}),
        ("best", BEST),
    ):
        yield Row(
            f"46 nodes of a sacct log: {label}", World(nodes=None, sacct=SACCT), options
        )
    for seed in (1, 2, 3):
        for label, options in (
            ("published", PUBLISHED),
            ("published, Tfwd 10", {"tfwd_s": 10}),
            ("best", BEST),
        ):
            yield Row(f"generated trace {seed}: {label}", World(seed=seed), options)


def main() -> None:
    """Print one line for each row."""
    chosen = chosen_rows(rows(), __doc__)
    if not chosen:
        return
    print_head(
        "row", "outcome, 10⁹ samples", "share", "mean JCT, h", "makespan, ks", "longest without, h", "jobs done"
    )  # fmt: skip
    for row in chosen:
        print_row(*line(row))


def line(row: Row) -> tuple[object, ...]:
    """Replay a row and return its cells."""
    inputs = inputs_of(row.world)
    pool, bounds = inputs.pools[0], bounds_in(row.world)
    options = Options(**{"backend": "exact", **row.options})
    without = {
        at for at, job in enumerate(pool.jobs) if job.name in set(inputs.never_run)
    }
    began = time.perf_counter()
    outcome = Replay(
        pool.trace,
        pool.jobs,
        options.make_policy(),
        options.rules,
        None,
        without,
    ).run()
    print(f"{row.label}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    metrics = {**summarise(outcome), **beside_bounds(outcome, bounds)}
    share = f"{outcome.work / bounds.bound:.1%}" if bounds.bound else "-"
    jct = f"{metrics['jct_to_end_mean_s'] / HOUR_S:.1f} / {(bounds.jct_mean_s or 0) / HOUR_S:.1f}"
    makespan = "-"
    if metrics["makespan_s"] and bounds.makespan_s:
        makespan = f"{metrics['makespan_s'] / 1e3:.1f} / {bounds.makespan_s / 1e3:.1f}"
    longest = metrics["without_units_s"]["longest"] / HOUR_S
    return (
        row.label,
        f"{outcome.work / 1e9:.2f}",
        share,
        jct,
        makespan,
        f"{longest:.1f}",
        metrics["jobs_finished"],
    )


@cache
def bounds_in(world: World) -> Bounds:
    """The bound without costs of changes, so that it is one number for all costs."""
    inputs = inputs_of(replace(world, costs=1.0))
    return bounds_of(
        [(pool.trace, pool.jobs) for pool in inputs.pools], without=inputs.never_run
    )


@cache
def inputs_of(world: World) -> Inputs:
    """The nodes and jobs of a world."""
    if world.seed is not None:
        trace, jobs = generated(world.seed)
        loaded = load(Options(), Watcher())
        pool = replace(
            loaded.pools[0], trace=trace, jobs=jobs, positions=tuple(range(len(jobs)))
        )
        return replace(loaded, pools=(pool,), jobs=jobs, never_run=())
    folder = reference_folder() / "bftrainer"
    options = Options(
        node_trace=str(folder / "ndstat-10sdn6-evt.tar.gz")
        if world.sacct is None
        else ingested(world.sacct),
        job_bounds=str(folder / f"{world.jobs.format('Jbnd')}.pkl"),
        job_curves=str(folder / f"{world.jobs.format('JNPs')}.pkl"),
        first_node=world.first_node,
        node_count=world.nodes,
        skip_rows=1000 if world.sacct is None else None,
        scale_arrivals=world.spread,
        align_jobs=world.sacct is not None,
    )
    loaded = load(options, Watcher())
    pool = replace(loaded.pools[0], jobs=dearer(loaded.jobs, world.costs))
    return replace(loaded, pools=(pool,), jobs=pool.jobs)


@cache
def ingested(log: str) -> str:
    """The node trace of a log of Slurm."""
    trace = str(Path(SCRATCH.name) / "trace.parquet")
    with redirect_stdout(sys.stderr):
        code = run(
            [
                "ingest",
                "slurm",
                str(reference_folder() / log),
                "--fields",
                "xdmod",
                "--tz",
                "UTC",
                "-o",
                trace,
            ]
        )
    assert code == 0
    return trace


def generated(seed: int) -> tuple[NodeTrace, JobTable]:
    """A Summit-like trace of 512 nodes and four days, and 300 jobs, more than it can finish."""
    table = generate_node_trace(nodes=512, days=4.0, seed=seed, start="2021-02-10")
    trace = trace_from_frame(
        table.frame, source=f"generated {seed}", metadata=table.metadata
    )
    return trace, jobs_from_frame(
        generate_dnn_jobs(jobs=300, seed=seed, first_submit="2021-02-10"),
        source="generated",
    )


def dearer(jobs: JobTable, factor: float) -> JobTable:
    """The same jobs, with the costs of rescales and preemptions multiplied by a factor."""
    table = tuple(
        replace(job, tcup_s=factor * job.tcup_s, tcdw_s=factor * job.tcdw_s)
        for job in jobs
    )
    return replace(jobs, jobs=table)


if __name__ == "__main__":
    main()
