"""What readers of logs are given, the records that they yield, and what turns rows into records.

Records are values: a job ran, a node was down, a row was skipped and why. Readers know neither where they go nor what
other records say: `intake.collect` uses them.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from bft.models import InputError
from bft.replay.logs.collector import Collector
from bft.replay.logs.collector import Plan as Plan
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.diagnosis import Foreign as Foreign
from bft.replay.logs.diagnosis import LeftOut as LeftOut
from bft.replay.logs.diagnosis import OtherJob as OtherJob
from bft.replay.logs.diagnosis import Unusable as Unusable
from bft.replay.logs.filters import FILTERS as FILTERS
from bft.replay.logs.filters import Filters as Filters
from bft.replay.logs.hostlists import HostListError as HostListError
from bft.replay.logs.hostlists import NodeLists as NodeLists
from bft.replay.logs.log_files import LogLines
from bft.replay.logs.node_states import CountsAs
from bft.replay.logs.node_states import counts_as as counts_as
from bft.replay.logs.repeated_records import Begun
from bft.replay.logs.times import MISSING as MISSING
from bft.replay.logs.times import MOST_EPOCH_S as MOST_EPOCH_S
from bft.replay.logs.times import Clock as Clock
from bft.replay.logs.times import is_missing as is_missing
from bft.replay.logs.times import limit_ns as limit_ns
from bft.replay.logs.times import no_time as no_time
from bft.replay.logs.units import Held, UnitLog
from bft.replay.trace.node_trace import SECOND_NS, IndexArray, TimeArray

# All times are UTC nanoseconds. Nodes are indices, by `Reading.nodes`, or how many there are where a log has no names.


class Origin(NamedTuple):
    """Whose job it is, of which partition or queue, and how it ended; empty: not stated.

    One value in all rows means that others were left out (`hidden.ColumnValues`). Readers state how jobs ended where
    what exports them can choose by that.
    """

    user: str = ""
    partition: str = ""
    state: str = ""


class JobRan(NamedTuple):
    """A job ran on some nodes; an end of None: it was running when the record was written.

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
    suspended_ns
        For how long of that time it was suspended, so that Slurm calls its nodes idle.
    origin
        User, partition and state of the job.
    """

    line: int
    key: Hashable
    nodes: array[int] | int
    start_ns: int
    end_ns: int | None
    held: Sequence[Held] | None = None
    once: bool = False
    same_row: bool = False
    suspended_ns: int = 0
    origin: Origin | None = None


class JobBlock(NamedTuple):
    """Many jobs that have ended, of keys that have one run at a time, one after the other.

    Parameters
    ----------
    lines, keys, sizes, starts_ns, ends_ns
        One entry a job; sizes say how many nodes it has. Keys may be numbers, each as the text of its digits is.
    nodes
        Of all jobs, one after the other.
    held
        Of each job what `JobRan.held` has; None: all jobs have their whole nodes.
    """

    lines: TimeArray
    keys: Sequence[Hashable] | TimeArray
    nodes: IndexArray
    sizes: TimeArray
    starts_ns: TimeArray
    ends_ns: TimeArray
    held: Sequence[Sequence[Held]] | None = None


class JobPlanned(NamedTuple):
    """Knowledge of the scheduler on a job, running or waiting; it is no row of its own."""

    key: Hashable
    plan: Plan


class JobSuspended(NamedTuple):
    """A job is suspended since, or was until an instant, before which it had run so long; it is no row of its own."""

    key: Hashable
    start_ns: int
    changed_ns: int
    ran_ns: int
    goes_on: bool


class JobBegan(NamedTuple):
    """A job begins whose end a later record states, in this file or in the next; `name` is for messages."""

    line: int
    key: Hashable
    hosts: tuple[str, ...]
    start_ns: int
    held: tuple[Held, ...] | None = None
    name: str = ""
    origin: Origin | None = None


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
    `powered_off`: power saving took the nodes down.
    """

    line: int
    key: Hashable
    nodes: array[int]
    start_ns: int
    end_ns: int | None
    reserved: bool = False
    powered_off: bool = False


class OutageBegan(NamedTuple):
    """An outage begins whose end a later record states; if one goes on and `otherwise` says so, the row is left out."""

    line: int
    key: Hashable
    hosts: tuple[str, ...]
    start_ns: int
    otherwise: str = ""


