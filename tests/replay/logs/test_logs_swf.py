"""The Standard Workload Format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import (
    BEGIN_S,
    HOSTS,
    LENGTH_S,
    SyntheticJob,
    damages,
    idle_seconds,
    idle_seconds_of,
    job_lists,
    read_into,
    survives,
    swf,
)

from bft.models import InputError
from bft.replay.logs import (
    Collector,
    Diagnosis,
    Reading,
    Settings,
    node_trace,
    open_log,
    read_log,
)
from bft.replay.logs.times import Clock
from bft.replay.trace.node_trace import SECOND_NS


def line(
    submit: object = 0, wait: object = 5, run: object = 10, procs: object = 4, asked: object = 4, status: int = 1,
    beyond: str = "",
) -> str:  # fmt: skip
    return f"1 {submit} {wait} {run} {procs} -1 -1 {asked} 9 -1 {status} 1 1 -1 -1 1 -1 -1 {beyond}".rstrip()


def counted(
    *lines: str, settings: Settings | None = None
) -> tuple[list[tuple[int, float, float]], Collector, Diagnosis]:
    """Nodes, start and end in seconds of each job."""
    collected, diagnosis = Collector(), Diagnosis()
    read_into(collected, diagnosis, "swf", "\n".join(lines), settings=settings)
    nodes, starts, ends = (column.tolist() for column in collected.counted())
    return (
        [(n, a / 1e9, b / 1e9) for n, a, b in zip(nodes, starts, ends, strict=True)],
        collected,
        diagnosis,
    )


@given(job_lists(apart=True), st.sampled_from([1, 2, 16, 48]))
def test_round_trip_of_how_many_nodes_are_idle(
    jobs: list[SyntheticJob], processors_per_node: int
) -> None:
    collected, diagnosis = Collector(min_gap_ns=0), Diagnosis()
    read_into(collected, diagnosis, "swf", swf(jobs, processors_per_node))
    start, end = BEGIN_S * SECOND_NS, (BEGIN_S + LENGTH_S) * SECOND_NS
    trace, _ = node_trace(collected, diagnosis, start_ns=start, end_ns=end)
    assert len(trace.nodes) == len(HOSTS)
    assert np.array_equal(
        idle_seconds_of(trace).sum(axis=0), idle_seconds(jobs).sum(axis=0)
    )


@given(st.data())
def test_damaged_logs_are_read_or_refused(data: st.DataObject) -> None:
    survives("swf", data.draw(damages(swf(data.draw(job_lists(apart=True)), 4))))


def test_times_are_relative_to_the_header() -> None:
    assert counted("; UnixStartTime: 1000", line(7.5, 5, "10.25"))[0] == [
        (4, 1012.5, 1022.75)
    ]


def test_epoch_submit_times_stay_as_they_are() -> None:
    jobs, _, diagnosis = counted(
        "; UnixStartTime: 1027839845",
        line(1027839900),
        settings=Settings(processors_per_node=1),
    )
    assert jobs == [(4, 1027839905, 1027839915)]
    assert not diagnosis.notes


def test_without_a_header_times_count_from_1970_and_that_is_reported() -> None:
    jobs, collected, diagnosis = counted(line())
    assert jobs == [(4, 5, 15)]
    assert any("UnixStartTime" in note for note in diagnosis.notes)
    assert collected.machine_nodes is None


@pytest.mark.parametrize(
    ("header", "given_", "per_job", "machine"),
    [
        ("; MaxNodes: 240\n; MaxProcs: 240", None, 4, 240),
        ("; MaxNodes: 60\n; MaxProcs: 240", None, 1, 60),
        ("; MaxNodes: 120\n; MaxProcs: 240", None, 2, 120),
        ("; MaxProcs: 240", None, 4, 240),
        ("; MaxProcs: 241", 3, 2, 81),
        ("; MaxNodes: 60 (of 64)\n; MaxProcs: 240", 2, 2, 120),
        ("; MaxNodes: many", None, 4, None),
    ],
)
def test_nodes_from_processors(
    header: str, given_: int | None, per_job: int, machine: int | None
) -> None:
    jobs, collected, _ = counted(
        *header.split("\n"), line(), settings=Settings(processors_per_node=given_)
    )
    assert [nodes for nodes, _, _ in jobs] == [per_job]
    assert collected.machine_nodes == machine


def test_requested_processors_where_allocated_ones_are_unknown() -> None:
    assert counted(line(procs=-1, asked=9))[0][0][0] == 9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line(run=-1), "run time, field 4, is not known"),
        (line(wait=-1), "wait time, field 3, is not known"),
        (line(submit="x"), "field 2 is no number"),
        (line(run="nan"), "field 4 is no number"),
        (line(run=-3), "a time is negative"),
        (line(run="1e17"), "later than the year 2262"),
        (line(procs=-1, asked=-1), "how many processors"),
        (line(procs=1e18), "how many processors"),
    ],
)
def test_unusable_rows_are_reported(text: str, reason: str) -> None:
    jobs, _, diagnosis = counted(text)
    assert not jobs
    assert [reason in told for told in diagnosis.skipped] == [True], diagnosis.skipped
    with pytest.raises(InputError, match=r"log\.0: line 1: "):
        read_into(Collector(), Diagnosis(strict=True), "swf", text)


def test_cancelled_jobs_without_times_are_left_out() -> None:
    jobs, _, diagnosis = counted(line(run=-1, status=5), line(status=5))
    assert len(jobs) == 1  # cancelled while it ran
    assert sum(tally.count for tally in diagnosis.left_out.values()) == 1


@pytest.mark.parametrize("status", [2, 3, 4])
def test_each_status_of_a_part_of_a_job_is_left_out(status: int) -> None:
    """To be continued, the last part of a job that completed, and of one that failed."""
    jobs, _, diagnosis = counted(line(run=30), line(status=status))
    assert [end - start for _, start, end in jobs] == [30]
    assert [tally.line for tally in diagnosis.left_out.values()] == [2]
    assert diagnosis.used == 1


TAKEN = "each processor is taken for a node"


@pytest.mark.parametrize(
    ("header", "per_node", "told"),
    [
        ((), None, True),
        (("; MaxProcs: 240",), None, True),
        (("; MaxNodes: 60",), None, True),
        (("; MaxNodes: 240", "; MaxProcs: 240"), None, False),
        (("; MaxProcs: 240",), 1, False),
        ((), 4, False),
    ],
)
def test_processors_counted_as_nodes_are_reported(
    header: tuple[str, ...], per_node: int | None, told: bool
) -> None:
    _, _, diagnosis = counted(
        *header, line(), settings=Settings(processors_per_node=per_node)
    )
    assert (
        any(
            TAKEN in note and "--processors-per-node" in note
            for note in diagnosis.notes
        )
        == told
    )


@pytest.mark.parametrize(
    ("beyond", "nodes"),
    [
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n1,n3", ["n1", "n3"]),
        ("n1+n2+n2", ["n1", "n2"]),
        ("n1/0*2+n2/0-1", ["n1", "n2"]),
        ("n1;n2 extra", ["n1", "n2"]),
    ],
)
def test_field_19_that_lists_nodes_is_read(beyond: str, nodes: list[str]) -> None:
    jobs, collected, diagnosis = counted(
        "; MaxProcs: 8", line(run=-1, status=5), line(beyond=beyond)
    )
    assert not jobs
    assert list(collected.names) == nodes
    assert collected.busy_intervals.merged()[0].tolist() == list(range(len(nodes)))
    assert any("field 19 lists nodes" in note for note in diagnosis.notes)
    assert not any(TAKEN in note for note in diagnosis.notes)


def test_once_field_19_lists_nodes_a_job_without_is_skipped() -> None:
    jobs, _, diagnosis = counted(line(beyond="n[1-4]"), line(beyond="-1"), line())
    assert (jobs, diagnosis.used) == ([], 1)
    assert [
        (reason, tally.count, tally.line) for reason, tally in diagnosis.skipped.items()
    ] == [("field 19 lists no nodes, as it does for the jobs before", 2, 2)]


@pytest.mark.parametrize(
    "beyond", ["-1", "7", "0,1,2,3", "linux:gpu", "cpu,gpu", "n[1-5]", "0.25 3", "n[1-"]
)
def test_an_unexpected_field_19_is_reported_and_counts_are_read(beyond: str) -> None:
    jobs, collected, diagnosis = counted(line(beyond=beyond), line())
    assert [nodes for nodes, _, _ in jobs] == [4, 4]
    assert not collected.names
    (tally,) = (
        tally
        for note, tally in diagnosis.notes.items()
        if "fields beyond the 18" in note
    )
    assert (tally.count, tally.line) == (1, 1)


def test_a_short_line_is_reported() -> None:
    jobs, _, diagnosis = counted(line(), "1 2 3")
    assert len(jobs) == 1
    (tally,) = diagnosis.skipped.values()
    assert (tally.line, tally.detail) == (2, "3 fields")


@pytest.mark.reference
def test_a_file_that_is_separated_by_semicolons_is_refused(reference: Path) -> None:
    text = (reference / "logs" / "swf" / "slurmsimtools-jobs500.swf").read_text()
    with pytest.raises(
        InputError, match="line 1 has not 18 fields separated by blanks: 1 fields"
    ):
        counted(text)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "rows", "used", "nodes"),
    [
        ("accasim-workload.swf", 25, 25, None),
        ("alea-hpc2n-excerpt.swf.gz", 3170, 3145, 240),
    ],
)
def test_published_workloads(
    reference: Path, name: str, rows: int, used: int, nodes: int | None
) -> None:
    collected, diagnosis = Collector(), Diagnosis()
    path = reference / "logs" / "swf" / name
    with open_log(path) as lines:
        read_log(
            "swf",
            Reading(lines, str(path), collected, diagnosis, Clock(None, diagnosis)),
        )
    diagnosis.balance()
    assert (diagnosis.rows, diagnosis.used, collected.machine_nodes) == (
        rows,
        used,
        nodes,
    )
    if name.startswith("alea"):
        with open_log(path) as lines:
            table = np.array(
                [row.split() for row in lines if row and row[0] != ";" and row.strip()],
                dtype=float,
            )
        known = table[(table[:, 3] >= 0) & (table[:, 2] >= 0)]
        starts = 1027839845 + known[:, 1] + known[:, 2]
        count, begins, ends = collected.counted()
        assert np.array_equal(count, known[:, 4])
        assert np.array_equal(begins / 1e9, starts)
        assert np.array_equal(ends / 1e9, starts + known[:, 3])
        # As many nodes are idle as the jobs that run at an instant leave.
        trace, _ = node_trace(collected, diagnosis)
        running = [
            int(count[(begins <= t) & (t < ends)].sum())
            for t in trace.times[::200].tolist()
        ]
        assert [240 - idle for idle in trace.idle_counts()[::200].tolist()] == running
