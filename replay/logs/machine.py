"""The nodes of the machine: those that are listed, or that jobs name; and what lists say of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

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
from bft.replay.logs.records import (
    FILTERS,
    OTHERS,
    Records,
    RecordTable,
    Row,
    hosts_of,
)
from bft.replay.logs.states import CountsAs, power_of, state_of
from bft.replay.logs.times import OPEN, Whole

# States that several rows of lists state of a node: the last of these counts.
_GRAVER = ("", "idle", "busy", "unavailable")


@dataclass(slots=True)
class Listed:
    """What lists of nodes say of one, beyond that it is the machine's.

    Parameters
    ----------
    partitions
        Those that it belongs to.
    state, power
        Its state when the list was made, and `states.power_of` of that.
    has_gpus
        Whether it has any.
    """

    partitions: frozenset[str] = frozenset()
    state: str = ""
    power: frozenset[str] = frozenset()
    has_gpus: bool = False


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
        kinds = ["gpu" if each.has_gpus else "cpu" for each in stated]
        partitions = ["+".join(sorted(each.partitions)) for each in stated]
        telling = [part for part in (kinds, partitions) if len(set(part)) > 1]
        parts = zip(*telling, strict=True)
        return tuple("/".join(filter(None, each)) for each in parts)


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
    rows = [(file, row, hosts_of(row)) for file, row in records.listed]
    was = [row.get("was") or "" for _, row, _ in rows]
    of_lists = records.names_of([*records.listed_hosts(), *was])
    by_jobs, others = [*records.named["jobs"], *made], records.named["beside"]
    # Rows that are not used name nodes as well, but those of other jobs and machines.
    left_out = records.named["left out"]
    nodes = Nodes(records.hosts, united([*by_jobs, *others, of_lists, *left_out]))
    named = _names(records, by_jobs)
    beside = _names(records, others) - named
    listed = _read_lists(rows, counts_as)
    of_machine = named | beside | listed.keys()
    met = [name for name in nodes.names if name in of_machine]
    if not met:
        raise InputError(
            "no row names a node that was busy, down or known",
            file=source or None,
            hint=records.account.losses() or None,
        )
    owners = _owners(records, table, rows)
    forms = _forms(records, table, nodes, met, listed, owners)
    for former, (_, _, mine) in zip(was, rows, strict=True):
        forms |= zip(expand(former), mine, strict=False)
    for other in sorted(forms.keys() & listed.keys()):
        raise InputError(
            f"the list of nodes says that {forms[other]} was {other}, which is a node as well",
            hint="which of the two a job ran on is not clear: read the logs of before and after by themselves",
        )
    members = set(listed) or _members(records, named, beside, forms, source)
    if partition is not None:
        _keep_partition(records, members, listed, partition)
    _say_other_clusters(records, table, members - owners.keys())
    names = sorted(members, key=lambda name: (natural(name), name))
    place = {name: number for number, name in enumerate(names)}
    index = [place.get(forms.get(name, name), -1) for name in nodes.names]
    absent = [
        (place[name], since, until)
        for _, row, mine in rows
        for since, until in ((0, row.get("since")), (row.get("until"), OPEN))
        for name in mine
        if name in place and since is not None and until is not None
    ]
    # Nodes of other partitions are no strangers.
    known = {
        name for name, number in zip(nodes.names, index, strict=True) if number >= 0
    }
    known |= {name for name, each in listed.items() if each.partitions}
    _say_foreign(records, named, beside, known, listed, source)
    return Machine(
        nodes,
        names,
        np.array(index, dtype=np.int64),
        bool(listed),
        {place[name]: each for name, each in listed.items() if name in place},
        absent,
        len((named | beside) - known),
    )


def some(names: Sequence[str]) -> str:
    """The first three of some names."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _say(
    records: Records, why: str, names: Collection[str], *, loud: bool = True
) -> None:
    """Tell something of nodes, where there are any."""
    if names:
        such = f"{len(names):,}, such as {some(sorted(names, key=natural))}"
        records.account.note(why, "", 0, such, loud=loud)


