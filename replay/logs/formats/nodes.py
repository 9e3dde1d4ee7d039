"""What commands print of nodes (scontrol, sinfo, pbsnodes, bhosts, qhost), or names: lists of nodes, and snapshots.

Each form is parsed to what it states of a node by the names that the command has for it; `_row` knows their meanings.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bft.models import InputError
from bft.replay.logs.formats import BUILT_IN
from bft.replay.logs.formats.kubernetes import amounts
from bft.replay.logs.formats.pbs import PART_OF_HOST
from bft.replay.logs.hosts import HostListError, expand, flags
from bft.replay.logs.lines import Lines
from bft.replay.logs.records import (
    SKIPPED,
    Block,
    LeftOut,
    Log,
    Refused,
    Row,
    Unusable,
    each_object,
)
from bft.replay.logs.states import CountsAs, state_of
from bft.replay.logs.tables import Table
from bft.replay.logs.times import MISSING, NONE, no_time
from bft.replay.logs.units import amount, ids
from bft.replay.trace.node_trace import SECOND_NS

Entry: TypeAlias = dict[str, Any]
"""What is stated of nodes: `hosts` (`nodename`), or `vnode` (`name`) where that may be a part of a host such as n1[0],
the `line`, and what else, by the names that commands have for it."""

# Headers of the column that names nodes, the surest first: sinfo, pbsnodes, bhosts, qhost, a table of one's own.
_HEADERS = (
    "nodelist",
    "vnode",
    "hostnames",
    "hostname",
    "host_name",
    "nodename",
    "nodes",
    "node",
    "host",
)
_HEADER = re.compile(
    rf'(?<![^\s,;|"])({"|".join(_HEADERS)})(?![^\s,;|"])', re.IGNORECASE
)
# What scontrol, slurm.conf, sinfo, pbsnodes, bhosts, qhost and flux call it; the first that is stated counts. CPUEfctv:
# without those that jobs cannot have.
_SYNONYMS = {
    "state": ("state", "status"),
    "partition": (
        "partitions",
        "partition",
        "queue",
        "queues",
        "resources_available.qlist",
    ),
    "cores": (
        "cpuefctv",
        "effective_cpus",
        "cputot",
        "resources_available.ncpus",
        "np",
        "ncpus",
        "cpus",
        "ncpu",
        "cores",
        "ncores",
    ),
    "gpus": ("resources_available.ngpus", "ngpus", "gpus"),
    "tres": ("cfgtres", "tres"),
    "gres": ("gres",),
    "cluster": ("cluster",),
    "since": ("since",),
    "until": ("until",),
    "was": ("was",),
}
# Columns of which a row of words has several, or none (`sinfo -l` from 23.02 on); and pbsnodes -aSj has blanks in sizes
# (0 b/0 b).
_FREE_TEXT = ("reservation", "reason", "comment", "jobs")
_BYTES = re.compile(r"(?<=\d) b(?=[/\s])")
# Rulers, comments, and qhost's line for all hosts.
_NO_ROW = re.compile(r"[-\s]*$|#|global\s")
# scontrol, slurm.conf and pbsnodes -F dsv have pairs; pbsnodes -a a name, and indented lines such as `state = free`.
_BLOCK = re.compile(r"\s*\w+=|\s+\S+ = ")
_NODE_NAME = re.compile(r"(?<!\S)NodeName=", re.IGNORECASE)
_KEY = re.compile(r"(?<![^\s|])([A-Za-z_][\w.]*)=([^\s|]*)")
_STANZA = re.compile(r"\s+(\S+) = (.*)")
# A line of qstat -f: queue@host, type, reserved/used/total slots, load, architecture, and letters for what is wrong.
_QUEUE = re.compile(
    r"(\S+)@(\S+)\s+[BIPCNTM]+\s+\d+/(\d+)/\d+\s+\S+\s+\S+(?:\s+(\w+))?\s*"
)
# A comma between host lists.
_COMMA = re.compile(r",(?![^\[]*\])")


def _sections(log: Log) -> Iterator[Entry]:
    """Yield what commands printed, each with the stamp and the cluster in lines before it."""
    whole, begun = log.lines, 1
    stamp = cluster = ""
    body: list[str] = []
    for number, line in chain(whole, [(0, "CLUSTER:")]):
        is_cluster, found = line.startswith("CLUSTER:"), _stamp(line)
        if not (is_cluster or found):
            body.append(line)
            continue
        if any(each.strip() and each[0] != "#" for each in body):
            text = "\n".join(body)
            log.lines = Lines(iter([text.encode("utf-8", "surrogateescape")]))
            log.lines.read = begun - 1
            stated = _JSON_STAMP.search(text, 0, 2_000)
            stamp = stamp or (stated[1] if stated else "")
            for entry in _entries(log):
                yield {"stamp": stamp, "cluster": cluster, **entry}
        stamp = found or stamp
        cluster = line[8:].strip() if is_cluster else cluster
        begun, body = number + 1, []
    log.lines = whole


def _entries(log: Log) -> Iterator[Row]:
    """Yield what one command printed of nodes, whatever command it was.

    Taken are the JSON of sinfo, scontrol, pbsnodes, kubectl get nodes and flux resource R; blocks (scontrol show node,
    slurm.conf, pbsnodes -a); tables with a header (sinfo, pbsnodes -aS, bhosts, qhost, CSV); the queues of qstat -f;
    and otherwise the first word of each line (plain names, `sinfo -N -h -o "%N %T"`), of sinfo without its header the
    last.
    """
    head = log.lines.head(lambda line: line.strip() and line[0] != "#", 1_000)
    if head[0].lstrip().startswith("{"):
        return _objects(log)
    if any(map(_BLOCK.match, head)):
        return _blocks(log)
    headers = list(
        filter(_HEADER.search, head[:2])
    )  # pbsnodes -aSj has one of two lines
    if headers:
        return _table(log, headers[0])
    if any(map(_QUEUE.fullmatch, head)):
        return _queues(log)
    return _names(log)


# --- text -----------------------------------------------------------------------------------------------------------


def _blocks(log: Log) -> Iterator[Entry]:
    """Read blocks of what is known of a node, in one line, continued, or indented."""
    usual: Entry = {}
    block: Entry = {"line": 1}
    title, goes_on = "", False
    for number, line in chain(log.lines, [(0, "end")]):
        if line.lstrip().startswith("#"):
            continue
        if not (goes_on or line[:1].isspace()) or _NODE_NAME.search(line):
            if block.get("nodename", "").upper() == "DEFAULT":
                usual |= block
            elif block.get("nodename") or block.get("name"):
                yield usual | block
            title, block = "".join(line.split()[:1]), {"line": number}
        stanza = _STANZA.match(line)
        if stanza:
            block.setdefault("name", title)
        # Free text comes last.
        for key, value in [stanza.groups()] if stanza else _KEY.findall(line):
            block.setdefault(key.lower(), value.strip())
        goes_on = line.endswith("\\")
        if title.lower() == "include":
            log.note(
                "an included file was not read: give it with --nodes too",
                number,
                ascii(line.strip()[:80]),
            )


def _cells(line: str, mark: str) -> list[str]:
    if mark == " ":
        return _BYTES.sub("b", line).split()
    return [cell.strip() for cell in next(csv.reader([line], delimiter=mark))]


def _table(log: Log, header: str) -> Iterator[Entry]:
    """A table below a header, which may come again; a mark separates columns, or any white space."""
    mark = next((mark for mark in ",;|\t" if mark in header), " ")
    names: list[str] = []
    above = ""
    for number, line in log.lines:
        if line.split() == header.split():
            upper = iter(above.lower().split())  # pbsnodes -aSj: what f/t is of
            cells = _cells(line.lower(), mark)
            names = [next(upper, name) if name == "f/t" else name for name in cells]
        elif names and not _NO_ROW.match(line):
            yield _table_row(line, mark, names) | {"line": number}
        above = line


def _table_row(line: str, mark: str, names: Sequence[str]) -> Entry:
    """Return what a row of a table states, or why it is not used."""
    column = next((name for name in _HEADERS if name in names), names[0])
    cells = _cells(line, mark)
    excess = len(cells) - len(names)
    place = next((names.index(name) for name in _FREE_TEXT if name in names), -1)
    if mark == " " and place >= 0 and excess >= -1:
        end = place + 1 + excess
        cells = [*cells[:place], " ".join(cells[place:end]), *cells[end:]]
    if mark == " " and len(cells) != len(names):
        # One is empty, or holds blanks: those at the ends are sure.
        names, cells = [names[0], names[-1]], [cells[0], cells[-1]]
    row = dict(zip(names, cells, strict=False))
    text = row.get(column, "")
    if not text or (column == "nodes" and text.isdecimal()):
        why = f"{SKIPPED}column {column.upper()} names no node"
        return {"kind": "nothing", "why": why, "detail": ascii(line[:80])}
    stated = {name: cell for name, cell in row.items() if cell != "--"}
    key = "vnode" if column == "vnode" else "hosts"
    return {**stated, key: text, "kind": "listed", "part": False, "again": False}


def _names(log: Log) -> Iterator[Entry]:
    """Lines that begin with a name and perhaps a state, or those of sinfo without its header, which end with a name."""
    for number, line in log.lines:
        name, *words = re.split(r"[\s|;]+", line.split("#")[0].strip())
        if _NO_ROW.match(name) or "=" in name:
            continue
        entry: Entry = {"line": number, "hosts": name}
        if len(words) > 3 and words[0] in ("up", "down", "drain", "inact"):
            # sinfo -h: PARTITION AVAIL TIMELIMIT NODES STATE NODELIST
            entry |= {"hosts": words[-1], "state": words[-2], "partition": name}
            words = []
        elif len(words) > 2 and words[0].isdecimal():
            # sinfo -N -h: NODELIST NODES PARTITION STATE
            entry["partition"], words = words[1], words[2:]
        state = next(filter(state_of, words), "")
        if words and not state:
            log.note(
                "only the first word of a line was read as a node",
                number,
                ascii(line.strip()[:80]),
            )
        gres = (word for word in words if amount(word, "gpu") is not None)
        yield {"state": state, "gres": next(gres, None), **entry}


def _queues(log: Log) -> Iterator[Entry]:
    """Queues of each host (qstat -f): busy if one of them has a job, unavailable if none of them takes one."""
    hosts: dict[str, Entry] = {}
    for number, line in log.lines:
        found = _QUEUE.fullmatch(line)
        if found:
            queue, host, used, letters = found.groups()
            state = "busy" if int(used) else "down" if letters else "idle"
            first = {"line": number, "hosts": host, "state": "down", "queues": ""}
            entry = hosts.setdefault(host, first)
            entry["state"] = min(
                state, entry["state"], key=("busy", "idle", "down").index
            )
            entry["queues"] += f",{queue}"
    yield from hosts.values()


# --- JSON -----------------------------------------------------------------------------------------------------------


def _objects(log: Log) -> Iterator[Row]:
    """Read JSON of sinfo, scontrol (a list of nodes), pbsnodes (an object of them), kubectl get nodes and Flux's R."""

    def nodes(entry: Entry, name: str, number: int) -> Iterator[Entry]:
        if "execution" in entry:
            yield from _resource_set(log, entry["execution"], number)
        elif "metadata" in entry:
            yield _kubernetes(entry)
        elif name:
            has = entry.get("resources_available") or {}
            each = {f"resources_available.{key}".lower(): has[key] for key in has}
            stated = {key: _text(value) for key, value in (entry | each).items()}
            yield {**stated, "vnode": name}
        else:
            each = entry | (entry.get("node") or {})
            named = entry.get("nodes") or entry.get("name") or entry["hostname"]
            # What qualifies a state is up to 22.05 in `state_flags`.
            each["state"] = [_text(each.get(key)) for key in ("state", "state_flags")]
            stated = {key: _text(value) for key, value in each.items()}
            yield {**stated, "hosts": _text(named)}

    return each_object(
        log,
        nodes,
        keys=("sinfo", "nodes", "items"),
        expected="JSON of nodes: expected nodes or name, metadata, or execution with R_lite and nodelist",
        command="sinfo --json",
    )


