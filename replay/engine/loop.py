"""The event loop: time passes, jobs progress, the policy decides (DESIGN §5).

Time is whole nanoseconds UTC, so that instants compare exactly and weeks of events do not drift; a finish is rounded up
to the next nanosecond. At one instant finishes come first, then leaves, joins, submits, timers, then one decision.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

from bft.models import JobTable
from bft.replay.engine.asking import asking
from bft.replay.engine.course import Stall
from bft.replay.engine.holdings import Holdings
from bft.replay.engine.ledger import ConservationError, Ledger, Loss, Outcome
from bft.replay.engine.moves import Change, Traits, changes, held_twice
from bft.replay.engine.port import Decision, Machine, Policy, PolicyError, Remembers, State
from bft.replay.engine.rules import Rules
from bft.replay.engine.running import NEVER, Running, finished_view
from bft.replay.engine.sharing_rules import Interference
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

# Rounding of doubles, relative: a finish due at a whole nanosecond must not come one late.
ROUNDING = 1e-14
# Status of a step at which there was nothing to give, so that nobody was asked.
NOTHING_IDLE = "nothing idle"


_STANDING = ("now", "_admitted", "_submitted", "_event", "_pending", "_decided_at", "_wake_ns", "_finished", "_over")


class ReplayOverError(RuntimeError):
    """The replay has come to its end: there is no next instant."""


class Replay:
    """One replay of jobs on a node trace under a policy.

    Parameters
    ----------
    trace, jobs, policy, rules
        What is replayed, and how.
    interference
        What it costs two jobs to share units; None, and no policy may let them.
    without
        Positions of jobs that are never admitted; they count as jobs that never started.

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
        without: Collection[int] = (),
    ) -> None:
        self.trace, self.jobs, self.policy, self.rules = trace, jobs, policy, rules
        self.interference = interference
        self.now = trace.start
        self.ledger = Ledger(trace, jobs, without)
        self._traits = Traits.of(policy)
        self._units_per_node = trace.units_per_node
        self._held = Holdings(len(trace.nodes) * trace.units_per_node, trace.units_per_node)
        self._machine = Machine(self._held)
        # Not yet admitted, in order; _submitted of them have been submitted.
        self._queue = [index for index in jobs.by_submit() if index not in without]
        self._admitted = 0
        self._submitted = 0
        self._in_play: list[Running] = []
        self._active: list[Running] = []  # those in play that hold units, in the same order
        self._event = 0
        self._pending = False  # something changed since the last decision
        self._decided_at = -NEVER
        self._wake_ns = NEVER
        self._finished: list[int] = []  # since the policy was last asked
        self._asked: State | None = None  # what is to be decided now
        self._over = False

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        on_step: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        before_close: Callable[[], None] | None = None,
    ) -> Outcome:
        """Replay until every job has finished or the trace ends.

        Parameters
        ----------
        on_step
            Called with the instant after each step, to show progress.
        should_stop
            Asked before each step; when true, the replay ends there and its outcome says so.
        before_close
            Called after the last step, while `state` is still one to go on from.

        Raises
        ------
        PolicyError
            When the policy fails; `outcome` of the error is what had been replayed until then.
        """
        try:
            interrupted = self._run(on_step, should_stop)
            if before_close is not None:
                before_close()
        except PolicyError as error:
            error.outcome = self._close(interrupted=True)
            raise
        return self._close(interrupted=interrupted)

    def _run(self, on_step: Callable[[int], None] | None, should_stop: Callable[[], bool] | None) -> bool:
        """Replay to the end; whether somebody stopped it before."""
        while self.peek() is not None:
            if should_stop is not None and should_stop():
                return True
            self.step()
            if on_step is not None:
                on_step(self.now)
        return False

    def peek(self) -> int | None:
        """The next instant at which something happens (UTC ns); None at the end of the replay.

        The last instant is that of the last finish, or the trace's end.
        """
        if not self._work_left() or self._over:
            return None
        return min(self._next_instant(), self.trace.end)

    def step(self) -> None:
        """Handle the next instant, the policy's decision included.

        Raises
        ------
        ReplayOverError
            When `peek` is None.
        PolicyError
            When the policy fails.
        """
        state = self.advance()
        if state is not None:
            self.decide(self._answer(state))

    def advance(self) -> State | None:
        """Handle the next instant up to its decision, for those who decide themselves instead of the policy.

        Returns
        -------
        State or None
            What the policy is to be asked: `decide` must follow. None where nobody is asked at this instant.

        Raises
        ------
        ReplayOverError
            When `peek` is None.
        """
        instant = self.peek()
        if instant is None:
            raise ReplayOverError(f"the replay ended at {self.now} ns")
        self._over = self._next_instant() > self.trace.end
        if not self._happens(instant) or not self._in_play:
            return None
        self._decided_at = instant
        state = self._asked = self._state()
        if state.idle:
            return state
        self.decide(Decision((0,) * len(state.jobs), status=NOTHING_IDLE))
        return None

    def decide(self, decision: Decision) -> None:
        """Carry out what has been decided on the state that `advance` returned.

        Raises
        ------
        PolicyError
            When the decision is one that no scheduler may take.
        RuntimeError
            When nothing is to be decided.
        """
        state, self._asked = self._asked, None
        if state is None:
            raise RuntimeError("nothing is to be decided: advance() returned no state")
        if state.idle:
            self._finished = []
        if decision.wake_ns is not None and decision.wake_ns <= self.now:
            raise self._traits.refusal(f"it asked to be woken at {decision.wake_ns} ns, and it is {self.now}")
        found = changes(decision, state, self._in_play, self._held, self._traits)
        before = [(change.running, change.running.rate) for change in found if change.running.units]
        self._apply(found)
        self._wake_ns = NEVER if decision.wake_ns is None else decision.wake_ns
        self._conserve()
        rate = sum(running.rate for running in self._active)
        self.ledger.decided(
            self.now,
            state.idle,
            len(state.jobs),
            len(self._active),
            self._held.used,
            rate,
            sum(running.rate - earlier for running, earlier in before),
            decision,
        )

    def _close(self, *, interrupted: bool) -> Outcome:
        for running in self._in_play:  # who holds units now held them to the end
            self.ledger.released(running.index, running.units, self.now)
        progress = {running.index: running.progress for running in self._in_play}
        return self.ledger.close(self.now, self._held.idle, self._held.used, progress, interrupted=interrupted)

    def state(self) -> dict[str, Any]:
        """Where the replay stands between two steps, as plain values, for a checkpoint."""
        return {
            **{name: getattr(self, name) for name in _STANDING},
            "policy": self._memory(),
            "held": self._held.state(),
            "ledger": self.ledger.state(),
            "in_play": [running.state() for running in self._in_play],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Stand where `state` says; only for a replay of the same trace, jobs, policy and rules."""
        for name in _STANDING:
            setattr(self, name, state[name])
        if isinstance(self.policy, Remembers):
            with self._asking():
                self.policy.restore(state["policy"])
        self._held.restore(state["held"])
        self.ledger.restore(state["ledger"])
        self._in_play = [
            Running.restored(
                entry, self.jobs.jobs[entry["index"]], self.ledger.records[entry["index"]], tunes=self._traits.tunes
            )
            for entry in state["in_play"]
        ]
        self._find_active()

    def _memory(self) -> dict[str, Any] | None:
        """What the policy remembers."""
        if not isinstance(self.policy, Remembers):
            return None
        with self._asking():
            memory = self.policy.state()
            json.dumps(memory, default=lambda value: value.item())  # in here, as it is the policy's fault if it fails
            return memory

    def _asking(self) -> AbstractContextManager[None]:
        return asking(self._traits.name, self.policy, limit_s=self.rules.policy_time_limit_s)

    def _happens(self, instant: int) -> bool:
        """Handle everything that happens at an instant, in its order; whether a decision is due."""
        self._let_pass(instant)
        finished = self._finish()
        touched = self._leave_and_join()
        admitted = self._admit()
        woken = self._wake_ns <= instant
        if woken:
            self._wake_ns = NEVER
        self._pending |= touched if self.rules.events == "node" else finished or touched or admitted or woken
        due = self._pending and instant < self.trace.end and instant >= self._decided_at + self._min_interval_ns()
        self._pending &= not due
        return due

    def _work_left(self) -> bool:
        return bool(self._in_play) or self._admitted < len(self._queue)

    def _next_instant(self) -> int:
        instant = self._wake_ns if self._in_play else NEVER
        for running in self._active:
            instant = min(instant, running.finish_ns, running.ask_ns)
        if self._event < len(self.trace.times):
            instant = min(instant, int(self.trace.times[self._event]))
        if self._submitted < len(self._queue):
            instant = min(instant, max(self.jobs.jobs[self._queue[self._submitted]].tsub_ns, self.now))
        if self._pending:
            instant = min(instant, max(self._decided_at + self._min_interval_ns(), self.now + 1))
        return instant

    def _min_interval_ns(self) -> int:
        return round(self.rules.min_interval_s * SECOND_NS)

    def _find_active(self) -> None:
        self._active = [running for running in self._in_play if running.units]

    # --- stages of an instant, in their order ---------------------------------------------------------------------

    def _let_pass(self, to: int) -> None:
        """Let time pass: every running job progresses at its rate, stalls are charged as they pass."""
        seconds = (to - self.now) / SECOND_NS
        if seconds > 0:
            work, rate = self.ledger.work, 0.0
            stalls: list[Stall] = []
            for running in self._active:
                running.record.unit_seconds += len(running.units) * seconds
                running.record.run_seconds += seconds
                if running.rate:
                    gain = running.rate * seconds
                    rate += running.rate
                    self.ledger.gained(running.record, gain)
                    if running.stalls:
                        if running.stalled_until > self.now:
                            stalls.append((running.stalled_until, running.rate))
                        gain = self._stalled(running, to)
                    running.progress += gain
            self.ledger.passed(self.now, to, self._held.idle, self._held.used)
            self.ledger.course.went(self.now, to, work, rate, stalls)
        self.now = to

    def _stalled(self, running: Running, to: int) -> float:
        """Charge a job what its stalls cost it until `to`, each up to its end; return what it does none the less."""
        begin = self.now
        for until, kind in running.stalls:
            end = min(until, to)
            if end > begin:
                self.ledger.lost(running.record, running.rate * ((end - begin) / SECOND_NS), kind)
                begin = end
        if running.stalled_until <= to:
            running.stalls.clear()
        return running.rate * ((to - begin) / SECOND_NS)

    def _finish(self) -> bool:
        done: list[Running] = []
        going: list[Running] = []
        for running in self._active:
            due = running.finish_ns <= self.now or (running.progress >= running.enough and running.rate)
            (done if due else going).append(running)
        for running in going:
            if running.ask_ns <= self.now:
                self._set_rate(running)
        for running in done:
            # A finish is rounded up to a nanosecond: what was done beyond the work is not counted.
            self.ledger.gained(running.record, running.job.pmax - running.progress)
            running.progress = running.job.pmax
            self.ledger.finished(running.record, self.now)
            self._held.release(running.index, running.units)
            self.ledger.released(running.index, running.units, self.now)
            running.units = []
        if done:
            gone = {running.index for running in done}
            self._finished += [running.index for running in done]
            self._in_play = [running for running in self._in_play if running.index not in gone]
            self._find_active()
            if any(running.partners for running in done):
                self._refresh_partners()
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
        """Take units back: a job that loses some keeps the rest and pays Tcdw x its rate before, once.

        Where the policy is rigid it stops instead, and loses its work since the last checkpoint.
        """
        lost = self._held.take_back(leaving)
        if not lost:
            return
        for running in self._active:
            gone = lost.get(running.index)
            if gone is None:
                continue
            self.ledger.released(running.index, [unit for unit in running.units if unit in gone], self.now)
            self.ledger.preempted(running.record)
            running.units = [unit for unit in running.units if unit not in gone]
            running.since_ns = self.now
            if self._traits.rigid:
                self._stop(running)
            else:
                self._charge(running, running.job.tcdw_s, "preemption")
                if not running.units:
                    running.end_run()
                self._set_rate(running)
        self._find_active()
        self._refresh_partners()

    def _stop(self, running: Running) -> None:
        """A rigid job has lost a unit: it goes back to its last checkpoint, and waits."""
        self._save(running)
        if running.progress > running.saved:
            self.ledger.lost(running.record, running.progress - running.saved, "preemption")
            running.progress = running.saved
        self._held.release(running.index, running.units)
        self.ledger.released(running.index, running.units, self.now)
        running.units = []
        running.end_run()
        self._set_rate(running)

    def _admit(self) -> bool:
        while self._submitted < len(self._queue) and self.jobs.jobs[self._queue[self._submitted]].tsub_ns <= self.now:
            self._submitted += 1
        admitted = False
        most = self.rules.max_jobs or NEVER
        while self._admitted < self._submitted and len(self._in_play) < most:
            index = self._queue[self._admitted]
            self._admitted += 1
            record = self.ledger.records[index]
            self._in_play.append(Running(index, record.job, record, tunes=self._traits.tunes))
            admitted = True
        return admitted

    # --- the decision ---------------------------------------------------------------------------------------------

    def _answer(self, state: State) -> Decision:
        """What the policy decides."""
        began = time.perf_counter()
        with self._asking():
            answer: object = self.policy.decide(state)
        self.ledger.asked(time.perf_counter() - began)
        if not isinstance(answer, Decision):
            raise self._traits.refusal(f"it answered {answer!r:.100}; expected a Decision")
        return answer

    def _state(self) -> State:
        at: dict[int, int] = {}
        if self._held.shared:
            at = {running.index: position for position, running in enumerate(self._in_play)}
        clairvoyant = self._traits.clairvoyant
        views = tuple(running.view(at, clairvoyant=clairvoyant) for running in self._in_play)
        finished = tuple(finished_view(self.ledger.records[index]) for index in self._finished)
        return State(self.now, self._held.idle, views, self._machine, finished)

    def _apply(self, found: list[Change]) -> None:
        """Move units as the decision says: all are released before any is granted, then each job pays."""
        for change in found:
            if change.released:
                gone = set(change.released)
                running = change.running
                self._held.release(running.index, change.released)
                self.ledger.released(running.index, change.released, self.now)
                before, running.units = len(running.units), [unit for unit in running.units if unit not in gone]
                if not (change.granted or change.wanted):
                    self._pay(running, before)
        for change in found:
            if change.granted or change.wanted:
                running = change.running
                before = len(running.units) + len(change.released)
                granted = change.granted or self._held.take(change.wanted, near=running.units)
                running.units.extend(granted)
                self._held.grant(running.index, granted)
                self.ledger.granted(running.index, granted, self.now)
                self._pay(running, before)
        self._find_active()
        self._refresh_partners(decided=True)
        for running in self._active:
            if running.dynamics is not None:  # its policy may have told it to run otherwise
                self._set_rate(running)

    def _pay(self, running: Running, before: int) -> None:
        """A decision has changed the units of a job that had `before`; it pays for that at its rate before."""
        record, job, rules = running.record, running.job, self.rules
        running.since_ns = self.now
        running.waiting_view = None
        if before:
            self.ledger.rescaled(record)
        else:
            self.ledger.started(record, self.now)
        seconds = job.tcdw_s if len(running.units) < before else job.tcup_s
        self._charge(running, seconds, "rescale" if before else "start stall")
        if not running.units:
            running.saved = running.progress  # who is asked to stop saves its work
            running.end_run()
            record.stops += 1
        elif not before:
            running.begun_ns = self.now
            if record.starts == 1:
                self._stall(running, rules.start_overhead_s, "start")
            else:
                self._stall(running, rules.restart_s(len(running.units)), "restart")
        elif self._traits.migrates:
            self._stall(running, rules.restart_s(len(running.units)), "move")
        self._set_rate(running)

    def _conserve(self) -> None:
        """Every idle unit is free or held, and held once unless it is shared."""
        held = sum(len(running.units) for running in self._active)
        twice = held_twice(self._active)
        if held - twice != self._held.used:
            raise ConservationError(f"{held} units held, {twice} of them twice, but {self._held.used} in use")

    # --- sharing --------------------------------------------------------------------------------------------------

    def _refresh_partners(self, *, decided: bool = False) -> None:
        """Find anew who shares units with whom, where anybody does or did, and at which ratio.

        `decided`: by the policy, which may only let jobs share that are allowed to, on as many units.
        """
        if not self._held.shared and not any(running.partners for running in self._active):
            return
        for running in self._active:
            partners: Counter[int] = Counter()
            for unit in running.units:
                for index in self._held.holders(unit):
                    if index != running.index:
                        partners[index] += 1
            same = partners.keys() == running.partners.keys()
            running.partners = dict(partners)
            if same and not (partners and self.interference is not None and self.interference.by_units):
                continue
            xi = max((self._xi(running, index) for index in partners), default=1.0)
            if not same or xi != running.xi:
                # What a leave makes of a pair is charged as it is; a decision may not choose what is not allowed.
                if decided and self.interference is not None and xi > self.interference.xi_max:
                    raise self._not_allowed(running, next(iter(partners)))
                running.xi = xi
                self._set_rate(running)

    def _xi(self, running: Running, beside: int) -> float:
        """The ratio of a job beside another, on as many units as it has."""
        sides = None if self.interference is None else self.interference.sides(running.job, self.jobs.jobs[beside])
        if sides is None:
            raise self._not_allowed(running, beside)
        return sides[0].of(len(running.units))

    def _not_allowed(self, running: Running, beside: int) -> PolicyError:
        a, b = running.job.name, self.jobs.jobs[beside].name
        return self._traits.refusal(
            f"it lets {a!r} and {b!r} share units, which no xi allows ({a!r} has {len(running.units)} units)"
        )

    # --- progress -------------------------------------------------------------------------------------------------

    def _charge(self, running: Running, seconds: float, kind: Literal["rescale", "start stall", "preemption"]) -> None:
        """Charge `seconds` of the job's time for a rescale, start or preemption, before its rate changes."""
        if self.rules.cost_model == "stall":
            self._stall(running, seconds, "stall" if kind == "rescale" else kind)
            return
        cost = min(seconds * running.rate, running.progress)  # progress never falls below 0
        if cost > 0:
            running.progress -= cost
            self.ledger.lost(running.record, cost, kind)

    def _stall(self, running: Running, seconds: float, kind: Loss) -> None:
        """Let a job make no progress for so long."""
        running.stall(self.now + round(seconds * SECOND_NS), kind)

    def _save(self, running: Running) -> None:
        """Bring a job's last checkpoint up to date; its rate has been the same since `rated_ns`."""
        interval = round(self.rules.checkpoint_interval_s * SECOND_NS)
        last = self.now
        if interval:
            last = running.begun_ns + (self.now - running.begun_ns) // interval * interval
        if last >= running.rated_ns and running.rate:
            since = max(0, self.now - max(last, running.stalled_until))
            running.saved = max(running.saved, running.progress - running.rate * (since / SECOND_NS))

    def _set_rate(self, running: Running) -> None:
        """Set rate and finish time from the units held."""
        job = running.job
        if self._traits.rigid:
            self._save(running)
        running.rated_ns = self.now
        running.ask_ns = NEVER
        if not running.units:
            running.partners, running.xi = {}, 1.0
        if running.dynamics is None:
            rate = float(job.rates[len(running.units)])
            if job.spread_slowdown > 1 and self._spread(running.units):
                rate /= job.spread_slowdown
        elif running.units:
            on = Counter(unit // self._units_per_node for unit in running.units)
            placement = tuple(sorted(on.values(), reverse=True))
            rate, until = running.dynamics.rate(placement, running.progress, max(self.now, running.stalled_until))
            running.ask_ns = NEVER if until is None else until
        else:
            rate = 0.0
        running.rate = rate / running.xi
        running.finish_ns = NEVER
        if running.rate > 0:
            begin = max(self.now, running.stalled_until)
            nanoseconds = (job.pmax - running.progress) / running.rate * SECOND_NS
            if nanoseconds < NEVER - begin - 1:
                whole = round(nanoseconds)
                if abs(nanoseconds - whole) > ROUNDING * nanoseconds:
                    whole = math.ceil(nanoseconds)
                running.finish_ns = begin + max(0, whole)

    def _spread(self, units: list[int]) -> bool:
        """Whether units lie on more nodes than needed."""
        per = self._units_per_node
        return len({unit // per for unit in units}) > -(-len(units) // per)
