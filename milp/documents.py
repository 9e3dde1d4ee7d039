"""Problems and answers as JSON documents (DESIGN §6.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bft.milp.placement import settle
from bft.milp.problem import Job, Problem, ProblemError, Solution

JOB_FIELDS = {"name", "Jmin", "Jmax", "Ns", "Os", "Tcup", "Tcdw", "weight", "current"}
FIELDS = {"units", "Tfwd", "jobs", "cost_model"}


@dataclass(frozen=True, slots=True)
class Document:
    """A problem as it was posed, with the unit indices that the mathematics does not need."""

    problem: Problem
    current: tuple[tuple[int, ...], ...]


def parse(document: object) -> Document:
    """Read one problem document; raise ProblemError naming the field that is wrong and what was expected."""
    if not isinstance(document, Mapping):
        raise ProblemError(f"a problem is a JSON object, not {_kind(document)}")
    _no_others(document, FIELDS, "problem")
    units = _whole(document, "units", "units")
    tfwd = _number(document, "Tfwd", "Tfwd")
    entries = document.get("jobs")
    if not isinstance(entries, list):
        raise ProblemError(f"jobs: expected a list of job objects, not {_kind(entries)}")
    jobs, current = [], []
    owner: dict[int, str] = {}
    for index, entry in enumerate(entries):
        job, held = _job(entry, f"jobs[{index}]")
        for unit in held:
            if not 0 <= unit < units:
                raise ProblemError(f"jobs[{index}].current: unit {unit} lies outside 0 ... {units - 1}")
            if unit in owner:
                raise ProblemError(
                    f"jobs[{index}].current: unit {unit} is held by {owner[unit]!r} too; sharing needs xi"
                )
            owner[unit] = job.name
        jobs.append(job)
        current.append(held)
    model = document.get("cost_model", "bftrainer")
    problem = Problem(units, tfwd, tuple(jobs), tuple(len(held) for held in current), model)
    return Document(problem, tuple(current))


def answer(document: Document, solution: Solution) -> dict[str, Any]:
    """Write one answer document: counts a job, and which unit is which."""
    held = {unit for units in document.current for unit in units}
    free = (unit for unit in range(document.problem.units) if unit not in held)
    names = [job.name for job in document.problem.jobs]
    placed = settle(document.current, solution.counts, free)
    result: dict[str, Any] = {
        "status": solution.status,
        "objective": solution.objective,
        "bound": solution.bound,
        "counts": dict(zip(names, solution.counts, strict=True)),
        "allocation": {name: sorted(units) for name, units in zip(names, placed, strict=True)},
        "backend": solution.backend,
        "formulation": solution.formulation,
        "seconds": solution.seconds,
    }
    if solution.note:
        result["note"] = solution.note
    return result


def _job(entry: object, at: str) -> tuple[Job, tuple[int, ...]]:
    if not isinstance(entry, Mapping):
        raise ProblemError(f"{at}: expected a job object, not {_kind(entry)}")
    _no_others(entry, JOB_FIELDS, at)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ProblemError(f"{at}.name: expected a non-empty string, not {name!r}")
    held = entry.get("current", [])
    if not isinstance(held, list) or not all(type(unit) is int for unit in held):
        raise ProblemError(f"{at}.current: expected a list of unit indices, not {held!r}")
    if len(set(held)) != len(held):
        raise ProblemError(f"{at}.current: a unit appears twice")
    try:
        job = Job(
            name=name,
            jmin=_whole(entry, "Jmin", f"{at}.Jmin"),
            jmax=_whole(entry, "Jmax", f"{at}.Jmax"),
            ns=_numbers(entry, "Ns", f"{at}.Ns"),
            os=_numbers(entry, "Os", f"{at}.Os"),
            tcup=_number(entry, "Tcup", f"{at}.Tcup"),
            tcdw=_number(entry, "Tcdw", f"{at}.Tcdw"),
            weight=_number(entry, "weight", f"{at}.weight") if "weight" in entry else 1.0,
        )
    except ProblemError as error:
        message = str(error)
        raise ProblemError(message if message.startswith(at) else f"{at}: {message}") from error
    return job, tuple(held)


def _no_others(entry: Mapping[str, Any], known: set[str], at: str) -> None:
    unknown = sorted(str(key) for key in entry if key not in known)
    if unknown:
        raise ProblemError(f"{at}: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _number(entry: Mapping[str, Any], key: str, at: str) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ProblemError(f"{at}: expected a finite number, not {_shown(entry, key)}")
    return float(value)


def _whole(entry: Mapping[str, Any], key: str, at: str) -> int:
    value = entry.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**9:
        raise ProblemError(f"{at}: expected a whole number from 0 to 1e9, not {_shown(entry, key)}")
    return value


def _numbers(entry: Mapping[str, Any], key: str, at: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = entry.get(key)
    if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        raise ProblemError(f"{at}: expected a list of numbers, not {_shown(entry, key)}")
    return np.array(values, dtype=np.float64)


def _shown(entry: Mapping[str, Any], key: str) -> str:
    return repr(entry[key]) if key in entry else "a missing field"


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
