"""`bft-replay solve`: one problem or a batch, from files and standard input, and errors in them."""

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import AMPLE_S

from bft.replay.cli.main import run

SCRIPT = [sys.executable, "-c", "from bft.replay.cli import main; main()"]
ANSWER = {
    "status",
    "objective",
    "bound",
    "counts",
    "allocation",
    "backend",
    "formulation",
    "seconds",
}


def problem(**changes: Any) -> dict[str, Any]:
    """The example of the design, completed; `changes` go to the problem, or else to its first job."""
    curve = {"Ns": [0, 1, 2, 4, 8], "Os": [0, 10, 18, 30, 44]}
    bounds = {"Jmin": 1, "Jmax": 64, "Tcup": 18, "Tcdw": 12}
    posed: dict[str, Any] = {
        "units": 20,
        "Tfwd": 120,
        "jobs": [
            {"name": "a", **bounds, **curve, "weight": 1, "current": [0, 1, 2]},
            {"name": "b", **bounds, **curve, "Tcup": 5},
        ],
    }
    for key, value in changes.items():
        (
            posed
            if key in ("units", "Tfwd", "jobs", "cost_model", "foo")
            else posed["jobs"][0]
        )[key] = value
    return posed


def write(name: str, *documents: object) -> str:
    lines = "".join(json.dumps(document) + "\n" for document in documents)
    content = lines.encode()
    Path(name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return name


Solve = Callable[..., Any]


@pytest.fixture
def solve(here: Path, capsys: pytest.CaptureFixture[str]) -> Solve:
    """Runs `solve`, and returns its answer; with `lines` those of a batch."""

    def call(*args: str, code: int = 0, lines: bool = False) -> Any:
        capsys.readouterr()
        assert run(["solve", *args]) == code
        out, err = capsys.readouterr()
        assert err == ""
        return (
            [json.loads(line) for line in out.splitlines()]
            if lines
            else json.loads(out)
        )

    return call


def without_seconds(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != "seconds"}


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


# --- one problem ------------------------------------------------------------------------------------------------------


def test_the_example_of_the_design(solve: Solve) -> None:
    answer = solve(write("problem.json", problem()))
    assert answer.keys() == ANSWER
    assert answer["status"] == "optimal"
    assert answer["counts"] == {"a": 8, "b": 8}
    # Os at 8 units over Tfwd each, less Tcup x the rate of a on its three units.
    assert answer["objective"] == pytest.approx(2 * 120 * 44 - 18 * 24)
    assert answer["bound"] == pytest.approx(answer["objective"])
    held = answer["allocation"]
    assert {0, 1, 2} <= set(held["a"])
    assert not set(held["a"]) & set(held["b"])
    assert {name: len(units) for name, units in held.items()} == answer["counts"]
    assert solve(write("problem.json", problem(jobs=[])))["counts"] == {}


@pytest.mark.parametrize("units", [0, 1, 3, 5, 7, 20])
def test_both_backends_agree(solve: Solve, units: int) -> None:
    current = list(range(min(3, units)))
    path = write("problem.json", problem(units=units, current=current))
    objectives = []
    for backend in ("cbc", "exact", "auto"):
        answer = solve(path, "--backend", backend, "-optTL", "30")
        assert answer["backend"] == ("exact" if backend == "auto" else backend)
        assert sum(answer["counts"].values()) <= units
        objectives.append(answer["objective"])
    assert objectives == pytest.approx([objectives[0]] * 3)


HELD = problem()
HELD["jobs"][1]["current"] = [2]
DEEP = b"[" * 100_000
BATCH = gzip.compress((json.dumps(problem()) + "\n").encode() * 50)
FLIPPED = BATCH[:40] + bytes(byte ^ 255 for byte in BATCH[40:44]) + BATCH[44:]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (problem(Tfwd=0), ["Tfwd", "> 0"]),
        (problem(Tfwd=float("nan")), ["Tfwd", "finite", "nan"]),
        (problem(Tfwd="soon"), ["Tfwd", "number", "'soon'"]),
        (problem(units=-1), ["units", "-1"]),
        (problem(units=2.5), ["units", "whole", "2.5"]),
        (problem(units=True), ["units", "whole"]),
        (problem(jobs=None), ["jobs", "list"]),
        (problem(jobs=[3]), ["jobs[0]", "object"]),
        (problem(name="b"), ["unique"]),
        (problem(name=""), ["jobs[0].name", "non-empty"]),
        (problem(Jmin=65), ["jobs[0]", "Jmin 65", "Jmax 64"]),
        (problem(Jmax=0), ["jobs[0]", "Jmax"]),
        (problem(Jmin=None), ["jobs[0].Jmin", "whole"]),
        (problem(Tcup=-1), ["jobs[0]", "Tcup", ">= 0"]),
        (problem(Tcdw=10**400), ["finite number"]),
        (problem(weight=float("inf")), ["jobs[0].weight", "finite"]),
        (problem(Ns=[0, 2, 1, 4, 8]), ["jobs[0]", "Ns", "increase"]),
        (problem(Ns=[0, 1]), ["jobs[0]", "Ns and Os", "length"]),
        (problem(Os="all"), ["jobs[0].Os", "list of numbers"]),
        (problem(Os=[0, float("nan"), 1, 2, 3]), ["jobs[0]", "finite"]),
        (problem(current=[20]), ["jobs[0].current", "20", "0 ... 19"]),
        (problem(current=[1, 1]), ["jobs[0].current", "twice"]),
        (problem(current="0"), ["jobs[0].current", "'0'"]),
        (problem(foo=1), ["'foo'", "Tfwd"]),
        (problem(Nmax=1), ["jobs[0]", "'Nmax'", "Jmax"]),
        (problem(cost_model="free"), ["cost_model", "'stall'"]),
        ({}, ["units", "missing"]),
        ([problem()], ["object", "list"]),
        (None, ["object"]),
        (HELD, ["jobs[1].current", "unit 2", "'a'"]),
    ],
)
def test_a_malformed_problem_is_refused_by_field(
    here: Path, refused: Callable[..., str], document: object, told: list[str]
) -> None:
    refused(["solve", write("problem.json", document)], *told)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("problem.json", b"", "not JSON"),
        ("problem.json", b"{", "not JSON"),
        ("problem.json", b"\x89PNG\r\n\x1a\n\x00", "not JSON"),
        ("problem.json", DEEP, "not JSON"),
        ("problem.json", b"units: 3\n", "line 1 column 1"),
        ("batch.jsonl.gz", BATCH[:-20], "damaged"),
        ("batch.jsonl.gz", FLIPPED, "damaged"),
        ("-", b"", "standard input: not JSON"),
        ("-", b"nonsense", "standard input: not JSON"),
        ("-", b"\x80\x04\x95", "standard input: not JSON"),
    ],
)
def test_what_is_not_json_is_refused(
    here: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, told: str
) -> None:  # fmt: skip
    if name == "-":
        feed(monkeypatch, content)
    else:
        Path(name).write_bytes(content)
    refused(["solve", name], told, "standard input" if name == "-" else name)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nope.json"], ["nope.json", "no such file"]),
        (["nope.jsonl"], ["nope.jsonl", "no such file"]),
        (["."], ["directory"]),
        ([], ["PROBLEM"]),
        (["p.json", "q.json"], ["q.json"]),
        (["p.json", "--backend", "abacus"], ["--backend", "'abacus'", "'cbc'"]),
        (
            ["p.json", "--option", "formulation=sos"],
            ["--option formulation", "'modes'"],
        ),
        (["p.json", "-optTL", "0"], ["-optTL", "> 0"]),
        (["p.json", "-optTL", "1e8"], ["-optTL", "at most"]),
        (["p.json", "--optTL", "3"], ["--optTL", "-optTL"]),
        (["p.json", "-threads", "3"], ["-threads", "--option threads"]),
        (["p.json", "--option", "gap=nan"], ["--option gap", "finite"]),
    ],
)
def test_an_invalid_command_is_reported(
    here: Path, refused: Callable[..., str], args: list[str], told: list[str]
) -> None:
    write("p.json", problem())
    refused(["solve", *args], *told)


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["batch.jsonl", "batch.jsonl.gz"])
def test_a_batch_is_answered_line_by_line_in_order(solve: Solve, name: str) -> None:
    posed = [problem(name=f"job{k}", units=k + 3) for k in range(12)]
    answers = solve(write(name, *posed), lines=True)
    for number, (document, answer) in enumerate(zip(posed, answers, strict=True)):
        assert next(iter(answer["counts"])) == f"job{number}"
        alone = solve(write("one.json", document))
        assert without_seconds(alone) == without_seconds(answer)
    by_cbc = solve(name, "--backend", "cbc", lines=True)
    objectives = [answer["objective"] for answer in answers]
    assert [a["objective"] for a in by_cbc] == pytest.approx(objectives)
    assert solve(write(name), lines=True) == []


