"""Units by kind, where they are of several: offered, and used."""

from __future__ import annotations

from typing import Any

import numpy as np

from bft.replay.engine.ledger import Outcome
from bft.replay.trace.node_trace import SECOND_NS


def units_by_kind(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Return each kind's units, idle and used unit-seconds in the window, and their ratio; empty without kinds."""
    trace, held = outcome.trace, outcome.allocations
    if not trace.kinds:
        return {}
    spans = (
        held["end_ns"].clip(upper=outcome.end_ns)
        - held["start_ns"].clip(lower=outcome.start_ns)
    ).clip(lower=0)
    # Units that a job gets together and that are neighbours are of one kind: a job has units of one kind at a time.
    used = (spans / SECOND_NS) * (held["last_unit"] - held["first_unit"] + 1)
    of = np.array(trace.kinds)[held["first_unit"].to_numpy() // trace.units_per_node]
    sizes = trace.node_units or (trace.units_per_node,) * len(trace.nodes)
    seconds = (
        np.diff(
            np.append(trace.times, trace.end).clip(outcome.start_ns, outcome.end_ns)
        )
        / SECOND_NS
    )
    result = {}
    for kind in dict.fromkeys(trace.kinds):
        idle = float(trace.of_kind(kind).idle_units() @ seconds)
        used_of_kind = float(used[of == kind].sum())
        result[kind] = {
            "units": sum(
                size
                for size, other in zip(sizes, trace.kinds, strict=True)
                if other == kind
            ),
            "idle_unit_s": idle,
            "used_unit_s": used_of_kind,
            "used_share": used_of_kind / idle if idle else None,
        }
    return result
