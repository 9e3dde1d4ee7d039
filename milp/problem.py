"""One allocation problem and its answer (docs/model.md): plain values, no solver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, overload

import numpy as np

from bft.milp.jobs import (
    MAX_OBJECTIVE,
    MAX_UNITS,
    FloatArray,
    IntArray,
    Job,
    ProblemError,
)
from bft.milp.terms import Rows
from bft.milp.values import Value, check_value

CostModel = Literal["bftrainer", "stall"]
Status = Literal["optimal", "feasible", "fallback", "infeasible"]
# Which of several optima is returned: the canonical one, independent of the solver, or the one that the solver returns.
Ties = Literal["canonical", "solver"]
TIES: tuple[Ties, ...] = ("canonical", "solver")


class Counts(Sequence[int]):
    """Units of each job as compiled code has counted them, `array`, int64; like the tuple of these numbers else.

    >>> counts = Counts(np.array([1, 4]))
    >>> counts, counts[1], counts == (1, 4)
    ((1, 4), 4, True)
    """

    __slots__ = ("array",)

    def __init__(self, array: IntArray) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[int]:
        return iter(self.array.tolist())

    @overload
    def __getitem__(self, position: int) -> int: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[int, ...]: ...

    def __getitem__(self, position: int | slice) -> int | tuple[int, ...]:
        if isinstance(position, slice):
            return tuple(self)[position]
        return int(self.array[position])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs that may share units, and how much that slows each down (docs/model.md).

    Parameters
    ----------
    a, b
        Positions in `Problem.jobs`, a < b.
    xi_a, xi_b
        Interference ratios, >= 1: an iteration of a takes xi_a times as long while a shares units with b, and xi_b
        that of b. Infinite: sharing is not allowed, except on counts listed in `at_a`, `at_b`.
    shared
        Units that both hold now, in common.
    at_a, at_b
        (units, ratio) for counts at which a job's ratio differs from xi_a, xi_b.
        An infinite ratio: sharing is not allowed at that count.

    Examples
    --------
    >>> pair = Pair(0, 1, xi_a=1.2, xi_b=1.5, at_b=((4, 2.0),))
    >>> pair.xi(0), pair.xi(1), pair.xi(1, units=4)
    (1.2, 1.5, 2.0)
    """

    a: int
    b: int
    xi_a: float
    xi_b: float
    shared: int = 0
    at_a: tuple[tuple[int, float], ...] = ()
    at_b: tuple[tuple[int, float], ...] = ()

    def xi(self, job: int, units: int | None = None) -> float:
        """The interference ratio of `job`, a or b, on this many units; None: on counts that are not listed."""
        otherwise = self.xi_a if job == self.a else self.xi_b
        return (
            otherwise if units is None else dict(self.named(job)).get(units, otherwise)
        )

    def named(self, job: int) -> tuple[tuple[int, float], ...]:
        """Return the ratios that are listed by unit count for a job of the pair: `at_a` or `at_b`."""
        return self.at_a if job == self.a else self.at_b


@dataclass(frozen=True, slots=True)
class Transfer:
    """A move of units from holders `before` to holders `after`: each none, one or two positions, ascending."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    units: int


@dataclass(frozen=True, slots=True)
class Limit:
    """A linear constraint on the units n_j of jobs: sum of per_unit[j]·n_j + if_any[j]·[n_j > 0] <= most.

    So jobs may have a budget of units in common, or exclude each other.

    Parameters
    ----------
    most
        The right-hand side, a whole number >= 0, so that nobody having units is always allowed.
    per_unit, if_any
        Coefficients by position in `Problem.jobs`, whole numbers >= 0; missing ones are 0.

    Examples
    --------
    >>> budget, either = Limit(8, per_unit={0: 1, 1: 1}), Limit(1, if_any={1: 1, 2: 1})
    >>> budget.used([3, 4, 5]), either.used([3, 4, 5])
    (7, 2)
    """

    most: int
    per_unit: Mapping[int, int] = field(default_factory=dict)
    if_any: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for job in self.jobs:
            if not isinstance(job, int | np.integer) or job < 0:
                raise ProblemError(
                    f"limit: expected jobs by their positions in Problem.jobs, whole numbers >= 0, not {job!r}"
                )
        for number in (self.most, *self.per_unit.values(), *self.if_any.values()):
            if not isinstance(number, int | np.integer) or not 0 <= number <= MAX_UNITS:
                raise ProblemError(
                    f"limit: expected whole numbers >= 0, at most {MAX_UNITS}, not {number!r}"
                )

    @property
    def jobs(self) -> set[int]:
        """Positions of the jobs that it concerns."""
        return {*self.per_unit, *self.if_any}

    def used(self, counts: Sequence[int] | IntArray) -> int:
        """The left-hand side for these numbers of units."""
        units = sum(each * int(counts[j]) for j, each in self.per_unit.items())
        return units + sum(each for j, each in self.if_any.items() if counts[j])


@dataclass(frozen=True, eq=False)
class UnitKinds:
    """The kinds of a problem's units, such as two types of GPU. A job gets units of one kind, never of several.

    Parameters
    ----------
    units
        Idle units of each kind, >= 0. Among equally good kinds the first one is taken.
    held
        The kind of units that each job holds now, None where it holds none.
    """

    units: Mapping[str, int]
    held: Sequence[str | None]

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", MappingProxyType(dict(self.units)))
        if not self.units:
            raise ProblemError("units: expected at least one kind")
        for kind, units in self.units.items():
            if units < 0:
                raise ProblemError(f"units of kind {kind!r} must be >= 0, not {units}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The kinds, in order."""
        return tuple(self.units)

    @property
    def positions(self) -> IntArray:
        """Position of the kind that each job holds, 0 where it holds none: int64 of shape (jobs,)."""
        number: dict[str | None, int] = {kind: k for k, kind in enumerate(self.units)}
        return np.array([number.get(kind, 0) for kind in self.held], np.int64)


