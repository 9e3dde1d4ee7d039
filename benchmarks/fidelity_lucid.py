"""Our policies on the Venus trace of September 2020 against Lucid's artifact: averages, and jobs one by one.

    python benchmarks/fidelity_lucid.py [--only TEXT...]

Reference data are not in the repository: BFT_REFERENCE names their folder.
"""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
from _published import reference_folder
from _tables import chosen, print_head, print_row, program
from lucid_venus import UNIT_MEMORY_GIB, prepare

import bft
from bft.models.workloads.rigid_jobs import VENUS_ORIGIN_NS


class Case(NamedTuple):
    """A policy of the artifact: average JCT and queueing in s that it published, its column of averages, our options.

    `jobs` names its results job by job, a file in golden/; empty where there is none.
    """

    jct_s: float
    queue_s: float
    column: str
    jobs: str
    options: dict[str, Any]


FILES = {"jobs": "jobs.csv", "jobs_format": "venus", "cluster": "vcs.csv"}
# The artifact's stopped jobs last a second longer.
PREEMPTIVE = {**FILES, "jobs": "longer.csv", "restart_overhead": "8:40,64:60"}
TIRESIAS = {
    "policy": "tiresias-l",
    "policy_options": {"limits": "18000", "placement": "all", "interval_s": "60"},
}
LUCID = {
    **FILES,
    "policy": "lucid",
    "cluster": "vcs-lucid.csv",
    "xi": "xi.csv",
    "unit_memory": UNIT_MEMORY_GIB,
}
FORECAST = {"forecast": "forecast.csv"}
COMPAT = {"compat": "lucid"}
SRTF = (12609.90, 829.72, "srtf", "srtf")
LAS = (14700.04, 2915.99, "tiresias", "tiresias")
SHARED = (12886.13, 915.24, "lucid", "")
CASES = {
    "fifo": Case(65720.54, 53951.27, "fifo", "fifo", {**FILES, "policy": "fifo"}),
    "sjf": Case(21095.02, 9325.75, "sjf", "sjf", {**FILES, "policy": "sjf"}),
    "qssf": Case(15548.88, 3779.61, "qssf_ebm", "", {**FILES, "policy": "qssf"}),
    "srtf": Case(*SRTF, {**PREEMPTIVE, "policy": "srtf"}),
    "srtf, compat": Case(*SRTF, {**PREEMPTIVE, "policy": "srtf", **COMPAT}),
    "tiresias-l": Case(*LAS, {**PREEMPTIVE, **TIRESIAS}),
    "tiresias-l, compat": Case(*LAS, {**PREEMPTIVE, **TIRESIAS, **COMPAT}),
    "lucid, no sharing": Case(
        15098.91, 3387.95, "lucid_sharing_off", "", {**LUCID, **COMPAT, "policy_options": {**FORECAST, "sharing": "no"}}
    ),
    "lucid": Case(*SHARED, {**LUCID, **COMPAT, "policy_options": FORECAST}),
    "lucid as published": Case(*SHARED, {**LUCID, "policy_options": FORECAST}),
}  # fmt: skip


def write_inputs() -> None:
    """Write what the cases read into the working directory."""
    prepare(reference_folder() / "lucid", Path())
    jobs = pd.read_csv("jobs.csv")
    jobs.assign(duration=jobs["duration"] + 1).to_csv("longer.csv", index=False)


def averages(column: str) -> pd.Series:
    """Average JCT of virtual clusters in the artifact, s; some are not published."""
    golden = reference_folder() / "lucid" / "golden"
    name = "lucid_upstream_by_vc" if column == "lucid" else "avg_jct_by_vc"
    table = pd.read_csv(golden / f"{name}.csv").set_index("vc").drop(index="all", errors="ignore")  # fmt: skip
    return table["avg_jct" if column == "lucid" else column].astype(float)


def same_end(run: bft.Run, jobs: str) -> pd.Series:
    """Which of the artifact's jobs end in the same second in our replay, by the name of the job."""
    file = reference_folder() / "lucid" / "golden" / f"{jobs}.jobs.csv.gz"
    theirs = pd.read_csv(file, dtype={"job_id": str}, index_col="job_id")["end_time"]
    since = run.jobs["finish"] - pd.Timestamp(VENUS_ORIGIN_NS, tz="UTC")
    ours = since.dt.total_seconds().round()
    return ours[theirs.index] == theirs


def main() -> None:
    """Print a row for each case."""
    cases, _ = chosen(CASES, program(__doc__))
    print_head(
        "policy", "by virtual cluster", "same end per job", "ours, all jobs", "artifact", "off by", "median",
        "queueing", "artifact's",
    )  # fmt: skip
    with TemporaryDirectory() as scratch, chdir(scratch):
        write_inputs()
        for name, case in cases.items():
            run = bft.replay(dedicated=False, **case.options)
            jct = run.jobs["jct_s"]
            # First, as errors cancel in a mean.
            off = jct.groupby(run.jobs["vc"]).mean() / averages(case.column) - 1
            print_row(
                name,
                f"{off.min():+.1%} to {off.max():+.1%}",
                f"{same_end(run, case.jobs).mean():.1%}" if case.jobs else "-",
                f"{jct.mean():,.2f}",
                f"{case.jct_s:,.2f}",
                f"{jct.mean() / case.jct_s - 1:+.1%}",
                f"{jct.median():,.1f}",
                f"{run.metrics['without_units_s']['mean']:,.2f}",
                f"{case.queue_s:,.2f}",
            )


if __name__ == "__main__":
    main()
