"""A Gymnasium environment over a replay, for policies that learn: `pip install gymnasium`.

An episode is one replay. A step is one decision: the action is the number of units of each job in play, the replay
continues to the next decision, and the reward is the net progress of all jobs until then, in samples.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError, JobTable

try:
    import gymnasium as gym
except ModuleNotFoundError as error:
    raise ImportError(
        "bft.replay.env needs the package gymnasium: pip install gymnasium"
    ) from error

from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.policy_api import Decision, JobView, State, Traits
from bft.replay.engine.rules import Rules
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

Observation = dict[str, Any]  # arrays of float64, by name
# What is seen of each job, by column of the observation "jobs".
JOB_COLUMNS = (
    "in_play",  # 1; 0 where there is no job
    "units",  # that it holds now
    "jmin",
    "jmax",
    "rate",  # samples/s that it does now
    "rate_at_jmin",
    "rate_at_jmax",
    "tcup_s",
    "tcdw_s",
    "weight",
    "submitted_s",  # seconds since it was submitted
    "executed_s",  # seconds during which it held units
    "unit_seconds",
    "remaining",  # share of its work that is left; 1 where the environment is not clairvoyant
)


class ReplayEnv(gym.Env[Observation, NDArray[np.int64]]):
    """A replay of elastic jobs in which an agent decides.

    The observation holds `idle` (units, those that jobs hold included), `time_s` (since the trace's start) and `jobs`:
    one row per job in play, in order of admission, padded with zeros to `max_jobs`; its columns are JOB_COLUMNS.

    An action holds a number of units for each row. `repaired` makes it one that can be carried out, which is then in
    `info["counts"]`. The reward is the samples done since the last step, costs deducted; the rewards of an episode add
    up to the outcome of the replay. It terminates when all jobs have finished and is truncated when the trace ends.

    Parameters
    ----------
    trace, jobs, rules
        As for `bft.replay.Replay`.
    max_jobs
        Rows of the observation; None for as many as can be in play, `rules.max_jobs`. Must not be fewer.
    clairvoyant
        Whether the agent sees the jobs' progress, as no scheduler does.

    Raises
    ------
    InputError
        When nothing is ever to be decided, or `max_jobs` is too small.

    Examples
    --------
    >>> from bft.replay.policies.checking import make_world
    >>> world = make_world(0)
    >>> env = ReplayEnv(world.trace, world.jobs, world.rules)
    >>> observation, info = env.reset()
    >>> observation["jobs"].shape
    (10, 14)
    >>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    """

    _state: State | None
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        trace: NodeTrace,
        jobs: JobTable,
        rules: Rules = Rules(),
        *,
        max_jobs: int | None = None,
        clairvoyant: bool = False,
    ) -> None:
        self._trace, self._jobs, self._rules = trace, jobs, rules
        self._seconds = (trace.end - trace.start) / SECOND_NS
        # The replay never asks its policy: the agent decides.
        traits = Traits(clairvoyant=clairvoyant)
        self._policy: Any = SimpleNamespace(name="environment", traits=traits)
        in_play = min(rules.max_jobs or len(jobs), len(jobs))
        self.max_jobs = in_play if max_jobs is None else max_jobs
        if self.max_jobs < in_play:
            raise InputError(
                f"max_jobs: expected at least {in_play}, which may be in play at once, not {max_jobs}"
            )
        units = trace.units
        high = self._bounds(units)
        self.observation_space = gym.spaces.Dict(
            {
                "idle": gym.spaces.Box(0.0, float(units), (1,), np.float64),
                "time_s": gym.spaces.Box(0.0, self._seconds, (1,), np.float64),
                "jobs": gym.spaces.Box(np.zeros_like(high), high, dtype=np.float64),
            }
        )
        self.action_space = gym.spaces.MultiDiscrete([units + 1] * self.max_jobs)
        self.reset()
        if self._state is None:
            raise InputError(
                "nothing is ever to be decided: no job is in play while a node is idle",
                file=trace.source,
            )
        self._state = None  # until it is reset

    @property
    def state(self) -> State | None:
        """State of the replay as policies see it, for the next decision; None when the episode is over."""
        return self._state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the replay anew; it is the same each time, whatever the seed."""
        super().reset(seed=seed)
        self._replay = Replay(self._trace, self._jobs, self._policy, self._rules)
        self._state = self._advanced()
        return self._observation(), self._info(())

    def step(
        self, action: NDArray[np.int64]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out an action, and go on to the next decision.

        Raises
        ------
        RuntimeError
            When the episode is over, or has not begun.
        """
        if self._state is None:
            raise RuntimeError("the episode is over or has not begun: call reset()")
        counts = repaired(self._state, np.asarray(action).tolist())
        before = self._replay.ledger.work
        self._replay.decide(Decision(counts))
        self._state = self._advanced()
        over = self._state is None
        done = over and all(
            record.finish_ns is not None for record in self._replay.ledger.records
        )
        reward = float(self._replay.ledger.work - before)
        return self._observation(), reward, done, over and not done, self._info(counts)

    def action(self, counts: Sequence[int]) -> NDArray[np.int64]:
        """The action that gives the jobs in play these counts."""
        padded = np.zeros(self.max_jobs, dtype=np.int64)
        padded[: len(counts)] = counts
        return padded

    @property
    def outcome(self) -> Outcome:
        """Outcome of the episode, the same as that of a replay.

        Raises
        ------
        RuntimeError
            When it is not over.
        """
        if self._replay.peek() is not None or self._state is not None:
            raise RuntimeError("the episode is not over")
        return self._replay.run()

    def _advanced(self) -> State | None:
        """The state of the next decision; None at the end of the replay."""
        while self._replay.peek() is not None:
            state = self._replay.advance()
            if state is not None:
                return state
        return None

    def _bounds(self, units: int) -> NDArray[np.float64]:
        """The largest value of each column, one row for each job that may be in play."""
        jobs = self._jobs.jobs
        waited = max(self._trace.end - min(job.tsub_ns for job in jobs), 0) / SECOND_NS
        rate = max(float(job.rates.max()) for job in jobs)
        highest = {
            "in_play": 1.0,
            "units": float(units),
            "jmin": float(max(job.jmin for job in jobs)),
            "jmax": float(max(job.jmax for job in jobs)),
            **dict.fromkeys(("rate", "rate_at_jmin", "rate_at_jmax"), rate),
            "tcup_s": max(job.tcup_s for job in jobs),
            "tcdw_s": max(job.tcdw_s for job in jobs),
            "weight": max(job.weight for job in jobs),
            "submitted_s": waited,
            "executed_s": self._seconds,
            "unit_seconds": units * self._seconds,
            "remaining": 1.0,
        }
        # A little more than the largest: sums of seconds are rounded.
        row = np.array([highest[name] * (1 + 1e-9) for name in JOB_COLUMNS])
        return np.tile(row, (self.max_jobs, 1))

    def _observation(self) -> Observation:
        state, rows = self._state, np.zeros((self.max_jobs, len(JOB_COLUMNS)))
        idle, now = (
            (0, self._replay.now) if state is None else (state.idle, state.time_ns)
        )
        for row, view in zip(rows, () if state is None else state.jobs, strict=False):
            row[:] = self._row(view, now)
        return {
            "idle": np.array([float(idle)]),
            "time_s": np.array([(now - self._trace.start) / SECOND_NS]),
            "jobs": rows,
        }

    def _row(self, view: JobView, now_ns: int) -> list[float]:
        job = view.job
        left = view.remaining / job.pmax if self._policy.traits.clairvoyant else 1.0
        return [
            1.0,
            view.units,
            job.jmin,
            job.jmax,
            view.rate,
            float(job.rates[job.jmin]),
            float(job.rates[job.jmax]),
            job.tcup_s,
            job.tcdw_s,
            job.weight,
            (now_ns - job.tsub_ns) / SECOND_NS,
            view.executed_s,
            view.unit_seconds,
            min(max(left, 0.0), 1.0),
        ]

    def _info(self, counts: Sequence[int]) -> dict[str, Any]:
        """The instant, the jobs in play, and the counts that were carried out."""
        names = (
            ()
            if self._state is None
            else tuple(view.job.name for view in self._state.jobs)
        )
        return {"time_ns": self._replay.now, "jobs": names, "counts": tuple(counts)}


def repaired(state: State, wanted: Sequence[int]) -> tuple[int, ...]:
    """Feasible counts close to the requested ones; feasible ones stay the same.

    In order of admission each job gets what is wanted, at most its Jmax and what is left, rounded down to a size that
    it may have, which may be nothing. Numbers beyond the jobs in play are ignored.

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> from bft.replay import JobView
    >>> curve = Curve([0, 4], [0, 100])
    >>> jobs = [JobView(Job(name, 0, 2, 4, 1e6, 0, 0, curve, curve), 0, 0.0) for name in "abc"]
    >>> repaired(State(0, 7, jobs), [9, 1, 4, 5])
    (4, 0, 3)
    """
    left, counts = state.idle, []
    for view, count in zip(state.jobs, wanted, strict=False):
        counts.append(view.job.at_most(min(count, left)))
        left -= counts[-1]
    return tuple(counts)
