"""`bft-replay jobs fit`: fitted jobs can be replayed, and invalid input leaves no file."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from bft.models import read_jobs

RUNS = "model,units,throughput,batch_size\na,1,100,64\na,2,190,128\na,4,350,256\nb,2,20,64\nb,4,36,128\nb,8,30,256\n"
SUBMIT = "--submit 2021-02-10"
Fit = Callable[..., str]


@pytest.fixture(autouse=True)
def runs(here: Path) -> None:
    """Measurements of two models."""
    Path("runs.csv").write_text(RUNS)


@pytest.fixture
def fit(told: Callable[..., str]) -> Fit:
    """Runs `jobs fit`, and checks its exit code and that these parts are told."""
    return lambda line, *parts, code=0: told(f"jobs fit {line}", *parts, code=code)


def log(path: str, line: str, lines: int = 40) -> None:
    Path(path).write_text("".join(line.format(k) + "\n" for k in range(lines)))


def rates() -> dict[str, dict[int, float]]:
    """Samples a second by units of each job in jobs.csv, at the sizes of its curve."""
    curves = {job.name: job.scalability for job in read_jobs("jobs.csv")}
    return {n: dict(zip(c.ns[1:], c.ps[1:], strict=True)) for n, c in curves.items()}


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("piecewise", ".csv"), ("amdahl", ".parquet"), ("usl", ".jsonl")],
)
def test_what_is_fitted_can_be_replayed(
    fit: Fit, told: Callable[..., str], kind: str, suffix: str
) -> None:
    jobs = f"jobs{suffix}"
    said = fit(
        f"runs.csv --model {kind} --max 16 --pmax 1e6 -o {jobs} {SUBMIT}",
        f"{jobs}: 2 jobs",
    )
    assert ("b: falls beyond its peak" in said) == (kind != "amdahl")
    table = read_jobs(jobs)
    last = 16 if kind == "amdahl" else 4
    found = [(job.name, job.model, job.jmin, job.jmax) for job in table]
    assert found == [("a", "a", 1, 16), ("b", "b", 2, last)]
    assert table.jobs[0].rates[2] == pytest.approx(190, rel=0.05)
    trace = "time,node,idle\n2021-02-10T00:00:00Z,n1,1\n2021-02-10T00:00:00Z,n2,1\n2021-02-10T03:00:00Z,n1,0\n"
    Path("trace.csv").write_text(trace)
    told(f"-ndmap trace.csv --jobs {jobs} --backend exact --no-u -Tfwd 120")
    summary = json.loads(Path("debug-itrOut/summary.json").read_text())
    assert summary["metrics"]["jobs"] == 2


def test_the_report_tells_error_efficiency_and_what_is_beyond(fit: Fit) -> None:
    said = fit(
        "runs.csv --model amdahl --units 1,4,8,16",
        "model  runs  median error  max error       efficiency  extrapolated\n",
        "\na: P1 ",
        "warning: b: not monotone: 8 units give 30 samples/s, 4 give 36\n",
    )
    a, b = said.splitlines()[1:3]
    assert (a.split()[:2], a.split()[-1], b.split()[-1]) == (["a", "3"], "8,16", "1,16")
    assert "at 16 units" in a


def test_jmax_of_a_falling_curve_is_its_peak_and_sizes_and_work_are_as_told(
    fit: Fit,
) -> None:
    note = (
        "note: b: falls beyond its peak, 36 samples/s at 4 units and 30 at 8: Jmax is 4"
    )
    work = "each job has the work of 1.3e+08 samples, where no column pmax states it"
    fit(f"runs.csv -o jobs.csv --sizes 2,4 {SUBMIT}", note, work)
    found = [(job.jmax, job.pmax, job.sizes) for job in read_jobs("jobs.csv")]
    assert found == [(4, 1.3e8, (2, 4))] * 2
    # What was measured stays in the curve.
    assert rates()["b"] == {2: 20, 4: 36, 8: 30}


def test_a_fit_with_too_few_sizes_is_reported(fit: Fit) -> None:
    Path("two.csv").write_text("units,throughput\n1,100\n2,150\n")
    why = "warning: two: usl takes 3 sizes to be determined, and 2 were measured (1, 2): piecewise"
    said = fit(f"two.csv --model usl --max 64 -o jobs.csv {SUBMIT}", why)
    assert "sigma" not in said
    assert list(rates()["two"].values()) == [100, *[150] * 6]


def test_the_same_input_gives_the_same_bytes(fit: Fit) -> None:
    for name in ("x", "y"):
        fit(f"runs.csv --model usl -o {name}.parquet {SUBMIT}")
    assert Path("x.parquet").read_bytes() == Path("y.parquet").read_bytes()


def test_logs_are_measurements(fit: Fit) -> None:
    for units, seconds in ((4, 0.5), (8, 0.25)):
        steps = [f"step {k} step_time={9 if k < 10 else seconds}" for k in range(100)]
        Path(f"train{units}.log").write_text("\n".join(steps))
    logs = f"--log train4.log --log train8.log --units 4,8 -o jobs.csv --force {SUBMIT}"
    said = fit(f"{logs} --batch-size 64 --name net")
    row = ["train4.log", "4", "90", "0.5", "0.5-0.5", "128"]
    assert said.splitlines()[1].split() == row
    (job,) = read_jobs("jobs.csv")
    assert (job.name, job.jmin, job.jmax) == ("net", 4, 8)
    assert rates() == {"net": {4: 128, 8: 256}}
    # The batch of a unit: a step of 8 units takes twice that of 4.
    fit(f"{logs} --unit-batch 16")
    assert rates() == {"train4": {4: 128, 8: 512}}
    # Several tables and logs make one table.
    Path("other.csv").write_text("model,units,throughput\nc,1,10\nc,2,18\nc,4,30\n")
    fit(f"runs.csv other.csv {logs} --batch-size 64")
    assert list(rates()) == ["a", "b", "c", "train4"]
    assert (rates()["train4"], rates()["c"][4]) == ({4: 128, 8: 256}, 30)
    fit(
        "runs.csv other.csv runs.csv",
        "runs.csv: the model 'a' is in a file before, too",
        code=2,
    )


def test_equal_steps_of_more_units_ask_for_the_batch_of_a_unit(fit: Fit) -> None:
    line = f"--units 1,2,4 -o jobs.csv {SUBMIT}"
    for units, seconds in ((1, 0.25), (2, 0.26), (4, 0.25)):
        log(f"{units}.log", f"step {{}} step_time={seconds}")
        line += f" --log {units}.log"
    why = "a step takes as long on 4 units (0.25 s) as on 1 (0.25 s)"
    fit(f"{line} --model amdahl --batch-size 64", why, "give --unit-batch", code=2)
    fit(f"{line} --unit-batch 64")
    assert [round(rate) for rate in rates()["1"].values()] == [256, 492, 1024]


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
    fit: Fit, lines: list[str], rate: float
) -> None:
    Path("a.log").write_text("\n".join(lines) + "\n")
    shown = fit("--log a.log --units 8 --warmup 0").splitlines()[1].split()[-1]
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
    fit: Fit, line: str
) -> None:
    Path("a.log").write_text(f"{line}\n" * 20)
    given = "--log a.log --units 8"
    fit(given, "the rate of a part of the units; unit_samples_per_s takes it", code=2)
    said = fit(rf"{given} --pattern '(?P<unit_samples_per_s>42\.5)'")
    assert said.splitlines()[1].split()[-1] == "340"


STAMPS = "".join(f"2024-03-05 00:00:{k:02d} alive, {10 * k} done\n" for k in range(40))
USED = "".join(f"step {k:,} step_time=0.50 samples/s: 256\n" for k in range(40))
USED += "Validation: step_time=0.1\n" * 7 + "epoch_time: 20.5\n0 tokens/s\n"
KERAS = "".join(
    f"step {k} step_time=0.5 9 ms/step\n{k}/40 - 1s {250 + k}ms/step\n"
    for k in range(40)
)
TOKENS = "step 3 5,000 tokens/s\n" * 40


@pytest.mark.parametrize(
    ("text", "options", "code", "parts"),
    [
        ("step 3 step_time=0.5 s 8.0 it/s\n" * 20, "", 2, ["two statements that differ by a factor of"]),
        ("step 3 step_time=0.5 s 8.0 it/s\n" * 20, "--pattern step-time", 0, []),
        ("step 3 step_time=0.5 s 8.0 it/s\n" * 20, "--pattern step-rate", 0, []),
        ("step 3 340 samples/s, 42.5 samples/s\n" * 20, "", 2, ["two statements that differ by a factor of"]),
        ("step 3 340 samples/s, 42.5 samples/s\n" * 20, "--pattern images/sec", 0, []),
        (USED, "", 0, [
            "note: a.log: read 40 with step-time (as line 11 'step 10 step_time=0.50 samples/s: 256')",
            "a.log: not used: 7 with evaluation (line 41), 1 with tokens/sec (line 49)",
            "note: a.log: the log states 128 samples a step; 64 were given, and count",
        ]),
        (STAMPS, "", 2, ["line 1 '2024-03-05 00:00:00 alive, 0 done': a time stamp without a step counter"]),
        (STAMPS, r"--pattern '(?P<time>\S+ \S+) alive, (?P<step>\d+)'", 0, [" 0.1 "]),
        ("(3) took 20 ticks\n" * 40, r"--pattern 'took (?P<ms>\d+)'", 0, ["one size only (2)"]),
        ("(0) took 20 ticks\n" * 40, "", 2,
         ["a.log: tells no step times", "line 1 '(0) took 20 ticks': in no form that is known"]),
        (KERAS, "--warmup 0 --pattern keras", 0, [" 0.2695 "]),
        (KERAS, "--warmup 0 --pattern step-time", 0, [" 0.5 "]),
        (KERAS, "--pattern kerass", 2, ["or the name of a known form: megatron, deepspeed, keras,"]),
        (TOKENS, "", 2, ["a batch size in samples does not give the tokens of a step"]),
    ],
)  # fmt: skip
def test_a_log_is_read_as_it_is_meant(
    fit: Fit, text: str, options: str, code: int, parts: list[str]
) -> None:
    Path("a.log").write_text(text)
    fit(f"--log a.log --units 2 --batch-size 64 {options}", *parts, code=code)


def test_tokens_a_second_are_no_samples(fit: Fit) -> None:
    Path("a.log").write_text(TOKENS)
    fit("--log a.log --units 2", "5000", "a sample here is a token")
    log("b.log", "step {} 500 samples/s")
    fit(
        "--log a.log --log b.log --units 2,4",
        "some of the logs state tokens a second only",
        code=2,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "give a table of measurements, or logs"),
        ("runs.csv --log x.log", "--units must give the units of each log"),
        ("missing.csv", "missing.csv: no such file"),
        (".", "is a directory"),
        ("other.csv", "expected the columns units and throughput"),
        ("runs.csv -o out.csv", "a job needs --submit"),
        ("runs.csv -o out.csv --submit soon", "--submit"),
        (f"runs.csv -o out.xls {SUBMIT}", "written as .parquet, .csv or .jsonl"),
        (f"runs.csv -o runs.csv {SUBMIT}", "exists; --force replaces it"),
        ("runs.csv --units 1,x", "expected a whole number >= 1"),
        ("runs.csv --units 1 --max 2", "give --units or --max"),
        ("runs.csv --unit-batch 2", "--unit-batch is for logs"),
        ("runs.csv --batch-size 64", "--batch-size is for logs"),
        ("--log x.log --unit-batch 2 --batch-size 2", "give --unit-batch or --batch-size"),
        ("runs.csv --pattern x", "--pattern is for logs"),
        ("runs.csv --model cubic", "cubic"),
        ("--log train.log", "--units must give the units of each log"),
        ("--log train.log --units 1,2", "--units must give the units of each log"),
        ("--log train.log --units 1", "does not state samples a step (give --batch-size"),
        ("--log train.log --units 1 --pattern '('", "is not a regular expression"),
        ("--log none.log --units 1", "none.log: no such file"),
        (f"twice.csv -o out.csv {SUBMIT}",
         "twice.csv, row 2, column pmax: expected one value for all rows of be"),
    ],
)  # fmt: skip
def test_bad_input_is_reported_and_leaves_nothing(
    here: Path, fit: Fit, arguments: str, message: str
) -> None:
    log("train.log", "step {} step_time=0.5")
    Path("other.csv").write_text("model,size\na,90\n")
    Path("twice.csv").write_text(
        "model,units,throughput,pmax\nbert,1,410,2e8\nbert,2,800,3e8\n"
    )
    before = sorted(here.iterdir())
    fit(arguments, message, code=2)
    assert sorted(here.iterdir()) == before


def test_each_model_states_its_work_and_submission_in_the_table(fit: Fit) -> None:
    Path("runs.csv").write_text(
        "model,units,throughput,pmax,submit\n"
        "bert,1,410,2e8,2024-03-04T06:00:00\nbert,2,800,,\nbert,4,1530,2e8,\n"
        "gpt,1,3,,2024-03-05\ngpt,2,5.8,4e5,2024-03-05T00:00:00\n"
        "vit,1,900,,\nvit,2,1700,,\n"
    )
    fit("runs.csv -o jobs.csv", "a column submit of the table: vit has none", code=2)
    rates = "vit does 900 samples/s and gpt 3, 300 times fewer"
    fit(
        "runs.csv -o jobs.csv --submit 2024-03-06 --pmax 7e7",
        rates,
        "--objective power:1 or efficiency",
    )
    found = {
        job.name: (job.pmax, pd.Timestamp(job.tsub_ns).isoformat()[:16])
        for job in read_jobs("jobs.csv")
    }
    assert found == {
        "bert": (2e8, "2024-03-04T06:00"), "gpt": (4e5, "2024-03-05T00:00"), "vit": (7e7, "2024-03-06T00:00"),
    }  # fmt: skip


def test_a_replay_says_where_samples_should_not_be_added(
    fit: Fit, told: Callable[..., str]
) -> None:
    told("generate trace --nodes 60 --start 2024-03-04 -o trace.csv")
    replay = "-ndmap trace.csv --jobs jobs.csv --no-u --force --backend exact"
    for fast, said in ((399, False), (400, True)):
        Path("runs.csv").write_text(
            f"model,units,throughput\nslow,1,4\nslow,2,7\nfast,1,{fast}\nfast,2,700\n"
        )
        made = fit("runs.csv -o jobs.csv --pmax 5e3 --force --submit 2024-03-04")
        assert ("100 times fewer" in made) == said
        for objective, adds in (("own", said), ("power:0", said), ("power:1", False)):
            shown = told(f"{replay} --objective {objective}")
            assert ("a sum of their samples says little" in shown) == adds
