"""A replay that is killed and resumed has the same result as an uninterrupted one."""

from __future__ import annotations

import json
import shlex
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from processes import SCRIPT, result_of, signalled
from test_engine_sharing import interference, world

from bft.models import InputError
from bft.replay.checkpoint import Checkpoint, seal
from bft.replay.cli.main import run
from bft.replay.engine import history, ledger
from bft.replay.engine.ledger import BOOKS, Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.policies import EqualShare, MilpPolicy, MilpSharingPolicy, Policy
from bft.replay.policies.solver import SolverOptions

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


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        pytest.param(
            seed, kind, marks=[pytest.mark.slow] if kind == "sharing" and seed else []
        )
        for seed in range(3)
        for kind in ("milp", "sharing", "equal-share", "stall")
    ],
)
def test_a_state_that_went_through_json_goes_on_to_the_same_end(
    seed: int, kind: str
) -> None:
    unbroken = replay_of(seed, kind)
    whole = unbroken.run()
    for stop_at in (1, 7, 20, 45):
        first = replay_of(
            seed, kind
        )  # a checkpoint is taken between two steps, before the books are closed
        taken: list[str] = []

        def take(
            now: int,
            replay: Replay = first,
            taken: list[str] = taken,
            at: int = stop_at,
        ) -> None:
            taken.append(json.dumps(replay.state()) if len(taken) == at - 1 else "")

        first.run(on_step=take)
        second = replay_of(seed, kind)
        second.restore(json.loads(taken[stop_at - 1]))
        rest = second.run()
        assert told(rest) == told(whole)
        pd.testing.assert_frame_equal(rest.steps, whole.steps, check_exact=True)
        pd.testing.assert_frame_equal(
            rest.allocations, whole.allocations, check_exact=True
        )
        if isinstance(second.policy, MilpPolicy):
            assert isinstance(unbroken.policy, MilpPolicy)
            assert second.policy.verified == unbroken.policy.verified
            if kind != "sharing":  # there, only where nobody may share
                assert second.policy.verified == len(whole.steps) - 1 - idle_free(whole)


