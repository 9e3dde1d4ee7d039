"""How well xi and memory are estimated: the published co-location measurements, each left out in turn.

    python benchmarks/estimate_xi.py [--every N]

Left out is, in turn,

- one pair of configurations: one of the 1,388 rows (`--every N` takes every N-th, for a quick look);
- one configuration (model, batch size, amp): all rows in which it appears on either side, 56 times;
- one pair of models (with amp): all rows of any batch sizes in which the two meet, 174 times.

The estimator is fitted to the rest and asked for both ratios of each row left out. Truth is the measured ratio, where
below 1 taken as 1 (`raw`: as measured). Against it: always 1, the mean ratio of the victim's model (all its batch
sizes, amp apart) in the rest, and that mean with amp and without taken together.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from _common import reference_folder

from bft.models.sharing.xi_estimator import XiEstimator
from bft.models.sharing.xi_table import Measurement, UnitMemory

Predict: TypeAlias = Callable[[Measurement], tuple[float, float]]
MIB_PER_GIB = 1024


def main() -> None:
    """Print errors of the ratios and of the memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="leave out every N-th pair only",
    )
    given = parser.parse_args()
    rows = measurements()
    print(
        f"{'left out':<20}{'answer':<18}{'ratios':>7}{'MAE':>9}{'RMSE':>9}{'median':>9}{'raw MAE':>9}{'raw RMSE':>9}"
    )
    for what, folds in (
        ("one pair", [[at] for at in range(0, len(rows), given.every)]),
        ("one configuration", by_configuration(rows)),
        ("one pair of models", by_models(rows)),
    ):
        flags: Counter[str] = Counter()
        for name, truth, answers in cross_validated(rows, folds, flags):
            error, raw = np.abs(answers - np.maximum(truth, 1)), np.abs(answers - truth)
            print(
                f"{what:<20}{name:<18}{len(truth):>7,}{error.mean():>9.4f}{np.sqrt((error**2).mean()):>9.4f}"
                f"{np.median(error):>9.4f}{raw.mean():>9.4f}{np.sqrt((raw**2).mean()):>9.4f}"
            )
        print(
            f"{'':<20}flags: {', '.join(f'{count:,} {flag}' for flag, count in sorted(flags.items()))}"
        )
    memory()


def measurements() -> list[Measurement]:
    """The published pairs; amp makes a model of its own."""
    frame = pd.read_csv(
        reference_folder() / "lucid" / "xi_pairs_from_colocate_info.csv"
    )
    return [
        Measurement(
            named(row.model1, row.amp1),
            named(row.model2, row.amp2),
            row.xi1,
            row.xi2,
            row.batchsize1,
            row.batchsize2,
        )
        for row in frame.itertuples()
    ]


def named(model: str, amp: int) -> str:
    """Name of a model; mixed precision is another program."""
    return f"{model}+amp" if amp else model


def by_configuration(rows: Sequence[Measurement]) -> list[list[int]]:
    """Rows of each configuration."""
    return _folds(
        [{(row.model_a, row.batch_a), (row.model_b, row.batch_b)} for row in rows]
    )


def by_models(rows: Sequence[Measurement]) -> list[list[int]]:
    """Rows of each pair of models."""
    return _folds([{tuple(sorted((row.model_a, row.model_b)))} for row in rows])


def _folds(keys: Sequence[Iterable[object]]) -> list[list[int]]:
    groups: dict[object, list[int]] = {}
    for at, names in enumerate(keys):
        for name in names:
            groups.setdefault(name, []).append(at)
    return list(groups.values())


