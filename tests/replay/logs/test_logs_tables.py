"""Tables of other people: any names of columns, CSV and Parquet, give the trace that our own formats give."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import BEGIN_S, HOSTS, LENGTH_S, SyntheticJob, idle_seconds, idle_seconds_of, job_lists

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs.from_files import ingested
from bft.replay.logs.tables import column_map
from bft.replay.trace.trace_files import read_trace

INTERVALS = "node=hosts,start=began,end=finished"
SLURM = "JobID=id,NodeList=hosts,Start=began,End=finished,State=status"
WINDOW = {"begin": str(BEGIN_S), "end": str(BEGIN_S + LENGTH_S), "min_gap_s": 0.0, "allow_few": True}


def frame(jobs: list[SyntheticJob], times: str) -> pd.DataFrame:
    """Jobs with names of columns of somebody else, one of them ours in another sense."""
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


@pytest.mark.parametrize(("form", "columns"), [("intervals", INTERVALS), ("slurm", SLURM)])
@given(jobs=job_lists(), times=st.sampled_from(["epochs", "floats", "zoned", "naive"]), parquet=st.booleans())
def test_any_table_with_a_map(form: str, columns: str, jobs: list[SyntheticJob], times: str, parquet: bool) -> None:
    table = frame(jobs, times)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs")
        if parquet:
            table.to_parquet(file)
        else:
            table["hosts"] = table["hosts"].map(",".join)
            table.drop(columns="end").to_csv(file, index=False)
        trace = ingested(form, [str(file)], columns=columns, nodes=[",".join(HOSTS)], tz="UTC", **WINDOW).trace
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


def test_a_table_of_counts_and_missing_ends(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.DataFrame(
        {"jid": [1, 2], "nnuma": [2, 1], "sdt": [BEGIN_S, BEGIN_S + 10.0], "edt": [BEGIN_S + 60.0, None]}
    ).to_parquet(here / "jobs.parquet")
    arguments = [
        "--map",
        "JobID=jid,AllocNodes=nnuma,Start=sdt,End=edt",
        "--machine-nodes",
        "4",
        "--to",
        f"{BEGIN_S + 90}",
    ]
    assert run(["ingest", "slurm", "jobs.parquet", *arguments, "-o", "t.parquet"]) == 0
    assert "counts of nodes, no names" in capsys.readouterr().out
    assert read_trace(here / "t.parquet").idle_counts().max() == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("start", "--map: expected OURS=THEIRS,... such as start=start_time, not 'start'"),
        ("start=a,start=b", "--map: start is given twice"),
        ("node=hosts,start=begann,end=finished", "--map: no column 'begann'; did you mean 'began'?"),
    ],
)
def test_maps_that_cannot_be_meant(columns: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "jobs.csv").write_text("hosts,began,finished\nn1,1612900000,1612900060\n")
    assert run(["ingest", "intervals", "jobs.csv", "--map", columns, "-o", "t.parquet"]) == 2
    assert message in capsys.readouterr().err


def test_a_map_is_of_the_logs_alone(here: Path) -> None:
    (here / "jobs.csv").write_text("hosts;began;finished\nn1;1612900000;1612900060\nn2;1612900010;1612900090\n")
    (here / "down.csv").write_text("node,start,end,state\nn1,1612900070,1612900080,down\n")
    more = ["--events", "down.csv", "--min-gap", "0", "-o", "t.parquet"]
    assert run(["ingest", "auto", "jobs.csv", "--map", INTERVALS, *more]) == 0
    trace = read_trace(here / "t.parquet")
    assert trace.idle_node_seconds() == 10 + (10 + 10)  # n2 before its job; n1 after its own but for the outage


def test_parquet_that_is_damaged(here: Path) -> None:
    frame([SyntheticJob(("n1",), 0, 5, 0)], "epochs").to_parquet(here / "p")
    data = (here / "p").read_bytes()
    (here / "p").write_bytes(data[:-9])
    with pytest.raises(InputError, match="p: cannot be read as Parquet"):
        ingested("intervals", [str(here / "p")], columns=INTERVALS)


def test_a_map_from_ours_to_theirs() -> None:
    assert column_map(" a = b , c=d=e") == {"a": "b", "c": "d=e"}
