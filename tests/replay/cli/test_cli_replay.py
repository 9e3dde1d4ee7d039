"""`bft-replay [replay]` as users run it: options, run directory, exit codes, interrupts, and invalid input."""

import contextlib
import errno
import gzip
import io
import json
import os
import pickle
import pty
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import pandas as pd
import pytest
from processes import AMPLE_S, SCRIPT, result_of, signalled
from rich.console import Console
from stated import once

from bft.models import read_table
from bft.replay import always_idle
from bft.replay.cli.main import run
from bft.replay.cli.watcher import Output, bar
from bft.replay.inputs.jobs import default_workload, load_of

START = pd.Timestamp("2021-02-10T00:00:00Z")
PARQUETS = (
    "steps.parquet",
    "jobs.parquet",
    "allocations.parquet",
    "unused.parquet",
)


def trace_frame(rows: int = 40, nodes: int = 6, every_s: float = 60.0) -> pd.DataFrame:
    idle = (np.random.default_rng(0).random((rows, nodes)) < 0.6).astype(np.int8)
    idle[0, 0] = 1
    times = START.tz_localize(None) + pd.to_timedelta(
        np.arange(rows) * every_s, unit="s"
    )
    return pd.DataFrame(
        idle, index=pd.DatetimeIndex(times), columns=[f"n{k}" for k in range(nodes)]
    )


def job_frame(count: int = 5, pmax: float = 20_000.0) -> pd.DataFrame:
    submits = START.tz_localize(None) + pd.to_timedelta(
        np.arange(count) * 100, unit="s"
    )
    return pd.DataFrame(
        {
            "Tcup": 5.0,
            "Tcdw": 3.0,
            "Jmin": 1,
            "Jmax": 4,
            "Pmax": [pmax * (k + 1) for k in range(count)],
            "Tsub": submits,
            "Ns": [[0, 1, 2, 4]] * count,
            "Ps": [[0.0, 10.0, 18.0, 30.0]] * count,
            "Os": [[0.0, 10.0, 18.0, 30.0]] * count,
        },
        index=pd.Index([f"j{k}" for k in range(count)], name="name"),
    )


def to_csv(frame: pd.DataFrame, path: Path) -> Path:
    lists = {
        column: frame[column].map(json.dumps)
        for column in ("Ns", "Ps", "Os")
        if column in frame
    }
    frame.assign(**lists).to_csv(path)
    return path


