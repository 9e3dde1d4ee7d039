"""Times of a whole column: stamps such as 2021-02-10T20:21:15 and seconds since 1970, as `Clock.parse` has them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bft.replay.logs.cell_columns import Bytes, Whole, cells_at, digits, raw
from bft.replay.logs.times import MOST_EPOCH_S, Clock
from bft.replay.trace.node_trace import SECOND_NS

_STAMP, _EPOCH = 19, 10
_MARKS = ((4, b"-"), (7, b"-"), (13, b":"), (16, b":"))


def times_of(column: pa.Array, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    """UTC nanoseconds of each cell, and where that is known; elsewhere `Clock.parse` decides."""
    data, offsets = raw(column)
    times, known = np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=bool)
    for width, read in ((_STAMP, _stamps), (_EPOCH, _epochs)):
        rows, cells = cells_at(data, offsets, width)
        if len(rows):
            times[rows], known[rows] = read(cells, clock)
    return times, known


def _epochs(cells: Bytes, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    seconds, right = digits(cells)
    right &= (seconds > 0) & (seconds < MOST_EPOCH_S)
    return np.where(right, seconds, 0) * SECOND_NS, right


def _stamps(cells: Bytes, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    year, right = digits(cells[:4])
    parts = []
    for place in (5, 8, 11, 14, 17):
        part, are = digits(cells[place : place + 2])
        parts.append(part)
        right &= are
    for place, mark in _MARKS:
        right &= cells[place] == mark[0]
    right &= (cells[10] == ord("T")) | (cells[10] == ord(" "))
    month, day, hour, minute, second = parts
    right &= (year > 1970) & (year < 2262) & (month >= 1) & (month <= 12) & (day >= 1)
    right &= (hour < 24) & (minute < 60) & (second < 60)
    months = (np.where(right, year, 1971) - 1970) * 12 + np.where(right, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    right &= day <= after - first
    hours = np.where(right, (first + day - 1) * 24 + hour, 0)
    met, which = np.unique(hours, return_inverse=True)
    begins = [clock.hour_ns(one) if one else None for one in met.tolist()]
    plain = np.array([begin is not None for begin in begins])
    begun = np.array([begin or 0 for begin in begins], dtype=np.int64)
    right &= plain[which]
    return np.where(right, begun[which] + (minute * 60 + second) * SECOND_NS, 0), right
