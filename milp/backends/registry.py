"""Backends by name: those of this package, and those that other packages register as `bft.backends` entry points.

Importing this module loads no solver.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from bft.milp.backends.backend_api import (
    MILP_FORMULATIONS,
    Availability,
    Backend,
    Feature,
    Listed,
)
from bft.milp.backends.builtin import EXACT, SOLVERS
from bft.milp.problem import ProblemError

GROUP = "bft.backends"


def backend_names() -> tuple[str, ...]:
    """Names of all backends that may be requested here, including `exact`.

    >>> backend_names()[:5]
    ('cbc', 'highs', 'scipy', 'gurobi', 'exact')
    """
    ours = (*SOLVERS, EXACT.name)
    return *ours, *sorted({point.name for point in _registered()} - set(ours))


def listed(name: str) -> Listed:
    """Return the description of a backend: its name, formulations and features.

    Raises
    ------
    ProblemError
        When there is no such backend, or its package cannot be loaded or provides something else.
    """
    return EXACT if name == EXACT.name else solver(name)


@cache
def solver(name: str) -> Backend:
    """A backend that solves linear models.

    Raises
    ------
    ProblemError
        As for `listed`, and for `exact`, which solves no linear models.
    """
    if name in SOLVERS:
        return SOLVERS[name]
    points = [point for point in _registered() if point.name == name]
    if not points:
        raise ProblemError(
            f"unknown backend {name!r}: choose one of auto, {', '.join(backend_names())}"
        )
    values = sorted({point.value for point in points})
    if len(values) > 1:
        raise ProblemError(
            f"backend {name!r} is registered by several packages: {', '.join(values)}; uninstall all but one"
        )
    try:
        made: object = points[0].load()
        backend = made() if isinstance(made, type) else made
    except (
        Exception,
        SystemExit,
    ) as error:  # third-party code may raise anything; the user must learn whose it is
        what = f"backend {name!r} ({values[0]}) cannot be loaded: {type(error).__name__}: {error}"
        raise ProblemError(what) from error
    return _checked(backend, name, values[0])


def describe(name: str) -> Availability:
    """Whether the backend can be used on this machine. Never raises for a known name: others stay visible.

    For `gurobi` this imports gurobipy, if it is installed.
    """
    try:
        state = listed(name).available()
    except ProblemError as error:
        return Availability(available=False, licence="unknown", how_to_get=str(error))
    except Exception as error:  # third-party code may raise anything
        return Availability(
            available=False,
            licence="unknown",
            how_to_get=f"{type(error).__name__}: {error}",
        )
    return state


def able(formulation: str) -> list[str]:
    """Names of the backends that solve a formulation."""
    return [name for name in backend_names() if formulation in formulations_of(name)]


def formulations_of(name: str) -> tuple[str, ...]:
    """The formulations that a backend solves; none if its package is broken."""
    try:
        return tuple(listed(name).formulations)
    except ProblemError:  # reported when somebody asks for this backend
        return ()


def _checked(backend: object, name: str, value: str) -> Backend:
    """Raise if `value` does not provide a backend; the message names what is missing."""
    if not isinstance(backend, Backend):
        lacking = [
            part
            for part in ("name", "formulations", "features", "available", "solve")
            if not hasattr(backend, part)
        ]
        raise ProblemError(
            f"backend {name!r} ({value}) is no bft.milp.Backend: it has no {', '.join(lacking)}"
        )
    for what, words, known in (
        ("formulations", backend.formulations, MILP_FORMULATIONS),
        ("features", backend.features, tuple(map(str, Feature))),
    ):
        unknown = (
            [words]
            if isinstance(words, str)
            else [str(word) for word in words if word not in known]
        )
        if unknown:
            expected = f"expected a collection of {', '.join(known)}"
            raise ProblemError(
                f"backend {name!r} ({value}): invalid {what} {', '.join(unknown)}: {expected}"
            )
    if backend.name != name:
        raise ProblemError(
            f"backend {name!r} ({value}) calls itself {backend.name!r}: give both the same name"
        )
    return backend


def _registered() -> list[EntryPoint]:
    return list(entry_points(group=GROUP))
