"""The text that states an objective, such as `power:0.5+srpt:0.1`: its words, and what number each takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bft.models.checks import Number, did_you_mean

# What an objective may be made of -> the number that it takes after a colon. A curve: at most one, without: own.
CURVES: dict[str, Number | None] = {
    "own": None,
    "throughput": None,
    "efficiency": None,
    "power": Number(0, 10),
    "useful-time": None,
}
# Factors on what the curve says: any of them, each once.
FACTORS: dict[str, Number] = {"srpt": Number(0, 10), "ageing": Number(0.01, 1e6)}
_EXAMPLES = {"power": "power:0.5", "srpt": "srpt:0.1", "ageing": "ageing:24"}

Term = tuple[str, float | None]


def parse_terms(text: str) -> tuple[Term, ...]:
    """The words of an objective with their numbers: a curve first, `own` where none is named, then factors.

    Raises
    ------
    ValueError
        For an unknown word, a number that is missing or out of range, two curves, or a factor named twice.

    Examples
    --------
    >>> parse_terms("srpt:0.1")
    (('own', None), ('srpt', 0.1))
    >>> parse_terms("power:0.5+useful-time")
    Traceback (most recent call last):
    ValueError: expected one of 'own', 'throughput', 'efficiency', 'power', 'useful-time', not both 'power' and \
'useful-time'
    """
    terms = [_term(part.strip()) for part in text.split("+")]
    names = [name for name, _ in terms]
    curves = [name for name in names if name in CURVES]
    if len(curves) > 1:
        raise ValueError(f"expected one of {_quoted(CURVES)}, not both {curves[0]!r} and {curves[1]!r}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is named twice; expected it once")
    curve = next((term for term in terms if term[0] in CURVES), ("own", None))
    return (curve, *(term for term in terms if term[0] in FACTORS))


def stated(terms: tuple[Term, ...]) -> str:
    """The text of an objective as it is recorded."""
    return "+".join(name if number is None else f"{name}:{number:g}" for name, number in terms)


@dataclass(frozen=True, slots=True)
class ObjectiveText:
    """An objective as text; its plain form names the curve and writes numbers in one way."""

    kind: str = "objective"

    def __call__(self, value: Any) -> str:
        """Return the text in its plain form."""
        if not isinstance(value, str):
            raise ValueError(f"expected an objective such as 'efficiency' or 'power:0.5', not {value!r}")
        return stated(parse_terms(value))

    read = __call__


def _term(part: str) -> Term:
    word, colon, given = (piece.strip() for piece in part.partition(":"))
    name, known = word.lower(), {**CURVES, **FACTORS}
    if name not in known:
        raise ValueError(f"{word!r} is not one of {_quoted(known)}{did_you_mean(word, known)}")
    check = known[name]
    if check is None:
        if colon:
            raise ValueError(f"{name!r} takes no number, not {given!r}")
        return name, None
    if not colon:
        raise ValueError(f"{name!r} needs a number, as in {_EXAMPLES[name]!r}")
    try:
        return name, float(check.read(given))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _quoted(names: Any) -> str:
    return ", ".join(map(repr, names))
