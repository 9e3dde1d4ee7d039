"""`bft-replay solve`: one decision, or a batch of them (DESIGN §6.5)."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from bft.models import InputError
from bft.replay.checks import MAX_LIMIT_S
from bft.replay.cli.main import EXIT_BAD_INPUT, EXIT_DEGRADED
from bft.replay.cli.output import drafted
from bft.replay.cli.parameters import NamesWholeOption, Seconds
from bft.replay.cli.solver_options import solver_options

Solver = Callable[[object], dict[str, Any]]


@click.command(cls=NamesWholeOption, short_help="Solve allocation problems given as JSON.")
@click.argument("problem", metavar="PROBLEM")
@solver_options(default_backend="auto")
@click.option(
    "-optTL",
    "--time-limit",
    "time_limit_s",
    type=Seconds(most=MAX_LIMIT_S),
    help="Time limit of one problem, seconds. [none]",
)
@click.option("-o", "--output", metavar="FILE", help="Where to write the answer. [standard output]")
def solve(
    problem: str,
    backend: str,
    formulation: str,
    strict_reference: bool,
    time_limit_s: float | None,
    gap: float,
    threads: int,
    output: str | None,
) -> int:
    """Solve PROBLEM: a .json file with one problem, a .jsonl or .jsonl.gz file with one a line, or - for either.

    In a batch a malformed line becomes an object with the key "error" on its line, and the exit code is 2 at the end.
    """
    from bft import milp

    def one(document: object) -> dict[str, Any]:
        try:
            posed = milp.parse(document)
        except OverflowError as error:
            raise milp.ProblemError(f"a number is too large: {error}") from error
        solution = milp.solve(
            posed.problem,
            backend=backend,
            formulation=formulation,
            strict_reference=strict_reference,
            time_limit=time_limit_s,
            gap=gap,
            threads=threads,
        )
        return milp.answer(posed, solution)

    if problem == "-":
        text = sys.stdin.buffer.read()
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            if len(text.splitlines()) < 2:
                raise InputError(f"not JSON: {error}", file="standard input") from None
            with _sink(output) as sink:
                return _batch(io.BytesIO(text), one, sink)
        return _single(document, one, output)
    path = Path(problem)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        with _reading(path):
            file = path.open("rb")
        with file, _sink(output) as sink:
            return _batch(_lines(file, path), one, sink)
    with _reading(path):
        content = path.read_bytes()
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", file=path) from None
    return _single(document, one, output)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Tell what goes wrong in reading `path`."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"damaged or cut short: {error}", file=path, hint="copy it again") from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """The lines of a file, compressed or not."""
    with _reading(path):
        yield from gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file


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
            answer = one(json.loads(line))
            if answer["status"] == "fallback" and not code:
                code = EXIT_DEGRADED
        except (ProblemError, ValueError, RecursionError) as error:
            answer = {"error": str(error) if isinstance(error, ProblemError) else f"not JSON: {error}", "line": number}
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
