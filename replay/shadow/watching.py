"""A watch: what is heard and the time that passes drive the engine, in the order of an offline replay of the record.

Three rules make its decisions those of such a replay. Promise: what is handled up to an instant promises that nothing
is heard any more of instants up to it. Look anew: the engine looks for its next instant again when a further event is
there. The end of the trace lies after the last instant that was handled.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.running import NEVER
from bft.replay.inputs.files import Files
from bft.replay.inputs.load import load
from bft.replay.inputs.notes import Watcher
from bft.replay.inputs.shaping import LAST_NS, max_idle, needed
from bft.replay.logs.states import MOST_PERIODS
from bft.replay.options.options import Options
from bft.replay.results.outcome_tables import write_outcome, write_returns
from bft.replay.results.run_directory import STEPS
from bft.replay.run import execute, online
from bft.replay.shadow.states import Look, Looks
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, always_idle, events_of
from bft.replay.trace.trace_files import write_trace

# Files of a watch, beside its record.
TRACE, RUN, COMPARISON = "trace.parquet", "run", "shadow.json"
# How long a wish to stop may go unheard, seconds.
STOPS_WITHIN_S = 0.5


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


def begin(
    options: Options,
    record: Record,
    looks: Looks,
    units_per_node: int,
) -> tuple[dict[str, Any], Shadow, Look]:
    """Return the header of a record, the online replay at its end, and the look that named the nodes of a new record.

    One decision that nobody sees is taken first: what is compiled and started for it would delay the first one.

    Raises
    ------
    InputError
        When a job needs more than the machine, or the record is of other options or jobs.
    """
    lines, first = record.lines(), (0, dict[str, bool](), 0)
    written = machine = next(lines, None)
    if machine is None:
        while not (first[1] or looks.over()):
            first = looks.newest(STOPS_WITHIN_S)
        first[1].update(looks.newest(STOPS_WITHIN_S)[1])  # all that names nodes
        machine = {
            "nodes": list(first[1]),
            "units_per_node": units_per_node,
            "start": time.time_ns(),
        }
    whole = always_idle(
        len(machine["nodes"]),
        machine["start"],
        LAST_NS,
        units_per_node=machine["units_per_node"],
    )
    whole = replace(whole, nodes=tuple(machine["nodes"]), source="watched")
    inputs = load(options, Watcher(), Files({"node_trace": whole}))
    pool, rigid = inputs.pools[0], options.traits.rigid
    for job in inputs.jobs:
        if needed(job, rigid=rigid) > max_idle(pool.trace):
            raise InputError("it needs more units than the machine has", job=job.name)
    header = {
        "format": "bft-replay shadow",
        "format_version": 1,
        "touches": "nothing",
        "options": options.flat(),
        "inputs": inputs.digests,
        "clairvoyant": options.traits.clairvoyant,
        **{name: machine[name] for name in ("nodes", "units_per_node", "start")},
    }
    header = json.loads(json.dumps(header))
    if written is None:
        record.write(header)
    elif written != header:
        raise InputError(
            "is the record of a watch with other options or inputs",
            file=record.path,
            hint="choose another --out",
        )
    unseen = online(options, inputs, record.path.parent)
    while not unseen.ledger.decisions and unseen.peek() is not None:
        unseen.step()
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    trace = replace(pool.trace, **events_of(nothing, nothing), end=NEVER)
    inputs = replace(inputs, pools=(replace(pool, trace=trace),))
    replay = online(options, inputs, record.path.parent)
    shadow = Shadow(replay, record.write)
    shadow.again(lines)
    return header, shadow, first


class Watch:
    """The loop of a watch.

    Parameters
    ----------
    shadow, looks
        What decides, and what is seen.
    settle_s
        Seconds after which a node that looks idle counts as idle.
    every_s
        The period of the looks: after 2.5 of them without one no node counts as idle. None: silence means no change.
    until
        When the watch ends (UTC ns).
    now
        The clock, UTC ns.
    """

    def __init__(
        self,
        shadow: Shadow,
        looks: Looks,
        settle_s: float,
        every_s: float | None,
        until: int,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.shadow, self.looks, self.until, self.now = shadow, looks, until, now
        self._position = {
            node: position for position, node in enumerate(shadow.replay.trace.nodes)
        }
        # Since when nodes look idle, by position: those of a record that goes on have settled.
        self._since = dict.fromkeys(shadow.idle, 0)
        self._settle_ns = round(settle_s * SECOND_NS)
        self._patience_ns = round(MOST_PERIODS * (every_s or 0) * SECOND_NS)
        # When nothing is known of the nodes any more.
        self._lost = shadow.heard_at + self._patience_ns if shadow.idle else NEVER

    def run(self, stopping: Callable[[], bool]) -> Outcome:
        """Watch until the end, the last look, or until somebody wants to stop."""
        while self.now() < self.until and not (stopping() or self.looks.over()):
            due = min(self.shadow.due(), self._own(), self.until)
            wait_s = max(0.0, (due - self.now()) / SECOND_NS)
            look = self.looks.newest(min(wait_s, STOPS_WITHIN_S))
            if look[1]:
                self.see(look)
            else:
                self._pass(min(self.now(), self.until - 1))
        end = min(self.now(), self.until)
        self._pass(end - 1)
        return self.shadow.stop(end)

    def see(self, look: Look) -> None:
        """Take a look."""
        latest = min(look[0], self.now(), self.until - 1)
        instant = max(latest, self.shadow.replay.trace.start)
        if look[2] <= self._lost:
            self._lost = NEVER  # looks came while it decided
        self._pass(instant - 1)
        for node, idle in look[1].items():
            position = self._position.get(node)
            if idle and position is not None:
                self._since.setdefault(position, instant)
            elif position is not None:
                self._since.pop(position, None)
        self._lost = instant + self._patience_ns if self._patience_ns else NEVER
        self._hear(instant)

    def _own(self) -> int:
        # When a node settles, or nothing is known of the nodes any more.
        idle = self.shadow.idle
        waits = [since for node, since in self._since.items() if node not in idle]
        return min(
            self._lost, min(waits, default=NEVER - self._settle_ns) + self._settle_ns
        )

    def _pass(self, instant: int) -> None:
        while (due := self._own()) <= instant:
            if due == self._lost:
                self._since, self._lost = {}, NEVER
            self._hear(max(due, self.shadow.promised + 1))
        self.shadow.passed(instant)

    def _hear(self, instant: int) -> None:
        latest = instant - self._settle_ns
        settled = {node for node, since in self._since.items() if since <= latest}
        self.shadow.hear(instant, settled)


def finish(
    options: Options, record: Record, outcome: Outcome, end: int, watcher: Watcher
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replay what was recorded as any run, and compare its files with what was decided live.

    Returns
    -------
    summary, comparison
        That of the run; and `equal`, and `until`: from this decision on (UTC) they are not, after one at a time limit.
    """
    folder, trace = record.path.parent, record.trace(end)
    write_trace(trace, folder / TRACE)
    run = folder / RUN
    summary = execute(options, run, watcher=watcher)
    with TemporaryDirectory(dir=folder, prefix=".live-") as name:
        live = Path(name)
        write_outcome(live, replace(outcome, trace=trace))
        if options.rules.return_time_s is not None:
            write_returns(live, outcome)
        pairs = [(path, run / path.name) for path in live.iterdir()]
        same = all(mine.read_bytes() == theirs.read_bytes() for mine, theirs in pairs)
        mine, theirs = (pd.read_parquet(each / STEPS) for each in (live, run))
    proven = int((~mine["status"].isin(("feasible", "fallback"))).cummin().sum())
    if same or proven == len(mine):
        return summary, {"equal": same, "until": None}
    until = str(mine["time"].iloc[proven])
    same = mine.iloc[:proven].equals(theirs.iloc[:proven])
    return summary, {"equal": same, "until": until}
