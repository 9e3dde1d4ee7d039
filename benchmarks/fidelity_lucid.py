"""Our policies on the Venus trace of September 2020 against Lucid's artifact: averages, and jobs one by one.

Reference data are not in the repository: BFT_REFERENCE names their folder. `python
benchmarks/fidelity_lucid.py [policy...] [--vc NAME...]` replays some policies, or some virtual clusters, only.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from bft.models import Job, JobTable
from bft.models.workloads.rigid_jobs import VENUS_ORIGIN_NS, read_venus_jobs
from bft.replay import Replay, Rules, always_idle
from bft.replay.engine.ledger import JobRecord
from bft.replay.engine.rules import Interference
from bft.replay.policies import Policy
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.lucid.orchestrator import Lucid
from bft.replay.policies.lucid.profiler import Profiled
from bft.replay.policies.qssf import QuasiShortestServiceFirst
from bft.replay.policies.shortest import ShortestFirst, ShortestRemainingFirst
from bft.replay.policies.tiresias import TiresiasL

sys.path.insert(0, str(Path(__file__).parent))
from _colocation import read_colocation
from _published import reference_folder
from _tables import print_head, print_row

UNITS_PER_NODE = 8
# The artifact's stand-in for estimates below 0, its stopped jobs' overhead, and the memory of its units.
POOR_ESTIMATE_S = 1000.0
RESTARTS = ((8, 40.0), (10**6, 60.0))
UNIT_MEMORY_GIB = 24.0
# Where the profiler's two nodes come from.
PROFILER_FROM = ("vc8Gr", "vcefl")
DAYS = 400


@dataclass(frozen=True)
class Venus:
    """The trace as the artifact replays it.

    `jobs` have the columns estimate_s and sharing_score; `nodes` says how many each virtual cluster has.
    """

    jobs: JobTable
    nodes: dict[str, int]
    interference: Interference
    forecast: str
    folder: Path

    @property
    def window(self) -> tuple[int, int]:
        """Long enough for all policies, UTC ns; it begins at a full minute."""
        start = min(job.tsub_ns for job in self.jobs) // 60_000_000_000 * 60_000_000_000
        return start, start + DAYS * 86_400 * 1_000_000_000


def load(folder: Path, scratch: Path) -> Venus:
    """Read the artifact's data; `scratch` gets the forecast in our form."""
    jobs = read_venus_jobs(folder / "venus_sept_jobs_relative.csv.gz")
    estimates = pd.read_csv(
        folder / "Venus_Sept_ebm_weekly_updated.csv.gz", index_col="job_id"
    )["priority"]
    estimates = estimates.where(estimates >= 0, POOR_ESTIMATE_S)
    estimates.index = estimates.index.astype(str)
    labels = {
        (f"{row.model}{'+amp' * row.amp}", row.batchsize): row.label
        for row in pd.read_csv(folder / "single_data.csv").itertuples()
    }
    known = estimates.to_dict()

    def stated(job: Job) -> Job:
        columns = {
            "estimate_s": known[job.name],
            "sharing_score": labels[job.model, job.batch_size],
        }
        return replace(job, extra={**job.extra, **columns})

    with (folder / "vc_config.csv").open() as lines:
        nodes = {name: int(count) for name, count in list(csv.reader(lines))[1:]}
    forecast = pd.read_csv(folder / "Venus_throughput_pred.csv.gz")
    forecast = forecast.rename(
        columns={"pred_gpu_job": "jobs", "pred_gpu_num": "units"}
    )
    path = scratch / "venus-forecast.csv"
    forecast[["time", "jobs", "units"]].to_csv(path, index=False)
    xi = Interference(read_colocation(folder / "colocate_info.csv"))
    return Venus(
        JobTable(tuple(stated(job) for job in jobs), jobs.source),
        nodes,
        xi,
        str(path),
        folder,
    )


def lasting_longer(jobs: JobTable, seconds: float = 1.0) -> JobTable:
    """The same jobs, each with some more seconds of work."""
    return JobTable(
        tuple(replace(job, pmax=job.pmax + seconds) for job in jobs), jobs.source
    )


def replay(
    venus: Venus,
    jobs: JobTable,
    policy: Callable[[], Policy],
    nodes: dict[str, int],
    rules: Rules,
    vcs: Iterable[str],
) -> list[JobRecord]:
    """Each virtual cluster on its own."""
    start, end = venus.window
    members: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        members[job.vc].append(job)
    records: list[JobRecord] = []
    for vc in vcs:
        trace = always_idle(nodes[vc], start, end, units_per_node=UNITS_PER_NODE)
        table = JobTable(tuple(members[vc]))
        records += (
            Replay(trace, table, policy(), rules, venus.interference).run().records
        )
    return records


