"""Inputs of a replay: whatever is left out, shifted, capped or without effect is reported and recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
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

import bft
from bft.models import Curve, Job, JobTable, jobs_to_frame
from bft.models.tables import write_parquet
from bft.models.workloads.rigid_jobs import rigid_job
from bft.replay import NodeTrace, always_idle, from_changes, write_trace
from bft.replay.cli.main import run
from bft.replay.inputs.shaping import capped, spread
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
    **more: Any,
) -> Job:
    """A job with its number of units as rate, and this much work in unit-seconds."""
    curve = Curve(np.array([0.0, float(jmax)]), np.array([0.0, float(jmax)]))
    submit = START_NS + round(at * SECOND_NS)
    return Job(name, submit, jmin, jmax, seconds, 0.0, 0.0, curve, curve, **more)


def give(jobs: Sequence[Job], *, nodes: int = 4, days: float = 1.0) -> None:
    """Write a trace of nodes that are always idle, and a job table."""
    write_trace(
        always_idle(nodes, START_NS, START_NS + round(days * DAY_NS)), "trace.parquet"
    )
    write_parquet(jobs_to_frame(JobTable(tuple(jobs))), Path("jobs.parquet"))


INPUT = ["-ndmap", "trace.parquet", "--jobs", "jobs.parquet", "--no-u", "--force"]


class Said:
    """What one command said, and where."""

    def __init__(self, args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        capsys.readouterr()
        self.code = run(args)
        self.err = capsys.readouterr().err
        path = Path("debug-itrOut/summary.json")
        self.summary: dict[str, Any] = (
            json.loads(path.read_text("utf-8")) if self.code == 0 else {}
        )
        self.finished = self.summary.get("metrics", {}).get("jobs_finished")

    def everywhere(self, text: str) -> bool:
        """Whether standard error, the summary and the report say so."""
        assert self.code == 0, self.err
        notes = [note for note in self.summary["notes"] if text in note]
        if self.summary["options"]["compat"] == "reference":
            return len(notes) == 1 and f"note: {notes[0]}" in self.err
        assert run(["report", "debug-itrOut", "-o", "page.html", "--force"]) == 0
        page = Path("page.html").read_text("utf-8")
        return (
            len(notes) == 1
            and f"note: {notes[0]}" in self.err
            and notes[0] in unescape(page)
        )


# --- several tables ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["flags", "config", "python"])
def test_job_tables_given_together_are_joined(
    here: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("c", at=60)])
    Path("jobs.parquet").rename("more.parquet")
    give([elastic("a"), elastic("b")])
    files = ["jobs.parquet", "more.parquet"]
    if way == "python":
        run_ = bft.replay("trace.parquet", files, dedicated=False)
        summary, jobs = run_.summary, run_.jobs.reset_index()
    else:
        flags = [word for file in files for word in ("--jobs", file)]
        if way == "config":
            Path("site.toml").write_text(f"jobs = {json.dumps(files)}\n")
            flags = ["--config", "site.toml"]
        said = Said([*INPUT[:2], *flags, "--no-u"], capsys)
        summary, jobs = said.summary, pd.read_parquet("debug-itrOut/jobs.parquet")
    assert list(jobs["name"]) == ["a", "b", "c"]
    assert summary["options"]["jobs"] == files
    assert summary["inputs"]["jobs"]["source"] == "jobs.parquet, more.parquet"
    assert len(summary["inputs"]["digests_sha256"]["jobs"]) == 64


def test_jobs_of_tables_given_together_have_different_names(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("c", at=60), elastic("b")])
    Path("jobs.parquet").rename("more.parquet")
    give([elastic("a"), elastic("b")])
    said = Said([*INPUT, "--jobs", "more.parquet"], capsys)
    assert said.code == 2
    said_of = "jobs.parquet, more.parquet, row 4, job b: the name appears twice"
    assert said_of in said.err


def test_milliseconds_taken_for_seconds_are_asked_about(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([replace(elastic("a"), tcup_s=3600.0), replace(elastic("b"), tcup_s=40_000.0)])
    said = Said(INPUT, capsys)
    assert said.everywhere(
        "job b: Tcup is 40,000 s, 11.1 h for one rescale: are these milliseconds?"
    )


def test_control_characters_of_names_do_not_reach_the_terminal(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("a\x1b[2J"), replace(elastic("b\x1b[2J"), tcup_s=40_000.0)])
    assert run([*INPUT, "--policy", "equal-share"]) == 0
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "job b\\u001b[2J: Tcup" in said.err
    assert "a\\u001b[2J" in said.out


def test_cells_of_an_exported_table_are_no_formulas(here: Path) -> None:
    give([elastic("a")])
    variants = [
        "--variant",
        "=HYPERLINK(1): --policy fifo",
        "--variant",
        "b: --policy sjf",
    ]
    table = ["compare", "--cluster", "1x4", "--jobs", "jobs.parquet", *variants]
    assert run([*table, "-o", "table.csv"]) == 0
    text = Path("table.csv").read_text("utf-8")
    assert "'=HYPERLINK(1)" in text
    assert text.count("=HYPERLINK") == text.count("'=HYPERLINK")


# --- jobs and the window of the trace ---------------------------------------------------------------------------------


def test_jobs_submitted_before_the_trace_are_counted_with_how_long_before(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give(
        [
            elastic("old", at=-36_000),
            elastic("older", at=-72_000),
            elastic("new", at=60),
        ]
    )
    said = Said(INPUT, capsys)
    assert said.everywhere(
        "2 of 3 jobs are submitted before the trace begins, by up to 20 h"
    )


def test_jobs_that_all_lie_further_back_than_the_trace_is_long_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("a", at=-1_055 * 86_400), elastic("b", at=-1_054 * 86_400)])
    said = Said(INPUT, capsys)
    assert said.code == 2
    assert (
        "all jobs are submitted 1,054 days or more before the trace begins" in said.err
    )
    assert "24 h long" in said.err
    assert "--option align-jobs=yes" in said.err


def test_align_jobs_shifts_the_first_submit_to_the_first_instant(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give(
        [
            elastic("b", at=-86_400 * 30 + 500),
            elastic("a", at=-86_400 * 30, deadline_ns=START_NS - 29 * DAY_NS),
        ]
    )
    said = Said([*INPUT, "--option", "align-jobs=yes"], capsys)
    assert said.everywhere(
        "--option align-jobs=yes: all jobs are submitted 30 days later"
    )
    assert said.summary["options"]["align_jobs"] is True
    jobs = pd.read_parquet("debug-itrOut/jobs.parquet").set_index("name")
    assert list(jobs.loc[["a", "b"], "submit"].astype("int64") - START_NS) == [
        0,
        500 * SECOND_NS,
    ]
    assert jobs["jct_s"].max() < 3600
    # From the other side too.
    give([elastic("a", at=86_400 * 30)])
    assert Said(INPUT, capsys).code == 2
    assert Said([*INPUT, "--option", "align-jobs=yes"], capsys).everywhere(
        "30 days earlier"
    )


def test_deadlines_shift_with_their_jobs() -> None:
    jobs = JobTable(
        (elastic("a", deadline_ns=START_NS + DAY_NS), elastic("b")), notes=("as read",)
    )
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
        tuple(elastic(str(k), deadline_ns=START_NS) for k in range(len(instants)))
    )
    jobs = replace(
        jobs,
        jobs=tuple(
            replace(job, tsub_ns=at) for job, at in zip(jobs, instants, strict=True)
        ),
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


def test_spread_submissions_are_reported_and_must_stay_within_the_calendar(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("a"), elastic("b", at=600)])
    said = Said([*INPUT, "--option", "scale-arrivals=30"], capsys)
    assert said.everywhere(
        "--option scale-arrivals=30: jobs are submitted over 5 h, not 10 min"
    )
    assert pd.read_parquet("debug-itrOut/jobs.parquet")["submit"].diff()[
        1
    ] == pd.Timedelta(hours=5)
    give([elastic("a"), elastic("b", at=80_000)])
    far = Said([*INPUT, "--option", "scale-arrivals=1e6"], capsys)
    assert far.code == 2
    assert (
        "job b: would be submitted after the year 2200: --option repeat, --option arrival or --option scale-arrivals"
        in far.err
    )


def test_a_trace_of_one_instant_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("a")], days=0)
    said = Said(INPUT, capsys)
    assert said.code == 2
    assert "no time passes in the trace" in said.err


# --- jobs that can never run ------------------------------------------------------------------------------------------

WIDE = [
    elastic("first", seconds=60),
    elastic("wide", 9, 12, at=10),
    elastic("behind", at=20),
    elastic("last", at=30),
]


@pytest.mark.parametrize(
    "policy", ["fifo", "sjf", "qssf", "srtf", "tiresias-l", "lucid"]
)
def test_a_job_that_can_never_run_is_refused_by_name_where_the_policy_is_rigid(
    here: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    give(WIDE)
    said = Said([*INPUT, "--policy", policy], capsys)
    assert said.code == 2
    assert "1 job needs more units than the 4 there are: wide (" in said.err
    assert "--option oversized=skip" in said.err
    assert not Path("debug-itrOut").exists()


@pytest.mark.parametrize("policy", ["fifo", "sjf", "qssf"])
def test_a_job_that_can_never_run_does_not_starve_those_behind_it(
    here: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    give(WIDE)
    said = Said([*INPUT, "--policy", policy, "--option", "oversized=skip"], capsys)
    assert said.everywhere("they never run (--option oversized=skip)")
    assert (said.finished, said.summary["metrics"]["jobs"]) == (3, 4)
    assert said.summary["inputs"]["jobs"]["never_run"] == ["wide"]
    jobs = pd.read_parquet("debug-itrOut/jobs.parquet").set_index("name")
    assert jobs["start"].isna().to_dict() == {
        "first": False,
        "wide": True,
        "behind": False,
        "last": False,
    }


def test_cap_runs_an_oversized_job_on_the_available_units(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give(WIDE)
    said = Said([*INPUT, "--policy", "fifo", "--option", "oversized=cap"], capsys)
    assert said.everywhere("wide (10); they run on 4 (--option oversized=cap)")
    assert said.finished == 4
    held = (
        pd.read_parquet("debug-itrOut/allocations.parquet").set_index("job").loc["wide"]
    )
    assert (held["first_unit"], held["last_unit"]) == (0, 3)


@pytest.mark.parametrize("policy", ["milp", "equal-share", "optimus"])
def test_a_job_that_can_never_run_takes_no_place_among_elastic_ones(
    here: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    give(WIDE)
    said = Said(
        [*INPUT, "--policy", policy, "--backend", "exact", "-maxJ", "1"][
            : 8 if policy == "milp" else None
        ],
        capsys,
    )
    said = Said([*INPUT, "--policy", policy, "-maxJ", "1"], capsys)
    assert said.everywhere("wide (9); they never run")
    assert said.finished == 3


def test_more_than_is_ever_idle_is_too_large_though_the_machine_is_larger(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [["a", 1], ["b", 1], ["c", 0], ["d", 0]]
    frame = pd.DataFrame(rows, columns=["node", "idle"]).assign(
        time="2021-02-10T00:00:00Z"
    )
    late = pd.DataFrame(
        [["a", 0, "2021-02-10T06:00:00Z"]], columns=["node", "idle", "time"]
    )
    pd.concat([frame, late])[["time", "node", "idle"]].to_csv("trace.csv", index=False)
    write_parquet(
        jobs_to_frame(JobTable((elastic("three", 3), elastic("two", 2)))),
        Path("jobs.parquet"),
    )
    args = ["-ndmap", "trace.csv", "--jobs", "jobs.parquet", "--no-u", "--force"]
    assert Said(args, capsys).everywhere(
        "1 job needs more units than the 2 of 4 that are ever idle at once: three (3)"
    )
    one = Said([*args, "-nN", "1"], capsys)
    assert one.everywhere(
        "2 jobs need more units than the 1 there are: three (3), two (2)"
    )


def test_virtual_clusters_have_sizes_of_their_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        replace(rigid_job(name, START_NS, 3, 60.0), vc=vc)
        for name, vc in (("a", "p"), ("b", "q"), ("c", "p"))
    ]
    give(jobs)
    Path("cluster.csv").write_text("vc,nodes,units_per_node\np,1,2\nq,1,4\n")
    args = ["--cluster", "cluster.csv", "--jobs", "jobs.parquet", "--force"]
    assert (
        "2 jobs need more units than the 2 there are in p: a (3), c (3)"
        in Said([*args, "--policy", "fifo"], capsys).err
    )
    skipped = Said([*args, "--policy", "fifo", "--option", "oversized=skip"], capsys)
    assert (skipped.finished, skipped.summary["inputs"]["jobs"]["never_run"]) == (
        1,
        ["a", "c"],
    )
    capped_ = Said([*args, "--policy", "fifo", "--option", "oversized=cap"], capsys)
    assert capped_.finished == 3
    assert set(pd.read_parquet("debug-itrOut/jobs.parquet")["jct_s"]) == {60.0, 120.0}


def test_a_job_of_one_size_keeps_its_duration_when_capped_and_others_follow_their_curve() -> (
    None
):
    fixed = capped(rigid_job("a", 0, 16, 50.0), 4)
    assert (fixed.jmin, fixed.jmax, fixed.request, fixed.rates[4], fixed.pmax) == (
        4,
        4,
        4,
        1.0,
        50.0,
    )
    loose = capped(elastic("b", 8, 16), 4)
    assert (loose.jmin, loose.jmax, loose.request, loose.rates[4]) == (4, 4, 4, 4.0)
    asks = capped(elastic("c", 1, 16), 4)
    assert (asks.jmin, asks.jmax, asks.request) == (1, 4, 4)


def test_the_replay_for_u_does_not_starve_on_a_job_larger_than_its_nodes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Four nodes idle for a quarter of the time are one dedicated node.
    times = pd.date_range("2021-02-10", periods=9, freq="3h", tz="UTC")
    idle = [1, 0, 0, 0, 1, 0, 0, 0, 0]
    frame = pd.DataFrame(
        {f"n{k}": idle for k in range(4)}, index=times.tz_localize(None)
    )
    frame.to_csv("trace.csv", index_label="time")
    jobs = [elastic(f"j{k}", 4, 4, seconds=40_000.0) for k in range(3)]
    write_parquet(jobs_to_frame(JobTable(tuple(jobs))), Path("jobs.parquet"))
    args = [
        "-ndmap",
        "trace.csv",
        "--jobs",
        "jobs.parquet",
        "--policy",
        "fifo",
        "--force",
    ]
    said = Said(args, capsys)
    assert said.everywhere("for U, 3 jobs that need more than the 1 dedicated nodes")
    assert said.summary["metrics"]["dedicated_outcome"] > 0


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
    here: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, expected = LEFT_OUT[kind]
    Path(
        "jobs.txt" if kind == "swf" else "jobs.json" if kind == "philly" else "jobs.csv"
    ).write_text(text)
    file = next(Path().glob("jobs.*"))
    args = [
        "--cluster",
        "2x2",
        "--jobs",
        str(file),
        "--jobs-format",
        kind,
        "--policy",
        "fifo",
        "--force",
    ]
    assert Said(args, capsys).everywhere(expected)


# --- options without effect -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--option", "xi-max=1.5"], "--option xi-max has no effect without --xi"),
        (["--option", "forbid=a,b"], "--option forbid has no effect without --xi"),
        (
            ["--option", "xi-partners=2"],
            "--option xi-partners has no effect without --xi",
        ),
        (
            ["--option", "unit-memory=16"],
            "--option unit-memory has no effect without --xi",
        ),
        (
            ["--option", "sub-batch=0.7"],
            "--option sub-batch has no effect without --option memory-table",
        ),
        (
            ["--option", "deadline-horizon=60"],
            "--option deadline-horizon has no effect without --option deadline-boost",
        ),
        (
            ["--option", "deadline-boost=2"],
            "--option deadline-boost has no effect on jobs without deadlines",
        ),
        (
            ["--policy", "fifo", "--backend", "exact"],
            "--backend has no effect with --policy fifo",
        ),
        (["--policy", "fifo", "-Tfwd", "60"], "-Tfwd has no effect with --policy fifo"),
        (
            ["--policy", "fifo", "-optTL", "60"],
            "-optTL has no effect with --policy fifo",
        ),
        (
            ["--policy", "fifo", "--option", "gap=0.1"],
            "--option gap has no effect with --policy fifo",
        ),
        (
            ["--policy", "fifo", "--option", "verify=yes"],
            "--option verify=yes has no effect with --policy fifo",
        ),
        (
            ["--policy", "fifo", "--objective", "throughput"],
            "--objective has no effect with --policy fifo",
        ),
        (
            ["--policy", "fifo", "--seed", "3"],
            "--seed has no effect with --policy fifo",
        ),
        (
            ["--backend", "exact", "--option", "threads=2"],
            "--option threads has no effect with --backend exact",
        ),
        (
            ["--option", "checkpoint-interval=60"],
            "--option checkpoint-interval has no effect with --policy milp",
        ),
        (
            ["--option", "applications=."],
            "--option applications has no effect without --jobs-format pollux",
        ),
        (
            [
                "--option",
                "compat=reference",
                "--option",
                "events=node",
                "--skip-rows",
                "0",
            ],
            "--option events has no effect with --option compat=ref",
        ),
        (
            [
                "--option",
                "compat=reference",
                "--option",
                "oversized=cap",
                "--skip-rows",
                "0",
            ],
            "--option oversized has no effect with --option compat=ref",
        ),
        (["-nN", "9"], "-nN 9 reaches beyond the trace's 4 nodes"),
    ],
)
def test_an_option_without_effect_gets_a_note(
    here: Path, args: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("a"), elastic("b", at=30)])
    assert Said([*INPUT, *args], capsys).everywhere(expected)


def test_a_misspelt_column_ends_the_command_and_an_unknown_one_gets_a_note(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("a")])
    frame = pd.read_parquet("jobs.parquet")
    frame.assign(jreq=2).to_parquet("jobs.parquet")
    said = Said(INPUT, capsys)
    assert said.code == 2
    assert said.err.startswith(
        "Error: jobs.parquet, column jreq: no such column; did you mean 'Jreq'?"
    )
    frame.assign(colour="red").to_parquet("jobs.parquet")
    assert Said(INPUT, capsys).everywhere("column colour of jobs.parquet: unknown here")
    # Of a published pair too.
    pair = [*INPUT[:2], "-bdfn", "jobs.parquet", "-scfn", "jobs.parquet", *INPUT[4:]]
    assert Said(pair, capsys).everywhere("column colour of jobs.parquet: unknown here")


def test_options_that_have_an_effect_get_no_note(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("a"), elastic("b", at=30, deadline_ns=START_NS + DAY_NS)])
    args = [
        "--backend",
        "exact",
        "-Tfwd",
        "60",
        "--option",
        "deadline-boost=2",
        "--option",
        "deadline-horizon=600",
        "-nN",
        "4",
    ]
    assert Said([*INPUT, *args], capsys).summary["notes"] == []
    assert (
        Said(
            [*INPUT, "--policy", "fifo", "--option", "checkpoint-interval=60"], capsys
        ).summary["notes"]
        == []
    )


def test_a_replay_that_leaves_much_names_the_cap_that_it_was_lost_to(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic(str(k), 1, 1, seconds=86_400) for k in range(4)])
    exact = [*INPUT, "--backend", "exact"]
    note = (
        "the outcome is 25.0% of the bound: for 100% of the time as many jobs were in play "
        "as -maxJ 1 allows, on 1.0 units each, and rescales cost 0.0% of that and preemptions 0.0%; -maxJ 0 lets more "
        "jobs run on fewer units each. --preset best does so too, and shortens long waits, here up to 24.0 h without "
        "nodes"
    )
    assert Said([*exact, "-maxJ", "1"], capsys).everywhere(note)
    assert Said([*exact, "-maxJ", "1", "--preset", "best"], capsys).everywhere(note)
    assert Said([*exact, "-maxJ", "0"], capsys).summary["notes"] == []
    assert Said([*INPUT, "--preset", "best"], capsys).summary["notes"] == []
    assert (
        Said([*exact, "-maxJ", "1", "--policy", "fifo"], capsys).summary["notes"] != []
    )  # of the backend alone


def test_a_growth_that_costs_more_than_most_nodes_are_idle_for_is_reported_with_both_figures(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One node stays, two come and go every ten minutes: of 1 + 2 * 12 fragments most last 600 s.
    write_trace(coming_and_going(), "trace.parquet")
    curve = Curve([0, 3], [0, 3])
    jobs = JobTable((Job("a", START_NS, 1, 3, 1e9, 18_000.0, 9_000.0, curve, curve),))
    write_parquet(jobs_to_frame(jobs), Path("jobs.parquet"))
    for options in (["-maxJ", "0"], ["--preset", "best"]):
        assert Said([*INPUT, "--backend", "exact", *options], capsys).everywhere(
            "a growth costs a job Tcup, 18,000 s in the median, and half of the idle fragments last 600 s or less, so "
            "that hardly any growth can pay; are Tcup and Tcdw in seconds?"
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


def test_options_of_a_trace_have_no_effect_on_a_cluster(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give([elastic("a")])
    args = [
        "--cluster",
        "2x2",
        "--jobs",
        "jobs.parquet",
        "-nN",
        "1",
        "-nis",
        "1",
        "--skip-rows",
        "2",
        "--sort",
    ]
    said = Said([*args, "--option", "align-jobs=yes"], capsys)
    for flag in ("-nN", "-nis", "--skip-rows", "--sort", "align-jobs=yes"):
        assert said.everywhere(f"{flag} has no effect with --cluster")


# --- backends ---------------------------------------------------------------------------------------------------------


def test_an_unavailable_backend_is_refused_before_any_file_is_read(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the extra is not installed.
    monkeypatch.setattr("bft.milp.backends.registry.find_spec", lambda package: None)
    said = Said(
        ["-ndmap", "nowhere.parquet", "--jobs", "nowhere.csv", "--backend", "CBC"],
        capsys,
    )
    assert said.code == 2
    assert (
        "--backend cbc is not available here (EPL 2.0); there are highs, exact"
        in said.err
    )
    assert "pip install" in said.err
    # Nobody asks it: no reason to refuse.
    give([elastic("a")])
    assert Said([*INPUT, "--policy", "fifo", "--backend", "cbc"], capsys).code == 0


def test_an_unknown_format_gets_a_suggestion_too(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Said(["ingest", "slrum", "log.txt", "-o", "trace.parquet"], capsys)
    assert (said.code, "did you mean 'slurm'?" in said.err) == (2, True)
    Path("idle.csv").write_text(
        "node,start,end,state\na,2021-02-10T00:00:00Z,2021-02-10T01:00:00Z,idle\n"
    )
    assert (
        run(["ingest", "Intervals", "idle.csv", "-o", "idle.parquet", "--tz", "UTC"])
        == 0
    )
    give([elastic("a")])
    assert (
        Said([*INPUT, "--policy", "EQUAL-share"], capsys).summary["options"]["policy"]
        == "equal-share"
    )


def test_a_job_that_is_too_large_is_left_out_only_if_it_comes_before_the_end() -> None:
    large = {"jmin": 9, "jmax": 9}
    late_s = 9 * DAY_NS / SECOND_NS
    jobs = (elastic("a"), elastic("b", **large), elastic("c", at=late_s, **large))
    trace = always_idle(4, START_NS, START_NS + DAY_NS)
    made = bft.replay(trace, JobTable(jobs), oversized="skip", dedicated=False)
    census = made.metrics["census"]
    assert (census["jobs"], census["submitted"], census["left_out"]) == (3, 2, 1)
    assert census["in_system"] == 1
