"""The Gittins index of attained service: probability of finishing soon per expected service (Tiresias, §3.2)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bft.models import read_table
from bft.models.cells import Rows

COLUMNS = ("service", "duration")


class ServiceDistribution:
    """The distribution of total service per job, as samples.

    Parameters
    ----------
    samples
        Unit-seconds of past jobs, in any order.
    delta
        Length of the next quantum in unit-seconds.
    """

    def __init__(self, samples: Iterable[float], delta: float) -> None:
        self.delta = delta
        self.samples = sorted(samples)
        self._sums = np.concatenate(
            [[0.0], np.cumsum(self.samples)]
        )  # of the first k samples

    def learn(self, sample: float) -> None:
        """Add the service of another finished job."""
        index = bisect_right(self.samples, sample)
        self.samples.insert(index, sample)
        self._sums = np.concatenate(
            [self._sums[: index + 1], self._sums[index:] + sample]
        )

    def index(self, attained: float) -> float:
        """The index of a job with this many attained unit-seconds; 0 beyond the largest sample.

        With n samples d in ascending order, i of them up to a and e up to a + Δ (docs/policies.md):

            P = (e − i) / (n − i)        the job finishes within the quantum
            E = (Σ d[i:e] + Δ·(n − e)) / (n − i)        its expected service in the quantum
            index = P / E
        """
        samples, n = self.samples, len(self.samples)
        first = bisect_right(samples, attained)
        if first == n:
            return 0.0
        last = bisect_right(samples, attained + self.delta)
        return (last - first) / self._service(first, last)  # n − i is a factor of both

    def index_of_next_sample(self, attained: float) -> float:
        """The index that Tiresias' public simulator uses: one unit-second before the next sample is reached.

        There the largest sample never counts as finished within the quantum, P is rounded to five digits and E down to
        a whole number, so more indices are equal.
        """
        samples, n = self.samples, len(self.samples)
        index = bisect_right(samples, attained)
        if index == n:
            return 0.0
        before = samples[index] - 1
        first, last = (
            bisect_right(samples, before),
            min(bisect_right(samples, before + self.delta), n - 1),
        )
        chance = round((last - first) / (n - first), 5)
        return round(chance * 1e6 / (self._service(first, last) // (n - first)), 4)

    def _service(self, first: int, last: int) -> float:
        """Σ d[i:e] + Δ·(n − e)."""
        return float(self._sums[last] - self._sums[first]) + self.delta * (
            len(self.samples) - last
        )


def read_samples(path: str | Path) -> list[float]:
    """Read the service of past jobs: a table with a column `service` (unit-seconds), or `duration`.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    rows = Rows(read_table(path), path)
    column = next((name for name in COLUMNS if rows.has(name)), None)
    if column is None:
        raise rows.error(
            f"expected a column {' or '.join(COLUMNS)} with unit-seconds of past jobs"
        )
    samples: list[float] = rows.require((column,)).all_numbers(column, above=0).tolist()
    return samples
