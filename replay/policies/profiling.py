"""MalleTrain's job profiling advisor: a job is measured at a few sizes before it is scheduled by its curve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bft.models import Job, OnlineCurve
from bft.replay.engine.memory import kept, remember
from bft.replay.engine.port import State
from bft.replay.trace.node_trace import SECOND_NS

Order = Literal["growing", "inverse"]
# Part of a second that sums of measured seconds may lack by rounding.
ROUNDING_S = 1e-6


@dataclass(slots=True)
class Advisor:
    """Which jobs are to be measured now, and on how many units.

    A job is measured on its smallest size, about twice that, and so on, `count` of its sizes, each for `seconds` in
    all. Meanwhile it trains: what measuring costs are the rescales, and that its size is not the best. `growing` goes
    from the smallest size up, `inverse` from the largest down, as published: one growth, and then shrinks, of which
    each takes Tcdw and not Tcup seconds. No job is measured on more than its equal share of the idle units, unless its
    smallest size is larger; the sizes beyond are left out.

    Parameters
    ----------
    seconds
        For each size.
    count
        How many sizes.
    order
        Which of them comes first.
    """

    seconds: float
    count: int
    order: Order
    _done: set[str] = field(default_factory=set, init=False)

    def sizes(self, job: Job) -> list[int]:
        """The sizes at which a job is to be measured, ascending.

        >>> from bft.models import Curve
        >>> curve = Curve([0, 64], [0, 64])
        >>> Advisor(60.0, 4, "growing").sizes(Job("a", 0, 3, 20, 1e6, 0, 0, curve, curve))
        [3, 6, 12, 20]
        """
        first = max(job.jmin, 1)
        return sorted({job.at_most(min(first * 2**k, job.jmax)) for k in range(self.count)})

    def targets(self, state: State, learned: Mapping[str, OnlineCurve], stall: bool) -> dict[int, int]:
        """Units for each job that is not scheduled by its curve yet, 0 while it must wait; by position in `state.jobs`.

        Parameters
        ----------
        state
            The moment.
        learned
            What has been measured of each job.
        stall
            Whether a change stops a job for Tcup or Tcdw seconds, in which nothing can be measured.
        """
        self._done.difference_update(view.job.name for view in state.finished)
        left, targets = state.idle, {}
        share = state.idle // max(len(state.jobs), 1)
        for position, view in enumerate(state.jobs):
            name = view.job.name
            if name in self._done:
                continue
            curve = learned.get(name, OnlineCurve())
            sizes = self.sizes(view.job)
            open_ = [n for n in sizes if self._lacks(view.job, curve, n, stall) > 0]
            fits = [n for n in open_ if n <= min(left, max(share, sizes[0]))]
            if fits:
                targets[position] = max(fits) if self.order == "inverse" else min(fits)
                left -= targets[position]
            elif curve.sizes:
                self._done.add(name)
            else:
                targets[position] = 0
        return targets

    def wake_ns(
        self, state: State, targets: Mapping[int, int], learned: Mapping[str, OnlineCurve], stall: bool
    ) -> int | None:
        """When the next of these will have been measured for long enough, if nothing happens before."""
        seconds = [
            self._lacks(state.jobs[position].job, learned.get(state.jobs[position].job.name, OnlineCurve()), n, stall)
            for position, n in targets.items()
            if n
        ]
        return state.time_ns + max(math.ceil(min(seconds) * SECOND_NS), 1) if seconds else None

    def _lacks(self, job: Job, curve: OnlineCurve, units: int, stall: bool) -> float:
        """For how many seconds more a job is to be measured on so many units."""
        wanted = self.seconds + (max(job.tcup_s, job.tcdw_s) if stall else 0.0)
        lacking = wanted - curve.seconds(units)
        return lacking if lacking > ROUNDING_S else 0.0

    def state(self) -> dict[str, Any]:
        """Which jobs are scheduled by their curves."""
        return kept(self, inner=True)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        remember(self, state, inner=True)
