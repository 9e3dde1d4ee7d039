"""The allocation problem with several kinds of units, such as two types of GPU (docs/model.md).

A job gets units of one kind, never of several. Its curve depends on the kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bft.milp.problem import (
    MAX_OBJECTIVE,
    CostModel,
    FloatArray,
    IntArray,
    Job,
    ProblemError,
)
from bft.milp.tolerances import EQUAL_SUMS
from bft.milp.values import value_table

# What a job gets: units of a kind (its position in `KindsProblem.units`); of none, the kind is 0.
Choice = tuple[int, int]
OFF: Choice = (0, 0)


@dataclass(frozen=True, eq=False)
class KindsProblem:
    """An allocation problem with kinds of units: jobs get idle units of one kind for the next `tfwd` seconds.

    Parameters
    ----------
    units
        Idle units of each kind, >= 0. Among equally good kinds the first one is taken.
    tfwd
        Forward-looking window in seconds, > 0.
    jobs
        For each job in play, by kind: its properties on units of that kind. It cannot run on a kind that is missing.
        Name, weight and objective without units are the same on all.
    current
        Kind and number of the units that each job holds now, None where it holds none.
    cost_model
        As in `Problem`. A job that changes to another kind pays as one that grows: Tcup of the new kind, at its rate
        before.

    Examples
    --------
    >>> fast, slow = (Job("a", 1, 4, ns=[0, 4], os=[0, o], tcup=20.0, tcdw=10.0) for o in (80, 40))
    >>> KindsProblem({"a100": 2, "v100": 4}, 120.0, ({"a100": fast, "v100": slow},), (("v100", 1),)).held
    (0, 1)
    """

    units: Mapping[str, int]
    tfwd: float
    jobs: tuple[Mapping[str, Job], ...]
    current: tuple[tuple[str, int] | None, ...]
    cost_model: CostModel = "bftrainer"

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", MappingProxyType(dict(self.units)))
        object.__setattr__(
            self, "jobs", tuple(MappingProxyType(dict(job)) for job in self.jobs)
        )
        object.__setattr__(
            self,
            "current",
            tuple(now if now and now[1] else None for now in self.current),
        )
        if not self.units:
            raise ProblemError("units: expected at least one kind")
        for kind, units in self.units.items():
            if units < 0:
                raise ProblemError(f"units of kind {kind!r} must be >= 0, not {units}")
        if not (np.isfinite(self.tfwd) and 0 < self.tfwd <= MAX_OBJECTIVE):
            raise ProblemError(
                f"Tfwd must be a number of seconds > 0, at most {MAX_OBJECTIVE:g}, not {self.tfwd!r}"
            )
        if self.cost_model not in ("bftrainer", "stall"):
            raise ProblemError(
                f"cost_model must be 'bftrainer' or 'stall', not {self.cost_model!r}"
            )
        if len(self.current) != len(self.jobs):
            raise ProblemError(
                f"current has {len(self.current)} entries for {len(self.jobs)} jobs"
            )
        for job, now in zip(self.jobs, self.current, strict=True):
            self._check(job, now)
        if len(set(self.names)) != len(self.jobs):
            raise ProblemError("job names must be unique")
        for kind, held in zip(self.units, self.held, strict=True):
            if held > self.units[kind]:
                raise ProblemError(
                    f"the jobs hold {held} units of kind {kind!r}, but only {self.units[kind]} are idle"
                )

    def _check(self, job: Mapping[str, Job], now: tuple[str, int] | None) -> None:
        if not job:
            raise ProblemError("a job must be able to run on at least one kind")
        first = next(iter(job.values()))
        for kind, other in job.items():
            if kind not in self.units:
                known = ", ".join(map(repr, self.units))
                raise ProblemError(
                    f"job {first.name!r}: unknown kind {kind!r}; the units are of {known}"
                )
            if (other.name, other.weight, other.os[0]) != (
                first.name,
                first.weight,
                first.os[0],
            ):
                raise ProblemError(
                    f"job {first.name!r}: name, weight and Os[0] must be the same on every kind"
                )
        if now is not None and (now[0] not in job or now[1] < 0):
            raise ProblemError(
                f"job {first.name!r} holds {now[1]} units of kind {now[0]!r}, on which it cannot run"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the jobs."""
        return tuple(next(iter(job.values())).name for job in self.jobs)

    @property
    def held(self) -> tuple[int, ...]:
        """Units of each kind that jobs hold now."""
        held = dict.fromkeys(self.units, 0)
        for now in self.current:
            if now is not None:
                held[now[0]] += now[1]
        return tuple(held.values())

    def now(self, j: int) -> Choice:
        """The choice that leaves job j what it holds, whether or not it may keep that."""
        now = self.current[j]
        return OFF if now is None else (list(self.units).index(now[0]), now[1])


