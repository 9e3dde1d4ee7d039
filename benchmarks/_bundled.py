"""The two Parquet files that come with the package: `python benchmarks/_bundled.py` makes them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bft.datasets import bundled, generate_dnn_jobs, generate_node_trace
from bft.datasets.bundled import JOBS_FILE, TRACE_FILE

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


def write_bundled(folder: Path) -> None:
    """Generate the data set and write its two files into `folder`.

    With the same version of pyarrow the files are identical to the byte; otherwise their content is.
    """
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
        table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
        # Without pandas' own metadata: it holds versions of libraries, and readers do not need it.
        plain = table.replace_schema_metadata(schema.metadata)
        pq.write_table(plain, folder / name, compression="zstd")


if __name__ == "__main__":
    write_bundled(Path(bundled.__file__).parent / "data")
