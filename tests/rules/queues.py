"""Rigid policies as tests/rules/README.md states them: fifo, sjf, qssf, srtf, yarn-cs; and the two walks."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from rules.world import (
    Answer,
    Playing,
    World,
    consolidated,
    longest_idle,
    neighbours,
    rate_of,
)

# Seconds of a job that makes no progress at Jreq.
ENDLESS = Fraction(10**30)
Spreads = Callable[[Playing], bool]


def place(free: list[int], count: int, per: int, *, spread: bool) -> list[int] | None:
    """Units for a rigid job; `free` in the order in which units of one-unit nodes are taken. None: it does not fit."""
    if count > len(free):
        return None
    if per == 1:
        return longest_idle(free, count)
    return (
        neighbours(free, count, (), per) if spread else consolidated(free, count, per)
    )


def without(free: list[int], taken: list[int]) -> list[int]:
    return [unit for unit in free if unit not in taken]


# --- starting waiting jobs, running ones are left alone ---------------------------------------------------------------


def start(
    world: World, order: list[Playing], *, blocks: bool, spreads: Spreads
) -> Answer:
    """Waiting jobs start in order; one that does not fit is skipped, or blocks the others."""
    free, answer = world.free(), Answer()
    for one in order:
        if one.units:
            continue
        units = place(free, one.request, world.per, spread=spreads(one))
        if units is not None:
            answer.units[one.number] = units
            free = without(free, units)
        elif blocks:
            break
    return answer


def seconds_left(one: Playing) -> Fraction:
    """Remaining work over the rate at Jreq; a job without progress there needs longer than any other."""
    rate = rate_of(one.job, one.request)
    return (Fraction(one.job.pmax) - one.done) / rate if rate else ENDLESS


def in_order_of(key: Callable[[Playing], Fraction]) -> Callable[..., Any]:
    """Waiting jobs start in this order, those admitted first of equal ones."""

    def made(*, backfill: bool, consolidate: bool) -> Callable[[World], Answer]:
        def decide(world: World) -> Answer:
            order = sorted(world.play, key=key)
            blocks = not backfill
            return start(
                world, order, blocks=blocks, spreads=lambda one: not consolidate
            )

        return decide

    return made


fifo = in_order_of(lambda one: Fraction(0))
sjf = in_order_of(lambda one: seconds_left(Playing(one.number, one.job)))
qssf = in_order_of(lambda one: Fraction(one.job.extra["estimate_s"]) * one.request)


def yarn_cs(
    *, by: str, capacities: dict[str, Fraction], max_share: Fraction, consolidate: bool
) -> Callable[[World], Answer]:
    def decide(world: World) -> Answer:
        free, answer = world.free(), Answer()
        queues: dict[
            str, list[Playing]
        ] = {}  # in the order of their first jobs in play
        used: dict[str, int] = {}
        for one in world.play:
            name = one.job.vc if by == "vc" else one.job.user
            queues.setdefault(name, [])
            used[name] = used.get(name, 0) + len(one.units)
            queues[name] += [] if one.units else [one]
        others = [name for name in queues if name not in capacities]
        rest = 1 - sum(capacities.values(), Fraction(0))
        share = {
            name: capacities.get(name) or rest / len(others) or Fraction(1, 10**9)
            for name in queues
        }
        open_ones = [name for name in queues if queues[name]]
        while open_ones:
            name = min(open_ones, key=lambda name: used[name] / share[name])
            one = queues[name][0]
            allowed = (
                used[name] + one.request <= max_share * len(world.idle)
                or not used[name]
            )
            units = (
                place(free, one.request, world.per, spread=not consolidate)
                if allowed
                else None
            )
            if units is None:
                open_ones.remove(name)
                continue
            answer.units[one.number] = units
            free, used[name] = without(free, units), used[name] + one.request
            queues[name].pop(0)
            open_ones = [name for name in open_ones if queues[name]]
        return answer

    return decide


# --- running the most urgent, with preemption -------------------------------------------------------------------------


def run(world: World, order: list[Playing], *, spreads: Spreads) -> Answer:
    """The walk with preemption through all jobs in play, most urgent first."""
    surplus = without_room(world, order)
    if surplus is None:
        return Answer()
    answer, free, left = Answer(), world.free(), len(world.idle)
    for at, one in enumerate(order):
        if one.units:
            left -= 0 if one.number in answer.units else len(one.units)
            continue
        if one.request > left:
            continue
        spread = spreads(one)
        units = place(free, one.request, world.per, spread=spread)
        if units is None:
            later = [
                other
                for other in order[at:]
                if other.units and other.number not in answer.units
            ]
            first = [other for other in later if other in surplus]
            then = [other for other in later if other not in surplus]
            for other in give_way(
                world, one, [*first[::-1], *then[::-1]], free, spread=spread
            ):
                answer.units[other.number] = []
                free = [*reversed(other.units), *free]
            units = place(free, one.request, world.per, spread=spread)
        if units is not None:
            answer.units[one.number] = units
            free, left = without(free, units), left - one.request
    stopped = [one for one in world.play if answer.units.get(one.number) == []]
    if any(len(one.units) <= len(free) for one in stopped):
        answer.wake_ns = world.now + 1
    return answer


def without_room(world: World, order: list[Playing]) -> list[Playing] | None:
    """Running jobs for which, by number of units, no room is left behind more urgent ones; None: nobody starts."""
    left, starts, surplus = len(world.idle), False, []
    for one in order:
        needed = len(one.units) or one.request
        if needed <= left:
            left, starts = left - needed, starts or not one.units
        elif one.units:
            surplus.append(one)
    return surplus if starts else None


def give_way(
    world: World,
    newcomer: Playing,
    candidates: list[Playing],
    free: list[int],
    *,
    spread: bool,
) -> list[Playing]:
    """Those that give way, the first candidates as far as needed; empty if all of them make no room."""

    def fits(gone: list[Playing]) -> bool:
        more = [unit for one in gone for unit in one.units]
        return (
            place([*free, *more], newcomer.request, world.per, spread=spread)
            is not None
        )

    count = next(
        (n for n in range(1, len(candidates) + 1) if fits(candidates[:n])), None
    )
    if count is None:
        return []
    chosen = candidates[:count]
    for one in reversed(candidates[:count]):  # who was asked last is spared first
        if fits([other for other in chosen if other is not one]):
            chosen.remove(one)
    return chosen


def srtf(*, by: str, consolidate: bool) -> Callable[[World], Answer]:
    def key(one: Playing) -> tuple[Fraction, bool, int]:
        if by == "units":
            return Fraction(one.request), not one.units, 0
        seconds = seconds_left(one)
        if by == "time":
            return seconds, not one.units, 0
        return min(seconds * one.request, ENDLESS), not one.units, one.request

    def decide(world: World) -> Answer:
        return run(
            world, sorted(world.play, key=key), spreads=lambda one: not consolidate
        )

    return decide
