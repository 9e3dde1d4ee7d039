"""Interchangeable jobs: jobs that hold no units and have the same value table form a class.

Under the cost model `bftrainer` a job without units has no rate to lose, so Tcup and Tcdw do not enter its value.
Under `stall` its first units cost it Tcup, so jobs of one class also have the same max(Tfwd - Tcup, 0). A job that
holds units, or may share them, is a class of its own, except for groups that the problem lists in `alike`. A class is
one set of variables, however many members it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter

import numpy as np

from bft.milp.problem import IntArray, Job, Problem

_waiting_key = attrgetter("waiting_key")


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of a problem's jobs, in the order of their first members.

    Parameters
    ----------
    of
        The class of each job, int64.
    first
        Position of the first member of each class.
    """

    of: IntArray
    first: tuple[int, ...]

    @cached_property
    def sizes(self) -> IntArray:
        """Number of members of each class."""
        return np.bincount(self.of, minlength=len(self.first))

    def members(self) -> list[IntArray]:
        """Positions of the members of each class, ascending."""
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.cumsum(self.sizes)[:-1]) if self.first else []


def classes_of(problem: Problem) -> Classes:
    """Group the jobs of a problem; with several kinds of units each job is a class of its own."""
    if problem.several_kinds:
        return apart(problem)
    alone = problem.holders
    if problem.pairs:
        paired = (j for pair in problem.pairs for j in (pair.a, pair.b))
        alone = tuple(sorted({*alone, *paired}))
    stall = problem.cost_model == "stall"
    return _classes(problem.jobs, alone, problem.alike, problem.tfwd if stall else None)


# The jobs and those that hold units are mostly the same as at the last decision.
@lru_cache(maxsize=4)
def _classes(
    members: tuple[Job, ...],
    alone: tuple[int, ...],
    alike: tuple[tuple[int, ...], ...],
    tfwd: float | None,
) -> Classes:
    """The classes where the jobs at the positions `alone` are classes of their own, but for the groups of `alike`."""
    kinds, jobs = _kinds(members, tfwd), len(members)
    if alone or alike:
        kinds = kinds.copy()
        kinds[list(alone)] = np.arange(jobs, jobs + len(alone))
    for group in alike:
        kinds[list(group)] = kinds[group[0]]
    first = np.full(2 * jobs, jobs, dtype=np.int64)
    first[kinds[::-1]] = np.arange(jobs)[
        ::-1
    ]  # NumPy keeps the last value of a repeated index: the first job
    present = np.flatnonzero(first < jobs)
    present = present[np.argsort(first[present])]
    number = np.empty(2 * jobs, dtype=np.int64)
    number[present] = np.arange(len(present))
    return Classes(number[kinds], tuple(first[present].tolist()))


@lru_cache(maxsize=2)
def _kinds(jobs: tuple[Job, ...], tfwd: float | None) -> IntArray:
    """A number for each job, equal for jobs that are interchangeable while they wait; `tfwd` is given under `stall`.

    Cached, because consecutive decisions mostly concern the same jobs.
    """
    keys: list[object] = list(map(_waiting_key, jobs))
    if tfwd is not None:
        keys = list(zip(keys, [max(tfwd - job.tcup, 0.0) for job in jobs], strict=True))
    numbers = {key: kind for kind, key in enumerate(dict.fromkeys(keys))}
    return np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))


def apart(problem: Problem) -> Classes:
    """Classes with one job each."""
    jobs = len(problem.jobs)
    return Classes(np.arange(jobs), tuple(range(jobs)))
