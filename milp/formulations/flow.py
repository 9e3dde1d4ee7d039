"""The `flow` formulation of sharing (docs/model.md): general and exact, and slower than `items`.

Units fall into classes g by their present holders, {} or {j} or {j, k}, of s_g units. y[g, h] of them go to holders h.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from bft.milp.formulations.linear import LinearModel
from bft.milp.formulations.modes import add_runs, mode_runs
from bft.milp.formulations.transfers import Holders, classes
from bft.milp.problem import FloatArray, Pair, Problem
from bft.milp.values import table_of


@dataclass(frozen=True)
class FlowModel:
    """A linear model of a sharing problem; `held` gives the variable that counts the units of holders h."""

    model: LinearModel
    problem: Problem
    held: dict[Holders, int]

    def decode(
        self, x: FloatArray
    ) -> tuple[tuple[int, ...], dict[tuple[int, int], int]]:
        """Counts per job, and shared units per pair."""
        counts = [0] * len(self.problem.jobs)
        shares = {}
        for holders, index in self.held.items():
            units = round(float(x[index]))
            for j in holders:
                counts[j] += units
            if len(holders) == 2 and units:
                shares[holders[0], holders[1]] = units
        return tuple(counts), shares


def build(problem: Problem) -> FlowModel:
    """Formulate a sharing problem.

    With d_h = sum_g y[g, h] integer, n_j = sum over h with j of d_h, and n_{j,k} the units of j in its mode k (alone,
    or beside partner k, at 1/xi of its rate):

        sum_h y[g, h] = s_g                                   every unit has a destination
        one mode's run per job, or off; mode k of j if and only if p_jk = 1; sum_k p_jk <= 1 follows
        p_jk <= d_{jk} <= n_{j,k},  d_{jk} <= n_{k,j}         a pair shares at least one unit; both are in that mode
        sum over g without j, h with j of y <= N·up_j         no migration:
        sum over g with j, h without j of y <= c_j·dw_j       a job gains or loses, not both
        up_j + dw_j <= 1
    """
    model = LinearModel()
    supply = classes(problem)
    targets: list[Holders] = [
        (),
        *((j,) for j in range(len(problem.jobs))),
        *((p.a, p.b) for p in problem.pairs),
    ]
    held: dict[Holders, int] = {}
    gains: dict[int, list[int]] = defaultdict(list)
    losses: dict[int, list[int]] = defaultdict(list)
    arriving: dict[Holders, list[int]] = defaultdict(list)
    for before, units in supply.items():
        leaving = []
        for after in targets:
            moved = model.variable(0.0, float(units), integer=False)
            leaving.append(moved)
            arriving[after].append(moved)
            for j in after:
                if j not in before:
                    gains[j].append(moved)
            for j in before:
                if j not in after:
                    losses[j].append(moved)
        model.row(leaving, [1.0] * len(leaving), "=", float(units))
    for after in targets[1:]:
        held[after] = model.variable(0.0, float(problem.units))
        model.row(
            [held[after], *arriving[after]],
            [1.0, *[-1.0] * len(arriving[after])],
            "=",
            0.0,
        )
    together = {(pair.a, pair.b): model.variable(0.0, 1.0) for pair in problem.pairs}
    for key, both in together.items():
        model.row([both, held[key]], [1.0, -1.0], "<", 0.0)

    for j, job in enumerate(problem.jobs):
        partners: list[Pair | None] = [
            None,
            *(pair for pair in problem.pairs if j in (pair.a, pair.b)),
        ]
        off = model.variable(float(table_of(problem, j)[0]), 1.0)
        binaries, parts = [off], []
        for pair in partners:
            values = table_of(problem, j, pair)
            named = [] if pair is None else [units for units, _ in pair.named(j)]
            chosen, mode_binaries = add_runs(
                model, list(mode_runs(job, problem.current[j], values, named))
            )
            mode_parts = [(index, float(units)) for index, units in chosen.parts]
            binaries += mode_binaries
            parts += mode_parts
            if pair is not None:
                key = (pair.a, pair.b)
                model.row(
                    [*mode_binaries, together[key]],
                    [*[1.0] * len(mode_binaries), -1.0],
                    "=",
                    0.0,
                )
                model.row(
                    [held[key], *(i for i, _ in mode_parts)],
                    [1.0, *(-u for _, u in mode_parts)],
                    "<",
                    0.0,
                )
        model.row(binaries, [1.0] * len(binaries), "=", 1.0)
        mine = [index for holders, index in held.items() if j in holders]
        model.row(
            [*mine, *(i for i, _ in parts)],
            [*[1.0] * len(mine), *(-u for _, u in parts)],
            "=",
            0.0,
        )
        up = model.variable(0.0, 1.0)
        if gains[j]:
            max_units = float(min(problem.units, job.jmax))
            model.row([*gains[j], up], [*[1.0] * len(gains[j]), -max_units], "<", 0.0)
        if losses[j]:
            down = model.variable(0.0, 1.0)
            model.row(
                [*losses[j], down],
                [*[1.0] * len(losses[j]), -float(problem.current[j])],
                "<",
                0.0,
            )
            model.row([up, down], [1.0, 1.0], "<", 1.0)
    return FlowModel(model, problem, held)
