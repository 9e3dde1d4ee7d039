"""`bft-replay solve`: one problem or a batch, from files and standard input, and errors in them."""

import gzip
import io
import json
import subprocess
import sys
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


def write(path: Path, *documents: object) -> str:
    lines = "".join(json.dumps(document) + "\n" for document in documents)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines)
    return str(path)


def without_seconds(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != "seconds"}


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


# --- one problem ------------------------------------------------------------------------------------------------------


def test_the_example_of_the_design(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["solve", write(tmp_path / "problem.json", problem())]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    answer = json.loads(out)
    assert answer.keys() == ANSWER
    assert answer["status"] == "optimal"
    assert answer["counts"] == {"a": 8, "b": 8}
    # Os at 8 units over Tfwd each, less Tcup x the rate of a on its three units.
    assert answer["objective"] == pytest.approx(2 * 120 * 44 - 18 * 24)
    assert answer["bound"] == pytest.approx(answer["objective"])
    assert {0, 1, 2} <= set(answer["allocation"]["a"])
    assert not set(answer["allocation"]["a"]) & set(answer["allocation"]["b"])
    assert {name: len(units) for name, units in answer["allocation"].items()} == answer[
        "counts"
    ]


@pytest.mark.parametrize("units", [0, 1, 3, 5, 7, 20])
def test_both_backends_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], units: int
) -> None:
    current = list(range(min(3, units)))
    path = write(tmp_path / "problem.json", problem(units=units, current=current))
    objectives = []
    for backend in ("cbc", "exact", "auto"):
        assert run(["solve", path, "--backend", backend, "-optTL", "30"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["backend"] == ("exact" if backend == "auto" else backend)
        assert sum(answer["counts"].values()) <= units
        objectives.append(answer["objective"])
    assert objectives == pytest.approx([objectives[0]] * 3)


def test_no_jobs_is_a_problem_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["solve", write(tmp_path / "problem.json", problem(jobs=[]))]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {}


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
    ],
)
def test_a_malformed_problem_is_refused_by_field(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    document: object,
    told: list[str],
) -> None:
    assert run(["solve", write(tmp_path / "problem.json", document)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    for text in told:
        assert text in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["problem.json"]


def test_a_unit_held_by_two_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    posed = problem()
    posed["jobs"][1]["current"] = [2]
    assert run(["solve", write(tmp_path / "problem.json", posed)]) == 2
    err = capsys.readouterr().err
    assert "jobs[1].current" in err
    assert "unit 2" in err
    assert "'a'" in err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\x89PNG\r\n\x1a\n\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"units: 3\n", "line 1 column 1"),
    ],
)
def test_what_is_not_json_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, told: str
) -> None:
    path = tmp_path / "problem.json"
    path.write_bytes(content)
    assert run(["solve", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert str(path) in err
    assert told in err


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    told: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("p.json"), problem())
    assert run(["solve", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    for text in told:
        assert text in err
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["batch.jsonl", "batch.jsonl.gz"])
def test_a_batch_is_answered_line_by_line_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    posed = [problem(name=f"job{k}", units=k + 3) for k in range(12)]
    assert run(["solve", write(tmp_path / name, *posed)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [next(iter(answer["counts"])) for answer in answers] == [
        f"job{k}" for k in range(12)
    ]
    for document, answer in zip(posed, answers, strict=True):
        assert run(["solve", write(tmp_path / "one.json", document)]) == 0
        assert without_seconds(json.loads(capsys.readouterr().out)) == without_seconds(
            answer
        )


def test_malformed_lines_become_errors_and_the_others_are_solved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "batch.jsonl"
    good = json.dumps(problem())
    lines = [
        good,
        "{broken",
        json.dumps(problem(Jmin=65)),
        "",
        good,
        "[" * 100_000,
        "null",
    ]
    lines += [
        json.dumps(problem(Tcup=10**400)),
        json.dumps(problem(name="\ud800")),
        good,
    ]
    path.write_text("\n".join(lines))
    assert run(["solve", str(path)]) == 2
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["error" in answer for answer in answers] == [
        False,
        True,
        True,
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert [answer["line"] for answer in answers if "error" in answer] == [
        2,
        3,
        6,
        7,
        8,
    ]
    assert "not JSON" in answers[1]["error"]
    assert "jobs[0]" in answers[2]["error"]
    assert answers[7]["counts"].keys() == {"\ud800", "b"}
    assert without_seconds(answers[0]) == without_seconds(answers[8])


def test_backends_agree_on_a_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path / "batch.jsonl",
        *(problem(units=u, Jmin=m) for u in (3, 9, 17) for m in (0, 2, 4)),
    )
    found = []
    for backend in ("cbc", "exact"):
        assert run(["solve", path, "--backend", backend]) == 0
        lines = capsys.readouterr().out.splitlines()
        found.append([json.loads(line)["objective"] for line in lines])
    assert found[0] == pytest.approx(found[1])


def test_an_empty_batch_gives_an_empty_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_text("\n\n")
    assert run(["solve", str(path)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_batch_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    path = tmp_path / "batch.jsonl.gz"
    content = bytearray(gzip.compress((json.dumps(problem()) + "\n").encode() * 50))
    if damage == "cut":
        content = content[:-20]
    else:
        content[40:44] = bytes(byte ^ 255 for byte in content[40:44])
    path.write_bytes(content)
    assert run(["solve", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{path}: damaged" in err


# --- standard input ---------------------------------------------------------------------------------------------------


def test_standard_input_takes_one_problem_on_many_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(monkeypatch, json.dumps(problem(), indent=2).encode())
    assert run(["solve", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"a": 8, "b": 8}


def test_standard_input_takes_a_batch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps(problem()), "nonsense", json.dumps(problem(units=4))]
    feed(monkeypatch, "\n".join(lines).encode())
    assert run(["solve", "-"]) == 2
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer.get("line") for answer in answers] == [None, 2, None]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x80\x04\x95"])
def test_nonsense_on_standard_input_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    feed(monkeypatch, content)
    assert run(["solve", "-"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "standard input: not JSON" in err


# --- as a process -----------------------------------------------------------------------------------------------------


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    path = write(tmp_path / "batch.jsonl", *[problem()] * 3000)
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
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "problem.json", problem())
    process = subprocess.run(
        [*SCRIPT, "solve", path, "--backend", "cbc"],
        env={"PMIP_CBC_LIBRARY": str(tmp_path / "broken" / "libCbc.so")},
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
    )
    assert process.returncode == 3, process.stderr
    answer = json.loads(process.stdout)
    assert (answer["status"], answer["counts"]) == ("fallback", {"a": 8, "b": 8})
    assert "cbc" in answer["note"].lower() or "solver" in answer["note"]