def _on_kinds(
    job: Mapping[str, Job], kinds: Mapping[str, int], current: tuple[str, int] | None
) -> list[Job | None]:
    """The properties of a job on each kind, checked; `current`: kind and number of the units that it holds."""
    if not job:
        raise ProblemError("a job must be able to run on at least one kind")
    first = next(iter(job.values()))
    for kind, other in job.items():
        if kind not in kinds:
            known = ", ".join(map(repr, kinds))
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
    if current and current[1] and (current[0] not in job or current[1] < 0):
        raise ProblemError(
            f"job {first.name!r} holds {current[1]} units of kind {current[0]!r}, on which it cannot run"
        )
    return [job.get(kind) for kind in kinds]


@dataclass(frozen=True, eq=False)
class Problem:
    """An allocation problem: jobs get some of `units` idle units for the next `tfwd` seconds.

    What a job gets is its choice, a number: 0 for no units; n units of the kind with k units of earlier kinds are the
    choice k + n. So where all units are alike, a choice is a number of units.

    Parameters
    ----------
    units
        Idle units, >= 0.
    tfwd
        Forward-looking window in seconds, > 0.
    jobs
        The jobs in play, names unique; or rows of terms (`Rows`), which a replay keeps from one decision to the next.
    current
        Units that each job holds now, one number per job, or `Counts` of an array that does not change. Their sum may
        not exceed `units`.
    cost_model
        `bftrainer`: a rescale costs T x the rate before. `stall`: no progress for T seconds.
    pairs
        Jobs that may share units; if empty, every unit has one holder. A job shares with at most one other.
    alike
        Groups of jobs that hold no units and are interchangeable, at least two each, positions ascending. A pair that
        names the first job of a group stands for all its jobs; one that names the first two, for any two of them.
    kinds
        The kinds of units, None where all are alike. Jobs cannot share units of several kinds. A job that changes to
        another kind pays as one that grows: Tcup of the new kind, at its rate before. `of_kinds` makes such a problem.
    limits
        Further linear constraints, without sharing.
    value
        What a job's units are worth, in the place of `bft.milp.values.value` and with its parameters. Numba must be
        able to compile it. -inf rules a count out; a count of 0 must have a number.
    held
        Units that jobs hold now; a shared unit counts once.
    posed
        `jobs` as rows of their terms.
    counts, held_kinds, capacity
        `current` as int64, the position of the kind that each job holds (0 where it holds none), and the idle units of
        each kind.

    Examples
    --------
    >>> a, b = (Job(name, 1, 4, ns=[0, 1, 4], os=[0, 10, 30], tcup=20.0, tcdw=10.0) for name in "ab")
    >>> Problem(units=5, tfwd=120.0, jobs=(a, b), current=(1, 0)).holders
    (0,)
    """

    units: int
    tfwd: float
    jobs: Sequence[Job]
    current: Sequence[int]
    cost_model: CostModel = "bftrainer"
    pairs: tuple[Pair, ...] = ()
    alike: tuple[tuple[int, ...], ...] = ()
    kinds: UnitKinds | None = None
    limits: tuple[Limit, ...] = ()
    value: Value | None = None
    held: int = field(init=False, repr=False)
    posed: Rows = field(init=False, repr=False)
    counts: IntArray = field(init=False, repr=False)
    held_kinds: IntArray = field(init=False, repr=False)
    capacity: IntArray = field(init=False, repr=False)

    @classmethod
    def of_kinds(
        cls,
        units: Mapping[str, int],
        tfwd: float,
        jobs: Sequence[Mapping[str, Job]],
        current: Sequence[tuple[str, int] | None],
        cost_model: CostModel = "bftrainer",
    ) -> Problem:
        """Make a problem with several kinds of units.

        Parameters
        ----------
        units
            As in `UnitKinds`.
        tfwd, cost_model
            As in `Problem`.
        jobs
            For each job, by kind: its properties on units of that kind. It cannot run on a kind that is missing. Name,
            weight and objective without units are the same on all.
        current
            Kind and number of the units that each job holds now, None where it holds none.

        Examples
        --------
        >>> fast, slow = (Job("a", 1, 4, ns=[0, 4], os=[0, o], tcup=20.0, tcdw=10.0) for o in (80, 40))
        >>> Problem.of_kinds({"a100": 2, "v100": 4}, 120.0, [{"a100": fast, "v100": slow}], [("v100", 1)]).units
        6
        """
        if len(current) != len(jobs):
            raise ProblemError(
                f"current has {len(current)} entries for {len(jobs)} jobs"
            )
        counts = tuple(now[1] if now else 0 for now in current)
        held = tuple(now[0] if now and now[1] else None for now in current)
        kinds = UnitKinds(units, held)
        on_kinds = [
            _on_kinds(job, kinds.units, now)
            for job, now in zip(jobs, current, strict=True)
        ]
        rows = Rows.of(on_kinds, len(kinds.units))
        return cls(sum(units.values()), tfwd, rows, counts, cost_model, kinds=kinds)

    def __post_init__(self) -> None:
        rows = self.jobs
        if not isinstance(rows, Rows):
            jobs = tuple(rows)
            if len({job.name for job in jobs}) < len(jobs):
                raise ProblemError("job names must be unique")
            rows = Rows.of([(job,) for job in jobs])
        current = self.current
        # A copy, as code is compiled again for arrays that cannot be written to.
        counts = np.array(
            current.array if isinstance(current, Counts) else current, dtype=np.int64
        )
        if not isinstance(current, Counts):
            current = tuple(counts.tolist())
        idle, held_kinds = [self.units], np.zeros(len(rows), np.int64)
        if self.kinds is not None:
            idle, held_kinds = [*self.kinds.units.values()], self.kinds.positions
        # The fields of a frozen value, in one step: a replay makes a problem at every decision.
        vars(self).update(
            jobs=rows,
            current=current,
            limits=tuple(self.limits),
            held=int(counts.sum()) - sum(pair.shared for pair in self.pairs),
            posed=rows,
            counts=counts,
            held_kinds=held_kinds,
            capacity=np.array(idle, dtype=np.int64),
        )
        if self.units < 0:
            raise ProblemError(f"units must be >= 0, not {self.units}")
        if not 0 < self.tfwd <= MAX_OBJECTIVE:
            raise ProblemError(
                f"Tfwd must be a finite number of seconds > 0, at most {MAX_OBJECTIVE:g}, not {self.tfwd!r}"
            )
        if len(counts) != len(rows):
            raise ProblemError(
                f"current has {len(counts)} entries for {len(rows)} jobs"
            )
        if len(counts) and counts[counts.argmin()] < 0:
            raise ProblemError("current must be >= 0 for every job")
        if self.pairs:
            self._check_pairs()
        if self.held > self.units:
            raise ProblemError(
                f"the jobs hold {self.held} units, but only {self.units} are idle"
            )
        if self.kinds is not None:
            self._check_kinds(self.kinds)
        if self.limits:
            self._check_limits()
        if self.value is not None:
            check_value(self.value)
        if self.cost_model not in ("bftrainer", "stall"):
            raise ProblemError(
                f"cost_model must be 'bftrainer' or 'stall', not {self.cost_model!r}"
            )
        if self.alike:
            self._check_alike()

    @property
    def several_kinds(self) -> bool:
        """Whether units are of two kinds or more; one kind with a name is like none."""
        return self.kinds is not None and len(self.kinds.units) > 1

    @property
    def plain(self) -> bool:
        """Whether nothing but the number of units is limited."""
        return not self.several_kinds and not self.limits

    @property
    def stall(self) -> bool:
        """Whether the cost model is `stall`."""
        return self.cost_model == "stall"

    @property
    def waiting_terms(self) -> FloatArray:
        """The numbers on which a waiting job's value depends, its shape aside: float64, a row for each job."""
        weight = self.posed.weight[:, None]
        if self.value is None and not self.stall:
            return weight
        arrays, rows = self.posed.terms.arrays, self.posed.rows
        if self.value is None:
            return np.hstack([weight, np.maximum(self.tfwd - arrays.tcup[rows], 0.0)])
        return np.hstack([weight, arrays.tcup[rows], arrays.tcdw[rows]])

    @cached_property
    def firsts(self) -> IntArray:
        """Number of units of all earlier kinds, for each kind: int64."""
        return np.cumsum(self.capacity) - self.capacity

    def kinds_and_units(
        self, choices: Sequence[int] | IntArray
    ) -> tuple[IntArray, IntArray]:
        """Position of the kind and number of units of some choices: int64 each; the kind of no units is 0."""
        numbers = np.asarray(choices, dtype=np.int64)
        kinds = np.searchsorted(self.firsts, numbers, side="left") - 1
        kinds = np.maximum(kinds, 0)
        return kinds, numbers - self.firsts[kinds]

    def named(
        self, choices: Sequence[int] | IntArray
    ) -> tuple[Sequence[int], tuple[str | None, ...]]:
        """Counts of units, and the names of their kinds, as a `Solution` has them, for one choice per job."""
        if self.kinds is None:
            if isinstance(choices, np.ndarray):
                return Counts(choices), ()
            return tuple(choices), ()
        kinds, units = self.kinds_and_units(choices)
        names = self.kinds.names
        return tuple(units.tolist()), tuple(
            names[kind] if count else None
            for kind, count in zip(kinds.tolist(), units.tolist(), strict=True)
        )

    @cached_property
    def holders(self) -> tuple[int, ...]:
        """Positions of the jobs that hold units now, ascending."""
        return tuple(np.flatnonzero(self.counts).tolist())

    def partner(self, job: int) -> Pair | None:
        """The pair in which `job` shares units now, None if it shares with nobody."""
        return self._partners.get(job)

    def pair_of(self, a: int, b: int) -> Pair | None:
        """The pair of two jobs, a < b, that may share units, as `pairs` or a pair of their likes states it."""
        stated_a, stated_b = (
            self._stands.get(a, (a, a))[0],
            self._stands.get(b, (b, b))[0],
        )
        if stated_a == stated_b:
            stated_b = self._stands[b][1]
        pair = self._stated.get((min(stated_a, stated_b), max(stated_a, stated_b)))
        if pair is None or (pair.a, pair.b) == (a, b):
            return pair
        if stated_a < stated_b:
            return replace(pair, a=a, b=b)
        return Pair(a, b, pair.xi_b, pair.xi_a, pair.shared, pair.at_b, pair.at_a)

    @cached_property
    def _partners(self) -> dict[int, Pair]:
        return {
            job: pair for pair in self.pairs if pair.shared for job in (pair.a, pair.b)
        }

    @cached_property
    def _stated(self) -> dict[tuple[int, int], Pair]:
        return {(pair.a, pair.b): pair for pair in self.pairs}

    @cached_property
    def _stands(self) -> dict[int, tuple[int, int]]:
        """The first two of its group for each job that has its likes."""
        return {job: (group[0], group[1]) for group in self.alike for job in group}

    def _check_kinds(self, kinds: UnitKinds) -> None:
        shape = len(kinds.held), len(kinds.units)
        if (
            sum(kinds.units.values()) != self.units
            or (len(self.jobs), self.posed.terms.arrays.shape.shape[1]) != shape
        ):
            raise ProblemError(
                "kinds: expected those of these units and jobs; Problem.of_kinds makes a problem with kinds"
            )
        if self.pairs:
            raise ProblemError(
                "xi: expected none with several kinds of units, where jobs cannot share"
            )
        held = dict.fromkeys(kinds.units, 0)
        for kind, count in zip(kinds.held, self.current, strict=True):
            if kind is not None:
                held[kind] += count
        for kind, count in held.items():
            if count > kinds.units[kind]:
                raise ProblemError(
                    f"the jobs hold {count} units of kind {kind!r}, but only {kinds.units[kind]} are idle"
                )

    def _check_limits(self) -> None:
        if self.pairs:
            raise ProblemError("limits: expected none where jobs may share units")
        for limit in self.limits:
            if not limit.jobs <= set(range(len(self.jobs))):
                raise ProblemError(
                    f"limits: expected positions of jobs from 0 to {len(self.jobs) - 1}, not {sorted(limit.jobs)}"
                )

    def _check_alike(self) -> None:
        seen: set[int] = set()
        for group in self.alike:
            if (
                len(group) < 2
                or any(a >= b for a, b in pairwise(group))
                or not 0 <= group[0] <= group[-1] < len(self.jobs)
            ):
                raise ProblemError(
                    f"alike: a group must name two jobs or more, ascending, not {group!r}"
                )
            if not seen.isdisjoint(group):
                raise ProblemError("alike: a job cannot be in two groups")
            seen.update(group)
            members = list(group)
            like = self.posed.terms.like[self.posed.rows[members]]
            worth = {*zip(like, map(tuple, self.waiting_terms[members]), strict=True)}
            if len(worth) > 1 or self.counts[members].any():
                first = self.jobs[group[0]].name
                raise ProblemError(
                    f"alike: {first!r} and those named with it must hold nothing and be worth the same"
                )
        spoken = {j for group in self.alike for j in group[:1]}
        for pair in self.pairs:
            for j, other in ((pair.a, pair.b), (pair.b, pair.a)):
                if j in seen and j not in spoken and self._stands[j] != (other, j):
                    raise ProblemError(
                        f"alike: a pair may name {self.jobs[j].name!r} beside the first of its group only"
                    )

    def _check_pairs(self) -> None:
        seen: set[tuple[int, int]] = set()
        sharing: set[int] = set()
        for pair in self.pairs:
            if not 0 <= pair.a < pair.b < len(self.jobs):
                raise ProblemError(
                    f"xi: a pair must name two jobs, a before b, not {pair.a} and {pair.b}"
                )
            names = f"{self.jobs[pair.a].name!r} and {self.jobs[pair.b].name!r}"
            if (pair.a, pair.b) in seen:
                raise ProblemError(f"xi: {names} appear twice")
            seen.add((pair.a, pair.b))
            for xi, named in ((pair.xi_a, pair.at_a), (pair.xi_b, pair.at_b)):
                for ratio in (xi, *(ratio for _, ratio in named)):
                    if not ratio >= 1:
                        raise ProblemError(
                            f"xi: {names} need ratios >= 1, not {ratio!r}"
                        )
                if np.isinf(xi) and not named:
                    raise ProblemError(
                        f"xi: {names} need finite ratios >= 1, not {xi!r}"
                    )
            if not 0 <= pair.shared <= min(self.current[pair.a], self.current[pair.b]):
                raise ProblemError(
                    f"xi: {names} cannot share {pair.shared} units, as one of them holds fewer"
                )
            if pair.shared:
                if np.isinf(
                    [pair.xi(j, self.current[j]) for j in (pair.a, pair.b)]
                ).any():
                    raise ProblemError(
                        f"xi: {names} share units now, and need finite ratios on as many as they hold"
                    )
                if sharing & {pair.a, pair.b}:
                    raise ProblemError(
                        f"xi: {names} share units, but one of them shares with a third job too"
                    )
                sharing |= {pair.a, pair.b}


