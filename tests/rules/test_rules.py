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
from rules.world import BOOKS, Answer, Told, World

from bft.models import JobTable
from bft.replay import Policy, Replay, Rules, Traits
from bft.replay.policies.registry import policy_type
from bft.replay.trace.node_trace import NodeTrace

# --- the comparison ---------------------------------------------------------------------------------------------------


def same(
    trace: NodeTrace,
    jobs: JobTable,
    rules: Rules,
    policy: Policy,
    plain: Callable[[World], Answer],
) -> Told:
    traits = Traits.of(policy)
    told = World(
        trace, jobs, plain, rules, rigid=traits.rigid, migrates=traits.migrates
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
    for found, sum_of in (
        (outcome.idle_unit_seconds, told.idle_s),
        (outcome.used_unit_seconds, told.used_s),
        (outcome.extra_gain, told.gain),
        (outcome.paid, told.paid),
        *((outcome.work_at(at), done) for at, done in told.course),
    ):
        assert found == pytest.approx(float(sum_of), rel=1e-9, abs=1e-9)
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
