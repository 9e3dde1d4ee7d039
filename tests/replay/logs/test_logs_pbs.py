"""PBS accounting files."""

from __future__ import annotations

import json
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
    damages,
    idle_seconds,
    idle_seconds_of,
    ingest,
    intervals,
    job_lists,
    pbs,
    read_files,
    read_into,
    survives,
)

from bft.models import InputError
from bft.replay.logs import Collector, Diagnosis
from bft.replay.trace.node_trace import SECOND_NS


def record(second: int, kind: str, job: str, message: str) -> str:
    return f"{datetime.fromtimestamp(BEGIN_S + second, UTC):%m/%d/%Y %H:%M:%S};{kind};{job};{message}"


busy = partial(read_files, "pbs")


@given(job_lists())
def test_round_trip(jobs: list[SyntheticJob]) -> None:
    assert np.array_equal(idle_seconds_of(ingest("pbs", pbs(jobs))), idle_seconds(jobs))


@given(job_lists(), st.integers(0, 30))
def test_a_log_split_into_files_gives_the_same_trace(
    jobs: list[SyntheticJob], cut: int
) -> None:
    lines = pbs(jobs).split("\n")
    texts = ("\n".join(lines[:cut]), "\n".join(lines[cut:]))
    assert np.array_equal(idle_seconds_of(ingest("pbs", *texts)), idle_seconds(jobs))


@given(st.data())
def test_damaged_logs_are_read_or_refused(data: st.DataObject) -> None:
    survives("pbs", data.draw(damages(pbs(data.draw(job_lists())))))


@pytest.mark.parametrize(
    ("exec_host", "hosts"),
    [
        ("a/7+a/6+b/1+b/0", {"a", "b"}),
        ("a/0*13+b/0*13", {"a", "b"}),
        ("a/0-3+b/0-7,9", {"a", "b"}),
        ("a.x.org:15002/0*8", {"a.x.org:15002"}),
        ("a", {"a"}),
        ('"a/0"', {"a"}),
    ],
)
def test_hosts(exec_host: str, hosts: set[str]) -> None:
    found, _ = busy(
        record(9, "E", "1", f"exec_host={exec_host} start={BEGIN_S} end={BEGIN_S + 9}")
    )
    assert found == {(host, 0, 9) for host in hosts}


def test_vnodes_are_parts_of_hosts() -> None:
    message = f"exec_vnode=(a[0]:ncpus=4+a[1]:ncpus=4)+(b:ncpus=8:mem=1gb) start={BEGIN_S} end={BEGIN_S + 9}"
    assert busy(record(9, "E", "1", message))[0] == {("a", 0, 9), ("b", 0, 9)}


@pytest.mark.parametrize(
    "name",
    [
        '"two words"',
        '"a;b;c start=5 end=6"',
        "'x exec_host=z/0'",
        "it's",
        '5"',
        "a=b=c",
        "x;E;9;y",
        '"',
        "''",
        'a"b',
    ],
)
def test_what_a_job_is_called_does_not_matter(name: str) -> None:
    text = record(
        9,
        "E",
        "1",
        f"user=u jobname={name} queue=q start={BEGIN_S} end={BEGIN_S + 9} exec_host=a/0",
    )
    assert busy(text)[0] == {("a", 0, 9)}


@pytest.mark.parametrize("quote", ['"', "'"])
def test_what_is_quoted_is_no_field(quote: str) -> None:
    text = record(
        9,
        "E",
        "1",
        f"exec_host=a/0 start={BEGIN_S} end={BEGIN_S + 9} argument_list={quote}x end=5 y{quote}",
    )
    assert busy(text)[0] == {("a", 0, 9)}


def test_a_requeued_job_ran_twice() -> None:
    host = f"exec_host=a/0 start={BEGIN_S}"
    log = [
        record(0, "S", "1", host),
        record(10, "R", "1", f"{host} end={BEGIN_S + 10}"),
        record(20, "S", "1", f"exec_host=b/0 start={BEGIN_S + 20}"),
        record(30, "E", "1", f"exec_host=b/0 start={BEGIN_S + 20} end={BEGIN_S + 30}"),
    ]
    assert busy("\n".join(log))[0] == {("a", 0, 10), ("b", 20, 30)}


