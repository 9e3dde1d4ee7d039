"""The record of a watch: a log on disk, written before the engine sees a line of it.

Its first line is the header, what is watched and how. After it come `[instant, left, joined]`, what was heard (indices
of nodes that are taken and that turn idle from then on), and `[instant]`, a promise: everything up to there is handled,
so that what is heard later counts from later on.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bft.models import InputError
from bft.replay.trace.node_trace import NodeTrace, events_of

RECORD = "record.jsonl"
FORMAT, FORMAT_VERSION = "bft-replay shadow", 1


class Record:
    """The record in a folder, which no other process has open.

    Raises
    ------
    InputError
        When it cannot be opened, or another watcher has it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORD
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            taken = isinstance(error, BlockingIOError)
            why = "another watcher does" if taken else error.strerror
            what = f"cannot write here: {why}; choose another --out"
            raise InputError(what, file=folder) from error

    def lines(self) -> Iterator[Any]:
        """Yield what is written so far; a torn last line, of a watcher that was killed, is dropped."""
        whole = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    os.truncate(self.path, whole)
                    return
                whole += len(line)
                yield json.loads(line)

    def write(self, line: Any) -> None:
        """Write a line so that it outlives a loss of power.

        Raises
        ------
        InputError
            When that fails, as on a full disk: nothing may be decided on it.
        """
        text = json.dumps(line).encode() + b"\n"
        try:
            while text:
                text = text[os.write(self._file, text) :]
            os.fsync(self._file)
        except OSError as error:
            what = f"the record cannot be written: {error.strerror}; nothing was decided on what it lacks"
            raise InputError(what, file=self.path) from error

    def close(self) -> None:
        """Let another watcher have it."""
        os.close(self._file)

    def trace(self, end: int) -> NodeTrace:
        """Return the node trace of all that was heard, until `end` (UTC ns)."""
        lines = self.lines()
        header = next(lines)
        slots: list[list[int]] = [[], []]
        times: list[list[int]] = [[], []]
        for instant, *changes in lines:
            for kind, nodes in enumerate(changes):
                slots[kind] += nodes
                times[kind] += [instant] * len(nodes)
        left, joined = (
            (np.array(nodes, dtype=np.int32), np.array(instants, dtype=np.int64))
            for nodes, instants in zip(slots, times, strict=True)
        )
        return NodeTrace(
            tuple(header["nodes"]),
            **events_of(joined, left),
            start=header["start"],
            end=end,
            source="watched",
            units_per_node=header["units_per_node"],
        )
