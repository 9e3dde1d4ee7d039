"""Which jobs may share units in a replay, and how much that slows them: ξ, memory, forbidden pairs (docs/model.md)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bft.models import InputError, Job, UnitMemory, XiTable, fit_beside
from bft.models.sharing.sub_batch import THRESHOLD
from bft.models.sharing.xi_table import SizedRatio

# Partners considered per job: more make decisions slower and hardly better.
XI_PARTNERS = 3

Kind: TypeAlias = tuple[str, float | None, float | None]
Ratios: TypeAlias = tuple[float, float] | None
Sides: TypeAlias = tuple[SizedRatio, SizedRatio] | None


@dataclass(frozen=True)
class Interference:
    """The rules of sharing units; used by the engine and known to policies.

    A job's ratio is that of all units it has, however many it shares, because all of it waits for its slowest worker.

    Parameters
    ----------
    table
        Measured ratios.
    xi_max
        A pair is not allowed at sizes where either ratio exceeds this.
    unit_memory_gib
        Memory of a unit; a pair that needs more is not allowed. None: no check of memory. With a check, a job
        without known memory does not share.
    forbidden
        Pairs of models that may not share, whatever their ratios.
    memory
        Memory by model and batch size. With it, if two jobs do not fit together, the one submitted later uses a smaller
        batch and gradient accumulation (`fit_beside`), and the cost of that is part of its ratio. Events of a replay
        must not change which of the two it is, so that engine and policies agree on a pair. None: batches stay as they
        are.
    sub_batch_threshold
        Smallest share of its goodput that it must keep, in (0, 1].

    Raises
    ------
    InputError
        When a limit is invalid.

    Examples
    --------
    >>> from bft.models import Curve
    >>> from bft.models.sharing.xi_table import Measurement
    >>> curve = Curve([0, 1], [0, 10])
    >>> a, b = (Job(model, 0, 1, 1, 1e6, 0, 0, curve, curve, model=model) for model in ("bert", "vgg"))
    >>> table = XiTable([Measurement("bert", "vgg", 1.2, 1.5)])
    >>> Interference(table).xi(a, b), Interference(table, xi_max=1.3).xi(a, b)
    ((1.2, 1.5), None)
    """

    table: XiTable
    xi_max: float = float("inf")
    unit_memory_gib: float | None = None
    forbidden: frozenset[frozenset[str]] = frozenset()
    memory: UnitMemory | None = None
    sub_batch_threshold: float = THRESHOLD
    _known: dict[tuple[Kind, Kind, bool], Sides] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.xi_max >= 1:
            raise InputError(f"xi_max: expected a number >= 1, not {self.xi_max}")
        if self.unit_memory_gib is not None and not self.unit_memory_gib > 0:
            raise InputError(
                f"unit_memory_gib: expected a number > 0, not {self.unit_memory_gib}"
            )
        if not 0 < self.sub_batch_threshold <= 1:
            raise InputError(
                f"sub_batch_threshold: expected a number in (0, 1], not {self.sub_batch_threshold}"
            )

    def xi(
        self, a: Job, b: Job, units_a: int | None = None, units_b: int | None = None
    ) -> Ratios:
        """Return the ratios (xi_a, xi_b) of two jobs that may share on this many units each, None when they may not.

        Without numbers of units, the largest ratio of all sizes counts.
        """
        sides = self.sides(a, b)
        if sides is None:
            return None
        ratios = sides[0].of(units_a), sides[1].of(units_b)
        return None if max(ratios) > self.xi_max else ratios

    def ever(self, a: Job, b: Job) -> bool:
        """Tell whether two jobs may share on some number of units."""
        sides = self.sides(a, b)
        return sides is not None and max(side.least() for side in sides) <= self.xi_max

    @property
    def by_units(self) -> bool:
        """Whether ratios depend on units."""
        return self.table.by_units

    def sides(self, a: Job, b: Job) -> Sides:
        """Ratios of two jobs by units, ignoring `xi_max`; None when they may not share."""
        first = (a.tsub_ns, a.name) < (b.tsub_ns, b.name)
        key = (self.kind(a), self.kind(b), first)
        if key not in self._known:
            if first:
                self._known[key] = self._by_submission(a, b)
            else:
                sides = self._by_submission(b, a)
                self._known[key] = None if sides is None else (sides[1], sides[0])
        return self._known[key]

    @staticmethod
    def kind(job: Job) -> Kind:
        """Return the kind of a job: jobs of one kind and submission share with the same jobs at the same ratios."""
        return job.model, job.batch_size, job.memory_gib

    def _by_submission(self, earlier: Job, later: Job) -> Sides:
        """Return the ratios of the job submitted first, and of the other one, which may get a smaller batch."""
        if frozenset((earlier.model, later.model)) in self.forbidden:
            return None
        fit = fit_beside(
            later,
            earlier,
            self.unit_memory_gib,
            memory=self.memory,
            threshold=self.sub_batch_threshold,
        )
        if fit is None:
            return None
        if fit.accumulation > 1:
            later = replace(later, batch_size=fit.batch)
        sides = self.table.sides(earlier, later)
        return (
            None if sides is None else (sides[0], sides[1].times(1 / fit.goodput_share))
        )
