"""Targets that are no ordinary files: devices, pipes, links."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bft.models.files import drafted


def test_a_pipe_gets_the_content_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with drafted(pipe) as draft:
        draft.write_text("content\n")
    reader.join()
    assert read == [b"content\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("to_a_file", [False, True])
def test_standard_output_as_a_target_gets_the_log(
    tmp_path: Path, to_a_file: bool
) -> None:
    command = [str(Path(sys.executable).with_name("bft-replay"))]
    command += ["generate", "log", "slurm", "--nodes", "4", "--days", "1", "--force"]
    plain = tmp_path / "plain.txt"
    subprocess.run([*command, "-o", str(plain)], check=True, capture_output=True)
    command += ["-o", "/dev/stdout"]
    if to_a_file:
        with (tmp_path / "redirected.txt").open("wb") as stream:
            subprocess.run(command, check=True, stdout=stream, stderr=subprocess.PIPE)
        got = (tmp_path / "redirected.txt").read_bytes()
    else:
        got = subprocess.run(command, check=True, capture_output=True).stdout
    assert got.startswith(plain.read_bytes())
    assert Path("/dev/stdout").is_symlink()


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    link = tmp_path / "sink"
    link.symlink_to(os.devnull)
    with drafted(link) as draft:
        draft.write_text("content\n")
    assert stat.S_ISCHR(link.stat().st_mode)
    assert link.is_symlink()


def test_the_file_that_a_link_leads_to_is_written_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "real.txt"
    target.write_text("before")
    link = tmp_path / "link.txt"
    link.symlink_to(target)
    with drafted(link) as draft:
        draft.write_text("after")
    assert link.is_symlink()
    assert target.read_text() == "after"
    assert str(target) in caplog.text
