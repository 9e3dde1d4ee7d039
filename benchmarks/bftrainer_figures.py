"""The questions of BFTrainer's evaluation, answered on its own log and jobs, each by a sweep (benchmarks/README.md).

    python benchmarks/bftrainer_figures.py                        # all but `hpo-machine`: 30 replays, 6 min of CPU
    python benchmarks/bftrainer_figures.py --only window,hpo      # some figures
    python benchmarks/bftrainer_figures.py --only hpo-machine     # the search on all 4,734 nodes

window       U and the return on rescales by the forward window (-Tfwd)
parallel     U by the number of jobs in play (-maxJ; 0: all)
costs        U by a factor on the costs of rescales (Tcup, Tcdw)
objective    throughput against scaling efficiency: U, and the run time of each network
hpo          the search's 1,000 ShuffleNets: U
hpo-machine  the search on the whole machine, 15 times, as it is done in 2.7 of the 14.9 days there, by jobs in play

The log is that of Summit, its first 512 nodes unless said otherwise; ten jobs in play and -Tfwd 120 where these are not
varied. Decisions are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from _published import MIX, SEARCH, published_jobs, published_log
from _tables import print_head, print_row, program

import bft
from bft.models import JobTable, read_published_jobs, write_jobs
from bft.replay.trace.trace_files import read_trace, select_nodes

NODES, MACHINE = 512, 4734
TFWD_S = (3, 10, 30, 60, 120, 300, 600)
IN_PLAY = (5, 10, 15, 20, 25, 30, 0)
FACTORS = (0.5, 1, 2, 5, 10)
DEFAULTS: dict[str, Any] = {"backend": "exact", "tfwd_s": 120, "max_jobs": 10}


@dataclass(frozen=True, slots=True)
class Figure:
    """One question: what is varied, and on what.

    Parameters
    ----------
    title
        What the table shows.
    label
        What the rows are.
    grid, variants
        As `Plan.of` has them.
    jobs
        The published table, by its name.
    nodes
        The first nodes of the log.
    repeat
        How often the jobs are taken, one round after the other, so that there is work for all of the log.
    """

    title: str
    label: str
    grid: dict[str, Sequence[Any]] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: str = MIX
    nodes: int = NODES
    repeat: int = 1


FIGURES = {
    "window": Figure(
        "U and return on rescales by window", "-Tfwd, s", {"tfwd_s": TFWD_S}
    ),
    "parallel": Figure("U by jobs in play (0: all)", "-maxJ", {"max_jobs": IN_PLAY}),
    "costs": Figure("U by the cost of a rescale", "Tcup, Tcdw x"),
    "objective": Figure(
        "throughput against efficiency",
        "objective",
        variants={
            "throughput": {"objective": "throughput"},
            "efficiency": {"objective": "efficiency"},
        },
    ),
    "hpo": Figure("1,000 ShuffleNets", "-Tfwd, s", {"tfwd_s": (10, 120)}, jobs=SEARCH),
    "hpo-machine": Figure(
        "1,000 ShuffleNets 15 times, all nodes",
        "-maxJ",
        {"max_jobs": (10, 30, 0)},
        jobs=SEARCH,
        nodes=MACHINE,
        repeat=15,
    ),
}


def scaled(jobs: JobTable, factor: float) -> JobTable:
    """Jobs whose rescales cost a multiple."""
    return JobTable(
        tuple(
            replace(job, tcup_s=job.tcup_s * factor, tcdw_s=job.tcdw_s * factor)
            for job in jobs
        )
    )


def replayed(name: str, folder: Path) -> pd.DataFrame:
    """Replay the points of a figure; `folder` takes inputs and runs. One row a point, with its `label`."""
    figure = FIGURES[name]
    published = published_log()
    jobs = read_published_jobs(*published_jobs(figure.jobs).values())
    variants = dict(figure.variants)
    for factor in FACTORS if name == "costs" else ():
        file = folder / f"costs-{factor}.jsonl"
        write_jobs(scaled(jobs, factor), file)
        variants[f"{factor:g}"] = {"jobs": str(file)}
    frame = bft.sweep(
        select_nodes(read_trace(published["node_trace"]), 0, figure.nodes),
        None if name == "costs" else jobs,
        grid=figure.grid,
        variants=variants,
        study=folder / "study",
        workers=0,
        whole=name == "objective",
        repeat=figure.repeat,
        **DEFAULTS,
    )
    failed = frame[frame["status"] != "done"]
    if len(failed):
        raise SystemExit(f"{name}: {failed['error'].iloc[0]}")
    return frame.assign(label=frame["variant" if variants else next(iter(figure.grid))])


def print_figure(name: str, frame: pd.DataFrame) -> None:
    """Print the table of a figure."""
    figure = FIGURES[name]
    print(f"\n{name}: {figure.title}; first {figure.nodes:,} nodes\n")
    print_head(
        figure.label, "U", "outcome, 10⁹ samples", "finished", "rescales", "return on a rescale",
        "lost to rescaling, of the outcome", "to preemption",
    )  # fmt: skip
    for row in frame.itertuples(index=False):
        gained = row.return_on_rescale
        all_jobs = name == "parallel" and row.label == 0
        print_row(
            "all" if all_jobs else row.label,
            f"{row.U:.3f}",
            f"{row.outcome / 1e9:.1f}",
            row.jobs_finished,
            f"{row.rescales:,}",
            "-" if gained is None else f"{gained:.1f}",
            f"{row.rescale_cost / row.outcome:.1%}",
            f"{row.preemption_cost / row.outcome:.1%}",
        )


def run_times_h(frame: pd.DataFrame, study: Path) -> pd.DataFrame:
    """Mean hours from start to finish of the finished jobs of each network, and their number, by objective."""
    columns = {}
    for row in frame.itertuples(index=False):
        jobs = pd.read_parquet(study / "runs" / str(row.key) / "jobs.parquet")
        done = jobs[jobs["finish"].notna()]
        hours = (done["finish"] - done["start"]).dt.total_seconds() / 3600
        network = done["name"].str.split("-").str[1]
        columns[f"{row.label}, h"] = hours.groupby(network).mean()
        columns[f"{row.label}, done"] = hours.groupby(network).size()
    return pd.DataFrame(columns)


def main() -> None:
    """Replay and print."""
    parser = program(__doc__)
    usual = [name for name in FIGURES if name != "hpo-machine"]
    parser.add_argument("--only", default=",".join(usual), help="figures, with commas")
    for name in parser.parse_args().only.split(","):
        with TemporaryDirectory() as scratch:
            frame = replayed(name, Path(scratch))
            print_figure(name, frame)
            if name == "objective":
                print("\nhours from start to finish\n")
                times = run_times_h(frame, Path(scratch) / "study").round(1)
                print_head("network", *times.columns)
                for row in times.itertuples():
                    print_row(*row)


if __name__ == "__main__":
    main()
