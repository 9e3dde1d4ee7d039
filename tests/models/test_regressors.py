"""Regressors: the part kept of a library's model predicts as the library does, and training is reproducible."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.models import InputError
from bft.models.learned.regressors import (
    KINDS,
    MIN_ROWS,
    AdditiveModel,
    Term,
    additive,
    fit_regressor,
    from_sklearn,
    importance,
    regressor_from_document,
)
from bft.models.learned.saved_models import accuracy, write_shapes
from bft.models.learned.trees import from_forest, from_lightgbm, from_xgboost


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


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_learnt_does_not_depend_on_the_order_of_rows(kind: str) -> None:
    x, y = data()
    other = np.random.default_rng(1).permutation(len(y))
    learnt, again = fit_regressor(kind, x, y), fit_regressor(kind, x[other], y[other])
    assert learnt.to_document() == again.to_document()


def test_invalid_data_are_refused() -> None:
    x, y = data()
    for wrong in ((x[:, 0], y), (x, y[1:]), (x, np.full(len(y), np.nan))):
        with pytest.raises(ValueError, match="expected finite x of shape"):
            fit_regressor("ga2m", *wrong)


def test_trees_of_a_forest_predict_as_scikit_learn() -> None:
    from sklearn.ensemble import RandomForestRegressor

    x, y = data()
    forest = RandomForestRegressor(n_estimators=7, random_state=1, n_jobs=1).fit(x, y)
    np.testing.assert_allclose(
        from_forest(forest).predict(unseen()), forest.predict(unseen()), rtol=1e-12
    )


def test_trees_of_lightgbm_predict_as_lightgbm() -> None:
    import lightgbm

    x, y = data()
    booster = lightgbm.train(
        {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 3},
        lightgbm.Dataset(x, y),
        40,
    )
    np.testing.assert_allclose(
        from_lightgbm(booster).predict(unseen()), booster.predict(unseen()), rtol=1e-12
    )


def test_trees_of_xgboost_predict_as_xgboost_in_its_single_precision() -> None:
    import xgboost

    x, y = data()
    booster = xgboost.train(
        {"nthread": 1, "eta": 0.1}, xgboost.DMatrix(x, y, nthread=1), 40
    )
    theirs = booster.predict(xgboost.DMatrix(unseen(), nthread=1))
    np.testing.assert_allclose(
        from_xgboost(booster).predict(unseen()), theirs, rtol=2e-5, atol=2e-5
    )


def test_layers_predict_as_scikit_learn() -> None:
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import StandardScaler

    x, y = data()
    scaler = StandardScaler().fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = MLPRegressor(
            hidden_layer_sizes=(5, 4), max_iter=20, random_state=0
        ).fit(scaler.transform(x), y)
    near = unseen()[:-3]
    layers = from_sklearn(scaler, learner)
    np.testing.assert_allclose(
        layers.predict(near),
        learner.predict(scaler.transform(near)),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_learns_the_same_twice_and_survives_its_document(kind: str) -> None:
    x, y = data()
    first, second = fit_regressor(kind, x, y, seed=3), fit_regressor(kind, x, y, seed=3)
    assert first.to_document() == second.to_document()
    again = regressor_from_document(kind, first.to_document(), x.shape[1])
    assert again.predict(unseen()).tobytes() == first.predict(unseen()).tobytes()
    assert accuracy(np.exp(first.predict(x)), np.exp(y)).r2_log > 0.5  # it did learn


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_of_a_row_does_not_depend_on_the_others(kind: str) -> None:
    x, y = data()
    model = fit_regressor(kind, x, y)
    rows = unseen()
    together = model.predict(rows)
    np.testing.assert_array_equal(
        np.concatenate([model.predict(rows[:1]), model.predict(rows[1:])]), together
    )
    assert model.predict(rows[:0]).shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fewest_rows_are_enough_and_one_less_is_refused(kind: str) -> None:
    x, y = data(MIN_ROWS)
    assert np.isfinite(fit_regressor(kind, x, y).predict(unseen())).all()
    with pytest.raises(InputError, match="19 rows to learn from, expected at least 20"):
        fit_regressor(kind, x[1:], y[1:])


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="no kind of regressor 'svm'; there are ga2m"):
        fit_regressor("svm", *data())


@pytest.mark.parametrize(
    ("kind", "module"),
    [("ga2m", "interpret.glassbox"), ("lightgbm", "lightgbm"), ("xgboost", "xgboost")],
)
def test_a_missing_library_is_reported_with_its_remedy(
    kind: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(
        InputError,
        match=r"which is not installed \(pip install interpret-core lightgbm ",
    ):
        fit_regressor(kind, *data())


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


def tiny() -> tuple[AdditiveModel, np.ndarray]:
    x = np.column_stack([np.linspace(0, 10, 101), np.tile([0.0, 1.0], 51)[:101]])
    step = Term((0,), (np.array([5.0]),), np.array([-1.0, 1.0]))
    pair = Term(
        (0, 1), (np.array([2.0]), np.array([0.5])), np.array([[0.1, -0.1], [0.0, 0.0]])
    )
    return AdditiveModel(3.0, (pair, step)), x


def test_a_term_changes_at_its_cut_and_not_before() -> None:
    model, _ = tiny()
    x = np.array([[np.nextafter(5.0, 0), 0.0], [5.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(model.predict(x), [2.0, 4.0, 2.1, 1.9])


def test_shapes_are_drawn_with_the_same_bytes_each_time(tmp_path) -> None:
    model, x = tiny()
    assert importance(model, x).argmax() == 1
    for name in ("a.png", "b.png"):
        write_shapes(model, ("left", "right"), x, tmp_path / name, target="log s")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_other_kinds_have_no_shapes(tmp_path) -> None:
    model = fit_regressor("random_forest", *data())
    with pytest.raises(InputError, match=r"only a GA2M has shapes"):
        write_shapes(model, "abcd", data()[0], tmp_path / "a.png", target="s")
    assert not list(tmp_path.iterdir())
