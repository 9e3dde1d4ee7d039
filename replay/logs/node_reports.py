"""What commands print of nodes (scontrol, sinfo, pbsnodes, bhosts, qhost), or names: lists of nodes, and snapshots."""

from __future__ import annotations

import json
import re
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from bft.models import InputError
from bft.replay.logs.hostlists import HostListError, count, expand
from bft.replay.logs.kubernetes import amounts
from bft.replay.logs.node_states import (
    BUSY,
    IDLE,
    UNAVAILABLE,
    power_of,
    state_of,
)
from bft.replay.logs.pbs import host_of
from bft.replay.logs.reading import (
    MISSHAPEN,
    MISSING,
    Clock,
    Ignored,
    NodesListed,
    NodesSeen,
    Reading,
    Record,
    Skipped,
    Unusable,
    columns_of,
    elements,
    first_line,
    no_time,
)
from bft.replay.logs.tables import split_fields
from bft.replay.logs.units import of_gres, of_tres
from bft.replay.trace.node_trace import SECOND_NS

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
# scontrol and slurm.conf; pbsnodes -F dsv.
_NODE_NAME = re.compile(r"(?:(?<!\S)NodeName|^Name)=([^\s|]+)", re.IGNORECASE)
_STATE = re.compile(r"(?<!\S)State=(\S+)", re.IGNORECASE)
_PARTITIONS = re.compile(r"(?<!\S)Partitions=(\S+)")
# Columns of a table of nodes beside the names, by what they are called here.
_MORE = {"SINCE": "since", "UNTIL": "until", "WAS": "was", "PARTITION": "partitions"}
NO_MORE: Mapping[str, str] = MappingProxyType({})
_PAIR = re.compile(r"\s*\w+=")
_KEY = re.compile(r"(?<![^\s|])([A-Za-z_][\w.]*)=([^\s|]*)")
# Of a node's block that much is searched for what it has.
_MOST_STATED = 1 << 16
_STANZA_HAS = frozenset(
    {"resources_available.ngpus", "resources_available.ncpus", "gpus", "np"}
)
_STANZA = re.compile(r"\s+(\S+) = (.*)")
# A line of qstat -f: queue@host, type, reserved/used/total slots, load, architecture, and letters for what is wrong.
_QUEUE = re.compile(
    r"\S+@(\S+)\s+[BIPCNTM]+\s+\d+/(\d+)/\d+\s+\S+\s+\S+(?:\s+(\w+))?\s*"
)
# What only Flux's R has, among what begins as JSON.
_EXECUTION = re.compile(r'"execution"\s*:')
# What kubectl get nodes -o json has.
_KUBERNETES = re.compile(r'"kind"\s*:\s*"Node(List)?"')
# The states of a partition, in sinfo's second column.
_AVAILABLE = frozenset({"up", "down", "drain", "inact"})


@dataclass(frozen=True, slots=True)
class Resources:
    """GPUs, cores and shares of GPUs (shards, MPS) of a node; None: not stated."""

    gpus: int | None = None
    cores: int | None = None
    shares: int | None = None

    def or_else(self, usual: Resources) -> Resources:
        """With what is usual in the place of what is not stated."""
        gpus, cores = (
            usual.gpus if self.gpus is None else self.gpus,
            usual.cores if self.cores is None else self.cores,
        )
        return Resources(gpus, cores, self.shares or usual.shares)


NOTHING = Resources()


class Reported(NamedTuple):
    """Text that a line prints of a node, of a list of nodes, or of a vnode.

    Parameters
    ----------
    text, line, state
        The nodes as printed, where they are, and their state as printed.
    vnode
        Whether it may be a part of a node (n1[0]).
    has
        What the nodes have.
    more
        Their partitions, since and until when they are there, and other names of theirs, as printed.
    """

    text: str
    line: int
    state: str = ""
    vnode: bool = False
    has: Resources = NOTHING
    more: Mapping[str, str] = NO_MORE


Reports: TypeAlias = Iterator[Reported | Skipped]


