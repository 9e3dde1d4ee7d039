"""The nodes of a machine, from scontrol, sinfo, slurm.conf, pbsnodes, bhosts, qhost, or a list of names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from bft.models import InputError
from bft.replay.logs.clusters import Clusters
from bft.replay.logs.fields import split_fields
from bft.replay.logs.hostlists import HostListError, expand
from bft.replay.logs.node_states import state_of
from bft.replay.logs.pbs import host_of
from bft.replay.logs.reading import Reading
from bft.replay.logs.slurm_json import elements

_COMMANDS = "scontrol show node, sinfo -N, pbsnodes -a, bhosts or qhost, or list the names one a line"
# Lines looked at to see what prints such a file.
_LOOKED_AT = 1_000
# Headers of the column that names nodes, the surest first: sinfo, pbsnodes, bhosts, qhost, a table of one's own.
_HEADERS = ("NODELIST", "VNODE", "HOSTNAMES", "HOSTNAME", "HOST_NAME", "NODENAME", "NODES", "NODE", "HOST")
_MARKS = ",;|\t"
# scontrol and slurm.conf; pbsnodes -F dsv.
_NODE_NAME = re.compile(r"(?:(?<!\S)NodeName|^Name)=([^\s|]+)", re.IGNORECASE)
_STATE = re.compile(r"(?<!\S)State=(\S+)", re.IGNORECASE)
_PAIR = re.compile(r"\s*\w+=")
_STANZA = re.compile(r"\s+\S+ = ")
# The states of a partition, in sinfo's second column.
_AVAILABLE = frozenset({"up", "down", "drain", "inact"})


def read(reading: Reading) -> None:
    """Read a list of nodes, which then are the machine's.

    Taken are the JSON of sinfo, scontrol and pbsnodes; `NodeName=LIST` (scontrol show node, slurm.conf); the column of
    names below a header (sinfo, pbsnodes -aS, bhosts, qhost, CSV); and otherwise the first word of each line that is
    not indented (pbsnodes -a, plain names), of sinfo without its header the last. Vnodes of PBS (n1[0]) are taken for
    their hosts. Nodes in Slurm's state FUTURE are not there yet and are left out.

    Raises
    ------
    InputError
        When no node is named.
    """
    file = reading.file
    source = iter(reading.lines)
    head = list(islice(source, _LOOKED_AT))
    plain = [line for line in head if line.strip() and not line.startswith("#")]
    nodes = _Nodes(Clusters(reading))
    numbered = enumerate(chain(head, source), 1)
    if plain and plain[0].lstrip().startswith("{"):
        _json(numbered, nodes, file)
    elif any(_PAIR.match(line) or _NODE_NAME.search(line) for line in plain):
        _blocks(numbered, nodes)
    elif _header_within(plain):
        _table(numbered, nodes)
    else:
        _names(numbered, nodes, vnodes=any(map(_STANZA.match, plain)))
    if not nodes.used:
        raise InputError(
            "names no node of the machine", file=file, hint=reading.diagnosis.losses() or f"export with {_COMMANDS}"
        )


class _Nodes:
    """Accounts for lines, and hands nodes over."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters, self._into = clusters, clusters.reading.into
        self._diagnosis, self._file = clusters.reading.diagnosis, clusters.reading.file
        self.used = 0
        self.cluster = ""  # of the lines that follow, as far as they state it

    def line(self, line: str = "") -> None:
        """A line of which nothing is known yet but that it holds no node; sinfo -M begins clusters with such."""
        self._diagnosis.lines += 1
        self._diagnosis.no_record += 1
        if line.startswith("CLUSTER:"):
            self.cluster = line.partition(":")[2].strip()

    def take(self, text: str, number: int, state: str = "", *, vnode: bool = False) -> None:
        """A node, a list of nodes or a vnode, in a line that `line` has counted."""
        if not text or text == "global" or not text.strip("-"):  # qhost's line for all hosts, a ruler
            return
        try:
            hosts = () if text == "n/a" else expand(host_of(text) if vnode else text)
        except HostListError as error:
            self.bad("is no list of nodes", number, str(error))
            return
        if "[" not in text and len({host.isdecimal() for host in hosts}) > 1:
            why = "holds names and numbers: a row of a table? Name its columns in a first line, such as node,cores"
            self.bad(why, number, ascii(text[:80]))
            return
        self._diagnosis.no_record -= 1
        self._diagnosis.rows += 1
        if not hosts:
            self._diagnosis.leave_out("a partition without nodes", self._file, number)
        elif self.cluster and self._clusters.other(self.cluster, number):
            self._diagnosis.leave_out("node of another cluster", self._file, number)
        elif state_of(state) == "absent":
            self._diagnosis.leave_out("a node that is not there yet (state FUTURE)", self._file, number)
        else:
            self._clusters.indices(hosts, self.cluster)
            self._into.known(hosts)
            self._diagnosis.used += 1
            self.used += 1

    def bad(self, reason: str, number: int, detail: str) -> None:
        """A row, in a line that `line` has counted, that should name nodes and does not."""
        self._diagnosis.no_record -= 1
        self._diagnosis.rows += 1
        self._diagnosis.skip(reason, self._file, number, detail)

    def note(self, reason: str, number: int, detail: str) -> None:
        self._diagnosis.note(reason, self._file, number, detail)


