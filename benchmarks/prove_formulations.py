"""Compare every formulation and backend with the optima of thousands of recorded decisions.

python benchmarks/prove_formulations.py [--every K] [--backends cbc,highs,gurobi] [--formulations modes,node]

Needs the reference data (BFT_REFERENCE). An answer is right if it is called optimal, its counts are feasible and worth
the recorded optimum to 1e-6, and its objective and bound say so too; `strict` must reproduce the optimum of the
published model, false and infeasible ones included.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter, defaultdict

from _common import milliseconds, published

from bft.milp import Problem, SolverProcess
from bft.milp.backends.process import SolverFailure
from bft.milp.backends.registry import describe
from bft.milp.exact.dp import solve_exact
from bft.milp.formulations import modes, node
from bft.milp.formulations.linear import Limits
from bft.milp.tables import complaint, tables_of

BUILD = {
    "modes": modes.build,
    "node": node.build,
    "strict": lambda problem: node.build(problem, strict_reference=True),
}
# An answer that takes longer is reported, like a wrong one, on standard error.
SLOW_S = 5.0


def near(a: float, b: float) -> bool:
    """Whether two objectives agree to 1e-6, relative."""
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)


def verdict(
    problem: Problem,
    expected: float | None,
    answer: tuple[str, tuple[int, ...], float, float] | None,
) -> str:
    """Whether the answer is optimal, or the reason why it is not."""
    if answer is None:
        return "right" if expected is None else "called infeasible"
    status, counts, objective, bound = answer
    if expected is None:
        return "called feasible"
    if status != "optimal":
        return f"status {status}"

    if complaint(problem, counts):
        return "infeasible counts"
    if not near(tables_of(problem).value(counts), expected):
        return "not the optimum"
    return (
        "right"
        if near(objective, expected) and near(bound, expected)
        else "wrong objective or bound"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="K", help="only every K-th instance"
    )
    parser.add_argument("--backends", default="cbc,highs,gurobi")
    parser.add_argument("--formulations", default="modes,node,strict")
    parser.add_argument("--time-limit", type=float, default=60.0)
    options = parser.parse_args()
    backends = [
        name for name in options.backends.split(",") if describe(name).available
    ]
    # The licence that comes with gurobipy.
    largest = (
        {"gurobi": 2000} if "gurobi" in backends and describe("gurobi").limits else {}
    )
    process = SolverProcess()
    wrong = 0
    print(
        f"{'instances':14} {'formulation':11} {'backend':7} {'median ms':>9} {'p99 ms':>9} {'max ms':>9}  verdicts"
    )
    for name in ("instances", "corner-cases"):
        verdicts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for entry, problem in list(published(name))[:: options.every]:
            started = time.perf_counter()
            counts = solve_exact(problem)
            seconds["modes", "exact"].append(time.perf_counter() - started)
            value = tables_of(problem).value(counts)
            said = verdict(problem, entry["optimum"], ("optimal", counts, value, value))
            verdicts["modes", "exact"][said] += 1
            for formulation in options.formulations.split(","):
                expected = entry[
                    "published_optimum" if formulation == "strict" else "optimum"
                ]
                built = BUILD[formulation](problem)
                size = max(len(built.model.objective), len(built.model.rows))
                for backend in backends:
                    at = formulation, backend
                    if size > largest.get(backend, size):
                        verdicts[at]["skipped: too large"] += 1
                        continue
                    started = time.perf_counter()
                    try:
                        answer = process.solve(
                            built.model, backend, Limits(options.time_limit)
                        )
                    except SolverFailure as failure:
                        verdicts[at][str(failure)] += 1
                        continue
                    seconds[at].append(time.perf_counter() - started)
                    if answer.x is None:
                        said = (
                            "status nothing"
                            if answer.status != "infeasible"
                            else verdict(problem, expected, None)
                        )
                    else:
                        given = built.decode(answer.x)
                        said = verdict(
                            problem,
                            expected,
                            (answer.status, given, answer.objective, answer.bound),
                        )
                    verdicts[at][said] += 1
                    if said != "right" or seconds[at][-1] > SLOW_S:
                        what = f"{name} {entry['run']} {entry['evt']}: {formulation} {backend} {seconds[at][-1]:.1f} s"
                        print(f"{what}: {said}", file=sys.stderr, flush=True)
        for (formulation, backend), count in sorted(verdicts.items()):
            taken = seconds[formulation, backend]
            longest = max(taken, default=0.0) * 1e3
            kinds = ", ".join(
                f"{number} {said}" for said, number in count.most_common()
            )
            print(
                f"{name:14} {formulation:11} {backend:7} {milliseconds(taken)} {longest:9.1f}  {kinds}",
                flush=True,
            )
            wrong += sum(
                n
                for said, n in count.items()
                if said != "right" and not said.startswith(("skipped", "status"))
            )
    print(f"{wrong} wrong answers")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
