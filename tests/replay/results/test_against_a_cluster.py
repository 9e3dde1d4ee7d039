"""The comparison with a cluster: on a schedule whose clock is known, and on the recorded runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import make

from bft.replay.results.metrics import ideal_rate

ROUND_S = (150.0, 130.0, 110.0, 120.0, 140.0, 125.0)
# Rounds and first worker of each job; each ends with its last round, but 5 s are lost at each start.
HELD: dict[int, tuple[list[int], int, int]] = {
    0: ([0], 0, 1),
    1: ([0, 1], 1, 2),
    2: ([1, 2], 0, 1),
    3: ([0, 3], 3, 1),
    4: ([2, 3, 4], 1, 2),
    5: ([0, 2, 5], 4, 1),
}


@pytest.fixture
def cluster(benchmark: Any) -> Any:
    return benchmark("against_a_cluster")


@pytest.fixture
def recorded(cluster: Any) -> Any:
    """A run of six jobs in six rounds of known lengths."""
    clock = np.concatenate([[0.0], np.cumsum(ROUND_S)])
    rows, table, jobs = [], [], []
    for job, (rounds, first, gpus) in HELD.items():
        rows += [(each, job, first, first + gpus - 1) for each in rounds]
        starts = 1 + int((np.diff(rounds) > 1).sum())
        ran = sum(ROUND_S[each] for each in rounds) - 5.0 * starts
        table.append((0.0, gpus, ran))
        end = clock[rounds[-1] + 1]
        jobs.append((0.0, end, end, rounds[-1], ran * gpus))
    return cluster.Recorded(
        pd.DataFrame(table, columns=["arrival_s", "gpus", "exclusive_s"]),
        pd.DataFrame(
            jobs, columns=["arrival_s", "end_s", "jct_s", "last_round", "worker_run_s"]
        ),
        pd.DataFrame(rows, columns=["round", "job", "first_unit", "last_unit"]),
        pd.DataFrame(
            [(job, 5, 1.0) for job in HELD], columns=["job", "round", "ratio"]
        ),
    )


def test_the_engine_ends_jobs_where_the_clock_of_their_ends_has_them(
    cluster: Any, recorded: Any
) -> None:
    clock = cluster.measured_clock(recorded)
    assert clock[1:] == pytest.approx(np.cumsum(ROUND_S))
    measured = recorded.jobs["jct_s"].to_numpy()
    assert cluster.jct_s(recorded, clock) == pytest.approx(measured, abs=0.01)
    fixed = cluster.jct_s(recorded, cluster.fixed_clock(recorded))
    assert fixed == pytest.approx(120 * (recorded.jobs["last_round"] + 1), abs=0.01)


def test_a_job_that_is_left_out_is_dated_by_the_others(
    cluster: Any, recorded: Any
) -> None:
    # Jobs 3 and 4 alone date rounds 3 and 4; without job 3 round 3 lies between its neighbours.
    without = cluster.measured_clock(recorded, without=3)
    assert without[4] == pytest.approx((390 + 650) / 2)
    assert cluster.left_out_jct_s(recorded)[3] == pytest.approx(520, abs=0.01)
    # Nobody ends after job 5: its round is as long as the mean of those before it.
    assert cluster.left_out_jct_s(recorded)[5] == pytest.approx(650 * 6 / 5, abs=0.01)


def test_seconds_lost_at_starts_are_found_and_then_the_work_ends_in_the_last_round(
    cluster: Any, recorded: Any
) -> None:
    by_round, by_start = cluster.lost_s(recorded)
    assert (by_round, by_start) == pytest.approx((0.0, 5.0), abs=1e-9)
    needed = recorded.table["exclusive_s"]
    options = {"by_round": by_round, "by_start": by_start}
    off = cluster.rounds_off(recorded, needed, as_given=True, **options)
    assert off == pytest.approx(np.zeros(len(HELD)), abs=1e-9)
    # At half of the rate twice as many rounds would be needed.
    recorded.rates["ratio"] = 0.5
    off = cluster.rounds_off(recorded, needed, as_given=True, **options)
    assert off == pytest.approx(recorded.jobs.index.map(lambda job: len(HELD[job][0])))


@pytest.fixture
def shockwave(reference: Path) -> Path:
    folder = reference / "shockwave"
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}")
    return folder


OTHERS = ("min_total_duration", "max_sum_throughput_perf", "finish_time_fairness")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]


@pytest.mark.reference
@pytest.mark.parametrize("name", ["shockwave", *SLOW])
def test_the_recorded_schedules_give_the_measured_completion_times(
    cluster: Any, shockwave: Path, name: str
) -> None:
    run = cluster.read(shockwave, f"fidelity-{name}-physical")
    measured = run.jobs["jct_s"].to_numpy()
    errors = np.abs(cluster.jct_s(run, cluster.fixed_clock(run)) / measured - 1)
    assert 0.05 < np.median(errors) < 0.16
    left_out = []
    for position in range(3, len(run.jobs), 10):  # every tenth, as each is a replay
        ours = cluster.jct_s(run, cluster.measured_clock(run, without=position))
        left_out.append(abs(ours[position] / measured[position] - 1))
    assert np.median(left_out) < 0.009
    assert np.quantile(left_out, 0.9) < 0.04


def rho(run: Any, present: Any) -> Any:
    """Finish-time fairness of the recorded JCTs: each job counts as one share of the cluster, as in their lists."""
    shares = np.broadcast_to(32 / np.asarray(present), (len(run.jobs),))
    work_s, jct_s = run.table["exclusive_s"], run.jobs["jct_s"]
    ideal = [ideal_rate(make("one", [0, 1]), float(share)) for share in shares]
    return jct_s.to_numpy() * ideal / work_s.to_numpy()


def present(run: Any) -> Any:
    """Jobs in the system, its own included, on average over each job's time there."""
    begin, end = (run.jobs[name].to_numpy(float) for name in ("arrival_s", "end_s"))
    together = np.minimum(end, end[:, None]) - np.maximum(begin, begin[:, None])
    return np.maximum(together, 0).sum(axis=1) / (end - begin)


@pytest.mark.reference
@pytest.mark.parametrize("kind", ["physical", "simulation"])
def test_finish_time_fairness_on_their_completion_times_equals_their_lists(
    cluster: Any, shockwave: Path, kind: str
) -> None:
    for name in cluster.POLICIES:
        run = cluster.read(shockwave, f"fidelity-{name}-{kind}")
        static = run.jobs["rho_static"].to_numpy()
        assert rho(run, 120.0) == pytest.approx(static, rel=1e-4)
        off = np.abs(rho(run, present(run)) / run.jobs["rho_themis"].to_numpy() - 1)
        assert np.median(off) < (0.01 if kind == "physical" else 0.0025)
