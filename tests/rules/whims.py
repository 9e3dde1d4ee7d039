"""Policies without sense, which shake every transition out; each also as a plain program on a `World`."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
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

    def decide(self, state: State) -> Decision:
        jobs = [
            (view.job.name, view.units, allowed_sizes(view.job)) for view in state.jobs
        ]
        return Decision(tuple(whims(self.seed, state.time_ns, state.idle, jobs)))

    def plain(self, world: World) -> Answer:
        jobs = [(one.job.name, len(one.units), one.sizes) for one in world.play]
        counts = whims(self.seed, world.now, len(world.idle), jobs)
        return Answer(
            counts={one.number: n for one, n in zip(world.play, counts, strict=True)}
        )


@dataclass
class WhimsicalRigid(Whimsical):
    """Waiting jobs start on any size, running ones go on or stop."""

    name: str = "whimsical-rigid"
    traits: ClassVar[Traits] = Traits(rigid=True)

    def decide(self, state: State) -> Decision:
        jobs = [
            (v.job.name, v.units, [v.units] if v.units else allowed_sizes(v.job))
            for v in state.jobs
        ]
        return Decision(tuple(whims(self.seed, state.time_ns, state.idle, jobs)))

    def plain(self, world: World) -> Answer:
        jobs = [
            (one.job.name, len(one.units), [len(one.units)] if one.units else one.sizes)
            for one in world.play
        ]
        counts = whims(self.seed, world.now, len(world.idle), jobs)
        return Answer(
            counts={one.number: n for one, n in zip(world.play, counts, strict=True)}
        )


@dataclass
class WhimsicalMover(Whimsical):
    """Units by name, with migrations."""

    name: str = "whimsical-mover"
    traits: ClassVar[Traits] = Traits(migrates=True)

    def decide(self, state: State) -> Decision:
        per = state.machine.units_per_node
        idle = [
            unit
            for unit in range(state.machine.nodes * per)
            if state.machine.is_idle(unit)
        ]
        jobs = [
            (view.job.name, view.units, allowed_sizes(view.job)) for view in state.jobs
        ]
        return Decision.placed(
            dict(enumerate(whims_of_units(self.seed, state.time_ns, idle, jobs)))
        )

    def plain(self, world: World) -> Answer:
        jobs = [(one.job.name, len(one.units), one.sizes) for one in world.play]
        units = whims_of_units(self.seed, world.now, sorted(world.idle), jobs)
        return Answer(
            units={one.number: of for one, of in zip(world.play, units, strict=True)}
        )
