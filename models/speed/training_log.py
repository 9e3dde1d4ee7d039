"""Step times from a training log, whatever printed it: durations, rates, or time stamps with a step counter.

What a line says is read by the table in `log_patterns`; `log_sources` chooses one source of step times. What is not
of a training step, or could as well be something else, is left out and named, and a log in which nothing is certain is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bft.models.bounded import lines, opened
from bft.models.errors import InputError
from bft.models.speed.log_patterns import (
    MOST_LINE,
    Counter,
    Fact,
    Line,
    Means,
    Pattern,
    instant,
    number,
    parts,
    read_line,
)
from bft.models.speed.log_sources import COUNTED, LISTED, Basis, Chosen, Log, place

FloatArray = NDArray[np.float64]

# Groups that a user's pattern may have, and their meaning; at least one is required.
GROUPS: Final[dict[str, Means]] = {
    "seconds": "step_s",
    "ms": "step_s",
    "us": "step_s",
    "steps_per_s": "step_s",
    "samples_per_s": "sample_rate",
    "interval_s": "interval",
    "time": "stamp",
}
COUNTS: Final = ("step", "samples")
UNITS: Final = {"ms": 1e-3, "us": 1e-6}
# Durations that differ from what the time stamps say by more than this factor are reported.
DISAGREES: Final = 3.0
# A JSON document of several lines is taken as a whole up to this size, characters.
MOST_DOCUMENT: Final = 64 << 20


# Memory of a line that says something of a step.
_RECORD_BYTES: Final = 600


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Durations of a step in a log, after warm-up, in the order of the log.

    Parameters
    ----------
    seconds
        Seconds a step (or a sample or token, see `per`), float64 of shape (records,), > 0.
    times
        When each record was printed, UTC seconds since 1970, float64 of shape (records,); NaN where the line does not
        say. To cut two logs to the span in which both trained.
    per
        "step"; "sample" when the log gives only samples per second and the batch size is not known; "token" when it
        gives only tokens per second, with an unknown number of tokens per sample.
    samples
        Samples a step over all units, None when not known; 1 with per = "sample" or "token".
    warmup
        Records left out at the start.
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

    Raises
    ------
    ValueError
        When seconds are no finite numbers > 0, or times are not as many.

    Examples
    --------
    >>> steps = StepTimes(np.array([0.5, 0.4, 0.6]), np.full(3, np.nan), per="step", samples=64.0)
    >>> len(steps), steps.median_s
    (3, 0.5)
    """

    seconds: FloatArray
    times: FloatArray
    per: Basis
    samples: float | None
    warmup: int = 0
    ignored: int = 0
    notes: tuple[str, ...] = ()
    used: str = ""
    unused: tuple[str, ...] = ()
    basis: Basis = "step"
    stated: float | None = None

    def __post_init__(self) -> None:
        if self.seconds.ndim != 1 or self.seconds.shape != self.times.shape:
            raise ValueError(f"expected one time a record, not {self.times.shape} for {self.seconds.shape}")
        if not (np.isfinite(self.seconds).all() and (self.seconds > 0).all()):
            raise ValueError("seconds: expected finite numbers > 0")
        if self.samples is not None and not (np.isfinite(self.samples) and self.samples > 0):
            raise ValueError(f"samples: expected a finite number > 0 or None, not {self.samples}")

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

        Raises
        ------
        ValueError
            When the confidence is not in (0, 1).
        """
        from scipy.stats import binom

        if not 0 < confidence < 1:
            raise ValueError(f"expected a confidence in (0, 1), not {confidence}")
        ordered = np.sort(self.seconds)
        low = int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5))
        low = max(low - 1, 0)
        return float(ordered[low]), float(ordered[len(ordered) - 1 - low])

    def throughput(self, confidence: float = 0.95) -> tuple[float, float, float]:
        """Samples a second: the median and the ends of its interval.

        Raises
        ------
        ValueError
            When the samples a step are not known.
        """
        if self.samples is None:
            raise ValueError("the log does not state samples per step; give the batch size")
        low, high = self.interval_s(confidence)
        return self.samples / self.median_s, self.samples / high, self.samples / low

    def between(self, start_s: float, end_s: float) -> StepTimes:
        """The records printed in [start_s, end_s] (UTC seconds since 1970)."""
        inside = (self.times >= start_s) & (self.times <= end_s)
        return replace(self, seconds=self.seconds[inside], times=self.times[inside])


def read_log(
    path: str | Path, pattern: str | None = None, *, batch_size: float | None = None, warmup: int = 10
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
    with opened(path, _weigh) as stream:
        text = lines(stream.read1, str(path), decode="replace")
        return read_step_times(text, pattern, batch_size=batch_size, warmup=warmup, source=str(path))


def _weigh(block: bytes) -> int:
    return _RECORD_BYTES * sum(block.count(end) for end in (b"\n", b"\r", b"\b"))


def read_step_times(
    lines: Iterable[str],
    pattern: str | None = None,
    *,
    batch_size: float | None = None,
    warmup: int = 10,
    source: str = "",
) -> StepTimes:
    """Find the duration of steps in the lines of a training log.

    The first of these that a log has for certain counts, by one form of lines only: durations and rates of steps
    ("0.123 s/it", "12 ms/step", "step_time=0.12", "8.1it/s"); rates of samples ("341 images/sec"); a bare time on
    lines whose step counter moves by one; time stamps, or a time that rises from the start, on lines with a step
    counter, by their differences; rates of tokens; the means that a run prints at its end. Lines of validation,
    evaluation and of what goes before, and times of epochs, are left out.

    Parameters
    ----------
    lines
        Lines, or longer text: what progress bars overwrite by carriage returns is split, and a JSON document read as
        one.
    pattern
        Regular expression with named groups out of seconds, ms, us, steps_per_s, samples_per_s, time (ISO 8601 or
        seconds since 1970 or another start), interval_s (seconds since the last line); of these at least one; step
        (which the last two need), samples (a step, over all units). None recognises common lines.
    batch_size
        Samples a step over all units; what the log says when None. Of no use where the log has tokens a second only.
    warmup
        Steps at the start to leave out, at most half of the records: compilers and caches make them slow.
    source
        File to name in messages.

    Raises
    ------
    InputError
        When the pattern is none, or nothing tells a step time for certain: with the lines in question, what is in
        doubt, and the pattern that would settle it.
    ValueError
        When batch_size is not a finite number > 0, or warmup is negative.

    Examples
    --------
    >>> log = ["step 10 loss 2.31 0.52 s/step", "step 20 loss 2.05 0.50 s/step", "step 30 loss 1.98 0.51 s/step"]
    >>> times = read_step_times(log, batch_size=256, warmup=1)
    >>> times.seconds.tolist(), times.samples
    ([0.5, 0.51], 256)
    """
    if batch_size is not None and not (np.isfinite(batch_size) and batch_size > 0):
        raise ValueError(f"batch_size: expected a finite number > 0, not {batch_size}")
    if warmup < 0:
        raise ValueError(f"warmup: expected a number >= 0, not {warmup}")
    log = _read(lines) if pattern is None else Log(list(_matches(lines, _compiled(pattern), source)))
    chosen = log.choose(batch_size)
    if chosen is None:
        raise InputError(
            "tells no step times" + (" that the pattern finds" if pattern else "") + log.in_question(),
            file=source or None,
            hint=f"give a pattern with a named group out of {', '.join(GROUPS)}",
        )
    return _finished(chosen, log, batch_size, warmup)


# Text in a line without a match that makes the line worth naming in an error.
_TIMELY: Final = re.compile(
    r"\d.*(?:time|sec|/s\b|\bm?s\b|speed|throughput)|(?:time|sec|speed|throughput).*\d", re.IGNORECASE
)


def _read(lines: Iterable[str]) -> Log:
    """The facts of all lines."""
    kept: list[Line] = []
    unread: list[Line] = []
    for row, text in _texts(lines):
        line = read_line(text, row)
        if line is not None:
            kept.append(line)
        if (
            (line is None or not (line.facts or line.other))
            and len(unread) < LISTED
            and _TIMELY.search(text[:MOST_LINE])
        ):
            unread.append(Line(text, row))
    return Log(kept, unread)


def _texts(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Number and text of each line that a terminal would show, or (0 and) of each object in a JSON document."""
    numbered: Iterator[tuple[int, str]] = enumerate(lines, start=1)
    row, first = next(((row, text) for row, text in numbered if text.strip()), (0, ""))
    if first.strip() in ("{", "["):  # a document over many lines
        taken, size = [first], len(first)
        for _, text in numbered:
            taken.append(text)
            size += len(text)
            if size > MOST_DOCUMENT:
                break
        texts = list(parts("".join(taken).replace("\n", " ")))
        if len(texts) > 1 or not texts[0].lstrip().startswith(("{", "[")):
            yield from ((0, text) for text in texts)
            return
        numbered = chain(enumerate(taken, start=row), numbered)
    else:
        numbered = chain([(row, first)], numbered)
    for row, text in numbered:
        for part in parts(text):
            yield row, part


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
    groups = set(compiled.groupindex)
    unknown = sorted(groups - {*GROUPS, *COUNTS})
    counted = sorted(groups.intersection(COUNTED))
    if unknown:
        what = f"an unknown group {unknown[0]}"
    elif not groups & set(GROUPS):
        what = "no group that measures"
    elif counted and "step" not in groups:
        what = f"the group {counted[0]} but not step, which it needs"
    else:
        return compiled
    raise InputError(
        f"the pattern {pattern!r} has {what}; expected one of {', '.join(GROUPS)}, and optionally step, samples",
        hint=r"such as 'step (?P<step>\d+) took (?P<seconds>[\d.]+)'",
    )


