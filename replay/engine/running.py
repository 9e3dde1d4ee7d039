"""A job in play: what the engine knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bft.models import Job
from bft.replay.engine.ledger import JobRecord
from bft.replay.engine.port import JobView

NEVER = 2**63 - 1
# At an instant, a job that lacks at most this part of its work is done: what many changes of its rate may round off.
FINISHED = 1e-12

# What a checkpoint keeps.
_KEPT = (
    "units",
    "progress",
    "rate",
    "finish_ns",
    "stalled_until",
    "xi",
    "saved",
    "begun_ns",
    "rated_ns",
    "since_ns",
    "ask_ns",
)


class Running:
    """A job in play.

    Attributes
    ----------
    units
        What it holds, oldest first; none while it waits.
    progress, rate, finish_ns
        Samples done, samples/s while not stalled, and when it will have done all of them at that rate.
    ask_ns
        When its rate must be found anew though nothing has happened to it.
    stalled_until, stalls
        Until when it makes no progress; and up to when which kind of loss that is (see `ledger`), in ascending order.
    partners, xi
        With whom it shares units (position in the table -> how many), and how many times longer its iterations take.
    saved, begun_ns, rated_ns
        Progress at its last checkpoint, when it was started, and when its present rate was set.
    enough
        Progress at which it counts as finished at an instant at which something happens.
    """

    __slots__ = (
        "ask_ns",
        "begun_ns",
        "dynamics",
        "enough",
        "finish_ns",
        "index",
        "job",
        "partners",
        "progress",
        "rate",
        "rated_ns",
        "record",
        "saved",
        "since_ns",
        "stalled_until",
        "stalls",
        "units",
        "waiting_view",
        "xi",
    )

    def __init__(self, index: int, job: Job, record: JobRecord, *, tunes: bool = False) -> None:
        self.index, self.job, self.record = index, job, record
        self.enough = job.pmax * (1 - FINISHED)
        self.units: list[int] = []
        self.progress = 0.0
        self.rate = 0.0
        self.finish_ns = NEVER
        self.ask_ns = NEVER
        self.stalled_until = 0
        self.stalls: list[tuple[int, str]] = []
        self.partners: dict[int, int] = {}
        self.xi = 1.0
        self.saved = 0.0
        self.begun_ns = 0
        self.rated_ns = 0
        self.since_ns: int | None = None
        self.dynamics = None if job.profile is None else job.profile.start(tunes=tunes)
        self.waiting_view: JobView | None = None  # nothing changes while it waits: made once

    def stall(self, until: int, kind: str) -> None:
        """Let it make no progress until then; of several stalls the latest end counts."""
        if until > self.stalled_until:
            self.stalls.append((until, kind))
            self.stalled_until = until

    def end_run(self) -> None:
        """It has lost its last unit: what still stalled it ends with the run to which that was charged."""
        self.stalled_until = 0
        self.stalls.clear()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; the partners as pairs, since JSON has no numbers as keys."""
        return {
            "index": self.index,
            "partners": list(self.partners.items()),
            "stalls": list(self.stalls),
            "dynamics": None if self.dynamics is None else self.dynamics.state(),
            **{name: getattr(self, name) for name in _KEPT},
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any], job: Job, record: JobRecord, *, tunes: bool) -> Running:
        """The job as `state` says it was."""
        running = cls(state["index"], job, record, tunes=tunes)
        for name in _KEPT:
            setattr(running, name, state[name])
        running.partners = dict(state["partners"])
        running.stalls = [(until, kind) for until, kind in state["stalls"]]
        if running.dynamics is not None:
            running.dynamics.restore(state["dynamics"])
        return running

    def view(self, at: Mapping[int, int], *, clairvoyant: bool) -> JobView:
        """What a policy sees; `at` gives the position of each job in play."""
        if self.units:
            self.waiting_view = None
        elif self.waiting_view is not None:
            return self.waiting_view
        record = self.record
        seen = JobView(
            self.job,
            len(self.units),
            record.unit_seconds,
            tuple(self.units),
            tuple((at[index], units) for index, units in self.partners.items()),
            record.run_seconds,
            record.starts,
            record.rescales - record.stops,
            record.start_ns,
            self.since_ns,
            self.progress if clairvoyant else float("nan"),
            self.dynamics,
            self.rate,
        )
        if not self.units:
            self.waiting_view = seen
        return seen


def finished_view(record: JobRecord) -> JobView:
    """What a policy sees of a job that has finished."""
    return JobView(
        record.job,
        0,
        record.unit_seconds,
        executed_s=record.run_seconds,
        starts=record.starts,
        rescales=record.rescales - record.stops,
        started_ns=record.start_ns,
        since_ns=record.finish_ns,
        progress=record.job.pmax,
    )
