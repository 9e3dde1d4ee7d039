"""Every tolerance of jobs and replays, each with its reason; tests/test_tolerances.py states how they relate.

`bft.milp.tolerances` has those of decisions and solvers, as neither of the two packages imports the other.

A product, quotient or interpolation in doubles is off by about 1e-16 of its value, the sum of a long replay by up to
1e-13. Measured rates and times differ by far more than 1e-12. So what differs by less counts as equal wherever a
threshold meets a computed number: otherwise 0.8 x 564 would exceed 564 x 8 / 10, and a job would ask for a unit more.
"""

from __future__ import annotations

import math

# --- relative --------------------------------------------------------------------------------------------------------

# Significant digits that count where a threshold meets a computed number (`rounded`), and the same as a
# relative difference. Doubles are off by 1e-16, sums of a long replay by up to 1e-13, and measured rates by far more.
DIGITS = 12
EQUAL = 10.0**-DIGITS
# A job with at most this part of its work left at an instant is done: many changes of its rate may round off that much.
FINISHED = 1e-12
# Nanoseconds to a finish, computed from a rate: one due at a whole nanosecond must not come one late.
INSTANT = 1e-14
# The totals of a replay and those of its jobs are added up in different orders and must agree to this.
BALANCE = 1e-9
# Progress of a profiled job is compared in doubles that were multiplied and divided.
PROGRESS = 1e-9
# Metrics of two replays this close are the same result: both are marked as the best.
SAME_RESULT = 1e-9
# A job whose time exceeds that on an equal share by no more has done no worse than on it. Its finish is rounded up to a
# nanosecond, 4e-11 of 24 s, and its share is a difference of sums over the replay: off by 5e-9 after 40 days of jobs of
# 50 s, measured, and by up to 1e-6 after a year with 10,000 jobs.
EQUAL_SHARE = 1e-6
# A number of nodes this close to a whole one is that number.
WHOLE_NODES = 1e-9

# --- absolute --------------------------------------------------------------------------------------------------------

# Samples: a batch is rounded up, and 8.000000001 samples stay 8.
WHOLE_SAMPLES = 1e-8
# Samples that always remain in a stretch of a profiled job, so that rounding cannot stop it just before its end.
REMAINING_SAMPLES = 1e-6
# Shares of a whole, such as those of queues: their sum may exceed 1 by this.
SHARES = 1e-9
# Unit-seconds: attained service is a sum of floats, and a job that lacks at most this to a limit has reached it.
SERVICE = 1e-6
# Seconds that a sum of measured seconds may lack by rounding.
MEASURED_S = 1e-6


def rounded(value: float) -> float:
    """Return a number with the digits that count, so that numbers which should be equal compare equal.

    >>> 0.1 + 0.2 == 0.3, rounded(0.1 + 0.2) == rounded(0.3)
    (False, True)
    """
    return float(f"{value:.{DIGITS}g}")


def lowered(threshold: float) -> float:
    """Return the least number that reaches a threshold >= 0 but for rounding.

    >>> 564 * 8 / 10 >= 0.8 * 564, 564 * 8 / 10 >= lowered(0.8 * 564)
    (False, True)
    """
    return threshold * (1 - EQUAL)


def whole_above(value: float) -> int:
    """Return the smallest whole number that reaches a number >= 0 but for rounding.

    >>> math.ceil(2.1 / 0.7), whole_above(2.1 / 0.7)
    (4, 3)
    """
    return math.ceil(lowered(value))
