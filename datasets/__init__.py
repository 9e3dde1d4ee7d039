"""Generators, and the small data set made by them that comes with the package.

Names are loaded when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bft.datasets.bundled import load_bundled
    from bft.datasets.dnn_jobs import dnn_scalability, generate_dnn_jobs
    from bft.datasets.node_traces import NodeTraceTable, generate_node_trace

__all__ = [
    "NodeTraceTable",
    "dnn_scalability",
    "generate_dnn_jobs",
    "generate_node_trace",
    "load_bundled",
]

_HOMES = {
    "NodeTraceTable": "node_traces",
    "dnn_scalability": "dnn_jobs",
    "generate_dnn_jobs": "dnn_jobs",
    "generate_node_trace": "node_traces",
    "load_bundled": "bundled",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
