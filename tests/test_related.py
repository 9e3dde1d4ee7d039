"""The state of the field: each fact has its source, and the paper cites what its bibliography has."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "related.md").read_text("utf-8")
SOURCES = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", PAGE, flags=re.MULTILINE))


def programs() -> list[list[str]]:
    """Return the rows of the comparison, without its head: cells by column."""
    table = PAGE.split("| tool |", 1)[1].split("\n\n", 1)[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()[2:]
    ]


def test_each_cell_of_the_comparison_links_to_its_source() -> None:
    rows = programs()
    assert len(rows) == 15
    without = [
        (name, cell)
        for name, *cells in rows
        for cell in cells
        if not re.search(r"\]\[|\]\(", cell)
    ]
    assert not without


def test_sources_are_files_at_a_commit_or_papers() -> None:
    used = set(re.findall(r"\]\[([^\]]+)\]", PAGE))
    assert used == set(SOURCES)
    at_a_commit = r"https://github\.com/[\w.-]+/[\w.-]+/(blob|tree)/[0-9a-f]{40}(/.*)?"
    loose = [
        url
        for url in SOURCES.values()
        if not re.fullmatch(rf"{at_a_commit}|https://arxiv\.org/abs/[\d.]+", url)
    ]
    assert not loose


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
    cited = re.findall(r"(?<!\w)@(\w+)", PAPER)
    assert sorted(entries) == sorted(set(cited))
