"""The unit-time bound: every sample takes at least 1 / max P(n)/n unit-seconds of idle units."""

from __future__ import annotations

import numpy as np

from bft.replay.results.bounds.supply import Supply
from bft.replay.results.bounds.work import Work


def unit_time_bound(idle: Supply, work: Work) -> float:
    """The most samples that the idle unit-seconds allow.

    A fractional knapsack: u_j unit-seconds for job j yield e_j u_j, up to its work. For every instant r, the jobs
    submitted at r or later use at most the unit-seconds offered from r on. These sets of jobs form a chain, so taking
    jobs by their rate per unit, best first, is optimal (docs/bounds.md).
    """
    per_unit = work.per_unit[work.curve]
    able = per_unit > 0
    releases, release = np.unique(work.release[able], return_inverse=True)
    left = idle.total - idle.until(
        releases
    )  # unit-seconds from each release on, minus those already taken
    # Jobs with the same rate and release count as one.
    groups, group = np.unique(
        np.stack([-per_unit[able], release], axis=1), axis=0, return_inverse=True
    )
    wanted = np.bincount(
        group.ravel(), weights=work.limit[able] / per_unit[able], minlength=len(groups)
    )
    samples = 0.0
    for (rate, first), want in zip(groups.tolist(), wanted.tolist(), strict=True):
        chain = left[: int(first) + 1]
        taken = max(0.0, min(want, float(chain.min())))
        chain -= taken
        samples -= rate * taken
    return samples
