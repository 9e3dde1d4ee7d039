"""The records of a replay: steps, jobs, holders of units; and a check that nothing was lost (docs/results.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bft.milp import Solution
from bft.models import Job, JobTable
from bft.models.tolerances import BALANCE
from bft.replay.engine.history import ROWS, Block, Columns, ProgressCurve, Stall
from bft.replay.engine.snapshot import NOT_STORED, restore_snapshot, snapshot
from bft.replay.engine.units import HostReturns
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

if TYPE_CHECKING:
    import pandas as pd


class ConservationError(AssertionError):
    """A unit was given twice, or work does not add up: a bug in this package, never an error of the input."""


# Causes of lost work: deductions for rescales; preemptions; stalls of the cost model `stall`; overhead of first starts;
# overhead of later starts and of moves.
BOOKS = ("rescale", "preemption", "stall", "start", "restart")
Loss = Literal[
    "preemption", "rescale", "stall", "start stall", "start", "restart", "move"
]
"""The kinds of losses. A `start stall` is the stall of a job without units before, a `move` goes to other units."""
_BOOK_OF: dict[str, str] = {
    **{book: book for book in BOOKS},
    "start stall": "stall",
    "move": "restart",
}
_PRICE_OF_RESCALES = frozenset({"rescale", "stall", "move"})
# Of each kind: its book, that of a job's account, and whether it is a price of rescales.
_BOOKED = {
    kind: (book, f"lost_to_{book}", kind in _PRICE_OF_RESCALES)
    for kind, book in _BOOK_OF.items()
}


Activity = tuple[int, int, int, int, float]
"""The activity at a decision: units idle and used, jobs in play and running, and samples/s that these do."""


class Step(NamedTuple):
    """One row of steps.parquet: a decision, and the time since the one before; work in samples, rate per second."""

    time: int
    idle: int
    used: int
    jobs: int
    running: int
    joined: int
    left: int
    preempted: int
    rescaled: int
    rate: float
    progress: float
    rescale_cost: float
    preemption_cost: float
    stall_cost: float
    start_cost: float
    restart_cost: float
    objective: float
    bound: float
    gap: float
    status: str
    backend: str
    note: str


STEP_COLUMNS = Step._fields


@dataclass(slots=True)
class JobRecord:
    """The record of one job. Work in samples, times in UTC ns or seconds as named."""

    job: Job = field(metadata=NOT_STORED)
    left_out: bool = field(default=False, metadata=NOT_STORED)  # never admitted
    start_ns: int | None = None
    finish_ns: int | None = None
    cancelled_ns: int | None = (
        None  # when a workload ordered that it be stopped for good
    )
    refused_ns: int | None = (
        None  # when it was submitted and not admitted, so that it is left out
    )
    gained: float = 0.0
    lost_to_preemption: float = 0.0
    lost_to_rescale: float = 0.0
    lost_to_stall: float = 0.0
    lost_to_start: float = 0.0
    lost_to_restart: float = 0.0
    rescales: int = 0
    stops: int = 0  # rescales that left it without units
    preemptions: int = 0
    starts: int = 0
    unit_seconds: float = 0.0
    run_seconds: float = 0.0
    work: float = 0.0

    @property
    def touched(self) -> bool:
        """Whether anything has happened to it."""
        return (
            bool(self.starts)
            or self.cancelled_ns is not None
            or self.refused_ns is not None
        )

    @property
    def ended_ns(self) -> int | None:
        """When it finished or was cancelled."""
        return self.cancelled_ns if self.finish_ns is None else self.finish_ns

    @property
    def lost(self) -> float:
        """Work lost, for any reason."""
        return math.fsum(getattr(self, f"lost_to_{book}") for book in BOOKS)


@dataclass(slots=True)
class _Since:
    """Sums since the previous step; one for each of BOOKS."""

    joined: int = 0
    left: int = 0
    preempted: int = 0
    rescaled: int = 0
    gained: float = 0.0
    rescale: float = 0.0
    preemption: float = 0.0
    stall: float = 0.0
    start: float = 0.0
    restart: float = 0.0

    def begin(self) -> None:
        """Count from 0 again: cheaper than a new one at each step."""
        self.joined = self.left = self.preempted = self.rescaled = 0
        self.gained = self.rescale = self.preemption = self.stall = self.start = (
            self.restart
        ) = 0.0


@dataclass(frozen=True, eq=False)
class Holds:
    """Which job held which units when, in order of job, start, end and unit.

    Parameters
    ----------
    parts
        Returns the rows in parts: columns by name as in `HELD`. Rows that agree in job and start are in one part.
    """

    parts: Callable[[], Iterable[Block]]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Holds:
        """Sort the rows of a table."""
        ordered = frame.sort_values(list(HELD_ORDER), ignore_index=True)
        columns = {name: ordered[name].to_numpy() for name in HELD}
        return cls(lambda: [columns])

    def frame(self) -> pd.DataFrame:
        """Return all rows as one table."""
        import pandas as pd

        parts = list(self.parts())
        columns = {
            name: np.concatenate([part[name] for part in parts]) for name in HELD
        }
        return pd.DataFrame(columns, copy=False)


# One row for each run of neighbouring units that a job received together and releases together.
HELD = {"job": "i", "first_unit": "i", "last_unit": "i", "start_ns": "q", "end_ns": "q"}
HELD_ORDER = ("job", "start_ns", "end_ns", "first_unit")


def _joined(held: Block) -> Block:
    """Join neighbouring runs of units with equal times, though released one by one; rows are in order."""
    goes_on = held["first_unit"][1:] == held["last_unit"][:-1] + 1
    for name in ("job", "start_ns", "end_ns"):
        goes_on &= held[name][1:] == held[name][:-1]
    if not goes_on.any():
        return held
    first = np.append(True, ~goes_on)
    last = np.append(~goes_on, True)
    return {
        name: column[last if name == "last_unit" else first]
        for name, column in held.items()
    }


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a replay.

    Parameters
    ----------
    trace
        The trace that was replayed.
    start_ns, end_ns
        The window of evaluation: from the first instant at which a job is in the system (submitted, and the trace has
        begun) to the replay's end, which is the last finish or the trace's end.
    records
        One per job, in the order of the table.
    steps
        One row per decision and one at the end; columns STEP_COLUMNS.
    holds
        The holders of units over time, which may be too many for memory; `allocations` has them as one table.
    idle_unit_seconds, used_unit_seconds
        Units offered and units held, integrated over the window.
    extra_gain, paid
        Work gained through rescales until the next decision, and the cost of the rescales.
    decision_seconds
        Wall time of each call of the policy.
    interrupted
        Whether it was stopped before its end.
    progress_curve
        The work done up to any instant; None for several pools.
    scores
        What a workload has found jobs to be worth, in order of time: time_ns, job (position), progress (samples),
        score; None without a workload.
    host
        The nodes that the machine's own jobs took; None for several pools.

    Examples
    --------
    >>> from bft.models import Curve, Job, JobTable
    >>> from bft.replay import EqualShare, Replay, always_idle
    >>> curve = Curve([0, 2, 4], [0, 20, 30])
    >>> job = Job("a", 0, 1, 4, pmax=3000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> outcome = Replay(always_idle(4, 0, 600 * 10**9), JobTable((job,)), EqualShare()).run()
    >>> outcome.work, outcome.duration_s, outcome.used_unit_seconds, list(outcome.steps["status"])
    (3000.0, 100.0, 400.0, ['decided', 'end'])
    """

    trace: NodeTrace
    start_ns: int
    end_ns: int
    records: tuple[JobRecord, ...]
    steps: pd.DataFrame
    holds: Holds
    idle_unit_seconds: float
    used_unit_seconds: float
    extra_gain: float
    paid: float
    decision_seconds: NDArray[np.float64]
    interrupted: bool = False
    progress_curve: ProgressCurve | None = None
    scores: pd.DataFrame | None = None
    host: HostReturns | None = None

    @cached_property
    def allocations(self) -> pd.DataFrame:
        """The holders of units over time: job (position), first_unit, last_unit (int32), start_ns, end_ns (int64)."""
        return self.holds.frame()

    @property
    def work(self) -> float:
        """Return the training work: samples done, with costs deducted."""
        return math.fsum(record.work for record in self.records)

    @property
    def duration_s(self) -> float:
        """Seconds of the window."""
        return (self.end_ns - self.start_ns) / SECOND_NS

    @property
    def offered_unit_seconds(self) -> float:
        """Idle units, integrated over the whole trace, jobs or not."""
        return self.trace.idle_unit_seconds()

    def work_at(self, instant: int) -> float:
        """Samples done up to an instant (UTC ns) of the window, with costs deducted.

        Raises
        ------
        ValueError
            After the replay's end, and for several pools.
        """
        if self.progress_curve is None:
            raise ValueError("what several pools had done at an instant is not known")
        return self.progress_curve.at(instant)


