"""Command lines of tests: what is stated last takes the place of what is stated before."""

from __future__ import annotations

from collections.abc import Sequence


def once(args: Sequence[str]) -> list[str]:
    """Return a command line without an option and its value where the same option follows later."""
    kept: list[str] = []
    at = 0
    while at < len(args):
        word, following = args[at], args[at + 1 : at + 2]
        valued = bool(following) and not following[0].startswith("-")
        if word.startswith("-") and word in args[at + 1 :]:
            at += 2 if valued else 1
            continue
        kept.append(word)
        at += 1
    return kept
