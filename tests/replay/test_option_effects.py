"""Every option of a replay: another value changes the run, and summary.json records it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from stated import option_at
from toy_application import write_application

from bft.replay import Options
from bft.replay.cli.main import run
from bft.replay.trace.trace_files import read_trace, write_trace

START = pd.Timestamp("2021-02-10")
XI = ["--xi", "xi.csv"]
TIGHT = [*XI, "--option", "unit-memory=16"]
FIFO = ["--policy", "fifo"]
EXACT = ["--backend", "exact"]
CLUSTER = [
    "--cluster",
    "2x2",
    "--jobs",
    "tiresias.csv",
    "--jobs-format",
    "tiresias",
    *FIFO,
]
POLLUX = [
    "--cluster",
    "2x4",
    "--jobs",
    "pollux.csv",
    "--jobs-format",
    "pollux",
    "--option",
    "applications=apps",
    *FIFO,
]
FLAGS = ("--cluster", "--option applications", "--policy")
QUICK = ["--set", "population=4", "--set", "generations=2"]
PUBLISHED = ["--option", "compat=reference", "--skip-rows", "0"]
PAIR = ["-bdfn", "bounds.parquet", "-scfn", "curves.parquet"]
TRACE, JOBS = ["-ndmap", "trace.parquet"], ["--jobs", "jobs.csv"]
Case = tuple[list[str], list[str], list[str], Any]
Said = tuple[int, str, dict[str, Any]]
USUAL = [*TRACE, *JOBS]
# Field: options of both runs, of the first alone, of the second alone, and what the second records.
CASES: dict[str, Case] = {
    "node_trace": ([*JOBS, *EXACT], TRACE, ["-ndmap", "fewer.parquet"], "fewer.parquet"),
    "trust_pickle": (["-ndmap", "trace.pkl", *JOBS, *EXACT], [], ["--trust-pickle"], True),
    "jobs": ([*TRACE, *EXACT], JOBS, ["--jobs", "early.csv"], "early.csv"),
    "job_bounds": ([*TRACE, *EXACT], PAIR, ["-bdfn", "longer.parquet", "-scfn", "curves.parquet"], "longer.parquet"),
    "job_curves": ([*TRACE, *EXACT], PAIR, ["-bdfn", "bounds.parquet", "-scfn", "faster.parquet"], "faster.parquet"),
    "jobs_format": (["--cluster", "2x4", *FIFO], JOBS, CLUSTER[2:6], "tiresias"),
    "applications": (POLLUX, [], ["--option", "applications=noisy", "--policy", "pollux"], "noisy"),
    "align_jobs": ([*TRACE, "--jobs", "early.csv", *EXACT], [], ["--option", "align-jobs=yes"], True),
    "repeat": ([*USUAL, *EXACT], [], ["--option", "repeat=2"], 2),
    "cap_units": ([*USUAL, *EXACT], [], ["--cap-units", "3"], 3),
    "shuffle_submits": ([*USUAL, *EXACT], [], ["--option", "shuffle-submits=yes"], True),
    "arrival": ([*USUAL, *EXACT], [], ["--option", "arrival=POISSON:60.0"], "poisson:60"),
    "scale_arrivals": ([*USUAL, *EXACT], [], ["--option", "scale-arrivals=9"], 9.0),
    "workload": ([*USUAL, *FIFO], [], ["--workload", "hpo:eta=2"], "hpo:eta=2"),
    "oversized": (
        [*TRACE, "--jobs", "wide.csv", *FIFO],
        ["--option", "oversized=skip"],
        ["--option", "oversized=cap"],
        "cap",
    ),
    "cluster": (CLUSTER, [], ["--cluster", "1x3"], "1x3"),
    "preset": (USUAL, [], ["--preset", "best"], "best"),
    "tfwd_s": ([*USUAL, *EXACT], [], ["-Tfwd", "300"], 300.0),
    "time_limit_s": ([*USUAL, *FIFO], [], ["-optTL", "3"], 3.0),  # says that it has no effect there
    "max_jobs": ([*USUAL, *EXACT], [], ["-maxJ", "1"], 1),
    "first_node": ([*USUAL, *EXACT], [], ["-nis", "3"], 3),
    "node_count": ([*USUAL, *EXACT], [], ["-nN", "2"], 2),
    "skip_rows": ([*USUAL, *EXACT], [], ["--skip-rows", "9"], 9),
    "sort": (["-ndmap", "shuffled.parquet", *JOBS, *EXACT], [], ["--sort"], True),
    "node_class": (["-ndmap", "classes.parquet", *JOBS, *EXACT], [], ["--node-class", "gpu"], "gpu"),
    "kinds": ([*USUAL, *EXACT], [], ["--option", "kinds=kinds.csv"], "kinds.csv"),
    "policy": (USUAL, FIFO, ["--policy", "srtf"], "srtf"),
    "policy_options": ([*USUAL, *FIFO], [], ["--set", "backfill=yes"], [["backfill", "yes"]]),
    "policy_time_limit_s": ([*USUAL, *PUBLISHED], [], ["--option", "policy-time-limit=9"], 9.0),  # the same
    "seed": (["--cluster", "3x3", *JOBS, "--policy", "pollux", *QUICK], [], ["--seed", "5"], 5),
    "backend": (USUAL, [], EXACT, "exact"),
    "formulation": ([*USUAL, "--backend", "auto"], [], ["--option", "formulation=node"], "node"),
    "strict_reference": ([*USUAL, "--option", "formulation=node"], [], ["--option", "strict-reference=yes"], True),
    "gap": ([*USUAL, *EXACT], [], ["--option", "gap=0.5"], 0.5),  # says that it has no effect there
    "threads": ([*USUAL, *EXACT], [], ["--option", "threads=2"], 2),  # the same
    "cost_model": ([*USUAL, *EXACT], [], ["--option", "cost-model=stall"], "stall"),
    "events": ([*USUAL, *EXACT], [], ["--option", "events=node"], "node"),
    "min_interval_s": ([*USUAL, *EXACT], [], ["--option", "min-interval=250"], 250.0),
    "checkpoint_interval_s": ([*USUAL, *FIFO], [], ["--option", "checkpoint-interval=7"], 7.0),
    "start_overhead_s": ([*USUAL, *FIFO], [], ["--option", "start-overhead=20"], 20.0),
    "restart_overhead": ([*USUAL, *FIFO], [], ["--option", "restart-overhead=2:10,8:20"], [[2, 10.0], [8, 20.0]]),
    "restart_overlap": (
        [*CLUSTER[:-1], "tiresias-l", "--set", "limits=10", "--option", "restart-overhead=20"],
        [],
        ["--option", "restart-overlap=0.5"],
        0.5,
    ),
    "free_moves": (
        ["--cluster", "3x3", *POLLUX[2:-1], "sia", "--option", "restart-overhead=20"],
        [],
        ["--option", "free-moves=yes"],
        True,
    ),
    "network_interference": (
        ["--cluster", "3x3", *JOBS, "--policy", "equal-share"], [], ["--option", "network-interference=0.5"], 0.5
    ),
    "admission": ([*USUAL, *FIFO], [], ["--option", "admission=deadline", "--option", "admission-units=1"], "deadline"),
    "admission_units": ([*USUAL, *FIFO, "--option", "admission=deadline"], [], ["--option", "admission-units=1"], 1),
    "return_time_s": ([*USUAL, *EXACT], [], ["--return-time", "90"], 90.0),
    "reserve": ([*USUAL, *EXACT], [], ["--reserve", "2"], 2),
    "free_first": ([*USUAL, *EXACT, "--return-time", "90"], [], ["--no-free-first"], False),
    "host_price": ([*USUAL, *EXACT, "--return-time", "90"], [], ["--host-price", "2"], 2.0),
    "ties": ([*USUAL, "--backend", "cbc"], [], ["--option", "ties=solver"], "solver"),  # then nobody verifies
    "verify": ([*USUAL, "--option", "ties=solver"], [], ["--option", "verify=yes"], True),
    "objective": ([*USUAL, *EXACT], [], ["--objective", "power:.50+ageing:.02"], "power:0.5+ageing:0.02:2"),
    "curves": ([*USUAL, *EXACT], [], ["--option", "curves=learn"], "learn"),
    "deadline_boost": ([*USUAL, *EXACT], [], ["--option", "deadline-boost=50"], 50.0),
    "deadline_horizon_s": (
        [*USUAL, *EXACT, "--option", "deadline-boost=50"],
        [],
        ["--option", "deadline-horizon=60"],
        60.0,
    ),
    "xi": (USUAL, [], XI, "xi.csv"),
    "xi_max": ([*USUAL, *XI], [], ["--option", "xi-max=1.06"], 1.06),
    "xi_partners": ([*USUAL, *XI], [], ["--option", "xi-partners=1"], 1),
    "unit_memory_gib": ([*USUAL, *XI], [], ["--option", "unit-memory=10"], 10.0),
    "memory_table": ([*USUAL, *TIGHT], [], ["--option", "memory-table=memory.csv"], "memory.csv"),
    "sub_batch": ([*USUAL, *TIGHT, "--option", "memory-table=memory.csv"], [], ["--option", "sub-batch=0.99"], 0.99),
    "forbid": ([*USUAL, *XI], [], ["--option", "forbid=a,b", "--option", "forbid=a,a"], [["a", "b"], ["a", "a"]]),
    "compat": (POLLUX, [], ["--option", "compat=pollux"], "pollux"),
    "dedicated": ([*USUAL, *EXACT], [], ["--no-u"], False),
    "node_watts": ([*USUAL, *EXACT], [], ["--node-watts", "120,600"], [120.0, 600.0]),
    "price_per_node_hour": ([*USUAL, *EXACT], [], ["--price-per-node-hour", "1.5"], 1.5),
    "co2_per_kwh": ([*USUAL, *EXACT, "--node-watts", "120,600"], [], ["--co2-per-kwh", "380"], 380.0),
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all inputs that the cases name."""
    folder = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_inputs()
    return folder


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, ...], Said]:
    """What the first runs said: many cases begin with the same one."""
    return {}


