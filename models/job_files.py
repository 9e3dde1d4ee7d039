"""Job tables to files, in the native form (docs/formats.md)."""

from __future__ import annotations

import json
from pathlib import Path

from bft.models.errors import InputError
from bft.models.job_tables import jobs_to_frame
from bft.models.jobs import JobTable
from bft.models.tables import write_parquet

LISTS = ("Ns", "Ps", "Os", "sizes")


def write_jobs(jobs: JobTable, path: str | Path) -> None:
    """Write a job table as Parquet, CSV (lists as JSON) or JSON lines, by suffix.

    >>> from tempfile import TemporaryDirectory
    >>> from bft.models import Curve, Job, read_jobs
    >>> curve = Curve([0, 4], [0, 40])
    >>> with TemporaryDirectory() as folder:
    ...     write_jobs(JobTable((Job("a", 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve),)), Path(folder, "jobs.csv"))
    ...     [job.name for job in read_jobs(Path(folder, "jobs.csv"))]
    ['a']
    """
    path = Path(path)
    frame = jobs_to_frame(jobs)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        write_parquet(frame, path)
        return
    for column in ("Tsub", "deadline"):
        if column in frame:
            frame[column] = [
                None if stamp != stamp else stamp.isoformat() for stamp in frame[column]
            ]
    if suffix == ".csv":
        for column in LISTS:
            if column in frame:
                frame[column] = [
                    json.dumps(values) if isinstance(values, list) else None
                    for values in frame[column]
                ]
        frame.to_csv(path, index=False)
    elif suffix == ".jsonl":
        # Not DataFrame.to_json: it rounds to 10 decimals.
        records = (
            frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
        )
        path.write_text(
            "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        )
    else:
        raise InputError(
            "a job table is written as .parquet, .csv or .jsonl", file=path
        )
