"""Elastic policies as tests/rules/README.md states them: equal-share, optimus, sia."""

from collections.abc import Callable, Iterator
from fractions import Fraction

from rules.world import SECOND, Answer, Playing, World, by_node, rate_of

# Seconds of a job on units on which it makes no progress.
ENDLESS = Fraction(10**30)


def at_most(one: Playing, units: int) -> int:
    """The largest size up to a number of units, 0 where there is none."""
    return max((n for n in one.sizes if n <= units), default=0)


def equal_share(world: World) -> Answer:
    share, answer = len(world.idle) // len(world.play), Answer()
    for one in world.play:
        answer.counts[one.number] = at_most(one, share)
    left = len(world.idle) - sum(answer.counts.values())
    for one in world.play:
        more = (
            at_most(one, answer.counts[one.number] + left) - answer.counts[one.number]
        )
        answer.counts[one.number] += more
        left -= more
    return answer


def is_round(world: World, interval_s: int) -> bool:
    return not interval_s or world.now % (interval_s * SECOND) == 0


def next_round(world: World, interval_s: int) -> int | None:
    return (
        (world.now // (interval_s * SECOND) + 1) * interval_s * SECOND
        if interval_s
        else None
    )


def keep_what_runs(world: World, interval_s: int) -> Answer:
    """Between rounds: a job with too few units gives back what it cannot run on."""
    answer = Answer(wake_ns=next_round(world, interval_s))
    for one in world.play:
        if len(one.units) not in (0, *one.sizes):
            answer.units[one.number] = one.units[: at_most(one, len(one.units))]
    return answer


def optimus(*, interval_s: int) -> Callable[[World], Answer]:
    def seconds(one: Playing, units: int) -> Fraction:
        rate = rate_of(one.job, units)
        return (Fraction(one.job.pmax) - one.done) / rate if rate else ENDLESS

    def decide(world: World) -> Answer:
        if not is_round(world, interval_s):
            return keep_what_runs(world, interval_s)
        left, counts = (
            len(world.idle),
            dict.fromkeys((one.number for one in world.play), 0),
        )
        for one in sorted(world.play, key=lambda one: one.job.jmin):
            if one.sizes[0] <= left:
                counts[one.number] = one.sizes[0]
                left -= one.sizes[0]
        while True:
            offers = []
            for at, one in enumerate(world.play):
                after = next((n for n in one.sizes if n > counts[one.number]), None)
                if (
                    not counts[one.number]
                    or after is None
                    or after - counts[one.number] > left
                ):
                    continue
                before, then = seconds(one, counts[one.number]), seconds(one, after)
                if then < before:
                    saved = (
                        before
                        if before == ENDLESS
                        else (before - then) / (after - counts[one.number])
                    )
                    offers.append((-saved, at, one.number, after))
            if not offers:
                break
            _, _, number, after = min(offers)
            left -= after - counts[number]
            counts[number] = after
        answer = Answer(wake_ns=next_round(world, interval_s))
        if world.per == 1:
            answer.counts = counts
            return answer
        changed = [one for one in world.play if counts[one.number] != len(one.units)]
        free = unheld(world, changed)
        for one in sorted(changed, key=lambda one: counts[one.number]):
            answer.units[one.number] = emptiest(free, counts[one.number], world.per)
            free = [unit for unit in free if unit not in answer.units[one.number]]
        return answer

    return decide


def unheld(world: World, changed: list[Playing]) -> list[int]:
    """The units that are free when jobs whose number changes give up all of theirs."""
    kept = {unit for one in world.play if one not in changed for unit in one.units}
    return [unit for unit in world.idle if unit not in kept]


def emptiest(free: list[int], count: int, per: int) -> list[int]:
    """Units of the nodes with most free units, the first ones of these."""
    room = by_node(free, per)
    order = sorted(room, key=lambda node: (-len(room[node]), node))
    return [unit for node in order for unit in room[node]][:count]


def tightest_or_emptiest(free: list[int], count: int, per: int) -> list[int]:
    """Units of the node with the fewest free units that has enough; else of the emptiest nodes."""
    room = by_node(free, per)
    able = [node for node in room if count and len(room[node]) >= count]
    if not able:
        return emptiest(free, count, per)
    return room[min(able, key=lambda node: (len(room[node]), node))][:count]


class Sia:
    """The utilities of sia; the best sum of them by enumeration."""

    def __init__(
        self,
        *,
        interval_s: int,
        power: float,
        no_allocation: float,
        growth: float,
        delay_s: float,
    ) -> None:
        self.interval_s, self.power, self.no_allocation = (
            interval_s,
            power,
            no_allocation,
        )
        self.growth, self.delay_s = growth, delay_s
        self.largest: dict[int, int] = {}  # most units that a job had at a decision

    def __call__(self, world: World) -> Answer:
        for one in world.play:
            self.largest[one.number] = max(
                self.largest.get(one.number, 0), len(one.units)
            )
        if not is_round(world, self.interval_s):
            return keep_what_runs(world, self.interval_s)
        options = [self.utilities(world, one) for one in world.play]
        best = max(
            allocations(options, len(world.idle)),
            key=lambda found: self.rank(world, options, found),
        )
        counts = {one.number: n for one, n in zip(world.play, best, strict=True)}
        answer = Answer(wake_ns=next_round(world, self.interval_s))
        if world.per == 1:
            answer.counts = counts
            return answer
        changed = [one for one in world.play if counts[one.number] != len(one.units)]
        free = unheld(world, changed)
        for one in sorted(changed, key=lambda one: -counts[one.number]):
            answer.units[one.number] = tightest_or_emptiest(
                free, counts[one.number], world.per
            )
            free = [unit for unit in free if unit not in answer.units[one.number]]
        return answer

    def rank(
        self, world: World, options: list[dict[int, float]], found: list[int]
    ) -> tuple[float, int, list[int]]:
        """The largest sum; then the fewest changes; then the last job has fewest units, and so on."""
        total = sum(offer[n] for offer, n in zip(options, found, strict=True))
        changed = sum(
            n != len(one.units) for one, n in zip(world.play, found, strict=True)
        )
        return round(total, 9), -changed, [-n for n in reversed(found)]

    def utilities(self, world: World, one: Playing) -> dict[int, float]:
        """Worth of each configuration that it may get, by number of units."""
        regular = [
            n
            for n in one.sizes
            if (n & (n - 1) == 0 if n <= world.per else n % world.per == 0)
        ]
        sizes = [n for n in regular or one.sizes if rate_of(one.job, n) > 0]
        if not sizes:
            return {0: 0.0}
        held = len(one.units)
        keeps = held if held in one.sizes and rate_of(one.job, held) > 0 else 0
        most = max(sizes[0], self.growth * self.largest[one.number])
        least = min(float(rate_of(one.job, n)) for n in sizes if n <= most)
        worth = {0: 0.0}
        for n in {*sizes, keeps} - {0}:
            r = 1.0 if not keeps or n == keeps else self.share_of_life(world, one)
            g = sizes[0] * float(rate_of(one.job, n)) / least
            if (n <= most or n == keeps) and r > 0:
                utility = (r * g) ** self.power
                value = self.no_allocation + (utility if self.power > 0 else -utility)
                worth[n] = one.job.weight * value
        return worth

    def share_of_life(self, world: World, one: Playing) -> float:
        """r: the part of a job's age that restarts leave, one more included."""
        age = (world.now - one.job.tsub_ns) / SECOND
        restarts = max(one.starts - 1, 0) + one.rescales
        return (
            max(age - self.delay_s * restarts, 0.0) / (age + self.delay_s)
            if age + self.delay_s
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
