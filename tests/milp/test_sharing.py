"""Sharing: `items` with its refinements against full enumeration, a MILP of where units go, and the exact DP."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from sharing_oracles import best_by_flow
from strategies import apart

from bft.milp import Job, Limits, LinearModel, Pair, Problem, ProblemError, solve
from bft.milp.backends.process import shared_process
from bft.milp.formulations.column_generation import relax, rounded
from bft.milp.formulations.items import Items
from bft.milp.formulations.sharing import carry_out
from bft.milp.formulations.transfers import (
    complaint_about,
    keep_shared,
    settle_shared,
    transport,
    value_of,
)
from bft.milp.tables import tables_of

Holders = tuple[int, ...]


def random_job(rng: np.random.Generator, name: str, units: int) -> Job:
    jmax = int(rng.integers(1, units + 2))
    jmin = int(rng.integers(1, jmax + 1)) if rng.random() < 0.5 else 1
    points = min(int(rng.integers(2, 5)), jmax + 3)
    ns = np.concatenate(
        [[0], np.sort(rng.choice(np.arange(1, jmax + 4), size=points, replace=False))]
    )
    os = np.concatenate([[0], np.cumsum(rng.random(points) * 100)])
    some = {int(n) for n in range(jmin + 1, jmax) if rng.random() < 0.5}
    sizes = tuple(sorted({jmin, jmax} | some)) if rng.random() < 0.4 else None
    return Job(
        name,
        jmin,
        jmax,
        ns.astype(float),
        os,
        tcup=float(rng.choice([0, 5, 18, 60])),
        tcdw=float(rng.choice([0, 3, 12, 40])),
        weight=float(rng.choice([1, 1, 2])),
        sizes=sizes,
    )


def random_problem(
    rng: np.random.Generator,
    jobs: int,
    units: int,
    pairs: float = 0.7,
    *,
    by_units: bool = False,
) -> Problem:
    """Random jobs, holders and asymmetric ratios, on request by units; a job shares with one other at most."""
    holding: list[Holders] = []
    partner: dict[int, int] = {}
    for _ in range(units):
        draw = rng.random()
        if draw < 0.3:
            holding.append(())
        elif draw < 0.7:
            holding.append((int(rng.integers(jobs)),))
        else:
            a, b = sorted(int(j) for j in rng.choice(jobs, 2, replace=False))
            if partner.setdefault(a, b) == b and partner.setdefault(b, a) == a:
                holding.append((a, b))
            else:
                holding.append((a,))
    shared = Counter(holders for holders in holding if len(holders) == 2)

    def ratio() -> float:
        return float(1 + rng.random() * 1.2)

    def sized(j: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        """A ratio, and others on some counts, where some are not allowed but what is held now."""
        if not by_units:
            return ratio(), ()
        held = sum(j in holders for holders in holding)
        some = {
            int(n): ratio() if rng.random() < 0.8 else np.inf
            for n in rng.integers(1, units + 1, 2)
        }
        return (ratio() if rng.random() < 0.8 else np.inf), tuple(
            sorted((some | {held: ratio()}).items())
        )

    def pair(a: int, b: int) -> Pair:
        (xi_a, at_a), (xi_b, at_b) = sized(a), sized(b)
        return Pair(a, b, xi_a, xi_b, shared[a, b], at_a, at_b)

    chosen = [
        pair(a, b)
        for a, b in itertools.combinations(range(jobs), 2)
        if (a, b) in shared or rng.random() < pairs
    ]
    return Problem(
        units,
        float(rng.choice([10, 60, 120])),
        tuple(random_job(rng, f"j{j}", units) for j in range(jobs)),
        tuple(sum(j in holders for holders in holding) for j in range(jobs)),
        "stall" if rng.random() < 0.2 else "bftrainer",
        tuple(chosen),
    )


def holdings(problem: Problem) -> list[list[int]]:
    """Unit numbers of each job: one allocation with the counts of the problem."""
    held: list[list[int]] = [[] for _ in problem.jobs]
    unit = 0
    alone = list(problem.current)
    for pair in problem.pairs:
        for _ in range(pair.shared):
            held[pair.a].append(unit)
            held[pair.b].append(unit)
            unit += 1
        alone[pair.a] -= pair.shared
        alone[pair.b] -= pair.shared
    for j, units in enumerate(alone):
        held[j].extend(range(unit, unit + units))
        unit += units
    return held


def every_allocation(problem: Problem) -> Iterator[tuple[list[int], dict[int, int]]]:
    """Counts and partners of every allocation without migration: every unit to every possible set of holders."""
    held = holdings(problem)
    before = [
        tuple(j for j, units in enumerate(held) if unit in units)
        for unit in range(problem.units)
    ]
    targets: list[Holders] = [
        (),
        *((j,) for j in range(len(problem.jobs))),
        *((p.a, p.b) for p in problem.pairs),
    ]
    groups = Counter(before)
    ways = [
        itertools.combinations_with_replacement(targets, size)
        for size in groups.values()
    ]
    for choice in itertools.product(*(list(way) for way in ways)):
        counts = [0] * len(problem.jobs)
        gains, losses = [0] * len(problem.jobs), [0] * len(problem.jobs)
        partners: dict[int, int] = {}
        possible = True
        for was, becomes in zip(groups, choice, strict=True):
            for holders in becomes:
                for j in holders:
                    counts[j] += 1
                    gains[j] += j not in was
                for j in was:
                    losses[j] += j not in holders
                if len(holders) == 2:
                    a, b = holders
                    possible &= (
                        partners.setdefault(a, b) == b
                        and partners.setdefault(b, a) == a
                    )
        if possible and not any(
            up and down for up, down in zip(gains, losses, strict=True)
        ):
            yield counts, partners


def best_by_enumeration(problem: Problem) -> float:
    def pair_of(a: int, b: int) -> Pair:
        return next(pair for pair in problem.pairs if {pair.a, pair.b} == {a, b})

    tables = {(j, None): tables_of(problem).of(j) for j in range(len(problem.jobs))}
    for pair in problem.pairs:
        tables[pair.a, pair.b] = tables_of(problem).of(pair.a, pair)
        tables[pair.b, pair.a] = tables_of(problem).of(pair.b, pair)
    best = -np.inf
    for counts, partners in every_allocation(problem):
        worth = 0.0
        for j, n in enumerate(counts):
            table = tables[j, partners.get(j)]
            worth += table[n] if n < len(table) else -np.inf
        best = max(best, worth)
    return float(best)


@pytest.mark.parametrize(
    ("seed", "by_units"),
    [*((s, False) for s in range(8)), *((s, True) for s in range(21, 25))],
)
def test_items_equal_full_enumeration(seed: int, by_units: bool) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(32):
        problem = random_problem(
            rng, int(rng.integers(2, 4)), int(rng.integers(1, 6)), by_units=by_units
        )
        best = best_by_enumeration(problem)
        if problem.pairs:
            solution = solve(problem, backend="cbc", formulation="items")
            assert solution.status == "optimal", solution
            assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
            assert complaint_about(problem, solution.counts, solution.transfers) == ""


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_the_relaxation_is_a_bound_and_no_start_exceeds_the_optimum(
    seed: int,
) -> None:
    rng = np.random.default_rng(100 + seed)
    carried = 0
    for _ in range(25):
        problem = random_problem(rng, int(rng.integers(2, 4)), int(rng.integers(1, 6)))
        best = best_by_enumeration(problem)
        items = Items(problem)
        relaxation = relax(items)
        slack = 1e-6 * max(1, abs(best))
        assert relaxation.bound >= best - slack
        start = carry_out(problem, *items.named(rounded(items, relaxation)), "")
        carried += start is not None
        assert start is None or start.objective <= best + slack
    assert carried > 20


@pytest.mark.parametrize("seed", range(5))
def test_where_curves_are_concave_and_nobody_shares_the_relaxation_proves_its_start(
    seed: int,
) -> None:
    """The relaxation is exact then, so that the best price leaves no gap: a price near it would."""
    rng = np.random.default_rng(seed)
    jobs = tuple(
        Job(
            f"j{j}",
            1,
            40,
            np.arange(41.0),
            np.append(0.0, np.cumsum(np.sort(rng.random(40))[::-1])),
            0.0,
            0.0,
        )
        for j in range(20)
    )
    problem = Problem(
        100,
        60.0,
        jobs,
        (0,) * 20,
        pairs=tuple(Pair(j, j + 1, 9.0, 9.0) for j in range(19)),
    )
    items = Items(problem)
    relaxation = relax(items)
    assert items.worth(rounded(items, relaxation)) == pytest.approx(
        relaxation.bound, rel=1e-12
    )
    solution = solve(problem, backend="cbc")
    assert (solution.status, solution.formulation) == ("optimal", "column_generation")
    alone = solve(replace(problem, pairs=()), backend="exact")
    assert solution.objective == pytest.approx(alone.objective, rel=1e-12)


def whole_model(problem: Problem) -> LinearModel:
    """The MILP over all items, with nothing left out."""
    items = Items(problem)
    return items.model(items.gains > -np.inf, []).model


@pytest.mark.parametrize("seed", range(6))
def test_classes_of_jobs_in_no_pair_change_no_optimum(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    for _ in range(8):
        problem = random_problem(rng, 4, 7, pairs=0.4)
        twins = tuple(
            replace(job, name=f"{job.name} {n}") for job in problem.jobs for n in (1, 2)
        )
        problem = replace(
            problem,
            jobs=(*problem.jobs, *twins),
            current=problem.current + (0,) * len(twins),
        )
        together = whole_model(problem)
        with patch("bft.milp.tables.classes_of", apart):
            each_alone = whole_model(replace(problem))
        assert len(together.objective) < len(each_alone.objective)
        one, other = (
            shared_process().solve(model, "cbc", Limits())
            for model in (together, each_alone)
        )
        assert (one.status, other.status) == ("optimal", "optimal")
        assert one.objective == pytest.approx(other.objective, rel=1e-7, abs=1e-9)


def test_medium_problems_agree_with_a_milp_of_where_units_go() -> None:
    rng = np.random.default_rng(10)
    for _ in range(4):
        problem = random_problem(rng, 6, 30, pairs=0.4)
        if problem.pairs:
            items = solve(problem, backend="cbc", formulation="items")
            assert items.status == "optimal"
            assert items.objective == pytest.approx(best_by_flow(problem), rel=1e-6)


def test_keeping_is_always_possible() -> None:
    rng = np.random.default_rng(11)
    for _ in range(200):
        problem = random_problem(rng, 4, 9)
        counts, shares = keep_shared(problem)
        moves = transport(problem, counts, shares)
        assert moves is not None
        assert complaint_about(problem, counts, moves) == ""
        assert value_of(problem, counts, shares) > -np.inf


def test_units_are_placed_as_the_transfers_say_and_nobody_migrates() -> None:
    rng = np.random.default_rng(12)
    for _ in range(60):
        problem = random_problem(rng, 4, 10)
        if not problem.pairs:
            continue
        before = holdings(problem)
        solution = solve(problem, backend="cbc")
        after = settle_shared(before, solution.transfers, problem.units)
        assert tuple(len(units) for units in after) == solution.counts
        occupants = Counter(unit for units in after for unit in units)
        assert all(count <= 2 for count in occupants.values())
        for was, becomes in zip(before, after, strict=True):
            assert set(was) <= set(becomes) or set(becomes) <= set(was)
            assert set(becomes) <= set(range(problem.units))


def test_a_time_limit_yields_the_best_known_never_worse_than_keeping() -> None:
    problem = random_problem(np.random.default_rng(13), 8, 60)
    solution = solve(problem, backend="cbc", time_limit=1e-9)
    assert solution.status in ("feasible", "optimal")
    assert solution.objective >= value_of(problem, *keep_shared(problem)) - 1e-9
    assert solution.bound >= solve(problem, backend="cbc").objective - 1e-6


@pytest.mark.parametrize(
    ("pairs", "what"),
    [
        ((Pair(1, 0, 1.0, 1.0),), "a before b"),
        ((Pair(0, 3, 1.0, 1.0),), "two jobs"),
        ((Pair(0, 1, 0.9, 1.0),), "ratios >= 1"),
        ((Pair(0, 1, 1.0, float("nan")),), "ratios >= 1"),
        ((Pair(0, 1, 1.0, 1.0, 0, ((1, 0.9),)),), "ratios >= 1"),
        ((Pair(0, 1, float("inf"), 1.0),), "finite ratios >= 1"),
        (
            (Pair(0, 1, 1.0, 1.0, 1, ((1, float("inf")),)),),
            "finite ratios on as many as they hold",
        ),
        ((Pair(0, 1, 1.0, 1.0), Pair(0, 1, 1.0, 1.0)), "twice"),
        ((Pair(0, 1, 1.0, 1.0, 2),), "cannot share 2"),
        ((Pair(0, 1, 1.0, 1.0, 1), Pair(0, 2, 1.0, 1.0, 1)), "third job"),
    ],
)
def test_pairs_that_make_no_sense_are_refused(
    pairs: tuple[Pair, ...], what: str
) -> None:
    rng = np.random.default_rng(14)
    jobs = tuple(random_job(rng, f"j{j}", 5) for j in range(3))
    with pytest.raises(ProblemError, match=what):
        Problem(6, 60.0, jobs, (1, 1, 1), pairs=pairs)


def test_the_exact_programme_and_modes_refuse_sharing() -> None:
    rng = np.random.default_rng(15)
    jobs = tuple(random_job(rng, f"j{j}", 5) for j in range(2))
    problem = Problem(6, 60.0, jobs, (0, 0), pairs=(Pair(0, 1, 1.1, 1.2),))
    with pytest.raises(ProblemError, match="'exact' cannot solve formulation 'items'"):
        solve(problem, backend="exact")
    with pytest.raises(ProblemError, match="no sharing"):
        solve(problem, formulation="modes")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_cbc_and_highs_agree_on_eight_jobs_and_fifty_units(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    solved = 0
    while solved < 5:
        problem = random_problem(rng, 8, 50, pairs=0.4)
        if not problem.pairs:
            continue
        solved += 1
        # Also on the MILP of `items` itself, as column generation often needs no solver.
        cbc = solve(problem, backend="cbc", formulation="items")
        model = whole_model(problem)
        by_cbc, by_highs = (
            shared_process().solve(model, name, Limits()) for name in ("cbc", "highs")
        )
        assert cbc.status == by_cbc.status == by_highs.status == "optimal"
        assert cbc.objective == pytest.approx(best_by_flow(problem), rel=1e-6, abs=1e-6)
        assert by_cbc.objective == pytest.approx(by_highs.objective, rel=1e-6, abs=1e-6)