def _names(records: Records, made: Sequence[Whole]) -> set[str]:
    """The nodes of ranges."""
    return set(records.nodes_of(united(made)).names)


# A row of a list, its file, and its nodes.
_ListedRow = tuple[str, Row, Sequence[str]]


def _read_lists(rows: Sequence[_ListedRow], counts_as: CountsAs) -> dict[str, Listed]:
    """What rows of lists say of each node."""
    found: dict[str, Listed] = {}
    for _, row, mine in rows:
        partitions = (row.get("partition") or "").replace("*", "").split(",")
        state = row.get("state") or ""
        word = state_of(state, counts_as) or ""
        for name in mine:
            known = found.setdefault(name, Listed())
            known.partitions |= set(partitions) - {""}
            known.power |= power_of(state)
            known.state = max(known.state, word, key=_GRAVER.index)
            known.has_gpus |= bool(row.get("gpus"))
    return found


def _owners(
    records: Records, table: RecordTable, listed: Sequence[_ListedRow]
) -> dict[str, str]:
    """The cluster of each node, where rows of several state theirs; refuses a node that two of them name."""
    claims = [
        (file, row["cluster"], set(mine))
        for file, row, mine in listed
        if row.get("cluster")
    ]
    for number, cluster in enumerate(records.spelled, 1):
        rows = np.flatnonzero((table["filter"] == 0) & (table["cluster"] == number))
        if len(records.spelled) + len(claims) > 1 and len(rows):
            file = records.files[table["file"][rows[0]]]
            claims.append((file, cluster, _names(records, [table.ranges_of(rows)[0]])))
    owners: dict[str, str] = {}
    for file, cluster, mine in claims:
        for name in sorted(mine, key=natural):
            owner = owners.setdefault(name, cluster)
            if owner.casefold() != cluster.casefold():
                raise InputError(
                    f"node {name} is named by rows of cluster {owner[:80]!a} and of cluster {cluster[:80]!a}",
                    file=file,
                    hint="--cluster NAME uses the rows of one",
                )
    several = {cluster.casefold(): cluster for _, cluster, _ in reversed(claims)}
    if len(several) > 1:
        records.account.note(
            "rows of several clusters were read as one machine: --cluster uses those of one",
            "",
            0,
            ascii(", ".join([*several.values()][-1:-3:-1])),
        )
    return owners


def _forms(
    records: Records,
    table: RecordTable,
    nodes: Nodes,
    met: Sequence[str],
    listed: Collection[str],
    owners: dict[str, str],
) -> dict[str, str]:
    """Short and full forms of one name: for the one to be replaced the other."""
    several: list[str] = []
    forms: dict[str, str] = {}
    first: dict[str, int] = {}
    full_names = full_forms(met, range(len(met)))
    if full_names:  # the first row that names each node
        places, rows = nodes.of(table.made, table["ranges"])
        rank = np.full(len(nodes), len(table), dtype=np.int64)
        rank[places[::-1]] = rows[::-1]
        first = dict(zip(nodes.names, rank.tolist(), strict=True))
    for number, full in full_names.items():
        short, names = met[number], [met[each] for each in full]
        same = [
            name
            for name in names
            if len(
                {owners[each].casefold() for each in (name, short) if each in owners}
            )
            < 2
        ]
        both = [name for name in same if name in listed]
        if short in listed and both:
            raise InputError(
                f"the list of nodes has the short name {short} and the full name {some(both)}: is that one node?",
                hint="list each node by one name; --cluster NAME tells two machines apart where rows state their "
                "cluster",
            )
        if len(same) > 1:
            several.append(short)
        elif len(names) == len(same):
            pair = short, names[0]
            kept, other = sorted(
                pair, key=lambda name: (name not in listed, first[name])
            )
            forms[other] = kept
    _say(
        records,
        "short names have several full ones: each counts as a node of its own",
        several,
    )
    _say(
        records,
        "nodes go by their short and their full name: taken for the same nodes",
        forms,
        loud=False,
    )
    return forms


