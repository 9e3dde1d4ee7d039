"""Job tables of scenarios: identical trials, a first generation, wide jobs that start slowly."""

from __future__ import annotations

import pandas as pd
import pytest

from bft.datasets import dnn_scalability, generate_dnn_jobs, generate_scenario
from bft.models import InputError, jobs_from_frame

FIRST = "2021-02-10"


def test_a_mix_is_what_it_was() -> None:
    mix = generate_scenario("mix", jobs=9, seed=3, first_submit=FIRST)
    pd.testing.assert_frame_equal(
        mix, generate_dnn_jobs(jobs=9, seed=3, first_submit=FIRST)
    )


@pytest.mark.parametrize(
    ("scenario", "model", "count"), [("hpo", "ShuffleNet", 100), ("nas", "MnasNet", 20)]
)
def test_the_jobs_of_a_search_are_identical(
    scenario: str, model: str, count: int
) -> None:
    frame = generate_scenario(scenario, first_submit=FIRST)  # type: ignore[arg-type]
    assert len(frame) == count
    assert (frame.drop(columns="name").astype(str).nunique() == 1).all()
    assert frame["Ps"][0][1:] == list(dnn_scalability()[model].values())
    assert len(jobs_from_frame(frame)) == count


def test_large_models_are_wide_and_take_minutes_to_start() -> None:
    frame = generate_scenario("llm", jobs=40, seed=1, first_submit=FIRST)
    assert (frame["Jmin"].unique().tolist(), frame["Jmax"].unique().tolist()) == (
        [8],
        [64],
    )
    assert jobs_from_frame(frame).jobs[0].sizes == (8, 16, 32, 64)
    assert frame["Tcup"].between(139, 323).all()
    assert frame["Tcdw"].between(60, 300).all()
    assert frame["Tcup"].nunique() == 40
    assert (frame["Tsub"].diff().dropna() == pd.Timedelta(hours=1)).all()
    with pytest.raises(
        InputError, match="curve ends at 4 units; the scenario llm needs 8"
    ):
        generate_scenario("llm", first_submit=FIRST, curve={1: 1.0, 4: 3.0})


def test_any_curve_serves_in_its_order_of_sizes() -> None:
    curve = {4: 30.0, 1: 10.0}
    frame = generate_scenario(
        "hpo",
        jobs=2,
        first_submit=FIRST,
        curve=curve,
        model="mine",
        objective="efficiency",
    )
    job = jobs_from_frame(frame).jobs[1]
    assert (job.name, job.model, job.jmax) == ("J00001-mine", "mine", 4)
    assert (job.scalability.ps.tolist(), job.objective.ps.tolist()) == (
        [0.0, 10.0, 30.0],
        [0.0, 1.0, 3.0],
    )
    with pytest.raises(
        InputError,
        match="no curve of 'GPT' comes with the package: choose one of AlexNet",
    ):
        generate_scenario("hpo", first_submit=FIRST, model="GPT")
