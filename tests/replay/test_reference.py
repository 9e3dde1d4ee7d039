import gzip
import io
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bft.models import Curve, InputError, Job, JobTable, read_published_jobs
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
    run = replayed(reference, name)
    write_step_log(run, tmp_path / "step-logs.csv")
    assert (tmp_path / "step-logs.csv").read_bytes() == published
    steps = pd.read_csv(io.BytesIO(published), parse_dates=["evtTime"])
    ours = run.steps.assign(
        evtTime=run.steps["evtTime"].dt.tz_localize(None).astype(steps["evtTime"].dtype)
    )
    pd.testing.assert_frame_equal(ours, steps, check_dtype=False, rtol=1e-6, atol=1e-6)


@pytest.mark.reference
@pytest.mark.parametrize("name", HEURISTIC)
def test_the_heuristic_finishes_the_jobs_of_the_published_program(reference, name):
    golden = json.loads(recorded(reference, name, "golden.json"))
    run = replayed(reference, name)
    assert len(run.steps) == golden["events_handled"]
    assert run.decisions == golden["alloc_calls"]
    assert (run.start_nodes, run.start_jobs) == (
        golden["init_nodes"],
        golden["init_jobs"],
    )
    assert str(pd.Timestamp(run.start_ns)) == golden["t_first"]
    names = [job.name for job in run.jobs]
    finished = {
        name: str(pd.Timestamp(ns))
        for name, ns in zip(names, run.finish_ns, strict=True)
        if ns is not None
    }
    assert finished == {name: when for name, when, _ in golden["done"]}
    assert len(finished) == golden["n_done"]
    progress = dict(zip(names, run.progress, strict=True))
    assert {name: progress[name] for name in golden["progress"]} == pytest.approx(
        golden["progress"], rel=1e-12
    )
    assert run.total_progress == pytest.approx(golden["total_progress"], rel=1e-12)


@pytest.mark.reference
@pytest.mark.parametrize("name", HEURISTIC[:3])
def test_the_trace_has_the_rows_that_the_published_program_keeps(reference, name):
    folder = reference / "bftrainer"
    golden = json.loads(recorded(reference, name, "golden.json"))
    trace = select_nodes(summit(folder), 0, RUNS[name][1])
    assert len(trace) == golden["dedup_rows"]
    assert trace.times[0] == trace.start


@pytest.mark.reference
@pytest.mark.parametrize("name", MILP)
def test_milp_decisions_yield_the_published_outcome_within_two_percent(reference, name):
    # The jobs are identical, so that decisions tie at once and every solver serves another job first: the time at
    # which a given job finishes is the solver's taste. What all of them have done by any time is not.
    published = recorded(reference, name, "step-logs.csv.gz")
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


@pytest.mark.reference
@pytest.mark.parametrize("name", MILP)
def test_milp_decisions_finish_as_many_jobs_with_the_published_progress(
    reference, name
):
    golden = json.loads(recorded(reference, name, "golden.json"))
    run = replayed(reference, name)
    assert run.total_progress == pytest.approx(golden["total_progress"], rel=0.02)
    assert sum(ns is not None for ns in run.finish_ns) == golden["n_done"]
    assert str(pd.Timestamp(run.start_ns)) == golden["t_first"]


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


def nodes(*rows: tuple[float, str]) -> NodeTrace:
    """A trace from rows such as (0, "110"): second, and one digit a node."""
    times, node, idle = [], [], []
    for second, states in rows:
        for index, state in enumerate(states):
            times.append(T0 + int(second * SECOND))
            node.append(index)
            idle.append(state == "1")
    names = [f"n{i}" for i in range(len(rows[0][1]))]
    return from_changes(
        names, np.array(times), np.array(node, dtype=np.int32), np.array(idle)
    )


def heuristic(trace: NodeTrace, *jobs: Job, **options) -> ReferenceRun:
    return replay_reference(trace, JobTable(jobs), tfwd_s=10, **options)


