"""Parts of pages that are made from tables of the program: figures, log forms, recipes, policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from options_page import options_page

from bft.models.measure.log_forms import FORMS
from bft.replay.cli.recipes import RECIPES
from bft.replay.options.options import FIELDS
from bft.replay.results.figures import FIGURES


def write_parts(folder: Path) -> None:
    """Write each part as a file that a page includes."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        "options.md": options_page(FIELDS),
        "figures.md": "\n".join(figures()),
        "log-forms.md": "\n".join(log_forms()),
        **{f"recipe-{name}.txt": text for name, text in RECIPES.items()},
    }
    for name, text in parts.items():
        (folder / name).write_text(text, encoding="utf-8")


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
