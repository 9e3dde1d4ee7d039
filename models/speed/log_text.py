"""The text of a log as a terminal shows it: overwritten lines one by one, JSON objects as a line each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

# A JSON document of several lines is taken as a whole up to this size, characters.
MAX_DOCUMENT: Final = 64 << 20
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BREAKS: Final = re.compile("[\r\n\b]+")


def shown_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that a terminal would show, or 0 and each object in a JSON document."""
    numbered = enumerate(lines, start=1)
    row, first = next(((row, text) for row, text in numbered if text.strip()), (0, ""))
    beginning = [first]
    if first.strip() in ("{", "["):  # a document over many lines
        size = len(first)
        for _, text in numbered:
            beginning.append(text)
            size += len(text)
            if size > MAX_DOCUMENT:
                break
        document = _json("\n".join(beginning))
        if document is not None:
            yield from ((0, text) for text in _objects(document))
            return
    for number_of_line, text in chain(enumerate(beginning, start=row), numbered):
        for part in _BREAKS.split(_ESCAPES.sub("", text)):
            document = _json(part)
            if document is None:
                yield number_of_line, part
            else:
                yield from ((number_of_line, inner) for inner in _objects(document))


def _json(text: str) -> Any:
    """Return the list or object that a text states as JSON; None where it states none."""
    stripped = text.strip()
    if stripped[:1] not in ("{", "[") or stripped[-1:] not in ("}", "]"):
        return None
    try:
        return json.loads(stripped)
    except (
        ValueError,
        RecursionError,
    ):  # a dictionary as Python prints it, or a line that begins with [
        return None


def _objects(document: Any) -> Iterator[str]:
    """Write each object of a JSON document as a line `key: value, key: value`.

    Objects in an object are part of its line; those in lists are lines of their own.
    """
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(reversed(node))
        elif isinstance(node, dict):
            values: list[str] = []
            inner = [("", node)]
            while inner:
                prefix, mapping = inner.pop()
                for key, value in mapping.items():
                    if isinstance(value, dict):
                        inner.append((f"{prefix}{key}/", value))
                    elif isinstance(value, list):
                        pending.append(value)
                    else:
                        values.append(f"{prefix}{key}: {value}")
            if values:
                yield ", ".join(values)