@pytest.fixture
def here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a trace, a published pair of job tables, and a native one."""
    for variable in [name for name in os.environ if name.startswith("BFT_REPLAY")]:
        monkeypatch.delenv(variable)
    trace_frame().to_parquet("trace.parquet")
    jobs = job_frame()
    jobs[["Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub"]].to_parquet("bd.parquet")
    jobs[["Ns", "Ps", "Os"]].to_parquet("sc.parquet")
    to_csv(jobs, Path("jobs.csv"))
    return here


Refused = Callable[..., str]
FILES = ["-ndmap", "trace.parquet", "--jobs", "jobs.csv"]
INPUT = [*FILES, "--backend", "exact"]
# For tests of what surrounds a replay, in processes of their own: no kernels to load.
FIFO = [*FILES, "--policy", "fifo"]


def summary(folder: str = "debug-itrOut") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        Path(folder, "summary.json").read_text(encoding="utf-8")
    )
    return content


def options(folder: str = "debug-itrOut") -> dict[str, Any]:
    found: dict[str, Any] = summary(folder)["options"]
    return found


# --- options ----------------------------------------------------------------------------------------------------------


def test_published_options_and_their_long_names_mean_the_same(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        ("-ndmap", "--node-trace"): "trace.parquet",
        ("-bdfn", "--job-bounds"): "bd.parquet",
        ("-scfn", "--job-curves"): "sc.parquet",
        ("-Tfwd", "--forward-window"): "120",
        ("-optTL", "--time-limit"): "7",
        ("-maxJ", "--max-jobs"): "3",
        ("-nis", "--first-node"): "1",
        ("-nN", "--node-count"): "4",
        ("-mip", "--mip"): "0",
        ("-print", "--print"): "1",
    }
    for form, name in ((0, "-name"), (1, "--name")):
        args = [
            word for names, value in values.items() for word in (names[form], value)
        ]
        assert run([*args, name, f"form{form}"]) == 0
    short, long = options("form0-itrOut"), options("form1-itrOut")
    assert short == long
    stated = {
        "node_trace": "trace.parquet",
        "job_bounds": "bd.parquet",
        "job_curves": "sc.parquet",
        "tfwd_s": 120.0,
        "time_limit_s": 7.0,
        "max_jobs": 3,
        "first_node": 1,
        "node_count": 4,
        "policy": "equal-share",
    }
    assert {**short, **stated} == short


def test_defaults_are_the_published_ones(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            [
                "-ndmap",
                "trace.parquet",
                "-bdfn",
                "bd.parquet",
                "-scfn",
                "sc.parquet",
                "--no-u",
            ]
        )
        == 0
    )
    found = options("debug-itrOut")
    published = {
        "tfwd_s": 10.0,
        "time_limit_s": 10.0,
        "max_jobs": 10,
        "first_node": 0,
        "node_count": None,
    }
    assert {**found, **published, "policy": "milp", "backend": "cbc"} == found
    assert "Results: debug-itrOut" in capsys.readouterr().out
    # The native table has the same jobs.
    assert run([*FILES, "--name", "native", "--no-u"]) == 0
    for name in PARQUETS:
        assert Path("native-itrOut", name).read_bytes() == Path("debug-itrOut", name).read_bytes()  # fmt: skip


def test_published_names_without_suffix_are_found(here: Path) -> None:
    for name in ("trace", "bd", "sc"):
        pd.read_parquet(f"{name}.parquet").to_pickle(f"{name}.pkl")
    names = ["-ndmap", "trace", "-bdfn", "bd", "-scfn", "sc", "--trust-pickle"]
    assert run([*names, "--backend", "exact", "--no-u"]) == 0
    digests = summary()["inputs"]["digests_sha256"]
    assert set(digests) == {"node_trace", "job_bounds", "job_curves"}


def test_without_arguments_the_bundled_data_set_is_replayed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The backend by its variable: CBC takes ten seconds for the bundled data.
    exact = {"BFT_REPLAY_REPLAY_BACKEND": "exact"}
    process = result_of(SCRIPT, env={**os.environ, **exact})
    assert process.returncode == 0, process.stderr
    found = summary()
    share = found["inputs"]["jobs"]["generated_load"]
    assert 0 < share < 2
    assert found["inputs"]["trace"]["source"].startswith("bundled")
    assert found["inputs"]["jobs"] == {
        "count": 60,
        "source": "bundled: jobs-60",
        "never_run": [],
        "generated_load": share,
    }
    assert found["options"]["node_trace"] is None
    assert 0 < found["metrics"]["U"] < 1
    assert "\x1b" not in process.stdout + process.stderr
    assert "training outcome" in process.stdout


def test_a_trace_without_jobs_gets_a_generated_workload_of_its_size(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-ndmap", "trace.parquet", "--policy", "equal-share", "--no-u"]) == 0
    out, err = capsys.readouterr()
    assert (
        "no jobs given: 10 generated image-recognition trainings, one every 234 s"
        in err
    )
    assert "a load of 1.00" in err
    lines = [
        line
        for line in out.splitlines()
        if line.startswith(("job completion time", "queueing time"))
    ]
    assert all("(of a generated workload, load 1.00)" in line for line in lines)
    assert any(line.startswith("queueing time") for line in lines)
    assert summary()["inputs"]["jobs"]["generated_load"] == pytest.approx(1.0)
    assert any("no jobs given" in note for note in summary()["notes"])
    assert run(["report", "debug-itrOut"]) == 0
    page = next(Path().glob("*.html")).read_text("utf-8")
    assert page.count("generated workload") >= 3
    # Jobs of one's own are not called so.
    capsys.readouterr()
    assert run([*INPUT, "--no-u", "--name", "own"]) == 0
    assert "generated" not in capsys.readouterr().out
    assert summary("own-itrOut")["inputs"]["jobs"]["generated_load"] is None


@pytest.mark.parametrize(
    ("nodes", "count"),
    [(2, 29), (40, 587), pytest.param(3000, 10_000, marks=pytest.mark.slow)],
)
def test_the_generated_workload_needs_what_the_trace_offers(
    nodes: int, count: int
) -> None:
    trace = always_idle(nodes, START.value, START.value + 10 * 86_400 * 10**9)
    jobs = default_workload(trace)
    assert load_of(jobs, trace) == pytest.approx(1.0)
    assert len(jobs) == count  # a job takes 16.4 h of one node on the mean
    assert trace.start == jobs.jobs[0].tsub_ns
    assert jobs.jobs[-1].tsub_ns < trace.end
    assert f"{len(jobs):,} generated" in jobs.notes[0]


def test_mip_0_and_policy_equal_share_are_the_same(here: Path) -> None:
    for name, args in (
        ("a", ["-mip", "0"]),
        ("b", ["--policy", "equal-share"]),
        ("c", ["-mip=false"]),
    ):
        assert run([*INPUT, *args, "--name", name]) == 0
    assert options("a-itrOut") == options("b-itrOut") == options("c-itrOut")
    assert (
        Path("a-itrOut", "steps.parquet").read_bytes()
        == Path("b-itrOut", "steps.parquet").read_bytes()
    )


def test_no_u_leaves_out_the_second_replay(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*INPUT, "--no-u", "--name", "without"]) == 0
    assert run([*INPUT, "--name", "with"]) == 0
    without, found = (
        summary("without-itrOut")["metrics"],
        summary("with-itrOut")["metrics"],
    )
    assert without["U"] is None
    assert found["U"] == pytest.approx(found["outcome"] / found["dedicated_outcome"])
    assert {k: v for k, v in found.items() if "U" not in k and "dedic" not in k} == {
        k: v for k, v in without.items() if "U" not in k and "dedic" not in k
    }


def test_verify_holds_every_answer_of_cbc_against_the_exact_programme(
    here: Path,
) -> None:
    assert (
        run(
            [
                "-ndmap",
                "trace.parquet",
                "--jobs",
                "jobs.csv",
                "--option",
                "verify=yes",
                "--no-u",
            ]
        )
        == 0
    )
    metrics = summary()["metrics"]
    assert metrics["verify_mismatches"] == 0
    assert 0 < metrics["verified"] <= metrics["decisions"]


def test_compat_reference_writes_the_published_log(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*INPUT, "--option", "compat=reference", "--skip-rows", "0", "-mip", "0"]
    assert run([*args, "--option", "verify=yes"]) == 0
    assert (
        "--option verify=yes has no effect with --option compat=reference"
        in capsys.readouterr().err
    )
    log = pd.read_csv("debug-itrOut/step-logs.csv")
    assert {"evtTime", "Thr", "Rate", "ReScost", "PreCost", "nJrun"} <= set(log.columns)
    assert len(log) == summary()["metrics"]["rows"]


def test_compat_reference_says_that_it_skips_the_published_rows(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*INPUT, "--option", "compat=reference"]) == 2
    err = capsys.readouterr().err
    assert "first 1000 rows are skipped, as published" in err
    assert "leaves none of the 40 rows" in err


def test_min_interval_and_events_node_decide_less(here: Path) -> None:
    decisions = []
    for k, args in enumerate(
        ([], ["--option", "events=node"], ["--option min-interval", "300"])
    ):
        assert run([*INPUT, "--no-u", "--name", str(k), *args]) == 0
        decisions.append(summary(f"{k}-itrOut")["metrics"]["decisions"])
    assert decisions[0] > decisions[1] > decisions[2] > 0


# --- configuration and environment ------------------------------------------------------------------------------------


def test_variables_have_the_long_names_win_over_the_config_and_lose_to_flags(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("site.toml").write_text(
        'node-trace = "trace.parquet"\njobs = "jobs.csv"\nbackend = "exact"\n'
        'Tfwd = 55\nmax_jobs = 3\nname = "cfg"\nskip-rows = 2\n'
    )
    monkeypatch.setenv("BFT_REPLAY_REPLAY_FORWARD_WINDOW", "77")
    monkeypatch.setenv("BFT_REPLAY_REPLAY_MAX_JOBS", "4")
    monkeypatch.setenv("BFT_REPLAY_REPLAY_PRINT", "0")
    monkeypatch.setenv("BFT_REPLAY_REPLAY_NO_U", "1")
    assert run(["--config", "site.toml", "-maxJ", "5"]) == 0
    found = options("cfg-itrOut")
    names = ("tfwd_s", "max_jobs", "dedicated", "backend", "skip_rows")
    assert [found[name] for name in names] == [77.0, 5, False, "exact", 2]
    assert capsys.readouterr() == ("", "")


def test_an_invalid_variable_is_an_error(
    here: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setenv("BFT_REPLAY_REPLAY_MAX_JOBS", "many")
    refused(INPUT, "--max-jobs", "'many'")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("Tfw = 3\n", ["unknown option 'Tfw'", "did you mean 'Tfwd'"]),
        ("[replay]\nTfwd = 3\n", ["unknown option 'replay'"]),
        ('config = "other.toml"\n', ["unknown option 'config'"]),
        ("Tfwd = \n", ["not TOML", "line 1"]),
        ("Tfwd = -1\n", ["Tfwd", "> 0", "-1"]),
        ("Tfwd = true\n", ["Tfwd", "a number", "True"]),
        ("Tfwd = nan\n", ["Tfwd", "> 0", "nan"]),
        ("max-jobs = 2.9\n", ["max-jobs", "whole number", "2.9"]),
        ("max-jobs = true\n", ["max-jobs", "whole number"]),
        ("jobs = [3]\n", ["jobs", "expected text"]),
        ("name = 3\n", ["name", "expected text"]),
        ('sort = "maybe"\n', ["sort", "not a valid boolean"]),
        ('mip = "maybe"\n', ["mip", "true or false", "'maybe'"]),
        ('policy = "roulette"\n', ["policy", "'roulette'"]),
        ('name = "a\\u0000b"\n', ["name", "UTF-8"]),
    ],
)
def test_an_invalid_config_is_reported_with_file_and_key(
    here: Path, refused: Refused, content: str, told: list[str]
) -> None:
    Path("site.toml").write_text(content)
    refused(
        [*INPUT, "--config", "site.toml"],
        *([] if "u0000" in content else ["site.toml"]),
        *told,
    )


# --- the run directory ------------------------------------------------------------------------------------------------


def test_out_names_the_run_directory_and_makes_its_parents(here: Path) -> None:
    assert run([*INPUT, "--no-u", "--out", "some/where/else", "--name", "ignored"]) == 0
    assert {path.name for path in Path("some/where/else").iterdir()} == {
        *PARQUETS,
        "summary.json",
        "timing.json",
    }
    assert not Path("ignored-itrOut").exists()
    assert sorted(path.name for path in Path("some/where").iterdir()) == ["else"]


def test_an_earlier_run_is_replaced_with_force_only(
    here: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    assert run([*INPUT, "--no-u"]) == 0
    capsys.readouterr()
    refused(
        [*INPUT, "-Tfwd", "99"],
        "debug-itrOut",
        "earlier run",
        "--force",
        "--out",
    )
    assert options()["tfwd_s"] == 10.0
    assert run([*INPUT, "--no-u", "-Tfwd", "99", "--force"]) == 0
    assert options()["tfwd_s"] == 99.0
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_force_keeps_the_earlier_run_when_the_new_one_fails(
    here: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    assert run([*INPUT, "--no-u"]) == 0
    capsys.readouterr()
    refused(
        ["-ndmap", "nope.parquet", "--jobs", "jobs.csv", "--force"],
        "nope.parquet",
        "no such file",
    )
    assert options()["node_trace"] == "trace.parquet"


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("alien", ["thesis.tex", "summary.json"])
def test_a_folder_that_is_not_ours_is_never_touched(
    here: Path, refused: Refused, force: list[str], alien: str
) -> None:
    Path("precious").mkdir()
    Path("precious", alien).write_text('{"format": "something else"}')
    refused(
        [*INPUT, "--out", "precious", *force],
        "precious",
        "not a run directory",
        "--out",
    )


def test_an_empty_folder_is_filled_also_the_current_one(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("empty").mkdir()
    monkeypatch.chdir("empty")
    assert (
        run(
            [
                "-ndmap",
                "../trace.parquet",
                "--jobs",
                "../jobs.csv",
                "--backend",
                "exact",
                "--no-u",
                "--out",
                ".",
            ]
        )
        == 0
    )
    assert Path(here, "empty", "summary.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(here: Path, refused: Refused) -> None:
    Path("locked").mkdir(mode=0o500)
    refused([*INPUT, "--out", "locked/run"], "locked", "no permission")


# --- what is printed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_json", [True, False])
@pytest.mark.parametrize("prints", [True, False])
def test_json_is_all_that_standard_output_gets_and_print_0_writes_a_log(
    here: Path, capsys: pytest.CaptureFixture[str], prints: bool, is_json: bool
) -> None:
    assert run([*INPUT, "-print", str(int(prints)), *["--json"] * is_json]) == 0
    out, err = capsys.readouterr()
    if is_json:
        assert json.loads(out, parse_constant=pytest.fail) == summary()
    said = out + err
    if not prints:
        said = Path("debug-itrOut/replay.log").read_text(encoding="utf-8")
        assert (err, out == "") == ("", not is_json)
    assert "100 %" in said
    assert ("training outcome" in said) == (not (prints and is_json))
    assert not Path("debug-itrOut/timing.json").read_text().count(str(here))


def on_terminal(args: list[str], **env: str) -> tuple[int, str]:
    """Exit code and output of the command on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*SCRIPT, *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **env},
    )
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 65536):
            seen += block
    except OSError:  # how Linux tells that the other end has closed
        pass
    finally:
        os.close(ours)
    return process.wait(timeout=AMPLE_S), seen.decode()


