"""The state of a running replay, read from its ledger."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bft.replay.engine.ledger import Ledger

# Status of the last row of the steps, which is no decision: it covers the remaining time.
END = "end"


class Figures:
    """The state of a replay as labels and texts. Reading changes nothing.

    Parameters
    ----------
    ledger
        The ledger of the replay; it only grows, so rows are read once.

    Examples
    --------
    >>> from bft.models import Curve, Job, JobTable
    >>> from bft.replay import EqualShare, Replay, always_idle
    >>> curve = Curve([0, 4], [0, 40])
    >>> job = Job("a", 0, 1, 4, pmax=3000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> replay = Replay(always_idle(4, 0, 600 * 10**9), JobTable((job,)), EqualShare())
    >>> replay.step()
    >>> dict(Figures(replay.ledger).lines())["jobs"]
    '1 running, 0 waiting, 0 finished, 0 not in play yet'
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._steps_read = 0
        self._standing: dict[str, Any] = {}  # the last row of the steps
        self._decision: dict[str, Any] = {}  # the last row that is a decision
        self._by_status: Counter[str] = Counter()
        self._answers = 0
        self._seconds = self._max_s = 0.0

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield label and value of each figure."""
        self._read()
        if self._standing:
            yield from self._jobs_and_units(self._standing)
        if self._decision:
            yield "last decision", _answer(self._decision)
            yield (
                "by status",
                ", ".join(
                    f"{count} {status}"
                    for status, count in sorted(self._by_status.items())
                ),
            )
        if self._answers:
            mean = self._seconds / self._answers
            yield (
                "decision time",
                f"mean {mean * 1e3:,.1f} ms, max {self._max_s * 1e3:,.1f} ms",
            )

    def _read(self) -> None:
        steps, seconds = self._ledger.tables["steps"], self._ledger.tables["seconds"]
        new = {
            name: column[self._steps_read :].tolist()
            for name, column in steps.arrays().items()
        }
        for row in range(len(new["time"])):
            self._standing = {name: column[row] for name, column in new.items()}
            if self._standing["status"] != END:
                self._decision = self._standing
                self._by_status[self._decision["status"]] += 1
        self._steps_read = len(steps)
        times = seconds.arrays()["seconds"][self._answers :].tolist()
        self._seconds += math.fsum(times)
        self._max_s = max([self._max_s, *times])
        self._answers = len(seconds)

    def _jobs_and_units(self, step: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """The state since the last step."""
        records = self._ledger.records
        finished = sum(record.finish_ns is not None for record in records)
        apart = sum(
            record.left_out or record.cancelled_ns is not None for record in records
        )  # they never finish
        waiting, to_come = (
            step["jobs"] - step["running"],
            max(len(records) - finished - apart - step["jobs"], 0),
        )
        yield "units", f"{step['idle']} idle, {step['used']} of them used"
        yield (
            "jobs",
            f"{step['running']} running, {waiting} waiting, {finished} finished, {to_come} not in play yet",
        )
        yield (
            "rate",
            f"{step['rate']:,.0f} samples/s; {self._ledger.work:,.0f} samples done",
        )


def _answer(step: dict[str, Any]) -> str:
    """Describe the decision of a step in one line."""
    instant = np.datetime_as_string(
        np.datetime64(step["time"], "ns"), unit="s"
    ).replace("T", " ")
    by = f" by {step['backend']}" if step["backend"] else ""
    gap = f", gap {step['gap']:.2%}" if not math.isnan(step["gap"]) else ""
    return f"{instant}, {step['status']}{by}{gap}, {step['rescaled']} jobs rescaled"


@runtime_checkable
class Follower(Protocol):
    """A watcher that shows more of a replay than its clock."""

    def follow(self, figures: Figures) -> None:
        """Show the figures of the replay that begins."""