@pytest.fixture
def here(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(inputs)
    return inputs


def write_inputs() -> None:
    rng = np.random.default_rng(4)
    idle = (rng.random((60, 8)) < 0.7).astype(np.int8)
    idle[0] = 1
    times = pd.date_range(START, periods=60, freq="60s")
    trace = pd.DataFrame(idle, index=times, columns=[f"n{k}" for k in range(8)])
    trace.to_parquet("trace.parquet")
    trace.to_pickle("trace.pkl")
    trace.iloc[:, :5].to_parquet("fewer.parquet")
    trace.iloc[::-1].to_parquet("shuffled.parquet")
    Path("kinds.csv").write_text(
        "node,kind\n" + "".join(f"n{k},{'ab'[k % 2]}\n" for k in range(8))
    )
    count = 6
    jobs = pd.DataFrame(
        {
            "model": ["a", "b", "c", "a", "b", "c"],
            "Jmin": [2, 1, 2, 1, 1, 3],
            "Jmax": 6,
            "Jreq": [5, 1, 3, 2, 1, 4],
            "Pmax": [4e4, 2e4, 3e4, 2e4, 5e4, 4e4],
            "Tsub": [START + pd.Timedelta(seconds=70 * k) for k in range(count)],
            "Tcup": 9.0,
            "Tcdw": 5.0,
            "Ns": [[0, 1, 2, 6]] * count,
            "Ps": [
                [0.0, 10.0, 19.0, 40.0],
                [0.0, 30.0, 50.0, 70.0],
                [0.0, 5.0, 12.0, 36.0],
            ]
            * 2,
            "Os": [[0.0, 1.0, 1.9, 4.0], [0.0, 1.0, 1.7, 2.3], [0.0, 1.0, 2.4, 7.2]]
            * 2,
            "memory_gib": 8.5,
            "batch_size": 64.0,
            "deadline": [
                START + pd.Timedelta(seconds=900 * (count - k)) for k in range(count)
            ],
        },
        index=pd.Index([f"j{k}" for k in range(count)], name="name"),
    )
    bounds, curves = (
        ["Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub"],
        ["Ns", "Ps", "Os"],
    )
    jobs[bounds].to_parquet("bounds.parquet")
    jobs[bounds].assign(Pmax=9e4).to_parquet("longer.parquet")
    jobs[curves].to_parquet("curves.parquet")
    jobs[curves].assign(Ps=[[0.0, 50.0, 90.0, 200.0]] * count).to_parquet(
        "faster.parquet"
    )
    for name, table in (
        ("jobs", jobs),
        ("early", jobs.assign(Tsub=jobs["Tsub"] - pd.Timedelta(minutes=30))),
        ("wide", jobs.assign(Jmax=20, Jreq=[20, 1, 3, 2, 1, 4])),
    ):
        table.assign(
            **{column: table[column].map(json.dumps) for column in curves}
        ).to_csv(f"{name}.csv")
    pairs = [
        ("a", "b", 1.1, 1.05),
        ("a", "a", 1.2, 1.2),
        ("a", "c", 1.05, 1.15),
        ("b", "c", 1.1, 1.1),
    ]
    pd.DataFrame(pairs, columns=["model_a", "model_b", "xi_a", "xi_b"]).to_csv(
        "xi.csv", index=False
    )
    read = read_trace("trace.parquet")
    classes = tuple(("cpu", "gpu")[k % 2] for k in range(len(read.nodes)))
    write_trace(replace(read, classes=classes), "classes.parquet")
    memory = [
        (model, batch, 1 + batch / 8.5) for model in "abc" for batch in (16, 32, 64)
    ]
    pd.DataFrame(memory, columns=["model", "batch", "memory_gib"]).to_csv(
        "memory.csv", index=False
    )
    Path("tiresias.csv").write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
        + "".join(f"t{k},{1 + k % 3},{20 * k},10,a,{50 + 30 * k},1\n" for k in range(6))
    )
    write_application(Path("apps/toy"))
    write_application(Path("noisy/toy"), grad_var=3.0)
    Path("pollux.csv").write_text(
        "name,time,application,num_replicas,batch_size\n"
        + "".join(f"p{k},{30 * k},toy,2,128\n" for k in range(4))
    )


