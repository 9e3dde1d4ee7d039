"""Step times from a training log: durations, rates, or time stamps with a step counter.

A log is read by a form (`log_forms`) or by a pattern of the user; either makes a table with a row for each line that
it fits. Lines of evaluations and rates of a part of the units are left out and counted. A log that fits no form, or
contradicts itself, is refused, with the lines in question and the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.files import lines, opened
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
from bft.models.speed.scalability import Throughputs

# What a log times.
Basis = Literal["step", "sample", "token"]
# Durations that differ from what the time stamps say by more than this factor are reported.
DISAGREES: Final = 3.0
# Two statements of one line that differ by more than this factor, as a rule, are of different things.
CONTRADICTS: Final = 1.5
# A batch size that differs from the log's own by more than this factor is reported.
OTHER_BATCH: Final = 1.05
# Steps that more units shorten by less than a tenth are of batches that grow with the units.
ALIKE: Final = 0.9
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
_OF_USER: Final = "the pattern"
# The column that says it.
_KEYS: Final[dict[Basis, str]] = {
    "step": "step_s",
    "sample": "samples_per_s",
    "token": "tokens_per_s",
}
# Columns of the table of records, NaN where a line does not say: what the clock of a line tells apart is resolution_s.
_NUMBERS: Final = (*_KEYS.values(), *COUNTED, *FURTHER, "resolution_s")


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Durations of a step in a log, after warm-up, in the order of the log.

    Parameters
    ----------
    seconds
        Seconds a step (or a sample or token, see `per`), float64 of shape (records,), > 0.
    per
        "step"; "sample" when the log gives only samples per second and the batch size is not known; "token" when it
        gives only tokens per second, with an unknown number of tokens per sample.
    samples
        Samples a step over all units, None when not known; 1 with per = "sample" or "token".
    ignored
        Records without a usable duration: not finite, not positive, or a step counter that went back.
    notes
        Messages for the user.
    used
        The lines with the durations.
    unused
        Lines with times or rates that were not used, and their meaning.
    basis
        The quantity that the log itself times: `per` before a batch size turned samples into steps.
    stated
        Samples a step as the log itself states or implies them, None when it does not.

    Examples
    --------
    >>> steps = StepTimes(np.array([0.5, 0.4, 0.6]), per="step", samples=64.0)
    >>> len(steps), steps.median_s
    (3, 0.5)
    """

    seconds: FloatArray
    per: Basis
    samples: float | None
    ignored: int = 0
    notes: tuple[str, ...] = ()
    used: str = ""
    unused: tuple[str, ...] = ()
    basis: Basis = "step"
    stated: float | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def median_s(self) -> float:
        """Median seconds a step: stalls by checkpoints or stragglers do not move it."""
        return float(np.median(self.seconds))

    def interval_s(self, confidence: float = 0.95) -> tuple[float, float]:
        """Distribution-free interval of the median, seconds a step.

        Order statistics l and u with P(l <= Binomial(n, 1/2) < u) >= confidence (Conover, Practical Nonparametric
        Statistics, §3.2); with so few records that none reach it, the whole range. It takes records as independent.
        """
        from scipy.stats import binom

        ordered = np.sort(self.seconds)
        low = int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5))
        low = max(low - 1, 0)
        return float(ordered[low]), float(ordered[len(ordered) - 1 - low])

    def agrees(self, batch: float) -> bool:
        """Whether the log itself states so many samples a step."""
        return 1 / OTHER_BATCH < (self.stated or 0.0) / batch < OTHER_BATCH

    @property
    def remarks(self) -> list[str]:
        """What was read from the log, what was not, and what is unusual."""
        remarks = [f"read {self.used}", *self.notes]
        if self.unused:
            remarks.append(f"not used: {', '.join(self.unused)}")
        if self.ignored:
            why = "durations are not > 0, or their step counter went back"
            remarks.append(f"{self.ignored} of its {why}")
        if self.stated and self.samples and not self.agrees(self.samples):
            stated = f"the log states {self.stated:.5g} samples a step"
            remarks.append(f"{stated}; {self.samples:g} were given, and count")
        return remarks

    @property
    def rate(self) -> float:
        """Median samples a second.

        Raises
        ------
        ValueError
            When the samples a step are not known.
        """
        if self.samples is None:
            raise ValueError(
                "the log does not state samples per step; give the batch size"
            )
        return self.samples / self.median_s


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
        return read_step_times(
            lines(stream, str(path), decode="replace"),
            pattern,
            batch_size=batch_size,
            warmup=warmup,
            units=units,
            source=str(path),
        )