def lucid_records(
    venus: Venus, vcs: Iterable[str], *, sharing: bool = True, compat: bool = True
) -> tuple[list[JobRecord], Profiled]:
    """Lucid with its profiler, whose nodes come from two virtual clusters."""

    def policy() -> Lucid:
        return Lucid(
            sharing=sharing,
            compat=compat,
            forecast=venus.forecast,
            interference=venus.interference,
            unit_memory_gib=UNIT_MEMORY_GIB,
        )

    start, end = venus.window
    profiled = policy().stage_before(
        venus.jobs, start_ns=start, end_ns=end, units_per_node=UNITS_PER_NODE
    )
    assert profiled is not None
    nodes = {vc: count - (vc in PROFILER_FROM) for vc, count in venus.nodes.items()}
    wanted = set(vcs)
    records = replay(venus, profiled.jobs, policy, nodes, Rules(max_jobs=0), vcs)
    return [
        record for record in profiled.rejoin(records) if record.job.vc in wanted
    ], profiled


@dataclass(frozen=True)
class Case:
    """A policy of the artifact, and ours.

    Parameters
    ----------
    avg_jct_s, avg_queue_s
        Of the published artifact.
    golden
        Its results, job by job: a file in golden/; empty where there is none.
    within
        Accepted deviation of the average JCT.
    """

    name: str
    avg_jct_s: float
    avg_queue_s: float
    records: Callable[[Venus, list[str]], list[JobRecord]]
    golden: str = ""
    by_vc: str = ""
    within: float = 0.03


def _plain(
    policy: Callable[[], Policy],
) -> Callable[[Venus, list[str]], list[JobRecord]]:
    return lambda venus, vcs: replay(
        venus, venus.jobs, policy, venus.nodes, Rules(max_jobs=0), vcs
    )


def _preemptive(
    policy: Callable[[], Policy],
) -> Callable[[Venus, list[str]], list[JobRecord]]:
    rules = Rules(max_jobs=0, restart_overhead=RESTARTS)
    return lambda venus, vcs: replay(
        venus, lasting_longer(venus.jobs), policy, venus.nodes, rules, vcs
    )


def _srtf_compat() -> ShortestRemainingFirst:
    return ShortestRemainingFirst(compat=True)


def _tiresias() -> TiresiasL:
    return TiresiasL(limits=(18_000.0,), placement="all", interval_s=60.0)


def _tiresias_compat() -> TiresiasL:
    return TiresiasL(limits=(18_000.0,), placement="all", interval_s=60.0, compat=True)


def _lucid(**options: bool) -> Callable[[Venus, list[str]], list[JobRecord]]:
    return lambda venus, vcs: lucid_records(venus, vcs, **options)[0]


CASES = (
    Case("fifo", 65720.54, 53951.27, _plain(Fifo), "fifo", "fifo", within=0.0001),
    Case("sjf", 21095.02, 9325.75, _plain(ShortestFirst), "sjf", "sjf", within=0.0001),
    Case(
        "qssf",
        15548.88,
        3779.61,
        _plain(QuasiShortestServiceFirst),
        "",
        "qssf_ebm",
        within=0.01,
    ),
    Case("srtf", 12609.90, 829.72, _preemptive(ShortestRemainingFirst), "srtf", "srtf"),
    Case("srtf, compat", 12609.90, 829.72, _preemptive(_srtf_compat), "srtf", "srtf"),
    Case(
        "tiresias-l", 14700.04, 2915.99, _preemptive(_tiresias), "tiresias", "tiresias"
    ),
    Case(
        "tiresias-l, compat",
        14700.04,
        2915.99,
        _preemptive(_tiresias_compat),
        "tiresias",
        "tiresias",
    ),
    Case(
        "lucid, no sharing",
        15098.91,
        3387.95,
        _lucid(sharing=False),
        "",
        "lucid_sharing_off",
        within=0.01,
    ),
    Case("lucid", 12886.13, 915.24, _lucid(), "", "lucid"),
    Case("lucid as published", 12886.13, 915.24, _lucid(compat=False), "", "lucid"),
)


