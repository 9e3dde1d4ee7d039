"""Lucid's artifact on Venus as inputs and plans of `bft-replay compare`; benchmarks/README.md lists what each shows.

    python benchmarks/lucid_venus.py FOLDER

Writes into FOLDER: the jobs with the artifact's estimates and sharing scores, the virtual clusters (those of Lucid
without the profiler's nodes), measured pairs, the forecast, counts of submissions, and the plans policies.toml and
ablations.toml, whose paths are as FOLDER is given. Reference data are not in the repository: BFT_REFERENCE names
their folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from _published import read_colocation, reference_folder
from _tables import program

UNITS_PER_NODE = 8
# The artifact's stand-in for estimates below 0, and the memory of its units.
POOR_ESTIMATE_S = 1000.0
UNIT_MEMORY_GIB = 24.0
# Where the profiler's two nodes come from.
PROFILER_FROM = ("vc8Gr", "vcefl")
POLICIES = """\
# Lucid's artifact: all policies on all virtual clusters.
[options]
jobs = "{folder}/jobs.csv"
jobs-format = "venus"
cluster = "{folder}/vcs.csv"
[variants.fifo]
policy = "fifo"
[variants.sjf]
policy = "sjf"
[variants.qssf]
policy = "qssf"
[variants.tiresias]
policy = "tiresias-l"
compat = "lucid"
[variants.lucid]
{lucid}
"""
LUCID = """\
policy = "lucid"
compat = "lucid"
cluster = "{folder}/vcs-lucid.csv"
xi = "{folder}/xi.csv"
unit-memory = {memory}
"set forecast" = "{folder}/forecast.csv"
"""
ABLATIONS = """\
# Lucid without one of its models each.
[options]
jobs = "{folder}/jobs.csv"
jobs-format = "venus"
[variants.lucid]
{lucid}
[variants."without packing"]
{lucid}"set packing" = "no"
[variants."without forecast"]
{none}
[variants."always busy"]
{busy}
[variants."without estimator"]
{lucid}"set estimator" = "none"
"""


def prepare(lucid: Path, folder: Path, vcs: Sequence[str] = ()) -> None:
    """Write the inputs and plans of all virtual clusters, or of some."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = pd.read_csv(lucid / "vc_config.csv", index_col=0)["num"]
    nodes = nodes.loc[list(vcs)] if vcs else nodes
    jobs = pd.read_csv(lucid / "venus_sept_jobs_relative.csv.gz")
    estimates = pd.read_csv(
        lucid / "Venus_Sept_ebm_weekly_updated.csv.gz", index_col="job_id"
    )["priority"]
    # The artifact's stand-in for estimates below 0.
    jobs["estimate_s"] = jobs["job_id"].map(
        estimates.where(estimates >= 0, POOR_ESTIMATE_S)
    )
    labels = pd.read_csv(lucid / "single_data.csv").rename(
        columns={"label": "sharing_score"}
    )
    profile = ["model", "dataset", "batchsize", "amp"]
    jobs = jobs.merge(
        labels[[*profile, "sharing_score"]],
        on=profile,
        how="left",
        validate="many_to_one",
    )
    jobs[jobs["vc"].isin(nodes.index)].to_csv(folder / "jobs.csv", index=False)

    sizes = pd.DataFrame(
        {"vc": nodes.index, "nodes": nodes.to_numpy(), "units_per_node": UNITS_PER_NODE}
    )
    sizes.to_csv(folder / "vcs.csv", index=False)
    sizes["nodes"] -= sizes["vc"].isin(PROFILER_FROM)
    sizes.to_csv(folder / "vcs-lucid.csv", index=False)
    measured = read_colocation(lucid / "colocate_info.csv").measurements
    columns = ["model_a", "model_b", "xi_a", "xi_b", "batch_a", "batch_b"]
    pairs = [[getattr(row, column) for column in columns] for row in measured]
    pd.DataFrame(pairs, columns=columns).to_csv(folder / "xi.csv", index=False)
    names = {
        "pred_gpu_job": "jobs",
        "pred_gpu_num": "units",
        "submit_gpu_job": "jobs",
        "submit_gpu_num": "units",
    }
    for source, target in (
        ("Venus_throughput_pred", "forecast"),
        ("cluster_throughput", "submissions"),
    ):
        counts = pd.read_csv(lucid / f"{source}.csv.gz").rename(columns=names)
        columns = ["time", "jobs", "units"]
        counts[columns].to_csv(folder / f"{target}.csv", index=False)

    ours = LUCID.format(folder=folder, memory=UNIT_MEMORY_GIB)
    (folder / "policies.toml").write_text(POLICIES.format(folder=folder, lucid=ours))
    steady = {
        name: ours.replace(f"{folder}/forecast.csv", name) for name in ("none", "busy")
    }
    (folder / "ablations.toml").write_text(
        ABLATIONS.format(folder=folder, lucid=ours, **steady)
    )


def main() -> None:
    """Write them."""
    parser = program(__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    prepare(reference_folder() / "lucid", given.folder)
    print(
        f"{given.folder}/policies.toml, {given.folder}/ablations.toml: plans for bft-replay compare --plan"
    )


if __name__ == "__main__":
    main()
