"""What a policy is shown of the units that jobs held since it was last asked: all of it, and nothing twice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from worlds import START, Scripted, instant, make, replay, traced

from bft.replay import Decision, Policy, Replay, State, Traits
from bft.replay.engine.ledger import JobRecord
from bft.replay.engine.policy_api import RunInterval
from bft.replay.policies.checking import make_world
from bft.replay.policies.registry import policy_type


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


def test_a_leave_between_two_decisions_shows_both_sizes_with_their_rates_and_a_kept_state_keeps_them() -> (
    None
):
    job = make("a", [0, 10, 20, 30, 40], pmax=1e6, up=5, down=5)
    policy = Scripted()
    replay(traced("0 +abcd, 100 -d, 140 -c, 500"), [job], policy)
    first = RunInterval(4, START, instant(100), START, 40.0, False, "leave")
    second = RunInterval(3, instant(100), instant(140), START, 30.0, False, "leave")
    assert [state.intervals(0) for state in policy.seen] == [(), (first,), (second,)]
    assert policy.seen[2].ended == {"a": [second]}
