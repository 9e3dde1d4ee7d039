"""Two jobs on one unit: the engine's accounts against an integration of the recorded allocations."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused
from worlds import between, cluster, known, make, replay

from bft.milp import Transfer
from bft.models import Curve, Job, JobTable
from bft.models.sharing.xi_table import Measurement
from bft.replay import (
    Decision,
    Interference,
    MilpSharingPolicy,
    NodeTrace,
    Outcome,
    Replay,
    Rules,
    State,
    from_changes,
)
from bft.replay.policies import PolicyError
from bft.replay.trace.node_trace import SECOND_NS

MODELS = ("a", "b", "c")
Moves = tuple[Transfer, ...]


def interference(rng: np.random.Generator, *, by_units: bool = False) -> Interference:
    rows = [
        [a, b, 1 + 0.5 * rng.random(), 1 + 0.5 * rng.random(), units]
        for i, a in enumerate(MODELS)
        for b in MODELS[i:]
        if rng.random() < 0.8
        for units in ((1, 2, 4, None) if by_units else (None,))
    ]
    rows.append(["a", "b", 1.05, 1.1, None])
    return between(rows, xi_max=1.4 if by_units else float("inf"))


def world(
    rng: np.random.Generator, nodes: int = 12, events: int = 60, jobs: int = 9
) -> tuple[NodeTrace, JobTable]:
    times = np.sort(rng.integers(0, 3600, events)) * SECOND_NS
    trace = from_changes(
        [f"n{i}" for i in range(nodes)],
        times,
        rng.integers(0, nodes, events).astype(np.int32),
        rng.random(events) < 0.65,
        start=0,
        end=3600 * SECOND_NS,
    )
    table = []
    for j in range(jobs):
        jmax = int(rng.integers(2, 9))
        ps = [0.0, 10.0, 10.0 * jmax ** rng.uniform(0.5, 1.0)]
        curve = Curve(np.array([0.0, 1.0, jmax]), np.array(ps))
        model = MODELS[int(rng.integers(len(MODELS)))]
        jmin = int(rng.integers(1, 3))
        submit = int(rng.integers(0, 1800)) * SECOND_NS
        table.append(
            Job(f"j{j}", submit, jmin, jmax, 2e4, 8.0, 5.0, curve, curve, model=model)
        )
    return trace, JobTable(tuple(table))


def check(outcome: Outcome, between: Interference) -> float:
    """Integrate anew what the allocations yield; return the unit-seconds that two jobs shared."""
    jobs, held = [record.job for record in outcome.records], outcome.allocations
    gained, unit_seconds = np.zeros((2, len(jobs)))
    used = shared = 0.0
    instants = np.unique(np.concatenate([held["start_ns"], held["end_ns"]]))
    for start, end in itertools.pairwise(instants.tolist()):
        seconds = (end - start) / SECOND_NS
        live = held[(held["start_ns"] <= start) & (held["end_ns"] >= end)]
        holders: dict[int, set[int]] = defaultdict(set)
        for row in live.itertuples():
            for unit in range(row.first_unit, row.last_unit + 1):
                assert row.job not in holders[unit], "a job holds a unit twice"
                holders[unit].add(row.job)
        count = Counter(job for holding in holders.values() for job in holding)
        used += seconds * len(holders)
        shared += seconds * (count.total() - len(holders))
        for job, n in count.items():
            on = [holding for holding in holders.values() if job in holding]
            beside = [jobs[other] for other in set().union(*on) - {job}]
            assert max(map(len, on)) == 1 + len(beside) <= 2
            rate = float(jobs[job].scalability.at(n)) if n >= jobs[job].jmin else 0.0
            for other in beside:
                rate /= between.sides(jobs[job], other)[0].of(n)
            gained[job] += rate * seconds
            unit_seconds[job] += n * seconds
    for record, work, units in zip(outcome.records, gained, unit_seconds, strict=True):
        assert record.gained == pytest.approx(work, rel=1e-9, abs=1e-6)
        assert record.unit_seconds == pytest.approx(units, rel=1e-9)
        assert record.work == pytest.approx(record.gained - record.lost, abs=1e-6)
    assert outcome.used_unit_seconds == pytest.approx(used, rel=1e-9)
    assert outcome.used_unit_seconds <= outcome.idle_unit_seconds * (1 + 1e-9)
    return shared


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cost_model", ["bftrainer", "stall"])
@pytest.mark.parametrize("by_units", [False, True])
def test_the_books_agree_with_who_held_what_beside_whom(
    seed: int, cost_model: str, by_units: bool
) -> None:
    rng = np.random.default_rng(seed)
    trace, jobs = world(rng)
    between = interference(rng, by_units=by_units)
    policy = MilpSharingPolicy(120.0, cost_model=cost_model, interference=between)  # type: ignore[arg-type]
    outcome = Replay(trace, jobs, policy, Rules(6, cost_model), between).run()  # type: ignore[arg-type]
    assert check(outcome, between) > 0, "nothing was shared: the test shows nothing"
    # A few decisions are not proven: the best counts would need a job to move, which no formulation prices.
    steps = outcome.steps.set_index("status")
    assert set(steps.index) <= {"optimal", "feasible", "nothing idle", "end"}
    if "feasible" in steps.index:
        assert (steps.loc[["feasible"], "gap"] > 0).all()
        assert len(steps.loc[["feasible"]]) <= 0.2 * len(steps)


@pytest.mark.parametrize("seed", range(3))
def test_what_the_milp_prices_by_units_is_what_the_engine_charges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trace, jobs = world(rng)
    free = JobTable(tuple(replace(job, tcup_s=0.0, tcdw_s=0.0) for job in jobs))
    between = interference(rng, by_units=True)
    policy = MilpSharingPolicy(120.0, interference=between)
    outcome = Replay(trace, free, policy, Rules(6), between).run()
    decided = outcome.steps[outcome.steps["status"] == "optimal"]
    assert len(decided) > 20
    np.testing.assert_allclose(decided["objective"], 120.0 * decided["rate"], rtol=1e-9)
    assert check(outcome, between) > 0


def xi_by_units(**given: float) -> Interference:
    rows = [
        ["a", "b", 1.1, 1.2, 1],
        ["a", "b", 1.8, 1.9, 8],
        ["a", "c", 1.5, 1.5, 2],
        ["a", "c", 1.3, 1.3, None],
    ]
    return between(rows, **given)


def test_a_ratio_is_that_of_as_many_units_as_the_job_has() -> None:
    a, b, c = (make(model, model=model) for model in "abc")
    between = xi_by_units()
    assert between.xi(a, b, 1, 1) == (1.1, 1.2)
    assert between.xi(b, a, 1, 1) == (1.2, 1.1)
    assert between.xi(a, b, 8, 1) == (1.8, 1.2), "each side by its own units"
    # On as many as no row states the largest counts, or that of rows without units.
    assert between.xi(a, b, 3, 1) == (1.8, 1.2)
    assert between.xi(a, b) == (1.8, 1.9)
    assert between.xi(a, c, 2, 3) == (1.5, 1.3)
    limited = xi_by_units(xi_max=1.5)
    assert limited.xi(a, b, 1, 1) == (1.1, 1.2)
    assert limited.xi(a, b, 8, 1) is limited.xi(a, b) is None
    assert limited.ever(a, b)
    assert not xi_by_units(xi_max=1.15).ever(a, b)


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ((float("nan"), 1.0), "xi_a"),
        ((1.0, 0.0), "xi_b"),
        ((1.0, 1.0, -8.0), "batch_a"),
        ((1.0, 1.0, 8, 8, 0.0), "units"),
    ],
)
def test_measurements_check_themselves(values: tuple[float, ...], column: str) -> None:
    told = f"column {column}: a beside b: expected a number > 0"
    refused(told, Measurement, "a", "b", *values)


@pytest.mark.parametrize(
    "given",
    [{"xi_max": float("nan")}, {"unit_memory_gib": 0.0}, {"sub_batch_threshold": 2.0}],
)
def test_limits_of_sharing_check_themselves(given: dict[str, float]) -> None:
    refused(f"{next(iter(given))}: expected a number", xi_by_units, **given)


@pytest.mark.parametrize(
    ("change", "xi", "what"),
    [
        (lambda moves: moves, False, "no xi allows"),
        (lambda moves: moves * 2, True, "it moved|free units"),
        (lambda moves: (*moves, Transfer((), (7,), 1)), True, "it moved"),
    ],
)
def test_transfers_that_make_no_sense_or_are_forbidden_stop_the_policy(
    change: Callable[[Moves], Moves], xi: bool, what: str
) -> None:
    between = known({("a", "b"): (1.25, 2.0)})

    class Liar(MilpSharingPolicy):
        def decide(self, state: State) -> Decision:
            return Decision(transfers=change(super().decide(state).transfers or ()))

    rates = [0, 10, 20, 30, 40]
    jobs = [make(model, rates, model=model, up=6, down=3) for model in "ab"]
    policy, allowed = Liar(120.0, interference=between), between if xi else None
    with pytest.raises(PolicyError, match=what):
        replay(cluster(4), jobs, policy, interference=allowed)
