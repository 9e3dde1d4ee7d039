"""Optimus: units and places by hand; with Tiresias as in Pollux' artifact, to the second."""

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from toy_application import workload, write_application
from worlds import make

from bft.models import Job, JobTable, read_pollux_jobs
from bft.replay import JobView, Outcome, Replay, Rules, State, always_idle
from bft.replay.policies.optimus import (
    EPOCH,
    LOSS,
    LossCurve,
    Optimus,
    fit_loss,
    remaining_s,
)
from bft.replay.policies.tiresias import TiresiasPollux
from bft.replay.trace.node_trace import SECOND_NS

ARTIFACT = Rules(max_jobs=0, start_overhead_s=30.0, restart_overhead=((1, 30.0),))


def job(name: str, rates: list[float], *, pmax: float, at: int = 0, **of: Any) -> Job:
    """A job that is submitted so many seconds after 1970."""
    return replace(make(name, [0.0, *rates], pmax=pmax, **of), tsub_ns=at * SECOND_NS)


def test_measured_jobs_count_whole_epochs_and_iterations_as_measured(
    tmp_path: Path,
) -> None:
    write_application(tmp_path / "traces" / "toy")
    (one,) = workload(tmp_path / "traces", "a,0,toy,2,128")
    view = JobView(one, 0, 0.0, progress=0.0, dynamics=one.profile.start(tunes=False))
    gain = 301 / (300 / 2 + 1)  # of a step of 128 samples, in steps of 64
    # Of three epochs of 1000 steps the one under way does not count; 64 samples a replica: 0.1 + 0.64 + 0.1 s.
    assert remaining_s(view, 2, 4) == pytest.approx(2000 / gain * 0.84)


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize(
    ("policy", "average_s"), [(Optimus, 1957.9625), (TiresiasPollux, 1826.575)]
)
def test_the_artifacts_half_load_to_the_second(
    reference: Path, policy: type[Optimus | TiresiasPollux], average_s: float
) -> None:
    path = reference / "pollux" / "workloads-0.5" / "workload-6.csv"
    jobs = read_pollux_jobs(path, whole_seconds=True)
    trace = always_idle(16, 0, 10**6 * SECOND_NS, units_per_node=4)
    records = Replay(trace, jobs, policy(), ARTIFACT).run().records
    jct_s = [(each.finish_ns - each.job.tsub_ns) / SECOND_NS for each in records]
    assert np.mean(jct_s) == pytest.approx(average_s, abs=1e-6)


# --- remaining work predicted from the loss ---------------------------------------------------------------------------


@given(
    st.floats(0.01, 5.0),
    st.floats(0.05, 2.0),
    st.floats(0.0, 2.0),
    st.floats(1e-4, 0.1),
)
def test_convergence_is_where_an_epoch_no_longer_lowers_the_loss(
    b0: float, b1: float, b2: float, drop: float
) -> None:
    curve = LossCurve(b0, b1, b2)
    k = curve.converged(drop)
    assert curve.at(k + 1e-6) - curve.at(k + 1 + 1e-6) <= drop * (1 + 1e-6)
    assert k == 0 or curve.at(k) - curve.at(k + 1) == pytest.approx(drop, rel=1e-6)


@examples(40)
@given(st.floats(0.02, 3.0), st.floats(0.1, 1.0), st.floats(0.0, 1.0))
def test_losses_without_noise_give_their_curve_back(
    b0: float, b1: float, b2: float
) -> None:
    true = LossCurve(b0, b1, b2)
    epochs = np.linspace(0.1, max(true.converged(0.01), 3.0), 20)
    losses = [true.at(k) for k in epochs]
    found = fit_loss(epochs.tolist(), losses)
    assert [found.at(k) for k in epochs] == pytest.approx(losses, rel=1e-4)
    end = pytest.approx(true.converged(0.01), rel=0.02, abs=0.05)
    assert found.converged(0.01) == end


def test_too_little_is_no_curve() -> None:
    assert fit_loss([1, 2, 3, 4], [4, 3, 2, 1]) is None
    assert fit_loss([1] * 5, [1] * 5) is None
    assert fit_loss(range(5), [1, 1, 1, 1, 0]) is None


def trained(name: str, rates: list[float], curve: LossCurve) -> Job:
    """A job of epochs of 100 samples that has converged when it is done."""
    columns = {EPOCH: 100.0, **dict(zip(LOSS, astuple(curve), strict=True))}
    return job(name, rates, pmax=100 * curve.converged(0.01), **columns)


