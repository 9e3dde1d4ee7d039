"""All policies on one node trace, with the same jobs and the same accounting.

    python benchmarks/compare_policies.py            # the bundled Summit-like trace
    python benchmarks/compare_policies.py --real     # the real log and the published 1,001 jobs (reference data)

With --node-count 512 of the real log not every job can finish, so that the outcome differs between policies.

Policies that share units take the interference of --xi; without it they are left out. `python
benchmarks/compare_policies.py --stand-in xi.csv` writes one from the measured pairs of the reference data, each of the
seven networks standing in for a measured model.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd
from _common import reference_folder

from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.engine.watcher import Silent
from bft.replay.inputs.load import Inputs, load
from bft.replay.options.options import Options
from bft.replay.options.run_spec import RunSpec
from bft.replay.policies import policy_names
from bft.replay.policies.registry import policy_type
from bft.replay.policies.solver import SolverOptions
from bft.replay.results.dedicated import dedicated_traces
from bft.replay.results.metrics import summarise
from bft.replay.trace.node_trace import NodeTrace

ROW = "{:<13} {:>9} {:>6} {:>9} {:>6} {:>12} {:>8} {:>8} {:>9} {:>6}"
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
    """Print one row a policy."""
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
    parser.add_argument(
        "--stand-in",
        metavar="FILE",
        help="write a xi table of measured stand-ins, and stop",
    )
    parser.add_argument("--policies", nargs="*", help="only these")
    parser.add_argument("-Tfwd", type=float, default=120.0)
    given = parser.parse_args()
    if given.stand_in:
        write_stand_ins(Path(given.stand_in))
        return
    files: dict[str, Any] = {}
    if given.real:
        folder = reference_folder() / "bftrainer"
        files = {
            "node_trace": str(folder / "ndstat-10sdn6-evt.tar.gz"),
            "job_bounds": str(folder / "ImageNet-imgps-Jbnd-1001J.pkl"),
            "job_curves": str(folder / "ImageNet-imgps-JNPs-1001J.pkl"),
            "node_count": given.node_count,
        }
    header = (
        "policy",
        "outcome",
        "U",
        "finished",
        "JCT h",
        "lost to pre.",
        "to resc.",
        "restarts",
        "decisions",
        "s",
    )
    print(ROW.format(*header))
    for name in given.policies or policy_names():
        shares = policy_type(name).kind.shares
        if shares and not given.xi:
            print(f"{name:<13} needs --xi")
            continue
        options = Options(**files, policy=name, tfwd_s=given.Tfwd, xi=given.xi if shares else None,
                          solver=SolverOptions("exact" if name == "milp" else "auto"))  # fmt: skip
        inputs = load(RunSpec.of(options), Silent())
        began = time.perf_counter()
        outcome = replayed(inputs.pools[0].trace, options, inputs)
        seconds = time.perf_counter() - began
        measured = summarise(
            outcome,
            [replayed(trace, options, inputs) for trace in dedicated_traces(outcome)],
        )
        work, jct = measured["outcome"], measured["jct_s"]
        row = (
            name,
            f"{work:.3e}",
            "-"
            if measured["U"] is None
            else f"{measured['U']:.3f}",  # on so few dedicated nodes nothing ever ran
            f"{measured['jobs_finished']}/{measured['jobs']}",
            f"{jct['mean'] / 3600:.1f}" if jct else "-",
            f"{measured['preemption_cost'] / work:.1%}",
            f"{measured['rescale_cost'] / work:.1%}",
            "-"
            if measured["restarts_per_job"] is None
            else f"{measured['restarts_per_job']:.2f}",
            measured["decisions"],
            f"{seconds:.1f}",
        )
        print(ROW.format(*row), flush=True)


def replayed(trace: NodeTrace, options: Options, inputs: Inputs) -> Outcome:
    """The jobs on a trace, under the policy of the options."""
    policy = RunSpec.of(options).make_policy(inputs.interference)
    return Replay(trace, inputs.jobs, policy, Rules(), inputs.interference).run()


def write_stand_ins(path: Path) -> None:
    """Medians of the measured ratios of each pair of stand-ins, for the networks that they replace."""
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
    pd.DataFrame(rows, columns=["model_a", "model_b", "xi_a", "xi_b"]).to_csv(
        path, index=False
    )
    print(f"{len(rows) // 2} pairs of {len(STAND_INS)} networks in {path}")


if __name__ == "__main__":
    main()
