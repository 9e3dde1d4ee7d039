"""What a policy is shown of the units that jobs held since it was last asked: all of it, and nothing twice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from bft.models import Curve, Job, JobTable
from bft.replay import Decision, EqualShare, Policy, Replay, State, Traits
from bft.replay.engine.ledger import JobRecord
from bft.replay.engine.policy_api import RunInterval
from bft.replay.policies.checking import make_world
from bft.replay.policies.registry import policy_type
from bft.replay.trace.node_trace import SECOND_NS, from_changes


@dataclass
class Recorder(Policy):
    """Decides like another policy, and compares the sum of all that it was shown with the engine's records."""

    inner: Policy
    stalls: bool
    name: str = field(default="recorder", init=False)
    records: dict[str, JobRecord] = field(default_factory=dict)
    unit_seconds: Counter[str] = field(default_factory=Counter)
    work: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    compared: int = 0

    def __post_init__(self) -> None:
        self.traits = Traits.of(self.inner)

    def decide(self, state: State) -> Decision:
        for view in state.finished:
            name = view.job.name
            self._add(name, state.ended[name])
            assert self.unit_seconds[name] == pytest.approx(view.unit_seconds, rel=1e-9)
            assert self.work[name] == pytest.approx(
                self._done(self.records[name]), rel=1e-9
            )
            self.compared += 1
        for position, view in enumerate(state.jobs):
            self._add(view.job.name, state.intervals(position))
            assert self.unit_seconds[view.job.name] == pytest.approx(
                view.unit_seconds, rel=1e-9, abs=1e-6
            )
        return self.inner.decide(state)

    def _done(self, record: JobRecord) -> float:
        """Samples that a job did at its rates: deductions are no stalls, nor is what a rigid job does again."""
        stalled = record.lost_to_stall + record.lost_to_start + record.lost_to_restart
        if self.stalls and not self.traits.rigid:
            stalled += record.lost_to_preemption
        return record.gained - stalled

    def _add(self, name: str, intervals: Sequence[RunInterval]) -> None:
        for interval in intervals:
            self.unit_seconds[name] += interval.units * interval.seconds
            self.work[name] += interval.rate * interval.progressed_s
            self.endings[interval.ended] += 1


@pytest.mark.parametrize("name", ["equal-share", "srtf-wrs", "tiresias-l", "sia"])
def test_all_that_a_job_held_and_did_is_shown_once(name: str) -> None:
    endings: Counter[str] = Counter()
    compared = 0
    for seed in range(6):
        world = make_world(seed)
        policy = Recorder(
            policy_type(name).make(world.settings()),
            stalls=world.rules.cost_model == "stall",
        )
        replay = Replay(
            world.trace, world.jobs, policy, world.rules, world.interference
        )
        policy.records = {record.job.name: record for record in replay.ledger.records}
        replay.run()
        endings += policy.endings
        compared += policy.compared
    assert compared > 10
    assert {"decision", "leave", "finish"} <= endings.keys()


@dataclass
class Keeper(EqualShare):
    """Equal shares; keeps all states."""

    seen: list[State] = field(default_factory=list)

    def decide(self, state: State) -> Decision:
        self.seen.append(state)
        return super().decide(state)


def test_a_leave_between_two_decisions_shows_both_sizes_with_their_rates_and_a_kept_state_keeps_them() -> (
    None
):
    curve = Curve([0, 4], [0, 40])
    job = Job(
        "a",
        0,
        1,
        4,
        pmax=1e6,
        tcup_s=5.0,
        tcdw_s=5.0,
        scalability=curve,
        objective=curve,
    )
    seconds, nodes = (
        np.array([0, 0, 0, 0, 100, 140]),
        np.array([0, 1, 2, 3, 3, 2], dtype=np.int32),
    )
    trace = from_changes(
        list("abcd"), seconds * SECOND_NS, nodes, np.array([1, 1, 1, 1, 0, 0], dtype=bool),
        start=0, end=500 * SECOND_NS,
    )  # fmt: skip
    policy = Keeper()
    Replay(trace, JobTable((job,)), policy).run()
    told = [state.intervals(0) for state in policy.seen]
    assert told == [
        (),
        (RunInterval(4, 0, 100 * SECOND_NS, 0, 40.0, False, "leave"),),
        (RunInterval(3, 100 * SECOND_NS, 140 * SECOND_NS, 0, 30.0, False, "leave"),),
    ]
    assert policy.seen[2].ended == {
        "a": [RunInterval(3, 100 * SECOND_NS, 140 * SECOND_NS, 0, 30.0, False, "leave")]
    }
