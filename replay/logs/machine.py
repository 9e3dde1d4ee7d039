"""The nodes of the machine: those that are listed, or that jobs name; and what lists say of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bft.models import InputError
from bft.models.checks import did_you_mean
from bft.replay.logs.hosts import (
    Nodes,
    difference,
    expand,
    full_forms,
    natural,
    united,
)
from bft.replay.logs.records import FILTERS, OTHERS, Records, RecordTable
from bft.replay.logs.states import CountsAs, power_of, state_of
from bft.replay.logs.times import OPEN, Mask, Whole

_JOBS = ("ran", "seen", "idle", "began")


@dataclass(slots=True)
class Listed:
    """What lists of nodes say of one, beyond that it is the machine's.

    Parameters
    ----------
    partitions
        Those that it belongs to.
    state, power
        Its state when the list was made, and `states.power_of` of that.
    gpus, cores, shares
        What it has; None: not stated.
    """

    partitions: frozenset[str] = frozenset()
    state: str = ""
    power: frozenset[str] = frozenset()
    gpus: int | None = None
    cores: int | None = None
    shares: int | None = None


@dataclass(slots=True)
class Machine:
    """The nodes of the machine, in natural order.

    Parameters
    ----------
    nodes
        All nodes that are named anywhere.
    names, index
        Those of the machine; and for each of `nodes` its place among them, -1 where it is none.
    is_listed
        Whether a list says which nodes there are.
    listed
        What lists say, by place in `names`.
    absent
        Nodes by place, and from when to when they are not there, UTC nanoseconds.
    foreign
        How many nodes are named and not the machine's, those of other partitions apart.
    """

    nodes: Nodes
    names: list[str]
    index: Whole
    is_listed: bool
    listed: dict[int, Listed] = field(default_factory=dict)
    absent: list[tuple[int, int, int]] = field(default_factory=list)
    foreign: int = 0

    def down(self) -> list[int]:
        """Nodes, by place, that lists say to be down or drained, those that power saving has switched off apart."""
        return [
            place
            for place, each in self.listed.items()
            if each.state == "unavailable" and "off" not in each.power
        ]

    def classes(self) -> tuple[str, ...]:
        """A class for each node, GPU or not and its partitions; none where lists do not tell nodes apart."""
        stated = [self.listed.get(place, Listed()) for place in range(len(self.names))]
        if not any(each.gpus for each in stated) or all(each.gpus for each in stated):
            kinds = [""] * len(stated)
        else:
            kinds = ["gpu" if each.gpus else "cpu" for each in stated]
        partitions = ["+".join(sorted(each.partitions)) for each in stated]
        if len(set(partitions)) < 2:
            partitions = [""] * len(stated)
        words = [
            "/".join(filter(None, pair)) for pair in zip(kinds, partitions, strict=True)
        ]
        return tuple(words) if len(set(words)) > 1 else ()


# A file, a cluster as it spells it, and the nodes that it names as those of the cluster.
_Claim = tuple[str, str, list[int]]


@dataclass(slots=True)
class _Lists:
    """The rows of lists by the places of their nodes."""

    members: set[int] = field(default_factory=set)
    listed: dict[int, Listed] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)
    absent: list[tuple[int, int, int]] = field(default_factory=list)
    owners: list[_Claim] = field(default_factory=list)


def machine_of(
    records: Records,
    table: RecordTable,
    made: Sequence[Whole],
    *,
    partition: str | None,
    source: str,
    counts_as: CountsAs,
) -> Machine:
    """Find the nodes of the machine; says what was left out.

    Parameters
    ----------
    records, table
        All records.
    made
        Ranges of nodes that other parts name, such as snapshots.
    partition
        The partition that the user asks for.
    source
        Name of the logs, for messages.
    counts_as
        What words for states count as.

    Raises
    ------
    InputError
        When no node is named, when a name may be that of two nodes, or when no job ran on a listed node.
    """
    texts = records.listed_hosts()
    was = [str(row.get("was") or "") for _, row in records.listed]
    of_lists = records.hosts.read(pa.array([*texts, *was], pa.string()))
    # Rows that are not used name nodes as well, but those of other jobs and machines.
    by_jobs = united([*records.named["jobs"], *made])
    others = united(records.named["beside"])
    nodes = Nodes(
        records.hosts,
        united([by_jobs, others, of_lists.made, *records.named["left out"]]),
    )
    named = _mask(nodes, by_jobs)
    beside = _mask(nodes, others) & ~named
    lists = _read_lists(
        records, nodes, of_lists.made, of_lists.counts, len(texts), counts_as
    )
    owners = _owners(records, table, nodes, lists.owners)
    if not (named.any() or lists.members or beside.any()):
        raise InputError(
            "no row names a node that was busy, down or known",
            file=source or None,
            hint=records.account.losses() or None,
        )
    met = named | beside
    met[list(lists.members)] = True
    forms = _forms(records, table, nodes, np.flatnonzero(met), lists, owners)
    members = _members(records, nodes, named, beside, forms, lists, source)
    _keep_partition(records, nodes, members, lists, partition)
    _say_other_clusters(records, table, nodes, members, owners)
    names = nodes.names
    placed = sorted(members, key=lambda node: (natural(names[node]), names[node]))
    index = np.full(len(nodes), -1, dtype=np.int64)
    index[placed] = np.arange(len(placed))
    if forms:
        index[list(forms)] = index[list(forms.values())]
    stated = {
        int(index[node]): each
        for node, each in lists.listed.items()
        if index[node] >= 0
    }
    absent = [
        (int(index[node]), since, until)
        for node, since, until in lists.absent
        if index[node] >= 0
    ]
    machine = Machine(
        nodes,
        [names[node] for node in placed],
        index,
        bool(lists.members),
        stated,
        absent,
    )
    _say_foreign(records, machine, named, beside, lists, source)
    return machine


def _mask(nodes: Nodes, made: Whole) -> Mask:
    """Which nodes these ranges have."""
    found = np.zeros(len(nodes), dtype=bool)
    places, _ = nodes.of(made, np.ones(len(made), dtype=np.int32))
    found[places] = True
    return found


def _read_lists(
    records: Records,
    nodes: Nodes,
    made: Whole,
    counts: np.ndarray,
    size: int,
    counts_as: CountsAs,
) -> _Lists:
    """Find the nodes of each row of a list, and what it says of them."""
    found = _Lists()
    places, rows = nodes.of(made, counts)
    bounds = np.searchsorted(rows, np.arange(2 * size + 1))
    for number, (file, row) in enumerate(records.listed):
        mine = places[bounds[number] : bounds[number + 1]].tolist()
        other = places[bounds[size + number] : bounds[size + number + 1]].tolist()
        found.members.update(mine)
        if other:  # in the order in which the row names them
            place = {nodes.names[node]: node for node in (*mine, *other)}
            theirs, ours = expand(str(row["was"])), expand(str(row["hosts"]))
            found.aliases.update(
                (place[name], place[ours[k]]) for k, name in enumerate(theirs)
            )
        partitions = frozenset(
            filter(None, str(row.get("partition") or "").replace("*", "").split(","))
        )
        state = str(row.get("state") or "")
        since, until = row.get("since"), row.get("until")
        if row.get("cluster"):
            found.owners.append((file, str(row["cluster"]), mine))
        for node in mine:
            known = found.listed.setdefault(node, Listed())
            known.partitions |= partitions
            known.power |= power_of(state)
            word = state_of(state, counts_as) or ""
            known.state = (
                word
                if known.state in ("", "idle") or word == "unavailable"
                else known.state
            )
            for name in ("gpus", "cores", "shares"):
                amount = row.get(name)
                if amount is not None:
                    before = getattr(known, name) if row.get("part") else None
                    setattr(known, name, amount + (before or 0))
            found.absent += [(node, 0, since)] if since is not None else []
            found.absent += [(node, until, OPEN)] if until is not None else []
    return found


def _owners(
    records: Records, table: RecordTable, nodes: Nodes, listed: Sequence[_Claim]
) -> dict[int, str]:
    """The cluster of each node, where rows of several state theirs; refuses a node that two of them name."""
    owners: dict[int, str] = {}
    spelled: dict[str, str] = {}
    for file, cluster, mine in (*listed, *_claims(records, table, nodes, listed)):
        name = cluster.casefold()
        spelled.setdefault(name, cluster)
        for node in mine:
            owner = owners.setdefault(node, name)
            if owner != name:
                clusters = f"{spelled[owner][:80]!a} and of cluster {cluster[:80]!a}"
                raise InputError(
                    f"node {nodes.names[node]} is named by rows of cluster {clusters}",
                    file=file,
                    hint="--cluster NAME uses the rows of one",
                )
    if len(spelled) > 1:
        why = "rows of several clusters were read as one machine: --cluster uses those of one"
        detail = ascii(", ".join([*spelled.values()][:2]))[:80]
        records.account.note(why, "", 0, detail)
    return owners


def _claims(
    records: Records, table: RecordTable, nodes: Nodes, listed: Sequence[_Claim]
) -> Iterator[_Claim]:
    """Yield which nodes the rows of each file name as those of each cluster, unless they all are of the same."""
    rows = np.flatnonzero((table["filter"] == 0) & (table["cluster"] > 0))
    if np.count_nonzero(np.bincount(table["cluster"][rows])) + len(listed) < 2:
        return
    pair = table["file"][rows].astype(np.int64) << 16 | table["cluster"][rows]
    order = np.argsort(pair, kind="stable")
    each, first = np.unique(pair[order], return_index=True)
    for value, mine in zip(each.tolist(), np.split(order, first[1:]), strict=False):
        made, _ = table.ranges_of(rows[mine])
        named = np.flatnonzero(_mask(nodes, united([made]))).tolist()
        yield records.files[value >> 16], records.spelled[(value & 0xFFFF) - 1], named


def _forms(
    records: Records,
    table: RecordTable,
    nodes: Nodes,
    met: np.ndarray,
    lists: _Lists,
    owners: dict[int, str],
) -> dict[int, int]:
    """Short and full forms of one name: for the node of the one to be replaced the node of the other."""
    names, account = nodes.names, records.account
    several: list[list[str]] = []
    forms: dict[int, int] = {}
    first: Whole | None = None
    for short, full in full_forms(names, met.tolist()).items():
        same = [
            node
            for node in full
            if len({owners[each] for each in (node, short) if each in owners}) < 2
        ]
        both = [node for node in same if node in lists.members]
        if short in lists.members and both:
            raise InputError(
                f"the list of nodes has the short name {names[short]} and the full name "
                f"{', '.join(names[node] for node in both[:3])}: is that one node?",
                hint="list each node by one name; --cluster NAME tells two machines apart "
                "where rows state their cluster",
            )
        if len(same) > 1:
            several.append([names[short], *(names[node] for node in same)])
        if len(full) > 1 or not same:
            continue
        pair = short, full[0]
        if first is None:
            first = _first_rows(table, nodes)
        kept = next(
            (node for node in pair if node in lists.members),
            min(pair, key=lambda node: int(first[node])),
        )
        forms[pair[0] if kept == pair[1] else pair[1]] = kept
    if several:
        account.note("short names have several full ones: each counts as a node of its own", "", 0,
                     f"{len(several)}, such as {some(several[0])}", loud=True)  # fmt: skip
    for other, node in lists.aliases.items():
        if other in lists.members:
            raise InputError(
                f"the list of nodes says that {names[node]} was {names[other]}, which is a node as well",
                hint="which of the two a job ran on is not clear: read the logs of before and after by themselves",
            )
    if forms:
        other, kept = next(iter(forms.items()))
        account.note("nodes go by their short and their full name: taken for the same nodes", "", 0,
                     f"{len(forms)}, such as {names[other]} and {names[kept]}")  # fmt: skip
    return forms | lists.aliases


def _first_rows(table: RecordTable, nodes: Nodes) -> Whole:
    """The first row that names each node."""
    first = np.full(len(nodes), len(table), dtype=np.int64)
    places, rows = nodes.of(table.made, table["ranges"])
    first[places[::-1]] = rows[::-1]
    return first


def _members(
    records: Records,
    nodes: Nodes,
    named: Mask,
    beside: Mask,
    forms: dict[int, int],
    lists: _Lists,
    source: str,
) -> set[int]:
    """The nodes of the machine: the listed ones, else those that jobs name."""
    if lists.members:
        return set(lists.members)
    names, account = nodes.names, records.account
    members = set(np.flatnonzero(named).tolist()) - forms.keys()
    # Of this machine or not, they would look idle.
    only = sorted(
        set(np.flatnonzero(beside).tolist())
        - forms.keys()
        - {forms[node] for node in forms}
    )
    if only:
        why = "nodes that only --events or --reservations name are left out: --nodes tells which belong to the machine"
        account.note(
            why,
            "",
            0,
            f"{len(only)}, such as {some([names[node] for node in only])}",
            loud=True,
        )
    account.note("no --nodes: the machine is taken to have the nodes that jobs name; 1 % of nodes that ran none are "
                 "1 % of idle time too little", "", 0, loud=not records.states_idle)  # fmt: skip
    if not members:
        raise InputError(
            "no job names a node", file=source or None, hint=account.losses() or None
        )
    return members


def _keep_partition(
    records: Records, nodes: Nodes, members: set[int], lists: _Lists, wanted: str | None
) -> None:
    """Leave nodes out of the machine that the list of nodes says to be of other partitions than that of the jobs."""
    stated = {node for node in lists.members if lists.listed[node].partitions}
    if wanted is None or not stated:
        return
    keeps = FILTERS["partition"].keeps
    others = {
        node
        for node in stated
        if not keeps(wanted, ",".join(lists.listed[node].partitions))
    }
    asked, names = ascii(wanted)[:80], nodes.names
    if others == members:
        there = sorted(
            {name for node in others for name in lists.listed[node].partitions}
        )
        raise InputError(
            f"--partition: no node of the list is of {asked}; they are of {', '.join(there[:20])}",
            hint="a host list such as cn[001-128] names its nodes whatever their partitions",
        )
    members -= others
    for some_nodes, why in (
        (others, f"are of other partitions than {asked}: left out of the machine"),
        (
            members - stated,
            f"state no partition, as others do: they count as nodes of {asked}",
        ),
    ):
        if some_nodes:
            shown = [names[node] for node in sorted(some_nodes)]
            records.account.note(
                f"nodes of the list {why}",
                "",
                0,
                f"{len(shown):,}, such as {some(shown)}",
                loud=True,
            )


def _say_other_clusters(
    records: Records,
    table: RecordTable,
    nodes: Nodes,
    members: set[int],
    owners: dict[int, str],
) -> None:
    """Warn of nodes of the machine that only rows of other clusters name, which were left out."""
    number = list(FILTERS).index("cluster") + 1
    rows = np.flatnonzero((table["filter"] == number) & (table["ranges"] > 0))
    if len(rows):
        ours = _mask(
            nodes,
            united(
                [
                    table.ranges_of(
                        np.flatnonzero((table["why"] == 0) & (table["cluster"] > 0))
                    )[0]
                ]
            ),
        )
        theirs = _mask(nodes, united([table.ranges_of(rows)[0]])) & ~ours
        names = sorted(
            nodes.names[node]
            for node in np.flatnonzero(theirs).tolist()
            if node in members and node not in owners
        )
        if names:
            records.account.note(
                OTHERS.format("cluster"),
                "",
                0,
                f"{len(names)}, such as {', '.join(names[:3])}",
                loud=True,
            )


def _say_foreign(
    records: Records,
    machine: Machine,
    named: Mask,
    beside: Mask,
    lists: _Lists,
    source: str,
) -> None:
    """Say which nodes are not in the list of nodes; refuses logs of which no job ran on a node of the list."""
    names, outside = machine.nodes.names, machine.index < 0
    outside[[node for node in lists.listed if lists.listed[node].partitions]] = False
    strangers, others = (
        np.flatnonzero(outside & named),
        np.flatnonzero(outside & beside),
    )
    if lists.members and len(strangers) and not (named & ~outside).any():
        jobs, listed = (
            [names[node] for node in some_nodes]
            for some_nodes in (strangers.tolist(), sorted(lists.members))
        )
        raise InputError(
            f"no job ran on a node of the list of nodes: jobs ran on {some(jobs)}, the list has {some(listed)}",
            file=source or None,
            hint=difference(jobs, listed) or "is it the list of another machine?",
        )
    machine.foreign = len(strangers) + len(others)
    if lists.members and len(others):
        none = not (beside & ~outside).any()
        why = "nodes that are not in the list of nodes were down or reserved: left out"
        such = some([names[node] for node in others.tolist()])
        records.account.note(why, "", 0, f"{len(others)}, such as {such}", loud=none)


def refuse_unknown(records: Records, asked: dict[str, str]) -> None:
    """Refuse logs of which a filter leaves all jobs out."""
    for name, wanted in asked.items():
        if not FILTERS[name].of_jobs or name in records.chosen:
            continue
        cells = ",".join(records.others.get(name, ())).split(",")
        others = list(dict.fromkeys(filter(None, map(str.strip, cells))))
        known = f"; they have {', '.join(others[:20])}" if others else ""
        meant = did_you_mean(wanted, others)
        raise InputError(
            f"--{name}: the logs have no job of {ascii(wanted)[:80]}{known}{meant}"
        )


def some(names: Sequence[str]) -> str:
    """The first three of some names."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