class OutageEnded(NamedTuple):
    """An outage of nodes ends; where none has begun, the row is left out for the reason `otherwise`."""

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
    """Nodes were idle from a start to an end, None if that is still to come. `key` as `JobRan` has it."""

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
    since_ns, until_ns
        From when and to when they are there; None: all the time.
    was
        Names that they had before or later, in the order of the hosts.
    partitions
        Those that they belong to.
    down
        Whether they were down or drained when the list was made.
    idle, power
        Whether they were idle then; and what `power_of` says of them.
    cores, shares
        Cores, and shares of GPUs (shards, MPS), of each; None: not stated.
    """

    line: int
    hosts: tuple[str, ...]
    cluster: str = ""
    units: int | None = None
    part: bool = False
    since_ns: int | None = None
    until_ns: int | None = None
    was: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    down: bool = False
    idle: bool = False
    power: frozenset[str] = frozenset()
    cores: int | None = None
    shares: int | None = None


class Reserved(NamedTuple):
    """The scheduler had reserved nodes, which expected idle times heed; it is no row of its own."""

    nodes: array[int]
    start_ns: int
    end_ns: int | None


class RowUsed(NamedTuple):
    """A row is used, by records that come later."""

    line: int


class ColumnHeld(NamedTuple):
    """Values that a column of a job table holds in all rows of jobs that ran: at most `MOST_VALUES` different texts.

    `rows`: of those that were looked at.
    """

    column: str
    values: frozenset[str]
    rows: int


class JobGone(NamedTuple):
    """A job without an end ran at one instant and was gone at a later one.

    It is no row of its own, and a row that states the end outweighs it.
    """

    key: Hashable
    start_ns: int
    seen_ns: int
    gone_ns: int


class Skipped(NamedTuple):
    """A row should have said something of nodes and cannot be used.

    Parameters
    ----------
    reason, detail
        Why; reasons are counted, so they hold no values: the detail does.
    foreign
        Whether it is no record of the format at all. A file of nothing else is refused.
    node_ns
        Node-time of the job of this row, in nanoseconds, where the rest of the row states it; None: it does not.
    """

    line: int
    reason: str
    detail: str = ""
    foreign: bool = False
    node_ns: int | None = None


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


class OfOthers(NamedTuple):
    """Statement of a row that a filter leaves out, which is true for the log as a whole; it is no row of its own.

    Jobs are signs of life of their nodes, by indices of `Collector.others`; an idle node shows that the log states
    where nodes are idle.
    """

    filter: str
    record: JobRan | JobBlock | NodesIdle


Record: TypeAlias = (
    JobRan
    | JobBlock
    | JobPlanned
    | JobSuspended
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
    | ColumnHeld
    | JobGone
    | Skipped
    | Ignored
    | Observed
    | WrittenUntil
    | FileEnds
    | MachineStated
    | OfOthers
)


# Different texts of a column that are kept: one alone is suspicious.
MOST_VALUES = 2
# What is noted where a filter is not applied, and where it leaves jobs out.
NOT_STATED = "no {0} is stated: --{0} was not applied"
OTHERS = "jobs of other {}s were left out: nodes of this trace on which they ran look idle meanwhile"


@dataclass(frozen=True, slots=True)
class Settings(Filters):
    """Settings of the user for the readers of a log, with what they filter by.

    Parameters
    ----------
    fields
        Names of the columns, for a file without a header line; empty when the file has one.
    delimiter
        What separates columns; empty: as in the header line.
    processors_per_node
        Where a log counts processors (SWF), how many make a node; None: as the log's header says, else 1.
    machine_nodes
        How many nodes the machine has, where a log counts idle ones; None: as the log says.
    events
        The file states when nodes were unavailable, beside logs of jobs.
    mtime
        Take the time of a file's last change for that of its snapshot, where nothing else states one.
    walltimes
        Hand over time limits and the queue as well (`Collector.plans`), of jobs or of reservations.
    counts_as
        What words for states of nodes count as, where that is not what `state_of` has.
    """

    fields: tuple[str, ...] = ()
    delimiter: str = ""
    processors_per_node: int | None = None
    machine_nodes: int | None = None
    events: bool = False
    mtime: bool = False
    walltimes: bool = False
    counts_as: CountsAs = field(default_factory=dict)


@dataclass(slots=True)
class LineCount:
    """How many lines of a file were read so far; of JSON how many objects."""

    lines: int = 0


@dataclass(slots=True)
class Apart:
    """Name of the filter that leaves out the row which is read now; empty: the row is used."""

    filter: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One file on its way through a reader, which yields what its rows say as records (`bft.replay.logs.reading`).

    Parameters
    ----------
    lines
        The file's lines without their line ends.
    file
        Its name, for messages.
    into, diagnosis
        What the records of all files that make one trace go to, and the account of every line. `intake.collect` fills
        both; readers only look nodes and units up.
    clock
        Turns the times of the log into UTC nanoseconds.
    settings
        What the user says about the file.
    seen
        The lines read so far: readers that take the lines by `numbered` or `each_line` need not count.
    known_lists
        Host lists that were looked up, by cluster (`lists`), and apart from them those of rows that are left out.
    apart
        Whether a row is read that a filter leaves out (`refused`).

    Attributes
    ----------
    filters
        What the user filters by (`Filters.asked`), which each row asks for.
    """

    lines: Iterable[str]
    file: str
    into: Collector
    diagnosis: Diagnosis
    clock: Clock
    settings: Settings = field(default_factory=Settings)
    seen: LineCount = field(default_factory=LineCount)
    known_lists: dict[tuple[str, str], NodeLists] = field(default_factory=dict)
    apart: Apart = field(default_factory=Apart)
    filters: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", self.settings.asked())

    @property
    def units(self) -> UnitLog | None:
        """How many units nodes have, where these turn idle one by one; None: nodes turn idle as a whole."""
        return None if self.apart.filter else self.into.units

    def nodes(self, hosts: Sequence[str], cluster: str = "") -> array[int]:
        """Look nodes up by their names, new ones included, that a row of a cluster names; empty: it states none.

        A node trace is of one machine. Clusters whose nodes have names of their own may be read as one, which is
        noted; a node that two of them name would be one node that runs the jobs of both, and is refused.

        Raises
        ------
        InputError
            When that makes more nodes than any machine has, or a row of another cluster names one of them.
        """
        if self.apart.filter:
            return self.into.others(self.apart.filter).indices(hosts)
        nodes = self.into.indices(hosts)
        if cluster:
            self.meet(cluster)
            owners = self.into.owners
            for node, host in zip(nodes, hosts, strict=True):
                owner = owners.setdefault(node, cluster)
                if owner != cluster:
                    raise InputError(
                        f"node {host} is named by rows of cluster {owner[:80]!a} and of cluster {cluster[:80]!a}",
                        file=self.file,
                        hint="--cluster NAME uses the rows of one",
                    )
        return nodes

    def lists(self, cluster: str = "") -> NodeLists:
        """Return what looks host lists up in rows of this cluster, as `nodes` does names."""
        key = self.apart.filter, cluster
        lists = self.known_lists.get(key)
        if lists is None:
            lists = NodeLists(lambda hosts: self.nodes(hosts, cluster))
            self.known_lists[key] = lists
        return lists

    def meet(self, cluster: str) -> None:
        """Take a row into account of this cluster, whose nodes may have no names."""
        met = self.into.clusters
        if cluster and cluster not in met and not self.apart.filter:
            met[cluster] = None
            if len(met) > 1:
                why = "rows of several clusters were read as one machine: --cluster uses those of one"
                self.diagnosis.note(why, "", 0, ascii(", ".join(list(met)[:2]))[:80])

    def job_key(self, job: str, cluster: str, line: int) -> Hashable:
        """Return the key of a job of a cluster (empty: the record states none), by which its records are found."""
        left_out = self.apart.filter
        into = self.into.others(left_out) if left_out else self.into
        return into.job_keys.key(job, cluster, self.file, line)

    def begun(self, key: Hashable) -> Begun | None:
        """Return the job that has begun by a record of its own (`JobBegan`), in this file or before, and goes on."""
        return self.into.kept.jobs.get(key)

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield the lines with their numbers, and count them."""
        seen = self.seen
        for number, line in enumerate(self.lines, 1):
            seen.lines += 1
            yield number, line

    def note(
        self, reason: str, line: int, detail: str = "", *, loud: bool = False
    ) -> None:
        """Say something worth telling about a row that is used, or (line 0) about the file; see `Diagnosis.note`."""
        if not self.apart.filter:
            self.diagnosis.note(reason, self.file, line, detail, loud=loud)

    def note_no_units(self, line: int, log: UnitLog) -> None:
        """Note that a job holds none of its nodes' units, which then look idle."""
        why = f"a job without {log.unit.plural} leaves those of its nodes idle"
        self.note(why, line)

    def keep(self, line: int, **stated: str | None) -> None:
        """Check that a job states what the user asks for; parameters as `other` has them.

        Raises
        ------
        OtherJob
            When it states something else.
        """
        other = self.other(line, **stated)
        if other:
            raise OtherJob(other, f"job of another {other}")

    def refused(
        self, why: Unusable | LeftOut, line: int, again: Callable[[], Iterable[Record]]
    ) -> list[Record]:
        """Return the records of a row that a reader refuses.

        A row that a filter leaves out is read `again` for what is true for the log as a whole (`OfOthers`).
        """
        if isinstance(why, OtherJob):
            return [refusal(why, line), *self.of_others(why.filter, again)]
        return [refusal(why, line)]

    def of_others(
        self, left_out: str, again: Callable[[], Iterable[Record]]
    ) -> list[Record]:
        """Read a row that a filter leaves out, with nodes apart from those of the log, without filters and notes."""
        found: list[Record] = []
        self.apart.filter = left_out
        try:
            for record in again():
                if isinstance(record, JobBegan):
                    nodes = self.nodes(record.hosts)
                    record = JobRan(
                        record.line, record.key, nodes, record.start_ns, None
                    )
                if isinstance(record, JobRan | NodesIdle):
                    found.append(OfOthers(left_out, record))
        except InputError:  # of the whole log, such as too many nodes
            raise
        except (Unusable, LeftOut, ValueError, RecursionError, *MISSHAPEN):
            # The row is accounted for as one that is left out, be it whole or not.
            return found
        finally:
            self.apart.filter = ""
        return found

    @property
    def elsewhere(self) -> bool:
        """Whether a row of another machine is read, which is left out."""
        return bool(self.apart.filter) and not FILTERS[self.apart.filter].of_jobs

    def refuse_unstated(self, expected: Mapping[str, str]) -> None:
        """Refuse a file that does not state of jobs what the user filters them by.

        Parameters
        ----------
        expected
            What the file lacks, as its header shows: by the name of a filter, such as `partition`, what would state it,
            a column or another form of the log.

        Raises
        ------
        InputError
            When the user asks for some jobs by what the file does not state.
        """
        for name in self.filters:
            if FILTERS[name].of_jobs and name in expected:
                why = f"--{name}: the file states no {name}s: expected {expected[name]}"
                raise InputError(why, file=self.file)

    def belongs(self, **stated: str | None) -> str:
        """Return the name of the first filter that leaves a record out, or an empty text for one that is used.

        Parameters
        ----------
        **stated
            What the record states, by the names of filters, such as `cluster` and `partition`; see `Filter.keeps`. What
            is not named here is None.
        """
        left_out = (
            name
            for name, wanted in self.filters.items()
            if not FILTERS[name].keeps(wanted, stated.get(name))
        )
        return next(left_out, "")

    def other(self, line: int, count: int = 1, /, **stated: str | None) -> str:
        """Return what `belongs` says of a record, and note what is worth telling.

        Parameters
        ----------
        line
            Where the record begins, of several the first.
        count
            How many records state these.
        **stated
            As `belongs` has it.
        """
        for name, wanted in self.filters.items():
            value = stated.get(name)
            if value is None or self.apart.filter:
                continue
            columns, diagnosis = self.into.columns, self.diagnosis
            kept = FILTERS[name].keeps(wanted, value)
            if not FILTERS[name].of_jobs:
                if not value:
                    why = NOT_STATED.format(name)
                    diagnosis.note(why, self.file, line, count=count)
            elif kept:
                columns.chosen.add(name)
            else:
                columns.others.setdefault(name, {}).setdefault(value[:80])
                why, detail = OTHERS.format(name), ascii(value[:80])
                diagnosis.note(why, self.file, line, detail, count=count, loud=True)
            if not kept:
                return name
        return ""


