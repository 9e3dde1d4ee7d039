"""Walltimes of parts of node traces, of several made one, and with names that may be shown to others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.parts import keyed_names
from bft.replay.trace.walltimes import NEVER, Walltimes, from_rows

# Whether it is a reservation, known, start, expected end, count, names of nodes: all of a row but its end.
_Row: TypeAlias = tuple[bool, int, int, int, int, tuple[str, ...]]


def cut_walltimes(walltimes: Walltimes, start: int, end: int) -> Walltimes:
    """The rows that count inside a window, as they are: what was known, and was not over when it begins.

    Parameters
    ----------
    walltimes
        The whole.
    start, end
        UTC nanoseconds.

    Examples
    --------
    >>> from bft.replay.trace.walltimes import from_rows
    >>> jobs = from_rows([("job", 0, 10, 60, 100, 1, ("n0",)), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
    >>> len(cut_walltimes(jobs, 0, 60)), len(cut_walltimes(jobs, 60, 90))
    (2, 1)
    """
    return _rows(
        walltimes, np.flatnonzero((walltimes.known <= end) & (walltimes.end > start))
    )


def walltimes_with_nodes(walltimes: Walltimes, names: Collection[str]) -> Walltimes:
    """Return walltimes of some nodes as if these were a machine of their own: jobs count with their nodes among them.

    Jobs that never began name no nodes, and are left out.

    Raises
    ------
    InputError
        When jobs that began name no nodes, as those of a log that only counts them.

    Examples
    --------
    >>> from bft.replay.trace.walltimes import from_rows
    >>> jobs = from_rows([("job", 0, 10, 60, 100, 2, ("n0", "n1")), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
    >>> walltimes_with_nodes(jobs, ["n1"]).count.tolist()
    [1]
    """
    began = walltimes.start < NEVER
    sizes = np.diff(walltimes.offsets)
    nameless = began & (sizes == 0) & (walltimes.count > 0)
    if nameless.any():
        message = "walltimes: a job that began names no nodes, so that those of some nodes are not known"
        raise InputError(message, row=int(np.argmax(nameless)) + 1)
    wanted = set(names)
    chosen = np.array([name in wanted for name in walltimes.names], dtype=bool)[
        walltimes.nodes
    ]
    row = np.repeat(np.arange(len(walltimes)), sizes)
    counts = np.bincount(row[chosen], minlength=len(walltimes))
    kept = np.concatenate([[0], np.cumsum(counts)])
    some = replace(
        walltimes,
        nodes=walltimes.nodes[chosen],
        offsets=kept,
        count=np.where(began, counts, 0),
    )
    return _rows(some, np.flatnonzero(counts))


def merged_walltimes(pairs: Sequence[tuple[Walltimes, NodeTrace]]) -> Walltimes:
    """Merge walltimes of traces of one machine whose windows follow one another, each with its trace, in any order.

    A row that several state counts once, with the end that the last of them states. What had not ended when a trace
    did, and no later one states, counts until the end of that trace.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> from bft.replay.trace.walltimes import from_rows
    >>> one, two = (always_idle(1, start, start + 60) for start in (0, 60))
    >>> runs, ended = (from_rows([("job", 0, 10, end, 100, 1, ("n00000",))]) for end in (NEVER, 90))
    >>> merged_walltimes([(ended, two), (runs, one)]).end.tolist()
    [90]
    """
    rows: dict[
        tuple[_Row, int], tuple[int, int]
    ] = {}  # end, and the end of the last window in which it is stated
    for walltimes, trace in sorted(
        pairs, key=lambda pair: (pair[1].start, pair[1].end)
    ):
        ends_by_row = defaultdict(list)
        for row, end in _each(walltimes):
            ends_by_row[row].append(end)
        for row, ends in ends_by_row.items():
            # Of jobs that are alike the last to end are those that the next window has too.
            rows.update(
                ((row, rank), (end, trace.end))
                for rank, end in enumerate(sorted(ends, reverse=True))
            )
    last = max((trace.end for _, trace in pairs), default=0)
    made = []
    for (row, _), (end, until) in rows.items():
        reserved, known, start, expected, count, nodes = row
        begin = known if start == NEVER else start
        if end == NEVER and until < last and not reserved and begin < until:
            end = until
        made.append(
            (
                "reservation" if reserved else "job",
                known,
                start,
                end,
                expected,
                count,
                nodes,
            )
        )
    made.sort(
        key=lambda row: (row[1], row[0] == "reservation", row[2], row[5], row[6])
    )  # as ingest has them
    return from_rows(made)


def _each(walltimes: Walltimes) -> Iterator[tuple[_Row, int]]:
    """Yield each row and its end."""
    names = (
        tuple(walltimes.names[node] for node in walltimes.nodes[low:high].tolist())
        for low, high in pairwise(walltimes.offsets.tolist())
    )
    columns = (
        walltimes.reserved,
        walltimes.known,
        walltimes.start,
        walltimes.expected_end,
        walltimes.count,
    )
    rows = zip(*(column.tolist() for column in columns), names, strict=True)
    return zip(rows, walltimes.end.tolist(), strict=True)


def anonymised_walltimes(walltimes: Walltimes, key: bytes) -> Walltimes:
    """Return walltimes with the node names that `anonymised` gives with the same key.

    Raises
    ------
    InputError
        As `anonymised`.

    Examples
    --------
    >>> from bft.replay.trace.walltimes import from_rows
    >>> jobs = from_rows([("job", 0, 10, 60, 100, 1, ("n00000",))])
    >>> anonymised_walltimes(jobs, b"sixteen bytes or more").names
    ('n01cb108a5288',)
    """
    return replace(walltimes, names=keyed_names(walltimes.names, key))


def _rows(walltimes: Walltimes, rows: NDArray[np.int64]) -> Walltimes:
    """Return selected rows, with the names of nodes that they need."""
    sizes = np.diff(walltimes.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    begins = np.repeat(walltimes.offsets[:-1][rows] - offsets[:-1], sizes)
    used, nodes = np.unique(
        walltimes.nodes[begins + np.arange(len(begins))], return_inverse=True
    )
    return Walltimes(
        tuple(walltimes.names[node] for node in used.tolist()),
        walltimes.reserved[rows],
        known=walltimes.known[rows],
        start=walltimes.start[rows],
        end=walltimes.end[rows],
        expected_end=walltimes.expected_end[rows],
        count=walltimes.count[rows],
        nodes=nodes.astype(np.int32),
        offsets=offsets,
    )
