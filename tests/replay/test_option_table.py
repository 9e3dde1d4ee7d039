"""The table of options: one field makes an option known to checks, command line, help, notes and reference page."""

from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bft.models import InputError
from bft.models.checks import (
    COSTS,
    SECTIONS,
    Condition,
    OptionField,
    whole,
)
from bft.models.errors import FLAGS
from bft.replay import EqualShare
from bft.replay.cli.commands import Command
from bft.replay.cli.parameters import stated_options, table_options
from bft.replay.cli.studies import plan_of
from bft.replay.options.options import FIELDS, Options
from bft.replay.policies.registry import BUILT_IN, named, policy_type

CUPS = OptionField(
    name="cups",
    flags=("--cups",),
    check=whole(0),
    default=3,
    help="Cups of tea at a restart.",
    section=COSTS,
    metavar="CUPS",
    conditions=(
        Condition(
            lambda run, _: run.policy_type.traits.rigid,
            "with $policy {policy}, which drinks none",
        ),
    ),
    for_policy=True,
)


@pytest.fixture
def cups(monkeypatch: pytest.MonkeyPatch) -> None:
    """One option more: all that adding an option takes."""
    monkeypatch.setitem(FIELDS, "cups", CUPS)
    monkeypatch.setitem(FLAGS, "cups", CUPS.flag)


@dataclass
class Thirsty(EqualShare):
    cups: int = 0


_PAGE = spec_from_file_location(
    "options_page", Path(__file__).parents[2] / "docs" / "options_page.py"
)
assert _PAGE is not None
assert _PAGE.loader is not None
PAGE = module_from_spec(_PAGE)
_PAGE.loader.exec_module(PAGE)
options_page = PAGE.options_page


@pytest.mark.usefixtures("cups")
def test_an_added_option_checks_itself_and_is_recorded() -> None:
    with pytest.raises(
        InputError, match="--cups: expected a whole number >= 0, not -1"
    ):
        Options(cups=-1)
    with pytest.raises(InputError, match="unknown option 'cps'; did you mean 'cups'"):
        Options(cps=1)
    plain = Options(backend="exact").flat()
    assert Options(cups=5, backend="exact").flat() == {**plain, "cups": 5}


@pytest.mark.usefixtures("cups")
def test_an_added_option_is_on_the_command_line_and_in_its_help() -> None:
    seen: dict[str, Any] = {}

    @click.command(cls=Command)
    @table_options(FIELDS)
    def drink(**given: Any) -> None:
        seen.update(stated_options(FIELDS, given))

    assert (
        CliRunner()
        .invoke(drink, ["--cups", "5", "--no-u"], standalone_mode=False)
        .exception
        is None
    )
    assert (seen["cups"], seen["dedicated"]) == (5, False)
    assert Options(**seen).cups == 5
    assert (
        "expected a whole number >= 0"
        in CliRunner().invoke(drink, ["--cups", "-1"]).output
    )
    help_ = CliRunner().invoke(drink, ["--help"], env={"COLUMNS": "120"}).output
    costs = help_.partition("Costs and rules:")[2].partition("Output:")[0]
    assert "--cups CUPS" in costs
    assert "Cups of tea at a restart.  [default: 3]" in costs


@pytest.mark.usefixtures("cups")
def test_an_added_option_without_effect_gets_a_note_and_a_row_of_the_reference() -> (
    None
):
    assert list(Options(cups=5).notes()) == [
        "--cups has no effect with --policy milp, which drinks none"
    ]
    assert list(Options(cups=5, policy="fifo").notes()) == []
    assert list(Options().notes()) == []
    row = "| `--cups` | `cups` | `3` | Cups of tea at a restart. | with --policy NAME, which drinks none; with "
    page = options_page(FIELDS).splitlines()
    assert f"{row}--option compat=reference |" in page


@pytest.mark.usefixtures("cups")
def test_an_added_option_fills_the_field_of_a_policy() -> None:
    with named("thirsty", Thirsty):
        policy = Options(cups=5, policy="thirsty").make_policy()
        assert isinstance(policy, Thirsty)
        assert policy.cups == 5
        with pytest.raises(InputError, match="has no option 'cups'"):
            Options(policy="thirsty", policy_options=(("cups", "7"),))


@pytest.fixture(scope="module")
def rows() -> list[str]:
    return options_page(FIELDS).splitlines()


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_every_option_has_its_help_and_a_row_of_the_reference(
    field: OptionField, rows: list[str]
) -> None:
    assert field.section in SECTIONS
    assert field.help.endswith("."), field.help
    names = (f"--option {field.key}=",) if field.rare else field.flags
    row = "| " + ", ".join(f"`{name}`" for name in names) + f" | `{field.name}` | "
    assert sum(line.startswith(row) for line in rows) == 1


@pytest.mark.parametrize("policy", BUILT_IN)
def test_every_condition_of_an_option_can_be_told(policy: str) -> None:
    shares = policy_type(policy).traits.shares
    run = Options(policy=policy, xi="xi.csv" if shares else None)
    told = [
        each.holds(run, field.name)
        for field in FIELDS.values()
        for each in field.conditions
    ]
    assert {type(answer) for answer in told} == {bool}


def test_no_u_switches_off_the_dedicated_replay_in_plans_and_variants() -> None:
    of_variants = plan_of({"variants": ("quick: --no-u", "whole: --policy fifo")})
    assert [point.options.dedicated for point in of_variants.points] == [False, True]
    of_flag = plan_of({"variants": (), "no_u": True})
    assert [point.options.dedicated for point in of_flag.points] == [False]
