"""Which lines of a training log give the duration of a step: one source of step times, or the doubtful ones.

A throughput that is wrong by 100 times looks like any other: only what can mean one thing counts.
"""

from __future__ import annotations

import re
from collections import Counter as Counts
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from bft.models.speed.log_patterns import Fact, Line, Means

Basis = Literal["step", "sample", "token"]

# Groups of a user's pattern that need a step counter on the same line.
COUNTED: Final = ("time", "interval_s")
# Spans between time stamps are added up until they are this many times what a stamp resolves: 5 % at most.
SPAN_PER_RESOLUTION: Final = 20
# A time that rises in this share of its lines, and at least this often, counts from the start of the run.
RISING: Final = 0.99
RISES: Final = 4
LISTED: Final = 3


@dataclass(slots=True)
class Chosen:
    """Durations of one kind, not yet rid of warm-up."""

    means: Means
    looks: str
    basis: Basis = "step"
    seconds: list[float] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    ignored: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, seconds: float, line: Line) -> None:
        """Add a duration, or count it as invalid."""
        if not (np.isfinite(seconds) and seconds > 0):
            self.ignored += 1
            return
        self.seconds.append(seconds)
        self.lines.append(line)


class Log:
    """The content of a log, and which part of it gives the duration of a training step."""

    def __init__(self, lines: list[Line], unread: Sequence[Line] = ()) -> None:
        self.lines = lines
        self.unread = unread
        self.doubts: list[tuple[Line, Fact | None, str]] = []
        self._strangers: dict[int, str] = {}  # why lines of a form were left out, by their identity

    def choose(self, batch_size: float | None) -> Chosen | None:
        """The durations of the most certain kind that there is; None when nothing is certain."""
        batch = batch_size or self.samples() or 1.0
        return (
            self._direct("step_s", "step")
            or self._direct("sample_rate", "sample", batch)
            or self._bare()
            or self._clocks()
            or self._direct("token_rate", "token")
            or self._direct("run_step_s", "step")
            or self._direct("run_sample_rate", "sample", batch)
        )

    def samples(self) -> float | None:
        """Samples per step from lines with other numbers; the last statement counts."""
        stated = (line.fact("samples") for line in reversed(self.lines) if len(line.facts) > 1)
        return next((fact.value for fact in stated if fact is not None and fact.value > 0), None)

    def in_question(self) -> str:
        """Doubtful lines, with the pattern that would settle each; empty when no line comes close."""
        doubts = list(self.doubts)
        for line in self.lines:
            doubts += [(line, fact, why) for why, fact in line.other]
        if not doubts:
            return (
                "".join(
                    [
                        " for certain. In question:",
                        *(f"\n  {place(line)}: in no form that is known" for line in self.unread),
                        "\n",
                    ]
                )
                if self.unread
                else ""
            )
        said: dict[str, tuple[Line, Fact | None, str]] = {}
        for doubt in doubts:
            said.setdefault(doubt[2], doubt)
        lines = [
            f"\n  {place(line)}: {why}" + (f"; {advice}" if (advice := _advice(line, fact, why)) else "")
            for line, fact, why in list(said.values())[:LISTED]
        ]
        return " for certain. In question:" + "".join(lines) + "\n" if lines else ""

    def unused(self, chosen: Chosen) -> tuple[str, ...]:
        """Kinds of lines with unused times or rates, and their number."""
        counts: Counts[str] = Counts()
        first: dict[str, Line] = {}
        silent = {"stamp", "samples", *(["sample_rate", "run_sample_rate"] if chosen.basis == "step" else [])}
        for line in self.lines:
            whys = [why for why, _ in line.other]
            stranger = self._strangers.get(id(line))
            for fact in line.facts:
                if stranger is not None or not chosen.looks.startswith(fact.pattern.looks):
                    whys += [stranger or fact.pattern.looks] if fact.pattern.means not in silent else []
            for why in dict.fromkeys(whys):
                counts[why] += 1
                first.setdefault(why, line)
        return tuple(
            f"{count} with {why}" + (f" (line {first[why].row})" if first[why].row else "")
            for why, count in counts.items()
        )

    def _direct(self, means: Means, basis: Basis, numerator: float | None = None) -> Chosen | None:
        """Durations that lines state, in the form that most lines have; `numerator` of a rate of samples."""
        forms: dict[str, Chosen] = {}
        rate = means in ("sample_rate", "run_sample_rate", "token_rate")
        for looks, lines in self._by_looks(means).items():
            chosen = forms[looks] = Chosen(means, looks, basis)
            for line in self._one_stream(lines, means, looks):
                fact = line.fact(means, looks)
                assert fact is not None  # noqa: S101 - lines were grouped by it
                value = fact.value
                if rate:
                    value = (numerator or 1.0) / value if value else 0.0
                chosen.add(value, line)
        best = max(forms.values(), key=lambda chosen: len(chosen.seconds), default=None)
        if best is None or not best.seconds:
            return None
        if means.startswith("run_"):
            best.notes.append("the mean of the whole run, with its warm-up and evaluations: the log has nothing else")
        elif means == "token_rate":
            best.notes.append("the log states only tokens per second: what counts as a sample here is a token")
        return best

    def _by_looks(self, means: Means) -> dict[str, list[Line]]:
        forms: dict[str, list[Line]] = {}
        for line in self.lines:
            for looks in dict.fromkeys(fact.pattern.looks for fact in line.facts if fact.pattern.means == means):
                forms.setdefault(looks, []).append(line)
        return forms

    def _one_stream(self, lines: list[Line], means: Means, looks: str) -> list[Line]:
        """Lines of one kind of progress bar: those of training, where validation draws bars without a name too.

        By the word train; otherwise the phase that comes first and is also the longest; none where these differ.
        """
        streams: dict[tuple[str, int], list[Line]] = {}
        for line in lines:
            if line.counter is not None and line.counter.total is not None:
                streams.setdefault((line.label, line.counter.total), []).append(line)
        if len(streams) < 2:
            return lines
        named = [key for key in streams if re.search("train", key[0], re.IGNORECASE)]
        first, longest = next(iter(streams)), max(streams, key=lambda key: key[1])
        if named:
            kept = set(named)
        elif first == longest:
            kept = {first}
        else:
            for key in (first, longest):
                example = streams[key][0]
                why = f"of training? other bars go to {_others(streams, key)}"
                self.doubts.append((example, example.fact(means, looks), why))
            return []
        strangers = {id(line): f"bars to {key[1]:,}" for key, own in streams.items() if key not in kept for line in own}
        self._strangers.update(strangers)
        return [line for line in lines if id(line) not in strangers]

    def _bare(self) -> Chosen | None:
        """Bare times on lines whose counter moves by one, as those of a step; a time that rises is a clock's."""
        lines = self._by_looks("time").get("time", [])
        counted = [line for line in lines if line.counter is not None]
        for line in lines:
            if line.counter is None:
                self.doubts.append((line, line.fact("time"), "a time without a step counter"))
                break
        if not counted:
            return None
        values = [fact.value for line in counted if (fact := line.fact("time"))]
        moves, rises = _moves(counted, values)
        if _from_the_start(rises):
            return None
        first, fact = counted[0], counted[0].fact("time")
        if not moves:
            self.doubts.append((first, fact, "of one step, or since the start? no second line tells"))
        elif max(Counts(moves).items(), key=lambda item: item[1])[0] != 1:
            by = max(Counts(moves).items(), key=lambda item: item[1])[0]
            self.doubts.append((first, fact, f"of one step, or of the {by:,} since the last line?"))
        elif len(rises) < RISES and all(rises):
            self.doubts.append((first, fact, "of one step, or since the start? it rises, on few lines"))
        else:
            chosen = Chosen("time", "time")
            for line, value in zip(counted, values, strict=True):
                chosen.add(value, line)
            return chosen if chosen.seconds else None
        return None

    def _clocks(self) -> Chosen | None:
        """Differences of instants over differences of steps, on lines with a step counter."""
        timed = [line for line in self.lines if line.fact("interval")]
        if timed:
            return self._differences(timed, "interval", "the pattern")
        stamped = [line for line in self.lines if line.fact("stamp")]
        chosen = None
        if stamped:
            looks = Counts(fact.pattern.looks for line in stamped if (fact := line.fact("stamp"))).most_common(1)[0][0]
            chosen = self._differences(stamped, "stamp", looks)
        others: tuple[tuple[Means, str], ...] = (("time", "time"), ("elapsed", "elapsed"))
        for means, looks in others:
            if chosen is None:
                lines = [line for line in self._by_looks(means).get(looks, []) if _steps(line)]
                if _from_the_start(_moves(lines, [f.value for line in lines if (f := line.fact(means, looks))])[1]):
                    chosen = self._differences(lines, means, looks)
                    if chosen is not None:
                        chosen.notes.append(f"{looks} rises from line to line: taken as the seconds since the start")
        return chosen

    def _differences(self, lines: list[Line], means: Means, looks: str) -> Chosen | None:
        counted = [line for line in lines if _steps(line) and line.fact(means, looks)]
        if not counted:
            advice = _counting(lines) if means == "stamp" else ""
            self.doubts.append((lines[0], None, f"{looks} without a step counter{advice}"))
            return None
        names = Counts(line.counter.name for line in counted if line.counter)
        name = max(names, key=lambda name: ("global" in name, names[name]))
        points, since, fine = [], 0.0, False
        for line in counted:
            fact = line.fact(means, looks)
            if fact is None or line.counter is None or line.counter.name != name:
                continue
            since = since + fact.value if means == "interval" else fact.value
            fine = fine or not (fact.whole if means == "stamp" else fact.value.is_integer())
            points.append((since, line.counter.step, line))
        chosen = Chosen(means, f"{looks} and {name or 'a counter'}")
        min_span = SPAN_PER_RESOLUTION * (1e-3 if fine else 1.0)
        anchor = points[0][:2]
        for now, step, line in points[1:]:
            if now < anchor[0] or step < anchor[1]:  # a restart, or the next epoch
                chosen.ignored += 1
                anchor = now, step
            elif step > anchor[1] and now - anchor[0] >= min_span:
                chosen.add((now - anchor[0]) / (step - anchor[1]), line)
                anchor = now, step
        now, step, line = points[-1]
        if not chosen.seconds and step > anchor[1] and now > anchor[0]:
            chosen.add((now - anchor[0]) / (step - anchor[1]), line)
            precision = "whole seconds" if not fine else "milliseconds"
            chosen.notes.append(f"all lines are within {now - anchor[0]:g} s, by time stamps of {precision}")
        elif chosen.seconds and not fine:
            chosen.notes.append(f"time stamps of whole seconds: each duration spans {SPAN_PER_RESOLUTION} s or more")
        if not chosen.seconds:
            self.doubts.append((counted[0], None, f"{looks}, and {name or 'the counter'} stands still"))
            return None
        return chosen

    def stamped_median_s(self) -> float | None:
        """Median seconds a step by the time stamps, where there are some; to hold against what lines state."""
        stamped = [line for line in self.lines if _steps(line) and line.fact("stamp")]
        differences = self._differences(stamped, "stamp", "a time stamp") if stamped else None
        return (
            None if differences is None or len(differences.seconds) < RISES else float(np.median(differences.seconds))
        )


