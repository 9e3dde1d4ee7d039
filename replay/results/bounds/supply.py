"""A rate over time, and its integral."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Supply:
    """A piecewise constant rate, such as the idle units of a trace.

    Parameters
    ----------
    edges
        Instants at which it changes, and its end, seconds since the trace's start: float64 of shape (pieces + 1,).
    rates
        The rate in each piece, at least 0: shape (pieces,).
    """

    edges: FloatArray
    rates: FloatArray

    @cached_property
    def _cumulated(self) -> FloatArray:
        return np.concatenate([[0.0], np.cumsum(self.rates * np.diff(self.edges))])

    @property
    def total(self) -> float:
        """The integral over all time."""
        return float(self._cumulated[-1])

    @property
    def end(self) -> float:
        """The end of the last piece."""
        return float(self.edges[-1])

    def until(self, instants: ArrayLike) -> FloatArray:
        """Return the integral up to each instant."""
        return np.interp(
            np.asarray(instants, dtype=np.float64), self.edges, self._cumulated
        )

    def when(self, amounts: ArrayLike) -> FloatArray:
        """The first instants at which the integral reaches these amounts; infinite where it never does."""
        wanted = np.asarray(amounts, dtype=np.float64)
        after = np.clip(
            np.searchsorted(self._cumulated, wanted, side="left"), 1, len(self.rates)
        )
        missing = wanted - self._cumulated[after - 1]
        rates = self.rates[after - 1]
        instants = self.edges[after - 1] + np.divide(
            missing, rates, out=np.zeros_like(wanted), where=rates > 0
        )
        return np.where(wanted > self.total, np.inf, instants)

    def levels(self, begin: float, end: float) -> tuple[FloatArray, FloatArray]:
        """The rates above 0 between two instants, ascending, with the seconds that each lasts."""
        seconds = np.clip(self.edges[1:], begin, end) - np.clip(
            self.edges[:-1], begin, end
        )
        rates, index = np.unique(self.rates, return_inverse=True)
        total = np.zeros(len(rates))
        np.add.at(total, index, seconds)
        there = (rates > 0) & (total > 0)
        return rates[there], total[there]


def idle_units(trace: NodeTrace) -> Supply:
    """The idle units of a trace over time."""
    edges = np.concatenate([[trace.start], trace.times, [trace.end]]) - trace.start
    units = np.concatenate([[0], trace.idle_units()])
    return Supply(edges / SECOND_NS, units.astype(np.float64))
