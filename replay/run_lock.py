"""One run at a time writes into a folder; the remains of a killed run are repaired."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bft.models import InputError
from bft.replay.checkpoint import checkpoint_path
from bft.replay.results.run_directory import (
    DRAFT,
    OLD,
    cannot_write,
    check_writable,
    hidden,
    is_run,
    retire,
)


@contextmanager
def claimed(folder: Path) -> Iterator[list[str]]:
    """Keep other runs from writing into `folder` while the block runs, and repair the remains of a killed run.

    Yields what was put in place, for the user. The claim is a lock that ends with the process. Where the file system
    has no locks, two runs are kept apart only when the second one comes to its end, by `results.run_directory`.

    Raises
    ------
    InputError
        When another process has claimed `folder`, or when no run can be written there.
    """
    check_writable(folder, force=True)
    target = folder.resolve()
    missing = [path for path in target.parents if not path.exists()]
    with ExitStack() as stack:
        try:
            stack.callback(_remove_empty, missing)
            target.parent.mkdir(parents=True, exist_ok=True)
            exclusive = stack.enter_context(
                _locked(target.with_name(f".{target.name}.lock"))
            )
        except BlockingIOError as error:
            raise InputError(
                "another replay is writing here; wait for its end or choose another --out",
                file=folder,
            ) from error
        except OSError as error:
            raise cannot_write(target.parent, error) from error
        yield _mend(target) if exclusive else []


def mended(folder: Path) -> list[str]:
    """Put the results of a killed run in place before `folder` is read; return what was done."""
    target = folder.resolve()
    if not _marks(target, OLD):
        return []
    with claimed(folder) as notes:
        return notes


def _mend(folder: Path) -> list[str]:
    """Finish or undo the last steps of a killed run, and remove its remains; the caller must have claimed `folder`."""
    notes = []
    for mark in _marks(folder, OLD):
        old, draft = hidden(folder, OLD, mark), hidden(folder, DRAFT, mark)
        if (
            not folder.exists()
        ):  # killed between the two renames, the draft being complete
            (draft if draft.exists() else old).rename(folder)
            notes.append(
                f"{folder.name} is back: a replay with --force was killed while it was putting it in place"
            )
        if is_run(folder) and not draft.exists() and old.exists():
            retire(old, folder)
    for mark in _marks(folder, DRAFT):
        if not hidden(folder, OLD, mark).exists():
            shutil.rmtree(hidden(folder, DRAFT, mark))
    saved = checkpoint_path(folder)
    for mark in _marks(saved, DRAFT):
        hidden(saved, DRAFT, mark).unlink()
    return notes


def _marks(path: Path, kind: str) -> list[str]:
    """Marks of the hidden files of a kind beside `path`."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.{kind}-(\w{{8}})")
    names = os.listdir(path.parent) if path.parent.is_dir() else []  # noqa: PTH208 - names are all we need
    return sorted(match[1] for name in names if (match := ours.fullmatch(name)))


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a lock on the file `path` while the block runs; it is made, and removed at the end.

    Yields False where the file system has no locks: then nothing is held. Raises BlockingIOError when another process
    holds it.
    """
    file, exclusive = _open_locked(path)
    try:
        yield exclusive
    finally:
        path.unlink(
            missing_ok=True
        )  # before unlocking: a process that opened it meanwhile sees that it is gone
        os.close(file)


def _open_locked(path: Path) -> tuple[int, bool]:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), path.stat()):
                return file, True
        except (
            FileNotFoundError
        ):  # its holder ended between our opening and our locking
            pass
        except BlockingIOError:
            os.close(file)
            raise
        except OSError:  # some network file systems
            return file, False
        os.close(file)


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:  # deepest first
        with suppress(OSError):
            folder.rmdir()
