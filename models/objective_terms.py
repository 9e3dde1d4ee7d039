"""The text that states an objective, such as `power:0.5+srpt:0.1`: its words, and what number each takes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from bft.models.checks import Number, did_you_mean


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a word takes after a colon.

    Parameters
    ----------
    name
        The name of the argument in the objective's function.
    check
        The check of its values.
    default
        What it is unless stated; None where it must be stated.
    """

    name: str
    check: Number
    default: float | None = None


# Parts of objectives -> the numbers that follow after colons. A curve: at most one; without a name it is `own`.
CURVES: dict[str, tuple[Parameter, ...]] = {
    "own": (),
    "throughput": (),
    "efficiency": (),
    "power": (Parameter("exponent", Number(0, 10)),),
    "useful-time": (),
}
# Factors on what the curve says: any of them, each once.
FACTORS: dict[str, tuple[Parameter, ...]] = {
    "srpt": (Parameter("exponent", Number(0, 10)),),
    "ageing": (
        Parameter("hours", Number(0.01, 1e6)),
        Parameter("cap", Number(0, 1e6), 2.0),
    ),
}
_EXAMPLES = {"power": "power:0.5", "srpt": "srpt:0.1", "ageing": "ageing:24"}

Term = tuple[str, tuple[float, ...]]


def parse_terms(text: str) -> tuple[Term, ...]:
    """The parts of an objective with their numbers: first the curve, `own` if none is named, then factors.

    Raises
    ------
    ValueError
        For an unknown word, a number missing, out of range or one too many, two curves, or a factor named twice.

    Examples
    --------
    >>> parse_terms("srpt:0.1")
    (('own', ()), ('srpt', (0.1,)))
    >>> parse_terms("power:0.5+useful-time")
    Traceback (most recent call last):
    ValueError: expected one of 'own', 'throughput', 'efficiency', 'power', 'useful-time', not both 'power' and \
'useful-time'
    """
    terms = [_term(part.strip()) for part in text.split("+")]
    names = [name for name, _ in terms]
    curves = [name for name in names if name in CURVES]
    if len(curves) > 1:
        raise ValueError(
            f"expected one of {_quoted(CURVES)}, not both {curves[0]!r} and {curves[1]!r}"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is named twice; expected it once")
    curve = next((term for term in terms if term[0] in CURVES), ("own", ()))
    return (curve, *(term for term in terms if term[0] in FACTORS))


def stated(terms: tuple[Term, ...]) -> str:
    """The text of an objective as it is recorded."""
    return "+".join(
        ":".join((name, *(f"{number:g}" for number in numbers)))
        for name, numbers in terms
    )


def arguments(term: Term) -> dict[str, float]:
    """The numbers of a term by the names of its parameters."""
    name, numbers = term
    parameters = {**CURVES, **FACTORS}[name]
    return {
        parameter.name: number
        for parameter, number in zip(parameters, numbers, strict=True)
    }


@dataclass(frozen=True, slots=True)
class ObjectiveText:
    """An objective as text; its plain form names the curve and writes numbers in one way."""

    kind: str = "objective"

    def __call__(self, value: Any) -> str:
        """Return the text in its plain form."""
        if not isinstance(value, str):
            raise ValueError(
                f"expected an objective such as 'efficiency' or 'power:0.5', not {value!r}"
            )
        return stated(parse_terms(value))

    read = __call__


def _term(part: str) -> Term:
    word, *given = (piece.strip() for piece in part.split(":"))
    name, known = word.lower(), {**CURVES, **FACTORS}
    if name not in known:
        raise ValueError(
            f"{word!r} is not one of {_quoted(known)}{did_you_mean(word, known)}"
        )
    parameters = known[name]
    if len(given) > len(parameters):
        takes = {0: "no number", 1: "one number"}.get(
            len(parameters), f"at most {len(parameters)} numbers"
        )
        raise ValueError(f"{name!r} takes {takes}, not {':'.join(given)!r}")
    return name, tuple(_number(name, *each) for each in zip_longest(parameters, given))


def _number(name: str, parameter: Parameter, text: str | None) -> float:
    if text is None:
        if parameter.default is None:
            raise ValueError(f"{name!r} needs a number, as in {_EXAMPLES[name]!r}")
        return parameter.default
    try:
        return float(parameter.check.read(text))
    except ValueError as error:
        raise ValueError(f"{name}: {parameter.name}: {error}") from None


def _quoted(names: Any) -> str:
    return ", ".join(map(repr, names))
