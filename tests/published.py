"""Recorded decisions as problems: those of the reference data; where these are missing, decisions of our own."""

import gzip
import itertools
import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from reference_data import folder

from bft.milp import Job, Problem

Entry = dict[str, Any]
# How many decisions of our own stand in for a list of recorded ones.
OURS = 160


@cache
def decisions(name: str) -> list[Entry]:
    """`instances` or `corner-cases`: what was decided, and its optima."""
    place = folder() / "bftrainer" / "milp" / f"{name}.jsonl.gz"
    if not place.is_file():
        return drawn(name)
    return [
        json.loads(line) for line in gzip.decompress(place.read_bytes()).splitlines()
    ]


def some_of(entries: list[Entry], number: int) -> list[Entry]:
    """About so many of them, or all, evenly."""
    return entries[:: max(1, len(entries) // number)]


def drawn(name: str) -> list[Entry]:
    """Decisions of our own, as the recorded ones are written; their optima are those of all allocations one by one."""
    chance = random.Random(name)  # noqa: S311  # the same on every machine
    return [_one(chance, corner=name == "corner-cases") for _ in range(OURS)]


def _one(chance: random.Random, *, corner: bool) -> Entry:
    """A decision among few jobs; in a corner some need more nodes than there are."""
    nodes, number = chance.randint(3, 10), chance.randint(1, 3)
    entry: Entry = {
        "run": "drawn",
        "nJ": number,
        "nN": nodes,
        "Tfwd": chance.choice([10, 60, 120]),
    }
    entry |= {
        name: [] for name in ("jmin", "jmax", "Ns", "Os", "res_up", "res_dw", "current")
    }
    free = list(range(nodes))
    for _ in range(number):
        jmin = chance.randint(1, nodes + 4 if corner else nodes)
        jmax = jmin + chance.randint(0, nodes)
        points = sorted({0, jmin, jmax, *(chance.randint(1, jmax) for _ in range(3))})
        speeds = sorted(round(chance.uniform(10, 5000), 1) for _ in points[1:])
        held = chance.choice([0, min(len(free), chance.randint(jmin, jmax))])
        entry["jmin"].append(jmin)
        entry["jmax"].append(jmax)
        entry["Ns"].append(points)
        entry["Os"].append([0.0, *speeds])
        entry["res_up"].append(chance.choice([0.0, 5.0, 18.0, 60.0]))
        entry["res_dw"].append(chance.choice([0.0, 3.0, 12.0, 40.0]))
        entry["current"].append([free.pop(0) for _ in range(held)])
    return entry | _optima(entry)


def _optima(entry: Entry) -> Entry:
    """The best of all allocations, and the best that the published model's big-M leaves; None where it leaves none."""
    choices = [list(_choices(entry, j)) for j in range(entry["nJ"])]
    best, published = -np.inf, -np.inf
    most_changed = (entry["nN"] + 1) // 2
    for chosen in itertools.product(*choices):
        if sum(n for n, _, _ in chosen) <= entry["nN"]:
            worth = sum(value for _, value, _ in chosen)
            best = max(best, worth)
            if all(changed <= most_changed for _, _, changed in chosen):
                published = max(published, worth)
    feasible = max(entry["jmin"]) <= entry["nN"] + 1 and published > -np.inf
    return {"optimum": best, "published_optimum": published if feasible else None}


def _choices(entry: Entry, j: int) -> Iterator[tuple[int, float, int]]:
    """What a job may have: nodes, what they are worth, and by how many they differ from what it has."""
    held, curve = len(entry["current"][j]), (entry["Ns"][j], entry["Os"][j])
    rate = float(np.interp(held, *curve)) if held >= entry["jmin"][j] else 0.0
    for n in (0, *range(entry["jmin"][j], min(entry["jmax"][j], entry["nN"]) + 1)):
        pause = (
            entry["res_up"][j] if n > held else entry["res_dw"][j] if n < held else 0.0
        )
        yield (
            n,
            entry["Tfwd"] * float(np.interp(n, *curve)) - pause * rate,
            abs(n - held),
        )


def posed(entry: dict[str, Any]) -> Problem:
    """The problem of a decision."""
    jobs = tuple(
        Job(
            name=f"j{j}",
            jmin=entry["jmin"][j],
            # The published model stays on the curve.
            jmax=min(entry["jmax"][j], entry["Ns"][j][-1]),
            ns=np.array(entry["Ns"][j], dtype=np.float64),
            os=np.array(entry["Os"][j], dtype=np.float64),
            tcup=entry["res_up"][j],
            tcdw=entry["res_dw"][j],
        )
        for j in range(entry["nJ"])
    )
    return Problem(
        entry["nN"],
        entry["Tfwd"],
        jobs,
        tuple(len(nodes) for nodes in entry["current"]),
    )
