"""What a job has held: intervals of time with the same units at the same rate."""

from __future__ import annotations

from typing import Literal, NamedTuple

Ending = Literal["decision", "leave", "finish", "cancel", "rate"]
"""Why an interval ended: by the present decision; as units left; as the job finished or was cancelled; or as only its
rate changed, by partners, other jobs on the network, or its own progress."""


class RunInterval(NamedTuple):
    """An interval in which a job held the same number of units and ran at the same rate.

    Parameters
    ----------
    units
        Units held, at least 1.
    seconds
        How long, since the policy was last asked; `stalled_s` of them without progress.
    stalled_s
        Seconds of stalls (starts, restarts, rescales that stop a job) among them.
    rate
        Samples/s while it was not stalled.
    shared
        Whether it shared units with another job, which changes the rate.
    ended
        Why the interval ended.

    Examples
    --------
    >>> interval = RunInterval(4, 60.0, 20.0, 30.0, False, "leave")
    >>> interval.progressed_s
    40.0
    """

    units: int
    seconds: float
    stalled_s: float
    rate: float
    shared: bool
    ended: Ending

    @property
    def progressed_s(self) -> float:
        """Seconds in which the job made progress."""
        return self.seconds - self.stalled_s
