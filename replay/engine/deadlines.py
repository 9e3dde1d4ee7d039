"""Admission by deadlines: a job is admitted only if all that were admitted before can still keep theirs.

The limit on jobs in play, -maxJ, is `loop._admit`.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from bft.models.curves import FloatArray
from bft.models.tolerances import FINISHED
from bft.replay.trace.node_trace import SECOND_NS


@dataclass(frozen=True, slots=True)
class Due:
    """A job that should be done by a deadline.

    Parameters
    ----------
    rates
        Samples/s on 0, 1, ... units: float64 of shape (largest size + 1,).
    sizes
        Units on which it runs, ascending.
    left
        Samples still to be done.
    deadline_ns
        UTC nanoseconds.
    """

    rates: FloatArray
    sizes: tuple[int, ...]
    left: float
    deadline_ns: int


Span = tuple[int, int, int]
"""From an instant to another (UTC ns) so many units are not reserved."""


def minimum_shares(now: int, units: int, jobs: Sequence[Due]) -> list[int | None]:
    """Fewest units with which each job keeps its deadline beside those with earlier ones; None where none suffice.

    In order of deadlines, each job takes the smallest share n for which it is done in time when it always has the
    largest size up to min(n, what is left of `units`), or nothing where that is too little to run on. It reserves these
    units until it is done.
    A job that cannot keep its deadline reserves nothing. Rescales are taken to cost nothing.

    Parameters
    ----------
    now
        UTC nanoseconds.
    units
        That are idle from now on.
    jobs
        In any order; of equal deadlines the first comes first.

    References
    ----------
    Gu et al., ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning, ASPLOS 2023: minimum
    satisfactory share by progressive filling, algorithm 1; with instants instead of time slots.

    Examples
    --------
    >>> import numpy as np
    >>> from bft.replay.engine.deadlines import Due
    >>> rates = np.array([0.0, 10.0, 18.0, 24.0])
    >>> first, second = Due(rates, (1, 2, 3), 150.0, 10 * 10**9), Due(rates, (1, 2, 3), 300.0, 20 * 10**9)
    >>> minimum_shares(0, 3, [first, second]), minimum_shares(0, 3, [first, second, second])
    ([2, 3], [2, 3, None])
    """
    shares: list[int | None] = [None] * len(jobs)
    spans = [(now, max((job.deadline_ns for job in jobs), default=now), units)]
    by_deadline = sorted(range(len(jobs)), key=lambda index: jobs[index].deadline_ns)
    for index in by_deadline:
        job = jobs[index]
        for share in job.sizes[: bisect_right(job.sizes, units)]:
            rest = _reserved(spans, job, share)
            if rest is not None:
                shares[index], spans = share, rest
                break
    return shares


def is_admitted(now: int, units: int, newcomer: Due, others: Sequence[Due]) -> bool:
    """Whether a newcomer can keep its deadline, and each of the others that could without it still can."""
    without = minimum_shares(now, units, others)
    *beside, own = minimum_shares(now, units, [*others, newcomer])
    if own is None:
        return False
    for share_without, share_beside in zip(without, beside, strict=True):
        if share_without is not None and share_beside is None:
            return False
    return True


def _reserved(spans: Sequence[Span], job: Due, share: int) -> list[Span] | None:
    """Return the spans beside a job with this share until it is done, None where that is not by its deadline."""
    left, rest = job.left, list[Span]()
    for position, (begin, end, free) in enumerate(spans):
        last = min(end, job.deadline_ns)
        if last <= begin:
            return None
        fits = bisect_right(job.sizes, min(share, free))
        size = job.sizes[fits - 1] if fits else 0
        rate = float(job.rates[size])
        work = rate * ((last - begin) / SECOND_NS)
        if work >= left - FINISHED * job.left:
            done = min(last, begin + math.ceil(left / rate * SECOND_NS))
            after = [(done, end, free)] if done < end else []
            return [*rest, (begin, done, free - size), *after, *spans[position + 1 :]]
        left -= work
        rest.append((begin, end, free - size))
    return None