def relative_gap(objective: float, bound: float) -> float:
    """Upper bound of an answer's distance from the optimum, relative to the bound; NaN without a bound."""
    if not (math.isfinite(objective) and math.isfinite(bound)):
        return math.nan
    return max(0.0, bound - objective) / max(1.0, abs(bound))


@dataclass
class Ledger:
    """The records of a running replay; the engine reports every event to it.

    Parameters
    ----------
    trace, jobs
        The inputs of the replay.
    without
        Positions of jobs that are left out.

    Attributes
    ----------
    records
        One per job, in the order of the table.
    progress_curve
        The work done up to any instant.
    work
        Samples done so far, with costs deducted.
    """

    trace: NodeTrace = field(metadata=NOT_STORED)
    jobs: JobTable = field(metadata=NOT_STORED)
    without: Collection[int] = field(default=(), metadata=NOT_STORED)
    records: list[JobRecord] = field(init=False, metadata=NOT_STORED)
    progress_curve: ProgressCurve = field(
        default_factory=ProgressCurve, metadata=NOT_STORED
    )
    _steps: Columns = field(init=False, metadata=NOT_STORED)
    _seconds: Columns = field(init=False, metadata=NOT_STORED)
    _held: Columns = field(init=False, metadata=NOT_STORED)
    _scores: Columns = field(init=False, metadata=NOT_STORED)
    _window_ns: int = field(init=False, metadata=NOT_STORED)
    _since: _Since = field(default_factory=_Since)
    _gained: float = 0.0
    _lost: float = 0.0
    _idle_unit_seconds: float = 0.0
    _used_unit_seconds: float = 0.0
    # The last decision's rise in rate, and how long it has lasted: the gain of its rescales.
    _rise: float = 0.0
    _risen_s: float = 0.0
    _extra_gain: float = 0.0
    _paid: float = 0.0
    _granted_at: dict[int, dict[int, int]] = field(
        default_factory=dict
    )  # job -> unit -> since when

    def __post_init__(self) -> None:
        self.records = [
            JobRecord(job, left_out=position in self.without)
            for position, job in enumerate(self.jobs)
        ]
        comes = [record.job.tsub_ns for record in self.records if not record.left_out]
        first = min(comes, default=self.trace.end)
        self._window_ns = max(first, self.trace.start)
        hints = get_type_hints(Step)
        self._steps = Columns(
            {
                name: {int: "q", float: "d", str: ""}[hints[name]]
                for name in STEP_COLUMNS
            }
        )
        self._seconds = Columns({"seconds": "d"})
        self._held = Columns(HELD)
        self._scores = Columns(
            {"time_ns": "q", "job": "i", "progress": "d", "score": "d"}
        )

    @property
    def work(self) -> float:
        """Samples done so far, with costs deducted."""
        return self._gained - self._lost

    @property
    def decisions(self) -> int:
        """Number of decisions so far."""
        return len(self._steps)

    @property
    def history(self) -> dict[str, Columns]:
        """The recorded history, which only grows."""
        own = {
            "steps": self._steps,
            "seconds": self._seconds,
            "held": self._held,
            "scores": self._scores,
        }
        return own | self.progress_curve.history

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, without the history."""
        accounts = [
            snapshot(record) if record.touched else None for record in self.records
        ]
        columns = next((list(account) for account in accounts if account), [])
        rows = [account and list(account.values()) for account in accounts]
        return {
            **snapshot(self),
            "columns": columns,
            "records": rows,
            "course": snapshot(self.progress_curve),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        restore_snapshot(self, state)
        for record, values in zip(self.records, state["records"], strict=True):
            if values is not None:
                restore_snapshot(
                    record, dict(zip(state["columns"], values, strict=True))
                )
                record.left_out |= record.refused_ns is not None
        restore_snapshot(self.progress_curve, state["course"])

    # --- called by the engine -------------------------------------------------------------------------------------

    def passed(
        self,
        begin: int,
        end: int,
        idle: int,
        used: int,
        rate: float,
        stalls: Sequence[Stall] = (),
    ) -> None:
        """From `begin` to `end` (UTC ns): idle units, used units, and `rate` samples/s of the jobs.

        `stalls`: until when stalled jobs make no progress, and how much of that rate each lacks.
        """
        seconds = (end - begin) / SECOND_NS
        done = self._gained - self._lost
        work = rate * seconds
        self._since.gained += work
        self._gained += work
        if begin >= self._window_ns:  # the window begins at an instant of the replay
            self._idle_unit_seconds += idle * seconds
            self._used_unit_seconds += used * seconds
        self._risen_s += seconds
        if self.progress_curve.went(begin, end, done, rate, stalls) >= ROWS:
            for table in self.history.values():
                table.settle()

    def corrected(self, record: JobRecord, work: float) -> None:
        """Correct the work of a job relative to its rate."""
        record.gained += work
        self._since.gained += work
        self._gained += work

    def lost(self, record: JobRecord, work: float, kind: str) -> None:
        """A job has lost work; `kind` is one of `Loss`."""
        book, account, price = _BOOKED[kind]
        setattr(record, account, getattr(record, account) + work)
        setattr(self._since, book, getattr(self._since, book) + work)
        self._lost += work
        if price:
            self._paid += work

    def changed(self, joined: int, left: int) -> None:
        """Units have turned idle, or have been taken back."""
        self._since.joined += joined
        self._since.left += left

    def preempted(self, record: JobRecord) -> None:
        """A job has lost units to the batch scheduler."""
        record.preemptions += 1
        self._since.preempted += 1

    def started(self, record: JobRecord, now: int) -> None:
        """A job has got units, having had none."""
        record.starts += 1
        if record.start_ns is None:
            record.start_ns = now

    def rescaled(self, record: JobRecord) -> None:
        """A decision has changed the units of a job that had some."""
        record.rescales += 1
        self._since.rescaled += 1

    def finished(self, record: JobRecord, now: int) -> None:
        """A job has finished."""
        record.finish_ns = now
        record.work = record.job.pmax

    def cancelled(self, record: JobRecord, now: int, progress: float) -> None:
        """A job has been stopped for good; what it has done counts."""
        record.cancelled_ns = now
        record.work = progress

    def refused(self, record: JobRecord, now: int) -> None:
        """A job has been submitted and is not admitted."""
        record.refused_ns, record.left_out = now, True

    def submitted(self, job: Job) -> None:
        """A job has come that was not there from the start."""
        self.records.append(JobRecord(job))

    def scored(self, job: int, now: int, progress: float, score: float) -> None:
        """A workload has found what a job is worth."""
        self._scores.append((now, job, progress, score))

    def asked(self, seconds: float) -> None:
        """The policy was called, and took this long (wall time) to answer."""
        self._seconds.append((seconds,))

    def granted(self, job: int, units: Iterable[int], now: int) -> None:
        """A job got units."""
        since = self._granted_at.setdefault(job, {})
        for unit in units:
            since[unit] = now

    def released(self, job: int, units: Collection[int], now: int) -> None:
        """A job has released or lost units."""
        if not units:
            return
        since, held = self._granted_at[job], self._held
        each = [(since.pop(unit), unit) for unit in units]
        if len(each) > 1:
            each.sort()
        start, first = each[0]
        last = first
        for begun, unit in each[1:]:
            if begun != start or unit != last + 1:
                held.append((job, first, last, start, now))
                start, first = begun, unit
            last = unit
        held.append((job, first, last, start, now))
        if len(held.latest) >= ROWS:
            held.settle()

    def decided(
        self,
        now: int,
        activity: Activity,
        rise: float,
        solution: Solution | None = None,
        status: str = "decided",
    ) -> None:
        """A decision has been made and carried out.

        Parameters
        ----------
        now
            The instant, UTC ns.
        activity
            The state from now on.
        rise
            Increase in samples/s of the rescaled jobs.
        solution
            The solver's answer, if one was asked.
        status
            Status of the step otherwise.
        """
        self._extra_gain += self._rise * self._risen_s
        self._rise, self._risen_s = rise, 0.0
        if solution is None:
            self._step(now, activity, status)
        else:
            value, bound = float(solution.objective), float(solution.bound)
            gap = relative_gap(value, bound)
            self._step(
                now,
                activity,
                solution.status,
                solution.backend,
                solution.note,
                (value, bound, gap),
            )

    def close(
        self,
        now: int,
        activity: Activity,
        progress: Mapping[int, float],
        *,
        interrupted: bool,
        steered: bool = False,
    ) -> Outcome:
        """Check the totals and return the outcome.

        Parameters
        ----------
        now
            The instant at which the replay ended.
        activity
            The state at that instant; no job runs any more.
        progress
            Progress of the jobs in play, by position in the table.
        interrupted
            Whether the replay was stopped before its end.
        steered
            Whether a workload was told of its jobs.

        Raises
        ------
        ConservationError
            When the totals do not agree.
        """
        import pandas as pd

        self._extra_gain += self._rise * self._risen_s
        for index, work in progress.items():
            self.records[index].work = work
        self._step(now, activity, "end")
        self._balance()
        self.progress_curve.closed(
            now, math.fsum(record.work for record in self.records)
        )
        steps = pd.DataFrame(self._steps.arrays(), copy=False)
        steps["time"] = pd.to_datetime(steps["time"], unit="ns", utc=True)
        held = self._held
        return Outcome(
            trace=self.trace,
            start_ns=min(self._window_ns, now),
            end_ns=now,
            records=tuple(self.records),
            steps=steps,
            holds=Holds(lambda: map(_joined, held.sorted_blocks(HELD_ORDER))),
            idle_unit_seconds=self._idle_unit_seconds,
            used_unit_seconds=self._used_unit_seconds,
            extra_gain=self._extra_gain,
            paid=self._paid,
            decision_seconds=self._seconds.arrays()["seconds"],
            interrupted=interrupted,
            progress_curve=self.progress_curve,
            scores=pd.DataFrame(self._scores.arrays()) if steered else None,
        )

    # --- inner ----------------------------------------------------------------------------------------------------

    def _step(
        self,
        now: int,
        activity: Activity,
        status: str,
        backend: str = "",
        note: str = "",
        solved: tuple[float, float, float] = (math.nan, math.nan, math.nan),
    ) -> None:
        """Add a step to the table of steps; `solved` are objective, bound and gap."""
        since = self._since
        rescale, preemption, stall = since.rescale, since.preemption, since.stall
        start, restart = since.start, since.restart
        idle, used, jobs, running, rate = activity
        self._steps.append(
            Step(
                now,
                idle,
                used,
                jobs,
                running,
                since.joined,
                since.left,
                since.preempted,
                since.rescaled,
                rate,
                since.gained - rescale - preemption - stall - start - restart,
                rescale,
                preemption,
                stall,
                start,
                restart,
                *solved,
                status,
                backend,
                note,
            )
        )
        since.begin()

    def _balance(self) -> None:
        work = math.fsum(record.work for record in self.records)
        if not math.isclose(
            self._gained - self._lost,
            work,
            rel_tol=BALANCE,
            abs_tol=BALANCE * max(1.0, self._gained),
        ):
            raise ConservationError(
                f"{self._gained!r} done less {self._lost!r} lost is not {work!r}"
            )
        for record in self.records:
            left = record.gained - record.lost
            if not math.isclose(
                left,
                record.work,
                rel_tol=BALANCE,
                abs_tol=BALANCE * max(1.0, record.gained),
            ):
                raise ConservationError(
                    f"job {record.job.name!r}: {left!r} is not {record.work!r}"
                )
        if self._used_unit_seconds > self._idle_unit_seconds * (1 + BALANCE):
            raise ConservationError(
                f"{self._used_unit_seconds!r} unit-seconds used of {self._idle_unit_seconds!r}"
            )
