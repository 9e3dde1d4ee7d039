"""`bft-replay xi build|check|show|measure`, as a user types them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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


@pytest.fixture
def folder(here: Path) -> Path:
    Path("m.csv").write_text(MEASUREMENTS)
    return here


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
        (["build", "m.txt", "-o", "xi.csv"], "suffixes"),
        (["build", ".", "-o", "xi.csv"], "directory"),
        (["build", "wrong.csv", "-o", "xi.csv"], "wrong.csv, row 1, column step_a_s"),
        (["build", "binary.csv", "-o", "xi.csv"], "binary.csv"),
        (["build", "empty.csv", "-o", "xi.csv"], "empty.csv: is empty"),
        (["build", "m.csv", "-o", "xi.txt"], "written as .csv"),
        (["show", "m.csv"], "missing columns xi_a, xi_b"),
    ],
)
def test_bad_input_is_reported_and_writes_nothing(
    folder: Path, command: list[str], told: str, refused: Callable[..., str]
) -> None:
    Path("wrong.csv").write_text(MEASUREMENTS.replace("0.5", "fast"))
    Path("binary.csv").write_bytes(bytes(range(256)))
    Path("empty.csv").write_text("")
    Path("m.txt").write_text(MEASUREMENTS)
    refused(["xi", *command], told)


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
