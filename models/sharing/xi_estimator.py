"""Estimates of ξ for pairs without a measurement: additive effects, shrunk, and nearby values of the same two models.

An answer is built in the logarithm of ξ (interference multiplies), in this order:

1. **measured**: the median of the measurements that fit the query.
2. else a **trend**, fitted to all measurements by ridge regression: a mean, what each model suffers as victim and does
   as partner, and slopes in log2 of the batch sizes and units, common ones and deviations of each model. Shrinkage lets
   a model that was measured little be like the others (best linear unbiased prediction: Robinson, "That BLUP is a Good
   Thing", Statistical Science 6(1), 1991).
3. plus the **residuals** that the same two models left at other batch sizes and units, weighted by their closeness in
   log2 (inverse distance weighting: Shepard 1968), fading with distance.
4. **interpolated**, where measurements of the same two models surround the query: not beyond what they span.
   **clamped**, where the two were measured together but not around the query; the trend is followed for one doubling
   beyond what was measured, not further. **guessed**, where they never met: the trend of each alone; of a model never
   measured at all, that of the mean model.

All holds for a victim beside a partner, so the answer for (a, b) is that for (b, a), swapped. The order of the
measurements does not matter. docs/models.md has the errors on published measurements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.sharing.xi_table import FLAGS, Measurement

MEASURED, INTERPOLATED, CLAMPED, GUESSED = FLAGS
# Ridge penalties: variance of the noise over variance of an effect. A model's effect weighs as much as one contrary
# measurement, its own slopes half as much; the common slopes and the mean are based on all data and need almost none.
EFFECT_PENALTY: Final = 1.0
SLOPE_PENALTY: Final = 2.0
COMMON_PENALTY: Final = 0.1
MEAN_PENALTY: Final = 1e-6
# A residual one doubling away weighs a third of one at the same place, and all together weigh against this much
# doubt whether the two models deviate from the trend at all.
RESIDUAL_REACH: Final = 0.5
RESIDUAL_DOUBT: Final = 0.5
# Doublings beyond the measured range over which a trend is believed.
BEYOND: Final = 1.0

VICTIM_BATCH, PARTNER_BATCH, UNITS = range(3)

# Batch sizes of victim and partner, and units; None where not stated.
_Place: TypeAlias = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class XiEstimate:
    """Ratios of two jobs that share units, each at least 1, and how they were found (one of FLAGS)."""

    xi_a: float
    xi_b: float
    flag: str


@dataclass(frozen=True, slots=True)
class _Pair:
    """Measurements of a victim and a partner: points (n, 3), log2 of batches and units (NaN: any); log ξ (n,)."""

    points: FloatArray
    logs: FloatArray


class XiEstimator:
    """Ratios for pairs of models, batch sizes and unit counts that were not measured.

    Parameters
    ----------
    measurements
        Measured ratios; those below 1 are noise and count as 1, of repetitions the median counts. Estimated rows (by
        their flag) are left out: they hold nothing that was measured. At least one.

    Examples
    --------
    >>> from bft.models.sharing.xi_table import Measurement
    >>> estimator = XiEstimator([Measurement("bert", "vgg", 1.4, 1.2), Measurement("bert", "bert", 1.6, 1.6)])
    >>> estimator.models
    ('bert', 'vgg')
    >>> estimator.estimate("bert", "vgg")
    XiEstimate(xi_a=1.4, xi_b=1.2, flag='measured')
    """

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        repeated: dict[tuple[str, str], dict[_Place, list[float]]] = {}
        for row in measurements:
            if row.flag == MEASURED:
                for each in (row, row.swapped()):
                    places = repeated.setdefault((each.model_a, each.model_b), {})
                    places.setdefault(
                        (each.batch_a, each.batch_b, each.units), []
                    ).append(max(each.xi_a, 1.0))
        self._pairs: dict[tuple[str, str], _Pair] = {}
        for pair, places in sorted(repeated.items()):
            ordered = sorted(places, key=_order)
            points = np.array([[_log2(value) for value in place] for place in ordered])
            ratios = [median(places[place]) for place in ordered]
            self._pairs[pair] = _Pair(points, np.log(ratios))
        victims = sorted({victim for victim, _ in self._pairs})
        self._models = {model: index for index, model in enumerate(victims)}
        points = np.vstack([pair.points for pair in self._pairs.values()])
        logs = np.concatenate([pair.logs for pair in self._pairs.values()])
        self._max_log_xi = float(logs.max())
        self._centre = np.array([_mean(points[:, axis]) for axis in range(3)])
        # Smallest and largest log2 batch of each model, NaN where none is stated.
        self._range = {model: _span(self._batches(model)) for model in self._models}
        self._anywhere = _span(points)
        self._effects = self._fit(logs)
        self._residuals = {
            pair: rows.logs - self._trend(*pair, rows.points)
            for pair, rows in self._pairs.items()
        }

    @property
    def models(self) -> tuple[str, ...]:
        """Models that were measured, sorted."""
        return tuple(self._models)

    def estimate(
        self,
        model_a: str,
        model_b: str,
        batch_a: float | None = None,
        batch_b: float | None = None,
        units: float | None = None,
    ) -> XiEstimate | None:
        """Ratios of two jobs on shared units.

        Parameters
        ----------
        model_a, model_b
            Their models.
        batch_a, batch_b, units
            Batch sizes and units that they share, > 0. None: not known; then the largest ratio over the values that
            were measured counts, as a decision should not hope.

        Returns
        -------
        XiEstimate or None
            None when neither model was ever measured.
        """
        if model_a not in self._models and model_b not in self._models:
            return None
        xi_a, flag = self._beside(
            model_a, model_b, (_log2(batch_a), _log2(batch_b), _log2(units))
        )
        xi_b, _ = self._beside(
            model_b, model_a, (_log2(batch_b), _log2(batch_a), _log2(units))
        )
        return XiEstimate(xi_a, xi_b, flag)

    def fill(
        self, kinds: Iterable[tuple[str, float | None]], *, guess: bool = True
    ) -> list[Measurement]:
        """Estimated rows of a ξ table for all pairs of `kinds` (model, batch size or None) that were not measured.

        Parameters
        ----------
        kinds
            The jobs' models and batch sizes.
        guess
            Whether to estimate pairs of models that were never measured together.

        Returns
        -------
        list of Measurement
            With their flags, in order of model and batch; pairs without any data are left out.
        """
        rows = []
        wanted = FLAGS[1:] if guess else (INTERPOLATED, CLAMPED)
        ordered = sorted(set(kinds), key=lambda kind: (kind[0], kind[1] or 0.0))
        for a, b in itertools.combinations_with_replacement(ordered, 2):
            found = self.estimate(a[0], b[0], a[1], b[1])
            if found is not None and found.flag in wanted:
                ratios = found.xi_a, found.xi_b
                rows.append(
                    Measurement(a[0], b[0], *ratios, a[1], b[1], flag=found.flag)
                )
        return rows

    def _beside(
        self, victim: str, partner: str, point: tuple[float, float, float]
    ) -> tuple[float, str]:
        """ξ of a victim with a partner at log2 of (its batch, the partner's, units), NaN where not known."""
        query = np.array(point)
        pair = self._pairs.get((victim, partner))
        if pair is not None:
            fits = (
                np.isnan(pair.points) | np.isnan(query) | (pair.points == query)
            ).all(axis=1)
            if fits.any():
                return math.exp(pair.logs[fits].max()), MEASURED
        choices = [
            (value,) if not math.isnan(value) else self._values(victim, partner, axis)
            for axis, value in enumerate(point)
        ]
        answers = [
            self._unmeasured(victim, partner, np.array(place), pair)
            for place in itertools.product(*choices)
        ]
        flag = max((flag for _, flag in answers), key=FLAGS.index)
        return math.exp(
            min(max(0.0, *(value for value, _ in answers)), self._max_log_xi)
        ), flag

    def _unmeasured(
        self, victim: str, partner: str, query: FloatArray, pair: _Pair | None
    ) -> tuple[float, str]:
        """Log ξ where no measurement fits."""
        value = float(self._trend(victim, partner, query[None])[0])
        if pair is None:
            return value, GUESSED
        distance = np.nansum(
            np.abs(pair.points - self._believed(victim, partner, query)), axis=1
        )
        weights = 1 / (distance + RESIDUAL_REACH)
        value += float(
            weights
            @ self._residuals[victim, partner]
            / (weights.sum() + RESIDUAL_DOUBT)
        )
        around = _surrounding(pair.points, query)
        if around is not None:
            return float(
                np.clip(value, pair.logs[around].min(), pair.logs[around].max())
            ), INTERPOLATED
        last = _span(pair.points)[1][PARTNER_BATCH]
        if query[PARTNER_BATCH] > last:
            # A partner does not disturb less by a larger batch: noise at the last points must not say so.
            inside = query.copy()
            inside[PARTNER_BATCH] = last
            fits = (np.isnan(pair.points) | (pair.points == inside)).all(axis=1)
            floor = (
                pair.logs[fits].max()
                if fits.any()
                else self._unmeasured(victim, partner, inside, pair)[0]
            )
            value = max(value, float(floor))
        return value, CLAMPED

    def _values(self, victim: str, partner: str, axis: int) -> tuple[float, ...]:
        """Measured values of a coordinate that a query leaves open: of the pair, else of the model; NaN if none."""
        pair = self._pairs.get((victim, partner))
        column = pair.points[:, axis] if pair is not None else np.empty(0)
        if np.isnan(column).all() and axis != UNITS:
            column = self._batches(victim if axis == VICTIM_BATCH else partner)
        return tuple(np.unique(column[~np.isnan(column)]).tolist()) or (math.nan,)

    def _batches(self, model: str) -> FloatArray:
        """All log2 batch sizes at which a model was measured: (n,), NaN where none was stated."""
        batches = (
            rows.points[:, VICTIM_BATCH]
            for (victim, _), rows in self._pairs.items()
            if victim == model
        )
        return np.concatenate([np.empty(0), *batches])

    def _believed(self, victim: str, partner: str, points: FloatArray) -> FloatArray:
        """Coordinates (..., 3) held one doubling beyond what was measured of these models; NaN where nothing was."""
        low, high = self._anywhere[0].copy(), self._anywhere[1].copy()
        for axis, model in ((VICTIM_BATCH, victim), (PARTNER_BATCH, partner)):
            if model in self._range:
                low[axis], high[axis] = self._range[model]
        return np.asarray(np.clip(points, low - BEYOND, high + BEYOND))

    def _columns(self, victim: str, partner: str, points: FloatArray) -> FloatArray:
        """The regression's columns for points (n, 3): mean, 3 common slopes, then 4 of each model."""
        centred = np.nan_to_num(self._believed(victim, partner, points) - self._centre)
        columns = np.zeros((len(points), 4 + 4 * len(self._models)))
        columns[:, 0], columns[:, 1:4] = 1.0, centred
        for model, axis, first in (
            (victim, VICTIM_BATCH, 4),
            (partner, PARTNER_BATCH, 6),
        ):
            if model in self._models:
                own = first + 4 * self._models[model]
                columns[:, own], columns[:, own + 1] = 1.0, centred[:, axis]
        return columns

    def _fit(self, logs: FloatArray) -> FloatArray:
        """Fit effects (4 + 4 models,) by ridge regression: they minimise |logs - X e|² + Σ penalty e²."""
        design = np.vstack(
            [self._columns(*pair, rows.points) for pair, rows in self._pairs.items()]
        )
        penalties = np.array(
            [
                MEAN_PENALTY,
                *[COMMON_PENALTY] * 3,
                *[EFFECT_PENALTY, SLOPE_PENALTY] * (2 * len(self._models)),
            ]
        )
        return np.asarray(
            np.linalg.solve(design.T @ design + np.diag(penalties), design.T @ logs),
            dtype=np.float64,
        )

    def _trend(self, victim: str, partner: str, points: FloatArray) -> FloatArray:
        """Log ξ by the additive effects alone: (n,)."""
        return np.asarray(self._columns(victim, partner, points) @ self._effects)


def _surrounding(points: FloatArray, query: FloatArray) -> NDArray[np.bool_] | None:
    """Tell which of `points` surround the query: neighbours on both sides along one axis, else the corners of its cell.

    A line first: it is closer. None when there are neither.
    """
    equal = np.isnan(points) | (points == query)
    for axis in range(points.shape[1]):
        line: NDArray[np.bool_] = np.delete(equal, axis, axis=1).all(axis=1)
        along = points[line, axis]
        below, above = along[along < query[axis]], along[along > query[axis]]
        if len(below) and len(above):
            line &= (points[:, axis] == below.max()) | (points[:, axis] == above.min())
            return line
    corners = []
    for axis in range(points.shape[1]):
        along = points[:, axis]
        if equal[:, axis].any():
            corners.append([equal[:, axis]])
            continue
        below, above = along[along < query[axis]], along[along > query[axis]]
        if not (len(below) and len(above)):
            return None
        corners.append([along == below.max(), along == above.min()])
    cell = [np.all(corner, axis=0) for corner in itertools.product(*corners)]
    together: NDArray[np.bool_] = np.any(cell, axis=0)
    return together if all(corner.any() for corner in cell) else None


def _span(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest value of each column, NaN for a column of NaN only."""
    low = np.where(np.isnan(points), np.inf, points).min(axis=0)
    high = np.where(np.isnan(points), -np.inf, points).max(axis=0)
    return np.where(np.isinf(low), np.nan, low), np.where(np.isinf(high), np.nan, high)


def _mean(column: FloatArray) -> float:
    known = column[~np.isnan(column)]
    return float(known.mean()) if len(known) else 0.0


def _log2(value: float | None) -> float:
    return math.nan if value is None else math.log2(value)


def _order(place: _Place) -> tuple[float, ...]:
    return tuple(-math.inf if value is None else value for value in place)
