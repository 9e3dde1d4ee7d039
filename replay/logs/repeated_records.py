"""Runs of jobs and outages of nodes: those under way at the end of a file, and records that state the same run.

Exports of single days overlap, and a job at midnight is in both.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.units import Held
from bft.replay.trace.node_trace import SECOND_NS, TimeArray

# The end of what is still running when the log ends.
OPEN = 2**63 - 1
_DAY_NS = 86_400 * SECOND_NS
# Jobs from which on the usual distance of two starts, and the usual number of running jobs, can be told.
_ENOUGH = 10
# A log that lacks the jobs that ended after it shows a small part of those that ran at its end.
_FEW = 1 / 3


class Outlier(NamedTuple):
    """A start or an end that lies further from all others than these lie apart.

    Parameters
    ----------
    what
        `start` (later than all others), `end` (later), or `first end` (earlier).
    time_ns, next_ns
        The time, and the nearest of the others, UTC nanoseconds.
    start_ns
        Start of the job, by which its record is found.
    """

    what: str
    time_ns: int
    next_ns: int
    start_ns: int


class Quiet(NamedTuple):
    """The end of a window in which no job starts, longer than is usual.

    Parameters
    ----------
    length_ns, usual_ns
        From the last start to the end of the window, and the mean distance of two starts before.
    """

    length_ns: int
    usual_ns: int


class JobTimes:
    """Start and end of each job, in any order; an end of `OPEN` is still to come. Takes 16 bytes a job."""

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")

    def add(self, start_ns: int, end_ns: int) -> None:
        """Add a job."""
        self._starts.append(start_ns)
        self._ends.append(end_ns)

    def add_together(self, starts: TimeArray, ends: TimeArray) -> None:
        """Add jobs, one entry each."""
        self._starts.frombytes(starts.astype(np.int64, copy=False).tobytes())
        self._ends.frombytes(ends.astype(np.int64, copy=False).tobytes())

    def _columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.array(self._starts, dtype=np.int64), np.array(
            self._ends, dtype=np.int64
        )

    def are_whole(self, unit_ns: int, least: int) -> bool:
        """Whether all times of at least so many jobs are multiples of a unit."""
        starts, ends = self._columns()
        ends = ends[ends < OPEN]
        if len(ends) < least:
            return False
        return not (starts % unit_ns).any() and not (ends % unit_ns).any()

    def longest_pause(self, start_ns: int, end_ns: int) -> tuple[int, int, int] | None:
        """Begin and end of the longest time in a window without any start or end, and the usual one; None: too few."""
        starts, ends = self._columns()
        times = np.unique(np.concatenate([starts, ends[ends < OPEN]]))
        times = times[(times >= start_ns) & (times <= end_ns)]
        if len(times) < _ENOUGH:
            return None
        pauses = np.diff(times)
        place = int(pauses.argmax())
        usual = float(np.quantile(pauses, 0.99))
        return int(times[place]), int(times[place + 1]), round(usual)

    def last_start(self) -> int:
        """The latest start, 0 without jobs."""
        return max(self._starts, default=0)

    def __len__(self) -> int:
        return len(self._starts)

    def longest(self) -> int:
        """Return the length of the longest job that ended, in nanoseconds; 0 where there are too few to tell."""
        starts, ends = self._columns()
        known = ends < OPEN
        if np.count_nonzero(known) < _ENOUGH:
            return 0
        return int((ends - starts)[known].max())

    def outliers(self) -> list[Outlier]:
        """Times that stretch the span of the log to more than twice what it is without them, and by more than a day."""
        starts, ends = self._columns()
        found = []
        for what, jobs, times, sign in (
            ("start", starts, starts, 1),
            ("end", starts[ends < OPEN], ends[ends < OPEN], 1),
            ("first end", starts[ends < OPEN], ends[ends < OPEN], -1),
        ):
            distinct = np.unique(times)
            if len(distinct) < 3:
                continue
            extreme, nearest, far = (
                distinct[[-1, -2, 0]] if sign > 0 else distinct[[0, 1, -1]]
            )
            away = abs(int(extreme) - int(nearest))
            if away > _DAY_NS and away > abs(int(nearest) - int(far)):
                start_ns = int(jobs[times == extreme][0])
                found.append(Outlier(what, int(extreme), int(nearest), start_ns))
        return found

    def quiet_end(
        self, start_ns: int, end_ns: int, others: Sequence[TimeArray] = ()
    ) -> Quiet | None:
        """The last part of a window if no job starts in it and it is longer than all but 1 % of such pauses before.

        `others`: starts of jobs beside these, which show as well that the log goes on.
        """
        starts = np.unique(np.concatenate([self._columns()[0], *others]))
        starts = starts[(starts >= start_ns) & (starts < end_ns)]
        if len(starts) < _ENOUGH:
            return None
        pauses = np.diff(starts)
        length, usual = end_ns - int(starts[-1]), float(pauses.mean())
        if length <= 10 * usual or np.mean(pauses >= length) > 0.01:
            return None
        return Quiet(length, round(usual))

    def missing_share(self, start_ns: int, end_ns: int, *, only_ended: bool) -> float:
        """Estimate how much of the jobs' time in a window is missing because these jobs ended after the log did.

        A log of jobs that have ended, up to its last end, lacks those that ran then. With jobs as long and as frequent
        as those of the log, n in a time L, the missing ones ran for sum(d * d / 2) / L before that end, d the lengths.
        The result is this time as a share of the time of the jobs that are known, and 0 where nothing seems to miss.

        Parameters
        ----------
        start_ns, end_ns
            The window.
        only_ended
            Whether the format has no rows of running jobs. Otherwise 0 is returned unless far fewer jobs are known to
            run at the end of the window than ran on average.
        """
        starts, ends = self._columns()
        known = ends < OPEN
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
        missing = (beyond**2).sum() / 2 / max(last - first, end_ns - start_ns)
        return float(missing / ran)


@dataclass(slots=True)
class Suspensions:
    """Jobs that were suspended: Slurm calls their nodes idle meanwhile, where no other job runs.

    Parameters
    ----------
    runs
        By key and start of a run its nodes, its end, and for how long it was suspended, nanoseconds.
    seen
        By key and start what listings say: when it was suspended or resumed last, how long it had run before it was
        suspended last, and whether it still was.
    """

    runs: dict[tuple[Hashable, int], tuple[array[int], int, int]] = field(
        default_factory=dict
    )
    seen: dict[tuple[Hashable, int], set[tuple[int, int, bool]]] = field(
        default_factory=dict
    )

    def ran(
        self, key: Hashable, nodes: array[int], start_ns: int, end_ns: int, lost_ns: int
    ) -> None:
        """A run ended that was suspended so long; of several records of it the latest end counts."""
        known = self.runs.get((key, start_ns))
        if known is None or end_ns > known[1]:
            self.runs[key, start_ns] = nodes, end_ns, lost_ns

    def see(self, key: Hashable, start_ns: int, seen: tuple[int, int, bool]) -> None:
        """A listing has the run."""
        self.seen.setdefault((key, start_ns), set()).add(seen)

    def running(self, run: tuple[Hashable, int], end_ns: int) -> list[tuple[int, int]]:
        """When a run was not suspended, as far as listings say: begins and ends.

        >>> listed = {("7", 0): {(90, 30, True), (150, 30, False)}}
        >>> Suspensions(seen=listed).running(("7", 0), 200)
        [(0, 90), (150, 200)]
        """
        start_ns = run[1]
        spans: list[tuple[int, int]] = []
        suspended_ns = 0
        seen = self.seen.get(run, set())
        for before_ns in sorted({ran_ns for _, ran_ns, _ in seen}):
            mine = [each for each in seen if each[1] == before_ns]
            since = [at for at, _, goes_on in mine if goes_on]
            until = [at for at, _, goes_on in mine if not goes_on]
            # What was not listed while it was suspended is known by how long it had run.
            begin = min(since, default=start_ns + before_ns + suspended_ns)
            end = max(begin, min([*until, end_ns]))
            spans.append((begin, end))
            suspended_ns += end - begin
        edges = [start_ns, *(edge for span in spans for edge in span), end_ns]
        pieces = zip(edges[::2], edges[1::2], strict=True)
        return [(begin, end) for begin, end in pieces if begin < end]


@dataclass(frozen=True, slots=True)
class Begun:
    """An interval that has begun: hosts, UTC nanoseconds of its start, place of its record, what it holds of each host.

    None for the latter: all of it.
    """

    hosts: tuple[str, ...]
    start_ns: int
    file: str
    line: int
    held: tuple[Held, ...] | None = None


@dataclass(slots=True)
class JobKeys:
    """Makes the key of a job of its id and cluster; a record that states no cluster is of the first that any states.

    Attributes
    ----------
    first, several
        The first cluster, and whether others are stated as well.
    unstated
        File and line of a record that states none.
    """

    first: str = ""
    several: bool = False
    unstated: tuple[str, int] | None = None

    def key(self, job: str, cluster: str, file: str, line: int) -> Hashable:
        """Return the key of a job; parameters as `name` has them.

        >>> keys = JobKeys()
        >>> [keys.key("7", cluster, "f", 1) for cluster in ("", "a", "b", "A")]
        ['7', '7', ('b', '7'), '7']
        """
        name = self.name(cluster, file, line)
        return (name, job) if name else job

    def name(self, cluster: str, file: str, line: int) -> str:
        """Return what tells a cluster from the first one; empty: nothing, it is the first.

        An empty `cluster`: the record, of this file and line, states none.
        """
        if not cluster:
            self.unstated = self.unstated or (file, line)
            return ""
        name = cluster.casefold()
        self.first = self.first or name
        self.several |= name != self.first
        return "" if name == self.first else name


@dataclass(slots=True)
class Kept:
    """Jobs and outages under way by key, and what the end of the last file made of them.

    `starts`: whether any record stated a start by itself, so that jobs that still run are known.
    """

    jobs: dict[Hashable, Begun] = field(default_factory=dict)
    outages: dict[Hashable, Begun] = field(default_factory=dict)
    running: int = 0
    outage_nodes: int = 0  # node-intervals that were added at the end of the last file
    last_ns: int = 0
    starts: bool = False


# Bit of a row's content for runs of which a job has one at a time; the bits below are a hash.
_ONCE = 1 << 30
_HASH = _ONCE - 1
# 30 bits of an end: the upper ones of its product with an odd number (Fibonacci hashing), in 64 bits.
_ODD, _WORD, _SHIFT = 0x9E3779B97F4A7C15, 2**64 - 1, 34
# A record with an end: hash of its key, start, content (end and nodes), node-intervals, line. Packed, as one row is
# written much faster than five columns are.
_ROW = np.dtype(
    [
        ("key", "=i8"),
        ("start", "=i8"),
        ("content", "=i4"),
        ("size", "=i4"),
        ("line", "=u4"),
    ]
)
_pack = Struct("=qqiiI").pack


# Digits of the ids that are their own hash; and jobs of so many nodes are many.
MOST_DIGITS, _FEW_NODES = 18, 4
_WHOLE = re.compile(rf"[1-9]\d{{0,{MOST_DIGITS - 1}}}", re.ASCII)


def hash_of(key: Hashable) -> int:
    """The hash of a job's key; of a whole number without leading zeros this number, as blocks of rows have it.

    >>> hash_of("17")
    17
    """
    if isinstance(key, str) and _WHOLE.fullmatch(key):
        return int(key)
    return hash(key)


def _crc32_table() -> NDArray[np.uint32]:
    """Return the table of what each byte adds to a CRC-32 (ISO 3309, the reflected polynomial 0xEDB88320)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1)
    return table


