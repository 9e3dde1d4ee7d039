"""Cost and value of a replay, from what the user states about a node: watts, price, CO2 (docs/results.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bft.replay.engine.ledger import Outcome


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates that the user states for a node; figures are derived only from stated values.

    Parameters
    ----------
    node_watts
        Power of a node without jobs and of one all of whose units are used, W.
    price_per_node_hour
        In any currency.
    co2_per_kwh
        Grams of CO2 per kWh; needs `node_watts`.
    """

    node_watts: tuple[float, float] | None = None
    price_per_node_hour: float | None = None
    co2_per_kwh: float | None = None


def costs(outcome: Outcome, rates: Rates) -> dict[str, Any]:
    """Node-hours, energy, money and CO2 of the window of evaluation, as far as the stated rates define them.

    With N the idle node-hours of the window and n <= N those used (a node with part of its units used counts in
    proportion), P_idle and P_busy the watts of a node:

        additional energy = (P_busy - P_idle) n / 1000                         [kWh]
        total energy      = (P_idle (N - n) + P_busy n) / 1000                 [kWh]
        value used        = price n,        value unused = price (N - n)
        CO2               = energy co2_per_kwh / 1000                          [kg]

    Examples
    --------
    >>> from bft.models import Curve, Job, JobTable
    >>> from bft.replay import EqualShare, Replay, always_idle
    >>> curve = Curve([0, 1], [0, 1])
    >>> job = Job("a", 0, 1, 1, pmax=3600.0, tcup_s=0.0, tcdw_s=0.0, scalability=curve, objective=curve)
    >>> outcome = Replay(always_idle(2, 0, 3600 * 10**9), JobTable((job,)), EqualShare()).run()
    >>> costs(outcome, Rates(node_watts=(100.0, 500.0)))
    {'used_node_h': 1.0, 'unused_node_h': 1.0, 'additional_kwh': 0.4, 'total_kwh': 0.6}
    """
    if rates.node_watts is None and rates.price_per_node_hour is None:
        return {}
    per_node_hour = 3600.0 * outcome.trace.units_per_node
    used = outcome.used_unit_seconds / per_node_hour
    unused = (outcome.idle_unit_seconds - outcome.used_unit_seconds) / per_node_hour
    result = {"used_node_h": used, "unused_node_h": unused}
    if rates.node_watts is not None:
        idle, busy = rates.node_watts
        result["additional_kwh"] = (busy - idle) * used / 1000
        result["total_kwh"] = (idle * unused + busy * used) / 1000
        if rates.co2_per_kwh is not None:
            for part in ("additional", "total"):
                result[f"{part}_co2_kg"] = (
                    result[f"{part}_kwh"] * rates.co2_per_kwh / 1000
                )
    if rates.price_per_node_hour is not None:
        result["value_used"] = rates.price_per_node_hour * used
        result["value_unused"] = rates.price_per_node_hour * unused
    return result


def cost_lines(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text for the figures of `costs`."""
    if "additional_kwh" in figures:
        yield (
            "energy",
            f"{figures['additional_kwh']:,.1f} kWh more than if the nodes had stayed idle; {figures['total_kwh']:,.1f} "
            "kWh in total",
        )
    if "additional_co2_kg" in figures:
        yield (
            "CO2",
            f"{figures['additional_co2_kg']:,.1f} kg more; {figures['total_co2_kg']:,.1f} kg in total",
        )
    if "value_used" in figures:
        yield (
            "value of node-hours",
            f"{figures['value_used']:,.2f} used ({figures['used_node_h']:,.1f} node-hours), "
            f"{figures['value_unused']:,.2f} left idle",
        )
