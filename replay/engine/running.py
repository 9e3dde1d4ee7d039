"""The state of one job in play, and of all jobs in play with sums and arrays that need no loop over them."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models import Job
from bft.models.tolerances import FINISHED, INSTANT
from bft.replay.engine.ledger import JobRecord
from bft.replay.engine.policy_api import Ending, Jobs, JobView, RunInterval
from bft.replay.engine.snapshot import NOT_STORED
from bft.replay.trace.node_trace import SECOND_NS

NEVER = 2**63 - 1
_NEARLY = 1 - FINISHED


@dataclass(slots=True, eq=False)
class Running:
    """A job in play. Its amounts are valid at `settled_ns`; since then they grow at a constant rate.

    Attributes
    ----------
    index, turn
        Position in the table, and the number of jobs admitted before it.
    units
        Its units, oldest first; none while it waits.
    progress, rate, settled_ns
        Samples done at an instant, and samples/s since then while not stalled.
    finish_ns, due_ns
        When its work will be done at that rate; and from when on it counts as finished if an event occurs.
    ask_ns
        When its rate must be computed again even without an event.
    stalled_until, stalls
        Until when it makes no progress; and up to when each loss lasts (see `ledger`), in ascending order.
    partners, xi
        Its partners (position in the table -> number of shared units), and how many times longer its iterations take.
    slowdown
        How many times longer they take because of the network that it shares with others.
    saved, begun_ns, rated_ns
        Progress at its last checkpoint, when it was started, and when its present rate was set.
    rated_units, rated_shared, rated_stall_ns
        The number of its units then, whether it shared any, and until when it was to stall.
    since_ns
        When its units last changed.
    rungs, passed
        Samples at which a workload wants to hear of it, ascending; and how many of them are behind it.
    """

    index: int = field(metadata=NOT_STORED)
    turn: int = field(metadata=NOT_STORED)
    job: Job = field(metadata=NOT_STORED)
    record: JobRecord = field(metadata=NOT_STORED)
    dynamics: Any  # an ApplicationDynamics, where its rate follows no curve
    units: list[int] = field(default_factory=list)
    progress: float = 0.0
    rate: float = 0.0
    settled_ns: int = 0
    finish_ns: int = NEVER
    due_ns: int = NEVER
    ask_ns: int = NEVER
    stalled_until: int = 0
    stalls: list[tuple[int, str]] = field(default_factory=list)
    partners: dict[int, int] = field(default_factory=dict)
    xi: float = 1.0
    slowdown: float = 1.0
    saved: float = 0.0
    begun_ns: int = 0
    rated_ns: int = 0
    rated_units: int = 0
    rated_shared: bool = False
    rated_stall_ns: int = 0
    since_ns: int | None = None
    rungs: list[float] = field(default_factory=list)
    passed: int = 0
    waiting_view: JobView | None = field(
        default=None, metadata=NOT_STORED
    )  # nothing changes while it waits

    def progress_at(self, instant: int) -> float:
        """Samples done at an instant, if nothing happens before."""
        since = (
            self.settled_ns
            if self.settled_ns > self.stalled_until
            else self.stalled_until
        )
        seconds = (instant - since) / SECOND_NS
        return self.progress + self.rate * seconds if seconds > 0 else self.progress

    def set_rate(self, rate: float, now: int) -> None:
        """Run at `rate` from now on, an instant up to which its amounts are settled; compute its finish."""
        self.rate, self.rated_ns = rate, now
        self.rated_units, self.rated_shared = len(self.units), bool(self.partners)
        self.rated_stall_ns = self.stalled_until
        self.finish_ns = self.due_ns = NEVER
        if rate <= 0:
            return
        self.finish_ns = self._reaches(self.job.pmax)
        if self.finish_ns != NEVER:
            lacking, early = self.job.pmax * _NEARLY - self.progress, now
            if lacking > 0:
                begin = now if now > self.stalled_until else self.stalled_until
                early = begin + math.ceil(lacking / rate * SECOND_NS)
            self.due_ns = early if early < self.finish_ns else self.finish_ns
        if self.rungs:
            self.ask_ns = min(self.ask_ns, self._reaches(self.rungs[0]))

    def interval(
        self, now: int, asked_ns: int, ended: Ending = "decision"
    ) -> RunInterval | None:
        """Return the interval since the job's rate was set or the policy was last asked; None if it held nothing."""
        begin = asked_ns if asked_ns > self.rated_ns else self.rated_ns
        if not self.rated_units or now <= begin:
            return None
        return RunInterval(
            self.rated_units,
            begin,
            now,
            self.rated_stall_ns,
            self.rate,
            self.rated_shared,
            ended,
        )

    def _reaches(self, samples: float) -> int:
        """When it will have done so many samples at the rate that has just been set, NEVER beyond the calendar."""
        begin, stalled_until = self.rated_ns, self.stalled_until
        if stalled_until > begin:
            begin = stalled_until
        nanoseconds = (samples - self.progress) / self.rate * SECOND_NS
        if not nanoseconds < NEVER - begin - 1:
            return NEVER
        whole = round(nanoseconds)
        if abs(nanoseconds - whole) > INSTANT * nanoseconds:
            whole = math.ceil(nanoseconds)
        return begin + whole if whole > 0 else begin

    def view(self, now: int, at: Callable[[int], int], *, clairvoyant: bool) -> JobView:
        """The policy's view at an instant; `at` gives the position in play of a job by that in the table."""
        record, units = self.record, len(self.units)
        seconds = (now - self.settled_ns) / SECOND_NS if units else 0.0
        seen = JobView(
            self.job,
            units,
            record.unit_seconds + units * seconds,
            tuple(self.units),
            tuple([(at(index), shared) for index, shared in self.partners.items()]),
            record.run_seconds + seconds,
            record.starts,
            record.rescales - record.stops,
            record.start_ns,
            self.since_ns,
            self.progress_at(now) if clairvoyant else math.nan,
            self.dynamics,
            self.rate,
            units > 0 and self.stalled_until > now,
        )
        if not units:
            self.waiting_view = seen
        return seen


