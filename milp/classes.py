"""Interchangeable jobs: jobs that hold no units and have the same value table form a class.

Under the cost model `bftrainer` a job without units has no rate to lose, so Tcup and Tcdw do not enter its value.
Under `stall` its first units cost it Tcup, so jobs of one class also have the same max(Tfwd - Tcup, 0). A job that
holds units, or may share them, is a class of its own, except for groups that the problem lists in `alike`. A class is
one set of variables, however many members it has.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bft.milp.problem import FloatArray, IntArray, Job, Problem, keep_names

if TYPE_CHECKING:
    from bft.milp.exact.kernel import Curves, Terms


class _Growing:
    """Numbers to which more are appended; what was read before stays as it was."""

    def __init__(self, dtype: type) -> None:
        self._room: NDArray[Any] = np.empty(64, dtype=dtype)
        self._filled = 0

    def add(self, *parts: Sequence[float] | NDArray[Any]) -> None:
        """Append the numbers of each part."""
        end = self._filled + sum(map(len, parts))
        if end > len(self._room):
            room = np.empty(max(end, 2 * len(self._room)), dtype=self._room.dtype)
            room[: self._filled] = self._room[: self._filled]
            self._room = room
        np.concatenate(parts, out=self._room[self._filled : end])
        self._filled = end

    def __len__(self) -> int:
        return self._filled

    @property
    def array(self) -> NDArray[Any]:
        """All numbers: shape (len(self),)."""
        return self._room[: self._filled]


# Jobs that `_Rows` keeps beyond twice those of a decision: those that have finished or have another weight now.
_SPARE = 1024


class _Rows:
    """The jobs of recent decisions as rows of arrays: a decision adds those that it has not seen before.

    After an interrupt or an error within `add` it is not `whole`, and a new one takes its place.
    """

    def __init__(self) -> None:
        self.whole = True
        self.row: dict[Job, int] = {}
        self.kind: dict[tuple[float, str], int] = {}
        self.kinds, self.ends, self.stretch_ends, self.lows, self.highs = (
            _Growing(np.int64) for _ in range(5)
        )
        self.tcup, self.tcdw, self.weight, self.ns, self.os, self.slopes = (
            _Growing(np.float64) for _ in range(6)
        )
        self.ends.add([0])
        self.stretch_ends.add([0])

    def add(self, jobs: Iterable[Job]) -> None:
        """Add those of the jobs that are not known."""
        new = list(dict.fromkeys(job for job in jobs if job not in self.row))
        if not new:
            return
        self.whole = False
        different = {job.waiting_key: job for job in new}
        first = {key: job for key, job in different.items() if key not in self.kind}
        if first:
            self.kind |= {key: kind for kind, key in enumerate(first, len(self.kind))}
            kinds = first.values()
            curve_ends = np.cumsum([len(job.ns) for job in kinds])
            ns = np.concatenate([job.ns for job in kinds])
            os = np.concatenate([job.os for job in kinds])
            self.ends.add(curve_ends + len(self.ns))
            self.ns.add(ns)
            self.os.add(os)
            self.slopes.add(_slopes(ns, os, curve_ends))
            lengths = [len(job.stretches) for job in kinds]
            self.stretch_ends.add(np.cumsum(lengths) + len(self.lows))
            self.lows.add([low for job in kinds for low, _ in job.stretches])
            self.highs.add([high for job in kinds for _, high in job.stretches])
        self.kinds.add([self.kind[job.waiting_key] for job in new])
        self.tcup.add([job.tcup for job in new])
        self.tcdw.add([job.tcdw for job in new])
        self.weight.add([job.weight for job in new])
        self.row |= {job: row for row, job in enumerate(new, len(self.row))}
        self.whole = True

    def usable(self, jobs: int) -> bool:
        """Whether so many jobs may be added: it is whole, and has few jobs beyond twice so many."""
        return self.whole and len(self.row) <= 2 * jobs + _SPARE

    def arrays(self, jobs: tuple[Job, ...], at: IntArray) -> JobArrays:
        """The jobs that stand in some rows."""
        return JobArrays(
            jobs,
            at,
            self.kinds.array[at],
            self.tcup.array[at],
            self.tcdw.array[at],
            self.weight.array[at],
            (self.ns.array, self.os.array, self.slopes.array, self.ends.array),
            (self.lows.array, self.highs.array, self.stretch_ends.array),
            self,
        )


def _slopes(ns: FloatArray, os: FloatArray, ends: IntArray) -> FloatArray:
    """The slope from each breakpoint to the next, 0 at the last of each curve; the curves end at `ends`."""
    slopes = np.zeros(len(ns))
    slopes[:-1] = np.diff(os) / np.diff(ns)
    slopes[ends - 1] = 0.0
    return slopes


@dataclass(frozen=True, eq=False)
class JobArrays:
    """Jobs as arrays for compiled code, one entry for each job: all but what they hold.

    Parameters
    ----------
    jobs, at
        The jobs, and their rows in `rows`.
    kinds
        A number for each job, equal for jobs whose value while they wait is the same function, Tcup aside.
    tcup, tcdw, weight
        As of `Job`.
    curves
        Breakpoints, the objective there and its slope up to the next, one curve for each kind, and where a kind's
        curve ends.
    stretches
        First and last count of each stretch of neighbouring counts, and where a kind's stretches end.
    """

    jobs: tuple[Job, ...]
    at: IntArray
    kinds: IntArray
    tcup: FloatArray
    tcdw: FloatArray
    weight: FloatArray
    curves: Curves
    stretches: tuple[IntArray, IntArray, IntArray]
    rows: _Rows
    _alike: dict[float | None, tuple[IntArray, int]] = field(default_factory=dict)

    @cached_property
    def terms(self) -> Terms:
        """All but the jobs themselves, as compiled code takes it."""
        costs = self.tcup, self.tcdw, self.weight
        return self.kinds, self.curves, self.stretches, costs

    def alike(self, tfwd: float | None) -> tuple[IntArray, int]:
        """A number for each job, equal for jobs that are interchangeable while they wait, and one above all of them.

        `tfwd` under `stall`, None under `bftrainer`.
        """
        found = self._alike.get(tfwd)
        if found is None:
            numbers = self.kinds
            if tfwd is not None:
                runs_s = np.maximum(tfwd - self.tcup, 0.0)
                different, place = np.unique(runs_s, return_inverse=True)
                both = self.kinds * len(different) + place
                numbers = np.unique(both, return_inverse=True)[1]
            found = numbers, int(numbers.max()) + 1
            self._alike.clear()
            self._alike[tfwd] = found
        return found

    @cached_property
    def wanted(self) -> int:
        """The sum of what all jobs can use, of each no more than 2^32."""
        _, highs, ends = self.stretches
        most = highs[ends[self.kinds + 1] - 1]
        return int(np.minimum(most, 2**32).sum())


_lock = threading.Lock()
_rows = _Rows()
_recent: tuple[JobArrays, ...] = ()


def job_arrays(jobs: tuple[Job, ...]) -> JobArrays:
    """The jobs as arrays; only jobs that recent decisions did not have are looked at."""
    global _rows, _recent
    # Tuples of the same objects compare without a call for each, which hashing them takes.
    for known in _recent:
        if known.jobs is jobs or known.jobs == jobs:
            return known
    with _lock:
        rows = list(map(_rows.row.get, jobs)) if _rows.whole else [None]
        if None in rows:
            if not _rows.usable(len(jobs)):
                _rows = _Rows()
            _rows.add(jobs)
            rows = list(map(_rows.row.get, jobs))
        arrays = _rows.arrays(jobs, np.array(rows, dtype=np.int64))
        _recent = (arrays, *_recent[:3])
    return arrays


def replaced(jobs: tuple[Job, ...], others: Mapping[int, Job]) -> tuple[Job, ...]:
    """The jobs with others of the same names at some positions; only these are looked at to pose a problem.

    Raises
    ------
    ValueError
        For another name.
    """
    global _recent
    after = list(jobs)
    for at, job in others.items():
        if job.name != after[at].name:
            raise ValueError(
                f"expected a job named {after[at].name!r}, not {job.name!r}"
            )
        after[at] = job
    found = tuple(after)
    keep_names(jobs, found)
    with _lock:
        known = next((arrays for arrays in _recent if arrays.jobs is jobs), None)
        if known is not None and known.rows is _rows and _rows.usable(len(jobs)):
            _rows.add(others.values())
            rows = known.at.copy()
            rows[list(others)] = [_rows.row[job] for job in others.values()]
            _recent = (_rows.arrays(found, rows), *_recent[:3])
    return found


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of a problem's jobs, in the order of their first members.

    Parameters
    ----------
    of
        The class of each job, int64.
    positions
        Position of the first member of each class, int64.
    sizes
        Number of members of each class, int64.
    """

    of: IntArray
    positions: IntArray
    sizes: IntArray

    @cached_property
    def first(self) -> tuple[int, ...]:
        """`positions` as Python's numbers."""
        return tuple(self.positions.tolist())

    def members(self) -> list[IntArray]:
        """Positions of the members of each class, ascending."""
        order = np.argsort(self.of, kind="stable")
        return (
            np.split(order, np.cumsum(self.sizes)[:-1]) if len(self.positions) else []
        )


@lru_cache(maxsize=4)
def classes_of(problem: Problem) -> Classes:
    """Group the jobs of a problem; with several kinds of units each job is a class of its own."""
    from bft.milp.exact.kernel import in_order

    jobs = len(problem.jobs)
    if problem.several_kinds or not jobs:
        return apart(problem)
    alone = problem.counts
    if problem.pairs or problem.alike:
        alone = alone.copy()
        alone[[j for pair in problem.pairs for j in (pair.a, pair.b)]] = 1
    stall = problem.cost_model == "stall"
    arrays = job_arrays(problem.jobs)
    kinds, count = arrays.alike(problem.tfwd if stall else None)
    if problem.alike:
        kinds = kinds.copy()
    for group in problem.alike:
        kinds[list(group)] = count if alone[group[0]] else kinds[group[0]]
        alone[list(group)] = 0
        count += 1
    return Classes(*in_order(kinds, count, alone))


def apart(problem: Problem) -> Classes:
    """Classes with one job each."""
    jobs = len(problem.jobs)
    return Classes(np.arange(jobs), np.arange(jobs), np.ones(jobs, dtype=np.int64))
