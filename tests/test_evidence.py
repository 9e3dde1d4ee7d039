"""Tables and figures of the pages are what the last run of their benchmark printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

ROOT = Path(__file__).parents[1]
PROGRAM = """import sys
print("first")
for share in sys.argv[1:]:
    print(f"| run | share |\\n|---|---|\\n| best | {share} % |\\n")
"""
PAGE = """# A page

<!-- evidence: print_shares.py 3 4 -->
<!-- end -->

<!-- evidence 2: print_shares.py 3 4 -->
| old |
<!-- end -->
"""
README = "A share of <!-- cell docs/page.md :: best :: share -->?<!-- end --> or so.\n"


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import evidence

    return evidence


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A page with two tables of a program."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "print_shares.py").write_text(PROGRAM)
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    (tmp_path / "README.md").write_text("Nothing.\n")
    return tmp_path


def test_each_table_and_figure_is_of_the_last_run(evidence: Any) -> None:
    assert list(evidence.wrong(ROOT)) == []


def test_the_figures_of_the_readme_are_among_them(evidence: Any) -> None:
    """Shares and errors in its text are cells of tables; the exceptions are facts about machines or the package."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(list(evidence.CELL.finditer(text))) >= 4
    rest = evidence.CELL.sub("", text)
    percentages = re.findall(r"[\d.-]+ %", rest)
    assert percentages == ["5-10 %"]


def test_a_run_writes_its_tables_and_a_changed_table_is_found(
    evidence: Any, site: Path
) -> None:
    page = site / "docs" / "page.md"
    (site / "README.md").write_text(README)
    assert len(list(evidence.wrong(site))) == 3  # nothing has run yet
    (site / "README.md").write_text("Nothing.\n")
    evidence.main([], site)
    written = page.read_text()
    assert "| best | 3 % |\n<!-- end -->" in written
    assert "| best | 4 % |\n<!-- end -->" in written
    assert "old" not in written
    assert list(evidence.wrong(site)) == []

    page.write_text(written.replace("4 %", "5 %"))
    (found,) = evidence.wrong(site)
    assert found.startswith("docs/page.md: not table 2 of the last run")
    refused("not table 2", evidence.main, ["--check"], site, error=SystemExit)

    page.write_text("# Without tables\n")
    (found,) = evidence.wrong(site)
    assert "no page has a table" in found


def test_a_sentence_quotes_a_cell(evidence: Any, site: Path) -> None:
    (site / "docs" / "page.md").write_text(PAGE.split("<!-- evidence 2")[0])
    (site / "README.md").write_text(README)
    evidence.main([], site)
    assert "-->3 %<!-- end --> or so" in (site / "README.md").read_text()
    (site / "README.md").write_text(README.replace("?", "2 %"))
    (found,) = evidence.wrong(site)
    assert found == "README.md: 2 % for 3 % in docs/page.md"
    (site / "README.md").write_text(README.replace("best", "worst"))
    (found,) = evidence.wrong(site)
    assert found == "README.md: 0 cells worst | share in docs/page.md, not one"
    evidence.main([], site)
    assert "-->?<!-- end -->" in (site / "README.md").read_text()
    (site / "README.md").write_text(README.replace("of ", "of\n").replace("?", "3 %"))
    (found,) = evidence.wrong(site)
    assert found.startswith("README.md: a comment that begins a line ends a paragraph")


def test_a_program_that_fails_changes_nothing(evidence: Any, site: Path) -> None:
    (site / "print_shares.py").write_text(PROGRAM + "sys.exit(3)\n")
    refused("exit code 3", evidence.main, [], site, error=SystemExit)
    assert (site / "docs" / "page.md").read_text() == PAGE
    assert not (site / "docs" / "evidence.json").exists()
