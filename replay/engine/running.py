"""The state of a job in play."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bft.models import Dynamics, Job
from bft.replay.engine.intervals import RunInterval
from bft.replay.engine.ledger import JobRecord
from bft.replay.engine.memory import NOT_KEPT, kept, remember
from bft.replay.engine.port import JobView
from bft.replay.trace.node_trace import SECOND_NS

NEVER = 2**63 - 1
# At an instant, a job with at most this part of its work left is done: many changes of its rate may round off that
# much.
FINISHED = 1e-12
_NEARLY = 1 - FINISHED
# Rounding of doubles, relative: a finish due at a whole nanosecond must not come one late.
ROUNDING = 1e-14


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
        Until when it makes no progress; and up to when each kind of loss lasts (see `ledger`), in ascending order.
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

    index: int = field(metadata=NOT_KEPT)
    turn: int = field(metadata=NOT_KEPT)
    job: Job = field(metadata=NOT_KEPT)
    record: JobRecord = field(metadata=NOT_KEPT)
    dynamics: Dynamics | None = field(metadata=NOT_KEPT)
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
    waiting_view: JobView | None = field(default=None, metadata=NOT_KEPT)  # nothing changes while it waits

    @classmethod
    def admitted(cls, index: int, turn: int, record: JobRecord, *, tunes: bool) -> Running:
        """A job that has just been admitted."""
        profile = record.job.profile
        return cls(index, turn, record.job, record, None if profile is None else profile.start(tunes=tunes))

    def stall(self, until: int, kind: str) -> None:
        """Stop its progress until then; the latest end of several stalls counts."""
        if until > self.stalled_until:
            self.stalls.append((until, kind))
            self.stalled_until = until

    def end_run(self) -> None:
        """It has lost its last unit: a remaining stall ends with the run to which it was charged."""
        self.stalled_until = 0
        if self.stalls:
            self.stalls.clear()

    def progress_at(self, instant: int) -> float:
        """Samples done at an instant, if nothing happens before."""
        since = self.settled_ns if self.settled_ns > self.stalled_until else self.stalled_until
        seconds = (instant - since) / SECOND_NS
        return self.progress + self.rate * seconds if seconds > 0 else self.progress

    def set_rate(self, rate: float, now: int) -> None:
        """Run at `rate` from now on, an instant up to which its amounts are settled; compute its finish."""
        self.rate, self.rated_ns = rate, now
        self.rated_units, self.rated_shared, self.rated_stall_ns = (
            len(self.units),
            bool(self.partners),
            self.stalled_until,
        )
        self.finish_ns = self.due_ns = NEVER
        if rate <= 0:
            return
        begin = now if now > self.stalled_until else self.stalled_until
        work, done = self.job.pmax, self.progress
        nanoseconds = (work - done) / rate * SECOND_NS
        if nanoseconds < NEVER - begin - 1:
            whole = round(nanoseconds)
            if abs(nanoseconds - whole) > ROUNDING * nanoseconds:
                whole = math.ceil(nanoseconds)
            finish_ns = self.finish_ns = begin + whole if whole > 0 else begin
            lacking = work * _NEARLY - done
            early = begin + math.ceil(lacking / rate * SECOND_NS) if lacking > 0 else now
            self.due_ns = early if early < finish_ns else finish_ns

    def present(self, now: int, asked_ns: int) -> RunInterval | None:
        """What it has held since its rate was set, or since the policy was last asked; None if it held nothing."""
        begin = max(self.rated_ns, asked_ns)
        if not self.rated_units or now <= begin:
            return None
        units, shared, stall_ns = self.rated_units, self.rated_shared, self.rated_stall_ns
        return RunInterval.between(begin, now, units, shared, stall_ns, self.rate, "decision")

    def _reaches(self, samples: float) -> int:
        """When it will have done so many samples at the rate that has just been set, NEVER beyond the calendar."""
        begin = max(self.rated_ns, self.stalled_until)
        nanoseconds = (samples - self.progress) / self.rate * SECOND_NS
        if not nanoseconds < NEVER - begin - 1:
            return NEVER
        whole = round(nanoseconds)
        if abs(nanoseconds - whole) > ROUNDING * nanoseconds:
            whole = math.ceil(nanoseconds)
        return begin + max(0, whole)

    def ask_at_rung(self) -> None:
        """Have it looked at when it reaches its next rung, at the rate that has just been set."""
        if self.rate > 0:
            self.ask_ns = min(self.ask_ns, self._reaches(self.rungs[0]))

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {**kept(self), "dynamics": None if self.dynamics is None else self.dynamics.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        remember(self, state)
        if self.dynamics is not None:
            self.dynamics.restore(state["dynamics"])

    def view(self, now: int, at: Mapping[int, int], *, clairvoyant: bool) -> JobView:
        """The policy's view at an instant; `at` gives the position in play of each job that shares units."""
        if not self.units and self.waiting_view is not None:
            return self.waiting_view
        record, units = self.record, len(self.units)
        seconds = (now - self.settled_ns) / SECOND_NS if units else 0.0
        seen = JobView(
            self.job,
            units,
            record.unit_seconds + units * seconds,
            tuple(self.units),
            tuple((at[index], shared) for index, shared in self.partners.items()),
            record.run_seconds + seconds,
            record.starts,
            record.rescales - record.stops,
            record.start_ns,
            self.since_ns,
            self.progress_at(now) if clairvoyant else math.nan,
            self.dynamics,
            self.rate,
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
