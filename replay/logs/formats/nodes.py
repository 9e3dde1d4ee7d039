"""What commands print of nodes (scontrol, sinfo, pbsnodes, bhosts, qhost), or names: lists of nodes, and snapshots."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bft.models import InputError
from bft.replay.logs.formats.kubernetes import amounts
from bft.replay.logs.formats.pbs import PART_OF_HOST
from bft.replay.logs.hosts import HostListError, expand, flags
from bft.replay.logs.lines import Lines
from bft.replay.logs.records import (
    LEFT_OUT,
    SKIPPED,
    Block,
    LeftOut,
    Log,
    Refused,
    Row,
    Unusable,
    decoded,
    each_object,
    texts,
)
from bft.replay.logs.states import state_of
from bft.replay.logs.tables import Table
from bft.replay.logs.times import NONE, no_time
from bft.replay.logs.units import of_gres, of_tres
from bft.replay.trace.node_trace import SECOND_NS

Found: TypeAlias = dict[str, Any]
"""What is printed of nodes: a row of a list, with `vnode` if it may be a part of a host (n1[0])."""

# Lines looked at to see what prints such a file.
_LOOKED_AT = 1_000
# Headers of the column that names nodes, the surest first: sinfo, pbsnodes, bhosts, qhost, a table of one's own.
_HEADERS = (
    "NODELIST",
    "VNODE",
    "HOSTNAMES",
    "HOSTNAME",
    "HOST_NAME",
    "NODENAME",
    "NODES",
    "NODE",
    "HOST",
)
_MARKS = ",;|\t"
# Columns in which a row of words has blanks; and pbsnodes -aSj has them in sizes (0 b/0 b).
_FREE_TEXT = ("REASON", "COMMENT", "JOBS")
_BYTES = re.compile(r"(?<=\d) b(?=[/\s])")
# What else columns of tables state.
_COLUMNS = {
    "partition": ("PARTITION", "PARTITIONS", "QUEUE", "QUEUES"),
    "since": ("SINCE",),
    "until": ("UNTIL",),
    "was": ("WAS",),
    "cluster": ("CLUSTER",),
    "gpus": ("NGPUS", "GPUS"),
    "cores": ("NCPUS", "CPUS", "NCPU", "CORES", "NCORES"),
}
# scontrol and slurm.conf; pbsnodes -F dsv.
_NODE_NAME = re.compile(r"(?:(?<!\S)NodeName|^Name)=([^\s|]+)", re.IGNORECASE)
_PAIR = re.compile(r"\s*\w+=")
_KEY = re.compile(r"(?<![^\s|])([A-Za-z_][\w.]*)=([^\s|]*)")
_STANZA = re.compile(r"\s+(\S+) = (.*)")
# A line of qstat -f: queue@host, type, reserved/used/total slots, load, architecture, and letters for what is wrong.
_QUEUE = re.compile(
    r"(\S+)@(\S+)\s+[BIPCNTM]+\s+\d+/(\d+)/\d+\s+\S+\s+\S+(?:\s+(\w+))?\s*"
)
# A comma between host lists.
_COMMA = re.compile(r",(?![^\[]*\])")
# What only Flux's R has, and kubectl get nodes -o json, among what begins as JSON.
_EXECUTION = re.compile(r'"execution"\s*:')
_KUBERNETES = re.compile(r'"kind"\s*:\s*"Node(List)?"')
_NO_R = "is no R of Flux: a list of nodes or ranks cannot be read"
# Ends the last block.
_END = (0, "end")
# The states of a partition, in sinfo's second column.
_AVAILABLE = frozenset({"up", "down", "drain", "inact"})


def _printed(lines: Lines, log: Log) -> Iterator[Found]:
    """Yield the nodes of what one command printed, whatever command it was.

    Taken are the JSON of sinfo, scontrol, pbsnodes and kubectl get nodes; Flux's resource set R; `NodeName=LIST`
    (scontrol show node, slurm.conf); the column of names below a header (sinfo, pbsnodes -aS, bhosts, qhost, CSV); the
    queues of qstat -f; and otherwise the first word of each line that is not indented (pbsnodes -a, plain names,
    `sinfo -N -h -o "%N %T"`), of sinfo without its header the last. Vnodes of PBS (n1[0]) are taken for their hosts.
    """
    head = lines.head(lambda line: line.strip() and line[0] != "#", _LOOKED_AT)
    if head and head[0].lstrip().startswith("{"):
        if any(map(_KUBERNETES.search, head)):
            return _kubernetes(lines, log)
        if any(map(_EXECUTION.search, head)):
            return _resource_set(lines, log)
        return _json(lines, log)
    if any(_PAIR.match(line) or _NODE_NAME.search(line) for line in head):
        return _blocks(lines, log)
    # A header comes first, or after the date (sinfo -l), a cluster, or the upper half of a header.
    if any(map(_header, head[:3])):
        return _table(lines)
    if any(map(_STANZA.match, head)):
        return _blocks(lines, log, stanzas=True)
    if any(map(_QUEUE.fullmatch, head)):
        return _queues(lines)
    return _names(lines, log)


# --- text -----------------------------------------------------------------------------------------------------------


def _blocks(lines: Lines, log: Log, *, stanzas: bool = False) -> Iterator[Found]:
    """Read blocks of what is known of a node: NodeName=LIST and pairs in one line, continued, or indented.

    `stanzas`: a name, and below it indented lines such as `state = free` (pbsnodes -a).
    """
    usual: Found = {}
    stated: dict[str, str] = {}
    begun, goes_on = 0, False
    for number, line in chain(lines, [_END]):
        if line.lstrip().startswith("#"):
            continue
        if not (goes_on or line[:1].isspace()) or _NODE_NAME.search(line):
            name = stated.get("nodename", stated.get("name", ""))
            known = {
                key: some for key, some in _stated(stated).items() if some is not None
            }
            if name.upper() == "DEFAULT":
                usual.update(known)
            elif name:
                yield {
                    **usual,
                    **known,
                    "line": begun,
                    "hosts": name,
                    "vnode": "name" in stated,
                }
            stated, begun = {}, number
            if stanzas:
                stated["name"] = next(iter(line.split("#")[0].split()), "")
        stanza = _STANZA.match(line)
        # Free text comes last.
        for key, value in [stanza.groups()] if stanza else _KEY.findall(line):
            stated.setdefault(key.lower(), value.strip())
        goes_on = line.endswith("\\")
        if line.lower().startswith("include "):
            why = "an included file was not read: give it with --nodes too"
            log.note(why, number, ascii(line.strip()[:80]))


def _stated(stated: Mapping[str, str]) -> Found:
    """What is stated of a node by the names of scontrol, slurm.conf and pbsnodes; None: it is not."""
    configured = stated.get("cfgtres", "")
    # CPUEfctv: without those that jobs cannot have.
    counted = ("cpuefctv", "cputot", "cpus", "resources_available.ncpus", "np")
    cores = next((_whole(stated[name]) for name in counted if name in stated), None)
    gpus = of_tres(configured, "gpu")
    if gpus is None and ("gres" in stated or configured):
        gpus = of_gres(stated.get("gres", "")) or 0
    if gpus is None:
        gpus = _whole(stated.get("resources_available.ngpus", stated.get("gpus", "")))
    shares = of_tres(configured, "shard", "mps")
    state = stated.get("state")
    if state == "UNKNOWN" and "cpualloc" not in stated:
        # In slurm.conf it means that the state is to be found out.
        state = ""
    queues = (
        stated.get(name)
        for name in ("partitions", "queue", "resources_available.qlist")
    )
    return {
        "state": None if state is None else _with_jobs(state, stated.get("jobs")),
        "partition": next(filter(None, queues), None),
        "gpus": gpus,
        "cores": of_tres(configured, "cpu") if cores is None else cores,
        "shares": shares or of_gres(stated.get("gres", ""), "shares"),
    }


def _whole(text: str) -> int | None:
    """A count; of those that are free and all of them (f/t) the latter, and of several nodes the least (16+)."""
    text = text.strip().rpartition("/")[2].rstrip("+")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _with_jobs(state: str, jobs: object) -> str:
    """State of a node of PBS, which calls a node free while any of its cores is."""
    return f"{state},busy" if state and jobs else state


def _header(line: str) -> tuple[str, list[str]] | None:
    """Split a header line that names a column of nodes into its delimiter (blank: any white space) and columns."""
    for mark in [mark for mark in _MARKS if mark in line] + [" "]:
        names = [name.strip().upper() for name in _cells(line, mark)]
        if any(name in names for name in _HEADERS):
            return mark, names
    return None


def _cells(line: str, mark: str) -> list[str]:
    if mark == " ":
        return _BYTES.sub("b", line).split()
    with suppress(csv.Error):
        return next(csv.reader([line], delimiter=mark))
    return line.split(mark)


def _table(lines: Lines) -> Iterator[Found]:
    """A table with a header, which may come again."""
    mark, header, names, column = " ", [""], [""], -1
    cluster, above = "", ""
    for number, line in lines:
        found = _header(line)
        if found and (column < 0 or found[1] == header):
            mark, header = found
            column = next(header.index(name) for name in _HEADERS if name in header)
            upper = iter(above.upper().split())  # pbsnodes -aSj: what f/t is of
            names = [next(upper, name) if name == "F/T" else name for name in header]
        elif line.startswith("CLUSTER:"):
            cluster = line.partition(":")[2].strip()
        elif column >= 0 and line.strip() and not line.startswith("#"):
            row = _table_row(line, mark, names, column)
            yield {**row, "line": number, "cluster": row.get("cluster") or cluster}
        above = line


def _table_row(line: str, mark: str, names: list[str], column: int) -> Found:
    """Return what a row of a table says of the nodes that a column names."""
    cells = _aligned(_cells(line, mark), mark, names)
    whole = len(cells) == len(names)
    text = ""
    if whole or column == 0 or (mark != " " and column < len(cells)):
        text = cells[column].strip()
    elif column == len(names) - 1 and mark == " ":
        # A column before it is empty, or holds blanks.
        text = cells[-1]
    may_be_number = names[column] != "NODES" and (whole or column == 0)
    if not text or (text.isdecimal() and not may_be_number):
        return {
            "why": f"{SKIPPED}column {names[column]} names no node",
            "detail": ascii(line[:80]),
        }
    row = dict(zip(names, map(str.strip, cells), strict=True)) if whole else {}
    found: Found = {
        ours: next((row[name] for name in theirs if row.get(name, "--") != "--"), "")
        for ours, theirs in _COLUMNS.items()
    }
    # flux resource list states what all nodes of a row have.
    nodes = _whole(row.get("NNODES", "")) or 1
    for amount in ("gpus", "cores"):
        each = _whole(found[amount])
        found[amount] = None if each is None else each // nodes
    if "GRES" in row:
        found["gpus"] = of_gres(row["GRES"]) or 0
        found["shares"] = of_gres(row["GRES"], "shares")
    return {
        **found,
        "hosts": text,
        "state": _state(row),
        "vnode": names[column] == "VNODE",
    }


def _aligned(cells: list[str], mark: str, names: Sequence[str]) -> list[str]:
    """The cells of a row of words, one of which may be blank (`sinfo -l` from 23.02 on), or hold blanks."""
    excess = len(cells) - len(names)
    if mark == " " and excess == -1 and "RESERVATION" in names:
        place = names.index("RESERVATION")
        return [*cells[:place], "", *cells[place:]]
    place = next((names.index(name) for name in _FREE_TEXT if name in names), -1)
    if mark == " " and excess > 0 and place >= 0:
        end = place + 1 + excess
        return [*cells[:place], " ".join(cells[place:end]), *cells[end:]]
    return cells


def _state(row: Mapping[str, str]) -> str:
    """State of a row: of bhosts, whose hosts are ok while they take jobs, by the number of its jobs."""
    jobs = row.get("NJOBS", "0")
    if "STATE" in row:
        return _with_jobs(row["STATE"], jobs not in ("0", "--"))
    if "STATUS" in row:
        usable = row["STATUS"].lower() == "ok"
        state = ("idle" if "NJOBS" in row else "") if usable else row["STATUS"]
        return _with_jobs(state, jobs.isdecimal() and int(jobs))
    return "down" if row.get("LOAD") == "-" else ""  # qhost


def _names(lines: Lines, log: Log) -> Iterator[Found]:
    """Lines that begin with a name and perhaps a state, or those of sinfo without its header, which end with a name."""
    cluster = ""
    for number, line in lines:
        if line.startswith("CLUSTER:"):
            cluster = line.partition(":")[2].strip()
            continue
        name, *others = re.split(r"[\s|;]+", line.split("#")[0].strip())
        if not name or "=" in name:
            continue
        row: Found = {"line": number, "cluster": cluster, "hosts": name}
        if len(others) > 3 and others[0] in _AVAILABLE:
            # sinfo -h: PARTITION AVAIL TIMELIMIT NODES STATE NODELIST
            yield {**row, "hosts": others[-1], "state": others[-2], "partition": name}
            continue
        if len(others) > 2 and others[0].isdecimal():
            # sinfo -N -h: NODELIST NODES PARTITION STATE
            row["partition"], others = others[1], others[2:]
        row["state"] = next(filter(state_of, others), "")
        if others and not row["state"]:
            why = "only the first word of a line was read as a node"
            log.note(why, number, ascii(" ".join([name, *others])[:80]))
        gres = [word for word in others if of_gres(word) is not None]
        yield {**row, "gpus": of_gres(gres[0])} if gres else row


def _queues(lines: Lines) -> Iterator[Found]:
    """Queues of each host (qstat -f): busy if one of them has a job, unavailable if none of them takes one."""
    order = ("busy", "idle", "down")
    hosts: dict[str, Found] = {}
    for number, line in lines:
        found = _QUEUE.fullmatch(line)
        if found:
            queue, host, used, letters = found.groups()
            state = "busy" if int(used) else "down" if letters else "idle"
            row = hosts.setdefault(
                host, {"line": number, "hosts": host, "state": "down"}
            )
            row["state"] = min(state, row["state"], key=order.index)
            row["partition"] = (
                f"{row['partition']},{queue}" if "partition" in row else queue
            )
    yield from hosts.values()


# --- JSON -----------------------------------------------------------------------------------------------------------


def _json(lines: Lines, log: Log) -> Iterator[Found]:
    """Read what sinfo, scontrol show node (a list of nodes) or pbsnodes -F json (an object of them) print."""

    def nodes(entry: dict[str, Any], name: str, _: int) -> Iterator[Found]:
        if name:
            yield {**_of_pbs(entry), "hosts": name, "vnode": True}
            return
        inner = entry.get("nodes")
        names = (
            inner["nodes"]
            if isinstance(inner, dict)
            else [entry.get("name") or entry["hostname"]]
        )
        yield {**_of_slurm(entry), "hosts": ",".join(map(str, names))}

    return _objects(lines, log, nodes, ("sinfo", "nodes"), "sinfo --json", bare=False)


def _of_pbs(entry: Mapping[str, Any]) -> Found:
    """What pbsnodes states of a node, by the names that it has in text."""
    has = entry.get("resources_available") or {}
    stated = {
        f"resources_available.{name}".lower(): str(value) for name, value in has.items()
    }
    names = [name for name in ("state", "queue", "jobs") if entry.get(name)]
    return _stated(stated | {name: str(entry[name]) for name in names})


def _of_slurm(entry: Mapping[str, Any]) -> Found:
    """What sinfo or scontrol states of nodes; what qualifies a state is up to 22.05 in `state_flags`."""
    node = entry.get("node") or entry
    states = [
        state for name in ("state", "state_flags") for state in _listed(node.get(name))
    ]
    tres, gres, cores = (entry.get(name) for name in ("tres", "gres", "cpus"))
    if isinstance(gres, dict):
        gres = gres.get("total")
    if isinstance(cores, dict):
        cores = cores.get("maximum")
    cores = entry.get("effective_cpus", cores)
    stated = {"cfgtres": tres, "gres": gres, "cpus": cores}
    known = _stated(
        {name: str(value) for name, value in stated.items() if value is not None}
    )
    partition = entry.get("partition")
    named = (
        partition.get("name")
        if isinstance(partition, dict)
        else entry.get("partitions")
    )
    return {
        **known,
        "state": "+".join(states),
        "partition": ",".join(_listed(named)),
        "cluster": str(entry.get("cluster") or ""),
    }


def _listed(value: Any) -> list[str]:
    """The texts of a list, or of what is none."""
    values = value if isinstance(value, list) else [value]
    return [str(each) for each in values if each is not None and each != ""]


def _kubernetes(lines: Lines, log: Log) -> Iterator[Found]:
    """Read what `kubectl get nodes -o json` prints: a list of nodes, or one."""

    def node(entry: dict[str, Any], _: str, number: int) -> Iterator[Found]:
        status = entry.get("status") or {}
        ready = [
            each.get("status")
            for each in status.get("conditions") or ()
            if each.get("type") == "Ready"
        ]
        states = ["down"] if ready and ready[-1] != "True" else []
        states += ["drained"] if (entry.get("spec") or {}).get("unschedulable") else []
        row: Found = {
            "hosts": str(entry["metadata"]["name"]),
            "state": "+".join(states),
        }
        stated = status.get("allocatable") or status.get("capacity")
        if stated:
            row["gpus"], row["cores"] = (amount // 1000 for amount in amounts(stated))
        yield row

    return _objects(lines, log, node, ("items",), "kubectl get nodes -o json")


def _objects(
    lines: Lines,
    log: Log,
    nodes: Callable[[dict[str, Any], str, int], Iterable[Row]],
    keys: Sequence[str],
    command: str,
    *,
    expected: str = "JSON of nodes",
    bare: bool = True,
) -> Iterator[Found]:
    """Yield the nodes of each object; objects count as lines, and lines are those of the log."""
    before = lines.read
    body = replace(log, lines=lines, items=None)
    for row in each_object(
        body, nodes, keys=keys, expected=expected, command=command, bare=bare
    ):
        yield {**row, "line": row["line"] + before}
    log.items = (log.items or 0) + (body.items or 0)


def _resource_set(lines: Lines, log: Log) -> Iterator[Found]:
    """Read what `flux resource R` prints (RFC 20): execution.nodelist names the hosts of all ranks, in their order."""

    def nodes(entry: dict[str, Any], _: str, number: int) -> Iterator[Found]:
        execution = entry["execution"]
        words = [
            word for part in execution["nodelist"] for word in _COMMA.split(str(part))
        ]
        hosts = [host for word in words for host in _expanded(word, _NO_R)]
        ranks = {
            rank: {name: len(_ids(ids)) for name, ids in part["children"].items()}
            for part in execution["R_lite"]
            for rank in _ids(part["rank"])
        }
        properties = {
            name: _ids(ids) for name, ids in (execution.get("properties") or {}).items()
        }
        if len(hosts) != len(ranks):
            why = "R of Flux has another number of hosts than of ranks"
            log.note(why, number, f"{len(hosts)} and {len(ranks)}")
            ranks = {}
        # Brokers of one host have a rank each.
        for place, (host, rank) in enumerate(zip_longest(hosts, sorted(ranks))):
            has = ranks.get(rank, {})
            queues = [name for name, ids in properties.items() if rank in ids]
            row: Found = {
                "hosts": host,
                "part": True,
                "again": place > 0,
                "partition": ",".join(queues),
            }
            yield {
                **row,
                "gpus": has.get("gpu", 0 if has else None),
                "cores": has.get("core"),
            }

    expected = "R of Flux: expected execution with R_lite and nodelist"
    return _objects(lines, log, nodes, ("",), "flux resource R", expected=expected)


def _ids(text: object) -> list[int]:
    """The numbers of a set of ids such as 0-3,7."""
    return [int(name[1:]) for name in _expanded(f"r[{text}]", _NO_R)]


def _expanded(text: str, why: str) -> tuple[str, ...]:
    """The names of a host list; Unusable where it is none."""
    try:
        return expand(text)
    except HostListError as error:
        raise Unusable(why, str(error)) from error


# --- lists of nodes -------------------------------------------------------------------------------------------------

_COMMANDS = "scontrol show node, sinfo -N, pbsnodes -a, bhosts or qhost, or list the names one a line"


def read_nodes(log: Log) -> Iterator[Row]:
    """Read a list of nodes, which then are the machine's; see `_printed` for what is taken.

    Nodes in Slurm's state FUTURE are not there yet and are left out.

    Raises
    ------
    InputError
        When no node is named.
    """

    def listed(row: Found) -> None:
        hosts = _expanded(row["hosts"], "is no list of nodes")
        if "[" not in row["hosts"] and len({host.isdecimal() for host in hosts}) > 1:
            why = "holds names and numbers: a row of a table? Name its columns in a first line, such as node,cores"
            raise Unusable(why, ascii(row["hosts"][:80]))
        since, until = (_instant(log, row, name) for name in ("since", "until"))
        if since is not None and until is not None and until < since:
            raise Unusable("column until is before since")
        was = _expanded(row.get("was") or "", "column was holds no list of nodes")
        if was and len(was) != len(hosts):
            why = "column was holds another number of names than the nodes of the row"
            raise Unusable(why, f"{len(was)} and {len(hosts)}")
        row |= {"kind": "listed", "since": since, "until": until}

    hint = f"export with {_COMMANDS}"
    return _judged(
        log, _printed(log.lines, log), listed, "names no node of the machine", hint
    )


def _judged(
    log: Log,
    found: Iterable[Found],
    judge: Callable[[Found], None],
    lacking: str,
    hint: str,
) -> Iterator[Row]:
    """Yield the rows of nodes, and why others are not used.

    Parameters
    ----------
    log, found
        The log, and what is printed of nodes.
    judge
        Completes a row, or raises `Refused`.
    lacking, hint
        What is to be said where there is no row.

    Raises
    ------
    InputError
        When there is none.
    """
    lost, any_nodes = "", False
    for row in found:
        if "why" not in row:
            # qhost's line for all hosts, a ruler
            if row["hosts"] == "global" or not row["hosts"].strip("-"):
                continue
            try:
                _refuse_none(row)
                judge(row)
                any_nodes = True
            except Refused as refused:
                row |= {"why": refused.why, "detail": refused.detail}
        if "why" in row:
            lost = lost or f"{row['why']} (line {row['line']}, {row['detail']})"
            row = {name: row[name] for name in ("line", "why", "detail")}
            row["kind"] = "nothing"
        yield row
    if not any_nodes:
        raise InputError(lacking, file=log.name, hint=lost or hint)


def _refuse_none(row: Found) -> None:
    """Leave out what is no node that is there; a vnode is a part of its host."""
    if row["hosts"] == "n/a":
        raise LeftOut("a partition without nodes")
    if state_of(row.get("state") or "") == "absent":
        raise LeftOut("a node that is not there yet (state FUTURE)")
    if row.pop("vnode", False):
        host = PART_OF_HOST.sub("", row["hosts"])
        row |= {"hosts": host, "part": host != row["hosts"]}


def _instant(log: Log, row: Found, name: str) -> int | None:
    """UTC nanoseconds of a column of times or days; None where it has none."""
    text = row.get(name) or ""
    text += "T00:00:00" * (len(text) == len("2024-01-31"))
    times = log.clock.times(texts([text]), lambda _, why: log.note(why, row["line"]))
    if times.bad[0]:
        raise Unusable(f"column {name} holds no time", no_time(text))
    return int(times.ns[0]) if times.ns[0] != NONE else None


# --- snapshots ------------------------------------------------------------------------------------------------------

_SNAPSHOT_COLUMNS = {
    "start": ("timestamp", "time", "stamp", "date"),
    "hosts": ("node", "nodes", "nodelist", "host", "hostname"),
    "state": ("state",),
}
_UNKNOWN = "states no state of a node that is known: expected idle, busy, down, or what sinfo, pbsnodes or bhosts print"
# A stamp in a file's name: seconds since 1970, or 20240131T120000, 2024-01-31_12-00, ..., with a Z for UTC.
_EPOCH_NAME = re.compile(r"(?<!\d)(1\d{9})(?!\d)")
_DATE_NAME = re.compile(
    r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)[T_. -]?([0-2]\d)[-:.]?([0-5]\d)(?:[-:.]?([0-5]\d))?(?!\d)(Z?)"
)
_JSON_STAMP = re.compile(r'"timestamp"\s*:\s*(\d{9,10})\b')
# A line with a time: what date prints with +%s or -Is, and as it is, as sinfo -l does.
_TIME = re.compile(r"\d{9,10}(\.\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*( UTC| GMT)?")
_DATE = re.compile(r"[A-Z][a-z]{2} .*\d\d:\d\d:\d\d")
_ZONE = re.compile(r" (?!AM|PM)([A-Z]{2,5}|[+-]\d\d)(?= |$)")
_DATE_FORMATS = (
    "%a %b %d %H:%M:%S %Y",
    "%a %b %d %I:%M:%S %p %Y",
    "%a %d %b %Y %I:%M:%S %p",
    "%a %d %b %Y %H:%M:%S",
)


def read_snapshots(log: Log) -> Iterator[Block | Row]:
    """Read snapshots of the states of nodes.

    Either a table with the columns timestamp, node and state, or what a command prints of all nodes (`_printed` has
    the list), each time with a stamp: a line with nothing but a time before it, `timestamp` in the JSON of pbsnodes,
    the file's name, or, if `Settings.mtime` asks for it, the time of the file's last change.

    Raises
    ------
    InputError
        When a snapshot has no stamp, or names no node with a state.
    """
    log.words = {"start": "column timestamp"}
    counts_as = log.settings.counts_as

    def seen(row: Found) -> None:
        text = row.get("state") or ""
        state = state_of(text, counts_as)
        if state is None and text == "<various>":
            raise LeftOut(
                "a host whose vnodes differ in their states: they state theirs"
            )
        if state is None:
            raise Unusable(_UNKNOWN, ascii(text[:80]))
        row |= {"kind": "seen", "state": state}

    head = log.lines.head(lambda line: line.strip() and line[0] != "#", 1)
    header = _header(head[0]) if head else None
    names = set(map(str.lower, header[1])) if header else set()
    is_table = all(names.intersection(each) for each in _SNAPSHOT_COLUMNS.values())
    if is_table or not head:
        return _state_rows(log)
    hint = "bft-replay ingest --recipe snapshots prints what to export"
    return _judged(log, _snapshots(log), seen, "holds no state of any node", hint)


def _state_rows(log: Log) -> Iterator[Block]:
    """Read a table of timestamp, node and state."""
    for rows in Table(
        log,
        _SNAPSHOT_COLUMNS,
        needed=_SNAPSHOT_COLUMNS,
        expected="timestamp,node,state",
    ):
        cells = {
            name: pc.utf8_trim_whitespace(cells) for name, cells in rows.cells.items()
        }
        coded = cells["state"].dictionary_encode()
        words = [
            state_of(text, log.settings.counts_as) or ""
            for text in coded.dictionary.to_pylist()
        ]
        state = pa.array(words, pa.string()).take(coded.indices)
        why = rows.why
        why.where(
            flags(pc.equal(cells["hosts"], "")), f"{SKIPPED}column node names none"
        )
        why.where(
            flags(pc.equal(state, "absent")),
            f"{LEFT_OUT}a node that is not there yet (state FUTURE)",
        )
        shown = partial(_shown, cells["state"])
        why.where(flags(pc.equal(state, "")), SKIPPED + _UNKNOWN, shown)
        yield Block(kind="seen", line=rows.line, why=why, **{**cells, "state": state})


def _shown(column: pa.Array, row: int) -> str:
    return ascii(decoded(column, row)[:80])


def _snapshots(log: Log) -> Iterator[Found]:
    """Yield what commands printed, each row with the stamp of its snapshot: the line before it, else of the file."""
    stamp, begun = "", 1
    body: list[str] = []
    for number, line in chain(log.lines, [(0, "0000000000")]):
        found = _stamp(line)
        if not found:
            body.append(line)
            continue
        if any(map(str.strip, body)):
            time = stamp or _stamp_of_file(body, begun, log)
            lines = Lines(iter(["\n".join(body).encode("utf-8", "surrogateescape")]))
            lines.read = begun - 1
            for row in _printed(lines, log):
                yield {**row, "start": time}
        stamp, begun, body = found, number + 1, []


def _stamp(line: str) -> str:
    """A line that holds nothing but a time; otherwise nothing."""
    text = line.lstrip("# ").strip()
    if _TIME.fullmatch(text):
        return text
    if not _DATE.match(text):
        return ""
    zone = _ZONE.search(text)
    plain = _ZONE.sub("", text)
    for form in _DATE_FORMATS:
        with suppress(ValueError):
            stamp = datetime.strptime(plain, form).isoformat()
            return f"{stamp}Z" if zone and zone[1] in ("UTC", "GMT") else stamp
    return ""


def _stamp_of_file(body: Sequence[str], begun: int, log: Log) -> str:
    """The stamp of a snapshot with none before it: in its JSON, in the file's name, or of the file's last change."""
    stated = _JSON_STAMP.search("\n".join(body[:20]))
    file = Path(log.name)
    epoch = stated or _EPOCH_NAME.search(file.name)
    if epoch:
        return epoch[1]
    date = _DATE_NAME.search(file.name)
    if date:
        year, month, day, hour, minute, second, utc = date.groups()
        return f"{year}-{month}-{day}T{hour}:{minute}:{second or '00'}{utc}"
    if log.settings.mtime and file.is_file():
        return str(file.stat().st_mtime_ns // SECOND_NS)
    first = begun + next(place for place, line in enumerate(body) if line.strip())
    raise InputError(
        f"line {first}: a snapshot without a time: expected a line with nothing but a time before it (date +%s), or a "
        "time in the file's name, such as sinfo-20240131T120000.txt",
        file=log.name,
        hint="--mtime takes the time of the file's last change",
    )
