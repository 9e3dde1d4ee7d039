"""The `modes` formulation: counts only, no big-M, no SOS; interchangeable jobs are one class of several members.

Counts that no optimum contains are not posed to a solver (docs/model.md). Let there be tables v_c, m_c members of class
c, and a price p per unit. Then

    D(p) = sum over c of m_c · max_n (v_c(n) - p·n)  +  p·N

is at least the value of any allocation. An allocation has a value of at most D(p) minus the sum of its members' losses
max_m (v_c(m) - p·m) - (v_c(n) - p·n). So the losses of an optimum add up to at most D(p) minus the value of some
allocation. (Known as variable fixing by reduced costs: Nemhauser and Wolsey 1988, II.5.2.) In the same way the units
that members have above their smallest counts add up to at most what is left when all have their smallest. Both say
which counts are in no optimum, and how many members may have another count than the one that costs nothing: of members
who are nearly alike only that many are needed (`_Market.within`), or a solver tries them all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from bft.milp.formulations.linear import Formulated, LinearModel, Nonsense
from bft.milp.jobs import BoolArray, FloatArray, IntArray
from bft.milp.problem import Limit, Problem
from bft.milp.tables import keep, tables_of
from bft.milp.tolerances import EQUAL_SLOPES, PRUNING_SUMS

# Up to this many classes a solver takes milliseconds, and all counts are posed.
POSED_WHOLE = 15
# Halvings of the price interval.
ROUNDS = 40

Run = list[tuple[int, float]]
"""Points (units, value) of a stretch of a value table that is linear between them and concave over all."""


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


def mode_runs(values: FloatArray, line: BoolArray, held: int) -> Iterator[Run]:
    """Yield the concave runs of a value table without its entry 0, mode by mode: shrink, stay, grow.

    Parameters
    ----------
    values, line
        The table, -inf where a count is not allowed, and whether a value lies on the line between its neighbours.
    held
        Units that the job holds now.
    """
    counts = np.arange(len(values))
    allowed = (values > -np.inf) & (counts > 0)
    first = allowed & ((counts == held) | (counts == held + 1))
    first[1:] |= allowed[1:] & ~allowed[:-1]
    last = allowed & ~np.append(allowed[1:] & ~first[1:], False)
    points = np.flatnonzero(allowed & (first | last | ~line))
    for run in np.split(points, np.flatnonzero(first[points])[1:]):
        if len(run):
            pairs = zip(run.tolist(), values[run].tolist(), strict=True)
            yield from concave_runs(list(pairs))


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
    model: LinearModel, runs: Sequence[Run], members: int = 1, *, integer: bool = True
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
            slope = (v1 - v0) / length
            segment = model.variable(slope, float(length * members), integer=integer)
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


def add_limit(
    model: LinearModel, limit: Limit, items: Sequence[Sequence[Chosen]]
) -> None:
    """Add a limit on jobs; `items` are the runs of each job, on each kind of units."""
    row: defaultdict[int, float] = defaultdict(float)
    for j, each in limit.per_unit.items():
        for chosen in items[j]:
            for index, units in chosen.parts:
                row[index] += float(each * units)
    for j, each in limit.if_any.items():
        for chosen in items[j]:
            for binary, _, _ in chosen.runs:
                row[binary] += float(each)
    if row:
        model.row(list(row), list(row.values()), "<", float(limit.most))


def build(problem: Problem, known: float | None = None) -> Formulated:
    """Formulate `problem`.

    For each class of interchangeable jobs with m members (mostly one), on each kind of units: a whole number t per run
    with points p0 < p1 < ... (members in the run), a number of members that are off, and whole numbers
    0 <= x_i <= (p_{i+1} - p_i)·t per segment. Subject to

        sum of t over the class's kinds and runs + off = m        so a member is active on one kind at most
        sum over all runs on a kind of p0·t + x <= units of it    for each kind

    maximise the sum of v(p0)·t + slope_i·x_i. Runs are concave, so segments fill in order, for all members of a run at
    once: no unit of segment i + 1 is used before segment i is full, so its units can be given to members one by one.

    Limits are rows of their own. With more than `POSED_WHOLE` classes only the counts are posed that an allocation
    worth `known` or more may contain (`prune`), with several kinds or limits those that an optimum can. Decodes
    to choices (`Problem`).

    Parameters
    ----------
    problem
        The problem; without sharing.
    known
        The value of an allocation, by default of the present one.
    """
    tables = tables_of(problem)
    classes, worth = tables.classes, tables.alone
    sizes = classes.sizes.tolist()
    pruned = problem.plain and len(worth) > POSED_WHOLE
    if not problem.plain:
        worth = tables.hopeful()
    elif pruned:
        floor = tables.value(keep(problem)) if known is None else known
        # The debt is not in the tables; its rounding must not exclude an optimum.
        floor -= tables.debt + PRUNING_SUMS * abs(tables.debt)
        worth = prune(worth, classes.sizes, problem.units, floor)
    model, constant = LinearModel(), tables.debt
    left = problem.capacity.tolist()
    # Of each class its runs on each kind; a number: the units of each member, if only one count is possible.
    items: list[dict[int, Chosen] | int] = []
    for j, members, table in zip(classes.positions.tolist(), sizes, worth, strict=True):
        if pruned and np.count_nonzero(table > -np.inf) == 1:
            count = int(table.argmax())
            items.append(count)
            left[0] -= members * count
            constant += members * float(table[count])
            continue
        ones = []
        if table[0] > -np.inf:
            ones.append(model.variable(float(table[0]), float(members)))
        chosen: dict[int, Chosen] = {}
        line = tables.line_of(j)
        for kind, first in enumerate(problem.firsts.tolist()):
            # The first entry is no choice of this kind; no run contains it.
            own = slice(first, first + int(problem.capacity[kind]) + 1)
            held = problem.current[j] if kind == problem.held_kinds[j] else 0
            runs = list(mode_runs(table[own], line[own], held))
            chosen[kind], binaries = add_runs(model, runs, members)
            ones += binaries
        model.row(ones, [1.0] * len(ones), "=", float(members))
        items.append(chosen)
    posed = [item for item in items if not isinstance(item, int)]
    for kind, units in enumerate(left):
        limit_units(model, [item[kind] for item in posed], units)
    for limit in problem.limits:
        add_limit(model, limit, [list(item.values()) for item in posed])

    def decode(x: FloatArray) -> tuple[int, ...]:
        given = [
            iter(_choices(problem, j, item, x, members))
            for j, item, members in zip(
                classes.positions.tolist(), items, sizes, strict=True
            )
        ]
        return tuple(next(given[c]) for c in classes.of.tolist())

    return Formulated(model, decode, constant)


def _choices(
    problem: Problem,
    j: int,
    chosen: Mapping[int, Chosen] | int,
    x: FloatArray,
    members: int,
) -> list[int]:
    """The choices of the members of job j's class in a solution `x`; raise Nonsense where there are no such choices."""
    if isinstance(chosen, int):
        return [chosen] * members
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
    idle = problem.capacity[kind]
    if not 0 < units <= idle:
        raise Nonsense(
            f"invalid answer: job {name!r} gets {units} units of a kind of which {idle} are idle"
        )
    return [int(problem.firsts[kind]) + units]


