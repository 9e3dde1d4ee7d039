"""Where the states of nodes come from: a command that is asked again and again, or lines on standard input."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread

from bft.models import InputError
from bft.replay.logs.formats.nodes import read_snapshots
from bft.replay.logs.hosts import HostListError, expand
from bft.replay.logs.lines import Lines
from bft.replay.logs.records import Account, Log, Settings
from bft.replay.logs.states import MOST_PERIODS
from bft.replay.logs.times import NONE, Clock

# Lines that follow each other within this time are one look.
GATHERED_S = 0.05
_CHUNK = 2**16
_IDLE = {
    "1": True,
    "true": True,
    "idle": True,
    "0": False,
    "false": False,
    "busy": False,
}
# Where a node is met twice, as with several partitions, the later of these counts.
_GRAVITY = ("idle", "busy", "unavailable")


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of the nodes: since when (UTC ns), and whether each is idle, by name."""

    instant: int
    idle: dict[str, bool]


@dataclass
class Looks:
    """Looks at the nodes as they come from a thread; of several that wait the newest counts.

    Parameters
    ----------
    note
        Is told why a look is none.

    Attributes
    ----------
    missed
        How many looks were none: the command failed, took too long, or knew the state of no node.
    """

    note: Callable[[str], None]
    missed: int = 0
    _waiting: SimpleQueue[Look | None] = field(default_factory=SimpleQueue)

    def come(self, look: Look | None) -> None:
        """Take a look; None: there will be no more."""
        self._waiting.put(look)

    def miss(self, why: str) -> None:
        """Take notice of a look that is none."""
        self.missed += 1
        self.note(why)

    def newest(self, within_s: float | None) -> Look:
        """Wait for a look so many seconds, or for ever.

        Raises
        ------
        EOFError
            When there will be no more.
        queue.Empty
            When none came.
        """
        look = self._waiting.get(timeout=within_s)
        while look is not None and not self._waiting.empty():
            further = self._waiting.get()
            if further is None:
                self._waiting.put(None)
                break
            look = further
        if look is None:
            raise EOFError
        return look

    def start(self, source: Callable[[Looks], None]) -> None:
        """Begin to look."""
        Thread(target=source, args=(self,), daemon=True).start()


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands that print the states of all nodes, as `ingest` reads snapshots, and who holds them.

    Parameters
    ----------
    states
        The command of the states, split without a shell.
    every_s
        The period. A command that takes 2.5 of them is ended.
    holders
        Prints a line for each running job: its nodes, then other words (user, partition, name); with `own`.
    own
        One of these words of the jobs whose nodes count as idle; None: no busy node does.
    count_as
        What words for states count as, as for `ingest`.
    """

    states: str
    every_s: float
    holders: str | None = None
    own: str | None = None
    count_as: str = ""

    def __call__(self, looks: Looks) -> None:
        """Look once a period, for ever."""
        while True:
            began = time.monotonic()
            try:
                idle = self.look()
                looks.come(Look(time.time_ns(), idle))
            except InputError as error:
                looks.miss(str(error))
            time.sleep(max(0.0, began + self.every_s - time.monotonic()))

    def look(self) -> dict[str, bool]:
        """Return whether each node is idle now.

        Raises
        ------
        InputError
            When a command fails, or no node is known to be idle or busy, as while a controller restarts.
        """
        states = self._states()
        if not {"idle", "busy"}.intersection(states.values()):
            raise InputError(f"{self.states}: no node is known to be idle or busy")
        ours = self._ours()
        return {
            node: state == "idle" or (state == "busy" and node in ours)
            for node, state in states.items()
        }

    def _states(self) -> dict[str, str]:
        text = f"{int(time.time())}\n{self._printed(self.states)}"  # as in a file of snapshots
        blocks = iter([text.encode("utf-8", "surrogateescape")])
        settings = Settings(count_as=self.count_as)
        log = Log(self.states, Lines(blocks), settings, Clock("UTC"), Account())
        found: dict[str, str] = {}
        for row in read_snapshots(log):
            if isinstance(row, dict) and row["kind"] == "seen":
                for node in expand(row["hosts"]):
                    met = found.get(node, "idle"), row["state"]
                    found[node] = max(met, key=_GRAVITY.index)
        return found

    def _ours(self) -> set[str]:
        """Nodes on which jobs of ours run and no others."""
        ours: set[str] = set()
        others: set[str] = set()
        if self.holders is None:
            return ours
        for line in self._printed(self.holders).splitlines():
            nodes, *words = line.replace("|", " ").split() or [""]
            try:
                (ours if self.own in words else others).update(expand(nodes))
            except HostListError as error:
                raise InputError(f"{self.holders}: {error}") from error
        return ours - others

    def _printed(self, command: str) -> str:
        """What a command prints; it is no child of a terminal's Ctrl-C."""
        try:
            done = subprocess.run(  # noqa: S603 - what the user states, without a shell
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=MOST_PERIODS * self.every_s,
                start_new_session=True,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            why = f"exit code {error.returncode}, {error.stderr.strip()[:200]}"
            raise InputError(f"{command}: {why}") from error
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{command}: {error}") from error
        return done.stdout


def read_lines(looks: Looks) -> None:
    """Read changes of states from standard input, lines `time,node,idle`, until it ends.

    What comes at once with one time, or within `GATHERED_S`, is one look.
    """
    idle: dict[str, bool] = {}
    stamp, at, clock = "", NONE, Clock("UTC")
    instant, rest, is_new = 0, b"", False
    while True:
        wait = GATHERED_S if is_new else None
        if not select.select([0], [], [], wait)[0]:
            looks.come(Look(instant, dict(idle)))
            is_new = False
            continue
        chunk = os.read(0, _CHUNK)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace").strip()
            before = stamp
            stamp, _, change = text.partition(",")
            node, _, word = change.rpartition(",")
            if stamp != before:
                at = clock.time(stamp)
            if at == NONE or not node or word.lower() not in _IDLE:
                if text and text != "time,node,idle":
                    looks.miss(
                        f"standard input: expected time,node,idle, not {text[:80]!r}"
                    )
                continue
            if is_new and at != instant:
                looks.come(Look(instant, dict(idle)))
            idle[node], instant, is_new = _IDLE[word.lower()], at, True
    if is_new:
        looks.come(Look(instant, dict(idle)))
    looks.come(None)
