"""The meaning of one line of a training log, by one table of patterns (`PATTERNS`) and the words around each match.

Each stretch of a line has one meaning, that of the first pattern in the table that matches it. What the words before
it make of a match is decided in one place (`_verdict`): `eval_step_time` is of an evaluation, `data_time` no step's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

Means = Literal[
    "step_s",  # seconds of one step
    "sample_rate",  # samples a second over all units
    "token_rate",  # tokens a second over all units: how many a sample has is not known
    "run_step_s",  # mean seconds of a step over the whole run
    "run_sample_rate",
    "time",  # a bare time: of one step, of the steps since the last line, or since the start
    "interval",  # seconds since the last line
    "elapsed",  # seconds since some start
    "stamp",  # UTC seconds since 1970
    "samples",  # samples a step over all units
    "unused",  # a time or rate that is not a step's
]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A row of the table: a match of `regex` means `means`.

    Only lines with one of `words` are searched; these are in lower case, with _ for blanks.
    Groups: `x` the number, `k` a factor after it (k, M), `unit` its unit of time or `of` that in the name of the value.
    `looks` names it in messages; rows that look the same are one source of step times.
    """

    means: Means
    looks: str
    words: tuple[str, ...]
    regex: re.Pattern[str]
    inverse: bool = False  # a rate of steps: seconds a step are 1/x
    bare: bool = False  # counts only when no other word is before it


@dataclass(frozen=True, slots=True)
class Fact:
    """A number in a line and what it means; `start` and `end` are those of the digits."""

    pattern: Pattern
    value: float
    start: int
    end: int
    whole: bool = False  # a time stamp without fraction of a second
    unit: str = ""  # of a time, as printed: empty for seconds


@dataclass(frozen=True, slots=True)
class Counter:
    """Where a line says that the training is: step `step`, of `total` if it says so.

    `name` is the word that names it, empty where 450/1000 stands alone and may count anything.
    """

    step: int
    total: int | None
    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Line:
    """The training step described by a line; `other` holds other quantities, with their meaning.

    `row`: which line it is, 0 in a JSON document. `evaluates`: it is of an evaluation as a whole. `label`: what its
    progress bar is called.
    """

    text: str
    row: int
    facts: tuple[Fact, ...] = ()
    other: tuple[tuple[str, Fact], ...] = ()
    counter: Counter | None = None
    evaluates: bool = False
    label: str = ""

    def fact(self, means: Means, looks: str | None = None) -> Fact | None:
        """The first fact of a kind."""
        return next((f for f in self.facts if f.pattern.means == means and looks in (None, f.pattern.looks)), None)


# Characters searched per line: no real step time comes later, and searching must end.
MOST_LINE: Final = 4096
# How far before a number its name may begin.
_REACH: Final = 80
# 1,000 and 1_000 are thousands; 0,25 and 1,23 are not read at all.
_NUM: Final = r"(?:[0-9]{1,3}(?:[,_][0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)"
_INT: Final = r"(?:[0-9]{1,3}(?:[,_][0-9]{3})+|[0-9]+)"
_BEGIN: Final = r"(?<![\w.,+-])"
_END: Final = (
    r"(?![\w%]|[.,:/+-][0-9]|/[a-z])(?!\s?(?:hours?|hrs?|h|days?|d|steps?|samples?|tokens?|images?)\b(?!/|\s*[:=]))"
)
_UNITS: Final = r"milliseconds?|msecs?|ms|microseconds?|usecs?|us|[µμ]s|seconds?|secs?|s|minutes?|mins?"
_X: Final = rf"(?P<x>{_NUM})"
_SEP: Final = r"(?:\s*[:=]\s*|\s+)"
_STEP: Final = r"(?:global[ _-]?steps?|iterations?|iters?|its?|steps?|(?:mini[ _-]?)?batch(?:es)?|updates?)"
_SAMPLE: Final = r"(?:samples?|images?|imgs?|examples?|sequences?|seqs?|sentences?|records?)"
_TOKENS: Final = r"(?:tokens?|toks?|words?)"
_PER_S: Final = r"(?:\s?/\s?|[ _-]per[ _-])(?:seconds?|secs?|s)(?![a-z])"
_DEVICE: Final = r"(?:\s?/\s?|[ _-]per[ _-])(?:gpu|device|chip|core|rank|worker|node|npu|tpu)\w*"
_OF: Final = rf"(?:(?:[ _-]+(?:in[ _])?[\[(]?|[\[(])(?P<of>{_UNITS})(?![a-z])[\])]?)?"
_VALUE: Final = rf"{_SEP}{_X}(?:\s?(?P<unit>{_UNITS}))?{_END}"
_RATE: Final = rf"\s*[:=]\s*{_X}(?P<k>[kM])?{_END}"
_BLANK_RATE: Final = rf"\s+{_X}(?P<k>[kM])?{_END}"
_FIRST: Final = rf"{_BEGIN}{_X}\s?(?P<k>[kM])?\s?"
_NAME: Final = r"(?<![a-z])"


