"""The rules of docs/semantics.md as a plain program: what happens at an instant, what changes cost, which unit.

Exact fractions, lists, nothing kept that can be computed. It shares the data types of the package (jobs, traces, the
options of `Rules`) and none of its programs. Policies are functions of a `World` that return an `Answer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil

from rules.admission import SECOND, Promise, is_admitted

from bft.models import Job, JobTable
from bft.replay import NodeTrace, Rules, Traits

# A job with at most this part of its work left at an instant is done.
DONE = Fraction(1, 10**12)
# Seconds of a job on units on which it makes no progress.
ENDLESS = Fraction(10**30)


@dataclass
class Answer:
    """What a policy decides: counts by job, or the units themselves; what is not named stays as it is."""

    counts: dict[int, int] = field(default_factory=dict)
    units: dict[int, list[int]] = field(default_factory=dict)
    wake_ns: int | None = None


@dataclass
class Playing:
    """A job and what has become of it; `units` are ordered by when it got them."""

    number: int
    job: Job
    units: list[int] = field(default_factory=list)
    done: Fraction = Fraction(0)
    stalls: list[tuple[int, str]] = field(default_factory=list)
    begun: int = 0
    trail: list[tuple[int, Fraction]] = field(default_factory=list)
    service: Fraction = Fraction(0)  # unit-seconds
    executed: Fraction = Fraction(0)  # seconds
    start: int | None = None
    finish: int | None = None
    refused: bool = False
    # Starts, preemptions, decisions that changed its units, and those of them that left it none.
    times: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    # On a node with another job that is spread over nodes, and spread itself.
    meets: bool = False

    @property
    def sizes(self) -> list[int]:
        return list(self.job.sizes or range(max(self.job.jmin, 1), self.job.jmax + 1))

    @property
    def request(self) -> int:
        """Jreq; by default the smallest size that reaches 80 % of the rate at Jmax."""
        return self.job.jreq or next(
            n
            for n in self.sizes
            if rate_of(self.job, n) * 10 >= rate_of(self.job, self.job.jmax) * 8
        )

    @property
    def left(self) -> Fraction:
        return Fraction(self.job.pmax) - self.done

    def seconds(self, units: int) -> Fraction:
        """How long what is left takes on a number of units."""
        rate = rate_of(self.job, units)
        return self.left / rate if rate else ENDLESS

    def resumes(self, now: int) -> int:
        return max([now, *(until for until, _ in self.stalls)])

    def done_at(self, instant: int) -> Fraction:
        """The progress at an earlier instant of this run."""
        later = next(k for k, (at, _) in enumerate(self.trail) if at >= instant)
        if self.trail[later][0] == instant or not later:
            return self.trail[later][1]
        (t0, p0), (t1, p1) = self.trail[later - 1], self.trail[later]
        return p0 + (p1 - p0) * Fraction(instant - t0, t1 - t0)


def rate_of(job: Job, units: int) -> Fraction:
    """P at a number of units on which the job runs, linear between the points of its curve, constant after them."""
    curve = zip(job.scalability.ns, job.scalability.ps, strict=True)
    points = [(int(n), Fraction(float(p))) for n, p in curve]
    for (n0, p0), (n1, p1) in pairwise(points):
        if n0 <= units <= n1:
            return p0 + (p1 - p0) * Fraction(units - n0, n1 - n0)
    return points[-1][1]


class World:
    """A replay by the letter of the page."""

    def __init__(
        self,
        trace: NodeTrace,
        jobs: JobTable,
        policy: Callable[[World], Answer],
        options: Rules,
        traits: Traits,
    ) -> None:
        self.policy = policy
        self.options = options
        self.traits = traits
        self.per = trace.units_per_node
        changes = (
            (time, trace.leaves(event).tolist(), trace.joins(event).tolist())
            for event, time in enumerate(trace.times.tolist())
        )
        self.to_come = [
            (time, self.units_of(left), self.units_of(joined))
            for time, left, joined in changes
        ]
        self.now = trace.start
        self.end = trace.end
        self.idle: dict[int, int] = {}  # unit -> when it turned idle
        self.jobs = [Playing(number, job) for number, job in enumerate(jobs)]
        self.play: list[Playing] = []  # in order of admission
        # Not submitted yet; submitted, but not in play.
        self.queue = sorted(self.jobs, key=lambda one: one.job.tsub_ns)
        self.line: list[Playing] = []
        self.got: dict[tuple[int, int], int] = {}  # (job, unit) -> since when
        # Units that jobs gave back at this instant, and which job.
        self.given_up: dict[int, int] = {}
        self.finished: list[Playing] = []  # since the policy was last asked
        self.rising = Fraction(0)  # by how much the last decision raised rates
        self.window = max([self.now, *(one.job.tsub_ns for one in self.queue[:1])])
        # What is compared beside the jobs: who held which unit from when to when; when, idle, used, jobs in play;
        # unit-seconds within the window; what rescaled jobs gain by their rates before, and what that has cost; when,
        # and what all jobs had done.
        self.held: list[tuple[int, int, int, int]] = []
        self.decisions: list[tuple[int, int, int, int]] = []
        self.idle_s = self.used_s = self.gain = self.paid = Fraction(0)
        self.course: list[tuple[int, Fraction]] = []

    def units_of(self, nodes: list[int]) -> list[int]:
        return [node * self.per + k for node in nodes for k in range(self.per)]

    # --- what a policy may look at ------------------------------------------------------------------------------------

    def free(self) -> list[int]:
        """Idle units that nobody holds, those idle longest first, of these the lowest number."""
        held = {unit for one in self.play for unit in one.units}
        return sorted(self.idle.keys() - held, key=lambda unit: (self.idle[unit], unit))

    # --- time ---------------------------------------------------------------------------------------------------------

    def run(self) -> World:
        decided, pending, wake = None, False, None
        interval = round(self.options.min_interval_s * SECOND)
        while self.play or self.line or self.queue:
            ready = self.now + 1
            if decided is not None:
                ready = max(decided + interval, ready)
            instants = [one for one in map(self.finishes, self.play) if one is not None]
            instants += [max(one.job.tsub_ns, self.now) for one in self.queue[:1]]
            instants += [time for time, _, _ in self.to_come[:1]]
            instants += [wake] if wake is not None and self.play else []
            instants += [ready] if pending else []
            then = min(instants, default=self.end + 1)
            self.pass_time(min(then, self.end))
            if then > self.end:
                break
            self.given_up = {}
            finished = self.finish()
            changed = self.leave_and_join()
            admitted = self.admit()
            woken = wake is not None and wake <= self.now
            wake = None if woken else wake
            pending |= changed or (
                self.options.events == "all" and (finished or admitted or woken)
            )
            early = decided is not None and self.now < decided + interval
            if not pending or self.now >= self.end or early:
                continue
            pending = False
            if self.play:
                decided, wake = self.now, self.decide()
        for one in self.play:
            self.drop(one, list(one.units))
        return self

    def finishes(self, one: Playing) -> int | None:
        rate = self.rate(one)
        if not rate:
            return None
        return one.resumes(self.now) + max(0, ceil(one.left / rate * SECOND))

    def rate(self, one: Playing) -> Fraction:
        if len(one.units) not in one.sizes:
            return Fraction(0)
        rate = rate_of(one.job, len(one.units))
        if len(by_node(one.units, self.per)) > -(-len(one.units) // self.per):
            rate /= Fraction(one.job.spread_slowdown)
        if one.meets:
            rate *= 1 - Fraction(self.options.network_interference)
        return rate

    def all_done(self, instant: int) -> Fraction:
        """What all jobs had done at an earlier instant, since which nothing happened but progress."""
        done = (one.done_at(instant) if one.units else one.done for one in self.jobs)
        return sum(done, Fraction(0))

    def pass_time(self, then: int) -> None:
        inside = Fraction(max(0, then - max(self.now, self.window)), SECOND)
        seconds = Fraction(then - self.now, SECOND)
        self.idle_s += len(self.idle) * inside
        self.used_s += sum(len(one.units) for one in self.play) * inside
        self.gain += self.rising * seconds
        for one in self.play:
            if not one.units:
                continue
            rate, at = self.rate(one), self.now
            one.service += len(one.units) * seconds
            one.executed += seconds
            one.trail.append((self.now, one.done))
            for until, why in one.stalls:
                if min(until, then) > at:  # charged from the end of those before it
                    self.lose(one, why, rate * Fraction(min(until, then) - at, SECOND))
                    at = min(until, then)
            one.trail.append((at, one.done))
            one.done += rate * Fraction(then - at, SECOND)
            one.trail.append((then, one.done))
        middle = (self.now + then) // 2
        if middle > self.now:
            self.course.append((middle, self.all_done(middle)))
        self.now = then

    # --- stages of an instant -----------------------------------------------------------------------------------------

    def finish(self) -> bool:
        done = [
            one
            for one in self.play
            if self.rate(one)
            and one.resumes(self.now) == self.now
            and one.left <= Fraction(one.job.pmax) * DONE
        ]
        for one in done:
            one.finish = self.now
            one.done = Fraction(one.job.pmax)
            self.give_back(one, list(one.units))
            self.play.remove(one)
        self.finished += done
        self.meet()
        return bool(done)

    def leave_and_join(self) -> bool:
        if not self.to_come or self.to_come[0][0] != self.now:
            return False
        _, gone, come = self.to_come.pop(0)
        for one in [one for one in self.play if set(one.units) & set(gone)]:
            rate = self.rate(one)
            self.drop(one, [unit for unit in one.units if unit in gone])
            one.times["preemptions"] += 1
            if self.traits.rigid:
                self.return_to_checkpoint(one)
                self.give_back(one, list(one.units))
            else:
                self.charge(one, one.job.tcdw_s, rate, "preemption")
            if not one.units:
                self.end_run(one)
        for unit in gone:
            del self.idle[unit]
        self.idle |= dict.fromkeys(come, self.now)
        self.meet()
        return True

    def return_to_checkpoint(self, one: Playing) -> None:
        every = round(self.options.checkpoint_interval_s * SECOND)
        since = (self.now - one.begun) % every if every else 0
        saved = one.done_at(self.now - since)
        self.lose(one, "preemption", one.done - saved)
        one.done = saved

    def admit(self) -> bool:
        while self.queue and self.queue[0].job.tsub_ns <= self.now:
            one = self.queue.pop(0)
            one.refused = self.refuses(one)
            self.line += [] if one.refused else [one]
        most, before = self.options.max_jobs or len(self.jobs), len(self.play)
        while self.line and len(self.play) < most:
            self.play.append(self.line.pop(0))
        return len(self.play) > before

    def refuses(self, newcomer: Playing) -> bool:
        if self.options.admission == "all" or newcomer.job.deadline_ns is None:
            return False
        known = [one for one in (*self.play, *self.line) if one.job.deadline_ns]
        promises = [self.promise(one) for one in known]
        open_ones = [promise for promise in promises if promise.deadline > self.now]
        units = self.options.admission_units or len(self.idle)
        return not is_admitted(self.now, units, self.promise(newcomer), open_ones)

    def promise(self, one: Playing) -> Promise:
        sizes = [one.request] if self.traits.rigid else one.sizes
        rates = {n: rate_of(one.job, n) for n in sizes}
        return Promise(rates, one.left, one.job.deadline_ns or 0)

    # --- the decision -------------------------------------------------------------------------------------------------

    def decide(self) -> int | None:
        wake = None
        if self.idle:
            answer = self.policy(self)
            self.finished, wake = [], answer.wake_ns
            self.carry_out(answer)
        else:
            self.rising = Fraction(0)
        used = sum(len(one.units) for one in self.play)
        self.decisions.append((self.now, len(self.idle), used, len(self.play)))
        return wake

    def carry_out(self, answer: Answer) -> None:
        """First all releases, then what jobs get, in order of admission."""
        jobs = self.jobs
        before = {one.number: (len(one.units), self.rate(one)) for one in self.play}
        named = {n: u for n, u in answer.units.items() if set(u) != set(jobs[n].units)}
        wanted = {n: k for n, k in answer.counts.items() if k != len(jobs[n].units)}
        wanted |= {n: len(units) for n, units in named.items()}
        growing = []
        for one in [one for one in self.play if one.number in wanted]:
            keeps = named.get(one.number, one.units)
            gone = [unit for unit in one.units if unit not in keeps]
            if one.number not in named:
                gone = newest(one.units, len(one.units) - wanted[one.number], self.per)
            self.give_back(one, gone)
            if wanted[one.number] > len(one.units):
                growing.append(one)
            else:
                self.pay(one, *before[one.number])
        for one in growing:
            if one.number in named:
                units = [unit for unit in named[one.number] if unit not in one.units]
            else:
                units = self.choose(wanted[one.number] - len(one.units), one.units)
            self.got |= {(one.number, unit): self.now for unit in units}
            one.units += units
            self.pay(one, *before[one.number])
        self.meet()
        rises = (self.rate(jobs[n]) - before[n][1] for n in wanted if before[n][0])
        self.rising = sum(rises, Fraction(0))

    def choose(self, count: int, near: list[int]) -> list[int]:
        """Which free units a growing job takes."""
        free = self.free()
        if self.per == 1:
            return free[:count]
        return neighbours(free, count, near, self.per)

    def pay(self, one: Playing, had: int, rate: Fraction) -> None:
        """What a decision costs a job that had so many units, at its rate before."""
        count = len(one.units)
        one.times["rescales" if had else "starts"] += 1
        if had:
            one.times["stops"] += not count
        else:
            one.start = self.now if one.start is None else one.start
            one.begun, one.trail = self.now, [(self.now, one.done)]
        seconds = one.job.tcdw_s if count < had else one.job.tcup_s
        self.charge(one, seconds, rate, "rescale" if had else "stall")
        if not count:
            self.end_run(one)
        elif not had and one.times["starts"] == 1:
            self.stall(one, Fraction(self.options.start_overhead_s), "start")
        elif not had:
            self.stall(one, self.restart_s(count) * self.waits(one), "restart")
        elif self.traits.migrates:
            self.stall(one, self.restart_s(count), "move")

    def restart_s(self, count: int) -> Fraction:
        pairs = self.options.restart_overhead or ((1, 0.0),)
        fitting = (seconds for upto, seconds in pairs if count <= upto)
        return Fraction(next(fitting, pairs[-1][1]))

    def waits(self, one: Playing) -> Fraction:
        """The part of a restart that does not overlap with other jobs on its units."""
        givers = {self.given_up.get(unit, one.number) for unit in one.units}
        overlap = 0 if one.number in givers else self.options.restart_overlap
        return 1 - Fraction(overlap)

    def charge(self, one: Playing, seconds: float, rate: Fraction, why: str) -> None:
        if self.options.cost_model == "stall":
            self.stall(one, Fraction(seconds), why)
            return
        cost = min(Fraction(seconds) * rate, one.done)  # progress never falls below 0
        one.done -= cost
        self.lose(one, why, cost)

    def stall(self, one: Playing, seconds: Fraction, why: str) -> None:
        one.stalls.append((self.now + round(seconds * SECOND), why))

    # --- books --------------------------------------------------------------------------------------------------------

    def lose(self, one: Playing, why: str, work: Fraction) -> None:
        if why in ("rescale", "move"):  # the price of what rescales gain
            self.paid += work
        stalls = self.options.cost_model == "stall"
        book = {"rescale": "stall" if stalls else why, "move": "restart"}.get(why, why)
        one.lost[book] += work

    def drop(self, one: Playing, units: list[int]) -> None:
        """A job no longer holds these units."""
        self.held += [
            (one.number, unit, self.got.pop((one.number, unit)), self.now)
            for unit in units
        ]
        one.units = [unit for unit in one.units if unit not in units]

    def give_back(self, one: Playing, units: list[int]) -> None:
        self.drop(one, units)
        self.given_up |= dict.fromkeys(units, one.number)

    def end_run(self, one: Playing) -> None:
        """A stall belongs to a run."""
        one.stalls, one.trail = [], []

    def meet(self) -> None:
        """Which jobs on several nodes share a node with another such job."""
        if not self.options.network_interference:
            return
        nodes = {one.number: {*by_node(one.units, self.per)} for one in self.play}
        spread = {number: on for number, on in nodes.items() if len(on) > 1}
        for one in self.play:
            own = spread.get(one.number, set())
            one.meets = any(own & on for k, on in spread.items() if k != one.number)


# --- which unit -------------------------------------------------------------------------------------------------------


def by_node(units: Iterable[int], per: int) -> dict[int, list[int]]:
    """The units of each node, ascending."""
    nodes: dict[int, list[int]] = {}
    for unit in sorted(units):
        nodes.setdefault(unit // per, []).append(unit)
    return nodes


def tightest(room: dict[int, list[int]], count: int) -> int | None:
    """The node with the fewest free units that has room for so many, of equal ones the first."""
    able = [node for node in room if len(room[node]) >= count]
    return min(able, key=lambda node: (len(room[node]), node), default=None)


def emptiest(room: dict[int, list[int]]) -> list[int]:
    """The nodes, those with most free units first."""
    return sorted(room, key=lambda node: (-len(room[node]), node))


def neighbours(
    free: Iterable[int], count: int, near: Iterable[int], per: int
) -> list[int]:
    """On nodes of several units: on the job's own nodes first; then the emptiest nodes, the rest where it fits best."""
    room, own, taken = by_node(free, per), by_node(near, per), []
    ours = [node for node in emptiest(room) if node in own]
    for node in sorted(ours, key=lambda node: -len(own[node])):
        taken += room[node][: count - len(taken)]
    room = {node: units for node, units in room.items() if node not in own}
    while len(taken) < count:
        node = tightest(room, count - len(taken))
        node = emptiest(room)[0] if node is None else node
        taken += room.pop(node)[: count - len(taken)]
    return taken


def consolidated(free: Iterable[int], count: int, per: int) -> list[int] | None:
    """Whole free nodes, the first ones, and the rest on the tightest other node; None where there are none such."""
    room, taken = by_node(free, per), []
    whole = [node for node in room if len(room[node]) == per][: count // per]
    for node in whole:
        taken += room.pop(node)
    rest = count - len(taken)
    node = tightest(room, rest)
    if len(whole) < count // per or (rest and node is None):
        return None
    return taken + (room[node][:rest] if rest else [])


def newest(held: list[int], count: int, per: int) -> list[int]:
    """The units that a shrinking job releases."""
    own = by_node(held, per)
    fewest = held[::-1]
    if per > 1:
        fewest.sort(key=lambda unit: len(own[unit // per]))
    return fewest[: max(count, 0)]
