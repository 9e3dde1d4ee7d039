"""LSF's lsb.acct and lsb.events."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
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
    lsb_acct,
    lsb_events,
    read_into,
    read_lines,
    survives,
)

from bft.models import InputError
from bft.replay.logs import Collector, Diagnosis, open_log
from bft.replay.logs.lsf import fields, unquoted


def finish(
    hosts: str = '1 "a"',
    *,
    start: int = BEGIN_S,
    end: int = BEGIN_S + 9,
    asked: str = "0",
    tail: str = "",
) -> str:
    return (
        f'"JOB_FINISH" "10.1" {end} 7 1 33 1 {BEGIN_S} 0 0 {start} "u" "q" "" "" "" "h" "/" "" "" "" "f" '
        f'{asked} {hosts} 64 1.0 "" "cmd"{tail}'
    )


def event(second: int, kind: str, rest: str) -> str:
    return f'"{kind}" "10.1" {BEGIN_S + second} {rest}'


def start(second: int, hosts: str, job: int = 1, index: int = 0) -> str:
    return event(second, "JOB_START", f'{job} 4 0 0 1.0 {hosts} "" "" 0 "" {index} ""')


busy = read_lines


@pytest.mark.parametrize(
    ("name", "write"), [("lsf", lsb_acct), ("lsf-events", lsb_events)]
)
@given(jobs=job_lists())
def test_round_trip(name, write, jobs: list[SyntheticJob]) -> None:  # type: ignore[no-untyped-def]
    assert np.array_equal(
        idle_seconds_of(ingest(name, write(jobs))), idle_seconds(jobs)
    )


@given(job_lists(), st.integers(0, 40))
def test_events_split_into_files_give_the_same_trace(
    jobs: list[SyntheticJob], cut: int
) -> None:
    lines = lsb_events(jobs).split("\n")
    trace = ingest("lsf-events", "\n".join(lines[:cut]), "\n".join(lines[cut:]))
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


@pytest.mark.parametrize(
    ("name", "write"), [("lsf", lsb_acct), ("lsf-events", lsb_events)]
)
@given(data=st.data())
def test_damaged_logs_are_read_or_refused(name, write, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    survives(name, data.draw(damages(write(data.draw(job_lists())))))


def test_fields_are_quoted_by_doubling() -> None:
    assert [
        unquoted(field) for field in fields('"a b" 1 "say ""so"" ;" "" -1.5 """"')
    ] == [
        "a b",
        "1",
        'say "so" ;',
        "",
        "-1.5",
        '"',
    ]


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ('3 "a" "a" "b"', {"a", "b"}),
        ('2 "16*a" "b"', {"a", "b"}),
        ('1 "a@far"', {"a@far"}),
        ('1 "1*2*a"', {"2*a"}),
    ],
)
def test_hosts(hosts: str, found: set[str]) -> None:
    assert busy("lsf", finish(hosts))[0] == {(host, 0, 9) for host in found}


def test_jobs_that_never_started_are_left_out() -> None:
    found, diagnosis = busy("lsf", finish("0", start=0))
    assert not found
    assert list(diagnosis.left_out) == ["a job that never started"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (finish()[:40], "ends before numAskedHosts"),
        (finish('3 "a"'), "not as many hosts"),
        (finish("1 5"), "not as many hosts"),
        (finish("-1"), "not as many hosts"),
        (finish(asked='"x"'), "numAskedHosts is no whole number"),
        (finish(asked='9 "x"'), "askedHosts are not"),
        (finish(start=BEGIN_S + 10), "ends before it starts"),
        (finish(start=0), "ends before"),
        (finish('1 "a\x01"'), "no name of a host"),
        (finish(tail=' "open'), "quote is not closed"),
    ],
)
def test_unusable_rows_are_reported(text: str, reason: str) -> None:
    found, diagnosis = busy("lsf", text)
    assert not found
    assert [reason in told for told in diagnosis.skipped] == [True], diagnosis.skipped
    with pytest.raises(InputError, match=r"log\.0: line 1: "):
        read_into(Collector(), Diagnosis(strict=True), "lsf", text)


