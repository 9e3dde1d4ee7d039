"""Where the states of nodes come from: a command that is run again and again, or lines on standard input."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from bft.models import InputError
from bft.replay.logs.formats.nodes import read_snapshots
from bft.replay.logs.hosts import HostListError, expand
from bft.replay.logs.lines import Lines
from bft.replay.logs.records import Account, Log, Settings
from bft.replay.logs.states import MOST_PERIODS
from bft.replay.logs.times import NONE, Clock

# What comes within this time is one look, seconds.
GATHERED_S = 0.02
_IDLE = {"1": True, "true": True, "idle": True, "0": False, "false": False, "busy": False}  # fmt: skip
# Where a node is met twice, as with several partitions, the later of these counts.
_GRAVITY = ("idle", "busy", "unavailable")


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
        Instant (UTC ns) and nodes, each idle or not; None: there will be no more.
    missed
        How many looks were none: the command failed, took too long, or knew the state of no node.
    """

    note: Callable[[str], None]
    waiting: SimpleQueue[tuple[int, dict[str, bool]] | None] = field(
        default_factory=SimpleQueue
    )
    missed: int = 0

    def miss(self, why: str) -> None:
        """Take notice of a look that is none."""
        self.missed += 1
        self.note(f"{why}; this look is left out")

    def newest(self, within_s: float | None) -> tuple[int, dict[str, bool]]:
        """Wait for a look so many seconds, or for ever; `queue.Empty` when none came, EOFError after the last."""
        look = self.waiting.get(timeout=within_s)
        idle: dict[str, bool] = {}
        while look is not None:
            instant, states = look
            idle.update(states)
            try:
                look = self.waiting.get(timeout=GATHERED_S)
            except Empty:
                return instant, idle
        self.waiting.put(None)
        if idle:
            return instant, idle
        raise EOFError


def run_commands(
    states: str, every_s: float, holders: str | None, own: str | None, count_as: str
) -> Callable[[Looks], None]:
    """Return what looks once a period, for ever.

    Parameters
    ----------
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
    settings = Settings(count_as=count_as)

    def look() -> dict[str, bool]:
        found = _states(_printed(states, every_s), states, settings)
        if not {"idle", "busy"}.intersection(found.values()):
            # So does a controller that restarts.
            raise InputError(f"{states}: no node is known to be idle or busy")
        ours: set[str] = set()
        others: set[str] = set()
        for line in [] if holders is None else _printed(holders, every_s).splitlines():
            nodes, *words = line.replace("|", " ").split() or [""]
            (ours if own in words else others).update(expand(nodes))
        ours -= others
        return {
            node: state == "idle" or (state == "busy" and node in ours)
            for node, state in found.items()
        }

    def run(looks: Looks) -> None:
        known: dict[str, bool] = {}
        while True:
            began = time.monotonic()
            try:
                known = dict.fromkeys(known, False) | look()
                looks.waiting.put((time.time_ns(), known))
            except (InputError, HostListError) as error:
                looks.miss(str(error))
            time.sleep(max(0.0, began + every_s - time.monotonic()))

    return run


def _states(text: str, name: str, settings: Settings) -> dict[str, str]:
    """The state of each node in what a command has printed just now."""
    stamped = f"{int(time.time())}\n{text}"  # as in a file of snapshots
    lines = Lines(iter([stamped.encode("utf-8", "surrogateescape")]))
    found: dict[str, str] = {}
    for row in read_snapshots(Log(name, lines, settings, Clock("UTC"), Account())):
        if isinstance(row, dict) and row["kind"] == "seen":
            for node in expand(row["hosts"]):
                met = found.get(node, "idle"), row["state"]
                found[node] = max(met, key=_GRAVITY.index)
    return found


def _printed(command: str, every_s: float) -> str:
    """What a command prints, which a terminal's Ctrl-C does not reach."""
    try:
        return subprocess.run(  # noqa: S603 - what the user states, without a shell
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=MOST_PERIODS * every_s,
            start_new_session=True,
            check=True,
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or ""
        raise InputError(f"{error} {said[:200]}".strip()) from error


def read_lines(looks: Looks) -> None:
    """Read changes of states from standard input, lines `time,node,idle`, until it ends."""
    clock, before, instant = Clock("UTC"), "", NONE
    for line in sys.stdin:
        stamp, _, change = line.strip().partition(",")
        node, _, word = change.rpartition(",")
        if stamp != before:
            before, instant = stamp, clock.time(stamp)
        if instant != NONE and node and word.lower() in _IDLE:
            looks.waiting.put((instant, {node: _IDLE[word.lower()]}))
        elif line.strip() and stamp != "time":
            looks.miss(f"standard input: expected time,node,idle, not {line[:80]!r}")
    looks.waiting.put(None)
