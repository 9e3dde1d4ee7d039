"""The backends: what each can do, and whether it can do it here. Importing this loads no solver."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

MILP_FORMULATIONS = ("modes", "node", "items", "flow")


@dataclass(frozen=True, slots=True)
class Backend:
    """What a backend can do.

    Parameters
    ----------
    name
        As users write it.
    solver
        As the solver process knows it, None if the backend answers in this process.
    formulations
        What it can solve.
    warm_start
        Whether it begins from a solution known beforehand (`LinearModel.start`).
    threads
        Whether it can use more than one.
    size_limit
        Most variables, and most constraints, without a licence of one's own; None for no limit.

    """

    name: str
    solver: str | None
    formulations: tuple[str, ...]
    warm_start: bool = True
    threads: bool = True
    size_limit: int | None = None

    @property
    def in_solver_process(self) -> bool:
        """Whether it runs in the solver process, where its death costs one answer."""
        return self.solver is not None


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("cbc", "CBC", MILP_FORMULATIONS),
        Backend("highs", "HIGHS", MILP_FORMULATIONS),
        Backend("gurobi", "GUROBI", MILP_FORMULATIONS, size_limit=2000),
        Backend("exact", None, ("modes",), warm_start=False, threads=False),
    )
}


@dataclass(frozen=True, slots=True)
class BackendState:
    """What a backend is on this machine.

    Parameters
    ----------
    version
        Of what solves and of what it is reached through, empty when not installed.
    available
        Whether it can be used now.
    licence
        Under which it solves.
    limits
        What it does not do, empty for nothing of note.
    how_to_get
        What to do to use it, or to lift its limits; empty when there is nothing to do.

    """

    version: str
    available: bool
    licence: str
    limits: str = ""
    how_to_get: str = ""


def describe(name: str) -> BackendState:
    """Look at this machine; never raises for a known name. Asking for `gurobi` loads gurobipy, where installed."""
    return {"cbc": _cbc, "highs": _highs, "gurobi": _gurobi, "exact": _exact}[name]()


def _cbc() -> BackendState:
    # cbcbox holds the library that python-mip 2 loads; older ones bring it themselves.
    return BackendState(_versions(("cbcbox", "CBC"), ("mip", "python-mip")), True, "EPL 2.0")


def _highs() -> BackendState:
    how_to_get = "pip install 'bft-replay[highs]'"
    # python-mip takes highspy before highsbox.
    found = next((package for package in ("highspy", "highsbox") if find_spec(package)), None)
    if found is None:
        return BackendState("", False, "MIT", "", how_to_get)
    return BackendState(_versions((found, "HiGHS"), ("mip", "python-mip")), True, "MIT")


def _gurobi() -> BackendState:
    if find_spec("gurobipy") is None:
        how_to_get = "pip install 'bft-replay[gurobi]'; it brings a licence for small models"
        return BackendState("", False, "commercial, not installed", "", how_to_get)
    found = _versions(("gurobipy", "Gurobi"))
    try:
        from bft.milp.backends import gurobi

        limited = gurobi.size_limited()
    except Exception as error:  # whatever a foreign library may raise here, it is news for the user and no crash
        return BackendState(found, False, "none found", "", " ".join(str(error).split()))
    if limited:
        limit = BACKENDS["gurobi"].size_limit
        limits = f"at most {limit} variables and {limit} constraints"
        return BackendState(found, True, "comes with gurobipy, size-limited", limits, gurobi.ADVICE)
    return BackendState(found, True, "found, unlimited")


def _exact() -> BackendState:
    limits = "the modes formulation; nobody shares"
    return BackendState(_versions(("bft-replay", "bft-replay"), ("numba", "Numba")), True, "MIT", limits)


def _versions(*packages: tuple[str, str]) -> str:
    found = []
    for package, label in packages:
        try:
            found.append(f"{label} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
