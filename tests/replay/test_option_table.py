"""The table of options: one field makes an option known to checks, command line, help, notes and reference page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bft.models import InputError
from bft.models.checks import whole
from bft.models.option_fields import (
    COSTS,
    SECTIONS,
    Condition,
    OptionField,
    option,
)
from bft.replay import EqualShare
from bft.replay.cli.parameters import Command, stated_options, table_options
from bft.replay.cli.study_options import plan_of
from bft.replay.options.options import FIELDS, Options
from bft.replay.policies.registry import BUILT_IN, named, policy_type


@dataclass(frozen=True, init=False)
class WithCups(Options):
    """The options, and one more: all that adding an option takes."""

    cups: int = option(
        "--cups",
        whole(0),
        3,
        help="Cups of tea at a restart.",
        section=COSTS,
        metavar="CUPS",
        conditions=(
            Condition(
                lambda run, _: run.policy_type.traits.rigid,
                "with --policy {policy}, which drinks none",
            ),
        ),
        for_policy=True,
    )


@dataclass
class Thirsty(EqualShare):
    cups: int = 0


TABLE = WithCups.known()
_PAGE = spec_from_file_location(
    "options_page", Path(__file__).parents[2] / "docs" / "options_page.py"
)
assert _PAGE is not None
assert _PAGE.loader is not None
PAGE = module_from_spec(_PAGE)
_PAGE.loader.exec_module(PAGE)
options_page = PAGE.options_page


def test_an_added_option_checks_itself_and_is_recorded() -> None:
    with pytest.raises(
        InputError, match="--cups: expected a whole number >= 0, not -1"
    ):
        WithCups(cups=-1)
    with pytest.raises(InputError, match="unknown option 'cps'; did you mean 'cups'"):
        WithCups(cps=1)
    assert WithCups(cups=5, backend="exact").flat() == {
        **Options(backend="exact").flat(),
        "cups": 5,
    }


def test_an_added_option_is_on_the_command_line_and_in_its_help() -> None:
    seen: dict[str, Any] = {}

    @click.command(cls=Command)
    @table_options(TABLE)
    def drink(**given: Any) -> None:
        seen.update(stated_options(TABLE, given))

    assert (
        CliRunner()
        .invoke(drink, ["--cups", "5", "--no-u"], standalone_mode=False)
        .exception
        is None
    )
    assert (seen["cups"], seen["dedicated"]) == (5, False)
    assert WithCups(**seen).cups == 5
    assert (
        "expected a whole number >= 0"
        in CliRunner().invoke(drink, ["--cups", "-1"]).output
    )
    help_ = CliRunner().invoke(drink, ["--help"], env={"COLUMNS": "120"}).output
    costs = help_.partition("Costs and rules:")[2].partition("Output:")[0]
    assert "--cups CUPS" in costs
    assert "Cups of tea at a restart.  [default: 3]" in costs


def test_an_added_option_without_effect_gets_a_note_and_a_row_of_the_reference() -> (
    None
):
    assert list(WithCups(cups=5).ineffective()) == [
        "--cups has no effect with --policy milp, which drinks none"
    ]
    assert list(WithCups(cups=5, policy="fifo").ineffective()) == []
    assert list(WithCups().ineffective()) == []
    row = "| `--cups` | `cups` | `3` | with --policy NAME, which drinks none; with --compat reference |"
    assert row in options_page(TABLE).splitlines()


def test_an_added_option_fills_the_field_of_a_policy() -> None:
    with named("thirsty", Thirsty):
        policy = WithCups(cups=5, policy="thirsty").make_policy()
        assert isinstance(policy, Thirsty)
        assert policy.cups == 5
        with pytest.raises(InputError, match="has no option 'cups'"):
            WithCups(policy="thirsty", policy_options=(("cups", "7"),))


@pytest.fixture(scope="module")
def rows() -> list[str]:
    return options_page(FIELDS).splitlines()


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_every_option_has_its_help_and_a_row_of_the_reference(
    field: OptionField, rows: list[str]
) -> None:
    assert field.section in SECTIONS
    assert field.help.endswith("."), field.help
    row = (
        "| " + ", ".join(f"`{flag}`" for flag in field.flags) + f" | `{field.name}` | "
    )
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


def test_no_u_switches_off_the_dedicated_replay_in_plans_and_variants(
    tmp_path: Path,
) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("[options]\nno-u = true\n")
    of_file = plan_of({"plan_file": str(file), "variants": ()})
    assert [point.options.dedicated for point in of_file.points] == [False]
    of_variants = plan_of(
        {"plan_file": None, "variants": ("quick: --no-u", "whole: --policy fifo")}
    )
    assert [point.options.dedicated for point in of_variants.points] == [False, True]
    of_flag = plan_of({"plan_file": None, "variants": (), "no_u": True})
    assert [point.options.dedicated for point in of_flag.points] == [False]
