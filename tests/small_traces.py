"""Small node traces for tests: which node is idle in which second, as a table of truth values and back."""

import numpy as np
from hypothesis import strategies as st

from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, from_fragments

KEY = b"a key of more than sixteen bytes"


def of_seconds(
    idle, begin_s: int = 0, names: tuple[str, ...] = (), units_per_node: int = 1
) -> NodeTrace:
    """The trace of which node is idle during which second, bool of shape (nodes, seconds)."""
    edges = np.diff(np.pad(idle, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    node, begins = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    bounds = [(begin_s + at) * SECOND_NS for at in (begins, ends, 0, idle.shape[1])]
    names = names or tuple(f"n{k}" for k in range(len(idle)))
    return from_fragments(
        names, node.astype(np.int32), *bounds, units_per_node=units_per_node
    )


def seconds_of(trace: NodeTrace):
    """The inverse of `of_seconds`; a node that is idle and joins, or is not and leaves, is an error."""
    shape = len(trace.nodes), (trace.end - trace.start) // SECOND_NS
    idle = np.zeros(shape, dtype=bool)
    now = np.zeros(shape[0], dtype=bool)
    for event, time in enumerate(trace.times.tolist()):
        left, joined = trace.leaves(event), trace.joins(event)
        assert now[left].all()
        now[left] = False
        assert not now[joined].any()
        now[joined] = True
        idle[:, (time - trace.start) // SECOND_NS :] = now[:, np.newaxis]
    return idle


def tables(nodes: int = 3, seconds: int = 20):
    count = nodes * seconds
    bits = st.lists(st.booleans(), min_size=count, max_size=count)
    return bits.map(lambda each: np.array(each).reshape(nodes, seconds))
