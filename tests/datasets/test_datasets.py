"""Generated traces have the statistics of Summit, jobs the published speeds, and logs of all schedulers agree."""

import csv
import json
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from agreeing import agree
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from synthetic_logs import read_texts, taken

from benchmarks import _bundled as bundled_writer
from benchmarks import summit_like as calibration
from bft.datasets import (
    NodeTraceTable,
    dnn_scalability,
    generate_dnn_jobs,
    generate_log,
    generate_node_trace,
    load_bundled,
)
from bft.datasets import bundled as bundled_module
from bft.models import jobs_from_frame
from bft.replay.logs import Ingested, expand_hosts

DATA = Path(bundled_module.__file__).parent / "data"
# Relative tolerances, by what a fact begins with; the first that fits counts.
RELATIVE = {"gap p99": 0.3, "gap min": 0.0, "gap": 0.2, "idle mean": 0.1, "above 42 % of nodes": 0.4,
            "fragment p": 0.15, "fragment mean": 0.1, "fragments per node": 0.05, "join": 0.2, "leave p99": 0.2,
            "leave mean": 0.2, "leave": 0.3, "never idle": 0.05}  # fmt: skip
# Percentage points, where a fact is a share.
POINTS = {"fragments <=": 5.0, "above 42 %: share": 10.0, "idle p25": 0.5, "idle p50": 1.5, "idle p75": 3.0,
          "idle p90": 5.0, "idle p99": 12.0}  # fmt: skip


def misses(found: dict[str, float], relative: dict[str, float], points: dict[str, float]) -> list[str]:  # fmt: skip
    """Facts outside their tolerance, with both values."""
    out = []
    for key, fact in calibration.SUMMIT_FACTS.items():
        for table, scale in ((relative, fact), (points, 1.0)):
            limits = [value * scale for start, value in table.items() if key.startswith(start)]  # fmt: skip
            if limits and abs(found[key] - fact) > limits[0] + 1e-9:
                out.append(f"{key}: {found[key]:.4g}, Summit {fact:g}")
    return out


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_full_size_trace_holds_the_measured_facts(seed: int) -> None:
    found = calibration.measure(generate_node_trace(nodes=4734, days=14.9, seed=seed))
    assert misses(found, RELATIVE, POINTS) == []
    # The days differ as much as measured.
    assert 1.0 < found["day mean min %"] < 6.0  # Summit: 3.4
    assert 10.0 < found["day mean max %"] < 20.0  # Summit: 13.2


@pytest.mark.parametrize(
    "nodes", [64, 512, pytest.param(12_000, marks=pytest.mark.slow)]
)
def test_machines_of_other_sizes_keep_idle_share_and_durations(nodes: int) -> None:
    found = calibration.measure(generate_node_trace(nodes=nodes, days=14.0, seed=3))
    scale_free = {"idle mean": 0.1, "fragment mean": 0.1, "fragment p": 0.15}
    assert misses(found, scale_free, {"fragments <=": 5.0}) == []


def test_smaller_machines_have_fewer_events_and_smaller_groups() -> None:
    found = [
        calibration.measure(generate_node_trace(nodes=nodes, days=6.0))
        for nodes in (128, 1024, 8192)
    ]
    gaps, joins = ([each[key] for each in found] for key in ("gap mean s", "join mean"))
    assert (gaps, joins) == (sorted(gaps, reverse=True), sorted(joins))


def test_without_outages_the_idle_share_stays_and_the_machine_is_rarely_empty() -> None:
    found, whole = (
        calibration.measure(generate_node_trace(nodes=1024, days=14.0, seed=1, outages=each))
        for each in (False, True)
    )  # fmt: skip
    assert found["idle mean %"] == pytest.approx(8.27, rel=0.1)
    assert found["idle p99 %"] < whole["idle p99 %"]


