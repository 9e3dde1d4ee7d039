"""The state of a running replay, on disk: a killed replay continues where it was, with the same result.

JSON, not a pickle: reading it runs nothing, and Python's floats come back to the bit. A file is a sequence of parts of
two lines each: a header with format, run, and the SHA-256 of the part and of all before it; then what has changed in
the state, and the rows by which the history has grown, since the part before (the first one has the whole state). What
is on disk is not written again: a save adds a part, or several where the history has grown by much. When changes have
come to outweigh the rest, the file is replaced by one of a single save.

What the state is, is said by `Replay.state` in `replay/engine/loop.py`; when it is saved, by `replay/run.py`.

One run at a time writes into a folder, and the remains of a killed run are repaired.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from bft.models import InputError
from bft.replay.engine.history import Columns
from bft.replay.engine.loop import Replay
from bft.replay.engine.snapshot import difference, patched
from bft.replay.results.run_directory import (
    DRAFT,
    OLD,
    cannot_write,
    check_writable,
    hidden,
    is_run,
    retire,
)

logger = logging.getLogger(__name__)

FORMAT = "bft-replay checkpoint"
FORMAT_VERSION = 10
# Rows of a table in a part, and how the content of a part begins that others follow, without which it is torn.
ROWS = 2**17
MORE = b'{"more": true, '
# Bytes of changes that a file may always hold.
SPARE_BYTES = 1_000_000


def checkpoint_path(folder: Path) -> Path:
    """Return the path of the checkpoint of a run into `folder`: it lies beside the folder."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.checkpoint.json")


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

    Attributes
    ----------
    torn
        Whether the last part in the file was incomplete, so that the replay continues from the part before.
    """

    def __init__(
        self, path: Path, configuration: Mapping[str, Any], every_s: float
    ) -> None:
        self.path, self.every_s = path, every_s
        text = json.dumps(configuration, sort_keys=True, default=str)
        self._key = hashlib.sha256(text.encode()).hexdigest()
        self._saved = time.monotonic()
        self.torn = False
        # What is on file: bytes, those of changes, and parts; the last one's seal; rows by table, and the state.
        self._end = self._changes = self._parts = 0
        self._seal = ""
        self._rows: dict[str, int] = {}
        self._state: Any = None

    def resume(self, replay: Replay) -> bool:
        """Bring `replay` to the state in the file; False without a file.

        Raises
        ------
        InputError
            When the file is no checkpoint, a damaged one, or one of another run. The replay is then of no further use.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unreadable(error) from error
        with file:
            try:
                self._restore(replay, file)
            except OSError as error:
                raise self._unreadable(error) from error
        self._rows = {name: len(table) for name, table in replay.history.items()}
        return True

    def _unreadable(self, error: OSError) -> InputError:
        what = f"cannot be read as a checkpoint: {error.strerror}"
        return InputError(what, file=self.path)

    def _restore(self, replay: Replay, file: BinaryIO) -> None:
        """Bring `replay` to the state in a file, part by part once all were checked."""
        parts = self._read(file)
        try:
            for number, offset in enumerate(parts):
                file.seek(offset)
                part = json.loads(file.readline())
                for name, table in replay.history.items():
                    add = table.extend if number else table.restore
                    add(part["history"][name])
                if not number:
                    self._state = part["state"]
                elif part["changes"] is not None:
                    self._state = patched(self._state, part["changes"])
            replay.restore(copy.deepcopy(self._state))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            what = f"does not fit the version that reads it ({type(error).__name__}: {error})"
            raise InputError(
                what, file=self.path, hint="remove it to begin anew"
            ) from error

    def _read(self, file: BinaryIO) -> list[int]:
        """Where the parts of a checkpoint begin, when each is as it was written; torn last ones are left out."""
        size = os.fstat(file.fileno()).st_size
        parts: list[int] = []
        complete = self._end = self._parts = 0
        self._seal, self.torn = "", False
        whole = (0, "")
        while not parts or self._end < size:
            file.seek(self._end)
            head = file.readline()
            offset, body = file.tell(), file.readline()
            if not self._fits(head, body, at_end=file.tell() == size):
                self.torn = True
                break
            parts.append(offset)
            self._end = file.tell()
            if not body.startswith(MORE):
                complete, whole = len(parts), (self._end, self._seal)
        self.torn = self.torn or complete < len(parts)
        self._parts = complete
        self._end, self._seal = whole
        if not complete:
            raise self._damaged()
        self._changes = (
            self._end
        )  # nearly all of it: the next save makes the file anew if that is much
        return parts[:complete]

    def _damaged(self) -> InputError:
        hint = "remove it to begin anew, or choose another --out"
        what = "is damaged: its checksum is not that of its content"
        return InputError(what, file=self.path, hint=hint)

    def _fits(self, head: bytes, body: bytes, *, at_end: bool) -> bool:
        """Whether the next part is as it was written; False where it is the last one and was not written to its end.

        Raises
        ------
        InputError
            When it is not as it was written.
        """
        hint = "remove it to begin anew, or choose another --out"
        begun, ended = head.endswith(b"\n"), body.endswith(b"\n")
        try:
            header = json.loads(head)
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            if self._parts and not begun:
                return False
            what = "is no checkpoint of ours, or a damaged one"
            raise InputError(
                what,
                file=self.path,
                hint="look at it before you remove it, or choose another --out",
            )
        version, key, digest = (
            header.get(name) for name in ("version", "key", "sha256")
        )
        sealed = seal(key, self._seal, body)
        if version == FORMAT_VERSION and (digest != sealed or not ended):
            if self._parts and (not ended or at_end):
                return False
            raise self._damaged()
        if (version, key) != (FORMAT_VERSION, self._key):
            what = "is the checkpoint of a run with other input, options or versions"
            raise InputError(what, file=self.path, hint=hint)
        self._seal, self._parts = sealed, self._parts + 1
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
        anew = not self._parts or self._changes > SPARE_BYTES + self._end // 2
        rows, sealed = ({}, "") if anew else (self._rows, self._seal)
        state = json.loads(json.dumps(replay.state(history=False), default=_plain))
        changes = json.dumps(state if anew else difference(self._state, state))
        stated = f'"{"state" if anew else "changes"}": {changes}'
        written = parts = 0
        try:
            with self._replaced() if anew else self._appended() as file:
                for history, more in _in_parts(replay.history, rows):
                    begun = MORE if more else b"{"
                    body = begun + f'"history": {history}, {stated}}}\n'.encode()
                    sealed = seal(self._key, sealed, body)
                    header = {
                        "format": FORMAT,
                        "version": FORMAT_VERSION,
                        "key": self._key,
                        "sha256": sealed,
                    }
                    part = json.dumps(header).encode() + b"\n" + body
                    file.write(part)
                    written, parts = written + len(part), parts + 1
                    stated = '"changes": null'
        except OSError as error:
            raise InputError(
                f"the checkpoint cannot be written: {error.strerror}", file=self.path
            ) from error
        self._end = written if anew else self._end + written
        self._parts = parts if anew else self._parts + parts
        self._changes = 0 if anew else self._changes + len(changes)
        self._state, self._seal = state, sealed
        self._rows = {name: len(table) for name, table in replay.history.items()}
        self._saved = time.monotonic()
        logger.info("checkpoint written: %s, %d bytes", self.path, self._end)

    @contextmanager
    def _replaced(self) -> Iterator[BinaryIO]:
        """Replace the file by what the block writes."""
        draft = hidden(self.path, DRAFT, uuid4().hex[:8])
        try:
            with draft.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _appended(self) -> Iterator[BinaryIO]:
        """Put what the block writes behind the last whole part, in the place of a torn one."""
        with self.path.open("r+b") as file:
            file.truncate(self._end)
            file.seek(self._end)
            try:
                yield file
                file.flush()
            except OSError:
                file.truncate(self._end)
                raise
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Remove the file: the run has come to its end."""
        self.path.unlink(missing_ok=True)


def _in_parts(
    history: Mapping[str, Columns], rows: Mapping[str, int]
) -> Iterator[tuple[str, bool]]:
    """Yield the rows that tables have beyond `rows` as JSON, some at a time, and whether more follow."""
    places = {name: rows.get(name, 0) for name in history}
    more = True
    while more:
        ends = {name: place + ROWS for name, place in places.items()}
        part = {
            name: table.since(places[name], ends[name])
            for name, table in history.items()
        }
        more = any(len(table) > ends[name] for name, table in history.items())
        yield json.dumps(part), more
        places = {name: min(ends[name], len(table)) for name, table in history.items()}


def seal(key: Any, before: str, body: bytes) -> str:
    """SHA-256 of a part, including the other fields of its header and the seal of the part before."""
    return hashlib.sha256(
        f"{FORMAT} {FORMAT_VERSION} {key} {before}\n".encode() + body
    ).hexdigest()


def _plain(value: Any) -> Any:
    """NumPy scalars as Python's."""
    return value.item()


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
