"""Which jobs spread over nodes meet others like them there, and how much that slows them down."""

from __future__ import annotations

from collections.abc import Iterable

from bft.replay.engine.in_play import InPlay
from bft.replay.engine.motion import Motion
from bft.replay.engine.running import Running


class Network:
    """Keeps the slow-down of jobs by the network up to date.

    A job with units on several nodes has network traffic. Where two such jobs share a node, each of the two goes at
    1 - `interference` of its rate, however many others it meets (as in the simulator of Pollux' artifact, OSDI'21).

    Parameters
    ----------
    interference
        Part of the rate that is lost, in [0, 1); 0: nothing is kept up to date.
    in_play, motion, units_per_node
        Of the replay.
    """

    def __init__(self, interference: float, in_play: InPlay, motion: Motion, units_per_node: int) -> None:
        self._slowdown = 1 / (1 - interference)
        self._in_play, self._motion, self._per = in_play, motion, units_per_node
        self._nodes: dict[int, frozenset[int]] = {}  # of each spread job, by position in the table
        self._jobs: dict[int, set[int]] = {}  # the spread jobs on each node

    def refresh(self, changed: Iterable[Running]) -> None:
        """Find anew whom the jobs meet whose units have changed, and those that did or do meet them."""
        if self._slowdown == 1:
            return
        concerned: set[int] = set()
        for running in changed:
            concerned.add(running.index)
            for node in self._placed(running):
                concerned.update(self._jobs[node])
        for running in self._in_play.of(concerned):
            meets = any(len(self._jobs[node]) > 1 for node in self._nodes.get(running.index, ()))
            slowdown = self._slowdown if meets else 1.0
            if slowdown != running.slowdown:
                self._motion.settle(running)
                running.slowdown = slowdown
                self._motion.set_rate(running)

    def restored(self) -> None:
        """The jobs in play hold again what they did."""
        for running in self._in_play:
            self._placed(running)

    def _placed(self, running: Running) -> frozenset[int]:
        """Note on which nodes a job is spread; those where that has changed."""
        nodes = frozenset(unit // self._per for unit in running.units)
        now = nodes if len(nodes) > 1 else frozenset()
        before = self._nodes.pop(running.index, frozenset())
        if now:
            self._nodes[running.index] = now
        for node in before - now:
            self._jobs[node].discard(running.index)
        for node in now - before:
            self._jobs.setdefault(node, set()).add(running.index)
        return before ^ now
