"""How well fitted throughput models predict the step times of placements that were held out.

python benchmarks/fit_goodput.py [--seed N] [--png FOLDER]

For each application of Pollux' artifact the published model is fitted by the published objective, with two splits of
its measured placements: each held out in turn, and a random fifth held out (ten times). `larger half`, for
comparison, holds out what a scheduler really extrapolates to: all placements of more replicas than half the most. The
error of a measurement is |predicted / measured - 1| of its step time; its median over all held-out ones is to be at
most 10 %. `6-16 nodes` asks the fit to all placements, of four nodes at most, for the artifact's runs on more nodes.
`alike` is the floor: how far measured placements of equal nodes, replicas and batch, which the model cannot
tell apart, lie from their own median.

`--png` draws instead, for each application: the efficiency of batch sizes over progress, and the throughput of
consolidated placements, as fitted and as measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from _common import reference_folder
from numpy.typing import NDArray

from bft.models.speed.applications import Application, read_application
from bft.models.speed.goodput import Observations, adascale_gain, fit_throughput
from bft.replay.report import write_charts
from bft.replay.report.chart import Axis, Chart, Curve, Curves

MOST = 0.10


def held_out_errors(
    observed: Observations, splits: Iterator[NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """Relative errors of the measurements that each split holds out, one after the other."""
    errors = []
    for held in splits:
        fitted = fit_throughput(observed[~held])
        test = observed[held]
        errors.append(
            np.abs(
                fitted.step_time(test.nodes, test.replicas, test.atomic) / test.step_s
                - 1
            )
        )
    return np.concatenate(errors)


def alike(observed: Observations) -> float:
    """Median relative distance from the median of the placements that the model cannot distinguish."""
    keys = np.stack([observed.nodes, observed.replicas, observed.atomic], axis=1)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.ravel()
    middle = np.array(
        [np.median(observed.step_s[group == k]) for k in range(group.max() + 1)]
    )[group]
    return float(np.median(np.abs(middle / observed.step_s - 1)))


def efficiency_chart(application: Application) -> Chart:
    """Efficiency of each measured batch size over the progress of the training (OSDI'21, figure 2)."""
    ends = application.epoch_ends
    progress = np.concatenate([[0.0], ends[:-1]]) / application.total_progress
    initial = application.limits.initial
    curves = []
    for batch in application.validations:
        scale = batch / initial
        gains = [
            adascale_gain(*application.gradient(epoch, batch), scale)
            for epoch in range(len(ends))
        ]
        curves.append(Curve(f"{batch} samples", progress, np.array(gains) / scale))
    table = pd.DataFrame(
        {"progress": progress, **{curve.name: curve.y for curve in curves}}
    )
    drawing = Curves(
        Axis("progress of the training", "share"),
        Axis("efficiency", "share"),
        tuple(curves),
    )
    return Chart(
        f"{application.name}-efficiency",
        f"Efficiency of {application.name}",
        "",
        drawing,
        table,
    )


def throughput_chart(application: Application) -> Chart:
    """Samples/s by replicas, at the batch a replica that was measured most often: measured (medians), and fitted."""
    observed = application.observations
    sizes, counts = np.unique(observed.atomic, return_counts=True)
    atomic = sizes[np.argmax(counts)]
    fitted = fit_throughput(observed)
    curves, rows = [], []
    for nodes in np.unique(observed.nodes):
        own = (observed.nodes == nodes) & (observed.atomic == atomic)
        replicas = np.unique(observed.replicas[own])
        if not len(replicas):
            continue
        steps = np.array(
            [
                np.median(observed.step_s[own & (observed.replicas == r)])
                for r in replicas
            ]
        )
        measured = replicas * atomic / steps
        model = fitted.throughput(nodes, replicas, atomic)
        where = f"{nodes:g} node{'s' if nodes > 1 else ''}"
        curves += [
            Curve(f"{where}, measured", replicas, measured),
            Curve(f"{where}, fitted", replicas, model),
        ]
        rows += [(nodes, *row) for row in zip(replicas, measured, model, strict=True)]
    table = pd.DataFrame(rows, columns=["nodes", "replicas", "measured", "fitted"])
    drawing = Curves(
        Axis(f"replicas of {atomic:g} samples"), Axis("samples/s"), tuple(curves)
    )
    return Chart(
        f"{application.name}-throughput",
        f"Throughput of {application.name}",
        "",
        drawing,
        table,
    )


def draw(traces: Path, target: Path) -> list[Path]:
    """Write both charts of each application as PNG into a folder; the files."""
    target.mkdir(parents=True, exist_ok=True)
    applications = [read_application(folder) for folder in sorted(traces.iterdir())]
    charts = [
        make(application)
        for application in applications
        for make in (efficiency_chart, throughput_chart)
    ]
    return write_charts(charts, target, "png")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random split")
    parser.add_argument("--png", type=Path, metavar="FOLDER", help="draw instead")
    given = parser.parse_args()
    if given.png is not None:
        for file in draw(reference_folder() / "pollux" / "traces", given.png):
            print(file)
        return
    seed = given.seed
    print(
        "median (90th percentile) of the relative error of the predicted step time on held-out placements, %"
    )
    head = f"{'application':<12} {'placements':>10} {'rows':>5} {'one out':>14} {'random fifth':>14}"
    print(f"{head} {'larger half':>14} {'6-16 nodes':>14} {'alike':>6} {'fit ms':>7}")
    worst = 0.0
    for folder in sorted((reference_folder() / "pollux" / "traces").iterdir()):
        application = read_application(folder)
        observed = application.observations
        ring = np.repeat(
            np.arange(len(application.steps)),
            [len(table) for table in application.steps.values()],
        )
        count = len(application.steps)
        rng = np.random.default_rng(seed)
        ones = (ring == k for k in range(count))
        fifths = (
            np.isin(ring, rng.choice(count, count // 5, replace=False))
            for _ in range(10)
        )
        large = iter([observed.replicas > observed.replicas.max() / 2])
        errors = [held_out_errors(observed, splits) for splits in (ones, fifths, large)]
        started = time.perf_counter()
        fitted = fit_throughput(observed)
        seconds = time.perf_counter() - started
        nodes, replicas, atomic, step_s, _ = application.means.T
        beyond = np.abs(fitted.step_time(nodes, replicas, atomic) / step_s - 1)
        worst = max(worst, *(float(np.median(held)) for held in errors[:2]))
        shown = (np.percentile(held, [50, 90]) * 100 for held in (*errors, beyond))
        cells = [f"{median:6.1f} ({high:5.1f})" for median, high in shown]
        line = f"{application.name:<12} {count:>10} {len(observed):>5} " + " ".join(
            cells
        )
        print(f"{line} {alike(observed) * 100:6.1f} {seconds * 1e3:7.1f}", flush=True)
    print(
        f"worst median {worst:.1%}, to be at most {MOST:.0%}: {'held' if worst <= MOST else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
