"""The run directory: its files, how it comes into place, and how it is read back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bft.models import InputError, read_table
from bft.models.files import read_json, unwritable
from bft.replay.engine.ledger import BOOKS
from bft.replay.results.figures import FIGURES

if TYPE_CHECKING:
    import pandas as pd


# Written to summary.json, so that a folder can be recognised as a run directory before anything in it is replaced.
FORMAT = "bft-replay run"
FORMAT_VERSION = 1
SUMMARY, TIMING = "summary.json", "timing.json"
STEPS, JOBS, ALLOCATIONS = "steps.parquet", "jobs.parquet", "allocations.parquet"
STEP_LOG = "step-logs.csv"  # as the published replayer names its only result
SEARCH = "search.parquet"  # what a workload has found
RETURNS = "returns.parquet"  # which nodes host jobs took
UNUSED = "unused.parquet"  # idle units that no job held
LOG = "replay.log"  # the messages of a replay with -print 0
OURS = frozenset(
    {SUMMARY, TIMING, STEPS, JOBS, ALLOCATIONS, STEP_LOG, SEARCH, RETURNS, UNUSED, LOG}
)
DRAFT, OLD = "draft", "old"
_SPANS = ("first_unit", "last_unit", "start", "end")
# The columns that are read back, by file.
COLUMNS = {
    STEPS: (
        "time", "idle", "used", "progress", *(f"{book}_cost" for book in BOOKS), "objective", "bound",
    ),
    JOBS: (
        "name", "submit", "start", "finish", "queueing_s", "jct_s", "without_units_s", "preemptions", "rescales",
        "mean_units", "units_asked", "unit_seconds", "work", "total_work", *(f"lost_to_{book}" for book in BOOKS),
    ),
    ALLOCATIONS: ("job", *_SPANS),
    UNUSED: _SPANS,
}  # fmt: skip
HINT = "copy the run again, or replay it again"


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run directory of this program."""
    return _recorded(folder) is not None


def is_interrupted(
    folder: Path, configuration: Mapping[str, Any] | None = None
) -> bool:
    """Whether `folder` holds part of an interrupted run; if given, with these entries in its summary."""
    summary = _recorded(folder) or {}
    return summary.get("metrics", {}).get("interrupted") is True and all(
        summary.get(name) == plain(entry)
        for name, entry in (configuration or {}).items()
    )


