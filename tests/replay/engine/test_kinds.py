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
from worlds import START, Scripted, cluster, make, planned, second

from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel
from bft.models import (
    JobTable,
    Objective,
    jobs_from_frame,
    jobs_to_frame,
    read_jobs,
)
from bft.replay import (
    MilpPolicy,
    NodeTrace,
    Replay,
    SolverOptions,
    Traits,
)
from bft.replay.policies.sia import Sia
from bft.replay.results.metrics import units_by_kind

LINE = [0.0, 10.0, 20.0, 30.0, 40.0]
COSTS = {"up": 20.0, "down": 10.0, "pmax": 1e5}


def linear(*jobs: tuple[str, float]) -> JobTable:
    """10 samples/s on a unit, times what is given on the fast kind."""
    made = [make(job, LINE, by_kind={"fast": fast}, **COSTS) for job, fast in jobs]
    return JobTable(tuple(made))


def trace(fast: int, slow: int, seconds: int = 1000, per: int = 1) -> NodeTrace:
    nodes = cluster(fast + slow, per, seconds)
    return replace(nodes, kinds=("fast",) * fast + ("slow",) * slow)


def test_an_application_goes_as_it_was_measured_on_each_kind(tmp_path: Path) -> None:
    """A batch of 64 on 4 units takes 0.36 s a step, on the fast ones 0.09 s; 3,000 steps are the training."""
    write_application(tmp_path / "traces" / "toy", fast=4.0)
    jobs = workload(tmp_path / "traces", "a,0,toy,4,64")
    script = {0: [4, "slow"], 180: [4, "fast"]}
    plan = {at: {"counts": [n], "kinds": [kind]} for at, (n, kind) in script.items()}
    policy = Scripted(planned(plan), Traits(kinds=True))
    nodes = trace(1, 1, 3600, 4)
    (record,) = Replay(nodes, jobs.at(START for _ in jobs), policy).run().records
    # 500 steps in 180 s on the slow units, 2,500 in 225 s on the fast ones.
    assert second(record.finish_ns) == pytest.approx(405, abs=1e-8)
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


def test_a_policy_that_replays_again_knows_the_curves_of_the_new_jobs() -> None:
    policy = MilpPolicy(120.0, SolverOptions("exact"))
    for fast in ((1.2, 4.0), (4.0, 1.2)):
        jobs = linear(*zip("ab", fast, strict=True))
        again, anew = (
            Replay(trace(2, 2), jobs, each).run() for each in (policy, replace(policy))
        )
        assert again.work == anew.work
        assert units_by_kind(again) == units_by_kind(anew)


@pytest.mark.parametrize("per", [1, 2])
def test_sia_compares_configurations_of_all_kinds(per: int) -> None:
    nodes = trace(4 // per, 4 // per, 300, per)
    held = Replay(nodes, linear(("a", 1.2), ("b", 4.0)), Sia()).run().allocations
    last = held[held["end_ns"] == held["end_ns"].max()]
    assert {*zip(last["job"], last["first_unit"] < 4, strict=True)} == {
        (0, False),
        (1, True),
    }


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
def files(here: Path) -> None:
    rows = [f"2021-01-01T00:00:00Z,n{k},True\n" for k in range(4)]
    text = "".join(["time,node,idle\n", *rows, "2021-01-01T00:30:00Z,n0,False\n"])
    Path("trace.csv").write_text(text)
    Path("kinds.csv").write_text("node,kind\nn0,fast\nn1,fast\nn2,slow\nn3,slow\n")
    jobs_to_frame(linear(("b", 4.0), ("a", 1.2))).assign(
        Tsub="2021-01-01T00:00:00Z",
        **dict.fromkeys(("Ps", "Os"), "[0, 10, 20, 30, 40]"),
        **{
            "Ns": "[0, 1, 2, 3, 4]",
            "Ps@fast": ["[0, 40, 80, 120, 160]", "[0, 12, 24, 36, 48]"],
        },
    ).drop(columns=["Os@fast"]).to_csv("jobs.csv", index=False)


REPLAY = "-ndmap trace.csv --jobs jobs.csv --out out --force"
EXACT, KINDS = "--backend exact --objective throughput", "--option kinds=kinds.csv"


def metrics(name: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(name, "summary.json").read_text())
    return found["metrics"]


@pytest.mark.usefixtures("files")
def test_from_the_command_line(told: Callable[..., str]) -> None:
    kinds = "units are of 2 kinds: fast, slow"
    said = told(
        f"{REPLAY} {EXACT} {KINDS}", kinds, "U is not computed for several kinds"
    )
    assert re.search("used of slow .*% of 1 idle unit-hours on 2 units", said)
    assert "Ps@" not in said  # that the slow kind has no columns is on purpose
    # b does 80 samples/s, a keeps its slow units.
    assert metrics()["outcome"] == pytest.approx(1800 * 20 + 100_000)
    told("report out")
    row = (
        r'Units by kind.*share used.*<th scope="row">fast</th><td class="number">2</td>'
    )
    assert re.search(row, Path("out.html").read_text("utf-8"), re.DOTALL)
    told(f"{REPLAY} {EXACT} {KINDS} --set by_kind=no")
    assert metrics()["outcome"] < 1800 * 20 + 100_000
    told(f"{REPLAY} {EXACT}", "have no effect on units without kinds")


class GivesNothing:
    """A solver process whose solver claims that it is optimal to give nobody anything."""

    def solve(self, model: LinearModel, backend: str, limits: Limits) -> LinearAnswer:
        return LinearAnswer("optimal", np.zeros(len(model.objective)), 0.0, 0.0)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("ties", ["canonical", "solver --option verify=yes"])
def test_decisions_by_kind_are_verified_and_counted(
    ties: str, told: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{REPLAY} --backend highs {KINDS} --no-u --option ties={ties}"
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


@pytest.mark.usefixtures("files")
def test_a_missing_curve_is_said_once_with_what_it_means(
    told: Callable[..., str],
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


REFUSED = {
    "--policy fifo": "--policy fifo knows no kinds of units; with --option kinds choose one that does",
    "--option curves=learn": "--option kinds does not go with --option curves=learn",
    "--option formulation=node": "--option kinds does not go with --option formulation=node",
    "node,kind\nn0,fast\n": "kinds.csv, column node: no row for 3 of the trace's 4 nodes",
    "node,kind\nn0,fast\nn0,slow\n": "has the kind 'fast' already",
    "node,type\nn0,fast\n": "kinds.csv: missing column kind",
}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("given", REFUSED)
def test_options_that_do_not_go_together_and_wrong_tables_are_refused(
    given: str, told: Callable[..., str]
) -> None:
    table = given.startswith("node")
    if table:
        Path("kinds.csv").write_text(given)
    told(f"{REPLAY} {KINDS} {'' if table else given}", REFUSED[given], code=2)


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
    # sia shares out by utilities, not by samples.
    assert done["by-kind"] > done["blind"] > 0 < done["sia"]
    ran = pd.read_parquet(tmp_path / "by-kind" / "allocations.parquet")
    assert set(ran["job"][ran["first_unit"] < 4]) <= {"j2-resnet", "j3-transformer"}
