"""YARN's capacity scheduler against schedules by hand, and against fifo where there is one queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.models import Curve, Job, JobTable
from bft.replay.engine.loop import Replay
from bft.replay.engine.rules import Rules
from bft.replay.policies import Policy
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.yarn_cs import YarnCapacity
from bft.replay.trace.node_trace import SECOND_NS, always_idle


def job(
    name: str, vc: str, at: float, units: int, seconds: float, user: str = ""
) -> Job:
    """A job with this duration on this number of units."""
    curve = Curve(np.array([0, units]), np.array([0.0, 1.0]))
    return Job(
        name,
        round(at * SECOND_NS),
        units,
        units,
        seconds,
        0,
        0,
        curve,
        curve,
        vc=vc,
        user=user,
    )


def schedule(
    policy: Policy, jobs: list[Job], units: int, per_node: int = 1
) -> dict[str, tuple[float, float]]:
    """When each job starts and finishes, seconds."""
    trace = always_idle(
        units // per_node, 0, 10**6 * SECOND_NS, units_per_node=per_node
    )
    outcome = Replay(trace, JobTable(tuple(jobs)), policy, Rules(max_jobs=0)).run()
    return {
        record.job.name: (
            (record.start_ns or 0) / SECOND_NS,
            (record.finish_ns or 0) / SECOND_NS,
        )
        for record in outcome.records
    }


def test_the_queue_that_uses_least_of_its_share_goes_first() -> None:
    # 4 units. At 0 s a1 takes 2 of queue a; a2 came before b1, but a uses half and b nothing.
    jobs = [
        job("a1", "a", 0, 2, 10),
        job("a2", "a", 1, 2, 10),
        job("a3", "a", 1, 2, 10),
        job("b1", "b", 1, 2, 10),
    ]
    assert schedule(YarnCapacity(), jobs, 4) == {
        "a1": (0, 10),
        "a2": (10, 20),
        "a3": (11, 21),
        "b1": (1, 11),
    }
    assert schedule(Fifo(), jobs, 4) == {
        "a1": (0, 10),
        "a2": (1, 11),
        "a3": (10, 20),
        "b1": (11, 21),
    }


def test_a_queue_uses_what_others_leave_and_is_not_preempted_for_it() -> None:
    jobs = [
        job("a1", "a", 0, 3, 10),
        job("a2", "a", 0, 1, 30),
        job("b1", "b", 5, 2, 10),
    ]
    # b comes to its half only when a1 ends: nobody is preempted.
    assert schedule(YarnCapacity(), jobs, 4) == {
        "a1": (0, 10),
        "a2": (0, 30),
        "b1": (10, 20),
    }
    # With at most half for each queue, a2 waits for a1, which asks for more than half, but alone in its queue.
    assert schedule(YarnCapacity(max_share=0.5), jobs, 4) == {
        "a1": (0, 10),
        "a2": (10, 40),
        "b1": (10, 20),
    }


def test_a_head_that_does_not_fit_blocks_its_queue_and_no_other() -> None:
    jobs = [
        job("a1", "a", 0, 3, 10),
        job("a2", "a", 1, 2, 10),
        job("a3", "a", 2, 1, 10),
        job("b1", "b", 3, 1, 10),
    ]
    assert schedule(YarnCapacity(), jobs, 4) == {
        "a1": (0, 10),
        "a2": (10, 20),
        "a3": (10, 20),
        "b1": (3, 13),
    }


def test_capacities_weigh_the_queues() -> None:
    # Both queues use 1 of 4 units; a has three quarters, so that it goes first again.
    jobs = [job(f"{vc}{k}", vc, 0, 1, 10) for k in range(1, 5) for vc in "ba"]
    found = schedule(YarnCapacity(capacities="a:0.75"), jobs, 4)
    assert [name for name, (start, _) in found.items() if start == 0] == [
        "b1",
        "a1",
        "a2",
        "a3",
    ]
    by_user = [replace(one, vc="", user=one.vc) for one in jobs]
    assert schedule(YarnCapacity(by="user", capacities="a:0.75"), by_user, 4) == found


@examples(40)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 8), st.integers(1, 20)),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([1, 4]),
)
def test_one_queue_is_first_come_first_served(
    rows: list[tuple[int, int, int]], per_node: int
) -> None:
    jobs = [
        job(f"j{k}", "", at, units, seconds)
        for k, (at, units, seconds) in enumerate(rows)
    ]
    assert schedule(YarnCapacity(), jobs, 8, per_node) == schedule(
        Fifo(), jobs, 8, per_node
    )


@examples(40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.integers(1, 6),
            st.integers(1, 20),
            st.sampled_from("abc"),
        ),
        max_size=12,
    )
)
def test_within_a_queue_nobody_overtakes_and_all_finish_without_a_break(
    rows: list[tuple[int, int, int, str]],
) -> None:
    jobs = [
        job(f"j{k}", vc, at, units, seconds)
        for k, (at, units, seconds, vc) in enumerate(rows)
    ]
    found = schedule(YarnCapacity(), jobs, 6)
    for vc in "abc":
        starts = [
            found[one.name][0]
            for one in sorted(jobs, key=lambda one: one.tsub_ns)
            if one.vc == vc
        ]
        assert starts == sorted(starts)
    for one in jobs:
        start, finish = found[one.name]
        assert finish - start == pytest.approx(one.pmax)


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
