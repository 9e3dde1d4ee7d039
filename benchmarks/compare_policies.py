"""All policies on one node trace, with the same jobs and the same accounting: a row of Markdown for each.

    python benchmarks/compare_policies.py            # the bundled Summit-like trace
    python benchmarks/compare_policies.py --real     # the real log and the published 1,001 jobs (reference data)

With --node-count 512 of the real log not every job can finish, so that the outcome differs between policies.

Policies that share units are left out without --real; with it each of the seven networks has the interference of a
measured model of the reference data, which stands in for it.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from _published import published_log, reference_folder
from _tables import print_head, print_row, program

import bft
from bft.replay.policies import policy_names
from bft.replay.policies.registry import policy_type

# Network of the workload -> measured model that stands in for it.
STAND_INS = {
    "AlexNet": "PointNet",
    "DenseNet": "EfficientNet",
    "MnasNet": "MobileNetV2",
    "MobileNet": "MobileNetV3",
    "ResNet18": "ResNet18",
    "ShuffleNet": "MobileNetV3",
    "VGG16": "VGG",
}


def main() -> None:
    """Print one row a policy, the largest outcome first."""
    parser = program(__doc__)
    parser.add_argument("--real", action="store_true", help="the real log and the published jobs")  # fmt: skip
    parser.add_argument("--node-count", type=int, help="of the real log, the first nodes only")  # fmt: skip
    parser.add_argument("--policies", nargs="*", default=policy_names(), help="only these")  # fmt: skip
    given = parser.parse_args()
    world: dict[str, Any] = {"tfwd": 120, "time_limit": 1e6}
    if given.real:
        world |= published_log() | {"node_count": given.node_count}
    runs = {}
    with TemporaryDirectory() as scratch:
        xi = Path(scratch) / "xi.csv"
        if given.real:
            stand_ins().to_csv(xi, index=False)
        for name in given.policies:
            options: dict[str, Any] = {"backend": "exact"} if name == "milp" else {}
            if policy_type(name).traits.shares:
                options["xi"] = xi
            if name == "schedule" or ("xi" in options and not given.real):
                continue  # needs a file of its own
            runs[name] = bft.replay(policy=name, **world, **options).metrics
    print_head(
        "policy", "outcome, 10⁹ samples", "U", "jobs finished", "mean JCT, h", "lost to preemption", "to rescaling"
    )  # fmt: skip
    for name, metrics in sorted(runs.items(), key=lambda run: -run[1]["outcome"]):
        work, jct, utility = metrics["outcome"], metrics["jct_s"], metrics["U"]
        print_row(
            name,
            f"{work / 1e9:.1f}",
            # Without it nothing ran on dedicated nodes.
            "-" if utility is None else f"{utility:.3f}",
            metrics["jobs_finished"],
            f"{jct['mean'] / 3600:.1f}" if jct else "-",
            f"{metrics['preemption_cost'] / work:.1%}",
            f"{metrics['rescale_cost'] / work:.1%}",
        )


def stand_ins() -> pd.DataFrame:
    """Return a ξ table of networks: medians of the measured ratios of each pair of their stand-ins."""
    pairs = pd.read_csv(
        reference_folder() / "lucid" / "xi_pairs_from_colocate_info.csv"
    )
    other_side = {"model1": "model2", "model2": "model1", "xi1": "xi2", "xi2": "xi1"}
    both = pd.concat([pairs, pairs.rename(columns=other_side)])
    groups = both.groupby(["model1", "model2"])[["xi1", "xi2"]]
    known = groups.median().clip(lower=1)
    rows = []
    for a, model_a in STAND_INS.items():
        for b, model_b in STAND_INS.items():
            if a <= b and (model_a, model_b) in known.index:
                rows.append((a, b, *known.loc[(model_a, model_b)]))
    # The published tables write names in small letters.
    rows += [(a.lower(), b.lower(), xi_a, xi_b) for a, b, xi_a, xi_b in rows]
    return pd.DataFrame(rows, columns=["model_a", "model_b", "xi_a", "xi_b"])


if __name__ == "__main__":
    main()
