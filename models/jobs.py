"""Jobs: bounds, work, curves (docs/model.md)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import Curve, FloatArray
from bft.models.errors import InputError
from bft.models.tolerances import lowered

# Rates of models that differ so many times make a sum of samples meaningless.
MANY_FOLD = 100.0
# A rescale takes seconds or minutes: more are milliseconds.
MUCH_TO_RESCALE_S = 3_600.0
# A rigid policy asks for the smallest size that reaches this share of the rate at Jmax (docs/formats.md, Jreq).
REQUEST_SHARE = 0.8
# Ten times the units of any machine: a slip of the pen must not take all memory.
MAX_UNITS = 10_000_000
# Sizes that a message shows.
SHOWN_SIZES = 10


_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ALIKE: Mapping[str, tuple[Curve, Curve]] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Job:
    """An elastic training job.

    Parameters
    ----------
    name
        Unique within a table.
    tsub_ns
        Submit time, UTC nanoseconds since 1970.
    jmin, jmax
        Fewest and most units it runs on.
    pmax
        Total work in samples.
    tcup_s, tcdw_s
        Seconds lost when it grows or shrinks.
    scalability
        P: units -> samples/s, what is done.
    objective
        O: units -> objective/s, what is optimised.
    jreq
        Units that a rigid policy asks for; None takes `default_request`.
    weight
        Factor on its value in the objective.
    model, user, vc
        Model, user, and virtual cluster; empty when unknown.
    batch_size, memory_gib, deadline_ns
        Samples per iteration, memory it takes of a unit, and when it should be done (UTC ns, not before tsub_ns); None
        when unknown.
    skew, spread_slowdown
        How uneven its tensors' sizes are (Tiresias' skew; None when unknown), and how many times longer an iteration
        takes when its units lie on more nodes than needed.
    sizes
        The counts of units on which it runs, increasing from jmin (at least 1) to jmax; None for all between. All of
        them are the same as None.
    total_memory_gib
        Memory that its units must have together; None when unknown.
    restart_s, policy_restart_s
        Seconds without progress after each start, restart and move of this job, instead of what the options say; and
        what a policy that weighs restarts takes them for. None: the options, and the policy's own constant.
    profile
        The measurements behind its rate, if it does not follow a curve.
    by_kind
        P and O on units of some kinds; on others they are `scalability` and `objective`.
    extra
        Further columns of its table, for policies that read them.

    Examples
    --------
    >>> curve = Curve([0, 2, 4], [0, 20, 30])
    >>> job = Job("a", 0, 2, 4, pmax=3000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> job.rates.tolist(), job.request
    ([0.0, 0.0, 20.0, 25.0, 30.0], 3)
    """

    name: str
    tsub_ns: int
    jmin: int
    jmax: int
    pmax: float
    tcup_s: float
    tcdw_s: float
    scalability: Curve
    objective: Curve
    jreq: int | None = None
    weight: float = 1.0
    model: str = ""
    user: str = ""
    vc: str = ""
    batch_size: float | None = None
    memory_gib: float | None = None
    deadline_ns: int | None = None
    skew: float | None = None
    spread_slowdown: float = 1.0
    sizes: tuple[int, ...] | None = None
    total_memory_gib: float | None = None
    restart_s: float | None = None
    policy_restart_s: float | None = None
    profile: Any = None  # an ApplicationProfile, whose module needs this one
    by_kind: Mapping[str, tuple[Curve, Curve]] = field(default_factory=lambda: _ALIKE)
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

        if self.sizes is not None:
            object.__setattr__(self, "sizes", tuple(self.sizes))
        for column, expected, value in self._wrong():
            raise InputError(
                f"expected {expected}, not {value}", column=column, job=self.name
            )
        if self.sizes and len(self.sizes) == self.sizes[-1] - self.sizes[0] + 1:
            object.__setattr__(self, "sizes", None)

    def _wrong(self) -> Iterator[tuple[str, str, object]]:
        """Yield each value that is not allowed: its column, what was expected, and the value."""
        for column in ("name", "model", "user", "vc"):
            text = getattr(self, column)
            # Halves of surrogate pairs, as JSON may escape them: no result file could hold them.
            if any("\ud800" <= char <= "\udfff" for char in text):
                yield column, "text", f"{text!a:.80}"
        if self.jmin < 0:
            yield "Jmin", "a whole number >= 0", self.jmin
        if self.jmax < max(self.jmin, 1):
            yield "Jmax", f"at least Jmin ({self.jmin}) and 1", self.jmax
        if self.jmax > MAX_UNITS:
            yield "Jmax", f"at most {MAX_UNITS:,} units", self.jmax
        for column, number, low, above in (
            ("Pmax", self.pmax, 0, True),
            ("Tcup", self.tcup_s, 0, False),
            ("Tcdw", self.tcdw_s, 0, False),
            ("weight", self.weight, 0, False),
            ("restart_s", self.restart_s or 0.0, 0, False),
            ("policy_restart_s", self.policy_restart_s or 0.0, 0, False),
            ("spread_slowdown", self.spread_slowdown, 1, False),
        ):
            if not np.isfinite(number) or number < low or (above and number == low):
                sign = ">" if above else ">="
                yield column, f"a finite number {sign} {low}", number
        if self.deadline_ns is not None and self.deadline_ns < self.tsub_ns:
            submit, due = (
                str(np.datetime64(instant, "ns")).rstrip("0").rstrip(".")
                for instant in (self.tsub_ns, self.deadline_ns)
            )
            yield "deadline", f"an instant not before Tsub, {submit}", due
        curves = {"Ps": self.scalability}
        curves |= {f"Ps@{kind}": rates for kind, (rates, _) in self.by_kind.items()}
        for column, rates in curves.items():
            if rates.ps[0] != 0:
                yield column, "Ps[0] = 0 (no units, no progress)", f"{rates.ps[0]:g}"
        sizes, ends = self.sizes, (max(self.jmin, 1), self.jmax)
        if sizes is not None and (
            not sizes
            or (sizes[0], sizes[-1]) != ends
            or any(a >= b for a, b in pairwise(sizes))
        ):
            expected = f"counts that increase from Jmin (at least 1) to Jmax, {ends[0]} to {ends[1]}"
            yield "sizes", expected, shown_sizes(sizes)
        if self.jreq is not None and not self.jmin <= self.jreq <= self.jmax:
            bounds = f"[{self.jmin}, {self.jmax}]"
            yield "Jreq", f"a whole number in [Jmin, Jmax] = {bounds}", self.jreq
        elif self.jreq and not self.runs_on(self.jreq):
            shown = shown_sizes(sizes or ())
            yield "Jreq", f"one of the job's sizes, {shown}", self.jreq

    @cached_property
    def _on(self) -> dict[str, Job]:
        return {
            kind: replace(self, scalability=rates, objective=values, by_kind=_ALIKE)
            for kind, (rates, values) in self.by_kind.items()
        }

    def on(self, kind: str) -> Job:
        """Return the job as it runs on units of a kind; unchanged where its table has no curve for that kind."""
        return self._on.get(kind, self) if self.by_kind else self

    @cached_property
    def rates(self) -> FloatArray:
        """P at 0, 1, ..., jmax units in samples/s, 0 where it does not run: float64 of shape (jmax + 1,)."""
        table = self.scalability.table(self.jmax)
        table[~self.allowed] = 0.0
        table.setflags(write=False)
        return table

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Whether it may have 0, 1, ..., jmax units: bool of shape (jmax + 1,), true at 0."""
        allowed = np.zeros(self.jmax + 1, dtype=bool)
        allowed[list(self.sizes) if self.sizes else slice(max(self.jmin, 1), None)] = (
            True
        )
        allowed[0] = True
        allowed.setflags(write=False)
        return allowed

    def at_most(self, units: int) -> int:
        """The largest count up to `units` on which it runs, 0 where it runs on none of them."""
        if self.sizes is None:
            return min(units, self.jmax) if units >= self.jmin else 0
        place = bisect_right(self.sizes, units)
        return self.sizes[place - 1] if place else 0

    def above(self, units: int) -> int | None:
        """The smallest count above `units` on which it runs, None where there is none."""
        if units >= self.jmax:
            return None
        sizes = self.sizes
        return sizes[bisect_right(sizes, units)] if sizes else max(units + 1, self.jmin)

    def runs_on(self, units: int) -> bool:
        """Whether it runs on so many units."""
        return units > 0 and self.at_most(units) == units

    def between(self, low: int, high: int) -> Job | None:
        """Return the job with only its sizes from `low` to `high`; None where there is none.

        Raises
        ------
        InputError
            When its Jreq is none of them.
        """
        last, first = self.at_most(high), self.above(max(low, 1) - 1)
        if first is None or first > last:
            return None
        sizes = (
            None
            if self.sizes is None
            else tuple(n for n in self.sizes if first <= n <= last)
        )
        jmin = self.jmin if low <= self.jmin else first
        return replace(self, jmin=jmin, jmax=last, sizes=sizes)

    def at(self, tsub_ns: int) -> Job:
        """Return this job submitted at another instant (UTC ns); its deadline keeps its distance."""
        due = self.deadline_ns
        due = None if due is None else due + tsub_ns - self.tsub_ns
        return replace(self, tsub_ns=tsub_ns, deadline_ns=due)

    def submitted_again(self, tsub_ns: int) -> Job:
        """Return this job submitted at another instant; a deadline that has passed by then becomes that instant."""
        due = None if self.deadline_ns is None else max(self.deadline_ns, tsub_ns)
        return replace(self, tsub_ns=tsub_ns, deadline_ns=due)

    @property
    def unit_rate(self) -> float:
        """Samples/s per unit on the smallest number of units that it runs on."""
        fewest = max(self.jmin, 1)
        return float(self.rates[fewest]) / fewest

    @property
    def request(self) -> int:
        """Units that a rigid policy asks for."""
        return self.default_request if self.jreq is None else self.jreq

    @cached_property
    def default_request(self) -> int:
        """Smallest size that reaches 80 % of P(Jmax), at least Jmin."""
        enough = np.flatnonzero(
            self.rates >= lowered(REQUEST_SHARE * float(self.rates[-1]))
        )
        return max(int(enough[0]), self.jmin, 1)


def shown_sizes(sizes: Sequence[int]) -> str:
    """Return sizes as messages show them, shortened where there are many.

    >>> shown_sizes((1, 2, 4, 8)), shown_sizes(range(100))
    ('1, 2, 4, 8', '0, 1, 2, 3, 4, 5, 6, ..., 99')
    """
    shown = list(map(str, sizes))
    if len(shown) > SHOWN_SIZES:
        shown[7:-1] = ["..."]
    return ", ".join(shown) or "none"


@dataclass(frozen=True, eq=False)
class JobTable:
    """Jobs in the order of their file, which breaks ties of equal submit times.

    Parameters
    ----------
    jobs
        The jobs; names must be unique.
    source
        Where they come from, for messages and results.
    notes
        Changes that reading made to the input, in sentences: rows left out, and why.

    Raises
    ------
    InputError
        When a name appears twice.

    Examples
    --------
    >>> curve = Curve([0, 4], [0, 40])
    >>> later, first = (Job(name, at, 1, 4, 3000.0, 5.0, 5.0, curve, curve) for name, at in (("a", 60), ("b", 0)))
    >>> JobTable((later, first)).by_submit()
    [1, 0]
    """

    jobs: tuple[Job, ...]
    source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for row, job in enumerate(self.jobs, start=1):
            if job.name in seen:
                raise InputError(
                    "the name appears twice; expected unique names",
                    file=self.source or None,
                    row=row,
                    job=job.name,
                )
            seen.add(job.name)

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def by_submit(self) -> list[int]:
        """Positions of the jobs in order of submission, ties in the order of the table."""
        return sorted(range(len(self.jobs)), key=lambda i: self.jobs[i].tsub_ns)

    def asking_at_most(self, units: int) -> JobTable:
        """Return these jobs with a request (Jreq) of at most so many units, and at least Jmin.

        Jobs that run on some sizes only keep their request.

        Examples
        --------
        >>> curve = Curve([0, 4], [0, 40])
        >>> table = JobTable((Job("a", 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve),))
        >>> [table.asking_at_most(units).jobs[0].request for units in (0, 2, 9)]
        [1, 2, 4]
        """
        made = (
            job
            if job.request <= units or job.sizes is not None
            else replace(job, jreq=max(units, job.jmin, 1))
            for job in self.jobs
        )
        return replace(self, jobs=tuple(made))

    def at(self, instants: Iterable[int]) -> JobTable:
        """Return these jobs submitted at other instants (UTC ns), one a job; deadlines keep their distance."""
        moved = (job.at(at) for job, at in zip(self.jobs, instants, strict=True))
        return replace(self, jobs=tuple(moved))


def joined(tables: Sequence[JobTable]) -> JobTable:
    """Return the jobs of several tables as one, in the order of the tables.

    Raises
    ------
    InputError
        When two tables have a job of the same name.
    """
    if len(tables) == 1:
        return tables[0]
    return JobTable(
        tuple(job for table in tables for job in table),
        ", ".join(table.source for table in tables),
        tuple(note for table in tables for note in table.notes),
    )


def long_rescales(jobs: JobTable) -> str | None:
    """Say that costs of rescales look like milliseconds, where one takes more than an hour; None elsewhere."""
    for column, cost in (("Tcup", "tcup_s"), ("Tcdw", "tcdw_s")):
        spent = {job.name: getattr(job, cost) for job in jobs}
        longest = max(spent, key=spent.__getitem__, default="")
        if spent.get(longest, 0.0) > MUCH_TO_RESCALE_S:
            return (
                f"job {longest}: {column} is {spent[longest]:,g} s, {spent[longest] / 3600:,.1f} h for one rescale: "
                "are these milliseconds? Tcup and Tcdw are in seconds"
            )
    return None


def different_rates(jobs: JobTable) -> str | None:
    """Say that samples of these jobs should not be added, where rates of models differ 100-fold; None elsewhere."""
    rates = {job: job.unit_rate for job in jobs if job.unit_rate > 0}
    slow = min(rates, key=rates.__getitem__, default=None)
    fast = max(rates, key=rates.__getitem__, default=None)
    if slow is None or fast is None or rates[fast] < MANY_FOLD * rates[slow]:
        return None
    times = fast.unit_rate / slow.unit_rate
    return (
        f"on one unit {fast.model or fast.name} does {fast.unit_rate:,.4g} samples/s and {slow.model or slow.name} "
        f"{slow.unit_rate:,.4g}, {times:,.0f} times fewer: a sum of their samples says little, and fast models get "
        "units first; --objective power:1 or efficiency counts speed-ups instead"
    )
