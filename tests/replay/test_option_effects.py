"""Every option of a replay: another value changes the run, and summary.json records it."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from stated import option_at
from toy_application import write_application

from bft.replay import Options, read_trace, write_trace
from bft.replay.cli.main import run

START = pd.Timestamp("2021-02-10")
FLAGS = ("--cluster", "--option applications", "--policy")
Said = tuple[int, str, dict[str, Any]]
_EFFECTS = Path(__file__).parents[1] / "data" / "option_effects.toml"
WORDS, CASES = tomllib.loads(_EFFECTS.read_text("utf-8")).values()


def words(text: str) -> list[str]:
    """The words of a command line, with what words in capitals stand for."""
    return " ".join(WORDS.get(word, word) for word in text.split()).split()


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
    idle = (np.random.default_rng(4).random((60, 8)) < 0.7).astype(np.int8)
    idle[0] = 1
    times = pd.date_range(START, periods=60, freq="60s")
    trace = pd.DataFrame(idle, index=times, columns=[f"n{k}" for k in range(8)])
    trace.to_parquet("trace.parquet")
    trace.to_pickle("trace.pkl")
    trace.iloc[:, :5].to_parquet("fewer.parquet")
    trace.iloc[:16].to_parquet("brief.parquet")
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
    Path("xi.csv").write_text(
        "model_a,model_b,xi_a,xi_b\n"
        "a,b,1.1,1.05\na,a,1.2,1.2\na,c,1.05,1.15\nb,c,1.1,1.1\n"
    )
    read = read_trace("trace.parquet")
    classes = tuple(("cpu", "gpu")[k % 2] for k in range(len(read.nodes)))
    write_trace(replace(read, classes=classes), "classes.parquet")
    Path("memory.csv").write_text(
        "model,batch,memory_gib\n"
        + "".join(f"{m},{n},{1 + n / 8.5}\n" for m in "abc" for n in (16, 32, 64))
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
    lines = err.splitlines(keepends=True)
    notes = "".join(line for line in lines if line.startswith(("note:", "Error:")))
    path, steps = Path("debug-itrOut/summary.json"), Path("debug-itrOut/steps.parquet")
    summary = json.loads(path.read_text("utf-8")) if code in (0, 3) else {}
    backends = pd.read_parquet(steps)["backend"].unique() if steps.exists() else []
    return code, out + notes + " ".join(sorted(backends)), summary


@pytest.mark.parametrize("field", CASES)
def test_an_option_changes_the_result_and_is_recorded(
    here: Path,
    field: str,
    capsys: pytest.CaptureFixture[str],
    known: dict[tuple[str, ...], Said],
) -> None:
    *parts, recorded = CASES[field]
    both, before, after = map(words, parts)
    begin = (*both, *before)
    if begin not in known:
        known[begin] = said(list(begin), capsys)
    first_code, first, _ = known[begin]
    stated = both
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
