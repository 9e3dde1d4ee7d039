"""The progress of the jobs in play: rates, losses and finishes; slow-downs by shared units and by the network.

`Motion.charge` takes work from a job; `loop` decides when: `_preempt` and `_stop` (preemption), `_pay` (rescale).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from bft.models import Job
from bft.replay.engine.agenda import Agenda
from bft.replay.engine.history import NONE_ENDED, EndedIntervals, Ending, Row
from bft.replay.engine.ledger import Ledger, Loss
from bft.replay.engine.policy_api import PolicyError, Traits
from bft.replay.engine.rules import Interference, Rules
from bft.replay.engine.running import NEVER, InPlay, Running
from bft.replay.engine.units import Holdings
from bft.replay.trace.node_trace import SECOND_NS


class Motion:
    """The clock of a replay: it lets time pass, and updates the amounts of a job when its rate or its units change.

    Parameters
    ----------
    now
        The instant at which it begins, UTC ns.
    in_play, ledger
        The jobs, and where their amounts are recorded.
    rules, traits, units_per_node, kinds
        Of the replay, its policy and its machine; `kinds` of each node, empty where all are alike.

    Attributes
    ----------
    now
        The instant up to which time has passed.
    agenda
        When jobs finish or are to be asked.
    asked_ns
        When the policy was last asked.
    """

    def __init__(
        self,
        now: int,
        in_play: InPlay,
        ledger: Ledger,
        rules: Rules,
        traits: Traits,
        units_per_node: int,
        kinds: Sequence[str] = (),
    ) -> None:
        self.now = now
        self.agenda = Agenda(in_play.active)
        self.asked_ns = now
        self._rows: list[Row] = []
        self._in_play, self._ledger, self._rigid = in_play, ledger, traits.kind.rigid
        self._stalls = rules.cost_model == "stall"  # what changes cost is time
        self._units_per_node, self._kinds = units_per_node, kinds
        self._save_every_ns = round(rules.checkpoint_interval_s * SECOND_NS)
        self._stalled: dict[
            int, Running
        ] = {}  # jobs with stalls that are not charged yet, by position

    def state(self) -> dict[str, Any]:
        """Return the intervals that have ended since the policy was last asked, for a checkpoint."""
        return {"asked_ns": self.asked_ns, "ended": [list(row) for row in self._rows]}

    def restored(self, now: int, state: Mapping[str, Any]) -> None:
        """The jobs in play are restored to their state at an instant; so is what `state` has stored."""
        self.now, self.asked_ns = now, state["asked_ns"]
        self._rows = [tuple(row) for row in state["ended"]]
        for running in self._in_play:
            self.agenda.put(running)
            if running.stalls:
                self._stalled[running.index] = running

    def asked(self) -> None:
        """Forget the intervals that the policy has seen by now."""
        self.asked_ns = self.now
        if self._rows:
            self._rows = []

    @property
    def ended(self) -> EndedIntervals:
        """Return the intervals of jobs that have ended since the policy was last asked."""
        return EndedIntervals(self._rows) if self._rows else NONE_ENDED

    def pass_to(self, instant: int, idle: int, used: int) -> None:
        """Let time pass up to an instant, with these numbers of idle and used units."""
        if instant > self.now:
            begin, self.now = self.now, instant
            rate = self._in_play.rates.value
            if not self._stalled:
                self._ledger.passed(begin, instant, idle, used, rate)
                return
            stalled = list(self._stalled.values())
            if len(stalled) > 1:
                stalled.sort(key=lambda running: running.turn)
            stalls = [
                (r.stalled_until, r.rate)
                for r in stalled
                if r.rate and r.stalled_until > begin
            ]
            self._ledger.passed(begin, instant, idle, used, rate, stalls)
            for running in stalled:  # stalls are charged as they pass
                self.settle(running)

    def settle(self, running: Running) -> None:
        """Update a job's amounts: add its work since the last update, subtract the cost of stalls."""
        now = self.now
        if running.units and now > running.settled_ns:
            record, seconds = running.record, (now - running.settled_ns) / SECOND_NS
            record.unit_seconds += len(running.units) * seconds
            record.run_seconds += seconds
            if running.rate:
                record.gained += running.rate * seconds
                progress = running.progress_at(now)
                if running.stalls:
                    self._charge_stalls(running)
                running.progress = progress
        running.settled_ns = now

    def _charge_stalls(self, running: Running) -> None:
        """Charge a job for its stalls, each up to its end."""
        begin = running.settled_ns
        for until, kind in running.stalls:
            end = min(until, self.now)
            if end > begin:
                self._ledger.lost(
                    running.record, running.rate * ((end - begin) / SECOND_NS), kind
                )
                begin = end
        if running.stalled_until <= self.now:
            running.stalls.clear()
            self._stalled.pop(running.index, None)

    def charge(
        self,
        running: Running,
        seconds: float,
        kind: Literal["rescale", "start stall", "preemption"],
    ) -> None:
        """Charge `seconds` of a settled job's time for a rescale, start or preemption, before its rate changes."""
        if self._stalls:
            self.stall(running, seconds, "stall" if kind == "rescale" else kind)
            return
        cost = min(
            seconds * running.rate, running.progress
        )  # progress never falls below 0
        if cost > 0:
            running.progress -= cost
            self._ledger.lost(running.record, cost, kind)

    def stall(self, running: Running, seconds: float, kind: Loss) -> None:
        """Stop a settled job's progress for this long."""
        running.stall(self.now + round(seconds * SECOND_NS), kind)
        if running.stalls:
            self._stalled[running.index] = running

    def end_run(self, running: Running) -> None:
        """A job has lost its last unit."""
        running.end_run()
        self._stalled.pop(running.index, None)

    def save(self, running: Running) -> None:
        """Bring a settled running job's last checkpoint up to date; its rate has been the same since `rated_ns`."""
        last, now, interval = self.now, self.now, self._save_every_ns
        if interval:
            last = running.begun_ns + (now - running.begun_ns) // interval * interval
        if last >= running.rated_ns:
            since = now - (
                last if last > running.stalled_until else running.stalled_until
            )
            saved = (
                running.progress - running.rate * (since / SECOND_NS)
                if since > 0
                else running.progress
            )
            if saved > running.saved:
                running.saved = saved

    def set_rate(self, running: Running, ended: Ending = "rate") -> None:
        """Set rate and finish time of a settled job from the units that it holds; `ended`: why what it did ends."""
        if running.rated_units and running.rated_ns < self.now:
            self._note(running, ended)
        running.ask_ns, before, rate = NEVER, running.rate, 0.0
        if running.units:
            if self._rigid and before:
                self.save(running)
            rate = self._rate_on_its_units(running) / running.xi
        elif running.partners:
            self._in_play.share(running, {})
            running.xi = 1.0
        if rate != before:
            self._in_play.rates.change(before, rate)
        running.set_rate(rate, self.now)
        if running.rungs:
            running.ask_at_rung()
        self.agenda.put(running)

    def _note(self, running: Running, ended: Ending) -> None:
        """Note what a job has held since its rate was set, as far as the policy does not know it."""
        begin = running.rated_ns if running.rated_ns > self.asked_ns else self.asked_ns
        if begin < self.now:
            units, shared, stall_ns = (
                running.rated_units,
                running.rated_shared,
                running.rated_stall_ns,
            )
            self._rows.append(
                (
                    running.job.name,
                    begin,
                    self.now,
                    units,
                    shared,
                    stall_ns,
                    running.rate,
                    ended,
                )
            )

    def _rate_on_its_units(self, running: Running) -> float:
        """Samples/s of a job that shares nothing; also sets until when that rate holds."""
        kind = (
            self._kinds[running.units[0] // self._units_per_node] if self._kinds else ""
        )
        job = running.job.on(kind)
        if running.dynamics is None:
            rate: float = job.rates.item(len(running.units))
            if job.spread_slowdown > 1 and self._spread(running.units):
                rate /= job.spread_slowdown
            return rate / running.slowdown
        on = Counter(unit // self._units_per_node for unit in running.units)
        placement = tuple(sorted(on.values(), reverse=True))
        begin = max(self.now, running.stalled_until)
        # Dynamics of one's own need to know of kinds only where there are some.
        of_kind = (kind,) if kind else ()
        rate, until = running.dynamics.rate(
            placement, running.progress, begin, running.slowdown, *of_kind
        )
        running.ask_ns = NEVER if until is None else until
        return rate

    def _spread(self, units: list[int]) -> bool:
        """Whether units lie on more nodes than needed."""
        per = self._units_per_node
        return len({unit // per for unit in units}) > -(-len(units) // per)


class Partners:
    """Keeps the partners of running jobs up to date, and their rates with them.

    Parameters
    ----------
    jobs, in_play, held, motion, traits
        Of the replay.
    interference
        How much two jobs on a unit slow each other down; None: no policy may let them share.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        in_play: InPlay,
        held: Holdings,
        motion: Motion,
        traits: Traits,
        interference: Interference | None,
    ) -> None:
        self._jobs, self._in_play, self._held, self._motion, self._traits = (
            jobs,
            in_play,
            held,
            motion,
            traits,
        )
        self._interference = interference

    def refresh(
        self,
        changed: Iterable[Running],
        beside: Iterable[int] = (),
        *,
        decided: bool = False,
    ) -> None:
        """Update the partners of jobs whose units have changed, and of their former and new partners.

        Parameters
        ----------
        changed
            The jobs whose units have changed.
        beside
            Former partners, by position in the table.
        decided
            Whether the policy caused the change: then only allowed pairs may share, at allowed sizes.

        Raises
        ------
        PolicyError
            When a pair or size is not allowed.
        """
        if not self._in_play.shared and not self._held.shared:
            return
        concerned = set(beside)
        for running in changed:
            concerned.add(running.index)
            concerned.update(running.partners)
            for unit in running.units:
                concerned.update(self._held.holders(unit))
        for running in self._in_play.of(concerned):
            if running.units:
                self._refresh(running, decided=decided)

    def _refresh(self, running: Running, *, decided: bool) -> None:
        partners = Counter(
            index
            for unit in running.units
            for index in self._held.holders(unit)
            if index != running.index
        )
        same = partners.keys() == running.partners.keys()
        self._in_play.share(running, dict(partners))
        if same and not (
            partners and self._interference is not None and self._interference.by_units
        ):
            return
        xi = max((self._xi(running, index) for index in partners), default=1.0)
        if not same or xi != running.xi:
            # A pair that a leave has changed is charged at its ratio; a decision may not choose a forbidden one.
            if (
                decided
                and self._interference is not None
                and xi > self._interference.xi_max
            ):
                raise self._not_allowed(running, next(iter(partners)))
            self._motion.settle(running)
            running.xi = xi
            self._motion.set_rate(running)

    def _xi(self, running: Running, beside: int) -> float:
        """The ratio of a job with its partner, on the units that it has."""
        sides = (
            None
            if self._interference is None
            else self._interference.sides(running.job, self._jobs[beside])
        )
        if sides is None:
            raise self._not_allowed(running, beside)
        return sides[0].of(len(running.units))

    def _not_allowed(self, running: Running, beside: int) -> PolicyError:
        a, b = running.job.name, self._jobs[beside].name
        return self._traits.refusal(
            f"it lets {a!r} and {b!r} share units, which no xi allows ({a!r} has {len(running.units)} units)"
        )


class Network:
    """Keeps the slow-down of jobs by the network up to date.

    A job with units on several nodes has network traffic. Where two such jobs share a node, each of the two goes at
    1 - `interference` of its rate, however many others it meets (as in the simulator of Pollux' artifact, OSDI'21).

    Parameters
    ----------
    interference
        Part of the rate that is lost, in [0, 1); 0: nothing is kept up to date.
    in_play, motion, units_per_node
        Of the replay.
    """

    def __init__(
        self, interference: float, in_play: InPlay, motion: Motion, units_per_node: int
    ) -> None:
        self._slowdown = 1 / (1 - interference)
        self._in_play, self._motion, self._per = in_play, motion, units_per_node
        self._nodes: dict[
            int, frozenset[int]
        ] = {}  # of each spread job, by position in the table
        self._jobs: dict[int, set[int]] = {}  # the spread jobs on each node

    def refresh(self, changed: Iterable[Running]) -> None:
        """Find anew whom the jobs meet whose units have changed, and those that did or do meet them."""
        if self._slowdown == 1:
            return
        concerned: set[int] = set()
        for running in changed:
            concerned.add(running.index)
            for node in self._placed(running):
                concerned.update(self._jobs[node])
        for running in self._in_play.of(concerned):
            meets = any(
                len(self._jobs[node]) > 1 for node in self._nodes.get(running.index, ())
            )
            slowdown = self._slowdown if meets else 1.0
            if slowdown != running.slowdown:
                self._motion.settle(running)
                running.slowdown = slowdown
                self._motion.set_rate(running)

    def restored(self) -> None:
        """The jobs in play hold again what they did."""
        for running in self._in_play:
            self._placed(running)

    def _placed(self, running: Running) -> frozenset[int]:
        """Note on which nodes a job is spread; those where that has changed."""
        nodes = frozenset(unit // self._per for unit in running.units)
        now = nodes if len(nodes) > 1 else frozenset()
        before = self._nodes.pop(running.index, frozenset())
        if now:
            self._nodes[running.index] = now
        for node in before - now:
            self._jobs[node].discard(running.index)
        for node in now - before:
            self._jobs.setdefault(node, set()).add(running.index)
        return before ^ now
