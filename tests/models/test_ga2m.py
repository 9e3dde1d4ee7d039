"""GA2M: the part kept of the library's model predicts as the library does; training is reproducible; accuracy."""

import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused

from bft.models.learned.ga2m import (
    MIN_ROWS,
    AdditiveModel,
    Term,
    accuracy,
    additive,
    fit_ga2m,
)
from bft.models.learned.saved_models import from_plain, to_plain


def data(rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Continuous, few-valued, constant and integer features; many ties at what will be cut points."""
    rng = np.random.default_rng(seed)
    x = np.column_stack(
        [
            rng.normal(size=rows),
            rng.integers(0, 4, rows),
            np.full(rows, 7.0),
            rng.exponential(1e4, rows).round(),
        ]
    )
    return x, x[:, 0] * x[:, 1] + np.log1p(x[:, 3]) + 0.1 * rng.normal(size=rows)


def unseen() -> np.ndarray:
    """Rows around and far beyond those learnt from."""
    x, _ = data(500, seed=1)
    far = np.array([[-1e9, -5, -7, -1], [1e9, 50, 1e6, 1e12], [0, 1.5, 7, 0]])
    return np.vstack([x, data()[0], far])


@pytest.mark.parametrize("pairs", [0, 3])
@pytest.mark.parametrize("bins", [8, 1024])
def test_tables_of_a_ga2m_predict_as_the_library_to_the_last_digits(
    pairs: int, bins: int
) -> None:
    from interpret.glassbox import ExplainableBoostingRegressor

    x, y = data()
    machine = ExplainableBoostingRegressor(
        feature_types=["continuous"] * 4,
        interactions=pairs,
        max_bins=bins,
        max_rounds=40,
        outer_bags=2,
        n_jobs=1,
    ).fit(x, y)
    tables = additive(machine)
    assert sum(len(term.features) == 2 for term in tables.terms) == pairs
    np.testing.assert_allclose(
        tables.predict(unseen()), machine.predict(unseen()), rtol=1e-12, atol=1e-12
    )


def test_what_is_learnt_does_not_depend_on_the_order_of_rows() -> None:
    x, y = data()
    other = np.random.default_rng(1).permutation(len(y))
    learnt, again = fit_ga2m(x, y, seed=3), fit_ga2m(x[other], y[other], seed=3)
    assert to_plain(learnt) == to_plain(again)
    read = from_plain(AdditiveModel, to_plain(learnt))
    assert read.predict(unseen()).tobytes() == learnt.predict(unseen()).tobytes()
    assert accuracy(np.exp(learnt.predict(x)), np.exp(y)).r2_log > 0.5  # it did learn


def test_prediction_of_a_row_does_not_depend_on_the_others() -> None:
    model = fit_ga2m(*data())
    rows = unseen()
    apart = np.concatenate([model.predict(rows[:1]), model.predict(rows[1:])])
    np.testing.assert_array_equal(apart, model.predict(rows))
    assert model.predict(rows[:0]).shape == (0,)


def test_the_fewest_rows_are_enough_and_one_less_is_refused() -> None:
    x, y = data(MIN_ROWS)
    assert np.isfinite(fit_ga2m(x, y).predict(unseen())).all()
    refused("19 rows to learn from, expected at least 20", fit_ga2m, x[1:], y[1:])


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.sampled_from([0.0, 1.0, 5.0, 1e5])),
        min_size=2,
        max_size=60,
    ),
)
def test_accuracy_agrees_with_other_implementations(
    rows: list[tuple[float, float]],
) -> None:
    from scipy import stats

    predicted, actual = (np.array(column) for column in zip(*rows, strict=True))
    for column in (predicted, actual):  # squares of smaller differences are 0
        assume(np.ptp(column) == 0 or np.ptp(column) > 1e-100)
    figures = accuracy(predicted, actual)
    assert figures.mae == pytest.approx(np.mean([abs(p - a) for p, a in rows]))
    if len(set(actual)) > 1:
        from sklearn.metrics import r2_score

        assert figures.r2 == pytest.approx(r2_score(actual, predicted), rel=1e-6)
        assert figures.r2_log == pytest.approx(
            r2_score(np.log1p(actual), np.log1p(predicted)), rel=1e-6
        )
        if len(set(predicted)) > 1:
            assert figures.rank == pytest.approx(
                stats.spearmanr(predicted, actual).statistic, abs=1e-9
            )
    else:
        assert np.isnan([figures.r2, figures.rank]).all()


def test_slope_is_one_for_calibrated_and_less_for_exaggerated_predictions() -> None:
    logs = np.random.default_rng(0).uniform(2, 10, 4000)
    actual = np.expm1(logs + np.random.default_rng(1).normal(size=4000))
    assert accuracy(np.expm1(logs), actual).slope == pytest.approx(1, abs=0.02)
    assert accuracy(np.expm1(2 * logs), actual).slope == pytest.approx(0.5, abs=0.01)


def test_a_term_changes_at_its_cut_and_not_before() -> None:
    step = Term((0,), (np.array([5.0]),), np.array([-1.0, 1.0]))
    pair = Term(
        (0, 1), (np.array([2.0]), np.array([0.5])), np.array([[0.1, -0.1], [0.0, 0.0]])
    )
    x = np.array([[np.nextafter(5.0, 0), 0.0], [5.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    model = AdditiveModel(3.0, (pair, step))
    np.testing.assert_allclose(model.predict(x), [2.0, 4.0, 2.1, 1.9])


def test_a_missing_library_is_reported_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "interpret.glassbox", None)
    remedy = r"which is not installed \(pip install interpret-core "
    refused(remedy, fit_ga2m, *data())
