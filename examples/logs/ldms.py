"""LDMS: CSV of the store store_csv with a column job_id, which says of each node whether a job is on it."""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import pyarrow.compute as pc

from bft.replay.logs import NONE, Block, Log, LogFormat
from bft.replay.logs.hosts import flags
from bft.replay.logs.tables import Table

COLUMNS = {"start": ("time", "#time"), "hosts": ("producername",), "job": ("job_id",)}


def read(log: Log) -> Iterator[Block]:
    """Read samples of nodes as states at instants: a node is busy while its job_id is not 0.

    Nodes are sampled at nearly the same time: times are rounded to the period of sampling.
    """
    # The header looks like a comment, or lies in another file (altheader=1), and --fields names the columns.
    header = "".join(log.lines.head(limit=1))
    if header.startswith("#"):
        names = tuple(header.split(","))
        log.settings = replace(log.settings, fields=names, delimiter=",")
    expected = "a header #Time,Time_usec,ProducerName,component_id,job_id,..."
    period = 0
    for rows in Table(log, COLUMNS, needed=list(COLUMNS), expected=expected):
        hosts, job = rows.cells["hosts"], rows.cells["job"]
        times = log.clock.times(rows.cells["start"]).ns
        rows.why.where(times == NONE, "skipped: column Time holds no time")
        number = pc.match_substring_regex(job, "^[0-9]+$")
        rows.why.where(~flags(number), "skipped: column job_id holds no number")
        if not period:
            # The most frequent distance of two samples of a node, in whole seconds.
            apart = pd.Series(times / 1e9).groupby(hosts.to_pylist()).diff().round()
            period = int(apart[apart > 0].mode().get(0, 1)) * 10**9
        yield Block(
            kind="seen",
            line=rows.line,
            why=rows.why,
            hosts=hosts,
            start=(times + period // 2) // period * period,
            state=pc.if_else(pc.match_substring_regex(job, "^0*$"), "idle", "busy"),
        )


FORMAT = LogFormat("LDMS: CSV of store_csv with job_id", read, samples=True)