def _steps(line: Line) -> bool:
    """Whether a line counts steps of the training."""
    return line.counter is not None and bool(line.counter.name) and not line.evaluates


def _moves(lines: list[Line], values: list[float]) -> tuple[list[int], list[bool]]:
    """How far the counter moves from line to line where it moves on, and whether the value rises then."""
    moves, rises = [], []
    for (line, value), (later, after) in pairwise(zip(lines, values, strict=True)):
        if line.counter and later.counter and later.counter.step > line.counter.step:
            moves.append(later.counter.step - line.counter.step)
            rises.append(after > value)
    return moves, rises


def _from_the_start(rises: list[bool]) -> bool:
    return len(rises) >= RISES and sum(rises) >= RISING * len(rises)


def _others(streams: dict[tuple[str, int], list[Line]], key: tuple[str, int]) -> str:
    return " and ".join(f"{total:,}" for label, total in list(streams)[:LISTED] if (label, total) != key)


def place(line: Line, max_chars: int = 90) -> str:
    """A line as messages name it."""
    text = line.text.strip()
    quoted = repr(text if len(text) <= max_chars else text[: max_chars - 3] + "...")
    return f"line {line.row} {quoted}" if line.row else quoted


def _advice(line: Line, fact: Fact | None, why: str) -> str:
    """The patterns that would take a number of a line as what it could be."""
    if fact is None or why.startswith("the time of") or fact.pattern.means == "unused":
        return ""
    means = fact.pattern.means
    groups: tuple[str, ...]
    if means in ("sample_rate", "run_sample_rate", "token_rate"):
        groups = () if fact.pattern.inverse else ("samples_per_s",)
    elif fact.pattern.inverse:
        groups = ("steps_per_s",)
    else:
        groups = ({"": "seconds", "ms": "ms", "us": "us"}.get(fact.unit, ""),)
        if means == "time" and groups == ("seconds",) and line.counter is not None:
            groups = ("seconds", "interval_s", "time")
    suggestions = [(group, suggestion(line, fact, group)) for group in groups if group]
    return ", or ".join(f"--pattern '{pattern}' takes it as {group}" for group, pattern in suggestions if pattern)


