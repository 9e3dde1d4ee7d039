"""What a replay records: steps, jobs, who held which unit when, and that nothing was lost (DESIGN §5, §8)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models import Job, JobTable
from bft.replay.policies.interface import Decision
from bft.replay.trace import SECOND_NS, NodeTrace

if TYPE_CHECKING:
    import pandas as pd

# Books must balance to this, relative (DESIGN §5).
BALANCE = 1e-9


class ConservationError(AssertionError):
    """Something was given twice or came from nothing: a bug of ours, never of the input."""


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
    start_ns: int | None = None
    finish_ns: int | None = None
    gained: float = 0.0
    lost_to_preemption: float = 0.0
    lost_to_rescale: float = 0.0
    rescales: int = 0
    stops: int = 0  # of the rescales, those that left it no unit
    preemptions: int = 0
    starts: int = 0
    unit_seconds: float = 0.0
    run_seconds: float = 0.0
    work: float = 0.0


# What a checkpoint keeps of a record: all but the job.
_RECORDED = tuple(field.name for field in fields(JobRecord) if field.name != "job")
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
    rescale_cost: float = 0.0
    preemption_cost: float = 0.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a replay yielded.

    Parameters
    ----------
    trace, start_ns, end_ns
        What was replayed, and the window that was: from the trace's start to the last finish or the trace's end.
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

    @property
    def work(self) -> float:
        """The training outcome: samples done, costs deducted."""
        return math.fsum(record.work for record in self.records)

    @property
    def duration_s(self) -> float:
        """Seconds replayed."""
        return (self.end_ns - self.start_ns) / SECOND_NS


@dataclass
class Ledger:
    """The books of a replay under way; the engine tells it what happens.

    Parameters
    ----------
    trace, jobs
        What is replayed.
    """

    trace: NodeTrace
    jobs: JobTable
    records: list[JobRecord] = field(init=False)

    def __post_init__(self) -> None:
        self.records = [JobRecord(job) for job in self.jobs]
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
    def decisions(self) -> int:
        """Decisions so far."""
        return len(self._steps)

    def state(self) -> dict[str, Any]:
        """All that has been recorded, for a checkpoint."""
        return {
            "records": [[getattr(record, name) for name in _RECORDED] for record in self.records],
            "since": asdict(self._since),
            "granted_at": [(job, list(units.items())) for job, units in self._granted_at.items()],
            **{name: getattr(self, name) for name in _SUMS},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` says."""
        for record, values in zip(self.records, state["records"], strict=True):
            for name, value in zip(_RECORDED, values, strict=True):
                setattr(record, name, value)
        self._since = _Since(**state["since"])
        self._granted_at = {job: dict(units) for job, units in state["granted_at"]}
        for name in _SUMS:
            setattr(self, name, state[name])
        self._steps = [tuple(row) for row in self._steps]

    # --- told by the engine ---------------------------------------------------------------------------------------

    def passed(self, seconds: float, idle: int, used: int) -> None:
        """Time has passed with so many units idle, and so many of them used."""
        self._idle_unit_seconds += idle * seconds
        self._used_unit_seconds += used * seconds
        self._risen_s += seconds

    def gained(self, record: JobRecord, work: float) -> None:
        """A job has done work."""
        record.gained += work
        self._since.gained += work
        self._gained += work

    def lost(self, record: JobRecord, work: float, kind: str) -> None:
        """A job has lost work to a `rescale` or a `preemption`."""
        self._lost += work
        if kind == "preemption":
            record.lost_to_preemption += work
            self._since.preemption_cost += work
        else:
            record.lost_to_rescale += work
            self._since.rescale_cost += work
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
        rate_before: float,
        rate: float,
        decision: Decision,
    ) -> None:
        """A decision has been taken and carried out; rates in samples/s before and after it."""
        self._settle_rise()
        # What a rescale brings in is told apart from what new units bring only where one was made.
        self._rise = rate - rate_before if self._since.rescaled else 0.0
        gap = max(0.0, decision.bound - decision.objective) / max(1.0, abs(decision.bound))
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
        steps = pd.DataFrame(self._steps, columns=list(STEP_COLUMNS))
        steps["time"] = pd.to_datetime(steps["time"], unit="ns", utc=True)
        return Outcome(
            trace=self.trace,
            start_ns=self.trace.start,
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
        net = since.gained - since.rescale_cost - since.preemption_cost
        changes = (since.joined, since.left, since.preempted, since.rescaled)
        self._steps.append((now, *counts, *changes, rate, net, since.rescale_cost, since.preemption_cost, *answer))
        self._since = _Since()

    def _settle_rise(self) -> None:
        self._extra_gain += self._rise * self._risen_s
        self._rise = self._risen_s = 0.0

    def _balance(self) -> None:
        work = math.fsum(record.work for record in self.records)
        if not math.isclose(self._gained - self._lost, work, rel_tol=BALANCE, abs_tol=BALANCE * max(1.0, self._gained)):
            raise ConservationError(f"{self._gained!r} done less {self._lost!r} lost is not {work!r}")
        for record in self.records:
            left = record.gained - record.lost_to_preemption - record.lost_to_rescale
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
