"""One allocation problem and its answer (docs/model.md): plain values, no solver."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from operator import attrgetter, index
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

CostModel = Literal["bftrainer", "stall"]
# Products of three such numbers stay far below the largest float.
MAX_OBJECTIVE = 1e60
# Whole numbers up to this one are exact as floats too.
MAX_UNITS = 2**53
MAX_MESSAGE = 800

_NOTHING: FloatArray = np.empty(0)
_name = attrgetter("name")

Status = Literal["optimal", "feasible", "fallback", "infeasible"]
# Which of several optima is returned: the canonical one, independent of the solver, or the one that the solver returns.
Ties = Literal["canonical", "solver"]
TIES: tuple[Ties, ...] = ("canonical", "solver")


class ProblemError(ValueError):
    """A problem that cannot be posed. The message names the field and what was expected.

    A message of more than `MAX_MESSAGE` characters (a name can have megabytes) is cut in the middle.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) <= MAX_MESSAGE:
            return text
        return f"{text[: MAX_MESSAGE // 2]} ... [{len(text):,} characters] ... {text[-MAX_MESSAGE // 2 :]}"


@dataclass(frozen=True, eq=False)
class Job:
    """The properties of a job that a decision needs, without the units it holds now.

    Parameters
    ----------
    name
        Unique within a problem.
    jmin, jmax
        Fewest and most units it can run on, 0 <= jmin <= jmax, jmax >= 1.
    ns, os
        Objective curve O: breakpoints in units (increasing, from 0) and objective per second there.
        Piecewise linear in between, constant beyond the last point.
    tcup, tcdw
        Seconds lost when it grows or shrinks.
    weight
        Factor on its value.
    sizes
        The counts of units that it may have besides 0, increasing from max(jmin, 1) to jmax; None for all between.
        All of them are the same as None.

    Examples
    --------
    >>> job = Job("a", 1, 8, ns=[0, 8], os=[0, 80], tcup=20.0, tcdw=10.0, sizes=(1, 2, 4, 8))
    >>> job.at_most(7), job.stretches
    (4, ((1, 2), (4, 4), (8, 8)))
    >>> Job("a", 2, 1, ns=[0, 1], os=[0, 10], tcup=20.0, tcdw=10.0)
    Traceback (most recent call last):
    bft.milp.problem.ProblemError: job 'a': Jmin 2 and Jmax 1 must satisfy 0 <= Jmin <= Jmax, Jmax >= 1
    """

    name: str
    jmin: int
    jmax: int
    ns: FloatArray
    os: FloatArray
    tcup: float
    tcdw: float
    weight: float = 1.0
    sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        ns = np.asarray(self.ns, dtype=np.float64)
        os = np.asarray(self.os, dtype=np.float64)
        object.__setattr__(self, "ns", ns)
        object.__setattr__(self, "os", os)
        name = self.name
        object.__setattr__(self, "jmin", self._whole("Jmin", self.jmin))
        object.__setattr__(self, "jmax", self._whole("Jmax", self.jmax))
        if not 0 <= self.jmin <= self.jmax or self.jmax < 1:
            raise ProblemError(
                f"job {name!r}: Jmin {self.jmin} and Jmax {self.jmax} must satisfy 0 <= Jmin <= Jmax, Jmax >= 1"
            )
        self._check_sizes()
        if ns.ndim != 1 or ns.shape != os.shape or ns.size < 2:
            raise ProblemError(
                f"job {name!r}: Ns and Os must be lists of one length, at least 2"
            )
        if not (np.isfinite(ns).all() and np.isfinite(os).all()):
            raise ProblemError(f"job {name!r}: Ns and Os must be finite numbers")
        if np.abs(os).max() > MAX_OBJECTIVE:
            raise ProblemError(
                f"job {name!r}: Os must not exceed {MAX_OBJECTIVE:g}, or values overflow"
            )
        if ns[0] != 0 or (np.diff(ns) <= 0).any():
            raise ProblemError(f"job {name!r}: Ns must start at 0 and increase")
        for label, value in (
            ("Tcup", self.tcup),
            ("Tcdw", self.tcdw),
            ("weight", self.weight),
        ):
            if not np.isfinite(value) or value < 0:
                raise ProblemError(
                    f"job {name!r}: {label} must be a finite number >= 0, not {value!r}"
                )
            if value > MAX_OBJECTIVE:
                raise ProblemError(
                    f"job {name!r}: {label} must not exceed {MAX_OBJECTIVE:g}, or values overflow"
                )

    def _whole(self, label: str, value: int) -> int:
        """A number of units, refused unless it is a whole number, and at most `MAX_UNITS`."""
        try:
            units = index(value)
        except TypeError:
            units = None
        if units is None or units > MAX_UNITS:
            raise ProblemError(
                f"job {self.name!r}: {label}: expected a whole number of units, at most {MAX_UNITS}, not {value!r}"
            )
        return units

    def _check_sizes(self) -> None:
        if self.sizes is None:
            return
        sizes = tuple(self._whole("sizes", size) for size in self.sizes)
        object.__setattr__(self, "sizes", sizes)
        rises = all(a < b for a, b in pairwise(sizes))
        if (
            not sizes
            or not rises
            or (sizes[0], sizes[-1]) != (max(self.jmin, 1), self.jmax)
        ):
            shown = ", ".join(map(str, sizes))
            raise ProblemError(
                f"job {self.name!r}: sizes must increase from Jmin (at least 1) to Jmax, "
                f"{max(self.jmin, 1)} to {self.jmax}, not [{shown}]"
            )
        if len(sizes) == self.jmax - sizes[0] + 1:
            object.__setattr__(self, "sizes", None)

    @cached_property
    def stretches(self) -> tuple[tuple[int, int], ...]:
        """First and last of the stretches of neighbouring counts that it may have, ascending, 0 left out."""
        if self.sizes is None:
            return ((max(self.jmin, 1), self.jmax),)
        begins = [n for before, n in pairwise((-1, *self.sizes)) if n != before + 1]
        ends = [n for n, after in pairwise((*self.sizes, -1)) if after != n + 1]
        return tuple(zip(begins, ends, strict=True))

    def at_most(self, units: int) -> int:
        """The largest count up to `units` that it may have, 0 where it may have none of them."""
        if self.sizes is None:
            return min(units, self.jmax) if units >= self.jmin else 0
        place = bisect_right(self.sizes, units)
        return self.sizes[place - 1] if place else 0

    def runs_on(self, units: int) -> bool:
        """Whether it makes progress on so many units: as many as it may have, or more than Jmax."""
        return units > 0 and min(units, self.jmax) == self.at_most(units)

    @property
    def table(self) -> FloatArray:
        """O at 0, 1, ..., jmax units: float64 of shape (jmax + 1,), objective per second."""
        return self.table_to(self.jmax)

    def table_to(self, max_units: int) -> FloatArray:
        """O at 0, 1, ..., max_units <= jmax; read-only. Cached, and recomputed only to grow."""
        known: FloatArray = self.__dict__.get("_known", _NOTHING)
        if len(known) <= max_units:
            # With some room to grow: the number of idle units rises in steps.
            size = min(self.jmax, max(max_units, 2 * len(known))) + 1
            known = np.interp(np.arange(size, dtype=np.float64), self.ns, self.os)
            object.__setattr__(self, "_known", known)
        return known[: max_units + 1]

    @cached_property
    def waiting_key(self) -> tuple[float, str]:
        """Equal for jobs whose value, while they hold no units, is the same function of their units, Tcup aside."""
        key = self.__dict__.get("_curve_key")
        if key is None:
            curve = (self.ns.tobytes() + self.os.tobytes()).decode("latin-1")
            # Interned, so that grouping thousands of jobs at every decision only compares addresses.
            key = sys.intern(f"{self.jmin} {self.jmax} {self.sizes} {curve}")
            object.__setattr__(self, "_curve_key", key)
        return self.weight, key

    def at_weight(self, weight: float) -> Job:
        """The same job at another weight.

        >>> Job("a", 1, 8, ns=[0, 8], os=[0, 80], tcup=20.0, tcdw=10.0).at_weight(2.0).weight
        2.0
        """
        if not 0 <= weight <= MAX_OBJECTIVE:
            return replace(self, weight=weight)
        other = copy(self)  # what was checked of this one holds for the other
        object.__setattr__(other, "weight", weight)
        other.__dict__.pop("waiting_key", None)
        return other

    def rate(self, units: int) -> float:
        """Objective per second on `units` units; 0 on a count that it may not have, where it cannot run."""
        if not self.runs_on(units):
            return 0.0
        return float(np.interp(float(units), self.ns, self.os))