# Names that a node trace can hold; logs with damaged bytes or control characters have others.
_HOST = re.compile(r"[!-~]{1,255}")


def each_line(
    reading: Reading,
    record: Callable[[str, int], Iterable[Record]],
    *,
    comment: str = "#",
) -> Iterator[Record]:
    """Yield the records of each line that is neither blank nor a comment.

    Parameters
    ----------
    reading
        As every reader has it.
    record
        Yields the records of a line, given with its number, or raises `Unusable`, `Foreign` or `LeftOut`.
    comment
        What comments begin with.
    """
    for number, line in reading.numbered():
        if not line or line.isspace() or line.startswith(comment):
            continue
        try:
            yield from record(line, number)
        except (Unusable, LeftOut) as why:
            yield from reading.refused(why, number, partial(record, line, number))


def first_line(reading: Reading, comments: tuple[str, ...] = ()) -> tuple[str, Reading]:
    """Return the first line that is neither blank nor a comment, and the reading that still has all lines.

    `comments` are what comments begin with. Where all lines are blank or comments it is the last one.
    """
    lines = LogLines.of(reading.lines)
    head = lines.peek(lambda line: line.strip() and not line.startswith(comments))
    return (head[-1] if head else ""), replace(reading, lines=lines)


def below_header(reading: Reading, begin: Callable[[str], bool]) -> Reading:
    """Return the reading with blank lines in the place of the header, also where files put together repeat it.

    `begin` is given the first line that is not blank, and says whether that is the header.
    """

    def lines() -> Iterator[str]:
        header: str | None = None
        begun = False
        for line in reading.lines:
            if not begun and line and not line.isspace():
                begun = True
                header = line if begin(line) else None
            yield "" if line == header else line

    return replace(reading, lines=lines())


