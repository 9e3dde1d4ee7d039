"""Policies by name: constants set by users, and policies of other packages."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from packages import ROOT, installed, plant

from bft.models import InputError
from bft.models.plugins import constants_of
from bft.replay.cli.main import run
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
    assert policy_type(name).make(Options().settings()).name == name
    assert (policy_type(name).factory.__doc__ or "").splitlines()[0].endswith(".")
    assert all(
        option.help
        for option in constants_of(
            policy_type(name).factory, list(Options().settings())
        )
    )


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
    with pytest.raises(InputError, match=told):
        policy_type("knobs").make({"seed": 9}, {key: text})


def test_the_command_lists_policies_and_their_constants(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["list", "policies"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == policy_names()
    assert run(["list", "policies", "equal-share"]) == 0
    assert "no constants" in capsys.readouterr().out
    assert run(["list", "policies", "milp", "--json"]) == 0
    assert run(["list", "policies", "magic"]) == 2


def test_a_broken_package_is_reported_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(
        plant(
            {}, {registry.GROUP: {"broken": "nowhere.at_all:Policy"}}, tmp_path / "site"
        )
    )
    assert run(["list", "policies"]) == 0
    listed = capsys.readouterr().out
    assert re.search(
        r"^broken +.*nowhere.*cannot be loaded.*ModuleNotFoundError",
        listed,
        re.MULTILINE,
    )
    assert "equal-share" in listed
    for command in (["list", "policies", "broken"], ["--policy", "broken"]):
        assert run(command) == 2
        assert "cannot be loaded" in capsys.readouterr().err


@pytest.mark.slow
def test_a_policy_of_another_package_is_installed_and_run(tmp_path: Path) -> None:
    call = installed(OWN, tmp_path)
    own = [
        "--policy",
        "smallest-first",
        "--set",
        "most=8",
        "--no-u",
        "--json",
        "--out",
        str(tmp_path / "out"),
    ]
    listed = call("list", "policies")
    assert re.search(
        "^smallest-first +Serve jobs by Jmin", listed.stdout, re.MULTILINE
    ), listed.stderr
    ended = call(*own)
    assert ended.returncode == 0, ended.stderr
    assert '"policy": "smallest-first"' in ended.stdout
    refused = call("--policy", "smallest-first", "--set", "least=8")
    assert refused.returncode == 2
    assert "no option 'least'; it has most" in refused.stderr


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


@pytest.mark.parametrize(("body", "told"), TYPOS.items())
def test_a_typo_in_a_policy_of_another_package_is_an_error_at_load(
    body: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = {"typo_policy.py": f"from bft.replay import Traits\n\n{body}\n"}
    points = {registry.GROUP: {"typo": "typo_policy:Typo"}}
    monkeypatch.syspath_prepend(plant(module, points, tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "typo_policy", raising=False)
    out = tmp_path / "out"
    assert run(["--policy", "typo", "--no-u", "--out", str(out)]) == 2
    assert re.search(told, capsys.readouterr().err)
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