def said(args: list[str], capsys: pytest.CaptureFixture[str]) -> Said:
    """Exit code, what was printed but for progress, and what the summary records."""
    capsys.readouterr()
    code = run([*args, "--force"])
    out, err = capsys.readouterr()
    notes = "".join(
        line
        for line in err.splitlines(keepends=True)
        if line.startswith(("note:", "Error:"))
    )
    summary = (
        json.loads(Path("debug-itrOut/summary.json").read_text("utf-8"))
        if code in (0, 3)
        else {}
    )
    steps = Path("debug-itrOut/steps.parquet")
    backends = (
        sorted(pd.read_parquet(steps)["backend"].unique()) if steps.exists() else []
    )
    return code, out + notes + " ".join(backends), summary


@pytest.mark.parametrize("field", CASES)
def test_an_option_changes_the_result_and_is_recorded(
    here: Path,
    field: str,
    capsys: pytest.CaptureFixture[str],
    known: dict[tuple[str, ...], Said],
) -> None:
    both, before, after, recorded = CASES[field]
    begin = (*both, *before)
    if begin not in known:
        known[begin] = said(list(begin), capsys)
    first_code, first, _ = known[begin]
    stated = list(both)
    for flag in (option_at(after, at) for at in range(len(after))):
        places = [option_at(stated, at) for at in range(len(stated))]
        if flag in places and flag in FLAGS:  # an option is given once
            del stated[places.index(flag) : places.index(flag) + 2]
    code, second, summary = said([*stated, *after], capsys)
    refused = field in ("sort", "trust_pickle")
    assert (first_code, code) == (2 if refused else 0, 0), second
    assert first != second
    assert summary["options"][field] == recorded


def test_every_option_has_its_case() -> None:
    assert CASES.keys() == Options().flat().keys()
