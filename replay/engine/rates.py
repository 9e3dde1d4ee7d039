"""The clock of a replay: time passes, jobs progress at rates that follow from their units, and lose work.

`Rates.charge` takes work from a job; `loop` decides when: `_preempt` and `_stop` (preemption), `_pay` (rescale).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

from bft.replay.engine.ledger import Ledger, Loss
from bft.replay.engine.policy_api import (
    Ending,
    PolicyCall,
    PolicyError,
    RunInterval,
)
from bft.replay.engine.rules import Interference, Rules
from bft.replay.engine.running import NEVER, InPlay, Running
from bft.replay.engine.snapshot import NOT_STORED, StoredState
from bft.replay.engine.units import Holdings
from bft.replay.trace.node_trace import SECOND_NS


@dataclass(eq=False)
class Rates(StoredState):
    """The clock of a replay: it lets time pass, and updates the amounts of a job when its rate or its units change.

    A job with units on several nodes has network traffic. Where two such jobs share a node, each of the two goes at
    1 - `Rules.network_interference` of its rate, however many others it meets (as in the simulator of Pollux' artifact,
    OSDI'21).

    Parameters
    ----------
    begin
        The instant at which it begins, UTC ns.
    in_play, ledger
        The jobs, and where their amounts are recorded.
    held, rules, policy
        The machine, and the rules and policy of the replay.
    interference
        How much two jobs on a unit slow each other down; None: no policy may let them share.

    Attributes
    ----------
    now
        The instant up to which time has passed.
    asked_ns, ended
        When the policy was last asked, and the intervals of jobs that have ended since then, by name.
    """

    begin: InitVar[int]
    in_play: InPlay
    ledger: Ledger
    held: Holdings
    rules: Rules
    policy: PolicyCall
    interference: Interference | None = None
    now: int = field(default=0, init=False)
    asked_ns: int = field(default=0, init=False)
    ended: dict[str, list[RunInterval]] = field(default_factory=dict, init=False)
    # Jobs with stalls that are not charged yet, by position.
    _stalled: dict[int, Running] = field(
        default_factory=dict, init=False, metadata=NOT_STORED
    )

    def __post_init__(self, begin: int) -> None:
        self.now = self.asked_ns = begin
        self._rigid = self.policy.traits.rigid
        self._stalls = self.rules.cost_model == "stall"  # what changes cost is time
        self._save_every_ns = round(self.rules.checkpoint_interval_s * SECOND_NS)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`, after the jobs in play."""
        super().restore(state)
        stalled = (running for running in self.in_play.line if running.stalls)
        self._stalled = {running.index: running for running in stalled}

    def asked(self) -> None:
        """Forget the intervals that the policy has seen by now."""
        self.asked_ns = self.now
        self.ended = {}

    def pass_to(self, instant: int, idle: int, used: int) -> None:
        """Let time pass up to an instant, with these numbers of idle and used units."""
        if instant <= self.now:
            return
        begin, self.now = self.now, instant
        rate = self.in_play.rates.value
        if not self._stalled:
            self.ledger.passed(begin, instant, idle, used, rate)
            return
        stalled = self.in_play.of(self._stalled)
        stalls = [
            (running.stalled_until, running.rate)
            for running in stalled
            if running.rate and running.stalled_until > begin
        ]
        self.ledger.passed(begin, instant, idle, used, rate, stalls)
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
        for until, loss in running.stalls:
            end = min(until, self.now)
            if end > begin:
                work = running.rate * ((end - begin) / SECOND_NS)
                self.ledger.lost(running.record, work, loss)
                begin = end
        if running.stalled_until <= self.now:
            running.stalls.clear()
            self._stalled.pop(running.index, None)

    def charge(self, running: Running, seconds: float, loss: Loss) -> None:
        """Charge `seconds` of a settled job's time for a rescale, start or preemption, before its rate changes."""
        if self._stalls:
            self.stall(running, seconds, "stall" if loss == "rescale" else loss)
            return
        # Progress never falls below 0.
        cost = min(seconds * running.rate, running.progress)
        if cost > 0:
            running.progress -= cost
            self.ledger.lost(running.record, cost, loss)

    def stall(self, running: Running, seconds: float, loss: Loss) -> None:
        """Stop a settled job's progress for this long; the latest end of several stalls counts."""
        until = self.now + round(seconds * SECOND_NS)
        if until > running.stalled_until:
            running.stalls.append((until, loss))
            running.stalled_until = until
            self._stalled[running.index] = running

    def end_run(self, running: Running) -> None:
        """A job has lost its last unit: a remaining stall ends with the run to which it was charged."""
        running.stalled_until = 0
        running.stalls.clear()
        self._stalled.pop(running.index, None)

    def save(self, running: Running) -> None:
        """Bring a settled running job's last checkpoint up to date; its rate has been the same since `rated_ns`."""
        last, now, interval = self.now, self.now, self._save_every_ns
        if interval:
            last = running.begun_ns + (now - running.begun_ns) // interval * interval
        if last >= running.rated_ns:
            saved = running.progress
            since = now - max(last, running.stalled_until)
            if since > 0:
                saved -= running.rate * (since / SECOND_NS)
            if saved > running.saved:
                running.saved = saved

    def set_rate(self, running: Running, ended: Ending = "rate") -> None:
        """Set rate and finish time of a settled job from the units that it holds; `ended`: why what it did ends."""
        # What it has held since its rate was set is noted, as far as the policy does not know it.
        interval = running.interval(self.now, self.asked_ns, ended)
        if interval is not None:
            self.ended.setdefault(running.job.name, []).append(interval)
        running.ask_ns, before, rate = NEVER, running.rate, 0.0
        if running.units:
            if self._rigid and before:
                self.save(running)
            rate = self._rate_on_its_units(running) / running.xi
        elif running.partners:
            self.in_play.share(running, {})
            running.xi = 1.0
        if rate != before:
            self.in_play.rates.change(before, rate)
        running.set_rate(rate, self.now)
        self.in_play.plan(running)

    def _rate_on_its_units(self, running: Running) -> float:
        """Samples/s of a job that shares nothing; also sets until when that rate holds."""
        units, per = running.units, self.held.units_per_node
        kind = self.held.kind_of(units[0]) if self.held.kinds else ""
        job = running.job.on(kind) if kind else running.job
        if running.dynamics is None:
            rate: float = job.rates.item(len(units))
            if job.spread_slowdown > 1:
                nodes = {unit // per for unit in units}
                if len(nodes) > -(-len(units) // per):
                    rate /= job.spread_slowdown
            return rate / running.slowdown
        on = Counter(unit // per for unit in units)
        placement = tuple(sorted(on.values(), reverse=True))
        begin = max(self.now, running.stalled_until)
        rate, until = running.dynamics.rate(
            placement, running.progress, begin, running.slowdown, kind
        )
        running.ask_ns = NEVER if until is None else until
        return rate

    # --- jobs that slow each other down ---------------------------------------------------------------------------

    def refresh(
        self,
        changed: Collection[Running],
        beside: Iterable[int] = (),
        *,
        decided: bool = False,
    ) -> None:
        """Update what jobs do to each other, after the units of some have changed.

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
        if self.in_play.shared or self.held.shared:
            concerned = set(beside)
            for running in changed:
                concerned.add(running.index)
                concerned.update(running.partners)
                for unit in running.units:
                    concerned.update(self.held.holders(unit))
            for running in self.in_play.of(concerned):
                if running.units:
                    self._refresh_partners(running, decided=decided)
        if self.rules.network_interference:
            self._refresh_network()

    def _refresh_partners(self, running: Running, *, decided: bool) -> None:
        partners = Counter(
            index
            for unit in running.units
            for index in self.held.holders(unit)
            if index != running.index
        )
        same = partners.keys() == running.partners.keys()
        self.in_play.share(running, dict(partners))
        known = self.interference
        if same and not (partners and known is not None and known.by_units):
            return
        xi = max((self._xi(running, index) for index in partners), default=1.0)
        if same and xi == running.xi:
            return
        # A pair that a leave has changed is charged at its ratio; a decision may not choose a forbidden one.
        if decided and known is not None and xi > known.xi_max:
            raise self._not_allowed(running, next(iter(partners)))
        self.settle(running)
        running.xi = xi
        self.set_rate(running)

    def _xi(self, running: Running, beside: int) -> float:
        """The ratio of a job with its partner, on the units that it has."""
        partner, known = self.ledger.records[beside].job, self.interference
        sides = None if known is None else known.sides(running.job, partner)
        if sides is None:
            raise self._not_allowed(running, beside)
        return sides[0].of(len(running.units))

    def _not_allowed(self, running: Running, beside: int) -> PolicyError:
        a, b = running.job.name, self.ledger.records[beside].job.name
        return self.policy.refusal(
            f"it lets {a!r} and {b!r} share units, which no xi allows ({a!r} has {len(running.units)} units)"
        )

    def _refresh_network(self) -> None:
        """Find anew which jobs on several nodes meet others on one of these."""
        per = self.held.units_per_node
        nodes = {
            index: {unit // per for unit in running.units}
            for index, running in self.in_play.active.items()
        }
        spread = {index: on for index, on in nodes.items() if len(on) > 1}
        jobs_on = Counter(node for on in spread.values() for node in on)
        for running in self.in_play.of(self.in_play.active):
            meets = any(jobs_on[node] > 1 for node in spread.get(running.index, ()))
            slowdown = 1 / (1 - self.rules.network_interference) if meets else 1.0
            if slowdown != running.slowdown:
                self.settle(running)
                running.slowdown = slowdown
                self.set_rate(running)
