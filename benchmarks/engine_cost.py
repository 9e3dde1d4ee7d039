"""What an event costs the engine: with jobs that wait, jobs that run, units of the machine, and units that move.

    python benchmarks/engine_cost.py [--events 3000] [--many 50000] [--only many] [--policies srtf,tiresias-l] [--floor]

Times are processor times, the minimum of three rounds in which all sizes alternate, so that their ratios are reliable
on a busy machine. The engine's own share is what remains without the time in which the policy was asked. `--floor` also
runs benchmarks/floor.py, which needs the reference data.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from bft.models import Curve, Job, JobTable
from bft.replay import (
    Decision,
    EqualShare,
    NodeTrace,
    Policy,
    Replay,
    Rules,
    State,
    Traits,
)
from bft.replay.engine.ledger import Outcome
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.registry import policy_type
from bft.replay.trace.node_trace import SECOND_NS

ROUNDS = 3


@dataclass
class Keeps:
    """Fills the machine once and then changes nothing: with almost no policy, the engine's cost remains."""

    name: str = field(default="keeps", init=False)
    traits: ClassVar[Traits] = Traits(rigid=True)

    def decide(self, state: State) -> Decision:
        """Fill the machine once."""
        return Fifo().decide(state) if not len(state.jobs.running) else Decision.keep()


@dataclass
class Swaps:
    """Moves all units from one of two jobs to the other at each event."""

    name: str = field(default="swaps", init=False)

    def decide(self, state: State) -> Decision:
        """Give all units to the job without units."""
        first = state.jobs[0].units == 0
        return Decision((state.idle * first, state.idle * (not first)))


def flickering(
    units: int, events: int, *, spare: int = 1, units_per_node: int = 1, apart: int = 1
) -> NodeTrace:
    """A machine of `units` that are always idle, and `spare` nodes that join and leave alternately, one event a second.

    Only every `apart`-th node is ever idle: from 2 on no unit has a neighbour.
    """
    count = units // units_per_node + spare
    nodes = count * apart
    always = np.arange(0, nodes, apart, dtype=np.int32)[: count - spare]
    others = np.arange(0, nodes, apart, dtype=np.int32)[count - spare :]
    joins = [
        always,
        *(others if event % 2 else others[:0] for event in range(1, events)),
    ]
    leaves = [
        others[:0],
        *(others[:0] if event % 2 else others for event in range(1, events)),
    ]
    times = np.arange(events, dtype=np.int64) * SECOND_NS
    return NodeTrace(
        tuple(f"n{node}" for node in range(nodes)),
        times,
        np.concatenate(joins),
        np.concatenate([[0], np.cumsum([len(one) for one in joins])]).astype(np.int64),
        np.concatenate(leaves),
        np.concatenate([[0], np.cumsum([len(one) for one in leaves])]).astype(np.int64),
        0,
        events * SECOND_NS,
        units_per_node=units_per_node,
    )


def jobs(count: int, *, jmax: int = 1, seconds: float = 1e9, ends: int = 0) -> JobTable:
    """`count` jobs of 1 ... `jmax` units, all submitted at once; every `ends`-th of them is short."""
    curve = Curve(np.array([0.0, jmax]), np.array([0.0, jmax]))
    return JobTable(
        tuple(
            Job(
                f"j{k}",
                0,
                1,
                jmax,
                40.0 + k % 7 if ends and k % ends == 0 else seconds,
                0.0,
                0.0,
                curve,
                curve,
            )
            for k in range(count)
        )
    )


class Cost(NamedTuple):
    """Microseconds per event: total, and without the policy."""

    total: float
    engine: float


@dataclass
class Timed:
    """A policy, with the processor time that it took."""

    policy: Policy
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.name, self.traits = self.policy.name, Traits.of(self.policy)

    def decide(self, state: State) -> Decision:
        """As the policy decides."""
        began = time.process_time()
        decision = self.policy.decide(state)
        self.seconds += time.process_time() - began
        return decision