def prune(
    tables: Sequence[FloatArray], sizes: IntArray, units: int, known: float
) -> list[FloatArray]:
    """The tables of the classes, -inf at counts that are not needed; at least one optimum remains.

    Parameters
    ----------
    tables
        v_c(n) of each class, -inf where not allowed, finite at 0.
    sizes
        Members of each class.
    units
        Units to give.
    known
        The value of an allocation.
    """
    market, before = _Market.of(tables, sizes, units), 0
    while len(market.counts) != before:
        before = len(market.counts)
        market = market.by_price(known).by_units()
    return market.tables([len(table) for table in tables])


@dataclass(frozen=True, eq=False)
class _Market:
    """Classes of jobs that buy units: the counts that each may have, ascending, and their values, all in one array.

    `owner` is the class of each entry.
    """

    sizes: IntArray
    units: int
    owner: IntArray
    counts: IntArray
    values: FloatArray

    @classmethod
    def of(cls, tables: Sequence[FloatArray], sizes: IntArray, units: int) -> _Market:
        owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        counts = np.concatenate([np.arange(len(table)) for table in tables])
        whole = cls(sizes, units, owner, counts, np.concatenate(tables))
        return whole.only(whole.values > -np.inf)

    def only(self, chosen: BoolArray) -> _Market:
        """The market with these counts only."""
        return replace(
            self,
            owner=self.owner[chosen],
            counts=self.counts[chosen],
            values=self.values[chosen],
        )

    def tables(self, lengths: Sequence[int]) -> list[FloatArray]:
        """The tables of the classes, -inf at other counts."""
        ends = np.cumsum(lengths)
        begins = ends - lengths
        values = np.full(ends[-1], -np.inf)
        values[begins[self.owner] + self.counts] = self.values
        return np.split(values, begins[1:])

    @cached_property
    def begins(self) -> IntArray:
        """Where the entries of each class begin."""
        return np.flatnonzero(np.diff(self.owner, prepend=-1))

    def by_price(self, known: float) -> _Market:
        """Without what loses more than the difference of the bound and the value `known`."""
        price = self.clear()
        worth, best = self.worth(price)
        bound = float((self.sizes * best).sum()) + price * self.units
        # Relative to the values themselves: at the price of a straight curve the best differences are pure rounding.
        slack = PRUNING_SUMS * float(
            (self.sizes * np.maximum.reduceat(np.abs(self.values), self.begins)).sum()
        )
        loss = best[self.owner] - worth
        return self.within(loss, bound - known + slack, self._first(loss == 0.0))

    def by_units(self) -> _Market:
        """Without what takes more units than there are if everybody else has their smallest count."""
        fewest = self.counts[self.begins]
        return self.within(
            self.counts - fewest[self.owner],
            self.units - int((self.sizes * fewest).sum()),
            self.begins,
        )

    def within(
        self, costs: FloatArray | IntArray, budget: float, free: IntArray
    ) -> _Market:
        """Without what costs more than all together may cost, and without those whom others can stand in for.

        `free` is an entry of each class that costs nothing. Let k members at most be able to afford another one. Then
        an optimum exists in which a step of d units is taken only by the k members who gain most by it: of these, one
        at least is at its free count if somebody else takes the step, and can take it instead.
        """
        taken = np.zeros(len(costs), dtype=bool)
        taken[free] = True
        least = np.minimum.reduceat(np.where(taken, np.inf, costs), self.begins)
        movers = np.count_nonzero(
            np.cumsum(np.sort(np.repeat(least, self.sizes))) <= budget
        )
        steps = self.counts - self.counts[free][self.owner]
        gains = self.values - self.values[free][self.owner]
        moves = np.flatnonzero((costs <= budget) & ~taken)
        moves = moves[np.lexsort((-gains[moves], steps[moves]))]
        members = self.sizes[self.owner[moves]]
        ahead = np.cumsum(members) - members
        ahead -= ahead[
            np.searchsorted(steps[moves], steps[moves])
        ]  # only those who take the same step
        taken[moves[ahead < movers]] = True
        return self.only(taken)

    def worth(self, price: float) -> tuple[FloatArray, FloatArray]:
        """Value minus price·n at every count, and the best of each class."""
        worth = self.values - price * self.counts
        return worth, np.maximum.reduceat(worth, self.begins)

    def clear(self) -> float:
        """A price near the best at which the units suffice."""
        first = self.begins[self.owner]
        steps, rise = self.counts - self.counts[first], self.values - self.values[first]
        low, high = 0.0, 2.0 * float((rise / np.maximum(steps, 1)).max())
        for _ in range(ROUNDS):
            price = (low + high) / 2
            worth, best = self.worth(price)
            wanted = self.counts[self._first(worth == best[self.owner])]
            if (self.sizes * wanted).sum() > self.units:
                low = price
            else:
                high = price
        return high

    def _first(self, at_best: BoolArray) -> IntArray:
        return np.minimum.reduceat(
            np.where(at_best, np.arange(len(self.counts)), len(self.counts)),
            self.begins,
        )
