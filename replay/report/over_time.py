"""Averages of step functions over spans: a long replay in a chart of a thousand points."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.writing import duration
from bft.replay.trace.node_trace import SECOND_NS

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.int64]


# Lengths of spans that read as round: seconds, minutes, hours, days.
ROUND_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * days for days in (1, 2, 7, 30, 365)),
)


def round_spans(begin: int, end: int, most: int) -> tuple[TimeArray, str]:
    """Divide a window into at most `most` spans of a round length, which begin at round instants (UTC).

    Parameters
    ----------
    begin, end
        The window, ns; end > begin. It cuts the first and the last span.
    most
        From which the length follows: the smallest round one that is long enough.

    Returns
    -------
    Edges of the spans, ns, int64 of shape (spans + 1,), and the length in words.

    Examples
    --------
    >>> second = 10**9
    >>> edges, length = round_spans(50 * second, 400 * second, most=6)
    >>> (edges // second).tolist(), length
    ([50, 120, 240, 360, 400], '2 min')
    """

    def spans(length_s: int) -> int:
        length = length_s * SECOND_NS
        return -(-end // length) - begin // length

    length_s = next((each for each in ROUND_S if spans(each) <= most), ROUND_S[-1])
    length = length_s * SECOND_NS
    inner = np.arange(begin // length + 1, -(-end // length), dtype=np.int64) * length
    return np.concatenate([[begin], inner, [end]]), duration(length_s)


def mean_over_time(
    times: TimeArray, values: FloatArray, edges: TimeArray
) -> FloatArray:
    """Mean of a step function over spans.

    Parameters
    ----------
    times, values
        Each value holds from its instant (ns, ascending) to the next; 0 before the first, the last value to the end.
        Among several values at one instant the last one counts.
    edges
        Edges of the spans, ns, ascending: int64 of shape (spans + 1,).

    Returns
    -------
    array of shape (spans,)
        The sum of means times lengths of spans equals the integral of the function.

    Examples
    --------
    >>> second = 10**9
    >>> times, values = np.array([0, 5 * second]), np.array([2.0, 4.0])
    >>> mean_over_time(times, values, np.array([0, 5, 10]) * second).tolist()
    [2.0, 4.0]
    """
    begin, end = int(edges[0]), int(edges[-1])
    since = (edges - begin).astype(np.float64)
    # The integral from begin, interpolated at the edges: it is piecewise linear between instants.
    inside = np.clip(times, begin, end) - begin
    instants = np.concatenate([[0], inside, [end - begin]]).astype(np.float64)
    heights = np.concatenate([[0.0], values])
    integral = np.concatenate([[0.0], np.cumsum(heights * np.diff(instants))])
    means: FloatArray = np.diff(np.interp(since, instants, integral)) / np.diff(since)
    return means


def held_over_time(
    counted: Iterable[tuple[TimeArray, FloatArray]], changes: pd.Series[float]
) -> tuple[TimeArray, FloatArray]:
    """Units in use between decisions too, when jobs finish and give theirs back without a row in the steps.

    Parameters
    ----------
    counted
        For each pool the instants of its steps (ns, ascending) and the units in use from then on.
    changes
        How many more units are held from an instant on. Units that two jobs share count twice.

    Returns
    -------
    Instants, ascending, and the units in use from each to the next: those of the steps, and never more than are held.

    Examples
    --------
    >>> steps = np.array([0, 10]), np.array([4.0, 0.0])
    >>> times, used = held_over_time([steps], pd.Series([4.0, -3.0, -1.0], [0, 6, 10]))
    >>> times.tolist(), used.tolist()
    ([0, 6, 10], [4.0, 1.0, 0.0])
    """
    by_pool = [pd.Series(used, at).groupby(level=0).last() for at, used in counted]
    times = changes.index.union(pd.concat(by_pool).index).unique()
    used = pd.Series(0.0, times)
    for pool in by_pool:
        used += pool.reindex(times, method="ffill").fillna(0.0)
    held = changes.reindex(times, fill_value=0.0).cumsum()
    counts = np.minimum(used.to_numpy(), held.to_numpy()).astype(np.float64)
    return times.to_numpy(np.int64), counts
