"""A watch: the machine as the first look names it, the loop while time passes, and the comparison at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.running import NEVER
from bft.replay.inputs.load import Inputs, load
from bft.replay.inputs.notes import Notes, Watcher
from bft.replay.inputs.shaping import LAST_NS, MAX_NAMED, max_idle, needed
from bft.replay.logs.ingest import node_list
from bft.replay.logs.states import MOST_PERIODS
from bft.replay.options.options import FIELDS, Options
from bft.replay.results.outcome_tables import write_outcome, write_returns
from bft.replay.results.run_directory import STEPS
from bft.replay.run import online
from bft.replay.shadow.online import Shadow
from bft.replay.shadow.record import FORMAT, FORMAT_VERSION, Record
from bft.replay.shadow.states import Look, Looks
from bft.replay.trace.node_trace import (
    SECOND_NS,
    NodeTrace,
    fragment_events,
    from_fragments,
)

# How long a wish to stop may go unheard, seconds.
STOPS_WITHIN_S = 0.5


def header_of(
    options: Options, nodes: list[str], units_per_node: int, start: int
) -> dict[str, Any]:
    """Return the first line of a record, and of what is told."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "touches": "nothing",
        "options": options.flat(),
        "clairvoyant": options.traits.clairvoyant,
        "start": start,
        "units_per_node": units_per_node,
        "nodes": nodes,
    }


def loaded(options: Options, header: dict[str, Any], notes: Watcher) -> Inputs:
    """Return the inputs of a replay on the header's machine, all of whose nodes are idle for ever.

    Raises
    ------
    InputError
        When a job needs more units than the machine has.
    """
    count, start = len(header["nodes"]), header["start"]
    whole = from_fragments(
        header["nodes"],
        np.arange(count, dtype=np.int32),
        np.full(count, start),
        np.full(count, LAST_NS),
        start,
        LAST_NS,
        source="watched",
        units_per_node=header["units_per_node"],
    )
    inputs = load(options, Notes(notes), {"node_trace": whole})
    largest, rigid = max_idle(inputs.pools[0].trace), options.traits.rigid
    large = [job.name for job in inputs.jobs if needed(job, rigid=rigid) > largest]
    if large:
        what = f"{len(large)} jobs need more than the {largest} units of the machine: "
        source = inputs.jobs.source or None
        raise InputError(what + ", ".join(large[:MAX_NAMED]), file=source)
    return inputs


def warm_up(options: Options, inputs: Inputs, folder: Path) -> None:
    """Take one decision that nobody sees: what is compiled and started for it does not delay the first one."""
    replay = online(options, inputs, folder)
    while not replay.ledger.decisions and replay.peek() is not None:
        replay.step()


def begin(
    options: Options,
    record: Record,
    looks: Looks,
    nodes: str | None,
    units_per_node: int,
    notes: Watcher,
) -> tuple[dict[str, Any], Iterator[Any], Look | None]:
    """Return the header of a record, the lines after it, and of a new one the look that named the machine.

    Raises
    ------
    InputError
        When there is nothing to watch, or the record is of other options or jobs.
    """
    lines = record.lines()
    written = next(lines, None)
    header, look = written, None
    if header is None:
        try:
            look = looks.newest(None)
        except EOFError:
            what = "standard input ended before it stated any node"
            raise InputError(what) from None
        names = list(node_list(nodes) if nodes else look.idle)
        header = header_of(options, names, units_per_node, time.time_ns())
    # Before time counts: what is compiled and started for it would delay the first decision.
    warm_up(options, loaded(options, header, Watcher()), record.path.parent)
    start = header["start"] if look is None else time.time_ns()
    now = header_of(options, header["nodes"], header["units_per_node"], start)
    digests = loaded(options, now, notes).digests
    now["inputs"] = {
        name: each for name, each in digests.items() if name != "node_trace"
    }
    now = json.loads(json.dumps(now))
    if written is None:
        record.write(now)
    elif written != now:
        before, asked = written["options"], now["options"]
        flags = [FIELDS[name].flag for name in asked if before.get(name) != asked[name]]
        what = f"is the record of a watch with other {', '.join(flags) or 'inputs'}"
        raise InputError(what, file=record.path, hint="choose another --out")
    return now, lines, look


def shadow_of(
    options: Options,
    inputs: Inputs,
    record: Record,
    tell: Callable[[dict[str, Any]], None],
) -> Shadow:
    """Return the online replay on a machine of which no node is idle yet."""
    pool = inputs.pools[0]
    nobody = np.zeros(0, dtype=np.int32)
    none = np.zeros(0, dtype=np.int64)
    unseen = replace(pool.trace, **fragment_events(nobody, none, none, 0), end=NEVER)
    pool = replace(pool, trace=unseen)
    replay = online(options, replace(inputs, pools=(pool,)), record.path.parent)
    return Shadow(replay, record.write, tell)


