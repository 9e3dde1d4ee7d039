"""What logs leave open, on machines of which the truth is known: its share, and what it counts as."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs.from_files import IngestOptions
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.uncertainty import Uncertainty, together

NODES, DAYS, BEGIN = 20, 10, 1_704_067_200
DAY = 86_400
SPAN = NODES * DAYS * DAY
EVENTS = "NodeName|TimeStart|TimeEnd|State\nn00|1704067300|1704067400|DOWN\n"

Job = tuple[int, int, int]
"""Node, start and end, seconds since BEGIN."""


def busy_machine(seed: int = 0) -> list[Job]:
    """Jobs of one node that last an hour on average, with pauses of ten minutes, from the first second to the last."""
    rng = np.random.default_rng(seed)
    jobs = []
    for node in range(NODES):
        now = 0
        while now < DAYS * DAY:
            end = min(now + int(rng.exponential(3600)) + 60, DAYS * DAY)
            jobs.append((node, now, end))
            now = end + int(rng.exponential(600)) + 20
    return jobs


def sacct(jobs: Sequence[Job]) -> list[str]:
    lines = ["JobID|NodeList|AllocNodes|Start|End|State"]
    for number, (node, start, end) in enumerate(jobs, 1):
        state = "COMPLETED" if number % 7 else "FAILED"
        lines.append(f"{number}|n{node:02}|1|{BEGIN + start}|{BEGIN + end}|{state}")
    return lines


def running(line: str) -> str:
    """The row of a job that has not ended."""
    return "|".join([*line.split("|")[:-2], "Unknown", "RUNNING"])


def seconds(jobs: Sequence[Job]) -> int:
    return sum(end - start for _, start, end in jobs)


@pytest.fixture
def ingested(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[dict[str, float], float, str]]:
    """What parts are uncertain, the idle node-time in seconds, and standard error."""

    def ingest(
        lines: Sequence[str], *options: str
    ) -> tuple[dict[str, float], float, str]:
        Path("log").write_text("\n".join(lines) + "\n")
        Path("events").write_text(EVENTS)
        window = ("--from", "2024-01-01", "--to", "2024-01-11", "--events", "events")
        listed = ("--nodes", "n[00-19]", "--tz", "UTC", "--min-gap", "0")
        command = ("ingest", "slurm", "log", *window, *listed, *options)
        code = run([*command, "-o", "trace.parquet", "--force", "--json"])
        said = capsys.readouterr().err
        assert code == 0, said
        trace = read_trace("trace.parquet")
        parts = {} if trace.uncertain is None else dict(trace.uncertain.parts)
        return parts, trace.idle_node_seconds(), said

    return ingest


Ingested = Callable[..., tuple[dict[str, float], float, str]]


def test_a_complete_log_leaves_nothing_open(ingested: Ingested) -> None:
    jobs = busy_machine()
    parts, idle, said = ingested(sacct(jobs))
    assert not parts
    assert "uncertain" not in said
    assert idle == SPAN - seconds(jobs) - 100 + overlap(jobs, 0, 100, 200)


def overlap(jobs: Sequence[Job], node: int, start: int, end: int) -> int:
    return sum(
        max(0, min(end, job[2]) - max(start, job[1])) for job in jobs if job[0] == node
    )


def test_skipped_rows_count_by_their_own_node_time(ingested: Ingested) -> None:
    jobs = busy_machine()
    lost = sorted(range(len(jobs)), key=lambda k: jobs[k][1] - jobs[k][2])[:100]
    lines = sacct(jobs)
    for k in lost:
        lines[k + 1] = lines[k + 1].replace("|n", "|n[", 1)
    parts, _, said = ingested(lines)
    share = seconds([jobs[k] for k in lost]) / SPAN
    assert parts["skipped rows"] == pytest.approx(share)
    assert share > 2 * len(lost) / len(jobs) * seconds(jobs) / SPAN
    assert f"uncertain: {share:.1%} of the node-time (skipped rows {share:.1%})" in said


def test_skipped_rows_that_state_no_times_count_as_the_others(
    ingested: Ingested,
) -> None:
    jobs = busy_machine()
    lines = sacct(jobs)
    some = np.random.default_rng(1).choice(len(jobs), 600, replace=False)
    for k in some.tolist():
        lines[k + 1] = lines[k + 1].replace(f"|{BEGIN + jobs[k][1]}|", "|soon|")
    parts, _, _ = ingested(lines)
    share = seconds([jobs[k] for k in some.tolist()]) / SPAN
    assert parts["skipped rows"] == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize("counts_as", ["unavailable", "idle"])
def test_a_job_that_nobody_ended_holds_its_node_beyond_what_is_likely(
    counts_as: str, ingested: Ingested
) -> None:
    jobs = busy_machine()
    kept = [job for job in jobs if job[0] != 7 or job[1] == 0]
    lines = sacct(kept)
    first = next(k for k, job in enumerate(kept) if job[0] == 7)
    lines[first + 1] = running(lines[first + 1])
    longest = max(end - start for k, (_, start, end) in enumerate(kept) if k != first)
    longest = max(2 * longest, DAY)
    open_share = (DAYS * DAY - longest) / SPAN
    parts, idle, said = ingested(lines, "--uncertain", counts_as)
    assert parts["jobs without an end"] == pytest.approx(open_share)
    assert f"jobs without an end {open_share:.1%}" in said
    others = [job for job in kept if job[0] != 7]
    idle_elsewhere = (NODES - 1) * DAYS * DAY - seconds(others)
    idle_elsewhere -= 100 - overlap(jobs, 0, 100, 200)
    more = DAYS * DAY - longest if counts_as == "idle" else 0
    assert idle == idle_elsewhere + more


def accounting(jobs: Sequence[Job], lost: int) -> str:
    """Records of PBS; that of the end of one job is missing."""
    records = []
    for number, (node, start, end) in enumerate(jobs):
        what = f"{number}.pbs;user=u{number % 3} queue=q exec_host=n{node:02}/0 start={BEGIN + start}"
        records.append((start, f"S;{what}"))
        if number != lost:
            records.append((end, f"E;{what} end={BEGIN + end}"))
    stamps = (
        (np.datetime64(BEGIN + at, "s").item(), text) for at, text in sorted(records)
    )
    return "".join(f"{at:%m/%d/%Y %H:%M:%S};{text}\n" for at, text in stamps)


@pytest.mark.parametrize("counts_as", ["unavailable", "idle"])
def test_a_lost_end_of_pbs_is_as_uncertain_as_a_running_row_of_slurm(
    counts_as: str, here: Path
) -> None:
    jobs = busy_machine()
    kept = [job for job in jobs if job[0] != 7 or job[1] == 0]
    lost = next(k for k, job in enumerate(kept) if job[0] == 7)
    rows = sacct(kept)
    rows[lost + 1] = running(rows[lost + 1])
    Path("slurm").write_text("\n".join(rows) + "\n")
    Path("pbs").write_text(accounting(kept, lost))
    told = []
    for form in ("slurm", "pbs"):
        command = [
            "ingest",
            form,
            form,
            "--nodes",
            "n[00-19]",
            "--tz",
            "UTC",
            "--from",
            "2024-01-01",
        ]
        command += [
            "--to",
            "2024-01-11",
            "--uncertain",
            counts_as,
            "-o",
            f"{form}.parquet",
        ]
        assert run(command) == 0
        trace = read_trace(f"{form}.parquet")
        assert trace.uncertain is not None
        told.append((dict(trace.uncertain.parts), trace.idle_node_seconds()))
    assert told[0] == told[1]
    assert told[0][0]["jobs without an end"] > 0.03


def test_jobs_that_run_when_the_log_ends_are_no_alarm(ingested: Ingested) -> None:
    jobs = busy_machine()
    lines = sacct(jobs)
    for k, job in enumerate(jobs):
        if job[2] == DAYS * DAY:
            lines[k + 1] = running(lines[k + 1])
    parts, _, said = ingested(lines)
    assert not parts
    assert "uncertain" not in said


@pytest.mark.parametrize("counts_as", ["unavailable", "idle"])
def test_a_window_beyond_the_logs(counts_as: str, ingested: Ingested) -> None:
    jobs = [job for job in busy_machine() if job[1] < 8 * DAY]
    last = max(end for *_, end in jobs)
    parts, idle, said = ingested(sacct(jobs), "--uncertain", counts_as)
    outside = NODES * (DAYS * DAY - last)
    assert parts["window outside the logs"] == pytest.approx(outside / SPAN)
    look = "look idle" if counts_as == "idle" else "count as unavailable"
    assert f"after the last record: nodes {look} there" in said
    inside = SPAN - seconds(jobs) - 100 + overlap(jobs, 0, 100, 200)
    quiet = NODES * (last - max(start for _, start, _ in jobs))
    if counts_as == "idle":
        assert idle == inside
    else:
        assert inside - outside - quiet <= idle <= inside - outside


@pytest.mark.parametrize("counts_as", ["unavailable", "idle"])
def test_nodes_that_came_late_or_left_early(counts_as: str, ingested: Ingested) -> None:
    jobs = [
        (node, start, end)
        for node, start, end in busy_machine()
        if not (node == 3 and start < 4 * DAY)
        and not (node == 5 and end > 6 * DAY)
        and node != 9
    ]
    came = min(start for node, start, _ in jobs if node == 3)
    left = max(end for node, _, end in jobs if node == 5)
    absent = came + DAYS * DAY - left + DAYS * DAY
    parts, idle, _ = ingested(sacct(jobs), "--uncertain", counts_as)
    reason = "nodes before their first or after their last sign of life"
    assert parts == {reason: pytest.approx(absent / SPAN)}
    all_idle = SPAN - seconds(jobs) - 100 + overlap(jobs, 0, 100, 200)
    assert idle == all_idle - (absent if counts_as == "unavailable" else 0)


def test_snapshots_are_as_sure_as_they_are_frequent(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = []
    for period in (60, 600):
        rows = ["timestamp,node,state"]
        for second in range(0, DAY, period):
            for node in range(4):
                busy = (second + 1800 * node) % 7200 < 3600
                state = "allocated" if busy else "idle"
                rows.append(f"{BEGIN + second},n{node},{state}")
        Path("log").write_text("\n".join(rows) + "\n")
        assert run(["ingest", "snapshots", "log", "-o", "t.parquet", "--force"]) == 0
        trace = read_trace("t.parquet")
        assert trace.uncertain is not None
        shares.append(dict(trace.uncertain.parts)["sampling"])
        capsys.readouterr()
    # A change an hour, each off by half a period at the most.
    assert shares[0] == pytest.approx(30 / 3600, rel=0.05)
    assert shares[1] == pytest.approx(300 / 3600, rel=0.05)


def test_where_it_is_said(
    ingested: Ingested, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [job for job in busy_machine() if job[1] < 8 * DAY]
    ingested(sacct(jobs))
    stated = json.loads(pq.read_schema("trace.parquet").metadata[b"uncertain"])
    share = stated["share"]
    # Two days of ten are not in the log; most of their time is in doubt for several reasons, and counts once.
    assert 0.15 < share < 0.25
    assert run(["trace", "info", "trace.parquet"]) == 0
    info = capsys.readouterr().out
    assert f"uncertain                   {share:.1%} of the node-time: " in info
    assert run(["trace", "info", "trace.parquet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["uncertain"] == stated
    command = ["replay", "-ndmap", "trace.parquet", "--policy", "fifo", "--no-u"]
    command += ["--oversized", "cap"]
    assert run(command) == 0, capsys.readouterr().err
    said = capsys.readouterr().err
    note = f"uncertain: {share:.1%} of the node-time"
    assert note in said
    summary = json.loads(Path("debug-itrOut", "summary.json").read_text())
    assert summary["inputs"]["trace"]["uncertain"] == stated
    assert any(text.startswith(note) for text in summary["notes"])


def test_parts_of_a_trace_weigh_by_their_node_time() -> None:
    a = Uncertainty((("skipped rows", 0.1),))
    b = Uncertainty((("skipped rows", 0.2), ("sampling", 0.4)))
    merged = together([(a, 1.0), (b, 3.0), (None, 4.0)])
    assert merged is not None
    assert dict(merged.parts) == {
        "skipped rows": pytest.approx((0.1 + 0.6) / 8),
        "sampling": pytest.approx(1.2 / 8),
    }
    assert together([(None, 1.0)]) is None


@pytest.mark.parametrize("share", [-0.1, float("nan"), float("inf")])
def test_shares_check_themselves(share: float) -> None:
    with pytest.raises(InputError, match="expected a share of the node-time"):
        Uncertainty((("skipped rows", share),))


@pytest.mark.parametrize("text", ["[]", "{}", '{"parts": {"a": "b"}}', "no"])
def test_damaged_metadata_are_named(text: str, here: Path, ingested: Ingested) -> None:
    ingested(sacct(busy_machine()))
    table = pq.read_table("trace.parquet")
    known = dict(table.schema.metadata)
    damaged = table.replace_schema_metadata({**known, b"uncertain": text.encode()})
    pq.write_table(damaged, "trace.parquet")
    with pytest.raises(InputError, match="metadata are damaged"):
        read_trace("trace.parquet")


def test_the_option_takes_two_words() -> None:
    with pytest.raises(InputError, match="--uncertain: expected unavailable or idle"):
        IngestOptions(uncertain="busy")  # type: ignore[arg-type]
