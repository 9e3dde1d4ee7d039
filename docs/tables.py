"""Parts of pages that are made from the program: figures, forms and formats of logs, recipes, modules."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from options_page import options_page

from bft.milp import documents
from bft.milp.formulations import items
from bft.models import objectives
from bft.models.job_tables import COLUMNS
from bft.models.measure.log_forms import FORMS
from bft.models.searches.searches import Evolution, SuccessiveHalving
from bft.models.sharing import xi_table
from bft.replay.cli.recipes import RECIPES
from bft.replay.logs import units
from bft.replay.logs.formats import BUILT_IN
from bft.replay.options.options import FIELDS
from bft.replay.policies.schedule import Schedule
from bft.replay.results import host, metrics, outcome_tables
from bft.replay.results.census import census_of
from bft.replay.results.figures import FIGURES
from bft.replay.results.headlines import costs
from bft.replay.studies import evaluation

ROOT = Path(__file__).parents[1]
# Whose docstrings pages take in.
EXPLAINED: Mapping[str, Any] = {
    "metrics": metrics,
    "host": host,
    "costs": costs,
    "census": census_of,
    "units": units,
    "run-tables": outcome_tables,
    "documents": documents,
    "evaluation": evaluation,
    "xi-table": xi_table,
    "hpo": SuccessiveHalving,
    "nas": Evolution,
    "objectives": objectives,
    "items": items,
    "schedule": Schedule,
}


def write_parts(folder: Path) -> None:
    """Write each part as a file that a page includes."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        "options": options_page(FIELDS),
        "figures": "\n".join(figures()),
        "log-forms": "\n".join(log_forms()),
        "log-formats": "\n".join(log_formats()),
        "job-columns": "\n".join(job_columns()),
        "job-formats": "\n".join(job_formats()),
        "log-notes": "\n".join(log_notes()),
        "modules": "\n".join(modules()),
        **{name: explained(thing) for name, thing in EXPLAINED.items()},
        **{f"recipe-{name}": text for name, text in RECIPES.items()},
    }
    for name, text in parts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def figures() -> Iterator[str]:
    """Yield the table of a run's figures."""
    rows = [
        (
            f"`{figure.path}`",
            figure.title,
            figure.unit or "-",
            "more" if figure.more else "less",
            figure.jobs.replace("_", " ") or "-",
        )
        for figure in FIGURES.values()
    ]
    return table(("name", "title", "unit", "better", "of the jobs"), rows)


def log_forms() -> Iterator[str]:
    """Yield the table of the forms of training logs, each with a line as an example."""
    rows = [(f"`{form.name}`", f"`{form.example}`") for form in FORMS]
    return table(("name", "a line of this form"), rows)


def log_formats() -> Iterator[str]:
    """Yield a line for each format of scheduler logs, as `list formats` prints it."""
    width = max(map(len, BUILT_IN))
    return (f"{name:{width}}  {form.about}" for name, form in BUILT_IN.items())


def job_columns() -> Iterator[str]:
    """Yield the table of the columns of job tables that hold one value."""
    rows = [
        (f"`{name}`", "optional" * (each.default is not ...), each.meaning)
        for name, each in COLUMNS.items()
    ]
    return table(("column", "", "meaning"), rows)


def job_formats() -> Iterator[str]:
    """Yield what the readers of other simulators' job tables explain."""
    for name in ("jobs_pollux", "rigid_jobs"):
        module = import_module(f"bft.models.workloads.{name}")
        title = (module.__doc__ or "").partition(" (docs")[0]
        yield f"**{title}.** {explained(module)}"


def log_notes() -> Iterator[str]:
    """Yield what the readers of logs explain of their formats."""
    for path in sorted((ROOT / "replay" / "logs" / "formats").glob("*.py")):
        notes = explained(import_module(f"bft.replay.logs.formats.{path.stem}"))
        if notes.strip() and path.stem != "nodes":
            yield f"**{path.stem}**: {notes}"


def modules() -> Iterator[str]:
    """Yield a list of all modules, each with the first line of its docstring."""
    for package in ("milp", "models", "datasets", "replay"):
        for folder in sorted({path.parent for path in (ROOT / package).rglob("*.py")}):
            yield f"\n**{folder.relative_to(ROOT)}/**\n"
            for path in sorted(folder.glob("*.py")):
                text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
                if path.stem != "__init__":
                    yield f"- `{path.stem}`: {text.partition(chr(10))[0]}"


def explained(thing: Any) -> str:
    """Return what the docstring of a module or function explains: neither its first line nor its parameters."""
    text = inspect.getdoc(thing) or ""
    prose = re.split(r"\n\n(?=[A-Z][a-z]+\n-{4,}\n)", text)[0]
    return prose.partition("\n\n")[2] + "\n"
