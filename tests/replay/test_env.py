"""The Gymnasium environment: Gymnasium's own checks, and the same replay as with a policy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.models import InputError, JobTable
from bft.replay import (
    EqualShare,
    MilpPolicy,
    Policy,
    Replay,
    SolverOptions,
    State,
    always_idle,
)
from bft.replay.policies.checking import START_NS, make_world

pytest.importorskip("gymnasium", reason="the extra gym is not installed")

from gymnasium.utils.env_checker import check_env

from bft.replay.env import JOB_COLUMNS, ReplayEnv, repaired


def environment(seed: int, **given: Any) -> ReplayEnv:
    world = make_world(seed)
    return ReplayEnv(world.trace, world.jobs, world.rules, **given)


@pytest.mark.parametrize(
    ("seed", "given"), [(0, {}), (1, {"max_jobs": 20}), (2, {"clairvoyant": True})]
)
def test_it_passes_the_check_of_gymnasium(seed: int, given: dict[str, Any]) -> None:
    check_env(environment(seed, **given), skip_render_check=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by", ["equal-share", "milp"])
def test_a_policy_that_drives_the_environment_has_the_outcome_of_a_replay(
    by: str, seed: int
) -> None:
    def policy() -> Policy:
        return (
            EqualShare()
            if by == "equal-share"
            else MilpPolicy(120.0, SolverOptions("exact"))
        )

    world, env, driver = make_world(seed), environment(seed), policy()
    env.reset()
    rewards, over = 0.0, False
    while not over:
        assert env.state is not None
        counts = driver.decide(env.state).counts_in(env.state)
        _, reward, terminated, truncated, info = env.step(env.action(counts))
        assert info["counts"] == counts
        rewards += reward
        over = terminated or truncated
    outcome = Replay(world.trace, world.jobs, policy(), world.rules).run()
    assert env.outcome.allocations.equals(outcome.allocations)
    assert [(r.finish_ns, r.work) for r in env.outcome.records] == [
        (r.finish_ns, r.work) for r in outcome.records
    ]
    assert rewards == pytest.approx(outcome.work, rel=1e-9)
    assert terminated == all(record.finish_ns is not None for record in outcome.records)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_any_action_can_be_carried_out_and_observations_are_within_bounds(
    seed: int,
) -> None:
    env = environment(seed, clairvoyant=True)
    env.action_space.seed(seed)
    observation, _ = env.reset()
    rewards, over = [], False
    while not over:
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, _ = env.step(
            env.action_space.sample()
        )
        rewards.append(reward)
        over = terminated or truncated
    assert env.observation_space.contains(observation)
    assert sum(rewards) == pytest.approx(env.outcome.work, rel=1e-9)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(env.action_space.sample())


def test_the_observation_shows_the_jobs_in_play_and_no_progress_unless_it_is_clairvoyant() -> (
    None
):
    blind, seer = environment(0), environment(0, clairvoyant=True)
    for env in (blind, seer):
        env.reset()
        seen, *_ = env.step(env.action([1] * env.max_jobs))
        assert env.state is not None
        table = dict(zip(JOB_COLUMNS, seen["jobs"].T, strict=True))
        assert table["in_play"].sum() == len(env.state.jobs)
        assert table["units"].tolist()[: len(env.state.jobs)] == [
            view.units for view in env.state.jobs
        ]
        assert bool((table["remaining"][: len(env.state.jobs)] < 1).any()) is (
            env is seer
        )


@given(st.integers(0, 5), st.data())
@examples(50)
def test_repaired_counts_are_valid_and_valid_ones_stay(
    seed: int, data: st.DataObject
) -> None:
    views = environment(seed).reset()[0]["jobs"]
    env = environment(seed)
    env.reset()
    state = env.state
    assert isinstance(state, State)
    wanted = data.draw(
        st.lists(st.integers(0, 30), min_size=len(views), max_size=len(views))
    )
    counts = repaired(state, wanted)
    assert sum(counts) <= state.idle
    for view, count in zip(state.jobs, counts, strict=True):
        assert count == 0 or view.job.jmin <= count <= view.job.jmax
    assert repaired(state, counts) == counts


def test_what_cannot_be_an_environment_is_refused() -> None:
    world = make_world(0)
    with pytest.raises(InputError, match="max_jobs: expected at least 10"):
        environment(0, max_jobs=3)
    late = JobTable(
        tuple(
            replace(job, tsub_ns=world.trace.end, deadline_ns=None)
            for job in world.jobs
        )
    )
    with pytest.raises(InputError, match="nothing is ever to be decided"):
        ReplayEnv(world.trace, late)
    env = ReplayEnv(always_idle(4, START_NS, world.trace.end), world.jobs)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(env.max_jobs, dtype=np.int64))
    with pytest.raises(RuntimeError, match="not over"):
        _ = env.outcome
