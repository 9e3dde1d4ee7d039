"""A replay that is killed and resumed has the same result as an uninterrupted one."""

import json
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from processes import SCRIPT, result_of, signalled
from test_engine_sharing import interference, world
from worlds import everything

from bft.models import InputError
from bft.replay import (
    EqualShare,
    MilpPolicy,
    MilpSharingPolicy,
    Replay,
    Rules,
    SolverOptions,
)
from bft.replay.checkpoint import Checkpoint
from bft.replay.engine import tables

FILES = ("summary.json", "steps.parquet", "jobs.parquet", "allocations.parquet")
QUICK = "-Tfwd 120 --policy equal-share --no-u"
OURS = "is no checkpoint of ours, or a damaged one"
AGAIN = "To go on from there: "
Told = Callable[..., str]


def stopped(
    number: signal.Signals, steps: int, line: str
) -> subprocess.CompletedProcess[str]:
    """A command that gets a signal after some steps."""
    ended = result_of([*signalled([(steps, number)]), *shlex.split(line)])
    code = -number if number == signal.SIGKILL else 130
    assert ended.returncode == code, ended.stderr
    return ended


def resumed(line: str) -> str:
    """What the command says that goes on."""
    ended = result_of([*SCRIPT, *shlex.split(line)])
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def replay_of(kind: str) -> Replay:
    rng = np.random.default_rng(0)
    trace, jobs = world(rng, events=25, jobs=6)
    between = interference(rng)
    cost_model = "stall" if kind == "stall" else "bftrainer"
    if kind == "equal-share":
        return Replay(trace, jobs, EqualShare(), Rules(5, min_interval_s=20.0), between)
    policy = MilpSharingPolicy(120.0, interference=between)
    if kind != "sharing":
        policy = MilpPolicy(120.0, SolverOptions("exact", verify=True), cost_model)
    return Replay(trace, jobs, policy, Rules(5, cost_model), between)


@pytest.mark.parametrize("kind", ["milp", "sharing", "equal-share", "stall"])
def test_a_history_in_a_file_ends_and_resumes_like_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    whole = replay_of(kind).run()
    monkeypatch.setattr(tables, "PART_BYTES", 300)
    monkeypatch.setattr(tables, "GROUP_ROWS", 2)
    first, second = replay_of(kind), replay_of(kind)
    for table in (*first.tables.values(), *second.tables.values()):
        table.folder = tmp_path
    saved = Checkpoint(tmp_path / "c.zip", {}, 0.0)
    steps: list[int] = []

    def save(now: int) -> None:
        steps.append(now)
        if len(steps) in (5, 10, 15):
            saved.save(first)

    assert everything(first.run(on_step=save)) == everything(whole)
    assert len(steps) > 18
    with ZipFile(tmp_path / "c.zip") as archive:
        assert "steps/1.parquet" in archive.namelist()  # some rows were in a file
    assert Checkpoint(tmp_path / "c.zip", {}, 0.0).resume(second)
    assert everything(second.run()) == everything(whole)
    assert {path.name for path in tmp_path.iterdir()} == {"c.zip"}
    if kind in ("milp", "stall"):
        # Of decisions with nothing to give no policy sees anything.
        asked = (whole.steps["status"] != "nothing idle").sum() - 1
        assert second.policy.verified == first.policy.verified == asked


def test_a_full_disk_leaves_the_history_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(**keywords: object) -> None:
        raise OSError(28, "No space left on device")

    whole = replay_of("equal-share").run()
    monkeypatch.setattr(tables, "PART_BYTES", 300)
    monkeypatch.setattr(tables, "TemporaryFile", full)
    replay = replay_of("equal-share")
    for table in replay.tables.values():
        table.folder = tmp_path
    assert everything(replay.run()) == everything(whole)
    told = "the history stays in memory: No space left on device"
    assert {*caplog.messages} == {told}


