"""--xi and related options, --objective, the backends command and the formulations, as a user types them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from bft.replay.cli.main import run

XI = "model_a,model_b,xi_a,xi_b\na,b,1.2,1.1\na,a,1.3,1.3\n"


@pytest.fixture
def inputs(here: Path) -> list[str]:
    """A small trace and five jobs of two models."""
    Path("xi.csv").write_text(XI)
    Path("trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{i},1\n" for i in range(4))
        + "2021-02-10T00:10:00Z,n0,0\n2021-02-10T00:20:00Z,n0,1\n2021-02-10T01:00:00Z,n1,0\n"
    )
    rows = "".join(
        f'j{j},{"ab"[j % 2]},1,4,1e5,2021-02-10T00:00:0{j}Z,6,3,"[0,1,4]","[0,10,38]","[0,10,38]",{8 + j}\n'
        for j in range(5)
    )
    Path("jobs.csv").write_text(
        "name,model,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os,memory_gib\n" + rows
    )
    return ["-ndmap", "trace.csv", "--jobs", "jobs.csv", "-Tfwd", "120"]


def metrics(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        Path(f"{name}-itrOut", "summary.json").read_text()
    )["metrics"]
    return found


def test_xi_lets_jobs_share_and_yields_more(inputs: list[str]) -> None:
    assert run([*inputs, "-name", "alone"]) == 0
    assert run([*inputs, "-name", "shared", "--xi", "xi.csv"]) == 0
    assert metrics("shared")["outcome"] > metrics("alone")["outcome"]  # type: ignore[operator]
    held = pd.read_parquet("shared-itrOut/allocations.parquet")
    seconds = (held["end"] - held["start"]).dt.total_seconds() * (
        held["last_unit"] - held["first_unit"] + 1
    )
    assert seconds.sum() > metrics("shared")["used_unit_s"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("partners", "together"),
    [
        ([], ["a", "b"]),  # (10 + 10) / 1.4 = 14.3 is most
        (
            ["--option", "xi-partners=1"],
            ["a", "c"],
        ),  # a's best partner by the ratios, and c's: (10 + 2) / 1.1 = 10.9
        (["--option", "xi-partners=2"], ["a", "b"]),
    ],
)
def test_xi_partners_leaves_to_each_job_its_best_partners_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partners: list[str],
    together: list[str],
) -> None:
    """One node and three jobs: the pair with the highest benefit is no job's first choice."""
    monkeypatch.chdir(tmp_path)
    Path("xi.csv").write_text(
        "model_a,model_b,xi_a,xi_b\na,b,1.4,1.4\na,c,1.1,1.1\nb,c,1.3,1.3\n"
    )
    Path("trace.csv").write_text(
        "time,node,idle\n2021-02-10T00:00:00Z,n,1\n2021-02-10T00:10:00Z,n,0\n"
    )
    rows = "".join(
        f'{name},{name},1,1,1e6,2021-02-10T00:00:00Z,0,0,"[0,1]","[0,{rate}]","[0,{rate}]"\n'
        for name, rate in (("a", 10), ("b", 10), ("c", 2))
    )
    Path("jobs.csv").write_text(
        "name,model,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n" + rows
    )
    assert (
        run(
            [
                "-ndmap",
                "trace.csv",
                "--jobs",
                "jobs.csv",
                "-Tfwd",
                "120",
                "--xi",
                "xi.csv",
                *partners,
            ]
        )
        == 0
    )
    (written,) = Path.cwd().glob("*-itrOut")
    began = pd.read_parquet(written / "jobs.parquet").set_index("name")["start"]
    assert sorted(began.dropna().index) == together


@pytest.mark.parametrize(
    "never",
    [
        ["--option", "xi-max=1.05"],
        ["--option", "unit-memory=10"],
        ["--option", "forbid=a,b", "--option", "forbid=a,a"],
    ],
    ids=["xi-max", "memory", "forbid"],
)
def test_limits_on_sharing_are_kept(
    inputs: list[str], never: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*inputs, "-name", "alone", "--backend", "exact"]) == 0
    assert run([*inputs, "-name", "never", "--xi", "xi.csv", *never]) == 0
    assert "no two jobs may share" in capsys.readouterr().err
    assert metrics("never")["outcome"] == metrics("alone")["outcome"]