def test_a_requeued_job_ran_twice_and_array_elements_are_jobs_of_their_own() -> None:
    lines = [
        start(0, '1 "a"'),
        start(0, '1 "b"', index=2),
        event(10, "JOB_STATUS", "1 1 2903 0 0.0 0 0 0 0 0"),
        start(20, '1 "c"'),
        event(30, "JOB_STATUS", f"1 64 0 0 0.1 {BEGIN_S + 29} 0 0 0 0"),
        event(40, "JOB_STATUS", f"1 32 0 0 0.1 {BEGIN_S + 39} 1{' 0' * 19} 9 2 0"),
    ]
    assert busy("lsf-events", *lines)[0] == {("a", 0, 10), ("c", 20, 29), ("b", 0, 39)}


def test_a_suspended_or_unreachable_job_keeps_its_nodes() -> None:
    lines = [
        start(0, '1 "a"'),
        *(
            event(5, "JOB_STATUS", f"1 {status} 0 0 0.0 0 0 0 0 0")
            for status in (8, 16, 4, 65536)
        ),
        event(50, "JOB_STATUS", f"1 64 0 0 0.1 {BEGIN_S + 50} 0 0 0 0"),
    ]
    assert busy("lsf-events", *lines)[0] == {("a", 0, 50)}


def test_closed_hosts_are_unavailable() -> None:
    lines = [
        event(10, "HOST_CTRL", '2 "n01" 1 "root" "disk"'),
        event(20, "HOST_CTRL", '2 "n01" 1 "root" "again"'),
        event(30, "HOST_CTRL", '1 "n01" 1 "root" ""'),
        event(40, "HOST_CTRL", '4 "n02" 1 "root" ""'),
        event(50, "HOST_CTRL", '1 "n10" 1 "root" ""'),
        event(LENGTH_S, "MBD_DIE", '"m" 0 0'),
    ]
    idle = idle_seconds_of(
        ingest("lsf-events", "\n".join(lines), hosts=("n01", "n02", "n10"))
    )
    assert [int(row.sum()) for row in idle] == [LENGTH_S - 20, 40, LENGTH_S]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('"JOB_NEW"', "ends before event time"),
        (event(0, "JOB_START", '1 4 0 0 1.0 2 "a"'), "not as many hosts"),
        (event(0, "JOB_START", "1 4 0 0 1.0 0"), "on no host"),
        (event(0, "HOST_CTRL", '7 "a"'), "opCode"),
        (event(0, "HOST_CTRL", "2"), "names no host"),
        (event(0, "JOB_STATUS", "1 64"), "ends before ru"),
    ],
)
def test_events_that_cannot_be_used_are_reported(text: str, reason: str) -> None:
    found, diagnosis = busy("lsf-events", text)
    assert not found
    assert [reason in told for told in diagnosis.skipped] == [True], diagnosis.skipped


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lsf", start(0, '1 "a"')),
        ("lsf", "Accounting information about jobs that are:"),
        ("lsf-events", finish()),
        ("lsf-events", 'JOB_NEW "10" 1 1'),
    ],
)
def test_files_of_something_else_are_refused(name: str, text: str) -> None:
    with pytest.raises(
        InputError,
        match=r"log\.0: is no log of this format: line 1 is no record of lsb\.",
    ):
        busy(name, text)


def _expected(path: Path) -> list[tuple[str, float, float]]:
    """Job, start and end as another program found them; its number of hosts is 1 even where records name several."""

    def seconds(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() - BEGIN_S

    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["job_id"]]
    return sorted(
        (row["job_id"], seconds(row["start_time"]), seconds(row["finish_time"]))
        for row in rows
    )


def _found(path: Path) -> dict[tuple[str, float, float], int]:
    """The same as we read it, each record alone, and its number of hosts."""
    jobs = {}
    with open_log(path) as lines:
        for line in lines:
            collected, diagnosis = Collector(), Diagnosis()
            read_into(collected, diagnosis, "lsf", line)
            if diagnosis.used:
                start, end = (
                    time_ns / 1e9 - BEGIN_S
                    for time_ns in (collected.first_start, collected.last)
                )
                jobs[fields(line)[3], start, end] = len(collected.names)
    return jobs


