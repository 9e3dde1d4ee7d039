"""Fixtures for all tests."""

import os
import shlex
import signal
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from unittest.mock import patch

import drawing  # noqa: F401  it registers the profiles
import pytest
import reference_data
from hypothesis import settings

# Another one: pytest --hypothesis-profile=all, or explore.
settings.load_profile("quarter")

# Each of hundreds of processes would start threads for the other core, where another test runs, and they wait busily.
for library in ("OPENBLAS", "OMP"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# A suite that is started in the background of a script, or by nohup, inherits that Ctrl-C and hang-ups are ignored,
# and so would all processes that it starts; those of the tests of interrupts then never end, or end as if nothing was.
for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with published and golden data; a user's clone does not have it."""
    folder = reference_data.folder()
    if not folder.is_dir():
        pytest.skip(
            f"no reference data at {folder}: BFT_REFERENCE names a folder with them (benchmarks/README.md)"
        )
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in; files with fixtures of their own of this name put something into it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]):
    """Runs a command line of ours, and checks its exit code and that these parts are told; returns all that is told."""
    from bft.replay.cli.main import run

    def call(line: str, *parts: str, code: int = 0) -> str:
        capsys.readouterr()
        found = run(shlex.split(line))
        said = "".join(capsys.readouterr())
        assert (found, [part for part in parts if part not in said]) == (code, []), said
        return said

    return call


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    """Imports a program of benchmarks/."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return import_module


@pytest.fixture(scope="module")
def example_logs():
    """The log formats of examples/logs, as a plugin that registers them would have them."""
    from bft.replay.logs.formats import BUILT_IN

    modules = {}
    for path in (Path(__file__).parents[1] / "examples" / "logs").glob("*.py"):
        spec = spec_from_file_location(path.stem, path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        modules[path.stem] = module.FORMAT
    with patch.dict(BUILT_IN, modules):
        yield
