"""The interface of a policy (docs/policies.md): the state it sees, the decision it returns, the guard of its call."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from types import FrameType, MappingProxyType, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from bft.milp import ProblemError, Solution, Transfer
from bft.models import InputError, Job
from bft.replay.engine.units import Holdings, Machine
from bft.replay.trace.node_trace import SECOND_NS

if TYPE_CHECKING:
    from bft.models import ApplicationDynamics

IntArray = NDArray[np.int64]
# Number of positions that `Jobs.waiting` examines at a time.
_AT_ONCE = 256

Ending = Literal["decision", "leave", "finish", "cancel", "rate"]
"""Why an interval ended: by the present decision; as units left; as the job finished or was cancelled; or as only its
rate changed, by partners, other jobs on the network, or its own progress."""


class RunInterval(NamedTuple):
    """An interval in which a job held the same number of units and ran at the same rate.

    Parameters
    ----------
    units
        Units held, at least 1.
    begin_ns, end_ns
        From when to when, UTC nanoseconds; not from before the policy was last asked.
    stalled_until_ns
        Until when it made no progress, because of a start, restart or rescale that stops a job.
    rate
        Samples/s while it was not stalled.
    shared
        Whether it shared units with another job, which changes the rate.
    ended
        Why the interval ended.

    Examples
    --------
    >>> second = 10**9
    >>> interval = RunInterval(4, 0, 60 * second, 20 * second, 30.0, False, "leave")
    >>> interval.seconds, interval.progressed_s
    (60.0, 40.0)
    """

    units: int
    begin_ns: int
    end_ns: int
    stalled_until_ns: int
    rate: float
    shared: bool
    ended: Ending

    @property
    def seconds(self) -> float:
        """Return its length."""
        return (self.end_ns - self.begin_ns) / SECOND_NS

    @property
    def progressed_s(self) -> float:
        """Return the seconds in which the job made progress."""
        stalled_ns = max(0, min(self.stalled_until_ns, self.end_ns) - self.begin_ns)
        return self.seconds - stalled_ns / SECOND_NS


@dataclass(frozen=True, slots=True)
class JobView:
    """A job in play as a scheduler sees it: without the future, and with its progress only for clairvoyant policies.

    Parameters
    ----------
    job
        Its bounds and curves.
    units
        Units it holds now.
    unit_seconds
        Service attained so far.
    held
        The units, oldest first; unit u lies on node u // units_per_node.
    partners
        The jobs with which it shares units now: positions in `State.jobs`, and the number of shared units.
    executed_s
        Seconds during which it held units.
    starts, rescales
        How often it got units after having none, and how often a decision changed its units and left it some.
    started_ns, since_ns
        When it first got units, and when its units last changed; UTC nanoseconds, None before that.
    progress
        Samples done; NaN unless the policy is `clairvoyant`.
    rate
        Samples/s at present, as its log would show; 0 while it waits.
    dynamics
        How its rate follows from placement and progress, if not from a curve; otherwise None.
    restarting
        Whether it holds units and makes no progress yet, because of a start, restart or move.

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 4], [0, 40])
    >>> job = Job("a", 0, 1, 4, pmax=3000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> JobView(job, units=2, unit_seconds=120.0, held=(0, 1), progress=500.0).remaining
    2500.0
    """

    job: Job
    units: int
    unit_seconds: float
    held: tuple[int, ...] = ()
    partners: tuple[tuple[int, int], ...] = ()
    executed_s: float = 0.0
    starts: int = 0
    rescales: int = 0
    started_ns: int | None = None
    since_ns: int | None = None
    progress: float = float("nan")
    dynamics: ApplicationDynamics | None = None
    rate: float = 0.0
    restarting: bool = False

    @property
    def remaining(self) -> float:
        """Samples still to be done; NaN unless the policy is clairvoyant."""
        return self.job.pmax - self.progress

    @property
    def partner(self) -> int | None:
        """Position of the job with which it shares units, None when it shares none."""
        return self.partners[0][0] if self.partners else None

    @property
    def shared(self) -> int:
        """Number of shared units."""
        return sum(units for _, units in self.partners)


class Jobs(Sequence[JobView]):
    """The jobs in play as a policy sees them, in order of admission: a sequence of `JobView`, with look-ups.

    Examples
    --------
    >>> jobs = Jobs()
    >>> len(jobs), list(jobs.running), dict(jobs.positions)
    (0, [], {})
    """

    def __init__(self, views: Iterable[JobView] = ()) -> None:
        self._views = tuple(views)
        self._present: Mapping[int, RunInterval] = {}  # by position

    def __len__(self) -> int:
        return len(self._views)

    def __iter__(self) -> Iterator[JobView]:
        return iter(self._views)

    def __getitem__(self, position: Any) -> Any:
        return self._views[position]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Jobs) and tuple(self) == tuple(other)

    @cached_property
    def counts(self) -> IntArray:
        """Units that each job holds: int64 of shape (jobs,), read-only."""
        return _fixed(view.units for view in self)

    @cached_property
    def running(self) -> Sequence[int]:
        """Positions of the jobs that hold units, ascending."""
        return tuple(np.flatnonzero(self.counts).tolist())

    @property
    def waiting(self) -> Iterator[int]:
        """Positions of the jobs without units, ascending; computed only as far as needed."""
        counts = self.counts
        for first in range(0, len(counts), _AT_ONCE):
            zeros = counts[first : first + _AT_ONCE] == 0
            yield from (zeros.nonzero()[0] + first).tolist()

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Position of each job by its name."""
        return MappingProxyType(
            {view.job.name: position for position, view in enumerate(self)}
        )

    @cached_property
    def table(self) -> Sequence[Job]:
        """The job table, to which jobs are only added."""
        return tuple(view.job for view in self)

    @cached_property
    def rows(self) -> IntArray:
        """Where each job stands in `table`: int64 of shape (jobs,), read-only."""
        return _fixed(range(len(self)))

    @cached_property
    def least(self) -> IntArray:
        """Fewest units on which each job runs, at least 1: int64 of shape (jobs,), read-only."""
        return _fixed(max(view.job.jmin, 1) for view in self)

    @cached_property
    def most(self) -> IntArray:
        """Most units on which each job runs: int64 of shape (jobs,), read-only."""
        return _fixed(view.job.jmax for view in self)

    @cached_property
    def sized(self) -> Sequence[int]:
        """Positions of the jobs that run on some sizes between the fewest and the most only, ascending."""
        return tuple(
            position for position, view in enumerate(self) if view.job.sizes is not None
        )

    def present(self, position: int) -> RunInterval | None:
        """Return the interval of a job that is under way, since the policy was last asked; None if it has only begun.

        A change of the job's rate begins a new interval.
        """
        return self._present.get(position)

    @cached_property
    def used(self) -> int:
        """Units that they hold, shared ones counted once."""
        views = [self._views[position] for position in self.running]
        held = sum(view.units for view in views)
        return held - sum(view.shared for view in views) // 2


def _fixed(numbers: Iterable[int]) -> IntArray:
    """Return a read-only array of these numbers."""
    array = np.fromiter(numbers, dtype=np.int64)
    array.setflags(write=False)
    return array


_NO_MACHINE = Holdings(0)


@dataclass(frozen=True, slots=True)
class State:
    """The input of a decision.

    Parameters
    ----------
    time_ns
        UTC nanoseconds.
    idle
        Idle units, including those that jobs hold.
    jobs
        The jobs in play, in order of admission; any sequence of views becomes `Jobs`.
    machine
        The idle and free units; for policies that place jobs.
    finished
        Jobs that have finished since the policy was last asked.
    ended
        What jobs have held since then and hold no longer, by name, also of jobs that have finished: the intervals in
        order, each with the reason why it ended. `intervals` adds what a job holds now.

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 4], [0, 40])
    >>> a, b = (Job(name, 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve) for name in "ab")
    >>> state = State(0, idle=5, jobs=[JobView(a, 2, 120.0), JobView(b, 0, 0.0)])
    >>> list(state.jobs.running), list(state.jobs.waiting), state.free, state.jobs.positions["b"]
    ([0], [1], 3, 1)
    """

    time_ns: int
    idle: int
    jobs: Jobs
    machine: Machine = field(default=_NO_MACHINE, compare=False)
    finished: tuple[JobView, ...] = ()
    ended: Mapping[str, Sequence[RunInterval]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Not isinstance, which takes longer where a class is abstract.
        if Jobs not in type(self.jobs).__mro__:
            object.__setattr__(self, "jobs", Jobs(self.jobs))

    def intervals(self, position: int) -> tuple[RunInterval, ...]:
        """All that a job has held since the policy was last asked, in order: sizes, seconds, rates, and why each ended.

        A change between two decisions, such as a node that left, so loses nothing of what was seen before it.
        """
        before = self.ended.get(self.jobs[position].job.name, ())
        present = self.jobs.present(position)
        return tuple(before) if present is None else (*before, present)

    @property
    def free(self) -> int:
        """Idle units without a holder."""
        return self.idle - self.jobs.used

    def expected_idle_until(self) -> list[int | None]:
        """Until when each node may be expected to stay idle, UTC nanoseconds; unit u lies on node u // units_per_node.

        That is by time limits of running jobs, the queue and reservations as they are now (`Outlook`), so that nodes
        may leave earlier or later. None: the node is not idle, nothing is known, or no host jobs lie beside the trace.
        Only policies of `Traits(expects=True)` are given any.
        """
        return self.machine.expected_idle_until(self.time_ns)


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of a policy, in one of three forms; the engine derives the changes.

    Parameters
    ----------
    counts
        Future number of units of each job in play, in the order of `State.jobs`: whole numbers, or an integer array.
        The engine chooses the units.
    placement
        For each job whose units change (position in `State.jobs`), all its future units, none to stop it; the
        others keep theirs. A unit that another job keeps becomes shared.
    transfers
        How many units move from which class of holders to which.
    solution
        The solver's answer, if one was asked: its status, objective, bound, backend and note are recorded.
    wake_ns
        When to ask again even without an event, UTC nanoseconds; replaces the time of an earlier decision.
    kinds
        With `counts`, where units are of several kinds: the kind of each job's units, None where it gets none.

    Raises
    ------
    TypeError
        When there is none of the three, or several.

    Examples
    --------
    >>> Decision((2, 0)).counts
    (2, 0)
    >>> Decision.placed({1: (4, 5)}).placement
    {1: (4, 5)}
    >>> Decision()
    Traceback (most recent call last):
    TypeError: Decision: expected one of counts, placement, transfers
    """

    counts: Sequence[int] | IntArray | None = None
    placement: Mapping[int, Sequence[int]] | None = None
    transfers: tuple[Transfer, ...] | None = None
    solution: Solution | None = None
    wake_ns: int | None = None
    kinds: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        missing = (
            (self.counts is None) + (self.placement is None) + (self.transfers is None)
        )
        if missing != 2:
            raise TypeError("Decision: expected one of counts, placement, transfers")

    @classmethod
    def placed(
        cls, placement: Mapping[int, Sequence[int]], *, wake_ns: int | None = None
    ) -> Decision:
        """Give the jobs at these positions exactly these units, none to stop them; the others keep theirs."""
        return cls(placement=placement, wake_ns=wake_ns)

    @classmethod
    def keep(cls, *, wake_ns: int | None = None) -> Decision:
        """Return a decision that changes nothing."""
        return cls(placement={}, wake_ns=wake_ns)

    @classmethod
    def solved(cls, solution: Solution) -> Decision:
        """The decision in a solver's answer."""
        if solution.transfers:
            return cls(transfers=solution.transfers, solution=solution)
        return cls(solution.counts, solution=solution, kinds=solution.kinds)

    def waking(self, at_ns: int | None) -> Decision:
        """Return this decision with a request to be asked again at an instant."""
        return replace(self, wake_ns=at_ns)

    def counts_in(self, state: State) -> tuple[int, ...]:
        """Units of each job after the decision on `state`."""
        if self.counts is not None:
            return tuple(int(count) for count in self.counts)
        counts = [view.units for view in state.jobs]
        for position, units in (self.placement or {}).items():
            counts[position] = len(units)
        for transfer in self.transfers or ():
            for position in transfer.before:
                counts[position] -= transfer.units
            for position in transfer.after:
                counts[position] += transfer.units
        return tuple(counts)


@dataclass(frozen=True, slots=True)
class Traits:
    """What a policy is, which the engine respects.

    Parameters
    ----------
    rigid
        A job runs with the units it got, or not at all. A job that loses a unit to the batch scheduler stops, loses its
        work since the last checkpoint, and waits again.
    migrates
        A decision may move a running job to other units, for the overhead of a restart.
    clairvoyant
        It sees the jobs' progress.
    shares
        It may let two jobs share units, and so needs to know xi.
    tunes
        Jobs may choose their batch size themselves, if their profile allows it.
    expects
        It looks at how long nodes are expected to stay idle (`State.expected_idle_until`).
    kinds
        It knows several kinds of units.

    Raises
    ------
    TypeError
        For an unknown word.

    Examples
    --------
    >>> Traits(rigid=True).rigid
    True
    >>> Traits(ridgid=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    TypeError: Traits.__init__() got an unexpected keyword argument 'ridgid'...
    """

    rigid: bool = False
    migrates: bool = False
    clairvoyant: bool = False
    shares: bool = False
    tunes: bool = False
    expects: bool = False
    kinds: bool = False

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The words."""
        return tuple(field.name for field in fields(cls))

    @property
    def stated(self) -> tuple[str, ...]:
        """The words that are true."""
        return tuple(name for name in self.names() if getattr(self, name))

    @classmethod
    def of(cls, policy: object) -> Traits:
        """The traits that a policy, or its class, states; those of an elastic one by default.

        Raises
        ------
        TypeError
            When its `traits` are something else.
        """
        traits = getattr(policy, "traits", _ELASTIC)
        if not isinstance(traits, cls):
            raise TypeError(
                f"its traits must be Traits, such as Traits(rigid=True), not {traits!r}"
            )
        return traits


_ELASTIC = Traits()


class Policy(Protocol):
    """A policy decides allocations, deterministically: equal states lead to equal decisions.

    A class attribute `traits` tells the engine what it is, such as `Traits(rigid=True)`; without, it is elastic.
    """

    @property
    def name(self) -> str:
        """Its name on the command line and in results."""

    def decide(self, state: State) -> Decision:
        """Allocate the idle units: for each job 0 or a number within [Jmin, Jmax], in total at most `state.idle`."""


@runtime_checkable
class Remembers(Protocol):
    """A policy whose decisions or counts depend on earlier states: a checkpoint must store its memory too."""

    def state(self) -> dict[str, Any]:
        """The internal state as JSON values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""


class PolicyError(RuntimeError):
    """A policy gave an invalid answer, such as too many units, or no answer at all.

    Attributes
    ----------
    outcome
        The results up to then, an `Outcome`; None if there are none.
    """

    outcome: Any = None


logger = logging.getLogger(__name__)


class _TimeUp(BaseException):
    """The policy's time is up; an `except Exception` in the policy must not catch it."""


@dataclass(slots=True)
class PolicyCall:
    """A block that calls a policy: every failure inside becomes a PolicyError with the policy's name.

    Parameters
    ----------
    name
        The name of the policy.
    policy
        The policy or its class, to name the line of its source that failed.
    limit_s
        Wall time after which it counts as hanging; None for no limit. A signal enforces it, so it works only in the
        main thread, and a compiled loop is interrupted when it returns to Python.
    under_way
        Whether part of a replay is to be kept. Before that, errors that name an invalid input are passed on unchanged.

    Attributes
    ----------
    traits
        The policy's.

    Raises
    ------
    PolicyError
        When the block raises, ends the program, or takes longer than `limit_s`.
    """

    name: str
    policy: object
    limit_s: float | None = None
    under_way: bool = True
    traits: Traits = field(init=False)
    _before: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.traits = Traits.of(self.policy)

    def refusal(self, reason: str) -> PolicyError:
        """Return the error with which the policy is stopped."""
        return PolicyError(f"policy {self.name!r} was stopped: {reason}")

    def __enter__(self) -> None:
        if self.limit_s is None:
            return
        if threading.current_thread() is not threading.main_thread():
            raise InputError(
                "a time limit for policies works in the main thread of a process only"
            )
        self._before = signal.signal(signal.SIGALRM, _ring)
        signal.setitimer(signal.ITIMER_REAL, self.limit_s)

    def __exit__(
        self,
        of: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.limit_s is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
        # A signal that arrives within compiled code becomes the cause of a SystemError.
        while isinstance(error, SystemError) and error.__cause__ is not None:
            error = error.__cause__
        if error is None or isinstance(error, PolicyError):
            return
        where = _line(error, self.policy)
        if isinstance(error, (InputError, ProblemError)):
            # These name the invalid input themselves.
            if not self.under_way:
                return
            reason = str(error)
        elif isinstance(error, _TimeUp):
            reason = f"no answer within {self.limit_s:g} s{where}"
        elif isinstance(error, SystemExit):
            reason = f"it tried to end the programme{where}"
        elif isinstance(error, Exception):
            text = " ".join(str(error).split())
            reason = (
                f"it raised {type(error).__name__}: {text}".removesuffix(": ") + where
            )
        else:  # an interrupt, which is not the policy's
            raise error
        logger.debug("policy %r failed", self.name, exc_info=True)
        raise self.refusal(reason) from error


def _ring(number: int, frame: FrameType | None) -> None:
    raise _TimeUp


def _line(error: BaseException, policy: object) -> str:
    """The last line of the policy's own source on the way to an error."""
    own = getattr(sys.modules.get(policy.__module__), "__file__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == own]
    return f" ({Path(own).name}, line {lines[-1]})" if own and lines else ""