def test_ratios_by_units_are_reported(
    inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sized.csv").write_text(
        "model_a,model_b,units,xi_a,xi_b\na,b,1,1.1,1.1\na,b,8,1.8,1.8\n"
    )
    assert run([*inputs, "-name", "sized", "--xi", "sized.csv"]) == 0
    told = capsys.readouterr().err
    assert (
        "a job's xi is that of as many units as it has (1, 8 in the xi table)" in told
    )
    assert run([*inputs, "-name", "plain", "--xi", "xi.csv"]) == 0
    assert "as many units" not in capsys.readouterr().err


def test_a_pair_with_one_ratio_above_xi_max_is_left_out(inputs: list[str]) -> None:
    Path("xi.csv").write_text("model_a,model_b,xi_a,xi_b\na,b,1.3,1.05\n")
    assert run([*inputs, "-name", "alone", "--backend", "exact"]) == 0
    assert (
        run([*inputs, "-name", "beyond", "--xi", "xi.csv", "--option", "xi-max=1.1"])
        == 0
    )
    assert metrics("beyond")["outcome"] == metrics("alone")["outcome"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--policy", "milp-sharing"], "needs --xi"),
        (["--policy", "milp", "--xi", "xi.csv"], "takes no --xi"),
        (["-mip", "0", "--xi", "xi.csv"], "takes no --xi"),
        (["--xi", "none.csv"], "none.csv"),
        (["--xi", "jobs.csv"], "model_a"),
        (["--xi", "xi.csv", "--option", "forbid=a"], "two models"),
        (["--xi", "xi.csv", "--option", "xi-max=0.5"], "0.5"),
        (["--xi", "xi.csv", "--backend", "exact"], "cannot solve"),
        (["--xi", "xi.csv", "--option", "formulation=modes"], "no sharing"),
        (["--xi", "xi.csv", "--option", "compat=reference"], "no sharing"),
        (
            ["--option", "strict-reference=yes", "--option", "formulation=modes"],
            "--option strict-reference=yes has no effect",
        ),
        (["--objective", "fame"], "fame"),
        (["--option", "deadline-boost=0.5"], "0.5"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    inputs: list[str], options: list[str], told: str, refused: Callable[..., str]
) -> None:
    refused([*inputs, *options], told)


@pytest.mark.parametrize("wrong", ["nan", "-1", "0", "much"])
def test_an_invalid_ratio_is_named_with_row_and_column(
    inputs: list[str], wrong: str, refused: Callable[..., str]
) -> None:
    Path("xi.csv").write_text(XI + f"b,b,1.1,{wrong}\n")
    refused([*inputs, "--xi", "xi.csv"], "xi.csv, row 3, column xi_b")


def test_ratios_below_one_are_noise_and_told(
    inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("xi.csv").write_text(XI + "b,b,0.9,0.95\n")
    assert run([*inputs, "--xi", "xi.csv"]) == 0
    assert "2 xi below 1" in capsys.readouterr().err


@pytest.mark.parametrize("formulation", ["modes", "node"])
@pytest.mark.parametrize("backend", ["cbc", "highs", "gurobi"])
def test_every_backend_and_formulation_gives_the_same_replay(
    inputs: list[str], backend: str, formulation: str
) -> None:
    pytest.importorskip({"gurobi": "gurobipy"}.get(backend, "mip"))
    assert run([*inputs, "-name", "exact", "--backend", "exact"]) == 0
    assert (
        run(
            [
                *inputs,
                "-name",
                "other",
                "--backend",
                backend,
                "--option",
                f"formulation={formulation}",
                "--option",
                "verify=yes",
            ]
        )
        == 0
    )
    found = metrics("other")
    assert found["verify_mismatches"] == 0
    assert found["decisions_by_status"].keys() == {"optimal"}  # type: ignore[attr-defined]
    assert found["outcome"] == pytest.approx(metrics("exact")["outcome"], rel=0.02)


def test_the_objective_decides_who_gets_the_nodes(inputs: list[str]) -> None:
    for objective in ("throughput", "efficiency"):
        assert (
            run(
                [
                    *inputs,
                    "-name",
                    objective,
                    "--backend",
                    "exact",
                    "--objective",
                    objective,
                    "--no-u",
                ]
            )
            == 0
        )
    assert metrics("throughput")["decisions"]
    assert (
        json.loads(Path("efficiency-itrOut/summary.json").read_text())["options"][
            "objective"
        ]
        == "efficiency"
    )


def test_backends_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "backends"]) == 0
    assert [
        line.split()[0]
        for line in capsys.readouterr().out.splitlines()
        if not line.startswith(" ")
    ] == [
        "cbc",
        "highs",
        "gurobi",
        "exact",
    ]
    assert run(["list", "backends", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["exact"]["available"]
    assert "items" in found["cbc"]["formulations"]


def test_solve_takes_xi_and_answers_with_shared_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {
        "Jmin": 1,
        "Jmax": 4,
        "Ns": [0, 1, 4],
        "Os": [0, 10, 38],
        "Tcup": 18,
        "Tcdw": 12,
    }
    document = {
        "units": 4,
        "Tfwd": 120,
        "jobs": [
            {"name": "a", **job, "current": [0, 1, 2]},
            {"name": "b", **job, "current": [2, 3]},
        ],
        "xi": [{"a": "a", "b": "b", "xi_a": 1.1, "xi_b": 1.2}],
    }
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document))
    assert run(["solve", str(path), "--option", "formulation=items"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "optimal"
    assert answer["allocation"] == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}
    document["xi"] = []
    path.write_text(json.dumps(document))
    assert run(["solve", str(path)]) == 2
    assert "unit 2 is held by 'a' too" in capsys.readouterr().err


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_seed_of_hashes(inputs: list[str]) -> None:
    # More jobs than the fixture's, so that matchings and transports have something to choose.
    rows = ""
    for j in range(12):
        curve = f'"[0,10,{27 + j % 3}]"'
        rows += f'j{j},{"ab"[j % 2]},1,3,{4e4 + 1e3 * j},2021-02-10T00:00:{j:02d}Z,6,3,"[0,1,3]",{curve},{curve}\n'
    Path("jobs.csv").write_text(
        "name,model,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n" + rows
    )
    nodes = "".join(f"2021-02-10T00:00:00Z,n{i},1\n" for i in range(9))
    changes = "".join(
        f"2021-02-10T00:{m:02d}:00Z,n{m % 9},{m // 9 % 2}\n" for m in range(1, 60)
    )
    Path("trace.csv").write_text("time,node,idle\n" + nodes + changes)
    for seed in ("1", "2", "3"):
        command = [
            sys.executable,
            "-c",
            "from bft.replay.cli import main; main()",
            *inputs,
            "--xi",
            "xi.csv",
            "-name",
            seed,
        ]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    for name in (
        "steps.parquet",
        "jobs.parquet",
        "allocations.parquet",
        "summary.json",
    ):
        assert (
            len({Path(f"{seed}-itrOut", name).read_bytes() for seed in ("1", "2", "3")})
            == 1
        ), name
    steps = pd.read_parquet("1-itrOut/steps.parquet")
    held = pd.read_parquet("1-itrOut/allocations.parquet")
    seconds = (held["end"] - held["start"]).dt.total_seconds() * (
        held["last_unit"] - held["first_unit"] + 1
    )
    assert len(steps) > 30
    assert seconds.sum() > metrics("1")["used_unit_s"], (
        "nothing was shared: the test shows nothing"
    )  # type: ignore[operator]


def test_a_memory_table_lets_the_later_job_share_with_a_smaller_batch(
    inputs: list[str],
) -> None:
    lines = Path("jobs.csv").read_text().splitlines()
    with_batch = [lines[0] + ",batch_size", *(f"{line},64" for line in lines[1:])]
    Path("jobs.csv").write_text("\n".join(with_batch) + "\n")
    Path("memory.csv").write_text(
        "model,batch,memory_gib\n"
        + "".join(
            f"{model},{batch},{1 + batch / 8}\n" for model in "ab" for batch in (32, 64)
        )
    )
    tight = [*inputs, "--xi", "xi.csv", "--option", "unit-memory=16"]
    assert run([*tight, "-name", "whole"]) == 0
    assert run([*tight, "-name", "smaller", "--option", "memory-table=memory.csv"]) == 0
    assert (
        run(
            [
                *tight,
                "-name",
                "never",
                "--option",
                "memory-table=memory.csv",
                "--option",
                "sub-batch=0.9",
            ]
        )
        == 0
    )
    assert metrics("smaller") != metrics("whole")
    assert metrics("never")["outcome"] == metrics("whole")["outcome"]
    assert (
        run(
            [
                *inputs,
                "-name",
                "lost",
                "--xi",
                "xi.csv",
                "--option",
                "memory-table=memory.csv",
            ]
        )
        == 2
    )
