"""`import bft`: the same results as the command line, from paths, frames, objects and policies of the user."""

import gc
import inspect
import logging
import pickle
import pydoc
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from processes import result_of
from refusals import refused

import bft
from bft.models import write_parquet
from bft.replay import Decision, EqualShare, State, write_trace
from bft.replay.policies import PolicyError
from bft.replay.trace.parts import cut

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
    example: bft.Example, here: Path, told: Callable[..., str]
) -> None:
    write_trace(example.trace, "trace.parquet")
    write_parquet(example.jobs, Path("jobs.parquet"))
    files = "-ndmap trace.parquet --jobs jobs.parquet"
    told(f"{files} -Tfwd 120 --policy equal-share --no-u --out said")
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
    assert f"{made.metrics['outcome']:,.0f}" in repr(made)


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


def test_invalid_values_are_reported_with_the_names_of_arguments(
    example: bft.Example, here: Path
) -> None:
    for options, message in [
        ({"tfwdd": 1}, "unknown option 'tfwdd'; did you mean 'tfwd_s'"),
        ({"tfwd": -1}, "tfwd_s: expected a number of seconds > 0"),
        ({"tfwd": 1, "tfwd_s": 1}, "are one option"),
        ({"policy": "mlip"}, "policy: 'mlip' is not one of .* did you mean 'milp'"),
        ({"policy": EqualShare()}, "there is a policy 'equal-share' already"),
        ({"policy": 3}, "it needs a `name`"),
        (
            {"jobs": 3},
            "jobs: expected a path, a DataFrame or an object of ours, not int",
        ),
        ({"out": 3}, "out: expected a path, not 3"),
        ({"jobs": example.jobs.drop(columns="Pmax")}, r"\(a DataFrame\).*Pmax"),
        ({"jobs": example.jobs, "jobs_format": "philly"}, "jobs_format is for files"),
        ({"trace": example.trace, "skip_rows": 3}, "a NodeTrace has none"),
        ({"trace": "nowhere.parquet"}, "nowhere.parquet"),
    ]:
        refused(
            message,
            bft.replay,
            **{"dedicated": False, **options},
        )
    assert not list(here.iterdir())


def test_a_policy_that_fails_is_named(example: bft.Example) -> None:
    class Fails(Mine):
        def decide(self, state: State) -> Decision:
            raise ValueError("no idea")

    failed = refused(
        "no idea",
        bft.replay,
        *example,
        policy=Fails,
        dedicated=False,
        error=PolicyError,
    )
    # What was replayed before is where the message says.
    named = re.search("replayed before is kept in (.*) and marked", str(failed))
    kept = Path(named[1])
    assert "no idea" in bft.Run(kept).metrics["policy_error"]
    shutil.rmtree(kept)


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
    refused(
        "holds an earlier run; force=True replaces it, out names",
        bft.replay,
        *example,
        out="kept",
        **FEW,
    )
    again = refused("holds an earlier run", bft.Run("kept").save, "kept")
    assert "force" not in str(again)
    refused("is not a run directory", bft.Run, here)


def test_copies_of_a_run_in_memory_do_not_depend_on_each_other(
    example: bft.Example,
) -> None:
    made = bft.replay(*example, **FEW)
    content = pickle.dumps(made)
    for copy in (pickle.loads(content), pickle.loads(content)):
        assert copy.folder != made.folder
        assert copy.jobs.equals(made.jobs)
        assert copy.folder.exists()
    assert made.folder.exists()


def test_a_run_that_trains_nothing_says_so(example: bft.Example) -> None:
    idle = bft.replay(*example, policy=Mine(most=0), dedicated=False)
    assert idle.notes == ["no job got units at any decision"]


def test_notes_are_kept_and_logged(
    example: bft.Example, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "bft.replay"):
        made = bft.replay(*example, **FEW)
    assert made.notes == ["-Tfwd has no effect with --policy equal-share"]
    assert [record.getMessage() for record in caplog.records] == made.notes


def test_xi_is_a_frame_too(example: bft.Example) -> None:
    import pandas as pd

    row = {"model_a": "AlexNet", "model_b": "VGG16", "xi_a": 1.1, "xi_b": 1.1}
    hours = cut(example.trace, None, example.trace.start + 6 * 3600 * 10**9)
    made = bft.replay(
        hours, example.jobs.head(6), xi=pd.DataFrame([row]), max_jobs=3, dedicated=False
    )
    assert made.summary["options"]["policy"] == "milp-sharing"
    assert made.summary["options"]["xi"] == "(a XiTable)"


