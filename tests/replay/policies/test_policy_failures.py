"""Every failure of another package's policy is reported with its name, and the replay so far is kept."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from packages import plant

from bft.replay import Decision, EqualShare, Options, Replay, Rules, State
from bft.replay.cli.main import run
from bft.replay.engine import policy_api
from bft.replay.inputs.load import load
from bft.replay.inputs.notes import Watcher
from bft.replay.policies import PolicyError, registry

Told = Callable[..., str]
HEAD = """
import os, sys, time
from bft.replay import Decision, EqualShare


class Foreign(EqualShare):
    name = "foreign"
    asked = 0

    def decide(self, state):
        self.asked += 1
        if self.asked <= 5:
            return super().decide(state)
        return self.fail(state)

    def fail(self, state):
"""
FAILURES = {
    "raises": (
        "raise KeyError('no such job')",
        r"it raised KeyError: 'no such job' \(foreign_policy\.py, line 1\d\)",
    ),
    "raises below": (
        "return int('x')",
        r"it raised ValueError: invalid literal.*foreign_policy\.py, line 1\d",
    ),
    "exits": ("sys.exit(0)", r"it tried to end the programme \(foreign_policy\.py"),
    "answers None": ("return None", "it answered None; expected a Decision"),
    "answers text": (
        "return 'all to the first'",
        "it answered 'all to the first'; expected a Decision",
    ),
    "answers a number": (
        "return Decision(7)",
        r"answered Decision\(counts=7.*, which is no decision: .* has no len",
    ),
    "counts in text": (
        "return Decision('1' * len(state.jobs))",
        r"it answered (\d+) counts for \1 jobs",
    ),
    "answers twice": (
        "return Decision((0,) * len(state.jobs), placement={})",
        "expected one of counts, placement",
    ),
    "answers nothing": ("return Decision()", "expected one of counts, placement"),
    "counts are halves": (
        "return Decision((0.5,) * len(state.jobs))",
        "which is no decision: Cannot cast array data from .*float64",
    ),
    "counts are lists": (
        "return Decision(([1], [1, 2]))",
        "it answered 2 counts for|which is no decision",
    ),
    "counts too large": (
        "return Decision([10**30] * len(state.jobs))",
        "which is no decision: Cannot cast",
    ),
    "counts below 0": (
        "return Decision([-1] * len(state.jobs))",
        "-1 units, outside 0 and",
    ),
    "counts too few": ("return Decision(())", "it answered 0 counts for"),
    "places text": (
        "return Decision.placed({0: 'ab'})",
        "answered Decision.*'ab'.*, which is no decision",
    ),
    "places nobody": (
        "return Decision(placement={'j': (1,)})",
        "answered Decision.*'j'.*, which is no decision",
    ),
    "wakes at a fraction": (
        "return Decision.keep(wake_ns=state.time_ns + 0.5)",
        "which is no decision: .*cannot be interpreted as an integer",
    ),
    "sets a job's work": (
        "state.jobs[0].job.pmax = 1.0",
        "it raised FrozenInstanceError",
    ),
    "speeds a job up": (
        "state.jobs[0].job.rates[:] *= 2",
        "it raised ValueError: .*read-only",
    ),
    "bends a curve": (
        "state.jobs[0].job.scalability.ps[1] = 1e9",
        "it raised ValueError: .*read-only",
    ),
    "adds a column": (
        "state.jobs[0].job.extra['x'] = 1",
        "it raised TypeError: .*mappingproxy",
    ),
    "hangs": ("while True: pass", "no answer within 3 s"),
    "hangs and does not let go": (
        "\n            ".join(
            (
                "while True:",
                "try:",
                "    time.sleep(60)",
                "except Exception:",
                "    pass",
            ),
        ),
        "no answer within 3 s",
    ),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "foreign_policy", raising=False)
    plant({}, {registry.GROUP: {"foreign": "foreign_policy:Foreign"}}, tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The steps of the policy that `Foreign` is for five decisions."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run(["--policy", "equal-share", "--out", str(out), "--no-u"]) == 0
    return pd.read_parquet(out / "steps.parquet")


@pytest.mark.parametrize("failure", FAILURES)
def test_a_policy_that_fails_is_named_and_what_was_replayed_is_kept(
    failure: str, here: Path, whole: pd.DataFrame, told: Told
) -> None:
    body, why = FAILURES[failure]
    (here / "foreign_policy.py").write_text(f"{HEAD}        {body}\n")
    limit = "--option policy-time-limit=3" if "hangs" in failure else ""
    kept = ", at decision 6; what was replayed before is kept in out"
    error = told(f"--policy foreign --out out {limit}", kept, code=2)
    assert re.search(rf"Error: policy 'foreign' was stopped: .*{why}", error), error
    assert "Traceback" not in error
    metrics = json.loads(Path("out", "summary.json").read_text())["metrics"]
    assert (metrics["interrupted"], metrics["U"]) == (True, None)
    assert re.search(why, metrics["policy_error"])
    steps = pd.read_parquet(Path("out", "steps.parquet"))
    assert len(steps) >= 5
    pd.testing.assert_frame_equal(steps.iloc[:-1], whole.iloc[: len(steps) - 1])


def test_the_page_reports_that_a_policy_failed(here: Path, told: Told) -> None:
    (here / "foreign_policy.py").write_text(f"{HEAD}        {FAILURES['raises'][0]}\n")
    told("--policy foreign --out out", code=2)
    told("report out")
    assert "policy &#39;foreign&#39; was stopped" in Path("out.html").read_text()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys\nsys.exit(0)\n", "cannot be loaded: SystemExit"),
        ("raise MemoryError\n", "cannot be loaded: MemoryError"),
        (
            f"{HEAD}        pass\n    def __init__(self):\n        sys.exit(0)\n",
            "policy 'foreign': SystemExit: 0",
        ),
        (
            f"{HEAD}        pass\n    def __init__(self):\n        {{}}['x']\n",
            "policy 'foreign': KeyError: 'x'",
        ),
    ],
)
def test_a_policy_that_fails_before_the_replay_is_named(
    code: str, why: str, here: Path, told: Told
) -> None:
    (here / "foreign_policy.py").write_text(code)
    told("--policy foreign --out out", why, code=2)
    assert not Path("out").exists()


def test_a_memory_that_no_checkpoint_can_hold_is_the_policys_failure(
    here: Path, told: Told
) -> None:
    more = "    def state(self):\n        return {'seen': object()}\n    def restore(self, state): ...\n"
    code = f"{HEAD}        return super().decide(state)\n{more}"
    (here / "foreign_policy.py").write_text(code)
    line = "--policy foreign --out out --checkpoint-every 0"
    error = told(line, "policy 'foreign' was stopped: it raised", code=2)
    assert "Traceback" not in error


class Compiled(EqualShare):
    """Says what compiled code says of a signal that arrived within it."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error = error

    def decide(self, state: State) -> Decision:
        raise SystemError("a result with an exception set") from self.error()


@pytest.mark.parametrize(
    ("error", "expected", "told"),
    [
        (KeyboardInterrupt, KeyboardInterrupt, "^$"),
        (policy_api._TimeUp, PolicyError, "no answer within 600 s"),
        (ValueError, PolicyError, "it raised ValueError"),
    ],
)
def test_a_signal_within_compiled_code_is_that_signal(
    error: type[BaseException], expected: type[BaseException], told: str
) -> None:
    pool, rules = load(Options(), Watcher()).pools[0], Rules(policy_time_limit_s=600.0)
    with pytest.raises(expected, match=told):
        Replay(pool.trace, pool.jobs, Compiled(error), rules).run()
