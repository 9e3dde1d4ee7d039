"""Sharing scores: from measured pairs, and from profiles; no label among the features."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models.learned.packing import (
    FEATURES,
    PackingAnalyser,
    sharing_scores,
)
from bft.models.learned.saved_models import to_plain


def leave_one_model_out(frame: pd.DataFrame) -> pd.Series:
    """Scores of each profile by an analyser that has seen no profile of the same model."""
    scores = [
        pd.Series(PackingAnalyser.train(frame.drop(own.index)).scores(own), own.index)
        for _, own in frame.groupby("model")
    ]
    return pd.concat(scores).loc[frame.index]


def profiles(rows: int = 80, seed: int = 0) -> pd.DataFrame:
    """Models whose score follows from how busy the unit and its memory are."""
    rng = np.random.default_rng(seed)
    gpu, memory = rng.uniform(0, 100, rows), rng.uniform(0, 100, rows)
    return pd.DataFrame(
        {
            "model": [f"m{i % 8}" for i in range(rows)],
            "gpu_util": gpu,
            "gmem_util": memory,
            "gmem": rng.uniform(2000, 20000, rows),
            "amp": rng.integers(0, 2, rows),
            "label": (gpu > 30).astype(int) + (memory > 50) * (gpu > 30),
        }
    )


def pair(speed1: float, speed2: float, **changes: Any) -> dict[str, Any]:
    names = {
        "model1": "a",
        "batchsize1": 32,
        "amp1": 0,
        "model2": "b",
        "batchsize2": 32,
        "amp2": 0,
    }
    return {**names, "speed1": speed1, "speed2": speed2, **changes}


@pytest.mark.parametrize(
    ("speed", "label"),
    [(0.2, 2), (0.8499, 2), (0.85, 1), (0.9499, 1), (0.95, 0), (1.0, 0), (1.3, 0)],
)
def test_a_mean_speed_gives_its_score(speed: float, label: int) -> None:
    scored = sharing_scores(pd.DataFrame([pair(speed, 1.0)]))
    assert scored[["model", "pairings", "label"]].to_numpy().tolist() == [
        ["a", 1, label],
        ["b", 1, 0],
    ]


def test_a_tree_does_not_depend_on_the_order_of_profiles() -> None:
    table = profiles()
    trees = [
        to_plain(PackingAnalyser.train(table.sample(frac=1.0, random_state=seed)))
        for seed in range(4)
    ]
    assert all(tree == trees[0] for tree in trees)


def test_profiles_without_a_feature_are_not_scored() -> None:
    told = "missing columns gmem_util, gmem, amp"
    refused(told, ANALYSER.scores, pd.DataFrame({"gpu_util": [1.0]}))


def test_all_pairings_of_either_side_count() -> None:
    rows = [
        pair(0.9, 1.0),
        pair(1.0, 0.7, model1="c", model2="a"),
        pair(0.8, 0.6, model2="a"),
    ]
    scored = sharing_scores(pd.DataFrame(rows)).set_index("model")
    assert scored.loc["a", "pairings"] == 4  # beside itself it was measured twice
    assert scored.loc["a", "speed"] == pytest.approx((0.9 + 0.7 + 0.8 + 0.6) / 4)
    assert scored["pairings"].sum() == 2 * len(rows)


def test_batch_precision_and_dataset_make_a_configuration() -> None:
    rows = [pair(1, 1), pair(1, 1, amp1=1), pair(1, 1, batchsize1=64)]
    assert len(sharing_scores(pd.DataFrame(rows))) == 4
    sets = [{**row, "dataset1": "x", "dataset2": "y"} for row in rows]
    assert sharing_scores(pd.DataFrame(sets))["dataset"].tolist() == [
        "x",
        "x",
        "x",
        "y",
    ]


def test_features_are_of_the_solo_run_and_not_of_its_score() -> None:
    assert FEATURES == ("gpu_util", "gmem_util", "gmem", "amp")
    frame = profiles()
    analyser = PackingAnalyser.train(frame)
    told = analyser.scores(frame)
    other = frame.assign(label=2 - frame["label"], speed=0.0, model="z")
    assert (analyser.scores(other) == told).all()
    assert (analyser.scores(frame.drop(columns=["label", "model"])) == told).all()


def test_a_rule_is_learned_and_shuffled_labels_teach_nothing() -> None:
    frame = profiles(400)
    assert (leave_one_model_out(frame) == frame["label"]).mean() > 0.9
    mixed = frame.assign(label=np.random.default_rng(1).permutation(frame["label"]))
    majority = frame["label"].value_counts(normalize=True).max()
    assert (leave_one_model_out(mixed) == mixed["label"]).mean() < majority + 0.05


ANALYSER = PackingAnalyser.train(profiles())


@given(*(st.floats(0, 100),) * 4, st.floats(0, 30_000), st.integers(0, 1))
def test_a_busier_job_never_disturbs_less(
    gpu: float,
    more_gpu: float,
    memory: float,
    more_memory: float,
    gmem: float,
    amp: int,
) -> None:
    less = {"gpu_util": gpu, "gmem_util": memory, "gmem": gmem, "amp": amp}
    more = {**less, "gpu_util": gpu + more_gpu, "gmem_util": memory + more_memory}
    low, high = ANALYSER.scores(pd.DataFrame([less, more]))
    assert 0 <= low <= high <= 2


def test_rules_say_what_the_analyser_says() -> None:
    lines = ANALYSER.rules().splitlines()

    def follow(profile: dict[str, float]) -> int:
        at = 0
        while not lines[at].strip().startswith("sharing score"):
            feature, sign, threshold = lines[at].split()
            holds = (
                profile[feature] <= float(threshold)
                if sign == "<="
                else profile[feature] > float(threshold)
            )
            if holds:
                at += 1
            else:  # the other way is at the same indent
                indent = len(lines[at]) - len(lines[at].lstrip())
                at = next(
                    i
                    for i in range(at + 1, len(lines))
                    if len(lines[i]) - len(lines[i].lstrip()) == indent
                )
        return int(lines[at].split()[-1])

    table = profiles(60, seed=5)[list(FEATURES)]
    told = [follow(profile) for profile in table.to_dict(orient="records")]
    assert told == ANALYSER.scores(table).tolist()


def test_steps_that_change_nothing_are_not_told() -> None:
    assert (
        PackingAnalyser.train(profiles().assign(label=1)).rules() == "sharing score 1"
    )
    scores = [line for line in ANALYSER.rules().splitlines() if "score" in line]
    assert len(scores) >= 3


@pytest.mark.reference
def test_published_labels_are_those_of_the_pairs_where_these_say_so(
    reference: Path,
) -> None:
    profiles = pd.read_csv(reference / "lucid" / "single_data.csv")
    scored = sharing_scores(pd.read_csv(reference / "lucid" / "colocate_info.csv"))
    keys = ["model", "dataset", "batchsize", "amp"]
    both = profiles.merge(scored, on=keys, suffixes=("_published", ""))
    # Ten profiles (BERT, ResNet50, Transformer) have no published pair; of the other 56, 14 differ.
    assert len(both) == 56
    assert (both["label"] == both["label_published"]).sum() == 42
    assert scored["pairings"].sum() == 2 * 1388


@pytest.mark.reference
def test_profiles_tell_the_score_of_models_never_seen(reference: Path) -> None:
    profiles = pd.read_csv(reference / "lucid" / "single_data.csv")
    label = profiles["label"].to_numpy()
    predicted = leave_one_model_out(profiles)
    majority = np.bincount(label).max() / len(label)
    # Measured: 44 of 66 = 0.667, majority 0.379, shuffled labels 0.275; one profile is off by two classes.
    assert (predicted == label).mean() >= 0.65 > majority
    assert (np.abs(predicted - label) == 2).sum() <= 1
    mixed = profiles.assign(label=np.random.default_rng(0).permutation(label))
    assert (leave_one_model_out(mixed) == mixed["label"]).mean() < 0.5
