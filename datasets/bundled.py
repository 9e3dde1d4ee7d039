"""The data set that comes with the package; `python benchmarks/_bundled.py` makes it again."""

from __future__ import annotations

from importlib import resources
from io import BytesIO
from typing import Final

import pandas as pd

from bft.datasets.node_traces import NodeTraceTable

TRACE_FILE: Final = "summit-like-512.parquet"
JOBS_FILE: Final = "jobs-60.parquet"


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
    import pyarrow.parquet as pq

    data = resources.files("bft.datasets.data")
    table = pq.read_table(BytesIO(data.joinpath(TRACE_FILE).read_bytes()))
    metadata = {
        key.decode(): value.decode() for key, value in table.schema.metadata.items()
    }
    frame = table.replace_schema_metadata(None).to_pandas()
    # Ns, Ps and Os are lists, not arrays, so rows go through Python objects; dtypes stay as generated.
    jobs = pq.read_table(BytesIO(data.joinpath(JOBS_FILE).read_bytes()))
    lists = [name for name in jobs.schema.names if name in ("Ns", "Ps", "Os")]
    jobs_frame = jobs.drop_columns(lists).to_pandas()
    for name in lists:
        jobs_frame[name] = pd.Series(jobs[name].to_pylist(), dtype=object)
    return NodeTraceTable(frame=_with_plain_nodes(frame), metadata=metadata), jobs_frame


def _with_plain_nodes(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the node column the dtype that pandas gives to strings, whatever pyarrow chose."""
    return frame.assign(node=pd.Series(frame["node"].tolist(), index=frame.index))
