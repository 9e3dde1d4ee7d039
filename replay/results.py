"""The run directory: what a replay leaves behind (DESIGN §8)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bft.models import InputError, JobTable
from bft.replay.ledger import Outcome
from bft.replay.metrics import mean_units
from bft.replay.trace import SECOND_NS

if TYPE_CHECKING:
    import pandas as pd

# summary.json carries this, so that a folder can be known as a run of ours before anything in it is replaced.
FORMAT = "bft-replay run"
FORMAT_VERSION = 1
SUMMARY, TIMING = "summary.json", "timing.json"
STEPS, JOBS, ALLOCATIONS = "steps.parquet", "jobs.parquet", "allocations.parquet"


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run directory of ours."""
    try:
        content = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def check_writable(folder: Path, *, force: bool) -> None:
    """Refuse early what `run_directory` would refuse at the end of a long replay.

    Raises
    ------
    InputError
        When `folder` exists and is no run of ours, is one but `force` is not given, or cannot be made.
    """
    if folder.exists() or folder.is_symlink():
        if not folder.is_dir():
            raise InputError("exists and is not a folder; choose another with --out", file=folder)
        if is_run(folder):
            if not force:
                raise InputError("holds an earlier run; --force replaces it, --out names another folder", file=folder)
        elif any(folder.iterdir()):
            raise InputError(
                "is not empty and not a run of ours, so it is left alone; choose another --out", file=folder
            )
    parent = _existing(folder.parent)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError("no permission to write here; choose another --out", file=parent)


@contextmanager
def run_directory(folder: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder to fill; when the block ends well it becomes `folder`, at once.

    An earlier run of ours is removed only after the new one stands; nothing else is ever removed. When the block
    raises, the hidden folder goes and `folder` is as it was.
    """
    check_writable(folder, force=force)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise InputError(f"cannot write here: {error.strerror}; choose another --out", file=folder.parent) from error
    draft.chmod(0o777 & ~_umask())
    try:
        yield draft
        _replace(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replace(draft: Path, folder: Path) -> None:
    if not folder.exists():
        draft.rename(folder)
        return
    if not is_run(folder):  # empty, or it has changed since we looked: rmdir refuses all but an empty folder
        folder.rmdir()
        draft.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / "run")
    draft.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def digest(path: str | Path) -> str:
    """SHA-256 of a file, so that a result names its input exactly."""
    hasher = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(2**20):
            hasher.update(block)
    return hasher.hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with sorted keys; NaN and infinity become null, which JSON lacks."""
    path.write_text(json.dumps(plain(content), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n")


def plain(value: Any) -> Any:
    """The same value with NaN and infinities as None."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def write_parquet(frame: pd.DataFrame, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a frame without its index; the same frame gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(metadata or {})
    pq.write_table(table, path, compression="zstd")


def jobs_frame(outcome: Outcome) -> pd.DataFrame:
    """One row a job: times (UTC), JCT and queueing (s), work and losses (samples), units."""
    import pandas as pd

    rows = []
    for record in outcome.records:
        job = record.job
        rows.append(
            {
                "name": job.name,
                "submit": job.tsub_ns,
                "start": record.start_ns,
                "finish": record.finish_ns,
                "jct_s": None if record.finish_ns is None else (record.finish_ns - job.tsub_ns) / SECOND_NS,
                "queueing_s": None if record.start_ns is None else (record.start_ns - job.tsub_ns) / SECOND_NS,
                "work": record.work,
                "total_work": job.pmax,
                "lost_to_preemption": record.lost_to_preemption,
                "lost_to_rescale": record.lost_to_rescale,
                "rescales": record.rescales,
                "preemptions": record.preemptions,
                "restarts": max(0, record.starts - 1),
                "unit_seconds": record.unit_seconds,
                "mean_units": mean_units(record, outcome.end_ns),
            }
        )
    frame = pd.DataFrame(rows)
    for column in ("submit", "start", "finish"):
        frame[column] = pd.to_datetime(frame[column].astype("Int64"), unit="ns", utc=True)
    for column in ("jct_s", "queueing_s"):
        frame[column] = frame[column].astype("float64")
    return frame


def finish_frame(jobs: JobTable, finish_ns: Sequence[int | None], work: Sequence[float]) -> pd.DataFrame:
    """One row a job where only finish and work are known: the published replayer's view."""
    import pandas as pd

    submit_ns = [job.tsub_ns for job in jobs]
    frame = pd.DataFrame(
        {
            "name": [job.name for job in jobs],
            "submit": submit_ns,
            "finish": pd.array(list(finish_ns), dtype="Int64"),
            "work": list(work),
            "total_work": [job.pmax for job in jobs],
        }
    )
    frame.insert(3, "jct_s", (frame["finish"] - frame["submit"]).astype("Float64") / SECOND_NS)
    for column in ("submit", "finish"):
        frame[column] = pd.to_datetime(frame[column], unit="ns", utc=True)
    return frame


def allocations_frame(outcome: Outcome) -> pd.DataFrame:
    """Who held which units when: job, first_unit, last_unit (inclusive), start, end (UTC)."""
    import pandas as pd

    held = outcome.allocations
    names = [record.job.name for record in outcome.records]
    return pd.DataFrame(
        {
            "job": pd.Categorical.from_codes(held["job"].to_numpy(), categories=pd.Index(names)),
            "first_unit": held["first_unit"],
            "last_unit": held["last_unit"],
            "start": pd.to_datetime(held["start_ns"], unit="ns", utc=True),
            "end": pd.to_datetime(held["end_ns"], unit="ns", utc=True),
        }
    )


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write steps, jobs and allocations into `folder`."""
    write_parquet(outcome.steps, folder / STEPS)
    write_parquet(jobs_frame(outcome), folder / JOBS)
    nodes = {"nodes": json.dumps(list(outcome.trace.nodes)), "units_per_node": str(outcome.trace.units_per_node)}
    write_parquet(allocations_frame(outcome), folder / ALLOCATIONS, nodes)