def test_the_first_job_pays_tcup_times_its_new_rate_and_later_starts_are_free():
    trace = nodes((0, "110000"), (10, "111100"), (20, "111111"))
    run = heuristic(trace, job("a"), job("b", submit_s=5))
    # 10 s at 20/s, less 2 s at its new rate of 20/s
    assert run.steps["Thr"][0] == 10 * 20 - 2 * 20
    # a keeps its 2 nodes; b starts from 0, which costs nothing in this row ...
    assert run.steps["ReScost"][0] == 0
    # ... nor in the next.
    assert run.steps["Thr"][1] == 10 * (20 + 20)


def test_a_start_without_idle_nodes_is_a_row_of_its_own():
    run = heuristic(nodes((0, "00"), (10, "11"), (20, "01")), job("a"))
    assert (run.start_nodes, run.start_jobs) == (0, 1)
    assert list(run.steps["evt"]) == [1, 2]
    assert list(run.steps["Thr"]) == [0, 10 * 20 - 3 * 20]


def test_at_the_start_the_first_job_gets_all_nodes_up_to_jmax():
    run = heuristic(nodes((0, "1111"), (10, "0111"), (20, "0110")), job("a", jmax=3))
    # The surplus is freed from the lowest column: node 0 leaves without a preemption, node 3 does not.
    assert list(run.steps["Npre"]) == [0, 1]
    assert list(run.steps["nNrun"]) == [3, 2]
    assert run.steps["Thr"][0] == 10 * 30 - 2 * 30


def test_rescale_cost_is_deducted_at_the_next_event_however_short():
    run = heuristic(nodes((0, "1000"), (10, "1111"), (11, "1110")), job("a"))
    # grown from 1 to 4 nodes: Tcup 2 s at the rate before of 10/s
    assert list(run.steps["ReScost"]) == [20, 0]
    assert run.steps["Thr"][0] == 10 * 10 - 2 * 10
    # 1 s at 40/s, less 20, less the preemption, Tcdw 3 s at 40/s: progress goes back
    assert run.steps["Thr"][1] == 40 - 20 - 120
    assert run.progress == [-20.0]


def test_shrinking_by_decision_costs_tcdw_times_the_rate_before():
    run = heuristic(
        nodes((0, "11110"), (10, "11111"), (20, "11110")),
        job("a"),
        job("b", submit_s=10),
    )
    # 5 nodes for 2: quotas of 2, the odd one to the first in play. a shrinks from 4 to 3.
    assert run.steps["ReScost"][0] == 3 * 40
    assert run.steps["Rate"][0] == 30 + 20


def test_preemption_costs_once_per_job_and_event():
    run = heuristic(nodes((0, "1111"), (10, "1000"), (20, "1001")), job("a"))
    assert (run.steps["Nleft"][0], run.steps["Npre"][0]) == (3, 1)
    assert run.steps["PreCost"][0] == 3 * 40
    assert run.steps["Thr"][0] == 10 * 40 - 2 * 40 - 3 * 40
    # What was lost to preemption is no rescale.
    assert run.steps["ReScost"][0] == 0


def test_a_late_finish_is_seen_at_the_next_event_and_its_overshoot_is_lost():
    # Work of 100 is done after 2 + 5 s at 20/s, and seen at 60 s.
    run = heuristic(
        nodes((0, "110"), (60, "111"), (70, "110")),
        job("a", pmax=100),
        job("b", submit_s=50),
    )
    assert run.finish_ns == [T0 + 60 * SECOND, None]
    assert run.steps["Thr"][0] == 100
    assert run.steps["nJob"][0] == 1
    assert run.steps["nNrun"][0] == 3


def test_preemption_in_the_finishing_row_can_undo_the_finish():
    run = heuristic(nodes((0, "11"), (10, "10"), (20, "11")), job("a", pmax=150))
    # 160 were reached, 60 are lost with the node: done only at 20 s
    assert run.steps["Thr"][0] == 100
    assert run.finish_ns == [T0 + 20 * SECOND]


def test_the_last_row_logs_the_stale_rate_and_counts_nobody():
    run = heuristic(nodes((0, "11"), (60, "10"), (70, "11")), job("a", pmax=1150))
    # 1,100 at 60 s, then 10 s on one node
    last = run.steps.iloc[-1]
    assert len(run.steps) == 2
    assert (
        last["Rate"],
        last["nJob"],
        last["nJrun"],
        last["nNrun"],
        last["ReScost"],
    ) == (10, 0, 0, 0, 0)
    assert last["nNd"] == 2


