"""What logs leave open, on machines of which the truth is known: the window, and the share and effect of doubt."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from refusals import refused
from synthetic_logs import BEGIN_S, SyntheticJob, read_texts, stamp, written

from bft.datasets import generate_log
from bft.replay.trace.trace_files import read_trace, write_trace
from bft.replay.trace.uncertainty import Uncertainty, together

NODES, DAYS, DAY = 20, 10, 86_400
LENGTH = DAYS * DAY
SPAN = NODES * LENGTH
ALL = "n[00-19]"
EVENTS = f"NodeName|TimeStart|TimeEnd|State\nn00|{BEGIN_S + 100}|{BEGIN_S + 200}|DOWN\n"
COUNTS_AS = pytest.mark.parametrize("counts_as", ["unavailable", "idle"])
NO_END = "jobs without an end"
# Jobs below: node, start and end, seconds since BEGIN_S.


def busy_machine():
    """Jobs of one node that last an hour on average, with pauses of ten minutes, from the first second to the last."""
    rng = np.random.default_rng(0)
    jobs = []
    for node in range(NODES):
        now = 0
        while now < LENGTH:
            end = min(now + int(rng.exponential(3600)) + 60, LENGTH)
            jobs.append((node, now, end))
            now = end + int(rng.exponential(600)) + 20
    return jobs


JOBS = busy_machine()


def as_synthetic(jobs) -> list[SyntheticJob]:
    return [SyntheticJob((f"n{node:02}",), start, end, 0) for node, start, end in jobs]


def sacct(jobs) -> list[str]:
    return written("sacct", as_synthetic(jobs)).splitlines()


def pbs(jobs, lost: int) -> list[str]:
    """Records of PBS; that of the end of one job is missing."""
    begun = [replace(job, style=1) for job in as_synthetic(jobs)]
    lines = written("pbs", begun).splitlines()
    return [line for line in lines if f";E;{lost}.server;" not in line and "last.server" not in line]  # fmt: skip


def running(line: str) -> str:
    *cells, _, _, comment = line.split("|")
    return "|".join([*cells, "Unknown", "RUNNING", comment])


def seconds(jobs, low: int = 0, high: int = LENGTH) -> int:
    return sum(max(0, min(end, high) - max(start, low)) for _, start, end in jobs)


def idle_of(jobs) -> int:
    down = 100 - seconds([job for job in jobs if job[0] == 0], 100, 200)
    return SPAN - seconds(jobs) - down


def read(
    lines, form: str = "slurm", uncertain: str = "unavailable"
) -> tuple[dict[str, float], float, str]:
    """What parts are uncertain, the idle node-time in seconds, and what is said loudly."""
    beside = {"nodes": [ALL], "files": {"down": EVENTS}, "events": ["down"]}
    text = "\n".join(lines)
    made = read_texts(form, text, window=(0, LENGTH), uncertain=uncertain, **beside)
    parts = dict(made.trace.uncertain.parts if made.trace.uncertain else ())
    return parts, made.trace.idle_node_seconds(), "\n".join(made.account.warnings())


@pytest.mark.parametrize("ended", [True, False])
def test_a_complete_log_leaves_nothing_open(ended: bool) -> None:
    """Jobs that run when it ends are no doubt."""
    header, *rows = sacct(JOBS)
    if not ended:
        pairs = zip(rows, JOBS, strict=True)
        rows = [running(row) if job[2] == LENGTH else row for row, job in pairs]
    parts, idle, said = read([header, *rows])
    assert (parts, idle) == ({}, idle_of(JOBS))
    assert "uncertain" not in said


@pytest.mark.parametrize("times", [True, False])
def test_skipped_rows_count_by_their_own_node_time_or_as_the_others(
    times: bool,
) -> None:
    lines = sacct(JOBS)
    long = sorted(range(len(JOBS)), key=lambda k: JOBS[k][1] - JOBS[k][2])[:100]
    some = np.random.default_rng(1).choice(len(JOBS), 600, replace=False).tolist()
    lost = long if times else some
    for k in lost:
        broken = ("|n", "|n[") if times else (f"|{stamp(JOBS[k][1])}|", "|soon|")
        lines[k + 1] = lines[k + 1].replace(*broken, 1)
    parts, _, said = read(lines)
    share = seconds([JOBS[k] for k in lost]) / SPAN
    assert parts["skipped rows"] == pytest.approx(share, rel=1e-6 if times else 0.1)
    assert times <= (share > 2 * len(lost) / len(JOBS) * seconds(JOBS) / SPAN)
    share = parts["skipped rows"]
    assert f"uncertain: {share:.1%} of the node-time (skipped rows {share:.1%})" in said


@COUNTS_AS
@pytest.mark.parametrize("form", ["slurm", "pbs"])
def test_a_job_that_nobody_ended_holds_its_node_beyond_what_is_likely(
    form: str, counts_as: str
) -> None:
    jobs = [job for job in JOBS if job[0] != 7 or job[1] == 0]
    lost = next(k for k, job in enumerate(jobs) if job[0] == 7)
    lines = sacct(jobs)
    lines[lost + 1] = running(lines[lost + 1])
    lines = lines if form == "slurm" else pbs(jobs, lost)
    others = [job for k, job in enumerate(jobs) if k != lost]
    longest = max(2 * max(end - start for _, start, end in others), DAY)
    parts, idle, said = read(lines, form, uncertain=counts_as)
    doubt = LENGTH - longest
    assert parts == {NO_END: pytest.approx(doubt / SPAN)}
    assert f"{NO_END} {doubt / SPAN:.1%}" in said
    taken = LENGTH if counts_as == "unavailable" else longest
    assert idle == idle_of(others) - taken


@COUNTS_AS
def test_a_window_beyond_the_logs(counts_as: str) -> None:
    jobs = [job for job in JOBS if job[1] < 8 * DAY]
    last = max(end for *_, end in jobs)
    parts, idle, said = read(sacct(jobs), uncertain=counts_as)
    outside = NODES * (LENGTH - last)
    assert parts["window outside the logs"] == pytest.approx(outside / SPAN)
    look = "look idle" if counts_as == "idle" else "count as unavailable"
    assert f"after the last record: nodes {look} there" in said
    quiet = NODES * (last - max(start for _, start, _ in jobs))
    least = 0 if counts_as == "idle" else outside
    assert idle_of(jobs) - least - quiet * bool(least) <= idle <= idle_of(jobs) - least


@COUNTS_AS
def test_nodes_that_came_late_or_left_early(counts_as: str) -> None:
    gone = {3: (4 * DAY, LENGTH), 5: (0, 6 * DAY), 9: (LENGTH, 0)}
    jobs = [
        (node, start, end)
        for node, start, end in JOBS
        if start >= gone.get(node, (0, 0))[0] and end <= gone.get(node, (0, LENGTH))[1]
    ]
    came = min(start for node, start, _ in jobs if node == 3)
    absent = came + LENGTH - max(end for node, _, end in jobs if node == 5) + LENGTH
    parts, idle, _ = read(sacct(jobs), uncertain=counts_as)
    reason = "nodes before their first or after their last sign of life"
    assert parts == {reason: pytest.approx(absent / SPAN)}
    assert idle == idle_of(jobs) - (absent if counts_as == "unavailable" else 0)


def test_no_time_is_in_doubt_twice() -> None:
    """A job without an end, in a window beyond the logs, on a node that comes late."""
    jobs = [job for job in JOBS if job[1] < 8 * DAY and job[0] not in (3, 7)]
    lines = [*sacct(jobs), running(f"0|j|n07|1|{stamp(4 * DAY)}|||")]
    told = {}
    for counts_as in ("unavailable", "idle"):
        parts, idle, said = read(lines, uncertain=counts_as)
        told[counts_as] = sum(parts.values()), idle
        assert len(parts) > 2, said
    assert told["idle"][0] == pytest.approx(told["unavailable"][0])
    doubt = (told["idle"][1] - told["unavailable"][1]) / SPAN
    assert doubt == pytest.approx(told["idle"][0])


@pytest.mark.parametrize("period", [60, 600])
def test_snapshots_are_as_sure_as_they_are_frequent(period: int) -> None:
    rows = [
        f"{BEGIN_S + second},n{node},{'allocated' if (second + 1800 * node) % 7200 < 3600 else 'idle'}"
        for second in range(0, DAY, period)
        for node in range(4)
    ]
    doubts = read_texts(
        "snapshots", "\n".join(["timestamp,node,state", *rows]), window=None
    ).trace.uncertain
    # A change an hour, each off by half a period at the most.
    assert dict(doubts.parts)["sampling"] == pytest.approx(period / 7200, rel=0.05)


def test_where_it_is_said(here: Path, told) -> None:
    """In the trace's metadata, by `trace info`, and by what replays it."""
    jobs = [job for job in JOBS if job[1] < 8 * DAY]
    made = read_texts("slurm", "\n".join(sacct(jobs)), nodes=[ALL], window=(0, LENGTH))
    write_trace(made.trace, "trace.parquet")
    table = pq.read_table("trace.parquet")
    stated = json.loads(table.schema.metadata[b"uncertain"])
    # Two days of ten are not in the log; most of their time is in doubt for several reasons, and counts once.
    assert 0.15 < stated["share"] < 0.25
    note = f"{stated['share']:.1%} of the node-time"
    told("trace info trace.parquet", f"uncertain                   {note}: ")
    told("trace info trace.parquet --json", f'"share": {stated["share"]}')
    replay = "replay -ndmap trace.parquet --policy fifo --no-u --option oversized=cap"
    told(replay, f"uncertain: {note}")
    summary = json.loads(Path("debug-itrOut", "summary.json").read_text())
    assert summary["inputs"]["trace"]["uncertain"] == stated
    assert any(text.startswith(f"uncertain: {note}") for text in summary["notes"])
    for damaged in ('{"parts": 1}', '{"parts": {"a": "b"}}', "no"):
        known = {**table.schema.metadata, b"uncertain": damaged.encode()}
        pq.write_table(table.replace_schema_metadata(known), "trace.parquet")
        refused("metadata are damaged", read_trace, "trace.parquet")


