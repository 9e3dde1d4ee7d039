"""The reference page of options, made of their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bft.models.option_fields import POLICY_KNOWS, SECTIONS, OptionField
from bft.replay.policies.registry import BUILT_IN, policy_type


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
            head = ["| option | in Python | default | has no effect |", "|---|---|---|---|"]
            lines += [f"### {title}", "", *head, *rows, ""]
    return "\n".join(lines)


def _row(field: OptionField) -> str:
    flags = ", ".join(f"`{flag}`" for flag in field.flags)
    cells = (flags, f"`{field.name}`", _default(field), "; ".join(_idle(field)))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: OptionField) -> str:
    if field.shown or field.default in (None, ()):
        return field.shown
    return f"`{_plain(field.default)}`"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _idle(field: OptionField) -> Iterator[str]:
    """Yield where an option has no effect."""
    for condition in field.conditions:
        where = condition.otherwise.replace("{policy}", "NAME").replace("{backend}", "NAME")
        if condition is POLICY_KNOWS:
            known = (name for name in BUILT_IN if field.setting in policy_type(name).settings)
            where = f"with other policies than {', '.join(known)}"
        yield f"{where} (an error)" if condition.refused else where
    if not field.published:
        yield "with --compat reference"