# Words that occur in every rate, and in every line that names a phase; searched first, as `words`.
_IN_RATES: Final = "/s /_s per_s per-s"
_IN_PHASES: Final = ("val", "test", "sanity", "predict", "infer", "train")


def _p(means: Means, looks: str, words: str, regex: str, *, inverse: bool = False, bare: bool = False) -> Pattern:
    return Pattern(means, looks, tuple(words.split()), re.compile(regex, re.IGNORECASE), inverse, bare)


# The first row that matches a stretch of a line says what it means: what is special comes before what is general.
PATTERNS: Final = (
    _p("stamp", "a time stamp", ":",
       r"(?<![\d])(?P<stamp>[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?"
       r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?)"),
    _p("stamp", "seconds since 1970", "time ts",
       rf"{_NAME}(?:time|_?timestamp|ts|wall_?time){_SEP}(?P<x>1[0-9]{{9}}(?:\.[0-9]+)?|(?P<epoch_ms>1[0-9]{{12}}))"
       r"(?![\w.])"),
    # Rates that are not those of all units, or not of now.
    _p("unused", "a rate of one device", "gpu device chip core rank worker node npu tpu",
       rf"{_FIRST}(?:{_SAMPLE}|{_TOKENS})(?:{_PER_S}{_DEVICE}|{_DEVICE}{_PER_S})"),
    _p("unused", "a rate of one device", "gpu device chip core rank worker node npu tpu",
       rf"{_NAME}(?:{_SAMPLE}|{_TOKENS})(?:{_PER_S}{_DEVICE}|{_DEVICE}{_PER_S}){_RATE}"),
    _p("unused", "a rate between two numbers", _IN_RATES,
       rf"{_BEGIN}{_NUM}\s+(?:{_STEP}|{_SAMPLE}|{_TOKENS}){_PER_S}\s+{_X}{_END}(?=\s*(?:$|[|,;)]))"),
    _p("unused", "RunningAvgSamplesPerSec, a mean since the start", "runningavg",
       rf"{_NAME}RunningAvgSamplesPerSec{_RATE}"),
    _p("run_step_s", "train_steps_per_second of a whole run", "train_steps_per_second",
       rf"{_NAME}train_steps_per_second{_RATE}", inverse=True),
    _p("run_sample_rate", "train_samples_per_second of a whole run", "train_samples_per_second",
       rf"{_NAME}train_samples_per_second{_RATE}"),
    _p("unused", "the time of a whole run", "train_runtime", rf"{_NAME}train_runtime{_VALUE}"),
    # Seconds of a step, by its name or its unit.
    _p("step_s", "time per step", "time",
       rf"{_NAME}(?:elapsed[ _])?time(?:/|[ _-]per[ _-]){_STEP}{_OF}{_VALUE}"),
    _p("step_s", "s/it", "/ per_", rf"{_NAME}(?P<of>{_UNITS})(?:/|[ _-]per[ _-]){_STEP}{_RATE}"),
    _p("step_s", "step_time", "time timing duration cost",
       rf"{_NAME}{_STEP}[ _-]?(?:time|timing|duration|cost)(?:[ _-]taken)?{_OF}{_VALUE}"),
    _p("step_s", "s/it", "/ per_", rf"{_BEGIN}{_X}\s?(?P<unit>{_UNITS})(?:\s?/\s?|\sper\s){_STEP}(?![a-z/])"),
    _p("step_s", "s/it", _IN_RATES, rf"{_FIRST}{_STEP}{_PER_S}", inverse=True),
    _p("step_s", "steps per second", _IN_RATES, rf"{_NAME}{_STEP}{_PER_S}{_RATE}", inverse=True),
    _p("step_s", "steps per second", _IN_RATES, rf"{_NAME}{_STEP}{_PER_S}{_BLANK_RATE}", inverse=True),
    _p("step_s", "ups", "num_updates=", rf"(?<=, )ups={_X}{_END}", inverse=True),
    # Forms of known programs whose `time` is that of one step, whatever the counter does.
    _p("step_s", "Time 0.29 (0.31)", "time", rf"{_NAME}time(?::\s*|\s+){_X}(?P<unit>s?)\s*\(\s*{_NUM}s?\s*\)",
       bare=True),
    _p("step_s", "time, data_time", "data_time", rf"{_NAME}time:\s*{_X},?\s+data_time:", bare=True),
    _p("step_s", "Time: 0.41s, 621/s", "time:", rf"{_NAME}time:\s*{_X}(?P<unit>s),\s*{_NUM}/s", bare=True),
    _p("step_s", "time 135.20ms, mfu", "mfu", rf"(?<=, )time\s+{_X}(?P<unit>ms), mfu", bare=True),
    _p("step_s", "step 10/100 | .. ms | .. tok/s", "tok/s", rf"(?<=[|(])\s*{_X}\s?(?P<unit>ms)\s*(?=[|,)])", bare=True),
    _p("step_s", "(took .. ms)", "(took", rf"\(took {_X}\s?(?P<unit>ms)\)"),
    # Rates of samples and tokens.
    _p("sample_rate", "s/sample", "/ per_", rf"{_BEGIN}{_X}\s?(?P<unit>{_UNITS})(?:\s?/\s?|\sper\s){_SAMPLE}(?![a-z/])",
       inverse=True),
    _p("sample_rate", "samples/s", "samplespersec", rf"{_NAME}(?:Curr)?SamplesPerSec{_RATE}"),
    _p("sample_rate", "samples/s", _IN_RATES, rf"{_NAME}{_SAMPLE}{_PER_S}{_RATE}"),
    _p("sample_rate", "samples/s", _IN_RATES, rf"{_FIRST}{_SAMPLE}{_PER_S}(?!\s?/)"),
    _p("sample_rate", "samples/s", _IN_RATES, rf"{_NAME}{_SAMPLE}{_PER_S}{_BLANK_RATE}"),
    _p("token_rate", "tokens/s", _IN_RATES + " wps", rf"{_NAME}(?:{_TOKENS}{_PER_S}|wps){_RATE}"),
    _p("token_rate", "tokens/s", _IN_RATES, rf"{_FIRST}{_TOKENS}{_PER_S}(?!\s?/)"),
    _p("token_rate", "tokens/s", _IN_RATES, rf"{_NAME}{_TOKENS}{_PER_S}{_BLANK_RATE}"),
    _p("samples", "global batch size", "global", rf"{_NAME}global[ _-]batch[ _-]size{_RATE}"),
    _p("samples", "bsz", "num_updates=", rf"(?<=, )bsz={_X}{_END}"),
    # Times that are not, or perhaps not, those of a step.
    _p("unused", "the time of an epoch", "/epoch", rf"{_BEGIN}{_X}\s?(?P<unit>{_UNITS})\s?/\s?epoch\b"),
    _p("unused", "the time of an epoch", "epoch",
       rf"{_NAME}(?:time(?:/|[ _-]per[ _-])epoch|epoch[ _-]?time){_OF}{_VALUE}"),
    _p("unused", "the time since the last line", "train_wall", rf"{_NAME}train_wall{_VALUE}"),
    _p("elapsed", "elapsed", "elapsed wall",
       rf"{_NAME}(?:time[ _]elapsed|elapsed(?:[ _]time)?|wall[ _]?time|wall){_OF}{_VALUE}"),
    _p("time", "time", "time took dt sec", rf"{_NAME}(?:time|took|dt|seconds|secs?){_OF}{_VALUE}", bare=True),
)  # fmt: skip

