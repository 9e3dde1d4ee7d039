"""Tiresias as tests/rules/README.md states it."""

from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from rules.queues import run
from rules.world import SECOND, Answer, Playing, World

# Lacking unit-seconds of service, or seconds of waiting, that count as none.
DUE = Fraction(1, 10**6)


@dataclass
class Counted:
    """What counts for a job since its submission or last promotion."""

    queue: int = 0
    service: Fraction = Fraction(0)  # what it had then
    executed: Fraction = Fraction(0)
    ran_ns: int | None = None  # first start since then


@dataclass
class Tiresias:
    limits: tuple[int, ...]
    promote: int = 0
    placement: str = "all"
    skew_threshold: float = 0.0
    interval_s: int = 0
    gittins_delta: int | None = None  # tiresias-g
    samples: list[Fraction] = field(default_factory=list)
    line: list[int] = field(default_factory=list)  # all jobs in the order within queues
    counted: dict[int, Counted] = field(default_factory=dict)

    def __call__(self, world: World) -> Answer:
        self.samples = sorted([*self.samples, *(one.service for one in world.finished)])
        if self.interval_s and world.now % (self.interval_s * SECOND):
            return Answer(wake_ns=self.round_after(world.now))
        jobs = {one.number: one for one in world.play}
        self.line = [n for n in self.line if n in jobs] + [
            n for n in jobs if n not in self.line
        ]
        for number, one in jobs.items():
            self.counted.setdefault(number, Counted())
            self.sort_into_queue(world, one)
        key = (
            (lambda n: self.counted[n].queue)
            if self.gittins_delta is None
            else (lambda n: self.by_index(jobs[n]))
        )
        self.line.sort(key=key)
        answer = run(world, [jobs[n] for n in self.line], spreads=self.spreads)
        after = {n: len(answer.units.get(n, one.units)) for n, one in jobs.items()}
        self.line.sort(key=lambda n: (self.counted[n].queue, not after[n]))
        for n, count in after.items():
            if count and self.counted[n].ran_ns is None:
                self.counted[n].ran_ns = world.now
        answer.wake_ns = self.wake(world, answer.wake_ns, jobs, after)
        return answer

    def service(self, one: Playing) -> Fraction:
        return one.service - self.counted[one.number].service

    def sort_into_queue(self, world: World, one: Playing) -> None:
        counted = self.counted[one.number]
        if not one.times["starts"]:
            return
        while (
            counted.queue < len(self.limits)
            and self.service(one) >= self.limits[counted.queue] - DUE
        ):
            self.move(one.number, counted.queue + 1)
        left = self.promotion(world, one)
        if not one.units and left is not None and left <= DUE:
            self.move(one.number, 0)
            self.counted[one.number] = Counted(0, one.service, one.executed)

    def move(self, number: int, queue: int) -> None:
        """To the end of another queue."""
        self.line.remove(number)
        self.line.append(number)
        self.counted[number].queue = queue

    def promotion(self, world: World, one: Playing) -> Fraction | None:
        """Seconds until a waiting job has waited `promote` times as long as it ran; None: it is not promoted."""
        counted = self.counted[one.number]
        executed = one.executed - counted.executed
        if (
            not self.promote
            or not counted.queue
            or not executed
            or counted.ran_ns is None
        ):
            return None
        waited = Fraction(world.now - counted.ran_ns, SECOND) - executed
        return self.promote * executed - waited

    def wake(
        self,
        world: World,
        wake: int | None,
        jobs: dict[int, Playing],
        after: dict[int, int],
    ) -> int | None:
        waits = []
        for n, one in jobs.items():
            if after[n] and self.counted[n].queue < len(self.limits):
                waits.append(
                    (self.limits[self.counted[n].queue] - self.service(one)) / after[n]
                )
            left = None if after[n] else self.promotion(world, one)
            waits += [] if left is None else [left]
        if wake is None and waits:
            wake = world.now + max(1, ceil(min(waits) * SECOND))
        return (
            self.round_after(wake - 1) if wake is not None and self.interval_s else wake
        )

    def round_after(self, now: int) -> int:
        return (now // (self.interval_s * SECOND) + 1) * self.interval_s * SECOND

    def spreads(self, one: Playing) -> bool:
        if self.placement == "skewed":
            return one.job.skew is None or one.job.skew <= self.skew_threshold
        return self.placement == "none"

    def by_index(self, one: Playing) -> tuple[int, Fraction, int]:
        """Queue, largest Gittins index, earliest submission."""
        d, n, delta = self.samples, len(self.samples), self.gittins_delta or 0
        i = bisect_right(d, self.service(one))
        e = bisect_right(d, self.service(one) + delta)
        index = Fraction(0)
        if i < n:
            index = Fraction(e - i, n - i) / (
                (sum(d[i:e], Fraction(0)) + delta * (n - e)) / (n - i)
            )
        return self.counted[one.number].queue, -index, one.job.tsub_ns
