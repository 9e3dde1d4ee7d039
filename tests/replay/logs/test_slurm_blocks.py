"""sacct read by columns gives the trace and the account that reading row by row gives, to the byte."""

from __future__ import annotations

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs import sacct
from synthetic_logs_more import damages, job_lists

from bft.models import InputError
from bft.models.limited_reading import whole_lines
from bft.replay.logs import (
    Clock,
    Collector,
    Diagnosis,
    Reading,
    Settings,
    node_trace,
    open_log,
    read_log,
    slurm_blocks,
)
from bft.replay.logs.log_files import LogLines
from bft.replay.logs.units import Unit, UnitLog

COLUMNS = ("JobID", "NodeList", "AllocNodes", "Start", "End", "State", "JobName")
IDS = st.integers(0, 20).map(str) | st.sampled_from(
    ["7.batch", "3.0", "5_[1-9]", "6_1", "8+1", "", "x", "JobID"]
)
LISTS = st.sampled_from(["n01", "n[01-03]", "m[01-02,05]", "n[001,003-004]", "n[1-3]"]) | st.sampled_from(
    ["", "None assigned", "n01,n02", "n[03-01]", "n[02,01]", "n[01,01]", "n[01-02,]", "n[01-02", "[1-2]", "n[1-2],m1",
     "n[01-02]x", "n[1-2]c[0-1]", "x" * 300, "n[0000001-0000002]", "\udcff"]
)  # fmt: skip
USUAL_TIMES = st.integers(1_612_900_000, 1_612_990_000).map(str) | st.datetimes(
    min_value=datetime(2021, 2, 1), max_value=datetime(2021, 2, 3)
).map(lambda stamp: f"{stamp:%Y-%m-%dT%H:%M:%S}")
TIMES = USUAL_TIMES | st.sampled_from(
    ["", "Unknown", "None", "0", "soon", "2021-02-10 20:21:15", "1612990000.5", "2021-10-31T02:30:00",
     "2021-03-28T02:30:00", "2021-02-29T00:00:00", "2020-02-29T00:00:00", "2021-02-10T24:00:00", "1970-01-01T00:00:00",
     "2261-12-31T23:59:59", "2262-01-01T00:00:00", "9999999999", "9199999999", "161299000", "2021-02-10T20:21:15Z",
     "2021-13-01T00:00:00", "2021-02-10x20:21:15", "２021-02-10T20:21"]
)  # fmt: skip


FURTHER = {
    "Cluster": ["a", "a", "a", "B", "A", ""],
    "Partition": ["gpu", "gpu", "GPU", "cpu", "cpu,gpu", ""],
    "AllocTRES": ["gres/gpu=2,cpu=8", "cpu=8", "gres/gpu=99", "", "gres/gpu:a=1"],
    "OverSubscribe": ["OK", "NO", ""],
    "Timelimit": ["01:00:00", "1-00:00:00", "UNLIMITED", "soon", ""],
    "Eligible": ["1612899000", "2021-02-10T20:21:15", "Unknown", "2021-10-31T02:30:00"],
}


@st.composite
def tables(draw: st.DrawFn, further: bool = False) -> str:
    """Rows as sacct prints them, most of the usual form, with odd cells, odd lines, and a header that comes again."""
    columns = draw(
        st.permutations(
            [c for c in COLUMNS if c != "AllocNodes" or draw(st.booleans())]
        )
    )
    columns += [name for name in FURTHER if further]
    lines = ["|".join(columns)]
    for _ in range(draw(st.integers(1, 25))):
        cells = {
            "JobID": draw(IDS),
            "NodeList": draw(LISTS),
            "AllocNodes": draw(
                st.sampled_from(["3", "3", "1", "01", "", "x", "99999999999999999999"])
            ),
            "Start": draw(TIMES),
            "End": draw(TIMES),
            "State": draw(st.sampled_from(["COMPLETED", "RUNNING", "CANCELLED by 7"])),
            "JobName": draw(
                st.sampled_from(
                    ["a", "a", "a", "séquence", "a|b", "a\nb", "\udcff", ""]
                )
            ),
        }
        for name, values in FURTHER.items():
            cells[name] = draw(st.sampled_from(values))
        lines.append("|".join(cells[column] for column in columns))
        if draw(st.integers(0, 20)) == 0:
            lines.append(
                draw(
                    st.sampled_from(
                        ["", "# c", "   ", "a|b", lines[0], f"\ufeff{lines[0]}"]
                    )
                )
            )
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))


