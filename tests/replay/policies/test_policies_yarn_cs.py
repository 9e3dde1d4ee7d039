"""YARN's capacity scheduler; `tests/data/worlds` has schedules by hand, `tests/rules` the plain program."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from rules.drawn import any_rules, tables, traces

from bft.models import JobTable
from bft.replay import NodeTrace, Replay, Rules
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.yarn_cs import YarnCapacity


@given(traces(), tables(), any_rules)
def test_one_queue_is_first_come_first_served(
    trace: NodeTrace, jobs: JobTable, rules: Rules
) -> None:
    alike = JobTable(tuple(replace(job, vc="") for job in jobs))
    one, other = (
        Replay(trace, alike, policy, rules).run() for policy in (YarnCapacity(), Fifo())
    )
    assert one.allocations.equals(other.allocations)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"capacities": "a"}, "expected NAME:SHARE"),
        ({"capacities": "a:0"}, "expected NAME:SHARE"),
        ({"capacities": "a:0.5,a:0.2"}, "each name once"),
        ({"capacities": "a:0.7,b:0.7"}, "add up to 1.4, expected at most 1"),
        ({"max_share": 0.0}, "max_share: expected a finite number > 0"),
    ],
)
def test_options_without_meaning_are_refused(
    options: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        YarnCapacity(**options)
