"""Interchangeable jobs: those that hold nothing and have the same value table form a class.

Under the cost model `bftrainer` a job without units has no rate to lose, so that Tcup and Tcdw do not enter its value;
under `stall` growing from nothing costs it Tcup, and max(Tfwd - Tcup, 0) belongs to the class. Whoever holds units, or
may share them, is a class of its own. A class is posed once, however many its members.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from bft.milp.problem import IntArray, Problem

_waiting_key, _tcup = attrgetter("waiting_key"), attrgetter("tcup")


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

    @property
    def sizes(self) -> IntArray:
        """How many members each class has."""
        return np.bincount(self.of, minlength=len(self.first))

    def members(self) -> list[IntArray]:
        """Positions of the members of each class, ascending."""
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.cumsum(self.sizes)[:-1]) if self.first else []


def classes_of(problem: Problem) -> Classes:
    """Group the jobs of a problem."""
    keys: list[object] = list(map(_waiting_key, problem.jobs))
    if problem.cost_model == "stall":
        tcup = np.fromiter(map(_tcup, problem.jobs), np.float64, len(keys))
        keys = list(zip(keys, np.maximum(problem.tfwd - tcup, 0.0).tolist(), strict=True))
    for j in problem.holders:
        keys[j] = j
    for pair in problem.pairs:
        keys[pair.a], keys[pair.b] = pair.a, pair.b
    classes = {key: c for c, key in enumerate(dict.fromkeys(keys))}
    first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    of = np.fromiter(map(classes.__getitem__, keys), np.int64, len(keys))
    return Classes(of, tuple(first[key] for key in classes))


def apart(problem: Problem) -> Classes:
    """Every job a class of its own."""
    jobs = len(problem.jobs)
    return Classes(np.arange(jobs), tuple(range(jobs)))
