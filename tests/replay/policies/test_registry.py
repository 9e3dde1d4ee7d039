"""Policies by name: constants set by users, and policies of other packages."""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from packages import ROOT, installed, plant
from refusals import refused

from bft.models.plugins import constants_of
from bft.replay.options.options import Options
from bft.replay.policies import (
    Decision,
    State,
    Traits,
    policy_names,
    policy_type,
    registry,
)

OWN = ROOT / "examples" / "own-policy"


@dataclass
class Knobs:
    """Has a constant of every kind."""

    count: int = 1
    share: float = 0.5
    on: bool = True
    limits: tuple[float, ...] = (1.0, 2.0)
    order: Literal["up", "down"] = "up"
    most: int | None = None
    seed: int = 0
    name: str = field(default="knobs", init=False)
    _memory: int = 0

    def decide(self, state: State) -> Decision:
        return Decision.keep()


@pytest.fixture
def knobs() -> Iterator[None]:
    with registry.named("knobs", Knobs):
        yield


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_built_in_policy_can_be_made_and_describes_itself(name: str) -> None:
    kind, settings = policy_type(name), Options().settings()
    assert kind.make(settings).name == name
    assert (kind.factory.__doc__ or "").splitlines()[0].endswith(".")
    assert all(option.help for option in constants_of(kind.factory, list(settings)))


@pytest.mark.usefixtures("knobs")
def test_texts_become_what_the_fields_are() -> None:
    given = {
        "count": "3",
        "share": "1e-2",
        "on": "no",
        "limits": "5, 6.5",
        "order": "down",
        "most": "7",
    }
    made = policy_type("knobs").make({"seed": 9, "unknown": 1}, given)
    assert made == Knobs(3, 0.01, False, (5.0, 6.5), "down", 7, 9)
    assert policy_type("knobs").make({}, {"most": "none"}) == Knobs()


@pytest.mark.usefixtures("knobs")
@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("count", "2.5", "a whole number"),
        ("share", "half", "a number"),
        ("on", "maybe", "yes or no"),
        ("limits", "1,x", "several with commas"),
        ("order", "sideways", "one of up, down"),
        ("most", "x", "a whole number or none"),
        ("nothing", "1", "it has count, share, on, limits, order, most"),
        ("seed", "1", "no option 'seed'"),
        ("_memory", "1", "no option '_memory'"),
    ],
)
def test_an_invalid_constant_is_reported_with_what_was_expected(
    key: str, text: str, told: str
) -> None:
    refused(told, policy_type("knobs").make, {"seed": 9}, {key: text})


def test_the_command_lists_policies_and_their_constants(
    told: Callable[..., str],
) -> None:
    listed = told("list policies").splitlines()
    assert [line.split()[0] for line in listed] == policy_names()
    told("list policies equal-share", "no constants")
    told("list policies milp --json")
    told("list policies magic", "'magic'", "milp", "equal-share", code=2)


def test_a_broken_package_is_reported_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[..., str]
) -> None:
    points = {registry.GROUP: {"broken": "nowhere.at_all:Policy"}}
    monkeypatch.syspath_prepend(plant({}, points, tmp_path / "site"))
    listed = told("list policies", "equal-share")
    broken = r"^broken +.*nowhere.*cannot be loaded.*ModuleNotFoundError"
    assert re.search(broken, listed, re.MULTILINE)
    for line in ("list policies broken", "--policy broken"):
        told(line, "cannot be loaded", code=2)


@pytest.mark.slow
def test_a_policy_of_another_package_is_installed_and_run(tmp_path: Path) -> None:
    call = installed(OWN, tmp_path)
    listed = call("list", "policies")
    serves = "^smallest-first +Serve jobs by Jmin"
    assert re.search(serves, listed.stdout, re.MULTILINE), listed.stderr
    own = f"--policy smallest-first --set most=8 --no-u --json --out {tmp_path / 'out'}"
    ended = call(*own.split())
    assert ended.returncode == 0, ended.stderr
    assert '"policy": "smallest-first"' in ended.stdout
    failed = call("--policy", "smallest-first", "--set", "least=8")
    assert failed.returncode == 2
    assert "no option 'least'; it has most" in failed.stderr


def test_the_documented_example_is_short() -> None:
    assert len((OWN / "smallest_first.py").read_text("utf-8").splitlines()) <= 30


# --- what kind of policy it is ----------------------------------------------------------------------------------------


def test_a_word_that_is_no_kind_is_an_error() -> None:
    with pytest.raises(TypeError, match="ridgid"):
        Traits(ridgid=True)  # type: ignore[call-arg]


TYPOS = {
    "class Typo:\n    name = 'typo'\n    traits = Traits(ridgid=True)": r"cannot be loaded.*ridgid",
    "class Typo:\n    name = 'typo'\n    traits = 'rigid'": r"its traits must be Traits, such as Traits\(rigid=True\)",
    "class Typo:\n    traits = Traits(rigid=True)\n    def decide(self, state): ...": "it needs a `name`",
    "class Typo:\n    name = 'typo'": r"it needs a method decide\(state\)",
    "Typo = 7": r"policy 'typo' \(typo_policy:Typo\) is a int, expected a class or function that makes a policy",
}


@pytest.mark.parametrize(("body", "expected"), TYPOS.items())
def test_a_typo_in_a_policy_of_another_package_is_an_error_at_load(
    body: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[..., str],
) -> None:
    module = {"typo_policy.py": f"from bft.replay import Traits\n\n{body}\n"}
    points = {registry.GROUP: {"typo": "typo_policy:Typo"}}
    monkeypatch.syspath_prepend(plant(module, points, tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "typo_policy", raising=False)
    out = tmp_path / "out"
    assert re.search(expected, told(f"--policy typo --no-u --out {out}", code=2))
    assert not out.exists()


def test_the_kinds_of_our_own_are_what_they_were() -> None:
    """Who is what decides how the engine charges them; written down a second time, so that no kind is lost unseen."""
    kinds = {name: policy_type(name).traits.stated for name in registry.BUILT_IN}
    rigid, seeing = ("rigid",), ("rigid", "clairvoyant")
    assert kinds == {
        "milp": ("kinds",),
        "milp-sharing": ("shares",),
        "equal-share": (),
        "fifo": rigid,
        "yarn-cs": rigid,
        "sjf": seeing,
        "srtf": seeing,
        "qssf": rigid,
        "optimus": ("migrates", "clairvoyant"),
        "tiresias-l": rigid,
        "tiresias-g": rigid,
        "tiresias-pollux": rigid,
        "pollux": ("migrates", "tunes"),
        "sia": ("migrates", "tunes", "kinds"),
        "lucid": rigid,
        "srtf-ars": (*seeing, "shares"),
        "srtf-wrs": (*seeing, "shares"),
        "sjf-bsbf": (*seeing, "shares"),
        "schedule": ("migrates",),
    }
