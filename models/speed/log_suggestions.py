"""The pattern that a refused training log needs: lines that could state a step time, and a regular expression for each.

Whether a number is a step's time only the user knows: that is why these are suggestions and not presets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bft.models.speed.log_presets import (
    COUNTED,
    NUMBER,
    STAMP,
    STEP_COUNTERS,
    is_evaluation,
)

LISTED: Final = 3
_STAMPED_LINES: Final = 8
_GROUP_OF_UNIT: Final = {
    "ms": "ms",
    "us": "us",
    "it/s": "steps_per_s",
    "steps/s": "steps_per_s",
}
_DIGITS: Final = r"[\d.,]*\d(?:e[+-]?\d+)?"
_NAMED: Final = re.compile(
    rf"(?:time|took|dt|secs?|seconds|elapsed|duration)\W*(?P<x>{NUMBER})\s?(?P<unit>ms|us|min|h)?(?![\w:]|[.,][0-9])",
    re.IGNORECASE,
)
_WITH_UNIT: Final = re.compile(
    rf"(?<![\w.,])(?P<x>{NUMBER})\s?(?P<unit>ms|us|it/s|steps/s|s)(?:/\w+)?(?![\w/])",
    re.IGNORECASE,
)
_TIME_WORD: Final = "(?:time|sec|took|elapsed|duration|speed|throughput)"
_TIMELY: Final = re.compile(
    rf"\d.*(?:{_TIME_WORD}|/s\b|\bm?s\b)|{_TIME_WORD}.*\d", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A line that could state a step time; `why` says what is in doubt, empty where the line itself tells."""

    row: int
    text: str
    why: str = ""


def is_timely(text: str) -> bool:
    """Tell whether a line has a number and a word of time, so that it is worth naming in an error."""
    return bool(_TIMELY.search(text)) or STAMP.match(text, text.lower()) is not None


def quoted_line(row: int, text: str, max_chars: int = 90) -> str:
    """Return a line as messages name it; `row` is 0 in a JSON document."""
    text = text.strip()
    quoted = repr(text if len(text) <= max_chars else text[: max_chars - 3] + "...")
    return f"line {row} {quoted}" if row else quoted


def in_question(doubts: Sequence[Doubt]) -> str:
    """Return what a refusal says of lines that could state a step time, with the pattern for each; or ""."""
    if not doubts:
        return ""
    by_reason: dict[str, str] = {}
    for doubt in doubts:
        why = doubt.why or _reason(doubt.text)
        if why not in by_reason:
            stamped = [other.text for other in doubts if _is_only_stamped(other.text)]
            advice = (
                _counting(stamped)
                if _is_only_stamped(doubt.text)
                else _advice(doubt.text)
            )
            by_reason[why] = f"\n  {quoted_line(doubt.row, doubt.text)}: {why}{advice}"
    return (
        " for certain. In question:" + "".join(list(by_reason.values())[:LISTED]) + "\n"
    )


def _is_only_stamped(text: str) -> bool:
    return STAMP.match(text, text.lower()) is not None and not _numbers(text)


def _reason(text: str) -> str:
    if _is_only_stamped(text):
        return "a time stamp without a step counter"
    if is_evaluation(text):
        return "evaluation"
    return "in no form that is known"


def _numbers(text: str) -> list[re.Match[str]]:
    named = list(_NAMED.finditer(text))
    return named or list(_WITH_UNIT.finditer(text))


def _advice(text: str) -> str:
    """Return the patterns that take the first time in a line as what it could be."""
    plain = text.replace("'", "").replace('"', "")
    numbers = _numbers(plain)
    if not numbers:
        return ""
    unit = (numbers[0]["unit"] or "").lower()
    groups = [_GROUP_OF_UNIT.get(unit, "seconds")]
    step = _step_span(plain)
    if groups == ["seconds"] and step is not None:
        groups += COUNTED[::-1]
    suggestions = [
        (group, _pattern(text, plain, numbers[0].span("x"), group, step))
        for group in groups
    ]
    advice = [
        f"--pattern '{pattern}' takes it as {group}"
        for group, pattern in suggestions
        if pattern
    ]
    return "; " + ", or ".join(advice) if advice else ""


def _step_span(text: str) -> tuple[int, int] | None:
    for counter in STEP_COUNTERS:
        match = counter.search(text)
        if match is not None:
            return match.span("step")
    return None


def _pattern(
    text: str,
    plain: str,
    number: tuple[int, int],
    group: str,
    step: tuple[int, int] | None,
) -> str:
    """Return a regular expression that takes a number as `group`, and the step where the group needs one; or ""."""
    spans = [(*number, group, _DIGITS)]
    if step is not None and group in COUNTED:
        spans.append((*step, "step", r"[\d,]*\d"))
    pieces = []
    for start, end, name, digits in sorted(spans):
        word = re.search(r"([A-Za-z][A-Za-z_/]*)\W*$", plain[:start])
        unit = re.match(r"\s?[A-Za-z]+(?:/[A-Za-z]+)?", plain[end:])
        if word is not None:
            pieces.append(rf"{word[1]}\W*(?P<{name}>{digits})")
        elif unit is not None:
            pieces.append(rf"(?P<{name}>{digits})\s*{unit[0].strip()}")
        else:
            return ""
    pattern = ".*?".join(pieces)
    match = re.search(pattern, text)
    if match and all(match[name] == plain[start:end] for start, end, name, _ in spans):
        return pattern
    return ""


def _counting(lines: Sequence[str]) -> str:
    """Return the pattern that counts steps in stamped lines by a number that rises from line to line."""
    matches = [
        (text, STAMP.match(text, text.lower())) for text in lines[:_STAMPED_LINES]
    ]
    texts = [text[match.end() :] for text, match in matches if match is not None]
    numbered = [
        list(re.finditer(r"(?<![\w:.,/-])\d+(?![\w:.,-])", text)) for text in texts
    ]
    if len({len(numbers) for numbers in numbered}) == 1 and len(numbered) > 1:
        for index, match in enumerate(numbered[0]):
            before = re.search(
                r"(?:[A-Za-z_]+|^|\s)([^\w\s]*)\s*$", texts[0][: match.start()]
            )
            rises = all(
                int(later[index][0]) > int(now[index][0])
                for now, later in pairwise(numbered)
            )
            counts_epochs = re.search(
                r"epoch\W*$", texts[0][: match.start()], re.IGNORECASE
            )
            if before is not None and rises and not counts_epochs:
                stamp = r"(?P<time>\d{4}\S\d\d\S\d\d.\d\d:\d\d:\d\d(?:[.,]\d+)?)"
                word = re.escape(before[0].strip())
                return f"; --pattern '{stamp}.*?{word}\\s*(?P<step>\\d+)' takes {match[0]} as step"
    return "; no number in them rises from line to line"