_CRC = _crc32_table()


def _crc32_of_each(jobs: NDArray[np.int32]) -> NDArray[np.uint32]:
    """zlib.crc32 of the nodes of each job, shape (jobs, nodes): most have few, and a call for each takes long.

    >>> jobs = np.array([[0, 70_000], [3, 4]], dtype=np.int32)
    >>> _crc32_of_each(jobs).tolist() == [crc32(job.tobytes()) for job in jobs]
    True
    """
    value = np.full(len(jobs), 0xFFFFFFFF, dtype=np.uint32)
    for byte in np.ascontiguousarray(jobs).view(np.uint8).T:
        value = _CRC[(value ^ byte) & 0xFF] ^ (value >> 8)
    return ~value


@dataclass(slots=True)
class OpenRun:
    """A run that had no end when its record was written.

    Parameters
    ----------
    nodes
        Node indices, or how many nodes when the log has no names.
    start_ns, end_ns
        UTC nanoseconds; an end of None is that of the observation.
    file, line
        Where the record is.
    once
        Whether the job has one run at a time.
    key, held
        As `Collector.job` has them, of jobs that hold some units of their nodes.
    reserved
        Whether it is a reservation, during which jobs may run.
    seen_ns
        When it was seen last, where it was gone at `end_ns`; None: not known so.
    under_way
        Whether it went on at `end_ns`, when the log ended.
    """

    nodes: array[int] | int
    start_ns: int
    end_ns: int | None
    file: str
    line: int
    once: bool
    key: Hashable = None
    held: Sequence[Held] | None = None
    reserved: bool = False
    seen_ns: int | None = None
    under_way: bool = False


