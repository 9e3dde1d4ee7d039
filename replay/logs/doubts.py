"""What logs leave open or hide: each doubt is a function of the records and of the time that they show.

What is certain is refused, and `--allow-few` accepts it; what is likely is said with its share of the node-time. Time
of which it is known on which nodes it lies is a `Doubt`, and counts as the user asks (`--uncertain`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from bft.models import InputError
from bft.replay.logs.machine import Machine, some
from bft.replay.logs.records import POWERED_OFF, Account, Records, RecordTable
from bft.replay.logs.runs import Requeues
from bft.replay.logs.spans import Spans
from bft.replay.logs.times import OPEN, Mask, Whole
from bft.replay.trace.node_trace import SECOND_NS, distinct
from bft.replay.trace.trace_statistics import iso

_MINUTE_NS, _HOUR_NS, DAY_NS = 60 * SECOND_NS, 3600 * SECOND_NS, 86_400 * SECOND_NS
# Jobs, and pauses of nodes, from which on it can be told what is usual.
_ENOUGH = 10
# Rows from which on one value in all of them is no chance, and jobs from which on whole minutes are none.
_ENOUGH_ROWS, _ENOUGH_MINUTES = 100, 50
# Exports are asked for by dates, and the first and last record lie somewhat inside: parts of a window that count.
_NOTED_PART, _NOTED_NS = 0.01, _HOUR_NS
# Share of the node-time from which on something is said.
SAID = 0.0005

SKIPPED_ROWS, NO_END = "skipped rows", "jobs without an end"
LATE_END = "jobs that end long after all others"
MISSING, SAMPLING = "jobs that ran when the log ended", "sampling"
SUSPENDED = "suspended jobs"
OUTSIDE, QUIET = "window outside the logs", "no job starts any more"
SILENT = "nodes before their first or after their last sign of life"
DOWN = "nodes that are down in the list of nodes"

Doubt: TypeAlias = tuple[str, Spans | float]
"""Why the logs may not show what nodes did, and when on which nodes; or, where that is not known, for how many ns."""
Suspicion: TypeAlias = tuple[str, float, str]
"""What is likely, the share of the node-time that it is about, and a detail."""


@dataclass(frozen=True)
class Window:
    """The window of observation, and when jobs ran, as far as the logs tell; all times are UTC nanoseconds.

    Parameters
    ----------
    start_ns, end_ns
        The window.
    starts, ends
        Of each job; an end of `OPEN` is still to come.
    log
        The first and the last instant of which the logs tell.
    """

    start_ns: int
    end_ns: int
    starts: Whole
    ends: Whole
    log: tuple[int, int]

    @property
    def bounds(self) -> tuple[int, int]:
        """Begin and end."""
        return self.start_ns, self.end_ns

    @property
    def length_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns

    def inside(self, begins: Whole, ends: Whole) -> Whole:
        """How long each of some intervals lies within the window, nanoseconds."""
        return np.maximum(
            np.clip(ends, *self.bounds) - np.clip(begins, *self.bounds), 0
        )

    @cached_property
    def late(self) -> Mask:
        """Which jobs, that began among the others, end so long after all others that they stretch the log.

        That is to more than twice its span, and by a day; few do, as a mistyped year does: at most one in a hundred, of
        few jobs one in ten.
        """
        ended = np.sort(self.ends[self.ends < OPEN])
        few = max(1, len(ended) // 100, min(10, len(ended) // 10))
        # The last end that is believed in any case, and those after it.
        final = ended[-1 - few :] if len(ended) > 2 else ended[:0]
        jumps = np.diff(final) > np.maximum(final[:-1] - ended[:1], DAY_NS)
        last = final[:-1][jumps].min(initial=OPEN)
        late: Mask = (self.ends < OPEN) & (self.ends > last) & (self.starts <= last)
        return late

    def believed(self, begins: Whole, ends: Whole, doubted: Mask) -> Whole:
        """Return the ends of jobs; of those that are doubted until when they are believed to run.

        A short log shows few long jobs: one that runs a little longer than these is no reason for doubt.
        """
        known = (self.ends < OPEN) & ~self.late
        if np.count_nonzero(known) < _ENOUGH:
            return ends
        longest = max(2 * int((self.ends - self.starts)[known].max()), DAY_NS)
        return np.where(doubted, begins + np.minimum(ends - begins, longest), ends)


def warn(account: Account, why: str, detail: str = "") -> None:
    """Note something that the command line prints on stderr too."""
    account.note(why, "", 0, detail, loud=True)


def say(account: Account, why: str, share: float, detail: str = "") -> None:
    """Say what is likely, with the share of the node-time that it is about, unless that is tiny."""
    if share >= SAID:
        warn(
            account, why, f"about {share:.2%} of the node-time{detail and '; '}{detail}"
        )


def refuse(account: Account, why: str, hint: str) -> None:
    """Refuse the logs, or say why where the user accepts them."""
    if not account.allow_few:
        raise InputError(why, hint=f"{hint}; --allow-few accepts it")
    warn(account, why)


# --- the window of observation --------------------------------------------------------------------------------------


def outside(
    window: Window, whole: Spans, account: Account, *, counts_idle: bool
) -> list[Doubt]:
    """Refuse a window that hardly overlaps the logs; note and doubt the parts that do not; `whole` is all of it."""
    (start, end), (first, last) = window.bounds, window.log
    beyond = window.length_ns - max(0, min(end, last) - max(start, first))
    share = beyond / window.length_ns
    if first > last:
        return []
    times = [iso(time, account.zone) for time in (start, end, first, last)]
    where = "the window is {} to {}, the logs hold {} to {}".format(*times)
    is_apart = share == 1 and first < last
    if is_apart or (beyond > DAY_NS and share > 0.5 and not account.allow_few):
        hint = "check the years in --from and --to, and --tz"
        raise InputError(
            f"{share:.0%} of the window of observation lies outside the logs: {where}",
            hint=hint if is_apart else f"{hint}; --allow-few accepts it",
        )
    if beyond <= _NOTED_NS or share <= _NOTED_PART:
        return []
    counts = "look idle" if counts_idle else "count as unavailable"
    why = f"part of the window lies before the first or after the last record: nodes {counts} there"
    warn(account, why, f"{share:.1%} of it; {where}")
    before, after = (
        whole.clipped(start, max(start, first)),
        whole.clipped(min(last, end), end),
    )
    return [(OUTSIDE, before), (OUTSIDE, after)]


def stretched(
    times: Whole, sign: int, what: str, place: Callable[[int], str], account: Account
) -> None:
    """Say which of some times of jobs stretches them to more than twice their span, and by a day.

    Parameters
    ----------
    times
        Starts or ends of jobs.
    sign
        1 for the last one, -1 for the first one.
    what
        Says what a job does then, and which option helps.
    place
        Gives file and line of a job.
    account
        Receives what is said.
    """
    each = distinct(sign * times[times < OPEN])
    if len(each) >= 3 and each[-1] - each[-2] > max(DAY_NS, each[-2] - each[0]):
        extreme, nearest = (sign * each[[-1, -2]]).tolist()
        job = place(int(np.flatnonzero(times == extreme)[0]))
        detail = f"{iso(extreme, account.zone)} ({job}); the next is {iso(nearest, account.zone)}"
        warn(account, what, detail)


def quiet_end(
    window: Window, others: Whole, unavailable: Spans, whole: Spans, account: Account
) -> list[Doubt]:
    """Note and doubt the end of the window where no job starts any more.

    Parameters
    ----------
    window, whole
        The window, and all of it on each node.
    others
        Starts of jobs beside its own, which show as well that the log goes on.
    unavailable
        When nodes were down or reserved: what is drained for a reservation starts no job.
    account
        Receives what is said.
    """
    end = window.end_ns
    starts = distinct(np.concatenate([window.starts, others]))
    starts = starts[(starts >= window.start_ns) & (starts < end)]
    if len(starts) < _ENOUGH:
        return []
    pauses, last = np.diff(starts), int(starts[-1])
    length, usual = end - last, float(pauses.mean())
    least = max(10 * usual, _NOTED_NS, _NOTED_PART * window.length_ns)
    if (
        length <= least
        or np.mean(pauses >= length) > 0.01
        or _explained(unavailable, last, end, len(whole))
    ):
        return []
    why = "no job starts in the last part of the window: does the log show jobs up to its end? --to states that end"
    share = f"{length / _HOUR_NS:.3g} h, {length / window.length_ns:.0%} of it"
    warn(account, why, f"{share}; before, one started every {usual / SECOND_NS:.0f} s")
    return [(QUIET, whole.clipped(last, end))]


def missing_share(window: Window, account: Account, *, only_ended: bool) -> float:
    """Estimate how much of the jobs' time in a window is missing because these jobs ended after the log did; says so.

    A log of jobs that have ended, up to its last end, lacks those that ran then. With jobs as long and as frequent as
    those of the log, n in a time L, the missing ones ran for sum(d * d / 2) / L before that end, d the lengths. The
    result is this time as a share of the time of the jobs that are known. With `only_ended` the format has no rows of
    running jobs; otherwise it is 0 unless far fewer jobs are known to run at the end of the window than on average.
    """
    end_ns, ended = window.end_ns, window.ends < OPEN
    ran = float(window.inside(window.starts, window.ends).astype(np.float64).sum())
    usual = ran / window.length_ns
    running = np.count_nonzero((window.starts < end_ns) & (window.ends > end_ns))
    lacks = only_ended or (usual >= _ENOUGH and running <= usual / 3)
    if np.count_nonzero(ended) < _ENOUGH or not ran or not lacks:
        return 0.0
    starts, ends = window.starts[ended], window.ends[ended]
    beyond = np.maximum(
        (ends - starts).astype(np.float64) - max(0, int(ends.max()) - end_ns), 0
    )
    share = (
        float((beyond**2).sum()) / 2 / max(int(np.ptp(ends)), window.length_ns) / ran
    )
    if share <= 0.005:
        return 0.0
    why = "jobs that ran when the log ended are not in it, and their nodes look idle: an earlier --to leaves that out"
    warn(account, why, f"about {share:.1%} of the jobs' node-time")
    return share


def _explained(unavailable: Spans, begin_ns: int, end_ns: int, nodes: int) -> bool:
    """Whether half of the nodes are down or reserved at some instant of a pause, or from its end on."""
    inside = (unavailable.begin_ns <= end_ns) & (unavailable.end_ns > begin_ns)
    return 2 * len(distinct(unavailable.node[inside])) >= nodes


# --- doubts about the time of single nodes --------------------------------------------------------------------------


def edges(signs: Spans, idle: Spans) -> tuple[Mask, Mask]:
    """Which idle spans lie before the first sign of life of their node, and which after the last."""
    node, (first, last) = idle.node, signs.firsts()
    # A node without any sign is idle before the first as well as after the last.
    size = 1 + int(max(node.max(initial=0), signs.node.max(initial=0)))
    begins, finals = np.full(size, OPEN), np.full(size, -1)
    begins[signs.node[first]] = signs.begins[first]
    finals[signs.node[last]] = signs.begins[last]
    return idle.begins < begins[node], idle.begins > finals[node]


def silences(gaps: Spans, silent: Mask) -> Spans:
    """When nodes may not have been there: before their first and after their last sign of life.

    That is in doubt where it is longer than a day, and than twice the longest pause between two signs of any node.

    Parameters
    ----------
    gaps, silent
        Pauses without a sign of life, and which of them are before the first one or after the last one.
    """
    lengths = gaps.lengths_ns
    if np.count_nonzero(~silent) < _ENOUGH:
        return Spans(gaps.scale)
    return gaps.where(silent & (lengths > max(2 * int(lengths[~silent].max()), DAY_NS)))


# --- suspicions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """What the logs show of the machine's nodes in the window: records, and spans by places of nodes."""

    records: Records
    table: RecordTable
    window: Window
    machine: Machine
    busy: Spans
    idle: Spans
    unavailable: Spans

    def share(self, lengths_ns: Whole) -> float:
        """The share of the node-time that spans of these lengths are."""
        all_ns = float(self.window.length_ns) * len(self.machine.names)
        return float(lengths_ns.sum(dtype=np.float64)) / all_ns