def test_the_number_of_running_jobs_is_stale_while_nobody_is_in_play():
    trace = nodes((0, "110"), (10, "111"), (20, "110"), (30, "111"))
    run = heuristic(trace, job("a", pmax=300), job("b", submit_s=25))
    assert list(run.steps["nJob"]) == [1, 0, 1]
    assert list(run.steps["nJrun"]) == [1, 1, 1]
    assert list(run.steps["nNrun"]) == [3, 0, 3]
    assert list(run.steps["Rate"]) == [30, 0, 30]


def test_the_stale_number_of_running_jobs_is_0_from_a_row_without_idle_nodes_on() -> (
    None
):
    trace = nodes(
        (0, "110"),
        (10, "111"),
        (20, "110"),
        (30, "000"),
        (40, "110"),
        (50, "100"),
        (60, "111"),
        (70, "110"),
    )
    run = heuristic(trace, job("a", pmax=300), job("b", submit_s=55))
    assert list(run.steps["nJob"]) == [1, 0, 0, 0, 0, 1, 1]
    assert list(run.steps["nNd"]) == [3, 2, 0, 2, 1, 3, 2]
    assert list(run.steps["nJrun"]) == [1, 1, 0, 0, 0, 1, 1]


def test_running_jobs_are_those_with_any_node_also_below_jmin():
    run = heuristic(nodes((0, "10"), (10, "00"), (20, "10")), job("a", jmin=2))
    # At the start it gets the one node there is, and runs on it.
    assert run.steps["Thr"][0] == 10 * 10 - 2 * 10 - 3 * 10
    # The heuristic gives it nothing below Jmin.
    assert (run.steps["nJrun"][1], run.steps["nNrun"][1]) == (0, 0)


@pytest.mark.parametrize(
    ("idle", "jmin", "shares"),
    [
        (4, 1, [2, 2]),
        (4, 2, [4, 0]),  # a quota equal to Jmin gives 0: the leftovers go to the first
        (2, 1, [2, 0]),  # the same at Jmin 1
        (6, 2, [3, 3]),
        (20, 1, [8, 8]),
        (3, 4, [0, 0]),  # leftovers skip whom they would leave below Jmin
        (5, 4, [5, 0]),
    ],
)
def test_the_heuristic_shares_as_published(idle, jmin, shares):
    states = ReferenceRun(
        nodes((0, "1" * idle)),
        JobTable((job("a", jmin=jmin), job("b", jmin=jmin))),
        10,
        10,
        None,
    )
    states.join(np.arange(idle))
    states.admit()
    states.decide()
    assert states.held == shares


def test_leftovers_skip_a_job_that_would_stay_below_its_jmin():
    states = ReferenceRun(
        nodes((0, "111")), JobTable((job("big", jmin=5), job("small"))), 10, 10, None
    )
    states.join(np.arange(3))
    states.admit()
    states.decide()
    assert states.held == [0, 3]


