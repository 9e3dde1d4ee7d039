"""Jobs of Slurm: what a record says of nodes and units, and the rows of `sacct`, one by one."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bft.models import InputError
from bft.replay.logs.hostlists import NO_HOSTS, HostListError
from bft.replay.logs.reading import (
    FILTERS,
    MOST_VALUES,
    ColumnHeld,
    Ignored,
    JobPlanned,
    JobRan,
    JobSuspended,
    Origin,
    Plan,
    Reading,
    Record,
    Skipped,
    Unusable,
)
from bft.replay.logs.slurm_table import Fields, Table
from bft.replay.logs.times import (
    FEWEST,
    LIMITS,
    MISSING,
    UNLIMITED,
    is_missing,
    limit_ns,
    no_time,
)
from bft.replay.logs.units import (
    WHOLE,
    Held,
    UnitLog,
    check,
    indices,
    of_gres,
    of_tres,
    spread,
)

# In OverSubscribe of a job up to 25.11, or `shared` in JSON: nobody else's jobs run on its nodes.
_NOT_SHARED = frozenset({"NO", "EXCLUSIVE", "USER", "MCS", "TOPO", "NONE"})
# The same in Exclusive, from 26.05 on beside an OverSubscribe that says NO of jobs as they are by default; in JSON
# from 23.11 on.
_EXCLUSIVE = frozenset({"NODE", "USER", "MCS", "TOPO", "TRUE", "EXCLUSIVE"})


@dataclass(frozen=True, slots=True)
class Stated:
    """The units of a job that a record states.

    Parameters
    ----------
    allocated
        Trackable resources of all its nodes (AllocTRES).
    together
        Generic resources of all its nodes (JOB_GRES).
    per_node
        Of each of its nodes (TresPerNode).
    cores
        Cores on all its nodes (AllocCPUS), where `allocated` does not state them.
    alone
        Whether its nodes are its alone.
    detail
        Of each node generic resources with the numbers of GPUs; empty: not stated. Where none of them states GPUs they
        count for nothing: a job that has ended has returned its own.
    """

    allocated: str = ""
    together: str = ""
    per_node: str = ""
    cores: int | None = None
    alone: bool = False
    detail: tuple[str, ...] = ()


def is_alone(shared: Iterable[str], exclusive: Iterable[str]) -> bool:
    """Whether a job has its nodes alone.

    Parameters
    ----------
    shared
        Words of OverSubscribe, or of `shared` in JSON.
    exclusive
        Words of Exclusive, which decide where there are any.

    Examples
    --------
    >>> is_alone(["NO"], []), is_alone(["NO"], ["NO"]), is_alone(["OK"], ["NODE"])
    (True, False, True)
    """
    stated = {word.strip().upper() for word in exclusive} - {"", "NONE", "(NULL)"}
    if stated:
        return not stated.isdisjoint(_EXCLUSIVE)
    return not _NOT_SHARED.isdisjoint(word.strip().upper() for word in shared)


def held(
    stated: Stated, nodes: Sequence[int], log: UnitLog, reading: Reading, line: int
) -> tuple[Held, ...]:
    """Return the units that a job held of each of its nodes.

    Raises
    ------
    Unusable
        When that is more than they have.
    """
    unit, sizes = log.unit, log.sizes(nodes)
    if stated.alone:
        return (WHOLE,) * len(nodes)
    if not unit.cores and len(stated.detail) == len(nodes):
        named = tuple(indices(text) or of_gres(text) or 0 for text in stated.detail)
        if any(named):
            check(named, sizes)
            return named
    gpus, cores = of_tres(stated.allocated, "gpu"), of_tres(stated.allocated, "cpu")
    gpus = of_gres(stated.together) if gpus is None else gpus
    total = unit.amount(gpus, stated.cores if cores is None else cores)
    if not unit.cores and total is None and stated.per_node:
        each = of_gres(stated.per_node)
        total = None if each is None else each * len(nodes)
    if total is None and (unit.cores or not (stated.allocated or stated.per_node)):
        why = "a job states no resources: it counts as on all units of its nodes"
        reading.note(why, line, loud=True)
        return (WHOLE,) * len(nodes)
    if not total and not unit.cores:
        shared = _shares(stated, nodes, log, reading, line)
        if shared is not None:
            return shared
        cores_of_job = stated.cores if cores is None else cores
        if log.are_full(nodes, cores_of_job):
            why = "a job without GPUs has all cores of its nodes: it counts as on all their GPUs"
            reading.note(why, line)
            return (WHOLE,) * len(nodes)
    if not total:
        reading.note_no_units(line, log)
        return (0,) * len(nodes)
    given = unit.held(spread(total, [unit.room(size) for size in sizes]), sizes)
    if (
        len(nodes) > 1
        and not stated.per_node
        and any(some != size for some, size in zip(given, sizes, strict=True))
    ):
        why = f"the {unit.plural} of a job are known of all its nodes together: they count as spread evenly"
        reading.note(why, line)
    return given


def _shares(
    stated: Stated, nodes: Sequence[int], log: UnitLog, reading: Reading, line: int
) -> tuple[Held, ...] | None:
    """Return the shares of GPUs (shards, MPS) that a job without GPUs held; None: it had none."""
    total = of_tres(stated.allocated, "shard", "mps")
    total = of_gres(stated.together, "shares") if total is None else total
    if total is None and stated.per_node:
        each = of_gres(stated.per_node, "shares")
        total = None if each is None else each * len(nodes)
    if not total:
        return None
    held = log.shared(nodes, total)
    if held is None:
        why = "how many shares (shards, MPS) a GPU has is not known (--nodes: scontrol show node says it): each job "
        why += "with some counts as on one GPU of each node"
        reading.note(why, line, loud=True)
        return (1,) * len(nodes)
    return held


def of_entry(entry: Mapping[str, Any]) -> Stated:
    """Read the units of a job in JSON: `tres.allocated` of sacct, else `tres_alloc_str`, `gres_detail` and the like.

    Raises
    ------
    TypeError, AttributeError, KeyError
        When it has another shape.
    """
    tres = entry.get("tres")
    listed = tres.get("allocated") if isinstance(tres, dict) else None
    if listed is None:
        allocated = str(entry.get("tres_alloc_str") or "")
    else:
        allocated = ",".join(
            "/".join(filter(None, (str(each["type"]), str(each.get("name") or ""))))
            + f"={int(each['count'])}"
            for each in listed
            if each.get("count") is not None  # energy that nothing measures
        )
    detail = entry.get("gres_detail")
    return Stated(
        allocated=allocated,
        per_node=str(entry.get("tres_per_node") or ""),
        alone=is_alone(*(_words(entry.get(name)) for name in ("shared", "exclusive"))),
        detail=tuple(str(text) for text in detail) if isinstance(detail, list) else (),
    )


def _words(value: Any) -> list[str]:
    return (
        [str(word) for word in value] if isinstance(value, list) else [str(value or "")]
    )


# States in which a job that has started still holds its nodes; in Slurm's data base they are numbers.
HOLDING = frozenset(
    {
        "RUNNING",
        "SUSPENDED",
        "COMPLETING",
        "CONFIGURING",
        "STAGE_OUT",
        "SIGNALING",
        "STOPPED",
        "RESIZING",
        "",
        "1",  # running
        "2",  # suspended
    }
)
# States of jobs that have not started.
WAITING = frozenset(
    {
        "PENDING",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
        "0",  # pending
    }
)


@dataclass(frozen=True, slots=True)
class Job:
    """Key, state, UTC nanoseconds of start and end (None: unknown), and node indices, or None and their count.

    What it held of each node is None if that is all of it. The key is that of `Collector.job`: the id with cluster and
    array element or component. `suspended_ns`: for how long it was suspended, as far as that is stated.
    """

    key: Hashable
    state: str
    start: int | None
    end: int | None
    nodes: array[int] | None
    count: int | None = None
    held: Sequence[Held] | None = None
    suspended_ns: int = 0
    origin: Origin | None = None


def suspension(
    job: Job, changed_ns: int | None, before_ns: int | None
) -> Iterator[JobSuspended]:
    """Yield when a listed job was suspended or resumed last; it had run for `before_ns` when it was suspended."""
    goes_on = job.state == "SUSPENDED"
    if job.start is not None and changed_ns is not None and (before_ns or goes_on):
        yield JobSuspended(job.key, job.start, changed_ns, before_ns or 0, goes_on)


def so_far(
    state: str, start: int | None, end: int | None
) -> tuple[int | None, int | None]:
    """Start and end of what squeue and scontrol show, as far as they have come.

    The end of a job that runs is its limit there, and start and end of one that waits are guesses.
    """
    return (
        None if state in WAITING else start,
        None if state in HOLDING | WAITING else end,
    )


def plan(job: Job, known_ns: int | None, limit_ns: int | None) -> Plan:
    """Make the plan of a job, as the scheduler knew it: `count` is the number of nodes that it asks for while it waits.

    A job that is cancelled while it waits has no start, or that of its end, and no nodes; one whose end is missing
    though it has ended is known no more, as nobody knows when it returned its nodes.
    """
    asked = job.count or 0
    size = asked if job.nodes is None else len(job.nodes)
    lost = job.end is None and _word(job.state) not in HOLDING | WAITING
    if job.start is None or job.start == job.end or not size:
        return Plan(known_ns, None, job.end, None, 0 if lost else asked)
    return Plan(
        known_ns, job.start, job.end, limit_ns, 0 if lost else size, job.nodes or None
    )


def _word(state: str) -> str:
    return state.split(" ")[0].rstrip("+*").upper()


def judge(job: Job, line: int) -> JobRan | Skipped | Ignored:
    """Return the run of a job, or why it is left out or skipped."""
    size = job.count if job.nodes is None else len(job.nodes)
    if job.start is None:
        return Ignored(line, "job that never started")
    if job.end is None and _word(job.state) not in HOLDING:
        if size:
            return Skipped(line, "has ended, but its end is missing", job.state)
        return Ignored(line, "job that never started")
    if job.end is not None and job.end < job.start:
        before = f"{(job.start - job.end) / 1e9:g} s before"
        return Skipped(line, "ends before it starts", before)
    if job.end == job.start:
        return Ignored(line, "job of zero length" if size else "job that never started")
    if not size:
        if job.end is None:
            return Ignored(line, "job that never started")
        return Skipped(line, "job ran, but names no nodes", job.state)
    nodes = size if job.nodes is None else job.nodes
    return JobRan(
        line, job.key, nodes, job.start, job.end, job.held, once=True,
        suspended_ns=job.suspended_ns, origin=job.origin,
    )  # fmt: skip


COMMAND = "sacct -P -X --format=JobID,NodeList,AllocNodes,Start,End,State"
# Further columns that --walltimes asks for, each by the name of the first that is there.
PLANNED = (("eligible", "submit"), LIMITS, FEWEST)
# Columns of which one value in all rows means that others were left out.
WATCHED = ("user", "partition", "state")
# Columns that state what a job held of its nodes.
UNITS = [
    ("alloctres",),
    ("trespernode",),
    ("alloccpus", "ncpus"),
    ("oversubscribe",),
    ("exclusive",),
    ("allocgres",),  # up to 20.02
]


class Rows:
    """The rows of one file, one by one; and what those that are read by columns need to know.

    Attributes
    ----------
    places
        Columns of id, start, end, nodes, and number of nodes (-1: there is none).
    at_cluster, at_suspended
        Columns of these where they matter, or -1.
    at_filters
        Columns of what users filter by, or -1; empty unless a filter is asked for.
    named
        Whether rows name their nodes; otherwise they only count them.
    units, planned
        What reads units and plans off a row; None: not asked for.
    """

    def __init__(self, reading: Reading, table: Table) -> None:
        self._reading = reading
        at = table.at
        self.places = (
            at["jobid"],
            at["start"],
            at["end"],
            at["nodelist"],
            at["allocnodes"],
        )
        self._at_state, self.at_cluster = at["state"], at["cluster"]
        self.at_suspended = at["suspended"]
        self.named = table.columns[at["nodelist"]] == "nodelist"
        filters = FILTERS if reading.filters else ()
        self.at_filters = {name: at.get(name, -1) for name in filters}
        missing = (name for name, place in self.at_filters.items() if place < 0)
        named = ((name, name.capitalize()) for name in missing)
        reading.refuse_unstated(
            {
                name: f"the column {column} (export with {COMMAND},{column})"
                for name, column in named
            }
        )
        self._steps = self._first_step = 0
        # Watched columns that hold one value so far, and what all of them hold; and rows that were looked at.
        self.watched = {name: at[name] for name in WATCHED if at.get(name, -1) >= 0}
        self._values = {name: set[str]() for name in self.watched}
        self._looked_at = 0
        # By what they were left out: how many rows, and the line of the first.
        self._others: dict[str, tuple[int, int]] = {}
        self.units = HeldColumns(reading, table) if reading.units is not None else None
        self.planned = (
            PlanColumns(reading, table) if reading.settings.walltimes else None
        )

    def see(self, rows: int, values: Mapping[str, Iterable[str]]) -> None:
        """Rows of jobs that ran hold these values in the watched columns."""
        self._looked_at += rows
        for name, texts in values.items():
            held = self._values[name]
            held.update(text.partition(" ")[0] for text in texts if text)
            if len(held) >= MOST_VALUES:
                del self.watched[name]

    def counted(self) -> Iterator[Record]:
        """Yield what was counted alone: rows, and what columns hold."""
        for name, held in self._values.items():
            values = frozenset(sorted(held)[:MOST_VALUES])
            yield ColumnHeld(name, values, self._looked_at)
        if self._steps:
            yield Ignored(self._first_step, "job step", self._steps)
        for other, (count, first) in self._others.items():
            yield Ignored(first, f"job of another {other}", count)

    def steps(self, first: int, count: int) -> None:
        """Count job steps."""
        self._first_step = self._first_step or first
        self._steps += count

    def other(self, stated: Mapping[str, str], first: int, count: int = 1) -> str:
        """Return the filter that leaves rows out by what they state in its column, or nothing; they are counted."""
        other = self._reading.other(first, count, **stated)
        if other:
            known, line = self._others.get(other, (0, first))
            self._others[other] = known + count, line
        return other

    def each(self, rows: Iterable[tuple[int, Fields]]) -> Iterator[Record]:
        """Yield the records of rows."""
        for number, fields in rows:
            if isinstance(fields, Skipped):
                yield fields
            else:
                yield from self.row(number, fields)

    def _filtered(self, number: int, fields: list[str]) -> str:
        """Return the filter that leaves a row out, or nothing."""
        stated = {
            name: fields[place] if place >= 0 else ""
            for name, place in self.at_filters.items()
        }
        return self.other(stated, number)

    def of_others(self, left_out: str, number: int, fields: list[str]) -> list[Record]:
        """Return what a row that a filter leaves out says of when its nodes were alive."""
        return self._reading.of_others(left_out, partial(self._ran, number, fields))

    def _ran(self, number: int, fields: list[str]) -> Iterator[Record]:
        """Yield the run of a row by its times and nodes alone."""
        reading = self._reading
        at_id, at_start, at_end, at_nodes, _ = self.places
        if self.named:
            start = reading.clock.parse(fields[at_start], reading.file, number)
            end = reading.clock.parse(fields[at_end], reading.file, number, start)
            state = fields[self._at_state] if self._at_state >= 0 else ""
            nodes: array[int] = reading.lists()(fields[at_nodes])
            yield judge(Job(fields[at_id], state, start, end, nodes), number)

    def row(self, number: int, fields: list[str]) -> Iterator[Record]:
        """Yield the records of one row."""
        reading = self._reading
        at_id, at_start, at_end, at_nodes, at_count = self.places
        if "." in fields[at_id]:
            self.steps(number, 1)
            return
        cluster = fields[self.at_cluster] if self.at_cluster >= 0 else ""
        other = self._filtered(number, fields) if self.at_filters else ""
        if other:
            yield from self.of_others(other, number, fields)
            return
        key = reading.job_key(fields[at_id], cluster, number)
        start_text, end_text = fields[at_start], fields[at_end]
        nodes_text = fields[at_nodes]
        start = reading.clock.parse(start_text, reading.file, number)
        end = reading.clock.parse(end_text, reading.file, number, start)
        nodes: array[int] | None
        try:
            nodes = reading.lists(cluster)(nodes_text) if self.named else None
        except HostListError as error:
            if nodes_text.rstrip().endswith("+"):
                raise InputError(
                    f"line {number}: the lists of nodes are cut: {nodes_text[-40:]!a} ends in +",
                    file=reading.file,
                    hint=f"export with {COMMAND}, in which columns have no width",
                ) from error
            why = "column NodeList holds no host list"
            counted = fields[at_count] if at_count >= 0 else ""
            lost = _node_ns(counted, start, end)
            yield Skipped(number, why, str(error), node_ns=lost)
            return
        held = None
        has_run = nodes and start is not None and (end is None or start < end)
        if self.units is not None and nodes and has_run:
            try:
                held = self.units.held(fields, nodes, number)
            except Unusable as why_not:
                lost = _node_ns(str(len(nodes)), start, end)
                yield Skipped(number, why_not.reason, why_not.detail, node_ns=lost)
                return
        state = fields[self._at_state] if self._at_state >= 0 else ""
        if self.planned is not None:
            counted = fields[at_count] if at_count >= 0 else ""
            job = Job(key, state, start, end, nodes)
            yield self.planned.record(job, fields, counted, number)
        # The most frequent row, without a detour.
        if has_run:
            self.see(
                1, {name: (fields[place],) for name, place in self.watched.items()}
            )
        at_suspended = self.at_suspended
        lost_ns = limit_ns(fields[at_suspended]) or 0 if at_suspended >= 0 else 0
        if nodes and start is not None and end is not None and start < end:
            yield JobRan(
                number, key, nodes, start, end, held, once=True, suspended_ns=lost_ns
            )
            if at_count >= 0 and fields[at_count] != str(len(nodes)):
                why = "NodeList and AllocNodes (NNodes) tell different numbers of nodes"
                reading.note(why, number, f"{len(nodes)} and {fields[at_count]!r}")
            return
        job = Job(key, state, start, end, nodes, held=held)
        times = start_text, end_text
        counted = "" if self.named else nodes_text
        record = _other(job, times, counted, reading, cluster, number)
        if isinstance(record, Skipped) and at_count >= 0:
            record = record._replace(node_ns=_node_ns(fields[at_count], start, end))
        yield record


def _node_ns(counted: str, start: int | None, end: int | None) -> int | None:
    """Node-time of a job by the number of its nodes and its times; None where a row does not state them."""
    if start is None or end is None or end < start or not counted.isdecimal():
        return None
    return int(counted[:9]) * (end - start)


class PlanColumns:
    """The columns of when a job could run, its limit and its number of nodes.

    Attributes
    ----------
    known, limit, nodes
        Places of these.
    """

    def __init__(self, reading: Reading, table: Table) -> None:
        self._reading = reading
        self.known, self.limit, self.nodes = (table.at[names[0]] for names in PLANNED)
        if min(self.known, self.limit) < 0:
            raise InputError(
                "--walltimes needs the columns Timelimit, and Eligible or Submit", file=reading.file,
                hint=f"export with {COMMAND},NNodes,Eligible,Submit,Timelimit",
            )  # fmt: skip
        self._minutes = table.columns[self.limit] == "timelimitraw"

    def limit_ns(self, text: str) -> int | None:
        """The limit that a cell holds; None: none, or it is none (`is_limit`)."""
        return limit_ns(text, minutes=self._minutes)

    def is_limit(self, text: str) -> bool:
        """Whether a cell holds a limit, or what Slurm writes where there is none."""
        if text in MISSING or text in UNLIMITED:
            return True
        return self.limit_ns(text) is not None

    def record(
        self, job: Job, fields: list[str], counted: str, line: int
    ) -> JobPlanned:
        """Return what the scheduler knew of a job; `counted` is its number of nodes where no other column has it."""
        reading, text = self._reading, fields[self.limit]
        stated = fields[self.nodes] if self.nodes >= 0 else ""
        count = stated if stated.isdecimal() else counted
        whole = int(count[:9]) if count.isdecimal() else 0
        if not self.is_limit(text):
            why = "column Timelimit holds no limit: taken for unlimited"
            reading.note(why, line, ascii(text[:40]))
        known = reading.clock.parse(fields[self.known], reading.file, line)
        job = replace(job, count=whole)
        return JobPlanned(job.key, plan(job, known, self.limit_ns(text)))


class HeldColumns:
    """The columns that state what a job held of its nodes.

    Attributes
    ----------
    places
        Of the columns of `UNITS`, in their order, or -1.
    """

    def __init__(self, reading: Reading, table: Table) -> None:
        self._reading = reading
        at = {names[0]: table.at[names[0]] for names in UNITS}
        self.places = tuple(at.values())
        self._states_gres = at["allocgres"] >= 0
        self._states_exclusive = at["exclusive"] >= 0
        units = reading.units
        by_cores = units is not None and units.unit.cores > 0
        stating = ("alloccpus",) if by_cores else ("trespernode", "allocgres")
        if all(at[name] < 0 for name in ("alloctres", *stating)):
            raise InputError(
                "the table has no column AllocTRES, which states what jobs held of their nodes",
                file=reading.file,
                hint=f"export with {COMMAND},AllocTRES",
            )

    def held(
        self, fields: list[str], nodes: Sequence[int], line: int
    ) -> tuple[Held, ...] | None:
        """Return the units that the job of a row held of each node; None: all."""
        cells = [fields[place] if place >= 0 else "" for place in self.places]
        return self.of_cells(cells, nodes, line)

    def of_cells(
        self, cells: Sequence[str], nodes: Sequence[int], line: int
    ) -> tuple[Held, ...] | None:
        """Return the units by the cells of `places`."""
        log = self._reading.units
        if log is None:
            return None
        tres, per_node, cores, shared, exclusive, gres = cells
        if self._states_gres and not gres:
            gres = "gpu:0"
        known = cores.isdecimal() and len(cores) < 10
        stated = Stated(
            allocated=tres,
            together=gres,
            per_node=per_node,
            cores=int(cores) if known else None,
            alone=self._is_alone(shared, exclusive, line),
        )
        return held(stated, nodes, log, self._reading, line)

    def _is_alone(self, shared: str, exclusive: str, line: int) -> bool:
        """Whether the job has its nodes alone; sacct has these columns from 26.05 on."""
        if shared.strip().upper() == "NO" and not self._states_exclusive:
            why = "OverSubscribe=NO is no statement: the column Exclusive states which jobs have their nodes alone"
            self._reading.note(why, line, loud=True)
            return False
        return is_alone([shared], [exclusive])


def _other(
    job: Job,
    times: tuple[str, str],
    counted: str,
    reading: Reading,
    cluster: str,
    line: int,
) -> Record:
    """Return the record of a row that is not of the most frequent kind.

    `times` are start and end as the table has them, and `counted` the number of nodes where it does not name them.
    """
    for column, text, time in (
        ("Start", times[0], job.start),
        ("End", times[1], job.end),
    ):
        if time is None and not is_missing(text):
            return Skipped(line, f"column {column} holds no time", no_time(text))
    if job.nodes is None:
        if not counted.isdecimal() and counted not in NO_HOSTS:
            why = "the column of the number of nodes holds no number"
            return Skipped(line, why, ascii(counted[:80]))
        job = replace(job, count=int(counted[:9]) if counted.isdecimal() else 0)
        reading.meet(cluster)
    return judge(job, line)
