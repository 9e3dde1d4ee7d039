"""Jobs of Slurm: what a record says of nodes and units, and the rows of `sacct`, one by one."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bft.models import InputError
from bft.replay.logs.diagnosis import Unusable
from bft.replay.logs.hostlists import NO_HOSTS, HostListError
from bft.replay.logs.reading import Clusters, Reading
from bft.replay.logs.slurm_table import Table
from bft.replay.logs.times import FEWEST, LIMITS, MISSING, UNLIMITED, limit_ns, no_time
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
from bft.replay.logs.walltimes import Plan

# In OverSubscribe of a job, or `shared` and `exclusive` in JSON: nobody else's jobs run on its nodes.
_ALONE = frozenset({"NO", "EXCLUSIVE", "USER", "MCS", "TOPO", "NONE", "TRUE"})


@dataclass(frozen=True, slots=True)
class Stated:
    """What a record states of a job's units.

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


def is_alone(text: str) -> bool:
    """Whether OverSubscribe, or what JSON has for it, says that a job has its nodes alone."""
    return text.strip().upper() in _ALONE


def held(
    stated: Stated, nodes: Sequence[int], log: UnitLog, reading: Reading, line: int
) -> tuple[Held, ...]:
    """What a job that has run held of each of its nodes.

    Raises
    ------
    Unusable
        When that is more than they have.
    """
    unit, sizes, diagnosis = log.unit, log.sizes(nodes), reading.diagnosis
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
        diagnosis.note(why, reading.file, line, loud=True)
        return (WHOLE,) * len(nodes)
    if not total:
        diagnosis.note(
            f"a job without {unit.plural} leaves those of its nodes idle",
            reading.file,
            line,
        )
        return (0,) * len(nodes)
    given = unit.held(spread(total, [unit.room(size) for size in sizes]), sizes)
    if (
        len(nodes) > 1
        and not stated.per_node
        and any(some != size for some, size in zip(given, sizes, strict=True))
    ):
        why = f"the {unit.plural} of a job are known of all its nodes together: they count as spread evenly"
        diagnosis.note(why, reading.file, line)
    return given


def of_entry(entry: Mapping[str, Any]) -> Stated:
    """What a job in JSON states: of sacct `tres.allocated`, else `tres_alloc_str`, `gres_detail` and the like.

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
        )
    detail = entry.get("gres_detail")
    return Stated(
        allocated=allocated,
        per_node=str(entry.get("tres_per_node") or ""),
        alone=any(
            is_alone(word)
            for name in ("shared", "exclusive")
            for word in _words(entry.get(name))
        ),
        detail=tuple(str(text) for text in detail) if isinstance(detail, list) else (),
    )


def _words(value: Any) -> list[str]:
    return (
        [str(word) for word in value] if isinstance(value, list) else [str(value or "")]
    )


# States in which a job that has started still holds its nodes.
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
    }
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
    """What the scheduler knew of a job: `count` is the number of nodes that it asks for while it waits.

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
        diagnosis.skip(
            "ends before it starts",
            file,
            line,
            f"{(job.start - job.end) / 1e9:g} s before",
        )
    elif job.end == job.start:
        diagnosis.leave_out(
            "job of zero length" if size else "job that never started", file, line
        )
    elif not size:
        if job.end is None:
            diagnosis.leave_out("job that never started", file, line)
        else:
            diagnosis.skip("job ran, but names no nodes", file, line, job.state)
    else:
        nodes = size if job.nodes is None else job.nodes
        reading.into.job(
            job.key, nodes, job.start, job.end, file, line, once=True, held=job.held
        )
        return True
    return False


COMMAND = "sacct -P -X --format=JobID,NodeList,AllocNodes,Start,End,State"
# Further columns that --walltimes asks for, each by the name of the first that is there.
PLANNED = (("eligible", "submit"), LIMITS, FEWEST)
# Columns that state what a job held of its nodes.
UNITS = [
    ("alloctres",),
    ("trespernode",),
    ("alloccpus", "ncpus"),
    ("oversubscribe", "exclusive"),
]


