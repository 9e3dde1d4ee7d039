"""Problems and answers as JSON documents.

`bft-replay solve PROBLEM.json` reads one problem; `.jsonl` or `.jsonl.gz` has one per line, `-` is standard input:

```json
{"units": 4, "Tfwd": 120, "jobs": [
  {"name": "a", "Jmin": 1, "Jmax": 4, "Ns": [0, 1, 4], "Os": [0, 10, 30], "Tcup": 18, "Tcdw": 12, "weight": 1,
   "current": [0, 2]}]}
```

`units` is the number of idle units, which are numbered from 0; `current` lists the units that the job holds.
A job that holds more than Jmax goes at the rate of its curve there, must shrink, and pays Tcdw at that rate; one
that holds a number below Jmin or between its `sizes` makes no progress and pays nothing.
`weight`, `current`, `sizes` and `cost_model` (`bftrainer` or `stall`) are optional.
With `"xi": [{"a": "a", "b": "b", "xi_a": 1.2, "xi_b": 1.1}, ...]` these pairs may share units;
shared units stand in `current` of both.

The answer has `status` (`optimal`, `feasible`, `fallback`; `infeasible` only with `--option strict-reference=yes`),
`objective`, `bound`, `counts`, `allocation`, `backend`, `formulation`, `seconds`, sometimes a `note`, and the `id` of
the problem if it has one.
A malformed line of a batch becomes `{"error": ..., "line": ...}`.

With several kinds of units `units` is an object, such as `{"a100": 2, "v100": 4}` (0 and 1 are then of `a100`, 2 to 5
of `v100`), and `Os` may be one curve for each kind on which the job can run, such as
`{"a100": [0, 80], "v100": [0, 30]}`.
The answer has `kinds`, the kind of each job or `null`; `xi` and formulations other than `modes` are refused.
"""

import json
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from bft.milp.formulations.transfers import settle, settle_shared
from bft.milp.jobs import Job, ProblemError
from bft.milp.problem import Pair, Problem, Solution

# The kind of all units where the document names none.
ANY = ""
# Ten times the units of any real machine: a typing error must not take all memory.
MAX_WHOLE = 10_000_000
# Length to which a message shortens an invalid value.
SHOWN = 80


class Field(NamedTuple):
    """A field of an object: what is expected, whether a value is that, and what is made of it."""

    expected: str
    valid: Callable[[Any], bool]
    made: Callable[[Any], Any]


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max


