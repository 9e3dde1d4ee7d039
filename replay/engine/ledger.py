"""What a replay records: steps, jobs, who held which unit when, and that nothing was lost (DESIGN §5, §8)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bft.models import Job, JobTable
from bft.replay.engine.course import Course
from bft.replay.engine.port import Decision
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

if TYPE_CHECKING:
    import pandas as pd

# Books must balance to this, relative (DESIGN §5).
BALANCE = 1e-9


class ConservationError(AssertionError):
    """Something was given twice or came from nothing: a bug of ours, never of the input."""


# Work is lost to: what rescales deduct; what preemptions cost; stalls of the cost model `stall`; the overhead of first
# starts; that of later starts and of moves.
BOOKS = ("rescale", "preemption", "stall", "start", "restart")
Loss = Literal["preemption", "rescale", "stall", "start stall", "start", "restart", "move"]
"""Why work is lost. A `start stall` is one of a job that had no unit, a `move` is to other units."""
_BOOK_OF: dict[str, str] = {**{book: book for book in BOOKS}, "start stall": "stall", "move": "restart"}
_PRICE_OF_RESCALES = frozenset({"rescale", "stall", "move"})

STEP_COLUMNS = (
    "time",
    "idle",
    "used",
    "jobs",
    "running",
    "joined",
    "left",
    "preempted",
    "rescaled",
    "rate",
    "progress",
    "rescale_cost",
    "preemption_cost",
    "stall_cost",
    "start_cost",
    "restart_cost",
    "objective",
    "bound",
    "gap",
    "status",
    "backend",
    "note",
)


@dataclass(slots=True)
class JobRecord:
    """One job's account. Work in samples, times in UTC ns or seconds as named."""

    job: Job
    left_out: bool = False  # never admitted
    start_ns: int | None = None
    finish_ns: int | None = None
    gained: float = 0.0
    lost_to_preemption: float = 0.0
    lost_to_rescale: float = 0.0
    lost_to_stall: float = 0.0
    lost_to_start: float = 0.0
    lost_to_restart: float = 0.0
    rescales: int = 0
    stops: int = 0  # of the rescales, those that left it no unit
    preemptions: int = 0
    starts: int = 0
    unit_seconds: float = 0.0
    run_seconds: float = 0.0
    work: float = 0.0

    @property
    def lost(self) -> float:
        """Work lost, whatever to."""
        return math.fsum(getattr(self, f"lost_to_{book}") for book in BOOKS)


# What a checkpoint keeps of a record: all but what is given.
_RECORDED = tuple(field.name for field in fields(JobRecord) if field.name not in ("job", "left_out"))
# What it keeps of the books beside records, open holdings and sums since the last step.
_SUMS = (
    "_steps",
    "_seconds",
    "_gained",
    "_lost",
    "_idle_unit_seconds",
    "_used_unit_seconds",
    "_rise",
    "_risen_s",
    "_extra_gain",
    "_paid",
    "_held_job",
    "_held_count",
    "_held_unit",
    "_held_start",
    "_held_end",
)