class Rows:
    """The rows of one file, one by one; and what those that are read by columns need to know.

    Attributes
    ----------
    places
        Columns of id, start, end, nodes, and number of nodes (-1: there is none).
    used, steps, first_step
        Rows used, job steps, and the line of the first.
    """

    def __init__(self, reading: Reading, table: Table) -> None:
        self._reading, self._table = reading, table
        at = table.at
        self.places = (
            at["jobid"],
            at["start"],
            at["end"],
            at["nodelist"],
            at["allocnodes"],
        )
        self._at_state, self._at_cluster = at["state"], at["cluster"]
        self._named = table.columns[at["nodelist"]] == "nodelist"
        self._clusters = Clusters(reading)
        self.nodes_of = self._clusters.lists("")
        self._clustered = self._at_cluster >= 0 or bool(reading.settings.cluster)
        self._filtered = bool(reading.settings.cluster or reading.settings.partition)
        self._at_partition = at.get("partition", -1)
        reading.need_partitions(
            self._at_partition >= 0,
            f"the column Partition (export with {COMMAND},Partition)",
        )
        self.used = self.steps = self.first_step = 0
        # By what they were left out: how many rows, and the line of the first.
        self._others: dict[str, tuple[int, int]] = {}
        self._units = (
            _Columns(reading, table) if reading.into.units is not None else None
        )
        self._planned = self._planned_places() if reading.settings.walltimes else None

    def _planned_places(self) -> tuple[int, int, int, bool]:
        """Columns of when a job could run, its limit and its number of nodes; and whether limits are in minutes."""
        known, limit, nodes = (self._table.at[names[0]] for names in PLANNED)
        if min(known, limit) < 0:
            raise InputError(
                "--walltimes needs the columns Timelimit, and Eligible or Submit", file=self._reading.file,
                hint=f"export with {COMMAND},NNodes,Eligible,Submit,Timelimit",
            )  # fmt: skip
        return known, limit, nodes, self._table.columns[limit] == "timelimitraw"

    @property
    def columnar(self) -> bool:
        """Whether rows name their nodes, whole ones, and are of one cluster, and only their times are asked for."""
        return self._named and not (
            self._clustered or self._filtered or self._units or self._planned
        )

    def account(self) -> None:
        """Hand over what was counted."""
        file, diagnosis = self._reading.file, self._reading.diagnosis
        diagnosis.used += self.used
        diagnosis.leave_out("job step", file, self.first_step, count=self.steps)
        for other, (count, first) in self._others.items():
            diagnosis.leave_out(f"job of another {other}", file, first, count=count)

    def row(self, number: int, fields: list[str]) -> None:
        """Use one row, or account for why not."""
        reading = self._reading
        file, diagnosis = reading.file, reading.diagnosis
        at_id, at_start, at_end, at_nodes, at_count = self.places
        key: Hashable = fields[at_id]
        if "." in fields[at_id]:
            self.steps += 1
            self.first_step = self.first_step or number
            return
        cluster = ""
        nodes_of = self.nodes_of
        if self._filtered and self._is_other(fields, number):
            return
        if self._clustered:
            cluster = fields[self._at_cluster] if self._at_cluster >= 0 else ""
            nodes_of = self._clusters.lists(cluster)
            if (
                cluster and not reading.settings.cluster
            ):  # ids of several clusters are told apart by their names
                key = cluster, fields[at_id]
        start_text, end_text, nodes_text = (
            fields[at_start],
            fields[at_end],
            fields[at_nodes],
        )
        start = reading.clock.parse(start_text, file, number)
        end = reading.clock.parse(end_text, file, number, start)
        nodes: array[int] | None
        try:
            nodes = nodes_of(nodes_text) if self._named else None
        except HostListError as error:
            diagnosis.skip(
                "column NodeList holds no host list", file, number, str(error)
            )
            return
        held = None
        if (
            self._units is not None
            and nodes
            and start is not None
            and (end is None or start < end)
        ):
            try:
                held = self._units.held(fields, nodes, number)
            except Unusable as why:
                diagnosis.skip(why.reason, file, number, why.detail)
                return
        if self._planned is not None:
            self._plan(self._planned, key, fields, (start, end), nodes, number)
        # The most frequent row, without a detour.
        if nodes and start is not None and end is not None and start < end:
            reading.into.job(key, nodes, start, end, file, number, once=True, held=held)
            self.used += 1
            if at_count >= 0 and fields[at_count] != str(len(nodes)):
                diagnosis.note("NodeList and AllocNodes (NNodes) tell different numbers of nodes", file, number,
                               f"{len(nodes)} and {fields[at_count]!r}")  # fmt: skip
            return
        state = fields[self._at_state] if self._at_state >= 0 else ""
        job = Job(key, state, start, end, nodes, held=held)
        times = start_text, end_text
        self.used += _other(
            job,
            times,
            "" if self._named else nodes_text,
            self._clusters,
            cluster,
            number,
        )

    def _is_other(self, fields: list[str], number: int) -> bool:
        """Whether a row is left out by the cluster or the partition that it states."""
        cluster = fields[self._at_cluster] if self._at_cluster >= 0 else ""
        partition = fields[self._at_partition] if self._at_partition >= 0 else None
        other = self._reading.other(number, cluster=cluster, partition=partition)
        if other:
            count, first = self._others.get(other, (0, number))
            self._others[other] = count + 1, first
        return bool(other)

    def _plan(
        self,
        planned: tuple[int, int, int, bool],
        key: Hashable,
        fields: list[str],
        times: tuple[int | None, int | None],
        nodes: array[int] | None,
        number: int,
    ) -> None:
        """Hand over what the scheduler knew of a job."""
        at_known, at_limit, at_nodes, minutes = planned
        reading = self._reading
        state = fields[self._at_state] if self._at_state >= 0 else ""
        stated = next(
            (
                fields[at]
                for at in (at_nodes, self.places[4])
                if at >= 0 and fields[at].isdecimal()
            ),
            "0",
        )
        job = Job(key, state, *times, nodes, int(stated[:9]))
        limit = limit_ns(fields[at_limit], minutes=minutes)
        if (
            limit is None
            and fields[at_limit] not in MISSING
            and fields[at_limit] not in UNLIMITED
        ):
            reading.diagnosis.note("column Timelimit holds no limit: taken for unlimited", reading.file, number,
                                   ascii(fields[at_limit][:40]))  # fmt: skip
        reading.into.plans.job(
            key,
            plan(
                job, reading.clock.parse(fields[at_known], reading.file, number), limit
            ),
        )


