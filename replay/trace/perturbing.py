"""Node traces that might have been: fragments left out, known late, taken back early."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bft.models.checks import Number, check_fields, option, seconds, whole
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, fragment_events
from bft.replay.trace.trace_statistics import fragments

_SHARE = Number(0, 1)


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A change of an observed trace; each fragment of idle time changes on its own.

    Parameters
    ----------
    drop
        Probability with which a fragment is left out.
    delay_s
        Seconds by which a fragment begins later: drawn from an exponential distribution of this mean.
    thin
        Share of its length by which a fragment ends earlier; after the delay, of what is left.
    seed
        Of what is drawn.

    Raises
    ------
    InputError
        When a value is not allowed.

    Examples
    --------
    >>> print(Perturbation(drop=0.1, delay_s=60))
    drop 0.1, delay 60 s, seed 0
    """

    drop: float = option(
        "--drop",
        _SHARE,
        0.0,
        help="Leave out each idle fragment with this probability.",
        metavar="SHARE",
    )
    delay_s: float = option(
        "--delay",
        seconds(zero=True),
        0.0,
        help="Begin each fragment later, by an exponential time of this mean.",
        metavar="SECONDS",
    )
    thin: float = option(
        "--thin",
        _SHARE,
        0.0,
        help="End each fragment earlier, by this share of its length.",
        metavar="SHARE",
    )
    seed: int = option(
        "--seed",
        whole(0),
        0,
        help="Of what is drawn at random.",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def __str__(self) -> str:
        parts = {
            f"drop {self.drop:g}": self.drop,
            f"delay {self.delay_s:g} s": self.delay_s,
            f"thin {self.thin:g}": self.thin,
        }
        given = [part for part, value in parts.items() if value]
        return ", ".join([*given, f"seed {self.seed}"])


def perturbed(trace: NodeTrace, how: Perturbation) -> NodeTrace:
    """The trace with fragments left out, delayed and shortened; the window of observation stays.

    A node is never idle where it was not. The draws for a fragment depend on the seed and its position alone: the
    fragments that are left out with a smaller `drop` are left out with a larger one, too.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> day = always_idle(4, 0, 86_400 * SECOND_NS)
    >>> perturbed(day, Perturbation(thin=0.25)).idle_node_seconds() / day.idle_node_seconds()
    0.75
    """
    pieces = fragments(trace)
    # A stream for each kind of change: an additional option does not change the draws of the others.
    kept = np.random.default_rng((how.seed, 1)).random(len(pieces.node)) >= how.drop
    late_s = (
        np.random.default_rng((how.seed, 2)).exponential(1.0, len(pieces.node))
        * how.delay_s
    )
    length = pieces.end_ns - pieces.start_ns
    late = np.minimum(late_s, length / SECOND_NS) * SECOND_NS
    start = pieces.start_ns + np.minimum(np.round(late).astype(np.int64), length)
    end = pieces.end_ns - np.round((pieces.end_ns - start) * how.thin).astype(np.int64)
    kept &= end > start
    notes = trace.notes
    if trace.host_jobs is not None:
        notes += ("the host jobs are left out: they do not fit other idle times",)
    return replace(
        trace,
        **fragment_events(pieces.node[kept], start[kept], end[kept], trace.end),
        altered="; ".join(filter(None, (trace.altered, str(how)))),
        host_jobs=None,
        notes=notes,
    )
