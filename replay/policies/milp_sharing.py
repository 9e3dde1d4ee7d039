"""The optimal allocation when two jobs may share units (DESIGN §6.3)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

from bft import milp
from bft.replay.interference import XI_PARTNERS, Interference
from bft.replay.policies.interface import Kind, State
from bft.replay.policies.milp import MilpPolicy


@dataclass
class MilpSharingPolicy(MilpPolicy):
    """As `MilpPolicy`, with pairs of jobs that may share units at 1/xi of their rates.

    Parameters
    ----------
    interference
        Who may share with whom, and their ratios.
    xi_partners
        Best partners that are considered per job, by the sum of 1/xi; present partners always are.
    """

    interference: Interference | None = None
    xi_partners: int = XI_PARTNERS
    name: str = field(default="milp-sharing", init=False)
    kind: ClassVar[Kind] = Kind(shares=True)
    _known: dict[tuple[str, str], tuple[float, float] | None] = field(default_factory=dict, init=False, repr=False)

    def pairs(self, state: State) -> tuple[milp.Pair, ...]:
        """Present partners, and for each job the best others."""
        candidates = []
        for a, b in combinations(range(len(state.jobs)), 2):
            ratios = self._xi(state, a, b)
            if ratios is not None:
                now = state.jobs[a].partner == b
                candidates.append((not now, -sum(1 / xi for xi in ratios), a, b, ratios))
        pairs = []
        partners: Counter[int] = Counter()
        for new, _, a, b, (xi_a, xi_b) in sorted(candidates):
            if new and max(partners[a], partners[b]) >= self.xi_partners:
                continue
            partners.update((a, b))
            pairs.append(milp.Pair(a, b, xi_a, xi_b, 0 if new else state.jobs[a].shared))
        return tuple(sorted(pairs, key=lambda pair: (pair.a, pair.b)))

    def _xi(self, state: State, a: int, b: int) -> tuple[float, float] | None:
        if self.interference is None:
            return None
        job_a, job_b = state.jobs[a].job, state.jobs[b].job
        key = (job_a.name, job_b.name)
        if key not in self._known:
            self._known[key] = self.interference.xi(job_a, job_b)
        return self._known[key]
