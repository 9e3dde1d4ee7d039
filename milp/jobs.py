"""A job as a decision sees it, and the errors of what cannot be posed; everything in this folder builds on it."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import index

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Products of three such numbers stay far below the largest float.
MAX_OBJECTIVE = 1e60
# Whole numbers up to this one are exact as floats too.
MAX_UNITS = 2**53
MAX_MESSAGE = 800


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
    >>> job.stretches
    ((1, 2), (4, 4), (8, 8))
    >>> Job("a", 2, 1, ns=[0, 1], os=[0, 10], tcup=20.0, tcdw=10.0)
    Traceback (most recent call last):
    bft.milp.jobs.ProblemError: job 'a': Jmin 2 and Jmax 1 must satisfy 0 <= Jmin <= Jmax, Jmax >= 1
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
