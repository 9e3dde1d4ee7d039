"""The event loop: time passes, jobs progress, the policy decides (docs/semantics.md).

Time is whole nanoseconds UTC, so that instants compare exactly and weeks of events do not drift; a finish is rounded up
to the next nanosecond. At one instant finishes come first, then what a workload orders, leaves, joins, submits, timers,
then one decision.

`_admit` holds the jobs in play at -maxJ; `_preempt` and `_stop` are a preemption; `_pay` is a rescale; `state` and
`tables` are what a checkpoint has.
"""

import json
import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from weakref import ref

from bft.models import InputError, Job, JobTable, Workload
from bft.replay.engine.deadlines import Due, is_admitted
from bft.replay.engine.host import Reserve
from bft.replay.engine.ledger import (
    Activity,
    ConservationError,
    JobRecord,
    Ledger,
    Outcome,
)
from bft.replay.engine.policy_api import (
    Decision,
    Ending,
    JobView,
    Policy,
    PolicyCall,
    PolicyError,
    Remembers,
    State,
)
from bft.replay.engine.rates import Rates
from bft.replay.engine.reallocation import Change, changes
from bft.replay.engine.rules import Interference, Rules
from bft.replay.engine.running import (
    DUE,
    NEVER,
    NEXT,
    InPlay,
    Running,
    Window,
    finished_view,
)
from bft.replay.engine.snapshot import restore_snapshot, snapshot
from bft.replay.engine.units import Holdings
from bft.replay.engine.workload_driver import WorkloadDriver
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.outlook import Outlook

# Status of a step without idle units, where no policy was asked.
NOTHING_IDLE = "nothing idle"
# Where there is no further event: when it comes, and the nodes that leave and join.
_NO_EVENT: tuple[int, list[int], list[int]] = (NEVER, [], [])


@dataclass(slots=True)
class _Place:
    """The position of a replay: jobs submitted and admitted, node events, decisions."""

    submitted: int = 0
    admitted: int = 0  # of those submitted, in their order
    event: int = 0  # the next one of the trace
    pending: bool = False  # something changed since the last decision
    decided_at: int = -NEVER
    wake_ns: int = NEVER
    finished: list[int] = field(default_factory=list)  # since the policy was last asked
    over: bool = False  # the trace has ended


