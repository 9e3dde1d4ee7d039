"""`import bft`: the same results as the command line, from paths, frames, objects and policies of the user."""

from __future__ import annotations

import gc
import inspect
import logging
import pydoc
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from processes import AMPLE_S

import bft
from bft.models import write_parquet
from bft.replay import Decision, EqualShare, NodeTrace, State, write_trace
from bft.replay.cli.main import run
from bft.replay.policies import PolicyError

ROOT = Path(__file__).parents[1]
FEW: dict[str, Any] = {"dedicated": False, "tfwd": 120, "policy": "equal-share"}


@dataclass
class Mine:
    """A policy as one writes it into a notebook: all to the first, up to a cap."""

    most: int = 8
    name: str = field(default="mine", init=False)

    def decide(self, state: State) -> Decision:
        counts = [0] * len(state.jobs)
        for position, view in enumerate(state.jobs):
            counts[position] = min(self.most, view.job.jmax, state.idle)
            break
        return Decision(tuple(counts))


@pytest.fixture(scope="module")
def example() -> bft.Example:
    trace, jobs = bft.load_example()
    return bft.Example(trace, jobs.head(8))


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        name: (folder / name).read_bytes()
        for name in ("steps.parquet", "jobs.parquet", "allocations.parquet")
    }


def test_paths_frames_and_objects_equal_the_command_line(
    example: bft.Example, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(example.trace, "trace.parquet")
    write_parquet(example.jobs, Path("jobs.parquet"))
    files = ["-ndmap", "trace.parquet", "--jobs", "jobs.parquet"]
    assert (
        run(
            [
                *files,
                "-Tfwd",
                "120",
                "--policy",
                "equal-share",
                "--no-u",
                "--out",
                "said",
            ]
        )
        == 0
    )
    capsys.readouterr()
    by_path = bft.replay("trace.parquet", Path("jobs.parquet"), out="paths", **FEW)
    by_object = bft.replay(example.trace, bft.models.read_jobs("jobs.parquet"), **FEW)
    by_frame = bft.replay(bft.models.read_table("trace.parquet"), example.jobs, **FEW)
    said = files_of(Path("said"))
    for made in (by_path, by_object, by_frame):
        assert files_of(made.folder) == said
        assert made.metrics == by_path.metrics
    assert (Path("said") / "summary.json").read_bytes() == (
        by_path.folder / "summary.json"
    ).read_bytes()
    # An object is named, and known by its content.
    assert by_frame.summary["options"]["jobs"] == "(a DataFrame)"
    digests = by_object.summary["inputs"]["digests_sha256"]
    assert digests.keys() == {"node_trace", "jobs"}
    again = bft.replay(example.trace, bft.models.read_jobs("jobs.parquet"), **FEW)
    assert again.summary == by_object.summary
    other = bft.replay(example.trace, example.jobs.head(7), **FEW)
    assert other.summary["inputs"]["digests_sha256"]["jobs"] != digests["jobs"]


def test_frames_have_names_and_utc_times(example: bft.Example) -> None:
    made = bft.replay(*example, **FEW)
    held = made.allocations
    assert set(held["first_node"]) | set(held["last_node"]) <= set(example.trace.nodes)
    seconds = (held["end"] - held["start"]).dt.total_seconds() @ held["units"]
    assert seconds == pytest.approx(made.metrics["used_unit_s"], rel=1e-9)
    assert made.jobs.index.tolist() == example.jobs["name"].tolist()
    for times in (held["start"], made.jobs["submit"], made.steps["time"]):
        assert str(times.dt.tz) == "UTC"
    assert "training outcome" in repr(made)
    assert f"{made.metrics['outcome']:,.0f}" in made._repr_html_()


def test_a_custom_policy_is_a_class_an_object_or_a_function(
    example: bft.Example,
) -> None:
    by_class = bft.replay(
        *example, policy=Mine, policy_options={"most": 4}, dedicated=False
    )
    by_object = bft.replay(*example, policy=Mine(4), dedicated=False)
    by_function = bft.replay(*example, policy=lambda: Mine(4), dedicated=False)
    assert by_class.allocations["units"].max() <= 4
    assert (
        files_of(by_class.folder)
        == files_of(by_object.folder)
        == files_of(by_function.folder)
    )
    assert by_class.summary["options"]["policy"] == "mine"
    assert "mine" not in bft.replay.policies.policy_names()


def test_invalid_values_are_reported_as_on_the_command_line(
    example: bft.Example, here: Path
) -> None:
    for options, message in [
        ({"tfwdd": 1}, "unknown option 'tfwdd'; did you mean 'tfwd_s'"),
        ({"tfwd": -1}, "-Tfwd: expected a number of seconds > 0"),
        ({"tfwd": 1, "tfwd_s": 1}, "are one option"),
        ({"policy": "mlip"}, "--policy: 'mlip' is not one of .* did you mean 'milp'"),
        ({"policy": EqualShare}, "there is a policy 'equal-share' already"),
        ({"policy": 3}, "it needs a `name`"),
        (
            {"jobs": 3},
            "jobs: expected a path, a DataFrame or an object of ours, not int",
        ),
        ({"jobs": example.jobs.drop(columns="Pmax")}, r"\(a DataFrame\).*Pmax"),
        ({"jobs": example.jobs, "jobs_format": "philly"}, "jobs_format is for files"),
        ({"trace": example.trace, "skip_rows": 3}, "a NodeTrace has none"),
        ({"trace": "nowhere.parquet"}, "nowhere.parquet"),
    ]:
        with pytest.raises(bft.InputError, match=message):
            bft.replay(**{"dedicated": False, **options})
    assert not list(here.iterdir())


def test_a_policy_that_fails_is_named(example: bft.Example) -> None:
    class Fails(Mine):
        def decide(self, state: State) -> Decision:
            raise ValueError("no idea")

    with pytest.raises(PolicyError, match="no idea"):
        bft.replay(*example, policy=Fails, dedicated=False)


def test_a_run_without_a_folder_is_removed_with_its_object_and_can_be_saved(
    example: bft.Example, here: Path
) -> None:
    made = bft.replay(*example, **FEW)
    folder, summary = made.folder, made.summary
    assert made.save("kept").summary == summary
    assert made.report("page.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    del made
    gc.collect()
    assert not folder.exists()
    assert bft.Run("kept").summary == summary
    with pytest.raises(bft.InputError, match="holds an earlier run"):
        bft.Run("kept").save("kept")
    with pytest.raises(bft.InputError, match="is not a run directory"):
        bft.Run(here)


def test_notes_are_kept_and_logged(
    example: bft.Example, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "bft.replay"):
        made = bft.replay(*example, **FEW)
    assert made.notes == ["-Tfwd has no effect with --policy equal-share"]
    assert [record.getMessage() for record in caplog.records] == made.notes


def test_xi_is_a_frame_too(example: bft.Example) -> None:
    import pandas as pd

    xi = pd.DataFrame(
        [{"model_a": "AlexNet", "model_b": "VGG16", "xi_a": 1.1, "xi_b": 1.1}]
    )
    made = bft.replay(*example, xi=xi, max_jobs=3, dedicated=False)
    assert made.summary["options"]["policy"] == "milp-sharing"
    assert made.summary["options"]["xi"] == "(a XiTable)"


def test_help_fits_a_screen_and_names_what_is_public() -> None:
    text = pydoc.plain(pydoc.render_doc(bft))
    described = text.split("PACKAGE CONTENTS")[0].splitlines()
    assert len(described) <= 30
    assert max(map(len, described)) <= 120
    for name in set(dir(bft)) - {"Example", "InputError"}:
        assert f"bft.{name}" in "\n".join(described), name
    assert "policy" in inspect.signature(bft.replay).parameters


def test_the_package_is_called_whoever_imported_it_first() -> None:
    code = "import bft.replay.run, bft\nfrom bft import replay\nassert replay is bft.replay and callable(replay)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=AMPLE_S)
    code = (
        "import bft, sys\nbft.replay\nassert not {'pandas', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=AMPLE_S)


@pytest.mark.slow
def test_notebooks_are_typed(tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.py"
    notebook.write_text(
        "import bft\n"
        "trace, jobs = bft.load_example()\n"
        'run = bft.replay(trace, jobs, tfwd=120, policy="milp")\n'
        "reveal_type(run.steps)\n"
        "run.stepz\n"
        "bft.replay(trace, jobs, out=3)\n"
    )
    (tmp_path / "typing" / "bft").mkdir(parents=True)
    for path in (
        *(ROOT / "api").iterdir(),
        *(ROOT / folder for folder in ("milp", "models", "datasets", "replay")),
    ):
        (tmp_path / "typing" / "bft" / path.name).symlink_to(path)
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(notebook),
    ]
    checked = subprocess.run(
        mypy, capture_output=True, text=True, env={"MYPYPATH": str(tmp_path / "typing"), "PATH": ""}, check=False,
        cwd=tmp_path, timeout=AMPLE_S,
    )  # fmt: skip
    assert 'Revealed type is "pandas' in checked.stdout
    assert '"Run" has no attribute "stepz"' in checked.stdout
    assert 'Argument "out" to "replay" has incompatible type "int"' in checked.stdout
    assert "Found 2 errors" in checked.stdout, checked.stdout


def test_traces_say_what_they_are() -> None:
    assert isinstance(bft.load_example().trace, NodeTrace)
    assert repr(bft.load_example().trace).startswith("<NodeTrace: 512 nodes, ")
