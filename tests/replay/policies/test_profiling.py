"""Jobs that are measured before they are scheduled (`--option curves=profile`): the cost, and the curves known then."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import sizes

from bft.models import Curve, Job, JobTable, Objective
from bft.replay.cli.main import run
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.policies import Decision, MilpPolicy, State
from bft.replay.policies.predictions import LearnedCurves
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import SECOND_NS, always_idle, from_changes

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


@pytest.mark.parametrize(
    ("order", "cost_model", "stalled", "paid"),
    [
        # 60 s on each of 1, 2, 4, 8, then it stays; each growth takes 5 s at the rate before
        ("growing", "bftrainer", 0, 5 * (10 + 20 + 36)),
        # 60 s on each of 8, 4, 2, 1, then back to 8; each shrink takes 3 s at the rate before
        ("inverse", "bftrainer", 0, 3 * (60 + 36 + 20) + 5 * 10),
        # all changes stall, the start too, and each size is measured for 60 s in which it makes progress
        ("growing", "stall", 4 * 5, 0),
        ("inverse", "stall", 5 + 3 * 3, 5 * 60),
    ],
)
def test_measuring_a_job_on_a_constant_machine_costs_what_the_formula_says(
    order: str, cost_model: str, stalled: float, paid: float
) -> None:
    policy = MilpPolicy(600.0, EXACT, cost_model, curves="profile", profile_order=order)  # type: ignore[arg-type]
    rules = Rules(cost_model=cost_model)  # type: ignore[arg-type]
    outcome = Replay(
        always_idle(8, 0, 10**6 * SECOND_NS), JobTable((rising(),)), policy, rules
    ).run()
    record = outcome.records[0]
    before, measured = 4 * 60 + stalled, 60 * (10 + 20 + 36 + 60)
    assert record.finish_ns is not None
    assert record.finish_ns / SECOND_NS == pytest.approx(
        before + (1e5 - measured + paid) / 60, abs=1e-6
    )
    assert record.rescales == (3 if order == "growing" else 4)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
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
    alone = ["-ndmap", "trace.parquet", "--backend", "exact", "-Tfwd", "60"]
    assert run([*alone, "--jobs", "jobs.csv", "--option", "curves=profile"]) == 2
    assert "jobs.csv: missing columns Ns, Ps, Os" in (
        message := capsys.readouterr().err
    )
    assert "-bdfn JOBS -scfn CURVES" in message
    outcome = {}
    for curves in ("known", "learn", "profile"):
        assert (
            run(
                [
                    *alone,
                    "-bdfn",
                    "jobs.csv",
                    "-scfn",
                    "curves.csv",
                    "--option",
                    f"curves={curves}",
                    "--out",
                    curves,
                ]
            )
            == 0
        )
        summary = json.loads(Path(curves, "summary.json").read_text())
        assert summary["options"]["curves"] == curves
        outcome[curves] = summary["metrics"]["outcome"]
    assert len(set(outcome.values())) == 3


def write_world(
    changes: list[tuple[int, int]], pmax: float = 1e7, **job: object
) -> list[str]:
    """A machine with so many idle nodes from each second on, and one job; the options to replay them."""
    seconds = np.arange(0, 8000, 10)
    count = np.zeros(len(seconds), dtype=int)
    for second, idle_nodes in changes:
        count[seconds >= second] = idle_nodes
    width = count.max()
    idle = (np.arange(width) < count[:, None]).astype(np.int8)
    index = pd.Timestamp("2021-02-10") + pd.to_timedelta(seconds, unit="s")
    pd.DataFrame(idle, index=index, columns=[f"n{k}" for k in range(width)]).to_parquet(
        "trace.parquet"
    )
    one = {
        "name": "a",
        "Jmin": 1,
        "Jmax": 8,
        "Pmax": pmax,
        "Tsub": "2021-02-10T00:00:00Z",
        "Tcup": 60,
        "Tcdw": 30,
    }
    pd.DataFrame([one | job]).to_csv("jobs.csv", index=False)
    return [
        "-ndmap",
        "trace.parquet",
        "--jobs",
        "jobs.csv",
        "--no-u",
        "--backend",
        "exact",
    ]


def replayed(
    tmp_path: Path, command: list[str]
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """The metrics, and the seconds of the decisions with the units used from then on."""
    assert run([*command, "--out", "out", "--force"]) == 0
    steps = pd.read_parquet(Path("out", "steps.parquet"))
    seconds = (
        (steps["time"] - pd.Timestamp("2021-02-10", tz="UTC"))
        .dt.total_seconds()
        .astype(int)
    )
    decisions = [
        (int(s), int(used)) for s, used in zip(seconds, steps["used"], strict=True)
    ][:-1]
    metrics: dict[str, Any] = json.loads(Path("out", "summary.json").read_text())[
        "metrics"
    ]
    return metrics, decisions


def test_a_size_that_a_leave_ends_after_an_hour_stays_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 7 units the job is as fast as on 8: after an hour on 8 that is known, and a return to 8 would be paid for."""
    monkeypatch.chdir(tmp_path)
    curve = {"Ns": "[0, 7, 8]", "Ps": "[0, 70, 70]", "Os": "[0, 70, 70]"}
    command = write_world([(0, 8), (3600, 7), (4000, 8)], **curve)
    metrics, decisions = replayed(
        tmp_path, [*command, "--option", "curves=learn", "-Tfwd", "3600"]
    )
    assert decisions == [(0, 8), (3600, 7), (4000, 7)]
    assert metrics["rescale_cost"] == 0.0