def _recorded(folder: Path) -> dict[str, Any] | None:
    """The summary of a run directory."""
    try:
        content = json.loads((folder / SUMMARY).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return (
        content
        if isinstance(content, dict) and content.get("format") == FORMAT
        else None
    )


def check_writable(folder: Path, *, force: bool) -> None:
    """Raise early what `run_directory` would raise at the end of a long replay.

    Raises
    ------
    InputError
        When `folder` exists and is not a run directory, is one but `force` is not given, or cannot be created.
    """
    if folder.exists() or folder.is_symlink():
        if not folder.is_dir():
            raise InputError(
                "exists and is not a folder; choose another with $out", file=folder
            )
        if is_run(folder):
            if not force:
                raise InputError(
                    "holds an earlier run; $force replaces it, $out names another folder",
                    file=folder,
                )
        elif any(folder.iterdir()):
            raise InputError(
                "is not empty and not a run directory, so it is left alone; choose another $out",
                file=folder,
            )
    parent = existing(folder.parent)
    if not parent.is_dir():
        raise InputError(
            "is not a folder, so none can be created in it; choose another $out",
            file=parent,
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            "no permission to write here; choose another $out", file=parent
        )


@contextmanager
def run_directory(folder: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder to fill. When the block succeeds, it becomes `folder` in one step.

    The files of an earlier run are removed only when the new ones are in place. Other files in `folder` stay. When the
    block raises, the hidden folder is removed and `folder` stays as it was. If something appeared at `folder` in the
    meantime, it stays, and the new run is kept under another name.

    Raises
    ------
    InputError
        As `check_writable`; for an OSError of the block; and when the new run could not be moved to its place: the
        message then says where it is kept.
    """
    check_writable(folder, force=force)
    folder = (
        folder.resolve()
    )  # follow a link, so that its target is replaced, not the link
    mark = uuid4().hex[:8]
    draft = hidden(folder, DRAFT, mark)
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(folder.parent, error) from error
    try:
        yield draft
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError):  # only code that writes belongs into the block
            raise unwritable(folder, error) from error
        raise
    _place(draft, folder, hidden(folder, OLD, mark), force=force)


def hidden(path: Path, kind: str, mark: str) -> Path:
    """Return the name of `path` while it is written (`DRAFT`), or after a draft has replaced it (`OLD`).

    An old run exists only while its draft is complete: if both exist, the draft may be moved into place.
    """
    return path.with_name(f".{path.name}.{kind}-{mark}")


def _place(draft: Path, folder: Path, old: Path, *, force: bool) -> None:
    try:
        if force and is_run(folder):
            folder.rename(old)
        draft.rename(
            folder
        )  # fails unless the target is an empty folder: no run is replaced without asking
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        kept = folder.with_name(draft.name[1:])
        draft.rename(kept)
        reason = "something else is there by now" if folder.exists() else error.strerror
        raise InputError(
            f"cannot be put in place: {reason}",
            file=folder,
            hint=f"it is kept as {kept}",
        ) from error
    if old.exists():
        retire(old, folder)


def retire(old: Path, folder: Path) -> None:
    """Remove the files of an earlier run that `folder` has replaced; move other files to `folder`."""
    for entry in old.iterdir():
        if entry.name not in OURS and not (folder / entry.name).exists():
            entry.rename(folder / entry.name)
    if all(entry.name in OURS for entry in old.iterdir()):
        shutil.rmtree(old, ignore_errors=True)


def cannot_write(folder: Path, error: OSError) -> InputError:
    """The error for a folder in which nothing can be created."""
    return InputError(
        f"cannot write here: {error.strerror}; choose another $out", file=folder
    )


def existing(path: Path) -> Path:
    """Return the nearest of a path and the folders above it that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with sorted keys; NaN and infinity become null, because JSON lacks them."""
    path.write_text(
        json.dumps(
            plain(content),
            indent=2,
            sort_keys=True,
            allow_nan=False,
            ensure_ascii=False,
        )
        + "\n",
        "utf-8",
    )


def plain(value: Any) -> Any:
    """Return a value with NaN and infinities replaced by None."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and (
        value != value or value in (float("inf"), float("-inf"))
    ):
        return None
    return value


# What a summary holds in any case, with a dot before a part of a part; and what that of a replay of ours holds too.
SHAPE: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("metrics", "options", "inputs", "versions"), dict),
    **dict.fromkeys(("inputs.trace", "inputs.jobs"), dict),
    **dict.fromkeys(("inputs.trace.source", "inputs.jobs.source"), str),
    "inputs.digests_sha256": dict,
    "options.policy": str,
    "options.seed": int,
    "notes": list,
    "degraded": bool,
    "metrics.outcome": (int, float),
    "metrics.jobs": int,
    "metrics.jobs_finished": int,
}
OF_REPLAYS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("metrics.window_start", "metrics.window_end"), str),
    "metrics.duration_s": (int, float),
    "metrics.interrupted": bool,
}


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a run directory, checked here once for all who use its values.

    Raises
    ------
    InputError
        When `folder` is not a run directory, or its summary lacks a value or holds one of another kind.
    """
    path = folder / SUMMARY
    summary = read_json(path) if path.exists() else None
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        beside = folder.with_name(f"{folder.name}-itrOut")
        hint = f"there is {beside}" if is_run(beside) else None
        raise InputError("is not a run directory", file=folder, hint=hint)
    by_path = dict(_by_path(summary))
    shape = dict(SHAPE)
    if by_path.get("options.compat") != "reference":
        shape |= OF_REPLAYS
    for name, kind in shape.items():
        if name not in by_path:
            raise InputError(f"damaged: it lacks {name}", file=path, hint=HINT)
        if not isinstance(by_path[name], kind):
            what = f"damaged: it holds another kind of value: {name}"
            raise InputError(what, file=path, hint=HINT)
    for figure in FIGURES:
        value = by_path.get(f"metrics.{figure}")
        if not isinstance(value, int | float | None):
            what = f"damaged: it holds another kind of value: metrics.{figure}"
            raise InputError(what, file=path, hint=HINT)
    return summary


def _by_path(content: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a document by path; parts of parts stand behind dots."""
    for name, value in content.items():
        yield before + name, value
        if isinstance(value, dict):
            yield from _by_path(value, f"{before}{name}.")


def read_part(folder: Path, name: str) -> pd.DataFrame:
    """The steps, jobs or allocations of a run.

    Raises
    ------
    InputError
        When the file is missing or damaged, or lacks a column of `COLUMNS`.
    """
    path = folder / name
    frame = read_table(path)
    missing = [name for name in COLUMNS[name] if name not in frame.columns]
    if missing:
        what = f"damaged: it has no column {missing[0]}"
        raise InputError(what, file=path, hint=HINT)
    return frame
