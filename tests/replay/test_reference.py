import gzip
import io
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from worlds import close, pairs, variants

from bft.models import Curve, Job, JobTable, read_published_jobs
from bft.replay import reference as compat
from bft.replay.reference import (
    STEP_LOG_COLUMNS,
    ReferenceRun,
    replay_reference,
    write_step_log,
)
from bft.replay.trace.node_trace import NodeTrace, from_changes
from bft.replay.trace.trace_files import read_trace, select_nodes

SECOND = 10**9
T0 = int(pd.Timestamp("2021-02-10T20:21:15Z").value)
SMALL = "hps-shufflenet-{}-10J.pkl"
# Recorded runs: job tables, first nodes, -Tfwd.
RUNS = {
    "hps10-ndf-nN16-T10": (SMALL, 16, 10),
    "hps10-ndf-nN64-T120": (SMALL, 64, 120),
    "hps10-ndf-nN128-T10": (SMALL, 128, 10),
    "img-imgps-ndf-J10-nN128-T10": ("ImageNet-imgps-{}-1001J.pkl", 128, 10),
    "hps10-grb-nN16-T120": (SMALL, 16, 120),
    "hps10-cbc-nN128-T120-tl120": (SMALL, 128, 120),
}
HEURISTIC = [name for name in RUNS if "ndf" in name]
MILP = [name for name in RUNS if "ndf" not in name]
QUIRKS = Path(__file__).parents[1] / "data" / "published_quirks.toml"


# --- against the published program's own output -------------------------------------------------------------------


@cache
def summit(folder: Path) -> NodeTrace:
    return read_trace(folder / "ndstat-10sdn6-evt.tar.gz", skip_rows=1000)


@cache
def replayed(reference: Path, name: str) -> ReferenceRun:
    """Our replay with the options of a recorded run."""
    folder = reference / "bftrainer"
    jobs, nodes, window_s = RUNS[name]
    return replay_reference(
        select_nodes(summit(folder), 0, nodes),
        read_published_jobs(folder / jobs.format("Jbnd"), folder / jobs.format("JNPs")),
        tfwd_s=window_s,
        max_jobs=10,
        use_milp=name in MILP,
        backend="exact",
    )


def recorded(reference: Path, name: str, file: str) -> bytes:
    """A file that the published program wrote, or an account of what it did; skipped where it is not there."""
    path = reference / "bftrainer" / "golden" / name / file
    if not path.is_file():
        pytest.skip(f"no reference data at {path}")
    content = path.read_bytes()
    return gzip.decompress(content) if file.endswith(".gz") else content


@pytest.mark.reference
@pytest.mark.parametrize("name", HEURISTIC)
def test_the_heuristic_agrees_with_the_published_program_to_the_letter(
    reference, name, tmp_path
):
    published = recorded(reference, name, "step-logs.csv.gz")
    write_step_log(replayed(reference, name), tmp_path / "step-logs.csv")
    assert (tmp_path / "step-logs.csv").read_bytes() == published


@pytest.mark.reference
@pytest.mark.parametrize("name", HEURISTIC)
def test_the_heuristic_finishes_the_jobs_of_the_published_program(reference, name):
    golden = json.loads(recorded(reference, name, "golden.json"))
    run = replayed(reference, name)
    trace = select_nodes(summit(reference / "bftrainer"), 0, RUNS[name][1])
    assert trace.times[0] == trace.start
    found = {
        "events_handled": len(run.steps),
        "alloc_calls": run.decisions,
        "init_nodes": run.start_nodes,
        "init_jobs": run.start_jobs,
        "t_first": str(pd.Timestamp(run.start_ns)),
        "n_done": sum(ns is not None for ns in run.finish_ns),
        "total_progress": pytest.approx(run.total_progress, rel=1e-12),
        "dedup_rows": len(trace),
    }
    assert {of: golden[of] for of in found if of in golden} == found
    names = [job.name for job in run.jobs]
    ends = zip(names, run.finish_ns, strict=True)
    finished = {name: str(pd.Timestamp(ns)) for name, ns in ends if ns is not None}
    assert finished == {name: when for name, when, _ in golden["done"]}
    progress = dict(zip(names, run.progress, strict=True))
    expected = pytest.approx(golden["progress"], rel=1e-12)
    assert {name: progress[name] for name in golden["progress"]} == expected


