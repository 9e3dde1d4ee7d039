"""How well fitted throughput models predict the step times of placements that were held out.

python benchmarks/fit_goodput.py [--png FOLDER]

For each application of Pollux' artifact the published model is fitted by the published objective, with two splits of
its measured placements: each held out in turn, and a random fifth held out (ten times). The error of a measurement is
|predicted / measured - 1| of its step time: median and 90th percentile. `6-16 nodes` asks the fit to all placements, of
four nodes at most, for the artifact's runs on more nodes. `--png` draws for each application instead the efficiency of
batch sizes over progress (OSDI'21, figure 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from _published import reference_folder
from _tables import print_head, print_row, program
from numpy.typing import NDArray

from bft.models.speed.applications import Application, read_application
from bft.models.speed.goodput import Observations, adascale_gain, fit_throughput


def held_out_errors(
    observed: Observations, splits: Iterable[NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """Relative errors of the measurements that each split holds out, one after the other."""
    errors = []
    for held in splits:
        test = observed[held]
        fitted = fit_throughput(observed[~held])
        predicted = fitted.step_time(test.nodes, test.replicas, test.atomic)
        errors.append(np.abs(predicted / test.step_s - 1))
    return np.concatenate(errors)


def efficiencies(application: Application) -> pd.DataFrame:
    """Efficiency of each measured batch size over the progress of the training."""
    epochs = range(len(application.epoch_ends))
    progress = np.append(0.0, application.epoch_ends[:-1]) / application.total_progress
    columns = {}
    for batch in application.validations:
        scale = batch / application.limits.initial
        columns[f"{batch} samples"] = [
            adascale_gain(*application.gradient(epoch, batch), scale) / scale
            for epoch in epochs
        ]
    return pd.DataFrame(columns, index=pd.Index(progress, name="progress"))


def draw(traces: Path, target: Path) -> list[Path]:
    """Write a picture of each application into a folder; the files."""
    from matplotlib.figure import Figure

    target.mkdir(parents=True, exist_ok=True)
    files = []
    for folder in sorted(traces.iterdir()):
        application = read_application(folder)
        figure = Figure(layout="constrained")
        efficiencies(application).plot(ax=figure.subplots(), ylabel="efficiency")
        files.append(target / f"{application.name}.png")
        figure.savefig(files[-1], dpi=110)
    return files


def main() -> None:
    """Print a row for each application, or draw."""
    parser = program(__doc__)
    parser.add_argument("--png", type=Path, metavar="FOLDER", help="draw instead")
    target = parser.parse_args().png
    traces = reference_folder() / "pollux" / "traces"
    if target:
        print(*draw(traces, target), sep="\n")
        return
    print("error of the predicted step time on held-out placements: median, p90\n")
    print_head("application", "placements", "one out", "random fifth out", "6-16 nodes")
    for folder in sorted(traces.iterdir()):
        application = read_application(folder)
        observed = application.observations
        count = len(application.steps)
        sizes = [len(table) for table in application.steps.values()]
        placement = np.repeat(np.arange(count), sizes)
        rng = np.random.default_rng(0)
        ones = (placement == k for k in range(count))
        fifths = (
            np.isin(placement, rng.choice(count, count // 5, replace=False))
            for _ in range(10)
        )
        nodes, replicas, atomic, step_s, _ = application.means.T
        beyond = fit_throughput(observed).step_time(nodes, replicas, atomic)
        errors = (
            held_out_errors(observed, ones),
            held_out_errors(observed, fifths),
            np.abs(beyond / step_s - 1),
        )
        cells = []
        for of in errors:
            median, high = np.percentile(of, [50, 90])
            cells.append(f"{median:.1%}, {high:.1%}")
        print_row(application.name, count, *cells)


if __name__ == "__main__":
    main()
