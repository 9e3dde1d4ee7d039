"""What an allocation maximises: a curve a job, and a weight that may rise with time (DESIGN §6).

An objective is a function from a job to a curve over its units; it is valued per second. Three come with the package;
any function of that signature will do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bft.models.curves import Curve
from bft.models.jobs import Job

Objective = Callable[[Job], Curve]

DAY_S = 86_400.0


def own(job: Job) -> Curve:
    """The objective curve that the job's table states (column Os)."""
    return job.objective


def throughput(job: Job) -> Curve:
    """Samples per second: what the scalability curve says (Os = Ps)."""
    return job.scalability


def efficiency(job: Job) -> Curve:
    """Scaling efficiency: speed-up over one unit (Os = Ps / Ps(1)), so that small models do not win by their rate.

    Where a job makes no progress on one unit, the rate per unit at the least count that does counts instead.
    """
    curve = job.scalability
    units = np.arange(1, max(job.jmax, 1) + 1)
    running = units[curve.at(units) > 0]
    if not len(running):
        return curve
    per_unit = float(curve.at(running[0])) / float(running[0])
    return Curve(curve.ns, curve.ps / per_unit)


OBJECTIVES: dict[str, Objective] = {"own": own, "throughput": throughput, "efficiency": efficiency}


def deadline_weight(job: Job, now_ns: int, *, horizon_s: float = DAY_S, boost: float = 4.0) -> float:
    """The weight of a job at an instant: it rises from its own to `boost` times that as its deadline comes near.

        weight · (1 + (boost - 1) · u),    u = 1 - (deadline - now) / horizon, clipped to [0, 1]

    A job without a deadline keeps its weight; one past its deadline keeps the full boost. The remaining work is not
    looked at: a scheduler does not know it.

    Parameters
    ----------
    job
        With `deadline_ns`, or without.
    now_ns
        UTC nanoseconds.
    horizon_s
        Seconds before the deadline at which the weight starts to rise, > 0.
    boost
        Factor reached at the deadline, >= 1.
    """
    if job.deadline_ns is None:
        return job.weight
    left_s = (job.deadline_ns - now_ns) / 1e9
    urgency = min(1.0, max(0.0, 1.0 - left_s / horizon_s))
    return job.weight * (1.0 + (boost - 1.0) * urgency)
