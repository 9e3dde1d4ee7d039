"""The state of a replay under way, on disk: a killed replay goes on where it was, with the same result (DESIGN §8).

JSON, not a pickle: reading it runs nothing, and Python's floats come back to the bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bft.models import InputError
from bft.replay.engine import Replay

FORMAT = "bft-replay checkpoint"
FORMAT_VERSION = 2


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
            When the file is no checkpoint, or one of another run.
        """
        try:
            content = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be read as a checkpoint: {error}", file=self.path, hint="remove it") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError("is no checkpoint of ours; choose another --out", file=self.path)
        if (content["version"], content["key"]) != (FORMAT_VERSION, self._key):
            raise InputError(
                "is the checkpoint of a run with other input, options or versions",
                file=self.path,
                hint="remove it to begin anew, or choose another --out",
            )
        replay.restore(content["state"])
        return True

    def save_if_due(self, replay: Replay) -> None:
        """Save the state if the last save is long enough ago."""
        if time.monotonic() - self._saved >= self.every_s:
            self.save(replay)

    def save(self, replay: Replay) -> None:
        """Save the state: the file is the old one or the new one, never half of either."""
        content = {"format": FORMAT, "version": FORMAT_VERSION, "key": self._key, "state": replay.state()}
        draft = self.path.with_name(f".{self.path.name}.part")
        try:
            with draft.open("w", encoding="utf-8") as file:
                json.dump(content, file, default=_plain)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except OSError as error:
            raise InputError(f"the checkpoint cannot be written: {error.strerror}", file=self.path) from error
        finally:
            draft.unlink(missing_ok=True)
        self._saved = time.monotonic()

    def remove(self) -> None:
        """Remove the file: the run has come to its end."""
        self.path.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """NumPy scalars as Python's."""
    return value.item()
