"""How much of a trace's node-time its logs leave open, by reason.

The reasons are found by `replay/logs/doubts.py`; docs/ingest.md explains them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Share of the node-time from which on a warning is due.
WARN_FROM = 0.01
# Smaller ones would be shown as 0.0%.
_SHOWN_FROM = 0.0005


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Shares of all node-time of which the logs do not say what nodes did.

    Parameters
    ----------
    parts
        Reason and share of each part, which have no node-time in common.
    counts_as
        What such time counts as where it is known of which nodes it is: `unavailable` or `idle`.

    Examples
    --------
    >>> str(Uncertainty((("skipped rows", 0.02), ("jobs without an end", 0.011))))
    'uncertain: 3.1% of the node-time (skipped rows 2.0%, jobs without an end 1.1%)'
    """

    parts: tuple[tuple[str, float], ...] = ()
    counts_as: str = "unavailable"

    def __str__(self) -> str:
        shown = (
            f"{why} {share:.1%}" for why, share in self.parts if share >= _SHOWN_FROM
        )
        parts = ", ".join(shown)
        return f"uncertain: {self.share:.1%} of the node-time{f' ({parts})' if parts else ''}"

    @property
    def share(self) -> float:
        """The share of all parts together, at most 1."""
        return min(1.0, math.fsum(share for _, share in self.parts))

    @property
    def is_large(self) -> bool:
        """Whether a warning is due."""
        return self.share >= WARN_FROM

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "share": self.share,
            "parts": dict(self.parts),
            "counts_as": self.counts_as,
        }


def together(
    parts: Sequence[tuple[Uncertainty | None, float]],
) -> Uncertainty | None:
    """Return what is uncertain of several traces together, each given with its node-time; None: nothing is stated.

    >>> str(together([(Uncertainty((("skipped rows", 0.04),)), 100.0), (None, 300.0)]))
    'uncertain: 1.0% of the node-time (skipped rows 1.0%)'
    """
    stated = [(some, time) for some, time in parts if some is not None]
    total = math.fsum(time for _, time in parts)
    if not stated or not total:
        return None
    sums: dict[str, float] = {}
    for some, time in stated:
        for reason, share in some.parts:
            sums[reason] = sums.get(reason, 0.0) + share * time / total
    return Uncertainty(tuple(sums.items()), stated[0][0].counts_as)
