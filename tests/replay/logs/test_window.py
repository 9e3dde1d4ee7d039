"""The window of observation that is derived from a log, held against logs of which the idle share is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from synthetic_logs_more import SyntheticJob, read_texts, sge

from bft.datasets import generate_log
from bft.replay.logs.ingest import Ingested

HEADER = "JobID|JobName|NodeList|AllocNodes|Start|End|State"
FROM, TO = "2024-03-06T00:00:00", "2024-03-16T00:00:00"
NODES = 32
ALL = f"cn[01-{NODES}]"
STATED = {"begin": FROM, "end": TO}
EVENTS = "NodeName|TimeStart|TimeEnd|State\n"
RESERVED = "NodeNames|TimeStart|TimeEnd\n"
Row = Sequence[str]


@cache
def exported() -> list[Row]:
    """What `sacct -S FROM -E TO` shows of a machine: jobs that ran in the window, with their true ends."""
    lines = generate_log("slurm", nodes=NODES, days=16).splitlines()[1:]
    rows = [line.split("|")[:7] for line in lines]
    rows[::9] = [[*row[:6], row[6].replace("COMPLETED", "TIMEOUT")] for row in rows[::9]]  # fmt: skip
    return [row for row in rows if row[4] < TO and row[5] > FROM]


def read(rows: Sequence[Row], **options: Any) -> tuple[Ingested, str]:
    """What `ingested` makes of rows, and what it says loudly."""
    text = "\n".join([HEADER, *("|".join(row) for row in rows)])
    given = {"window": None, "min_gap_s": 10, "uncertain": "unavailable", **options}
    made = read_texts("slurm", text, **given)
    return made, "\n".join(made.account.warnings())


def with_cells(place: int, cells: dict[int, str]) -> list[Row]:
    """The rows with other cells in one of them."""
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
    expected = read(exported(), nodes=[ALL], **STATED)[0].coverage
    made, said = read(exported() if end is None else with_cells(place, {5: end}))
    assert made.coverage.idle == pytest.approx(expected.idle, abs=0.01)
    seconds = made.coverage.node_seconds
    assert seconds == pytest.approx(expected.node_seconds, rel=0.03)
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
    _, said = read(rows)
    assert f"{what}: a mistyped year?" in said
    assert "log.0, line 22" in said
    assert "mistyped" not in read(rows, **STATED)[1]


def test_a_window_that_ends_long_after_the_last_start_gives_a_warning() -> None:
    late = "2024-03-22T20:00:00"
    rows = with_cells(last_to_run(), {5: late})
    why = "no job starts in the last part of the window: does the log show jobs up to its end?"
    assert why in read(rows, begin=FROM, end=late)[1]
    assert "no job starts" not in read(rows, **STATED)[1]


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
    made = read_texts("sge", sge(jobs), window=(int(ends.min()), cut))
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
    assert MISSING not in read(rows, **STATED)[1]


# -- sources that are missing, and outages that have no end

LACK = ("no --events and no --reservations", "no --nodes", "no job ran twice")
DOWN_ONCE = f"{EVENTS}cn01|2024-03-01T00:00:00|2024-03-02T00:00:00|DOWN\n"
STALE = f"{EVENTS}{ALL}|2020-01-01T00:00:00|Unknown|DOWN\n"


def test_each_source_that_is_missing_is_one_line() -> None:
    times = ("2024-03-15T23:00:00", "2024-03-15T23:00:05", "COMPLETED")
    twice = [*exported(), [*exported()[50][:4], *times]]
    files = {"events": DOWN_ONCE, "reserved": RESERVED}
    beside = {"files": files, "events": ["events"], "reservations": ["reserved"]}
    for rows, options, lacking in (
        (exported(), {}, LACK),
        (twice, {**beside, "nodes": [ALL]}, ()),
        (exported()[:99], {"files": files, "events": ["events"]}, LACK[1:2]),
    ):  # of too few jobs it is not known that one ran twice
        _, said = read(rows, **STATED, **options)
        counts = {what: sum(line.startswith(what) for line in said.splitlines()) for what in LACK}  # fmt: skip
        assert counts == {what: int(what in lacking) for what in LACK}
    assert "no --reservations: nodes that were reserved look idle" in said


def test_an_outage_without_an_end_ends_when_a_job_starts_on_the_node() -> None:
    plain, _ = read(exported(), nodes=[ALL], **STATED)
    stale, said = read(exported(), nodes=[ALL], files={"e": STALE}, events=["e"], **STATED)  # fmt: skip
    assert stale.coverage.busy == plain.coverage.busy
    # Idle until each node's first job apart.
    assert stale.coverage.idle == pytest.approx(plain.coverage.idle, abs=0.02)
    assert f"it ends on each node with the first one: {NODES} (first: e, line 2)" in said  # fmt: skip
    text = STALE.replace(EVENTS, RESERVED).replace("|DOWN", "")
    kept, said = read(exported(), nodes=[ALL], files={"r": text}, reservations=["r"], **STATED)  # fmt: skip
    assert kept.coverage.idle == 0  # jobs run in a reservation, and it goes on
    assert "ends on each node" not in said
