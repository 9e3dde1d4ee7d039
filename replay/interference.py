"""Who may share units with whom in a replay, and what that costs: ξ, memory, forbidden pairs (DESIGN §6.3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bft.models import Job, UnitMemory, XiTable, fit_beside
from bft.models.sharing.sub_batch import THRESHOLD

# Partners that a replay considers per job: more make a decision slower and hardly better (DESIGN §6.3).
XI_PARTNERS = 3

Kind: TypeAlias = tuple[str, float | None, float | None]
Ratios: TypeAlias = tuple[float, float] | None


@dataclass(frozen=True)
class Interference:
    """What happens when two jobs share units; the engine's truth and the policies' knowledge.

    Parameters
    ----------
    table
        Measured ratios.
    xi_max
        A pair is not allowed when either ratio exceeds this.
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
    """

    table: XiTable
    xi_max: float = float("inf")
    unit_memory_gib: float | None = None
    forbidden: frozenset[frozenset[str]] = frozenset()
    memory: UnitMemory | None = None
    sub_batch_threshold: float = THRESHOLD
    _known: dict[tuple[Kind, Kind, bool], Ratios] = field(default_factory=dict, init=False, repr=False, compare=False)

    def xi(self, a: Job, b: Job) -> Ratios:
        """Ratios (xi_a, xi_b) of two jobs that may share, None when they may not."""
        first = (a.tsub_ns, a.name) < (b.tsub_ns, b.name)
        key = (self.kind(a), self.kind(b), first)
        if key not in self._known:
            ratios = self._of(a, b) if first else self._of(b, a)
            self._known[key] = ratios if first or ratios is None else (ratios[1], ratios[0])
        return self._known[key]

    @staticmethod
    def kind(job: Job) -> Kind:
        """Jobs of one kind, submitted together, may share with the same others at the same ratios."""
        return job.model, job.batch_size, job.memory_gib

    def _of(self, earlier: Job, later: Job) -> Ratios:
        if frozenset((earlier.model, later.model)) in self.forbidden:
            return None
        fit = fit_beside(later, earlier, self.unit_memory_gib, memory=self.memory, threshold=self.sub_batch_threshold)
        if fit is None:
            return None
        if fit.accumulation > 1:
            later = replace(later, batch_size=fit.batch)
        ratios = self.table.xi(earlier, later)
        if ratios is None:
            return None
        ratios = ratios[0], ratios[1] / fit.goodput_share
        return None if max(ratios) > self.xi_max else ratios
