"""Policies that decide in rounds: at whole multiples of an interval, in UTC, whatever happens in between."""

from __future__ import annotations

from bft.replay.engine.policy_api import Decision, State
from bft.replay.trace.node_trace import SECOND_NS


def is_round(now_ns: int, interval_s: float) -> bool:
    """Whether an instant begins a round; always, without an interval."""
    step = round(interval_s * SECOND_NS)
    return step <= 0 or now_ns % step == 0


def next_round(now_ns: int, interval_s: float) -> int | None:
    """The first instant after `now_ns` that begins a round; None without an interval."""
    step = round(interval_s * SECOND_NS)
    return (now_ns // step + 1) * step if step > 0 else None


def keep_what_is_left(state: State, *, wake_ns: int | None) -> Decision:
    """Change only what must change: a job that cannot run on what it has gives back its newest units."""
    views = {position: state.jobs[position] for position in state.running}
    left = {
        position: view.held[: view.job.at_most(view.units)]
        for position, view in views.items()
    }
    fewer = {
        position: held
        for position, held in left.items()
        if len(held) < views[position].units
    }
    return Decision.placed(fewer, wake_ns=wake_ns)
