"""Slurm's accounting as `sacct -P` prints it; text of `scontrol show job` is handed on."""

from __future__ import annotations

from dataclasses import replace

from bft.replay.logs import slurm_text
from bft.replay.logs.opening import LogLines
from bft.replay.logs.reading import Reading
from bft.replay.logs.slurm_jobs import COMMAND, PLANNED, UNITS, Rows
from bft.replay.logs.slurm_table import Table


def read(reading: Reading) -> None:
    """Read the jobs of `sacct -P` or `-p`, with any delimiter and any columns that hold those of `COMMAND`.

    Job steps are left out; each record of a requeued job counts, as each held nodes of its own. Without a column
    NodeList jobs are counted only (`Collector.count`). Where lines come in blocks, those of the most frequent kind are
    read by columns, with the same result (`slurm_blocks`). A file that begins with a job of `scontrol show job` is read
    by `slurm_text`.
    """
    source = reading.lines if isinstance(reading.lines, LogLines) else LogLines(lines=reading.lines)
    reading = replace(reading, lines=source)
    if slurm_text.begins(source):
        slurm_text.read(reading)
        return
    names = (("jobid", "jobidraw"), ("start",), ("end",), ("nodelist", "allocnodes", "nnodes"))
    optional: list[tuple[str, ...]] = [("state",), ("allocnodes", "nnodes"), ("cluster",)]
    if reading.into.units is not None:
        optional += UNITS
    if reading.settings.walltimes:
        optional += PLANNED
    table = Table(reading, needed=names, optional=optional, command=COMMAND)
    rows = Rows(reading, table)
    try:
        if source.in_blocks and table.columnar and rows.columnar:
            from bft.replay.logs.slurm_blocks import read_blocks  # imported late: it takes pyarrow

            read_blocks(reading, source, table, rows)
        else:
            for number, fields in table:
                rows.row(number, fields)
    finally:
        rows.account()