def test_parts_of_a_trace_weigh_by_their_node_time() -> None:
    a = Uncertainty((("skipped rows", 0.1),))
    b = Uncertainty((("skipped rows", 0.2), ("sampling", 0.4)))
    assert dict(together([(a, 1.0), (b, 3.0), (None, 4.0)]).parts) == pytest.approx(
        {"skipped rows": (0.1 + 0.6) / 8, "sampling": 1.2 / 8}
    )
    assert together([(None, 1.0)]) is None


FROM, TO = "2024-03-06T00:00:00", "2024-03-16T00:00:00"
SIZE = 32
EVERY = f"cn[01-{SIZE}]"
STATED = {"begin": FROM, "end": TO}
NO_EVENTS = "NodeName|TimeStart|TimeEnd|State\n"
RESERVED = "NodeNames|TimeStart|TimeEnd\n"


@cache
def exported():
    """What `sacct -S FROM -E TO` shows of a machine: jobs that ran in the window, with their true ends."""
    lines = generate_log("slurm", nodes=SIZE, days=16).splitlines()[1:]
    rows = [line.split("|")[:7] for line in lines]
    rows[::9] = [[*row[:6], row[6].replace("COMPLETED", "TIMEOUT")] for row in rows[::9]]  # fmt: skip
    return [row for row in rows if row[4] < TO and row[5] > FROM]


