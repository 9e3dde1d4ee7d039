"""Admission by deadlines and the accounting against ElasticFlow's run, whose data come with the repository."""

from typing import Any

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def fidelity(benchmark: Any) -> Any:
    return benchmark("fidelity_elasticflow")


def test_all_jobs_that_it_accepted_are_accepted_and_end_in_its_slots(
    fidelity: Any,
) -> None:
    jobs = fidelity.read_jobs(fidelity.FOLDER)
    run = pd.read_csv(fidelity.RUN)
    allocations = pd.read_csv(fidelity.ALLOCATIONS)
    policy = fidelity.schedule(allocations)
    end_s, refused = fidelity.replayed(
        jobs, policy, fidelity.CACHED, units=64 * len(jobs)
    )
    assert refused == 0
    late = fidelity.in_slots(allocations, end_s, 2.0) - run["end_s"].to_numpy()
    assert np.sum(np.abs(late) < 1) == 68
    assert np.abs(np.mean(late)) < 5
    long = (run["jct_s"] > run["jct_s"].mean()).to_numpy()
    assert (np.abs(late) / run["jct_s"])[long].max() < 0.01


def test_with_promises_on_few_gpus_jobs_are_refused(
    fidelity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the acceptance of all 100 would show nothing.
    monkeypatch.setattr(fidelity, "UNITS", 4)
    jobs = fidelity.read_jobs(fidelity.FOLDER)
    policy = fidelity.schedule(pd.read_csv(fidelity.ALLOCATIONS))
    _, refused = fidelity.replayed(jobs, policy, units=64 * len(jobs))
    assert refused == 6


def test_its_jobs_have_power_of_two_sizes_and_the_rates_of_its_tables(
    fidelity: Any,
) -> None:
    job = fidelity.read_jobs(fidelity.FOLDER).jobs[1]  # gpt2, batch 256
    assert job.sizes == (1, 2, 4, 8, 16, 32)
    assert job.rates[[1, 32]].tolist() == [4.097335755464108, 18.85539353465517]
    assert job.pmax / job.rates[1] == pytest.approx(4830, rel=1e-3)  # its duration
