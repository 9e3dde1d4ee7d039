"""The optimal allocation when two jobs may share units (docs/model.md)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

from bft import milp
from bft.models.sharing.xi_table import SizedRatio
from bft.replay.engine.memory import NOT_KEPT
from bft.replay.engine.port import JobView, Kind, State
from bft.replay.engine.sharing_rules import XI_PARTNERS, Interference, Sides
from bft.replay.policies.milp import MilpPolicy

Priced: TypeAlias = tuple[float, tuple[tuple[int, float], ...]]


@dataclass
class MilpSharingPolicy(MilpPolicy):
    """Like `MilpPolicy`, with pairs of jobs that may share units at 1/xi of their rates.

    Parameters
    ----------
    interference
        The pairs that may share, and their ratios.
    xi_partners
        Number of partners considered per job, best first by the sum of 1/xi at their Jreq; present partners always are.
    """

    interference: Interference | None = None
    xi_partners: int = XI_PARTNERS
    name: str = field(default="milp-sharing", init=False)
    kind: Kind = field(default=Kind(shares=True), init=False, metadata=NOT_KEPT)
    _known: dict[tuple[str, str], Sides] = field(default_factory=dict, init=False, repr=False, metadata=NOT_KEPT)

    def pairs(self, state: State) -> tuple[milp.Pair, ...]:
        """Present partners, and for each job the best others."""
        candidates = []
        for a, b in combinations(range(len(state.jobs)), 2):
            sides = self._sides(state, a, b)
            if sides is not None:
                now = state.jobs[a].partner == b
                priced = self._priced(sides[0], state.jobs[a], now=now), self._priced(sides[1], state.jobs[b], now=now)
                if not any(math.isinf(otherwise) and not named for otherwise, named in priced):
                    worth = sum(1 / side.of(state.jobs[j].job.request) for side, j in zip(sides, (a, b), strict=True))
                    candidates.append((not now, -worth, a, b, priced))
        pairs = []
        partners: Counter[int] = Counter()
        for new, _, a, b, ((xi_a, at_a), (xi_b, at_b)) in sorted(candidates):
            if new and max(partners[a], partners[b]) >= self.xi_partners:
                continue
            partners.update((a, b))
            pairs.append(milp.Pair(a, b, xi_a, xi_b, 0 if new else state.jobs[a].shared, at_a, at_b))
        return tuple(sorted(pairs, key=lambda pair: (pair.a, pair.b)))

    def _priced(self, side: SizedRatio, view: JobView, *, now: bool) -> Priced:
        """The ratios that a decision may rely on: the general one, and exceptions by units; infinite above `xi_max`.

        On the units that it now holds with a partner, a job may stay whatever the ratio is: units left the trace to
        bring it there, and the engine charges the slow-down.
        """
        xi_max = math.inf if self.interference is None else self.interference.xi_max
        named = {int(n): ratio for n, ratio in side.at if n == int(n) and n <= view.job.jmax}
        held = {view.units: side.of(view.units)} if now else {}
        priced = {n: ratio if ratio <= xi_max else math.inf for n, ratio in named.items()} | held
        otherwise = side.otherwise if side.otherwise <= xi_max else math.inf
        return otherwise, tuple(sorted((n, ratio) for n, ratio in priced.items() if ratio != otherwise))

    def _sides(self, state: State, a: int, b: int) -> Sides:
        if self.interference is None:
            return None
        job_a, job_b = state.jobs[a].job, state.jobs[b].job
        key = (job_a.name, job_b.name)
        if key not in self._known:
            self._known[key] = self.interference.sides(job_a, job_b)
        return self._known[key]
