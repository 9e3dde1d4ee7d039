"""`bft-replay convert`: the converted file replays as the original does, and nothing is overwritten by accident."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bft.replay.cli.main import run

Refused = Callable[..., str]
PARQUETS = ("steps.parquet", "jobs.parquet", "allocations.parquet")


@pytest.fixture
def here(here: Path) -> Path:
    """An empty working folder with a published trace and pair of job tables as pickles."""
    idle = (np.random.default_rng(1).random((30, 5)) < 0.5).astype(np.int8)
    idle[7] = idle[6]
    times = pd.date_range("2021-02-10T00:00:00.123456", periods=30, freq="61s")
    pd.DataFrame(idle, index=times, columns=[f"n{k}" for k in range(5)]).to_parquet(
        "trace.parquet"
    )
    names = [f"j{k}" for k in range(4)]
    pd.DataFrame(
        {
            "Tcup": 5.25,
            "Tcdw": 1 / 3,
            "Jmin": 1,
            "Jmax": 4,
            "Pmax": [5e3, 1e4, 2e4, 1e5 / 3],
            "Tsub": pd.date_range("2021-02-10T00:00:00", periods=4, freq="100s"),
        },
        index=names,
    ).to_parquet("bd.parquet")
    curves = {
        "Ns": [[0, 1, 2, 4]] * 4,
        "Ps": [[0.0, 10.0, 20.3, 100 / 3]] * 4,
        "Os": [[0.0, 1.0, 1.9, 3.1]] * 4,
    }
    pd.DataFrame(curves, index=names).to_parquet("sc.parquet")
    return here


def replayed(name: str, *args: str) -> dict[str, bytes]:
    assert (
        run([*args, "--backend", "exact", "-Tfwd", "120", "--no-u", "--name", name])
        == 0
    )
    return {file: Path(f"{name}-itrOut", file).read_bytes() for file in PARQUETS}


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
def test_a_converted_trace_gives_the_same_replay(
    here: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    assert run(["convert", "trace.parquet", "-o", f"native{suffix}"]) == 0
    out = capsys.readouterr().out
    idle = pd.read_parquet("trace.parquet").to_numpy()
    events = 1 + int((idle[1:] != idle[:-1]).any(axis=1).sum())
    assert out == f"native{suffix}: 5 nodes, {events} events\n"

    pair = ("-bdfn", "bd.parquet", "-scfn", "sc.parquet")
    assert replayed("a", "-ndmap", "trace.parquet", *pair) == replayed(
        "b", "-ndmap", f"native{suffix}", *pair
    )


def test_rows_to_skip_are_those_of_a_matrix(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", "trace.parquet", "-o", "native.csv"]) == 0
    assert run(["trace", "info", "trace.parquet", "--skip-rows", "12"]) == 0
    assert run(["trace", "info", "native.csv", "--skip-rows", "12"]) == 2
    told = "native.csv: --skip-rows counts the rows of a matrix, and this is none"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_a_converted_pair_gives_the_same_replay(
    here: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    assert run(["convert", "bd.parquet", "sc.parquet", "-o", f"jobs{suffix}"]) == 0
    assert capsys.readouterr() == (f"jobs{suffix}: 4 jobs\n", "")
    pair = replayed(
        "a", "-ndmap", "trace.parquet", "-bdfn", "bd.parquet", "-scfn", "sc.parquet"
    )
    assert pair == replayed("b", "-ndmap", "trace.parquet", "--jobs", f"jobs{suffix}")


@pytest.mark.parametrize(
    ("sources", "suffix"),
    [(["trace.parquet"], s) for s in (".parquet", ".csv", ".csv.gz")]
    + [(["bd.parquet", "sc.parquet"], s) for s in (".parquet", ".csv", ".jsonl")],
)
def test_converting_again_changes_nothing(
    here: Path, sources: list[str], suffix: str
) -> None:
    assert run(["convert", *sources, "-o", f"once/it{suffix}"]) == 0
    assert run(["convert", f"once/it{suffix}", "-o", f"twice/it{suffix}"]) == 0
    if suffix == ".parquet":  # its metadata hold the file it came from
        pd.testing.assert_frame_equal(
            pd.read_parquet("once/it.parquet"), pd.read_parquet("twice/it.parquet")
        )
    else:
        assert (
            Path(f"once/it{suffix}").read_bytes()
            == Path(f"twice/it{suffix}").read_bytes()
        )


@pytest.mark.parametrize("suffix", [".parquet", ".csv.gz"])
def test_a_target_is_replaced_with_force_only_by_the_same_bytes(
    here: Path, refused: Refused, suffix: str
) -> None:
    command = ["convert", "trace.parquet", "-o", f"native{suffix}"]
    assert run(command) == 0
    before = Path(f"native{suffix}").read_bytes()
    refused(command, f"native{suffix}: exists; --force")
    refused(["convert", "nope.parquet", *command[2:], "--force"], "nope.parquet")
    assert run([*command, "--force"]) == 0
    assert Path(f"native{suffix}").read_bytes() == before
    if suffix == ".parquet":  # onto itself
        frame = pd.read_parquet("native.parquet")
        assert run(["convert", "native.parquet", *command[2:], "--force"]) == 0
        pd.testing.assert_frame_equal(pd.read_parquet("native.parquet"), frame)


def test_unsorted_rows_need_sort(here: Path, refused: Refused) -> None:
    frame = pd.read_parquet("trace.parquet")
    frame.sample(frac=1.0, random_state=0).to_parquet("shuffled.parquet")
    command = ["convert", "shuffled.parquet", "-o", "sorted.csv"]
    refused(command, "--sort")
    assert run([*command, "--sort"]) == 0
    assert run(["convert", "trace.parquet", "-o", "native.csv"]) == 0
    assert Path("sorted.csv").read_bytes() == Path("native.csv").read_bytes()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nope.parquet", "-o", "x.csv"], ["nope.parquet", "no such file"]),
        (["trace.parquet"], ["-o"]),
        (["-o", "x.csv"], ["FILE"]),
        (["trace.parquet", "-o", "x.xlsx"], ["Error: x.xlsx: ", ".parquet"]),
        (["trace.parquet", "-o", "x.jsonl"], ["Error: x.jsonl: ", ".parquet"]),
        (
            ["bd.parquet", "sc.parquet", "-o", "x.csv.gz"],
            ["Error: x.csv.gz: ", ".parquet"],
        ),
        (["bd.parquet", "-o", "x.csv"], ["bd.parquet", "one half", "scalability"]),
        (["sc.parquet", "-o", "x.csv"], ["sc.parquet", "one half"]),
        (
            ["sc.parquet", "bd.parquet", "-o", "x.csv"],
            ["sc.parquet", "missing columns", "Jmin"],
        ),
        (
            ["trace.parquet", "sc.parquet", "-o", "x.csv"],
            ["trace.parquet", "missing columns"],
        ),
        (
            ["trace.parquet", "bd.parquet", "sc.parquet", "-o", "x.csv"],
            ["one file, or two"],
        ),
        (["trace.parquet", "-o", "."], [".: "]),
        (["trace.parquet", "-o", ".", "--force"], [".: ", ".parquet"]),
        (
            ["trace.parquet", "-o", "bd.parquet/x.csv"],
            ["bd.parquet/x.csv", "cannot be written"],
        ),
        (
            ["bd.parquet", "sc.parquet", "-o", "bd.parquet/x.csv"],
            ["bd.parquet/x.csv", "cannot be written"],
        ),
        ([".", "-o", "x.csv"], ["directory"]),
        (["text.csv", "-o", "x.csv"], ["text.csv", "not a node trace"]),
    ],
)
def test_invalid_input_is_reported_and_nothing_written(
    here: Path, refused: Refused, args: list[str], told: list[str]
) -> None:
    Path("text.csv").write_text("a,b\n1,2\n")
    assert ".part" not in refused(["convert", *args], *told)


def test_optional_columns_survive(here: Path) -> None:
    assert run(["convert", "bd.parquet", "sc.parquet", "-o", "jobs.csv"]) == 0
    frame = pd.read_csv("jobs.csv").assign(
        user=["ada", "Zoë", "", "x,y"], weight=[1.0, 2.0, 0.5, 1.0]
    )
    frame["deadline"] = ["2021-02-11T00:00:00Z", None, None, None]
    frame.to_csv("rich.csv", index=False)
    assert run(["convert", "rich.csv", "-o", "rich.jsonl"]) == 0
    rows = [
        json.loads(line)
        for line in Path("rich.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row["weight"] for row in rows] == [1.0, 2.0, 0.5, 1.0]
    assert [row["user"] for row in rows] == ["ada", "Zoë", "", "x,y"]
    assert run(["convert", "rich.jsonl", "-o", "rich.parquet"]) == 0
    assert run(["convert", "rich.parquet", "-o", "back.jsonl"]) == 0
    assert Path("back.jsonl").read_bytes() == Path("rich.jsonl").read_bytes()