def _text(value: Any) -> str:
    """A value of JSON as it is in text; of an object what it has of these, the first."""
    if isinstance(value, dict):
        keys = ("name", "nodes", "maximum", "total")
        value = next((value[key] for key in keys if key in value), None)
    values = value if isinstance(value, list) else [value]
    return ",".join(str(each) for each in values if each is not None)


def _kubernetes(entry: Mapping[str, Any]) -> Entry:
    """What kubectl prints of a node."""
    status = entry.get("status") or {}
    conditions = status.get("conditions") or ()
    ready = [each.get("status") for each in conditions if each.get("type") == "Ready"]
    states = ["down"] if ready and ready[-1] != "True" else []
    states += ["drained"] if (entry.get("spec") or {}).get("unschedulable") else []
    stated: Entry = {"hosts": str(entry["metadata"]["name"]), "state": ",".join(states)}
    has = status.get("allocatable") or status.get("capacity")
    if has:
        gpus, cores = amounts(has)
        stated |= {"gpus": str(gpus // 1000), "cores": str(cores // 1000)}
    return stated


def _resource_set(log: Log, execution: Entry, number: int) -> Iterator[Entry]:
    """Read Flux's R (RFC 20): nodelist names the hosts of all ranks, in their order; brokers of one host have some."""
    lists = [word for part in execution["nodelist"] for word in _COMMA.split(str(part))]
    hosts = [host for word in lists for host in expand(word)]
    ranks = {
        rank: each["children"]
        for each in execution["R_lite"]
        for rank in ids(each["rank"])
    }
    queues = execution.get("properties") or {}
    if len(hosts) != len(ranks):
        log.note(
            "R of Flux has another number of hosts than of ranks",
            number,
            f"{len(hosts)} and {len(ranks)}",
        )
        ranks = {}
    for place, (host, rank) in enumerate(zip_longest(hosts, sorted(ranks))):
        has = {"gpu": "", **ranks.get(rank, {})} if ranks else {}
        stated = {f"{name}s": str(len(ids(some))) for name, some in has.items()}
        mine = [name for name, some in queues.items() if rank in ids(some)]
        stated |= {"hosts": host, "partition": ",".join(mine)}
        yield {**stated, "part": True, "again": place > 0}


# --- what is stated, by our names -----------------------------------------------------------------------------------


def _row(entry: Row) -> dict[str, Any]:
    """Return what is stated of nodes as a row; `Refused` where that is no node that is there."""
    stated: dict[str, Any] = {
        ours: next((entry[name] for name in theirs if entry.get(name)), "")
        for ours, theirs in _SYNONYMS.items()
    }
    hosts, part = entry.get("hosts", entry.get("nodename")), entry.get("part", False)
    if hosts is None:
        vnode = entry.get("vnode", entry.get("name"))
        hosts = PART_OF_HOST.sub("", vnode)
        part = hosts != vnode
    state = _state(entry, stated["state"])
    if hosts in ("", "n/a"):
        raise LeftOut("a partition without nodes")
    if state_of(state) == "absent":
        raise LeftOut("a node that is not there yet (state FUTURE)")
    tres, gres = stated.pop("tres"), stated.pop("gres")
    # flux resource list: of all of them
    nodes = _whole(entry.get("nnodes", "")) or 1
    gpus, cores = amount(tres, "gpu"), _whole(stated["cores"], nodes)
    if gpus is None and (tres or entry.get("gres") is not None):
        gpus = amount(gres, "gpu") or 0
    return {
        **stated,
        "line": entry["line"],
        "hosts": hosts,
        "part": part,
        "state": state,
        "again": entry.get("again", False),
        "gpus": _whole(stated["gpus"], nodes) if gpus is None else gpus,
        "cores": amount(tres, "cpu") if cores is None else cores,
        "shares": amount(tres, "shares") or amount(gres, "shares"),
    }


def _state(entry: Row, state: str) -> str:
    """The state of a node, which has jobs besides where PBS and LSF call it free or ok."""
    if state == "UNKNOWN" and "nodename" in entry and "cpualloc" not in entry:
        state = ""  # slurm.conf: it is to be found out
    elif state.lower() == "ok":
        state = "idle" if "njobs" in entry else ""
    elif not state and entry.get("load") == "-":
        state = "down"  # qhost
    jobs = {entry.get(name, "") for name in ("jobs", "njobs")} - {"", "0", "-"}
    return f"{state},busy" if state and jobs else state


def _whole(text: str, nodes: int = 1) -> int | None:
    """A count of each of some nodes; of those that are free and all of them (f/t) the latter, of 16+ the least."""
    text = text.strip().rpartition("/")[2].rstrip("+")
    return int(text) // nodes if text.isdecimal() and len(text) < 10 else None


# --- lists of nodes -------------------------------------------------------------------------------------------------


def read_nodes(log: Log) -> Iterator[Row]:
    """Read a list of nodes, which then are the machine's; see `_entries` for what is taken.

    Nodes in Slurm's state FUTURE are not there yet and are left out.

    Raises
    ------
    InputError
        When no node is named.
    """

    def listed(entry: Row) -> Row:
        row = _row(entry)
        hosts, was = expand(row["hosts"]), expand(row["was"])
        if "[" not in row["hosts"] and len({host.isdecimal() for host in hosts}) > 1:
            raise Unusable(
                "holds names and numbers: a row of a table? Name its columns in a first line, such as node,cores",
                ascii(row["hosts"][:80]),
            )
        since, until = (_instant(log, row, name) for name in ("since", "until"))
        if since is not None and until is not None and until < since:
            raise Unusable("column until is before since")
        if was and len(was) != len(hosts):
            raise Unusable(
                "column was holds another number of names than the nodes of the row",
                f"{len(was)} and {len(hosts)}",
            )
        return row | {"kind": "listed", "since": since, "until": until}

    return _judged(
        log,
        listed,
        "names no node of the machine: expected what scontrol show node, sinfo -N, pbsnodes -a, bhosts or qhost print, "
        "or a name a line",
    )


def _judged(log: Log, judge: Callable[[Row], Row], lacking: str) -> Iterator[Row]:
    """Yield the rows of what is printed of nodes, and why others are not used; InputError where there is no row."""
    lost, any_nodes = "", False
    for entry in _sections(log):
        row: Row = entry
        try:
            if "why" not in entry:
                row = judge(entry)
                any_nodes = True
        except Refused as refused:
            row = {"why": refused.why, "detail": refused.detail}
        except HostListError as error:
            row = {"why": f"{SKIPPED}is no list of nodes", "detail": str(error)}
        if "why" in row:
            line, why, detail = entry["line"], row["why"], row["detail"]
            row = {"line": line, "kind": "nothing", "why": why, "detail": detail}
            lost = lost or f"{why} (line {line}, {detail})"
        yield row
    if not any_nodes:
        raise InputError(lacking, file=log.name, hint=lost or None)


def _instant(log: Log, row: Row, name: str) -> int | None:
    """UTC nanoseconds of a column of times or days; None where it has none."""
    text = row[name] + "T00:00:00" * (len(row[name]) == len("2024-01-31"))
    if text in MISSING:
        return None
    ns = log.clock.time(text, lambda why: log.note(why, row["line"]))
    if ns == NONE:
        raise Unusable(f"column {name} holds no time", no_time(text))
    return ns


# --- snapshots ------------------------------------------------------------------------------------------------------

_SNAPSHOT_COLUMNS = {
    "start": ("timestamp", "time", "stamp", "date"),
    "hosts": ("node", "nodes", "nodelist", "host", "hostname"),
    "state": ("state",),
}
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

    Either a table with the columns timestamp, node and state, or what a command prints of all nodes (`_entries` has
    the list), each time with a stamp: a line with nothing but a time before it, `timestamp` in the JSON of pbsnodes,
    the file's name, or, if `Settings.mtime` asks for it, the time of the file's last change.

    Raises
    ------
    InputError
        When a snapshot has no stamp, or names no node with a state.
    """
    log.words = {"start": "column timestamp"}

    def seen(entry: Row) -> Row:
        row = _row(entry)
        state = _seen(row["state"], log.settings.counts_as)
        start = entry["stamp"] or _stamp_of_file(log, entry["line"])
        return row | {"kind": "seen", "state": state, "start": start}

    head = log.lines.head(lambda line: line.strip() and line[0] != "#", 1)
    if any(re.match(BUILT_IN["snapshots"].first_line, line) for line in head):
        return _state_rows(log)
    return _judged(
        log,
        seen,
        "holds no state of any node: bft-replay ingest --recipe snapshots prints what to export",
    )


def _seen(text: str, counts_as: CountsAs) -> str:
    """The state of a node that a word of a snapshot stands for; `Refused` where it says nothing."""
    state = state_of(text, counts_as)
    if state == "absent":
        raise LeftOut("a node that is not there yet (state FUTURE)")
    if text == "<various>":
        raise LeftOut("a host whose vnodes differ in their states: they state theirs")
    if state is None:
        raise Unusable(
            "states no state of a node that is known: expected idle, busy, down, or what sinfo, pbsnodes or bhosts "
            "print",
            ascii(text[:80]),
        )
    return state


def _state_rows(log: Log) -> Iterator[Block]:
    """Read a table of timestamp, node and state."""
    table = Table(
        log,
        _SNAPSHOT_COLUMNS,
        needed=_SNAPSHOT_COLUMNS,
        expected="timestamp,node,state",
    )
    for rows in table:
        trimmed = {
            name: pc.utf8_trim_whitespace(cells) for name, cells in rows.cells.items()
        }
        rows.why.where(
            flags(pc.equal(trimmed["hosts"], "")), f"{SKIPPED}column node names none"
        )
        coded = trimmed["state"].dictionary_encode()
        words: list[str] = []
        for code, text in enumerate(coded.dictionary.to_pylist()):
            try:
                words.append(_seen(text, log.settings.counts_as))
            except Refused as refused:
                words.append("")
                mine = coded.indices.to_numpy() == code
                rows.why.where(mine, refused.why, refused.detail)
        trimmed["state"] = pa.array(words, pa.string()).take(coded.indices)
        yield Block(kind="seen", line=rows.line, why=rows.why, **trimmed)


def _stamp(line: str) -> str:
    """A line that holds nothing but a time; otherwise nothing."""
    text = line.lstrip("# ").strip()
    if _TIME.fullmatch(text):
        return text
    zone = _ZONE.search(text)
    for form in _DATE_FORMATS if _DATE.match(text) else ():
        with suppress(ValueError):
            stamp = datetime.strptime(_ZONE.sub("", text), form).isoformat()
            return f"{stamp}Z" if zone and zone[1] in ("UTC", "GMT") else stamp
    return ""


def _stamp_of_file(log: Log, line: int) -> str:
    """The stamp of a snapshot with none before it: in the file's name, or of the file's last change."""
    file = Path(log.name)
    epoch, date = _EPOCH_NAME.search(file.name), _DATE_NAME.search(file.name)
    if epoch:
        return epoch[1]
    if date:
        return date.expand(rf"\1-\2-\3T\4:\5:{date[6] or '00'}\7")
    if log.settings.mtime and file.is_file():
        return str(file.stat().st_mtime_ns // SECOND_NS)
    raise InputError(
        f"line {line}: a snapshot without a time: expected a line with nothing but a time before it (date +%s), or a "
        "time in the file's name, such as sinfo-20240131T120000.txt",
        file=log.name,
        hint="--mtime takes the time of the file's last change",
    )
