"""Step times from a training log, whatever printed it: durations, rates, or time stamps with a step counter."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from bft.models.errors import InputError

FloatArray = NDArray[np.float64]

# What a pattern may name; one of the first five must be there.
GROUPS: Final = ("seconds", "ms", "steps_per_s", "samples_per_s", "time", "step", "samples")
MEASURES: Final = GROUPS[:5]
DURATIONS: Final = frozenset(GROUPS[:3])

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_STEP = r"(?:iterations|iteration|iters|iter|its|it|steps|step|batches|batch)"
_SAMPLE = r"(?:samples|sample|images|image|imgs|img|examples|example|sequences|sequence|seqs|tokens)"
_PER_S = r"(?:/|[ _]per[ _])(?:seconds|second|secs|sec|s)\b"
_IS = r"\s*[:=]\s*"

# Searched in this order; a line may tell several things, and the first to tell one counts.
# Rates that follow their name come before rates that precede it: "10  images/sec: 341.3" has step 10.
DEFAULT: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # elapsed time per iteration (ms): 412.5 / step_time_ms=412 / iter time: 412 ms
        rf"time per {_STEP}\s*\(ms\){_IS}(?P<ms>{_NUMBER})",
        rf"\b{_STEP}[ _-]time[ _(]*ms\)?{_IS}(?P<ms>{_NUMBER})",
        rf"\b(?:{_STEP}[ _-]time|time per {_STEP}){_IS}(?P<ms>{_NUMBER})\s*ms\b",
        # step_time=0.12 / iter time: 0.12 s / time per step: 0.12s / train_step_timing in s: 5.3
        rf"\b(?:{_STEP}[ _-]time(?:[ _]s)?|time per {_STEP}|train_step_timing in s){_IS}"
        rf"(?P<seconds>{_NUMBER})(?![\d.:])",
        # 12ms/step / 0.123 s/it
        rf"(?P<ms>{_NUMBER})\s*ms\s*/\s*{_STEP}\b",
        rf"(?P<seconds>{_NUMBER})\s*(?:seconds|sec|s)\s*/\s*{_STEP}\b",
        # time: 0.12 / Time  0.289 ( 0.703), but neither `data time: 0.01` nor `time: 12:34:56`
        rf"(?<![A-Za-z] )\btime(?:{_IS}|\s+)(?P<ms>{_NUMBER})\s*ms\b",
        rf"(?<![A-Za-z] )\btime(?:{_IS}|\s+)(?P<seconds>{_NUMBER})(?![\d.:])",
        rf"{_STEP}{_PER_S}{_IS}(?P<steps_per_s>{_NUMBER})",
        rf"(?P<steps_per_s>{_NUMBER})\s*{_STEP}{_PER_S}",
        rf"{_SAMPLE}{_PER_S}{_IS}(?P<samples_per_s>{_NUMBER})",
        rf"(?P<samples_per_s>{_NUMBER})\s*{_SAMPLE}{_PER_S}",
        rf"global[ _-]batch[ _-]size{_IS}(?P<samples>{_NUMBER})",
        # 450/1000 is a progress bar's; a date such as 2021/02/10 is not
        rf"\b{_STEP}\s*[:=#\[]?\s*(?P<step>[0-9]+)\b",
        r"(?<![\d/.])(?P<step>[0-9]+)/[0-9]+(?![\d/])",
        r"(?P<time>[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?"
        r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?)",
    )
)
# Spans between time stamps are added up until they are this many times what a stamp resolves: 5 % at most.
SPAN_PER_RESOLUTION: Final = 20


@dataclass(frozen=True, eq=False)
class StepTimes:
    """What a log says of the duration of a step, after warm-up, in the order of the log.

    Parameters
    ----------
    seconds
        Seconds a step (or a sample, see `per`), float64 of shape (records,), > 0.
    times
        When each record was printed, UTC seconds since 1970, float64 of shape (records,); NaN where the line does not
        say. To cut two logs to the span in which both trained.
    per
        "step", or "sample" when the log tells samples a second only and the batch size is not known.
    samples
        Samples a step over all units, None when not known; 1 with per = "sample".
    warmup
        Records left out at the start.
    ignored
        Records without a usable duration: not finite, not positive, or a step counter that went back.
    notes
        What the reader should know.
    """

    seconds: FloatArray
    times: FloatArray
    per: Literal["step", "sample"]
    samples: float | None
    warmup: int = 0
    ignored: int = 0
    notes: tuple[str, ...] = ()

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

    def throughput(self, confidence: float = 0.95) -> tuple[float, float, float]:
        """Samples a second: the median and the ends of its interval.

        Raises
        ------
        ValueError
            When the samples a step are not known.
        """
        if self.samples is None:
            raise ValueError("the log does not tell samples a step; give the batch size")
        low, high = self.interval_s(confidence)
        return self.samples / self.median_s, self.samples / high, self.samples / low

    def between(self, start_s: float, end_s: float) -> StepTimes:
        """The records printed in [start_s, end_s] (UTC seconds since 1970)."""
        inside = (self.times >= start_s) & (self.times <= end_s)
        return StepTimes(
            self.seconds[inside], self.times[inside], self.per, self.samples, self.warmup, self.ignored, self.notes
        )


def read_log(
    path: str | Path, pattern: str | None = None, *, batch_size: float | None = None, warmup: int = 10
) -> StepTimes:
    """Read the step times in a log file (text, or gzip by the suffix .gz); see `read_step_times`.

    Raises
    ------
    InputError
        Naming the file, when it cannot be read or tells no step times.
    """
    path = Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace", newline="\n") as stream:
            return read_step_times(stream, pattern, batch_size=batch_size, warmup=warmup, source=str(path))
    except (EOFError, gzip.BadGzipFile) as error:
        raise InputError(f"damaged or cut short: {error}", file=path) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error


def read_step_times(
    lines: Iterable[str],
    pattern: str | None = None,
    *,
    batch_size: float | None = None,
    warmup: int = 10,
    source: str = "",
) -> StepTimes:
    """Find the duration of steps in the lines of a training log.

    Durations ("0.123 s/it", "12 ms/step", "step_time=0.12", "time: 0.12") and rates of steps ("8.1it/s") are taken
    where a log has any; else rates of samples ("341 images/sec"); else time stamps on lines with a step counter, whose
    differences count.

    Parameters
    ----------
    lines
        Lines, or longer text: what progress bars overwrite by carriage returns is split.
    pattern
        Regular expression with named groups out of seconds, ms, steps_per_s, samples_per_s, time (ISO 8601 or seconds
        since 1970; of these at least one), step, samples (a step, over all units). None recognises common lines.
    batch_size
        Samples a step over all units; what the log says when None.
    warmup
        Steps at the start to leave out, at most half of the records: compilers and caches make them slow.
    source
        File to name in messages.

    Raises
    ------
    InputError
        When the pattern is none, or no line tells a step time.
    """
    patterns = DEFAULT if pattern is None else (_compiled(pattern),)
    records = []
    for row, text in enumerate(lines, start=1):
        # \r overwrites a line on a terminal: each part is a record.
        for part in text.replace("\r", "\n").split("\n"):
            found = _groups(patterns, part)
            if any(name in found for name in MEASURES):
                records.append(_Record.of(found, source, row))
    chosen = _durations(records) or _sample_rates(records, batch_size) or _stamps(records)
    if chosen is None or not chosen.seconds:
        raise InputError(
            "tells no step times" + (" that the pattern finds" if pattern else ""),
            file=source or None,
            hint=f"give a pattern with a named group out of {', '.join(MEASURES)}",
        )
    return _finished(chosen, records, batch_size, warmup)


@dataclass(slots=True)
class _Record:
    """What one line tells; None where it does not."""

    seconds: float | None
    samples_per_s: float | None
    time_s: float | None
    whole: bool  # the stamp has no fraction of a second
    step: int | None
    samples: float | None

    @staticmethod
    def of(found: Mapping[str, str], source: str, row: int) -> _Record:
        def number(name: str) -> float | None:
            try:
                return float(found[name].replace(",", "")) if name in found else None
            except ValueError:
                raise InputError(
                    f"expected a number in the group {name}, not {found[name]!r}", file=source or None, row=row
                ) from None

        seconds, ms, steps_per_s = number("seconds"), number("ms"), number("steps_per_s")
        if seconds is None and ms is not None:
            seconds = ms / 1e3
        if seconds is None and steps_per_s is not None:
            seconds = 1 / steps_per_s if steps_per_s else 0.0
        stamp, step = found.get("time"), number("step")
        return _Record(
            seconds,
            number("samples_per_s"),
            None if stamp is None else _instant(stamp, source, row),
            stamp is not None and not re.search(r"[.,]\d+", stamp),
            None if step is None else int(step),
            number("samples"),
        )


@dataclass(slots=True)
class _Chosen:
    """Durations of one kind, not yet rid of warm-up."""

    per: Literal["step", "sample"] = "step"
    seconds: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    steps: list[int | None] = field(default_factory=list)
    ignored: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, seconds: float, record: _Record) -> None:
        if not (np.isfinite(seconds) and seconds > 0):
            self.ignored += 1
            return
        self.seconds.append(seconds)
        self.times.append(np.nan if record.time_s is None else record.time_s)
        self.steps.append(record.step)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
    unknown = sorted(set(compiled.groupindex) - set(GROUPS))
    if unknown or not set(compiled.groupindex) & set(MEASURES):
        what = f"an unknown group {unknown[0]}" if unknown else "no group that measures"
        raise InputError(
            f"the pattern {pattern!r} has {what}; expected one of {', '.join(MEASURES)}, and optionally step, samples",
            hint=r"such as 'step (?P<step>\d+) took (?P<seconds>[\d.]+)'",
        )
    return compiled


def _groups(patterns: Iterable[re.Pattern[str]], line: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern in patterns:
        told = found.keys() | (DURATIONS if found.keys() & DURATIONS else frozenset())
        if pattern.groupindex.keys() <= told:
            continue
        match = pattern.search(line)
        if match:
            for name, value in match.groupdict().items():
                if value is not None:
                    found.setdefault(name, value)
    return found


def _instant(stamp: str, source: str, row: int) -> float:
    """UTC seconds since 1970; stamps without a zone count as UTC."""
    try:
        return float(stamp)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(stamp.replace("/", "-").replace(",", "."))
    except ValueError:
        raise InputError(
            f"expected a time stamp such as 2021-02-10 20:21:15 or seconds since 1970, not {stamp!r}",
            file=source or None,
            row=row,
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _durations(records: list[_Record]) -> _Chosen | None:
    chosen = _Chosen()
    for record in records:
        if record.seconds is not None:
            chosen.add(record.seconds, record)
    return chosen if chosen.seconds else None


def _sample_rates(records: list[_Record], batch_size: float | None) -> _Chosen | None:
    chosen = _Chosen(per="sample" if batch_size is None and not _told(records) else "step")
    known = batch_size or _told(records) or 1.0
    for record in records:
        if record.samples_per_s is not None:
            chosen.add(known / record.samples_per_s if record.samples_per_s else 0.0, record)
    return chosen if chosen.seconds else None


def _stamps(records: list[_Record]) -> _Chosen | None:
    """Differences of time stamps over differences of steps; a line without a counter is the step after the last."""
    stamped = [record for record in records if record.time_s is not None]
    if any(record.step is not None for record in stamped):
        stamped = [record for record in stamped if record.step is not None]
    chosen = _Chosen()
    resolution_s = 1.0 if all(record.whole for record in stamped) else 1e-3
    anchor: tuple[float, int] | None = None
    for at, record in enumerate(stamped):
        now = record.time_s or 0.0, at if record.step is None else record.step
        if anchor is None or now[0] < anchor[0] or now[1] < anchor[1]:  # a restart, or the next epoch
            chosen.ignored += anchor is not None
            anchor = now
        elif now[1] > anchor[1] and (
            now[0] - anchor[0] >= SPAN_PER_RESOLUTION * resolution_s or at == len(stamped) - 1
        ):
            chosen.add((now[0] - anchor[0]) / (now[1] - anchor[1]), record)
            anchor = now
    if chosen.seconds and resolution_s == 1.0:
        chosen.notes.append(f"time stamps of whole seconds: each duration spans {SPAN_PER_RESOLUTION} s or more")
    return chosen if chosen.seconds else None


def _told(records: list[_Record]) -> float | None:
    """Samples a step as the log states them; the last statement counts."""
    return next((record.samples for record in reversed(records) if record.samples), None)


def _finished(chosen: _Chosen, records: list[_Record], batch_size: float | None, warmup: int) -> StepTimes:
    seconds, times = np.array(chosen.seconds), np.array(chosen.times)
    first = chosen.steps[0]
    if first is not None and all(step is not None for step in chosen.steps):
        passed = np.array([0 if step is None else step - first for step in chosen.steps])
    else:
        passed = np.arange(len(seconds))
    late = np.flatnonzero(passed >= warmup)
    wanted = int(late[0]) if len(late) else len(seconds)
    skipped = min(wanted, len(seconds) // 2)
    notes = list(chosen.notes)
    if skipped < wanted:
        notes.append(f"few records: {skipped} left out as warm-up, not {wanted}")
    samples: float | None = 1.0 if chosen.per == "sample" else (batch_size or _told(records))
    if samples is None:  # samples/s beside s/step on one line
        both = [r.samples_per_s * r.seconds for r in records if r.samples_per_s and r.seconds]
        samples = float(np.median(both)) if both else None
    return StepTimes(seconds[skipped:], times[skipped:], chosen.per, samples, skipped, chosen.ignored, tuple(notes))
