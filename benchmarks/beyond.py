"""What is maximised, and how many jobs may be in play: outcome beside what nobody can beat, completion times, waiting.

python benchmarks/beyond.py [--node-count N] [--first-node I] [--only TEXT ...]

On the real log with the published 1,001 jobs where the reference data are, else on the bundled data set. The exact
dynamic programme (DP) decides. JCT is over all submitted jobs; one that is not done counts to the end. `without units`
is the longest that a job was in the system without any. The bound is unit-time: every sample at its job's best rate per
unit.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from _common import reference_folder

from bft.models import JobTable
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.engine.watcher import Silent
from bft.replay.inputs.load import load
from bft.replay.options.options import Options
from bft.replay.policies.solver import SolverOptions
from bft.replay.results.bounds.bounds import bounds_of
from bft.replay.run import policy_of

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: what is asked of the policy, how many may be in play, and what changes cost."""

    label: str
    objective: str = "own"
    tfwd_s: float = 60.0
    max_jobs: int = 0
    costs: float = 1.0
    restart_s: float = 0.0


SETTINGS = (
    Setting("published, Tfwd 120", tfwd_s=120, max_jobs=10),
    Setting("published, Tfwd 10", tfwd_s=10, max_jobs=10),
    *(Setting(f"efficiency, {most} in play", "efficiency", max_jobs=most) for most in (10, 30, 100)),
    *(
        Setting(f"{objective}, all in play", objective)
        for objective in (
            "efficiency",
            "useful-time",
            "power:0",
            "power:0.5",
            "power:0.75",
            "power:0.5+srpt:0.1",
            "power:0.5+ageing:24",
        )
    ),
    Setting("published, Tfwd 120, costs x 10", tfwd_s=120, max_jobs=10, costs=10),
    Setting("power:0.5, all in play, costs x 10", "power:0.5", costs=10),
    Setting("power:0.5, all, costs x 10, restarts 180 s", "power:0.5", costs=10, restart_s=180),
)


def main() -> None:
    """Print one row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node-count", type=int, default=512, help="nodes of the real log")
    parser.add_argument("--first-node", type=int, default=0, help="the first of them")
    parser.add_argument("--only", nargs="*", default=[""], metavar="TEXT", help="settings whose label has one of these")
    given = parser.parse_args()
    files: dict[str, Any] = {}
    try:
        folder = reference_folder() / "bftrainer"
        files = {
            "node_trace": str(folder / "ndstat-10sdn6-evt.tar.gz"),
            "job_bounds": str(folder / "ImageNet-imgps-Jbnd-1001J.pkl"),
            "job_curves": str(folder / "ImageNet-imgps-JNPs-1001J.pkl"),
            "first_node": given.first_node,
            "node_count": given.node_count,
            "skip_rows": 1000,
        }
    except SystemExit as missing:
        print(f"{missing}\nthe bundled data set instead")
    base = Options(**files)
    inputs = load(base, Silent())
    pool = inputs.pools[0]
    bound = bounds_of([(pool.trace, pool.jobs)], without=inputs.never_run).unit_time
    without = {at for at, job in enumerate(pool.jobs) if job.name in set(inputs.never_run)}
    print(f"unit-time bound {bound:.4e} samples; {len(pool.jobs)} jobs")
    print(f"{'setting':44} {'outcome':>10} {'of bound':>8} {'JCT h':>7} {'without units h':>15} {'done':>5} {'s':>6}")
    for setting in SETTINGS:
        if not any(text in setting.label for text in given.only):
            continue
        options = replace(base, objective=setting.objective, tfwd_s=setting.tfwd_s, solver=SolverOptions("exact"))
        restart = ((10**9, setting.restart_s),) if setting.restart_s else ()
        rules = Rules(max_jobs=setting.max_jobs, restart_overhead=restart)
        began = time.perf_counter()
        outcome = Replay(pool.trace, dearer(pool.jobs, setting.costs), policy_of(options), rules, None, without).run()
        seconds = time.perf_counter() - began
        jct, starved, done = times(outcome)
        share = f"{outcome.work / bound:8.1%}" if bound else f"{'-':>8}"
        print(
            f"{setting.label:44} {outcome.work:10.4e} {share} {jct:7.1f} {starved:15.1f} {done:5} {seconds:6.0f}",
            flush=True,
        )


def dearer(jobs: JobTable, factor: float) -> JobTable:
    """The same jobs, whose rescales and preemptions cost so many times more."""
    table = tuple(replace(job, tcup_s=factor * job.tcup_s, tcdw_s=factor * job.tcdw_s) for job in jobs)
    return replace(jobs, jobs=table)


def times(outcome: Outcome) -> tuple[float, float, int]:
    """Mean completion time and longest time without units of the submitted jobs, hours; how many are done."""
    took, waited, done = [], [], 0
    for record in outcome.records:
        if record.left_out or record.job.tsub_ns > outcome.end_ns:
            continue
        end = outcome.end_ns if record.finish_ns is None else record.finish_ns
        took.append((end - record.job.tsub_ns) / 1e9)
        waited.append(took[-1] - record.run_seconds)
        done += record.finish_ns is not None
    return float(np.mean(took)) / HOUR_S, max(waited) / HOUR_S, done


if __name__ == "__main__":
    main()
