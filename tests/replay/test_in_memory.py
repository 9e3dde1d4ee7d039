"""Inputs of a replay: whatever is left out, shifted, capped or without effect is reported and recorded."""

import json
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from worlds import pairs, variants

import bft
from bft.models import Curve, Job, JobTable, jobs_to_frame, write_parquet
from bft.models.workloads.rigid_jobs import rigid_job
from bft.replay import NodeTrace, always_idle, from_changes, write_trace
from bft.replay.inputs.shaping import spread
from bft.replay.trace.node_trace import SECOND_NS

START_NS = pd.Timestamp("2021-02-10").value
DAY_NS = 86_400 * SECOND_NS


def elastic(
    name: str,
    jmin: int = 1,
    jmax: int = 4,
    *,
    at: float = 0.0,
    seconds: float = 600.0,
    due: float | None = None,
    **more: Any,
) -> Job:
    """A job with its number of units as rate, and this much work in unit-seconds."""
    curve = Curve([0, jmax], [0, jmax])
    submit = START_NS + round(at * SECOND_NS)
    deadline = None if due is None else START_NS + round(due * SECOND_NS)
    usual = {"tcup_s": 0.0, "tcdw_s": 0.0, "deadline_ns": deadline, **more}
    return Job(
        name,
        submit,
        jmin,
        jmax,
        seconds,
        scalability=curve,
        objective=curve,
        **usual,
    )


def jobs_of(text: str) -> JobTable:
    """Jobs by their names and what they state: `a; b at=30`."""
    lines = map(str.split, text.split(";"))
    return JobTable(tuple(elastic(name, **pairs(words)) for name, *words in lines))


def give(jobs: JobTable | str, *, file: str = "jobs", days: float = 1.0) -> None:
    """Write a trace of four nodes that are always idle, and a job table."""
    end = START_NS + round(days * DAY_NS)
    write_trace(always_idle(4, START_NS, end), "trace.parquet")
    table = jobs_of(jobs) if isinstance(jobs, str) else jobs
    write_parquet(jobs_to_frame(table), Path(f"{file}.parquet"))


INPUT = "-ndmap trace.parquet --jobs jobs.parquet --no-u --force"
Told = Callable[..., str]
Noted = Callable[..., dict[str, Any]]


@pytest.fixture
def noted(told: Told, here: Path) -> Noted:
    """Replays, and returns the summary; each of these parts is in a note of standard error and summary."""

    def call(line: str, *parts: str) -> dict[str, Any]:
        said = told(line)
        summary: dict[str, Any] = json.loads(
            Path("debug-itrOut/summary.json").read_text("utf-8")
        )
        for part in parts:
            (note,) = [note for note in summary["notes"] if part in note]
            assert f"note: {note}" in said
        return summary

    return call


def test_notes_stand_in_the_report(told: Told, noted: Noted) -> None:
    give("a; b at=600; wide jmin=9 jmax=12")
    more = "--option scale-arrivals=30 --option oversized=skip --option align-jobs=yes"
    notes = noted(f"{INPUT} --policy fifo {more}")["notes"]
    told("report debug-itrOut -o page.html")
    page = unescape(Path("page.html").read_text("utf-8"))
    assert len(notes) > 2
    assert not [note for note in notes if note not in page]


def jobs_run() -> pd.DataFrame:
    return pd.read_parquet("debug-itrOut/jobs.parquet").set_index("name")


# --- what is said -----------------------------------------------------------------------------------------------------

SAID = Path(__file__).parents[1] / "data" / "said.toml"


@pytest.mark.parametrize("case", [*variants(SAID)])
def test_what_a_replay_says(case: dict[str, Any], told: Told, noted: Noted) -> None:
    give(case["jobs"])
    line = f"{case.get('input', INPUT)} {case.get('options', '')}"
    if "refused" in case:
        told(line, *case["refused"], code=2)
        assert not Path("debug-itrOut").exists()
        return
    summary = noted(line, *case["told"])
    assert case["told"] or not summary["notes"]
    if "finished" in case:
        finish = jobs_run()["start"].dropna()
        assert sorted(finish.index) == case["finished"]
        assert summary["metrics"]["jobs_finished"] == len(finish)
        assert summary["inputs"]["jobs"]["never_run"] == ["wide"]


