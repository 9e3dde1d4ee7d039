"""The bundled data set, for first steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

    from bft.replay import NodeTrace


class Example(NamedTuple):
    """A node trace, and a job table as a frame: one row per job.

    Examples
    --------
    >>> import bft
    >>> trace, jobs = bft.load_example()
    >>> bft.Example(trace, jobs.head(3)).jobs["model"].tolist()
    ['AlexNet', 'VGG16', 'ResNet18']
    """

    trace: NodeTrace
    jobs: pd.DataFrame


def load_example() -> Example:
    """Load the bundled data set: a synthetic trace of 512 nodes over two days, and 60 training jobs.

    Examples
    --------
    >>> import bft
    >>> trace, jobs = bft.load_example()
    >>> trace
    <NodeTrace: 512 nodes, 1,474 events, 2021-02-10T00:00:00 to 2021-02-12T00:00:00>
    >>> jobs.loc[0, "name"]
    'J00000-AlexNet'
    """
    from bft.datasets import load_bundled
    from bft.replay.trace.trace_files import trace_from_frame

    table, jobs = load_bundled()
    return Example(
        trace_from_frame(
            table.frame, source="bundled: summit-like-512", metadata=table.metadata
        ),
        jobs,
    )
