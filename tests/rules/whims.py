"""Policies without sense, which shake every transition out; each also as a plain program on a `World`."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from rules.world import Answer, World

from bft.models import Job
from bft.replay import Decision, State, Traits


def whims(
    seed: int, now: int, idle: int, jobs: Iterable[tuple[str, int, list[int]]]
) -> list[int]:
    """A number of units for each job (name, units, sizes), always the same one."""
    left, counts = idle, []
    for name, units, allowed in jobs:
        dice = zlib.crc32(f"{seed} {now} {idle} {name} {units} {left}".encode())
        able = [0, *(n for n in allowed if n <= left)]
        counts.append(
            units if units in able and dice % 3 == 0 else able[dice // 3 % len(able)]
        )
        left -= counts[-1]
    return counts


def whims_of_units(
    seed: int, now: int, idle: list[int], jobs: Iterable[tuple[str, int, list[int]]]
) -> list[list[int]]:
    """The units of each job, drawn from all idle ones."""
    order = sorted(idle, key=lambda unit: zlib.crc32(f"{seed} {now} {unit}".encode()))
    chosen = []
    for count in whims(seed, now, len(idle), jobs):
        chosen.append(order[:count])
        order = order[count:]
    return chosen


def allowed_sizes(job: Job) -> list[int]:
    return list(job.sizes or range(max(job.jmin, 1), job.jmax + 1))


@dataclass
class Whimsical:
    """Counts; the engine chooses units."""

    seed: int
    name: str = "whimsical"
    traits: ClassVar[Traits] = Traits()

    def sizes(self, units: int, allowed: list[int]) -> list[int]:
        """Numbers of units that a job with some may get."""
        return allowed

    def seen(self, state: State) -> Iterator[tuple[str, int, list[int]]]:
        for view in state.jobs:
            allowed = self.sizes(view.units, allowed_sizes(view.job))
            yield view.job.name, view.units, allowed

    def told(self, world: World) -> Iterator[tuple[str, int, list[int]]]:
        for one in world.play:
            yield one.job.name, len(one.units), self.sizes(len(one.units), one.sizes)

    def decide(self, state: State) -> Decision:
        found = whims(self.seed, state.time_ns, state.idle, self.seen(state))
        return Decision(tuple(found))

    def plain(self, world: World) -> Answer:
        counts = whims(self.seed, world.now, len(world.idle), self.told(world))
        names = [one.number for one in world.play]
        return Answer(counts=dict(zip(names, counts, strict=True)))


@dataclass
class WhimsicalRigid(Whimsical):
    """Waiting jobs start on any size, running ones go on or stop."""

    name: str = "whimsical-rigid"
    traits: ClassVar[Traits] = Traits(rigid=True)

    def sizes(self, units: int, allowed: list[int]) -> list[int]:
        return [units] if units else allowed


@dataclass
class WhimsicalMover(Whimsical):
    """Units by name, with migrations."""

    name: str = "whimsical-mover"
    traits: ClassVar[Traits] = Traits(migrates=True)

    def decide(self, state: State) -> Decision:
        machine = state.machine
        idle = [*filter(machine.is_idle, range(len(machine)))]
        found = whims_of_units(self.seed, state.time_ns, idle, self.seen(state))
        return Decision.placed(dict(enumerate(found)))

    def plain(self, world: World) -> Answer:
        idle = sorted(world.idle)
        units = whims_of_units(self.seed, world.now, idle, self.told(world))
        names = [one.number for one in world.play]
        return Answer(units=dict(zip(names, units, strict=True)))
