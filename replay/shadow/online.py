"""An online replay: what is heard and the time that passes drive the engine, in the order of an offline replay.

Three rules make its decisions those of an offline replay of the record. Promise: what is handled up to an instant
promises that nothing is heard any more of instants up to it. Look anew: the engine looks for its next instant again
when a further event is there. The end of the trace lies after the last instant that was handled.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bft.models import InputError
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.running import NEVER
from bft.replay.trace.node_trace import NodeTrace, events_of


class Record:
    """A log on disk, which no other process has open; the engine sees no line before it is there.

    Its first line is the header, what is watched and how. After it come `[instant, left, joined]`, what was heard
    (positions of nodes that are taken and that turn idle from then on), and `[instant]`, a promise.

    Raises
    ------
    InputError
        When it cannot be written, as on a full disk, or another watcher has it open.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "record.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.file = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
            )
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"cannot write here, or another watcher does: {error.strerror}; choose another --out",
                file=folder,
            ) from error

    def lines(self) -> Iterator[Any]:
        """Return what is written so far; a torn last line, of a watcher that was killed, is dropped."""
        text = self.path.read_bytes()
        end = text.rfind(b"\n") + 1
        os.truncate(self.path, end)
        return map(json.loads, text[:end].splitlines())

    def write(self, line: Any) -> None:
        """Write a line so that it outlives a loss of power."""
        text = json.dumps(line).encode() + b"\n"
        try:
            while text:
                text = text[os.write(self.file, text) :]
            os.fsync(self.file)
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}; nothing was decided on what it lacks",
                file=self.path,
            ) from error

    def trace(self, end: int) -> NodeTrace:
        """Return the node trace of all that was heard, until `end` (UTC ns)."""
        header, *lines = self.lines()
        heard = [line for line in lines if len(line) > 1]
        left, joined = (
            (
                np.array([node for line in heard for node in line[which]], np.int32),
                np.repeat(
                    np.array([line[0] for line in heard], np.int64),
                    [len(line[which]) for line in heard],
                ),
            )
            for which in (1, 2)
        )
        return NodeTrace(
            tuple(header["nodes"]),
            **events_of(joined, left),
            start=header["start"],
            end=end,
            source="watched",
            units_per_node=header["units_per_node"],
        )


class Shadow:
    """A replay beside a machine.

    Parameters
    ----------
    replay
        The engine, on a trace that has no events and ends `NEVER`.
    write
        Writes a line of the record.

    Attributes
    ----------
    tell
        Is told what was decided, or what changed, as JSON values: docs/shadow.md has the keys.
    idle
        The nodes that count as idle, by their positions.
    promised, heard_at
        Nothing is heard any more of instants up to this one; and the last instant of which something was (UTC ns).
    late
        How many states came later than a promise that covers them, and count from 1 ns after it.
    """

    def __init__(
        self,
        replay: Replay,
        write: Callable[[Sequence[Any]], None],
    ) -> None:
        self.replay, self._write = replay, write
        self.tell: Callable[[dict[str, Any]], None] = lambda line: None
        self.idle: set[int] = set()
        self.promised = self.heard_at = replay.trace.start - 1
        self.late = 0
        self._held: dict[str, list[int]] = {}

    def due(self) -> int:
        """The next instant at which something happens by itself (UTC ns), `NEVER` for none."""
        return self.replay.peek() or NEVER

    def passed(self, instant: int) -> None:
        """Time has come to an instant, inclusive."""
        while (due := self.due()) <= instant:
            self._write([due])
            self._step(due)

    def hear(self, instant: int, idle: Set[int]) -> None:
        """Take the nodes that are idle from an instant on; what comes late counts from when it came."""
        if instant <= self.promised:
            self.late += 1
            instant = self.promised + 1
        self.passed(instant - 1)
        left, joined = sorted(self.idle - idle), sorted(idle - self.idle)
        self._write([instant, left, joined])
        self._change(instant, left, joined)

    def again(self, lines: Iterable[Sequence[Any]]) -> None:
        """Come to where the lines of a record end."""
        for instant, *changes in lines:
            if changes:
                self._change(instant, *changes)
            else:
                self._step(instant)

    def stop(self, instant: int) -> Outcome:
        """End the trace at an instant, or right after what was handled; its outcome lacks the trace's events."""
        instant = max(instant, self.promised + 1)
        self.passed(instant - 1)
        self.replay.trace = replace(self.replay.trace, end=instant)
        return self.replay.run()

    def _change(self, instant: int, left: list[int], joined: list[int]) -> None:
        self.idle = self.idle.difference(left).union(joined)
        self.promised = self.heard_at = instant
        if (left or joined) and self.replay.peek() is not None:
            self.replay.hear(instant, left, joined)
        if self.due() == instant:
            self._step(instant)

    def _step(self, instant: int) -> None:
        self.promised = instant
        before, decisions = self._held, self.replay.ledger.decisions
        self.replay.step()
        self._held = self.replay.holders()
        decided = self.replay.ledger.decisions > decisions
        if decided or before != self._held:
            ended = [job for job in before if job not in self._held]
            self.tell(self.status() | {"decided": decided, "ended": ended})

    def status(self) -> dict[str, Any]:
        """Return what holds now, as JSON values; of several units on a node its name stands as often."""
        nodes, per = self.replay.trace.nodes, self.replay.trace.units_per_node
        return {
            "time_ns": self.promised,
            "idle": len(self.idle) * per,
            "hold": {
                job: [nodes[unit // per] for unit in units]
                for job, units in self._held.items()
                if units
            },
            "decided": False,
            "ended": [],
        }