def columns_of(
    names: Sequence[str], wanted: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """Return the place of each wanted column, by the first of its names that is there, or -1.

    >>> columns_of(["t_cleanup", "jobid"], {"id": ("jobid", "id"), "end": ("t_inactive", "t_cleanup"), "user": ()})
    {'id': 1, 'end': 0, 'user': -1}
    """
    return {
        column: next((names.index(name) for name in aliases if name in names), -1)
        for column, aliases in wanted.items()
    }


def refusal(why: Unusable | LeftOut, line: int) -> Record:
    """Return the record of a row that a reader cannot use, or has no use for."""
    if isinstance(why, LeftOut):
        return Ignored(line, str(why))
    return Skipped(line, why.reason, why.detail, foreign=isinstance(why, Foreign))


def host_names(names: Iterable[str], where: str) -> tuple[str, ...]:
    """The hosts, each once, in their order.

    Raises
    ------
    Unusable
        When one is no name of a host; `where` says which field it is of.

    Examples
    --------
    >>> host_names(["cn1", "cn2", "cn1"], "exec_host")
    ('cn1', 'cn2')
    """
    hosts = tuple(dict.fromkeys(names))
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise Unusable(f"{where} holds what is no name of a host", ascii(host[:80]))
    return hosts


def in_order(start_ns: int, end_ns: int | None) -> None:
    """Raise `Unusable` for what ends before it starts; an end of None is still to come.

    >>> in_order(2_000_000_000, 1_000_000_000)
    Traceback (most recent call last):
    bft.replay.logs.diagnosis.Unusable: ('ends before it starts', '1 s before')
    """
    if end_ns is not None and end_ns < start_ns:
        raise Unusable(
            "ends before it starts", f"{(start_ns - end_ns) / 1e9:g} s before"
        )


# A job takes some 10 kB, with 10,000 steps some 30 MB; as Python's values at most 25 times as much.
MOST_ELEMENT = 32 << 20
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
# What an object of another shape raises in a reader that takes it for granted.
MISSHAPEN = (KeyError, TypeError, AttributeError, IndexError)


def each_object(
    reading: Reading,
    record: Callable[[dict[str, Any], str, int], Iterable[Record]],
    *,
    keys: Collection[str] | None,
    expected: str,
    command: str,
    bare: bool = True,
    within: Collection[str] = (),
    nodes: str = "holds no names of nodes",
) -> Iterator[Record]:
    """Yield the records of each object; objects count as lines.

    Parameters
    ----------
    reading
        As every reader has it.
    record
        Yields the records of an object, given with its key and line, or raises `Unusable` or `LeftOut`.
    keys, bare, within
        As `elements` has them.
    expected
        What an object of another shape is not, for a message.
    command
        What exports such a file.
    nodes
        What is wrong with an object whose host list cannot be read.

    Raises
    ------
    InputError
        When there is no such object.
    """
    lines, file = reading.lines, reading.file
    for number, name, text in elements(
        lines, keys, file, command, bare=bare, within=within
    ):
        reading.seen.lines += 1
        try:
            entry = json.loads(text)
            yield from record(entry, name, number)
        except (
            InputError
        ):  # of the whole log, such as too many nodes; it is a ValueError as well
            raise
        except (Unusable, LeftOut) as why:
            again = partial(record, entry, name, number)
            yield from reading.refused(why, number, again)
        except HostListError as error:
            yield Skipped(number, nodes, str(error))
        except (ValueError, RecursionError) as error:
            yield Skipped(number, "is not JSON", str(error))
        except MISSHAPEN as error:
            yield Skipped(number, f"is no {expected}", repr(error)[:200])


def instant_ns(value: object) -> int | None:
    """UTC nanoseconds of seconds since 1970, with a fraction or without; None for 0 and for what is missing.

    Raises
    ------
    TypeError
        When it is no time.
    """
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
    ):
        raise TypeError(f"{value!r} is no time in seconds since 1970")
    if not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no time in seconds since 1970")
    whole = math.floor(value)
    return whole * SECOND_NS + round((value - whole) * 1_000_000) * 1000 or None


