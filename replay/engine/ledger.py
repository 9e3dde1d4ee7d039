"""The records of a replay: steps, jobs, holders of units; and a check that nothing was lost (docs/results.md)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bft.milp import Solution
from bft.models import Job, JobTable
from bft.models.tolerances import BALANCE
from bft.replay.engine.host import PREEMPTIONS, RETURNS, HostReturns, Taken
from bft.replay.engine.snapshot import NOT_STORED, restore_snapshot, snapshot
from bft.replay.engine.tables import Block, Table
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
"""What work is lost to. A `start stall` is the stall of a job without units before, a `move` goes to other units."""
# The book of each, and those that are a price of rescales.
_BOOK = {book: book for book in BOOKS} | {"start stall": "stall", "move": "restart"}
_PRICE_OF_RESCALES = frozenset({"rescale", "stall", "move"})

Activity = tuple[int, int, int, int, float]
"""The activity at a decision: units idle and used, jobs in play and running, and samples/s that these do."""


# Columns of steps.parquet: a decision, and the time since the one before; work in samples, rate per second.
STEPS = {
    **dict.fromkeys(("time", "idle", "used", "jobs", "running"), "q"),
    **dict.fromkeys(("joined", "left", "preempted", "rescaled"), "q"),
    **dict.fromkeys(("rate", "progress"), "d"),
    **dict.fromkeys((f"{book}_cost" for book in BOOKS), "d"),
    **dict.fromkeys(("objective", "bound", "gap"), "d"),
    **dict.fromkeys(("status", "backend", "note"), ""),
}
# Columns of other tables: a run of neighbouring units that a job received together and releases together; a time
# between two instants, with the work done before (costs of its begin deducted) and samples/s in it; a stall in it.
HELD = {"job": "i", "first_unit": "i", "last_unit": "i", "start_ns": "q", "end_ns": "q"}
HELD_ORDER = ("job", "start_ns", "end_ns", "first_unit")
SPANS = {"begin": "q", "work": "d", "rate": "d"}
STALLS = {"span": "q", "until": "q", "rate": "d"}
SCORES = {"time_ns": "q", "job": "i", "progress": "d", "score": "d"}


@dataclass(slots=True)
class JobRecord:
    """The record of one job. Work in samples, times in UTC ns or seconds as named."""

    job: Job = field(metadata=NOT_STORED)
    left_out: bool = field(default=False, metadata=NOT_STORED)  # never admitted
    start_ns: int | None = None
    finish_ns: int | None = None
    # When a workload ordered that it be stopped for good.
    cancelled_ns: int | None = None
    # When it was submitted and not admitted, so that it is left out.
    refused_ns: int | None = None
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
    def ended_ns(self) -> int | None:
        """When it finished or was cancelled."""
        return self.cancelled_ns if self.finish_ns is None else self.finish_ns

    @property
    def lost(self) -> float:
        """Work lost, for any reason."""
        return math.fsum(getattr(self, f"lost_to_{book}") for book in BOOKS)


# What is summed up from step to step.
_NOTHING: dict[str, float] = dict.fromkeys(
    ("joined", "left", "preempted", "rescaled", "gained", *BOOKS), 0
)


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


Stall = tuple[int, float]
"""The instant (UTC ns) until which a job makes no progress, and the samples/s that are missing until then."""


@dataclass(frozen=True, eq=False)
class ProgressCurve:
    """The work of all jobs over time. Between two instants of a replay the rates are constant, apart from stalls.

    Parameters
    ----------
    spans, stalls
        Tables with the columns `SPANS` and `STALLS`.
    end_ns, work
        The instant (UTC ns) up to which it is known, and the work done by then.
    """

    spans: Table
    stalls: Table
    end_ns: int
    work: float

    def at(self, instant: int) -> float:
        """Return the samples done by all jobs up to an instant (UTC ns), with the costs of that instant deducted.

        Raises
        ------
        ValueError
            When the replay had ended before.
        """
        if instant > self.end_ns:
            raise ValueError(
                f"the replay ended at {self.end_ns} ns, before {instant} ns"
            )
        if instant == self.end_ns:
            return self.work
        spans, stalls = self.spans.arrays(), self.stalls.arrays()
        span = bisect_right(spans["begin"], instant) - 1
        if span < 0:
            return 0.0
        begin = int(spans["begin"][span])
        seconds = (instant - begin) / SECOND_NS
        work = float(spans["work"][span]) + float(spans["rate"][span]) * seconds
        first, last = (bisect_right(stalls["span"], each) for each in (span - 1, span))
        for stall in range(first, last):
            until = min(int(stalls["until"][stall]), instant)
            work -= float(stalls["rate"][stall]) * ((until - begin) / SECOND_NS)
        return work


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
        One row per decision and one at the end; columns `STEPS`.
    holds
        Which job held which units when, in order of job, start, end and unit: the rows in parts, columns by name as in
        `HELD`, as they may be too many for memory. Rows that agree in job and start are in one part.
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
    holds: Callable[[], Iterable[Block]]
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
        import pandas as pd

        parts = list(self.holds())
        columns = {
            name: np.concatenate([part[name] for part in parts]) for name in HELD
        }
        return pd.DataFrame(columns, copy=False)

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
    tables
        The recorded history, which only grows, by name.
    since
        Of the time since the last step: units that `joined` and `left`, jobs that were `preempted` and `rescaled`, and
        work gained and lost, by book.
    work
        Samples done so far, with costs deducted.
    """

    trace: NodeTrace = field(metadata=NOT_STORED)
    jobs: JobTable = field(metadata=NOT_STORED)
    without: Collection[int] = field(default=(), metadata=NOT_STORED)
    records: list[JobRecord] = field(init=False, metadata=NOT_STORED)
    tables: dict[str, Table] = field(init=False, metadata=NOT_STORED)
    since: dict[str, float] = field(init=False)
    _gained: float = 0.0
    _lost: float = 0.0
    _idle_unit_seconds: float = 0.0
    _used_unit_seconds: float = 0.0
    # The last decision's rise in rate, and how long it has lasted: the gain of its rescales.
    _rise: float = 0.0
    _risen_s: float = 0.0
    _extra_gain: float = 0.0
    _paid: float = 0.0
    # job -> unit -> since when
    _granted_at: dict[int, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.records = [
            JobRecord(job, left_out=position in self.without)
            for position, job in enumerate(self.jobs)
        ]
        comes = [record.job.tsub_ns for record in self.records if not record.left_out]
        first = min(comes, default=self.trace.end)
        self._window_ns = max(first, self.trace.start)
        self.since = _NOTHING.copy()
        self.tables = {
            "steps": Table(STEPS),
            "seconds": Table({"seconds": "d"}),
            "held": Table(HELD, HELD_ORDER),
            "scores": Table(SCORES),
            "spans": Table(SPANS),
            "stalls": Table(STALLS),
            "returns": Table(RETURNS),
            "preemptions": Table(PREEMPTIONS),
        }

    @property
    def work(self) -> float:
        """Samples done so far, with costs deducted."""
        return self._gained - self._lost

    @property
    def decisions(self) -> int:
        """Number of decisions so far."""
        return len(self.tables["steps"])

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, without the tables."""
        return {**snapshot(self), "records": [snapshot(one) for one in self.records]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        restore_snapshot(self, state)
        for record, values in zip(self.records, state["records"], strict=True):
            restore_snapshot(record, values)
            record.left_out |= record.refused_ns is not None

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
        spans = self.tables["spans"]
        for until, lacking in stalls:
            self.tables["stalls"].add((len(spans), until, lacking))
        spans.add((begin, self._gained - self._lost, rate))
        work = rate * seconds
        self.since["gained"] += work
        self._gained += work
        if begin >= self._window_ns:  # the window begins at an instant of the replay
            self._idle_unit_seconds += idle * seconds
            self._used_unit_seconds += used * seconds
        self._risen_s += seconds

    def corrected(self, record: JobRecord, work: float) -> None:
        """Correct the work of a job relative to its rate."""
        record.gained += work
        self.since["gained"] += work
        self._gained += work

    def lost(self, record: JobRecord, work: float, loss: str) -> None:
        """A job has lost work, to one of `Loss`."""
        book = _BOOK[loss]
        account = f"lost_to_{book}"
        setattr(record, account, getattr(record, account) + work)
        self.since[book] += work
        self._lost += work
        if loss in _PRICE_OF_RESCALES:
            self._paid += work

    def granted(self, job: int, units: Iterable[int], now: int) -> None:
        """A job got units."""
        since = self._granted_at.setdefault(job, {})
        for unit in units:
            since[unit] = now

    def released(self, job: int, units: Collection[int], now: int) -> None:
        """A job has released or lost units."""
        if not units:
            return
        since, held = self._granted_at[job], self.tables["held"]
        each = [(since.pop(unit), unit) for unit in units]
        if len(each) > 1:
            each.sort()
        start, first = each[0]
        last = first
        for begun, unit in each[1:]:
            if begun != start or unit != last + 1:
                held.add((job, first, last, start, now))
                start, first = begun, unit
            last = unit
        held.add((job, first, last, start, now))

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
        value = bound = gap = math.nan
        backend = note = ""
        if solution is not None:
            value, bound = float(solution.objective), float(solution.bound)
            status = solution.status
            if math.isfinite(value) and math.isfinite(bound):
                gap = max(0.0, bound - value) / max(1.0, abs(bound))
            backend, note = solution.backend, solution.note
        idle, used, jobs, running, rate = activity
        # fmt: off
        (joined, left, preempted, rescaled, gained,
         rescale, preemption, stall, start, restart) = self.since.values()
        progress = gained - rescale - preemption - stall - start - restart
        self.tables["steps"].add((
            now, idle, used, jobs, running, joined, left, preempted, rescaled, rate, progress,
            rescale, preemption, stall, start, restart, value, bound, gap, status, backend, note,
        ))
        # fmt: on
        self.since = _NOTHING.copy()

    def close(
        self,
        now: int,
        activity: Activity,
        *,
        interrupted: bool,
        steered: bool,
        taken: Taken,
    ) -> Outcome:
        """Check the totals and return the outcome; the records have the work of all jobs.

        Parameters
        ----------
        now
            The instant at which the replay ended.
        activity
            The state at that instant; no job runs any more.
        interrupted
            Whether the replay was stopped before its end.
        steered
            Whether a workload was told of its jobs.
        taken
            Counts of the nodes that the machine's own jobs took.

        Raises
        ------
        ConservationError
            When the totals do not agree.
        """
        import pandas as pd

        self.decided(now, activity, 0.0, status="end")
        work = self._balance()
        tables = self.tables
        steps = pd.DataFrame(tables["steps"].arrays(), copy=False)
        steps["time"] = pd.to_datetime(steps["time"], unit="ns", utc=True)
        return Outcome(
            trace=self.trace,
            start_ns=min(self._window_ns, now),
            end_ns=now,
            records=tuple(self.records),
            steps=steps,
            holds=lambda: map(_joined, tables["held"].sorted_blocks()),
            idle_unit_seconds=self._idle_unit_seconds,
            used_unit_seconds=self._used_unit_seconds,
            extra_gain=self._extra_gain,
            paid=self._paid,
            decision_seconds=tables["seconds"].arrays()["seconds"],
            interrupted=interrupted,
            progress_curve=ProgressCurve(tables["spans"], tables["stalls"], now, work),
            scores=pd.DataFrame(tables["scores"].arrays()) if steered else None,
            host=HostReturns(
                taken, tables["returns"].arrays(), tables["preemptions"].arrays()
            ),
        )

    def _balance(self) -> float:
        """Check that what was done less what was lost is the jobs' work, and return that of all."""
        records = self.records
        whole = math.fsum(record.work for record in records)
        accounts = [("all jobs", self._gained, self._lost, whole)]
        for record in records:
            name = f"job {record.job.name!r}"
            accounts.append((name, record.gained, record.lost, record.work))
        for whose, gained, lost, work in accounts:
            few = BALANCE * max(1.0, gained)
            if not math.isclose(gained - lost, work, rel_tol=BALANCE, abs_tol=few):
                raise ConservationError(
                    f"{whose}: {gained!r} done less {lost!r} lost is not {work!r}"
                )
        if self._used_unit_seconds > self._idle_unit_seconds * (1 + BALANCE):
            raise ConservationError(
                f"{self._used_unit_seconds!r} unit-seconds used of {self._idle_unit_seconds!r}"
            )
        return whole