def _blocks(lines: Iterable[tuple[int, str]], nodes: _Nodes) -> None:
    """NodeName=LIST ... State=STATE, on one line or over several: indented (scontrol), or continued (slurm.conf)."""
    text = state = default = ""
    begun, dsv, goes_on = 0, False, False

    def end() -> None:
        nonlocal default
        if text.upper() == "DEFAULT":
            default = state or default
        else:
            nodes.take(text, begun, state or default, vnode=dsv)

    for number, line in lines:
        nodes.line()
        if line.lstrip().startswith("#"):
            continue
        named = _NODE_NAME.search(line)
        if named or not (goes_on or line[:1].isspace()):
            end()
            text = state = ""
        if named:
            text, begun, dsv = named[1], number, line.startswith("Name=")
        stated = _STATE.search(line)
        state = state or (stated[1] if stated else "")
        goes_on = line.endswith("\\")
        if line.lower().startswith("include "):
            nodes.note("an included file was not read: give it with --nodes too", number, ascii(line.strip()[:80]))
    end()


def _header_within(head: Sequence[str]) -> bool:
    """Whether a header comes first, or after lines such as the date (sinfo -l), or the upper half of a header."""
    for line in head:
        if _header(line):
            return True
        if len(line.split()) < 4 and not line.startswith("CLUSTER:"):
            return False
    return False


def _header(line: str) -> tuple[str, list[str]] | None:
    """Delimiter (blank: any white space) and columns of a header that names a column of nodes."""
    for mark in [mark for mark in _MARKS if mark in line] + [" "]:
        names = [name.strip().upper() for name in _cells(line, mark)]
        if any(name in names for name in _HEADERS):
            return mark, names
    return None


def _cells(line: str, mark: str) -> list[str]:
    return line.split() if mark == " " else split_fields(line, mark)


def _table(lines: Iterable[tuple[int, str]], nodes: _Nodes) -> None:
    """A table with a header, which may come again."""
    mark, names, at = " ", [""], -1
    for number, line in lines:
        nodes.line(line)
        header = _header(line)
        if header and (at < 0 or header[1] == names):
            mark, names = header
            at = next(names.index(name) for name in _HEADERS if name in names)
            continue
        cells = _cells(line, mark)
        if at < 0 or not line.strip() or line.startswith(("#", "CLUSTER:")):
            continue
        whole = len(cells) == len(names)
        text = ""
        if whole or at == 0 or (mark != " " and at < len(cells)):
            text = cells[at].strip()
        elif at == len(names) - 1 and mark == " ":  # a column before it is empty, or holds blanks
            text = cells[-1]
        if not text or (names[at] == "NODES" and text.isdecimal()):
            nodes.bad(f"column {names[at]} names no node", number, ascii(line[:80]))
        else:
            state = cells[names.index("STATE")] if whole and "STATE" in names else ""
            if whole and "CLUSTER" in names:
                nodes.cluster = cells[names.index("CLUSTER")].strip()
            nodes.take(text, number, state, vnode=names[at] == "VNODE")


def _names(lines: Iterable[tuple[int, str]], nodes: _Nodes, *, vnodes: bool) -> None:
    """Lines that begin with a name, or those of sinfo without its header, which end with one."""
    for number, line in lines:
        nodes.line(line)
        words = re.split(r"[\s|;]+", line.split("#")[0].strip())
        if _STANZA.match(line) or not words[0] or "=" in words[0] or line.startswith("CLUSTER:"):
            continue
        if len(words) > 4 and words[1] in _AVAILABLE:  # sinfo -h: PARTITION AVAIL TIMELIMIT NODES STATE NODELIST
            nodes.take(words[-1], number, words[-2])
            continue
        if len(words) > 1:
            nodes.note("only the first word of a line was read as a node", number, ascii(" ".join(words)[:80]))
        nodes.take(words[0], number, vnode=vnodes)


def _json(lines: Iterable[tuple[int, str]], nodes: _Nodes, file: str) -> None:
    """What sinfo, scontrol show node (a list of nodes) or pbsnodes -F json (an object of them) print."""
    for number, name, text in elements((line for _, line in lines), ("sinfo", "nodes"), file, "sinfo --json"):
        try:
            entry = json.loads(text)
            found, state = _entry(entry, name)
            nodes.cluster = str(entry.get("cluster") or "")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            nodes.line()
            nodes.bad("is no JSON of nodes", number, repr(error))
        else:
            for node in found:  # an element counts as a line, as in other JSON
                nodes.line()
                nodes.take(node, number, state, vnode=bool(name))


def _entry(entry: dict[str, Any], name: str) -> tuple[list[str], str]:
    """Nodes of an element, and their state."""
    if name:
        return [name], ""
    inner = entry.get("nodes")
    found = inner["nodes"] if isinstance(inner, dict) else [entry.get("name") or entry["hostname"]]
    state = (entry.get("node") or entry).get("state", "")
    return [str(node) for node in found], "+".join(map(str, state)) if isinstance(state, list) else str(state)
