"""LDMS: CSV of the store store_csv with a column job_id, which says of each node whether a job is on it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bft.replay.logs.formats import LogFormat
from bft.replay.logs.hosts import flags
from bft.replay.logs.records import SKIPPED, Block, Log, decoded
from bft.replay.logs.tables import Rows, Table
from bft.replay.logs.times import NONE, no_time

COLUMNS = {"start": ("time", "#time"), "hosts": ("producername",), "job": ("job_id",)}
SECOND_NS = 10**9


def read(log: Log) -> Iterator[Block]:
    """Read samples of nodes as states at instants: a node is busy while its job_id is not 0.

    Nodes are sampled at nearly the same time: times are rounded to the period of sampling.
    """
    # The header looks like a comment, or lies in another file (altheader=1), and --fields names the columns.
    header = "".join(log.lines.head(limit=1))
    if header.startswith("#"):
        names = tuple(header.split(","))
        log.settings = replace(log.settings, fields=names, delimiter=",")
    table = Table(
        log,
        COLUMNS,
        needed=list(COLUMNS),
        expected="a header #Time,Time_usec,ProducerName,component_id,job_id,...",
    )
    waiting: list[Block] = []
    period = 0
    for rows in table:
        waiting.append(samples(log, rows))
        period = period or period_of(waiting)
        if period:
            yield from (rounded(block, period) for block in waiting)
            waiting.clear()
    yield from (rounded(block, SECOND_NS) for block in waiting)


def samples(log: Log, rows: Rows) -> Block:
    """Return the state of a node in each row."""
    cells, why = rows.cells, rows.why
    times = log.clock.times(cells["start"])
    reason = SKIPPED + "column Time holds no time"
    why.where(
        times.ns == NONE, reason, lambda row: no_time(decoded(cells["start"], row))
    )
    number = pc.match_substring_regex(cells["job"], "^[0-9]+$")
    reason = SKIPPED + "column job_id holds no number"
    why.where(
        ~flags(number), reason, lambda row: ascii(decoded(cells["job"], row)[:40])
    )
    state = pc.if_else(pc.match_substring_regex(cells["job"], "^0*$"), "idle", "busy")
    return Block(
        kind="seen",
        line=rows.line,
        why=why,
        hosts=cells["hosts"],
        start=times.ns,
        state=state,
    )


def period_of(blocks: Sequence[Block]) -> int:
    """Return the most frequent distance of two samples of a node to a second; 0 where no node was sampled twice."""
    times = np.concatenate([block.start for block in blocks])
    nodes = pa.concat_arrays([block.hosts for block in blocks]).dictionary_encode()
    nodes = nodes.indices.to_numpy()
    order = np.lexsort((times, nodes))
    apart = np.diff(times[order])[np.diff(nodes[order]) == 0]
    seconds = np.round(apart / SECOND_NS).astype(np.int64)
    seconds = seconds[(seconds > 0) & (seconds < 86_400)]
    return int(np.bincount(seconds).argmax()) * SECOND_NS if len(seconds) else 0


def rounded(block: Block, period: int) -> Block:
    """Round the times of a block."""
    return replace(block, start=(block.start + period // 2) // period * period)


FORMAT = LogFormat("LDMS: CSV of store_csv with job_id", read, samples=True)
