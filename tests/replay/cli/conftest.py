"""What tests of commands share: how a command is refused."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from stated import once

from bft.replay.cli.main import run


@pytest.fixture
def refused(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that is refused: exit code 2, a message with these parts, no other output, nothing new on disk."""

    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in here.rglob("*")}

    def call(line: str | list[str], *parts: str) -> str:
        capsys.readouterr()
        before = files()
        code = run(once(shlex.split(line) if isinstance(line, str) else line))
        out, err = capsys.readouterr()
        missing = [part for part in parts if part not in err]
        assert (code, out, missing, "Traceback" in err) == (2, "", [], False), err
        assert files() == before
        return err

    return call
