"""The output of commands on pages is up to date: paths, notebooks, every command line; examples of docstrings."""

import doctest
import importlib
import json
import re
import runpy
import shlex
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from processes import AMPLE_S
from shown import evaluation_of_the_demo, refreshed
from toy_application import write_application

from bft.replay.cli.main import COMMANDS, cli, run
from bft.replay.results import host, metrics, outcome_tables
from bft.replay.results.census import census_of
from bft.replay.results.figures import FIGURES
from bft.replay.results.headlines import costs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((DOCS / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
# What stands for a value of the reader's.
PLACEHOLDERS = {
    "I": "1",
    "N": "3",
    "S": "3",
    "SECONDS": "3",
    "NAME": "milp",
    "F": "2",
    "POLICY": "milp",
}
# What the packages in examples/ bring: tests of their own install them and call it.
OF_EXAMPLES = {
    "smallest-first": "milp",
    "dense-highs": "highs",
    **dict.fromkeys(("semicolons", "batsim", "ldms", "philly", "prometheus"), "slurm"),
}

# Pages from a log, or from measurements, to a page to show: their commands run one after the other.
PATHS = [
    "tutorial",
    "own-jobs",
    "scenarios",
    "host-jobs",
]


def fences(page: Path):
    """Info string and content of each fenced block."""
    block = re.compile(r"^```([^\n]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    return block.findall(page.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHS)
def test_the_commands_of_a_path_print_what_its_page_shows(
    name: str, here: Path
) -> None:
    text = (DOCS / f"{name}.md").read_text("utf-8")
    assert refreshed(text, here) == text, (
        f"python tests/shown.py docs/{name}.md writes the page anew"
    )
    assert text.count("\n$ ") >= 3


def without_library(page: str) -> tuple[str, str]:
    """The version of Bokeh of a page, and the page without that and without the library."""
    version = re.search(r'"version":"([^"]+)","title"', page)[1]
    page = page.replace(f'"version":"{version}"', "")
    start = page.index("/* BEGIN bokeh.min.js */")
    return version, page[:start] + page[page.index("</script>", start) :]


@pytest.mark.slow
def test_the_example_of_an_evaluation_is_what_make_demo_writes(here: Path) -> None:
    pytest.importorskip("bokeh", reason="an extra that is not installed")
    page = (DOCS / "example-evaluation.html").read_text("utf-8")
    made = evaluation_of_the_demo(here)
    (version, text), (own_version, own_text) = map(without_library, (page, made))
    again = "python tests/shown.py docs/example-evaluation.html writes the page anew"
    assert own_text == text, again
    assert own_version != version or made == page, again


NOTEBOOKS = {"ten-lines": "run", "own-policy": "milp"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variable"), NOTEBOOKS.items())
def test_a_notebook_runs_in_jupyter(name: str, variable: str, here: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="an extra that is not installed")
    nbformat = pytest.importorskip("nbformat", reason="an extra that is not installed")
    notebook = nbformat.read(DOCS / "notebooks" / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    last = f"assert {variable}.metrics['outcome'] > 0"
    notebook.cells.append(nbformat.v4.new_code_cell(last))
    done = nbclient.execute(notebook, cwd=here, timeout=AMPLE_S)
    shown = [output for cell in done.cells for output in cell.get("outputs", ())]
    assert any("text/html" in output.get("data", ()) for output in shown)


def small_world(folder: Path):
    """A node trace and jobs, as files and values of the names that pages have for them."""
    from bft.datasets import generate_dnn_jobs, generate_node_trace
    from bft.models import jobs_from_frame, write_jobs
    from bft.replay import write_trace
    from bft.replay.trace.trace_files import trace_from_frame

    trace = trace_from_frame(generate_node_trace(nodes=16, days=0.2).frame)
    jobs = jobs_from_frame(
        generate_dnn_jobs(jobs=3, first_submit="2021-02-10", interval_s=600, pmax=3e6)
    )
    write_trace(trace, folder / "trace.parquet")
    for name in ("jobs.csv", "jobs.parquet"):
        write_jobs(jobs, folder / name)
    return {"trace": trace, "jobs": jobs}


def a_policy(folder: Path):
    pytest.importorskip("gymnasium", reason="an extra that is not installed")
    own = runpy.run_path(str(ROOT / "examples" / "own-policy" / "smallest_first.py"))
    return small_world(folder) | {"SmallestFirst": own["SmallestFirst"]}


def measurements(folder: Path):
    """A measured application, jobs with users and durations, and what was learnt of them."""
    from bft.models import DurationEstimator, write_model

    pytest.importorskip("sklearn", reason="an extra that is not installed")
    rows = np.arange(60)
    jobs = pd.DataFrame(
        {
            "user": rows % 3,
            "gpu_num": 1 + rows % 2,
            "submit_time": rows * 600,
            "duration": 60 + rows,
        }
    )
    write_model(DurationEstimator.train(jobs), folder / "durations.json")
    write_application(folder / "traces" / "cifar10")
    return {"jobs": jobs}


# What the code of each page finds where it runs.
PREPARED = {
    "README.md": small_world,
    "docs/models.md": measurements,
    "docs/policies.md": a_policy,
    "docs/studies.md": small_world,
    "docs/add-a-log-format.md": lambda folder: {},
    "docs/formats.md": small_world,
    "docs/change-the-milp.md": lambda folder: {},
}
PYTHON = [
    page.relative_to(ROOT).as_posix()
    for page in PAGES
    if any(kind == "python" for kind, _ in fences(page))
]
SLOW = {"docs/studies.md", "docs/change-the-milp.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in SLOW else ())
        for page in PYTHON
    ],
)
def test_the_python_of_a_page_runs(page: str, here: Path) -> None:
    names = PREPARED[page](here)
    for kind, code in fences(ROOT / page):
        if kind == "python":
            exec(code, names)  # noqa: S102 - the page's own code


def test_the_sample_of_the_tutorial_is_what_the_generator_makes() -> None:
    from bft.datasets import generate_log

    assert (ROOT / "examples" / "synthetic-sacct.txt").read_text(
        "utf-8"
    ) == generate_log()


def command_lines(page: Path):
    """Command lines of ours: in blocks, fenced or indented, and in the text between backticks."""
    text = page.read_text("utf-8")
    blocks = [
        content
        for kind, content in fences(page)
        if kind in ("", "console", "bash", "sh")
    ]
    blocks += re.findall(r"(?:^(?: {4}|\t).*\n?)+", text, flags=re.MULTILINE)
    for block in blocks:
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            match = re.match(r"\s*(?:\$ )?(?:\S*/)?(bft-replay(?: .*)?)$", line)
            if match:
                yield match[1]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for code in re.findall(r"`(bft-replay [^`]+)`", prose):
        yield re.sub(r"\s+", " ", code)


def variants(line: str):
    """Arguments of a command line, one list for each choice that it leaves."""
    line = re.sub(r"\s+(#|>|\|\s|&&|;).*$", "", line.replace("\\|", "|")).strip()
    parts = [
        re.sub(r"\$\w+", "3", part) for part in shlex.split(line)[1:]
    ]  # of a loop in a shell
    if any(part in ("...", "…", "[OPTIONS]") for part in parts):
        parts = [part for part in parts if part not in ("...", "…", "[OPTIONS]")]
    choices = [
        part.split("|") if re.fullmatch(r"[\w-]+(\|[\w-]+)+", part) else [part]
        for part in parts
    ]
    stands_for = PLACEHOLDERS | OF_EXAMPLES
    for number in range(max(map(len, choices), default=1)):
        words = [choice[min(number, len(choice) - 1)] for choice in choices]
        yield [stands_for.get(word, word) for word in words]


LINES = sorted(
    {
        (page.relative_to(ROOT).as_posix(), line)
        for page in PAGES
        for line in command_lines(page)
    }
)


def test_pages_show_many_command_lines() -> None:
    assert len(LINES) > 60
    shown = {args[0] for _, line in LINES for args in variants(line) if args}
    assert shown >= set(COMMANDS) - {"list"}


@pytest.mark.parametrize(
    ("page", "line"), LINES, ids=[f"{page}: {line}"[:90] for page, line in LINES]
)
def test_every_command_line_of_the_pages_is_one(page: str, line: str) -> None:
    for args in variants(line):
        try:
            context = cli.make_context("bft-replay", list(args))
            with context:
                walk(cli, context)
        except click.exceptions.Exit:  # --help, --version, --recipe
            continue
        except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
            if len(args) > 2:  # less is the name of a command, in a sentence about it
                raise


def walk(group: click.Group, context: click.Context) -> None:
    """Parse the sub-commands of a context, as `invoke` would, but run nothing."""
    args = [*context._protected_args, *context.args]
    while args and isinstance(group, click.Group):
        name, command, args = group.resolve_command(context, args)
        context = command.make_context(name, list(args), parent=context)
        if not isinstance(command, click.Group):
            return
        group, args = command, [*context._protected_args, *context.args]


def columns_and_figures(run_directory: Path) -> set[str]:
    """Names of the columns of all tables of a run directory, and of the entries of its summary."""
    summary = json.loads((run_directory / "summary.json").read_text("utf-8"))
    metrics = summary["metrics"]
    parts = [
        metrics.get("costs"),
        metrics.get("census"),
        *(metrics.get("kinds") or {}).values(),
    ]
    tables = [pd.read_parquet(table) for table in run_directory.glob("*.parquet")]
    own = {*summary} - {"degraded", "format", "format_version"}
    return own.union(metrics, *(part or () for part in parts), *tables)


IDLE_NODES = "-ndmap trace.parquet --no-u"
RUNS = {
    "costs": f"{IDLE_NODES} --policy equal-share --node-watts 9,99 --price-per-node-hour 2 --co2-per-kwh 300",
    "workload": f"{IDLE_NODES} --policy equal-share --workload hpo",
    "admission": f"{IDLE_NODES} --policy equal-share --option admission=deadline",
    "kinds": f"{IDLE_NODES} --backend exact --option kinds=kinds.csv",
    "virtual-clusters": "--cluster clusters.csv --policy fifo --option oversized=skip",
}


@pytest.mark.parametrize("name", RUNS)
def test_every_column_and_figure_of_a_run_is_on_the_page_of_results(
    name: str, here: Path
) -> None:
    trace = small_world(here)["trace"]
    kinds = ["fast" if index % 2 else "slow" for index in range(len(trace.nodes))]
    pd.DataFrame({"node": trace.nodes, "kind": kinds}).to_csv("kinds.csv", index=False)
    jobs = pd.read_parquet("jobs.parquet").assign(vc=["a", "b", "a"])
    jobs.to_parquet("jobs.parquet")
    (here / "clusters.csv").write_text("vc,nodes,units_per_node\na,2,1\nb,2,1\n")
    assert (
        run(["replay", *RUNS[name].split(), "--jobs", "jobs.parquet", "--out", "run"])
        == 0
    )
    page = (DOCS / "results.md").read_text("utf-8") + "".join(
        str(each.__doc__) for each in (census_of, costs, host, metrics, outcome_tables)
    )
    named = set(re.findall(r"[\w.]+", page)) | set(FIGURES)
    assert columns_and_figures(here / "run") - named == set()


def test_pages_take_in_only_what_is_made_from_the_program(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from tables import write_parts

    write_parts(here)
    included = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"_build/parts/([\w.-]+)", page.read_text("utf-8"))
    }
    assert len(included) > 20
    assert not [name for name in included if not (here / name).read_text().strip()]


FOLDERS = ("api", "milp", "models", "datasets", "replay")
FILES = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
MODULES = [
    ".".join(("bft", *path.relative_to(ROOT).with_suffix("").parts))
    .replace("bft.api", "bft")
    .removesuffix(".__init__")
    for path in FILES
    if "\n>>> " in (text := path.read_text("utf-8")) or "    >>> " in text
]


EXTRAS = {"bft.replay.env": "gymnasium", "bft._run": "matplotlib"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_do_what_they_show(name: str) -> None:
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name], reason="an extra that is not installed")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
