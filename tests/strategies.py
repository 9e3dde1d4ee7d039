"""Random problems for Hypothesis, and their values by docs/model.md, without NumPy and without our tables."""

import itertools
import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st

from bft.milp import Job, Problem
from bft.milp.exact.dp import optimum
from bft.milp.tables import Classes, tables_of

FREE_TO_HUGE_S = st.sampled_from([0.0, 1.0, 12.0, 18.0, 119.0, 120.0, 121.0, 1e4])


@st.composite
def curves(
    draw: st.DrawFn, last: int, *, any_breakpoints: bool = True
) -> tuple[list[float], list[float]]:
    """Ns and Os: concave, convex, with flat stretches, stepping, falling; on whole numbers or between them."""
    count = draw(st.integers(1, 6))
    if any_breakpoints and draw(st.booleans()):
        steps = st.floats(0.05, max(0.1, last / 2))
    else:
        steps = st.integers(1, max(1, last // 2)).map(float)
    widths = draw(st.lists(steps, min_size=count, max_size=count))
    whole_slopes = st.integers(0, 6).map(float)
    slopes = draw(
        st.lists(whole_slopes | st.floats(0.01, 20.0), min_size=count, max_size=count)
    )
    shape = draw(st.sampled_from(["any", "concave", "convex", "falling"]))
    if shape in ("concave", "convex"):
        slopes.sort(reverse=shape == "concave")
    elif shape == "falling":
        slopes[-1] = -draw(st.floats(0.01, 3.0))
    start = draw(st.sampled_from([0.0, 0.0, 0.0, 0.0, 2.0]))
    ns = [0.0, *itertools.accumulate(widths)]
    os = itertools.accumulate(
        (w * s for w, s in zip(widths, slopes, strict=True)), initial=start
    )
    return ns, list(os)


def sizes(jmin: int, jmax: int) -> st.SearchStrategy[tuple[int, ...] | None]:
    """None, or some of the counts from Jmin to Jmax, both ends among them."""
    ends = {max(jmin, 1), jmax}
    return st.none() | st.sets(st.integers(max(jmin, 1), jmax)).map(
        lambda counts: tuple(sorted(counts | ends))
    )


def solve_exact(problem: Problem) -> tuple[int, ...]:
    """The counts of the canonical optimum."""
    return tuple(optimum(problem).counts)


@st.composite
def problems(
    draw: st.DrawFn, *, max_jobs: int, max_units: int, scale: float = 1.0
) -> Problem:
    """Problems with any units held: none, less than Jmin, more than Jmax, more than the curve covers."""
    units = draw(st.integers(0, max_units))
    jobs, current = [], []
    left = units
    for index in range(draw(st.integers(0, max_jobs))):
        jmax = draw(st.integers(1, max_units + 2))
        jmin = draw(st.sampled_from([0, 1, 1, 1]) | st.integers(0, jmax))
        ns, os = draw(curves(max_units))
        job = Job(
            name=f"j{index}",
            jmin=min(jmin, jmax),
            jmax=jmax,
            ns=np.array(ns),
            os=np.array(os) * scale,
            tcup=draw(FREE_TO_HUGE_S),
            tcdw=draw(FREE_TO_HUGE_S),
            weight=draw(st.sampled_from([1.0, 1.0, 1.0, 0.0, 0.3, 2.0, 7.0])),
            sizes=draw(sizes(min(jmin, jmax), jmax)),
        )
        held = draw(st.just(0) | st.integers(0, left))
        left -= held
        jobs.append(job)
        current.append(held)
    model = draw(st.sampled_from(["bftrainer", "stall"]))
    return Problem(
        units,
        draw(st.sampled_from([1.0, 10.0, 120.0, 120.0, 3600.0])),
        tuple(jobs),
        tuple(current),
        model,
    )


def interpolated(ns: list[float], os: list[float], n: float) -> float:
    for (n0, o0), (n1, o1) in itertools.pairwise(zip(ns, os, strict=True)):
        if n <= n1:
            return o0 + (o1 - o0) * ((n - n0) / (n1 - n0))
    return os[-1]


def allowed(job: Job, n: int) -> bool:
    return max(job.jmin, 1) <= n <= job.jmax and (job.sizes is None or n in job.sizes)


def worth(job: Job, held: int, n: int, tfwd: float, cost_model: str) -> float | None:
    """v_j(n) by the letter of docs/model.md, None where the job may not have n units."""
    if n != 0 and not allowed(job, n):
        return None
    ns, os = job.ns.tolist(), job.os.tolist()
    pause = job.tcup if n > held else job.tcdw if n < held else 0.0
    if cost_model == "stall":
        return float(job.weight * max(tfwd - pause, 0.0) * interpolated(ns, os, n))
    rate = interpolated(ns, os, held) if allowed(job, held) or held > job.jmax else 0.0
    return float(job.weight * (tfwd * interpolated(ns, os, n) - pause * rate))


def worth_of(problem: Problem, counts: tuple[int, ...]) -> float | None:
    values = [
        worth(job, held, n, problem.tfwd, problem.cost_model)
        for job, held, n in zip(problem.jobs, problem.current, counts, strict=True)
    ]
    if sum(counts) > problem.units or min(counts, default=0) < 0 or None in values:
        return None
    return math.fsum(value for value in values if value is not None)


def magnitude(problem: Problem) -> float:
    """Sum over jobs of their largest value, in magnitude: what rounding errors are relative to."""
    return math.fsum(
        max(
            abs(worth(job, held, n, problem.tfwd, problem.cost_model) or 0.0)
            for n in range(problem.units + 1)
        )
        for job, held in zip(problem.jobs, problem.current, strict=True)
    )


def value_tables(problem: Problem):
    """The value table of every job, with what it owes anyway."""
    if problem.several_kinds:
        return [tables_of(problem).of(j) for j in range(len(problem.jobs))]
    alone = [
        tables_of(replace(problem, jobs=(job,), current=(held,)))
        for job, held in zip(problem.jobs, problem.current, strict=True)
    ]
    return [tables.of(0) + tables.debt for tables in alone]


def best_value(tables, units: int) -> float:
    """The value of an optimum by a plain programme over the tables of the jobs, one after the other."""
    best = np.zeros(units + 1)
    for table in tables:
        after = np.full(len(best), -np.inf)
        for n in np.flatnonzero(table[: units + 1] > -np.inf).tolist():
            after[n:] = np.maximum(after[n:], best[: len(best) - n] + table[n])
        best = after
    return float(best.max())


def apart(problem: Problem) -> Classes:
    jobs = len(problem.jobs)
    return Classes(np.arange(jobs), np.arange(jobs), np.ones(jobs, dtype=np.int64))


def solve_apart(problem: Problem) -> tuple[int, ...]:
    with patch("bft.milp.tables.classes_of", apart):
        return solve_exact(replace(problem))
