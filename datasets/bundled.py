"""The data set that comes with the package; `python benchmarks/_bundled.py` makes it again."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bft.datasets.node_traces import NodeTraceTable

TRACE_FILE, JOBS_FILE = "summit-like-512.parquet", "jobs-60.parquet"


def load_bundled() -> tuple[NodeTraceTable, pd.DataFrame]:
    """Load the bundled data set: 512 nodes over two days, and 60 training jobs that keep them busy.

    Returns
    -------
    trace
        The node trace; `trace.metadata` describes how it was made.
    jobs
        The job table, in the form of `generate_dnn_jobs`.

    Examples
    --------
    >>> trace, jobs = load_bundled()
    >>> len(trace.nodes), len(jobs)
    (512, 60)
    """
    from pyarrow.parquet import read_table

    trace, jobs = (
        read_table(Path(__file__).with_name("data") / name)
        for name in (TRACE_FILE, JOBS_FILE)
    )
    metadata = {
        key.decode(): text.decode() for key, text in trace.schema.metadata.items()
    }
    # By Python's objects: lists stay lists, and columns have the types of those that are generated.
    return NodeTraceTable(pd.DataFrame(trace.to_pydict()), metadata), pd.DataFrame(
        jobs.to_pydict()
    )
