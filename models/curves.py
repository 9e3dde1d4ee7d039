"""Scalability and objective curves: units -> samples per second, piecewise linear (docs/model.md).

`OnlineCurve` is learned while a job runs, for policies that do not know the true one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def positive_array(name: str, values: ArrayLike, count: int) -> FloatArray:
    """Return `count` numbers > 0 as float64; ValueError names the first that is none.

    >>> positive_array("step_s", [0.5, -1.0], 2)
    Traceback (most recent call last):
    ValueError: step_s: expected numbers > 0, but entry 2 is -1.0
    """
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (count,) or not count:
        raise ValueError(f"{name}: expected {count} values, at least one")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"{name}: expected numbers > 0, but entry {first + 1} is {array[first]}"
        )
    return array


@dataclass(frozen=True, eq=False)
class Curve:
    """A piecewise linear curve through measured points, not necessarily concave.

    Parameters
    ----------
    ns
        Units at the points, float64, increasing from 0.
    ps
        Rate at the points (samples/s for a scalability curve), float64, finite, at least 0.

    Raises
    ------
    ValueError
        Names the rule that the points violate.

    Examples
    --------
    >>> curve = Curve([0, 2, 4], [0, 20, 30])
    >>> float(curve.at(3)), curve.table(5).tolist()
    (25.0, [0.0, 10.0, 20.0, 25.0, 30.0, 30.0])
    """

    ns: FloatArray
    ps: FloatArray

    def __post_init__(self) -> None:
        ns = np.array(self.ns, dtype=np.float64)
        ps = np.array(self.ps, dtype=np.float64)
        for array in (
            ns,
            ps,
        ):  # read-only copies: a caller that holds a job, such as a policy, cannot change it
            array.setflags(write=False)
        object.__setattr__(self, "ns", ns)
        object.__setattr__(self, "ps", ps)
        if ns.ndim != 1 or ps.ndim != 1 or len(ns) != len(ps):
            raise ValueError(
                f"the curve has {ns.size} unit counts for {ps.size} rates; expected one rate a unit count"
            )
        if len(ns) < 2:
            raise ValueError("a curve needs at least two points, the first at 0 units")
        if not np.isfinite(ns).all() or not np.isfinite(ps).all():
            raise ValueError(
                "the curve holds NaN or infinite values; expected finite numbers"
            )
        if ns[0] != 0:
            raise ValueError(f"the curve starts at {ns[0]:g} units; expected Ns[0] = 0")
        if (np.diff(ns) <= 0).any():
            index = int(np.argmax(np.diff(ns) <= 0))
            raise ValueError(
                f"Ns must increase, but {ns[index + 1]:g} follows {ns[index]:g}"
            )
        if (ps < 0).any():
            raise ValueError(f"rates must be >= 0, not {ps.min():g}")

    @property
    def last(self) -> float:
        """Units at the last point; beyond it the curve is held constant."""
        return float(self.ns[-1])

    def at(self, units: ArrayLike) -> FloatArray:
        """Rate at `units` (any shape), interpolated linearly, constant beyond the last point."""
        return np.interp(np.asarray(units, dtype=np.float64), self.ns, self.ps)

    def table(self, max_units: int) -> FloatArray:
        """Rate at 0, 1, ..., most units: float64 of shape (most + 1,)."""
        return self.at(np.arange(max_units + 1))


@dataclass(slots=True)
class OnlineCurve:
    """Observed rates, and what they make a scheduler hope for the sizes not seen yet.

    Where the job ran, the rate is the mean of what was seen, weighted by seconds. Between two such sizes it is linear.
    Beyond the largest it is hoped to scale perfectly from there, as Pollux does (OSDI'21, §4.1): a hope that is wrong
    is tried once, a fear is never put to the test. Below the smallest it is in proportion too. A true curve whose rate
    a unit never rises is never underestimated beyond the largest size seen.

    Examples
    --------
    >>> curve = OnlineCurve()
    >>> curve.observe(2, rate=20.0, seconds=60.0)
    >>> curve.observe(4, rate=30.0, seconds=60.0)
    >>> curve.estimate(8).at([1, 3, 8]).tolist()  # linear between sizes, in proportion beyond them
    [10.0, 25.0, 60.0]
    """

    # Seconds and samples by size.
    _seen: dict[int, tuple[float, float]] = field(default_factory=dict)

    def observe(self, units: int, rate: float, seconds: float) -> None:
        """The job ran on `units` at `rate` samples/s for `seconds`; nothing is learned from 0 seconds."""
        if seconds > 0:
            before, samples = self._seen.get(units, (0.0, 0.0))
            self._seen[units] = before + seconds, samples + rate * seconds

    def state(self) -> dict[str, Any]:
        """The observations as JSON values."""
        return {"seen": [[units, *seen] for units, seen in self._seen.items()]}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> OnlineCurve:
        """The curve that `state` was taken of."""
        return cls({units: (spent, done) for units, spent, done in state["seen"]})

    @property
    def sizes(self) -> list[int]:
        """Sizes that the job ran on, increasing."""
        return sorted(self._seen)

    def seconds(self, units: int) -> float:
        """Seconds that it ran on a size, 0 when it did not."""
        return self._seen.get(units, (0.0, 0.0))[0]

    def rate(self, units: int) -> float:
        """Return the mean samples/s on a size that the job ran on.

        Raises
        ------
        KeyError
            When it did not.
        """
        seconds, samples = self._seen[units]
        return samples / seconds

    def estimate(self, max_units: int) -> Curve:
        """The current estimate: samples/s on 0 to `max_units` units; 1 per unit when the job never ran."""
        sizes = self.sizes
        ns, ps = [0, *sizes], [0.0, *(self.rate(size) for size in sizes)]
        if not sizes:
            ns, ps = [0, max_units], [0.0, max_units]
        elif max_units > sizes[-1]:
            ns.append(max_units)
            ps.append(ps[-1] * max_units / sizes[-1])
        return Curve(np.array(ns), np.array(ps))