class Runs:
    """Runs of jobs, or outages of nodes. Several records with one key and one start state the same run.

    - A record without an end is closed by one with an end.
    - A record that repeats another one counts once.
    - A job that starts again had ended by then, if jobs of its kind run once at a time.

    The order of the records does not matter. Takes 28 bytes per run with an end. Keys are compared by their hash of
    64 bits (`hash_of`), together with the exact start.

    Parameters
    ----------
    what
        What runs, for messages: job or outage.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._open: dict[tuple[Hashable, int], OpenRun] = {}
        # How many records without an end repeat another one, and where the first of them is.
        self._open_again: tuple[int, str, int] = (0, "", 0)
        # Of jobs that run once at a time: records with an end so far settled, and whether a job has several runs.
        self.requeues_looked_for, self.requeued = 0, False
        # Jobs among them, and those that ran several times.
        self.jobs = self.jobs_again = 0
        # Of runs without an end, when they were seen last, and when they were gone.
        self._gone: dict[tuple[Hashable, int], tuple[int, int]] = {}
        self._clear()

    def _clear(self) -> None:
        self._rows = bytearray()
        # Number of the first record of each file.
        self._file_rows: list[int] = []
        self._file_names: list[str] = []
        self._file: str | None = None

    def __len__(self) -> int:
        """How many records with an end there are, which is the number of the next."""
        return len(self._rows) // _ROW.itemsize

    def _table(self) -> NDArray[np.void]:
        """The records with an end; none may be added while this is held."""
        return np.frombuffer(self._rows, dtype=_ROW)

    def ended(
        self,
        key: Hashable,
        nodes: array[int] | int,
        start_ns: int,
        end_ns: int,
        file: str,
        line: int,
        *,
        once: bool,
    ) -> None:
        """Add a record with an end."""
        self._of_file(file)
        content, size = (
            (nodes & _HASH, 0)
            if isinstance(nodes, int)
            else (crc32(nodes) & _HASH, len(nodes))
        )
        content ^= (end_ns * _ODD & _WORD) >> _SHIFT
        self._rows += _pack(
            hash_of(key), start_ns, content | _ONCE if once else content, size, line
        )

    def ended_together(
        self,
        keys: Sequence[Hashable] | NDArray[np.int64],
        nodes: NDArray[np.int32],
        sizes: NDArray[np.int64],
        starts: TimeArray,
        ends: TimeArray,
        file: str,
        lines: NDArray[np.int64],
    ) -> None:
        """Add records with an end of jobs that run once at a time; their nodes lie one after the other."""
        self._of_file(file)
        begins = np.cumsum(sizes) - sizes
        contents = np.empty(len(keys), dtype=np.int64)
        for size in range(1, _FEW_NODES + 1):
            mine = np.flatnonzero(sizes == size)
            jobs = nodes[begins[mine, None] + np.arange(size)]
            contents[mine] = _crc32_of_each(jobs)
        several = np.flatnonzero(sizes > _FEW_NODES)
        begins = begins[several] * nodes.itemsize
        until = begins + sizes[several] * nodes.itemsize
        parts = map(
            memoryview(nodes.tobytes()).__getitem__,
            map(slice, begins.tolist(), until.tolist()),
        )
        contents[several] = np.fromiter(
            map(crc32, parts), dtype=np.int64, count=len(several)
        )
        contents &= _HASH
        contents ^= (
            ends.astype(np.uint64) * np.uint64(_ODD) >> np.uint64(_SHIFT)
        ).astype(np.int64)
        rows = np.empty(len(keys), dtype=_ROW)
        if not isinstance(keys, np.ndarray):
            keys = np.fromiter(map(hash_of, keys), dtype=np.int64, count=len(keys))
        rows["key"] = keys
        rows["start"], rows["content"] = starts, contents | _ONCE
        rows["size"], rows["line"] = sizes, lines
        self._rows += rows.tobytes()

    def _of_file(self, file: str) -> None:
        """Count the rows that follow as rows of this file."""
        if file is not self._file:
            self._file = file
            self._file_rows.append(len(self))
            self._file_names.append(file)

    def begun(
        self,
        key: Hashable,
        nodes: array[int] | int,
        start_ns: int,
        file: str,
        line: int,
        *,
        once: bool,
        held: Sequence[Held] | None = None,
        reserved: bool = False,
    ) -> None:
        """Add a record without an end."""
        if (key, start_ns) in self._open:
            count, first_file, first_line = self._open_again
            self._open_again = (
                (count + 1, first_file, first_line) if count else (1, file, line)
            )
        self._open[key, start_ns] = OpenRun(
            nodes, start_ns, None, file, line, once, key, held, reserved
        )

    def gone(self, key: Hashable, start_ns: int, seen_ns: int, gone_ns: int) -> None:
        """A run went on at one instant and was gone at a later one: it ended by then, if no record says when."""
        self._gone[key, start_ns] = seen_ns, gone_ns

    def open_starts(self) -> Iterable[int]:
        """Starts of the runs that have no end so far."""
        return (start_ns for _, start_ns in self._open)

    def have_ended(self, runs: Sequence[tuple[Hashable, int]]) -> list[bool]:
        """Whether a record with an end was added, for each key and start."""
        ended = self._starts_by_key(hash_of(key) for key, _ in runs)
        return [start_ns in ended.get(hash_of(key), ()) for key, start_ns in runs]

    def latest(self, rows: NDArray[np.int64], ends: TimeArray) -> NDArray[np.bool_]:
        """Which of these records have the latest end of their run; of equal ones the first.

        Parameters
        ----------
        rows
            Numbers of records, counted from 0 in the order of `ended`.
        ends
            Their ends.
        """
        table = self._table()
        keys, starts = table["key"][rows], table["start"][rows]
        order = np.lexsort((-ends, starts, keys))
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (np.diff(keys[order]) != 0) | (np.diff(starts[order]) != 0)
        kept = np.zeros(len(rows), dtype=bool)
        kept[order[first]] = True
        return kept

    def settle(self, diagnosis: Diagnosis) -> tuple[int, list[OpenRun]]:
        """Account for records that repeat or close others, when all files were read, and forget all records.

        Returns
        -------
        repeated
            How many node-intervals the repeated records had.
        runs
            Those that no record closes.
        """
        self._look_for_requeues()
        repeated = self._repeats(diagnosis)
        remaining = self._close(diagnosis)
        self._open.clear()
        self._open_again = (0, "", 0)
        self._clear()
        return repeated, remaining

    def _look_for_requeues(self) -> None:
        """Find out whether a job that runs once at a time has several runs."""
        table = self._table()
        rows = table[table["content"] & _ONCE != 0]
        self.requeues_looked_for += len(rows)
        keys, starts = rows["key"], rows["start"]
        order = np.argsort(keys, kind="stable")
        same = np.diff(keys[order]) == 0
        again = same & (np.diff(starts[order]) != 0)
        self.requeued |= bool(again.any())
        self.jobs += len(rows) - int(np.count_nonzero(same))
        self.jobs_again += len(np.unique(keys[order][1:][again]))

    def _repeats(self, diagnosis: Diagnosis) -> int:
        """Take repeated records back; returns how many node-intervals they had."""
        what = f"a record that repeats another one of the same {self.what}"
        if self._open_again[0]:
            count, file, line = self._open_again
            diagnosis.take_back(what, file, line, count=count)
        table = self._table()
        keys, starts = table["key"], table["start"]
        # Nearly always there are none: one sort finds that out.
        mixed = keys * np.int64(0x9E3779B97F4A7C1) + starts
        ordered = np.sort(mixed)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if not len(twice):
            return 0
        rows = np.flatnonzero(np.isin(mixed, twice))
        contents = table["content"][rows]
        order = np.lexsort((rows, contents, starts[rows], keys[rows]))
        rows, contents = rows[order], contents[order]
        same_run = (np.diff(keys[rows]) == 0) & (np.diff(starts[rows]) == 0)
        same = same_run & (np.diff(contents) == 0)
        again = np.sort(rows[1:][same])
        if len(again):
            diagnosis.take_back(what, *self._place(int(again[0])), count=len(again))
        differ = rows[1:][same_run & ~same & (contents[1:] >= _ONCE)]
        if len(differ):
            why = f"records of one {self.what} (same id, same start) have different ends or nodes: "
            why += "the latest end counts"
            diagnosis.note(why, *self._place(int(differ.min())), count=len(differ))
        return int(table["size"][again].sum())

    def _close(self, diagnosis: Diagnosis) -> list[OpenRun]:
        """The runs without an end that no record closes; those that start again end there."""
        ended = self._starts_by_key(hash_of(key) for key, _ in self._open)
        begun = {key: set(starts) for key, starts in ended.items()}
        for key, start_ns in self._open:
            begun.setdefault(hash_of(key), set()).add(start_ns)
        remaining = []
        for (key, start_ns), run in self._open.items():
            if start_ns in ended.get(hash_of(key), ()):
                why = f"{self.what} without an end, of which another record states the end"
                diagnosis.take_back(why, run.file, run.line)
                continue
            remaining.append(run)
            later = [other for other in begun[hash_of(key)] if other > start_ns]
            if run.once and later:
                run.end_ns = min(later)
                why = f"{self.what} without an end starts again later: its nodes count as taken until then"
                diagnosis.note(why, run.file, run.line)
            elif (key, start_ns) in self._gone:
                run.seen_ns, run.end_ns = self._gone[key, start_ns]
        return remaining

    def _starts_by_key(self, hashes: Iterable[int]) -> dict[int, set[int]]:
        """Starts of the records with an end, by the hash of their key, of these keys only."""
        wanted = np.fromiter(set(hashes), dtype=np.int64)
        by_key: dict[int, set[int]] = {}
        if len(wanted):
            table = self._table()
            keys, starts = table["key"], table["start"]
            rows = np.flatnonzero(np.isin(keys, wanted))
            for key, start_ns in zip(
                keys[rows].tolist(), starts[rows].tolist(), strict=True
            ):
                by_key.setdefault(key, set()).add(start_ns)
        return by_key

    def place_of(self, start_ns: int) -> tuple[str, int] | None:
        """File and line of the first record with this start, None when there is none."""
        rows = np.flatnonzero(self._table()["start"] == start_ns)
        if len(rows):
            return self._place(int(rows[0]))
        return next(
            (
                (run.file, run.line)
                for run in self._open.values()
                if run.start_ns == start_ns
            ),
            None,
        )

    def _place(self, row: int) -> tuple[str, int]:
        """File and line of a record."""
        return self._file_names[bisect_right(self._file_rows, row) - 1], int(
            self._table()["line"][row]
        )
