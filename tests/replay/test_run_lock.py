"""Several runs and one folder: none is lost or replaced without a request, and a killed run loses none."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from processes import AMPLE_S, SCRIPT, result_of, signalled

from bft.models import InputError
from bft.replay.checkpoint import claimed
from bft.replay.cli.main import run

ARGS = ["-Tfwd", "120", "--policy", "equal-share", "--no-u", "--out", "run"]
FILES = {
    "summary.json",
    "timing.json",
    "steps.parquet",
    "jobs.parquet",
    "allocations.parquet",
    "unused.parquet",
}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def jobs_in_play(folder: str = "run") -> int:
    """By which the runs of these tests differ."""
    return int(
        json.loads(Path(folder, "summary.json").read_text())["options"]["max_jobs"]
    )


def stopped(command: list[str]) -> subprocess.Popen[str]:
    """A command that stops itself on its way, when it has."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return process


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_second_run_into_a_folder_fails_while_the_first_is_under_way(
    here: Path, force: list[str]
) -> None:
    first = stopped([*signalled([(20, signal.SIGSTOP)]), *ARGS])
    try:
        second = result_of([*SCRIPT, *ARGS, "-maxJ", "3", *force])
        assert second.returncode == 2
        assert second.stderr.endswith(
            "run: another replay is writing here; wait for its end or choose another --out\n"
        )
    finally:
        first.send_signal(signal.SIGCONT)
        _, told = first.communicate(timeout=AMPLE_S)
    assert first.returncode == 0, told
    assert (names(here), jobs_in_play()) == (["run"], 10)
    assert set(names(here / "run")) >= FILES


def test_among_runs_started_together_one_wins_and_the_others_report_it(
    here: Path,
) -> None:
    together = [
        subprocess.Popen(
            [*SCRIPT, *ARGS, "-maxJ", str(most)],
            stderr=subprocess.PIPE,
            text=True,
            stdout=subprocess.PIPE,
        )
        for most in (1, 2)
    ]
    told = [process.communicate(timeout=AMPLE_S)[1] for process in together]
    codes = [process.returncode for process in together]
    assert sorted(codes) == [0, 2], told
    said = "another replay is writing here|holds an earlier run"
    assert re.search(said, told[codes.index(2)])
    assert (names(here), jobs_in_play()) == (["run"], codes.index(0) + 1)


def test_a_claim_ends_with_its_holder_and_leaves_no_folder_behind(here: Path) -> None:
    folder = here / "deep" / "er" / "run"
    with claimed(folder):
        assert names(folder.parent) == [".run.lock"]
        with (
            pytest.raises(InputError, match="another replay is writing here"),
            claimed(folder),
        ):
            pass
        with claimed(folder.with_name("other")):
            pass
    assert names(here) == []
    killed = result_of([*signalled([(20, signal.SIGKILL)]), *ARGS])
    assert (killed.returncode, names(here)) == (-signal.SIGKILL, [".run.lock"])
    assert run(ARGS) == 0
    assert names(here) == ["run"]


def test_runs_through_a_link_and_directly_compete_for_one_folder(here: Path) -> None:
    (here / "real").mkdir()
    (here / "link").symlink_to(here / "real")
    with (
        claimed(here / "link"),
        pytest.raises(InputError, match="another replay"),
        claimed(here / "real"),
    ):
        pass


# --- killed while an earlier run is replaced --------------------------------------------------------------------------

# A run with --force: its draft, then the earlier run is moved aside, the draft put in its place, notes brought over.
KILLED = """
from pathlib import Path
import signal
rename, renames = Path.rename, 0
def counted(self, target):
    global renames
    moved = rename(self, target)
    renames += 1
    if renames == {count}:
        os.kill(os.getpid(), signal.SIGKILL)
    return moved
Path.rename = counted
"""
SHUTIL = """
import shutil, signal
shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
"""


KILLS = {
    "between the renames": KILLED.format(count=1),
    "after them": KILLED.format(count=2),
    "notes brought over": KILLED.format(count=3),
    "before the earlier run is removed": SHUTIL,
}


@pytest.mark.parametrize("more", KILLS.values(), ids=KILLS)
def test_a_kill_during_the_replacement_of_a_run_loses_neither_run(
    here: Path, more: str
) -> None:
    assert run([*ARGS, "-maxJ", "1"]) == 0
    Path("run/notes.txt").write_text("mine")
    killed = result_of([*signalled([], more=more), *ARGS, "-maxJ", "2", "--force"])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with claimed(here / "run"):
        pass
    kept = [path for path in here.iterdir() if path.is_dir()]
    assert {jobs_in_play(str(folder)) for folder in kept} == {1, 2}
    assert any(folder.joinpath("notes.txt").exists() for folder in kept)


def test_a_draft_that_a_killed_run_left_is_removed_and_nothing_else(here: Path) -> None:
    writing = "import bft.replay.results.run_directory as r\nr.write_json = lambda *_: os.kill(os.getpid(), 9)\n"
    killed = result_of([*signalled([], more=writing), *ARGS])
    assert killed.returncode == -signal.SIGKILL
    assert sum(name.startswith(".run.draft-") for name in names(here)) == 1
    mine = [
        ".run.draft-",
        ".run.drafts",
        ".run.old-mine",
        ".run.txt",
        ".runs.draft-0123abcd",
        "run.draft-0123abcd",
    ]
    for name in mine:
        Path(name).mkdir()
    for name in ("run.checkpoint.zip.bak", ".run.checkpoint.zip.draft"):
        Path(name).write_text("")
    assert run(ARGS) == 0
    assert names(here) == sorted([*mine, "run", "run.checkpoint.zip.bak"])