class _Columns:
    """The columns that state what a job held of its nodes."""

    def __init__(self, reading: Reading, table: Table) -> None:
        self._reading = reading
        self._tres, self._per_node, self._cores, self._alone = (
            table.at[names[0]] for names in UNITS
        )
        units = reading.into.units
        if (
            self._tres < 0
            and (
                self._cores
                if units is not None and units.unit.cores
                else self._per_node
            )
            < 0
        ):
            raise InputError(
                "the table has no column AllocTRES, which states what jobs held of their nodes",
                file=reading.file,
                hint=f"export with {COMMAND},AllocTRES",
            )

    def held(
        self, fields: list[str], nodes: Sequence[int], line: int
    ) -> tuple[Held, ...] | None:
        """What the job held of each node; None: all."""
        tres, per_node, cores, alone = (
            fields[index] if index >= 0 else ""
            for index in (self._tres, self._per_node, self._cores, self._alone)
        )
        stated = Stated(
            allocated=tres, per_node=per_node, cores=int(cores) if cores.isdecimal() and len(cores) < 10 else None,
            alone=is_alone(alone),
        )  # fmt: skip
        log = self._reading.into.units
        return None if log is None else held(stated, nodes, log, self._reading, line)


def _other(
    job: Job,
    times: tuple[str, str],
    counted: str,
    clusters: Clusters,
    cluster: str,
    line: int,
) -> bool:
    """A row that is not of the most frequent kind; True when it is used.

    `times` are start and end as the table has them, and `counted` the number of nodes where it does not name them.
    """
    file, diagnosis = clusters.reading.file, clusters.reading.diagnosis
    for column, text, time in (
        ("Start", times[0], job.start),
        ("End", times[1], job.end),
    ):
        if time is None and text not in MISSING:
            diagnosis.skip(f"column {column} holds no time", file, line, no_time(text))
            return False
    if job.nodes is None:
        if not counted.isdecimal() and counted not in NO_HOSTS:
            why = "the column of the number of nodes holds no number"
            diagnosis.skip(why, file, line, ascii(counted[:80]))
            return False
        job = replace(job, count=int(counted[:9]) if counted.isdecimal() else 0)
        clusters.meet(cluster)
    return judge(job, clusters.reading, line)
