"""The run directory: complete or absent, other files untouched, the same bytes for the same run."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from refusals import refused
from worlds import cluster, make

from bft.models import JobTable
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

NAMES = ("steps", "jobs", "allocations", "unused")
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


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / f"{name}.parquet")


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
    full = mock.Mock(side_effect=OSError("disk full"))
    monkeypatch.setattr("bft.replay.run.write_outcome", full)
    refused("run: cannot be written: disk full", execute, BUNDLED, tmp_path / "run")
    assert tree(tmp_path) == {}


def test_the_folder_has_the_permissions_of_any_new_folder(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "other").stat().st_mode


# --- earlier runs, and what is not ours -------------------------------------------------------------------------------


def test_an_earlier_run_is_kept_without_force_and_replaced_whole_with_it(
    tmp_path: Path,
) -> None:
    pretend(tmp_path / "run")
    before = tree(tmp_path)
    refused("--force replaces it", fill, tmp_path / "run")
    assert tree(tmp_path) == before
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
        error = refused("", attempt, tmp_path / "run", force=force)
        assert error.file == tmp_path / "run"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
def test_what_comes_to_the_folder_meanwhile_stays_and_the_run_is_kept_beside_it(
    tmp_path: Path, force: bool
) -> None:
    def fill_late() -> None:
        with run_directory(tmp_path / "run", force=force) as draft:
            (draft / "new").write_text("hours")
            plant(tmp_path, {"run": {"thesis.tex": "years"}})

    refused(r"something else is there by now \(it is kept as .*/run\.draft-", fill_late)
    (kept,) = (path.name for path in tmp_path.glob("run.draft-*"))
    found = {"run": "folder", "run/thesis.tex": b"years", kept: "folder"}
    assert tree(tmp_path) == found | {f"{kept}/new": b"hours"}


def test_a_run_that_comes_meanwhile_is_replaced_with_force_only(tmp_path: Path) -> None:
    def fill_late(*, force: bool) -> None:
        late = {"format": results.FORMAT, "mark": "late"}
        with run_directory(tmp_path / "run", force=force) as draft:
            write_json(draft / results.SUMMARY, late)
            fill(tmp_path / "run", force=force, mark="early")

    refused("is kept as", fill_late, force=False)
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
    for folder in ("run", "deep/run"):
        refused("", fill, tmp_path / "file" / folder)
        refused("", check_writable, tmp_path / "file" / folder, force=False)
    assert tree(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_place_without_permission_is_refused_early(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    refused("no permission", check_writable, tmp_path / "run", force=False)
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
    assert one.pop(results.TIMING)
    assert other.pop(results.TIMING)
    assert one == other
    assert one.keys() == {"summary.json", *(f"{name}.parquet" for name in NAMES)}


def test_wall_clock_is_in_the_timing_alone(bundled: Path) -> None:
    summary, timing = (
        json.loads((bundled / name).read_text())
        for name in (results.SUMMARY, results.TIMING)
    )
    assert {"started_at", "total_s", "replay_s", "peak_memory_mib"} <= timing.keys()
    clock = ("load", "total", "started", "peak")
    assert not any(key.startswith(clock) for key in summary)
    assert "seconds" not in pq.read_schema(bundled / results.STEPS).names


def test_the_timing_holds_the_decisions_of_every_policy(tmp_path: Path) -> None:
    summary = execute(Options(policy="fifo", dedicated=False), tmp_path / "run")
    timing = json.loads((tmp_path / "run" / results.TIMING).read_text())["decision_s"]
    assert 0 < timing["count"] <= summary["metrics"]["decisions"]
    assert 0 < timing["median"] <= timing["max"] <= timing["sum"]


def test_files_agree_with_each_other(bundled: Path) -> None:
    summary = json.loads((bundled / results.SUMMARY).read_text())
    metrics = summary["metrics"]
    steps, jobs, held = (table(bundled, name) for name in NAMES[:3])
    assert tuple(steps.columns) == tuple(STEPS)
    assert steps["time"].is_monotonic_increasing
    lost = {f"{book}_cost": jobs[f"lost_to_{book}"].sum() for book in BOOKS}
    units = held["last_unit"] - held["first_unit"] + 1
    unit_s = (units * (held["end"] - held["start"]).dt.total_seconds()).sum()
    of_jobs = {
        "outcome": jobs["work"].sum(),
        "used_unit_s": jobs["unit_seconds"].sum(),
        "preemptions": jobs["preemptions"].sum(),
        "rescales": jobs["rescales"].sum(),
        **lost,
        "jobs_finished": jobs["finish"].notna().sum(),
        "decisions": len(steps) - 1,
    }
    of_steps = {
        "outcome": steps["progress"].sum(),
        "used_unit_s": unit_s,
        "preemptions": steps["preempted"].sum(),
        "rescales": steps["rescaled"].sum(),
        **steps[[*lost]].sum(),
    }
    for found in (of_jobs, of_steps):
        assert found == pytest.approx({name: metrics[name] for name in found}, rel=1e-9)
    assert (steps["used"] <= steps["idle"]).all()
    assert 0 < metrics["U"] <= 1.05
    assert (summary["degraded"], summary["options"]["tfwd_s"]) == (False, 120.0)


def test_an_interrupted_run_is_written_and_marked(tmp_path: Path) -> None:
    asked = iter(range(10**6))
    summary = execute(BUNDLED, tmp_path / "run", should_stop=lambda: next(asked) >= 25)
    metrics = summary["metrics"]
    assert (metrics["interrupted"], metrics["U"]) == (True, None)
    assert len(table(tmp_path / "run", "steps")) <= 26


def test_times_in_the_files_are_exact_and_missing_ones_are_missing(
    tmp_path: Path,
) -> None:
    start = 1_613_000_000_000_000_001
    jobs = [make(name, [0, 3], pmax=7.0) for name in ("a", "never")]
    shifted = JobTable(tuple(jobs)).at((start, start + 1))
    nodes = always_idle(1, start, start + 3 * 10**9)
    write_outcome(tmp_path, Replay(nodes, shifted, EqualShare()).run())
    frame = table(tmp_path, "jobs")
    assert str(frame["finish"].dtype) == "datetime64[ns, UTC]"
    assert frame["submit"].astype("int64").tolist() == [start, start + 1]
    assert frame["finish"].iloc[0].value == start + 2_333_333_334
    assert frame["finish"].isna().tolist() == [False, True]
    jct = [pytest.approx(7 / 3, abs=1e-9), pytest.approx(np.nan, nan_ok=True)]
    assert frame["jct_s"].tolist() == jct
    assert table(tmp_path, "allocations")["job"].tolist() == ["a", "never"]
    metadata = pq.read_schema(tmp_path / results.ALLOCATIONS).metadata
    assert json.loads(metadata[b"nodes"]) == ["n00000"]


def test_the_table_of_jobs_says_whose_they_are_and_what_they_asked_for(
    tmp_path: Path,
) -> None:
    told = {"model": "resnet", "user": "ada", "vc": "physics", "jreq": 3}
    rates = [0.0, 3.0, 6.0, 6.25, 6.5]
    jobs = JobTable(
        (make("states", rates, **told), make("says-nothing", rates, jmin=2))
    )
    write_outcome(tmp_path, Replay(cluster(4, 1, 1), jobs, EqualShare()).run())
    columns = ["name", "vc", "user", "model", "Jmin", "Jmax", "Jreq", "units_asked"]
    for frame in (table(tmp_path, "jobs"), finish_frame(jobs, [1, 2], [0, 0])):
        rows = frame[columns].astype(object).where(frame[columns].notna(), None)
        # Jreq by default: the least that reaches 80 % of P(Jmax).
        assert rows.to_numpy().tolist() == [
            ["states", "physics", "ada", "resnet", 1, 4, 3, 3],
            ["says-nothing", "", "", "", 2, 4, None, 2],
        ]


def test_a_replay_of_no_jobs_can_be_written(tmp_path: Path) -> None:
    write_outcome(tmp_path, Replay(cluster(1), JobTable(()), EqualShare()).run())
    assert len(table(tmp_path, "steps")) == 1


def test_a_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (2**20 + 3))
    assert digest(tmp_path / "f") == hashlib.sha256(b"x" * (2**20 + 3)).hexdigest()


def test_json_is_sorted_utf8_and_ends_with_a_line(tmp_path: Path) -> None:
    write_json(tmp_path / "j.json", {"b": "ξ", "a": float("nan")})
    written = (tmp_path / "j.json").read_text("utf-8")
    assert written == '{\n  "a": null,\n  "b": "ξ"\n}\n'
