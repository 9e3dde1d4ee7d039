"""The optimal allocation when two jobs may share units (docs/model.md)."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement, product
from operator import itemgetter
from typing import TypeAlias

from bft import milp
from bft.models.jobs import Job
from bft.models.sharing.xi_table import SizedRatio
from bft.replay.engine.policy_api import JobView, State, Traits
from bft.replay.engine.rules import XI_PARTNERS, Interference, Sides
from bft.replay.engine.snapshot import NOT_STORED
from bft.replay.policies.milp import MilpPolicy

Priced: TypeAlias = tuple[float, tuple[tuple[int, float], ...]]


# Up to so many jobs in play each is posed by itself.
FEW = 40


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
    traits: Traits = field(default=Traits(shares=True), init=False, metadata=NOT_STORED)
    _known: dict[tuple[str, str], tuple[Job, Job, Sides]] = field(
        default_factory=dict, init=False, repr=False, metadata=NOT_STORED
    )

    def alike(self, state: State, jobs: milp.Rows) -> tuple[tuple[int, ...], ...]:
        """Waiting jobs of one kind that are worth the same, where more than `FEW` jobs are in play."""
        interference = self.interference
        if interference is None or len(jobs) <= FEW:
            return ()
        # With smaller batches it matters which of two jobs was submitted first; a measured job has its own terms.
        if interference.memory is not None or self.curves == "profile":
            return ()
        groups: defaultdict[object, list[int]] = defaultdict(list)
        like = jobs.terms.like[jobs.rows].tolist()
        for j in state.jobs.waiting:
            job = state.jobs[j].job
            weight = float(jobs.weight[j])
            grown = job.tcup_s if self.cost_model == "stall" else 0.0
            worth = like[j], weight, grown
            groups[worth, interference.job_class(job), job.request].append(j)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)

    def pairs(
        self, state: State, alike: Sequence[tuple[int, ...]] = ()
    ) -> tuple[milp.Pair, ...]:
        """Present partners, and for each job the best others; a group of `alike` counts as one."""
        groups = {group[0]: group for group in alike}
        chosen = _Partners(self.xi_partners, groups)
        pairs = []
        for a in state.jobs.running:
            b, view = state.jobs[a].partner, state.jobs[a]
            priced = (
                self._priced_pair(state, a, b, now=True)
                if b is not None and a < b
                else None
            )
            if b is not None and priced is not None:
                chosen.take(a, b)
                pairs.append(_pair(a, b, priced, view.shared))
        candidates = []
        for first, second in combinations_with_replacement(
            self._kinds(state, alike), 2
        ):
            a, b = first[0], second[0]
            if first is second:
                b = first[1] if len(first) > 1 else groups.get(a, (a, a))[1]
            # Jobs of these kinds have the same ratios, whichever they are.
            priced = None if a == b else self._priced_pair(state, a, b, now=False)
            if priced is not None:
                # How well they share: the sum of 1/xi on the units that they ask for.
                sides = zip(self._sides(state, a, b) or (), (a, b), strict=False)
                worth = [1 / side.of(state.jobs[j].job.request) for side, j in sides]
                candidates.append(
                    (
                        -math.fsum(worth),
                        first[0],
                        second[0],
                        first,
                        second,
                        priced,
                    )
                )
        for _, _, _, first, second, priced in sorted(
            candidates, key=itemgetter(0, 1, 2)
        ):
            for a, b in chosen.new(first, second):
                pairs.append(_pair(a, b, priced))
        return tuple(sorted(pairs, key=lambda pair: (pair.a, pair.b)))

    def _kinds(self, state: State, alike: Sequence[tuple[int, ...]]) -> list[list[int]]:
        """The jobs, of each group the first, by who may share with whom at which ratios; one by one where few."""
        interference = self.interference
        if interference is None:
            return []
        standing = set(range(len(state.jobs))).difference(
            *(group[1:] for group in alike)
        )
        if len(state.jobs) <= FEW or interference.memory is not None:
            return [[j] for j in sorted(standing)]
        kinds: defaultdict[object, list[int]] = defaultdict(list)
        for j in sorted(standing):
            job = state.jobs[j].job
            kinds[interference.job_class(job), job.request, job.jmax].append(j)
        return list(kinds.values())

    def _priced_pair(
        self, state: State, a: int, b: int, *, now: bool
    ) -> tuple[Priced, Priced] | None:
        """Return the speeds that a decision may count on for jobs a and b, None where they may not share."""
        sides = self._sides(state, a, b)
        if sides is None:
            return None
        priced = (
            self._priced(sides[0], state.jobs[a], now=now),
            self._priced(sides[1], state.jobs[b], now=now),
        )
        return (
            None
            if any(math.isinf(otherwise) and not named for otherwise, named in priced)
            else priced
        )

    def _priced(self, side: SizedRatio, view: JobView, *, now: bool) -> Priced:
        """The ratios that a decision may rely on: the general one, and exceptions by units; infinite above `xi_max`.

        On the units that it now holds with a partner, a job may stay whatever the ratio is: units left the trace to
        bring it there, and the engine charges the slow-down.
        """
        xi_max = math.inf if self.interference is None else self.interference.xi_max
        named = {
            int(n): ratio for n, ratio in side.at if n == int(n) and n <= view.job.jmax
        }
        held = {view.units: side.of(view.units)} if now else {}
        priced = {
            n: ratio if ratio <= xi_max else math.inf for n, ratio in named.items()
        } | held
        otherwise = side.otherwise if side.otherwise <= xi_max else math.inf
        return otherwise, tuple(
            sorted((n, ratio) for n, ratio in priced.items() if ratio != otherwise)
        )

    def _sides(self, state: State, a: int, b: int) -> Sides:
        if self.interference is None:
            return None
        job_a, job_b = state.jobs[a].job, state.jobs[b].job
        key = (job_a.name, job_b.name)
        known = self._known.get(key)
        # Another replay has other jobs.
        if known is None or known[0] is not job_a or known[1] is not job_b:
            sides = self.interference.sides(job_a, job_b)
            known = self._known[key] = job_a, job_b, sides
        return known[2]


def _pair(a: int, b: int, priced: tuple[Priced, Priced], shared: int = 0) -> milp.Pair:
    """A pair, the job of lower position first."""
    (xi_a, at_a), (xi_b, at_b) = priced
    return (
        milp.Pair(a, b, xi_a, xi_b, shared, at_a, at_b)
        if a < b
        else milp.Pair(b, a, xi_b, xi_a, shared, at_b, at_a)
    )


class _Partners:
    """Numbers of partners that jobs already have.

    A single job has at most `most` single ones, and as many groups besides. A group, which stands for many, has any
    number of single ones, and of other groups its own best and those whose best it is.
    """

    def __init__(self, most: int, groups: Mapping[int, tuple[int, ...]]) -> None:
        self._most, self._groups = most, groups
        self._singles: Counter[int] = Counter()
        self._among: Counter[int] = Counter()
        self._now: set[tuple[int, int]] = set()

    def take(self, a: int, b: int) -> None:
        """Partners of now, a < b."""
        self._now.add((a, b))
        self._singles.update((a, b))

    def new(
        self, first: Sequence[int], second: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """Pairs of jobs of two kinds (or twice the same) that there is room for; a group's first stands for it."""
        most, groups = self._most, self._groups
        grouped = [[j for j in kind if j in groups] for kind in (first, second)]
        if first is second:
            for a in grouped[0]:
                if self._among[a] < most:
                    self._among[a] += 1
                    yield groups[a][0], groups[a][1]
        for a, b in (
            combinations(grouped[0], 2) if first is second else product(*grouped)
        ):
            if min(self._among[a], self._among[b]) < most:
                self._among.update((a, b))
                yield a, b
        single = [
            [j for j in kind if j not in groups and self._among[j] < most]
            for kind in (first, second)
        ]
        crosses = ((single[0], grouped[1]), (grouped[0], single[1]))
        for some, others in crosses[:1] if first is second else crosses:
            for a, b in product(some, others):
                j = b if a in groups else a
                if self._among[j] < most:
                    self._among[j] += 1
                    yield a, b
        single = [
            [j for j in kind if j not in groups and self._singles[j] < most]
            for kind in (first, second)
        ]
        for a, b in combinations(single[0], 2) if first is second else product(*single):
            if (
                max(self._singles[a], self._singles[b]) < most
                and (min(a, b), max(a, b)) not in self._now
            ):
                self._singles.update((a, b))
                yield a, b
