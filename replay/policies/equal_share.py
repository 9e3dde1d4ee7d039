"""Equal shares for all jobs: the published heuristic with its defect fixed."""

from dataclasses import dataclass, field

import numpy as np

from bft.replay.engine.policy_api import Decision, State


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
        low, high = state.jobs.least, state.jobs.most
        left = state.idle
        counts = np.zeros(len(high), dtype=np.int64)
        share = left // max(len(high), 1)
        sized = set(state.jobs.sized)
        if share:
            counts = np.minimum(share, high) * (low <= share)
            for position in sized:
                job = state.jobs[position].job
                counts[position] = job.at_most(int(counts[position]))
            left -= int(counts.sum())
        first = 0
        while left and first < len(counts):  # mostly those in front take it all
            some = slice(first, first + 2 * left)
            mine, top, least = counts[some], high[some], low[some]
            # Those who can have their maximum, in one step: nobody is skipped while each maximum fits.
            until = (top - mine).cumsum()
            filled = int(until.searchsorted(left, side="right"))
            left -= int(until[filled - 1]) if filled else 0
            mine[:filled] = top[:filled]
            able = ((mine < top) & (mine + left >= least)).nonzero()[0]
            for position in able.tolist():
                if not left:
                    break
                count = int(mine[position])
                more = min(count + left, int(top[position]))
                if first + position in sized:
                    more = state.jobs[first + position].job.at_most(more)
                if more >= least[position]:
                    mine[position] = more
                    left -= more - count
            first = some.stop
        return Decision(counts)