@pytest.mark.parametrize("way", ["flags", "config", "python"])
def test_job_tables_given_together_are_joined(
    here: Path, way: str, told: Told, noted: Noted
) -> None:
    give("c at=60", file="more")
    give("a; b")
    files = ["jobs.parquet", "more.parquet"]
    if way == "python":
        made = bft.replay("trace.parquet", files, dedicated=False)
        summary, names = made.summary, made.jobs.index
    else:
        flags = " ".join(f"--jobs {file}" for file in files)
        if way == "config":
            Path("site.toml").write_text(f"jobs = {json.dumps(files)}\n")
            flags = "--config site.toml"
        summary = noted(f"-ndmap trace.parquet {flags} --no-u")
        names = jobs_run().index
    assert list(names) == ["a", "b", "c"]
    assert summary["options"]["jobs"] == files
    assert summary["inputs"]["jobs"]["source"] == "jobs.parquet, more.parquet"
    assert len(summary["inputs"]["digests_sha256"]["jobs"]) == 64
    give("c at=60; b", file="more")
    taken = "jobs.parquet, more.parquet, row 4, job b: the name appears twice"
    told(f"{INPUT} --jobs more.parquet", taken, code=2)


def test_control_characters_of_names_do_not_reach_the_terminal(
    here: Path, told: Told
) -> None:
    give(JobTable((elastic("a\x1b[2J"), elastic("b\x1b[2J", tcup_s=40_000.0))))
    told_so = ("job b\\u001b[2J: Tcup", "a\\u001b[2J")
    assert "\x1b" not in told(f"{INPUT} --policy equal-share", *told_so)


def test_cells_of_an_exported_table_are_no_formulas(here: Path, told: Told) -> None:
    give("a")
    told(
        "compare --workers 0 --cluster 1x4 --jobs jobs.parquet --variant '=HYPERLINK(1): --policy fifo'"
        " --variant 'b: --policy sjf' -o table.csv"
    )
    text = Path("table.csv").read_text("utf-8")
    assert text.count("=HYPERLINK") == text.count("'=HYPERLINK(1)") > 0


# --- jobs and the window of the trace ---------------------------------------------------------------------------------


def test_align_jobs_shifts_the_first_submit_to_the_first_instant(noted: Noted) -> None:
    give("b at=-2591500; a at=-2592000 due=-2505600")
    shifted = "--option align-jobs=yes: all jobs are submitted 30 days later"
    summary = noted(f"{INPUT} --option align-jobs=yes", shifted)
    assert summary["options"]["align_jobs"] is True
    jobs = jobs_run()
    submits = jobs.loc[["a", "b"], "submit"].astype("int64") - START_NS
    assert list(submits) == [0, 500 * SECOND_NS]
    assert jobs["jct_s"].max() < 3600


def test_deadlines_shift_with_their_jobs() -> None:
    jobs = replace(jobs_of("a due=86400; b"), notes=("as read",))
    jobs = jobs.at(job.tsub_ns + 7 for job in jobs)
    assert [job.deadline_ns for job in jobs] == [START_NS + DAY_NS + 7, None]
    assert jobs.notes == ("as read",)


@examples(50)
@given(
    st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=6), st.floats(0, 100)
)
def test_spread_submissions_keep_the_first_and_their_order_and_scale_the_distances(
    instants: list[int], factor: float
) -> None:
    jobs = JobTable(
        tuple(
            replace(elastic(str(k), due=0), tsub_ns=at) for k, at in enumerate(instants)
        )
    )
    later = spread(jobs, factor)
    first = min(instants)
    assert min(job.tsub_ns for job in later) == first
    for before, after in zip(jobs, later, strict=True):
        assert after.tsub_ns - first == pytest.approx(
            (before.tsub_ns - first) * factor, abs=0.5, rel=1e-12
        )
        assert after.deadline_ns is not None
        assert after.deadline_ns - after.tsub_ns == START_NS - before.tsub_ns
    assert later.by_submit() == jobs.by_submit() or factor < 1
    assert [job.tsub_ns for job in spread(jobs, 1.0)] == instants


def test_spread_submissions_are_reported(noted: Noted) -> None:
    give("a; b at=600")
    longer = "--option scale-arrivals=30: jobs are submitted over 5 h, not 10 min"
    noted(f"{INPUT} --option scale-arrivals=30", longer)
    assert jobs_run()["submit"].diff()["b"] == pd.Timedelta(hours=5)


def test_a_trace_of_one_instant_is_refused(here: Path, told: Told) -> None:
    give("a", days=0)
    told(INPUT, "no time passes in the trace", code=2)


# --- jobs that can never run ------------------------------------------------------------------------------------------


