"""The event loop: time passes, jobs progress, the policy decides (DESIGN §5).

Time is whole nanoseconds UTC, so that instants compare exactly and weeks of events do not drift; a finish is rounded up
to the next nanosecond. At one instant finishes come first, then leaves, joins, submits, timers, then one decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bft.milp import FreeUnits
from bft.models import Job, JobTable
from bft.replay.ledger import ConservationError, JobRecord, Ledger, Outcome
from bft.replay.policies.interface import Decision, JobView, Policy, PolicyError, State
from bft.replay.trace import SECOND_NS, NodeTrace

CostModel = Literal["bftrainer", "stall"]
NEVER = 2**63 - 1
NOBODY = -1  # owner of a free unit
TAKEN = -2  # owner of a unit that is not idle


@dataclass(frozen=True, slots=True)
class Rules:
    """How the world of a replay works, whatever the policy.

    Parameters
    ----------
    max_jobs
        Jobs in play at once; others wait, first come first served.
    cost_model
        `bftrainer` deducts T x rate from progress at a rescale; `stall` stops progress for T seconds.
    decide_at
        `all`: node events, submits and finishes. `node`: node events only, as the published replayer does.
    min_interval_s
        Least time between two decisions; what happens meanwhile is decided together.
    """

    max_jobs: int = 10
    cost_model: CostModel = "bftrainer"
    decide_at: Literal["all", "node"] = "all"
    min_interval_s: float = 0.0


class _Running:
    """A job in play."""

    __slots__ = ("finish_ns", "index", "job", "progress", "rate", "record", "stall_kind", "stalled_until", "units")

    def __init__(self, index: int, job: Job, record: JobRecord) -> None:
        self.index, self.job, self.record = index, job, record
        self.units: list[int] = []  # oldest first
        self.progress = 0.0
        self.rate = 0.0
        self.finish_ns = NEVER
        self.stalled_until = 0
        self.stall_kind = ""


class Replay:
    """One replay of jobs on a node trace under a policy.

    Parameters
    ----------
    trace, jobs, policy, rules
        What is replayed, and how.

    Attributes
    ----------
    now
        The current instant, UTC nanoseconds.
    ledger
        What has been recorded so far.
    """

    def __init__(self, trace: NodeTrace, jobs: JobTable, policy: Policy, rules: Rules = Rules()) -> None:
        self.trace, self.jobs, self.policy, self.rules = trace, jobs, policy, rules
        self.now = trace.start
        self.ledger = Ledger(trace, jobs)
        self._units_per_node = trace.units_per_node
        total = len(trace.nodes) * trace.units_per_node
        self._owner = [TAKEN] * total
        self._since = [0] * total  # event at which a unit turned idle
        self._free = FreeUnits(total)
        self._idle = 0
        self._queue = jobs.by_submit()  # not yet admitted, in order; _submitted of them have been submitted
        self._admitted = 0
        self._submitted = 0
        self._in_play: list[_Running] = []
        self._event = 0
        self._pending = False  # something changed since the last decision
        self._decided_at = -NEVER

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(
        self, *, on_step: Callable[[int], None] | None = None, should_stop: Callable[[], bool] | None = None
    ) -> Outcome:
        """Replay until every job has finished or the trace ends.

        Parameters
        ----------
        on_step
            Called with the instant after each step, to show progress.
        should_stop
            Asked before each step; when true, the replay ends there and its outcome says so.
        """
        interrupted = False
        while self._work_left():
            instant = self._next_instant()
            if instant > self.trace.end:
                self._advance(self.trace.end)
                break
            if should_stop is not None and should_stop():
                interrupted = True
                break
            self._step(instant)
            if on_step is not None:
                on_step(self.now)
        used = sum(len(running.units) for running in self._in_play)
        for running in self._in_play:  # who holds units now held them to the end
            self.ledger.released(running.index, running.units, self.now)
        progress = {running.index: running.progress for running in self._in_play}
        return self.ledger.close(self.now, self._idle, used, progress, interrupted=interrupted)

    def _step(self, instant: int) -> None:
        """Handle everything that happens at an instant, in the order of DESIGN §5."""
        self._advance(instant)
        finished = self._finish()
        touched = self._leave_and_join()
        admitted = self._admit()
        self._pending |= touched if self.rules.decide_at == "node" else finished or touched or admitted
        if self._pending and instant < self.trace.end and instant >= self._decided_at + self._min_interval_ns():
            self._pending = False
            self._decided_at = instant
            if self._in_play:
                self._decide()

    def _work_left(self) -> bool:
        return bool(self._in_play) or self._admitted < len(self._queue)

    def _next_instant(self) -> int:
        instant = min((running.finish_ns for running in self._in_play), default=NEVER)
        if self._event < len(self.trace.times):
            instant = min(instant, int(self.trace.times[self._event]))
        if self._submitted < len(self._queue):
            instant = min(instant, max(self.jobs.jobs[self._queue[self._submitted]].tsub_ns, self.now))
        if self._pending:
            instant = min(instant, max(self._decided_at + self._min_interval_ns(), self.now + 1))
        return instant

    def _min_interval_ns(self) -> int:
        return round(self.rules.min_interval_s * SECOND_NS)

    # --- stages of an instant, in their order ---------------------------------------------------------------------

    def _advance(self, to: int) -> None:
        """Let time pass: every running job progresses at its rate, stalls are charged as they pass."""
        seconds = (to - self.now) / SECOND_NS
        if seconds > 0:
            used = 0
            for running in self._in_play:
                held = len(running.units)
                used += held
                running.record.unit_seconds += held * seconds
                if running.rate:
                    gain = running.rate * seconds
                    running.progress += gain
                    self.ledger.gained(running.record, gain)
                    if running.stalled_until > self.now:
                        stalled = running.rate * (min(running.stalled_until, to) - self.now) / SECOND_NS
                        running.progress -= stalled
                        self.ledger.lost(running.record, stalled, running.stall_kind)
            self.ledger.passed(seconds, self._idle, used)
        self.now = to

    def _finish(self) -> bool:
        done = [running for running in self._in_play if running.finish_ns <= self.now]
        for running in done:
            # A finish is rounded up to a nanosecond: what was done beyond the work is not counted.
            self.ledger.gained(running.record, running.job.pmax - running.progress)
            running.progress = running.job.pmax
            self.ledger.finished(running.record, self.now)
            for unit in running.units:
                self._owner[unit] = NOBODY
                self._free.add(unit, self._since[unit])
            self.ledger.released(running.index, running.units, self.now)
        if done:
            self._in_play = [running for running in self._in_play if running.finish_ns > self.now]
        return bool(done)

    def _leave_and_join(self) -> bool:
        if self._event >= len(self.trace.times) or self.trace.times[self._event] > self.now:
            return False
        event = self._event
        self._event += 1
        leaving, joining = self.trace.leaves(event).tolist(), self.trace.joins(event).tolist()
        if self._units_per_node > 1:
            leaving, joining = self._units_of(leaving), self._units_of(joining)
        self._leave(leaving)
        owner, since, free = self._owner, self._since, self._free
        for unit in joining:
            owner[unit] = NOBODY
            since[unit] = event
            free.add(unit, event)
        self._idle += len(joining) - len(leaving)
        self.ledger.changed(len(joining), len(leaving))
        return True

    def _units_of(self, nodes: list[int]) -> list[int]:
        per = self._units_per_node
        return [unit for node in nodes for unit in range(node * per, (node + 1) * per)]

    def _leave(self, leaving: list[int]) -> None:
        """Take units back: a job that loses some keeps the rest and pays Tcdw x its rate before, once."""
        owner, free = self._owner, self._free
        lost: dict[int, set[int]] = {}
        for unit in leaving:
            holder = owner[unit]
            if holder == NOBODY:
                free.discard(unit)
            else:
                lost.setdefault(holder, set()).add(unit)
            owner[unit] = TAKEN
        if not lost:
            return
        for running in self._in_play:
            gone = lost.get(running.index)
            if gone is None:
                continue
            self.ledger.released(running.index, [unit for unit in running.units if unit in gone], self.now)
            self.ledger.preempted(running.record)
            running.units = [unit for unit in running.units if unit not in gone]
            self._charge(running, running.job.tcdw_s, "preemption")
            self._set_rate(running)

    def _admit(self) -> bool:
        while self._submitted < len(self._queue) and self.jobs.jobs[self._queue[self._submitted]].tsub_ns <= self.now:
            self._submitted += 1
        admitted = False
        while self._admitted < self._submitted and len(self._in_play) < self.rules.max_jobs:
            index = self._queue[self._admitted]
            self._admitted += 1
            self._in_play.append(_Running(index, self.jobs.jobs[index], self.ledger.records[index]))
            admitted = True
        return admitted

    # --- the decision ---------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        views = tuple(
            JobView(running.job, len(running.units), running.record.unit_seconds) for running in self._in_play
        )
        state = State(self.now, self._idle, views)
        if self._idle == 0:  # nothing to give
            decision = Decision((0,) * len(views), status="optimal", objective=0.0, bound=0.0, backend="none")
        else:
            decision = self.policy.decide(state)
        self._check(decision, state)
        rate_before = sum(running.rate for running in self._in_play)
        for running, count in zip(self._in_play, decision.counts, strict=True):  # release before granting
            if count < len(running.units):
                self._shrink(running, count)
        for running, count in zip(self._in_play, decision.counts, strict=True):
            if count > len(running.units):
                self._grow(running, count)
        used = sum(len(running.units) for running in self._in_play)
        if used + len(self._free) != self._idle:
            raise ConservationError(f"{used} units used and {len(self._free)} free, but {self._idle} idle")
        rate = sum(running.rate for running in self._in_play)
        active = sum(1 for running in self._in_play if running.units)
        self.ledger.decided(self.now, self._idle, len(views), active, used, rate_before, rate, decision)

    def _check(self, decision: Decision, state: State) -> None:
        def refuse(what: str) -> PolicyError:
            return PolicyError(f"policy {self.policy.name!r} was stopped: {what}")

        if len(decision.counts) != len(state.jobs):
            raise refuse(f"it answered {len(decision.counts)} counts for {len(state.jobs)} jobs")
        for view, count in zip(state.jobs, decision.counts, strict=True):
            if count and not max(view.job.jmin, 1) <= count <= view.job.jmax:
                raise refuse(
                    f"it gave job {view.job.name!r} {count} units, outside 0 and [{view.job.jmin}, {view.job.jmax}]"
                )
        if sum(decision.counts) > state.idle:
            raise refuse(f"it gave {sum(decision.counts)} units of {state.idle} idle ones")

    def _shrink(self, running: _Running, count: int) -> None:
        released = running.units[count:]
        running.units = running.units[:count]
        for unit in released:
            self._owner[unit] = NOBODY
            self._free.add(unit, self._since[unit])
        self.ledger.released(running.index, released, self.now)
        self.ledger.rescaled(running.record)
        self._charge(running, running.job.tcdw_s, "rescale")
        self._set_rate(running)

    def _grow(self, running: _Running, count: int) -> None:
        held = len(running.units)
        granted = [self._free.take() for _ in range(count - held)]
        for unit in granted:
            self._owner[unit] = running.index
        running.units.extend(granted)
        self.ledger.granted(granted, self.now)
        if held:
            self.ledger.rescaled(running.record)
        else:
            self.ledger.started(running.record, self.now)
        self._charge(running, running.job.tcup_s, "rescale")
        self._set_rate(running)

    # --- progress -------------------------------------------------------------------------------------------------

    def _charge(self, running: _Running, seconds: float, kind: Literal["rescale", "preemption"]) -> None:
        """Charge `seconds` of the job's time for a rescale or preemption, before its rate changes."""
        if self.rules.cost_model == "stall":
            until = self.now + round(seconds * SECOND_NS)
            if until > running.stalled_until:
                running.stalled_until, running.stall_kind = until, kind
            return
        cost = min(seconds * running.rate, running.progress)  # progress never falls below 0
        if cost > 0:
            running.progress -= cost
            self.ledger.lost(running.record, cost, kind)

    def _set_rate(self, running: _Running) -> None:
        """Set rate and finish time from the units held."""
        job = running.job
        running.rate = float(job.rates[len(running.units)])
        running.finish_ns = NEVER
        if running.rate > 0:
            begin = max(self.now, running.stalled_until)
            nanoseconds = (job.pmax - running.progress) / running.rate * SECOND_NS
            if nanoseconds < NEVER - begin - 1:
                running.finish_ns = begin + max(0, math.ceil(nanoseconds))
