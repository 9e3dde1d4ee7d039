"""Optimus (EuroSys'18) as Pollux' artifact runs it: units go where they shorten the remaining time most."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import ClassVar

from bft.models.speed.dynamics import ApplicationDynamics
from bft.replay.engine.port import Decision, JobView, Kind, State
from bft.replay.policies._nodes import Nodes
from bft.replay.policies._rounds import is_round, keep_what_is_left, next_round


@dataclass
class Optimus:
    """Give each job what it needs to run at all, then each unit where it saves most time, as long as it saves any.

    The time that a job still needs on n units is known: remaining work over its rate on n units, consolidated. Jobs
    whose count does not change stay where they are; the others are placed anew, those with few units first, on the
    nodes with most free units.

    Parameters
    ----------
    interval_s
        Seconds between decisions; 0 decides whenever something happens.
    """

    interval_s: float = field(default=60.0, metadata={"help": "seconds between decisions, 0: at every event"})
    name: str = field(default="optimus", init=False)
    kind: ClassVar[Kind] = Kind(migrates=True, clairvoyant=True)

    def decide(self, state: State) -> Decision:
        """Share out the idle units."""
        wake_ns = next_round(state.time_ns, self.interval_s)
        if not is_round(state.time_ns, self.interval_s):
            return keep_what_is_left(state, wake_ns=wake_ns)
        counts = share(state)
        if state.machine.units_per_node == 1:  # all placements are alike: the engine moves least
            return Decision(tuple(counts), wake_ns=wake_ns)
        changed = sorted(
            (position for position, view in enumerate(state.jobs) if counts[position] != view.units),
            key=lambda position: counts[position],
        )
        nodes = Nodes(state, set(range(len(state.jobs))) - set(changed))
        placement = {position: nodes.take(nodes.emptiest(counts[position])) for position in changed}
        return Decision.placed(placement, wake_ns=wake_ns)


def share(state: State) -> list[int]:
    """Units for each job, by the drop in remaining time that one more brings."""
    per, left = state.machine.units_per_node, state.idle
    counts = [0] * len(state.jobs)
    for position in sorted(range(len(counts)), key=lambda position: state.jobs[position].job.jmin):
        fewest = max(state.jobs[position].job.jmin, 1)
        if fewest <= left:
            counts[position] = fewest
            left -= fewest
    heap: list[tuple[float, int]] = []

    def offer(position: int) -> None:
        view, count = state.jobs[position], counts[position]
        if count and count < _most(view):
            saved = remaining_s(view, count, per) - remaining_s(view, count + 1, per)
            if saved > 0:
                heapq.heappush(heap, (-saved, position))

    for position in range(len(counts)):
        offer(position)
    while left and heap:
        position = heapq.heappop(heap)[1]
        counts[position] += 1
        left -= 1
        offer(position)
    return counts


def remaining_s(view: JobView, units: int, units_per_node: int) -> float:
    """Seconds that a job still needs on so many units."""
    if isinstance(view.dynamics, ApplicationDynamics):
        return view.dynamics.iterations_left(view.progress) * view.dynamics.step_s(units, units_per_node)
    rate = float(view.job.rates[units])
    return view.remaining / rate if rate else float("inf")


def _most(view: JobView) -> int:
    if isinstance(view.dynamics, ApplicationDynamics):
        return min(view.job.jmax, view.dynamics.most)
    return view.job.jmax
