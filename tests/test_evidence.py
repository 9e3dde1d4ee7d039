"""Tables and figures of the pages are what their benchmark printed; reference data are fetched whole and checked."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import result_of
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


TABLE, CURVE = b"job,seconds\na,5\n", b"units,rate\n1,10\n"


def git(folder: Path, *arguments: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    done = result_of(["git", "-C", str(folder), *own, *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with a list of five files and one source: a repository whose newest commit has spoilt a table."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import data

    clone = tmp_path / "clone"
    (clone / "tables").mkdir(parents=True)
    (clone / "tables" / "jobs.csv").write_bytes(TABLE)
    (clone / "curves.csv").write_bytes(CURVE)
    git(clone, "init", "--quiet")
    git(clone, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "-m", "pinned")
    commit = git(clone, "rev-parse", "HEAD")
    (clone / "tables" / "jobs.csv").write_text("spoilt")
    git(clone, "commit", "--quiet", "-a", "-m", "later")
    folders = (("tables/", "own/"), ("", "own/"))

    def both(_name: Any, contents: Any) -> bytes:
        return bytes(contents("tables/jobs.csv") + contents("curves.csv"))

    def results(checkout: Path, _reference: Path, interpreter: str) -> Any:
        """A program that says how many lines the table of the commit has."""
        count = "print(len(open('tables/jobs.csv').readlines()))"
        words = [interpreter, "-c", count]
        yield "own/golden/result.csv", subprocess.check_output(words, cwd=checkout)

    source = data.Source(
        clone.as_uri(),
        commit,
        folders,
        {r"own/both\.csv": both},
        data.Program("any Python", results),
    )
    monkeypatch.setattr(data, "SOURCES", {"own": source})
    sums = {
        "own/jobs.csv": TABLE,
        "own/curves.csv.gz": CURVE,
        "own/both.csv": TABLE + CURVE,
        "own/golden/ours.csv": b"computed",
        "own/golden/result.csv": b"2\n",
        "other/jobs.csv": TABLE,
    }
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in sums.items()
    ]
    (tmp_path / "list").write_text("".join(lines))
    monkeypatch.setattr(data, "LIST", tmp_path / "list")
    return data


def test_files_come_from_the_pinned_commit_and_are_checked(
    data: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reference"
    assert data.fetch("own", folder) == 0
    assert (folder / "own" / "jobs.csv").read_bytes() == TABLE
    assert gzip.decompress((folder / "own" / "curves.csv.gz").read_bytes()) == CURVE
    printed = capsys.readouterr().out
    assert (folder / "own" / "both.csv").read_bytes() == TABLE + CURVE
    assert "3 fetched" in printed
    assert "2 not in this repository" in printed
    assert "--run PYTHON makes more of them" in printed
    assert not (folder / "other").exists()
    assert data.check(folder) == 1  # three files are absent still
    printed = capsys.readouterr().out
    assert "absent    own/golden/ours.csv" in printed
    assert "own         2 absent, 3 same" in printed


def test_a_program_makes_its_results_and_no_others_are_taken(
    data: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reference"
    assert data.fetch("own", folder, run=sys.executable) == 0
    assert (folder / "own" / "golden" / "result.csv").read_bytes() == b"2\n"
    printed = capsys.readouterr().out
    assert "1 made by its program" in printed
    assert "1 not in this repository" in printed

    (folder / "own" / "golden" / "result.csv").unlink()
    data.LIST.write_text(data.LIST.read_text().replace("own/jobs.csv", "own/gone.csv"))
    other = hashlib.sha256(b"3\n").hexdigest()
    mine = hashlib.sha256(b"2\n").hexdigest()
    data.LIST.write_text(data.LIST.read_text().replace(mine, other))
    refused(
        "gives another result; it needs any",
        data.fetch,
        "own",
        folder,
        run=sys.executable,
        error=data.FetchError,
    )
    refused(
        r"no-such-python",
        data.fetch,
        "own",
        folder,
        run="no-such-python",
        error=data.FetchError,
    )
    assert not (folder / "own" / "golden" / "result.csv").exists()


def test_a_pickle_of_results_that_is_not_the_published_one_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks._derived import SHOCKWAVE_RUNS, _shockwave_results

    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    content = pickle.dumps(Runs())
    for run in SHOCKWAVE_RUNS:
        refused(
            "not the published pickle",
            _shockwave_results,
            run,
            lambda _: content,
            error=RuntimeError,
        )
    assert not (tmp_path / "ran").exists()


def test_a_file_with_another_content_is_neither_replaced_nor_taken_for_right(
    data: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "reference" / "own" / "jobs.csv"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    (mine.parent / "curves.csv.gz").write_bytes(b"no gzip at all")
    clone = str(tmp_path / "clone")
    assert data.fetch("own", tmp_path / "reference", clone) == 1
    assert mine.read_text() == "mine"
    assert capsys.readouterr().out.count("not replaced") == 2
    assert data.check(tmp_path / "reference") == 1
    assert "different own/curves.csv.gz" in capsys.readouterr().out


def test_without_a_way_there_it_says_how_to_place_the_files(
    data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = data.Source((tmp_path / "gone").as_uri(), "0" * 40, (("", "own/"),))
    monkeypatch.setattr(data, "SOURCES", {"own": gone})
    monkeypatch.setenv("BFT_REFERENCE", str(tmp_path / "reference"))
    stopped = refused("", data.main, ["--fetch", "own"], error=SystemExit)
    told = str(stopped)
    assert "cannot be reached" in told
    assert "--fetch own --from CLONE" in told
    assert not (tmp_path / "reference").exists()
    refused(
        "does not have 0000",
        data.main,
        ["--fetch", "own", "--from", str(tmp_path / "clone")],
        error=SystemExit,
    )


def test_each_source_names_a_whole_commit_and_files_of_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.data import SOURCES, listed

    for name, source in SOURCES.items():
        assert len(source.commit) == 40, name
        assert source.derived or any(source.candidates(each) for each in listed()), name


def test_four_fifths_of_the_comparisons_run_with_what_is_fetched() -> None:
    """And the page says how many."""
    page = (ROOT / "docs" / "evidence.md").read_text("utf-8")
    table = page[page.index("| policy | source |") :].split("\n\n")[0].splitlines()
    said = [row.rsplit("|", 2)[1].split()[0].rstrip(":,") for row in table[2:]]
    assert set(said) == {"yes", "no"}
    count = said.count("yes")
    assert count >= 0.8 * len(said)
    assert f"{count} of {len(said)} rows" in page
