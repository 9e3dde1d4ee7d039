"""`bft-replay xi build|check|show|measure`, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from processes import AMPLE_S

from bft.models import read_xi
from bft.models.measure.co_runs import slowdown
from bft.replay.cli.main import run

MEASUREMENTS = """model_a,batch_a,model_b,batch_b,units,step_a_s,step_b_s
bert,32,,,1,0.5,
vgg,64,,,1,0.2,
vgg,128,,,1,0.4,
bert,32,vgg,64,1,0.6,0.3
vgg,64,bert,32,1,0.31,0.7
vgg,128,bert,32,1,0.44,0.49
"""
# Both train on the processor, and say how long a step took; the third argument ends it early, or makes it fail.
LOOP = """
import sys, time
import numpy as np
size, steps, code = (int(word) for word in sys.argv[1:4])
a = np.random.default_rng(0).random((size, size))
for step in range(steps):
    start = time.perf_counter()
    b = a @ a
    print(f"step {step}: loss {b[0, 0]:.3f} step_time={time.perf_counter() - start:.9f}")
    time.sleep(0.001)
sys.exit(code)
"""
QUICK = [
    "--repeats",
    "2",
    "--steps",
    "10",
    "--warmup",
    "2",
    "--at-least",
    "0",
    "--time-limit",
    "900",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    Path("m.csv").write_text(MEASUREMENTS)
    Path("loop.py").write_text(LOOP)
    return tmp_path


def loop(size: int = 60, steps: int = 10**6, code: int = 0) -> list[str]:
    return ["--", sys.executable, "loop.py", str(size), str(steps), str(code)]


def test_build_merges_both_sides_and_repeats_byte_by_byte(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["xi", "build", "m.csv", "-o", "xi.csv"]) == 0
    captured = capsys.readouterr()
    assert "2 pairs measured (3 rows" in captured.out
    assert "1 xi below 1" in captured.err
    assert Path("xi.csv").read_text() == (
        "model_a,batch_a,model_b,batch_b,units,xi_a,xi_b\nbert,32,vgg,64,1,1.3,1.525\nbert,32,vgg,128,1,1.0,1.1\n"
    )
    assert run(["xi", "build", "m.csv", "-o", "again.csv"]) == 0
    assert Path("again.csv").read_bytes() == Path("xi.csv").read_bytes()
    assert run(["xi", "build", "xi.csv", "-o", "of-itself.csv"]) == 0
    assert Path("of-itself.csv").read_bytes() == Path("xi.csv").read_bytes()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["build", "none.csv", "-o", "xi.csv"], "none.csv: no such file"),
        (["build", "loop.py", "-o", "xi.csv"], "suffixes"),
        (["build", ".", "-o", "xi.csv"], "directory"),
        (["build", "wrong.csv", "-o", "xi.csv"], "wrong.csv, row 1, column step_a_s"),
        (["build", "binary.csv", "-o", "xi.csv"], "binary.csv"),
        (["build", "empty.csv", "-o", "xi.csv"], "empty.csv: is empty"),
        (["build", "m.csv", "-o", "xi.txt"], "written as .csv"),
        (["build", "m.csv", "-o", "xi.csv", "--for", "m.csv"], "missing column model"),
        (
            ["build", "m.csv", "-o", "xi.csv", "--for", "none.csv"],
            "none.csv",
        ),
        (["show", "m.csv"], "missing columns xi_a, xi_b"),
        (["measure", "--", "a"], "two commands"),
        (["measure", "--", "a", "--"], "two commands"),
        (["measure", "-o", "xi.csv", "--", "a", "--", "b"], "--model-a"),
        (
            [
                "measure",
                "-o",
                "m.csv",
                "--model-a",
                "a",
                "--model-b",
                "b",
                "--",
                "a",
                "--",
                "b",
            ],
            "missing columns",
        ),
        (
            ["measure", "--pattern", "(", "--", "a", "--", "b"],
            "not a regular expression",
        ),
        (
            ["measure", "--", "no-such-program", "--", "b"],
            "no-such-program) cannot be started: No such file",
        ),
    ],
)
def test_bad_input_is_reported_and_writes_nothing(
    folder: Path, command: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong.csv").write_text(MEASUREMENTS.replace("0.5", "fast"))
    Path("binary.csv").write_bytes(bytes(range(256)))
    Path("empty.csv").write_text("")
    before = {path.name for path in folder.iterdir()}
    assert run(["xi", *command]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert "Traceback" not in captured.err
    assert {path.name for path in folder.iterdir()} == before
    assert Path("m.csv").read_text() == MEASUREMENTS


def test_estimates_for_jobs_carry_flags_and_feed_a_replay(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(
        f'j{j},{model},{batch},1,4,1e5,2021-02-10T00:00:0{j}Z,6,3,"[0,1,4]","[0,10,38]","[0,10,38]"\n'
        for j, (model, batch) in enumerate(
            [("bert", 32), ("vgg", 96), ("vgg", 256), ("gpt", 8)]
        )
    )
    Path("jobs.csv").write_text(
        "name,model,batch_size,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n" + rows
    )
    Path("trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{i},1\n" for i in range(3))
        + "2021-02-10T02:00:00Z,n0,0\n"
    )
    assert run(["xi", "build", "m.csv", "-o", "xi.csv"]) == 0
    assert (
        run(["xi", "build", "m.csv", "-o", "estimated.csv", "--for", "jobs.csv"]) == 0
    )
    captured = capsys.readouterr()
    assert "never measured, so only guesses are possible: gpt" in captured.err
    table = pd.read_csv("estimated.csv")
    assert set(table["flag"]) == {"measured", "interpolated", "clamped", "guessed"}
    assert (table[["xi_a", "xi_b"]] >= 1).all(axis=None)
    between = table[(table["model_a"] == "bert") & (table["batch_b"] == 96)]
    assert between["flag"].tolist() == ["interpolated"]
    assert 1.0 <= between["xi_a"].item() <= 1.3
    assert (
        run(
            [
                "xi",
                "build",
                "m.csv",
                "-o",
                "sure.csv",
                "--for",
                "jobs.csv",
                "--no-guess",
            ]
        )
        == 0
    )
    assert set(pd.read_csv("sure.csv")["flag"]) == {
        "measured",
        "interpolated",
        "clamped",
    }

    used = {}
    for name in ("xi", "estimated"):
        command = [
            "-ndmap",
            "trace.csv",
            "--jobs",
            "jobs.csv",
            "-Tfwd",
            "120",
            "--xi",
            f"{name}.csv",
            "-name",
            name,
        ]
        assert run([*command, "--no-u"]) == 0
        held = pd.read_parquet(f"{name}-itrOut/allocations.parquet")
        seconds = (held["end"] - held["start"]).dt.total_seconds() * (
            held["last_unit"] - held["first_unit"] + 1
        )
        metrics = json.loads(Path(f"{name}-itrOut/summary.json").read_text())["metrics"]
        used[name] = seconds.sum() - metrics["used_unit_s"]
    assert used["xi"] == pytest.approx(0), "no pair of these jobs was measured"
    assert used["estimated"] > 0, "with estimates some share"


def test_check_counts_what_is_there_missing_and_odd(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("xi.csv").write_text(
        "model_a,model_b,xi_a,xi_b,flag\na,b,1.2,1.1,measured\nb,a,1.1,1.6,measured\nc,c,0.9,9,\na,c,1.2,1.2,guessed\n"
    )
    assert run(["xi", "show", "xi.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["rows"],
        found["models"],
        found["pairs"],
        found["possible_pairs"],
    ) == (4, 3, 3, 6)
    assert found["missing_pairs"] == [["a", "a"], ["b", "b"], ["b", "c"]]
    assert found["clipped"] == 1
    assert found["estimated"] == {"guessed": 1}
    assert [(entry["victim"], entry["partner"]) for entry in found["asymmetric"]] == [
        ("a", "b"),
        ("c", "c"),
    ]
    assert [entry["xi"] for entry in found["implausible"]] == [9.0]
    assert run(["xi", "show", "xi.csv"]) == 0
    told = capsys.readouterr().out
    assert "a + a, b + b, b + c" in told
    assert "row 1: xi of a beside b was measured from 1.2 to 1.6" in told


def test_show_draws_who_suffers_beside_whom(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("xi.csv").write_text(
        "model_a,model_b,xi_a,xi_b,flag\nlong-name,b,1.25,1.5,measured\nb,b,1.1,1.1,guessed\n"
    )
    assert run(["xi", "show", "xi.csv"]) == 0
    lines = capsys.readouterr().out.partition("xi of, beside")[2].splitlines()
    assert [line.split() for line in lines[2:4]] == [
        ["1", "b", "~1.10", "1.50"],
        ["2", "long-name", "1.25", "-"],
    ]
    assert "estimated" in lines[0]
    assert run(["xi", "build", "m.csv", "-o", "m-xi.csv"]) == 0
    assert run(["xi", "show", "m-xi.csv", "--by", "batch"]) == 0
    assert "vgg@128" in capsys.readouterr().out


def test_a_wide_table_is_drawn_in_blocks_without_losing_a_column(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"model-{k:02d}" for k in range(40)]
    Path("xi.csv").write_text(
        "model_a,model_b,xi_a,xi_b\n"
        + "".join(
            f"{name},{name},1.{at:02d},1.{at:02d}\n" for at, name in enumerate(names)
        )
    )
    assert run(["xi", "show", "xi.csv"]) == 0
    told = capsys.readouterr().out.partition("xi of, beside")[2]
    assert max(map(len, told.splitlines())) <= 80
    assert all(f"1.{at:02d}" in told.split() for at in range(40))


@pytest.mark.slow
def test_measure_runs_both_and_adds_a_row(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [
        "--model-a",
        "small",
        "--model-b",
        "large",
        "--batch-b",
        "64",
        "-o",
        "xi.csv",
    ]
    assert run(["xi", "measure", *QUICK, *named, "--json", *loop(40), *loop(80)]) == 0
    found = json.loads(capsys.readouterr().out)
    for side in ("a", "b"):
        assert (
            1
            <= found[f"xi_{side}_low"]
            <= found[f"xi_{side}"]
            <= found[f"xi_{side}_high"]
        )
        assert len(found[side]["alone_s"]) == len(found[side]["shared_s"]) == 2
        assert min(*found[side]["alone_s"], *found[side]["shared_s"]) > 0
    assert run(["xi", "measure", *QUICK, *named, *loop(40), *loop(80)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in told] == [
        "small beside large",
        "large beside small",
    ]
    rows = pd.read_csv("xi.csv")
    assert len(rows) == 2
    assert rows["batch_b"].tolist() == [64, 64]
    assert len(read_xi("xi.csv").measurements) == 2


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (
            loop(code=3, steps=4),
            loop(),
            ("command A", "failed with exit code 3 after ", "| step 3: loss"),
        ),
        (
            loop(steps=9),
            loop(),
            ("command A", " step times alone", "--steps"),
        ),
        (
            loop(),
            ["--", "echo", "nothing to", "read here"],
            ("command B", "0 of 2 step times", "| nothing to read"),
        ),
        (loop(), ["--", "true"], ("command B", "printed nothing")),
        (["--", "sleep", "60"], loop(), ("command A", "time limit", "printed nothing")),
        (
            ["--", "yes", "no times 7"],
            loop(),
            ("command A", "time limit", "| no times 7"),
        ),
    ],
    ids=[
        "fails",
        "ends early",
        "says nothing of use",
        "says nothing",
        "hangs",
        "floods",
    ],
)
def test_a_command_that_cannot_be_measured_is_reported_with_the_end_of_its_output(
    folder: Path,
    a: list[str],
    b: list[str],
    told: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = [*QUICK[:-1], "5"] if "time limit" in told else QUICK
    before = {path.name for path in folder.iterdir()}
    assert (
        run(
            [
                "xi",
                "measure",
                *options,
                "--model-a",
                "a",
                "--model-b",
                "b",
                "-o",
                "xi.csv",
                *a,
                *b,
            ]
        )
        == 2
    )
    captured = capsys.readouterr()
    for part in told:
        assert part in captured.err
    assert "Traceback" not in captured.err
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_what_was_started_and_its_children(
    folder: Path, number: int
) -> None:
    Path("parent.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        "open('pids.part', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids.part', 'pids')\n"
        "time.sleep(100)\n"
    )
    command = [
        sys.executable,
        "-c",
        "from bft.replay.cli import main; main()",
        "xi",
        "measure",
    ]
    measuring = subprocess.Popen(
        [*command, "--", sys.executable, "parent.py", *loop()], stderr=subprocess.PIPE
    )
    try:
        while not Path("pids").exists():
            assert measuring.poll() is None
            time.sleep(0.05)
        measuring.send_signal(number)
        _, told = measuring.communicate(timeout=AMPLE_S)
    finally:
        measuring.kill()
    assert measuring.returncode == 130
    assert b"Interrupted" in told
    for pid in map(int, Path("pids").read_text().split()):
        status = Path(f"/proc/{pid}/stat")
        if sys.platform == "linux":
            assert (
                not status.exists()
                or status.read_text().rpartition(")")[2].split()[0] == "Z"
            )
        elif pid == int(Path("pids").read_text().split()[0]):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        alone = 0.2 * np.exp(rng.normal(0, 0.05, 4))
        shared = 0.2 * 1.6 * np.exp(rng.normal(0, 0.05, 4))
        found = slowdown(alone.tolist(), shared.tolist(), 0.9)
        covered += found.low <= 1.6 <= found.high
    assert 0.85 <= covered / 400 <= 0.95
    exact = slowdown([1.0, 2.0, 4.0], [1.5, 3.0, 6.0], 0.95)
    assert (exact.xi, exact.low, exact.high) == (
        pytest.approx(1.5),
        pytest.approx(1.5),
        pytest.approx(1.5),
    )
    noise = slowdown([1.0, 1.1], [0.9, 1.0], 0.95)
    assert noise.xi == noise.low == 1.0
    assert noise.raw < 1 <= noise.high
    with pytest.raises(ValueError, match="two rounds"):
        slowdown([1.0], [2.0], 0.95)
