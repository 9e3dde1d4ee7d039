"""`bft-replay solve`: one decision, or a batch of them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import click

from bft.models import InputError
from bft.models.checks import option_fields
from bft.models.files import decoded_json, parse_json, read_content, reading
from bft.replay.cli.commands import EXIT_BAD_INPUT, EXIT_DEGRADED, Command
from bft.replay.cli.parameters import option, rare_option, together
from bft.replay.policies.solver import SolverOptions

# All options of the solver but verify, which counts over the decisions of a replay.
SOLVER = [
    replace(each, default=getattr(SolverOptions("auto"), name), section="")
    for name, each in option_fields(SolverOptions).items()
    if name != "verify"
]


@click.command(cls=Command)
@click.argument("problem", metavar="PROBLEM")
@together(*map(option, SOLVER), rare_option)
def solve(problem: str, **given: Any) -> int:
    """Solve PROBLEM, a file or - for standard input: one problem as JSON, or in .jsonl (also .jsonl.gz) one a line.

    In a batch a malformed line becomes an object with the key "error" on its line, and the exit code is 2 at the end.

    Such as:
    bft-replay solve problem.json
    bft-replay solve problems.jsonl.gz --backend highs
    """
    stated = {name: value for name, value in given.items() if value is not None}
    solver = SolverOptions(**stated)
    name = "standard input" if problem == "-" else problem
    if problem == "-" and sys.stdin is None:
        raise InputError("is closed", file=name)
    with reading(name):
        content = sys.stdin.buffer.read() if problem == "-" else read_content(problem)
    if problem.endswith((".jsonl", ".jsonl.gz")):
        return _batch(content, solver)
    try:
        with reading(name):  # a document may not fit into memory
            document = decoded_json(content, name)
    except InputError:
        if problem != "-" or len(content.splitlines()) < 2:
            raise
        return _batch(content, solver)
    answer = _answer(document, solver)
    click.echo(json.dumps(answer, indent=2))
    return EXIT_DEGRADED if answer["status"] == "fallback" else 0


def _batch(content: bytes, solver: SolverOptions) -> int:
    """Answer each line."""
    from bft.milp import ProblemError

    code = 0
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            answer = _answer(parse_json(line), solver)
            if answer["status"] == "fallback" and not code:
                code = EXIT_DEGRADED
        except (ProblemError, ValueError, RecursionError) as error:
            posed = isinstance(error, ProblemError)
            what = str(error) if posed else f"not JSON: {error}"
            answer = {"error": what, "line": number}
            code = EXIT_BAD_INPUT
        click.echo(json.dumps(answer))
    return code


def _answer(document: object, solver: SolverOptions) -> dict[str, Any]:
    from bft import milp

    try:
        posed = milp.parse(document)
    except OverflowError as error:
        raise milp.ProblemError(f"a number is too large: {error}") from error
    return milp.answer(posed, solver.solve(posed.problem))
