"""How well ξ and memory are estimated: the published co-location measurements, each left out in turn.

    python benchmarks/estimate_xi.py [--every N]

Left out is, in turn, a pair of configurations (`--every N`: every N-th of the 1,388 rows), a configuration (all rows in
which this model, batch size and amp appear), a pair of models (all rows in which the two meet). The estimator is fitted
to the rest and asked for both ratios of each row left out; truth is the measured ratio, where below 1 taken as 1.
Beside it: always 1, and the mean ratio of the victim's model in the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
import pandas as pd
from _published import reference_folder
from _tables import print_head, print_row, program

from bft.models.sharing.xi_estimator import XiEstimator
from bft.models.sharing.xi_table import Measurement, UnitMemory

MIB_PER_GIB = 1024


def named(model: str, amp: int) -> str:
    """Name of a model; mixed precision is another program."""
    return f"{model}+amp" if amp else model


def estimates(
    rest: Sequence[Measurement], left_out: Sequence[Measurement]
) -> list[tuple[float, float, float]]:
    """For both sides of each row left out: the estimate, 1, and the mean of the victim's model."""
    seen = defaultdict(list)
    for row in rest:
        for side in (row, row.swapped()):
            seen[side.model_a].append(max(side.xi_a, 1.0))
    means = {model: float(np.mean(ratios)) for model, ratios in seen.items()}
    overall = float(np.mean(list(chain.from_iterable(seen.values()))))
    estimator = XiEstimator(rest)
    rows = []
    for row in left_out:
        found = estimator.estimate(row.model_a, row.model_b, row.batch_a, row.batch_b)
        # None: a configuration alone of its model.
        ratios = (1.0, 1.0) if found is None else (found.xi_a, found.xi_b)
        for ratio, model in zip(ratios, (row.model_a, row.model_b), strict=True):
            rows.append((ratio, 1.0, means.get(model, overall)))
    return rows


def main() -> None:
    """Print errors of the ratios and of the memory."""
    parser = program(__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="leave out every N-th pair only")  # fmt: skip
    every = parser.parse_args().every
    folder = reference_folder() / "lucid"
    pairs = pd.read_csv(folder / "xi_pairs_from_colocate_info.csv")
    rows = [
        Measurement(
            named(pair.model1, pair.amp1),
            named(pair.model2, pair.amp2),
            pair.xi1,
            pair.xi2,
            pair.batchsize1,
            pair.batchsize2,
        )
        for pair in pairs.itertuples()
    ]
    folds: dict[str, dict[Hashable, list[int]]] = {
        "a pair": {at: [at] for at in range(0, len(rows), every)},
        "a configuration": defaultdict(list),
        "a pair of models": defaultdict(list),
    }
    for at, row in enumerate(rows):
        models, batches = (row.model_a, row.model_b), (row.batch_a, row.batch_b)
        for configuration in set(zip(models, batches, strict=True)):
            folds["a configuration"][configuration].append(at)
        folds["a pair of models"][frozenset(models)].append(at)
    print("mean absolute error of ξ\n")
    print_head("left out", "ratios", "estimate", "always 1", "mean of the model")
    for what, groups in folds.items():
        truth, answers = [], []
        for group in groups.values():
            rest = [row for at, row in enumerate(rows) if at not in set(group)]
            left_out = [rows[at] for at in group]
            answers += estimates(rest, left_out)
            truth += [max(xi, 1.0) for row in left_out for xi in (row.xi_a, row.xi_b)]
        errors = np.abs(np.array(answers) - np.array(truth)[:, None]).mean(axis=0)
        print_row(what, f"{len(truth):,}", *(f"{error:.3f}" for error in errors))
    alone = pd.read_csv(folder / "single_data.csv").itertuples()
    memory = UnitMemory(
        (named(row.model, row.amp), float(row.batchsize), row.gmem / MIB_PER_GIB)
        for row in alone
    )
    shares = []
    for row in pd.read_csv(folder / "colocate_info.csv").itertuples():
        bounds = (
            memory.bound_gib(named(row.model1, row.amp1), row.batchsize1),
            memory.bound_gib(named(row.model2, row.amp2), row.batchsize2),
        )
        if None not in bounds:
            shares.append(row.gmem / MIB_PER_GIB / sum(bounds))
    median, high = np.percentile(shares, [50, 95])
    print(
        f"\nmemory of a pair over the sum of both bounds: {median:.2f}, p95 {high:.2f}"
    )


if __name__ == "__main__":
    main()