def suspicions(
    shown: Shown, *, is_stated: bool, completing: bool, touching: int
) -> Iterator[Suspicion]:
    """Yield what is likely.

    Parameters
    ----------
    shown
        What the logs show.
    is_stated, completing
        Whether logs state their window themselves, and the user, for how long nodes complete.
    touching
        How many jobs on a node touch or overlap another.
    """
    window = shown.window
    yield from membership(shown)
    yield from power_saving(shown)
    if is_stated:
        return
    ended = window.ends[window.ends < OPEN]
    if (
        len(ended) >= _ENOUGH_MINUTES
        and not (np.append(window.starts, ended) % _MINUTE_NS).any()
    ):
        inner = (shown.idle.begin_ns > window.start_ns) & (
            shown.idle.end_ns < window.end_ns
        )
        why = (
            "all times are whole minutes, as spreadsheets and some formats cut them: fragments begin and end up to a "
            "minute early, and what is idle for shorter is not known"
        )
        yield why, shown.share(inner * _MINUTE_NS), ""
    elif not completing and touching <= 0.01 * len(shown.busy):
        yield from epilog(shown)
    yield from pause_of_all(shown)


def membership(shown: Shown) -> Iterator[Suspicion]:
    """Suspect nodes that were renamed, added or removed from their first and last signs of life."""
    idle, names = shown.idle, shown.machine.names
    # One after the other: each array of a large machine's year takes 200 MiB.
    before, after = edges(shown.busy, idle)
    used = distinct(shown.busy.node)
    node, lengths = idle.node, idle.lengths_ns
    least = max(DAY_NS // 2, 2 * int(lengths[~before & ~after].max(initial=0)))
    first, last = (
        np.bincount(node[mine], lengths[mine], len(names)) for mine in (before, after)
    )
    late, gone = used[first[used] >= least], used[last[used] >= least]
    gone = gone[~np.isin(gone, shown.machine.down())]
    both = np.union1d(late, gone)
    few, many = sorted((len(late), len(gone)))
    if (
        few >= max(1, 0.25 * len(used))
        and many <= 1.25 * few
        and len(both) == few + many
    ):
        why = (
            f"{len(gone):,} nodes have their last job about when {len(late):,} others have their first: were they "
            f"renamed (such as {names[gone[0]]} and {names[late[0]]})?"
        )
        hint = "--nodes with a table of the columns node and was, which has their other names, makes them one"
        refuse(shown.records.account, why, hint)
        return
    why = (
        "nodes have their first sign of life late, or their last early: were they added or removed? --nodes with "
        "a table of the columns node, since and until says when"
    )
    share = shown.share(np.concatenate([first[late], last[gone]]))
    yield (
        why,
        share,
        f"{len(both)}, such as {some([names[place] for place in both.tolist()])}",
    )


def power_saving(shown: Shown) -> Iterator[Suspicion]:
    """Suspect nodes of a cloud, or powered off, in a list of nodes, where no event says when any was off."""
    if (shown.table["otherwise"] == shown.records.reason(POWERED_OFF)).any():
        return
    listed, idle = shown.machine.listed, shown.idle
    off = sum("off" in each.power for each in listed.values())
    cloud = [place for place, each in listed.items() if "cloud" in each.power]
    why = "power saving takes nodes of the list down, and no --events say when: they look idle then"
    if cloud:  # off whenever it has no job; other nodes never are
        share = shown.share(idle.lengths_ns[np.isin(idle.node, cloud)])
        yield why, share, f"at most; {len(cloud)} nodes of a cloud"
    elif off:  # of the nodes without a job that many were off when the list was made
        free = off + sum(each.state == "idle" for each in listed.values())
        yield (
            why,
            shown.share(idle.lengths_ns) * off / free,
            f"{off} of {free} nodes without a job",
        )


def epilog(shown: Shown) -> Iterator[Suspicion]:
    """Suspect an epilog where gaps between jobs begin all of a sudden."""
    gaps = shown.busy.pauses_ns()
    least = int(gaps.min(initial=DAY_NS))
    if (
        np.count_nonzero(gaps < 2 * least) >= 20
        and 2 * SECOND_NS <= least <= 300 * SECOND_NS
    ):
        seconds = f"{least / SECOND_NS:g}"
        why = (
            f"no job starts within {seconds} s of another's end on its node: do nodes complete so long (an epilog)? "
            f"they look idle meanwhile; --completing {seconds} makes them busy"
        )
        yield why, shown.share(np.minimum(gaps, least)), ""


def pause_of_all(shown: Shown) -> Iterator[Suspicion]:
    """Suspect a missing file where no job starts or ends for much longer than usual, and nothing explains it."""
    window = shown.window
    times = distinct(np.concatenate([window.starts, window.ends]))
    times = times[(times >= window.start_ns) & (times <= window.end_ns)]
    if len(times) < _ENOUGH:
        return
    pauses = np.diff(times)
    at = int(pauses.argmax())
    begin, end = times[at : at + 2].tolist()
    least = max(4 * _HOUR_NS, 20 * float(np.quantile(pauses, 0.99)))
    if end - begin < least or _explained(
        shown.unavailable, begin, end, len(shown.machine.names)
    ):
        return
    part = (end - begin) / window.length_ns
    inside = shown.share(shown.idle.clipped(begin, end).lengths_ns)
    # Nothing is known of this time: nodes are idle in it as usual, wherever they look idle.
    usually = (shown.share(shown.idle.lengths_ns) - inside) / (1 - part)
    unlike = inside * (1 - usually) + (part - inside) * usually
    why = "no job starts or ends for much longer than usual: is a file missing? what nodes did is not known"
    yield (
        why,
        unlike,
        f"{(end - begin) / _HOUR_NS:.3g} h from {iso(begin, shown.records.account.zone)} on",
    )


# --- what is certain ------------------------------------------------------------------------------------------------


def one_sided(records: Records, machine: Machine, used: Whole) -> None:
    """Refuse rows of one user, one state, or one partition where nodes are listed of others, none of them `used`."""
    held = {
        column: records.values.get(column, set())
        for column in ("user", "state", "partition")
    }
    others = [
        place
        for place, each in sorted(machine.listed.items())
        if each.partitions and not each.partitions & held["partition"]
    ]
    names = some([machine.names[place] for place in others])
    for column, is_odd, why, hint in (
        ("user", True, "were the jobs of all users exported?",
         "where users see their own jobs only (PrivateData=jobs), an operator exports all (sacct -a)"),
        ("state", held["state"] != {"RUNNING"}, "those of other jobs are missing",
         "export without a choice of states (sacct -s)"),
        ("partition", others and not np.isin(others, used).any(),
         f"{len(others):,} nodes of the list are of others ({names}), and no job ran there",
         "export the jobs of all partitions, or list the nodes of this one with --nodes"),
    ):  # fmt: skip
        rows = records.looked_at.get(column, 0)
        if (
            is_odd
            and len(held[column]) == 1
            and rows >= _ENOUGH_ROWS
            and column not in records.chosen
        ):
            value = f"{column.title()} {min(held[column])[:80]!a}"
            refuse(records.account, f"all {rows:,} rows have the {value}: {why}", hint)


def requeues(found: Requeues, account: Account, *, are_stated: bool) -> None:
    """Refuse jobs of which many have several runs: ids of two clusters that share the names of nodes.

    Where a log may state the runs of requeued jobs (`are_stated`), none at all is suspicious.
    """
    if found.jobs >= _ENOUGH_ROWS and found.again > 0.3 * found.jobs:
        why = (
            f"{found.again:,} of {found.jobs:,} jobs have several runs: are these the jobs of two clusters, "
            "whose ids and nodes have the same names?"
        )
        refuse(account, why, "export the column Cluster, and name one with --cluster")
    if found.jobs >= _ENOUGH_ROWS and not found.again and are_stated:
        why = "no job ran twice: did sacct lack -D? without it requeued runs are missing, "
        warn(account, f"{why}and nodes look idle in their time")
