"""The reference page of options, from their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from bft.models.checks import POLICY_KNOWS, SECTIONS, Condition, OptionField
from bft.models.errors import naming_options
from bft.replay.policies.registry import BUILT_IN, policy_type

_HEAD = (
    "| option | in Python | default | what it does | has no effect |",
    "|---|---|---|---|---|",
)


def options_page(fields: Mapping[str, OptionField]) -> str:
    """Return a Markdown text with a table of options for each section.

    Parameters
    ----------
    fields
        Options by flat name, as `option_fields` returns them.
    """
    lines: list[str] = []
    for title in SECTIONS:
        rows = [_row(field) for field in fields.values() if field.section == title]
        if rows:
            lines += [f"### {title}", ""]
            lines += _HEAD
            lines += rows
            lines.append("")
    return "\n".join(lines)


def _row(field: OptionField) -> str:
    names = (f"--option {field.key}=",) if field.rare else field.flags
    flags = ", ".join(f"`{name}`" for name in names)
    name = f"`{field.name}`"
    idle = "; ".join(_idle(field))
    cells = [
        cell.replace("|", "\\|")
        for cell in (flags, name, _default(field), field.help, idle)
    ]
    return f"| {' | '.join(cells)} |"


def _default(field: OptionField) -> str:
    if field.shown or field.default in (None, ()):
        return field.shown
    if isinstance(field.default, bool):
        return "`true`" if field.default else "`false`"
    return f"`{field.default}`"


def _idle(field: OptionField) -> Iterator[str]:
    """Yield where an option has no effect."""
    for condition in field.conditions:
        where = _where(field, condition)
        yield f"{where} (an error)" if condition.refused else where
    if not field.published:
        yield "with --option compat=reference"


def _where(field: OptionField, condition: Condition) -> str:
    if condition.otherwise == POLICY_KNOWS.otherwise:
        runs = {
            name: SimpleNamespace(policy_type=policy_type(name)) for name in BUILT_IN
        }
        known = [name for name, run in runs.items() if condition.holds(run, field.name)]
        return f"with other policies than {', '.join(known)}"
    return naming_options(condition.otherwise.format(policy="NAME", backend="NAME"))
