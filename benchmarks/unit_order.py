"""Which free unit a growing job should take: the one idle longest, shortest, or with the lowest number.

    python benchmarks/unit_order.py [-ndmap TRACE -bdfn BOUNDS -scfn CURVES]

Prints what each order costs in preemptions, on the bundled data set or on your own (docs/decisions/0003).
"""

from __future__ import annotations

import argparse

from bft.replay import MilpPolicy, Options, Replay
from bft.replay.engine import units
from bft.replay.engine.units import FreeList
from bft.replay.inputs.load import load
from bft.replay.inputs.notes import Watcher
from bft.replay.policies.solver import SolverOptions


class ShortestFirst(FreeList):
    """Units that turned idle last come first."""

    def add(self, unit: int, since: int = 0) -> None:
        """Add a unit with the sign of its age reversed."""
        super().add(unit, 2**30 - since)

    def discard(self, unit: int, since: int = 0) -> None:
        """Remove a unit with the sign of its age reversed."""
        super().discard(unit, 2**30 - since)


class LowestFirst(FreeList):
    """Units of the lowest number come first."""

    def add(self, unit: int, since: int = 0) -> None:
        """Add a unit without an age."""
        super().add(unit)

    def discard(self, unit: int, since: int = 0) -> None:
        """Remove a unit without an age."""
        super().discard(unit)


def main() -> None:
    """Replay once for each order."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("-ndmap", "-bdfn", "-scfn"):
        parser.add_argument(name)
    given = parser.parse_args()
    options = Options(
        node_trace=given.ndmap, job_bounds=given.bdfn, job_curves=given.scfn
    )
    inputs = load(options, Watcher())
    print("order              preemptions   lost to preemption    lost to rescaling")
    for label, order in (
        ("longest idle", FreeList),
        ("shortest idle", ShortestFirst),
        ("lowest number", LowestFirst),
    ):
        units.FreeList = order  # type: ignore[misc]
        outcome = Replay(
            inputs.pools[0].trace,
            inputs.jobs,
            MilpPolicy(120.0, SolverOptions("exact")),
        ).run()
        preemptions = sum(record.preemptions for record in outcome.records)
        preempted = sum(record.lost_to_preemption for record in outcome.records)
        rescaled = sum(record.lost_to_rescale for record in outcome.records)
        print(f"{label:<15} {preemptions:>14,} {preempted:>20,.0f} {rescaled:>20,.0f}")


if __name__ == "__main__":
    main()
