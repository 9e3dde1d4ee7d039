"""Elastic policies as tests/rules/README.md states them: equal-share, optimus, sia."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from rules.world import (
    ENDLESS,
    SECOND,
    Answer,
    Playing,
    World,
    by_node,
    emptiest,
    rate_of,
    tightest,
)

# Units for a number of them from those free on each node; None where these do not suffice.
Places = Callable[[dict[int, list[int]], int], list[int]]


def at_most(one: Playing, units: int) -> int:
    """The largest size up to a number of units, 0 where there is none."""
    return max((n for n in one.sizes if n <= units), default=0)


def equal_share(world: World) -> Answer:
    share = len(world.idle) // len(world.play)
    counts = {one.number: at_most(one, share) for one in world.play}
    for one in world.play:
        left = len(world.idle) - sum(counts.values())
        counts[one.number] = at_most(one, counts[one.number] + left)
    return Answer(counts)


# --- policies with rounds ---------------------------------------------------------------------------------------------


def is_round(world: World, interval_s: int) -> bool:
    return not interval_s or world.now % (interval_s * SECOND) == 0


def next_round(world: World, interval_s: int) -> int | None:
    interval = interval_s * SECOND
    return (world.now // interval + 1) * interval if interval else None


def keep_what_runs(world: World, interval_s: int) -> Answer:
    """Between rounds: a job with too few units gives back what it cannot run on."""
    answer = Answer(wake_ns=next_round(world, interval_s))
    for one in world.play:
        if len(one.units) not in (0, *one.sizes):
            answer.units[one.number] = one.units[: at_most(one, len(one.units))]
    return answer


def placed(
    world: World, interval_s: int, counts: dict[int, int], places: Places, sign: int
) -> Answer:
    """Counts; on nodes of several units places for those whose number changes, which give up all of theirs before.

    `sign`: 1 where the smallest are placed first, -1 where the largest are.
    """
    answer = Answer(wake_ns=next_round(world, interval_s))
    if world.per == 1:
        answer.counts = counts
        return answer
    changed = [one for one in world.play if counts[one.number] != len(one.units)]
    kept = {unit for one in world.play if one not in changed for unit in one.units}
    free = [unit for unit in world.idle if unit not in kept]
    for one in sorted(changed, key=lambda one: sign * counts[one.number]):
        units = places(by_node(free, world.per), counts[one.number])
        answer.units[one.number] = units
        free = [unit for unit in free if unit not in units]
    return answer


def on_the_emptiest(room: dict[int, list[int]], count: int) -> list[int]:
    """Units of the nodes with most free units, the first ones of these."""
    return [unit for node in emptiest(room) for unit in room[node]][:count]


def on_the_tightest(room: dict[int, list[int]], count: int) -> list[int]:
    """Units of the node with the fewest free units that has enough; else of the emptiest nodes."""
    node = tightest(room, count)
    return on_the_emptiest(room, count) if node is None else room[node][:count]


def optimus(*, interval_s: int) -> Callable[[World], Answer]:
    def offers(
        world: World, counts: dict[int, int], left: int
    ) -> Iterator[tuple[Fraction, int, int, int]]:
        """What each job saves by its next size, a unit; negative, so that the least is the best."""
        for at, one in enumerate(world.play):
            now = counts[one.number]
            after = next((n for n in one.sizes if n > now), now)
            before, then = one.seconds(now), one.seconds(after)
            if 0 < now < after <= now + left and then < before:
                saved = (before - then) / (after - now)
                yield -before if before == ENDLESS else -saved, at, one.number, after

    def decide(world: World) -> Answer:
        if not is_round(world, interval_s):
            return keep_what_runs(world, interval_s)
        left, counts = len(world.idle), {one.number: 0 for one in world.play}
        for one in sorted(world.play, key=lambda one: one.job.jmin):
            if one.sizes[0] <= left:
                counts[one.number] = one.sizes[0]
                left -= one.sizes[0]
        while best := min(offers(world, counts, left), default=None):
            _, _, number, after = best
            left -= after - counts[number]
            counts[number] = after
        return placed(world, interval_s, counts, on_the_emptiest, 1)

    return decide


@dataclass
class Sia:
    """The utilities of sia; the best sum of them by enumeration."""

    interval_s: int
    power: float
    no_allocation: float
    growth: float
    delay_s: float
    # Most units that a job had at a decision.
    largest: dict[int, int] = field(default_factory=dict)

    def __call__(self, world: World) -> Answer:
        for one in world.play:
            most = max(self.largest.get(one.number, 0), len(one.units))
            self.largest[one.number] = most
        if not is_round(world, self.interval_s):
            return keep_what_runs(world, self.interval_s)
        options = [self.utilities(world, one) for one in world.play]

        def rank(found: list[int]) -> tuple[float, int, list[int]]:
            """The largest sum; then the fewest changes; then the last job has fewest units, and so on."""
            total = sum(offer[n] for offer, n in zip(options, found, strict=True))
            now = (len(one.units) for one in world.play)
            changed = sum(n != held for n, held in zip(found, now, strict=True))
            return round(total, 9), -changed, [-n for n in reversed(found)]

        best = max(allocations(options, len(world.idle)), key=rank)
        counts = {one.number: n for one, n in zip(world.play, best, strict=True)}
        return placed(world, self.interval_s, counts, on_the_tightest, -1)

    def utilities(self, world: World, one: Playing) -> dict[int, float]:
        """Worth of each configuration that it may get, by number of units."""
        regular = [
            n
            for n in one.sizes
            if (n & (n - 1) == 0 if n <= world.per else n % world.per == 0)
        ]
        rates = {n: float(rate_of(one.job, n)) for n in one.sizes}
        sizes = [n for n in regular or one.sizes if rates[n] > 0]
        if not sizes:
            return {0: 0.0}
        keeps = len(one.units) if rates.get(len(one.units), 0) > 0 else 0
        most = max(sizes[0], self.growth * self.largest[one.number])
        least = min(rates[n] for n in sizes if n <= most)
        worth = {0: 0.0}
        for n in {*sizes, keeps} - {0}:
            r = 1.0 if not keeps or n == keeps else self.share_of_life(world, one)
            g = sizes[0] * rates[n] / least
            if (n <= most or n == keeps) and r > 0:
                utility = (r * g) ** self.power
                value = self.no_allocation + (utility if self.power > 0 else -utility)
                worth[n] = one.job.weight * value
        return worth

    def share_of_life(self, world: World, one: Playing) -> float:
        """r: the part of a job's age that restarts leave, one more included."""
        age = (world.now - one.job.tsub_ns) / SECOND
        times = one.times
        restarts = max(times["starts"] - 1, 0) + times["rescales"] - times["stops"]
        with_another = age + self.delay_s
        return (
            max(age - self.delay_s * restarts, 0.0) / with_another
            if with_another
            else 0.0
        )


def allocations(options: list[dict[int, float]], units: int) -> Iterator[list[int]]:
    """All choices of a configuration for each job that fit."""
    if not options:
        yield []
        return
    for n in options[0]:
        if n <= units:
            for rest in allocations(options[1:], units - n):
                yield [n, *rest]