@dataclass(eq=False, slots=True)
class Solution:
    """An answer to a `Problem`.

    Parameters
    ----------
    status
        `optimal`: proven. `feasible`: the best known at the time limit. `fallback`: the backend died, hung or
        gave an invalid answer, and another method was used (`note` explains). `infeasible`: only with strict_reference.
    counts
        Units given, one number per job, in the order of the problem.
    objective, bound
        Value of `counts`, and an upper bound of any answer.
    backend, formulation
        The backend that was asked, and the formulation: also where the counts are the exact DP's, as with canonical
        ties. `exact` and `modes` where the exact DP took the place of an answer that was wrong or did not come.
    seconds
        Wall time from problem to answer.
    note
        Explains the status; empty when optimal.
    transfers
        With sharing: which units move from whom to whom, without migration. Empty otherwise.
    verified
        Whether the backend's answer agrees with the exact DP; None where they were not compared.
    kinds
        Kind of each job's units, None where it gets none; empty for a problem without kinds.
    """

    status: Status
    counts: Sequence[int]
    objective: float
    bound: float
    backend: str
    formulation: str
    seconds: float = 0.0
    note: str = ""
    transfers: tuple[Transfer, ...] = ()
    verified: bool | None = None
    kinds: tuple[str | None, ...] = ()

    @property
    def gap(self) -> float:
        """Relative distance between objective and bound, 0 when proven optimal."""
        return max(0.0, self.bound - self.objective) / max(1.0, abs(self.bound))