@pytest.mark.parametrize("kind", ["milp", "equal-share"])
def test_a_history_in_a_file_ends_and_resumes_like_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    whole = replay_of(0, kind).run()
    monkeypatch.setattr(history, "SPILL_BYTES", 300)
    monkeypatch.setattr(history, "SAMPLED", 2)
    monkeypatch.setattr(history, "ROWS", 3)
    monkeypatch.setattr(ledger, "ROWS", 3)
    monkeypatch.setattr("bft.replay.checkpoint.ROWS", 5)
    first = replay_of(0, kind)
    first.spill_to(tmp_path)
    saved = Checkpoint(tmp_path / "c.json", {}, 0.0)
    steps = 0

    def save(now: int) -> None:
        nonlocal steps
        steps += 1
        if steps % 7 == 0 and steps <= 35:
            saved.save(first)

    outcomes = [first.run(on_step=save)]
    assert any(table.written for table in first.history.values())
    second = replay_of(0, kind)
    second.spill_to(tmp_path)
    assert Checkpoint(tmp_path / "c.json", {}, 0.0).resume(second)
    outcomes.append(second.run())
    for outcome in outcomes:
        assert told(outcome) == told(whole)
        pd.testing.assert_frame_equal(outcome.steps, whole.steps, check_exact=True)
        pd.testing.assert_frame_equal(
            outcome.allocations, whole.allocations, check_exact=True
        )


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
        "killed-itrOut.checkpoint.json",
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
    assert "resumed from my run-itrOut.checkpoint.json after" in last.stderr
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
    kept, saved = bytes_of("debug"), Path("debug-itrOut.checkpoint.json")
    for other in (
        QUICK,
        [*args, "-maxJ", "3"],
        [*args, "--compat", "reference"],
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


def test_no_change_of_a_checkpoint_is_resumed(here: Path) -> None:
    whole = saved_at(8)
    replay, checkpoint = small()
    assert checkpoint.resume(replay)
    refused = 0
    for at, byte in enumerate(whole):
        if (
            not chr(byte).isdigit() and at % 7
        ):  # every digit, and one in seven of the rest
            continue
        changed = bytes([ord("7") if byte != ord("7") else ord("3")])
        checkpoint.path.write_bytes(whole[:at] + changed + whole[at + 1 :])
        with pytest.raises(
            InputError, match=r"is damaged|is no checkpoint|other input"
        ):
            checkpoint.resume(replay)
        refused += 1
    assert refused > 500
    for end in (0, 1, 40, len(whole) // 2, len(whole) - 1):
        checkpoint.path.write_bytes(whole[:end])
        with pytest.raises(InputError, match=r"is damaged|is no checkpoint"):
            checkpoint.resume(replay)
    checkpoint.path.write_bytes(whole + b"\n")
    with pytest.raises(InputError, match="is no checkpoint of ours, or a damaged one"):
        checkpoint.resume(replay)


def test_what_was_written_before_stays_and_a_torn_last_part_is_left_out(
    here: Path,
) -> None:
    replay, checkpoint = small()
    sizes: list[int] = []
    decisions: list[int] = []

    def save(now: int) -> None:
        decisions.append(replay.ledger.decisions)
        before = checkpoint.path.read_bytes() if sizes else b""
        checkpoint.save(replay)
        whole = checkpoint.path.read_bytes()
        assert whole.startswith(before)
        sizes.append(len(whole))

    outcome = replay.run(on_step=save)
    whole = checkpoint.path.read_bytes()
    assert len(sizes) > 20
    growth = [after - before for before, after in pairwise(sizes)]
    assert growth[-1] < 2 * growth[10]  # by the state and a row, not by the history
    first, second = sizes[9], sizes[10]
    for end in (
        first,
        first + 1,
        first + 100,
        (first + second) // 2,
        second - 1,
        second,
    ):
        checkpoint.path.write_bytes(whole[:end])
        other, again = small()
        assert again.resume(other)
        assert again.torn == (end not in (first, second))
        assert other.ledger.decisions == decisions[9 if end < second else 10]
        again.save(other)
        assert again.resume(small()[0])
        assert not again.torn
        assert other.run().steps.equals(outcome.steps)
    # As after a power cut: the file has its length, but not its content.
    checkpoint.path.write_bytes(whole[:first] + bytes(second - first))
    other, again = small()
    assert again.resume(other)
    assert again.torn
    # Damage before the last part is none of that.
    for at in (first // 2, first - 2):
        checkpoint.path.write_bytes(
            whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 : second]
        )
        with pytest.raises(
            InputError, match=r"is damaged|is no checkpoint|other input"
        ):
            checkpoint.resume(small()[0])


def test_a_save_of_several_parts_counts_when_all_are_there(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bft.replay.checkpoint.ROWS", 1)
    replay, checkpoint = small()
    saved: list[tuple[int, int]] = []

    def save(now: int) -> None:
        if len(saved) < 4 and replay.ledger.decisions >= 5 * (len(saved) + 1):
            checkpoint.save(replay)
            saved.append((checkpoint.path.stat().st_size, replay.ledger.decisions))

    outcome = replay.run(on_step=save)
    whole = checkpoint.path.read_bytes()
    lines = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    assert len(lines) > 4 * len(saved)  # of a part there are two
    for end in (end for end in lines if end >= saved[0][0]):
        checkpoint.path.write_bytes(whole[:end])
        other, again = small()
        assert again.resume(other)
        complete = [decisions for size, decisions in saved if size <= end]
        assert other.ledger.decisions == complete[-1]
        assert again.torn == (end not in dict(saved))
    again.save(other)
    third, last = small()
    assert last.resume(third)
    assert third.run().steps.equals(outcome.steps)


def test_a_file_in_which_changes_outweigh_the_rest_is_rewritten(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bft.replay.checkpoint.SPARE_BYTES", 1_000)
    replay, checkpoint = small()
    sizes: list[int] = []

    def save(now: int) -> None:
        checkpoint.save(replay)
        sizes.append(checkpoint.path.stat().st_size)

    outcome = replay.run(on_step=save)
    assert any(after < before for before, after in pairwise(sizes))
    assert max(sizes) < 200_000
    other, again = small()
    assert again.resume(other)
    assert other.run().steps.equals(outcome.steps)


def test_a_damaged_checkpoint_is_refused_by_the_command(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*QUICK, "--checkpoint-every"]
    assert (
        result_of([*signalled([(20, signal.SIGKILL)]), *args, "0"]).returncode
        == -signal.SIGKILL
    )
    saved = Path("debug-itrOut.checkpoint.json")
    whole = saved.read_bytes()
    at = whole.index(b'"_idle_unit_seconds": ') + 22  # in the first of many parts
    saved.write_bytes(
        whole[:at] + (b"1" if whole[at : at + 1] != b"1" else b"2") + whole[at + 1 :]
    )
    assert run([*args, "100"]) == 2
    assert (
        "debug-itrOut.checkpoint.json: is damaged: its checksum is not that"
        in capsys.readouterr().err
    )
    assert not Path("debug-itrOut").exists()
    saved.write_bytes(whole)
    assert run([*args, "100"]) == 0


@pytest.mark.parametrize("part", ["now", "held", "ledger", "in_play"])
def test_a_key_that_a_checkpoint_lacks_is_no_traceback(here: Path, part: str) -> None:
    """A state with missing parts, as of another version, with a correct checksum."""
    header, body, _ = saved_at(5).split(b"\n")
    content = json.loads(body)
    del content["state"][part]
    body = json.dumps(content).encode() + b"\n"
    fields = json.loads(header)
    fields["sha256"] = seal(fields["key"], "", body)
    Path("saved.json").write_bytes(json.dumps(fields).encode() + b"\n" + body)
    replay, checkpoint = small()
    with pytest.raises(
        InputError, match=f"does not fit the version that reads it .KeyError: '{part}'"
    ):
        checkpoint.resume(replay)


@pytest.mark.parametrize("missing", ["format", "version", "key", "sha256"])
def test_a_header_without_one_of_its_fields_is_refused(
    here: Path, missing: str
) -> None:
    header, body, _ = saved_at(5).split(b"\n")
    fields = json.loads(header)
    del fields[missing]
    Path("saved.json").write_bytes(json.dumps(fields).encode() + b"\n" + body + b"\n")
    replay, checkpoint = small()
    with pytest.raises(InputError, match=r"is damaged|is no checkpoint|other input"):
        checkpoint.resume(replay)


def test_a_checkpoint_of_other_options_is_refused_and_kept(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Path("debug-itrOut.checkpoint.json")
    old = json.dumps(
        {"format": "bft-replay checkpoint", "version": 2, "key": "other", "state": {}}
    )
    for content, message in (
        (old, "other input, options or versions"),
        ("no json", "is no checkpoint of ours"),
        ('{"some": "other file"}', "is no checkpoint of ours"),
        ("[" * 100_000, "is no checkpoint of ours"),
    ):
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
