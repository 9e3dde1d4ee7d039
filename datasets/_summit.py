"""Measurements on Summit, and constants of the node-trace generator fitted to them.

Source of every figure called *measured*: Summit log, 10-24 February 2021, measured (4,734 nodes,
14.9 days, one row per poll at which at least one node changed).
"""

from __future__ import annotations

from typing import Final

SUMMIT_NODES: Final = 4734
"""Nodes in the log, measured."""

SUMMIT_DAYS: Final = 14.9
"""Days in the log, measured."""

POLL_EIGHTHS_S: Final = 81
"""Eighths of a second between two polls of the batch system: 10.125 s, because 12 % of the one-poll
gaps in the log are 11 s and the others 10 s, measured. An integer, so that poll times are exact."""

FRAGMENTS_PER_NODE_DAY: Final = 5.99
"""Idle fragments per node and day (423,354 over 4,734 nodes and 14.92 days), measured."""

NEVER_IDLE_SHARE: Final = 54 / SUMMIT_NODES
"""Share of nodes that never turn idle, measured."""

MIN_FRAGMENT_POLLS: Final = 7
"""Shortest idle fragment (70 s), in polls, measured."""

FRAGMENT_S: Final = (
    (0.0, 70.5), (0.01, 71.0), (0.05, 79.0), (0.10, 91.0), (0.15, 112.0), (0.20, 132.0), (0.25, 162.0),
    (0.30, 193.0), (0.40, 294.0), (0.50, 475.0), (0.60, 688.0), (0.70, 1143.0), (0.75, 1397.0),
    (0.80, 1760.0), (0.85, 2295.0), (0.90, 3269.0), (0.95, 4723.0), (0.975, 6624.0), (0.99, 9246.0),
    (0.995, 9671.0), (0.999, 12585.0), (1.0, 20000.0),
)  # fmt: skip
"""Quantiles of the duration of one node's idle fragment, (probability, seconds), measured. The last
point is cut: the log's longest fragment is 3.1 days, but only 1 in 2,000 exceeds four hours."""

HOLE_NODES: Final = (
    (0.0, 1.0), (0.34, 1.0), (0.40, 2.0), (0.50, 4.0), (0.60, 6.0), (0.70, 10.0), (0.75, 16.0), (0.80, 20.0),
    (0.85, 32.0), (0.90, 50.0), (0.925, 64.0), (0.95, 108.0), (0.965, 128.0), (0.98, 256.0), (0.985, 340.0),
    (0.99, 512.0), (0.995, 979.0), (0.9975, 1034.0), (0.999, 1600.0), (1.0, 2780.0),
)  # fmt: skip
"""Quantiles of the nodes that turn idle together, (probability, nodes), measured on 4,734 nodes."""

# Fitted: chosen by hand so that the generated process meets the measured facts (benchmarks/summit_like.py prints both).

HOLES_PER_DAY: Final = 1120.0
"""Holes a day on 4,734 nodes: 985 rows with a join a day (measured) plus those that share a row."""

HOLE_COUNT_EXPONENT: Final = 0.4
"""Holes a day grow as (nodes / 4,734) to this power and their sizes take the rest: a machine a tenth
as large has both fewer and smaller holes."""

LARGEST_HOLE_SHARE: Final = 2780 / SUMMIT_NODES
"""Largest share of the machine that turns idle at once, measured."""

OUTAGES_PER_DAY: Final = 0.4
OUTAGE_SHARE: Final = (0.55, 0.85)
"""Share of the machine gathered by one outage, smallest and largest. Chosen for the 12.7 h with
more than 2,000 idle nodes (measured); traces of that length have 12-18 h."""
OUTAGE_FRAGMENT_S: Final = (1500.0, 13000.0)
"""Fragments that may belong to an outage, seconds."""
OUTAGE_HOLE_SHARE: Final = 0.3
"""Largest hole, as a share of the machine, that may belong to an outage."""

LARGE_STARTS_PER_DAY: Final = 30.0
LARGE_START_SHARE: Final = 0.08
LARGE_START_SIGMA: Final = 0.9
LARGE_START_MAX_SHARE: Final = 0.7
"""Starts of large jobs, which take many holes back at once: how many a day, and the log-normal share
of the machine each takes (median, sigma, cap). In the log 377 leaves of at least 200 nodes take 69 %
of all nodes that leave (measured)."""
LARGE_START_SIZE_EXPONENT: Final = 0.5
LARGE_START_LENGTH_EXPONENT: Final = 0.2
"""A hole ends in the start of a large job with odds that grow with its nodes and its length to these powers."""

ACTIVITY: Final = ((86400.0, 0.2), (7200.0, 0.8))
"""Log-activity of the machine: (correlation time in seconds, standard deviation) of each component.
The log has quiet and busy hours too: its hourly rows with a join have a variance of 11 × their mean (measured)."""
HEAVY_QUANTILE: Final = 0.55
HEAVY_EXPONENT: Final = 2.4
"""Holes with more node-seconds than this quantile follow the activity to this power, the others to
the first: quiet hours have few and small holes (idle nodes are fewer than 81 half of the time, measured)."""

RECENT_SHARE: Final = 0.5
"""Share of the holes that open where nodes were last taken (short jobs): a quarter of the log's busy
periods last less than six minutes, measured."""
