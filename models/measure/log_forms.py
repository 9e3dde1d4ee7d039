r"""Forms of training logs that are read without a pattern of the user: each is a named regular expression.

A form is written in the language of `--pattern`: its named groups say what a number means. A line has the form of the
first one in the table that matches it. Nothing is inferred from how numbers develop from line to line.
To add one, put it into `FORMS` with an example; the page on models lists them all.
`in_question` is for a refused log: whether a number is the time of a step only the user knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Seconds that one unit of a duration has, by the name of its group.
DURATIONS: Final = {"seconds": 1.0, "ms": 1e-3, "us": 1e-6, "minutes": 60.0}
# Groups that measure; a pattern has at least one. `time` and `interval_s` need the group `step` as well.
COUNTED: Final = ("time", "interval_s")
MEASURES: Final = (
    *DURATIONS, "steps_per_s", "samples_per_s", "unit_samples_per_s", "tokens_per_s", *COUNTED,
)  # fmt: skip
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
_A_SECOND: Final = r"(?:/|[ _-]per[ _-])s(?:ec(?:ond)?s?)?"
_PER_SECOND: Final = rf"{_A_SECOND}(?![a-z]|[/_-]|\s(?:per|/))"
# `step 10 it/s 8.0`: which of the two numbers is the rate?
_ALONE: Final = rf"(?!\s+{NUMBER}\s*(?:$|[|,;)]))"
_NO_OTHER_UNIT: Final = r"(?!\s?(?:hours?|hrs?|h|days?|d|k|m|min)\b)"
# Folders of a metric's name that do not change what it is.
_FOLDERS: Final = r"(?<![\w/])(?:(?:train|training|trainer|throughput|perf|performance|speed|metrics)/)*"
_TOTAL: Final = r"\b(?:total|aggregated?|global|overall|combined|sum)[ _]+"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of log lines: a name for `--pattern`, an example, and the regular expressions that match its lines.

    `marks` are texts in lower case of which a line must contain one, so that few lines are searched. `general` forms
    are of no program: what their rates are of, the words around these say.
    """

    name: str
    example: str
    marks: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    general: bool = False

    def matches(self, text: str) -> list[re.Match[str]]:
        """All matches in a line, but for rates of a part of the units."""
        lower = text.lower()
        if not any(mark in lower for mark in self.marks):
            return []
        return [
            match
            for each in self.patterns
            for match in each.finditer(text)
            if not (self.general and _part(text, match))
        ]


def _form(
    name: str, example: str, marks: str, *patterns: str, general: bool = False
) -> Form:
    compiled = tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)
    return Form(name, example, tuple(marks.split()), compiled, general)


def _number(group: str) -> str:
    return rf"(?P<{group}>{NUMBER}){_END}"


def _rate(group: str) -> str:
    """A number that may be in thousands or millions: 12.5k."""
    return rf"(?P<{group}>{NUMBER}[kM]?)"


BAR_MARK: Final = "%|"


def _bar(label: str) -> str:
    """The progress bar of tqdm, with the rate of its last update."""
    speed = rf"(?:{_rate('steps_per_s')}\s?it/s|(?P<seconds>{NUMBER})\s?s/it)"
    return rf"^\s*{label}\s*[0-9]+%\|[^|]*\|\s*(?P<step>{INTEGER})/(?P<total>{INTEGER})\s.*?[\[,\s]{speed}"