@pytest.mark.parametrize(
    ("cost_model", "first", "rest"), [("bftrainer", 60, 30), ("stall", 120, 90)]
)
def test_a_size_is_measured_for_as_long_as_stated_across_leaves(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cost_model: str,
    first: int,
    rest: int,
) -> None:
    """60 s on one unit, 30 s of progress on two, a leave, and then 30 s more on two: all is measured."""
    monkeypatch.chdir(tmp_path)
    curve = {"Jmax": 2, "Ns": "[0, 1, 2]", "Ps": "[0, 10, 18]", "Os": "[0, 10, 18]"}
    leaves = first + (
        30 if cost_model == "bftrainer" else 90
    )  # a growth stalls it for 60 s
    command = write_world([(0, 2), (leaves, 1), (400, 2)], **curve)
    options = [
        "--option",
        "curves=profile",
        "--option",
        f"cost-model={cost_model}",
        "-Tfwd",
        "600",
    ]
    _, decisions = replayed(tmp_path, [*command, *options])
    assert decisions == [(0, 1), (first, 2), (leaves, 1), (400, 2), (400 + rest, 2)]


def test_an_instant_with_one_idle_node_drops_no_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 60 s one node is idle, and one unit has been measured; sizes 2, 4 and 8 are measured when they fit again."""
    monkeypatch.chdir(tmp_path)
    curve = {"Ns": "[0, 8]", "Ps": "[0, 80]", "Os": "[0, 80]"}
    command = write_world([(0, 8), (50, 1), (100, 8)], **curve)
    _, decisions = replayed(
        tmp_path, [*command, "--option", "curves=profile", "-Tfwd", "600"]
    )
    assert decisions == [
        (0, 1),
        (50, 1),
        (60, 1),
        (100, 2),
        (160, 4),
        (220, 8),
        (280, 8),
    ]


def test_sia_grows_from_a_size_that_a_leave_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds double a job: 1, 2, 4; then all nodes are gone for 10 s. It has had 4, and the next round gives 8."""
    monkeypatch.chdir(tmp_path)
    curve = {"Ns": "[0, 8]", "Ps": "[0, 80]", "Os": "[0, 80]"}
    command = write_world([(0, 8), (130, 0), (140, 8), (1000, 8)], **curve)
    _, decisions = replayed(tmp_path, [*command, "--policy", "sia"])
    assert decisions[:6] == [(0, 1), (60, 2), (120, 4), (130, 0), (140, 0), (180, 8)]
