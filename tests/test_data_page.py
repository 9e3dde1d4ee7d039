"""Public data sets: the ways of docs/data.md lead from rows as published to a trace with the right idle time."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from public_rows import IDLE_S, WINDOW, alcf, gpus, kestrel, lassen, swf

from bft.replay.cli.main import run
from bft.replay.logs.tables import public_tables
from bft.replay.trace.trace_files import read_trace

PAGE = (Path(__file__).parents[1] / "docs" / "data.md").read_text("utf-8")
COMMANDS = re.findall(r"^    (?:bft-replay ingest )(.*)$", PAGE, flags=re.MULTILINE)
# What writes the files of a command, and how many rows it uses.
WRITERS: dict[str, Callable[[Path], None]] = {
    "ANL-ALCF-DJC-AURORA_20250127_20251231.csv.gz": alcf,
    "ANL-ALCF-DJC-POLARIS_20250101_20251231.csv.gz": alcf,
    "frontier-2024.swf": swf,
    "final_csm_allocation_history_hashed.csv": lambda file: lassen(file.parent),
    "kestrel_jobs_202503_0.parquet": kestrel,
    "trace_seren.csv": gpus("stated"),
    "cluster_log.csv": gpus(None),
}
FILES = [shlex.split(line)[1] for line in COMMANDS]


def test_each_way_of_the_page_is_tried() -> None:
    assert sorted(FILES) == sorted(WRITERS)


@pytest.mark.parametrize("line", COMMANDS, ids=FILES)
def test_rows_as_published_become_a_trace_with_their_idle_time(
    line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line)
    WRITERS[words[1]](here / words[1])
    if "N" in words:
        words[words.index("N")] = "2"
    elif "frontier" in words:  # of more nodes than two
        words += ["--machine-nodes", "2"]
    assert run(["ingest", *words, *WINDOW, "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert account["used"] == 2
    assert read_trace(here / "trace.parquet").idle_node_seconds() == IDLE_S


def test_the_help_of_ingest_names_all_maps(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ingest", "--help"]) == 0
    told = set(re.findall(r"[\w-]+", capsys.readouterr().out))
    assert set(public_tables()) <= told


MANY = ["--processors-per-node", "1", "--machine-nodes", "2", *WINDOW]


@pytest.mark.parametrize(
    ("arguments", "nodes", "said"),
    [
        (["auto", "f.swf", "--map", "frontier", *WINDOW], 9408, ""),
        (["swf", "f.swf", *MANY], 2, "jobs wanted more nodes than were free"),
        (["auto", "final_csm_allocation_history_hashed.csv", "--map", "lassen"], None,
         "expected two files, one of them with the columns allocation_id and node_name"),
    ],
)  # fmt: skip
def test_what_is_odd_of_them_is_said(
    arguments: list[str], nodes: int | None, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    swf(here / "f.swf")
    lassen(here)
    assert run(["ingest", *arguments, "-o", "t.parquet"]) == (2 if nodes is None else 0)
    assert said in "".join(capsys.readouterr())
    assert nodes is None or len(read_trace("t.parquet").nodes) == nodes


@pytest.mark.reference
@pytest.mark.parametrize("name", ["acme_seren", "acme_kalos", "helios"])
def test_the_rows_of_their_readmes_hold_gpus_from_start_to_end(
    name: str, reference: Path, here: Path
) -> None:
    file = reference / "clusters" / f"{name}_readme_rows.csv"
    if not file.is_file():
        pytest.skip(f"no {file}")
    rows = pd.read_csv(file, parse_dates=["start_time", "end_time"])
    start, end = rows["start_time"], rows["end_time"]
    window = [
        "--from",
        start.min().isoformat(),
        "--to",
        end.max().isoformat(),
        "--min-gap",
        "0",
    ]
    options = [
        "--map",
        "acme",
        "--machine-nodes",
        "200",
        "--tz",
        "Asia/Shanghai",
        *window,
    ]
    assert run(["ingest", "auto", str(file), *options, "-o", "trace.parquet"]) == 0
    length_s = (end.max() - start.min()).total_seconds()
    busy_s = (rows["gpu_num"] * (end - start).dt.total_seconds()).sum()
    assert (
        read_trace(here / "trace.parquet").idle_node_seconds()
        == 200 * length_s - busy_s
    )
