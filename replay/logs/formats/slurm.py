"""What Slurm prints: jobs of `sacct -P`, of `scontrol show job` and of JSON, events of nodes, and reservations.

Jobs of all three come in columns of text, which one set of rules reads (`_Jobs.block`). With -d, scontrol states which
GPUs of each node a job has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bft.models import InputError
from bft.replay.logs.hosts import NO_HOSTS, HostListError, expand, flags
from bft.replay.logs.records import (
    LEFT_OUT,
    LOUD,
    NEVER_STARTED,
    POWERED_OFF,
    RESERVED,
    SKIPPED,
    Block,
    Log,
    Row,
    Unusable,
    decoded,
    each_object,
    in_blocks,
)
from bft.replay.logs.states import power_of, state_of
from bft.replay.logs.tables import SACCT_FIELDS, Rows, Table
from bft.replay.logs.times import (
    MOST_EPOCH_S,
    NONE,
    Mask,
    Whole,
    are_missing,
    is_missing,
    limits,
    no_time,
)
from bft.replay.logs.units import Stated, indices, of_gres, of_tres
from bft.replay.trace.node_trace import SECOND_NS

# What prints all of jobs that is used here.
COMMAND = f"sacct -a -X -D -P -S 2024-01-01 -E 2024-02-01 --format={SACCT_FIELDS}"
EVENTS_COMMAND = (
    "sacctmgr -P show event all_time format=NodeName,TimeStart,TimeEnd,State"
)
RESERVATIONS_COMMAND = "sacctmgr -P show reservation format=NodeNames,TimeStart,TimeEnd"
_COLUMNS = {
    "id": ("jobid", "jobidraw"),
    "start": ("start",),
    "end": ("end",),
    "nodes": ("nodelist", "allocnodes", "nnodes"),
    "hosts": ("nodelist",),
    "count": ("allocnodes", "nnodes"),
    "asked": ("nnodes", "reqnodes"),
    "known": ("eligible", "submit"),
    "limit": ("timelimit", "timelimitraw"),
    "suspended": ("suspended",),
    "elapsed": ("elapsedraw", "elapsed"),
    "state": ("state",),
    "user": ("user",),
    "partition": ("partition",),
    "cluster": ("cluster",),
}
# Those that a block has by the same names.
_OF_BLOCKS = (
    "id", "start", "end", "hosts", "known", "limit", "suspended", "state", "user", "partition", "cluster"
)  # fmt: skip
_OPTIONAL = frozenset(
    {"count", "asked", "known", "limit", "elapsed", "state", "user", "partition"}
)
# What a job held of its nodes; AllocGRES up to 20.02.
_UNITS = {
    "tres": ("alloctres",),
    "per_node": ("trespernode",),
    "cores": ("alloccpus", "ncpus"),
    "shared": ("oversubscribe",),
    "exclusive": ("exclusive",),
    "gres": ("allocgres",),
}
# What messages call the columns.
_WORDS = {"start": "Start", "end": "End", "known": "Eligible", "limit": "Timelimit", "hosts": "NodeList"}  # fmt: skip
_COUNTED = {"count": "NodeList and AllocNodes (NNodes) tell different numbers of nodes"}
# States in which a job that has started holds its nodes, as squeue abbreviates them and as numbers of Slurm's data
# base; of one that changed its size, or states nothing, the end says whether it does.
_OPEN = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "STOPPED", "R", "S", "CG", "CF",
     "SO", "SI", "ST", "1", "2"}
)  # fmt: skip
_HOLDING = _OPEN | {"RESIZING", ""}
# States of jobs that have not started, and of those that may end before they do.
_WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "PD", "RQ", "RH", "RF",
     "SE", "RD", "0"}
)  # fmt: skip
_MAY_NEVER_START = _WAITING | {"CANCELLED", "DEADLINE", "REVOKED", "CA", "DL", "RV", "4"}  # fmt: skip
# In OverSubscribe of a job up to 25.11, or `shared` in JSON: nobody else's jobs run on its nodes. The same in
# Exclusive, from 26.05 on beside an OverSubscribe that says NO of jobs as they are by default; in JSON from 23.11 on.
_NOT_SHARED = frozenset({"NO", "EXCLUSIVE", "USER", "MCS", "TOPO", "NONE"})
_EXCLUSIVE = frozenset({"NODE", "USER", "MCS", "TOPO", "TRUE", "EXCLUSIVE"})
_NOWHERE = pa.array(sorted(NO_HOSTS))
# What Start, End and Elapsed may differ by: stamps may be cut to minutes.
_SLACK_NS, _HOUR_NS = 60 * SECOND_NS, 3600 * SECOND_NS


def read(log: Log) -> Iterator[Block | Row]:
    """Read the jobs of `sacct -P` or `-p`, with any delimiter and any columns that hold those of `COMMAND`.

    Job steps are left out; each record of a requeued job counts, as each held nodes of its own. Without a column
    NodeList jobs are counted only. A file that begins with a job of `scontrol show job` is read as such.
    """
    head = "".join(log.lines.head(limit=1))
    if _JOB.match(head) or head.startswith("No jobs in the system"):
        yield from _listing(log)
        return
    log.words = {name: f"column {word}" for name, word in _WORDS.items()} | _COUNTED
    columns = _COLUMNS if log.settings.unit is None else _COLUMNS | _UNITS
    optional = _OPTIONAL.difference(log.settings.asked())
    table = Table(
        log,
        columns,
        needed=("id", "start", "end", "nodes"),
        optional=optional,
        command=COMMAND,
    )
    lacking = (name for name in ("partition", "user") if name not in table)
    log.refuse_unstated(
        {
            name: f"the column {name.capitalize()} (export with {COMMAND})"
            for name in lacking
        }
    )
    units = log.settings.unit
    stating = (
        {"tres", "cores"} if units and units.cores else {"tres", "per_node", "gres"}
    )
    if units and stating.isdisjoint(table.found):
        why = "the table has no column AllocTRES, which states what jobs held of their nodes"
        raise InputError(why, file=log.name, hint=f"export with {COMMAND}")
    jobs = _Jobs(log)
    for rows in table:
        steps = flags(pc.match_substring(rows.cells["id"], "."))
        block = _of_table(log, table, rows.taken(~steps) if steps.any() else rows, jobs)
        if steps.any():
            first = int(rows.line[steps.argmax()])
            block.dropped.append((LEFT_OUT + "job step", int(steps.sum()), first))
        yield block
    jobs.tell()


def _of_table(log: Log, table: Table, rows: Rows, jobs: _Jobs) -> Block:
    """Return the jobs of some rows of a table."""
    cells = rows.cells
    block = Block(line=rows.line, why=rows.why)
    for name in _OF_BLOCKS:
        setattr(block, name, cells.get(name))
    if table.found.get("limit") == "timelimitraw":
        block.limit = limits(cells["limit"], minutes=True).ns
    if "hosts" not in cells:
        counted = cells["nodes"]
        is_number = flags(pc.ascii_is_decimal(counted)) | flags(
            pc.is_in(counted, _NOWHERE)
        )
        why = SKIPPED + "the column of the number of nodes holds no number"
        block.why.where(~is_number, why, lambda row: ascii(decoded(counted, row)[:80]))
    # What a job asks for while it has none.
    for name in ("count", "asked"):
        if name in cells:
            count = _numbers(cells[name])
            block.count = (
                count
                if block.count is None
                else np.where(block.count > 0, block.count, count)
            )
    jobs.judge(block)
    if "elapsed" in cells:
        _compare(log, jobs, block, cells["elapsed"])
    if log.settings.unit is not None:
        block.units = _units_of(block, cells)
    return block


# --- the rules for jobs ---------------------------------------------------------------------------------------------


class _Jobs:
    """Judges the jobs of one file, of which it keeps the latest time, and ends that are no ends.

    Parameters
    ----------
    log
        As every reader has it.

    Attributes
    ----------
    clock
        Reads times of which nothing is told, as it is where all of them are read.
    """

    def __init__(self, log: Log) -> None:
        self._log, self.clock = log, copy(log.clock)
        self._latest = NONE
        self._open: list[tuple[int, int]] = []

    def judge(self, block: Block) -> None:
        """Say why jobs are not used: each has run, runs, waits, or has never started."""
        why, start, end = block.why, block.start, block.end
        state = pa.repeat("", len(block)) if block.state is None else block.state
        block.once = True
        no_nodes = (
            np.asarray(block.count) == 0
            if block.hosts is None
            else flags(pc.is_in(block.hosts, _NOWHERE))
        )
        has_start, has_end = ~are_missing(start), ~are_missing(end)
        goes_on = has_start & has_end & _is_state(state, _OPEN)
        ran = has_start & why.used & ~_is_state(state, _WAITING)
        # Stamps of one form sort as text does.
        for column, stated in ((start, ran), (end, ran & has_end & ~goes_on)):
            latest = pc.max(column.filter(pa.array(stated))).as_py()
            self._latest = max(
                self._latest, self.clock.time(latest) if latest else NONE
            )
        if goes_on.any():  # its end is a guess, or in the past
            ends = self.clock.times(end.filter(pa.array(goes_on))).ns
            self._open += zip(ends.tolist(), block.line[goes_on].tolist(), strict=True)
            block.end = pc.if_else(pa.array(goes_on), "", end)
            has_end &= ~goes_on
        same = has_end & flags(pc.equal(start, end))
        lost = has_start & ~has_end & ~no_nodes & ~_is_state(state, _HOLDING)
        why.where(
            lost,
            SKIPPED + "has ended, but its end is missing",
            lambda row: decoded(state, row),
        )
        never = ~has_start | (
            no_nodes & (~has_end | same | _is_state(state, _MAY_NEVER_START))
        )
        why.where(never, NEVER_STARTED)
        if (never & has_start).any():
            block.start = pc.if_else(pa.array(never), "", start)
        why.where(same, LEFT_OUT + "job of zero length")
        why.where(
            no_nodes,
            SKIPPED + "job ran, but names no nodes",
            lambda row: decoded(state, row),
        )

    def tell(self) -> None:
        """Tell of jobs that run by their state and have ended by their End."""
        past = [line for end, line in self._open if NONE < end < self._latest]
        if past:
            why = "jobs whose state says that they run state an End in the past: they count as running"
            self._log.note(why, past[0], count=len(past), loud=True)


def _compare(log: Log, jobs: _Jobs, block: Block, column: pa.Array) -> None:
    """Hold how long jobs ran against their Start and End: longer ones were suspended, or the row contradicts itself."""
    elapsed, start = limits(column).ns, jobs.clock.times(block.start).ns
    end = jobs.clock.times(block.end, not_before=start).ns
    suspended = np.zeros(len(block), dtype=np.int64)
    if block.suspended is not None:
        suspended = np.maximum(limits(block.suspended).ns, 0)
    known = block.why.used & (elapsed != NONE) & (start != NONE) & (end > start)
    over = np.where(known, end - start - elapsed - suspended, 0)
    # Stamps beside a change of clocks may be off by an hour.
    differs = (np.abs(over) > _SLACK_NS) & (np.abs(np.abs(over) - _HOUR_NS) > _SLACK_NS)
    if np.count_nonzero(differs) * 2 > np.count_nonzero(known):
        log.note(
            "column Elapsed is not the time from Start to End: not read",
            int(block.line[0]),
        )
        return
    longer = differs & (over > 0) & (block.suspended is None)
    if longer.any():
        block.suspended = np.where(longer, over, 0)
        why = "without the column Suspended jobs that ran for less than from Start to End count as suspended between"
        block.notes.append((longer, why, lambda row: f"{over[row] / 1e9:g} s"))
    why = SKIPPED + "Start, End and Elapsed contradict each other"
    seconds = (end - start) / SECOND_NS, elapsed / SECOND_NS
    block.why.where(
        differs & ~longer,
        why,
        lambda row: f"{seconds[0][row]:g} and {seconds[1][row]:g} s",
    )


def _is_state(states: pa.Array, words: Collection[str]) -> Mask:
    """Where a column holds one of some states: CANCELLED by 7, RUNNING+, COMPLETED+REQUEUED."""
    cells = states.dictionary_encode()
    first = (
        re.split(r"[ +*]", text, maxsplit=1)[0].upper()
        for text in cells.dictionary.to_pylist()
    )
    found: Mask = np.array([word in words for word in first] or [False])[
        cells.indices.to_numpy()
    ]
    return found


def _numbers(column: pa.Array) -> Whole:
    """The whole numbers of a column, 0 where it holds none."""
    short = pc.less(pc.binary_length(column), 10)
    cells = pc.if_else(pc.and_(pc.ascii_is_decimal(column), short), column, "0")
    numbers: Whole = cells.cast(pa.int64()).to_numpy()
    return numbers


def _judged(log: Log, jobs: _Jobs, rows: Iterable[Row]) -> Iterator[Block | Row]:
    """Yield the jobs of listings and of JSON in blocks, and what else is said of them."""
    for block in in_blocks(rows):
        if isinstance(block, Block) and block.kind == "ran":
            jobs.judge(block)
        yield block
    jobs.tell()


# --- units ----------------------------------------------------------------------------------------------------------


def _is_alone(shared: Iterable[str], exclusive: Iterable[str]) -> bool:
    """Whether a job has its nodes alone.

    Parameters
    ----------
    shared
        Words of OverSubscribe, or of `shared` in JSON.
    exclusive
        Words of Exclusive, which decide where there are any.

    Examples
    --------
    >>> _is_alone(["NO"], []), _is_alone(["NO"], ["NO"]), _is_alone(["OK"], ["NODE"])
    (True, False, True)
    """
    stated = {word.strip().upper() for word in exclusive} - {"", "NONE", "(NULL)"}
    if stated:
        return not stated.isdisjoint(_EXCLUSIVE)
    return not _NOT_SHARED.isdisjoint(word.strip().upper() for word in shared)


@cache
def _held(tres: str, gres: str, per_node: str, cores: int, alone: bool) -> Stated:
    """Return what a job held by its AllocTRES, its generic resources, those of each of its nodes, and its cores."""
    gpus, shares = of_tres(tres, "gpu"), of_tres(tres, "shard", "mps")
    gpus = of_gres(gres) if gpus is None else gpus
    shares = of_gres(gres, "shares") if shares is None else shares
    all_cores = of_tres(tres, "cpu")
    if (
        gpus is None
        and shares is None
        and (of_gres(per_node) or of_gres(per_node, "shares"))
    ):
        return Stated(
            of_gres(per_node) or 0,
            None,
            of_gres(per_node, "shares"),
            each=True,
            alone=alone,
        )
    if gpus is None and (tres or per_node):
        gpus = 0
    return Stated(
        gpus, cores or None if all_cores is None else all_cores, shares, alone=alone
    )


def _units_of(block: Block, cells: Mapping[str, pa.Array]) -> list[Stated]:
    """Return what the jobs of a table held."""
    nothing = pa.repeat("", len(block))
    columns = [cells.get(name, nothing) for name in _UNITS]
    held = []
    for tres, per_node, cores, shared, exclusive, gres in zip(
        *(each.to_pylist() for each in columns), strict=True
    ):
        # sacct has both columns from 26.05 on.
        shared = (
            shared if "exclusive" in cells or shared.strip().upper() != "NO" else ""
        )
        gres = "gpu:0" if "gres" in cells and not gres else gres
        held.append(
            _held(tres, gres, per_node, _whole(cores), _is_alone([shared], [exclusive]))
        )
    if "shared" in cells and "exclusive" not in cells:
        unclear = flags(
            pc.equal(pc.utf8_upper(pc.utf8_trim_whitespace(cells["shared"])), "NO")
        )
        why = "OverSubscribe=NO is no statement: the column Exclusive states which jobs have their nodes alone"
        block.notes.append((unclear, LOUD + why, lambda row: ""))
    return held


# --- scontrol show job ----------------------------------------------------------------------------------------------

# A job begins a line; lines of -o hold all of it, else the lines of one are indented.
_JOB = re.compile(r"JobId=\d+(?= )")
# A user chooses the name, which may look like any field: it ends where the next field of Slurm's begins.
_NAME = re.compile(
    r" JobName=.*?(?=\s+UserId=[^\s()]*\(\d+\) GroupId=[^\s()]*\(\d+\)\s)", re.DOTALL
)
_PAIR = re.compile(r"(?<!\S)([A-Za-z]\w*)=(\S*)")
# Of some nodes: which cores and GPUs of each. Older releases say GRES_IDX, and leave out the type.
_DETAIL = re.compile(r"(?<!\S)Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES(?:_IDX)?=(\S*)")
_NEEDED = ("JobState", "StartTime", "EndTime", "NodeList")
# Lines of a job.
_MOST_LINES = 10_000


def _listing(log: Log) -> Iterator[Block | Row]:
    """Read jobs of an instant, or of several one after the other: `scontrol show job`, with -d, -o or neither.

    Each record of a job counts; one without an end is closed by a later one, or by that of sacct: ids are those of its
    column JobID. Once a job has ended, Slurm prints its nodes still, but which GPUs it had no more.
    """
    words = {
        "start": "StartTime",
        "end": "EndTime",
        "known": "EligibleTime",
        "limit": "TimeLimit",
    }
    log.words = words | _COUNTED | {"hosts": "NodeList or Nodes"}
    jobs = _Jobs(log)

    def rows() -> Iterator[Row]:
        for number, text in _texts(log, _JOB):
            try:
                for row in _listed(log, jobs, text):
                    yield {"line": number, **row}
            except (HostListError, Unusable) as error:
                why = getattr(
                    error, "why", f"{SKIPPED}NodeList or Nodes holds no host list"
                )
                detail = getattr(error, "detail", str(error))
                yield {"line": number, "kind": "nothing", "why": why, "detail": detail}

    yield from _judged(log, jobs, rows())


def _texts(log: Log, begins: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield number of its first line and text of each record; lines before the first are left out."""
    lines: list[str] = []
    begun = 0
    for number, line in chain(log.lines, [(0, "")]):
        is_first = begins.match(line) is not None
        if lines and (is_first or not number):
            yield begun, "\n".join(lines)
        if is_first:
            lines, begun = [line], number
        elif 0 < len(lines) < _MOST_LINES:
            lines.append(line)