def test_on_a_terminal_there_is_a_bar_and_the_cursor_comes_back(here: Path) -> None:
    code, seen = on_terminal([*FIFO, "--name", "umlaut-ä"], TERM="xterm", COLUMNS="100")
    assert code == 0, seen
    assert "replay" in seen
    assert "for U" in seen
    assert seen.count("100%") >= 2
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    assert "\x1b" not in seen[seen.index("training outcome") :]
    assert seen.rstrip().endswith("Results: umlaut-ä-itrOut")
    code, seen = on_terminal(["-ndmap", "nope.parquet"], TERM="xterm")
    assert code == 2
    assert "nope.parquet: no such file" in seen
    assert seen.count("\x1b[?25h") == seen.count("\x1b[?25l")
    code, seen = on_terminal([*FIFO, "--no-u"], TERM="dumb")
    assert code == 0
    assert "Traceback" not in seen
    assert "training outcome" in seen


FULL = "Error: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("redirection", "code", "end"),
    [(">&- 2>&-", 0, ""), ("2>/dev/full >/dev/null", 0, ""), ("2>&1 | true", 0, ""), ("-print 1 >/dev/full", 2, FULL)],
)  # fmt: skip
def test_closed_and_full_outputs_do_not_cost_the_results(
    here: Path, redirection: str, code: int, end: str
) -> None:
    words = " ".join(f"'{word}'" for word in [*SCRIPT, *FIFO, "--no-u"])
    process = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} {redirection}"],
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
    )
    assert "Traceback" not in process.stderr
    assert process.stderr.endswith(end)
    assert process.returncode == code
    assert summary()["metrics"]["jobs"] == 5


