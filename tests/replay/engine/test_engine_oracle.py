"""Replays held against a second simulator, written otherwise: exact fractions, sets of units, everything recomputed.

All numbers are such that doubles hold them exactly (rates 1, 2, 4 and whole seconds), hence both must agree to the
last bit. Which of the free units a job takes is the engine's choice: the simulator asks it, and refuses what is not
allowed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import ClassVar

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import sizes

from bft.models import Curve, Job, JobTable
from bft.replay.engine.ledger import BOOKS, Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.policies import (
    Decision,
    EqualShare,
    JobView,
    Kind,
    MilpPolicy,
    Policy,
    State,
)
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import NodeTrace, from_changes

SECOND = 1_000_000_000
START = 1_613_000_000 * SECOND


def sizes_of(job: Job) -> list[int]:
    """The numbers of units on which a job runs."""
    return list(job.sizes or range(max(job.jmin, 1), job.jmax + 1))


@dataclass
class Whimsical:
    """A valid allocation that follows no sense but always the same one: it shakes every transition out."""

    seed: int
    name: str = "whimsical"

    def decide(self, state: State) -> Decision:
        left, counts = state.idle, []
        for k, view in enumerate(state.jobs):
            told = f"{self.seed} {k} {state.time_ns} {state.idle} {view.job.name} {view.units} {left}"
            dice = zlib.crc32(told.encode())
            allowed = [0, *(n for n in sizes_of(view.job) if n <= left)]
            keep = view.units in allowed and dice % 3 == 0
            counts.append(view.units if keep else allowed[dice // 3 % len(allowed)])
            left -= counts[-1]
        return Decision(tuple(counts))


@dataclass
class WhimsicalRigid:
    """The same for jobs that keep their size: it starts waiting ones, and stops running ones, as it likes."""

    seed: int
    name: str = "whimsical-rigid"
    kind: ClassVar[Kind] = Kind(rigid=True)

    def decide(self, state: State) -> Decision:
        counts = [view.units for view in state.jobs]
        left = state.idle - sum(counts)
        for k, view in enumerate(state.jobs):
            dice = zlib.crc32(
                f"{self.seed} {k} {state.time_ns} {view.job.name} {view.units}".encode()
            )
            if view.units:
                counts[k] = 0 if dice % 5 == 0 else view.units
            elif left >= max(view.job.jmin, 1) and dice % 4:
                allowed = [n for n in sizes_of(view.job) if n <= left]
                counts[k] = allowed[dice // 4 % len(allowed)]
                left -= counts[k]
        return Decision(tuple(counts))


@dataclass
class Told:
    """What a simulation yields."""

    end: int = 0
    progress: dict[int, Fraction] = field(default_factory=dict)
    finish: dict[int, int] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)
    starts: Counter[int] = field(default_factory=Counter)
    lost: dict[str, Fraction] = field(
        default_factory=lambda: dict.fromkeys(BOOKS, Fraction(0))
    )
    preemptions: int = 0
    window: int = 0
    idle_unit_ns: int = 0
    used_unit_ns: int = 0
    extra_gain: Fraction = Fraction(0)
    paid: Fraction = Fraction(0)
    decisions: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # when, idle, used
    work: list[tuple[int, Fraction]] = field(
        default_factory=list
    )  # when, what all jobs had done


@dataclass
class Run:
    """A period of a job from its first unit until it has none again.

    It is thrown away then, with all that was under way in it.
    """

    begun: int
    units: dict[int, int]  # and since when it has each
    pauses: list[tuple[int, str]] = field(
        default_factory=list
    )  # until when it makes no progress, and why
    trail: list[tuple[int, Fraction]] = field(
        default_factory=list
    )  # progress at each kink, linear in between

    def resumes(self, now: int) -> int:
        return max([now, *(until for until, _ in self.pauses)])

    def progress_at(self, instant: int) -> Fraction:
        later = next(k for k, (at, _) in enumerate(self.trail) if at >= instant)
        if self.trail[later][0] == instant:
            return self.trail[later][1]
        (t0, p0), (t1, p1) = self.trail[later - 1], self.trail[later]
        return p0 + (p1 - p0) * Fraction(instant - t0, t1 - t0)


BOOK_OF = {"start stall": "stall"}


class Simulator:
    """The world of docs/semantics.md as sets of units and lists of things to come."""

    def __init__(
        self,
        trace: NodeTrace,
        jobs: JobTable,
        policy: Policy,
        rules: Rules,
        choice: Outcome,
    ) -> None:
        self.jobs, self.policy, self.rules = list(jobs), policy, rules
        per = trace.units_per_node
        self.node_events = {
            int(time): (
                {n * per + k for n in trace.leaves(e).tolist() for k in range(per)},
                {n * per + k for n in trace.joins(e).tolist() for k in range(per)},
            )
            for e, time in enumerate(trace.times)
        }
        self.start, self.end = trace.start, trace.end
        self.choice = choice.allocations
        self.in_play: dict[int, Run | None] = {}  # job -> its run; None: it waits
        self.idle: set[int] = set()
        self.rising = Fraction(
            0
        )  # by how much more those do that the last decision rescaled
        self.told = Told(progress={j: Fraction(0) for j in range(len(self.jobs))})
        self.told.window = max(self.start, min(job.tsub_ns for job in self.jobs))
        self.rigid = getattr(policy, "kind", Kind()).rigid

    def held(self, j: int) -> dict[int, int]:
        run = self.in_play[j]
        return {} if run is None else run.units

    def rate(self, j: int) -> Fraction:
        n, job = len(self.held(j)), self.jobs[j]
        return (
            Fraction(float(job.scalability.at(n)))
            if n in sizes_of(job)
            else Fraction(0)
        )

    def lose(self, why: str, work: Fraction) -> None:
        self.told.lost[BOOK_OF.get(why, why)] += work
        if why in ("rescale", "stall"):
            self.told.paid += work

    def charge(self, j: int, run: Run, seconds: float, why: str, now: int) -> None:
        """Before the units change."""
        if self.rules.cost_model == "stall":
            run.pauses.append(
                (now + int(seconds * SECOND), "stall" if why == "rescale" else why)
            )
            return
        cost = min(Fraction(seconds) * self.rate(j), self.told.progress[j])
        self.told.progress[j] -= cost
        self.lose(why, cost)

    def finish_at(self, j: int, now: int) -> int | None:
        run, rate = self.in_play[j], self.rate(j)
        if run is None or not rate:
            return None
        left = (Fraction(self.jobs[j].pmax) - self.told.progress[j]) / rate
        return run.resumes(now) + ceil(left * SECOND)

    def engine_gave(self, j: int, now: int) -> set[int]:
        rows = self.choice[(self.choice["job"] == j) & (self.choice["start_ns"] == now)]
        return {
            u
            for row in rows.itertuples()
            for u in range(int(row.first_unit), int(row.last_unit) + 1)
        }  # type: ignore[arg-type]

    def engine_took(self, j: int, now: int) -> set[int]:
        rows = self.choice[(self.choice["job"] == j) & (self.choice["end_ns"] == now)]
        return {
            u
            for row in rows.itertuples()
            for u in range(int(row.first_unit), int(row.last_unit) + 1)
        }  # type: ignore[arg-type]

    def run(self) -> Told:
        told, now = self.told, self.start
        order = sorted(range(len(self.jobs)), key=lambda j: (self.jobs[j].tsub_ns, j))
        waiting = list(order)
        decided: int | None = None
        pending = False
        to_come = sorted(self.node_events)
        submits = sorted({max(job.tsub_ns, self.start) for job in self.jobs})
        while self.in_play or waiting:
            due = {
                j: at
                for j in self.in_play
                if (at := self.finish_at(j, now)) is not None
            }
            instants = [*to_come, *submits, *due.values()]
            timer = (
                None
                if decided is None
                else decided + int(self.rules.min_interval_s * SECOND)
            )
            if pending and timer is not None:
                instants.append(max(timer, now + 1))
            then = min(instants, default=self.end + 1)
            target = min(then, self.end)
            self.pass_time(now, target)
            now = target
            if then > self.end:
                break
            done = [j for j, at in due.items() if at == now]
            for j in done:
                told.finish[j] = now
                told.progress[j] = Fraction(self.jobs[j].pmax)
                del self.in_play[j]
            gone: set[int] = set()
            touched = bool(to_come) and to_come[0] == now
            if touched:
                to_come.pop(0)
                gone, come = self.node_events[now]
                for j, run in self.in_play.items():
                    if run is not None and gone & run.units.keys():
                        told.preemptions += 1
                        self.preempt(j, run, gone, now)
                assert gone <= self.idle
                assert not come & self.idle
                self.idle = (self.idle - gone) | come
            submits = [at for at in submits if at > now]
            admitted = False
            while (
                waiting
                and self.jobs[waiting[0]].tsub_ns <= now
                and len(self.in_play) < self.rules.max_jobs
            ):
                self.in_play[waiting.pop(0)] = None
                admitted = True
            pending = pending or (
                touched
                if self.rules.events == "node"
                else bool(touched or done or admitted)
            )
            ready = decided is None or now >= decided + int(
                self.rules.min_interval_s * SECOND
            )
            if pending and ready and now < self.end:
                pending = False
                if self.in_play:
                    decided = now
                    self.decide(now, gone)
            told.work.append((now, sum(told.progress.values(), Fraction(0))))
        told.end = now
        return told

    def preempt(self, j: int, run: Run, gone: set[int], now: int) -> None:
        left = {u: since for u, since in run.units.items() if u not in gone}
        if self.rigid:
            interval = int(self.rules.checkpoint_interval_s * SECOND)
            saved = run.progress_at(
                now - (now - run.begun) % interval if interval else now
            )
            self.lose("preemption", self.told.progress[j] - saved)
            self.told.progress[j] = saved
            left = {}
        else:
            self.charge(j, run, self.jobs[j].tcdw_s, "preemption", now)
        run.units = left
        if not left:
            self.in_play[j] = None

    def pass_time(self, now: int, then: int) -> None:
        told, middle = self.told, (now + then) // 2
        halfway = sum(told.progress.values(), Fraction(0))
        for j, run in self.in_play.items():
            if run is None:
                continue
            rate, at = self.rate(j), now
            run.trail.append((now, told.progress[j]))
            for until, why in run.pauses:
                if until > at:
                    self.lose(
                        why, rate * Fraction(min(until, then) - min(at, then), SECOND)
                    )
                    at = until
            if at < then:
                run.trail.append((at, told.progress[j]))
                told.progress[j] += rate * Fraction(then - at, SECOND)
                halfway += rate * Fraction(max(middle - at, 0), SECOND)
            run.trail.append((then, told.progress[j]))
            told.used_unit_ns += len(run.units) * max(0, then - max(now, told.window))
        told.idle_unit_ns += len(self.idle) * max(0, then - max(now, told.window))
        told.extra_gain += self.rising * Fraction(then - now, SECOND)
        told.work.append((middle, halfway))

    def decide(self, now: int, gone: set[int]) -> None:
        views = tuple(
            JobView(self.jobs[j], len(self.held(j)), 0.0) for j in self.in_play
        )
        state = State(now, len(self.idle), views)
        counts = (
            self.policy.decide(state).counts_in(state)
            if self.idle
            else (0,) * len(views)
        )
        self.rising = Fraction(0)
        for (j, run), n in zip(list(self.in_play.items()), counts, strict=True):
            if run is not None and n < len(run.units):
                released = self.engine_took(j, now) - gone
                assert released <= run.units.keys()
                assert len(run.units) - len(released) == n
                kept = run.units.keys() - released
                newest = max((run.units[u] for u in kept), default=0)
                assert newest <= min(run.units[u] for u in released), "newest go first"
                before = self.rate(j)
                self.charge(j, run, self.jobs[j].tcdw_s, "rescale", now)
                run.units = {u: run.units[u] for u in kept}
                if not n:
                    self.in_play[j] = None
                self.rising += self.rate(j) - before
        for (j, run), n in zip(list(self.in_play.items()), counts, strict=True):
            if n > len(self.held(j)):
                given = self.engine_gave(j, now)
                free = self.idle - {
                    u for other in self.in_play for u in self.held(other)
                }
                assert given <= free
                assert len(self.held(j)) + len(given) == n
                if run is not None:
                    before = self.rate(j)
                    self.charge(j, run, self.jobs[j].tcup_s, "rescale", now)
                    run.units = run.units | dict.fromkeys(given, now)
                    self.rising += self.rate(j) - before
                    continue
                self.in_play[j] = run = Run(now, dict.fromkeys(given, now))
                if self.rules.cost_model == "stall":
                    self.charge(j, run, self.jobs[j].tcup_s, "start stall", now)
                self.told.starts[j] += 1
                first = self.told.starts[j] == 1
                overhead = (
                    self.rules.start_overhead_s if first else self.rules.restart_s(n)
                )
                run.pauses.append(
                    (now + int(overhead * SECOND), "start" if first else "restart")
                )
                self.told.start.setdefault(j, now)
        used = sum(len(self.held(j)) for j in self.in_play)
        self.told.decisions.append((now, len(self.idle), used))


# --- worlds -----------------------------------------------------------------------------------------------------------


@st.composite
def traces(draw: st.DrawFn) -> NodeTrace:
    nodes = draw(st.integers(1, 4))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(0, nodes - 1), st.booleans()),
            min_size=1,
            max_size=16,
        )
    )
    rows.sort(key=lambda row: row[0])
    times = START + np.array([row[0] for row in rows], dtype=np.int64) * SECOND
    return from_changes(
        [f"n{i}" for i in range(nodes)],
        times,
        np.array([row[1] for row in rows], dtype=np.int32),
        np.array([row[2] for row in rows], dtype=bool),
        start=START - draw(st.sampled_from([0, 0, 2])) * SECOND,
        end=int(times[-1]) + draw(st.sampled_from([0, 3, 40])) * SECOND,
        units_per_node=draw(st.sampled_from([1, 1, 2])),
    )


@st.composite
def tables(draw: st.DrawFn) -> JobTable:
    jobs = []
    for k in range(draw(st.integers(1, 3))):
        jmax = draw(st.integers(1, 4))
        jmin = draw(st.integers(0, jmax))
        curve = Curve(
            np.arange(jmax + 1),
            np.array(
                [
                    0.0,
                    *(
                        draw(st.sampled_from([1.0, 2.0, 4.0, 4.0, 0.0]))
                        for _ in range(jmax)
                    ),
                ]
            ),
        )
        jobs.append(
            Job(
                name=f"j{k}",
                tsub_ns=START + draw(st.integers(-3, 25)) * SECOND,
                jmin=jmin,
                jmax=jmax,
                pmax=float(draw(st.integers(1, 60))),
                tcup_s=float(draw(st.integers(0, 4))),
                tcdw_s=float(draw(st.integers(0, 4))),
                scalability=curve,
                objective=curve,
                sizes=draw(sizes(jmin, jmax)),
            )
        )
    return JobTable(tuple(jobs))


rules = st.builds(
    Rules,
    max_jobs=st.integers(1, 3),
    cost_model=st.sampled_from(["bftrainer", "stall"]),
    events=st.sampled_from(["all", "all", "node"]),
    min_interval_s=st.sampled_from([0.0, 0.0, 3.0, 7.0]),
    checkpoint_interval_s=st.sampled_from([0.0, 3.0, 7.0, 600.0]),
    start_overhead_s=st.sampled_from([0.0, 0.0, 2.0, 30.0]),
    restart_overhead=st.sampled_from([(), ((1, 1.0), (2, 5.0))]),
)


def agree(trace: NodeTrace, jobs: JobTable, policy: Policy, rules: Rules) -> None:
    outcome = Replay(trace, jobs, policy, rules).run()
    told = Simulator(trace, jobs, policy, rules, outcome).run()
    records = outcome.records
    assert outcome.end_ns == told.end
    assert {
        j: r.finish_ns for j, r in enumerate(records) if r.finish_ns is not None
    } == told.finish
    assert {
        j: r.start_ns for j, r in enumerate(records) if r.start_ns is not None
    } == told.start
    assert {j: Fraction(r.work) for j, r in enumerate(records)} == told.progress
    assert sum(r.preemptions for r in records) == told.preemptions
    assert {j: r.starts for j, r in enumerate(records) if r.starts} == told.starts
    for book, work in told.lost.items():
        assert Fraction(sum(getattr(r, f"lost_to_{book}") for r in records)) == work, (
            book
        )
    assert (Fraction(outcome.extra_gain), Fraction(outcome.paid)) == (
        told.extra_gain,
        told.paid,
    )
    assert outcome.start_ns == min(told.window, told.end)
    for instant, work in told.work:
        assert Fraction(outcome.work_at(instant)) == work
    assert outcome.idle_unit_seconds == told.idle_unit_ns / SECOND
    assert outcome.used_unit_seconds == told.used_unit_ns / SECOND
    steps = outcome.steps[outcome.steps["status"] != "end"]
    assert (
        list(
            zip(
                steps["time"].astype("int64"), steps["idle"], steps["used"], strict=True
            )
        )
        == told.decisions
    )


@examples(150)
@given(traces(), tables(), rules, st.integers(0, 9))
def test_a_random_replay_equals_that_of_the_second_simulator(
    trace: NodeTrace, jobs: JobTable, rules: Rules, seed: int
) -> None:
    agree(trace, jobs, Whimsical(seed), rules)


@examples(150)
@given(traces(), tables(), rules, st.integers(0, 9))
def test_a_random_replay_of_rigid_jobs_equals_that_of_the_second_simulator(
    trace: NodeTrace, jobs: JobTable, rules: Rules, seed: int
) -> None:
    agree(trace, jobs, WhimsicalRigid(seed), rules)


@examples(100)
@given(traces(), tables(), rules)
def test_an_equal_share_replay_equals_that_of_the_second_simulator(
    trace: NodeTrace, jobs: JobTable, rules: Rules
) -> None:
    agree(trace, jobs, EqualShare(), rules)


@examples(100)
@given(traces(), tables(), rules, st.sampled_from([1.0, 10.0, 120.0]))
def test_an_optimal_replay_equals_that_of_the_second_simulator(
    trace: NodeTrace, jobs: JobTable, rules: Rules, tfwd: float
) -> None:
    agree(
        trace,
        jobs,
        MilpPolicy(tfwd, SolverOptions("exact"), cost_model=rules.cost_model),
        rules,
    )


def test_the_second_simulator_notices_an_invalid_finish() -> None:
    """It can fail: an engine that charges nothing is found out."""
    trace = from_changes(
        ["a"],
        np.array([START]),
        np.array([0], dtype=np.int32),
        np.array([True]),
        end=START + 99 * SECOND,
    )
    curve = Curve(np.array([0, 1]), np.array([0.0, 2.0]))
    job = Job("j", START, 1, 1, 20.0, 3.0, 3.0, curve, curve)
    cheap = Job("j", START, 1, 1, 20.0, 0.0, 0.0, curve, curve)
    stall = Rules(cost_model="stall")
    outcome = Replay(trace, JobTable((cheap,)), EqualShare(), stall).run()
    told = Simulator(trace, JobTable((job,)), EqualShare(), stall, outcome).run()
    assert told.finish == {0: START + 13 * SECOND}
    with pytest.raises(AssertionError):
        assert {0: outcome.records[0].finish_ns} == told.finish
