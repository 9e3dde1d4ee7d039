r"""Forms of training logs that are read without a pattern of the user: each is a named regular expression.

A preset is written in the language of `--pattern`: its named groups say what a number means. A line has the form of
the first preset in the table that matches it. Nothing is inferred from how numbers develop from line to line.
`suggestions` are for a refused log: whether a number is the time of a step only the user knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

# Seconds that one unit of a duration has, by the name of its group.
DURATIONS: Final = {"seconds": 1.0, "ms": 1e-3, "us": 1e-6, "minutes": 60.0}
# Groups that measure; a pattern has at least one. `time` and `interval_s` need the group `step` as well.
MEASURES: Final = (
    *DURATIONS,
    "steps_per_s",
    "samples_per_s",
    "tokens_per_s",
    "time",
    "interval_s",
)
COUNTED: Final = ("time", "interval_s")
# Groups that may be there besides: step counter, where the counter ends, samples a step over all units.
FURTHER: Final = ("step", "total", "samples")

# 1,000 and 1_000 are thousands; what 0,25 means nobody knows, so it is not read.
NUMBER: Final = r"(?:[0-9]{1,3}(?:[,_][0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)"
INTEGER: Final = r"(?:[0-9]{1,3}(?:[,_][0-9]{3})+|[0-9]+)"
_BEGIN: Final = r"(?<![\w.,+-])"
_END: Final = r"(?![0-9%]|[.,:/+-][0-9])"
_SEPARATOR: Final = r"(?:\s*[:=]\s*|\s+)"
_STEP: Final = r"(?:iterations?|iters?|its?|steps?|batch(?:es)?|updates?)"
_SAMPLES: Final = r"(?:samples?|images?|imgs?|examples?|sequences?|seqs?)"
_TOKENS: Final = r"(?:tokens?|toks?)"
_PER_SECOND: Final = r"(?:/|[ _-]per[ _-])s(?:ec(?:ond)?s?)?(?![a-z]|[/_-]|\s(?:per|/))"
# `step 10 it/s 8.0`: which of the two numbers is the rate?
_ALONE: Final = rf"(?!\s+{NUMBER}\s*(?:$|[|,;)]))"
_NO_OTHER_UNIT: Final = r"(?!\s?(?:hours?|hrs?|h|days?|d|k|m|min)\b)"


@dataclass(frozen=True, slots=True)
class Preset:
    """A form of log lines: a name for `--pattern`, an example, and the regular expressions that match its lines.

    `marks` are texts in lower case of which a line must contain one, so that few lines are searched. `whole_run` says
    that the number is the mean of a whole run.
    """

    name: str
    example: str
    marks: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    whole_run: bool = False

    @property
    def of_bars(self) -> bool:
        """Whether progress bars have this form."""
        return _BAR_MARK in self.marks

    def match(self, text: str, lower: str) -> re.Match[str] | None:
        """Return the match of the first pattern that a line fits; `lower` is the line in lower case."""
        if not any(mark in lower for mark in self.marks):
            return None
        for pattern in self.patterns:
            found = pattern.search(text)
            if found is not None:
                return found
        return None


def _preset(
    name: str, example: str, marks: str, *patterns: str, whole_run: bool = False
) -> Preset:
    compiled = tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)
    return Preset(name, example, tuple(marks.split()), compiled, whole_run)


def _number(group: str) -> str:
    return rf"(?P<{group}>{NUMBER}){_END}"


def _rate(group: str) -> str:
    """A number that may be in thousands or millions: 12.5k."""
    return rf"(?P<{group}>{NUMBER}[kM]?)"


_BAR_MARK: Final = "%|"


def _bar(label: str) -> str:
    """The progress bar of tqdm, with the rate of its last update."""
    speed = rf"(?:{_rate('steps_per_s')}\s?it/s|(?P<seconds>{NUMBER})\s?s/it)"
    return rf"^\s*{label}\s*[0-9]+%\|[^|]*\|\s*(?P<step>{INTEGER})/(?P<total>{INTEGER})\s.*?[\[,\s]{speed}"


_OF_STEP: Final = r"(?P<step>[0-9]+)"
# What may stand before the name of a step's time: another word would make another time of it.
_NAME_BEGINS: Final = (
    r"(?:^|[^\w\s/.-]\s*|[0-9)]\s+"
    r"|\b(?:train|training|trainer|global|perf|avg|average|mean|running)[ _/.-]+)"
)
_STEP_TIME: Final = (
    r"(?:(?:global[ _]?)?(?:step|iteration|iter|batch)[ _-]?(?:time|timing|duration)(?:[ _]taken)?"
    r"|time(?:/|[ _]per[ _])(?:step|iteration|iter|batch))"
)
_IN_SECONDS: Final = r"(?:[ _]+(?:in[ _])?[\[(]?(?:s|secs?|seconds)[\])]?)?"
_IN_MS: Final = r"[ _]+(?:in[ _])?[\[(]?(?:ms|milliseconds)[\])]?"


def _step_time(unit: str, value: str) -> str:
    return rf"{_NAME_BEGINS}{_STEP_TIME}{unit}{_SEPARATOR}{value}"


_STAMP: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"

# In this order: programs that print a form of their own, times and rates by their unit, time stamps, means of a run.
PRESETS: Final = (
    _preset(
        "megatron",
        "iteration 10/ 100 | elapsed time per iteration (ms): 412.5",
        "elapsed",
        rf"iteration\s+(?P<step>{INTEGER})/\s*[0-9]+.*elapsed time per iteration \(ms\):\s*{_number('ms')}",
    ),
    _preset(
        "deepspeed",
        "global_step=10, RunningAvgSamplesPerSec=216.0, CurrSamplesPerSec=256.0",
        "currsamplespersec iter",
        rf"global_step={_OF_STEP},.*CurrSamplesPerSec={_number('samples_per_s')}",
        rf"steps: {_OF_STEP} .*iter time \(s\): {_number('seconds')}\s+samples/sec: (?P<samples_per_s>{NUMBER})",
    ),
    _preset(
        "keras",
        "390/390 [=====] - 5s 12ms/step - loss: 2.3",
        "/step",
        rf"^\s*{_OF_STEP}/(?P<total>[0-9]+)\s.*\s(?:{_number('us')}us|{_number('ms')}ms|{_number('minutes')}min"
        rf"|{_number('seconds')}s)/step\b",
    ),
    _preset(
        "lightning",
        "Epoch 0:  45%|####  | 450/1000 [00:55<01:07, 8.00it/s, loss=2.3]",
        "%|",
        _bar(r"(?:Epoch [0-9]+|Training)\s*:"),
    ),
    _preset("tqdm", "45%|####  | 450/1000 [00:55<01:07, 8.00it/s]", "%|", _bar(r"(?:(?:train\w*|steps?)\s*:)?")),
    _preset(
        "llm.c",
        "step 11/19560 | loss 9.9 | 3276.80 ms | 55.4% bf16 MFU | 160000 tok/s",
        "tok/s (took",
        rf"step\s+{_OF_STEP}/[0-9]+ .*[|(]\s*{_number('ms')} ms\s*[|,)].*tok/s",
        rf"step\s+{_OF_STEP}: .*\(took {_number('ms')} ms\)",
    ),
    _preset(
        "nanogpt", "iter 20: loss 2.31, time 120.00ms, mfu 31.02%", "mfu",
        rf"iter {_OF_STEP}: .*, time {_number('ms')}ms, mfu",
    ),
    _preset(
        "pytorch",
        "Epoch: [0][ 10/5005] Time 0.289 ( 0.703) Data 0.010 ( 0.2)",
        "epoch:",
        rf"^\s*Epoch: \[[0-9]+\]\[\s*{_OF_STEP}/[0-9]+\]\s+Time\s+{_number('seconds')}\s*\(",
    ),
    _preset(
        "timm",
        "Train: 0 [  50/1251 (  4%)] Time: 0.412s, 621.36/s (0.512s, 500.10/s)",
        "train:",
        rf"^\s*Train: [0-9]+ \[\s*{_OF_STEP}/.*\sTime: {_number('seconds')}s, ",
    ),
    _preset(
        "mmengine",
        "Epoch(train) [1][50/7330] lr: 2e-02 eta: 0:12:34 time: 0.412 data_time: 0.010",
        "data_time:",
        rf"Epoch(?:\(train\))?\s+\[[0-9]+\]\[\s*{_OF_STEP}/[0-9]+\].*\stime: {_number('seconds')},?\s+data_time:",
    ),
    _preset(
        "tensorflow",
        "INFO:tensorflow:global_step/sec: 12.5",
        "global_step/sec sec/step",
        rf"global_step/sec: {_number('steps_per_s')}",
        rf"global step {_OF_STEP}: .*\({_number('seconds')} sec/step\)",
    ),
    _preset(
        "step-time",
        "step 3 step_time=0.12; iter time: 1,234 ms",
        "time timing duration",
        _step_time(_IN_MS, _number("ms")),
        _step_time("", rf"{_number('ms')}\s?(?:ms|milliseconds)\b"),
        _step_time("", rf"{_number('us')}\s?(?:us|µs)\b"),
        _step_time("", rf"{_number('minutes')}\s?min\b"),
        _step_time(_IN_SECONDS, rf"{_number('seconds')}{_NO_OTHER_UNIT}"),
    ),
    _preset(
        "step-rate",
        "0.12 s/it; 12 ms/step; 8.1 it/s",
        "/s /it /b /u per",
        rf"{_BEGIN}{_number('seconds')}\s?(?:s|secs?|seconds?)(?:/|\sper\s){_STEP}(?![a-z/])",
        rf"{_BEGIN}{_number('ms')}\s?ms(?:/|\sper\s){_STEP}(?![a-z/])",
        rf"{_BEGIN}{_number('us')}\s?us(?:/|\sper\s){_STEP}(?![a-z/])",
        rf"{_BEGIN}{_rate('steps_per_s')}\s?{_STEP}{_PER_SECOND}{_ALONE}(?!\s*[:=])",
        rf"(?<![\w/]){_STEP}{_PER_SECOND}\s*[:=]\s*{_rate('steps_per_s')}",
    ),
    _preset(
        "images/sec",
        "341 images/sec; samples/s: 2,048.0",
        "/s per",
        rf"(?<![\w/]){_SAMPLES}{_PER_SECOND}\s*[:=]\s*{_rate('samples_per_s')}",
        rf"{_BEGIN}{_rate('samples_per_s')}\s?{_SAMPLES}{_PER_SECOND}{_ALONE}(?!\s*[:=])",
    ),
    _preset(
        "time-stamps",
        "2024-03-05 09:00:06,250 INFO step 10 loss 2.3",
        ": timestamp",
        rf"(?<![0-9])(?P<time>{_STAMP})",
        r"(?<![a-z])_?timestamp[:=\s]+(?P<time>1[0-9]{9}(?:\.[0-9]+)?)(?![\w.])",
    ),
    _preset(
        "tokens/sec",
        "tokens/s: 12.5k",
        "tok",
        rf"(?<![\w/]){_TOKENS}{_PER_SECOND}\s*[:=]\s*{_rate('tokens_per_s')}",
        rf"{_BEGIN}{_rate('tokens_per_s')}\s?{_TOKENS}{_PER_SECOND}{_ALONE}(?!\s*[:=])",
    ),
    _preset(
        "huggingface",
        "'train_samples_per_second': 320.0, 'train_steps_per_second': 5.0",
        "train_steps_per_second",
        rf"train_samples_per_second\W+(?P<samples_per_s>{NUMBER}).*train_steps_per_second\W+{_number('steps_per_s')}",
        rf"train_steps_per_second\W+{_number('steps_per_s')}",
        whole_run=True,
    ),
)  # fmt: skip

BY_NAME: Final = {preset.name: preset for preset in PRESETS}

# What any line of a known form may say besides.
_AFTER_STEP: Final = rf"(?P<step>{INTEGER})(?:\.0+)?(?![\w%]|[.,:-][0-9])(?!\s?(?:ms|us|s|sec|k|{_SAMPLES})\b)"
STEP_COUNTERS: Final = (
    re.compile(
        rf"(?<![a-z])(?:trainer/)?global[ _]?step{_SEPARATOR}{_AFTER_STEP}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?<![a-z_-])(?<!max )(?<!warmup )(?:train[ _])?(?:step|iteration|iter|it)(?:\s*[:=#]\s*|\s+#?){_AFTER_STEP}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\bEpoch\W*[0-9]+\]?\s*\[\s*{_AFTER_STEP}(?!\s*/\s*[0-9]+\s*\()",
        re.IGNORECASE,
    ),
)
SAMPLE_RATE: Final = BY_NAME["images/sec"]
BATCH_SIZE: Final = re.compile(
    rf"global[ _-]batch[ _-]size\s*[:=]\s*(?P<samples>{NUMBER})", re.IGNORECASE
)
STAMP: Final = BY_NAME["time-stamps"]

_METRIC: Final = r"[ _/-]*(?:loss|acc|ppl|perplexity|err|f1|auc|score|metric|top|bleu|mse|reward)|\s*[0-9]*\.[0-9]"
_EVALUATION: Final = re.compile(
    r"(?<![\w./-])(?:val|valid|validation|validating|eval|evaluation|evaluating|test|testing|sanity|predict\w*"
    rf"|inference)(?![\w./-])(?!{_METRIC})",
    re.IGNORECASE,
)
_TRAINING: Final = re.compile(
    r"(?<![\w./-])(?:train|training)(?![\w./-])", re.IGNORECASE
)


def is_evaluation(text: str) -> bool:
    """Tell whether a line is about an evaluation and not about training."""
    return bool(_EVALUATION.search(text)) and not _TRAINING.search(text)


def is_bar(text: str) -> bool:
    """Tell whether a line is a progress bar: its rate is only that of training where its label says so."""
    return _BAR_MARK in text


def list_of_presets() -> str:
    """Return the names of all presets for help and messages."""
    return ", ".join(BY_NAME)


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