def _listed(log: Log, jobs: _Jobs, text: str) -> Iterator[Row]:
    """Yield the cells of a job, and when it was suspended or resumed last."""
    text = _NAME.sub("", text, count=1)
    stated: dict[str, str] = {}
    for key, value in _PAIR.findall(
        text
    ):  # the first: what users choose too comes last
        stated.setdefault(key, value)
    missing = [key for key in _NEEDED if key not in stated]
    if missing:
        raise Unusable(f"is no job: expected {', '.join(_NEEDED)}", f"no {missing[0]}")
    known = [stated.get(key, "") for key in ("EligibleTime", "SubmitTime")]
    row: dict[str, Any] = {
        "id": _listed_id(stated),
        "hosts": stated["NodeList"],
        "count": _whole(stated.get("NumNodes", "")),
        "known": known[0] if not is_missing(known[0]) else known[1],
        "limit": stated.get("TimeLimit", ""),
        "user": stated.get("UserId", "").partition("(")[0],
        "partition": stated.get("Partition", ""),
        **_so_far(stated["JobState"], stated["StartTime"], stated["EndTime"]),
    }
    before = _whole(stated.get("SecsPreSuspend", ""))
    yield from _suspended(row, stated.get("SuspendTime", ""), before, jobs)
    units = (
        {} if log.settings.unit is None else {"units": _listed_units(log, text, stated)}
    )
    yield row | units