def test_the_measurement_agrees_with_a_trace_measured_by_hand() -> None:
    # Ten nodes, 1,000 s: b idle on 0-100 (open at the start: not a complete fragment), a and b on 200-300,
    # a on 400-700, c from 900 to the end. Idle node-seconds: 100 + 2 × 100 + 300 + 100 = 700 of 10,000.
    start = pd.Timestamp("2021-02-10", tz="UTC")
    rows = [
        (0, "b", True), (100, "b", False), (200, "a", True), (200, "b", True), (300, "a", False),
        (300, "b", False), (400, "a", True), (700, "a", False), (900, "c", True),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["time", "node", "idle"])
    frame["time"] = start + pd.to_timedelta(frame["time"], unit="s")
    metadata = {
        "nodes": json.dumps(list("abcdefghij")),
        "start": start.isoformat(),
        "end": (start + pd.Timedelta(seconds=1000)).isoformat(),
    }
    found = calibration.measure(NodeTraceTable(frame, metadata))
    # 0 idle for 400 s, 1 for 500 s, 2 for 100 s.
    expected = {
        "idle mean %": 7.0, "idle p50 %": 10.0, "fragment mean s": 500 / 3, "fragment p50 s": 100, "busy p50 s": 100,
        "fragments <= 10 min: count %": 100, "gap mean s": 800 / 5, "join mean": 4 / 3, "leave mean": 4 / 3,
        "never idle %": 70.0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found.keys() == calibration.SUMMIT_FACTS.keys()


def test_the_metadata_describe_the_trace() -> None:
    trace = generate_node_trace(
        nodes=100, days=0.25, seed=9, start="2024-05-01T02:00+02:00", machine="theta"
    )
    data = trace.metadata
    names = ["machine", "nodes", "units_per_node", "source", "start", "end"]
    assert list(data) == names
    assert (data["machine"], data["units_per_node"]) == ("theta", "1")
    window = ("2024-05-01T00:00:00+00:00", "2024-05-01T06:00:00+00:00")
    assert (data["start"], data["end"]) == window
    assert "nodes=100, days=0.25, seed=9" in data["source"]
    assert len(trace.nodes) == len(set(trace.nodes)) == 100
    # One node in 88 never turns idle, and is a node of the machine nevertheless.
    assert set(trace.nodes) - set(trace.frame["node"])


@examples(60)
@given(
    nodes=st.integers(1, 120),
    days=st.floats(0.007, 3.0),
    seed=st.integers(0, 2**32 - 1),
    outages=st.booleans(),
)
def test_any_trace_is_well_formed(
    nodes: int, days: float, seed: int, outages: bool
) -> None:
    trace = generate_node_trace(nodes=nodes, days=days, seed=seed, outages=outages)
    frame, universe = trace.frame, trace.nodes
    start, end = (pd.Timestamp(trace.metadata[name]) for name in ("start", "end"))
    assert list(frame.columns) == ["time", "node", "idle"]
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert (frame["idle"].dtype, len(universe)) == (bool, nodes)

    assert ((frame["time"] >= start) & (frame["time"] < end)).all()
    index = pd.Index(universe).get_indexer(pd.Index(frame["node"]))
    assert (index >= 0).all()
    key = pd.MultiIndex.from_arrays([frame["time"], index])
    assert key.is_monotonic_increasing
    assert key.is_unique
    events = pd.DatetimeIndex(frame["time"].unique())
    assert (np.diff(events.asi8) >= 10_000_000_000).all()

    # A node's first change is to idle, and from then on the states alternate.
    turn = frame.groupby("node", sort=False).cumcount()
    assert (frame["idle"] == (turn % 2 == 0)).all()
    assert frame.loc[frame["time"] == start, "idle"].all()


DAY = {"first_submit": "2021-02-10"}


@pytest.mark.parametrize(
    ("generate", "arguments", "words"),
    [
        (generate_node_trace, {"nodes": 0}, "nodes is 0"),
        (generate_node_trace, {"days": 0.0}, "days is 0.0"),
        (generate_node_trace, {"days": float("nan")}, "days is nan"),
        (generate_node_trace, {"days": float("inf")}, "days is inf"),
        (generate_node_trace, {"seed": -1}, "seed is -1"),
        (generate_node_trace, {"start": "yesterday-ish"}, "'yesterday-ish' is not a time"),
        (generate_node_trace, {"start": ""}, "'' is not a time"),
        (generate_dnn_jobs, DAY | {"jobs": 0}, "jobs is 0"),
        (generate_dnn_jobs, DAY | {"seed": -3}, "seed is -3"),
        (generate_dnn_jobs, DAY | {"interval_s": -1.0}, "interval_s is -1.0"),
        (generate_dnn_jobs, DAY | {"pmax": 0.0}, "pmax is 0.0"),
        (generate_dnn_jobs, DAY | {"jmin": 0}, "jmin is 0"),
        (generate_dnn_jobs, DAY | {"jmin": 9, "jmax": 8}, "jmin is 9 and jmax is 8"),
        (generate_dnn_jobs, DAY | {"objective": "speed"}, "objective is 'speed'"),
        (generate_dnn_jobs, DAY | {"first_submit": "soon"}, "'soon' is not a time"),
    ],
)  # fmt: skip
def test_what_cannot_be_generated_is_refused(
    generate, arguments: dict[str, object], words: str
) -> None:
    refused(words, generate, **arguments)


def test_job_curves_are_those_of_the_csv_and_models_take_turns() -> None:
    with (DATA / "dnn_scalability.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7 * 7
    assert all(row["source"] for row in rows)
    models = list(dict.fromkeys(row["model"] for row in rows))
    assert " ".join(models) == "AlexNet VGG16 ResNet18 DenseNet MnasNet ShuffleNet MobileNet"  # fmt: skip
    jobs = generate_dnn_jobs(jobs=16, first_submit="2021-02-10")
    assert jobs["model"].tolist() == [models[i % 7] for i in range(16)]
    for job in jobs.itertuples():
        mine = [row for row in rows if row["model"] == job.model]
        assert [0, *(int(row["units"]) for row in mine)] == [0, 1, 2, 4, 8, 16, 32, 64]
        speeds = [0.0, *(float(row["images_per_s"]) for row in mine)]
        agree(job, {"Ns": [0, 1, 2, 4, 8, 16, 32, 64], "Ps": speeds, "Os": speeds})
    assert dnn_scalability()["ResNet18"][2] == 10582.5


def test_job_table_has_the_published_shape() -> None:
    jobs = generate_dnn_jobs(first_submit="2021-02-10T20:21:15")
    columns = ["name", "model", "Jmin", "Jmax", "Pmax", "Tsub", "Tcup", "Tcdw", "Ns", "Ps", "Os"]  # fmt: skip
    agree(jobs, {"shape": (1001, 11), "columns": columns, "name.is_unique": True})
    assert jobs["name"].iloc[[0, -1]].tolist() == ["J00000-AlexNet", "J01000-MobileNet"]
    at = pd.date_range("2021-02-10T20:21:15", periods=1001, freq="36s", tz="UTC")
    assert jobs["Tsub"].tolist() == at.tolist()
    assert (jobs["Jmin"].eq(1) & jobs["Jmax"].eq(64) & jobs["Pmax"].eq(1.3e8)).all()


def test_scaling_times_are_spread_as_published() -> None:
    # Published: means 17.99 and 12.00 s, standard deviations 0.57 and 0.58 s.
    jobs = generate_dnn_jobs(first_submit="2021-02-10", seed=3)
    for column, middle in (("Tcup", 18.0), ("Tcdw", 12.0)):
        assert jobs[column].between(middle - 1, middle + 1).all()
        assert jobs[column].mean() == pytest.approx(middle, abs=0.08)
        assert jobs[column].std() == pytest.approx(0.577, abs=0.03)
    assert abs(jobs["Tcup"].corr(jobs["Tcdw"])) < 0.1


def test_efficiency_objective_is_speed_over_the_speed_of_one_node() -> None:
    jobs = generate_dnn_jobs(jobs=7, first_submit="2021-02-10", objective="efficiency")
    for job in jobs.itertuples():
        assert job.Os == [speed / job.Ps[1] for speed in job.Ps]
        assert job.Os[:2] == [0.0, 1.0]


def test_job_tables_depend_on_the_seed_only_in_their_scaling_times() -> None:
    first, again, other = (generate_dnn_jobs(jobs=20, **DAY, seed=s) for s in (1, 1, 2))
    assert len(jobs_from_frame(first).jobs) == 20
    pd.testing.assert_frame_equal(first, again)
    drawn = ["Tcup", "Tcdw"]
    pd.testing.assert_frame_equal(first.drop(columns=drawn), other.drop(columns=drawn))
    assert not first[drawn].equals(other[drawn])


def test_the_bundled_data_set_is_small_and_what_it_says() -> None:
    assert sum(path.stat().st_size for path in DATA.glob("*.parquet")) < 1_000_000
    trace, jobs = load_bundled()
    start, end = (pd.Timestamp(trace.metadata[name]) for name in ("start", "end"))
    assert (len(trace.nodes), len(jobs), end - start) == (512, 60, pd.Timedelta(days=2))
    assert calibration.measure(trace)["idle mean %"] == pytest.approx(8.27, rel=0.1)
    assert isinstance(jobs["Ns"].iloc[0], list)
    assert jobs["Tsub"].between(start, start + pd.Timedelta(hours=21), "neither").all()


def test_the_bundled_data_set_is_what_the_generators_make_twice_to_the_same_bytes(
    tmp_path: Path,
) -> None:
    trace, jobs = load_bundled()
    made = generate_node_trace(**bundled_writer.TRACE)
    pd.testing.assert_frame_equal(trace.frame, made.frame)
    pd.testing.assert_frame_equal(jobs, generate_dnn_jobs(**bundled_writer.JOBS))
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        folder.mkdir()
        bundled_writer.write_bundled(folder)
    for name in ("jobs-60.parquet", "summit-like-512.parquet"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
        # The versions of pyarrow may differ: compare content.
        one, other = (pq.read_table(each / name) for each in (folders[0], DATA))
        assert one.equals(other, check_metadata=True)


def test_bundled_jobs_offer_about_as_much_work_as_the_idle_nodes_can_do() -> None:
    trace, jobs = load_bundled()
    since = trace.frame["time"] - pd.Timestamp(trace.metadata["start"])
    left_s = 2 * 86400 - since.dt.total_seconds()
    idle_node_s = float((np.where(trace.frame["idle"], 1, -1) * left_s).sum())
    # On eight nodes, a tenth of those idle at a busy hour, a job of each model takes so many node-seconds:
    speeds = [(job.Pmax, np.interp(8, job.Ns, job.Ps)) for job in jobs.itertuples()]
    needed = sum(samples * 8 / speed for samples, speed in speeds)
    assert 0.6 < needed / idle_node_s < 1.0


def test_the_comparison_with_summit_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    calibration.main(["--nodes", "64", "--days", "1", "--seeds", "0", "5"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| what | Summit | seed 0 | seed 5 |"
    assert len(lines) == 2 + len(calibration.SUMMIT_FACTS)


FIRST = "2021-02-10"


@pytest.mark.parametrize(
    ("scenario", "model", "count"), [("hpo", "ShuffleNet", 100), ("nas", "MnasNet", 20)]
)
def test_the_jobs_of_a_search_are_identical(
    scenario: str, model: str, count: int
) -> None:
    frame = generate_dnn_jobs(scenario, first_submit=FIRST)
    assert len(frame) == len(jobs_from_frame(frame)) == count
    assert (frame.drop(columns="name").astype(str).nunique() == 1).all()
    assert frame["Ps"][0][1:] == list(dnn_scalability()[model].values())


def test_large_models_are_wide_and_take_minutes_to_start() -> None:
    frame = generate_dnn_jobs("llm", jobs=40, seed=1, first_submit=FIRST)
    sizes = {job.sizes for job in jobs_from_frame(frame)}
    assert (sizes, frame["Tcup"].nunique()) == ({(8, 16, 32, 64)}, 40)
    assert (frame["Tcup"].between(139, 323) & frame["Tcdw"].between(60, 300)).all()
    assert (frame["Tsub"].diff().dropna() == pd.Timedelta(hours=1)).all()
    refused(
        "curve ends at 4 units; the scenario llm needs 8",
        generate_dnn_jobs,
        "llm",
        first_submit=FIRST,
        curve={1: 1.0, 4: 3.0},
    )


def test_any_curve_serves_in_its_order_of_sizes() -> None:
    frame = generate_dnn_jobs(
        "hpo",
        jobs=2,
        first_submit=FIRST,
        curve={4: 30.0, 1: 10.0},
        model="mine",
        objective="efficiency",
    )
    job = jobs_from_frame(frame).jobs[1]
    assert (job.name, job.model, job.jmax) == ("J00001-mine", "mine", 4)
    assert (job.scalability.ps.tolist(), job.objective.ps.tolist()) == (
        [0.0, 10.0, 30.0],
        [0.0, 1.0, 3.0],
    )
    refused(
        "no curve of 'GPT' comes with the package: choose one of AlexNet",
        generate_dnn_jobs,
        "hpo",
        first_submit=FIRST,
        model="GPT",
    )


MONDAY_S = datetime(2024, 3, 4, tzinfo=UTC).timestamp()


def traced(
    scheduler: str, text: str, nodes: int, end: str, **options: object
) -> Ingested:
    names = f"cn[{1:0{len(str(nodes))}}-{nodes}]"
    window = {"begin": "2024-03-04", "end": end, "window": None}
    return read_texts(scheduler, text, nodes=[names], **window, **options)


@pytest.mark.parametrize("scheduler", ["pbs", "lsf", "sge", "cobalt", "flux"])
@examples(100, quick=6)
@given(nodes=st.integers(2, 20), days=st.floats(0.3, 1.5), seed=st.integers(0, 99))
def test_all_schedulers_log_the_same_jobs(
    scheduler: str, nodes: int, days: float, seed: int
) -> None:
    slurm, theirs = (
        generate_log(each, nodes=nodes, days=days, seed=seed)
        for each in ("slurm", scheduler)
    )
    rows = [line.split("|") for line in slurm.splitlines()[1:]]
    # Jobs that still run are not in all logs, and what is idle is known until the first of them starts.
    still = min(
        (row[4] for row in rows if row[6] == "RUNNING"), default="2024-03-06T00:00:00"
    )
    if any(row[6] == "COMPLETED" and row[5] < still for row in rows):
        one, other = (
            traced(*each, nodes, still).trace
            for each in (("slurm", slurm), (scheduler, theirs))
        )
        assert (one.nodes, taken(one)) == (other.nodes, taken(other))


def second(stamp: str) -> float:
    return math.inf if stamp == "Unknown" else datetime.fromisoformat(f"{stamp}Z").timestamp()  # fmt: skip


@given(
    nodes=st.integers(2, 12),
    per=st.integers(1, 8),
    days=st.floats(0.2, 1),
    seed=st.integers(0, 99),
)
def test_as_many_gpus_are_idle_as_jobs_leave(
    nodes: int, per: int, days: float, seed: int
) -> None:
    text = generate_log("slurm", nodes=nodes, days=days, seed=seed, gpus_per_node=per)
    end_s = MONDAY_S + round(days * 86_400)
    held_s = 0.0
    for line in text.splitlines()[1:]:
        _, _, hosts, count, begin, finish, *_, tres = line.split("|")
        gpus, rest = divmod(int(tres.split("gres/gpu=")[1].split(",")[0]), int(count))
        assert rest == 0
        assert gpus == per or int(count) == 1 <= gpus < per  # whole nodes, or a part
        began_s, last_s = map(second, (begin, finish))
        held_s += gpus * len(expand_hosts(hosts)) * (min(last_s, end_s) - began_s)
    if held_s:
        units = {"unit": "gpu", "units_per_node": per}
        made = traced("slurm", text, nodes, str(int(end_s)), **units)
        free_s = nodes * per * (end_s - MONDAY_S) - held_s
        assert made.trace.idle_unit_seconds() == free_s


@pytest.mark.parametrize(
    ("scheduler", "gpus", "why"),
    [
        ("pbs", 4, "a log of pbs is made without GPUs; slurm has them"),
        ("slrum", 0, "expected slurm or pbs"),
    ],
)
def test_logs_that_cannot_be_generated_are_refused(
    scheduler: str, gpus: int, why: str
) -> None:
    refused(why, generate_log, scheduler, gpus_per_node=gpus)


def test_no_node_has_two_jobs_at_a_time() -> None:
    busy: dict[str, int] = {}
    for line in generate_log("sge", nodes=8, days=2).splitlines():
        fields = line.split(":")
        host, start_s, end_s = fields[1], int(fields[9]), int(fields[10])
        assert MONDAY_S <= start_s < end_s
        assert start_s > busy.get(host, 0)
        busy[host] = end_s
