"""Who may share units with whom in a replay, and what that costs: ξ, memory, forbidden pairs (docs/model.md)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bft.models import InputError, Job, UnitMemory, XiTable, fit_beside
from bft.models.sharing.sub_batch import THRESHOLD
from bft.models.sharing.xi_table import SizedRatio

# Partners that a replay considers per job: more make a decision slower and hardly better.
XI_PARTNERS = 3

Kind: TypeAlias = tuple[str, float | None, float | None]
Ratios: TypeAlias = tuple[float, float] | None
Sides: TypeAlias = tuple[SizedRatio, SizedRatio] | None


@dataclass(frozen=True)
class Interference:
    """What happens when two jobs share units; the engine's truth and the policies' knowledge.

    The ratio of a job is that of the units it has, however many it shares: all of it waits for its slowest worker.

    Parameters
    ----------
    table
        Measured ratios.
    xi_max
        A pair is not allowed at sizes at which either ratio exceeds this.
    unit_memory_gib
        Memory of a unit; a pair whose memory sum exceeds it is not allowed. None: memory is not looked at. A job that
        states no memory, and of which `memory` tells nothing, then shares with nobody.
    forbidden
        Pairs of models that may not share, whatever their ratios.
    memory
        Memory by model and batch size. With it, of two jobs that do not fit together the one submitted later runs
        beside the other with a smaller batch and gradient accumulation (`fit_beside`), and what that costs it counts
        into its ratio. None: batches stay as they are. Which of the two it is must not depend on what happens in a
        replay, so that engine and policies say the same of a pair.
    sub_batch_threshold
        Least share of its goodput that it keeps by that, in (0, 1].

    Raises
    ------
    InputError
        When a limit is none.

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
    _known: dict[tuple[Kind, Kind, bool], Sides] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.xi_max >= 1:
            raise InputError(f"xi_max: expected a number >= 1, not {self.xi_max}")
        if self.unit_memory_gib is not None and not self.unit_memory_gib > 0:
            raise InputError(f"unit_memory_gib: expected a number > 0, not {self.unit_memory_gib}")
        if not 0 < self.sub_batch_threshold <= 1:
            raise InputError(f"sub_batch_threshold: expected a number in (0, 1], not {self.sub_batch_threshold}")

    def xi(self, a: Job, b: Job, units_a: int | None = None, units_b: int | None = None) -> Ratios:
        """Ratios (xi_a, xi_b) of two jobs that may share on so many units each, None when they may not.

        Without units the largest of all sizes count.
        """
        sides = self.sides(a, b)
        if sides is None:
            return None
        ratios = sides[0].of(units_a), sides[1].of(units_b)
        return None if max(ratios) > self.xi_max else ratios

    def ever(self, a: Job, b: Job) -> bool:
        """Whether two jobs may share on some number of units."""
        sides = self.sides(a, b)
        return sides is not None and max(side.least() for side in sides) <= self.xi_max

    @property
    def by_units(self) -> bool:
        """Whether ratios depend on units."""
        return self.table.by_units

    def sides(self, a: Job, b: Job) -> Sides:
        """Ratios of two jobs by units, whatever `xi_max` is; None when they may not share."""
        first = (a.tsub_ns, a.name) < (b.tsub_ns, b.name)
        key = (self.kind(a), self.kind(b), first)
        if key not in self._known:
            sides = self._of(a, b) if first else self._of(b, a)
            self._known[key] = sides if first or sides is None else (sides[1], sides[0])
        return self._known[key]

    @staticmethod
    def kind(job: Job) -> Kind:
        """Jobs of one kind, submitted together, may share with the same others at the same ratios."""
        return job.model, job.batch_size, job.memory_gib

    def _of(self, earlier: Job, later: Job) -> Sides:
        if frozenset((earlier.model, later.model)) in self.forbidden:
            return None
        fit = fit_beside(later, earlier, self.unit_memory_gib, memory=self.memory, threshold=self.sub_batch_threshold)
        if fit is None:
            return None
        if fit.accumulation > 1:
            later = replace(later, batch_size=fit.batch)
        sides = self.table.sides(earlier, later)
        return None if sides is None else (sides[0], sides[1].times(1 / fit.goodput_share))