# Matches of a user's pattern all have one meaning, and are trusted.
_OF_USER: Final = {
    group: Pattern(means, "the pattern", (), re.compile(""), group == "steps_per_s")
    for group, means in (*GROUPS.items(), ("samples", "samples"))
}


def _matches(lines: Iterable[str], pattern: re.Pattern[str], source: str) -> Iterator[Line]:
    """The matches of a user's pattern in lines."""
    for row, text in enumerate(lines, start=1):
        # \r overwrites a line on a terminal: each part is a record.
        for part in text.replace("\r", "\n").split("\n"):
            match = pattern.search(part)
            fields = {name: value for name, value in match.groupdict().items() if value is not None} if match else {}
            if match is None or not fields.keys() & GROUPS.keys():
                continue
            facts, counter = [], None
            for name, value in fields.items():
                try:
                    stated = instant(value) if name == "time" else number(value)
                except ValueError:
                    what = "a time stamp such as 2021-02-10 20:21:15 or seconds" if name == "time" else "a number"
                    raise InputError(
                        f"expected {what} in the group {name}, not {value!r}", file=source or None, row=row
                    ) from None
                start, end = match.span(name)
                if name == "step":
                    counter = Counter(int(stated), None, "step", start, end)
                    continue
                if name == "steps_per_s":
                    stated = 1 / stated if stated else 0.0
                whole = name == "time" and not re.search(r"[.,]\d+", value)
                facts.append(Fact(_OF_USER[name], stated * UNITS.get(name, 1.0), start, end, whole))
            yield Line(part, row, tuple(facts), (), counter)