def finished_view(record: JobRecord) -> JobView:
    """The policy's view of a finished job."""
    return JobView(
        record.job,
        0,
        record.unit_seconds,
        executed_s=record.run_seconds,
        starts=record.starts,
        rescales=record.rescales - record.stops,
        started_ns=record.start_ns,
        since_ns=record.finish_ns,
        progress=record.job.pmax,
    )


# Terms that may wait to be made few again: adding them up takes as long as a step of Python.
_MANY = 24


class ExactSum:
    """A sum of floats whose terms come and go: always the correctly rounded sum of the present terms.

    The latest terms are kept as they came, and `math.fsum` adds them up exactly. When there are many they are replaced
    by few that have the same sum: its rounded value, what that lacks, what this lacks in turn, and so on.

    Attributes
    ----------
    value
        The sum.

    Examples
    --------
    >>> total = ExactSum()
    >>> total.change(0.0, 0.1)
    >>> total.change(0.1, 1e20)
    >>> total.change(1e20, 0.25)
    >>> total.value
    0.25
    """

    __slots__ = ("_terms", "value")

    def __init__(self) -> None:
        self._terms: list[float] = []
        self.value = 0.0

    def change(self, before: float, after: float) -> None:
        """A finite term has become another one; 0 stands for none."""
        terms = self._terms
        terms.append(-before)
        terms.append(after)
        if len(terms) > _MANY:
            self._make_few()
        self.value = fsum(self._terms)

    def _make_few(self) -> None:
        few: list[float] = []
        while rest := fsum(self._terms):
            few.append(rest)
            self._terms.append(-rest)
        self._terms = few


IntArray = NDArray[np.int64]
# Rows of the numbers of jobs in play: units held, fewest and most; where each stands in the table; when to look at it
# next, and from when on it may be finished.
HELD, MIN_UNITS, MAX_UNITS, ROW, NEXT, DUE = range(6)
# The earliest of some instants, where it must be found anew.
_UNKNOWN = -1


