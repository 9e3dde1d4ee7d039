"""The state of a replay under way, on disk: a killed replay goes on where it was, with the same result.

JSON, not a pickle: reading it runs nothing, and Python's floats come back to the bit. Two lines: a header with format,
run and the SHA-256 of everything, and the state.
"""

from __future__ import annotations

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
from bft.replay.results.run_directory import DRAFT, hidden

logger = logging.getLogger(__name__)

FORMAT = "bft-replay checkpoint"
FORMAT_VERSION = 3


def checkpoint_path(folder: Path) -> Path:
    """Where the checkpoint of a run into `folder` lies: beside it."""
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
    """

    def __init__(self, path: Path, configuration: Mapping[str, Any], every_s: float) -> None:
        self.path, self.every_s = path, every_s
        text = json.dumps(configuration, sort_keys=True, default=str)
        self._key = hashlib.sha256(text.encode()).hexdigest()
        self._saved = time.monotonic()

    def resume(self, replay: Replay) -> bool:
        """Bring `replay` to the state on file; False when there is none.

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
            raise InputError(f"cannot be read as a checkpoint: {error.strerror}", file=self.path) from error
        state = self._state(content)
        try:
            replay.restore(state)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            what = f"does not fit the version that reads it ({type(error).__name__}: {error})"
            raise InputError(what, file=self.path, hint="remove it to begin anew") from error
        return True

    def _state(self, content: bytes) -> Any:
        """The state in a checkpoint's bytes, when every one of them is as it was written."""
        hint = "remove it to begin anew, or choose another --out"
        line, _, body = content.partition(b"\n")
        try:
            header = json.loads(line)
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            what = "is no checkpoint of ours, or a damaged one"
            raise InputError(what, file=self.path, hint="look at it before you remove it, or choose another --out")
        version, key, digest = (header.get(name) for name in ("version", "key", "sha256"))
        if version == FORMAT_VERSION and digest != seal(key, body):
            raise InputError("is damaged: its checksum is not that of its content", file=self.path, hint=hint)
        if (version, key) != (FORMAT_VERSION, self._key):
            what = "is the checkpoint of a run with other input, options or versions"
            raise InputError(what, file=self.path, hint=hint)
        return json.loads(body)

    def due(self) -> bool:
        """Whether the last save, or the attempt, is long enough ago."""
        return time.monotonic() - self._saved >= self.every_s

    def save(self, replay: Replay) -> None:
        """Save the state: the file is the old one or the new one, never half of either.

        Raises
        ------
        InputError
            When it cannot be written; the file is then as it was.
        """
        body = json.dumps(replay.state(), default=_plain).encode()
        header = {"format": FORMAT, "version": FORMAT_VERSION, "key": self._key, "sha256": seal(self._key, body)}
        draft = hidden(self.path, DRAFT, uuid4().hex[:8])
        try:
            with draft.open("xb") as file:
                file.write(json.dumps(header).encode() + b"\n")
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except OSError as error:
            raise InputError(f"the checkpoint cannot be written: {error.strerror}", file=self.path) from error
        finally:
            draft.unlink(missing_ok=True)
        self._saved = time.monotonic()
        logger.info("checkpoint written: %s, %d bytes", self.path, len(body))

    def remove(self) -> None:
        """Remove the file: the run has come to its end."""
        self.path.unlink(missing_ok=True)


def seal(key: Any, body: bytes) -> str:
    """SHA-256 over all that a checkpoint says, its header's other fields included."""
    return hashlib.sha256(f"{FORMAT} {FORMAT_VERSION} {key}\n".encode() + body).hexdigest()


def _plain(value: Any) -> Any:
    """NumPy scalars as Python's."""
    return value.item()