def _finished(chosen: Chosen, log: Log, batch_size: float | None, warmup: int) -> StepTimes:
    """Remove the warm-up, and add messages for the user."""
    seconds = np.array(chosen.seconds)
    stamps = [line.fact("stamp") for line in chosen.lines]
    times = np.array([np.nan if stamp is None else stamp.value for stamp in stamps])
    steps = [line.counter.step for line in chosen.lines if line.counter is not None]
    passed = np.array(steps) - steps[0] if len(steps) == len(seconds) else np.arange(len(seconds))
    late = np.flatnonzero(passed >= warmup)
    wanted = int(late[0]) if len(late) else len(seconds)
    skipped = min(wanted, len(seconds) // 2)
    notes = list(chosen.notes)
    if skipped < wanted:
        notes.append(f"few records: {skipped} left out as warm-up, not {wanted}")
    stated = log.samples() or _implied(log.lines, chosen)
    samples = batch_size or stated
    per: Basis = chosen.basis
    if per == "sample" and (batch_size or log.samples()):
        per = "step"
    elif per != "step":
        samples = 1.0
    if per == "step":
        notes += _disagreement(seconds[skipped:], log, chosen)
    line = chosen.lines[skipped]
    return StepTimes(
        seconds[skipped:],
        times[skipped:],
        per,
        samples,
        skipped,
        chosen.ignored,
        tuple(notes),
        f"{len(seconds)} with {chosen.looks} (as {place(line)})",
        log.unused(chosen),
        chosen.basis,
        stated,
    )


def _implied(lines: list[Line], chosen: Chosen) -> float | None:
    """Samples per step, from samples/s and seconds per step on the same lines."""
    both = [
        rate.value * step.value
        for means in (("step_s", "sample_rate"), ("run_step_s", "run_sample_rate"))
        for line in (chosen.lines if means[0] == "step_s" else lines)
        if (step := line.fact(means[0])) and (rate := line.fact(means[1]))
        if step.value > 0 and rate.value > 0 and chosen.means == means[0]
    ]
    return float(np.median(both)) if both else None


def _disagreement(seconds: FloatArray, log: Log, chosen: Chosen) -> list[str]:
    """A note when time stamps contradict the durations."""
    if chosen.means in ("stamp", "interval", "elapsed"):
        return []
    by_stamps = log.stamped_median_s()
    median = float(np.median(seconds))
    if by_stamps is None or 1 / DISAGREES < by_stamps / median < DISAGREES:
        return []
    return [f"by the time stamps a step takes {by_stamps:.3g} s, by {chosen.looks} {median:.3g} s"]
