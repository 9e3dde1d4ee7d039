"""A mixed-integer linear programme as arrays: made by formulations, solved by backends."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from bft.milp.jobs import FloatArray


@dataclass(slots=True)
class LinearModel:
    """maximise objective·x subject to rows·x <= or = right-hand side, 0 <= x <= upper.

    Parameters
    ----------
    objective, upper
        One number per variable; `upper` may be inf.
    integer
        Whether the variable must be a whole number.
    rows
        Constraints as (indices, coefficients, sense, right-hand side), sense `<` or `=`.
    start
        A feasible solution known beforehand as (index, value) for values other than 0; empty for none. A backend may
        begin from it, but does not rely on it.

    Examples
    --------
    >>> model = LinearModel()
    >>> x, y = model.variable(3.0, upper=1.0), model.variable(2.0, upper=1.0)
    >>> model.row([x, y], [1.0, 1.0], "<", 1.0)  # at most one of the two
    >>> model.objective, model.rows
    ([3.0, 2.0], [([0, 1], [1.0, 1.0], '<', 1.0)])
    """

    objective: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[tuple[list[int], list[float], str, float]] = field(default_factory=list)
    start: list[tuple[int, float]] = field(default_factory=list)

    def variable(self, objective: float, upper: float, *, integer: bool = True) -> int:
        """Add a variable and return its index."""
        self.objective.append(objective)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.objective) - 1

    def row(
        self, indices: list[int], coefficients: list[float], sense: str, right: float
    ) -> None:
        """Add the constraint sum(coefficients·x[indices]) `sense` right."""
        self.rows.append((indices, coefficients, sense, right))


@dataclass(frozen=True, slots=True)
class Formulated:
    """A linear model together with the decoder from its variables to counts per job.

    `constant` is the value of the jobs that are decided beforehand, and have no variables, and what jobs owe anyway.
    """

    model: LinearModel
    decode: Callable[[FloatArray], tuple[int, ...]]
    constant: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how precisely to solve.

    Parameters
    ----------
    seconds
        Time limit of the solver, None for no limit.
    gap
        Relative distance from the bound at which the solver may stop; 0 asks for a proof.
    threads
        Threads the solver may use.
    """

    seconds: float | None = None
    gap: float = 0.0
    threads: int = 1


class Nonsense(RuntimeError):  # noqa: N818 - what happened
    """A solver's answer that contradicts itself; the message explains how."""


class LinearStatus(StrEnum):
    """How a backend's work ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NOTHING = "nothing"
    """It stopped at a limit and has no solution."""
    UNKNOWN = "unknown"
    """Anything else: an error, or a status that is not known here."""

    @classmethod
    def parse(cls, said: str, *, solved: bool = True) -> LinearStatus:
        """The status for a solver's own word.

        Parameters
        ----------
        said
            The word, such as `OPTIMAL`, `kTimeLimit`, `INT_INFEASIBLE`; case and punctuation are ignored.
        solved
            Whether there is a solution; at a limit this decides between feasible and nothing.

        >>> LinearStatus.parse("INT_INFEASIBLE").value
        'infeasible'
        >>> LinearStatus.parse("Time limit reached", solved=False).value
        'nothing'
        >>> LinearStatus.parse("numerical trouble").value
        'unknown'
        """
        word = re.sub(r"[^a-z]", "", said.lower())
        if word in ("optimal", "optimalsolution", "optimalsolutionfound", "koptimal"):
            return cls.OPTIMAL
        if word in (
            "infeasible",
            "kinfeasible",
            "intinfeasible",
            "integerinfeasible",
            "probleminfeasible",
        ):
            return cls.INFEASIBLE
        if word in ("nothing", "nosolutionfound"):
            return cls.NOTHING
        if (
            word in ("feasible", "suboptimal", "truncated", "interrupted")
            or "limit" in word
        ):
            return cls.FEASIBLE if solved else cls.NOTHING
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class LinearAnswer:
    """A backend's answer to a linear model.

    Parameters
    ----------
    status
        A `LinearStatus`, or the solver's own word for it: see `LinearStatus.parse`.
    x
        One number per variable, None when there is no solution.
    objective, bound
        Value of `x`, and an upper bound of any solution; NaN where there is none.
    said
        The status in the solver's own words.
    """

    status: LinearStatus | str
    x: FloatArray | None
    objective: float
    bound: float
    said: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "said", self.said or str(self.status))
        object.__setattr__(
            self,
            "status",
            LinearStatus.parse(str(self.status), solved=self.x is not None),
        )

    def above(self, constant: float) -> LinearAnswer:
        """Return this answer with `constant` added to objective and bound."""
        return (
            replace(
                self, objective=self.objective + constant, bound=self.bound + constant
            )
            if constant
            else self
        )

    def values(self, model: LinearModel) -> FloatArray:
        """`x`, checked to hold one finite number per variable; raise Nonsense if it does not."""
        x = self.x
        if (
            not isinstance(x, np.ndarray)
            or x.shape != (len(model.objective),)
            or not np.isfinite(x).all()
        ):
            raise Nonsense("expected one finite number per variable")
        return x


def power_of_two_scale(objective: Sequence[float], target: float = 2.0**20) -> float:
    """A power of two that brings the largest coefficient near `target`.

    Solvers' absolute tolerances (1e-7 on reduced costs, 1e-10 on gaps) suit objectives of ordinary size, but a user's
    objective may be 1e-9 or 1e12. Multiplying by a power of two causes no rounding.
    """
    largest = max((abs(c) for c in objective), default=0.0)
    if largest == 0.0 or not np.isfinite(largest):
        return 1.0
    # Beyond 2^1000 the factor itself would overflow.
    return float(
        2.0 ** np.clip(np.round(np.log2(target) - np.log2(largest)), -1000, 1000)
    )
