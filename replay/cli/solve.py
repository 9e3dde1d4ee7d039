"""`bft-replay solve`: one decision, or a batch of them (DESIGN §6.5)."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from bft.models import InputError
from bft.replay.cli.main import EXIT_BAD_INPUT, EXIT_DEGRADED
from bft.replay.cli.parameters import Seconds

Solver = Callable[[object], dict[str, Any]]


@click.command(short_help="Solve allocation problems given as JSON.")
@click.argument("problem", metavar="PROBLEM")
@click.option("--backend", type=click.Choice(["auto", "cbc", "exact"]), default="auto", show_default=True,
              help="What solves it.")  # fmt: skip
@click.option("--formulation", type=click.Choice(["modes"]), default="modes", show_default=True,
              help="How the MILP is written.")  # fmt: skip
@click.option(
    "-optTL", "--time-limit", "time_limit_s", type=Seconds(), help="Time limit of one problem, seconds. [none]"
)
@click.option("--gap", type=click.FloatRange(min=0, max=1, max_open=True), default=0.0, show_default=True,
              help="Relative gap at which a solver may stop.")  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of the solver.")
@click.option("-o", "--output", metavar="FILE", help="Where to write the answer. [standard output]")
def solve(
    problem: str,
    backend: str,
    formulation: str,
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
        posed = milp.parse(document)
        solution = milp.solve(
            posed.problem,
            backend=backend,
            formulation=formulation,
            time_limit=time_limit_s,
            gap=gap,
            threads=threads,
        )
        return milp.answer(posed, solution)

    if problem == "-":
        text = sys.stdin.buffer.read()
        try:
            document = json.loads(text)
        except ValueError:
            if len(text.splitlines()) < 2:
                raise _not_json("standard input", text) from None
            with _sink(output) as sink:
                return _batch(io.BytesIO(text), one, sink)
        return _single(document, one, output)
    path = Path(problem)
    try:
        if path.name.endswith((".jsonl", ".jsonl.gz")):
            with path.open("rb") as file, _sink(output) as sink:
                return _batch(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, one, sink)
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except (OSError, EOFError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from error
    try:
        document = json.loads(content)
    except ValueError:
        raise _not_json(str(path), content) from None
    return _single(document, one, output)


def _not_json(source: str, content: bytes) -> InputError:
    try:
        json.loads(content)
    except ValueError as error:
        return InputError(f"not JSON: {error}", file=source)
    raise AssertionError("called for content that is not JSON")


def _single(document: object, one: Solver, output: str | None) -> int:
    answer = one(document)
    with _sink(output) as sink:
        sink.write(json.dumps(answer, indent=2, ensure_ascii=False) + "\n")
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
        except (ProblemError, ValueError) as error:
            answer = {"error": str(error) if isinstance(error, ProblemError) else f"not JSON: {error}", "line": number}
            code = EXIT_BAD_INPUT
        sink.write(json.dumps(answer, ensure_ascii=False) + "\n")
    return code


@contextmanager
def _sink(output: str | None) -> Iterator[IO[str]]:
    """Standard output, or a file that appears only when all has been written."""
    if output is None:
        yield sys.stdout
        return
    path = Path(output)
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("w", encoding="utf-8") as file:
            yield file
        draft.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error
    finally:
        draft.unlink(missing_ok=True)
