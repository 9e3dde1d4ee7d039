"""The contract of every policy: `check_policy` accepts all of ours, and names what another one violates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

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
    check_policy(QUICK.get(name, name))


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


class Named:
    """What a policy needs at least, and what tests then spoil."""

    name = "spoilt"

    def decide(self, state: State) -> Decision:
        return EqualShare().decide(state)


class Raises(Named):
    def decide(self, state: State) -> Decision:
        running = len(state.jobs.running)  # none at first
        return Decision((state.idle // running,) * len(state.jobs))


class GivesMuch(Named):
    def decide(self, state: State) -> Decision:
        return Decision(tuple(min(view.job.jmax, state.idle) for view in state.jobs))


class Rigid(Named):
    traits: ClassVar[Traits] = Traits(rigid=True)


class Mutters(Named):
    def decide(self, state: State) -> Decision:
        return None  # type: ignore[return-value]


_RNG = np.random.default_rng(0)


class Dice(Named):
    def decide(self, state: State) -> Decision:
        fair = super().decide(state)
        return fair if _RNG.random() < 0.8 else Decision((0,) * len(state.jobs))


@dataclass
class Counts:
    """Gives nothing at every third decision, and counts them."""

    name: str = field(default="counts", init=False)
    seen: int = field(default=0, init=False)

    def decide(self, state: State) -> Decision:
        self.seen += 1
        return (
            EqualShare().decide(state)
            if self.seen % 3
            else Decision((0,) * len(state.jobs))
        )


class Remembers(Counts):
    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


class RemembersHalf(Counts):
    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}


class RemembersASet(Remembers):
    def state(self) -> dict[str, Any]:
        return {"seen": {self.seen}}


class OddTraits(Named):
    traits = "rigid"


@pytest.mark.parametrize(
    ("policy", "lacks", "why"),
    [
        (object, "a policy", "needs a `name`"),
        (OddTraits, "a policy", "its traits must be Traits"),
        (Raises, "answers", "at decision 0: .*it raised ZeroDivisionError"),
        (Mutters, "answers", "it answered None; expected a Decision"),
        (GivesMuch, "the engine's rules", "decision 0: .*idle"),
        (Rigid, "the engine's rules", "decision"),
        (Dice, "deterministic", "decision [0-9]+ is"),
        (Counts, "resumable", r"belongs into state\(\) and restore\(\)"),
        (RemembersHalf, "resumable", r"belongs into state\(\) and restore\(\)"),
        (RemembersASet, "resumable", "does not come back through JSON"),
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
    check_policy(Remembers)


def test_an_unknown_name_is_no_policy() -> None:
    with pytest.raises(PolicyCheckError, match="unknown policy 'fiffo'"):
        check_policy("fiffo")
