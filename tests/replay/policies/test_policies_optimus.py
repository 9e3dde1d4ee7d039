"""Optimus: where units go, by hand; where jobs go; and with Tiresias as Pollux' artifact has both, to the second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_application import workload, write_application

from bft.models import Curve, Job, JobTable
from bft.models.workloads.jobs_pollux import read_pollux_jobs
from bft.replay import Replay, Rules, always_idle
from bft.replay.policies import JobView, State
from bft.replay.policies.optimus import Optimus, remaining_s, share
from bft.replay.policies.tiresias_pollux import TiresiasPollux
from bft.replay.trace.node_trace import SECOND_NS

ARTIFACT = Rules(max_jobs=0, start_overhead_s=30.0, restart_overhead=((1, 30.0),))


def job(name: str, rates: list[float], *, jmin: int = 1, pmax: float = 1000.0, tsub_s: int = 0) -> Job:
    curve = Curve(np.arange(len(rates) + 1), np.array([0.0, *rates]))
    return Job(name, tsub_s * SECOND_NS, jmin, len(rates), pmax, 0.0, 0.0, curve, curve)


def view(rates: list[float], *, jmin: int = 1, left: float = 1000.0) -> JobView:
    return JobView(job("j", rates, jmin=jmin, pmax=left), 0, 0.0, progress=0.0)


def counts(idle: int, *views: JobView) -> list[int]:
    # A view of no machine: units are nodes.
    return share(State(0, idle, views))


def test_units_go_where_they_save_most_time() -> None:
    """1000 samples: 1000, 500, 400 s on 1, 2, 3 units; 3000 samples on a flatter curve: 3000, 2000, 1500 s."""
    steep, long = view([1.0, 2.0, 2.5]), view([1.0, 1.5, 2.0], left=3000.0)
    assert counts(1, steep, long) == [1, 0]
    assert counts(2, steep, long) == [1, 1]
    assert counts(3, steep, long) == [1, 2]  # saves 1000 s rather than 500 s
    assert counts(4, steep, long) == [2, 2]  # 500 s each: first come first served
    assert counts(5, steep, long) == [2, 3]
    assert counts(9, steep, long) == [3, 3]


def test_no_unit_is_given_that_saves_nothing() -> None:
    assert counts(5, view([1.0, 1.0, 3.0])) == [1]


def test_who_needs_least_runs_first() -> None:
    assert counts(3, view([0.0, 0.0, 3.0], jmin=3), view([1.0]), view([1.0])) == [0, 1, 1]
    assert counts(2, view([0.0, 0.0, 3.0], jmin=3)) == [0]


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=8), st.integers(1, 3)), max_size=6),
)
def test_bounds_and_room_are_kept_and_one_more_unit_takes_none_from_others(
    idle: int, jobs: list[tuple[list[float], int]]
) -> None:
    views = [view(list(np.cumsum(steps)), jmin=min(jmin, len(steps))) for steps, jmin in jobs]
    given_out = counts(idle, *views)
    assert sum(given_out) <= idle
    for one, count in zip(views, given_out, strict=True):
        assert count == 0 or one.job.jmin <= count <= one.job.jmax
    if all(given_out):  # else the next unit may let another one start
        more = counts(idle + 1, *views)
        assert all(after >= before for before, after in zip(given_out, more, strict=True))


def test_who_is_placed_anew_goes_to_the_emptiest_nodes() -> None:
    """Two nodes of 4: three jobs of one unit spread over both; those whose count stays keep their units."""
    jobs = JobTable(tuple(job(name, [1.0]) for name in "abc"))
    seen: list[tuple[tuple[int, ...], ...]] = []

    class Watched(Optimus):
        def decide(self, state: State):  # type: ignore[no-untyped-def]
            seen.append(tuple(one.held for one in state.jobs))
            return super().decide(state)

    Replay(always_idle(2, 0, 200 * SECOND_NS, units_per_node=4), jobs, Watched(), Rules(max_jobs=0)).run()
    assert seen[-1] == ((0,), (4,), (1,))
    assert all(held == seen[-1] for held in seen if held[0])


def test_measured_jobs_count_whole_epochs_and_iterations_as_measured(tmp_path: Path) -> None:
    write_application(tmp_path / "traces" / "toy")
    profile = workload(tmp_path / "traces", "a,0,toy,2,128").jobs[0].profile
    assert profile is not None
    dynamics = profile.start(tunes=False)
    gain = 301 / (300 / 2 + 1)  # of a step of 128 samples, in steps of 64
    one = JobView(workload(tmp_path / "traces", "a,0,toy,2,128").jobs[0], 0, 0.0, progress=0.0, dynamics=dynamics)
    # Of three epochs of 1000 steps the one under way does not count; 64 samples a replica: 0.1 + 0.64 + 0.1 s.
    assert remaining_s(one, 2, 4) == pytest.approx(2000 / gain * 0.84)


@pytest.mark.reference
@pytest.mark.parametrize(("policy", "average_s"), [(Optimus, 1957.9625), (TiresiasPollux, 1826.575)])
def test_the_artifacts_half_load_to_the_second(
    reference: Path, policy: type[Optimus | TiresiasPollux], average_s: float
) -> None:
    jobs = read_pollux_jobs(reference / "pollux" / "workloads-0.5" / "workload-6.csv", whole_seconds=True)
    trace = always_idle(16, 0, 10**6 * SECOND_NS, units_per_node=4)
    outcome = Replay(trace, jobs, policy(), ARTIFACT).run()
    jct_s = [(record.finish_ns - record.job.tsub_ns) / SECOND_NS for record in outcome.records]
    assert np.mean(jct_s) == pytest.approx(average_s, abs=1e-6)


def test_tiresias_of_the_artifact_lets_the_long_wait_their_turn() -> None:
    """One node of 4 units: after 100 unit-seconds `long` is behind the newcomer, which alone needs all units."""
    jobs = JobTable((job("long", [0.0] * 3 + [1.0], jmin=4, pmax=300.0), job("new", [1.0] * 4, jmin=4, tsub_s=30)))
    policy = TiresiasPollux(limits=(100.0,))
    long, new = Replay(always_idle(1, 0, 10**4 * SECOND_NS, units_per_node=4), jobs, policy, Rules()).run().records
    assert new.start_ns == 60 * SECOND_NS  # the first round after it came
    assert (long.stops, long.starts) == (1, 2)
    assert long.start_ns == 0
