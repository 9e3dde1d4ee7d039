"""Options check themselves: the command line, config files and Python share one set of errors."""

import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from refusals import refused

from bft.models.objectives import CURVES, FACTORS
from bft.replay import Options, Rules, SolverOptions, execute
from bft.replay.cli.main import cli
from bft.replay.cli.parameters import parameter_name
from bft.replay.options.options import FIELDS

OF_RULES = {field.name for field in fields(Rules)}
WRONG = Path(__file__).parents[1] / "data" / "wrong_options.toml"
CASES = [case for of in tomllib.loads(WRONG.read_text("utf-8")).values() for case in of]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", CASES, ids=[case["line"] for case in CASES])
def test_a_wrong_value_is_the_same_error_in_python_and_on_the_command_line(
    case: dict[str, Any], told: Callable[..., str]
) -> None:
    given = case.get("python", {})
    for make in (Options, Rules) if given and given.keys() <= OF_RULES else (Options,):
        error = str(refused("", make, **given)) if given else ""
        assert not given or all(part in error for part in case["told"])
    told(case["line"], *case["told"], code=2)


@pytest.mark.parametrize("value", [True, "120", [120]])
def test_a_value_of_another_type_is_no_number(value: object) -> None:
    refused("-Tfwd: expected a number of seconds", Options, tfwd_s=value)


def test_options_are_recorded_in_one_form_however_they_are_given() -> None:
    loose = Options(
        tfwd_s=np.int64(120),
        policy="TIRESIAS-L",
        backend="Exact",
        node_trace=Path("trace.pkl"),
        policy_options={"late-demotion": True},
        restart_overhead=30,
    )
    assert loose == Options(
        tfwd_s=120.0,
        policy="tiresias-l",
        node_trace="trace.pkl",
        policy_options=(("late_demotion", "yes"),),
        restart_overhead=((sys.maxsize, 30.0),),
        backend="exact",
    )
    assert Options(**loose.flat()) == loose


CLUSTER = {"cluster": "2x2", "jobs": "j"}
POLLUX = {"jobs": "j", "jobs_format": "pollux", "compat": "pollux"}
SIA = POLLUX | {"compat": "sia", "policy": "sia"}
SRTF = {"policy": "srtf", "compat": "lucid"}
TIRESIAS = {
    "policy": "tiresias-l",
    "compat": "lucid",
    "policy_options": {"limits": "3250"},
}
BEST = "power:0.5+ageing:60:2"
# What is stated, and what follows where nothing else is.
DEFAULTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"policy": "milp", "rules": Rules(), "solver": SolverOptions("cbc", time_limit_s=10)}),
    ({}, {"tfwd_s": 10.0, "objective": "own", "rules.max_jobs": 10}),
    ({"preset": "best"}, {"tfwd_s": 60.0, "rules.max_jobs": 0, "solver.backend": "auto", "objective": BEST}),
    (
        {"preset": "best", "tfwd_s": 10, "backend": "cbc", "max_jobs": None},
        {"tfwd_s": 10.0, "rules.max_jobs": 0, "solver.backend": "cbc", "objective": BEST},
    ),
    (
        CLUSTER | {"min_interval_s": 5, "backend": "highs", "max_jobs": None},
        {"rules": Rules(max_jobs=0, min_interval_s=5), "solver": SolverOptions("highs", time_limit_s=10)},
    ),
    ({"xi": "x"}, {"policy": "milp-sharing"}),
    (CLUSTER, {"rules.max_jobs": 0}),
    (CLUSTER | {"max_jobs": 10}, {"rules.max_jobs": 10}),
    (POLLUX, {"rules.start_overhead_s": 30.0}),
    (POLLUX | {"start_overhead_s": 0}, {"rules.start_overhead_s": 0.0}),
    (SIA, {"rules.start_overhead_s": 30.0, "rules.free_moves": True}),
    (SIA, {"constants": {"freeze": "yes", "user_batch": "yes", "quantum": "0.01"}}),
    ({"policy": "lucid", "compat": "lucid"}, {"constants": {"compat": "yes"}, "rules.restart_overhead": ()}),
    (SRTF, {"constants": {"compat": "yes"}, "rules.restart_overhead": ((8, 40.0), (64, 60.0))}),
    (TIRESIAS, {"constants": {"compat": "yes", "limits": "3250", "interval_s": "60", "placement": "all"}}),
]  # fmt: skip


