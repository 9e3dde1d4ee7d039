"""The generic table of intervals: its states, its times, and logs of idle nodes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from synthetic_logs import interval_table
from synthetic_logs_more import (
    BEGIN_S,
    HOSTS,
    LENGTH_S,
    SyntheticJob,
    idle_seconds,
    idle_seconds_of,
    ingest,
    job_lists,
)
from synthetic_logs_more import read_into as read_texts

from bft.replay.cli.main import run
from bft.replay.logs import Collector, Diagnosis, Settings, node_trace
from bft.replay.logs.node_states import state_of
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import fragments

# An idle-node log: two nodes, each idle twice.
IDLE_LOG = """\
node,start,end,state
n1,1612900000,1612903600,idle
n1,1612910800,1612914400,idle
n2,1612907200,1612918000,idle
"""
HOUR = 3600


def idle_hours(path: str) -> dict[str, list[tuple[float, float]]]:
    """Idle fragments of each node, in hours since BEGIN_S."""
    trace = read_trace(path)
    found = fragments(trace)
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in trace.nodes}
    for node, start, end in zip(
        found.node.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True
    ):
        spans[trace.nodes[node]].append(
            tuple((t / SECOND_NS - BEGIN_S) / HOUR for t in (start, end))
        )
    return spans


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a log of idle nodes."""
    monkeypatch.chdir(tmp_path)
    Path("idle.csv").write_text(IDLE_LOG)
    return tmp_path


def told(
    text: str, kind: str = "intervals", settings: Settings | None = None
) -> tuple[Collector, Diagnosis]:
    collected, diagnosis = Collector(min_gap_ns=0), Diagnosis()
    read_texts(collected, diagnosis, kind, text, settings=settings, tz="UTC")
    return collected, diagnosis


# -- idle rows