def bytes_of(name: str) -> dict[str, bytes]:
    return {file: Path(f"{name}-itrOut", file).read_bytes() for file in FILES}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_killed_replay_resumes_to_the_same_bytes(here: Path, told: Told) -> None:
    told(f"{QUICK} -name whole")
    line = f"{QUICK} -name killed"
    stopped(signal.SIGKILL, 100, f"{line} --checkpoint-every 0")
    left = [".killed-itrOut.lock", "killed-itrOut.checkpoint.zip", "whole-itrOut"]
    assert names(here) == left
    told(f"{line} --checkpoint-every 100")
    assert bytes_of("killed") == bytes_of("whole")
    assert names(here) == ["killed-itrOut", "whole-itrOut"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_prints_the_command_that_resumes_it(
    here: Path, number: signal.Signals, told: Told
) -> None:
    told(f"{QUICK} --out whole-itrOut")
    args = f"{QUICK} --out 'my run-itrOut' --checkpoint-every 1e6"
    ended = stopped(number, 100, args)
    summary = json.loads(Path("my run-itrOut", "summary.json").read_text())
    assert summary["metrics"]["interrupted"] is True
    line = ended.stderr.splitlines()[-1]
    assert shlex.split(line.removeprefix(AGAIN)) == ["bft-replay", *shlex.split(args)]
    # Interrupted once more on the way, then left alone.
    assert stopped(number, 50, args).stderr.splitlines()[-1] == line
    assert "resumed from my run-itrOut.checkpoint.zip after" in resumed(args)
    assert bytes_of("my run") == bytes_of("whole")
    assert names(here) == ["my run-itrOut", "whole-itrOut"]


def test_an_interrupt_during_the_replay_for_u_resumes_after_the_first_one(
    here: Path, told: Told
) -> None:
    line = QUICK.removesuffix("--no-u")
    told(f"{line} -name whole")
    metrics = json.loads(Path("whole-itrOut/summary.json").read_text())["metrics"]
    line += "-name part --checkpoint-every 1e6"
    # The first replay has no more steps than this; the second one is stopped before it has taken two.
    more = "to_come.clear()\nfirst = engine.Replay.run\ndef second(self, **given):\n"
    more += f"    outcome = first(self, **given)\n    to_come.append((steps + 2, {int(signal.SIGINT)}))\n"
    more += "    return outcome\nengine.Replay.run = second\n"
    process = result_of([*signalled([], more=more), *line.split()])
    assert (process.returncode, AGAIN in process.stderr) == (130, True), process.stderr
    assert f"after {metrics['decisions']} decisions" in resumed(line)
    assert bytes_of("part") == bytes_of("whole")


def test_an_interrupted_run_gives_way_to_its_own_continuation_alone(
    here: Path, told: Told
) -> None:
    line = f"{QUICK} --checkpoint-every 1e6"
    stopped(signal.SIGINT, 60, line)
    kept, saved = bytes_of("debug"), Path("debug-itrOut.checkpoint.zip")
    # No continuation; other options.
    for other in (QUICK, f"{line} -maxJ 3", f"{line} --option compat=reference"):
        told(other, "--force replaces it", code=2)
    state = saved.read_bytes()
    saved.unlink()  # then it would begin anew
    told(line, "--force replaces it", code=2)
    assert bytes_of("debug") == kept
    saved.write_bytes(state)
    told(line)
    assert bytes_of("debug") != kept


# --- checkpoints that are none ----------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(here: Path) -> Checkpoint:
    """The checkpoint of a replay after eight steps."""
    replay, made = replay_of("equal-share"), Checkpoint(Path("c.zip"), {"a": "run"}, 0)
    steps = iter(range(8))
    replay.run(
        should_stop=lambda: next(steps, None) is None,
        before_close=lambda: made.save(replay),
    )
    return made


def test_no_change_of_a_checkpoint_goes_unseen(checkpoint: Checkpoint) -> None:
    """Whatever byte is another one, the file is refused, or what it holds is the same (as dates of an archive)."""
    whole, refused = checkpoint.path.read_bytes(), 0
    expected = everything(replay_of("equal-share").run())
    places = range(0, len(whole), 61)
    for at in places:
        replay = replay_of("equal-share")
        changed = bytes([whole[at] ^ 16])
        checkpoint.path.write_bytes(whole[:at] + changed + whole[at + 1 :])
        try:
            assert checkpoint.resume(replay)
        except InputError as error:
            assert OURS in str(error)  # noqa: PT017 - or none
            refused += 1
        else:
            assert everything(replay.run()) == expected
    assert refused > 0.8 * len(places)
    for end in (0, 1, 40, len(whole) // 2, len(whole) - 1):
        checkpoint.path.write_bytes(whole[:end])
        with pytest.raises(InputError, match=OURS):
            checkpoint.resume(replay)


@pytest.mark.parametrize("part", ["place", "held", "ledger", "in_play"])
def test_a_key_that_a_checkpoint_lacks_is_no_traceback(
    checkpoint: Checkpoint, part: str
) -> None:
    """A state with missing parts, as of another version."""
    with ZipFile(checkpoint.path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    content = json.loads(members["state.json"])
    del content["state"][part]
    members["state.json"] = json.dumps(content).encode()
    with ZipFile(checkpoint.path, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    with pytest.raises(InputError, match=f"a damaged one .KeyError: '{part}'"):
        checkpoint.resume(replay_of("equal-share"))


def test_a_checkpoint_that_is_none_or_of_other_options_is_refused_and_kept(
    here: Path, told: Told
) -> None:
    saved, line = Path("debug-itrOut.checkpoint.zip"), f"{QUICK} --checkpoint-every"
    for content in ("", "no zip", '{"some": "other file"}', "PK" * 100_000):
        saved.write_text(content)
        told(f"{line} 100", f"{saved}: is no checkpoint of ours", code=2)
        assert saved.read_text() == content
    saved.unlink()
    stopped(signal.SIGKILL, 20, f"{line} 0")
    told(f"{line} 0 -maxJ 3", "other input, options or versions", code=2)
    whole = saved.read_bytes()
    at = whole.index(b'"_idle_unit_seconds": ') + 22
    digit = b"1" if whole[at : at + 1] != b"1" else b"2"
    saved.write_bytes(whole[:at] + digit + whole[at + 1 :])
    told(f"{line} 100", f"{saved}: {OURS}", code=2)
    assert not Path("debug-itrOut").exists()
    saved.write_bytes(whole)
    told(f"{line} 100")


def test_a_checkpoint_that_cannot_be_written_costs_no_result(here: Path) -> None:
    # The limit on the size of a file stands for a full disk: results here are smaller, the state is not.
    limit = "import resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
    line = f"{QUICK} --checkpoint-every 1e6"
    process = result_of([*signalled([], more=limit), *line.split()])
    assert process.returncode == 0, process.stderr
    goes_on = "the checkpoint cannot be written: File too large; the replay goes on"
    assert goes_on in process.stderr
    assert names(here) == ["debug-itrOut"]