# --- determinism ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "backend", ["cbc", pytest.param("exact", marks=pytest.mark.slow)]
)
def test_the_same_command_gives_the_same_bytes(here: Path, backend: str) -> None:
    contents = []
    for _ in range(2):
        process = subprocess.run(
            [
                *SCRIPT,
                *once([*INPUT, "--backend", backend]),
                "-Tfwd",
                "120",
                "-print",
                "0",
                "--force",
            ],
            timeout=AMPLE_S,
        )
        assert process.returncode == 0
        contents.append(
            {path.name: path.read_bytes() for path in Path("debug-itrOut").iterdir()}
        )
    assert contents[0].keys() == {
        *PARQUETS,
        "summary.json",
        "timing.json",
        "replay.log",
    }
    for name in contents[0].keys() - {"timing.json"}:
        assert contents[0][name] == contents[1][name], name


# --- exit codes 3 and 130 ---------------------------------------------------------------------------------------------


def test_a_solver_that_does_not_start_degrades_and_does_not_end_a_replay(
    here: Path,
) -> None:
    trace_frame(rows=8).to_parquet("trace.parquet")
    broken = {"PMIP_CBC_LIBRARY": str(Path("broken", "libCbc.so").absolute())}
    args = ["-ndmap", "trace.parquet", "--jobs", "jobs.csv", "-Tfwd", "120", "--no-u"]
    process = result_of([*SCRIPT, *args], env={**os.environ, **broken})
    assert process.returncode == 3, process.stderr
    assert "Degraded" in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr
    found = summary()
    assert found["degraded"] is True
    assert found["metrics"]["decisions_by_status"]["fallback"] > 0
    # The fallback is the exact DP: what it gives is what that backend gives.
    assert run([*args, "--backend", "exact", "--name", "exact"]) == 0
    steps, exact = (
        pd.read_parquet(f"{name}-itrOut/steps.parquet") for name in ("debug", "exact")
    )
    assert (steps["status"] == "fallback").any()
    pd.testing.assert_series_equal(steps["used"], exact["used"])
    pd.testing.assert_series_equal(steps["progress"], exact["progress"])


def endless(rows: int = 20_000) -> None:
    """Rewrite the trace so that a replay of it takes long: a change every second."""
    times = START.tz_localize(None) + pd.to_timedelta(np.arange(rows), unit="s")
    idle = np.ones((rows, 6), dtype=np.int8)
    idle[::2, 5] = 0
    trace = pd.DataFrame(
        idle, index=pd.DatetimeIndex(times), columns=[f"n{k}" for k in range(6)]
    )
    trace.to_parquet("trace.parquet")
    to_csv(job_frame(pmax=1e12), Path("jobs.csv"))


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGINT, ["--backend", "cbc"]),
        (signal.SIGTERM, ["--policy", "fifo"]),
        (signal.SIGHUP, ["--backend", "cbc"]),
    ],
)
def test_an_interrupted_replay_keeps_what_it_has(
    here: Path, number: signal.Signals, options: list[str]
) -> None:
    endless()
    process = result_of([*signalled([(20, number)]), *FILES, *options])
    assert process.returncode == 130, process.stderr
    assert "Traceback" not in process.stderr
    assert process.stderr.endswith(
        "Interrupted: what had been replayed is kept and marked.\n"
    )
    metrics = summary()["metrics"]
    assert metrics["interrupted"] is True
    assert metrics["U"] is None
    steps = pd.read_parquet("debug-itrOut/steps.parquet")
    assert 0 < metrics["decisions"] <= len(steps) <= 21
    assert metrics["duration_s"] < 20_000
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_a_replay_whose_terminal_is_gone_keeps_what_it_has(here: Path) -> None:
    endless()
    # At step 20 it says so and waits for the signal that the kernel sends when the terminal is closed.
    waiting = (
        "import faulthandler\n"
        "faulthandler.enable(open('fault.txt', 'w'))\n"  # standard error is gone when it would be needed
        "def waiting(self):\n"
        "    step(self)\n"
        "    if steps == 20:\n"
        "        os.write(2, b'step 20')\n"
        "        while not os.path.exists('closed'):\n"
        "            time.sleep(0.01)\n"
        "engine.Replay.step = waiting\n"
    )
    command = [*signalled([], more=waiting), *FIFO, "--checkpoint-every", "1e6"]
    process, terminal = pty.fork()
    if process == 0:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    shown = b""
    while b"step 20" not in shown:
        shown += os.read(terminal, 1000)
    os.close(terminal)
    Path("closed").touch()
    _, status = os.waitpid(process, 0)
    assert (os.waitstatus_to_exitcode(status), Path("fault.txt").read_text()) == (
        130,
        "",
    )
    assert summary()["metrics"]["interrupted"] is True
    assert sorted(
        path.name for path in here.iterdir() if "debug-itrOut" in path.name
    ) == [
        "debug-itrOut",
        "debug-itrOut.checkpoint.zip",
    ]