CURVES = [LossCurve(0.3, 0.2, 0.1), LossCurve(1.0, 0.5, 0.0), LossCurve(0.1, 0.3, 0.5)]
RATES = [[1.0, 1.9, 2.7, 3.4], [1.0, 1.5, 1.8, 2.0], [2.0, 3.0, 3.5, 3.8]]
JOBS = [trained(f"j{k}", *of) for k, of in enumerate(zip(RATES, CURVES, strict=True))]


def replayed(policy: Optimus, jobs: list[Job]) -> Outcome:
    """A replay on five units."""
    table = policy.prepare(JobTable(tuple(jobs)))
    trace = always_idle(5, 0, 10**6 * SECOND_NS)
    return Replay(trace, table, policy, Rules(max_jobs=0)).run()


def finishes(outcome: Outcome) -> list[float]:
    """Seconds at which each job is done."""
    return [record.finish_ns / SECOND_NS for record in outcome.records]


def test_predicted_work_is_known_once_five_losses_were_seen() -> None:
    """Decisions at 0, 1, ... s: an epoch more until the fifth loss, from then on what the curve says."""
    true = CURVES[0]
    policy = Optimus(interval_s=1, remaining="online")
    one = trained("a", [20.0], true)
    for second in range(9):
        view = JobView(one, 1, 0.0, progress=20.0 * second)
        (left,) = policy._work_left(State(second * SECOND_NS, 1, (view,)))
        known = max(100 * true.converged(0.01) - 20.0 * second, 100.0)
        assert left == pytest.approx(100.0 if second < 5 else known, rel=1e-3)


def test_online_does_as_well_as_known_where_jobs_converge_as_their_losses_say() -> None:
    known, online = (
        finishes(replayed(Optimus(remaining=how), JOBS)) for how in ("known", "online")
    )
    # They differ in the first five minutes, in which nothing is predicted yet.
    assert online == pytest.approx(known, abs=2 * 300)
    assert sum(online) <= 1.1 * sum(known)


@examples(10)
@given(st.lists(st.floats(1.0, 3.0), min_size=3, max_size=3), st.floats(0, 0.05))
def test_online_looks_at_no_total_work(factors: list[float], noise: float) -> None:
    """Until the first job is done, jobs that will go on for longer are given the same units."""
    longer = [
        replace(one, pmax=one.pmax * factor)
        for one, factor in zip(JOBS, factors, strict=True)
    ]
    outcomes = [
        replayed(Optimus(remaining="online", noise=noise, seed=3), jobs)
        for jobs in (JOBS, longer)
    ]
    until = min(min(finishes(outcome)) for outcome in outcomes) * SECOND_NS
    columns = ["start_ns", "job", "first_unit", "last_unit"]
    one, other = (
        held[held["start_ns"] < until][columns].sort_values(columns).to_numpy().tolist()
        for held in (outcome.allocations for outcome in outcomes)
    )
    assert one == other


def test_online_goes_on_from_its_state_and_follows_its_seed() -> None:
    def state(second: int, progress: float) -> State:
        views = [JobView(each, 1, 0.0, progress=progress) for each in JOBS]
        return State(second * SECOND_NS, 5, tuple(views))

    one, again, other, third = (
        Optimus(remaining="online", noise=0.05, seed=seed) for seed in (1, 1, 2, 1)
    )
    first = [each._work_left(state(0, 150.0)) for each in (one, again, other)]
    assert first[0] == first[1]
    assert other._seen != again._seen
    third.restore(json.loads(json.dumps(one.state())))
    later = state(60, 200.0)
    assert third._work_left(later) == one._work_left(later)
    assert third.state() == one.state()


def test_jobs_without_a_loss_are_refused_before_the_replay(
    here: Path, told: Callable[..., str]
) -> None:
    header = "name,Tsub,Jmin,Jmax,Pmax,Tcup,Tcdw,Ns,Ps,Os"
    row = 'a,2021-01-01,1,2,2000,0,0,"[0,2]","[0,2]","[0,2]"'
    Path("jobs.csv").write_text(f"{header}\n{row}\n")
    line = "--cluster 2x1 --jobs jobs.csv --policy optimus --set remaining=online"
    told(line, "job a", "epoch_samples", code=2)
    losses = f"{header},{EPOCH},{','.join(LOSS)}\n{row},100,0.3,0.2,0.1\n"
    Path("jobs.csv").write_text(losses)
    told(line)