def test_help_fits_a_screen_and_names_what_is_public() -> None:
    text = pydoc.plain(pydoc.render_doc(bft))
    described = text.split("PACKAGE CONTENTS")[0]
    assert described.count("\n") <= 30
    for name in set(dir(bft)) - {"Example", "InputError"}:
        assert f"bft.{name}" in described, name
    lines = pydoc.plain(pydoc.render_doc(bft.replay)).splitlines()
    assert len(lines) <= 120
    signature = "bft.replay - bft.replay(trace=None, jobs=None, *, policy=None,"
    assert signature in "\n".join(lines[:8])
    assert bft.__version__ == metadata.version("bft-replay")


def test_the_package_is_called_whoever_imported_it_first() -> None:
    code = (
        "import bft, sys\nbft.replay\nassert not {'pandas', 'numpy'} & set(sys.modules)\n"
        "import bft.replay.run\nfrom bft import replay\nassert replay is bft.replay and callable(replay)"
    )
    done = result_of([sys.executable, "-c", code], cold=True)
    assert done.returncode == 0, done.stderr


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
    ]
    environment = {"MYPYPATH": str(tmp_path / "typing"), "PATH": ""}
    checked = result_of([*mypy, str(notebook)], env=environment, cwd=tmp_path)
    assert 'Revealed type is "pandas' in checked.stdout
    assert '"Run" has no attribute "stepz"' in checked.stdout
    assert 'Argument "out" to "replay" has incompatible type "int"' in checked.stdout
    assert "Found 2 errors" in checked.stdout, checked.stdout