_OF_STEP: Final = r"(?P<step>[0-9]+)"
# What may stand before the name of a step's time: another word would make another time of it.
_NAME_BEGINS: Final = (
    r"(?:^|[^\w\s/.-]\s*|(?<=[0-9)]\s)\s*"
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


_STAMP: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T,][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"

# In this order: programs that print a form of their own, times and rates by their unit, time stamps, means of a run.
FORMS: Final = (
    _form(
        "megatron",
        "iteration 10/ 100 | elapsed time per iteration (ms): 412.5",
        "elapsed",
        rf"iteration\s+(?P<step>{INTEGER})/\s*[0-9]+.*elapsed time per iteration \(ms\):\s*{_number('ms')}",
    ),
    _form(
        "deepspeed",
        "global_step=10, RunningAvgSamplesPerSec=216.0, CurrSamplesPerSec=256.0",
        "currsamplespersec iter",
        rf"(?:global_step=|\s[0-9]+/){_OF_STEP},.*CurrSamplesPerSec={_number('samples_per_s')}",
        rf"steps: {_OF_STEP} .*iter time \(s\): {_number('seconds')}\s+samples/sec: (?P<samples_per_s>{NUMBER})",
    ),
    _form(
        "keras",
        "390/390 [=====] - 5s 12ms/step - loss: 2.3",
        "/step",
        rf"^\s*{_OF_STEP}/(?P<total>[0-9]+)\s.*\s(?:{_number('us')}us|{_number('ms')}ms|{_number('minutes')}min"
        rf"|{_number('seconds')}s)/step\b",
    ),
    _form(
        "lightning",
        "Epoch 0:  45%|####  | 450/1000 [00:55<01:07, 8.00it/s, loss=2.3]",
        BAR_MARK,
        _bar(r"(?:Epoch [0-9]+|Training)\s*:"),
    ),
    _form("tqdm", "45%|####  | 450/1000 [00:55<01:07, 8.00it/s]", BAR_MARK, _bar(r"(?:(?:train\w*|steps?)\s*:)?")),
    _form(
        "llm.c",
        "step 11/19560 | loss 9.9 | 3276.80 ms | 55.4% bf16 MFU | 160000 tok/s",
        "tok/s (took",
        rf"step\s+{_OF_STEP}/[0-9]+ .*[|(]\s*{_number('ms')} ms\s*[|,)].*tok/s",
        rf"step\s+{_OF_STEP}: .*\(took {_number('ms')} ms\)",
    ),
    _form(
        "nanogpt", "iter 20: loss 2.31, time 120.00ms, mfu 31.02%", "mfu",
        rf"iter {_OF_STEP}: .*, time {_number('ms')}ms, mfu",
    ),
    _form(
        "pytorch",
        "Epoch: [0][ 10/5005] Time 0.289 ( 0.703) Data 0.010 ( 0.2)",
        "epoch:",
        rf"^\s*Epoch: \[[0-9]+\]\[\s*{_OF_STEP}/[0-9]+\]\s+Time\s+{_number('seconds')}\s*\(",
    ),
    _form(
        "timm",
        "Train: 0 [  50/1251 (  4%)] Time: 0.412s, 621.36/s (0.512s, 500.10/s)",
        "train:",
        rf"^\s*Train: [0-9]+ \[\s*{_OF_STEP}/.*\sTime: {_number('seconds')}s, ",
    ),
    _form(
        "open_clip",
        "Train Epoch: 0 [16384/3200000 (0%)] Data (t): 0.029 Batch (t): 6.640, 2465.25/s, 77.0355/s/gpu",
        "batch (t):",
        rf"Batch \(t\): {_number('seconds')}, (?P<samples_per_s>{NUMBER})/s(?!/)",
    ),
    _form(
        "mmengine",
        "Epoch(train) [1][50/7330] lr: 2e-02 eta: 0:12:34 time: 0.412 data_time: 0.010",
        "data_time:",
        rf"Epoch(?:\(train\))?\s+\[[0-9]+\]\[\s*{_OF_STEP}/[0-9]+\].*\stime: {_number('seconds')},?\s+data_time:",
    ),
    _form(
        "tensorflow",
        "INFO:tensorflow:global_step/sec: 12.5",
        "global_step/sec sec/step",
        rf"global_step/sec: {_number('steps_per_s')}",
        rf"global step {_OF_STEP}: .*\({_number('seconds')} sec/step\)",
    ),
    _form(
        "step-time",
        "step 3 step_time=0.12; iter time: 1,234 ms",
        "time timing duration",
        _step_time(_IN_MS, _number("ms")),
        _step_time("", rf"{_number('ms')}\s?(?:ms|milliseconds)\b"),
        _step_time("", rf"{_number('us')}\s?(?:us|µs)\b"),
        _step_time("", rf"{_number('minutes')}\s?min\b"),
        _step_time(_IN_SECONDS, rf"{_number('seconds')}(?!\s?(?:ms|milliseconds|us|µs)\b){_NO_OTHER_UNIT}"),
    ),
    _form(
        "step-rate",
        "0.12 s/it; 12 ms/step; 8.1 it/s",
        "/s /it /b /u per",
        rf"{_BEGIN}{_number('seconds')}\s?(?:s|secs?|seconds?)(?:/|\sper\s){_STEP}(?![a-z/])",
        rf"{_BEGIN}{_number('ms')}\s?ms(?:/|\sper\s){_STEP}(?![a-z/])",
        rf"{_BEGIN}{_number('us')}\s?us(?:/|\sper\s){_STEP}(?![a-z/])",
        rf"{_BEGIN}{_rate('steps_per_s')}\s?{_STEP}{_PER_SECOND}{_ALONE}(?!\s*[:=])",
        rf"{_FOLDERS}{_STEP}{_PER_SECOND}\s*[:=]\s*{_rate('steps_per_s')}",
        general=True,
    ),
    _form(
        "total",
        "total images/sec: 47.87; Total img/sec on 8 GPU(s): 2640.8",
        "total aggregate global overall combined sum",
        rf"{_TOTAL}{_SAMPLES}{_PER_SECOND}[^:=|;]{{0,30}}[:=]\s*{_rate('samples_per_s')}",
        rf"{_TOTAL}[^|;:=0-9]{{0,40}}{_BEGIN}{_rate('samples_per_s')}\s?{_SAMPLES}{_PER_SECOND}",
        rf"{_TOTAL}[^|;:=]{{0,40}}[:=]\s*{_rate('samples_per_s')}\s?{_SAMPLES}{_PER_SECOND}",
        rf"{_BEGIN}{_rate('samples_per_s')}\s?{_SAMPLES}{_PER_SECOND}\W+(?:in\s)?(?:total|overall)\b",
        general=True,
    ),
    _form(
        "images/sec",
        "341 images/sec; samples/s: 2,048.0",
        "/s per",
        rf"{_FOLDERS}{_SAMPLES}{_PER_SECOND}\s*[:=]\s*{_rate('samples_per_s')}",
        rf"{_BEGIN}{_rate('samples_per_s')}\s?{_SAMPLES}{_PER_SECOND}{_ALONE}(?!\s*[:=])",
        general=True,
    ),
    _form(
        "time-stamps",
        "2024-03-05 09:00:06,250 INFO step 10 loss 2.3",
        ": timestamp",
        rf"(?<![0-9])(?P<time>{_STAMP})",
        r"(?<![a-z])_?timestamp[:=\s]+(?P<time>1[0-9]{9}(?:\.[0-9]+)?)(?![\w.])",
    ),
    _form(
        "tokens/sec",
        "tokens/s: 12.5k",
        "tok",
        rf"{_FOLDERS}{_TOKENS}{_PER_SECOND}\s*[:=]\s*{_rate('tokens_per_s')}",
        rf"{_BEGIN}{_rate('tokens_per_s')}\s?{_TOKENS}{_PER_SECOND}{_ALONE}(?!\s*[:=])",
        general=True,
    ),
    _form(
        "huggingface",
        "'train_samples_per_second': 320.0, 'train_steps_per_second': 5.0",
        "train_steps_per_second",
        rf"train_samples_per_second\W+(?P<samples_per_s>{NUMBER}).*train_steps_per_second\W+{_number('steps_per_s')}",
        rf"train_steps_per_second\W+{_number('steps_per_s')}",
    ),
)  # fmt: skip

BY_NAME: Final = {form.name: form for form in FORMS}
NAMES: Final = ", ".join(BY_NAME)
RATES: Final = BY_NAME["images/sec"]
STAMPS: Final = BY_NAME["time-stamps"]

# What any line of a known form may say besides.
_AFTER_STEP: Final = rf"(?P<step>{INTEGER})(?:\.0+)?(?![\w%]|[.,:-][0-9])(?!\s?(?:ms|us|s|sec|k|{_SAMPLES})\b)"
_COUNTERS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?<![a-z])(?:trainer/)?global[ _]?step{_SEPARATOR}{_AFTER_STEP}",
        rf"(?<![a-z_-])(?<!max )(?<!warmup )(?:train[ _])?(?:step|iteration|iter|it)(?:\s*[:=#]\s*|\s+#?){_AFTER_STEP}",
        rf"\bEpoch\W*[0-9]+\]?\s*\[\s*{_AFTER_STEP}(?!\s*/\s*[0-9]+\s*\()",
    )
)
BATCH_SIZE: Final = re.compile(
    rf"global[ _-]batch[ _-]size\s*[:=]\s*(?P<samples>{NUMBER})", re.IGNORECASE
)

