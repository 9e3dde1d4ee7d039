"""The contract of every policy: `check_policy` accepts all of ours, and names what another one violates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from bft.replay import (
    Decision,
    EqualShare,
    MilpPolicy,
    Policy,
    PolicyCheckError,
    SolverOptions,
    State,
    Traits,
    check_policy,
)
from bft.replay.policies.checking import make_world
from bft.replay.policies.pollux import Pollux
from bft.replay.policies.registry import BUILT_IN
from bft.replay.policies.tiresias import TiresiasL

QUICK: dict[str, Callable[..., Policy]] = {
    "pollux": partial(Pollux, interval_s=300.0, population=4, generations=2)
}
OTHERWISE: dict[str, Callable[[], Policy]] = {
    "learns": lambda: MilpPolicy(120.0, SolverOptions("exact"), curves="learn"),
    "profiles": lambda: MilpPolicy(
        120.0, SolverOptions("exact"), curves="profile", profile_order="inverse"
    ),
    "promotes": lambda: TiresiasL(promote=2.0),
    "wakes": lambda: TiresiasL(interval_s=60.0),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_policy_keeps_the_contract(name: str) -> None:
    check_policy(QUICK.get(name, name), worlds=3)


@pytest.mark.parametrize("make", OTHERWISE.values(), ids=OTHERWISE)
def test_so_does_one_with_other_constants(make: Callable[[], Policy]) -> None:
    check_policy(make)


def test_an_instance_is_not_changed() -> None:
    policy = MilpPolicy(120.0, SolverOptions("exact"))
    check_policy(policy, worlds=1)
    assert policy == MilpPolicy(120.0, SolverOptions("exact"))


def test_worlds_are_of_all_kinds_and_their_own_again() -> None:
    worlds = [make_world(seed) for seed in range(6)]
    assert {world.trace.units_per_node for world in worlds} == {1, 2, 4}
    assert {len(world.trace) > 1 for world in worlds} == {True, False}
    assert {world.rules.cost_model for world in worlds} == {"bftrainer", "stall"}
    assert any(
        len(world.jobs) > len(world.trace.nodes) * world.trace.units_per_node
        for world in worlds
    )
    assert [job.pmax for job in make_world(3).jobs] == [
        job.pmax for job in worlds[3].jobs
    ]


KEEPS = r"belongs into state\(\) and restore\(\)"
RNG = np.random.default_rng(0)


@dataclass
class Spoilt:
    """What a policy needs at least, spoilt in some way; at every third decision `counts` gives nothing."""

    how: str
    name: str = "spoilt"
    traits: Any = Traits()
    seen: int = 0

    def decide(self, state: State) -> Decision:
        self.seen += 1
        jobs = len(state.jobs)
        much = (min(view.job.jmax, state.idle) for view in state.jobs)
        if self.how == "raises":  # none runs at first
            return Decision((state.idle // len(state.jobs.running),) * jobs)
        if self.how == "mutters":
            return None  # type: ignore[return-value]
        if self.how == "gives much":
            return Decision(tuple(much))
        if {"dice": RNG.random() > 0.8, "counts": self.seen % 3 == 0}.get(self.how):
            return Decision((0,) * jobs)
        return EqualShare().decide(state)


class Remembers(Spoilt):
    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


class RemembersHalf(Remembers):
    def restore(self, state: Mapping[str, Any]) -> None: ...


class RemembersASet(Remembers):
    def state(self) -> dict[str, Any]:
        return {"seen": {self.seen}}


@pytest.mark.parametrize(
    ("policy", "lacks", "why"),
    [
        (object, "a policy", "needs a `name`"),
        (partial(Spoilt, "", traits="rigid"), "a policy", "its traits must be Traits"),
        (
            partial(Spoilt, "raises"),
            "answers",
            "at decision 0: .*it raised ZeroDivisionError",
        ),
        (
            partial(Spoilt, "mutters"),
            "answers",
            "it answered None; expected a Decision",
        ),
        (partial(Spoilt, "gives much"), "the engine's rules", "decision 0: .*idle"),
        (
            partial(Spoilt, "", traits=Traits(rigid=True)),
            "the engine's rules",
            "decision",
        ),
        (partial(Spoilt, "dice"), "deterministic", "decision [0-9]+ is"),
        (partial(Spoilt, "counts"), "resumable", KEEPS),
        (partial(RemembersHalf, "counts"), "resumable", KEEPS),
        (
            partial(RemembersASet, "counts"),
            "resumable",
            "does not come back through JSON",
        ),
    ],
)
def test_what_a_policy_lacks_is_named_with_the_call_that_shows_it_again(
    policy: Callable[[], Policy], lacks: str, why: str
) -> None:
    with pytest.raises(
        PolicyCheckError, match=rf"lacks [\"']{lacks}[\"'] .*{why}"
    ) as error:
        check_policy(policy)
    # One traceback: what the policy raised, and where, stands in the message.
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None
    seed = int(str(error.value).rpartition("seed=")[2].split(",")[0])
    assert str(error.value).endswith(
        f"to see it again: check_policy(..., seed={seed}, worlds=1)"
    )
    with pytest.raises(PolicyCheckError, match=lacks):
        check_policy(policy, seed=seed, worlds=1)


def test_a_policy_that_remembers_keeps_the_contract() -> None:
    check_policy(partial(Remembers, "counts"))


def test_an_unknown_name_is_no_policy() -> None:
    with pytest.raises(PolicyCheckError, match="unknown policy 'fiffo'"):
        check_policy("fiffo")
