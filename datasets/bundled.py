"""The data set that comes with the package: `python -m bft.datasets.bundled` makes it again."""

from __future__ import annotations

import argparse
import logging
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bft.datasets.dnn_jobs import generate_dnn_jobs
from bft.datasets.node_traces import NodeTraceTable, generate_node_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

TRACE_FILE: Final = "summit-like-512.parquet"
JOBS_FILE: Final = "jobs-60.parquet"

# Of seeds 0-11 the nearest to Summit, by idle count and fragment durations.
TRACE: Final[dict[str, Any]] = {
    "nodes": 512,
    "days": 2.0,
    "seed": 0,
    "start": "2021-02-10",
}

# 2.2e8 images a job, one job every 20 minutes for 20 hours: the jobs keep the idle nodes busy to the end, and a few
# are still running then. If all finished, U would be 1 whatever the policy.
JOBS: Final[dict[str, Any]] = {
    "jobs": 60,
    "seed": 0,
    "first_submit": "2021-02-10T00:20:00",
    "interval_s": 1200.0,
    "pmax": 2.2e8,
}

_log = logging.getLogger(__name__)


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
    import pandas as pd
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


def write_bundled(folder: Path) -> None:
    """Generate the data set and write its two files into `folder`.

    With the same version of pyarrow the files are identical to the byte; otherwise their content is.
    """
    import pyarrow as pa

    trace, jobs = generate_node_trace(**TRACE), generate_dnn_jobs(**JOBS)
    utc = pa.timestamp("ns", tz="UTC")
    trace_schema = pa.schema(
        [("time", utc), ("node", pa.string()), ("idle", pa.bool_())],
        metadata=trace.metadata,
    )
    job_schema = pa.schema(
        [
            ("name", pa.string()),
            ("model", pa.string()),
            ("Jmin", pa.int64()),
            ("Jmax", pa.int64()),
            ("Pmax", pa.float64()),
            ("Tsub", utc),
            ("Tcup", pa.float64()),
            ("Tcdw", pa.float64()),
            ("Ns", pa.list_(pa.int64())),
            ("Ps", pa.list_(pa.float64())),
            ("Os", pa.list_(pa.float64())),
        ]
    )
    for name, frame, schema in (
        (TRACE_FILE, trace.frame, trace_schema),
        (JOBS_FILE, jobs, job_schema),
    ):
        _write(
            pa.Table.from_pandas(frame, schema=schema, preserve_index=False),
            schema,
            folder / name,
        )


def _write(table: Any, schema: Any, path: Path) -> None:
    """Write beside the file first, so that an interrupted run leaves the old one whole."""
    import pyarrow.parquet as pq

    unfinished = path.with_name(path.name + ".part")
    # Without pandas' own metadata: it holds versions of libraries, and readers do not need it.
    pq.write_table(
        table.replace_schema_metadata(schema.metadata), unfinished, compression="zstd"
    )
    unfinished.replace(path)
    _log.info("wrote %s, %d bytes", path, path.stat().st_size)


def _with_plain_nodes(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the node column the dtype that pandas gives to strings, whatever pyarrow chose."""
    import pandas as pd

    return frame.assign(node=pd.Series(frame["node"].tolist(), index=frame.index))


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the bundled files again."""
    parser = argparse.ArgumentParser(
        prog="python -m bft.datasets.bundled", description=main.__doc__
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "data",
        help="folder (default: where they are)",
    )
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    write_bundled(parser.parse_args(arguments).out)


if __name__ == "__main__":
    main()