def test_cap_runs_an_oversized_job_on_the_available_units(noted: Noted) -> None:
    give("first seconds=60; wide jmin=9 jmax=12 at=10; behind at=20; last at=30")
    capped_so = "wide (10); they run on 4 (--option oversized=cap)"
    summary = noted(f"{INPUT} --policy fifo --option oversized=cap", capped_so)
    assert summary["metrics"]["jobs_finished"] == 4
    held = pd.read_parquet("debug-itrOut/allocations.parquet").set_index("job")
    assert held.loc["wide", ["first_unit", "last_unit"]].tolist() == [0, 3]


def test_more_than_is_ever_idle_is_too_large_though_the_machine_is_larger(
    noted: Noted,
) -> None:
    give("three jmin=3; two jmin=2")
    rows = [f"2021-02-10T00:00:00Z,{node},{node in 'ab'}\n" for node in "abcd"]
    text = "".join(["time,node,idle\n", *rows, "2021-02-10T06:00:00Z,a,False\n"])
    Path("trace.csv").write_text(text)
    line = INPUT.replace("trace.parquet", "trace.csv")
    more = (
        "1 job needs more units than the 2 of 4 that are ever idle at once: three (3)"
    )
    noted(line, more)
    of_one = "2 jobs need more units than the 1 there are: three (3), two (2)"
    noted(f"{line} -nN 1", of_one)


def test_virtual_clusters_have_sizes_of_their_own(told: Told, noted: Noted) -> None:
    names = {"a": "p", "b": "q", "c": "p"}
    jobs = [
        replace(rigid_job(name, START_NS, 3, 60.0), vc=vc) for name, vc in names.items()
    ]
    give(JobTable(tuple(jobs)))
    Path("cluster.csv").write_text("vc,nodes,units_per_node\np,1,2\nq,1,4\n")
    line = "--cluster cluster.csv --jobs jobs.parquet --force --policy fifo"
    told(line, "2 jobs need more units than the 2 there are in p: a (3), c (3)", code=2)
    skipped = noted(f"{line} --option oversized=skip")
    assert skipped["metrics"]["jobs_finished"] == 1
    assert skipped["inputs"]["jobs"]["never_run"] == ["a", "c"]
    assert noted(f"{line} --option oversized=cap")["metrics"]["jobs_finished"] == len(
        jobs
    )
    assert set(jobs_run()["jct_s"]) == {60.0, 120.0}


def test_the_replay_for_u_does_not_starve_on_a_job_larger_than_its_nodes(
    noted: Noted,
) -> None:
    # Four nodes idle for a quarter of the time are one dedicated node.
    times = pd.date_range("2021-02-10", periods=9, freq="3h")
    idle = pd.Series([1, 0, 0, 0, 1, 0, 0, 0, 0], times)
    names = [f"n{k}" for k in range(4)]
    give("; ".join(f"j{k} jmin=4 seconds=40000" for k in range(3)))
    pd.DataFrame(dict.fromkeys(names, idle)).to_csv("trace.csv", index_label="time")
    line = "-ndmap trace.csv --jobs jobs.parquet --policy fifo"
    summary = noted(line, "for U, 3 jobs that need more than the 1 dedicated nodes")
    assert summary["metrics"]["dedicated_outcome"] > 0


# --- rows left out by readers of job tables ---------------------------------------------------------------------------

