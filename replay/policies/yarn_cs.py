"""YARN's capacity scheduler without preemption: the production baseline that Tiresias is compared with."""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from bft.models.checks import Number, check_fields
from bft.models.tolerances import SHARES, lowered, rounded
from bft.replay.engine.policy_api import Decision, State, Traits
from bft.replay.policies._constants import consolidates, constant


@dataclass
class YarnCapacity:
    """Give each queue its share of the units; first come, first served within a queue; no preemption.

    The queue that uses the smallest part of its capacity goes first. The head of a queue starts if it fits; otherwise
    it blocks its queue, and the other queues go on. A queue may use what others leave idle, up to `max_share` of all
    units; a head that asks for more than that starts once its queue uses nothing.

    Parameters
    ----------
    by
        What defines a job's queue: its virtual cluster (column vc) or its user.
    capacities
        Share of the units per queue, as NAME:SHARE with commas between; queues that are not named share the rest
        equally. Empty: equal shares.
    max_share
        Largest part of all idle units that one queue may use.
    consolidate
        Place each job on as few nodes as possible; otherwise on any units.
    """

    by: Literal["vc", "user"] = constant(
        "vc", "what a job's queue is: its vc or its user"
    )
    capacities: str = constant(
        "", "share of each queue, NAME:SHARE,...; the others share the rest"
    )
    max_share: float = constant(
        1.0,
        "largest part of all idle units that one queue may use",
        Number(0, 1, above=True),
    )
    consolidate: bool = consolidates()
    name: str = field(default="yarn-cs", init=False)
    traits: ClassVar[Traits] = Traits(rigid=True)

    def __post_init__(self) -> None:
        check_fields(self)
        self._stated = _shares(self.capacities)

    def decide(self, state: State) -> Decision:
        """Start heads of queues, the queue with the least use first."""
        if not state.free:
            return Decision.keep()
        used: defaultdict[str, int] = defaultdict(int)
        queues: defaultdict[str, list[int]] = defaultdict(list)
        for position, view in enumerate(state.jobs):
            queue = view.job.vc if self.by == "vc" else view.job.user
            used[queue] += view.units
            if not view.units:
                queues[queue].append(position)
        # Share of the units of each queue; one without a share goes behind all others.
        others = [queue for queue in used if queue not in self._stated]
        rest = max(1 - math.fsum(self._stated.values()), 0.0)
        each = rest / len(others) if others else 0.0
        capacity = {queue: self._stated.get(queue, each) or 1e-9 for queue in used}
        order = {
            queue: rank for rank, queue in enumerate(used)
        }  # ties: whose first job in play came first
        places = state.machine.placement()
        limit = self.max_share * state.idle
        placed: dict[int, tuple[int, ...]] = {}
        while queues and len(places):
            queue = min(
                queues,
                key=lambda name: (rounded(used[name] / capacity[name]), order[name]),
            )
            head = queues[queue][0]
            request = state.jobs[head].job.request
            within = lowered(used[queue] + request) <= limit or not used[queue]
            units = (
                places.take(request, spread=not self.consolidate) if within else None
            )
            if units is None:
                del queues[queue]
                continue
            placed[head] = units
            used[queue] += request
            queues[queue].pop(0)
            if not queues[queue]:
                del queues[queue]
        return Decision.placed(placed)


def _shares(text: str) -> dict[str, float]:
    """Shares by queue; ValueError for an invalid text."""
    shares: dict[str, float] = {}
    for part in filter(str.strip, text.split(",")):
        queue, colon, number = part.strip().rpartition(":")
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        if not colon or not 0 < share <= 1 or queue in shares:
            raise ValueError(
                f"capacities: expected NAME:SHARE with a share in (0, 1], each name once, not {part!r}"
            )
        shares[queue] = share
    if math.fsum(shares.values()) > 1 + SHARES:
        raise ValueError(
            f"capacities add up to {math.fsum(shares.values()):g}, expected at most 1"
        )
    return shares
