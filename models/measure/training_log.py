"""Step times from a training log: durations, rates, or time stamps with a step counter.

A log is read by a form (`log_forms`) or by a pattern of the user. Lines of evaluations and rates of a part of the units
are left out and counted. A log that fits no form, or contradicts itself, is refused, with the lines in question and the
pattern to give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np

from bft.models.errors import InputError
from bft.models.limited_reading import lines, opened
from bft.models.measure.log_forms import (
    BAR_MARK,
    BATCH_SIZE,
    BY_NAME,
    COUNTED,
    DURATIONS,
    FORMS,
    FURTHER,
    MEASURES,
    NAMES,
    NUMBER,
    RATES,
    STAMPS,
    Doubt,
    Form,
    in_question,
    is_evaluation,
    is_timely,
    quoted_line,
    step_counter,
)
from bft.models.measure.step_times import Basis, StepTimes

# Durations that differ from what the time stamps say by more than this factor are reported.
DISAGREES: Final = 3.0
# Two statements of one line that differ by more than this factor, as a rule, are of different things.
CONTRADICTS: Final = 1.5
# Fewer durations by time stamps than this contradict nothing.
MIN_STAMPED: Final = 4
# Spans between time stamps are added up until they are this many times what a stamp resolves: 5 % at most.
SPAN_PER_RESOLUTION: Final = 20
# Characters searched per line: no real step time comes later, and searching must end.
MAX_LINE: Final = 4096
# Lines kept for the message of a refusal.
_UNREAD: Final = 20

_NUMBER: Final = re.compile(
    rf"[-+]?{NUMBER}|[-+]?(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|nan|inf(?:inity)?)",
    re.IGNORECASE,
)


def read_log(
    path: str | Path,
    pattern: str | None = None,
    *,
    batch_size: float | None = None,
    warmup: int = 10,
    units: int = 1,
) -> StepTimes:
    r"""Read the step times in a log file (text, compressed or not); see `read_step_times`.

    Raises
    ------
    InputError
        Names the file, when it cannot be read or has no certain step times.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.log")
    ...     _ = file.write_text("".join(f"step {k} 0.12 s/it\n" for k in range(30)))
    ...     float(read_log(file).median_s)
    0.12
    """
    with opened(path) as stream:
        text = lines(stream, str(path), decode="replace")
        return read_step_times(
            text,
            pattern,
            batch_size=batch_size,
            warmup=warmup,
            units=units,
            source=str(path),
        )


def read_step_times(
    lines: Iterable[str],
    pattern: str | None = None,
    *,
    batch_size: float | None = None,
    warmup: int = 10,
    units: int = 1,
    source: str = "",
) -> StepTimes:
    """Find the duration of steps in the lines of a training log.

    Each line has the first form that it fits (`bft.models.measure.log_forms.FORMS`), and the first form with durations
    is the one that counts. Lines of validation, evaluation and of what goes before, and times of epochs, are left out.

    Parameters
    ----------
    lines
        Lines, or longer text: what progress bars overwrite by carriage returns is split, and a JSON document read as
        one.
    pattern
        Name of a form, such as "keras", or a regular expression with named groups out of seconds, ms, us, minutes,
        steps_per_s, samples_per_s, unit_samples_per_s (of one unit), tokens_per_s, time (ISO 8601 or seconds since 1970
        or another start), interval_s (seconds since the last line); of these at least one; step (which the last two
        need), total (the step at which the counter ends), samples (a step, over all units). None tries all forms.
    batch_size
        Samples a step over all units; what the log says when None. Of no use where the log has tokens a second only.
    warmup
        Steps at the start to leave out, at most half of the records: compilers and caches make them slow.
    units
        On how many units it ran, for a pattern with the rate of one.
    source
        File to name in messages.

    Raises
    ------
    InputError
        When the pattern is none, or the log fits no form or contradicts itself: with lines in question, and the pattern
        for them.

    Examples
    --------
    >>> log = ["step 10 loss 2.31 0.52 s/step", "step 20 loss 2.05 0.50 s/step", "step 30 loss 1.98 0.51 s/step"]
    >>> times = read_step_times(log, batch_size=256, warmup=1)
    >>> times.seconds.tolist(), times.samples
    ([0.5, 0.51], 256)
    """
    if pattern is None or pattern in BY_NAME:
        log = _read(lines, FORMS if pattern is None else (BY_NAME[pattern],))
        missing = f" in the form {pattern}" if pattern else ""
    else:
        found = _matches(lines, _compiled(pattern), units, source)
        log = _Log({_OF_USER: list(found)})
        missing = " that the pattern finds"
    chosen = _chosen(log, batch_size)
    if chosen is None:
        raise InputError(
            f"tells no step times{missing}{in_question(log.unread)}",
            file=source or None,
            hint=f"give a pattern with a named group out of {', '.join(MEASURES)}; known forms are {NAMES}",
        )
    return _finished(chosen, log, batch_size, warmup)


_OF_USER: Final = "the pattern"


@dataclass(slots=True)
class _Record:
    """Record of a step, read from one line of a training log.

    `numbers` has the groups of `log_forms`, but for durations and rates of steps, which are `step_s` here, and
    `resolution_s`, which is what the clock of the line tells apart. `forms` are those that find a time or rate in the
    line, `differs` the factor by which these do.
    """

    row: int
    text: str
    numbers: dict[str, float]
    form: str = _OF_USER
    forms: tuple[str, ...] = ()
    differs: float = 1.0


@dataclass(slots=True)
class _Durations:
    """Durations of one form of lines, not yet rid of warm-up."""

    form: str
    basis: Basis = "step"
    by_clock: bool = False
    seconds: list[float] = field(default_factory=list)
    records: list[_Record] = field(default_factory=list)
    ignored: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, seconds: float, record: _Record) -> None:
        """Add a duration to the steps, or count it as invalid."""
        if np.isfinite(seconds) and seconds > 0:
            self.seconds.append(seconds)
            self.records.append(record)
        else:
            self.ignored += 1


@dataclass(slots=True)
class _Log:
    """The records of a log by their form, timely lines of no form, and the rows of lines that are not used."""

    records: dict[str, list[_Record]] = field(default_factory=dict)
    unread: list[Doubt] = field(default_factory=list)
    unused: dict[str, list[int]] = field(default_factory=dict)

    def leave_out(self, why: str, row: int) -> None:
        """Count a line that is not used."""
        self.unused.setdefault(why, []).append(row)


def _read(lines: Iterable[str], forms: Sequence[Form]) -> _Log:
    """Sort the lines of a log by the form that they fit first."""
    log = _Log()
    for row, full_text in shown_lines(lines):
        text = full_text[:MAX_LINE]
        if not any(map(str.isdigit, text)):
            continue
        plain = text.replace("'", "").replace('"', "")
        record = _record(row, text, plain, forms)
        if record is not None and not is_evaluation(plain):
            log.records.setdefault(record.form, []).append(record)
            continue
        if record is not None:
            log.leave_out("evaluation", row)
        if len(log.unread) < _UNREAD and is_timely(text):
            log.unread.append(Doubt(row, text))
    return log


def _record(row: int, text: str, plain: str, forms: Sequence[Form]) -> _Record | None:
    """Return what a line says that fits a form; None where it fits none."""
    if BAR_MARK in plain:  # its rate is only that of training where its label says so
        forms = [form for form in forms if BAR_MARK in form.marks]
    found = [
        (form.name, numbers)
        for form in forms
        for match in form.matches(plain)
        if (numbers := _tolerant_numbers(match))
    ]
    counter = _tolerant_numbers(step_counter(plain))
    if not counter:  # a stamp alone says nothing
        found = [
            (name, each)
            for name, each in found
            if name != STAMPS.name or "step" in each
        ]
    if not found:
        return None
    name, numbers = found[0]
    others = [
        BATCH_SIZE.search(plain),
        *RATES.matches(plain)[:1],
        *STAMPS.matches(plain)[:1],
    ]
    for further in (counter, *map(_tolerant_numbers, others)):
        numbers = further | numbers
    # A total differs from a worker's rate as it should, and who names a form means its first number.
    rivals = [each for form, each in found if name != "total" or form == name]
    factors = [1.0]
    for key in _KEYS.values() if len(forms) > 1 else ():
        values = [each[key] for each in rivals if each.get(key, 0.0) > 0]
        if found[0][1].get(key):
            factors.append(max(values) / min(values))
    forms_found = tuple(dict.fromkeys(form for form, _ in found))
    return _Record(row, text, numbers, name, forms_found, max(factors))


def _tolerant_numbers(match: re.Match[str] | None) -> dict[str, float]:
    """Return the numbers of a match; none where one of them is not a number, such as the 31st of February."""
    if match is None:
        return {}
    try:
        return _numbers(match)
    except ValueError:
        return {}


def _numbers(match: re.Match[str], units: int = 1) -> dict[str, float]:
    """Return the groups of a match as numbers; `time` is UTC seconds since 1970, `step_s` seconds a step.

    Raises
    ------
    ValueError
        With the name of the group, when what it holds is not a number, or not a time stamp.
    """
    numbers: dict[str, float] = {}
    for name, text in match.groupdict().items():
        if text is None:
            continue
        try:
            value = instant(text) if name == "time" else number(text)
        except ValueError as error:
            raise ValueError(name) from error
        if name in COUNTED:
            numbers["resolution_s"] = (
                1e-3 if re.search(r"[.,][0-9]", text[11:] or text) else 1.0
            )
        if name in DURATIONS:
            numbers["step_s"] = value * DURATIONS[name]
        elif name == "steps_per_s":
            numbers["step_s"] = 1 / value if value else 0.0
        elif name == "unit_samples_per_s":
            numbers["samples_per_s"] = value * units
        else:
            numbers[name] = value
    return numbers


def number(text: str) -> float:
    """Return the number that digits state, with , or _ between thousands, and perhaps k or M behind.

    Raises
    ------
    ValueError
        When they are missing, or a comma is misplaced.
    """
    factor = {"k": 1e3, "m": 1e6}.get(text[-1:].lower(), 1.0)
    digits = text if factor == 1 else text[:-1]
    if not _NUMBER.fullmatch(digits.strip()):
        raise ValueError(f"expected a number, not {text!r}")
    return float(digits.replace(",", "").replace("_", "")) * factor


def instant(stamp: str) -> float:
    """Return UTC seconds since 1970 of a time stamp, or of such seconds; stamps without a zone count as UTC.

    Raises
    ------
    ValueError
        When it is neither.
    """
    try:
        return float(stamp)
    except ValueError:
        moment = datetime.fromisoformat(stamp.replace("/", "-").replace(",", "."))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a user's pattern, checked."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"the pattern {pattern!r} is not a regular expression: {error}"
        ) from error
    groups = set(compiled.groupindex)
    unknown = sorted(groups - {*MEASURES, *FURTHER})
    counted = sorted(groups.intersection(COUNTED))
    if unknown:
        problem = f"an unknown group {unknown[0]}"
    elif not groups & set(MEASURES):
        problem = "no group that measures"
    elif counted and "step" not in groups:
        problem = f"the group {counted[0]} but not step, which it needs"
    else:
        return compiled
    raise InputError(
        f"the pattern {pattern!r} has {problem}; expected one of {', '.join(MEASURES)}, and optionally step, samples; "
        f"or the name of a known form: {NAMES}",
        hint=r"such as 'step (?P<step>\d+) took (?P<seconds>[\d.]+)'",
    )


def _matches(
    lines: Iterable[str], pattern: re.Pattern[str], units: int, source: str
) -> Iterator[_Record]:
    """Yield what a user's pattern finds; its matches are trusted."""
    for row, text in enumerate(lines, start=1):
        # \r overwrites a line on a terminal: each part is a record.
        for part in text.replace("\r", "\n").split("\n"):
            match = pattern.search(part)
            if match is None:
                continue
            try:
                numbers = _numbers(match, units)
            except ValueError as error:
                name = str(error)
                expected = (
                    "a time stamp such as 2021-02-10 20:21:15 or seconds"
                    if name == "time"
                    else "a number"
                )
                raise InputError(
                    f"expected {expected} in the group {name}, not {match[name]!r}",
                    file=source or None,
                    row=row,
                ) from None
            if any(
                match[name] is not None
                for name in pattern.groupindex
                if name in MEASURES
            ):
                yield _Record(row, part, numbers)