@pytest.mark.reference
@pytest.mark.parametrize("name", MILP)
def test_milp_decisions_yield_the_published_outcome_within_two_percent(reference, name):
    # The jobs are identical, so that decisions tie at once and every solver serves another job first: the time at
    # which a given job finishes is the solver's taste. What all of them have done by any time is not.
    published = recorded(reference, name, "step-logs.csv.gz")
    golden = json.loads(recorded(reference, name, "golden.json"))
    steps = pd.read_csv(io.BytesIO(published), parse_dates=["evtTime"])
    run = replayed(reference, name)
    ours = run.steps["evtTime"].dt.tz_localize(None)
    start, end = pd.Timestamp(run.start_ns), steps["evtTime"].iloc[-1]
    assert (ours.iloc[-1] - start) / (end - start) == pytest.approx(1, rel=0.02)
    for tenth in np.linspace(0.1, 1.0, 10):
        by = start + tenth * (end - start)
        done = run.steps["Thr"][ours <= by].sum()
        theirs = steps["Thr"][steps["evtTime"] <= by].sum()
        assert done == pytest.approx(theirs, rel=0.02)
    assert run.total_progress == pytest.approx(golden["total_progress"], rel=0.02)
    assert sum(ns is not None for ns in run.finish_ns) == golden["n_done"]
    assert str(start) == golden["t_first"]


# --- quirk by quirk, by hand --------------------------------------------------------------------------------------


def job(
    name: str,
    *,
    jmin: int = 1,
    jmax: int = 8,
    pmax: float = 1e9,
    submit_s: float = 0,
    last: int = 8,
) -> Job:
    """Rate 10 samples/s a node, Tcup 2 s, Tcdw 3 s."""
    curve = Curve(np.array([0.0, last]), np.array([0.0, 10.0 * last]))
    return Job(
        name, T0 + int(submit_s * SECOND), jmin, jmax, pmax, 2.0, 3.0, curve, curve
    )


def nodes(text: str) -> NodeTrace:
    """A trace from rows such as `0 110`: second, and one digit a node."""
    rows = [row.split() for row in text.split(",")]
    states = np.array([[cell == "1" for cell in cells] for _, cells in rows])
    times = [T0 + int(float(second) * SECOND) for second, _ in rows]
    count = states.shape[1]
    return from_changes(
        [f"n{i}" for i in range(count)],
        np.repeat(times, count),
        np.tile(np.arange(count, dtype=np.int32), len(rows)),
        states.ravel(),
    )


def heuristic(trace: NodeTrace, *jobs: Job, **options) -> ReferenceRun:
    return replay_reference(trace, JobTable(jobs), **{"tfwd_s": 10, **options})


@pytest.mark.parametrize("case", [*variants(QUIRKS)])
def test_quirk_by_quirk(case):
    trace, lines = nodes(case["nodes"]), case["jobs"].strip().splitlines()
    jobs = [job(name, **pairs(words)) for name, *words in map(str.split, lines)]
    if "held" in case:
        run = ReferenceRun(trace, JobTable(tuple(jobs)), 10, 10, None)
        run.join(np.arange(len(trace.nodes)))
        run.admit()
        run.decide()
        assert run.held == case["held"]
        return
    if "error" in case:
        refused(case["error"], heuristic, trace, *jobs, **case.get("options", {}))
        return
    run = heuristic(trace, *jobs, **case.get("options", {}))
    for name, expected in case["steps"].items():
        assert run.steps[name].tolist() == expected, name
    for name, expected in case.get("run", {}).items():
        assert getattr(run, name) == expected, name
    ends = [math.nan if ns is None else (ns - T0) / SECOND for ns in run.finish_ns]
    assert ends == close(case.get("finish", ends))


def test_nodes_are_released_and_taken_from_the_lowest_column_in_order_of_joining():
    states = ReferenceRun(
        nodes("0 11111"), JobTable((job("a"), job("b"))), 10, 10, None
    )
    states.join(np.array([3, 4]))
    states.join(np.array([0, 1]))
    states.admit()
    states.settle({0: 3, 1: 1})
    assert states.owner == {3: 0, 4: 0, 0: 0, 1: 1}
    states.settle(
        {1: 2, 0: 2}
    )  # 3 is released before anything is taken, whatever the order of the jobs
    assert states.owner == {3: 1, 4: 0, 0: 0, 1: 1}


