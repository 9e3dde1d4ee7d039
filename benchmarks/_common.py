"""Shared by the benchmarks of the optimiser: problems to solve, timing and printing."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from bft.datasets import generate_dnn_jobs
from bft.milp import CostModel, Job, Problem


class Labelled(Protocol):
    """A row of a benchmark, known by its label."""

    @property
    def label(self) -> str:
        """Name of the row in the table."""


L = TypeVar("L", bound=Labelled)


def chosen_rows(rows: Iterable[L], description: str | None) -> list[L]:
    """Return the rows that --only names, in their order; --list prints their labels, and then there are none."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=[""],
        metavar="TEXT",
        help="rows whose label has one of these",
    )
    parser.add_argument("--list", action="store_true", help="print the labels")
    given = parser.parse_args()
    chosen = [row for row in rows if any(text in row.label for text in given.only)]
    if given.list:
        print(*(row.label for row in chosen), sep="\n")
        return []
    return chosen


def dnn_problem(
    jobs: int,
    units: int,
    seed: int,
    *,
    stretch: int = 1,
    jmax: int = 64,
    jmin: int = 1,
    held: float = 0.5,
) -> Problem:
    """Jobs like the published ones, which hold a share `held` of the units, allocated at random.

    Parameters
    ----------
    jobs, units, seed
        How many of each, and what to draw from.
    stretch
        Factor on the breakpoints of the curves, as for nodes of so many units.
    jmax, jmin
        Bounds of each job.
    held
        Share of the units that jobs hold at the start.

    """
    rng = np.random.default_rng(seed)
    frame = generate_dnn_jobs(
        jobs=jobs, seed=seed, first_submit="2021-02-10", jmin=jmin, jmax=jmax
    )
    table = tuple(
        Job(
            name=row.name,
            jmin=jmin,
            jmax=jmax,
            ns=np.array(row.Ns, dtype=np.float64) * stretch,
            # No two jobs of a user are quite alike; without this the models of a turn tie.
            os=np.array(row.Os, dtype=np.float64) * rng.uniform(0.9, 1.1),
            tcup=row.Tcup,
            tcdw=row.Tcdw,
        )
        for row in frame.itertuples(index=False)
    )
    left, current = int(units * held), [0] * jobs
    for j in rng.permutation(jobs):
        current[j] = int(min(left, rng.integers(0, min(jmax, 4 * units // jobs) + 1)))
        left -= current[j]
    return Problem(units, 120.0, table, tuple(current))


def queue_problem(
    jobs: int, units: int, running: int, seed: int, cost_model: CostModel = "bftrainer"
) -> Problem:
    """A long queue as in the published log: seven curves, rescale costs of each job's own, nine units of ten held.

    Parameters
    ----------
    jobs, units, running, seed
        How many jobs are in play, how many units are idle, how many jobs hold some, and what to draw from.
    cost_model
        As of the problem.

    """
    rng = np.random.default_rng(seed)
    frame = generate_dnn_jobs(
        jobs=jobs, seed=seed, first_submit="2021-02-10", jmin=1, jmax=64
    )
    table = tuple(
        Job(
            row.name,
            1,
            64,
            np.array(row.Ns, dtype=np.float64),
            np.array(row.Os),
            row.Tcup,
            row.Tcdw,
        )
        for row in frame.itertuples(index=False)
    )
    current = np.zeros(jobs, dtype=np.int64)
    runs = rng.choice(jobs, running, replace=False)
    current[runs] = 1 + rng.multinomial(
        units * 9 // 10 - running, np.full(running, 1 / running)
    )
    return Problem(units, 60.0, table, tuple(current.tolist()), cost_model)


def reference_folder() -> Path:
    """The folder with published and golden data, which a clone does not have."""
    folder = Path(
        os.environ.get(
            "BFT_REFERENCE", Path(__file__).parents[2] / "shared" / "reference"
        )
    )
    if not folder.is_dir():
        raise SystemExit(
            f"no reference data at {folder}: set BFT_REFERENCE to a folder that holds them"
        )
    return folder


def published_log() -> dict[str, str]:
    """Options that name the log of Summit and the 1,001 jobs of BFTrainer."""
    folder = reference_folder() / "bftrainer"
    return {
        "node_trace": str(folder / "ndstat-10sdn6-evt.tar.gz"),
        "job_bounds": str(folder / "ImageNet-imgps-Jbnd-1001J.pkl"),
        "job_curves": str(folder / "ImageNet-imgps-JNPs-1001J.pkl"),
    }


def published(name: str) -> Iterator[tuple[dict[str, Any], Problem]]:
    """Recorded decisions (`instances`, `corner-cases`, `scaling-instances`) and the problems that they pose."""
    folder = reference_folder() / "bftrainer" / "milp"
    if name == "scaling-instances":
        entries = json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
    else:
        lines = gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).splitlines()
        entries = [json.loads(line) for line in lines]
    for entry in entries:
        held = (
            [len(nodes) for nodes in entry["current"]]
            if "current" in entry
            else [sum(row) for row in entry["cmap"]]
        )
        jobs = tuple(
            Job(
                name=f"j{j}",
                jmin=int(entry["jmin"][j]),
                # The published model stays on the curve.
                jmax=min(int(entry["jmax"][j]), int(entry["Ns"][j][-1])),
                ns=np.array(entry["Ns"][j], dtype=np.float64),
                os=np.array(entry["Os"][j], dtype=np.float64),
                tcup=entry["res_up"][j],
                tcdw=entry["res_dw"][j],
            )
            for j in range(entry["nJ"])
        )
        yield entry, Problem(entry["nN"], entry["Tfwd"], jobs, tuple(held))


def print_head(*names: str) -> None:
    """Print the head of a table in Markdown, as pages have it (benchmarks.evidence)."""
    print_row(*names)
    print("|" + "---|" * len(names))


def print_row(*cells: object) -> None:
    """Print a row of it at once, percentages with a space as pages have them."""
    row = " | ".join(re.sub(r"(?<=\d)%", " %", str(cell)) for cell in cells)
    print(f"| {row} |", flush=True)


def milliseconds(seconds: Sequence[float]) -> str:
    """Median and 99th percentile, for a table."""
    if not seconds:
        return f"{'-':>19}"
    median, high = np.percentile(np.asarray(seconds) * 1e3, [50, 99])
    return f"{median:9.2f} {high:9.2f}"
