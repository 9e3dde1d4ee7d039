"""Properties that every policy must have, third-party ones included; `check_policy` tests them in small worlds."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from itertools import combinations_with_replacement, zip_longest
from typing import Any

import numpy as np
import pandas as pd

from bft.models import Curve, InputError, Job, JobTable, Objective, xi_from_frame
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.policy_api import (
    Decision,
    Policy,
    PolicyCall,
    PolicyError,
    Remembers,
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


@dataclass(frozen=True, slots=True)
class _Played:
    """A replay to its end: decisions with their times, the states seen, and the outcome."""

    decisions: tuple[tuple[int, Decision], ...]
    outcome: Outcome


class _Checked:
    """A policy in one world."""

    def __init__(
        self, policy: str | Policy | Callable[..., Policy], world: World
    ) -> None:
        self._given, self._world = policy, world
        self._name = (
            policy if isinstance(policy, str) else str(getattr(policy, "name", policy))
        )

    def check(self) -> None:
        """Check every property, the simplest first."""
        made = self._fresh()
        self._name = made.name
        self._answers_nothing(made)
        once = self._played()
        self._same(
            once, self._played(), "deterministic", "asked twice, two fresh ones differ"
        )
        self._same(
            once,
            self._played(stop_at=len(once.decisions) // 2),
            "resumable",
            "stopped in the middle and resumed, it differs; what it remembers belongs into state() and restore()",
        )

    def _fresh(self) -> Policy:
        """A policy that has seen nothing."""
        given, settings = self._given, self._world.settings()
        try:
            if isinstance(given, str):
                return make_policy(given, settings)
            if isinstance(given, type):
                known = [option.name for option in policy_options(given)]
                made: Any = given(
                    **{name: value for name, value in settings.items() if name in known}
                )
            else:
                made = copy.deepcopy(given) if hasattr(given, "decide") else given()
            check_made(self._name, made)
        except (InputError, TypeError) as error:
            raise self._lacks("a policy", str(error)) from error
        policy: Policy = made
        return policy

    def _answers_nothing(self, policy: Policy) -> None:
        """Check that a policy answers a state without jobs or without idle units."""
        trace, jobs = self._world.trace, self._world.jobs
        replay = self._replay(policy)
        state = None
        while state is None:
            state = replay.advance()
        without_jobs = State(state.time_ns, state.idle, (), state.machine)
        per = trace.units_per_node
        busy = Holdings(len(trace.nodes) * per, per)
        waiting = State(state.time_ns, 0, state.jobs, busy)
        for label, asked in (
            ("without jobs", without_jobs),
            ("without idle units", waiting),
        ):
            counts = self._decision(self._fresh(), asked, f"asked {label}").counts_in(
                asked
            )
            if len(counts) != len(asked.jobs) or any(counts):
                expected = (0,) * len(asked.jobs)
                raise self._lacks(
                    "answers",
                    f"asked {label} of {len(jobs)}, it gives {counts}, not {expected}",
                )

    def _replay(self, policy: Policy) -> Replay:
        world = self._world
        return Replay(world.trace, world.jobs, policy, world.rules, world.interference)

    def _played(self, stop_at: int | None = None) -> _Played:
        """Replay with a fresh policy; with `stop_at`, save after that many decisions and continue with another."""
        replay = self._replay(self._fresh())
        decisions: list[tuple[int, Decision]] = []
        jobs = _content(self._world.jobs)
        while replay.peek() is not None:
            if len(decisions) == stop_at:
                stop_at = None
                replay = self._resumed(replay)
            state = replay.advance()
            if state is None:
                continue
            before = _seen(state)
            decision = self._decision(
                replay.policy, state, f"at decision {len(decisions)}"
            )
            if _seen(state) != before:
                raise self._lacks(
                    "no mutation",
                    f"at decision {len(decisions)} it changed the state that it was given",
                )
            try:
                replay.decide(decision)
            except PolicyError as error:
                raise self._lacks(
                    "the engine's rules", f"decision {len(decisions)}: {error}"
                ) from error
            decisions.append((state.time_ns, decision))
        if _content(self._world.jobs) != jobs:
            raise self._lacks("no mutation", "it changed the jobs that it was given")
        return _Played(tuple(decisions), replay.run())

    def _resumed(self, replay: Replay) -> Replay:
        """A replay in the same position with a fresh policy, restored through JSON."""
        fresh = self._replay(self._fresh())
        if hasattr(replay.policy, "state") != hasattr(replay.policy, "restore"):
            raise self._lacks(
                "resumable", "it has one of state() and restore() without the other"
            )
        try:
            if isinstance(replay.policy, Remembers):
                before = json.dumps(replay.policy.state(), default=_plain)
                if json.dumps(replay.policy.state(), default=_plain) != before:
                    raise self._lacks("resumable", "state(), called twice, differs")
            fresh.restore(json.loads(json.dumps(replay.state(), default=_plain)))
            for name, table in fresh.tables.items():
                table.restore(replay.tables[name].saved())
        except (PolicyError, TypeError, ValueError, AttributeError) as error:
            raise self._lacks(
                "resumable", f"its state() does not come back through JSON: {error}"
            ) from error
        return fresh

    def _decision(self, policy: Policy, state: State, when: str) -> Decision:
        try:
            with PolicyCall(self._name, policy):
                answer: object = policy.decide(state)
        except PolicyError as error:
            raise self._lacks("answers", f"{when}: {error}") from error
        if not isinstance(answer, Decision):
            raise self._lacks(
                "answers", f"{when} it answered {answer!r:.100}; expected a Decision"
            )
        return answer

    def _same(self, one: _Played, other: _Played, what: str, how: str) -> None:
        for number, (first, second) in enumerate(
            zip_longest(one.decisions, other.decisions)
        ):
            if first is None or second is None or not _equal(first, second):
                raise self._lacks(
                    what,
                    f"{how}: decision {number} is {_shown(first)} and {_shown(second)}",
                )
        if _books(one.outcome) != _books(other.outcome) or not one.outcome.steps.equals(
            other.outcome.steps
        ):
            raise self._lacks(what, f"{how}: the same decisions, but other results")

    def _lacks(self, what: str, why: str) -> PolicyCheckError:
        """The error for a property."""
        trace, seed = self._world.trace, self._world.seed
        where = f"{len(trace.nodes)} nodes of {trace.units_per_node} units, {len(self._world.jobs)} jobs"
        again = f"check_policy(..., seed={seed}, worlds=1)"
        return PolicyCheckError(
            f"policy {self._name!r} lacks {what!r} ({where}): {why}; to see it again: {again}"
        )


def _equal(one: tuple[int, Decision], other: tuple[int, Decision]) -> bool:
    return one[0] == other[0] and _answer(one[1]) == _answer(other[1])


def _answer(decision: Decision) -> tuple[Any, ...]:
    """The engine's part of a decision; how well and how fast it was solved may differ."""
    placement = None if decision.placement is None else dict(decision.placement)
    counts = (
        None
        if decision.counts is None
        else tuple(int(count) for count in decision.counts)
    )
    return counts, placement, decision.transfers, decision.wake_ns