def _of_training(records: list[_Record], log: _Log) -> list[_Record]:
    """Keep the progress bars of training, where an evaluation draws bars too.

    Bars with another end are another phase. Training is what is called so, or the phase that comes first and is also
    the longest. Where these differ, no bar is certain.
    """
    ends: dict[float, list[_Record]] = {}
    for record in records:
        if "total" in record.numbers:
            ends.setdefault(record.numbers["total"], []).append(record)
    if len(ends) < 2:
        return records
    kept = {
        end
        for end, bars in ends.items()
        if any(bar.text.lower().lstrip().startswith("train") for bar in bars)
    }
    first, longest = next(iter(ends)), max(ends)
    if not kept and first != longest:
        example = ends[first][0]
        why = f"of training? other bars go to {longest:,.0f}"
        log.unread.insert(0, Doubt(example.row, example.text, why))
        return []
    kept = kept or {longest}
    for end, bars in ends.items():
        for bar in bars if end not in kept else ():
            log.leave_out(f"bars to {end:,.0f}", bar.row)
    return [record for record in records if record.numbers.get("total") in kept]


def _chosen(log: _Log, batch_size: float | None) -> _Durations | None:
    """Return the durations of the first form that has any; lines of other forms are counted as unused.

    None where its lines contradict themselves: log.unread then says so.
    """
    chosen: _Durations | None = None
    for form in (_OF_USER, *BY_NAME):
        records = log.records.get(form)
        if not records:
            continue
        if chosen is None:
            durations = _durations(_of_training(records, log), batch_size)
            if durations.seconds:
                chosen = durations
                continue
        for record in records if form != STAMPS.name else ():
            log.leave_out(form, record.row)
    if chosen is not None:
        differ = np.array([record.differs for record in chosen.records])
        if np.median(differ) > CONTRADICTS:
            example = chosen.records[int(np.argmax(differ))]
            names = " or ".join(f"--pattern {name}" for name in example.forms)
            why = f"two statements that differ by a factor of {example.differs:.3g}; {names} reads one"
            log.unread.insert(0, Doubt(example.row, example.text, why))
            return None
    return chosen


