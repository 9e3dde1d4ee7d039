"""The work done up to any instant of a replay."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from bft.replay.engine.columns import ROWS, Columns
from bft.replay.engine.memory import NOT_KEPT
from bft.replay.trace.node_trace import SECOND_NS

Stall = tuple[int, float]
"""The instant (UTC ns) until which a job makes no progress, and the samples/s that are missing until then."""


@dataclass
class Course:
    """The work of all jobs over time. Between two instants of a replay the rates are constant, apart from stalls.

    Attributes
    ----------
    end
        The instant (UTC ns) up to which it is known.
    """

    end: int = 0
    _final: float = 0.0
    # One row for each span between two instants: its begin, the work done by then (costs of that instant deducted),
    # samples/s within it; and one for each stall under way in it.
    _spans: Columns = field(init=False, metadata=NOT_KEPT)
    _stalls: Columns = field(init=False, metadata=NOT_KEPT)

    def __post_init__(self) -> None:
        self._spans = Columns({"begin": "q", "work": "d", "rate": "d"})
        self._stalls = Columns({"span": "q", "until": "q", "rate": "d"})

    @property
    def history(self) -> dict[str, Columns]:
        """The recorded history, which only grows."""
        return {"spans": self._spans, "stalls": self._stalls}

    def went(self, begin: int, end: int, work: float, rate: float, stalls: Sequence[Stall]) -> int:
        """From `begin` to `end`, `work` samples having been done before, jobs went at `rate` samples/s less stalls.

        Returns
        -------
        int
            Spans that wait to be put into columns.
        """
        if stalls:
            span = len(self._spans)
            for until, lacking in stalls:
                self._stalls.append((span, until, lacking))
            if len(self._stalls.latest) >= ROWS:
                self._stalls.settle()
        self._spans.append((begin, work, rate))
        self.end = end
        return len(self._spans.latest)

    def closed(self, end: int, work: float) -> None:
        """The replay ended at `end` with this much work done."""
        self.end, self._final = end, work

    def at(self, instant: int) -> float:
        """Samples done by all jobs up to an instant (UTC ns), with the costs of that instant deducted.

        Raises
        ------
        ValueError
            When the replay had ended before.
        """
        if instant > self.end:
            raise ValueError(f"the replay ended at {self.end} ns, before {instant} ns")
        if instant == self.end:
            return self._final
        spans, stalls = self._spans.arrays(), self._stalls.arrays()
        span = bisect_right(spans["begin"], instant) - 1
        if span < 0:
            return 0.0
        begin = int(spans["begin"][span])
        work = float(spans["work"][span]) + float(spans["rate"][span]) * ((instant - begin) / SECOND_NS)
        first, last = bisect_right(stalls["span"], span - 1), bisect_right(stalls["span"], span)
        for until, lacking in zip(stalls["until"][first:last], stalls["rate"][first:last], strict=True):
            work -= float(lacking) * ((min(int(until), instant) - begin) / SECOND_NS)
        return work
