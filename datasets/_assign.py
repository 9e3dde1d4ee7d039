"""Which node is in which hole, and the resulting changes of each node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bft.datasets import _summit as summit
from bft.datasets._holes import Holes, Ints


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of state, sorted by poll, then node.

    Parameters
    ----------
    poll
        Shape (changes,): the poll of each; poll 0 lists the nodes idle at the start.
    node
        Shape (changes,): index of the node.
    idle
        Shape (changes,): True where the node turns idle, False where it is taken back.
    """

    poll: Ints
    node: Ints
    idle: NDArray[np.bool_]


def assign_nodes(holes: Holes, *, nodes: int, rng: np.random.Generator) -> Changes:
    """Give each hole its nodes, in linear time and memory.

    Busy nodes wait in a line in which those taken back together stay together. A hole cuts a block out
    of it, at its end (the nodes taken last: a short job ended) or anywhere, and the line's end fills the
    cut. A hole for which too few nodes are busy gets those there are.

    Parameters
    ----------
    holes
        What opens when, for how long.
    nodes
        Nodes of the machine; about 1 % of them, drawn at random, never turn idle.
    rng
        Source of all randomness.
    """
    never = rng.permutation(nodes)[: round(summit.NEVER_IDLE_SHARE * nodes)]
    busy = np.setdiff1d(np.arange(nodes), never)
    waiting = len(busy)

    # A hole across the end of the circle is one that is open at the start and one that is open at the end.
    wraps = np.flatnonzero(holes.join + holes.length > holes.polls)
    size = np.r_[holes.nodes, holes.nodes[wraps]]
    opens = np.r_[holes.join, np.zeros(len(wraps), dtype=np.int64)]
    closes = np.r_[
        holes.join + holes.length, (holes.join + holes.length)[wraps] - holes.polls
    ]
    n = len(size)
    # In one poll holes open before others close, so that no node leaves and joins at once.
    order = np.lexsort((np.repeat([0, 1], n), np.r_[opens, closes]))
    recent, where = rng.random(n) < summit.RECENT_SHARE, rng.random(n)

    members: list[Ints] = [busy[:0]] * n
    events: list[Ints] = []
    for event in order.tolist():
        hole = event % n
        if event < n:
            take = min(int(size[hole]), waiting)
            spare = waiting - take
            index = spare if recent[hole] else int(where[hole] * (spare + 1))
            members[hole] = busy[index : index + take].copy()
            tail = busy[max(index + take, spare) : waiting].copy()
            busy[index : index + len(tail)] = tail
            waiting = spare
        else:
            busy[waiting : waiting + len(members[hole])] = members[hole]
            waiting += len(members[hole])
        events.append(members[hole])

    lengths = np.array([len(event) for event in events], dtype=np.int64)
    poll = np.repeat(np.r_[opens, closes][order], lengths)
    idle = np.repeat(order < n, lengths)
    node = np.concatenate(events)
    seen = poll < holes.polls
    poll, idle, node = poll[seen], idle[seen], node[seen]
    by_time = np.lexsort((node, poll))
    return Changes(poll=poll[by_time], node=node[by_time], idle=idle[by_time])
