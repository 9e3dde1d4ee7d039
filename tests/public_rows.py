"""Rows of our own in the formats of public data sets (docs/data.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

# Two jobs in one hour: a and b from :00 to :20, a alone from :20 to :30. Of the two nodes' 120 minutes 70 are idle.
WINDOW = ["--from", "2025-03-01T12:00:00Z", "--to", "2025-03-01T13:00:00Z"]
BEGIN = pd.to_datetime(["2025-03-01 12:00:00", "2025-03-01 12:20:00"])
END = pd.to_datetime(["2025-03-01 12:20:00", "2025-03-01 12:30:00"])
IDLE_S = 70 * 60


def alcf(path: Path) -> None:
    """Write ALCF's job table, with the columns that RAPS reads."""
    table = pd.DataFrame(
        {"JOB_NAME": ["1.a", "2.a"], "COBALT_JOBID": [1, 2], "QUEUED_TIMESTAMP": BEGIN}
    )
    table = table.assign(
        START_TIMESTAMP=BEGIN,
        END_TIMESTAMP=END,
        NODES_REQUESTED=[2, 1],
        NODES_USED=[2, 1],
    )
    table = table.assign(
        RUNTIME_SECONDS=[1200, 600], LOCATION=["x1c0s0b0n0,x1c0s1b0n0", "x1c0s0b0n0"]
    )
    table.to_csv(path, index=False)


def swf(path: Path) -> None:
    """Write Frontier's fields: the fifth counts cores, then nodes, then cores in a row without the last field."""
    rows = [
        "1 0 0 1200 224 -1 -1 224 7200 -1 1 1 1 -1 1 1 -1 -1 16 -1 frontier:excl:2x112",
        "2 0 1200 600 1 -1 -1 1 7200 -1 1 1 1 -1 1 1 -1 -1 8 -1 frontier:excl:1x112",
        "3 0 1200 600 224 -1 -1 224 7200 -1 1 1 1 -1 1 1 -1 -1 8 -1 -",
    ]
    path.write_text(
        "\n".join(
            [
                f"; UnixStartTime: {int(BEGIN[0].timestamp())}",
                "; MaxProcs: 1053696",
                *rows,
                "",
            ]
        )
    )


def lassen(folder: Path) -> None:
    """Write the two tables of LAST."""
    times = {"begin_time": BEGIN + pd.Timedelta(microseconds=1), "end_time": END}
    allocations = pd.DataFrame(
        {
            "allocation_id": [7, 8],
            "primary_job_id": [1, 2],
            "num_nodes": [2, 1],
            **times,
        }
    )
    allocations.to_csv(folder / "final_csm_allocation_history_hashed.csv", index=False)
    nodes = pd.DataFrame(
        {
            "allocation_id": [7, 7, 8],
            "node_name": ["l1", "l2", "l1"],
            "shared": 0,
            "energy": 1,
        }
    )
    nodes.to_csv(folder / "final_csm_allocation_node_history.csv", index=False)


def kestrel(path: Path) -> None:
    """Write Kestrel's job table, with the columns that others read."""
    times = {"start_time": BEGIN.tz_localize("UTC"), "end_time": END.tz_localize("UTC")}
    states = {
        "nodes_req": [2, 1],
        "nodes_used": [2, 1],
        "state_simple": ["COMPLETED", "FAILED"],
    }
    pd.DataFrame({"id": [1, 2], **times, **states}).to_parquet(path)


def gpus(zone: str | None) -> Callable[[Path], None]:
    """Return what writes a table of Acme or Helios; the third job has no GPU."""

    def write(path: Path) -> None:
        start, end = (
            BEGIN.append(BEGIN[:1]).tz_localize("UTC"),
            END.append(END[:1]).tz_localize("UTC"),
        )
        start, end = start.tz_convert("Asia/Shanghai"), end.tz_convert("Asia/Shanghai")
        if zone is None:
            start, end = start.tz_localize(None), end.tz_localize(None)
        table = pd.DataFrame(
            {
                "job_id": [1, 2, 3],
                "user": "u1",
                "node_num": 1,
                "gpu_num": [2, 1, 0],
                "cpu_num": 8,
            }
        )
        table.assign(state="COMPLETED", start_time=start, end_time=end).to_csv(
            path, index=False
        )

    return write
