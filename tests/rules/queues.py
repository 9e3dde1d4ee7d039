"""Rigid policies as tests/rules/README.md states them: fifo, sjf, qssf, srtf, yarn-cs; and the two walks."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from rules.world import ENDLESS, Answer, Playing, World, consolidated, neighbours

Spreads = Callable[[Playing], bool]


def place(free: list[int], count: int, per: int, *, spread: bool) -> list[int] | None:
    """Units for a rigid job; `free` in the order in which units of one-unit nodes are taken. None: it does not fit."""
    if count > len(free):
        return None
    if per == 1:
        return free[:count]
    if spread:
        return neighbours(free, count, (), per)
    return consolidated(free, count, per)


def without(free: list[int], taken: list[int]) -> list[int]:
    return [unit for unit in free if unit not in taken]


# --- starting waiting jobs, running ones are left alone ---------------------------------------------------------------


def in_order_of(key: Callable[[Playing], Fraction]) -> Callable[..., Any]:
    """Waiting jobs start in this order, those admitted first of equal ones; who does not fit is skipped, or blocks."""

    def made(*, backfill: bool, consolidate: bool) -> Callable[[World], Answer]:
        def decide(world: World) -> Answer:
            free, answer = world.free(), Answer()
            for one in sorted(world.play, key=key):
                if one.units:
                    continue
                units = place(free, one.request, world.per, spread=not consolidate)
                if units is not None:
                    answer.units[one.number] = units
                    free = without(free, units)
                elif not backfill:
                    break
            return answer

        return decide

    return made


fifo = in_order_of(lambda one: Fraction(0))
sjf = in_order_of(lambda one: Playing(one.number, one.job).seconds(one.request))
qssf = in_order_of(lambda one: Fraction(one.job.extra["estimate_s"]) * one.request)


def yarn_cs(
    *, by: str, capacities: dict[str, Fraction], max_share: Fraction, consolidate: bool
) -> Callable[[World], Answer]:
    def decide(world: World) -> Answer:
        free, answer = world.free(), Answer()
        # In the order of their first jobs in play.
        queues: dict[str, list[Playing]] = {}
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
            one, units = queues[name][0], None
            after = used[name] + one.request
            if not used[name] or after <= max_share * len(world.idle):
                units = place(free, one.request, world.per, spread=not consolidate)
            if units is None:
                open_ones.remove(name)
                continue
            answer.units[one.number] = units
            free, used[name] = without(free, units), after
            queues[name].pop(0)
            open_ones = [name for name in open_ones if queues[name]]
        return answer

    return decide


# --- running the most urgent, with preemption -------------------------------------------------------------------------


def run(world: World, order: list[Playing], *, spreads: Spreads) -> Answer:
    """The walk with preemption through all jobs in play, most urgent first."""
    surplus, answer = without_room(world, order), Answer()
    if surplus is None:
        return answer
    free, left = world.free(), len(world.idle)
    for at, one in enumerate(order):
        if one.units:
            left -= 0 if one.number in answer.units else len(one.units)
        if one.units or one.request > left:
            continue
        spread = spreads(one)
        units = place(free, one.request, world.per, spread=spread)
        if units is None:
            running = (other for other in order[:at:-1] if other.units)
            later = [each for each in running if each.number not in answer.units]
            later.sort(key=lambda other: other not in surplus)
            for other in give_way(world, one, later, free, spread=spread):
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
        found = place([*free, *more], newcomer.request, world.per, spread=spread)
        return found is not None

    counts = range(1, len(candidates) + 1)
    chosen = candidates[: next((n for n in counts if fits(candidates[:n])), 0)]
    for one in chosen[::-1]:  # who was asked last is spared first
        if fits([other for other in chosen if other is not one]):
            chosen.remove(one)
    return chosen


def srtf(*, by: str, consolidate: bool) -> Callable[[World], Answer]:
    def key(one: Playing) -> tuple[Fraction, bool, int]:
        if by == "units":
            return Fraction(one.request), not one.units, 0
        seconds = one.seconds(one.request)
        if by == "time":
            return seconds, not one.units, 0
        return min(seconds * one.request, ENDLESS), not one.units, one.request

    def decide(world: World) -> Answer:
        order = sorted(world.play, key=key)
        return run(world, order, spreads=lambda one: not consolidate)

    return decide