def in_a_script(text: str, folder: Path) -> str:
    """What a plain script prints: a file, run in a process of its own, without a guard around its calls."""
    script = folder / "script.py"
    script.write_text(text)
    done = result_of([sys.executable, str(script)], cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plain_script_compares_and_sweeps_in_processes(here: Path) -> None:
    text = """
        import bft
        from bft.replay import Decision

        class Mine:
            name = "mine"

            def __init__(self, most=3):
                self.most = most

            def decide(self, state):
                counts = [0] * len(state.jobs)
                if counts:
                    counts[0] = min(self.most, state.jobs[0].job.jmax, state.idle)
                return Decision(tuple(counts))

        print("begins")
        trace, jobs = bft.load_example()
        few = jobs.head(3)
        found = bft.compare(trace, few, ["fifo", "srtf"], dedicated=False, workers=2)
        print(found.frame["variant"].tolist(), found.failures)
        own = {"a": "fifo", "b": Mine, "c": Mine(9), "d": {"policy": "fifo", "max_jobs": 2}}
        found = bft.compare(trace, few, own, dedicated=False, workers=2)
        print(found.frame["variant"].tolist())
        held = [run.folder for variant in found.variants for run in variant.runs]
        print([int(bft.Run(folder).steps["used"].max()) for folder in held[1:3]])
        frame = bft.sweep(trace, few, {"max_jobs": [1, 2]}, policy="fifo", dedicated=False, workers=2)
        print(frame["status"].tolist(), frame["max_jobs"].tolist())
    """
    lines = in_a_script(inspect.cleandoc(text), here).splitlines()
    assert lines == [
        "begins",  # once: no process runs the script again
        "['fifo', 'srtf'] {}",
        "['a', 'b', 'c', 'd']",
        "[3, 9]",
        "['done', 'done'] [1, 2]",
    ]


def test_another_policy_of_the_same_name_is_replayed_again(
    example: bft.Example, here: Path
) -> None:
    for most in (3, 5):
        found = bft.compare(
            *example, {"a": "fifo", "b": Mine(most)}, dedicated=False, workers=0
        )
        folder = found.variants[1].runs[0].folder
        assert bft.Run(folder).steps["used"].max() == most


def test_a_comparison_is_a_table_and_a_picture(
    example: bft.Example, here: Path
) -> None:
    found = bft.compare(*example, ["equal-share", "fifo"], dedicated=False, workers=0)
    assert isinstance(found, bft.Comparison)
    shown = found._repr_html_()
    assert shown.count("<tr") == 3
    assert "<th>of the bound</th>" in shown
    outcome = found.frame["outcome"][0]
    assert f"<td>{outcome:,.0f}" in shown
    assert f"{outcome:,.0f}" in repr(found)
    assert "fifo yields" in shown
    assert "run on 46 to 52 units (Jreq)" in shown.split("<table")[0]
    (bars,) = found.plot().axes
    assert [bar.get_width() for bar in bars.patches] == found.frame["outcome"].tolist()
    (times,) = found.plot("compared-times").axes
    # Shares are of all submitted jobs: who finishes few does not reach the top.
    ends = [line.get_ydata()[-1] for line in times.lines]
    shares = found.frame["jobs_finished"] / found.frame["jobs"]
    assert ends == pytest.approx(shares.tolist())
    refused(
        "no chart 'times': there are compared, ",
        found.plot,
        "times",
    )


def test_arguments_that_make_no_sense_are_named(
    example: bft.Example, here: Path
) -> None:
    two = ["fifo", "srtf"]
    for call, what, message in [
        (bft.compare, ["fifo", "fifo"], "two variants are called 'fifo'"),
        (bft.compare, [Mine(3), Mine(4)], "there is a policy 'mine' already"),
        (bft.compare, "fifo", "expected a list of policies"),
        (bft.compare, {"a": {"polcy": "fifo"}, "b": "srtf"}, "unknown option 'polcy'"),
        (bft.compare, {"a": {"tfwd": -1}, "b": "srtf"}, "a: tfwd_s: expected"),
        (partial(bft.compare, seeds=3), two, "seed: expected a list of values, not 3"),
        (partial(bft.compare, split=3), two, "split: expected one of vc, user"),
        (partial(bft.compare, study=3), two, "study: expected a path, not 3"),
        (bft.sweep, [10, 60], "expected a dictionary by name of option"),
        (bft.sweep, {"tfwd": 10}, "tfwd_s: expected a list of values, not 10"),
        (bft.sweep, {"policy": "fifo"}, "policy: expected a list of values"),
    ]:
        refused(message, call, *example, what, workers=0, dedicated=False)
    for call in (bft.ingest, bft.evaluate, bft.Run):
        refused("expected a path, not 3", call, 3)


def test_a_run_survives_a_process_pool(here: Path) -> None:
    text = """
        import bft
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        def outcome(most):
            return bft.replay(policy="fifo", max_jobs=most, dedicated=False)

        with ProcessPoolExecutor(2, get_context("fork")) as pool:
            runs = list(pool.map(outcome, [1, 2]))
        for run in runs:
            assert run.folder.exists()
            assert len(run.jobs) == run.metrics["jobs"] == 60, run.folder
        print([run.summary["options"]["max_jobs"] for run in runs])
        folders = [run.folder for run in runs]
        del run, runs
        print([folder.exists() for folder in folders])
    """
    assert in_a_script(inspect.cleandoc(text), here).splitlines() == [
        "[1, 2]",
        "[False, False]",
    ]


def test_a_frame_of_a_trace_file_keeps_its_window(
    example: bft.Example, here: Path
) -> None:
    import pandas as pd

    # Nodes are busy for the last hour: no row states when the window ends.
    write_trace(example.trace, "trace.parquet")
    frame = pd.read_parquet("trace.parquet")
    by_frame = bft.replay(frame, example.jobs, **FEW)
    by_path = bft.replay("trace.parquet", example.jobs, **FEW)
    assert by_frame.metrics == by_path.metrics
    assert frame["time"].max() < pd.Timestamp(example.trace.end, unit="ns", tz="UTC")
    kept = bft.models.read_table("trace.parquet").attrs
    assert frame.attrs == kept


def test_times_are_texts_datetimes_or_timestamps(here: Path) -> None:
    from datetime import UTC, datetime

    import pandas as pd

    Path("log.csv").write_text(
        "node,start,end\nn1,2021-02-10T00:00:00Z,2021-02-10T01:00:00Z\n"
    )
    begin = datetime(2021, 2, 10, tzinfo=UTC)
    for end in (
        "2021-02-10T03:00:00",
        datetime(2021, 2, 10, 3, tzinfo=UTC),
        pd.Timestamp("2021-02-10T03:00:00Z"),
    ):
        trace = bft.ingest("log.csv", "intervals", begin=begin, end=end)
        assert trace.duration_s == 3 * 3600
        jobs = bft.datasets.generate_dnn_jobs(jobs=1, first_submit=end)
        assert jobs["Tsub"][0] == pd.Timestamp("2021-02-10T03:00:00Z")


def test_a_picture_of_a_run_is_a_chart_of_its_page(example: bft.Example) -> None:
    run = bft.replay(example.trace, example.jobs.head(5), **FEW)
    figure = run.plot()
    assert figure.get_suptitle() == "Idle and used nodes over time"
    (axes,) = figure.axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["idle", "given to jobs"]
    (rows,) = run.plot("progress").axes
    names = [text.get_text() for text in rows.get_yticklabels()]
    assert names == example.jobs["name"].head(5).tolist()[::-1]


def test_a_page_is_html(example: bft.Example, here: Path) -> None:
    run = bft.replay(example.trace, example.jobs.head(5), **FEW)
    refused(
        "a page is HTML",
        run.report,
        "page.png",
    )
    assert not list(here.iterdir())
