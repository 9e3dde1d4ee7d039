"""ξ for pairs that were not measured: the seven known traps, each shown to catch a naive version, and properties."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models.measure.xi_measurements import merged, xi_to_frame
from bft.models.sharing.xi_estimator import XiEstimator
from bft.models.sharing.xi_table import FLAGS, Measurement, XiTable, xi_from_frame

BATCHES = (16.0, 32.0, 64.0, 128.0)


class Naive:
    """What one writes first: a table by its exact key, and a straight line through its last two points beyond."""

    def __init__(self, rows: list[Measurement]) -> None:
        self.rows = rows

    def along(self, axis: str, value: float, **fixed: object) -> float:
        """ξ of a along one coordinate, the others being as measured."""
        points = sorted(
            (getattr(row, axis), row.xi_a)
            for row in self.rows
            if all(getattr(row, name) == wanted for name, wanted in fixed.items())
        )
        x, y = np.array(points).T
        if x[0] <= value <= x[-1]:
            return float(np.interp(value, x, y))
        slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
        return float(y[-1] + slope * (value - x[-1]))

    def exact(self, **wanted: object) -> float:
        """ξ of a in the first matching row, 1 without one."""
        fitting = [
            row.xi_a
            for row in self.rows
            if all(getattr(row, name) == value for name, value in wanted.items())
        ]
        return fitting[0] if fitting else 1.0


def pair(
    xi_a: float,
    xi_b: float = 1.1,
    *,
    a: float = 32,
    b: float = 32,
    units: float | None = None,
) -> Measurement:
    return Measurement("a", "b", xi_a, xi_b, a, b, units)


def grid(law: float = 0.1) -> list[Measurement]:
    """Both batch sizes varied; the partner's raises ξ by `law` a doubling, one's own lowers it by half that."""
    return [
        pair(1.3 + law * math.log2(b / 16) - law / 2 * math.log2(a / 16), 1.1, a=a, b=b)
        for a, b in itertools.product(BATCHES, BATCHES)
    ]


def test_trap_1_outside_the_measured_range() -> None:
    rows = [pair(1.6, a=a) for a in (16.0, 32.0)] + [pair(1.3, a=64.0)]
    assert Naive(rows).along("batch_a", 256.0, batch_b=32) < 1, (
        "a line beyond the range says that sharing speeds up"
    )
    found = XiEstimator(rows).estimate("a", "b", 256, 32)
    assert found is not None
    assert found.flag == "clamped"
    assert 1.2 <= found.xi_a <= 1.6
    far, farther = (
        XiEstimator(grid()).estimate("a", "b", 16, 2.0**k) for k in (20, 30)
    )
    assert far is not None
    assert far == farther, "a trend is believed for one doubling"


def test_trap_2_several_coordinates_without_data_at_once() -> None:
    rows = [row for row in grid() if row.batch_a != 64 and row.batch_b != 64]
    refused(
        "not enough values",
        Naive(rows).along,
        "batch_a",
        64,
        batch_b=64,
        error=ValueError,
    )  # no row has the partner's batch, so there is no line to be on
    found = XiEstimator(rows).estimate("a", "b", 64, 64)
    assert found is not None
    assert found.flag == "interpolated"
    assert found.xi_a == pytest.approx(1.4, abs=0.06)
    with_units = XiEstimator(
        [pair(1.2, a=16, b=16, units=1), pair(1.5, a=64, b=64, units=4)]
    )
    none_of_three = with_units.estimate("a", "b", 32, 32, 2)
    assert none_of_three is not None
    assert none_of_three.flag == "clamped"
    assert 1.2 <= none_of_three.xi_a <= 1.5


def test_trap_3_extrapolation_with_slope_0_on_noisy_data() -> None:
    # ξ rises by 0.1 a doubling; the last measurement came out as low as the one before.
    truth = {
        b: 1.1 + 0.1 * math.log2(b / 8) for b in (8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
    }
    measured = {**truth, 128.0: truth[64.0] - 0.1}
    rows = [pair(measured[b], b=b) for b in list(truth)[:-1]]
    naive = float(np.interp(256, list(truth)[:-1], [row.xi_a for row in rows]))
    assert naive == measured[128.0], (
        "np.interp goes on with slope 0, at a value that is noise"
    )
    found = XiEstimator(rows).estimate("a", "b", 32, 256)
    assert found is not None
    assert found.flag == "clamped"
    assert abs(found.xi_a - truth[256.0]) < 0.75 * abs(naive - truth[256.0])
    assert found.xi_a > measured[128.0] + 0.05


def test_trap_4_partner_batch_beyond_the_measured_maximum() -> None:
    rows = [pair(xi, b=b) for b, xi in ((16.0, 1.2), (32.0, 1.35), (64.0, 1.5))]
    assert Naive(rows).exact(batch_b=128) == 1.0, (
        "not found, hence taken to be harmless"
    )
    for noise in (0.0, 0.4):
        noisy = [*rows[:-1], pair(1.5 - noise, b=64)]
        least = max(1.0, noisy[-1].xi_a)
        for batch in (65, 128, 1024):
            found = XiEstimator(noisy).estimate("a", "b", 32, batch)
            assert found is not None
            assert found.flag == "clamped"
            assert found.xi_a >= least, (
                "a larger batch of the partner does not disturb less"
            )


@pytest.mark.parametrize("units", [3, 5, 6, 7])
def test_trap_5_odd_unit_counts(units: int) -> None:
    rows = [pair(xi, units=n) for n, xi in ((1, 1.1), (2, 1.2), (4, 1.4), (8, 1.8))]
    assert Naive(rows).exact(units=units) == 1.0, "no such row"
    found = XiEstimator(rows).estimate("a", "b", 32, 32, units)
    below = 2 ** int(math.log2(units))
    low, high = (Naive(rows).exact(units=n) for n in (below, 2 * below))
    assert found is not None
    assert found.flag == "interpolated"
    assert low <= found.xi_a <= high


def test_trap_6_the_same_model_twice_with_batches_swapped() -> None:
    rows = [
        Measurement("a", "a", 1.2, 1.5, 16, 64),
        Measurement("a", "a", 1.3, 1.25, 64, 16),
        Measurement("a", "a", 1.4, 1.3, 32, 32),
    ]
    assert Naive(rows).exact(batch_a=16, batch_b=64) != rows[1].xi_b, (
        "the side that a row is told from changes it"
    )
    estimator = XiEstimator(rows)
    for one, other in itertools.product((8, 16, 24, 32, 64, 256, None), repeat=2):
        found, swapped = (
            estimator.estimate("a", "a", one, other),
            estimator.estimate("a", "a", other, one),
        )
        assert found is not None
        assert swapped is not None
        assert (found.xi_a, found.xi_b, found.flag) == (
            swapped.xi_b,
            swapped.xi_a,
            swapped.flag,
        )
    alike = estimator.estimate("a", "a", 32, 32)
    assert alike is not None
    assert alike.xi_a == alike.xi_b == pytest.approx(1.35)


def test_trap_7_an_axis_with_one_measured_value_only() -> None:
    rows = [
        pair(1.3, a=32),
        *(
            Measurement("c", "b", 1.2 + 0.1 * k, 1.1, 2.0 ** (4 + k), 32)
            for k in range(4)
        ),
    ]
    refused(
        "", Naive([rows[0]]).along, "batch_a", 64, batch_b=32, error=IndexError
    )  # one point has no slope
    found = XiEstimator(rows).estimate("a", "b", 64, 32)
    assert found is not None
    assert found.flag == "clamped"
    assert 1.3 < found.xi_a < 1.5, (
        "by its own point, with the slope that other models have"
    )
    alone = XiEstimator(rows[:1]).estimate("a", "b", 64, 32, 3)
    assert alone is not None
    assert alone.xi_a == pytest.approx(1.3, abs=0.03), "nothing tells a slope"


def test_measured_answers_are_the_medians_of_repetitions() -> None:
    rows = [
        pair(1.2),
        pair(1.9),
        Measurement("b", "a", 1.1, 1.3, 32, 32),
        pair(0.8, a=64),
    ]
    estimator = XiEstimator(rows)
    repeated, noise = (
        estimator.estimate("a", "b", 32, 32),
        estimator.estimate("a", "b", 64, 32),
    )
    assert repeated is not None
    assert (repeated.xi_a, repeated.flag) == (pytest.approx(1.3), "measured")
    assert noise is not None
    assert noise.xi_a == 1.0
    unknown_batch = estimator.estimate("a", "b")
    assert unknown_batch is not None
    assert (unknown_batch.xi_a, unknown_batch.flag) == (
        pytest.approx(1.3),
        "measured",
    ), "the largest that fits"


def test_models_that_never_met_are_guessed_and_unknown_ones_are_not() -> None:
    rows = [
        *grid(),
        Measurement("c", "b", 1.9, 1.1, 32, 32),
        Measurement("d", "c", 1.0, 1.0, 32, 32),
    ]
    estimator = XiEstimator(rows)
    met = estimator.estimate("a", "d", 32, 32)
    assert met is not None
    assert met.flag == "guessed"
    new = estimator.estimate("a", "new", 32, 8)
    assert new is not None
    assert new.flag == "guessed"
    assert estimator.estimate("new", "newer") is None
    refused("no measurements", XiEstimator, [], error=ValueError)
    refused(
        "no measurements",
        XiEstimator,
        [Measurement("a", "b", 1.2, 1.1, flag="guessed")],
        error=ValueError,
    )


MODELS = st.sampled_from(["a", "b", "c"])
MAYBE = st.none() | st.sampled_from([1.0, 3.0, 16.0, 32.0, 64.0, 1e6])
ROWS = st.lists(
    st.builds(
        Measurement,
        MODELS,
        MODELS,
        st.floats(0.5, 9.0),
        st.floats(0.5, 9.0),
        MAYBE,
        MAYBE,
        MAYBE,
    ),
    min_size=1,
    max_size=12,
)


@given(ROWS, MODELS, MODELS, MAYBE, MAYBE, MAYBE, st.randoms(use_true_random=False))
def test_answers_are_symmetric_at_least_1_bounded_flagged_and_of_no_order(
    rows: list[Measurement],
    model_a: str,
    model_b: str,
    batch_a: float | None,
    batch_b: float | None,
    units: float | None,
    random: object,
) -> None:
    estimator = XiEstimator(rows)
    found = estimator.estimate(model_a, model_b, batch_a, batch_b, units)
    known = {name for row in rows for name in (row.model_a, row.model_b)}
    assert (found is None) == (not known & {model_a, model_b})
    if found is None:
        return
    swapped = estimator.estimate(model_b, model_a, batch_b, batch_a, units)
    assert swapped is not None
    assert (swapped.xi_b, swapped.xi_a, swapped.flag) == (
        found.xi_a,
        found.xi_b,
        found.flag,
    )
    most = max(1.0, *(max(row.xi_a, row.xi_b) for row in rows))
    assert min(found.xi_a, found.xi_b) >= 1.0
    assert max(found.xi_a, found.xi_b) <= most * (1 + 1e-9)
    assert found.flag in FLAGS
    other = rows.copy()
    random.shuffle(other)  # type: ignore[attr-defined]
    turned = [row.swapped() if random.random() < 0.5 else row for row in other]  # type: ignore[attr-defined]
    assert (
        XiEstimator(turned).estimate(model_a, model_b, batch_a, batch_b, units) == found
    )


@given(ROWS)
def test_merged_rows_are_canonical_and_idempotent(rows: list[Measurement]) -> None:
    once = merged(rows)
    assert merged(once) == once
    assert merged([row.swapped() for row in reversed(rows)]) == once
    assert all(min(row.xi_a, row.xi_b) >= 1 for row in once)


def test_an_estimated_table_keeps_measurements_and_flags_estimates() -> None:
    measured = merged([*grid(), Measurement("c", "c", 1.5, 1.6, 32, 32)])
    estimator = XiEstimator(measured)
    kinds = [("a", 48.0), ("a", 32.0), ("b", 32.0), ("c", None)]
    filled = estimator.fill(kinds)
    table = xi_from_frame(xi_to_frame([*measured, *filled]))
    assert len(table.measurements) == len(measured) + len(filled)
    assert sum(table.estimated.values()) == len(filled)
    assert table.estimated.keys() == {"interpolated", "guessed"}
    assert {row.flag for row in estimator.fill(kinds, guess=False)} == {"interpolated"}
    assert XiTable(measured).estimated == {}
    assert [(row.model_a, row.model_b) for row in filled].count(("a", "b")) == 1, (
        "32 beside 32 was measured"
    )


@pytest.mark.slow
@pytest.mark.reference
def test_better_than_both_baselines_on_the_published_pairs(reference: Path) -> None:
    frame = pd.read_csv(reference / "lucid" / "xi_pairs_from_colocate_info.csv")
    amp = {0: "", 1: "+amp"}
    rows = [
        Measurement(
            r.model1 + amp[r.amp1],
            r.model2 + amp[r.amp2],
            r.xi1,
            r.xi2,
            r.batchsize1,
            r.batchsize2,
        )
        for r in frame.itertuples()
    ]
    assert len(rows) == 1388
    configurations = sorted(
        {
            kind
            for row in rows
            for kind in ((row.model_a, row.batch_a), (row.model_b, row.batch_b))
        }
    )
    assert len(configurations) == 56
    whole = [
        [
            at
            for at, row in enumerate(rows)
            if kind in ((row.model_a, row.batch_a), (row.model_b, row.batch_b))
        ]
        for kind in configurations
    ]
    for folds in ([[at] for at in range(0, len(rows), 40)], whole):
        errors: dict[str, list[float]] = {"estimator": [], "one": [], "mean": []}
        for fold in folds:
            out = set(fold)
            rest = [row for at, row in enumerate(rows) if at not in out]
            sides = [side for row in rest for side in (row, row.swapped())]
            seen = pd.DataFrame(
                {
                    "model": [s.model_a for s in sides],
                    "xi": [max(s.xi_a, 1.0) for s in sides],
                }
            )
            means = seen.groupby("model")["xi"].mean()
            estimator = XiEstimator(rest)
            for at in fold:
                row = rows[at]
                found = estimator.estimate(
                    row.model_a, row.model_b, row.batch_a, row.batch_b
                )
                assert found is not None
                for side, answer in ((row, found.xi_a), (row.swapped(), found.xi_b)):
                    truth = max(side.xi_a, 1.0)
                    errors["estimator"].append(answer - truth)
                    errors["one"].append(1.0 - truth)
                    errors["mean"].append(means[side.model_a] - truth)
        for measure in (
            lambda e: np.abs(e).mean(),
            lambda e: np.sqrt(np.square(e).mean()),
            lambda e: np.median(np.abs(e)),
        ):
            ours, one, mean = (
                float(measure(np.array(errors[name])))
                for name in ("estimator", "one", "mean")
            )
            assert ours < 0.7 * one
            assert ours < 0.7 * mean
