"""Habits of the house that no tool checks: sums, mutants, and that pages name what is there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from bft.replay import Traits

ROOT = Path(__file__).parents[1]
FOLDERS = ("api", "milp", "models", "datasets", "replay")
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
OUTSIDE = re.compile(r"\b(DESIGN|POLICIES|REFERENCE|STYLE)(\.md|\.md ?§| §)")


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    """Path and text of every Python file below these folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def test_nothing_points_to_pages_outside_the_repository() -> None:
    texts = [(str(page), page.read_text("utf-8")) for page in PAGES]
    texts += sources(*FOLDERS, "benchmarks")
    assert not [name for name, text in texts if OUTSIDE.search(text)]


def test_programs_that_pages_name_are_there() -> None:
    named = re.compile(r"\b(?:tests|benchmarks|examples)/[\w/.-]*\w")
    names = {name for page in PAGES for name in named.findall(page.read_text("utf-8"))}
    assert not [name for name in sorted(names) if not (ROOT / name).exists()]


def test_every_benchmark_is_on_the_page_of_evidence() -> None:
    text = (DOCS / "evidence.md").read_text("utf-8")
    programs = {path.name for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    named = set(re.findall(r"benchmarks/(\w+\.py)", text))
    assert programs - {"data.py"} == named


def test_the_checklist_of_sources_points_to_files_and_counts_right() -> None:
    text = (DOCS / "evidence.md").read_text("utf-8")
    lines = re.findall(r"^\| ([A-Z]\d+) \|(.+) \| (\w+)(:.+)? \|$", text, re.MULTILINE)
    assert len({name for name, *_ in lines}) == len(lines)
    paths = set(re.findall(r"`([\w/]+\.py)`", " ".join(map(" ".join, lines))))
    assert not [path for path in paths if not (ROOT / path).exists()]
    assert not [name for name, _, state, why in lines if state != "present" and not why]
    words = ("present", "partly", "absent")
    counts = [sum(state == word for _, _, state, _ in lines) for word in words]
    told = "{} rows: {} present, {} partly, {} absent.".format(len(lines), *counts)
    assert told in text
    assert sum(counts) == len(lines)


def test_the_map_of_the_architecture_names_what_exists() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    missing = []
    for place, content in re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE):
        folders = [ROOT / each for each in re.findall(r"`([\w/]+/)`", place)] or [ROOT]
        files = [ROOT / path for path in re.findall(r"[\w/]+\.py", content)]
        defined = "".join(path.read_text("utf-8") for path in files)
        for name in set(re.findall(r"`([\w/.-]+)`", content)) - {"bft", "Run"}:
            places = [
                folder / f"{name}{end}" for folder in folders for end in ("", ".py")
            ]
            if f"def {name}(" not in defined and not any(
                path.exists() for path in places
            ):
                missing.append(name)
    assert not missing
    event = text.partition("## The way of one event")[2]
    names = re.findall(r"`(?:Replay\.|Rates\.)?(\w+)`", event.partition("For `--policy milp`")[0])  # fmt: skip
    engine = "".join(text for _, text in sources("replay/engine"))
    assert names
    assert not [name for name in names if f"def {name}(" not in engine]


def test_the_words_of_a_kind_on_the_page_are_those_of_the_code() -> None:
    text = (DOCS / "policies.md").read_text("utf-8")
    words = text.partition("the words are ")[2].partition("(")[0]
    assert tuple(re.findall(r"`(\w+)`", words)) == tuple(Traits.names())


FRACTION = re.compile(r" / |\bfloat\(|(_s|seconds|rates?|cost|lost_\w+|worth|gain|paid|progress)\b")  # fmt: skip
WHOLE = re.compile(
    r"(\w+\.)*(len|int|bool|count|round|bit_length)\(.*\)|\d+|not .*|.* (and|or|in|is|[<>=!]+) .*"
)  # fmt: skip


def sums_of_fractions(source: str) -> list[int]:
    """Lines with a bare sum() whose terms show that they are fractions."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "sum":
            term = ast.unparse(getattr(node.args[0], "elt", node.args[0]))
            if FRACTION.search(term) and not WHOLE.fullmatch(term):
                found.append(node.lineno)
    return found


def test_sums_of_fractions_are_the_same_on_every_python() -> None:
    # From 3.12 on sum() of floats rounds less; math.fsum rounds once, everywhere.
    shown = "sum(float(x) for x in y)\nsum(a_s)\nsum(len(x) for x in rates)\nsum(units)"
    assert sums_of_fractions(shown) == [1, 2]
    assert not {name: lines for name, text in sources(*FOLDERS) if (lines := sums_of_fractions(text))}  # fmt: skip


def test_every_mutant_names_text_that_stands_once() -> None:
    """`make mutants` can try no other; it takes too long to be run each time."""
    lists = sorted((ROOT / "tests" / "mutants").glob("*.toml"))
    mutants = [each for path in lists for each in tomllib.loads(path.read_text("utf-8"))["mutant"]]  # fmt: skip
    assert not [
        f"{each['file']}: {each['why']}"
        for each in mutants
        if (ROOT / each["file"]).read_text("utf-8").count(each["old"]) != 1
    ]
