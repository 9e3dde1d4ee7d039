"""A watch: the machine as the first look names it, the loop while time passes, and the comparison at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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
from bft.replay.inputs.shaping import LAST_NS, max_idle, needed
from bft.replay.logs.ingest import node_list
from bft.replay.logs.states import MOST_PERIODS
from bft.replay.options.options import FIELDS, Options
from bft.replay.results.outcome_tables import write_outcome, write_returns
from bft.replay.results.run_directory import STEPS
from bft.replay.run import online
from bft.replay.shadow.online import Shadow
from bft.replay.shadow.record import FORMAT, FORMAT_VERSION, Record
from bft.replay.shadow.states import Looks
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, events_of, from_fragments

# How long a wish to stop may go unheard, seconds.
STOPS_WITHIN_S = 0.5


def begin(
    options: Options,
    record: Record,
    looks: Looks,
    nodes: str | None,
    units_per_node: int,
    notes: Watcher,
) -> tuple[dict[str, Any], Inputs, Iterator[Any]]:
    """Return the header of a record, the inputs on its machine, all of which is idle, and the lines so far.

    The first look names the nodes of a new record, unless they are stated.

    Raises
    ------
    InputError
        When there is nothing to watch, a job needs more than the machine, or the record is of other options or jobs.
    """
    lines = record.lines()
    written = next(lines, None)
    machine = written
    if machine is None:
        look = looks.newest(None)
        looks.waiting.put(look)
        names = list(node_list(nodes) if nodes else look[1])
        start = time.time_ns()
        machine = {"nodes": names, "units_per_node": units_per_node, "start": start}
    names, start = machine["nodes"], machine["start"]
    count = len(names)
    trace = from_fragments(
        names,
        np.arange(count, dtype=np.int32),
        np.full(count, start),
        np.full(count, LAST_NS),
        start,
        LAST_NS,
        source="watched",
        units_per_node=machine["units_per_node"],
    )
    inputs = load(options, Notes(notes), {"node_trace": trace})
    most, rigid = max_idle(inputs.pools[0].trace), options.traits.rigid
    for job in inputs.jobs:
        if needed(job, rigid=rigid) > most:
            what = (
                f"it needs {needed(job, rigid=rigid)} units, and the machine has {most}"
            )
            raise InputError(what, file=inputs.jobs.source or None, job=job.name)
    del inputs.digests["node_trace"]
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "touches": "nothing",
        "options": options.flat(),
        "inputs": inputs.digests,
        "clairvoyant": options.traits.clairvoyant,
        **machine,
    }
    header = json.loads(json.dumps(header))
    if written is None:
        record.write(header)
    elif written != header:
        other = [
            field.flag
            for name, field in FIELDS.items()
            if written["options"].get(name) != header["options"][name]
        ]
        what = f"is the record of a watch with other {', '.join(other) or 'inputs'}"
        raise InputError(what, file=record.path, hint="choose another --out")
    return header, inputs, lines


def shadow_of(
    options: Options,
    inputs: Inputs,
    record: Record,
    tell: Callable[[Mapping[str, Any]], None],
) -> Shadow:
    """Return the online replay on the machine of the inputs, of which no node is idle yet.

    One decision that nobody sees is taken first: what is compiled and started for it would delay the first one.
    """
    folder, pool = record.path.parent, inputs.pools[0]
    unseen = online(options, inputs, folder)
    while not unseen.ledger.decisions and unseen.peek() is not None:
        unseen.step()
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    trace = replace(pool.trace, **events_of(nothing, nothing), end=NEVER)
    inputs = replace(inputs, pools=(replace(pool, trace=trace),))
    return Shadow(online(options, inputs, folder), record.write, tell)


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
        nodes = shadow.replay.trace.nodes
        self._position = {node: position for position, node in enumerate(nodes)}
        # Since when nodes look idle, by position: those of a record that goes on have settled.
        self._since = dict.fromkeys(shadow.idle, 0)
        self._settle_ns = round(settle_s * SECOND_NS)
        self._period_ns = None if every_s is None else round(every_s * SECOND_NS)
        # When nothing is known of the nodes any more.
        self._lost = NEVER
        if shadow.idle:
            self._lost = shadow.heard_at + round(MOST_PERIODS * (self._period_ns or 0))

    def run(self, stopping: Callable[[], bool]) -> Outcome:
        """Watch until the end, the last look, or until somebody wants to stop."""
        while self.now() < self.until and not stopping():
            due = min(self.shadow.due(), self._own(), self.until)
            wait_s = max(0.0, (due - self.now()) / SECOND_NS)
            try:
                self._see(*self.looks.newest(min(wait_s, STOPS_WITHIN_S)))
            except Empty:
                self._pass(min(self.now(), self.until - 1))
            except EOFError:
                break
        end = min(self.now(), self.until)
        self._pass(end - 1)
        return self.shadow.stop(end)

    def _see(self, instant: int, states: dict[str, bool]) -> None:
        instant = min(instant, self.now(), self.until - 1)
        instant = max(instant, self.shadow.replay.trace.start)
        self._pass(instant - 1)
        for node, idle in states.items():
            position = self._position.get(node)
            if idle and position is not None:
                self._since.setdefault(position, instant)
            elif position is not None:
                self._since.pop(position, None)
        if self._period_ns is not None:
            self._lost = instant + round(MOST_PERIODS * self._period_ns)
        self._hear(instant)

    def _own(self) -> int:
        """When a node settles, or nothing is known of the nodes any more."""
        idle = self.shadow.idle
        waits = [since for node, since in self._since.items() if node not in idle]
        return min(self._lost, *(since + self._settle_ns for since in waits), NEVER)

    def _pass(self, instant: int) -> None:
        """Time has come to an instant, inclusive."""
        while (due := self._own()) <= instant:
            if due == self._lost:
                self._since, self._lost = {}, NEVER
            self._hear(max(due, self.shadow.promised + 1))
        self.shadow.passed(instant)

    def _hear(self, instant: int) -> None:
        latest = instant - self._settle_ns
        settled = {node for node, since in self._since.items() if since <= latest}
        self.shadow.hear(instant, settled)


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
        pairs = [(path, run / path.name) for path in live.iterdir()]
        if all(mine.read_bytes() == theirs.read_bytes() for mine, theirs in pairs):
            return {"equal": True, "until": None}
        steps = [pd.read_parquet(folder / STEPS) for folder in (live, run)]
    rows = pd.concat(steps)
    unproven = rows.index[rows["status"].isin(("feasible", "fallback"))]
    if unproven.empty:
        return {"equal": False, "until": None}
    mine, theirs = (each.iloc[: unproven.min()] for each in steps)
    until = steps[0]["time"].iloc[unproven.min()].isoformat()
    return {"equal": mine.equals(theirs), "until": until}
