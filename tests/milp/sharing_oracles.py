"""Sharing without items, classes and shortcuts: what a pair may have, and a MILP of where units go."""

import itertools
from collections.abc import Iterator

import numpy as np

from bft.milp import Limits, LinearModel, Problem
from bft.milp.backends import scipy_milp
from bft.milp.formulations.transfers import Holders, held_now
from bft.milp.jobs import FloatArray
from bft.milp.tables import tables_of


def together(
    beside: list[FloatArray],
    apart: list[FloatArray],
    held: tuple[int, int],
    shared: int,
) -> Iterator[tuple[float, int, bool, int, int]]:
    """Every way for two jobs to be active together: value, fewest units in union, whether they split, and counts.

    `beside` are their tables in this pair, `apart` those by themselves, which count where they share now and may split.
    """
    c_a, c_b = held
    for n_a, n_b in itertools.product(*(range(1, len(table)) for table in beside)):
        union = max(n_a, n_b, min(n_a, c_a) + min(n_b, c_b) - shared)
        # Being together without a common unit is never better than being alone.
        if union < n_a + n_b:
            yield float(beside[0][n_a] + beside[1][n_b]), union, False, n_a, n_b
        if n_a < c_a and n_b < c_b:
            possible = n_a + n_b <= c_a + c_b - shared
        else:
            possible = (n_a < c_a and n_a <= c_a - shared) or (
                n_b < c_b and n_b <= c_b - shared
            )
        if shared and possible:
            yield float(apart[0][n_a] + apart[1][n_b]), n_a + n_b, True, n_a, n_b


def best_by_flow(problem: Problem) -> float:
    """Return the optimum by a MILP of where units go, which knows neither items nor classes of jobs; by HiGHS.

    `moved` of the units that g hold go to h. A job has one count, alone or beside one partner. A pair that is together
    shares at least one unit, and no more than each of the two has. A job gains or loses units, not both.
    """
    model = LinearModel()
    pairs = {(pair.a, pair.b): pair for pair in problem.pairs}
    targets: list[Holders] = [(), *((j,) for j in range(len(problem.jobs))), *pairs]
    moved = {}
    for before, units in held_now(problem).items():
        mine = {h: model.variable(0.0, float(units)) for h in targets}
        model.row([*mine.values()], [1.0] * len(mine), "=", float(units))
        moved.update({(before, after): index for after, index in mine.items()})
    together = {key: model.variable(0.0, 1.0) for key in pairs}
    for j in range(len(problem.jobs)):
        modes = [None, *(key for key in pairs if j in key)]
        ones, held = [model.variable(float(tables_of(problem).of(j)[0]), 1.0)], []
        for key in modes:
            table = tables_of(problem).of(j, None if key is None else pairs[key])
            counts = np.flatnonzero(table[1:] > -np.inf) + 1
            some = [(model.variable(float(table[n]), 1.0), float(n)) for n in counts]
            held += some
            binaries = [index for index, _ in some]
            ones += binaries
            if key is not None:
                shared = [index for (_, after), index in moved.items() if after == key]
                both = [1.0] * len(shared)
                model.row(
                    [*binaries, together[key]], [*[1.0] * len(some), -1.0], "=", 0.0
                )
                model.row(
                    [*shared, *binaries], [*both, *(-n for _, n in some)], "<", 0.0
                )
                model.row(
                    [together[key], *shared], [1.0, *(-1.0 for _ in shared)], "<", 0.0
                )
        model.row(ones, [1.0] * len(ones), "=", 1.0)
        own = [index for (_, after), index in moved.items() if j in after]
        model.row(
            [*own, *(index for index, _ in held)],
            [*[1.0] * len(own), *(-n for _, n in held)],
            "=",
            0.0,
        )
        change = [model.variable(0.0, 1.0), model.variable(0.0, 1.0)]
        model.row(change, [1.0, 1.0], "<", 1.0)
        for way, direction in enumerate(change):
            some_moves = [
                index
                for arc, index in moved.items()
                if j in arc[1 - way] and j not in arc[way]
            ]
            limit = -float(problem.units)
            model.row(
                [*some_moves, direction], [*[1.0] * len(some_moves), limit], "<", 0.0
            )
    answer = scipy_milp.solve(model, Limits())
    assert answer.status == "optimal"
    return answer.objective
