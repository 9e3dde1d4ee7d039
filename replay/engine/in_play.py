"""The jobs in play, with sums and arrays over them that need no loop over all jobs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from bft.replay.engine.intervals import RunInterval
from bft.replay.engine.port import Jobs, JobView
from bft.replay.engine.running import Running
from bft.replay.engine.sums import ExactSum

IntArray = NDArray[np.int64]
HELD, LEAST, MOST = range(3)


class InPlay:
    """The jobs in play in order of admission. Sums and arrays follow each change, so waiting jobs cost nothing.

    Attributes
    ----------
    active
        Those that hold units, by position in the table.
    short
        Those of them that hold a number of units on which they do not run.
    sized
        Those that run on some sizes only.
    held
        Units that they hold, those that two of them hold counted twice.
    counts
        Units that each holds, by position.
    shared
        Units that they share, counted for both of two.
    rates
        Samples/s that they do while not stalled.
    """

    def __init__(self) -> None:
        self.line: list[Running] = []
        self._turns: list[int] = []
        self._by_index: dict[int, Running] = {}
        self._numbers: IntArray = np.zeros((3, 16), dtype=np.int64)  # units held, fewest and most, by position
        self._held = self._numbers[HELD].data  # written to as Python's numbers: several times as fast
        self.counts = self._numbers[HELD, :0]
        # What policies look at, kept until it changes.
        self._copies: list[IntArray | None] = [None, None, None]
        self._running: tuple[int, ...] | None = None
        self._positions: dict[str, int] | None = None
        self.rates = ExactSum()
        self.shared = 0
        self.active: dict[int, Running] = {}
        self.short: dict[int, Running] = {}
        self.sized: dict[int, Running] = {}
        self.held = 0

    def __len__(self) -> int:
        return len(self.line)

    def __iter__(self) -> Iterator[Running]:
        return iter(self.line)

    def __getitem__(self, position: int) -> Running:
        return self.line[position]

    def __contains__(self, running: Running) -> bool:
        return running.index in self._by_index

    def copy(self, row: int) -> IntArray:
        """Units per job: held (HELD), fewest (LEAST, at least 1) or most (MOST) on which it runs; read-only."""
        copy = self._copies[row]
        if copy is None:
            copy = self._copies[row] = self._numbers[row, : len(self.line)].copy()
            copy.setflags(write=False)
        return copy

    @property
    def running(self) -> tuple[int, ...]:
        """Positions of those that hold units."""
        if self._running is None:
            self._running = tuple((self.counts != 0).nonzero()[0].tolist())
        return self._running

    def position(self, running: Running) -> int:
        """Number of jobs in play admitted before this one."""
        return bisect_left(self._turns, running.turn)

    @property
    def positions(self) -> Mapping[str, int]:
        """Position by name; rebuilt after a job has come or gone."""
        if self._positions is None:
            self._positions = {running.job.name: position for position, running in enumerate(self.line)}
        return self._positions

    def of(self, indices: Iterable[int]) -> list[Running]:
        """The jobs in play among these distinct positions of the table, in order of admission."""
        found = [self._by_index[index] for index in indices if index in self._by_index]
        return sorted(found, key=lambda running: running.turn) if len(found) > 1 else found

    def add(self, running: Running) -> None:
        """A job is admitted, after all others."""
        position = len(self.line)
        if position == self._numbers.shape[1]:
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)], axis=1)
            self._held = self._numbers[HELD].data
        self._numbers[:, position] = len(running.units), max(running.job.jmin, 1), running.job.jmax
        self.line.append(running)
        self._turns.append(running.turn)
        self._by_index[running.index] = running
        if running.job.sizes is not None:
            self.sized[running.index] = running
        self._come_or_gone()

    def remove(self, running: Running) -> None:
        """A job without units leaves the jobs in play."""
        position, last = self.position(running), len(self.line) - 1
        del self.line[position], self._turns[position], self._by_index[running.index]
        self._numbers[:, position:last] = self._numbers[:, position + 1 : last + 1]
        self.sized.pop(running.index, None)
        self._come_or_gone()

    def _come_or_gone(self) -> None:
        self._copies[:] = (None, None, None)
        self.counts = self._numbers[HELD, : len(self.line)]
        self._positions = self._running = None

    def hold(self, running: Running, units: list[int]) -> None:
        """A job holds exactly these units."""
        count, before = len(units), len(running.units)
        running.units, running.waiting_view = units, None
        self.held += count - before
        self._held[bisect_left(self._turns, running.turn)] = count
        self._copies[HELD] = None
        if not before:
            self.active[running.index] = running
            self._running = None
        elif not count:
            del self.active[running.index]
            self._running = None
        if self.short or self.sized or 0 < count < running.job.jmin:
            self._note_short(running)

    def _note_short(self, running: Running) -> None:
        """Note whether a job holds a number of units on which it does not run."""
        job, count = running.job, len(running.units)
        if 0 < count < job.jmin or (job.sizes is not None and count and not job.runs_on(count)):
            self.short[running.index] = running
        else:
            self.short.pop(running.index, None)

    def share(self, running: Running, partners: dict[int, int]) -> None:
        """A job shares this many units with each of these jobs."""
        self.shared += sum(partners.values()) - sum(running.partners.values())
        running.partners = partners

    def restored(self, running: Running) -> None:
        """Restore a job in play."""
        self.add(running)
        self.held += len(running.units)
        if running.units:
            self.active[running.index] = running
            self._note_short(running)
        self.rates.add(running.rate)
        self.shared += sum(running.partners.values())


class Window(Jobs):
    """The jobs in play at an instant; the view of a job is made when it is first used.

    A policy may keep this beyond the decision: `keep`, called before the engine changes anything, makes it permanent.
    anything.
    """

    _kept: Jobs | None = None

    def __init__(self, in_play: InPlay, now: int, asked_ns: int, clairvoyant: bool, used: int) -> None:
        self._in_play, self._now, self._asked_ns = in_play, now, asked_ns
        self._clairvoyant, self._used = clairvoyant, used
        self._seen: dict[int, JobView] = {}  # of running jobs, by position in the table

    def keep(self) -> None:
        """Make all views."""
        present = {position: interval for position in self.running if (interval := self.present(position))}
        self._kept, self._in_play = Jobs(self, present), InPlay()

    def __len__(self) -> int:
        return len(self._in_play) if self._kept is None else len(self._kept)

    def __iter__(self) -> Iterator[JobView]:
        return map(self._see, self._in_play) if self._kept is None else iter(self._kept)

    @overload
    def __getitem__(self, position: int) -> JobView: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[JobView, ...]: ...

    def __getitem__(self, position: int | slice) -> JobView | tuple[JobView, ...]:
        if self._kept is not None:
            return self._kept[position]
        return tuple(self)[position] if isinstance(position, slice) else self._see(self._in_play[position])

    @property
    def counts(self) -> IntArray:
        """Units that each job holds: int64 of shape (jobs,), read-only."""
        return self._in_play.copy(HELD) if self._kept is None else self._kept.counts

    @property
    def running(self) -> Sequence[int]:
        """Positions of the jobs that hold units, ascending."""
        return self._in_play.running if self._kept is None else self._kept.running

    @property
    def positions(self) -> Mapping[str, int]:
        """Position of each job by its name."""
        return self._in_play.positions if self._kept is None else self._kept.positions

    @property
    def least(self) -> IntArray:
        """Fewest units on which each job runs, at least 1: int64 of shape (jobs,), read-only."""
        return self._in_play.copy(LEAST) if self._kept is None else self._kept.least

    @property
    def most(self) -> IntArray:
        """Most units on which each job runs: int64 of shape (jobs,), read-only."""
        return self._in_play.copy(MOST) if self._kept is None else self._kept.most

    @property
    def sized(self) -> Sequence[int]:
        """Positions of the jobs that run on some sizes only, ascending."""
        if self._kept is not None:
            return self._kept.sized
        return sorted(map(self._in_play.position, self._in_play.sized.values()))

    @property
    def used(self) -> int:
        """Units that they hold, shared ones counted once."""
        return self._used

    def present(self, position: int) -> RunInterval | None:
        """What a job holds now, since the policy was last asked or its rate last changed; None if it has only begun."""
        if self._kept is not None:
            return self._kept.present(position)
        return self._in_play[position].present(self._now, self._asked_ns)

    def _see(self, running: Running) -> JobView:
        seen = running.waiting_view or self._seen.get(running.index)
        if seen is not None:
            return seen
        positions = {}
        if running.partners:
            positions = {one.index: self._in_play.position(one) for one in self._in_play.of(running.partners)}
        seen = self._seen[running.index] = running.view(self._now, positions, clairvoyant=self._clairvoyant)
        return seen
