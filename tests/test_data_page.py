"""Public data sets: the ways of docs/data.md, and the page on machines, find the right idle time in their rows."""

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import export_world
import numpy as np
import pandas as pd
import pytest
from public_rows import IDLE_S, WINDOW, Ran, alcf, gpus, kestrel, lassen, swf

from benchmarks import machines
from bft.replay.logs.tables import public_tables
from bft.replay.trace.trace_files import read_trace

PAGE = (Path(__file__).parents[1] / "docs" / "data.md").read_text("utf-8")
COMMANDS = re.findall(r"^    (?:bft-replay ingest )(.*)$", PAGE, flags=re.MULTILINE)
# What writes the files of a command, and how many rows it uses.
WRITERS = {
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
    line: str, here: Path, told
) -> None:
    words = shlex.split(line)
    WRITERS[words[1]](here / words[1])
    if "N" in words:
        words[words.index("N")] = "2"
    elif "frontier" in words:  # of more nodes than two
        words += ["--machine-nodes", "2"]
    told(shlex.join(["ingest", *words, *WINDOW, "--json"]), '"used": 2,')
    assert read_trace(here / "trace.parquet").idle_node_seconds() == IDLE_S


def test_the_help_of_ingest_names_all_maps(told) -> None:
    assert {*public_tables()} <= {*re.findall(r"[\w-]+", told("ingest --help"))}


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
    arguments: list[str], nodes: int | None, said: str, here: Path, told
) -> None:  # fmt: skip
    swf(here / "f.swf")
    lassen(here)
    code = 2 if nodes is None else 0
    told(shlex.join(["ingest", *arguments, "-o", "t.parquet"]), said, code=code)
    assert nodes is None or len(read_trace("t.parquet").nodes) == nodes


@pytest.mark.reference
@pytest.mark.parametrize("name", ["acme_seren", "acme_kalos", "helios"])
def test_the_rows_of_their_readmes_hold_gpus_from_start_to_end(
    name: str, reference: Path, here: Path, told
) -> None:
    file = reference / "clusters" / f"{name}_readme_rows.csv"
    if not file.is_file():
        pytest.skip(f"no {file}")
    rows = pd.read_csv(file, parse_dates=["start_time", "end_time"])
    start, end = rows["start_time"], rows["end_time"]
    window = f"--from {start.min().isoformat()} --to {end.max().isoformat()}"
    options = f"--min-gap 0 --map acme --machine-nodes 200 --tz Asia/Shanghai {window}"
    told(f"ingest auto {file} {options} -o trace.parquet")
    assert (
        read_trace(here / "trace.parquet").idle_node_seconds()
        == 200 * (end.max() - start.min()).total_seconds()
        - (rows["gpu_num"] * (end - start).dt.total_seconds()).sum()
    )


ROOT = Path(__file__).parents[1]
# All in whole minutes: no gap between two jobs is too short to be idle.
ROWS = tuple(
    Ran(run.nodes, BEGIN + run.start_s // 60 * 60, BEGIN + run.end_s // 60 * 60)
    for BEGIN in (export_world.BEGIN_S,)
    for run in export_world.made().runs
    if run.start_s // 60 < run.end_s // 60
)
NODES = len(export_world.NODES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The world in all formats, as their files are called; one more table, known by its columns, and one unknown."""
    half = len(ROWS) // 2
    for name, write, rows in (
        ("ANL-ALCF-DJC-AURORA_20240101_20241231.csv.gz", alcf, ROWS),
        ("ANL-ALCF-DJC-POLARIS_20240101_20241231.csv", alcf, ROWS),
        ("frontier-2024.swf", swf, ROWS),
        (".", lassen, ROWS),
        ("year=2024/month=3/kestrel_jobs_202403_0.parquet", kestrel, ROWS[:half]),
        ("kestrel_jobs_202404_0.parquet", kestrel, ROWS[half:]),
        ("trace_seren.csv", gpus("stated"), ROWS),
        ("Venus/cluster_log.csv", gpus(None), ROWS),
        ("theta.csv", alcf, ROWS),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, rows)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    return tmp_path


def busy(start_s: float, end_s: float):
    counts = np.zeros(round((end_s - start_s) / 60), dtype=np.int64)
    for row in ROWS:
        first, last = ((at - start_s) / 60 for at in (row.start_s, row.end_s))
        counts[max(0, round(first)) : max(0, round(last))] += len(row.nodes)
    return counts


def test_each_format_has_the_idle_time_of_the_machine(folder: Path) -> None:
    found, unknown = machines.recognised(folder)
    names = ["Aurora", "Polaris", "Frontier", "Lassen", "Kestrel"]
    names += ["Seren, GPUs", "Helios Venus, GPUs", "theta.csv"]
    assert [known.machine for known, _ in found] == names
    assert [path.name for path in unknown] == ["other.csv"]
    first, last = (export_world.BEGIN_S + day * export_world.DAY_S for day in (1, 6))
    window = {
        name: f"{np.datetime64(at, 's')}Z"
        for name, at in (("begin", first), ("end", last))
    }
    taken = busy(first, last)
    for known, files in found:
        row = machines.measured(
            replace(known, options=known.options | window), files, 0.0
        )
        size = {"Frontier": 9408, "Seren, GPUs": 2288}.get(known.machine, NODES)
        if known.machine in ("Kestrel", "Helios Venus, GPUs"):  # nothing states it
            size = taken.max()
        assert row["nodes"] == size
        assert row["whole"]["idle_node_seconds"] == 60 * (size - taken).sum()


def test_the_page_has_the_replays_of_the_middle(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("theta.csv", "other.csv"):
            path.unlink()
    (folder / "trace_kalos.csv").write_text("job_id,gpu_num\n1,2\n")
    monkeypatch.setattr(sys, "argv", ["machines", str(folder), "--days", "0.25"])
    assert machines.main() == 1  # Kalos lacks columns
    page = (folder / "machines.md").read_text("utf-8")
    assert "- Kalos, GPUs: " in page
    assert "- other.csv" in page
    assert len(re.findall(r"^\| (?:theta.csv)? ", page, re.MULTILINE)) == 2


def test_an_empty_folder_has_no_page_of_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["machines", str(tmp_path)])
    assert machines.main() == 2