def cost(make: Callable[[], Replay], events: int) -> Cost:
    """The cost of a replay, without its first tenth."""
    replay = make()
    for _ in range(events // 10):
        replay.step()
    gc.collect()
    timed = replay.policy
    asked = timed.seconds if isinstance(timed, Timed) else 0.0
    began, steps = time.process_time(), 0
    while steps < events * 9 // 10 and replay.peek() is not None:
        replay.step()
        steps += 1
    spent = time.process_time() - began
    policy = timed.seconds - asked if isinstance(timed, Timed) else 0.0
    return Cost(spent / steps * 1e6, (spent - policy) / steps * 1e6)


def minima(makes: dict[str, Callable[[], Replay]], events: int) -> dict[str, Cost]:
    """The minimum cost of each over some rounds in which they alternate."""
    costs: dict[str, list[Cost]] = {name: [] for name in makes}
    for _ in range(ROUNDS):
        for name, make in makes.items():
            costs[name].append(cost(make, events))
    return {
        name: Cost(min(c.total for c in of), min(c.engine for c in of))
        for name, of in costs.items()
    }


def table(title: str, costs: dict[str, Cost]) -> None:
    """Print costs, and their ratios to the first."""
    first = next(iter(costs.values()))
    print(
        f"\n{title}\n{'':26}{'us an event':>12}{'ratio':>8}{'engine alone':>14}{'ratio':>8}"
    )
    for name, one in costs.items():
        of = one.total / first.total, one.engine / first.engine
        print(f"{name:26}{one.total:12.1f}{of[0]:8.2f}{one.engine:14.1f}{of[1]:8.2f}")


def replay_of(trace: NodeTrace, jobs: JobTable, policy: Policy) -> Replay:
    """A replay with all jobs in play."""
    return Replay(trace, jobs, Timed(policy), Rules(max_jobs=0))


def waiting(events: int, policies: Sequence[Callable[[], Policy]]) -> None:
    """20 run, others wait."""
    trace = flickering(20, events)
    for policy in policies:
        makes = {
            f"{count} in play": (
                lambda count=count, policy=policy: replay_of(
                    trace, jobs(count), policy()
                )
            )
            for count in (30, 100, 1_000, 10_000)
        }
        table(f"{policy().name}: 20 jobs run, the others wait", minima(makes, events))


def running(events: int) -> None:
    """All run: nothing changes, one job starts or is preempted at each event, or one is rescaled."""
    for policy in (Keeps, Fifo, EqualShare):
        makes = {
            f"{count} running": (
                lambda count=count, policy=policy: replay_of(
                    flickering(count, events), jobs(count + 10), policy()
                )
            )
            for count in (10, 100, 1_000)
        }
        table(f"{policy.__name__}: all but ten run", minima(makes, events))


def machine(events: int) -> None:
    """Nodes of eight units, of which eight are used; placed anew at each event."""
    makes = {
        f"{units} units": (
            lambda units=units: replay_of(
                flickering(units, events, units_per_node=8), jobs(30), Fifo()
            )
        )
        for units in (64, 1_024, 16_384)
    }
    table("Fifo on nodes of eight units", minima(makes, events))


def _moves(
    events: int,
    units: int,
    apart: int,
    answer: multiprocessing.Queue[tuple[float, int]],
) -> None:
    import pandas  # noqa: F401  # not part of what is measured

    trace = flickering(units, events, apart=apart)
    replay = replay_of(trace, jobs(2, jmax=units + 1), Swaps())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = replay.run()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer.put(((after - before) * 1024, _moved(outcome)))


def _moved(outcome: Outcome) -> int:
    held = outcome.allocations
    return int((held["last_unit"] - held["first_unit"] + 1).sum())


def memory(events: int = 2_000, units: int = 1_000) -> None:
    """Bytes for each unit that moves, including the results; in processes of their own."""
    context = multiprocessing.get_context("spawn")
    for apart, which in ((1, "neighbours"), (2, "no unit beside another")):
        answer: multiprocessing.Queue[tuple[float, int]] = context.Queue()
        process = context.Process(target=_moves, args=(events, units, apart, answer))
        process.start()
        spent, moved = answer.get()
        process.join()
        print(
            f"\nMemory, {which}: {spent / moved:.1f} bytes a unit-move at the peak ({moved:,} moves)"
        )


def many(events: int, count: int = 10_000) -> None:
    """Many events with many jobs in play."""
    print(f"\n{count:,} jobs in play, {events:,} events")
    for policy in (Fifo, EqualShare):
        began = time.process_time()
        replay_of(
            flickering(500, events, spare=5), jobs(count, jmax=25, ends=3), policy()
        ).run()
        seconds = time.process_time() - began
        print(
            f"{policy.__name__:26}{seconds:10.1f} s{seconds / events * 1e6:10.1f} us an event",
            end="",
        )
        print(
            f"{seconds / events * 1e6 / 60:10.1f} minutes for a million, {_peak_mib():,.0f} MiB at the peak"
        )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--events", type=int, default=3_000, help="events of each measurement"
    )
    parser.add_argument(
        "--many", type=int, default=50_000, help="events of the long replay; 0: none"
    )
    parser.add_argument(
        "--only",
        choices=("waiting", "running", "machine", "memory", "many"),
        help="this part alone",
    )
    parser.add_argument(
        "--policies", metavar="NAME,...", help="policies of the part `waiting`, by name"
    )
    parser.add_argument(
        "--floor", action="store_true", help="also compare with the floor program"
    )
    options = parser.parse_args()
    named = options.policies.split(",") if options.policies else ()
    policies = tuple(policy_type(name).factory for name in named) or (
        Keeps,
        Fifo,
        EqualShare,
    )
    parts: dict[str, Callable[[], None]] = {
        "waiting": lambda: waiting(options.events, policies),
        "running": lambda: running(options.events),
        "machine": lambda: machine(options.events),
        "memory": memory,
        "many": lambda: many(options.many),
    }
    for name, part in parts.items():
        if options.only in (None, name) and (name != "many" or options.many):
            part()
    if options.floor:
        import floor

        floor.main()


if __name__ == "__main__":
    main()