def suggestion(line: Line, fact: Fact, group: str) -> str:
    """A regular expression that takes the number of a fact as `group`, and the step where that needs one; or ""."""
    text = line.text.replace("'", "").replace('"', "")
    spans = [(fact.start, fact.end, group, r"[\d.,]*\d(?:e[+-]?\d+)?")]
    if line.counter is not None and group in COUNTED:
        spans.append((line.counter.start, line.counter.end, "step", r"[\d,]*\d"))
    pieces = []
    for start, end, name, digits in sorted(spans):
        word = re.search(r"([A-Za-z][A-Za-z_/]*)\W*$", text[:start])
        after = re.match(r"\s?[A-Za-z]+(?:/[A-Za-z]+)?", text[end:])
        if word is not None:
            pieces.append(rf"{word[1]}\W*(?P<{name}>{digits})")
        elif after is not None:
            pieces.append(rf"(?P<{name}>{digits})\s*{after[0].strip()}")
        else:
            return ""
    pattern = ".*?".join(pieces)
    match = re.search(pattern, line.text)
    return pattern if match and all(match[name] == text[start:end] for start, end, name, _ in spans) else ""


def _counting(lines: Sequence[Line]) -> str:
    """How stamped lines without a counter that is known could count steps: by a number that rises from line to line."""
    texts = [line.text[fact.end :] for line in lines[: 2 * RISES] if (fact := line.fact("stamp"))]
    numbered = [list(re.finditer(r"(?<![\w:.,/-])\d+(?![\w:.,-])", text)) for text in texts]
    if len({len(numbers) for numbers in numbered}) == 1 and len(numbered) > 1:
        for index, match in enumerate(numbered[0]):
            before = re.search(r"(?:[A-Za-z_]+|^|\s)([^\w\s]*)\s*$", texts[0][: match.start()])
            rises = all(int(after[index][0]) > int(value[index][0]) for value, after in pairwise(numbered))
            if before is not None and rises and not re.search(r"epoch\W*$", texts[0][: match.start()], re.IGNORECASE):
                stamp = r"(?P<time>\d{4}\S\d\d\S\d\d.\d\d:\d\d:\d\d(?:[.,]\d+)?)"
                word = re.escape(before[0].strip())
                return f"; --pattern '{stamp}.*?{word}\\s*(?P<step>\\d+)' takes {match[0]} as step"
    return "; no number in them rises from line to line"
