"""First in, first out."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bft.replay.engine.policy_api import State
from bft.replay.policies.rigid import Queue


@dataclass
class Fifo(Queue):
    """Run jobs in order of submission; the first job that does not fit blocks all later ones, but with `backfill`."""

    name: str = field(default="fifo", init=False)

    def queue(self, state: State) -> Iterable[int]:
        """The waiting jobs in order of submission."""
        return state.jobs.waiting
