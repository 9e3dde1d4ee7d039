"""What a policy sees and what it answers (DESIGN §7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from bft.milp import Transfer
from bft.models import Job


@dataclass(frozen=True, slots=True)
class JobView:
    """A job in play as a scheduler sees it: no future, no remaining work.

    Parameters
    ----------
    job
        Its bounds and curves.
    units
        Units it holds now.
    unit_seconds
        Service attained so far.
    partner
        Position in `State.jobs` of the job with which it shares units now, None when it shares none.
    shared
        How many units the two share.
    """

    job: Job
    units: int
    unit_seconds: float
    partner: int | None = None
    shared: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The moment of a decision.

    Parameters
    ----------
    time_ns
        UTC nanoseconds.
    idle
        Idle units, those that jobs hold included.
    jobs
        The jobs in play, in order of admission.
    """

    time_ns: int
    idle: int
    jobs: tuple[JobView, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """How many units each job in play shall have, in the order of `State.jobs`.

    A policy that lets jobs share units also says which class of units goes to whom (`transfers`, positions in
    `State.jobs`); without transfers every unit has one holder. A policy that optimises says how well: `status`,
    `objective`, `bound`, and `note` when something went wrong. `seconds` is wall time, kept out of the results proper.
    """

    counts: tuple[int, ...]
    status: str = "decided"
    objective: float = float("nan")
    bound: float = float("nan")
    backend: str = ""
    note: str = ""
    seconds: float = 0.0
    transfers: tuple[Transfer, ...] = ()


class Policy(Protocol):
    """Decides allocations. It must be deterministic: same states, same decisions."""

    @property
    def name(self) -> str:
        """What the command line and the results call it."""

    def decide(self, state: State) -> Decision:
        """Allocate the idle units: for each job 0 or a number within [Jmin, Jmax], in total at most `state.idle`."""


@runtime_checkable
class Remembers(Protocol):
    """A policy whose decisions or counts depend on what it has seen: a checkpoint must keep that too."""

    def state(self) -> dict[str, Any]:
        """What it remembers, as values that JSON can hold."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember what `state` says."""


class PolicyError(RuntimeError):
    """A policy answered what no scheduler may: too many units, or a count outside a job's bounds."""
