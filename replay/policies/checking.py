"""Properties that every policy must have, third-party ones included; `check_policy` tests them in small worlds."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, zip_longest
from typing import Any

import numpy as np
import pandas as pd

from bft.models import Curve, InputError, Job, JobTable, Objective, xi_from_frame
from bft.replay.engine.loop import Replay
from bft.replay.engine.policy_api import (
    Decision,
    Jobs,
    Policy,
    PolicyCall,
    PolicyError,
    State,
)
from bft.replay.engine.rules import Interference, Rules
from bft.replay.engine.units import Holdings
from bft.replay.policies.registry import check_made, make_policy, policy_options
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

    - It has a `name`, `decide(state)` and, where it states one, a valid `kind`.
    - It returns a decision for a state without jobs, without idle units, and with more jobs than units.
    - The engine can carry out its decisions: they respect bounds of jobs, idle units, and its kind (a rigid job runs
      with the units it got; nothing moves or shares units unless the kind allows it).
    - It does not change its input.
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
        _Checked(policy, make_world(number)).check()


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
    return World(seed, trace, jobs, rules, _interference(rng))


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


def _interference(rng: np.random.Generator) -> Interference:
    """Ratios of all pairs of models, some above the allowed maximum."""
    rows = []
    for a, b in combinations_with_replacement(MODELS, 2):
        xi_a, xi_b = rng.uniform(1.0, 1.8, size=2).tolist()
        rows.append((a, b, xi_a, xi_a if a == b else xi_b))
    frame = pd.DataFrame(rows, columns=["model_a", "model_b", "xi_a", "xi_b"])
    return Interference(xi_from_frame(frame), xi_max=1.6, unit_memory_gib=16.0)


class _Checked:
    """A policy in one world."""

    def __init__(
        self, policy: str | Policy | Callable[..., Policy], world: World
    ) -> None:
        self._given, self._world = policy, world
        self._name = str(getattr(policy, "name", policy))

    def check(self) -> None:
        """Check every property, the simplest first."""
        self._name = self._fresh().name
        self._answers_nothing()
        once = self._played()
        how = "asked twice, two fresh ones differ"
        self._same(once, self._played(), "deterministic", how)
        how = "stopped in the middle and resumed, it differs; what it remembers belongs into state() and restore()"
        resumed = self._played(stop_at=(len(once) - 1) // 2)
        self._same(once, resumed, "resumable", how)

    def _same(self, once: list[str], again: list[str], what: str, how: str) -> None:
        for number, (one, other) in enumerate(zip_longest(once, again)):
            if one != other:
                shown = f"decision {number} is {one!s:.300} and {other!s:.300}"
                raise self._lacks(what, f"{how}: {shown}")

    def _fresh(self) -> Policy:
        """A policy that has seen nothing."""
        given, settings = self._given, self._world.settings()
        try:
            if isinstance(given, str):
                return make_policy(given, settings)
            if isinstance(given, type):
                known = {option.name for option in policy_options(given)}
                made = given(**{key: settings[key] for key in known & settings.keys()})
            else:
                made = copy.deepcopy(given) if hasattr(given, "decide") else given()
            check_made(self._name, made)
        except (InputError, TypeError) as error:
            raise self._lacks("a policy", str(error)) from None
        policy: Policy = made
        return policy

    def _answers_nothing(self) -> None:
        """Check that a policy answers a state without jobs or without idle units."""
        replay = self._replay()
        state = None
        while state is None:
            state = replay.advance()
        per = state.machine.units_per_node
        busy = Holdings(state.machine.nodes * per, per)
        for label, asked in (
            ("without jobs", replace(state, jobs=Jobs())),
            ("without idle units", State(state.time_ns, 0, state.jobs, busy)),
        ):
            decision = self._decision(self._fresh(), asked, f"asked {label}")
            counts = decision.counts_in(asked)
            if len(counts) != len(asked.jobs) or any(counts):
                expected = (0,) * len(asked.jobs)
                what = f"asked {label} of {len(self._world.jobs)}, it gives {counts}, not {expected}"
                raise self._lacks("answers", what)

    def _replay(self) -> Replay:
        world = self._world
        return Replay(
            world.trace, world.jobs, self._fresh(), world.rules, world.interference
        )

    def _played(self, stop_at: int | None = None) -> list[str]:
        """Replay with a fresh policy and return each decision with its time, and the results last, as texts.

        With `stop_at`, save before that entry and continue with another fresh policy.
        """
        replay = self._replay()
        played: list[str] = []
        jobs = list(map(repr, self._world.jobs))
        while replay.peek() is not None:
            if len(played) == stop_at:
                stop_at = None
                replay = self._resumed(replay)
            state = replay.advance()
            if state is None:
                continue
            when = f"decision {len(played)}"
            before = _seen(state)
            decision = self._decision(replay.policy, state, f"at {when}")
            if _seen(state) != before:
                what = f"at {when} it changed the state that it was given"
                raise self._lacks("no mutation", what)
            try:
                replay.decide(decision)
            except PolicyError as error:
                raise self._lacks("the engine's rules", f"{when}: {error}") from None
            played.append(_shown(state.time_ns, decision))
        if list(map(repr, self._world.jobs)) != jobs:
            raise self._lacks("no mutation", "it changed the jobs that it was given")
        outcome = replay.run()
        books = [
            (r.start_ns, r.finish_ns, r.work, r.gained, r.lost, r.unit_seconds)
            for r in outcome.records
        ]
        return [*played, f"results: {books} {outcome.steps.to_csv()}"]

    def _resumed(self, replay: Replay) -> Replay:
        """A replay in the same position with a fresh policy, restored through JSON."""
        fresh, policy = self._replay(), replay.policy
        if hasattr(policy, "state") != hasattr(policy, "restore"):
            what = "it has one of state() and restore() without the other"
            raise self._lacks("resumable", what)
        try:
            stored = [json.dumps(replay.state(), default=_plain) for _ in range(2)]
            fresh.restore(json.loads(stored[0]))
            for name, table in fresh.tables.items():
                table.restore(replay.tables[name].saved())
        except (PolicyError, TypeError, ValueError, AttributeError) as error:
            what = f"its state() does not come back through JSON: {error}"
            raise self._lacks("resumable", what) from None
        if stored[0] != stored[1]:
            raise self._lacks("resumable", "state(), called twice, differs")
        return fresh

    def _decision(self, policy: Policy, state: State, when: str) -> Decision:
        try:
            with PolicyCall(self._name, policy):
                answer: object = policy.decide(state)
        except PolicyError as error:
            raise self._lacks("answers", f"{when}: {error}") from None
        if not isinstance(answer, Decision):
            what = f"{when} it answered {answer!r:.100}; expected a Decision"
            raise self._lacks("answers", what)
        return answer

    def _lacks(self, what: str, why: str) -> PolicyCheckError:
        """The error for a property."""
        trace, seed = self._world.trace, self._world.seed
        where = f"{len(trace.nodes)} nodes of {trace.units_per_node} units, {len(self._world.jobs)} jobs"
        again = f"check_policy(..., seed={seed}, worlds=1)"
        return PolicyCheckError(
            f"policy {self._name!r} lacks {what!r} ({where}): {why}; to see it again: {again}"
        )


def _shown(now_ns: int, decision: Decision) -> str:
    """The engine's part of a decision; how well and how fast it was solved may differ."""
    counts, placement = decision.counts, decision.placement
    parts = (
        None if counts is None else [int(count) for count in counts],
        None if placement is None else sorted(placement.items()),
        decision.transfers,
        decision.wake_ns,
    )
    return f"{parts} at {np.datetime64(now_ns, 'ns')}"


def _seen(state: State) -> tuple[Any, ...]:
    """The parts of a state that a policy must not change."""
    views = [
        (id(view.job), view.units, view.held, view.partners, view.rate, view.starts)
        for view in state.jobs
    ]
    idle = list(state.machine.idle_by_node())
    return state.time_ns, state.idle, views, idle, len(state.finished)


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers."""
    return value.item()
