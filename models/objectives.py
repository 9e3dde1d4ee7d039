"""The objective of an allocation: a curve for each job, and weights that may change with time.

`--objective` names a **curve** for each job, in value per second, and any number of **factors** on it, joined by `+`.
P(n) is the rate of a job on n units in samples/s.

- `own` (default) is the column `Os` of the job table, right when somebody has decided what units are worth to each job.
- `throughput` is P(n), right when samples of all jobs have the same value.
  A large model waits until all small ones are done.
- `efficiency` is P(n) / P(1), right when few jobs may be in play: units go to the jobs that scale.
- `power:A` is P(n) / P(1)^A, right when all jobs may be in play: 0 is `throughput`, 1 is `efficiency`, 0.5 is a good
  start.
- `useful-time` is P(n) / max P(m)/m, m among its sizes, right when idle unit-seconds are scarce.
- The factor `srpt:B` is (Pmax / remaining)^B, right when completion times matter; 0.1 has some influence, 1 dominates.
- The factor `ageing:HOURS:CAP` is 1 + min(A / HOURS, CAP), with A the hours since the submission and CAP 2 by default,
  right when no job may be forgotten.

Of these:

- `srpt` uses the true remaining work, which no real scheduler knows: the policy is then clairvoyant.
  With `--set remaining=predicted` it is `estimate_s` × Jreq unit-seconds minus those used, and at least 5 %; a job
  without an estimate counts as having all its work left.
- So that waiting jobs with the same curve and weight can be decided together, `srpt` changes in steps of 1/16 octave of
  the remaining work, down to 1/1024 of the work, and `ageing` in sixteenths of HOURS.
  Running jobs age too (docs/decisions/0020).
- With `--option deadline-boost=B` > 1 a job with a deadline counts 1 + (B − 1) · u times as much, u = 1 − (deadline −
  now) / `--option deadline-horizon` (a day by default) between 0 and 1.
- With `--option curves=learn` speed-ups are maximised, whatever curve is named; factors still count.

**What `ageing` guarantees.** At each decision (tests compare with every allocation of small random ones):

- **The cost is bounded.** Let V(x) be the value of an allocation x without ageing, and let no job's value be negative.
  The allocation x taken has V(x) ≥ Σ w v(x) / (1 + CAP) ≥ Σ w v(y) / (1 + CAP) ≥ V(y) / (1 + CAP) for every y.
- **Among equal jobs, the one submitted first goes first** (one straight curve, the same sizes and weights, Jmin 1, cost
  model `bftrainer`): while one waits, no job submitted later gains a unit.
  Proof: had k gained g units, giving them to the earlier i instead would lose no value, because w_i ≥ w_k and a start
  is free, and change no more jobs; the canonical optimum gives the later job the fewest units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from operator import attrgetter
from typing import Any

import numpy as np

from bft.models.checks import Form, Number, did_you_mean
from bft.models.curves import Curve
from bft.models.jobs import Job

# A number that a word takes after a colon: its name, the check of its values, and its default if it has one.
Parameter = tuple[str, Number, float | None]
Term = tuple[str, dict[str, float]]


def parse_terms(text: str) -> tuple[Term, ...]:
    """The parts of an objective with their numbers by name: first the curve, `own` if none is named, then factors.

    Raises
    ------
    ValueError
        For an unknown word, a number missing, out of range or one too many, two curves, or a factor named twice.

    Examples
    --------
    >>> parse_terms("srpt:0.1")
    (('own', {}), ('srpt', {'exponent': 0.1}))
    >>> parse_terms("power:0.5+useful-time")
    Traceback (most recent call last):
    ValueError: expected one of 'own', 'throughput', 'efficiency', 'power', 'useful-time', not both 'power' and \
