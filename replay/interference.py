"""Who may share units with whom in a replay, and what that costs: ξ, memory, forbidden pairs (DESIGN §6.3)."""

from __future__ import annotations

from dataclasses import dataclass

from bft.models import Job, XiTable

# Partners that a replay considers per job: more make a decision slower and hardly better (DESIGN §6.3).
XI_PARTNERS = 3


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
        states no memory then shares with nobody.
    forbidden
        Pairs of models that may not share, whatever their ratios.
    """

    table: XiTable
    xi_max: float = float("inf")
    unit_memory_gib: float | None = None
    forbidden: frozenset[frozenset[str]] = frozenset()

    def xi(self, a: Job, b: Job) -> tuple[float, float] | None:
        """Ratios (xi_a, xi_b) of two jobs that may share, None when they may not."""
        if frozenset((a.model, b.model)) in self.forbidden:
            return None
        if self.unit_memory_gib is not None and (
            a.memory_gib is None or b.memory_gib is None or a.memory_gib + b.memory_gib > self.unit_memory_gib
        ):
            return None
        ratios = self.table.xi(a, b)
        return None if ratios is None or max(ratios) > self.xi_max else ratios
