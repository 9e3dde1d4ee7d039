"""Which units a newcomer gets: free ones, or those whose one holder would share them; and whether sharing pays.

Sharing pays by the criterion of Luo et al., "Scheduling Deep Learning Jobs in Multi-Tenant GPU Clusters via Wise
Resource Sharing", IWQoS 2024. Two jobs are on the same units, each with the seconds that it would still need alone.
While they share, an iteration takes xi >= 1 times as long; after one has finished, as long as alone. The criterion is
the mean of both completion times, from now on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from itertools import chain, islice

from bft.models import Job
from bft.replay.engine.policy_api import State
from bft.replay.engine.rules import Interference
from bft.replay.engine.units import FreeList
from bft.replay.policies.rigid import Refused


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


def ratios_of(
    interference: Interference | None, a: Job, b: Job
) -> tuple[float, float] | None:
    """How many times longer an iteration of each takes beside the other, at their requests; None: may not share."""
    if interference is None:
        return None
    return interference.xi(a, b, a.request, b.request)


def rooms(
    places: SharedPlaces,
    jobs: Mapping[int, Job],
    interference: Interference | None,
    ranked: Callable[[int], Iterable[int]],
    *,
    spread: bool,
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the jobs that find room, shortest first, with their units; who asks takes these from `places`.

    Room only shrinks during a walk, and a longer job of the same kind may join no host that a shorter one may not (see
    `pays`). So a job that asks for as many units as one that found no room need not be tried. This also holds where a
    host that has been slowed down in the meantime would now accept it: the shorter job comes first, at the next
    decision.

    Parameters
    ----------
    places
        Free and open units.
    jobs
        The newcomers by position, shortest first.
    interference
        The pairs that may share.
    ranked
        The hosts that a newcomer may join, best first.
    spread
        Whether jobs may lie on more nodes than needed.
    """
    refused = Refused()
    for position, job in jobs.items():
        if not len(places):
            return
        kind: Hashable = None
        if interference is not None:
            # With more units a job's ratio may be smaller.
            kind = interference.job_class(job), interference.by_units and job.request
            # With smaller batches the order of submission matters.
            kind = kind if interference.memory is None else job
        if job.request > len(places) or refused.surely(job.request, kind):
            continue
        units = places.find(job.request, ranked(position), spread=spread)
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


def speed(xi_newcomer: float, xi_running: float) -> float:
    """Work of two jobs together in a second, in seconds of their work alone: above 1 sharing increases throughput."""
    return 1 / xi_newcomer + 1 / xi_running