_EVALUATION: Final = (
    r"(?:val|valid|validation|validating|validate|eval|evals|evaluation|evaluating|evaluate|test|testing|sanity|"
    r"predict|predicting|prediction|inference)"
)
# After one of these words there is a metric of the step: `val loss 2.3` occurs on training lines.
_METRIC: Final = (
    r"(?:[ _/-]*(?:loss|acc|ppl|perplexity|err|f1|auc|m?ap\b|iou|mse|mae|rmse|bleu|rouge|score|metric|bpb|wer|cer|top|"
    r"nll|psnr|ssim|dice|precision|recall|reward|freq|interval|every)|\s*[:=]?\s*[0-9]*\.[0-9])"
)
_PHASE: Final = re.compile(
    rf"(?<![\w./-])(?:(?P<eval>{_EVALUATION})|(?P<train>train|training))(?![\w./-])(?!{_METRIC})", re.IGNORECASE
)
_EVALUATES: Final = re.compile(_EVALUATION, re.IGNORECASE)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that join a name by _ or - and leave it what it is.
_HARMLESS: Final = _words(
    "train training trainer global perf avg average mean median running curr current cur last model"
)
# Words after which a time or rate means something else.
_OTHER: Final = _words(
    "optimizer optim forward fwd backward bwd data dataloader load loading io micro sub inner outer max min total "
    "epoch first best worst slowest fastest save saving checkpoint ckpt warmup comm communication sync copy estimated "
    "expected target theoretical gpu device skipped std rollout generation gen env remaining eta"
)
_NO_COUNTER: Final = _words(
    "max total num of warmup skipped nan micro accumulation save per every last next remaining decay logging log "
    "inner sub until number grad gradient consumed"
)
_BEFORE_NAME: Final = re.compile(r"(?<![A-Za-z0-9])((?:[A-Za-z]+[ _/.\-]+)+)$")
_BEFORE_VALUE: Final = re.compile(r"(?<![A-Za-z])([A-Za-z][A-Za-z _/.\-]*)[:=]\s*[\[(]?$")
_COUNTER: Final = re.compile(
    rf"(?<![A-Za-z])(?P<word>num_updates|{_STEP})(?:[ _-]?(?:num|number|idx|index|no|id))?"
    rf"(?:\s*[:=#]\s*[\[(]?\s*|\s*[\[(]\s*|\s+)(?P<step>{_INT})(?:\.0+)?(?:\s*/\s*(?P<total>{_INT}))?"
    rf"(?![\w%]|[.,:/-][0-9]|/)(?!\s*(?:{_UNITS}|k)\b)(?!\s*{_SAMPLE}\b)",
    re.IGNORECASE,
)
# 450/1000 of a progress bar, after an epoch, or after the word train; not the [640/60000 (1%)] of samples.
_OF_TOTAL: Final = re.compile(
    rf"(?P<before>^|[\[|(%:]|\btrain(?:ing)?)\s*(?P<step>{_INT})\s*/\s*(?P<total>{_INT})(?![\d/]|\s*\(\s*[\d.]+%)",
    re.IGNORECASE,
)
_NO_STEPS: Final = re.compile(
    r"(?:epochs?|rank|gpu|device|fold|shards?|worker|node|part|files?|chunk|split|stage|phase|task|attempt|retry|trial|"
    r"seed|run|layer|level)\W*$",
    re.IGNORECASE,
)
_EPOCH_BEFORE: Final = re.compile(r"\bepoch\W*\d+", re.IGNORECASE)
_BAR: Final = re.compile(r"^(?P<label>[^|%]*?):?\s*\d+%\|")
_PREPARES: Final = re.compile(
    r"download|\bload|map|filter|tokeni|generat|extract|sav|process|resolv|convert|checkpoint|shard|cach|collect|upload|"
    r"encod|index|copy|fetch",
    re.IGNORECASE,
)
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BREAKS: Final = re.compile("[\r\n\b]+")
_UNIT_S: Final = {"": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}


