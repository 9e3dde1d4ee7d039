"""Tables of other sites: any names of columns, CSV and Parquet, give the same trace as our own formats."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from bft.replay.logs import IngestOptions, ingested
from bft.replay.logs.tables import column_map, public_tables, stamp_of_seconds

BEGIN, LATER, END = (str(BEGIN_S + second) for second in (0, 60, 90))
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


# --- tables as others have them -------------------------------------------------------------------------------------

PUBLIC: dict[str, Any] = {
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
PUBLIC |= {name: PUBLIC[name].to_csv(index=False) for name in ("mit-supercloud",)}
PUBLIC |= {
    name: PUBLIC[name].to_csv(index=False, header=False) for name in ("alibaba-2020",)
}
LISTS = ("['cn[001-003]', 'gpu7']", '["cn001", "cn002", "cn003", "gpu7"]', "cn[001-003],gpu7",
         "['cn001' 'cn002' 'cn003' 'gpu7']")  # fmt: skip
# States by enum job_states of slurm.h, 0 where a time has not come.
DUMP = (
    "id_job\tnodelist\tnodes_alloc\ttime_start\ttime_end\tstate\n"
    f"1\tn01\t1\t{BEGIN}\t{LATER}\t3\n2\tn02\t1\t{LATER}\t0\t1\n3\tNone assigned\t0\t0\t0\t0\n"
    f"4\tNone assigned\t0\t0\t{BEGIN_S + 50}\t4\n"
)
OF_DUMP = "JobID=id_job,NodeList=nodelist,AllocNodes=nodes_alloc,Start=time_start,End=time_end,State=state"
COUNTS = pd.DataFrame(
    {
        "jid": [1, 2],
        "nnuma": [2, 1],
        "sdt": [BEGIN_S, BEGIN_S + 10.0],
        "edt": [BEGIN_S + 60.0, None],
    }
)
SWF = f"; MaxNodes: 2\n; MaxProcs: 2\n1 {BEGIN} 0 60 8 -1 -1 8 -1 -1 1 1 1 -1 1 1 -1 -1 x 2\n"
JOBS = f"allocation_id,begin_time,end_time\n7,{BEGIN},{LATER}\n8,{LATER},{END}\n9,{BEGIN},{BEGIN_S + 9}\n"
LASSEN = (("jobs", JOBS), ("nodes", "node_name,allocation_id\nb,7\na,8\na,7\n"))
MARKS = f"hosts;began;finished\nn1;{BEGIN};{LATER}\nn2;{BEGIN_S + 10};{END}\n"
DOWN = f"node,start,end,state\nn1,{BEGIN_S + 70},{BEGIN_S + 80},down\n"


def printed(name: str, nodes: str) -> str:
    """A published table of a job of 60 s, with its list of nodes."""
    theirs = column_map(public_tables()[name].columns)
    values = {
        "JobID": 1,
        "NodeList": nodes,
        "AllocNodes": 4,
        "Start": BEGIN,
        "End": LATER,
        "State": "COMPLETED",
    }
    return pd.DataFrame([{theirs[ours]: values[ours] for ours in theirs}]).to_csv(
        index=False
    )


@pytest.mark.parametrize(
    ("form", "files", "options", "idle_s", "used"),
    [
        *(("auto", {"jobs": table}, {"columns": name, "end": END}, 30, 3 if name == "alibaba-2020" else 2)
          for name, table in PUBLIC.items()),
        *(("auto", {"jobs": printed(name, nodes)}, {"columns": name, "nodes": ["cn[001-003],gpu7"]}, 240, 1)
          for name in ("pm100", "mit-supercloud") for nodes in LISTS),
        ("slurm", {"dump": DUMP}, {"columns": OF_DUMP, "nodes": ["n01,n02"]}, LENGTH_S - 60 + 60, 2),
        ("slurm", {"jobs": COUNTS}, {"columns": "JobID=jid,AllocNodes=nnuma,Start=sdt,End=edt", "machine_nodes": 4,
                                     "end": END}, 4 * 90 - 2 * 60 - 80, 2),
        ("swf", {"swf": SWF}, {"columns": "5=20"}, 120, 1),
        *(("auto", dict(LASSEN[::way]), {"columns": "lassen", "nodes": ["a,b"]}, 240 - 120 - 30, 2) for way in (1, -1)),
        # A map is of the logs alone.
        ("auto", {"jobs": MARKS, "down": DOWN}, {"columns": INTERVALS, "events": ["down"], "end": END},
         10 + 10 + 10, 3),
    ],
)  # fmt: skip
def test_tables_as_others_have_them(
    form: str, files: dict[str, Any], options: dict[str, Any], idle_s: int, used: int, here: Path
) -> None:  # fmt: skip
    for name, table in files.items():
        if isinstance(table, str):
            (here / name).write_text(table)
        else:
            table.to_parquet(here / name)
    if options["columns"] == "alibaba-2020":
        bounds = ("86400", "86490")
        options = options | dict(
            zip(("begin", "end"), map(stamp_of_seconds, bounds), strict=True)
        )
    logs = [name for name in files if name not in options.get("events", ())]
    made = ingested(form, logs, IngestOptions(**{**WINDOW, **options}))
    assert made.trace.idle_node_seconds() == idle_s
    assert made.account.used == used
    lost = ["job ran, but names no nodes"] if options["columns"] == "lassen" else []
    assert list(made.account.skipped) == lost


@pytest.mark.parametrize(
    ("form", "columns", "message"),
    [
        ("intervals", "start", "--map: expected OURS=THEIRS,... or one of pm100, adastra, fugaku"),
        ("intervals", "start=a,end", "--map: expected OURS=THEIRS,... such as start=start_time, not 'end'"),
        ("intervals", "start=a,start=b", "--map: start is given twice"),
        ("intervals", "node=hosts,start=begann,end=finished", "--map: no column 'begann'; did you mean 'began'?"),
        ("intervals", "fugaku", "--map fugaku is read as slurm, not as intervals"),
        ("auto", "fugako", "not 'fugako'; did you mean 'fugaku'?"),
        *(("swf", wrong, "with numbers of fields, ours from 1 to") for wrong in ("5=nodes", "19=5", "0=5")),
    ],
)  # fmt: skip
def test_maps_that_cannot_be_meant(
    form: str, columns: str, message: str, here: Path
) -> None:
    (here / "jobs.csv").write_text(MARKS.replace(";", ","))
    with pytest.raises(InputError, match=re.escape(message)):
        ingested(form, ["jobs.csv"], IngestOptions(columns=columns))


def test_parquet_that_is_damaged(here: Path) -> None:
    frame([SyntheticJob(("n1",), 0, 5, 0)], "epochs").to_parquet(here / "p")
    (here / "p").write_bytes((here / "p").read_bytes()[:-9])
    with pytest.raises(InputError, match="p: cannot be read as Parquet"):
        ingested("intervals", ["p"], IngestOptions(columns=INTERVALS))
