"""The `modes` formulation where units are of several kinds: a row for each kind, and at most one kind for a job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bft.milp.formulations.linear import Formulated, LinearModel
from bft.milp.formulations.modes import Chosen, add_runs, limit_units, mode_runs
from bft.milp.kinds import KindsProblem, KindsTable
from bft.milp.problem import FloatArray


def build(problem: KindsProblem, tables: Sequence[KindsTable]) -> Formulated:
    """Formulate `problem`, whose jobs have these tables (`hopeful`).

    For each job and each kind that it can run on, a binary t per concave run and whole numbers x per segment, as in
    `modes.build`. Subject to

        sum of t over all kinds and runs of the job + off = 1        so it is active on one kind at most
        sum over all jobs' runs on the kind of p0·t + x <= units of the kind        for each kind

    Decodes to units of job j and kind k at [j · kinds + k].
    """
    kinds = list(problem.units)
    model = LinearModel()
    parts: list[dict[int, Chosen]] = []
    for j, table in enumerate(tables):
        place, held = problem.now(j)
        ones = [model.variable(table.off, 1.0)] if table.off > -np.inf else []
        mine: dict[int, Chosen] = {}
        for kind, values in table.on.items():
            edges = np.flatnonzero(np.diff(values > -np.inf)).tolist()
            current = held if kind == place else 0
            runs = list(mode_runs(problem.jobs[j][kinds[kind]], current, values, edges))
            mine[kind], binaries = add_runs(model, runs)
            ones += binaries
        model.row(ones, [1.0] * len(ones), "=", 1.0)
        parts.append(mine)
    for kind, units in enumerate(problem.units.values()):
        limit_units(model, [mine[kind] for mine in parts if kind in mine], units)

    def decode(x: FloatArray) -> tuple[int, ...]:
        return tuple(
            mine[kind].units(x) if kind in mine else 0
            for mine in parts
            for kind in range(len(kinds))
        )

    return Formulated(model, decode)
