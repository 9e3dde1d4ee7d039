"""Cobalt's job tables and machine status tables."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import (
    BEGIN_S,
    LENGTH_S,
    SyntheticJob,
    cobalt,
    damages,
    idle_seconds,
    idle_seconds_of,
    ingest,
    intervals,
    job_lists,
    read_into,
    read_lines,
    survives,
)

from bft.models import InputError
from bft.replay.logs import Collector, Diagnosis, Settings
from bft.replay.logs.cobalt import expand_location, listed_hosts
from bft.replay.logs.reading import Unusable

HEADER = "START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION"
STATUS = "START_TIMESTAMP,END_TIMESTAMP,IS_ALL_MACHINE_DOWN\n"
NOON = 1612958400 - BEGIN_S  # 2021-02-10 12:00 UTC


def row(
    location: str,
    *,
    start: str = "2021-02-10 12:00:00",
    end: str = "2021-02-10 12:01:00",
    nodes: object = 1,
) -> str:
    return f'"{start}","{end}",{nodes},"{location}"'


busy = partial(read_lines, "cobalt")


@given(job_lists())
def test_round_trip(jobs: list[SyntheticJob]) -> None:
    trace = ingest("cobalt", cobalt(jobs), tz="America/Chicago")
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


@given(st.data())
def test_damaged_tables_are_read_or_refused(data: st.DataObject) -> None:
    survives("cobalt", data.draw(damages(cobalt(data.draw(job_lists())))))


@given(st.data())
def test_damaged_status_tables_are_read_or_refused(data: st.DataObject) -> None:
    status = (
        STATUS
        + "2021-02-10 12:00:00,2021-02-10 13:00:00,1\n2021-02-10 14:00:00,,1\n2021-02-10 15:00:00,,0\n"
    )
    jobs = "\n".join([HEADER, row("x1c0"), row("x1c1", end="2021-02-10 16:00:00")])
    survives("cobalt", data.draw(damages(status)), before=("cobalt", jobs))


@pytest.mark.parametrize(
    ("location", "nodes"),
    [
        ("x3005c0s7b0n0,x3005c0s7b1n0", ("x3005c0s7b0n0", "x3005c0s7b1n0")),
        ("0-2,7", ("nid00000", "nid00001", "nid00002", "nid00007")),
        ("cc001, cc002,cc001", ("cc001", "cc002")),
        ("MIR-00000-00011-4", ("MIR-00000", "MIR-00001", "MIR-00010", "MIR-00011")),
    ],
)
def test_locations(location: str, nodes: tuple[str, ...]) -> None:
    assert expand_location(location) == nodes


@pytest.mark.parametrize(
    "location",
    [
        "",
        ",",
        "MIR-R00-M0-512",
        "MIR-00000-00011-5",
        "MIR-00020-00011-4",
        "9-3",
        "0-9999999",
        "x" * 300_000,
    ],
)
def test_locations_that_name_no_nodes(location: str) -> None:
    with pytest.raises(Unusable):
        expand_location(location)


@pytest.mark.parametrize(
    ("location", "nodes"),
    [
        ("x3005c0s19b0n0,x3005c0s1", ("x3005c0s19b0n0",)),
        ("x3005c0s19b0n0,x", ("x3005c0s19b0n0",)),
        ("x3005c0s19b0n0,", ("x3005c0s19b0n0",)),
        ("x3005c0s19b0n0,x3005c0s7b1n0", ("x3005c0s19b0n0", "x3005c0s7b1n0")),
        ("0-1,128-1", ("nid00000", "nid00001")),
        ("0-1,12", ("nid00000", "nid00001")),
    ],
)
def test_a_location_that_is_cut_off_names_the_nodes_before_the_cut(
    location: str, nodes: tuple[str, ...]
) -> None:
    assert listed_hosts(location) == nodes
    found, diagnosis = busy(HEADER, row(location, nodes=900))
    assert found == {(node, NOON, NOON + 60) for node in nodes}
    (tally,) = (tally for told, tally in diagnosis.notes.items() if "cut off" in told)
    assert tally.detail == f"{len(nodes)} of 900"


def test_local_times() -> None:
    found, diagnosis = busy(
        HEADER,
        row("x1", start="2021-02-10 06:00:00.0", end="2021-02-10T12:00:05Z"),
        tz="America/Chicago",
    )
    assert found == {("x1", NOON, NOON + 5)}
    assert not diagnosis.notes


def test_older_column_names_and_other_machines() -> None:
    lines = [
        "USED_NODES,MACHINE_PARTITION,MACHINE_NAME,END_TIMESTAMP,START_TIMESTAMP",
        '"1.0000",x1,theta,2021-02-10 12:01:00,2021-02-10 12:00:00',
        '"1.0000",x2,cooley,2021-02-10 12:01:00,2021-02-10 12:00:00',
    ]
    found, diagnosis = busy(*lines, settings=Settings(cluster="Theta"))
    assert found == {("x1", NOON, NOON + 60)}
    assert list(diagnosis.left_out) == ["a row of another machine (--cluster)"]


def test_a_table_without_locations_counts_nodes() -> None:
    collected = Collector()
    text = "START_TIMESTAMP,END_TIMESTAMP,NODES_USED\n2021-02-10 12:00:00,2021-02-10 12:01:00,128.0"
    read_into(collected, Diagnosis(), "cobalt", text)
    assert collected.counted()[0].tolist() == [128]


def test_a_job_without_end_is_still_running_and_one_without_start_never_ran() -> None:
    collected, diagnosis = Collector(), Diagnosis()
    read_into(
        collected,
        diagnosis,
        "cobalt",
        "\n".join([HEADER, row("x1", end=""), row("x2", start="", end="")]),
    )
    assert (collected.running, list(collected.names)) == (1, ["x1"])
    assert list(diagnosis.left_out) == ["no START_TIMESTAMP: it never began"]


def test_joined_tables_may_repeat_the_header() -> None:
    found, diagnosis = busy(HEADER, row("x1"), HEADER, row("x2"))
    assert len(found) == 2
    assert (diagnosis.rows, diagnosis.no_record) == (2, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b", "not as many fields"),
        (row("x1", start="soon"), "START_TIMESTAMP is no date"),
        (row("x1", end="later"), "END_TIMESTAMP is no date"),
        (row("x1", end="2021-02-10 11:00:00"), "ends before it starts"),
        (row("x1", nodes="many"), "NODES_USED is no number"),
        (row("x1", nodes=-1), "NODES_USED is no number"),
        (row("MIR-R00-M0-512"), "neither a list of hosts nor a block"),
        (row(""), "names no nodes"),
        (row('x1"'), "is no row of CSV"),
    ],
)
def test_unusable_rows_are_reported(text: str, reason: str) -> None:
    found, diagnosis = busy(HEADER, text)
    assert not found
    assert [reason in told for told in diagnosis.skipped] == [True], diagnosis.skipped
    with pytest.raises(InputError, match=r"log\.0: line 2: "):
        read_into(Collector(), Diagnosis(strict=True), "cobalt", f"{HEADER}\n{text}")


@pytest.mark.parametrize(
    "header",
    [
        "a,b,c",
        "START_TIMESTAMP,END_TIMESTAMP,LOCATION",
        "START_TIMESTAMP;END_TIMESTAMP",
        '"',
    ],
)
def test_other_tables_are_refused(header: str) -> None:
    with pytest.raises(InputError, match=r"log\.0, row 1"):
        busy(header)


def test_outages_of_the_whole_machine() -> None:
    at = [
        f"{datetime.fromtimestamp(BEGIN_S + second, UTC):%Y-%m-%d %H:%M:%S}"
        for second in (0, 10, 30, 80, 100, 120)
    ]
    jobs = "\n".join(
        [HEADER, row("n01", start=at[0], end=at[1]), row("n02", start=at[4], end=at[5])]
    )
    status = STATUS + f"{at[1]},{at[2]},1\n{at[3]},,1\n{at[2]},{at[4]},0\n"
    diagnosis = Diagnosis()
    idle = idle_seconds_of(
        ingest("cobalt", jobs, status, hosts=("n01", "n02"), diagnosis=diagnosis)
    )
    expected = np.ones((2, LENGTH_S), dtype=bool)
    expected[0, :10] = expected[:, 10:30] = expected[:, 80:100] = expected[1, 100:] = (
        False
    )
    assert np.array_equal(idle, expected)
    assert any("an outage has no end" in told for told in diagnosis.notes)


def test_outages_need_the_jobs_first() -> None:
    with pytest.raises(InputError, match="give the job tables first"):
        busy(STATUS + "2021-02-10 12:00:00,2021-02-10 13:00:00,1")


@pytest.mark.reference
def test_published_rows(reference: Path) -> None:
    collected, diagnosis = Collector(), Diagnosis()
    text = (reference / "logs" / "cobalt" / "mira-djc-3rows.csv").read_text()
    read_into(collected, diagnosis, "cobalt", text)
    assert (diagnosis.rows, diagnosis.used, collected.machine) == (3, 3, "mira")
    assert len(collected.names) == 512 + 1024 + 4096
    spans = {(a, b) for _, a, b in intervals(collected)}
    assert sorted(round(end - start) for start, end in spans) == [
        3646,
        21637,
        41406,
    ]  # RUNTIME_SECONDS