'useful-time'
    """
    terms = [_term(part.strip()) for part in text.split("+")]
    curves = [term for term in terms if term[0] in CURVES] or [("own", {})]
    factors = [term for term in terms if term[0] in FACTORS]
    if len(curves) > 1:
        one, other = curves[0][0], curves[1][0]
        raise ValueError(
            f"expected one of {_quoted(CURVES)}, not both {one!r} and {other!r}"
        )
    if len(dict(factors)) < len(factors):
        raise ValueError(f"a factor is named twice in {text!r}; expected it once")
    return (*curves, *factors)


def stated(terms: tuple[Term, ...]) -> str:
    """The text of an objective as it is recorded."""
    return "+".join(
        ":".join((name, *(f"{number:g}" for number in numbers.values())))
        for name, numbers in terms
    )


def _plain(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(
            f"expected an objective such as 'efficiency' or 'power:0.5', not {value!r}"
        )
    return stated(parse_terms(value))


# An objective as text; its plain form names the curve and writes numbers in one way.
OBJECTIVE = Form(_plain, "objective")


def _term(part: str) -> Term:
    word, *given = (piece.strip() for piece in part.split(":"))
    name, known = word.lower(), {**CURVES, **FACTORS}
    if name not in known:
        raise ValueError(
            f"{word!r} is not one of {_quoted(known)}{did_you_mean(word, known)}"
        )
    parameters = known[name][1]
    most = len(parameters)
    if len(given) > most:
        takes = ("no number", "one number", f"at most {most} numbers")[min(most, 2)]
        raise ValueError(f"{name!r} takes {takes}, not {':'.join(given)!r}")
    numbers: dict[str, float] = {}
    for (parameter, check, default), text in zip_longest(parameters, given):
        if text is not None:
            try:
                numbers[parameter] = check.read(text)
            except ValueError as error:
                raise ValueError(f"{name}: {parameter}: {error}") from None
        elif default is not None:
            numbers[parameter] = default
        else:
            raise ValueError(f"{name!r} needs a number, as in '{name}:0.5'")
    return name, numbers


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


DAY_S = 86_400.0
# Factors that change with time do so in steps, so that equal jobs stay equal: decisions group equal jobs.
STEPS_PER_OCTAVE = 16
STEPS_PER_AGE = 16
# A job with less than this part of its work left counts as if it had this part left.
MIN_LEFT = 2.0**-10


# --- curves -------------------------------------------------------------------------------------------------------


def power(job: Job, exponent: float) -> Curve:
    """Samples per second over a power of the rate on one unit: P(n) / P(1)^exponent.

    0 is throughput, 1 is efficiency. Where a job makes no progress on one unit, the rate per unit at the least count
    that does stands for P(1).
    """
    curve = job.scalability
    units = np.arange(1, max(job.jmax, 1) + 1)
    running = units[curve.at(units) > 0]
    if not len(running):
        return curve
    per_unit = float(curve.at(running[0])) / float(running[0])
    return Curve(curve.ns, curve.ps / per_unit**exponent)


def useful_time(job: Job) -> Curve:
    """Unit-seconds a second that would do as much at the job's best size: P(n) / max_m P(m)/m, m among its sizes."""
    units = np.flatnonzero(job.allowed)[1:]
    best = float((job.scalability.at(units) / units).max())
    return (
        Curve(job.scalability.ns, job.scalability.ps / best)
        if best > 0
        else job.scalability
    )