class InPlay:
    """The jobs in play in order of admission. Sums and arrays follow each change, so waiting jobs cost nothing.

    Attributes
    ----------
    line
        All of them.
    active
        Those that hold units, by position in the table.
    short
        Those of them that hold a number of units on which they do not run.
    sized
        Those that run on some sizes only.
    held
        Units that they hold, those that two of them hold counted twice.
    shared
        Units that they share, counted for both of two.
    rates
        Samples/s that they do while not stalled.
    """

    def __init__(self, table: Sequence[Job] = ()) -> None:
        self.table = table
        self.line: list[Running] = []
        self._turns: list[int] = []
        self._by_index: dict[int, Running] = {}
        self._numbers: IntArray = np.zeros((6, 16), dtype=np.int64)
        # Rows are written to as Python's numbers: several times as fast.
        self._rows = [row.data for row in self._numbers]
        self._earliest = {NEXT: NEVER, DUE: NEVER}  # of their rows
        # What policies have looked at, until it changes.
        self._shown: dict[Any, Any] = {}
        self.rates = ExactSum()
        self.shared = 0
        self.active: dict[int, Running] = {}
        self.short: dict[int, Running] = {}
        self.sized: dict[int, Running] = {}
        self.held = 0

    def live(self, number: int) -> IntArray:
        """One of the rows of numbers, which changes with the jobs: int64 of shape (jobs,)."""
        return self._numbers[number, : len(self.line)]

    def row(self, number: int) -> IntArray:
        """One of the rows of numbers for good, read-only; the same array until it changes."""
        row: IntArray | None = self._shown.get(number)
        if row is None:
            row = self._shown[number] = self.live(number).copy()
            row.setflags(write=False)
        return row

    @property
    def running(self) -> tuple[int, ...]:
        """Positions of those that hold units."""
        found: tuple[int, ...] | None = self._shown.get("running")
        if found is None:
            found = self._shown["running"] = tuple(self.row(HELD).nonzero()[0].tolist())
        return found

    @property
    def positions(self) -> Mapping[str, int]:
        """Position of each by its name."""
        found: Mapping[str, int] | None = self._shown.get("positions")
        if found is None:
            found = self._shown["positions"] = {
                running.job.name: at for at, running in enumerate(self.line)
            }
        return found

    def position(self, running: Running) -> int:
        """Number of jobs in play admitted before this one."""
        return bisect_left(self._turns, running.turn)

    def at(self, index: int) -> int:
        """Position of a job by that in the table."""
        return self.position(self._by_index[index])

    def of(self, indices: Iterable[int]) -> list[Running]:
        """The jobs in play among these distinct positions of the table, in order of admission."""
        found = [self._by_index[index] for index in indices if index in self._by_index]
        if len(found) > 1:
            found.sort(key=lambda running: running.turn)
        return found

    def add(self, running: Running) -> None:
        """A job is admitted, after all others."""
        position = len(self.line)
        if position == self._numbers.shape[1]:
            more = np.zeros_like(self._numbers)
            self._numbers = np.concatenate([self._numbers, more], axis=1)
            self._rows = [row.data for row in self._numbers]
        held, job = len(running.units), running.job
        units = held, max(job.jmin, 1), job.jmax
        self._numbers[:, position] = *units, running.index, NEVER, NEVER
        self.line.append(running)
        self._turns.append(running.turn)
        self._by_index[running.index] = running
        if running.job.sizes is not None:
            self.sized[running.index] = running
        self._shown.clear()

    def remove(self, running: Running) -> None:
        """A job without units leaves the jobs in play."""
        position, last = self.position(running), len(self.line) - 1
        del self.line[position], self._turns[position], self._by_index[running.index]
        self._numbers[:, position:last] = self._numbers[:, position + 1 : last + 1]
        self.sized.pop(running.index, None)
        self._shown.clear()

    def hold(self, running: Running, units: list[int]) -> None:
        """A job holds exactly these units."""
        count, before = len(units), len(running.units)
        running.units, running.waiting_view = units, None
        self.held += count - before
        self._rows[HELD][bisect_left(self._turns, running.turn)] = count
        if not before:
            self.active[running.index] = running
        elif not count:
            del self.active[running.index]
        self._shown.pop(HELD, None)
        if not (before and count):
            self._shown.pop("running", None)
        job = running.job
        unfit = job.sizes is not None and not job.runs_on(count)
        if count and (unfit or count < job.jmin):
            self.short[running.index] = running
        else:
            self.short.pop(running.index, None)

    def share(self, running: Running, partners: dict[int, int]) -> None:
        """A job shares this many units with each of these jobs."""
        self.shared += sum(partners.values()) - sum(running.partners.values())
        running.partners = partners

    def plan(self, running: Running) -> None:
        """Note when a job is to be looked at: at its finish, or as its rate must be computed again."""
        position = bisect_left(self._turns, running.turn)
        next_ns, due_ns, asked_ns = running.finish_ns, running.due_ns, running.ask_ns
        if asked_ns < next_ns:
            next_ns = asked_ns
            due_ns = asked_ns if asked_ns < due_ns else due_ns
        for number, instant in ((NEXT, next_ns), (DUE, due_ns)):
            row, earliest = self._rows[number], self._earliest[number]
            if instant <= earliest:
                self._earliest[number] = instant
            elif row[position] == earliest:
                self._earliest[number] = _UNKNOWN
            row[position] = instant

    def earliest(self, number: int) -> int:
        """When to look at a job next (NEXT), or from when on one may be finished (DUE); NEVER where there is none."""
        if self._earliest[number] == _UNKNOWN:
            self._earliest[number] = int(self.live(number).min(initial=NEVER))
        return self._earliest[number]

    def due(self, now: int) -> list[Running]:
        """Return the jobs that are to be looked at by now, in order of admission."""
        due = self.live(DUE) <= now
        return [self.line[position] for position in due.nonzero()[0].tolist()]

    def restored(self, running: Running) -> None:
        """Restore a job in play."""
        units, running.units = running.units, []
        partners, running.partners = running.partners, {}
        self.add(running)
        if units:
            self.hold(running, units)
        self.share(running, partners)
        self.rates.change(0.0, running.rate)
        self.plan(running)


