"""Durations of training steps, as a log or a measurement gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Basis = Literal["step", "sample", "token"]


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Durations of a step in a log, after warm-up, in the order of the log.

    Parameters
    ----------
    seconds
        Seconds a step (or a sample or token, see `per`), float64 of shape (records,), > 0.
    per
        "step"; "sample" when the log gives only samples per second and the batch size is not known; "token" when it
        gives only tokens per second, with an unknown number of tokens per sample.
    samples
        Samples a step over all units, None when not known; 1 with per = "sample" or "token".
    warmup
        Records left out at the start.
    ignored
        Records without a usable duration: not finite, not positive, or a step counter that went back.
    notes
        Messages for the user.
    used
        The lines with the durations.
    unused
        Lines with times or rates that were not used, and their meaning.
    basis
        The quantity that the log itself times: `per` before a batch size turned samples into steps.
    stated
        Samples a step as the log itself states or implies them, None when it does not.

    Examples
    --------
    >>> steps = StepTimes(np.array([0.5, 0.4, 0.6]), per="step", samples=64.0)
    >>> len(steps), steps.median_s
    (3, 0.5)
    """

    seconds: FloatArray
    per: Basis
    samples: float | None
    warmup: int = 0
    ignored: int = 0
    notes: tuple[str, ...] = ()
    used: str = ""
    unused: tuple[str, ...] = ()
    basis: Basis = "step"
    stated: float | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def median_s(self) -> float:
        """Median seconds a step: stalls by checkpoints or stragglers do not move it."""
        return float(np.median(self.seconds))

    def interval_s(self, confidence: float = 0.95) -> tuple[float, float]:
        """Distribution-free interval of the median, seconds a step.

        Order statistics l and u with P(l <= Binomial(n, 1/2) < u) >= confidence (Conover, Practical Nonparametric
        Statistics, §3.2); with so few records that none reach it, the whole range. It takes records as independent.

        Raises
        ------
        ValueError
            When the confidence is not in (0, 1).
        """
        from scipy.stats import binom

        if not 0 < confidence < 1:
            raise ValueError(f"expected a confidence in (0, 1), not {confidence}")
        ordered = np.sort(self.seconds)
        low = int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5))
        low = max(low - 1, 0)
        return float(ordered[low]), float(ordered[len(ordered) - 1 - low])

    def throughput(self, confidence: float = 0.95) -> tuple[float, float, float]:
        """Return the throughput in samples a second: the median and the ends of its interval.

        Raises
        ------
        ValueError
            When the samples a step are not known.
        """
        if self.samples is None:
            raise ValueError(
                "the log does not state samples per step; give the batch size"
            )
        low, high = self.interval_s(confidence)
        return self.samples / self.median_s, self.samples / high, self.samples / low
