"""`bft-replay solve`: one decision, or a batch of them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click

from bft.models import InputError
from bft.models.checks import option_fields
from bft.models.files import (
    decoded_json,
    drafted,
    opened,
    parse_json,
    read_json,
    reading,
)
from bft.replay.cli.groups import Command
from bft.replay.cli.main import EXIT_BAD_INPUT, EXIT_DEGRADED
from bft.replay.cli.parameters import (
    Decorator,
    option,
    output_option,
    rare_option,
    together,
)
from bft.replay.policies.solver import SolverOptions


def solver_options(default: SolverOptions) -> Decorator:
    """Give a command all options of the solver but verify, which counts over the decisions of a replay."""
    fields = [
        replace(each, default=getattr(default, each.name), section="")
        for each in option_fields(SolverOptions).values()
        if each.name != "verify"
    ]
    return together(*map(option, fields), rare_option)


Solver = Callable[[object], dict[str, Any]]


@click.command(cls=Command)
@click.argument("problem", metavar="PROBLEM")
@solver_options(SolverOptions("auto"))
@output_option("Where to write the answer. [standard output]", required=False)
def solve(problem: str, output: str | None, **given: Any) -> int:
    """Solve PROBLEM: a .json file with one problem, a .jsonl or .jsonl.gz file with one a line, or - for either.

    In a batch a malformed line becomes an object with the key "error" on its line, and the exit code is 2 at the end.
    """
    from bft import milp

    stated = {name: value for name, value in given.items() if value is not None}
    solver = SolverOptions(**stated)

    def one(document: object) -> dict[str, Any]:
        try:
            posed = milp.parse(document)
        except OverflowError as error:
            raise milp.ProblemError(f"a number is too large: {error}") from error
        return milp.answer(posed, solver.solve(posed.problem))

    if problem == "-":
        return _standard_input(one, output)
    path = Path(problem)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        with reading(path):
            path.open("rb").close()  # before an output is begun
        with _sink(output) as sink:
            return _batch(_lines(path), one, sink)
    return _single(read_json(path), one, output)


def _standard_input(one: Solver, output: str | None) -> int:
    """Read one problem, or one a line: text that is no JSON as a whole is read line by line."""
    name = "standard input"
    if sys.stdin is None:
        raise InputError("is closed", file=name)
    with reading(name):
        text = sys.stdin.buffer.read()
    try:
        document = decoded_json(text, name)
    except InputError:
        if len(text.splitlines()) < 2:
            raise
        with _sink(output) as sink:
            return _batch(io.BytesIO(text), one, sink)
    return _single(document, one, output)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, compressed or not."""
    with opened(path) as stream:
        yield from stream


def _single(document: object, one: Solver, output: str | None) -> int:
    answer = one(document)
    with _sink(output) as sink:
        sink.write(json.dumps(answer, indent=2) + "\n")
    return EXIT_DEGRADED if answer["status"] == "fallback" else 0


def _batch(source: Iterable[bytes], one: Solver, sink: IO[str]) -> int:
    from bft.milp import ProblemError

    code = 0
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            answer = one(parse_json(line))
            if answer["status"] == "fallback" and not code:
                code = EXIT_DEGRADED
        except (ProblemError, ValueError, RecursionError) as error:
            answer = {
                "error": str(error)
                if isinstance(error, ProblemError)
                else f"not JSON: {error}",
                "line": number,
            }
            code = EXIT_BAD_INPUT
        sink.write(json.dumps(answer) + "\n")
    return code


@contextmanager
def _sink(output: str | None) -> Iterator[IO[str]]:
    """Standard output, or a file that appears only when all has been written."""
    if output is None:
        yield sys.stdout
        return
    with drafted(output) as draft, draft.open("w", encoding="utf-8") as file:
        yield file
