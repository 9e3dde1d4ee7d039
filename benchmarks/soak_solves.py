"""Solve tens of thousands of times in one process: its memory must stay flat, descriptors and workers be released.

python benchmarks/soak_solves.py [--solves 30000] [--backend cbc] [--recycle-mib 64]
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from _common import dnn_problem

from bft.milp import SolverProcess
from bft.milp.backends.process import RECYCLE_BYTES
from bft.milp.backends.registry import SOLVERS
from bft.milp.backends.worker import resident_bytes
from bft.milp.formulations import modes
from bft.milp.formulations.linear import Limits

MIB = 2**20


def descriptors() -> int:
    """Open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def worker_bytes(pid: int | None) -> int:
    """Resident memory of the worker."""
    if pid is None:
        return 0
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf(
        "SC_PAGE_SIZE"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--solves", type=int, default=30_000)
    parser.add_argument("--backend", default="cbc", choices=list(SOLVERS))
    parser.add_argument("--recycle-mib", type=float, default=RECYCLE_BYTES / MIB)
    options = parser.parse_args()
    models = [
        modes.build(dnn_problem(5 + seed % 6, 40 + seed, seed)).model
        for seed in range(50)
    ]
    process = SolverProcess(recycle_bytes=int(options.recycle_mib * MIB))
    for model in models:
        process.solve(model, options.backend, Limits(60.0))
    before, opened, worker = resident_bytes(), descriptors(), worker_bytes(process.pid)
    started, workers = time.perf_counter(), process.started
    print(
        f"{'solves':>7} {'ms a solve':>10} {'parent MiB':>10} {'worker MiB':>10} {'descriptors':>11} {'workers':>7}"
    )
    leaked, largest = 0, before
    for n in range(1, options.solves + 1):
        old = process.started
        process.solve(models[n % len(models)], options.backend, Limits(60.0))
        now = worker_bytes(process.pid)
        if process.started == old and process.pid is not None:
            leaked += now - worker
        worker = now
        if n % max(1, options.solves // 10) == 0:
            largest = max(largest, resident_bytes())
            a_solve = (time.perf_counter() - started) / n * 1e3
            sizes = f"{resident_bytes() / MIB:10.1f} {worker / MIB:10.1f}"
            print(
                f"{n:7} {a_solve:10.2f} {sizes} {descriptors():11} {process.started:7}",
                flush=True,
            )
    growth = (largest - before) / MIB
    print(
        f"{options.backend}: parent grew by {growth:.1f} MiB, descriptors by {descriptors() - opened}, ",
        end="",
    )
    print(
        f"{process.started - workers} workers replaced, {leaked / options.solves / 1024:.1f} KiB leaked a solve"
    )
    process.close()
    assert growth < 50, "the parent grows"
    assert descriptors() <= opened, "descriptors leak"


if __name__ == "__main__":
    main()
