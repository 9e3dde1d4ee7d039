"""How a training's loss falls, and when it will have converged: Optimus' prediction (Peng et al., EuroSys'18, §3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Losses from which a curve of three parameters is fitted.
LEAST_LOSSES = 5
# Final losses that are tried first, between 0 and the smallest loss seen.
_TRIED = 20


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Loss after k epochs: l(k) = 1 / (b0 · k + b1) + b2, as of first-order methods, which converge as 1/k.

    Parameters
    ----------
    b0, b1, b2
        At least 0; b0 + b1 > 0.

    Examples
    --------
    >>> curve = LossCurve(1.0, 0.5, 0.1)
    >>> curve.at(0), round(curve.converged(0.01), 3)
    (2.1, 9.012)
    """

    b0: float
    b1: float
    b2: float

    def at(self, epochs: float) -> float:
        """The loss after a given number of epochs."""
        return 1 / (self.b0 * epochs + self.b1) + self.b2

    def converged(self, threshold: float) -> float:
        """Epochs after which one more lowers the loss by `threshold` or less; 0 of a loss that does not fall.

        With u = b0 · k + b1, l(k) − l(k + 1) = b0 / (u · (u + b0)), which is the threshold at a root of a square.
        """
        if self.b0 <= 0:
            return 0.0
        u = (math.sqrt(self.b0**2 + 4 * self.b0 / threshold) - self.b0) / 2
        return max((u - self.b1) / self.b0, 0.0)


def fit_loss(epochs: Sequence[float], losses: Sequence[float]) -> LossCurve | None:
    """The curve through losses seen after so many epochs; None of fewer than five losses, or of one number of epochs.

    For a given b2, 1 / (l − b2) = b0 · k + b1 is linear, and non-negative least squares (NNLS) give b0 and b1; each
    equation is weighed by (l − b2)², to first order its error in the loss. b2 is the one whose curve fits best.

    Examples
    --------
    >>> true = LossCurve(0.5, 0.2, 0.3)
    >>> found = fit_loss(range(8), [true.at(k) for k in range(8)])
    >>> round(found.b0, 4), round(found.b1, 4), round(found.b2, 4)
    (0.5, 0.2, 0.3)
    """
    from scipy.optimize import minimize_scalar, nnls

    k, loss = np.asarray(epochs, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if len(k) < LEAST_LOSSES or len(np.unique(k)) < 2 or not (loss > 0).all():
        return None
    highest = float(loss.min()) * (1 - 1e-6)

    def curve(b2: float) -> LossCurve:
        above = loss - b2
        weight = above**2
        (b0, b1), _ = nnls(
            np.column_stack([k, np.ones_like(k)]) * weight[:, None], weight / above
        )
        return LossCurve(float(b0), float(b1), b2)

    def error(b2: float) -> float:
        fitted = curve(b2)
        if fitted.b1 <= 0 and (fitted.b0 <= 0 or k.min() <= 0):
            return math.inf
        return float(((1 / (fitted.b0 * k + fitted.b1) + b2 - loss) ** 2).sum())

    tried = np.linspace(0.0, highest, _TRIED)
    best = int(np.argmin([error(float(b2)) for b2 in tried]))
    low, high = tried[max(best - 1, 0)], tried[min(best + 1, _TRIED - 1)]
    found = minimize_scalar(
        error, bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    b2 = (
        float(found.x) if found.fun <= error(float(tried[best])) else float(tried[best])
    )
    return curve(b2) if math.isfinite(error(b2)) else None