def test_a_decision_that_runs_into_the_time_limit_keeps_the_map(monkeypatch):
    solve = compat.milp.solve

    def timed_out(problem, **options):
        solution = solve(problem, backend="exact")
        return compat.milp.Solution(
            "feasible", solution.counts, solution.objective, np.inf, "cbc", "modes"
        )

    monkeypatch.setattr(compat.milp, "solve", timed_out)
    run = heuristic(
        nodes("0 10, 10 11, 20 10"),
        job("a"),
        use_milp=True,
        time_limit=1.0,
    )
    assert list(run.steps["nNrun"]) == [1, 1]
    assert run.timeouts == run.decisions == 2


# --- the run as a whole -------------------------------------------------------------------------------------------


def busy_trace() -> tuple[NodeTrace, JobTable]:
    random = np.random.default_rng(7)
    states = random.random((200, 12)) < random.random((200, 1))
    rows = [
        f"{40 * i} {''.join('01'[int(cell)] for cell in row)}"
        for i, row in enumerate(states)
    ]
    return nodes(",".join(rows)), JobTable(
        tuple(
            job(f"j{i}", pmax=20000, submit_s=90 * i, jmin=1 + i % 3) for i in range(30)
        )
    )


@pytest.mark.parametrize("use_milp", [False, True])
def test_throughput_sums_to_the_total_progress_and_runs_repeat(use_milp, tmp_path):
    trace, jobs = busy_trace()
    options = {"tfwd_s": 60, "max_jobs": 4, "use_milp": use_milp, "backend": "exact"}
    run, again = (replay_reference(trace, jobs, **options) for _ in range(2))
    done = [ns is not None for ns in run.finish_ns]
    assert 0 < sum(done) < len(jobs)
    assert run.steps["Thr"].sum() == pytest.approx(run.total_progress, rel=1e-9)
    for job, progress, over in zip(jobs, run.progress, done, strict=True):
        assert progress == job.pmax if over else progress < job.pmax
    steps = run.steps
    assert (steps["nNrun"] <= steps["nNd"]).all()
    changes = steps["Njoin"] - steps["Nleft"]
    assert (steps["nNd"].diff()[1:] == changes[1:]).all()
    for name, each in (("a", run), ("b", again)):
        write_step_log(each, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_step_log_has_the_published_form(tmp_path):
    run = heuristic(nodes("0 1000, 10 1111, 12.5 1110"), job("a"))
    write_step_log(run, tmp_path / "step-logs.csv")
    assert (tmp_path / "step-logs.csv").read_text().splitlines()[:2] == [
        ",".join(STEP_LOG_COLUMNS),
        "2021-02-10 20:21:25,80.000000,40.000000,20.000000,1,0,0,3,1,4,1,4,0.000000",
    ]


def test_a_trace_without_events_logs_nothing(tmp_path):
    write_step_log(heuristic(nodes("0 00"), job("a")), tmp_path / "step-logs.csv")
    assert (tmp_path / "step-logs.csv").read_text() == ",".join(STEP_LOG_COLUMNS) + "\n"


def test_progress_is_reported_and_a_run_can_be_stopped():
    trace, jobs = busy_trace()
    told: list[tuple[int, int]] = []
    run = replay_reference(
        trace,
        jobs,
        tfwd_s=60,
        on_step=lambda instant, decisions: told.append((instant, decisions)),
        should_stop=lambda: len(told) == 5,
    )
    assert run.interrupted
    assert len(run.steps) == 5
    assert [instant for instant, _ in told] == trace.times[1:6].tolist()
    assert told[-1][1] == run.decisions
    assert not replay_reference(trace, jobs, tfwd_s=60).interrupted


def test_nodes_of_several_units_are_refused():
    several = replace(nodes("0 1, 10 0"), units_per_node=8)
    told = "allocates whole nodes, but the trace has 8 units a node"
    refused(told, heuristic, several, job("a"))
