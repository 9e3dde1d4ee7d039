"""What a workload is told of its jobs, and what it answers (docs/scenarios.md); and workloads by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

from bft.models.errors import InputError
from bft.models.jobs import Job
from bft.models.plugins import PluginGroup, built


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened to a job.

    Parameters
    ----------
    type
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
    >>> Event("rung", job, 60 * 10**9, 1000.0, rung=1).type
    'rung'
    """

    type: Literal["start", "rung", "finish"]
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


@runtime_checkable
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


# Name -> class, whose module is imported when its workload is asked for.
BUILT_IN = {"hpo": "searches:SuccessiveHalving", "nas": "searches:Evolution"}
_WORKLOADS = PluginGroup("bft.workloads", "workload", BUILT_IN, "bft.models.searches")


def make_workload(text: str, settings: Mapping[str, Any]) -> Workload:
    """Make a workload.

    Parameters
    ----------
    text
        Its name and, behind a colon, values of its constants: `hpo:eta=2,noise=0`.
    settings
        What the run knows, by name: fields of these names are filled from it.

    Raises
    ------
    InputError
        When there is no such workload or constant, or a value does not fit.

    Examples
    --------
    >>> make_workload("hpo:eta=2", {"seed": 7})
    SuccessiveHalving(eta=2, levels=4, noise=0.05, seed=7, name='hpo')
    >>> make_workload("hpo:eta=1", {})
    Traceback (most recent call last):
    bft.models.errors.InputError: workload 'hpo': eta: expected a whole number >= 2, not 1
    """
    name, _, constants = text.partition(":")
    owner = f"workload {name!r}"
    given: dict[str, str] = {}
    for part in filter(None, constants.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(
                f"{owner}: expected NAME=VALUE behind the colon, not {part.strip()!r}"
            )
        given[key.strip()] = value
    made = built(owner, _WORKLOADS.factory(name), settings, given)
    kept = is_dataclass(made) and isinstance(made, Workload)
    if not kept:  # before anything is replayed
        raise InputError(
            f"{owner}: expected a dataclass, whose fields a checkpoint keeps, with a name, rungs() and on()"
        )
    return cast("Workload", made)
