"""Backends by name: those of this package, and those that other packages register as `bft.backends` entry points.

Importing this module loads no solver.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec

from bft.milp.backends.backend_api import (
    MILP_FORMULATIONS,
    Availability,
    Backend,
    Feature,
    Listed,
)
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel
from bft.milp.jobs import ProblemError


@dataclass(frozen=True, slots=True)
class Solver:
    """A solver of this package: a module with a function `solve`, imported when it is first asked."""

    name: str
    module: str
    features: tuple[Feature, ...]
    available: Callable[[], Availability]
    formulations: tuple[str, ...] = MILP_FORMULATIONS

    def solve(self, model: LinearModel, limits: Limits) -> LinearAnswer:
        """Solve `model`."""
        module = import_module(f"bft.milp.backends.{self.module}")
        answer: LinearAnswer = module.solve(model, limits)
        return answer


def _cbc() -> Availability:
    """CBC through python-mip: mipster (small), or cbcbox, a dependency of python-mip."""
    library = "mipster" if find_spec("mipster") else "cbcbox"
    if not find_spec(library) and "PMIP_CBC_LIBRARY" not in os.environ:
        how_to_get = "pip install mipster; the backends exact and highs need nothing"
        return Availability(available=False, licence="EPL 2.0", how_to_get=how_to_get)
    versions = _versions((library, "CBC"), ("mip", "python-mip"))
    return Availability(versions, licence="EPL 2.0")


def _highs() -> Availability:
    """HiGHS as bundled with SciPy, through scipy.optimize.milp: a dependency of this package."""
    licence, limits = "BSD 3-Clause; HiGHS: MIT", "one thread"
    return Availability(_versions(("scipy", "SciPy")), licence=licence, limits=limits)


def _gurobi() -> Availability:
    """Gurobi through gurobipy, which is imported if it is installed."""
    if find_spec("gurobipy") is None:
        how_to_get = "pip install gurobipy; it brings a licence for small models"
        licence = "commercial, not installed"
        return Availability(available=False, licence=licence, how_to_get=how_to_get)
    versions = _versions(("gurobipy", "Gurobi"))
    try:
        from bft.milp.backends import gurobi

        limited = gurobi.size_limited()
    except Exception as error:  # a foreign library may raise anything; the user gets its message, not a crash
        how_to_get = " ".join(str(error).split())
        return Availability(versions, False, "no valid licence", how_to_get=how_to_get)
    if not limited:
        return Availability(versions, licence="valid, unlimited")
    size = gurobi.SIZE_LIMIT
    return Availability(
        versions,
        licence="comes with gurobipy, size-limited",
        limits=f"at most {size} variables and {size} constraints",
        how_to_get=gurobi.ADVICE,
    )


@dataclass(frozen=True, slots=True)
class Exact:
    """The exact dynamic programme (DP). It solves the problem itself, in this process, so it has no `solve` method."""

    name: str = "exact"
    formulations: tuple[str, ...] = ("modes",)
    features: tuple[Feature, ...] = ()

    def available(self) -> Availability:
        """Always available."""
        versions = _versions(("bft-replay", "bft-replay"), ("numba", "Numba"))
        limits = "the modes formulation; nobody shares"
        return Availability(versions, licence="MIT", limits=limits)


EXACT = Exact()
BOTH = (Feature.START, Feature.THREADS)
SOLVERS: dict[str, Backend] = {
    "cbc": Solver("cbc", "python_mip", BOTH, _cbc),
    "highs": Solver("highs", "scipy_milp", (), _highs),
    "gurobi": Solver("gurobi", "gurobi", BOTH, _gurobi),
}


def _versions(*packages: tuple[str, str]) -> str:
    versions = []
    for package, label in packages:
        try:
            versions.append(f"{label} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(versions)


GROUP = "bft.backends"


def backend_names() -> tuple[str, ...]:
    """Names of all backends that may be requested here, including `exact`.

    >>> backend_names()[:4]
    ('cbc', 'highs', 'gurobi', 'exact')
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
        return listed(name).available()
    except Exception as error:  # third-party code may raise anything
        known = isinstance(error, ProblemError)
        what = str(error) if known else f"{type(error).__name__}: {error}"
        return Availability(available=False, licence="unknown", how_to_get=what)


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
