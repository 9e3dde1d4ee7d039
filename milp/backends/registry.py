"""Backends by name: ours, and those that other packages register in the entry-point group `bft.backends`.

Importing this loads no solver.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from bft.milp.backends.builtin import EXACT, SOLVERS
from bft.milp.backends.port import MILP_FORMULATIONS, Availability, Backend, Feature, Listed
from bft.milp.problem import ProblemError

GROUP = "bft.backends"


def backend_names() -> tuple[str, ...]:
    """All backends that can be asked for here, the exact dynamic programme among them.

    >>> backend_names()[:5]
    ('cbc', 'highs', 'scipy', 'gurobi', 'exact')
    """
    ours = (*SOLVERS, EXACT.name)
    return *ours, *sorted({point.name for point in _registered()} - set(ours))


def listed(name: str) -> Listed:
    """A backend's description of itself.

    Raises
    ------
    ProblemError
        When there is no such backend, or the package that brings it cannot be loaded or brings something else.
    """
    return EXACT if name == EXACT.name else solver(name)


@cache
def solver(name: str) -> Backend:
    """A backend that solves linear models.

    Raises
    ------
    ProblemError
        As `listed` does, and for `exact`, which solves none.
    """
    if name in SOLVERS:
        return SOLVERS[name]
    points = [point for point in _registered() if point.name == name]
    if not points:
        raise ProblemError(f"unknown backend {name!r}: choose one of auto, {', '.join(backend_names())}")
    values = sorted({point.value for point in points})
    if len(values) > 1:
        raise ProblemError(
            f"backend {name!r} is registered by several packages: {', '.join(values)}; uninstall all but one"
        )
    try:
        made: object = points[0].load()
        backend = made() if isinstance(made, type) else made
    except (Exception, SystemExit) as error:  # of a third party: whatever it is, the user must learn whose
        what = f"backend {name!r} ({values[0]}) cannot be loaded: {type(error).__name__}: {error}"
        raise ProblemError(what) from error
    return _checked(backend, name, values[0])


def describe(name: str) -> Availability:
    """Look at this machine; never raises for a known name, so that a broken package hides no other backend.

    Asking for `gurobi` loads gurobipy, where installed.
    """
    try:
        state = listed(name).available()
    except ProblemError as error:
        return Availability(available=False, licence="unknown", how_to_get=str(error))
    except Exception as error:  # of a third party
        return Availability(available=False, licence="unknown", how_to_get=f"{type(error).__name__}: {error}")
    return state


def able(formulation: str) -> list[str]:
    """The backends that solve a formulation."""
    return [name for name in backend_names() if formulation in formulations_of(name)]


def formulations_of(name: str) -> tuple[str, ...]:
    """The formulations that a backend solves: none, where its package is broken."""
    try:
        return tuple(listed(name).formulations)
    except ProblemError:  # whoever asks for this backend learns why
        return ()


def _checked(backend: object, name: str, value: str) -> Backend:
    """Refuse what is no backend, and say what it lacks."""
    if not isinstance(backend, Backend):
        lacking = [
            part for part in ("name", "formulations", "features", "available", "solve") if not hasattr(backend, part)
        ]
        raise ProblemError(f"backend {name!r} ({value}) is no bft.milp.Backend: it has no {', '.join(lacking)}")
    for what, words, known in (
        ("formulations", backend.formulations, MILP_FORMULATIONS),
        ("features", backend.features, tuple(map(str, Feature))),
    ):
        unknown = [words] if isinstance(words, str) else [str(word) for word in words if word not in known]
        if unknown:
            expected = f"expected a collection of {', '.join(known)}"
            raise ProblemError(f"backend {name!r} ({value}): invalid {what} {', '.join(unknown)}: {expected}")
    if backend.name != name:
        raise ProblemError(f"backend {name!r} ({value}) calls itself {backend.name!r}: give both the same name")
    return backend


def _registered() -> list[EntryPoint]:
    return list(entry_points(group=GROUP))
