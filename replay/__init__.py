"""Time: node traces, the event loop, policies, metrics, results, and the command line.

Names are loaded when first used, so that the command line need not wait for what it does not use.

>>> from bft.replay import EqualShare, Replay, always_idle, read_trace
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bft.replay.engine.ledger import Outcome
    from bft.replay.engine.loop import Replay
    from bft.replay.engine.rules import Rules
    from bft.replay.engine.sharing_rules import Interference
    from bft.replay.options.options import Options
    from bft.replay.policies import (
        Decision,
        EqualShare,
        JobView,
        Kind,
        MilpPolicy,
        MilpSharingPolicy,
        Policy,
        State,
    )
    from bft.replay.results.metrics import summarise
    from bft.replay.run import execute
    from bft.replay.trace.node_trace import NodeTrace, always_idle, from_changes
    from bft.replay.trace.trace_files import read_trace, write_trace
    from bft.replay.trace.trace_statistics import fragments, trace_statistics

_HOMES = {
    "Decision": "policies",
    "EqualShare": "policies",
    "Interference": "engine.sharing_rules",
    "JobView": "policies",
    "Kind": "policies",
    "MilpPolicy": "policies",
    "MilpSharingPolicy": "policies",
    "NodeTrace": "trace.node_trace",
    "Options": "options.options",
    "Outcome": "engine.ledger",
    "Policy": "policies",
    "Replay": "engine.loop",
    "Rules": "engine.rules",
    "State": "policies",
    "always_idle": "trace.node_trace",
    "execute": "run",
    "fragments": "trace.trace_statistics",
    "from_changes": "trace.node_trace",
    "read_trace": "trace.trace_files",
    "summarise": "results.metrics",
    "trace_statistics": "trace.trace_statistics",
    "write_trace": "trace.trace_files",
}

__all__ = [
    "Decision",
    "EqualShare",
    "Interference",
    "JobView",
    "Kind",
    "MilpPolicy",
    "MilpSharingPolicy",
    "NodeTrace",
    "Options",
    "Outcome",
    "Policy",
    "Replay",
    "Rules",
    "State",
    "always_idle",
    "execute",
    "fragments",
    "from_changes",
    "read_trace",
    "summarise",
    "trace_statistics",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