def test_a_log_of_idle_nodes_means_that_the_rest_is_not_idle(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ingest", "intervals", "idle.csv", "-o", "t.parquet"]) == 0
    assert idle_hours("t.parquet") == {"n1": [(0, 1), (3, 4)], "n2": [(2, 5)]}
    out = capsys.readouterr().out
    assert (
        "rows state when nodes were idle: at all other times nodes count as busy: 50.0% of the node-time"
        in out
    )
    assert "busy 50.0%, unavailable 0.0%, idle 50.0%" in out


def test_nodes_of_the_list_that_a_log_of_idle_nodes_does_not_name_are_never_idle(
    here: Path,
) -> None:
    assert (
        run(["ingest", "auto", "idle.csv", "--nodes", "n[1-4]", "-o", "t.parquet"]) == 0
    )
    assert idle_hours("t.parquet") == {
        "n1": [(0, 1), (3, 4)],
        "n2": [(2, 5)],
        "n3": [],
        "n4": [],
    }


def test_a_log_of_idle_nodes_day_by_day_is_one_log(here: Path) -> None:
    lines = IDLE_LOG.splitlines(keepends=True)
    Path("1.csv").write_text("".join(lines[:2]))
    Path("2.csv").write_text("".join([lines[0], *lines[2:]]))
    assert run(["ingest", "intervals", "1.csv", "2.csv", "-o", "two.csv"]) == 0
    Path("joined.csv").write_text(
        "".join([*lines[:2], lines[0], *lines[2:]])
    )  # the header again is no row
    assert (
        run(["ingest", "intervals", "joined.csv", "--strict", "-o", "joined_two.csv"])
        == 0
    )
    assert run(["ingest", "intervals", "idle.csv", "-o", "one.csv"]) == 0
    assert (
        Path("one.csv").read_bytes()
        == Path("two.csv").read_bytes()
        == Path("joined_two.csv").read_bytes()
    )


def test_of_mixed_rows_idle_holds_where_no_other_row_contradicts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = BEGIN_S
    rows = [
        ("n1", 0, 2, "idle"),
        ("n1", 1, 3, "busy"),
        ("n2", 0, 1, "down"),
        ("n2", 2, 4, "idle"),
        ("n3", 0, 4, ""),
    ]
    table = "".join(
        f"{node},{begin + a * HOUR},{begin + b * HOUR},{state}\n"
        for node, a, b, state in rows
    )
    Path("mixed.csv").write_text(f"node,start,end,state\n{table}")
    assert run(["ingest", "intervals", "mixed.csv", "-o", "t.parquet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert idle_hours("t.parquet") == {"n1": [(0, 1)], "n2": [(2, 4)], "n3": []}
    notes = {note["reason"]: note["detail"] for note in found["notes"]}
    assert (
        notes[
            "idle rows overlap busy or unavailable ones: nodes count as not idle there"
        ]
        == "1 node-hours"
    )
    assert notes[
        "rows state when nodes were idle: time that no row covers counts as unavailable"
    ].startswith("16.7%")
    shares = [found["coverage"][part] for part in ("busy", "unavailable", "idle")]
    assert shares == pytest.approx([6 / 12, 3 / 12, 3 / 12])


def test_with_idle_rows_and_outages_all_other_time_is_busy(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("idle.csv").write_text(f"{IDLE_LOG}n1,1612903600,1612907200,down\n")
    assert run(["ingest", "intervals", "idle.csv", "-o", "t.parquet"]) == 0
    assert "busy 40.0%, unavailable 10.0%, idle 50.0%" in capsys.readouterr().out


def test_idle_rows_of_an_events_file_are_left_out_with_a_word(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs.csv").write_text(
        "node,start,end\nn1,1612900000,1612903600\nn2,1612900000,1612918000\n"
    )
    Path("events.csv").write_text(
        "node,start,end,state\nn1,1612903600,1612907200,drng\nn1,1612907200,,idle\n"
    )
    args = ["--from", "2021-02-09T19:46:40Z", "--to", "2021-02-10T00:46:40Z"]
    assert (
        run(
            [
                "ingest",
                "intervals",
                "jobs.csv",
                "--events",
                "events.csv",
                *args,
                "-o",
                "t.parquet",
            ]
        )
        == 0
    )
    assert idle_hours("t.parquet") == {"n1": [(2, 5)], "n2": []}
    assert (
        "idle row of an --events file: says only that the node could run jobs: 1 (first: events.csv, line 3)"
        in (capsys.readouterr().out)
    )


@given(job_lists())
def test_round_trip_of_states(jobs: list[SyntheticJob]) -> None:
    """Rows busy, idle and down by the style of a job, against a grid of seconds."""
    states = ("alloc", "idle", "down*", "idle")
    diagnosis = Diagnosis()
    trace = ingest("intervals", interval_table(jobs, states), diagnosis=diagnosis)
    not_idle = ~idle_seconds([job for job in jobs if states[job.style % 4] != "idle"])
    idle_rows = [job for job in jobs if states[job.style % 4] == "idle"]
    stated = (
        ~idle_seconds(idle_rows)
        if idle_rows
        else np.ones((len(HOSTS), LENGTH_S), dtype=bool)
    )
    assert np.array_equal(idle_seconds_of(trace), stated & ~not_idle)
    overlap = any("idle rows overlap" in note for note in diagnosis.notes)
    assert overlap == bool(idle_rows and (stated & not_idle).any())


def test_shares_of_a_log_with_idle_rows_add_up() -> None:
    collected, diagnosis = told(IDLE_LOG)
    _, coverage = node_trace(
        collected,
        diagnosis,
        start_ns=BEGIN_S * SECOND_NS,
        end_ns=(BEGIN_S + 5 * HOUR) * SECOND_NS,
    )
    assert (
        coverage.busy + coverage.unavailable + coverage.idle + coverage.short_gaps
        == pytest.approx(1)
    )
    assert (
        coverage.intervals,
        coverage.overlaps_merged,
        coverage.nodes_never_busy,
    ) == (3, 0, 0)


# -- words for states


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("busy alloc allocated ALLOCATED mix mixed MIXED+PLANNED comp completing alloc- mix! running job-exclusive "
         "job-busy IDLE+COMPLETING", "busy"),
        ("idle IDLE planned plnd IDLE+PLANNED idle- free IDLE+CLOUD idle@", "idle"),
        ("unavailable down down* drain drained drng drng* draining offline down,offline IDLE+DRAIN MIXED+DRAIN resv "
         "reserved resv-exclusive maint MAINTENANCE idle* idle~ alloc# idle% idle$ fail failg state-unknown,down unk "
         "offline,job-exclusive stale DOWN+NOT_RESPONDING provisioning idle^", "unavailable"),
        ("future FUTURE futr", "absent"),
        ("", None),
        ("asleep IDLE+WINGED", None),
    ],
)  # fmt: skip
def test_words_of_sinfo_and_pbsnodes(words: str, state: str | None) -> None:
    assert {word: state_of(word) for word in words.split() or [""]} == dict.fromkeys(
        words.split() or [""], state
    )


def test_words_of_sinfo_and_pbsnodes_in_a_table() -> None:
    rows = "".join(
        f"n{k},{BEGIN_S},{BEGIN_S + 60},{word}\n"
        for k, word in enumerate(
            [
                "alloc",
                "mixed",
                '"offline,down"',
                "down*",
                "drng",
                "resv",
                "planned",
                "future",
                "odd",
            ]
        )
    )
    collected, diagnosis = told(f"node,start,end,state\n{rows}")
    found = [
        columns.merged()[0].tolist()
        for columns in (
            collected.busy_intervals,
            collected.unavailable_intervals,
            collected.idle_intervals,
        )
    ]
    assert found == [[0, 1], [2, 3, 4, 5], [6]]
    assert "n7" not in collected.names
    assert [tally.line for tally in diagnosis.left_out.values()] == [9]
    assert [tally.detail for tally in diagnosis.skipped.values()] == ["'odd'"]


def test_free_is_taken_for_idle_with_a_word() -> None:
    collected, diagnosis = told(
        f"node,start,end,state\nn1,{BEGIN_S},{BEGIN_S + 60},free\n"
    )
    assert collected.idle_intervals.merged()[0].tolist() == [0]
    assert [note for note in diagnosis.notes if note.startswith("state free")]


# -- times


@pytest.mark.parametrize(
    "text",
    ["1612903600.25", "1612903600.250", "2021-02-09T20:46:40.25Z", "2021-02-09T20:46:40.25z",
     "2021-02-09 20:46:40.25 UTC", "2021-02-09T21:46:40.25+01:00", "2021-02-09T21:46:40.25+0100",
     "2021-02-09 21:46:40.25 +0100",
     "2021-02-09 20:46:40.25"],
)  # fmt: skip
def test_fractional_epochs_and_zones(text: str) -> None:
    collected, diagnosis = told(f"node,start,end\nn1,1612900000.5,{text}\n")
    start, end = (column.tolist() for column in collected.busy_intervals.merged()[1:])
    assert (start, end) == ([1_612_900_000_500_000_000], [1_612_903_600_250_000_000])
    assert diagnosis.used == 1


@pytest.mark.parametrize(
    "text",
    [
        "161290.5",
        "1612903600.",
        ".5",
        "9300000000.5",
        "1612903600.5e3",
        "-1612903600.5",
    ],
)
def test_what_is_no_fractional_epoch(text: str) -> None:
    assert told(f"node,start,end\nn1,{text},\n")[1].used == 0


def test_fractions_keep_nanoseconds() -> None:
    collected, _ = told(
        "node,start,end\nn1,1612900000.123456789,1612900001.1234567899\n"
    )
    assert collected.busy_intervals.merged()[1].tolist() == [1_612_900_000_123_456_789]


@pytest.mark.parametrize("kind", ["intervals", "slurm"])
def test_a_quoted_host_list_longer_than_the_csv_module_reads_by_itself(
    here: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    hosts = ",".join(f"node{k:05}" for k in range(20_000))
    assert len(hosts) > csv.field_size_limit()
    if kind == "intervals":
        rows = [
            "node,start,end,state",
            f'"{hosts}",1612900000,1612903600,busy',
            "node00000,1612903600,1612907200,busy",
        ]
    else:
        rows = ['"JobID","NodeList","Start","End"', f'"1","{hosts}","1612900000","1612903600"',
                '"2","node00000","1612903600","1612907200"']  # fmt: skip
    Path("long.csv").write_text("\n".join(rows) + "\n")
    before = csv.field_size_limit()
    assert (
        run(["ingest", kind, "long.csv", "-o", "t.parquet", "--json", "--tz", "UTC"])
        == 0
    )
    account = json.loads(capsys.readouterr().out)
    assert (account["used"], account["skipped"], account["coverage"]["nodes"]) == (
        2,
        [],
        20_000,
    )
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("digits", "unit"),
    [("000", "milliseconds"), ("000000", "microseconds"), ("000.5", "milliseconds")],
)
def test_epochs_in_finer_units_than_seconds_are_named(
    here: Path, capsys: pytest.CaptureFixture[str], digits: str, unit: str
) -> None:
    Path("fine.csv").write_text(
        f"node,start,end\nn1,1612900000{digits},1612903600{digits}\n"
    )
    assert run(["ingest", "intervals", "fine.csv", "-o", "t.parquet"]) == 2
    told = f"'1612900000{digits}' looks like {unit} since 1970: expected seconds, or 2024-01-31T12:00:00"
    assert (
        f"column start holds no time: 1 (first: fine.csv, line 2, {told})"
        in " ".join(capsys.readouterr().err.split())
    )


def test_a_fully_quoted_table_of_intervals() -> None:
    collected, diagnosis = told(
        '"node","start","end","state"\n"n[1,3]","1612900000","1612900060","alloc"\n'
    )
    assert list(collected.names) == ["n1", "n3"]
    assert diagnosis.used == 1


def test_the_recipe_is_read_as_it_says(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ingest", "--recipe", "intervals"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("#   node,start,end,state")
    Path("recipe.csv").write_text(
        "\n".join(line.removeprefix("#   ") for line in lines[at : at + 3])
    )
    window = ["--from", "2024-01-01", "--to", "2024-01-01T08:00:00", "--tz", "UTC"]
    assert (
        run(
            [
                "ingest",
                "intervals",
                "recipe.csv",
                "--nodes",
                "cn[001-005]",
                *window,
                "-o",
                "t.parquet",
            ]
        )
        == 0
    )
    idle = {node: len(spans) for node, spans in idle_hours("t.parquet").items()}
    assert idle == {"cn001": 1, "cn002": 0, "cn003": 0, "cn004": 0, "cn005": 0}