def test_a_bar_draws_in_the_thread_that_replays(here: Path) -> None:
    # A thread of its own would write to a terminal that is gone, and still be there when Python ends.
    counting = (
        "import atexit, threading\n"
        "seen = set()\n"
        "def counted(self):\n"
        "    step(self)\n"
        "    seen.update(thread.name for thread in threading.enumerate())\n"
        "engine.Replay.step = counted\n"
        "atexit.register(lambda: os.write(2, ('threads ' + ' '.join(seen)).encode()))\n"
    )
    trace_frame(rows=8).to_parquet("trace.parquet")
    command = [*signalled([], more=counting), *FIFO]
    process, terminal = pty.fork()
    if process == 0:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when the other end is closed
        while part := os.read(terminal, 65_536):
            shown += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in shown.decode()
    assert shown.endswith(b"threads MainThread")


class _Gone(io.StringIO):
    """A terminal that is gone."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_shows_progress_goes_on_where_nobody_reads_it() -> None:
    console = Console(file=cast("TextIO", Output(_Gone())), force_terminal=True)
    with bar(console) as shown:
        task = shown.add_task("replay", total=10, text="")
        shown.update(task, completed=5, refresh=True)
    assert shown.tasks[task].completed == 5


def test_a_replay_that_is_to_outlive_its_terminal_does(here: Path) -> None:
    more = (
        "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"  # as nohup does
    )
    process = result_of([*signalled([(20, signal.SIGHUP)], more=more), *FIFO])
    assert process.returncode == 0, process.stderr
    assert summary()["metrics"]["interrupted"] is False


def test_an_interrupt_while_modules_are_imported_is_no_traceback() -> None:
    pressed = (
        "import builtins, os, signal\n"
        "plain = builtins.__import__\n"
        "def pressed(name, *args):\n"
        "    if name == 'click':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return plain(name, *args)\n"
        "builtins.__import__ = pressed\n"
        "from bft.replay.cli import main; main()\n"
    )
    process = result_of([sys.executable, "-c", pressed, "list", "backends"], cold=True)
    assert (process.returncode, process.stdout, process.stderr) == (
        -signal.SIGINT,
        "",
        "",
    )
    # What is imported before main() is called: of other packages nothing, so that there is hardly a time before it.
    before = "import sys; from bft.replay.cli import main; print({'click', 'numpy', 'inspect'} & set(sys.modules))"
    assert result_of([sys.executable, "-c", before], cold=True).stdout == "set()\n"


def test_an_interrupt_that_arrives_twice_is_one(here: Path) -> None:
    # As from timeout(1), which signals the process and then its group.
    endless()
    process = result_of([*signalled([(20, signal.SIGINT), (20, signal.SIGINT)]), *FIFO])
    assert process.returncode == 130, process.stderr
    assert summary()["metrics"]["interrupted"] is True


def test_a_second_interrupt_ends_at_once_and_leaves_nothing_behind(here: Path) -> None:
    endless()
    # A replay that asks once whether it should stop, and no more: only the second interrupt gets through.
    deaf = (
        "run = engine.Replay.run\n"
        "def deaf(self, **given):\n"
        "    given.pop('should_stop')()\n"
        "    return run(self, **given)\n"
        "engine.Replay.run = deaf\n"
    )
    twice = signalled(
        [(20, signal.SIGINT), (40, signal.SIGINT)], pause_s=0.5, more=deaf
    )
    process = result_of([*twice, *FIFO])
    assert process.returncode == 130
    assert "Traceback" not in process.stderr
    assert process.stderr.endswith("\nInterrupted.\n")
    assert not Path("debug-itrOut").exists()
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_an_interrupt_during_the_replay_for_u_is_reported_too(here: Path) -> None:
    # The main replay is short, the dedicated one is held until the interrupt has come.
    slow = (
        "import os, signal, bft.replay.results.dedicated as dedicated\n"
        "plain = dedicated.always_idle\n"
        "def held(*args, **given):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return plain(*args, **given)\n"
        "dedicated.always_idle = held\n"
        "from bft.replay.cli import main; main()\n"
    )
    process = result_of([sys.executable, "-c", slow, *FIFO])
    assert process.returncode == 130, process.stderr
    metrics = summary()["metrics"]
    assert metrics["interrupted"] is True
    assert metrics["U"] is None
    assert metrics["duration_s"] == pytest.approx(39 * 60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["replay", "convert"])
def test_an_interrupt_while_inputs_are_read_ends_at_once_and_leaves_nothing(
    here: Path, number: signal.Signals, command: str
) -> None:
    os.mkfifo("endless.csv")  # whoever reads it waits until somebody writes
    args = (
        ["replay", "-ndmap", "endless.csv"]
        if command == "replay"
        else ["convert", "endless.csv", "-o", "a.parquet"]
    )
    before = sorted(path.name for path in here.iterdir())
    process = subprocess.Popen(
        [*SCRIPT, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pipe = None
    while pipe is None and process.poll() is None:
        try:
            pipe = os.open("endless.csv", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads yet
            time.sleep(0.01)
    process.send_signal(number)
    _, told = process.communicate(timeout=AMPLE_S)
    assert pipe is not None, told
    os.close(pipe)
    assert (process.returncode, told.strip()) == (130, "Interrupted.")
    assert sorted(path.name for path in here.iterdir()) == before


def test_an_unexpected_end_of_file_is_no_interrupt(here: Path) -> None:
    broken = (
        "import bft.replay.run as run\n"
        "def load(*_):\n"
        "    raise EOFError('of a file')\n"
        "run.load = load\n"
        "from bft.replay.cli import main; main()\n"
    )
    process = result_of([sys.executable, "-c", broken, *FIFO])
    assert process.returncode == 1
    assert process.stderr.endswith("EOFError: of a file\n")
    assert "Interrupted" not in process.stderr


# --- wrong options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["-Tfwd", "0"], ["-Tfwd", "> 0", "'0'"]),
        (["-Tfwd", "-5"], ["-Tfwd", "> 0", "'-5'"]),
        (["-Tfwd", "nan"], ["-Tfwd", "> 0", "'nan'"]),
        (["-Tfwd", "inf"], ["-Tfwd", "at most", "'inf'"]),
        (["-Tfwd", "1e308"], ["-Tfwd", "at most", "'1e308'"]),
        (["-Tfwd", "two minutes"], ["-Tfwd", "seconds", "'two minutes'"]),
        (["-Tfwd", ""], ["-Tfwd", "seconds", "''"]),
        (["-Tfwd"], ["-Tfwd", "argument"]),
        (["-optTL", "0"], ["-optTL", "> 0"]),
        (["-optTL", "1e8"], ["-optTL", "at most"]),
        (["-maxJ", "-1"], ["-maxJ", "0"]),
        (["-maxJ", "2.5"], ["-maxJ", "'2.5'"]),
        (["-nis", "-1"], ["-nis", "-1"]),
        (["-nN", "0"], ["-nN", "0"]),
        (["-mip", "perhaps"], ["-mip", "true or false", "'perhaps'"]),
        (["-print", "2"], ["-print", "true or false", "'2'"]),
        (["--option", "min-interval=-1"], ["--option min-interval", ">= 0"]),
        (["--option", "min-interval=1e300"], ["--option min-interval", "at most"]),
        (["--option", "gap=nan"], ["--option gap", "finite"]),
        (["--option", "gap=1"], ["--option gap"]),
        (["--option", "threads=0"], ["--option threads"]),
        (["--skip-rows", "-1"], ["--skip-rows"]),
        (
            ["--policy", "roulette"],
            ["--policy", "'roulette'", "'milp'", "'equal-share'"],
        ),
        (["--backend", "abacus"], ["--backend", "'abacus'", "'cbc'", "'exact'"]),
        (["--option", "formulation=sos2"], ["--option formulation", "'modes'"]),
        (["--option", "cost-model=free"], ["--option cost-model", "'stall'"]),
        (["--option", "events=none"], ["--option events", "'node'"]),
        (["--option", "compat=gavel"], ["--option compat", "'reference'"]),
        (["--policy", "milp", "-mip", "0"], ["-mip 0", "--policy is milp"]),
        (["-bdfn", "bd.parquet"], ["--jobs", "-bdfn", "-scfn"]),
        (["-Tfw", "3"], ["-Tfw", "-Tfwd"]),
        (["-maxj", "3"], ["-maxj", "-maxJ"]),
        (["--max-job", "3"], ["--max-job", "--max-jobs"]),
        (["--frobnicate"], ["--frobnicate"]),
        (["extra"], ["extra"]),
        (["-nis", "6"], ["-nis 6", "6 nodes"]),
        (["--skip-rows", "40"], ["--skip-rows 40", "40 rows"]),
        (["--skip-rows", "39"], ["no time passes", "2021-02-10T00:39:00"]),
        (["-name", "a/b"], ["-name", "'a/b'"]),
        (["-name", ""], ["-name", "''"]),
        (["--out", "jobs.csv"], ["not a folder"]),
        (["--out", "jobs.csv/run"], ["jobs.csv"]),
        (["--out", "."], ["not a run directory"]),
        (["--out", "x" * 300], ["File name too long"]),
        (["--config", "nope.toml"], ["nope.toml", "no such file"]),
        (["--config", "."], ["directory"]),
        (["--config", "trace.parquet"], ["trace.parquet", "not TOML"]),
    ],
)
def test_an_invalid_option_is_named_with_what_was_expected(
    here: Path, refused: Refused, args: list[str], told: list[str]
) -> None:
    refused([*INPUT, *args], *told)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["frobnicate"], ["'frobnicate'", "replay", "solve", "trace", "convert", "generate"]),
        (["trace.parquet"], ["bft-replay -ndmap trace.parquet"]),
        (["-ndmap", os.fsdecode(b"m\xff.parquet"), "--jobs", "jobs.csv"], ["--node-trace", "UTF-8"]),
        (["-ndmap", "trace.parquet", "-bdfn", "bd.parquet"], ["-bdfn needs -scfn"]),
        (["-ndmap", "trace.parquet", "-scfn", "bd.parquet"], ["-scfn needs -bdfn"]),
        (["-ndmap", "trace.parquet", "--jobs", "trace.parquet"], ["trace.parquet"]),
        (["-ndmap", "trace.parquet", "-bdfn", "sc.parquet", "-scfn", "bd.parquet"],
         ["sc.parquet", "missing columns", "Jmin"]),
    ],
)  # fmt: skip
def test_inputs_that_are_none_are_refused(
    here: Path, refused: Refused, args: list[str], told: list[str]
) -> None:
    refused(args, *told)


# --- wrong traces -----------------------------------------------------------------------------------------------------


class Hostile:
    """A pickle of it asks to run a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch owned",)


