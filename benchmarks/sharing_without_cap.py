"""Thousands of jobs that may share nodes, all in play: outcome beside the bound, and what proves decisions.

    python benchmarks/sharing_without_cap.py [--hours 24] [--repeat 3] [--objective power:0]

The published jobs, several times, on the first 512 nodes of the real log (reference data), from its row 1,000 on; all
are submitted at once. Ratios are drawn once per pair of models: nobody has measured them. Printed
are the replay with `milp-sharing` and the one with `milp`, and how decisions with 40 jobs or more were proven.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import numpy as np
from _common import reference_folder

from bft import milp
from bft.replay.cli.main import run

MODELS = (
    "AlexNet",
    "DenseNet",
    "mnasnet1",
    "mobilenet",
    "resnet18",
    "shufflenet",
    "vgg16",
)
BEGIN = "2021-02-14T00:00"
MANY = 40


class Decisions:
    """Solutions of problems with many jobs, with their CPU time."""

    def __init__(self) -> None:
        self.shown: Counter[str] = Counter()
        self.seconds: list[float] = []
        self._solve = milp.solve

    def solve(self, problem: milp.Problem, **options: object) -> milp.Solution:
        """As `milp.solve`."""
        begin = time.process_time()
        solution = self._solve(problem, **options)
        if len(problem.jobs) > MANY:
            self.seconds.append(time.process_time() - begin)
            self.shown[f"{solution.formulation} {solution.status}"] += 1
        return solution


def ratios(path: Path) -> None:
    """Write a ratio for each model beside each other one."""
    draw = random.Random(1)  # noqa: S311 - the same ratios every time
    lines = ["model_a,model_b,xi_a,xi_b"]
    for a, b in itertools.combinations_with_replacement(MODELS, 2):
        xi_a, xi_b = (round(1.1 + 0.5 * draw.random(), 2) for _ in "ab")
        lines.append(f"{a},{b},{xi_a},{xi_a if a == b else xi_b}")
    path.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    """Print one row per policy, and the decisions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--hours", type=float, metavar="H", help="only so many hours from 2021-02-14 on"
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=3,
        metavar="N",
        help="the 1,001 jobs so many times",
    )
    parser.add_argument("--objective", default="power:0", help="what is maximised")
    given = parser.parse_args()
    source = reference_folder() / "bftrainer"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ratios(folder / "xi.csv")
        trace = [f"{source}/ndstat-10sdn6-evt.tar.gz", "--skip-rows", "1000"]
        if given.hours:
            end = np.datetime64(BEGIN) + np.timedelta64(round(given.hours * 3600), "s")
            sliced = f"{folder}/trace.parquet"
            run(
                [
                    "trace",
                    "cut",
                    trace[0],
                    "--from",
                    BEGIN,
                    "--to",
                    str(end),
                    "-o",
                    sliced,
                    "-q",
                ]
            )
            trace = [sliced]
        jobs = [
            "-bdfn",
            f"{source}/ImageNet-imgps-Jbnd-1001J.pkl",
            "-scfn",
            f"{source}/ImageNet-imgps-JNPs-1001J.pkl",
        ]
        jobs += [
            "--option",
            f"repeat={given.repeat}",
            "--option",
            "scale-arrivals=1e-12",
            "--option",
            "align-jobs=yes",
        ]
        common = [
            "-ndmap",
            *trace,
            "-nN",
            "512",
            *jobs,
            "-maxJ",
            "0",
            "-Tfwd",
            "60",
            "--objective",
            given.objective,
        ]
        for policy, more in (
            ("milp", []),
            ("milp-sharing", ["--xi", f"{folder}/xi.csv"]),
        ):
            decisions, out = Decisions(), f"{folder}/{policy}"
            begin = time.process_time()
            with patch.object(milp, "solve", decisions.solve):
                run(
                    [
                        *common,
                        "--policy",
                        policy,
                        *more,
                        "--backend",
                        "cbc",
                        "--no-u",
                        "-q",
                        "--out",
                        out,
                    ]
                )
            metrics = json.loads(Path(out, "summary.json").read_text("utf-8"))[
                "metrics"
            ]
            print(f"{policy}: CPU {time.process_time() - begin:.0f} s")
            print(
                json.dumps(
                    {
                        key: metrics.get(key)
                        for key in ("outcome", "bound", "share_of_bound", "bounds")
                    }
                )
            )
            median, p90, most = np.percentile(
                np.array(decisions.seconds) * 1e3, (50, 90, 100)
            )
            shown = ", ".join(
                f"{by} {count}" for by, count in decisions.shown.most_common()
            )
            print(
                f"decisions with more than {MANY} jobs: {shown}; CPU ms: {median:.0f} {p90:.0f} {most:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