def read_logs(
    logs: Sequence[str | Path],
    units: Sequence[int],
    pattern: str | None = None,
    *,
    batch_size: float | None = None,
    unit_batch: float | None = None,
    warmup: int = 10,
    name: str | None = None,
) -> tuple[Throughputs, list[StepTimes]]:
    r"""Read the throughputs of one model from its training logs, each on some number of units.

    Parameters
    ----------
    logs, units
        The files, and on how many units each ran.
    pattern, warmup
        As for `read_step_times`.
    batch_size, unit_batch
        Samples a step over all units, or of each unit; what the logs say when both are None.
    name
        Name of the model; None: that of the first file.

    Returns
    -------
    Its throughputs (samples/s; tokens/s where the logs state nothing else), and the step times of each log.

    Raises
    ------
    InputError
        When a log cannot be read or states no rate, or the batch of a unit was given as that of all.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "net.log")
    ...     _ = file.write_text("".join(f"step {k} 0.5 s/it\n" for k in range(30)))
    ...     measured, [steps] = read_logs([file], [4], unit_batch=16)
    >>> measured.model, measured.throughput.tolist()
    ('net', [128.0])
    """
    if unit_batch and batch_size:
        raise InputError("give $unit_batch or $batch_size, not both")
    if len(units) != len(logs):
        what = f"$units must give the units of each log: {len(logs)} of them, as in 4,8"
        raise InputError(what)
    found: list[StepTimes] = []
    for log, count in zip(logs, units, strict=True):
        batch = unit_batch * count if unit_batch else batch_size
        times = read_log(log, pattern, batch_size=batch, warmup=warmup, units=count)
        found.append(times)
        what = hint = ""
        if times.per == "token" and batch is not None:
            what = "states tokens a second only, and a batch size in samples does not give the tokens of a step"
            hint = "leave the batch size out: the curve, and $pmax, are then in tokens"
        elif (times.per == "token") != (found[0].per == "token"):
            what = (
                "some of the logs state tokens a second only, others samples or steps"
            )
        elif times.samples is None:
            what = "does not state samples a step"
            hint = "give $batch_size or $unit_batch"
        if what:
            raise InputError(what, file=log, hint=hint)
    steps = {
        count: times.median_s
        for count, times in zip(units, found, strict=True)
        if times.basis == "step" and batch_size and not times.agrees(batch_size)
    }
    few, many = min(steps, default=0), max(steps, default=0)
    if few < many and steps[many] > ALIKE * steps[few]:
        raise InputError(
            f"a step takes as long on {many} units ({steps[many]:.4g} s) as on {few} ({steps[few]:.4g} s): each unit "
            f"has a batch of its own, and {batch_size:g} samples are not those of all",
            hint="give $unit_batch, the samples of a step and unit, instead of $batch_size",
        )
    model = name or Path(logs[0]).name.split(".")[0]
    rates = np.array([times.rate for times in found])
    return Throughputs(model, np.array(units), rates), found


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
        When the pattern is none, or the log fits no form or contradicts itself: with lines in question, and why.

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
        log = _Log(list(_matches(lines, _compiled(pattern), units, source)))
        missing = " that the pattern finds"
    found = _found(log, batch_size)
    if found is None:
        raise InputError(
            f"tells no step times{missing}{in_question(log.doubts)}",
            file=source or None,
            hint=rf"give one with $pattern, such as 'step (?P<step>\d+) took (?P<seconds>[\d.]+)', with a named group "
            f"out of {', '.join(MEASURES)}; known forms are {NAMES}",
        )
    return _step_times(found, log, batch_size, warmup)


