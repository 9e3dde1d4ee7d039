"""Options that write figures for a paper, a file of each chart: --png, --svg, --pdf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from bft.models import InputError
from bft.models.atomic_files import figure_folder
from bft.replay.cli.parameters import Decorator, together

# As bft.replay.report.FORMATS, which would import what nobody needs who asks for help.
FORMS = ("png", "svg", "pdf")


def figure_options(what: str) -> Decorator:
    """The options of all forms; `what` is the help of the first."""
    first, *others = FORMS
    return together(
        click.option(f"--{first}", metavar="DIR", help=what),
        *(
            click.option(
                f"--{form}", metavar="DIR", help=f"The same as {form.upper()}."
            )
            for form in others
        ),
    )


def refuse_other_forms(page: Path) -> None:
    """Refuse a page under the name of another form than HTML, naming the option that writes that form."""
    suffix = page.suffix.lower()
    if suffix in (".html", ".htm"):
        return
    hint = f"--{suffix[1:]} DIR writes its charts so" if suffix[1:] in FORMS else None
    raise InputError(
        "a page is HTML: expected a name that ends in .html", file=page, hint=hint
    )


def write_into(
    given: Mapping[str, str | None],
    write: Callable[[Path, str], object],
    *,
    force: bool,
) -> list[str]:
    """Call `write` with a folder and the form for each form that is given; the folders that were filled."""
    stated = {form: folder for form in FORMS if (folder := given[form]) is not None}
    for form, folder in stated.items():
        with figure_folder(Path(folder), force=force) as draft:
            write(draft, form)
    return list(stated.values())
