"""Equal shares for all jobs: the published heuristic with its defect fixed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bft.replay.engine.policy_api import Decision, IntArray, State


@dataclass
class EqualShare:
    """Split the idle units equally, then hand out the remainder first come, first served.

    Each of J jobs gets floor(N / J), clipped to its bounds, or 0 if that is below its Jmin. The remainder goes to jobs
    in order of admission up to Jmax, skipping those that would stay below Jmin. A job with a set of sizes gets the
    largest of them that its share, or the remainder, allows. Rescale costs are ignored.

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> from bft.replay import JobView
    >>> curve = Curve([0, 8], [0, 80])
    >>> jobs = [JobView(Job(name, 0, 2, 8, 1e6, 0, 0, curve, curve), 0, 0.0) for name in "abc"]
    >>> EqualShare().decide(State(0, 8, jobs)).counts.tolist()
    [4, 2, 2]
    """

    name: str = field(default="equal-share", init=False)

    def decide(self, state: State) -> Decision:
        """Give each job an equal share of the idle units, within its limits."""
        low, high = state.bounds
        share = state.idle // len(high) if len(high) else 0
        if share:
            counts = np.minimum(share, high)
            counts[counts < low] = 0
        else:
            counts = np.zeros(len(high), dtype=np.int64)
        sized = state.sized
        for position in sized:
            counts[position] = state.jobs[position].job.at_most(int(counts[position]))
        left = state.idle - int(counts.sum())
        if sized:
            return Decision(_hand_out(state, counts, left))
        first = 0
        while left and first < len(
            counts
        ):  # many jobs at once, so that most decisions take one iteration
            some = slice(first, first + 2 * left)
            left = _fill(counts[some], low[some], high[some], left)
            first = some.stop
        return Decision(counts)


def _hand_out(state: State, counts: IntArray, left: int) -> IntArray:
    """The counts when what is left goes to jobs in turn, each up to the largest size that it may have of it."""
    for position, view in enumerate(state.jobs):
        if not left:
            break
        count = int(counts[position])
        counts[position] = view.job.at_most(count + left)
        left -= int(counts[position]) - count
    return counts


def _fill(counts: IntArray, low: IntArray, high: IntArray, left: int) -> int:
    """Give remaining units to jobs in turn up to `high`, skipping jobs that would stay below `low`; return the rest."""
    first = 0
    while left:
        able = first + np.flatnonzero(
            (counts < high)[first:] & (counts + left >= low)[first:]
        )
        until = np.cumsum(
            high[able] - counts[able]
        )  # units that the jobs up to each can take
        filled = int(np.searchsorted(until, left, side="right"))
        counts[able[:filled]] = high[able[:filled]]
        left -= int(until[filled - 1]) if filled else 0
        if filled == len(able):
            break
        first = int(
            able[filled]
        )  # the first that cannot be filled: it takes the rest, if it can run on that
        if counts[first] + left >= low[first]:
            counts[first] += left
            return 0
        first += 1
    return left
