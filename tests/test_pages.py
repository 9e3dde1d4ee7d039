"""The pages do what they show: the commands of the paths, the notebooks, and every command line of README and docs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from processes import AMPLE_S

from bft.replay.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
# What stands for a value of the reader's.
PLACEHOLDERS = {"N": "3", "S": "3", "SECONDS": "3", "NAME": "milp", "F": "2", "POLICY": "milp"}
# What the packages in examples/ bring: tests of their own install them and call it.
OF_EXAMPLES = {"smallest-first": "milp", "dense-highs": "highs", "semicolons": "slurm"}


def fences(page: Path) -> Iterator[tuple[str, str]]:
    """Info string and content of each fenced block."""
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE):
        yield match[1], match[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tutorial", "own-jobs"])
def test_the_commands_of_a_path_print_what_its_page_shows(name: str, here: Path) -> None:
    shutil.copytree(ROOT / "examples", here / "examples")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    count = 0
    for kind, content in fences(DOCS / f"{name}.md"):
        if kind.startswith("{code-block}"):
            caption = re.search(r"^:caption: (\S+)$", content, flags=re.MULTILINE)
            assert caption is not None
            Path(caption[1]).write_text(re.sub(r"^:.*\n+", "", content, flags=re.MULTILINE))
        if kind != "console":
            continue
        for shown in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
            command, _, output = re.sub(r"\\\n\s*", "", shown).partition("\n")
            done = subprocess.run(
                ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=AMPLE_S, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            assert done.stdout.rstrip("\n") == output.rstrip("\n"), command
            count += 1
    assert count >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ten-lines", "own-policy"])
def test_the_cells_of_a_notebook_run(name: str, here: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("matplotlib", reason="an extra that is not installed")
    cells = [content for kind, content in fences(DOCS / "notebooks" / f"{name}.md") if kind == "{code-cell}"]
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for cell in cells:
        exec(cell, namespace)  # noqa: S102 - the page's own code
    assert namespace["run" if name == "ten-lines" else "milp"].metrics["outcome"] > 0


def test_the_sample_of_the_tutorial_is_what_the_generator_makes() -> None:
    from bft.datasets import generate_sacct

    assert (ROOT / "examples" / "synthetic-sacct.txt").read_text("utf-8") == generate_sacct()


def command_lines(page: Path) -> Iterator[str]:
    """Command lines of ours: in blocks, fenced or indented, and in the text between backticks."""
    text = page.read_text("utf-8")
    blocks = [content for kind, content in fences(page) if kind in ("", "console", "bash", "sh")]
    blocks += re.findall(r"(?:^(?: {4}|\t).*\n?)+", text, flags=re.MULTILINE)
    for block in blocks:
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            match = re.match(r"\s*(?:\$ )?(?:\S*/)?(bft-replay(?: .*)?)$", line)
            if match:
                yield match[1]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for code in re.findall(r"`(bft-replay [^`]+)`", prose):
        yield re.sub(r"\s+", " ", code)


def variants(line: str) -> Iterator[list[str]]:
    """Arguments of a command line, one list for each choice that it leaves."""
    line = re.sub(r"\s+(#|>|\|\s|&&|;).*$", "", line.replace("\\|", "|")).strip()
    parts = shlex.split(line)[1:]
    if any(part in ("...", "…", "[OPTIONS]") for part in parts):
        parts = [part for part in parts if part not in ("...", "…", "[OPTIONS]")]
    choices = [part.split("|") if re.fullmatch(r"[\w-]+(\|[\w-]+)+", part) else [part] for part in parts]
    stands_for = PLACEHOLDERS | OF_EXAMPLES
    for number in range(max(map(len, choices), default=1)):
        words = [choice[min(number, len(choice) - 1)] for choice in choices]
        yield [stands_for.get(word, word) for word in words]


LINES = sorted({(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in command_lines(page)})


def test_pages_show_many_command_lines() -> None:
    assert len(LINES) > 60
    shown = {args[0] for _, line in LINES for args in variants(line) if args}
    assert shown >= set(COMMANDS) - {"backends", "replay"}


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line}"[:90] for page, line in LINES])
def test_every_command_line_of_the_pages_is_one(page: str, line: str) -> None:
    for args in variants(line):
        try:
            context = cli.make_context("bft-replay", list(args))
            with context:
                walk(cli, context)
        except click.exceptions.Exit:  # --help, --version, --recipe
            continue
        except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
            if len(args) > 2:  # less is the name of a command, in a sentence about it
                raise


def walk(group: click.Group, context: click.Context) -> None:
    """Parse the sub-commands of a context, as `invoke` would, but run nothing."""
    args = [*context._protected_args, *context.args]
    while args and isinstance(group, click.Group):
        name, command, args = group.resolve_command(context, args)
        assert command is not None
        context = command.make_context(name, list(args), parent=context)
        if not isinstance(command, click.Group):
            return
        group, args = command, [*context._protected_args, *context.args]
