"""What a workload is told of its jobs, and what it answers (docs/scenarios.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bft.models.jobs import Job


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened to a job.

    Parameters
    ----------
    kind
        `start`: it has got units for the first time. `rung`: its progress has reached one of its rungs. `finish`: it
        has done all its work.
    job
        The job.
    time_ns
        The instant, UTC nanoseconds.
    progress
        Samples done: at a rung the rung itself, at a finish all.
    rung
        At a rung, how many its progress has reached, this one included; else 0.
    jobs
        All jobs that there are or were, by name.

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 4], [0, 40])
    >>> job = Job("a", 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve)
    >>> Event("rung", job, 60 * 10**9, 1000.0, rung=1).kind
    'rung'
    """

    kind: Literal["start", "rung", "finish"]
    job: Job
    time_ns: int
    progress: float
    rung: int = 0
    jobs: Mapping[str, Job] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders with which a workload driver answers an event.

    Parameters
    ----------
    submit
        New jobs, of names that no job has yet. One whose submit time has passed is submitted at once.
    cancel
        Names of jobs to be stopped for good: their units return at the instant. Those that have finished, or have been
        cancelled before, stay as they are.
    score
        What the job of the event has been found to be worth, the larger the better; None: nothing was measured.

    Raises
    ------
    TypeError, ValueError
        For anything else.

    Examples
    --------
    >>> Orders(cancel=["a"]).cancel
    ('a',)
    >>> Orders(cancel="a")
    Traceback (most recent call last):
    TypeError: Orders: cancel must be names of jobs, not 'a'
    """

    submit: Sequence[Job] = ()
    cancel: Sequence[str] = ()
    score: float | None = None

    def __post_init__(self) -> None:
        # A third party's workload may have put in anything.
        for name, kind, expected in (
            ("submit", Job, "jobs"),
            ("cancel", str, "names of jobs"),
        ):
            given: object = getattr(self, name)
            if not isinstance(given, (tuple, list)) or not all(
                isinstance(each, kind) for each in given
            ):
                raise TypeError(
                    f"Orders: {name} must be {expected}, not {given!r:.100}"
                )
            object.__setattr__(self, name, tuple(given))
        if self.score is not None:
            object.__setattr__(self, "score", float(self.score))
            if not math.isfinite(self.score):
                raise ValueError(
                    f"Orders: score must be a finite number or None, not {self.score}"
                )


NOTHING = Orders()


class Workload(Protocol):
    """A workload driver submits and cancels jobs while a replay runs. It must be deterministic.

    It is a dataclass. The fields that its constructor takes are constants, which the user sets; the others are what it
    remembers, and a checkpoint keeps them: numbers, texts, and lists, tuples, sets and dicts of these.
    """

    @property
    def name(self) -> str:
        """Name of the workload driver on the command line and in the results."""

    def rungs(self, job: Job) -> Sequence[float]:
        """Return the samples at which a job raises an event, ascending, more than 0 and less than the job's work."""

    def on(self, event: Event) -> Orders:
        """Return the orders with which the driver answers an event."""
