"""The distribution: packages, data, entry point, public names, and a start that loads no heavy library."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from processes import result_of

ROOT = Path(__file__).parents[1]
FOLDERS = ("api", "milp", "models", "replay", "datasets")
HEAVY = {
    *[
        "pandas",
        "numba",
        "mip",
        "pyarrow",
        "numpy",
        "rich",
        "scipy",
        "networkx",
        "bokeh",
        "matplotlib",
        "dask",
    ]
}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tree() -> dict[str, str]:
    """Import name and folder of every package in the source tree."""
    inits = sorted(
        path.parent
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("__init__.py")
    )
    folders = [path.relative_to(ROOT) for path in inits]
    return {
        ".".join(("bft", *folder.parts)).replace("bft.api", "bft"): folder.as_posix()
        for folder in folders
    }


def test_the_packages_of_pyproject_are_those_of_the_tree() -> None:
    tool = project()["tool"]["setuptools"]
    assert len(tool["packages"]) == len(set(tool["packages"]))
    assert set(tool["packages"]) == set(tree())
    assert {name: folder_of(name, tool["package-dir"]) for name in tree()} == tree()


def folder_of(package: str, folders: dict[str, str]) -> str:
    """The folder in which setuptools looks for a package: below that of its nearest parent in `package-dir`."""
    if package in folders:
        return folders[package]
    parent, _, name = package.rpartition(".")
    return f"{folder_of(parent, folders)}/{name}"


def test_no_module_lies_outside_a_package() -> None:
    packages = {ROOT / folder for folder in tree().values()}
    modules = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in modules if path.parent not in packages] == []


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's files: a build leaves files beside its source."""
    folder = tmp_path_factory.mktemp("source")
    for name in repository():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def repository() -> list[str]:
    """Files of the repository, relative to its root."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    names = result_of(listing).stdout.splitlines()
    if not names:
        pytest.skip("not a git work tree")
    return [name for name in names if (ROOT / name).is_file()]


def build(kind: str, source: Path, target: Path, **settings: str) -> Path:
    """Build "sdist", "wheel" or "editable" by pyproject.toml, offline: setuptools is a development tool."""
    code = f"import setuptools.build_meta as backend; backend.build_{kind}({str(target)!r}, {settings!r})"
    done = result_of([sys.executable, "-c", code], cwd=source)
    assert done.returncode == 0, done.stderr
    (file,) = target.iterdir()
    return file


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel."""
    return set(contents(build("wheel", source, tmp_path_factory.mktemp("wheel"))))


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that an sdist unpacks to."""
    file = build("sdist", source, tmp_path_factory.mktemp("sdist"))
    target = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(file, target, filter="data")
    (folder,) = target.iterdir()
    return folder


def test_the_wheel_holds_every_module_and_all_data(wheel: set[str]) -> None:
    expected = set()
    for name, folder in tree().items():
        inside = ROOT / folder
        for path in (*inside.iterdir(), *inside.glob("templates/*")):
            if (
                path.suffix
                in (".py", ".parquet", ".csv", ".md", ".js", ".css", ".html", ".toml")
                or path.name == "py.typed"
            ):
                place = path.relative_to(inside).as_posix()
                expected.add(f"{name.replace('.', '/')}/{place}")
    assert {name for name in wheel if ".dist-info/" not in name} == expected
    assert {f"bft/{name}/py.typed" for name in FOLDERS[1:]} <= wheel
    about = {name.split(".dist-info/")[-1] for name in wheel}
    assert {"METADATA", "entry_points.txt", "licenses/LICENSE"} <= about


def test_the_sdist_is_the_repository(sdist: Path) -> None:
    made = {"PKG-INFO", "setup.cfg"}  # by setuptools
    names = {
        path.relative_to(sdist).as_posix()
        for path in sdist.rglob("*")
        if path.is_file()
    }
    names = {name for name in names if ".egg-info/" not in name}
    assert names - made == {name for name in repository() if not name.startswith(".")}
    assert all(
        (sdist / name).read_bytes() == (ROOT / name).read_bytes()
        for name in names - made
    )


@pytest.mark.slow
def test_what_the_sdist_builds_is_the_wheel_and_runs(
    source: Path, sdist: Path, tmp_path: Path
) -> None:
    places = [tmp_path / name for name in ("theirs", "ours", "environment")]
    for place in places[:2]:
        place.mkdir()
    theirs, ours = build("wheel", sdist, places[0]), build("wheel", source, places[1])
    assert contents(theirs) == contents(ours)

    # A new environment with the dependencies of this one, which are not fetched again.
    environment = places[2]
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if "site-packages" in path), "utf-8"
    )
    quiet = "install --quiet --no-deps --no-index --disable-pip-version-check"
    pip = [sys.executable, "-m", "pip", "--python", str(environment), *quiet.split()]
    assert not result_of([*pip, str(theirs)]).returncode

    def call(*args: str) -> str:
        command = [str(environment / "bin" / "bft-replay"), *args]
        return result_of(command, cwd=tmp_path).stdout

    assert call("--help").startswith("Usage: bft-replay")
    # All four units: 30 x 120 s, less 50/3 x 18 s while the two that are held stand still, is more than 50/3 x 120 s.
    job = {
        "name": "a",
        "Jmin": 1,
        "Jmax": 4,
        "Ns": [0, 1, 4],
        "Os": [0, 10, 30],
        "Tcup": 18,
        "Tcdw": 12,
        "current": [0, 2],
    }
    (tmp_path / "problem.json").write_text(
        json.dumps({"units": 4, "Tfwd": 120, "jobs": [job]})
    )
    answer = json.loads(call("solve", "problem.json"))
    assert (answer["status"], answer["allocation"]) == ("optimal", {"a": [0, 1, 2, 3]})
    code = "import bft; print(bft.__file__)"
    where = result_of([str(environment / "bin" / "python"), "-c", code])
    assert Path(where.stdout.strip()).is_relative_to(environment)


@pytest.mark.parametrize("args", ["--help", "--version"])
def test_the_installed_command_answers(args: str) -> None:
    command = Path(sys.executable).with_name("bft-replay")
    if not command.exists():
        pytest.skip("bft-replay is not installed beside this Python")
    done = result_of([str(command), args])
    assert (done.returncode, done.stderr) == (0, "")
    version = project()["project"]["version"]
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
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, (
                f"{name}: {option.opts} has no help"
            )


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
    done = result_of([sys.executable, "-c", f"LINES = {lines!r}{START}"], cwd=tmp_path)
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


@pytest.mark.parametrize("package", sorted(tree()))
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
        project()["project"]["dependencies"],
        *project()["project"]["optional-dependencies"].values(),
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
    code = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    for path in [*pages, *code]:
        text = path.read_text("utf-8")
        assert "bft-replay[" not in text, path
        for named in re.findall(
            r"pip install ([a-z][\w-]*(?: [a-z][\w-]*)*)(?=[`\"').;])", text
        ):
            assert {*named.split()} <= packages, path


def test_an_editable_install_in_strict_mode_is_typed(
    source: Path, tmp_path: Path
) -> None:
    """The command of docs/install.md: an import hook, which setuptools leaves by default, hides modules from mypy."""
    option = "--config-settings editable_mode=strict"
    assert option in (ROOT / "docs" / "install.md").read_text("utf-8")
    (tmp_path / "wheel").mkdir()
    wheel = build("editable", source, tmp_path / "wheel", editable_mode="strict")
    venv.create(tmp_path / "venv")
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    shutil.unpack_archive(wheel, packages, "zip")
    script = tmp_path / "script.py"
    script.write_text(
        "from bft.replay import always_idle\n\nnumber: int = always_idle(2, 0, 60)\n"
    )
    python = str(tmp_path / "venv" / "bin" / "python")
    command = [sys.executable, "-m", "mypy", "--python-executable", python]
    checked = result_of([*command, str(script)], cwd=tmp_path)
    assert 'expression has type "NodeTrace", variable has type "int"' in checked.stdout
    assert "Found 1 error" in checked.stdout, checked.stdout
