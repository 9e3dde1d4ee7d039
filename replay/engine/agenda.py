"""The future events of running jobs, in one total order."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from bft.replay.engine.running import NEVER, Running

FINISH, ASK = 0, 1
Entry = tuple[int, int, int, int]
"""Instant (UTC ns), kind, the job's turn of admission, its position in the table."""


class Agenda:
    """The finishes of running jobs, and the times when a rate must be computed again: a heap of (time, kind, turn).

    An entry is not removed when a job's rate changes: it no longer agrees with the job, and is skipped. When more
    than half of the entries are outdated, the heap is rebuilt, so that a change costs O(log jobs).

    Parameters
    ----------
    active
        The jobs that hold units, by position in the table; maintained by the caller.

    Attributes
    ----------
    from_ns
        No entry is due before this instant.
    """

    def __init__(self, active: Mapping[int, Running]) -> None:
        self._active = active
        self._heap: list[Entry] = []
        self.from_ns = NEVER
        self._early_ns = 0  # no job finishes by rounding (see `Running.due_ns`) longer than this before its time

    def put(self, running: Running) -> None:
        """Add the next events of a job."""
        heap, finish_ns, due_ns = self._heap, running.finish_ns, running.due_ns
        if finish_ns != NEVER:
            if finish_ns - due_ns > self._early_ns:
                self._early_ns = finish_ns - due_ns
            if due_ns < self.from_ns:
                self.from_ns = due_ns
            heappush(heap, (finish_ns, FINISH, running.turn, running.index))
        if running.ask_ns != NEVER:
            self.from_ns = min(self.from_ns, running.ask_ns)
            heappush(heap, (running.ask_ns, ASK, running.turn, running.index))
        if len(heap) > 64 + 4 * len(self._active):
            self._heap = [entry for entry in set(self._heap) if self._holds(entry)]
            heapify(self._heap)

    def next(self) -> int:
        """The next instant, NEVER where there is none."""
        heap, active = self._heap, self._active
        while heap:
            instant, kind, _, index = heap[0]
            running = active.get(index)
            if running is not None and instant == (
                running.finish_ns if kind == FINISH else running.ask_ns
            ):
                return instant
            heappop(heap)
        return NEVER

    def due(self, now: int) -> tuple[list[Running], list[Running]]:
        """Remove the jobs that finish now, and those whose rate must be computed again; both in order of admission."""
        finished: dict[int, Running] = {}
        to_recompute: dict[int, Running] = {}
        later: list[Entry] = []
        while self._heap and self._heap[0][0] <= now + self._early_ns:
            entry = heappop(self._heap)
            if not self._holds(entry):
                continue
            time, kind, turn, index = entry
            if kind == FINISH and self._active[index].due_ns <= now:
                finished[turn] = self._active[index]
            elif time <= now:
                to_recompute[turn] = self._active[index]
            else:
                later.append(entry)
        for entry in later:
            heappush(self._heap, entry)
        self.from_ns = self._heap[0][0] - self._early_ns if self._heap else NEVER
        in_order = [finished[turn] for turn in sorted(finished)]
        others = [
            to_recompute[turn] for turn in sorted(to_recompute) if turn not in finished
        ]
        return in_order, others

    def _holds(self, entry: Entry) -> bool:
        """Whether an entry still agrees with its job."""
        time, kind, _, index = entry
        running = self._active.get(index)
        return running is not None and time == (
            running.finish_ns if kind == FINISH else running.ask_ns
        )
