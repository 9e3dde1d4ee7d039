"""Tables of other sites: any names of columns, CSV and Parquet, give the same trace as our own formats."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs import stamp
from synthetic_logs_more import (
    BEGIN_S,
    HOSTS,
    LENGTH_S,
    SyntheticJob,
    idle_seconds,
    idle_seconds_of,
    job_lists,
)

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs.from_files import IngestOptions, ingested
from bft.replay.logs.tables import column_map, public_tables, stamp_of_seconds
from bft.replay.trace.trace_files import read_trace

INTERVALS = "node=hosts,start=began,end=finished"
SLURM = "JobID=id,NodeList=hosts,Start=began,End=finished,State=status"
WINDOW = {
    "begin": str(BEGIN_S),
    "end": str(BEGIN_S + LENGTH_S),
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
@given(
    jobs=job_lists(),
    times=st.sampled_from(["epochs", "floats", "zoned", "naive"]),
    parquet=st.booleans(),
)
def test_any_table_with_a_map(
    form: str, columns: str, jobs: list[SyntheticJob], times: str, parquet: bool
) -> None:
    table = frame(jobs, times)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs")
        if parquet:
            table.to_parquet(file)
        else:
            table["hosts"] = table["hosts"].map(",".join)
            table.drop(columns="end").to_csv(file, index=False)
        trace = ingested(
            form,
            [str(file)],
            IngestOptions(columns=columns, nodes=[",".join(HOSTS)], tz="UTC", **WINDOW),
        ).trace
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


@pytest.mark.parametrize("again", [False, True])
@given(jobs=job_lists())
def test_the_index_that_pandas_writes_is_no_column(
    again: bool, jobs: list[SyntheticJob]
) -> None:
    """`to_csv` without `index=False`, once or twice; host lists keep their commas."""
    begun = [stamp(job.start_s) for job in jobs]
    ended = [stamp(job.end_s) for job in jobs]
    hosts = [",".join(job.hosts) for job in jobs]
    table = pd.DataFrame(
        {
            "JobID": range(1, len(jobs) + 1),
            "NodeList": hosts,
            "Start": begun,
            "End": ended,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs.csv")
        table.to_csv(file)
        if again:
            pd.read_csv(file).to_csv(file)
        options = IngestOptions(nodes=[",".join(HOSTS)], tz="UTC", **WINDOW)
        trace = ingested("auto", [str(file)], options).trace
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


@pytest.mark.parametrize("name", ["pm100", "mit-supercloud"])
@pytest.mark.parametrize(
    "text",
    [
        "['cn[001-003]', 'gpu7']",
        '["cn001", "cn002", "cn003", "gpu7"]',
        "cn[001-003],gpu7",
        "['cn001' 'cn002' 'cn003' 'gpu7']",
    ],
)
def test_lists_in_published_tables_may_be_printed_and_hold_host_lists(
    name: str, text: str, here: Path
) -> None:
    theirs = column_map(public_tables()[name].columns)
    values = {
        "JobID": 1,
        "NodeList": text,
        "AllocNodes": 4,
        "Start": BEGIN_S,
        "End": BEGIN_S + 60,
        "State": "COMPLETED",
    }
    pd.DataFrame([{theirs[ours]: values[ours] for ours in theirs}]).to_csv(
        here / "jobs.csv", index=False
    )
    made = ingested("auto", ["jobs.csv"], IngestOptions(columns=name, **WINDOW))
    assert made.trace.nodes == ("cn001", "cn002", "cn003", "gpu7")


def test_a_dump_of_slurms_data_base_has_numbers_for_states_and_no_times(
    here: Path,
) -> None:
    """The table of jobs as mariadb prints it: states by enum job_states of slurm.h, 0 where a time has not come."""
    Path("dump").write_text(
        "id_job\tnodelist\tnodes_alloc\ttime_start\ttime_end\tstate\n"
        f"1\tn01\t1\t{BEGIN_S}\t{BEGIN_S + 60}\t3\n"
        f"2\tn02\t1\t{BEGIN_S + 60}\t0\t1\n"
        "3\tNone assigned\t0\t0\t0\t0\n"
        f"4\tNone assigned\t0\t0\t{BEGIN_S + 50}\t4\n"
    )
    columns = "JobID=id_job,NodeList=nodelist,AllocNodes=nodes_alloc,Start=time_start,End=time_end,State=state"
    options = IngestOptions(columns=columns, nodes=["n01,n02"], **WINDOW)
    made = ingested("slurm", ["dump"], options)
    assert not made.diagnosis.skipped
    assert made.diagnosis.used == 2
    assert made.trace.idle_node_seconds() == (LENGTH_S - 60) + 60


def test_a_table_of_counts_and_missing_ends(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pd.DataFrame(
        {
            "jid": [1, 2],
            "nnuma": [2, 1],
            "sdt": [BEGIN_S, BEGIN_S + 10.0],
            "edt": [BEGIN_S + 60.0, None],
        }
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
        ("start", "--map: expected OURS=THEIRS,... or one of pm100, adastra, fugaku"),
        (
            "start=a,end",
            "--map: expected OURS=THEIRS,... such as start=start_time, not 'end'",
        ),
        ("start=a,start=b", "--map: start is given twice"),
        (
            "node=hosts,start=begann,end=finished",
            "--map: no column 'begann'; did you mean 'began'?",
        ),
    ],
)
def test_maps_that_cannot_be_meant(
    columns: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "jobs.csv").write_text("hosts,began,finished\nn1,1612900000,1612900060\n")
    assert (
        run(["ingest", "intervals", "jobs.csv", "--map", columns, "-o", "t.parquet"])
        == 2
    )
    assert message in capsys.readouterr().err


def test_a_map_is_of_the_logs_alone(here: Path) -> None:
    (here / "jobs.csv").write_text(
        "hosts;began;finished\nn1;1612900000;1612900060\nn2;1612900010;1612900090\n"
    )
    (here / "down.csv").write_text(
        "node,start,end,state\nn1,1612900070,1612900080,down\n"
    )
    more = ["--events", "down.csv", "--min-gap", "0", "-o", "t.parquet"]
    assert run(["ingest", "auto", "jobs.csv", "--map", INTERVALS, *more]) == 0
    trace = read_trace(here / "t.parquet")
    assert trace.idle_node_seconds() == 10 + (
        10 + 10
    )  # n2 before its job; n1 after its own but for the outage


def test_parquet_that_is_damaged(here: Path) -> None:
    frame([SyntheticJob(("n1",), 0, 5, 0)], "epochs").to_parquet(here / "p")
    data = (here / "p").read_bytes()
    (here / "p").write_bytes(data[:-9])
    with pytest.raises(InputError, match="p: cannot be read as Parquet"):
        ingested("intervals", [str(here / "p")], IngestOptions(columns=INTERVALS))


PUBLIC = {
    "pm100": pd.DataFrame(
        {"job_id": [1, 2], "nodes": [["0", "12"], ["12"]], "num_nodes_alloc": [2, 1], "job_state": ["COMPLETED"] * 2,
         "start_time": pd.to_datetime([BEGIN_S, BEGIN_S + 60], unit="s", utc=True),
         "end_time": pd.to_datetime([BEGIN_S + 60, BEGIN_S + 90], unit="s", utc=True)}
    ),
    "adastra": pd.DataFrame(
        {"job_id": [1, 2], "nodes": [["0", "12"], ["12"]], "num_nodes_alloc": [2, 1], "job_state": ["COMPLETED"] * 2,
         "start_time": pd.to_datetime([BEGIN_S, BEGIN_S + 60], unit="s"),
         "end_time": pd.to_datetime([BEGIN_S + 60, BEGIN_S + 90], unit="s")}
    ),
    "fugaku": pd.DataFrame(
        {"jid": ["j1", "j2"], "nnumr": [2, 1], "sdt": pd.to_datetime([BEGIN_S, BEGIN_S + 60], unit="s"),
         "edt": pd.to_datetime([BEGIN_S + 60, BEGIN_S + 90], unit="s")}
    ),
    "mit-supercloud": pd.DataFrame(
        {"id_job": [1, 2, 3], "nodelist": ["['r1-n0', 'r1-n1']", "['r1-n0']", "[]"], "state": [3, 3, 4],
         "time_start": [BEGIN_S, BEGIN_S + 60, 0], "time_end": [BEGIN_S + 60, BEGIN_S + 90, BEGIN_S]}
    ),
    "alibaba-2020": pd.DataFrame(
        {"job_name": ["a", "a", "b"], "task_name": "worker", "inst_name": "x", "worker_name": ["u", "v", "w"],
         "inst_id": "y", "status": "Terminated", "start_time": [86_400.0, 86_400.0, 86_460.0],
         "end_time": [86_460.0, 86_460.0, 86_490.0], "machine": ["m0", "m1", "m0"]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_published_tables(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = PUBLIC[name]
    if "pm100" in name or name in ("adastra", "fugaku"):
        table.to_parquet("jobs")
    else:
        table.to_csv("jobs", index=False, header=name != "alibaba-2020")
    window = ["--from", str(BEGIN_S), "--to", str(BEGIN_S + 90)]
    if name == "alibaba-2020":
        window = [
            "--from",
            stamp_of_seconds("86400"),
            "--to",
            stamp_of_seconds("86490"),
        ]
    assert (
        run(
            [
                "ingest",
                "auto",
                "jobs",
                "--map",
                name,
                "--tz",
                "UTC",
                *window,
                "-o",
                "t.parquet",
                "--json",
            ]
        )
        == 0
    )
    account = json.loads(capsys.readouterr().out)
    assert account["skipped"] == []
    assert (account["coverage"]["nodes"], account["used"]) == (
        2,
        len(table) - (name == "mit-supercloud"),
    )
    assert read_trace(here / "t.parquet").idle_node_seconds() == 30


def test_published_tables_are_read_as_their_format(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PUBLIC["fugaku"].to_parquet("jobs")
    assert (
        run(["ingest", "intervals", "jobs", "--map", "fugaku", "-o", "t.parquet"]) == 2
    )
    assert "--map fugaku is read as slurm, not as intervals" in capsys.readouterr().err
    assert run(["ingest", "auto", "jobs", "--map", "fugako", "-o", "t.parquet"]) == 2
    assert "not 'fugako'; did you mean 'fugaku'?" in capsys.readouterr().err


def test_fields_of_swf_take_the_places_of_others(here: Path) -> None:
    row = f"1 {BEGIN_S} 0 60 8 -1 -1 8 -1 -1 1 1 1 -1 1 1 -1 -1 x 2"
    Path("swf").write_text(f"; MaxNodes: 2\n; MaxProcs: 2\n{row}\n")
    window = {"begin": str(BEGIN_S), "end": str(BEGIN_S + 120)}
    made = ingested("swf", ["swf"], IngestOptions(columns="5=20", **window))
    assert made.trace.idle_node_seconds() == 120
    for wrong in ("5=nodes", "19=5", "0=5"):
        with pytest.raises(InputError, match="with numbers of fields, ours from 1 to"):
            ingested("swf", ["swf"], IngestOptions(columns=wrong, **window))


def test_cells_are_looked_up_in_the_other_file_whatever_their_order(here: Path) -> None:
    rows = [(7, 0, 60), (8, 60, 90), (9, 0, 9)]
    table = [f"{job},{BEGIN_S + start},{BEGIN_S + end}" for job, start, end in rows]
    Path("jobs").write_text("\n".join(["allocation_id,begin_time,end_time", *table]))
    Path("nodes").write_text("node_name,allocation_id\nb,7\na,8\na,7\n")
    window = {"begin": str(BEGIN_S), "end": str(BEGIN_S + 120)}
    for files in (["jobs", "nodes"], ["nodes", "jobs"]):
        made = ingested("auto", files, IngestOptions(columns="lassen", **window))
        assert made.trace.idle_node_seconds() == 240 - 120 - 30
        assert made.diagnosis.used == 2
        assert list(made.diagnosis.skipped) == ["column node names none"]


def test_a_map_from_ours_to_theirs() -> None:
    assert column_map(" a = b , c=d=e") == {"a": "b", "c": "d=e"}


def test_copies_of_a_long_text_are_refused_before_they_are_written_out(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import tracemalloc

    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 200_000
    node = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["x" * 100_000])
    )
    times = pa.array([1_612_900_000] * rows)
    for name, column in (
        ("coded", node),
        ("plain", node.slice(0, 9).dictionary_decode()),
    ):
        few = times.slice(0, len(column))
        table = pa.table({"node": column, "start": few, "end": few})
        pq.write_table(table, f"{name}.parquet")
    assert Path("coded.parquet").stat().st_size < 100_000
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    assert run(["ingest", "intervals", "coded.parquet", "-o", "t.parquet"]) == 2
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()
    assert (
        "coded.parquet: 50,000 of its rows hold 4,768 MiB of text"
        in capsys.readouterr().err
    )
    assert pa.total_allocated_bytes() - before < 50 << 20
    # A few long texts are read; they are no names.
    assert run(["ingest", "intervals", "plain.parquet", "-o", "t.parquet"]) == 2
    assert "column node holds no host list" in capsys.readouterr().err
