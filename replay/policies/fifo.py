"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from bft.replay.engine.policy_api import Decision, Kind, State
from bft.replay.policies.rigid import start


@dataclass
class Fifo:
    """Run jobs in order of submission; the first job that does not fit blocks all later ones.

    Parameters
    ----------
    backfill
        Skip a job that does not fit, and continue.
    consolidate
        Place each job on as few nodes as possible; otherwise on any units.
    """

    backfill: bool = field(
        default=False, metadata={"help": "skip jobs that do not fit, and continue"}
    )
    consolidate: bool = field(
        default=True, metadata={"help": "place each job on as few nodes as it needs"}
    )
    name: str = field(default="fifo", init=False)
    kind: ClassVar[Kind] = Kind(rigid=True)

    def decide(self, state: State) -> Decision:
        """Start the jobs at the head of the queue."""
        return start(
            state,
            state.waiting,
            spreads=lambda job: not self.consolidate,
            blocks=not self.backfill,
        )