def parts(text: str) -> Iterator[str]:
    """The lines that a text shows: what a terminal overwrites, one after another, and the objects of JSON."""
    for part in _BREAKS.split(_ESCAPES.sub("", text) if "\x1b" in text else text):
        stripped = part.strip()
        if stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]"):
            try:
                document = json.loads(stripped)
            except (ValueError, RecursionError):  # a dictionary as Python prints it, or a line that begins with [
                yield part
            else:
                yield from _objects(document)
        else:
            yield part


def read_line(text: str, row: int) -> Line | None:
    """What a line says; None where it names neither a time, a rate nor a step."""
    if not any(map(str.isdigit, text)):
        return None
    plain = text[:MOST_LINE].replace("'", "").replace('"', "")
    facts: list[Fact] = []
    other: list[tuple[str, Fact]] = []
    taken: list[tuple[int, int]] = []
    lower = plain.lower().replace(" ", "_")
    phases = list(_PHASE.finditer(plain)) if any(word in lower for word in _IN_PHASES) else []
    for pattern in PATTERNS:
        if not any(word in lower for word in pattern.words):
            continue
        for match in pattern.regex.finditer(plain):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            taken.append(match.span())
            fact = _fact(pattern, match)
            if fact is None:
                continue
            verdict = "" if pattern.means == "stamp" else _verdict(plain, match, fact, phases)
            if verdict:
                other.append((verdict, fact))
            else:
                facts.append(fact)
    counter = _counter(plain, taken)
    if not facts and not other and counter is None:
        return None
    bar = _BAR.match(plain)
    label = re.sub(r"[\W\d]+", " ", bar["label"]).strip() if bar else ""
    return Line(text, row, tuple(facts), tuple(other), counter, _evaluates(phases), label)


