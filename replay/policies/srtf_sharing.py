"""Shortest remaining time first; jobs without room share the units of others (ξ sharing, IWQoS'24)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bft.replay.engine.policy_api import Decision, Jobs, JobView, State
from bft.replay.policies._constants import constant
from bft.replay.policies._shared_units import (
    SharedPlaces,
    SharingPolicy,
    free_units,
    pays,
    together_s,
)
from bft.replay.policies.rigid import run
from bft.replay.policies.shortest import seconds_at_request


@dataclass
class SrtfAllShared(SharingPolicy):
    """Preemptive shortest remaining time first; a job without room shares with any allowed job; uses true durations.

    First plain srtf decides which jobs have units of their own: a unit with two holders counts for the more urgent one.
    Then a running job whose units were given to a newcomer stays beside it if they may share; otherwise it stops.
    Last, waiting jobs take free units and units of running jobs, which are tried from the shortest remaining time
    upwards. No job is ever stopped to let others share.

    A job with a partner gets no second one, but a newcomer may share with several running jobs.
    """

    name: str = field(default="srtf-ars", init=False)

    def worth(
        self, seconds: tuple[float, float], ratios: tuple[float, float]
    ) -> float | None:
        """Value of a newcomer joining a running job (first ratio: the newcomer's); None if it must not join."""
        return 0.0

    def decide(self, state: State) -> Decision:
        """Run the shortest jobs, and let others share."""
        if not len(state.jobs.waiting):
            return Decision.keep()
        return _Walk(self, state).decision()


@dataclass
class SrtfWiselyShared(SrtfAllShared):
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
            # Work of both together in a second, in seconds of their work alone.
            gained = 1 / ratios[0] + 1 / ratios[1]
            return gained if gained > 1 else None
        return -together_s(*seconds, *ratios) if pays(*seconds, *ratios) else None


class _Walk:
    """The working state of a single decision: jobs, their times, and the units that are left."""

    def __init__(self, policy: SrtfAllShared, state: State) -> None:
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
        self._placed: dict[int, tuple[int, ...]] = {}
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
        # Newcomers may have free units, and units of jobs that run without a partner.
        taken = {
            unit for position in range(len(self._jobs)) for unit in self._held(position)
        }
        stopped = (
            unit
            for position, units in self._placed.items()
            if not units
            for unit in self._jobs[position].held
        )
        machine = self._state.machine
        free = free_units(self._state, machine.placement(), taken)
        free += (unit for unit in stopped if unit not in taken)
        places = SharedPlaces(free, machine.units_per_node)
        for position in hosts_left:
            places.open(position, self._held(position))
        newcomers = {
            position: self._jobs[position].job
            for position in self._order
            if not self._held(position)
        }
        elsewhere = False
        for position, units in self._policy.rooms(places, newcomers, self._worth):
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

    def _worth(self, newcomer: int, running: int) -> float | None:
        a, b = self._jobs[newcomer].job, self._jobs[running].job
        ratios = self._policy.ratios(a, b)
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
