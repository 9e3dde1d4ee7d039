"""Several kinds of units in a replay: by hand, through the command line, and what is refused."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from toy_application import workload, write_application

from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel
from bft.models import (
    Curve,
    Job,
    JobTable,
    Objective,
    jobs_from_frame,
    jobs_to_frame,
    read_jobs,
)
from bft.replay import (
    Decision,
    MilpPolicy,
    Policy,
    Replay,
    Rules,
    SolverOptions,
    State,
    Traits,
    always_idle,
)
from bft.replay.engine.policy_api import PolicyError
from bft.replay.policies.sia import Sia
from bft.replay.results.metrics import units_by_kind
from bft.replay.trace.node_trace import SECOND_NS

LINE = [0.0, 10.0, 20.0, 30.0, 40.0]


def curve(factor: float) -> Curve:
    return Curve(range(len(LINE)), [factor * p for p in LINE])


def job(name: str, pmax: float = 1e5, **on: float) -> Job:
    """Linear: 10 samples/s on a unit, times what is given for a kind."""
    by_kind = {kind: (curve(factor), curve(factor)) for kind, factor in on.items()}
    return Job(name, 0, 1, 4, pmax, 20.0, 10.0, curve(1.0), curve(1.0), by_kind=by_kind)


class Script(Policy):
    """Gives what is written down, instant by instant in seconds."""

    name = "script"
    traits = Traits(kinds=True)

    def __init__(
        self, *script: tuple[int, tuple[int, ...], tuple[str | None, ...]]
    ) -> None:
        self.script = {at: (counts, kinds) for at, counts, kinds in script}

    def decide(self, state: State) -> Decision:
        now = state.time_ns // SECOND_NS
        later = [at * SECOND_NS for at in self.script if at > now]
        counts, kinds = self.script.get(now, (tuple(state.jobs.counts.tolist()), ()))
        if not kinds:
            kinds = tuple(
                state.machine.kind_of(view.held[0]) if view.held else None
                for view in state.jobs
            )
        return Decision(counts, kinds=kinds, wake_ns=min(later, default=None))


def trace(fast: int, slow: int, seconds: int = 1000, per: int = 1) -> Any:
    nodes = always_idle(fast + slow, 0, seconds * SECOND_NS, units_per_node=per)
    return replace(nodes, kinds=("fast",) * fast + ("slow",) * slow)


def test_a_job_runs_at_the_rate_of_its_kind_and_pays_for_a_change() -> None:
    # 100 s on two slow units at 20/s; then Tcup · 20 = 400 is paid; then 50 s on one fast unit at 30/s.
    script = Script((0, (2,), ("slow",)), (100, (1,), ("fast",)))
    replay = Replay(trace(2, 2, 150), JobTable((job("a", fast=3.0),)), script, Rules())
    outcome = replay.run()
    assert outcome.records[0].gained == pytest.approx(100 * 20 + 50 * 30)
    assert outcome.work == pytest.approx(100 * 20 - 20 * 20 + 50 * 30)
    assert outcome.records[0].rescales == 1
    assert units_by_kind(outcome) == {
        "fast": {
            "units": 2,
            "idle_unit_s": 300,
            "used_unit_s": 50,
            "used_share": 50 / 300,
        },
        "slow": {
            "units": 2,
            "idle_unit_s": 300,
            "used_unit_s": 200,
            "used_share": 200 / 300,
        },
    }


def test_a_change_of_kind_is_a_restart_with_its_overhead() -> None:
    script = Script((0, (2,), ("slow",)), (100, (2,), ("fast",)))
    rules = Rules(cost_model="stall", restart_overhead=((1, 35.0),))
    replay = Replay(trace(2, 2, 200), JobTable((job("a", fast=3.0),)), script, rules)
    # Tcup at the first start; of Tcup and the overhead at the change the longer counts.
    assert replay.run().work == pytest.approx((100 - 20) * 20 + (100 - 35) * 60)


@pytest.mark.parametrize(
    ("counts", "kinds", "message"),
    [
        ((3, 0), ("fast", None), "it gave 3 units of kind 'fast' of 2 idle ones"),
        ((1, 1), ("fast",), "1 kinds for 2 jobs"),
        ((1, 1), ("fast", "other"), "units of 'other'; expected fast, slow"),
        ((1, 1), ("fast", None), "units of None; expected fast, slow"),
    ],
)
def test_answers_that_cannot_be_are_refused(
    counts: Any, kinds: Any, message: str
) -> None:
    replay = Replay(
        trace(2, 2), JobTable((job("a"), job("b"))), Script((0, counts, kinds))
    )
    with pytest.raises(PolicyError, match=message):
        replay.run()


def test_a_policy_without_kinds_is_refused() -> None:
    from bft.replay import EqualShare

    with pytest.raises(PolicyError, match="knows no kinds of units"):
        Replay(trace(1, 1), JobTable((job("a"),)), EqualShare())


def test_an_application_goes_as_it_was_measured_on_each_kind(tmp_path: Path) -> None:
    """A batch of 64 on 4 units takes 0.36 s a step, on the fast ones 0.09 s; 3,000 steps are the training."""
    write_application(tmp_path / "traces" / "toy", fast=4.0)
    jobs = workload(tmp_path / "traces", "a,0,toy,4,64")
    script = Script((0, (4,), ("slow",)), (180, (4,), ("fast",)))
    (record,) = Replay(trace(1, 1, 3600, 4), jobs, script).run().records
    # 500 steps in 180 s on the slow units, 2,500 in 225 s on the fast ones.
    assert record.finish_ns == pytest.approx(405 * SECOND_NS, abs=10)
    assert record.gained == pytest.approx(3000 * 64)


def test_sia_runs_applications_on_a_cluster_of_several_kinds(
    tmp_path: Path, told: Callable[..., str]
) -> None:
    write_application(tmp_path / "traces" / "toy", fast=4.0)
    jobs = workload(tmp_path / "traces", "a,0,toy,1,512", "b,30,toy,2,128")
    (tmp_path / "traces" / "applications.csv").write_text(
        "application,slowdown,restart_s,policy_restart_s\ntoy,1.5,50,30\n"
    )
    line = (
        f"--cluster 1x2:slow+1x4:fast --jobs {jobs.source} --jobs-format pollux --policy sia "
        f"--no-u --quiet --force --out {tmp_path / 'out'} --option compat="
    )
    told(f"{line}sia")
    assert metrics(str(tmp_path / "out"))["jobs_finished"] == 2
    told(f"{line}sia --set ties=3")
    told(f"{line}lucid", code=2)


def test_milp_sends_each_job_to_the_kind_that_it_gains_most_from() -> None:
    jobs = JobTable((job("b", fast=4.0), job("a", fast=1.2)))
    by_kind = MilpPolicy(
        120.0, SolverOptions("exact"), objective=Objective.of("throughput")
    )
    blind = replace(by_kind, by_kind=False)
    aware = Replay(trace(4, 4), jobs, by_kind).run()
    # b ends after 625 s; then a changes to the fast units, as 120 s · (48 - 40) is more than Tcup · 40.
    assert aware.work == pytest.approx(625 * 160 + 625 * 40 + 375 * 48 - 20 * 40)
    assert {
        record.job.name: record.gained for record in aware.records
    } == pytest.approx({"a": 43_000, "b": 100_000})
    alike = Replay(trace(4, 4), jobs, blind).run()  # the last job gets the first kind
    assert alike.work == pytest.approx(1000 * 48 + 1000 * 40)


def test_a_policy_that_replays_again_knows_the_curves_of_the_new_jobs() -> None:
    policy = MilpPolicy(
        120.0, SolverOptions("exact"), objective=Objective.of("throughput")
    )
    for fast in ((1.2, 4.0), (4.0, 1.2)):
        jobs = JobTable((job("a", fast=fast[0]), job("b", fast=fast[1])))
        again = Replay(trace(2, 2), jobs, policy).run()
        anew = Replay(trace(2, 2), jobs, replace(policy)).run()
        assert again.work == anew.work
        assert units_by_kind(again) == units_by_kind(anew)


@pytest.mark.parametrize("per", [1, 2])
def test_sia_compares_configurations_of_all_kinds(per: int) -> None:
    jobs = JobTable((job("a", fast=1.2), job("b", fast=4.0)))
    replay = Replay(trace(4 // per, 4 // per, 300, per), jobs, Sia())
    outcome = replay.run()
    kinds = {
        running.job.name: {replay._held.kind_of(unit) for unit in running.units}
        for running in replay._in_play.line
    }
    assert kinds == {"a": {"slow"}, "b": {"fast"}}
    assert outcome.work > 0


def test_columns_of_kinds_are_read_and_written() -> None:
    frame = pd.DataFrame(
        [
            {
                "name": "a", "Jmin": 1, "Jmax": 2, "Pmax": 1e4, "Tsub": "2021-01-01T00:00:00Z", "Tcup": 1, "Tcdw": 1,
                "Ns": [0, 2], "Ps": [0, 10], "Os": [0, 5], "Ps@fast": [0, 30], "note": "x",
            }
        ]
    )  # fmt: skip
    table = jobs_from_frame(frame)
    rates, values = table.jobs[0].by_kind["fast"]
    assert (rates.ps.tolist(), values.ps.tolist()) == ([0, 30], [0, 15])
    assert dict(table.jobs[0].extra) == {"note": "x"}
    again = jobs_from_frame(jobs_to_frame(table)).jobs[0]
    assert again.on("fast").rates.tolist() == [0, 15, 30]
    assert again.on("other") is again
    efficiency = Objective.of("efficiency")
    assert efficiency.curve_on(again, "fast").ps.tolist() == [
        3 * p for p in efficiency.curve(again).ps.tolist()
    ]


def test_a_row_without_an_objective_by_kind_has_the_one_that_the_page_states(
    tmp_path: Path,
) -> None:
    head = "name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os,Ps@fast,Os@fast\n"
    row = '{},1,2,100,2021-01-01T00:00:00Z,1,1,"[0, 2]","[0, 20]","[0, 10]","[0, 40]",{}\n'
    (tmp_path / "jobs.csv").write_text(
        head + row.format("own", '"[0, 30]"') + row.format("default", "")
    )
    own, default = read_jobs(tmp_path / "jobs.csv")
    assert own.by_kind["fast"][1].ps.tolist() == [0, 30]
    assert default.by_kind["fast"][1].ps.tolist() == [
        0,
        20,
    ]  # twice as fast, worth twice as much
    (tmp_path / "jobs.csv").write_text(
        head + row.format("a", "").replace('"[0, 40]"', "") + row.format("b", "")
    )
    first, second = read_jobs(tmp_path / "jobs.csv")
    assert (dict(first.by_kind), list(second.by_kind)) == ({}, ["fast"])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"2021-01-01T00:00:00Z,n{k},True\n" for k in range(4)]
    text = "".join(["time,node,idle\n", *rows, "2021-01-01T00:30:00Z,n0,False\n"])
    Path("trace.csv").write_text(text)
    Path("kinds.csv").write_text("node,kind\nn0,fast\nn1,fast\nn2,slow\nn3,slow\n")
    jobs_to_frame(JobTable((job("b", fast=4.0), job("a", fast=1.2)))).assign(
        Tsub="2021-01-01T00:00:00Z",
        **dict.fromkeys(("Ps", "Os"), "[0, 10, 20, 30, 40]"),
        **{
            "Ns": "[0, 1, 2, 3, 4]",
            "Ps@fast": ["[0, 40, 80, 120, 160]", "[0, 12, 24, 36, 48]"],
        },
    ).drop(columns=["Os@fast"]).to_csv("jobs.csv", index=False)
    return tmp_path


REPLAY = "-ndmap trace.csv --jobs jobs.csv --out out --force"
EXACT, KINDS = "--backend exact --objective throughput", "--option kinds=kinds.csv"


def metrics(name: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(name, "summary.json").read_text())
    return found["metrics"]


def test_from_the_command_line(files: Path, told: Callable[..., str]) -> None:
    kinds, none = (
        "units are of 2 kinds: fast, slow",
        "U is not computed for several kinds",
    )
    said = told(f"{REPLAY} {EXACT} {KINDS}", kinds, none)
    assert re.search("used of slow .*% of 1 idle unit-hours on 2 units", said)
    assert "Ps@" not in said  # that the slow kind has no columns is on purpose
    aware = metrics()["outcome"]
    # b does 80 samples/s, a keeps its slow units.
    assert aware == pytest.approx(1800 * 20 + 100_000)
    told("report out")
    page = Path("out.html").read_text("utf-8")
    row = (
        r'Units by kind.*share used.*<th scope="row">fast</th><td class="number">2</td>'
    )
    assert re.search(row, page, re.DOTALL)
    told(f"{REPLAY} {EXACT} {KINDS} --set by_kind=no")
    assert metrics()["outcome"] < aware
    told(f"{REPLAY} {EXACT}", "have no effect on units without kinds")


class GivesNothing:
    """A solver process whose solver claims that it is optimal to give nobody anything."""

    def solve(self, model: LinearModel, backend: str, limits: Limits) -> LinearAnswer:
        return LinearAnswer("optimal", np.zeros(len(model.objective)), 0.0, 0.0)


@pytest.mark.parametrize("ties", ["canonical", "solver"])
def test_decisions_by_kind_are_verified_and_counted(
    files: Path, ties: str, told: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = "--option verify=yes" if ties == "solver" else ""
    line = f"{REPLAY} --backend highs {KINDS} --no-u --option ties={ties} {verify}"
    told(line)
    right = metrics()
    assert right["verified"] == right["decisions"] > 0
    assert right["verify_mismatches"] == 0
    # The package hides the module.
    monkeypatch.setattr(sys.modules["bft.milp.solve"], "shared_process", GivesNothing)
    told(line, "fell back or failed verification", code=3)
    # The second answer is worse than keeping everything, which needs no verification.
    assert metrics()["verify_mismatches"] == 1
    assert metrics()["decisions_by_status"]["fallback"] == 2


def test_a_missing_curve_is_said_once_with_what_it_means(
    files: Path, told: Callable[..., str]
) -> None:
    table = pd.read_csv("jobs.csv")
    some = "1 of 2 jobs have no curve of their own on kind fast (column Ps@fast)"
    none = (
        "the job table has no curves by kind (columns Ps@KIND): jobs run on all kinds"
    )
    for curves, message in (([None, table["Ps@fast"][1]], some), (None, none)):
        table.assign(**{"Ps@fast": curves}).to_csv("jobs.csv", index=False)
        said = told(f"{REPLAY} --backend exact {KINDS} --no-u", message)
        assert said.count("as the column Ps says") == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--policy fifo", "--policy fifo knows no kinds of units; with --option kinds choose one that does"),
        ("--option curves=learn", "--option kinds does not go with --option curves=learn"),
        ("--option formulation=node", "--option kinds does not go with --option formulation=node"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    files: Path, more: str, message: str, told: Callable[..., str]
) -> None:
    told(f"{REPLAY} {KINDS} {more}", message, code=2)


def test_a_table_of_kinds_that_is_wrong_names_the_place(
    files: Path, told: Callable[..., str]
) -> None:
    for text, message in (
        ("node,kind\nn0,fast\n", "no row for 3 of the trace's 4 nodes"),
        ("node,kind\nn0,fast\nn0,slow\n", "has the kind 'fast' already"),
        ("node,type\nn0,fast\n", "kind"),
    ):
        Path("kinds.csv").write_text(text)
        told(f"{REPLAY} {KINDS}", "kinds.csv", message, code=2)


def test_the_example_gives_the_fast_units_to_those_who_gain_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[..., str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3] / "examples" / "kinds")
    done = {}
    for line in Path("README.md").read_text("utf-8").splitlines():
        if line.startswith("bft-replay -ndmap"):
            given, _, name = line.removeprefix("bft-replay ").rpartition(" ")
            told(f"{given} {tmp_path / name}")
            done[name] = metrics(str(tmp_path / name))["outcome"]
    assert done["by-kind"] > done["blind"]
    assert done["sia"] > 0  # it shares out by utilities, not by samples
    ran = pd.read_parquet(tmp_path / "by-kind" / "allocations.parquet")
    assert set(ran["job"][ran["first_unit"] < 4]) <= {"j2-resnet", "j3-transformer"}