def number(text: str) -> float:
    """The number that digits state, with , or _ between thousands.

    Raises
    ------
    ValueError
        When they are missing, or a comma is misplaced.
    """
    if not re.fullmatch(rf"[-+]?{_NUM}|[-+]?(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|nan|inf(?:inity)?)", text.strip(), re.I):
        raise ValueError(f"expected a number, not {text!r}")
    return float(text.replace(",", "").replace("_", ""))


def instant(stamp: str) -> float:
    """UTC seconds since 1970 of a time stamp, or of such seconds; stamps without a zone count as UTC.

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


def _fact(pattern: Pattern, match: re.Match[str]) -> Fact | None:
    groups = match.groupdict()
    if groups.get("stamp"):
        try:
            value = instant(match["stamp"])
        except ValueError:  # the 31st of February
            return None
        return Fact(pattern, value, match.start("stamp"), match.end("stamp"), not re.search(r"[.,]\d+", match["stamp"]))
    value = number(match["x"])
    if groups.get("k"):
        value *= 1e6 if match["k"] == "M" else 1e3
    if groups.get("epoch_ms"):
        value /= 1e3
    unit = _unit(groups.get("unit") or groups.get("of") or "s")
    value *= _UNIT_S[unit]
    if pattern.inverse:
        value = 1 / value if value else 0.0
    in_seconds = pattern.means == "stamp" and "." not in match["x"]
    return Fact(pattern, value, match.start("x"), match.end("x"), in_seconds, unit)


def _evaluates(phases: list[re.Match[str]]) -> bool:
    """Whether a line is of an evaluation, by the words in it that say so or the contrary."""
    return bool(phases) and not any(phase["train"] for phase in phases)


def _unit(name: str) -> str:
    """The key of `_UNIT_S` that a name of a unit of time means."""
    name = name.lower()
    if name.startswith(("ms", "milli")):
        return "ms"
    if name.startswith(("us", "micro", "µs", "μs")):
        return "us"
    return "min" if name.startswith("min") else ""


def _verdict(text: str, match: re.Match[str], fact: Fact, phases: list[re.Match[str]]) -> str:
    """What a match measures if not a training step; otherwise empty."""
    before = text[max(0, match.start() - _REACH) : match.start()]
    ahead = [phase for phase in phases if phase.end() <= match.start()]
    if bool(ahead[-1]["eval"]) if ahead else _evaluates(phases):
        return "evaluation"
    bar = _BAR.match(text)
    if bar and _PREPARES.search(bar["label"]):
        return "preparation"
    words = _BEFORE_NAME.search(before) or (_BEFORE_VALUE.search(before) if match.start() == fact.start else None)
    if words is None:
        return "" if fact.pattern.means != "unused" else fact.pattern.looks
    named = re.findall(r"([A-Za-z]+)([ _/.\-]*)", words[1])
    if any(_EVALUATES.fullmatch(word) for word, _ in named):
        return "evaluation"
    if fact.pattern.means == "unused":
        return fact.pattern.looks
    last, joint = named[-1]
    if last.lower() in ("epoch", "total") or (fact.pattern.bare and last.lower() in ("train", "training")):
        return f"the time of {'an epoch' if last.lower() == 'epoch' else 'a whole run'}"
    if any(word.lower() in _OTHER for word, _ in named) or (
        last.lower() not in _HARMLESS and (fact.pattern.bare or joint[:1] in ("_", "-", "."))
    ):
        return "another time than a step's"
    return ""


def _counter(text: str, taken: list[tuple[int, int]]) -> Counter | None:
    """Where the training is; a global step before others, a name before a fraction, and then the first."""
    counters: list[tuple[bool, int, Counter]] = []
    for match in _COUNTER.finditer(text):
        if any(match.start("step") < end and start < match.end("step") for start, end in taken):
            continue
        words = _BEFORE_NAME.search(text[max(0, match.start() - _REACH) : match.start()])
        named = re.findall(r"([A-Za-z]+)([ _/.\-]*)", words[1]) if words else []
        if named and (
            named[-1][0].lower() in _NO_COUNTER
            or any(_EVALUATES.fullmatch(word) for word, _ in named)
            or (named[-1][1][:1] in ("_", "-", ".") and named[-1][0].lower() not in (*_HARMLESS, "optimizer"))
        ):
            continue
        word = match["word"].lower().rstrip("s").replace("-", "_").replace(" ", "_")
        best = "global" in word or bool(named and named[-1][0].lower() == "global")
        total = _whole(match["total"]) if match["total"] else None
        counters.append((not best, match.start(), Counter(_whole(match["step"]), total, word, *match.span("step"))))
    if counters:
        return min(counters, key=lambda entry: entry[:2])[2]
    for match in _OF_TOTAL.finditer(text):
        before = text[: match.start("step")]
        if _NO_STEPS.search(before):
            continue
        if match["before"] == ":" and not re.search(r"(?:\btrain\w*|\bepoch\W*\d+|%):\s*$", before, re.I):
            continue
        sure = _EPOCH_BEFORE.search(before) or re.search(r"\btrain\w*\W*$", before, re.IGNORECASE)
        name = "step of the epoch" if sure else ""
        return Counter(_whole(match["step"]), _whole(match["total"]), name, *match.span("step"))
    return None


def _whole(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


def _objects(document: Any) -> Iterator[str]:
    """Each object in a JSON document as a line `key: value, key: value`; objects in it that hold values are part of it.

    Those in lists are lines of their own.
    """
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(reversed(node))
        elif isinstance(node, dict):
            values, inner = [], [("", node)]
            while inner:
                prefix, mapping = inner.pop()
                for key, value in mapping.items():
                    if isinstance(value, dict):
                        inner.append((f"{prefix}{key}/", value))
                    elif isinstance(value, list):
                        pending.append(value)
                    else:
                        values.append(f"{prefix}{key}: {value}")
            if values:
                yield ", ".join(values)
