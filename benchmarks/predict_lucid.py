"""Train Lucid's three models on its published data; compare with later data and the published predictions.

python benchmarks/predict_lucid.py [--quick]

Durations: learnt from jobs of the Venus log that had finished by 20 September, tested on those submitted after.
Submissions: learnt from April to August, tested in September. Packing: each model's profiles by the other models'.
Beside the GA2M of `bft.models` stand Lucid's four baselines, given the same features:
pip install lightgbm scikit-learn xgboost-cpu
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import xgboost
from _common import reference_folder
from sklearn.ensemble import RandomForestRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bft.models.learned.duration import DurationEstimator, Forecaster, ahead
from bft.models.learned.ga2m import Accuracy, accuracy, any_order
from bft.models.learned.packing import (
    PackingAnalyser,
    leave_one_model_out,
    sharing_scores,
)

BASELINES: dict[str, Callable[[], Any]] = {
    "random_forest": lambda: RandomForestRegressor(
        n_estimators=50, min_samples_leaf=20, max_features=0.5, random_state=0
    ),
    "lightgbm": lambda: lightgbm.LGBMRegressor(
        n_estimators=200,
        learning_rate=0.05,
        min_child_samples=50,
        deterministic=True,
        force_row_wise=True,
        n_jobs=1,
        verbosity=-1,
    ),
    "xgboost": lambda: xgboost.XGBRegressor(
        n_estimators=200, learning_rate=0.05, max_depth=6, min_child_weight=50, n_jobs=1
    ),
    "mlp": lambda: make_pipeline(
        StandardScaler(),
        MLPRegressor(
            hidden_layer_sizes=(64, 32),
            batch_size=256,
            early_stopping=True,
            max_iter=60,
            random_state=0,
        ),
    ),
}


def learn(kind: str, rows: pd.DataFrame, y: np.ndarray) -> Any:
    """Fit a baseline to rows of features."""
    x = rows.to_numpy()
    order = any_order(x, y, 0)
    return BASELINES[kind]().fit(x[order], y[order])


# From when Venus' submit times count, the first day of the test of durations, and of that of submissions.
ORIGIN, LATER, SEPTEMBER = (
    pd.Timestamp(day, tz="UTC") for day in ("2020-04-01", "2020-09-21", "2020-09-01")
)
# Slots of ten minutes in a day.
DAY = 144
HEAD = f"{'':16} {'MAE':>9} {'R²':>7} {'R² log':>7} {'rank':>6} {'slope':>6} {'fit s':>6} {'predict ms':>10}"


def calibration(predicted: np.ndarray, actual: np.ndarray) -> pd.DataFrame:
    """Return predictions in ten bins of about equal size, and the median and quartiles of what they came to."""
    frame = pd.DataFrame({"predicted": predicted, "actual": actual})
    # Equal predictions share their mean rank, and hence a bin.
    rank = frame["predicted"].rank(method="average")
    groups = frame.groupby(np.floor((rank - 0.5) / len(frame) * 10))
    columns = {"rows": groups.size(), "predicted": groups["predicted"].median()}
    for name, share in (("low", 0.25), ("median", 0.5), ("high", 0.75)):
        columns[f"actual_{name}"] = groups["actual"].quantile(share)
    return pd.DataFrame(columns).reset_index(drop=True)


def row(name: str, figures: Accuracy, *times: float) -> str:
    """A line of a table."""
    shown = (
        f"{times[0]:6.1f} {times[1] * 1e3:10.0f}" if times else f"{'-':>6} {'-':>10}"
    )
    return (
        f"{name:16} {figures.mae:9.2f} {figures.r2:7.3f} {figures.r2_log:7.3f} {figures.rank:6.3f} "
        f"{figures.slope:6.2f} {shown}"
    )


def durations(lucid: Path, kinds: list[str]) -> None:
    """Predict how long jobs run."""
    jobs = pd.read_csv(lucid / "venus_sept_jobs_relative.csv.gz")
    jobs["submit_time"] = ORIGIN + pd.to_timedelta(jobs["submit_time"], unit="s")
    finish = jobs["submit_time"] + pd.to_timedelta(jobs["duration"], unit="s")
    known = finish < LATER
    train, test, past = jobs[known], jobs[jobs["submit_time"] >= LATER], jobs[~known]
    actual = test["duration"].to_numpy(dtype=float)
    print(
        f"Durations, s: {len(train)} jobs learnt from, {len(test)} later ones predicted\n{HEAD}"
    )
    for name, file in (
        ("published GA2M", "Venus_Sept_ebm_weekly_updated"),
        ("published LGBM", "Venus_Sept_lgb"),
    ):
        published = (
            pd.read_csv(lucid / f"{file}.csv.gz")
            .drop_duplicates("job_id")
            .set_index("job_id")["priority"]
        )
        print(
            row(
                name,
                accuracy(
                    published.reindex(test["job_id"]).to_numpy(dtype=float), actual
                ),
            )
        )
    median = float(np.median(train["duration"]))
    print(row("median of past", accuracy(np.full(len(test), median), actual)))
    start = time.perf_counter()
    model = DurationEstimator.train(train)
    fitted = time.perf_counter()
    predicted = model.predict(test, past=past)
    times = fitted - start, time.perf_counter() - fitted
    print(row("ga2m", accuracy(predicted, actual), *times), flush=True)
    known_rows, later_rows = model.inputs(train), model.inputs(test, past=past)
    for kind in kinds:
        start = time.perf_counter()
        learnt = learn(kind, known_rows, np.log1p(train["duration"].to_numpy()))
        fitted = time.perf_counter()
        logs = learnt.predict(later_rows.to_numpy())
        times = fitted - start, time.perf_counter() - fitted
        print(row(kind, accuracy(np.expm1(logs), actual), *times), flush=True)
    table = calibration(predicted, actual).round(0).astype(int).to_string(index=False)
    print(
        f"\nDurations that GA2M predicted, s, in tenths, and what they came to\n{table}\n"
    )


def forecasts(lucid: Path, kinds: list[str]) -> None:
    """Predict how many GPU jobs are submitted in the next ten and fifty minutes."""
    slots = pd.read_csv(lucid / "cluster_throughput.csv.gz")
    begins = pd.to_datetime(slots["time"], utc=True)
    known = int((begins < SEPTEMBER).sum())
    counts = slots["submit_gpu_job"].to_numpy(dtype=float)
    for horizon in (1, 5):
        actual = ahead(counts, horizon)[known - 1 :]
        print(
            f"GPU jobs per ten minutes over the next {10 * horizon}: "
            f"{known} slots learnt from, {len(actual)} predicted\n{HEAD}  quiet right"
        )

        def show(
            name: str, predicted: np.ndarray, *times: float, actual: np.ndarray = actual
        ) -> None:
            # At most 2 jobs per ten minutes: Lucid stops sharing.
            quiet = ((predicted <= 2) == (actual <= 2)).mean()
            print(
                f"{row(name, accuracy(predicted, actual), *times)} {quiet:12.1%}",
                flush=True,
            )

        if horizon == 1:
            show(
                "published GA2M",
                pd.read_csv(lucid / "Venus_throughput_pred.csv.gz")[
                    "pred_gpu_job"
                ].to_numpy(),
            )
        recent = np.convolve(counts, np.full(horizon, 1 / horizon))[: len(counts)]
        show(f"as the last {10 * horizon} min", recent[known - 1 :][: len(actual)])
        start = time.perf_counter()
        model = Forecaster.train(
            slots[:known], column="submit_gpu_job", horizon=horizon
        )
        fitted = time.perf_counter()
        predicted = model.predict(slots)[known - 1 :][: len(actual)]
        show("ga2m", predicted, fitted - start, time.perf_counter() - fitted)
        rows = model.inputs(slots)
        # The first day only serves as history.
        y = ahead(counts[:known], horizon)[DAY:]
        for kind in kinds:
            start = time.perf_counter()
            learnt = learn(kind, rows[DAY : DAY + len(y)], np.sqrt(y))
            fitted = time.perf_counter()
            roots = learnt.predict(rows[known - 1 :][: len(actual)].to_numpy())
            seconds = fitted - start, time.perf_counter() - fitted
            show(kind, np.square(np.maximum(roots, 0.0)), *seconds)
        print()


def packing(lucid: Path) -> None:
    """Predict sharing scores of models from the profiles of other models."""
    profiles = pd.read_csv(lucid / "single_data.csv")
    computed = sharing_scores(pd.read_csv(lucid / "colocate_info.csv"))
    keys = ["model", "dataset", "batchsize", "amp"]
    both = profiles.merge(
        computed.drop(columns="speed"), on=keys, suffixes=("_published", "")
    )
    agree = int((both["label"] == both["label_published"]).sum())
    print(
        f"Sharing scores: {agree} of {len(both)} published labels are those of the published pairs"
    )
    print(
        f"{'labels':12} {'profiles':>8} {'majority':>9} {'left out':>9} {'off by 2':>9} {'shuffled':>9}"
    )
    rng = np.random.default_rng(0)
    for name, frame in (("published", profiles), ("computed", both)):
        label = frame["label"].to_numpy()
        predicted = leave_one_model_out(frame)
        shuffled = [
            (leave_one_model_out(frame.assign(label=mixed)) == mixed).mean()
            for mixed in (rng.permutation(label) for _ in range(20))
        ]
        print(
            f"{name:12} {len(frame):8} {np.bincount(label).max() / len(label):9.3f} {(predicted == label).mean():9.3f} "
            f"{(np.abs(predicted - label) == 2).mean():9.3f} {np.mean(shuffled):9.3f}"
        )
    print(PackingAnalyser.train(profiles).rules())


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="GA2M and LightGBM only")
    options = parser.parse_args()
    kinds = ["lightgbm"] if options.quick else list(BASELINES)
    lucid = reference_folder() / "lucid"
    durations(lucid, kinds)
    forecasts(lucid, kinds)
    packing(lucid)


if __name__ == "__main__":
    main()
