"""The minimum cost of restarts on the real log under any policy: the account in docs/objectives.md.

    python benchmarks/restarts.py [--restart 180] [--costs 10]

A fragment is the time that a node is idle without a break. Printed are what starting a job of one node on each costs
and leaves (first starts, which cost nothing, are neglected), what an oracle of the fragments' lengths would gain by
leaving short ones idle, and what jobs of several nodes would save.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from beyond import World, inputs_of

from bft.models import JobTable
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

SIZES = (2, 3, 4, 6, 8, 16, 32)
OLD_S = 1800.0
AGES_S = (0.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1800.0)


def main() -> None:
    """Print the account."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--restart",
        type=float,
        default=180.0,
        metavar="S",
        help="seconds that a restart takes",
    )
    parser.add_argument(
        "--costs", type=float, default=10.0, metavar="F", help="factor on Tcup and Tcdw"
    )
    given = parser.parse_args()
    pool = inputs_of(World(costs=given.costs)).pools[0]
    bulks = lengths_by_birth(pool.trace)
    length = np.concatenate(bulks)
    tcdw = float(np.mean([job.tcdw_s for job in pool.jobs]))
    tcup = float(np.mean([job.tcup_s for job in pool.jobs]))
    total = float(length.sum())
    print(
        f"{len(length)} fragments, mean {length.mean():.0f} s, median {np.median(length):.0f} s; Tcdw {tcdw:.0f} s"
    )
    left = np.maximum(length - given.restart, 0.0) - tcdw
    print(
        f"a start each costs {np.minimum(length, given.restart).sum() / total:.1%} of the idle node-time,"
    )
    print(
        f"a preemption each {tcdw * len(length) / total:.1%}; left {left.sum() / total:.1%}: ",
        end="",
    )
    print(
        f"{samples(pool.jobs, left.sum()) / 1e9:.1f} billion samples, fastest models first;"
    )
    paying = float(np.maximum(left, 0.0).sum())
    print(
        f"with an oracle that leaves idle what does not pay {paying / total:.1%}: ",
        end="",
    )
    print(f"{samples(pool.jobs, paying) / 1e9:.1f} billion")
    print(
        "\nto wait a second longer before a start costs the part of it that would be used, and saves what is lost if"
    )
    print("the node leaves in it, both of a second's work:")
    for age in AGES_S:
        staying = float((length > age + given.restart).sum() / (length > age).sum())
        print(
            f"  idle for {age:4.0f} s: costs {staying:.2f}, saves {tcdw * hazard(length, age, age + 60.0):.2f}"
        )
    old = hazard(length, OLD_S)
    print(
        f"\na node that has been idle for {OLD_S:.0f} s is taken back at a rate of 1 in {1 / old:.0f} s"
    )
    print(
        "what a job on such a node saves by taking others that turned idle together, s for each of them: restarts,"
    )
    print(
        "less its growth, the preemptions more that it pays for, and what its model loses by scaling"
    )
    models = scaling(pool.jobs)
    print(
        f"{'nodes':>5} {'preempted':>9}  " + "  ".join(f"{name:>10}" for name in models)
    )
    for size in SIZES:
        hits, seconds = exposure(bulks, size)
        # Each preemption is charged by the rate before: its own node's by that of all, theirs by one more than them.
        saved = given.restart - tcup / size - tcdw * (hits - 1 + old * seconds)
        row = (
            f"{saved - seconds * (1 - (rates[size + 1] / rates[1] - 1) / size):10.0f}"
            for rates in models.values()
        )
        print(f"{size:5} {hits:9.2f}  " + "  ".join(row))


def lengths_by_birth(trace: NodeTrace) -> list[np.ndarray]:
    """The lengths in seconds of the fragments that begin at an instant, by node; an array for each such instant."""
    begun: dict[int, int] = {}
    lengths: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for event, now in enumerate(trace.times.tolist()):
        for node in trace.leaves(event).tolist():
            began = begun.pop(node)
            lengths[began][node] = (now - began) / SECOND_NS
        begun.update(dict.fromkeys(trace.joins(event).tolist(), now))
    for node, began in begun.items():
        lengths[began][node] = (trace.end - began) / SECOND_NS
    return [np.array([of[node] for node in sorted(of)]) for of in lengths.values()]


def exposure(bulks: list[np.ndarray], size: int) -> tuple[float, float]:
    """Number of preemptions per node that a job on `size` nodes, idle from one instant, pays for; their mean length.

    A preemption costs by the rate before, and so counts for every node that the job still has.
    """
    paid, nodes, seconds = 0, 0, 0.0
    for lengths in bulks:
        for first in range(0, len(lengths) - size + 1, size):
            _, together = np.unique(lengths[first : first + size], return_counts=True)
            paid += int(np.cumsum(together[::-1]).sum())
            nodes += size
            seconds += float(lengths[first : first + size].sum())
    return paid / nodes, seconds / nodes


def hazard(lengths: np.ndarray, age: float, until: float = np.inf) -> float:
    """How often a node is taken back that has been idle for longer than `age`, but not for `until`, 1/s."""
    older = lengths[lengths > age]
    return float((older <= until).sum() / (np.minimum(older, until) - age).sum())


def scaling(jobs: JobTable) -> dict[str, np.ndarray]:
    """The rates of one job of each model, fastest on one node first: samples/s at 0 ... Jmax nodes."""
    rates = {job.name.partition("-")[2]: job.rates for job in jobs}
    return dict(sorted(rates.items(), key=lambda item: -item[1][1]))


def samples(jobs: JobTable, seconds: float) -> float:
    """Samples that jobs of one node each do in a number of useful node-seconds, the fastest models first."""
    done = 0.0
    for job in sorted(jobs, key=lambda job: -job.rates[1]):
        spent = min(seconds, job.pmax / job.rates[1])
        done, seconds = done + spent * job.rates[1], seconds - spent
    return done


if __name__ == "__main__":
    main()
