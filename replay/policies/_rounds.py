"""Policies that decide in rounds: at whole multiples of an interval, in UTC, whatever happens in between.

`Nodes` keeps the books of a round: units of each node that jobs keep, and what is left to hand out.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bft.models.checks import check_fields
from bft.replay.engine.policy_api import Decision, State
from bft.replay.engine.snapshot import StoredState
from bft.replay.policies._constants import rounds
from bft.replay.trace.node_trace import SECOND_NS


def is_round(now_ns: int, interval_s: float) -> bool:
    """Whether an instant begins a round; always, without an interval."""
    step = round(interval_s * SECOND_NS)
    return step <= 0 or now_ns % step == 0


def next_round(now_ns: int, interval_s: float) -> int | None:
    """The first instant after `now_ns` that begins a round; None without an interval."""
    step = round(interval_s * SECOND_NS)
    return (now_ns // step + 1) * step if step > 0 else None


@dataclass
class Rounds(StoredState, ABC):
    """What policies have in common that decide in rounds.

    Parameters
    ----------
    interval_s
        Seconds between decisions; 0 decides whenever something happens.
    """

    interval_s: float = rounds(60.0)

    def __post_init__(self) -> None:
        check_fields(self)

    def decide(self, state: State) -> Decision:
        """Decide at a round; in between a job that cannot run on what it has gives back its newest units."""
        wake_ns = next_round(state.time_ns, self.interval_s)
        if is_round(state.time_ns, self.interval_s):
            return self.round(state).waking(wake_ns)
        fewer = {}
        for position in state.jobs.running:
            view = state.jobs[position]
            runs_on = view.job.at_most(view.units)
            if runs_on < view.units:
                fewer[position] = view.held[:runs_on]
        return Decision.placed(fewer, wake_ns=wake_ns)

    @abstractmethod
    def round(self, state: State) -> Decision:
        """Decide."""


class Nodes:
    """The units that can be handed out if some jobs keep theirs and the others start from nothing.

    Parameters
    ----------
    state
        The moment.
    keeping
        Positions of the jobs that keep their units.
    """

    def __init__(self, state: State, keeping: Collection[int]) -> None:
        self._per, self._kind_of = state.machine.units_per_node, state.machine.kind_of
        taken = {unit for position in keeping for unit in state.jobs[position].held}
        self._free: list[list[int]] = [
            [
                unit
                for unit in range(node * self._per, (node + 1) * self._per)
                if unit not in taken and state.machine.is_idle(unit)
            ]
            if idle
            else []
            for node, idle in enumerate(state.machine.idle_by_node())
        ]

    def take(
        self, counts: Sequence[tuple[int, int]], held: Sequence[int] = ()
    ) -> tuple[int, ...]:
        """Take units of nodes, given as (node, units); units in `held` come first."""
        mine = set(held)
        units: list[int] = []
        for node, count in counts:
            free = sorted(self._free[node], key=lambda unit: unit not in mine)
            units += free[:count]
            self._free[node] = free[count:]
        return tuple(units)

    def own(self, units: Sequence[int]) -> list[tuple[int, int]] | None:
        """The nodes on which some units are, None where one of them was taken: (node, units)."""
        if not all(unit in self._free[unit // self._per] for unit in units):
            return None
        return list(Counter(unit // self._per for unit in units).items())

    def emptiest(self, count: int, kind: str | None = None) -> list[tuple[int, int]]:
        """The nodes (of a kind) with the most free units, descending, until there are `count` units: (node, units)."""
        chosen: list[tuple[int, int]] = []
        for node in sorted(self._of(kind), key=lambda node: -len(self._free[node])):
            if not count:
                break
            part = min(count, len(self._free[node]))
            chosen.append((node, part))
            count -= part
        return chosen

    def tightest(self, count: int, kind: str | None = None) -> list[tuple[int, int]]:
        """The node (of a kind) with the fewest free units that has `count`; else as `emptiest`: (node, units)."""
        able = [node for node in self._of(kind) if len(self._free[node]) >= count]
        if not count or not able:
            return self.emptiest(count, kind)
        return [(min(able, key=lambda node: len(self._free[node])), count)]

    def _of(self, kind: str | None) -> Sequence[int]:
        """Return the nodes of a kind, all nodes for None."""
        nodes = range(len(self._free))
        return (
            nodes
            if kind is None
            else [node for node in nodes if self._kind_of(node * self._per) == kind]
        )
