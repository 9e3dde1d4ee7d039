"""What is installed: the command, public names, and a light start; `make dist` checks sdist and wheel."""

import importlib
import inspect
import os
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import click
import pytest
from processes import SCRIPT, result_of

ROOT = Path(__file__).parents[1]
HEAVY = {
    *("pandas", "numba", "mip", "pyarrow", "numpy", "rich", "scipy", "networkx", "bokeh", "matplotlib", "dask"),
}  # fmt: skip
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT, PACKAGES = PYPROJECT["project"], PYPROJECT["tool"]["setuptools"]["packages"]


@pytest.mark.parametrize("args", ["--help", "--version"])
def test_the_installed_command_answers(args: str) -> None:
    command = Path(sys.executable).with_name("bft-replay")
    if not command.exists():
        pytest.skip("bft-replay is not installed beside this Python")
    done = result_of([str(command), args])
    assert (done.returncode, done.stderr) == (0, "")
    version = PROJECT["version"]
    assert version == metadata.version("bft-replay")
    assert (version if args == "--version" else "Usage: bft-replay") in done.stdout


def test_help_lists_every_command_and_every_command_has_help() -> None:
    from bft.replay.cli.main import COMMANDS, cli

    context = cli.make_context("bft-replay", ["--help-me"], resilient_parsing=True)
    assert cli.list_commands(context) == list(COMMANDS)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command.help
        assert COMMANDS[name].endswith(".")
        options = [each for each in command.params if isinstance(each, click.Option)]
        assert [each.opts for each in options if not each.help] == [], name


# What is run in one process, and after each which of these are loaded.
LIGHT = [
    "",
    "--help",
    "--version",
    "replay --help",
    "compare --help",
    "sweep --help",
    "generate --help",
]
SOME = ["report --help", "predict --help", "trace info --help", "-Tfwd 0", "frobnicate"]
REPLAY = ["replay --policy fifo --no-u --print 0 --out run"]
START = """
import sys
before = {*sys.modules}
from bft.replay.cli.main import run
for line in LINES:
    if line:
        run(line.split())
    print("LOADED", *sorted({*sys.modules} - before))
"""


def test_a_start_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    lines = [*LIGHT, *SOME, *REPLAY]
    start = f"LINES = {lines!r}{START}"
    done = result_of([sys.executable, "-c", start], cwd=tmp_path, cold=True)
    told = [{*line.split()[1:]} for line in done.stdout.splitlines() if line.startswith("LOADED")]  # fmt: skip
    loaded = dict(zip(lines, told, strict=True))
    # Of Python's own, some take a third of the time, once.
    slower = {"importlib.metadata", "email", "zipfile", "tomllib", "difflib"}
    for line in ("", "--help"):
        assert not loaded[line] & (HEAVY | slower), line
    for line in (*LIGHT, *SOME):
        assert not loaded[line] & {"pandas", "numba", "mip", "pyarrow", "rich"}, line
    # Without solver and sharing a replay loads what reads and writes tables.
    assert loaded[REPLAY[0]] & HEAVY == {"pandas", "pyarrow", "numpy"}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_exist_and_are_documented(package: str) -> None:
    """What ruff cannot see: packages load their names when these are asked for."""
    module = importlib.import_module(package)
    names = getattr(module, "__all__", [])
    assert len(names) == len(set(names))
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            # A dataclass without a docstring gets its signature as one.
            assert not (inspect.getdoc(value) or f"{name}(").startswith(f"{name}(")


def test_the_commands_of_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, flags=re.MULTILINE))
    code = "\n".join(
        re.findall(r"^```.*?^```|`[^`\n]+`", readme, flags=re.DOTALL | re.MULTILINE)
    )
    assert set(re.findall(r"\bmake ([a-z][\w-]*)", code)) <= targets


def test_what_is_said_to_install_can_be_installed() -> None:
    # Ours is on no package index: its extras are installed from the clone or the wheel, or by the packages they bring.
    lists = [
        PROJECT["dependencies"],
        *PROJECT["optional-dependencies"].values(),
    ]
    packages = {re.split(r"[\[<>=]", line)[0] for lines in lists for line in lines} | {
        "mipster",
        "tzdata",
    }
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    folders = ("api", "milp", "models", "replay", "datasets")
    code = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    for path in [*pages, *code]:
        text = path.read_text("utf-8")
        assert "bft-replay[" not in text, path
        for named in re.findall(
            r"pip install ([a-z][\w-]*(?: [a-z][\w-]*)*)(?=[`\"').;])", text
        ):
            assert {*named.split()} <= packages, path


def test_an_exact_replay_loads_no_cbc(tmp_path: Path) -> None:
    # A library that is none: whoever loads it fails, and the run says so.
    environment = {**os.environ, "PMIP_CBC_LIBRARY": str(tmp_path / "none.so")}
    options = ["-Tfwd", "120", "--backend", "exact", "--no-u", "-v", "--out", "run"]
    done = result_of([*SCRIPT, *options], env=environment, cwd=tmp_path, cold=True)
    assert done.returncode == 0, done.stderr
    assert "solver process" not in done.stderr
    assert not re.search("cbc", done.stderr, flags=re.IGNORECASE)
