"""Shortest job first, with the best sharing benefit first (SJF-BSBF, Luo et al., IWQoS'24)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from bft.replay.engine.policy_api import Decision, State, Traits
from bft.replay.engine.rules import Interference
from bft.replay.policies._constants import consolidates, constant
from bft.replay.policies._shared_units import (
    SharedPlaces,
    free_units,
    pays,
    ratios_of,
    rooms,
    together_s,
)
from bft.replay.policies.shortest import seconds_at_request


@dataclass
class SjfBestSharing:
    """Shortest first, without preemption; a job with too few free units joins running jobs where that pays.

    It uses true durations. Waiting jobs are tried by remaining time; a job without room is skipped. A newcomer takes
    free units, else also those of running jobs: first of the one with the smallest mean completion time together, as
    long as that is smaller than one after the other (`_shared_units.pays`). It may share with several jobs, and a job
    with several newcomers, at most one per unit. The remaining time of a running job, and the cost of a further
    partner, are computed at its present speed.

    Parameters
    ----------
    consolidate
        Place each job on as few nodes as possible; otherwise on any units.
    interference
        The pairs that may share, and their ratios.
    """

    consolidate: bool = consolidates()
    interference: Interference | None = constant(None, "pairs that may share")
    name: str = field(default="sjf-bsbf", init=False)
    traits: ClassVar[Traits] = Traits(rigid=True, clairvoyant=True, shares=True)

    def decide(self, state: State) -> Decision:
        """Start the shortest jobs."""
        waiting = list(state.jobs.waiting)
        twice = sum(view.shared for view in state.jobs) // 2
        if not waiting or twice == state.idle:  # every unit has two holders
            return Decision.keep()
        seconds = [seconds_at_request(view.job, view.remaining) for view in state.jobs]
        jobs = [view.job for view in state.jobs]
        pace = [1.0] * len(jobs)  # slow-down of each job relative to running alone

        def slow_down(position: int, beside: int) -> None:
            ratios = ratios_of(self.interference, jobs[position], jobs[beside])
            if ratios is not None:
                pace[position] = max(pace[position], ratios[0])

        def ranked(newcomer: int) -> list[int]:
            """Running jobs that a newcomer may join, best first."""
            mean_s = {}
            for host in places.hosts():
                ratios = ratios_of(self.interference, jobs[newcomer], jobs[host])
                if ratios is None:
                    continue
                slower = max(pace[host], ratios[1]) / pace[host]
                times = seconds[newcomer], seconds[host] * pace[host]
                if pays(*times, ratios[0], slower):
                    mean_s[host] = together_s(*times, ratios[0], slower)
            return sorted(mean_s, key=mean_s.__getitem__)

        for position, view in enumerate(state.jobs):
            for partner, _ in view.partners:
                slow_down(position, partner)
        places = _opened(state)
        newcomers = {
            position: jobs[position]
            for position in sorted(waiting, key=seconds.__getitem__)
        }
        placed = {}
        for position, units in rooms(
            places, newcomers, self.interference, ranked, spread=not self.consolidate
        ):
            placed[position] = units
            shared = places.take(units)
            places.open(position, (unit for unit in units if unit not in shared))
            for host in dict.fromkeys(shared.values()):
                slow_down(position, host)
                slow_down(host, position)
        return Decision.placed(placed)


def _opened(state: State) -> SharedPlaces:
    """Return the places for newcomers: free units, and units that one job holds alone."""
    holders = Counter(unit for view in state.jobs for unit in view.held)
    machine = state.machine
    free = free_units(state, machine.placement(), holders)
    places = SharedPlaces(free, machine.units_per_node)
    for position, view in enumerate(state.jobs):
        places.open(position, (unit for unit in view.held if holders[unit] == 1))
    return places
