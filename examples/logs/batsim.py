"""Batsim: jobs.csv of a simulation, as evalys reads it, with the numbers of the hosts of each job."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bft.models.cells import read_number
from bft.replay.logs.formats import LogFormat
from bft.replay.logs.hosts import flags
from bft.replay.logs.records import SKIPPED, Block, Log, decoded
from bft.replay.logs.tables import Rows, Table
from bft.replay.logs.times import MOST_EPOCH_S, NONE, Whole

# Older releases say jobID and allocated_processors.
COLUMNS = {
    "id": ("job_id", "jobid"),
    "known": ("submission_time",),
    "start": ("starting_time",),
    "end": ("finish_time",),
    "limit": ("requested_time",),
    "hosts": ("allocated_resources", "allocated_processors"),
}
# Such as `0-3 7`.
NUMBERS = r"^\s*(\d{1,9}(-\d{1,9})?([\s,]+|$))*$"


def read(log: Log) -> Iterator[Block]:
    """Read jobs; hosts are numbers and get the names n0, n1, ..."""
    needed = ("id", "start", "end", "hosts")
    table = Table(log, COLUMNS, needed=needed, expected="jobs.csv of Batsim")
    log.note("times are seconds of a simulation and count from 1970-01-01", 0)
    yield from map(jobs, table)


def jobs(rows: Rows) -> Block:
    """Return the jobs of some rows."""
    cells, why = rows.cells, rows.why
    times: dict[str, Any] = {
        name: nanoseconds(cells[name])
        for name in ("known", "start", "end", "limit")
        if name in cells
    }
    odd = (times["start"] == NONE) & ~flags(
        pc.is_in(cells["start"], pa.array(["", "-1", "nan", "NaN"]))
    )
    why.where(
        odd,
        SKIPPED + "starting_time is no time in seconds",
        lambda row: decoded(cells["start"], row)[:40],
    )
    hosts = pc.utf8_trim_whitespace(cells["hosts"])
    fine = flags(pc.match_substring_regex(hosts, NUMBERS))
    reason = SKIPPED + "allocated_resources holds no set of numbers such as 0-3 7"
    why.where(~fine, reason, lambda row: ascii(decoded(hosts, row)[:80]))
    numbers = pc.replace_substring_regex(hosts, r"[\s,]+", ",")
    names = pc.binary_join_element_wise("n[", numbers, "]", "")
    names = pc.if_else(pc.equal(hosts, ""), "", names)
    return Block(line=rows.line, why=why, id=cells["id"], hosts=names, **times)


def nanoseconds(column: pa.Array) -> Whole:
    """Return seconds of a simulation, to a microsecond, as nanoseconds; NONE where a cell holds none."""
    seconds = np.array([read_number(text) for text in column.to_pylist()], dtype=float)
    fine = (seconds >= 0) & (seconds < MOST_EPOCH_S)
    micros = np.round(np.where(fine, seconds, 0) * 1e6).astype(np.int64)
    return np.where(fine, micros * 1000, NONE)


FORMAT = LogFormat(
    "Batsim: jobs.csv, as evalys reads it",
    read,
    r"(?=.*\bstarting_time\b)(?=.*\ballocated_(resources|processors)\b)",
)
