"""Public data sets: the ways of docs/data.md lead from rows as published to a trace with the right idle time."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from public_rows import IDLE_S, WINDOW, alcf, gpus, kestrel, lassen, swf

from bft.replay.cli.main import run
from bft.replay.trace.trace_files import read_trace

PAGE = (Path(__file__).parents[1] / "docs" / "data.md").read_text("utf-8")
COMMANDS = re.findall(r"^    (?:bft-replay ingest )(.*)$", PAGE, flags=re.MULTILINE)
WRITERS: dict[str, Callable[[Path], None]] = {
    "ANL-ALCF-DJC-AURORA_20250127_20251231.csv.gz": alcf,
    "ANL-ALCF-DJC-POLARIS_20250101_20251231.csv.gz": alcf,
    "frontier.swf": swf,
    "lassen.csv": lassen,
    "kestrel.parquet": kestrel,
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
    form, file, *options = [
        {"N": "2", "9408": "2"}.get(word, word) for word in shlex.split(line)
    ]
    if file == "frontier.swf":
        swf(here / "frontier-2024.swf")
        awk = next(
            row.strip() for row in PAGE.splitlines() if row.startswith("    awk ")
        )
        subprocess.run(["bash", "-c", awk], check=True, cwd=here)
    elif file == "lassen.csv":
        lassen(here)
        code = re.search(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
        assert code is not None
        exec(code[1], {})  # noqa: S102 - the page's own code
    else:
        WRITERS[file](here / file)
    assert run(["ingest", form, file, *options, *WINDOW, "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert account["used"] == (3 if file == "lassen.csv" else 2)
    assert read_trace(here / "trace.parquet").idle_node_seconds() == IDLE_S


def test_frontier_as_it_is_published_says_that_jobs_want_more_nodes_than_there_are(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swf(here / "f.swf")
    options = ["--processors-per-node", "1", "--machine-nodes", "2", *WINDOW]
    assert run(["ingest", "swf", "f.swf", *options, "-o", "t.parquet"]) == 0
    printed = "".join(capsys.readouterr())
    assert "jobs wanted more nodes than were free" in printed


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
    columns = (
        "JobID=job_id,AllocNodes=gpu_num,Start=start_time,End=end_time,State=state"
    )
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
        columns,
        "--machine-nodes",
        "200",
        "--tz",
        "Asia/Shanghai",
        *window,
    ]
    assert run(["ingest", "slurm", str(file), *options, "-o", "trace.parquet"]) == 0
    length_s = (end.max() - start.min()).total_seconds()
    busy_s = (rows["gpu_num"] * (end - start).dt.total_seconds()).sum()
    assert (
        read_trace(here / "trace.parquet").idle_node_seconds()
        == 200 * length_s - busy_s
    )
