"""Tables and figures of the pages are what their benchmark printed; reference data are fetched whole and checked."""

import gzip
import hashlib
import pickle
import re
import subprocess
import sys
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from processes import result_of
from refusals import refused

from benchmarks import evidence
from benchmarks._derived import SHOCKWAVE_RUNS, _shockwave_results

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
def site(tmp_path: Path):
    """A page with two tables of a program."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "print_shares.py").write_text(PROGRAM)
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    (tmp_path / "README.md").write_text("Nothing.\n")
    return tmp_path


def test_each_table_and_figure_is_of_the_last_run() -> None:
    assert list(evidence.wrong(ROOT)) == []


def test_the_figures_of_the_readme_are_among_them() -> None:
    """Shares and errors in its text are cells of tables; the exceptions are facts about machines or the package."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(list(evidence.CELL.finditer(text))) >= 4
    assert re.findall(r"[\d.-]+ %", evidence.CELL.sub("", text)) == ["5-10 %"]


def test_a_run_writes_its_tables_and_a_changed_table_is_found(site: Path) -> None:
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


@pytest.mark.parametrize(
    ("text", "said", "then"),
    [
        (README.replace("?", "2 %"), "README.md: 2 % for 3 % in docs/page.md", "-->3 %<!--"),
        (README.replace("best", "worst"), "README.md: 0 cells worst | share in docs/page.md, not one", "-->?<!--"),
        (README.replace("of ", "of\n").replace("?", "3 %"),
         "README.md: a comment that begins a line ends a paragraph", "-->3 %<!--"),
    ],
)  # fmt: skip
def test_a_sentence_quotes_a_cell(text: str, said: str, then: str, site: Path) -> None:
    readme = site / "README.md"
    (site / "docs" / "page.md").write_text(PAGE.split("<!-- evidence 2")[0])
    readme.write_text(README)
    evidence.main([], site)
    assert "-->3 %<!-- end --> or so" in readme.read_text()
    readme.write_text(text)
    (found,) = evidence.wrong(site)
    assert found.startswith(said)
    evidence.main([], site)
    assert then in readme.read_text()


def test_a_program_that_fails_changes_nothing(site: Path) -> None:
    (site / "print_shares.py").write_text(PROGRAM + "sys.exit(3)\n")
    refused("exit code 3", evidence.main, [], site, error=SystemExit)
    assert (site / "docs" / "page.md").read_text() == PAGE
    assert not (site / "docs" / "evidence.json").exists()


@pytest.mark.slow
def test_a_spec_is_measured_beside_a_commit() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no clone")
    program = [sys.executable, str(ROOT / "benchmarks" / "speed.py")]
    words = ["--only", "event, 20 jobs", "--against", "HEAD", "--rounds", "1"]
    done = result_of([*program, *words])
    assert done.returncode == 0, done.stderr
    _, _, row = done.stdout.splitlines()
    here, there = (float(row.split("|")[column]) for column in (3, 5))
    assert 0.2 < here / there < 5


