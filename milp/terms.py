"""The terms of jobs as arrays: a row for each job, made once, which every decision after that reads by its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, overload

import numpy as np

from bft.milp.jobs import MAX_OBJECTIVE, FloatArray, IntArray, Job, ProblemError
from bft.milp.values import Pool, Value


class Arrays(NamedTuple):
    """What compiled code reads of jobs.

    Parameters
    ----------
    shape, tcup, tcdw
        By row and kind of units: a curve with the counts it may be used at (-1: the job cannot run on that kind), and
        the seconds that a change takes. Shape (rows, kinds).
    points
        Breakpoints of all curves, the objective there, its slope up to the next (0 at the last): float64 of shape
        (points, 3).
    stretches
        First and last count of each stretch of neighbouring counts: int64 of shape (stretches, 2).
    ends
        The points of shape s stand before ends[s + 1, 0], its stretches before ends[s + 1, 1].
    """

    shape: IntArray
    tcup: FloatArray
    tcdw: FloatArray
    points: FloatArray
    stretches: IntArray
    ends: IntArray


class Terms:
    """The terms of jobs, to which more are added. An interrupt while that happens leaves them as they were.

    Attributes
    ----------
    arrays
        What compiled code reads.
    weight, like
        By row: the job's weight, and a number that is equal for jobs of the same shape on each kind.
    numbers, on_kinds
        These numbers by the shapes; and by row, the properties of the job on each kind, None where it cannot run.
    pools
        The values of these jobs that were computed last, by the function, Tfwd and whether the cost model is `stall`.

    Examples
    --------
    >>> from bft.milp import Job
    >>> terms = Terms()
    >>> terms.extend([(Job(name, 1, 8, ns=[0, 8], os=[0, 80], tcup=20.0, tcdw=10.0),) for name in "ab"])
    >>> terms.like.tolist(), terms.arrays.points.tolist()
    ([0, 0], [[0.0, 0.0, 10.0], [8.0, 80.0, 0.0]])
    """

    def __init__(self, kinds: int = 1) -> None:
        shape, costs = np.empty((0, kinds), np.int64), np.empty((0, kinds))
        stretches, ends = np.empty((0, 2), np.int64), np.zeros((1, 2), np.int64)
        self.arrays = Arrays(shape, costs, costs, np.empty((0, 3)), stretches, ends)
        self.weight: FloatArray = np.empty(0)
        self.like: IntArray = np.empty(0, np.int64)
        self.pools: dict[tuple[Value | None, float, bool], Pool] = {}
        self.on_kinds: list[Sequence[Job | None]] = []
        self._shapes: dict[tuple[object, ...], int] = {}
        self.numbers: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self.arrays.shape)

    def extend(self, jobs: Sequence[Sequence[Job | None]]) -> None:
        """Add rows: the properties of each job on each kind of units."""
        a, before = self.arrays, len(self)
        fresh: dict[tuple[object, ...], int] = {}
        shaped: list[Job] = []
        shapes = []
        for on_kinds in jobs:
            own = []
            for job in on_kinds:
                own.append(-1)
                if job is None:
                    continue
                key = job.jmin, job.jmax, job.sizes, job.ns.tobytes(), job.os.tobytes()
                number = self._shapes.get(key, fresh.get(key, -1))
                if number < 0:
                    number = fresh[key] = len(a.ends) - 1 + len(fresh)
                    shaped.append(job)
                own[-1] = number
            shapes.append(own)
        tcup = [[job.tcup if job else 0.0 for job in each] for each in jobs]
        tcdw = [[job.tcdw if job else 0.0 for job in each] for each in jobs]
        weight = [next(filter(None, each)).weight for each in jobs]
        numbers = self.numbers
        like = [numbers.setdefault(tuple(own), len(numbers)) for own in shapes]
        self.on_kinds[before:] = jobs
        self.weight = np.append(self.weight[:before], np.array(weight))
        self.like = np.append(self.like[:before], np.array(like, np.int64))
        if shaped:
            a = _with_shapes(a, shaped)
        self.arrays = a._replace(
            shape=np.append(a.shape, np.array(shapes, np.int64), axis=0),
            tcup=np.append(a.tcup, tcup, axis=0),
            tcdw=np.append(a.tcdw, tcdw, axis=0),
        )
        self._shapes |= fresh


def _with_shapes(a: Arrays, jobs: Sequence[Job]) -> Arrays:
    """Arrays with the curves and stretches of more jobs."""
    ns = np.concatenate([job.ns for job in jobs])
    os = np.concatenate([job.os for job in jobs])
    lengths = [(len(job.ns), len(job.stretches)) for job in jobs]
    ends = np.cumsum(lengths, axis=0)
    slopes = np.zeros(len(ns))
    slopes[:-1] = np.diff(os) / np.diff(ns)
    slopes[ends[:, 0] - 1] = 0.0
    stretches = [each for job in jobs for each in job.stretches]
    return a._replace(
        points=np.append(a.points, np.column_stack([ns, os, slopes]), axis=0),
        stretches=np.append(a.stretches, stretches, axis=0),
        ends=np.append(a.ends, ends + a.ends[-1], axis=0),
    )


class Rows(Sequence[Job]):
    """The jobs in some rows of `terms`, int64; with kinds of units as on the first kind that each can run on.

    `weight`: their weights now, float64, which the jobs have that are taken from here.
    """

    def __init__(
        self, terms: Terms, rows: IntArray, weight: FloatArray | None = None
    ) -> None:
        # A copy, as code is compiled again for arrays that cannot be written to.
        self.terms, self.rows = terms, np.array(rows, dtype=np.int64)
        self.weight = terms.weight[rows] if weight is None else weight
        if weight is not None and not (
            len(weight) == len(rows)
            and (not len(rows) or weight[weight.argmin()] >= 0)
            and (not len(rows) or weight[weight.argmax()] <= MAX_OBJECTIVE)
        ):
            raise ProblemError(
                f"weight: expected a number >= 0 for each job, at most {MAX_OBJECTIVE:g}"
            )

    @classmethod
    def of(cls, jobs: Sequence[Sequence[Job | None]], kinds: int = 1) -> Rows:
        """The jobs by kind as rows of their own terms."""
        terms = Terms(kinds)
        if jobs:
            terms.extend(jobs)
        return cls(terms, np.arange(len(jobs)))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Job]:
        return map(self._job, range(len(self)))

    @overload
    def __getitem__(self, position: int) -> Job: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[Job, ...]: ...

    def __getitem__(self, position: int | slice) -> Job | tuple[Job, ...]:
        if isinstance(position, slice):
            return tuple(self)[position]
        return self._job(position)

    def __repr__(self) -> str:
        return f"Rows({tuple(self)!r})"

    def _job(self, position: int) -> Job:
        """A job as it is now: a copy of it that has its weight now may be posed in its place."""
        job = next(filter(None, self.terms.on_kinds[int(self.rows[position])]))
        now = float(self.weight[position])
        return job if job.weight == now else replace(job, weight=now)