_unique: tuple[Job, ...] = ()


def _unique_names(jobs: tuple[Job, ...]) -> bool:
    """Whether job names are unique; those of the last problem are known, and comparing is faster than hashing."""
    global _unique
    known = _unique
    if jobs is known or jobs == known:
        return True
    different = [
        pair for pair in zip(jobs, known, strict=False) if pair[0] is not pair[1]
    ]
    renamed = any(job.name != before.name for job, before in different)
    if (renamed or len(jobs) != len(known)) and len(set(map(_name, jobs))) < len(jobs):
        return False
    _unique = jobs
    return True


def keep_names(before: tuple[Job, ...], jobs: tuple[Job, ...]) -> None:
    """Note that some jobs have the names of those before, so that they need no check if those were unique."""
    global _unique
    if before is _unique:
        _unique = jobs


class Counts(tuple[int, ...]):
    """Units of each job, which compiled code has counted: they stay at hand as an array of int64, `array`."""

    array: IntArray

    @classmethod
    def of(cls, array: IntArray) -> Counts:
        """The counts in an array that does not change."""
        counts = cls(array.tolist())
        counts.array = array
        return counts


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


@dataclass(frozen=True, eq=False)
class UnitKinds:
    """The kinds of a problem's units, such as two types of GPU, and the properties of its jobs on each.

    A job gets units of one kind, never of several.

    Parameters
    ----------
    units
        Idle units of each kind, >= 0. Among equally good kinds the first one is taken.
    jobs
        For each job, by kind: its properties on units of that kind. It cannot run on a kind that is missing.
        Name, weight and objective without units are the same on all.
    held
        The kind of units that each job holds now, None where it holds none.
    """

    units: Mapping[str, int]
    jobs: tuple[Mapping[str, Job], ...]
    held: tuple[str | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", MappingProxyType(dict(self.units)))
        jobs = tuple(MappingProxyType(dict(job)) for job in self.jobs)
        object.__setattr__(self, "jobs", jobs)
        if not self.units:
            raise ProblemError("units: expected at least one kind")
        for kind, units in self.units.items():
            if units < 0:
                raise ProblemError(f"units of kind {kind!r} must be >= 0, not {units}")
        for job in jobs:
            self._check(job)

    def _check(self, job: Mapping[str, Job]) -> None:
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

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The kinds, in order."""
        return tuple(self.units)

    @cached_property
    def firsts(self) -> IntArray:
        """Number of units of all earlier kinds, for each kind: int64."""
        sums = accumulate(self.units.values(), initial=0)
        return np.array(list(sums)[:-1], dtype=np.int64)

    def job(self, j: int) -> Job:
        """Return the properties of job j on the kind that it holds; if it holds none, on its first kind."""
        held = self.held[j]
        if held is None:
            return next(iter(self.jobs[j].values()))
        return self.jobs[j][held]


@dataclass(frozen=True, slots=True)
class Side:
    """A job on the units of one kind.

    Parameters
    ----------
    kind
        Position of the kind.
    job
        The job's properties on units of that kind.
    held
        How many of them it holds now.
    units
        How many of them are idle.
    first
        The number of a choice of n >= 1 of them is first + n: see `Problem`.
    """

    kind: int
    job: Job
    held: int
    units: int
    first: int


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
        The jobs in play, names unique.
    current
        Units that each job holds now, one number per job, or an int64 array that does not change. Their sum may not
        exceed `units`.
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
    held
        Units that jobs hold now; a shared unit counts once.

    Examples
    --------
    >>> a, b = (Job(name, 1, 4, ns=[0, 1, 4], os=[0, 10, 30], tcup=20.0, tcdw=10.0) for name in "ab")
    >>> Problem(units=5, tfwd=120.0, jobs=(a, b), current=(1, 0)).holders
    (0,)
    """

    units: int
    tfwd: float
    jobs: tuple[Job, ...]
    current: tuple[int, ...]
    cost_model: CostModel = "bftrainer"
    pairs: tuple[Pair, ...] = ()
    alike: tuple[tuple[int, ...], ...] = ()
    kinds: UnitKinds | None = None
    held: int = field(init=False, repr=False)

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
        units, jobs
            As in `UnitKinds`.
        tfwd, cost_model
            As in `Problem`.
        current
            Kind and number of the units that each job holds now, None where it holds none.

        Examples
        --------
        >>> fast, slow = (Job("a", 1, 4, ns=[0, 4], os=[0, o], tcup=20.0, tcdw=10.0) for o in (80, 40))
        >>> Problem.of_kinds({"a100": 2, "v100": 4}, 120.0, [{"a100": fast, "v100": slow}], [("v100", 1)]).units
        6
        """
        counts = tuple(now[1] if now else 0 for now in current)
        held = tuple(now[0] if now and now[1] else None for now in current)
        kinds = UnitKinds(units, tuple(jobs), held)
        for job, kind, count in zip(kinds.jobs, held, counts, strict=False):
            if kind is not None and (kind not in job or count < 0):
                name = next(iter(job.values())).name
                raise ProblemError(
                    f"job {name!r} holds {count} units of kind {kind!r}, on which it cannot run"
                )
        if len(counts) != len(kinds.jobs):
            raise ProblemError(
                f"current has {len(counts)} entries for {len(kinds.jobs)} jobs"
            )
        own = tuple(kinds.job(j) for j in range(len(kinds.jobs)))
        total = sum(kinds.units.values())
        return cls(total, tfwd, own, counts, cost_model, kinds=kinds)

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", tuple(self.jobs))
        current: object = self.current
        if isinstance(current, np.ndarray):
            object.__setattr__(self, "counts", current)
            object.__setattr__(self, "current", tuple(current.tolist()))
            fewest, total = int(current.min(initial=0)), int(current.sum())
        else:
            fewest, total = min(self.current, default=0), sum(self.current)
        shared = sum(pair.shared for pair in self.pairs)
        object.__setattr__(self, "held", total - shared)
        if self.kinds is not None:
            self._check_kinds(self.kinds)
        if self.units < 0:
            raise ProblemError(f"units must be >= 0, not {self.units}")
        if not (math.isfinite(self.tfwd) and self.tfwd > 0):
            raise ProblemError(
                f"Tfwd must be a finite number of seconds > 0, not {self.tfwd!r}"
            )
        if self.tfwd > MAX_OBJECTIVE:
            raise ProblemError(
                f"Tfwd must not exceed {MAX_OBJECTIVE:g} seconds, or values overflow"
            )
        if len(self.current) != len(self.jobs):
            raise ProblemError(
                f"current has {len(self.current)} entries for {len(self.jobs)} jobs"
            )
        if fewest < 0:
            raise ProblemError("current must be >= 0 for every job")
        if self.pairs:
            self._check_pairs()
        if self.held > self.units:
            raise ProblemError(
                f"the jobs hold {self.held} units, but only {self.units} are idle"
            )
        if not _unique_names(self.jobs):
            raise ProblemError("job names must be unique")
        if self.cost_model not in ("bftrainer", "stall"):
            raise ProblemError(
                f"cost_model must be 'bftrainer' or 'stall', not {self.cost_model!r}"
            )
        if self.alike:
            self._check_alike()

    def with_jobs(self, jobs: Sequence[Job]) -> Problem:
        """The same problem with other properties of its jobs: on the units that each holds now, or on its first kind.

        Name, weight and objective without units are as before.
        """
        kinds = self.kinds
        if kinds is not None:
            now = [
                held or next(iter(own))
                for held, own in zip(kinds.held, kinds.jobs, strict=True)
            ]
            on = [
                {**own, kind: job}
                for own, kind, job in zip(kinds.jobs, now, jobs, strict=True)
            ]
            kinds = replace(kinds, jobs=tuple(on))
        return replace(self, jobs=tuple(jobs), kinds=kinds)

    @property
    def several_kinds(self) -> bool:
        """Whether units are of two kinds or more; one kind with a name is like none."""
        return self.kinds is not None and len(self.kinds.units) > 1

    def sides(self, j: int) -> list[Side]:
        """Job j on each kind of units that it can run on, in the order of kinds."""
        if self.kinds is None:
            return [Side(0, self.jobs[j], self.current[j], self.units, 0)]
        own, held = self.kinds.jobs[j], self.kinds.held[j]
        sides = []
        first = 0
        for position, (kind, units) in enumerate(self.kinds.units.items()):
            if kind in own:
                now = self.current[j] if kind == held else 0
                sides.append(Side(position, own[kind], now, units, first))
            first += units
        return sides

    def choice(self, kind: int, units: int) -> int:
        """Return the number of the choice of so many units of a kind, by its position; 0 for none."""
        if self.kinds is None or not units:
            return units
        return int(self.kinds.firsts[kind]) + units

    def kinds_and_units(
        self, choices: Sequence[int] | IntArray
    ) -> tuple[IntArray, IntArray]:
        """Position of the kind and number of units of some choices: int64 each; the kind of no units is 0."""
        numbers = np.asarray(choices, dtype=np.int64)
        if self.kinds is None:
            return np.zeros_like(numbers), numbers
        kinds = np.searchsorted(self.kinds.firsts, numbers, side="left") - 1
        kinds = np.maximum(kinds, 0)
        return kinds, numbers - self.kinds.firsts[kinds]

    def held_kind(self, j: int) -> int:
        """Position of the kind that job j holds, 0 where it holds none."""
        held = None if self.kinds is None else self.kinds.held[j]
        return 0 if self.kinds is None or held is None else self.kinds.names.index(held)

    def named(
        self, choices: Sequence[int] | IntArray
    ) -> tuple[tuple[int, ...], tuple[str | None, ...]]:
        """Counts of units, and the names of their kinds, as a `Solution` has them, for one choice per job."""
        if self.kinds is None:
            if isinstance(choices, np.ndarray):
                return Counts.of(choices), ()
            return tuple(choices), ()
        kinds, units = self.kinds_and_units(choices)
        names = self.kinds.names
        return tuple(units.tolist()), tuple(
            names[kind] if count else None
            for kind, count in zip(kinds.tolist(), units.tolist(), strict=True)
        )

    @cached_property
    def counts(self) -> IntArray:
        """Units that each job holds now: `current` as int64 of shape (jobs,)."""
        return np.array(self.current, dtype=np.int64)

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
        own = [kinds.job(j) for j in range(len(kinds.jobs))]
        if (
            sum(kinds.units.values()) != self.units
            or len(own) != len(self.jobs)
            or any(a is not b for a, b in zip(own, self.jobs, strict=True))
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
            stall = self.cost_model == "stall"
            kinds = {
                (
                    self.jobs[j].waiting_key,
                    max(self.tfwd - self.jobs[j].tcup, 0.0) if stall else 0.0,
                    self.current[j],
                )
                for j in group
            }
            if len(kinds) > 1 or next(iter(kinds))[2]:
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


@dataclass(frozen=True, eq=False)
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
    counts: tuple[int, ...]
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
