"""Averages of step functions over equal spans: a long replay in a chart of a thousand points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.int64]


def mean_over_time(times: TimeArray, values: FloatArray, begin: int, end: int, spans: int) -> FloatArray:
    """Mean of a step function over equal spans of [begin, end].

    Parameters
    ----------
    times, values
        Each value holds from its instant (ns, ascending) to the next; 0 before the first, the last value to the end.
        Among several values at one instant the last one counts.
    begin, end
        The window, ns; end > begin.
    spans
        Number of spans, at least 1.

    Returns
    -------
    array of shape (spans,)
        Its sum times the length of a span equals the integral of the function.

    Examples
    --------
    >>> second = 10**9
    >>> times, values = np.array([0, 5 * second]), np.array([2.0, 4.0])
    >>> mean_over_time(times, values, 0, 10 * second, spans=2).tolist()
    [2.0, 4.0]
    """
    edges = begin + (end - begin) * np.arange(spans + 1) / spans
    # The integral from begin, interpolated at the edges: it is piecewise linear between instants.
    instants = np.concatenate([[begin], np.clip(times, begin, end), [end]]).astype(np.float64)
    heights = np.concatenate([[0.0], values])
    integral = np.concatenate([[0.0], np.cumsum(heights * np.diff(instants))])
    at_edges = np.interp(edges, instants, integral)
    means: FloatArray = np.diff(at_edges) / np.diff(edges)
    return means
