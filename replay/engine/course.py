"""How much work had been done at any instant of a replay."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from bft.replay.trace.node_trace import SECOND_NS

Stall = tuple[int, float]
"""Until when (UTC ns) a job makes no progress, and the samples/s that it then lacks."""


class Course:
    """The work of all jobs over time: between two instants of a replay the rates are constant, but for stalls that end.

    Attributes
    ----------
    end
        The instant (UTC ns) up to which it is known.
    """

    def __init__(self) -> None:
        # One entry for each span between two instants: its begin, the work done by then (costs of that instant
        # deducted), samples/s within it, and the stalls under way.
        self._begins: list[int] = []
        self._work: list[float] = []
        self._rates: list[float] = []
        self._stalls: dict[int, list[Stall]] = {}
        self.end = 0
        self._final = 0.0

    def went(self, begin: int, end: int, work: float, rate: float, stalls: Sequence[Stall]) -> None:
        """From `begin` to `end`, `work` samples having been done before, jobs went at `rate` samples/s less stalls."""
        if stalls:
            self._stalls[len(self._begins)] = list(stalls)
        self._begins.append(begin)
        self._work.append(work)
        self._rates.append(rate)
        self.end = end

    def closed(self, end: int, work: float) -> None:
        """The replay ended at `end` with so much work done."""
        self.end, self._final = end, work

    def at(self, instant: int) -> float:
        """Samples done by all jobs until an instant (UTC ns), the costs of that instant included.

        Raises
        ------
        ValueError
            When the replay had ended before.
        """
        if instant > self.end:
            raise ValueError(f"the replay ended at {self.end} ns, before {instant} ns")
        if instant == self.end:
            return self._final
        span = bisect_right(self._begins, instant) - 1
        if span < 0:
            return 0.0
        begin, rate = self._begins[span], self._rates[span]
        work = self._work[span] + rate * ((instant - begin) / SECOND_NS)
        for until, lacking in self._stalls.get(span, ()):
            work -= lacking * ((min(until, instant) - begin) / SECOND_NS)
        return work

    def state(self) -> dict[str, Any]:
        """All that is known, for a checkpoint."""
        return {
            "begins": self._begins,
            "work": self._work,
            "rates": self._rates,
            "stalls": list(self._stalls.items()),
            "end": self.end,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` says."""
        self._begins, self._work, self._rates = list(state["begins"]), list(state["work"]), list(state["rates"])
        self._stalls = {span: [(until, rate) for until, rate in stalls] for span, stalls in state["stalls"]}
        self.end = state["end"]