TABLE, CURVE = b"job,seconds\na,5\n", b"units,rate\n1,10\n"
COMMIT = "0" * 40


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The module, with a list of six files and one source, which is downloaded from a server of our own."""
    pytest.importorskip("pooch", reason="an extra that is not installed")
    from benchmarks import data

    tree = tmp_path / "clone"
    (tree / "tables").mkdir(parents=True)
    (tree / "tables" / "jobs.csv").write_bytes(TABLE)
    (tree / "curves.csv").write_bytes(CURVE)
    (tmp_path / "own" / "archive").mkdir(parents=True)
    archive = tmp_path / "own" / "archive" / f"{COMMIT}.tar.gz"
    with tarfile.open(archive, "w:gz") as files:
        files.add(tree, "own-0")

    def both(_name, contents) -> bytes:
        return bytes(contents("tables/jobs.csv") + contents("curves.csv"))

    def results(checkout: Path, _reference: Path, interpreter: str):
        words = [interpreter, "-c", "print(len(open('tables/jobs.csv').readlines()))"]
        yield "own/golden/result.csv", subprocess.check_output(words, cwd=checkout)

    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        source = data.Source(
            f"http://127.0.0.1:{server.server_port}/own",
            COMMIT,
            (("tables/", "own/"), ("", "own/")),
            {r"own/both\.csv": both},
            results,
            "any Python",
        )
        monkeypatch.setattr(data, "SOURCES", {"own": source})
        write_list(data, tmp_path, monkeypatch)
        yield data
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


def write_list(
    data, folder: Path, monkeypatch: pytest.MonkeyPatch, result: bytes = b"2\n"
) -> None:
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in {
            "own/jobs.csv": TABLE,
            "own/curves.csv.gz": CURVE,
            "own/both.csv": TABLE + CURVE,
            "own/golden/ours.csv": b"computed",
            "own/golden/result.csv": result,
            "other/jobs.csv": TABLE,
        }.items()
    ]
    (folder / "list").write_text("".join(lines))
    monkeypatch.setattr(data, "LIST", folder / "list")


def test_files_of_the_pinned_commit_are_placed_and_checked(
    data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reference"
    data.fetch("own", folder)
    assert (folder / "own" / "jobs.csv").read_bytes() == TABLE
    assert gzip.decompress((folder / "own" / "curves.csv.gz").read_bytes()) == CURVE
    assert (folder / "own" / "both.csv").read_bytes() == TABLE + CURVE
    assert not (folder / "other").exists()
    assert data.check(folder) == {"same": 3, "absent": 3}
    assert "absent    own/golden/ours.csv" in capsys.readouterr().out


def test_a_program_makes_its_results_and_no_others_are_taken(
    data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, clone = tmp_path / "reference", str(tmp_path / "clone")
    data.fetch("own", folder, run=sys.executable)
    result = folder / "own" / "golden" / "result.csv"
    assert result.read_bytes() == b"2\n"

    result.unlink()
    fetch = partial(data.fetch, "own", folder, clone)
    refused("no-such-python", fetch, "no-such-python", error=SystemExit)
    write_list(data, tmp_path, monkeypatch, result=b"3\n")
    refused("needs any Python", fetch, sys.executable, error=SystemExit)
    assert not result.exists()


def test_a_pickle_of_results_that_is_not_the_published_one_is_not_opened(
    tmp_path: Path,
) -> None:
    class Runs:
        def __reduce__(self):
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
    data, tmp_path: Path
) -> None:
    mine = tmp_path / "reference" / "own" / "jobs.csv"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    (mine.parent / "curves.csv.gz").write_bytes(b"no gzip at all")
    (tmp_path / "clone" / "tables" / "jobs.csv").write_text("spoilt")
    data.fetch("own", tmp_path / "reference", str(tmp_path / "clone"))
    assert mine.read_text() == "mine"
    assert data.check(tmp_path / "reference", "own") == {"different": 2, "absent": 3}


def test_without_a_way_there_it_says_how_to_place_the_files(
    data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = data.Source("http://127.0.0.1:9/own", COMMIT, (("", "own/"),))
    monkeypatch.setattr(data, "SOURCES", {"own": gone})
    fetch = partial(data.fetch, "own", tmp_path / "reference")
    assert "--fetch own --from CLONE" in str(
        refused("cannot be reached", fetch, error=SystemExit)
    )
    assert not (tmp_path / "reference").exists()


def test_each_source_names_a_whole_commit_and_files_of_the_list() -> None:
    from benchmarks.data import SOURCES, listed

    for name, source in SOURCES.items():
        assert len(source.commit) == 40, name
        folders = tuple(ours for _, ours in source.folders)
        assert source.derived or any(each.startswith(folders) for each in listed())


def test_four_fifths_of_the_comparisons_run_with_what_is_fetched() -> None:
    """And the page says how many."""
    page = (ROOT / "docs" / "evidence.md").read_text("utf-8")
    table = page[page.index("| policy | source |") :].split("\n\n")[0].splitlines()
    said = [row.rsplit("|", 2)[1].split()[0].rstrip(":,") for row in table[2:]]
    assert set(said) == {"yes", "no"}
    count = said.count("yes")
    assert count >= 0.8 * len(said)
    assert f"{count} of {len(said)} rows" in page