# File with records, file with what the other program made of it, rows of ours that it has not.
CASES = [
    ("issues/16/lsb.acct.issue-16", "issues/16/exp_jobs.csv", 0),
    ("issues/18/lsb.acct.issue-18", "issues/18/exp_jobs.csv", 0),
    ("issues/31/lsb.acct.issue-31", "issues/31/exp_jobs.csv", 0),
    ("issues/44/lsb.acct.issue-44", "issues/44/exp_jobs.csv", 0),
    ("issues/gl-9/lsb.acct.hostFactor-not-a-float", "issues/gl-9/exp_jobs.csv", 0),
    ("issues/gl-16/lsb.acct.issue-gl-16", "issues/gl-16/exp_jobs.csv", 0),
    ("issues/gl-22/lsb.acct.issue-gl-22", "issues/gl-22/exp_jobs.csv", 0),
    # It refuses records whose tail, with memory and licences, is cut off; hosts and times are there.
    ("issues/gl-19/lsb.acct.issue-gl-19", "issues/gl-19/exp_jobs.csv", 2),
    ("issues/gl-26/lsb.acct.issue-gl-26", "issues/gl-26/exp_jobs.csv", 5),
]


@pytest.mark.reference
@pytest.mark.parametrize(("log", "expected", "more"), CASES)
def test_published_records(reference: Path, log: str, expected: str, more: int) -> None:
    folder = reference / "logs" / "lsf" / "hpc-cost-simulator"
    found = _found(folder / log)
    known = _expected(folder / expected)
    assert len(found) == len(known) + more
    assert set(known) <= set(found)


@pytest.mark.reference
def test_published_accounting_and_events_agree(reference: Path) -> None:
    folder = reference / "logs" / "lsf" / "hpc-cost-simulator"
    found = _found(folder / "lsb.acct") | _found(folder / "lsb.acct.16")
    assert sorted(found) == _expected(folder / "exp_jobs.csv")
    assert len(found) == 87
    hosts = {job: count for (job, _, _), count in found.items() if count > 1}
    assert hosts == {
        "160": 2,
        "161": 8,
        "166": 2,
        "167": 3,
        "273": 2,
        "274": 2,
        "275": 3,
        "280": 2,
        "281": 5,
    }
    # The same jobs as events.
    texts = [(folder / name).read_text() for name in ("lsb.acct.16", "lsb.acct")]
    acct, events = Collector(), Collector()
    read_into(acct, Diagnosis(), "lsf", *texts)
    diagnosis = Diagnosis()
    read_into(events, diagnosis, "lsf-events", (folder / "lsb.events").read_text())
    assert diagnosis.rows == 664
    assert not diagnosis.skipped
    assert diagnosis.used == 2 * 87
    assert intervals(acct) == intervals(events)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("log", "used", "skipped"),
    [
        ("bad-records/lsb.acct-invalid-record-type", 4, 2),
        ("bad-records/lsb.acct-missing-fields", 6, 0),
        ("numExHosts/lsb.acct", 2, 0),  # one of them twice
        ("not-enough-fields/lsb.acct.not-enough-fields.1", 2, 0),
        ("not-enough-fields/lsb.acct.not-enough-fields.2", 1, 0),
    ],
)
def test_published_bad_records(
    reference: Path, log: str, used: int, skipped: int
) -> None:
    diagnosis = Diagnosis()
    text = (reference / "logs" / "lsf" / "hpc-cost-simulator" / log).read_text()
    read_into(Collector(), diagnosis, "lsf", text)
    assert (
        diagnosis.used,
        sum(tally.count for tally in diagnosis.skipped.values()),
    ) == (used, skipped)


@pytest.mark.reference
def test_what_bacct_prints_is_refused(reference: Path) -> None:
    text = (
        reference / "logs" / "lsf" / "hpc-cost-simulator" / "accounting.lsb"
    ).read_text()
    with pytest.raises(InputError, match=r"line 2 is no record of lsb\.acct"):
        busy("lsf", text)
