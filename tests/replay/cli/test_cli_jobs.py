"""`bft-replay jobs fit`: fitted jobs can be replayed, and invalid input leaves no file."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from bft.models import read_jobs
from bft.replay.cli.main import run

RUNS = "model,units,throughput,batch_size\na,1,100,64\na,2,190,128\na,4,350,256\nb,2,20,64\nb,4,36,128\nb,8,30,256\n"
SUBMIT = ["--submit", "2021-02-10"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("runs.csv").write_text(RUNS)
    return tmp_path


def log(path: str, seconds: float, lines: int = 100) -> None:
    Path(path).write_text(
        "".join(
            f"step {k} step_time={9 if k < 10 else seconds}\n" for k in range(lines)
        )
    )


@pytest.mark.parametrize("kind", ["piecewise", "amdahl", "usl"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_what_is_fitted_can_be_replayed(
    kind: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = f"jobs{suffix}"
    assert (
        run(
            [
                "jobs",
                "fit",
                "runs.csv",
                "--model",
                kind,
                "--max",
                "16",
                "--pmax",
                "1e6",
                "-o",
                jobs,
                *SUBMIT,
            ]
        )
        == 0
    )
    out, err = capsys.readouterr()
    falls = [
        line.split(":")[1].strip()
        for line in err.splitlines()
        if "falls beyond its peak" in line
    ]
    assert falls == ([] if kind == "amdahl" else ["b"])
    assert out.endswith(f"{jobs}: 2 jobs\n")
    table = read_jobs(jobs)
    assert [(job.name, job.model, job.jmin, job.jmax) for job in table] == [
        ("a", "a", 1, 16),
        ("b", "b", 2, 4 if falls else 16),
    ]
    assert table.jobs[0].rates[2] == pytest.approx(190, rel=0.05)
    trace = "time,node,idle\n2021-02-10T00:00:00Z,n1,1\n2021-02-10T00:00:00Z,n2,1\n2021-02-10T03:00:00Z,n1,0\n"
    Path("trace.csv").write_text(trace)
    assert (
        run(
            [
                "-ndmap",
                "trace.csv",
                "--jobs",
                jobs,
                "--backend",
                "exact",
                "--no-u",
                "-Tfwd",
                "120",
            ]
        )
        == 0
    )
    assert (
        json.loads(Path("debug-itrOut/summary.json").read_text())["metrics"]["jobs"]
        == 2
    )


def test_the_report_tells_error_efficiency_and_what_is_beyond(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        run(["jobs", "fit", "runs.csv", "--model", "amdahl", "--units", "1,4,8,16"])
        == 0
    )
    told = capsys.readouterr()
    head, a, b, *rest = told.out.splitlines()
    assert head.split() == [
        "model",
        "runs",
        "median",
        "error",
        "max",
        "error",
        "efficiency",
        "extrapolated",
    ]
    assert a.split()[:2] == ["a", "3"]
    assert a.endswith("8,16")
    assert b.endswith("1,16")
    assert "at 16 units" in a
    assert rest[0].startswith("a: P1 ")
    assert (
        "warning: b: not monotone: 8 units give 30 samples/s, 4 give 36"
        in told.err.splitlines()
    )


def test_jmax_of_a_falling_curve_is_its_peak_with_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["jobs", "fit", "runs.csv", "-o", "jobs.csv", *SUBMIT]) == 0
    assert (
        "note: b: falls beyond its peak, 36 samples/s at 4 units and 30 at 8: Jmax is 4"
        in capsys.readouterr().err
    )
    table = read_jobs("jobs.csv")
    assert [job.jmax for job in table] == [4, 4]
    assert table.jobs[1].scalability.ns.tolist() == [0, 2, 4, 8], (
        "what was measured stays in the curve"
    )


def test_a_fit_with_too_few_sizes_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("two.csv").write_text("units,throughput\n1,100\n2,150\n")
    assert (
        run(
            [
                "jobs",
                "fit",
                "two.csv",
                "--model",
                "usl",
                "--max",
                "64",
                "--curves",
                "points.csv",
            ]
        )
        == 0
    )
    told = capsys.readouterr()
    assert (
        "warning: two: usl takes 3 sizes to be determined, and 2 were measured (1, 2): piecewise"
        in told.err
    )
    assert "sigma" not in told.out
    assert pd.read_csv("points.csv").throughput.tolist() == [100, *[150] * 6]


def test_options_without_effect_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["jobs", "fit", "runs.csv", "--batch-size", "64"]) == 0
    told = capsys.readouterr().err
    assert "--batch-size has no effect" in told


def test_points_are_written_with_their_marks() -> None:
    assert run(["jobs", "fit", "runs.csv", "--max", "8", "--curves", "points.csv"]) == 0
    points = pd.read_csv("points.csv")
    assert points.columns.tolist() == [
        "model",
        "units",
        "throughput",
        "efficiency",
        "extrapolated",
    ]
    assert points[points.model == "a"].extrapolated.tolist() == [
        False,
        False,
        False,
        True,
    ]
    assert points[points.model == "b"].throughput.tolist() == [20, 36, 30]


def test_the_same_input_gives_the_same_bytes() -> None:
    for name in ("x", "y"):
        command = [
            "jobs",
            "fit",
            "runs.csv",
            "--model",
            "usl",
            "-o",
            f"{name}.parquet",
            *SUBMIT,
        ]
        assert run([*command, "--curves", f"{name}.csv"]) == 0
    for suffix in (".parquet", ".csv"):
        assert Path("x" + suffix).read_bytes() == Path("y" + suffix).read_bytes()


def test_logs_are_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    log("train4.log", 0.5)
    log("train8.log", 0.25)
    given = [
        "--log",
        "train4.log",
        "--log",
        "train8.log",
        "--units",
        "4,8",
        "--batch-size",
        "64",
        "--name",
        "net",
    ]
    assert run(["jobs", "fit", *given, "-o", "jobs.csv", *SUBMIT]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split() == ["train4.log", "4", "90", "0.5", "0.5-", "0.5", "128"]
    (job,) = read_jobs("jobs.csv")
    assert (job.name, job.jmin, job.jmax) == ("net", 4, 8)
    assert job.rates[[4, 8]].tolist() == [128, 256]
    # The batch of a unit: a step of 8 units takes twice that of 4.
    assert (
        run(["jobs", "fit", *given[:6], "--unit-batch", "16", "--curves", "points.csv"])
        == 0
    )
    assert pd.read_csv("points.csv").throughput.tolist() == [128, 512]


def test_equal_steps_of_more_units_ask_for_the_batch_of_a_unit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for units, seconds in ((1, 0.25), (2, 0.26), (4, 0.25)):
        log(f"{units}.log", seconds)
    given = ["jobs", "fit", "--units", "1,2,4", "--curves", "points.csv"]
    for units in (1, 2, 4):
        given += ["--log", f"{units}.log"]
    assert run([*given, "--model", "amdahl", "--batch-size", "64"]) == 2
    told = capsys.readouterr().err
    assert "a step takes as long on 4 units (0.25 s) as on 1 (0.25 s)" in told
    assert "give --unit-batch" in told
    assert run([*given, "--unit-batch", "64"]) == 0
    assert pd.read_csv("points.csv").throughput.round().tolist() == [256, 492, 1024]


WORKER = [f"{k}\timages/sec: 6.0 +/- 0.0 (jitter = 0.3)" for k in range(30)]


@pytest.mark.parametrize(
    ("lines", "rate"),
    [
        ([*WORKER, "total images/sec: 47.87"], 47.87),
        ([*WORKER, "Total throughput (8 GPUs): 47.9 images/sec"], 47.9),
        ([*WORKER, "Sum of 8 workers: 47.9 images/sec"], 47.9),
        (
            ["Img/sec per GPU: 330.1 +-1.2", "Total img/sec on 8 GPU(s): 2640.8 +-9.6"],
            2640.8,
        ),
        (["local: 42.5 samples/s, global: 340 samples/s"] * 20, 340),
        (["42.5 samples/s/gpu, 340 samples/s in total"] * 20, 340),
        (["340 images/sec on 8 GPUs"] * 20, 340),
        (["Batch (t): 6.640, 2465.25/s, 77.0355/s/gpu LR: 0.1"] * 20, 2465.25),
        (
            ["[timer.py:198:stop] 0/10, RunningAvgSamplesPerSec=9, CurrSamplesPerSec=227.5"] * 20,
            227.5,
        ),
        (
            ["Train throughput/batches_per_sec: 0.4", "Train throughput/samples_per_sec: 204.8",
             "Train throughput/device/batches_per_sec: 0.05", "Train throughput/device/samples_per_sec: 25.6"] * 20,
            204.8,
        ),
    ],
)  # fmt: skip
def test_the_rate_of_all_units_counts_not_that_of_a_worker(
    lines: list[str], rate: float, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text("\n".join(lines) + "\n")
    assert run(["jobs", "fit", "--log", "a.log", "--units", "8", "--warmup", "0"]) == 0
    shown = capsys.readouterr().out.splitlines()[1].split()[-1]
    assert float(shown) == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize(
    "line",
    [
        "Iter #3: 42.5 img/sec per GPU",
        "step 3: 42.5 samples/s on each GPU",
        "step 3 local throughput: 42.5 samples/s",
        "step 3 42.5 samples/s (local)",
        "step 3 local_samples_per_sec: 42.5",
        "[rank 3] step 3 42.5 samples/s",
        "worker 2: step 3 42.5 images/sec",
        "step 3: samples/s per GPU: 42.5",
        "step 3, tokens/s/device: 42.5",
    ],
)
def test_the_rate_of_one_worker_is_refused_with_the_group_that_takes_it_so(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text(f"{line}\n" * 20)
    given = ["jobs", "fit", "--log", "a.log", "--units", "8"]
    assert run(given) == 2
    told = capsys.readouterr().err
    assert "the rate of a part of the units; unit_samples_per_s takes it" in told
    assert run([*given, "--pattern", r"(?P<unit_samples_per_s>42\.5)"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "340"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("step 3 step_time=0.5 s 8.0 it/s", ("step-time", "step-rate")),
        ("step 3 340 samples/s, 42.5 samples/s", ("images/sec",)),
    ],
)
def test_two_statements_of_a_line_that_disagree_are_refused(
    line: str, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text(f"{line}\n" * 20)
    given = ["jobs", "fit", "--log", "a.log", "--units", "8", "--batch-size", "64"]
    assert run(given) == 2
    assert "two statements that differ by a factor of" in capsys.readouterr().err
    for name in names:
        assert run([*given, "--pattern", name]) == 0


def test_several_tables_and_logs_make_one_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log("train4.log", 0.5)
    log("train8.log", 0.25)
    Path("other.csv").write_text("model,units,throughput\nc,1,10\nc,2,18\nc,4,30\n")
    logs = ["--log", "train4.log", "--log", "train8.log", "--units", "4,8"]
    both = ["runs.csv", "other.csv", *logs, "--batch-size", "64"]
    assert run(["jobs", "fit", *both, "-o", "jobs.csv", *SUBMIT]) == 0
    jobs = {job.name: job for job in read_jobs("jobs.csv")}
    assert list(jobs) == ["a", "b", "c", "train4"]
    assert jobs["train4"].rates[[4, 8]].tolist() == [128, 256]
    assert jobs["c"].rates[4] == 30
    capsys.readouterr()
    assert run(["jobs", "fit", "runs.csv", "other.csv", "runs.csv"]) == 2
    err = capsys.readouterr().err
    assert "runs.csv: the model 'a' is in a file before, too" in err


def test_used_and_unused_lines_of_a_log_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [f"step {k:,} step_time=0.50 samples/s: 256" for k in range(40)]
    lines += ["Validation: step_time=0.1"] * 7 + ["epoch_time: 20.5", "0 tokens/s"]
    Path("a.log").write_text("\n".join(lines))
    assert (
        run(["jobs", "fit", "--log", "a.log", "--units", "2", "--batch-size", "64"])
        == 0
    )
    told = capsys.readouterr().err
    assert (
        "note: a.log: read 40 with step-time (as line 11 'step 10 step_time=0.50 samples/s: 256')"
        in told
    )
    assert (
        "a.log: not used: 7 with evaluation (line 41), 1 with tokens/sec (line 49)"
        in told
    )
    assert (
        "note: a.log: the log states 128 samples a step; 64 were given, and count"
        in told
    )


def test_a_log_without_certain_step_times_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.log").write_text(
        "".join(f"2024-03-05 00:00:{k:02d} alive, {10 * k} done\n" for k in range(40))
    )
    given = ["jobs", "fit", "--log", "a.log", "--units", "2", "--batch-size", "64"]
    assert run(given) == 2
    told = capsys.readouterr().err
    assert (
        "line 1 '2024-03-05 00:00:00 alive, 0 done': a time stamp without a step counter"
        in told
    )
    pattern = r"(?P<time>\S+ \S+) alive, (?P<step>\d+)"
    assert run([*given, "--pattern", pattern]) == 0
    assert " 0.1 " in capsys.readouterr().out


def test_tokens_a_second_are_no_samples(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.log").write_text("".join(f"step {k} 5,000 tokens/s\n" for k in range(40)))
    log("b.log", 0.5)
    given = ["jobs", "fit", "--log", "a.log", "--units", "2"]
    assert run([*given, "--batch-size", "64"]) == 2
    assert (
        "a batch size in samples does not give the tokens of a step"
        in capsys.readouterr().err
    )
    assert run(given) == 0
    seen = capsys.readouterr()
    assert "5000" in seen.out
    assert "a sample here is a token" in seen.err
    Path("b.log").write_text("".join(f"step {k} 500 samples/s\n" for k in range(40)))
    assert (
        run(["jobs", "fit", "--log", "a.log", "--log", "b.log", "--units", "2,4"]) == 2
    )
    assert "some of the logs state tokens a second only" in capsys.readouterr().err


def test_patterns_of_users_reach_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.log").write_text("".join(f"({k}) took 20 ticks\n" for k in range(40)))
    given = ["jobs", "fit", "--log", "a.log", "--units", "2", "--batch-size", "10"]
    assert run([*given, "--pattern", r"took (?P<ms>\d+)"]) == 0
    assert "one size only (2)" in capsys.readouterr().err
    assert run(given) == 2
    told = capsys.readouterr().err
    assert "a.log: tells no step times" in told
    assert "line 1 '(0) took 20 ticks': in no form that is known" in told


def test_a_form_of_log_is_chosen_by_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = "".join(f"step {k} step_time=0.5 9 ms/step\n" for k in range(40))
    Path("a.log").write_text(
        lines + "".join(f"{k}/40 - 1s {250 + k}ms/step\n" for k in range(40))
    )
    given = [
        "jobs",
        "fit",
        "--log",
        "a.log",
        "--units",
        "2",
        "--batch-size",
        "10",
        "--warmup",
        "0",
    ]
    for name, median in (("keras", " 0.2695 "), ("step-time", " 0.5 ")):
        assert run([*given, "--pattern", name]) == 0
        assert median in capsys.readouterr().out
    assert run([*given, "--pattern", "kerass"]) == 2
    assert (
        "or the name of a known form: megatron, deepspeed, keras,"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a table of measurements, or logs"),
        (["runs.csv", "--log", "x.log"], "--units must give the units of each log"),
        (["missing.csv"], "missing.csv: no such file"),
        (["."], "is a directory"),
        (["other.csv"], "expected the columns units and throughput"),
        (["runs.csv", "-o", "out.csv"], "-o needs --submit"),
        (["runs.csv", "-o", "out.csv", "--submit", "soon"], "--submit"),
        (["runs.csv", "-o", "out.xls", *SUBMIT], "written as .parquet, .csv or .jsonl"),
        (
            ["runs.csv", "-o", "out.csv", *SUBMIT, "--jmin", "9"],
            "expected at least Jmin",
        ),
        (["runs.csv", "-o", "runs.csv", *SUBMIT], "exists; --force replaces it"),
        (["runs.csv", "--units", "1,x"], "expected whole numbers >= 1"),
        (["runs.csv", "--units", "1", "--max", "2"], "give --units or --max"),
        (["runs.csv", "--unit-batch", "2"], "--unit-batch is for logs"),
        (["runs.csv", "--pattern", "x"], "--pattern is for logs"),
        (["runs.csv", "--model", "cubic"], "cubic"),
        (["--log", "train.log"], "--units must give the units of each log"),
        (
            ["--log", "train.log", "--units", "1,2"],
            "--units must give the units of each log",
        ),
        (
            ["--log", "train.log", "--units", "1"],
            "does not state samples a step (give --batch-size",
        ),
        (
            ["--log", "train.log", "--units", "1", "--pattern", "("],
            "is not a regular expression",
        ),
        (["--log", "none.log", "--units", "1"], "none.log: no such file"),
    ],
)
def test_bad_input_is_reported_and_leaves_nothing(
    here: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log("train.log", 0.5)
    Path("other.csv").write_text("model,size\na,90\n")
    before = sorted(here.iterdir())
    assert run(["jobs", "fit", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert sorted(here.iterdir()) == before


def test_each_model_states_its_work_and_submission_in_the_table(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs.csv").write_text(
        "model,units,throughput,pmax,submit\n"
        "bert,1,410,2e8,2024-03-04T06:00:00\nbert,2,800,,\nbert,4,1530,2e8,\n"
        "gpt,1,3,,2024-03-05\ngpt,2,5.8,4e5,2024-03-05T00:00:00\n"
        "vit,1,900,,\nvit,2,1700,,\n"
    )
    made = ["jobs", "fit", "runs.csv", "-o", "jobs.csv"]
    assert run(made) == 2
    assert "a column submit of the table: vit has none" in capsys.readouterr().err
    assert run([*made, "--submit", "2024-03-06", "--pmax", "7e7"]) == 0
    said = capsys.readouterr().err
    assert "vit does 900 samples/s and gpt 3, 300 times fewer" in said
    assert "--objective power:1 or efficiency" in said
    jobs = {job.name: job for job in read_jobs("jobs.csv")}
    assert {name: job.pmax for name, job in jobs.items()} == {
        "bert": 2e8,
        "gpt": 4e5,
        "vit": 7e7,
    }
    days = [pd.Timestamp(job.tsub_ns) for job in jobs.values()]
    assert [day.isoformat()[:16] for day in days] == [
        "2024-03-04T06:00",
        "2024-03-05T00:00",
        "2024-03-06T00:00",
    ]


def test_a_model_with_two_values_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs.csv").write_text(
        "model,units,throughput,pmax\nbert,1,410,2e8\nbert,2,800,3e8\n"
    )
    made = ["jobs", "fit", "runs.csv", "-o", "jobs.csv", "--submit", "2024-03-06"]
    assert run(made) == 2
    said = capsys.readouterr().err
    assert "runs.csv, row 2, column pmax: expected one value for all rows of be" in said
    assert not Path("jobs.csv").exists()


def test_a_replay_says_where_samples_should_not_be_added(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for fast, said in ((399, False), (400, True)):
        Path("runs.csv").write_text(
            f"model,units,throughput\nslow,1,4\nslow,2,7\nfast,1,{fast}\nfast,2,700\n"
        )
        fit = ["jobs", "fit", "runs.csv", "-o", "jobs.csv", "--pmax", "5e3", "--force"]
        assert run([*fit, "--submit", "2024-03-04"]) == 0
        assert ("100 times fewer" in capsys.readouterr().err) == said
        machine = ["generate", "trace", "--nodes", "60", "--start", "2024-03-04"]
        assert run([*machine, "-o", "trace.csv", "--force"]) == 0
        replay = ["-ndmap", "trace.csv", "--jobs", "jobs.csv", "--no-u", "--force"]
        capsys.readouterr()
        assert run([*replay, "--backend", "exact"]) == 0
        assert ("a sum of their samples says little" in capsys.readouterr().err) == said
        for objective, adds in (("power:0", said), ("power:1", False)):
            assert run([*replay, "--backend", "exact", "--objective", objective]) == 0
            err = capsys.readouterr().err
            assert ("a sum of their samples" in err) == adds
