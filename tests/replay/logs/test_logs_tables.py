"""Tables of other sites: any names of columns, CSV and Parquet, give the same trace as our own formats."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from synthetic_logs import (
    BEGIN_S,
    HOSTS,
    LENGTH_S,
    SyntheticJob,
    idle_seconds,
    idle_seconds_of,
    job_lists,
)

from bft.replay.logs import IngestOptions, ingested

INTERVALS = "node=hosts,start=began,end=finished"
SLURM = "JobID=id,NodeList=hosts,Start=began,End=finished,State=status"
WINDOW = {
    "begin": str(BEGIN_S),
    "end": str(BEGIN_S + LENGTH_S),
    "tz": "UTC",
    "min_gap_s": 0.0,
    "allow_few": True,
}


def frame(jobs: list[SyntheticJob], times: str) -> pd.DataFrame:
    """Jobs with column names of another site, one of them equal to ours with another meaning."""
    begun = pd.Series([BEGIN_S + job.start_s for job in jobs])
    ended = pd.Series([BEGIN_S + job.end_s for job in jobs])
    stamps = {
        "epochs": lambda s: s,
        "floats": lambda s: s.astype(float),
        "zoned": lambda s: pd.to_datetime(s, unit="s", utc=True),
        "naive": lambda s: pd.to_datetime(s, unit="s"),
    }[times]
    return pd.DataFrame(
        {
            "id": range(1, len(jobs) + 1),
            "end": [f'at the "end", or\nnot {k}' for k in range(len(jobs))],
            "hosts": [list(job.hosts) for job in jobs],
            "began": stamps(begun),
            "finished": stamps(ended),
            "status": ["COMPLETED"] * len(jobs),
        }
    )


@pytest.mark.parametrize(
    ("form", "columns"), [("intervals", INTERVALS), ("slurm", SLURM)]
)
@examples(100, quick=10)
@given(
    jobs=job_lists(),
    times=st.sampled_from(["epochs", "floats", "zoned", "naive"]),
    # What pandas writes without index=False is no column, once or twice; host lists keep their commas.
    how=st.sampled_from(["parquet", "csv", "with an index", "with two"]),
)
def test_any_table_with_a_map(
    form: str, columns: str, jobs: list[SyntheticJob], times: str, how: str
) -> None:
    table = frame(jobs, times)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs")
        if how == "parquet":
            table.to_parquet(file)
        else:
            table["hosts"] = table["hosts"].map(",".join)
            table.drop(columns="end").to_csv(file, index=how != "csv")
        if how == "with two":
            pd.read_csv(file).to_csv(file)
        options = {"columns": columns, "nodes": [",".join(HOSTS)]}
        trace = ingested(form, [str(file)], IngestOptions(**options, **WINDOW)).trace
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


# --- Parquet as others have it; text is in tests/data/logs/tables.toml ------------------------------------------------

BEGUN, ENDED = [BEGIN_S, BEGIN_S + 60], [BEGIN_S + 60, BEGIN_S + 90]
NODES = [["0", "12"], ["12"]]
JOBS = {"job_id": [1, 2], "nodes": NODES, "num_nodes_alloc": [2, 1], "job_state": ["COMPLETED"] * 2}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "table", "times", "zoned"),
    [
        ("pm100", JOBS, ("start_time", "end_time"), True),
        ("adastra", JOBS, ("start_time", "end_time"), False),
        ("fugaku", {"jid": ["j1", "j2"], "nnumr": [2, 1]}, ("sdt", "edt"), False),
    ],
)
def test_tables_as_others_have_them(
    columns: str, table: dict[str, Any], times: tuple[str, str], zoned: bool, here: Path
) -> None:
    stamps = [pd.to_datetime(each, unit="s", utc=zoned) for each in (BEGUN, ENDED)]
    frame = pd.DataFrame(table | dict(zip(times, stamps, strict=True)))
    frame.to_parquet(here / "jobs")
    options = {**WINDOW, "columns": columns, "end": str(BEGIN_S + 90)}
    made = ingested("auto", ["jobs"], IngestOptions(**options))
    assert (made.trace.idle_node_seconds(), made.account.used) == (30, 2)


def test_numbers_that_may_be_missing(here: Path) -> None:
    times = {"sdt": [BEGIN_S, BEGIN_S + 10.0], "edt": [BEGIN_S + 60.0, None]}
    pd.DataFrame({"jid": [1, 2], "nnuma": [2, 1], **times}).to_parquet(here / "jobs")
    columns = "JobID=jid,AllocNodes=nnuma,Start=sdt,End=edt"
    options = {**WINDOW, "columns": columns, "machine_nodes": 4, "end": str(BEGIN_S + 90)}  # fmt: skip
    made = ingested("slurm", ["jobs"], IngestOptions(**options))
    assert made.trace.idle_node_seconds() == 4 * 90 - 2 * 60 - 80
    assert not made.account.skipped


def test_parquet_that_is_damaged(here: Path) -> None:
    frame([SyntheticJob(("n1",), 0, 5, 0)], "epochs").to_parquet(here / "p")
    (here / "p").write_bytes((here / "p").read_bytes()[:-9])
    refused(
        "p: cannot be read as Parquet",
        ingested,
        "intervals",
        ["p"],
        IngestOptions(columns=INTERVALS),
    )


def test_a_row_that_is_skipped_leaves_rows_of_other_kinds_as_they_are(
    tmp_path: Path,
) -> None:
    file = tmp_path / "log.csv"
    busy = "n1,2021-02-09T00:00:00,2021-02-09T01:00:00,busy"
    idle = "n1,2021-02-09T02:00:00,2021-02-09T03:00:00,idle"
    file.write_text(f"node,start,end,state\n{busy},x,y\n{busy}\n{idle}\n")
    account = ingested("intervals", [str(file)], IngestOptions(tz="UTC")).account
    assert (account.rows, account.used) == (3, 2)