class Report:
    """The lines of a report: counts them, and knows of which cluster they are, as far as they say so.

    Parameters
    ----------
    reading
        As every reader has it.
    wrong
        Says why nodes and state as printed cannot be used, and a detail; empty when they can.

    Attributes
    ----------
    stamp_ns
        When the snapshot was made whose lines come now.
    """

    def __init__(
        self,
        reading: Reading,
        wrong: Callable[[Reported, tuple[str, ...]], tuple[str, str]],
    ) -> None:
        self.reading, self._wrong = reading, wrong
        self.cluster = ""
        self.stamp_ns = 0

    def line(self, line: str = "") -> None:
        """Count a line; sinfo -M begins clusters with lines of their own."""
        self.reading.seen.lines += 1
        if line.startswith("CLUSTER:"):
            self.cluster = line.partition(":")[2].strip()

    def records(
        self,
        reports: Iterable[Reported | Skipped],
        record: Callable[[Reported, tuple[str, ...]], Record],
        hint: str,
        lacking: str,
    ) -> Iterator[Record]:
        """Yield the records of the machine's nodes that are reported, and account for other rows.

        Raises
        ------
        InputError
            When there are none, which says what is `lacking`.
        """
        any_nodes = False
        for reported in reports:
            if isinstance(reported, Skipped):
                yield reported
                continue
            text, line, state, vnode, *_ = reported
            # qhost's line for all hosts, a ruler
            if not text or text == "global" or not text.strip("-"):
                continue
            try:
                hosts = (
                    () if text == "n/a" else expand(host_of(text) if vnode else text)
                )
            except HostListError as error:
                yield Skipped(line, "is no list of nodes", str(error))
                continue
            why, detail = self._wrong(reported, hosts)
            if why:
                yield Skipped(line, why, detail)
            elif not hosts:
                yield Ignored(line, "a partition without nodes")
            elif self.cluster and self.reading.other(line, cluster=self.cluster):
                yield Ignored(line, "node of another cluster")
            elif state_of(state) == "absent":
                yield Ignored(line, "a node that is not there yet (state FUTURE)")
            else:
                any_nodes = True
                yield record(reported, hosts)
        if not any_nodes:
            hint = self.reading.diagnosis.losses() or hint
            raise InputError(lacking, file=self.reading.file, hint=hint)


