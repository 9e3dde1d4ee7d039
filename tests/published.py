"""Recorded decisions as problems: those of the reference data; where these are missing, decisions of our own."""

import gzip
import itertools
import json
import random
from functools import cache

import numpy as np
from reference_data import folder
from strategies import worth

from bft.milp import Job, Problem

Entry = dict
# How many decisions of our own stand in for a list of recorded ones.
OURS = 160


@cache
def decisions(name: str):
    """`instances` or `corner-cases`: what was decided, and its optima."""
    place = folder() / "bftrainer" / "milp" / f"{name}.jsonl.gz"
    if not place.is_file():
        return drawn(name)
    return [
        json.loads(line) for line in gzip.decompress(place.read_bytes()).splitlines()
    ]


def some_of(entries, number: int):
    return entries[:: max(1, len(entries) // number)]


def drawn(name: str):
    """Decisions of our own, as the recorded ones are written; their optima are those of all allocations one by one."""
    chance = random.Random(name)  # noqa: S311  # the same on every machine
    return [_one(chance, corner=name == "corner-cases") for _ in range(OURS)]


def _one(chance: random.Random, *, corner: bool):
    """A decision among few jobs; in a corner some need more nodes than there are."""
    nodes, number = chance.randint(3, 10), chance.randint(1, 3)
    entry = {
        "run": "drawn",
        "nJ": number,
        "nN": nodes,
        "Tfwd": chance.choice([10, 60, 120]),
    }
    free, jobs = list(range(nodes)), []
    for _ in range(number):
        jmin = chance.randint(1, nodes + 4 if corner else nodes)
        jmax = jmin + chance.randint(0, nodes)
        points = sorted({0, jmin, jmax, *(chance.randint(1, jmax) for _ in range(3))})
        speeds = sorted(round(chance.uniform(10, 5000), 1) for _ in points[1:])
        held = chance.choice([0, min(len(free), chance.randint(jmin, jmax))])
        pauses = (
            chance.choice([0.0, 5.0, 18.0, 60.0]),
            chance.choice([0.0, 3.0, 12.0, 40.0]),
        )
        own = [free.pop(0) for _ in range(held)]
        jobs.append((jmin, jmax, points, [0.0, *speeds], *pauses, own))
    names = ("jmin", "jmax", "Ns", "Os", "res_up", "res_dw", "current")
    entry |= dict(zip(names, map(list, zip(*jobs, strict=True)), strict=True))
    return entry | _optima(entry)


def _optima(entry):
    """The best of all allocations, and the best that the published model's big-M leaves; None where it leaves none."""
    problem, most_changed = posed(entry), (entry["nN"] + 1) // 2
    choices = [
        [
            (n, value, abs(n - held))
            for n in range(problem.units + 1)
            if (value := worth(job, held, n, problem.tfwd, "bftrainer")) is not None
        ]
        for job, held in zip(problem.jobs, problem.current, strict=True)
    ]
    best, published = -np.inf, -np.inf
    for chosen in itertools.product(*choices):
        counts, values, changes = zip(*chosen, strict=True)
        if sum(counts) <= problem.units:
            best = max(best, sum(values))
            if max(changes) <= most_changed:
                published = max(published, sum(values))
    feasible = max(entry["jmin"]) <= entry["nN"] + 1 and published > -np.inf
    return {"optimum": best, "published_optimum": published if feasible else None}


def posed(entry) -> Problem:
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
