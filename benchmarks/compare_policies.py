"""All policies on one node trace, with the same jobs and the same accounting: a row of Markdown for each.

    python benchmarks/compare_policies.py            # the bundled Summit-like trace
    python benchmarks/compare_policies.py --real     # the real log and the published 1,001 jobs (reference data)

With --node-count 512 of the real log not every job can finish, so that the outcome differs between policies.

Policies that share units take the interference of --xi. Without it they are left out, or with --real each of the
seven networks has that of a measured model of the reference data, which stands in for it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from _common import print_head, print_row, published_log, reference_folder

from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.inputs.load import Inputs, load
from bft.replay.inputs.notes import Watcher
from bft.replay.options.options import Options
from bft.replay.policies import policy_names
from bft.replay.policies.registry import policy_type
from bft.replay.results.dedicated import dedicated_traces
from bft.replay.results.metrics import summarise
from bft.replay.trace.node_trace import NodeTrace

# Policies that need files of their own.
UNFIT = {"schedule": "needs a schedule"}
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--real", action="store_true", help="the real log and the published jobs"
    )
    parser.add_argument(
        "--node-count", type=int, help="of the real log, the first nodes only"
    )
    parser.add_argument("--xi", help="xi table, for the policies that share")
    parser.add_argument("--policies", nargs="*", help="only these")
    parser.add_argument("-Tfwd", type=float, default=120.0)
    given = parser.parse_args()
    files: dict[str, Any] = {}
    if given.real:
        files = {**published_log(), "node_count": given.node_count}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        xi = given.xi
        if given.real and xi is None:
            xi = str(Path(scratch) / "xi.csv")
            stand_ins().to_csv(xi, index=False)
        for name in given.policies or policy_names():
            shares = policy_type(name).kind.shares
            if name in UNFIT or (shares and xi is None):
                print(f"{name}: {UNFIT.get(name, 'needs --xi')}", file=sys.stderr)
                continue
            options = Options(**files, policy=name, tfwd_s=given.Tfwd, xi=xi if shares else None,
                              backend="exact" if name == "milp" else "auto", time_limit_s=1e6)  # fmt: skip
            began = time.process_time()
            rows.append(measured(options))
            seconds = time.process_time() - began
            print(f"{name}: {seconds:.0f} s CPU", file=sys.stderr)
    print_head(
        "policy",
        "outcome, 10⁹ samples",
        "U",
        "jobs finished",
        "mean JCT, h",
        "lost to preemption",
        "to rescaling",
    )
    for row in sorted(rows, key=lambda row: -float(row[1])):
        print_row(*row)


def measured(options: Options) -> list[str]:
    """Replay the jobs under a policy: cells of the table."""
    inputs = load(options, Watcher())
    outcome = replayed(inputs.pools[0].trace, options, inputs)
    dedicated = [
        replayed(trace, options, inputs) for trace in dedicated_traces(outcome)
    ]
    metrics = summarise(outcome, dedicated)
    work, jct, utility = metrics["outcome"], metrics["jct_s"], metrics["U"]
    return [
        str(options.policy),
        f"{work / 1e9:.1f}",
        "-" if utility is None else f"{utility:.3f}",  # nothing ran on dedicated nodes
        str(metrics["jobs_finished"]),
        f"{jct['mean'] / 3600:.1f}" if jct else "-",
        f"{metrics['preemption_cost'] / work:.1%}",
        f"{metrics['rescale_cost'] / work:.1%}",
    ]


def replayed(trace: NodeTrace, options: Options, inputs: Inputs) -> Outcome:
    """The jobs on a trace, under the policy of the options."""
    policy = options.make_policy(inputs.interference)
    return Replay(trace, inputs.jobs, policy, Rules(), inputs.interference).run()


def stand_ins() -> pd.DataFrame:
    """Return a xi table of networks: medians of the measured ratios of each pair of their stand-ins."""
    pairs = pd.read_csv(
        reference_folder() / "lucid" / "xi_pairs_from_colocate_info.csv"
    )
    swapped = pairs.rename(
        columns={"model1": "model2", "model2": "model1", "xi1": "xi2", "xi2": "xi1"}
    )
    known = (
        pd.concat([pairs, swapped])
        .groupby(["model1", "model2"])[["xi1", "xi2"]]
        .median()
        .clip(lower=1)
    )
    rows = [
        (a, b, *known.loc[(STAND_INS[a], STAND_INS[b])])
        for a in STAND_INS
        for b in STAND_INS
        if a <= b and (STAND_INS[a], STAND_INS[b]) in known.index
    ]
    # The published tables write names in small letters.
    rows += [(a.lower(), b.lower(), xi_a, xi_b) for a, b, xi_a, xi_b in rows]
    return pd.DataFrame(rows, columns=["model_a", "model_b", "xi_a", "xi_b"])


if __name__ == "__main__":
    main()
