"""Which jobs share units, and how much that slows each down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bft.models import Job
from bft.replay.engine.holdings import Holdings
from bft.replay.engine.in_play import InPlay
from bft.replay.engine.motion import Motion
from bft.replay.engine.moves import Traits
from bft.replay.engine.port import PolicyError
from bft.replay.engine.running import Running
from bft.replay.engine.sharing_rules import Interference


class Partners:
    """Keeps the partners of running jobs up to date, and their rates with them.

    Parameters
    ----------
    jobs, in_play, held, motion, traits
        Of the replay.
    interference
        How much two jobs on a unit slow each other down; None: no policy may let them share.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        in_play: InPlay,
        held: Holdings,
        motion: Motion,
        traits: Traits,
        interference: Interference | None,
    ) -> None:
        self._jobs, self._in_play, self._held, self._motion, self._traits = jobs, in_play, held, motion, traits
        self._interference = interference

    def refresh(self, changed: Iterable[Running], beside: Iterable[int] = (), *, decided: bool = False) -> None:
        """Update the partners of jobs whose units have changed, and of their former and new partners.

        Parameters
        ----------
        changed
            The jobs whose units have changed.
        beside
            Former partners, by position in the table.
        decided
            Whether the policy caused the change: then only allowed pairs may share, at allowed sizes.

        Raises
        ------
        PolicyError
        When a pair or size is not allowed.
        """
        if not self._in_play.shared and not self._held.shared:
            return
        concerned = set(beside)
        for running in changed:
            concerned.add(running.index)
            concerned.update(running.partners)
            for unit in running.units:
                concerned.update(self._held.holders(unit))
        for running in self._in_play.of(concerned):
            if running.units:
                self._refresh(running, decided=decided)

    def _refresh(self, running: Running, *, decided: bool) -> None:
        partners = Counter(
            index for unit in running.units for index in self._held.holders(unit) if index != running.index
        )
        same = partners.keys() == running.partners.keys()
        self._in_play.share(running, dict(partners))
        if same and not (partners and self._interference is not None and self._interference.by_units):
            return
        xi = max((self._xi(running, index) for index in partners), default=1.0)
        if not same or xi != running.xi:
            # A pair that a leave has changed is charged at its ratio; a decision may not choose a forbidden one.
            if decided and self._interference is not None and xi > self._interference.xi_max:
                raise self._not_allowed(running, next(iter(partners)))
            self._motion.settle(running)
            running.xi = xi
            self._motion.set_rate(running)

    def _xi(self, running: Running, beside: int) -> float:
        """The ratio of a job with its partner, on the units that it has."""
        sides = None if self._interference is None else self._interference.sides(running.job, self._jobs[beside])
        if sides is None:
            raise self._not_allowed(running, beside)
        return sides[0].of(len(running.units))

    def _not_allowed(self, running: Running, beside: int) -> PolicyError:
        a, b = running.job.name, self._jobs[beside].name
        return self._traits.refusal(
            f"it lets {a!r} and {b!r} share units, which no xi allows ({a!r} has {len(running.units)} units)"
        )