_METRIC: Final = r"[ _/-]*(?:loss|acc|ppl|perplexity|err|f1|auc|score|metric|top|bleu|mse|reward)|\s*[0-9]*\.[0-9]"
_EVALUATION: Final = re.compile(
    r"(?<![\w./-])(?:val|valid|validation|validating|eval|evaluation|evaluating|test|testing|sanity|predict\w*"
    rf"|inference)(?![\w./-])(?!{_METRIC})",
    re.IGNORECASE,
)
_TRAINING: Final = re.compile(
    r"(?<![\w./-])(?:train|training)(?![\w./-])", re.IGNORECASE
)

# Words that make a rate one of a part of the units, and the names of one part before what it says.
_ONE: Final = r"(?:gpu|device|card|chip|core|tpu|npu|worker|rank|replica|process|node|host|machine|accelerator|learner)"
_OF_A_PART: Final = re.compile(
    rf"(?:\bper|/|_per|\beach|\bevery|\bone|\bsingle|\bthis|\ba)[ _/-]*{_ONE}\b"
    rf"|(?<![a-z]){_ONE}[/_](?!s\b)|(?<![a-z])local(?![a-z])",
    re.IGNORECASE,
)
_NAMED_PART: Final = re.compile(
    rf"\b(?:rank|worker|replica)[\s_#=:]*[0-9]+|(?:^|\[)\W*{_ONE}[\s_#=:]*[0-9]+",
    re.IGNORECASE,
)
_CLAUSE_ENDS: Final = re.compile(r"[|;\t]|,(?![0-9]{3}(?![0-9]))")


