"""Where the states of nodes come from: a command that is run again and again, or lines on standard input."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import TypeAlias

from bft.models import InputError
from bft.replay.logs.formats.nodes import read_snapshots
from bft.replay.logs.hosts import expand
from bft.replay.logs.lines import Lines
from bft.replay.logs.records import Account, Log, Settings
from bft.replay.logs.states import MOST_PERIODS
from bft.replay.logs.times import NONE, Clock

# What comes within this time is one look, seconds.
GATHERED_S = 0.02
_IDLE = {"1": True, "true": True, "idle": True, "0": False, "false": False, "busy": False}  # fmt: skip
# Where a node is met twice, as with several partitions, the later of these counts.
_GRAVITY = ("idle", "busy", "unavailable")
# What is known of nodes from an instant on (UTC ns): whether each is idle; and the instant of the oldest look in it.
Look: TypeAlias = tuple[int, dict[str, bool], int]


@dataclass
class Looks:
    """Looks at the nodes, put by a thread; those that wait are one: the newest state of each node counts.

    Parameters
    ----------
    note
        Is told why a look is none.

    Attributes
    ----------
    waiting
        Those that wait.
    missed
        How many looks were none: the command failed, took too long, or knew the state of no node.
    ended
        Whether none will be put any more.
    """

    note: Callable[[str], None]
    waiting: SimpleQueue[tuple[int, dict[str, bool]]] = field(
        default_factory=SimpleQueue
    )
    missed: int = 0
    ended: bool = False

    def miss(self, why: str) -> None:
        """Take notice of a look that is none."""
        self.missed += 1
        self.note(f"{why}; this look is left out")

    def over(self) -> bool:
        """Whether none will come any more."""
        return self.ended and self.waiting.empty()

    def newest(self, within_s: float) -> Look:
        """Wait for a look so many seconds; it names no node when none came."""
        instant, idle, oldest = 0, dict[str, bool](), 0
        with suppress(Empty):
            while True:
                instant, states = self.waiting.get(timeout=within_s)
                oldest = oldest or instant
                idle.update(states)
                within_s = GATHERED_S
        return instant, idle, oldest


def run_commands(
    looks: Looks,
    states: str,
    every_s: float,
    holders: str | None,
    own: str | None,
    count_as: str,
) -> None:
    """Look once a period, for ever.

    Parameters
    ----------
    looks
        Where looks go.
    states
        A command that prints the states of all nodes, as `ingest` reads snapshots.
    every_s
        The period. A command that takes 2.5 of them is ended.
    holders, own
        A command that prints a line for each running job, its nodes before other words such as user, partition and
        name; and the word of those jobs whose nodes count as idle.
    count_as
        What words for states count as, as for `ingest`.
    """
    known: dict[str, bool] = {}
    while True:
        began = time.monotonic()
        try:
            found = _states(_printed(states, every_s), states, count_as)
            if not {"idle", "busy"}.intersection(found.values()):
                # So does a controller that restarts.
                raise InputError(f"{states}: no node is known to be idle or busy")
            ours = _ours(_printed(holders, every_s), own) if holders else set()
            known = dict.fromkeys(known, False) | {
                node: state == "idle" or (state == "busy" and node in ours)
                for node, state in found.items()
            }
            looks.waiting.put((time.time_ns(), known))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            looks.miss(f"{error} {getattr(error, 'stderr', '') or ''}".rstrip())
        time.sleep(max(0.0, began + every_s - time.monotonic()))


def _ours(text: str, own: str | None) -> set[str]:
    # Nodes on which jobs with this word run, and no others.
    ours: set[str] = set()
    others: set[str] = set()
    for line in filter(str.strip, text.splitlines()):
        nodes, *words = line.replace("|", " ").split()
        (ours if own in words else others).update(expand(nodes))
    return ours - others


def _states(text: str, name: str, count_as: str) -> dict[str, str]:
    stamped = f"{int(time.time())}\n{text}"  # as in a file of snapshots
    lines = Lines(iter([stamped.encode("utf-8", "surrogateescape")]))
    log = Log(name, lines, Settings(count_as=count_as), Clock("UTC"), Account())
    found: dict[str, str] = {}
    for row in read_snapshots(log):
        if isinstance(row, dict) and row["kind"] == "seen":
            for node in expand(row["hosts"]):
                met = found.get(node, "idle"), row["state"]
                found[node] = max(met, key=_GRAVITY.index)
    return found


def _printed(command: str, every_s: float) -> str:
    return subprocess.run(  # noqa: S603 - what the user states, without a shell
        shlex.split(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=MOST_PERIODS * every_s,
        start_new_session=True,  # a terminal's Ctrl-C does not reach it
        check=True,
    ).stdout


def read_lines(looks: Looks) -> None:
    """Read changes of states from standard input, lines `time,node,idle`, until it ends."""
    time_of, rest = lru_cache(Clock("UTC").time), b""
    # As they are there: lines one at a time, of 10,000 nodes, would wake the decisions so often.
    while block := os.read(0, 1 << 20):
        whole, _, rest = (rest + block).rpartition(b"\n")
        found: dict[int, dict[str, bool]] = {}
        for line in whole.decode("utf-8", "replace").split("\n"):
            stamp, _, change = line.strip().partition(",")
            node, _, word = change.rpartition(",")
            instant, idle = time_of(stamp), _IDLE.get(word.lower())
            if instant != NONE and node and idle is not None:
                found.setdefault(instant, {})[node] = idle
            elif line.strip() and stamp != "time":
                looks.miss(
                    f"standard input: expected time,node,idle, not {line[:80]!r}"
                )
        for look in found.items():
            looks.waiting.put(look)
    looks.ended = True
