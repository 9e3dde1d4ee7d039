"""Replays held against the rules of the pages, written as plain programs in this folder: who held which unit when.

`world` has the charges, the order of events and the choice of units (docs/semantics.md), `admission` deadlines,
`queues`, `tiresias` and `shares` the policies (tests/rules/README.md). Decisions and accounts must be equal on random
worlds.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from rules.drawn import any_rules, tables, traces
from rules.queues import fifo, qssf, sjf, srtf, yarn_cs
from rules.shares import Sia, equal_share, optimus
from rules.tiresias import Tiresias
from rules.whims import Whimsical, WhimsicalMover, WhimsicalRigid
from rules.world import Answer, World

from bft.models import JobTable
from bft.replay import NodeTrace, Policy, Replay, Rules, Traits
from bft.replay.policies import policy_type

# --- the comparison ---------------------------------------------------------------------------------------------------

BOOKS = ("rescale", "preemption", "stall", "start", "restart")


def same(
    trace: NodeTrace,
    jobs: JobTable,
    rules: Rules,
    policy: Policy,
    plain: Callable[[World], Answer],
) -> None:
    world = World(trace, jobs, plain, rules, Traits.of(policy)).run()
    outcome = Replay(trace, jobs, policy, rules).run()
    steps = outcome.steps[outcome.steps["status"] != "end"].assign(
        time=lambda table: table["time"].astype("int64")
    )
    columns = (steps[name] for name in ("time", "idle", "used", "jobs"))
    assert [*zip(*columns, strict=True)] == world.decisions
    held = [
        (row.job, unit, row.start_ns, row.end_ns)
        for row in outcome.allocations.itertuples()
        for unit in range(row.first_unit, row.last_unit + 1)
    ]
    assert sorted(held) == sorted(world.held)
    assert outcome.end_ns == world.now
    for record, one in zip(outcome.records, world.jobs, strict=True):
        exact = (record.start_ns, record.finish_ns, record.refused_ns is not None)
        assert exact == (one.start, one.finish, one.refused)
        counted = {
            of: getattr(record, of) for of in ("starts", "rescales", "preemptions")
        }
        assert counted == {of: one.times[of] for of in counted}
    about = [
        (outcome.idle_unit_seconds, world.idle_s),
        (outcome.used_unit_seconds, world.used_s),
        (outcome.extra_gain, world.gain),
        (outcome.paid, world.paid),
        *((outcome.work_at(at), done) for at, done in world.course),
        *(
            (record.work, one.done)
            for record, one in zip(outcome.records, world.jobs, strict=True)
        ),
        *(
            (getattr(record, f"lost_to_{book}"), one.lost[book])
            for record, one in zip(outcome.records, world.jobs, strict=True)
            for book in BOOKS
        ),
    ]
    found, expected = zip(*about, strict=True)
    assert found == pytest.approx([*map(float, expected)], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", [Whimsical, WhimsicalRigid, WhimsicalMover])
@examples(200)
@given(trace=traces(), jobs=tables(), rules=any_rules, seed=st.integers(0, 9))
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
QUEUED = {"backfill": st.booleans(), "consolidate": st.booleans()}


def shared(text: str) -> dict[str, Fraction]:
    return {
        part.split(":")[0]: Fraction(part.split(":")[1])
        for part in text.split(",")
        if part
    }


FAMILIES = {
    "fifo": policies("fifo", fifo, **QUEUED),
    "sjf": policies("sjf", sjf, **QUEUED),
    "qssf": policies("qssf", qssf, **QUEUED),
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
@given(trace=traces(), jobs=tables(), rules=any_rules, data=st.data())
def test_decisions_are_those_of_the_rules(
    family: str, trace: NodeTrace, jobs: JobTable, rules: Rules, data: st.DataObject
) -> None:
    name, constants, plain = data.draw(FAMILIES[family])
    same(trace, jobs, rules, policy_type(name).factory(**constants), plain(**constants))


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
@given(
    trace=traces(leaves=False), jobs=tables(few=True), rules=any_rules, constants=SIA
)
def test_sia_takes_the_best_sum_of_utilities(
    trace: NodeTrace, jobs: JobTable, rules: Rules, constants: dict[str, Any]
) -> None:
    same(trace, jobs, rules, policy_type("sia").factory(**constants), Sia(**constants))
