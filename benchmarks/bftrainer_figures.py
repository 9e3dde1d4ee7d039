"""The questions of BFTrainer's evaluation, answered on its own log and jobs, each by a sweep (benchmarks/README.md).

    python benchmarks/bftrainer_figures.py                        # all but `hpo-machine`: 30 replays, 6 min of CPU
    python benchmarks/bftrainer_figures.py --only window,hpo      # some figures
    python benchmarks/bftrainer_figures.py --only hpo-machine     # the search on all 4,734 nodes
    python benchmarks/bftrainer_figures.py --png FOLDER           # a figure of each table

window       U and the return on rescales by the forward window (-Tfwd)
parallel     U by the number of jobs in play (-maxJ; 0: all)
costs        U by a factor on the costs of rescales (Tcup, Tcdw)
objective    throughput against scaling efficiency: U, and the run time of each network
hpo          the search's 1,000 ShuffleNets: U
hpo-machine  the search on the whole machine, 15 times, as it is done in 2.7 of the 14.9 days there, by jobs in play

The log is that of Summit, its first 512 nodes unless said otherwise; ten jobs in play and -Tfwd 120 where these are not
varied. Replays that a study folder (--study) holds already are not repeated. Decisions are exact.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from _common import print_head, print_row, reference_folder

import bft
from bft.models import JobTable, read_published_jobs, write_jobs
from bft.replay.trace.trace_files import read_trace, select_nodes, write_trace

NODES, MACHINE = 512, 4734
TFWD_S = (3, 10, 30, 60, 120, 300, 600)
IN_PLAY = (5, 10, 15, 20, 25, 30, 0)
FACTORS = (0.5, 1, 2, 5, 10)
MIX, SEARCH = "ImageNet-imgps-{}-1001J", "hps-shufflenet-{}-1000J"
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


def replayed(name: str, folder: Path, study: Path, workers: int) -> pd.DataFrame:
    """Replay the points of a figure; `folder` takes its inputs as files. One row a point, with its `label`."""
    figure, published = FIGURES[name], reference_folder() / "bftrainer"
    trace, jobs_file = folder / f"{figure.nodes}.parquet", folder / f"{name}.jsonl"
    if not trace.exists():
        log = read_trace(published / "ndstat-10sdn6-evt.tar.gz")
        write_trace(select_nodes(log, 0, figure.nodes), trace)
    jobs = read_published_jobs(
        published / f"{figure.jobs.format('Jbnd')}.pkl",
        published / f"{figure.jobs.format('JNPs')}.pkl",
    )
    write_jobs(jobs, jobs_file)
    options = DEFAULTS | {"node_trace": str(trace), "jobs": str(jobs_file)}
    if figure.repeat > 1:
        options["repeat"] = figure.repeat
    variants = dict(figure.variants)
    if name == "costs":
        for factor in FACTORS:
            file = folder / f"costs-{factor}.jsonl"
            write_jobs(scaled(jobs, factor), file)
            variants[f"{factor:g}"] = {"jobs": str(file)}
    frame = bft.sweep(
        grid=figure.grid,
        variants=variants,
        study=study,
        workers=workers,
        whole=name == "objective",
        **options,
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


def draw(name: str, frame: pd.DataFrame, folder: Path) -> None:
    """Draw a figure: U, and where windows are compared the return on rescales."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(5.2, 3.2), layout="constrained")
    axis = canvas.subplots()
    places = range(len(frame))
    axis.plot(places, frame["U"], marker="o", color="#1b5e8c", label="U")
    axis.set_ylabel("U")
    axis.set_ylim(0, 1.05)
    axis.set_xticks(
        list(places), ["all" if each == 0 else str(each) for each in frame["label"]]
    )
    axis.set_xlabel(FIGURES[name].label)
    axis.set_title(FIGURES[name].title, fontsize=10)
    axis.grid(alpha=0.25)
    if name == "window":
        other = axis.twinx()
        other.plot(places, frame["return_on_rescale"], marker="s", color="#d95f02")
        other.set_ylabel("return on a rescale", color="#d95f02")
    canvas.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = [name for name in FIGURES if name != "hpo-machine"]
    parser.add_argument("--only", default=",".join(usual), help="figures, with commas")
    parser.add_argument("--png", type=Path, help="folder for a figure of each table")
    parser.add_argument("--study", type=Path, help="folder that keeps the replays")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args(arguments)
    names = given.only.split(",")
    for name in names:
        if name not in FIGURES:
            parser.error(f"--only: expected some of {', '.join(FIGURES)}, not {name}")
    with TemporaryDirectory() as scratch:
        study = given.study or Path(scratch) / "study"
        for name in names:
            frame = replayed(name, Path(scratch), study, given.workers)
            print_figure(name, frame)
            if name == "objective":
                print("\nhours from start to finish\n")
                times = run_times_h(frame, study).round(1)
                print_head("network", *times.columns)
                for row in times.itertuples():
                    print_row(*row)
            if given.png:
                given.png.mkdir(parents=True, exist_ok=True)
                draw(name, frame, given.png)


if __name__ == "__main__":
    main()
