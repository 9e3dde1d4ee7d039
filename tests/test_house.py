"""Habits of the house: short functions, and pages that lead somewhere."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bft.replay import Traits

ROOT = Path(__file__).parents[1]
FOLDERS = ("api", "milp", "models", "datasets", "replay")
# Pages beside the programs that write or check them; the first two are also pages of the site.
INCLUDED = (
    ROOT / "benchmarks" / "README.md",
    ROOT / "tests" / "rules" / "README.md",
    ROOT / "tests" / "evidence.md",
)
MAX_STATEMENTS = 55  # however the formatter breaks them


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and number of statements of every function of a file, those within its own functions included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = (
                node.body[1:]
                if ast.get_docstring(node, clean=False) is not None
                else node.body
            )
            nodes = (inner for statement in body for inner in ast.walk(statement))
            count = sum(isinstance(inner, ast.stmt) for inner in nodes)
            yield f"{path.relative_to(ROOT)} {node.name}", count


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_has_more_statements_than_a_reader_can_hold(folder: str) -> None:
    paths = (ROOT / folder).glob("**/*.py")
    long = {
        name: count
        for path in paths
        for name, count in functions(path)
        if count > MAX_STATEMENTS
    }
    assert not long


def test_nothing_points_to_pages_outside_the_repository() -> None:
    pointer = re.compile(
        r"DESIGN(\.md)? ?§|DESIGN\.md|POLICIES\.md|REFERENCE\.md|STYLE\.md|REFERENCE §"
    )
    files = [
        path for folder in (*FOLDERS, "benchmarks", "docs") for path in files_of(folder)
    ]
    pointing = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [ROOT / "README.md", *files]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if pointer.search(line)
    ]
    assert not pointing


def test_links_between_pages_lead_somewhere() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *INCLUDED,
        *(path for path in files_of("docs") if path.suffix == ".md"),
    ]
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not lost


def test_programs_that_pages_name_are_there() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *INCLUDED,
        *(path for path in files_of("docs") if path.suffix == ".md"),
    ]
    named = {
        (page.relative_to(ROOT).as_posix(), name)
        for page in pages
        for name in re.findall(
            r"\b(?:tests|benchmarks|examples)/[\w/.-]*\w", page.read_text("utf-8")
        )
    }
    assert not [(page, name) for page, name in named if not (ROOT / name).exists()]


def test_every_benchmark_is_on_the_page_of_measurements() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    programs = {path.name for path in (ROOT / "benchmarks").glob("[!_]*.py")} - {
        "data.py"
    }
    assert programs == set(re.findall(r"benchmarks/(\w+\.py)", text))


def test_the_checklist_of_sources_points_to_files_and_counts_right() -> None:
    text = (ROOT / "tests" / "evidence.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in re.findall(r"^\|.+$", text, re.MULTILINE)
    ]
    rows = [row for row in rows if re.fullmatch(r"[A-Z]\d+", row[0])]
    assert len({row[0] for row in rows}) == len(rows)
    paths = {
        path for row in rows for path in re.findall(r"`([\w/]+\.py)`", " ".join(row))
    }
    assert not [path for path in paths if not (ROOT / path).exists()]
    states = [row[-1].partition(":") for row in rows]
    assert not [
        row[0]
        for row, (state, _, why) in zip(rows, states, strict=True)
        if state != "present" and not why
    ]
    assert {state for state, _, _ in states} <= {"present", "partly", "absent"}
    counts = [
        sum(state == word for state, _, _ in states)
        for word in ("present", "partly", "absent")
    ]
    assert (
        "{} rows: {} present, {} partly, {} absent.".format(len(rows), *counts) in text
    )


def test_the_map_of_the_architecture_names_what_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    missing = []
    for place, content in re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE):
        folders = [ROOT / folder for folder in re.findall(r"`([\w/]+/)`", place)] or [
            ROOT
        ]
        files = "".join(
            (ROOT / path).read_text("utf-8")
            for path in re.findall(r"[\w/]+\.py", content)
        )
        missing += [
            name
            for name in re.findall(r"`([\w/.-]+)`", content)
            if not any(
                (folder / f"{name}{suffix}").exists()
                for folder in folders
                for suffix in ("", ".py")
            )
            and f"def {name}(" not in files
            and name not in ("bft", "Run")
        ]
    source = "".join(
        (ROOT / "replay" / "engine" / f"{file}.py").read_text("utf-8")
        for file in ("loop", "rates")
    )
    event = text.partition("## The way of one event")[2].partition(
        "For `--policy milp`"
    )[0]
    functions = re.findall(r"`(?:Replay\.|Rates\.)?(\w+)`", event)
    missing += [name for name in functions if f"def {name}(" not in source]
    assert functions
    assert not missing


def test_the_words_of_a_kind_on_the_page_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "policies.md").read_text("utf-8")
    words = text.partition("the words are ")[2].partition("(")[0]
    assert tuple(re.findall(r"`(\w+)`", words)) == tuple(Traits.names())


def test_the_index_has_each_page_once() -> None:
    pages = re.findall(
        r"^([\w/-]+)$", (ROOT / "docs" / "index.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(pages) == len(set(pages))


def is_whole(node: ast.expr) -> bool:
    """Whether an expression shows that it is a whole number, or a truth value."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    if isinstance(node, ast.Call):
        name = (
            node.func.id
            if isinstance(node.func, ast.Name)
            else getattr(node.func, "attr", "")
        )
        return name in ("len", "int", "bool", "count", "round", "bit_length")
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def is_broken(node: ast.expr) -> bool:
    """Whether an expression shows that it is a fraction: a division, a call of float, a name in seconds or samples."""
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
            return True
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and part.func.id == "float"
        ):
            return True
        name = part.id if isinstance(part, ast.Name) else getattr(part, "attr", "")
        if re.search(
            r"(_s|seconds|rate|rates|cost|lost_\w+|worth|gain|paid|progress)$", name
        ):
            return True
    return False


def sums_of_fractions(source: str) -> list[int]:
    """Lines with a bare sum() whose terms show that they are fractions."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "sum"
        ):
            terms = node.args[0]
            term = (
                terms.elt
                if isinstance(terms, ast.GeneratorExp | ast.ListComp)
                else terms
            )
            if not is_whole(term) and is_broken(term):
                found.append(node.lineno)
    return found


def test_sums_of_fractions_are_the_same_on_every_python() -> None:
    # From 3.12 on sum() of floats rounds less; math.fsum rounds once, everywhere.
    assert sums_of_fractions(
        "sum(float(x) for x in y)\nsum(a_s)\nsum(len(x) for x in rates)\nsum(units)"
    ) == [1, 2]
    paths = [path for folder in FOLDERS for path in (ROOT / folder).glob("**/*.py")]
    lines = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in paths
        for line in sums_of_fractions(path.read_text("utf-8"))
    ]
    assert not lines


def files_of(folder: str) -> list[Path]:
    """Python files and pages of a folder."""
    return [
        path
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md")
    ]


def test_every_mutant_names_text_that_stands_once() -> None:
    """`make mutants` can try no other; it takes too long to be run each time."""
    stale = [
        f"{mutant['file']}: {mutant['why']}"
        for path in sorted((ROOT / "tests" / "mutants").glob("*.toml"))
        for mutant in tomllib.loads(path.read_text("utf-8"))["mutant"]
        if (ROOT / mutant["file"]).read_text("utf-8").count(mutant["old"]) != 1
    ]
    assert not stale
