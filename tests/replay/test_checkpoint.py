"""A replay that is killed and resumed has the same result as an uninterrupted one."""

import json
import shlex
import signal
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from processes import SCRIPT, result_of, signalled
from test_engine_sharing import interference, world

from bft.models import InputError
from bft.replay import (
    EqualShare,
    MilpPolicy,
    MilpSharingPolicy,
    Outcome,
    Policy,
    Replay,
    Rules,
    SolverOptions,
)
from bft.replay.checkpoint import Checkpoint
from bft.replay.cli.main import run
from bft.replay.engine import ledger, tables
from bft.replay.engine.ledger import BOOKS

FILES = ("summary.json", "steps.parquet", "jobs.parquet", "allocations.parquet")
SPAN = ["-Tfwd", "120", "--backend", "exact", "--no-u"]
QUICK = ["-Tfwd", "120", "--policy", "equal-share", "--no-u"]


def replay_of(seed: int, kind: str) -> Replay:
    rng = np.random.default_rng(seed)
    trace, jobs = world(rng)
    between = interference(rng)
    policies: dict[str, Policy] = {
        "milp": MilpPolicy(120.0, SolverOptions("exact", verify=True)),
        "sharing": MilpSharingPolicy(120.0, interference=between),
        "equal-share": EqualShare(),
        "stall": MilpPolicy(120.0, SolverOptions("exact"), cost_model="stall"),
    }
    rules = Rules(
        5,
        "stall" if kind == "stall" else "bftrainer",
        min_interval_s=20.0 if kind == "equal-share" else 0.0,
    )
    return Replay(trace, jobs, policies[kind], rules, between)


def told(outcome: Outcome) -> tuple[object, ...]:
    accounts = [
        (
            r.start_ns,
            r.finish_ns,
            r.gained,
            r.work,
            r.rescales,
            r.unit_seconds,
            [getattr(r, f"lost_to_{b}") for b in BOOKS],
        )
        for r in outcome.records
    ]
    times = np.linspace(outcome.start_ns, outcome.end_ns, 50).astype(np.int64).tolist()
    return (
        accounts,
        [outcome.work_at(time) for time in times],
        outcome.idle_unit_seconds,
        outcome.used_unit_seconds,
        outcome.extra_gain,
        outcome.paid,
    )


@pytest.mark.parametrize("kind", ["milp", "sharing", "equal-share", "stall"])
def test_a_history_in_a_file_ends_and_resumes_like_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    whole = replay_of(0, kind).run()
    monkeypatch.setattr(tables, "PART_BYTES", 300)
    monkeypatch.setattr(tables, "GROUP_ROWS", 2)
    monkeypatch.setattr(ledger, "ROWS", 3)
    first = replay_of(0, kind)
    for table in first.tables.values():
        table.folder = tmp_path
    saved = Checkpoint(tmp_path / "c.zip", {}, 0.0)
    steps = 0

    def save(now: int) -> None:
        nonlocal steps
        steps += 1
        if steps % 7 == 0 and steps <= 35:
            saved.save(first)

    outcomes = [first.run(on_step=save)]
    with ZipFile(tmp_path / "c.zip") as archive:
        assert "steps/1.parquet" in archive.namelist()  # some rows were in a file
    second = replay_of(0, kind)
    for table in second.tables.values():
        table.folder = tmp_path
    assert Checkpoint(tmp_path / "c.zip", {}, 0.0).resume(second)
    outcomes.append(second.run())
    for outcome in outcomes:
        assert told(outcome) == told(whole)
        pd.testing.assert_frame_equal(outcome.steps, whole.steps, check_exact=True)
        pd.testing.assert_frame_equal(
            outcome.allocations, whole.allocations, check_exact=True
        )
    if kind in ("milp", "stall"):
        idle = len(whole.steps) - 1 - idle_free(whole)
        assert second.policy.verified == first.policy.verified == idle


def idle_free(outcome: Outcome) -> int:
    """Decisions with nothing to give, which no policy sees."""
    return int((outcome.steps["status"] == "nothing idle").sum())


def bytes_of(name: str) -> dict[str, bytes]:
    return {file: Path(f"{name}-itrOut", file).read_bytes() for file in FILES}


