"""The allocation problem and its solvers. Nothing here knows about time, logs or files.

>>> import numpy as np
>>> from bft.milp import Job, Problem, solve
>>> curve = dict(ns=np.array([0.0, 1.0, 4.0]), os=np.array([0.0, 10.0, 30.0]), tcup=20.0, tcdw=10.0)
>>> problem = Problem(5, 120.0, (Job("a", 1, 4, **curve), Job("b", 1, 4, **curve)), (1, 0))
>>> solve(problem, backend="exact").counts
(1, 4)
"""

import warnings
from typing import Any

from bft.milp.backends.backend_api import Availability, Backend, Feature
from bft.milp.backends.process import SolverProcess
from bft.milp.backends.registry import backend_names
from bft.milp.classes import replaced
from bft.milp.documents import Document, answer, parse
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel, LinearStatus
from bft.milp.formulations.transfers import move, settle
from bft.milp.problem import (
    TIES,
    CostModel,
    Counts,
    Job,
    Pair,
    Problem,
    ProblemError,
    Solution,
    Ties,
    Transfer,
    UnitKinds,
)
from bft.milp.solve import FORMULATIONS, solve
from bft.milp.tolerances import TOLERANCE
from bft.milp.values import keep, tamed, total_value, value_table, value_tables

__all__ = [
    "FORMULATIONS",
    "TIES",
    "TOLERANCE",
    "Availability",
    "Backend",
    "CostModel",
    "Counts",
    "Document",
    "Feature",
    "Job",
    "Limits",
    "LinearAnswer",
    "LinearModel",
    "LinearStatus",
    "Pair",
    "Problem",
    "ProblemError",
    "Solution",
    "SolverProcess",
    "Ties",
    "Transfer",
    "UnitKinds",
    "answer",
    "backend_names",
    "keep",
    "move",
    "parse",
    "replaced",
    "settle",
    "solve",
    "tamed",
    "total_value",
    "value_table",
    "value_tables",
]


def __getattr__(name: str) -> Any:
    """Return `Problem.of_kinds` under its old name, with a warning."""
    if name != "KindsProblem":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "bft.milp.KindsProblem is now bft.milp.Problem.of_kinds",
        DeprecationWarning,
        stacklevel=2,
    )
    return Problem.of_kinds
