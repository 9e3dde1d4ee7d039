"""Step functions of time, averaged over equal spans: what a chart of a thousand points can show of a long replay."""

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
        Each value holds from its instant (ns, ascending) to the next; 0 before the first, the last one to the end.
        Of several at one instant the last counts.
    begin, end
        The window, ns; end > begin.
    spans
        How many, at least 1.

    Returns
    -------
    array of shape (spans,)
        Its sum times the length of a span is the integral of the function.
    """
    edges = begin + (end - begin) * np.arange(spans + 1) / spans
    # The integral from begin to each instant, read off at the edges: piecewise linear between instants.
    instants = np.concatenate([[begin], np.clip(times, begin, end), [end]]).astype(np.float64)
    heights = np.concatenate([[0.0], values])
    integral = np.concatenate([[0.0], np.cumsum(heights * np.diff(instants))])
    at_edges = np.interp(edges, instants, integral)
    means: FloatArray = np.diff(at_edges) / np.diff(edges)
    return means
