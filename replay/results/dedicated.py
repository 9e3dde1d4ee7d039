"""U: what jobs achieved on idle nodes, relative to an equal number of dedicated nodes."""

import math
from collections.abc import Sequence
from typing import Any

from bft.models.tolerances import WHOLE_NODES
from bft.replay.engine.ledger import Outcome
from bft.replay.results.census import census_of
from bft.replay.trace.node_trace import NodeTrace, always_idle
from bft.replay.trace.trace_statistics import iso_exact

# With fewer nodes, rounding to a whole number would change U by more than a tenth: two replays are interpolated.
FEW_NODES = 5.0


def equivalent_nodes(outcome: Outcome) -> float:
    """eq-nodes: dedicated nodes that offer as much in the window (resource-integral / duration)."""
    if not outcome.duration_s:
        return 0.0
    return outcome.idle_unit_seconds / outcome.trace.units_per_node / outcome.duration_s


def dedicated_traces(outcome: Outcome) -> list[NodeTrace]:
    """Traces to replay for U: eq-nodes rounded, for few nodes the two nearest whole numbers, over the same window."""
    nodes, per = equivalent_nodes(outcome), outcome.trace.units_per_node
    sizes = (math.floor(nodes), math.ceil(nodes)) if _few(nodes) else (round(nodes),)
    return [
        always_idle(size, outcome.start_ns, outcome.end_ns, units_per_node=per)
        for size in sizes
        if size
    ]


def usefulness(outcome: Outcome, dedicated: Sequence[Outcome]) -> dict[str, Any]:
    """U and its components.

    Parameters
    ----------
    outcome
        The replay.
    dedicated
        The same jobs and policy on `dedicated_traces(outcome)`; empty if not replayed.

    Returns
    -------
    dict
        U; U_at, the instant (UTC) at which it is computed; dedicated_nodes, their number; dedicated_outcome, their
        outcome up to that instant. All None if there is nothing to compare.
    """
    if not dedicated:
        return dict.fromkeys(("U", "U_at", "dedicated_nodes", "dedicated_outcome"))
    ends = [_all_finished_ns(run) for run in (outcome, *dedicated)]
    instant = min([outcome.end_ns, *(end for end in ends if end is not None)])
    nodes = equivalent_nodes(outcome)
    yields = {len(run.trace.nodes): run.work_at(instant) for run in dedicated}
    if _few(nodes):
        low = math.floor(nodes)
        yields[0] = 0.0
        yielded = (low + 1 - nodes) * yields[low] + (nodes - low) * yields[low + 1]
    else:
        nodes = round(nodes)
        yielded = yields[nodes]
    return {
        "U": outcome.work_at(instant) / yielded if yielded else None,
        "U_at": iso_exact(instant),
        "dedicated_nodes": nodes,
        "dedicated_outcome": yielded,
    }


def _few(nodes: float) -> bool:
    return nodes < FEW_NODES and not math.isclose(
        nodes, round(nodes), rel_tol=WHOLE_NODES
    )


def _all_finished_ns(outcome: Outcome) -> int | None:
    """The last end if all jobs submitted by then have finished or been cancelled, without those left out; or None."""
    census = census_of(outcome.records, outcome.end_ns)
    comes = [*census["in_system"], *census["submitted_at_the_end"]]
    finishes = [record.ended_ns for record in comes]
    if not finishes or None in finishes:
        return None
    return max(finish for finish in finishes if finish is not None)
