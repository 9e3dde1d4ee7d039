"""Rows of our own in the formats of public data sets (docs/data.md)."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

# Two jobs in one hour: a and b from :00 to :20, a alone from :20 to :30. Of the two nodes' 120 minutes 70 are idle.
WINDOW = ["--from", "2025-03-01T12:00:00Z", "--to", "2025-03-01T13:00:00Z"]
BEGIN_S = 1_740_830_400
IDLE_S = 70 * 60


@dataclass(frozen=True)
class Ran:
    """A job on nodes by number; seconds since 1970."""

    nodes: tuple[int, ...]
    start_s: int
    end_s: int


TWO_JOBS = (Ran((0, 1), BEGIN_S, BEGIN_S + 1200), Ran((0,), BEGIN_S + 1200, BEGIN_S + 1800))  # fmt: skip


def _frame(
    rows, begin: str, end: str, zone: str = "UTC", *, stated: bool = False
) -> pd.DataFrame:
    """Return times and numbers of jobs, in a zone that is stated or not."""
    seconds = {begin: [row.start_s for row in rows], end: [row.end_s for row in rows]}
    times = pd.DataFrame(seconds).apply(pd.to_datetime, unit="s", utc=True)
    local = times.apply(lambda each: each.dt.tz_convert(zone))
    return local if stated else local.apply(lambda each: each.dt.tz_localize(None))


def _counts(rows) -> list[int]:
    return [len(row.nodes) for row in rows]


def _states(rows: int) -> list[str]:
    """Return states of jobs: where all are one, an export has left out the others."""
    return ["FAILED", *["COMPLETED"] * (rows - 1)]


def alcf(path, rows=TWO_JOBS) -> None:
    table = _frame(rows, "START_TIMESTAMP", "END_TIMESTAMP")
    names = [
        ",".join(f"x4{node:03}c0s0b0n0" for node in row.nodes)
        for row in rows
    ]  # fmt: skip
    table = table.assign(
        JOB_NAME=[f"{number}.a" for number in range(len(rows))],
        COBALT_JOBID=range(len(rows)),
        MACHINE_NAME="aurora",
        QUEUE_NAME="prod",
        QUEUED_TIMESTAMP=table["START_TIMESTAMP"],
        NODES_REQUESTED=_counts(rows),
        NODES_USED=_counts(rows),
        RUNTIME_SECONDS=[row.end_s - row.start_s for row in rows],
        LOCATION=names,
    )
    table.to_csv(path, index=False)


def swf(path, rows=TWO_JOBS) -> None:
    """Write Frontier's fields: the fifth counts cores, then nodes; the last row has no last field."""
    begin_s = min(row.start_s for row in rows)
    lines = [f"; UnixStartTime: {begin_s}", "; MaxProcs: 1053696"]
    for number, row in enumerate(rows, start=1):
        count, start_s = len(row.nodes), row.start_s - begin_s
        field = count * 112 if number % 2 else count
        lines.append(
            f"{number} {start_s} 0 {row.end_s - row.start_s} {field} -1 -1 {field} 7200 -1 "
            f"1 {number % 5} 1 -1 1 1 -1 -1 {8 * count} -1 frontier:excl:{count}x112"
        )
    lines.append(f"{len(rows) + 1} 1200 0 600 224 -1 -1 224 7200 -1 1 1 1 -1 1 1 -1 -1 8 -1 -")  # fmt: skip
    path.write_text("\n".join([*lines, ""]))


def lassen(folder, rows=TWO_JOBS) -> None:
    times = _frame(rows, "begin_time", "end_time", "America/Los_Angeles")
    pd.DataFrame(
        {
            "allocation_id": range(7, 7 + len(rows)),
            "primary_job_id": range(len(rows)),
            "num_nodes": _counts(rows),
            "hashed_user_id": "u",
            "begin_time": times["begin_time"],
            "end_time": times["end_time"],
            "queue": "pbatch",
        }
    ).to_csv(folder / "final_csm_allocation_history_hashed.csv", index=False)
    pairs = [(7 + job, node) for job, row in enumerate(rows) for node in row.nodes]
    pd.DataFrame(
        {
            "allocation_id": [job for job, _ in pairs],
            "node_name": [f"lassen{node}" for _, node in pairs],
            "shared": "f",
            "energy": 1,
        }
    ).to_csv(folder / "final_csm_allocation_node_history.csv", index=False)


def kestrel(path, rows=TWO_JOBS) -> None:
    """Write Kestrel's job table, with the columns that others read; months differ in their zone."""
    table = _frame(rows, "start_time", "end_time", "Etc/GMT+7", stated=True)
    table = table.assign(
        id=[row.start_s * 1000 + row.nodes[0] for row in rows],
        wallclock_req=pd.to_timedelta(7200, unit="s"),
        nodes_req=_counts(rows),
        nodes_used=_counts(rows),
        state_simple=_states(len(rows)),
        partition="standard",
        user_hash="u",
        gpus_requested=None,
    )
    table.to_parquet(path)


def gpus(zone: str | None) -> Callable[..., None]:
    """Return what writes a table of Acme or Helios, a unit is a GPU; the last job has none."""

    def write(path, rows=TWO_JOBS) -> None:
        again = [*rows, rows[0]]
        stated = zone is not None
        table = _frame(again, "start_time", "end_time", "Asia/Shanghai", stated=stated)
        table = table.assign(
            job_id=range(len(again)),
            user=[f"u{job % 9}" for job in range(len(again))],
            node_num=1,
            gpu_num=[*_counts(rows), 0],
            cpu_num=8,
            state=_states(len(again)),
        )
        table.to_csv(path, index=False)

    return write