class Window(Jobs):
    """The jobs in play at an instant; the view of a job is made when it is first used.

    A policy may keep this beyond the decision: `keep`, called before the engine changes anything, makes it permanent.
    """

    def __init__(
        self, in_play: InPlay, now: int, asked_ns: int, clairvoyant: bool, used: int
    ) -> None:
        self._in_play, self._now, self._asked_ns = in_play, now, asked_ns
        self._clairvoyant, self._used = clairvoyant, used
        self._seen: dict[int, JobView] = {}  # of running jobs, by position in the table

    def keep(self) -> None:
        """Make the views of all jobs: from now on it is a sequence of these, and shows this instant for good."""
        self._present = {
            position: interval
            for position in self.running
            if (interval := self.present(position))
        }
        self._views = tuple(self)
        self.__class__ = Jobs  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._in_play.line)

    def __iter__(self) -> Iterator[JobView]:
        return map(self._see, self._in_play.line)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return tuple(self)[position]
        return self._see(self._in_play.line[position])

    counts = property(lambda self: self._in_play.row(HELD))
    least = property(lambda self: self._in_play.row(MIN_UNITS))
    most = property(lambda self: self._in_play.row(MAX_UNITS))
    rows = property(lambda self: self._in_play.row(ROW))
    running = property(attrgetter("_in_play.running"))
    positions = property(attrgetter("_in_play.positions"))
    table = property(attrgetter("_in_play.table"))
    used = property(attrgetter("_used"))

    @property
    def sized(self) -> Sequence[int]:
        """Positions of the jobs that run on some sizes only, ascending."""
        return sorted(map(self._in_play.position, self._in_play.sized.values()))

    def present(self, position: int) -> RunInterval | None:
        """Return the interval of a job that is under way since the policy was last asked, None if it has only begun."""
        return self._in_play.line[position].interval(self._now, self._asked_ns)

    def _see(self, running: Running) -> JobView:
        seen = running.waiting_view or self._seen.get(running.index)
        if seen is None:
            seen = self._seen[running.index] = running.view(
                self._now, self._in_play.at, clairvoyant=self._clairvoyant
            )
        return seen
