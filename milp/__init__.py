"""The allocation problem and its solvers. Nothing here knows about time, logs or files.

>>> import numpy as np
>>> from bft.milp import Job, Problem, solve
>>> curve = dict(ns=np.array([0.0, 1.0, 4.0]), os=np.array([0.0, 10.0, 30.0]), tcup=20.0, tcdw=10.0)
>>> problem = Problem(5, 120.0, (Job("a", 1, 4, **curve), Job("b", 1, 4, **curve)), (1, 0))
>>> solve(problem, backend="exact").counts
(1, 4)
"""

from bft.milp.backends.backend_api import Availability, Backend, Feature
from bft.milp.backends.process import SolverProcess
from bft.milp.backends.registry import backend_names
from bft.milp.documents import Document, answer, parse
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel, LinearStatus
from bft.milp.formulations.transfers import move, settle
from bft.milp.jobs import Job, ProblemError
from bft.milp.problem import (
    TIES,
    CostModel,
    Counts,
    Limit,
    Pair,
    Problem,
    Solution,
    Ties,
    Transfer,
    UnitKinds,
)
from bft.milp.solve import FORMULATIONS, solve
from bft.milp.tables import keep
from bft.milp.terms import Rows, Terms
from bft.milp.tolerances import TOLERANCE
from bft.milp.values import Value, value

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
    "Limit",
    "Limits",
    "LinearAnswer",
    "LinearModel",
    "LinearStatus",
    "Pair",
    "Problem",
    "ProblemError",
    "Rows",
    "Solution",
    "SolverProcess",
    "Terms",
    "Ties",
    "Transfer",
    "UnitKinds",
    "Value",
    "answer",
    "backend_names",
    "keep",
    "move",
    "parse",
    "settle",
    "solve",
    "value",
]
