"""Write what benchmarks print into the pages, so that each number has one source.

python -m benchmarks.evidence                run each command of the pages whose last run took up to ten minutes
python -m benchmarks.evidence TEXT ...       run those that contain one of these, however long they take
python -m benchmarks.evidence --check        tell which tables and cells are not what the last run printed

Between `<!-- evidence: COMMAND -->` and `<!-- end -->` a page has the table that the command prints; with `evidence 2:`
it is the second one. `<!-- cell PAGE :: ROW :: COLUMN -->0.5<!-- end -->` has a cell of such a table, for sentences;
ROW and COLUMN are the texts of its first column and first row. `docs/evidence.json` has for each command when it ran,
of which version, how long it took, and the SHA-256 of each table that it printed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks._tables import program

ROOT = Path(__file__).parents[1]
# Commands that took longer run only by name.
LONGEST_S = 600.0
BLOCK = re.compile(
    r"<!-- evidence(?: (?P<number>\d+))?: (?P<command>.+?) -->\n(?P<table>.*?)<!-- end -->",
    flags=re.DOTALL,
)
CELL = re.compile(
    r"<!-- cell (?P<page>\S+) :: (?P<row>.+?) :: (?P<column>.+?) -->(?P<text>.*?)<!-- end -->"
)
TABLE = re.compile(r"(?:^\|.*\n)+", flags=re.MULTILINE)

Record = dict[str, dict[str, Any]]


def pages(root: Path) -> list[Path]:
    """The pages that may have tables."""
    folders = (root / "benchmarks", root / "docs")
    return [
        root / "README.md",
        *(page for folder in folders for page in sorted(folder.rglob("*.md"))),
    ]


def recorded(root: Path) -> Record:
    """What the last run of each command printed."""
    file = root / "docs" / "evidence.json"
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}


def digest(table: str) -> str:
    """SHA-256 of a table."""
    return hashlib.sha256(table.encode()).hexdigest()


def commands(root: Path) -> list[str]:
    """The commands of all pages."""
    texts = (page.read_text("utf-8") for page in pages(root))
    return list(
        dict.fromkeys(
            match["command"] for text in texts for match in BLOCK.finditer(text)
        )
    )


def ran(command: str, root: Path) -> tuple[list[str], dict[str, Any]]:
    """Run a command: the tables that it prints, and the record of the run.

    Raises
    ------
    SystemExit
        When it fails, or prints no table.
    """
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *shlex.split(command)],
        cwd=root,
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    tables = TABLE.findall(done.stdout)
    if done.returncode or not tables:
        sys.exit(f"{command}: exit code {done.returncode}, {len(tables)} tables")
    record = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": head(root),
        "python": platform.python_version(),
        "seconds": round(time.perf_counter() - begun),
        "tables_sha256": [digest(table) for table in tables],
    }
    return tables, record


def head(root: Path) -> str:
    """The commit that is checked out, `+` if files differ from it; empty where there is none."""
    words = ["git", "-C", str(root), "describe", "--always", "--dirty=+"]
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    return done.stdout.strip()


def write_tables(root: Path, printed: Mapping[str, Sequence[str]]) -> None:
    """Write tables by command into the pages, and then the cells that sentences quote."""

    def table(match: re.Match[str]) -> str:
        if match["command"] not in printed:
            return match[0]
        number = int(match["number"] or 1)
        tables = printed[match["command"]]
        if number > len(tables):
            sys.exit(f"{match['command']}: printed {len(tables)} tables, not {number}")
        return with_group(match, "table", tables[number - 1])

    def cell(match: re.Match[str]) -> str:
        try:
            text = cell_of(root, match["page"], match["row"], match["column"])
        except LookupError:  # what is wrong with it is said at the end
            text = match["text"]
        return with_group(match, "text", text)

    for pattern, replacement in ((BLOCK, table), (CELL, cell)):
        for page in pages(root):
            text = page.read_text("utf-8")
            new = pattern.sub(replacement, text)
            if new != text:
                page.write_text(new, "utf-8")


def with_group(match: re.Match[str], group: str, text: str) -> str:
    """What was matched, with another text for one of its groups."""
    begin, end = (at - match.start() for at in match.span(group))
    return match[0][:begin] + text + match[0][end:]


def cell_of(root: Path, page: str, row: str, column: str) -> str:
    """The text of a cell in the tables of a page that benchmarks printed.

    Raises
    ------
    LookupError
        When there is none, or several.
    """
    found = []
    for match in BLOCK.finditer((root / page).read_text("utf-8")):
        first, *rows = [split(line) for line in match["table"].splitlines()] or [[]]
        if column in first:
            position = first.index(column)
            found += [cells[position] for cells in rows if cells[0] == row]
    if len(found) != 1:
        raise LookupError(f"{len(found)} cells {row} | {column} in {page}, not one")
    return found[0]


def split(line: str) -> list[str]:
    """The cells of a row, without marks of bold type."""
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def wrong(root: Path) -> Iterator[str]:
    """Tables and cells that are not what the last run printed, and runs of which no page has a table."""
    record = recorded(root)
    for page in pages(root):
        name, text = page.relative_to(root).as_posix(), page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            number = int(match["number"] or 1)
            known = record.get(match["command"], {}).get("tables_sha256", [])
            if digest(match["table"]) not in known[number - 1 : number]:
                yield f"{name}: not table {number} of the last run of {match['command']}"
        for match in CELL.finditer(text):
            if text[: match.start()].endswith("\n"):
                yield f"{name}: a comment that begins a line ends a paragraph: {match[0]}"
            try:
                source = cell_of(root, match["page"], match["row"], match["column"])
            except LookupError as error:
                yield f"{name}: {error}"
                continue
            if source != match["text"]:
                yield f"{name}: {match['text']} for {source} in {match['page']}"
    for command in set(record) - set(commands(root)):
        yield f"docs/evidence.json: no page has a table of {command}"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Run commands and write their tables, or check the pages."""
    parser = program(__doc__)
    parser.add_argument("text", nargs="*", help="commands that contain one of these")
    parser.add_argument("--check", action="store_true", help="run nothing")
    given = parser.parse_args(arguments)
    if given.check:
        sys.exit("\n".join(wrong(root)) or 0)
    record = recorded(root)
    for command in commands(root):
        seconds = record.get(command, {}).get("seconds", 0)
        if given.text and not any(text in command for text in given.text):
            continue
        if not given.text and seconds > LONGEST_S:
            print(f"by name only, as it took {seconds} s: {command}", file=sys.stderr)
            continue
        print(command, file=sys.stderr, flush=True)
        tables, run = ran(command, root)
        write_tables(root, {command: tables})
        record = recorded(root) | {command: run}  # another process may have added some
        kept = {name: record[name] for name in sorted(record) if name in commands(root)}
        file = root / "docs" / "evidence.json"
        file.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    print(*wrong(root), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