@pytest.mark.parametrize(("stated", "expected"), DEFAULTS)
def test_what_is_not_stated_follows_from_presets_and_other_options(
    stated: dict[str, Any], expected: dict[str, Any]
) -> None:
    options = Options(**stated)
    assert {name: attrgetter(name)(options) for name in expected} == expected
    assert Options(**options.flat()) == options


def test_what_is_no_option_is_refused() -> None:
    refused("unknown option 'tfwd'; did you mean 'tfwd_s'?", Options, tfwd=120)
    gap = "--option gap: expected a finite number >= 0 and < 1, not 1"
    refused(gap, SolverOptions, gap=1)


def test_names_are_taken_in_capitals_too(told: Callable[..., str]) -> None:
    assert told("list policies FIFO").startswith("fifo  ")
    told("List policies tiresias-k", "did you mean 'tiresias-", code=2)
    told("reprot", "did you mean 'report'", code=2)


def test_each_objective_is_listed_with_what_it_is_for(told: Callable[..., str]) -> None:
    known = told("list objectives").splitlines()
    assert [line.split()[0] for line in known] == [*CURVES, *FACTORS]
    assert all(re.search(r" is .*, right when ", line) for line in known)
    assert "The factor srpt:B is (Pmax / remaining)^B" in told("list objectives srpt")


def test_the_command_line_has_every_option_by_the_name_that_errors_give_it() -> None:
    command = cli.get_command(click.Context(cli), "replay")
    assert command is not None
    names = {param.name: param.opts for param in command.params}
    for field in FIELDS.values():
        assert field.flag.partition("=")[0] in names[parameter_name(field)]
    assert FIELDS.keys() == Options().flat().keys()


def test_execute_takes_text_and_paths(tmp_path: Path) -> None:
    options = Options(dedicated=False, first_node=0, policy="fifo")
    for folder in (str(tmp_path / "text"), tmp_path / "path"):
        assert execute(options, folder)["options"]["policy"] == "fifo"
    assert (tmp_path / "text" / "jobs.parquet").read_bytes() == (
        tmp_path / "path" / "jobs.parquet"
    ).read_bytes()


@pytest.mark.usefixtures("here")
def test_a_config_may_list_what_may_be_repeated(told: Callable[..., str]) -> None:
    both = 'set = ["backfill=yes", "consolidate=no"]'
    for text, more, part, code in (
        (f'policy = "fifo"\n{both}\nno-u = true\n', "--json", '"backfill"', 0),
        ("free-moves = true\n", "--policy sia --bound", "", 0),
        ('free-moves = "on"\n', "--bound", "free-moves: expected true or false, not 'on'", 2),
        ("forbid = 5\n", "", "forbid: expected two models with a comma between, not 5", 2),
    ):  # fmt: skip
        Path("site.toml").write_text(text)
        told(f"--config site.toml {more}", part, code=code)


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("-ndmap a -ndmap b", "-ndmap"),
        ("-ndmap a --node-trace b", "-ndmap"),
        ("--policy fifo -Tfwd 1 --policy sjf", "--policy"),
        ("--no-u --no-u", "--no-u"),
        ("--bound --cluster 2x2 --cluster 3x3", "--cluster"),
        ("trace info t.parquet --json --json", "--json"),
    ],
)
def test_an_option_given_twice_is_an_error(
    line: str, flag: str, told: Callable[..., str]
) -> None:
    told(line, f"{flag} is given twice", code=2)


def test_grams_that_look_like_kilograms_are_asked_about() -> None:
    stated = {"node_watts": (100, 500), "policy": "fifo"}
    (note,) = Options(co2_per_kwh=0.38, **stated).notes()
    assert note == (
        "--co2-per-kwh 0.38 is less than any grid emits: are these kilograms? It is in grams, and 0.38 kg are 380"
    )
    for grams in (0, 1, 380):
        assert not list(Options(co2_per_kwh=grams, **stated).notes())