def test_a_killed_replay_resumes_to_the_same_bytes(here: Path) -> None:
    assert run([*SPAN, "-name", "whole"]) == 0
    args = [*SPAN, "-name", "killed", "--checkpoint-every", "0"]
    assert (
        result_of([*signalled([(100, signal.SIGKILL)]), *args]).returncode
        == -signal.SIGKILL
    )
    assert sorted(path.name for path in here.iterdir() if "killed" in path.name) == [
        ".killed-itrOut.lock",
        "killed-itrOut.checkpoint.zip",
    ]
    assert run([*SPAN, "-name", "killed", "--checkpoint-every", "100"]) == 0
    assert bytes_of("killed") == bytes_of("whole")
    assert sorted(path.name for path in here.iterdir()) == [
        "killed-itrOut",
        "whole-itrOut",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_prints_the_command_that_resumes_it(
    here: Path, number: signal.Signals
) -> None:
    assert run([*QUICK, "--out", "whole-itrOut"]) == 0
    args = [*QUICK, "--out", "my run-itrOut", "--checkpoint-every", "1e6"]
    process = result_of([*signalled([(100, number)]), *args])
    assert process.returncode == 130, process.stderr
    assert (
        json.loads(Path("my run-itrOut", "summary.json").read_text())["metrics"][
            "interrupted"
        ]
        is True
    )
    told = process.stderr.splitlines()[-1].removeprefix("To go on from there: ")
    program, *command = shlex.split(told)
    assert (program, command) == ("bft-replay", args)
    # Interrupted once more on the way, then left alone.
    again = result_of([*signalled([(50, number)]), *command])
    assert (
        again.returncode,
        again.stderr.splitlines()[-1].removeprefix("To go on from there: "),
    ) == (130, told)
    last = result_of([*SCRIPT, *command])
    assert last.returncode == 0, last.stderr
    assert "resumed from my run-itrOut.checkpoint.zip after" in last.stderr
    assert bytes_of("my run") == bytes_of("whole")
    assert sorted(path.name for path in here.iterdir()) == [
        "my run-itrOut",
        "whole-itrOut",
    ]


def test_an_interrupt_during_the_replay_for_u_resumes_after_the_first_one(
    here: Path,
) -> None:
    args = QUICK[:-1]
    assert run([*args, "-name", "whole"]) == 0
    steps = json.loads(Path("whole-itrOut/summary.json").read_text())["metrics"][
        "decisions"
    ]
    args += ["-name", "part", "--checkpoint-every", "1e6"]
    # The first replay has no more steps than this; the second one is stopped before it has taken two.
    more = "to_come.clear()\nfirst = engine.Replay.run\ndef second(self, **given):\n"
    more += f"    outcome = first(self, **given)\n    to_come.append((steps + 2, {int(signal.SIGINT)}))\n"
    more += "    return outcome\nengine.Replay.run = second\n"
    process = result_of([*signalled([], more=more), *args])
    assert process.returncode == 130, process.stderr
    assert "To go on from there: " in process.stderr
    last = result_of([*SCRIPT, *args])
    assert last.returncode == 0, last.stderr
    assert f"after {steps} decisions" in last.stderr
    assert bytes_of("part") == bytes_of("whole")


def test_an_interrupted_run_gives_way_to_its_own_continuation_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*QUICK, "--checkpoint-every", "1e6"]
    assert result_of([*signalled([(60, signal.SIGINT)]), *args]).returncode == 130
    kept, saved = bytes_of("debug"), Path("debug-itrOut.checkpoint.zip")
    for other in (
        QUICK,
        [*args, "-maxJ", "3"],
        [*args, "--option", "compat=reference"],
    ):  # no continuation; other options
        assert run(other) == 2
        assert "--force replaces it" in capsys.readouterr().err
    state = saved.read_bytes()
    saved.unlink()  # then it would begin anew
    assert run(args) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert bytes_of("debug") == kept
    saved.write_bytes(state)
    assert run(args) == 0
    assert bytes_of("debug") != kept


def small() -> tuple[Replay, Checkpoint]:
    return replay_of(0, "equal-share"), Checkpoint(
        Path("saved.json"), {"some": "run"}, 0.0
    )