def test_a_requeue_without_times_ends_the_run_that_s_began() -> None:
    log = [
        record(0, "S", "1", f"exec_host=a/0 start={BEGIN_S}"),
        record(10, "R", "1", ""),
    ]
    assert busy("\n".join(log))[0] == {("a", 0, 10)}


def test_an_aborted_job_gives_its_nodes_back() -> None:
    log = [
        record(0, "S", "1", f"exec_host=a/0 start={BEGIN_S}"),
        record(7, "A", "1", "Job aborted by PBS Server"),
        record(8, "A", "2", ""),
    ]
    found, diagnosis = busy("\n".join(log))
    assert found == {("a", 0, 7)}
    assert "record type A: aborted before it started" in diagnosis.left_out


def test_a_job_that_restarts_without_having_ended_keeps_its_nodes_until_then() -> None:
    log = [
        record(at, "S", "1", f"exec_host={host}/0 start={BEGIN_S + at}")
        for at, host in ((0, "a"), (20, "b"))
    ]
    found, diagnosis = busy(
        "\n".join(
            [
                *log,
                record(
                    30, "E", "2", f"exec_host=c/0 start={BEGIN_S} end={BEGIN_S + 30}"
                ),
            ]
        )
    )
    assert found == {("a", 0, 20), ("b", 20, 30), ("c", 0, 30)}
    assert any("starts again" in note for note in diagnosis.notes)


def test_a_job_that_never_ends_lasts_through_all_files() -> None:
    day = record(40, "E", "9", f"exec_host=z/0 start={BEGIN_S + 30} end={BEGIN_S + 40}")
    collected, diagnosis = Collector(), Diagnosis()
    read_into(
        collected,
        diagnosis,
        "pbs",
        record(3, "S", "1", f"exec_host=a/0 start={BEGIN_S + 3}"),
        day,
    )
    assert intervals(collected) == {("a", 3, 40), ("z", 30, 40)}
    assert collected.running == 1


def test_a_job_that_ends_in_the_next_file_does_not_last_longer() -> None:
    first = [
        record(3, "S", "1", f"exec_host=a/0 start={BEGIN_S + 3}"),
        record(5, "Q", "2", "queue=q"),
    ]
    second = [
        record(20, "E", "1", f"exec_host=a/0 start={BEGIN_S + 3} end={BEGIN_S + 20}"),
        record(90, "E", "2", f"exec_host=b/0 start={BEGIN_S + 80} end={BEGIN_S + 90}"),
    ]
    collected, diagnosis = Collector(), Diagnosis()
    read_into(collected, diagnosis, "pbs", "\n".join(first), "\n".join(second))
    assert intervals(collected) == {("a", 3, 20), ("b", 80, 90)}
    assert collected.running == 0


def test_a_job_from_before_the_log_counts_from_its_start() -> None:
    assert busy(
        record(5, "E", "1", f"exec_host=a/0 start={BEGIN_S - 9000} end={BEGIN_S + 5}")
    )[0] == {("a", -9000, 5)}


def test_nodes_that_a_job_releases_are_free() -> None:
    log = [
        record(0, "S", "1", f"exec_host=a/0+b/0+c/0 start={BEGIN_S}"),
        record(10, "c", "1", f"exec_host=a/0 start={BEGIN_S}"),
        record(
            30, "E", "1", f"exec_host=a/0+b/0+c/0 start={BEGIN_S} end={BEGIN_S + 30}"
        ),
    ]
    collected = Collector()
    read_into(collected, Diagnosis(), "pbs", "\n".join(log))
    assert intervals(collected) == {("a", 0, 30), ("b", 0, 10), ("c", 0, 10)}
    assert collected.first_end == (BEGIN_S + 10) * SECOND_NS