def _so_far(state: str, start: str, end: str) -> dict[str, str]:
    """State, start and end of what squeue and scontrol show, as far as they have come.

    The end of a job that runs is its limit there, and start and end of one that waits are guesses.
    """
    is_waiting = state in _WAITING
    return {
        "state": state,
        "start": "" if is_waiting else start,
        "end": "" if is_waiting or state in _HOLDING else end,
    }


def _whole(text: str) -> int:
    """A number, of a range such as 2-4 its lower end; 0 where a text is none."""
    low = text.partition("-")[0]
    return int(low) if low.isdecimal() and len(low) < 10 else 0


def _suspended(
    row: dict[str, Any], changed: str, ran_s: int, jobs: _Jobs
) -> Iterator[Row]:
    """Yield when a job was suspended or resumed last, and add for how long it was suspended, if it has ended.

    It had run for `ran_s` when it was suspended.
    """
    start_ns, changed_ns = jobs.clock.time(row["start"]), jobs.clock.time(changed)
    goes_on = row["state"] == "SUSPENDED"
    if start_ns != NONE and changed_ns != NONE and (ran_s or goes_on):
        if row["end"]:
            row["suspended"] = str(max(0, (changed_ns - start_ns) // SECOND_NS - ran_s))
        kind = "suspended" if goes_on else "resumed"
        yield {"kind": kind, "again": True, "id": row["id"], "cluster": row.get("cluster"), "start": start_ns,
               "end": changed_ns, "suspended": ran_s * SECOND_NS}  # fmt: skip


def _listed_id(stated: Mapping[str, str]) -> str:
    """The id as sacct's column JobID has it: of an array 6_1, of a heterogeneous job 8+0."""
    for whole, part, mark in (
        ("ArrayJobId", "ArrayTaskId", "_"), ("HetJobId", "HetJobOffset", "+"), ("PackJobId", "PackJobOffset", "+"),
    ):  # fmt: skip
        if whole in stated and part in stated:
            # Elements that wait are one record.
            element = stated[part] if stated[part].isdecimal() else f"[{stated[part]}]"
            return f"{stated[whole]}{mark}{element}"
    return stated["JobId"]


def _listed_units(log: Log, text: str, stated: Mapping[str, str]) -> Stated:
    """Return the units that the text of a job states of its nodes."""
    alone = _is_alone([stated.get("OverSubscribe", "")], [stated.get("Exclusive", "")])
    detail = {
        host: resources
        for listed, resources in _DETAIL.findall(text)
        for host in expand(listed)
    }
    strangers = detail.keys() - set(expand(stated["NodeList"]))
    if strangers:
        raise Unusable(
            "states GPUs of nodes that NodeList does not have",
            f"{len(strangers)} of them",
        )
    if detail and not (alone or log.settings.unit.cores):
        named = _named(detail)
        if named is not None:
            return named
    tres, gres = (
        stated.get("AllocTRES", stated.get("TRES", "")),
        stated.get("JOB_GRES", ""),
    )
    return _held(
        tres,
        gres,
        stated.get("TresPerNode", ""),
        _whole(stated.get("NumCPUs", "")),
        alone,
    )


def _named(detail: Mapping[str, str]) -> Stated | None:
    """The GPUs that a job has of each host; None where no host has any: a job that has ended has returned its own."""
    named = tuple(
        (host, indices(text) or of_gres(text) or 0) for host, text in detail.items()
    )
    return Stated(named=named) if any(some for _, some in named) else None


# --- JSON -----------------------------------------------------------------------------------------------------------

# What Slurm's data base has for a number that is not known, and for an infinite one, of 32 and of 64 bits.
_UNSET = frozenset({2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1})


def read_json(log: Log) -> Iterator[Block | Row]:
    """Read the jobs of `sacct --json`, one at a time, so that a month of them need not fit the memory.

    Times are seconds since 1970 there. Releases differ in how they print numbers and states; all ways are taken. What
    `squeue` and `scontrol show job` print are the jobs of an instant: the end of one that runs is its limit there, and
    the start of one that waits is a guess; neither is read as what came.
    """
    log.words = {"start": "time.start", "end": "time.end", "hosts": "nodes"}
    log.words |= _COUNTED
    jobs = _Jobs(log)
    rows = each_object(
        log,
        lambda entry, name, line: _entry(log, jobs, entry),
        keys=("jobs",),
        expected="job: expected nodes and time.start, time.end as whole numbers",
        command="sacct --json",
        bare=False,
    )
    yield from _judged(log, jobs, rows)


def _entry(log: Log, jobs: _Jobs, entry: dict[str, Any]) -> Iterator[Row]:
    """Yield the cells of a job, and when it was suspended or resumed last."""
    is_queued = "time" not in entry  # of squeue or scontrol
    state = (
        entry.get("job_state", "")
        if is_queued
        else entry.get("state", {}).get("current", "")
    )
    state = state[0] if isinstance(state, list) and state else state
    times = entry if is_queued else entry["time"]
    names = (
        ("eligible_time", "submit_time", "time_limit")
        if is_queued
        else ("eligible", "submission", "limit")
    )
    eligible, submitted, minutes = (_number(times.get(name, 0)) for name in names)
    if not isinstance(entry["nodes"], str):
        raise TypeError("nodes is no text")
    row: dict[str, Any] = {
        "id": str(entry.get("job_id", entry["nodes"])),
        "hosts": entry["nodes"],
        "count": _asked(entry, is_queued=is_queued),
        "known": str(eligible or submitted),
        "limit": f"{minutes}:00" if minutes else "",
        "state": state if isinstance(state, str) else "",
        **{name: str(entry.get(name) or "") for name in ("cluster", "partition")},
        "user": str(entry.get("user_name" if is_queued else "user") or ""),
    }
    ends = ("start_time", "end_time") if is_queued else ("start", "end")
    start, end = (str(_number(times[name]) or "") for name in ends)
    if is_queued:
        row |= _so_far(row["state"], start, end)
        changed, before = (
            _number(entry.get(name, 0)) for name in ("suspend_time", "pre_sus_time")
        )
        yield from _suspended(row, str(changed), before, jobs)
    else:
        row |= {
            "start": start,
            "end": end,
            "suspended": str(_number(times.get("suspended", 0))),
        }
    yield (
        row if log.settings.unit is None else row | {"units": _entry_units(log, entry)}
    )


def _asked(entry: Mapping[str, Any], *, is_queued: bool) -> int:
    """How many nodes a job has or asks for; 0 where that is not stated."""
    if is_queued:
        return _number(entry.get("node_count", 0))
    listed = entry.get("tres", {}).get("requested", [])
    asked = [each.get("count", 0) for each in listed if each.get("type") == "node"]
    return _number(asked[0] if asked else entry.get("allocation_nodes", 0))


def _number(value: Any) -> int:
    """A whole number; 0 for one that is unset (null, or as `_UNSET` has it) or infinite."""
    if isinstance(value, dict):  # {"set": true, "infinite": false, "number": 5}
        no_value = value.get("infinite") or not value.get("set", True)
        value = 0 if no_value else value["number"]
    if value is None or value == "Infinity" or value in _UNSET:
        return 0
    if not isinstance(value, int) or not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _entry_units(log: Log, entry: Mapping[str, Any]) -> Stated:
    """Read the units of a job: `tres.allocated` of sacct, else `tres_alloc_str`, `gres_detail` and the like."""
    tres = entry.get("tres")
    listed = tres.get("allocated") if isinstance(tres, dict) else None
    allocated = str(entry.get("tres_alloc_str") or "")
    if listed is not None:
        counted = [
            each for each in listed if each.get("count") is not None
        ]  # not energy that nothing measures
        kinds = [
            "/".join(filter(None, (str(each["type"]), str(each.get("name") or ""))))
            for each in counted
        ]
        allocated = ",".join(
            f"{kind}={int(each['count'])}"
            for kind, each in zip(kinds, counted, strict=True)
        )
    words = (entry.get(name) for name in ("shared", "exclusive"))
    alone = _is_alone(
        *(
            map(str, word) if isinstance(word, list) else [str(word or "")]
            for word in words
        )
    )
    detail, hosts = entry.get("gres_detail"), expand(entry["nodes"])
    if (
        isinstance(detail, list)
        and len(detail) == len(hosts)
        and not (alone or log.settings.unit.cores)
    ):
        named = _named(dict(zip(hosts, map(str, detail), strict=True)))
        if named is not None:
            return named
    return _held(allocated, "", str(entry.get("tres_per_node") or ""), 0, alone)


# --- events and reservations ----------------------------------------------------------------------------------------

_RESERVATION = re.compile(r"\s*ReservationName=")
_OUTAGE_WORDS = {"start": "its start", "end": "its end"}
_OUTAGE = {
    "start": ("timestart", "start"),
    "end": ("timeend", "end"),
    # The field is called NodeNames, its column NodeName.
    "hosts": ("nodename", "nodenames", "nodes", "nodelist"),
    "cluster": ("cluster",),
    "state": ("state",),
}


def read_events(log: Log) -> Iterator[Block]:
    """Read events of nodes: whatever made a node unfit for jobs makes it unavailable, until the event's end.

    Slurm records an event when a node stops being able to run jobs: a state that is not known is an outage.

    Events of a whole cluster, which name no node, tell of its size and are left out.
    """
    table = Table(
        log,
        _OUTAGE,
        needed=("start", "end", "hosts"),
        optional=("state",),
        command=EVENTS_COMMAND,
    )
    for rows in table:
        rows.why.where(
            flags(pc.equal(rows.cells["hosts"], "")),
            LEFT_OUT + "event of the whole cluster",
        )
        states = rows.cells.get("state", pa.repeat("", len(rows))).dictionary_encode()
        words, which = states.dictionary.to_pylist(), states.indices.to_numpy()
        able = [
            state_of(word, log.settings.counts_as) in ("idle", "busy") for word in words
        ]
        rows.why.where(
            np.array(able, dtype=bool)[which],
            LEFT_OUT + "event of a node that could run jobs",
        )
        off = pa.array(
            [POWERED_OFF if "off" in power_of(word) else "" for word in words],
            pa.string(),
        )
        yield _outages(log, rows, off.take(states.indices))


def read_reservations(log: Log) -> Iterator[Block | Row]:
    """Read reservations: reserved nodes are unavailable, also when only some of their cores are reserved.

    What scontrol shows of itself it knows of the past only what has not been purged; sacctmgr knows all.
    """
    head = "".join(log.lines.head(limit=1))
    if "ReservationName=" in head or head.startswith("No reservations"):
        log.words = _OUTAGE_WORDS
        for number, text in _texts(log, _RESERVATION):
            stated = {
                "Nodes": "",
                "StartTime": "",
                "EndTime": "",
                **dict(_PAIR.findall(text)),
            }
            row = {
                "hosts": stated["Nodes"],
                "start": stated["StartTime"],
                "end": stated["EndTime"],
            }
            yield {
                "line": number,
                "kind": "down",
                "state": RESERVED,
                "id": stated["Nodes"],
                **row,
            }
        return
    table = Table(
        log, _OUTAGE, needed=("start", "end", "hosts"), command=RESERVATIONS_COMMAND
    )
    for rows in table:
        yield _outages(log, rows, pa.repeat(RESERVED, len(rows)))


def _outages(log: Log, rows: Rows, kind: pa.Array) -> Block:
    """Return rows in which nodes were down or reserved; an end that is missing is still to come."""
    log.words = _OUTAGE_WORDS
    hosts, start, end = (rows.cells[name] for name in ("hosts", "start", "end"))
    no_start = SKIPPED + "its start is no time"
    rows.why.where(
        are_missing(start), no_start, lambda row: no_time(decoded(start, row))
    )
    cluster = rows.cells.get("cluster")
    return Block(
        line=rows.line, why=rows.why, kind="down", id=hosts, hosts=hosts, start=start, end=end, cluster=cluster,
        state=kind,
    )  # fmt: skip
