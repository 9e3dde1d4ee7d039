"""The jobs in play, and what is known of all of them without looking at each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from bft.replay.engine.port import Jobs, JobView
from bft.replay.engine.running import Running
from bft.replay.engine.sums import ExactSum

IntArray = NDArray[np.int64]
HELD, LEAST, MOST = range(3)


class InPlay:
    """The jobs in play in order of admission; sums and arrays over them follow each change, so that waiting is free.

    Attributes
    ----------
    active
        Those that hold units, by position in the table.
    short
        Those of them that hold too few to run on.
    held, twice
        Units that they hold, and how many of these two of them hold.
    rate
        Samples/s that they do while not stalled.
    """

    def __init__(self) -> None:
        self._line: list[Running] = []
        self._turns: list[int] = []
        self._by_index: dict[int, Running] = {}
        self._numbers: IntArray = np.zeros((3, 16), dtype=np.int64)  # units held, fewest and most, by position
        self._positions: dict[str, int] | None = None
        self._rate = ExactSum()
        self._shared = 0
        self.active: dict[int, Running] = {}
        self.short: dict[int, Running] = {}
        self.held = 0

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Running]:
        return iter(self._line)

    def __getitem__(self, position: int) -> Running:
        return self._line[position]

    def __contains__(self, running: Running) -> bool:
        return running.index in self._by_index

    @property
    def rate(self) -> float:
        """The sum of their rates, correctly rounded."""
        return self._rate.value

    @property
    def twice(self) -> int:
        """Units that two of them hold."""
        return self._shared // 2

    @property
    def sharing(self) -> bool:
        """Whether any of them has a partner."""
        return self._shared > 0

    @property
    def counts(self) -> IntArray:
        """Units that each holds, by position."""
        return self._numbers[HELD, : len(self)]

    @property
    def least(self) -> IntArray:
        """Fewest units on which each runs, at least 1."""
        return self._numbers[LEAST, : len(self)]

    @property
    def most(self) -> IntArray:
        """Most units on which each runs."""
        return self._numbers[MOST, : len(self)]

    def position(self, running: Running) -> int:
        """How many in play were admitted before it."""
        return bisect_left(self._turns, running.turn)

    @property
    def positions(self) -> Mapping[str, int]:
        """Position by name; made anew when somebody has come or gone."""
        if self._positions is None:
            self._positions = {running.job.name: position for position, running in enumerate(self._line)}
        return self._positions

    def of(self, indices: Iterable[int]) -> list[Running]:
        """Those at these positions of the table, in order of admission; who is not in play is left out."""
        found = [self._by_index[index] for index in set(indices) if index in self._by_index]
        return sorted(found, key=lambda running: running.turn)

    def add(self, running: Running) -> None:
        """A job is admitted, after all others."""
        if len(self) == self._numbers.shape[1]:
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)], axis=1)
        self._numbers[:, len(self)] = 0, max(running.job.jmin, 1), running.job.jmax
        self._line.append(running)
        self._turns.append(running.turn)
        self._by_index[running.index] = running
        self._positions = None

    def remove(self, running: Running) -> None:
        """A job that holds no units any more leaves the play."""
        position = self.position(running)
        del self._line[position], self._turns[position], self._by_index[running.index]
        self._numbers[:, position : len(self)] = self._numbers[:, position + 1 : len(self) + 1]
        self._positions = None

    def resized(self, running: Running) -> None:
        """The units of a job have changed."""
        position, units = self.position(running), len(running.units)
        self.held += units - int(self._numbers[HELD, position])
        self._numbers[HELD, position] = units
        running.waiting_view = None
        for those, belongs in ((self.active, units > 0), (self.short, 0 < units < running.job.jmin)):
            if belongs:
                those[running.index] = running
            else:
                those.pop(running.index, None)

    def go(self, running: Running, rate: float, now: int) -> None:
        """A job goes at another rate."""
        if rate != running.rate:
            self._rate.add(-running.rate)
            self._rate.add(rate)
        running.set_rate(rate, now)

    def share(self, running: Running, partners: dict[int, int]) -> None:
        """A job shares so many units with each of these."""
        self._shared += sum(partners.values()) - sum(running.partners.values())
        running.partners = partners

    def restored(self, running: Running) -> None:
        """A job is in play again as it was."""
        self.add(running)
        self.resized(running)
        self._rate.add(running.rate)
        self._shared += sum(running.partners.values())


class Window(Jobs):
    """The jobs in play at an instant: a view is made when somebody looks at it.

    Who keeps it beyond the decision keeps what was to be seen then: the engine has `keep` called before it changes
    anything.
    """

    def __init__(self, in_play: InPlay, now: int, *, clairvoyant: bool, used: int) -> None:
        self._in_play, self._now, self._clairvoyant = in_play, now, clairvoyant
        self._kept: tuple[JobView, ...] | None = None
        self._seen: dict[int, JobView] = {}  # of running jobs, by position in the table
        self._used = used

    def keep(self) -> None:
        """Make all views, and remember all look-ups."""
        _ = self.counts, self.positions, self.least, self.most
        self._kept = self._views
        self._in_play = InPlay()

    @property
    def _views(self) -> tuple[JobView, ...]:
        return tuple(map(self._see, self._in_play)) if self._kept is None else self._kept

    def __len__(self) -> int:
        return len(self._in_play) if self._kept is None else len(self._kept)

    def __iter__(self) -> Iterator[JobView]:
        return map(self._see, self._in_play) if self._kept is None else iter(self._kept)

    @overload
    def __getitem__(self, position: int) -> JobView: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[JobView, ...]: ...

    def __getitem__(self, position: int | slice) -> JobView | tuple[JobView, ...]:
        if self._kept is not None or isinstance(position, slice):
            return self._views[position]
        return self._see(self._in_play[position])

    @cached_property
    def counts(self) -> IntArray:
        """Units that each job holds: int64 of shape (jobs,)."""
        return self._in_play.counts.copy()

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Position of each job by its name."""
        return self._in_play.positions

    @property
    def used(self) -> int:
        """Units that they hold, shared ones counted once."""
        return self._used

    @cached_property
    def least(self) -> IntArray:
        """Fewest units on which each job runs, at least 1: int64 of shape (jobs,)."""
        return self._in_play.least.copy()

    @cached_property
    def most(self) -> IntArray:
        """Most units on which each job runs: int64 of shape (jobs,)."""
        return self._in_play.most.copy()

    def _see(self, running: Running) -> JobView:
        seen = running.waiting_view or self._seen.get(running.index)
        if seen is not None:
            return seen
        at = {}
        if running.partners:
            at = {one.index: self._in_play.position(one) for one in self._in_play.of(running.partners)}
        seen = self._seen[running.index] = running.view(self._now, at, clairvoyant=self._clairvoyant)
        return seen