@dataclass(frozen=True, slots=True)
class KindsTable:
    """The values of one job: without units, and on n = 0 ... units of each kind on which it can run, by position.

    Entry 0 of a kind's table is -inf: the value without units stands apart. So are counts that are not allowed.
    """

    off: float
    on: Mapping[int, FloatArray]

    def at(self, choice: Choice) -> float:
        """Return the value of a choice, -inf where it is not allowed."""
        kind, units = choice
        if not units:
            return self.off
        table = self.on.get(kind)
        return (
            float(table[units])
            if table is not None and 0 < units < len(table)
            else -math.inf
        )

    def points(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Kind, units and value of the allowed choices: fewest units first, then in the order of kinds."""
        allowed = {
            kind: np.flatnonzero(table > -np.inf) for kind, table in self.on.items()
        }
        off = np.zeros(int(self.off > -math.inf), dtype=np.int64)
        kinds = np.concatenate(
            [off, *(np.full(len(units), kind) for kind, units in allowed.items())]
        )
        units = np.concatenate([off, *allowed.values()])
        values = np.concatenate(
            [off + self.off, *(self.on[kind][units] for kind, units in allowed.items())]
        )
        order = np.lexsort((kinds, units))
        return kinds[order], units[order], values[order]


def kinds_tables(problem: KindsProblem) -> list[KindsTable]:
    """The values of all jobs.

    On the kind that a job holds they are those of `value_table`; on another kind, under `bftrainer`,

        v(kind, n) = weight · (Tfwd · O_kind(n) - Tcup_kind · r),    r: the rate on what it holds

    and under `stall` weight · max(Tfwd - Tcup_kind, 0) · O_kind(n).
    """
    return [_table(problem, j) for j in range(len(problem.jobs))]


def _table(problem: KindsProblem, j: int) -> KindsTable:
    job, (place, held) = problem.jobs[j], problem.now(j)
    kinds = list(problem.units)
    holds = job[kinds[place]] if held else next(iter(job.values()))
    off = float(value_table(holds, held, 0, problem.tfwd, problem.cost_model)[0])
    on: dict[int, FloatArray] = {}
    for position, kind in enumerate(kinds):
        if kind not in job:
            continue
        stays = bool(held) and position == place
        table = value_table(
            job[kind],
            held if stays else 0,
            problem.units[kind],
            problem.tfwd,
            problem.cost_model,
        )
        if held and not stays and problem.cost_model == "bftrainer":
            table -= job[kind].weight * job[kind].tcup * holds.rate(held)
        table[0] = -np.inf
        on[position] = table
    return KindsTable(off, on)


def kept_choices(problem: KindsProblem) -> tuple[Choice, ...]:
    """Return the choices with which jobs keep their units as far as sizes allow: a lower bound of any optimum."""
    kept = []
    for j, job in enumerate(problem.jobs):
        now = problem.current[j]
        units = 0 if now is None else job[now[0]].at_most(now[1])
        kept.append((problem.now(j)[0], units) if units else OFF)
    return tuple(kept)


def hopeful(tables: Sequence[KindsTable], kept: Sequence[Choice]) -> list[KindsTable]:
    """The tables without what no optimum can contain, however much the other jobs gain: it has the value -inf.

    So a cost of 1e9 times the total value does not make other values vanish in a solver's tolerances.
    """
    best = [float(table.points()[2].max()) for table in tables]
    keep = [table.at(choice) for table, choice in zip(tables, kept, strict=True)]
    stake = math.fsum(high - value for high, value in zip(best, keep, strict=True))
    # Rounding must not exclude an optimum.
    stake += EQUAL_SUMS * (stake + max(map(abs, [*best, *keep]), default=0.0))
    left = []
    for table, high in zip(tables, best, strict=True):
        on = {
            kind: np.where(values >= high - stake, values, -np.inf)
            for kind, values in table.on.items()
        }
        left.append(
            KindsTable(table.off if table.off >= high - stake else -math.inf, on)
        )
    return left


def kinds_value(tables: Sequence[KindsTable], choices: Sequence[Choice]) -> float:
    """Sum of the values, correctly rounded: equal choices give equal bits, in any order and on any Python."""
    return math.fsum(
        table.at(choice) for table, choice in zip(tables, choices, strict=True)
    )


def kinds_complaint(
    problem: KindsProblem, tables: Sequence[KindsTable], choices: Sequence[Choice]
) -> str:
    """Why choices are infeasible; an empty string if they are feasible."""
    used = [0] * len(problem.units)
    for name, table, (kind, units) in zip(problem.names, tables, choices, strict=True):
        if units and table.at((kind, units)) == -math.inf:
            return f"job {name!r} gets {units} units of kind {list(problem.units)[kind]!r}, which it may not have"
        used[kind] += units
    for (name, idle), given in zip(problem.units.items(), used, strict=True):
        if given > idle:
            return f"{given} units of kind {name!r} given, {idle} idle"
    return ""
