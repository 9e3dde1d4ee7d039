"""Shortest job first, with the best sharing benefit first (SJF-BSBF, Luo et al., IWQoS'24)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bft.replay.engine.policy_api import Decision, State
from bft.replay.policies._shared_units import (
    SharedPlaces,
    SharingPolicy,
    free_units,
    pays,
    together_s,
)
from bft.replay.policies.shortest import seconds_at_request


@dataclass
class SjfBestSharing(SharingPolicy):
    """Shortest first, without preemption; a job with too few free units joins running jobs where that pays.

    It uses true durations. Waiting jobs are tried by remaining time; a job without room is skipped. A newcomer takes
    free units, else also those of running jobs: first of the one with the smallest mean completion time together, as
    long as that is smaller than one after the other (`_shared_units.pays`). It may share with several jobs, and a job
    with several newcomers, at most one per unit. The remaining time of a running job, and the cost of a further
    partner, are computed at its present speed.
    """

    name: str = field(default="sjf-bsbf", init=False)

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
            ratios = self.ratios(jobs[position], jobs[beside])
            if ratios is not None:
                pace[position] = max(pace[position], ratios[0])

        def worth(newcomer: int, host: int) -> float | None:
            ratios = self.ratios(jobs[newcomer], jobs[host])
            if ratios is None:
                return None
            slower = max(pace[host], ratios[1]) / pace[host]
            times = seconds[newcomer], seconds[host] * pace[host], ratios[0], slower
            return -together_s(*times) if pays(*times) else None

        for position, view in enumerate(state.jobs):
            for partner, _ in view.partners:
                slow_down(position, partner)
        # Newcomers may have free units, and units that one job holds alone.
        holders = Counter(unit for view in state.jobs for unit in view.held)
        machine = state.machine
        free = free_units(state, machine.placement(), holders)
        places = SharedPlaces(free, machine.units_per_node)
        for position, view in enumerate(state.jobs):
            places.open(position, (unit for unit in view.held if holders[unit] == 1))
        newcomers = {
            position: jobs[position]
            for position in sorted(waiting, key=seconds.__getitem__)
        }
        placed = {}
        for position, units in self.rooms(places, newcomers, worth):
            placed[position] = units
            shared = places.take(units)
            places.open(position, (unit for unit in units if unit not in shared))
            for host in dict.fromkeys(shared.values()):
                slow_down(position, host)
                slow_down(host, position)
        return Decision.placed(placed)
