"""The run directory: complete or absent, other files untouched, the same bytes for the same run."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from bft.models import Curve, InputError, Job, JobTable
from bft.replay import EqualShare, Options, Replay, always_idle, execute
from bft.replay.engine.ledger import BOOKS, STEPS
from bft.replay.inputs.files import digest
from bft.replay.results import run_directory as results
from bft.replay.results.outcome_tables import finish_frame, write_outcome
from bft.replay.results.run_directory import (
    check_writable,
    is_run,
    run_directory,
    write_json,
)

BUNDLED = Options(tfwd_s=120.0, backend="exact")


def pretend(folder: Path, mark: str = "first") -> None:
    """A run of ours, without the replay."""
    folder.mkdir(parents=True)
    write_json(folder / results.SUMMARY, {"format": results.FORMAT, "mark": mark})
    (folder / results.STEPS).write_text(mark)


def tree(folder: Path) -> dict[str, Any]:
    """Everything below a folder, links not followed."""
    found: dict[str, Any] = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(root) / name
            key = str(path.relative_to(folder))
            if path.is_symlink():
                found[key] = ("link", str(path.readlink()))
            else:
                found[key] = path.read_bytes() if path.is_file() else "folder"
    return found


def fill(folder: Path, *, force: bool = False, mark: str = "new") -> None:
    with run_directory(folder, force=force) as draft:
        write_json(draft / results.SUMMARY, {"format": results.FORMAT, "mark": mark})


def mark_of(folder: Path) -> str:
    return str(json.loads((folder / results.SUMMARY).read_text())["mark"])


# --- all or nothing ---------------------------------------------------------------------------------------------------


def test_a_run_directory_appears_with_all_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with run_directory(folder, force=False) as draft:
        (draft / "part").write_text("x")
        assert not folder.exists()
    assert tree(tmp_path) == {
        "deep": "folder",
        "deep/run": "folder",
        "deep/run/part": b"x",
    }


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("earlier", [False, True])
def test_an_exception_leaves_nothing_but_an_earlier_run(
    tmp_path: Path, problem: type[BaseException], earlier: bool
) -> None:
    if earlier:
        pretend(tmp_path / "run")
    before = tree(tmp_path)

    def interrupted() -> None:
        with run_directory(tmp_path / "run", force=True) as draft:
            (draft / "part").write_text("x")
            raise problem

    with pytest.raises(problem):
        interrupted()
    assert tree(tmp_path) == before


def test_a_replay_that_fails_midway_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("bft.replay.run.write_outcome", fail)
    with pytest.raises(InputError, match="run: cannot be written: disk full"):
        execute(BUNDLED, tmp_path / "run")
    assert tree(tmp_path) == {}


def test_the_folder_has_the_permissions_of_any_new_folder(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "other").stat().st_mode


# --- earlier runs, and what is not ours -------------------------------------------------------------------------------


def test_an_earlier_run_is_kept_without_force(tmp_path: Path) -> None:
    pretend(tmp_path / "run")
    before = tree(tmp_path)
    with pytest.raises(InputError, match="--force replaces it"):
        fill(tmp_path / "run")
    assert tree(tmp_path) == before


def test_an_earlier_run_is_replaced_whole_with_force(tmp_path: Path) -> None:
    pretend(tmp_path / "run")
    fill(tmp_path / "run", force=True)
    assert list(tree(tmp_path)) == ["run", "run/summary.json"]
    assert mark_of(tmp_path / "run") == "new"


# What lies where a run should go: a text is a file, "-> PLACE" a link, a dictionary a folder.
FOREIGN: dict[str, Any] = {
    "a file in its place": {"run": "mine"},
    "a dangling link in its place": {"run": "-> nowhere"},
    "a hidden file": {"run": {".keep": ""}},
    "a file": {"run": {"thesis.tex": "years"}},
    "a folder": {"run": {"sub": {}}},
    "a link to a folder": {"data": {"x": "mine"}, "run": {"link": "-> ../data"}},
    "a dangling link": {"run": {"link": "-> nowhere"}},
    "another format": {"run": {"summary.json": '{"format": "something else"}'}},
    "a list": {"run": {"summary.json": '["bft-replay run"]'}},
    "a text": {"run": {"summary.json": '"bft-replay run"'}},
    "no JSON": {"run": {"summary.json": "not json"}},
    "an empty file": {"run": {"summary.json": ""}},
    "a link in its place": {"data": {"x": "mine"}, "run": "-> data"},
}


def plant(folder: Path, what: dict[str, Any]) -> None:
    for name, content in what.items():
        if isinstance(content, dict):
            (folder / name).mkdir()
            plant(folder / name, content)
        elif content.startswith("-> "):
            (folder / name).symlink_to(content[3:])
        else:
            (folder / name).write_text(content)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_not_ours_is_never_touched(
    tmp_path: Path, kind: str, force: bool
) -> None:
    plant(tmp_path, FOREIGN[kind])
    before = tree(tmp_path)
    for attempt in (check_writable, fill):
        with pytest.raises(InputError) as caught:
            attempt(tmp_path / "run", force=force)  # type: ignore[operator]
        assert caught.value.file == tmp_path / "run"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
def test_what_comes_to_the_folder_meanwhile_stays_and_the_run_is_kept_beside_it(
    tmp_path: Path, force: bool
) -> None:
    def fill_late() -> None:
        with run_directory(tmp_path / "run", force=force) as draft:
            (draft / "new").write_text("hours")
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "thesis.tex").write_text("years")

    with pytest.raises(
        InputError,
        match=r"something else is there by now \(it is kept as .*/run\.draft-",
    ):
        fill_late()
    (kept,) = tmp_path.glob("run.draft-*")
    found = {
        "run": "folder",
        "run/thesis.tex": b"years",
        kept.name: "folder",
        f"{kept.name}/new": b"hours",
    }
    assert tree(tmp_path) == found


def test_a_run_that_comes_meanwhile_is_replaced_with_force_only(tmp_path: Path) -> None:
    def fill_late(*, force: bool) -> None:
        with run_directory(tmp_path / "run", force=force) as draft:
            write_json(
                draft / results.SUMMARY, {"format": results.FORMAT, "mark": "late"}
            )
            fill(tmp_path / "run", force=force, mark="early")

    with pytest.raises(InputError, match="is kept as"):
        fill_late(force=False)
    assert mark_of(tmp_path / "run") == "early"
    (kept,) = tmp_path.glob("run.draft-*")
    assert mark_of(kept) == "late"
    fill_late(force=True)
    assert mark_of(tmp_path / "run") == "late"


@pytest.mark.parametrize("empty", [False, True])
def test_through_a_link_the_run_it_leads_to_is_replaced_and_the_link_stays(
    tmp_path: Path, empty: bool
) -> None:
    real = tmp_path / "scratch" / "real"
    real.mkdir(parents=True) if empty else pretend(real)
    (tmp_path / "run").symlink_to(real)
    fill(tmp_path / "run", force=True)
    assert (tmp_path / "run").is_symlink()
    assert mark_of(tmp_path / "scratch" / "real") == "new"
    assert list(tree(tmp_path / "scratch")) == ["real", "real/summary.json"]


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_place_below_a_file_is_refused_early(tmp_path: Path, mode: int) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(mode)
    before = tree(tmp_path)
    for folder in (tmp_path / "file" / "run", tmp_path / "file" / "deep" / "run"):
        with pytest.raises(InputError):
            fill(folder)
        with pytest.raises(InputError):
            check_writable(folder, force=False)
    assert tree(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_place_without_permission_is_refused_early(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(InputError, match="no permission"):
            check_writable(tmp_path / "run", force=False)
    finally:
        tmp_path.chmod(0o755)


def test_a_run_is_known_by_its_summary(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    assert not is_run(tmp_path / "missing")
    (tmp_path / results.SUMMARY).write_bytes(b"\xff\xfe")
    assert not is_run(tmp_path)
    write_json(tmp_path / results.SUMMARY, {"format": results.FORMAT})
    assert is_run(tmp_path)


# --- what is in it ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "one"
    execute(BUNDLED, folder)
    return folder


def test_two_runs_and_one_over_another_give_the_same_bytes(
    bundled: Path, tmp_path: Path
) -> None:
    execute(BUNDLED, tmp_path / "two")
    execute(BUNDLED, tmp_path / "two", force=True)
    one, other = tree(bundled), tree(tmp_path / "two")
    assert (
        one.keys()
        == other.keys()
        == {"summary.json", "timing.json", *(f"{n}.parquet" for n in NAMES)}
    )
    for name in one.keys() - {results.TIMING}:
        assert one[name] == other[name], name


NAMES = ("steps", "jobs", "allocations", "unused")


def test_wall_clock_is_in_the_timing_alone(bundled: Path) -> None:
    summary = json.loads((bundled / results.SUMMARY).read_text())
    timing = json.loads((bundled / results.TIMING).read_text())
    assert {"started_at", "total_s", "replay_s", "peak_memory_mib"} <= timing.keys()
    assert not any(
        key.startswith(("load", "total", "started", "peak")) for key in summary
    )
    assert "seconds" not in pq.read_schema(bundled / results.STEPS).names


@pytest.mark.parametrize("policy", ["fifo", "equal-share"])
def test_the_timing_holds_the_decisions_of_every_policy(
    policy: str, tmp_path: Path
) -> None:
    summary = execute(Options(policy=policy, dedicated=False), tmp_path / "run")
    timing = json.loads((tmp_path / "run" / results.TIMING).read_text())["decision_s"]
    assert 0 < timing["count"] <= summary["metrics"]["decisions"]
    assert 0 < timing["median"] <= timing["max"] <= timing["sum"]


def test_files_agree_with_each_other(bundled: Path) -> None:
    summary = json.loads((bundled / results.SUMMARY).read_text())
    metrics = summary["metrics"]
    steps, jobs, held = (
        pd.read_parquet(bundled / f"{name}.parquet") for name in NAMES[:3]
    )
    assert tuple(steps.columns) == tuple(STEPS)
    assert steps["time"].is_monotonic_increasing
    assert steps["progress"].sum() == pytest.approx(metrics["outcome"], rel=1e-9)
    assert jobs["work"].sum() == pytest.approx(metrics["outcome"], rel=1e-9)
    assert jobs["unit_seconds"].sum() == pytest.approx(metrics["used_unit_s"], rel=1e-9)
    assert (
        jobs["preemptions"].sum() == steps["preempted"].sum() == metrics["preemptions"]
    )
    assert jobs["rescales"].sum() == steps["rescaled"].sum() == metrics["rescales"]
    for book in BOOKS:
        assert steps[f"{book}_cost"].sum() == pytest.approx(
            jobs[f"lost_to_{book}"].sum(), rel=1e-9
        )
        assert metrics[f"{book}_cost"] == pytest.approx(
            jobs[f"lost_to_{book}"].sum(), rel=1e-9
        )
    assert jobs["finish"].notna().sum() == metrics["jobs_finished"]
    units = held["last_unit"] - held["first_unit"] + 1
    assert (
        units * (held["end"] - held["start"]).dt.total_seconds()
    ).sum() == pytest.approx(metrics["used_unit_s"], rel=1e-9)
    assert (steps["used"] <= steps["idle"]).all()
    assert len(steps) == metrics["decisions"] + 1
    assert 0 < metrics["U"] <= 1.05
    assert summary["degraded"] is False
    assert summary["options"]["tfwd_s"] == 120.0


def test_an_interrupted_run_is_written_and_marked(tmp_path: Path) -> None:
    asked = iter(range(10**6))
    summary = execute(BUNDLED, tmp_path / "run", should_stop=lambda: next(asked) >= 25)
    assert summary["metrics"]["interrupted"] is True
    assert summary["metrics"]["U"] is None
    assert len(pd.read_parquet(tmp_path / "run" / results.STEPS)) <= 26


def test_times_in_the_files_are_exact_and_missing_ones_are_missing(
    tmp_path: Path,
) -> None:
    curve = Curve(np.array([0, 1]), np.array([0.0, 3.0]))
    start = 1_613_000_000_000_000_001
    jobs = [
        Job(n, start + k, 1, 1, 7.0, 0.0, 0.0, curve, curve)
        for k, n in enumerate(("a", "never"))
    ]
    nodes = always_idle(1, start, start + 3 * 10**9)
    write_outcome(tmp_path, Replay(nodes, JobTable(tuple(jobs)), EqualShare()).run())
    frame = pd.read_parquet(tmp_path / results.JOBS)
    assert str(frame["finish"].dtype) == "datetime64[ns, UTC]"
    assert frame["submit"].astype("int64").tolist() == [start, start + 1]
    assert frame["finish"].iloc[0].value == start + 2_333_333_334
    assert frame["finish"].isna().tolist() == [False, True]
    assert frame["jct_s"].iloc[0] == pytest.approx(7 / 3, abs=1e-9)
    assert np.isnan(frame["jct_s"].iloc[1])
    held = pd.read_parquet(tmp_path / results.ALLOCATIONS)
    assert held["job"].tolist() == ["a", "never"]
    assert json.loads(
        pq.read_schema(tmp_path / results.ALLOCATIONS).metadata[b"nodes"]
    ) == ["n00000"]


def test_the_table_of_jobs_says_whose_they_are_and_what_they_asked_for(
    tmp_path: Path,
) -> None:
    curve = Curve(np.array([0, 1, 2, 4]), np.array([0.0, 3.0, 6.0, 6.5]))
    told = {"model": "resnet", "user": "ada", "vc": "physics"}
    jobs = [
        Job("states", 0, 1, 4, 7.0, 0.0, 0.0, curve, curve, jreq=3, **told),  # type: ignore[arg-type]
        Job("says-nothing", 0, 2, 4, 7.0, 0.0, 0.0, curve, curve),
    ]
    write_outcome(
        tmp_path,
        Replay(always_idle(4, 0, 10**9), JobTable(tuple(jobs)), EqualShare()).run(),
    )
    columns = ["name", "vc", "user", "model", "Jmin", "Jmax", "Jreq", "units_asked"]
    for frame in (
        pd.read_parquet(tmp_path / results.JOBS),
        finish_frame(JobTable(tuple(jobs)), [1, 2], [0, 0]),
    ):
        rows = (
            frame[columns]
            .astype(object)
            .where(frame[columns].notna(), None)
            .to_numpy()
            .tolist()
        )
        assert rows == [
            ["states", "physics", "ada", "resnet", 1, 4, 3, 3],
            [
                "says-nothing",
                "",
                "",
                "",
                2,
                4,
                None,
                2,
            ],  # Jreq by default: the least that reaches 80 % of P(Jmax)
        ]


def test_a_replay_of_no_jobs_can_be_written(tmp_path: Path) -> None:
    write_outcome(
        tmp_path, Replay(always_idle(1, 0, 9), JobTable(()), EqualShare()).run()
    )
    assert len(pd.read_parquet(tmp_path / results.STEPS)) == 1


def test_a_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (2**20 + 3))
    assert digest(tmp_path / "f") == hashlib.sha256(b"x" * (2**20 + 3)).hexdigest()


def test_json_is_sorted_utf8_and_ends_with_a_line(tmp_path: Path) -> None:
    write_json(tmp_path / "j.json", {"b": "ξ", "a": float("nan")})
    assert (tmp_path / "j.json").read_text(
        encoding="utf-8"
    ) == '{\n  "a": null,\n  "b": "ξ"\n}\n'
