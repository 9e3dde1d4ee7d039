"""What a point of a sweep costs beside its replay: processor time, in one process.

python benchmarks/sweep_overhead.py [--points 500]

The points replay the bundled trace on 24 nodes, with seeds of their own for the jobs that bft-replay makes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from bft.datasets import load_bundled
from bft.replay.cli.main import run
from bft.replay.engine.loop import Replay
from bft.replay.studies import carry_out
from bft.replay.trace.trace_files import select_nodes, trace_from_frame, write_trace


def timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """The function; each call appends its processor time."""

    def call(*arguments: Any, **options: Any) -> Any:
        begin = time.process_time()
        try:
            return function(*arguments, **options)
        finally:
            seconds.append(time.process_time() - begin)

    return call


def main() -> None:
    """Run the sweep and print one line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=500)
    count = parser.parse_args().points
    replays: list[float] = []
    points: list[float] = []
    table, _ = load_bundled()
    trace = trace_from_frame(table.frame, source="bundled", metadata=table.metadata)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_trace(select_nodes(trace, 0, 24), "trace.parquet")
        begin = time.process_time()
        with (
            patch.object(Replay, "run", timed(Replay.run, replays)),
            patch.object(carry_out, "perform", timed(carry_out.perform, points)),
        ):
            run(
                ["sweep", "-ndmap", "trace.parquet", "--backend", "exact", "--no-u",
                 "--seed", f"0:{count}", "--workers", "0", "-q"]
            )  # fmt: skip
        total = time.process_time() - begin
        os.chdir("/")
    replay, beside = np.array(replays), np.array(points) - np.array(replays)
    mean, rest = beside.mean() * 1e3, (total - sum(points)) / len(points) * 1e3
    print(
        f"{len(points)} points: replay {replay.mean() * 1e3:.0f} ms in the mean, "
        f"beside it {mean:.1f} ms (median {np.median(beside) * 1e3:.1f}), "
        f"plan and table {rest:.1f} ms a point"
    )


if __name__ == "__main__":
    main()