# --- factors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """The inputs of factors.

    Parameters
    ----------
    left
        The remaining part of the job's work, in (0, 1]; 1 if it is not known.
    age_s
        Seconds since its submission.

    Examples
    --------
    >>> srpt(Standing(left=0.25), exponent=1.0), ageing(Standing(age_s=7200.0), hours=1.0, cap=4.0)
    (4.0, 3.0)
    """

    left: float = 1.0
    age_s: float = 0.0


Factor = Callable[[Standing], float]


def srpt(standing: Standing, exponent: float) -> float:
    """Shortest remaining processing time first, as far as the exponent says: (Pmax / remaining)^exponent.

    Pmax / remaining is rounded down to a power of 2^(1/16), and is at most 1024.
    """
    octaves = math.log2(1.0 / max(standing.left, MIN_LEFT))
    return float(
        2.0 ** (exponent * math.floor(octaves * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE)
    )


def ageing(standing: Standing, hours: float, cap: float) -> float:
    """A job counts more the longer ago it was submitted: 1 + min(A / hours, cap), A = hours since the submission.

    In steps of a sixteenth. Running and waiting jobs age alike, so that nobody loses units for having got them. The cap
    bounds what ageing may cost in other jobs' work.
    """
    return 1.0 + min(_steps_of_age(standing.age_s, hours) / STEPS_PER_AGE, cap)


def _steps_of_age(age_s: float, hours: float) -> int:
    return math.floor(max(0.0, age_s) / (hours * 3600.0) * STEPS_PER_AGE)


# --- deadlines ----------------------------------------------------------------------------------------------------


def deadline_weight(
    job: Job, now_ns: int, *, horizon_s: float = DAY_S, boost: float = 4.0
) -> float:
    """The weight of a job at an instant: it rises from its own to `boost` times that as its deadline comes near.

        weight · (1 + (boost - 1) · u),    u = 1 - (deadline - now) / horizon, clipped to [0, 1]

    A job without a deadline keeps its weight; one past its deadline keeps the full boost. The remaining work is not
    looked at: a scheduler does not know it.

    Parameters
    ----------
    job
        With `deadline_ns`, or without.
    now_ns
        UTC nanoseconds.
    horizon_s
        Seconds before the deadline at which the weight starts to rise, > 0.
    boost
        Factor reached at the deadline, >= 1.

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 1], [0, 10])
    >>> due = Job("a", 0, 1, 1, 1e6, 0.0, 0.0, curve, curve, weight=2.0, deadline_ns=3600 * 10**9)
    >>> [deadline_weight(due, hour * 1800 * 10**9, horizon_s=3600.0) for hour in range(3)]
    [2.0, 5.0, 8.0]
    """
    if job.deadline_ns is None:
        return job.weight
    left_s = (job.deadline_ns - now_ns) / 1e9
    urgency = min(1.0, max(0.0, 1.0 - left_s / horizon_s))
    return job.weight * (1.0 + (boost - 1.0) * urgency)


# --- objectives ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """The objective: the sum over jobs of weight · factors · curve.

    Parameters
    ----------
    text
        As the results record it.
    curve
        A function from a job to a curve over its units.
    factors
        Functions of a job's standing.
    uses_left
        Whether the factors look at the work left.
    ageing_h
        Hours of the factor that looks at the time since the submission, 0 without one.

    Examples
    --------
    >>> Objective.of("power:0.5+srpt:0.1").uses_left
    True
    """

    text: str
    curve: Callable[[Job], Curve]
    factors: tuple[Factor, ...] = ()
    uses_left: bool = False
    ageing_h: float = 0.0

    @classmethod
    def of(cls, text: str) -> Objective:
        """The objective that a text states.

        Raises
        ------
        ValueError
            When the text is invalid; see `parse_terms`.
        """
        terms = parse_terms(text)
        (curve, numbers), *factors = terms
        known = dict(factors)
        return cls(
            stated(terms),
            partial(CURVES[curve][0], **numbers),
            tuple(partial(FACTORS[name][0], **of) for name, of in factors),
            "srpt" in known,
            known.get("ageing", {}).get("hours", 0.0),
        )

    def curve_on(self, job: Job, kind: str) -> Curve:
        """The curve of a job on units of a kind.

        `own` is what its table states for that kind. The other curves are P times a constant of the job, the one of
        its usual curve: on twice as fast units a job is worth twice as much.
        """
        there, usual = job.on(kind), self.curve(job)
        if there is job:
            return usual
        if self.text.startswith("own"):
            return there.objective
        best = int(np.argmax(job.scalability.ps))
        rate = job.scalability.ps[best]
        factor = usual.ps[best] / rate if rate > 0 else 1.0
        return Curve(there.scalability.ns, there.scalability.ps * factor)

    def factor(self, standing: Standing) -> float:
        """The product of all factors."""
        return math.prod(factor(standing) for factor in self.factors)

    def steady_s(self, age_s: float) -> float:
        """Seconds after the age `age_s` in which the factors stay as they are; 0 if they look at the work left.

        A second less than until the next step, so that rounding decides nothing.
        """
        if self.uses_left or not self.ageing_h:
            return 0.0
        steps = _steps_of_age(age_s, self.ageing_h) + 1
        next_s = steps * self.ageing_h * 3600.0 / STEPS_PER_AGE
        return max(0.0, next_s - age_s - 1.0)


_EXPONENT: Parameter = ("exponent", Number(0, 10), None)
# Parts of objectives, and the numbers that follow after colons. A curve: at most one; without a name it is `own`.
CURVES: dict[str, tuple[Callable[..., Curve], tuple[Parameter, ...]]] = {
    "own": (attrgetter("objective"), ()),  # O(n), the column Os of a job's table
    "throughput": (attrgetter("scalability"), ()),  # P(n), samples per second
    # Speed-up over one unit: P(n) / P(1), so that small models do not win by their rate.
    "efficiency": (partial(power, exponent=1.0), ()),
    "power": (power, (_EXPONENT,)),
    "useful-time": (useful_time, ()),
}
# Factors on what the curve says: any of them, each once.
FACTORS: dict[str, tuple[Callable[..., float], tuple[Parameter, ...]]] = {
    "srpt": (srpt, (_EXPONENT,)),
    "ageing": (
        ageing,
        (("hours", Number(0.01, 1e6), None), ("cap", Number(0, 1e6), 2.0)),
    ),
}
