"""One decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from bft.milp import Problem, Solution


@overload
def solve(problem: Problem, **options: Any) -> Solution: ...
@overload
def solve(problem: Mapping[str, Any], **options: Any) -> dict[str, Any]: ...


def solve(
    problem: Problem | Mapping[str, Any], **options: Any
) -> Solution | dict[str, Any]:
    """Solve one allocation problem: which job gets how many of the units that are there.

    Parameters
    ----------
    problem
        A `bft.milp.Problem`, or a document as `bft-replay solve` reads it (docs/formats.md).
    **options
        `backend`, `formulation`, `time_limit_s`, `gap`, `threads`, `ties` and others, with the checks of the command
        line: see `bft.replay.SolverOptions`.

    Returns
    -------
    Solution or dict
        Of a document a document: status, objective, and units by name of the job.

    Raises
    ------
    ProblemError
        When the problem is malformed, or the backend cannot solve it.
    InputError
        When an option is unknown or has a value that it may not have.

    Examples
    --------
    >>> import bft
    >>> curve = {"Jmin": 1, "Jmax": 4, "Ns": [0, 1, 4], "Os": [0, 10, 30], "Tcup": 20, "Tcdw": 10}
    >>> jobs = [{"name": "a", **curve, "current": [0]}, {"name": "b", **curve, "current": []}]
    >>> answer = bft.solve({"units": 5, "Tfwd": 120, "jobs": jobs})
    >>> answer["counts"], answer["status"]
    ({'a': 1, 'b': 4}, 'optimal')
    """
    from bft import milp
    from bft.models import InputError
    from bft.models.checks import did_you_mean
    from bft.replay.policies.solver import SolverOptions

    known = SolverOptions.__dataclass_fields__
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise InputError(f"unknown option {unknown!r}{did_you_mean(unknown, known)}")
    solver = SolverOptions(**{"backend": "auto", **options})
    if isinstance(problem, milp.Problem):
        return solver.solve(problem)
    document = milp.parse(problem)
    return milp.answer(document, solver.solve(document.problem))
