"""Generated node traces beside the measurements on Summit: `python benchmarks/summit_like.py --seeds 0 1`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.datasets.node_traces import (
    SUMMIT_NODES,
    NodeTraceTable,
    generate_node_trace,
)

SUMMIT_FACTS: Final[dict[str, float]] = {
    "gap p50 s": 30, "gap mean s": 54, "gap p90 s": 111, "gap p99 s": 354, "gap min s": 10,
    "idle mean %": 8.27, "idle p25 %": 0.27, "idle p50 %": 1.71, "idle p75 %": 10.6, "idle p90 %": 24.5,
    "idle p99 %": 73.3, "above 42 % of nodes: h/day": 0.85, "above 42 %: share of idle node-time %": 27,
    "day mean min %": 3.4, "day mean max %": 13.2,
    "fragment p1 s": 71, "fragment p5 s": 81, "fragment p10 s": 91, "fragment p25 s": 162, "fragment p50 s": 475,
    "fragment p75 s": 1397, "fragment p90 s": 3269, "fragment p95 s": 4723, "fragment p99 s": 9246,
    "fragment mean s": 1192, "fragments <= 10 min: count %": 56, "fragments <= 10 min: node-time %": 10.9,
    "fragments <= 1 h: count %": 91, "fragments <= 1 h: node-time %": 56, "fragments per node and day": 5.99,
    "join p50": 4, "join p75": 16, "join p90": 50, "join p95": 108, "join p99": 512, "join mean": 29,
    "leave p50": 3, "leave p75": 13, "leave p90": 50, "leave p95": 120, "leave p99": 928, "leave mean": 38,
    "never idle %": 1.14,
    "busy p10 s": 111, "busy p25 s": 344, "busy p50 s": 2186, "busy p75 s": 13443,
}  # fmt: skip
"""Summit log, 10-24 February 2021, measured; idle nodes as a share of the machine's 4,734."""


def measure(trace: NodeTraceTable) -> dict[str, float]:
    """Measure on a trace the quantities of `SUMMIT_FACTS`.

    It looks at the rows alone, so it checks the generator rather than repeating it. Gaps, groups and
    fragments that touch the edges of the window are left out.

    Parameters
    ----------
    trace
        Any node trace in long form with at least one complete fragment, one joining and one leaving group
        after its start.

    Returns
    -------
    dict
        Same keys as `SUMMIT_FACTS`, the unit at the end of each.
    """
    universe = trace.nodes
    start, end = (
        pd.Timestamp(trace.metadata["start"]),
        pd.Timestamp(trace.metadata["end"]),
    )
    second = ((trace.frame["time"] - start) / pd.Timedelta(seconds=1)).to_numpy(
        dtype=float
    )
    node = pd.Index(universe).get_indexer(pd.Index(trace.frame["node"]))
    idle = trace.frame["idle"].to_numpy(dtype=bool)
    window_s = (end - start) / pd.Timedelta(seconds=1)
    figures: dict[str, float] = {}

    def quantiles(
        label: str,
        unit: str,
        values: NDArray[np.floating[Any]],
        percents: Sequence[int],
    ) -> None:
        for percent, value in zip(
            percents, np.percentile(values, percents), strict=True
        ):
            figures[f"{label} p{percent}{unit}"] = float(value)

    event = np.unique(second[second > 0])
    gap = np.diff(event)
    quantiles("gap", " s", gap, (50, 90, 99))
    figures |= {"gap mean s": float(gap.mean()), "gap min s": float(gap.min())}

    edge = np.unique(np.r_[0.0, event, window_s])
    change = np.bincount(
        np.searchsorted(edge, second), np.where(idle, 1, -1), minlength=len(edge)
    )
    share, width = np.cumsum(change)[:-1] / len(universe) * 100, np.diff(edge)
    figures["idle mean %"] = float((share * width).sum() / window_s)
    by_share = np.argsort(share)
    elapsed = np.cumsum(width[by_share])
    for percent in (25, 50, 75, 90, 99):
        figures[f"idle p{percent} %"] = float(
            share[by_share][np.searchsorted(elapsed, percent / 100 * window_s)]
        )
    high = share > 2000 / SUMMIT_NODES * 100
    figures["above 42 % of nodes: h/day"] = float(width[high].sum() / window_s * 24)
    figures["above 42 %: share of idle node-time %"] = float(
        (share * width)[high].sum() / (share * width).sum() * 100
    )
    area = np.r_[0.0, np.cumsum(share * width)]
    days = np.diff(
        np.interp(
            np.linspace(0, window_s, max(1, round(window_s / 86400)) + 1), edge, area
        )
    )
    means = days / (window_s / len(days))
    figures |= {
        "day mean min %": float(means.min()),
        "day mean max %": float(means.max()),
    }

    for label, which in (("join", idle & (second > 0)), ("leave", ~idle)):
        group = np.unique(second[which], return_counts=True)[1].astype(float)
        quantiles(label, "", group, (50, 75, 90, 95, 99))
        figures[f"{label} mean"] = float(group.mean())

    order = np.lexsort((second, node))
    follows = (node[order][1:] == node[order][:-1]) & (second[order][:-1] > 0)
    lasts, opens = np.diff(second[order])[follows], idle[order][:-1][follows]
    fragment = lasts[opens]
    quantiles("fragment", " s", fragment, (1, 5, 10, 25, 50, 75, 90, 95, 99))
    figures["fragment mean s"] = float(fragment.mean())
    for text, limit in (("10 min", 600), ("1 h", 3600)):
        short = fragment <= limit
        figures[f"fragments <= {text}: count %"] = float(short.mean() * 100)
        figures[f"fragments <= {text}: node-time %"] = float(
            fragment[short].sum() / fragment.sum() * 100
        )
    figures["fragments per node and day"] = (
        len(fragment) / len(universe) / (window_s / 86400)
    )
    quantiles("busy", " s", lasts[~opens], (10, 25, 50, 75))
    figures["never idle %"] = 100 * (1 - len(np.unique(node)) / len(universe))
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate traces and print them beside Summit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--nodes", type=int, default=SUMMIT_NODES, help="of the machine"
    )
    parser.add_argument("--days", type=float, default=14.9, help="length of the trace")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    given = parser.parse_args(arguments)
    columns = []
    for seed in given.seeds:
        trace = generate_node_trace(nodes=given.nodes, days=given.days, seed=seed)
        columns.append(measure(trace))
    heads = ("what", "Summit", *(f"seed {seed}" for seed in given.seeds))
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for key, fact in SUMMIT_FACTS.items():
        cells = [f"{fact:g}", *(f"{column[key]:.4g}" for column in columns)]
        print(f"| {key} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