# What a log times, and the number that says it.
_KEYS: Final[dict[Basis, str]] = {
    "step": "step_s",
    "sample": "samples_per_s",
    "token": "tokens_per_s",
}


def _durations(records: list[_Record], batch_size: float | None) -> _Durations:
    """Return the durations that the records of one form state or imply."""
    stated = {name for record in records for name in record.numbers}
    basis = next((each for each, key in _KEYS.items() if key in stated), None)
    if basis is None:
        return _differences(records)
    found = _Durations(records[0].form, basis)
    samples = (
        (batch_size or _stated_samples(records) or 1.0) if basis == "sample" else 1
    )
    for record in records:
        value = record.numbers.get(_KEYS[basis])
        if value is not None and basis != "step":
            value = samples / value if value else 0.0
        if value is not None:
            found.add(value, record)
    if basis == "token":
        found.notes.append(
            "the log states only tokens per second: what counts as a sample here is a token"
        )
    if found.form == "huggingface":
        found.notes.append(
            "the mean of the whole run, with its warm-up and evaluations: the log has nothing else"
        )
    return found


def _differences(records: list[_Record]) -> _Durations:
    """Return the differences of instants over differences of steps, summed up to spans that the clock resolves."""
    timed = [
        record
        for record in records
        if "step" in record.numbers and record.numbers.keys() & set(COUNTED)
    ]
    found = _Durations(timed[0].form if timed else "", by_clock=True)
    if not timed:
        return found
    instants = _instants(timed)
    resolution_s = min(record.numbers["resolution_s"] for record in timed)
    min_span_s = SPAN_PER_RESOLUTION * resolution_s
    since, from_step = instants[0], timed[0].numbers["step"]
    now, step = since, from_step
    for record, now in zip(timed[1:], instants[1:], strict=True):
        step = record.numbers["step"]
        if now < since or step < from_step:  # a restart, or the next epoch
            found.ignored += 1
            since, from_step = now, step
        elif step > from_step and now - since >= min_span_s:
            found.add((now - since) / (step - from_step), record)
            since, from_step = now, step
    if not found.seconds and step > from_step and now > since:
        found.add((now - since) / (step - from_step), timed[-1])
        precision = "milliseconds" if resolution_s < 1 else "whole seconds"
        found.notes.append(
            f"all lines are within {now - since:g} s, by time stamps of {precision}"
        )
    elif found.seconds and resolution_s == 1:
        found.notes.append(
            f"time stamps of whole seconds: each duration spans {SPAN_PER_RESOLUTION} s or more"
        )
    return found


