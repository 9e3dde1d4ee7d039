"""Replays held against the rules of the pages, written as plain programs in this folder: who held which unit when.

`world` has the charges, the order of events and the choice of units (docs/semantics.md), `admission` deadlines,
`queues`, `tiresias` and `shares` the policies (docs/policies.md). Decisions and accounts must be equal on random
worlds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from rules.queues import fifo, sjf, srtf, yarn_cs
from rules.shares import Sia, equal_share, optimus
from rules.tiresias import Tiresias
from rules.world import BOOKS, SECOND, Answer, Told, World
from strategies import sizes

from bft.models import Curve, Job, JobTable
from bft.replay import Decision, Kind, Policy, Replay, Rules, State
from bft.replay.policies.registry import policy_factory
from bft.replay.trace.node_trace import NodeTrace, from_changes

START = 1_613_000_040 * SECOND  # a whole minute


# --- worlds -----------------------------------------------------------------------------------------------------------


@st.composite
def traces(draw: st.DrawFn, *, leaves: bool = True) -> NodeTrace:
    nodes = draw(st.integers(2, 4))
    idle = st.booleans() if leaves else st.just(True)
    later = st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, nodes - 1), idle),
        min_size=2,
        max_size=16,
    )
    # Most nodes are idle at first: where nothing is, nothing happens.
    rows = [
        (0, node, draw(st.sampled_from([True, True, True, False])))
        for node in range(nodes)
    ] + draw(later)
    rows.sort(key=lambda row: row[0])
    times = START + np.array([row[0] for row in rows], dtype=np.int64) * SECOND
    return from_changes(
        [f"n{i}" for i in range(nodes)],
        times,
        np.array([row[1] for row in rows], dtype=np.int32),
        np.array([row[2] for row in rows], dtype=bool),
        start=START - draw(st.sampled_from([0, 0, 2])) * SECOND,
        end=int(times[-1]) + draw(st.sampled_from([0, 40, 200, 200])) * SECOND,
        units_per_node=draw(st.sampled_from([1, 1, 2, 3])),
    )


@st.composite
def tables(draw: st.DrawFn, *, few: bool = False) -> JobTable:
    jobs = []
    for k in range(draw(st.integers(2, 4) if few else st.integers(4, 8))):
        jmax = draw(st.integers(1, 5))
        jmin = draw(st.integers(0, jmax))
        some = draw(sizes(jmin, jmax))
        rates = st.sampled_from([1.0, 2.0, 4.0, 1.0, 2.0, 4.0, 0.0])
        curve = Curve(
            np.arange(jmax + 1), np.array([0.0, *(draw(rates) for _ in range(jmax))])
        )
        submit = START + draw(st.integers(-3, 20)) * SECOND
        deadline = draw(
            st.none()
            | st.none()
            | st.integers(1, 60).map(lambda s, submit=submit: submit + s * SECOND)
        )
        jobs.append(
            Job(
                name=f"j{k}",
                tsub_ns=submit,
                jmin=jmin,
                jmax=jmax,
                pmax=float(draw(st.integers(10, 90))),
                tcup_s=float(draw(st.integers(0, 4))),
                tcdw_s=float(draw(st.integers(0, 4))),
                scalability=curve,
                objective=curve,
                jreq=draw(
                    st.none() | st.sampled_from(some or range(max(jmin, 1), jmax + 1))
                ),
                weight=draw(st.sampled_from([1.0, 1.0, 2.0])),
                user=draw(st.sampled_from("pq")),
                vc=draw(st.sampled_from("ab")),
                deadline_ns=deadline,
                skew=draw(st.sampled_from([None, 1.0, 5.0])),
                spread_slowdown=draw(st.sampled_from([1.0, 2.0])),
                sizes=some,
            )
        )
    return JobTable(tuple(jobs))


options = st.builds(
    Rules,
    max_jobs=st.sampled_from([0, 0, 2, 3]),
    cost_model=st.sampled_from(["bftrainer", "stall"]),
    events=st.sampled_from(["all", "all", "all", "node"]),
    min_interval_s=st.sampled_from([0.0, 0.0, 0.0, 3.0, 7.0]),
    checkpoint_interval_s=st.sampled_from([0.0, 3.0, 7.0, 600.0]),
    start_overhead_s=st.sampled_from([0.0, 0.0, 2.0, 30.0]),
    restart_overhead=st.sampled_from([(), ((1, 1.0), (2, 5.0))]),
    restart_overlap=st.sampled_from([0.0, 0.5, 1.0]),
    network_interference=st.sampled_from([0.0, 0.0, 0.5]),
    admission=st.sampled_from(["all", "deadline"]),
    admission_units=st.sampled_from([None, None, 2]),
)


# --- policies without sense, which shake every transition out ---------------------------------------------------------


def whims(
    seed: int, now: int, idle: int, jobs: Iterable[tuple[str, int, list[int]]]
) -> list[int]:
    """A number of units for each job (name, units, sizes), always the same one."""
    left, counts = idle, []
    for name, units, allowed in jobs:
        dice = zlib.crc32(f"{seed} {now} {idle} {name} {units} {left}".encode())
        able = [0, *(n for n in allowed if n <= left)]
        counts.append(
            units if units in able and dice % 3 == 0 else able[dice // 3 % len(able)]
        )
        left -= counts[-1]
    return counts


def whims_of_units(
    seed: int, now: int, idle: list[int], jobs: Iterable[tuple[str, int, list[int]]]
) -> list[list[int]]:
    """The units of each job, drawn from all idle ones."""
    order = sorted(idle, key=lambda unit: zlib.crc32(f"{seed} {now} {unit}".encode()))
    chosen = []
    for count in whims(seed, now, len(idle), jobs):
        chosen.append(order[:count])
        order = order[count:]
    return chosen


def allowed_sizes(job: Job) -> list[int]:
    return list(job.sizes or range(max(job.jmin, 1), job.jmax + 1))


@dataclass
class Whimsical:
    """Counts; the engine chooses units."""

    seed: int
    name: str = "whimsical"
    kind: ClassVar[Kind] = Kind()

    def decide(self, state: State) -> Decision:
        jobs = [
            (view.job.name, view.units, allowed_sizes(view.job)) for view in state.jobs
        ]
        return Decision(tuple(whims(self.seed, state.time_ns, state.idle, jobs)))

    def plain(self, world: World) -> Answer:
        jobs = [(one.job.name, len(one.units), one.sizes) for one in world.play]
        counts = whims(self.seed, world.now, len(world.idle), jobs)
        return Answer(
            counts={one.number: n for one, n in zip(world.play, counts, strict=True)}
        )


@dataclass
class WhimsicalRigid(Whimsical):
    """Waiting jobs start on any size, running ones go on or stop."""

    name: str = "whimsical-rigid"
    kind: ClassVar[Kind] = Kind(rigid=True)

    def decide(self, state: State) -> Decision:
        jobs = [
            (v.job.name, v.units, [v.units] if v.units else allowed_sizes(v.job))
            for v in state.jobs
        ]
        return Decision(tuple(whims(self.seed, state.time_ns, state.idle, jobs)))

    def plain(self, world: World) -> Answer:
        jobs = [
            (one.job.name, len(one.units), [len(one.units)] if one.units else one.sizes)
            for one in world.play
        ]
        counts = whims(self.seed, world.now, len(world.idle), jobs)
        return Answer(
            counts={one.number: n for one, n in zip(world.play, counts, strict=True)}
        )


@dataclass
class WhimsicalMover(Whimsical):
    """Units by name, with migrations."""

    name: str = "whimsical-mover"
    kind: ClassVar[Kind] = Kind(migrates=True)

    def decide(self, state: State) -> Decision:
        per = state.machine.units_per_node
        idle = [
            unit
            for unit in range(state.machine.nodes * per)
            if state.machine.is_idle(unit)
        ]
        jobs = [
            (view.job.name, view.units, allowed_sizes(view.job)) for view in state.jobs
        ]
        return Decision.placed(
            dict(enumerate(whims_of_units(self.seed, state.time_ns, idle, jobs)))
        )

    def plain(self, world: World) -> Answer:
        jobs = [(one.job.name, len(one.units), one.sizes) for one in world.play]
        units = whims_of_units(self.seed, world.now, sorted(world.idle), jobs)
        return Answer(
            units={one.number: of for one, of in zip(world.play, units, strict=True)}
        )


# --- the comparison ---------------------------------------------------------------------------------------------------


def same(
    trace: NodeTrace,
    jobs: JobTable,
    rules: Rules,
    policy: Policy,
    plain: Callable[[World], Answer],
) -> Told:
    kind = Kind.of(policy)
    told = World(
        trace, jobs, plain, rules, rigid=kind.rigid, migrates=kind.migrates
    ).run()
    outcome = Replay(trace, jobs, policy, rules).run()
    records = dict(enumerate(outcome.records))
    steps = outcome.steps[outcome.steps["status"] != "end"]
    decisions = zip(
        steps["time"].astype("int64"),
        steps["idle"],
        steps["used"],
        steps["jobs"],
        strict=True,
    )
    assert list(decisions) == told.decisions
    columns = (
        outcome.allocations[name]
        for name in ("job", "first_unit", "last_unit", "start_ns", "end_ns")
    )
    rows = zip(*columns, strict=True)
    held = [
        (j, unit, begin, end)
        for j, first, last, begin, end in rows
        for unit in range(first, last + 1)
    ]
    assert sorted(held) == sorted(told.held)
    assert outcome.end_ns == told.end
    assert {
        j: r.finish_ns for j, r in records.items() if r.finish_ns is not None
    } == told.finish
    assert {
        j: r.start_ns for j, r in records.items() if r.start_ns is not None
    } == told.start
    assert [j for j, r in records.items() if r.refused_ns is not None] == sorted(
        told.refused
    )
    for of, counted in (
        ("starts", told.starts),
        ("rescales", told.rescales),
        ("preemptions", told.preemptions),
    ):
        assert {
            j: getattr(r, of) for j, r in records.items() if getattr(r, of)
        } == counted, of
    for j, record in records.items():
        assert record.work == pytest.approx(
            float(told.work.get(j, Fraction(0))), rel=1e-9, abs=1e-9
        )
        for book in BOOKS:
            lost = float(told.lost.get((j, book), Fraction(0)))
            assert getattr(record, f"lost_to_{book}") == pytest.approx(
                lost, rel=1e-9, abs=1e-9
            ), (j, book)
    return told


@pytest.mark.parametrize("kind", [Whimsical, WhimsicalRigid, WhimsicalMover])
@examples(200)
@given(trace=traces(), jobs=tables(), rules=options, seed=st.integers(0, 9))
def test_costs_events_and_units_are_those_of_the_page(
    kind: type[Whimsical], trace: NodeTrace, jobs: JobTable, rules: Rules, seed: int
) -> None:
    policy = kind(seed)
    same(trace, jobs, rules, policy, policy.plain)


def policies(
    name: str, plain: Callable[..., Any], **drawn: st.SearchStrategy[Any]
) -> Any:
    """A registered policy and its plain counterpart with the same constants."""
    return st.fixed_dictionaries(drawn).map(lambda constants: (name, constants, plain))


LIMITS = st.sampled_from([(3, 9), (5,), (4, 8, 30)])
PLACED = st.sampled_from(["skewed", "all", "none"])
TIRESIAS = {
    "limits": LIMITS,
    "promote": st.integers(0, 2),
    "placement": PLACED,
    "skew_threshold": st.just(3.0),
    "interval_s": st.sampled_from([0, 0, 5]),
}


def shared(text: str) -> dict[str, Fraction]:
    return {
        part.split(":")[0]: Fraction(part.split(":")[1])
        for part in text.split(",")
        if part
    }


FAMILIES = {
    "fifo": policies("fifo", fifo, backfill=st.booleans(), consolidate=st.booleans()),
    "sjf": policies("sjf", sjf, backfill=st.booleans(), consolidate=st.booleans()),
    "srtf": policies(
        "srtf",
        srtf,
        by=st.sampled_from(["time", "unit-time", "units"]),
        consolidate=st.booleans(),
    ),
    "yarn-cs": policies(
        "yarn-cs",
        lambda *, capacities, max_share, **of: yarn_cs(
            capacities=shared(capacities), max_share=Fraction(str(max_share)), **of
        ),
        by=st.sampled_from(["vc", "user"]),
        capacities=st.sampled_from(["", "a:0.75", "a:0.5,b:0.25"]),
        max_share=st.sampled_from([1.0, 0.5, 0.3]),
        consolidate=st.booleans(),
    ),
    "tiresias-l": policies("tiresias-l", Tiresias, **TIRESIAS),
    "tiresias-g": policies(
        "tiresias-g",
        lambda *, delta, **of: Tiresias(gittins_delta=delta, **of),
        **TIRESIAS,
        delta=st.sampled_from([4, 9]),
    ),
    "equal-share": policies("equal-share", lambda: equal_share),
    "optimus": policies("optimus", optimus, interval_s=st.sampled_from([0, 0, 5])),
}


@pytest.mark.parametrize("family", FAMILIES)
@examples(120)
@given(trace=traces(), jobs=tables(), rules=options, data=st.data())
def test_decisions_are_those_of_the_rules(
    family: str, trace: NodeTrace, jobs: JobTable, rules: Rules, data: st.DataObject
) -> None:
    name, constants, plain = data.draw(FAMILIES[family])
    same(trace, jobs, rules, policy_factory(name)(**constants), plain(**constants))


SIA = st.fixed_dictionaries(
    {
        "interval_s": st.sampled_from([0, 0, 5]),
        "power": st.sampled_from([-0.5, -1.0, 0.5]),
        "no_allocation": st.sampled_from([1.1, 2.0]),
        "growth": st.sampled_from([1.0, 2.0]),
        "delay_s": st.sampled_from([0.0, 5.0, 30.0]),
    }
)


@examples(60)
@given(trace=traces(leaves=False), jobs=tables(few=True), rules=options, constants=SIA)
def test_sia_takes_the_best_sum_of_utilities(
    trace: NodeTrace, jobs: JobTable, rules: Rules, constants: dict[str, Any]
) -> None:
    same(trace, jobs, rules, policy_factory("sia")(**constants), Sia(**constants))