def outcome(
    lines: Any,
    tz: str | None,
    *,
    strict: bool,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    unit: str = "node",
) -> list[Any]:
    """All that a user can see of a log: the trace, what the time went to, and the account; or why it was refused."""
    diagnosis, into = Diagnosis(strict=strict), Collector(min_gap_ns=0)
    turns_idle = Unit.of(unit)
    into.units = None if turns_idle is None else UnitLog(turns_idle, 4)
    clock = Clock(tz, diagnosis)
    try:
        read_log("slurm", Reading(lines, "log", into, diagnosis, clock, settings))
        trace, coverage = node_trace(into, diagnosis)
    except InputError as error:
        return [str(error)]
    columns = [
        getattr(trace, name).tolist()
        for name in ("times", "joined", "joined_at", "left", "left_at")
    ]
    return [
        trace.nodes,
        trace.start,
        trace.end,
        *columns,
        coverage.as_dict(),
        json.dumps(diagnosis.as_dict()),
        plans_of(into),
    ]


def plans_of(into: Collector) -> list[Any]:
    """What the scheduler knew of jobs, in the order of the file, nodes by name."""
    plans = into.plans.walltimes(into.names, into.universe, into.owners)
    columns = ("known", "start", "end", "expected_end", "count", "nodes", "offsets")
    return [plans.names, *(getattr(plans, name).tolist() for name in columns)]


def agree(text: str, tz: str | None, size: int, *, strict: bool, **asked: Any) -> None:
    content = text.encode("utf-8", "surrogateescape")

    def blocks(at_once: int) -> Any:
        stream = io.BytesIO(content)
        return whole_lines(lambda _: stream.read(at_once), "log")

    lines = [
        line
        for block in blocks(1 << 20)
        for line in block.decode("utf-8", "surrogateescape").split("\n")
    ]
    by_columns = outcome(LogLines(blocks(size)), tz, strict=strict, **asked)
    assert by_columns == outcome(lines, tz, strict=strict, **asked)


SIZES = st.sampled_from([1, 60, 400, 1 << 20])
ZONES = st.sampled_from(["UTC", "Europe/Berlin", None])


@given(text=tables(), tz=ZONES, size=SIZES, strict=st.booleans())
def test_rows_with_odd_cells(
    text: str, tz: str | None, size: int, strict: bool
) -> None:
    agree(text, tz, size, strict=strict)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"settings": Settings(cluster="a")},
        {"settings": Settings(partition="gpu")},
        {"settings": Settings(cluster="b", partition="cpu", walltimes=True)},
        {"settings": Settings(walltimes=True)},
        {"unit": "gpu"},
        {"unit": "cpu:4", "settings": Settings(cluster="a")},
    ],
    ids=["clusters", "cluster", "partition", "all", "walltimes", "gpu", "cores"],
)
@given(text=tables(further=True), size=SIZES)
def test_whatever_is_asked_for(text: str, size: int, asked: dict[str, Any]) -> None:
    agree(text, "Europe/Berlin", size, strict=False, **asked)


