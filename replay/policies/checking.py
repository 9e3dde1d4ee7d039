"""Properties that every policy must have, third-party ones included; `check_policy` tests them in small worlds."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement, zip_longest
from operator import methodcaller
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from bft.models import Curve, InputError, Job, JobTable, Objective, xi_from_frame
from bft.models.plugins import built
from bft.replay.engine.loop import Replay
from bft.replay.engine.policy_api import (
    Decision,
    Policy,
    PolicyCall,
    PolicyError,
)
from bft.replay.engine.rules import Interference, Rules
from bft.replay.policies.registry import check_made, policy_type
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, always_idle, from_changes

START_NS = 1_612_915_200 * SECOND_NS  # 10 February 2021
HOURS = 6
MODELS = ("bert", "dcgan", "resnet50")


class PolicyCheckError(AssertionError):
    """A policy lacks a required property; the message names it and how to reproduce the failure."""


@dataclass(frozen=True, slots=True)
class World:
    """The inputs of one check; the seed determines everything."""

    seed: int
    trace: NodeTrace
    jobs: JobTable
    rules: Rules
    interference: Interference

    def settings(self) -> dict[str, Any]:
        """The settings that a run would give to its policy."""
        return {
            "tfwd_s": 120.0,
            "solver": SolverOptions("auto"),
            "cost_model": self.rules.cost_model,
            "objective": Objective.of("own"),
            "unit_memory_gib": self.interference.unit_memory_gib,
            "restart_overhead": self.rules.restart_overhead,
            "seed": self.seed,
            "interference": self.interference,
        }


def check_policy(
    policy: str | Policy | Callable[..., Policy], *, seed: int = 0, worlds: int = 6
) -> None:
    """Check the properties that every policy must have, in small random worlds.

    - It has a `name`, `decide(state)` and, where it states any, valid `traits`.
    - It returns a decision wherever jobs are in play and units are idle, also with more jobs than units.
    - The engine can carry out its decisions: they respect bounds of jobs, idle units, and its traits (a rigid job runs
      with the units it got; nothing moves or shares units unless they allow it).
    - It is deterministic: two fresh instances that see the same states make the same decisions.
    - After an interruption, resumed from `state()` (through JSON), it decides as without the interruption.

    Parameters
    ----------
    policy
        A registered name; a class, whose fields are set as in a run; a function that returns a policy; or an instance,
        of which deep copies are checked.
    seed
        Seed of the first world; each further world uses the next number.
    worlds
        Number of worlds. They alternate: one, two and four units per node; nodes that come and go, and fixed clusters.

    Raises
    ------
    PolicyCheckError
        Names the property that does not hold, where it fails, and the call that reproduces it.

    Examples
    --------
    >>> from bft.replay import Decision
    >>> check_policy("equal-share", worlds=1)
    >>> class Greedy:
    ...     name = "greedy"
    ...     def decide(self, state):
    ...         return Decision((state.idle,) * len(state.jobs))
    >>> check_policy(Greedy)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bft.replay.policies.checking.PolicyCheckError: policy 'greedy' ... check_policy(..., seed=0, worlds=1)
    """
    for number in range(seed, seed + worlds):
        world = make_world(number)
        try:
            _check(policy, world)
        except PolicyCheckError as error:
            what, why = error.args
            nodes, per = len(world.trace.nodes), world.trace.units_per_node
            where = f"{nodes} nodes of {per} units, {len(world.jobs)} jobs"
            again = f"check_policy(..., seed={number}, worlds=1)"
            message = f"policy {_name(policy)!r} lacks {what!r} ({where}): {why}; to see it again: {again}"
            raise PolicyCheckError(message) from None


def make_world(seed: int) -> World:
    """A small machine and some jobs: one, two or four units per node in turn, every second world a fixed cluster.

    In some of the others (of a seed that is a multiple of 4) the units of a node come and go one by one.
    """
    rng = np.random.default_rng(seed)
    per_node = (1, 2, 4)[seed % 3]
    nodes = int(rng.integers(*{1: (3, 8), 2: (2, 5), 4: (1, 4)}[per_node]))
    end = START_NS + HOURS * 3600 * SECOND_NS
    trace = always_idle(nodes, START_NS, end, units_per_node=per_node)
    if seed % 2 == 0:
        trace = _coming_and_going(
            rng, nodes, per_node, end, by_unit=per_node > 1 and seed % 4 == 0
        )
    jobs = JobTable(
        tuple(
            _job(rng, number, nodes * per_node)
            for number in range(int(rng.integers(9, 14)))
        )
    )
    rules = Rules(
        max_jobs=(10, 0, 4, 0)[seed % 4],
        cost_model=("bftrainer", "stall")[seed // 2 % 2],
        min_interval_s=(0.0, 0.0, 90.0)[seed % 3],
        checkpoint_interval_s=300.0,
        start_overhead_s=5.0,
        restart_overhead=((2, 10.0), (64, 20.0)),
    )
    # Ratios of all pairs of models, some above the allowed maximum.
    ratios = []
    for a, b in combinations_with_replacement(MODELS, 2):
        xi_a, xi_b = rng.uniform(1.0, 1.8, size=2).tolist()
        ratios.append((a, b, xi_a, xi_a if a == b else xi_b))
    frame = pd.DataFrame(ratios, columns=["model_a", "model_b", "xi_a", "xi_b"])
    xi = Interference(xi_from_frame(frame), xi_max=1.6, unit_memory_gib=16.0)
    return World(seed, trace, jobs, rules, xi)


def _coming_and_going(
    rng: np.random.Generator, nodes: int, per_node: int, end: int, *, by_unit: bool
) -> NodeTrace:
    """Every node (or unit) changes at some instants of its own; several change at the beginning."""
    rows = []
    for node in range(nodes * (per_node if by_unit else 1)):
        idle = bool(rng.random() < 0.8)
        instants = np.sort(
            rng.integers(60, HOURS * 3600, size=int(rng.integers(2, 10)))
        ).tolist()
        for second in [0, *instants]:
            rows.append((START_NS + second // 60 * 60 * SECOND_NS, node, idle))
            idle = not idle
    times, which, states = zip(*sorted(rows), strict=True)
    return from_changes(
        [f"n{node}" for node in range(nodes)],
        np.array(times, dtype=np.int64),
        np.array(which, dtype=np.int32),
        np.array(states, dtype=bool),
        start=START_NS,
        end=end,
        units_per_node=per_node,
        node_units=(per_node,) * nodes if by_unit else None,
    )


def _job(rng: np.random.Generator, number: int, units: int) -> Job:
    jmin = int(rng.integers(1, min(3, units) + 1))
    jmax = int(rng.integers(jmin, min(8, units) + 1))
    sizes = np.arange(jmax + 1, dtype=np.float64)
    curve = Curve(
        sizes, float(rng.uniform(5, 50)) * sizes ** float(rng.uniform(0.6, 1.0))
    )
    some = (
        tuple(n for n in range(jmin, jmax + 1) if n in (jmin, jmax) or n % 2 == 0)
        if number % 3 == 2
        else None
    )
    submit = (
        START_NS + int(rng.integers(0, HOURS * 1200)) * SECOND_NS
        if number > 2
        else START_NS
    )
    return Job(
        f"job-{number}",
        submit,
        jmin,
        jmax,
        float(curve.ps[jmin]) * float(rng.uniform(600, 6000)),
        float(rng.uniform(0, 30)),
        float(rng.uniform(0, 15)),
        curve,
        curve,
        model=MODELS[number % len(MODELS)],
        user=f"user-{number % 4}",
        batch_size=64.0,
        memory_gib=4.0,
        deadline_ns=submit + 7200 * SECOND_NS if number % 2 else None,
        extra={
            "sharing_score": 0,
            "gpu_util": 40.0,
            "gmem_util": 20.0,
            "gmem": 4000.0,
            "amp": 0,
            "profiled": True,
        },
        sizes=some,
    )


# A registered name, a class, a function that makes one, or an instance.
Given: TypeAlias = str | Policy | Callable[..., Policy]


def _check(given: Given, world: World) -> None:
    """Check every property in one world."""
    once = _played(given, world)
    for what, stop_at, how in (
        ("deterministic", None, "asked twice, two fresh ones differ"),
        (
            "resumable",
            (len(once) - 1) // 2,
            "stopped in the middle and resumed, it differs; what it remembers belongs into state() and restore()",
        ),
    ):
        again = _played(given, world, stop_at)
        for number, (one, other) in enumerate(zip_longest(once, again)):
            if one != other:
                shown = f"decision {number} is {one!s:.300} and {other!s:.300}"
                raise PolicyCheckError(what, f"{how}: {shown}")


def _fresh(given: Given, world: World) -> Policy:
    """A policy that has seen nothing."""
    factory: Any = given
    if hasattr(given, "decide") and not isinstance(given, type):
        factory = partial(copy.deepcopy, given)
    with _named("a policy"):
        if isinstance(given, str):
            return policy_type(given).make(world.settings())
        made: Policy = built(_name(given), factory, world.settings(), {})
        check_made(_name(given), made)
    return made


def _replay(given: Given, world: World) -> Replay:
    policy = _fresh(given, world)
    return Replay(world.trace, world.jobs, policy, world.rules, world.interference)


def _played(given: Given, world: World, stop_at: int | None = None) -> list[str]:
    """Replay with a fresh policy and return each decision with its time, and the results last, as texts.

    With `stop_at`, save before that entry and continue with another fresh policy, restored through JSON.
    """
    replay, played = _replay(given, world), list[str]()
    while replay.peek() is not None:
        if len(played) == stop_at:
            stop_at, fresh = None, _replay(given, world)
            with _named("resumable", "its state() does not come back through JSON"):
                stored = json.dumps(replay.state(), default=methodcaller("item"))
                fresh.restore(json.loads(stored))
                for name, table in fresh.tables.items():
                    table.restore(replay.tables[name].saved())
            replay = fresh
        state = replay.advance()
        if state is None:
            continue
        when, policy = f"decision {len(played)}", replay.policy
        with _named("answers", f"at {when}"), PolicyCall(policy.name, policy):
            decision: object = policy.decide(state)
            if not isinstance(decision, Decision):
                raise PolicyError(f"it answered {decision!r:.100}; expected a Decision")
        with _named("the engine's rules", when):
            replay.decide(decision)
        counts, at = decision.counts_in(state), np.datetime64(state.time_ns, "ns")
        played.append(f"{counts}, to be woken at {decision.wake_ns}, at {at}")
    outcome = replay.run()
    tables = outcome.steps.to_csv(), outcome.allocations.to_csv()
    return [*played, f"results: {outcome.records} {tables}"]


def _name(given: Given) -> str:
    return str(getattr(given, "name", given))


@contextmanager
def _named(what: str, when: str = "") -> Iterator[None]:
    """Name the property that a policy lacks when the block fails."""
    try:
        yield
    except (InputError, PolicyError, TypeError, ValueError, AttributeError) as error:
        why = f"{when}: {error}" if when else str(error)
        raise PolicyCheckError(what, why) from None