def _shown(entry: tuple[int, Decision] | None) -> str:
    return (
        "none"
        if entry is None
        else f"{_answer(entry[1])} at {np.datetime64(entry[0], 'ns')}"
    )


def _seen(state: State) -> tuple[Any, ...]:
    """The parts of a state that a policy must not change."""
    views = [
        (id(view.job), view.units, view.held, view.partners, view.rate, view.starts)
        for view in state.jobs
    ]
    return (
        state.time_ns,
        state.idle,
        views,
        list(state.machine.idle_by_node()),
        len(state.finished),
    )


def _content(jobs: Iterable[Job]) -> list[list[Any]]:
    """Return all attributes of jobs, for comparison."""
    return [
        [
            _value(getattr(job, each.name))
            for each in fields(job)
            if each.name != "profile"
        ]
        for job in jobs
    ]


def _value(value: Any) -> Any:
    if isinstance(value, Curve):
        return value.ns.tobytes(), value.ps.tobytes()
    return copy.deepcopy(dict(value)) if hasattr(value, "keys") else value


def _books(outcome: Outcome) -> list[tuple[Any, ...]]:
    return [
        (r.start_ns, r.finish_ns, r.work, r.gained, r.lost, r.unit_seconds, r.starts)
        for r in outcome.records
    ]


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers."""
    return value.item()