@pytest.mark.parametrize("size", [1, 60, 400, 1 << 20])
@pytest.mark.parametrize("settings", [Settings(cluster="a"), Settings(partition="p")])
def test_headers_that_repeat_are_no_rows_of_others(
    settings: Settings, size: int
) -> None:
    header = "JobID|NodeList|Start|End|State|Cluster|Partition"
    rows = [f"{k}|n01|161290{k:04}|161290{k + 5:04}|COMPLETED|a|p" for k in range(40)]
    for place in (40, 33, 7, 6):
        rows.insert(place, header)
    agree("\n".join([header, *rows]), "UTC", size, strict=False, settings=settings)


@given(text=tables(further=True), size=SIZES, walltimes=st.booleans())
def test_lists_beyond_those_that_are_expanded_together(
    text: str, size: int, walltimes: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm_blocks, "_MOST_TOGETHER", 4)
        agree(text, "UTC", size, strict=False, settings=Settings(walltimes=walltimes))


@given(data=st.data(), tz=ZONES, size=SIZES)
def test_damaged_logs(data: st.DataObject, tz: str | None, size: int) -> None:
    text = sacct(data.draw(job_lists()))
    agree(data.draw(damages(text) | st.just(text)), tz, size, strict=False)


@pytest.mark.parametrize("odd", [1, 60], ids=["few odd lines", "many odd lines"])
def test_odd_lines_among_many(odd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(odd)
    rows = [
        f"{k}|n[{k % 7:02}-{k % 7 + 3:02}]|4|{1_612_900_000 + k}|{1_612_900_500 + 2 * k}|a"
        for k in range(2_000)
    ]
    for place in rng.choice(len(rows), odd, replace=False).tolist():
        rows[place] += "\nb" if place % 2 else "|b"
    careful = []
    alone = slurm_blocks.Table.careful
    monkeypatch.setattr(
        slurm_blocks.Table, "careful", lambda *args: careful.append(0) or alone(*args)
    )
    agree(
        "\n".join(["JobID|NodeList|AllocNodes|Start|End|JobName", *rows]),
        "UTC",
        1 << 20,
        strict=False,
    )
    assert careful


def test_blocks_that_fill_the_memory_are_merged_at_the_same_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bft.replay.logs import collector

    monkeypatch.setattr(collector, "BLOCK", 50)
    monkeypatch.setattr(collector, "MANY", 40)
    rng = np.random.default_rng(0)
    rows = []
    for job in range(300):
        low, start = int(rng.integers(0, 40)), int(rng.integers(0, 9_000))
        wide = int(rng.integers(1, 30))
        rows.append(
            f"{job}|n[{low:03}-{low + wide:03}]|{1_612_900_000 + start}|{1_612_900_000 + start + 40}"
        )
    agree("\n".join(["JobID|NodeList|Start|End", *rows]), "UTC", 1 << 20, strict=False)


@pytest.mark.parametrize("walltimes", [False, True])
@pytest.mark.parametrize("unit", ["node", "gpu"])
def test_files_are_read_by_columns(
    unit: str, walltimes: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (
        "JobID|NodeList|Start|End|Cluster|AllocTRES|Timelimit|Submit",
        "1|n[1-2]|1612900000|1612900060|a|gres/gpu=2|1:00:00|1612900000",
        "2|n1|1612900060|1612900090|a|gres/gpu=2|1:00:00|1612900000",
    )
    Path("log").write_text("\n".join(rows) + "\n")
    monkeypatch.setattr("bft.replay.logs.slurm.Rows.row", None)  # no row is read alone
    into, diagnosis = Collector(), Diagnosis()
    turns_idle = Unit.of(unit)
    into.units = None if turns_idle is None else UnitLog(turns_idle, 4)
    clock, settings = Clock("UTC", diagnosis), Settings(walltimes=walltimes)
    with open_log("log") as lines:
        read_log("slurm", Reading(lines, "log", into, diagnosis, clock, settings))
    assert (diagnosis.lines, diagnosis.rows, diagnosis.used, list(into.names)) == (
        3,
        2,
        2,
        ["n1", "n2"],
    )