def read_rows(rows, **options):
    header = "JobID|JobName|NodeList|AllocNodes|Start|End|State"
    text = "\n".join([header, *map("|".join, rows)])
    usual = {"window": None, "min_gap_s": 10, "uncertain": "unavailable"}
    made = read_texts("slurm", text, **usual, **options)
    return made, "\n".join(made.account.warnings())


def with_cells(place: int, cells: dict[int, str]):
    rows = list(exported())
    rows[place] = [cells.get(column, cell) for column, cell in enumerate(rows[place])]
    return rows


def last_to_run() -> int:
    """Place of the latest job that still ran at the end of the export."""
    running = [place for place, row in enumerate(exported()) if row[5] > TO]
    return max(running, key=lambda place: exported()[place][4])


@pytest.mark.parametrize("end", [None, "2024-03-22T20:00:00", "2034-03-16T01:00:00"])
def test_the_window_is_the_time_in_which_jobs_could_be_shown(end: str | None) -> None:
    """Ends beyond the export are shown, starts are not, and a mistyped year stretches nothing."""
    place = last_to_run()
    expected = read_rows(exported(), nodes=[EVERY], **STATED)[0].coverage
    made, said = read_rows(exported() if end is None else with_cells(place, {5: end}))
    assert made.coverage.idle == pytest.approx(expected.idle, abs=0.01)
    assert made.coverage.node_seconds == pytest.approx(expected.node_seconds, rel=0.03)
    mistyped = [line for line in said.splitlines() if "mistyped" in line]
    assert len(mistyped) == (end is not None and end > "2034")
    assert all(f"line {place + 2}" in line for line in mistyped)


@pytest.mark.parametrize(
    ("year", "what"),
    [
        (2034, "one job starts long after all others and stretches the window"),
        (2014, "one job ends long before all others and stretches the window"),
    ],
)
def test_a_record_that_stretches_the_window_is_named(year: int, what: str) -> None:
    rows = with_cells(20, {4: f"{year}-03-08T10:00:00", 5: f"{year}-03-08T11:00:00"})
    _, said = read_rows(rows)
    assert f"{what}: a mistyped year?" in said
    assert "log.0, line 22" in said
    assert "mistyped" not in read_rows(rows, **STATED)[1]


