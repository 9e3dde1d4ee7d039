"""The rules of docs/semantics.md as a plain program: what happens at an instant, what changes cost, which unit.

Exact fractions, lists, nothing kept that can be computed. It shares the data types of the package (jobs, traces, the
options of `Rules`) and none of its programs. Policies are functions of a `World` that return an `Answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil

from rules.admission import Promise, is_admitted

from bft.models import Job, JobTable
from bft.replay import Rules
from bft.replay.trace.node_trace import NodeTrace

SECOND = 1_000_000_000
# A job with at most this part of its work left at an instant is done.
DONE = Fraction(1, 10**12)
BOOKS = ("rescale", "preemption", "stall", "start", "restart")


@dataclass
class Answer:
    """What a policy decides: counts by job, or the units themselves; what is not named stays as it is."""

    counts: dict[int, int] = field(default_factory=dict)
    units: dict[int, list[int]] = field(default_factory=dict)
    wake_ns: int | None = None


@dataclass
class Playing:
    """A job in play; `units` are ordered by when it got them."""

    number: int
    job: Job
    units: list[int] = field(default_factory=list)
    done: Fraction = Fraction(0)
    stalls: list[tuple[int, str]] = field(default_factory=list)
    begun: int = 0
    trail: list[tuple[int, Fraction]] = field(default_factory=list)
    service: Fraction = Fraction(0)  # unit-seconds
    executed: Fraction = Fraction(0)  # seconds
    starts: int = 0
    rescales: int = 0  # decisions that changed its units and left it some
    meets: bool = (
        False  # on a node with another job that is spread over nodes, and spread itself
    )

    @property
    def sizes(self) -> list[int]:
        return list(self.job.sizes or range(max(self.job.jmin, 1), self.job.jmax + 1))

    @property
    def request(self) -> int:
        """Jreq; by default the smallest size that reaches 80 % of the rate at Jmax."""
        if self.job.jreq is not None:
            return self.job.jreq
        return next(
            n
            for n in self.sizes
            if rate_of(self.job, n) * 10 >= rate_of(self.job, self.job.jmax) * 8
        )

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
    points = [
        (int(n), Fraction(float(p)))
        for n, p in zip(job.scalability.ns, job.scalability.ps, strict=True)
    ]
    for (n0, p0), (n1, p1) in pairwise(points):
        if n0 <= units <= n1:
            return p0 + (p1 - p0) * Fraction(units - n0, n1 - n0)
    return points[-1][1]


@dataclass
class Told:
    """What a replay yields, to be compared."""

    end: int = 0
    work: dict[int, Fraction] = field(default_factory=dict)
    finish: dict[int, int] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    rescales: dict[int, int] = field(default_factory=dict)
    preemptions: dict[int, int] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    lost: dict[tuple[int, str], Fraction] = field(default_factory=dict)
    held: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # job, unit, from, to
    decisions: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # when, idle, used, jobs in play
    idle_s: Fraction = Fraction(0)  # unit-seconds within the window
    used_s: Fraction = Fraction(0)
    gain: Fraction = Fraction(0)  # of rescaled jobs, by their rates before
    paid: Fraction = Fraction(0)
    course: list[tuple[int, Fraction]] = field(
        default_factory=list
    )  # when, and what all jobs had done


class World:
    """A replay by the letter of the page."""

    def __init__(
        self,
        trace: NodeTrace,
        jobs: JobTable,
        policy: Callable[[World], Answer],
        options: Rules,
        *,
        rigid: bool = False,
        migrates: bool = False,
    ) -> None:
        self.policy, self.options, self.rigid, self.migrates = (
            policy,
            options,
            rigid,
            migrates,
        )
        self.jobs = list(jobs)
        self.per = per = trace.units_per_node
        self.nodes = len(trace.nodes)
        self.to_come = [
            (
                int(time),
                [n * per + k for n in trace.leaves(e).tolist() for k in range(per)],
                [n * per + k for n in trace.joins(e).tolist() for k in range(per)],
            )
            for e, time in enumerate(trace.times)
        ]
        self.now, self.end = trace.start, trace.end
        self.idle: dict[int, int] = {}  # unit -> when it turned idle
        self.play: list[Playing] = []  # in order of admission
        self.queue = sorted(
            range(len(self.jobs)), key=lambda j: (self.jobs[j].tsub_ns, j)
        )  # not submitted yet
        self.line: list[int] = []  # submitted, not in play
        self.got: dict[tuple[int, int], int] = {}  # (job, unit) -> since when
        self.given_up: dict[
            int, int
        ] = {}  # units that jobs gave back at this instant, and which job
        self.finished: list[Playing] = []  # since the policy was last asked
        self.rising = Fraction(0)  # by how much the last decision raised rates
        self.window = max(
            self.now, min((job.tsub_ns for job in self.jobs), default=self.now)
        )
        self.told = Told()

    # --- what a policy may look at ------------------------------------------------------------------------------------

    def holder(self, unit: int) -> Playing | None:
        return next((one for one in self.play if unit in one.units), None)

    def free(self) -> list[int]:
        """Idle units that nobody holds, those idle longest first, of these the lowest number."""
        free = [unit for unit in self.idle if self.holder(unit) is None]
        return sorted(free, key=lambda unit: (self.idle[unit], unit))

    # --- time ---------------------------------------------------------------------------------------------------------

    def run(self) -> Told:
        decided, pending, wake = None, False, None
        interval = round(self.options.min_interval_s * SECOND)
        while self.play or self.line or self.queue:
            ready = (
                self.now + 1
                if decided is None
                else max(decided + interval, self.now + 1)
            )
            instants = [one for one in map(self.finishes, self.play) if one is not None]
            instants += [max(self.jobs[j].tsub_ns, self.now) for j in self.queue[:1]]
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
            if (
                not pending
                or self.now >= self.end
                or (decided is not None and self.now < decided + interval)
            ):
                continue
            pending = False
            if self.play:
                decided, wake = self.now, self.decide()
        for one in self.play:
            self.drop(one, list(one.units))
            self.told.work[one.number] = one.done
            self.note(one)
        self.told.end = self.now
        return self.told

    def finishes(self, one: Playing) -> int | None:
        rate = self.rate(one)
        if not rate:
            return None
        return one.resumes(self.now) + max(
            0, ceil((Fraction(one.job.pmax) - one.done) / rate * SECOND)
        )

    def rate(self, one: Playing) -> Fraction:
        if len(one.units) not in one.sizes:
            return Fraction(0)
        rate, nodes = (
            rate_of(one.job, len(one.units)),
            {unit // self.per for unit in one.units},
        )
        if len(nodes) > -(-len(one.units) // self.per):
            rate /= Fraction(one.job.spread_slowdown)
        return (
            rate * (1 - Fraction(self.options.network_interference))
            if one.meets
            else rate
        )

    def all_done(self, instant: int) -> Fraction:
        """What all jobs had done at an earlier instant, since which nothing happened but progress."""
        return sum(
            (one.done_at(instant) if one.units else one.done for one in self.play),
            sum(self.told.work.values(), Fraction(0)),
        )

    def pass_time(self, then: int) -> None:
        inside = Fraction(max(0, then - max(self.now, self.window)), SECOND)
        self.told.idle_s += len(self.idle) * inside
        self.told.used_s += sum(len(one.units) for one in self.play) * inside
        self.told.gain += self.rising * Fraction(then - self.now, SECOND)
        middle = (self.now + then) // 2
        for one in self.play:
            if not one.units:
                continue
            rate, at, seconds = (
                self.rate(one),
                self.now,
                Fraction(then - self.now, SECOND),
            )
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
        if middle > self.now:
            self.told.course.append((middle, self.all_done(middle)))
        self.now = then

    # --- stages of an instant -----------------------------------------------------------------------------------------

    def finish(self) -> bool:
        running = [
            one
            for one in self.play
            if self.rate(one) and one.resumes(self.now) == self.now
        ]
        done = [
            one for one in running if one.done >= Fraction(one.job.pmax) * (1 - DONE)
        ]
        for one in done:
            self.told.finish[one.number], self.told.work[one.number] = (
                self.now,
                Fraction(one.job.pmax),
            )
            self.give_back(one, list(one.units))
            self.note(one)
            self.play.remove(one)
        self.finished += done
        self.meet()
        return bool(done)

    def leave_and_join(self) -> bool:
        if not self.to_come or self.to_come[0][0] != self.now:
            return False
        _, gone, come = self.to_come.pop(0)
        losers = [one for one in self.play if set(one.units) & set(gone)]
        for one in losers:
            rate = self.rate(one)
            self.drop(one, [unit for unit in one.units if unit in gone])
            self.told.preemptions[one.number] = (
                self.told.preemptions.get(one.number, 0) + 1
            )
            if self.rigid:
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
        saved = one.done_at(
            self.now - (self.now - one.begun) % every if every else self.now
        )
        self.lose(one, "preemption", one.done - saved)
        one.done = saved

    def admit(self) -> bool:
        while self.queue and self.jobs[self.queue[0]].tsub_ns <= self.now:
            number = self.queue.pop(0)
            if self.refuses(self.jobs[number]):
                self.told.refused.append(number)
            else:
                self.line.append(number)
        most, before = self.options.max_jobs or len(self.jobs), len(self.play)
        while self.line and len(self.play) < most:
            number = self.line.pop(0)
            self.play.append(Playing(number, self.jobs[number]))
        return len(self.play) > before

    def refuses(self, job: Job) -> bool:
        if self.options.admission == "all" or job.deadline_ns is None:
            return False
        known = [(one.job, one.done) for one in self.play] + [
            (self.jobs[j], Fraction(0)) for j in self.line
        ]
        promises = [
            self.promise(one, done)
            for one, done in known
            if one.deadline_ns is not None
        ]
        units = self.options.admission_units or len(self.idle)
        open_ones = [promise for promise in promises if promise.deadline > self.now]
        return not is_admitted(
            self.now, units, self.promise(job, Fraction(0)), open_ones
        )

    def promise(self, job: Job, done: Fraction) -> Promise:
        one = Playing(0, job)
        sizes = [one.request] if self.rigid else one.sizes
        rates = {n: rate_of(job, n) for n in sizes}
        return Promise(rates, Fraction(job.pmax) - done, job.deadline_ns or 0)

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
        self.told.decisions.append((self.now, len(self.idle), used, len(self.play)))
        return wake

    def carry_out(self, answer: Answer) -> None:
        """First all releases, then what jobs get, in order of admission."""
        before = {one.number: (len(one.units), self.rate(one)) for one in self.play}
        named = {
            n: units
            for n, units in answer.units.items()
            if set(units) != set(self.of(n).units)
        }
        wanted = {
            n: count
            for n, count in answer.counts.items()
            if count != len(self.of(n).units)
        }
        growing = []
        for one in self.play:
            had = list(one.units)
            if one.number in named:
                self.give_back(
                    one, [unit for unit in had if unit not in named[one.number]]
                )
                gets = len(named[one.number]) > len(one.units)
            elif one.number in wanted:
                self.give_back(
                    one, newest(had, len(had) - wanted[one.number], self.per)
                )
                gets = wanted[one.number] > len(one.units)
            else:
                continue
            if gets:
                growing.append(one)
            else:
                self.pay(one, *before[one.number])
        for one in growing:
            if one.number in named:
                units = [unit for unit in named[one.number] if unit not in one.units]
            else:
                units = self.choose(wanted[one.number] - len(one.units), one.units)
            for unit in units:
                self.got[one.number, unit] = self.now
            one.units += units
            self.pay(one, *before[one.number])
        self.meet()
        self.rising = sum(
            (
                self.rate(self.of(number)) - before[number][1]
                for number in {*named, *wanted}
                if before[number][0]
            ),
            Fraction(0),
        )

    def of(self, number: int) -> Playing:
        return next(one for one in self.play if one.number == number)

    def choose(self, count: int, near: Iterable[int]) -> list[int]:
        """Which free units a growing job takes."""
        return (
            longest_idle(self.free(), count)
            if self.per == 1
            else neighbours(self.free(), count, near, self.per)
        )

    def pay(self, one: Playing, had: int, rate: Fraction) -> None:
        """What a decision costs a job that had so many units, at its rate before."""
        count = len(one.units)
        if had:
            self.told.rescales[one.number] = self.told.rescales.get(one.number, 0) + 1
            one.rescales += bool(count)
        else:
            one.starts += 1
            self.told.start.setdefault(one.number, self.now)
            one.begun, one.trail = self.now, [(self.now, one.done)]
        seconds = one.job.tcdw_s if count < had else one.job.tcup_s
        self.charge(one, seconds, rate, "rescale" if had else "stall")
        if not count:
            self.end_run(one)
        elif not had and one.starts == 1:
            self.stall(one, Fraction(self.options.start_overhead_s), "start")
        elif not had:
            self.stall(one, self.restart_s(count) * self.waits(one), "restart")
        elif self.migrates:
            self.stall(one, self.restart_s(count), "move")

    def restart_s(self, count: int) -> Fraction:
        pairs = self.options.restart_overhead or ((1, 0.0),)
        return Fraction(
            next((seconds for upto, seconds in pairs if count <= upto), pairs[-1][1])
        )

    def waits(self, one: Playing) -> Fraction:
        """The part of a restart that does not overlap with other jobs on its units."""
        swapped = all(
            self.given_up.get(unit, one.number) != one.number for unit in one.units
        )
        return 1 - Fraction(self.options.restart_overlap) if swapped else Fraction(1)

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
            self.told.paid += work
        stalls = self.options.cost_model == "stall"
        book = {"rescale": "stall" if stalls else why, "move": "restart"}.get(why, why)
        self.told.lost[one.number, book] = (
            self.told.lost.get((one.number, book), Fraction(0)) + work
        )

    def drop(self, one: Playing, units: list[int]) -> None:
        """A job no longer holds these units."""
        self.told.held += [
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

    def note(self, one: Playing) -> None:
        if one.starts:
            self.told.starts[one.number] = one.starts

    def meet(self) -> None:
        """Which jobs on several nodes share a node with another such job."""
        if not self.options.network_interference:
            return
        nodes = {
            one.number: {unit // self.per for unit in one.units} for one in self.play
        }
        spread = [number for number, on in nodes.items() if len(on) > 1]
        for one in self.play:
            others = [
                number
                for number in spread
                if number != one.number and nodes[number] & nodes[one.number]
            ]
            one.meets = one.number in spread and bool(others)


# --- which unit -------------------------------------------------------------------------------------------------------


def longest_idle(free: list[int], count: int) -> list[int]:
    """The units of nodes of one unit that a growing job takes; `free` in the order of idle times."""
    return free[:count]


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


def neighbours(
    free: Iterable[int], count: int, near: Iterable[int], per: int
) -> list[int]:
    """On nodes of several units: on the job's own nodes first; then the emptiest nodes, the rest where it fits best."""
    room, own, taken = by_node(free, per), by_node(near, per), []
    ours = [node for node in own if node in room]
    for node in sorted(
        ours, key=lambda node: (-len(own[node]), -len(room[node]), node)
    ):
        taken += room[node][: count - len(taken)]
    room = {node: units for node, units in room.items() if node not in own}
    while len(taken) < count:
        node = tightest(room, count - len(taken))
        if node is None:
            node = min(room, key=lambda node: (-len(room[node]), node))
        taken += room.pop(node)[: count - len(taken)]
    return taken


def consolidated(free: Iterable[int], count: int, per: int) -> list[int] | None:
    """Whole free nodes, the first ones, and the rest on the tightest other node; None where there are none such."""
    room, taken = by_node(free, per), []
    for node in [node for node in sorted(room) if len(room[node]) == per][
        : count // per
    ]:
        taken += room.pop(node)
    if len(taken) < count // per * per:
        return None
    if count % per:
        node = tightest(room, count % per)
        if node is None:
            return None
        taken += room[node][: count % per]
    return taken


def newest(held: list[int], count: int, per: int) -> list[int]:
    """The units that a shrinking job releases."""
    if count <= 0:
        return []
    if per == 1:
        return held[len(held) - count :]
    own = by_node(held, per)
    return sorted(held, key=lambda unit: (len(own[unit // per]), -held.index(unit)))[
        :count
    ]