def test_nodes_are_released_and_taken_from_the_lowest_column_in_order_of_joining():
    states = ReferenceRun(
        nodes((0, "11111")), JobTable((job("a"), job("b"))), 10, 10, None
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


def test_jobs_enter_in_the_order_of_the_table_while_there_is_room():
    trace = nodes((0, "1100"), (10, "1110"), (20, "1111"), (30, "0111"))
    run = heuristic(
        trace, job("a", pmax=300), job("b", submit_s=15), job("c"), max_jobs=1
    )
    # c is submitted before b, but b stands before it when a has finished at 20 s.
    assert list(run.steps["nJob"]) == [1, 1, 1]
    assert run.progress[2] == 0
    assert run.progress[1] == 10 * 40 - 3 * 40


def test_more_nodes_than_the_curve_has_stop_the_replay():
    with pytest.raises(
        InputError, match="job a: 3 nodes lie beyond the last point of its curve, 2"
    ):
        heuristic(nodes((0, "110"), (10, "111")), job("a", last=2))


def test_the_milp_stays_on_the_curve():
    run = heuristic(
        nodes((0, "110"), (10, "111")), job("a", last=2), use_milp=True, backend="exact"
    )
    assert run.steps["nNrun"][0] == 2


def test_the_milp_weighs_the_window_and_the_heuristic_does_not():
    trace = nodes((0, "10"), (10, "11"), (20, "10"))

    def given(tfwd_s: float, *, use_milp: bool) -> int:
        run = replay_reference(
            trace,
            JobTable((job("a"),)),
            tfwd_s=tfwd_s,
            use_milp=use_milp,
            backend="exact",
        )
        return int(run.steps["nNrun"][0])

    # Growing from 1 to 2 nodes gains 10/s and costs 2 s at 10/s: it pays after 2 s.
    assert [given(tfwd_s, use_milp=True) for tfwd_s in (1, 3)] == [1, 2]
    assert [given(tfwd_s, use_milp=False) for tfwd_s in (1, 3)] == [2, 2]


def test_a_decision_that_runs_into_the_time_limit_keeps_the_map(monkeypatch):
    solve = compat.milp.solve

    def timed_out(problem, **options):
        solution = solve(problem, backend="exact")
        return compat.milp.Solution(
            "feasible", solution.counts, solution.objective, np.inf, "cbc", "modes"
        )

    monkeypatch.setattr(compat.milp, "solve", timed_out)
    run = heuristic(
        nodes((0, "10"), (10, "11"), (20, "10")),
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
        (40 * i, "".join("01"[int(cell)] for cell in row))
        for i, row in enumerate(states)
    ]
    return nodes(*rows), JobTable(
        tuple(
            job(f"j{i}", pmax=20000, submit_s=90 * i, jmin=1 + i % 3) for i in range(30)
        )
    )


@pytest.mark.parametrize("use_milp", [False, True])
def test_throughput_sums_to_the_total_progress(use_milp):
    trace, jobs = busy_trace()
    run = replay_reference(
        trace, jobs, tfwd_s=60, max_jobs=4, use_milp=use_milp, backend="exact"
    )
    assert 0 < sum(ns is not None for ns in run.finish_ns) < len(jobs)
    assert run.steps["Thr"].sum() == pytest.approx(run.total_progress, rel=1e-9)
    assert all(
        done == job.pmax
        for job, done, ns in zip(jobs, run.progress, run.finish_ns, strict=True)
        if ns
    )
    assert all(
        done < job.pmax
        for job, done, ns in zip(jobs, run.progress, run.finish_ns, strict=True)
        if not ns
    )
    assert (run.steps["nNrun"] <= run.steps["nNd"]).all()
    assert (
        run.steps["nNd"].diff()[1:] == (run.steps["Njoin"] - run.steps["Nleft"])[1:]
    ).all()


@pytest.mark.parametrize("use_milp", [False, True])
def test_the_same_input_gives_the_same_bytes(use_milp, tmp_path):
    trace, jobs = busy_trace()
    for name in ("a", "b"):
        run = replay_reference(
            trace, jobs, tfwd_s=60, use_milp=use_milp, backend="exact"
        )
        write_step_log(run, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_step_log_has_the_published_form(tmp_path):
    run = heuristic(nodes((0, "1000"), (10, "1111"), (12.5, "1110")), job("a"))
    write_step_log(run, tmp_path / "step-logs.csv")
    assert (tmp_path / "step-logs.csv").read_text().splitlines()[:2] == [
        ",".join(STEP_LOG_COLUMNS),
        "2021-02-10 20:21:25,80.000000,40.000000,20.000000,1,0,0,3,1,4,1,4,0.000000",
    ]


def test_a_trace_without_events_logs_nothing(tmp_path):
    run = heuristic(nodes((0, "00")), job("a"))
    write_step_log(run, tmp_path / "step-logs.csv")
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


def test_room_for_no_job_is_refused():
    with pytest.raises(InputError, match="-maxJ must be at least 1, not 0"):
        heuristic(nodes((0, "1"), (10, "0")), job("a"), max_jobs=0)


def test_nodes_of_several_units_are_refused():
    with pytest.raises(
        InputError, match="allocates whole nodes, but the trace has 8 units a node"
    ):
        heuristic(replace(nodes((0, "1"), (10, "0")), units_per_node=8), job("a"))
