"""What host jobs wait, where a user reads it: terminal, notes, summary, returns.parquet, page, tables, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from counting import counted
from stated import once

from bft.datasets import generate_node_trace
from bft.models import Curve, Job, JobTable
from bft.replay import EqualShare, Options, execute
from bft.replay.cli.main import run
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.results.host import host_metrics
from bft.replay.trace.host_jobs import HostJobs, from_rows
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace, trace_from_frame, write_trace

FIRST = pd.Timestamp("2021-02-10")
# Seconds at which each of four nodes turns idle and is taken again.
IDLE = {"a": [(0, 300)], "b": [(0, 300), (600, 900)], "c": [(0, 450)], "d": [(0, 1200)]}
ASKED = ["--return-time", "60"]
# Of the host jobs on known.parquet: when each was eligible, began and ended, s, and its nodes.
KNOWN = [
    (0, 300, 600, "ab"),  # eligible long before
    (440, 450, 1200, "c"),  # not so
    (800, 900, 1200, "b"),
    (900, 1200, 1300, "d"),  # begins with the end of the trace
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    changes = sorted(
        (at, name, 1 - k)
        for name, spans in IDLE.items()
        for span in spans
        for k, at in enumerate(span)
    )
    lines = [
        f"{(FIRST + pd.Timedelta(seconds=at)).isoformat()}Z,{name},{idle}"
        for at, name, idle in changes
    ]
    Path("t.csv").write_text("time,node,idle\n" + "\n".join(lines) + "\n")
    jobs = pd.DataFrame({"name": ["j"], "Jmin": 1, "Jmax": 4, "Pmax": 1e9, "Tsub": [FIRST], "Tcup": 0.0, "Tcdw": 0.0,
                         "Ns": ["[0, 4]"], "Ps": ["[0.0, 4.0]"], "Os": ["[0.0, 4.0]"]})  # fmt: skip
    jobs.to_csv("j.csv", index=False)
    write_trace(
        replace(read_trace("t.csv"), host_jobs=host_jobs(KNOWN)), "known.parquet"
    )
    return tmp_path


def host_jobs(jobs: list[tuple[int, int, int, str]]) -> HostJobs:
    """Host jobs with time limits of 1,000 s."""
    ns = [[FIRST.value + at * SECOND_NS for at in row[:3]] for row in jobs]
    return from_rows(
        [
            ("job", *times, times[1] + 1000 * SECOND_NS, len(row[3]), row[3])  # type: ignore[misc]
            for times, row in zip(ns, jobs, strict=True)
        ]
    )


REPLAY = [
    "-ndmap",
    "t.csv",
    "--jobs",
    "j.csv",
    "--policy",
    "equal-share",
    "--no-u",
    "--out",
    "r",
    "--force",
]


def metrics_of(*options: str, trace: str = "t.csv") -> dict[str, Any]:
    assert run(once(["-ndmap", trace, *REPLAY[2:], *options])) == 0
    found: dict[str, Any] = json.loads(Path("r/summary.json").read_text())
    return found


def test_without_a_return_time_one_line_says_what_each_second_of_it_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = metrics_of()
    # At 300, 450, 900 and 1,200 s; the last instant is the end of the trace.
    assert summary["metrics"]["host"]["nodes_taken"] == 5
    instants = summary["metrics"]["host"]["instants"]
    out = capsys.readouterr().out
    assert f"at {instants} instants they took 5 nodes, 5 of them from training" in out
    assert "makes them wait at least 0.00139 node-hours" in out
    assert not Path("r/returns.parquet").exists()
    assert not any("own jobs" in note for note in summary["notes"])


def test_of_a_trace_alone_figures_are_of_instants_and_at_least(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = metrics_of(*ASKED)
    host = summary["metrics"]["host"]
    out, err = capsys.readouterr()
    assert (host["by_job"], host["lower_bound"]) == (False, True)
    assert host["delayed"] == host["instants"]
    assert host["waiting_node_h"] == pytest.approx(5 * 60 / 3600)
    used_s = summary["metrics"]["used_unit_s"]
    assert host["break_even_price"] * 60 == pytest.approx(used_s / 5)
    # What would be of starts is not there: shares, sizes, and a reserve that follows from these.
    of_starts = {"starts", "delayed_share", "delay_s", "by_size"}
    assert not of_starts & host.keys()
    assert host["waiting_share_of_host"] is None
    assert "your own jobs would have waited at least 0 node-hours more (60 s for" in out
    price = f"at most {host['break_even_price']:,.1f} node-hours of training for each node-hour that they wait"
    assert price in out
    instants = f"at {host['delayed']} of {host['instants']} instants at which nodes"
    assert f"{instants} leave some job waits, up to 60.0 s" in out
    assert "queues amplify: at loads of 0.6, 0.75 and 0.88 the users' mean wait" in out
    assert "the machine's own jobs are not known" in err
    assert "the node-time of host jobs is not known" in err


def test_of_known_jobs_figures_are_of_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = metrics_of(*ASKED, trace="known.parquet")
    host = summary["metrics"]["host"]
    out, err = capsys.readouterr()
    assert (host["by_job"], host["lower_bound"]) == (True, False)
    assert (host["starts"], host["delayed"], host["delayed_share"]) == (3, 3, 1.0)
    assert host["waiting_node_h"] == pytest.approx(4 * 60 / 3600)
    # Of the time that host jobs ran: 2 nodes for 300 s, one for 750 s and one for 300 s.
    assert host["waiting_share_of_host"] == pytest.approx(4 * 60 / (600 + 750 + 300))
    assert host["announced"]["starts_share"] == pytest.approx(2 / 3)
    assert "67% of the starts, 75% of their nodes, were eligible 60 s or longer" in out
    assert "3 of 3 wait (100.0%)" in out
    assert "not known" not in err
    assert "at least" not in out


def test_the_share_of_busy_node_time_is_that_which_the_trace_states() -> None:
    write_trace(replace(read_trace("t.csv"), busy_share=0.5), "busy.parquet")
    host = metrics_of(*ASKED, trace="busy.parquet")["metrics"]["host"]
    assert host["waiting_share_of_host"] == pytest.approx(5 * 60 / (0.5 * 4 * 1200))


def test_a_reserve_spares_starts_and_says_how_many(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ["--reserve", "1", "--host-price", "2"]
    host = metrics_of(*ASKED, *more, trace="known.parquet")["metrics"]["host"]
    spared = 1 - host["delayed_share"]
    assert 0 < spared < 1
    out = capsys.readouterr().out
    kept = "with 1 node kept free"
    assert f"{kept}, {spared:.0%} of their starts would not have noticed" in out
    used = host["net_node_h"] + 2 * host["waiting_node_h"]
    assert used == pytest.approx(host["break_even_price"] * host["waiting_node_h"])
    assert "at 2 for each that host jobs wait" in out


@pytest.mark.parametrize(
    ("options", "nodes", "lower"),
    [(["-nN", "1"], 2, False), (["--node-class", "gpu"], 1, True)],
)
def test_host_jobs_of_a_part_count_whole_and_of_a_class_with_its_nodes(
    options: list[str], nodes: int, lower: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = replace(read_trace("known.parquet"), classes=("gpu", "cpu", "cpu", "cpu"))
    write_trace(trace, "known.parquet")
    host = metrics_of(*ASKED, *options, trace="known.parquet")["metrics"]["host"]
    assert (host["starts"], host["lower_bound"]) == (1, lower)
    assert host["waiting_node_h"] == pytest.approx(nodes * 60 / 3600)
    bound = "what host jobs wait is a lower bound"
    assert (bound in capsys.readouterr().err) == lower


def test_a_reserve_above_the_idle_nodes_and_a_return_time_above_the_fragments_are_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics_of("--reserve", "4")
    assert "--reserve 4 is not below the" in capsys.readouterr().err
    metrics_of("--return-time", "900")
    assert (
        "harvesting costs host jobs more than it yields: 0." in capsys.readouterr().err
    )
    metrics_of(*ASKED)
    assert "costs host jobs more" not in capsys.readouterr().err
    metrics_of(*ASKED, "--host-price", "50")
    assert "at a price of 50" in capsys.readouterr().err


def test_the_dedicated_replay_for_u_keeps_no_node_free(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, kept = (
        execute(
            Options(
                node_trace="t.csv", jobs="j.csv", policy="equal-share", reserve=reserve
            ),
            f"u{reserve}",
        )
        for reserve in (0, 1)
    )
    assert plain["metrics"]["dedicated_outcome"] == kept["metrics"]["dedicated_outcome"]
    assert kept["metrics"]["outcome"] < plain["metrics"]["outcome"]
    assert any(
        note.startswith("--reserve keeps no node free of those dedicated")
        for note in kept["notes"]
    )


def test_returns_name_place_node_and_when_training_let_go() -> None:
    metrics_of(*ASKED, "--reserve", "1")
    returns = pd.read_parquet("r/returns.parquet")
    assert list(returns) == ["time", "place", "node", "let_go"]
    assert returns["time"].dt.tz is not None
    assert set(returns["place"]) <= set(IDLE)
    never_held = returns["let_go"].isna()
    assert never_held.any()
    assert (returns["let_go"][~never_held] <= returns["time"][~never_held]).all()


def test_a_free_node_goes_first_unless_that_is_switched_off() -> None:
    Path("j.csv").write_text(
        Path("j.csv").read_text().replace("j,1,4,", "j,1,1,")
    )  # which holds node a
    exchanged = metrics_of(*ASKED)["metrics"]["host"]
    returns = pd.read_parquet("r/returns.parquet")
    assert returns["node"].tolist()[:2] == ["c", "b"]  # of places a and b, at 300 s
    named = metrics_of(*ASKED, "--no-free-first")["metrics"]["host"]
    returns = pd.read_parquet("r/returns.parquet")
    assert (returns["place"].astype(str) == returns["node"].astype(str)).all()
    assert exchanged["delayed"] < named["delayed"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--return-time", "0"], "'--return-time': expected a number of seconds > 0"),
        (["--reserve", "-1"], "'--reserve': expected a whole number >= 0"),
        ([*ASKED, "--host-price", "-1"], "'--host-price': expected a finite number >= 0"),
        ([*ASKED, "--option", "kinds=kinds.csv", "--policy", "milp"], "does not go with --return-time and --reserve"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("kinds.csv").write_text("node,kind\na,x\nb,y\nc,x\nd,y\n")
    assert run(once([*REPLAY, *options])) == 2
    assert why in capsys.readouterr().err
    assert not Path("r").exists()


def test_fixed_clusters_and_expectations_are_refused_by_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        run(
            [
                "--cluster",
                "2x1",
                "--jobs",
                "j.csv",
                "--policy",
                "fifo",
                "--reserve",
                "1",
                "--out",
                "r",
            ]
        )
        == 2
    )
    assert "with --cluster there are none" in capsys.readouterr().err
    expects = [
        "-ndmap",
        "known.parquet",
        *REPLAY[2:],
        "--policy",
        "milp",
        "--backend",
        "exact",
        "--set",
        "window=expected",
    ]
    assert run(once([*expects, *ASKED])) == 2
    assert (
        "--no-free-first lets host jobs take the nodes that the log names"
        in capsys.readouterr().err
    )
    assert run(once([*expects, *ASKED, "--no-free-first"])) == 0


def test_traces_of_units_are_refused_by_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    units = replace(read_trace("t.csv"), node_units=(1, 1, 1, 1))
    write_trace(units, "u.csv")
    assert run(["-ndmap", "u.csv", *REPLAY[2:], "--reserve", "1"]) == 2
    told = "logs do not say which units of its nodes a host job takes"
    assert told in capsys.readouterr().err


def test_options_without_effect_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    metrics_of("--no-free-first", "--host-price", "2")
    err = capsys.readouterr().err
    assert "--no-free-first has no effect without --return-time or --reserve" in err
    assert "--host-price has no effect without --return-time" in err
    published = [
        "-ndmap",
        "t.csv",
        "--jobs",
        "j.csv",
        "--option",
        "compat=reference",
        "--skip-rows",
        "0",
        "--out",
        "p",
    ]
    assert run([*published, "--backend", "exact", *ASKED]) == 0
    assert (
        "--return-time has no effect with --option compat=reference"
        in capsys.readouterr().err
    )


def test_the_page_has_sentence_section_tile_and_the_chart_of_who_waits() -> None:
    metrics_of(*ASKED, "--reserve", "1", trace="known.parquet")
    assert run(["report", "r", "-o", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "Your own jobs would have waited" in page
    assert '<section id="host"><h2>Your own jobs</h2>' in page
    assert '<section id="who-waits">' in page
    assert "node-hours of training for each" in page
    assert "queues amplify" in page
    assert "1 % of such instants save S GB a job" in page
    metrics_of()
    assert run(["report", "r", "-o", "page.html", "--force"]) == 0
    page = Path("page.html").read_text()
    assert '<section id="who-waits">' not in page
    assert "each second that a node takes to return" in page


def test_comparisons_and_sweeps_have_what_host_jobs_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = [
        "-ndmap",
        "known.parquet",
        "--jobs",
        "j.csv",
        "--policy",
        "equal-share",
        "--no-u",
        *ASKED,
    ]
    assert (
        run(["sweep", *options, "--reserve", "0,1,2", "--out", "s", "--workers", "0"])
        == 0
    )
    table = pd.read_parquet("s/results.parquet")
    assert {
        "host.delayed_share",
        "host.waiting_node_h",
        "host.break_even_price",
    } <= set(table)
    assert (np.diff(table["host.delayed_share"]) <= 0).all()
    assert run(["report", "s/results.parquet", "-o", "sweep.html"]) == 0
    assert "Own starts that wait" in Path("sweep.html").read_text()
    capsys.readouterr()
    runs = []
    for reserve in ("0", "1"):
        metrics_of("--reserve", reserve, *ASKED, trace="known.parquet")
        Path("r").rename(f"kept-{reserve}")
        runs.append(f"kept-{reserve}")
    assert run(["compare", *runs, "-o", "c.csv"]) == 0
    assert {
        "host.delayed_share",
        "host.waiting_node_h",
        "host.break_even_price",
    } <= set(pd.read_csv("c.csv"))
    assert run(["report", *runs, "-o", "both.html"]) == 0
    assert "--reserve 1: 1 nodes kept free" in Path("both.html").read_text()


def test_a_trace_alone_says_the_break_even_price(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["trace", "info", "t.csv", "--json"]) == 0
    host = json.loads(capsys.readouterr().out)["host"]
    idle_s = sum(end - begin for spans in IDLE.values() for begin, end in spans)
    assert host["break_even_price"]["30 s"] == pytest.approx(idle_s / 5 / 30)
    assert run(["trace", "info", "t.csv"]) == 0
    assert "break-even price" in capsys.readouterr().out


def endless(trace: NodeTrace) -> JobTable:
    curve = Curve([0, len(trace.nodes)], [0, float(len(trace.nodes))])
    job = Job(
        "j",
        trace.start,
        1,
        len(trace.nodes),
        pmax=1e18,
        tcup_s=0,
        tcdw_s=0,
        scalability=curve,
        objective=curve,
    )
    return JobTable((job,))


def check_counts(trace: NodeTrace, reserve: int) -> None:
    rules = Rules(return_time_s=120.0, reserve=reserve)
    outcome = Replay(trace, endless(trace), EqualShare(), rules).run()
    host = host_metrics(outcome, 120.0)
    by_hand = counted(trace, reserve, 120.0, outcome.start_ns, outcome.end_ns)
    assert outcome.used_unit_seconds == pytest.approx(by_hand.used_s, rel=0.005)
    assert host["nodes_taken_from_training"] == pytest.approx(
        by_hand.preempted, rel=0.005
    )
    assert host["waiting_node_h"] * 3600 == pytest.approx(by_hand.waiting_s, rel=0.005)
    assert (host["instants"], host["delayed"]) == (by_hand.starts, by_hand.delayed)


@pytest.mark.parametrize("reserve", [0, 1, 2, 4, 8, 16, 32])
def test_a_count_without_a_replay_comes_to_the_same(reserve: int) -> None:
    for seed in (1, 2):
        table = generate_node_trace(nodes=64, days=0.3, seed=seed, start="2021-02-10")
        check_counts(
            trace_from_frame(table.frame, source="generated", metadata=table.metadata),
            reserve,
        )


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("reserve", [0, 4, 32])
def test_so_it_does_on_the_real_log(reference: Path, reserve: int) -> None:
    log = reference / "bftrainer" / "ndstat-10sdn6-evt.tar.gz"
    check_counts(read_trace(str(log), node_count=512, skip_rows=1000), reserve)


@pytest.mark.slow
@pytest.mark.reference
def test_numbers_on_the_real_log_are_those_of_the_docs(reference: Path) -> None:
    folder = reference / "bftrainer"
    world = {
        "node_trace": str(folder / "ndstat-10sdn6-evt.tar.gz"),
        "job_bounds": str(folder / "ImageNet-imgps-Jbnd-1001J.pkl"),
        "job_curves": str(folder / "ImageNet-imgps-JNPs-1001J.pkl"),
        "node_count": 512,
        "skip_rows": 1000,
        "preset": "best",
        "backend": "exact",
        "dedicated": False,
        "return_time_s": 120.0,
    }
    named = execute(Options(**world, free_first=False), "named")["metrics"]
    assert (named["host"]["instants"], named["host"]["delayed"]) == (4430, 4430)
    assert named["host"]["waiting_node_h"] == pytest.approx(1476.23, abs=0.01)
    assert named["host"]["break_even_price"] == pytest.approx(10.12, abs=0.01)
    assert named["host"]["stopped_together"] == {
        "p50": 2,
        "p99": pytest.approx(110, abs=0.5),
        "max": 261,
    }
    assert named["outcome"] == pytest.approx(123.83e9, rel=1e-4)
    kept = execute(Options(**world, reserve=4), "kept")["metrics"]
    assert kept["host"]["delayed"] / 4430 == pytest.approx(0.440, abs=0.01)
    assert kept["host"]["waiting_node_h"] == pytest.approx(1337, rel=0.01)
    assert kept["outcome"] / named["outcome"] - 1 == pytest.approx(-0.018, abs=0.003)