def _is_whole(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= MAX_WHOLE and value == int(value)


def _is_list(value: Any, of: Callable[[Any], bool] = bool) -> bool:
    return isinstance(value, list) and all(map(of, value))


def _is_index(value: Any) -> bool:
    return type(value) is int


def _is_size(value: Any) -> bool:
    return _is_index(value) and 0 < value <= MAX_WHOLE


def _is_anything(value: Any) -> bool:
    return True


WHOLE = Field(f"a whole number from 0 to {MAX_WHOLE:,}", _is_whole, int)
NUMBER = Field("a finite number", _is_number, float)
NUMBERS = Field(
    "a list of numbers, all finite",
    lambda value: _is_list(value, _is_number),
    lambda value: np.array(value, dtype=np.float64),
)
RATIO = Field("a ratio >= 1", lambda value: _is_number(value) and value >= 1, float)
TEXT = Field(
    "a non-empty string", lambda value: isinstance(value, str) and value != "", str
)
ANYTHING = Field("a value", _is_anything, lambda value: value)

PROBLEM_FIELDS = {
    "units": ANYTHING,
    "Tfwd": NUMBER,
    "jobs": Field("a list of job objects", lambda v: _is_list(v, _is_anything), list),
    "cost_model": ANYTHING,
    "xi": Field("a list of pairs", lambda value: _is_list(value, _is_anything), list),
    "id": ANYTHING,
}
JOB_FIELDS = {
    "name": TEXT,
    "Jmin": WHOLE,
    "Jmax": WHOLE,
    "Ns": NUMBERS,
    "Os": NUMBERS,
    "Tcup": NUMBER,
    "Tcdw": NUMBER,
    "weight": NUMBER,
    "current": Field(
        "a list of unit indices", lambda value: _is_list(value, _is_index), tuple
    ),
    "sizes": Field(
        f"a list of whole numbers from 1 to {MAX_WHOLE:,}",
        lambda value: value is None or (value != [] and _is_list(value, _is_size)),
        lambda value: value and tuple(value),
    ),
}
XI_FIELDS = {"a": TEXT, "b": TEXT, "xi_a": RATIO, "xi_b": RATIO}
DEFAULTS: dict[str, Any] = {
    "cost_model": "bftrainer",
    "xi": [],
    "id": None,
    "weight": 1.0,
    "current": [],
    "sizes": None,
}


def _field(field: Field, entry: Mapping[str, Any], key: str, path: str) -> Any:
    """Return the value of a field of an object; `path` names it in messages."""
    value = entry[key] if key in entry else DEFAULTS.get(key)
    if (key in entry or key in DEFAULTS) and field.valid(value):
        return field.made(value)
    found = _shown(value) if key in entry else "a missing field"
    raise ProblemError(f"{path}: expected {field.expected}, not {found}")


def _read(
    entry: object, fields: Mapping[str, Field], path: str, what: str
) -> dict[str, Any]:
    """Read an object field by field; `what` it is, and `path` where it stands: empty for the problem itself."""
    if not isinstance(entry, Mapping):
        where = f"{path}: expected a {what}" if path else f"a {what} is a JSON"
        kind = "nothing" if entry is None else type(entry).__name__
        raise ProblemError(f"{where} object, not {kind}")
    unknown = sorted(str(key) for key in entry if key not in fields)
    if unknown:
        known = ", ".join(sorted(fields))
        raise ProblemError(
            f"{path or what}: unknown field {unknown[0]!r}; known are {known}"
        )
    before = f"{path}." if path else ""
    return {key: _field(fields[key], entry, key, before + key) for key in fields}


@dataclass(frozen=True, slots=True)
class Document:
    """A problem as it was posed, and the unit indices, which the optimisation does not need."""

    problem: Problem
    current: tuple[tuple[int, ...], ...]
    id: object = None  # the document's own name for the problem; the answer repeats it


def parse(document: object) -> Document:
    """Read one problem document; raise ProblemError that names the invalid field and what was expected.

    Where `units` is an object, units are of several kinds, numbered in its order; Os may then be an object by kind.

    >>> parse({"units": 5, "Tfwd": 120, "jobs": []}).problem.units
    5
    >>> parse({"units": -1, "Tfwd": 120, "jobs": []})
    Traceback (most recent call last):
    bft.milp.jobs.ProblemError: units: expected a whole number from 0 to 10,000,000, not -1
    """
    posed = _read(document, PROBLEM_FIELDS, "", "problem")
    kinds = isinstance(posed["units"], Mapping) and bool(posed["units"])
    given = posed["units"] if kinds else {ANY: posed["units"]}
    path = "units." if kinds else "units"
    units = {str(kind): _field(WHOLE, given, kind, f"{path}{kind}") for kind in given}
    if kinds and posed["xi"]:
        raise ProblemError(
            "xi: expected none with several kinds of units, where jobs cannot share"
        )
    ends = list(accumulate(units.values()))
    jobs, current = [], []
    holders: dict[int, list[int]] = {}
    for index, entry in enumerate(posed["jobs"]):
        path = f"jobs[{index}]"
        by_kind, held = _job(entry, path, list(units), named=kinds)
        for unit in held:
            if not 0 <= unit < ends[-1]:
                raise ProblemError(
                    f"{path}.current: unit {unit} lies outside 0 ... {ends[-1] - 1}"
                )
            if bisect_right(ends, unit) != bisect_right(ends, held[0]):
                raise ProblemError(
                    f"{path}.current: unit {unit} is of another kind than unit {held[0]}"
                )
            holders.setdefault(unit, []).append(index)
        jobs.append(by_kind)
        current.append(held)
    job_names = [next(iter(by_kind.values())).name for by_kind in jobs]
    pairs = _pairs(posed["xi"], job_names, holders)
    tfwd, model = posed["Tfwd"], posed["cost_model"]
    if kinds:
        names = list(units)
        now = [
            (names[bisect_right(ends, held[0])], len(held)) if held else None
            for held in current
        ]
        problem = Problem.of_kinds(units, tfwd, jobs, now, model)
    else:
        own = tuple(by_kind[ANY] for by_kind in jobs)
        counts = tuple(len(held) for held in current)
        problem = Problem(units[ANY], tfwd, own, counts, model, pairs)
    try:
        json.dumps(posed["id"], allow_nan=False)  # JSON has no NaN and no infinity
    except (ValueError, TypeError, RecursionError) as error:
        raise ProblemError(
            f"id: expected a value that JSON has, not {_shown(posed['id'])} ({error})"
        ) from error
    return Document(problem, tuple(current), posed["id"])


def _job(
    entry: object, path: str, kinds: Sequence[str], *, named: bool
) -> tuple[dict[str, Job], tuple[int, ...]]:
    """Properties of a job on each kind that it can run on, and the units that it holds.

    Os may be an object by kind where units have kinds (`named`), and is the same on all of them else.
    """
    curves = entry.get("Os") if isinstance(entry, Mapping) else None
    if not (named and isinstance(entry, Mapping) and isinstance(curves, Mapping)):
        values = _read(entry, JOB_FIELDS, path, "job")
        return dict.fromkeys(kinds, _made(values, path)), values["current"]
    if not curves:
        raise ProblemError(f"{path}.Os: expected the curve of at least one kind")
    jobs: dict[str, Job] = {}
    for kind in curves:
        if kind not in kinds:
            raise ProblemError(
                f"{path}.Os: unknown kind {kind!r}; the units are of {', '.join(kinds)}"
            )
        curve = _field(NUMBERS, curves, kind, f"{path}.Os.{kind}")
        values = _read({**entry, "Os": curve.tolist()}, JOB_FIELDS, path, "job")
        jobs[kind] = _made(values, path)
    return jobs, values["current"]


def _made(values: Mapping[str, Any], path: str) -> Job:
    """Make a job of the fields of its object."""
    held = values["current"]
    if len(set(held)) != len(held):
        raise ProblemError(f"{path}.current: a unit appears twice")
    try:
        return Job(
            **{key.lower(): values[key] for key in JOB_FIELDS if key != "current"}
        )
    except ProblemError as error:
        raise ProblemError(f"{path}: {error}") from error


def answer(document: Document, solution: Solution) -> dict[str, Any]:
    """Write one answer document: counts per job, and which units each job gets.

    >>> from bft.milp import solve
    >>> job = {"name": "a", "Jmin": 1, "Jmax": 4, "Ns": [0, 1, 4], "Os": [0, 10, 30], "Tcup": 20, "Tcdw": 10}
    >>> document = parse({"units": 2, "Tfwd": 120, "jobs": [job]})
    >>> answer(document, solve(document.problem, backend="exact"))["allocation"]
    {'a': [0, 1]}
    """
    problem = document.problem
    names = [job.name for job in problem.jobs]
    if solution.transfers:
        placed = settle_shared(document.current, solution.transfers, problem.units)
    else:
        placed = _settled(document.current, problem, solution)
    result: dict[str, Any] = {
        "status": solution.status,
        "objective": solution.objective,
        "bound": solution.bound,
        "counts": dict(zip(names, solution.counts, strict=True)),
        "allocation": {
            name: sorted(units) for name, units in zip(names, placed, strict=True)
        },
        "backend": solution.backend,
        "formulation": solution.formulation,
        "seconds": solution.seconds,
    }
    if solution.kinds:
        result["kinds"] = dict(zip(names, solution.kinds, strict=True))
    if document.id is not None:
        result["id"] = document.id
    if solution.note:
        result["note"] = solution.note
    return result


def _settled(
    current: tuple[tuple[int, ...], ...], problem: Problem, solution: Solution
) -> list[list[int]]:
    """Units of each job: kind by kind, as `settle` gives them. A job that changes its kind releases all."""
    placed: list[list[int]] = [[] for _ in current]
    held = {unit for units in current for unit in units}
    kinds = {ANY: problem.units} if problem.kinds is None else problem.kinds.units
    first = 0
    for kind, units in kinds.items():
        of_kind = range(first, first + units)
        before = [tuple(u for u in own if u in of_kind) for own in current]
        counts = [
            count if not solution.kinds or solution.kinds[j] == kind else 0
            for j, count in enumerate(solution.counts)
        ]
        free = (unit for unit in of_kind if unit not in held)
        for job, own in zip(placed, settle(before, counts, free), strict=True):
            job += own
        first += units
    return placed


def _pairs(
    entries: Sequence[object], names: list[str], holders: Mapping[int, list[int]]
) -> tuple[Pair, ...]:
    """The pairs of `xi`. `holders` (unit -> jobs, by position) shows which units each pair shares now."""
    ratios: dict[tuple[int, int], tuple[float, float]] = {}
    for index, entry in enumerate(entries):
        path = f"xi[{index}]"
        values = _read(entry, XI_FIELDS, path, "pair")
        for side in ("a", "b"):
            if values[side] not in names:
                raise ProblemError(
                    f"{path}.{side}: expected the name of a job, not {values[side]!r}"
                )
        a, b = names.index(values["a"]), names.index(values["b"])
        if a == b:
            raise ProblemError(f"{path}: a job cannot share with itself ({names[a]!r})")
        if (min(a, b), max(a, b)) in ratios:
            raise ProblemError(f"{path}: {names[a]!r} and {names[b]!r} appear twice")
        (a, xi_a), (b, xi_b) = sorted([(a, values["xi_a"]), (b, values["xi_b"])])
        ratios[a, b] = xi_a, xi_b
    shared: Counter[tuple[int, int]] = Counter()
    for unit, jobs in holders.items():
        if len(jobs) > 2:
            raise ProblemError(
                f"jobs: unit {unit} is held by {len(jobs)} jobs; two may share one"
            )
        if len(jobs) == 2:
            if (jobs[0], jobs[1]) not in ratios:
                raise ProblemError(
                    f"jobs[{jobs[1]}].current: unit {unit} is held by {names[jobs[0]]!r} too; "
                    "sharing needs an entry of the two in xi"
                )
            shared[jobs[0], jobs[1]] += 1
    return tuple(Pair(*pair, *xi, shared[pair]) for pair, xi in ratios.items())


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
