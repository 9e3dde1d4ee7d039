"""The table of options: what each field has for help, notes and the reference page."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from bft.models.checks import (
    SECTIONS,
    OptionField,
)
from bft.replay.cli.studies import plan_of
from bft.replay.options.options import FIELDS, Options
from bft.replay.policies.registry import BUILT_IN, policy_type

_PAGE = spec_from_file_location(
    "options_page", Path(__file__).parents[2] / "docs" / "options_page.py"
)
assert _PAGE is not None
assert _PAGE.loader is not None
PAGE = module_from_spec(_PAGE)
_PAGE.loader.exec_module(PAGE)
options_page = PAGE.options_page


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
