"""Everybody gets the same: the published heuristic with its quirk fixed."""

from __future__ import annotations

from dataclasses import dataclass, field

from bft.replay.engine.port import Decision, State


@dataclass
class EqualShare:
    """Split the idle units equally, then hand out what is left first come first served.

    Each of J jobs gets floor(N / J) clipped to its bounds, 0 where that lies below its Jmin. Leftovers go to jobs in
    order of admission up to Jmax, skipping those that would stay below Jmin. The cost of rescaling is not looked at.

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> from bft.replay import JobView
    >>> curve = Curve([0, 8], [0, 80])
    >>> jobs = [JobView(Job(name, 0, 2, 8, 1e6, 0, 0, curve, curve), 0, 0.0) for name in "abc"]
    >>> EqualShare().decide(State(0, 8, jobs)).counts
    (4, 2, 2)
    """

    name: str = field(default="equal-share", init=False)

    def decide(self, state: State) -> Decision:
        """Allocate equal shares."""
        quota = state.idle // len(state.jobs) if state.jobs else 0
        counts = []
        for view in state.jobs:
            share = min(quota, view.job.jmax)
            counts.append(share if share >= view.job.jmin else 0)
        left = state.idle - sum(counts)
        for i, view in enumerate(state.jobs):
            wanted = min(view.job.jmax, counts[i] + left)
            if wanted >= max(view.job.jmin, 1):
                left -= wanted - counts[i]
                counts[i] = wanted
        return Decision(tuple(counts))