def test_a_window_that_ends_long_after_the_last_start_gives_a_warning() -> None:
    late = "2024-03-22T20:00:00"
    rows = with_cells(last_to_run(), {5: late})
    why = "no job starts in the last part of the window: does the log show jobs up to its end?"
    assert why in read_rows(rows, begin=FROM, end=late)[1]
    assert "no job starts" not in read_rows(rows, **STATED)[1]


MISSING = "jobs that ran when the log ended are not in it, and their nodes look idle"


@pytest.mark.parametrize("early_s", [0, 3600, 20_000])
def test_accounting_of_ended_jobs_says_how_much_of_the_jobs_time_is_missing(
    early_s: int,
) -> None:
    """Held against a simulation, of which it is known."""
    rng = np.random.default_rng(5)
    span = 200_000
    starts = np.sort(rng.integers(0, span, 20_000))
    ends = starts + 60 + rng.exponential(7200, 20_000).astype(np.int64)
    shown = ends <= span
    times = zip(starts[shown].tolist(), ends[shown].tolist(), strict=True)
    jobs = [SyntheticJob((f"n{k % 99}",), *each, 0) for k, each in enumerate(times)]
    cut = span - early_s
    made = read_texts("sge", written("sge", jobs), window=(int(ends.min()), cut))
    of_all, of_shown = (
        np.clip(np.minimum(ends[mine], cut) - starts[mine], 0, None).sum()
        for mine in (shown | True, shown)
    )
    missing = (of_all - of_shown) / of_shown
    told = [t.detail for why, t in made.account.notes.items() if why.startswith(MISSING)]  # fmt: skip
    assert bool(told) == (missing > 0.005)
    if told:
        share = float(told[0].removeprefix("about ").partition("%")[0]) / 100
        assert share == pytest.approx(missing, rel=0.15, abs=5e-4)


def test_jobs_that_still_run_are_no_sign_of_missing_ones() -> None:
    rows = [
        [*row[:5], "Unknown", "RUNNING"] if row[5] > TO else row for row in exported()
    ]
    assert MISSING not in read_rows(rows, **STATED)[1]


# -- sources that are missing, and outages that have no end

LACK = ("no --events and no --reservations", "no --nodes", "no job ran twice")
STALE = f"{NO_EVENTS}{EVERY}|2020-01-01T00:00:00|Unknown|DOWN\n"


def test_each_source_that_is_missing_is_one_line() -> None:
    times = ("2024-03-15T23:00:00", "2024-03-15T23:00:05", "COMPLETED")
    twice = [*exported(), [*exported()[50][:4], *times]]
    files = {
        "events": f"{NO_EVENTS}cn01|2024-03-01T00:00:00|2024-03-02T00:00:00|DOWN\n",
        "reserved": RESERVED,
    }
    beside = {"files": files, "events": ["events"], "reservations": ["reserved"]}
    for rows, options, lacking in (
        (exported(), {}, LACK),
        (twice, {**beside, "nodes": [EVERY]}, ()),
        (exported()[:99], {"files": files, "events": ["events"]}, LACK[1:2]),
    ):  # of too few jobs it is not known that one ran twice
        _, said = read_rows(rows, **STATED, **options)
        counts = {what: sum(line.startswith(what) for line in said.splitlines()) for what in LACK}  # fmt: skip
        assert counts == {what: int(what in lacking) for what in LACK}
    assert "no --reservations: nodes that were reserved look idle" in said


def test_an_outage_without_an_end_ends_when_a_job_starts_on_the_node() -> None:
    plain, _ = read_rows(exported(), nodes=[EVERY], **STATED)
    stale, said = read_rows(exported(), nodes=[EVERY], files={"e": STALE}, events=["e"], **STATED)  # fmt: skip
    assert stale.coverage.busy == plain.coverage.busy
    # Idle until each node's first job apart.
    assert stale.coverage.idle == pytest.approx(plain.coverage.idle, abs=0.02)
    assert "it ends on each node with the first one: 1 (first: e, line 2)" in said
    text = STALE.replace(NO_EVENTS, RESERVED).replace("|DOWN", "")
    kept, said = read_rows(exported(), nodes=[EVERY], files={"r": text}, reservations=["r"], **STATED)  # fmt: skip
    assert kept.coverage.idle == 0  # jobs run in a reservation, and it goes on
    assert "ends on each node" not in said
