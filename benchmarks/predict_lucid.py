"""Train Lucid's models on its published data; compare with later data and the published predictions.

python benchmarks/predict_lucid.py

Durations: learnt from jobs of the Venus log that had finished by 20 September, tested on those submitted after.
Submissions: learnt from April to August, tested in September.
Beside the GA2M of `bft.models` stand Lucid's four baselines, given the same features:
pip install lightgbm scikit-learn xgboost-cpu
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import xgboost
from _published import reference_folder
from _tables import print_head, print_row
from sklearn.ensemble import RandomForestRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bft.models.learned.duration import DurationEstimator, Forecaster, ahead
from bft.models.learned.ga2m import accuracy, any_order

FOREST = {"n_estimators": 50, "min_samples_leaf": 20, "max_features": 0.5, "random_state": 0}  # fmt: skip
BOOSTED = {"n_estimators": 200, "learning_rate": 0.05, "n_jobs": 1}
STEADY = {"min_child_samples": 50, "deterministic": True, "force_row_wise": True, "verbosity": -1}  # fmt: skip
NETWORK = {"hidden_layer_sizes": (64, 32), "batch_size": 256, "max_iter": 60}
BASELINES: dict[str, Any] = {
    "random forest": RandomForestRegressor(**FOREST),
    "LightGBM": lightgbm.LGBMRegressor(**BOOSTED, **STEADY),
    "XGBoost": xgboost.XGBRegressor(**BOOSTED, max_depth=6, min_child_weight=50),
    "perceptron": make_pipeline(
        StandardScaler(), MLPRegressor(**NETWORK, early_stopping=True, random_state=0)
    ),
}
# From when Venus' submit times count, the first day of the test of durations, and of that of submissions.
ORIGIN, LATER, SEPTEMBER = (
    pd.Timestamp(day, tz="UTC") for day in ("2020-04-01", "2020-09-21", "2020-09-01")
)
# Slots of ten minutes in a day.
DAY = 144


def learn(baseline: str, rows: pd.DataFrame, y: np.ndarray) -> Any:
    """Fit a baseline to rows of features."""
    x = rows.to_numpy()
    order = any_order(x, y, 0)
    return BASELINES[baseline].fit(x[order], y[order])


def print_accuracies(predictions: dict[str, np.ndarray], actual: np.ndarray) -> None:
    """Print how far predictions are from what came."""
    print_head("model", "rank correlation", "R² of the logarithm", "R²", "mean absolute error")  # fmt: skip
    for name, predicted in predictions.items():
        found = accuracy(predicted, actual)
        shares = (found.rank, found.r2_log, found.r2)
        print_row(name, *(f"{share:.3f}" for share in shares), f"{found.mae:,.2f}")


def durations(lucid: Path) -> None:
    """Predict how long jobs run."""
    jobs = pd.read_csv(lucid / "venus_sept_jobs_relative.csv.gz")
    jobs["submit_time"] = ORIGIN + pd.to_timedelta(jobs["submit_time"], unit="s")
    finish = jobs["submit_time"] + pd.to_timedelta(jobs["duration"], unit="s")
    known = finish < LATER
    train, test, past = jobs[known], jobs[jobs["submit_time"] >= LATER], jobs[~known]
    model = DurationEstimator.train(train)
    predictions = {"GA2M": model.predict(test, past=past)}
    known_rows = model.inputs(train)
    later_rows = model.inputs(test, past=past).to_numpy()
    for name in BASELINES:
        learnt = learn(name, known_rows, np.log1p(train["duration"].to_numpy()))
        predictions[name] = np.expm1(learnt.predict(later_rows))
    for name, file in (
        ("published GA2M", "Venus_Sept_ebm_weekly_updated"),
        ("published LightGBM", "Venus_Sept_lgb"),
    ):
        table = pd.read_csv(lucid / f"{file}.csv.gz").drop_duplicates("job_id")
        stated = table.set_index("job_id")["priority"].reindex(test["job_id"])
        predictions[name] = stated.to_numpy(dtype=float)
    print(f"durations, s: {len(train)} jobs learnt from, {len(test)} predicted\n")
    print_accuracies(predictions, test["duration"].to_numpy(dtype=float))


def forecasts(lucid: Path) -> None:
    """Predict how many GPU jobs are submitted in the next ten minutes."""
    slots = pd.read_csv(lucid / "cluster_throughput.csv.gz")
    known = int((pd.to_datetime(slots["time"], utc=True) < SEPTEMBER).sum())
    counts = slots["submit_gpu_job"].to_numpy(dtype=float)
    actual = ahead(counts, 1)[known - 1 :]
    later = slice(known - 1, known - 1 + len(actual))
    model = Forecaster.train(slots[:known], column="submit_gpu_job", horizon=1)
    published = pd.read_csv(lucid / "Venus_throughput_pred.csv.gz")["pred_gpu_job"]
    predictions = {
        "as the last ten minutes": counts[later],
        "GA2M": model.predict(slots)[later],
        "published GA2M": published.to_numpy(),
    }
    rows = model.inputs(slots)
    # The first day only serves as history.
    roots = np.sqrt(ahead(counts[:known], 1)[DAY:])
    for name in BASELINES:
        learnt = learn(name, rows[DAY : DAY + len(roots)], roots)
        found = learnt.predict(rows[later].to_numpy())
        predictions[name] = np.square(np.maximum(found, 0.0))
    print(f"\nGPU jobs in ten minutes: {known} learnt from, {len(actual)} predicted\n")
    print_accuracies(predictions, actual)


def main() -> None:
    """Print all tables."""
    lucid = reference_folder() / "lucid"
    durations(lucid)
    forecasts(lucid)


if __name__ == "__main__":
    main()