def cross_validated(
    rows: Sequence[Measurement], folds: Sequence[Sequence[int]], flags: Counter[str]
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Name, measured ratios and answers of the estimator and of the baselines."""
    truth: list[float] = []
    answers: dict[str, list[float]] = {}
    for fold in folds:
        out = set(fold)
        rest = [row for at, row in enumerate(rows) if at not in out]
        estimator = XiEstimator(rest)

        def estimated(
            row: Measurement, estimator: XiEstimator = estimator
        ) -> tuple[float, float]:
            estimate = estimator.estimate(
                row.model_a, row.model_b, row.batch_a, row.batch_b
            )
            if estimate is None:  # a configuration alone of its model
                return 1.0, 1.0
            flags[estimate.flag] += 1
            return estimate.xi_a, estimate.xi_b

        ways: dict[str, Predict] = {
            "estimator": estimated,
            "always 1": lambda _: (1.0, 1.0),
            "model mean": model_mean(rest, lambda model: model),
            "mean, amp or not": model_mean(
                rest, lambda model: model.removesuffix("+amp")
            ),
        }
        for at in fold:
            truth += [rows[at].xi_a, rows[at].xi_b]
            for name, way in ways.items():
                answers.setdefault(name, []).extend(way(rows[at]))
    return [
        (name, np.array(truth), np.array(values)) for name, values in answers.items()
    ]


def model_mean(rest: Iterable[Measurement], family: Callable[[str], str]) -> Predict:
    """A baseline: the mean ratio of the victim's model, for any partner."""
    seen: dict[str, list[float]] = {}
    for row in rest:
        for side in (row, row.swapped()):
            seen.setdefault(family(side.model_a), []).append(max(side.xi_a, 1.0))
    means = {name: float(np.mean(ratios)) for name, ratios in seen.items()}
    overall = float(np.mean([ratio for ratios in seen.values() for ratio in ratios]))
    return lambda row: (
        means.get(family(row.model_a), overall),
        means.get(family(row.model_b), overall),
    )


def memory() -> None:
    """Print how well memory follows the batch size, and how much two jobs take together."""
    folder = reference_folder() / "lucid"
    solo = pd.read_csv(folder / "single_data.csv")
    measured = [
        (named(row.model, row.amp), float(row.batchsize), row.gmem / MIB_PER_GIB)
        for row in solo.itertuples()
    ]
    table = UnitMemory(measured)
    affine, bound, out = [], [], {"between": [], "above": [], "below": []}
    for model, batch, gib in measured:
        curve = table.curves[model]
        if len(curve.batches) < 2:
            continue
        fixed, slope = curve.affine
        affine.append(fixed + slope * batch - gib)
        bound.append(curve.bound_gib(batch) - gib)
        rest = UnitMemory(
            entry for entry in measured if entry != (model, batch, gib)
        ).curves[model]
        where = (
            "above"
            if batch > rest.batches[-1]
            else "below"
            if batch < rest.batches[0]
            else "between"
        )
        out[where].append((rest.bound_gib(batch) - gib) / gib)
    print(
        f"\nmemory of {len(affine)} solo runs of {len(table.curves)} models (amp apart), GiB"
    )
    print(
        f"  affine fit: mean error {np.abs(affine).mean():.3f}, worst {np.abs(affine).max():.3f}"
    )
    print(
        f"  bound: mean {np.mean(bound):.3f} above the measurement, minimum {np.min(bound):.3f}"
    )
    for where, errors in out.items():
        print(
            f"  left out, {where:<8} {len(errors):>3}: bound / measured - 1: median {np.median(errors):+.1%}, "
            f"mean size {np.abs(errors).mean():.1%}, below the measured {np.mean(np.array(errors) < -0.01):.0%}"
        )
    pairs = pd.read_csv(folder / "colocate_info.csv")
    ratio = np.array(
        [
            row.gmem
            / MIB_PER_GIB
            / sum(
                table.bound_gib(named(model, amp), batch) or np.nan
                for model, amp, batch in (
                    (row.model1, row.amp1, row.batchsize1),
                    (row.model2, row.amp2, row.batchsize2),
                )
            )
            for row in pairs.itertuples()
        ]
    )
    quantiles = ", ".join(
        f"p{q} {np.percentile(ratio, q):.3f}" for q in (1, 5, 25, 50, 75, 95, 99, 100)
    )
    print(f"memory of {len(ratio):,} pairs over the sum of both alone: {quantiles}")
    for margin in (1.0, 1.1, 1.2, 1.3):
        print(f"  above {margin:.1f} times the sum: {np.mean(ratio > margin):.1%}")


if __name__ == "__main__":
    main()
