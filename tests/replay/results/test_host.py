"""What host jobs wait, where a user reads it: terminal, notes, summary, returns.parquet, page, tables, refusals."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bft.datasets import generate_node_trace
from bft.models import Curve, Job, JobTable
from bft.replay import (
    EqualShare,
    NodeTrace,
    Options,
    Replay,
    Rules,
    execute,
    read_trace,
    write_trace,
)
from bft.replay.results.host import host_metrics
from bft.replay.trace.host_jobs import HostJobs, from_rows
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import trace_from_frame

FIRST = pd.Timestamp("2021-02-10")
# Seconds at which each of four nodes turns idle and is taken again.
IDLE = {"a": [(0, 300)], "b": [(0, 300), (600, 900)], "c": [(0, 450)], "d": [(0, 1200)]}
ASKED = "--return-time 60"
# Of the host jobs on known.parquet: when each was eligible, began and ended, s, and its nodes.
KNOWN = [
    (0, 300, 600, "ab"),  # eligible long before
    (440, 450, 1200, "c"),  # not so
    (800, 900, 1200, "b"),
    (900, 1200, 1300, "d"),  # begins with the end of the trace
]


@pytest.fixture(autouse=True)
def _inputs(here: Path) -> None:
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
    trace = replace(read_trace("t.csv"), host_jobs=host_jobs(KNOWN))
    write_trace(trace, "known.parquet")


def host_jobs(jobs: list[tuple[int, int, int, str]]) -> HostJobs:
    """Host jobs with time limits of 1,000 s."""
    ns = [[FIRST.value + at * SECOND_NS for at in row[:3]] for row in jobs]
    return from_rows(
        [
            ("job", *times, times[1] + 1000 * SECOND_NS, len(row[3]), row[3])  # type: ignore[misc]
            for times, row in zip(ns, jobs, strict=True)
        ]
    )


REPLAY = "--jobs j.csv --policy equal-share --no-u --out r --force"
BEST = "--jobs j.csv --preset best --backend exact --no-u --out b --force"
Told = Callable[..., str]


@pytest.fixture
def run_of(told: Told) -> Callable[..., tuple[dict[str, Any], str]]:
    """Replays with these options; returns what the summary has of host jobs, and all that is said."""

    def call(
        options: str = "", *parts: str, trace: str = "t.csv"
    ) -> tuple[dict[str, Any], str]:
        said = told(f"-ndmap {trace} {REPLAY} {options}", *parts)
        return json.loads(Path("r/summary.json").read_text())["metrics"]["host"], said

    return call


Run = Callable[..., tuple[dict[str, Any], str]]


def test_without_a_return_time_one_line_says_what_each_second_of_it_costs(
    run_of: Run,
) -> None:
    host, said = run_of("", "makes them wait at least 0.00139 node-hours")
    # At 300, 450, 900 and 1,200 s; the last instant is the end of the trace.
    assert host["nodes_taken"] == 5
    taken = f"at {host['instants']} instants they took 5 nodes, 5 of them from training"
    assert taken in said
    assert not Path("r/returns.parquet").exists()
    notes = json.loads(Path("r/summary.json").read_text())["notes"]
    assert not any("own jobs" in note for note in notes)


def test_of_a_trace_alone_figures_are_of_instants_and_at_least(run_of: Run) -> None:
    host, said = run_of(
        ASKED,
        "your own jobs would have waited at least 0 node-hours more (60 s for",
        "leave some job waits, up to 60.0 s",
        "queues amplify: at loads of 0.6, 0.75 and 0.88 the users' mean wait",
        "the machine's own jobs are not known",
        "the node-time of host jobs is not known",
    )
    used_s = json.loads(Path("r/summary.json").read_text())["metrics"]["used_unit_s"]
    expected = {
        "by_job": False,
        "lower_bound": True,
        "delayed": host["instants"],
        "waiting_node_h": pytest.approx(5 * 60 / 3600),
        "break_even_price": pytest.approx(used_s / 5 / 60),
        "waiting_share_of_host": None,
    }
    assert {name: host[name] for name in expected} == expected
    # What would be of starts is not there: shares, sizes, and a reserve that follows from these.
    assert not {"starts", "delayed_share", "delay_s", "by_size"} & host.keys()
    each = "node-hours of training for each node-hour that they wait"
    assert f"at most {host['break_even_price']:,.1f} {each}" in said
    assert f"at {host['delayed']} of {host['instants']} instants" in said


def test_of_known_jobs_figures_are_of_starts(run_of: Run) -> None:
    host, said = run_of(
        ASKED,
        "67% of the starts, 75% of their nodes, were eligible 60 s or longer",
        "3 of 3 wait (100.0%)",
        trace="known.parquet",
    )
    expected = {
        "by_job": True,
        "lower_bound": False,
        "starts": 3,
        "delayed": 3,
        "delayed_share": 1.0,
        "waiting_node_h": pytest.approx(4 * 60 / 3600),
        # Of the time that host jobs ran: 2 nodes for 300 s, one for 750 s and one for 300 s.
        "waiting_share_of_host": pytest.approx(4 * 60 / (600 + 750 + 300)),
    }
    assert {name: host[name] for name in expected} == expected
    assert host["announced"]["starts_share"] == pytest.approx(2 / 3)
    assert "not known" not in said
    assert "at least" not in said


def test_the_share_of_busy_node_time_is_that_which_the_trace_states(
    run_of: Run,
) -> None:
    write_trace(replace(read_trace("t.csv"), busy_share=0.5), "busy.parquet")
    host, _ = run_of(ASKED, trace="busy.parquet")
    assert host["waiting_share_of_host"] == pytest.approx(5 * 60 / (0.5 * 4 * 1200))


def test_a_reserve_spares_starts_and_says_how_many(run_of: Run) -> None:
    more = f"{ASKED} --reserve 1 --host-price 2"
    waits = "at 2 for each that host jobs wait"
    host, said = run_of(more, waits, trace="known.parquet")
    spared = 1 - host["delayed_share"]
    assert 0 < spared < 1
    noticed = f"{spared:.0%} of their starts would not have noticed"
    assert f"with 1 node kept free, {noticed}" in said
    used = host["net_node_h"] + 2 * host["waiting_node_h"]
    assert used == pytest.approx(host["break_even_price"] * host["waiting_node_h"])


@pytest.mark.parametrize(
    ("options", "nodes", "lower"),
    [("-nN 1", 2, False), ("--node-class gpu", 1, True)],
)
def test_host_jobs_of_a_part_count_whole_and_of_a_class_with_its_nodes(
    options: str, nodes: int, lower: bool, run_of: Run
) -> None:
    trace = replace(read_trace("known.parquet"), classes=("gpu", "cpu", "cpu", "cpu"))
    write_trace(trace, "known.parquet")
    host, said = run_of(f"{ASKED} {options}", trace="known.parquet")
    assert (host["starts"], host["lower_bound"]) == (1, lower)
    assert host["waiting_node_h"] == pytest.approx(nodes * 60 / 3600)
    assert ("what host jobs wait is a lower bound" in said) == lower


def test_a_reserve_above_the_idle_nodes_and_a_return_time_above_the_fragments_are_said(
    run_of: Run,
) -> None:
    run_of("--reserve 4", "--reserve 4 is not below the")
    run_of("--return-time 900", "harvesting costs host jobs more than it yields: 0.")
    assert "costs host jobs more" not in run_of(ASKED)[1]
    run_of(f"{ASKED} --host-price 50", "at a price of 50")


def test_the_dedicated_replay_for_u_keeps_no_node_free() -> None:
    world = {"node_trace": "t.csv", "jobs": "j.csv", "policy": "equal-share"}
    plain, kept = (
        execute(Options(**world, reserve=reserve), f"u{reserve}") for reserve in (0, 1)
    )
    one, other = (of["metrics"] for of in (plain, kept))
    assert one["dedicated_outcome"] == other["dedicated_outcome"]
    assert other["outcome"] < one["outcome"]
    told_so = "--reserve keeps no node free of those dedicated"
    assert any(note.startswith(told_so) for note in kept["notes"])


def test_returns_name_place_node_and_when_training_let_go(run_of: Run) -> None:
    run_of(f"{ASKED} --reserve 1")
    returns = pd.read_parquet("r/returns.parquet")
    assert list(returns) == ["time", "place", "node", "let_go"]
    assert returns["time"].dt.tz is not None
    assert set(returns["place"]) <= set(IDLE)
    never_held = returns["let_go"].isna()
    assert never_held.any()
    assert (returns["let_go"][~never_held] <= returns["time"][~never_held]).all()


def test_a_free_node_goes_first_unless_that_is_switched_off(run_of: Run) -> None:
    jobs = Path("j.csv").read_text().replace("j,1,4,", "j,1,1,")  # which holds node a
    Path("j.csv").write_text(jobs)
    exchanged, _ = run_of(ASKED)
    returns = pd.read_parquet("r/returns.parquet")
    assert returns["node"].tolist()[:2] == ["c", "b"]  # of places a and b, at 300 s
    named, _ = run_of(f"{ASKED} --no-free-first")
    returns = pd.read_parquet("r/returns.parquet")
    assert (returns["place"].astype(str) == returns["node"].astype(str)).all()
    assert exchanged["delayed"] < named["delayed"]


EXPECTS = "--policy milp --backend exact --set window=expected"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-ndmap t.csv --return-time 0", "'--return-time': expected a number of seconds > 0"),
        ("-ndmap t.csv --reserve -1", "'--reserve': expected a whole number >= 0"),
        (f"-ndmap t.csv {ASKED} --host-price -1", "'--host-price': expected a finite number >= 0"),
        (f"-ndmap t.csv {ASKED} --option kinds=kinds.csv --policy milp", "not go with --return-time and --reserve"),
        ("--cluster 2x1 --reserve 1", "with --cluster there are none"),
        (f"-ndmap known.parquet {EXPECTS} {ASKED}", "--no-free-first lets host jobs take the nodes that the log names"),
        ("-ndmap u.csv --reserve 1", "logs do not say which units of its nodes a host job takes"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(line: str, why: str, told: Told) -> None:
    Path("kinds.csv").write_text("node,kind\na,x\nb,y\nc,x\nd,y\n")
    write_trace(replace(read_trace("t.csv"), node_units=(1, 1, 1, 1)), "u.csv")
    policy = "" if "--policy" in line else "--policy equal-share"
    told(f"--jobs j.csv --no-u --out r --force {policy} {line}", why, code=2)
    assert not Path("r").exists()


def test_expectations_go_with_the_nodes_that_the_log_names(told: Told) -> None:
    told(f"-ndmap known.parquet --jobs j.csv --no-u {EXPECTS} {ASKED} --no-free-first")


def test_options_without_effect_are_said(run_of: Run, told: Told) -> None:
    run_of(
        "--no-free-first --host-price 2",
        "--no-free-first has no effect without --return-time or --reserve",
        "--host-price has no effect without --return-time",
    )
    published = "--option compat=reference --skip-rows 0 --backend exact"
    without = "--return-time has no effect with --option compat=reference"
    told(f"-ndmap t.csv --jobs j.csv {published} --out p {ASKED}", without)


def test_the_page_has_sentence_section_tile_and_the_chart_of_who_waits(
    run_of: Run, told: Told
) -> None:
    def page() -> str:
        told("report r -o page.html --force")
        return Path("page.html").read_text()

    run_of(f"{ASKED} --reserve 1", trace="known.parquet")
    shown = page()
    for part in (
        "Your own jobs would have waited",
        '<section id="host"><h2>Your own jobs</h2>',
        '<section id="who-waits">',
        "node-hours of training for each",
        "queues amplify",
        "1 % of such instants save S GB a job",
    ):
        assert part in shown
    run_of()
    shown = page()
    assert '<section id="who-waits">' not in shown
    assert "each second that a node takes to return" in shown


OF_HOST = {"host.delayed_share", "host.waiting_node_h", "host.break_even_price"}


def test_comparisons_and_sweeps_have_what_host_jobs_wait(
    run_of: Run, told: Told
) -> None:
    swept = f"--jobs j.csv --policy equal-share --no-u {ASKED} --reserve 0,1,2"
    told(f"sweep -ndmap known.parquet {swept} --out s --workers 0")
    table = pd.read_parquet("s/results.parquet")
    assert set(table) >= OF_HOST
    assert (np.diff(table["host.delayed_share"]) <= 0).all()
    told("report s/results.parquet -o sweep.html")
    assert "Own starts that wait" in Path("sweep.html").read_text()
    for reserve in (0, 1):
        run_of(f"{ASKED} --reserve {reserve}", trace="known.parquet")
        Path("r").rename(f"kept-{reserve}")
    told("compare kept-0 kept-1 -o c.csv")
    assert set(pd.read_csv("c.csv")) >= OF_HOST
    told("report kept-0 kept-1 -o both.html")
    assert "--reserve 1: 1 nodes kept free" in Path("both.html").read_text()


def test_a_trace_alone_says_the_break_even_price(told: Told) -> None:
    host = json.loads(told("trace info t.csv --json"))["host"]
    idle_s = sum(end - begin for spans in IDLE.values() for begin, end in spans)
    assert host["break_even_price"]["30 s"] == pytest.approx(idle_s / 5 / 30)
    told("trace info t.csv", "break-even price")


# --- against a count without a replay ---------------------------------------------------------------------------------


def counted(
    trace: NodeTrace, reserve: int, start_ns: int, end_ns: int
) -> dict[str, float]:
    """Figures of host jobs from a node trace alone, for jobs that hold every node they may, and returns of 120 s.

    Count from `start_ns` on: free nodes go first, `reserve` of them are kept, and training holds all others. Which node
    is which does not matter: a start takes nodes that return at the same instant, then kept ones, then those of
    training. A kept node was never held, since training lets go of none.
    """
    found: Counter[str] = Counter()
    idle = kept = before = 0
    for event, time in enumerate(trace.times.tolist()):
        if time > end_ns:
            break
        held_ns = max(time, start_ns) - max(before, start_ns)
        found["used_s"] += (idle - kept) * held_ns / SECOND_NS
        joined, left = len(trace.joins(event)), len(trace.leaves(event))
        # Before the start nobody holds a node.
        free = joined + (idle if before < start_ns else kept)
        if time >= start_ns:
            lost = max(0, left - free)
            found["nodes_taken_from_training"] += lost
            found["instants"] += left > 0
            found["delayed"] += lost > 0
            found["waiting_node_h"] += left * 120 / 3600 if lost else 0.0
            kept = min(reserve, max(0, free - left))
        idle, before = idle + joined - left, time
    found["used_s"] += (idle - kept) * (end_ns - max(before, start_ns)) / SECOND_NS
    return found


def check_counts(trace: NodeTrace, reserve: int) -> None:
    most = len(trace.nodes)
    curve = Curve([0, most], [0, most])
    endless = Job("j", trace.start, 1, most, 1e18, 0, 0, curve, curve)
    rules = Rules(return_time_s=120.0, reserve=reserve)
    outcome = Replay(trace, JobTable((endless,)), EqualShare(), rules).run()
    expected = counted(trace, reserve, outcome.start_ns, outcome.end_ns)
    found = host_metrics(outcome, 120.0) | {"used_s": outcome.used_unit_seconds}
    assert {of: found[of] for of in expected} == pytest.approx(expected, rel=0.005)
    assert found["delayed"] == expected["delayed"]


@pytest.mark.parametrize("reserve", [0, 1, 2, 4, 8, 16, 32])
def test_a_count_without_a_replay_comes_to_the_same(reserve: int) -> None:
    for seed in (1, 2):
        made = generate_node_trace(nodes=64, days=0.3, seed=seed, start="2021-02-10")
        about = {"source": "generated", "metadata": made.metadata}
        check_counts(trace_from_frame(made.frame, **about), reserve)


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