def saved_at(steps: int) -> bytes:
    replay, checkpoint = small()
    taken = iter(range(steps))
    replay.run(
        should_stop=lambda: next(taken, None) is None,
        before_close=lambda: checkpoint.save(replay),
    )
    return checkpoint.path.read_bytes()


def test_no_change_of_a_checkpoint_goes_unseen(here: Path) -> None:
    """Whatever byte is another one, the file is refused, or what it holds is the same (as dates of an archive)."""
    whole, refused = saved_at(8), 0
    expected = told(small()[0].run())
    for at in range(0, len(whole), 29):
        replay, checkpoint = small()
        changed = bytes([whole[at] ^ 16])
        checkpoint.path.write_bytes(whole[:at] + changed + whole[at + 1 :])
        try:
            assert checkpoint.resume(replay)
        except InputError as error:
            assert "is no checkpoint of ours, or a damaged one" in str(error)  # noqa: PT017 - or none
            refused += 1
        else:
            assert told(replay.run()) == expected
    assert refused > 0.8 * len(whole) / 29
    for end in (0, 1, 40, len(whole) // 2, len(whole) - 1):
        checkpoint.path.write_bytes(whole[:end])
        with pytest.raises(InputError, match="is no checkpoint of ours, or a damaged"):
            checkpoint.resume(replay)


def test_a_damaged_checkpoint_is_refused_by_the_command(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*QUICK, "--checkpoint-every"]
    assert (
        result_of([*signalled([(20, signal.SIGKILL)]), *args, "0"]).returncode
        == -signal.SIGKILL
    )
    saved = Path("debug-itrOut.checkpoint.zip")
    whole = saved.read_bytes()
    at = whole.index(b'"_idle_unit_seconds": ') + 22
    digit = b"1" if whole[at : at + 1] != b"1" else b"2"
    saved.write_bytes(whole[:at] + digit + whole[at + 1 :])
    assert run([*args, "100"]) == 2
    told = "debug-itrOut.checkpoint.zip: is no checkpoint of ours, or a damaged one"
    assert told in capsys.readouterr().err
    assert not Path("debug-itrOut").exists()
    saved.write_bytes(whole)
    assert run([*args, "100"]) == 0


@pytest.mark.parametrize("part", ["place", "held", "ledger", "in_play"])
def test_a_key_that_a_checkpoint_lacks_is_no_traceback(here: Path, part: str) -> None:
    """A state with missing parts, as of another version."""
    saved_at(5)
    with ZipFile("saved.json") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    content = json.loads(members["state.json"])
    del content["state"][part]
    members["state.json"] = json.dumps(content).encode()
    with ZipFile("saved.json", "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    replay, checkpoint = small()
    with pytest.raises(InputError, match=f"a damaged one .KeyError: '{part}'"):
        checkpoint.resume(replay)


def test_a_checkpoint_of_other_options_is_refused_and_kept(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Path("debug-itrOut.checkpoint.zip")
    message = "is no checkpoint of ours"
    for content in ("", "no zip", '{"some": "other file"}', "PK" * 100_000):
        saved.write_text(content)
        assert run([*QUICK, "--checkpoint-every", "100"]) == 2
        assert message in capsys.readouterr().err
        assert saved.read_text() == content
    saved.unlink()
    args = [*QUICK, "--checkpoint-every", "0"]
    assert (
        result_of([*signalled([(20, signal.SIGKILL)]), *args]).returncode
        == -signal.SIGKILL
    )
    assert run([*args, "-maxJ", "3"]) == 2
    assert "other input, options or versions" in capsys.readouterr().err
    assert not Path("debug-itrOut").exists()


def test_a_checkpoint_that_cannot_be_written_costs_no_result(here: Path) -> None:
    # The limit on the size of a file stands for a full disk: results here are smaller, the state is not.
    limit = "import resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
    process = result_of(
        [*signalled([], more=limit), *QUICK, "--checkpoint-every", "1e6"]
    )
    assert process.returncode == 0, process.stderr
    assert (
        "the checkpoint cannot be written: File too large; the replay goes on"
        in process.stderr
    )
    assert sorted(path.name for path in here.iterdir()) == ["debug-itrOut"]