def _instants(records: list[_Record]) -> list[float]:
    """Return when each record was printed, seconds: as it says itself, or as the sum of intervals."""
    if any("interval_s" in record.numbers for record in records):
        return list(
            accumulate(record.numbers.get("interval_s", 0.0) for record in records)
        )
    return [record.numbers["time"] for record in records]


def _stated_samples(records: list[_Record]) -> float | None:
    """Return the samples a step that the records state; the last one counts."""
    stated = [record.numbers.get("samples", 0.0) for record in records]
    return next((samples for samples in reversed(stated) if samples > 0), None)


def _implied_samples(chosen: _Durations, log: _Log) -> float | None:
    """Return the samples a step that follow from its seconds and the samples a second, of the log or on its lines."""
    totals = log.records.get("total", []) or log.records.get(RATES.name, [])
    rates = [record.numbers["samples_per_s"] for record in totals]
    if chosen.basis == "step" and rates and np.median(rates) > 0:
        return float(np.median(rates) * np.median(chosen.seconds))
    products = [
        record.numbers.get("samples_per_s", 0.0) * record.numbers.get("step_s", 0.0)
        for record in chosen.records
    ]
    positive = [product for product in products if product > 0]
    return float(np.median(positive)) if positive else None


def _finished(
    chosen: _Durations, log: _Log, batch_size: float | None, warmup: int
) -> StepTimes:
    """Remove the warm-up, and add messages for the user."""
    seconds = np.array(chosen.seconds)
    passed = np.arange(len(seconds))
    if all("step" in record.numbers for record in chosen.records):
        steps = np.array([record.numbers["step"] for record in chosen.records])
        passed = steps - steps[0]
    late = np.flatnonzero(passed >= warmup)
    wanted = int(late[0]) if len(late) else len(seconds)
    skipped = min(wanted, len(seconds) // 2)
    notes = list(chosen.notes)
    if skipped < wanted:
        notes.append(f"few records: {skipped} left out as warm-up, not {wanted}")
    by_log, implied = _stated_samples(chosen.records), _implied_samples(chosen, log)
    if by_log and implied and not 1 / CONTRADICTS < implied / by_log < CONTRADICTS:
        notes.append(
            f"the log states {by_log:g} samples a step, its rate of samples and time of a step make {implied:.5g}"
        )
    stated = by_log or implied
    samples = batch_size or stated
    per: Basis = chosen.basis
    if per == "sample" and samples:
        per = "step"
    elif per != "step":
        samples = 1.0
    if per == "step" and not chosen.by_clock:
        notes += _disagreement(float(np.median(seconds[skipped:])), chosen)
    line = chosen.records[skipped]
    unused = (
        f"{len(rows)} with {why}" + (f" (line {rows[0]})" if rows[0] else "")
        for why, rows in log.unused.items()
    )
    return StepTimes(
        seconds[skipped:],
        per,
        samples,
        skipped,
        chosen.ignored,
        tuple(notes),
        f"{len(seconds)} with {chosen.form} (as {quoted_line(line.row, line.text)})",
        tuple(unused),
        chosen.basis,
        stated,
    )


def _disagreement(median_s: float, chosen: _Durations) -> list[str]:
    """Return a note when time stamps contradict the durations."""
    by_stamps = _differences(
        [record for record in chosen.records if "time" in record.numbers]
    )
    if len(by_stamps.seconds) < MIN_STAMPED:
        return []
    stamped_s = float(np.median(by_stamps.seconds))
    if 1 / DISAGREES < stamped_s / median_s < DISAGREES:
        return []
    return [
        f"by the time stamps a step takes {stamped_s:.3g} s, by {chosen.form} {median_s:.3g} s"
    ]


_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BREAKS: Final = re.compile("[\r\n\b]+")


def shown_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that a terminal would show, or 0 and each object in a JSON document."""
    numbered = enumerate(lines, start=1)
    for row, text in numbered:
        held = [(row, text)]
        if row == 1 and text.strip() in ("{", "["):  # a document over many lines
            held += numbered
            whole = _objects("\n".join(text for _, text in held))
            if whole:
                yield from ((0, text) for text in whole)
                return
        for number_of_line, held_text in held:
            for part in _BREAKS.split(_ESCAPES.sub("", held_text)):
                for shown in _objects(part) or (part,):
                    yield number_of_line, shown


def _objects(text: str) -> list[str]:
    """Each object that a text states as JSON, as a line `key: value, key: value`; none where it states none.

    Objects in an object are part of its line; those in lists are lines of their own.
    """
    if not text.lstrip().startswith(("{", "[")):
        return []
    try:
        pending = [json.loads(text)]
    except (
        ValueError,
        RecursionError,
    ):  # a dictionary as Python prints it, or a line that begins with [
        return []
    found = []
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(reversed(node))
        elif isinstance(node, dict):
            values = [f"{key}: {value}" for key, value in _flat("", node, pending)]
            found.append(", ".join(values))
    return [line for line in found if line]


def _flat(
    prefix: str, mapping: dict[str, Any], lists: list[Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the values in an object and in objects in it; lists go to `lists`."""
    for key, value in mapping.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}/", value, lists)
        elif isinstance(value, list):
            lists.append(value)
        else:
            yield f"{prefix}{key}", value
