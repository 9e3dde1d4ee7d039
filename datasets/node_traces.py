"""A machine's idle nodes over time, made up but shaped like Summit's."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bft.datasets._times import utc
from bft.models.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

GENERATOR_VERSION: Final = 1
"""Changes whenever the same parameters would give another trace."""

SHORTEST_S: Final = 600.0
"""Shortest trace that can be generated, in seconds: it must hold a few of the shortest fragments."""

NODES_PER_CABINET: Final = 18
"""As on Summit; only names follow from it."""


@dataclass(frozen=True, slots=True)
class NodeTraceTable:
    """A node trace in long form.

    Parameters
    ----------
    frame
        One row per change: `time` (datetime64[ns, UTC]), `node` (str), `idle` (bool), sorted by time, then
        in the order of the universe. Rows at the start of the window list the nodes that are idle then.
    metadata
        `machine`; `nodes`, the universe as a JSON list, with nodes that never change; `units_per_node`;
        `source`; `start` and `end` of the observation window (ISO 8601, UTC).

    Examples
    --------
    >>> trace = generate_node_trace(nodes=4, days=0.5, seed=1)
    >>> trace.nodes, list(trace.frame.columns)
    (['c0000n01', 'c0000n02', 'c0000n03', 'c0000n04'], ['time', 'node', 'idle'])
    """

    frame: pd.DataFrame
    metadata: dict[str, str]

    @property
    def nodes(self) -> list[str]:
        """The node universe, in order."""
        return [str(name) for name in json.loads(self.metadata["nodes"])]


def generate_node_trace(
    *,
    nodes: int = 512,
    days: float = 2.0,
    seed: int = 0,
    start: str = "2021-02-10",
    machine: str = "summit-like",
    outages: bool = True,
) -> NodeTraceTable:
    """Generate a node trace with the statistics of Summit, 10-24 February 2021.

    About 8 % of the node-time is idle, in fragments from 70 s to hours with a median of 8 minutes; nodes
    join and leave in groups with a heavy tail. `python -m bft.datasets.calibration` prints how close it is.

    Parameters
    ----------
    nodes
        Size of the machine. Holes on smaller machines are fewer and smaller; the idle share and the
        durations stay. Time and memory grow linearly with nodes × days.
    days
        Length of the observation window, in days of 86,400 s, to the second; at least ten minutes.
    seed
        Same parameters, same seed, same trace.
    start
        Start of the window; UTC if it states no time zone.
    machine
        Name of the machine, for the metadata.
    outages
        Whether, every other day, most of the machine turns idle for an hour or so. Without them the
        idle share stays the same: their holes are spread over the window.

    Returns
    -------
    NodeTraceTable
        Changes at least 10 s apart.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> trace = generate_node_trace(nodes=64, days=0.5, seed=1)
    >>> len(trace.nodes), list(trace.frame.columns)
    (64, ['time', 'node', 'idle'])
    """
    import numpy as np
    import pandas as pd

    from bft.datasets._assign import assign_nodes
    from bft.datasets._holes import draw_holes, poll_seconds

    if nodes < 1:
        raise InputError(f"nodes is {nodes}, expected at least 1")
    if not (math.isfinite(days) and days * 86400 >= SHORTEST_S):
        raise InputError(
            f"days is {days}, expected at least {SHORTEST_S / 86400:.4f} (ten minutes)"
        )
    if seed < 0:
        raise InputError(f"seed is {seed}, expected a non-negative integer")
    begin, window_s = utc(start), round(days * 86400)

    rng = np.random.default_rng(seed)
    holes = draw_holes(nodes=nodes, days=window_s / 86400, outages=outages, rng=rng)
    changes = assign_nodes(holes, nodes=nodes, rng=rng)
    names = _names(nodes)
    offset_ns = np.asarray(poll_seconds(changes.poll)) * 1_000_000_000
    time = begin.to_datetime64().astype("datetime64[ns]") + offset_ns.astype(
        "timedelta64[ns]"
    )
    frame = pd.DataFrame(
        {
            "time": pd.DatetimeIndex(time).tz_localize("UTC"),
            "node": pd.Series(names).array.take(changes.node),
            "idle": changes.idle,
        }
    )
    source = (
        f"bft.datasets.generate_node_trace, version {GENERATOR_VERSION}: nodes={nodes}, days={days}, seed={seed}, "
        f"outages={outages}; made up, statistics fitted to the Summit log of 10-24 February 2021"
    )
    metadata = {
        "machine": machine,
        "nodes": json.dumps(names),
        "units_per_node": "1",
        "source": source,
        "start": begin.isoformat(),
        "end": (begin + pd.Timedelta(seconds=window_s)).isoformat(),
    }
    return NodeTraceTable(frame=frame, metadata=metadata)


def _names(nodes: int) -> list[str]:
    """Name nodes by cabinet and place in it: c0000n01, …, c0000n18, c0001n01 and so on."""
    return [
        f"c{i // NODES_PER_CABINET:04d}n{i % NODES_PER_CABINET + 1:02d}"
        for i in range(nodes)
    ]