@dataclass
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
    stopping
        Tells whether it is to end now.
    now
        The clock, UTC ns.
    """

    shadow: Shadow
    looks: Looks
    settle_s: float
    every_s: float | None
    until: int
    stopping: Callable[[], bool]
    now: Callable[[], int] = time.time_ns
    # Since when nodes look idle, by position.
    _since: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = self.shadow.replay.trace.nodes
        self._position = {node: position for position, node in enumerate(nodes)}
        self._since = dict.fromkeys(self.shadow.idle, 0)
        self._seen_at = self.shadow.heard_at
        self._settle_ns = round(self.settle_s * SECOND_NS)

    def resume(self) -> None:
        """Of the time since the record's last line nothing is known: without a period nobody is idle any more."""
        if self.every_s is None:
            self._lose(self.shadow.promised + 1)

    def run(self, look: Look | None = None) -> Outcome:
        """Watch until the end or the last look; `look` was taken before."""
        while self.now() < self.until and not self.stopping():
            wait_s = (self._due() - self.now()) / SECOND_NS
            try:
                seen = look or self.looks.newest(min(max(wait_s, 0.0), STOPS_WITHIN_S))
            except Empty:
                self._pass(min(self.now(), self.until - 1))
            except EOFError:
                break
            else:
                self._see(seen)
                look = None
        end = min(self.now(), self.until)
        self._pass(end - 1)
        return self.shadow.stop(end)

    def _see(self, look: Look) -> None:
        instant = min(look.instant, self.now(), self.until - 1)
        instant = max(instant, self.shadow.replay.trace.start)
        seen = (self._position.get(node) for node, idle in look.idle.items() if idle)
        idle = {position for position in seen if position is not None}
        self._pass(instant - 1)
        self._since = {node: self._since.get(node, instant) for node in idle}
        self._seen_at = instant
        self.shadow.hear(instant, self._settled(instant))

    def _pass(self, instant: int) -> None:
        """Time has come to an instant: nodes have settled, looks have failed to come, the engine goes on."""
        while (due := min(self._settling(), self._lost())) <= instant:
            if due == self._lost():
                self._lose(due)
            else:
                self.shadow.hear(self._after(due), self._settled(due))
        self.shadow.passed(instant)

    def _lose(self, instant: int) -> None:
        self._since = {}
        self.shadow.hear(self._after(instant), set())

    def _after(self, instant: int) -> int:
        return max(instant, self.shadow.promised + 1)

    def _settled(self, instant: int) -> set[int]:
        latest = instant - self._settle_ns
        return {node for node, since in self._since.items() if since <= latest}

    def _settling(self) -> int:
        """When the next node settles."""
        idle = self.shadow.idle
        waits = (since for node, since in self._since.items() if node not in idle)
        return min(waits, default=NEVER - self._settle_ns) + self._settle_ns

    def _lost(self) -> int:
        """When nothing is known of the nodes any more."""
        if self.every_s is None or not self._since:
            return NEVER
        return self._seen_at + round(MOST_PERIODS * self.every_s * SECOND_NS)

    def _due(self) -> int:
        return min(self.shadow.due(), self._settling(), self._lost(), self.until)


def compared(
    outcome: Outcome, trace: NodeTrace, options: Options, run: Path
) -> dict[str, Any]:
    """Compare what a watch decided with the ordinary run on its record.

    Returns
    -------
    dict
        `equal`; and `until`: from this decision on (UTC) they are not, after one that came at a time limit.
    """
    outcome = replace(outcome, trace=trace)
    with TemporaryDirectory(dir=run.parent, prefix=".live-") as name:
        live = Path(name)
        write_outcome(live, outcome)
        if options.rules.return_time_s is not None:
            write_returns(live, outcome)
        if all(
            path.read_bytes() == (run / path.name).read_bytes()
            for path in live.iterdir()
        ):
            return {"equal": True, "until": None}
        steps = [pd.read_parquet(folder / STEPS) for folder in (live, run)]
    unproven = [
        np.flatnonzero(each["status"].isin(("feasible", "fallback"))) for each in steps
    ]
    first = min((int(rows[0]) for rows in unproven if len(rows)), default=None)
    if first is None:
        return {"equal": False, "until": None}
    before, same = (each.iloc[:first] for each in steps)
    return {
        "equal": before.equals(same),
        "until": steps[0]["time"].iloc[first].isoformat(),
    }
