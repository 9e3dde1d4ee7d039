"""Exports that hide something: what the logs themselves show of it, in one place.

What is certain is refused, and `--allow-few` accepts it; what is likely is said with its share of the node-time.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.repeated_records import JobTimes, Runs
from bft.replay.trace.node_trace import SECOND_NS, IndexArray, TimeArray

# Rows from which on one value in all of them is no chance.
_ENOUGH_ROWS = 100
# Share of the jobs that ran more than once from which on ids are those of several clusters.
_MANY_TWICE = 0.3
# Jobs from which on it is no chance that all their times are whole minutes.
_ENOUGH_MINUTES = 50
_MINUTE_NS = 60 * SECOND_NS
_HALF_DAY_NS = 43_200 * SECOND_NS
# How much longer than usual the idle time of a node before its first job, or after its last, is.
_LONGER = 2
# The same of a time without any record, and its least length.
_MUCH_LONGER, _PAUSE_NS = 20, 4 * 3600 * SECOND_NS
# Share of the nodes that have their first and last sign of life together from which on they were renamed.
_RENAMED = 0.25
# Gaps between jobs that begin all of a sudden, from which on an epilog is suspected, of these lengths; and the part of
# all gaps that may have none.
_ENOUGH_GAPS, _FEW_TOUCH = 20, 0.01
_SHORTEST_EPILOG_NS, _LONGEST_EPILOG_NS = 2 * SECOND_NS, 300 * SECOND_NS
# Share of the node-time from which on something is said.
_SAID = 0.0005


@dataclass(slots=True)
class ListedNodes:
    """Statements of the list of nodes on nodes, by their indices, beyond that they are the machine's.

    Parameters
    ----------
    partitions
        Those that a node belongs to.
    down
        Nodes that were down or drained when the list was made.
    absent
        Nodes, and from when to when they were not there, UTC nanoseconds.
    aliases
        For the index of a name that a node had the index of the node.
    power, idle, states_power
        Of nodes `NodesListed.power`; those that were idle; and whether outages state when nodes were powered off.
    """

    partitions: dict[int, frozenset[str]] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    absent: list[tuple[array[int], int, int]] = field(default_factory=list)
    aliases: dict[int, int] = field(default_factory=dict)
    power: dict[int, frozenset[str]] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    states_power: bool = False


@dataclass(slots=True)
class Contradicted:
    """Jobs without an end that later jobs ended, on how many nodes, and where the earliest is."""

    count: int = 0
    nodes: int = 0
    file: str = ""
    line: int = 0


@dataclass(slots=True)
class Vanished:
    """On how many nodes jobs were gone in a listing without having ended, and the node-seconds since the one before."""

    count: int = 0
    node_s: float = 0.0


@dataclass(slots=True)
class ColumnValues:
    """Values of the columns of job tables.

    Parameters
    ----------
    values, rows
        A few different values in all rows, and how many rows were looked at.
    chosen
        Columns by which the user filters (`filters.FILTERS`), where some job was kept by it.
    others
        The values of such columns in jobs that were left out.
    """

    values: dict[str, set[str]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    others: dict[str, dict[str, None]] = field(default_factory=dict)

    def see(self, column: str, values: frozenset[str], rows: int) -> None:
        """So many rows hold these values."""
        self.values.setdefault(column, set()).update(values)
        self.rows[column] = self.rows.get(column, 0) + rows

    def see_job(self, user: str, partition: str, state: str) -> None:
        """A job states these; empty ones are not stated."""
        for column, text in (
            ("user", user),
            ("partition", partition),
            ("state", state),
        ):
            if text:
                held = self.values.setdefault(column, set())
                if len(held) < 2:  # one alone is suspicious
                    held.add(text.partition(" ")[0])
                self.rows[column] = self.rows.get(column, 0) + 1

    def only(self, column: str) -> str:
        """The value of a column that holds one in all of enough rows, which the user has not chosen; else empty."""
        held = self.values.get(column, set())
        if len(held) != 1 or self.rows[column] < _ENOUGH_ROWS or column in self.chosen:
            return ""
        return next(iter(held))


@dataclass(frozen=True, slots=True)
class Observed:
    """Nodes, busy and idle time that the logs show.

    Parameters
    ----------
    names, index
        The machine's nodes, and for each node that was named its place among them, or -1.
    busy, idle
        Disjoint intervals of each, sorted by node and start: place, UTC nanoseconds of start and end.
    start_ns, end_ns
        The window.
    """

    names: Sequence[str]
    index: NDArray[np.int64]
    busy: tuple[IndexArray, TimeArray, TimeArray]
    idle: tuple[IndexArray, TimeArray, TimeArray]
    start_ns: int
    end_ns: int

    @property
    def node_s(self) -> float:
        """Nodes x seconds of the window."""
        return len(self.names) * (self.end_ns - self.start_ns) / SECOND_NS

    def signs_of_life(self) -> tuple[dict[int, int], dict[int, int], int]:
        """Idle nanoseconds of nodes before their first job and after their last, and the longest between two jobs."""
        nodes, first = np.unique(self.busy[0], return_index=True)
        last = np.append(first[1:], len(self.busy[0]))[: len(nodes)] - 1
        begins = np.full(len(self.names), self.end_ns, dtype=np.int64)
        ends = np.full(len(self.names), self.end_ns, dtype=np.int64)
        begins[nodes], ends[nodes] = self.busy[1][first], self.busy[2][last]
        node, since, until = self.idle
        length = until - since
        before, after = until <= begins[node], since >= ends[node]
        inner = ~before & ~after
        return (
            _summed(node[before], length[before]),
            _summed(node[after], length[after]),
            int(length[inner].max(initial=0)),
        )

    def share(self, lengths_ns: TimeArray) -> float:
        """The share of the node-time that intervals of these lengths are."""
        return float((lengths_ns / SECOND_NS).sum()) / self.node_s

    def idle_between(self, start_ns: int, end_ns: int) -> float:
        """Node-seconds of idle time in a part of the window."""
        begins = np.maximum(self.idle[1], start_ns)
        ends = np.minimum(self.idle[2], end_ns)
        return float((np.maximum(ends - begins, 0) / SECOND_NS).sum())


def _summed(nodes: IndexArray, lengths: TimeArray) -> dict[int, int]:
    """The lengths of each node together."""
    found: dict[int, int] = {}
    for node, length in zip(nodes.tolist(), lengths.tolist(), strict=True):
        found[node] = found.get(node, 0) + length
    return found


class Suspicions:
    """Looks for what an export hides, and says it or refuses the export.

    Parameters
    ----------
    diagnosis
        Receives what is said; `allow_few` accepts what is refused otherwise.
    source
        Name of the logs, for messages.
    """

    def __init__(self, diagnosis: Diagnosis, source: str) -> None:
        self._diagnosis, self._source = diagnosis, source

    def _refuse(self, why: str, hint: str) -> None:
        """Refuse the logs, or say why where the user accepts them."""
        if not self._diagnosis.allow_few:
            hint = f"{hint}; --allow-few accepts it"
            raise InputError(why, file=self._source or None, hint=hint)
        self._diagnosis.note(why, "", 0, loud=True)

    def _say(self, why: str, share: float, detail: str = "") -> None:
        """Say what is likely, with the share of the node-time that it is about."""
        more = f"; {detail}" if detail else ""
        told = f"about {share:.2%} of the node-time{more}"
        self._diagnosis.note(why, "", 0, told, loud=True)

    def filtered(self, columns: ColumnValues) -> None:
        """Refuse rows of one user or state."""
        user, state = columns.only("user"), columns.only("state")
        if user:
            why = f"all {columns.rows['user']:,} rows have the User {user[:80]!a}: were the jobs of all users exported?"
            hint = "where users see their own jobs only (PrivateData=jobs), an operator exports all (sacct -a)"
            self._refuse(why, hint)
        if state and not state.startswith("RUNNING"):
            why = f"all {columns.rows['state']:,} rows have the State {state[:80]!a}: those of other jobs are missing"
            self._refuse(why, "export without a choice of states (sacct -s)")

    def partition(
        self, columns: ColumnValues, listed: ListedNodes, seen: Observed
    ) -> None:
        """Refuse rows of one partition where nodes are listed of others, without a job."""
        partition = columns.only("partition")
        if not partition:
            return
        used = set(np.unique(seen.busy[0]).tolist())
        others = {
            place
            for node, names in listed.partitions.items()
            if partition not in names and (place := int(seen.index[node])) >= 0
        }
        if others and not others & used:
            some = ", ".join(seen.names[place] for place in sorted(others)[:3])
            why = (
                f"all {columns.rows['partition']:,} rows have the Partition {partition[:80]!a}, but {len(others):,} "
                f"nodes of the list are of others ({some}), and no job ran there"
            )
            self._refuse(
                why,
                "export the jobs of all partitions, or list the nodes of this one with --nodes",
            )

    def clusters(self, runs: Runs) -> None:
        """Refuse jobs of which many have several runs: ids of two clusters that share the names of nodes."""
        if runs.jobs >= _ENOUGH_ROWS and runs.jobs_again > _MANY_TWICE * runs.jobs:
            why = (
                f"{runs.jobs_again:,} of {runs.jobs:,} jobs have several runs: are these the jobs of two clusters, "
                "whose ids and nodes have the same names?"
            )
            self._refuse(why, "export the column Cluster, and name one with --cluster")

    def whole_minutes(self, times: JobTimes, seen: Observed) -> None:
        """Say so where times have no seconds: each idle fragment begins and ends half a minute early on average."""
        if not times.are_whole(_MINUTE_NS, _ENOUGH_MINUTES):
            return
        inner = (seen.idle[1] > seen.start_ns) & (seen.idle[2] < seen.end_ns)
        share = float(np.count_nonzero(inner)) * _MINUTE_NS / SECOND_NS / seen.node_s
        why = "all times are whole minutes, as spreadsheets and some formats cut them: fragments begin and end up to a "
        why += "minute early, and what is idle for shorter is not known"
        self._say(why, share)

    def gap(self, times: JobTimes, seen: Observed) -> None:
        """Say so where no job starts or ends for much longer than usual: a file may be missing."""
        found = times.longest_pause(seen.start_ns, seen.end_ns)
        if found is None:
            return
        begin, end, usual = found
        if end - begin < max(_PAUSE_NS, _MUCH_LONGER * usual):
            return
        length_s = (end - begin) / SECOND_NS
        rest_s = (seen.end_ns - seen.start_ns) / SECOND_NS - length_s
        there = seen.idle_between(begin, end) / (length_s * len(seen.names))
        all_idle = float(((seen.idle[2] - seen.idle[1]) / SECOND_NS).sum())
        usually = (all_idle - there * length_s * len(seen.names)) / (
            rest_s * len(seen.names)
        )
        # Nothing is known of this time: nodes are idle in it as usual, wherever they look idle.
        unlike = there * (1 - usually) + (1 - there) * usually
        share = unlike * length_s / (length_s + rest_s)
        since = np.datetime64(begin, "ns").astype("datetime64[s]")
        why = "no job starts or ends for much longer than usual: is a file missing? what nodes did is not known"
        self._say(why, share, f"{length_s / 3600:.3g} h from {since}Z on")

    def contradicted(self, jobs: Contradicted, idle: float, intervals: int) -> None:
        """Say how many jobs without an end a later job ended; each was idle before it as nodes usually are."""
        if not jobs.count:
            return
        why = "jobs without an end are contradicted by a later job on a node of theirs: they end where it starts"
        share = idle * jobs.nodes / max(1, intervals)
        detail = f"the earliest; about {share:.2%} of the node-time is uncertain"
        self._diagnosis.note(
            why, jobs.file, jobs.line, detail, count=jobs.count, loud=True
        )

    def suspended(self, share: float) -> None:
        """Say so where jobs were suspended and no listing says when."""
        if share >= _SAID:
            why = "jobs were suspended, and nothing says when: Slurm calls their nodes idle meanwhile, here they "
            why += "are busy; scontrol show job, listed by cron, says when"
            self._say(why, share)

    def completing(self, times: JobTimes, seen: Observed, touching: int) -> None:
        """Suspect an epilog where no job follows another on its node at once; `touching`: so many intervals do."""
        node, begins, ends = seen.busy
        gaps = (begins[1:] - ends[:-1])[node[1:] == node[:-1]]
        if not len(gaps) or touching > _FEW_TOUCH * len(gaps):
            return
        least = int(gaps.min())
        sudden = int(np.count_nonzero(gaps < 2 * least)) >= _ENOUGH_GAPS
        share = seen.share(np.minimum(gaps, least))
        if not (
            _SHORTEST_EPILOG_NS <= least <= _LONGEST_EPILOG_NS
            and sudden
            and share >= _SAID
        ) or times.are_whole(_MINUTE_NS, _ENOUGH_MINUTES):
            return
        seconds = f"{least / SECOND_NS:g}"
        why = f"no job starts within {seconds} s of another's end on its node: do nodes complete so long (an epilog)? "
        why += f"they look idle meanwhile; --completing {seconds} makes them busy"
        self._say(why, share)

    def power_saving(self, listed: ListedNodes, seen: Observed) -> None:
        """Say so where the list has nodes of a cloud, or powered off, and no event says when any was off."""
        place = {node: int(seen.index[node]) for node in {*listed.power, *listed.idle}}
        place = {node: at for node, at in place.items() if at >= 0}
        power = [listed.power.get(node, frozenset()) for node in place]
        off = sum("off" in some for some in power)
        cloud = {
            at
            for some, at in zip(power, place.values(), strict=True)
            if "cloud" in some
        }
        if listed.states_power or not (off or cloud):
            return
        length = seen.idle[2] - seen.idle[1]
        if cloud:  # off whenever it has no job; other nodes never are
            share = seen.share(length[np.isin(seen.idle[0], list(cloud))])
            detail = f"at most; {len(cloud)} nodes of a cloud"
        else:  # of the nodes without a job that many were off when the list was made
            idle = off + sum(node in listed.idle for node in place)
            share = seen.share(length) * off / idle
            detail = f"{off} of {idle} nodes without a job"
        if share >= _SAID:
            why = "power saving takes nodes of the list down, and no --events say when: they look idle then"
            self._say(why, share, detail)

    def vanished(self, jobs: Vanished, seen: Observed) -> None:
        """Say so where jobs were listed while they ran and not after: they ended at some time between."""
        share = jobs.node_s / seen.node_s
        if share < _SAID:
            return
        why = "jobs vanished between two listings of scontrol without an end, which no other file states: they end "
        why += "with the second, or where a later job starts. Give the output of sacct too, or list them more often"
        self._diagnosis.note(
            why, "", 0, f"at most {share:.2%} of the node-time", loud=True
        )

    def down(self, listed: ListedNodes, seen: Observed) -> None:
        """Say so where the list says that nodes are down, and no outage does."""
        if not listed.down:
            return
        _, trailing, _ = seen.signs_of_life()
        found = {
            place: trailing[place]
            for node in listed.down
            if (place := int(seen.index[node])) in trailing
        }
        lengths = np.array(list(found.values()), dtype=np.int64)
        if not len(lengths) or seen.share(lengths) < _SAID:
            return
        names = [seen.names[place] for place in sorted(found)]
        why = "nodes are DOWN or drained in the list of nodes, but no outage says since when: they look idle from "
        why += "their last job on"
        self._say(
            why, seen.share(lengths), f"{len(names)}, such as {', '.join(names[:3])}"
        )

    def membership(self, listed: ListedNodes, seen: Observed) -> None:
        """Suspect nodes that were renamed, added or removed from their first and last signs of life."""
        if not len(seen.busy[0]):
            return
        before, after, longest = seen.signs_of_life()
        least = max(_HALF_DAY_NS, _LONGER * longest)
        down = {int(seen.index[node]) for node in listed.down}
        used = set(np.unique(seen.busy[0]).tolist())
        late = {node: ns for node, ns in before.items() if ns >= least and node in used}
        gone = {
            node: ns
            for node, ns in after.items()
            if ns >= least and node in used and node not in down
        }
        few, many = sorted((len(late), len(gone)))
        if (
            few >= _RENAMED * len(used)
            and many <= 1.25 * few
            and not set(late) & set(gone)
        ):
            first, last = (sorted(nodes)[0] for nodes in (gone, late))
            why = (
                f"{len(gone):,} nodes have their last job about when {len(late):,} others have their first: were they "
                f"renamed (such as {seen.names[first]} and {seen.names[last]})?"
            )
            self._refuse(
                why,
                "--nodes with a table of the columns node and was, which has their other names, makes them one",
            )
            return
        both = {node: late.get(node, 0) + gone.get(node, 0) for node in {*late, *gone}}
        share = seen.share(np.array(list(both.values()), dtype=np.int64))
        if share < _SAID:
            return
        names = [seen.names[node] for node in sorted(both)]
        why = "nodes have their first sign of life late, or their last early: were they added or removed? --nodes with "
        why += "a table of the columns node, since and until says when"
        self._say(why, share, f"{len(names)}, such as {', '.join(names[:3])}")
