"""What a Slurm job says of nodes, by its state, times and node list."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from bft.replay.logs.plans import Plan
from bft.replay.logs.reading import Reading
from bft.replay.logs.units import Held

# States in which a job that has started still holds its nodes.
HOLDING = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING", ""}
)
# States of jobs that have not started.
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


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


def so_far(state: str, start: int | None, end: int | None) -> tuple[int | None, int | None]:
    """Start and end of what squeue and scontrol show, as far as they have come.

    The end of a job that runs is its limit there, and start and end of one that waits are guesses.
    """
    return None if state in WAITING else start, None if state in HOLDING | WAITING else end


def plan(job: Job, known_ns: int | None, limit_ns: int | None) -> Plan:
    """What the scheduler knew of a job: `count` is the number of nodes that it asks for while it waits.

    A job that is cancelled while it waits has no start, or that of its end, and no nodes; one whose end is missing
    though it has ended is known no more, as nobody knows when it returned its nodes.
    """
    asked = job.count or 0
    size = asked if job.nodes is None else len(job.nodes)
    lost = job.end is None and _word(job.state) not in HOLDING | WAITING
    if job.start is None or job.start == job.end or not size:
        return Plan(known_ns, None, job.end, None, 0 if lost else asked)
    return Plan(known_ns, job.start, job.end, limit_ns, 0 if lost else size, job.nodes or None)


def _word(state: str) -> str:
    return state.split(" ")[0].rstrip("+*").upper()


def judge(job: Job, reading: Reading, line: int) -> bool:
    """Hand a job over, or tell why it is left out or skipped; True when it is used."""
    file, diagnosis = reading.file, reading.diagnosis
    state = _word(job.state)
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