@dataclass(slots=True)
class _Log:
    """A log as it is read.

    Parameters
    ----------
    records
        What each line says that fits a form: its row, text and form, `forms` (all that find a time or rate in it),
        `differs` (the factor by which these do), and numbers by `_NUMBERS`.
    doubts
        Lines that could state a step time, for a refusal.
    unused
        Rows of lines that do not count, by the reason.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    unused: dict[str, list[int]] = field(default_factory=dict)

    def leave_out(self, why: str, rows: Iterable[int]) -> None:
        """Count lines that are not used."""
        if rows := list(rows):
            self.unused.setdefault(why, []).extend(rows)


def _read(lines: Iterable[str], forms: Sequence[Form]) -> _Log:
    """Read each line of a log by the form that it fits first."""
    log = _Log()
    for row, full_text in _with_documents(lines):
        text = full_text[:MAX_LINE]
        if not any(map(str.isdigit, text)):
            continue
        plain = text.replace("'", "").replace('"', "")
        record = _record(plain, forms)
        if record is not None and not is_evaluation(plain):
            log.records.append({"row": row, "text": text, **record})
            continue
        if record is not None:
            log.leave_out("evaluation", [row])
        if len(log.doubts) < _UNREAD and is_timely(text):
            log.doubts.append(Doubt(row, text))
    return log


def _record(plain: str, forms: Sequence[Form]) -> dict[str, Any] | None:
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
        found = [each for each in found if each[0] != STAMPS.name or "step" in each[1]]
    if not found:
        return None
    name, first = found[0]
    others = [
        BATCH_SIZE.search(plain),
        *RATES.matches(plain)[:1],
        *STAMPS.matches(plain)[:1],
    ]
    numbers = dict(first)
    for further in (counter, *map(_tolerant_numbers, others)):
        numbers = further | numbers
    # A total differs from a worker's rate as it should, and who names a form means its first number.
    rivals = [each for form, each in found if name != "total" or form == name]
    differs = 1.0
    for key in _KEYS.values() if len(forms) > 1 else ():
        values = [each[key] for each in rivals if each.get(key, 0.0) > 0]
        if first.get(key):
            differs = max(differs, max(values) / min(values))
    names = tuple(dict.fromkeys(form for form, _ in found))
    return {"form": name, "forms": names, "differs": differs, **numbers}


def _tolerant_numbers(match: re.Match[str] | None) -> dict[str, float]:
    """Return the numbers of a match; none where one of them is not a number, such as the 31st of February."""
    try:
        return {} if match is None else _numbers(match)
    except ValueError:
        return {}


def _numbers(match: re.Match[str], units: int = 1) -> dict[str, float]:
    """Return the groups of a match by `_NUMBERS`: times and rates of steps as seconds a step.

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
            is_fine = re.search(r"[.,][0-9]", text[11:] or text)
            numbers["resolution_s"] = 1e-3 if is_fine else 1.0
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
) -> Iterator[dict[str, Any]]:
    """Yield what a user's pattern finds; its matches are trusted."""
    for row, text in _shown_lines(lines):
        match = pattern.search(text)
        if match is None:
            continue
        try:
            numbers = _numbers(match, units)
        except ValueError as error:
            name = str(error)
            expected = "a number"
            if name == "time":
                expected = "a time stamp such as 2021-02-10 20:21:15 or seconds"
            raise InputError(
                f"expected {expected} in the group {name}, not {match[name]!r}",
                file=source or None,
                row=row,
            ) from None
        if numbers.keys() - set(FURTHER):
            yield {
                "row": row,
                "text": text,
                "form": _OF_USER,
                "differs": 1.0,
                **numbers,
            }


@dataclass(slots=True)
class _Durations:
    """Durations that the records of one form state or imply, not yet rid of warm-up.

    `records` are those with a duration, in the column `seconds`; `ignored` counts those whose duration is not > 0.
    """

    records: pd.DataFrame
    ignored: int
    basis: Basis = "step"
    by_clock: bool = False
    notes: list[str] = field(default_factory=list)