def read_report(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """Yield the nodes of what one command printed, each line with its number, whatever command it was.

    Taken are the JSON of sinfo, scontrol, pbsnodes and kubectl get nodes; Flux's resource set R; `NodeName=LIST`
    (scontrol show node, slurm.conf); the column of names below a header (sinfo, pbsnodes -aS, bhosts, qhost, CSV); the
    queues of qstat -f; and otherwise the first word of each line that is not indented (pbsnodes -a, plain names,
    `sinfo -N -h -o "%N %T"`), of sinfo without its header the last. Vnodes of PBS (n1[0]) are taken for their hosts.
    """
    source = iter(lines)
    head = list(islice(source, _LOOKED_AT))
    plain = [line for _, line in head if line.strip() and not line.startswith("#")]
    numbered = chain(head, source)
    read = _names
    if plain and plain[0].lstrip().startswith("{"):
        if any(map(_KUBERNETES.search, plain)):
            read = _kubernetes
        elif any(map(_EXECUTION.search, plain)):
            read = _resource_set
        else:
            read = _json
    elif any(_PAIR.match(line) or _NODE_NAME.search(line) for line in plain):
        read = _blocks
    elif _header_within(plain):
        read = _table
    elif any(map(_STANZA.match, plain)):
        read = _stanzas
    elif any(map(_QUEUE.fullmatch, plain)):
        read = _queues
    yield from read(numbered, report)


def _blocks(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """Read blocks of NodeName=LIST ... State=STATE: one line, indented ones (scontrol), or continued (slurm.conf)."""
    text = state = default = stated_there = ""
    begun, dsv, goes_on = 0, False, False
    usual = NOTHING

    def end() -> Reports:
        nonlocal default, usual
        has = _resources(stated_there) if text else NOTHING
        has = has.or_else(usual)
        if text.upper() == "DEFAULT":
            default, usual = state or default, has
        else:
            stated = _PARTITIONS.search(stated_there)
            more = {"partitions": stated[1]} if stated else NO_MORE
            yield Reported(text, begun, state or default, dsv, has, more)

    for number, line in lines:
        report.line()
        if line.lstrip().startswith("#"):
            continue
        named = _NODE_NAME.search(line)
        if named or not (goes_on or line[:1].isspace()):
            yield from end()
            text = state = stated_there = ""
        stated_there += f" {line}" if len(stated_there) < _MOST_STATED else ""
        if named:
            text, begun, dsv = named[1], number, line.startswith("Name=")
        stated = _STATE.search(line)
        state = state or (stated[1] if stated else "")
        goes_on = line.endswith("\\")
        if line.lower().startswith("include "):
            report.reading.note(
                "an included file was not read: give it with --nodes too",
                number,
                ascii(line.strip()[:80]),
            )
    yield from end()


def _resources(text: str) -> Resources:
    """Read the resources of a node from scontrol or slurm.conf: CfgTRES, which has all of them, else Gres and CPUs."""
    stated = {name.lower(): value for name, value in _KEY.findall(text)}
    configured = stated.get("cfgtres", "")
    # CPUEfctv: without those that jobs cannot have.
    counted = ("cpuefctv", "cputot", "cpus", "resources_available.ncpus", "np")
    cores = next((stated[name] for name in counted if name in stated), "")
    gpus = of_tres(configured, "gpu")
    if gpus is None and "gres" in stated:
        gpus = of_gres(stated["gres"]) or 0
    if gpus is None and configured:
        gpus = 0
    if gpus is None:
        gpus = _whole(stated.get("resources_available.ngpus", stated.get("gpus", "")))
    shares = of_tres(configured, "shard", "mps")
    shares = shares or of_gres(stated.get("gres", ""), "shares")
    return Resources(
        gpus, _whole(cores) if cores else of_tres(configured, "cpu"), shares
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _header_within(head: Sequence[str]) -> bool:
    """Whether a header comes first, or after lines such as the date (sinfo -l), or the upper half of a header."""
    for line in head:
        if _header(line):
            return True
        if len(line.split()) < 4 and not line.startswith("CLUSTER:"):
            return False
    return False


def _header(line: str) -> tuple[str, list[str]] | None:
    """Split a header line that names a column of sink into its delimiter (blank: any white space) and columns."""
    for mark in [mark for mark in _MARKS if mark in line] + [" "]:
        names = [name.strip().upper() for name in _cells(line, mark)]
        if any(name in names for name in _HEADERS):
            return mark, names
    return None


def _cells(line: str, mark: str) -> list[str]:
    return line.split() if mark == " " else split_fields(line, mark)


def _table(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """A table with a header, which may come again."""
    mark, names, column = " ", [""], -1
    for number, line in lines:
        report.line(line)
        header = _header(line)
        if header and (column < 0 or header[1] == names):
            mark, names = header
            column = next(names.index(name) for name in _HEADERS if name in names)
            continue
        cells = _with_blank(_cells(line, mark), mark, names)
        if column < 0 or not line.strip() or line.startswith(("#", "CLUSTER:")):
            continue
        whole = len(cells) == len(names)
        text = ""
        if whole or column == 0 or (mark != " " and column < len(cells)):
            text = cells[column].strip()
        elif (
            column == len(names) - 1 and mark == " "
        ):  # a column before it is empty, or holds blanks
            text = cells[-1]
        if not text or (names[column] == "NODES" and text.isdecimal()):
            why = f"column {names[column]} names no node"
            yield Skipped(number, why, ascii(line[:80]))
        else:
            row = dict(zip(names, cells, strict=True)) if whole else {}
            state = _state(row) if whole else ""
            more = {
                name: row[column].strip()
                for column, name in _MORE.items()
                if row.get(column, "").strip()
            }
            if whole and "CLUSTER" in names:
                report.cluster = cells[names.index("CLUSTER")].strip()
            vnode = names[column] == "VNODE"
            yield Reported(text, number, state, vnode, more=more)


def _with_blank(cells: list[str], mark: str, names: list[str]) -> list[str]:
    """The cells of a row, with an empty one where `sinfo -l` (23.02 on) leaves the column RESERVATION blank."""
    if mark != " " or "RESERVATION" not in names or len(cells) != len(names) - 1:
        return cells
    place = names.index("RESERVATION")
    return [*cells[:place], "", *cells[place:]]


def _state(row: dict[str, str]) -> str:
    """State of a row: of bhosts, whose hosts are ok while they take jobs, by the number of its jobs."""
    if "STATUS" in row and "STATE" not in row:
        status, jobs = row["STATUS"].strip().lower(), row.get("NJOBS", "").strip()
        return _with_jobs(
            "idle" if status == "ok" else status, jobs.isdecimal() and int(jobs)
        )
    return _with_jobs(row.get("STATE", ""), row.get("NJOBS", "0") not in ("0", "--"))


def _names(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """Lines that begin with a name and perhaps a state, or those of sinfo without its header, which end with a name."""
    for number, line in lines:
        report.line(line)
        words = re.split(r"[\s|;]+", line.split("#")[0].strip())
        if not words[0] or "=" in words[0] or line.startswith("CLUSTER:"):
            continue
        if (
            len(words) > 4 and words[1] in _AVAILABLE
        ):  # sinfo -h: PARTITION AVAIL TIMELIMIT NODES STATE NODELIST
            yield Reported(words[-1], number, words[-2])
            continue
        state = words[1] if len(words) == 2 and state_of(words[1]) else ""
        if len(words) > 1 and not state:
            report.reading.note(
                "only the first word of a line was read as a node",
                number,
                ascii(" ".join(words)[:80]),
            )
        yield Reported(words[0], number, state)


def _stanzas(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """A name, and below it, indented, what is known of the node (pbsnodes -a)."""
    name, begun = "", 0
    stated: dict[str, str] = {}

    def end() -> Reports:
        if name:
            has = _resources(
                " ".join(
                    f"{key}={value}"
                    for key, value in stated.items()
                    if key in _STANZA_HAS
                )
            )
            yield Reported(
                name,
                begun,
                _with_jobs(stated.get("state", ""), stated.get("jobs")),
                vnode=True,
                has=has,
            )

    for number, line in lines:
        report.line(line)
        stanza = _STANZA.match(line)
        if stanza:
            stated[stanza[1]] = stanza[2].strip()
            continue
        words = line.split("#")[0].split()
        if not words or line[0].isspace():
            continue
        yield from end()
        name, begun = words[0], number
        stated.clear()
    yield from end()


def _with_jobs(state: str, jobs: object) -> str:
    """State of a node of PBS, which calls a node free while any of its cores is."""
    return f"{state},busy" if state and jobs else state


def _queues(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """Queues of each host (qstat -f): busy if one of them has a job, unavailable if none of them takes one."""
    states: dict[str, tuple[str, int]] = {}
    for number, line in lines:
        report.line(line)
        queue = _QUEUE.fullmatch(line)
        if queue:
            host, used, letters = queue.groups()
            state = "busy" if int(used) else "down" if letters else "idle"
            known, first = states.get(host, ("down", number))
            order = ("busy", "idle", "down")
            states[host] = min(state, known, key=order.index), first
    for host, (state, number) in states.items():
        yield Reported(host, number, state)


def _json(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """Read what sinfo, scontrol show node (a list of nodes) or pbsnodes -F json (an object of them) print."""

    def nodes(entry: dict[str, Any], name: str, number: int) -> list[Reported]:
        names, state = _entry(entry, name)
        has = _has(entry, name)
        report.cluster = str(entry.get("cluster") or "")
        return [Reported(node, number, state, bool(name), has) for node in names]

    return _elements(lines, report, nodes, ("sinfo", "nodes"), "sinfo --json")


def _kubernetes(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """Read what `kubectl get nodes -o json` prints: a list of nodes, or one."""

    def node(entry: dict[str, Any], _: str, number: int) -> list[Reported]:
        name = str(entry["metadata"]["name"])
        stated = (entry.get("status") or {}).get("allocatable")
        gpus, cores = amounts(stated) if stated else (None, None)
        has = Resources(
            *(None if some is None else some // 1000 for some in (gpus, cores))
        )
        return [Reported(name, number, has=has)]

    command = "kubectl get nodes -o json"
    return _elements(lines, report, node, ("items",), command, bare=True)


def _elements(
    lines: Iterable[tuple[int, str]],
    report: Report,
    nodes: Callable[[dict[str, Any], str, int], list[Reported]],
    keys: Collection[str],
    command: str,
    *,
    bare: bool = False,
) -> Reports:
    """Yield the nodes of each object, given with its key and line; an object counts as a line, as in other JSON."""
    source = iter(lines)
    begun, first = next(source)
    body = chain([first], (line for _, line in source))
    for place, name, text in elements(
        body, keys, report.reading.file, command, bare=bare
    ):
        number = begun + place - 1
        found: Sequence[Reported | Skipped]
        try:
            found = nodes(json.loads(text), name, number)
        except Unusable as why:
            found = [Skipped(number, why.reason, why.detail)]
        except (ValueError, RecursionError, *MISSHAPEN) as error:
            found = [Skipped(number, "is no JSON of nodes", repr(error)[:200])]
        for each in found:
            report.line()
            yield each


def _has(entry: dict[str, Any], name: str) -> Resources:
    """Return the resources that the nodes of an element have."""
    if name:
        available = entry.get("resources_available") or {}
        return Resources(
            *(_whole(str(available.get(key, ""))) for key in ("ngpus", "ncpus"))
        )
    tres, gres, cores = (entry.get(key) for key in ("tres", "gres", "cpus"))
    cores = entry.get("effective_cpus", cores)
    gpus = of_tres(tres, "gpu") if isinstance(tres, str) else None
    if gpus is None and (isinstance(tres, str) or isinstance(gres, str)):
        gpus = (of_gres(gres) if isinstance(gres, str) else None) or 0
    shares = of_tres(tres, "shard", "mps") if isinstance(tres, str) else None
    return Resources(gpus, cores if isinstance(cores, int) else None, shares)


def _resource_set(lines: Iterable[tuple[int, str]], report: Report) -> Reports:
    """Read what `flux resource R` prints (RFC 20): execution.nodelist names the hosts of all ranks, in their order."""
    numbered = list(lines)
    for _ in numbered:
        report.line()
    number = numbered[0][0]
    try:
        execution = json.loads("\n".join(line for _, line in numbered))["execution"]
        lists = [str(part) for part in execution["nodelist"]]
        ranks = sum(count(f"r[{part['rank']}]") for part in execution["R_lite"])
        hosts = sum(map(count, lists))
    except HostListError as error:
        yield Skipped(
            number,
            "is no R of Flux: a list of nodes or ranks cannot be read",
            str(error),
        )
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        yield Skipped(
            number,
            "is no R of Flux: expected execution with R_lite and nodelist",
            repr(error)[:200],
        )
    else:
        if hosts != ranks:
            report.reading.note(
                "R of Flux has another number of hosts than of ranks",
                number,
                f"{hosts} and {ranks}",
            )
        yield Reported(",".join(lists), number)


def _entry(entry: dict[str, Any], name: str) -> tuple[list[str], str]:
    """Nodes of an element, and their state."""
    if name:
        return [name], _with_jobs(str(entry.get("state", "")), entry.get("jobs"))
    inner = entry.get("nodes")
    names = (
        inner["nodes"]
        if isinstance(inner, dict)
        else [entry.get("name") or entry["hostname"]]
    )
    return [str(node) for node in names], "+".join(_states(entry.get("node") or entry))


def _states(entry: Mapping[str, Any]) -> list[str]:
    """State of a node of Slurm, and what qualifies it: up to 22.05 in `state_flags`, later in the same list."""
    states: list[str] = []
    for name in ("state", "state_flags"):
        stated = entry.get(name) or []
        states += map(str, stated) if isinstance(stated, list) else [str(stated)]
    return states


_COMMANDS = "scontrol show node, sinfo -N, pbsnodes -a, bhosts or qhost, or list the names one a line"


def read_nodes(reading: Reading) -> Iterator[Record]:
    """Read a list of nodes, which then are the machine's; see `read_report` for what is taken.

    Nodes in Slurm's state FUTURE are not there yet and are left out.

    Raises
    ------
    InputError
        When no node is named.
    """
    report = Report(reading, _table_row)

    def listed(reported: Reported, hosts: tuple[str, ...]) -> Record:
        has, units = reported.has, reading.units
        power = power_of(reported.state)
        state = state_of(reported.state, reading.settings.counts_as)
        nodes = NodesListed(
            reported.line,
            hosts,
            report.cluster,
            None if units is None else units.unit.had(has.gpus, has.cores),
            reported.vnode and host_of(reported.text) != reported.text,
            down=state == "unavailable" and "off" not in power,
            idle=state == "idle",
            power=power,
            cores=has.cores,
            shares=has.shares,
        )
        return _with_more(nodes, reported.more, reading)

    reports = read_report(enumerate(reading.lines, 1), report)
    hint = f"export with {_COMMANDS}"
    yield from report.records(reports, listed, hint, "names no node of the machine")


def _with_more(
    listed: NodesListed, more: Mapping[str, str], reading: Reading
) -> NodesListed | Skipped:
    """Return the list of nodes with partitions, other names, and since and until when the nodes are there."""
    if not more:
        return listed
    line = listed.line
    times: dict[str, int | None] = {}
    for name in ("since", "until"):
        text = more.get(name, "")
        text += "T00:00:00" * (len(text) == len("2024-01-31"))
        times[name] = reading.clock.parse(text, reading.file, line)
        if times[name] is None and text not in MISSING:
            return Skipped(line, f"column {name} holds no time", no_time(text))
    since, until = times["since"], times["until"]
    if since is not None and until is not None and until < since:
        return Skipped(line, "column until is before since", "")
    try:
        was = expand(more.get("was", ""))
    except HostListError as error:
        return Skipped(line, "column was holds no list of nodes", str(error))
    if was and len(was) != len(listed.hosts):
        why = "column was holds another number of names than the nodes of the row"
        return Skipped(line, why, f"{len(was)} and {len(listed.hosts)}")
    partitions = more.get("partitions", "").replace("*", "")
    return listed._replace(
        since_ns=since,
        until_ns=until,
        was=was,
        partitions=tuple(filter(None, partitions.split(","))),
    )


def _table_row(reported: Reported, hosts: tuple[str, ...]) -> tuple[str, str]:
    """Suspect names and numbers side by side to be the cells of a table."""
    if "[" in reported.text or len({host.isdecimal() for host in hosts}) < 2:
        return "", ""
    why = "holds names and numbers: a row of a table? Name its columns in a first line, such as node,cores"
    return why, ascii(reported.text[:80])


_CODES = {"idle": IDLE, "busy": BUSY, "unavailable": UNAVAILABLE}
_SNAPSHOT_COLUMNS = {
    "stamp": ("timestamp", "time", "stamp", "date"),
    "node": ("node", "nodes", "nodelist", "host", "hostname"),
    "state": ("state",),
}
# A stamp in a file's name: seconds since 1970, or 20240131T120000, 2024-01-31_12-00, ..., with a Z for UTC.
_EPOCH_NAME = re.compile(r"(?<!\d)(1\d{9})(?!\d)")
_DATE_NAME = re.compile(
    r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)[T_. -]?([0-2]\d)[-:.]?([0-5]\d)(?:[-:.]?([0-5]\d))?(?!\d)(Z?)"
)
_JSON_STAMP = re.compile(r'^\s*"timestamp"\s*:\s*(\d{9,10})\b', re.MULTILINE)
_SINFO_DATE = "%a %b %d %H:%M:%S %Y"


def read_snapshots(reading: Reading) -> Iterator[Record]:
    """Read snapshots of the states of nodes.

    Either a table with the columns timestamp, node and state, or what a command prints of all nodes (`read_report` has
    the list), each time with a stamp: a line with nothing but a time before it, `timestamp` in the JSON of pbsnodes,
    the file's name, or, if `Settings.mtime` asks for it, the time of the file's last change.

    Raises
    ------
    InputError
        When a snapshot has no stamp, or names no node with a state.
    """
    first, reading = first_line(reading, comments=("#",))
    numbered = enumerate(reading.lines, 1)
    report = Report(reading, _unknown_state)

    def seen(reported: Reported, hosts: tuple[str, ...]) -> Record:
        nodes = reading.nodes(hosts, report.cluster)
        state = state_of(reported.state, reading.settings.counts_as)
        return NodesSeen(reported.line, nodes, report.stamp_ns, _CODES[str(state)])

    columns = _columns(first, reading.settings.delimiter)
    reports = (
        _state_rows(numbered, report, *columns)
        if columns
        else _printed(numbered, report)
    )
    hint = "bft-replay ingest --recipe snapshots prints what to export"
    yield from report.records(reports, seen, hint, "holds no state of any node")


def _unknown_state(reported: Reported, hosts: tuple[str, ...]) -> tuple[str, str]:
    """Refuse nodes of which no state is known."""
    if not hosts or state_of(reported.state):
        return "", ""
    expected = "idle, busy, down, or what sinfo, pbsnodes or bhosts print"
    why = f"states no state of a node that is known: expected {expected}"
    return why, ascii(reported.state[:80])


def _printed(lines: Iterator[tuple[int, str]], report: Report) -> Reports:
    """Yield what commands printed, the stamp of each snapshot set before its nodes."""
    for stamp_ns, body in _bodies(lines, report):
        report.stamp_ns = stamp_ns
        yield from read_report(body, report)


def _columns(line: str, delimiter: str) -> tuple[str, tuple[int, int, int], int] | None:
    """Delimiter, places of stamp, node and state, and number of the columns of a header; None when it is none."""
    mark = delimiter or next((mark for mark in ",;|\t" if mark in line), ",")
    names = [name.strip().lower() for name in split_fields(line, mark)]
    stamp, node, state = columns_of(names, _SNAPSHOT_COLUMNS).values()
    if min(stamp, node, state) < 0:
        return None
    return mark, (stamp, node, state), len(names)


def _state_rows(
    lines: Iterable[tuple[int, str]],
    report: Report,
    delimiter: str,
    places: tuple[int, int, int],
    width: int,
) -> Reports:
    """A table of timestamp, node and state; its header may come again."""
    reading = report.reading
    for number, line in lines:
        report.line()
        if not line.strip() or line.startswith("#") or _columns(line, delimiter):
            continue
        cells = split_fields(line, delimiter)
        if len(cells) != width:
            why = "has another number of fields than the header"
            yield Skipped(number, why, f"{len(cells)} instead of {width}")
            continue
        stamp, node, state = (cells[place].strip() for place in places)
        if not node:
            yield Skipped(number, "column node names none")
            continue
        stamp_ns = reading.clock.parse(stamp, reading.file, number)
        if stamp_ns is None:
            why = "column timestamp holds no time"
            yield Skipped(number, why, no_time(stamp))
            continue
        report.stamp_ns = stamp_ns
        yield Reported(node, number, state)


def _bodies(
    lines: Iterable[tuple[int, str]], report: Report
) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Yield the printed lines of each snapshot, with its stamp: the line before it, else `_stamp_of_file`."""
    stamp_ns: int | None = None
    body: list[tuple[int, str]] = []
    reading = report.reading

    def ended() -> Iterator[tuple[int, list[tuple[int, str]]]]:
        if any(line.strip() for _, line in body):
            yield _stamp_of_file(body, reading) if stamp_ns is None else stamp_ns, body
        else:
            reading.seen.lines += len(body)

    for number, line in lines:
        stamp = _stamp(line, reading.clock, reading.file, number)
        if stamp is None:
            body.append((number, line))
            continue
        yield from ended()
        report.line()
        stamp_ns, body = stamp, []
    yield from ended()


def _stamp(line: str, clock: Clock, file: str, number: int) -> int | None:
    """A line that holds nothing but a time: seconds since 1970, an ISO stamp, or the date that sinfo -l prints."""
    text = line.lstrip("# ").strip()
    if not 9 <= len(text) <= 40 or not (text[0].isdecimal() or text[-4:].isdecimal()):
        return None
    try:
        return clock.local(datetime.strptime(text, _SINFO_DATE), file, number)
    except ValueError:
        return clock.parse(text, file, number)


def _stamp_of_file(body: list[tuple[int, str]], reading: Reading) -> int:
    """The stamp of a snapshot with none before it: in its JSON, in the file's name, or of the file's last change."""
    head = "\n".join(line for _, line in body[:20])
    stated = _JSON_STAMP.search(head)
    name = Path(reading.file).name
    epoch, date = _EPOCH_NAME.search(name), _DATE_NAME.search(name)
    if stated or epoch:
        stamp = reading.clock.epoch(stated[1] if stated else epoch[1] if epoch else "")
    elif date:
        year, month, day, hour, minute, second, utc = date.groups()
        text = f"{year}-{month}-{day}T{hour}:{minute}:{second or '00'}{utc}"
        stamp = reading.clock.parse(text, reading.file, 0)
    elif reading.settings.mtime and Path(reading.file).is_file():
        stamp = Path(reading.file).stat().st_mtime_ns // SECOND_NS * SECOND_NS
    else:
        stamp = None
    if stamp is None:
        first = next(number for number, line in body if line.strip())
        raise InputError(
            f"line {first}: a snapshot without a time: expected a line with nothing but a time before it "
            "(date +%s), or a time in the file's name, such as sinfo-20240131T120000.txt",
            file=reading.file,
            hint="--mtime takes the time of the file's last change",
        )
    return stamp
