"""Options check themselves: the command line, config files and Python share one set of errors."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from bft.models import InputError
from bft.replay import Options, Rules, SolverOptions, execute
from bft.replay.cli.main import cli, run
from bft.replay.cli.parameters import parameter_name
from bft.replay.options.options import FIELDS

# An invalid value: field, value in Python, value on the command line, message for both.
WRONG: list[tuple[str, Any, list[str], list[str]]] = [
    ("tfwd_s", math.nan, ["-Tfwd", "nan"], ["-Tfwd", "seconds > 0 and at most 1e+09"]),
    ("tfwd_s", 0, ["-Tfwd", "0"], ["-Tfwd", "seconds > 0"]),
    ("tfwd_s", math.inf, ["-Tfwd", "inf"], ["-Tfwd", "at most"]),
    ("time_limit_s", 1e8, ["-optTL", "1e8"], ["-optTL", "at most 1e+06"]),
    ("max_jobs", -1, ["-maxJ", "-1"], ["-maxJ", "whole number >= 0"]),
    ("max_jobs", 2.5, ["-maxJ", "2.5"], ["-maxJ", "whole number >= 0", "2.5"]),
    ("first_node", -1, ["-nis", "-1"], ["-nis", "whole number >= 0"]),
    ("node_count", 0, ["-nN", "0"], ["-nN", "whole number >= 1"]),
    ("skip_rows", -3, ["--skip-rows", "-3"], ["--skip-rows", ">= 0"]),
    ("gap", 1.0, ["--option", "gap=1"], ["--option gap", ">= 0 and < 1"]),
    ("threads", 0, ["--option", "threads=0"], ["--option threads", ">= 1"]),
    ("seed", -1, ["--seed", "-1"], ["--seed", ">= 0"]),
    (
        "min_interval_s",
        math.nan,
        ["--option", "min-interval=nan"],
        ["--option min-interval", "seconds >= 0"],
    ),
    (
        "checkpoint_interval_s",
        -1,
        ["--option", "checkpoint-interval=-1"],
        ["--option checkpoint-interval", "seconds >= 0"],
    ),
    (
        "start_overhead_s",
        -1,
        ["--option", "start-overhead=-1"],
        ["--option start-overhead", "seconds >= 0"],
    ),
    (
        "restart_overhead",
        ((0, 5.0),),
        ["--option", "restart-overhead=0:5"],
        ["--option restart-overhead", "expected seconds"],
    ),
    (
        "restart_overhead",
        ((8, 1), (8, 2)),
        ["--option", "restart-overhead=8:1,8:2"],
        ["--option restart-overhead", "expected"],
    ),
    (
        "deadline_boost",
        0.5,
        ["--option", "deadline-boost=0.5"],
        ["--option deadline-boost", ">= 1"],
    ),
    (
        "deadline_horizon_s",
        0,
        ["--option", "deadline-horizon=0"],
        ["--option deadline-horizon", "> 0"],
    ),
    ("xi_max", 0.9, ["--option", "xi-max=0.9"], ["--option xi-max", ">= 1"]),
    ("xi_partners", 0, ["--option", "xi-partners=0"], ["--option xi-partners", ">= 1"]),
    (
        "unit_memory_gib",
        0,
        ["--option", "unit-memory=0"],
        ["--option unit-memory", "> 0"],
    ),
    (
        "sub_batch",
        1.5,
        ["--option", "sub-batch=1.5"],
        ["--option sub-batch", "at most 1"],
    ),
    ("forbid", (("a",),), ["--option", "forbid=a"], ["--option forbid", "two models"]),
    ("policy_options", (("", "1"),), ["--set", "=1"], ["--set", "expected"]),
    (
        "policy_options",
        {"bakfill": True},
        ["--policy", "fifo", "--set", "bakfill=1"],
        ["no option 'bakfill'"],
    ),
    (
        "policy_options",
        {"backfill": "so"},
        ["--policy", "fifo", "--set", "backfill=so"],
        ["yes or no", "'so'"],
    ),
    (
        "policy",
        "tiresias",
        ["--policy", "tiresias"],
        ["--policy", "'fifo'", "did you mean 'tiresias-"],
    ),
    ("backend", "cbcc", ["--backend", "cbcc"], ["--backend", "did you mean 'cbc'"]),
    (
        "formulation",
        "mode",
        ["--option", "formulation=mode"],
        ["--option formulation", "did you mean 'modes'"],
    ),
    (
        "jobs_format",
        "tiresia",
        ["--jobs-format", "tiresia"],
        ["--jobs-format", "did you mean 'tiresias'"],
    ),
    (
        "cost_model",
        "free",
        ["--option", "cost-model=free"],
        ["--option cost-model", "'stall'"],
    ),
    ("events", "none", ["--option", "events=none"], ["--option events", "'node'"]),
    ("objective", "fame", ["--objective", "fame"], ["--objective", "'throughput'"]),
    (
        "objective",
        "power:0.5+srtp:1",
        ["--objective", "power:0.5+srtp:1"],
        ["--objective", "did you mean 'srpt'"],
    ),
    (
        "objective",
        "power",
        ["--objective", "power"],
        ["--objective", "'power' needs a number, as in 'power:0.5'"],
    ),
    (
        "objective",
        "srpt:-1",
        ["--objective", "srpt:-1"],
        ["--objective", "srpt: exponent: expected a finite number >= 0"],
    ),
    (
        "objective",
        "ageing",
        ["--objective", "ageing"],
        ["--objective", "'ageing' needs a number, as in 'ageing:0.5'"],
    ),
    (
        "objective",
        "ageing:9:x",
        ["--objective", "ageing:9:x"],
        ["--objective", "ageing: cap: expected a finite number"],
    ),
    (
        "objective",
        "ageing:9:1:2",
        ["--objective", "ageing:9:1:2"],
        ["ageing' takes at most 2 numbers, not '9:1:2'"],
    ),
    ("preset", "beast", ["--preset", "beast"], ["--preset", "did you mean 'best'"]),
    (
        "repeat",
        0,
        ["--option", "repeat=0"],
        ["--option repeat", "expected a whole number >= 1"],
    ),
    (
        "cap_units",
        0,
        ["--cap-units", "0"],
        ["--cap-units", "expected a whole number >= 1"],
    ),
    (
        "arrival",
        "poison:9",
        ["--option", "arrival=poison:9"],
        ["--option arrival", "expected poisson:RATE", "did you mean 'poisson'"],
    ),
    (
        "arrival",
        "poisson:0",
        ["--option", "arrival=poisson:0"],
        ["--option arrival", "jobs an hour: expected a finite number > 0"],
    ),
    (
        "scale_arrivals",
        -1,
        ["--option", "scale-arrivals=-1"],
        ["--option scale-arrivals", "expected a finite number >= 0"],
    ),
    (
        "objective",
        "own:2",
        ["--objective", "own:2"],
        ["--objective", "'own' takes no number, not '2'"],
    ),
    (
        "objective",
        "power:1+own",
        ["--objective", "power:1+own"],
        ["--objective", "not both 'power' and 'own'"],
    ),
    (
        "objective",
        "srpt:1+srpt:2",
        ["--objective", "srpt:1+srpt:2"],
        ["--objective", "is named twice"],
    ),
    (
        "compat",
        "gavel",
        ["--option", "compat=gavel"],
        ["--option compat", "'reference'"],
    ),
    ("jobs", "a\0b", ["--jobs", "a\0b"], ["--jobs", "UTF-8"]),
]
# Values that are right by themselves, but not together.
AT_ODDS: list[tuple[dict[str, Any], list[str], str]] = [
    ({"jobs": "j", "job_bounds": "b"}, ["--jobs", "j", "-bdfn", "b"], "either --jobs or the pair"),
    ({"job_bounds": "b"}, ["-bdfn", "b"], "-bdfn needs -scfn"),
    ({"job_curves": "s"}, ["-scfn", "s"], "-scfn needs -bdfn"),
    ({"cluster": "2x2", "node_trace": "t", "jobs": "j"}, ["--cluster", "2x2", "-ndmap", "t", "--jobs", "j"], "either"),
    ({"cluster": "2x2"}, ["--cluster", "2x2"], "--cluster needs jobs"),
    (
        {"arrival": "poisson:9", "scale_arrivals": 2},
        ["--option", "arrival=poisson:9", "--option", "scale-arrivals=2"],
        "either",
    ),
    ({"cluster": "2x2", "jobs": "j", "compat": "reference"},
     ["--cluster", "2x2", "--jobs", "j", "--option", "compat=reference"], "no fixed clusters"),
    ({"xi": "x", "compat": "reference"}, ["--xi", "x", "--option", "compat=reference"], "no sharing"),
    ({"preset": "best", "policy": "fifo"}, ["--preset", "best", "--policy", "fifo"], "is for --policy milp and"),
    ({"xi": "x", "policy": "fifo"}, ["--xi", "x", "--policy", "fifo"], "takes no --xi"),
    ({"policy": "srtf-ars"}, ["--policy", "srtf-ars"], "needs --xi"),
    (
        {"compat": "reference", "policy": "fifo"},
        ["--option", "compat=reference", "--policy", "fifo"],
        "published replayer",
    ),
    ({"compat": "reference", "max_jobs": 0}, ["--option", "compat=reference", "-maxJ", "0"], "published replayer"),
    ({"compat": "lucid"}, ["--option", "compat=lucid"], "is for --policy lucid, srtf, tiresias-l, not milp"),
    ({"compat": "pollux"}, ["--option", "compat=pollux"], "is for --jobs-format pollux"),
    ({"compat": "sia"}, ["--option", "compat=sia"], "is for --jobs-format pollux"),
    ({"memory_table": "m"}, ["--option", "memory-table=m"], "without --xi and --option unit-memory"),
    ({"jobs_format": "swf"}, ["--jobs-format", "swf"], "no effect without --jobs"),
    (
        {"strict_reference": True, "formulation": "modes"},
        ["--option", "strict-reference=yes", "--option", "formulation=modes"],
        "node",
    ),
    (
        {"backend": "exact", "formulation": "node"},
        ["--backend", "exact", "--option", "formulation=node"],
        "cannot solve",
    ),
    ({"xi": "x", "backend": "exact"}, ["--xi", "x", "--backend", "exact"], "cannot solve"),
    ({"xi": "x", "formulation": "modes"}, ["--xi", "x", "--option", "formulation=modes"], "no sharing"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "args", "expected"), WRONG, ids=lambda each: str(each)[:40]
)
def test_an_invalid_value_is_the_same_error_in_python_and_on_the_command_line(
    field: str,
    value: Any,
    args: list[str],
    expected: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = (
        {"policy": "fifo"}
        if field == "policy_options" and isinstance(value, dict)
        else {}
    )
    with pytest.raises(InputError) as error:
        Options(**{**more, field: value})
    assert run(args) == 2
    err = capsys.readouterr().err
    for text in expected:
        assert text in str(error.value)
        assert text in err


@pytest.mark.parametrize(
    ("given", "args", "expected"), AT_ODDS, ids=lambda each: str(each)[:40]
)
def test_what_does_not_go_together_is_the_same_error_in_python_and_on_the_command_line(
    given: dict[str, Any],
    args: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(InputError, match=expected):
        Options(**given)
    assert run(args) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("value", [True, "120", [120]])
def test_a_value_of_another_type_is_no_number(value: object) -> None:
    with pytest.raises(InputError, match="-Tfwd: expected a number of seconds"):
        Options(tfwd_s=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"cost_model": "free"}, "--option cost-model"),
        ({"events": "never"}, "--option events"),
        ({"max_jobs": -1}, "-maxJ"),
        ({"min_interval_s": math.nan}, "--option min-interval"),
        ({"checkpoint_interval_s": -1.0}, "--option checkpoint-interval"),
        ({"start_overhead_s": math.inf}, "--option start-overhead"),
        ({"restart_overhead": ((4, math.nan),)}, "--option restart-overhead"),
    ],
)
def test_rules_check_themselves_by_the_names_of_the_command_line(
    given: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        Rules(**given)


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


def test_a_preset_fills_in_what_is_not_given() -> None:
    best = Options(preset="best")
    assert (best.tfwd_s, best.rules.max_jobs, best.solver.backend) == (60.0, 0, "auto")
    assert best.objective == "power:0.5+ageing:60:2"
    some = Options(preset="best", tfwd_s=10, backend="cbc", max_jobs=None)
    assert (some.tfwd_s, some.rules.max_jobs, some.solver.backend) == (10.0, 0, "cbc")
    assert some.objective == best.objective
    assert Options(**some.flat()) == some
    published = Options()
    assert (published.tfwd_s, published.objective, published.rules.max_jobs) == (
        10.0,
        "own",
        10,
    )
    assert published.solver.backend == "cbc"


def test_what_is_not_stated_keeps_its_default() -> None:
    stated = Options(
        cluster="2x2", jobs="j", min_interval_s=5, backend="highs", max_jobs=None
    )
    assert stated.rules == Rules(max_jobs=0, min_interval_s=5)
    assert stated.solver == SolverOptions("highs", time_limit_s=10)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Options(tfwd=120), "unknown option 'tfwd'; did you mean 'tfwd_s'?"),
        (
            lambda: SolverOptions(gap=1),
            "--option gap: expected a finite number >= 0 and < 1, not 1",
        ),
    ],
)
def test_what_is_no_option_is_refused(
    make: Callable[[], object], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        make()


def test_defaults_that_depend_on_other_options_are_filled_in() -> None:
    assert (Options().policy, Options().rules, Options().solver) == (
        "milp",
        Rules(),
        SolverOptions(time_limit_s=10),
    )
    assert Options(xi="x").policy == "milp-sharing"
    assert Options(cluster="2x2", jobs="j").rules.max_jobs == 0
    assert Options(cluster="2x2", jobs="j", max_jobs=10).rules.max_jobs == 10
    pollux = {"jobs": "j", "jobs_format": "pollux", "compat": "pollux"}
    assert Options(**pollux).rules.start_overhead_s == 30.0
    assert Options(**pollux, start_overhead_s=0).rules.start_overhead_s == 0.0
    sia = Options(**{**pollux, "compat": "sia"}, policy="sia")
    assert (sia.rules.start_overhead_s, sia.rules.free_moves) == (30.0, True)
    assert sia.constants == {
        "freeze": "yes",
        "user_batch": "yes",
        "quantum": "0.01",
    }
    assert Options(policy="lucid", compat="lucid").constants == {"compat": "yes"}
    assert Options(policy="lucid", compat="lucid").rules.restart_overhead == ()
    srtf = Options(policy="srtf", compat="lucid")
    assert (srtf.constants, srtf.rules.restart_overhead) == (
        {"compat": "yes"},
        ((8, 40.0), (64, 60.0)),
    )
    tiresias = Options(
        policy="tiresias-l", compat="lucid", policy_options=(("limits", "3250"),)
    )
    assert tiresias.constants == {
        "compat": "yes",
        "limits": "3250",
        "interval_s": "60",
        "placement": "all",
    }


def test_names_are_taken_in_capitals_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "policies", "FIFO"]) == 0
    assert capsys.readouterr().out.startswith("fifo  ")
    assert run(["List", "policies", "tiresias-k"]) == 2
    assert "did you mean 'tiresias-" in capsys.readouterr().err
    assert run(["reprot"]) == 2
    assert "did you mean 'report'" in capsys.readouterr().err


def test_the_command_line_has_every_option_by_the_name_that_errors_give_it() -> None:
    command = cli.get_command(click.Context(cli), "replay")
    assert command is not None
    names = {param.name: param.opts for param in command.params}
    for field in FIELDS.values():
        flag = field.flag.partition("=")[0]
        assert flag in names[parameter_name(field)]
    assert FIELDS.keys() == Options().flat().keys()


def test_execute_takes_text_and_paths(tmp_path: Path) -> None:
    options = Options(dedicated=False, first_node=0, policy="fifo")
    for folder in (str(tmp_path / "text"), tmp_path / "path"):
        assert execute(options, folder)["options"]["policy"] == "fifo"
    assert (tmp_path / "text" / "jobs.parquet").read_bytes() == (
        tmp_path / "path" / "jobs.parquet"
    ).read_bytes()


def test_a_config_may_list_what_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("site.toml").write_text(
        'policy = "fifo"\nset = ["backfill=yes", "consolidate=no"]\nno-u = true\n'
    )
    assert run(["--config", "site.toml", "--json"]) == 0
    assert '"backfill"' in capsys.readouterr().out
    Path("site.toml").write_text("free-moves = true\n")
    assert run(["--config", "site.toml", "--policy", "sia", "--bound"]) == 0
    Path("site.toml").write_text('free-moves = "on"\n')
    assert run(["--config", "site.toml", "--bound"]) == 2
    assert "free-moves: expected true or false, not 'on'" in capsys.readouterr().err
    Path("site.toml").write_text("forbid = 5\n")
    assert run(["--config", "site.toml"]) == 2
    assert (
        "forbid: expected two models with a comma between, not 5"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("args", "flag"),
    [
        (["-ndmap", "a", "-ndmap", "b"], "-ndmap"),
        (["-ndmap", "a", "--node-trace", "b"], "-ndmap"),
        (["--policy", "fifo", "-Tfwd", "1", "--policy", "sjf"], "--policy"),
        (["--no-u", "--no-u"], "--no-u"),
        (["--bound", "--cluster", "2x2", "--cluster", "3x3"], "--cluster"),
        (["trace", "info", "t.parquet", "--json", "--json"], "--json"),
    ],
)
def test_an_option_given_twice_is_an_error(
    args: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == 2
    assert f"{flag} is given twice" in capsys.readouterr().err


def test_grams_that_look_like_kilograms_are_asked_about() -> None:
    stated = {"node_watts": (100, 500), "policy": "fifo"}
    (note,) = Options(co2_per_kwh=0.38, **stated).notes()
    assert note == (
        "--co2-per-kwh 0.38 is less than any grid emits: are these kilograms? It is in grams, and 0.38 kg are 380"
    )
    for grams in (0, 1, 380):
        assert not list(Options(co2_per_kwh=grams, **stated).notes())
