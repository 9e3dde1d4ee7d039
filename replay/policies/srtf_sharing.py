"""Shortest remaining time first; jobs without room share the units of others (ξ sharing, IWQoS'24)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from bft.replay.engine.policy_api import Decision, Jobs, JobView, State, Traits
from bft.replay.engine.rules import Interference
from bft.replay.policies._constants import consolidates, constant
from bft.replay.policies._shared_units import (
    SharedPlaces,
    free_units,
    pays,
    ratios_of,
    rooms,
    speed,
    together_s,
)
from bft.replay.policies.rigid import run
from bft.replay.policies.shortest import seconds_at_request

Placement = dict[int, tuple[int, ...]]


@dataclass
class _SharedSrtf(ABC):
    """The common part of both policies.

    First plain srtf decides which jobs have units of their own: a unit with two holders counts for the more urgent one.
    Then a running job whose units were given to a newcomer stays beside it if they may share; otherwise it stops.
    Last, waiting jobs take free units and units of running jobs. No job is ever stopped to let others share.

    A job with a partner gets no second one, but a newcomer may share with several running jobs.

    Parameters
    ----------
    consolidate
        Place each job on as few nodes as possible; otherwise on any units.
    interference
        The pairs that may share, and their ratios.
    """

    consolidate: bool = consolidates()
    interference: Interference | None = constant(None, "pairs that may share")
    traits: ClassVar[Traits] = Traits(rigid=True, clairvoyant=True, shares=True)

    @abstractmethod
    def worth(
        self, seconds: tuple[float, float], ratios: tuple[float, float]
    ) -> float | None:
        """Value of a newcomer joining a running job (first ratio: the newcomer's); None if it must not join."""

    def decide(self, state: State) -> Decision:
        """Run the shortest jobs, and let others share."""
        if len(state.jobs.running) == len(state.jobs):
            return Decision.keep()
        return _Walk(self, state).decision()


@dataclass
class SrtfAllShared(_SharedSrtf):
    """Preemptive shortest remaining time first; a job without room shares with any allowed job; uses true durations.

    Running jobs are tried from the shortest remaining time upwards; each takes at most one newcomer.
    """

    name: str = field(default="srtf-ars", init=False)

    def worth(
        self, seconds: tuple[float, float], ratios: tuple[float, float]
    ) -> float | None:
        """Return the same worth for each pair."""
        return 0.0


@dataclass
class SrtfWiselyShared(_SharedSrtf):
    """Preemptive shortest remaining time first; a job without room shares where it helps; uses true durations.

    Parameters
    ----------
    helps
        When sharing helps, and which partner is best. `completion`: the mean completion time of both is smaller than
        one after the other; the best partner has the smallest mean. `speed`: together they do more work per second
        than one alone; the best partner has the most.
    """

    helps: Literal["completion", "speed"] = constant(
        "completion",
        "sharing helps when it lowers the mean completion time, or adds speed",
    )
    name: str = field(default="srtf-wrs", init=False)

    def worth(
        self, seconds: tuple[float, float], ratios: tuple[float, float]
    ) -> float | None:
        """The value according to `helps`."""
        if self.helps == "speed":
            gained = speed(*ratios)
            return gained if gained > 1 else None
        return -together_s(*seconds, *ratios) if pays(*seconds, *ratios) else None


class _Walk:
    """The working state of a single decision: jobs, their times, and the units that are left."""

    def __init__(self, policy: _SharedSrtf, state: State) -> None:
        self._policy, self._state, self._jobs = policy, state, state.jobs
        self._seconds = [
            seconds_at_request(view.job, view.remaining) for view in state.jobs
        ]
        # Among equals, running jobs first, then by admission: as in srtf.
        self._order = sorted(
            range(len(state.jobs)),
            key=lambda position: (
                self._seconds[position],
                not state.jobs[position].units,
            ),
        )
        self._placed: Placement = {}
        self._sharing: set[int] = (
            set()
        )  # positions of jobs with a partner after this decision

    def decision(self) -> Decision:
        """The units of every job."""
        views, order = _owners(self._jobs, self._order)
        alone = run(
            replace(self._state, jobs=Jobs(views)),
            order,
            spreads=lambda job: not self._policy.consolidate,
        )
        self._placed.update(
            (position, tuple(units))
            for position, units in (alone.placement or {}).items()
        )
        if any(not units for units in self._placed.values()):
            self._stay()
        else:
            self._sharing.update(
                position for position, view in enumerate(self._jobs) if view.partners
            )
        elsewhere = self._join()
        if alone.wake_ns is not None:  # a job gave way although other units are free
            elsewhere = elsewhere or any(not units for units in self._placed.values())
        return Decision.placed(
            self._placed, wake_ns=self._state.time_ns + 1 if elsewhere else None
        )

    def _stay(self) -> None:
        """Keep running jobs that may share with the newcomers on their units; stop the others."""
        on: dict[int, list[int]] = {
            unit: [position]
            for position, units in self._placed.items()
            for unit in units
        }
        joined: set[int] = set()
        for position in self._order:
            view = self._jobs[position]
            if not view.units:
                continue
            beside = {other for unit in view.held for other in on.get(unit, ())}
            newcomers = beside.difference(partner for partner, _ in view.partners)
            if (
                any(len(on.get(unit, ())) > 1 for unit in view.held)
                or not joined.isdisjoint(beside)
                or (
                    newcomers
                    and (len(beside) > 1 or self._worth(position, *newcomers) is None)
                )
            ):
                self._placed[position] = ()
                continue
            self._placed.pop(position, None)
            for unit in view.held:
                on.setdefault(unit, []).append(position)
            if newcomers:
                joined.add(position)
            if beside:
                self._sharing |= {position, *beside}

    def _join(self) -> bool:
        """Let waiting jobs share; return whether a stopped job would find room elsewhere at its next turn."""
        hosts_left = [
            position
            for position in self._order
            if position not in self._sharing and self._held(position)
        ]
        if self._policy.interference is None or not hosts_left:
            return False
        places = self._places(hosts_left)
        newcomers = {
            position: self._jobs[position].job
            for position in self._order
            if not self._held(position)
        }
        elsewhere = False
        for position, units in rooms(
            places,
            newcomers,
            self._policy.interference,
            lambda newcomer: self._ranked(newcomer, places.hosts()),
            spread=not self._policy.consolidate,
        ):
            for host in set(places.take(units).values()):
                places.close(host)
            # A job that is being stopped cannot move in the same decision.
            if self._jobs[position].units:
                elsewhere = True
            else:
                self._placed[position] = units
        return elsewhere

    def _held(self, position: int) -> tuple[int, ...]:
        """The units of a job after this decision."""
        view: JobView = self._jobs[position]
        return self._placed.get(position, view.held)

    def _places(self, hosts: Iterable[int]) -> SharedPlaces:
        """Return the places for newcomers: free units, and units of jobs that run without a partner."""
        taken = {
            unit for position in range(len(self._jobs)) for unit in self._held(position)
        }
        free = free_units(self._state, self._state.machine.placement(), taken)
        stopped = (
            unit
            for position, units in self._placed.items()
            if not units
            for unit in self._jobs[position].held
        )
        places = SharedPlaces(
            [*free, *(unit for unit in stopped if unit not in taken)],
            self._state.machine.units_per_node,
        )
        for position in hosts:
            places.open(position, self._held(position))
        return places

    def _ranked(self, position: int, hosts: Iterable[int]) -> list[int]:
        """Running jobs that a newcomer may join, best first."""
        worth = {host: self._worth(position, host) for host in hosts}
        able = {host: value for host, value in worth.items() if value is not None}
        return sorted(able, key=lambda host: -able[host])

    def _worth(self, newcomer: int, running: int) -> float | None:
        a, b = self._jobs[newcomer].job, self._jobs[running].job
        ratios = ratios_of(self._policy.interference, a, b)
        if ratios is None:
            return None
        seconds = self._seconds[newcomer], self._seconds[running]
        return self._policy.worth(seconds, ratios)


def _owners(
    jobs: Sequence[JobView], order: Sequence[int]
) -> tuple[tuple[JobView, ...], list[int]]:
    """The jobs, each unit counted for its more urgent holder only; and the order of those that have units then."""
    if not any(view.partners for view in jobs):
        return tuple(jobs), list(order)
    views = list(jobs)
    owned: set[int] = set()
    left = []
    for position in order:
        view = jobs[position]
        if view.partners:
            own = tuple(unit for unit in view.held if unit not in owned)
            owned.update(own)
            if len(own) < view.units:
                views[position] = JobView(view.job, len(own), view.unit_seconds, own)
        if views[position].units or not view.units:
            left.append(position)
    return tuple(views), left