def _part(text: str, match: re.Match[str]) -> bool:
    """Tell whether a match is the rate of one worker, by the words in its clause or a name in its line."""
    groups = {name for name, value in match.groupdict().items() if value is not None}
    if not groups & {"steps_per_s", "samples_per_s", "tokens_per_s"}:
        return False
    ends = [0, *(end.start() for end in _CLAUSE_ENDS.finditer(text)), len(text)]
    begin = max(end for end in ends if end <= match.start())
    end = min(end for end in ends if end >= match.end())
    # All workers do as many steps.
    named = "steps_per_s" not in groups and _NAMED_PART.search(text)
    return bool(_OF_A_PART.search(text[begin:end]) or named)


def step_counter(text: str) -> re.Match[str] | None:
    """Return the match of what counts steps in a line."""
    return next(filter(None, (counter.search(text) for counter in _COUNTERS)), None)


def is_evaluation(text: str) -> bool:
    """Tell whether a line is about an evaluation and not about training."""
    return bool(_EVALUATION.search(text)) and not _TRAINING.search(text)


LISTED: Final = 3
_TIME_WORD: Final = "(?:time|sec|took|elapsed|duration|speed|throughput)"
_TIMELY: Final = re.compile(
    rf"\d.*(?:{_TIME_WORD}|/s\b|\bm?s\b)|(?:{_TIME_WORD}|\b[utwif]ps\b).*\d",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A line that could state a step time; `why` says what is in doubt, empty where the line itself tells."""

    row: int
    text: str
    why: str = ""


def is_timely(text: str) -> bool:
    """Tell whether a line has a number and a word of time, so that it is worth naming in an error."""
    return bool(_TIMELY.search(text) or STAMPS.matches(text))


def quoted_line(row: int, text: str) -> str:
    """Return a line as messages name it; `row` is 0 in a JSON document."""
    text = text.strip()
    quoted = repr(text if len(text) <= 90 else f"{text[:87]}...")
    return f"line {row} {quoted}" if row else quoted


def in_question(doubts: Sequence[Doubt]) -> str:
    """Return what a refusal says of lines that could state a step time, the first for each reason; or ""."""
    by_reason: dict[str, str] = {}
    for doubt in doubts:
        why = doubt.why or _reason(doubt.text)
        by_reason.setdefault(why, f"\n  {quoted_line(doubt.row, doubt.text)}: {why}")
    listed = "".join(list(by_reason.values())[:LISTED])
    return f" for certain. In question:{listed}\n" if listed else ""


def _reason(text: str) -> str:
    """Why a line is not read, and which groups of a pattern take it."""
    stamps = STAMPS.matches(text)
    if stamps and not _TIMELY.search(text[stamps[0].end() :]):
        return "a time stamp without a step counter; time and step count by them"
    if is_evaluation(text):
        return "evaluation"
    if _OF_A_PART.search(text) or _NAMED_PART.search(text):
        return "the rate of a part of the units; unit_samples_per_s takes it times the units"
    return "in no form that is known"
