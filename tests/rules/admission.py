"""Admission by deadlines as tests/rules/README.md states it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Promise:
    """A job with a deadline: its rate on each of its sizes, and the work left."""

    rates: dict[int, Fraction]
    left: Fraction
    deadline: int


def is_admitted(
    now: int, units: int, newcomer: Promise, others: Sequence[Promise]
) -> bool:
    """Whether the newcomer, and each of the others that could without it, keeps its deadline."""
    without = kept(now, units, others)
    *beside, own = kept(now, units, [*others, newcomer])
    return own and all(
        still or not before for before, still in zip(without, beside, strict=True)
    )


def kept(now: int, units: int, promises: Sequence[Promise]) -> list[bool]:
    """Which promises are kept when each, in order of deadlines, reserves its smallest share that suffices."""
    reserved: list[tuple[int, int, int]] = []  # from, to, units
    answers = [False] * len(promises)
    for k in sorted(range(len(promises)), key=lambda k: promises[k].deadline):
        for share in sorted(n for n in promises[k].rates if n <= units):
            plan = course(now, units, reserved, promises[k], share)
            if plan is not None:
                reserved += plan
                answers[k] = True
                break
    return answers


def course(
    now: int,
    units: int,
    reserved: Sequence[tuple[int, int, int]],
    promise: Promise,
    share: int,
) -> list[tuple[int, int, int]] | None:
    """What the job holds from when to when with a share, up to its end; None if that is after its deadline."""
    ends = {
        end for span in reserved for end in span[:2] if now < end < promise.deadline
    }
    left, begin, plan = promise.left, now, []
    for end in sorted(ends | {promise.deadline}):
        free = units - sum(n for a, b, n in reserved if a <= begin < b)
        size = max((n for n in promise.rates if n <= min(share, free)), default=0)
        rate = promise.rates.get(size, Fraction(0))
        work = rate * Fraction(end - begin, SECOND)
        if rate and work >= left:
            return [*plan, (begin, begin + ceil(left / rate * SECOND), size)]
        plan.append((begin, end, size))
        left, begin = left - work, end
    return None