def _found(log: _Log, batch_size: float | None) -> _Durations | None:
    """Return the durations of the first form that has any; lines of other forms are counted as unused.

    None where there are none, or where lines contradict themselves: log.doubts then says so.
    """
    columns = ["row", "text", "form", "forms", "differs", *_NUMBERS]
    table = pd.DataFrame(log.records, columns=columns)
    found: _Durations | None = None
    for form in (_OF_USER, *BY_NAME):
        records = table[table["form"] == form]
        if found is None and len(records):
            durations = _durations(_of_training(records, log), batch_size)
            if len(durations.records):
                found = durations
                continue
        if form != STAMPS.name:
            log.leave_out(form, records["row"])
    if found is not None and found.records["differs"].median() > CONTRADICTS:
        example = found.records.iloc[int(found.records["differs"].argmax())]
        names = " or ".join(f"--pattern {name}" for name in example["forms"])
        factor = f"two statements that differ by a factor of {example['differs']:.3g}"
        why = f"{factor}; {names} reads one"
        log.doubts.insert(0, Doubt(example["row"], example["text"], why))
        return None
    return found


def _of_training(records: pd.DataFrame, log: _Log) -> pd.DataFrame:
    """Keep the progress bars of training, where an evaluation draws bars too.

    Bars with another end are another phase. Training is what is called so, or the phase that comes first and is also
    the longest. Where these differ, no bar is certain.
    """
    ends = records["total"].dropna().unique()
    if len(ends) < 2:
        return records
    named = records["text"].str.lower().str.lstrip().str.startswith("train")
    kept = set(records.loc[named, "total"])
    if not kept and ends[0] != ends.max():
        first = records[records["total"] == ends[0]].iloc[0]
        why = f"of training? other bars go to {ends.max():,.0f}"
        log.doubts.insert(0, Doubt(first["row"], first["text"], why))
        return records[:0]
    kept = kept or {ends.max()}
    for end in ends:
        if end not in kept:
            rows = records.loc[records["total"] == end, "row"]
            log.leave_out(f"bars to {end:,.0f}", rows)
    return records[records["total"].isin(kept)]


def _durations(records: pd.DataFrame, batch_size: float | None) -> _Durations:
    """Return the durations that the records of one form state or imply."""
    basis = next(
        (each for each, key in _KEYS.items() if records[key].notna().any()), None
    )
    if basis is None:
        return _differences(records)
    notes = []
    seconds = records[_KEYS[basis]].dropna()
    if basis == "sample":
        seconds = (batch_size or _stated_samples(records) or 1.0) / seconds
    elif basis == "token":
        seconds = 1 / seconds
        notes.append(
            "the log states only tokens per second: what counts as a sample here is a token"
        )
    if records["form"].iat[0] == "huggingface":
        notes.append(
            "the mean of the whole run, with its warm-up and evaluations: the log has nothing else"
        )
    seconds = seconds[np.isfinite(seconds) & (seconds > 0)]
    ignored = records[_KEYS[basis]].count() - len(seconds)
    used = records.loc[seconds.index].assign(seconds=seconds)
    return _Durations(used, int(ignored), basis, notes=notes)


def _differences(records: pd.DataFrame) -> _Durations:
    """Return the differences of instants over differences of steps, summed up to spans that the clock resolves."""
    # When each line was printed: as it says itself, or as the sum of intervals.
    instants = records["interval_s"].cumsum().fillna(records["time"])
    timed = records[records["step"].notna() & instants.notna()]
    points = list(zip(instants[timed.index], timed["step"], timed.index, strict=True))
    seconds: dict[int, float] = {}
    notes: list[str] = []
    ignored = 0
    resolution_s = timed["resolution_s"].min()
    since, from_step, _ = now, step, last = points[0] if points else (0.0, 0.0, 0)
    for now, step, last in points[1:]:
        if now < since or step < from_step:  # a restart, or the next epoch
            ignored += 1
            since, from_step = now, step
        elif step > from_step and now - since >= SPAN_PER_RESOLUTION * resolution_s:
            seconds[last] = (now - since) / (step - from_step)
            since, from_step = now, step
    if not seconds and step > from_step and now > since:
        seconds[last] = (now - since) / (step - from_step)
        precision = "milliseconds" if resolution_s < 1 else "whole seconds"
        notes.append(
            f"all lines are within {now - since:g} s, by time stamps of {precision}"
        )
    elif seconds and resolution_s == 1:
        notes.append(
            f"time stamps of whole seconds: each duration spans {SPAN_PER_RESOLUTION} s or more"
        )
    used = timed.loc[list(seconds)].assign(seconds=list(seconds.values()))
    return _Durations(used, ignored, by_clock=True, notes=notes)