class Replay:
    """One replay of jobs on a node trace under a policy.

    Parameters
    ----------
    trace, jobs, policy, rules
        The inputs and rules of the replay.
    interference
        How much two jobs on a unit slow each other down; None: no policy may let them share.
    without
        Positions of jobs that are never admitted; they count as never started.
    workload
        Who submits and cancels further jobs on the way; None: nobody.
    outlook
        Until when nodes of the trace may be expected to stay idle; None: nothing is known of that.

    Attributes
    ----------
    ledger, tables
        The records so far, and the recorded history among them, which only grows.

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> from bft.replay import EqualShare, always_idle
    >>> curve = Curve([0, 2, 4], [0, 20, 30])
    >>> job = Job("a", 0, 1, 4, pmax=3000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> replay = Replay(always_idle(4, 0, 600 * 10**9), JobTable((job,)), EqualShare())
    >>> replay.step()
    >>> replay.ledger.decisions, replay.peek()  # it will have finished after 100 s
    (1, 100000000000)
    """

    def __init__(
        self,
        trace: NodeTrace,
        jobs: JobTable,
        policy: Policy,
        rules: Rules = Rules(),
        interference: Interference | None = None,
        without: Collection[int] = (),
        workload: Workload | None = None,
        outlook: Outlook | None = None,
    ) -> None:
        self.trace, self.jobs, self.policy, self.rules = trace, jobs, policy, rules
        self.interference = interference
        self.ledger = Ledger(trace, jobs, without)
        self.tables = self.ledger.tables
        self._jobs = list(jobs)
        self._driver = None if workload is None else WorkloadDriver(workload, jobs)
        self._call = PolicyCall(policy.name, policy, limit_s=rules.policy_time_limit_s)
        if trace.kinds and not self._call.traits.kinds:
            raise self._call.refusal(
                "it knows no kinds of units, and those of this trace are of several"
            )
        self._held = Holdings(
            len(trace.nodes) * trace.units_per_node,
            trace.units_per_node,
            trace.kinds,
            trace.node_units,
            outlook if self._call.traits.expects else None,
        )
        self._reserve = Reserve(
            len(trace.nodes),
            trace.units_per_node,
            rules.reserve,
            active=rules.harms,
            free_first=rules.takes_free_first,
            returns=self.ledger.tables["returns"],
        )
        self._check_reserve(outlook)
        # What joins and leaves is a node of the trace, or one of its units.
        self._units_per_entry = 1 if trace.by_unit else trace.units_per_node
        # All jobs to be admitted, in order.
        self._queue = [index for index in jobs.by_submit() if index not in without]
        self._in_play = InPlay(self._jobs)
        self._rates = Rates(
            trace.start,
            self._in_play,
            self.ledger,
            self._held,
            rules,
            self._call,
            interference,
        )
        # Units given back at an instant, and by which jobs.
        self._given_up: dict[int, set[int]] = {}
        self._given_up_ns = -NEVER
        self._place = _Place()
        self._next: int | None = None  # the next instant, once it is known
        self._asked: State | None = None  # the state to be decided now
        self._window: ref[Window]  # the jobs of the state that was shown last
        self._profiled = any(job.profile is not None for job in jobs)
        self._min_interval_ns = round(rules.min_interval_s * SECOND_NS)
        # Whether other events than those of nodes lead to a decision.
        self._all_count = rules.events == "all"
        self._come_to(self._place)

    def _check_reserve(self, outlook: Outlook | None) -> None:
        """Refuse worlds in which nodes of the log cannot be exchanged or counted as those of host jobs."""
        rules, trace = self.rules, self.trace
        if rules.harms and (trace.kinds or trace.by_unit):
            what = "kinds" if trace.kinds else "traces"
            raise InputError(
                f"--return-time and --reserve are for whole nodes of one kind, not for {what} of units: "
                "logs do not say which units of its nodes a host job takes",
                hint="ingest --unit node makes a trace of whole nodes",
            )
        if rules.takes_free_first and outlook is not None and self._call.traits.expects:
            raise self._call.refusal(
                "it expects nodes of the log to stay idle; free nodes first exchanges them: --no-free-first"
            )

    @property
    def now(self) -> int:
        """The current instant, UTC nanoseconds."""
        return self._rates.now

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
            Called before each step; when it returns true, the replay ends there and its outcome is marked.
        before_close
            Called after the last step, while a replay could still continue from `state`.

        Raises
        ------
        PolicyError
            When the policy fails; `outcome` of the error holds the results up to then.
        """
        interrupted = False
        try:
            while self.peek() is not None:
                if should_stop is not None and should_stop():
                    interrupted = True
                    break
                self.step()
                if on_step is not None:
                    on_step(self.now)
            if before_close is not None:
                before_close()
        except PolicyError as error:
            error.outcome = self._close(interrupted=True)
            raise
        return self._close(interrupted=interrupted)

    def peek(self) -> int | None:
        """The next instant at which something happens (UTC ns); None at the end of the replay.

        The last instant is that of the last finish, or the trace's end.
        """
        place = self._place
        if place.over or not (self._in_play.line or place.admitted < len(self._queue)):
            return None
        if self._next is None:
            self._next = self._next_instant()
        return self._next if self._next < self.trace.end else self.trace.end

    def hear(self, instant: int, left: list[int], joined: list[int]) -> None:
        """Take the next event of a trace without events of its own, which is observed as the replay goes on.

        It is later than all that was handled; `peek` tells when that event has been handled too.
        """
        self._event = (instant, left, joined)
        self._next = None  # look anew

    def holders(self) -> dict[str, list[int]]:
        """Return the units that each job in play holds, by its name."""
        return {
            running.job.name: sorted(running.units) for running in self._in_play.line
        }

    def step(self) -> None:
        """Handle the next instant, the policy's decision included.

        Raises
        ------
        RuntimeError
            When `peek` is None.
        PolicyError
            When the policy fails.
        """
        if self.advance() is not None:
            self.decide(self._answer())

    def advance(self) -> State | None:
        """Handle the next instant up to its decision, for callers that decide instead of the policy.

        Returns
        -------
        State or None
            The state to be decided: `decide` must follow. None if there is no decision at this instant.

        Raises
        ------
        RuntimeError
            When `peek` is None.
        """
        instant = self.peek()
        if instant is None:
            raise RuntimeError(f"the replay ended at {self.now} ns")
        self._place.over = self._next is None or self._next > self.trace.end
        self._next = None
        if not self._happens(instant) or not self._in_play.line:
            return None
        self._place.decided_at = instant
        if self._reserve.active:
            self._reserve.top_up(self._held)
        if self._held.idle:
            self._asked = self._state(instant)
            return self._asked
        self._place.wake_ns = NEVER
        self.ledger.decided(instant, self._activity(), 0.0, status=NOTHING_IDLE)
        return None

    def decide(self, decision: Decision) -> None:
        """Carry out a decision on the state that `advance` returned.

        Raises
        ------
        PolicyError
            When the decision is not allowed.
        RuntimeError
            When there is no state to decide.
        """
        if self._asked is None:
            raise RuntimeError("nothing is to be decided: advance() returned no state")
        self._asked = None
        window = self._window()
        # Whoever still refers to the state that was shown goes on seeing the jobs as they were then.
        if window is not None:
            window.keep()
        self._rates.asked()
        place, self._next, now = self._place, None, self._rates.now
        if place.finished:
            place.finished = []
        place.wake_ns = NEVER
        try:
            if decision.wake_ns is not None:
                place.wake_ns = operator.index(decision.wake_ns)
            found = changes(decision, self._in_play, self._held, self._call)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self._call.refusal(
                f"it answered {decision!r:.200}, which is no decision: {error}"
            ) from error
        if place.wake_ns <= now:
            raise self._call.refusal(
                f"it asked to be woken at {decision.wake_ns} ns, and it is {now}"
            )
        before = []
        if found:
            before = [
                (change.running, change.running.rate)
                for change in found
                if change.running.units
            ]
            self._move(found)
        if self._profiled:
            self._ask_rates()
        self._conserve()
        rise = 0.0
        if before:
            rise = math.fsum([running.rate - earlier for running, earlier in before])
        self.ledger.decided(now, self._activity(), rise, decision.solution)
        if self._driver is not None:
            self._obey(self._driver, now + 1)

    def _close(self, *, interrupted: bool) -> Outcome:
        for (
            running
        ) in self._in_play.line:  # present holders held their units to the end
            self._rates.settle(running)
            self.ledger.released(running.index, running.units, self.now)
            running.record.work = running.progress
        return self.ledger.close(
            self.now,
            (self._idle, self._held.used, len(self._in_play.line), 0, 0.0),
            interrupted=interrupted,
            steered=self._driver is not None,
            taken=self._reserve.taken,
        )

    def state(self) -> dict[str, Any]:
        """The position of the replay between two steps as JSON values, for a checkpoint; without `tables`."""
        driver = self._driver
        return {
            "place": snapshot(self._place),
            "policy": self._policy_state(),
            "workload": None if driver is None else driver.state(),
            "queue": self._queue,
            "held": self._held.state(),
            "rates": self._rates.state(),
            "reserve": self._reserve.state(),
            "ledger": self.ledger.state(),
            "in_play": {
                str(running.index): snapshot(running) for running in self._in_play.line
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`; only in a new replay of the same trace, jobs, policy and rules, and with its `tables`."""
        restore_snapshot(self._place, state["place"])
        if isinstance(self.policy, Remembers):
            with self._call:
                self.policy.restore(state["policy"])
        if self._driver is not None:
            self._submitted(self._driver.restore(state["workload"]))
        self._queue = list(state["queue"])
        self._held.restore(state["held"])
        self._reserve.restore(state["reserve"])
        self.ledger.restore(state["ledger"])
        self._come_to(self._place)
        for name, entry in state["in_play"].items():
            running = self._new(int(name), self._queue.index(int(name)))
            restore_snapshot(running, entry)
            self._in_play.restored(running)
        self._rates.restore(state["rates"])

    def _submitted(self, jobs: Sequence[Job]) -> None:
        """Note jobs that were not there from the start."""
        self._jobs += jobs
        self.ledger.records += map(JobRecord, jobs)

    def _policy_state(self) -> dict[str, Any] | None:
        """Return the internal state of the policy."""
        if not isinstance(self.policy, Remembers):
            return None
        with self._call:
            state = self.policy.state()
            # In here, as it is the policy's fault if it fails.
            json.dumps(state, default=lambda value: value.item())
            return state

    def _happens(self, instant: int) -> bool:
        """Handle all events of an instant, in order; return whether a decision is due."""
        place = self._place
        self._rates.pass_to(instant, self._idle, self._held.used)
        finished = instant >= self._in_play.earliest(DUE) and self._finish()
        if self._driver is not None:
            self._obey(self._driver, instant)
            finished |= self._cancel(self._driver)
        touched = instant >= self._event[0]
        if touched:
            self._leave_and_join()
        admitted = place.admitted < len(self._queue) and self._admit()
        woken = place.wake_ns <= instant
        if woken:
            place.wake_ns = NEVER
        if touched or (self._all_count and (finished or admitted or woken)):
            place.pending = True
        if (
            not place.pending
            or instant >= self.trace.end
            or instant < place.decided_at + self._min_interval_ns
        ):
            return False
        place.pending = False
        return True

    def _come_to(self, place: _Place) -> None:
        """Look ahead from where the replay stands: to the next node event, and to the next submit."""
        self._events = self.trace.events(place.event)
        self._event = next(self._events, _NO_EVENT)
        self._submit_ns = self._submit(place.submitted)

    def _submit(self, number: int) -> int:
        """Return the instant at which the queued job of this number is submitted, NEVER where there is none."""
        return (
            self._jobs[self._queue[number]].tsub_ns
            if number < len(self._queue)
            else NEVER
        )

    def _next_instant(self) -> int:
        place, now = self._place, self._rates.now
        instant = self._in_play.earliest(NEXT)
        if self._event[0] < instant:
            instant = self._event[0]
        if place.wake_ns < instant and self._in_play.line:
            instant = place.wake_ns
        if self._submit_ns < instant:
            instant = max(self._submit_ns, now)
        if place.pending:
            instant = min(
                instant, max(place.decided_at + self._min_interval_ns, now + 1)
            )
        if self._driver is not None and self._driver.cancelled:
            instant = min(instant, now + 1)
        return instant

    @property
    def _idle(self) -> int:
        """Idle units, those kept from training among them."""
        return self._held.idle + self._reserve.kept_units

    # --- stages of an instant, in their order ---------------------------------------------------------------------

    def _finish(self) -> bool:
        due = self._in_play.due(self.now)
        done = [running for running in due if running.due_ns <= self.now]
        for running in due:
            if running.due_ns > self.now:
                self._rates.settle(running)
                if self._driver is not None:
                    self._driver.progressed(running)
                self._rates.set_rate(running)
        if not done:
            return False
        beside: set[int] = set()
        for running in done:
            beside.update(running.partners)
            self._rates.settle(running)
            record, job = running.record, running.job
            # A finish is rounded up to a nanosecond: work beyond the total is not counted.
            self.ledger.corrected(record, job.pmax - running.progress)
            running.progress = record.work = job.pmax
            record.finish_ns = self.now
            self._end(running, "finish")
            self._place.finished.append(running.index)
            if self._driver is not None:
                self._driver.finished(running)
        self._rates.refresh(done, beside)
        return True

    def _obey(self, driver: WorkloadDriver, earliest: int) -> None:
        """Tell the workload what has happened, and queue the jobs that it submits, from an instant on."""
        for running, progress, orders in driver.deliver(self.now, earliest):
            if orders.score is not None:
                score = self.now, running.index, progress, orders.score
                self.ledger.tables["scores"].add(score)
            for job in orders.submit:
                position = bisect_right(
                    self._queue,
                    job.tsub_ns,
                    self._place.submitted,
                    key=lambda index: self._jobs[index].tsub_ns,
                )
                self._queue.insert(position, len(self._jobs))
                self._submitted([job])
                self._submit_ns = self._submit(self._place.submitted)

    def _cancel(self, driver: WorkloadDriver) -> bool:
        """Stop for good the jobs that the workload has cancelled; return whether any of them was in play."""
        cancelled, place = dict.fromkeys(driver.cancelled), self._place
        driver.cancelled.clear()
        gone = [one for index in cancelled for one in self._in_play.of((index,))]
        beside: set[int] = set()
        for running in gone:
            beside.update(running.partners)
            self._rates.settle(running)
            self._end(running, "cancel")
            running.record.work = running.progress
            running.record.cancelled_ns = self.now
        for index in cancelled:
            if index in self._queue[place.admitted :]:
                position = self._queue.index(index, place.admitted)
                del self._queue[position]
                place.submitted -= position < place.submitted
                self._submit_ns = self._submit(place.submitted)
                self.ledger.records[index].cancelled_ns = self.now
        self._rates.refresh(gone, beside)
        return bool(gone)

    def _end(self, running: Running, ended: Ending) -> None:
        """A settled job leaves the play for good."""
        self._release(running, running.units)
        self._rates.end_run(running)
        self._rates.set_rate(running, ended)
        self._in_play.remove(running)

    def _leave_and_join(self) -> None:
        place, reserve = self._place, self._reserve
        _, leaving, joining = self._event
        # A scheduler that takes free nodes first has those that other host jobs return now, before it preempts.
        if joining and reserve.free_first:
            nodes = [reserve.node[filled] for filled in joining]
            self._held.join(self._units_of(nodes), place.event)
        if leaving:
            offered = leaving
            if reserve.active:
                offered = reserve.take(leaving, self._held, self._rates.now)
            from_training = self._preempt(self._units_of(offered))
            reserve.taken.add(len(leaving), from_training)
        if joining and not reserve.free_first:
            self._held.join(self._units_of(joining), place.event)
        units = self._units_per_entry
        self.ledger.since["joined"] += len(joining) * units
        self.ledger.since["left"] += len(leaving) * units
        place.event += 1
        self._event = next(self._events, _NO_EVENT)

    def _units_of(self, nodes: list[int]) -> list[int]:
        per = self._units_per_entry
        if per == 1:
            return nodes
        return [unit for node in nodes for unit in range(node * per, (node + 1) * per)]

    def _preempt(self, leaving: list[int]) -> int:
        """Take units back; a job that loses some keeps the others and pays Tcdw x its rate before the event, once.

        With `Rules.cost_model` "stall" the job makes no progress for Tcdw instead (`Rates.charge`). If the policy is
        rigid, the job stops, and loses its work since the last checkpoint.

        Returns
        -------
        int
            How many of the nodes any job held.
        """
        lost = self._held.take_back(leaving)
        if not lost:
            return 0
        losers = self._in_play.of(lost)
        beside: set[int] = set()
        for running in losers:
            if running.partners:
                beside.update(running.partners)
            self._rates.settle(running)
            self._give_up(running, lost[running.index])
            running.record.preemptions += 1
            self.ledger.since["preempted"] += 1
            running.since_ns = self._rates.now
            if self._call.traits.rigid:
                self._stop(running)
            else:
                self._rates.charge(running, running.job.tcdw_s, "preemption")
            if not running.units:
                self._rates.end_run(running)
            self._rates.set_rate(running, "leave")
        self._rates.refresh(losers, beside)
        if self._reserve.active:
            stopped = sum(not running.units for running in losers)
            row = self.now, len(losers), stopped
            self.ledger.tables["preemptions"].add(row)
        per = self._units_per_entry
        return len({unit // per for units in lost.values() for unit in units})

    def _stop(self, running: Running) -> None:
        """A rigid job has lost a unit: it returns to its last checkpoint, and waits."""
        self._rates.save(running)
        if running.progress > running.saved:
            lost = running.progress - running.saved
            self.ledger.lost(running.record, lost, "preemption")
            running.progress = running.saved
        if running.units:
            self._release(running, running.units)

    def _release(self, running: Running, units: Sequence[int]) -> None:
        """A settled job gives units back."""
        if self.rules.restart_overlap:
            # For jobs that start on these units in its place.
            if self._given_up_ns != self.now:
                self._given_up, self._given_up_ns = {}, self.now
            for unit in units:
                self._given_up.setdefault(unit, set()).add(running.index)
        self._held.release(running.index, units)
        if self._reserve.active:
            self._reserve.let_go(units, self.now)
        self._give_up(running, units)

    def _give_up(self, running: Running, units: Collection[int]) -> None:
        """A settled job no longer holds some units."""
        self.ledger.released(running.index, units, self._rates.now)
        rest: list[int] = []
        if len(units) < len(running.units):
            gone = set(units)
            rest = [unit for unit in running.units if unit not in gone]
        self._in_play.hold(running, rest)

    def _admit(self) -> bool:
        place, queue = self._place, self._queue
        while self._submit_ns <= self.now:
            if self._refuses(queue[place.submitted]):
                record = self.ledger.records[queue.pop(place.submitted)]
                record.refused_ns, record.left_out = self.now, True
            else:
                place.submitted += 1
            self._submit_ns = self._submit(place.submitted)
        before, max_jobs = place.admitted, self.rules.max_jobs or NEVER
        while place.admitted < place.submitted and len(self._in_play.line) < max_jobs:
            self._in_play.add(self._new(queue[place.admitted], place.admitted))
            place.admitted += 1
        return place.admitted > before

    def _refuses(self, index: int) -> bool:
        """Whether a job that is submitted now has a deadline that cannot be kept beside those of the others."""
        if self.rules.admission == "all" or self._jobs[index].deadline_ns is None:
            return False
        place = self._place
        waiting = self._queue[place.admitted : place.submitted]
        due = [
            *(
                self._due(one.job, one.progress_at(self.now))
                for one in self._in_play.line
            ),
            *(self._due(self._jobs[each], 0.0) for each in waiting),
        ]
        open_ones = [
            one for one in due if one is not None and one.deadline_ns > self.now
        ]
        newcomer = self._due(self._jobs[index], 0.0)
        units = self.rules.admission_units or self._held.idle
        return newcomer is None or not is_admitted(self.now, units, newcomer, open_ones)

    def _due(self, job: Job, progress: float) -> Due | None:
        """Return the work that a job with a deadline still needs, None for a job without a deadline."""
        if job.deadline_ns is None:
            return None
        sizes: tuple[int, ...] = (job.request,)
        if not self._call.traits.rigid:
            sizes = tuple(job.allowed.nonzero()[0].tolist()[1:])
        return Due(job.rates, sizes, job.pmax - progress, job.deadline_ns)

    def _new(self, index: int, turn: int) -> Running:
        record = self.ledger.records[index]
        profile, tunes = record.job.profile, self._call.traits.tunes
        dynamics = None if profile is None else profile.start(tunes=tunes)
        running = Running(index, turn, record.job, record, dynamics)
        if self._driver is not None:
            running.rungs = self._driver.rungs(running.job)
        return running

    # --- the decision ---------------------------------------------------------------------------------------------

    def _answer(self) -> Decision:
        """Ask the policy, and return its decision."""
        began = perf_counter()
        with self._call:
            answer: object = self.policy.decide(self._asked)  # type: ignore[arg-type]  # there is a state
        self.ledger.tables["seconds"].add((perf_counter() - began,))
        if not isinstance(answer, Decision):
            raise self._call.refusal(
                f"it answered {answer!r:.100}; expected a Decision"
            )
        return answer

    def _state(self, now: int) -> State:
        held, rates, finished = self._held, self._rates, self._place.finished
        clairvoyant = self._call.traits.clairvoyant
        jobs = Window(self._in_play, now, rates.asked_ns, clairvoyant, held.used)
        self._window = ref(jobs)
        ended: tuple[JobView, ...] = ()
        if finished:
            ended = tuple(finished_view(self.ledger.records[each]) for each in finished)
        return State(now, held.idle, jobs, held, ended, rates.ended)

    def _activity(self) -> Activity:
        held, play = self._held, self._in_play
        return self._idle, held.used, len(play.line), len(play.active), play.rates.value

    def _ask_rates(self) -> None:
        """Compute the rates of jobs again whose running the policy may have changed."""
        for running in self._in_play.of(self._in_play.active):
            if running.dynamics is not None:
                self._rates.settle(running)
                self._rates.set_rate(running)

    def _move(self, found: list[Change]) -> None:
        """Move units as decided: all releases come before any grant, then each job pays."""
        beside: set[int] = set()
        shapes: dict[int, tuple[str, list[int]]] = {}
        for change in found:
            running = change.running
            self._rates.settle(running)
            if self.rules.free_moves and running.units:
                shapes[running.index] = self._held.shape(running.units)
            if running.partners:
                beside.update(running.partners)
            if change.released:
                before = len(running.units)
                self._release(running, change.released)
                if not change.gains:
                    self._pay(running, before)
        for change in found:
            if change.gains:
                running = change.running
                before = len(running.units) + len(change.released)
                granted = change.granted or self._held.take(
                    change.gains, near=running.units, kind=change.kind
                )
                self._held.grant(running.index, granted)
                self.ledger.granted(running.index, granted, self.now)
                self._in_play.hold(running, [*running.units, *granted])
                shape = shapes.get(running.index)
                if shape is not None and shape == self._held.shape(running.units):
                    self._rates.set_rate(running)
                else:
                    self._pay(running, before, elsewhere=change.elsewhere)
        moved = [change.running for change in found]
        self._rates.refresh(moved, beside, decided=True)

    def _conserve(self) -> None:
        """Check that every idle unit is free or held, and held once unless it is shared."""
        held, twice = self._in_play.held, self._in_play.shared // 2
        if held - twice != self._held.used:
            raise ConservationError(
                f"{held} units held, {twice} of them twice, but {self._held.used} in use"
            )

    def _pay(self, running: Running, before: int, *, elsewhere: bool = False) -> None:
        """A decision changed the units of a job that had `before`; it pays at its rate before.

        `elsewhere`: to units of another kind, which is a restart whatever their number.
        """
        record, job, rates = running.record, running.job, self._rates
        running.since_ns = now = rates.now
        after = len(running.units)
        if before:
            record.rescales += 1
            self.ledger.since["rescaled"] += 1
        else:
            record.starts += 1
            if record.start_ns is None:
                record.start_ns = now
            if self._driver is not None and record.starts == 1:
                self._driver.started(running)
        seconds = job.tcdw_s if after < before and not elsewhere else job.tcup_s
        rates.charge(running, seconds, "rescale" if before else "start stall")
        if not after:
            running.saved = (
                running.progress
            )  # a job that is asked to stop saves its work
            rates.end_run(running)
            record.stops += 1
        elif not before:
            running.begun_ns = now
            if record.starts == 1:
                own = job.restart_s
                seconds = self.rules.start_overhead_s if own is None else own
                rates.stall(running, seconds, "start")
            else:
                seconds = self._restart_s(running) * self._share_to_wait(running)
                rates.stall(running, seconds, "restart")
        elif self._call.traits.migrates or elsewhere:
            rates.stall(running, self._restart_s(running), "move")
        rates.set_rate(running)

    def _restart_s(self, running: Running) -> float:
        """Seconds without progress after a job's later start, or its move, to the units that it holds."""
        own = running.job.restart_s
        return self.rules.restart_s(len(running.units)) if own is None else own

    def _share_to_wait(self, running: Running) -> float:
        """The part of a restart's overhead that does not overlap with other jobs on the same units until now."""
        if self._given_up_ns != self.now:
            return 1.0
        own = {running.index}
        handed_over = all(self._given_up.get(unit, own) - own for unit in running.units)
        return 1.0 - self.rules.restart_overlap if handed_over else 1.0
