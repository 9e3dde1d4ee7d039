"""The state of a running replay, on disk: a killed replay continues where it was, with the same result.

A checkpoint is a ZIP archive of JSON (`Replay.state` in `replay/engine/loop.py`) and Parquet (the tables of the past):
reading it runs nothing, and floats come back to the bit. `replay/run.py` says when it is saved.

One run at a time writes into a folder, and removes what a killed run left there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from bft.models import InputError
from bft.replay.engine.loop import Replay
from bft.replay.engine.policy_api import PolicyError
from bft.replay.results.run_directory import (
    DRAFT,
    OLD,
    cannot_write,
    check_writable,
    hidden,
)

logger = logging.getLogger(__name__)

# What an archive holds besides the parts of tables.
STATE = "state.json"


def checkpoint_path(folder: Path) -> Path:
    """Return the path of the checkpoint of a run into `folder`: it lies beside the folder."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.checkpoint.zip")


class Checkpoint:
    """The checkpoint file of one run.

    Parameters
    ----------
    path
        The file.
    configuration
        Everything that decides the result: options, SHA-256 of each input, notes and versions (`run._summary`). A
        checkpoint of another configuration is refused.
    every_s
        Least wall time between two saves, seconds.
    """

    def __init__(
        self, path: Path, configuration: Mapping[str, Any], every_s: float
    ) -> None:
        self.path, self.every_s = path, every_s
        text = json.dumps(configuration, sort_keys=True, default=str)
        self._key = hashlib.sha256(text.encode()).hexdigest()
        self._saved = time.monotonic()

    def resume(self, replay: Replay) -> bool:
        """Bring `replay` to the state in the file; False without a file.

        Raises
        ------
        InputError
            When the file is no checkpoint, a damaged one, or one of another run. The replay is then of no further use.
        """
        if not self.path.exists():
            return False
        try:
            with ZipFile(self.path) as archive:
                content = json.loads(archive.read(STATE))
                if content["run"] != self._key:
                    what = "is the checkpoint of a run with other input, options or versions"
                    hint = "remove it to begin anew, or choose another $out"
                    raise InputError(what, file=self.path, hint=hint)
                names = archive.namelist()
                for name, table in replay.tables.items():
                    parts = (part for part in names if part.startswith(f"{name}/"))
                    table.restore(map(archive.read, parts))
                replay.restore(content["state"])
        except (InputError, PolicyError):
            raise
        except Exception as error:
            what = f"is no checkpoint of ours, or a damaged one ({type(error).__name__}: {error})"
            hint = "look at it before you remove it, or choose another $out"
            raise InputError(what, file=self.path, hint=hint) from error
        return True

    def due(self) -> bool:
        """Whether the last save, or the attempt, is long enough ago."""
        return time.monotonic() - self._saved >= self.every_s

    def save(self, replay: Replay) -> None:
        """Save the state: whatever happens meanwhile, the file has the new or the previous state.

        Raises
        ------
        InputError
            When it cannot be written; the file is then as it was.
        """
        self._saved = time.monotonic()
        content = {"run": self._key, "state": replay.state()}
        # Nobody else writes here, see `claimed`.
        draft = _draft(self.path)
        try:
            with draft.open("wb") as file, ZipFile(file, "w") as archive:
                text = json.dumps(content, default=lambda number: number.item())
                archive.writestr(STATE, text)
                for name, table in replay.tables.items():
                    for number, part in enumerate(table.saved()):
                        archive.writestr(f"{name}/{number}.parquet", part)
                archive.close()
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except OSError as error:
            raise InputError(
                f"the checkpoint cannot be written: {error.strerror}", file=self.path
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        logger.info("checkpoint written: %s", self.path)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft")


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other runs from writing into `folder` while the block runs, and remove the drafts of killed runs.

    The claim is a lock that ends with the process. Where the file system has no locks, two runs are kept apart only
    when the second one comes to its end, by `results.run_directory`.

    Raises
    ------
    InputError
        When another process has claimed `folder`, or when no run can be written there.
    """
    check_writable(folder, force=True)
    target = folder.resolve()
    missing = [path for path in target.parents if not path.exists()]
    lock = target.with_name(f".{target.name}.lock")
    with ExitStack() as stack:
        try:
            stack.callback(_remove_empty, missing)
            target.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, file)
            exclusive = _locked(file, lock)
        except BlockingIOError as error:
            raise InputError(
                "another replay is writing here; wait for its end or choose another $out",
                file=folder,
            ) from error
        except OSError as error:
            raise cannot_write(target.parent, error) from error
        # Before it is unlocked: a process that has opened it meanwhile sees that it is gone.
        stack.callback(lock.unlink, missing_ok=True)
        if exclusive:
            _draft(checkpoint_path(folder)).unlink(missing_ok=True)
            drafts = hidden(Path(escape(target.name)), DRAFT, "?" * 8).name
            for draft in target.parent.glob(drafts):
                # One beside an earlier run is complete: it was killed while the one gave way to the other.
                if not hidden(target, OLD, draft.name[-8:]).exists():
                    shutil.rmtree(draft)
        yield


def _locked(file: int, path: Path) -> bool:
    """Lock an open file; False on some network file systems. Raises BlockingIOError when another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    if not path.exists() or not os.path.samestat(os.fstat(file), path.stat()):
        raise BlockingIOError  # its holder has removed it, and is about to end
    return True


def _remove_empty(folders: Sequence[Path]) -> None:
    with suppress(OSError):
        for folder in folders:  # deepest first
            folder.rmdir()
