"""Lucid's artifact on Venus as inputs and arguments of `bft-replay compare` (benchmarks/README.md).

    python benchmarks/lucid_venus.py FOLDER

Writes into FOLDER: the jobs with the artifact's estimates and sharing scores, the virtual clusters (those of Lucid
without the profiler's nodes), measured pairs, the forecast, counts of submissions, and the arguments policies.args and
ablations.args, whose paths are as FOLDER is given. Reference data are not in the repository: BFT_REFERENCE names
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
--jobs {folder}/jobs.csv --jobs-format venus
--variant "fifo: --policy fifo --cluster {folder}/vcs.csv"
--variant "sjf: --policy sjf --cluster {folder}/vcs.csv"
--variant "qssf: --policy qssf --cluster {folder}/vcs.csv"
--variant "tiresias: --policy tiresias-l --option compat=lucid --cluster {folder}/vcs.csv"
--variant "lucid: {lucid}"
"""
LUCID = (
    "--policy lucid --option compat=lucid --cluster {folder}/vcs-lucid.csv --xi {folder}/xi.csv "
    "--option unit-memory={memory} --set forecast={folder}/forecast.csv"
)
# Lucid without one of its models each.
ABLATIONS = """\
--jobs {folder}/jobs.csv --jobs-format venus
--variant "lucid: {lucid}"
--variant "without packing: {lucid} --set packing=no"
--variant "without forecast: {none}"
--variant "always busy: {busy}"
--variant "without estimator: {lucid} --set estimator=none"
"""


def prepare(lucid: Path, folder: Path, vcs: Sequence[str] = ()) -> None:
    """Write the inputs and arguments of all virtual clusters, or of some."""
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
    for source, target, kind in (
        ("Venus_throughput_pred", "forecast", "pred"),
        ("cluster_throughput", "submissions", "submit"),
    ):
        counts = pd.read_csv(lucid / f"{source}.csv.gz")
        counts = counts[["time", f"{kind}_gpu_job", f"{kind}_gpu_num"]]
        counts.columns = ["time", "jobs", "units"]
        counts.to_csv(folder / f"{target}.csv", index=False)

    ours = LUCID.format(folder=folder, memory=UNIT_MEMORY_GIB)
    (folder / "policies.args").write_text(POLICIES.format(folder=folder, lucid=ours))
    steady = {
        name: ours.replace(f"{folder}/forecast.csv", name) for name in ("none", "busy")
    }
    (folder / "ablations.args").write_text(
        ABLATIONS.format(folder=folder, lucid=ours, **steady)
    )


def main() -> None:
    """Write them."""
    parser = program(__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    prepare(reference_folder() / "lucid", given.folder)
    print(f"xargs bft-replay compare < {given.folder}/policies.args, or ablations.args")


if __name__ == "__main__":
    main()
