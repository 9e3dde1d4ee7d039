"""Jobs share units where that pays (ξ sharing): srtf-ars, srtf-wrs and sjf-bsbf.

A newcomer gets free units, or those whose one holder would share them. Sharing pays by the criterion of Luo et al.,
"Scheduling Deep Learning Jobs in Multi-Tenant GPU Clusters via Wise Resource Sharing", IWQoS 2024. Two jobs are on the
same units, each with the seconds that it would still need alone. While they share, an iteration takes xi >= 1 times as
long; after one has finished, as long as alone. The criterion is the mean of both completion times, from now on.
"""

from collections import Counter
from collections.abc import (
    Callable,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import ClassVar, Literal

from bft.models import Job
from bft.replay.engine.policy_api import Decision, Jobs, JobView, State, Traits
from bft.replay.engine.rules import Interference
from bft.replay.engine.units import FreeList
from bft.replay.policies._constants import consolidates, constant
from bft.replay.policies.rigid import Refused, run
from bft.replay.policies.shortest import seconds_at_request


class SharedPlaces:
    """Free and open units that can be handed out on paper.

    Parameters
    ----------
    free
        Units that nobody holds.
    units_per_node
        Units of a node; unit u lies on node u // units_per_node.
    """

    def __init__(self, free: Iterable[int], units_per_node: int = 1) -> None:
        self._per = units_per_node
        self._free = dict.fromkeys(free)
        self._open: dict[
            int, dict[int, None]
        ] = {}  # job -> its units that one more may hold
        self._owner: dict[int, int] = {}  # open unit -> job

    def __len__(self) -> int:
        return len(self._free) + len(self._owner)

    def hosts(self) -> Iterator[int]:
        """Positions of the jobs with open units, in the order in which they were opened."""
        return iter(self._open)

    def open(self, host: int, units: Iterable[int]) -> None:
        """Open units of a job to others."""
        opened = dict.fromkeys(units)
        if opened:
            self._open[host] = opened
            self._owner.update(dict.fromkeys(opened, host))

    def close(self, host: int) -> None:
        """Close the units of a job to others."""
        for unit in self._open.pop(host, ()):
            del self._owner[unit]

    def find(
        self, units: int, hosts: Iterable[int] = (), *, spread: bool = False
    ) -> tuple[int, ...] | None:
        """Find this many units, None when they are not available.

        Free units alone if they suffice; otherwise also units of the first hosts, of as few hosts as possible. On each
        node free units come first, then those of the first hosts.

        Parameters
        ----------
        units
            Number of units, at least 1.
        hosts
            Jobs whose open units may be used, best first.
        spread
            Whether they may lie on more nodes than needed; see `FreeList.take`.
        """
        if self._per == 1:  # all nodes are equal
            opened = chain.from_iterable(self._open[host] for host in hosts)
            first = tuple(islice(chain(self._free, opened), units))
            return first if len(first) == units else None
        line = list(self._free)
        places = FreeList(line, self._per)
        units_taken = places.take(units, spread=spread)
        for host in hosts:
            if units_taken is not None:
                break
            line.extend(self._open[host])
            places.give_back(self._open[host])
            units_taken = places.take(units, spread=spread)
        if units_taken is None:
            return None
        wanted = Counter(unit // self._per for unit in units_taken)
        chosen = []
        for unit in line:
            if wanted[unit // self._per]:
                wanted[unit // self._per] -= 1
                chosen.append(unit)
        return tuple(chosen)

    def take(self, units: Iterable[int]) -> dict[int, int]:
        """Record that units from `find` were given: return those that are now shared, and with which job."""
        shared = {}
        for unit in units:
            if unit in self._free:
                del self._free[unit]
                continue
            host = shared[unit] = self._owner.pop(unit)
            del self._open[host][unit]
            if not self._open[host]:
                del self._open[host]
        return shared


def free_units(state: State, places: FreeList, held: Container[int]) -> list[int]:
    """The units that are free on paper: those of the nodes in `places` that are idle and not held."""
    per = state.machine.units_per_node
    nodes = places.by_node()
    if per == 1:
        return [
            unit for unit in nodes if unit not in held
        ]  # in the order in which they are handed out
    on = (
        unit
        for node in sorted(nodes, reverse=True)
        for unit in range(node * per, (node + 1) * per)
    )
    return [unit for unit in on if unit not in held and state.machine.is_idle(unit)]


@dataclass
class SharingPolicy:
    """What rigid policies have in common that know durations and let jobs share units.

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

    def ratios(self, a: Job, b: Job) -> tuple[float, float] | None:
        """How many times longer an iteration of each takes beside the other, at their requests; None: may not share."""
        if self.interference is None:
            return None
        return self.interference.xi(a, b, a.request, b.request)

    def rooms(
        self,
        places: SharedPlaces,
        jobs: Mapping[int, Job],
        worth: Callable[[int, int], float | None],
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the jobs that find room, shortest first, with their units; who asks takes these from `places`.

        Room only shrinks during a walk, and a longer job of the same kind may join no host that a shorter one may not
        (see `pays`). So a job that asks for as many units as one that found no room need not be tried. This also holds
        where a host that has been slowed down in the meantime would now accept it: the shorter job comes first, at the
        next decision.

        Parameters
        ----------
        places
            Free and open units.
        jobs
            The newcomers by position, shortest first.
        worth
            Value of a newcomer joining a host, by their positions; None if it must not. The best hosts come first.
        """
        refused, interference = Refused(), self.interference
        for position, job in jobs.items():
            if not len(places):
                return
            kind: Hashable = None
            if interference is not None:
                # With more units a job's ratio may be smaller.
                kind = (
                    interference.job_class(job),
                    interference.by_units and job.request,
                )
                # With smaller batches the order of submission matters.
                kind = kind if interference.memory is None else job
            if job.request > len(places) or refused.surely(job.request, kind):
                continue
            worths = ((host, worth(position, host)) for host in places.hosts())
            able = {host: value for host, value in worths if value is not None}
            hosts = sorted(able, key=able.__getitem__, reverse=True)
            units = places.find(job.request, hosts, spread=not self.consolidate)
            if units is None:
                refused.note(job.request, kind)
            else:
                yield position, units


def together_s(
    newcomer_s: float, running_s: float, xi_newcomer: float, xi_running: float
) -> float:
    """Mean completion time of two jobs that share from now on, seconds (T_con).

    The job that ends first is slowed by its xi all the way. If that is the running job, the newcomer has by then spent
    xi_running * running_s and done 1 / xi_newcomer of that; it does the rest alone:

        T_newcomer = newcomer_s + xi_running * running_s * (1 - 1 / xi_newcomer)

    If the newcomer ends first, the roles are exchanged.

    Parameters
    ----------
    newcomer_s, running_s
        Seconds that each still needs alone.
    xi_newcomer, xi_running
        How many times longer an iteration of each takes beside the other, >= 1.
    """
    if xi_newcomer * newcomer_s >= xi_running * running_s:
        return newcomer_s / 2 + (1 - 1 / (2 * xi_newcomer)) * xi_running * running_s
    return running_s / 2 + (1 - 1 / (2 * xi_running)) * xi_newcomer * newcomer_s


def pays(
    newcomer_s: float, running_s: float, xi_newcomer: float, xi_running: float
) -> bool:
    """Whether sharing from now on beats one after the other: T_con < T_seq, without cancellation errors.

    One after the other, the mean completion time is T_seq = running_s + newcomer_s / 2.

    If the running job ends first, lengths cancel out. Sharing that starts later is never better than the better of the
    two, because the mean is concave in the delay. So a job that does not join now need not be considered again.
    """
    if xi_newcomer * newcomer_s >= xi_running * running_s:
        return xi_running * (1 - 1 / (2 * xi_newcomer)) < 1
    return (1 - 1 / (2 * xi_running)) * xi_newcomer * newcomer_s < (
        newcomer_s + running_s
    ) / 2


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
        if len(state.jobs.running) == len(state.jobs):
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
