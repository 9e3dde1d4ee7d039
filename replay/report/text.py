"""Text that people wrote, as markup."""

from __future__ import annotations

from html import escape

from bft.models.errors import MAX_SENTENCE, printable


def markup(text: str) -> str:
    """A text in HTML or SVG: nothing in it is markup, and characters that act instead of being seen are escapes.

    >>> markup("<b>Tom & Jerry</b>")
    '&lt;b&gt;Tom &amp; Jerry&lt;/b&gt;'
    """
    return escape(printable(text, MAX_SENTENCE))