def stored(write: str, frame: pd.DataFrame, part: float = 1.0) -> bytes:
    """The first part of what a method of a frame writes."""
    target = io.BytesIO()
    getattr(frame, write)(target)
    return target.getvalue()[: int(len(target.getvalue()) * part)]


def tar_gz(content: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        member = tarfile.TarInfo("trace.pkl")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


FRAME = trace_frame()
PICKLE = stored("to_pickle", FRAME)
# Random bits do not compress away: what is cut off is content.
GZIP, TAR = (
    packed[: len(packed) * 2 // 3] for packed in (gzip.compress(PICKLE), tar_gz(PICKLE))
)
LETTER = b"Dear admin,\nhere is the trace.\n"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
T0, T1, T2 = (f"2021-02-10T00:0{k}:00Z" for k in range(3))
TWICE = FRAME.set_axis(["n0", *FRAME.columns[:-1]], axis=1)
WRONG_TRACES = {
    "empty file": ("w.csv", "", "empty"),
    "header only": ("w.csv", "time,n0,n1\n", "empty", "header"),
    "native header only": ("w.csv", "time,node,idle\n", "empty", "header"),
    "nan": ("w.csv", f"time,n0,n1\n{T0},1,0\n{T1},,1\n", "row 2", "n0", "nan"),
    "negative": ("w.csv", f"time,n0,n1\n{T0},1,0\n{T1},1,-1\n", "row 2", "n1", "-1"),
    "two": ("w.csv", f"time,n0,n1\n{T0},2,0\n", "row 1", "n0", "2"),
    "word": ("w.csv", f"time,n0,n1\n{T0},1,busy\n{T1},1,0\n", "n1", "0"),
    "unsorted": ("w.csv", f"time,n0,n1\n{T0},1,0\n{T2},0,0\n{T1},1,1\n", "row 3", "order of time", "--sort"),
    "native unsorted": ("w.csv", f"time,node,idle\n{T1},a,1\n{T0},a,0\n", "row 2", "order of time", "--sort"),
    "native nan": ("w.csv", f"time,node,idle\n{T0},a,1\n{T1},a,\n", "row 2", "idle", "nan"),
    "native no name": ("w.csv", f"time,node,idle\n{T0},a,1\n{T1},,1\n", "row 2", "node"),
    "native missing column": ("w.csv", f"time,node\n{T0},a\n", "missing column idle"),
    "bad time": ("w.csv", f"time,n0,n1\n{T0},1,0\nyesterday,1,1\n", "row 2", "time", "'yesterday'"),
    "times as numbers": ("w.csv", "time,n0,n1\n1612915200,1,0\n", "row 1", "date and time"),
    "never idle": ("w.csv", f"time,n0,n1\n{T0},0,0\n{T1},0,0\n", "no node is ever idle"),
    "ragged": ("w.csv", f"time,n0,n1\n{T0},1,0,1\n", "more fields"),
    "no nodes": ("w.csv", f"time\n{T0}\n", "no node columns"),
    "missing": ("nowhere/trace.parquet", None, "no such file"),
    "missing without suffix": ("nowhere", None, "no such file", "nowhere.pkl"),
    "directory": (".", None, "is a directory", "expected a file"),
    "job table": ("jobs.csv", None, "is a job table", "expected a node trace", "--jobs"),
    "bounds": ("bd.parquet", None, "is a job table", "expected a node trace"),
    "text": ("w.txt", LETTER, "suffixes", ".parquet"),
    "text as csv": ("w.csv", LETTER, "date and time", "'here is the trace.'"),
    "text as parquet": ("w.parquet", LETTER, "not a Parquet file"),
    "png": ("w.png", PNG, "suffixes"),
    "png as csv": ("w.csv", PNG, "UTF-8"),
    "web page": ("w.csv", "<!DOCTYPE html><html><body>Please log in</body></html>\n", "a web page"),
    "truncated parquet": ("w.parquet", stored("to_parquet", FRAME, 0.7), "Parquet"),
    "truncated pickle": ("w.pkl", PICKLE[:400], "not a readable pickle"),
    "truncated gzip": ("w.pkl.gz", GZIP, "end"),
    "truncated tar": ("w.tar.gz", TAR, "cut short"),
    "one name twice": ("w.pkl", stored("to_pickle", TWICE), "n0", "two columns"),
    "empty matrix": ("w.parquet", stored("to_parquet", FRAME.iloc[:0]), "empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_TRACES)
def test_an_invalid_trace_is_refused_by_place(
    here: Path, refused: Refused, case: str
) -> None:
    name, content, *told = WRONG_TRACES[case]
    if content is not None:
        Path(name).write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
    refused(["-ndmap", name, *INPUT[2:], "--trust-pickle"], name, *told)


@pytest.mark.parametrize("option", ["-ndmap", "-bdfn", "-scfn"])
def test_a_pickle_is_opened_on_the_users_word_only(
    here: Path, refused: Refused, option: str
) -> None:
    args = ["-ndmap", "trace.parquet", "-bdfn", "bd.parquet", "-scfn", "sc.parquet"]
    place = args.index(option) + 1
    source, args[place] = args[place], "own.pkl"
    args += ["--backend", "exact", "--no-u"]
    Path("own.pkl").write_bytes(pickle.dumps(Hostile()))
    refused(args, "own.pkl", "any program", "--trust-pickle")
    assert not Path("owned").exists()
    pd.read_parquet(source).to_pickle("own.pkl")
    assert run([*args, "--trust-pickle"]) == 0
    Path("config.toml").write_text("trust-pickle = true\n")
    assert run([*args, "--config", "config.toml", "--force"]) == 0


def test_sort_accepts_what_is_out_of_order(here: Path) -> None:
    shuffled = trace_frame().sample(frac=1.0, random_state=0)
    shuffled.to_parquet("shuffled.parquet")
    args = ["--jobs", "jobs.csv", "--backend", "exact", "--no-u"]
    assert run(["-ndmap", "shuffled.parquet", *args, "--sort", "--name", "sorted"]) == 0
    assert run(["-ndmap", "trace.parquet", *args]) == 0
    assert (
        Path("sorted-itrOut/steps.parquet").read_bytes()
        == Path("debug-itrOut/steps.parquet").read_bytes()
    )


def test_columns_beyond_the_trace(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*INPUT, "--no-u", "-nis", "2", "-nN", "99"]) == 0
    assert "-nN 99 reaches beyond" in capsys.readouterr().err
    assert summary()["inputs"]["trace"]["nodes"] == 4


def test_columns_that_are_never_idle_are_refused(here: Path, refused: Refused) -> None:
    trace_frame().assign(n5=0).to_parquet("trace.parquet")
    refused([*INPUT, "-nis", "5"], "trace.parquet", "no node is ever idle")


# --- wrong jobs -------------------------------------------------------------------------------------------------------


# One cell of the third job, and what is said of it.
WRONG_CELLS: dict[str, tuple[Any, ...]] = {
    "nan Pmax": ("Pmax", np.nan, "finite", "NaN"),
    "negative Pmax": ("Pmax", -1.0, "> 0", "-1"),
    "infinite Pmax": ("Pmax", np.inf, "finite", "inf"),
    "zero Pmax": ("Pmax", 0.0, "> 0"),
    "negative Tcup": ("Tcup", -1.0, ">= 0", "-1"),
    "nan Tcdw": ("Tcdw", np.nan, "finite", "NaN"),
    "half Jmin": ("Jmin", 1.5, "whole", "1.5"),
    "negative Jmin": ("Jmin", -1, ">= 0", "-1"),
    "Jmin > Jmax": ("Jmin", 5, "column Jmax", "Jmin", "5", "4"),
    "zero Jmax": ("Jmax", 0, "Jmax", "0"),
    "word Jmax": ("Jmax", "many", "number", "many"),
    "no Tsub": ("Tsub", None, "date and time"),
    "word Tsub": ("Tsub", "soon", "date and time", "soon"),
    "short Ps": ("Ps", [0.0, 10.0], "4", "2"),
    "negative Ps": ("Ps", [0.0, -10.0, 18.0, 30.0], ">= 0", "-10"),
    "nan Os": ("Os", [0.0, float("nan"), 18.0, 30.0], "finite"),
    "Ns not from 0": ("Ns", [1, 2, 3, 4], "0"),
    "Ns decreasing": ("Ns", [0, 2, 1, 4], "increase"),
    "Ps not from 0": ("Ps", [5.0, 10.0, 18.0, 30.0], "Ps[0] = 0"),
    "word Ns": ("Ns", "all", "list"),
}  # fmt: skip


def wrong_jobs(case: str) -> tuple[pd.DataFrame, list[str]]:
    """A job table with one error, and the expected message."""
    jobs = job_frame()
    if case in WRONG_CELLS:
        column, value, *told = WRONG_CELLS[case]
        jobs = jobs.astype({column: object})
        jobs.at["j2", column] = value
        where = "Jmax" if case == "Jmin > Jmax" else column
        return jobs, ["row 3", "job j2", f"column {where}", *told]
    late = jobs.assign(Tsub=jobs["Tsub"] + pd.Timedelta(days=400))
    return {
        "missing columns": (
            jobs.drop(columns=["Jmin", "Tcup"]),
            ["missing columns", "Jmin", "Tcup"],
        ),
        "no jobs": (jobs.iloc[:0], ["empty"]),
        "all late": (late, ["after the trace ends", "Tsub", "2021-02-10T00:39:00"]),
        "duplicates": (pd.concat([jobs, jobs.iloc[[1]]]), ["row 6", "job j1", "twice"]),
    }[case]


@pytest.mark.parametrize(
    "case", [*WRONG_CELLS, "missing columns", "no jobs", "all late", "duplicates"]
)
@pytest.mark.parametrize("pair", [False, True], ids=["native", "pair"])
def test_invalid_jobs_are_refused_by_row_column_and_job(
    here: Path, refused: Refused, case: str, pair: bool
) -> None:
    jobs, told = wrong_jobs(case)
    curves = [column for column in ("Ns", "Ps", "Os") if column in jobs]
    if pair:
        jobs.drop(columns=curves).to_pickle("b.pkl")
        jobs[curves].to_pickle("s.pkl")
        args, files = ["-bdfn", "b.pkl", "-scfn", "s.pkl"], r"\b[bs]\.pkl"
    else:
        to_csv(jobs, Path("wrong.csv"))
        args, files = ["--jobs", "wrong.csv"], r"wrong\.csv"
    message = refused(
        ["-ndmap", "trace.parquet", *args, "--backend", "exact", "--trust-pickle"],
        *told,
    )
    assert re.search(files, message)


def test_a_pair_of_two_sets_is_refused_by_job(here: Path, refused: Refused) -> None:
    read_table("sc.parquet").drop(index="j3").to_parquet("other.parquet")
    refused(
        ["-ndmap", "trace.parquet", "-bdfn", "bd.parquet", "-scfn", "other.parquet"],
        "other.parquet",
        "j3",
        "bd.parquet",
    )


def test_jobs_submitted_before_the_trace_wait_for_it_and_late_ones_are_noted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = job_frame()
    jobs.loc["j0", "Tsub"] -= pd.Timedelta(days=3)
    jobs.loc["j4", "Tsub"] += pd.Timedelta(days=3)
    to_csv(jobs, Path("jobs.csv"))
    assert run([*INPUT, "--no-u"]) == 0
    err = capsys.readouterr().err
    assert "1 of 5 jobs are submitted after the trace ends" in err
    assert "1 of 5 jobs are submitted before the trace begins, by up to 3 days" in err
    started_at = pd.read_parquet("debug-itrOut/jobs.parquet").set_index("name")["start"]
    assert started_at["j0"] == START
    assert pd.isna(started_at["j4"])


def test_a_jmax_beyond_the_curve_is_noted_once(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to_csv(job_frame().assign(Jmax=6), Path("jobs.csv"))
    assert run([*INPUT, "--no-u"]) == 0
    assert capsys.readouterr().err.count("5 jobs have a Jmax beyond") == 1
