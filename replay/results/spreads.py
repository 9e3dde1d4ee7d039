"""Summary statistics of many values."""

from __future__ import annotations

import numpy as np


def spread(values: list[float]) -> dict[str, float] | None:
    """Mean, median, p95 and p99, or None where there are no values."""
    if not values:
        return None
    p50, p95, p99 = (float(q) for q in np.percentile(values, (50, 95, 99)))
    return {"mean": float(np.mean(values)), "median": p50, "p95": p95, "p99": p99}


def spread_to(top: str, values: list[float]) -> dict[str, float] | None:
    """Like `spread`, plus the largest value under the name `top`."""
    figures = spread(values)
    return None if figures is None else {**figures, top: max(values)}
