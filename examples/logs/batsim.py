"""Batsim: jobs.csv of a simulation, as evalys reads it, with the numbers of the hosts of each job."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bft.models.cells import read_number
from bft.replay.logs import NONE, Block, Log, LogFormat
from bft.replay.logs.tables import Table

TIMES = {
    "known": ("submission_time",),
    "start": ("starting_time",),
    "end": ("finish_time",),
    "limit": ("requested_time",),
}
# Older releases say jobID and allocated_processors.
HOSTS = ("allocated_resources", "allocated_processors")
COLUMNS = {"id": ("job_id", "jobid"), "hosts": HOSTS, **TIMES}


def read(log: Log) -> Iterator[Block]:
    """Read jobs; hosts are numbers and get the names n0, n1, ..."""
    log.note("times are seconds of a simulation and count from 1970-01-01", 0)
    log.words = {"hosts": "allocated_resources"}
    needed = ("id", "start", "end", "hosts")
    for rows in Table(log, COLUMNS, needed=needed, expected="jobs.csv of Batsim"):
        cells = {name: column.to_pylist() for name, column in rows.cells.items()}
        times: dict[str, Any] = {
            name: np.array([nanoseconds(text) for text in cells[name]], dtype=np.int64)
            for name in TIMES
            if name in cells
        }
        odd = ~np.isin(cells["start"], ["", "-1", "nan", "NaN"]) & (
            times["start"] == NONE
        )
        rows.why.where(odd, "skipped: starting_time is no time in seconds")
        # 0-3 7 is n[0-3,7].
        numbers = [",".join(text.split()) for text in cells["hosts"]]
        hosts = pa.array([f"n[{text}]" if text else "" for text in numbers])
        yield Block(
            line=rows.line, why=rows.why, id=rows.cells["id"], hosts=hosts, **times
        )


def nanoseconds(text: str) -> int:
    """Return seconds of a simulation, to a microsecond, as nanoseconds; NONE where a cell holds none."""
    seconds = read_number(text)
    return round(seconds * 1e6) * 1000 if 0 <= seconds < 9e9 else NONE


FORMAT = LogFormat(
    "Batsim: jobs.csv, as evalys reads it",
    read,
    r"(?=.*\bstarting_time\b)(?=.*\ballocated_(resources|processors)\b)",
)