def elements(
    lines: Iterable[str],
    keys: Collection[str] | None,
    file: str,
    command: str,
    *,
    bare: bool = False,
    within: Collection[str] = (),
) -> Iterator[tuple[int, str, str]]:
    """Each object in the list, or in the object, that the outermost object has under one of the keys.

    Yields the line on which it begins, its own key (empty in a list), and its text. `command` exports such a file.

    Parameters
    ----------
    lines
        Of the file; several JSON texts may follow one another.
    keys
        None: all objects that the outermost object holds, whatever their keys.
    file, command
        For messages.
    bare
        Also the objects of an outermost list, and outermost objects that have none of the keys.
    within
        Where all objects are taken: those under these keys are opened, and each object in them is taken instead.

    Raises
    ------
    InputError
        When there is no such object or list, or an object in it has no end within reason.
    """
    depth = begun = size = level = 0
    last, name, outer, inside, seen = "", "", "", False, False
    pieces: list[str] = []
    for number, line in enumerate(lines, 1):
        begin = 0  # what of this line belongs to the object begun
        for token in _TOKENS.finditer(line):
            kind = token[0][0]
            if kind == '"':
                if depth == 1:
                    last, name = token[0][1:-1], ""
                elif depth == 2 and inside:
                    name = token[0][1:-1]
            elif kind in "{[":
                depth += 1
                starts = 0
                if depth == 1:
                    outer = kind
                    inside = False
                    starts = int(bare and kind == "{" and keys is not None)
                    last = name = ""
                elif depth == 2 and outer == "[":
                    starts = 2 * (bare and kind == "{")
                elif depth == 2 and keys is None and last not in within:
                    name, starts = last, 2 * (kind == "{")
                elif depth == 2:
                    inside = last in (within if keys is None else keys)
                    if inside:
                        seen, begun, pieces = True, 0, []
                elif depth == 3 and inside and kind == "{":
                    starts = 3
                if starts:
                    begun, begin, size, level = number, token.start(), 0, starts
                    seen = True
            else:
                depth = max(0, depth - 1)
                if begun and depth == level - 1:
                    yield (
                        begun,
                        name if level > 1 else "",
                        "\n".join([*pieces, line[begin : token.end()]]),
                    )
                    begun, pieces = 0, []
                if depth == 1:
                    inside = False
        if begun:
            pieces.append(line[begin:])
            size += len(line) - begin + 1
            if size > MOST_ELEMENT:
                raise InputError(f"line {begun}: an object here has no end", file=file)
    if begun:
        yield begun, name if level > 1 else "", "\n".join(pieces)
    if not seen:
        wanted = f"with a list {' or '.join(map(repr, keys))}" if keys else "of objects"
        raise InputError(
            f"is not JSON {wanted}", file=file, hint=f"export with {command}"
        )