def golden_averages(folder: Path, column: str) -> dict[str, float]:
    """Average JCT of virtual clusters in the artifact, s; some are not published."""
    name = "lucid_upstream_by_vc" if column == "lucid" else "avg_jct_by_vc"
    file = folder / "golden" / f"{name}.csv"
    if not file.is_file():
        print(f"{column}: no averages of virtual clusters, {file}", file=sys.stderr)
        return {}
    table = pd.read_csv(file).set_index("vc")
    averages = table["avg_jct" if column == "lucid" else column]
    return {str(vc): float(value) for vc, value in averages.items()}


def jct_s(record: JobRecord) -> float:
    """Seconds from submission to finish."""
    assert record.finish_ns is not None, record.job.name
    return (record.finish_ns - record.job.tsub_ns) / 1e9


def agreement(records: Iterable[JobRecord], golden: Path) -> float:
    """Share of the artifact's jobs that end in the same second in our replay."""
    begin = VENUS_ORIGIN_NS
    theirs = pd.read_csv(golden, index_col="job_id")["end_time"].to_dict()
    ours = {
        record.job.name: round(((record.finish_ns or 0) - begin) / 1e9)
        for record in records
    }
    known = [
        ours[str(name)] == end for name, end in theirs.items() if str(name) in ours
    ]
    return float(np.mean(known)) if known else float("nan")


def main() -> None:
    """Replay and print."""
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", help=f"of {', '.join(names)}; all")
    parser.add_argument(
        "--vc",
        action="append",
        help="this virtual cluster only; several times for several",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.policies) - set(names)
    if unknown:
        parser.error(
            f"no policy {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        venus = load(reference_folder() / "lucid", Path(scratch))
        vcs = arguments.vc or list(venus.nodes)
        print_head(
            "policy", "by virtual cluster", "same end per job", "ours, all jobs", "artifact", "off by", "median",
            "queueing", "artifact's",
        )  # fmt: skip
        averages: dict[str, dict[str, float]] = {}
        for case in CASES:
            if arguments.policies and case.name not in arguments.policies:
                continue
            averages[case.name] = _row(case, venus, vcs, whole=not arguments.vc)
        _by_vc(averages, venus, vcs)


def _row(case: Case, venus: Venus, vcs: list[str], *, whole: bool) -> dict[str, float]:
    """Print a policy; return its average JCT by virtual cluster."""
    began = time.perf_counter()
    records = case.records(venus, vcs)
    seconds = time.perf_counter() - began
    jct = np.array([jct_s(record) for record in records])
    # As the artifact counts: all the time in which a job does not run.
    queue = jct - np.array([record.run_seconds for record in records])
    same = (
        agreement(records, venus.folder / "golden" / f"{case.golden}.jobs.csv.gz")
        if case.golden
        else float("nan")
    )
    theirs = (f"{case.avg_jct_s:,.2f}", f"{jct.mean() / case.avg_jct_s - 1:+.1%}")
    wrong = whole and abs(jct.mean() / case.avg_jct_s - 1) > case.within
    of: dict[str, list[float]] = defaultdict(list)
    for record, value in zip(records, jct, strict=True):
        of[record.job.vc].append(value)
    averages = {vc: float(np.mean(values)) for vc, values in of.items()}
    golden = golden_averages(venus.folder, case.by_vc)
    off = [averages[vc] / known - 1 for vc, known in golden.items() if vc in averages]
    spread = (
        f"{min(off):+.1%} to {max(off):+.1%}" if off else "-"
    )  # first, as errors cancel in a mean
    print_row(
        case.name,
        spread,
        "-" if np.isnan(same) else f"{same:.1%}",
        f"{jct.mean():,.2f}",
        *(theirs if whole else ("", "")),
        f"{np.median(jct):,.1f}",
        f"{queue.mean():,.2f}",
        f"{case.avg_queue_s:,.2f}" if whole else "",
    )
    beyond = f", beyond {case.within:.2%}" if wrong else ""
    print(f"{case.name}: {seconds:.1f} s{beyond}", file=sys.stderr)
    return averages


def _by_vc(averages: dict[str, dict[str, float]], venus: Venus, vcs: list[str]) -> None:
    """Print average JCT by virtual cluster, and the deviation from the artifact where it is known."""
    golden = {case.name: golden_averages(venus.folder, case.by_vc) for case in CASES}
    print("\naverage JCT, s (off by)\n")
    print_head("virtual cluster", *averages)
    for vc in vcs:
        cells = []
        for name, of in averages.items():
            known = golden[name].get(vc)
            off = f" ({of[vc] / known - 1:+.2%})" if known else ""
            cells.append(f"{of[vc]:.0f}{off}")
        print_row(vc, *cells)


if __name__ == "__main__":
    main()
