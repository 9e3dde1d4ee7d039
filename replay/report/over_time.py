"""Averages of step functions over equal spans: a long replay in a chart of a thousand points."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.int64]


def mean_over_time(
    times: TimeArray, values: FloatArray, begin: int, end: int, spans: int
) -> FloatArray:
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
    instants = np.concatenate([[begin], np.clip(times, begin, end), [end]]).astype(
        np.float64
    )
    heights = np.concatenate([[0.0], values])
    integral = np.concatenate([[0.0], np.cumsum(heights * np.diff(instants))])
    at_edges = np.interp(edges, instants, integral)
    means: FloatArray = np.diff(at_edges) / np.diff(edges)
    return means


def held_over_time(
    counted: Iterable[tuple[TimeArray, FloatArray]],
    start: TimeArray,
    end: TimeArray,
    units: FloatArray,
) -> tuple[TimeArray, FloatArray]:
    """Units in use between decisions too, when jobs finish and give theirs back without a row in the steps.

    Parameters
    ----------
    counted
        For each pool the instants of its steps (ns, ascending) and the units in use from then on.
    start, end, units
        Of each allocation the instants (ns) and its units. Units that two jobs share are in two of them.

    Returns
    -------
    Instants, ascending, and the units in use from each to the next: those of the steps, and never more than are held.

    Examples
    --------
    >>> steps = np.array([0, 10]), np.array([4.0, 0.0])
    >>> times, used = held_over_time([steps], np.array([0, 0]), np.array([6, 10]), np.array([3.0, 1.0]))
    >>> times.tolist(), used.tolist()
    ([0, 6, 10], [4.0, 1.0, 0.0])
    """
    counted = list(counted)
    times = np.unique(
        np.concatenate([start, end, *(instants for instants, _ in counted)])
    )
    used = np.zeros(len(times))
    for instants, values in counted:
        used += np.concatenate([[0.0], values])[
            np.searchsorted(instants, times, side="right")
        ]
    change = np.zeros(len(times))
    np.add.at(change, np.searchsorted(times, start), units)
    np.add.at(change, np.searchsorted(times, end), -units)
    return times, np.minimum(used, np.cumsum(change))