LEFT_OUT = {
    "tiresias": (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,2,0,10,a,60,1\n2,0,5,10,a,60,1\n",
        "jobs left out: 1 without GPUs or duration",
    ),
    "venus": (
        "job_id,gpu_num,submit_time,duration\n1,2,0,60\n2,0,5,60\n3,1,9,0\n",
        "jobs left out: 2 without GPUs or duration",
    ),
    "swf": (
        "1 0 0 60 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1\n2 5 0 0 2 -1 -1 2 -1 -1 0 1 1 1 1 1 -1 -1\n",
        "jobs left out: 1 that never ran",
    ),
    "philly": (
        json.dumps(
            [
                {"jobid": "a", "submitted_time": "2017-10-07 01:11:39", "status": "Pass", "vc": "v", "user": "u",
                 "attempts": [{"start_time": "2017-10-07 01:12:00", "end_time": "2017-10-07 02:12:00",
                               "detail": [{"ip": "m", "gpus": ["g0", "g1"]}]}]},
                {"jobid": "b", "submitted_time": "2017-10-07 01:11:39", "status": "Killed", "vc": "v", "user": "u",
                 "attempts": []},
            ]
        ),
        "jobs left out: 1 without an attempt that has GPUs, start and end",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_rows_that_a_reader_leaves_out_are_reported_and_recorded(
    kind: str, noted: Noted
) -> None:
    text, expected = LEFT_OUT[kind]
    file = {"swf": "jobs.txt", "philly": "jobs.json"}.get(kind, "jobs.csv")
    Path(file).write_text(text)
    read = f"--cluster 2x2 --jobs {file} --jobs-format {kind}"
    noted(f"{read} --policy fifo", expected)


# --- columns, costs and backends --------------------------------------------------------------------------------------


def test_a_misspelt_column_ends_the_command_and_an_unknown_one_gets_a_note(
    told: Told, noted: Noted
) -> None:
    give("a")
    frame = pd.read_parquet("jobs.parquet")
    frame.assign(jreq=2).to_parquet("jobs.parquet")
    differs = "Error: jobs.parquet, column jreq: no such column; did you mean 'Jreq'?"
    told(INPUT, differs, code=2)
    frame.assign(colour="red").to_parquet("jobs.parquet")
    unknown = "column colour of jobs.parquet: unknown here"
    noted(INPUT, unknown)
    # Of a published pair too.
    pair = "-bdfn jobs.parquet -scfn jobs.parquet"
    noted(INPUT.replace("--jobs jobs.parquet", pair), unknown)


def test_a_growth_that_costs_more_than_most_nodes_are_idle_for_is_reported_with_both_figures(
    noted: Noted,
) -> None:
    give("a jmax=3 seconds=1e9 tcup_s=18000.0 tcdw_s=9000.0")
    # One node stays, two come and go every ten minutes: of 1 + 2 * 12 fragments most last 600 s.
    write_trace(coming_and_going(), "trace.parquet")
    for options in ("-maxJ 0", "--preset best"):
        noted(
            f"{INPUT} --backend exact {options}",
            "a growth costs a job Tcup, 18,000 s in the median, and half of the idle fragments last 600 s or less, so "
            "that hardly any growth can pay; are Tcup and Tcdw in seconds?",
        )


def coming_and_going() -> NodeTrace:
    """A node that is idle for four hours, and two that are idle for ten minutes of every twenty."""
    changes = [(0, 0, True)]
    for turn in range(12):
        changes += [
            (1200 * turn + 600 * back, node, not back)
            for back in (0, 1)
            for node in (1, 2)
        ]
    times, nodes, idle = zip(*sorted(changes), strict=True)
    at = START_NS + np.array(times) * SECOND_NS
    ids = np.array(nodes, dtype=np.int32)
    return from_changes(
        ["n0", "n1", "n2"], at, ids, np.array(idle), end=START_NS + 4 * 3600 * SECOND_NS
    )


def test_an_unavailable_backend_is_refused_before_any_file_is_read(
    told: Told, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the extra is not installed.
    monkeypatch.setattr("bft.milp.backends.registry.find_spec", lambda package: None)
    told(
        "-ndmap nowhere.parquet --jobs nowhere.csv --backend CBC",
        "--backend cbc is not available here (EPL 2.0); there are highs, exact",
        "pip install",
        code=2,
    )
    # Nobody asks it: no reason to refuse.
    give("a")
    noted(f"{INPUT} --policy fifo --backend cbc")


def test_an_unknown_format_gets_a_suggestion_too(told: Told, noted: Noted) -> None:
    told("ingest slrum log.txt -o trace.parquet", "did you mean 'slurm'?", code=2)
    row = "a,2021-02-10T00:00:00Z,2021-02-10T01:00:00Z,idle\n"
    Path("idle.csv").write_text(f"node,start,end,state\n{row}")
    told("ingest Intervals idle.csv -o idle.parquet --tz UTC")
    give("a")
    assert noted(f"{INPUT} --policy EQUAL-share")["options"]["policy"] == "equal-share"


def test_a_job_that_is_too_large_is_left_out_only_if_it_comes_before_the_end() -> None:
    jobs = jobs_of("a; b jmin=9 jmax=9; c jmin=9 jmax=9 at=777600")
    trace = always_idle(4, START_NS, START_NS + DAY_NS)
    census = bft.replay(trace, jobs, oversized="skip", dedicated=False).metrics[
        "census"
    ]
    counts = ("jobs", "submitted", "left_out", "in_system")
    assert [census[of] for of in counts] == [3, 2, 1, 1]
