"""An online replay: what is heard and the time that passes drive the engine, in the order of an offline replay.

Three rules make its decisions those of an offline replay of the record. Promise: what is handled up to an instant
promises that nothing is heard any more of instants up to it. Look anew: the engine looks for its next instant again
when a further event is there. The end of the trace lies after the last instant that was handled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.running import NEVER


class Shadow:
    """A replay beside a machine.

    Parameters
    ----------
    replay
        The engine, on a trace that has no events and ends `NEVER`.
    write
        Writes a line of the record; what it has not written is not decided on.
    tell
        Is told what was decided, or what changed, as JSON values: docs/shadow.md has the keys.

    Attributes
    ----------
    idle
        The nodes that count as idle, by their positions.
    promised
        Nothing is heard any more of instants up to this one (UTC ns).
    heard_at
        When the last state was heard, UTC ns.
    late
        How many states came later than a promise that covers them, and count from 1 ns after it.
    """

    def __init__(
        self,
        replay: Replay,
        write: Callable[[Sequence[Any]], None],
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self.replay, self._write, self._tell = replay, write, tell
        self.idle: set[int] = set()
        self.promised = replay.trace.start - 1
        self.heard_at = replay.trace.start
        self.late = 0
        self._held: dict[str, list[int]] = {}

    def due(self) -> int:
        """The next instant at which something happens by itself (UTC ns), `NEVER` for none."""
        instant = self.replay.peek()
        return NEVER if instant is None else instant

    def passed(self, instant: int) -> None:
        """Time has come to an instant, inclusive."""
        while (due := self.due()) <= instant:
            self._write([due])
            self._step(due)

    def hear(self, instant: int, idle: Set[int]) -> None:
        """Take the nodes that are idle from an instant on; what comes late counts from when it came."""
        if instant <= self.promised:
            self.late += 1
            instant = self.promised + 1
        left, joined = sorted(self.idle - idle), sorted(idle - self.idle)
        self.passed(instant - 1)
        self._write([instant, left, joined])
        self._change(instant, left, joined)

    def again(self, lines: Iterable[Sequence[Any]]) -> None:
        """Come to where the lines of a record end, telling nobody."""
        tell, self._tell = self._tell, lambda line: None
        for instant, *changes in lines:
            while self.due() <= instant - bool(changes):
                self._step(self.due())
            if changes:
                self._change(instant, *changes)
        self._tell = tell

    def stop(self, instant: int) -> Outcome:
        """End the trace at an instant, or right after what was handled; its outcome lacks the trace's events."""
        instant = max(instant, self.promised + 1)
        self.passed(instant - 1)
        self.replay.end_at(instant)
        return self.replay.run()

    def _change(self, instant: int, left: list[int], joined: list[int]) -> None:
        self.idle = self.idle.difference(left).union(joined)
        self.promised = self.heard_at = instant
        if (left or joined) and self.replay.peek() is not None:
            self.replay.hear(instant, left, joined)
        if self.due() == instant:
            self._step(instant)

    def _step(self, instant: int) -> None:
        """Handle an instant, and tell what was decided or has changed."""
        self.promised = instant
        before, decisions = self._held, self.replay.ledger.decisions
        self.replay.step()
        self._held = self.replay.holders()
        decided = self.replay.ledger.decisions > decisions
        if decided or before != self._held:
            ended = [job for job in before if job not in self._held]
            self._tell(self.status() | {"decided": decided, "ended": ended})

    def status(self) -> dict[str, Any]:
        """Return what holds now, as JSON values; of several units on a node its name stands as often."""
        nodes, per = self.replay.trace.nodes, self.replay.trace.units_per_node
        return {
            "time_ns": self.promised,
            "idle": len(self.idle) * per,
            "hold": {
                job: [nodes[unit // per] for unit in units]
                for job, units in self._held.items()
                if units
            },
            "decided": False,
            "ended": [],
        }