@dataclass(slots=True)
class _Since:
    """Sums since the previous step."""

    joined: int = 0
    left: int = 0
    preempted: int = 0
    rescaled: int = 0
    gained: float = 0.0
    lost: dict[str, float] = field(default_factory=lambda: dict.fromkeys(BOOKS, 0.0))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a replay yielded.

    Parameters
    ----------
    trace
        What was replayed.
    start_ns, end_ns
        The window of evaluation: from the first instant at which a job is in the system (submitted, and the trace has
        begun) to the replay's end, which is the last finish or the trace's end.
    records
        One a job, in the order of the table.
    steps
        One row a decision and one at the end; columns STEP_COLUMNS.
    allocations
        Who held which units when: job (position), first_unit, last_unit, start_ns, end_ns.
    idle_unit_seconds, used_unit_seconds
        Units offered and units held, integrated over the window.
    extra_gain, paid
        Work gained through rescales until the next decision, and what they cost.
    decision_seconds
        Wall time of each decision for which the policy was asked.
    interrupted
        Whether it was stopped before its end.
    course
        How much work had been done when; None of several pools.
    """

    trace: NodeTrace
    start_ns: int
    end_ns: int
    records: tuple[JobRecord, ...]
    steps: pd.DataFrame
    allocations: pd.DataFrame
    idle_unit_seconds: float
    used_unit_seconds: float
    extra_gain: float
    paid: float
    decision_seconds: tuple[float, ...]
    interrupted: bool = False
    course: Course | None = None

    @property
    def work(self) -> float:
        """The training outcome: samples done, costs deducted."""
        return math.fsum(record.work for record in self.records)

    @property
    def duration_s(self) -> float:
        """Seconds of the window."""
        return (self.end_ns - self.start_ns) / SECOND_NS

    @property
    def offered_unit_seconds(self) -> float:
        """Idle units, integrated over the whole trace, jobs or not."""
        return self.trace.idle_node_seconds() * self.trace.units_per_node

    def work_at(self, instant: int) -> float:
        """Samples done until an instant (UTC ns) of the window, costs deducted.

        Raises
        ------
        ValueError
            After the replay's end, and of several pools.
        """
        if self.course is None:
            raise ValueError("what several pools had done at an instant is not known")
        return self.course.at(instant)


def relative_gap(objective: float, bound: float) -> float:
    """How far an answer may be from the best, relative to the bound: NaN where nobody knows a bound."""
    if not (math.isfinite(objective) and math.isfinite(bound)):
        return math.nan
    return max(0.0, bound - objective) / max(1.0, abs(bound))


@dataclass
class Ledger:
    """The books of a replay under way; the engine tells it what happens.

    Parameters
    ----------
    trace, jobs
        What is replayed.
    without
        Positions of jobs that are left out.

    Attributes
    ----------
    course
        How much work had been done when.
    """

    trace: NodeTrace
    jobs: JobTable
    without: Collection[int] = ()
    records: list[JobRecord] = field(init=False)

    def __post_init__(self) -> None:
        self.records = [JobRecord(job, left_out=at in self.without) for at, job in enumerate(self.jobs)]
        comes = [record.job.tsub_ns for record in self.records if not record.left_out]
        first = min(comes, default=self.trace.end)
        self._window_ns = max(first, self.trace.start)
        self.course = Course()
        self._since = _Since()
        self._steps: list[tuple[object, ...]] = []
        self._seconds: list[float] = []
        self._gained = self._lost = 0.0
        self._idle_unit_seconds = self._used_unit_seconds = 0.0
        # The last decision's rise in rate, and how long it has lasted: what its rescales bring in.
        self._rise = self._risen_s = self._extra_gain = self._paid = 0.0
        self._granted_at: dict[int, dict[int, int]] = {}  # job -> unit -> since when
        self._held_job: list[int] = []
        self._held_count: list[int] = []
        self._held_unit: list[int] = []
        self._held_start: list[int] = []
        self._held_end: list[int] = []

    @property
    def work(self) -> float:
        """Samples done so far, costs deducted."""
        return self._gained - self._lost

    @property
    def decisions(self) -> int:
        """Decisions so far."""
        return len(self._steps)

    def state(self) -> dict[str, Any]:
        """All that has been recorded, for a checkpoint."""
        return {
            "records": [[getattr(record, name) for name in _RECORDED] for record in self.records],
            "since": asdict(self._since),
            "course": self.course.state(),
            "granted_at": [(job, list(units.items())) for job, units in self._granted_at.items()],
            **{name: getattr(self, name) for name in _SUMS},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` says."""
        for record, values in zip(self.records, state["records"], strict=True):
            for name, value in zip(_RECORDED, values, strict=True):
                setattr(record, name, value)
        self._since = _Since(**state["since"])
        self.course.restore(state["course"])
        self._granted_at = {job: dict(units) for job, units in state["granted_at"]}
        for name in _SUMS:
            setattr(self, name, state[name])
        self._steps = [tuple(row) for row in self._steps]

    # --- told by the engine ---------------------------------------------------------------------------------------

    def passed(self, begin: int, end: int, idle: int, used: int) -> None:
        """From `begin` to `end` (UTC ns) so many units were idle, and so many of them used."""
        seconds = (end - begin) / SECOND_NS
        if begin >= self._window_ns:  # which begins with an instant of the replay
            self._idle_unit_seconds += idle * seconds
            self._used_unit_seconds += used * seconds
        self._risen_s += seconds

    def gained(self, record: JobRecord, work: float) -> None:
        """A job has done work."""
        record.gained += work
        self._since.gained += work
        self._gained += work

    def lost(self, record: JobRecord, work: float, kind: str) -> None:
        """A job has lost work; `kind` is one of `Loss`."""
        book = _BOOK_OF[kind]
        name = f"lost_to_{book}"
        setattr(record, name, getattr(record, name) + work)
        self._since.lost[book] += work
        self._lost += work
        if kind in _PRICE_OF_RESCALES:
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
        """A job has done all its work."""
        record.finish_ns = now
        record.work = record.job.pmax

    def asked(self, seconds: float) -> None:
        """The policy has been asked, and took so long (wall time) to answer."""
        self._seconds.append(seconds)

    def granted(self, job: int, units: list[int], now: int) -> None:
        """Units have gone to a job."""
        self._granted_at.setdefault(job, {}).update(dict.fromkeys(units, now))

    def released(self, job: int, units: list[int], now: int) -> None:
        """A job has released or lost units."""
        if units:
            self._held_job.append(job)
            self._held_end.append(now)
            self._held_count.append(len(units))
            self._held_unit.extend(units)
            pop = self._granted_at[job].pop
            self._held_start.extend([pop(unit) for unit in units])

    def decided(
        self,
        now: int,
        idle: int,
        jobs: int,
        running: int,
        used: int,
        rate: float,
        rise: float,
        decision: Decision,
    ) -> None:
        """A decision has been taken and carried out.

        `rate` is what all jobs do from now on, samples/s, and `rise` by how much those that were rescaled do more.
        """
        self._settle_rise()
        self._rise = rise
        gap = relative_gap(decision.objective, decision.bound)
        answer = (decision.objective, decision.bound, gap, decision.status, decision.backend, decision.note)
        self._step(now, (idle, used, jobs, running), rate, answer)

    def close(self, now: int, idle: int, used: int, in_play: dict[int, float], *, interrupted: bool) -> Outcome:
        """Balance the books and return what they hold.

        Parameters
        ----------
        now
            The instant at which the replay ended.
        idle, used
            Units idle and used at that instant.
        in_play
            Progress of the jobs that have not finished, by position in the table.
        interrupted
            Whether somebody stopped it.

        Raises
        ------
        ConservationError
            When the books do not balance.
        """
        import pandas as pd

        self._settle_rise()
        for index, progress in in_play.items():
            self.records[index].work = progress
        self._step(now, (idle, used, len(in_play), 0), 0.0, (math.nan, math.nan, math.nan, "end", "", ""))
        self._balance()
        self.course.closed(now, math.fsum(record.work for record in self.records))
        steps = pd.DataFrame(self._steps, columns=list(STEP_COLUMNS))
        steps["time"] = pd.to_datetime(steps["time"], unit="ns", utc=True)
        return Outcome(
            trace=self.trace,
            start_ns=min(self._window_ns, now),
            end_ns=now,
            records=tuple(self.records),
            steps=steps,
            allocations=self._allocations(),
            idle_unit_seconds=self._idle_unit_seconds,
            used_unit_seconds=self._used_unit_seconds,
            extra_gain=self._extra_gain,
            paid=self._paid,
            decision_seconds=tuple(self._seconds),
            interrupted=interrupted,
            course=self.course,
        )

    # --- inner ----------------------------------------------------------------------------------------------------

    def _step(
        self,
        now: int,
        counts: tuple[int, int, int, int],
        rate: float,
        answer: tuple[float, float, float, str, str, str],
    ) -> None:
        since = self._since
        lost = tuple(since.lost[book] for book in BOOKS)
        net = since.gained
        for work in lost:
            net -= work
        changes = (since.joined, since.left, since.preempted, since.rescaled)
        self._steps.append((now, *counts, *changes, rate, net, *lost, *answer))
        self._since = _Since()

    def _settle_rise(self) -> None:
        self._extra_gain += self._rise * self._risen_s
        self._rise = self._risen_s = 0.0

    def _balance(self) -> None:
        work = math.fsum(record.work for record in self.records)
        if not math.isclose(self._gained - self._lost, work, rel_tol=BALANCE, abs_tol=BALANCE * max(1.0, self._gained)):
            raise ConservationError(f"{self._gained!r} done less {self._lost!r} lost is not {work!r}")
        for record in self.records:
            left = record.gained - record.lost
            if not math.isclose(left, record.work, rel_tol=BALANCE, abs_tol=BALANCE * max(1.0, record.gained)):
                raise ConservationError(f"job {record.job.name!r}: {left!r} is not {record.work!r}")
        if self._used_unit_seconds > self._idle_unit_seconds * (1 + BALANCE):
            raise ConservationError(f"{self._used_unit_seconds!r} unit-seconds used of {self._idle_unit_seconds!r}")

    def _allocations(self) -> pd.DataFrame:
        """Units held, runs of neighbouring units that were held alike made one row."""
        import pandas as pd

        counts = np.array(self._held_count, dtype=np.int64)
        job = np.repeat(np.array(self._held_job, dtype=np.int64), counts)
        end = np.repeat(np.array(self._held_end, dtype=np.int64), counts)
        unit = np.array(self._held_unit, dtype=np.int64)
        start = np.array(self._held_start, dtype=np.int64)
        order = np.lexsort((unit, end, start, job))
        job, unit, start, end = job[order], unit[order], start[order], end[order]
        first = np.ones(len(unit), dtype=bool)
        first[1:] = (
            (job[1:] != job[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1]) | (unit[1:] != unit[:-1] + 1)
        )
        begins = np.flatnonzero(first)
        lasts = np.append(begins[1:], len(unit)) - 1 if len(unit) else begins
        return pd.DataFrame(
            {
                "job": job[begins],
                "first_unit": unit[begins],
                "last_unit": unit[lasts],
                "start_ns": start[begins],
                "end_ns": end[begins],
            }
        )
