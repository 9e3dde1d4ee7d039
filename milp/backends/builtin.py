"""The backends of this package. Importing this module loads no solver."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from bft.milp.backends.backend_api import (
    MILP_FORMULATIONS,
    Availability,
    Backend,
    Feature,
)
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel


@dataclass(frozen=True, slots=True)
class Cbc:
    """CBC through python-mip."""

    name: str = "cbc"
    formulations: tuple[str, ...] = MILP_FORMULATIONS
    features: tuple[Feature, ...] = (Feature.START, Feature.THREADS)

    def available(self) -> Availability:
        """Whether a CBC library is installed: mipster (small), or cbcbox, a dependency of python-mip."""
        if not (
            find_spec("mipster")
            or find_spec("cbcbox")
            or "PMIP_CBC_LIBRARY" in os.environ
        ):
            how_to_get = (
                "pip install mipster; the backends exact and scipy need nothing"
            )
            return Availability(
                available=False, licence="EPL 2.0", how_to_get=how_to_get
            )
        library = "mipster" if find_spec("mipster") else "cbcbox"
        return Availability(
            _versions((library, "CBC"), ("mip", "python-mip")), licence="EPL 2.0"
        )

    def solve(self, model: LinearModel, limits: Limits) -> LinearAnswer:
        """Solve `model`."""
        from bft.milp.backends import python_mip

        return python_mip.solve(model, "CBC", limits)


@dataclass(frozen=True, slots=True)
class Highs:
    """HiGHS through python-mip."""

    name: str = "highs"
    formulations: tuple[str, ...] = MILP_FORMULATIONS
    features: tuple[Feature, ...] = (Feature.START, Feature.THREADS)

    def available(self) -> Availability:
        """Whether the library is installed."""
        # python-mip prefers highspy to highsbox.
        package = next(
            (package for package in ("highspy", "highsbox") if find_spec(package)), None
        )
        if package is None:
            how_to_get = "pip install 'mip[highs]'; the backend scipy is another HiGHS"
            return Availability(available=False, licence="MIT", how_to_get=how_to_get)
        return Availability(
            _versions((package, "HiGHS"), ("mip", "python-mip")), licence="MIT"
        )

    def solve(self, model: LinearModel, limits: Limits) -> LinearAnswer:
        """Solve `model`."""
        from bft.milp.backends import python_mip

        return python_mip.solve(model, "HIGHS", limits)


@dataclass(frozen=True, slots=True)
class SciPy:
    """HiGHS as bundled with SciPy, through scipy.optimize.milp."""

    name: str = "scipy"
    formulations: tuple[str, ...] = MILP_FORMULATIONS
    features: tuple[Feature, ...] = ()

    def available(self) -> Availability:
        """Always available: SciPy is a dependency of this package."""
        return Availability(
            _versions(("scipy", "SciPy")),
            licence="BSD 3-Clause; HiGHS: MIT",
            limits="one thread",
        )

    def solve(self, model: LinearModel, limits: Limits) -> LinearAnswer:
        """Solve `model`."""
        from bft.milp.backends import scipy_milp

        return scipy_milp.solve(model, limits)


@dataclass(frozen=True, slots=True)
class Gurobi:
    """Gurobi through gurobipy. `available` imports gurobipy if it is installed."""

    name: str = "gurobi"
    formulations: tuple[str, ...] = MILP_FORMULATIONS
    features: tuple[Feature, ...] = (Feature.START, Feature.THREADS)

    def available(self) -> Availability:
        """Whether it is installed, and with which licence."""
        if find_spec("gurobipy") is None:
            how_to_get = "pip install gurobipy; it brings a licence for small models"
            return Availability(
                available=False,
                licence="commercial, not installed",
                how_to_get=how_to_get,
            )
        versions = _versions(("gurobipy", "Gurobi"))
        try:
            from bft.milp.backends import gurobi

            limited = gurobi.size_limited()
        except Exception as error:  # a foreign library may raise anything; the user gets its message, not a crash
            return Availability(
                versions,
                False,
                "no valid licence",
                how_to_get=" ".join(str(error).split()),
            )
        if limited:
            limits = f"at most {gurobi.SIZE_LIMIT} variables and {gurobi.SIZE_LIMIT} constraints"
            licence = "comes with gurobipy, size-limited"
            return Availability(
                versions, licence=licence, limits=limits, how_to_get=gurobi.ADVICE
            )
        return Availability(versions, licence="valid, unlimited")

    def solve(self, model: LinearModel, limits: Limits) -> LinearAnswer:
        """Solve `model`."""
        from bft.milp.backends import gurobi

        return gurobi.solve(model, limits)


@dataclass(frozen=True, slots=True)
class Exact:
    """The exact dynamic programme (DP). It solves the problem itself, in this process, so it has no `solve` method."""

    name: str = "exact"
    formulations: tuple[str, ...] = ("modes",)
    features: tuple[Feature, ...] = ()

    def available(self) -> Availability:
        """Always available."""
        versions = _versions(("bft-replay", "bft-replay"), ("numba", "Numba"))
        return Availability(
            versions, licence="MIT", limits="the modes formulation; nobody shares"
        )


EXACT = Exact()
SOLVERS: dict[str, Backend] = {
    backend.name: backend for backend in (Cbc(), Highs(), SciPy(), Gurobi())
}


def _versions(*packages: tuple[str, str]) -> str:
    versions = []
    for package, label in packages:
        try:
            versions.append(f"{label} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(versions)