def test_reserved_nodes_are_unavailable() -> None:
    log = [
        record(
            10,
            "B",
            "R1",
            f'owner=o start={BEGIN_S + 10} end={BEGIN_S + 90} nodes="(n01:ncpus=2)+(n02:ncpus=2)"',
        ),
        record(60, "F", "R1", "owner=o"),
        record(99, "E", "1", f"exec_host=n10/0 start={BEGIN_S} end={BEGIN_S + 99}"),
    ]
    trace = ingest("pbs", "\n".join(log), hosts=("n01", "n02", "n10"))
    idle = idle_seconds_of(trace)
    assert [int(row.sum()) for row in idle] == [
        LENGTH_S - 50,
        LENGTH_S - 50,
        LENGTH_S - 99,
    ]
    assert not idle[0, 10:60].any()


def test_stamps_are_local_and_used_where_epochs_are_missing() -> None:
    text = record(3600, "E", "1", f"exec_host=n01/0 start={BEGIN_S - 3600 * 5}")
    collected, diagnosis = Collector(), Diagnosis()
    read_into(collected, diagnosis, "pbs", text, tz="America/Chicago")
    assert intervals(collected) == {
        ("n01", -3600 * 5, 3600 * 7)
    }  # the stamp is six hours behind UTC


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (record(1, "E", "1", f"start={BEGIN_S} end={BEGIN_S + 1}"), "names no hosts"),
        (record(1, "E", "1", f"exec_host=a/0 end={BEGIN_S + 1}"), "states no start"),
        (
            record(1, "E", "1", f"exec_host=a/0 start=soon end={BEGIN_S + 1}"),
            "start= is no time",
        ),
        (
            record(1, "E", "1", f"exec_host=a/0 start={BEGIN_S + 5} end={BEGIN_S}"),
            "ends before it starts",
        ),
        (
            record(1, "E", "1", f"exec_host=a\x07/0 start={BEGIN_S} end={BEGIN_S + 5}"),
            "no name of a host",
        ),
        (
            record(1, "S", "1", "exec_host=a/0").replace("02/09", "02/31"),
            "does not exist",
        ),
    ],
)
def test_unusable_rows_are_reported(text: str, reason: str) -> None:
    found, diagnosis = busy(text)
    assert not found
    assert [reason in told for told in diagnosis.skipped] == [True]
    with pytest.raises(InputError, match=r"log\.0: line 1: "):
        read_into(Collector(), Diagnosis(strict=True), "pbs", text)


def test_a_foreign_line_is_reported_and_a_foreign_file_refused() -> None:
    _, diagnosis = busy(record(1, "Q", "1", "queue=q") + "\nhello")
    assert ["is no record of PBS" in told for told in diagnosis.skipped] == [True]
    with pytest.raises(
        InputError,
        match=r"log\.0: is no log of this format: line 2 is no record of PBS",
    ):
        busy("\nhello\nworld")


@pytest.mark.reference
def test_published_accounting_log(reference: Path) -> None:
    folder = reference / "logs" / "pbs"
    expected = json.loads((folder / "xdmod-unit-expected.json").read_text())
    text = (folder / "xdmod-unit-accounting-logs.log").read_text()
    collected, diagnosis = Collector(), Diagnosis()
    read_into(collected, diagnosis, "pbs", text)
    assert (diagnosis.rows, diagnosis.used) == (9, 8)
    assert [t.line for t in diagnosis.skipped.values()] == [
        6
    ]  # a job of one node that the log does not name
    lines = text.splitlines()
    assert len(expected) == len(lines)
    for line, job in zip(lines, expected.values(), strict=True):
        found, _ = busy(line)
        hosts = job.get("node_list", "").split(",") if job.get("node_list") else []
        start, end = int(job["start"]) - BEGIN_S, int(job["end"]) - BEGIN_S
        assert found == {(host, start, end) for host in hosts}, job["job_id"]


@pytest.mark.reference
def test_torque_lifecycle(reference: Path) -> None:
    text = (reference / "logs" / "pbs" / "torque-docs-lifecycle.log").read_text()
    collected, diagnosis = Collector(), Diagnosis()
    read_into(collected, diagnosis, "pbs", text)
    assert (
        diagnosis.rows,
        diagnosis.used,
        sum(t.count for t in diagnosis.left_out.values()),
    ) == (3, 1, 2)
    assert list(collected.names) == ["ign1.zeta2.org"]
    assert collected.first_start == 1118088366 * SECOND_NS
