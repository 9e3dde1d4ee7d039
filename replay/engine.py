"""The event loop: time passes, jobs progress, the policy decides (DESIGN §5).

Time is whole nanoseconds UTC, so that instants compare exactly and weeks of events do not drift; a finish is rounded up
to the next nanosecond. At one instant finishes come first, then leaves, joins, submits, timers, then one decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

from bft.milp import move
from bft.models import Job, JobTable
from bft.replay.holdings import Holdings
from bft.replay.interference import Interference
from bft.replay.ledger import ConservationError, JobRecord, Ledger, Outcome
from bft.replay.policies.interface import Decision, JobView, Policy, PolicyError, Remembers, State
from bft.replay.trace import SECOND_NS, NodeTrace

CostModel = Literal["bftrainer", "stall"]
NEVER = 2**63 - 1
# Rounding of doubles, relative: a finish due at a whole nanosecond must not come one late, after a leave then.
ROUNDING = 1e-14


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

    __slots__ = (
        "finish_ns",
        "index",
        "job",
        "partner",
        "progress",
        "rate",
        "record",
        "shared",
        "stall_kind",
        "stalled_until",
        "units",
        "xi",
    )

    def __init__(self, index: int, job: Job, record: JobRecord) -> None:
        self.index, self.job, self.record = index, job, record
        self.units: list[int] = []  # oldest first
        self.progress = 0.0
        self.rate = 0.0
        self.finish_ns = NEVER
        self.stalled_until = 0
        self.stall_kind = ""
        self.partner: _Running | None = None  # with whom it shares `shared` units, both at 1/xi of their rates
        self.shared = 0
        self.xi = 1.0


# What a checkpoint keeps of a job in play, and of the replay itself.
_RUNNING = ("index", "units", "progress", "rate", "finish_ns", "stalled_until", "stall_kind", "shared", "xi")
_STANDING = ("now", "_admitted", "_submitted", "_event", "_pending", "_decided_at")


class Replay:
    """One replay of jobs on a node trace under a policy.

    Parameters
    ----------
    trace, jobs, policy, rules
        What is replayed, and how.
    interference
        What it costs two jobs to share units; None, and no policy may let them.

    Attributes
    ----------
    now
        The current instant, UTC nanoseconds.
    ledger
        What has been recorded so far.
    """

    def __init__(
        self,
        trace: NodeTrace,
        jobs: JobTable,
        policy: Policy,
        rules: Rules = Rules(),
        interference: Interference | None = None,
    ) -> None:
        self.trace, self.jobs, self.policy, self.rules = trace, jobs, policy, rules
        self.interference = interference
        self.now = trace.start
        self.ledger = Ledger(trace, jobs)
        self._units_per_node = trace.units_per_node
        self._held = Holdings(len(trace.nodes) * trace.units_per_node)
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
        for running in self._in_play:  # who holds units now held them to the end
            self.ledger.released(running.index, running.units, self.now)
        progress = {running.index: running.progress for running in self._in_play}
        return self.ledger.close(self.now, self._held.idle, self._held.used, progress, interrupted=interrupted)

    def state(self) -> dict[str, Any]:
        """Where the replay stands between two steps, as plain values, for a checkpoint."""
        return {
            **{name: getattr(self, name) for name in _STANDING},
            "policy": self.policy.state() if isinstance(self.policy, Remembers) else None,
            "held": self._held.state(),
            "ledger": self.ledger.state(),
            "in_play": [
                {
                    **{name: getattr(running, name) for name in _RUNNING},
                    "partner": None if running.partner is None else running.partner.index,
                }
                for running in self._in_play
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Stand where `state` says; only for a replay of the same trace, jobs, policy and rules."""
        for name in _STANDING:
            setattr(self, name, state[name])
        if isinstance(self.policy, Remembers):
            self.policy.restore(state["policy"])
        self._held.restore(state["held"])
        self.ledger.restore(state["ledger"])
        self._in_play = []
        for entry in state["in_play"]:
            index = entry["index"]
            running = _Running(index, self.jobs.jobs[index], self.ledger.records[index])
            for name in _RUNNING:
                setattr(running, name, entry[name])
            self._in_play.append(running)
        by_index = {running.index: running for running in self._in_play}
        for running, entry in zip(self._in_play, state["in_play"], strict=True):
            running.partner = None if entry["partner"] is None else by_index[entry["partner"]]

    def _step(self, instant: int) -> None:
        """Handle everything that happens at an instant, in the order of DESIGN §5."""
        self._advance(instant)
        finished = self._finish()
        touched = self._leave_and_join()
        admitted = self._admit()
        self._pending |= touched if self.rules.decide_at == "node" else finished or touched or admitted
        if self._pending and instant < self.trace.end and instant >= self._decided_at + self._min_interval_ns():
            self._pending = False
            if self._in_play:
                self._decided_at = instant
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
            for running in self._in_play:
                running.record.unit_seconds += len(running.units) * seconds
                if running.rate:
                    gain = running.rate * seconds
                    running.progress += gain
                    self.ledger.gained(running.record, gain)
                    if running.stalled_until > self.now:
                        # As the gain is computed: of a stall that lasts all the time nothing must remain.
                        stalled = running.rate * ((min(running.stalled_until, to) - self.now) / SECOND_NS)
                        running.progress -= stalled
                        self.ledger.lost(running.record, stalled, running.stall_kind)
            self.ledger.passed(seconds, self._held.idle, self._held.used)
        self.now = to

    def _finish(self) -> bool:
        done = [running for running in self._in_play if running.finish_ns <= self.now]
        for running in done:
            # A finish is rounded up to a nanosecond: what was done beyond the work is not counted.
            self.ledger.gained(running.record, running.job.pmax - running.progress)
            running.progress = running.job.pmax
            self.ledger.finished(running.record, self.now)
            self._held.release(running.index, running.units)
            self.ledger.released(running.index, running.units, self.now)
        if done:
            self._in_play = [running for running in self._in_play if running.finish_ns > self.now]
            for running in done:
                if running.partner is not None:
                    self._part(running)
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
        self._held.join(joining, event)
        self.ledger.changed(len(joining), len(leaving))
        return True

    def _units_of(self, nodes: list[int]) -> list[int]:
        per = self._units_per_node
        return [unit for node in nodes for unit in range(node * per, (node + 1) * per)]

    def _leave(self, leaving: list[int]) -> None:
        """Take units back: a job that loses some keeps the rest and pays Tcdw x its rate before, once."""
        lost = self._held.take_back(leaving)
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
        self._refresh_partners()

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
        state = self._state()
        if state.idle == 0:  # nothing to give
            decision = Decision((0,) * len(state.jobs), status="optimal", objective=0.0, bound=0.0, backend="none")
        else:
            decision = self.policy.decide(state)
        self._check(decision, state)
        rate_before = sum(running.rate for running in self._in_play)
        if decision.transfers:
            self._carry_out(decision)
        else:
            self._give_alone(decision.counts)
        self._conserve()
        rate = sum(running.rate for running in self._in_play)
        active = sum(1 for running in self._in_play if running.units)
        jobs = len(state.jobs)
        self.ledger.decided(self.now, state.idle, jobs, active, self._held.used, rate_before, rate, decision)

    def _state(self) -> State:
        at = {running.index: position for position, running in enumerate(self._in_play)}
        return State(
            self.now,
            self._held.idle,
            tuple(
                JobView(
                    running.job,
                    len(running.units),
                    running.record.unit_seconds,
                    None if running.partner is None else at[running.partner.index],
                    running.shared,
                )
                for running in self._in_play
            ),
        )

    def _conserve(self) -> None:
        """Every idle unit is free or held, and held once unless it is shared."""
        held = sum(len(running.units) for running in self._in_play)
        twice = sum(running.shared for running in self._in_play) // 2
        if held - twice != self._held.used:
            raise ConservationError(f"{held} units held, {twice} of them twice, but {self._held.used} in use")

    def _check(self, decision: Decision, state: State) -> None:
        refuse = self._refusal
        if len(decision.counts) != len(state.jobs):
            raise refuse(f"it answered {len(decision.counts)} counts for {len(state.jobs)} jobs")
        answered: tuple[object, ...] = decision.counts  # third parties may answer anything
        for view, count, answer in zip(state.jobs, decision.counts, answered, strict=True):
            if not isinstance(answer, Integral):
                raise refuse(f"it gave job {view.job.name!r} {answer!r} units, which is no whole number")
            if count and not max(view.job.jmin, 1) <= count <= view.job.jmax:
                raise refuse(
                    f"it gave job {view.job.name!r} {count} units, outside 0 and [{view.job.jmin}, {view.job.jmax}]"
                )
        shared = 0 if decision.transfers else sum(view.shared for view in state.jobs) // 2
        if not decision.transfers and sum(decision.counts) - shared > state.idle:
            raise refuse(f"it gave {sum(decision.counts)} units of {state.idle} idle ones")

    def _refusal(self, what: str) -> PolicyError:
        return PolicyError(f"policy {self.policy.name!r} was stopped: {what}")

    def _give_alone(self, counts: tuple[int, ...]) -> None:
        """Release the newest units of those that shrink, then give free ones to those that grow."""
        for running, count in zip(self._in_play, counts, strict=True):
            if count < len(running.units):
                self._change(running, running.units[count:], [])
        for running, count in zip(self._in_play, counts, strict=True):
            if count > len(running.units):
                self._change(running, [], self._held.take(count - len(running.units)))
        self._refresh_partners()

    def _carry_out(self, decision: Decision) -> None:
        """Move units between classes of holders as the decision's transfers say, and see that nobody migrates."""
        position = {running.index: at for at, running in enumerate(self._in_play)}
        current = [running.units for running in self._in_play]
        classes: dict[tuple[int, ...], list[int]] = {}
        for at, units in enumerate(current):
            for unit in units:
                holders = tuple(sorted(position[index] for index in self._held.holders(unit)))
                if holders[0] == at:
                    classes.setdefault(holders, []).append(unit)
        wanted = [transfer for transfer in decision.transfers if transfer.before or transfer.after]
        for transfer in wanted:
            known = len(self._held.free) if not transfer.before else len(classes.get(transfer.before, ()))
            if transfer.units > known or len(set(transfer.after)) > 2:
                raise self._refusal(f"it moved {transfer.units} units of {known} from {transfer.before}")
        new = sum(transfer.units for transfer in wanted if not transfer.before)
        if new > len(self._held.free):
            raise self._refusal(f"it gave {new} free units of {len(self._held.free)}")
        classes[()] = self._held.take(new)
        changes = []
        for running, before, after in zip(self._in_play, current, move(current, classes, wanted), strict=True):
            kept, old = set(after), set(before)
            released = [unit for unit in before if unit not in kept]
            granted = [unit for unit in after if unit not in old]
            if released and granted:
                raise self._refusal(
                    f"job {running.job.name!r} migrates: it loses {len(released)} units and gains others"
                )
            changes.append((running, released, granted))
        if tuple(len(r.units) - len(out) + len(into) for r, out, into in changes) != tuple(decision.counts):
            raise self._refusal("its transfers do not lead to its counts")
        for running, released, _ in changes:
            if released:
                self._change(running, released, [])
        for running, _, granted in changes:
            if granted:
                self._change(running, [], granted)
        self._refresh_partners()

    def _change(self, running: _Running, released: list[int], granted: list[int]) -> None:
        """A decision takes units from a job, or gives it some; it pays for that at its rate before."""
        held = len(running.units)
        if released:
            gone = set(released)
            running.units = [unit for unit in running.units if unit not in gone]
            self._held.release(running.index, released)
            self.ledger.released(running.index, released, self.now)
        else:
            running.units.extend(granted)
            self._held.grant(running.index, granted)
            self.ledger.granted(running.index, granted, self.now)
        if held:
            self.ledger.rescaled(running.record)
        else:
            self.ledger.started(running.record, self.now)
        self._charge(running, running.job.tcdw_s if released else running.job.tcup_s, "rescale")
        self._set_rate(running)

    # --- sharing --------------------------------------------------------------------------------------------------

    def _refresh_partners(self) -> None:
        """Find anew who shares units with whom, where anybody does or did."""
        if not self._held.shared and all(running.partner is None for running in self._in_play):
            return
        by_index = {running.index: running for running in self._in_play}
        for running in self._in_play:
            beside: dict[int, int] = {}
            for unit in running.units:
                for index in self._held.holders(unit):
                    if index != running.index:
                        beside[index] = beside.get(index, 0) + 1
            if len(beside) > 1:
                raise self._refusal(f"job {running.job.name!r} shares units with {len(beside)} others")
            partner = by_index[next(iter(beside))] if beside else None
            running.shared = sum(beside.values())
            if partner is running.partner:
                continue
            running.partner = partner
            running.xi = 1.0 if partner is None else self._xi(running.job, partner.job)
            self._set_rate(running)

    def _part(self, finished: _Running) -> None:
        """The partner of a job that has finished runs alone from now on."""
        partner, finished.partner = finished.partner, None
        if partner is not None and partner.partner is finished:
            partner.partner, partner.shared, partner.xi = None, 0, 1.0
            self._set_rate(partner)

    def _xi(self, job: Job, beside: Job) -> float:
        ratios = None if self.interference is None else self.interference.xi(job, beside)
        if ratios is None:
            raise self._refusal(f"it lets {job.name!r} and {beside.name!r} share units, which no xi allows")
        return ratios[0]

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
        running.rate = float(job.rates[len(running.units)]) / running.xi
        running.finish_ns = NEVER
        if running.rate > 0:
            begin = max(self.now, running.stalled_until)
            nanoseconds = (job.pmax - running.progress) / running.rate * SECOND_NS
            if nanoseconds < NEVER - begin - 1:
                running.finish_ns = begin + max(0, math.ceil(nanoseconds * (1 - ROUNDING)))
