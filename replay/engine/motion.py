"""The progress of the jobs in play: their rates, their losses, and their finishes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bft.replay.engine.agenda import Agenda
from bft.replay.engine.in_play import InPlay
from bft.replay.engine.intervals import NONE_ENDED, EndedIntervals, Ending, Row
from bft.replay.engine.ledger import Ledger, Loss
from bft.replay.engine.moves import Traits
from bft.replay.engine.rules import Rules
from bft.replay.engine.running import NEVER, Running
from bft.replay.trace.node_trace import SECOND_NS


class Motion:
    """Lets time pass. The amounts of a job are updated when its rate or its units change, not at every instant.

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
        self._in_play, self._ledger, self._rigid = in_play, ledger, traits.rigid
        self._stalls = rules.cost_model == "stall"  # what changes cost is time
        self._units_per_node, self._kinds = units_per_node, kinds
        self._save_every_ns = round(rules.checkpoint_interval_s * SECOND_NS)
        self._stalled: dict[int, Running] = {}  # jobs with stalls that are not charged yet, by position

    def state(self) -> dict[str, Any]:
        """What jobs have held since the policy was last asked, for a checkpoint."""
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
        """The policy knows what jobs have held until now."""
        self.asked_ns = self.now
        if self._rows:
            self._rows = []

    @property
    def ended(self) -> EndedIntervals:
        """What jobs have held since the policy was last asked and hold no longer."""
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
            stalls = [(r.stalled_until, r.rate) for r in stalled if r.rate and r.stalled_until > begin]
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
                self._ledger.lost(running.record, running.rate * ((end - begin) / SECOND_NS), kind)
                begin = end
        if running.stalled_until <= self.now:
            running.stalls.clear()
            self._stalled.pop(running.index, None)

    def charge(self, running: Running, seconds: float, kind: Literal["rescale", "start stall", "preemption"]) -> None:
        """Charge `seconds` of a settled job's time for a rescale, start or preemption, before its rate changes."""
        if self._stalls:
            self.stall(running, seconds, "stall" if kind == "rescale" else kind)
            return
        cost = min(seconds * running.rate, running.progress)  # progress never falls below 0
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
            since = now - (last if last > running.stalled_until else running.stalled_until)
            saved = running.progress - running.rate * (since / SECOND_NS) if since > 0 else running.progress
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
            units, shared, stall_ns = running.rated_units, running.rated_shared, running.rated_stall_ns
            self._rows.append((running.job.name, begin, self.now, units, shared, stall_ns, running.rate, ended))

    def _rate_on_its_units(self, running: Running) -> float:
        """Samples/s of a job that shares nothing; also sets until when that rate holds."""
        job = running.job
        if self._kinds:
            job = job.on(self._kinds[running.units[0] // self._units_per_node])
        if running.dynamics is None:
            rate: float = job.rates.item(len(running.units))
            if job.spread_slowdown > 1 and self._spread(running.units):
                rate /= job.spread_slowdown
            return rate / running.slowdown
        on = Counter(unit // self._units_per_node for unit in running.units)
        placement = tuple(sorted(on.values(), reverse=True))
        begin = max(self.now, running.stalled_until)
        rate, until = running.dynamics.rate(placement, running.progress, begin, running.slowdown)
        running.ask_ns = NEVER if until is None else until
        return rate

    def _spread(self, units: list[int]) -> bool:
        """Whether units lie on more nodes than needed."""
        per = self._units_per_node
        return len({unit // per for unit in units}) > -(-len(units) // per)
