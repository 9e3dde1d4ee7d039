"""Tiresias as in Pollux' artifact, for comparison with that paper's figures (docs/decisions/0012-pollux.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

from bft.replay.engine.policy_api import Decision, State
from bft.replay.policies._nodes import Nodes
from bft.replay.policies._rounds import is_round, next_round
from bft.replay.policies.rigid import within_quota
from bft.replay.policies.tiresias import TiresiasL


@dataclass
class TiresiasPollux(TiresiasL):
    """Tiresias-l in rounds, with two queues, where running jobs do not come before waiting ones.

    Jobs that fit by number of units run; all others stop. Jobs that start, in this order, get the nodes with the most
    free units. `placement`, `skew_threshold`, `late_demotion` and `compat` have no effect.
    """

    limits: tuple[float, ...] = field(
        default=(57_600.0,),
        metadata={"help": "unit-seconds at which a job leaves each queue but the last"},
    )
    interval_s: float = field(
        default=60.0, metadata={"help": "seconds between decisions, 0: at every event"}
    )
    name: str = field(default="tiresias-pollux", init=False)

    def decide(self, state: State) -> Decision:
        """Give units to jobs in the order of their queues, at the start of each round."""
        wake_ns = next_round(state.time_ns, self.interval_s)
        if not is_round(state.time_ns, self.interval_s):
            return Decision.keep(wake_ns=wake_ns)
        positions = state.positions
        self._admit(positions)
        for view in state.jobs:
            if view.starts:
                self._place(view, state.time_ns)
        runs = within_quota(
            state, (positions[name] for queue in self._queues for name in queue)
        )
        nodes = Nodes(
            state, [position for position in runs if state.jobs[position].units]
        )
        changed: dict[int, tuple[int, ...]] = {
            position: () for position in state.running if position not in runs
        }
        for position in runs:
            if not state.jobs[position].units:
                changed[position] = nodes.take(
                    nodes.emptiest(state.jobs[position].job.request)
                )
        return Decision.placed(changed, wake_ns=wake_ns)
