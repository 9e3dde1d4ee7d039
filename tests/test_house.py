"""Habits of the house that no tool checks: sums, mutants, metadata and sources; pages name what is there."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from bft.replay import Traits

ROOT = Path(__file__).parents[1]
FOLDERS = ("api", "milp", "models", "datasets", "replay")
DOCS = ROOT / "docs"
# Pages beside the programs that write or check them; the first two are also pages of the site.
INCLUDED = (
    ROOT / "benchmarks" / "README.md",
    ROOT / "tests" / "rules" / "README.md",
    ROOT / "tests" / "evidence.md",
)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *INCLUDED,
    *(path for path in DOCS.rglob("*.md") if "_build" not in path.parts),
]
OUTSIDE = re.compile(r"\b(DESIGN|POLICIES|REFERENCE|STYLE)(\.md|\.md ?§| §)")


def sources(*folders: str):
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


def test_every_benchmark_is_on_the_page_of_measurements() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    programs = {path.name for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert programs - {"data.py"} == set(re.findall(r"benchmarks/(\w+\.py)", text))


def test_the_checklist_of_sources_points_to_files_and_counts_right() -> None:
    text = (ROOT / "tests" / "evidence.md").read_text("utf-8")
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
            if not re.search(rf"(def|class) {name}\b", defined) and not any(
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


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_each_python_that_the_package_names_is_tested() -> None:
    workflow = ROOT / ".github" / "workflows" / "tests.yml"
    if not workflow.exists():
        pytest.skip("an sdist leaves out hidden folders")
    job = yaml.safe_load(workflow.read_text())["jobs"]["pythons"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == named


def test_version_licence_and_repository_are_the_same_in_all_metadata() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    codemeta = json.loads((ROOT / "codemeta.json").read_text())
    repository = PROJECT["urls"]["Repository"]
    assert citation["version"] == codemeta["version"] == PROJECT["version"]
    assert citation["repository-code"] == codemeta["codeRepository"] == repository
    assert codemeta["license"].endswith(f"/{PROJECT['license']}")
    assert citation["license"] == PROJECT["license"]
    texts = [(ROOT / name).read_text() for name in ("LICENSE", "LICENSES/MIT.txt")]
    assert texts[0] == texts[1]


PAGE = (ROOT / "docs" / "related.md").read_text("utf-8")
SOURCES = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", PAGE, flags=re.MULTILINE))


def programs() -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.split("| tool |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    ]


def test_each_cell_of_the_comparison_links_to_its_source() -> None:
    rows = programs()
    assert len(rows) == 15
    assert not [
        (name, cell)
        for name, *cells in rows
        for cell in cells
        if not re.search(r"\]\[|\]\(", cell)
    ]


def test_sources_are_files_at_a_commit_or_papers() -> None:
    assert set(re.findall(r"\]\[([^\]]+)\]", PAGE)) == set(SOURCES)
    at_a_commit = r"https://github\.com/[\w.-]+/[\w.-]+/(blob|tree)/[0-9a-f]{40}(/.*)?"
    assert not [
        url
        for url in SOURCES.values()
        if not re.fullmatch(rf"{at_a_commit}|https://arxiv\.org/abs/[\d.]+", url)
    ]


def test_the_commit_that_a_row_names_is_the_one_that_it_links_to() -> None:
    for name, _, _, newest, *_ in programs():
        named = re.fullmatch(
            r"\[(\d{4}-\d\d-\d\d, ([0-9a-f]{7})|paper only.*)\]\[([^\]]+)\]", newest
        )
        assert named is not None, name
        assert named[2] is None or f"/tree/{named[2]}" in SOURCES[named[3]], name


PAPER = (ROOT / "paper.md").read_text("utf-8")
# As JOSS asks for; how the software was written is for its authors to say, under JOSS's own heading.
SECTIONS = [
    "Summary",
    "Statement of need",
    "State of the field",
    "Software design",
    "Research impact statement",
    "How this software was written",
    "Acknowledgements",
    "References",
]


def test_the_paper_has_the_sections_and_the_length_that_joss_asks_for() -> None:
    assert re.findall(r"^# (.*)$", PAPER, flags=re.MULTILINE) == SECTIONS
    text = PAPER.split("---\n", 2)[2]
    assert 750 <= len(re.sub(r"\]\([^)]*\)", "]", text).split()) <= 1750


def test_the_paper_cites_exactly_what_its_bibliography_has() -> None:
    entries = re.findall(
        r"^@\w+\{(\w+),$", (ROOT / "paper.bib").read_text("utf-8"), flags=re.MULTILINE
    )
    assert sorted(entries) == sorted(set(re.findall(r"(?<!\w)@(\w+)", PAPER)))
