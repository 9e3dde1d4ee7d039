"""What a Slurm job says of nodes, by its state, times and node list."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from bft.replay.logs.reading import Reading
from bft.replay.logs.units import Held

# States in which a job that has started still holds its nodes.
HOLDING = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING", ""}
)


@dataclass(frozen=True, slots=True)
class Job:
    """Key, state, UTC nanoseconds of start and end (None: unknown), and node indices, or None and their count.

    What it held of each node is None if that is all of it. The key is that of `Collector.job`: the id with cluster and
    array element or component.
    """

    key: Hashable
    state: str
    start: int | None
    end: int | None
    nodes: array[int] | None
    count: int | None = None
    held: Sequence[Held] | None = None


def judge(job: Job, reading: Reading, line: int) -> bool:
    """Hand a job over, or tell why it is left out or skipped; True when it is used."""
    file, diagnosis = reading.file, reading.diagnosis
    state = job.state.split(" ")[0].rstrip("+*").upper()
    size = job.count if job.nodes is None else len(job.nodes)
    if job.start is None:
        diagnosis.leave_out("job that never started", file, line)
    elif job.end is None and state not in HOLDING:
        if size:
            diagnosis.skip("has ended, but its end is missing", file, line, job.state)
        else:
            diagnosis.leave_out("job that never started", file, line)
    elif job.end is not None and job.end < job.start:
        diagnosis.skip("ends before it starts", file, line, f"{(job.start - job.end) / 1e9:g} s before")
    elif job.end == job.start:
        diagnosis.leave_out("job of zero length" if size else "job that never started", file, line)
    elif not size:
        if job.end is None:
            diagnosis.leave_out("job that never started", file, line)
        else:
            diagnosis.skip("job ran, but names no nodes", file, line, job.state)
    else:
        nodes = size if job.nodes is None else job.nodes
        reading.into.job(job.key, nodes, job.start, job.end, file, line, once=True, held=job.held)
        return True
    return False
