"""Problems and answers as JSON documents (docs/formats.md)."""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from bft.milp.formulations.transfers import settle, settle_shared
from bft.milp.problem import Job, Pair, Problem, ProblemError, Solution

JOB_FIELDS = {
    "name",
    "Jmin",
    "Jmax",
    "Ns",
    "Os",
    "Tcup",
    "Tcdw",
    "weight",
    "current",
    "sizes",
}
FIELDS = {"units", "Tfwd", "jobs", "cost_model", "xi", "id"}
# The kind of all units where the document names none.
ANY = ""
# Ten times the units of any real machine: a typing error must not take all memory.
MAX_WHOLE = 10_000_000
# Length to which a message shortens an invalid value.
SHOWN = 80
FINITE = sys.float_info.max
XI_FIELDS = {"a", "b", "xi_a", "xi_b"}


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
    bft.milp.problem.ProblemError: units: expected a whole number from 0 to 10,000,000, not -1
    """
    if not isinstance(document, Mapping):
        raise ProblemError(f"a problem is a JSON object, not {_kind(document)}")
    _no_others(document, FIELDS, "problem")
    units = _units(document)
    tfwd = _number(document, "Tfwd", "Tfwd")
    entries = document.get("jobs")
    if not isinstance(entries, list):
        raise ProblemError(
            f"jobs: expected a list of job objects, not {_kind(entries)}"
        )
    kinds = isinstance(document["units"], Mapping)
    if kinds and document.get("xi"):
        raise ProblemError(
            "xi: expected none with several kinds of units, where jobs cannot share"
        )
    ends = list(accumulate(units.values()))
    jobs, current = [], []
    holders: dict[int, list[int]] = {}
    for index, entry in enumerate(entries):
        path = f"jobs[{index}]"
        by_kind, held = _on_kinds(entry, path, list(units), named=kinds)
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
    pairs = _pairs(document.get("xi", []), job_names, holders)
    model = document.get("cost_model", "bftrainer")
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
    return Document(problem, tuple(current), _repeatable(document.get("id")))


def _units(document: Mapping[str, Any]) -> dict[str, int]:
    """Idle units by kind; under ANY where the document has one number."""
    given = document.get("units")
    if not isinstance(given, Mapping) or not given:
        return {ANY: _whole(document, "units", "units")}
    return {str(kind): _whole(given, kind, f"units.{kind}") for kind in given}


def _on_kinds(
    entry: object, path: str, kinds: Sequence[str], *, named: bool
) -> tuple[dict[str, Job], tuple[int, ...]]:
    """Properties of a job on each kind that it can run on, and the units that it holds.

    Os may be an object by kind where units have kinds (`named`), and is the same on all of them else.
    """
    curves = entry.get("Os") if isinstance(entry, Mapping) else None
    if not (named and isinstance(curves, Mapping) and isinstance(entry, Mapping)):
        job, held = _job(entry, path)
        return dict.fromkeys(kinds, job), held
    if not curves:
        raise ProblemError(f"{path}.Os: expected the curve of at least one kind")
    jobs: dict[str, Job] = {}
    for kind, curve in curves.items():
        if kind not in kinds:
            raise ProblemError(
                f"{path}.Os: unknown kind {kind!r}; the units are of {', '.join(kinds)}"
            )
        on_kind = {**entry, "Os": curve}
        jobs[kind], held = _job(on_kind, path, curve=f"{path}.Os.{kind}")
    return jobs, held


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
    entries: object, names: list[str], holders: Mapping[int, list[int]]
) -> tuple[Pair, ...]:
    """The pairs of `xi`. `holders` (unit -> jobs, by position) shows which units each pair shares now."""
    if not isinstance(entries, list):
        raise ProblemError(f"xi: expected a list of pairs, not {_kind(entries)}")
    ratios: dict[tuple[int, int], tuple[float, float]] = {}
    for index, entry in enumerate(entries):
        path = f"xi[{index}]"
        if not isinstance(entry, Mapping):
            raise ProblemError(f"{path}: expected a pair object, not {_kind(entry)}")
        _no_others(entry, XI_FIELDS, path)
        for side in ("a", "b"):
            if entry.get(side) not in names:
                raise ProblemError(
                    f"{path}.{side}: expected the name of a job, not {_shown(entry, side)}"
                )
        a, b = names.index(entry["a"]), names.index(entry["b"])
        if a == b:
            raise ProblemError(f"{path}: a job cannot share with itself ({names[a]!r})")
        xi_a, xi_b = (
            _number(entry, "xi_a", f"{path}.xi_a"),
            _number(entry, "xi_b", f"{path}.xi_b"),
        )
        for side, xi in (("xi_a", xi_a), ("xi_b", xi_b)):
            if xi < 1:
                raise ProblemError(f"{path}.{side}: expected a ratio >= 1, not {xi!r}")
        key, value = ((a, b), (xi_a, xi_b)) if a < b else ((b, a), (xi_b, xi_a))
        if key in ratios:
            raise ProblemError(f"{path}: {names[a]!r} and {names[b]!r} appear twice")
        ratios[key] = value
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
    return tuple(
        Pair(a, b, xi_a, xi_b, shared[a, b]) for (a, b), (xi_a, xi_b) in ratios.items()
    )


def _job(entry: object, path: str, curve: str = "") -> tuple[Job, tuple[int, ...]]:
    if not isinstance(entry, Mapping):
        raise ProblemError(f"{path}: expected a job object, not {_kind(entry)}")
    _no_others(entry, JOB_FIELDS, path)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ProblemError(f"{path}.name: expected a non-empty string, not {name!r}")
    held = entry.get("current", [])
    if not isinstance(held, list) or not all(type(unit) is int for unit in held):
        raise ProblemError(
            f"{path}.current: expected a list of unit indices, not {held!r}"
        )
    if len(set(held)) != len(held):
        raise ProblemError(f"{path}.current: a unit appears twice")
    try:
        job = Job(
            name=name,
            jmin=_whole(entry, "Jmin", f"{path}.Jmin"),
            jmax=_whole(entry, "Jmax", f"{path}.Jmax"),
            ns=_numbers(entry, "Ns", f"{path}.Ns"),
            os=_numbers(entry, "Os", curve or f"{path}.Os"),
            tcup=_number(entry, "Tcup", f"{path}.Tcup"),
            tcdw=_number(entry, "Tcdw", f"{path}.Tcdw"),
            weight=_number(entry, "weight", f"{path}.weight")
            if "weight" in entry
            else 1.0,
            sizes=_sizes(entry, f"{path}.sizes"),
        )
    except ProblemError as error:
        message = str(error)
        raise ProblemError(
            message if message.startswith(path) else f"{path}: {message}"
        ) from error
    return job, tuple(held)


def _no_others(entry: Mapping[str, Any], known: set[str], path: str) -> None:
    unknown = sorted(str(key) for key in entry if key not in known)
    if unknown:
        raise ProblemError(
            f"{path}: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}"
        )


def _number(entry: Mapping[str, Any], key: str, path: str) -> float:
    value = entry.get(key)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) <= FINITE
    ):
        raise ProblemError(
            f"{path}: expected a finite number, not {_shown(entry, key)}"
        )
    return float(value)


def _whole(entry: Mapping[str, Any], key: str, path: str) -> int:
    value = entry.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not 0 <= value <= MAX_WHOLE
    ):
        raise ProblemError(
            f"{path}: expected a whole number from 0 to {MAX_WHOLE:,}, not {_shown(entry, key)}"
        )
    return value


def _sizes(entry: Mapping[str, Any], path: str) -> tuple[int, ...] | None:
    values = entry.get("sizes")
    if values is None:
        return None
    if (
        not isinstance(values, list)
        or not values
        or not all(type(n) is int and 0 < n <= MAX_WHOLE for n in values)
    ):
        raise ProblemError(
            f"{path}: expected a list of whole numbers from 1 to {MAX_WHOLE:,}, not {_shown(entry, 'sizes')}"
        )
    return tuple(values)


def _numbers(
    entry: Mapping[str, Any], key: str, path: str
) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = entry.get(key)
    if not isinstance(values, list) or any(
        isinstance(v, bool) or not isinstance(v, int | float) or not abs(v) <= FINITE
        for v in values
    ):
        raise ProblemError(
            f"{path}: expected a list of numbers, all finite, not {_shown(entry, key)}"
        )
    return np.array(values, dtype=np.float64)


def _repeatable(value: object) -> object:
    """Check the id of a problem, which its answer repeats: JSON has no NaN and no infinity."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProblemError(
            f"id: expected a value that JSON has, not {repr(value)[:SHOWN]} ({error})"
        ) from error
    return value


def _shown(entry: Mapping[str, Any], key: str) -> str:
    if key not in entry:
        return "a missing field"
    text = repr(entry[key])
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
