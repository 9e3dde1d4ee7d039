"""What logs leave open or hide: each doubt is a function of the records and of the time that they show.

What is certain is refused, and `--allow-few` accepts it; what is likely is said with its share of the node-time. Time
of which it is known on which nodes it lies is a `Doubt`, and counts as the user asks (`--uncertain`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bft.models import InputError
from bft.replay.logs.machine import Machine, some
from bft.replay.logs.records import Account, Records
from bft.replay.logs.runs import Requeues
from bft.replay.logs.spans import Spans
from bft.replay.logs.times import OPEN, Mask, Whole, distinct
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_statistics import iso

_DAY_NS, _HOUR_NS, _MINUTE_NS = 86_400 * SECOND_NS, 3600 * SECOND_NS, 60 * SECOND_NS
# Jobs from which on the usual distance of two starts, and the usual number of running jobs, can be told.
_ENOUGH = 10
# A log that lacks the jobs that ended after it shows a small part of those that ran at its end.
_FEW = 1 / 3
# Share of the jobs' time that seems to be missing from which on a warning is due.
_NOTED_MISSING = 0.005
# Share and length of the part of a window outside the logs from which on the window is refused, or noted. Exports are
# asked for by dates, and the first and last record lie somewhat inside.
_REFUSED_OUTSIDE, _NOTED_OUTSIDE, _NOTED_OUTSIDE_NS = 0.5, 0.01, _HOUR_NS
# Rows from which on one value in all of them is no chance.
_ENOUGH_ROWS = 100
# Share of the jobs that ran more than once from which on ids are those of several clusters.
_MANY_TWICE = 0.3
# Jobs from which on it is no chance that all their times are whole minutes.
_ENOUGH_MINUTES = 50
# How much longer than usual the idle time of a node before its first job, or after its last, is.
_LONGER = 2
# The same of a time without any record, and its least length.
_MUCH_LONGER, _PAUSE_NS = 20, 4 * _HOUR_NS
# Share of the nodes that have their first and last sign of life together from which on they were renamed.
_RENAMED = 0.25
# Gaps between jobs that begin all of a sudden, from which on an epilog is suspected, of these lengths; and the part of
# all gaps that may have none.
_ENOUGH_GAPS, _FEW_TOUCH = 20, 0.01
_SHORTEST_EPILOG_NS, _LONGEST_EPILOG_NS = 2 * SECOND_NS, 300 * SECOND_NS
# Pauses of nodes from which on the longest of them says how long nodes are idle.
_ENOUGH_PAUSES = 10
# Share of the node-time from which on something is said.
SAID = 0.0005
# Jobs that end long after all others: at most this share of all, and of few jobs one in so many.
_MOST_LATE, _FEW_LATE = 0.01, 10

SKIPPED_ROWS, NO_END, LATE_END = (
    "skipped rows",
    "jobs without an end",
    "jobs that end long after all others",
)
MISSING, SAMPLING, SUSPENDED = (
    "jobs that ran when the log ended",
    "sampling",
    "suspended jobs",
)
OUTSIDE, QUIET = "window outside the logs", "no job starts any more"
SILENT = "nodes before their first or after their last sign of life"
DOWN = "nodes that are down in the list of nodes"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Time of which the logs may not show what nodes did.

    Parameters
    ----------
    reason
        Why, in a few words.
    spans
        On which nodes, and when; None: that is not known.
    ns
        How much node-time it is, where it is not known when.
    """

    reason: str
    spans: Spans | None = None
    ns: float = 0.0


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Start and end of each job, UTC nanoseconds; an end of `OPEN` is still to come."""

    starts: Whole
    ends: Whole

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def ended(self) -> Mask:
        """Which jobs have ended."""
        return self.ends < OPEN

    def are_whole_minutes(self) -> bool:
        """Whether all times are whole minutes, of jobs enough to tell."""
        ended = self.ends[self.ended]
        if len(ended) < _ENOUGH_MINUTES:
            return False
        return not (self.starts % _MINUTE_NS).any() and not (ended % _MINUTE_NS).any()

    def last_start(self) -> int:
        """The latest start, 0 without jobs."""
        return int(self.starts.max(initial=0))

    def longest(self) -> int:
        """Length of the longest job that ended, those that end long after all others apart; 0: too few to tell."""
        known = self.ended & ~self.late()
        if np.count_nonzero(known) < _ENOUGH:
            return 0
        return int((self.ends - self.starts)[known].max())

    def late(self) -> Mask:
        """Which jobs, that began among the others, end so long after all others that they stretch the log.

        That is to more than twice its span, and by a day; few do, as a mistyped year does.
        """
        ends = np.sort(self.ends[self.ended])
        size = len(ends)
        if size < 3:
            return np.zeros(len(self), dtype=bool)
        first = size - max(1, min(_FEW_LATE, size // _FEW_LATE), int(_MOST_LATE * size))
        gaps = np.flatnonzero(
            np.diff(ends[first - 1 :])
            > np.maximum(ends[first - 1 : -1] - ends[0], _DAY_NS)
        )
        if not len(gaps):
            return np.zeros(len(self), dtype=bool)
        last = int(ends[first - 1 + gaps[0]])
        return self.ended & (self.ends > last) & (self.starts <= last)


# --- the window of observation --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Window:
    """Begin and end of the observation, UTC nanoseconds, and the parts of it that are in doubt.

    Parameters
    ----------
    start_ns, end_ns
        The window.
    parts
        Reason, begin and end of doubts about all nodes.
    missing
        How much of the jobs' time is missing because jobs ran when the log ended, as a share of it.
    """

    start_ns: int
    end_ns: int
    parts: list[tuple[str, int, int]]
    missing: float = 0.0


def check_window(
    window: Window,
    log: tuple[int, int],
    account: Account,
    source: str,
    *,
    counts_idle: bool,
) -> None:
    """Refuse a window that hardly overlaps the logs, and note how much of it does not."""
    start, end = window.start_ns, window.end_ns
    outside = (end - start) - max(0, min(end, log[1]) - max(start, log[0]))
    share = outside / (end - start)
    times = [iso(time, account.zone) for time in (start, end, *log)]
    where = "the window is {} to {}, the logs hold {} to {}".format(*times)
    none = start >= log[1] or end <= log[0]
    much = outside > _DAY_NS and share > _REFUSED_OUTSIDE
    if (none and log[0] < log[1]) or (much and not account.allow_few):
        raise InputError(
            f"the window of observation lies outside the logs: {where}" if none else
            f"{share:.0%} of the window of observation lie outside the logs: {where}",
            file=source or None,
            hint="check the years in --from and --to, and --tz" + ("" if none else "; --allow-few accepts it"),
        )  # fmt: skip
    if outside > _NOTED_OUTSIDE_NS and share > _NOTED_OUTSIDE:
        why = (
            "part of the window lies before the first or after the last record: nodes "
        )
        why += "look idle there" if counts_idle else "count as unavailable there"
        account.note(why, "", 0, f"{share:.1%} of it; {where}", loud=True)
        window.parts += [(OUTSIDE, start, log[0]), (OUTSIDE, log[1], end)]


def check_ends(
    window: Window,
    stated: tuple[bool, bool],
    times: JobTimes,
    place: Callable[[int], str],
    account: Account,
) -> None:
    """Say which records stretch the window.

    Parameters
    ----------
    window, times
        The window, and when jobs ran.
    stated
        Whether begin and end of the window are stated rather than derived from the jobs.
    place
        Gives file and line of a job, for messages.
    account
        Receives what is said.
    """
    for what, jobs, extremes, is_last in (
        ("starts", np.arange(len(times)), times.starts, True),
        ("ends", np.flatnonzero(times.ended), times.ends[times.ended], False),
    ):
        each = distinct(extremes)
        if len(each) < 3 or stated[is_last]:
            continue
        extreme, nearest, far = (
            each[[-1, -2, 0]] if is_last else each[[0, 1, -1]]
        ).tolist()
        if not abs(extreme - nearest) > max(_DAY_NS, abs(nearest - far)):
            continue
        job = int(jobs[extremes == extreme][0])
        side, bound, option = (
            ("after", "end", "--to") if is_last else ("before", "begin", "--from")
        )
        why = f"one job {what} long {side} all others and stretches the window: a mistyped year? "
        why += f"{option} states its {bound}"
        account.note(
            why,
            "",
            0,
            f"{iso(extreme, account.zone)} ({place(job)}); the next is {iso(nearest, account.zone)}",
            loud=True,
        )


def check_end_of_log(
    window: Window,
    times: JobTimes,
    others: Whole,
    unavailable: Spans,
    nodes: int,
    account: Account,
    *,
    only_ended: bool,
) -> None:
    """Say what makes the end of a window look idler than it was.

    Parameters
    ----------
    window, times
        The window, and when jobs ran.
    others
        Starts of jobs beside these, which show as well that the log goes on.
    unavailable, nodes
        When nodes were down or reserved, and how many there are: what is drained for a reservation starts no job.
    account
        Receives what is said.
    only_ended
        Whether the format has no rows of running jobs.
    """
    start, end = window.start_ns, window.end_ns
    starts = distinct(np.concatenate([times.starts, others]))
    starts = starts[(starts >= start) & (starts < end)]
    if len(starts) >= _ENOUGH:
        pauses = np.diff(starts)
        length, usual = end - int(starts[-1]), float(pauses.mean())
        quiet = length > 10 * usual and np.mean(pauses >= length) <= 0.01
        noted = max(_NOTED_OUTSIDE_NS, _NOTED_OUTSIDE * (end - start))
        if (
            quiet
            and length > noted
            and not _explained(unavailable, int(starts[-1]), end, nodes)
        ):
            detail = f"{hours(length)}, {length / (end - start):.0%} of it; before, "
            detail += f"one started every {hours(round(usual))}"
            why = "no job starts in the last part of the window: does the log show jobs up to its end? "
            why += "--to states that end"
            account.note(why, "", 0, detail, loud=True)
            window.parts.append((QUIET, end - length, end))
    window.missing = missing_share(times, start, end, only_ended=only_ended)
    if window.missing > _NOTED_MISSING:
        why = "jobs that ran when the log ended are not in it, and their nodes look idle: "
        why += "an earlier --to leaves that out"
        account.note(
            why, "", 0, f"about {window.missing:.1%} of the jobs' node-time", loud=True
        )
    else:
        window.missing = 0.0


def missing_share(
    times: JobTimes, start_ns: int, end_ns: int, *, only_ended: bool
) -> float:
    """Estimate how much of the jobs' time in a window is missing because these jobs ended after the log did.

    A log of jobs that have ended, up to its last end, lacks those that ran then. With jobs as long and as frequent as
    those of the log, n in a time L, the missing ones ran for sum(d * d / 2) / L before that end, d the lengths. The
    result is this time as a share of the time of the jobs that are known. With `only_ended` the format has no rows of
    running jobs; otherwise it is 0 unless far fewer jobs are known to run at the end of the window than on average.
    """
    starts, ends, known = times.starts, times.ends, times.ended
    ran = (
        np.clip(np.minimum(ends, end_ns) - np.maximum(starts, start_ns), 0, None)
        .astype(np.float64)
        .sum()
    )
    if np.count_nonzero(known) < _ENOUGH or not ran:
        return 0.0
    usual = ran / (end_ns - start_ns)
    running = np.count_nonzero((starts < end_ns) & (ends > end_ns))
    if not only_ended and (usual < _ENOUGH or running > _FEW * usual):
        return 0.0
    first, last = int(ends[known].min()), int(ends[known].max())
    lengths = (ends - starts)[known].astype(np.float64)
    beyond = np.clip(lengths - max(0, last - end_ns), 0, None)
    return float((beyond**2).sum() / 2 / max(last - first, end_ns - start_ns) / ran)


def _explained(unavailable: Spans, begin_ns: int, end_ns: int, nodes: int) -> bool:
    """Whether half of the nodes are down or reserved at some instant of a pause, or from its end on."""
    inside = (unavailable.begin_ns <= end_ns) & (unavailable.end_ns > begin_ns)
    return 2 * len(distinct(unavailable.node[inside])) >= nodes


def hours(ns: int) -> str:
    """A length of time for people."""
    seconds = ns / SECOND_NS
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h"


# --- doubts about the time of single nodes --------------------------------------------------------------------------


def silences(signs: Spans, whole: Spans) -> Spans:
    """When nodes may not have been there: before their first and after their last sign of life.

    That is in doubt where it is longer than a day, and than twice the longest pause between two signs of any node.
    """
    same = signs.node[1:] == signs.node[:-1]
    pauses = (signs.begin_ns[1:] - signs.end_ns[:-1])[same]
    if len(pauses) < _ENOUGH_PAUSES:
        return Spans(signs.scale)
    silent = signs.hull().gaps(whole)
    return silent.where(silent.lengths_ns > max(2 * int(pauses.max()), _DAY_NS))


def after_last(nodes: Sequence[int], signs: Spans, idle: Spans) -> Spans:
    """The idle time of nodes after their last sign of life."""
    last = np.full(int(max(nodes)) + 1, -1, dtype=np.int64)
    idle = idle.where(np.isin(idle.node, nodes))
    _, at = signs.firsts()
    mine = signs.node[at] < len(last)
    last[signs.node[at][mine]] = signs.end_ns[at][mine]
    return idle.where(idle.begin_ns >= last[idle.node])


# --- suspicions: sentences with the share of the node-time that they are about --------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """What the logs show of the machine's nodes in the window.

    Parameters
    ----------
    machine
        Its nodes.
    busy, idle, unavailable
        Spans by place of the nodes.
    times
        Of all jobs.
    start_ns, end_ns
        The window.
    zone
        Time zone of instants in messages; empty: UTC.
    """

    machine: Machine
    busy: Spans
    idle: Spans
    unavailable: Spans
    times: JobTimes
    start_ns: int
    end_ns: int
    zone: str = ""

    def share(self, lengths_ns: Whole) -> float:
        """The share of the node-time that spans of these lengths are."""
        node_s = len(self.machine.names) * (self.end_ns - self.start_ns) / SECOND_NS
        return float((lengths_ns / SECOND_NS).sum()) / node_s

    def between(self, spans: Spans, begin_ns: int, end_ns: int) -> float:
        """Node-seconds of spans in a part of the window."""
        begins, ends = (
            np.maximum(spans.begin_ns, begin_ns),
            np.minimum(spans.end_ns, end_ns),
        )
        return float((np.maximum(ends - begins, 0) / SECOND_NS).sum())

    def signs_of_life(self) -> tuple[Whole, Whole, int]:
        """Idle nanoseconds of each node before its first job and after its last, and the longest between two jobs."""
        size = len(self.machine.names)
        begins, ends = np.full(size, self.end_ns), np.full(size, self.end_ns)
        first, last = self.busy.firsts()
        nodes = self.busy.node[first]
        begins[nodes], ends[nodes] = self.busy.begin_ns[first], self.busy.end_ns[last]
        node, length = self.idle.node, self.idle.lengths_ns
        before, after = (
            self.idle.end_ns <= begins[node],
            self.idle.begin_ns >= ends[node],
        )
        first_ns = np.bincount(node[before], length[before], size).astype(np.int64)
        last_ns = np.bincount(node[after], length[after], size).astype(np.int64)
        return first_ns, last_ns, int(length[~before & ~after].max(initial=0))


def filtered(records: Records, account: Account, source: str) -> None:
    """Refuse rows of one user or state."""
    user, state = only(records, "user"), only(records, "state")
    if user:
        why = f"all {records.looked_at['user']:,} rows have the User {user[:80]!a}: "
        why += "were the jobs of all users exported?"
        hint = "where users see their own jobs only (PrivateData=jobs), an operator exports all (sacct -a)"
        refuse(account, source, why, hint)
    if state and not state.startswith("RUNNING"):
        why = f"all {records.looked_at['state']:,} rows have the State {state[:80]!a}: those of other jobs are missing"
        refuse(account, source, why, "export without a choice of states (sacct -s)")


def only(records: Records, column: str) -> str:
    """The value of a column that holds one in all of enough rows, which the user has not chosen; else empty."""
    held = records.values.get(column, set())
    if (
        len(held) != 1
        or records.looked_at.get(column, 0) < _ENOUGH_ROWS
        or column in records.chosen
    ):
        return ""
    return next(iter(held))


def requeues(
    found: Requeues, account: Account, source: str, *, are_stated: bool
) -> None:
    """Refuse jobs of which many have several runs: ids of two clusters that share the names of nodes.

    Where a log may state the runs of requeued jobs (`are_stated`), none at all is suspicious.
    """
    if found.jobs >= _ENOUGH_ROWS and found.again > _MANY_TWICE * found.jobs:
        why = (
            f"{found.again:,} of {found.jobs:,} jobs have several runs: are these the jobs of two clusters, "
            "whose ids and nodes have the same names?"
        )
        refuse(
            account,
            source,
            why,
            "export the column Cluster, and name one with --cluster",
        )
    if found.jobs >= _ENOUGH_ROWS and not found.again and are_stated:
        why = "no job ran twice: did sacct lack -D? without it requeued runs are missing, "
        why += "and nodes look idle in their time"
        account.note(why, "", 0, loud=True)


def refuse(account: Account, source: str, why: str, hint: str) -> None:
    """Refuse the logs, or say why where the user accepts them."""
    if not account.allow_few:
        raise InputError(
            why, file=source or None, hint=f"{hint}; --allow-few accepts it"
        )
    account.note(why, "", 0, loud=True)


def suspicions(
    shown: Shown, *, stated: bool, completing: bool, touching: int, states_power: bool
) -> Iterator[tuple[str, float, str]]:
    """Yield what is likely: a sentence, the share of the node-time that it is about, and a detail.

    Parameters
    ----------
    shown
        The node-time that the logs show.
    stated
        Whether the logs state their window themselves.
    completing
        Whether the user says how long nodes complete.
    touching
        How many spans of jobs touch or overlap another.
    states_power
        Whether outages state when nodes were powered off.
    """
    yield from _power_saving(shown, states_power)
    if stated:
        return
    if shown.times.are_whole_minutes():
        inner = (shown.idle.begin_ns > shown.start_ns) & (
            shown.idle.end_ns < shown.end_ns
        )
        why = "all times are whole minutes, as spreadsheets and some formats cut them: fragments begin and end up to a "
        why += "minute early, and what is idle for shorter is not known"
        yield why, shown.share(np.full(int(np.count_nonzero(inner)), _MINUTE_NS)), ""
    elif not completing:
        yield from _completing(shown, touching)
    yield from _gap(shown)


def _completing(shown: Shown, touching: int) -> Iterator[tuple[str, float, str]]:
    """Suspect an epilog where no job follows another on its node at once."""
    if touching > _FEW_TOUCH * len(shown.busy):
        return
    same = shown.busy.node[1:] == shown.busy.node[:-1]
    gaps = (shown.busy.begin_ns[1:] - shown.busy.end_ns[:-1])[same]
    if not len(gaps):
        return
    least = int(gaps.min())
    sudden = int(np.count_nonzero(gaps < 2 * least)) >= _ENOUGH_GAPS
    share = shown.share(np.minimum(gaps, least))
    if _SHORTEST_EPILOG_NS <= least <= _LONGEST_EPILOG_NS and sudden and share >= SAID:
        seconds = f"{least / SECOND_NS:g}"
        why = f"no job starts within {seconds} s of another's end on its node: do nodes complete so long (an epilog)? "
        why += f"they look idle meanwhile; --completing {seconds} makes them busy"
        yield why, share, ""


def _gap(shown: Shown) -> Iterator[tuple[str, float, str]]:
    """Suspect a missing file where no job starts or ends for much longer than usual, and nothing explains it."""
    times = distinct(
        np.concatenate([shown.times.starts, shown.times.ends[shown.times.ended]])
    )
    times = times[(times >= shown.start_ns) & (times <= shown.end_ns)]
    if len(times) < _ENOUGH:
        return
    pauses = np.diff(times)
    at = int(pauses.argmax())
    begin, end, usual = (
        int(times[at]),
        int(times[at + 1]),
        float(np.quantile(pauses, 0.99)),
    )
    nodes = len(shown.machine.names)
    if end - begin < max(_PAUSE_NS, _MUCH_LONGER * usual) or _explained(
        shown.unavailable, begin, end, nodes
    ):
        return
    length_s = (end - begin) / SECOND_NS
    rest_s = (shown.end_ns - shown.start_ns) / SECOND_NS - length_s
    there = shown.between(shown.idle, begin, end) / (length_s * nodes)
    all_idle = float((shown.idle.lengths_ns / SECOND_NS).sum())
    usually = (all_idle - there * length_s * nodes) / (rest_s * nodes)
    # Nothing is known of this time: nodes are idle in it as usual, wherever they look idle.
    unlike = there * (1 - usually) + (1 - there) * usually
    why = "no job starts or ends for much longer than usual: is a file missing? what nodes did is not known"
    yield (
        why,
        unlike * length_s / (length_s + rest_s),
        f"{length_s / 3600:.3g} h from {iso(begin, shown.zone)} on",
    )


def _power_saving(shown: Shown, states_power: bool) -> Iterator[tuple[str, float, str]]:
    """Say so where the list has nodes of a cloud, or powered off, and no event says when any was off."""
    listed = shown.machine.listed
    off = sum("off" in each.power for each in listed.values())
    cloud = [place for place, each in listed.items() if "cloud" in each.power]
    if states_power or not (off or cloud):
        return
    if cloud:  # off whenever it has no job; other nodes never are
        share = shown.share(shown.idle.lengths_ns[np.isin(shown.idle.node, cloud)])
        detail = f"at most; {len(cloud)} nodes of a cloud"
    else:  # of the nodes without a job that many were off when the list was made
        idle = off + sum(each.state == "idle" for each in listed.values())
        share = shown.share(shown.idle.lengths_ns) * off / idle
        detail = f"{off} of {idle} nodes without a job"
    if share >= SAID:
        yield (
            "power saving takes nodes of the list down, and no --events say when: they look idle then",
            share,
            detail,
        )


def membership(
    shown: Shown, account: Account, source: str
) -> tuple[str, float, str] | None:
    """Suspect nodes that were renamed, added or removed from their first and last signs of life."""
    if not len(shown.busy):
        return None
    before, after, longest = shown.signs_of_life()
    least = max(_DAY_NS // 2, _LONGER * longest)
    down = shown.machine.down()
    used = distinct(shown.busy.node)
    late = used[before[used] >= least]
    gone = used[(after[used] >= least) & ~np.isin(used, down)]
    few, many = sorted((len(late), len(gone)))
    names = shown.machine.names
    if (
        few >= _RENAMED * len(used)
        and many <= 1.25 * few
        and not len(np.intersect1d(late, gone))
    ):
        why = (
            f"{len(gone):,} nodes have their last job about when {len(late):,} others have their first: were they "
            f"renamed (such as {names[gone[0]]} and {names[late[0]]})?"
        )
        refuse(
            account,
            source,
            why,
            "--nodes with a table of the columns node and was, which has their other names, makes them one",
        )
        return None
    both = np.union1d(late, gone)
    share = shown.share(
        np.where(np.isin(both, late), before[both], 0)
        + np.where(np.isin(both, gone), after[both], 0)
    )
    if share < SAID:
        return None
    why = "nodes have their first sign of life late, or their last early: were they added or removed? --nodes with "
    why += "a table of the columns node, since and until says when"
    return (
        why,
        share,
        f"{len(both)}, such as {some([names[node] for node in both.tolist()])}",
    )


def other_partitions(
    records: Records, shown: Shown, account: Account, source: str
) -> None:
    """Refuse rows of one partition where nodes are listed of others, without a job."""
    partition = only(records, "partition")
    listed = shown.machine.listed
    others = [
        place
        for place, each in listed.items()
        if each.partitions and partition not in each.partitions
    ]
    if partition and others and not np.isin(others, shown.busy.node).any():
        names = ", ".join(shown.machine.names[place] for place in sorted(others)[:3])
        why = (
            f"all {records.looked_at['partition']:,} rows have the Partition {partition[:80]!a}, but {len(others):,} "
            f"nodes of the list are of others ({names}), and no job ran there"
        )
        refuse(
            account,
            source,
            why,
            "export the jobs of all partitions, or list the nodes of this one with --nodes",
        )


def say(account: Account, why: str, share: float, detail: str = "") -> None:
    """Say what is likely, with the share of the node-time that it is about."""
    account.note(
        why,
        "",
        0,
        f"about {share:.2%} of the node-time{f'; {detail}' if detail else ''}",
        loud=True,
    )
