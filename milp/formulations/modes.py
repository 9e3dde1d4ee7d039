"""The `modes` formulation: counts only, no big-M, no SOS; interchangeable jobs are one class of several members."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, repeat

import numpy as np

from bft.milp.classes import classes_of
from bft.milp.formulations.linear import Formulated, LinearModel, Nonsense
from bft.milp.formulations.pruning import prune
from bft.milp.problem import FloatArray, Job, Problem
from bft.milp.tolerances import EQUAL_SLOPES
from bft.milp.values import hopeful, keep, table_of

# Up to this many classes a solver takes milliseconds, and all counts are posed: no pruning has to be proven right.
POSED_WHOLE = 15

Run = list[tuple[int, float]]
"""Points (units, value) of a stretch of a value table that is linear between them and concave over all."""


def mode_intervals(job: Job, current: int, max_units: int) -> Iterator[tuple[int, int]]:
    """Yield the counts up to `max_units` that a job may have: stretches, each cut into shrink, stay and grow."""
    for low, last in job.stretches:
        high = min(last, max_units)
        shrink, stay = (
            (low, min(current - 1, high)),
            (max(current, low), min(current, high)),
        )
        for first, end in (shrink, stay, (max(current + 1, low), high)):
            if first <= end:
                yield first, end


def break_points(ns: FloatArray, low: int, high: int) -> list[int]:
    """Whole numbers in [low, high] between which a curve with breakpoints `ns` is linear."""
    inner = ns[(ns > low) & (ns < high)]
    return sorted(
        {
            low,
            high,
            *np.floor(inner).astype(int).tolist(),
            *np.ceil(inner).astype(int).tolist(),
        }
    )


def concave_runs(points: Run) -> Iterator[Run]:
    """Cut a piecewise linear function, given by its points, into maximal concave runs.

    A run ends where the slope rises, and the next one starts at that very point.
    """
    run = points[:1]
    slope = np.inf
    for (n0, v0), (n1, v1) in pairwise(points):
        step = (v1 - v0) / (n1 - n0)
        if step > slope + EQUAL_SLOPES * max(abs(step), abs(slope)):
            yield run
            run = [(n0, v0)]
        run.append((n1, v1))
        slope = step
    yield run


def mode_runs(
    job: Job, current: int, values: FloatArray, named: Sequence[int] = ()
) -> Iterator[Run]:
    """Yield the concave runs of a job's value table, mode by mode (n = 0 is the off mode, not among them).

    `named`: counts at which the table leaves the line between its neighbours. Counts with value -inf are in no run.
    """
    for low, high in mode_intervals(job, current, len(values) - 1):
        around = {n for m in named for n in (m - 1, m, m + 1) if low <= n <= high}
        points = sorted({*break_points(job.ns, low, high), *around})
        for allowed, stretch in groupby(
            points, key=lambda n: bool(values[n] > -np.inf)
        ):
            if allowed:
                yield from concave_runs([(n, float(values[n])) for n in stretch])


@dataclass(slots=True)
class Chosen:
    """The runs of a job, or of a pair of jobs: binaries and segments, each with its units.

    `runs` holds for each run its binary, its first unit, and its segments with their lengths.
    """

    parts: list[tuple[int, int]] = field(default_factory=list)
    runs: list[tuple[int, int, list[tuple[int, int]]]] = field(default_factory=list)

    def units(self, x: FloatArray) -> int:
        """Units in a solution `x`."""
        return round(math.fsum(float(x[index]) * units for index, units in self.parts))

    def counts(self, x: FloatArray, members: int) -> list[int]:
        """Units of each member of a class in a solution `x`, in descending order.

        Members in the same run fill its segments in order, which is optimal because a run is concave.
        """
        counts: list[int] = []
        for binary, first, segments in self.runs:
            mine = [first] * round(float(x[binary]))
            left = round(math.fsum(float(x[segment]) for segment, _ in segments))
            for _, length in segments:
                for member in range(len(mine)):
                    filled = min(left, length)
                    mine[member] += filled
                    left -= filled
            counts += mine
        counts = (sorted(counts, reverse=True) + [0] * members)[:members]
        # If x does not satisfy the model, the caller's check must still see all units.
        counts[0] += self.units(x) - sum(counts)
        return counts

    def filled(self, units: int) -> list[tuple[int, float]] | None:
        """The variables that are not 0 at this many units, None when no run covers them."""
        for binary, first, segments in self.runs:
            left = units - first
            if 0 <= left <= sum(length for _, length in segments):
                start = [(binary, 1.0)]
                for segment, length in segments:
                    filled = min(left, length)
                    left -= filled
                    if filled:
                        start.append((segment, float(filled)))
                return start
        return None


def add_runs(
    model: LinearModel, runs: Sequence[Run], members: int = 1
) -> tuple[Chosen, list[int]]:
    """Add a binary per run and a whole-numbered variable per segment; return them, and the binaries separately.

    For a class of several members the binaries become whole numbers: how many members are in the run.
    """
    chosen, binaries = Chosen(), []
    for run in runs:
        first, value = run[0]
        binary = model.variable(value, float(members))
        binaries.append(binary)
        chosen.parts.append((binary, first))
        segments: list[tuple[int, int]] = []
        for (n0, v0), (n1, v1) in pairwise(run):
            length = n1 - n0
            segment = model.variable((v1 - v0) / length, float(length * members))
            model.row([segment, binary], [1.0, -float(length)], "<", 0.0)
            chosen.parts.append((segment, 1))
            segments.append((segment, length))
        chosen.runs.append((binary, first, segments))
    return chosen, binaries


def limit_units(model: LinearModel, items: Iterable[Chosen], units: int) -> None:
    """Limit the units of all items together to `units`."""
    parts = [part for chosen in items for part in chosen.parts]
    if parts:
        model.row(
            [index for index, _ in parts],
            [float(each) for _, each in parts],
            "<",
            float(units),
        )


def build(problem: Problem) -> Formulated:
    """Formulate `problem`.

    For each class of interchangeable jobs with m members (mostly one), on each kind of units: a whole number t per run
    with points p0 < p1 < ... (members in the run), a number of members that are off, and whole numbers
    0 <= x_i <= (p_{i+1} - p_i)·t per segment. Subject to

        sum of t over the class's kinds and runs + off = m        so a member is active on one kind at most
        sum over all runs on a kind of p0·t + x <= units of it    for each kind

    maximise the sum of v(p0)·t + slope_i·x_i. Runs are concave, so segments fill in order, for all members of a run at
    once: no unit of segment i + 1 is used before segment i is full, so its units can be given to members one by one.

    With more than `POSED_WHOLE` classes only the counts that an optimum may need are posed (`pruning`), with several
    kinds those that one can contain (`values.hopeful`). Decodes to choices (`Problem`).
    """
    classes = classes_of(problem)
    sizes = classes.sizes
    tables = [table_of(problem, j) for j in classes.first]
    pruned = problem.several_kinds or len(tables) > POSED_WHOLE
    if problem.several_kinds:
        tables = hopeful(tables, keep(problem))
    elif pruned:
        tables = prune(tables, sizes, problem.units)
    model, constant = LinearModel(), 0.0
    left = [problem.units]
    if problem.kinds is not None:
        left = list(problem.kinds.units.values())
    # Of each class its runs on each kind; a number: the units of each member, if only one count is possible.
    items: list[dict[int, Chosen] | int] = []
    for j, members, table in zip(classes.first, sizes.tolist(), tables, strict=True):
        if len(left) == 1 and pruned and np.count_nonzero(table > -np.inf) == 1:
            count = int(np.argmax(table))
            items.append(count)
            left[0] -= members * count
            constant += members * float(table[count])
            continue
        ones = []
        if table[0] > -np.inf:
            ones.append(model.variable(float(table[0]), float(members)))
        chosen: dict[int, Chosen] = {}
        for side in problem.sides(j):
            # The first entry is no choice of this side; no run contains it.
            last = side.first + min(side.job.jmax, side.units)
            values = table[side.first : last + 1]
            edges = np.flatnonzero(np.diff(values > -np.inf)).tolist() if pruned else ()
            runs = list(mode_runs(side.job, side.held, values, edges))
            chosen[side.kind], binaries = add_runs(model, runs, members)
            ones += binaries
        model.row(ones, [1.0] * len(ones), "=", float(members))
        items.append(chosen)
    posed = [item for item in items if not isinstance(item, int)]
    for kind, units in enumerate(left):
        limit_units(model, [item[kind] for item in posed if kind in item], units)

    def decode(x: FloatArray) -> tuple[int, ...]:
        given: list[Iterator[int]] = []
        for j, item, members in zip(classes.first, items, sizes.tolist(), strict=True):
            if isinstance(item, int):
                given.append(repeat(item))
            else:
                given.append(iter(_choices(problem, j, item, x, members)))
        return tuple(next(given[c]) for c in classes.of.tolist())

    return Formulated(model, decode, constant)


def _choices(
    problem: Problem, j: int, chosen: Mapping[int, Chosen], x: FloatArray, members: int
) -> list[int]:
    """The choices of the members of job j's class in a solution `x`; raise Nonsense where there are no such choices."""
    if not problem.several_kinds:
        return chosen[0].counts(x, members)
    active = [(kind, item.units(x)) for kind, item in chosen.items()]
    active = [(kind, units) for kind, units in active if units]
    name = problem.jobs[j].name
    if len(active) > 1:
        raise Nonsense(f"invalid answer: job {name!r} gets units of several kinds")
    if not active:
        return [0]
    kind, units = active[0]
    side = next(side for side in problem.sides(j) if side.kind == kind)
    if not 0 < units <= side.units:
        raise Nonsense(
            f"invalid answer: job {name!r} gets {units} units of a kind of which {side.units} are idle"
        )
    return [problem.choice(kind, units)]
