"""The state of a running replay, on disk: a killed replay continues where it was, with the same result.

JSON, not a pickle: reading it runs nothing, and Python's floats come back to the bit. A file is a sequence of parts of
two lines each: a header with format, run, and the SHA-256 of the part and of all before it; then what has changed in
the state, and the rows by which the history has grown, since the part before (the first one has the whole state). What
is on disk is not written again: a save adds a part. When changes have come to outweigh the rest, the file is replaced
by one of a single part.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from bft.models import InputError
from bft.replay.engine.loop import Replay
from bft.replay.engine.snapshot import difference, patched
from bft.replay.results.run_directory import DRAFT, hidden

logger = logging.getLogger(__name__)

FORMAT = "bft-replay checkpoint"
FORMAT_VERSION = 8
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
        Everything that decides the result; a checkpoint of another configuration is refused.
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
            content = self.path.read_bytes()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise InputError(
                f"cannot be read as a checkpoint: {error.strerror}", file=self.path
            ) from error
        parts = self._read(content)
        try:
            history: dict[str, dict[str, list[Any]]] = parts[0]["history"]
            self._state = parts[0]["state"]
            for part in parts[1:]:
                for name, table in part["history"].items():
                    for column, rows in table.items():
                        history[name][column] += rows
                if part["changes"] is not None:
                    self._state = patched(self._state, part["changes"])
            replay.restore({**copy.deepcopy(self._state), "history": history})
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            what = f"does not fit the version that reads it ({type(error).__name__}: {error})"
            raise InputError(
                what, file=self.path, hint="remove it to begin anew"
            ) from error
        self._rows = {name: len(table) for name, table in replay.history.items()}
        return True

    def _read(self, content: bytes) -> list[Any]:
        """The parts in a checkpoint's bytes, when each is as it was written; a torn last one is left out."""
        parts: list[Any] = []
        self._end = self._parts = 0
        self._seal, self.torn = "", False
        while not parts or self._end < len(content):
            body = self._body(content)
            if body is None:
                self.torn = True
                break
            parts.append(json.loads(body))
        self._changes = (
            self._end
        )  # nearly all of it: the next save makes the file anew if that is much
        return parts

    def _body(self, content: bytes) -> bytes | None:
        """The next part's content; None where it is the last one and was not written to its end.

        Raises
        ------
        InputError
            When it is not as it was written.
        """
        hint = "remove it to begin anew, or choose another --out"
        begin = content.find(b"\n", self._end) + 1
        end = content.find(b"\n", begin) + 1
        try:
            header = json.loads(content[self._end : begin or len(content)])
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            if self._parts and not begin:
                return None
            what = "is no checkpoint of ours, or a damaged one"
            raise InputError(
                what,
                file=self.path,
                hint="look at it before you remove it, or choose another --out",
            )
        version, key, digest = (
            header.get(name) for name in ("version", "key", "sha256")
        )
        body = content[begin : end or len(content)]
        sealed = seal(key, self._seal, body)
        if version == FORMAT_VERSION and (digest != sealed or not end):
            if self._parts and (not end or end == len(content)):
                return None
            raise InputError(
                "is damaged: its checksum is not that of its content",
                file=self.path,
                hint=hint,
            )
        if (version, key) != (FORMAT_VERSION, self._key):
            what = "is the checkpoint of a run with other input, options or versions"
            raise InputError(what, file=self.path, hint=hint)
        self._end, self._seal, self._parts = end, sealed, self._parts + 1
        return body

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
        rows, before = ({}, "") if anew else (self._rows, self._seal)
        history = {
            name: table.since(rows.get(name, 0))
            for name, table in replay.history.items()
        }
        state = json.loads(json.dumps(replay.state(history=False), default=_plain))
        changes = json.dumps(state if anew else difference(self._state, state))
        body = f'{{"history": {json.dumps(history)}, "{"state" if anew else "changes"}": {changes}}}\n'.encode()
        sealed = seal(self._key, before, body)
        header = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "key": self._key,
            "sha256": sealed,
        }
        part = json.dumps(header).encode() + b"\n" + body
        try:
            if anew:
                self._replace(part)
            else:
                self._append(part)
        except OSError as error:
            raise InputError(
                f"the checkpoint cannot be written: {error.strerror}", file=self.path
            ) from error
        self._end = len(part) if anew else self._end + len(part)
        self._parts = 1 if anew else self._parts + 1
        self._changes = 0 if anew else self._changes + len(changes)
        self._state, self._seal = state, sealed
        self._rows = {name: len(table) for name, table in replay.history.items()}
        self._saved = time.monotonic()
        logger.info("checkpoint written: %s, %d bytes", self.path, self._end)

    def _replace(self, part: bytes) -> None:
        """Replace the file by one with this part alone."""
        draft = hidden(self.path, DRAFT, uuid4().hex[:8])
        try:
            with draft.open("xb") as file:
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)

    def _append(self, part: bytes) -> None:
        """Write a part behind the last whole one, in the place of a torn one."""
        with self.path.open("r+b") as file:
            file.truncate(self._end)
            file.seek(self._end)
            try:
                file.write(part)
                file.flush()
            except OSError:
                file.truncate(self._end)
                raise
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Remove the file: the run has come to its end."""
        self.path.unlink(missing_ok=True)


def seal(key: Any, before: str, body: bytes) -> str:
    """SHA-256 of a part, including the other fields of its header and the seal of the part before."""
    return hashlib.sha256(
        f"{FORMAT} {FORMAT_VERSION} {key} {before}\n".encode() + body
    ).hexdigest()


def _plain(value: Any) -> Any:
    """NumPy scalars as Python's."""
    return value.item()
