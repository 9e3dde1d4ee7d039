"""`bft-replay trace info`: numbers against those of a trace small enough to count by hand."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import AMPLE_S

from bft.replay.cli.main import run

SCRIPT = [sys.executable, "-c", "from bft.replay.cli import main; main()"]
# a idle 0-600 and 900-1200 (cut by the end), b idle 300-1200 (cut), c never.
TRACE = """time,a,b,c
2021-02-10T00:00:00Z,1,0,0
2021-02-10T00:05:00Z,1,1,0
2021-02-10T00:10:00Z,0,1,0
2021-02-10T00:15:00Z,1,1,0
2021-02-10T00:20:00Z,1,1,0
"""


@pytest.fixture
def trace(here: Path) -> str:
    Path("trace.csv").write_text(TRACE)
    return "trace.csv"


def backwards() -> None:
    """The rows of the trace in the wrong order."""
    header, *rows = TRACE.splitlines(keepends=True)
    Path("backwards.csv").write_text(header + "".join(reversed(rows)))


def test_info_as_json_counts_right(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "info", trace, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out, parse_constant=pytest.fail)
    assert (found["nodes"], found["nodes_never_idle"], found["events"]) == (3, 1, 4)
    assert (found["joins"], found["leaves"], found["duration_s"]) == (3, 1, 1200.0)
    assert found["idle_node_seconds"] == 600 + 300 + 900
    assert found["idle_share"] == pytest.approx(1800 / 3600)
    assert (found["start"], found["end"]) == (
        "2021-02-10T00:00:00Z",
        "2021-02-10T00:20:00Z",
    )
    assert (found["fragments"]["count"], found["fragments"]["censored"]) == (3, 3)
    assert found["fragments"]["up_to_10_min"]["by_count"] == pytest.approx(2 / 3)
    assert found["fragments"]["up_to_10_min"]["by_node_time"] == pytest.approx(0.5)
    assert found["fragments"]["share_outliving_startup"]["300 s"] == pytest.approx(
        (300 + 0 + 600) / 1800
    )


def test_info_for_people_shows_the_same(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "info", trace]) == 0
    out = capsys.readouterr().out
    for text in (
        "3 (1 never idle)",
        "4 (3 joins, 1 leaves)",
        "50.0% of all",
        "mean 1.5, max 2",
        "33.3%",
    ):
        assert (
            text in out
            if text != "33.3%"
            else "66.7% by count, 50.0% by node-time" in out
        )
    assert "nan" not in out


def test_part_of_the_nodes_and_rows(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            [
                "trace",
                "info",
                trace,
                "--json",
                "-nis",
                "1",
                "-nN",
                "1",
                "--skip-rows",
                "1",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["nodes"], found["duration_s"], found["idle_node_seconds"]) == (
        1,
        900.0,
        900.0,
    )


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_trace_that_is_never_idle_is_shown_too(
    trace: str, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    assert run(["trace", "info", trace, "-nis", "2", *form]) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("trace info nope.csv", ["nope.csv", "no such file"]),
        ("trace info .", ["directory"]),
        ("trace info", ["TRACE"]),
        ("trace info trace.csv -nis 3", ["-nis 3", "3 nodes"]),
        ("trace info trace.csv --skip-rows 5", ["--skip-rows 5", "5 rows"]),
        ("trace info trace.csv -nis -1", ["-nis", "-1"]),
        ("trace info trace.csv -nn 1", ["-nn", "-nN"]),
        ("trace info backwards.csv", ["row 2", "order of time", "--sort"]),
        ("trace inf", ["no command 'inf'"]),
        ("trace.csv", ["-ndmap"]),
        ("replay trace.csv", ["-ndmap"]),
    ],
)
def test_invalid_input_is_reported(
    trace: str, refused: Callable[..., str], args: str, told: list[str]
) -> None:
    backwards()
    refused(args, *told)


def test_sort_puts_rows_in_order(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "info", trace, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    backwards()
    assert run(["trace", "info", "backwards.csv", "--json", "--sort"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {**found, "source": expected["source"]} == expected


def test_trace_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace"]) in (0, 2)  # by version of click
    assert "info" in "".join(capsys.readouterr())


def test_a_terminal_without_our_characters_is_served(trace: str) -> None:
    process = subprocess.run(
        [*SCRIPT, "trace", "info", trace],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
    )
    assert process.returncode == 0, process.stderr
    assert "2021-02-10T00:20:00Z" in process.stdout


def test_a_reader_that_stops_early_is_no_error(trace: str) -> None:
    words = " ".join(
        f"'{word}'" for word in [*SCRIPT, "trace", "info", trace, "--json"]
    )
    process = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | true"],
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
    )
    assert (process.returncode, process.stderr) == (0, "")