def _stated_samples(records: pd.DataFrame) -> float | None:
    """Return the samples a step that the records state; the last one counts."""
    stated = records.loc[records["samples"] > 0, "samples"]
    return float(stated.iloc[-1]) if len(stated) else None


def _implied_samples(found: _Durations, log: _Log) -> float | None:
    """Return the samples a step that follow from its seconds and the samples a second, of the log or on its lines."""
    for form in ("total", RATES.name) if found.basis == "step" else ():
        rates = [
            record["samples_per_s"] for record in log.records if record["form"] == form
        ]
        if rates:
            samples = float(np.median(rates) * found.records["seconds"].median())
            if samples > 0:
                return samples
            break
    products = found.records["samples_per_s"] * found.records["step_s"]
    samples = float(products[products > 0].median())
    return samples if samples > 0 else None


def _step_times(
    found: _Durations, log: _Log, batch_size: float | None, warmup: int
) -> StepTimes:
    """Remove the warm-up, and add messages for the user."""
    records, notes = found.records, list(found.notes)
    passed = (records["step"] - records["step"].iloc[0]).to_numpy()
    if np.isnan(passed).any():
        passed = np.arange(len(records))
    late = np.flatnonzero(passed >= warmup)
    wanted = int(late[0]) if len(late) else len(records)
    skipped = min(wanted, len(records) // 2)
    if skipped < wanted:
        notes.append(f"few records: {skipped} left out as warm-up, not {wanted}")
    seconds = records["seconds"].to_numpy()[skipped:]
    form, first = records["form"].iat[0], records.iloc[skipped]
    by_log, implied = _stated_samples(records), _implied_samples(found, log)
    if by_log and implied and not 1 / CONTRADICTS < implied / by_log < CONTRADICTS:
        notes.append(
            f"the log states {by_log:g} samples a step, its rate of samples and time of a step make {implied:.5g}"
        )
    stated = by_log or implied
    samples, per = batch_size or stated, found.basis
    if per == "sample" and samples:
        per = "step"
    elif per != "step":
        samples = 1.0
    if per == "step" and not found.by_clock:
        stamped = _differences(records[records["time"].notna()]).records
        by_stamps_s, by_form_s = stamped["seconds"].median(), float(np.median(seconds))
        agree = 1 / DISAGREES < by_stamps_s / by_form_s < DISAGREES
        if len(stamped) >= MIN_STAMPED and not agree:
            notes.append(
                f"by the time stamps a step takes {by_stamps_s:.3g} s, by {form} {by_form_s:.3g} s"
            )
    unused = (
        f"{len(rows)} with {why}" + (f" (line {rows[0]})" if rows[0] else "")
        for why, rows in log.unused.items()
    )
    return StepTimes(
        seconds,
        per,
        samples,
        found.ignored,
        tuple(notes),
        f"{len(records)} with {form} (as {quoted_line(first['row'], first['text'])})",
        tuple(unused),
        found.basis,
        stated,
    )


_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BREAKS: Final = re.compile("[\r\n\b]+")


def _shown_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that a terminal would show."""
    for row, text in enumerate(lines, start=1):
        for part in _BREAKS.split(_ESCAPES.sub("", text)):
            yield row, part


def _with_documents(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a log; of a JSON document 0 and each object in it as `key: value, key: value`."""
    remaining = iter(lines)
    held = [next(remaining, "")]
    objects: list[str] = []

    def hold(node: dict[str, Any]) -> None:
        values = (f"{key}: {value}" for key, value in node.items() if value is not None)
        objects.append(", ".join(values))

    if held[0].lstrip().startswith(("{", "[")):
        held += remaining
        try:
            json.loads("\n".join(held), object_hook=hold)
        except (ValueError, RecursionError):  # JSON lines, or a line that begins with [
            objects.clear()
    if objects:
        yield from ((0, text) for text in objects)
    else:
        yield from _shown_lines(chain(held, remaining))
