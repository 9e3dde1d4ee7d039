"""Time: node traces, the event loop, policies, metrics, results, and the command line.

Names are loaded when first used, so that the command line need not wait for what it does not use.

>>> from bft.replay import EqualShare, Replay, always_idle, read_trace
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bft.replay.engine import Replay, Rules
    from bft.replay.interference import Interference
    from bft.replay.ledger import Outcome
    from bft.replay.metrics import summarise
    from bft.replay.options import Options
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
    from bft.replay.run import execute
    from bft.replay.trace import NodeTrace, always_idle, from_changes
    from bft.replay.trace_files import read_trace, write_trace
    from bft.replay.trace_stats import fragments, trace_statistics

_HOMES = {
    "Decision": "policies",
    "EqualShare": "policies",
    "Interference": "interference",
    "JobView": "policies",
    "Kind": "policies",
    "MilpPolicy": "policies",
    "MilpSharingPolicy": "policies",
    "NodeTrace": "trace",
    "Options": "options",
    "Outcome": "ledger",
    "Policy": "policies",
    "Replay": "engine",
    "Rules": "engine",
    "State": "policies",
    "always_idle": "trace",
    "execute": "run",
    "fragments": "trace_stats",
    "from_changes": "trace",
    "read_trace": "trace_files",
    "summarise": "metrics",
    "trace_statistics": "trace_stats",
    "write_trace": "trace_files",
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