def _members(
    records: Records,
    named: set[str],
    beside: set[str],
    forms: dict[str, str],
    source: str,
) -> set[str]:
    """The nodes of a machine that no list states: those that jobs name."""
    # Of this machine or not, they would look idle.
    _say(
        records,
        "nodes that only --events or --reservations name are left out: --nodes tells which belong to the machine",
        beside - forms.keys() - set(forms.values()),
    )
    records.account.note(
        "no --nodes: the machine is taken to have the nodes that jobs name; nodes that ran none are missing in its "
        "size and in its idle time",
        "",
        0,
        loud=True,
    )
    if not named:
        hint = records.account.losses() or None
        raise InputError("no job names a node", file=source or None, hint=hint)
    return named - forms.keys()


def _keep_partition(
    records: Records, members: set[str], listed: dict[str, Listed], wanted: str
) -> None:
    """Leave nodes out of the machine that the list of nodes says to be of other partitions than that of the jobs."""
    stated = {
        name: ",".join(each.partitions)
        for name, each in listed.items()
        if each.partitions
    }
    keeps = FILTERS["partition"].keeps
    others = {name for name, mine in stated.items() if not keeps(wanted, mine)}
    asked = ascii(wanted)[:80]
    if others and others == members:
        there = sorted(set(",".join(stated.values()).split(",")))
        raise InputError(
            f"--partition: no node of the list is of {asked}; they are of {', '.join(there[:20])}",
            hint="a host list such as cn[001-128] names its nodes whatever their partitions",
        )
    members -= others
    _say(
        records,
        f"nodes of the list are of other partitions than {asked}: left out of the machine",
        others,
    )
    if stated:
        _say(
            records,
            f"nodes of the list state no partition, as others do: they count as nodes of {asked}",
            members - stated.keys(),
        )


def _say_other_clusters(
    records: Records, table: RecordTable, members: set[str]
) -> None:
    """Warn of nodes of the machine that only rows of other clusters name, which were left out."""
    number = list(FILTERS).index("cluster") + 1
    theirs = np.flatnonzero(table["filter"] == number)
    if len(theirs):
        ours = np.flatnonzero((table["why"] == 0) & (table["cluster"] > 0))
        by_ours, by_theirs = (
            _names(records, [table.ranges_of(rows)[0]]) for rows in (ours, theirs)
        )
        _say(records, OTHERS.format("cluster"), (by_theirs - by_ours) & members)


def _say_foreign(
    records: Records,
    named: set[str],
    beside: set[str],
    known: set[str],
    listed: Collection[str],
    source: str,
) -> None:
    """Say which nodes are not in the list of nodes; refuses logs of which no job ran on a node of the list."""
    if listed and named and named.isdisjoint(known):
        jobs, there = (sorted(names, key=natural) for names in (named, listed))
        raise InputError(
            f"no job ran on a node of the list of nodes: jobs ran on {some(jobs)}, the list has {some(there)}",
            file=source or None,
            hint=difference(jobs, there) or "is it the list of another machine?",
        )
    if listed:
        _say(
            records,
            "nodes that are not in the list of nodes were down or reserved: left out",
            beside - known,
            loud=beside.isdisjoint(known),
        )


def refuse_unknown(records: Records, asked: dict[str, str]) -> None:
    """Refuse logs of which a filter leaves all jobs out."""
    for name, wanted in asked.items():
        if FILTERS[name].of_jobs and name not in records.chosen:
            cells = ",".join(records.others.get(name, ())).split(",")
            others = list(dict.fromkeys(filter(None, map(str.strip, cells))))
            known = f"; they have {', '.join(others[:20])}" if others else ""
            raise InputError(
                f"--{name}: the logs have no job of {ascii(wanted)[:80]}{known}{did_you_mean(wanted, others)}"
            )
