"""The records that readers of logs yield: a job ran, a node was down, a row was skipped and why.

Records are values: readers know neither where they go nor what other records say. `intake.collect` uses them.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

from bft.replay.logs.units import Held
from bft.replay.logs.walltimes import Plan
from bft.replay.trace.node_trace import IndexArray, TimeArray

# All times are UTC nanoseconds. Nodes are indices, by `Reading.nodes`, or how many there are where a log has no names.


class JobRan(NamedTuple):
    """A job ran; an end of None: it was running when the record was written.

    Parameters
    ----------
    line
        Where the row begins.
    key
        Tells the job from others that start at the same time. Rows with one key and start state the same run.
    nodes, start_ns, end_ns
        Nodes, and when the job had them.
    held
        Units that it had of each node; None: all of them.
    once
        Whether this key has one run at a time, so that a later start ends the run before.
    same_row
        Whether a record before has stated that this row is used.
    """

    line: int
    key: Hashable
    nodes: array[int] | int
    start_ns: int
    end_ns: int | None
    held: Sequence[Held] | None = None
    once: bool = False
    same_row: bool = False


class JobBlock(NamedTuple):
    """Many jobs that have ended, of keys that have one run at a time, one after the other.

    Parameters
    ----------
    lines, keys, sizes, starts_ns, ends_ns
        One entry a job; sizes say how many nodes it has.
    nodes
        Of all jobs, one after the other.
    held
        Of each job what `JobRan.held` has; None: all jobs have their whole nodes.
    """

    lines: TimeArray
    keys: Sequence[Hashable]
    nodes: IndexArray
    sizes: TimeArray
    starts_ns: TimeArray
    ends_ns: TimeArray
    held: Sequence[Sequence[Held]] | None = None


class JobPlanned(NamedTuple):
    """What the scheduler knew of a job, running or waiting; it is no row of its own."""

    key: Hashable
    plan: Plan


class JobBegan(NamedTuple):
    """A job begins whose end a later record states, in this file or in the next; `name` is for messages."""

    line: int
    key: Hashable
    hosts: tuple[str, ...]
    start_ns: int
    held: tuple[Held, ...] | None = None
    name: str = ""


class JobEnded(NamedTuple):
    """A job ends that has begun; where none has, the row is left out for the reason `otherwise`."""

    line: int
    key: Hashable
    end_ns: int
    otherwise: str = ""


class JobShrank(NamedTuple):
    """A job that has begun keeps only some of its hosts from an instant on."""

    line: int
    key: Hashable
    kept: tuple[str, ...]
    end_ns: int
    held: tuple[Held, ...] | None = None


class Outage(NamedTuple):
    """Nodes were down, or reserved; an end of None is not known. `key` as `JobRan` has it.

    An outage without an end in any row ends on each node when a job starts there, a reservation does not.
    """

    line: int
    key: Hashable
    nodes: array[int]
    start_ns: int
    end_ns: int | None
    reserved: bool = False


class OutageBegan(NamedTuple):
    """An outage begins whose end a later record states; if one goes on and `otherwise` says so, the row is left out."""

    line: int
    key: Hashable
    hosts: tuple[str, ...]
    start_ns: int
    otherwise: str = ""


class OutageEnded(NamedTuple):
    """An outage ends; where none has begun, the row is left out for the reason `otherwise`."""

    line: int
    key: Hashable
    end_ns: int
    otherwise: str


class MachineDown(NamedTuple):
    """All nodes that rows have named so far were down, without an end until the next job starts."""

    line: int
    start_ns: int
    end_ns: int | None


class NodesIdle(NamedTuple):
    """Nodes were idle; an end of None is still to come. `key` as `JobRan` has it."""

    line: int
    key: Hashable
    nodes: array[int]
    start_ns: int
    end_ns: int | None


class NodesSeen(NamedTuple):
    """Nodes were in a state at an instant (`node_states`); `line` is None where a record before stated the row."""

    line: int | None
    nodes: array[int]
    time_ns: int
    state: int


class NodesListed(NamedTuple):
    """These nodes are the machine's.

    Parameters
    ----------
    units
        Units of each; None: not stated.
    part
        Whether only a part of each node is meant, to which others add.
    """

    line: int
    hosts: tuple[str, ...]
    cluster: str = ""
    units: int | None = None
    part: bool = False


class Reserved(NamedTuple):
    """The scheduler had reserved nodes, which expected idle times heed; it is no row of its own."""

    nodes: array[int]
    start_ns: int
    end_ns: int | None


class RowUsed(NamedTuple):
    """A row is used, by records that come later."""

    line: int


class Skipped(NamedTuple):
    """A row should have said something of nodes and cannot be used.

    Parameters
    ----------
    reason, detail
        Why; reasons are counted, so they hold no values: the detail does.
    foreign
        Whether it is no record of the format at all. A file of nothing else is refused.
    """

    line: int
    reason: str
    detail: str = ""
    foreign: bool = False


class Ignored(NamedTuple):
    """Rows of a kind that says nothing of nodes; the first is at `line`."""

    line: int
    reason: str
    rows: int = 1


class Observed(NamedTuple):
    """The log states a window of observation of its own; `outages`: all that it is known from are outages."""

    start_ns: int
    end_ns: int
    outages: bool = False


class WrittenUntil(NamedTuple):
    """The log writes down what happens as it happens, and was written until this instant."""

    time_ns: int


class FileEnds(NamedTuple):
    """A file ends in which jobs begin and end by records of their own; what goes on lasts until this instant."""

    time_ns: int


class MachineStated(NamedTuple):
    """The log states the machine's name, or how many nodes it has."""

    name: str = ""
    nodes: int | None = None


Record: TypeAlias = (
    JobRan
    | JobBlock
    | JobPlanned
    | JobBegan
    | JobEnded
    | JobShrank
    | Outage
    | OutageBegan
    | OutageEnded
    | MachineDown
    | NodesIdle
    | NodesSeen
    | NodesListed
    | Reserved
    | RowUsed
    | Skipped
    | Ignored
    | Observed
    | WrittenUntil
    | FileEnds
    | MachineStated
)