def test_malformed_lines_become_errors_and_the_others_are_solved(solve: Solve) -> None:
    good = json.dumps(problem())
    lines = [
        good,
        "{broken",
        json.dumps(problem(Jmin=65)),
        "",
        good,
        DEEP.decode(),
        "null",
    ]
    lines += [
        json.dumps(problem(Tcup=10**400)),
        json.dumps(problem(name="\ud800")),
        good,
    ]
    Path("batch.jsonl").write_text("\n".join(lines))
    answers = solve("batch.jsonl", code=2, lines=True)
    assert [answer.get("line") for answer in answers] == [
        None,
        2,
        3,
        None,
        6,
        7,
        8,
        None,
        None,
    ]
    assert ["error" in answer for answer in answers] == [
        "line" in answer for answer in answers
    ]
    assert "not JSON" in answers[1]["error"]
    assert "jobs[0]" in answers[2]["error"]
    assert answers[7]["counts"].keys() == {"\ud800", "b"}
    assert without_seconds(answers[0]) == without_seconds(answers[8])


def test_standard_input_takes_a_problem_or_a_batch(
    solve: Solve, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, json.dumps(problem(), indent=2).encode())
    assert solve("-")["counts"] == {"a": 8, "b": 8}
    lines = [json.dumps(problem()), "nonsense", json.dumps(problem(units=4))]
    feed(monkeypatch, "\n".join(lines).encode())
    answers = solve("-", code=2, lines=True)
    assert [answer.get("line") for answer in answers] == [None, 2, None]


# --- as a process -----------------------------------------------------------------------------------------------------


def test_a_reader_that_stops_early_is_no_error(here: Path) -> None:
    path = write("batch.jsonl", *[problem()] * 3000)
    words = " ".join(f"'{word}'" for word in [*SCRIPT, "solve", path])
    process = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | head -1"],
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
    )
    assert process.returncode == 0
    assert process.stderr == ""
    assert json.loads(process.stdout)["status"] == "optimal"


def test_a_solver_that_does_not_start_falls_back_with_exit_code_3(
    here: Path,
) -> None:
    path = write("problem.json", problem())
    process = subprocess.run(
        [*SCRIPT, "solve", path, "--backend", "cbc"],
        env={"PMIP_CBC_LIBRARY": str(here / "broken" / "libCbc.so")},
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
    )
    assert process.returncode == 3, process.stderr
    answer = json.loads(process.stdout)
    assert (answer["status"], answer["counts"]) == ("fallback", {"a": 8, "b": 8})
    assert "cbc" in answer["note"].lower() or "solver" in answer["note"]
