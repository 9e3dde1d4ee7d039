"""Scalability and objective curves: units -> samples per second, piecewise linear (docs/model.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


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
