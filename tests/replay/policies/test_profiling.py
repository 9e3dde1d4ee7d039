"""Jobs that are measured before they are scheduled (`--option curves=profile`): the cost, and the curves known then."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import sizes

from bft.models import Curve, Job, JobTable, Objective
from bft.replay import (
    Decision,
    MilpPolicy,
    Replay,
    Rules,
    SolverOptions,
    State,
    always_idle,
    from_changes,
)
from bft.replay.policies.predictions import LearnedCurves
from bft.replay.trace.node_trace import SECOND_NS

EXACT = SolverOptions("exact")


def rising(name: str = "a", *, pmax: float = 1e5, **others: object) -> Job:
    """P at 1, 2, 4, 8 units: 10, 20, 36, 60 samples/s. Tcup 5 s, Tcdw 3 s."""
    curve = Curve([0, 1, 2, 4, 8], [0, 10, 20, 36, 60])
    fields: dict[str, object] = {"jmin": 1, "jmax": 8} | others
    return Job(
        name,
        0,
        pmax=pmax,
        tcup_s=5.0,
        tcdw_s=3.0,
        scalability=curve,
        objective=curve,
        **fields,
    )  # type: ignore[arg-type]


def test_sizes_double_and_are_those_that_the_job_may_have() -> None:
    learned = LearnedCurves(Objective.of("own"), True, 60.0, 4, "growing")
    assert learned.sizes(rising()) == [1, 2, 4, 8]
    assert learned.sizes(rising(jmin=3, jmax=7)) == [3, 6, 7]
    assert learned.sizes(rising(jmin=2, jmax=8, sizes=(2, 5, 8))) == [2, 8]


def test_nobody_is_measured_on_more_than_an_equal_share_but_everybody_on_something() -> (
    None
):
    """Four jobs, six units: one each, until all four are measured on it."""
    jobs = JobTable(tuple(rising(name) for name in "abcd"))
    policy = Watched(60.0, EXACT, curves="profile")
    Replay(always_idle(6, 0, 130 * SECOND_NS), jobs, policy).run()
    assert policy.given[0] == (0, {"a": 1, "b": 1, "c": 1, "d": 1})
    assert policy.given[1][0] == 60 * SECOND_NS
    assert sum(policy.given[1][1].values()) == 6  # and then by what has been measured


@dataclass
class Watched(MilpPolicy):
    """What it gives, and whom it has measured at which rates."""

    given: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    known: dict[tuple[str, int], float] = field(default_factory=dict)

    def decide(self, state: State) -> Decision:
        decision = super().decide(state)
        counts = decision.counts_in(state)
        self.given.append(
            (
                state.time_ns,
                {v.job.name: n for v, n in zip(state.jobs, counts, strict=True)},
            )
        )
        assert self._learned is not None
        for name, curve in self._learned.learned.items():
            self.known |= {(name, n): curve.rate(n) for n in curve.sizes}
        return decision


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, bool]], JobTable]:
    """Nodes, changes of theirs (second, node, idle), and jobs."""
    nodes = draw(st.integers(1, 8))
    changes = [(0, node, draw(st.booleans()) or node == 0) for node in range(nodes)]
    state = {node: idle for _, node, idle in changes}
    for second in sorted(draw(st.sets(st.integers(1, 1500), max_size=8))):
        node = draw(st.integers(0, nodes - 1))
        state[node] = not state[node]
        changes.append((second, node, state[node]))
    jobs = []
    for k in range(draw(st.integers(1, 4))):
        jmax = draw(st.integers(1, 8))
        jmin = draw(st.integers(1, min(jmax, 3)))
        rates = draw(st.lists(st.integers(0, 50), min_size=8, max_size=8))
        curve = Curve(np.arange(9), np.array([0, *np.cumsum(rates)], dtype=float))
        one = Job(f"j{k}", k * 100 * SECOND_NS, jmin, jmax, draw(st.sampled_from([1e3, 1e5])), 5.0, 3.0, curve, curve,
                  sizes=draw(sizes(jmin, jmax)))  # fmt: skip
        jobs.append(one)
    return nodes, changes, JobTable(tuple(jobs))


@examples(40)
@given(
    worlds(),
    st.sampled_from(["growing", "inverse"]),
    st.sampled_from(["bftrainer", "stall"]),
)
def test_what_is_measured_is_the_truth_and_who_is_measured_has_a_size_to_measure(
    world: tuple[int, list[tuple[int, int, bool]], JobTable],
    order: str,
    cost_model: str,
) -> None:
    nodes, changes, jobs = world
    seconds, which, idle = (np.array(column) for column in zip(*changes, strict=True))
    trace = from_changes([f"n{k}" for k in range(nodes)], seconds * SECOND_NS, which.astype(np.int32), idle,
                         start=0, end=2000 * SECOND_NS)  # fmt: skip
    policy = Watched(
        60.0, EXACT, cost_model, curves="profile", profile_order=order, profile_s=50.0
    )  # type: ignore[arg-type]
    Replay(trace, jobs, policy, Rules(cost_model=cost_model)).run()  # type: ignore[arg-type]
    rates = {job.name: job.rates for job in jobs}
    assert all(
        rate == pytest.approx(float(rates[name][n]), rel=1e-9)
        for (name, n), rate in policy.known.items()
    )
    assert policy._learned is not None
    first = {job.name: {0, *policy._learned.sizes(job)} for job in jobs}
    begun: set[str] = set()
    for _, counts in policy.given:
        for name, n in counts.items():
            if n and name not in begun:  # nobody begins on what is not to be measured
                assert n in first[name]
                begun.add(name)


def test_a_table_without_curves_is_replayed_with_true_ones_that_the_decision_does_not_see(
    here: Path, told: Callable[..., str]
) -> None:
    start = pd.Timestamp("2021-02-10")
    idle = np.ones((60, 6), dtype=np.int8)
    idle[10::7, 2] = 0
    pd.DataFrame(
        idle, index=pd.date_range(start, periods=60, freq="60s"), columns=list("abcdef")
    ).to_parquet("trace.parquet")
    Path("jobs.csv").write_text(
        "name,model,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw\n"
        + "".join(
            f"j{k},{'ab'[k % 2]},1,6,{400000 + k},2021-02-10T00:0{k}:00Z,5,3\n"
            for k in range(4)
        )
    )
    Path("curves.csv").write_text(
        'model,Ns,Ps\na,"[0, 1, 6]","[0, 10, 12]"\nb,"[0, 1, 6]","[0, 5, 30]"\n'
    )
    line = "-ndmap trace.parquet --backend exact -Tfwd 60"
    missing = ("jobs.csv: missing columns Ns, Ps, Os", "-bdfn JOBS -scfn CURVES")
    told(f"{line} --jobs jobs.csv --option curves=profile", *missing, code=2)
    outcomes = set()
    for curves in ("known", "learn", "profile"):
        pair = f"-bdfn jobs.csv -scfn curves.csv --option curves={curves}"
        told(f"{line} {pair} --out {curves}")
        summary = json.loads(Path(curves, "summary.json").read_text())
        assert summary["options"]["curves"] == curves
        outcomes.add(summary["metrics"]["outcome"])
    assert len(outcomes) == 3
