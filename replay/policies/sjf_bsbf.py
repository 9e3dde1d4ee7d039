"""Shortest job first, with the best sharing benefit first (SJF-BSBF, Luo et al., IWQoS'24)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from bft.replay.engine.policy_api import Decision, Kind, State
from bft.replay.engine.rules import Interference
from bft.replay.policies._shared_units import (
    Refused,
    SharedPlaces,
    free_units,
    pays,
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

    consolidate: bool = field(
        default=True, metadata={"help": "place each job on as few nodes as it needs"}
    )
    interference: Interference | None = field(
        default=None, metadata={"help": "pairs that may share"}
    )
    name: str = field(default="sjf-bsbf", init=False)
    kind: ClassVar[Kind] = Kind(rigid=True, clairvoyant=True, shares=True)

    def decide(self, state: State) -> Decision:
        """Start the shortest jobs."""
        waiting = list(state.waiting)
        twice = sum(view.shared for view in state.jobs) // 2
        if not waiting or twice == state.idle:  # every unit has two holders
            return Decision.keep()
        return _Walk(self, state).decision(waiting)


class _Walk:
    """The working state of a single decision: jobs, their times, and the units that are left."""

    def __init__(self, policy: SjfBestSharing, state: State) -> None:
        self._policy, self._state, self._jobs = policy, state, state.jobs
        self._seconds = [
            seconds_at_request(view.job, view.remaining) for view in state.jobs
        ]
        self._pace = [1.0] * len(
            state.jobs
        )  # slow-down of each job relative to running alone
        for position, view in enumerate(state.jobs):
            for partner, _ in view.partners:
                self._slow_down(position, partner)
        self._room = self._opened()

    def decision(self, waiting: list[int]) -> Decision:
        """The jobs that start, with their units."""
        room = self._room
        refused = Refused(self._policy.interference)
        placed = {}
        for position in sorted(waiting, key=self._seconds.__getitem__):
            job = self._jobs[position].job
            if job.request > len(room) or refused.surely(job):
                continue
            units = room.find(
                job.request, self._ranked(position), spread=not self._policy.consolidate
            )
            if units is None:
                refused.note(job)
                continue
            placed[position] = units
            shared = room.take(units)
            room.open(position, (unit for unit in units if unit not in shared))
            for host in dict.fromkeys(shared.values()):
                self._slow_down(position, host)
                self._slow_down(host, position)
            if not len(room):
                break
        return Decision.placed(placed)

    def _opened(self) -> SharedPlaces:
        """Return the places for newcomers: free units, and units that one job holds alone."""
        holders = Counter(unit for view in self._jobs for unit in view.held)
        machine = self._state.machine
        room = SharedPlaces(
            free_units(self._state, machine.placement(), holders),
            machine.units_per_node,
        )
        for position, view in enumerate(self._jobs):
            room.open(position, (unit for unit in view.held if holders[unit] == 1))
        return room

    def _ranked(self, newcomer: int) -> list[int]:
        """Running jobs that a newcomer may join, best first."""
        seconds = self._seconds[newcomer]
        mean_s = {}
        for host in self._room.hosts():
            ratios = self._xi(newcomer, host)
            if ratios is None:
                continue
            pace = self._pace[host]
            pair = (
                seconds,
                self._seconds[host] * pace,
                ratios[0],
                max(pace, ratios[1]) / pace,
            )
            if pays(*pair):
                mean_s[host] = together_s(*pair)
        return sorted(mean_s, key=mean_s.__getitem__)

    def _slow_down(self, position: int, beside: int) -> None:
        ratios = self._xi(position, beside)
        if ratios is not None:
            self._pace[position] = max(self._pace[position], ratios[0])

    def _xi(self, a: int, b: int) -> tuple[float, float] | None:
        interference, job_a, job_b = (
            self._policy.interference,
            self._jobs[a].job,
            self._jobs[b].job,
        )
        return (
            None
            if interference is None
            else interference.xi(job_a, job_b, job_a.request, job_b.request)
        )
